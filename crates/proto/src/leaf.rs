//! Leaves as text: lines of replies, lists of SITE CHUNK KEEP, names of sessions (our own extension).
//!
//! Ranges are offsets in the file with exclusive ends, digests lower-case hexadecimal. Servers and clients share this
//! page, so that what one writes the other reads.

use std::fmt::Write as _;
use std::ops::Range;

use crate::op::{Leaf, ReadFrom};
use crate::ranges::{self, RangeError};
use crate::reply::Reply;

/// Smallest leaf, bytes.
pub const MIN_SIZE: u64 = 4 << 10;
/// Largest leaf, bytes.
pub const MAX_SIZE: u64 = 1 << 30;
/// Most leaves in one reply, and so in one chunked file; a reply with the longest digests then keeps below
/// [`MAX_REPLY_BYTES`](crate::reply::MAX_REPLY_BYTES). With the largest leaf a file has 64 TiB.
pub const MAX_LEAVES: usize = 65_536;
/// Most leaves in one SITE CHUNK KEEP.
pub const MAX_KEPT: usize = 4096;
/// Longest list of one SITE CHUNK KEEP that a client of ours sends, bytes: 766 leaves at least, some 2000 with MD5.
///
/// Servers take lines of 256 KiB; the rest is left to session and path.
pub const MAX_KEPT_BYTES: usize = 128 << 10;
/// Longest digest, hexadecimal digits (512 bits).
pub const MAX_DIGEST: usize = 128;
/// The algorithm of files that nothing is proven of: KEEP says of their leaves that they arrived and are durable.
pub const NONE: &str = "NONE";
/// The digest that leaves have then, on the wire and in the journal.
pub const NONE_DIGEST: &str = "00";
/// Longest session, bytes; twice as many digits.
pub const MAX_SESSION: usize = 16 << 10;

/// Why a leaf, a list of them or a session was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.reason())]
pub enum LeafError {
    /// Not `start-end` and a digest in the place's form.
    Form,
    /// A leaf without bytes, or one that ends before it starts.
    Empty,
    /// A leaf that begins before the end of the one in front of it.
    Order,
    /// A digest that is empty, odd, too long or not of lower-case hexadecimal digits.
    Digest,
    /// More leaves than allowed.
    TooMany,
    /// A session that is empty, odd, too long or not of lower-case hexadecimal digits.
    Session,
    /// A reply that should name one session names none, or several.
    NoSession,
}

impl LeafError {
    /// One phrase for people.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Form => "a leaf is start-end and its digest",
            Self::Empty => "a leaf has no bytes",
            Self::Order => "leaves are out of order or overlap",
            Self::Digest => "a digest is an even number of lower-case hexadecimal digits, at most 128",
            Self::TooMany => "there are too many leaves",
            Self::Session => "a session is an even number of lower-case hexadecimal digits",
            Self::NoSession => "the reply does not name one session",
        }
    }
}

/// True for a size that leaves can have: a power of two within [`MIN_SIZE`] and [`MAX_SIZE`].
pub fn is_size(size: u64) -> bool {
    size.is_power_of_two() && (MIN_SIZE..=MAX_SIZE).contains(&size)
}

/// The smallest leaf, at least `wanted`, that cuts a file of `file` bytes into [`MAX_LEAVES`] at most; `None` above 64 TiB.
pub fn size_for(file: u64, wanted: u64) -> Option<u64> {
    let least = file.div_ceil(MAX_LEAVES as u64).max(wanted).max(MIN_SIZE);
    least.checked_next_power_of_two().filter(|&size| is_size(size))
}

/// The leaves that a part of a file is made of: they begin at multiples of `size` bytes (0 counts as 1) of the file and are
/// cut by the part's ends; none of an empty part.
pub fn cut(part: &Range<u64>, size: u64) -> impl Iterator<Item = Range<u64>> + use<> {
    let Range { mut start, end } = *part;
    std::iter::from_fn(move || {
        let leaf = start..border(start, size).min(end);
        start = leaf.end;
        (!leaf.is_empty()).then_some(leaf)
    })
}

/// Where the leaf of `size` bytes (0 counts as 1) that holds byte `at` of a file ends.
pub fn border(at: u64, size: u64) -> u64 {
    let size = size.max(1);
    (at / size + 1).saturating_mul(size)
}

/// `LEAF <start>-<end> <hex>`, without the space in front of it.
pub fn line(leaf: &Leaf) -> String {
    format!("LEAF {}-{} {}", leaf.range.start, leaf.range.end, leaf.digest)
}

/// `SESSION <hex>`, without the space in front of it.
pub fn session_line(session: &[u8]) -> String {
    format!("SESSION {}", hex(session))
}

/// The leaves of a final reply, none if it carries none; other lines are passed over.
///
/// # Errors
/// [`LeafError`] if a `LEAF` line is malformed or out of order, or there are more than [`MAX_LEAVES`].
pub fn from_reply(reply: &Reply) -> Result<Vec<Leaf>, LeafError> {
    let mut leaves = Vec::new();
    for text in reply.middle_lines().iter().filter_map(|line| line.strip_prefix(b"LEAF ")) {
        push(&mut leaves, parse_one(text, b' ')?, MAX_LEAVES, |leaf| &leaf.range)?;
    }
    Ok(leaves)
}

/// `READBACK <word>`, without the space in front of it.
pub fn read_line(from: ReadFrom) -> String {
    format!("READBACK {}", from.word())
}

/// Where a final reply says that its leaves were read back from; unknown words prove nothing.
pub fn read_from_reply(reply: &Reply) -> Option<ReadFrom> {
    let word = reply.middle_lines().iter().find_map(|line| line.strip_prefix(b"READBACK "))?.trim_ascii();
    ReadFrom::ALL.into_iter().find(|from| from.word().as_bytes() == word)
}

/// Session and proven leaves of a reply to SITE CHUNK OPEN.
///
/// # Errors
/// As [`from_reply`], and if there is not exactly one well-formed `SESSION` line.
pub fn opened_from_reply(reply: &Reply) -> Result<(Vec<u8>, Vec<Leaf>), LeafError> {
    let mut sessions = reply.middle_lines().iter().filter_map(|line| line.strip_prefix(b"SESSION "));
    let (Some(session), None) = (sessions.next(), sessions.next()) else { return Err(LeafError::NoSession) };
    Ok((parse_session(session)?, from_reply(reply)?))
}

/// `<start>-<end>:<hex>[,...]` of SITE CHUNK KEEP.
pub fn format_list(leaves: &[Leaf]) -> String {
    let mut text = String::new();
    for leaf in leaves {
        let comma = if text.is_empty() { "" } else { "," };
        // Writing to a string cannot fail.
        let _ = write!(text, "{comma}{}-{}:{}", leaf.range.start, leaf.range.end, leaf.digest);
    }
    text
}

/// Parses [`format_list`]'s form: at least one leaf, at most [`MAX_KEPT`], ascending.
///
/// # Errors
/// [`LeafError`].
pub fn parse_list(text: &[u8]) -> Result<Vec<Leaf>, LeafError> {
    let mut leaves = Vec::new();
    for item in text.split(|&b| b == b',') {
        push(&mut leaves, parse_one(item, b':')?, MAX_KEPT, |leaf| &leaf.range)?;
    }
    Ok(leaves)
}

/// Cuts leaves into pieces that one SITE CHUNK KEEP each can carry.
pub fn batches(leaves: &[Leaf]) -> impl Iterator<Item = &[Leaf]> {
    let mut rest = leaves;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = rest.iter().take(MAX_KEPT).take_while(|leaf| {
            bytes += list_len(leaf);
            bytes <= MAX_KEPT_BYTES
        });
        // A digest longer than a list is refused where it is written.
        let (batch, after) = rest.split_at(fits.count().max(1).min(rest.len()));
        rest = after;
        (!batch.is_empty()).then_some(batch)
    })
}

/// Bytes of one item with its comma.
fn list_len(leaf: &Leaf) -> usize {
    digits(leaf.range.start) + digits(leaf.range.end) + leaf.digest.len() + 3
}

fn digits(number: u64) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// Checks what [`parse_list`] would refuse.
///
/// # Errors
/// [`LeafError`].
pub fn check_list(leaves: &[Leaf]) -> Result<(), LeafError> {
    check_items(leaves, |leaf| &leaf.range, |leaf| check_one(&leaf.range, leaf.digest.as_bytes()))
}

/// Checks a list of one command: how many, each by itself, and their order.
pub(crate) fn check_items<T>(
    list: &[T],
    range: impl Fn(&T) -> &Range<u64>,
    one: impl Fn(&T) -> Result<(), LeafError>,
) -> Result<(), LeafError> {
    if list.is_empty() {
        return Err(LeafError::Form);
    }
    if list.len() > MAX_KEPT {
        return Err(LeafError::TooMany);
    }
    list.iter().try_for_each(one)?;
    let ascending = list.windows(2).all(|pair| range(&pair[0]).end <= range(&pair[1]).start);
    if ascending { Ok(()) } else { Err(LeafError::Order) }
}

/// Bytes as lower-case hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A session from its digits: 1 to [`MAX_SESSION`] bytes.
///
/// # Errors
/// [`LeafError::Session`].
pub fn parse_session(text: &[u8]) -> Result<Vec<u8>, LeafError> {
    if !is_hex(text, MAX_SESSION * 2) {
        return Err(LeafError::Session);
    }
    let value = |digit: u8| if digit.is_ascii_digit() { digit - b'0' } else { digit - b'a' + 10 };
    Ok(text.chunks_exact(2).map(|pair| value(pair[0]) << 4 | value(pair[1])).collect())
}

fn is_hex(text: &[u8], most: usize) -> bool {
    let digit = |b: &u8| matches!(b, b'0'..=b'9' | b'a'..=b'f');
    !text.is_empty() && text.len().is_multiple_of(2) && text.len() <= most && text.iter().all(digit)
}

/// `<start>-<end>`, the separator, the digest.
fn parse_one(text: &[u8], separator: u8) -> Result<Leaf, LeafError> {
    let split = text.iter().position(|&b| b == separator).ok_or(LeafError::Form)?;
    let (range, digest) = (parse_range(&text[..split])?, &text[split + 1..]);
    check_one(&range, digest)?;
    // Checked: ASCII.
    Ok(Leaf { range, digest: String::from_utf8_lossy(digest).into_owned() })
}

/// `<start>-<end>`, not empty.
pub(crate) fn parse_range(text: &[u8]) -> Result<Range<u64>, LeafError> {
    match ranges::parse_one(text) {
        Ok(range) => check_range(&range).map(|()| range),
        Err(RangeError::Inverted) => Err(LeafError::Empty),
        Err(_) => Err(LeafError::Form),
    }
}

pub(crate) fn check_range(range: &Range<u64>) -> Result<(), LeafError> {
    if range.is_empty() { Err(LeafError::Empty) } else { Ok(()) }
}

fn check_one(range: &Range<u64>, digest: &[u8]) -> Result<(), LeafError> {
    check_range(range)?;
    if is_hex(digest, MAX_DIGEST) { Ok(()) } else { Err(LeafError::Digest) }
}

/// Adds an item behind the others, to `most` at the most.
pub(crate) fn push<T>(
    list: &mut Vec<T>,
    item: T,
    most: usize,
    range: impl Fn(&T) -> &Range<u64>,
) -> Result<(), LeafError> {
    if list.len() == most {
        return Err(LeafError::TooMany);
    }
    if list.last().is_some_and(|last| range(last).end > range(&item).start) {
        return Err(LeafError::Order);
    }
    list.push(item);
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::reply::{MAX_REPLY_BYTES, ReplyParser};

    fn leaf(range: Range<u64>, digest: &str) -> Leaf {
        Leaf { range, digest: digest.into() }
    }

    fn read(bytes: &[u8]) -> Reply {
        let mut parser = ReplyParser::default();
        parser.feed(bytes);
        parser.next_reply().unwrap().unwrap()
    }

    #[test]
    fn leaves_begin_at_multiples_of_their_size_in_the_file() {
        let leaves: Vec<_> = cut(&(10..35), 10).collect();
        assert_eq!(leaves, [10..20, 20..30, 30..35]);
        assert_eq!(cut(&(15..16), 10).collect::<Vec<_>>(), std::iter::once(15..16).collect::<Vec<_>>());
        assert_eq!(cut(&(10..10), 10).count(), 0);
    }

    #[test]
    fn leaves_are_read_from_both_styles_of_reply() {
        let want = vec![leaf(0..16, "00ff"), leaf(32..40, "ab")];
        let spaced = read(b"226-Transfer Complete.\r\n LEAF 0-16 00ff\r\n LEAF 32-40 ab\r\n226 End.\r\n");
        let coded = read(b"226-Transfer Complete.\r\n226-LEAF 0-16 00ff\r\n226-LEAF 32-40 ab\r\n226 End.\r\n");
        assert_eq!((from_reply(&spaced), from_reply(&coded)), (Ok(want.clone()), Ok(want)));
        assert_eq!(from_reply(&read(b"226 LEAF 0-16 00ff\r\n")), Ok(vec![]), "a last line is text for people");
        assert_eq!(from_reply(&read(b"226-x\r\n LEAFS 5\r\n OTHER\r\n226 x\r\n")), Ok(vec![]));
    }

    #[test]
    fn a_reply_says_where_its_leaves_were_read() {
        for from in ReadFrom::ALL {
            let reply = read(format!("226-Done\r\n LEAF 0-16 00ff\r\n {}\r\n226 End\r\n", read_line(from)).as_bytes());
            assert_eq!(read_from_reply(&reply), Some(from));
            assert_eq!(from_reply(&reply).map(|leaves| leaves.len()), Ok(1));
        }
        for text in
            ["226-x\r\n READBACK tape\r\n226 x\r\n", "226 READBACK disk\r\n", "226-x\r\n READBACKS disk\r\n226 x\r\n"]
        {
            assert_eq!(read_from_reply(&read(text.as_bytes())), None, "{text}");
        }
    }

    #[test]
    fn an_opened_reply_names_one_session() {
        let reply = read(b"250-Ready.\r\n SESSION 00fe\r\n LEAF 0-5 ab\r\n250 End\r\n");
        assert_eq!(opened_from_reply(&reply), Ok((vec![0, 0xfe], vec![leaf(0..5, "ab")])));
        for (text, error) in [
            (&b"250-Ready.\r\n LEAF 0-5 ab\r\n250 End\r\n"[..], LeafError::NoSession),
            (b"250-Ready.\r\n SESSION 00\r\n SESSION 01\r\n250 End\r\n", LeafError::NoSession),
            (b"250 SESSION 00\r\n", LeafError::NoSession),
            (b"250-Ready.\r\n SESSION 0\r\n250 End\r\n", LeafError::Session),
            (b"250-Ready.\r\n SESSION \r\n250 End\r\n", LeafError::Session),
            (b"250-Ready.\r\n SESSION 00\r\n LEAF 5-5 ab\r\n250 End\r\n", LeafError::Empty),
        ] {
            assert_eq!(opened_from_reply(&read(text)), Err(error), "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn lists_that_are_not_exact_name_their_fault() {
        for (text, error) in [
            ("", LeafError::Form),
            ("0-5", LeafError::Form),
            ("0-5:ab,", LeafError::Form),
            ("0-5 ab", LeafError::Form),
            ("-5:ab", LeafError::Form),
            ("0-5-6:ab", LeafError::Form),
            ("+0-5:ab", LeafError::Form),
            ("0-18446744073709551616:ab", LeafError::Form),
            ("5-5:ab", LeafError::Empty),
            ("6-5:ab", LeafError::Empty),
            ("0-5:", LeafError::Digest),
            ("0-5:a", LeafError::Digest),
            ("0-5:AB", LeafError::Digest),
            ("0-5:xy", LeafError::Digest),
            ("0-5:ab:cd", LeafError::Digest),
            ("0-5:ab,4-8:cd", LeafError::Order),
            ("5-8:ab,0-5:cd", LeafError::Order),
        ] {
            assert_eq!(parse_list(text.as_bytes()), Err(error), "{text}");
        }
        assert!(parse_list(format!("0-5:{}", "a".repeat(MAX_DIGEST)).as_bytes()).is_ok());
        assert_eq!(parse_list(format!("0-5:{}", "a".repeat(MAX_DIGEST + 2)).as_bytes()), Err(LeafError::Digest));
    }

    #[test]
    fn one_leaf_above_the_limit_is_refused_and_the_limit_is_not() {
        let leaves: Vec<_> = (0..=MAX_KEPT as u64).map(|i| leaf(i..i + 1, "ab")).collect();
        assert_eq!(parse_list(format_list(&leaves).as_bytes()), Err(LeafError::TooMany));
        assert_eq!(check_list(&leaves), Err(LeafError::TooMany));
        let fits = &leaves[..MAX_KEPT];
        assert_eq!((parse_list(format_list(fits).as_bytes()), check_list(fits)), (Ok(fits.to_vec()), Ok(())));
    }

    #[test]
    fn sessions_are_whole_bytes_in_lower_case_and_bounded() {
        assert_eq!(parse_session(b"00ff10"), Ok(vec![0, 255, 16]));
        for bad in [&b""[..], b"0", b"0F", b"0g", b" 00", b"00 "] {
            assert_eq!(parse_session(bad), Err(LeafError::Session), "{}", String::from_utf8_lossy(bad));
        }
        assert!(parse_session(&vec![b'0'; 2 * MAX_SESSION]).is_ok());
        assert_eq!(parse_session(&vec![b'0'; 2 * MAX_SESSION + 2]), Err(LeafError::Session));
    }

    #[test]
    fn the_longest_reply_and_the_longest_keep_can_be_read() {
        let digest = "f".repeat(MAX_DIGEST);
        let top = u64::MAX - MAX_LEAVES as u64;
        let leaves: Vec<_> = (0..MAX_LEAVES as u64).map(|i| leaf(top + i..top + i + 1, &digest)).collect();
        let lines = std::iter::once(session_line(&[7; MAX_SESSION])).chain(leaves.iter().map(line));
        let wire = Reply::multi(250, "Ready.", lines.map(String::into_bytes), "End").to_bytes();
        assert!(wire.len() < MAX_REPLY_BYTES);
        assert_eq!(opened_from_reply(&read(&wire)), Ok((vec![7; MAX_SESSION], leaves.clone())));
        let batch = batches(&leaves).next().unwrap();
        assert!((batch.len(), format_list(batch).len() <= MAX_KEPT_BYTES) == (766, true), "{}", batch.len());
    }

    #[test]
    fn leaves_grow_with_the_file_so_that_a_reply_can_name_them_all() {
        let tib = 1 << 40;
        assert_eq!(size_for(0, 16 << 20), Some(16 << 20));
        assert_eq!(size_for(tib, 16 << 20), Some(16 << 20));
        assert_eq!(size_for(tib + 1, 16 << 20), Some(32 << 20));
        assert_eq!(size_for(5, 1), Some(MIN_SIZE));
        assert_eq!(size_for(64 * tib, 16 << 20), Some(MAX_SIZE));
        assert_eq!((size_for(64 * tib + 1, 0), size_for(u64::MAX, 0), size_for(0, u64::MAX)), (None, None, None));
        assert!(!is_size(0) && !is_size(2048) && !is_size(5000) && !is_size(2 << 30) && is_size(4096));
    }

    fn ascending() -> impl Strategy<Value = Vec<Leaf>> {
        let item = (0u64..1 << 40, 1u64..1 << 30, "([0-9a-f]{2}){1,64}");
        proptest::collection::vec(item, 1..60).prop_map(|items| {
            let mut at = 0;
            let place = |(gap, length, digest)| {
                let start: u64 = at + gap;
                at = start + length;
                Leaf { range: start..at, digest }
            };
            items.into_iter().map(place).collect()
        })
    }

    proptest! {
        #[test]
        fn any_leaves_survive_the_wire(leaves in ascending()) {
            prop_assert_eq!(parse_list(format_list(&leaves).as_bytes()), Ok(leaves.clone()));
            let reply = Reply::multi(226, "x", leaves.iter().map(|l| line(l).into_bytes()), "End");
            prop_assert_eq!(from_reply(&read(&reply.to_bytes())), Ok(leaves.clone()));
            prop_assert_eq!(batches(&leaves).flatten().cloned().collect::<Vec<_>>(), leaves.clone());
            prop_assert_eq!(leaves.iter().map(list_len).sum::<usize>(), format_list(&leaves).len() + 1);
        }

        #[test]
        fn what_is_read_is_what_is_checked(text in "[0-9a-f,:-]{0,40}") {
            if let Ok(leaves) = parse_list(text.as_bytes()) {
                prop_assert_eq!(check_list(&leaves), Ok(()));
            }
        }

        #[test]
        fn parsing_any_bytes_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = (parse_list(&bytes), parse_session(&bytes));
        }
    }
}

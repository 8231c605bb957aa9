//! Holes as text: lines of the replies to SITE EXTENTS and SITE CHUNK OPEN, lists of SITE CHUNK HOLES (our own extension).
//!
//! A hole here is a run of whole leaves in which a file has no data. Servers and clients share this page, so that what one
//! writes the other reads.

use std::ops::Range;

use crate::leaf::{self, LeafError, MAX_KEPT, MAX_KEPT_BYTES, MAX_LEAVES};
use crate::op::StorageFacts;
use crate::ranges::{self, parse_u64};
use crate::reply::Reply;

/// `HOLE <start>-<end>`, without the space in front of it.
pub fn line(hole: &Range<u64>) -> String {
    format!("HOLE {}-{}", hole.start, hole.end)
}

/// `DATA <bytes>`, without the space in front of it.
pub fn data_line(bytes: u64) -> String {
    format!("DATA {bytes}")
}

/// `ROOM <bytes>` and `STRIPE <bytes>` as far as they are known, without the space in front of them.
pub fn storage_lines(facts: &StorageFacts) -> impl Iterator<Item = String> {
    let room = facts.room.map(|bytes| format!("ROOM {bytes}"));
    room.into_iter().chain(facts.stripe.map(|bytes| format!("STRIPE {bytes}")))
}

/// `ANEW <bytes>` if anything was thrown away, without the space in front of it.
pub fn discarded_line(bytes: u64) -> Option<String> {
    (bytes > 0).then(|| format!("ANEW {bytes}"))
}

/// The holes that a reply names, none if it names none; other lines are passed over.
///
/// # Errors
/// [`LeafError`] if a `HOLE` line is malformed, empty or out of order, or there are more than [`MAX_LEAVES`].
pub fn from_reply(reply: &Reply) -> Result<Vec<Range<u64>>, LeafError> {
    let mut holes = Vec::new();
    for text in reply.middle_lines().iter().filter_map(|line| line.strip_prefix(b"HOLE ")) {
        leaf::push(&mut holes, leaf::parse_range(text)?, MAX_LEAVES, |hole| hole)?;
    }
    Ok(holes)
}

/// Holes and bytes of data of a reply to SITE EXTENTS.
///
/// # Errors
/// As [`from_reply`], and [`LeafError::Form`] if there is not exactly one well-formed `DATA` line.
pub fn extents_from_reply(reply: &Reply) -> Result<(Vec<Range<u64>>, u64), LeafError> {
    let data = number(reply, b"DATA ")?.ok_or(LeafError::Form)?;
    Ok((from_reply(reply)?, data))
}

/// What a reply to SITE CHUNK OPEN says of the storage.
///
/// # Errors
/// [`LeafError::Form`] if a number is malformed or told twice.
pub fn storage_from_reply(reply: &Reply) -> Result<StorageFacts, LeafError> {
    Ok(StorageFacts { room: number(reply, b"ROOM ")?, stripe: number(reply, b"STRIPE ")?.filter(|&bytes| bytes > 0) })
}

/// Bytes that a destination has thrown away because they are of another version; 0 if it does not say.
///
/// # Errors
/// [`LeafError::Form`] if the number is malformed or told twice.
pub fn discarded_from_reply(reply: &Reply) -> Result<u64, LeafError> {
    Ok(number(reply, b"ANEW ")?.unwrap_or(0))
}

fn number(reply: &Reply, word: &[u8]) -> Result<Option<u64>, LeafError> {
    let mut found = reply.middle_lines().iter().filter_map(|line| line.strip_prefix(word));
    match (found.next(), found.next()) {
        (None, _) => Ok(None),
        (Some(text), None) => parse_u64(text).map(Some).map_err(|_| LeafError::Form),
        (Some(_), Some(_)) => Err(LeafError::Form),
    }
}

/// `<start>-<end>[,...]` of SITE CHUNK HOLES.
pub fn format_list(holes: &[Range<u64>]) -> String {
    ranges::format(holes)
}

/// Parses [`format_list`]'s form: at least one hole, at most [`MAX_KEPT`], ascending.
///
/// # Errors
/// [`LeafError`].
pub fn parse_list(text: &[u8]) -> Result<Vec<Range<u64>>, LeafError> {
    let mut holes = Vec::new();
    for item in text.split(|&b| b == b',') {
        leaf::push(&mut holes, leaf::parse_range(item)?, MAX_KEPT, |hole| hole)?;
    }
    Ok(holes)
}

/// Checks what [`parse_list`] would refuse.
///
/// # Errors
/// [`LeafError`].
pub fn check_list(holes: &[Range<u64>]) -> Result<(), LeafError> {
    leaf::check_items(holes, |hole| hole, leaf::check_range)
}

/// Cuts holes into pieces that one SITE CHUNK HOLES each can carry.
pub fn batches(holes: &[Range<u64>]) -> impl Iterator<Item = &[Range<u64>]> {
    // Two numbers of at most 20 digits, a dash and a comma.
    holes.chunks(MAX_KEPT.min(MAX_KEPT_BYTES / 42))
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "a list of one range is meant")]
mod tests {
    use super::*;
    use crate::reply::{MAX_REPLY_BYTES, ReplyParser};

    fn read(bytes: &[u8]) -> Reply {
        let mut parser = ReplyParser::default();
        parser.feed(bytes);
        parser.next_reply().unwrap().unwrap()
    }

    #[test]
    fn extents_are_read_as_they_are_written() {
        let lines = [data_line(5), line(&(0..16)), line(&(32..40))];
        let reply = Reply::multi(250, "Extents.", lines.map(String::into_bytes), "End").to_bytes();
        assert_eq!(extents_from_reply(&read(&reply)), Ok((vec![0..16, 32..40], 5)));
        for (text, error) in [
            (&b"250-x\r\n HOLE 0-5\r\n250 End\r\n"[..], LeafError::Form),
            (b"250-x\r\n DATA 5\r\n DATA 5\r\n250 End\r\n", LeafError::Form),
            (b"250-x\r\n DATA -5\r\n250 End\r\n", LeafError::Form),
            (b"250-x\r\n DATA 5\r\n HOLE 5-5\r\n250 End\r\n", LeafError::Empty),
            (b"250-x\r\n DATA 5\r\n HOLE 5-9\r\n HOLE 8-10\r\n250 End\r\n", LeafError::Order),
            (b"250-x\r\n DATA 5\r\n HOLE 5\r\n250 End\r\n", LeafError::Form),
        ] {
            assert_eq!(extents_from_reply(&read(text)), Err(error), "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn storage_says_what_it_knows_once() {
        let facts = StorageFacts { room: Some(7), stripe: Some(1 << 20) };
        let reply = Reply::multi(250, "Ready.", storage_lines(&facts).map(String::into_bytes), "End").to_bytes();
        assert_eq!(storage_from_reply(&read(&reply)), Ok(facts));
        assert_eq!(storage_from_reply(&read(b"250-x\r\n SESSION 00\r\n250 End\r\n")), Ok(StorageFacts::default()));
        assert_eq!(storage_from_reply(&read(b"250-x\r\n STRIPE 0\r\n250 End\r\n")), Ok(StorageFacts::default()));
        assert_eq!(storage_from_reply(&read(b"250-x\r\n ROOM 1\r\n ROOM 2\r\n250 End\r\n")), Err(LeafError::Form));
    }

    #[test]
    fn what_was_thrown_away_is_told_if_it_was_anything() {
        let told = |bytes| Reply::multi(250, "Ready.", discarded_line(bytes).map(String::into_bytes), "End").to_bytes();
        assert_eq!(discarded_from_reply(&read(&told(7))), Ok(7));
        assert_eq!((discarded_line(0), discarded_from_reply(&read(b"250 Ready.\r\n"))), (None, Ok(0)));
        assert_eq!(discarded_from_reply(&read(b"250-x\r\n ANEW x\r\n250 End\r\n")), Err(LeafError::Form));
    }

    #[test]
    fn lists_are_ascending_and_bounded() {
        let most: Vec<_> = (0..=MAX_KEPT as u64).map(|i| i * 2..i * 2 + 1).collect();
        let fits = &most[..MAX_KEPT];
        assert_eq!((parse_list(format_list(fits).as_bytes()), check_list(fits)), (Ok(fits.to_vec()), Ok(())));
        assert_eq!(parse_list(format_list(&most).as_bytes()), Err(LeafError::TooMany));
        assert_eq!((check_list(&most), check_list(&[])), (Err(LeafError::TooMany), Err(LeafError::Form)));
        for (text, error) in [
            ("", LeafError::Form),
            ("5", LeafError::Form),
            ("0-5,", LeafError::Form),
            ("0-5,4-8", LeafError::Order),
            ("5-5", LeafError::Empty),
            ("0-18446744073709551616", LeafError::Form),
        ] {
            assert_eq!(parse_list(text.as_bytes()), Err(error), "{text}");
        }
        assert_eq!(check_list(&[0..5, 4..8]), Err(LeafError::Order));
        assert_eq!(check_list(&[5..5]), Err(LeafError::Empty));
    }

    #[test]
    fn the_longest_lists_and_replies_can_be_carried() {
        let top = u64::MAX - 2 * MAX_LEAVES as u64;
        let holes: Vec<_> = (0..MAX_LEAVES as u64 / 2).map(|i| top + 2 * i..top + 2 * i + 1).collect();
        assert!(batches(&holes).all(|batch| format_list(batch).len() <= MAX_KEPT_BYTES && batch.len() <= MAX_KEPT));
        assert_eq!(batches(&holes).flatten().count(), holes.len());
        let reply = Reply::multi(250, "Extents.", holes.iter().map(|hole| line(hole).into_bytes()), "End").to_bytes();
        assert!(reply.len() < MAX_REPLY_BYTES);
        assert_eq!(from_reply(&read(&reply)), Ok(holes));
    }
}

//! Packs as text: lists of small files in ERET PACK and ESTO PACK, and their fates in the reply (our own extension).
//!
//! The files of a pack lie one behind the other in one transfer. A file whose bytes do not come has failed: so the
//! sender tells the receiver of a file that it could not read, without a word on the control connection.

use std::fmt::Write as _;

use crate::mlsx::{percent_decode, percent_encode};
use crate::op::{Failure, FailureKind, PackResult, PackedFile};
use crate::ranges::parse_u64;
use crate::reply::Reply;
use crate::timeval::Timestamp;

/// Most files in one pack.
pub const MAX_FILES: usize = 256;
/// Most bytes in one pack: a sender reads them all before it sends any.
pub const MAX_BYTES: u64 = 1 << 20;
/// Longest list that a client of ours sends, bytes; servers take lines of 256 KiB.
pub const MAX_LIST_BYTES: usize = 64 << 10;
/// Longest text of a failure, characters.
const MAX_TEXT: usize = 512;

/// Why a list of files or their fates was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.reason())]
pub enum PackError {
    /// An entry that is not `size,modify,mode,path`.
    Form,
    /// A file without bytes: that it fails could not be told from that it comes.
    Empty,
    /// None, or more than [`MAX_FILES`].
    Count,
    /// More than [`MAX_BYTES`].
    Bytes,
    /// A reply that does not tell the fate of every file, in order.
    Fates,
}

impl PackError {
    /// One phrase for people.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Form => "a packed file is size,modify,mode,path",
            Self::Empty => "an empty file cannot be packed",
            Self::Count => "a pack has 1 to 256 files",
            Self::Bytes => "a pack has at most 1048576 bytes",
            Self::Fates => "the reply does not tell what became of every file",
        }
    }
}

/// Words of [`FailureKind`] in replies.
const KINDS: [(FailureKind, &str); 23] = [
    (FailureKind::NotFound, "NOT_FOUND"),
    (FailureKind::PermissionDenied, "PERMISSION_DENIED"),
    (FailureKind::NotADirectory, "NOT_A_DIRECTORY"),
    (FailureKind::IsADirectory, "IS_A_DIRECTORY"),
    (FailureKind::Exists, "EXISTS"),
    (FailureKind::NotEmpty, "NOT_EMPTY"),
    (FailureKind::BadPath, "BAD_PATH"),
    (FailureKind::NoSpace, "NO_SPACE"),
    (FailureKind::FileTooLarge, "FILE_TOO_LARGE"),
    (FailureKind::ReadOnly, "READ_ONLY"),
    (FailureKind::Quota, "QUOTA"),
    (FailureKind::Checksum, "CHECKSUM"),
    (FailureKind::CannotConnect, "CANNOT_CONNECT"),
    (FailureKind::ConnectionBroken, "CONNECTION_BROKEN"),
    (FailureKind::BadData, "BAD_DATA"),
    (FailureKind::NoDataHandle, "NO_DATA_HANDLE"),
    (FailureKind::NotSupported, "NOT_SUPPORTED"),
    (FailureKind::BadArgument, "BAD_ARGUMENT"),
    (FailureKind::SourceChanged, "SOURCE_CHANGED"),
    (FailureKind::Busy, "BUSY"),
    (FailureKind::Aborted, "ABORTED"),
    (FailureKind::Unproven, "UNPROVEN"),
    (FailureKind::Other, "OTHER"),
];

/// Bytes that one file takes in a list, its space included.
pub fn entry_len(file: &PackedFile) -> usize {
    entry(file).len() + 1
}

/// `size,modify,mode,path`, a space between two; `-` for a time or mode that is not to be set.
pub fn format_list(files: &[PackedFile]) -> Vec<u8> {
    files.iter().map(entry).collect::<Vec<_>>().join(&b' ')
}

fn entry(file: &PackedFile) -> Vec<u8> {
    let mut text = format!("{},", file.size);
    // Writing to a string cannot fail.
    let _ = match file.modified {
        Some((secs, nanos)) => write!(text, "{},", Timestamp { secs, nanos }),
        None => write!(text, "-,"),
    };
    let _ = match file.mode {
        Some(mode) => write!(text, "{mode:o},"),
        None => write!(text, "-,"),
    };
    [text.into_bytes(), percent_encode(&file.path)].concat()
}

/// Parses [`format_list`]'s form.
///
/// # Errors
/// [`PackError`].
pub fn parse_list(text: &[u8]) -> Result<Vec<PackedFile>, PackError> {
    let items = text.split(|&b| b == b' ').filter(|item| !item.is_empty());
    let files = items.take(MAX_FILES + 1).map(parse_entry).collect::<Result<Vec<_>, _>>()?;
    check_list(&files)?;
    Ok(files)
}

/// Checks what [`parse_list`] would refuse.
///
/// # Errors
/// [`PackError`].
pub fn check_list(files: &[PackedFile]) -> Result<(), PackError> {
    if files.is_empty() || files.len() > MAX_FILES {
        return Err(PackError::Count);
    }
    if files.iter().any(|file| file.size == 0) {
        return Err(PackError::Empty);
    }
    let usable = |file: &PackedFile| !file.path.is_empty() && !file.path.contains(&0);
    let mode_fits = |file: &PackedFile| file.mode.is_none_or(|mode| mode <= 0o7777);
    if !files.iter().all(|file| usable(file) && mode_fits(file)) {
        return Err(PackError::Form);
    }
    let bytes = files.iter().fold(0_u64, |sum, file| sum.saturating_add(file.size));
    if bytes > MAX_BYTES { Err(PackError::Bytes) } else { Ok(()) }
}

fn parse_entry(text: &[u8]) -> Result<PackedFile, PackError> {
    let mut fields = text.splitn(4, |&b| b == b',');
    let mut next = || fields.next().ok_or(PackError::Form);
    let (size, modify, mode, path) = (next()?, next()?, next()?, next()?);
    let modified = match modify {
        b"-" => None,
        text => Some(Timestamp::parse(text).map_err(|_| PackError::Form)?).map(|time| (time.secs, time.nanos)),
    };
    let mode = match mode {
        b"-" => None,
        text => Some(octal(text).ok_or(PackError::Form)?),
    };
    let size = parse_u64(size).map_err(|_| PackError::Form)?;
    Ok(PackedFile { path: percent_decode(path), size, modified, mode })
}

fn octal(text: &[u8]) -> Option<u32> {
    let digits = (1..=5).contains(&text.len()) && text.iter().all(|b| matches!(b, b'0'..=b'7'));
    digits.then(|| text.iter().fold(0, |mode, digit| mode << 3 | u32::from(digit - b'0')))
}

/// `FILE <number> OK <digest>`, `-` for none, or `FILE <number> FAILED <class> <text>`; numbers count from 0.
pub fn fate_line(number: usize, fate: &PackResult) -> String {
    match fate {
        Ok(digest) => format!("FILE {number} OK {}", digest.as_deref().unwrap_or("-")),
        Err(failure) => {
            let word = KINDS.iter().find(|(kind, _)| *kind == failure.kind).map_or("OTHER", |(_, word)| word);
            let text: String = failure.text.lines().collect::<Vec<_>>().join("; ").chars().take(MAX_TEXT).collect();
            format!("FILE {number} FAILED {word} {text}")
        }
    }
}

/// What became of the `count` files of a pack, from the final reply; lines that are not known are passed over.
///
/// # Errors
/// [`PackError::Fates`] unless every file is there, once and in order.
pub fn fates_from_reply(reply: &Reply, count: usize) -> Result<Vec<PackResult>, PackError> {
    let lines = reply.middle_lines().iter().filter_map(|line| line.strip_prefix(b"FILE "));
    let fates = lines.enumerate().map(|(number, line)| parse_fate(number, line)).collect::<Option<Vec<_>>>();
    fates.filter(|fates| fates.len() == count).ok_or(PackError::Fates)
}

fn parse_fate(number: usize, line: &[u8]) -> Option<PackResult> {
    let text = String::from_utf8_lossy(line);
    let mut words = text.splitn(4, ' ');
    if parse_u64(words.next()?.as_bytes()).ok()? != number as u64 {
        return None;
    }
    match (words.next()?, words.next()?, words.next()) {
        ("OK", "-", None) => Some(Ok(None)),
        ("OK", digest, None) if is_digest(digest) => Some(Ok(Some(digest.to_owned()))),
        ("FAILED", word, text) => {
            // A class of a later version is a failure all the same.
            let kind = KINDS.iter().find(|(_, known)| *known == word).map_or(FailureKind::Other, |(kind, _)| *kind);
            Some(Err(Failure { kind, text: text.unwrap_or_default().to_owned(), checksums: None }))
        }
        _ => None,
    }
}

fn is_digest(text: &str) -> bool {
    let digits = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    digits && !text.is_empty() && text.len().is_multiple_of(2) && text.len() <= crate::leaf::MAX_DIGEST
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn file(path: &[u8], size: u64) -> PackedFile {
        PackedFile { path: path.to_vec(), size, modified: None, mode: None }
    }

    fn failure(kind: FailureKind, text: &str) -> Failure {
        Failure { kind, text: text.into(), checksums: None }
    }

    #[test]
    fn lists_are_read_as_they_are_written() {
        let dated =
            PackedFile { modified: Some((1_795_226_514, 500_000_000)), mode: Some(0o644), ..file(b"/a b,%", 9) };
        let files = vec![dated, file(b"/c\r\n\xff", 1)];
        let text = format_list(&files);
        assert_eq!(String::from_utf8_lossy(&text), "9,20261121020154.5,644,/a%20b,%25 1,-,-,/c%0D%0A%FF");
        assert_eq!(parse_list(&text), Ok(files.clone()));
        assert_eq!(parse_list(&[b"  ", text.as_slice(), b" "].concat()), Ok(files.clone()));
        assert_eq!(files.iter().map(entry_len).sum::<usize>(), text.len() + 1);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let many = vec![file(b"/a", 1); MAX_FILES + 1];
        for (text, why) in [
            (&b""[..], PackError::Count),
            (&format_list(&many), PackError::Count),
            (b"0,-,-,/a", PackError::Empty),
            (b"1048576,-,-,/a 1,-,-,/b", PackError::Bytes),
            (b"18446744073709551615,-,-,/a 1,-,-,/b", PackError::Bytes),
            (b"1,-,-", PackError::Form),
            (b"1,-,-,", PackError::Form),
            (b"1,-,8,/a", PackError::Form),
            (b"1,-,17777,/a", PackError::Form),
            (b"1,2026,-,/a", PackError::Form),
            (b"x,-,-,/a", PackError::Form),
            (b"1,-,-,/a%00", PackError::Form),
        ] {
            assert_eq!(parse_list(text), Err(why), "{}", String::from_utf8_lossy(text));
        }
        assert!(parse_list(&format_list(&many[1..])).is_ok());
    }

    #[test]
    fn fates_are_read_in_order_and_completely_or_not_at_all() {
        let fates: Vec<PackResult> =
            vec![Ok(Some("00ff".into())), Err(failure(FailureKind::NotFound, "no such file: /a b")), Ok(None)];
        let lines: Vec<Vec<u8>> = fates.iter().enumerate().map(|(at, f)| fate_line(at, f).into_bytes()).collect();
        let read = |lines: &[Vec<u8>], count| fates_from_reply(&Reply::multi(226, "x", lines.to_vec(), "End"), count);
        assert_eq!(read(&lines, 3), Ok(fates.clone()));
        let news = [vec![b"NEWS".to_vec()], lines.clone()].concat();
        assert_eq!(read(&news, 3), Ok(fates));
        for bad in [&lines[1..], &lines[..2], &[lines[0].clone(), lines[0].clone(), lines[2].clone()]] {
            assert_eq!(read(bad, 3), Err(PackError::Fates));
        }
        for line in ["FILE 0 OK 0", "FILE 0 OK 00 x", "FILE 0 OK", "FILE 0 FINE -", "FILE 00 OK -x", "FILE x OK -"] {
            assert_eq!(read(&[line.as_bytes().to_vec()], 1), Err(PackError::Fates), "{line}");
        }
        let later = read(&[b"FILE 0 FAILED ON_FIRE call for help".to_vec()], 1).unwrap();
        assert_eq!(later, [Err(failure(FailureKind::Other, "call for help"))]);
    }

    #[test]
    fn a_failure_takes_one_bounded_line() {
        let long = failure(FailureKind::Other, &format!("a\r\nb{}", "ü".repeat(MAX_TEXT)));
        let line = fate_line(7, &Err(long));
        assert!(line.starts_with("FILE 7 FAILED OTHER a; bü") && line.chars().count() < MAX_TEXT + 30, "{line}");
    }

    fn any_file() -> impl Strategy<Value = PackedFile> {
        let path = proptest::collection::vec(1u8.., 1..30);
        let time = proptest::option::of((0i64..200_000_000_000, 0u32..1_000_000_000));
        (path, 1u64..1000, time, proptest::option::of(0u32..=0o7777))
            .prop_map(|(path, size, modified, mode)| PackedFile { path, size, modified, mode })
    }

    proptest! {
        #[test]
        fn any_pack_survives_the_wire(files in proptest::collection::vec(any_file(), 1..100)) {
            prop_assert_eq!(parse_list(&format_list(&files)), Ok(files));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9,/a%-]{0,40}( [0-9,/a%-]{0,20}){0,3}") {
            if let Ok(files) = parse_list(text.as_bytes()) {
                prop_assert_eq!(check_list(&files), Ok(()));
            }
        }
    }
}

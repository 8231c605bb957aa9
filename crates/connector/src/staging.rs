//! The hidden name a file bears until it is committed.

use whimbrel_engine::{Fault, FaultCode};

use crate::path::StoragePath;

/// Between a name and what is added to it, in every hidden name that is made for it.
pub const HIDDEN_WORD: &[u8] = b".whimbrel-";
/// How the name of every unfinished file ends.
const SUFFIX: &[u8] = b".whimbrel-part";
/// How the name of every journal ends, before the number of the file it is about.
const JOURNAL: &str = ".whimbrel-journal-";
/// Digits of the number behind it, hexadecimal.
const JOURNAL_DIGITS: usize = 16;
/// Longest name, bytes (`NAME_MAX` of every common file system).
const NAME_MAX: usize = 255;
/// How much of a long name is kept in front of its hash.
const KEPT: usize = 200;

/// Where the bytes of `path` are until commit: `.NAME.whimbrel-part` in the same directory.
///
/// The same for every attempt at the same name, on every host, so that a later attempt finds it.
/// Long names are cut and told apart by a hash.
pub(crate) fn staging_path(path: &StoragePath) -> Result<StoragePath, Fault> {
    let too_long = |error: crate::path::PathError| {
        Fault::new(FaultCode::InvalidPath, "name the unfinished file")
            .on_path(path.as_bytes())
            .detail(error.to_string())
    };
    let (Some(name), Some(parent)) = (path.name(), path.parent()) else {
        return Err(Fault::new(FaultCode::IsADirectory, "write").on_path(path.as_bytes()));
    };
    parent.join(&staging_name(name)).map_err(too_long)
}

fn staging_name(name: &[u8]) -> Vec<u8> {
    hidden_name(name, SUFFIX)
}

/// The name of the journal of the unfinished file of `name` that is `identity`, in the same directory.
///
/// The identity is part of the name, so a journal can never be taken for that of another file.
pub(crate) fn journal_name(name: &[u8], identity: &[u8]) -> Vec<u8> {
    hidden_name(name, format!("{JOURNAL}{:016x}", fnv1a(identity)).as_bytes())
}

/// Whether `found` has the form of the name of a journal of an unfinished file of `name`, whichever that is.
///
/// Other files may have names that begin alike.
pub(crate) fn is_journal_of(name: &[u8], found: &[u8]) -> bool {
    let some = journal_name(name, b"");
    let (prefix, _) = some.split_at(some.len() - JOURNAL_DIGITS);
    found.strip_prefix(prefix).is_some_and(is_number)
}

/// Refuses to give a file a name that storage gives to what is unfinished: whoever stores the file that such a name is about would
/// remove it.
///
/// # Errors
/// `InvalidPath`, about `op`.
pub(crate) fn refuse_hidden(path: &StoragePath, op: &str) -> Result<(), Fault> {
    if !path.name().is_some_and(is_hidden) {
        return Ok(());
    }
    let fault = Fault::new(FaultCode::InvalidPath, op).on_path(path.as_bytes());
    Err(fault.detail("unfinished files have names of this form here, and are removed: give it another name"))
}

/// Whether a name has the form of that of an unfinished file, or of its journal.
fn is_hidden(name: &[u8]) -> bool {
    let Some(name) = name.strip_prefix(b".") else { return false };
    let stem = name.strip_suffix(SUFFIX).or_else(|| {
        let (stem, digits) = name.split_at_checked(name.len().checked_sub(JOURNAL_DIGITS)?)?;
        stem.strip_suffix(JOURNAL.as_bytes()).filter(|_| is_number(digits))
    });
    stem.is_some_and(|stem| !stem.is_empty())
}

/// Whether this is the number at the end of a journal's name.
fn is_number(digits: &[u8]) -> bool {
    digits.len() == JOURNAL_DIGITS && digits.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn hidden_name(name: &[u8], suffix: &[u8]) -> Vec<u8> {
    let mut hidden = Vec::with_capacity(NAME_MAX);
    hidden.push(b'.');
    if 1 + name.len() + suffix.len() <= NAME_MAX {
        hidden.extend_from_slice(name);
    } else {
        hidden.extend_from_slice(&shortened(name).unwrap_or_default());
    }
    hidden.extend_from_slice(suffix);
    hidden
}

/// What stands for a name in hidden names that it is too long for; `None`: no name of its length is.
pub fn shortened(name: &[u8]) -> Option<Vec<u8>> {
    let kept = name.get(..KEPT)?;
    Some([kept, format!("-{:016x}", fnv1a(name)).as_bytes()].concat())
}

/// FNV-1a: fixed for all time, unlike the standard library's hasher.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(bytes: &[u8]) -> StoragePath {
        StoragePath::resolve(&StoragePath::root(), bytes).unwrap()
    }

    #[test]
    fn the_hidden_name_is_beside_the_final_one() {
        let staging = staging_path(&path(b"/d/a.txt")).unwrap();
        assert_eq!(staging.as_bytes(), b"/d/.a.txt.whimbrel-part");
    }

    #[test]
    fn long_names_stay_apart_and_within_the_limit() {
        let long = vec![b'x'; 255];
        let mut other = long.clone();
        other[254] = b'y';
        let (a, b) = (staging_name(&long), staging_name(&other));
        assert!(a.len() <= NAME_MAX && b.len() <= NAME_MAX);
        assert_ne!(a, b);
        assert_eq!(staging_name(&[b'x'; 240]).len(), NAME_MAX);
        assert!(staging_name(&[b'x'; 241]).len() <= NAME_MAX);
    }

    #[test]
    fn journals_of_one_name_stay_apart_and_within_the_limit() {
        assert!(journal_name(b"a.txt", b"1").starts_with(b".a.txt.whimbrel-journal-"));
        assert_ne!(journal_name(b"a", b"1"), journal_name(b"a", b"2"));
        assert!((1..=255).all(|len| journal_name(&vec![b'x'; len], b"1").len() <= NAME_MAX));
    }

    #[test]
    fn a_journal_is_one_of_a_file_only_with_a_number_behind_its_name() {
        for name in [&b"a"[..], b"a.whimbrel-journal-b", &[b'x'; 255]] {
            assert!(is_journal_of(name, &journal_name(name, b"1")) && is_journal_of(name, &journal_name(name, b"2")));
        }
        for found in [
            &b""[..],
            b".a.whimbrel-journal-",
            b".a.whimbrel-journal-of-last-year",
            b".a.whimbrel-journal-0123456789abcde",
            b".a.whimbrel-journal-0123456789ABCDEF",
            b".a.whimbrel-journal-0123456789abcdef0",
            b".a.whimbrel-journal-b.whimbrel-part",
            b".a.whimbrel-journal-b.whimbrel-journal-0123456789abcdef",
            b".b.whimbrel-journal-0123456789abcdef",
            b".a.whimbrel-part",
        ] {
            assert!(!is_journal_of(b"a", found), "{}", found.escape_ascii());
        }
    }

    #[test]
    fn names_of_unfinished_files_and_journals_are_told_from_all_others() {
        let long = vec![b'x'; 255];
        for name in [&b"a"[..], b".a", b".whimbrel-part", &long[..]] {
            assert!(!is_hidden(name) && is_hidden(&staging_name(name)) && is_hidden(&journal_name(name, b"1")));
        }
        for name in [
            &b""[..],
            b".",
            b"a.whimbrel-part",
            b".a.whimbrel-parts",
            b".a.whimbrel-part.txt",
            b".a.whimbrel-journal-0123456789abcde",
            b".a.whimbrel-journal-0123456789abcdeX",
            b".a.whimbrel-0123456789abcdef",
        ] {
            assert!(!is_hidden(name), "{}", name.escape_ascii());
        }
        let fault = refuse_hidden(&path(b"/d/.a.whimbrel-part"), "write").unwrap_err();
        assert_eq!(fault.code, FaultCode::InvalidPath);
        assert!(refuse_hidden(&path(b"/.a.whimbrel-part/d"), "write").is_ok(), "a directory holds no bytes");
    }

    #[test]
    fn the_root_has_no_hidden_name() {
        let fault = staging_path(&StoragePath::root()).unwrap_err();
        assert_eq!(fault.code, FaultCode::IsADirectory);
    }
}

//! Entries of listings as objects.

use whimbrel_engine::listing::{Object, ObjectKind, Timestamp};
use whimbrel_proto::list::ListLine;
use whimbrel_proto::mlsx::{Entry, EntryKind, MlsxError};
use whimbrel_proto::timeval;

/// Owner and group as the server names them, for long listings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owner {
    /// `UNIX.owner`, or the number.
    pub user: Option<String>,
    /// `UNIX.group`, or the number.
    pub group: Option<String>,
}

/// The entry that a line of a machine listing tells of; `None`: it tells of the listed directory itself or the one above it.
///
/// With `links`, an object reached through a symbolic link counts as that link (servers that follow
/// links tell it by a `UNIX.slink` fact).
///
/// # Errors
/// The line is no such line, or does not say what kind of thing it tells of: that may be a file, which would be missing.
pub fn listed(line: &[u8], links: bool) -> Result<Option<(Object, Owner)>, MlsxError> {
    let mut entry = Entry::parse(line)?;
    if entry.is_dot() {
        return Ok(None);
    }
    if entry.kind.is_none() {
        return Err(MlsxError::BadFact);
    }
    let owner = Owner { user: name(entry.owner.take(), entry.uid), group: name(entry.group.take(), entry.gid) };
    Ok(Some((object(entry, links), owner)))
}

/// The object that the line of an MLST reply describes; its path is empty. `links` as in [`listed`].
pub fn described(line: &[u8], links: bool) -> Option<Object> {
    let entry = Entry::parse(line).ok()?;
    // MLST of a directory may call it `cdir` (RFC 3659 §7.5.1).
    Some(Object { path: Vec::new(), ..object(entry, links) })
}

fn object(entry: Entry, links: bool) -> Object {
    // A link is made again with the words it had, if the server tells them: a relative one points into the copy of its tree.
    let target = entry.link_text.or(entry.slink).filter(|target| !target.is_empty());
    let kind = match (entry.kind, target) {
        (Some(EntryKind::Symlink), target) => ObjectKind::Symlink { target: target.unwrap_or_default() },
        (_, Some(target)) if links => ObjectKind::Symlink { target },
        (Some(EntryKind::File), _) => ObjectKind::File,
        (Some(EntryKind::Dir | EntryKind::Current | EntryKind::Parent), _) => ObjectKind::Directory,
        (Some(EntryKind::Other(_)) | None, _) => ObjectKind::Other,
    };
    Object {
        size: entry.size,
        modified: entry.modify.map(|time| Timestamp { secs: time.secs, nanos: time.nanos }),
        mode: entry.mode.map(|mode| mode & 0o7777),
        unique: entry.unique,
        ..Object::bare(entry.name, kind)
    }
}

fn name(name: Option<Vec<u8>>, number: Option<u32>) -> Option<String> {
    name.map(|name| String::from_utf8_lossy(&name).into_owned()).or_else(|| number.map(|number| number.to_string()))
}

/// Whether a line of `ls -l` tells of no entry: the sum above them, in whatever language.
pub fn is_total(line: &[u8]) -> bool {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    let (_, second, third) = (words.next(), words.next(), words.next());
    third.is_none() && second.is_some_and(|word| word[0].is_ascii_digit())
}

/// Reads one line of `ls -l`; sizes and names only, because its dates are ambiguous.
pub fn parse_long(line: &[u8]) -> Option<Object> {
    let line = ListLine::parse(line, timeval::Timestamp::from_secs(0))?;
    let kind = match line.kind {
        b'-' => ObjectKind::File,
        b'd' => ObjectKind::Directory,
        b'l' => ObjectKind::Symlink { target: line.target.unwrap_or_default() },
        _ => ObjectKind::Other,
    };
    Some(Object { size: Some(line.size), ..Object::bare(line.name, kind) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(line: &[u8]) -> Object {
        listed(line, false).unwrap().unwrap().0
    }

    #[test]
    fn facts_become_objects_and_names_keep_spaces_and_bytes() {
        let object = object(b"UNIX.mode=100640;SIZE=6;modify=20261121020154;type=file;  a; b\xff");
        assert_eq!(object.path, b" a; b\xff");
        assert_eq!((object.size, object.mode, object.kind), (Some(6), Some(0o640), ObjectKind::File));
        assert_eq!(object.modified, Some(Timestamp::from_secs(1_795_226_514)));
    }

    #[test]
    fn links_devices_and_dots_are_told_apart() {
        assert_eq!(object(b"Type=slink;UNIX.slink=/a%20b; l").kind, ObjectKind::Symlink { target: b"/a b".to_vec() });
        let relative = b"Type=slink;UNIX.slink=/d/t;X.link=../d/t; l";
        assert_eq!(object(relative).kind, ObjectKind::Symlink { target: b"../d/t".to_vec() });
        assert_eq!(object(b"Type=OS.unix=slink:/t; l").kind, ObjectKind::Symlink { target: b"/t".to_vec() });
        assert_eq!(object(b"Type=OS.unix=chr; null").kind, ObjectKind::Other);
        assert_eq!(listed(b"Type=cdir; /x", false), Ok(None));
        assert_eq!(listed(b"Type=pdir; ..", false), Ok(None));
    }

    #[test]
    fn a_followed_link_counts_as_what_it_points_to_unless_links_are_wanted() {
        let line = b"Type=file;Size=1;UNIX.slink=/x; l";
        assert_eq!(object(line).kind, ObjectKind::File);
        assert_eq!(listed(line, true).unwrap().unwrap().0.kind, ObjectKind::Symlink { target: b"/x".to_vec() });
    }

    #[test]
    fn owners_are_names_or_else_numbers() {
        let owner = |line| listed(line, false).unwrap().unwrap().1;
        assert_eq!(owner(b"Type=file;UNIX.uid=7;UNIX.owner=anna; x").user.as_deref(), Some("anna"));
        assert_eq!(owner(b"Type=file;UNIX.gid=7; x"), Owner { user: None, group: Some("7".to_owned()) });
    }

    #[test]
    fn a_directory_described_as_cdir_keeps_its_facts() {
        let object = described(b"Type=cdir;Modify=20200101000000;UNIX.mode=0755; /a b", false).unwrap();
        assert_eq!((object.kind, object.mode), (ObjectKind::Directory, Some(0o755)));
        assert!(object.modified.is_some() && object.path.is_empty());
    }

    #[test]
    fn lines_without_facts_kind_or_name_are_refused() {
        assert_eq!(listed(b"Size=5;Modify=20260101000000; f", false), Err(MlsxError::BadFact));
        assert_eq!(listed(b"nonsense", false), Err(MlsxError::NoName));
        assert_eq!(listed(b"Type=file; ", false), Err(MlsxError::NoName));
    }

    #[test]
    fn long_listings_give_size_and_name() {
        let line = b"-rw-r--r--   1     gftp     root         4096 Nov 21 01:59 a b";
        assert_eq!(parse_long(line), Some(Object::file(&b"a b"[..], 4096)));
        let link = parse_long(b"lrwxrwxrwx 1 a b 4 Nov 21 01:59 l -> t").unwrap();
        assert_eq!((link.path, link.kind), (b"l".to_vec(), ObjectKind::Symlink { target: b"t".to_vec() }));
        assert_eq!(parse_long(b"total 5"), None);
    }

    #[test]
    fn sums_are_told_from_complaints() {
        for line in [&b"total 5"[..], b"total 1.2M\r", b"insgesamt 12"] {
            assert!(is_total(line), "{}", String::from_utf8_lossy(line));
        }
        for line in
            [&b"ls: x: Permission denied"[..], b"Permission denied", b"12 files in all", b"d????????? ? ? ? ? ? x"]
        {
            assert!(!is_total(line), "{}", String::from_utf8_lossy(line));
        }
    }
}

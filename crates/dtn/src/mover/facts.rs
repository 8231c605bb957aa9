//! Objects of a store as lines of listings: machine listings (RFC 3659 §7) and `ls -l`.

use whimbrel_connector::{Kind, Meta, StoragePath};
use whimbrel_proto::list::ListLine;
use whimbrel_proto::mlsx::{Entry, EntryKind, Fact, FactSet, MlsxError, name_is_safe_on_a_line, percent_encode};
use whimbrel_proto::timeval::Timestamp;

/// What a line tells about one object.
#[derive(Debug, Clone)]
pub struct Subject<'a> {
    /// The object; for a link that is followed, what it points to.
    pub meta: &'a Meta,
    /// The kind when it is not that of the object: `cdir`, `pdir`.
    pub role: Option<EntryKind>,
    /// Where a link points, as an absolute path.
    pub link: Option<&'a StoragePath>,
    /// What a link says, where that is a relative path.
    pub link_text: Option<&'a [u8]>,
    /// Number of entries with `.` and `..`.
    pub count: Option<u64>,
    /// Names of user and group.
    pub owner: &'a (String, String),
    /// Why this object could not be read (GCT practice).
    pub error: Option<&'static str>,
}

/// The facts of these names, in any case; `None`: the default set.
pub fn wanted(names: Option<&[String]>) -> FactSet {
    names.map_or_else(FactSet::default, FactSet::from_names)
}

/// Appends facts, a space and `name`, without line end; nothing if the name [breaks a line](breaks_line).
pub fn line(out: &mut Vec<u8>, wanted: FactSet, subject: &Subject<'_>, name: &[u8]) {
    if let Err(error) = entry(subject, name).encode(wanted, out) {
        tracing::warn!(%error, name = ?String::from_utf8_lossy(name), "left out of a listing");
    }
}

/// Appends a line, without its end, for an entry whose name [breaks a line](breaks_line): percent-encoded, for people, and as a
/// path, which no entry's name is, so that our clients take it for an entry that they cannot know. Stock clients skip the kind;
/// one without a kind they take for a file.
///
/// # Errors
/// The name is empty.
pub fn untold(out: &mut Vec<u8>, name: &[u8]) -> Result<(), MlsxError> {
    let entry = Entry {
        name: [b"./", &percent_encode(name)[..]].concat(),
        kind: Some(kind_of(Kind::Other)),
        error: Some("InvalidName".to_owned()),
        ..Entry::default()
    };
    entry.encode(FactSet::none().with(Fact::Type), out)
}

fn entry(subject: &Subject<'_>, name: &[u8]) -> Entry {
    let meta = subject.meta;
    Entry {
        name: name.to_vec(),
        kind: Some(subject.role.clone().unwrap_or_else(|| kind_of(meta.kind))),
        modify: Some(Timestamp { secs: meta.modified.seconds, nanos: meta.modified.nanoseconds }),
        size: Some(meta.size),
        perm: Some(permissions(meta)),
        mode: Some(meta.mode & 0o7777),
        owner: Some(printable(&subject.owner.0)),
        uid: Some(meta.uid),
        group: Some(printable(&subject.owner.1)),
        gid: Some(meta.gid),
        unique: Some(format!("{:x}-{:x}", meta.unique.0, meta.unique.1)),
        slink: subject.link.map(|link| link.as_bytes().to_vec()),
        link_text: subject.link_text.map(<[u8]>::to_vec),
        xcount: subject.count,
        charset: Some("UTF-8".to_owned()),
        error: subject.error.map(str::to_owned),
    }
}

fn kind_of(kind: Kind) -> EntryKind {
    let other = |word: &str| EntryKind::Other(format!("OS.unix={word}"));
    match kind {
        Kind::File => EntryKind::File,
        Kind::Directory => EntryKind::Dir,
        Kind::Symlink => EntryKind::Symlink,
        Kind::CharacterDevice => other("chr"),
        Kind::BlockDevice => other("blk"),
        Kind::Pipe => other("pipe"),
        Kind::Other => other("other"),
    }
}

/// RFC 3659 §7.5.5: what the caller may do with it.
fn permissions(meta: &Meta) -> String {
    let access = meta.access;
    let letters: &[(&str, bool)] = match meta.kind {
        Kind::Directory => {
            &[("cfmp", access.write && access.execute), ("e", access.execute), ("l", access.read && access.execute)]
        }
        _ => &[("aw", access.write), ("r", access.read)],
    };
    letters.iter().filter(|(_, may)| *may).map(|(letter, _)| *letter).collect()
}

/// Names from an account database must not end a fact or a column.
fn printable(name: &str) -> Vec<u8> {
    name.replace(|c: char| c.is_control() || c == ';' || c == ' ', "_").into_bytes()
}

/// Appends a line of `ls -l` without line end; `now` in seconds since 1970-01-01 UTC.
pub fn long(out: &mut Vec<u8>, meta: &Meta, owner: &(String, String), name: &[u8], now: i64) {
    let line = ListLine {
        kind: type_letter(meta.kind),
        mode: meta.mode & 0o7777,
        links: meta.links,
        owner: printable(&owner.0),
        group: printable(&owner.1),
        size: meta.size,
        modify: Some(Timestamp::from_secs(meta.modified.seconds)),
        name: name.to_vec(),
        target: meta.link_target.clone().filter(|target| !breaks_line(target)),
    };
    out.extend(line.encode(Timestamp::from_secs(now)));
}

/// Whether bytes would end a line (RFC 3659 §7.2 knows no escape).
pub fn breaks_line(bytes: &[u8]) -> bool {
    !name_is_safe_on_a_line(bytes)
}

fn type_letter(kind: Kind) -> u8 {
    match kind {
        Kind::File => b'-',
        Kind::Directory => b'd',
        Kind::Symlink => b'l',
        Kind::CharacterDevice => b'c',
        Kind::BlockDevice => b'b',
        Kind::Pipe => b'p',
        Kind::Other => b's',
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_connector::{Access, Timestamp};

    use super::*;

    fn meta(kind: Kind) -> Meta {
        Meta {
            kind,
            size: 6,
            modified: Timestamp { seconds: 1_795_226_514, nanoseconds: 5 },
            mode: 0o644,
            uid: 1001,
            gid: 0,
            links: 1,
            unique: (0xfe00, 0xa328b6),
            link_target: None,
            access: Access { read: true, write: true, execute: true },
        }
    }

    fn owner() -> (String, String) {
        ("gftp".to_owned(), "root".to_owned())
    }

    fn facts(names: Option<&[String]>, meta: &Meta, role: Option<EntryKind>) -> String {
        let link = StoragePath::resolve(&StoragePath::root(), b"/a b").unwrap();
        let owner = owner();
        let link_text = Some(&b"a b"[..]);
        let subject = Subject { meta, role, link: Some(&link), link_text, count: Some(5), owner: &owner, error: None };
        let mut out = Vec::new();
        line(&mut out, wanted(names), &subject, b"hello");
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn default_facts_are_those_of_the_stock_server_in_its_order_and_then_ours() {
        assert_eq!(
            facts(None, &meta(Kind::File), None),
            "Type=file;Modify=20261121020154;Size=6;Perm=awr;UNIX.mode=0644;UNIX.owner=gftp;UNIX.uid=1001;\
             UNIX.group=root;UNIX.gid=0;Unique=fe00-a328b6;UNIX.slink=/a%20b;X.count=5;X.nanos=5;X.link=a%20b; hello"
        );
    }

    #[test]
    fn only_wanted_facts_are_sent_whatever_the_case() {
        let names = ["size".to_owned(), "TYPE".to_owned(), "nonsense".to_owned(), "charset".to_owned()];
        let dir = meta(Kind::Directory);
        assert_eq!(facts(Some(&names), &dir, Some(EntryKind::Current)), "Type=cdir;Size=6;Charset=UTF-8; hello");
        assert_eq!(facts(Some(&[]), &dir, None), " hello");
        let names = ["perm".to_owned()];
        assert_eq!(facts(Some(&names), &dir, None), "Perm=cfmpel; hello");
    }

    #[test]
    fn long_lines_align_and_show_the_year_of_old_files() {
        let show = |meta: &Meta, now| {
            let mut out = Vec::new();
            long(&mut out, meta, &owner(), b"n", now);
            String::from_utf8(out).unwrap()
        };
        let now = 1_795_226_514;
        let file = meta(Kind::File);
        assert_eq!(show(&file, now), "-rw-r--r--   1     gftp     root            6 Nov 21 02:01 n");
        assert_eq!(show(&file, now * 2), "-rw-r--r--   1     gftp     root            6 Nov 21  2026 n");
        let link = Meta { link_target: Some(b"../t".to_vec()), mode: 0o777, ..meta(Kind::Symlink) };
        assert!(show(&link, now).starts_with("lrwxrwxrwx") && show(&link, now).ends_with(" n -> ../t"));
        let odd = Meta { mode: 0o7644, ..file };
        assert!(show(&odd, now).starts_with("-rwSr-Sr-T"));
    }
}

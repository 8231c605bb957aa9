//! Formats of listing lines: MLSx facts (RFC 3659 §7) and `ls -l`.

use whimbrel_connector::{Kind, Meta, StoragePath};
use whimbrel_proto::timeval::Timestamp;

/// Which facts go into a line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wanted(u16);

/// Facts in the order of lines, with the names on the wire.
///
/// `Charset` is sent on request only; the others by default.
const NAMES: [&str; 13] = [
    "Type",
    "Modify",
    "Size",
    "Perm",
    "Charset",
    "UNIX.mode",
    "UNIX.owner",
    "UNIX.uid",
    "UNIX.group",
    "UNIX.gid",
    "Unique",
    "UNIX.slink",
    "X.count",
];

const CHARSET: usize = 4;
const COUNT: usize = 12;

impl Wanted {
    /// The facts of these names, in any case; `None`: the default set.
    pub fn of(names: Option<&[String]>) -> Self {
        let bit = |index: usize| 1u16 << index;
        match names {
            None => Self((0..NAMES.len()).filter(|&n| n != CHARSET).map(bit).sum()),
            Some(names) => Self(
                (0..NAMES.len())
                    .filter(|&n| names.iter().any(|name| name.eq_ignore_ascii_case(NAMES[n])))
                    .map(bit)
                    .sum(),
            ),
        }
    }

    fn has(self, index: usize) -> bool {
        self.0 & (1 << index) != 0
    }

    /// Whether the number of entries is asked for.
    pub fn count(self) -> bool {
        self.has(COUNT)
    }
}

/// What a line tells about one object.
#[derive(Debug, Clone)]
pub struct Subject<'a> {
    /// The object; for a link that is followed, what it points to.
    pub meta: &'a Meta,
    /// `Type` when it is not that of the object: `cdir`, `pdir`.
    pub role: Option<&'static str>,
    /// Where a link points, as an absolute path.
    pub link: Option<&'a StoragePath>,
    /// Number of entries with `.` and `..`.
    pub count: Option<u64>,
    /// Names of user and group.
    pub owner: &'a (String, String),
    /// Why this object could not be read (GCT practice).
    pub error: Option<&'static str>,
}

/// Appends facts, a space and `name`, without line end.
pub fn line(out: &mut Vec<u8>, wanted: Wanted, subject: &Subject<'_>, name: &[u8]) {
    for (index, fact) in NAMES.iter().enumerate() {
        if !wanted.has(index) {
            continue;
        }
        if let Some(value) = value(index, subject) {
            put(out, fact, &value);
        }
    }
    if let Some(error) = subject.error {
        put(out, "Error", error);
    }
    out.push(b' ');
    out.extend_from_slice(name);
}

fn put(out: &mut Vec<u8>, fact: &str, value: &str) {
    out.extend_from_slice(fact.as_bytes());
    out.push(b'=');
    out.extend_from_slice(value.as_bytes());
    out.push(b';');
}

fn value(index: usize, subject: &Subject<'_>) -> Option<String> {
    let meta = subject.meta;
    Some(match index {
        0 => subject.role.unwrap_or_else(|| type_of(meta.kind)).to_owned(),
        1 => Timestamp::from_secs(meta.modified.seconds).to_wire(),
        2 => meta.size.to_string(),
        3 => permissions(meta),
        CHARSET => "UTF-8".to_owned(),
        5 => format!("{:04o}", meta.mode & 0o7777),
        6 => printable(&subject.owner.0),
        7 => meta.uid.to_string(),
        8 => printable(&subject.owner.1),
        9 => meta.gid.to_string(),
        10 => format!("{:x}-{:x}", meta.unique.0, meta.unique.1),
        11 => percent_encode(subject.link?.as_bytes()),
        _ => subject.count?.to_string(),
    })
}

fn type_of(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "file",
        Kind::Directory => "dir",
        Kind::Symlink => "slink",
        Kind::CharacterDevice => "OS.unix=chr",
        Kind::BlockDevice => "OS.unix=blk",
        Kind::Pipe => "OS.unix=pipe",
        Kind::Other => "OS.unix=other",
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

/// Names from an account database must not end a fact.
fn printable(name: &str) -> String {
    name.replace(|c: char| c.is_control() || c == ';' || c == ' ', "_")
}

fn percent_encode(path: &[u8]) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"/-_.~+,@:".contains(&b);
    let mut out = String::with_capacity(path.len());
    for &byte in path {
        match plain(byte) {
            true => out.push(byte as char),
            false => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

/// Half a year in seconds: `ls` shows the year of what is older.
const RECENT: i64 = 31_556_952 / 2;

/// Appends a line of `ls -l` without line end; `now` in seconds since 1970-01-01 UTC.
pub fn long(out: &mut Vec<u8>, meta: &Meta, owner: &(String, String), name: &[u8], now: i64) {
    let head = format!(
        "{}{} {:3} {:>8} {:>8} {:12} {} ",
        type_letter(meta.kind),
        mode_letters(meta.mode),
        meta.links,
        printable(&owner.0),
        printable(&owner.1),
        meta.size,
        date(meta.modified.seconds, now)
    );
    out.extend_from_slice(head.as_bytes());
    out.extend_from_slice(name);
    if let Some(target) = meta.link_target.as_ref().filter(|target| !breaks_line(target)) {
        out.extend_from_slice(b" -> ");
        out.extend_from_slice(target);
    }
}

/// Whether bytes would end a line (RFC 3659 §7.2 knows no escape).
pub fn breaks_line(bytes: &[u8]) -> bool {
    bytes.iter().any(|b| matches!(b, b'\r' | b'\n' | 0))
}

fn type_letter(kind: Kind) -> char {
    match kind {
        Kind::File => '-',
        Kind::Directory => 'd',
        Kind::Symlink => 'l',
        Kind::CharacterDevice => 'c',
        Kind::BlockDevice => 'b',
        Kind::Pipe => 'p',
        Kind::Other => 's',
    }
}

fn mode_letters(mode: u32) -> String {
    let mut letters = String::with_capacity(9);
    for (shift, special, with_x, without) in [(6, 0o4000, 's', 'S'), (3, 0o2000, 's', 'S'), (0, 0o1000, 't', 'T')] {
        let bits = mode >> shift;
        letters.push(if bits & 4 != 0 { 'r' } else { '-' });
        letters.push(if bits & 2 != 0 { 'w' } else { '-' });
        letters.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => with_x,
            (true, false) => without,
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    letters
}

fn date(seconds: i64, now: i64) -> String {
    const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let at = Timestamp::from_secs(seconds).to_civil();
    let month = MONTHS[(at.month as usize).clamp(1, 12) - 1];
    let recent = (now - RECENT..now + 86_400).contains(&seconds);
    match recent {
        true => format!("{month} {:2} {:02}:{:02}", at.day, at.hour, at.minute),
        false => format!("{month} {:2}  {:04}", at.day, at.year),
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

    fn facts(names: Option<&[String]>, meta: &Meta, role: Option<&'static str>) -> String {
        let link = StoragePath::resolve(&StoragePath::root(), b"/a b").unwrap();
        let owner = owner();
        let subject = Subject { meta, role, link: Some(&link), count: Some(5), owner: &owner, error: None };
        let mut out = Vec::new();
        line(&mut out, Wanted::of(names), &subject, b"hello");
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn default_facts_are_those_of_the_stock_server_in_its_order() {
        assert_eq!(
            facts(None, &meta(Kind::File), None),
            "Type=file;Modify=20261121020154;Size=6;Perm=awr;UNIX.mode=0644;UNIX.owner=gftp;UNIX.uid=1001;\
             UNIX.group=root;UNIX.gid=0;Unique=fe00-a328b6;UNIX.slink=/a%20b;X.count=5; hello"
        );
    }

    #[test]
    fn only_wanted_facts_are_sent_whatever_the_case() {
        let names = ["size".to_owned(), "TYPE".to_owned(), "nonsense".to_owned(), "charset".to_owned()];
        let dir = meta(Kind::Directory);
        assert_eq!(facts(Some(&names), &dir, Some("cdir")), "Type=cdir;Size=6;Charset=UTF-8; hello");
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

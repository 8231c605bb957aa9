//! Lines of machine listings (RFC 3659 §7.2) and of `ls -l` listings as objects.

use whimbrel_engine::listing::{Object, ObjectKind, Timestamp};
use whimbrel_proto::timeval::Timestamp as WireTime;

/// What a line of a listing names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// An entry of the directory.
    Object(Object),
    /// The directory itself, or the one above it.
    Dots,
}

/// Owner and group as the server names them, for long listings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Owner {
    /// `UNIX.owner`, or the number.
    pub user: Option<String>,
    /// `UNIX.group`, or the number.
    pub group: Option<String>,
}

/// Reads `fact=value;fact=value; name`; fact names in any case and order, unknown ones ignored.
///
/// With `links`, an object reached through a symbolic link counts as that link (servers that follow
/// links tell it by a `UNIX.slink` fact). `None`: the line is no such line.
pub fn parse(line: &[u8], links: bool) -> Option<(Entry, Owner)> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let space = line.iter().position(|&byte| byte == b' ')?;
    let (facts, name) = (&line[..space], &line[space + 1..]);
    if name.is_empty() || !(facts.is_empty() || facts.ends_with(b";")) {
        return None;
    }
    let mut object = Object::bare(name, ObjectKind::Other);
    let mut owner = Owner::default();
    let mut dots = name == b"." || name == b"..";
    let mut link = None;
    for fact in facts.split(|&byte| byte == b';').filter(|fact| !fact.is_empty()) {
        let text = String::from_utf8_lossy(fact);
        let (label, value) = text.split_once('=')?;
        match label.to_ascii_lowercase().as_str() {
            "type" => {
                dots |= matches!(value.to_ascii_lowercase().as_str(), "cdir" | "pdir");
                object.kind = kind(value);
            }
            "size" | "sizd" => object.size = value.parse().ok(),
            "modify" => object.modified = time(value),
            "unix.mode" => object.mode = u32::from_str_radix(value, 8).ok().map(|mode| mode & 0o7777),
            "unique" => object.unique = Some(value.to_owned()),
            "unix.slink" => link = Some(percent_decoded(value.as_bytes())),
            "unix.owner" => owner.user = Some(value.to_owned()),
            "unix.group" => owner.group = Some(value.to_owned()),
            "unix.uid" => drop(owner.user.get_or_insert_with(|| value.to_owned())),
            "unix.gid" => drop(owner.group.get_or_insert_with(|| value.to_owned())),
            _ => {}
        }
    }
    if let Some(target) = link.filter(|target| !target.is_empty())
        && (links || matches!(object.kind, ObjectKind::Symlink { .. }))
    {
        object.kind = ObjectKind::Symlink { target };
    }
    Some((if dots { Entry::Dots } else { Entry::Object(object) }, owner))
}

fn kind(value: &str) -> ObjectKind {
    let lower = value.to_ascii_lowercase();
    match lower.as_str() {
        "file" => ObjectKind::File,
        "dir" | "cdir" | "pdir" => ObjectKind::Directory,
        // `OS.unix=slink:target` is the form of other servers.
        _ if lower.starts_with("os.unix=slink") || lower.starts_with("os.unix=symlink") || lower == "slink" => {
            let target = value.split_once(':').map_or("", |(_, target)| target);
            ObjectKind::Symlink { target: target.as_bytes().to_vec() }
        }
        _ => ObjectKind::Other,
    }
}

fn time(value: &str) -> Option<Timestamp> {
    let time = WireTime::parse(value.as_bytes()).ok()?;
    Some(Timestamp { secs: time.secs, nanos: time.nanos })
}

fn percent_decoded(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let hex = text.get(at + 1..at + 3).and_then(|hex| std::str::from_utf8(hex).ok());
        match (text[at], hex.and_then(|hex| u8::from_str_radix(hex, 16).ok())) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 3;
            }
            (byte, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    out
}

/// Reads one line of `ls -l`; sizes and names only, because its dates are ambiguous.
pub fn parse_long(line: &[u8]) -> Option<Entry> {
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let kind = match line.first()? {
        b'-' => ObjectKind::File,
        b'd' => ObjectKind::Directory,
        b'l' => ObjectKind::Symlink { target: Vec::new() },
        b'b' | b'c' | b'p' | b's' => ObjectKind::Other,
        _ => return None,
    };
    let mut at = 0;
    let mut fields = Vec::new();
    while fields.len() < 8 {
        let start = at + line[at..].iter().position(|byte| *byte != b' ')?;
        let end = start + line[start..].iter().position(|byte| *byte == b' ')?;
        fields.push(&line[start..end]);
        at = end;
    }
    let name = &line[at + 1..];
    if name == b"." || name == b".." {
        return Some(Entry::Dots);
    }
    let mut object = Object::bare(name, kind);
    object.size = std::str::from_utf8(fields[4]).ok()?.parse().ok();
    let arrow = name.windows(4).position(|window| window == b" -> ");
    if let (ObjectKind::Symlink { target }, Some(arrow)) = (&mut object.kind, arrow) {
        *target = name[arrow + 4..].to_vec();
        object.path.truncate(arrow);
    }
    Some(Entry::Object(object))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(line: &[u8]) -> Object {
        match parse(line, false).unwrap().0 {
            Entry::Object(object) => object,
            Entry::Dots => panic!("dots"),
        }
    }

    #[test]
    fn facts_are_read_in_any_case_and_order_and_names_keep_spaces_and_bytes() {
        let object = object(b"UNIX.mode=0640;SIZE=6;modify=20261121020154;type=file;  a; b\xff");
        assert_eq!(object.path, b" a; b\xff");
        assert_eq!((object.size, object.mode, object.kind), (Some(6), Some(0o640), ObjectKind::File));
        assert_eq!(object.modified, Some(Timestamp::from_secs(1_795_226_514)));
    }

    #[test]
    fn links_devices_and_dots_are_told_apart() {
        assert_eq!(object(b"Type=slink;UNIX.slink=/a%20b; l").kind, ObjectKind::Symlink { target: b"/a b".to_vec() });
        assert_eq!(object(b"Type=OS.unix=chr; null").kind, ObjectKind::Other);
        assert_eq!(parse(b"Type=cdir; /x", false).unwrap().0, Entry::Dots);
        assert_eq!(parse(b"Type=pdir; ..", false).unwrap().0, Entry::Dots);
    }

    #[test]
    fn a_followed_link_counts_as_what_it_points_to_unless_links_are_wanted() {
        let line = b"Type=file;Size=1;UNIX.slink=/x; l";
        assert_eq!(object(line).kind, ObjectKind::File);
        let (Entry::Object(link), _) = parse(line, true).unwrap() else { panic!("dots") };
        assert_eq!(link.kind, ObjectKind::Symlink { target: b"/x".to_vec() });
    }

    #[test]
    fn lines_without_facts_or_name_are_refused() {
        assert_eq!(parse(b"nonsense", false), None);
        assert_eq!(parse(b"Type=file ", false), None);
        assert_eq!(parse(b"Type=file; ", false), None);
    }

    #[test]
    fn long_listings_give_size_and_name() {
        let line = b"-rw-r--r--   1     gftp     root         4096 Nov 21 01:59 a b";
        assert_eq!(parse_long(line), Some(Entry::Object(Object::file(&b"a b"[..], 4096))));
        assert_eq!(parse_long(b"drwxr-xr-x 5 a b 4096 Nov 21 01:59 ."), Some(Entry::Dots));
        assert_eq!(parse_long(b"total 5"), None);
    }
}

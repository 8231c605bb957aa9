//! What a listing says about one object, in the engine's own neutral words.

use serde::{Deserialize, Serialize};

pub mod path_text;

/// A point in time as storage keeps it: seconds since 1970-01-01 UTC and nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Timestamp {
    /// Seconds since the epoch; negative before it.
    pub secs: i64,
    /// Nanoseconds, 0 to 999,999,999, added to `secs`; 0 where the protocol carries whole seconds.
    pub nanos: u32,
}

impl Timestamp {
    /// A whole second.
    pub const fn from_secs(secs: i64) -> Self {
        Self { secs, nanos: 0 }
    }
}

/// What kind of thing an object is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ObjectKind {
    /// A regular file, or anything that is read like one.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink {
        /// What the link says, bytes; may be empty when the server does not tell.
        #[serde(with = "path_text")]
        target: Vec<u8>,
    },
    /// A device, pipe, socket or unknown thing.
    Other,
}

/// One entry of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// Name relative to the listed directory, bytes; empty for the object itself (a `stat`).
    #[serde(with = "path_text")]
    pub path: Vec<u8>,
    /// Its kind.
    #[serde(flatten)]
    pub kind: ObjectKind,
    /// Size in bytes; `None` when the server does not tell; meaningless for directories.
    pub size: Option<u64>,
    /// Modification time; `None` when the server does not tell.
    pub modified: Option<Timestamp>,
    /// Permission bits (`07777`); `None` when the server does not tell.
    pub mode: Option<u32>,
    /// Identity of the file within its server (device and inode, the MLSx `unique` fact), used to see loops of links.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unique: Option<String>,
}

/// Which file of its file system a `unique` fact is about: in front of the last `-` stand devices, which every host of an endpoint
/// may number otherwise.
pub fn file_number(unique: &str) -> &str {
    unique.rsplit('-').next().unwrap_or(unique)
}

impl Object {
    /// A file of `size` bytes without times or modes.
    pub fn file(path: impl Into<Vec<u8>>, size: u64) -> Self {
        Self { size: Some(size), ..Self::bare(path, ObjectKind::File) }
    }

    /// A directory without times or modes.
    pub fn directory(path: impl Into<Vec<u8>>) -> Self {
        Self::bare(path, ObjectKind::Directory)
    }

    /// A symbolic link to `target`.
    pub fn symlink(path: impl Into<Vec<u8>>, target: impl Into<Vec<u8>>) -> Self {
        let target = target.into();
        Self::bare(path, ObjectKind::Symlink { target })
    }

    /// An object of `kind` about which nothing else is known.
    pub fn bare(path: impl Into<Vec<u8>>, kind: ObjectKind) -> Self {
        Self { path: path.into(), kind, size: None, modified: None, mode: None, unique: None }
    }

    /// Sets the modification time.
    pub fn modified(mut self, modified: Timestamp) -> Self {
        self.modified = Some(modified);
        self
    }

    /// Sets the permission bits.
    pub fn mode(mut self, mode: u32) -> Self {
        self.mode = Some(mode);
        self
    }
}

/// `directory` and `name` with exactly one slash between them; an empty part yields the other.
pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = directory.to_vec();
    if !name.is_empty() {
        if !path.is_empty() && !path.ends_with(b"/") {
            path.push(b'/');
        }
        path.extend_from_slice(name);
    }
    path
}

/// The directory of a path, with the slash at its end, and the name in it: what [`join`] puts together.
pub fn split(path: &[u8]) -> (&[u8], &[u8]) {
    path.split_at(path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1))
}

/// A path without slashes at its end; of one that is nothing else, one stays.
pub fn trimmed(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(1, |at| at + 1);
    &path[..end.min(path.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn join_puts_exactly_one_slash_between_the_parts() {
        assert_eq!(join(b"/a", b"b"), b"/a/b");
        assert_eq!(join(b"/a/", b"b"), b"/a/b");
        assert_eq!(join(b"/", b"b"), b"/b");
        assert_eq!(join(b"", b"b"), b"b");
        assert_eq!(join(b"/a", b""), b"/a");
    }

    #[test]
    fn slashes_at_the_end_are_no_part_of_a_path() {
        assert_eq!(
            (trimmed(b"/a//"), trimmed(b"//"), trimmed(b"/a"), trimmed(b"")),
            (&b"/a"[..], &b"/"[..], &b"/a"[..], &b""[..])
        );
    }

    #[test]
    fn what_was_joined_is_split_again() {
        for (directory, name) in [(&b"/a/"[..], &b"b"[..]), (b"/", b"b"), (b"", b"b"), (b"/a/", b"")] {
            assert_eq!(split(&join(directory, name)), (directory, name));
        }
    }

    #[test]
    fn an_object_with_any_bytes_in_its_name_survives_json() {
        for path in [&b"plain"[..], b"\xff\x00\xfe", "ü".as_bytes(), b"[1,2]"] {
            let object = Object::symlink(path, &b"to\xff"[..]).mode(0o644);
            let text = serde_json::to_string(&object).expect("JSON can carry it");
            assert_eq!(serde_json::from_str::<Object>(&text).expect("it was just written"), object, "{text}");
        }
    }
}

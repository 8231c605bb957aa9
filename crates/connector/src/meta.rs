//! What storage tells about an object.

use serde::{Deserialize, Serialize};

/// A point in time with the storage's precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Timestamp {
    /// Seconds since 1970-01-01 UTC.
    pub seconds: i64,
    /// Nanoseconds, below 1,000,000,000.
    pub nanoseconds: u32,
}

/// What an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A character device such as `/dev/null`.
    CharacterDevice,
    /// A block device.
    BlockDevice,
    /// A named pipe.
    Pipe,
    /// Anything else.
    Other,
}

/// What the caller may do, for the `Perm` fact (RFC 3659 §7.5.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Access {
    /// May read it or list it.
    pub read: bool,
    /// May write it or create entries in it.
    pub write: bool,
    /// May execute or enter it.
    pub execute: bool,
}

/// Identifies one state of one file's content, so that a change is noticed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Size, bytes.
    pub size: u64,
    /// Modification time.
    pub modified: Timestamp,
    /// The store's own tag, where it has one.
    pub tag: Option<String>,
}

/// One object's description.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// What it is.
    pub kind: Kind,
    /// Size, bytes.
    pub size: u64,
    /// Modification time.
    pub modified: Timestamp,
    /// Permission bits, `0o7777` at most.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Hard links.
    pub links: u64,
    /// Device and inode, or what stands for them: equal for two names of one object.
    pub unique: (u64, u64),
    /// Text of a symbolic link, when this describes the link itself.
    pub link_target: Option<Vec<u8>>,
    /// What the caller may do.
    pub access: Access,
}

impl Meta {
    /// The version this description stands for.
    pub fn version(&self) -> Version {
        Version { size: self.size, modified: self.modified, tag: None }
    }
}

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Name without slashes; raw bytes.
    pub name: Vec<u8>,
    /// Its description; of the link itself for links.
    pub meta: Meta,
}

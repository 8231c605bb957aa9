//! From `statx` to descriptions.

use std::os::fd::AsFd;

use rustix::fs::{AtFlags, FileType, SeekFrom, Statx, StatxFlags, makedev, readlinkat, seek, statx};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid, getgroups};

use crate::meta::{Access, Kind, Meta, Timestamp};

/// What every description needs; the birth time tells a reused inode number from its former owner.
const WANTED: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

/// Describes the name itself, not what a link points to.
pub(super) fn statx_at(dir: impl AsFd, name: &[u8]) -> Result<Statx, Errno> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
    statx(dir, name, flags, WANTED)
}

/// Describes an open file, or what a path descriptor stands for.
pub(super) fn statx_fd(fd: impl AsFd) -> Result<Statx, Errno> {
    statx(fd, c"", AtFlags::EMPTY_PATH, WANTED)
}

/// The same as the file system's server has it now: what a client of NFS remembers may be a minute old.
pub(super) fn statx_now(fd: impl AsFd) -> Result<Statx, Errno> {
    statx(fd, c"", AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC, WANTED)
}

pub(super) fn kind_of(stat: &Statx) -> Kind {
    match FileType::from_raw_mode(u32::from(stat.stx_mode)) {
        FileType::RegularFile => Kind::File,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        FileType::CharacterDevice => Kind::CharacterDevice,
        FileType::BlockDevice => Kind::BlockDevice,
        FileType::Fifo => Kind::Pipe,
        _ => Kind::Other,
    }
}

pub(super) fn is_link(stat: &Statx) -> bool {
    kind_of(stat) == Kind::Symlink
}

/// Permission bits, `0o7777` at most.
pub(super) fn mode_of(stat: &Statx) -> u32 {
    u32::from(stat.stx_mode) & 0o7777
}

/// Size in bytes; of a block device the medium's, of other devices and pipes 0.
pub(super) fn size_of(stat: &Statx, fd: impl AsFd) -> u64 {
    match kind_of(stat) {
        Kind::BlockDevice => seek(fd, SeekFrom::End(0)).unwrap_or(0),
        _ => stat.stx_size,
    }
}

/// Text of the link `name`; with an empty name, of the link that `fd` stands for.
pub(super) fn link_text(fd: impl AsFd, name: &[u8]) -> Result<Vec<u8>, Errno> {
    readlinkat(fd, name, Vec::new()).map(|text| text.into_bytes())
}

/// Who asks, to tell what they may do from permission bits.
///
/// Access lists are not looked at: a listing of a million files cannot afford a call for each.
#[derive(Debug, Clone)]
pub(super) struct Caller {
    uid: u32,
    groups: Vec<u32>,
    read_only: bool,
}

impl Caller {
    /// The identity this process has now.
    pub fn current(read_only: bool) -> Self {
        let mut groups: Vec<u32> = getgroups().unwrap_or_default().iter().map(|gid| gid.as_raw()).collect();
        groups.push(getegid().as_raw());
        Self { uid: geteuid().as_raw(), groups, read_only }
    }

    /// Whether this is the superuser.
    pub fn is_root(&self) -> bool {
        self.uid == 0
    }

    /// Whether a file of `uid` can be trusted to be one's own.
    pub fn owns(&self, uid: u32) -> bool {
        self.uid == uid || self.is_root()
    }

    fn access(&self, stat: &Statx) -> Access {
        let mode = mode_of(stat);
        let directory = kind_of(stat) == Kind::Directory;
        let bits = if self.is_root() {
            let execute = u32::from(directory || mode & 0o111 != 0);
            0o6 | execute
        } else if stat.stx_uid == self.uid {
            mode >> 6
        } else if self.groups.contains(&stat.stx_gid) {
            mode >> 3
        } else {
            mode
        };
        Access { read: bits & 4 != 0, write: bits & 2 != 0 && !self.read_only, execute: bits & 1 != 0 }
    }

    /// The description `stat` stands for.
    pub fn meta(&self, stat: &Statx, link_target: Option<Vec<u8>>) -> Meta {
        Meta {
            kind: kind_of(stat),
            size: stat.stx_size,
            modified: Timestamp { seconds: stat.stx_mtime.tv_sec, nanoseconds: stat.stx_mtime.tv_nsec },
            mode: mode_of(stat),
            uid: stat.stx_uid,
            gid: stat.stx_gid,
            links: u64::from(stat.stx_nlink),
            unique: (makedev(stat.stx_dev_major, stat.stx_dev_minor), stat.stx_ino),
            link_target,
            access: self.access(stat),
        }
    }
}

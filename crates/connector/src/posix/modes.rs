//! Permission bits: nobody but its owner may open a file before it has its final name.
//!
//! What is opened stays open, whatever becomes of the mode: so a file is made private, and is never anything else before
//! its mode is set for good, immediately before it is named.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags, Statx, fchmod, fgetxattr, getxattr, openat};
use rustix::io::Errno;
use rustix::process::umask;

use super::meta::mode_of;
use super::resolve::{Dir, retry};

/// Unfinished files, and what lies beside them.
pub(super) const PRIVATE: Mode = Mode::RUSR.union(Mode::WUSR);

/// What open(2) is asked for by programs that do not care; the mask takes away from it.
const ASKED_FOR: u32 = 0o666;

/// The list that a directory gives to files made in it.
const DEFAULT_LIST: &std::ffi::CStr = c"system.posix_acl_default";

/// Lengths that a list is tried to be read with; none is longer than the last (`XATTR_SIZE_MAX`).
const LENGTHS: [usize; 2] = [1 << 10, 1 << 16];

/// Entries of a list (`linux/posix_acl.h`): what they are about.
const OWNER: u16 = 0x01;
const GROUP: u16 = 0x04;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

/// The mask of this process (umask(2)).
pub(super) fn mask() -> u32 {
    let told = std::fs::read_to_string("/proc/self/status").ok();
    told.and_then(|status| parse_mask(&status)).unwrap_or_else(|| {
        // Before Linux 4.7 it is read by changing it. What other threads make in this moment is too private, not too open.
        let mask = umask(Mode::from_raw_mode(0o077));
        umask(mask);
        mask.as_raw_mode()
    })
}

fn parse_mask(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(line.trim(), 8).ok()
}

/// The mode that a file made in `dir` with open(2) has: what the mask leaves, or what the directory's default access list
/// gives instead (acl(5)).
pub(super) fn ordinary(dir: &Dir, mask: u32) -> u32 {
    let left = || ASKED_FOR & !mask;
    default_list(dir).and_then(|list| mode_in(&list)).map_or_else(left, |mode| mode & ASKED_FOR)
}

/// The default access list of a directory; where it cannot be asked for, there is none as far as anybody can tell.
fn default_list(dir: &Dir) -> Option<Vec<u8>> {
    for length in LENGTHS {
        let mut list = vec![0; length];
        match read_list(dir, &mut list) {
            Ok(count) => {
                list.truncate(count);
                return Some(list);
            }
            Err(Errno::RANGE) => {}
            Err(_) => return None,
        }
    }
    None
}

fn read_list(dir: &Dir, into: &mut [u8]) -> Result<usize, Errno> {
    // A path descriptor tells no attributes; its name in `/proc` does.
    let known_as = format!("/proc/self/fd/{}", dir.as_fd().as_raw_fd());
    match retry(|| getxattr(known_as.as_str(), DEFAULT_LIST, &mut *into)) {
        Err(Errno::NOENT) => {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let real = retry(|| openat(dir, c".", flags, Mode::empty()))?;
            retry(|| fgetxattr(&real, DEFAULT_LIST, &mut *into))
        }
        other => other,
    }
}

/// The permission bits that a list stands for: its mask, if it has one, is those of the group.
fn mode_in(list: &[u8]) -> Option<u32> {
    let (version, entries) = list.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*version) != 2 {
        return None;
    }
    let (entries, rest) = entries.as_chunks::<8>();
    let of = |wanted: u16| {
        let found = entries.iter().find(|entry| u16::from_le_bytes([entry[0], entry[1]]) == wanted)?;
        Some(u32::from(u16::from_le_bytes([found[2], found[3]]) & 7))
    };
    let group = of(MASK).or_else(|| of(GROUP));
    rest.is_empty().then_some(of(OWNER)? << 6 | group? << 3 | of(OTHER)?)
}

/// Takes from others what an unfinished file gives them that was made by an earlier release or by hand.
///
/// What has been opened by then stays open.
pub(super) fn make_private(file: &OwnedFd, stat: &Statx) -> Result<(), Errno> {
    if mode_of(stat) & 0o077 == 0 {
        return Ok(());
    }
    match retry(|| fchmod(file, PRIVATE)) {
        // File systems that keep no modes: nobody can make it private there.
        Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::path::Path;

    use super::*;
    use crate::posix::{Posix, PosixOptions};
    use crate::session::{Attributes, Disposition, WriteIntent};
    use crate::{Connector, StoragePath};

    const UNNAMED: u32 = u32::MAX;

    /// A list of (tag, permissions) as the kernel writes it.
    fn list(entries: &[(u16, u16)]) -> Vec<u8> {
        let entry = |&(tag, bits): &(u16, u16)| {
            [&tag.to_le_bytes()[..], &bits.to_le_bytes()[..], &UNNAMED.to_le_bytes()[..]].concat()
        };
        2u32.to_le_bytes().into_iter().chain(entries.iter().flat_map(entry)).collect()
    }

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().mode() & 0o7777
    }

    fn storage(root: &Path) -> Posix {
        Posix::open(root, PosixOptions::default()).unwrap()
    }

    fn path(name: &str) -> StoragePath {
        StoragePath::resolve(&StoragePath::root(), name.as_bytes()).unwrap()
    }

    #[test]
    fn the_mask_is_read_and_left_as_it_is() {
        assert_eq!(parse_mask("Name:\tx\nUmask:\t0027\nState:\tR\n"), Some(0o027));
        assert_eq!(parse_mask("Name:\tx\n"), None);
        assert_eq!(mask(), mask());
    }

    #[test]
    fn a_list_gives_the_mode_that_its_mask_or_its_group_has() {
        assert_eq!(mode_in(&list(&[(OWNER, 7), (GROUP, 5), (OTHER, 0)])), Some(0o750));
        assert_eq!(mode_in(&list(&[(OWNER, 6), (GROUP, 7), (0x08, 7), (MASK, 4), (OTHER, 1)])), Some(0o641));
        for bad in [&[][..], &[2, 0, 0, 0], &[1, 0, 0, 0], &list(&[(OWNER, 7), (OTHER, 0)]), &[2, 0, 0, 0, 1]] {
            assert_eq!(mode_in(bad), None, "{bad:?}");
        }
    }

    /// With and without a list: that of a file that any program makes there.
    #[test]
    fn a_committed_file_has_the_mode_that_the_kernel_would_have_given_it() {
        let dir = tempfile::tempdir().unwrap();
        let tell = [
            None,
            Some(list(&[(OWNER, 6), (GROUP, 6), (OTHER, 0)])),
            Some(list(&[(OWNER, 7), (GROUP, 0), (OTHER, 5)])),
        ];
        for (number, list) in tell.iter().enumerate() {
            if let Some(list) = list
                && rustix::fs::setxattr(dir.path(), DEFAULT_LIST, list, rustix::fs::XattrFlags::empty()).is_err()
            {
                // A file system without access lists.
                return;
            }
            let (storage, name) = (storage(dir.path()), format!("stored{number}"));
            for disposition in [Disposition::Replace, Disposition::Continue] {
                let intent = WriteIntent { disposition, size: None, length: None, mode: None };
                let session = storage.begin(&path(&name), &intent).unwrap();
                assert_eq!(mode(&dir.path().join(format!(".{name}.whimbrel-part"))), 0o600);
                storage.commit(&session, &[], &Attributes::default()).unwrap();
                let plain = dir.path().join(format!("plain{number}"));
                std::fs::write(&plain, b"").unwrap();
                assert_eq!(mode(&dir.path().join(&name)), mode(&plain), "{list:?}");
                std::fs::remove_file(dir.path().join(&name)).unwrap();
            }
        }
    }

    #[test]
    fn what_an_earlier_release_left_open_to_others_is_made_private_before_it_is_gone_on_with() {
        let dir = tempfile::tempdir().unwrap();
        let hidden = dir.path().join(".file.whimbrel-part");
        for disposition in [Disposition::Resume, Disposition::Continue] {
            std::fs::write(&hidden, b"half").unwrap();
            std::fs::set_permissions(&hidden, std::fs::Permissions::from_mode(0o664)).unwrap();
            let storage = storage(dir.path());
            let intent = WriteIntent { disposition, size: None, length: None, mode: None };
            let session = storage.begin(&path("file"), &intent).unwrap();
            assert_eq!((mode(&hidden), std::fs::read(&hidden).unwrap()), (0o600, b"half".to_vec()));
            storage.abandon(&session).unwrap();
        }
    }
}

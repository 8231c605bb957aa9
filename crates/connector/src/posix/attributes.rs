//! Modes, groups, times and sizes.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::fs::{
    AtFlags, CWD, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_OMIT, chmodat, chownat, fchmod, fchown, ftruncate,
    futimens, utimensat,
};
use rustix::io::Errno;
use whimbrel_engine::{Fault, FaultCode};
use whimbrel_sys::names;

use super::error::OrFault;
use super::meta::{is_link, kind_of, mode_of, statx_fd};
use super::resolve::{Root, retry};
use crate::Follow;
use crate::meta::{Kind, Timestamp};
use crate::path::StoragePath;
use crate::rules::{check_commit_only, link_has_no_mode};
use crate::session::{Attributes, SET_ID};

/// The group of that name, or of that number.
fn group_id(group: &str, path: &StoragePath) -> Result<u32, Fault> {
    let unknown =
        |detail: String| Fault::new(FaultCode::InvalidArgument, "change group").on_path(path.as_bytes()).detail(detail);
    if let Ok(gid) = group.parse() {
        return Ok(gid);
    }
    names::group_id(group)
        .map_err(|error| Fault::from_io(error, "look up group").subject(group))?
        .ok_or_else(|| unknown(format!("no group is called {group}")))
}

fn times(modified: Timestamp) -> Timestamps {
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: modified.seconds, tv_nsec: i64::from(modified.nanoseconds) },
    }
}

/// Gives an open regular file its final attributes; says whether anything changed.
///
/// Group before mode (changing the group clears set-id bits), time last (cutting changes it).
pub(super) fn apply(
    file: BorrowedFd<'_>,
    stat: &rustix::fs::Statx,
    attributes: &Attributes,
    keep_mode: Option<u32>,
    path: &StoragePath,
) -> Result<bool, Fault> {
    let mut changed = false;
    if let Some(size) = attributes.size.filter(|&size| size != stat.stx_size) {
        retry(|| ftruncate(file, size)).or_fault("set size", path)?;
        changed = true;
    }
    if let Some(group) = &attributes.group {
        let gid = Gid::from_raw(group_id(group, path)?);
        fchown(file, None, Some(gid)).or_fault("change group", path)?;
        changed = true;
    }
    if let Some(mode) = attributes.mode.or(keep_mode)
        && (changed || mode != mode_of(stat))
    {
        fchmod(file, Mode::from_raw_mode(mode)).or_fault("change mode", path)?;
        changed = true;
    }
    if let Some(modified) = attributes.modified {
        futimens(file, &times(modified)).or_fault("set time", path)?;
        changed = true;
    }
    Ok(changed)
}

/// Where [`SET_ID`] is set if a mode has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SetId {
    AsAsked,
    OfDirectories,
}

impl SetId {
    /// What of a mode is set of something open.
    fn of(self, mode: u32, fd: impl AsFd) -> Result<Mode, Errno> {
        let left_out = self == Self::OfDirectories && mode & SET_ID != 0 && kind_of(&statx_fd(fd)?) != Kind::Directory;
        Ok(Mode::from_raw_mode(if left_out { mode & !SET_ID } else { mode }))
    }
}

/// Changes what exists, of any kind, without opening it.
pub(super) fn set(
    root: &Root,
    path: &StoragePath,
    attributes: &Attributes,
    follow: Follow,
    set_id: SetId,
) -> Result<(), Fault> {
    check_commit_only(attributes, path)?;
    let op = "set attributes";
    let nofollow = match follow {
        Follow::Yes => OFlags::empty(),
        Follow::No => OFlags::NOFOLLOW,
    };
    let fd = root.open_at(path, OFlags::PATH | nofollow).or_fault(op, path)?;
    if attributes.mode.is_some() && is_link(&statx_fd(&fd).or_fault(op, path)?) {
        return Err(link_has_no_mode(path));
    }
    if let Some(group) = &attributes.group {
        let gid = Gid::from_raw(group_id(group, path)?);
        chownat(&fd, c"", None, Some(gid), AtFlags::EMPTY_PATH).or_fault("change group", path)?;
    }
    if let Some(mode) = attributes.mode {
        let changed = set_id.of(mode, &fd).and_then(|mode| chmod(fd.as_fd(), mode));
        let changed = match changed {
            Err(Errno::NOENT) => chmod_opened(root, path, mode, set_id),
            other => other,
        };
        changed.or_fault("change mode", path)?;
    }
    if let Some(modified) = attributes.modified {
        utimensat(&fd, c"", &times(modified), AtFlags::EMPTY_PATH).or_fault("set time", path)?;
    }
    Ok(())
}

/// `fchmod` refuses a path descriptor and opening for real needs permissions that chmod does not,
/// so this goes through the descriptor's name in `/proc`, which leads to exactly this object.
fn chmod(fd: BorrowedFd<'_>, mode: Mode) -> Result<(), Errno> {
    let name = format!("/proc/self/fd/{}", fd.as_raw_fd());
    chmodat(CWD, name, mode, AtFlags::empty())
}

/// Where `/proc` is not mounted; needs read permission on the object, which is no link.
fn chmod_opened(root: &Root, path: &StoragePath, mode: u32, set_id: SetId) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let fd = root.open_at(path, flags)?;
    fchmod(&fd, set_id.of(mode, &fd)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn modes_can_be_changed_without_proc() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "x").unwrap();
        let root = Root::open(dir.path(), false).unwrap();
        let path = StoragePath::resolve(&StoragePath::root(), b"file").unwrap();
        let mode = || std::fs::metadata(&file).unwrap().permissions().mode() & 0o7777;
        chmod_opened(&root, &path, 0o4640, SetId::AsAsked).unwrap();
        assert_eq!(mode(), 0o4640);
        chmod_opened(&root, &path, 0o6600, SetId::OfDirectories).unwrap();
        assert_eq!(mode(), 0o600);
    }
}

//! Opening what a write session writes to: the file itself, or the hidden one beside it.

use std::os::fd::OwnedFd;

use rustix::fs::{Access, AtFlags, FlockOperation, Mode, OFlags, Statx, accessat, flock, openat};
use rustix::io::Errno;
use whimbrel_engine::{Fault, FaultCode};

use super::error::{OrFault, fault};
use super::journal;
use super::lustre::{Layout, Lustre};
use super::meta::{Caller, kind_of, mode_of, statx_at, statx_fd};
use super::read::clear_nonblock;
use super::resolve::{Dir, Place, look, retry};
use super::steps;
use super::token::{Identity, Manner};
use crate::meta::Kind;
use crate::path::StoragePath;
use crate::staging::staging_path;

/// Attempts to create the hidden file while others do the same.
const ATTEMPTS: usize = 16;

/// How an existing file is opened to be written; a name replaced by a link is not followed.
const EXISTING: OFlags =
    OFlags::RDWR.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);
const NEW: OFlags = EXISTING.union(OFlags::CREATE).union(OFlags::EXCL);

pub(super) const OPEN: &str = "open for writing";

/// How a new file is to be spread over servers of a parallel file system, if that is chosen here.
pub(super) type Striping<'a> = Option<(&'a Lustre, Layout)>;

/// An open file on its way to a session.
pub(super) struct Begun {
    pub manner: Manner,
    pub file: OwnedFd,
    pub stat: Statx,
    pub staging: StoragePath,
}

impl Begun {
    pub(super) fn of(file: OwnedFd, manner: Manner, staging: StoragePath) -> Result<Self, Fault> {
        let stat = statx_fd(&file).or_fault(OPEN, &staging)?;
        Ok(Self { manner, file, stat, staging })
    }
}

/// Opens what is there where it is; `place` has no links.
pub(super) fn in_place(place: &Place, manner: Manner) -> Result<Begun, Fault> {
    let name = place.path.name().unwrap_or_default();
    let file = open_existing(&place.dir, name).or_fault(OPEN, &place.path)?;
    let begun = Begun::of(file, manner, place.path.clone())?;
    let is_file = kind_of(&begun.stat) == Kind::File;
    if is_file == (manner == Manner::InPlace) {
        return Ok(begun);
    }
    Err(Fault::new(FaultCode::StorageBusy, OPEN)
        .on_path(place.path.as_bytes())
        .detail("it became something else while it was opened"))
}

pub(super) fn create_in_place(place: &Place, _: &Striping<'_>) -> Result<Begun, Fault> {
    let name = place.path.name().unwrap_or_default();
    match retry(|| openat(&place.dir, name, NEW, Mode::from_raw_mode(0o666))) {
        Ok(file) => Begun::of(file, Manner::Created, place.path.clone()),
        // Another writer was faster: the file is theirs.
        Err(Errno::EXIST) => {
            let file = retry(|| openat(&place.dir, name, EXISTING, Mode::empty())).or_fault(OPEN, &place.path)?;
            Begun::of(file, Manner::InPlace, place.path.clone())
        }
        Err(errno) => Err(fault(errno, OPEN, &place.path)),
    }
}

/// Opens for reading and writing, or for writing only where that is all that is allowed.
///
/// Does not wait: a pipe that nobody reads is an error (ENXIO).
pub(super) fn open_existing(dir: &Dir, name: &[u8]) -> Result<OwnedFd, Errno> {
    // Opened for both, a pipe would be its own reader and never report that it has none.
    let kind = kind_of(&statx_at(dir, name)?);
    let write_only = EXISTING.difference(OFlags::RDWR) | OFlags::WRONLY;
    let both = match kind {
        Kind::Pipe => Err(Errno::ACCESS),
        _ => retry(|| openat(dir, name, EXISTING, Mode::empty())),
    };
    let file = match both {
        Err(Errno::ACCESS) => retry(|| openat(dir, name, write_only, Mode::empty()))?,
        other => other?,
    };
    if kind != Kind::File {
        clear_nonblock(&file)?;
    }
    Ok(file)
}

/// Whether an unfinished file is one that this user may trust: a regular file of their own under one name only, not
/// something planted in a directory shared with others.
pub(super) fn is_own(stat: &Statx, caller: &Caller) -> bool {
    kind_of(stat) == Kind::File && stat.stx_nlink == 1 && caller.owns(stat.stx_uid)
}

/// Opens what another writer made; `None` when it is gone again or no file to trust.
pub(super) fn join_continued(place: &Place, staging: StoragePath, caller: &Caller) -> Result<Option<Begun>, Fault> {
    match open_existing(&place.dir, staging.name().unwrap_or_default()) {
        Ok(file) => {
            let begun = Begun::of(file, Manner::Continued, staging)?;
            // Of what is open: the name may have become another's since anybody looked.
            Ok(is_own(&begun.stat, caller).then_some(begun))
        }
        Err(Errno::NOENT | Errno::LOOP | Errno::ISDIR) => Ok(None),
        Err(errno) => Err(fault(errno, OPEN, &staging)),
    }
}

/// Renaming over a file needs no permission on it: asked, or write protection would mean nothing.
pub(super) fn may_replace(place: &Place) -> Result<(), Fault> {
    match (&place.found, place.path.name()) {
        (Some(_), Some(name)) => {
            accessat(&place.dir, name, Access::WRITE_OK, AtFlags::empty()).or_fault(OPEN, &place.path)
        }
        _ => Ok(()),
    }
}

/// Creates the hidden file; throws away one that is there.
pub(super) fn create_staged(place: &Place, striping: &Striping<'_>) -> Result<Begun, Fault> {
    may_replace(place)?;
    create_hidden(place, Manner::Staged, striping, |staging| {
        take_over(&place.dir, &place.path, staging.name().unwrap_or_default()).or_fault(OPEN, staging)?;
        Ok(None)
    })
}

/// Creates the hidden file for many writers, unless another of them is faster.
pub(super) fn create_continued(place: &Place, striping: &Striping<'_>, caller: &Caller) -> Result<Begun, Fault> {
    let mut refused = 0;
    create_hidden(place, Manner::Continued, striping, |staging| {
        refused += 1;
        if refused == 1 {
            return join_continued(place, staging.clone(), caller);
        }
        // Something that cannot be trusted has the name.
        take_over(&place.dir, &place.path, staging.name().unwrap_or_default()).or_fault(OPEN, staging)?;
        Ok(None)
    })
}

fn create_hidden(
    place: &Place,
    manner: Manner,
    striping: &Striping<'_>,
    mut when_there: impl FnMut(&StoragePath) -> Result<Option<Begun>, Fault>,
) -> Result<Begun, Fault> {
    // Other hosts must be able to open it again, whatever the final mode is.
    let mode = place.found.as_ref().map_or(0o666, |stat| mode_of(stat) & 0o777 | 0o600);
    let staging = staging_path(&place.path)?;
    let name = staging.name().unwrap_or_default();
    for _ in 0..ATTEMPTS {
        let made = match striping {
            None => retry(|| openat(&place.dir, name, NEW, Mode::from_raw_mode(mode))),
            Some((lustre, layout)) => lustre.create(&place.dir, name, Mode::from_raw_mode(mode), EXISTING, *layout),
        };
        match made {
            Ok(file) => {
                let begun = Begun::of(file, manner, staging)?;
                let identity = Identity::of(&begun.stat);
                if !identity.has_birth() {
                    // An earlier file with this inode may have left its journal.
                    journal::remove(&place.dir, &place.path, &identity).or_fault(OPEN, &place.path)?;
                }
                if manner == Manner::Continued {
                    journal::remove_orphans(&place.dir, &place.path, begun.staging.name().unwrap_or_default());
                }
                return Ok(begun);
            }
            Err(Errno::EXIST) => {
                if let Some(begun) = when_there(&staging)? {
                    return Ok(begun);
                }
            }
            Err(errno) => return Err(fault(errno, OPEN, &place.path)),
        }
    }
    Err(Fault::new(FaultCode::StorageBusy, OPEN)
        .on_path(place.path.as_bytes())
        .detail("others keep creating the same file"))
}

/// Removes a hidden file of an earlier or concurrent attempt, unless it is just being committed.
fn take_over(dir: &Dir, path: &StoragePath, name: &[u8]) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let result = match retry(|| openat(dir, name, flags, Mode::empty())) {
        Ok(file) => {
            let _locked = Locked::new(&file);
            let mine = Identity::of(&statx_fd(&file)?);
            match look(dir, name)? {
                Some(stat) if Identity::of(&stat) == mine => {
                    // The journal first: it must not be there without its file.
                    journal::remove(dir, path, &mine)?;
                    steps::unlink(dir, name)
                }
                // Committed or replaced meanwhile.
                _ => Ok(()),
            }
        }
        // A link, or a file that cannot be read: nobody here is committing it.
        Err(Errno::LOOP | Errno::ACCESS | Errno::NXIO) => steps::unlink(dir, name),
        Err(errno) => Err(errno),
    };
    match result {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

/// The lock that makes comparing and renaming, or comparing and removing, one step.
///
/// File systems without locks do without: the comparison alone narrows the race to microseconds.
pub(super) struct Locked<'file> {
    file: Option<&'file OwnedFd>,
}

impl<'file> Locked<'file> {
    pub(super) fn new(file: &'file OwnedFd) -> Self {
        let locked = retry(|| flock(file, FlockOperation::LockExclusive)).is_ok();
        Self { file: locked.then_some(file) }
    }

    /// Leaves the lock to the closing of the file: under its final name nobody asks for it.
    pub(super) fn release_with_file(mut self) {
        self.file = None;
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        if let Some(file) = self.file {
            // Fails only for locks that were never had.
            let _ = flock(file, FlockOperation::Unlock);
        }
    }
}

//! Opening what a write session writes to: the file itself, or the hidden one beside it.

use std::os::fd::OwnedFd;

use rustix::fs::{Access, AtFlags, Mode, OFlags, Statx, accessat, openat};
use rustix::io::Errno;
use whimbrel_engine::{Fault, FaultCode};

use super::error::{OrFault, fault};
use super::journal;
use super::lock::Locked;
use super::lustre::{Layout, Lustre};
use super::meta::{Caller, kind_of, statx_at, statx_fd};
use super::modes::{PRIVATE, make_private};
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

/// Makes a file under its final name; where the `mode` that it is to have is known, it never gives others more than that. `joins`: one
/// that another writer has just made does as well.
pub(super) fn create_in_place(place: &Place, mode: Option<u32>, joins: bool) -> Result<Begun, Fault> {
    let name = place.path.name().unwrap_or_default();
    let mode = Mode::from_raw_mode(mode.map_or(0o666, |mode| mode & 0o666 | 0o600));
    match retry(|| openat(&place.dir, name, NEW, mode)) {
        Ok(file) => Begun::of(file, Manner::Created, place.path.clone()),
        // Another writer was faster: the file is theirs. What is no file is refused.
        Err(Errno::EXIST) if joins => in_place(place, Manner::InPlace),
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

/// Opens what another writer, or an earlier attempt, made; `None` when it is gone again or no file to trust.
pub(super) fn join_hidden(
    place: &Place,
    staging: StoragePath,
    manner: Manner,
    caller: &Caller,
) -> Result<Option<Begun>, Fault> {
    let begun = match open_existing(&place.dir, staging.name().unwrap_or_default()) {
        Ok(file) => Begun::of(file, manner, staging)?,
        // NXIO: a pipe without a reader, or a socket, put there this moment.
        Err(Errno::NOENT | Errno::LOOP | Errno::ISDIR | Errno::NXIO) => return Ok(None),
        Err(errno) => return Err(fault(errno, OPEN, &staging)),
    };
    // Of what is open: the name may have become another's since anybody looked.
    if !is_own(&begun.stat, caller) {
        return Ok(None);
    }
    make_private(&begun.file, &begun.stat).or_fault(OPEN, &begun.staging)?;
    Ok(Some(begun))
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
    create_hidden(place, Manner::Staged, striping, |staging| take_over(place, staging).map(|()| None))
}

/// Creates the hidden file for many writers, unless another of them is faster.
pub(super) fn create_continued(place: &Place, striping: &Striping<'_>, caller: &Caller) -> Result<Begun, Fault> {
    let mut refused = 0;
    create_hidden(place, Manner::Continued, striping, |staging| {
        refused += 1;
        if refused == 1 {
            match join_hidden(place, staging.clone(), Manner::Continued, caller) {
                // One's own could be opened.
                Err(fault) if fault.code == FaultCode::PermissionDenied => {}
                joined => return joined,
            }
        }
        // Something that cannot be trusted has the name.
        take_over(place, staging).map(|()| None)
    })
}

fn create_hidden(
    place: &Place,
    manner: Manner,
    striping: &Striping<'_>,
    mut when_there: impl FnMut(&StoragePath) -> Result<Option<Begun>, Fault>,
) -> Result<Begun, Fault> {
    let staging = staging_path(&place.path)?;
    let name = staging.name().unwrap_or_default();
    for _ in 0..ATTEMPTS {
        let made = match striping {
            None => retry(|| openat(&place.dir, name, NEW, PRIVATE)),
            Some((lustre, layout)) => lustre.create(&place.dir, name, PRIVATE, EXISTING, *layout),
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
fn take_over(place: &Place, staging: &StoragePath) -> Result<(), Fault> {
    let name = staging.name().unwrap_or_default();
    // Does not wait, whatever it is.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let open = |how| retry(|| openat(&place.dir, name, flags | how, Mode::empty()));
    // NFS keeps others away only for those who may write (flock(2)).
    let opened = match open(OFlags::RDWR) {
        Err(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::TXTBSY | Errno::ISDIR) => open(OFlags::RDONLY),
        other => other,
    };
    let removed = match opened {
        Ok(file) => {
            let _locked = Locked::exclusive(&file, OPEN, staging)?;
            remove_same(place, name, &file)
        }
        // A link, or a file that cannot be read: nobody here is committing it.
        Err(Errno::LOOP | Errno::ACCESS | Errno::NXIO) => steps::unlink(&place.dir, name),
        Err(errno) => Err(errno),
    };
    match removed {
        Err(Errno::NOENT) => Ok(()),
        other => other.or_fault(OPEN, staging),
    }
}

/// Removes the name if `file` still has it, and before it the journal: that must not be there without its file.
fn remove_same(place: &Place, name: &[u8], file: &OwnedFd) -> Result<(), Errno> {
    let mine = Identity::of(&statx_fd(file)?);
    match look(&place.dir, name)? {
        Some(stat) if Identity::of(&stat) == mine => {
            journal::remove(&place.dir, &place.path, &mine)?;
            steps::unlink(&place.dir, name)
        }
        // Committed or replaced meanwhile.
        _ => Ok(()),
    }
}

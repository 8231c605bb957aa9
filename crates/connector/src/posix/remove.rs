//! Removing a whole tree, never through a link.

use std::collections::HashSet;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Dir as RawStream, FileType, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;
use whimbrel_engine::{Fault, FaultCode};

use super::error::fault;
use super::meta::statx_fd;
use super::resolve::{Dir, retry};
use super::token::Identity;
use crate::path::StoragePath;

/// Most entries that could not be removed before the attempt is given up.
const FAULTS_MAX: usize = 10_000;

/// A directory on the way down. Its descriptor is closed while a subdirectory is worked on, so
/// that depth costs memory only; coming back through `..` checks that it is the same directory.
struct Level {
    name: Vec<u8>,
    identity: Identity,
    /// Names that could not be removed: skipped when the directory is read again.
    failed: HashSet<Vec<u8>>,
}

struct Removal<'path> {
    path: &'path StoragePath,
    levels: Vec<Level>,
    here: OwnedFd,
    faults: usize,
    first: Option<Fault>,
}

/// What reading a directory came to.
enum Found {
    Subdirectory(Vec<u8>),
    Nothing,
}

/// Removes the directory `name` in `dir` and everything below it.
///
/// Goes on past what it cannot remove and reports the first fault at the end.
pub(super) fn remove_tree(dir: &Dir, name: &[u8], path: &StoragePath) -> Result<(), Fault> {
    let here = match open_dir(dir, name) {
        Err(Errno::LOOP) => return Err(fault(Errno::NOTDIR, "remove", path)),
        other => other.map_err(|errno| fault(errno, "remove", path))?,
    };
    let top = Level::new(name, &here).map_err(|errno| fault(errno, "remove", path))?;
    let mut removal = Removal { path, levels: vec![top], here, faults: 0, first: None };
    removal.run()?;
    match removal.first {
        Some(fault) => Err(fault),
        None => retry(|| unlinkat(dir, name, AtFlags::REMOVEDIR))
            .or_else(gone)
            .map_err(|errno| fault(errno, "remove", path)),
    }
}

fn open_dir(dir: impl AsFd, name: &[u8]) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    retry(|| openat(&dir, name, flags, Mode::empty()))
}

/// Somebody else was faster: what should be gone is gone.
fn gone(errno: Errno) -> Result<(), Errno> {
    if errno == Errno::NOENT { Ok(()) } else { Err(errno) }
}

impl Level {
    fn new(name: &[u8], fd: &OwnedFd) -> Result<Self, Errno> {
        Ok(Self { name: name.to_vec(), identity: Identity::of(&statx_fd(fd)?), failed: HashSet::new() })
    }
}

impl Removal<'_> {
    fn run(&mut self) -> Result<(), Fault> {
        loop {
            match self.empty_here()? {
                Found::Subdirectory(name) => self.descend(&name)?,
                Found::Nothing if self.levels.len() == 1 => return Ok(()),
                Found::Nothing => self.ascend()?,
            }
        }
    }

    /// Removes what is no directory; stops at the first directory not yet tried.
    fn empty_here(&mut self) -> Result<Found, Fault> {
        let mut entries = match RawStream::read_from(&self.here) {
            Ok(entries) => entries,
            Err(errno) => return self.note(errno, b"").map(|()| Found::Nothing),
        };
        while let Some(entry) = entries.read() {
            let entry = match entry {
                Ok(entry) => entry,
                Err(errno) => return self.note(errno, b"").map(|()| Found::Nothing),
            };
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") || self.level().failed.contains(name) {
                continue;
            }
            if entry.file_type() == FileType::Directory {
                return Ok(Found::Subdirectory(name.to_vec()));
            }
            match retry(|| unlinkat(&self.here, name, AtFlags::empty())).or_else(gone) {
                Ok(()) => {}
                // The type was not known, or has changed.
                Err(Errno::ISDIR) => return Ok(Found::Subdirectory(name.to_vec())),
                Err(errno) => self.note(errno, name)?,
            }
        }
        Ok(Found::Nothing)
    }

    fn level(&mut self) -> &mut Level {
        self.levels.last_mut().expect("the top level stays")
    }

    fn descend(&mut self, name: &[u8]) -> Result<(), Fault> {
        match open_dir(&self.here, name) {
            Ok(below) => {
                let level = Level::new(name, &below);
                let level = level.map_err(|errno| fault(errno, "remove", self.path))?;
                self.levels.push(level);
                self.here = below;
                Ok(())
            }
            // It became a file or a link: the next round removes that, and not what it points to.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => self.unlink_changed(name),
            // Unreadable: can go only if it is empty.
            Err(errno) => match unlinkat(&self.here, name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => Ok(()),
                Err(_) => self.note(errno, name),
            },
        }
    }

    fn unlink_changed(&mut self, name: &[u8]) -> Result<(), Fault> {
        match unlinkat(&self.here, name, AtFlags::empty()).or_else(gone) {
            Ok(()) => Ok(()),
            Err(errno) => self.note(errno, name),
        }
    }

    /// Goes back up and removes the directory that is now empty.
    fn ascend(&mut self) -> Result<(), Fault> {
        let done = self.levels.pop().expect("only called below the top level");
        let above = open_dir(&self.here, b"..");
        let above = above.map_err(|errno| fault(errno, "remove", self.path))?;
        let stat = statx_fd(&above).map_err(|errno| fault(errno, "remove", self.path))?;
        if Identity::of(&stat) != self.level().identity {
            return Err(Fault::new(FaultCode::StorageBusy, "remove")
                .on_path(self.path.as_bytes())
                .detail("a directory was moved away while it was being removed"));
        }
        self.here = above;
        match retry(|| unlinkat(&self.here, &done.name[..], AtFlags::REMOVEDIR)).or_else(gone) {
            Ok(()) => Ok(()),
            Err(errno) => self.note(errno, &done.name),
        }
    }

    /// Records what cannot be removed; an error when there are too many.
    fn note(&mut self, errno: Errno, name: &[u8]) -> Result<(), Fault> {
        let here = self.levels.iter().skip(1).map(|level| &level.name[..]);
        let parts: Vec<&[u8]> = here.chain([name]).filter(|part| !part.is_empty()).collect();
        let below = StoragePath::resolve(self.path, &parts.join(&b'/'));
        let fault = fault(errno, "remove", below.as_ref().unwrap_or(self.path));
        self.level().failed.insert(name.to_vec());
        self.faults += 1;
        let first = self.first.get_or_insert(fault);
        if self.faults < FAULTS_MAX {
            return Ok(());
        }
        let given_up = Fault::new(first.code, "remove")
            .subject(first.subject.clone())
            .detail(format!("given up after {FAULTS_MAX} failures"));
        Err(given_up)
    }
}

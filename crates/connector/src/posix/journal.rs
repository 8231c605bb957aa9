//! The journal beside an unfinished file.
//!
//! Its name holds the identity of the file it speaks of, so that it can neither be found by nor
//! mistaken for that of a file that took the name since.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{Mode, OFlags, Statx, ftruncate, openat};
use rustix::io::{Errno, write};
use whimbrel_engine::journal::LONGEST;
use whimbrel_engine::{Fault, FaultCode};

use super::error::{OrFault, fault};
use super::lock::Locked;
use super::meta::{Caller, kind_of, statx_fd};
use super::modes::PRIVATE;
use super::read::read_fully;
use super::resolve::{Dir, look, retry};
use super::steps;
use super::token::Identity;
use crate::Journal;
use crate::meta::Kind;
use crate::path::StoragePath;
use crate::staging::{is_journal_of, journal_name};

const OPEN: OFlags = OFlags::RDWR
    .union(OFlags::APPEND)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY)
    .union(OFlags::CLOEXEC);

/// Most names of a directory that are looked at for journals without a file.
const LOOKED_AT: usize = 10_000;

const WRITE: &str = "write journal";

/// Attempts to open or create it while others remove and create it.
const ATTEMPTS: usize = 16;

fn name_of(path: &StoragePath, identity: &Identity) -> Vec<u8> {
    journal_name(path.name().unwrap_or_default(), &identity.to_bytes())
}

/// Whether the unfinished file of `path` has a journal.
pub(super) fn exists(dir: &Dir, path: &StoragePath, unfinished: &Statx) -> Result<bool, Errno> {
    Ok(look(dir, &name_of(path, &Identity::of(unfinished)))?.is_some())
}

/// Removes the journal of one unfinished file of `path`, if there is one.
pub(super) fn remove(dir: &Dir, path: &StoragePath, identity: &Identity) -> Result<(), Errno> {
    match steps::unlink(dir, &name_of(path, identity)) {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

/// Removes journals of earlier unfinished files of `path`, which somebody has removed by hand; `staging` is the name of
/// the present one.
///
/// Only as far as can be seen without listing a very large directory: such a journal takes space and means nothing.
pub(super) fn remove_orphans(dir: &Dir, path: &StoragePath, staging: &[u8]) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(listing) = retry(|| openat(dir, c".", flags, Mode::empty())).and_then(rustix::fs::Dir::new) else {
        // A directory that may be written to and not be read.
        return;
    };
    let of = path.name().unwrap_or_default();
    for entry in listing.take(LOOKED_AT).flatten() {
        let name = entry.file_name().to_bytes();
        // Asked again for each: another host may have replaced the present file meanwhile.
        let is_current = || {
            let present = look(dir, staging).ok().flatten();
            present.is_none_or(|stat| name_of(path, &Identity::of(&stat)) == name)
        };
        if is_journal_of(of, name) && !is_current() {
            // What stays is harmless.
            let _ = steps::unlink(dir, name);
        }
    }
}

/// One writer's hold on the journal; opened when it is first needed.
pub(super) struct Log {
    dir: Dir,
    name: Vec<u8>,
    path: StoragePath,
    caller: Caller,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    file: Option<OwnedFd>,
    /// Whether the name of the journal, and that of the file beside it, survive a crash.
    named: bool,
}

impl Log {
    pub fn new(dir: Dir, path: StoragePath, identity: &Identity, caller: Caller) -> Self {
        Self { name: name_of(&path, identity), dir, path, caller, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens what is there; `None` without one. What another user planted is an error.
    fn open(&self) -> Result<Option<OwnedFd>, Errno> {
        let file = match retry(|| openat(&self.dir, &self.name[..], OPEN, Mode::empty())) {
            Err(Errno::NOENT) => return Ok(None),
            other => other?,
        };
        let stat = statx_fd(&file)?;
        let trusted = kind_of(&stat) == Kind::File && stat.stx_nlink <= 1 && self.caller.owns(stat.stx_uid);
        if trusted { Ok(Some(file)) } else { Err(Errno::PERM) }
    }

    fn open_or_create(&self) -> Result<OwnedFd, Errno> {
        for _ in 0..ATTEMPTS {
            if let Some(file) = self.open()? {
                return Ok(file);
            }
            let flags = OPEN | OFlags::CREATE | OFlags::EXCL;
            match retry(|| openat(&self.dir, &self.name[..], flags, PRIVATE)) {
                Err(Errno::EXIST) => {}
                other => return other,
            }
        }
        Err(Errno::AGAIN)
    }

    /// What is open, or opened or made now.
    fn file_of<'a>(&self, state: &'a mut State) -> Result<&'a OwnedFd, Fault> {
        let file = match state.file.take() {
            Some(file) => file,
            None => self.open_or_create().or_fault(WRITE, &self.path)?,
        };
        Ok(state.file.insert(file))
    }

    /// Syncs what was written, and the name it has.
    fn make_durable(&self, state: &mut State) -> Result<(), Fault> {
        let file = self.file_of(state)?;
        steps::sync_data(file).or_fault(WRITE, &self.path)?;
        if statx_fd(file).or_fault(WRITE, &self.path)?.stx_nlink == 0 {
            return Err(self.removed());
        }
        if !state.named {
            // Not only by the one that created it: that one may have died in between.
            steps::sync_dir(&self.dir).or_fault("sync directory", &self.path)?;
            state.named = true;
        }
        Ok(())
    }

    fn removed(&self) -> Fault {
        Fault::new(FaultCode::StorageBusy, WRITE)
            .on_path(self.path.as_bytes())
            .detail("the file was committed or replaced meanwhile")
    }
}

/// Appends whole or not at all: what was written of a piece that did not fit is taken back.
fn append(file: &OwnedFd, bytes: &[u8]) -> Result<(), Errno> {
    let before = statx_fd(file)?.stx_size;
    if before.saturating_add(bytes.len() as u64) > LONGEST {
        // Nobody could read it any more.
        return Err(Errno::FBIG);
    }
    match retry(|| write(file, bytes)) {
        Ok(count) if count == bytes.len() => Ok(()),
        short => {
            retry(|| ftruncate(file, before))?;
            Err(short.err().unwrap_or(Errno::NOSPC))
        }
    }
}

impl Journal for Log {
    fn read_from(&self, offset: u64) -> Result<Vec<u8>, Fault> {
        let op = "read journal";
        let mut state = self.state();
        if state.file.is_none() {
            state.file = self.open().or_fault(op, &self.path)?;
        }
        let Some(file) = &state.file else {
            return Ok(Vec::new());
        };
        let _locked = Locked::shared(file, op, &self.path)?;
        let size = statx_fd(file).or_fault(op, &self.path)?.stx_size;
        // Memory for it is taken at once, and others are served by this process.
        let size = usize::try_from(size).ok().filter(|_| size <= LONGEST);
        let size = size.ok_or_else(|| fault(Errno::FBIG, op, &self.path))?;
        let offset = usize::try_from(offset).map_or(size, |offset| offset.min(size));
        let mut bytes = vec![0; size - offset];
        let count = read_fully(file.as_fd(), offset as u64, &mut bytes, size as u64).or_fault(op, &self.path)?;
        bytes.truncate(count);
        Ok(bytes)
    }

    fn note(&self, seen: u64, bytes: &[u8]) -> Result<bool, Fault> {
        let mut state = self.state();
        let file = self.file_of(&mut state)?;
        let _locked = Locked::exclusive(file, WRITE, &self.path)?;
        let stat = statx_fd(file).or_fault(WRITE, &self.path)?;
        if stat.stx_nlink == 0 {
            return Err(self.removed());
        }
        if stat.stx_size != seen {
            return Ok(false);
        }
        append(file, bytes).or_fault(WRITE, &self.path)?;
        Ok(true)
    }

    fn sync(&self) -> Result<(), Fault> {
        self.make_durable(&mut self.state())
    }

    fn append(&self, bytes: &[u8]) -> Result<(), Fault> {
        let mut state = self.state();
        let file = self.file_of(&mut state)?;
        let locked = Locked::exclusive(file, WRITE, &self.path)?;
        append(file, bytes).or_fault(WRITE, &self.path)?;
        drop(locked);
        self.make_durable(&mut state)
    }

    fn cut(&self, seen: u64, keep: u64) -> Result<bool, Fault> {
        let op = "cut journal";
        let state = self.state();
        let Some(file) = &state.file else {
            return Ok(seen == 0);
        };
        let _locked = Locked::exclusive(file, op, &self.path)?;
        if statx_fd(file).or_fault(op, &self.path)?.stx_size != seen {
            return Ok(false);
        }
        retry(|| ftruncate(file, keep.min(seen))).or_fault(op, &self.path)?;
        steps::sync_data(file).or_fault(op, &self.path)?;
        Ok(true)
    }
}

//! Locks (flock) that nobody can hold against us for ever.

use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use whimbrel_engine::{Fault, FaultCode};

use super::resolve::retry;
use crate::path::StoragePath;

/// Longest wait. Those who keep the rules hold a lock for a few calls; a commit, also while it makes a file durable.
const LONGEST: Duration = Duration::from_secs(30);

/// Pauses between two attempts: there is no waiting with a limit.
const FIRST_PAUSE: Duration = Duration::from_micros(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// A lock on an unfinished file or on its journal: what is compared and then changed is one step.
///
/// File systems without locks do without: the comparison alone narrows the race to microseconds.
pub(super) struct Locked<'file> {
    file: Option<&'file OwnedFd>,
}

impl<'file> Locked<'file> {
    /// Keeps all others away. `StorageBusy` when somebody holds a lock too long: any program that may open the file can.
    pub fn exclusive(file: &'file OwnedFd, op: &str, path: &StoragePath) -> Result<Self, Fault> {
        Self::new(file, FlockOperation::NonBlockingLockExclusive, op, path)
    }

    /// Keeps those away who change it. `StorageBusy` as above.
    pub fn shared(file: &'file OwnedFd, op: &str, path: &StoragePath) -> Result<Self, Fault> {
        Self::new(file, FlockOperation::NonBlockingLockShared, op, path)
    }

    fn new(file: &'file OwnedFd, how: FlockOperation, op: &str, path: &StoragePath) -> Result<Self, Fault> {
        let (mut until, mut pause) = (None, FIRST_PAUSE);
        loop {
            match retry(|| flock(file, how)) {
                Ok(()) => return Ok(Self { file: Some(file) }),
                Err(Errno::WOULDBLOCK) => {}
                Err(_) => return Ok(Self { file: None }),
            }
            #[cfg(test)]
            tests::note_waiting(file);
            let now = Instant::now();
            if now >= *until.get_or_insert_with(|| now + longest()) {
                return Err(held(op, path));
            }
            thread::sleep(pause);
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }

    /// Leaves the lock to the closing of the file: under its final name nobody asks for it.
    pub fn release_with_file(mut self) {
        self.file = None;
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        if let Some(file) = self.file {
            release(file);
        }
    }
}

/// Takes a lock that is kept for long, if nobody has it; true also on file systems without locks.
pub(super) fn try_exclusive(file: &OwnedFd) -> bool {
    retry(|| flock(file, FlockOperation::NonBlockingLockExclusive)) != Err(Errno::WOULDBLOCK)
}

/// Gives a lock back.
pub(super) fn release(file: &OwnedFd) {
    // Fails only for locks that were never had.
    let _ = flock(file, FlockOperation::Unlock);
}

fn held(op: &str, path: &StoragePath) -> Fault {
    Fault::new(FaultCode::StorageBusy, op)
        .on_path(path.as_bytes())
        .detail("another program holds a lock on the unfinished file or its journal (see `lslocks`)")
}

#[cfg(not(test))]
fn longest() -> Duration {
    LONGEST
}

#[cfg(test)]
fn longest() -> Duration {
    tests::LIMIT.get().unwrap_or(LONGEST)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs::{self, File};
    use std::path::Path;
    use std::sync::{Mutex, PoisonError};

    use super::*;
    use crate::posix::meta::statx_fd;
    use crate::posix::token::Identity;
    use crate::posix::{Posix, PosixOptions};
    use crate::session::{Attributes, Disposition, WriteIntent, WriteSession};
    use crate::{Connector, Follow};

    thread_local! {
        /// How long this thread waits.
        pub(super) static LIMIT: Cell<Option<Duration>> = const { Cell::new(None) };
    }

    /// The files that somebody waits for.
    static WAITED_FOR: Mutex<Vec<Identity>> = Mutex::new(Vec::new());

    pub(super) fn note_waiting(file: &OwnedFd) {
        let identity = Identity::of(&statx_fd(file).unwrap());
        WAITED_FOR.lock().unwrap_or_else(PoisonError::into_inner).push(identity);
    }

    /// Holds the lock that commits and takeovers ask for.
    fn lock(at: &Path) -> File {
        let file = File::open(at).unwrap();
        flock(&file, FlockOperation::LockExclusive).unwrap();
        file
    }

    /// Waits until somebody waits for the lock of a file; false when `thread` ended without.
    fn waits_for_lock<T>(file: &File, thread: &thread::ScopedJoinHandle<'_, T>) -> bool {
        let identity = Identity::of(&statx_fd(file).unwrap());
        while !thread.is_finished() {
            if WAITED_FOR.lock().unwrap_or_else(PoisonError::into_inner).contains(&identity) {
                return true;
            }
            thread::yield_now();
        }
        false
    }

    fn lab() -> (tempfile::TempDir, Posix) {
        let dir = tempfile::tempdir().unwrap();
        let storage = Posix::open(dir.path(), PosixOptions::default()).unwrap();
        (dir, storage)
    }

    fn begin(storage: &Posix, disposition: Disposition) -> Result<WriteSession, Fault> {
        let path = StoragePath::resolve(&StoragePath::root(), b"file").unwrap();
        storage.begin(&path, &WriteIntent { disposition, size: None, length: None, mode: None })
    }

    #[test]
    fn a_takeover_waits_for_a_commit_in_progress() {
        let (dir, storage) = lab();
        let first = begin(&storage, Disposition::Replace).unwrap();
        storage.join(&first).unwrap().write_at(0, b"first").unwrap();
        let hidden = dir.path().join(".file.whimbrel-part");
        let committing = lock(&hidden);
        thread::scope(|scope| {
            let second = scope.spawn(|| begin(&storage, Disposition::Replace).unwrap());
            assert!(waits_for_lock(&committing, &second), "it did not wait");
            fs::rename(&hidden, dir.path().join("file")).unwrap();
            drop(committing);
            second.join().unwrap();
        });
        assert_eq!(fs::read(dir.path().join("file")).unwrap(), b"first");
        assert_eq!(fs::read(&hidden).unwrap(), b"");
    }

    #[test]
    fn a_commit_waits_for_a_takeover_in_progress_and_then_fails() {
        let (dir, storage) = lab();
        let first = begin(&storage, Disposition::Replace).unwrap();
        let hidden = dir.path().join(".file.whimbrel-part");
        let taking = lock(&hidden);
        thread::scope(|scope| {
            let commit = scope.spawn(|| storage.commit(&first, &[], &Attributes::default()));
            assert!(waits_for_lock(&taking, &commit), "it did not wait");
            fs::remove_file(&hidden).unwrap();
            fs::write(&hidden, "second").unwrap();
            drop(taking);
            assert_eq!(commit.join().unwrap().unwrap_err().code, FaultCode::StorageBusy);
        });
        assert!(!dir.path().join("file").exists());
        assert_eq!(fs::read(&hidden).unwrap(), b"second");
    }

    /// Its answer was lost, or another host named the file: the hidden name is that of somebody else's bytes by then.
    #[test]
    fn a_commit_of_what_has_its_name_already_leaves_the_next_unfinished_file_alone() {
        let (dir, storage) = lab();
        let other = Posix::open(dir.path(), PosixOptions::default()).unwrap();
        let first = begin(&storage, Disposition::Continue).unwrap();
        let writer = storage.join(&first).unwrap();
        writer.write_at(0, b"first").unwrap();
        other.commit(&first, &[], &Attributes::default()).unwrap();
        let next = begin(&other, Disposition::Continue).unwrap();
        other.join(&next).unwrap().write_at(0, b"half of").unwrap();
        // The file is still open here.
        storage.commit(&first, &[], &Attributes::default()).unwrap();
        assert_eq!(fs::read(dir.path().join("file")).unwrap(), b"first");
        assert_eq!(fs::read(dir.path().join(".file.whimbrel-part")).unwrap(), b"half of");
    }

    /// Whoever may open an unfinished file can lock it: all that ask for the lock give up, and go on when it is free.
    #[test]
    fn a_lock_that_is_never_released_stops_nobody_for_ever() {
        LIMIT.set(Some(Duration::from_millis(20)));
        let (dir, storage) = lab();
        let hidden = dir.path().join(".file.whimbrel-part");
        let session = begin(&storage, Disposition::Continue).unwrap();
        let writer = storage.join(&session).unwrap();
        writer.write_at(0, b"data").unwrap();
        let holder = lock(&hidden);
        let refused = |result: Result<(), Fault>| {
            let fault = result.expect_err("somebody holds the lock");
            assert_eq!(fault.code, FaultCode::StorageBusy, "{fault}");
            assert!(fault.detail.contains("holds a lock"), "{fault}");
        };
        refused(storage.commit(&session, &[], &Attributes::default()));
        refused(storage.abandon(&session));
        refused(begin(&storage, Disposition::Replace).map(drop));
        assert!(storage.stat(&session.path, Follow::No).is_err(), "it has no name");
        drop(holder);
        storage.commit(&session, &[], &Attributes::default()).unwrap();
        assert_eq!(fs::read(dir.path().join("file")).unwrap(), b"data");
    }

    #[test]
    fn a_lock_on_a_journal_that_is_never_released_stops_nobody_for_ever() {
        LIMIT.set(Some(Duration::from_millis(20)));
        let (dir, storage) = lab();
        let session = begin(&storage, Disposition::Continue).unwrap();
        let journal = storage.journal(&session).unwrap();
        journal.append(b"proof").unwrap();
        let is_journal = |name: &str| name.contains("-journal-");
        let names = fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path());
        let at = names.into_iter().find(|path| is_journal(&path.to_string_lossy())).unwrap();
        let holder = lock(&at);
        let code = |result: Result<(), Fault>| result.unwrap_err().code;
        assert_eq!(code(journal.append(b"more")), FaultCode::StorageBusy);
        assert_eq!(code(journal.read().map(drop)), FaultCode::StorageBusy);
        assert_eq!(code(journal.cut(5, 0).map(drop)), FaultCode::StorageBusy);
        drop(holder);
        journal.append(b"more").unwrap();
        assert_eq!(journal.read().unwrap(), b"proofmore");
    }
}

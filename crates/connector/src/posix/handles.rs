//! Descriptors kept from begin to join and commit, so that a small file is opened only once.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};

use rustix::io::Errno;

use super::direct::Gathering;
use super::lock;
use super::resolve::Dir;
use super::steps;
use super::token::Identity;
use crate::meta::Kind;
use crate::path::StoragePath;

/// Most sessions whose descriptors are kept before anybody joined them.
const FRESH_MAX: usize = 64;

/// The open file of a session.
pub(super) struct Handle {
    pub file: OwnedFd,
    /// The directory it is in.
    pub dir: Dir,
    pub kind: Kind,
    pub identity: Identity,
    /// Whether its bytes have got their final name: nothing is written then.
    pub committed: RwLock<bool>,
    /// The way past the page cache, once a writer asked for it; `None` in it: there is none.
    pub direct: OnceLock<Option<Gathering>>,
    /// How a sync has failed, for all who share this; held while one is under way.
    failed: Mutex<Option<Errno>>,
    /// Whether one has: asked without waiting for the one that is under way.
    unsound: AtomicBool,
    /// Whether one of its writers has the file's end. The lock alone keeps away those who opened the file themselves.
    appended: AtomicBool,
}

impl Handle {
    /// Of an open file.
    pub fn new(file: OwnedFd, dir: Dir, kind: Kind, identity: Identity) -> Self {
        Self {
            file,
            dir,
            kind,
            identity,
            committed: RwLock::default(),
            direct: OnceLock::new(),
            failed: Mutex::default(),
            unsound: AtomicBool::new(false),
            appended: AtomicBool::new(false),
        }
    }

    /// Takes the file's end for one writer; whether nobody else has it, here or in another process.
    pub fn claim_end(&self) -> bool {
        if self.appended.swap(true, Ordering::AcqRel) {
            return false;
        }
        let free = lock::try_exclusive(&self.file);
        if !free {
            self.appended.store(false, Ordering::Release);
        }
        free
    }

    /// Gives back what [`Handle::claim_end`] took.
    pub fn release_end(&self) {
        lock::release(&self.file);
        self.appended.store(false, Ordering::Release);
    }

    /// Makes content and size durable.
    pub fn sync_data(&self) -> Result<(), Errno> {
        self.sync(|file| steps::sync_data(file))
    }

    /// Makes mode and times durable besides.
    pub fn sync_all(&self) -> Result<(), Errno> {
        self.sync(|file| steps::sync_all(file))
    }

    /// Makes the file durable by `sync`; for ever an error once that has failed.
    ///
    /// The kernel tells an error of writing back once for each open file, to whoever asks first, and calls the lost pages
    /// clean: the next of those who share the file would be told that theirs are stored (fsync(2)).
    fn sync(&self, sync: fn(&OwnedFd) -> Result<(), Errno>) -> Result<(), Errno> {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(errno) = *failed {
            return Err(errno);
        }
        let result = self.sync_and_forget(sync);
        // Devices and pipes have nothing to make durable, and say so.
        *failed = result.err().filter(|_| self.kind == Kind::File);
        if failed.is_some() {
            self.unsound.store(true, Ordering::Release);
        }
        result
    }

    /// Whether no sync has failed: what else was written may be lost. Does not wait for a sync that is under way.
    pub fn is_sound(&self) -> bool {
        !self.unsound.load(Ordering::Acquire)
    }

    /// Whether its bytes have got their final name.
    pub fn is_committed(&self) -> bool {
        *self.committed.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Handles by the path of their bytes.
///
/// Held strongly from begin until the first join, at most [`FRESH_MAX`]; weakly from then on, so
/// that a session its writers forgot keeps neither a descriptor nor disk space. A commit while a
/// writer is alive finds the handle, a later one opens the file again.
#[derive(Default)]
pub(super) struct Handles {
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    slots: HashMap<StoragePath, Slot>,
    begun: u64,
    prune_at: usize,
}

struct Slot {
    fresh: Option<Arc<Handle>>,
    shared: Weak<Handle>,
    begun: u64,
}

impl Handles {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a handle until the first join.
    ///
    /// Where the same file is open already, that handle is kept instead: all writers of a file share one, and with it
    /// the word that it is committed.
    pub fn keep(&self, staging: &StoragePath, handle: Arc<Handle>) {
        let known = self.join(staging, &handle.identity).filter(|known| !known.is_committed());
        let handle = known.unwrap_or(handle);
        let slot = Slot { shared: Arc::downgrade(&handle), fresh: Some(handle), begun: 0 };
        self.table().insert(staging, slot);
    }

    /// Remembers a handle that its users keep alive, unless another that is sound is remembered already.
    pub fn share(&self, staging: &StoragePath, handle: &Arc<Handle>) {
        let mut table = self.table();
        let other = table.slots.get(staging);
        if other.and_then(|slot| slot.shared.upgrade()).is_some_and(|other| other.is_sound()) {
            return;
        }
        let slot = Slot { shared: Arc::downgrade(handle), fresh: None, begun: 0 };
        table.insert(staging, slot);
    }

    /// The handle of a session, if it is open here and can still make durable what is written.
    pub fn join(&self, staging: &StoragePath, identity: &Identity) -> Option<Arc<Handle>> {
        let mut table = self.table();
        let slot = table.slots.get_mut(staging)?;
        let handle = slot.shared.upgrade()?;
        if handle.identity != *identity || !handle.is_sound() {
            return None;
        }
        slot.fresh = None;
        Some(handle)
    }

    /// The handle of a session, if it is open here, whether or not it is sound; and forgets it.
    pub fn take(&self, staging: &StoragePath, identity: &Identity) -> Option<Arc<Handle>> {
        let mut table = self.table();
        let slot = table.slots.get(staging)?;
        let handle = slot.shared.upgrade()?;
        if handle.identity != *identity {
            return None;
        }
        table.slots.remove(staging);
        Some(handle)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.table().slots.len()
    }
}

impl Table {
    fn insert(&mut self, staging: &StoragePath, mut slot: Slot) {
        self.begun += 1;
        slot.begun = self.begun;
        self.slots.insert(staging.clone(), slot);
        if self.slots.len() > self.prune_at.max(FRESH_MAX) {
            self.prune();
        }
    }

    /// Forgets the dead, then lets go of the oldest that nobody joined.
    fn prune(&mut self) {
        self.slots.retain(|_, slot| slot.shared.strong_count() > 0);
        let mut fresh: Vec<u64> =
            self.slots.values().filter(|slot| slot.fresh.is_some()).map(|slot| slot.begun).collect();
        fresh.sort_unstable();
        if let Some(excess) = fresh.len().checked_sub(FRESH_MAX).filter(|&n| n > 0) {
            let newest_dropped = fresh[excess - 1];
            self.slots.retain(|_, slot| slot.fresh.is_none() || slot.begun > newest_dropped);
        }
        // Live ones are many: look again only after as many more.
        self.prune_at = self.slots.len() * 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::posix::resolve::Root;

    fn handle(root: &Root) -> Arc<Handle> {
        let path = StoragePath::resolve(&StoragePath::root(), b"x").unwrap();
        let (dir, _) = root.entry(&path, "test").unwrap();
        let file = std::fs::File::open("/dev/null").unwrap().into();
        let identity = Identity::default();
        let kind = Kind::File;
        Arc::new(Handle::new(file, dir, kind, identity))
    }

    fn staging(n: usize) -> StoragePath {
        StoragePath::resolve(&StoragePath::root(), format!("{n}").as_bytes()).unwrap()
    }

    #[test]
    fn sessions_never_joined_hold_a_bounded_number_of_descriptors() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path(), false).unwrap();
        let handles = Handles::default();
        let kept: Vec<_> = (0..1000)
            .map(|n| {
                let handle = handle(&root);
                handles.keep(&staging(n), handle.clone());
                Arc::downgrade(&handle)
            })
            .collect();
        let alive = kept.iter().filter(|weak| weak.strong_count() > 0).count();
        assert!(alive <= 2 * FRESH_MAX, "{alive}");
        assert!(handles.join(&staging(999), &Identity::default()).is_some());
    }

    #[test]
    fn a_failed_sync_fails_for_all_who_share_the_file_and_the_next_opens_it_anew() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path(), false).unwrap();
        let handles = Handles::default();
        let first = handle(&root);
        handles.keep(&staging(1), first.clone());
        let second = handles.join(&staging(1), &Identity::default()).unwrap();
        assert_eq!(first.sync(|_| Ok(())), Ok(()));
        assert!(second.is_sound());
        assert_eq!(first.sync(|_| Err(Errno::IO)), Err(Errno::IO));
        // The kernel would say that all is well.
        assert_eq!(second.sync(|_| Ok(())), Err(Errno::IO));
        assert!(!second.is_sound());
        let anew = handle(&root);
        handles.share(&staging(1), &anew);
        assert!(Arc::ptr_eq(&handles.join(&staging(1), &Identity::default()).unwrap(), &anew));
        handles.share(&staging(1), &handle(&root));
        assert!(Arc::ptr_eq(&handles.join(&staging(1), &Identity::default()).unwrap(), &anew), "this one is sound");
    }

    #[test]
    fn nobody_waits_for_a_sync_to_learn_whether_the_file_is_sound() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path(), false).unwrap();
        let handle = handle(&root);
        let handles = Handles::default();
        handles.keep(&staging(1), handle.clone());
        let _syncing = handle.failed.lock().unwrap();
        assert!(handle.is_sound());
        assert!(handles.join(&staging(1), &Identity::default()).is_some());
    }

    #[test]
    fn a_joined_handle_lives_only_as_long_as_its_writers() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::open(dir.path(), false).unwrap();
        let handles = Handles::default();
        handles.keep(&staging(1), handle(&root));
        let first = handles.join(&staging(1), &Identity::default()).unwrap();
        let second = handles.join(&staging(1), &Identity::default()).unwrap();
        assert!(Arc::ptr_eq(&first, &second));
        drop((first, second));
        assert!(handles.join(&staging(1), &Identity::default()).is_none());
        (2..2000).for_each(|n| {
            handles.keep(&staging(n), handle(&root));
            handles.join(&staging(n), &Identity::default());
        });
        (2000..4000).for_each(|n| handles.share(&staging(n), &handle(&root)));
        assert!(handles.len() <= 2 * FRESH_MAX);
        let kept = handle(&root);
        handles.share(&staging(3999), &kept);
        assert!(handles.join(&staging(3999), &Identity::default()).is_some());
    }
}

//! Power cuts: what was not synced is lost, or not, as on a real disk.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use whimbrel_engine::FaultCode;

use super::Memory;
use super::data::Data;
use super::tree::{Body, Names, Node};

/// A call that makes something durable, or an order in which it is done.
///
/// A test leaves each out once, to see that the loss would be noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Safeguard {
    /// [`crate::WriteAt::sync`] syncs the data.
    SyncData,
    /// A durable commit syncs data and size before it renames.
    SyncBeforeRename,
    /// A durable commit syncs the directory after it has renamed.
    SyncAfterRename,
    /// A commit that finds its work done syncs the directory: the one before may have died in between.
    SyncRepeatedCommit,
    /// The journal is removed only when the new name is durable.
    RemoveJournalLast,
    /// An append syncs the journal.
    SyncJournal,
    /// The first append syncs the directory.
    SyncJournalName,
    /// What was noted in the journal is synced when that is asked for.
    SyncNotes,
}

impl Safeguard {
    /// All of them.
    pub const ALL: [Safeguard; 8] = [
        Self::SyncData,
        Self::SyncBeforeRename,
        Self::SyncAfterRename,
        Self::SyncRepeatedCommit,
        Self::RemoveJournalLast,
        Self::SyncJournal,
        Self::SyncJournalName,
        Self::SyncNotes,
    ];
}

/// One change of a directory that is not durable yet.
pub(super) enum Change {
    Put(Vec<u8>, Arc<Node>),
    Drop(Vec<u8>),
    /// Within one directory: in one step, as journaling file systems do it.
    Rename(Vec<u8>, Vec<u8>, Arc<Node>),
}

/// What of a node survives a power cut.
#[derive(Default)]
pub(super) struct Stable {
    data: Data,
    names: Names,
    changes: Vec<Change>,
}

#[derive(Default)]
struct State {
    /// Steps until the power goes.
    left: Option<u64>,
    steps: u64,
    down: bool,
    without: Option<Safeguard>,
}

/// The power supply of one storage.
#[derive(Default)]
pub(super) struct Power {
    /// Without, nothing is remembered and nothing costs memory twice.
    can_fail: bool,
    state: Mutex<State>,
}

impl Power {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be called before every step that changes the storage or makes it durable.
    pub fn step(&self) -> Result<(), FaultCode> {
        if !self.can_fail {
            return Ok(());
        }
        let mut state = self.state();
        if state.left == Some(0) {
            state.down = true;
        }
        if state.down {
            return Err(FaultCode::StorageIo);
        }
        state.steps += 1;
        state.left = state.left.map(|left| left - 1);
        Ok(())
    }

    pub fn has(&self, safeguard: Safeguard) -> bool {
        !self.can_fail || self.state().without != Some(safeguard)
    }
}

impl Memory {
    /// Like [`Memory::new`], and remembers what is durable: [`Memory::crash`] loses the rest.
    ///
    /// Every sync copies the file: for small files.
    pub fn with_power_cuts() -> Self {
        Self { power: Arc::new(Power { can_fail: true, state: Mutex::default() }), ..Self::new() }
    }

    /// Cuts the power after `steps` more steps (a write, a change of one name, a sync): all later ones fail with
    /// `StorageIo` until [`Memory::crash`].
    pub fn cut_power_after(&self, steps: u64) {
        self.power.state().left = Some(steps);
    }

    /// Whether the power was cut.
    pub fn is_down(&self) -> bool {
        self.power.state().down
    }

    /// Steps carried out so far.
    pub fn steps(&self) -> u64 {
        self.power.state().steps
    }

    /// Goes on after the power was cut as if only the programs had died: nothing is lost, nothing more is durable.
    pub fn restart(&self) {
        let mut state = self.power.state();
        (state.down, state.left) = (false, None);
    }

    /// Leaves one safeguard out from now on; for the test that its loss is noticed.
    pub fn leave_out(&self, safeguard: Safeguard) {
        self.power.state().without = Some(safeguard);
    }

    /// Comes back after a power cut: of what was not durable, `choose` says what survived.
    ///
    /// `choose(n)` answers a number below `n`; always 0 loses everything that may be lost. Changed names survive one
    /// by one, changed data page by page, and a longer file up to any byte. Drop all writers and journals before.
    pub fn crash(&self, choose: &mut dyn FnMut(u64) -> u64) {
        let _names = self.lock();
        self.restart();
        let mut pending = vec![self.root.clone()];
        while let Some(node) = pending.pop() {
            // Nobody that wrote before is left, and the hidden name may be back.
            node.committed.store(false, Ordering::SeqCst);
            let mut stable = node.stable();
            match &node.body {
                Body::File(data) => {
                    let mut data = data.write().unwrap_or_else(PoisonError::into_inner);
                    stable.data.survive(&data, choose);
                    *data = stable.data.clone();
                }
                Body::Directory(names) => {
                    let mut names = names.lock().unwrap_or_else(PoisonError::into_inner);
                    for change in std::mem::take(&mut stable.changes) {
                        if choose(2) == 1 {
                            apply(&mut stable.names, change);
                        }
                    }
                    names.clone_from(&stable.names);
                    pending.extend(names.values().cloned());
                }
                _ => {}
            }
        }
    }

    /// Gives a node a name; the caller holds the names' lock.
    pub(super) fn put_name(&self, dir: &Node, name: &[u8], node: &Arc<Node>) -> Result<(), FaultCode> {
        let mut names = dir.names()?;
        self.power.step()?;
        names.insert(name.to_vec(), node.clone());
        self.note(dir, || Change::Put(name.to_vec(), node.clone()));
        Ok(())
    }

    /// Takes a name away; the caller holds the names' lock.
    pub(super) fn drop_name(&self, dir: &Node, name: &[u8]) -> Result<(), FaultCode> {
        let mut names = dir.names()?;
        self.power.step()?;
        names.remove(name);
        self.note(dir, || Change::Drop(name.to_vec()));
        Ok(())
    }

    /// Changes a name within one directory; the caller holds the names' lock.
    pub(super) fn change_name(&self, dir: &Node, from: &[u8], to: &[u8], node: &Arc<Node>) -> Result<(), FaultCode> {
        let mut names = dir.names()?;
        self.power.step()?;
        let change = Change::Rename(from.to_vec(), to.to_vec(), node.clone());
        apply(&mut names, Change::Rename(from.to_vec(), to.to_vec(), node.clone()));
        self.note(dir, || change);
        Ok(())
    }

    fn note(&self, dir: &Node, change: impl FnOnce() -> Change) {
        dir.facts().modified = (self.clock)();
        if self.power.can_fail {
            dir.stable().changes.push(change());
        }
    }

    /// Makes what a file holds now durable.
    pub(super) fn sync_file(&self, node: &Node) -> Result<(), FaultCode> {
        self.power.step()?;
        if let (true, Body::File(data)) = (self.power.can_fail, &node.body) {
            let data = data.read().unwrap_or_else(PoisonError::into_inner);
            node.stable().data = data.clone();
        }
        Ok(())
    }

    /// Makes the names in a directory durable; the caller holds the names' lock.
    pub(super) fn sync_names(&self, dir: &Node) -> Result<(), FaultCode> {
        self.power.step()?;
        if self.power.can_fail {
            let names = dir.names()?.clone();
            let mut stable = dir.stable();
            (stable.names, stable.changes) = (names, Vec::new());
        }
        Ok(())
    }
}

fn apply(names: &mut Names, change: Change) {
    match change {
        Change::Put(name, node) => drop(names.insert(name, node)),
        Change::Drop(name) => drop(names.remove(&name)),
        Change::Rename(from, to, node) => {
            if names.get(&from).is_some_and(|old| Arc::ptr_eq(old, &node)) {
                names.remove(&from);
            }
            names.insert(to, node);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::{Attributes, Disposition, WriteIntent};
    use crate::{Connector, StoragePath};

    fn path(name: &str) -> StoragePath {
        StoragePath::resolve(&StoragePath::root(), name.as_bytes()).unwrap()
    }

    /// A file that is durable, and a directory.
    fn storage() -> Memory {
        let storage = Memory::with_power_cuts();
        storage.make_dir(&path("dir")).unwrap();
        let intent = WriteIntent { disposition: Disposition::Replace, size: None, length: None, mode: None };
        let session = storage.begin(&path("old"), &intent).unwrap();
        storage.join(&session).unwrap().write_at(0, b"data").unwrap();
        storage.commit(&session, &[], &Attributes { durable: true, ..Attributes::default() }).unwrap();
        storage
    }

    #[test]
    fn what_was_renamed_durably_survives_a_power_cut_and_what_was_not_need_not() {
        for (to, durable) in [("new", true), ("new", false), ("dir/new", true), ("dir/new", false)] {
            let storage = storage();
            storage.rename(&path("old"), &path(to), durable).unwrap();
            storage.crash(&mut |_| 0);
            let survived = storage.stat(&path(to), crate::Follow::No).map(|meta| meta.size);
            assert_eq!(survived.ok(), durable.then_some(4), "{to}");
            assert_ne!(storage.stat(&path("old"), crate::Follow::No).is_ok(), durable, "{to}");
        }
    }

    #[test]
    fn what_is_written_in_place_and_renamed_durably_has_its_content() {
        let storage = storage();
        let intent = WriteIntent { disposition: Disposition::Update, size: None, length: None, mode: None };
        let session = storage.begin(&path("old"), &intent).unwrap();
        storage.join(&session).unwrap().write_at(4, b" and more").unwrap();
        storage.rename(&path("old"), &path("new"), true).unwrap();
        storage.crash(&mut |_| 0);
        assert_eq!(storage.stat(&path("new"), crate::Follow::No).unwrap().size, 13);
    }
}

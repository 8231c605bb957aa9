//! A storage that fails when told to, and counts every call.
//!
//! ```
//! use whimbrel_connector::faults::{Calls, Faulty, Operation, Script, When};
//! use whimbrel_connector::{Connector, StoragePath, memory::Memory};
//! use whimbrel_engine::FaultCode;
//!
//! let script = Script::new();
//! let storage = Faulty::new(Memory::new(), script.clone());
//! script.fail(Operation::MakeDir, Calls::Nth(2), FaultCode::NoSpace, When::Before);
//! let dir = |name: &[u8]| StoragePath::resolve(&StoragePath::root(), name).unwrap();
//! assert!(storage.make_dir(&dir(b"one")).is_ok());
//! assert_eq!(storage.make_dir(&dir(b"two")).unwrap_err().code, FaultCode::NoSpace);
//! assert_eq!(script.calls(Operation::MakeDir), 2);
//! ```

mod files;
mod script;

pub use script::{Calls, Hook, Operation, Script, When};

use std::sync::Arc;

use whimbrel_engine::Fault;

use crate::path::StoragePath;
use crate::session::{Attributes, Receipt, WriteIntent, WriteSession};
use crate::{Capabilities, Connector, Entry, FileSystem, Follow, Journal, Listing, Meta, ReadAt, Version, WriteAt};
use files::{FaultyJournal, FaultyReader, FaultyWriter};
use script::scripted;

/// A storage whose calls fail, wait or return damaged bytes as its [`Script`] says.
///
/// Without rules it only counts. A script may serve several storages; its counters then sum up.
pub struct Faulty<C> {
    inner: C,
    script: Script,
}

impl<C: Connector> Faulty<C> {
    /// Wraps a storage.
    pub fn new(inner: C, script: Script) -> Self {
        Self { inner, script }
    }

    /// The storage below.
    pub fn inner(&self) -> &C {
        &self.inner
    }
}

impl Script {
    /// Does one call under the script's rules.
    fn run<T>(&self, operation: Operation, call: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
        let turn = self.turn(operation);
        if let Some(code) = turn.before {
            return Err(scripted(code, operation));
        }
        let value = call()?;
        match turn.after {
            Some(code) => Err(scripted(code, operation)),
            None => Ok(value),
        }
    }

    /// Like [`Script::run`] for reading `buffer` at `offset`, which rules may damage.
    fn run_read(
        &self,
        operation: Operation,
        offset: u64,
        buffer: &mut [u8],
        call: impl FnOnce(&mut [u8]) -> Result<usize, Fault>,
    ) -> Result<usize, Fault> {
        let turn = self.turn(operation);
        if let Some(code) = turn.before {
            return Err(scripted(code, operation));
        }
        let count = call(buffer)?;
        for at in turn.flips {
            let within = at.checked_sub(offset).filter(|&at| at < count as u64);
            if let Some(at) = within {
                buffer[at as usize] ^= 1;
            }
        }
        match turn.after {
            Some(code) => Err(scripted(code, operation)),
            None => Ok(count),
        }
    }
}

struct FaultyListing {
    inner: Listing,
    script: Script,
}

impl Iterator for FaultyListing {
    type Item = Result<Entry, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.script.run(Operation::ListNext, || self.inner.next().transpose());
        entry.transpose()
    }
}

impl<C: Connector> Connector for Faulty<C> {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn stat(&self, path: &StoragePath, follow: Follow) -> Result<Meta, Fault> {
        self.script.run(Operation::Stat, || self.inner.stat(path, follow))
    }

    fn list(&self, path: &StoragePath) -> Result<Listing, Fault> {
        let inner = self.script.run(Operation::List, || self.inner.list(path))?;
        Ok(Box::new(FaultyListing { inner, script: self.script.clone() }))
    }

    fn open_read(&self, path: &StoragePath, expect: Option<&Version>) -> Result<Arc<dyn ReadAt>, Fault> {
        let open = || self.inner.open_read(path, expect);
        let inner = self.script.run(Operation::OpenRead, open)?;
        let script = self.script.clone();
        Ok(Arc::new(FaultyReader { inner, script }))
    }

    fn begin(&self, path: &StoragePath, intent: &WriteIntent) -> Result<WriteSession, Fault> {
        self.script.run(Operation::Begin, || self.inner.begin(path, intent))
    }

    fn resolve(&self, path: &StoragePath, follow: Follow) -> Result<StoragePath, Fault> {
        self.inner.resolve(path, follow)
    }

    fn target(&self, path: &StoragePath) -> Result<StoragePath, Fault> {
        self.script.run(Operation::Target, || self.inner.target(path))
    }

    fn journal(&self, session: &WriteSession) -> Result<Arc<dyn Journal>, Fault> {
        let inner = self.script.run(Operation::Journal, || self.inner.journal(session))?;
        let script = self.script.clone();
        Ok(Arc::new(FaultyJournal { inner, script }))
    }

    fn join(&self, session: &WriteSession) -> Result<Arc<dyn WriteAt>, Fault> {
        let join = || self.inner.join(session);
        let inner = self.script.run(Operation::Join, join)?;
        let script = self.script.clone();
        Ok(Arc::new(FaultyWriter { inner, script, failed: false.into() }))
    }

    fn commit(&self, session: &WriteSession, receipts: &[Receipt], attributes: &Attributes) -> Result<(), Fault> {
        let commit = || self.inner.commit(session, receipts, attributes);
        self.script.run(Operation::Commit, commit)
    }

    fn has_committed(&self, session: &WriteSession) -> bool {
        self.inner.has_committed(session)
    }

    fn abandon(&self, session: &WriteSession) -> Result<(), Fault> {
        self.script.run(Operation::Abandon, || self.inner.abandon(session))
    }

    fn unfinished(&self, path: &StoragePath) -> Result<Option<Meta>, Fault> {
        self.script.run(Operation::Unfinished, || self.inner.unfinished(path))
    }

    fn has_unfinished(&self, path: &StoragePath) -> Result<bool, Fault> {
        self.script.run(Operation::Unfinished, || self.inner.has_unfinished(path))
    }

    fn scratch(&self, directory: &StoragePath) -> Result<Arc<dyn WriteAt>, Fault> {
        let inner = self.script.run(Operation::Scratch, || self.inner.scratch(directory))?;
        let script = self.script.clone();
        Ok(Arc::new(FaultyWriter { inner, script, failed: false.into() }))
    }

    fn sync(&self, path: &StoragePath) -> Result<(), Fault> {
        self.script.run(Operation::SyncAll, || self.inner.sync(path))
    }

    fn file_system(&self, path: &StoragePath) -> Result<FileSystem, Fault> {
        self.script.run(Operation::FileSystem, || self.inner.file_system(path))
    }

    fn make_dir(&self, path: &StoragePath) -> Result<(), Fault> {
        self.script.run(Operation::MakeDir, || self.inner.make_dir(path))
    }

    fn remove_dir(&self, path: &StoragePath) -> Result<(), Fault> {
        self.script.run(Operation::RemoveDir, || self.inner.remove_dir(path))
    }

    fn remove_file(&self, path: &StoragePath) -> Result<(), Fault> {
        self.script.run(Operation::RemoveFile, || self.inner.remove_file(path))
    }

    fn remove_tree(&self, path: &StoragePath) -> Result<(), Fault> {
        self.script.run(Operation::RemoveTree, || self.inner.remove_tree(path))
    }

    fn rename(&self, from: &StoragePath, to: &StoragePath, durable: bool) -> Result<(), Fault> {
        self.script.run(Operation::Rename, || self.inner.rename(from, to, durable))
    }

    fn symlink(&self, target: &[u8], link: &StoragePath) -> Result<(), Fault> {
        self.script.run(Operation::Symlink, || self.inner.symlink(target, link))
    }

    fn set_attributes(&self, path: &StoragePath, attributes: &Attributes, follow: Follow) -> Result<(), Fault> {
        let set = || self.inner.set_attributes(path, attributes, follow);
        self.script.run(Operation::SetAttributes, set)
    }

    fn truncate(&self, path: &StoragePath, size: u64) -> Result<(), Fault> {
        self.script.run(Operation::Truncate, || self.inner.truncate(path, size))
    }

    fn owner_names(&self, uid: u32, gid: u32) -> (String, String) {
        self.script.turn(Operation::OwnerNames);
        self.inner.owner_names(uid, gid)
    }
}

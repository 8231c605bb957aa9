//! The journal beside an unfinished file: a file too, as for POSIX.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use whimbrel_engine::{Fault, FaultCode};

use super::data::Data;
use super::tree::{Body, Node, OnPath, Spot, resolve};
use super::{Memory, PRIVATE, Safeguard};
use crate::Journal;
use crate::path::StoragePath;
use crate::session::WriteSession;
use crate::staging::journal_name;

const WRITE: &str = "write journal";

fn name_of(path: &StoragePath, id: u64) -> Vec<u8> {
    journal_name(path.name().unwrap_or_default(), &id.to_le_bytes())
}

/// One writer's hold on the journal of the unfinished file `id`.
pub(super) struct Log {
    storage: Memory,
    path: StoragePath,
    id: u64,
    /// Once it was found or made: the journal stays this one, also without a name.
    opened: Mutex<Option<Arc<Node>>>,
    /// Whether its name, and that of the file beside it, survive a power cut.
    named: AtomicBool,
}

impl Memory {
    pub(super) fn open_journal(&self, session: &WriteSession) -> Result<Log, Fault> {
        let _names = self.lock();
        if !super::session::is_continued(session)? {
            return Err(Fault::new(FaultCode::NotSupported, "open journal")
                .on_path(session.path.as_bytes())
                .detail("only a file that is written in chunks has one"));
        }
        let node = self.node_of(session)?;
        Ok(Log {
            storage: self.clone(),
            path: session.path.clone(),
            id: node.id,
            opened: Mutex::default(),
            named: AtomicBool::new(false),
        })
    }

    /// Whether the unfinished file `id` of `path`, which is in `dir`, has a journal.
    pub(super) fn has_journal(dir: &Node, path: &StoragePath, id: u64) -> Result<bool, FaultCode> {
        Ok(dir.child(&name_of(path, id))?.is_some())
    }

    /// Removes the journal of one unfinished file; the caller holds the names' lock.
    pub(super) fn remove_journal(&self, path: &StoragePath, id: u64) -> Result<(), FaultCode> {
        let Ok(Some(spot)) = resolve(&self.root, path, false) else {
            return Ok(());
        };
        let name = name_of(path, id);
        if spot.dir.child(&name)?.is_some() { self.drop_name(&spot.dir, &name) } else { Ok(()) }
    }
}

impl Log {
    fn spot(&self) -> Result<Spot, Fault> {
        let spot = resolve(&self.storage.root, &self.path, false).on("open journal", &self.path)?;
        spot.ok_or_else(|| Fault::new(FaultCode::IsADirectory, "open journal").on_path(self.path.as_bytes()))
    }

    fn create(&self) -> Result<Arc<Node>, FaultCode> {
        let node = self.storage.new_node(Body::File(Default::default()), PRIVATE);
        let Some(spot) = resolve(&self.storage.root, &self.path, false)? else {
            return Err(FaultCode::IsADirectory);
        };
        self.storage.put_name(&spot.dir, &name_of(&self.path, self.id), &node)?;
        *self.opened.lock().unwrap_or_else(PoisonError::into_inner) = Some(node.clone());
        Ok(node)
    }

    fn change(&self, node: &Node, change: impl FnOnce(&mut Data)) -> Result<(), FaultCode> {
        if let Body::File(data) = &node.body {
            self.storage.power.step()?;
            change(&mut data.write().unwrap_or_else(PoisonError::into_inner));
        }
        Ok(())
    }

    fn sync_bytes(&self, node: &Node, safeguard: Safeguard) -> Result<(), FaultCode> {
        if self.storage.power.has(safeguard) { self.storage.sync_file(node) } else { Ok(()) }
    }

    /// What is there, or made now; `StorageBusy` when it has lost its name.
    fn present(&self) -> Result<Arc<Node>, Fault> {
        match self.find()? {
            Some(node) if self.named()?.is_some_and(|named| Arc::ptr_eq(&named, &node)) => Ok(node),
            Some(_) => Err(Fault::new(FaultCode::StorageBusy, WRITE)
                .on_path(self.path.as_bytes())
                .detail("the file was committed or replaced meanwhile")),
            None => self.create().on(WRITE, &self.path),
        }
    }

    /// Syncs what was written, and the name it has.
    fn make_durable(&self, node: &Node, safeguard: Safeguard) -> Result<(), Fault> {
        self.sync_bytes(node, safeguard).on(WRITE, &self.path)?;
        if !self.named.load(Ordering::Acquire) {
            if self.storage.power.has(Safeguard::SyncJournalName) {
                self.storage.sync_parent(&self.path).on("sync directory", &self.path)?;
            }
            self.named.store(true, Ordering::Release);
        }
        Ok(())
    }

    fn named(&self) -> Result<Option<Arc<Node>>, Fault> {
        self.spot()?.dir.child(&name_of(&self.path, self.id)).on("open journal", &self.path)
    }

    fn find(&self) -> Result<Option<Arc<Node>>, Fault> {
        let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
        if opened.is_none() {
            opened.clone_from(&self.named()?);
        }
        Ok(opened.clone())
    }
}

impl Journal for Log {
    fn read_from(&self, offset: u64) -> Result<Vec<u8>, Fault> {
        let _names = self.storage.lock();
        let Some(node) = self.find()? else {
            return Ok(Vec::new());
        };
        let mut bytes = vec![0; node.size().saturating_sub(offset) as usize];
        if let Body::File(data) = &node.body {
            data.read().unwrap_or_else(PoisonError::into_inner).read(offset, &mut bytes);
        }
        Ok(bytes)
    }

    fn note(&self, seen: u64, bytes: &[u8]) -> Result<bool, Fault> {
        let _names = self.storage.lock();
        let node = self.present()?;
        if node.size() != seen {
            return Ok(false);
        }
        self.change(&node, |data| data.write(seen, bytes)).on(WRITE, &self.path)?;
        Ok(true)
    }

    fn sync(&self) -> Result<(), Fault> {
        let _names = self.storage.lock();
        self.make_durable(&*self.present()?, Safeguard::SyncNotes)
    }

    fn append(&self, bytes: &[u8]) -> Result<(), Fault> {
        let _names = self.storage.lock();
        let node = self.present()?;
        let appended = self.change(&node, |data| {
            let end = data.size();
            data.write(end, bytes);
        });
        appended.on(WRITE, &self.path)?;
        self.make_durable(&node, Safeguard::SyncJournal)
    }

    fn cut(&self, seen: u64, keep: u64) -> Result<bool, Fault> {
        let _names = self.storage.lock();
        let Some(node) = self.find()? else {
            return Ok(seen == 0);
        };
        if node.size() != seen {
            return Ok(false);
        }
        let cut = self.change(&node, |data| data.set_size(keep.min(seen)));
        cut.and_then(|()| self.sync_bytes(&node, Safeguard::SyncJournal)).on("cut journal", &self.path)?;
        Ok(true)
    }
}

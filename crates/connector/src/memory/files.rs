//! Open files of the memory.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use whimbrel_engine::{Fault, FaultCode, RangeSet};

use super::tree::{Body, Node, OnPath};
use super::{Memory, Safeguard};
use crate::claim::Claim;
use crate::meta::Meta;
use crate::path::StoragePath;
use crate::rules::end_of;
use crate::session::{Receipt, WriteSession};
use crate::{Extent, ReadAt, WriteAt};

fn read_node(node: &Node, offset: u64, buffer: &mut [u8]) -> usize {
    match &node.body {
        Body::File(data) => {
            let data = data.read().unwrap_or_else(PoisonError::into_inner);
            data.read(offset, buffer)
        }
        Body::Zero => {
            buffer.fill(0);
            buffer.len()
        }
        _ => 0,
    }
}

/// A file open for reading; stays readable after its name is gone.
pub(super) struct Reader {
    pub node: Arc<Node>,
}

impl ReadAt for Reader {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Fault> {
        Ok(read_node(&self.node, offset, buffer))
    }

    fn meta(&self) -> Result<Meta, Fault> {
        Ok(self.node.meta())
    }

    fn data_ranges(&self) -> Result<RangeSet, Fault> {
        Ok(match &self.node.body {
            Body::File(data) => {
                let data = data.read().unwrap_or_else(PoisonError::into_inner);
                data.data_ranges()
            }
            _ => RangeSet::new(),
        })
    }

    fn extent_at(&self, at: u64) -> Result<Extent, Fault> {
        Ok(match &self.node.body {
            Body::File(data) => data.read().unwrap_or_else(PoisonError::into_inner).extent_at(at),
            _ => Extent { is_data: true, end: u64::MAX },
        })
    }

    fn may_have_holes(&self) -> bool {
        matches!(self.node.body, Body::File(_))
    }
}

/// One writer's hold on a session.
pub(super) struct Writer {
    node: Arc<Node>,
    path: StoragePath,
    storage: Memory,
    ranges: Mutex<Ranges>,
    /// The session whose bytes have a hidden name until they are committed.
    hidden: Option<WriteSession>,
    end: Claim,
}

#[derive(Default)]
struct Ranges {
    written: RangeSet,
    durable: RangeSet,
}

impl Writer {
    pub fn new(node: Arc<Node>, path: StoragePath, storage: Memory, hidden: Option<WriteSession>) -> Self {
        Self { node, path, storage, ranges: Mutex::default(), hidden, end: Claim::default() }
    }

    /// Asked with the content locked, as commits have it.
    fn is_open(&self) -> Result<(), Fault> {
        let Some(session) = &self.hidden else { return Ok(()) };
        let is_others = || self.storage.is_others(session, self.node.id).on("write", &self.path);
        if self.node.committed.load(Ordering::SeqCst) || is_others()? {
            return Err(super::session::replaced(&self.path));
        }
        Ok(())
    }

    fn ranges(&self) -> MutexGuard<'_, Ranges> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WriteAt for Writer {
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), Fault> {
        let Some(end) = end_of(offset, data.len()) else {
            return Err(Fault::new(FaultCode::FileTooLarge, "write").on_path(self.path.as_bytes()));
        };
        if let Body::File(content) = &self.node.body {
            let mut content = content.write().unwrap_or_else(PoisonError::into_inner);
            self.is_open()?;
            self.storage.power.step().on("write", &self.path)?;
            content.write(offset, data);
            if !data.is_empty() {
                self.node.facts().modified = (self.storage.clock)();
            }
        }
        self.ranges().written.insert(offset..end);
        Ok(())
    }

    fn sync(&self) -> Result<(), Fault> {
        let mut ranges = self.ranges();
        if self.storage.power.has(Safeguard::SyncData) {
            self.storage.sync_file(&self.node).on("sync", &self.path)?;
        }
        ranges.durable = ranges.written.clone();
        Ok(())
    }

    fn extend_to(&self, size: u64) -> Result<(), Fault> {
        if let Body::File(content) = &self.node.body {
            let mut content = content.write().unwrap_or_else(PoisonError::into_inner);
            self.is_open()?;
            if content.size() < size {
                self.storage.power.step().on("extend", &self.path)?;
                content.set_size(size);
            }
        }
        Ok(())
    }

    fn clear(&self, range: Range<u64>) -> Result<(), Fault> {
        if let Body::File(content) = &self.node.body {
            let mut content = content.write().unwrap_or_else(PoisonError::into_inner);
            self.is_open()?;
            self.storage.power.step().on("make a hole", &self.path)?;
            if content.clear(&range) {
                return Ok(());
            }
        }
        Err(Fault::new(FaultCode::NotSupported, "make a hole").on_path(self.path.as_bytes()))
    }

    fn claim_end(&self) -> Result<(), Fault> {
        if !matches!(self.node.body, Body::File(_)) {
            return Ok(());
        }
        self.end.make(&self.path, || !self.node.appended.swap(true, Ordering::AcqRel))
    }

    fn durable(&self) -> Result<RangeSet, Fault> {
        Ok(self.ranges().durable.clone())
    }

    fn read_back(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Fault> {
        Ok(read_node(&self.node, offset, buffer))
    }

    fn finish(&self) -> Result<Receipt, Fault> {
        Ok(Receipt { written: self.ranges().written.clone(), token: Vec::new() })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.end.is_made() {
            self.node.appended.store(false, Ordering::Release);
        }
    }
}

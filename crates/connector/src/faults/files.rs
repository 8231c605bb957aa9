//! Open files that fail when told to.

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use whimbrel_engine::{Fault, RangeSet};

use super::{Operation, Script};
use crate::session::Receipt;
use crate::{Extent, Journal, Meta, ReadAt, ReadsFrom, WriteAt};

pub(super) struct FaultyReader {
    pub inner: Arc<dyn ReadAt>,
    pub script: Script,
}

impl ReadAt for FaultyReader {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Fault> {
        let read = |buffer: &mut [u8]| self.inner.read_at(offset, buffer);
        let count = self.script.run_read(Operation::ReadAt, offset, buffer, read)?;
        self.script.moved(Operation::ReadAt, count);
        Ok(count)
    }

    fn drop_cached(&self, range: Range<u64>) -> ReadsFrom {
        self.inner.drop_cached(range)
    }

    fn meta(&self) -> Result<Meta, Fault> {
        self.script.run(Operation::ReadMeta, || self.inner.meta())
    }

    fn data_ranges(&self) -> Result<RangeSet, Fault> {
        self.script.run(Operation::DataRanges, || self.inner.data_ranges())
    }

    fn extent_at(&self, at: u64) -> Result<Extent, Fault> {
        self.script.run(Operation::DataRanges, || self.inner.extent_at(at))
    }

    fn may_have_holes(&self) -> bool {
        self.inner.may_have_holes()
    }

    fn is_past_cache(&self) -> bool {
        self.inner.is_past_cache()
    }

    /// Withheld while reads are tampered with: the kernel would send the sound bytes.
    fn sendfile_source(&self) -> Option<BorrowedFd<'_>> {
        if self.script.touches_reads() { None } else { self.inner.sendfile_source() }
    }
}

pub(super) struct FaultyWriter {
    pub inner: Arc<dyn WriteAt>,
    pub script: Script,
    /// A sync has failed: what was written may be lost.
    pub failed: AtomicBool,
}

impl WriteAt for FaultyWriter {
    fn is_sound(&self) -> bool {
        !self.failed.load(Ordering::Relaxed) && self.inner.is_sound()
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), Fault> {
        self.script.run(Operation::WriteAt, || self.inner.write_at(offset, data))?;
        self.script.moved(Operation::WriteAt, data.len());
        Ok(())
    }

    fn sync(&self) -> Result<(), Fault> {
        let synced = self.script.run(Operation::Sync, || self.inner.sync());
        synced.inspect_err(|_| self.failed.store(true, Ordering::Relaxed))
    }

    fn settle(&self, range: Range<u64>) -> Result<(), Fault> {
        self.inner.settle(range)
    }

    fn sync_range(&self, range: Range<u64>) -> Result<(), Fault> {
        let synced = self.script.run(Operation::Sync, || self.inner.sync_range(range));
        synced.inspect_err(|_| self.failed.store(true, Ordering::Relaxed))
    }

    fn reserve(&self, range: Range<u64>) -> Result<(), Fault> {
        self.script.run(Operation::Reserve, || self.inner.reserve(range))
    }

    fn clear(&self, range: Range<u64>) -> Result<(), Fault> {
        self.script.run(Operation::Clear, || self.inner.clear(range))
    }

    fn extend_to(&self, size: u64) -> Result<(), Fault> {
        self.script.run(Operation::ExtendTo, || self.inner.extend_to(size))
    }

    fn room(&self) -> Result<Option<u64>, Fault> {
        self.script.run(Operation::Room, || self.inner.room())
    }

    fn stripe_size(&self) -> Option<u64> {
        self.inner.stripe_size()
    }

    fn drop_cached(&self, range: Range<u64>) -> Result<ReadsFrom, Fault> {
        // It syncs before it forgets.
        let dropped = self.script.run(Operation::DropCached, || self.inner.drop_cached(range));
        dropped.inspect_err(|_| self.failed.store(true, Ordering::Relaxed))
    }

    fn claim_end(&self) -> Result<(), Fault> {
        self.inner.claim_end()
    }

    fn durable(&self) -> Result<RangeSet, Fault> {
        self.script.run(Operation::Durable, || self.inner.durable())
    }

    fn read_back(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Fault> {
        let read = |buffer: &mut [u8]| self.inner.read_back(offset, buffer);
        let count = self.script.run_read(Operation::ReadBack, offset, buffer, read)?;
        self.script.moved(Operation::ReadBack, count);
        Ok(count)
    }

    fn is_past_cache(&self) -> bool {
        self.inner.is_past_cache()
    }

    fn finish(&self) -> Result<Receipt, Fault> {
        self.script.run(Operation::Finish, || self.inner.finish())
    }
}

pub(super) struct FaultyJournal {
    pub inner: Arc<dyn Journal>,
    pub script: Script,
}

impl Journal for FaultyJournal {
    fn read_from(&self, offset: u64) -> Result<Vec<u8>, Fault> {
        self.script.run(Operation::JournalRead, || self.inner.read_from(offset))
    }

    fn note(&self, seen: u64, bytes: &[u8]) -> Result<bool, Fault> {
        self.script.run(Operation::JournalNote, || self.inner.note(seen, bytes))
    }

    fn sync(&self) -> Result<(), Fault> {
        self.script.run(Operation::JournalSync, || self.inner.sync())
    }

    fn append(&self, bytes: &[u8]) -> Result<(), Fault> {
        self.script.run(Operation::JournalAppend, || self.inner.append(bytes))
    }

    fn cut(&self, seen: u64, keep: u64) -> Result<bool, Fault> {
        self.script.run(Operation::JournalCut, || self.inner.cut(seen, keep))
    }
}

//! A writer whose bytes are counted.

use std::ops::Range;
use std::sync::Arc;

use whimbrel_connector::{ReadsFrom, Receipt, WriteAt};
use whimbrel_engine::{Fault, RangeSet};

use super::super::ledger::Quota;

/// Writes as long as its user may store more.
pub(super) struct Metered {
    inner: Arc<dyn WriteAt>,
    quota: Quota,
}

impl Metered {
    pub(super) fn new(inner: Arc<dyn WriteAt>, quota: Quota) -> Self {
        Self { inner, quota }
    }
}

impl WriteAt for Metered {
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), Fault> {
        self.quota.charge(data.len() as u64)?;
        self.inner.write_at(offset, data)
    }

    fn sync(&self) -> Result<(), Fault> {
        self.inner.sync()
    }

    fn settle(&self, range: Range<u64>) -> Result<(), Fault> {
        self.inner.settle(range)
    }

    fn sync_range(&self, range: Range<u64>) -> Result<(), Fault> {
        self.inner.sync_range(range)
    }

    fn is_sound(&self) -> bool {
        self.inner.is_sound()
    }

    fn durable(&self) -> Result<RangeSet, Fault> {
        self.inner.durable()
    }

    /// Space is not taken ahead of what may be stored.
    fn reserve(&self, range: Range<u64>) -> Result<(), Fault> {
        self.quota.has_room(range.end.saturating_sub(range.start))?;
        self.inner.reserve(range)
    }

    fn clear(&self, range: Range<u64>) -> Result<(), Fault> {
        self.inner.clear(range)
    }

    fn extend_to(&self, size: u64) -> Result<(), Fault> {
        self.inner.extend_to(size)
    }

    fn room(&self) -> Result<Option<u64>, Fault> {
        self.inner.room()
    }

    fn stripe_size(&self) -> Option<u64> {
        self.inner.stripe_size()
    }

    fn drop_cached(&self, range: Range<u64>) -> Result<ReadsFrom, Fault> {
        self.inner.drop_cached(range)
    }

    fn read_back(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Fault> {
        self.inner.read_back(offset, buffer)
    }

    fn is_past_cache(&self) -> bool {
        self.inner.is_past_cache()
    }

    fn finish(&self) -> Result<Receipt, Fault> {
        self.inner.finish()
    }
}

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

    fn claim_end(&self) -> Result<(), Fault> {
        self.inner.claim_end()
    }

    fn durable(&self) -> Result<RangeSet, Fault> {
        self.inner.durable()
    }

    /// No space is taken ahead: only what is written is counted, and nothing is to be taken that is not.
    fn reserve(&self, range: Range<u64>) -> Result<(), Fault> {
        self.quota.has_room(range.end.saturating_sub(range.start))
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use whimbrel_engine::FaultCode;

    use super::super::super::ledger::Ledger;
    use super::*;

    /// Counts what is taken of its space.
    #[derive(Default)]
    struct Space(AtomicU64);

    impl WriteAt for Space {
        fn write_at(&self, _: u64, data: &[u8]) -> Result<(), Fault> {
            self.reserve(0..data.len() as u64)
        }

        fn sync(&self) -> Result<(), Fault> {
            Ok(())
        }

        fn durable(&self) -> Result<RangeSet, Fault> {
            Ok(RangeSet::default())
        }

        fn reserve(&self, range: Range<u64>) -> Result<(), Fault> {
            self.0.fetch_add(range.end - range.start, Ordering::Relaxed);
            Ok(())
        }

        fn read_back(&self, _: u64, _: &mut [u8]) -> Result<usize, Fault> {
            Ok(0)
        }

        fn finish(&self) -> Result<Receipt, Fault> {
            Ok(Receipt { written: RangeSet::default(), token: Vec::new() })
        }
    }

    #[test]
    fn no_more_space_is_taken_than_is_counted() {
        let (ledger, space) = (Ledger::default(), Arc::new(Space::default()));
        // As for many files, none of which is ever written.
        for _ in 0..10 {
            Metered::new(space.clone(), ledger.quota("ada", 8)).reserve(0..8).unwrap();
        }
        let writer = Metered::new(space.clone(), ledger.quota("ada", 8));
        writer.write_at(0, b"12345").unwrap();
        assert_eq!(
            writer.reserve(5..9).unwrap_err().code,
            FaultCode::QuotaExceeded,
            "what does not fit is known early"
        );
        assert_eq!(space.0.load(Ordering::Relaxed), 5);
    }
}

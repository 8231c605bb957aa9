//! Leaves of bytes that come in the order of their offsets.

use std::ops::Range;

use whimbrel_engine::Fault;
use whimbrel_proto::leaf;

use super::Digests;
use crate::digest::Hasher;

/// Cuts and hashes bytes that come in order; after a gap a new piece begins.
pub(crate) struct InOrder<'a> {
    digests: &'a Digests,
    open: Option<(Range<u64>, Hasher)>,
}

impl<'a> InOrder<'a> {
    pub(crate) fn new(digests: &'a Digests) -> Self {
        Self { digests, open: None }
    }

    /// The bytes at `at`.
    pub(crate) fn feed(&mut self, mut at: u64, mut data: &[u8]) -> Result<(), Fault> {
        if self.open.as_ref().is_some_and(|(range, _)| range.end != at) {
            self.finish()?;
        }
        let leaves = self.digests.leaves();
        while !data.is_empty() {
            let border = leaf::border(at, leaves.size);
            let take = usize::try_from(border - at).unwrap_or(usize::MAX).min(data.len());
            let (range, hasher) =
                self.open.get_or_insert_with(|| (at..at, Hasher::for_leaf(leaves.algorithm, at, leaves.size)));
            hasher.update(&data[..take]);
            at += take as u64;
            range.end = at;
            data = &data[take..];
            if at == border {
                self.finish()?;
            }
        }
        Ok(())
    }

    /// Ends the last leaf, whole or not.
    pub(crate) fn finish(&mut self) -> Result<(), Fault> {
        match self.open.take() {
            Some((range, hasher)) => self.digests.add(range, hasher.finish_hex()),
            None => Ok(()),
        }
    }
}

//! Digests of leaves: the aligned pieces of a file by which a transfer is proven.
//!
//! Leaf `i` of a file is `i * size..(i + 1) * size`, cut by what is moved. Algorithms that hash several messages faster
//! together than one after another are fed from several leaves in step, because MODE E takes blocks in any order.

mod group;
mod in_order;
mod permits;
mod stored;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use whimbrel_engine::{Fault, FaultCode, RangeSet};
use whimbrel_proto::leaf;

pub use self::permits::Permits;
pub use self::stored::{ReadBack, hash_stored};
use crate::digest::Algorithm;

pub(crate) use self::group::{Group, Piece};
pub(crate) use self::in_order::InOrder;

/// Bytes of each leaf hashed at a time: as many as stay in a processor's second cache for all leaves together.
pub(crate) const STEP: usize = 64 << 10;

/// How leaves are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leaves {
    /// Bytes of a leaf; 0 counts as 1.
    pub size: u64,
    /// How each is hashed.
    pub algorithm: Algorithm,
}

/// One leaf, or the part of it that was moved, with its digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeafDigest {
    /// Offsets in the file.
    pub range: Range<u64>,
    /// Lower-case hexadecimal digits.
    pub hex: String,
}

impl Leaves {
    /// `ranges` cut at leaf borders, ascending.
    pub(crate) fn cut(self, ranges: &RangeSet) -> Cutter {
        Cutter { leaves: self, ranges: ranges.as_slice().to_vec(), next: 0 }
    }

    /// How many leaves `ranges` have, whole or in part.
    pub fn count(self, ranges: &RangeSet) -> u64 {
        let size = self.size.max(1);
        let of = |range: &Range<u64>| (range.end - 1) / size - range.start / size + 1;
        ranges.as_slice().iter().map(of).sum()
    }
}

/// Hands out leaves one after the other.
#[derive(Debug)]
pub(crate) struct Cutter {
    leaves: Leaves,
    ranges: Vec<Range<u64>>,
    next: usize,
}

impl Cutter {
    pub(crate) fn is_empty(&self) -> bool {
        self.next == self.ranges.len()
    }
}

impl Iterator for Cutter {
    type Item = Range<u64>;

    fn next(&mut self) -> Option<Range<u64>> {
        let range = self.ranges.get_mut(self.next)?;
        let end = leaf::border(range.start, self.leaves.size).min(range.end);
        let next = range.start..end;
        range.start = end;
        if range.is_empty() {
            self.next += 1;
        }
        Some(next)
    }
}

/// Collects the digests of one transfer, from any of its threads.
#[derive(Debug)]
pub struct Digests {
    leaves: Leaves,
    most: usize,
    done: Mutex<Vec<LeafDigest>>,
}

impl Digests {
    /// None yet; more than `most` are refused, which bounds memory and the answer's length.
    pub fn new(leaves: Leaves, most: usize) -> Self {
        Self { leaves, most, done: Mutex::default() }
    }

    /// How leaves are made.
    pub fn leaves(&self) -> Leaves {
        self.leaves
    }

    /// `InvalidArgument` when `ranges` have more leaves than may be collected.
    pub fn check(&self, ranges: &RangeSet) -> Result<(), Fault> {
        if self.leaves.count(ranges) > self.most as u64 {
            return Err(self.too_many());
        }
        Ok(())
    }

    /// All that were collected so far, ascending.
    pub fn sorted(&self) -> Vec<LeafDigest> {
        let mut all = self.lock().clone();
        all.sort_unstable_by_key(|leaf| leaf.range.start);
        all
    }

    /// All that were collected, ascending.
    pub fn into_sorted(self) -> Vec<LeafDigest> {
        let mut all = self.done.into_inner().unwrap_or_else(PoisonError::into_inner);
        all.sort_unstable_by_key(|leaf| leaf.range.start);
        all
    }

    pub(crate) fn add(&self, range: Range<u64>, hex: String) -> Result<(), Fault> {
        let mut done = self.lock();
        if done.len() >= self.most {
            return Err(self.too_many());
        }
        done.push(LeafDigest { range, hex });
        Ok(())
    }

    fn too_many(&self) -> Fault {
        let detail = format!("leaves of {} bytes would be more than {}", self.leaves.size, self.most);
        Fault::new(FaultCode::InvalidArgument, "hash leaves").detail(detail)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<LeafDigest>> {
        // It is only ever appended to.
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

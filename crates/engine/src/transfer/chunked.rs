//! One file that is moved in parts: what is proven, what waits, what is to come later.
//!
//! Parts are cut only when a session takes one, so that a file of any size costs what is in the air.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Instant;

use crate::progress::Verification;
use crate::ranges::RangeSet;

#[derive(Debug)]
pub(super) struct ChunkedFile {
    size: u64,
    leaf: u64,
    /// Parts end at multiples of this many bytes, itself a multiple of `leaf`.
    unit: u64,
    pub(super) verified: RangeSet,
    /// What no session was given yet.
    fresh: RangeSet,
    /// What came back: goes first, because the file's end waits for it.
    again: VecDeque<Range<u64>>,
    /// What came back and has to wait.
    later: Vec<(Instant, Range<u64>)>,
    /// How often each leaf was wrong, by its start.
    wrong: BTreeMap<u64, u32>,
    /// The last start at the time of the last failure that counted: what began before it fails with it.
    charged: u32,
    /// How its chunks were proven.
    pub(super) proof: Option<Verification>,
}

impl ChunkedFile {
    /// A file of `size` bytes of which `verified` is at the destination and proven.
    pub(super) fn new(size: u64, leaf: u64, verified: &RangeSet) -> Self {
        let leaf = leaf.max(1);
        let verified = whole_leaves(verified, 0..size, leaf, size);
        Self {
            size,
            leaf,
            unit: leaf,
            fresh: verified.missing(0..size),
            verified,
            again: VecDeque::new(),
            later: Vec::new(),
            wrong: BTreeMap::new(),
            charged: 0,
            proof: None,
        }
    }

    /// The same on storage with stripes of so many bytes: no two parts meet in one.
    pub(super) fn striped(mut self, stripe: Option<u64>) -> Self {
        if let Some(unit) = stripe.and_then(|stripe| stripe.checked_next_multiple_of(self.leaf)) {
            self.unit = unit.max(self.leaf);
        }
        self
    }

    /// Takes over what was learned before the file was opened once more.
    pub(super) fn inherit(&mut self, old: Self) {
        self.proof = old.proof;
        self.wrong = old.wrong;
        self.charged = old.charged;
    }

    /// Bytes that a session could take now.
    pub(super) fn waiting(&self) -> u64 {
        let again: u64 = self.again.iter().map(|part| part.end - part.start).sum();
        self.fresh.len() + again
    }

    pub(super) fn leaf(&self) -> u64 {
        self.leaf
    }

    pub(super) fn is_proven(&self) -> bool {
        self.verified.covers(0..self.size)
    }

    /// The next part, at most `length` bytes (whole leaves) long.
    pub(super) fn take(&mut self, length: u64) -> Option<Range<u64>> {
        let length = (length / self.leaf).max(1) * self.leaf;
        if let Some(part) = self.again.pop_front() {
            let end = part.start.saturating_add(length).min(part.end);
            if end < part.end {
                self.again.push_front(end..part.end);
            }
            return Some(part.start..end);
        }
        let first = self.fresh.as_slice().first()?.clone();
        let stop = first.start.saturating_add(length);
        // At the border of a stripe in front of there, or the first one behind.
        let stop = if stop / self.unit > first.start / self.unit { stop / self.unit * self.unit } else { stop };
        let stop = stop.checked_next_multiple_of(self.unit).unwrap_or(u64::MAX);
        let part = first.start..stop.min(first.end);
        self.fresh.remove(part.clone());
        Some(part)
    }

    /// Takes what is proven of `part`; returns what of it is neither proven nor `wrong`.
    pub(super) fn settle(&mut self, part: Range<u64>, proven: &RangeSet, wrong: &RangeSet) -> RangeSet {
        let mut proven = whole_leaves(proven, part.clone(), self.leaf, self.size);
        for range in wrong.as_slice() {
            proven.remove(self.leaves_of(range));
        }
        self.verified.union_with(&proven);
        let mut rest = proven.missing(part.clone());
        for range in wrong.within(part).as_slice() {
            rest.remove(self.leaves_of(range));
        }
        rest
    }

    /// A leaf of `part` was wrong and goes again, as a part of its own; returns how often it was.
    pub(super) fn leaf_wrong(&mut self, leaf: Range<u64>) -> u32 {
        let times = self.wrong.entry(leaf.start).or_default();
        *times += 1;
        self.again.push_back(leaf);
        *times
    }

    /// The leaves that `wrong` touches inside of `part`.
    pub(super) fn wrong_leaves(&self, part: Range<u64>, wrong: &RangeSet) -> Vec<Range<u64>> {
        let touched: RangeSet = wrong.within(part).as_slice().iter().map(|range| self.leaves_of(range)).collect();
        let ranges = touched.as_slice().iter();
        ranges.flat_map(|range| range.clone().step_by(self.leaf as usize)).map(|start| self.leaf_at(start)).collect()
    }

    /// These bytes go again at once.
    pub(super) fn put_back(&mut self, parts: &RangeSet) {
        self.again.extend(parts.as_slice().iter().cloned());
    }

    /// These bytes go again, not before `until`.
    pub(super) fn put_off(&mut self, parts: &RangeSet, until: Instant) {
        self.later.extend(parts.as_slice().iter().map(|part| (until, part.clone())));
    }

    /// What was put off until now may go.
    pub(super) fn release(&mut self, now: Instant) {
        let due = self.later.extract_if(.., |(until, _)| *until <= now);
        self.again.extend(due.map(|(_, part)| part));
    }

    /// The times that something was put off to.
    pub(super) fn waits(&self) -> impl Iterator<Item = Instant> {
        self.later.iter().map(|(until, _)| *until)
    }

    /// Whether a failure of start `number` is news, and not one more of those that fell together; `last` is the last start.
    pub(super) fn charge(&mut self, number: u32, last: u32) -> bool {
        let news = number > self.charged;
        if news {
            self.charged = last;
        }
        news
    }

    /// Adds how a chunk was proven: the weakest word counts for the file.
    pub(super) fn add_proof(&mut self, proof: Verification) {
        if let (Some(known @ Verification::Verified { .. }), Verification::Verified { .. }) = (&self.proof, &proof) {
            self.proof = Some(known.clone().and(&proof));
            return;
        }
        let rank = |proof: &Verification| match proof {
            Verification::Verified { .. } => 0,
            Verification::NotAsked => 1,
            Verification::Unverified { .. } => 2,
        };
        if self.proof.as_ref().is_none_or(|known| rank(known) < rank(&proof)) {
            self.proof = Some(proof);
        }
    }

    fn leaf_at(&self, start: u64) -> Range<u64> {
        start..start.saturating_add(self.leaf).min(self.size)
    }

    /// `range` grown to whole leaves.
    fn leaves_of(&self, range: &Range<u64>) -> Range<u64> {
        let start = range.start / self.leaf * self.leaf;
        let end = range.end.div_ceil(self.leaf).saturating_mul(self.leaf);
        start..end.min(self.size)
    }
}

/// What of `set` lies in `span`, shrunk to whole leaves; the last one ends with the file.
fn whole_leaves(set: &RangeSet, span: Range<u64>, leaf: u64, size: u64) -> RangeSet {
    let shrink = |range: &Range<u64>| {
        let start = range.start.div_ceil(leaf).saturating_mul(leaf);
        let end = if range.end == size { size } else { range.end / leaf * leaf };
        start..end
    };
    set.within(span).as_slice().iter().map(shrink).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::progress::ReadBack;
    use std::time::Duration;

    fn file(size: u64) -> ChunkedFile {
        ChunkedFile::new(size, 10, &RangeSet::new())
    }

    #[test]
    fn parts_are_whole_leaves_until_the_files_end() {
        let mut file = file(45);
        let parts: Vec<_> = std::iter::from_fn(|| file.take(25)).collect();
        assert_eq!(parts, [0..20, 20..40, 40..45]);
        assert_eq!(file.waiting(), 0);
    }

    #[test]
    fn parts_meet_only_at_the_borders_of_stripes() {
        let mut file = ChunkedFile::new(200, 10, &RangeSet::from(50..60)).striped(Some(35));
        let parts: Vec<_> = std::iter::from_fn(|| file.take(50)).collect();
        assert_eq!(parts, [0..40, 40..50, 60..80, 80..120, 120..160, 160..200]);
        // Stripes that leaves fit into make no difference.
        let mut file = super::tests::file(45).striped(Some(5));
        assert_eq!(file.take(25), Some(0..20));
    }

    #[test]
    fn what_was_proven_before_is_not_moved_and_half_leaves_are_not_trusted() {
        let proven: RangeSet = [5..30, 40..45].into_iter().collect();
        let mut file = ChunkedFile::new(45, 10, &proven);
        assert_eq!(file.verified.as_slice(), [10..30, 40..45]);
        let parts: Vec<_> = std::iter::from_fn(|| file.take(100)).collect();
        assert_eq!(parts, [0..10, 30..40]);
    }

    #[test]
    fn a_wrong_leaf_goes_first_and_alone_and_is_not_counted_as_proven() {
        let mut file = file(100);
        let part = file.take(40).expect("there is work");
        let wrong: RangeSet = [12..13, 20..30].into_iter().collect();
        let rest = file.settle(part.clone(), &RangeSet::from(0..30), &wrong);
        assert_eq!(file.verified, RangeSet::from(0..10));
        assert_eq!(rest, RangeSet::from(30..40));
        let leaves = file.wrong_leaves(part, &wrong);
        assert_eq!(leaves, [10..20, 20..30]);
        assert_eq!(file.leaf_wrong(leaves[0].clone()), 1);
        assert_eq!(file.leaf_wrong(leaves[1].clone()), 1);
        assert_eq!(file.take(40), Some(10..20));
        assert_eq!(file.leaf_wrong(10..20), 2);
        assert_eq!((file.take(40), file.take(40), file.take(40)), (Some(20..30), Some(10..20), Some(40..80)));
    }

    #[test]
    fn what_is_put_off_waits_for_its_time() {
        let now = Instant::now();
        let mut file = file(20);
        let part = file.take(20).expect("there is work");
        file.put_off(&RangeSet::from(part), now + Duration::from_secs(1));
        assert_eq!(file.waiting(), 0);
        file.release(now);
        assert_eq!(file.waiting(), 0);
        file.release(now + Duration::from_secs(1));
        assert_eq!((file.waiting(), file.waits().count()), (20, 0));
        assert_eq!(file.take(10), Some(0..10));
        assert_eq!(file.take(10), Some(10..20));
    }

    #[test]
    fn failures_that_fall_together_are_charged_once() {
        let mut file = file(100);
        assert!(file.charge(3, 8));
        assert!((1..=8).all(|number| !file.charge(number, 8)));
        assert!(file.charge(9, 12));
    }

    #[test]
    fn the_weakest_proof_is_the_files() {
        let mut file = file(10);
        let verified = Verification::by("md5");
        file.add_proof(verified.clone());
        assert_eq!(file.proof, Some(verified.clone()));
        let read =
            |read_back| Verification::Verified { algorithm: "md5".into(), read_back: Some(read_back), sums: vec![] };
        file.add_proof(read(ReadBack::MemoryOnly));
        file.add_proof(read(ReadBack::Disk));
        assert_eq!(file.proof, Some(read(ReadBack::MemoryOnly)));
        file.add_proof(Verification::Unverified { reason: "no digest".into() });
        file.add_proof(verified);
        assert!(matches!(file.proof, Some(Verification::Unverified { .. })));
    }
}

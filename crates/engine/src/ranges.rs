//! Sets of byte ranges: what has arrived, what is durable, what is still needed.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

/// So many ranges are added one by one.
const FEW: usize = 8;

/// A set of bytes of one file, kept as sorted, disjoint, non-touching, non-empty ranges.
///
/// Offsets are bytes from the start of the file; range ends are exclusive.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeSet {
    ranges: Vec<Range<u64>>,
}

impl RangeSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds `range`, merging with what it overlaps or touches; an empty range adds nothing.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.start >= range.end {
            return;
        }
        // Files come in order, or nearly: the end is looked at first.
        match self.ranges.last_mut() {
            Some(last) if range.start >= last.start => {
                if range.start <= last.end {
                    last.end = last.end.max(range.end);
                } else {
                    self.ranges.push(range);
                }
                return;
            }
            _ => {}
        }
        let first = self.ranges.partition_point(|r| r.end < range.start);
        let last = self.ranges.partition_point(|r| r.start <= range.end);
        if first == last {
            self.ranges.insert(first, range);
            return;
        }
        let start = range.start.min(self.ranges[first].start);
        let end = range.end.max(self.ranges[last - 1].end);
        self.ranges[first] = start..end;
        self.ranges.drain(first + 1..last);
    }

    /// Adds every range of `other`; takes time for the ranges of both, however they lie.
    pub fn union_with(&mut self, other: &RangeSet) {
        if other.ranges.len() <= FEW {
            other.ranges.iter().for_each(|range| self.insert(range.clone()));
            return;
        }
        let mut all = RangeSet { ranges: Vec::with_capacity(self.ranges.len() + other.ranges.len()) };
        let (mut ours, mut theirs) = (self.ranges.iter().peekable(), other.ranges.iter().peekable());
        loop {
            let ours_first = match (ours.peek(), theirs.peek()) {
                (Some(our), Some(their)) => our.start <= their.start,
                (our, _) => our.is_some(),
            };
            let Some(next) = (if ours_first { ours.next() } else { theirs.next() }) else { break };
            all.insert(next.clone());
        }
        *self = all;
    }

    /// Takes every range of `other` out of the set; takes time for the ranges of both.
    pub fn subtract(&mut self, other: &RangeSet) {
        let mut kept = Vec::with_capacity(self.ranges.len());
        let mut holes = other.ranges.iter().peekable();
        for range in &self.ranges {
            let mut at = range.start;
            while let Some(hole) = holes.next_if(|hole| hole.end <= range.end) {
                if hole.end > at {
                    kept.push(at..hole.start.max(at));
                    at = hole.end;
                }
            }
            // The next one may reach beyond, into the ranges behind.
            let end = holes.peek().map_or(range.end, |hole| hole.start.clamp(at, range.end));
            kept.push(at..end);
        }
        kept.retain(|range| range.start < range.end);
        self.ranges = kept;
    }

    /// Takes `range` out of the set.
    pub fn remove(&mut self, range: Range<u64>) {
        if range.start >= range.end {
            return;
        }
        let first = self.ranges.partition_point(|r| r.end <= range.start);
        let last = self.ranges.partition_point(|r| r.start < range.end);
        if first >= last {
            return;
        }
        let before = self.ranges[first].start..range.start;
        let after = range.end..self.ranges[last - 1].end;
        let kept = [before, after].into_iter().filter(|r| r.start < r.end);
        self.ranges.splice(first..last, kept);
    }

    /// What is both in the set and in `within`.
    pub fn within(&self, within: Range<u64>) -> RangeSet {
        let inside = |r: &Range<u64>| r.start.max(within.start)..r.end.min(within.end);
        let first = self.ranges.partition_point(|r| r.end <= within.start);
        self.ranges[first..].iter().take_while(|r| r.start < within.end).map(inside).collect()
    }

    /// What of `within` is not in the set, in order.
    pub fn missing(&self, within: Range<u64>) -> RangeSet {
        let mut missing = RangeSet::new();
        let mut at = within.start;
        let first = self.ranges.partition_point(|range| range.end <= at);
        for range in &self.ranges[first..] {
            if range.start >= within.end {
                break;
            }
            missing.insert(at..range.start.max(at));
            at = range.end;
        }
        missing.insert(at..within.end);
        missing
    }

    /// Whether every byte of `range` is in the set.
    pub fn covers(&self, range: Range<u64>) -> bool {
        self.missing(range).is_empty()
    }

    /// Whether any byte of `range` is in the set.
    pub fn touches(&self, range: Range<u64>) -> bool {
        let first = self.ranges.partition_point(|r| r.end <= range.start);
        self.ranges.get(first).is_some_and(|r| r.start < range.end && !range.is_empty())
    }

    /// Number of bytes in the set.
    pub fn len(&self) -> u64 {
        self.ranges.iter().map(|r| r.end - r.start).sum()
    }

    /// Whether no byte is in the set.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The ranges, sorted, disjoint and not touching.
    pub fn as_slice(&self) -> &[Range<u64>] {
        &self.ranges
    }

    /// The end of the last range, 0 when empty.
    pub fn end(&self) -> u64 {
        self.ranges.last().map_or(0, |r| r.end)
    }
}

/// The bytes of one range; none when it is empty.
impl From<Range<u64>> for RangeSet {
    fn from(range: Range<u64>) -> Self {
        let mut set = Self::new();
        set.insert(range);
        set
    }
}

impl FromIterator<Range<u64>> for RangeSet {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(ranges: I) -> Self {
        let mut set = Self::new();
        for range in ranges {
            set.insert(range);
        }
        set
    }
}

impl fmt::Display for RangeSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, range) in self.ranges.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma}{}-{}", range.start, range.end)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn touching_and_overlapping_ranges_become_one() {
        let set: RangeSet = [10..20, 30..40, 20..25, 24..31].into_iter().collect();
        assert_eq!(set, RangeSet::from(10..40));
        assert_eq!(set.len(), 30);
    }

    #[test]
    fn missing_is_the_complement_inside_the_window() {
        let set: RangeSet = [10..20, 30..40].into_iter().collect();
        assert_eq!(set.missing(0..50).as_slice(), [0..10, 20..30, 40..50]);
        assert_eq!(set.missing(12..35), RangeSet::from(20..30));
        assert!(set.missing(31..39).is_empty());
        assert_eq!(set.within(12..35).as_slice(), [12..20, 30..35]);
        assert!([0..11, 19..20, 19..31, 15..16, 39..50, 0..50].into_iter().all(|range| set.touches(range)));
        assert!([0..10, 20..30, 40..50, 15..15, 50..60].into_iter().all(|range| !set.touches(range)));
    }

    /// Numbers below the one that is asked with, the same ones for the same seed.
    fn draws(mut state: u64) -> impl FnMut(u64) -> u64 {
        move |n| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) % n
        }
    }

    #[test]
    fn unions_and_differences_of_many_ranges_agree_with_those_of_one_at_a_time() {
        let mut next = draws(11);
        for _ in 0..300 {
            let mut some = |count: u64| -> RangeSet {
                let ranges = (0..next(count)).map(|_| {
                    let start = next(300);
                    start..start + 1 + next(9)
                });
                ranges.collect()
            };
            let (one, other) = (some(40), some(60));
            let (mut union, mut difference) = (one.clone(), one.clone());
            union.union_with(&other);
            difference.subtract(&other);
            let (mut added, mut left) = (one.clone(), one.clone());
            for range in other.as_slice() {
                added.insert(range.clone());
                left.remove(range.clone());
            }
            assert_eq!((&union, &difference), (&added, &left), "{one} and {other}");
        }
    }

    #[test]
    fn agrees_with_a_bitmap_on_pseudo_random_inserts_and_removals() {
        let mut next = draws(7);
        let mut set = RangeSet::new();
        let mut bitmap = [false; 200];
        for _ in 0..500 {
            let start = next(200);
            let end = (start + next(12)).min(200);
            let put = next(3) > 0;
            if put {
                set.insert(start..end);
            } else {
                set.remove(start..end);
            }
            bitmap[start as usize..end as usize].fill(put);
            for (at, &expected) in bitmap.iter().enumerate() {
                assert_eq!(set.covers(at as u64..at as u64 + 1), expected, "byte {at}");
            }
            assert!(set.as_slice().windows(2).all(|w| w[0].end < w[1].start));
        }
    }
}

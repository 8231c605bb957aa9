//! What the data side said of an operation before the replies in front of it were due.
//!
//! The data side may begin an operation while it still verifies what the one before it stored.

use std::collections::BTreeMap;
use std::ops::Range;

use super::step::MAX_STRIPES;
use crate::op::{Notice, Outcome, Spent};

/// Most ranges kept; what does not fit is not told, and a client sends it again after a failure.
const MAX_RANGES: usize = 1024;

/// News and end of one operation, kept until its turn.
#[derive(Debug, Default)]
pub(super) struct Held {
    opened: Option<Notice>,
    /// The last one of each stripe.
    performance: BTreeMap<u16, Notice>,
    /// All ranges told, apart from each other and ascending.
    ranges: Vec<Range<u64>>,
    hashed: Option<Notice>,
    spent: Option<Box<Spent>>,
    outcome: Option<Outcome>,
}

impl Held {
    /// Keeps what matters of a notice; the first `Opened` counts, later markers replace earlier ones.
    pub(super) fn notice(&mut self, notice: Notice) {
        match notice {
            _ if self.outcome.is_some() => {}
            Notice::Opened { .. } => {
                self.opened.get_or_insert(notice);
            }
            Notice::Performance { stripe, .. } => {
                if self.performance.len() < MAX_STRIPES || self.performance.contains_key(&stripe) {
                    self.performance.insert(stripe, notice);
                }
            }
            Notice::Ranges(new) => new.into_iter().for_each(|range| add(&mut self.ranges, range)),
            Notice::Hashed { .. } => self.hashed = Some(notice),
            Notice::Spent(news) => match &mut self.spent {
                Some(sum) => sum.add(&news),
                None => self.spent = Some(news),
            },
            // No command that runs ahead lists anything.
            Notice::Lines(_) => {}
        }
    }

    /// Keeps the end; only the first counts.
    pub(super) fn end(&mut self, outcome: Outcome) {
        self.outcome.get_or_insert(outcome);
    }

    /// True if the operation has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.outcome.is_some()
    }

    /// What was kept: notices in the order in which they are told, and the end.
    pub(super) fn release(self) -> (impl Iterator<Item = Notice>, Option<Outcome>) {
        let ranges = (!self.ranges.is_empty()).then_some(Notice::Ranges(self.ranges));
        let notices = self.opened.into_iter().chain(self.performance.into_values()).chain(ranges).chain(self.hashed);
        let notices = notices.chain(self.spent.map(Notice::Spent));
        (notices, self.outcome)
    }
}

/// Adds a range, joined with those it touches.
fn add(ranges: &mut Vec<Range<u64>>, new: Range<u64>) {
    if new.is_empty() {
        return;
    }
    let first = ranges.partition_point(|range| range.end < new.start);
    let after = ranges.partition_point(|range| range.start <= new.end);
    if first == after && ranges.len() >= MAX_RANGES {
        return;
    }
    let joined = ranges[first..after].iter().fold(new, |all, range| all.start.min(range.start)..all.end.max(range.end));
    ranges.splice(first..after, [joined]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn performance(stripe: u16, bytes: u64) -> Notice {
        Notice::Performance { stripe, stripes: u16::MAX, bytes, at_ms: 0 }
    }

    fn opened(reused: bool) -> Notice {
        Notice::Opened { reused, unique_name: None }
    }

    #[test]
    #[allow(clippy::single_range_in_vec_init, reason = "a list of one range is meant")]
    fn the_first_opening_the_last_markers_and_the_first_end_are_kept() {
        let mut held = Held::default();
        for notice in [
            Notice::Ranges(vec![5..9]),
            performance(1, 5),
            opened(true),
            opened(false),
            performance(0, 3),
            performance(1, 7),
            Notice::Lines(b"x".to_vec()),
            Notice::Ranges(vec![0..2, 2..5, 4..4]),
        ] {
            held.notice(notice);
        }
        assert!(!held.has_ended());
        held.end(Outcome::Size(1));
        held.end(Outcome::Done);
        held.notice(performance(1, 9));
        assert!(held.has_ended());
        let (notices, outcome) = held.release();
        let want = [opened(true), performance(0, 3), performance(1, 7), Notice::Ranges(vec![0..9])];
        assert_eq!((notices.collect::<Vec<_>>(), outcome), (want.to_vec(), Some(Outcome::Size(1))));
    }

    #[test]
    fn the_last_count_of_hashed_bytes_and_the_sum_of_what_was_spent_are_kept() {
        let spent = |bytes| Notice::Spent(Box::new(Spent { bytes, ..Spent::default() }));
        let hashed = |bytes| Notice::Hashed { bytes, at_ms: bytes };
        let mut held = Held::default();
        [spent(3), hashed(1), spent(4), hashed(2)].into_iter().for_each(|notice| held.notice(notice));
        let (notices, outcome) = held.release();
        assert_eq!((notices.collect::<Vec<_>>(), outcome), (vec![hashed(2), spent(7)], None));
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut held = Held::default();
        for n in 0..u16::MAX {
            held.notice(performance(n, 1));
            held.notice(Notice::Ranges(std::iter::once(u64::from(n) * 2..u64::from(n) * 2 + 1).collect()));
        }
        let (notices, outcome) = held.release();
        let notices: Vec<_> = notices.collect();
        assert_eq!((notices.len(), outcome), (MAX_STRIPES + 1, None));
        assert!(matches!(notices.last(), Some(Notice::Ranges(list)) if list.len() == MAX_RANGES));
    }

    proptest! {
        #[test]
        fn ranges_add_up_to_the_same_bytes(list in proptest::collection::vec((0u64..60, 0u64..9), 0..30)) {
            let mut ranges = Vec::new();
            let mut bytes = [false; 70];
            for (start, length) in list {
                add(&mut ranges, start..start + length);
                bytes[start as usize..(start + length) as usize].fill(true);
            }
            prop_assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
            let inside = |n: u64| ranges.iter().any(|range| range.contains(&n));
            prop_assert!((0..70).all(|n| inside(n) == bytes[n as usize]));
        }
    }
}

//! What one writer has written and what of it is durable, in bounded memory.
//!
//! A file that comes in order is one range. A node of a striped transfer has one for each of its blocks, a hostile sender one
//! for each byte: what is too much is forgotten, lowest first, which only means that a restart may have to send it again.

use std::ops::Range;

use whimbrel_engine::RangeSet;

/// Most separate ranges that are remembered of either kind, 1 MiB each: 64 GiB of blocks of 1 MiB. Markers have told what is
/// older.
#[cfg(not(test))]
const MOST: usize = 1 << 16;
#[cfg(test)]
const MOST: usize = 1 << 10;

/// The ranges of one writer.
#[derive(Debug, Default)]
pub(super) struct Written {
    /// Since the last sync.
    fresh: RangeSet,
    durable: RangeSet,
    /// From the first byte ever written to the last, once anything is forgotten.
    hull: Option<Range<u64>>,
}

impl Written {
    /// Records what was written.
    pub fn add(&mut self, range: Range<u64>) {
        if let Some(hull) = self.hull.as_mut().filter(|_| !range.is_empty()) {
            *hull = hull.start.min(range.start)..hull.end.max(range.end);
        }
        self.fresh.insert(range);
        self.bound();
    }

    /// What a sync that begins now will cover.
    pub fn fresh(&self) -> &RangeSet {
        &self.fresh
    }

    /// A sync has succeeded that covers `covered`.
    pub fn synced(&mut self, covered: &RangeSet) {
        self.fresh.subtract(covered);
        self.durable.union_with(covered);
        self.bound();
    }

    /// What is known to be durable.
    pub fn durable(&self) -> RangeSet {
        self.durable.clone()
    }

    /// All that was written; of very many ranges only where they begin and end, which is what a commit asks.
    pub fn all(&self) -> RangeSet {
        match &self.hull {
            Some(hull) => RangeSet::from(hull.clone()),
            None => {
                let mut all = self.durable.clone();
                all.union_with(&self.fresh);
                all
            }
        }
    }

    fn bound(&mut self) {
        let too_many = |set: &RangeSet| set.as_slice().len() > MOST;
        if !too_many(&self.fresh) && !too_many(&self.durable) {
            return;
        }
        if self.hull.is_none() {
            let all = self.all();
            self.hull = all.as_slice().first().map(|first| first.start..all.end());
        }
        for set in [&mut self.fresh, &mut self.durable] {
            if too_many(set) {
                let kept = set.as_slice()[MOST / 2].start;
                set.remove(0..kept);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 1 << 20;
    const BLOCKS: u64 = 5 * MOST as u64 / 2;

    /// The share of one of two nodes.
    fn block(number: u64) -> Range<u64> {
        2 * number * BLOCK..(2 * number + 1) * BLOCK
    }

    fn held(written: &Written) -> usize {
        written.fresh.as_slice().len() + written.durable.as_slice().len()
    }

    #[test]
    fn what_a_node_remembers_of_its_blocks_does_not_grow_with_the_file() {
        let mut written = Written::default();
        for number in 0..BLOCKS {
            written.add(block(number));
            assert!(held(&written) <= MOST);
        }
        assert_eq!(written.all(), RangeSet::from(0..block(BLOCKS - 1).end));
        assert!(written.durable().is_empty(), "nothing was synced");
    }

    #[test]
    fn what_is_synced_now_and_then_is_told_in_full_though_it_is_forgotten_later() {
        let (mut written, mut told, mut before) = (Written::default(), RangeSet::new(), RangeSet::new());
        for number in 0..BLOCKS {
            written.add(block(number));
            if number % 500 == 499 || number == BLOCKS - 1 {
                written.synced(&written.fresh().clone());
                let mut news = written.durable();
                news.subtract(&before);
                before = written.durable();
                told.union_with(&news);
            }
            assert!(held(&written) <= 2 * MOST);
        }
        assert_eq!(told, (0..BLOCKS).map(block).collect());
        assert_eq!(written.all().end(), block(BLOCKS - 1).end);
    }

    #[test]
    fn nothing_is_durable_that_was_written_while_the_sync_was_under_way() {
        let mut written = Written::default();
        written.add(0..10);
        let covered = written.fresh().clone();
        written.add(20..30);
        written.synced(&covered);
        assert_eq!((&written.durable(), written.fresh()), (&RangeSet::from(0..10), &RangeSet::from(20..30)));
        assert_eq!(written.all().as_slice(), [0..10, 20..30]);
    }

    #[test]
    fn scattered_bytes_in_any_order_cost_bounded_memory() {
        let mut written = Written::default();
        for number in 0..3 * MOST as u64 {
            // An odd number permutes the residues of a power of two.
            let at = number.wrapping_mul(2_654_435_761) % (1 << 32);
            written.add(2 * at..2 * at + 1);
            assert!(held(&written) <= MOST);
        }
        assert!(written.all().covers(0..1));
    }
}

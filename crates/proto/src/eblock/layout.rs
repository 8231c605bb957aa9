//! Which bytes of a file a stripe carries, found lazily: a list of all blocks of a big file would not fit.

use std::ops::Range;

use crate::op::Layout;

/// One sender's share of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stripe {
    /// This stripe, below `count`.
    pub index: u32,
    /// Stripes in all, at least 1.
    pub count: u32,
    /// How bytes are dealt.
    pub layout: Layout,
    /// Size of the file or part that is dealt, bytes; Partitioned divides it.
    pub size: u64,
}

impl Stripe {
    /// The only stripe: everything.
    pub const WHOLE: Self = Self { index: 0, count: 1, layout: Layout::Partitioned, size: u64::MAX };

    /// The first piece of this stripe that ends after `at`.
    fn piece_after(&self, at: u64) -> Option<Range<u64>> {
        match self.layout {
            _ if self.count <= 1 => Some(0..u64::MAX),
            Layout::Partitioned => {
                // Rounded up, so that the last stripe is the short one.
                let share = self.size.div_ceil(u64::from(self.count)).max(1);
                let start = share.saturating_mul(u64::from(self.index));
                // Growth beyond `size` belongs to the last stripe, so that no byte is lost.
                let end = if self.index + 1 == self.count { u64::MAX } else { start.saturating_add(share) };
                (end > at).then_some(start..end)
            }
            Layout::Blocked { block_size } => {
                let block = block_size.max(1);
                let (count, index) = (u64::from(self.count), u64::from(self.index));
                let number = at / block;
                // Next block number that is `index` modulo `count`.
                let number = number.checked_add((index + count - number % count) % count)?;
                let start = number.checked_mul(block)?;
                Some(start..start.saturating_add(block))
            }
        }
    }
}

/// Walks the wanted ranges of one stripe in order, in pieces of at most the block size.
#[derive(Debug, Clone)]
pub struct RangeCursor {
    ranges: Vec<Range<u64>>,
    next: usize,
    at: u64,
    stripe: Stripe,
}

impl RangeCursor {
    /// `ranges` are sent in the given order; an open end is `u64::MAX`.
    pub fn new(ranges: Vec<Range<u64>>, stripe: Stripe) -> Self {
        let at = ranges.first().map_or(0, |r| r.start);
        Self { ranges, next: 0, at, stripe }
    }

    /// The next piece of at most `max` bytes (at least 1); `None` at the end.
    pub fn take(&mut self, max: u64) -> Option<Range<u64>> {
        loop {
            let range = self.ranges.get(self.next)?;
            let piece = if self.at < range.end { self.stripe.piece_after(self.at) } else { None };
            let Some(piece) = piece.filter(|p| p.start < range.end) else {
                self.skip_range();
                continue;
            };
            let start = self.at.max(piece.start);
            let end = piece.end.min(range.end).min(start.saturating_add(max.max(1)));
            self.at = end;
            return Some(start..end);
        }
    }

    fn skip_range(&mut self) {
        self.next += 1;
        self.at = self.ranges.get(self.next).map_or(0, |r| r.start);
    }

    /// Nothing more is taken: the source ended.
    pub fn stop(&mut self) {
        self.next = self.ranges.len();
    }
}

//! The items that could start now, by class.

use std::cmp::Reverse;
use std::collections::{BTreeSet, VecDeque};

use crate::plan::ItemId;

/// How an item is scheduled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// No data: directories, links, attributes. First, because others wait for them.
    Control,
    /// Pipelined.
    Small(u64),
    /// One at a time, the largest first, so that none begins when all others are done.
    Large(u64),
}

/// What one small file costs beside its bytes, in bytes.
const SMALL_COST: u64 = 1 << 20;

#[derive(Debug, Default)]
pub(super) struct Queue {
    control: VecDeque<ItemId>,
    small: VecDeque<(ItemId, u64)>,
    large: BTreeSet<(Reverse<u64>, ItemId)>,
    small_bytes: u64,
    large_bytes: u64,
}

impl Queue {
    pub(super) fn push(&mut self, item: ItemId, class: Class, front: bool) {
        match class {
            Class::Control if front => self.control.push_front(item),
            Class::Control => self.control.push_back(item),
            Class::Small(size) => {
                self.small_bytes = self.small_bytes.saturating_add(size);
                if front {
                    self.small.push_front((item, size));
                } else {
                    self.small.push_back((item, size));
                }
            }
            Class::Large(size) => {
                self.large_bytes = self.large_bytes.saturating_add(size);
                self.large.insert((Reverse(size), item));
            }
        }
    }

    /// The next item that is pipelined.
    pub(super) fn pop_short(&mut self) -> Option<ItemId> {
        self.control.pop_front().or_else(|| {
            let (item, size) = self.small.pop_front()?;
            self.small_bytes = self.small_bytes.saturating_sub(size);
            Some(item)
        })
    }

    /// The largest of the large items.
    pub(super) fn pop_large(&mut self) -> Option<ItemId> {
        let (Reverse(size), item) = self.large.pop_first()?;
        self.large_bytes = self.large_bytes.saturating_sub(size);
        Some(item)
    }

    pub(super) fn has_short(&self) -> bool {
        !self.control.is_empty() || !self.small.is_empty()
    }

    pub(super) fn has_large(&self) -> bool {
        !self.large.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.control.len() + self.small.len() + self.large.len()
    }

    /// Mean size of the waiting small items, bytes.
    pub(super) fn mean_small(&self) -> u64 {
        self.small_bytes / (self.small.len() as u64).max(1)
    }

    /// How many of `slots` sessions the large items deserve: in proportion to the work that waits,
    /// but never all and never none while both classes wait.
    pub(super) fn large_share(&self, slots: usize) -> usize {
        if !self.has_large() {
            return 0;
        }
        if !self.has_short() {
            return slots;
        }
        if slots < 2 {
            return 0;
        }
        let large = self.large_bytes as f64;
        let small = self.small_bytes as f64 + (self.small.len() as u64 * SMALL_COST) as f64;
        let share = (slots as f64 * large / (large + small)).round() as usize;
        share.clamp(1, slots - 1)
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_classes_get_a_share_while_both_wait() {
        let mut queue = Queue::default();
        queue.push(ItemId(0), Class::Large(1 << 40), false);
        assert_eq!(queue.large_share(4), 4);
        queue.push(ItemId(1), Class::Small(10), false);
        assert_eq!(queue.large_share(4), 3);
        assert_eq!(queue.large_share(1), 0);
        assert_eq!(queue.pop_large(), Some(ItemId(0)));
        assert_eq!(queue.large_share(4), 0);
    }

    #[test]
    fn the_largest_comes_first_and_control_before_small() {
        let mut queue = Queue::default();
        queue.push(ItemId(0), Class::Large(100), false);
        queue.push(ItemId(1), Class::Large(300), false);
        queue.push(ItemId(2), Class::Small(1), false);
        queue.push(ItemId(3), Class::Control, false);
        queue.push(ItemId(4), Class::Small(1), true);
        assert_eq!(queue.pop_large(), Some(ItemId(1)));
        assert_eq!(queue.pop_short(), Some(ItemId(3)));
        assert_eq!(queue.pop_short(), Some(ItemId(4)));
        assert_eq!(queue.len(), 2);
    }
}

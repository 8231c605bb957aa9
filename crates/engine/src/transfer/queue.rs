//! The items that could start now, by class.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, VecDeque};

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
    /// To be opened for chunks, the largest first; not before its parts are wanted.
    Chunked(u64),
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
    /// Files to be opened for chunks.
    unopened: BTreeSet<(Reverse<u64>, ItemId)>,
    unopened_bytes: u64,
    /// Files that are being opened.
    opening: HashMap<ItemId, u64>,
    /// Opened files with parts that wait: those with the fewest chunks in the air first, then the largest.
    parts: BTreeSet<(usize, Reverse<u64>, ItemId)>,
    parts_keys: HashMap<ItemId, (usize, u64)>,
    parts_bytes: u64,
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
            Class::Chunked(size) => {
                self.opening.remove(&item);
                self.unopened_bytes = self.unopened_bytes.saturating_add(size);
                self.unopened.insert((Reverse(size), item));
            }
        }
    }

    /// The next item that is pipelined.
    pub(super) fn pop_short(&mut self) -> Option<ItemId> {
        self.pop_control().or_else(|| {
            let (item, size) = self.small.pop_front()?;
            self.small_bytes = self.small_bytes.saturating_sub(size);
            Some(item)
        })
    }

    /// The next item without data.
    pub(super) fn pop_control(&mut self) -> Option<ItemId> {
        self.control.pop_front()
    }

    /// The largest of the large items.
    pub(super) fn pop_large(&mut self) -> Option<ItemId> {
        let (Reverse(size), item) = self.large.pop_first()?;
        self.large_bytes = self.large_bytes.saturating_sub(size);
        Some(item)
    }

    /// Lets files be opened: as many as there are sessions, so that each can have one of its own, and then
    /// as many again while less waits than `runway` bytes.
    pub(super) fn open_files(&mut self, sessions: usize, runway: u64) {
        loop {
            let open = self.opening.len() + self.parts.len();
            let waiting = self.parts_bytes.saturating_add(self.opening.values().sum());
            let limit = if waiting < runway { 2 * sessions } else { sessions };
            if open >= limit {
                return;
            }
            let Some((Reverse(size), item)) = self.unopened.pop_first() else {
                return;
            };
            self.unopened_bytes = self.unopened_bytes.saturating_sub(size);
            self.opening.insert(item, size);
            self.control.push_back(item);
        }
    }

    /// What waits of an opened file has changed, or the number of its chunks `in_air`.
    pub(super) fn set_parts(&mut self, item: ItemId, in_air: usize, waiting: u64) {
        self.forget(item);
        if waiting > 0 {
            self.parts.insert((in_air, Reverse(waiting), item));
            self.parts_keys.insert(item, (in_air, waiting));
            self.parts_bytes = self.parts_bytes.saturating_add(waiting);
        }
    }

    /// A file is opened no more, nor does any of its parts wait.
    pub(super) fn forget(&mut self, item: ItemId) {
        self.opening.remove(&item);
        if let Some((in_air, waiting)) = self.parts_keys.remove(&item) {
            self.parts.remove(&(in_air, Reverse(waiting), item));
            self.parts_bytes = self.parts_bytes.saturating_sub(waiting);
        }
    }

    /// The file whose part goes next.
    pub(super) fn next_parts(&self) -> Option<ItemId> {
        self.parts.first().map(|(_, _, item)| *item)
    }

    /// Bytes of all large work that no session was given yet.
    pub(super) fn bulk(&self) -> u64 {
        let opening: u64 = self.opening.values().sum();
        [self.large_bytes, self.unopened_bytes, opening].iter().fold(self.parts_bytes, |sum, n| sum.saturating_add(*n))
    }

    /// Bytes of files in chunks that wait or will once they are opened.
    pub(super) fn chunk_bytes(&self) -> u64 {
        self.bulk().saturating_sub(self.large_bytes)
    }

    pub(super) fn has_control(&self) -> bool {
        !self.control.is_empty()
    }

    pub(super) fn has_short(&self) -> bool {
        self.short() > 0
    }

    /// Bytes of the next short item.
    pub(super) fn next_short(&self) -> u64 {
        if self.has_control() { 0 } else { self.small.front().map_or(0, |(_, size)| *size) }
    }

    /// Number of small and control items.
    pub(super) fn short(&self) -> usize {
        self.control.len() + self.small.len()
    }

    /// Whether anything waits that moves data.
    pub(super) fn has_data(&self) -> bool {
        !self.small.is_empty() || self.bulk() > 0
    }

    pub(super) fn has_whole(&self) -> bool {
        !self.large.is_empty()
    }

    pub(super) fn has_large(&self) -> bool {
        self.has_whole() || !self.parts.is_empty()
    }

    /// Number of large items that cannot be divided.
    pub(super) fn whole(&self) -> usize {
        self.large.len()
    }

    /// Bytes of the largest that waits: of a file, or of what is left of one in parts.
    pub(super) fn largest(&self) -> u64 {
        let whole = [&self.large, &self.unopened].into_iter().filter_map(|files| files.first().map(|(size, _)| size.0));
        let parts = self.parts_keys.values().map(|(_, waiting)| *waiting).chain(self.opening.values().copied());
        whole.chain(parts).max().unwrap_or(0)
    }

    /// Bytes of the waiting small items.
    pub(super) fn small_bytes(&self) -> u64 {
        self.small_bytes
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
        let large = self.large_bytes.saturating_add(self.parts_bytes) as f64;
        let small = self.small_bytes as f64 + (self.small.len() as u64 * SMALL_COST) as f64;
        let share = (slots as f64 * large / (large + small)).round() as usize;
        share.clamp(1, slots - 1)
    }

    /// How many of the `share` sessions for large items those deserve that cannot be divided, by the same rule. They
    /// come first where there is one only: parts of others can still fill every session afterwards.
    pub(super) fn whole_share(&self, share: usize) -> usize {
        if !self.has_whole() {
            return 0;
        }
        if self.parts.is_empty() || share < 2 {
            return share;
        }
        let (whole, parts) = (self.large_bytes as f64, self.parts_bytes as f64);
        ((share as f64 * whole / (whole + parts)).round() as usize).clamp(1, share - 1)
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
        assert_eq!((queue.short(), queue.whole(), queue.largest()), (1, 1, 100));
    }

    #[test]
    fn files_are_opened_for_each_session_and_ahead_only_when_little_waits() {
        let mut queue = Queue::default();
        (0..10).for_each(|id| queue.push(ItemId(id), Class::Chunked(100 + id), false));
        queue.open_files(2, 50);
        let opened: Vec<_> = std::iter::from_fn(|| queue.pop_control()).collect();
        assert_eq!(opened, [ItemId(9), ItemId(8)]);
        queue.set_parts(ItemId(9), 0, 20);
        queue.set_parts(ItemId(8), 1, 20);
        assert_eq!(queue.next_parts(), Some(ItemId(9)), "the one that nobody moves");
        queue.open_files(2, 50);
        assert_eq!((queue.pop_control(), queue.pop_control()), (Some(ItemId(7)), None));
        queue.set_parts(ItemId(9), 1, 10);
        assert_eq!(queue.next_parts(), Some(ItemId(8)), "the larger one");
        assert_eq!(queue.chunk_bytes(), 10 + 20 + 107 + (100..107).sum::<u64>());
    }
}

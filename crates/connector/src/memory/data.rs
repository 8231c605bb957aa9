//! Sparse bytes of one file.

use std::collections::BTreeMap;
use std::ops::Range;

use whimbrel_engine::RangeSet;

use crate::Extent;

/// Bytes are kept in pages of this size; a page never written is a hole.
const PAGE: u64 = 4096;

/// A file's bytes: only what was written takes memory.
#[derive(Debug, Default, Clone)]
pub(super) struct Data {
    size: u64,
    pages: BTreeMap<u64, Box<[u8]>>,
}

impl Data {
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Fewer than asked only at the end.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let count = self.size.saturating_sub(offset).min(buffer.len() as u64) as usize;
        let mut done = 0;
        while done < count {
            let at = offset + done as u64;
            let within = (at % PAGE) as usize;
            let step = (count - done).min(PAGE as usize - within);
            let part = &mut buffer[done..done + step];
            match self.pages.get(&(at / PAGE)) {
                Some(page) => part.copy_from_slice(&page[within..within + step]),
                None => part.fill(0),
            }
            done += step;
        }
        count
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) {
        if data.is_empty() {
            return;
        }
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let within = (at % PAGE) as usize;
            let step = (data.len() - done).min(PAGE as usize - within);
            let page = self.pages.entry(at / PAGE).or_insert_with(|| vec![0; PAGE as usize].into_boxed_slice());
            page[within..within + step].copy_from_slice(&data[done..done + step]);
            done += step;
        }
        self.size = self.size.max(offset + data.len() as u64);
    }

    /// Cuts, or extends with a hole.
    pub fn set_size(&mut self, size: u64) {
        if size < self.size {
            self.pages.split_off(&size.div_ceil(PAGE));
            let within = (size % PAGE) as usize;
            if within > 0
                && let Some(page) = self.pages.get_mut(&(size / PAGE))
            {
                // What was cut off must not come back when the file grows again.
                page[within..].fill(0);
            }
        }
        self.size = size;
    }

    /// Takes over what of `newer` survived: pages one by one, and a growth up to any byte.
    pub fn survive(&mut self, newer: &Data, choose: &mut dyn FnMut(u64) -> u64) {
        let gone: Vec<u64> = self.pages.keys().filter(|page| !newer.pages.contains_key(page)).copied().collect();
        for (page, bytes) in &newer.pages {
            if self.pages.get(page) != Some(bytes) && choose(2) == 1 {
                self.pages.insert(*page, bytes.clone());
            }
        }
        for page in gone {
            if choose(2) == 1 {
                self.pages.remove(&page);
            }
        }
        let span = self.size.abs_diff(newer.size);
        let size = self.size.min(newer.size) + if span > 0 { choose(span + 1) } else { 0 };
        let size = if newer.size < self.size { newer.size + self.size - size } else { size };
        // Cut pages even where the size stays: those beyond it were never part of the file.
        self.size = u64::MAX;
        self.set_size(size);
    }

    /// Gives whole pages back; false where `range` would cut one that holds data.
    pub fn clear(&mut self, range: &Range<u64>) -> bool {
        let cut = |at: u64| !at.is_multiple_of(PAGE) && at < self.size && self.pages.contains_key(&(at / PAGE));
        if cut(range.start) || cut(range.end) {
            return false;
        }
        let inside: Vec<u64> =
            self.pages.range(range.start / PAGE..range.end.div_ceil(PAGE)).map(|(page, _)| *page).collect();
        inside.iter().for_each(|page| drop(self.pages.remove(page)));
        true
    }

    /// The run of data or the hole that byte `at` lies in.
    pub fn extent_at(&self, at: u64) -> Extent {
        let first = at / PAGE;
        if at >= self.size {
            return Extent { is_data: false, end: u64::MAX };
        }
        if !self.pages.contains_key(&first) {
            let next = self.pages.range(first..).next().map(|(page, _)| page * PAGE);
            return Extent { is_data: false, end: next.unwrap_or(u64::MAX) };
        }
        let run = self.pages.range(first..).zip(first..).take_while(|((page, _), expected)| **page == *expected);
        Extent { is_data: true, end: (first + run.count() as u64) * PAGE }
    }

    pub fn data_ranges(&self) -> RangeSet {
        self.pages.keys().map(|page| page * PAGE..((page + 1) * PAGE).min(self.size)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_never_written_reads_as_zeros_and_takes_no_memory() {
        let mut data = Data::default();
        data.write(1 << 40, b"far");
        assert_eq!(data.size(), (1 << 40) + 3);
        assert_eq!(data.pages.len(), 1);
        let mut buffer = [9; 8];
        assert_eq!(data.read((1 << 40) - 4, &mut buffer), 7);
        assert_eq!(&buffer[..7], b"\0\0\0\0far");
        let ranges = data.data_ranges();
        assert!(ranges.len() == 3 && ranges.covers(1 << 40..(1 << 40) + 3));
    }

    #[test]
    fn bytes_cut_off_do_not_come_back() {
        let mut data = Data::default();
        data.write(0, &[7; 10_000]);
        data.set_size(5000);
        data.set_size(9000);
        let mut buffer = vec![9; 10_000];
        assert_eq!(data.read(0, &mut buffer), 9000);
        assert_eq!(buffer[4999], 7);
        assert!(buffer[5000..9000].iter().all(|&b| b == 0));
    }
}

//! How many files of which size, in constant memory.

/// Sizes by powers of two: exact at every power of two, which is where it is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sizes {
    /// Files and bytes of files of `2^i` to `2^(i+1) - 1` bytes; the empty ones are with those of one byte.
    buckets: [(u64, u64); 64],
    largest: u64,
}

impl Default for Sizes {
    fn default() -> Self {
        Self { buckets: [(0, 0); 64], largest: 0 }
    }
}

impl Sizes {
    /// Counts a file.
    pub fn add(&mut self, bytes: u64) {
        let (files, sum) = &mut self.buckets[bytes.max(1).ilog2() as usize];
        *files += 1;
        *sum = sum.saturating_add(bytes);
        self.largest = self.largest.max(bytes);
    }

    /// Files in all.
    pub fn files(&self) -> u64 {
        self.files_from(0)
    }

    /// Bytes in all.
    pub fn bytes(&self) -> u64 {
        self.bytes_from(0)
    }

    /// Bytes of the largest file.
    pub fn largest(&self) -> u64 {
        self.largest
    }

    /// Mean bytes of a file.
    pub fn mean(&self) -> u64 {
        self.bytes() / self.files().max(1)
    }

    /// Files of at least `least` bytes, a power of two (another is rounded up).
    pub fn files_from(&self, least: u64) -> u64 {
        self.from(least).map(|(files, _)| files).sum()
    }

    /// Bytes of files of at least `least` bytes, a power of two (another is rounded up).
    pub fn bytes_from(&self, least: u64) -> u64 {
        self.from(least).fold(0, |sum, (_, bytes)| sum.saturating_add(*bytes))
    }

    fn from(&self, least: u64) -> impl Iterator<Item = &(u64, u64)> {
        let first = least.max(1).checked_next_power_of_two().map_or(64, u64::ilog2);
        self.buckets.iter().skip(first as usize)
    }
}

impl FromIterator<u64> for Sizes {
    fn from_iter<I: IntoIterator<Item = u64>>(files: I) -> Self {
        let mut sizes = Self::default();
        files.into_iter().for_each(|bytes| sizes.add(bytes));
        sizes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_two_divide_exactly() {
        let sizes: Sizes = [0, 1, 1023, 1024, 1025, u64::MAX].into_iter().collect();
        assert_eq!((sizes.files(), sizes.files_from(1024), sizes.bytes(), sizes.largest()), (6, 3, u64::MAX, u64::MAX));
        let small: Sizes = [0, 1023, 1024, 3000].into_iter().collect();
        assert_eq!((small.bytes_from(1024), small.bytes_from(1025), small.mean()), (4024, 3000, 1261));
        assert_eq!(small.files_from(u64::MAX), 0);
    }
}

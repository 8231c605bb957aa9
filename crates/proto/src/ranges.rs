//! Byte ranges `a-b,c-d` of REST and 111 markers: ends are exclusive (GFD.20 §3.2 as the peers speak it).

use std::ops::Range;

/// Most ranges accepted from one line, so that a line cannot become an unbounded list.
pub const MAX_RANGES: usize = 16_384;

/// Why a range list was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RangeError {
    /// Not `number-number` items joined by commas.
    #[error("a range list is start-end[,start-end...]")]
    Form,
    /// A number above 2^64 - 1.
    #[error("a range bound does not fit 64 bits")]
    Overflow,
    /// An end before its start.
    #[error("a range ends before it starts")]
    Inverted,
    /// More than [`MAX_RANGES`] items.
    #[error("the range list has too many items")]
    TooMany,
}

/// Parses a decimal number of digits only.
pub fn parse_u64(text: &[u8]) -> Result<u64, RangeError> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return Err(RangeError::Form);
    }
    text.iter().try_fold(0u64, |n, &b| {
        n.checked_mul(10).and_then(|n| n.checked_add(u64::from(b - b'0'))).ok_or(RangeError::Overflow)
    })
}

/// Parses `a-b,c-d`; a trailing comma and spaces around items are tolerated, order and overlap are kept as sent.
pub fn parse(text: &[u8]) -> Result<Vec<Range<u64>>, RangeError> {
    let text = text.trim_ascii();
    let text = text.strip_suffix(b",").unwrap_or(text);
    let mut out = Vec::new();
    for item in text.split(|&b| b == b',') {
        if out.len() == MAX_RANGES {
            return Err(RangeError::TooMany);
        }
        out.push(parse_one(item.trim_ascii())?);
    }
    Ok(out)
}

fn parse_one(item: &[u8]) -> Result<Range<u64>, RangeError> {
    let dash = item.iter().position(|&b| b == b'-').ok_or(RangeError::Form)?;
    let (start, end) = (parse_u64(&item[..dash])?, parse_u64(&item[dash + 1..])?);
    if end < start {
        return Err(RangeError::Inverted);
    }
    Ok(start..end)
}

/// Writes `a-b,c-d`.
pub fn format(ranges: &[Range<u64>]) -> String {
    let items: Vec<String> = ranges.iter().map(|r| format!("{}-{}", r.start, r.end)).collect();
    items.join(",")
}

/// A set of bytes kept as sorted, disjoint, non-touching ranges; 111 markers accumulate in one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RangeSet {
    ranges: Vec<Range<u64>>,
}

impl RangeSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a range; an empty one changes nothing.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.start >= range.end {
            return;
        }
        let first = self.ranges.partition_point(|r| r.end < range.start);
        let last = self.ranges.partition_point(|r| r.start <= range.end);
        let merged = self.ranges[first..last].iter().fold(range, |m, r| m.start.min(r.start)..m.end.max(r.end));
        self.ranges.splice(first..last, [merged]);
    }

    /// The ranges in ascending order.
    pub fn as_slice(&self) -> &[Range<u64>] {
        &self.ranges
    }

    /// Number of bytes in the set.
    pub fn len_bytes(&self) -> u64 {
        self.ranges.iter().map(|r| r.end - r.start).sum()
    }

    /// True if no byte is in the set.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// True if every byte of `range` is in the set; an empty range always is.
    pub fn contains(&self, range: &Range<u64>) -> bool {
        range.start >= range.end || self.ranges.iter().any(|r| r.start <= range.start && range.end <= r.end)
    }

    /// The bytes of `within` that are not in the set: what a sender still owes after REST (GFD.20 §3.2.5).
    pub fn missing(&self, within: Range<u64>) -> Vec<Range<u64>> {
        let mut out = Vec::new();
        let mut at = within.start;
        for r in &self.ranges {
            let (start, end) = (r.start.min(within.end), r.end.min(within.end));
            if start > at {
                out.push(at..start);
            }
            at = at.max(end);
        }
        if at < within.end {
            out.push(at..within.end);
        }
        out
    }
}

impl FromIterator<Range<u64>> for RangeSet {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(iter: I) -> Self {
        let mut set = Self::new();
        iter.into_iter().for_each(|r| set.insert(r));
        set
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    #[allow(clippy::single_range_in_vec_init)]
    fn lists_are_read_as_the_peers_write_them() {
        assert_eq!(parse(b"0-6"), Ok(vec![0..6]));
        assert_eq!(parse(b"0-6,10-20"), Ok(vec![0..6, 10..20]));
        assert_eq!(parse(b" 0-6, 10-20, "), Ok(vec![0..6, 10..20]));
        assert_eq!(parse(b"0-18446744073709551615"), Ok(vec![0..u64::MAX]));
        assert_eq!(format(&[0..6, 10..20]), "0-6,10-20");
    }

    #[test]
    fn broken_lists_name_their_fault() {
        for bad in [&b""[..], b"-", b"5", b"a-b", b"1-", b"-1", b"1-2,,3-4", b"1-2-3", b"+1-2", b",1-2", b"1 -2"] {
            assert_eq!(parse(bad), Err(RangeError::Form), "{}", String::from_utf8_lossy(bad));
        }
        assert_eq!(parse(b"6-5"), Err(RangeError::Inverted));
        assert_eq!(parse(b"0-18446744073709551616"), Err(RangeError::Overflow));
        assert_eq!(parse("0-1,".repeat(MAX_RANGES + 1).as_bytes()), Err(RangeError::TooMany));
    }

    #[test]
    #[allow(clippy::single_range_in_vec_init)]
    fn touching_ranges_become_one() {
        let set: RangeSet = [0..5, 10..20, 5..10, 30..30].into_iter().collect();
        assert_eq!(set.as_slice(), &[0..20]);
        assert_eq!(set.len_bytes(), 20);
        assert!(set.contains(&(3..20)) && !set.contains(&(3..21)));
    }

    #[test]
    fn missing_is_the_complement_inside_the_asked_range() {
        let set: RangeSet = [5..10, 20..30].into_iter().collect();
        assert_eq!(set.missing(0..40), vec![0..5, 10..20, 30..40]);
        assert_eq!(set.missing(7..25), vec![10..20]);
        assert!(set.missing(6..9).is_empty());
        assert_eq!(RangeSet::new().missing(3..3), vec![]);
    }

    proptest! {
        #[test]
        fn any_list_survives_the_wire(pairs in proptest::collection::vec((any::<u64>(), any::<u64>()), 1..20)) {
            let ranges: Vec<_> = pairs.into_iter().map(|(a, b)| a.min(b)..a.max(b)).collect();
            prop_assert_eq!(parse(format(&ranges).as_bytes()), Ok(ranges));
        }

        #[test]
        fn the_set_agrees_with_a_bit_per_byte(pairs in proptest::collection::vec((0u64..64, 0u64..64), 0..12)) {
            let set: RangeSet = pairs.iter().map(|&(a, b)| a.min(b)..a.max(b)).collect();
            let has = |i: u64| pairs.iter().any(|&(a, b)| a.min(b) <= i && i < a.max(b));
            for i in 0..64 {
                prop_assert_eq!(set.contains(&(i..i + 1)), has(i));
            }
            let missing: u64 = set.missing(0..64).iter().map(|r| r.end - r.start).sum();
            prop_assert_eq!(missing + set.len_bytes(), 64);
        }

        #[test]
        fn parsing_any_bytes_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = parse(&bytes);
        }
    }
}

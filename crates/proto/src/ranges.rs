//! Byte ranges `a-b,c-d` of REST and 111 markers: ends are exclusive (GFD.20 §3.2 as the peers speak it).
//!
//! Lists as they are on the wire, and [`merged`] what they say; what they add up to is kept by those who plan transfers.

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

/// Parses `a-b`; an empty range is one too.
pub(crate) fn parse_one(item: &[u8]) -> Result<Range<u64>, RangeError> {
    let dash = item.iter().position(|&b| b == b'-').ok_or(RangeError::Form)?;
    let (start, end) = (parse_u64(&item[..dash])?, parse_u64(&item[dash + 1..])?);
    if end < start {
        return Err(RangeError::Inverted);
    }
    Ok(start..end)
}

/// The same bytes in ascending ranges that neither touch nor are empty.
pub fn merged(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_unstable_by_key(|range| range.start);
    let mut out: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match out.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => out.push(range),
        }
    }
    out
}

/// Where a stream goes on of which this is there: it has no gaps, so that only what is there from the beginning counts.
pub fn from_beginning(merged: &[Range<u64>]) -> u64 {
    merged.first().filter(|range| range.start == 0).map_or(0, |range| range.end)
}

/// Writes `a-b,c-d`.
pub fn format(ranges: &[Range<u64>]) -> String {
    let items: Vec<String> = ranges.iter().map(|r| format!("{}-{}", r.start, r.end)).collect();
    items.join(",")
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
        assert_eq!(merged(vec![20..30, 0..4, 7..7, 4..9, 2..5]), [0..9, 20..30]);
        assert_eq!([&[0..9, 20..30][..], &[3..9], &[]].map(from_beginning), [9, 0, 0]);
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

    proptest! {
        #[test]
        fn any_list_survives_the_wire(pairs in proptest::collection::vec((any::<u64>(), any::<u64>()), 1..20)) {
            let ranges: Vec<_> = pairs.into_iter().map(|(a, b)| a.min(b)..a.max(b)).collect();
            prop_assert_eq!(parse(format(&ranges).as_bytes()), Ok(ranges));
        }

        #[test]
        fn parsing_any_bytes_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = parse(&bytes);
        }
    }
}

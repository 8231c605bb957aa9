//! Byte ranges and times.

use std::ops::Range;

use whimbrel_engine::RangeSet;
use whimbrel_proto::ranges;
use whimbrel_proto::timeval::Timestamp;

/// Range lists and times: what was read is written and read as the same, and sets of ranges agree with sets of numbers.
pub fn ranges_time(data: &[u8]) {
    for text in data.split(|&b| b == b'\n') {
        if let Ok(list) = ranges::parse(text) {
            check_ranges(list);
        }
        if let Ok(time) = Timestamp::parse(text) {
            assert!(time.nanos < 1_000_000_000);
            assert_eq!(Timestamp::parse(time.to_string().as_bytes()), Ok(time));
            assert_eq!(Timestamp::parse(time.to_wire().as_bytes()).map(|t| t.secs), Ok(time.secs));
            check_time(time);
        }
        if let Ok(seconds) = ranges::parse_u64(text) {
            check_time(Timestamp::from_secs(seconds as i64));
            let digits = text.iter().position(|&b| b != b'0').map_or(&b"0"[..], |at| &text[at..]);
            assert_eq!(seconds.to_string().as_bytes(), digits);
        }
    }
}

/// Every time has a date that exists, and dates lead back to their times within the four-digit years.
fn check_time(time: Timestamp) {
    let civil = time.to_civil();
    assert!(civil.is_valid(), "{civil:?}");
    assert_eq!(time.to_wire().len(), 14);
    let back = civil.to_unix();
    assert_eq!(Timestamp::from_secs(back).to_civil(), civil);
    let first = -62_167_219_200;
    let last = 253_402_300_799;
    assert_eq!(back, time.secs.clamp(first, last));
}

fn check_ranges(list: Vec<Range<u64>>) {
    assert!(!list.is_empty() && list.len() <= ranges::MAX_RANGES);
    assert!(list.iter().all(|range| range.start <= range.end));
    let mut set = RangeSet::new();
    list.iter().cloned().for_each(|range| set.insert(range));
    assert!(set.as_slice().windows(2).all(|pair| pair[0].end < pair[1].start), "sorted, disjoint, not touching");
    assert!(list.iter().all(|range| set.covers(range.clone())));
    assert_eq!(set.is_empty(), list.iter().all(|range| range.is_empty()));
    let collected: RangeSet = list.iter().rev().cloned().collect();
    assert_eq!(collected, set, "the order of insertion does not matter");
    check_missing(&set, &list);
    assert_eq!(ranges::parse(ranges::format(&list).as_bytes()), Ok(list));
}

/// What is there and what is missing make up the whole.
fn check_missing(set: &RangeSet, list: &[Range<u64>]) {
    let end = list.iter().map(|range| range.end).max().unwrap_or(0);
    for within in [0..end, end / 3..end / 2 + 1, list[0].clone()] {
        let missing = set.missing(within.clone());
        let missing_bytes = missing.len();
        let inside = |range: &Range<u64>| range.end.min(within.end).saturating_sub(range.start.max(within.start));
        let present_bytes: u64 = set.as_slice().iter().map(inside).sum();
        assert_eq!(missing_bytes + present_bytes, within.end.saturating_sub(within.start));
        for range in missing.as_slice() {
            assert!(range.start < range.end && within.start <= range.start && range.end <= within.end);
            assert!(!set.covers(range.start..range.start + 1));
        }
    }
    assert_eq!(set.missing(0..end).is_empty(), set.len() == end);
}

//! Journals of files in chunks, as a crash, a foreign hand or a later version may leave them.

use std::ops::Range;

use whimbrel_engine::RangeSet;
use whimbrel_engine::journal::{Header, Reading, Trusted, Writer, decode, encode_header, encode_holes, encode_leaves};
use whimbrel_transport::digest::Algorithm;

use super::input::Input;

/// Places at which a journal is torn.
const TEARS: usize = 8;

/// Any bytes are read up to the first record that is torn or wrong; what is trusted is whole leaves of the file, is
/// written and read again as the same, and does not change by what follows.
///
/// The input is read twice: as it is, and as records (kind, length of the body in one byte, body) that get their right
/// CRCs, which no fuzzer would guess.
pub fn journal(data: &[u8]) {
    check(data);
    let records = sealed(data);
    let trusted = check(&records);
    for tear in 0..TEARS {
        let torn = &records[..records.len() * tear / TEARS];
        let left = check(torn);
        assert!(left.sound <= trusted.sound, "what is torn off cannot be trusted");
        // A later record of the same leaf replaces its digest, and never the leaf.
        assert!(left.header.is_none() || left.header == trusted.header);
        // A beginning behind the tear withdraws what was proven before.
        let mut gone = trusted.missing();
        gone.subtract(&left.missing());
        let withdrawn = withdrawn(&trusted);
        assert!(gone.as_slice().iter().all(|range| withdrawn.covers(range.clone())));
    }
}

fn check(bytes: &[u8]) -> Trusted {
    let trusted = decode(bytes);
    assert_eq!(trusted.torn, trusted.sound < bytes.len());
    let alone = decode(&bytes[..trusted.sound]);
    assert_eq!(alone, Trusted { torn: false, ..trusted.clone() }, "what follows changes nothing");
    check_growing(bytes, &trusted);
    match &trusted.header {
        Some(header) => {
            check_ranges(header, &trusted);
            check_again(header, &trusted, &bytes[..trusted.sound]);
        }
        None => assert!(trusted.sound == 0 && trusted.leaves.is_empty() && trusted.holes.is_empty()),
    }
    trusted
}

/// Whoever reads it as it grows, a piece at a time, comes to the same.
fn check_growing(bytes: &[u8], trusted: &Trusted) {
    let mut reading = Reading::default();
    for end in [bytes.len() / 3, bytes.len() / 2, bytes.len()] {
        reading.read(&bytes[reading.sound()..end]);
    }
    if let Some(header) = reading.header() {
        let counts = |range: &Range<u64>| reading.counts_any_of(range);
        assert!(trusted.leaves.iter().all(|leaf| counts(&leaf.range)) && trusted.holes.as_slice().iter().all(counts));
        assert!(!trusted.missing().as_slice().iter().any(|range| header.is_leaves(range) && counts(range)));
    }
    assert_eq!((reading.sound(), reading.is_torn()), (trusted.sound, trusted.torn));
    assert_eq!(reading.header(), trusted.header.as_ref());
}

/// What was proven and does not count.
fn withdrawn(trusted: &Trusted) -> RangeSet {
    let mut all: RangeSet = trusted.withdrawn.iter().map(|leaf| leaf.range.clone()).collect();
    all.union_with(&trusted.filled);
    all
}

/// Leaves and holes are whole leaves of the file, and what is missing is the rest of it.
fn check_ranges(header: &Header, trusted: &Trusted) {
    assert!(trusted.leaves.iter().all(|leaf| header.is_leaf(&leaf.range) && !leaf.digest.is_empty()));
    assert!(trusted.leaves.is_sorted_by_key(|leaf| leaf.range.start));
    assert!(trusted.holes.as_slice().iter().all(|hole| header.is_leaves(hole)));
    let mut proven = trusted.holes.clone();
    trusted.leaves.iter().for_each(|leaf| proven.insert(leaf.range.clone()));
    let missing = trusted.missing();
    assert_eq!(missing.len() + proven.len(), header.size);
    assert!(missing.as_slice().iter().all(|range| proven.within(range.clone()).is_empty()));
    let withdrawn = withdrawn(trusted);
    assert!(withdrawn.as_slice().iter().all(|range| missing.covers(range.clone()) && header.is_leaves(range)));
}

/// What is trusted can be written as a journal of its own, and appended to the one it came from.
fn check_again(header: &Header, trusted: &Trusted, sound: &[u8]) {
    let first = encode_header(header).expect("what was read has its bounds");
    let leaves = encode_leaves(header, &trusted.leaves, Writer::ONLY).expect("leaves of the file");
    let holes = encode_holes(header, trusted.holes.as_slice(), Writer::ONLY).expect("leaves of the file");
    // Each leaf is written once: whose bytes are there is a question only where both digests are.
    let nothing = Trusted { withdrawn: Vec::new(), filled: RangeSet::new(), disputed: false, ..trusted.clone() };
    for (before, expected) in [(&first[..], &nothing), (sound, trusted)] {
        let again = [before, &leaves, &holes].concat();
        let wanted = Trusted { sound: again.len(), torn: false, ..expected.clone() };
        assert_eq!(decode(&again), wanted);
    }
    let Some(leaf) = trusted.leaves.first() else { return };
    let mut other = leaf.clone();
    other.digest[0] ^= 1;
    let other = encode_leaves(header, &[other], Writer::ONLY).expect("a leaf of the file");
    assert!(decode(&[sound, &other].concat()).disputed, "two digests of one leaf");
}

/// Records with right CRCs; the rest of an input that ends inside of one stays as it is.
pub(super) fn sealed(data: &[u8]) -> Vec<u8> {
    let mut input = Input::new(data);
    let mut bytes = Vec::new();
    while !input.is_empty() {
        let (kind, len) = (input.byte(), input.byte());
        let body = input.take(len.into());
        let start = bytes.len();
        bytes.extend_from_slice(&[kind, len, 0]);
        bytes.extend_from_slice(body);
        if body.len() == usize::from(len) {
            let crc = crc32c(&bytes[start..]);
            bytes.extend_from_slice(&crc);
        }
    }
    bytes
}

/// As journals hold it: little-endian.
fn crc32c(bytes: &[u8]) -> Vec<u8> {
    Algorithm::Crc32c.digest(bytes).as_bytes().iter().rev().copied().collect()
}

/// What [`sealed`] makes a journal of: its records without CRCs, with lengths in one byte.
pub(super) fn unsealed(journal: &[u8]) -> Vec<u8> {
    let mut rest = journal;
    let mut bytes = Vec::new();
    while let [kind, len, _, after @ ..] = rest {
        let len = usize::from(*len);
        bytes.extend_from_slice(&[*kind, len as u8]);
        bytes.extend_from_slice(&after[..len]);
        rest = &after[len + 4..];
    }
    bytes
}

#[cfg(test)]
mod tests {
    use whimbrel_engine::journal::{Leaf, encode_beginnings};

    use super::*;

    #[test]
    fn records_are_sealed_as_journals_are_written() {
        let header = Header { size: 5000, modified: None, leaf: 4096, algorithm: "MD5".into() };
        let leaf = Leaf { range: 4096..5000, digest: vec![7; 16] };
        let hole = 0..4096;
        let written = [
            encode_header(&header).unwrap(),
            encode_beginnings(&header, std::slice::from_ref(&hole), Writer(3), true).unwrap(),
            encode_leaves(&header, &[leaf], Writer(2)).unwrap(),
            encode_holes(&header, &[hole], Writer(3)).unwrap(),
        ]
        .concat();
        assert_eq!(sealed(&unsealed(&written)), written);
        assert!(decode(&written).missing().is_empty());
    }
}

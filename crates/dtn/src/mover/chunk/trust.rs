//! What a journal is trusted for.

use std::collections::HashMap;

use whimbrel_engine::journal::{self, Trusted};
use whimbrel_transport::digest::{Algorithm, Digest, Hasher};

/// Zeros that are hashed at once.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Most leaves of zeros that are hashed to read one journal: as a rule they are alike, or the last one is shorter.
const MOST_HASHED: usize = 8;

/// What a journal says; disputed as well where of one leaf it says that it is a hole and that it holds something.
///
/// Two sources of the same size and time may differ so. What was stored of the one is then cleared for the other, or the reverse.
pub fn read(bytes: &[u8]) -> Trusted {
    let mut trusted = journal::decode(bytes);
    trusted.disputed = trusted.disputed || fills_a_hole(&trusted);
    trusted
}

fn fills_a_hole(trusted: &Trusted) -> bool {
    let Some(header) = trusted.header.as_ref().filter(|_| !trusted.holes.is_empty()) else { return false };
    // Without a checksum nothing is known of what a leaf holds.
    let Ok(algorithm) = header.algorithm.parse::<Algorithm>() else { return false };
    let mut zeros = HashMap::new();
    for leaf in trusted.leaves.iter().filter(|leaf| trusted.holes.covers(leaf.range.clone())) {
        let (start, length) = (leaf.range.start, leaf.range.end - leaf.range.start);
        // Digests of a tree's nodes tell where they are.
        let place = if algorithm == Algorithm::Blake3Tree { start } else { 0 };
        if zeros.len() == MOST_HASHED && !zeros.contains_key(&(place, length)) {
            break;
        }
        let expected = zeros.entry((place, length)).or_insert_with(|| {
            let mut hasher = Hasher::for_leaf(algorithm, start, header.leaf);
            let mut left = length;
            while left > 0 {
                let part = left.min(ZEROS.len() as u64);
                hasher.update(&ZEROS[..part as usize]);
                left -= part;
            }
            hasher.finish()
        });
        if Digest::from_bytes(algorithm, &leaf.digest).is_some_and(|digest| digest != *expected) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use whimbrel_engine::journal::{Header, Leaf, Writer, encode_header, encode_holes, encode_leaves};

    use super::*;

    const LEAF: u64 = 64 << 10;
    const SIZE: u64 = 3 * LEAF + 1000;

    fn disputed(algorithm: Algorithm, index: u64, data: u8) -> bool {
        let header = Header { size: SIZE, modified: Some((1, 2)), leaf: LEAF, algorithm: algorithm.name().to_owned() };
        let range = index * LEAF..((index + 1) * LEAF).min(SIZE);
        let mut hasher = Hasher::for_leaf(algorithm, range.start, LEAF);
        hasher.update(&vec![data; (range.end - range.start) as usize]);
        let leaf = Leaf { range, digest: hasher.finish().as_bytes().to_vec() };
        // The last two leaves are a hole.
        let holes = encode_holes(&header, std::slice::from_ref(&(2 * LEAF..SIZE)), Writer::ONLY).unwrap();
        let leaves = encode_leaves(&header, &[leaf], Writer::ONLY).unwrap();
        let begin = encode_header(&header).unwrap();
        let both = [[&begin[..], &leaves, &holes].concat(), [&begin[..], &holes, &leaves].concat()];
        let [first, then] = both.map(|bytes| read(&bytes).disputed);
        assert_eq!(first, then, "whatever came first");
        first
    }

    #[test]
    fn a_leaf_is_a_hole_or_holds_something_but_not_both() {
        for algorithm in Algorithm::ALL.into_iter().chain([Algorithm::Blake3Tree]) {
            assert!(!disputed(algorithm, 1, 7), "{algorithm}: no part of the hole");
            for index in [2, 3] {
                assert!(disputed(algorithm, index, 7), "{algorithm}");
                assert!(!disputed(algorithm, index, 0), "{algorithm}: zeros that were moved before");
            }
        }
    }
}

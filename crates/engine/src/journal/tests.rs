use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const L: u64 = 1 << 20;

const ONE: Writer = Writer(7);
const OTHER: Writer = Writer(8);
const THIRD: Writer = Writer(9);

fn header(size: u64) -> Header {
    Header { size, modified: Some((1_700_000_000, 5)), leaf: L, algorithm: "MD5".into() }
}

fn leaf(header: &Header, index: u64, digest: u8) -> Leaf {
    let range = index * header.leaf..((index + 1) * header.leaf).min(header.size);
    Leaf { range, digest: vec![digest; 16] }
}

/// Numbers and digests of the leaves to append, several appends.
fn appends() -> impl Strategy<Value = (Header, Vec<Vec<Leaf>>)> {
    (1..20u64, 0..L).prop_flat_map(|(leaves, tail)| {
        let header = header(leaves * L + tail);
        let one = (0..leaves, any::<u8>());
        let all = vec(vec(one, 0..4), 0..6);
        (
            Just(header.clone()),
            all.prop_map(move |all| {
                all.into_iter().map(|some| some.into_iter().map(|(i, d)| leaf(&header, i, d)).collect()).collect()
            }),
        )
    })
}

fn written(header: &Header, appends: &[Vec<Leaf>]) -> Vec<u8> {
    let mut bytes = encode_header(header).unwrap();
    for leaves in appends {
        bytes.extend(encode_leaves(header, leaves, ONE).unwrap());
    }
    bytes
}

/// What is left of a damaged journal is what was written up to some record.
fn is_a_beginning(trusted: &Trusted, header: &Header, appends: &[Vec<Leaf>]) -> bool {
    let all: Vec<_> = appends.iter().flatten().cloned().collect();
    trusted == &Trusted { sound: trusted.sound, torn: trusted.torn, ..Trusted::default() }
        || (0..=all.len()).any(|count| {
            let sound = decode(&written(header, &[all[..count].to_vec()]));
            (sound.header, sound.leaves, sound.sound) == (trusted.header.clone(), trusted.leaves.clone(), trusted.sound)
        })
}

proptest! {
    #[test]
    fn what_was_appended_is_read_and_the_last_record_of_a_leaf_counts((header, appends) in appends()) {
        let bytes = written(&header, &appends);
        let trusted = decode(&bytes);
        let mut last = BTreeMap::new();
        for leaf in appends.iter().flatten() {
            last.insert(leaf.range.start, leaf.clone());
        }
        prop_assert_eq!(trusted.leaves, last.into_values().collect::<Vec<_>>());
        prop_assert_eq!(trusted.header, Some(header));
        prop_assert_eq!((trusted.sound, trusted.torn), (bytes.len(), false));
    }

    #[test]
    fn a_torn_end_costs_only_the_records_it_tore((header, appends) in appends(), at in any::<prop::sample::Index>()) {
        let bytes = written(&header, &appends);
        let kept = at.index(bytes.len() + 1);
        let trusted = decode(&bytes[..kept]);
        prop_assert!(is_a_beginning(&trusted, &header, &appends));
        prop_assert!(trusted.sound <= kept);
        prop_assert_eq!(trusted.torn, trusted.sound < kept);
        // What was torn off is at most one record.
        prop_assert!(kept - trusted.sound < 128);
    }

    #[test]
    fn a_flipped_bit_never_makes_a_leaf((header, appends) in appends(), at in any::<prop::sample::Index>(), bit in 0..8u8) {
        let mut bytes = written(&header, &appends);
        let at = at.index(bytes.len());
        bytes[at] ^= 1u8 << bit;
        let trusted = decode(&bytes);
        prop_assert!(trusted.torn);
        prop_assert!(trusted.sound <= at);
        prop_assert!(is_a_beginning(&trusted, &header, &appends));
    }

    #[test]
    fn blocks_that_never_reached_the_disk_read_as_zeros_and_end_the_trust(
        (header, appends) in appends(), from in any::<prop::sample::Index>(), len in 1..200usize,
    ) {
        let mut bytes = written(&header, &appends);
        let from = from.index(bytes.len());
        let end = (from + len).min(bytes.len());
        let before = bytes.clone();
        bytes[from..end].fill(0);
        let trusted = decode(&bytes);
        prop_assert!(bytes == before || trusted.sound <= end);
        prop_assert!(is_a_beginning(&trusted, &header, &appends));
    }

    #[test]
    fn any_bytes_are_read_without_panic(bytes in vec(any::<u8>(), 0..300)) {
        prop_assert!(decode(&bytes).sound <= bytes.len());
    }
}

#[test]
fn only_different_digests_of_one_leaf_are_a_dispute() {
    let header = header(3 * L + 7);
    let disputed = |appends: &[(u64, u8)]| {
        let leaves = appends.iter().map(|(index, digest)| leaf(&header, *index, *digest)).collect();
        decode(&written(&header, &[leaves])).disputed
    };
    assert!(!disputed(&[]) && !disputed(&[(0, 1), (1, 2), (0, 1), (3, 4)]), "an answer was lost");
    assert!(disputed(&[(0, 1), (1, 2), (0, 3)]));
    assert!(disputed(&[(0, 1), (0, 3), (0, 1)]), "whoever was last");
    let bytes = written(&header, &[vec![leaf(&header, 0, 1)], vec![leaf(&header, 0, 2)]]);
    let torn = &bytes[..bytes.len() - 1];
    assert!(!decode(torn).disputed, "what is torn says nothing");
    assert!(!decode(b"junk").disputed);
}

#[test]
fn ranges_that_are_no_leaves_are_neither_written_nor_read() {
    let header = header(3 * L + 7);
    for range in [0..1, 1..L, 0..2 * L, L..L, 3 * L..4 * L, 4 * L..5 * L] {
        let wrong = Leaf { range: range.clone(), digest: vec![1; 16] };
        assert_eq!(encode_leaves(&header, &[wrong], ONE), None, "{range:?}");
    }
    assert!(encode_leaves(&header, &[leaf(&header, 3, 1)], ONE).is_some());
    let endless = Leaf { range: 0..L, digest: vec![0; DIGEST_MAX + 1] };
    assert_eq!(encode_leaves(&header, &[endless], ONE), None);
    // Written for a longer file.
    let longer = super::tests::header(5 * L);
    let mut bytes = encode_header(&header).unwrap();
    bytes.extend(encode_leaves(&longer, &[leaf(&longer, 3, 1)], ONE).unwrap());
    let trusted = decode(&bytes);
    assert!(trusted.torn && trusted.leaves.is_empty());
}

#[test]
fn a_second_header_is_trusted_only_if_it_says_the_same() {
    let (mine, other) = (header(2 * L), header(2 * L + 1));
    let records = |second: &Header| {
        let mut bytes = encode_header(&mine).unwrap();
        bytes.extend(encode_header(second).unwrap());
        bytes.extend(encode_leaves(&mine, &[leaf(&mine, 0, 9)], ONE).unwrap());
        decode(&bytes)
    };
    assert_eq!(records(&mine).leaves.len(), 1);
    assert!(records(&other).torn && records(&other).leaves.is_empty());
    assert_eq!(records(&other).header, Some(mine.clone()));
}

#[test]
fn leaves_without_a_header_prove_nothing() {
    let header = header(2 * L);
    let bytes = encode_leaves(&header, &[leaf(&header, 0, 9)], ONE).unwrap();
    assert_eq!(decode(&bytes), Trusted { torn: true, ..Trusted::default() });
    assert!(!Trusted::default().missing().is_empty());
}

#[test]
fn headers_keep_every_value_and_their_bounds() {
    for modified in [None, Some((i64::MIN, 999_999_999)), Some((0, 0))] {
        let header = Header { size: u64::MAX, modified, leaf: 1, algorithm: "X".repeat(ALGORITHM_MAX) };
        assert_eq!(decode(&encode_header(&header).unwrap()).header, Some(header));
    }
    assert_eq!(encode_header(&Header { leaf: 0, ..header(1) }), None);
    assert_eq!(encode_header(&Header { algorithm: String::new(), ..header(1) }), None);
    assert_eq!(encode_header(&Header { algorithm: "X".repeat(ALGORITHM_MAX + 1), ..header(1) }), None);
}

#[test]
fn a_file_is_covered_when_every_leaf_is_proven_and_an_empty_one_at_once() {
    let header = header(2 * L + 5);
    let mut bytes = encode_header(&header).unwrap();
    assert_eq!(decode(&bytes).missing().len(), header.size);
    bytes.extend(encode_leaves(&header, &[leaf(&header, 0, 1), leaf(&header, 2, 1)], ONE).unwrap());
    assert_eq!(decode(&bytes).missing(), RangeSet::from(L..2 * L));
    bytes.extend(encode_leaves(&header, &[leaf(&header, 1, 1)], ONE).unwrap());
    assert!(decode(&bytes).missing().is_empty());
    assert!(decode(&encode_header(&super::tests::header(0)).unwrap()).missing().is_empty());
}

#[test]
#[allow(clippy::single_range_in_vec_init, reason = "a list of one range is meant")]
fn holes_are_proven_like_leaves_and_survive_a_torn_end() {
    let header = header(5 * L + 7);
    let mut bytes = encode_header(&header).unwrap();
    bytes.extend(encode_leaves(&header, &[leaf(&header, 0, 7)], ONE).unwrap());
    bytes.extend(encode_holes(&header, &[L..3 * L, 4 * L..5 * L + 7], ONE).unwrap());
    let trusted = decode(&bytes);
    assert_eq!(trusted.holes.as_slice(), [L..3 * L, 4 * L..5 * L + 7]);
    assert_eq!(trusted.missing(), RangeSet::from(3 * L..4 * L));
    assert!(!trusted.torn);
    bytes.pop();
    let torn = decode(&bytes);
    assert!(torn.torn && torn.holes.as_slice() == [L..3 * L]);
    for bad in [0..0, 0..L / 2, L / 2..L, 5 * L..6 * L, 6 * L..7 * L] {
        assert_eq!(encode_holes(&header, std::slice::from_ref(&bad), ONE), None, "{bad:?}");
    }
}

/// What happens to one leaf.
#[derive(Debug, Clone, Copy)]
enum Act {
    /// Somebody begins to write it; whether nobody else does.
    Begins(Writer, bool),
    /// Somebody has proven it.
    Proves(Writer),
    /// Somebody has made a hole of it.
    Clears(Writer),
}

use Act::{Begins, Clears, Proves};

fn record(header: &Header, act: Act) -> Vec<u8> {
    let leaf = leaf(header, 1, 3);
    let range = std::slice::from_ref(&leaf.range);
    let record = match act {
        Begins(writer, alone) => encode_beginnings(header, range, writer, alone),
        Proves(writer) => encode_leaves(header, std::slice::from_ref(&leaf), writer),
        Clears(writer) => encode_holes(header, range, writer),
    };
    record.unwrap()
}

/// Whether the second leaf counts after all of these.
fn counts(acts: &[Act]) -> bool {
    let header = header(3 * L);
    let mut bytes = encode_header(&header).unwrap();
    acts.iter().for_each(|act| bytes.extend(record(&header, *act)));
    let trusted = decode(&bytes);
    assert!(!trusted.torn && !trusted.disputed);
    let counts = !trusted.missing().touches(L..2 * L);
    let was_proven = acts.iter().any(|act| matches!(act, Proves(_) | Clears(_)));
    let withdrawn = trusted.withdrawn.iter().any(|leaf| leaf.range == (L..2 * L)) || trusted.filled.covers(L..2 * L);
    assert_eq!(withdrawn, was_proven && !counts, "{acts:?}");
    // Read as it grows, it says the same.
    let mut reading = Reading::default();
    reading.read(&encode_header(&header).unwrap());
    acts.iter().for_each(|act| reading.read(&record(&header, *act)));
    for (range, of_it) in
        [(L..2 * L, true), (L + 5..L + 6, true), (2 * L - 1..3 * L, true), (0..L, false), (L..L, false)]
    {
        assert_eq!(reading.counts_any_of(&range), counts && of_it, "{acts:?} {range:?}");
    }
    assert_eq!((reading.sound(), reading.is_torn()), (trusted.sound, false));
    counts
}

#[test]
fn what_is_written_again_is_proven_again() {
    assert!(counts(&[Proves(ONE)]), "where nobody tells of beginnings");
    assert!(!counts(&[Begins(ONE, true)]));
    for proof in [Proves(ONE), Clears(ONE)] {
        assert!(counts(&[Begins(ONE, true), proof]));
        for alone in [true, false] {
            assert!(!counts(&[Begins(ONE, true), proof, Begins(ONE, alone)]));
            assert!(!counts(&[Begins(ONE, true), proof, Begins(OTHER, alone)]));
            assert!(counts(&[Begins(ONE, true), proof, Begins(OTHER, alone), Proves(OTHER)]));
        }
    }
}

#[test]
fn of_two_that_write_at_once_both_must_prove_it() {
    let both = [Begins(ONE, true), Begins(OTHER, false)];
    assert!(!counts(&[both, [Proves(ONE), Proves(ONE)]].concat()));
    assert!(!counts(&[both, [Proves(OTHER), Proves(OTHER)]].concat()));
    assert!(counts(&[both, [Proves(ONE), Proves(OTHER)]].concat()));
    assert!(counts(&[both, [Proves(OTHER), Proves(ONE)]].concat()));
    // One of them is gone, and its bytes are those of whoever began behind it.
    assert!(!counts(&[&both[..], &[Proves(OTHER), Begins(THIRD, false), Proves(THIRD)]].concat()));
    assert!(counts(&[&both[..], &[Proves(OTHER), Begins(THIRD, true), Proves(THIRD)]].concat()));
}

#[test]
fn a_proof_that_comes_late_proves_nothing() {
    let given_up = [Begins(ONE, true), Begins(OTHER, true), Proves(ONE)];
    assert!(!counts(&given_up));
    assert!(counts(&[&given_up[..], &[Proves(OTHER)]].concat()));
    assert!(counts(&[Begins(ONE, true), Begins(OTHER, true), Proves(OTHER), Proves(ONE)]));
}

#[test]
fn a_reader_goes_on_behind_what_was_sound() {
    let header = header(3 * L);
    let mut bytes = encode_header(&header).unwrap();
    let begun = bytes.len();
    bytes.extend(record(&header, Proves(ONE)));
    let mut reading = Reading::default();
    reading.read(&bytes[..bytes.len() - 1]);
    assert!(reading.is_torn() && reading.sound() == begun && reading.header() == Some(&header));
    reading.read(&bytes[begun..]);
    assert!(!reading.is_torn() && reading.sound() == bytes.len());
    assert!(reading.counts_any_of(&(L..L + 1)));
}

#[test]
fn beginnings_are_of_whole_leaves_and_of_few_writers() {
    let header = header(2 * L + 5);
    for bad in [0..0, 0..L / 2, L / 2..L, 0..2 * L + 4, 3 * L..4 * L] {
        assert_eq!(encode_beginnings(&header, std::slice::from_ref(&bad), ONE, true), None, "{bad:?}");
    }
    for (range, leaves) in
        [(0..1, 0..L), (L - 1..L + 1, 0..2 * L), (2 * L..2 * L + 5, 2 * L..2 * L + 5), (1..u64::MAX, 0..2 * L + 5)]
    {
        assert_eq!(header.leaves_of(&range), leaves, "{range:?}");
    }
    for nothing in [0..0, L..L, 3 * L..4 * L, u64::MAX - 1..u64::MAX] {
        assert!(header.leaves_of(&nothing).is_empty(), "{nothing:?}");
    }
    let whole = 0..header.size;
    let mut bytes = encode_header(&header).unwrap();
    let mut begin = |writer: u64, alone| {
        let sound = bytes.len();
        bytes.extend(encode_beginnings(&header, std::slice::from_ref(&whole), Writer(writer), alone).unwrap());
        let trusted = decode(&bytes);
        bytes.truncate(if trusted.torn { sound } else { bytes.len() });
        !trusted.torn
    };
    assert!((0..1024).all(|writer| begin(writer, false)));
    assert!(!begin(5000, false), "one too many");
    assert!(begin(5000, true) && begin(5001, false), "one that is alone makes room");
    for wrong in [&[2][..], &[], &[1, 1]] {
        let mut bytes = encode_header(&header).unwrap();
        records::append(BEGINNING, &body(&whole, ONE, wrong), &mut bytes);
        assert!(decode(&bytes).torn, "{wrong:?}");
    }
}

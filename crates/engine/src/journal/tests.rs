use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const L: u64 = 1 << 20;

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
        bytes.extend(encode_leaves(header, leaves).unwrap());
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
        assert_eq!(encode_leaves(&header, &[wrong]), None, "{range:?}");
    }
    assert!(encode_leaves(&header, &[leaf(&header, 3, 1)]).is_some());
    let endless = Leaf { range: 0..L, digest: vec![0; DIGEST_MAX + 1] };
    assert_eq!(encode_leaves(&header, &[endless]), None);
    // Written for a longer file.
    let longer = super::tests::header(5 * L);
    let mut bytes = encode_header(&header).unwrap();
    bytes.extend(encode_leaves(&longer, &[leaf(&longer, 3, 1)]).unwrap());
    let trusted = decode(&bytes);
    assert!(trusted.torn && trusted.leaves.is_empty());
}

#[test]
fn a_second_header_is_trusted_only_if_it_says_the_same() {
    let (mine, other) = (header(2 * L), header(2 * L + 1));
    let records = |second: &Header| {
        let mut bytes = encode_header(&mine).unwrap();
        bytes.extend(encode_header(second).unwrap());
        bytes.extend(encode_leaves(&mine, &[leaf(&mine, 0, 9)]).unwrap());
        decode(&bytes)
    };
    assert_eq!(records(&mine).leaves.len(), 1);
    assert!(records(&other).torn && records(&other).leaves.is_empty());
    assert_eq!(records(&other).header, Some(mine.clone()));
}

#[test]
fn leaves_without_a_header_prove_nothing() {
    let header = header(2 * L);
    let bytes = encode_leaves(&header, &[leaf(&header, 0, 9)]).unwrap();
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
    bytes.extend(encode_leaves(&header, &[leaf(&header, 0, 1), leaf(&header, 2, 1)]).unwrap());
    assert_eq!(decode(&bytes).missing(), RangeSet::from(L..2 * L));
    bytes.extend(encode_leaves(&header, &[leaf(&header, 1, 1)]).unwrap());
    assert!(decode(&bytes).missing().is_empty());
    assert!(decode(&encode_header(&super::tests::header(0)).unwrap()).missing().is_empty());
}

#[test]
#[allow(clippy::single_range_in_vec_init, reason = "a list of one range is meant")]
fn holes_are_proven_like_leaves_and_survive_a_torn_end() {
    let header = header(5 * L + 7);
    let mut bytes = encode_header(&header).unwrap();
    bytes.extend(encode_leaves(&header, &[leaf(&header, 0, 7)]).unwrap());
    bytes.extend(encode_holes(&header, &[L..3 * L, 4 * L..5 * L + 7]).unwrap());
    let trusted = decode(&bytes);
    assert_eq!(trusted.holes.as_slice(), [L..3 * L, 4 * L..5 * L + 7]);
    assert_eq!(trusted.missing(), RangeSet::from(3 * L..4 * L));
    assert!(!trusted.torn);
    bytes.pop();
    let torn = decode(&bytes);
    assert!(torn.torn && torn.holes.as_slice() == [L..3 * L]);
    for bad in [0..0, 0..L / 2, L / 2..L, 5 * L..6 * L, 6 * L..7 * L] {
        assert_eq!(encode_holes(&header, std::slice::from_ref(&bad)), None, "{bad:?}");
    }
}

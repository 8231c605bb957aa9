//! Digests of parts made into that of the whole, without reading it again.

use std::ops::Range;

use blake3::hazmat::{ChainingValue, Mode, merge_subtrees_non_root, merge_subtrees_root};

use super::{Algorithm, Digest, Hasher};

/// The digest of a whole from those of its parts, each with its length in bytes, in order and without gaps; of the
/// algorithm that theirs [compose to](Algorithm::of_file).
///
/// `None` when that is not possible: CRC32C and ADLER32 compose for parts of any lengths; BLAKE3 for the nodes of two
/// leaves or more ([`Hasher::for_leaf`]), the last not longer than the others; the others only when there is one part,
/// which is the whole. That digests of [`Algorithm::Blake3Tree`] are of whole leaves is for the caller to know:
/// [`compose_ranges`] does.
pub fn compose(algorithm: Algorithm, parts: &[(Digest, u64)]) -> Option<Digest> {
    if parts.iter().any(|(digest, _)| digest.algorithm() != algorithm) {
        return None;
    }
    match (algorithm, parts) {
        (_, []) => Some(Hasher::new(algorithm.of_file()).finish()),
        (Algorithm::Blake3Tree, _) => blake3(parts),
        (_, [(digest, _)]) => Some(*digest),
        (Algorithm::Crc32c, [first, rest @ ..]) => Some(fold(crc32c, first, rest)),
        (Algorithm::Adler32, [first, rest @ ..]) => Some(fold(adler32, first, rest)),
        _ => None,
    }
}

/// The same from leaves of `leaf` bytes, or parts of them, that say where they lie, which must be all of 0 to `size`
/// (`None`: wherever they end), in order.
pub fn compose_ranges(
    algorithm: Algorithm,
    parts: impl IntoIterator<Item = (Range<u64>, Option<Digest>)>,
    size: Option<u64>,
    leaf: u64,
) -> Option<Digest> {
    let (mut known, mut at) = (Vec::new(), 0);
    for (range, digest) in parts {
        // What begins inside a leaf may be no node of a tree.
        let is_leaf = range.start.is_multiple_of(leaf.max(1));
        if range.start != at || (algorithm == Algorithm::Blake3Tree && !is_leaf) {
            return None;
        }
        at = range.end;
        known.push((digest?, range.end - range.start));
    }
    if size.is_some_and(|size| size != at) { None } else { compose(algorithm, &known) }
}

fn fold(join: fn(u32, u32, u64) -> u32, first: &(Digest, u64), rest: &[(Digest, u64)]) -> Digest {
    let sum = rest.iter().fold(first.0.as_u32(), |sum, (digest, len)| join(sum, digest.as_u32(), *len));
    Digest::new(first.0.algorithm(), &sum.to_be_bytes())
}

fn crc32c(first: u32, second: u32, second_len: u64) -> u32 {
    let (first, second) = (u64::from(first), u64::from(second));
    crc_fast::checksum_combine(crc_fast::CrcAlgorithm::Crc32Iscsi, first, second, second_len) as u32
}

/// RFC 1950 §8: `a` is 1 and the sum of the bytes; `b` is the sum of every `a`, each of which grows by the first part's
/// bytes.
fn adler32(first: u32, second: u32, second_len: u64) -> u32 {
    const MODULUS: u64 = 65521;
    let split = |sum: u32| (u64::from(sum & 0xffff), u64::from(sum >> 16));
    let ((a1, b1), (a2, b2)) = (split(first), split(second));
    let before = (a1 + MODULUS - 1) % MODULUS;
    let a = (before + a2) % MODULUS;
    let b = (b1 + b2 + second_len % MODULUS * before) % MODULUS;
    (b << 16 | a) as u32
}

/// Of nodes; one alone does not tell the root, which is hashed differently.
fn blake3(parts: &[(Digest, u64)]) -> Option<Digest> {
    let (first, last) = (parts.first()?.1, parts.last()?.1);
    let (_, whole_parts) = parts.split_last()?;
    let equal = whole_parts.iter().all(|(_, len)| *len == first);
    let size_fits = first.is_power_of_two() && first >= blake3::CHUNK_LEN as u64;
    if whole_parts.is_empty() || !equal || !size_fits || last == 0 || last > first {
        return None;
    }
    let (left, right) = parts.split_at(left_parts(parts.len()));
    let root = merge_subtrees_root(&node(left), &node(right), Mode::Hash);
    Some(Digest::new(Algorithm::Blake3, root.as_bytes()))
}

fn node(parts: &[(Digest, u64)]) -> ChainingValue {
    if let [(digest, _)] = parts {
        let mut value = ChainingValue::default();
        value.copy_from_slice(digest.as_bytes());
        return value;
    }
    let (left, right) = parts.split_at(left_parts(parts.len()));
    merge_subtrees_non_root(&node(left), &node(right), Mode::Hash)
}

/// The left side of a node holds the largest power of two of parts that leaves something for the right.
fn left_parts(parts: usize) -> usize {
    parts.next_power_of_two() / 2
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;

    /// The digests of a file's leaves.
    fn leaves(algorithm: Algorithm, file: &[u8], leaf: usize) -> Vec<(Range<u64>, Option<Digest>)> {
        let one = |(index, data): (usize, &[u8])| {
            let start = (index * leaf) as u64;
            let mut hasher = Hasher::for_leaf(algorithm, start, leaf as u64);
            hasher.update(data);
            (start..start + data.len() as u64, Some(hasher.finish()))
        };
        file.chunks(leaf).enumerate().map(one).collect()
    }

    fn composed(algorithm: Algorithm, file: &[u8], leaf: usize) -> Option<Digest> {
        compose_ranges(algorithm, leaves(algorithm, file, leaf), Some(file.len() as u64), leaf as u64)
    }

    #[test]
    fn leaves_of_any_number_compose_to_the_digest_of_the_file() {
        let file = sample(100_000);
        for algorithm in [Algorithm::Crc32c, Algorithm::Adler32, Algorithm::Blake3Tree] {
            for leaf in [1024, 4096, 8192, 32_768, 65_536] {
                for len in [leaf + 1, leaf + 1024, 2 * leaf - 1, 2 * leaf, 2 * leaf + 1, 3 * leaf, 90_000, 100_000] {
                    if len > file.len() || len <= leaf {
                        continue;
                    }
                    let expected = algorithm.of_file().digest(&file[..len]);
                    let whole = composed(algorithm, &file[..len], leaf);
                    assert_eq!(whole, Some(expected), "{algorithm}, {len} bytes in leaves of {leaf}");
                }
            }
        }
    }

    #[test]
    fn crcs_compose_for_unequal_and_empty_parts() {
        let extreme = vec![0xff; 70_000];
        let mixed = sample(70_000);
        for file in [&extreme, &mixed] {
            for algorithm in [Algorithm::Crc32c, Algorithm::Adler32] {
                let cuts = [0, 0, 1, 65_521, 65_600, 65_600, 70_000];
                let parts: Vec<_> = cuts
                    .windows(2)
                    .map(|cut| (algorithm.digest(&file[cut[0]..cut[1]]), (cut[1] - cut[0]) as u64))
                    .collect();
                assert_eq!(compose(algorithm, &parts), Some(algorithm.digest(file)), "{algorithm}");
            }
        }
    }

    #[test]
    fn one_part_is_the_whole_and_none_is_the_empty_file() {
        for algorithm in Algorithm::ALL {
            let one = algorithm.digest(b"all there is");
            assert_eq!(compose(algorithm, &[(one, 12)]), Some(one), "{algorithm}");
            assert_eq!(compose(algorithm, &[]), Some(algorithm.digest(b"")), "{algorithm}");
        }
    }

    #[test]
    fn what_cannot_be_composed_is_refused() {
        use Algorithm::*;
        let file = sample(5000);
        for algorithm in [Md5, Sha1, Sha256, Sha512, Xxh3_128, Blake3] {
            assert_eq!(composed(algorithm, &file, 1024), None, "{algorithm}");
        }
        assert_eq!(composed(Blake3Tree, &file, 512), None, "leaves too small for the tree");
        assert_eq!(composed(Blake3Tree, &file[..1000], 1024), None, "a node is not a file's digest");
        let nodes = leaves(Blake3Tree, &file, 1024);
        let whole =
            |parts: &[(Range<u64>, Option<Digest>)], leaf| compose_ranges(Blake3Tree, parts.to_vec(), None, leaf);
        assert!(whole(&nodes[..2], 1024).is_some());
        assert_eq!(whole(&nodes[..2], 4096), None, "parts of leaves");
        assert_eq!(whole(&nodes[1..3], 1024), None, "not from the start");
        assert_eq!(whole(&[nodes[0].clone(), nodes[2].clone()], 1024), None, "a gap");
        assert_eq!(whole(&[nodes[0].clone(), (1024..2048, None)], 1024), None, "one that is not known");
        let sums: Vec<_> = nodes.iter().map(|(range, digest)| (digest.unwrap(), range.end - range.start)).collect();
        assert_eq!(compose(Blake3Tree, &[sums[0], sums[4], sums[1]]), None, "a short part inside");
        assert_eq!(compose(Blake3Tree, &[sums[0], (sums[1].0, 0)]), None, "a node without bytes");
        assert_eq!(compose(Crc32c, &[sums[0], sums[1]]), None, "another algorithm's");
    }

    #[test]
    fn a_part_of_a_leaf_has_a_digest_that_follows_from_its_place() {
        let file = sample(8192);
        let hash = |start: usize, end: usize| {
            let mut hasher = Hasher::for_leaf(Algorithm::Blake3Tree, start as u64, 4096);
            hasher.update(&file[start..end]);
            hasher.finish()
        };
        let own = |data: &[u8]| Algorithm::Blake3Tree.digest(data);
        assert_ne!(hash(4096, 5000), own(&file[4096..5000]), "a node, as it begins a leaf");
        assert_ne!(hash(6144, 8192), own(&file[6144..8192]), "a node, as the rest of the leaf is half of it");
        assert_eq!(hash(5120, 8192), own(&file[5120..8192]), "the rest of the leaf is no node");
        assert_eq!(hash(4097, 8192), own(&file[4097..8192]));
        for start in [0, 4096, 5120] {
            assert_eq!(hash(start, start), own(b""), "no tree has a node without bytes");
        }
    }
}

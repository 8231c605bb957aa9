//! Digests of parts made into that of the whole, without reading it again.

use std::ops::Range;

use blake3::hazmat::{ChainingValue, Mode, merge_subtrees_non_root, merge_subtrees_root};

use super::{Algorithm, Digest, Hasher};

/// The digest of a whole from those of its parts, each with its length in bytes, in order and without gaps.
///
/// `None` when that is not possible: CRC32C and ADLER32 compose for parts of any lengths; BLAKE3 for parts of one length
/// that is a power of two of at least 1 KiB, the last not longer, each digest of [`Hasher::for_part`]; the others only
/// when there is one part, which is the whole.
pub fn compose(algorithm: Algorithm, parts: &[(Digest, u64)]) -> Option<Digest> {
    if parts.iter().any(|(digest, _)| digest.algorithm() != algorithm) {
        return None;
    }
    match (algorithm, parts) {
        (_, []) => Some(Hasher::new(algorithm).finish()),
        (_, [(digest, _)]) => (!digest.is_subtree()).then_some(*digest),
        (Algorithm::Crc32c, [first, rest @ ..]) => Some(fold(crc32c, first, rest)),
        (Algorithm::Adler32, [first, rest @ ..]) => Some(fold(adler32, first, rest)),
        (Algorithm::Blake3, _) => blake3(parts),
        _ => None,
    }
}

/// The same from parts that say where they lie, which must be all of 0 to `size` (`None`: wherever they end), in order.
pub fn compose_ranges(
    algorithm: Algorithm,
    parts: impl IntoIterator<Item = (Range<u64>, Option<Digest>)>,
    size: Option<u64>,
) -> Option<Digest> {
    let (mut known, mut at) = (Vec::new(), 0);
    for (range, digest) in parts {
        if range.start != at {
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

/// Of at least two parts.
fn blake3(parts: &[(Digest, u64)]) -> Option<Digest> {
    let (first, last) = (parts.first()?.1, parts.last()?.1);
    let (_, whole_parts) = parts.split_last()?;
    let equal = whole_parts.iter().all(|(_, len)| *len == first);
    let size_fits = first.is_power_of_two() && first >= blake3::CHUNK_LEN as u64;
    if !equal || !size_fits || last == 0 || last > first || !parts.iter().all(|(digest, _)| digest.is_subtree()) {
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

    /// The digests of a file's leaves, as parts.
    fn leaves(algorithm: Algorithm, file: &[u8], leaf: usize) -> Vec<(Digest, u64)> {
        let part = |(index, data): (usize, &[u8])| {
            let start = (index * leaf) as u64;
            let len = data.len() as u64;
            let mut hasher = Hasher::for_part(algorithm, &(start..start + len));
            hasher.update(data);
            (hasher.finish(), len)
        };
        file.chunks(leaf).enumerate().map(part).collect()
    }

    #[test]
    fn leaves_of_any_number_compose_to_the_digest_of_the_file() {
        let file = sample(100_000);
        for algorithm in [Algorithm::Crc32c, Algorithm::Adler32, Algorithm::Blake3] {
            for leaf in [1024, 4096, 8192, 32_768, 65_536] {
                for len in [leaf + 1, leaf + 1024, 2 * leaf - 1, 2 * leaf, 2 * leaf + 1, 3 * leaf, 90_000, 100_000] {
                    if len > file.len() || len <= leaf {
                        continue;
                    }
                    let whole = compose(algorithm, &leaves(algorithm, &file[..len], leaf));
                    let expected = algorithm.digest(&file[..len]);
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
        for algorithm in [Md5, Sha1, Sha256, Sha512, Xxh3_128] {
            assert_eq!(compose(algorithm, &leaves(algorithm, &file, 1024)), None, "{algorithm}");
        }
        let own = |data: &[u8]| (Blake3.digest(data), data.len() as u64);
        assert_eq!(compose(Blake3, &[own(&file[..1024]), own(&file[1024..2048])]), None, "digests, not nodes");
        assert_eq!(compose(Blake3, &leaves(Blake3, &file, 1536)), None, "leaves that are no power of two");
        let nodes = leaves(Blake3, &file, 1024);
        assert_eq!(compose(Blake3, &nodes[..1]), None, "a node is not a file's digest");
        assert_eq!(compose(Blake3, &[nodes[0], nodes[4], nodes[1]]), None, "a short part inside");
        assert_eq!(compose(Blake3, &[nodes[0], (nodes[1].0, 0)]), None, "a node without bytes");
        assert_eq!(compose(Crc32c, &[nodes[0], nodes[1]]), None, "another algorithm's");
    }

    #[test]
    fn a_part_that_got_no_bytes_has_a_digest_all_the_same() {
        for algorithm in Algorithm::ALL {
            assert_eq!(Hasher::for_part(algorithm, &(1024..2048)).finish(), algorithm.digest(b""), "{algorithm}");
        }
    }
}

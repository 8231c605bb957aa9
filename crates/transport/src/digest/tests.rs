use super::*;
use crate::cancel::Cancel;
use crate::pool::{Pool, PoolLimits};
use crate::progress::Progress;

/// Bytes in which no short run repeats.
pub(super) fn sample(len: usize) -> Vec<u8> {
    (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 19) as u8).collect()
}

#[test]
fn published_vectors_hold() {
    use Algorithm::*;
    let vectors: [(Algorithm, &[u8], &str); 16] = [
        // RFC 1321 §A.5
        (Md5, b"", "d41d8cd98f00b204e9800998ecf8427e"),
        (Md5, b"abc", "900150983cd24fb0d6963f7d28e17f72"),
        // zlib
        (Adler32, b"", "00000001"),
        (Adler32, b"Wikipedia", "11e60398"),
        // RFC 3720 §B.4: 32 bytes of zeros, of ones; and the check value of the catalogue
        (Crc32c, &[0; 32], "8a9136aa"),
        (Crc32c, &[0xff; 32], "62a8ab43"),
        (Crc32c, b"123456789", "e3069283"),
        // FIPS 180-4 examples
        (Sha1, b"abc", "a9993e364706816aba3e25717850c26c9cd0d89d"),
        (Sha1, b"", "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
        (Sha256, b"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        (Sha256, b"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
        (
            Sha512,
            b"abc",
            "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
             2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
        ),
        // BLAKE3 test_vectors.json, input length 0; and the well-known "abc"
        (Blake3, b"", "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"),
        (Blake3, b"abc", "6437b3ac38465133ffb63b75273a8db548c558465d79db03fd359c6cd5bd9d85"),
        // xxHash specification and reference program
        (Xxh3_128, b"", "99aa06d3014798d86001c324468d497f"),
        (Xxh3_128, b"abc", "06b05ab6733a618578af5f94892f3950"),
    ];
    for (algorithm, data, expected) in vectors {
        assert_eq!(algorithm.digest(data).to_string(), expected, "{algorithm} of {data:?}");
        assert_eq!(expected.len(), algorithm.hex_len(), "{algorithm}");
    }
}

#[test]
fn pieces_hash_like_the_whole() {
    let data: Vec<u8> = (0..100_000u32).map(|i| (i.wrapping_mul(i) >> 5) as u8).collect();
    for algorithm in Algorithm::ALL {
        let mut hasher = Hasher::new(algorithm);
        for piece in data.chunks(7777) {
            hasher.update(piece);
        }
        assert_eq!(hasher.finish_hex(), algorithm.digest(&data).to_string(), "{algorithm}");
    }
}

#[test]
fn adler32_agrees_with_its_definition_on_extreme_bytes() {
    let data = vec![0xffu8; 100_001];
    let (mut a, mut b) = (1u64, 0u64);
    for &byte in &data {
        a = (a + u64::from(byte)) % 65521;
        b = (b + a) % 65521;
    }
    let expected = format!("{:08x}", b << 16 | a);
    assert_eq!(Algorithm::Adler32.digest(&data).to_string(), expected);
}

#[test]
fn names_are_read_in_any_case_and_unknown_ones_refused() {
    assert_eq!("md5".parse::<Algorithm>().expect("md5"), Algorithm::Md5);
    assert_eq!("Sha-256".parse::<Algorithm>().expect("sha"), Algorithm::Sha256);
    for algorithm in Algorithm::ALL {
        assert_eq!(algorithm.name().parse::<Algorithm>().expect("own"), algorithm);
    }
    let fault = "crc7".parse::<Algorithm>().expect_err("unknown");
    assert_eq!(fault.code, FaultCode::NotSupported);
}

#[test]
fn a_range_is_hashed_alone_and_must_exist() {
    let limits = PoolLimits { buffer_size: 4096, ..PoolLimits::default() };
    let pool = Pool::new(limits).expect("pool");
    let (progress, cancel) = (Progress::new(), Cancel::new().expect("cancel"));
    let data: Vec<u8> = (0..20_000u32).map(|i| i as u8).collect();
    let hash = |range| hash_source(Algorithm::Md5, &data, range, &pool, &progress, &cancel);
    let part = hash(Some(5000..15_000)).expect("inside");
    assert_eq!(part, Algorithm::Md5.digest(&data[5000..15_000]).to_string());
    assert_eq!(progress.bytes(), 10_000);
    assert_eq!(hash(None).expect("all"), Algorithm::Md5.digest(&data).to_string());
    let fault = hash(Some(0..20_001)).expect_err("too long");
    assert_eq!(fault.code, FaultCode::SourceChanged);
}

#[test]
fn a_range_that_is_a_leaf_has_the_digest_of_the_leaf_and_any_other_its_own() {
    const LEAF: u64 = 4096;
    let of = |mut hasher: Hasher, len: u64| {
        hasher.update(&vec![7; len as usize]);
        hasher.finish_hex()
    };
    // The last one may be short, of a size that is no power of two.
    for (start, len) in [(0, LEAF), (LEAF, LEAF), (3 * LEAF, LEAF), (3 * LEAF, 1500), (5 * LEAF, 1)] {
        for algorithm in [Algorithm::Blake3Tree, Algorithm::Md5] {
            let range = of(Hasher::for_range(algorithm, &(start..start + len)), len);
            assert_eq!(range, of(Hasher::for_leaf(algorithm, start, LEAF), len), "{start} {len} {algorithm:?}");
        }
    }
    for (start, len) in [(3072, 2048), (1, 5), (0, 0), (512, 512)] {
        let range = of(Hasher::for_range(Algorithm::Blake3Tree, &(start..start + len)), len);
        assert_eq!(range, of(Hasher::new(Algorithm::Blake3), len), "{start} {len}");
    }
}

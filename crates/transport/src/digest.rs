//! Checksums: names as on the wire, streaming, in the wire's hexadecimal form.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use whimbrel_engine::{Fault, FaultCode};

use crate::block::BlockSource;
use crate::cancel::Cancel;
use crate::pool::{Class, Pool};
use crate::progress::Progress;

/// A checksum algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// RFC 1321.
    Md5,
    /// RFC 1950 §8; eight hexadecimal digits, as the stock server prints it.
    Adler32,
    /// RFC 3720 §12.1 (Castagnoli).
    Crc32c,
    /// FIPS 180-4.
    Sha1,
    /// FIPS 180-4.
    Sha256,
    /// FIPS 180-4.
    Sha512,
    /// BLAKE3, 256 bits.
    Blake3,
    /// XXH3, 128 bits, seed 0, canonical (big-endian) form.
    Xxh3_128,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Algorithm; 8] =
        [Self::Md5, Self::Adler32, Self::Crc32c, Self::Sha1, Self::Sha256, Self::Sha512, Self::Blake3, Self::Xxh3_128];

    /// The name on the wire, as in `CKSM MD5`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Md5 => "MD5",
            Self::Adler32 => "ADLER32",
            Self::Crc32c => "CRC32C",
            Self::Sha1 => "SHA1",
            Self::Sha256 => "SHA256",
            Self::Sha512 => "SHA512",
            Self::Blake3 => "BLAKE3",
            Self::Xxh3_128 => "XXH3-128",
        }
    }

    /// Digits in the hexadecimal form.
    pub fn hex_len(self) -> usize {
        match self {
            Self::Adler32 | Self::Crc32c => 8,
            Self::Md5 | Self::Xxh3_128 => 32,
            Self::Sha1 => 40,
            Self::Sha256 | Self::Blake3 => 64,
            Self::Sha512 => 128,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Algorithm {
    type Err = Fault;

    /// Any case; `SHA-256` and `XXH3` are understood too. Others: `NotSupported`.
    fn from_str(name: &str) -> Result<Self, Fault> {
        let plain = |name: &str| name.replace(['-', '_'], "").to_ascii_uppercase();
        let wanted = plain(name);
        let found = Self::ALL
            .into_iter()
            .find(|algorithm| plain(algorithm.name()) == wanted || (*algorithm == Self::Xxh3_128 && wanted == "XXH3"));
        found.ok_or_else(|| Fault::new(FaultCode::NotSupported, "checksum").subject(name))
    }
}

/// A running checksum.
pub struct Hasher {
    algorithm: Algorithm,
    state: State,
}

enum State {
    Md5(md5::Md5),
    Adler32(Adler32),
    Crc32c(crc_fast::Digest),
    Sha1(sha1::Sha1),
    Sha256(sha2::Sha256),
    Sha512(sha2::Sha512),
    Blake3(Box<blake3::Hasher>),
    Xxh3(Box<xxhash_rust::xxh3::Xxh3>),
}

impl Hasher {
    /// Nothing hashed yet.
    pub fn new(algorithm: Algorithm) -> Self {
        use md5::Digest as _;
        let state = match algorithm {
            Algorithm::Md5 => State::Md5(md5::Md5::new()),
            Algorithm::Adler32 => State::Adler32(Adler32::default()),
            Algorithm::Crc32c => State::Crc32c(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi)),
            Algorithm::Sha1 => State::Sha1(sha1::Sha1::new()),
            Algorithm::Sha256 => State::Sha256(sha2::Sha256::new()),
            Algorithm::Sha512 => State::Sha512(sha2::Sha512::new()),
            Algorithm::Blake3 => State::Blake3(Box::new(blake3::Hasher::new())),
            Algorithm::Xxh3_128 => State::Xxh3(Box::new(xxhash_rust::xxh3::Xxh3::new())),
        };
        Self { algorithm, state }
    }

    /// Which checksum this is.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Hashes the next bytes.
    pub fn update(&mut self, data: &[u8]) {
        use md5::Digest as _;
        match &mut self.state {
            State::Md5(state) => state.update(data),
            State::Adler32(state) => state.update(data),
            State::Crc32c(state) => state.update(data),
            State::Sha1(state) => state.update(data),
            State::Sha256(state) => state.update(data),
            State::Sha512(state) => state.update(data),
            State::Blake3(state) => {
                state.update(data);
            }
            State::Xxh3(state) => state.update(data),
        }
    }

    /// The checksum in lower-case hexadecimal digits, leading zeros kept.
    pub fn finish_hex(self) -> String {
        use md5::Digest as _;
        match self.state {
            State::Md5(state) => hex(&state.finalize()),
            State::Adler32(state) => format!("{:08x}", state.value()),
            State::Crc32c(state) => format!("{:08x}", state.finalize()),
            State::Sha1(state) => hex(&state.finalize()),
            State::Sha256(state) => hex(&state.finalize()),
            State::Sha512(state) => hex(&state.finalize()),
            State::Blake3(state) => hex(state.finalize().as_bytes()),
            State::Xxh3(state) => format!("{:032x}", state.digest128()),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

/// Two sums modulo 65521 (RFC 1950 §8).
struct Adler32 {
    a: u32,
    b: u32,
}

impl Default for Adler32 {
    fn default() -> Self {
        Self { a: 1, b: 0 }
    }
}

impl Adler32 {
    const MODULUS: u32 = 65521;
    /// Most bytes before `b` can overflow 32 bits.
    const RUN: usize = 5552;
    /// Bytes summed side by side, which lets the compiler use vector registers.
    const LANES: usize = 32;

    fn update(&mut self, data: &[u8]) {
        for run in data.chunks(Self::RUN / Self::LANES * Self::LANES) {
            let mut lines = run.chunks_exact(Self::LANES);
            for line in &mut lines {
                let (mut sum, mut weighted) = (0u32, 0u32);
                for (i, &byte) in line.iter().enumerate() {
                    sum += u32::from(byte);
                    weighted += u32::from(byte) * (Self::LANES - i) as u32;
                }
                self.b += self.a * Self::LANES as u32 + weighted;
                self.a += sum;
            }
            for &byte in lines.remainder() {
                self.a += u32::from(byte);
                self.b += self.a;
            }
            self.a %= Self::MODULUS;
            self.b %= Self::MODULUS;
        }
    }

    fn value(&self) -> u32 {
        self.b << 16 | self.a
    }
}

/// Hashes `range` of `source` (`None`: all of it), counting bytes in `progress`.
///
/// Uses one buffer of the send class, so the caller must hold none. Fails with `SourceChanged` when
/// the source ends inside the range.
pub fn hash_source(
    algorithm: Algorithm,
    source: &dyn BlockSource,
    range: Option<Range<u64>>,
    pool: &Pool,
    progress: &Progress,
    cancel: &Cancel,
) -> Result<String, Fault> {
    let mut hasher = Hasher::new(algorithm);
    let (mut at, end) = range.as_ref().map_or((0, u64::MAX), |range| (range.start, range.end));
    let mut buffer = pool.acquire(Class::Send, cancel)?;
    while at < end {
        cancel.check("checksum")?;
        let want = buffer.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
        let read = source.read_at(at, &mut buffer[..want])?;
        if read == 0 {
            break;
        }
        hasher.update(&buffer[..read]);
        at += read as u64;
        progress.add_bytes(read as u64);
    }
    if range.is_some() && at < end {
        let detail = format!("it ends at {at}, inside the range asked for");
        return Err(Fault::new(FaultCode::SourceChanged, "checksum").detail(detail));
    }
    Ok(hasher.finish_hex())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::PoolLimits;

    fn digest(algorithm: Algorithm, data: &[u8]) -> String {
        let mut hasher = Hasher::new(algorithm);
        hasher.update(data);
        hasher.finish_hex()
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
            assert_eq!(digest(algorithm, data), expected, "{algorithm} of {data:?}");
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
            assert_eq!(hasher.finish_hex(), digest(algorithm, &data), "{algorithm}");
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
        assert_eq!(digest(Algorithm::Adler32, &data), expected);
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
        assert_eq!(part, digest(Algorithm::Md5, &data[5000..15_000]));
        assert_eq!(progress.bytes(), 10_000);
        assert_eq!(hash(None).expect("all"), digest(Algorithm::Md5, &data));
        let fault = hash(Some(0..20_001)).expect_err("too long");
        assert_eq!(fault.code, FaultCode::SourceChanged);
    }
}

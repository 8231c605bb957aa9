//! Checksums: names as on the wire, streaming, in the wire's hexadecimal form; of one stream, or of the leaves of a
//! chunk side by side, and composed to that of the whole.

mod compose;
mod hasher;
mod lanes;
mod source;
#[cfg(test)]
mod tests;
mod value;

pub use compose::{compose, compose_ranges};
pub use hasher::Hasher;
pub use lanes::LaneDigests;
pub use source::hash_source;
pub use value::Digest;

use std::fmt;
use std::str::FromStr;

use whimbrel_engine::{Fault, FaultCode};
use whimbrel_sys::md5lanes;

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
    /// Of a leaf, its node in the BLAKE3 tree of its file, from which that file's BLAKE3 is [composed](compose); of
    /// anything else, its own BLAKE3.
    Blake3Tree,
    /// XXH3, 128 bits, seed 0, canonical (big-endian) form.
    Xxh3_128,
}

impl Algorithm {
    /// All that files have checksums of.
    pub const ALL: [Algorithm; 8] =
        [Self::Md5, Self::Adler32, Self::Crc32c, Self::Sha1, Self::Sha256, Self::Sha512, Self::Blake3, Self::Xxh3_128];

    /// What it composes to, or else itself: of this algorithm a whole file has a checksum.
    pub fn of_file(self) -> Self {
        if self == Self::Blake3Tree { Self::Blake3 } else { self }
    }

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
            Self::Blake3Tree => "BLAKE3-TREE",
            Self::Xxh3_128 => "XXH3-128",
        }
    }

    /// The checksum of bytes that are all there; it prints as hexadecimal digits.
    pub fn digest(self, data: &[u8]) -> Digest {
        let mut hasher = Hasher::new(self);
        hasher.update(data);
        hasher.finish()
    }

    /// Digits in the hexadecimal form.
    pub fn hex_len(self) -> usize {
        self.byte_len() * 2
    }

    /// Bytes of a digest; at most 64.
    pub fn byte_len(self) -> usize {
        match self {
            Self::Adler32 | Self::Crc32c => 4,
            Self::Md5 | Self::Xxh3_128 => 16,
            Self::Sha1 => 20,
            Self::Sha256 | Self::Blake3 | Self::Blake3Tree => 32,
            Self::Sha512 => 64,
        }
    }

    /// Leaves beyond which walking more at once makes hashing no faster: 16 for MD5, whose single stream leaves a
    /// processor idle (8 reach over half of that speed), 1 for the others.
    pub fn useful_lanes(self) -> usize {
        if self == Self::Md5 { md5lanes::MAX_LANES } else { 1 }
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
            .chain([Self::Blake3Tree])
            .find(|algorithm| plain(algorithm.name()) == wanted || (*algorithm == Self::Xxh3_128 && wanted == "XXH3"));
        found.ok_or_else(|| Fault::new(FaultCode::NotSupported, "checksum").subject(name))
    }
}

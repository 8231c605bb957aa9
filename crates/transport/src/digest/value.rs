//! A digest as a value: bytes, and the wire's hexadecimal form.

use std::fmt;

use super::Algorithm;

/// A finished checksum of one algorithm, in canonical byte order; shown in lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest {
    algorithm: Algorithm,
    /// Zero beyond the algorithm's length, so that equality is that of the digests.
    bytes: [u8; 64],
}

impl Digest {
    /// The digest with these bytes; `None` when the algorithm's digests have another length.
    pub fn from_bytes(algorithm: Algorithm, digest: &[u8]) -> Option<Self> {
        (digest.len() == algorithm.byte_len()).then(|| Self::new(algorithm, digest))
    }

    /// The digest in hexadecimal digits of either case; `None` for anything else and for another length.
    pub fn from_hex(algorithm: Algorithm, digits: &[u8]) -> Option<Self> {
        if digits.len() != algorithm.hex_len() {
            return None;
        }
        let nibble = |digit: u8| char::from(digit).to_digit(16);
        let mut bytes = [0; 64];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = (nibble(pair[0])? << 4 | nibble(pair[1])?) as u8;
        }
        Some(Self { algorithm, bytes })
    }

    /// The algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Its bytes, the most significant first.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.algorithm.byte_len()]
    }

    /// `digest` has the algorithm's length.
    pub(super) fn new(algorithm: Algorithm, digest: &[u8]) -> Self {
        let mut bytes = [0; 64];
        bytes[..digest.len()].copy_from_slice(digest);
        Self { algorithm, bytes }
    }

    /// The number that a digest of 32 bits is.
    pub(super) fn as_u32(&self) -> u32 {
        let [a, b, c, d, ..] = self.bytes;
        u32::from_be_bytes([a, b, c, d])
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{self}", self.algorithm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_read_in_either_case_and_written_in_lower_case() {
        let digest = Digest::from_hex(Algorithm::Crc32c, b"00c0FFee").expect("eight digits");
        assert_eq!(digest.as_bytes(), [0, 0xc0, 0xff, 0xee]);
        assert_eq!(digest.to_string(), "00c0ffee");
        assert_eq!(Digest::from_bytes(Algorithm::Crc32c, digest.as_bytes()), Some(digest));
    }

    #[test]
    fn other_lengths_and_other_characters_are_no_digest() {
        for text in ["", "0", "00c0ffe", "00c0ffee0", "00c0ffeg", "+0c0ffee", "00c0ff\u{e9}"] {
            assert_eq!(Digest::from_hex(Algorithm::Crc32c, text.as_bytes()), None, "{text}");
        }
        assert_eq!(Digest::from_bytes(Algorithm::Md5, &[0; 15]), None);
    }
}

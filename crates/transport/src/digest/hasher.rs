//! A running checksum of one stream.

use std::ops::Range;

use blake3::hazmat::{HasherExt as _, max_subtree_len};
use sha2::Digest as _;
use whimbrel_proto::leaf;
use whimbrel_sys::md5lanes::Md5;

use super::{Algorithm, Digest};

/// A running checksum.
pub struct Hasher {
    algorithm: Algorithm,
    state: State,
    /// A BLAKE3 tree node: the bytes are a part of a larger whole.
    is_node: bool,
    bytes: u64,
}

enum State {
    Md5(Box<Md5>),
    Adler32(simd_adler32::Adler32),
    Crc32c(crc_fast::Digest),
    Sha1(sha1::Sha1),
    Sha256(sha2::Sha256),
    Sha512(Box<sha2::Sha512>),
    Blake3(Box<blake3::Hasher>),
    Xxh3(Box<xxhash_rust::xxh3::Xxh3>),
}

impl Hasher {
    /// Nothing hashed yet.
    pub fn new(algorithm: Algorithm) -> Self {
        let state = match algorithm {
            Algorithm::Md5 => State::Md5(Box::new(Md5::new())),
            Algorithm::Adler32 => State::Adler32(simd_adler32::Adler32::new()),
            Algorithm::Crc32c => State::Crc32c(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi)),
            Algorithm::Sha1 => State::Sha1(sha1::Sha1::new()),
            Algorithm::Sha256 => State::Sha256(sha2::Sha256::new()),
            Algorithm::Sha512 => State::Sha512(Box::new(sha2::Sha512::new())),
            Algorithm::Blake3 | Algorithm::Blake3Tree => State::Blake3(Box::new(blake3::Hasher::new())),
            Algorithm::Xxh3_128 => State::Xxh3(Box::new(xxhash_rust::xxh3::Xxh3::new())),
        };
        Self { algorithm, state, is_node: false, bytes: 0 }
    }

    /// For the leaf, or the part of one, that begins at byte `start` of a file whose leaves have `size` bytes (a power of
    /// two), so that the digests of leaves can be [composed](super::compose_ranges).
    ///
    /// Differs from [`new`](Self::new) for [`Algorithm::Blake3Tree`] only: where the bytes up to the end of the leaf can
    /// be a node of the file's tree, the digest is that node's; from the start of a leaf of at least 1 KiB they always can.
    /// It follows from place and size alone, so that both ends agree.
    pub fn for_leaf(algorithm: Algorithm, start: u64, size: u64) -> Self {
        let mut hasher = Self::new(algorithm);
        if algorithm == Algorithm::Blake3Tree
            && let State::Blake3(state) = &mut hasher.state
            && start.is_multiple_of(blake3::CHUNK_LEN as u64)
            && max_subtree_len(start).is_none_or(|most| leaf::border(start, size) - start <= most)
        {
            state.set_input_offset(start);
            hasher.is_node = true;
        }
        hasher
    }

    /// For `range` of a file, taken for a leaf.
    ///
    /// Leaves begin at multiples of their length, so place and length tell whether it can be a node, however long leaves are;
    /// what can be none has its own digest.
    pub fn for_range(algorithm: Algorithm, range: &Range<u64>) -> Self {
        let size = range.end.saturating_sub(range.start).checked_next_power_of_two();
        match size.filter(|size| !range.is_empty() && range.start.is_multiple_of(*size)) {
            Some(size) => Self::for_leaf(algorithm, range.start, size),
            None => Self::new(algorithm),
        }
    }

    /// Which checksum this is.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Bytes hashed so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Hashes the next bytes; panics when a leaf gets more bytes than it has.
    pub fn update(&mut self, data: &[u8]) {
        self.bytes += data.len() as u64;
        match &mut self.state {
            State::Md5(state) => state.update(data),
            State::Adler32(state) => state.write(data),
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

    /// The checksum of the bytes so far.
    pub fn finish(self) -> Digest {
        let new = |bytes: &[u8]| Digest::new(self.algorithm, bytes);
        match self.state {
            State::Md5(state) => new(&state.finish()),
            State::Adler32(state) => new(&state.finish().to_be_bytes()),
            State::Crc32c(state) => new(&(state.finalize() as u32).to_be_bytes()),
            State::Sha1(state) => new(&state.finalize()),
            State::Sha256(state) => new(&state.finalize()),
            State::Sha512(state) => new(&state.finalize()),
            // No tree has a node without bytes.
            State::Blake3(_) if self.is_node && self.bytes == 0 => Self::new(self.algorithm).finish(),
            State::Blake3(state) if self.is_node => new(&state.finalize_non_root()),
            State::Blake3(state) => new(state.finalize().as_bytes()),
            State::Xxh3(state) => new(&state.digest128().to_be_bytes()),
        }
    }

    /// The checksum in lower-case hexadecimal digits, leading zeros kept.
    pub fn finish_hex(self) -> String {
        self.finish().to_string()
    }
}

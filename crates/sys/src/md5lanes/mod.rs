//! MD5 (RFC 1321) of several streams at once.
//!
//! Each step of MD5 waits for the one before, so that one stream leaves most of a processor idle. Streams that are
//! independent (the leaves of a chunk) advance side by side in the lanes of vector registers, 8 or 16 at a time; their
//! pieces may have any lengths. What was tried and measured: `docs/design/hashing.md`.

mod kernel;
mod rounds;
#[cfg(test)]
mod tests;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use kernel::Kernel;

use rounds::{BLOCK, INITIAL};

/// Streams that one step of the widest kernel takes: more than this many at once gain nothing.
pub const MAX_LANES: usize = rounds::WIDEST;

/// A running MD5 of one stream.
#[derive(Clone)]
pub struct Md5 {
    state: [u32; 4],
    /// Bytes so far; the last `len % 64` of them are in `tail` and not yet in `state`.
    len: u64,
    tail: [u8; BLOCK],
}

impl Default for Md5 {
    fn default() -> Self {
        Self { state: INITIAL, len: 0, tail: [0; BLOCK] }
    }
}

impl Md5 {
    /// Nothing hashed yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes hashed so far.
    pub fn bytes(&self) -> u64 {
        self.len
    }

    /// Hashes the next bytes of this stream alone.
    pub fn update(&mut self, data: &[u8]) {
        Kernel::PORTABLE.update(std::slice::from_mut(self), &[data]);
    }

    /// The digest of the bytes so far.
    pub fn finish(mut self) -> [u8; 16] {
        let bits = self.len.wrapping_mul(8);
        let used = self.tail_len();
        // A one bit, then zeros up to 8 bytes before the end of a block, then the length (RFC 1321 §3.1, §3.2).
        let zeros = (BLOCK * 2 - 9 - used) % BLOCK;
        let mut padding = [0; BLOCK * 2];
        padding[0] = 0x80;
        padding[zeros + 1..zeros + 9].copy_from_slice(&bits.to_le_bytes());
        self.update(&padding[..zeros + 9]);
        let mut digest = [0; 16];
        for (bytes, word) in digest.chunks_exact_mut(4).zip(self.state) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        digest
    }

    fn tail_len(&self) -> usize {
        (self.len % BLOCK as u64) as usize
    }

    /// Takes bytes that complete a block begun earlier; returns those after it.
    fn fill_tail<'a>(&mut self, data: &'a [u8]) -> &'a [u8] {
        let used = self.tail_len();
        if used == 0 {
            return data;
        }
        let (taken, rest) = data.split_at(data.len().min(BLOCK - used));
        self.tail[used..used + taken.len()].copy_from_slice(taken);
        self.len += taken.len() as u64;
        if self.tail_len() == 0 && !taken.is_empty() {
            kernel::one_block(&mut self.state, &self.tail);
        }
        rest
    }

    /// Keeps bytes that begin a block: fewer than 64, and none at all while an earlier block lacks bytes.
    fn keep_tail(&mut self, data: &[u8]) {
        let used = self.tail_len();
        self.tail[used..used + data.len()].copy_from_slice(data);
        self.len += data.len() as u64;
    }
}

/// Hashes the next bytes of several streams, `data[i]` for `streams[i]`, with the fastest kernel of this processor.
///
/// Fastest when 8 or 16 pieces have equal lengths and each stream's earlier bytes filled whole blocks of 64; no data may
/// be empty slices. The two slices must be of one length, else it panics.
pub fn update(streams: &mut [Md5], data: &[&[u8]]) {
    Kernel::best().update(streams, data);
}

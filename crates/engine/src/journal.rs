//! The journal of a file that is written in chunks: which of its leaves are proven.
//!
//! A sequence of records, each with its CRC32C: a [`Header`] that says which version of which source
//! is meant, then proven leaves as they come. Bytes are only ever appended, so a crash can tear the
//! end and nothing else; the first record that is torn or wrong ends what is trusted, whatever
//! follows. Writing, syncing and removing the bytes is the storage's part.
//!
//! Whoever writes says so before the first byte, and a leaf counts only when all who began to write it have proven it: what was
//! proven says nothing of what somebody has written there since. See [`Reading`].
//!
//! A record: kind (1 byte), length of the body (2), body, CRC32C of all of these (4). A header's
//! body: magic (8), version (2), size (8), time known (1), seconds (8), nanoseconds (4), leaf length
//! (8), algorithm. A leaf's body: start (8), end (8), writer (8), digest. A hole's body: start (8), end
//! (8), of one or more leaves that hold nothing, writer (8). A beginning's: start (8), end (8), of one
//! or more leaves, writer (8), whether it is alone (1). Numbers are little-endian.

mod reading;
#[cfg(test)]
mod tests;

use std::ops::Range;

pub use self::reading::{Reading, decode};
use crate::ranges::RangeSet;
use crate::records;

const MAGIC: &[u8; 8] = b"whimjrnl";
const VERSION: u16 = 2;

const HEADER: u8 = 1;
const LEAF: u8 = 2;
const HOLE: u8 = 3;
const BEGINNING: u8 = 4;

/// Of a header's body, without the algorithm.
const HEADER_FIXED: usize = 39;

/// Longest name of an algorithm, bytes.
pub const ALGORITHM_MAX: usize = 64;
/// Longest digest, bytes (that of SHA-512).
pub const DIGEST_MAX: usize = 64;
/// Longest journal, bytes. A file has 65,536 leaves at most, since a reply names no more: with the longest digests their records are
/// 6.2 MB, and with a beginning of each alone 8.3 MB. A leaf has more of them only where it was moved again, so several times as much is
/// more than anybody writes; whoever reads a journal holds it in memory.
pub const LONGEST: u64 = 64 << 20;

/// What the leaves of a journal are about: one version of one source, cut and hashed in one way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Size of the source, bytes.
    pub size: u64,
    /// Modification time of the source, seconds since 1970-01-01 UTC and nanoseconds.
    pub modified: Option<(i64, u32)>,
    /// Bytes of a leaf; the last one of a file may be shorter. At least 1.
    pub leaf: u64,
    /// Algorithm of the digests, 1 to [`ALGORITHM_MAX`] bytes.
    pub algorithm: String,
}

/// Who writes to a file: one login, on all nodes that it has. No two have the same number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Writer(pub u64);

impl Writer {
    /// Of a file to which nobody else writes.
    pub const ONLY: Self = Self(0);
}

/// A proven leaf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaf {
    /// Offsets in the file, end exclusive.
    pub range: Range<u64>,
    /// Its digest, 1 to [`DIGEST_MAX`] bytes.
    pub digest: Vec<u8>,
}

/// What a journal says as far as it can be trusted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trusted {
    /// `None`: nothing is known.
    pub header: Option<Header>,
    /// Ascending, each once: the last record of a leaf counts.
    pub leaves: Vec<Leaf>,
    /// Whether records of one leaf have different digests.
    ///
    /// Then two sources of the same size and time were stored in one file at once, each proven by itself, and nobody knows whose bytes
    /// are there. A leaf that is moved again has the digest that it had.
    pub disputed: bool,
    /// What was made a hole as it is in the source.
    pub holes: RangeSet,
    /// Leaves that were proven and do not count, because somebody has begun to write them and has not proven them since; ascending.
    pub withdrawn: Vec<Leaf>,
    /// The same of holes.
    pub filled: RangeSet,
    /// Length of the trusted part, bytes.
    pub sound: usize,
    /// Whether anything follows the trusted part.
    pub torn: bool,
}

impl Trusted {
    /// What of the file is not proven; nothing is when there is no header.
    pub fn missing(&self) -> RangeSet {
        let size = self.header.as_ref().map_or(u64::MAX, |header| header.size);
        let mut proven: RangeSet = self.leaves.iter().map(|leaf| leaf.range.clone()).collect();
        proven.union_with(&self.holes);
        proven.missing(0..size)
    }
}

impl Header {
    /// Whether `range` is a whole leaf of the file.
    pub fn is_leaf(&self, range: &Range<u64>) -> bool {
        let end = range.start.saturating_add(self.leaf).min(self.size);
        range.start < self.size && range.start.is_multiple_of(self.leaf) && range.end == end
    }

    /// Whether `range` is made of whole leaves of the file, one at least.
    pub fn is_leaves(&self, range: &Range<u64>) -> bool {
        let ends = range.end == self.size || (range.end < self.size && range.end.is_multiple_of(self.leaf));
        !range.is_empty() && range.start.is_multiple_of(self.leaf) && ends
    }

    /// The leaves that have a byte of `range`; none where it is empty, or begins behind the file's end.
    pub fn leaves_of(&self, range: &Range<u64>) -> Range<u64> {
        let start = range.start / self.leaf * self.leaf;
        let end = range.end.div_ceil(self.leaf).saturating_mul(self.leaf).min(self.size);
        if range.is_empty() || start >= end { start..start } else { start..end }
    }

    fn is_valid(&self) -> bool {
        self.leaf > 0 && (1..=ALGORITHM_MAX).contains(&self.algorithm.len())
    }
}

/// The record a journal begins with; `None` for a header that breaks its bounds.
pub fn encode_header(header: &Header) -> Option<Vec<u8>> {
    if !header.is_valid() {
        return None;
    }
    let (seconds, nanoseconds) = header.modified.unwrap_or_default();
    let mut body = Vec::with_capacity(HEADER_FIXED + header.algorithm.len());
    body.extend_from_slice(MAGIC);
    body.extend_from_slice(&VERSION.to_le_bytes());
    body.extend_from_slice(&header.size.to_le_bytes());
    body.push(u8::from(header.modified.is_some()));
    body.extend_from_slice(&seconds.to_le_bytes());
    body.extend_from_slice(&nanoseconds.to_le_bytes());
    body.extend_from_slice(&header.leaf.to_le_bytes());
    body.extend_from_slice(header.algorithm.as_bytes());
    let mut bytes = Vec::new();
    records::append(HEADER, &body, &mut bytes);
    Some(bytes)
}

/// Records of leaves that `writer` has proven, to be appended in one piece.
///
/// `None` when one is no leaf of the file that `header` describes, or its digest breaks its bounds.
pub fn encode_leaves(header: &Header, leaves: &[Leaf], writer: Writer) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for leaf in leaves {
        if !header.is_leaf(&leaf.range) || !(1..=DIGEST_MAX).contains(&leaf.digest.len()) {
            return None;
        }
        records::append(LEAF, &body(&leaf.range, writer, &leaf.digest), &mut bytes);
    }
    Some(bytes)
}

/// Records of holes that `writer` has made, to be appended in one piece; `None` when one is not made of whole leaves of the file.
pub fn encode_holes(header: &Header, holes: &[Range<u64>], writer: Writer) -> Option<Vec<u8>> {
    spans(header, holes, |range| (HOLE, body(range, writer, &[])))
}

/// Records that say that `writer` begins to write these leaves, to be appended in one piece before the first byte.
///
/// `alone`: whatever others have begun there is over. `None` when one is not made of whole leaves of the file.
pub fn encode_beginnings(header: &Header, parts: &[Range<u64>], writer: Writer, alone: bool) -> Option<Vec<u8>> {
    spans(header, parts, |range| (BEGINNING, body(range, writer, &[u8::from(alone)])))
}

fn spans(header: &Header, ranges: &[Range<u64>], record: impl Fn(&Range<u64>) -> (u8, Vec<u8>)) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for range in ranges {
        if !header.is_leaves(range) {
            return None;
        }
        let (kind, body) = record(range);
        records::append(kind, &body, &mut bytes);
    }
    Some(bytes)
}

fn body(range: &Range<u64>, writer: Writer, rest: &[u8]) -> Vec<u8> {
    [&range.start.to_le_bytes(), &range.end.to_le_bytes(), &writer.0.to_le_bytes(), rest].concat()
}

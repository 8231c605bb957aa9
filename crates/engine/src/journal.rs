//! The journal of a file that is written in chunks: which of its leaves are proven.
//!
//! A sequence of records, each with its CRC32C: a [`Header`] that says which version of which source
//! is meant, then proven leaves as they come. Bytes are only ever appended, so a crash can tear the
//! end and nothing else; the first record that is torn or wrong ends what is trusted, whatever
//! follows. Writing, syncing and removing the bytes is the storage's part.
//!
//! A record: kind (1 byte), length of the body (2), body, CRC32C of all of these (4). A header's
//! body: magic (8), version (2), size (8), time known (1), seconds (8), nanoseconds (4), leaf length
//! (8), algorithm. A leaf's body: start (8), end (8), digest. A hole's body: start (8), end (8), of one
//! or more leaves that hold nothing. Numbers are little-endian.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Range;

use crate::ranges::RangeSet;
use crate::records;

const MAGIC: &[u8; 8] = b"whimjrnl";
const VERSION: u16 = 1;

const HEADER: u8 = 1;
const LEAF: u8 = 2;
const HOLE: u8 = 3;

/// Of a header's body, without the algorithm.
const HEADER_FIXED: usize = 39;
/// Of a leaf's body, without the digest.
const LEAF_FIXED: usize = 16;

/// Longest name of an algorithm, bytes.
pub const ALGORITHM_MAX: usize = 64;
/// Longest digest, bytes (that of SHA-512).
pub const DIGEST_MAX: usize = 64;
/// Longest journal, bytes. A file has 65,536 leaves at most, since a reply names no more: with the longest digests their records are
/// 5.7 MB. A leaf has another record only where the answer to the first was lost, so ten times as much is more than anybody writes;
/// whoever reads a journal holds it in memory.
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

/// Records of proven leaves, to be appended in one piece.
///
/// `None` when one is no leaf of the file that `header` describes, or its digest breaks its bounds.
pub fn encode_leaves(header: &Header, leaves: &[Leaf]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut body = Vec::new();
    for leaf in leaves {
        if !header.is_leaf(&leaf.range) || !(1..=DIGEST_MAX).contains(&leaf.digest.len()) {
            return None;
        }
        body.clear();
        body.extend_from_slice(&leaf.range.start.to_le_bytes());
        body.extend_from_slice(&leaf.range.end.to_le_bytes());
        body.extend_from_slice(&leaf.digest);
        records::append(LEAF, &body, &mut bytes);
    }
    Some(bytes)
}

/// Records of holes, to be appended in one piece; `None` when one is not made of whole leaves of the file.
pub fn encode_holes(header: &Header, holes: &[Range<u64>]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for hole in holes {
        if !header.is_leaves(hole) {
            return None;
        }
        records::append(HOLE, &[hole.start.to_le_bytes(), hole.end.to_le_bytes()].concat(), &mut bytes);
    }
    Some(bytes)
}

/// Reads a journal up to the first record that is torn or wrong.
///
/// A repeated header is harmless (two hosts may open a file at once); a different one is wrong.
pub fn decode(bytes: &[u8]) -> Trusted {
    let mut trusted = Trusted::default();
    let mut leaves = BTreeMap::new();
    let mut rest = bytes;
    while let Some((kind, body, after)) = records::next(rest) {
        let good = match (kind, &trusted.header) {
            (HEADER, None) => {
                trusted.header = decode_header(body);
                trusted.header.is_some()
            }
            (HEADER, Some(header)) => decode_header(body).as_ref() == Some(header),
            (LEAF, Some(header)) => match decode_leaf(header, body) {
                Some(leaf) => {
                    let known: Option<&Leaf> = leaves.get(&leaf.range.start);
                    trusted.disputed |= known.is_some_and(|known| known.digest != leaf.digest);
                    leaves.insert(leaf.range.start, leaf);
                    true
                }
                None => false,
            },
            (HOLE, Some(header)) => match decode_hole(header, body) {
                Some(hole) => {
                    trusted.holes.insert(hole);
                    true
                }
                None => false,
            },
            _ => false,
        };
        if !good {
            break;
        }
        rest = after;
    }
    trusted.leaves = leaves.into_values().collect();
    trusted.sound = bytes.len() - rest.len();
    trusted.torn = !rest.is_empty();
    trusted
}

fn decode_header(body: &[u8]) -> Option<Header> {
    let (fixed, algorithm) = body.split_first_chunk::<HEADER_FIXED>()?;
    let (magic, fixed) = fixed.split_first_chunk::<8>()?;
    let (version, fixed) = fixed.split_first_chunk::<2>()?;
    let (size, fixed) = fixed.split_first_chunk::<8>()?;
    let (known, fixed) = fixed.split_first_chunk::<1>()?;
    let (seconds, fixed) = fixed.split_first_chunk::<8>()?;
    let (nanoseconds, fixed) = fixed.split_first_chunk::<4>()?;
    let leaf = fixed.first_chunk::<8>()?;
    if magic != MAGIC || u16::from_le_bytes(*version) != VERSION || known[0] > 1 {
        return None;
    }
    let modified = (i64::from_le_bytes(*seconds), u32::from_le_bytes(*nanoseconds));
    let header = Header {
        size: u64::from_le_bytes(*size),
        modified: (known[0] == 1).then_some(modified),
        leaf: u64::from_le_bytes(*leaf),
        algorithm: String::from_utf8(algorithm.to_vec()).ok()?,
    };
    header.is_valid().then_some(header)
}

fn decode_leaf(header: &Header, body: &[u8]) -> Option<Leaf> {
    let (fixed, digest) = body.split_first_chunk::<LEAF_FIXED>()?;
    let (start, end) = fixed.split_first_chunk::<8>()?;
    let range = u64::from_le_bytes(*start)..u64::from_le_bytes(*end.first_chunk()?);
    let right = header.is_leaf(&range) && (1..=DIGEST_MAX).contains(&digest.len());
    right.then(|| Leaf { range, digest: digest.to_vec() })
}

fn decode_hole(header: &Header, body: &[u8]) -> Option<Range<u64>> {
    let (start, end) = body.split_first_chunk::<8>()?;
    let range = u64::from_le_bytes(*start)..u64::from_le_bytes(end.try_into().ok()?);
    header.is_leaves(&range).then_some(range)
}

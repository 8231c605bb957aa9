//! Files in parts and in packs, and what proves them.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::Failure;

/// Leaves of a transfer: what the digests in its final reply cover (SITE LEAVES).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeafSpec {
    /// Bytes of a leaf; leaf `i` begins at `i * size` of the file. At least 1.
    pub size: u64,
    /// Algorithm name, upper case.
    pub algorithm: String,
    /// In MODE E a sender leaves holes out, and a receiver takes what does not come of the announced size for holes:
    /// their zeros are in the digests of both. A stream has no gaps.
    pub holes: bool,
    /// In MODE E a sender tells the receiver, over the data connections, what leaves it has sent, and a whole file that
    /// differs from that gets no name; a stream is not vouched for.
    pub vouched: bool,
}

/// Where a destination read what it proved (SITE READBACK DISK); the later ones prove less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum ReadFrom {
    /// Its storage: nothing of it was left in the host's memory.
    Disk,
    /// Possibly the host's memory, which did not let go of all of it.
    Memory,
    /// The host's memory: the file system has nothing else.
    OnlyMemory,
}

impl ReadFrom {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Disk, Self::Memory, Self::OnlyMemory];

    /// The word on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Disk => "disk",
            Self::Memory => "memory",
            Self::OnlyMemory => "memory-only",
        }
    }
}

/// One leaf and its digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leaf {
    /// Offsets in the file, end exclusive.
    pub range: Range<u64>,
    /// Lower-case hexadecimal digest.
    pub digest: String,
}

/// Small files that move as one transfer, one behind the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackSpec {
    /// In the order of their bytes; within the limits of [`crate::pack::check_list`].
    pub files: Vec<PackedFile>,
    /// Algorithm of the digests to tell, upper case; `None`: none are wanted.
    pub algorithm: Option<String>,
    /// Whether a receiver's files must survive a crash before they are answered (SITE DURABLE).
    pub durable: bool,
    /// Whether the sender tells the receiver, ahead of the files and over the data connections, the digest of each: one that
    /// differs gets no name. Of no meaning without an algorithm.
    pub vouched: bool,
}

/// One file of a pack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackedFile {
    /// File.
    #[serde(with = "serde_bytes")]
    pub path: Vec<u8>,
    /// Bytes, at least 1; a source of another size fails.
    pub size: u64,
    /// Modification time to set at the receiver: seconds and nanoseconds.
    pub modified: Option<(i64, u32)>,
    /// Permission bits to set at the receiver, `0o7777` at most.
    pub mode: Option<u32>,
}

/// What became of one file of a pack: its digest (lower-case hexadecimal) if one was wanted, or why it failed.
pub type PackResult = Result<Option<String>, Failure>;

/// A file that is written in chunks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChunkedFile {
    /// Final name.
    pub path: Vec<u8>,
    /// Size of the source, bytes.
    pub size: u64,
    /// Modification time of the source, seconds and nanoseconds: with the size, its version.
    pub modified: Option<(i64, u32)>,
    /// How it is proven.
    pub leaves: LeafSpec,
}

/// What the storage of a file says of itself before data flow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StorageFacts {
    /// Bytes that the file can hold at most, those it has included; `None`: nobody knows.
    pub room: Option<u64>,
    /// Bytes at whose multiples parts should begin and end: the stripe of a parallel file system.
    pub stripe: Option<u64>,
}

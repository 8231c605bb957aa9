//! How far a copy is proven.

use serde::{Deserialize, Serialize};

/// Whether a copy is proven.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Verification {
    /// The checksums of source and destination agree.
    Verified {
        /// The algorithm, in lower case: `md5`, `crc32c`.
        algorithm: String,
        /// Where the destination read what it proved, when its storage was asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        read_back: Option<ReadBack>,
        /// Digests of the whole file that were asked for.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        sums: Vec<FileSum>,
    },
    /// Verification was wanted but could not be done.
    Unverified {
        /// Why, for people.
        reason: String,
    },
    /// Verification was not asked for, or there is nothing to verify.
    NotAsked,
}

/// Where a destination read what it proved; the later ones prove less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReadBack {
    /// The storage: nothing of it was left in the host's memory.
    Disk,
    /// The storage, but for parts that an earlier run had brought and proven in a way nobody recorded.
    Earlier,
    /// Possibly the host's memory, which did not let go of all of it.
    Memory,
    /// The host's memory: the file system has no disk below it.
    MemoryOnly,
    /// The server cannot say.
    Unknown,
}

impl ReadBack {
    /// A phrase for people, after `read back`.
    pub fn phrase(self) -> &'static str {
        match self {
            Self::Disk => "from the disk",
            Self::Earlier => "from the disk, but for parts that an earlier run brought",
            Self::Memory => "perhaps from memory: the system did not let go of all of it",
            Self::MemoryOnly => "from memory: this file system has no disk below it",
            Self::Unknown => "from wherever the server had it: it cannot say",
        }
    }
}

/// A digest of a whole file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSum {
    /// The algorithm, in lower case without dashes.
    pub algorithm: String,
    /// Lower-case hexadecimal digits.
    pub digest: String,
    /// Whether it is what the user expected; false: the user named nothing.
    pub expected: bool,
}

impl Verification {
    /// Proven with this algorithm, and nothing more is known.
    pub fn by(algorithm: impl Into<String>) -> Self {
        Self::Verified { algorithm: algorithm.into(), read_back: None, sums: Vec::new() }
    }

    /// Proven as both say: by the algorithm of the first, where it proves less, with the digests of both.
    pub fn and(self, other: &Self) -> Self {
        match (self, other) {
            (
                Self::Verified { algorithm, read_back, mut sums },
                Self::Verified { read_back: second, sums: more, .. },
            ) => {
                sums.extend(more.iter().cloned());
                Self::Verified { algorithm, read_back: read_back.max(*second), sums }
            }
            (first, _) => first,
        }
    }
}

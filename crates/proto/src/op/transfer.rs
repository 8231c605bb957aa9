//! What moves: files one way or the other, and listings.

use std::ops::Range;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::LeafSpec;

/// What to send.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendSpec {
    /// File.
    pub path: Vec<u8>,
    /// Convert line ends in a stream (TYPE A, RFC 959 §3.1.1.1).
    pub ascii: bool,
    /// First byte of the part (ERET P); block offsets and `done` count from here.
    pub offset: u64,
    /// Length of the part, bytes; `None`: to the end.
    pub length: Option<u64>,
    /// Ranges of the part that the receiver has (REST).
    pub done: Vec<Range<u64>>,
    /// Interval of [`Notice::Performance`](super::Notice::Performance); `None`: none are wanted.
    pub performance_interval: Option<Duration>,
    /// Digests of what is sent; `None`: none are wanted.
    pub leaves: Option<LeafSpec>,
}

impl SendSpec {
    /// A whole file, as it is, with nothing told on the way.
    pub fn of(path: impl Into<Vec<u8>>) -> Self {
        Self {
            path: path.into(),
            ascii: false,
            offset: 0,
            length: None,
            done: Vec::new(),
            performance_interval: None,
            leaves: None,
        }
    }
}

/// What to receive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiveSpec {
    /// File.
    pub path: Vec<u8>,
    /// Convert line ends in a stream (TYPE A, RFC 959 §3.1.1.1).
    pub ascii: bool,
    /// What becomes of what is there.
    pub write: WriteKind,
    /// Size announced by ALLO, bytes.
    pub expected_size: Option<u64>,
    /// Checksum the received file must have (SCKS, SITE STORATTR): algorithm and hexadecimal digest.
    pub expected_checksum: Option<(String, String)>,
    /// Modification time to set afterwards: seconds and nanoseconds.
    pub modified: Option<(i64, u32)>,
    /// Permission bits to give it before it has its name, `0o7777` at most; `None`: those of a file that it replaces, or
    /// what the storage gives a new one.
    pub mode: Option<u32>,
    /// Interval of [`Notice::Performance`](super::Notice::Performance); `None`: none are wanted.
    pub performance_interval: Option<Duration>,
    /// Interval of [`Notice::Ranges`](super::Notice::Ranges); `None`: none are wanted.
    pub range_interval: Option<Duration>,
    /// Digests of what is stored, read back; `None`: none are wanted.
    pub leaves: Option<LeafSpec>,
    /// Whether the digests must be of what storage holds, not of what memory keeps of it (SITE READBACK DISK).
    pub past_memory: bool,
    /// Whether a whole file must survive a crash before it is answered (SITE DURABLE); parts of files always must.
    pub durable: bool,
    /// Whether a restart is refused where less is stored than it says (SITE STORATTR restart=strict); other clients name bytes that they
    /// only want to leave out.
    pub strict: bool,
}

impl ReceiveSpec {
    /// A file of unknown size in place of what is there, with nothing told on the way and nothing proven.
    pub fn of(path: impl Into<Vec<u8>>) -> Self {
        Self {
            path: path.into(),
            ascii: false,
            write: WriteKind::Replace,
            expected_size: None,
            expected_checksum: None,
            modified: None,
            mode: None,
            performance_interval: None,
            range_interval: None,
            leaves: None,
            past_memory: false,
            durable: false,
            strict: false,
        }
    }

    /// Whether it goes into an unfinished file.
    pub fn is_chunk(&self) -> bool {
        matches!(self.write, WriteKind::Chunk { .. })
    }
}

/// What a receive does to an existing file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriteKind {
    /// STOR without REST: the new file replaces the old one when complete.
    Replace,
    /// STOR after REST: these ranges are there already.
    Restart {
        /// Ranges present, ends exclusive; a stream starts at the end of the first one.
        done: Vec<Range<u64>>,
    },
    /// ESTO A: added to every block offset; the rest of the file stays.
    Adjusted {
        /// Bytes.
        offset: u64,
    },
    /// APPE: at the present end.
    Append,
    /// STOU: under a new name near the given one; [`Notice::Opened`](super::Notice::Opened) tells it.
    Unique,
    /// ESTO C: added to every block offset, into the unfinished file of a session; not committed.
    Chunk {
        /// Bytes.
        offset: u64,
        /// From [`Outcome::Chunked`](super::Outcome::Chunked).
        session: Vec<u8>,
    },
}

/// Which listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListSpec {
    /// Directory or file; may end in a pattern for `Long` and `Names`.
    pub path: Vec<u8>,
    /// The path's directory as the client wrote it, with its last `/`: goes before the names that a pattern finds in
    /// `Names`, so that each can be used as it is (RFC 959 §4.1.3).
    pub written: Vec<u8>,
    /// Form of each line.
    pub form: ListForm,
    /// Names of the wanted facts for machine listings; `None`: the default set.
    pub facts: Option<Vec<String>>,
    /// `ls` flags were given: `a`, `l`, `R` ... in the order given; unknown ones are ignored.
    pub flags: Vec<u8>,
    /// Go on after an unreadable directory, with an `Error` fact (OPTS MLSR).
    pub continue_on_error: bool,
    /// Walk into directories behind links (OPTS MLSR).
    pub follow_links: bool,
}

/// Form of listing lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ListForm {
    /// `ls -l` (LIST).
    Long,
    /// Names only (NLST).
    Names,
    /// Facts and name (MLSD, MLSC).
    Facts,
    /// Facts and relative path of a whole tree (MLSR).
    FactsRecursive,
}

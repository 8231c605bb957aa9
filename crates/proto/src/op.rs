//! What the server's control machine asks the data side to do, and what comes back.
//!
//! These values cross the boundary between the part that owns a control connection and the part
//! that touches data (the mover protocol), so all of them serialise. Paths are absolute but not
//! normalised (`..` may occur): the data side resolves and confines them.

use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Names one operation on one control connection; grows, never repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OpId(pub u64);

/// One operation; exactly one [`Outcome`] answers it, any number of [`Notice`]s come before.
///
/// Operations of one control connection are begun in order. One may begin while what the one before it stored is still
/// verified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Op {
    /// Listen for data connections (PASV, EPSV, SPAS); answers [`Outcome::Listening`].
    Passive {
        /// One address per data node instead of one in all.
        striped: bool,
        /// Address family to listen on; `None`: that of the control connection.
        family: Option<Family>,
        /// Frozen for the life of the data handle.
        params: DataParams,
    },
    /// Remember where to connect (PORT, EPRT, SPOR).
    Active {
        /// One target per receiving stripe.
        targets: Vec<SocketAddr>,
        /// Frozen for the life of the data handle.
        params: DataParams,
    },
    /// Close the data handle with its listener and connections.
    CloseData,
    /// Send a file over the data handle (RETR, ERET, GET).
    Send(SendSpec),
    /// Receive a file over the data handle (STOR, ESTO, APPE, STOU, PUT).
    Receive(ReceiveSpec),
    /// Send small files as one transfer (ERET PACK); answers [`Outcome::Packed`].
    SendPack(PackSpec),
    /// Receive small files as one transfer (ESTO PACK); answers [`Outcome::Packed`].
    ReceivePack(PackSpec),
    /// Send a listing over the data handle (LIST, NLST, MLSD, MLSR).
    SendListing(ListSpec),
    /// Return a listing as [`Notice::Lines`] (MLSC, STAT path).
    Listing(ListSpec),
    /// Describe one object as an MLST line (RFC 3659 §7.2); answers [`Outcome::Line`].
    Facts {
        /// What to describe.
        path: Vec<u8>,
        /// Names of the wanted facts; `None`: the default set.
        facts: Option<Vec<String>>,
    },
    /// Size in bytes (RFC 3659 §4); answers [`Outcome::Size`].
    Size(Vec<u8>),
    /// Modification time (RFC 3659 §3); answers [`Outcome::Modified`].
    Modified(Vec<u8>),
    /// Check that a path is a directory one may enter (CWD); answers [`Outcome::Directory`].
    EnterDirectory(Vec<u8>),
    /// Check that a path exists (RNFR).
    Exists(Vec<u8>),
    /// Checksum of a part of a file (CKSM); answers [`Outcome::Checksum`].
    Checksum {
        /// Algorithm name, upper case.
        algorithm: String,
        /// First byte.
        offset: u64,
        /// Bytes; `None`: to the end.
        length: Option<u64>,
        /// File.
        path: Vec<u8>,
        /// Interval of [`Notice::Hashed`].
        marker_interval: Option<Duration>,
    },
    /// Create a directory; answers [`Outcome::Directory`].
    MakeDirectory(Vec<u8>),
    /// Remove an empty directory.
    RemoveDirectory(Vec<u8>),
    /// Remove a file.
    Delete(Vec<u8>),
    /// Remove a directory with its contents (SITE RDEL).
    DeleteTree(Vec<u8>),
    /// Rename (RNFR, RNTO).
    Rename {
        /// Old name.
        from: Vec<u8>,
        /// New name.
        to: Vec<u8>,
    },
    /// Set the modification time (MFMT, SITE UTIME).
    SetModified {
        /// File or directory.
        path: Vec<u8>,
        /// Seconds since 1970-01-01 UTC.
        seconds: i64,
        /// Nanoseconds.
        nanoseconds: u32,
    },
    /// Set permission bits (SITE CHMOD).
    SetMode {
        /// File or directory.
        path: Vec<u8>,
        /// `0o7777` at most.
        mode: u32,
    },
    /// Set the group, by name or number (SITE CHGRP).
    SetGroup {
        /// File or directory.
        path: Vec<u8>,
        /// Group.
        group: String,
    },
    /// Create a symbolic link (SITE SYMLINK, SITE SYMLINKFROM and SYMLINKTO).
    Symlink {
        /// Text of the link, as given.
        target: Vec<u8>,
        /// The link.
        link: Vec<u8>,
    },
    /// Cut or extend a file (SITE TRNC).
    Truncate {
        /// File.
        path: Vec<u8>,
        /// New size, bytes.
        size: u64,
    },
    /// Make or find the unfinished file that chunks are written to (SITE CHUNK OPEN); answers [`Outcome::Chunked`].
    OpenChunked(ChunkedFile),
    /// Record leaves as proven, durably (SITE CHUNK KEEP).
    KeepLeaves {
        /// Final name.
        path: Vec<u8>,
        /// From [`Outcome::Chunked`].
        session: Vec<u8>,
        /// What was proven.
        leaves: Vec<Leaf>,
    },
    /// Make leaves holes and record them as proven, durably (SITE CHUNK HOLES).
    KeepHoles {
        /// Final name.
        path: Vec<u8>,
        /// From [`Outcome::Chunked`].
        session: Vec<u8>,
        /// Whole leaves, ascending.
        holes: Vec<Range<u64>>,
    },
    /// Tell which leaves of a file are holes (SITE EXTENTS); answers [`Outcome::Extents`].
    Extents {
        /// File.
        path: Vec<u8>,
        /// Bytes of a leaf.
        leaf: u64,
    },
    /// Give a wholly proven file its name (SITE CHUNK COMMIT).
    CommitChunked {
        /// Final name.
        path: Vec<u8>,
        /// From [`Outcome::Chunked`].
        session: Vec<u8>,
        /// Modification time to set: seconds and nanoseconds.
        modified: Option<(i64, u32)>,
        /// Checksum the whole file must have, or it gets no name: algorithm and hexadecimal digest.
        expected: Option<(String, String)>,
    },
    /// Throw an unfinished file away (SITE CHUNK DROP).
    DropChunked {
        /// Final name.
        path: Vec<u8>,
        /// From [`Outcome::Chunked`].
        session: Vec<u8>,
    },
    /// Measure or describe (SITE PROBE, ERET M and D, ESTO M and D); answers [`Outcome::Probed`].
    Probe(Probe),
}

/// A measurement, or a description of the host; nothing that it writes outlives it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// What is measured.
    pub kind: ProbeKind,
    /// Directory on whose storage, or the file to read.
    pub path: Vec<u8>,
    /// Where it ends.
    pub bounds: Bounds,
    /// Interval of [`Notice::Performance`]; `None`: none are wanted.
    pub performance_interval: Option<Duration>,
}

/// What a probe measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ProbeKind {
    /// Nothing: describes the host and the file system.
    Host,
    /// Reading storage, without a network.
    Read,
    /// Writing storage until it is durable, without a network.
    Write,
    /// Sending over the data handle: from storage, or bytes that are made up.
    Send {
        /// From storage.
        storage: bool,
    },
    /// Receiving over the data handle: to storage, or nowhere.
    Receive {
        /// To storage.
        storage: bool,
    },
}

impl ProbeKind {
    /// Whether it uses the data handle.
    pub fn uses_data(self) -> bool {
        matches!(self, Self::Send { .. } | Self::Receive { .. })
    }

    /// Whether it writes to storage whatever the path is.
    pub fn writes(self) -> bool {
        matches!(self, Self::Write | Self::Receive { storage: true })
    }
}

/// Where a measurement ends, whichever comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// Bytes.
    pub bytes: u64,
    /// Time; whole milliseconds on the wire.
    pub time: Duration,
}

impl Bounds {
    /// Both no larger than those of `other`.
    pub fn within(self, other: Self) -> Self {
        Self { bytes: self.bytes.min(other.bytes), time: self.time.min(other.time) }
    }
}

/// One thing that was found out; see [`crate::fact`] for the names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// Lower-case words joined by dots and underscores.
    pub name: String,
    /// Printable text.
    pub value: String,
}

impl Fact {
    /// A fact.
    pub fn new(name: impl Into<String>, value: impl ToString) -> Self {
        Self { name: name.into(), value: value.to_string() }
    }
}

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
}

/// One file of a pack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackedFile {
    /// File.
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

/// Address family of a data connection (RFC 2428 §2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Parameters that a data handle copies when it is made (PASV, PORT).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataParams {
    /// Framing on the data connection.
    pub mode: Mode,
    /// Data connections that the connecting side opens to each address.
    pub parallelism: u16,
    /// How a sender spreads a file over several addresses.
    pub layout: Layout,
    /// Socket send buffer, bytes; `None`: the kernel tunes it.
    pub send_buffer: Option<u32>,
    /// Socket receive buffer, bytes; `None`: the kernel tunes it.
    pub receive_buffer: Option<u32>,
    /// Secret that connections of this handle must present (sender: presents).
    pub nonce: Option<[u8; 16]>,
    /// Congestion control by its kernel name; `None`: the administrator's or the system's.
    pub congestion: Option<String>,
}

impl Default for DataParams {
    fn default() -> Self {
        Self {
            mode: Mode::Stream,
            parallelism: 1,
            layout: Layout::default(),
            send_buffer: None,
            receive_buffer: None,
            nonce: None,
            congestion: None,
        }
    }
}

/// Transfer mode (RFC 959 §3.4, GFD.20 §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// Plain bytes, end of file is close.
    Stream,
    /// Extended blocks with offsets.
    Extended,
}

/// How a file is spread over stripes (GFD.20 OPTS RETR StripeLayout).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Layout {
    /// Round robin of blocks of this many bytes.
    Blocked {
        /// Block size, bytes.
        block_size: u64,
    },
    /// One contiguous piece for each stripe.
    Partitioned,
}

impl Default for Layout {
    fn default() -> Self {
        Self::Blocked { block_size: 1 << 20 }
    }
}

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
    /// Interval of [`Notice::Performance`]; `None`: none are wanted.
    pub performance_interval: Option<Duration>,
    /// Digests of what is sent; `None`: none are wanted.
    pub leaves: Option<LeafSpec>,
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
    /// Interval of [`Notice::Performance`]; `None`: none are wanted.
    pub performance_interval: Option<Duration>,
    /// Interval of [`Notice::Ranges`]; `None`: none are wanted.
    pub range_interval: Option<Duration>,
    /// Digests of what is stored, read back; `None`: none are wanted.
    pub leaves: Option<LeafSpec>,
    /// Whether the digests must be of what storage holds, not of what memory keeps of it (SITE READBACK DISK).
    pub past_memory: bool,
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
    /// STOU: under a new name near the given one; [`Notice::Opened`] tells it.
    Unique,
    /// ESTO C: added to every block offset, into the unfinished file of a session; not committed.
    Chunk {
        /// Bytes.
        offset: u64,
        /// From [`Outcome::Chunked`].
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

/// News of an operation in progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Notice {
    /// Storage is open and data may flow: 150, or 125 when connections are reused.
    Opened {
        /// Connections of an earlier transfer are used again.
        reused: bool,
        /// Name chosen by STOU.
        unique_name: Option<Vec<u8>>,
    },
    /// Bytes moved so far on one stripe (112, GFD.20 §4).
    Performance {
        /// Stripe, from 0.
        stripe: u16,
        /// Stripes in all.
        stripes: u16,
        /// Bytes since the start of the transfer.
        bytes: u64,
        /// Milliseconds since 1970-01-01 UTC.
        at_ms: u64,
    },
    /// Ranges that arrived (and are flushed, when the server promises that) since the last notice (111).
    Ranges(Vec<Range<u64>>),
    /// Bytes hashed so far (113).
    Hashed {
        /// Bytes.
        bytes: u64,
        /// Milliseconds since 1970-01-01 UTC.
        at_ms: u64,
    },
    /// Listing lines, each ended by CRLF, for the control connection.
    Lines(Vec<u8>),
    /// Where the time of a transfer went, once, before its end.
    Spent(Box<Spent>),
}

/// Where the time of a transfer went at one end. Times are in microseconds; those of threads that work at the same time
/// add up.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spent {
    /// Payload bytes moved.
    pub bytes: u64,
    /// From the beginning of its data to their end.
    pub took: u64,
    /// What the transfer's threads had in all: the whole that the next three are parts of.
    pub threads: u64,
    /// In calls that read or write storage.
    pub storage: u64,
    /// Waiting for the data connections: to take more, or to bring more.
    pub network: u64,
    /// Hashing.
    pub hash: u64,
    /// On a processor, whatever for.
    pub cpu: u64,
    /// Proving what was stored, after its data have passed.
    pub proof: u64,
    /// Of this, reading back and making durable.
    pub proof_storage: u64,
    /// Of this, hashing.
    pub proof_hash: u64,
    /// What the kernel had something to send, on all connections.
    pub busy: u64,
    /// Of this, held by the receiver's window.
    pub window_limited: u64,
    /// Of this, held by the send buffer.
    pub buffer_limited: u64,
    /// Bytes sent by TCP, those sent again included.
    pub bytes_sent: u64,
    /// Bytes sent again.
    pub bytes_resent: u64,
    /// Smoothed round-trip time of the slowest connection.
    pub rtt: u64,
    /// Shortest round-trip time that any connection has seen: with nothing of ours in the queues.
    pub rtt_least: u64,
    /// Bytes of a segment.
    pub mss: u64,
    /// Data connections.
    pub channels: u64,
    /// The transfer's threads could have run and had no processor.
    pub delay: u64,
    /// The same while proving what was stored.
    pub proof_delay: u64,
    /// Congestion control in use; empty where it is not known.
    pub congestion: String,
}

/// How an operation ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// Done; nothing to tell.
    Done,
    /// Addresses that listen, one per stripe.
    Listening(Vec<SocketAddr>),
    /// A transfer is complete.
    Transferred {
        /// Bytes moved in this transfer.
        bytes: u64,
        /// Digests of the leaves moved, ascending; empty when none were wanted.
        leaves: Vec<Leaf>,
        /// Where the leaves were read back from; `None` unless [`ReceiveSpec::past_memory`].
        read_from: Option<ReadFrom>,
    },
    /// A pack has passed: what became of each file, in order.
    Packed(Vec<PackResult>),
    /// A file may be written in chunks.
    Chunked {
        /// For every operation on it; opaque.
        session: Vec<u8>,
        /// Leaves that need not be sent again, ascending.
        verified: Vec<Leaf>,
        /// Whole leaves that are holes as they are in the source, ascending.
        holes: Vec<Range<u64>>,
        /// What planning wants to know of the storage.
        storage: StorageFacts,
    },
    /// Where a file has no data.
    Extents {
        /// Runs of whole leaves without data, ascending; the last one may end with the file.
        holes: Vec<Range<u64>>,
        /// Bytes of data in the whole file.
        data: u64,
    },
    /// What a probe found out.
    Probed(Vec<Fact>),
    /// One formatted line without line end.
    Line(Vec<u8>),
    /// Size, bytes.
    Size(u64),
    /// Modification time, seconds since 1970-01-01 UTC and nanoseconds.
    Modified(i64, u32),
    /// Normalised absolute path of a directory.
    Directory(Vec<u8>),
    /// Lower-case hexadecimal digest.
    Checksum(String),
    /// It failed.
    Failed(Failure),
}

/// Why an operation failed, in the terms of replies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// Class, which decides the reply code.
    pub kind: FailureKind,
    /// One sentence for people; more lines are allowed.
    pub text: String,
    /// For a checksum mismatch: what was computed and what was expected.
    pub checksums: Option<(String, String)>,
}

/// Failure classes that clients tell apart (the `c=` names of the structured replies).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FailureKind {
    /// No such file or directory.
    NotFound,
    /// Not allowed.
    PermissionDenied,
    /// A path component is no directory.
    NotADirectory,
    /// A file was expected.
    IsADirectory,
    /// Already there.
    Exists,
    /// Not empty.
    NotEmpty,
    /// Path leaves the root or cannot be used.
    BadPath,
    /// Storage full.
    NoSpace,
    /// Quota used up.
    Quota,
    /// Bad checksum.
    Checksum,
    /// Data connection could not be made (425).
    CannotConnect,
    /// Data connection broke (426).
    ConnectionBroken,
    /// The peer broke the rules of the data channel.
    BadData,
    /// No data handle, or one that does not fit (no PASV or PORT before).
    NoDataHandle,
    /// Unknown algorithm or a function this storage lacks.
    NotSupported,
    /// A value out of range.
    BadArgument,
    /// Busy or out of resources; may pass.
    Busy,
    /// Aborted by the client.
    Aborted,
    /// Anything else.
    Other,
    /// Parts of a chunked file are not proven (554).
    Unproven,
}

//! What comes back of an operation.

use std::net::SocketAddr;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::{Fact, Leaf, PackResult, ReadFrom, Spent, StorageFacts};

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
    Lines(#[serde(with = "serde_bytes")] Vec<u8>),
    /// Where the time of a transfer went, once, before its end.
    Spent(Box<Spent>),
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
        /// Where the leaves were read back from; `None` unless [`ReceiveSpec::past_memory`](super::ReceiveSpec::past_memory).
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
        /// Bytes that were proven of another version of the source, or otherwise, and were thrown away.
        discarded: u64,
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

impl Outcome {
    /// A transfer is complete, and no digests were wanted.
    pub fn moved(bytes: u64) -> Self {
        Self::Transferred { bytes, leaves: Vec::new(), read_from: None }
    }
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
    /// The storage takes no file of this size.
    FileTooLarge,
    /// The storage takes no changes.
    ReadOnly,
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
    /// What was read changed meanwhile, or was not what was announced.
    SourceChanged,
    /// Busy or out of resources; may pass.
    Busy,
    /// Aborted by the client.
    Aborted,
    /// Anything else.
    Other,
    /// Parts of a chunked file are not proven (554).
    Unproven,
    /// A data connection could not be protected, or its other end did not prove who it is (522, RFC 4217 §10.2).
    NotProtected,
    /// The login's credential has expired: another login may do it (421, RFC 959 §4.2.1).
    LoginOver,
}

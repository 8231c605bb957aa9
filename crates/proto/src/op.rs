//! What the server's control machine asks the data side to do, and what comes back.
//!
//! These values cross the boundary between the part that owns a control connection and the part
//! that touches data (the mover protocol), so all of them serialise. Paths are absolute but not
//! normalised (`..` may occur): the data side resolves and confines them.

mod answer;
mod data;
mod measure;
mod parts;
mod transfer;

use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::command::Secret;
use crate::relay::Announcement;

pub use answer::{Failure, FailureKind, Notice, Outcome};
pub use data::{DataParams, Family, GsiPeer, Layout, Level, Mode, Shield};
pub use measure::{Bounds, Fact, Probe, ProbeKind, Spent};
pub use parts::{ChunkedFile, Leaf, LeafSpec, PackResult, PackSpec, PackedFile, ReadFrom, StorageFacts};
pub use transfer::{ListForm, ListSpec, ReceiveSpec, SendSpec, WriteKind};

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
    /// Join data connections of two other servers that say this token (SITE RELAY); answers [`Outcome::Listening`]. For whoever
    /// listens to them, not for the data side.
    Relay(Announcement),
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
    /// Make everything durable that was stored so far on the storage that holds this directory (SITE SYNC).
    Sync(Vec<u8>),
    /// Give a wholly proven file its name (SITE CHUNK COMMIT).
    CommitChunked {
        /// Final name.
        path: Vec<u8>,
        /// From [`Outcome::Chunked`].
        session: Vec<u8>,
        /// Modification time to set: seconds and nanoseconds.
        modified: Option<(i64, u32)>,
        /// Permission bits to give it before its name, `0o7777` at most.
        mode: Option<u32>,
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
    /// Close the data handle and use this credential for data connections from now on: PEM text of certificate, private key and further
    /// certificates (DCSC P); `None`: that of the login again (DCSC D). A credential that cannot be used leaves that of the login.
    DataCredential(Option<Secret>),
    /// Measure or describe (SITE PROBE, ERET M and D, ESTO M and D); answers [`Outcome::Probed`].
    Probe(Probe),
}

//! Measurements, and where the time of transfers went.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Op;

/// A measurement, or a description of the host; nothing that it writes outlives it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// What is measured.
    pub kind: ProbeKind,
    /// Directory on whose storage, or the file to read.
    pub path: Vec<u8>,
    /// Where it ends.
    pub bounds: Bounds,
    /// Interval of [`Notice::Performance`](super::Notice::Performance); `None`: none are wanted.
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

impl Op {
    /// Whether bytes of files, or of a measurement, pass the data handle; listings and what is told of them do not count.
    pub fn moves_data(&self) -> bool {
        match self {
            Self::Send(_) | Self::Receive(_) | Self::SendPack(_) | Self::ReceivePack(_) => true,
            Self::Probe(probe) => probe.kind.uses_data(),
            _ => false,
        }
    }
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
    /// Of `hash`, on a processor.
    pub hash_cpu: u64,
    /// Of `proof`, on a processor.
    pub proof_cpu: u64,
    /// Of `proof_hash`, on a processor.
    pub proof_hash_cpu: u64,
    /// Congestion control in use; empty where it is not known.
    pub congestion: String,
}

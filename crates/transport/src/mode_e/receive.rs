//! The receiving side of MODE E.

use std::ops::Range;
use std::time::Duration;

use whimbrel_engine::Fault;

use super::{Connection, Nonce};
use crate::block::BlockSink;
use crate::flow::Flow;
use crate::tcp::Listener;

/// Which connections may take part.
#[derive(Debug, Clone, Copy)]
pub struct Admission<'a> {
    /// Where new connections arrive; `None`: only those already open.
    pub listener: Option<&'a Listener>,
    /// Required as the first two blocks of each new connection; without it the connection is
    /// dropped and the transfer goes on.
    pub nonce: Option<Nonce>,
    /// Most connections open at once; default 64. More wait in the kernel's queue.
    pub max_connections: usize,
    /// How long to wait for a first (or a missing) connection; default 60 s.
    pub timeout: Duration,
}

impl Default for Admission<'_> {
    fn default() -> Self {
        Self { listener: None, nonce: None, max_connections: 64, timeout: Duration::from_secs(60) }
    }
}

/// One file (or part) to receive.
#[derive(Clone)]
pub struct ReceiveJob<'a> {
    /// Where the bytes go.
    pub sink: &'a dyn BlockSink,
    /// Offsets on the wire that the peer may use; a block beyond is the peer's fault. Use
    /// `0..u64::MAX` when nothing was promised.
    pub bound: Range<u64>,
    /// Added to wire offsets for the sink (`ESTO A` writes its part further on).
    pub origin: u64,
    /// Who may send.
    pub admission: Admission<'a>,
    /// Surroundings.
    pub flow: Flow<'a>,
}

/// What a finished [`receive`] saw.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReceiveReport {
    /// Payload bytes, repeated ones counted again.
    pub bytes: u64,
    /// Blocks that carried them.
    pub blocks: u64,
    /// EODs seen.
    pub eods: u64,
    /// Connections turned away.
    pub rejected: u64,
    /// Threads used.
    pub threads: usize,
}

/// Receives one file and leaves the connections open for the next.
///
/// Complete when an EOF has come and as many EODs as it announced. Fails with `PeerMisbehaved`
/// (blocks out of bounds, a second EOF, more EODs than announced), `ConnectionLost` (closed inside a
/// block, or all closed without an end), `TimedOut` (nobody connected), `Stalled`, `Cancelled`, or
/// what the sink says. After a failure `connections` is empty.
pub fn receive(job: &ReceiveJob<'_>, connections: &mut Vec<Connection>) -> Result<ReceiveReport, Fault> {
    let _ = (job, connections);
    unimplemented!()
}

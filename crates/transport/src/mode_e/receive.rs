//! The receiving side of MODE E.

mod lane;
mod ledger;
mod worker;

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use whimbrel_engine::Fault;
use whimbrel_proto::eblock::{ChannelId, Header, MOST_CONNECTIONS, ReceiveStep};

use self::ledger::Ledger;
use super::crew::Crew;
use super::{Connection, INLINE_LIMIT, Nonce};
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
    /// Most connections at once that have yet to carry their EOD; default [`MOST_CONNECTIONS`]. As many may be open besides
    /// that have yet to show the nonce, where there is one. More wait in the kernel's queue.
    pub max_connections: usize,
    /// How long to wait for a first (or a missing) connection; default 60 s.
    pub timeout: Duration,
}

impl Default for Admission<'_> {
    fn default() -> Self {
        Self {
            listener: None,
            nonce: None,
            max_connections: usize::from(MOST_CONNECTIONS),
            timeout: Duration::from_secs(60),
        }
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
/// (blocks out of bounds, or in more places than [`MOST_RANGES`](crate::progress::MOST_RANGES), a second EOF, more EODs than
/// announced), `ConnectionLost` (closed inside a block, or all closed without an end), `TimedOut` (nobody connected), `Stalled`, `Cancelled`, or
/// what the sink says. After a failure `connections` is empty.
pub fn receive(job: &ReceiveJob<'_>, connections: &mut Vec<Connection>) -> Result<ReceiveReport, Fault> {
    // One thread until the transfer has proved to be large.
    let alone = job.flow.threads <= 1 || job.bound.end - job.bound.start <= INLINE_LIMIT;
    let shared = Shared {
        crew: Crew::new(job.flow, "receive data"),
        job,
        may_grow: !alone,
        ledger: Mutex::new(Ledger::new(job)),
        blocks: AtomicU64::new(0),
        rejected: AtomicU64::new(0),
        refusal: Mutex::default(),
        idle: Mutex::default(),
    };
    let threads = shared.run(std::mem::take(connections));
    if let Some(fault) = shared.crew.take_fault() {
        return Err(fault);
    }
    let idle = shared.idle.into_inner();
    *connections = idle.unwrap_or_else(PoisonError::into_inner);
    let ledger = shared.ledger.into_inner();
    Ok(ReceiveReport {
        bytes: shared.crew.moved(),
        blocks: shared.blocks.into_inner(),
        eods: ledger.unwrap_or_else(PoisonError::into_inner).eods(),
        rejected: shared.rejected.into_inner(),
        threads,
    })
}

/// What all threads of one receive share.
struct Shared<'a> {
    crew: Crew<'a>,
    job: &'a ReceiveJob<'a>,
    may_grow: bool,
    ledger: Mutex<Ledger>,
    blocks: AtomicU64,
    rejected: AtomicU64,
    /// Why the last one was turned away that did not show who it is.
    refusal: Mutex<Option<String>>,
    /// Connections that have carried their EOD and wait for the next transfer.
    idle: Mutex<Vec<Connection>>,
}

impl Shared<'_> {
    fn header(&self, id: ChannelId, header: Header) -> Result<Option<ReceiveStep>, Fault> {
        let mut ledger = self.lock();
        let step = ledger.header(id, header)?;
        if ledger.is_complete() {
            self.crew.stop();
        }
        Ok(step)
    }

    fn block_end(&self, id: ChannelId) -> Result<ReceiveStep, Fault> {
        self.blocks.fetch_add(1, Ordering::Relaxed);
        let mut ledger = self.lock();
        let step = ledger.block_end(id)?;
        if ledger.is_complete() {
            self.crew.stop();
        }
        Ok(step)
    }

    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

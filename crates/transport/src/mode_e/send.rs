//! The sending side of MODE E.

use whimbrel_engine::{Fault, RangeSet};

use super::{Connection, Nonce};
use crate::block::BlockSource;
use crate::flow::Flow;

/// How much of the source to send.
#[derive(Debug, Clone, Copy)]
pub enum Amount<'a> {
    /// Exactly these ranges; a source that ends earlier has changed.
    Ranges(&'a RangeSet),
    /// From this offset to wherever the source ends (pipes, devices), read in order.
    ToEnd(u64),
}

/// Who announces the end of the whole transfer.
///
/// Each destination address gets exactly one EOF, whose EODC is the number of EODs it will see
/// from all senders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Eof {
    /// This job is the only sender: EOF with EODC = number of its connections.
    Own,
    /// This job sends the EOF for several senders, with their total number of connections.
    Total(u64),
    /// Another sender does; only EODs here.
    Elsewhere,
}

/// One file (or part) to send over open connections.
#[derive(Clone, Copy)]
pub struct SendJob<'a> {
    /// Where the bytes come from.
    pub source: &'a dyn BlockSource,
    /// Which of them to send.
    pub amount: Amount<'a>,
    /// Subtracted from source offsets on the wire (`ERET P` numbers its part from 0); not more than
    /// the first offset sent.
    pub origin: u64,
    /// Most payload bytes in one block; the pool's buffer size caps it unless the kernel sends.
    pub block_size: usize,
    /// Sent at the start of each connection that has not carried it yet.
    pub nonce: Option<Nonce>,
    /// Who announces the end.
    pub eof: Eof,
    /// Whether the kernel may send from the source's descriptor; not when a digest is wanted.
    pub sendfile: bool,
    /// Surroundings.
    pub flow: Flow<'a>,
}

/// What a finished [`send`] did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SendReport {
    /// Payload bytes handed to the network.
    pub bytes: u64,
    /// Blocks that carried them.
    pub blocks: u64,
    /// Connections used, each of which carried an EOD.
    pub eods: u64,
    /// Threads used.
    pub threads: usize,
}

/// Sends one file and leaves the connections open for the next.
///
/// Fails with `SourceChanged` when the source is shorter than promised, `ConnectionLost`, `Stalled`,
/// `Cancelled`, or what the source says. After a failure `connections` is empty: half a block may be
/// under way on any of them.
pub fn send(job: &SendJob<'_>, connections: &mut Vec<Connection>) -> Result<SendReport, Fault> {
    let _ = (job, connections);
    unimplemented!()
}

//! The sending side of MODE E.

mod lane;
mod walk;

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use whimbrel_engine::{Fault, FaultCode, RangeSet};
use whimbrel_proto::eblock::{EOD, EOF, Header, RangeCursor, Stripe};
use whimbrel_sys::poll::PollFlags;

use self::lane::{Block, Lane};
use self::walk::Walk;
use super::crew::{Crew, start};
use super::{Connection, INLINE_LIMIT, Nonce};
use crate::block::BlockSource;
use crate::flow::{Flow, StallWatch};
use crate::leaves::{Digests, InOrder};
use crate::times::Activity;

/// How much of the source to send.
#[derive(Debug, Clone, Copy)]
pub enum Amount<'a> {
    /// Exactly these ranges; a source that ends earlier has changed.
    Ranges(&'a RangeSet),
    /// What of these ranges belongs to one stripe of what lies behind [`SendJob::origin`]. The blocks of the stripe are
    /// found one by one: a list of them would grow with the file, and with what its receiver wants to be a block.
    Share(&'a RangeSet, Stripe),
    /// From this offset to wherever the source ends (pipes, devices), read in order.
    ToEnd(u64),
    /// From this offset to wherever the source ends, in any order and by many threads: every read before its end is full.
    Endless(u64),
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
    /// Whether the kernel may send from the source's descriptor, when no digest is wanted.
    pub sendfile: bool,
    /// Where the digests of what is sent go: of the very bytes that are sent.
    pub digests: Option<&'a Digests>,
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
/// Fails with `InvalidArgument` without connections, `SourceChanged` when the source is shorter than
/// promised, `ConnectionLost`, `Stalled`, `Cancelled`, or what the source says. After a failure
/// `connections` is empty: half a block may be under way on any of them.
pub fn send(job: &SendJob<'_>, connections: &mut Vec<Connection>) -> Result<SendReport, Fault> {
    let result = send_all(job, connections);
    if result.is_err() {
        connections.clear();
    }
    result
}

fn send_all(job: &SendJob<'_>, connections: &mut [Connection]) -> Result<SendReport, Fault> {
    const OP: &str = "send data";
    let eods = connections.len() as u64;
    if connections.is_empty() {
        let fault = Fault::new(FaultCode::InvalidArgument, OP);
        return Err(fault.detail("no data connection"));
    }
    let threads = job.threads_for(connections.len());
    let (in_order, walk) = job.hashing(threads)?;
    let shared = Shared {
        crew: Crew::new(job.flow, OP),
        job,
        cursor: Mutex::new(Cursor::new(job.amount, job.origin)),
        in_order: in_order.map(Mutex::new),
        walk,
        bytes: AtomicU64::new(0),
        blocks: AtomicU64::new(0),
    };
    let mut shares: Vec<Vec<Lane<'_>>> = (0..threads).map(|_| Vec::new()).collect();
    for (i, connection) in connections.iter_mut().enumerate() {
        let end = job.end_header(i == 0, eods);
        job.flow.progress.uses(connection.channel());
        shares[i % threads].push(Lane::new(connection, end, job.nonce));
    }
    if threads > 1 {
        shared.crew.grow()?;
    }
    let threads = shared.run(shares);
    if let Some(in_order) = &shared.in_order {
        in_order.lock().unwrap_or_else(PoisonError::into_inner).finish()?;
    }
    match shared.crew.take_fault() {
        Some(fault) => Err(fault),
        None => Ok(SendReport { bytes: shared.bytes.into_inner(), blocks: shared.blocks.into_inner(), eods, threads }),
    }
}

impl<'a> SendJob<'a> {
    /// How leaves are hashed: in the order of the file where that is all the same, else several in step.
    fn hashing(&self, threads: usize) -> Result<(Option<InOrder<'a>>, Option<Walk<'a>>), Fault> {
        let Some(digests) = self.digests else {
            return Ok((None, None));
        };
        match self.amount {
            Amount::Ranges(ranges) => {
                digests.check(ranges)?;
                let in_order = || Some(InOrder::new(digests));
                let gaps = self.source.has_gaps();
                if threads == 1
                    && !gaps
                    && (digests.leaves().count(ranges) <= 1 || ranges.len() <= self.block_size as u64)
                {
                    return Ok((in_order(), None));
                }
                Ok((None, Some(Walk::new(digests.leaves().cut(ranges), digests, threads)?)))
            }
            Amount::ToEnd(_) => Ok((Some(InOrder::new(digests)), None)),
            Amount::Endless(_) => {
                let fault = Fault::new(FaultCode::NotSupported, "send data");
                Err(fault.detail("digests of a source without an end"))
            }
            // Its threads would be more than one hash can follow.
            Amount::Share(..) => {
                let fault = Fault::new(FaultCode::NotSupported, "send data");
                Err(fault.detail("digests of a share of the file"))
            }
        }
    }

    fn threads_for(&self, connections: usize) -> usize {
        match self.amount {
            Amount::Ranges(ranges) if ranges.len() > INLINE_LIMIT => self.flow.threads.clamp(1, connections),
            Amount::Share(ranges, stripe) if ranges.len() / u64::from(stripe.count.max(1)) > INLINE_LIMIT => {
                self.flow.threads.clamp(1, connections)
            }
            Amount::Endless(_) => self.flow.threads.clamp(1, connections),
            // A pipe is read in order, by one.
            _ => 1,
        }
    }

    fn is_open_ended(&self) -> bool {
        matches!(self.amount, Amount::ToEnd(_) | Amount::Endless(_))
    }

    /// The last header of a connection; the first connection carries the EOF.
    fn end_header(&self, first: bool, eods: u64) -> Header {
        let eodc = match self.eof {
            Eof::Own if first => Some(eods),
            Eof::Total(total) if first => Some(total),
            _ => None,
        };
        Header { descriptor: if eodc.is_some() { EOF | EOD } else { EOD }, count: 0, offset: eodc.unwrap_or(0) }
    }
}

/// What all threads of one send share.
struct Shared<'a> {
    crew: Crew<'a>,
    job: &'a SendJob<'a>,
    cursor: Mutex<Cursor>,
    /// Digests of bytes that are read in the order of the file, by one thread.
    in_order: Option<Mutex<InOrder<'a>>>,
    /// Where blocks come from instead of the cursor.
    walk: Option<Walk<'a>>,
    bytes: AtomicU64,
    blocks: AtomicU64,
}

impl Shared<'_> {
    /// Sends to the end or to the first fault; returns how many threads that took.
    fn run(&self, mut shares: Vec<Vec<Lane<'_>>>) -> usize {
        let mut own = shares.swap_remove(0);
        thread::scope(|scope| {
            let mut others = Vec::with_capacity(shares.len());
            for share in shares {
                match start(scope, share, move |lanes| self.work(lanes)) {
                    Ok(other) => others.push(other),
                    Err(mut lanes) => own.append(&mut lanes),
                }
            }
            self.work(own);
            let threads = 1 + others.len();
            for other in others {
                if other.join().is_err() {
                    self.crew.fail(self.crew.panicked());
                }
            }
            threads
        })
    }

    fn work(&self, mut lanes: Vec<Lane<'_>>) {
        let mut stall = self.crew.stall_watch();
        let _working = self.crew.flow.progress.times().on_thread();
        if let Err(fault) = self.drive(&mut lanes, &mut stall) {
            self.crew.fail(fault);
        }
    }

    /// Serves lanes until all have carried their EOD; polls only when one of them must wait.
    fn drive(&self, lanes: &mut [Lane<'_>], stall: &mut StallWatch) -> Result<(), Fault> {
        while !self.crew.is_stopped() {
            self.crew.flow.cancel.check(self.crew.op())?;
            for i in 0..lanes.len() {
                if lanes[i].is_ready() || lanes[i].is_starved() {
                    let may_block = !lanes.iter().any(Lane::holds_buffer);
                    lanes[i].step(self, may_block, stall)?;
                }
            }
            if lanes.iter().all(Lane::is_done) {
                return Ok(());
            }
            let others_load = || self.walk.is_some() && lanes.iter().any(Lane::is_starved);
            if lanes.iter().any(Lane::is_waiting) || others_load() {
                let busy = lanes.iter().any(Lane::is_ready);
                self.wait(lanes, busy, stall)?;
            }
        }
        Ok(())
    }

    fn wait(&self, lanes: &mut [Lane<'_>], busy: bool, stall: &mut StallWatch) -> Result<(), Fault> {
        let now = Instant::now();
        stall.check(now, self.crew.moved(), self.crew.op())?;
        let timeout = if busy { Some(Duration::ZERO) } else { stall.remaining(now) };
        let waiting = || lanes.iter().filter(|lane| lane.is_waiting());
        // A lane without a block is tried again in any case, so that only the waking counts.
        let news = self.walk.as_ref().filter(|_| lanes.iter().any(Lane::is_starved)).and_then(Walk::news);
        let news = news.map(|news| (news, PollFlags::IN));
        let fds: Vec<_> = waiting().map(Lane::poll_entry).chain(news).collect();
        // Waiting for what other threads load is none of the network's.
        let on_network = lanes.iter().any(Lane::is_waiting);
        let began = Instant::now();
        let ready = self.crew.poll(&fds, timeout)?;
        if on_network {
            self.crew.flow.progress.times().add(Activity::Network, began.elapsed());
        }
        drop(fds);
        let waiting = lanes.iter_mut().filter(|lane| lane.is_waiting());
        for (lane, ready) in waiting.zip(ready).filter(|(_, ready)| !ready.is_empty()) {
            lane.wake(ready, self.crew.op())?;
        }
        Ok(())
    }

    /// Most bytes of a block when `together` of them are loaded at a time.
    fn block_limit(&self, together: usize) -> usize {
        let mut most = self.job.block_size.max(1);
        if let Some(rate) = self.crew.flow.rate.and_then(|rate| rate.rate()) {
            // Several blocks a second keep a slow, limited transfer smooth.
            let quarter = usize::try_from(rate / 4).unwrap_or(usize::MAX);
            most = most.min((quarter / together).max(4096));
        }
        if !self.uses_sendfile() {
            most = most.min(self.crew.flow.pool.buffer_size());
        }
        most
    }

    /// The next block to send, and whether it is the last one.
    fn next_block(&self) -> Option<(Block, bool)> {
        let most = self.block_limit(1);
        let mut cursor = self.lock();
        let block = cursor.next(most)?;
        Some((block, cursor.is_exhausted()))
    }

    fn uses_sendfile(&self) -> bool {
        let exact = !self.job.is_open_ended();
        self.job.sendfile && self.job.digests.is_none() && exact && self.job.source.fd().is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Cursor> {
        self.cursor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record(&self, block: &Block) {
        self.bytes.fetch_add(block.len as u64, Ordering::Relaxed);
        self.blocks.fetch_add(1, Ordering::Relaxed);
        // Nobody asks a sender where its bytes lay, and those of a share lie in as many places as it has blocks.
        self.crew.flow.progress.add_bytes(block.len as u64);
    }
}

/// Hands out what is left to send, in order, looking one piece ahead.
struct Cursor {
    pieces: RangeCursor,
    /// Where the pieces count from, in the source.
    base: u64,
    ahead: Option<Range<u64>>,
}

impl Cursor {
    fn new(amount: Amount<'_>, origin: u64) -> Self {
        let (ranges, stripe, base) = match amount {
            Amount::Ranges(ranges) => (ranges.as_slice().to_vec(), Stripe::WHOLE, 0),
            Amount::Share(ranges, stripe) => {
                let dealt = ranges.as_slice().iter().map(|range| range.start - origin..range.end - origin);
                (dealt.collect(), stripe, origin)
            }
            // The end is found by reading.
            Amount::ToEnd(offset) | Amount::Endless(offset) => {
                (std::iter::once(offset..u64::MAX).collect(), Stripe::WHOLE, 0)
            }
        };
        let mut cursor = Self { pieces: RangeCursor::new(ranges, stripe), base, ahead: None };
        cursor.ahead = cursor.piece();
        cursor
    }

    fn piece(&mut self) -> Option<Range<u64>> {
        self.pieces.take(u64::MAX).map(|piece| piece.start + self.base..piece.end + self.base)
    }

    fn next(&mut self, most: usize) -> Option<Block> {
        let piece = self.ahead.take()?;
        let len = (piece.end - piece.start).min(most as u64);
        let cut = piece.start + len;
        self.ahead = if cut < piece.end { Some(cut..piece.end) } else { self.piece() };
        Some(Block { offset: piece.start, len: len as usize })
    }

    /// Bytes up to the end of the current piece.
    fn next_len(&self) -> u64 {
        self.ahead.as_ref().map_or(0, |piece| piece.end - piece.start)
    }

    fn is_exhausted(&self) -> bool {
        self.ahead.is_none()
    }

    /// Nobody needs to read further.
    fn end(&mut self) {
        self.ahead = None;
    }

    /// A source read to its end gave `len` bytes at `offset`, 0 at its end.
    fn was_read(&mut self, offset: u64, len: usize) {
        self.ahead = (len > 0).then_some(offset + len as u64..u64::MAX);
    }
}

//! Blocks of a send whose leaves are hashed: several leaves walked in step.
//!
//! Any thread of the transfer loads the next blocks when few are left, while the others send; with leaves enough for
//! more than one group, threads load at the same time.

use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use whimbrel_engine::{Fault, Side};
use whimbrel_sys::poll::Wake;

use super::Shared;
use super::lane::{Block, source_changed};
use crate::leaves::{Cutter, Digests, Group, Piece};
use crate::pool::{Buffer, Class};
use crate::times::{Activity, Stopwatch};

/// Leaves walked in step: each takes a buffer until its block is sent.
const TOGETHER: usize = 8;

/// Loaded blocks below which the next are loaded, when other threads have something to do meanwhile.
const LOW: usize = 4;

/// What all threads of a send take their blocks from.
pub(super) struct Walk<'a> {
    digests: &'a Digests,
    state: Mutex<State>,
    threads: usize,
    /// Blocks are loaded when no more than these are left.
    low: usize,
    /// Readable while there is a block to take, or none will come; only for more than one thread.
    news: Option<Wake>,
}

struct State {
    leaves: Cutter,
    /// Groups that nobody works on.
    idle: Vec<Group>,
    /// Groups that threads load blocks of.
    busy: usize,
    loaded: Vec<(Block, Buffer)>,
    /// Whether `news` is readable.
    told: bool,
}

/// The answer to a request for a block.
pub(super) enum Taken {
    /// A block, and whether it is the last.
    Block(Block, Buffer, bool),
    /// There will be more, but not now.
    Later,
    /// There are no more.
    End,
}

impl State {
    fn is_over(&self) -> bool {
        self.loaded.is_empty() && !self.more_come()
    }

    fn more_come(&self) -> bool {
        self.busy > 0 || !self.idle.is_empty() || !self.leaves.is_empty()
    }
}

impl<'a> Walk<'a> {
    pub(super) fn new(leaves: Cutter, digests: &'a Digests, threads: usize) -> Result<Self, Fault> {
        let wake = || Wake::new().map_err(|error| Fault::from_io(error, "send data").side(Side::Us));
        let news = (threads > 1).then(wake).transpose()?;
        // Blocks that are hashed alone need no stock: every thread loads its own, and sends them from its cache.
        let low = if threads > 1 && Group::is_wide(digests.leaves().algorithm) { LOW } else { 0 };
        let state = State { leaves, idle: Vec::new(), busy: 0, loaded: Vec::new(), told: false };
        Ok(Self { digests, state: Mutex::new(state), threads, low, news })
    }

    /// What to poll for after [`Taken::Later`].
    pub(super) fn news(&self) -> Option<BorrowedFd<'_>> {
        self.news.as_ref().map(|news| news.as_fd())
    }

    /// The next block; loads more when few are left.
    ///
    /// `may_block`: the caller's lanes hold no buffer, so it may wait for one.
    pub(super) fn take(&self, shared: &Shared<'_>, may_block: bool) -> Result<Taken, Fault> {
        let mut state = self.lock();
        while state.loaded.len() <= self.low
            && let Some(group) = self.check_out(&mut state)
        {
            let may_block = may_block && state.loaded.is_empty();
            drop(state);
            let loaded = self.load(shared, group, may_block)?;
            state = self.lock();
            // Nothing but holes: nobody else would come for what lies behind them.
            if !loaded || !state.loaded.is_empty() {
                break;
            }
            shared.crew.flow.cancel.check(shared.crew.op())?;
        }
        // The last loaded first: it may still be in this processor's cache.
        let taken = match state.loaded.pop() {
            Some((block, buffer)) => Taken::Block(block, buffer, state.is_over()),
            None if state.is_over() => Taken::End,
            None => Taken::Later,
        };
        self.tell(&mut state);
        Ok(taken)
    }

    fn check_out(&self, state: &mut State) -> Option<Group> {
        let group = match state.idle.pop() {
            Some(group) => group,
            None if state.busy < self.threads => Group::next(&mut state.leaves, TOGETHER)?,
            None => return None,
        };
        state.busy += 1;
        Some(group)
    }

    /// Loads the next blocks of a group, as many as there are buffers for; whether there were any.
    fn load(&self, shared: &Shared<'_>, mut group: Group, may_block: bool) -> Result<bool, Fault> {
        let mut turn = Turn { walk: self, loaded: Vec::new(), group: None };
        let pool = &shared.crew.flow.pool;
        let mut buffers: Vec<Buffer> = Vec::with_capacity(group.unfinished());
        while buffers.len() < group.unfinished() {
            match pool.try_acquire(Class::Send)? {
                Some(buffer) => buffers.push(buffer),
                None if may_block && buffers.is_empty() => {
                    buffers.push(pool.acquire(Class::Send, shared.crew.flow.cancel)?);
                }
                None => break,
            }
        }
        let most = shared.block_limit(group.unfinished().max(1));
        let mut pieces = group.pieces(buffers.len(), most);
        let gaps = gaps(shared, &mut pieces)?;
        let mut slices: Vec<&mut [u8]> = buffers.iter_mut().map(|buffer| &mut buffer[..]).collect();
        let times = shared.crew.flow.progress.times();
        let bytes = pieces.iter().map(|piece| piece.len).sum();
        let (watch, mut reading) = (Stopwatch::start(bytes), Duration::ZERO);
        group.load(&pieces, &mut slices, shared.job.source.is_past_cache(), |offset, part| {
            if gaps.iter().any(|gap| gap.contains(&offset)) {
                part.fill(0);
                return Ok(());
            }
            let read_from = Instant::now();
            let read = shared.job.source.read_at(offset, part);
            reading += read_from.elapsed();
            match read.map_err(|fault| fault.side_if_unknown(Side::Source))? {
                read if read < part.len() => Err(source_changed(shared, offset + read as u64)),
                _ => Ok(()),
            }
        })?;
        times.add(Activity::Storage, reading);
        times.add_hashing(watch.elapsed().without(reading));
        let loaded = !pieces.is_empty();
        let blocks = pieces.iter().map(|piece| Block { offset: piece.offset, len: piece.len });
        let sent = blocks.zip(buffers).filter(|(block, _)| !gaps.iter().any(|gap| gap.contains(&block.offset)));
        turn.loaded = sent.collect();
        if group.unfinished() == 0 {
            return group.finish(self.digests).map(|()| loaded);
        }
        turn.group = Some(group);
        Ok(loaded)
    }

    /// Makes `news` say what is so.
    fn tell(&self, state: &mut State) {
        let Some(news) = &self.news else { return };
        let due = !state.loaded.is_empty() || state.is_over();
        if due != state.told {
            state.told = due;
            if due { news.signal() } else { news.clear() }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change of the state is one step, so a panic leaves it usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Cuts pieces where what is sent and what is left out meet; returns those that are left out.
fn gaps(shared: &Shared<'_>, pieces: &mut [Piece]) -> Result<Vec<Range<u64>>, Fault> {
    let source = shared.job.source;
    let mut gaps = Vec::new();
    if !source.has_gaps() {
        return Ok(gaps);
    }
    for piece in pieces {
        let run = source.run_at(piece.offset).map_err(|fault| fault.side_if_unknown(Side::Source))?;
        let whole = piece.offset + piece.len as u64;
        // A run that ends where it begins would never end.
        let end = whole.min(run.end.max(piece.offset + 1));
        piece.len = (end - piece.offset) as usize;
        if !run.is_sent {
            gaps.push(piece.offset..end);
        }
    }
    Ok(gaps)
}

/// One thread's turn with a group, which ends whatever happens in it.
struct Turn<'w, 'a> {
    walk: &'w Walk<'a>,
    loaded: Vec<(Block, Buffer)>,
    group: Option<Group>,
}

impl Drop for Turn<'_, '_> {
    fn drop(&mut self) {
        let mut state = self.walk.lock();
        state.busy -= 1;
        state.loaded.append(&mut self.loaded);
        state.idle.extend(self.group.take());
        self.walk.tell(&mut state);
    }
}

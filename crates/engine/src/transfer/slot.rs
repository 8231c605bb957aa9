//! One session as the machine sees it, and when it has stalled.

use std::time::Instant;

use super::messages::Attempt;
use super::options::StallPolicy;
use super::pace::Pace;
use super::pipeline::{Flight, Load, Pipeline};
use super::soonest::ShortPace;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotState {
    Closed,
    Opening {
        since: Instant,
    },
    Ready,
    Backoff {
        until: Instant,
    },
    /// Given up for the rest of the run.
    Dead,
}

/// Chunks of a session that have moved and wait for the destination's word that what is proven is kept.
const KEEPING: usize = 3;

#[derive(Debug)]
pub(super) struct SlotData {
    pub(super) state: SlotState,
    /// Whether it is one too many: it ends with what it has.
    pub(super) retired: bool,
    /// What it was given and has not ended.
    pub(super) pipeline: Pipeline,
    /// How fast it moves chunks.
    pub(super) pace: Pace,
    /// How fast it is done with small files.
    pub(super) short: ShortPace,
    /// Bytes that it has moved in this run.
    pub(super) moved_in_all: u64,
    /// Whether its work was given to others because it was too slow.
    pub(super) relieved: bool,
    /// When the chunk at work could begin.
    chunk_since: Instant,
    /// Whether the last that was heard of it is an item's failure: losing it then is the same event.
    pub(super) charged: bool,
    /// Which of all starts was its last.
    pub(super) last_given: u64,
    /// Losses in a row without a sign of use.
    pub(super) failures: u32,
    /// Failures of the network in a row, with no data between them: ends that take logins may not reach each other.
    pub(super) misses: u32,
    watch: Watch,
}

/// What the stall rules look at.
#[derive(Debug, Clone, Copy)]
struct Watch {
    window_start: Instant,
    window_bytes: u64,
    last_sign: Instant,
    /// What moves data, and how many bytes it has still to move.
    moving: Option<(Attempt, u64)>,
    /// A large file that has begun behind one that still moves.
    next: Option<(Attempt, u64)>,
    /// The attempt of which an end tells, or has told, how much has moved: not every end does.
    told: Option<Attempt>,
}

impl SlotData {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            state: SlotState::Closed,
            retired: false,
            pipeline: Pipeline::default(),
            pace: Pace::default(),
            short: ShortPace::default(),
            moved_in_all: 0,
            relieved: false,
            chunk_since: now,
            charged: false,
            last_given: 0,
            failures: 0,
            misses: 0,
            watch: Watch { window_start: now, window_bytes: 0, last_sign: now, moving: None, next: None, told: None },
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.state == SlotState::Ready
    }

    /// Whether it may be given something.
    pub(super) fn takes_work(&self) -> bool {
        self.is_ready() && !self.retired
    }

    /// Whether it works, or will once it is opened.
    pub(super) fn is_wanted(&self) -> bool {
        !self.retired && self.state != SlotState::Dead
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, SlotState::Ready | SlotState::Opening { .. })
    }

    /// How many of `load` it was given.
    pub(super) fn count(&self, load: Load) -> usize {
        self.pipeline.count(load)
    }

    /// Whether it moves large files or parts of them.
    pub(super) fn is_large(&self) -> bool {
        self.count(Load::Whole) + self.count(Load::Chunk) > 0
    }

    /// Chunks that move or will.
    pub(super) fn moving_chunks(&self) -> usize {
        self.pipeline.moving_chunks()
    }

    /// Whether it could take a chunk, with at most `ahead` that move or will.
    pub(super) fn takes_chunk(&self, ahead: usize) -> bool {
        let (moving, all) = (self.moving_chunks(), self.count(Load::Chunk));
        let others = self.count(Load::Whole) + self.count(Load::Small);
        self.takes_work() && others == 0 && moving < ahead && all - moving <= KEEPING
    }

    /// A sign of life that ends every window: something began, ended or changed its phase.
    pub(super) fn sign(&mut self, now: Instant) {
        self.watch.window_start = now;
        self.watch.window_bytes = 0;
        self.watch.last_sign = now;
    }

    /// `attempt` moves data from now on, `left` bytes are still to come. Behind a large file that still moves it is watched
    /// when that has moved.
    pub(super) fn set_moving(&mut self, attempt: Attempt, left: u64) {
        let is_behind = self.count(Load::Whole) > 1 && self.watch.moving.is_some_and(|(moving, _)| moving != attempt);
        let place = if is_behind { &mut self.watch.next } else { &mut self.watch.moving };
        *place = Some((attempt, left));
    }

    /// An end tells how much of `attempt` has moved.
    pub(super) fn set_told(&mut self, attempt: Attempt) {
        if !self.is_next(attempt) {
            self.watch.told = Some(attempt);
        }
    }

    /// `attempt` moves data no more; what has begun behind it is watched now.
    pub(super) fn clear_moving(&mut self, attempt: Attempt) {
        if self.is_next(attempt) {
            self.watch.next = None;
        }
        if self.watch.moving.is_some_and(|(moving, _)| moving == attempt) {
            self.watch.moving = self.watch.next.take();
            // The same ends tell of it.
            if let (Some((next, _)), true) = (self.watch.moving, self.watch.told == Some(attempt)) {
                self.watch.told = Some(next);
            }
        }
    }

    fn is_next(&self, attempt: Attempt) -> bool {
        self.watch.next.is_some_and(|(next, _)| next == attempt)
    }

    /// Takes something on.
    pub(super) fn give(&mut self, now: Instant, flight: Flight) {
        if self.pipeline.is_empty() {
            self.sign(now);
        }
        if flight.load == Load::Chunk && self.moving_chunks() == 0 {
            self.chunk_since = now;
        }
        if flight.load == Load::Small {
            self.short.begin(now);
        }
        self.pipeline.push(flight);
    }

    /// How long the session is busy with the small files and commands that it has, in bytes.
    pub(super) fn weight(&self) -> u64 {
        self.pipeline.weight()
    }

    /// Bytes of the chunks in the air that have not moved.
    pub(super) fn backlog(&self) -> u64 {
        self.pipeline.iter().map(|flight| flight.bytes).sum()
    }

    /// A chunk has moved: the pace follows.
    pub(super) fn chunk_moved(&mut self, now: Instant, attempt: Attempt) {
        // Told twice, by its move and by its end: the next one has begun meanwhile.
        let Some(bytes) = self.pipeline.take_bytes(attempt) else { return };
        self.pace.moved(bytes, now.saturating_duration_since(self.chunk_since));
        self.chunk_since = now;
    }

    /// An attempt is over.
    pub(super) fn leave(&mut self, now: Instant, attempt: Attempt) {
        let before = self.weight();
        self.pipeline.remove(attempt);
        self.short.done(now, before - self.weight());
        if self.count(Load::Small) == 0 {
            self.short.end();
        }
        self.clear_moving(attempt);
        self.sign(now);
    }

    /// What ran on a session that is over.
    pub(super) fn take_pipeline(&mut self) -> Vec<Attempt> {
        (self.watch.moving, self.watch.next) = (None, None);
        self.short.end();
        self.pipeline.take()
    }

    /// Bytes that what moves has still to move, if anybody tells how it goes.
    fn left(&self) -> u64 {
        let told = |(attempt, _): &(Attempt, u64)| self.watch.told == Some(*attempt);
        self.watch.moving.filter(told).map_or(0, |(_, left)| left)
    }

    /// `attempt` has moved so much more; whether that was the last of a small file, whose session can begin with the next one.
    pub(super) fn moved(&mut self, now: Instant, attempt: Attempt, bytes: u64) -> bool {
        self.watch.window_bytes = self.watch.window_bytes.saturating_add(bytes);
        self.moved_in_all = self.moved_in_all.saturating_add(bytes);
        for (_, left) in
            [&mut self.watch.moving, &mut self.watch.next].into_iter().flatten().filter(|(of, _)| *of == attempt)
        {
            *left = left.saturating_sub(bytes);
        }
        self.watch.last_sign = now;
        if bytes > 0 && !self.is_next(attempt) && self.watch.told.replace(attempt) != Some(attempt) {
            self.watch.window_start = now;
        }
        let before = self.weight();
        let is_last = self.pipeline.moved(attempt, bytes);
        self.short.done(now, before - self.weight());
        is_last
    }

    /// Bytes that it has still to move of what it was given; `None`: it moves no data, or of an unknown size.
    pub(super) fn owed(&self) -> Option<u64> {
        let (moving, left) = self.watch.moving.filter(|(_, left)| (1..u64::MAX).contains(left))?;
        let others = self.pipeline.iter().filter(|flight| flight.attempt != moving);
        let others = others.map(|flight| flight.bytes + flight.small);
        Some(others.chain(self.watch.next.map(|(_, left)| left)).fold(left, u64::saturating_add))
    }

    /// When to look at the slot again.
    pub(super) fn deadline(&self, policy: &StallPolicy) -> Option<Instant> {
        match self.state {
            SlotState::Opening { since } => Some(since + policy.open),
            SlotState::Backoff { until } => Some(until),
            SlotState::Ready if self.pipeline.is_empty() => None,
            SlotState::Ready if self.left() > 0 => Some(self.watch.window_start + policy.window),
            SlotState::Ready => Some(self.watch.last_sign + policy.quiet),
            SlotState::Closed | SlotState::Dead => None,
        }
    }

    /// Whether a ready session with work has made too little progress; a window that was good begins anew.
    pub(super) fn stalled(&mut self, now: Instant, policy: &StallPolicy) -> bool {
        let due = self.deadline(policy).is_some_and(|at| at <= now);
        if !due || !self.is_ready() {
            return false;
        }
        let left = self.left();
        let enough = left > 0 && self.watch.window_bytes >= policy.min_bytes.min(left);
        if enough {
            self.watch.window_start = now;
            self.watch.window_bytes = 0;
        }
        !enough
    }
}

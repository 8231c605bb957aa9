//! The transfer machine: what the sessions do next. It decides and never performs.
//!
//! The driver reports what happens with [`TransferMachine::handle`], performs what
//! [`TransferMachine::poll_command`] says until it says nothing more, and calls
//! [`Input::Tick`] when [`TransferMachine::poll_timeout`] has passed. The machine guarantees: every
//! item handed to it ends exactly once (done, skipped or failed), one item's failure never stops
//! another, at most `concurrency` sessions are open, and it always comes to an end.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use crate::events::Event;
use crate::fault::Fault;
use crate::plan::{Action, Item, ItemId};
use crate::progress::{Progress, Verification};
use crate::ranges::RangeSet;
use crate::retry::RetryPolicy;
use crate::summary::Summary;
use crate::tune::Setting;

/// One of the sessions that work at the same time: 0 to `concurrency` - 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Slot(pub u32);

/// One attempt at one item; every report about it carries it, so that late reports are told from current ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Attempt {
    /// The item.
    pub item: ItemId,
    /// 1 for the first start; a start on another session counts on.
    pub number: u32,
}

/// What to do for an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    /// Make the directory; an existing one counts as made.
    MakeDirectory,
    /// Copy what is missing, set the attributes, verify.
    Copy,
    /// Compare checksums; answer with [`Input::ItemCompared`].
    Compare,
    /// Make a link with this target.
    Symlink {
        /// What it says.
        target: Vec<u8>,
    },
    /// Set the item's attributes.
    SetAttributes,
}

/// One order to a session.
#[derive(Debug, Clone)]
pub struct Job {
    /// Which attempt this is.
    pub attempt: Attempt,
    /// What to do.
    pub work: Work,
    /// To what.
    pub item: Item,
    /// What has arrived in earlier attempts, offsets in the file; empty means from the start.
    pub received: RangeSet,
}

/// What an attempt is busy with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Moving bytes.
    Moving,
    /// Computing or comparing checksums.
    Verifying,
}

/// What happened.
#[derive(Debug)]
pub enum Input {
    /// The planner's next action; accepted at any time before `ListingDone`.
    Planned(Action),
    /// No further action will come.
    ListingDone,
    /// The session is logged in and idle.
    SessionReady {
        /// Which.
        slot: Slot,
    },
    /// The session could not be opened, or broke; whatever ran on it is over.
    SessionLost {
        /// Which.
        slot: Slot,
        /// Why.
        fault: Fault,
    },
    /// The attempt's turn has come in the session's pipeline: data are being opened or moved.
    ItemStarted {
        /// Which.
        attempt: Attempt,
    },
    /// The attempt has moved bytes, or is alive in another way.
    ItemProgress {
        /// Which.
        attempt: Attempt,
        /// Payload bytes moved by this attempt so far; never decreases.
        moved: u64,
        /// What a restart may trust, when the peer has just said so (restart markers); adds to what is known.
        durable: Option<RangeSet>,
    },
    /// The attempt entered another phase.
    ItemPhase {
        /// Which.
        attempt: Attempt,
        /// The phase.
        phase: Phase,
    },
    /// The attempt is complete.
    ItemDone {
        /// Which.
        attempt: Attempt,
        /// Payload bytes moved by this attempt.
        bytes: u64,
        /// Whether the copy was verified.
        verified: Verification,
    },
    /// The checksums of both sides were compared.
    ItemCompared {
        /// Which.
        attempt: Attempt,
        /// Whether they are equal; if not, the copy follows.
        equal: bool,
    },
    /// The attempt failed; the session lives on.
    ItemFailed {
        /// Which.
        attempt: Attempt,
        /// Why.
        fault: Fault,
        /// What has arrived and may be trusted, earlier attempts included or not.
        received: RangeSet,
    },
    /// The user or the administrator wants it to end.
    Cancel,
    /// Time has passed.
    Tick,
}

/// What to do.
#[derive(Debug)]
pub enum Command {
    /// Open a session: connect and log in both ends; answer with `SessionReady` or `SessionLost`.
    OpenSession {
        /// Which.
        slot: Slot,
    },
    /// Start a job on a ready session, behind those it was given before.
    Start {
        /// Which.
        slot: Slot,
        /// What to do.
        job: Box<Job>,
    },
    /// Close the session, orderly when it is idle, at once when `fault` is given (stall, cancel): what
    /// runs on it is over, and the machine knows; answer with nothing.
    CloseSession {
        /// Which.
        slot: Slot,
        /// Why, unless it is simply no longer needed.
        fault: Option<Fault>,
    },
    /// Tell the user.
    Report(Event),
}

/// When a session makes too little progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StallPolicy {
    /// Length of the window; default 60 s.
    pub window: Duration,
    /// Fewest bytes a moving session must move in a window; default 4096.
    pub min_bytes: u64,
    /// Longest silence while verifying, comparing or working without data; default 10 min.
    pub quiet: Duration,
    /// Longest time for opening a session; default 2 min.
    pub open: Duration,
}

/// How the machine works.
#[derive(Debug, Clone)]
pub struct TransferOptions {
    /// Sessions at once; at least 1.
    pub concurrency: u32,
    /// Small items in flight for each session; automatic means by item size and round-trip time.
    pub pipeline: Setting<u32>,
    /// Round-trip time between the two ends of the control connection that is farther away, when measured.
    pub rtt: Option<Duration>,
    /// Items up to this many bytes are pipelined, larger ones run one at a time; default 16 MiB.
    pub small_limit: u64,
    /// Items waiting above which [`TransferMachine::wants_more`] says no; default 4096.
    pub queue_limit: usize,
    /// When failed attempts are repeated.
    pub retry: RetryPolicy,
    /// When a session is given up as stalled.
    pub stall: StallPolicy,
    /// Seed of the jitter; the same seed gives the same waits.
    pub seed: u64,
}

/// The machine.
#[derive(Debug)]
pub struct TransferMachine {
    _options: TransferOptions,
}

impl TransferMachine {
    /// A machine without items; `now` is the start of the run.
    pub fn new(options: TransferOptions, now: Instant) -> Self {
        let _ = now;
        Self { _options: options }
    }

    /// Takes one input.
    pub fn handle(&mut self, now: Instant, input: Input) {
        let _ = (now, input);
        todo!()
    }

    /// The next thing to do.
    pub fn poll_command(&mut self) -> Option<Command> {
        todo!()
    }

    /// When to call [`Input::Tick`] at the latest; `None` while only inputs matter.
    pub fn poll_timeout(&self) -> Option<Instant> {
        todo!()
    }

    /// Whether the planner may go on: false while enough items wait.
    pub fn wants_more(&self) -> bool {
        todo!()
    }

    /// Whether every item has ended, the listing is complete and no session is open.
    pub fn is_finished(&self) -> bool {
        todo!()
    }

    /// Every number shown.
    pub fn progress(&self) -> &Progress {
        todo!()
    }

    /// The end-of-run summary; meaningful once finished.
    pub fn summary(&self, now: Instant) -> Summary {
        let _ = now;
        todo!()
    }
}

//! The transfer machine: what the sessions do next. It decides and never performs.
//!
//! The driver reports what happens with [`TransferMachine::handle`], performs what
//! [`TransferMachine::poll_command`] says until it says nothing more, and calls
//! [`Input::Tick`] when [`TransferMachine::poll_timeout`] has passed. The machine guarantees: every
//! item handed to it ends exactly once (done, skipped or failed), one item's failure never stops
//! another, at most `concurrency` sessions are open, and it always comes to an end.
//!
//! With [`Chunking`], a large file is opened once, moved in parts by any sessions at once, and committed once: no proven
//! byte moves again, a wrong leaf goes again alone, and a failed part stops no other. Parts are cut when a session takes
//! them, shorter ones where less is left than a chunk for each session.
//!
//! ```
//! use std::time::Instant;
//! use whimbrel_engine::listing::Object;
//! use whimbrel_engine::plan::{PlanOptions, Planner, Root};
//! use whimbrel_engine::progress::Verification;
//! use whimbrel_engine::transfer::{Command, Input, TransferMachine, TransferOptions};
//!
//! let mut planner = Planner::new(PlanOptions::default());
//! planner.add_root(Root::new("/src/a", "/dst/a").object(Object::file("", 5)));
//! planner.no_more_roots();
//!
//! let now = Instant::now();
//! let mut machine = TransferMachine::new(TransferOptions::default(), now);
//! while let Some(action) = planner.poll_action() {
//!     machine.handle(now, Input::Planned(action));
//! }
//! machine.handle(now, Input::ListingDone);
//! while let Some(command) = machine.poll_command() {
//!     match command {
//!         // A real driver connects and logs in, moves the bytes, and answers when it has.
//!         Command::OpenSession { slot } => machine.handle(now, Input::SessionReady { slot }),
//!         Command::Start { job, .. } => {
//!             let attempt = job.attempt;
//!             machine.handle(now, Input::ItemStarted { attempt, tells: true });
//!             let verified = Verification::NotAsked;
//!             machine.handle(now, Input::ItemDone { attempt, bytes: 5, verified });
//!         }
//!         Command::CloseSession { .. } => {}
//!         Command::Report(event) => println!("{}", event.to_json()),
//!     }
//! }
//! assert!(machine.is_finished());
//! assert_eq!(machine.summary(now).exit_code, 0);
//! ```

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Instant;

use crate::events::Event;
use crate::fault::Fault;
use crate::plan::ItemId;
use crate::progress::Progress;
use crate::summary::{Failures, Summary};

#[cfg(test)]
mod ahead_tests;
mod budget;
mod chunked;
mod chunks;
#[cfg(test)]
mod chunks_simulation;
#[cfg(test)]
mod chunks_tests;
mod directories;
mod dispatch;
mod endings;
mod entry;
mod inputs;
mod lag;
mod messages;
mod options;
mod pace;
#[cfg(test)]
mod pace_tests;
mod patience;
mod pipeline;
mod queue;
mod sessions;
#[cfg(test)]
mod simulation;
mod slot;
mod soonest;
#[cfg(test)]
mod soonest_tests;
#[cfg(test)]
mod tests;

pub use messages::{Attempt, Command, Input, Job, Opening, Phase, Slot, Work};
pub use options::{Alone, Chunking, StallPolicy, TransferOptions};

use budget::Budget;
use directories::Directories;
use entry::Entry;
use lag::Look;
use queue::{Class, Queue};
use slot::{SlotData, SlotState};
use soonest::HeldBack;

/// The machine.
#[derive(Debug)]
pub struct TransferMachine {
    options: TransferOptions,
    progress: Progress,
    failures: Failures,
    /// Items handed to the machine that have not ended.
    entries: HashMap<ItemId, Entry>,
    queue: Queue,
    /// How files are moved in parts of which nothing else was said.
    usual: Option<Chunking>,
    /// Files that are not moved as the others are.
    imposed: HashMap<ItemId, Option<Chunking>>,
    delayed: BTreeSet<(Instant, ItemId)>,
    directories: Directories,
    slots: Vec<SlotData>,
    /// Attempts that are not listened to any more, though they still take their sessions' time.
    orphans: BTreeMap<Attempt, Slot>,
    /// How fast data may be asked for.
    budget: Budget,
    /// What sessions that others wait for have moved; `None`: none does.
    look: Option<Look>,
    /// Whether slow sessions are left idle.
    held_back: HeldBack,
    /// Starts so far.
    given: u64,
    commands: VecDeque<Command>,
    /// Consequences still to be drawn; a list, because a failed directory can end a deep tree.
    endings: VecDeque<Ending>,
    listing_done: bool,
    cancelled: bool,
    /// Why no session can be opened any more.
    dead: Option<Fault>,
    /// Whether any session has stood.
    was_ready: bool,
}

/// A consequence of something that ended.
#[derive(Debug)]
enum Ending {
    Release(ItemId),
    Fail(ItemId, Fault),
}

impl TransferMachine {
    /// A machine without items; `now` is the start of the run.
    pub fn new(mut options: TransferOptions, now: Instant) -> Self {
        options.chunking = options.chunking.map(Chunking::normal);
        let slots = (0..options.concurrency.max(1)).map(|_| SlotData::new(now));
        Self {
            slots: slots.collect(),
            usual: options.chunking,
            budget: Budget::new(options.max_rate, now),
            options,
            progress: Progress::new(now),
            failures: Failures::default(),
            entries: HashMap::new(),
            queue: Queue::default(),
            imposed: HashMap::new(),
            delayed: BTreeSet::new(),
            directories: Directories::default(),
            orphans: BTreeMap::new(),
            look: None,
            held_back: HeldBack::No,
            given: 0,
            commands: VecDeque::new(),
            endings: VecDeque::new(),
            listing_done: false,
            cancelled: false,
            dead: None,
            was_ready: false,
        }
    }

    /// Takes one input.
    pub fn handle(&mut self, now: Instant, input: Input) {
        // News of what runs frees no session: in a run of small files most inputs end here.
        let only_news =
            matches!(input, Input::ItemStarted { .. } | Input::ItemProgress { .. } | Input::ItemPhase { .. });
        self.take(now, input);
        if !only_news || !self.endings.is_empty() {
            self.settle(now);
        }
    }

    /// The next thing to do.
    pub fn poll_command(&mut self) -> Option<Command> {
        self.commands.pop_front()
    }

    /// When to call [`Input::Tick`] at the latest; `None` while only inputs matter.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let slots = self.slots.iter().filter_map(|slot| slot.deadline(&self.options.stall));
        let delayed = self.delayed.first().map(|(at, _)| *at);
        slots.chain(delayed).chain(self.budget.due()).chain(self.look_due()).chain(self.held_back_until()).min()
    }

    /// Whether the planner may go on: false while enough items wait.
    pub fn wants_more(&self) -> bool {
        self.entries.len() < self.options.queue_limit.max(1)
    }

    /// Whether every item has ended, the listing is complete, no session is open and every command was taken.
    pub fn is_finished(&self) -> bool {
        self.is_over() && self.commands.is_empty() && !self.slots.iter().any(SlotData::is_open)
    }

    /// Sessions that were given something that has not ended.
    pub fn working_sessions(&self) -> usize {
        self.slots.iter().filter(|slot| !slot.pipeline.is_empty()).count()
    }

    /// Every number shown.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// The end-of-run summary; meaningful once finished.
    pub fn summary(&self, now: Instant) -> Summary {
        Summary::new(self.progress.snapshot(now), &self.failures, self.cancelled)
    }

    /// Whether nothing is left to do.
    fn is_over(&self) -> bool {
        self.entries.is_empty() && (self.listing_done || self.cancelled)
    }

    fn report(&mut self, event: Event) {
        self.commands.push_back(Command::Report(event));
    }

    fn slot(&mut self, slot: Slot) -> Option<&mut SlotData> {
        self.slots.get_mut(slot.0 as usize)
    }

    fn class(&self, entry: &Entry) -> Class {
        match (&entry.work, entry.item.size) {
            (Work::Copy | Work::Compare, Some(size)) if size <= self.options.small_limit => Class::Small(size),
            (Work::Copy | Work::Compare, Some(size)) => Class::Large(size),
            // A device may give any number of bytes.
            (Work::Copy | Work::Compare, None) => Class::Large(self.options.small_limit),
            (Work::Open { .. }, size) => Class::Chunked(size.unwrap_or(0)),
            _ => Class::Control,
        }
    }
}

//! What shall go wrong, and what was called.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use whimbrel_engine::{Fault, FaultCode};

/// Every call that a storage and its open files have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // Named like the methods of the traits.
pub enum Operation {
    Stat,
    List,
    /// One step of a listing.
    ListNext,
    OpenRead,
    Begin,
    Target,
    Journal,
    Join,
    Commit,
    Abandon,
    Unfinished,
    Scratch,
    FileSystem,
    /// [`crate::Connector::sync`].
    SyncAll,
    MakeDir,
    RemoveDir,
    RemoveFile,
    RemoveTree,
    Rename,
    Symlink,
    SetAttributes,
    Truncate,
    /// Cannot fail; counted and delayed only.
    OwnerNames,
    ReadAt,
    /// `ReadAt::meta`.
    ReadMeta,
    DataRanges,
    WriteAt,
    Sync,
    Durable,
    ReadBack,
    Finish,
    Reserve,
    Clear,
    ExtendTo,
    Room,
    DropCached,
    /// `Journal::read`.
    JournalRead,
    /// `Journal::note`.
    JournalNote,
    /// `Journal::sync`.
    JournalSync,
    /// `Journal::append`.
    JournalAppend,
    /// `Journal::cut`.
    JournalCut,
}

impl Operation {
    /// All of them.
    pub const ALL: &'static [Operation] = {
        use Operation::*;
        &[
            Stat,
            List,
            ListNext,
            OpenRead,
            Begin,
            Target,
            Journal,
            Join,
            Commit,
            Abandon,
            Unfinished,
            Scratch,
            FileSystem,
            SyncAll,
            MakeDir,
            RemoveDir,
            RemoveFile,
            RemoveTree,
            Rename,
            Symlink,
            SetAttributes,
            Truncate,
            OwnerNames,
            ReadAt,
            ReadMeta,
            DataRanges,
            WriteAt,
            Sync,
            Durable,
            ReadBack,
            Finish,
            Reserve,
            Clear,
            ExtendTo,
            Room,
            DropCached,
            JournalRead,
            JournalNote,
            JournalSync,
            JournalAppend,
            JournalCut,
        ]
    };
}

/// Which calls of an operation a rule is for; calls count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Calls {
    /// Only this one.
    Nth(u64),
    /// This one and all after it.
    From(u64),
}

impl Calls {
    fn covers(self, call: u64) -> bool {
        match self {
            Calls::Nth(n) => call == n,
            Calls::From(n) => call >= n,
        }
    }
}

/// Whether a failing call did its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Fails without doing anything.
    Before,
    /// Does its work, then reports a failure: the answer is lost, as when a host crashes.
    After,
}

/// Called before every operation with its number; may wait, for delays and meetings of threads.
pub type Hook = Arc<dyn Fn(Operation, u64) + Send + Sync>;

/// Called after every call that moved bytes, with their number; may wait, as storage of a fixed rate does.
pub type Meter = Arc<dyn Fn(Operation, usize) + Send + Sync>;

enum Effect {
    Fail(FaultCode, When),
    /// Flips the lowest bit of the byte at this offset of the file, if the call reads it.
    Flip(u64),
}

struct Rule {
    operation: Operation,
    calls: Calls,
    effect: Effect,
}

#[derive(Default)]
struct State {
    rules: Vec<Rule>,
    calls: HashMap<Operation, u64>,
    hook: Option<Hook>,
    meter: Option<Meter>,
}

/// The rules of a [`super::Faulty`] storage and its counters; clones share both.
#[derive(Clone, Default)]
pub struct Script {
    state: Arc<Mutex<State>>,
}

/// What one call has to do.
pub(super) struct Turn {
    pub before: Option<FaultCode>,
    pub after: Option<FaultCode>,
    pub flips: Vec<u64>,
}

impl Script {
    /// No rules: everything works and is counted.
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, operation: Operation, calls: Calls, effect: Effect) -> &Self {
        self.state().rules.push(Rule { operation, calls, effect });
        self
    }

    /// Makes these calls of `operation` fail with `code`; the first rule that fits counts.
    pub fn fail(&self, operation: Operation, calls: Calls, code: FaultCode, when: When) -> &Self {
        self.add(operation, calls, Effect::Fail(code, when))
    }

    /// Flips one bit of what these calls of [`Operation::ReadAt`] or [`Operation::ReadBack`] return:
    /// the lowest bit of the byte at `offset` of the file, when the call covers it.
    pub fn flip(&self, operation: Operation, calls: Calls, offset: u64) -> &Self {
        self.add(operation, calls, Effect::Flip(offset))
    }

    /// Sets what is called before every operation; replaces an earlier one.
    pub fn hook(&self, hook: impl Fn(Operation, u64) + Send + Sync + 'static) -> &Self {
        self.state().hook = Some(Arc::new(hook));
        self
    }

    /// Sets what is called after every [`Operation::ReadAt`], [`Operation::WriteAt`] and [`Operation::ReadBack`] with
    /// the bytes that it moved; replaces an earlier one.
    pub fn meter(&self, meter: impl Fn(Operation, usize) + Send + Sync + 'static) -> &Self {
        self.state().meter = Some(Arc::new(meter));
        self
    }

    /// Removes all rules, the hook and the meter; the counters go on.
    pub fn heal(&self) {
        let mut state = self.state();
        state.rules.clear();
        state.hook = None;
        state.meter = None;
    }

    /// How often `operation` was called so far, failed calls included.
    pub fn calls(&self, operation: Operation) -> u64 {
        self.state().calls.get(&operation).copied().unwrap_or(0)
    }

    /// Whether reads have to pass through here to be tampered with.
    pub(super) fn touches_reads(&self) -> bool {
        let state = self.state();
        let reads = state.rules.iter().filter(|r| r.operation == Operation::ReadAt);
        state.hook.is_some() || state.meter.is_some() || reads.count() > 0
    }

    /// Tells the meter of bytes that were moved.
    pub(super) fn moved(&self, operation: Operation, bytes: usize) {
        // It may wait while others move bytes, too.
        let meter = self.state().meter.clone();
        if let Some(meter) = meter {
            meter(operation, bytes);
        }
    }

    /// Counts a call, runs the hook, and tells what has to go wrong.
    pub(super) fn turn(&self, operation: Operation) -> Turn {
        let mut state = self.state();
        let count = state.calls.entry(operation).or_insert(0);
        *count += 1;
        let call = *count;
        let mut turn = Turn { before: None, after: None, flips: Vec::new() };
        let fitting = |rule: &&Rule| rule.operation == operation && rule.calls.covers(call);
        for rule in state.rules.iter().filter(fitting) {
            match rule.effect {
                Effect::Fail(code, When::Before) => drop(turn.before.get_or_insert(code)),
                Effect::Fail(code, When::After) => drop(turn.after.get_or_insert(code)),
                Effect::Flip(offset) => turn.flips.push(offset),
            }
        }
        let hook = state.hook.clone();
        // The hook may wait for another thread's call.
        drop(state);
        if let Some(hook) = hook {
            hook(operation, call);
        }
        turn
    }
}

/// The fault a rule asked for.
pub(super) fn scripted(code: FaultCode, operation: Operation) -> Fault {
    Fault::new(code, format!("{operation:?}")).detail("as scripted")
}

//! One item until it ends, and the attempts at it that run.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Instant;

use super::chunked::ChunkedFile;
use super::patience::Patience;
use super::{Attempt, Phase, Slot, Work};
use crate::plan::{DirectoryId, Item};
use crate::progress::ItemState;
use crate::ranges::RangeSet;

/// One item until it ends.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) item: Item,
    pub(super) work: Work,
    /// What comes behind it, where the item's name is told apart from others first.
    pub(super) then: Option<Work>,
    /// The directory that `MakeDirectory` makes or `SetAttributes` ends.
    pub(super) directory: Option<DirectoryId>,
    pub(super) received: RangeSet,
    /// Starts so far, those of chunks included: tells attempts apart.
    pub(super) number: u32,
    /// Attempts at the item as people count them: those of its chunks count only when they repeat one that failed.
    pub(super) tries: u32,
    pub(super) patience: Patience,
    pub(super) place: Place,
    /// What runs, by the number of its start; more than one only for chunks.
    pub(super) runs: BTreeMap<u32, Run>,
    /// The parts of a file that is moved in chunks, from its opening on.
    pub(super) chunked: Option<Box<ChunkedFile>>,
    /// Whether its ends cannot move it in chunks.
    pub(super) only_whole: bool,
    /// Whether nothing is copied where its ends differ.
    pub(super) only_compared: bool,
    pub(super) begun: Option<Instant>,
    /// When the last attempt was started.
    pub(super) tried: Option<Instant>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Waits for its directory, or for what is in it.
    Blocked,
    Queued,
    Delayed,
    Running,
    /// Opened: its parts wait, run and come back each by itself.
    Parts,
}

/// One attempt that a session was given.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) slot: Slot,
    /// The bytes of a chunk; empty for anything else.
    pub(super) part: Range<u64>,
    /// Bytes it says it moved.
    pub(super) moved: u64,
    /// Bytes that are owed for it where the rate is bounded.
    pub(super) charged: u64,
    /// Whether an end tells, or has told, how much has moved.
    pub(super) told: bool,
    /// Whether its turn in the pipeline has come.
    pub(super) at_work: bool,
    pub(super) phase: Phase,
}

impl Run {
    /// Bytes of those charged that have not moved; where nobody tells, all may have.
    pub(super) fn unmoved(&self) -> u64 {
        if self.at_work && !self.told { 0 } else { self.charged.saturating_sub(self.moved) }
    }
}

impl Entry {
    pub(super) fn new(item: Item, work: Work, directory: Option<DirectoryId>) -> Self {
        let (work, then) = match work {
            work if item.twins.is_empty() || work == Work::SetAttributes => (work, None),
            work => (Work::TellApart, Some(work)),
        };
        Self {
            item,
            work,
            then,
            directory,
            received: RangeSet::new(),
            number: 0,
            tries: 0,
            patience: Patience::default(),
            place: Place::Blocked,
            runs: BTreeMap::new(),
            chunked: None,
            only_whole: false,
            only_compared: false,
            begun: None,
            tried: None,
        }
    }

    /// Counts a start on `slot`, for which so many bytes are `charged`.
    pub(super) fn run(&mut self, now: Instant, slot: Slot, part: Range<u64>, charged: u64) -> Attempt {
        self.number += 1;
        self.begun.get_or_insert(now);
        self.tried = Some(now);
        let run = Run { slot, part, moved: 0, charged, told: false, at_work: false, phase: Phase::Moving };
        self.runs.insert(self.number, run);
        Attempt { item: self.item.id, number: self.number }
    }

    /// What is done for the item, now or behind what must be found out before.
    pub(super) fn aim(&self) -> &Work {
        self.then.as_ref().unwrap_or(&self.work)
    }

    /// Whether it is a file that is to be copied or compared: such items are shown in progress.
    pub(super) fn is_file(&self) -> bool {
        !matches!(self.aim(), Work::MakeDirectory | Work::Symlink { .. } | Work::SetAttributes)
    }

    /// Bytes of a file in chunks that are proven or moved by what runs.
    pub(super) fn credit(&self) -> u64 {
        let proven = self.chunked.as_ref().map_or(0, |file| file.verified.len());
        let moving: u64 = self.runs.values().map(|run| run.moved.min(run.part.end - run.part.start)).sum();
        proven + moving
    }

    /// What a file in chunks is busy with, all its chunks together.
    pub(super) fn parts_state(&self) -> ItemState {
        let at_work = |phase| self.runs.values().any(|run| run.at_work && run.phase == phase);
        if at_work(Phase::Moving) {
            ItemState::Moving
        } else if at_work(Phase::Verifying) {
            ItemState::Verifying
        } else if self.runs.is_empty() {
            ItemState::Waiting
        } else {
            ItemState::Queued
        }
    }
}

//! What each input changes.

use std::time::Instant;

use super::directories::Admission;
use super::{Attempt, Ending, Entry, EntryPlace, Input, Phase, Slot, SlotState, TransferMachine, Work};
use crate::events::Event;
use crate::fault::{Fault, FaultCode};
use crate::plan::{Action, DirectoryId, Item, SkipReason};
use crate::progress::{ItemState, Verification};
use crate::ranges::RangeSet;

impl TransferMachine {
    pub(super) fn take(&mut self, now: Instant, input: Input) {
        match input {
            Input::Planned(action) => self.planned(action),
            Input::ListingDone => self.listing_complete(now),
            Input::SessionReady { slot } => self.session_ready(now, slot),
            Input::SessionLost { slot, fault } => self.session_lost(now, slot, fault),
            Input::ItemStarted { attempt } => self.started(now, attempt),
            Input::ItemProgress { attempt, moved, durable } => self.item_progress(now, attempt, moved, durable),
            Input::ItemPhase { attempt, phase } => self.phase(now, attempt, phase),
            Input::ItemDone { attempt, bytes, verified } => self.done(now, attempt, bytes, verified),
            Input::ItemCompared { attempt, equal } => self.compared(now, attempt, equal),
            Input::ItemFailed { attempt, fault, received } => self.failed(now, attempt, fault, &received),
            Input::Cancel => self.cancel(),
            // Answers to work that is not given out yet.
            Input::ItemOpened { .. } | Input::ItemWhole { .. } | Input::ChunkDone { .. } => {}
            Input::Tick => {}
        }
    }

    // --- from the planner --------------------------------------------------------------------

    fn planned(&mut self, action: Action) {
        match action {
            Action::Skip { item, reason } => self.report_skip(&item, reason),
            Action::Refuse { item, fault } => {
                self.progress.fault();
                self.report_failure(&item, fault);
            }
            Action::MakeDirectory { item, directory } => {
                self.directories.announce(directory);
                self.admit(item, Work::MakeDirectory, Some(directory));
            }
            Action::Copy { item } => self.admit_file(item, Work::Copy),
            Action::CompareChecksum { item } => self.admit_file(item, Work::Compare),
            Action::Symlink { item, target } => self.admit(item, Work::Symlink { target }, None),
            Action::SetAttributes { item, directory } => {
                self.admit(item, Work::SetAttributes, Some(directory));
            }
        }
    }

    fn admit_file(&mut self, item: Item, work: Work) {
        self.progress.file_found(item.size);
        self.admit(item, work, None);
    }

    fn admit(&mut self, item: Item, work: Work, directory: Option<DirectoryId>) {
        let id = item.id;
        let parent = item.parent;
        self.directories.entered(parent);
        let finishing = matches!(work, Work::SetAttributes);
        let entry = Entry {
            item,
            work,
            directory,
            received: RangeSet::new(),
            gain_base: 0,
            number: 0,
            failures: 0,
            integrity_failures: 0,
            place: EntryPlace::Blocked,
            begun: None,
            at_work: false,
        };
        self.entries.insert(id, entry);
        let refused = match (&self.dead, self.cancelled) {
            (_, true) => Some(Fault::new(FaultCode::Cancelled, "transfer")),
            (Some(fault), _) => Some(fault.clone()),
            _ => None,
        };
        if let Some(fault) = refused {
            self.endings.push_back(Ending::Fail(id, fault));
        } else if finishing {
            // What its directory's directory allows does not matter: this one exists or has failed.
            if let Some(directory) = directory
                && self.directories.finishing(directory, id)
            {
                self.endings.push_back(Ending::Release(id));
            }
        } else {
            match self.directories.admit(parent, id) {
                Admission::Ready => self.endings.push_back(Ending::Release(id)),
                Admission::Refused(fault) => self.endings.push_back(Ending::Fail(id, fault)),
                Admission::Blocked => {}
            }
        }
    }

    fn listing_complete(&mut self, now: Instant) {
        if !self.listing_done {
            self.listing_done = true;
            self.progress.listing_done();
            let totals = self.progress.snapshot(now);
            self.report(Event::ListingDone { files: totals.files_total, bytes: totals.bytes_total });
        }
    }

    // --- from the sessions -------------------------------------------------------------------

    /// The entry an attempt's report is about and its slot, unless the report comes late.
    fn current(&mut self, attempt: Attempt) -> Option<(&mut Entry, Slot)> {
        let entry = self.entries.get_mut(&attempt.item)?;
        match entry.place {
            EntryPlace::Running(slot) if entry.number == attempt.number => Some((entry, slot)),
            _ => None,
        }
    }

    fn started(&mut self, now: Instant, attempt: Attempt) {
        let Some((entry, slot)) = self.current(attempt) else {
            return;
        };
        if std::mem::replace(&mut entry.at_work, true) {
            return;
        }
        let resumed = entry.received.len();
        let left = entry.item.size.map_or(u64::MAX, |size| size.saturating_sub(resumed));
        let (item, is_copy) = (entry.item.clone(), entry.work == Work::Copy);
        let is_compare = entry.work == Work::Compare;
        if let Some(data) = self.slot(slot) {
            data.sign(now);
            data.charged = false;
            if is_copy {
                data.set_moving(item.id, left);
            }
        }
        let state = if is_compare { ItemState::Verifying } else { ItemState::Moving };
        self.progress.state(item.id, state);
        if is_copy {
            self.report(Event::Started {
                item: item.id,
                source: item.source,
                destination: item.destination,
                size: item.size,
                slot,
                attempt: attempt.number,
                resumed,
            });
        }
    }

    fn item_progress(&mut self, now: Instant, attempt: Attempt, moved: u64, durable: Option<RangeSet>) {
        // A peer whose first sign is a marker has begun.
        self.started(now, attempt);
        let Some((entry, slot)) = self.current(attempt) else {
            return;
        };
        if let Some(durable) = durable {
            keep(entry, &durable);
        }
        let is_copy = entry.work == Work::Copy;
        // Comparing moves nothing, whatever the driver counts.
        let moved = if is_copy { moved } else { 0 };
        let new = self.progress.moved(now, attempt.item, moved);
        if let Some(data) = self.slot(slot) {
            data.moved(now, attempt.item, new);
            if new > 0 {
                data.failures = 0;
            }
        }
    }

    fn phase(&mut self, now: Instant, attempt: Attempt, phase: Phase) {
        self.started(now, attempt);
        let Some((entry, slot)) = self.current(attempt) else {
            return;
        };
        let size = entry.item.size;
        let credited = self.progress.credited(attempt.item);
        let state = match phase {
            Phase::Moving => ItemState::Moving,
            Phase::Verifying => ItemState::Verifying,
        };
        self.progress.state(attempt.item, state);
        if let Some(data) = self.slot(slot) {
            data.sign(now);
            match phase {
                Phase::Verifying => data.clear_moving(attempt.item),
                Phase::Moving => {
                    let left = size.map_or(u64::MAX, |size| size.saturating_sub(credited));
                    data.set_moving(attempt.item, left);
                }
            }
        }
    }

    fn done(&mut self, now: Instant, attempt: Attempt, bytes: u64, verified: Verification) {
        let Some((_, slot)) = self.current(attempt) else {
            return;
        };
        self.progress.moved(now, attempt.item, bytes);
        self.leave_slot(now, slot, attempt);
        if let Some(data) = self.slot(slot) {
            data.failures = 0;
            data.charged = false;
        }
        self.complete(now, attempt.item, &verified);
    }

    fn compared(&mut self, now: Instant, attempt: Attempt, equal: bool) {
        let Some((_, slot)) = self.current(attempt) else {
            return;
        };
        self.leave_slot(now, slot, attempt);
        if equal {
            self.drop_file(attempt.item, SkipReason::SameChecksum);
        } else if let Some(entry) = self.entries.get_mut(&attempt.item) {
            entry.work = Work::Copy;
            entry.failures = 0;
            self.enqueue(attempt.item, true);
        }
    }

    fn failed(&mut self, now: Instant, attempt: Attempt, fault: Fault, received: &RangeSet) {
        let Some((entry, slot)) = self.current(attempt) else {
            return;
        };
        keep(entry, received);
        self.leave_slot(now, slot, attempt);
        if let Some(data) = self.slot(slot) {
            data.charged = true;
        }
        self.attempt_failed(now, attempt.item, fault);
    }

    fn leave_slot(&mut self, now: Instant, slot: Slot, attempt: Attempt) {
        if let Some(data) = self.slot(slot) {
            data.pipeline.retain(|item| *item != attempt.item);
            data.clear_moving(attempt.item);
            data.sign(now);
            if data.pipeline.is_empty() {
                data.large = false;
            }
        }
    }

    fn cancel(&mut self) {
        if std::mem::replace(&mut self.cancelled, true) {
            return;
        }
        let fault = Fault::new(FaultCode::Cancelled, "transfer");
        for slot in 0..self.slots.len() {
            if self.slots[slot].is_open() {
                self.close(Slot(slot as u32), Some(fault.clone()));
            }
            self.slots[slot].pipeline.clear();
            self.slots[slot].state = SlotState::Dead;
        }
        self.fail_all(&fault);
    }
}

/// Adds what has arrived, as far as it belongs to the item; enough of it renews the retry budget.
fn keep(entry: &mut Entry, received: &RangeSet) {
    let span = match (&entry.item.range, entry.item.size) {
        (Some(range), _) => range.clone(),
        (None, Some(size)) => 0..size,
        (None, None) => 0..u64::MAX,
    };
    for range in received.as_slice() {
        let (start, end) = (range.start.max(span.start), range.end.min(span.end));
        entry.received.insert(start..end);
    }
    // A hundredth of the item, 1 MiB at most: trickles must not keep a hopeless item alive for ever.
    let least = entry.item.size.map_or(1 << 20, |size| (size / 100).clamp(1, 1 << 20));
    if entry.received.len() >= entry.gain_base.saturating_add(least) {
        entry.gain_base = entry.received.len();
        entry.failures = 0;
    }
}

//! What each input changes.

use std::ops::Range;
use std::time::Instant;

use super::chunks::ChunkReport;
use super::directories::Admission;
use super::entry::{Entry, Place};
use super::{Attempt, Ending, Input, Phase, Slot, SlotState, TransferMachine, Work};
use crate::events::Event;
use crate::fault::{Fault, FaultCode, Side};
use crate::plan::{Action, DirectoryId, Item, SkipReason, quote_path};
use crate::progress::{ItemState, Verification};
use crate::ranges::RangeSet;

impl TransferMachine {
    pub(super) fn take(&mut self, now: Instant, input: Input) {
        if let Some(attempt) = last_report(&input)
            && self.orphan(now, attempt, true)
        {
            return;
        }
        match input {
            Input::Planned(action) => self.planned(action),
            Input::Chunking { item, chunking } => self.impose(item, chunking),
            Input::ListingDone => self.listing_complete(now),
            Input::SessionReady { slot } => self.session_ready(now, slot),
            Input::SessionLost { slot, fault } => self.session_lost(now, slot, fault),
            Input::ItemStarted { attempt, tells } => self.started(now, attempt, tells),
            Input::ItemProgress { attempt, moved, durable } => self.item_progress(now, attempt, moved, durable),
            Input::ItemPhase { attempt, phase } => self.phase(now, attempt, phase),
            Input::ItemDone { attempt, bytes, verified } => self.done(now, attempt, bytes, verified),
            Input::ItemCompared { attempt, equal } => self.compared(now, attempt, equal),
            Input::ItemFailed { attempt, fault, received } => self.failed(now, attempt, fault, &received),
            Input::Concurrency { sessions } => self.set_concurrency(now, sessions),
            Input::Rate { most } => self.budget.set_rate(now, most),
            Input::Cancel => self.cancel(),
            Input::ItemOpened { attempt, verified, found } => self.opened(now, attempt, &verified, &found),
            Input::ItemWhole { attempt } => self.whole(now, attempt),
            Input::ChunkDone { attempt, bytes, verified, wrong, verification } => {
                self.chunk_done(now, attempt, ChunkReport { bytes, verified, wrong, verification });
            }
            Input::ChunkMoved { attempt } => self.chunk_is_moved(now, attempt),
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
            Action::Copy { item } => {
                let work = self.first_work(&item, false);
                self.admit_file(item, work);
            }
            Action::CompareChecksum { item } => self.admit_file(item, Work::Compare),
            Action::CompareOnly { item } => {
                let id = item.id;
                self.admit_file(item, Work::Compare);
                if let Some(entry) = self.entries.get_mut(&id) {
                    entry.only_compared = true;
                }
            }
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
        let entry = Entry::new(item, work, directory);
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
    pub(super) fn current(&mut self, attempt: Attempt) -> Option<(&mut Entry, Slot)> {
        let entry = self.entries.get_mut(&attempt.item)?;
        let slot = entry.runs.get(&attempt.number)?.slot;
        Some((entry, slot))
    }

    /// Takes news of an attempt whose file has ended or begun anew: its session lives, and has room when it is `over`.
    fn orphan(&mut self, now: Instant, attempt: Attempt, over: bool) -> bool {
        let Some(slot) = self.orphans.get(&attempt).copied() else {
            return false;
        };
        if over {
            self.orphans.remove(&attempt);
            self.leave_slot(now, slot, attempt);
        } else if let Some(data) = self.slot(slot) {
            data.sign(now);
        }
        true
    }

    fn started(&mut self, now: Instant, attempt: Attempt, tells: bool) {
        let Some((entry, slot)) = self.current(attempt) else {
            self.orphan(now, attempt, false);
            return;
        };
        let Some(run) = entry.runs.get_mut(&attempt.number) else {
            return;
        };
        run.told |= tells;
        if std::mem::replace(&mut run.at_work, true) {
            return;
        }
        let resumed = entry.received.len();
        let left = match (run.part.end - run.part.start, entry.item.size) {
            (0, size) => size.map_or(u64::MAX, |size| size.saturating_sub(resumed)),
            (part, _) => part,
        };
        let is_chunk = entry.place == Place::Parts;
        let (item, work, tries) = (entry.item.clone(), entry.work.clone(), entry.tries);
        if let Some(data) = self.slot(slot) {
            data.sign(now);
            data.charged = false;
            if is_chunk || work == Work::Copy {
                data.set_moving(attempt, left);
                if tells {
                    data.set_told(attempt);
                }
            }
        }
        if is_chunk {
            return self.parts_changed(item.id);
        }
        match work {
            Work::Compare | Work::Commit => self.progress.state(item.id, ItemState::Verifying),
            Work::Copy => {
                self.progress.state(item.id, ItemState::Moving);
                self.report_started(item, slot, tries, resumed);
            }
            _ => {}
        }
    }

    fn item_progress(&mut self, now: Instant, attempt: Attempt, moved: u64, durable: Option<RangeSet>) {
        // A peer whose first sign is a marker has begun.
        self.started(now, attempt, true);
        let Some((entry, slot)) = self.current(attempt) else {
            return;
        };
        let is_chunk = entry.place == Place::Parts;
        let is_copy = entry.work == Work::Copy;
        if let Some(run) = entry.runs.get_mut(&attempt.number).filter(|_| is_copy) {
            run.moved = run.moved.max(moved);
        }
        // What is stored of a chunk is trusted when its leaves are proven, not before.
        if let Some(durable) = durable.filter(|_| is_copy) {
            keep(entry, &durable);
        }
        let new = match (is_chunk, is_copy) {
            (true, _) => self.chunk_moved(now, attempt, moved),
            (_, true) => self.progress.moved(now, attempt.item, moved),
            // Comparing moves nothing, whatever the driver counts.
            _ => 0,
        };
        if let Some(data) = self.slot(slot) {
            let has_passed = data.moved(now, attempt, new);
            if new > 0 {
                data.failures = 0;
                data.misses = 0;
            }
            if has_passed && self.queue.has_short() {
                self.dispatch(now);
            }
        }
    }

    fn phase(&mut self, now: Instant, attempt: Attempt, phase: Phase) {
        self.started(now, attempt, false);
        let credited = self.progress.credited(attempt.item);
        let Some((entry, slot)) = self.current(attempt) else {
            return;
        };
        let is_chunk = entry.place == Place::Parts;
        let size = entry.item.size;
        let Some(run) = entry.runs.get_mut(&attempt.number) else {
            return;
        };
        run.phase = phase;
        let left = match size {
            _ if is_chunk => (run.part.end - run.part.start).saturating_sub(run.moved),
            size => size.map_or(u64::MAX, |size| size.saturating_sub(credited)),
        };
        if let Some(data) = self.slot(slot) {
            data.sign(now);
            match phase {
                Phase::Verifying => data.clear_moving(attempt),
                Phase::Moving => data.set_moving(attempt, left),
            }
        }
        let state = match phase {
            _ if is_chunk => return self.parts_changed(attempt.item),
            Phase::Moving => ItemState::Moving,
            Phase::Verifying => ItemState::Verifying,
        };
        self.progress.state(attempt.item, state);
    }

    fn done(&mut self, now: Instant, attempt: Attempt, bytes: u64, verified: Verification) {
        let Some((entry, slot)) = self.current(attempt) else {
            return;
        };
        if matches!(entry.work, Work::Open { .. } | Work::TellApart) {
            return self.misused(now, attempt);
        }
        let is_copy = entry.work == Work::Copy;
        if is_copy || entry.work == Work::Compare {
            if entry.item.size.is_none() {
                // Nobody knew when it began.
                self.budget.charge(now, bytes);
            }
            self.progress.moved(now, attempt.item, bytes);
        }
        self.leave_well(now, slot, attempt, is_copy);
        self.complete(now, attempt.item, &verified);
    }

    fn compared(&mut self, now: Instant, attempt: Attempt, equal: bool) {
        let Some((entry, slot)) = self.current(attempt) else {
            return;
        };
        if entry.work == Work::TellApart {
            return self.told_apart(now, attempt, !equal);
        }
        if entry.work != Work::Compare {
            return self.misused(now, attempt);
        }
        let (item, only) = (entry.item.clone(), entry.only_compared);
        entry.runs.clear();
        self.leave_slot(now, slot, attempt);
        if equal {
            return self.drop_file(attempt.item, SkipReason::SameChecksum);
        }
        if only {
            return self.drop_file(attempt.item, SkipReason::Differs);
        }
        let work = self.first_work(&item, false);
        if let Some(entry) = self.entries.get_mut(&attempt.item) {
            entry.work = work;
            entry.patience.renew();
            self.enqueue(attempt.item, true);
        }
    }

    /// It is known whether the destination tells the item's name from others: what was put off follows, or nothing.
    fn told_apart(&mut self, now: Instant, attempt: Attempt, apart: bool) {
        let Some((entry, slot)) = self.current(attempt) else {
            return;
        };
        entry.runs.clear();
        let Some(next) = entry.then.take_if(|_| apart) else {
            let fault = taken_for_another(&entry.item);
            self.leave_slot(now, slot, attempt);
            self.progress.fault();
            return self.endings.push_back(Ending::Fail(attempt.item, fault));
        };
        entry.work = next;
        entry.patience.renew();
        self.leave_slot(now, slot, attempt);
        self.enqueue(attempt.item, true);
    }

    pub(super) fn failed(&mut self, now: Instant, attempt: Attempt, fault: Fault, received: &RangeSet) {
        let Some((entry, slot)) = self.current(attempt) else {
            return;
        };
        let is_chunk = entry.place == Place::Parts;
        if entry.work == Work::Copy {
            keep(entry, received);
        }
        if !is_chunk {
            self.lose_run(now, attempt);
        }
        self.leave_slot(now, slot, attempt);
        if let Some(data) = self.slot(slot) {
            data.charged = true;
            data.misses += u32::from(fault.side == Some(Side::Network));
        }
        if is_chunk {
            self.chunk_failed(now, attempt, fault, received);
        } else {
            self.attempt_failed(now, attempt.item, fault);
        }
    }

    /// Takes out an attempt that ends without success and returns its part: what has not moved is owed no more.
    pub(super) fn lose_run(&mut self, now: Instant, attempt: Attempt) -> Option<Range<u64>> {
        let run = self.entries.get_mut(&attempt.item)?.runs.remove(&attempt.number)?;
        self.budget.refund(now, run.unmoved());
        Some(run.part)
    }

    fn leave_slot(&mut self, now: Instant, slot: Slot, attempt: Attempt) {
        if let Some(data) = self.slot(slot) {
            data.leave(now, attempt);
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
            self.slots[slot].take_pipeline();
            self.slots[slot].state = SlotState::Dead;
        }
        self.orphans.clear();
        self.fail_all(&fault);
    }
}

/// The attempt that ends with this input.
fn last_report(input: &Input) -> Option<Attempt> {
    match input {
        Input::ItemDone { attempt, .. }
        | Input::ItemOpened { attempt, .. }
        | Input::ItemWhole { attempt }
        | Input::ChunkDone { attempt, .. }
        | Input::ItemCompared { attempt, .. }
        | Input::ItemFailed { attempt, .. } => Some(*attempt),
        _ => None,
    }
}

/// What comes to its name would be written over what comes to the other's.
fn taken_for_another(item: &Item) -> Fault {
    let others: Vec<_> = item.twins.iter().map(|name| format!("'{}'", quote_path(name))).collect();
    let fault = Fault::new(FaultCode::AlreadyExists, "write").on_path(&item.destination).side(Side::Destination);
    fault.detail(format!(
        "the destination takes this name for {}, which is copied, too: rename one",
        others.join(" or ")
    ))
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
    entry.patience.has_come(entry.received.len(), entry.item.size);
}

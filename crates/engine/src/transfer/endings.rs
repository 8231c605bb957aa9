//! How items end, and what follows from it.

use std::time::{Duration, Instant};

use super::entry::{Entry, Place};
use super::patience::Cost;
use super::{Ending, Slot, TransferMachine, Work};
use crate::events::{Event, Outcome};
use crate::fault::{Fault, FaultCode, Retry, Side};
use crate::plan::{Item, ItemId, SkipReason};
use crate::progress::Verification;
use crate::ranges::RangeSet;
use crate::retry::Decision;
use crate::summary::Failure;

impl TransferMachine {
    /// Draws every consequence, then gives work to the sessions.
    pub(super) fn settle(&mut self, now: Instant) {
        self.watch(now);
        loop {
            while let Some(ending) = self.endings.pop_front() {
                match ending {
                    Ending::Release(item) => self.release(item),
                    Ending::Fail(item, fault) => self.give_up(item, fault),
                }
            }
            self.dispatch(now);
            if self.endings.is_empty() {
                return;
            }
        }
    }

    /// An item may start as far as directories go.
    fn release(&mut self, id: ItemId) {
        let Some(entry) = self.entries.get(&id) else {
            return;
        };
        if self.only_ends(entry) {
            self.end(id);
        } else {
            self.enqueue(id, false);
        }
    }

    /// Whether a `SetAttributes` has nothing to set, or nothing to set it on (which was reported).
    fn only_ends(&self, entry: &Entry) -> bool {
        entry.work == Work::SetAttributes
            && (entry.item.attributes.is_empty() || entry.directory.is_some_and(|d| self.directories.has_failed(d)))
    }

    pub(super) fn enqueue(&mut self, id: ItemId, front: bool) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.place = Place::Queued;
        }
        if let Some(entry) = self.entries.get(&id) {
            let class = self.class(entry);
            self.queue.push(id, class, front);
        }
    }

    /// An attempt is over without success: another follows, or the item ends.
    pub(super) fn attempt_failed(&mut self, now: Instant, id: ItemId, fault: Fault) {
        if let Some(entry) = self.entries.get_mut(&id) {
            let (cost, fault) = judge(entry, fault);
            self.charge(now, id, cost, fault);
        }
    }

    /// The same of a failure of which is known what it costs.
    pub(super) fn charge(&mut self, now: Instant, id: ItemId, cost: Cost, fault: Fault) {
        self.progress.fault();
        self.queue.forget(id);
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        let failures = entry.patience.charge(cost);
        if cost.forgets() {
            entry.received = RangeSet::new();
        }
        let fault = if cost == Cost::Lost { makes_way(entry, now, failures, fault) } else { fault };
        let kept = entry.received.len() + entry.chunked.as_ref().map_or(0, |file| file.verified.len());
        self.progress.attempt_failed(id, kept);
        let seed = self.options.seed ^ id.0.wrapping_mul(0x2545_f491_4f6c_dd1d);
        match self.options.retry.decide(fault, failures, seed) {
            Decision::GiveUp(fault) => self.give_up(id, fault),
            Decision::Again { after, fault } => self.delay(now, id, after, fault),
        }
    }

    fn delay(&mut self, now: Instant, id: ItemId, after: Duration, fault: Fault) {
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        let until = now + after;
        let kept = entry.received.len() + entry.chunked.as_ref().map_or(0, |file| file.verified.len());
        entry.place = Place::Delayed;
        let event = Event::Retry {
            item: id,
            source: entry.item.source.clone(),
            fault,
            attempt: entry.tries,
            retry_in: after.as_secs_f64(),
            kept,
        };
        self.delayed.insert((until, id));
        self.progress.retry();
        self.report(event);
    }

    pub(super) fn complete(&mut self, now: Instant, id: ItemId, verified: &Verification) {
        let Some(entry) = self.entries.get(&id) else {
            return;
        };
        let seconds = entry.begun.map_or(0.0, |at| now.saturating_duration_since(at).as_secs_f64());
        let (item, attempts, work) = (entry.item.clone(), entry.tries, entry.work.clone());
        let proof = entry.chunked.as_ref().and_then(|file| file.proof.clone());
        let verified = match (proof, verified) {
            (Some(proof), Verification::NotAsked | Verification::Verified { .. }) => proof.and(verified),
            (_, verified) => verified.clone(),
        };
        let (outcome, bytes) = match work {
            Work::Copy | Work::Compare | Work::Commit => {
                (Outcome::Copied, self.progress.file_done(now, &item, &verified))
            }
            Work::MakeDirectory => {
                self.progress.directory_done();
                (Outcome::DirectoryMade, 0)
            }
            Work::Symlink { .. } => {
                self.progress.symlink_done();
                (Outcome::Linked, 0)
            }
            Work::SetAttributes => (Outcome::AttributesSet, 0),
            // None of them ends an item.
            Work::Open { .. } | Work::Chunk { .. } | Work::TellApart => return,
        };
        self.report(Event::ItemDone { item, outcome, bytes, verification: verified, attempts, seconds });
        if let (Work::MakeDirectory, Some(directory)) = (work, self.directory_of(id)) {
            let (blocked, finish) = self.directories.made(directory, Ok(()));
            self.endings.extend(blocked.into_iter().chain(finish).map(Ending::Release));
        }
        self.end(id);
    }

    /// A file that was to be compared needs no copy.
    pub(super) fn drop_file(&mut self, id: ItemId, reason: SkipReason) {
        if let Some(entry) = self.entries.get(&id) {
            let item = entry.item.clone();
            self.progress.file_dropped(&item);
            self.report_skip(&item, reason);
            self.end(id);
        }
    }

    fn give_up(&mut self, id: ItemId, fault: Fault) {
        let Some(entry) = self.entries.get(&id) else {
            return;
        };
        if self.only_ends(entry) {
            return self.end(id);
        }
        let (item, work) = (entry.item.clone(), entry.aim().clone());
        if entry.is_file() {
            self.progress.file_failed(&item);
        }
        if let (Work::MakeDirectory, Some(directory)) = (&work, self.directory_of(id)) {
            let derived = inherited(&fault, &item);
            let (blocked, finish) = self.directories.made(directory, Err(derived.clone()));
            let fail = |item| Ending::Fail(item, derived.clone());
            self.endings.extend(blocked.into_iter().map(fail));
            self.endings.extend(finish.map(Ending::Release));
        }
        self.report_failure(&item, fault);
        self.end(id);
    }

    /// The item is over; its directory may follow.
    fn end(&mut self, id: ItemId) {
        self.drop_parts(id);
        self.imposed.remove(&id);
        let Some(entry) = self.entries.remove(&id) else {
            return;
        };
        if let (Work::SetAttributes, Some(directory)) = (&entry.work, entry.directory) {
            self.directories.forget(directory);
        }
        let finish = self.directories.left(entry.item.parent);
        self.endings.extend(finish.map(Ending::Release));
    }

    fn directory_of(&self, id: ItemId) -> Option<crate::plan::DirectoryId> {
        self.entries.get(&id)?.directory
    }

    /// Ends everything that waits or runs.
    pub(super) fn fail_all(&mut self, fault: &Fault) {
        self.queue.clear();
        self.delayed.clear();
        let mut ids: Vec<_> = self.entries.keys().copied().collect();
        ids.sort_unstable();
        let fail = |id| Ending::Fail(id, fault.clone());
        self.endings.extend(ids.into_iter().map(fail));
    }

    pub(super) fn report_started(&mut self, item: Item, slot: Slot, attempt: u32, resumed: u64) {
        let Item { id: item, source, destination, size, .. } = item;
        self.report(Event::Started { item, source, destination, size, slot, attempt, resumed });
    }

    pub(super) fn report_skip(&mut self, item: &Item, reason: SkipReason) {
        self.progress.item_skipped();
        self.report(Event::ItemSkipped { item: item.id, source: item.source.clone(), reason });
    }

    pub(super) fn report_failure(&mut self, item: &Item, fault: Fault) {
        // An end that gives up by itself has failed: only the user's word leaves items undone without a failure.
        let cancelled = self.cancelled && fault.code == FaultCode::Cancelled;
        self.progress.item_failed(cancelled);
        let failure = Failure::new(item, fault);
        if !cancelled {
            self.failures.add(&failure);
        }
        self.report(Event::ItemFailed(failure));
    }
}

/// What a failure costs its item. A file whose commit found the unfinished copy gone, replaced or perhaps damaged is opened
/// again: the opening tells what there is.
fn judge(entry: &mut Entry, fault: Fault) -> (Cost, Fault) {
    let cost = match entry.work {
        Work::Commit if is_gone(&fault) && entry.chunked.is_some() => Cost::Lost,
        // Another writer has replaced the unfinished file: what this one brought is not in it.
        Work::Copy if fault.code == FaultCode::StorageBusy && fault.side != Some(Side::Source) => Cost::Lost,
        _ => Cost::of(&fault),
    };
    match (&entry.work, &entry.chunked) {
        (Work::Commit, Some(file)) if cost.forgets() => {
            entry.work = Work::Open { leaf: file.leaf() };
            (cost, worth_another(fault))
        }
        _ => (cost, fault),
    }
}

/// Whether a fault may say that the unfinished copy is not there any more, or not this run's.
pub(super) fn is_gone(fault: &Fault) -> bool {
    matches!(fault.code, FaultCode::NotFound | FaultCode::StorageBusy)
}

/// The same fault, temporary.
pub(super) fn worth_another(fault: Fault) -> Fault {
    let waits = Retry::Temporary { after: Duration::ZERO };
    if fault.retry == Retry::Permanent { fault.retry(waits) } else { fault }
}

/// Longest time that an item makes way for another run.
const MAKES_WAY: Duration = Duration::from_secs(300);

/// Whoever has replaced the unfinished copy may need as long for its own: two runs that did not wait longer each time would
/// take it from each other until one gives up.
fn makes_way(entry: &Entry, now: Instant, times: u32, fault: Fault) -> Fault {
    let took = entry.tried.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
    match fault.retry {
        Retry::Temporary { after } => {
            fault.retry(Retry::Temporary { after: after.max(took.saturating_mul(times).min(MAKES_WAY)) })
        }
        _ => fault,
    }
}

/// Why an item fails whose directory could not be made.
fn inherited(fault: &Fault, directory: &Item) -> Fault {
    Fault { op: "make the directory above".into(), retry: Retry::Permanent, ..fault.clone() }
        .on_path(&directory.destination)
}

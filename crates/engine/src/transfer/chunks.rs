//! Files in chunks: opened once, moved in parts by any sessions, proven leaf by leaf, committed once.

use std::ops::Range;
use std::time::Instant;

use super::chunked::ChunkedFile;
use super::endings::{is_gone, worth_another};
use super::entry::Place;
use super::options::Chunking;
use super::patience::Cost;
use super::{Attempt, Opening, Slot, TransferMachine, Work};
use crate::events::Event;
use crate::fault::{Fault, FaultCode, Retry, Side};
use crate::plan::{Item, ItemId};
use crate::progress::{Holes, Verification};
use crate::ranges::RangeSet;
use crate::retry::Decision;

impl TransferMachine {
    /// How a file begins: whole, or with its opening for chunks.
    pub(super) fn first_work(&self, item: &Item, only_whole: bool) -> Work {
        match (self.chunking_of(item.id), item.size) {
            (Some(chunking), Some(size)) if !only_whole && item.range.is_none() && size >= chunking.threshold => {
                chunking.leaf_of(size).map_or(Work::Copy, |leaf| Work::Open { leaf })
            }
            _ => Work::Copy,
        }
    }

    /// How a file is moved in parts, if it is: as in the whole run, unless something else was said of it.
    pub(super) fn chunking_of(&self, id: ItemId) -> Option<Chunking> {
        self.imposed.get(&id).copied().unwrap_or(self.usual)
    }

    pub(super) fn impose(&mut self, id: ItemId, chunking: Option<Chunking>) {
        let chunking = chunking.map(Chunking::normal);
        // Where the others are moved whole, these tell how many parts are kept in the air.
        self.options.chunking = self.options.chunking.or(chunking);
        self.imposed.insert(id, chunking);
    }

    /// Lets as many files be opened as the sessions will want parts of.
    pub(super) fn open_files(&mut self) {
        if let Some(chunking) = self.options.chunking {
            let sessions = self.kept().count();
            let runway = chunking.chunk.saturating_mul(sessions as u64).saturating_mul(u64::from(chunking.ahead));
            self.queue.open_files(sessions, runway);
        }
    }

    /// How many sessions files in chunks could use.
    pub(super) fn chunk_sessions(&self) -> usize {
        let leaf = self.options.chunking.map_or(u64::MAX, |chunking| chunking.leaf);
        let most = self.slots.len() as u64;
        self.queue.chunk_bytes().div_ceil(leaf).min(most) as usize
    }

    /// Tells the queue what waits of a file, and progress what it is busy with.
    pub(super) fn parts_changed(&mut self, id: ItemId) {
        if let Some(entry) = self.entries.get(&id)
            && let Some(file) = &entry.chunked
            && entry.place == Place::Parts
        {
            self.queue.set_parts(id, entry.runs.len(), file.waiting());
            self.progress.state(id, entry.parts_state());
            self.progress.set_credit(id, entry.credit());
        }
    }

    // --- inputs ------------------------------------------------------------------------------

    pub(super) fn opened(&mut self, now: Instant, attempt: Attempt, verified: &RangeSet, found: &Opening) {
        let Some((entry, slot)) = self.current(attempt) else {
            return;
        };
        let Work::Open { leaf } = entry.work else {
            return self.misused(now, attempt);
        };
        entry.runs.clear();
        entry.place = Place::Parts;
        let size = entry.item.size.unwrap_or(0);
        let mut all = verified.clone();
        all.union_with(&found.holes);
        let mut file = ChunkedFile::new(size, leaf, &all).striped(found.stripe);
        let resumed = found.holes.as_slice().iter().fold(file.verified.clone(), |mut rest, hole| {
            rest.remove(hole.clone());
            rest
        });
        let (resumed, holes) = (resumed.len(), file.verified.len() - resumed.len());
        // Opened once more in this run: what is there, it brought itself.
        let is_new = match entry.chunked.take() {
            Some(old) => {
                file.inherit(*old);
                false
            }
            None => true,
        };
        entry.chunked = Some(Box::new(file));
        let (item, tries) = (entry.item.clone(), entry.tries);
        self.leave_well(now, slot, attempt, false);
        if is_new {
            self.progress.resumed(item.id, resumed);
            self.report_discarded(&item, found.discarded);
            self.progress.holes(item.id, Holes { skipped: holes, kept: found.kept, filled: found.filled });
        }
        self.queue.forget(item.id);
        self.parts_changed(item.id);
        let id = item.id;
        self.report_started(item, slot, tries, resumed);
        self.commit_if_proven(id);
    }

    /// Who goes on with a file is told when that is not what happens.
    fn report_discarded(&mut self, item: &Item, bytes: u64) {
        if bytes > 0 {
            self.report(Event::BeganAnew { item: item.id, source: item.source.clone(), bytes });
        }
    }

    /// These ends cannot move it in chunks, or cannot any more: the file is copied whole.
    pub(super) fn whole(&mut self, now: Instant, attempt: Attempt) {
        let Some((entry, slot)) = self.current(attempt) else {
            return;
        };
        if !matches!(entry.work, Work::Open { .. } | Work::Commit) && entry.place != Place::Parts {
            return self.misused(now, attempt);
        }
        entry.only_whole = true;
        // The question was no attempt.
        entry.tries = entry.tries.saturating_sub(1);
        self.lose_run(now, attempt);
        self.leave_well(now, slot, attempt, false);
        self.drop_parts(attempt.item);
        if let Some(entry) = self.entries.get_mut(&attempt.item) {
            entry.work = Work::Copy;
            if entry.chunked.take().is_some() {
                self.progress.resumed(attempt.item, 0);
            }
        }
        self.enqueue(attempt.item, true);
    }

    /// What comes behind a chunk on its session may be asked for.
    pub(super) fn chunk_is_moved(&mut self, now: Instant, attempt: Attempt) {
        let slot = self.current(attempt).map(|(_, slot)| slot).or_else(|| self.orphans.get(&attempt).copied());
        if let Some(data) = slot.and_then(|slot| self.slot(slot)) {
            data.chunk_moved(now, attempt);
        }
    }

    pub(super) fn chunk_done(&mut self, now: Instant, attempt: Attempt, report: ChunkReport) {
        let Some((_, slot)) = self.current(attempt) else {
            return;
        };
        self.chunk_moved(now, attempt, report.bytes);
        let Some(part) = self.take_run(attempt) else {
            return self.misused(now, attempt);
        };
        if let Some(data) = self.slot(slot) {
            data.chunk_moved(now, attempt);
        }
        self.leave_well(now, slot, attempt, true);
        let Some(entry) = self.entries.get_mut(&attempt.item) else {
            return;
        };
        let Some(file) = entry.chunked.as_deref_mut() else {
            return;
        };
        let known = file.verified.len();
        let rest = file.settle(part.clone(), &report.verified, &report.wrong);
        if file.verified.len() > known {
            entry.patience.renew();
            file.add_proof(report.verification);
        }
        self.leaves_wrong(attempt.item, part, &report.wrong);
        if !rest.is_empty() {
            let fault = Fault::new(FaultCode::ConnectionLost, "move chunk").side(Side::Network);
            let fault = fault.detail(format!("bytes {rest} have neither arrived nor failed"));
            self.part_failed(now, attempt, &rest, fault);
        }
        self.parts_changed(attempt.item);
        self.commit_if_proven(attempt.item);
    }

    /// A chunk failed, and its session lives on.
    pub(super) fn chunk_failed(&mut self, now: Instant, attempt: Attempt, fault: Fault, received: &RangeSet) {
        let Some(part) = self.lose_run(now, attempt) else {
            return;
        };
        let Some(entry) = self.entries.get_mut(&attempt.item) else {
            return;
        };
        let Some(file) = entry.chunked.as_deref_mut() else {
            return;
        };
        let known = file.verified.len();
        let rest = file.settle(part.clone(), received, &RangeSet::new());
        if file.verified.len() > known {
            entry.patience.renew();
        }
        if fault.code == FaultCode::ChecksumMismatch {
            // Nobody says which: all of them are suspected.
            self.leaves_wrong(attempt.item, part, &rest);
        } else {
            self.part_failed(now, attempt, &rest, fault);
        }
        self.parts_changed(attempt.item);
        self.commit_if_proven(attempt.item);
    }

    /// Puts back what a session had that is over and was not to blame.
    pub(super) fn put_back_chunk(&mut self, now: Instant, attempt: Attempt) {
        if let Some(part) = self.lose_run(now, attempt)
            && let Some(file) = self.entries.get_mut(&attempt.item).and_then(|entry| entry.chunked.as_deref_mut())
        {
            file.put_back(&RangeSet::from(part));
            self.parts_changed(attempt.item);
        }
    }

    /// What was put off may go now.
    pub(super) fn release_parts(&mut self, now: Instant, id: ItemId) {
        if let Some(file) = self.entries.get_mut(&id).and_then(|entry| entry.chunked.as_deref_mut()) {
            file.release(now);
            self.parts_changed(id);
        }
    }

    /// A chunk's attempt has moved `moved` bytes so far; returns how many are new.
    pub(super) fn chunk_moved(&mut self, now: Instant, attempt: Attempt, moved: u64) -> u64 {
        let Some((entry, _)) = self.current(attempt) else {
            return 0;
        };
        let Some(run) = entry.runs.get_mut(&attempt.number) else {
            return 0;
        };
        let new = moved.saturating_sub(run.moved);
        run.moved += new;
        let credit = entry.credit();
        self.progress.chunk_moved(now, attempt.item, new, credit);
        new
    }

    /// Ends the parts of a file: what still runs is let run out and not listened to.
    pub(super) fn drop_parts(&mut self, id: ItemId) {
        self.queue.forget(id);
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        for at in entry.chunked.iter().flat_map(|file| file.waits()) {
            self.delayed.remove(&(at, id));
        }
        for (number, run) in std::mem::take(&mut entry.runs) {
            let attempt = Attempt { item: id, number };
            let runs_on = |slot: &super::SlotData| slot.pipeline.iter().any(|flight| flight.attempt == attempt);
            if self.slots.get(run.slot.0 as usize).is_some_and(runs_on) {
                self.orphans.insert(attempt, run.slot);
            }
        }
    }

    // --- what follows from them --------------------------------------------------------------

    /// Takes a chunk's run out and returns its part; `None` when it is not a chunk.
    fn take_run(&mut self, attempt: Attempt) -> Option<Range<u64>> {
        let entry = self.entries.get_mut(&attempt.item)?;
        if entry.place != Place::Parts {
            return None;
        }
        entry.runs.remove(&attempt.number).map(|run| run.part)
    }

    /// Leaves that were compared and differ go again, each by itself, until one was wrong too often.
    fn leaves_wrong(&mut self, id: ItemId, part: Range<u64>, wrong: &RangeSet) {
        let limit = self.options.retry.integrity_attempts.max(1);
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        let Some(file) = entry.chunked.as_deref_mut() else {
            return;
        };
        let mut hopeless = None;
        let leaves = file.wrong_leaves(part, wrong);
        for leaf in &leaves {
            let times = file.leaf_wrong(leaf.clone());
            let (source, start, end) = (entry.item.source.clone(), leaf.start, leaf.end);
            self.commands.push_back(super::Command::Report(Event::LeafWrong { item: id, source, start, end, times }));
            if times >= limit && hopeless.is_none() {
                hopeless = Some((leaf.clone(), times));
            }
        }
        if leaves.is_empty() {
            return;
        }
        self.progress.fault();
        if let Some((leaf, times)) = hopeless {
            let mut fault = Fault::new(FaultCode::ChecksumMismatch, "verify").side(Side::Destination);
            fault = fault.on_path(&entry.item.destination).retry(Retry::Exhausted);
            fault = fault.detail(format!("bytes {}-{} differed from the source {times} times", leaf.start, leaf.end));
            self.endings.push_back(super::Ending::Fail(id, fault));
        } else {
            self.progress.leaves_again(leaves.len() as u64);
        }
    }

    /// The bytes `rest` of a chunk have failed: they go again after a while, or the file ends.
    pub(super) fn part_failed(&mut self, now: Instant, attempt: Attempt, rest: &RangeSet, fault: Fault) {
        let id = attempt.item;
        if fault.code == FaultCode::SourceChanged {
            return self.start_over(now, id, fault);
        }
        if is_lost(&fault) {
            return self.open_again(now, id, fault);
        }
        self.progress.fault();
        if rest.is_empty() {
            return;
        }
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        let Some(file) = entry.chunked.as_deref_mut() else {
            return;
        };
        if file.charge(attempt.number, entry.number) {
            entry.patience.charge(Cost::Attempt);
        }
        let seed = self.options.seed ^ id.0.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ u64::from(attempt.number);
        match self.options.retry.decide(fault, entry.patience.idle(), seed) {
            Decision::GiveUp(fault) => self.endings.push_back(super::Ending::Fail(id, fault)),
            Decision::Again { after, fault } => {
                file.put_off(rest, now + after);
                entry.tries += 1;
                let (source, attempt, kept) = (entry.item.source.clone(), entry.tries - 1, file.verified.len());
                let retry_in = after.as_secs_f64();
                self.delayed.insert((now + after, id));
                self.progress.retry();
                self.report(Event::Retry { item: id, source, fault, attempt, retry_in, kept });
            }
        }
    }

    /// The unfinished copy is gone or another run has finished it: the opening tells what there is.
    fn open_again(&mut self, now: Instant, id: ItemId, fault: Fault) {
        self.drop_parts(id);
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        let Some(file) = &entry.chunked else {
            return;
        };
        entry.work = Work::Open { leaf: file.leaf() };
        self.charge(now, id, Cost::Lost, worth_another(fault));
    }

    /// The source is another one: nothing that was proven counts.
    fn start_over(&mut self, now: Instant, id: ItemId, fault: Fault) {
        self.drop_parts(id);
        let chunking = self.chunking_of(id).unwrap_or_default();
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        entry.chunked = None;
        let leaf = chunking.leaf_of(entry.item.size.unwrap_or(0)).unwrap_or(chunking.leaf);
        entry.work = Work::Open { leaf };
        self.progress.resumed(id, 0);
        self.attempt_failed(now, id, fault);
    }

    fn commit_if_proven(&mut self, id: ItemId) {
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        let proven = entry.chunked.as_ref().is_some_and(|file| file.is_proven());
        if proven && entry.place == Place::Parts {
            entry.work = Work::Commit;
            self.queue.forget(id);
            self.enqueue(id, true);
            self.progress.state(id, crate::progress::ItemState::Verifying);
        }
    }

    /// A report that does not belong to the work it is about.
    pub(super) fn misused(&mut self, now: Instant, attempt: Attempt) {
        let fault = Fault::new(FaultCode::Internal, "transfer").side(Side::Us).detail("an answer to another question");
        self.failed(now, attempt, fault, &RangeSet::new());
    }

    /// An attempt ends well as far as its session goes; whether it has `moved_data`.
    pub(super) fn leave_well(&mut self, now: Instant, slot: Slot, attempt: Attempt, moved_data: bool) {
        if let Some(data) = self.slot(slot) {
            data.leave(now, attempt);
            data.failures = 0;
            data.charged = false;
            // Commands that went well say nothing of the way of data.
            data.misses = if moved_data { 0 } else { data.misses };
        }
    }
}

/// Whether a part failed because its unfinished copy is not there any more, or not this run's.
fn is_lost(fault: &Fault) -> bool {
    is_gone(fault) && fault.side == Some(Side::Destination)
}

/// What a chunk's last report says.
#[derive(Debug)]
pub(super) struct ChunkReport {
    pub(super) bytes: u64,
    pub(super) verified: RangeSet,
    pub(super) wrong: RangeSet,
    pub(super) verification: Verification,
}

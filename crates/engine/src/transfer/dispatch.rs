//! Who gets what next.

use std::time::Instant;

use super::entry::Place;
use super::pipeline::{Flight, Load};
use super::slot::SlotData;
use super::{Command, Job, Slot, TransferMachine, Work};
use crate::plan::ItemId;
use crate::ranges::RangeSet;
use crate::tune::{Setting, pipeline_depth};

impl TransferMachine {
    /// Gives every session that can take it its next work.
    pub(super) fn dispatch(&mut self, now: Instant) {
        if self.is_over() {
            self.budget.await_it(now, false);
            self.close_all();
            return;
        }
        self.close_retired();
        self.open_files();
        self.open_sessions(now);
        self.dispatch_large(now);
        self.dispatch_short(now);
        // What the first rule kept free for nobody is not left idle.
        self.dispatch_large(now);
        self.hold_back(now);
        self.budget.await_it(now, self.queue.has_data());
    }

    fn dispatch_large(&mut self, now: Instant) {
        // Looking at every session for nothing would be most of the work in a run of small files.
        let mut given = self.queue.bulk() > 0;
        while given && self.budget.allows(now) {
            let ready = self.slots.iter().filter(|slot| slot.takes_work()).count();
            let share = self.large_share(ready);
            let whole = self.kept().filter(|slot| slot.count(Load::Whole) > 0).count();
            let large = self.large_slots();
            let for_whole = self.queue.whole_share(share).max(whole);
            let for_chunks = share.saturating_sub(for_whole);
            given = (large < share && whole < for_whole && self.give_whole(now))
                || (large < share && large - whole < for_chunks && self.give_chunk(now))
                || self.give_ahead(now, for_chunks)
                || self.give_whole_ahead(now);
        }
    }

    fn give_whole(&mut self, now: Instant) -> bool {
        let index = self.first_of(|slot| slot.takes_work() && slot.pipeline.is_empty());
        index.is_some_and(|index| self.start_whole(now, index))
    }

    /// Gives a session the file behind that which it moves, so that it does not wait for the proof and the name of that one.
    /// Only while so many wait that every session will have another: what was given is not taken back.
    fn give_whole_ahead(&mut self, now: Instant) -> bool {
        if !self.options.whole_ahead {
            return false;
        }
        let sessions = self.slots.iter().filter(|slot| slot.is_wanted()).count();
        let sessions = self.most_large().map_or(sessions, |most| sessions.min(most));
        // Those that have none yet come first.
        if self.queue.whole() < sessions + sessions.saturating_sub(self.large_slots()) {
            return false;
        }
        let index = self.first_of(|slot| self.takes_another(slot));
        index.is_some_and(|index| self.start_whole(now, index))
    }

    /// Whether a session copies a single large file, of which it is known that it will end. Behind one that is compared data
    /// would wait for the slower of two ends that hash.
    fn takes_another(&self, slot: &SlotData) -> bool {
        let only = slot.pipeline.iter().next().filter(|_| slot.pipeline.len() == 1 && slot.misses == 0);
        let only = only.filter(|flight| slot.takes_work() && flight.load == Load::Whole);
        let entry = only.and_then(|flight| self.entries.get(&flight.attempt.item));
        entry.is_some_and(|entry| entry.work == Work::Copy && entry.item.size.is_some())
    }

    /// The first of the sessions that `may` take something, those last whose data connections have failed.
    fn first_of(&self, may: impl Fn(&SlotData) -> bool) -> Option<usize> {
        let free = (0..self.slots.len()).filter(|index| may(&self.slots[*index]));
        free.min_by_key(|index| self.slots[*index].misses)
    }

    /// Gives a session without large work its first chunk.
    fn give_chunk(&mut self, now: Instant) -> bool {
        let index = self.first_of(|slot| slot.takes_chunk(1));
        index.is_some_and(|index| self.start_chunk(now, index))
    }

    /// Gives a session with chunks another, so that it does not wait for the read-back of the one before. Of more
    /// sessions than `share` those with the least in the air run dry, and of equal ones that which has waited the
    /// longest, so that it is always the same: they are wanted for other work.
    fn give_ahead(&mut self, now: Instant, share: usize) -> bool {
        let chunks = |index: &usize| self.slots[*index].moving_chunks();
        let has_chunks = |index: &usize| !self.slots[*index].retired && self.slots[*index].count(Load::Chunk) > 0;
        let mut busy: Vec<usize> = (0..self.slots.len()).filter(has_chunks).collect();
        busy.sort_by_key(|index| std::cmp::Reverse((chunks(index), self.slots[*index].last_given)));
        busy.truncate(share);
        let in_time = self.in_time();
        let takes = |slot: &SlotData| slot.takes_chunk(self.ahead()) && in_time(slot);
        let next = busy.into_iter().filter(|index| takes(&self.slots[*index]));
        let next = next.min_by_key(|index| (self.slots[*index].misses, chunks(index), self.slots[*index].last_given));
        next.is_some_and(|index| self.start_chunk(now, index))
    }

    fn dispatch_short(&mut self, now: Instant) {
        let (depth, room) = (self.depth(), self.room());
        while self.queue.has_short() {
            let (index, item) = if let Some(index) = self.least_loaded(depth, room) {
                let data = self.budget.allows(now);
                (index, if data { self.queue.pop_short() } else { self.queue.pop_control() })
            } else if let Some(index) = self.between_chunks() {
                (index, self.queue.pop_control())
            } else {
                return;
            };
            let Some(item) = item else {
                return;
            };
            let is_small =
                self.entries.get(&item).is_some_and(|entry| matches!(entry.work, Work::Copy | Work::Compare));
            self.start(now, index, item, if is_small { Load::Small } else { Load::Control });
        }
    }

    /// The session for the next short item, that which will be idle first; those that large items wait for take no more.
    fn least_loaded(&self, depth: usize, room: u64) -> Option<usize> {
        let free = |index: &usize| self.slots[*index].takes_work() && !self.slots[*index].is_large();
        let rank = |index: usize| (self.slots[index].misses, self.slots[index].weight(), index);
        let free = (0..self.slots.len()).filter(free).map(rank);
        if self.queue.bulk() == 0 {
            return self.first_with_room(free, depth, room);
        }
        let ready = self.slots.iter().filter(|slot| slot.takes_work()).count();
        let reserved = self.large_share(ready).saturating_sub(self.large_slots());
        let mut free: Vec<_> = free.collect();
        free.sort_unstable();
        self.first_with_room(free.get(reserved..)?.iter().copied(), depth, room)
    }

    /// The first of these ranks (misses, weight, index), or where sessions may differ in speed the one that is done the soonest.
    fn first_with_room(
        &self,
        ranks: impl Iterator<Item = (u32, u64, usize)> + Clone,
        depth: usize,
        room: u64,
    ) -> Option<usize> {
        match self.options.unequal {
            true => self.soonest(ranks.map(|(.., index)| index), depth),
            false => self.with_room(ranks, depth, room),
        }
    }

    /// The first in rank (misses, weight, index) if it has room; if not, nor has any with as few misses, and the first of the
    /// others is looked at.
    fn with_room(
        &self,
        ranks: impl Iterator<Item = (u32, u64, usize)> + Clone,
        depth: usize,
        room: u64,
    ) -> Option<usize> {
        let mut passed: Option<u32> = None;
        loop {
            let rest = ranks.clone().filter(|(misses, ..)| passed.is_none_or(|passed| *misses > passed));
            let (misses, weight, index) = rest.min()?;
            let given = self.slots[index].pipeline.len();
            if given == 0 || given < depth && weight < room {
                return Some(index);
            }
            passed = Some(misses);
        }
    }

    /// The session with chunks for something without data: it holds up nothing there.
    fn between_chunks(&self) -> Option<usize> {
        let most = self.ahead() + 1;
        let waits = |slot: &SlotData| slot.pipeline.len() - (slot.count(Load::Chunk) - slot.moving_chunks());
        let room = |slot: &SlotData| slot.takes_work() && slot.count(Load::Whole) == 0 && slot.count(Load::Chunk) > 0;
        let free = (0..self.slots.len()).filter(|index| room(&self.slots[*index]));
        let index = free.min_by_key(|index| waits(&self.slots[*index]))?;
        (self.queue.has_control() && waits(&self.slots[index]) < most).then_some(index)
    }

    /// How many of so many sessions large items deserve and may have.
    fn large_share(&self, ready: usize) -> usize {
        let share = self.queue.large_share(ready);
        self.most_large().map_or(share, |most| share.min(most))
    }

    /// Most sessions that may move large items, with what waits of them; `None`: no bound.
    pub(super) fn most_large(&self) -> Option<usize> {
        let alone = self.options.alone.filter(|alone| self.queue.largest() >= alone.least)?;
        Some(alone.sessions.max(1) as usize)
    }

    pub(super) fn large_slots(&self) -> usize {
        self.kept().filter(|slot| slot.is_large()).count()
    }

    pub(super) fn ahead(&self) -> usize {
        self.options.chunking.map_or(1, |chunking| chunking.ahead.max(1) as usize)
    }

    /// Short items in flight for each session: never more than its share of all there are, which those that are still
    /// being opened will want, too.
    fn depth(&self) -> usize {
        let depth = match self.options.pipeline {
            Setting::Fixed(depth) => depth,
            Setting::Auto => pipeline_depth(self.options.rtt, self.queue.mean_small()),
        };
        let (count, running) = self.kept().fold((0, 0), |(count, sum), slot| (count + 1, sum + slot.pipeline.len()));
        let share = (self.queue.short() + running).div_ceil(count.max(1));
        (depth as usize).min(share).max(1)
    }

    /// Bytes of small files and commands that a session may hold: half its share of all that is left, so that what a slow
    /// one is still busy with at the end is little; its part of what the path carries in a round trip at least, or it would
    /// run dry between two.
    fn room(&self) -> u64 {
        let (count, held) =
            self.kept().fold((0, 0u64), |(count, sum), slot| (count + 1, sum.saturating_add(slot.weight())));
        let left = self.queue.small_bytes().saturating_add(held);
        left.max(self.options.small_limit) / (2 * count.max(1))
    }

    fn start(&mut self, now: Instant, index: usize, id: ItemId, load: Load) {
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        entry.tries += u32::from(!matches!(entry.work, Work::Commit | Work::TellApart));
        entry.place = Place::Running;
        let missing = entry.item.size.unwrap_or(0).saturating_sub(entry.received.len());
        let charged = if entry.work == Work::Copy { self.budget.charge(now, missing) } else { 0 };
        let attempt = entry.run(now, Slot(index as u32), 0..0, charged);
        let (work, item, received) = (entry.work.clone(), entry.item.clone(), entry.received.clone());
        let tries = entry.tries;
        let job = Job { attempt, work, item, received };
        if matches!(job.work, Work::Copy | Work::Compare | Work::Open { .. }) {
            self.progress.attempt(&job.item, tries, job.received.len());
        }
        self.give(now, index, job, load);
    }

    /// Gives a session the largest file that waits to be moved whole.
    fn start_whole(&mut self, now: Instant, index: usize) -> bool {
        let Some(item) = self.queue.pop_large() else {
            return false;
        };
        self.start(now, index, item, Load::Whole);
        true
    }

    /// Gives a session the next part of a file that is moved in chunks.
    fn start_chunk(&mut self, now: Instant, index: usize) -> bool {
        let Some(id) = self.queue.next_parts() else {
            return false;
        };
        let leaf = self.leaf_of(id);
        let length = self.chunk_length(index, id, leaf);
        let entry = self.entries.get_mut(&id).expect("what waits in the queue has not ended");
        let part = entry.chunked.as_mut().and_then(|file| file.take(length));
        let part = part.expect("the queue knows what waits of each file");
        let charged = self.budget.charge(now, part.end - part.start);
        let attempt = entry.run(now, Slot(index as u32), part.clone(), charged);
        let item = entry.item.clone();
        self.parts_changed(id);
        let job = Job { attempt, work: Work::Chunk { part }, item, received: RangeSet::new() };
        self.give(now, index, job, Load::Chunk);
        true
    }

    /// Bytes of a leaf of a file in chunks.
    fn leaf_of(&self, id: ItemId) -> u64 {
        self.entries.get(&id).and_then(|entry| entry.chunked.as_ref()).map_or(1, |file| file.leaf())
    }

    /// Bytes of a leaf of what waits next to be moved in chunks.
    pub(super) fn next_leaf(&self) -> u64 {
        self.queue.next_parts().map_or(0, |id| self.leaf_of(id))
    }

    fn give(&mut self, now: Instant, index: usize, job: Job, load: Load) {
        let bytes = match &job.work {
            Work::Chunk { part } => part.end - part.start,
            _ => 0,
        };
        let small = match load {
            Load::Small => job.item.size.unwrap_or(0).saturating_sub(job.received.len()),
            _ => 0,
        };
        self.given += 1;
        let data = &mut self.slots[index];
        data.last_given = self.given;
        data.give(now, Flight { attempt: job.attempt, load, bytes, small });
        self.commands.push_back(Command::Start { slot: Slot(index as u32), job: Box::new(job) });
    }
}

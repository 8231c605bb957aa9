//! Who gets what next.

use std::time::Instant;

use super::{Attempt, Command, EntryPlace, Job, Slot, TransferMachine, Work};
use crate::plan::ItemId;
use crate::tune::{Setting, pipeline_depth};

impl TransferMachine {
    /// Gives every session that can take it its next work.
    pub(super) fn dispatch(&mut self, now: Instant) {
        if self.is_over() {
            self.close_all();
            return;
        }
        self.open_sessions(now);
        self.dispatch_large(now);
        self.dispatch_short(now);
        // What the first rule kept free for nobody is not left idle.
        self.dispatch_large(now);
    }

    fn dispatch_large(&mut self, now: Instant) {
        loop {
            let ready = self.slots.iter().filter(|slot| slot.is_ready()).count();
            let busy = self.slots.iter().filter(|slot| slot.large).count();
            if busy >= self.queue.large_share(ready) {
                return;
            }
            let idle = |slot: &super::SlotData| slot.is_ready() && slot.pipeline.is_empty();
            let Some(index) = self.slots.iter().position(idle) else {
                return;
            };
            let Some(item) = self.queue.pop_large() else {
                return;
            };
            self.slots[index].large = true;
            self.start(now, index, item);
        }
    }

    fn dispatch_short(&mut self, now: Instant) {
        let depth = self.depth();
        while self.queue.has_short() {
            let Some(index) = self.least_loaded(depth) else {
                return;
            };
            let Some(item) = self.queue.pop_short() else {
                return;
            };
            self.start(now, index, item);
        }
    }

    /// The session for the next short item; those that large items wait for take no more.
    fn least_loaded(&self, depth: usize) -> Option<usize> {
        let ready = self.slots.iter().filter(|slot| slot.is_ready()).count();
        let busy = self.slots.iter().filter(|slot| slot.large).count();
        let reserved = self.queue.large_share(ready).saturating_sub(busy);
        let free = |index: &usize| self.slots[*index].is_ready() && !self.slots[*index].large;
        let mut free: Vec<_> = (0..self.slots.len()).filter(free).collect();
        free.sort_by_key(|index| self.slots[*index].pipeline.len());
        let index = *free.get(reserved)?;
        (self.slots[index].pipeline.len() < depth).then_some(index)
    }

    fn depth(&self) -> usize {
        let depth = match self.options.pipeline {
            Setting::Fixed(depth) => depth,
            Setting::Auto => pipeline_depth(self.options.rtt, self.queue.mean_small()),
        };
        depth.max(1) as usize
    }

    fn start(&mut self, now: Instant, index: usize, id: ItemId) {
        let slot = Slot(index as u32);
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        entry.number += 1;
        entry.at_work = false;
        entry.place = EntryPlace::Running(slot);
        entry.begun.get_or_insert(now);
        let job = Job {
            attempt: Attempt { item: id, number: entry.number },
            work: entry.work.clone(),
            item: entry.item.clone(),
            received: entry.received.clone(),
        };
        if matches!(job.work, Work::Copy | Work::Compare) {
            self.progress.attempt(&job.item, job.attempt.number, job.received.len());
        }
        let data = &mut self.slots[index];
        if data.pipeline.is_empty() {
            data.sign(now);
        }
        data.pipeline.push_back(id);
        self.commands.push_back(Command::Start { slot, job: Box::new(job) });
    }
}

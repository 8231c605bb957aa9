//! Small files between sessions of unequal speed: each goes to the session that will be done with it first, and a slow one
//! is given nothing that all would wait for at the end.

use std::time::{Duration, Instant};

use super::TransferMachine;
use super::pace::{Pace, Paces, UNKNOWN, WORTH_CUTTING};
use super::pipeline::COMMAND;
use super::slot::SlotData;
use crate::tune::ASSUMED_RATE;

/// A session's speed is looked at so often: files come in bursts.
const WINDOW: Duration = Duration::from_millis(500);

/// How fast a session is done with small files and commands, in bytes of [`SlotData::weight`] by the time it had any.
#[derive(Debug, Default)]
pub(super) struct ShortPace {
    pace: Pace,
    /// Since the last look.
    done: u64,
    busy: Duration,
    /// Up to when its time was counted; `None`: it has nothing.
    counted: Option<Instant>,
}

impl ShortPace {
    /// It has something from now on.
    pub(super) fn begin(&mut self, now: Instant) {
        self.counted.get_or_insert(now);
    }

    /// It is done with so much more.
    pub(super) fn done(&mut self, now: Instant, weight: u64) {
        let Some(before) = self.counted.replace(now) else { return };
        self.busy += now.saturating_duration_since(before);
        self.done += weight;
        if self.busy >= WINDOW {
            self.pace.moved(std::mem::take(&mut self.done), std::mem::take(&mut self.busy));
        }
    }

    /// It has nothing any more.
    pub(super) fn end(&mut self) {
        self.counted = None;
    }

    /// Bytes per second, once it was looked at.
    fn rate(&self) -> Option<f64> {
        self.pace.rate().filter(|rate| *rate > 0.0)
    }
}

/// Whether slow sessions are left idle, so that the others do what waits.
#[derive(Debug, Clone, Copy, Default)]
pub(super) enum HeldBack {
    #[default]
    No,
    /// Since the others may stand still, until then only.
    Until(Instant),
    /// The others had their time.
    Over,
}

impl TransferMachine {
    /// The session for the next short item: of those with room the one that will be done with it first. Room is half of a
    /// session's share of what is left, by the pace it has shown, and a quarter of that before all have shown theirs; what
    /// lasts two round trips at least, or it would run dry. None takes what it would end with after all others and everything else.
    pub(super) fn soonest(&self, free: impl Iterator<Item = usize> + Clone, depth: usize) -> Option<usize> {
        // In seconds: until all are done with everything, how much longer nobody minds, and what each may hold.
        let (paces, all) = self.short_paces();
        let late = self.trips() + WORTH_CUTTING.as_secs_f64();
        // What the first have shown may be far from what the others will.
        let guess = if paces.all_known { 1 } else { UNKNOWN };
        let room = (all / (2 * guess) as f64).max(late);

        let next = self.queue.next_short().saturating_add(COMMAND) as f64;
        let pace = |slot: &SlotData| paces.of(slot.short.rate());
        let end = |index: usize| (self.slots[index].weight() as f64 + next) / pace(&self.slots[index]);
        let last = match self.held_back {
            HeldBack::Over => f64::INFINITY,
            HeldBack::No | HeldBack::Until(_) => free.clone().map(end).fold(f64::INFINITY, f64::min).max(all) + late,
        };
        let takes = |index: &usize| {
            let slot = &self.slots[*index];
            let given = slot.pipeline.len();
            end(*index) <= last && (given == 0 || given < depth && (slot.weight() as f64) < room * pace(slot))
        };
        let rank = |index: &usize| (self.slots[*index].misses, end(*index));
        free.filter(takes).min_by(|one, other| {
            let (one, other) = (rank(one), rank(other));
            one.0.cmp(&other.0).then(one.1.total_cmp(&other.1))
        })
    }

    /// The paces of all sessions that may take short items, and in how many seconds these are done with all there are.
    fn short_paces(&self) -> (Paces, f64) {
        // Those that are still being opened will want their share.
        let sessions = || self.kept().filter(|slot| slot.is_open() && !slot.is_large());
        let paces =
            Paces::new(sessions().map(|slot| slot.short.rate()), ASSUMED_RATE / sessions().count().max(1) as f64);
        let held: f64 = sessions().map(|slot| slot.weight() as f64).sum();
        let waits = self.queue.small_bytes() as f64 + (self.queue.short() as u64 * COMMAND) as f64;
        let all = (waits + held) / paces.sum;
        (paces, all)
    }

    /// Remembers since when slow sessions are left idle; called when all that could be given was.
    pub(super) fn hold_back(&mut self, now: Instant) {
        let idle = |slot: &SlotData| slot.takes_work() && slot.pipeline.is_empty();
        let holds = self.options.unequal && self.queue.has_short() && self.slots.iter().any(idle);
        self.held_back = match self.held_back {
            _ if !holds => HeldBack::No,
            HeldBack::No => HeldBack::Until(now + self.options.stall.slow),
            held => held,
        };
    }

    /// Ends the holding back when it has lasted long enough.
    pub(super) fn watch_held_back(&mut self, now: Instant) {
        if let HeldBack::Until(at) = self.held_back
            && at <= now
        {
            self.held_back = HeldBack::Over;
        }
    }

    /// When slow sessions are left idle no longer.
    pub(super) fn held_back_until(&self) -> Option<Instant> {
        match self.held_back {
            HeldBack::Until(at) => Some(at),
            HeldBack::No | HeldBack::Over => None,
        }
    }
}

//! Sessions: opened when there is work, watched, given up.

use std::time::{Duration, Instant};

use super::entry::Place;
use super::{Attempt, Command, Slot, SlotData, SlotState, TransferMachine};
use crate::events::Event;
use crate::fault::{Fault, FaultCode, Retry, Side};
use crate::ranges::RangeSet;
use crate::retry::Decision;

impl TransferMachine {
    pub(super) fn session_ready(&mut self, now: Instant, slot: Slot) {
        let Some(data) = self.slot(slot) else {
            return;
        };
        if matches!(data.state, SlotState::Opening { .. }) {
            data.state = SlotState::Ready;
            data.charged = false;
            data.sign(now);
            self.was_ready = true;
            self.count_sessions();
            self.report(Event::SessionReady { slot });
        }
    }

    pub(super) fn session_lost(&mut self, now: Instant, slot: Slot, fault: Fault) {
        // Names that were found, and are not while the network is away.
        let passes = self.was_ready && fault.code == FaultCode::HostNotFound;
        let Some(data) = self.slot(slot) else {
            return;
        };
        let opening = matches!(data.state, SlotState::Opening { .. });
        if !data.is_open() {
            return;
        }
        let lost = data.take_pipeline();
        let charged = data.charged;
        data.misses += u32::from(fault.side == Some(Side::Network) && !lost.is_empty() && !charged);
        data.failures += 1;
        let failures = data.failures;
        // A session that worked and broke is opened again whatever broke it: opening tells whether it can.
        let judged = match fault.retry {
            Retry::Permanent | Retry::Exhausted if !opening || passes => {
                fault.clone().retry(Retry::Temporary { after: Duration::ZERO })
            }
            _ => fault.clone(),
        };
        let seed = self.options.seed ^ u64::from(slot.0);
        let (state, retry_in, last) = match self.options.retry.decide(judged, failures, seed) {
            Decision::Again { after, .. } => (SlotState::Backoff { until: now + after }, Some(after), None),
            Decision::GiveUp(fault) => (SlotState::Dead, None, Some(fault)),
        };
        if let Some(data) = self.slot(slot) {
            data.state = state;
        }
        self.count_sessions();
        if lost.is_empty() {
            self.progress.fault();
        }
        self.report(Event::SessionLost {
            slot,
            fault: fault.clone(),
            retry_in: retry_in.map(|after| after.as_secs_f64()),
        });
        self.reassign(now, lost, charged, fault);
        if let Some(last) = last {
            self.give_up_if_all_dead(last);
        }
    }

    /// Charges the item at work with the loss, unless one was `charged` already; the others go back unharmed.
    fn reassign(&mut self, now: Instant, mut lost: Vec<Attempt>, charged: bool, fault: Fault) {
        lost.retain(|attempt| self.orphans.remove(attempt).is_none());
        let at_work = |attempt: &Attempt| {
            let run = self.entries.get(&attempt.item).and_then(|entry| entry.runs.get(&attempt.number));
            run.is_some_and(|run| run.at_work)
        };
        // Without any at work, the first is the suspect: it may be what kills the session.
        let first = lost.first().copied().filter(|_| !charged);
        let suspect = lost.iter().copied().find(at_work).or(first);
        for attempt in lost.iter().rev().copied().filter(|attempt| Some(*attempt) != suspect) {
            self.hand_back(now, attempt);
        }
        if let Some(attempt) = suspect {
            let Some(entry) = self.entries.get(&attempt.item) else {
                return;
            };
            if entry.place == Place::Parts {
                self.chunk_failed(now, attempt, fault, &RangeSet::new());
            } else {
                self.lose_run(now, attempt);
                self.attempt_failed(now, attempt.item, fault);
            }
        }
    }

    /// An attempt goes to another session.
    pub(super) fn hand_back(&mut self, now: Instant, attempt: Attempt) {
        let id = attempt.item;
        let Some(entry) = self.entries.get(&id) else {
            return;
        };
        if entry.place == Place::Parts {
            return self.put_back_chunk(now, attempt);
        }
        if entry.chunked.is_none() {
            let kept = entry.received.len();
            self.progress.attempt_failed(id, kept);
        }
        self.lose_run(now, attempt);
        self.enqueue(id, true);
    }

    fn give_up_if_all_dead(&mut self, fault: Fault) {
        if self.slots.iter().any(SlotData::is_wanted) {
            return;
        }
        // One that was too many may do what the dead ones cannot, unless it has been given up since.
        if let Some(spare) = self.slots.iter_mut().find(|slot| slot.retired && slot.state != SlotState::Dead) {
            spare.retired = false;
        } else {
            self.report(Event::GivenUp { fault: fault.clone() });
            self.fail_all(&fault);
            self.dead = Some(fault);
        }
    }

    /// Looks at every clock.
    pub(super) fn watch(&mut self, now: Instant) {
        for index in 0..self.slots.len() {
            let slot = Slot(index as u32);
            let state = self.slots[index].state;
            match state {
                SlotState::Backoff { until } if until <= now => {
                    self.slots[index].state = SlotState::Closed;
                }
                SlotState::Opening { since } if since + self.options.stall.open <= now => {
                    self.abort(now, slot, Fault::new(FaultCode::TimedOut, "open session"));
                }
                SlotState::Ready if self.slots[index].stalled(now, &self.options.stall) => {
                    self.abort(now, slot, Fault::new(FaultCode::Stalled, "transfer"));
                }
                _ => {}
            }
        }
        self.watch_laggards(now);
        self.watch_held_back(now);
        while let Some((at, id)) = self.delayed.first().copied()
            && at <= now
        {
            self.delayed.pop_first();
            match self.entries.get(&id).map(|entry| entry.place) {
                Some(Place::Parts) => self.release_parts(now, id),
                Some(Place::Delayed) => self.enqueue(id, false),
                _ => {}
            }
        }
    }

    fn abort(&mut self, now: Instant, slot: Slot, fault: Fault) {
        let fault = fault.side(Side::Network);
        self.commands.push_back(Command::CloseSession { slot, fault: Some(fault.clone()) });
        self.session_lost(now, slot, fault);
    }

    /// Closes an open session; what ran on it must have been taken care of.
    pub(super) fn close(&mut self, slot: Slot, fault: Option<Fault>) {
        if let Some(data) = self.slot(slot) {
            data.state = SlotState::Closed;
            data.take_pipeline();
        }
        self.orphans.retain(|_, other| *other != slot);
        self.count_sessions();
        self.commands.push_back(Command::CloseSession { slot, fault });
    }

    /// Opens as many sessions as there is work for.
    pub(super) fn open_sessions(&mut self, now: Instant) {
        let running: usize = self.slots.iter().map(|slot| slot.pipeline.len()).sum();
        let most = self.kept().count();
        let large = self.queue.whole() + self.chunk_sessions();
        let large = self.most_large().map_or(large, |most| large.min(most.saturating_sub(self.large_slots())));
        let wanted = (self.queue.short() + large + running).min(most);
        let mut open = self.kept().filter(|slot| slot.is_open()).count();
        for index in 0..self.slots.len() {
            if open >= wanted {
                return;
            }
            if self.slots[index].state == SlotState::Closed && !self.slots[index].retired {
                self.slots[index].state = SlotState::Opening { since: now };
                self.commands.push_back(Command::OpenSession { slot: Slot(index as u32) });
                open += 1;
            }
        }
    }

    /// More or fewer sessions from now on, at least one; those that are too many end with what they have.
    pub(super) fn set_concurrency(&mut self, now: Instant, sessions: u32) {
        let sessions = sessions.max(1) as usize;
        while self.slots.len() < sessions && !self.cancelled {
            self.slots.push(SlotData::new(now));
        }
        // Given-up slots bring nothing: the others make up for them as far as there are any.
        let mut kept = 0;
        for slot in &mut self.slots {
            let keep = kept < sessions && slot.state != SlotState::Dead;
            slot.retired = !keep && slot.state != SlotState::Dead;
            kept += usize::from(keep);
        }
    }

    /// The sessions that are not one too many.
    pub(super) fn kept(&self) -> impl Iterator<Item = &SlotData> + Clone {
        self.slots.iter().filter(|slot| !slot.retired)
    }

    /// Closes sessions that are one too many and have nothing left to do.
    pub(super) fn close_retired(&mut self) {
        for index in 0..self.slots.len() {
            let slot = &self.slots[index];
            if slot.retired && slot.is_ready() && slot.pipeline.is_empty() {
                self.close(Slot(index as u32), None);
            }
        }
    }

    pub(super) fn close_all(&mut self) {
        for index in 0..self.slots.len() {
            if self.slots[index].is_open() {
                // What still runs is of files that have failed.
                let busy = !self.slots[index].pipeline.is_empty();
                let fault = busy.then(|| Fault::new(FaultCode::Cancelled, "transfer"));
                self.close(Slot(index as u32), fault);
            }
        }
    }

    fn count_sessions(&mut self) {
        let ready = self.slots.iter().filter(|slot| SlotData::is_ready(slot)).count();
        self.progress.set_sessions(ready as u32);
    }
}

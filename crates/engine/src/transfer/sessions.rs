//! Sessions: opened when there is work, watched, given up.

use std::time::{Duration, Instant};

use super::{Command, Slot, SlotData, SlotState, TransferMachine};
use crate::events::Event;
use crate::fault::{Fault, FaultCode, Retry, Side};
use crate::plan::ItemId;
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
            self.count_sessions();
            self.report(Event::SessionReady { slot });
        }
    }

    pub(super) fn session_lost(&mut self, now: Instant, slot: Slot, fault: Fault) {
        let Some(data) = self.slot(slot) else {
            return;
        };
        let opening = matches!(data.state, SlotState::Opening { .. });
        if !data.is_open() {
            return;
        }
        let lost = data.take_pipeline();
        let charged = data.charged;
        data.failures += 1;
        let failures = data.failures;
        // A session that worked and broke is opened again whatever broke it: opening tells whether it can.
        let judged = match fault.retry {
            Retry::Permanent | Retry::Exhausted if !opening => {
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
    fn reassign(&mut self, now: Instant, lost: Vec<ItemId>, charged: bool, fault: Fault) {
        let at_work = |id: &ItemId| self.entries.get(id).is_some_and(|entry| entry.at_work);
        // Without any at work, the first is the suspect: it may be what kills the session.
        let first = lost.first().copied().filter(|_| !charged);
        let suspect = lost.iter().copied().find(at_work).or(first);
        for id in lost.iter().rev().copied().filter(|id| Some(*id) != suspect) {
            let kept = self.entries.get(&id).map_or(0, |entry| entry.received.len());
            self.progress.attempt_failed(id, kept);
            self.enqueue(id, true);
        }
        if let Some(id) = suspect {
            self.attempt_failed(now, id, fault);
        }
    }

    fn give_up_if_all_dead(&mut self, fault: Fault) {
        if self.slots.iter().all(|slot| slot.state == SlotState::Dead) {
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
        while let Some((at, id)) = self.delayed.first().copied()
            && at <= now
        {
            self.delayed.pop_first();
            self.enqueue(id, false);
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
        self.count_sessions();
        self.commands.push_back(Command::CloseSession { slot, fault });
    }

    /// Opens as many sessions as there is work for.
    pub(super) fn open_sessions(&mut self, now: Instant) {
        let running: usize = self.slots.iter().map(|slot| slot.pipeline.len()).sum();
        let wanted = (self.queue.len() + running).min(self.slots.len());
        let mut open = self.slots.iter().filter(|slot| slot.is_open()).count();
        for index in 0..self.slots.len() {
            if open >= wanted {
                return;
            }
            if self.slots[index].state == SlotState::Closed {
                self.slots[index].state = SlotState::Opening { since: now };
                self.commands.push_back(Command::OpenSession { slot: Slot(index as u32) });
                open += 1;
            }
        }
    }

    pub(super) fn close_all(&mut self) {
        for index in 0..self.slots.len() {
            if self.slots[index].is_open() {
                self.close(Slot(index as u32), None);
            }
        }
    }

    fn count_sessions(&mut self) {
        let ready = self.slots.iter().filter(|slot| SlotData::is_ready(slot)).count();
        self.progress.set_sessions(ready as u32);
    }
}

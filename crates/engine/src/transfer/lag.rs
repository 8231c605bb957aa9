//! Sessions that the whole run waits for: where nothing is left to give and others idle, what a slow one still holds goes to
//! them, if they would have done it long before.
//!
//! How much a session is given follows its pace ([`super::pace`]); this is for one whose pace drops afterwards.

use std::time::{Duration, Instant};

use super::pace::Pace;
use super::slot::SlotData;
use super::{Slot, TransferMachine};
use crate::events::Event;
use crate::fault::{Fault, FaultCode, Side};

/// How many times as long as an idle session a slow one may take for the rest of its work.
const PATIENCE: f64 = 3.0;

/// Looks for which a session may be silent: some servers tell little of what they move.
const SILENT_LOOKS: u32 = 3;

/// Since when others wait, and what each session had moved by then.
#[derive(Debug)]
pub(super) struct Look {
    since: Instant,
    due: Instant,
    moved: Vec<u64>,
}

impl TransferMachine {
    /// When the sessions that others wait for are looked at next.
    pub(super) fn look_due(&self) -> Option<Instant> {
        self.look.as_ref().map(|look| look.due)
    }

    /// Gives the work of a session to others that have nothing else to do and would end with it long before.
    pub(super) fn watch_laggards(&mut self, now: Instant) {
        let idle = self.idle_pace();
        let (Some(idle), false) = (idle, self.queue.has_short() || self.queue.bulk() > 0) else {
            self.look = None;
            return;
        };
        let pause = self.options.stall.slow;
        let moved = || self.slots.iter().map(|slot| slot.moved_in_all).collect();
        let look = self.look.get_or_insert_with(|| Look { since: now, due: now + pause, moved: moved() });
        if now < look.due {
            return;
        }
        look.due = now + pause;
        let waited = now.saturating_duration_since(look.since);
        let slow = self.slots.iter().zip(&look.moved).position(|(slot, before)| {
            let moved = slot.moved_in_all.saturating_sub(*before);
            is_too_slow(slot, moved, waited, pause, idle)
        });
        if let Some(index) = slow {
            let pace = self.slots[index].moved_in_all.saturating_sub(look.moved[index]) as f64 / waited.as_secs_f64();
            self.look = None;
            self.relieve(now, index, pace);
        }
    }

    /// The best pace of a session that has nothing to do, bytes per second; `None`: all are busy, or nobody knows.
    fn idle_pace(&self) -> Option<f64> {
        let idle = self.slots.iter().filter(|slot| slot.takes_work() && slot.pipeline.is_empty());
        idle.filter_map(|slot| slot.pace.rate()).max_by(f64::total_cmp)
    }

    /// Ends a session that is too slow, of `pace` bytes per second; nobody is to blame for what it was given.
    fn relieve(&mut self, now: Instant, index: usize, pace: f64) {
        let slot = Slot(index as u32);
        let fault = Fault::new(FaultCode::Stalled, "transfer").side(Side::Network);
        let fault = fault.detail("it has become so slow that others do the rest sooner");
        let data = &mut self.slots[index];
        data.relieved = true;
        data.pace = Pace::of(pace);
        let held = data.take_pipeline();
        data.sign(now);
        for attempt in held.into_iter().rev() {
            if self.orphans.remove(&attempt).is_none() {
                self.hand_back(now, attempt);
            }
        }
        self.report(Event::SessionLost { slot, fault: fault.clone(), retry_in: None });
        self.close(slot, Some(fault));
    }
}

fn is_too_slow(slot: &SlotData, moved: u64, waited: Duration, pause: Duration, idle: f64) -> bool {
    // Once a run: paces may be as bad everywhere by now, and what goes back and forth never arrives.
    if !slot.is_ready() || slot.relieved || (moved == 0 && waited < pause * SILENT_LOOKS) {
        return false;
    }
    let Some(owed) = slot.owed().map(|owed| owed as f64) else { return false };
    let pace = moved as f64 / waited.as_secs_f64();
    owed > pace * (PATIENCE * owed / idle + 2.0 * pause.as_secs_f64())
}

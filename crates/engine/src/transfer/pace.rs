//! How fast each session moves chunks, and how much of the rest it is given by that.
//!
//! The end of a file waits for the slowest session: each is to hold no more than it can move by the time that the others
//! have moved everything else.

use std::time::Duration;

use super::TransferMachine;
use super::options::Chunking;
use super::slot::SlotData;
use crate::plan::ItemId;

/// Fewer leaves than these are hashed one by one: a part at the end has so many where that keeps nobody waiting.
const FEW_LEAVES: u64 = 4;
/// A session that is busy for so long at the end keeps the others waiting for nothing that anybody notices.
pub(super) const WORTH_CUTTING: Duration = Duration::from_millis(100);
/// Round trips that a part lasts at least, or its session would run dry: one passes until the word of the part before it has
/// come, and another where a segment of that was lost.
const TRIPS: f64 = 2.0;
/// How much shorter the first parts of sessions are that may differ much in speed: what a slow one was given before that was
/// known must not last longer than the whole run, though it had an eighth of the others' speed.
pub(super) const UNKNOWN: u64 = 4;

/// How fast a session moves chunks: bytes by the time they took, what is past counting half as much with each chunk.
///
/// Of two chunks that end at once the second has not moved in no time: the first, which moved beside it, is why.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pace {
    bytes: f64,
    seconds: f64,
}

impl Pace {
    /// A pace of so many bytes per second.
    pub(super) fn of(rate: f64) -> Self {
        Self { bytes: rate, seconds: 1.0 }
    }

    /// A chunk has moved in the time since the one before it.
    pub(super) fn moved(&mut self, bytes: u64, took: Duration) {
        self.bytes = self.bytes / 2.0 + bytes as f64;
        self.seconds = self.seconds / 2.0 + took.as_secs_f64();
    }

    /// Bytes per second, once a chunk has moved.
    pub(super) fn rate(&self) -> Option<f64> {
        (self.seconds > 0.0).then(|| self.bytes / self.seconds)
    }
}

/// The paces of some sessions, bytes per second; one that has not shown any counts as the others do in the mean.
pub(super) struct Paces {
    usual: f64,
    pub(super) sum: f64,
    pub(super) all_known: bool,
}

impl Paces {
    /// Of sessions with these; while nothing is known of any, each has `none`.
    pub(super) fn new(rates: impl Iterator<Item = Option<f64>> + Clone, none: f64) -> Self {
        let (sum, known) = rates.clone().flatten().fold((0.0, 0u32), |(sum, n), rate| (sum + rate, n + 1));
        let mut paces =
            Paces { usual: if known > 0 { sum / f64::from(known) } else { none }, sum: 0.0, all_known: true };
        for rate in rates {
            paces.sum += paces.of(rate);
            paces.all_known &= rate.is_some();
        }
        paces
    }

    /// The pace of one of them.
    pub(super) fn of(&self, rate: Option<f64>) -> f64 {
        rate.unwrap_or(self.usual)
    }
}

impl TransferMachine {
    /// Of all open sessions with chunks; 1 for each while nothing is known.
    fn paces(&self) -> Paces {
        Paces::new(self.slots.iter().filter(|slot| slot.is_open()).map(|slot| slot.pace.rate()), 1.0)
    }

    /// [`TRIPS`] of the path, seconds.
    pub(super) fn trips(&self) -> f64 {
        self.options.rtt.unwrap_or_default().as_secs_f64() * TRIPS
    }

    /// Bytes of the next part of a session: a chunk, while there are plenty for each; then so little that what it may have
    /// in the air is half its share of the rest, by what it has shown to be able to; one leaf of the file at least, what
    /// it moves in [`TRIPS`], and what it moves in [`WORTH_CUTTING`], up to [`FEW_LEAVES`]; no more than parts may last; and where
    /// the rate is bounded no more than what that lets pass in a second. That keeps the ends of the sessions together though
    /// their rates change: what a slow one holds at the end is little. A share of many leaves is a multiple of [`Chunking::IN_STEP`], which are
    /// hashed in step: what is over costs MD5 as much as all of them.
    pub(super) fn chunk_length(&self, index: usize, id: ItemId, leaf: u64) -> u64 {
        let Chunking { chunk, leaf: longest, .. } = self.chunking_of(id).unwrap_or_default();
        let (paces, slot) = (self.paces(), &self.slots[index]);
        let rate = slot.pace.rate().unwrap_or(0.0);
        let few = ((rate * WORTH_CUTTING.as_secs_f64()) as u64).min(FEW_LEAVES * leaf);
        let least = ((rate * self.trips()) as u64).min(longest).max(few).max(leaf).next_multiple_of(leaf);
        let share = self.queue.bulk() as f64 * paces.of(slot.pace.rate()) / paces.sum;
        let guess = if self.options.unequal && slot.pace.rate().is_none() { UNKNOWN } else { 1 };
        let part = share as u64 / (2 * guess * self.ahead() as u64);
        let part = part.min(self.brief(chunk, slot.pace.rate())).div_ceil(leaf).saturating_mul(leaf);
        let step = leaf.saturating_mul(Chunking::IN_STEP);
        let part = if part > step { part / step * step } else { part };
        let part = part.clamp(least, chunk.max(least));
        self.budget.part().map_or(part, |most| part.min(most / leaf * leaf).max(leaf))
    }

    /// Most bytes of a session's part for the time that it may last.
    fn brief(&self, chunk: u64, rate: Option<f64>) -> u64 {
        match (self.options.brief, rate) {
            (None, _) => u64::MAX,
            (Some(_), None) => chunk / UNKNOWN,
            (Some(most), Some(rate)) => (rate * most.as_secs_f64()) as u64,
        }
    }

    /// Whether a session ends with one leaf more than it has before all sessions together end with everything, or so little
    /// later that running dry would cost more: the others do the rest of what a slow one would keep them waiting for.
    pub(super) fn in_time(&self) -> impl Fn(&SlotData) -> bool + use<> {
        let (paces, leaf) = (self.paces(), self.next_leaf());
        let late = self.trips() + WORTH_CUTTING.as_secs_f64();
        let in_the_air: u64 = self.slots.iter().filter(|slot| slot.is_open()).map(SlotData::backlog).sum();
        let bytes = (self.queue.bulk() + in_the_air) as f64;
        move |slot| (slot.backlog() + leaf) as f64 / paces.of(slot.pace.rate()) <= bytes / paces.sum + late
    }
}

//! `Progress`: the one model behind every number shown, in text, JSON and web.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::plan::{Item, ItemId};

mod proof;
mod rate;
mod snapshot;

pub use proof::{FileSum, ReadBack, Verification};
use rate::RateWindow;
pub use snapshot::{ActiveItem, ItemState, Snapshot};

/// The model.
///
/// Every number is derived here and nowhere else: done never exceeds total, nothing is negative, and
/// a byte that moves twice counts once as done and once as wasted.
#[derive(Debug)]
pub struct Progress {
    start: Instant,
    counts: Counts,
    listing_complete: bool,
    sessions: u32,
    /// Bytes of finished and active files that count.
    bytes_done: u64,
    bytes_total: u64,
    /// Bytes of failed files, which will not come.
    bytes_failed: u64,
    /// Bytes moved by the network in all.
    bytes_moved: u64,
    /// Bytes of finished and active files that were there before.
    bytes_resumed: u64,
    /// Holes of finished and active files.
    holes: Holes,
    active: BTreeMap<ItemId, Active>,
    bytes_rate: RateWindow,
    files_rate: RateWindow,
}

#[derive(Debug, Default)]
struct Counts {
    files_done: u64,
    files_total: u64,
    files_failed: u64,
    skipped: u64,
    failed: u64,
    cancelled: u64,
    directories: u64,
    symlinks: u64,
    unknown_sizes: u64,
    faults: u64,
    retries: u64,
    verified: u64,
    read_from_disk: u64,
    unverified: u64,
    leaves_resent: u64,
}

#[derive(Debug)]
struct Active {
    source: Vec<u8>,
    state: ItemState,
    /// Bytes that count now.
    credit: u64,
    /// Bytes that counted when the attempt began.
    base: u64,
    /// Bytes the attempt has moved.
    moved: u64,
    total: Option<u64>,
    attempt: u32,
    /// Bytes an earlier run had brought.
    resumed: u64,
    holes: Holes,
}

/// Bytes of holes of one file, or of all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Holes {
    /// Whole leaves of which nothing is moved.
    pub(crate) skipped: u64,
    /// All that are kept as holes.
    pub(crate) kept: u64,
    /// Those that are moved as zeros.
    pub(crate) filled: u64,
}

/// Most items listed in a snapshot.
const LISTED: usize = 256;

impl Progress {
    /// Nothing known, nothing done; `now` is the start of the run.
    pub fn new(now: Instant) -> Self {
        Self {
            start: now,
            counts: Counts::default(),
            listing_complete: false,
            sessions: 0,
            bytes_done: 0,
            bytes_total: 0,
            bytes_failed: 0,
            bytes_moved: 0,
            bytes_resumed: 0,
            holes: Holes::default(),
            active: BTreeMap::new(),
            bytes_rate: RateWindow::new(now),
            files_rate: RateWindow::new(now),
        }
    }

    /// Bytes moved by the network since the start, those moved twice counted twice; never less than before.
    pub fn bytes_moved(&self) -> u64 {
        self.bytes_moved
    }

    /// The numbers at `now`.
    pub fn snapshot(&self, now: Instant) -> Snapshot {
        let counts = &self.counts;
        Snapshot {
            elapsed: now.saturating_duration_since(self.start).as_secs_f64(),
            files_done: counts.files_done,
            files_total: counts.files_total,
            files_failed: counts.files_failed,
            skipped: counts.skipped,
            failed: counts.failed,
            cancelled: counts.cancelled,
            directories_done: counts.directories,
            symlinks_done: counts.symlinks,
            bytes_done: self.bytes_done,
            bytes_total: self.bytes_total,
            unknown_sizes: counts.unknown_sizes,
            listing_complete: self.listing_complete,
            rate: self.bytes_rate.rate(now),
            eta: self.eta(now),
            percent: self.percent(),
            faults: counts.faults,
            retries: counts.retries,
            bytes_wasted: (self.bytes_moved.saturating_add(self.bytes_resumed).saturating_add(self.holes.skipped))
                .saturating_sub(self.bytes_done),
            bytes_resumed: self.bytes_resumed,
            bytes_holes: self.holes.kept,
            bytes_filled: self.holes.filled,
            leaves_resent: counts.leaves_resent,
            verified: counts.verified,
            read_from_disk: counts.read_from_disk,
            unverified: counts.unverified,
            sessions: self.sessions,
            active: self.active.iter().take(LISTED).map(active_item).collect(),
        }
    }

    /// Seconds to go by bytes or by files, whichever is longer: many small files cost time, not bytes.
    fn eta(&self, now: Instant) -> Option<f64> {
        if !self.listing_complete || self.counts.unknown_sizes > 0 {
            return None;
        }
        let bytes = self.bytes_total.saturating_sub(self.bytes_done + self.bytes_failed);
        let ended = self.counts.files_done + self.counts.files_failed;
        let files = self.counts.files_total.saturating_sub(ended);
        if bytes == 0 && files == 0 {
            return Some(0.0);
        }
        if self.bytes_rate.span(now) < HONEST_AFTER {
            return None;
        }
        let rate = self.bytes_rate.rate(now);
        if bytes > 0 && rate <= 0.0 {
            return None;
        }
        let by_bytes = if bytes > 0 { bytes as f64 / rate } else { 0.0 };
        let file_rate = self.files_rate.rate(now);
        let by_files = if file_rate > 0.0 { files as f64 / file_rate } else { 0.0 };
        // One file that ends now and then says nothing about the next; many do.
        let eta = if files > 100 { by_bytes.max(by_files) } else { by_bytes };
        (eta > 0.0).then_some(eta)
    }

    fn percent(&self) -> Option<f64> {
        if !self.listing_complete || self.counts.unknown_sizes > 0 {
            return None;
        }
        let (done, total) = if self.bytes_total > 0 {
            (self.bytes_done, self.bytes_total)
        } else {
            (self.counts.files_done, self.counts.files_total)
        };
        Some(if total == 0 { 100.0 } else { (done as f64 / total as f64 * 100.0).min(100.0) })
    }

    // --- what the machine reports ---------------------------------------------------------------

    pub(crate) fn file_found(&mut self, size: Option<u64>) {
        self.counts.files_total += 1;
        match size {
            Some(size) => self.bytes_total = self.bytes_total.saturating_add(size),
            None => self.counts.unknown_sizes += 1,
        }
    }

    pub(crate) fn listing_done(&mut self) {
        self.listing_complete = true;
    }

    pub(crate) fn set_sessions(&mut self, sessions: u32) {
        self.sessions = sessions;
    }

    pub(crate) fn fault(&mut self) {
        self.counts.faults += 1;
    }

    pub(crate) fn retry(&mut self) {
        self.counts.retries += 1;
    }

    /// An attempt was handed to a session; `kept` bytes need not be moved.
    pub(crate) fn attempt(&mut self, item: &Item, number: u32, kept: u64) {
        let active = self.active.entry(item.id).or_insert_with(|| Active {
            source: item.source.clone(),
            state: ItemState::Queued,
            credit: 0,
            base: 0,
            moved: 0,
            total: item.size,
            attempt: number,
            resumed: 0,
            holes: Holes::default(),
        });
        active.state = ItemState::Queued;
        active.attempt = number;
        active.moved = 0;
        self.set_credit(item.id, kept);
    }

    pub(crate) fn state(&mut self, item: ItemId, state: ItemState) {
        if let Some(active) = self.active.get_mut(&item) {
            active.state = state;
        }
    }

    /// The attempt has moved `moved` bytes so far; returns how many are new.
    pub(crate) fn moved(&mut self, now: Instant, item: ItemId, moved: u64) -> u64 {
        let Some(active) = self.active.get_mut(&item) else {
            return 0;
        };
        let new = moved.saturating_sub(active.moved);
        active.moved += new;
        let credit = active.base.saturating_add(active.moved);
        self.network_moved(now, new);
        self.credit(item, credit);
        new
    }

    /// A chunk has moved `new` bytes more, and `credit` bytes of its file count now.
    pub(crate) fn chunk_moved(&mut self, now: Instant, item: ItemId, new: u64, credit: u64) {
        self.network_moved(now, new);
        self.credit(item, credit);
    }

    fn network_moved(&mut self, now: Instant, new: u64) {
        self.bytes_moved = self.bytes_moved.saturating_add(new);
        if new > 0 {
            self.bytes_rate.add(now, new);
        }
    }

    /// An earlier run has brought `bytes` of the item.
    pub(crate) fn resumed(&mut self, item: ItemId, bytes: u64) {
        if let Some(active) = self.active.get_mut(&item) {
            let old = std::mem::replace(&mut active.resumed, bytes);
            self.bytes_resumed = self.bytes_resumed.saturating_sub(old).saturating_add(bytes);
        }
    }

    /// The item has these holes.
    pub(crate) fn holes(&mut self, item: ItemId, holes: Holes) {
        if let Some(active) = self.active.get_mut(&item) {
            let old = std::mem::replace(&mut active.holes, holes);
            let sum = |all: u64, old: u64, new: u64| all.saturating_sub(old).saturating_add(new);
            self.holes.skipped = sum(self.holes.skipped, old.skipped, holes.skipped);
            self.holes.kept = sum(self.holes.kept, old.kept, holes.kept);
            self.holes.filled = sum(self.holes.filled, old.filled, holes.filled);
        }
    }

    /// Leaves were wrong and go again.
    pub(crate) fn leaves_again(&mut self, leaves: u64) {
        self.counts.leaves_resent += leaves;
    }

    /// The attempt is over; `kept` bytes stay.
    pub(crate) fn attempt_failed(&mut self, item: ItemId, kept: u64) {
        self.state(item, ItemState::Waiting);
        self.set_credit(item, kept);
    }

    /// A file is copied.
    pub(crate) fn file_done(&mut self, now: Instant, item: &Item, verified: &Verification) -> u64 {
        self.credit(item.id, item.size.unwrap_or(0).max(self.credited(item.id)));
        let bytes = self.credited(item.id);
        self.active.remove(&item.id);
        self.counts.files_done += 1;
        self.counts.unknown_sizes -= u64::from(item.size.is_none());
        match verified {
            Verification::Verified { read_back, .. } => {
                self.counts.verified += 1;
                self.counts.read_from_disk += u64::from(*read_back == Some(ReadBack::Disk));
            }
            Verification::Unverified { .. } => self.counts.unverified += 1,
            Verification::NotAsked => {}
        }
        self.files_rate.add(now, 1);
        bytes
    }

    /// A file ends without its copy.
    pub(crate) fn file_failed(&mut self, item: &Item) {
        self.resumed(item.id, 0);
        self.holes(item.id, Holes::default());
        self.set_credit(item.id, 0);
        self.active.remove(&item.id);
        self.counts.files_failed += 1;
        self.counts.unknown_sizes -= u64::from(item.size.is_none());
        self.bytes_failed = self.bytes_failed.saturating_add(item.size.unwrap_or(0));
    }

    /// A file counted before proves to need no copy.
    pub(crate) fn file_dropped(&mut self, item: &Item) {
        self.set_credit(item.id, 0);
        self.active.remove(&item.id);
        self.counts.files_total -= 1;
        self.counts.unknown_sizes -= u64::from(item.size.is_none());
        self.bytes_total -= item.size.unwrap_or(0).min(self.bytes_total);
    }

    pub(crate) fn item_skipped(&mut self) {
        self.counts.skipped += 1;
    }

    pub(crate) fn item_failed(&mut self, cancelled: bool) {
        if cancelled {
            self.counts.cancelled += 1;
        } else {
            self.counts.failed += 1;
        }
    }

    pub(crate) fn directory_done(&mut self) {
        self.counts.directories += 1;
    }

    pub(crate) fn symlink_done(&mut self) {
        self.counts.symlinks += 1;
    }

    pub(crate) fn credited(&self, item: ItemId) -> u64 {
        self.active.get(&item).map_or(0, |active| active.credit)
    }

    pub(crate) fn set_credit(&mut self, item: ItemId, kept: u64) {
        self.credit(item, kept);
        if let Some(active) = self.active.get_mut(&item) {
            active.base = active.credit;
        }
    }

    /// Sets what counts of an item, never more than its size, and moves the sums with it.
    fn credit(&mut self, item: ItemId, credit: u64) {
        let Some(active) = self.active.get_mut(&item) else {
            return;
        };
        let credit = credit.min(active.total.unwrap_or(u64::MAX));
        let old = std::mem::replace(&mut active.credit, credit);
        self.bytes_done = self.bytes_done.saturating_sub(old).saturating_add(credit);
        if active.total.is_none() {
            self.bytes_total = self.bytes_total.saturating_sub(old).saturating_add(credit);
        }
    }
}

/// A rate over less than this is a guess.
const HONEST_AFTER: Duration = Duration::from_secs(2);

fn active_item((id, active): (&ItemId, &Active)) -> ActiveItem {
    ActiveItem {
        item: *id,
        source: active.source.clone(),
        state: active.state,
        bytes_done: active.credit,
        bytes_total: active.total,
        attempt: active.attempt,
        bytes_resumed: active.resumed,
    }
}

#[cfg(test)]
mod tests;

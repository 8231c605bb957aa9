//! What a running transfer has done so far, for markers and displays in other threads.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use whimbrel_engine::{Fault, FaultCode, RangeSet, Side};

use crate::channel::DataChannel;
use crate::times::Times;
use crate::watch::ChannelWatch;

/// Most separate ranges that a transfer may be received in; 16 bytes each, 16 MiB together.
///
/// A sender that takes the file in order leaves one range for each of its connections, however large the file; several that
/// take turns at its blocks leave as many as one is ahead of the other. With blocks of 1 MiB these are 1 TiB.
pub const MOST_RANGES: usize = 1 << 20;

/// Most separate ranges that wait for a marker, 1 MiB together; what is beyond is told in none. A client that restarts sends
/// again what it was not told. With blocks of 1 MiB these are 64 GiB since the last marker.
const MOST_UNTOLD: usize = 1 << 16;

/// Bytes moved and, where they are received, where they lie, in offsets of the file at this side.
///
/// Written by the transfer's threads, read by whoever makes 111 and 112 markers.
#[derive(Default)]
pub struct Progress {
    bytes: AtomicU64,
    /// Whether only a share of the file comes, in as many places as it has blocks, of which no list is kept.
    is_share: bool,
    log: Mutex<Log>,
    channels: Mutex<Vec<ChannelWatch>>,
    times: Times,
}

/// Channels after which closed ones are looked for before one more is remembered.
const CHANNELS_KEPT: usize = 64;

#[derive(Debug, Default)]
struct Log {
    all: RangeSet,
    /// Not yet taken by [`Progress::take_new`].
    new: RangeSet,
}

impl Progress {
    /// Nothing moved yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Nothing moved yet of what is to be one of several shares of a file: [`Progress::ranges`] stays empty.
    pub fn of_share() -> Self {
        Self { is_share: true, ..Self::default() }
    }

    /// Where the threads spend their time.
    pub fn times(&self) -> &Times {
        &self.times
    }

    /// Payload bytes moved, those moved twice counted twice.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Every range written to storage.
    pub fn ranges(&self) -> RangeSet {
        self.lock().all.clone()
    }

    /// Ranges completed since the last call: the content of the next 111 marker, which carries only
    /// what is new (GFD.20 §3.4 as the stock server does it); at most 65,536 of them.
    pub fn take_new(&self) -> RangeSet {
        std::mem::take(&mut self.lock().new)
    }

    /// Records a range written to storage; fails with `PeerMisbehaved` when there are more than [`MOST_RANGES`] of them.
    pub fn add(&self, range: Range<u64>) -> Result<(), Fault> {
        self.bytes.fetch_add(range.end.saturating_sub(range.start), Ordering::Relaxed);
        let mut log = self.lock();
        if log.new.as_slice().len() < MOST_UNTOLD {
            log.new.insert(range.clone());
        }
        if self.is_share {
            return Ok(());
        }
        log.all.insert(range);
        if log.all.as_slice().len() <= MOST_RANGES {
            return Ok(());
        }
        let fault = Fault::new(FaultCode::PeerMisbehaved, "receive data").side(Side::Peer);
        Err(fault.detail(format!("its blocks lie in more than {MOST_RANGES} places with gaps between them")))
    }

    /// Records bytes whose place nobody asks for: sent or hashed ones.
    pub fn add_bytes(&self, count: u64) {
        self.bytes.fetch_add(count, Ordering::Relaxed);
    }

    /// Remembers a channel that the transfer uses from now on.
    pub(crate) fn uses(&self, channel: &dyn DataChannel) {
        let Some(watch) = channel.watch() else { return };
        let mut channels = self.lock_channels();
        if channels.len() % CHANNELS_KEPT == CHANNELS_KEPT - 1 {
            // Strangers come and go while a listener is open.
            channels.retain(ChannelWatch::is_open);
        }
        channels.push(watch);
    }

    /// The channels used so far that are still open, in the order in which they came.
    pub fn channels(&self) -> Vec<ChannelWatch> {
        self.lock_channels().iter().filter(|channel| channel.is_open()).cloned().collect()
    }

    fn lock_channels(&self) -> MutexGuard<'_, Vec<ChannelWatch>> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Progress").field("bytes", &self.bytes()).field("ranges", &self.lock().all).finish()
    }
}

/// Joins the ranges of many small blocks before they reach the shared log.
#[derive(Debug)]
pub(crate) struct Batch<'a> {
    progress: &'a Progress,
    pending: Range<u64>,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(progress: &'a Progress) -> Self {
        Self { progress, pending: 0..0 }
    }

    /// As [`Progress::add`].
    pub(crate) fn add(&mut self, range: Range<u64>) -> Result<(), Fault> {
        if range.start == self.pending.end && !self.pending.is_empty() {
            self.pending.end = range.end;
            return Ok(());
        }
        let pending = std::mem::replace(&mut self.pending, range);
        self.pass_on(pending)
    }

    pub(crate) fn flush(&mut self) -> Result<(), Fault> {
        let pending = std::mem::replace(&mut self.pending, 0..0);
        self.pass_on(pending)
    }

    fn pass_on(&self, range: Range<u64>) -> Result<(), Fault> {
        if range.is_empty() { Ok(()) } else { self.progress.add(range) }
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        // Something is left only where the transfer has failed already.
        let _ = self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_marker_carries_only_what_is_new() {
        let progress = Progress::new();
        progress.add(0..10).expect("few");
        assert_eq!(progress.take_new().to_string(), "0-10");
        progress.add(10..15).expect("few");
        progress.add(20..30).expect("few");
        assert_eq!(progress.take_new().as_slice(), [10..15, 20..30]);
        assert!(progress.take_new().is_empty());
        assert_eq!(progress.ranges().as_slice(), [0..15, 20..30]);
        assert_eq!(progress.bytes(), 25);
    }

    #[test]
    fn a_batch_loses_nothing_when_dropped() {
        let progress = Progress::new();
        let mut batch = Batch::new(&progress);
        batch.add(0..5).expect("few");
        batch.add(5..8).expect("few");
        assert_eq!(progress.bytes(), 0);
        batch.add(100..101).expect("few");
        assert_eq!(progress.bytes(), 8);
        drop(batch);
        assert_eq!(progress.ranges().as_slice(), [0..8, 100..101]);
    }

    #[test]
    fn who_writes_to_more_places_than_a_transfer_has_is_at_fault() {
        let progress = Progress::new();
        let mut places = (0..).map(|place| place * 2..place * 2 + 1);
        places.by_ref().take(MOST_RANGES).try_for_each(|range| progress.add(range)).expect("as many as there may be");
        progress.add(1..2).expect("closes a gap");
        progress.add(places.next().expect("endless")).expect("as many again");
        let fault = progress.add(places.next().expect("endless")).expect_err("too many");
        assert_eq!((fault.code, fault.side), (FaultCode::PeerMisbehaved, Some(Side::Peer)));
        assert!(fault.to_string().contains("1048576 places"), "{fault}");
        assert_eq!(progress.take_new().as_slice().len(), MOST_UNTOLD, "markers tell what they can");
    }

    #[test]
    fn of_a_share_no_list_is_kept_but_for_the_next_marker() {
        let progress = Progress::of_share();
        progress.add(0..1).expect("counted");
        progress.add(4..6).expect("counted");
        assert_eq!((progress.bytes(), progress.ranges()), (3, RangeSet::new()));
        assert_eq!(progress.take_new().as_slice(), [0..1, 4..6]);
    }
}

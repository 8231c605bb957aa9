//! What a running transfer has done so far, for markers and displays in other threads.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use whimbrel_engine::RangeSet;

use crate::channel::DataChannel;
use crate::times::Times;
use crate::watch::ChannelWatch;

/// Bytes moved and where they lie, in offsets of the file at this side.
///
/// Written by the transfer's threads, read by whoever makes 111 and 112 markers.
#[derive(Default)]
pub struct Progress {
    bytes: AtomicU64,
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

    /// Where the threads spend their time.
    pub fn times(&self) -> &Times {
        &self.times
    }

    /// Payload bytes moved, those moved twice counted twice.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Every range completed: written to storage, or handed to the network.
    pub fn ranges(&self) -> RangeSet {
        self.lock().all.clone()
    }

    /// Ranges completed since the last call: the content of the next 111 marker, which carries only
    /// what is new (GFD.20 §3.4 as the stock server does it).
    pub fn take_new(&self) -> RangeSet {
        std::mem::take(&mut self.lock().new)
    }

    /// Records a completed range.
    pub fn add(&self, range: Range<u64>) {
        self.bytes.fetch_add(range.end.saturating_sub(range.start), Ordering::Relaxed);
        let mut log = self.lock();
        log.all.insert(range.clone());
        log.new.insert(range);
    }

    /// Records bytes that belong to no range, such as hashed ones.
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

    pub(crate) fn add(&mut self, range: Range<u64>) {
        if range.start == self.pending.end && !self.pending.is_empty() {
            self.pending.end = range.end;
        } else {
            self.flush();
            self.pending = range;
        }
    }

    pub(crate) fn flush(&mut self) {
        let pending = std::mem::replace(&mut self.pending, 0..0);
        if !pending.is_empty() {
            self.progress.add(pending);
        }
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_marker_carries_only_what_is_new() {
        let progress = Progress::new();
        progress.add(0..10);
        assert_eq!(progress.take_new().to_string(), "0-10");
        progress.add(10..15);
        progress.add(20..30);
        assert_eq!(progress.take_new().as_slice(), [10..15, 20..30]);
        assert!(progress.take_new().is_empty());
        assert_eq!(progress.ranges().as_slice(), [0..15, 20..30]);
        assert_eq!(progress.bytes(), 25);
    }

    #[test]
    fn a_batch_loses_nothing_when_dropped() {
        let progress = Progress::new();
        let mut batch = Batch::new(&progress);
        batch.add(0..5);
        batch.add(5..8);
        assert_eq!(progress.bytes(), 0);
        batch.add(100..101);
        assert_eq!(progress.bytes(), 8);
        drop(batch);
        assert_eq!(progress.ranges().as_slice(), [0..8, 100..101]);
    }
}

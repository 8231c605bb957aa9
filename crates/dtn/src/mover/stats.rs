//! Counters of a data process, reported as `Load`.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use whimbrel_transport::DataChannel;

use super::message::Load;
pub use super::message::Way;

/// What a data process counts; every thread adds, the ticker takes.
#[derive(Debug, Default)]
pub struct Stats {
    received: AtomicU64,
    sent: AtomicU64,
    done: AtomicU64,
    failed: AtomicU64,
    retransmits: AtomicU64,
    running: AtomicU32,
    channels: AtomicU32,
    rtt_us: AtomicU32,
}

impl Stats {
    /// Counts moved bytes.
    pub fn moved(&self, way: Way, bytes: u64) {
        match way {
            Way::In => self.received.fetch_add(bytes, Relaxed),
            Way::Out => self.sent.fetch_add(bytes, Relaxed),
        };
    }

    /// A transfer began.
    pub fn began(&self) {
        self.running.fetch_add(1, Relaxed);
    }

    /// A transfer ended.
    pub fn ended(&self, well: bool) {
        self.running.fetch_sub(1, Relaxed);
        let counter = if well { &self.done } else { &self.failed };
        counter.fetch_add(1, Relaxed);
    }

    /// A mover now keeps `now` data channels, unused, where it kept `before`.
    pub fn channels(&self, before: usize, now: usize) {
        // Wrapping addition of the difference is exact in either direction.
        self.channels.fetch_add((now as u32).wrapping_sub(before as u32), Relaxed);
    }

    /// What TCP told about a channel: segments sent again, smoothed round-trip time.
    pub fn network(&self, retransmits: u64, rtt_us: u32) {
        self.retransmits.fetch_add(retransmits, Relaxed);
        if rtt_us != 0 {
            self.rtt_us.store(rtt_us, Relaxed);
        }
    }

    /// Asks TCP about a channel and counts what it says.
    pub fn channel(&self, channel: &dyn DataChannel) {
        if let Some(watched) = channel.watched() {
            let stats = watched.stats();
            self.network(watched.untold(stats.retransmits), u32::try_from(stats.rtt.as_micros()).unwrap_or(u32::MAX));
        }
    }

    /// Takes the counts since the last call; levels stay. What is not counted here is left at nothing.
    pub fn take(&self) -> Load {
        Load {
            bytes_received: self.received.swap(0, Relaxed),
            bytes_sent: self.sent.swap(0, Relaxed),
            transfers_done: self.done.swap(0, Relaxed),
            transfers_failed: self.failed.swap(0, Relaxed),
            retransmits: self.retransmits.swap(0, Relaxed),
            transfers_running: self.running.load(Relaxed),
            channels_open: self.channels.load(Relaxed),
            rtt_us: self.rtt_us.load(Relaxed),
            ..Load::default()
        }
    }
}

/// Whether `now` tells anything that `before` did not.
pub fn worth_reporting(before: &Load, now: &Load) -> bool {
    let levels = |l: &Load| (l.transfers_running, l.channels_open, l.receive_rate, l.send_rate, l.rtt_us, l.pool_bytes);
    let counts = [now.bytes_received, now.bytes_sent, now.transfers_done, now.transfers_failed, now.retransmits];
    counts.iter().any(|&n| n != 0) || levels(before) != levels(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_reported_once_and_levels_stay() {
        let stats = Stats::default();
        stats.began();
        stats.moved(Way::In, 5);
        stats.channels(0, 4);
        stats.channels(4, 1);
        let first = stats.take();
        assert_eq!((first.bytes_received, first.transfers_running), (5, 1));
        assert_eq!(first.channels_open, 1);
        assert!(worth_reporting(&Load::default(), &first));
        let second = stats.take();
        assert_eq!((second.bytes_received, second.transfers_running), (0, 1));
        assert!(!worth_reporting(&first, &second));
        stats.ended(false);
        assert_eq!(stats.take().transfers_failed, 1);
    }
}

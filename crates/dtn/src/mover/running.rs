//! What runs now in a data process, as metrics show it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use whimbrel_transport::{ChannelWatch, Progress};

use super::message::{RunningChannel, RunningTransfer, Transfers};
use super::stats::{Stats, Way};

/// Time that rates are computed over.
const WINDOW: Duration = Duration::from_secs(5);

/// A transfer is told one by one from this age on: thousands of small files would be as many series that nobody reads.
const SHOWN_AFTER: Duration = Duration::from_secs(1);

/// Most transfers in a report.
pub const MAX_TRANSFERS: usize = 256;

/// Most data channels in a report, of all its transfers.
pub const MAX_CHANNELS: usize = 1024;

/// The rate of a count that only grows, over a sliding window.
#[derive(Debug, Default)]
pub struct Meter {
    total: u64,
    /// The first is where the window begins.
    samples: VecDeque<(Instant, u64)>,
}

impl Meter {
    /// A count that stood at nothing at that time.
    pub fn started(at: Instant) -> Self {
        Self { total: 0, samples: VecDeque::from([(at, 0)]) }
    }

    /// Takes in the count as of `now`, which is `interval` after the last look if there was any.
    pub fn look(&mut self, now: Instant, interval: Duration, total: u64) {
        while self.samples.front().is_some_and(|(at, _)| now.saturating_duration_since(*at) > WINDOW) {
            self.samples.pop_front();
        }
        if self.samples.is_empty() {
            // Nobody looked for long because nothing moved.
            self.samples.push_back((now.checked_sub(interval).unwrap_or(now), self.total));
        }
        self.samples.push_back((now, total));
        self.total = total;
    }

    /// Per second; 0 before the first look.
    pub fn rate(&self) -> u64 {
        let (Some((from, before)), Some((to, after))) = (self.samples.front(), self.samples.back()) else {
            return 0;
        };
        let seconds = to.saturating_duration_since(*from).as_secs_f64();
        if seconds > 0.0 { ((after - before) as f64 / seconds) as u64 } else { 0 }
    }
}

/// A transfer under way.
pub struct Running {
    id: u64,
    way: Way,
    kind: &'static str,
    expected: Option<u64>,
    progress: Arc<Progress>,
    /// Bytes that are in the counters already.
    counted: u64,
    began: Instant,
    meter: Meter,
}

impl Running {
    /// A transfer that begins now.
    pub fn new(id: u64, way: Way, kind: &'static str, expected: Option<u64>, progress: Arc<Progress>) -> Self {
        let began = Instant::now();
        Self { id, way, kind, expected, progress, counted: 0, began, meter: Meter::started(began) }
    }

    /// Whether this is the transfer with that progress.
    pub fn is(&self, progress: &Arc<Progress>) -> bool {
        Arc::ptr_eq(&self.progress, progress)
    }

    /// Brings the counters up to date.
    pub fn count(&mut self, stats: &Stats) {
        let now = self.progress.bytes();
        stats.moved(self.way, now.saturating_sub(self.counted));
        self.counted = now;
    }

    fn show(&self, channels: Vec<RunningChannel>) -> RunningTransfer {
        RunningTransfer {
            id: self.id,
            way: self.way,
            kind: self.kind.to_owned(),
            bytes: self.counted,
            expected: self.expected,
            rate: self.meter.rate(),
            channels,
        }
    }
}

/// Looks at all that runs: counts what was moved, and tells what there is to see and how many channels are in use.
pub fn look(all: &mut [Running], now: Instant, interval: Duration, stats: &Stats) -> (Transfers, u32) {
    let mut seen = Transfers::default();
    let (mut in_use, mut room) = (0, MAX_CHANNELS);
    for one in all {
        one.count(stats);
        one.meter.look(now, interval, one.counted);
        let watches = one.progress.channels();
        in_use += watches.len() as u32;
        if now.saturating_duration_since(one.began) < SHOWN_AFTER {
            continue;
        }
        // Of all channels, or the totals would lack what only the page lacks.
        let channels: Vec<_> =
            watches.iter().enumerate().filter_map(|(index, watch)| channel(index, watch, stats)).collect();
        if seen.running.len() == MAX_TRANSFERS {
            seen.left_out += 1;
            continue;
        }
        let shown = channels.len().min(room);
        room -= shown;
        seen.channels_left_out += (channels.len() - shown) as u32;
        seen.running.push(one.show(channels.into_iter().take(shown).collect()));
    }
    (seen, in_use)
}

fn channel(index: usize, watch: &ChannelWatch, stats: &Stats) -> Option<RunningChannel> {
    let (bytes, network) = watch.look()?;
    let rtt_us = u32::try_from(network.rtt.as_micros()).unwrap_or(u32::MAX);
    stats.network(watch.untold(network.retransmits), rtt_us);
    Some(RunningChannel {
        index: index as u32,
        peer: watch.peer(),
        bytes,
        rtt_us,
        retransmits: network.retransmits,
        window: network.window,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(500);

    #[test]
    fn a_rate_is_that_of_the_window_and_falls_to_nothing_when_nothing_moves() {
        let start = Instant::now();
        let mut meter = Meter::started(start);
        let mut now = start;
        for tick in 1..=20u64 {
            now = start + TICK * tick as u32;
            meter.look(now, TICK, tick * 500);
        }
        assert_eq!(meter.rate(), 1000);
        for _ in 0..11 {
            now += TICK;
            meter.look(now, TICK, 10_000);
        }
        assert_eq!(meter.rate(), 0);
    }

    #[test]
    fn a_rest_is_no_part_of_a_rate() {
        let start = Instant::now();
        let mut meter = Meter::default();
        meter.look(start, TICK, 7);
        assert_eq!(meter.rate(), 14);
        meter.look(start + Duration::from_secs(3600), TICK, 507);
        assert_eq!(meter.rate(), 1000);
    }

    #[test]
    fn a_report_has_a_limit_and_says_what_it_leaves_out_but_counts_everything() {
        let stats = Stats::default();
        let make = |id| {
            let progress = Arc::new(Progress::new());
            progress.add_bytes(10);
            Running::new(id, Way::In, "STOR", Some(100), progress)
        };
        let mut all: Vec<_> = (0..300).map(make).collect();
        let soon = Instant::now();
        assert_eq!(look(&mut all, soon, TICK, &stats).0, Transfers::default(), "short ones are in the totals only");
        let (seen, _) = look(&mut all, soon + Duration::from_secs(3), TICK, &stats);
        assert_eq!((seen.running.len(), seen.left_out), (MAX_TRANSFERS, 44));
        assert_eq!((seen.running[0].bytes, seen.running[0].expected), (10, Some(100)));
        assert_eq!(stats.take().bytes_received, 3000);
    }
}

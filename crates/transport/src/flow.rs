//! What every transfer loop needs besides its data: memory, limits, a clock and a way to stop.

use std::time::{Duration, Instant};

use whimbrel_engine::{Fault, FaultCode, Side};

use crate::cancel::Cancel;
use crate::pool::Pool;
use crate::progress::Progress;
use crate::rate::RateLimit;

/// Too little progress: fewer than `min_bytes` within any `window`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StallPolicy {
    /// Length of one observation.
    pub window: Duration,
    /// Bytes the whole transfer must move in it, at least 1.
    pub min_bytes: u64,
}

impl StallPolicy {
    /// Not a single byte within `window`.
    pub fn silent_for(window: Duration) -> Self {
        Self { window, min_bytes: 1 }
    }
}

/// The surroundings of one transfer.
#[derive(Debug, Clone, Copy)]
pub struct Flow<'a> {
    /// Where buffers come from.
    pub pool: &'a Pool,
    /// Where bytes and ranges are counted.
    pub progress: &'a Progress,
    /// Stops the transfer at once.
    pub cancel: &'a Cancel,
    /// Shared speed limit; `None` is unlimited.
    pub rate: Option<&'a RateLimit>,
    /// When to give up; `None` waits for ever.
    pub stall: Option<StallPolicy>,
    /// Most threads to use, the caller's included; small transfers use only the caller's.
    pub threads: usize,
}

impl<'a> Flow<'a> {
    /// Unlimited, on the caller's thread, giving up after `StallPolicy::silent_for(120 s)`.
    pub fn new(pool: &'a Pool, progress: &'a Progress, cancel: &'a Cancel) -> Self {
        Self {
            pool,
            progress,
            cancel,
            rate: None,
            stall: Some(StallPolicy::silent_for(Duration::from_secs(120))),
            threads: 1,
        }
    }
}

/// Watches one transfer's byte count against a [`StallPolicy`].
#[derive(Debug)]
pub(crate) struct StallWatch {
    policy: Option<StallPolicy>,
    since: Instant,
    bytes: u64,
}

impl StallWatch {
    pub(crate) fn new(policy: Option<StallPolicy>, now: Instant, bytes: u64) -> Self {
        Self { policy, since: now, bytes }
    }

    /// Fails when a window has ended with too few bytes.
    pub(crate) fn check(&mut self, now: Instant, bytes: u64, op: &str) -> Result<(), Fault> {
        let Some(policy) = self.policy else {
            return Ok(());
        };
        if now.saturating_duration_since(self.since) < policy.window {
            return Ok(());
        }
        let moved = bytes.saturating_sub(self.bytes);
        if moved < policy.min_bytes.max(1) {
            let detail = format!("{moved} bytes within {:.1} s", policy.window.as_secs_f64());
            return Err(Fault::new(FaultCode::Stalled, op).side(Side::Network).detail(detail));
        }
        (self.since, self.bytes) = (now, bytes);
        Ok(())
    }

    /// Time that cannot count as a stall: nothing could move (a rate limit, a full pool).
    pub(crate) fn excuse(&mut self, waited: Duration) {
        self.since += waited;
    }

    /// How long to sleep at most before the next check.
    pub(crate) fn remaining(&self, now: Instant) -> Option<Duration> {
        let policy = self.policy?;
        Some((self.since + policy.window).saturating_duration_since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_few_bytes_in_a_window_is_a_stall_and_enough_is_not() {
        let start = Instant::now();
        let policy = StallPolicy { window: Duration::from_secs(10), min_bytes: 100 };
        let mut watch = StallWatch::new(Some(policy), start, 0);
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(watch.check(at(9), 0, "send").is_ok());
        assert!(watch.check(at(10), 100, "send").is_ok());
        let fault = watch.check(at(20), 150, "send").expect_err("50 bytes");
        assert_eq!(fault.code, FaultCode::Stalled);
    }

    #[test]
    fn excused_time_moves_the_window() {
        let start = Instant::now();
        let policy = StallPolicy::silent_for(Duration::from_secs(10));
        let mut watch = StallWatch::new(Some(policy), start, 0);
        watch.excuse(Duration::from_secs(5));
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(watch.check(at(14), 0, "send").is_ok());
        assert!(watch.check(at(15), 0, "send").is_err());
    }
}

//! The speed limit: one token bucket, shared by every channel it governs.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use whimbrel_engine::Fault;

use crate::cancel::Cancel;

/// A limit in bytes per second that can change while transfers run.
///
/// Takes effect below every channel: bytes are paid for before they are sent, or after they were
/// received and before more are read.
#[derive(Debug)]
pub struct RateLimit {
    bucket: Mutex<Bucket>,
}

/// Credit may go below zero: a block is never cut, the next one waits instead.
#[derive(Debug)]
struct Bucket {
    /// Bytes per second; `None` is unlimited.
    rate: Option<u64>,
    /// Most credit an idle time can earn, in bytes.
    burst: u64,
    credit: f64,
    updated: Option<Instant>,
}

impl RateLimit {
    /// `rate` bytes per second (at least 1; `None`: unlimited), with bursts of a tenth of a second.
    pub fn new(rate: Option<u64>) -> Self {
        let mut bucket = Bucket { rate: None, burst: 0, credit: 0.0, updated: None };
        bucket.set_rate(rate);
        Self { bucket: Mutex::new(bucket) }
    }

    /// Changes the limit for everything under it, from the next block on.
    pub fn set_rate(&self, rate: Option<u64>) {
        self.lock().set_rate(rate);
    }

    /// The limit in force, in bytes per second.
    pub fn rate(&self) -> Option<u64> {
        self.lock().rate
    }

    /// Pays for `bytes` at `now`; returns how long the payer must wait before going on.
    pub fn pay(&self, bytes: u64, now: Instant) -> Duration {
        self.lock().pay(bytes, now)
    }

    /// Pays for `bytes` and waits as long as that takes; returns the time waited.
    pub fn pay_and_wait(&self, bytes: u64, cancel: &Cancel, op: &str) -> Result<Duration, Fault> {
        let now = Instant::now();
        let wait = self.pay(bytes, now);
        if !wait.is_zero() {
            cancel.sleep_until(now + wait, op)?;
        }
        Ok(wait)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Bucket> {
        self.bucket.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Bucket {
    fn set_rate(&mut self, rate: Option<u64>) {
        self.rate = rate.map(|rate| rate.max(1));
        self.burst = self.rate.unwrap_or(0) / 10;
        self.credit = self.credit.min(self.burst as f64);
    }

    fn pay(&mut self, bytes: u64, now: Instant) -> Duration {
        let Some(rate) = self.rate else {
            return Duration::ZERO;
        };
        let since = self.updated.map_or(Duration::ZERO, |updated| now.saturating_duration_since(updated));
        // Two payers may read the clock in the other order than they take the lock.
        self.updated = Some(self.updated.map_or(now, |updated| updated.max(now)));
        let earned = since.as_secs_f64() * rate as f64;
        self.credit = (self.credit + earned).min(self.burst as f64) - bytes as f64;
        if self.credit >= 0.0 {
            return Duration::ZERO;
        }
        Duration::try_from_secs_f64(-self.credit / rate as f64).unwrap_or(Duration::MAX / 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;

    /// Runs payers in virtual time; returns bytes paid within `seconds`.
    fn run(limit: &RateLimit, start: Instant, seconds: f64, block: u64, payers: usize) -> u64 {
        let mut ready = vec![start; payers];
        let end = start + Duration::from_secs_f64(seconds);
        let mut paid = 0;
        loop {
            let next = ready.iter_mut().min().expect("payers");
            if *next >= end {
                return paid;
            }
            let now = *next;
            *next = now + limit.pay(block, now).max(Duration::from_micros(1));
            paid += block;
        }
    }

    #[test]
    fn many_payers_together_keep_to_the_rate() {
        let limit = RateLimit::new(Some(1024 * KIB));
        let paid = run(&limit, Instant::now(), 10.0, 16 * KIB, 7);
        let expected = 10 * 1024 * KIB;
        assert!(paid.abs_diff(expected) < expected / 20, "{paid}");
    }

    #[test]
    fn blocks_larger_than_the_burst_are_slow_but_not_stuck() {
        let limit = RateLimit::new(Some(10 * KIB));
        let paid = run(&limit, Instant::now(), 100.0, 256 * KIB, 1);
        assert!(paid.abs_diff(1000 * KIB) <= 256 * KIB, "{paid}");
    }

    #[test]
    fn idle_time_earns_no_more_than_the_burst() {
        let limit = RateLimit::new(Some(1000));
        let start = Instant::now();
        assert!(limit.pay(100, start) > Duration::ZERO);
        let later = start + Duration::from_secs(3600);
        assert_eq!(limit.pay(100, later), Duration::ZERO);
        assert_eq!(limit.pay(100, later), Duration::from_millis(100));
    }

    #[test]
    fn a_change_takes_effect_at_once_and_none_is_unlimited() {
        let limit = RateLimit::new(None);
        let now = Instant::now();
        assert_eq!(limit.pay(u64::MAX / 2, now), Duration::ZERO);
        limit.set_rate(Some(1000));
        assert!(limit.pay(1000, now) >= Duration::from_millis(900));
        limit.set_rate(None);
        assert_eq!(limit.pay(1000, now), Duration::ZERO);
    }
}

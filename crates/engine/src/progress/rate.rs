//! A rate over a sliding window, in constant memory.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Amounts of the last [`WINDOW`], kept in buckets.
#[derive(Debug)]
pub(super) struct RateWindow {
    start: Instant,
    buckets: VecDeque<(Instant, u64)>,
}

const WINDOW: Duration = Duration::from_secs(10);
const BUCKET: Duration = Duration::from_millis(500);

impl RateWindow {
    pub(super) fn new(start: Instant) -> Self {
        Self { start, buckets: VecDeque::new() }
    }

    pub(super) fn add(&mut self, now: Instant, amount: u64) {
        if self.buckets.is_empty() {
            // Nothing moved before: time spent on logging in or waiting is not part of the rate.
            self.start = self.start.max(now.checked_sub(BUCKET).unwrap_or(now));
        }
        match self.buckets.back_mut() {
            Some((at, sum)) if now.saturating_duration_since(*at) < BUCKET => *sum += amount,
            _ => self.buckets.push_back((now, amount)),
        }
        while let Some((at, _)) = self.buckets.front()
            && now.saturating_duration_since(*at) > WINDOW
        {
            self.buckets.pop_front();
        }
    }

    /// Amount per second; 0 when nothing moved within the window.
    pub(super) fn rate(&self, now: Instant) -> f64 {
        let recent = |at: Instant| now.saturating_duration_since(at) <= WINDOW;
        let sum: u64 = self.buckets.iter().filter(|(at, _)| recent(*at)).map(|(_, n)| n).sum();
        let span = self.span(now).as_secs_f64();
        if span > 0.0 { sum as f64 / span } else { 0.0 }
    }

    /// The time the rate is computed over, at most the window.
    pub(super) fn span(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.start).clamp(BUCKET, WINDOW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_forgets_what_is_older_than_the_window() {
        let start = Instant::now();
        let mut window = RateWindow::new(start);
        for tick in 0..100u64 {
            let amount = if tick < 50 { 1000 } else { 100 };
            window.add(start + Duration::from_millis(250 * tick), amount);
        }
        let rate = window.rate(start + Duration::from_millis(250 * 99));
        assert!((380.0..=440.0).contains(&rate), "{rate}");
        assert_eq!(window.rate(start + Duration::from_secs(3600)), 0.0);
        assert!(window.buckets.len() <= 22);
    }
}

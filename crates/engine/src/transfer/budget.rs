//! How fast data may be asked for: a mean rate, kept by when parts and files begin.

use std::time::{Duration, Instant};

/// Work may begin while no more than this is owed: the next begins before the one before has to have ended.
const LEAD: Duration = Duration::from_secs(1);

/// Longest part of a file, as time at the rate.
const PART: Duration = Duration::from_secs(1);

/// What was begun is owed at once and paid off at the rate. Time in which nothing begins earns nothing.
#[derive(Debug)]
pub(super) struct Budget {
    /// Bytes per second; `None`: no bound.
    rate: Option<u64>,
    /// When nothing is owed any more.
    paid: Instant,
    /// Until when something waits for it.
    waits: Option<Instant>,
}

impl Budget {
    pub(super) fn new(rate: Option<u64>, now: Instant) -> Self {
        Self { rate: rate.map(|rate| rate.max(1)), paid: now, waits: None }
    }

    /// From now on so many bytes per second; what is owed is paid off at the new rate.
    pub(super) fn set_rate(&mut self, now: Instant, rate: Option<u64>) {
        let owed = self.rate.map_or(0.0, |old| self.debt(now).as_secs_f64() * old as f64);
        (self.rate, self.paid) = (rate.map(|rate| rate.max(1)), now);
        self.charge(now, owed as u64);
    }

    /// Whether data may be asked for.
    pub(super) fn allows(&self, now: Instant) -> bool {
        self.rate.is_none() || self.debt(now) <= LEAD
    }

    /// So many bytes begin; returns how many are owed for them: none without a bound.
    pub(super) fn charge(&mut self, now: Instant, bytes: u64) -> u64 {
        let Some(rate) = self.rate else { return 0 };
        let from = self.paid.max(now);
        // Longer than the clock can tell is for ever: a day later it is looked at again.
        self.paid = from.checked_add(time_of(bytes, rate)).unwrap_or(from + Duration::from_secs(86_400));
        bytes
    }

    /// So many bytes that began do not come.
    pub(super) fn refund(&mut self, now: Instant, bytes: u64) {
        if let Some(rate) = self.rate {
            self.paid = self.paid.checked_sub(time_of(bytes, rate)).map_or(now, |paid| paid.max(now));
        }
    }

    /// Most bytes of one part; `None`: no bound.
    pub(super) fn part(&self) -> Option<u64> {
        self.rate.map(|rate| (rate as f64 * PART.as_secs_f64()) as u64)
    }

    /// Notes whether data wait for it.
    pub(super) fn await_it(&mut self, now: Instant, waiting: bool) {
        self.waits = (waiting && !self.allows(now)).then(|| self.paid - LEAD);
    }

    /// When what waits may begin.
    pub(super) fn due(&self) -> Option<Instant> {
        self.waits
    }

    fn debt(&self, now: Instant) -> Duration {
        self.paid.saturating_duration_since(now)
    }
}

/// How long so many bytes take at the rate.
fn time_of(bytes: u64, rate: u64) -> Duration {
    Duration::try_from_secs_f64(bytes as f64 / rate as f64).unwrap_or(Duration::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn what_began_is_paid_off_before_more_begins() {
        let now = Instant::now();
        let mut budget = Budget::new(Some(100), now);
        assert!(budget.allows(now));
        budget.charge(now, 300);
        assert!(!budget.allows(now));
        budget.await_it(now, true);
        assert_eq!(budget.due(), Some(now + 2 * SECOND));
        assert!(budget.allows(now + 2 * SECOND));
        budget.await_it(now + 2 * SECOND, true);
        assert_eq!(budget.due(), None);
    }

    #[test]
    fn idle_time_earns_nothing() {
        let now = Instant::now();
        let mut budget = Budget::new(Some(100), now);
        budget.charge(now + 60 * SECOND, 200);
        assert!(!budget.allows(now + 60 * SECOND));
        assert!(budget.allows(now + 61 * SECOND));
    }

    #[test]
    fn a_new_rate_holds_for_what_is_owed() {
        let now = Instant::now();
        let mut budget = Budget::new(Some(100), now);
        budget.charge(now, 1100);
        budget.set_rate(now + SECOND, Some(500));
        assert!(budget.allows(now + 2 * SECOND) && !budget.allows(now + SECOND));
        budget.set_rate(now + SECOND, None);
        assert!(budget.allows(now + SECOND));
        assert_eq!(budget.part(), None);
        // No bound after a bound after none owes nothing.
        budget.charge(now + SECOND, 1 << 60);
        budget.set_rate(now + SECOND, Some(1));
        assert!(budget.allows(now + SECOND));
    }

    #[test]
    fn the_slowest_rate_and_the_longest_file_are_no_end_of_the_clock() {
        let now = Instant::now();
        let mut budget = Budget::new(Some(0), now);
        for _ in 0..3 {
            budget.charge(now, u64::MAX);
        }
        assert!(!budget.allows(now + 3600 * SECOND));
    }

    #[test]
    fn what_does_not_come_is_owed_no_more_and_earns_nothing() {
        let now = Instant::now();
        let mut budget = Budget::new(Some(100), now);
        assert_eq!((budget.charge(now, 1000), budget.charge(now, 300)), (1000, 300));
        budget.refund(now + SECOND, 950);
        budget.await_it(now + SECOND, true);
        assert_eq!(budget.due(), Some(now + Duration::from_millis(2500)));
        budget.refund(now + SECOND, 1 << 60);
        budget.charge(now + SECOND, 200);
        assert!(!budget.allows(now + SECOND) && budget.allows(now + 2 * SECOND));
        // Without a bound nothing is owed.
        assert_eq!(Budget::new(None, now).charge(now, 5), 0);
    }
}

//! When a timer runs: at one time, or at times with one distance between them.

use serde::{Deserialize, Serialize};
use whimbrel_engine::listing::Timestamp;

/// Shortest distance between two runs, seconds.
pub const SHORTEST: i64 = 60;

/// Longest distance between two runs, seconds: ten years.
pub const LONGEST: i64 = 10 * 366 * 24 * 3600;

/// When a timer runs; whole seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Schedule {
    /// Once.
    Once {
        /// When.
        at: Timestamp,
    },
    /// At `start`, and again each `interval` after it.
    Recurring {
        /// The first time.
        start: Timestamp,
        /// Seconds between two times; from [`SHORTEST`] to [`LONGEST`].
        interval: i64,
        /// When that ends.
        end: End,
    },
}

/// The end of a timer that runs again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum End {
    /// It has none.
    Never,
    /// After so many runs.
    Runs {
        /// At least one.
        count: u64,
    },
    /// After a time; a run at that very time is the last.
    Time {
        /// When.
        at: Timestamp,
    },
}

impl Schedule {
    /// The first time.
    pub fn start(&self) -> Timestamp {
        match *self {
            Self::Once { at } => at,
            Self::Recurring { start, .. } => start,
        }
    }

    /// When a timer runs that is made at `now`: of times that have passed the last one counts, at once.
    ///
    /// `None`: never.
    pub fn first(&self, now: Timestamp) -> Option<Timestamp> {
        match *self {
            Self::Once { at } => Some(at),
            Self::Recurring { start, .. } if start > now => self.within(start),
            Self::Recurring { start, interval, end } => {
                let last = match end {
                    End::Time { at } => at.min(now),
                    End::Never | End::Runs { .. } => now,
                };
                self.within(later(start, (last.secs - start.secs).div_euclid(interval.max(1)).saturating_mul(interval)))
            }
        }
    }

    /// The time after `now` at which a timer runs next that has run `runs` times; `None`: never again.
    ///
    /// Times that passed meanwhile are left out: what they would have done is done by the next one.
    pub fn next(&self, now: Timestamp, runs: u64) -> Option<Timestamp> {
        let Self::Recurring { start, interval, end } = *self else { return None };
        if matches!(end, End::Runs { count } if runs >= count) {
            return None;
        }
        let passed = (now.secs.saturating_sub(start.secs)).div_euclid(interval.max(1));
        let steps = passed.saturating_add(1).max(0);
        self.within(later(start, steps.saturating_mul(interval)))
    }

    /// A time, unless that is behind the end, or before the beginning.
    fn within(&self, time: Timestamp) -> Option<Timestamp> {
        match *self {
            Self::Recurring { end: End::Time { at }, .. } if time > at => None,
            _ if time < self.start() => None,
            _ => Some(time),
        }
    }
}

fn later(time: Timestamp, seconds: i64) -> Timestamp {
    Timestamp::from_secs(time.secs.saturating_add(seconds))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(secs: i64) -> Timestamp {
        Timestamp::from_secs(secs)
    }

    fn every(start: i64, interval: i64, end: End) -> Schedule {
        Schedule::Recurring { start: at(start), interval, end }
    }

    #[test]
    fn once_is_once_also_when_it_is_late() {
        let once = Schedule::Once { at: at(1000) };
        assert_eq!((once.first(at(0)), once.first(at(5000))), (Some(at(1000)), Some(at(1000))));
        assert_eq!(once.next(at(1000), 1), None);
    }

    #[test]
    fn times_that_passed_count_once_and_the_grid_stays() {
        let nightly = every(1000, 100, End::Never);
        assert_eq!(nightly.first(at(900)), Some(at(1000)));
        assert_eq!(nightly.first(at(1350)), Some(at(1300)));
        assert_eq!(nightly.next(at(1300), 1), Some(at(1400)));
        assert_eq!(nightly.next(at(1399), 1), Some(at(1400)));
        assert_eq!(nightly.next(at(1977), 1), Some(at(2000)));
        assert_eq!(nightly.next(at(10), 0), Some(at(1000)));
    }

    #[test]
    fn ends_are_kept() {
        let three = every(0, 100, End::Runs { count: 3 });
        assert_eq!((three.next(at(250), 2), three.next(at(250), 3)), (Some(at(300)), None));
        let until = every(0, 100, End::Time { at: at(200) });
        assert_eq!((until.next(at(100), 1), until.next(at(200), 2)), (Some(at(200)), None));
        // A service that was away at the last time catches up on it.
        assert_eq!(until.first(at(5000)), Some(at(200)));
        assert_eq!(every(300, 100, End::Time { at: at(200) }).first(at(0)), None);
    }

    proptest! {
        #[test]
        fn the_next_time_is_on_the_grid_and_the_first_one_after_now(
            start in -5000_i64..5000, interval in 1_i64..500, now in -10_000_i64..10_000, runs in 0_u64..5, count in 1_u64..5,
        ) {
            let schedule = every(start, interval, End::Runs { count });
            match schedule.next(at(now), runs) {
                None => prop_assert!(runs >= count),
                Some(next) => {
                    prop_assert!(next.secs > now || next.secs == start);
                    prop_assert!(next.secs >= start && (next.secs - start) % interval == 0);
                    prop_assert!(next.secs == start || next.secs - interval <= now);
                }
            }
        }
    }
}

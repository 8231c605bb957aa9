//! Storage of a fixed rate: a [`Pace`] makes whoever moves bytes wait until they are due.

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// What a thread that woke late may catch up: without it, a busy machine would make every rate lower.
const CATCH_UP: Duration = Duration::from_millis(50);

/// A fixed rate that any number of threads share.
#[derive(Debug)]
pub struct Pace {
    bytes_per_second: f64,
    /// When everything that was let through is due.
    due: Mutex<Instant>,
}

impl Pace {
    /// So many bytes per second; 0 is no limit.
    pub fn new(bytes_per_second: u64) -> Pace {
        Pace { bytes_per_second: bytes_per_second as f64, due: Mutex::new(Instant::now()) }
    }

    /// Waits until `bytes` more are due.
    pub fn pass(&self, bytes: usize) {
        if self.bytes_per_second > 0.0 {
            let now = Instant::now();
            thread::sleep(self.reserve(bytes, now).saturating_duration_since(now));
        }
    }

    /// When `bytes` more are due, behind all that were asked for before.
    fn reserve(&self, bytes: usize, now: Instant) -> Instant {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        let late = now.checked_sub(CATCH_UP).unwrap_or(now);
        *due = (*due).max(late) + Duration::from_secs_f64(bytes as f64 / self.bytes_per_second);
        *due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_due_one_after_the_other_and_idle_time_is_not_saved_up() {
        let pace = Pace::new(1000);
        let start = Instant::now() + Duration::from_secs(10);
        let due = |bytes, at: Duration| pace.reserve(bytes, start + at) + CATCH_UP - start;
        assert_eq!(due(500, Duration::ZERO), Duration::from_millis(500));
        assert_eq!(due(500, Duration::ZERO), Duration::from_millis(1000));
        assert_eq!(due(500, Duration::from_secs(9)), Duration::from_millis(9500));
    }

    #[test]
    fn without_a_rate_nothing_waits() {
        let began = Instant::now();
        Pace::new(0).pass(usize::MAX);
        assert!(began.elapsed() < Duration::from_secs(5));
    }
}

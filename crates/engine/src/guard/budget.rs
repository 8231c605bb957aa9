//! Log lines about strangers: they must not fill a disk.

use std::time::{Duration, Instant};

/// How many lines there may be about one kind of thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineBudgetLimits {
    /// Lines in one interval; default 10.
    pub most: u32,
    /// Length of an interval; default 10 s.
    pub interval: Duration,
}

impl Default for LineBudgetLimits {
    fn default() -> Self {
        Self { most: 10, interval: Duration::from_secs(10) }
    }
}

/// Lets some lines through and counts the others, so that the next line can tell of them.
#[derive(Debug, Default)]
pub struct LineBudget {
    limits: LineBudgetLimits,
    began: Option<Instant>,
    written: u32,
    left_out: u64,
}

impl LineBudget {
    /// Nothing was written yet.
    pub fn new(limits: LineBudgetLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Whether a line may be written now; if so, how many were left out since the last one.
    pub fn ask(&mut self, now: Instant) -> Option<u64> {
        let over = self.began.is_none_or(|began| now.saturating_duration_since(began) >= self.limits.interval);
        if over {
            (self.began, self.written) = (Some(now), 0);
        }
        if self.written >= self.limits.most {
            self.left_out += 1;
            return None;
        }
        self.written += 1;
        Some(std::mem::take(&mut self.left_out))
    }
}

//! Lines that do not end: a byte every twenty seconds keeps a connection busy for ever.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// How fast a line, and a handshake, has to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineLimits {
    /// From its first byte to its end; default 20 s.
    pub grace: Duration,
    /// Beyond that so many bytes buy a second more; default 1024.
    pub bytes_per_second: u32,
    /// From the beginning of a handshake, which is the reply to AUTH, to its end; default 30 s.
    pub handshake: Duration,
}

impl Default for LineLimits {
    fn default() -> Self {
        Self { grace: Duration::from_secs(20), bytes_per_second: 1024, handshake: Duration::from_secs(30) }
    }
}

/// Watches the line that is coming; one per connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SlowLine {
    started: Option<Instant>,
    bytes: usize,
}

impl SlowLine {
    /// Bytes have come: `pending` of them, with those before, are a line without an end yet; `ended` says whether a line ended among them.
    pub fn fed(&mut self, pending: usize, ended: bool, now: Instant) {
        self.bytes = pending;
        self.started = match self.started {
            _ if pending == 0 => None,
            Some(before) if !ended => Some(before),
            _ => Some(now),
        };
    }

    /// When the line that is coming has to be complete; never while none is.
    pub fn deadline(&self, limits: &LineLimits) -> Option<Instant> {
        // No line has so many bytes; a clock could not be set to more.
        let bytes = self.bytes.min(1 << 24) as u64;
        let bought = Duration::from_secs(bytes) / limits.bytes_per_second.max(1);
        self.started.map(|at| at + limits.grace + bought)
    }

    /// Whether it should have been complete by now.
    pub fn is_too_slow(&self, limits: &LineLimits, now: Instant) -> bool {
        self.deadline(limits).is_some_and(|deadline| now >= deadline)
    }
}

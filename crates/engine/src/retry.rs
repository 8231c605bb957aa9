//! When a failed attempt is worth another, and when it is not.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::fault::Fault;

/// How often and how fast failed attempts are repeated.
///
/// The budget counts attempts *without progress*: an attempt that brought new verified or durable
/// bytes starts it anew, so that a very long file does not die of many short cuts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// Attempts in all, the first included; at least 1; default 5.
    pub attempts: u32,
    /// Attempts when the data were wrong (checksum mismatch, source changed); default 3.
    pub integrity_attempts: u32,
    /// First wait; default 1 s.
    pub base: Duration,
    /// Longest wait; default 60 s. A longer wait demanded by the fault itself is honoured.
    pub cap: Duration,
    /// Part of the wait that is random, 0 to 1; default 0.5.
    pub jitter: f64,
}

/// What to do about a failed attempt.
#[derive(Debug)]
pub enum Decision {
    /// Try again, not before this has passed.
    Again {
        /// Time to wait.
        after: Duration,
    },
    /// The end; the fault says whether it was permanent or exhausted its retries.
    GiveUp(Fault),
}

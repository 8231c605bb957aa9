//! How the machine works: sizes, limits, patience.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::retry::RetryPolicy;
use crate::tune::{Setting, TuneInput, Tuning, small_limit};

/// When a session makes too little progress.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StallPolicy {
    /// Length of the window; default 60 s.
    pub window: Duration,
    /// Fewest bytes a moving session must move in a window; default 4096.
    pub min_bytes: u64,
    /// Longest silence while verifying, comparing or working without data; default 10 min.
    pub quiet: Duration,
    /// Longest time for opening a session; default 2 min.
    pub open: Duration,
}

impl Default for StallPolicy {
    fn default() -> Self {
        Self {
            window: Duration::from_secs(60),
            min_bytes: 4096,
            quiet: Duration::from_secs(600),
            open: Duration::from_secs(120),
        }
    }
}

/// How the machine works.
#[derive(Debug, Clone)]
pub struct TransferOptions {
    /// Sessions at once; at least 1; default 4.
    pub concurrency: u32,
    /// Small items in flight for each session; automatic (default) means by item size and round-trip time.
    pub pipeline: Setting<u32>,
    /// Longest round-trip time of the control connections, when measured.
    pub rtt: Option<Duration>,
    /// Items up to this many bytes are pipelined, larger ones run one at a time; default 16 MiB.
    pub small_limit: u64,
    /// Items held above which [`super::TransferMachine::wants_more`] says no; default 4096.
    pub queue_limit: usize,
    /// When failed attempts are repeated.
    pub retry: RetryPolicy,
    /// When a session is given up as stalled.
    pub stall: StallPolicy,
    /// Seed of the jitter; the same seed gives the same waits.
    pub seed: u64,
}

impl TransferOptions {
    /// Options that follow the first choices; the depth of pipelines stays automatic unless it was
    /// fixed or a peer takes one command at a time.
    pub fn tuned(input: &TuneInput, tuning: &Tuning) -> Self {
        let pipeline = match input.fixed.pipeline {
            Setting::Auto if input.can_pipeline => Setting::Auto,
            _ => Setting::Fixed(tuning.pipeline.value),
        };
        Self {
            concurrency: tuning.concurrency.value,
            pipeline,
            rtt: input.control_rtt,
            small_limit: small_limit(input.control_rtt),
            ..Self::default()
        }
    }
}

impl Default for TransferOptions {
    fn default() -> Self {
        Self {
            concurrency: 4,
            pipeline: Setting::Auto,
            rtt: None,
            small_limit: 16 << 20,
            queue_limit: 4096,
            retry: RetryPolicy::default(),
            stall: StallPolicy::default(),
            seed: 0,
        }
    }
}

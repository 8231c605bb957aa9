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
    /// Fewest bytes a moving session must move in a window, where an end tells of them; default 4096.
    pub min_bytes: u64,
    /// Longest silence while verifying, comparing or working without data, and where no end tells of moved bytes; default
    /// 10 min.
    pub quiet: Duration,
    /// Longest time for opening a session; default 2 min.
    pub open: Duration,
    /// How often sessions are looked at that others wait for with nothing else to do; default 10 s.
    pub slow: Duration,
}

impl Default for StallPolicy {
    fn default() -> Self {
        Self {
            window: Duration::from_secs(60),
            min_bytes: 4096,
            quiet: Duration::from_secs(600),
            open: Duration::from_secs(120),
            slow: Duration::from_secs(10),
        }
    }
}

/// How large files are moved in parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chunking {
    /// Bytes of a chunk, a multiple of `leaf`; at the tail of a run parts get shorter, down to one leaf. Default 128 MiB.
    pub chunk: u64,
    /// Bytes of a leaf, a power of two; default 16 MiB. Files below [`Self::PARTS`] of them have shorter ones.
    pub leaf: u64,
    /// Files of at least this many bytes are moved in chunks; default 256 MiB.
    pub threshold: u64,
    /// Chunks that each session has to move, so that one follows the other without a pause; at least 1, default 2. Those that
    /// have moved and wait for the destination's word are not counted.
    pub ahead: u32,
}

impl Default for Chunking {
    fn default() -> Self {
        Self { chunk: 128 << 20, leaf: 16 << 20, threshold: 256 << 20, ahead: 2 }
    }
}

impl Chunking {
    /// Most leaves of a file: what one reply can name.
    pub const MOST_LEAVES: u64 = 65_536;
    /// Longest leaf, bytes: with it a file has 64 TiB at most.
    pub const LONGEST_LEAF: u64 = 1 << 30;

    /// Leaves that a sender hashes in step.
    pub const IN_STEP: u64 = 8;
    /// Leaves that a file has at least, if they can be short enough: what the last session is still busy with when the
    /// others have nothing left is a small part of the file.
    pub const PARTS: u64 = 256;
    /// Shortest leaf, bytes, that a file gets for having few: a link of 20 Mbit/s, as the slowest of many nodes may have, is
    /// busy with it for less than half a second at the end.
    pub const SHORTEST_LEAF: u64 = 1 << 20;

    /// Bytes of a leaf of a file of `size` bytes: `leaf`, or less of a file that it cuts into fewer than [`Self::PARTS`], or
    /// the next power of two that cuts it into [`Self::MOST_LEAVES`]; `None` for files that no leaf is long enough for.
    pub fn leaf_of(self, size: u64) -> Option<u64> {
        let usual = (size / Self::PARTS).max(Self::SHORTEST_LEAF).min(self.leaf);
        let least = size.div_ceil(Self::MOST_LEAVES).max(usual).checked_next_power_of_two()?;
        (least <= Self::LONGEST_LEAF.max(self.leaf)).then_some(least)
    }

    /// The same within its bounds: what is not a power of two or a multiple is rounded up.
    pub fn normal(self) -> Self {
        let leaf = self.leaf.clamp(1, 1 << 62).next_power_of_two();
        let chunk = self.chunk.max(leaf).checked_next_multiple_of(leaf).unwrap_or(leaf);
        Self { chunk, leaf, threshold: self.threshold.max(1), ahead: self.ahead.max(1) }
    }
}

/// Large files that more sessions at a time would make slower.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alone {
    /// Files, or what is left of one in parts, of at least this many bytes.
    pub least: u64,
    /// Most sessions that move such; at least 1.
    pub sessions: u32,
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
    /// Whether and how large files are moved in parts; default `None`: whole.
    pub chunking: Option<Chunking>,
    /// Whether sessions may differ much in speed from the start, because an end has several nodes; default no.
    pub unequal: bool,
    /// Whether a session gets a whole large file while it moves another: for sessions of about the same speed, to ends that take
    /// commands ahead and tell all about a file when it has moved; default no.
    pub whole_ahead: bool,
    /// How long a part may last, by what its session has shown to be able to; before that it is a quarter of a chunk. What a part
    /// tells of the path comes at its end, and a session that is given back goes then. Default `None`: as long as a chunk does.
    pub brief: Option<Duration>,
    /// Large files that more sessions at a time would make slower. Default `None`: none would be.
    pub alone: Option<Alone>,
    /// Most bytes per second, as a mean: what begins is paid off before more begins. Default `None`: no bound.
    pub max_rate: Option<u64>,
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
            chunking: None,
            unequal: false,
            whole_ahead: false,
            brief: None,
            alone: None,
            max_rate: None,
            queue_limit: 4096,
            retry: RetryPolicy::default(),
            stall: StallPolicy::default(),
            seed: 0,
        }
    }
}

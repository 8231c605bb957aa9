//! First choices for concurrency, parallelism, pipelining and buffers, each with its reason.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A value the user fixed, or left to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Setting<T> {
    /// Ours to choose.
    #[default]
    Auto,
    /// The user's word.
    Fixed(T),
}

/// A choice and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Choice<T> {
    /// What was chosen.
    pub value: T,
    /// Why, for people.
    pub reason: String,
}

/// What is known before the first byte moves.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TuneInput {
    /// Files known so far; 0 when nothing is known.
    pub files: u64,
    /// Bytes known so far.
    pub bytes: u64,
    /// Whether more files may come.
    pub more_to_come: bool,
    /// Round-trip time of the *data* path, when known.
    pub rtt: Option<Duration>,
    /// Round-trip time of the control path, when known.
    pub control_rtt: Option<Duration>,
    /// Most sessions the ends accept.
    pub max_sessions: Option<u32>,
    /// Most data channels for each session (a peer without MODE E has 1).
    pub max_parallelism: Option<u32>,
    /// Whether the peers take commands ahead of replies.
    pub can_pipeline: bool,
    /// Processor cores of the smaller end, when known.
    pub cores: Option<u32>,
    /// What the user fixed.
    pub fixed: Fixed,
}

/// What the user fixed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fixed {
    /// Files at once.
    pub concurrency: Setting<u32>,
    /// Data channels for each file.
    pub parallelism: Setting<u32>,
    /// Commands in flight for each session.
    pub pipeline: Setting<u32>,
    /// Socket buffer of each data channel, bytes.
    pub buffer: Setting<u64>,
}

/// The choices.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tuning {
    /// Files at once.
    pub concurrency: Choice<u32>,
    /// Data channels for each file.
    pub parallelism: Choice<u32>,
    /// Commands in flight for each session.
    pub pipeline: Choice<u32>,
    /// Socket buffer of each data channel, bytes; `None` leaves it to the kernel.
    pub buffer: Choice<Option<u64>>,
}

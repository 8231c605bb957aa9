//! First choices for concurrency, parallelism, pipelining and buffers, each with its reason.
//!
//! A buffer set by hand switches the kernel's auto-tuning off and is capped by the system's limit: the kernel keeps that choice unless the
//! user takes it.

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

impl<T: Copy> Setting<T> {
    /// The user's word, if there is one.
    pub fn fixed(&self) -> Option<T> {
        match self {
            Self::Auto => None,
            Self::Fixed(value) => Some(*value),
        }
    }
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

impl<T> Choice<T> {
    fn new(value: T, reason: impl Into<String>) -> Self {
        Self { value, reason: reason.into() }
    }

    fn by_user(value: T) -> Self {
        Self::new(value, "set by the user")
    }
}

/// Bytes per second assumed where nothing was measured: 1 Gbit/s (GridCopy §5).
pub(crate) const ASSUMED_RATE: f64 = 125e6;
/// Files below this are bound by commands, not by bytes.
const SMALL: u64 = 1 << 20;
/// Files below this are over before the next command has been read: deep pipelines keep the servers busy.
const TINY: u64 = 64 << 10;
/// Files below this do not live long enough for several channels to pay.
const SINGLE_CHANNEL: u64 = 8 << 20;

/// Chooses before the first byte moves.
pub fn choose(input: &TuneInput) -> Tuning {
    Tuning {
        concurrency: concurrency(input),
        pipeline: pipeline(input),
        buffer: buffer(input),
        parallelism: parallelism(input),
    }
}

fn mean_size(input: &TuneInput) -> u64 {
    input.bytes / input.files.max(1)
}

fn concurrency(input: &TuneInput) -> Choice<u32> {
    if let Setting::Fixed(value) = input.fixed.concurrency {
        return Choice::by_user(value.max(1));
    }
    if input.files <= 1 && !input.more_to_come {
        return Choice::new(1, "one file");
    }
    let far = input.rtt.is_some_and(|rtt| rtt >= Duration::from_millis(20));
    let near = input.control_rtt.is_some_and(|rtt| rtt < Duration::from_millis(2));
    let unknown = input.files == 0;
    let (wanted, why) = if unknown && near {
        (4, "sizes not known yet: as many as small files at hand want")
    } else if unknown {
        (8, "sizes not known yet: as many as small files want")
    } else if mean_size(input) < SMALL && near {
        (4, "small files at hand: more sessions would only wait for each other's processors")
    } else if mean_size(input) < SMALL {
        (8, "small files: the time goes into commands and file systems")
    } else if far {
        (8, "a distant peer: several files fill the path while others begin and end")
    } else {
        (4, "some files at once hide the beginnings and ends of others")
    };
    let mut choice = Choice::new(wanted, why);
    if !input.more_to_come && input.files < u64::from(wanted) {
        choice = Choice::new(input.files as u32, "one session for each file");
    }
    if let Some(limit) = input.max_sessions.filter(|limit| *limit < choice.value) {
        choice = Choice::new(limit.max(1), "the most that the ends accept");
    }
    choice
}

fn parallelism(input: &TuneInput) -> Choice<u32> {
    if let Setting::Fixed(value) = input.fixed.parallelism {
        return Choice::by_user(value.max(1));
    }
    let known = input.files > 0;
    let choice = match input.rtt {
        _ if known && mean_size(input) < SINGLE_CHANNEL => Choice::new(1, "files too small for more than one channel"),
        None => Choice::new(4, "distance unknown: four channels"),
        // With one, every byte goes from one processor's cache to another's (docs/design/data-path.md).
        Some(rtt) if rtt < Duration::from_millis(2) => {
            Choice::new(2, "a near peer: two channels keep two processors busy at each end")
        }
        Some(rtt) if rtt < Duration::from_millis(20) => {
            Choice::new(2, "a short path: two channels start faster and survive a loss")
        }
        Some(rtt) if rtt < Duration::from_millis(150) => {
            Choice::new(4, "a long path: four channels start faster and lose an eighth, not half, by a loss")
        }
        Some(_) => Choice::new(8, "a very long path: eight channels recover from losses in time"),
    };
    match input.max_parallelism.filter(|limit| *limit < choice.value) {
        Some(limit) => Choice::new(limit.max(1), "the most that the peers can"),
        None => choice,
    }
}

fn pipeline(input: &TuneInput) -> Choice<u32> {
    if let Setting::Fixed(value) = input.fixed.pipeline {
        return Choice::by_user(value.max(1));
    }
    if !input.can_pipeline {
        return Choice::new(1, "a peer wants commands one by one");
    }
    let depth = pipeline_depth(input.control_rtt, mean_size(input));
    let why = match input.control_rtt {
        None => "distance unknown",
        Some(_) => "enough small files in flight to fill a round trip",
    };
    Choice::new(depth, why)
}

fn buffer(input: &TuneInput) -> Choice<Option<u64>> {
    match input.fixed.buffer {
        Setting::Fixed(value) => Choice::by_user(Some(value)),
        Setting::Auto => Choice::new(None, "left to the kernel, which grows it as needed"),
    }
}

/// How many files of `mean_size` bytes should be in flight on one session: enough to hide a round trip, 2 to 64, or to 256 of
/// tiny ones, of which a pack has two dozen.
///
/// Small files go 32 deep however near the servers are: one system call then carries the commands, replies and data of
/// several (a quarter of the time of 10,000 files of 10 KiB on one host, against a depth of 8).
pub fn pipeline_depth(rtt: Option<Duration>, mean_size: u64) -> u32 {
    // 0.2 ms for opening, closing and renaming one file.
    let seconds = mean_size as f64 / ASSUMED_RATE + 0.0002;
    let depth = (rtt.unwrap_or_default().as_secs_f64() / seconds).ceil() as u32 + 1;
    let (least, most) = match mean_size {
        size if size < TINY => (60, 256),
        size if size < SMALL => (32, 64),
        _ => (2, 64),
    };
    depth.clamp(least, most)
}

/// Items up to this many bytes are worth pipelining: what the path carries in two round trips, 16 MiB at least.
pub fn small_limit(rtt: Option<Duration>) -> u64 {
    let carried = 2.0 * ASSUMED_RATE * rtt.unwrap_or_default().as_secs_f64();
    (carried as u64).max(16 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(files: u64, size: u64, rtt_ms: Option<u64>) -> TuneInput {
        let rtt = rtt_ms.map(Duration::from_millis);
        TuneInput { files, bytes: files * size, rtt, control_rtt: rtt, can_pipeline: true, ..TuneInput::default() }
    }

    #[test]
    fn distance_asks_for_channels_and_small_files_for_sessions_and_depth() {
        let near = choose(&input(1, 1 << 32, Some(0)));
        assert_eq!((near.concurrency.value, near.parallelism.value), (1, 2));
        let far = choose(&input(1, 1 << 32, Some(75)));
        assert_eq!((far.concurrency.value, far.parallelism.value), (1, 4));
        let many = choose(&input(10_000, 10_240, Some(75)));
        assert_eq!((many.concurrency.value, many.parallelism.value), (8, 1));
        assert_eq!(many.pipeline.value, 256);
        assert_eq!(choose(&input(10_000, 10_240, Some(0))).pipeline.value, 60);
    }

    #[test]
    fn limits_bind_what_we_choose_and_the_user_overrides_both() {
        let mut limited = input(100, 1 << 30, Some(200));
        limited.max_sessions = Some(2);
        limited.max_parallelism = Some(1);
        limited.can_pipeline = false;
        let tuning = choose(&limited);
        let values = |t: &Tuning| (t.concurrency.value, t.parallelism.value, t.pipeline.value, t.buffer.value);
        assert_eq!(values(&tuning), (2, 1, 1, None));
        limited.fixed = Fixed {
            concurrency: Setting::Fixed(7),
            parallelism: Setting::Fixed(9),
            pipeline: Setting::Fixed(3),
            buffer: Setting::Fixed(1 << 20),
        };
        let tuning = choose(&limited);
        assert_eq!(values(&tuning), (7, 9, 3, Some(1 << 20)));
        assert_eq!(tuning.buffer.reason, "set by the user");
    }

    #[test]
    fn files_that_end_within_two_round_trips_count_as_small() {
        assert_eq!(small_limit(None), 16 << 20);
        assert_eq!(small_limit(Some(Duration::from_millis(200))), 50_000_000);
    }

    #[test]
    fn no_more_sessions_than_files_once_all_are_known() {
        let mut three = input(3, 1 << 30, Some(0));
        assert_eq!(choose(&three).concurrency.value, 3);
        three.more_to_come = true;
        assert_eq!(choose(&three).concurrency.value, 4);
    }
}

//! Every number that is shown.

use serde::{Deserialize, Serialize};

use crate::listing::path_text;
use crate::plan::ItemId;

/// What an item that is under way is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemState {
    /// Handed to a session, its turn has not come.
    Queued,
    /// Moving bytes.
    Moving,
    /// Computing or comparing checksums.
    Verifying,
    /// Waiting for its next attempt.
    Waiting,
}

/// One item that is under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActiveItem {
    /// Its number.
    pub item: ItemId,
    /// Its source path.
    #[serde(with = "path_text")]
    pub source: Vec<u8>,
    /// What it does.
    pub state: ItemState,
    /// Bytes arrived, each counted once.
    pub bytes_done: u64,
    /// Bytes in all, when known.
    pub bytes_total: Option<u64>,
    /// Attempt under way, or the next one.
    pub attempt: u32,
    /// Bytes of those done that an earlier run had brought.
    #[serde(default)]
    pub bytes_resumed: u64,
}

/// Every number shown, at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Seconds since the start.
    pub elapsed: f64,
    /// Files copied.
    pub files_done: u64,
    /// Files found to copy or compare so far, skipped ones not included.
    pub files_total: u64,
    /// Files of `files_total` that failed or were left undone.
    pub files_failed: u64,
    /// Items (files, links, directories) left as they were.
    pub skipped: u64,
    /// Items failed, cancelled ones not included.
    pub failed: u64,
    /// Items that a cancellation left undone.
    pub cancelled: u64,
    /// Directories made.
    pub directories_done: u64,
    /// Symbolic links made.
    pub symlinks_done: u64,
    /// Bytes arrived, each counted once even across restarts.
    pub bytes_done: u64,
    /// Bytes known so far; never less than `bytes_done`.
    pub bytes_total: u64,
    /// Files whose size nobody tells, not yet ended; while there are any, `bytes_total` is a lower bound.
    pub unknown_sizes: u64,
    /// Whether the totals are final.
    pub listing_complete: bool,
    /// Bytes per second over the window, as moved by the network.
    pub rate: f64,
    /// Seconds to go; only when the totals are final and the rate is known.
    pub eta: Option<f64>,
    /// Percent done, 0 to 100; only when the totals are final.
    pub percent: Option<f64>,
    /// Fault events so far, those that were cured included.
    pub faults: u64,
    /// Attempts repeated.
    pub retries: u64,
    /// Bytes moved that did not count in the end.
    pub bytes_wasted: u64,
    /// Bytes that earlier runs had brought; part of `bytes_done`.
    #[serde(default)]
    pub bytes_resumed: u64,
    /// Bytes of holes in the sources that are holes in the copies; part of `bytes_done`, never moved.
    #[serde(default)]
    pub bytes_holes: u64,
    /// Bytes of holes in the sources that were moved as zeros, because an end cannot keep them.
    #[serde(default)]
    pub bytes_filled: u64,
    /// Parts of files that differed from the source and were sent again.
    #[serde(default)]
    pub leaves_resent: u64,
    /// Files proven.
    pub verified: u64,
    /// Files of `verified` that the destination read back from its storage, not from memory.
    #[serde(default)]
    pub read_from_disk: u64,
    /// Files that could not be proven though it was wanted.
    pub unverified: u64,
    /// Sessions open.
    pub sessions: u32,
    /// Items under way.
    pub active: Vec<ActiveItem>,
}

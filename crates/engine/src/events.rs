//! The one event model: what `--json` prints, one event a line, and what the human display is made from.
//!
//! Field names are stable: fields are added, never renamed. The driver adds the wall-clock time.

use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::listing::path_text;
use crate::plan::{Action, Item, ItemId, PlanTotals, SkipReason};
use crate::progress::{Snapshot, Verification};
use crate::summary::{Failure, Summary};
use crate::transfer::Slot;
use crate::tune::Tuning;

/// Something that happened in a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// One step of a plan (`--dry-run`).
    Plan(Action),
    /// What the plan adds up to (`--dry-run`, last).
    PlanTotals(PlanTotals),
    /// The first choices and their reasons.
    Tuned(Tuning),
    /// Every source is listed: the totals are final.
    ListingDone {
        /// Files in all.
        files: u64,
        /// Bytes in all.
        bytes: u64,
    },
    /// A session is ready.
    SessionReady {
        /// Which.
        slot: Slot,
    },
    /// A session could not be opened, or broke.
    SessionLost {
        /// Which.
        slot: Slot,
        /// Why.
        fault: Fault,
        /// Seconds until it is opened again; `None` when it is given up.
        retry_in: Option<f64>,
    },
    /// An attempt at a file began.
    Started {
        /// The item.
        item: ItemId,
        /// Its source path.
        #[serde(with = "path_text")]
        source: Vec<u8>,
        /// Its destination path.
        #[serde(with = "path_text")]
        destination: Vec<u8>,
        /// Its bytes, when known.
        size: Option<u64>,
        /// The session.
        slot: Slot,
        /// Which attempt.
        attempt: u32,
        /// Bytes that earlier attempts brought.
        resumed: u64,
    },
    /// All numbers, now and then.
    Progress(Snapshot),
    /// An item is complete.
    ItemDone {
        /// The item.
        #[serde(flatten)]
        item: Item,
        /// What was done: `copied`, `linked`, `directory_made`.
        outcome: Outcome,
        /// Bytes of the item.
        bytes: u64,
        /// Whether it is proven.
        verification: Verification,
        /// Attempts it took.
        attempts: u32,
        /// Seconds from its first start.
        seconds: f64,
    },
    /// An item needed no work.
    ItemSkipped {
        /// The item.
        item: ItemId,
        /// Its source path.
        #[serde(with = "path_text")]
        source: Vec<u8>,
        /// Why.
        reason: SkipReason,
    },
    /// An item failed for good.
    ItemFailed(Failure),
    /// An attempt failed and another follows.
    Retry {
        /// The item.
        item: ItemId,
        /// Its source path.
        #[serde(with = "path_text")]
        source: Vec<u8>,
        /// Why.
        fault: Fault,
        /// The attempt that failed.
        attempt: u32,
        /// Seconds until the next.
        retry_in: f64,
        /// Bytes that need not be moved again.
        kept: u64,
    },
    /// The end.
    Summary(Summary),
}

/// What was done for an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// A file was copied.
    Copied,
    /// A link was made.
    Linked,
    /// A directory was made.
    DirectoryMade,
    /// The attributes of a directory were set.
    AttributesSet,
}

impl Event {
    /// The event as one JSON line without its end of line.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("events hold only what JSON can carry")
    }
}

//! What an orchestrator tells of a task.

use serde::{Deserialize, Serialize};

use super::Lease;
use crate::fault::Fault;
use crate::listing::path_text;
use crate::progress::Verification;
use crate::task::ItemKind;

/// What has happened since the report before. The service takes it whole, in one transaction, or not at all.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// The right to report.
    pub lease: Lease,
    /// Counts this lease's reports, from 1: one that comes twice is taken once.
    pub sequence: u64,
    /// What became of items, in order.
    pub changes: Vec<Change>,
    /// What is worth telling the user, in order.
    pub occurrences: Vec<Occurrence>,
    /// How fast it goes; `None`: unknown.
    pub gauge: Option<Gauge>,
    /// That the work on it has ended; the last report of a lease.
    pub end: Option<End>,
}

/// Which item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// What it is.
    pub kind: ItemKind,
    /// Path at the source's server, or the path deleted.
    #[serde(with = "path_text")]
    pub source: Vec<u8>,
    /// Path at the destination's server; empty for deletions.
    #[serde(with = "path_text")]
    pub destination: Vec<u8>,
    /// Whether it is deleted at the destination because the source does not have it (mirroring); then `source` is empty.
    pub extra: bool,
}

impl Subject {
    /// The path that tells it from the others of its task.
    pub fn key_path(&self) -> &[u8] {
        if self.destination.is_empty() { &self.source } else { &self.destination }
    }
}

/// What became of an item.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum Change {
    /// It is to be done. Repeated for an item that is known, it changes nothing.
    Found {
        /// Which.
        subject: Subject,
        /// Its bytes, when known.
        size: Option<u64>,
    },
    /// Done.
    Done {
        /// Which.
        subject: Subject,
        /// Bytes of it.
        bytes: u64,
        /// How it was proven.
        verification: Verification,
    },
    /// The destination has it already.
    UpToDate {
        /// Which.
        subject: Subject,
    },
    /// An attempt failed, and another follows.
    Retrying {
        /// Which.
        subject: Subject,
    },
    /// It could not be read, and is left out as the user allowed.
    SkippedError {
        /// Which.
        subject: Subject,
        /// Why.
        fault: Fault,
    },
    /// It failed for good.
    Failed {
        /// Which.
        subject: Subject,
        /// Why.
        fault: Fault,
    },
}

impl Change {
    /// The item that changed.
    pub fn subject(&self) -> &Subject {
        match self {
            Self::Found { subject, .. }
            | Self::Done { subject, .. }
            | Self::UpToDate { subject }
            | Self::Retrying { subject }
            | Self::SkippedError { subject, .. }
            | Self::Failed { subject, .. } => subject,
        }
    }
}

/// Something worth an entry among the task's events.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "occurrence", rename_all = "snake_case")]
pub enum Occurrence {
    /// Work began, with these choices.
    Started {
        /// Files at once.
        concurrency: u32,
        /// Data channels for each.
        parallelism: u32,
        /// Small files in flight.
        pipelining: u32,
    },
    /// Something went wrong; the task goes on unless items fail for it. Counted among the task's faults.
    Faulted {
        /// What.
        fault: Fault,
        /// The path it happened to; empty: none.
        #[serde(with = "path_text")]
        path: Vec<u8>,
        /// Seconds until it is tried again; `None`: it is not.
        retry_in: Option<f64>,
    },
    /// Of a directory that is followed, everything is done that was there when it was looked at first.
    CaughtUp {
        /// How many files that were.
        files: u64,
    },
    /// Deletion of what the source does not have was left out, because a listing was not whole.
    ExtraKept {
        /// The directory that could not be read.
        #[serde(with = "path_text")]
        directory: Vec<u8>,
    },
    /// Something that the source does not have stays: its name differs from one that the source has only in case or in the form of its
    /// letters, so that it may be that one's copy.
    TwinKept {
        /// Its path at the destination.
        #[serde(with = "path_text")]
        path: Vec<u8>,
    },
}

/// How fast it goes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Gauge {
    /// Bytes of files that are not complete, moved and counted.
    pub bytes_in_flight: u64,
    /// Bytes per second of late.
    pub rate: f64,
}

/// How the work on a task ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "end", rename_all = "snake_case")]
pub enum End {
    /// Everything was looked at, and every item is in a final state.
    Finished,
    /// Because it was told to stop. What is done is done.
    Stopped,
    /// Something temporary is in the way: the rest is to be tried again.
    Again {
        /// What is in the way.
        fault: Fault,
        /// Shortest useful wait, seconds.
        after: f64,
    },
    /// It cannot be done.
    Impossible {
        /// Why.
        fault: Fault,
    },
    /// A credential is missing or has expired: only the user can help.
    NeedsCredential {
        /// Which, and why.
        fault: Fault,
    },
}

//! What the service and its orchestrators say to each other.
//!
//! An orchestrator asks ([`Request`]), the service answers ([`Response`]); so an orchestrator needs outbound
//! connections only, and the same messages go over memory inside one process or over HTTPS. A running task is held by a
//! [`Lease`]: whoever has a newer epoch has taken it over, and what the older one reports is refused whole.

mod operation;
mod order;
mod report;
#[cfg(test)]
mod tests;
pub mod waiting;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

pub use operation::{Bounds, Draft, Entry, EntryKind, Operation, OperationKind, OperationResult};
pub use order::{Assignment, Credential, Server, Site, Work, WorkItem};
pub use report::{Change, End, Gauge, Occurrence, Report, Subject};

use crate::fault::Fault;

/// The right to work on a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Lease {
    /// The task.
    pub task: Uuid,
    /// How often it was given out; only the newest counts.
    pub epoch: u64,
}

/// What an orchestrator asks.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case")]
pub enum Request {
    /// The orchestrator begins, and works on nothing: whatever it held in an earlier life is anybody's. Answered with [`Response::Taken`].
    Begin {
        /// Who begins.
        orchestrator: Uuid,
    },
    /// What is there to do? Answered with [`Response::Orders`], at the latest after [`POLL_SECONDS`]. Renews all leases named.
    Poll {
        /// Who asks: one number for each orchestrator that runs; it may keep it when it is started again.
        orchestrator: Uuid,
        /// Tasks that it would begin now.
        free: u32,
        /// What it works on.
        running: Vec<Lease>,
        /// What of that ends already, and need not be told to.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        ending: Vec<Lease>,
    },
    /// What the user submitted, in pages. Answered with [`Response::Items`].
    Items {
        /// The task.
        lease: Lease,
        /// Only items with a larger number; 0 begins.
        after: u64,
    },
    /// What of the task is final already, in pages. Answered with [`Response::Finished`].
    Finished {
        /// The task.
        lease: Lease,
        /// Only what follows this mark of the page before; 0 begins.
        after: u64,
    },
    /// What has happened. Answered with [`Response::Taken`] once it is durable.
    Report(Box<Report>),
    /// What an operation came to. Answered with [`Response::Taken`].
    Answer {
        /// The operation.
        operation: Uuid,
        /// What came of it.
        result: Result<OperationResult, Fault>,
    },
}

/// Longest time that a poll without orders is kept waiting, seconds.
pub const POLL_SECONDS: u64 = 5;

/// Time for which a lease holds unless it is renewed, seconds: four polls. So long a task rests when its orchestrator dies.
pub const LEASE_SECONDS: u64 = 20;

/// What the service answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum Response {
    /// Things to do; may be none.
    Orders {
        /// In the order in which they are to begin.
        orders: Vec<Order>,
    },
    /// Submitted items, by number; an empty page ends them.
    Items {
        /// The page.
        items: Vec<WorkItem>,
    },
    /// The keys ([`key`]) of items in a final state; an empty page ends them.
    Finished {
        /// Keys.
        keys: Vec<Uuid>,
        /// Those of them that failed, or were left out because they could not be read.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        failed: Vec<Uuid>,
        /// The mark with which to ask for the next page.
        next: u64,
    },
    /// It is done, durably.
    Taken,
    /// The lease is another's, or the task is over: whatever was asked has not been done. Work on it must end.
    LeaseLost {
        /// The lease named.
        lease: Lease,
    },
}

/// Something to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum Order {
    /// Begin a task.
    Run(Box<Assignment>),
    /// End work on a task early and orderly, and report [`End::Stopped`]: it was cancelled, paused, or given to another.
    Stop {
        /// The task.
        lease: Lease,
    },
    /// Carry out a single operation and answer.
    Operate(Box<Operation>),
    /// Use these sites for new sessions of a task: credentials were renewed, or servers came and went.
    Sites {
        /// The task.
        lease: Lease,
        /// The source, or where is deleted.
        source: Box<Site>,
        /// The destination; `None` for deletions.
        destination: Option<Box<Site>>,
    },
    /// From now on a task may move so many bytes per second.
    Rate {
        /// The task.
        lease: Lease,
        /// Bytes per second; `None`: no bound.
        most: Option<u64>,
    },
}

/// What tells an item from the others of its task: a digest (XXH3-128) of the path where it is copied to, or of the path
/// that is deleted. Not proof against somebody who makes two paths with one digest: they would only harm their own task.
pub fn key(subject: &Subject) -> Uuid {
    Uuid::from_u128(xxhash_rust::xxh3::xxh3_128_with_seed(subject.key_path(), u64::from(subject.extra)))
}

//! A task as the store keeps it.

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use whimbrel_engine::Fault;
use whimbrel_engine::dispatch::{Gauge, WorkItem};
use whimbrel_engine::listing::Timestamp;
use whimbrel_engine::task::{Counters, DeleteOptions, ItemKind, Status, TransferOptions};

use crate::endpoints::Want;
use crate::grid::Logins;

/// Whether a task copies or deletes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum TaskWork {
    /// It copies.
    Transfer(Box<TransferOptions>),
    /// It deletes.
    Delete(DeleteOptions),
}

impl TaskWork {
    /// Its name in the API and in stores.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Transfer(_) => "TRANSFER",
            Self::Delete(_) => "DELETE",
        }
    }
}

impl TaskWork {
    /// What is done with the sources, or with what is deleted.
    pub fn of_sources(&self) -> Want {
        match self {
            Self::Transfer(options) if !options.move_source => Want::Read,
            Self::Transfer(_) | Self::Delete(_) => Want::Write,
        }
    }
}

/// One end of a task, as it was when the task was submitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskEnd {
    /// The collection.
    pub collection: Uuid,
    /// What it was called.
    pub display_name: String,
    /// The account that the user chose.
    pub local_user: Option<String>,
    /// The collection's root at its servers, without a slash at its end: what paths in reports begin with.
    pub base: String,
    /// Directory that all items of this end lie in, if the user wanted it kept.
    pub base_path: Option<String>,
    /// What its servers are shown: stock servers promise less than ours.
    #[serde(default)]
    pub logins: Logins,
}

/// What was asked for; never changes but for `label` and `deadline`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wanted {
    /// Whose it is: an identity.
    pub owner: Uuid,
    /// What makes a repeated submission the same one.
    pub submission: Uuid,
    /// What is to be done.
    pub work: TaskWork,
    /// Where from, or where is deleted.
    pub source: TaskEnd,
    /// Where to; `None` for deletions.
    pub destination: Option<TaskEnd>,
    /// What the user calls it.
    pub label: Option<String>,
    /// When it expires.
    pub deadline: Timestamp,
    /// The mails wanted.
    pub notify: Notify,
    /// A digest of ends, paths and kind: two unfinished tasks of one owner never have the same.
    pub fingerprint: String,
}

impl Wanted {
    /// Whether it copies to servers that do not say when something is on their disks.
    pub fn is_not_durable(&self) -> bool {
        self.destination.as_ref().is_some_and(|end| end.logins.is_stock())
    }

    /// Its ends at servers that are shown a credential of its owner.
    pub fn grid_ends(&self) -> impl Iterator<Item = &TaskEnd> {
        std::iter::once(&self.source).chain(&self.destination).filter(|end| end.logins == Logins::Proxy)
    }
}

/// Which ends of a task its owner wants to hear of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools, reason = "three wishes of the Transfer API's documents")]
pub struct Notify {
    /// It succeeded.
    pub succeeded: bool,
    /// It failed.
    pub failed: bool,
    /// It waits for its owner.
    pub inactive: bool,
}

/// Why a task does not go on for now, or how it goes.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Condition {
    /// Waits for an orchestrator or for its turn.
    Queued,
    /// Well on its way.
    Running,
    /// Something is wrong; it is tried again.
    Troubled {
        /// What.
        fault: Fault,
    },
    /// Paused by its owner, a rule or an administrator.
    Paused {
        /// Their words.
        message: String,
        /// Whether a pause rule did it: then it goes on by itself when no rule holds any more.
        #[serde(default)]
        by_rule: bool,
        /// Whose managers hold it.
        #[serde(default)]
        held: Held,
    },
    /// Over.
    Over,
}

impl Condition {
    /// Whether managers let it wait.
    pub fn is_held(&self) -> bool {
        matches!(self, Self::Paused { held, .. } if held.message().is_some())
    }
}

/// The ends of a task whose managers let it wait, with their words: those of the one do not speak for the other.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Those of the source.
    pub source: Option<String>,
    /// Those of the destination.
    pub destination: Option<String>,
}

impl Held {
    /// What those say now who speak for these ends; `None`: they let it go on.
    pub fn set(&mut self, ends: Ends, words: Option<&str>) {
        for (is_theirs, end) in [(ends.source, &mut self.source), (ends.destination, &mut self.destination)] {
            if is_theirs {
                *end = words.map(str::to_owned);
            }
        }
    }

    /// The words of one that still holds.
    pub fn message(&self) -> Option<&str> {
        self.source.as_deref().or(self.destination.as_deref())
    }
}

/// Ends of a task that somebody speaks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ends {
    /// The source.
    pub source: bool,
    /// The destination.
    pub destination: bool,
}

impl Ends {
    /// Of the task's owner, or of who looks after both.
    pub const BOTH: Self = Self { source: true, destination: true };

    /// In the API's words; `None`: neither.
    pub fn name(self) -> Option<&'static str> {
        match (self.source, self.destination) {
            (true, true) => Some("BOTH"),
            (true, false) => Some("SOURCE"),
            (false, true) => Some("DESTINATION"),
            (false, false) => None,
        }
    }
}

/// A task.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Task {
    /// Its identity.
    pub id: Uuid,
    /// What was asked for.
    pub wanted: Wanted,
    /// When.
    pub requested: Timestamp,
    /// When it was over.
    pub completed: Option<Timestamp>,
    /// Where it stands.
    pub status: Status,
    /// Why it does not go on, or how it goes.
    pub condition: Condition,
    /// What its items add up to.
    pub counters: Counters,
    /// Fault events until now.
    pub faults: u64,
    /// How fast it goes; `None` when it does not run.
    pub gauge: Option<Gauge>,
    /// What failed it: the code and words of the event.
    pub fatal: Option<Fatal>,
    /// Who cancelled it.
    pub cancelled: Option<Cancelled>,
    /// Not before this time is it tried again.
    pub not_before: Option<Timestamp>,
    /// How often it was leased.
    pub epoch: u64,
    /// When it ran first.
    pub started: Option<Timestamp>,
    /// What its newest lease rests on: what its owner might do, and what the collections demanded, as one text to compare.
    pub basis: Option<String>,
}

impl Task {
    /// Whether copies were to be verified, and some of them could not be.
    pub fn is_unverified(&self) -> bool {
        let is_wanted = matches!(&self.wanted.work, TaskWork::Transfer(options) if options.verify);
        is_wanted && self.counters.bytes_checksummed < self.counters.bytes_transferred
    }

    /// What its servers do not promise of its copies.
    pub fn not_promised(&self) -> Vec<&'static str> {
        let durability = self.wanted.is_not_durable().then_some("durability");
        durability.into_iter().chain(self.is_unverified().then_some("verification")).collect()
    }
}

/// Who ended a task before its time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cancelled {
    /// An identity.
    pub by: Uuid,
    /// Their words; empty: none.
    pub message: String,
    /// Of which end they are a manager, in the API's words (`SOURCE`, `DESTINATION`, `BOTH`); `None`: the task is theirs.
    #[serde(default)]
    pub manager_of: Option<String>,
}

/// What failed a task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fatal {
    /// A code of events (`FILE_NOT_FOUND`).
    pub code: String,
    /// Words for people.
    pub description: String,
}

/// An entry of a task's events.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskEvent {
    /// When.
    pub time: Timestamp,
    /// A code (`STARTED`, `FILE_NOT_FOUND`).
    pub code: String,
    /// Words for people.
    pub description: String,
    /// JSON text or other words.
    pub details: String,
    /// Whether it is a fault.
    pub is_error: bool,
}

/// An item that was copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// Its place in the listing; the mark with which to ask for what follows.
    pub mark: u64,
    /// Path at the source's server.
    pub source: Vec<u8>,
    /// Path at the destination's server.
    pub destination: Vec<u8>,
    /// Bytes.
    pub size: u64,
    /// Algorithm and digest of the whole file, where one was made.
    pub checksum: Option<(String, String)>,
}

/// An item that could not be read and was left out.
#[derive(Debug, Clone)]
pub struct LeftOut {
    /// Its place in the listing; the mark with which to ask for what follows.
    pub mark: u64,
    /// What it is.
    pub kind: ItemKind,
    /// Path at the source's server.
    pub source: Vec<u8>,
    /// Path at the destination's server.
    pub destination: Vec<u8>,
    /// When.
    pub time: Timestamp,
    /// Why.
    pub fault: Fault,
}

/// A new task with what its user named.
#[derive(Debug, Clone)]
pub struct Submission {
    /// What is asked for.
    pub wanted: Wanted,
    /// What was named; never empty.
    pub items: Vec<WorkItem>,
}

/// What became of a submission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Submitted {
    /// It is a new task.
    New(Uuid),
    /// It is the task of that number: the same submission came before.
    Repeated(Uuid),
    /// It is refused: a task of the same owner with the same items is not finished.
    Conflict(Uuid),
}

//! What is kept of timers.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;
use whimbrel_engine::listing::Timestamp;

use super::schedule::Schedule;
use crate::store::{Record, time_key};

/// Runs that a timer remembers.
pub const REMEMBERED: usize = 10;

/// The key under which timers are found whose time has come.
pub const DUE: &str = "due";

/// A timer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timer {
    /// Its id.
    pub id: Uuid,
    /// In whose name it submits.
    pub owner: Uuid,
    /// The program with which they made it.
    pub client: Uuid,
    /// What they call it.
    pub name: String,
    /// When it runs.
    pub schedule: Schedule,
    /// When it was made.
    pub submitted: Timestamp,
    /// Where it stands.
    pub state: State,
    /// Submissions that were taken.
    pub runs: u64,
    /// Submissions that were refused, or could not be made.
    pub errors: u64,
    /// Times that were left out, since the run before was not over.
    pub left_out: u64,
    /// The newest runs, the newest last; at most [`REMEMBERED`].
    pub newest: Vec<Run>,
}

/// Where a timer stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum State {
    /// It waits for its time.
    Waiting {
        /// When it runs: a time of its schedule.
        next: Timestamp,
        /// What was in the way of it, if that has come already: it is tried again.
        trouble: Option<Trouble>,
    },
    /// It does nothing until its owner resumes it.
    Stopped {
        /// Why.
        reason: Reason,
        /// Since when.
        since: Timestamp,
    },
    /// It never runs again.
    Ended,
}

/// Something that kept a run from being submitted and may pass.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// How often in a row.
    pub times: u32,
    /// When it is tried again.
    pub again: Timestamp,
    /// What.
    pub message: String,
}

/// Why a timer stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "cause", rename_all = "snake_case")]
pub enum Reason {
    /// Its owner paused it.
    User,
    /// Its owner has not consented to what it needs.
    Consent {
        /// Words for people.
        message: String,
        /// Scopes to consent to.
        scopes: Vec<String>,
    },
    /// What it submits is refused, and would be again.
    Refused {
        /// A code of the Transfer API.
        code: String,
        /// Words for people.
        message: String,
    },
}

/// A run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The time of the schedule that it belongs to.
    pub due: Timestamp,
    /// When it was submitted.
    pub at: Timestamp,
    /// Its task.
    pub task: Uuid,
}

impl Timer {
    /// When something is to be done about it; `None`: it waits for nothing.
    pub fn due(&self) -> Option<Timestamp> {
        match &self.state {
            State::Waiting { trouble: Some(trouble), .. } => Some(trouble.again),
            State::Waiting { next, .. } => Some(*next),
            State::Stopped { .. } | State::Ended => None,
        }
    }

    /// The newest run.
    pub fn last(&self) -> Option<&Run> {
        self.newest.last()
    }

    /// Remembers a run.
    pub fn remember(&mut self, run: Run) {
        self.runs += 1;
        self.newest.push(run);
        let old = self.newest.len().saturating_sub(REMEMBERED);
        self.newest.drain(..old);
    }
}

impl Record for Timer {
    const KIND: &'static str = "timer";

    fn id(&self) -> String {
        self.id.to_string()
    }

    fn keys(&self) -> Vec<(&'static str, String)> {
        let due = self.due().map(|due| (DUE, time_key(due)));
        std::iter::once(("owner", self.owner.to_string())).chain(due).collect()
    }
}

/// What a timer submits: may be large, and never changes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimerBody {
    /// The timer.
    pub timer: Uuid,
    /// A `transfer` document without a submission id.
    pub document: Value,
}

impl Record for TimerBody {
    const KIND: &'static str = "timer_body";

    fn id(&self) -> String {
        self.timer.to_string()
    }
}

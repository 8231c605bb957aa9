//! What is kept of what is to be told, and where to.

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use whimbrel_engine::listing::Timestamp;
use whimbrel_engine::task::Status;

use crate::store::{Record, time_key};
use crate::task::Notify;

/// The key under which notices are found whose time has come.
pub const DUE: &str = "due";

/// Something that is to be told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// Its id: the same however often it is told.
    pub id: Uuid,
    /// About which task.
    pub task: Uuid,
    /// To whom.
    pub owner: Uuid,
    /// What became of the task.
    pub status: Status,
    /// When.
    pub time: Timestamp,
    /// When it is told, or tried again.
    pub due: Timestamp,
    /// How often it was tried.
    pub tries: u32,
    /// Who has not been reached; `None`: nobody has been tried.
    pub left: Option<Vec<Channel>>,
}

impl Record for Notice {
    const KIND: &'static str = "notice";

    fn id(&self) -> String {
        self.id.to_string()
    }

    fn keys(&self) -> Vec<(&'static str, String)> {
        vec![(DUE, time_key(self.due))]
    }
}

/// A way to somebody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "channel", rename_all = "snake_case")]
pub enum Channel {
    /// The mail address of the task's owner.
    Mail,
    /// A place that they named.
    Webhook {
        /// Which.
        id: Uuid,
    },
}

/// A place that is asked (POST) when a task of its owner ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Webhook {
    /// Its id.
    pub id: Uuid,
    /// Whose.
    pub owner: Uuid,
    /// Where: `https://HOST/PATH`.
    pub url: String,
    /// What it is told.
    pub events: Vec<Event>,
    /// Since when.
    pub created: Timestamp,
    /// What it is shown as a bearer token, sealed; hexadecimal.
    pub secret: String,
    /// What came of the newest try.
    pub newest: Option<Delivery>,
}

impl Record for Webhook {
    const KIND: &'static str = "webhook";

    fn id(&self) -> String {
        self.id.to_string()
    }

    fn keys(&self) -> Vec<(&'static str, String)> {
        vec![("owner", self.owner.to_string())]
    }
}

/// What came of a try.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// When.
    pub time: Timestamp,
    /// Why it failed; `None`: it did not.
    pub error: Option<String>,
}

/// What owners are told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A task succeeded.
    Succeeded,
    /// A task failed, was cancelled, or its deadline passed.
    Failed,
    /// A task waits for its owner.
    Inactive,
}

impl Event {
    /// Every one.
    pub const ALL: [Self; 3] = [Self::Succeeded, Self::Failed, Self::Inactive];

    /// That of a status; `None`: nobody is told of it.
    pub fn of(status: Status) -> Option<Self> {
        match status {
            Status::Succeeded => Some(Self::Succeeded),
            Status::Failed => Some(Self::Failed),
            Status::Inactive => Some(Self::Inactive),
            Status::Active => None,
        }
    }

    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Inactive => "inactive",
        }
    }

    /// Whether a task's owner wants to hear of it.
    pub fn is_wanted(self, wanted: Notify) -> bool {
        match self {
            Self::Succeeded => wanted.succeeded,
            Self::Failed => wanted.failed,
            Self::Inactive => wanted.inactive,
        }
    }
}

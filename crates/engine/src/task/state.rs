//! States of tasks and of their items.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where a task stands; the names are those of the Transfer API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Status {
    /// Waiting, running, paused or waiting to try again.
    Active,
    /// Waits for something that only its user can give: a credential.
    Inactive,
    /// Every item is done, or was skipped as the user allowed.
    Succeeded,
    /// An item failed for good, or the task was cancelled, or its deadline passed.
    Failed,
}

impl Status {
    /// Whether it can never change again.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }

    /// Its name in the API and in stores.
    pub fn name(self) -> &'static str {
        match self {
            Self::Active => "ACTIVE",
            Self::Inactive => "INACTIVE",
            Self::Succeeded => "SUCCEEDED",
            Self::Failed => "FAILED",
        }
    }

    /// The status of this name.
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Active, Self::Inactive, Self::Succeeded, Self::Failed].into_iter().find(|status| status.name() == name)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What an item is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemKind {
    /// A file.
    File,
    /// A directory to be made, or to be deleted.
    Directory,
    /// A symbolic link.
    Symlink,
}

/// Where an item stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ItemState {
    /// Found, not done.
    Pending,
    /// An attempt failed; another follows.
    Retrying,
    /// Done: copied and proven as asked, made, or deleted.
    Succeeded,
    /// The destination has it already, judged by the sync level: done without being moved.
    UpToDate,
    /// Could not be read, and the user allowed to leave such items out.
    SkippedError,
    /// Failed for good.
    Failed,
    /// Left undone because the task was cancelled.
    Canceled,
    /// Left undone because the task's deadline passed.
    Expired,
}

impl ItemState {
    /// Every state.
    pub const ALL: [Self; 8] = [
        Self::Pending,
        Self::Retrying,
        Self::Succeeded,
        Self::UpToDate,
        Self::SkippedError,
        Self::Failed,
        Self::Canceled,
        Self::Expired,
    ];

    /// Whether nothing more is done for the item: a final state is never left.
    pub fn is_final(self) -> bool {
        !matches!(self, Self::Pending | Self::Retrying)
    }

    /// Its number in stores; never changes its meaning.
    pub fn number(self) -> i64 {
        match self {
            Self::Pending => 0,
            Self::Retrying => 1,
            Self::Succeeded => 2,
            Self::UpToDate => 3,
            Self::SkippedError => 4,
            Self::Failed => 5,
            Self::Canceled => 6,
            Self::Expired => 7,
        }
    }

    /// The state of this number.
    pub fn from_number(number: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.number() == number)
    }
}

impl ItemKind {
    /// Its number in stores; never changes its meaning.
    pub fn number(self) -> i64 {
        match self {
            Self::File => 0,
            Self::Directory => 1,
            Self::Symlink => 2,
        }
    }

    /// The kind of this number.
    pub fn from_number(number: i64) -> Option<Self> {
        [Self::File, Self::Directory, Self::Symlink].into_iter().find(|kind| kind.number() == number)
    }
}

/// What counters need to know of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ItemRecord {
    /// What it is.
    pub kind: ItemKind,
    /// Where it stands.
    pub state: ItemState,
    /// Bytes that were moved for it and count: the file's, once it has succeeded; else 0.
    pub bytes: u64,
    /// Bytes of it that were proven by a checksum; at most `bytes`.
    pub proven: u64,
    /// Whether it is there only to be deleted at the destination (mirroring).
    pub extra: bool,
}

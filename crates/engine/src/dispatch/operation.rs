//! Single operations on a collection: what file managers do, and what a task would do.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{Site, Work, WorkItem};
use crate::listing::{Timestamp, path_text};
use crate::plan::Forecast;

/// One thing to do at a site at once.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Operation {
    /// Its number.
    pub id: Uuid,
    /// Where.
    pub site: Site,
    /// What.
    pub kind: OperationKind,
}

/// What is done. Paths are those of the servers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum OperationKind {
    /// A directory is listed.
    List {
        /// The directory.
        #[serde(with = "path_text")]
        path: Vec<u8>,
        /// Most entries; a directory that has more is a fault (`TooLarge`), for half a listing would be taken for a whole one.
        most: u32,
    },
    /// What is told of one object.
    Stat {
        /// The object.
        #[serde(with = "path_text")]
        path: Vec<u8>,
    },
    /// A directory is made.
    MakeDirectory {
        /// The directory.
        #[serde(with = "path_text")]
        path: Vec<u8>,
    },
    /// An object gets another name.
    Rename {
        /// Its name.
        #[serde(with = "path_text")]
        from: Vec<u8>,
        /// Its new name; nothing may be there.
        #[serde(with = "path_text")]
        to: Vec<u8>,
    },
    /// A symbolic link is made.
    Symlink {
        /// The link.
        #[serde(with = "path_text")]
        path: Vec<u8>,
        /// What it says.
        #[serde(with = "path_text")]
        target: Vec<u8>,
    },
    /// What a task would do is told, and nothing is done.
    Foresee(Box<Draft>),
}

/// A task that nobody has submitted yet; the operation's site is its source, or where is deleted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Draft {
    /// What is to be done.
    pub work: Work,
    /// Where to; `None` for deletions.
    pub destination: Option<Site>,
    /// What the user named, or the first of it.
    pub items: Vec<WorkItem>,
    /// Whether they named more.
    pub more: bool,
    /// What the task is to be called; empty: nothing.
    pub label: String,
    /// Most sessions at once; `None`: what is chosen by measurement.
    pub max_concurrency: Option<u32>,
    /// Where it is to stop.
    pub bounds: Bounds,
}

/// How far is looked ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// Most files, directories and links that are counted.
    pub entries: u64,
    /// Longest time, seconds.
    pub seconds: u32,
    /// Most steps that are told one by one.
    pub steps: u32,
}

/// What came of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum OperationResult {
    /// It is done.
    Done,
    /// What is in the directory, in the server's order; without `.` and `..`.
    Listing {
        /// Entries.
        entries: Vec<Entry>,
    },
    /// What is told.
    Told {
        /// The object; its name is the last component of the path.
        entry: Entry,
    },
    /// What the task would do.
    Foreseen(Box<Forecast>),
}

/// What kind of thing an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryKind {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link that points to nothing.
    DanglingLink,
    /// A device, a pipe or a socket.
    Other,
}

/// One object as file managers show it. Of a link, everything but `link_target` is told of what it points to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its name.
    #[serde(with = "path_text")]
    pub name: Vec<u8>,
    /// Its kind.
    pub kind: EntryKind,
    /// Bytes; 0 where the server does not tell.
    pub size: u64,
    /// Permission bits (`07777`), when the server tells.
    pub mode: Option<u32>,
    /// Its owner's name or number, when the server tells.
    pub user: Option<String>,
    /// Its group's name or number, when the server tells.
    pub group: Option<String>,
    /// Modification time, when the server tells.
    pub modified: Option<Timestamp>,
    /// What the link says, bytes; `None`: it is no link.
    pub link_target: Option<Vec<u8>>,
}

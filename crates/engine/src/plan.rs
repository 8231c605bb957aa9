//! The plan of a copy: a value, so that a preview cannot write.
//!
//! A [`Planner`] is fed with what listings say and yields [`Action`]s one by one; a task of ten
//! million files never exists as a whole. Directories come before what is in them; the
//! [`Action::SetAttributes`] of a directory comes after everything in it, and once for each
//! directory, because it also ends the directory's bookkeeping.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::listing::{Object, Timestamp, path_text};
use crate::task::{Filter, ItemKind};

mod compare;
mod earlier;
mod forecast;
mod inquiry;
mod planner;
mod print;
mod question;
#[cfg(test)]
mod tests;

pub use earlier::{Earlier, Finished};
pub use forecast::{Aim, Cut, Forecast, Forecaster, Step, StepKind, Things};
pub use inquiry::Inquiry;
pub use planner::Planner;
pub use print::{PlanTotals, quote_path};
pub use question::{ListedSide, PlanInput, Query, QueryId};

/// One item of a run; unique within it, in the order of the plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ItemId(pub u64);

/// One directory of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DirectoryId(pub u64);

/// One source argument with its destination; tells the executor which pair of endpoints to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RootId(pub u64);

/// When a file that exists at the destination is copied again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SyncLevel {
    /// Always; the destination is not even listed.
    #[default]
    None,
    /// Never: copied only when absent.
    Exists,
    /// When the sizes differ.
    Size,
    /// When the sizes differ or the source is newer.
    Mtime,
    /// When the sizes or the checksums differ.
    Checksum,
}

/// What becomes of a symbolic link at the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Links {
    /// What it points to is copied.
    #[default]
    Follow,
    /// The link itself is made at the destination.
    Copy,
    /// Skipped with a reason.
    Skip,
}

/// What of a source object is set on its copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Preserve {
    /// Modification times.
    pub times: bool,
    /// Permission bits.
    pub modes: bool,
}

/// What the user asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanOptions {
    /// When an existing file is copied again; default none (always).
    pub sync: SyncLevel,
    /// Whether directories are copied; without it they are refused; default false.
    pub recursive: bool,
    /// What becomes of symbolic links; default follow.
    pub links: Links,
    /// Whether destinations are looked at for links, through which nothing is copied: where links are copied, sources decide where
    /// they lead; default false.
    pub avoids_links: bool,
    /// What is set on the copies; default nothing.
    pub preserve: Preserve,
    /// Which entries of directories are taken; default all. What is left out is as if it were not there, at either end.
    pub filter: Filter,
    /// Whether it is told what destinations hold that sources do not ([`Planner::poll_extra`]); default false.
    pub mirror: bool,
    /// Whether devices, pipes and sockets met in a directory are skipped with a reason (default) instead of refused.
    pub skip_unsupported: bool,
    /// A source newer by no more than this counts as not newer; default 0. Where one side tells whole
    /// seconds only, whole seconds are compared anyway.
    pub mtime_tolerance: Duration,
    /// Deepest directory level planned; default 512. Ends loops of links where the server tells no identities.
    pub max_depth: u32,
    /// Questions open at the same time, at least 1; default 100, which every server takes ahead of its replies: they cost a
    /// round trip each level of a tree, and not one each directory.
    pub queries_at_once: usize,
}

impl Default for PlanOptions {
    fn default() -> Self {
        Self {
            sync: SyncLevel::None,
            recursive: false,
            links: Links::Follow,
            avoids_links: false,
            preserve: Preserve::default(),
            filter: Filter::default(),
            mirror: false,
            skip_unsupported: true,
            mtime_tolerance: Duration::ZERO,
            max_depth: 512,
            queries_at_once: 100,
        }
    }
}

/// One source argument and where its copy goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Root {
    /// Path at the source.
    pub source: Vec<u8>,
    /// Path of the copy itself, not of the directory that will hold it.
    pub destination: Vec<u8>,
    /// Only these bytes of a file, placed at the same offsets; the end `u64::MAX` means to the end of the file.
    pub range: Option<Range<u64>>,
    /// What is known about the source; `None` makes the planner ask with [`Query::Stat`].
    pub object: Option<Object>,
    /// What is known about the destination.
    pub existing: Existing,
    /// Whether it must be a directory (`true`) or must not be one (`false`); `None`: as the options say.
    pub recursive: Option<bool>,
    /// What becomes of it where it is a link: followed, or made again, and then it must be one; `None`: as the options say.
    pub links: Option<Links>,
}

impl Root {
    /// A root about which nothing is known yet.
    pub fn new(source: impl Into<Vec<u8>>, destination: impl Into<Vec<u8>>) -> Self {
        Self {
            source: source.into(),
            destination: destination.into(),
            range: None,
            object: None,
            existing: Existing::Unknown,
            recursive: None,
            links: None,
        }
    }

    /// Says what the source is, which saves the question.
    pub fn object(mut self, object: Object) -> Self {
        self.object = Some(object);
        self
    }

    /// Says what is at the destination, which saves the question.
    pub fn existing(mut self, existing: Existing) -> Self {
        self.existing = existing;
        self
    }
}

/// Something at the destination that the source does not have, in a directory whose listings were whole at both ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Extra {
    /// The root in whose destination it is.
    pub root: RootId,
    /// Full path at the destination.
    pub path: Vec<u8>,
    /// What it is; devices and their like count as files.
    pub kind: ItemKind,
    /// Whether the source has a name that differs only in case or in the form of its letters, and that the destination does not show:
    /// where it tells such names not apart, this is the copy.
    pub twin: bool,
}

/// What is known about the destination of a root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Existing {
    /// Nothing; asked for when the sync level needs it.
    Unknown,
    /// There is nothing.
    Absent,
    /// This is there.
    Present(Object),
}

/// What to set on a copy; empty when nothing is preserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Attributes {
    /// Modification time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified: Option<Timestamp>,
    /// Permission bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<u32>,
}

impl Attributes {
    /// Whether there is nothing to set.
    pub fn is_empty(&self) -> bool {
        self.modified.is_none() && self.mode.is_none()
    }
}

/// What an action is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// Its number.
    pub id: ItemId,
    /// The source argument it belongs to.
    pub root: RootId,
    /// The directory it lies in; `None` for the root itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<DirectoryId>,
    /// Full path at the source.
    #[serde(with = "path_text")]
    pub source: Vec<u8>,
    /// Full path at the destination.
    #[serde(with = "path_text")]
    pub destination: Vec<u8>,
    /// Bytes to move: of `range` when there is one; `None` when the source does not tell; 0 for what is not a file.
    pub size: Option<u64>,
    /// Modification time of the source as listed: a change while it is read is a fault.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified: Option<Timestamp>,
    /// Only these bytes of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<Range<u64>>,
    /// What to set on the copy afterwards.
    #[serde(default, skip_serializing_if = "Attributes::is_empty")]
    pub attributes: Attributes,
    /// Names of others in its directory at the destination which file systems exist that take for its own: nothing is done
    /// before the destination was found to tell them apart.
    #[serde(skip)]
    pub twins: Vec<Vec<u8>>,
}

/// Why an item needs no work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// Something is at the destination, and the sync level asks for no more.
    Exists,
    /// Same size.
    SameSize,
    /// Same size, and the source is not newer.
    SameSizeAndNotNewer,
    /// Same size and same checksum.
    SameChecksum,
    /// An earlier run of the same copy has moved it ([`Earlier`]).
    MovedEarlier,
    /// Other contents, where the two were only to be compared.
    Differs,
    /// A symbolic link with the same target.
    SameLink,
    /// A symbolic link to be made where something is, and the sync level asks for no more.
    LinkExists,
    /// A symbolic link, and the user asked to skip them.
    Link,
    /// A device, pipe or socket.
    Unsupported,
}

impl fmt::Display for SkipReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exists | Self::LinkExists => "exists at the destination",
            Self::SameSize => "same size",
            Self::SameSizeAndNotNewer => "same size and not newer",
            Self::SameChecksum => "same checksum",
            Self::MovedEarlier => "moved by an earlier run",
            Self::Differs => "other contents",
            Self::SameLink => "same link",
            Self::Link => "symbolic link",
            Self::Unsupported => "device, pipe or socket",
        })
    }
}

/// One step of a plan.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum Action {
    /// Make the directory; that it exists already counts as made.
    MakeDirectory {
        /// What to make.
        item: Item,
        /// The directory that waits for it.
        directory: DirectoryId,
    },
    /// Copy a file.
    Copy {
        /// What to copy.
        item: Item,
    },
    /// Compare the checksums of both sides; copy when they differ.
    CompareChecksum {
        /// What to compare.
        item: Item,
    },
    /// Compare the checksums of both sides; nothing is copied where they differ.
    CompareOnly {
        /// What to compare.
        item: Item,
    },
    /// Make a symbolic link.
    Symlink {
        /// Where to make it.
        item: Item,
        /// What it says.
        #[serde(with = "path_text")]
        target: Vec<u8>,
    },
    /// Set times and modes of a directory after everything in it is done; with no attributes it only ends the directory.
    SetAttributes {
        /// The directory's paths and attributes.
        item: Item,
        /// The directory that ends with it.
        directory: DirectoryId,
    },
    /// Nothing to do.
    Skip {
        /// What is left as it is.
        item: Item,
        /// Why.
        reason: SkipReason,
    },
    /// Cannot be done; counts as failed.
    Refuse {
        /// What is refused.
        item: Item,
        /// Why.
        fault: Fault,
    },
}

impl Action {
    /// The file whose contents are copied or compared; `None`: the action is about something else.
    pub fn file(&self) -> Option<&Item> {
        match self {
            Self::Copy { item } | Self::CompareChecksum { item } | Self::CompareOnly { item } => Some(item),
            _ => None,
        }
    }

    /// What the action is about.
    pub fn item(&self) -> &Item {
        match self {
            Self::MakeDirectory { item, .. }
            | Self::Copy { item }
            | Self::CompareChecksum { item }
            | Self::CompareOnly { item }
            | Self::Symlink { item, .. }
            | Self::SetAttributes { item, .. }
            | Self::Skip { item, .. }
            | Self::Refuse { item, .. } => item,
        }
    }
}

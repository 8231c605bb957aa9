//! The order that directories impose: made before what is in them, attributes after.

use std::collections::HashMap;

use crate::fault::Fault;
use crate::plan::{DirectoryId, ItemId};

#[derive(Debug, Default)]
pub(super) struct Directories {
    open: HashMap<DirectoryId, Directory>,
}

#[derive(Debug, Default)]
struct Directory {
    state: Made,
    /// Items in it that have not ended, sub-directories included.
    outstanding: u64,
    /// Items that wait until it is made.
    blocked: Vec<ItemId>,
    /// Its `SetAttributes`, waiting for the outstanding ones.
    finish: Option<ItemId>,
}

/// A directory nobody was told to make exists already.
#[derive(Debug, Default, Clone)]
enum Made {
    Pending,
    #[default]
    Yes,
    Failed(Fault),
}

/// What an item may do as far as its directory goes.
#[derive(Debug)]
pub(super) enum Admission {
    Ready,
    Blocked,
    Refused(Fault),
}

impl Directories {
    /// A directory that is to be made.
    pub(super) fn announce(&mut self, directory: DirectoryId) {
        self.open.entry(directory).or_default().state = Made::Pending;
    }

    /// An item lies in `parent`: it counts until [`Directories::left`].
    pub(super) fn entered(&mut self, parent: Option<DirectoryId>) {
        if let Some(parent) = parent {
            self.open.entry(parent).or_default().outstanding += 1;
        }
    }

    /// Whether an item that was counted may start; if not yet, it comes back from [`Directories::made`].
    pub(super) fn admit(&mut self, parent: Option<DirectoryId>, item: ItemId) -> Admission {
        let Some(directory) = parent.and_then(|parent| self.open.get_mut(&parent)) else {
            return Admission::Ready;
        };
        match &directory.state {
            Made::Yes => Admission::Ready,
            Made::Failed(fault) => Admission::Refused(fault.clone()),
            Made::Pending => {
                directory.blocked.push(item);
                Admission::Blocked
            }
        }
    }

    /// An item of `parent` has ended; returns the parent's `SetAttributes` when that was the last.
    pub(super) fn left(&mut self, parent: Option<DirectoryId>) -> Option<ItemId> {
        let directory = self.open.get_mut(&parent?)?;
        directory.outstanding = directory.outstanding.saturating_sub(1);
        if directory.outstanding == 0 { directory.finish.take() } else { None }
    }

    /// The directory's `SetAttributes` has come; returns whether it can go on at once.
    pub(super) fn finishing(&mut self, directory: DirectoryId, item: ItemId) -> bool {
        let directory = self.open.entry(directory).or_default();
        let ready = directory.outstanding == 0 && !matches!(directory.state, Made::Pending);
        if !ready {
            directory.finish = Some(item);
        }
        ready
    }

    /// The directory is made, or cannot be; returns the items that waited, and its `SetAttributes` if nothing else is in it.
    pub(super) fn made(&mut self, directory: DirectoryId, outcome: Result<(), Fault>) -> (Vec<ItemId>, Option<ItemId>) {
        let directory = self.open.entry(directory).or_default();
        directory.state = match outcome {
            Ok(()) => Made::Yes,
            Err(fault) => Made::Failed(fault),
        };
        let finish = if directory.outstanding == 0 { directory.finish.take() } else { None };
        (std::mem::take(&mut directory.blocked), finish)
    }

    /// Whether the directory could not be made.
    pub(super) fn has_failed(&self, directory: DirectoryId) -> bool {
        matches!(self.open.get(&directory), Some(d) if matches!(d.state, Made::Failed(_)))
    }

    /// Everything about the directory is over.
    pub(super) fn forget(&mut self, directory: DirectoryId) {
        self.open.remove(&directory);
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }
}

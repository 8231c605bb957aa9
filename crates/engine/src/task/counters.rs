//! The numbers of a task, each a sum over its items.

use serde::{Deserialize, Serialize};

use super::state::{ItemKind, ItemRecord, ItemState};

/// What a task's items add up to; the words are those of the Transfer API's task document.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Files found.
    pub files: u64,
    /// Directories found.
    pub directories: u64,
    /// Symbolic links found.
    pub symlinks: u64,
    /// Files left as they are, judged by the sync level.
    pub files_skipped: u64,
    /// Files copied.
    pub files_transferred: u64,
    /// Bytes of the files copied, each counted once.
    pub bytes_transferred: u64,
    /// Bytes of them that were proven.
    pub bytes_checksummed: u64,
    /// Items not done.
    pub pending: u64,
    /// Items that failed and are tried again.
    pub retrying: u64,
    /// Items done.
    pub succeeded: u64,
    /// Items left undone at the deadline.
    pub expired: u64,
    /// Items left undone when the task was cancelled.
    pub canceled: u64,
    /// Items that failed for good.
    pub failed: u64,
    /// Items that could not be read and were left out.
    pub skipped_errors: u64,
}

impl Counters {
    /// Counts an item that was `from` (`None`: not known before) and is `to` now.
    ///
    /// Steps of one item add up to the step from nothing to its last record.
    pub fn step(&mut self, from: Option<&ItemRecord>, to: &ItemRecord) {
        if let Some(from) = from {
            self.count(from, |counter, by| *counter -= by);
        }
        self.count(to, |counter, by| *counter += by);
    }

    /// Counts every item that is not done as `state`, a final one: what stepping each of them would come to.
    pub fn close(&mut self, state: ItemState) {
        let open = self.open();
        (self.pending, self.retrying) = (0, 0);
        *self.by_state(state) += open;
    }

    /// All items.
    pub fn total(&self) -> u64 {
        self.pending + self.retrying + self.succeeded + self.expired + self.canceled + self.failed + self.skipped_errors
    }

    /// Items for which something is still to be done.
    pub fn open(&self) -> u64 {
        self.pending + self.retrying
    }

    fn count(&mut self, item: &ItemRecord, add: impl Fn(&mut u64, u64)) {
        add(self.by_state(item.state), 1);
        if item.extra {
            return;
        }
        add(self.by_kind(item.kind), 1);
        if item.kind != ItemKind::File {
            return;
        }
        match item.state {
            ItemState::UpToDate => add(&mut self.files_skipped, 1),
            ItemState::Succeeded => {
                add(&mut self.files_transferred, 1);
                add(&mut self.bytes_transferred, item.bytes);
                add(&mut self.bytes_checksummed, item.proven);
            }
            _ => {}
        }
    }

    fn by_state(&mut self, state: ItemState) -> &mut u64 {
        match state {
            ItemState::Pending => &mut self.pending,
            ItemState::Retrying => &mut self.retrying,
            ItemState::Succeeded | ItemState::UpToDate => &mut self.succeeded,
            ItemState::SkippedError => &mut self.skipped_errors,
            ItemState::Failed => &mut self.failed,
            ItemState::Canceled => &mut self.canceled,
            ItemState::Expired => &mut self.expired,
        }
    }

    fn by_kind(&mut self, kind: ItemKind) -> &mut u64 {
        match kind {
            ItemKind::File => &mut self.files,
            ItemKind::Directory => &mut self.directories,
            ItemKind::Symlink => &mut self.symlinks,
        }
    }
}

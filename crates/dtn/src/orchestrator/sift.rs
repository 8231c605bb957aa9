//! What of a plan is still to be done, and what it means for the items.

use std::cell::RefCell;
use std::rc::Rc;

use whimbrel_engine::dispatch::{Change, Subject};
use whimbrel_engine::plan::{Action, DirectoryId, Item, SkipReason};
use whimbrel_engine::task::ItemKind;

use super::ledger::{Directory, Ledger};
use super::report::Outbox;
use crate::client::plan::Sieve;

/// Leaves out what is final, and tells what is found.
pub(super) struct Sift {
    pub(super) ledger: Rc<RefCell<Ledger>>,
    pub(super) outbox: Rc<Outbox>,
}

impl Sieve for Sift {
    async fn sift(&mut self, action: Action) -> Option<Action> {
        self.outbox.room().await;
        self.ledger.borrow_mut().sift(action)
    }
}

impl Ledger {
    /// The action that is to be carried out.
    fn sift(&mut self, action: Action) -> Option<Action> {
        match action {
            Action::MakeDirectory { item, directory } => self.make(item, directory),
            Action::SetAttributes { item, directory } => Some(self.end(item, directory)),
            Action::Copy { item } => self.file(item, |item| Action::Copy { item }),
            Action::CompareChecksum { item } => self.file(item, |item| Action::CompareChecksum { item }),
            Action::Symlink { item, target } => {
                let subject = Self::subject(&item, ItemKind::Symlink);
                if self.finished.contains(&subject) {
                    return None;
                }
                self.found(&item, subject, None);
                Some(Action::Symlink { item, target })
            }
            // Who follows waits for the end of each file.
            Action::Skip { item, reason } => {
                self.skip(&item, reason);
                self.follows.is_some().then_some(Action::Skip { item, reason })
            }
            Action::Refuse { item, fault } if self.follows.is_some() => {
                self.refuse(&item, &fault);
                Some(Action::Refuse { item, fault })
            }
            Action::Refuse { item, fault } => {
                let listed = item.parent.filter(|_| item_is_parent(self, &item));
                match listed {
                    Some(id) => {
                        self.spoilt.insert(item.root);
                        self.directory_failed(id, &fault);
                    }
                    None => self.refuse(&item, &fault),
                }
                None
            }
        }
    }

    fn make(&mut self, item: Item, id: DirectoryId) -> Option<Action> {
        let subject = Self::subject(&item, ItemKind::Directory);
        let told = self.finished.contains(&subject);
        let directory = Directory { subject: subject.clone(), made: told, stood: false, ended: false, told };
        self.directories.insert(id, directory);
        if told {
            return None;
        }
        self.outbox.change(Change::Found { subject, size: None });
        self.busy.insert(item.id, id);
        Some(Action::MakeDirectory { item, directory: id })
    }

    fn end(&mut self, item: Item, id: DirectoryId) -> Action {
        if !self.directories.contains_key(&id) {
            self.stands(&item, id);
        }
        if let Some(directory) = self.directories.get_mut(&id) {
            directory.ended = true;
            if directory.told && !directory.made {
                // It could not be made: nothing follows.
                self.directories.remove(&id);
                return Action::SetAttributes { item, directory: id };
            }
        }
        if item.attributes.is_empty() {
            self.close(id, true);
        } else {
            self.busy.insert(item.id, id);
        }
        Action::SetAttributes { item, directory: id }
    }

    /// A directory that nobody had to make.
    fn stands(&mut self, item: &Item, id: DirectoryId) {
        let subject = Self::subject(item, ItemKind::Directory);
        let told = self.finished.contains(&subject);
        if !told {
            self.outbox.change(Change::Found { subject: subject.clone(), size: None });
        }
        self.directories.insert(id, Directory { subject, made: true, stood: true, ended: false, told });
    }

    fn file(&mut self, item: Item, action: impl FnOnce(Item) -> Action) -> Option<Action> {
        let subject = Self::subject(&item, ItemKind::File);
        if self.follows.is_some() && self.is_final(&subject) {
            // Another version of it, which the record knows nothing of.
            return Some(action(item));
        }
        if self.finished.contains(&subject) {
            // Copied and not deleted, or failed: who is equal was moved.
            return self.moves.then(|| {
                self.checking.insert(item.id, item.source.clone());
                Action::CompareChecksum { item }
            });
        }
        self.found(&item, subject, item.size);
        Some(action(item))
    }

    fn skip(&mut self, item: &Item, reason: SkipReason) {
        let kind = match reason {
            SkipReason::Link | SkipReason::Unsupported => return,
            SkipReason::SameLink | SkipReason::LinkExists => ItemKind::Symlink,
            _ => ItemKind::File,
        };
        let subject = Self::subject(item, kind);
        if self.is_final(&subject) {
            return;
        }
        self.settled(&subject);
        self.progress.set(true);
        self.outbox.change(Change::Found { subject: subject.clone(), size: item.size });
        self.outbox.change(Change::UpToDate { subject });
        if self.moves && reason == SkipReason::SameChecksum {
            self.outbox.moved(item.source.clone());
        }
    }

    fn refuse(&mut self, item: &Item, fault: &whimbrel_engine::Fault) {
        // A directory that stood before its listing failed has no other action yet.
        let is_listing = fault.op == "list" && item.parent.is_some();
        let kind = if is_listing { ItemKind::Directory } else { ItemKind::File };
        let subject = Self::subject(item, kind);
        if is_listing && let Some(id) = item.parent {
            self.stands(item, id);
            self.spoilt.insert(item.root);
            return self.directory_failed(id, fault);
        }
        if self.is_final(&subject) {
            return;
        }
        self.outbox.change(Change::Found { subject: subject.clone(), size: None });
        self.judge(Some(item.root), subject, fault);
    }
}

/// Whether what is refused is the directory itself: it could not be listed.
fn item_is_parent(ledger: &Ledger, item: &Item) -> bool {
    let parent = item.parent.and_then(|id| ledger.directories.get(&id));
    parent.is_some_and(|directory| directory.subject.destination == item.destination)
}

/// The same for deletions, whose items have one path.
pub(super) fn deleted(item: &Item, kind: ItemKind, extra: bool) -> Subject {
    let path = item.source.clone();
    match extra {
        true => Subject { kind, source: Vec::new(), destination: path, extra },
        false => Subject { kind, source: path, destination: Vec::new(), extra },
    }
}

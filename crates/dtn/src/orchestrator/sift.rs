//! What of a plan is still to be done, and what it means for the items.

use std::cell::RefCell;
use std::rc::Rc;

use whimbrel_engine::dispatch::{Change, Subject};
use whimbrel_engine::listing::{Object, ObjectKind};
use whimbrel_engine::plan::{Action, DirectoryId, Item, SkipReason};
use whimbrel_engine::task::ItemKind;
use whimbrel_engine::{Fault, FaultCode, Side};

use super::exposed::{Copied, Exposed};
use super::ledger::{Directory, Ledger};
use super::report::{Moved, Outbox};
use crate::client::plan::Sieve;

/// Leaves out what is final, and tells what is found.
pub(super) struct Sift {
    pub(super) ledger: Rc<RefCell<Ledger>>,
    pub(super) outbox: Rc<Outbox>,
    pub(super) exposed: Rc<Exposed>,
}

impl Sieve for Sift {
    async fn sift(&mut self, action: Action) -> Option<Action> {
        self.outbox.room().await;
        self.outbox.room_for_sources().await;
        self.exposed.room().await;
        self.ledger.borrow_mut().sift(action)
    }
}

impl Ledger {
    /// The action that is to be carried out.
    fn sift(&mut self, action: Action) -> Option<Action> {
        self.recall(action.item());
        match action {
            Action::MakeDirectory { item, directory } => self.make(item, directory),
            Action::SetAttributes { item, directory } => Some(self.end(item, directory)),
            Action::Copy { item } => self.file(item, |item| Action::Copy { item }),
            Action::CompareChecksum { item } => self.file(item, |item| Action::CompareChecksum { item }),
            // None that is planned.
            Action::CompareOnly { item } => Some(Action::CompareOnly { item }),
            Action::Symlink { item, target } => self.link(&item, &target).then_some(Action::Symlink { item, target }),
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

    /// What failed in an earlier run spoils its root as if it had failed in this one.
    fn recall(&mut self, item: &Item) {
        if self.finished.any_failed() && self.finished.has_failed(&Self::subject(item, ItemKind::File)) {
            self.spoilt.insert(item.root);
        }
    }

    fn make(&mut self, item: Item, id: DirectoryId) -> Option<Action> {
        let subject = Self::subject(&item, ItemKind::Directory);
        let told = self.finished.contains(&subject);
        let root = item.root;
        let directory = Directory { subject: subject.clone(), root, made: told, stood: false, ended: false, told };
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
        let root = item.root;
        self.directories.insert(id, Directory { subject, root, made: true, stood: true, ended: false, told });
    }

    fn file(&mut self, item: Item, action: impl FnOnce(Item) -> Action) -> Option<Action> {
        let subject = Self::subject(&item, ItemKind::File);
        if self.follows.is_some() && self.is_final(&subject) {
            // Another version of it, which the record knows nothing of.
            return Some(action(item));
        }
        if self.finished.contains(&subject) {
            // Copied and not deleted: what is equal was moved. What failed stays.
            return (self.moves && !self.finished.has_failed(&subject)).then(|| {
                self.sources.insert(item.id, listed(&item));
                Action::CompareOnly { item }
            });
        }
        self.found(&item, subject, item.size, || listed(&item));
        Some(action(item))
    }

    /// Whether a link is to be made.
    fn link(&mut self, item: &Item, target: &[u8]) -> bool {
        let subject = Self::subject(item, ItemKind::Symlink);
        if !self.finished.contains(&subject) {
            let link = || Object::symlink(item.source.clone(), target);
            self.found(item, subject, None, || Moved { source: link(), copy: item.destination.clone() });
            return true;
        }
        if self.moves && !self.finished.has_failed(&subject) {
            self.faulted(still_there(item), item.source.clone(), None);
        }
        false
    }

    fn skip(&mut self, item: &Item, reason: SkipReason) {
        let kind = match reason {
            SkipReason::Link | SkipReason::Unsupported => return,
            SkipReason::SameLink | SkipReason::LinkExists => ItemKind::Symlink,
            _ => ItemKind::File,
        };
        let subject = Self::subject(item, kind);
        let is_final = self.is_final(&subject);
        if !is_final {
            self.settled(&subject);
            self.outbox.change(Change::Found { subject: subject.clone(), size: item.size });
        }
        let change = (!is_final).then_some(Change::UpToDate { subject });
        if self.moves && reason == SkipReason::SameChecksum {
            return self.exposed.add(Copied { change, moved: Some(listed(item)) });
        }
        if let Some(change) = change {
            self.progress.set(true);
            self.outbox.change(change);
        }
    }

    fn refuse(&mut self, item: &Item, fault: &Fault) {
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
            self.spoilt.insert(item.root);
            return self.unseen(fault);
        }
        self.outbox.change(Change::Found { subject: subject.clone(), size: None });
        self.judge(Some(item.root), subject, fault);
    }
}

/// A file of the source as the plan knows it.
fn listed(item: &Item) -> Moved {
    let bare = Object::bare(item.source.clone(), ObjectKind::File);
    Moved { source: Object { size: item.size, modified: item.modified, ..bare }, copy: item.destination.clone() }
}

/// A link that is on record as made, and nobody can tell whether what was made still says the same.
fn still_there(item: &Item) -> Fault {
    let fault = Fault::new(FaultCode::AlreadyExists, "move").on_path(&item.source).side(Side::Source);
    fault.detail("the link was made at the destination before and stays at the source, too")
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

#[cfg(test)]
mod tests {
    use tokio::sync::watch;
    use whimbrel_engine::dispatch::key;
    use whimbrel_engine::events::Event;
    use whimbrel_engine::plan::{Attributes, ItemId, RootId};
    use whimbrel_engine::summary::Failure;

    use super::*;
    use crate::orchestrator::fate::Leniency;
    use crate::orchestrator::keys::Keys;

    fn item(id: u64, name: &str, parent: Option<u64>) -> Item {
        Item {
            id: ItemId(id),
            root: RootId(0),
            parent: parent.map(DirectoryId),
            source: format!("/s{name}").into_bytes(),
            destination: format!("/d{name}").into_bytes(),
            size: Some(3),
            modified: None,
            range: None,
            attributes: Attributes::default(),
            twins: Vec::new(),
        }
    }

    /// A ledger of a later run: what is on record as final, and of that what failed.
    fn ledger(all: &[&Item], failed: &[&Item]) -> Ledger {
        let number = |item: &&Item| key(&Ledger::subject(item, ItemKind::File)).as_u128();
        let keys = Keys::new(all.iter().map(number).collect(), failed.iter().map(number).collect());
        Ledger::new(Rc::default(), keys, Leniency::default(), Rc::new(watch::channel(false).0))
    }

    fn source(code: FaultCode, op: &'static str) -> Fault {
        Fault::new(code, op).side(Side::Source)
    }

    #[test]
    fn a_dead_source_leaves_what_is_in_a_final_directory_for_later() {
        let root = item(1, "", None);
        let met = |code| {
            let mut ledger = ledger(&[&root], &[]);
            assert!(ledger.sift(Action::Refuse { item: root.clone(), fault: source(code, "stat") }).is_none());
            (ledger.again.map(|fault| fault.code), ledger.over.map(|fault| fault.code))
        };
        assert_eq!(met(FaultCode::ConnectionRefused), (Some(FaultCode::ConnectionRefused), None));
        assert_eq!(met(FaultCode::StorageBusy), (Some(FaultCode::StorageBusy), None));
        assert_eq!(met(FaultCode::LoginFailed), (None, Some(FaultCode::LoginFailed)));
        assert_eq!(met(FaultCode::NotFound), (None, None));
    }

    #[test]
    fn a_final_directory_that_cannot_be_listed_now_is_left_for_later() {
        let (root, below) = (item(1, "", None), item(2, "", Some(7)));
        let met = |code| {
            let mut ledger = ledger(&[&root], &[]);
            assert!(ledger.sift(Action::MakeDirectory { item: root.clone(), directory: DirectoryId(7) }).is_none());
            assert!(ledger.sift(Action::Refuse { item: below.clone(), fault: source(code, "list") }).is_none());
            ledger.again.map(|fault| fault.code)
        };
        assert_eq!(met(FaultCode::TimedOut), Some(FaultCode::TimedOut));
        assert_eq!(met(FaultCode::PermissionDenied), None);
    }

    #[test]
    fn what_failed_in_an_earlier_run_spoils_its_root_and_what_was_done_does_not() {
        let (done, bad) = (item(1, "/done", None), item(2, "/bad", None));
        let spoils = |action| {
            let mut ledger = ledger(&[&done, &bad], &[&bad]);
            assert!(ledger.sift(action).is_none());
            !ledger.spoilt.is_empty()
        };
        assert!(spoils(Action::Copy { item: bad.clone() }));
        assert!(spoils(Action::Symlink { item: bad.clone(), target: b"x".to_vec() }));
        assert!(spoils(Action::MakeDirectory { item: bad.clone(), directory: DirectoryId(3) }));
        assert!(!spoils(Action::Copy { item: done.clone() }));
    }

    #[test]
    fn a_directory_that_cannot_be_made_spoils_its_root() {
        let directory = item(1, "/new", None);
        let mut ledger = ledger(&[], &[]);
        assert!(ledger.sift(Action::MakeDirectory { item: directory.clone(), directory: DirectoryId(3) }).is_some());
        let fault = Fault::new(FaultCode::PermissionDenied, "make directory").side(Side::Destination);
        ledger.take(Event::ItemFailed(Failure::new(&directory, fault)));
        assert!(!ledger.spoilt.is_empty());
    }

    /// A move's ledger that compares a file which was copied before.
    fn comparing() -> (Ledger, Item) {
        let file = item(1, "/f", None);
        let mut ledger = ledger(&[&file], &[]);
        ledger.moves = true;
        let action = ledger.sift(Action::Copy { item: file.clone() });
        assert!(matches!(action, Some(Action::CompareOnly { .. })), "{action:?}");
        (ledger, file)
    }

    #[test]
    fn a_comparison_of_what_was_copied_before_is_never_lost() {
        let met = |fault| {
            let (mut ledger, file) = comparing();
            ledger.take(Event::ItemFailed(Failure::new(&file, fault)));
            (ledger.again.map(|fault| fault.code), ledger.kept.map(|fault| fault.code))
        };
        let gone = FaultCode::NotFound;
        assert_eq!(met(source(FaultCode::TimedOut, "checksum")), (Some(FaultCode::TimedOut), None));
        assert_eq!(met(source(FaultCode::ConnectionRefused, "dial")), (Some(FaultCode::ConnectionRefused), None));
        assert_eq!(met(source(FaultCode::NotSupported, "checksum")), (None, Some(FaultCode::NotSupported)));
        assert_eq!(met(source(gone, "checksum")), (None, None), "deleted by now");
        assert_eq!(met(Fault::new(gone, "checksum").side(Side::Destination)), (None, Some(gone)));
    }

    #[test]
    fn of_what_was_copied_before_only_what_is_equal_is_deleted_and_the_rest_told() {
        let met = |reason| {
            let (mut ledger, file) = comparing();
            ledger.take(Event::ItemSkipped { item: file.id, source: file.source, reason });
            (ledger.outbox.len() + ledger.exposed.len(), ledger.kept.map(|fault| fault.code))
        };
        assert_eq!(met(SkipReason::SameChecksum), (1, None));
        assert_eq!(met(SkipReason::Differs), (1, Some(FaultCode::SourceChanged)));
        let bad = item(2, "/bad", None);
        let mut ledger = ledger(&[&bad], &[&bad]);
        ledger.moves = true;
        assert!(ledger.sift(Action::Copy { item: bad }).is_none(), "what has failed stays");
    }
}

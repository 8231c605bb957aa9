//! What becomes of a transfer's items, in the words of reports.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use tokio::sync::watch;
use whimbrel_engine::dispatch::{Change, Gauge, Occurrence, Subject};
use whimbrel_engine::events::{Event, Outcome};
use whimbrel_engine::plan::{DirectoryId, Item, ItemId, RootId, SkipReason};
use whimbrel_engine::progress::{Snapshot, Verification};
use whimbrel_engine::summary::Failure;
use whimbrel_engine::task::ItemKind;
use whimbrel_engine::{Fault, FaultCode, Side};

use super::exposed::{Copied, Exposed};
use super::fate::{self, Fate, Leniency};
use super::follow::Followed;
use super::keys::Keys;
use super::parents::{Orphan, Orphans};
use super::report::{Moved, Outbox};

/// Faults about servers in a row after which a run is given up.
const PATIENCE: u32 = 3;

/// A directory from its first action to its last.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) subject: Subject,
    pub(super) root: RootId,
    /// It stands at the destination.
    pub(super) made: bool,
    /// It stood there before.
    pub(super) stood: bool,
    /// Everything in it is planned.
    pub(super) ended: bool,
    /// Its end was reported, in this run or an earlier one.
    pub(super) told: bool,
}

/// What is known of the items of a run. Memory is that of what is under way.
pub(super) struct Ledger {
    pub(super) outbox: Rc<Outbox>,
    /// What was copied and could still be lost.
    pub(super) exposed: Rc<Exposed>,
    pub(super) finished: Keys,
    pub(super) leniency: Leniency,
    /// Sources are deleted once their copies are proven.
    pub(super) moves: bool,
    /// Files are durable when they are stored.
    pub(super) durable: bool,
    pub(super) items: HashMap<ItemId, Subject>,
    /// What a move deletes when its copy is proven, as it was listed. Files that are not among `items` were copied before, and are
    /// only compared.
    pub(super) sources: HashMap<ItemId, Moved>,
    pub(super) directories: HashMap<DirectoryId, Directory>,
    /// Directories that are being made, and whose attributes are being set.
    pub(super) busy: HashMap<ItemId, DirectoryId>,
    /// Roots in which something was left out or failed.
    pub(super) spoilt: HashSet<RootId>,
    roots: HashMap<ItemId, RootId>,
    /// Ends the run early.
    cancel: Rc<watch::Sender<bool>>,
    /// Why the run cannot go on.
    pub(super) over: Option<Fault>,
    /// Why something is to be tried again in a later run.
    pub(super) again: Option<Fault>,
    /// Why the source of something that was copied stays.
    pub(super) kept: Option<Fault>,
    unreached: u32,
    /// That work has begun is told.
    started: bool,
    /// Items whose directory is missing at the destination.
    pub(super) orphans: Orphans,
    /// Whether anything was done in this run.
    pub(super) progress: Rc<Cell<bool>>,
    /// A directory is followed: files may come again.
    pub(super) follows: Option<Followed>,
}

impl Ledger {
    /// Nothing known yet.
    pub(super) fn new(outbox: Rc<Outbox>, finished: Keys, leniency: Leniency, cancel: Rc<watch::Sender<bool>>) -> Self {
        let progress = Rc::<Cell<bool>>::default();
        Self {
            exposed: Rc::new(Exposed::new(outbox.clone(), Rc::default(), progress.clone())),
            outbox,
            finished,
            leniency,
            moves: false,
            durable: false,
            items: HashMap::new(),
            sources: HashMap::new(),
            directories: HashMap::new(),
            busy: HashMap::new(),
            spoilt: HashSet::new(),
            roots: HashMap::new(),
            cancel,
            over: None,
            again: None,
            kept: None,
            unreached: 0,
            started: false,
            orphans: Orphans::default(),
            progress,
            follows: None,
        }
    }

    /// `progress` is to say whether anything was done.
    pub(super) fn with_progress(self, progress: Rc<Cell<bool>>) -> Self {
        let exposed = Exposed::new(self.outbox.clone(), self.exposed.hosts(), progress.clone());
        Self { exposed: Rc::new(exposed), progress, ..self }
    }

    /// The items will come once more, numbered anew.
    pub(super) fn start_over(&mut self, finished: Keys) {
        self.finished = finished;
        self.items.clear();
        self.sources.clear();
        self.directories.clear();
        self.busy.clear();
        self.spoilt.clear();
        self.roots.clear();
        self.unreached = 0;
    }

    /// An item is to be done; `source`: what a move deletes afterwards.
    pub(super) fn found(&mut self, item: &Item, subject: Subject, size: Option<u64>, source: impl FnOnce() -> Moved) {
        self.outbox.change(Change::Found { subject: subject.clone(), size });
        if self.moves {
            self.sources.insert(item.id, source());
        }
        self.items.insert(item.id, subject);
        self.roots.insert(item.id, item.root);
    }

    /// Something has happened in the copy.
    pub(super) fn take(&mut self, event: Event) {
        match event {
            Event::Tuned(_) if std::mem::replace(&mut self.started, true) => {}
            Event::Tuned(tuning) => self.outbox.occurrence(Occurrence::Started {
                concurrency: tuning.concurrency.value,
                parallelism: tuning.parallelism.value,
                pipelining: tuning.pipeline.value,
            }),
            Event::Progress(snapshot) => self.outbox.gauge(gauge(&snapshot)),
            Event::ItemDone { item, outcome, bytes, verification, .. } => {
                self.done(&item, outcome, bytes, verification)
            }
            Event::ItemSkipped { item, reason, .. } => self.skipped(item, reason),
            Event::ItemFailed(failure) => self.failed(&failure),
            Event::Retry { item, source, fault, retry_in, .. } => {
                if let Some(subject) = self.items.get(&item) {
                    self.outbox.change(Change::Retrying { subject: subject.clone() });
                }
                self.faulted(fault, source, Some(retry_in));
            }
            Event::SessionLost { fault, retry_in, .. } => self.faulted(fault, Vec::new(), retry_in),
            Event::GivenUp { fault } => self.give_up(fault),
            Event::CaughtUp { files } => self.outbox.occurrence(Occurrence::CaughtUp { files }),
            Event::CannotRead { source, fault } => self.faulted(fault, source, None),
            _ => {}
        }
    }

    fn done(&mut self, item: &Item, outcome: Outcome, bytes: u64, verification: Verification) {
        self.unreached = 0;
        match outcome {
            Outcome::DirectoryMade => {
                let Some(id) = self.busy.remove(&item.id) else { return };
                if let Some(directory) = self.directories.get_mut(&id) {
                    directory.made = true;
                }
                self.close(id, false);
            }
            Outcome::AttributesSet => {
                if let Some(id) = self.busy.remove(&item.id) {
                    self.close(id, true);
                }
            }
            Outcome::Copied | Outcome::Linked => {
                self.roots.remove(&item.id);
                let source = self.sources.remove(&item.id);
                let Some(subject) = self.items.remove(&item.id) else { return };
                let proven = outcome == Outcome::Linked
                    || matches!(verification, Verification::Verified { .. })
                    || item.size == Some(0);
                self.settled(&subject);
                let change = Some(Change::Done { subject, bytes, verification });
                let copied = Copied { change, moved: source.filter(|_| proven) };
                match outcome {
                    Outcome::Copied if self.durable => self.exposed.release(copied),
                    _ => self.exposed.add(copied),
                }
            }
        }
    }

    /// Only a comparison of contents ends so late that nothing is to be done.
    fn skipped(&mut self, item: ItemId, reason: SkipReason) {
        self.roots.remove(&item);
        let source = self.sources.remove(&item);
        let subject = self.items.remove(&item);
        if let Some(subject) = &subject {
            self.settled(subject);
        }
        let change = subject.map(|subject| Change::UpToDate { subject });
        match (source, reason) {
            (source @ Some(_), SkipReason::SameChecksum) => {
                return self.exposed.add(Copied { change, moved: source });
            }
            (Some(source), SkipReason::Differs) => {
                let fault =
                    Fault::new(FaultCode::SourceChanged, "compare").on_path(&source.source.path).side(Side::Source);
                let detail = "it was copied before, and is no more what its copy is: both stay";
                self.keep(source.source.path, fault.detail(detail));
            }
            _ => {}
        }
        if let Some(change) = change {
            self.progress.set(true);
            self.outbox.change(change);
        }
    }

    fn failed(&mut self, failure: &Failure) {
        let fault = &failure.fault;
        if fault.code == FaultCode::HostRestarted {
            // It is about no item: those that may be lost are not done yet.
            return;
        }
        if self.sources.remove(&failure.item).is_some() && !self.items.contains_key(&failure.item) {
            return self.not_compared(failure);
        }
        if let Some(id) = self.busy.remove(&failure.item) {
            if self.directories.get(&id).is_some_and(|directory| directory.made) {
                // It stands and holds everything: that it is somebody else's, who alone may set its time, fails nothing.
                self.faulted(fault.clone(), failure.destination.clone(), None);
                return self.close(id, true);
            }
            return self.directory_failed(id, fault);
        }
        let root = self.roots.remove(&failure.item);
        match self.items.remove(&failure.item) {
            Some(subject) => self.judge(root, subject, fault),
            // A later version of something that is final: the marker waits for it.
            None if self.follows.is_some() && self.leniency.fate(fault) != Fate::Failed => {
                self.again.get_or_insert_with(|| fault.clone());
            }
            None => {}
        }
    }

    /// A source that was copied before could not be compared with its copy.
    fn not_compared(&mut self, failure: &Failure) {
        let fault = &failure.fault;
        if fault.code == FaultCode::NotFound && fault.side == Some(Side::Source) {
            // Deleted, by this task or somebody.
            return;
        }
        match self.leniency.fate(fault) {
            Fate::Open | Fate::Again => self.unseen(fault),
            Fate::Skipped | Fate::Failed => self.keep(failure.source.clone(), fault.clone()),
        }
    }

    /// The source of something that was copied stays.
    fn keep(&mut self, path: Vec<u8>, fault: Fault) {
        self.faulted(fault.clone(), path, None);
        self.kept.get_or_insert(fault);
    }

    /// Something that is final could not be looked at again: what is in it, and is not final, waits for another run if that may help.
    pub(super) fn unseen(&mut self, fault: &Fault) {
        if self.over.is_some() {
            // What follows from that says nothing.
        } else if fate::is_about_login(fault) {
            self.give_up(fault.clone());
        } else if fate::is_about_server(fault) {
            self.unreached(fault);
        } else if fate::is_temporary(fault) || fault.code == FaultCode::Cancelled {
            self.again.get_or_insert_with(|| fault.clone());
        }
    }

    fn unreached(&mut self, fault: &Fault) {
        self.again.get_or_insert_with(|| fault.clone());
        self.unreached += 1;
        if self.unreached >= PATIENCE {
            self.give_up(fault.clone());
        }
    }

    /// An item cannot be done now, or ever.
    pub(super) fn judge(&mut self, root: Option<RootId>, subject: Subject, fault: &Fault) {
        self.spoilt.extend(root);
        if self.over.is_some() {
            // What follows from that says nothing about the item.
            return;
        }
        if self.follows.is_none() {
            match self.orphans.take(&subject, fault) {
                Orphan::No => {}
                Orphan::Kept => return,
                Orphan::Lost(fault) => return self.lost(subject, fault),
            }
        }
        if self.leniency.ends_task(fault) {
            self.give_up(fault.clone());
        } else if fate::is_about_server(fault) {
            self.unreached(fault);
        }
        match self.leniency.fate(fault) {
            Fate::Open => {}
            Fate::Again => {
                self.again.get_or_insert_with(|| fault.clone());
                self.faulted(fault.clone(), subject.key_path().to_vec(), None);
                self.outbox.change(Change::Retrying { subject });
            }
            Fate::Skipped | Fate::Failed if self.follows.is_some() => self.failed_for_now(subject, fault),
            Fate::Skipped => {
                self.progress.set(true);
                self.outbox.change(Change::SkippedError { subject, fault: fault.clone() });
            }
            Fate::Failed => {
                self.progress.set(true);
                self.outbox.change(Change::Failed { subject, fault: fault.clone() });
            }
        }
    }

    /// A directory cannot be made or listed, or its attributes cannot be set.
    pub(super) fn directory_failed(&mut self, id: DirectoryId, fault: &Fault) {
        let Some(directory) = self.directories.get_mut(&id) else { return };
        let told = std::mem::replace(&mut directory.told, true);
        let (subject, root) = (directory.subject.clone(), directory.root);
        if !told {
            self.judge(Some(root), subject, fault);
        } else if self.finished.contains(&subject) {
            self.unseen(fault);
        }
    }

    /// Ends a directory that stands and holds everything; `set`: its attributes are set, or it has none.
    pub(super) fn close(&mut self, id: DirectoryId, set: bool) {
        let is_setting = !set && self.busy.values().any(|busy| *busy == id);
        let Some(directory) = self.directories.get(&id) else { return };
        if !directory.made || !directory.ended || is_setting {
            return;
        }
        let Some(directory) = self.directories.remove(&id) else { return };
        if directory.told {
            return;
        }
        let subject = directory.subject;
        if directory.stood {
            return self.outbox.change(Change::UpToDate { subject });
        }
        let change = Change::Done { subject, bytes: 0, verification: Verification::NotAsked };
        self.exposed.add(Copied { change: Some(change), moved: None });
    }

    pub(super) fn faulted(&self, fault: Fault, path: Vec<u8>, retry_in: Option<f64>) {
        if fault.code != FaultCode::Cancelled {
            self.outbox.occurrence(Occurrence::Faulted { fault, path, retry_in });
        }
    }

    /// Nothing more can be done in this run.
    pub(super) fn give_up(&mut self, fault: Fault) {
        self.over.get_or_insert(fault);
        self.cancel.send_replace(true);
    }

    /// The subject of a plan's item.
    pub(super) fn subject(item: &Item, kind: ItemKind) -> Subject {
        Subject { kind, source: item.source.clone(), destination: item.destination.clone(), extra: false }
    }
}

fn gauge(snapshot: &Snapshot) -> Gauge {
    let bytes_in_flight = snapshot.active.iter().map(|item| item.bytes_done).sum();
    Gauge { bytes_in_flight, rate: snapshot.rate }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_was_started_anew_fails_no_item() {
        let (finished, cancel) = (Keys::new(vec![], vec![]), Rc::new(watch::channel(false).0));
        let mut ledger = Ledger::new(Rc::default(), finished, Leniency::default(), cancel);
        let failure = |code| Failure {
            item: ItemId(u64::MAX / 2 + 1),
            source: Vec::new(),
            destination: b"ftp://host".to_vec(),
            fault: Fault::new(code, "keep what was copied").side(Side::Destination),
            cause: String::new(),
            cure: String::new(),
        };
        ledger.failed(&failure(FaultCode::HostRestarted));
        assert!(ledger.over.is_none() && ledger.again.is_none());
        ledger.failed(&failure(FaultCode::NotFound));
        assert_eq!(ledger.outbox.len(), 0, "of an item that nobody knows nothing is told");
    }
}

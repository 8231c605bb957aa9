//! Mirroring: what the source does not have is deleted at the destination.
//!
//! Both ends are listed anew when everything is copied, so that what came or went meanwhile counts. What a filter leaves out is as if it were
//! at neither end: it is never deleted, nor is a directory that holds it. What has a name that the source has, too, is no extra,
//! whatever either is. What this task has copied is none either: its source may have been moved, or deleted by somebody, meanwhile.
//! What has a name of the source's in another spelling stays where that name is not shown: some file systems take both for one.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::rc::Rc;

use tokio::sync::mpsc;
use tokio::task::LocalSet;
use whimbrel_engine::Fault;
use whimbrel_engine::dispatch::{End, Occurrence, Subject, WorkItem};
use whimbrel_engine::listing::Object;
use whimbrel_engine::plan::{Action, Extra, Links, PlanOptions, RootId, SyncLevel};
use whimbrel_engine::task::ItemKind;

use super::copies::Copies;
use super::fate;
use super::hold::Standing;
use super::items;
use super::keys::Keys;
use super::options::usual;
use super::removal::{Aim, Found, Removal, root};
use super::report::Outbox;
use super::transfer::Run;
use crate::client::options::{CopyOptions, Jobs};
use crate::client::pair::DataWish;
use crate::client::plan::{Known, Planning, Sieve};
use crate::client::shared::Shared;

/// Read ahead.
const AHEAD: usize = 256;

/// Copies nothing; directories that cannot be read keep what they hold.
struct Watch {
    outbox: Rc<Outbox>,
    again: Rc<RefCell<Option<Fault>>>,
}

impl Sieve for Watch {
    async fn sift(&mut self, action: Action) -> Option<Action> {
        if let Action::Refuse { item, fault } = action {
            if fate::is_temporary(&fault) {
                self.again.borrow_mut().get_or_insert(fault);
            }
            self.outbox.occurrence(Occurrence::ExtraKept { directory: item.source });
        }
        None
    }
}

/// Deletes what the source does not have; how the task ends.
pub(super) async fn delete_extras(run: &Run<'_>) -> End {
    run.desk.outbox.flushed().await;
    // Everything that was copied is among them by now, and no source was deleted before.
    let Ok(finished) = Keys::fetch(&run.desk.line, &run.desk.hold).await else { return End::Stopped };
    run.ledger.borrow_mut().finished = Keys::default();
    let spoilt = std::mem::take(&mut run.ledger.borrow_mut().spoilt);
    let again = Rc::new(RefCell::new(None));
    let (sender, files) = mpsc::channel(AHEAD);
    let (extras, found) = mpsc::channel(AHEAD);
    let (to, removed) = mpsc::channel(AHEAD);
    let (raw, items) = mpsc::channel(AHEAD);
    let is_finished = |subject: &Subject| finished.contains(subject) || is_copy(&finished, &subject.destination);
    let progress = run.ledger.borrow().progress.clone();
    let removal = Removal {
        desk: run.desk,
        assignment: run.assignment,
        reach: run.destination,
        plan: PlanOptions { sync: SyncLevel::None, links: Links::Copy, avoids_links: false, ..run.plan_options() },
        aim: Aim::Extra,
        copies: Copies::default(),
        is_finished: &is_finished,
        progress: &progress,
    };
    let listing = LocalSet::new();
    let listing = listing.run_until(list(run, files, extras, again.clone()));
    let work = async {
        tokio::join!(
            items::feed(&run.desk.line, &run.desk.hold, raw, |item| item),
            choose(run, &spoilt, items, sender),
            listing,
            name(run, &finished, found, to),
            removal.run(removed),
        )
    };
    let ((), (), listed, (), tally) = tokio::select! {
        done = work => done,
        () = run.desk.hold.until(Standing::Stopping) => return End::Stopped,
    };
    let again = again.borrow_mut().take().or(tally.again);
    match (listed.err().or(tally.over), again) {
        (Some(fault), _) => run.ended_by(fault),
        (None, Some(fault)) => End::Again { fault, after: run.desk.after() },
        (None, None) => End::Finished,
    }
}

/// Items that are directories, as far as anybody knows, and in which nothing was left out for a fault.
async fn choose(
    run: &Run<'_>,
    spoilt: &HashSet<RootId>,
    mut items: mpsc::Receiver<WorkItem>,
    files: mpsc::Sender<Found>,
) {
    let number = Cell::new(0);
    while let Some(item) = items.recv().await {
        // Roots are numbered as they come.
        let root = RootId(number.get());
        number.set(number.get() + 1);
        if item.symlink || item.recursive == Some(false) || item.checksum.is_some() {
            continue;
        }
        if spoilt.contains(&root) {
            run.desk.outbox.occurrence(Occurrence::ExtraKept { directory: item.source });
        } else if files.send(run.found(item)).await.is_err() {
            return;
        }
    }
}

async fn list(
    run: &Run<'_>,
    files: mpsc::Receiver<Found>,
    extras: mpsc::Sender<Extra>,
    again: Rc<RefCell<Option<Fault>>>,
) -> Result<(), Fault> {
    let plan = PlanOptions { sync: SyncLevel::None, mirror: true, ..run.plan_options() };
    let options = CopyOptions { dry_run: true, ..usual(&run.desk.limits, &run.assignment.label, plan) };
    let shared = Rc::new(Shared::new(options, DataWish::plain(), Rc::default()));
    // Nothing passes the sieve.
    let (actions, _none) = mpsc::channel(1);
    let sieve = Watch { outbox: run.desk.outbox.clone(), again };
    Planning::new(shared, actions, sieve).telling_extras(extras).run(Jobs::Files(files), Known::default()).await
}

/// Whether this task has put something there.
fn is_copy(finished: &Keys, path: &[u8]) -> bool {
    let (kind, destination) = (ItemKind::File, path.to_vec());
    finished.contains(&Subject { kind, source: Vec::new(), destination, extra: false })
}

async fn name(run: &Run<'_>, finished: &Keys, mut found: mpsc::Receiver<Extra>, to: mpsc::Sender<Found>) {
    while let Some(extra) = found.recv().await {
        if is_copy(finished, &extra.path) {
            continue;
        }
        if extra.twin {
            run.desk.outbox.occurrence(Occurrence::TwinKept { path: extra.path });
            continue;
        }
        if to.send(root(run.destination, &extra.path, Ok(Some(as_listed(extra.kind))))).await.is_err() {
            return;
        }
    }
}

/// Something as a listing tells of it, as far as that matters to who removes it.
pub(super) fn as_listed(kind: ItemKind) -> Object {
    match kind {
        ItemKind::Directory => Object::directory(""),
        ItemKind::Symlink => Object::symlink("", ""),
        ItemKind::File => Object::file("", 0),
    }
}

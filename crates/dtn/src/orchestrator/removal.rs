//! Removes things: a plan is made of what is there, as for a copy, and carried out from the leaves.
//!
//! The planner lists many directories at once, never follows links, and ends a directory after everything in it. Commands go in that order
//! over one session, many ahead of their replies, so that a directory is asked for when all that was in it has been.

use std::cell::Cell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::LocalSet;
use tokio::time::sleep;
use whimbrel_engine::dispatch::{Assignment, Change, Occurrence, Subject};
use whimbrel_engine::listing::Object;
use whimbrel_engine::plan::{Action, DirectoryId, Item, PlanOptions, SkipReason};
use whimbrel_engine::progress::Verification;
use whimbrel_engine::task::ItemKind;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::op::{Op, OpId, Outcome};

use super::copies::Copies;
use super::fate::{self, Fate, Leniency};
use super::hold::Standing;
use super::look::{Look, Seen};
use super::options::usual;
use super::sift::deleted;
use super::site::Reach;
use super::work::Desk;
use crate::client::dtns::Dtns;
use crate::client::options::{CopyOptions, Demand, FoundFile, Jobs, Place};
use crate::client::pair::DataWish;
use crate::client::plan::{All, Known, Planning};
use crate::client::remote::{EndEvent, Remote};
use crate::client::shared::Shared;

/// Actions planned ahead.
const AHEAD: usize = 256;
/// Commands ahead of their replies. Real servers drop a connection with 500 waiting.
const WINDOW: usize = 100;

/// What is to be removed, as it comes.
pub(super) type Found = Result<FoundFile, Fault>;

/// What removing is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Aim {
    /// The user named it.
    Named {
        /// What is not there counts as removed.
        ignore_missing: bool,
    },
    /// The source of a mirror does not have it.
    Extra,
    /// Its copy is proven. Nothing is reported.
    Moved,
    /// Directories that are empty. Nothing is reported.
    Empty,
}

/// What came of it, beside what was reported of items.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Why nothing more could be done.
    pub(super) over: Option<Fault>,
    /// Why something is to be tried again.
    pub(super) again: Option<Fault>,
    /// Why something is not removed that nobody is told of otherwise.
    pub(super) failed: Option<Fault>,
}

/// Something at a site that is to be removed, with what is known of it.
pub(super) fn root(site: &Reach, path: &[u8], found: Result<Option<Object>, Fault>) -> Found {
    let source = site.place(path);
    // The plan is of a copy to nowhere.
    let destination = Place { target: None, path: source.path.clone() };
    Ok(FoundFile { source, destination, found, demand: Demand::default() })
}

/// Removes what comes.
pub(super) struct Removal<'a> {
    pub(super) desk: &'a Desk,
    pub(super) assignment: &'a Assignment,
    pub(super) reach: &'a Reach,
    pub(super) plan: PlanOptions,
    pub(super) aim: Aim,
    /// What is known of the copies of what was moved.
    pub(super) copies: Copies,
    /// Whether an item is final.
    pub(super) is_finished: &'a dyn Fn(&Subject) -> bool,
    pub(super) progress: &'a Rc<Cell<bool>>,
}

/// A command in the air.
struct Doing {
    subject: Subject,
    /// The directory that holds it.
    parent: Option<DirectoryId>,
    /// Itself, if it is one.
    directory: Option<DirectoryId>,
    /// Whether the directory is removed as a link is, ahead of what is in it: should it be one, nothing behind it may go.
    as_link: bool,
    path: Vec<u8>,
    /// Sent before over a session that broke.
    again: bool,
    /// What is asked of it first, and anew in each session.
    look: Option<Look>,
    /// Whether that was asked in this session.
    looked: bool,
}

impl Doing {
    /// Removes what is no directory, whatever it is by now.
    fn of(item: &Item, subject: Subject) -> Self {
        Self {
            subject,
            parent: item.parent,
            directory: None,
            as_link: false,
            path: item.source.clone(),
            again: false,
            look: None,
            looked: false,
        }
    }
}

struct Execution<'a> {
    removal: &'a Removal<'a>,
    dtns: Dtns,
    options: CopyOptions,
    remote: Option<Remote>,
    window: usize,
    /// To be sent, before anything that is planned.
    queue: VecDeque<Doing>,
    air: VecDeque<(OpId, Doing)>,
    /// Directories in which something is left, and why.
    failed: HashMap<DirectoryId, Fault>,
    /// What was called a directory and is gone as a link.
    unlinked: HashSet<DirectoryId>,
    /// Sessions that broke in a row.
    broken: u32,
    tally: Tally,
}

impl Removal<'_> {
    /// Removes until nothing more comes.
    pub(super) async fn run(&self, files: mpsc::Receiver<Found>) -> Tally {
        LocalSet::new().run_until(self.work(files)).await
    }

    async fn work(&self, files: mpsc::Receiver<Found>) -> Tally {
        let options =
            CopyOptions { dry_run: true, ..usual(&self.desk.limits, &self.assignment.label, self.plan.clone()) };
        let shared = Rc::new(Shared::new(options.clone(), DataWish::plain(), Rc::default()));
        let (actions, planned) = mpsc::channel(AHEAD);
        let planning = Planning::new(shared, actions, All).run(Jobs::Files(files), Known::default());
        let mut execution = Execution {
            removal: self,
            dtns: Dtns::default(),
            options,
            remote: None,
            window: WINDOW,
            queue: VecDeque::new(),
            air: VecDeque::new(),
            failed: HashMap::new(),
            unlinked: HashSet::new(),
            broken: 0,
            tally: Tally::default(),
        };
        let mut outcome = Ok(());
        {
            let executing = execution.run(planned);
            tokio::pin!(planning, executing);
            tokio::select! {
                result = &mut planning => {
                    outcome = result;
                    executing.await;
                }
                () = &mut executing => {}
            }
        }
        let mut tally = execution.tally;
        if let Err(fault) = outcome {
            tally.over.get_or_insert(fault);
        }
        tally
    }

    fn is_extra(&self) -> bool {
        self.aim == Aim::Extra
    }

    /// Whether items are the user's.
    fn is_told(&self) -> bool {
        matches!(self.aim, Aim::Named { .. } | Aim::Extra)
    }
}

impl Execution<'_> {
    async fn run(&mut self, mut planned: mpsc::Receiver<Action>) {
        let mut all = false;
        let hold = &self.removal.desk.hold;
        while self.tally.over.is_none() && !(all && self.queue.is_empty() && self.air.is_empty()) {
            let stopping = hold.standing() >= Standing::Stopping;
            if stopping && self.air.is_empty() {
                return;
            }
            if !self.queue.is_empty() && self.air.len() < self.window && !stopping {
                self.send().await;
                continue;
            }
            let wants = !all && !stopping && self.queue.is_empty() && self.air.len() < self.window;
            let awaits = !self.air.is_empty();
            tokio::select! {
                biased;
                event = next(&mut self.remote), if awaits => self.take(event).await,
                action = planned.recv(), if wants => match action {
                    Some(action) => {
                        tokio::select! {
                            () = self.removal.desk.outbox.room() => {}
                            () = hold.until(Standing::Stopping) => {}
                        }
                        self.plan(action);
                    }
                    None => all = true,
                },
                () = hold.until(Standing::Stopping), if !stopping => {}
            }
        }
    }

    fn plan(&mut self, action: Action) {
        let is_empty = self.removal.aim == Aim::Empty;
        match action {
            Action::Copy { item } | Action::CompareChecksum { item } if !is_empty => {
                let look = Look::at_file(item.size, item.modified);
                self.found(&item, ItemKind::File, look);
            }
            Action::Symlink { item, target } if !is_empty => {
                self.found(&item, ItemKind::Symlink, Look::at_link(target));
            }
            Action::Skip { item, reason: SkipReason::Unsupported } if !is_empty => {
                self.found(&item, ItemKind::File, Look::at_file(None, None));
            }
            Action::MakeDirectory { item, directory } if self.removal.is_told() => self.entered(&item, directory),
            Action::SetAttributes { item, directory } => self.directory(&item, directory),
            Action::Refuse { item, fault } => self.refused(&item, fault),
            _ => {}
        }
    }

    fn found(&mut self, item: &Item, kind: ItemKind, look: Look) {
        let subject = deleted(item, kind, self.removal.is_extra());
        let look = look.with_copy(self.removal.copies.borrow_mut().remove(&item.source));
        if (self.removal.is_finished)(&subject) {
            return;
        }
        self.tell_found(&subject);
        let look = Some(look).filter(|_| self.removal.aim == Aim::Moved);
        self.queue.push_back(Doing { look, ..Doing::of(item, subject) });
    }

    /// What is called a directory comes ahead of what is in it.
    fn entered(&mut self, item: &Item, id: DirectoryId) {
        let subject = deleted(item, ItemKind::Directory, self.removal.is_extra());
        if !self.removal.is_extra() {
            self.tell_found(&subject);
        }
        if (self.removal.is_finished)(&subject) || self.removal.reach.is_root(&item.source) {
            return;
        }
        self.queue.push_back(Doing { directory: Some(id), as_link: true, ..Doing::of(item, subject) });
    }

    fn directory(&mut self, item: &Item, id: DirectoryId) {
        let subject = deleted(item, ItemKind::Directory, self.removal.is_extra());
        let failed = self.failed.remove(&id);
        if (self.removal.is_finished)(&subject) || self.removal.reach.is_root(&item.source) {
            return;
        }
        if let Some(fault) = failed {
            return self.fail(subject, item.parent, fault);
        }
        self.queue.push_back(Doing { directory: Some(id), ..Doing::of(item, subject) });
    }

    /// What cannot be looked at, or must not be removed.
    fn refused(&mut self, item: &Item, fault: Fault) {
        if let Some(parent) = item.parent {
            // What is gone keeps no directory, and may have been a link that was taken for one.
            if fault.code != FaultCode::NotFound {
                self.failed.entry(parent).or_insert(fault);
            }
            return;
        }
        let subject = deleted(item, ItemKind::File, self.removal.is_extra());
        if (self.removal.is_finished)(&subject) {
            return;
        }
        self.tell_found(&subject);
        match fault.code {
            FaultCode::NotFound if self.removal.aim != (Aim::Named { ignore_missing: false }) => self.done(subject),
            _ => self.fail(subject, None, fault),
        }
    }

    async fn send(&mut self) {
        if self.remote.is_none() {
            return self.open().await;
        }
        let (Some(remote), Some(doing)) = (&mut self.remote, self.queue.pop_front()) else { return };
        if doing.as_link && remote.tells_links() {
            return;
        }
        let op = match (&doing.look, doing.directory) {
            (Some(look), _) if !doing.looked => look.op(&doing.path),
            (_, Some(_)) if !doing.as_link => Op::RemoveDirectory(doing.path.clone()),
            _ => Op::Delete(doing.path.clone()),
        };
        match remote.submit(op) {
            Ok(id) => self.air.push_back((id, doing)),
            Err(fault) if fault.code == FaultCode::InvalidPath && doing.as_link => drop(fault),
            Err(fault) if fault.code == FaultCode::InvalidPath => self.fail(doing.subject, doing.parent, fault),
            Err(fault) => {
                self.queue.push_front(doing);
                self.broke(fault).await;
            }
        }
    }

    async fn open(&mut self) {
        match self.dtns.dial(&self.removal.reach.target, &self.options.session, &[]).await {
            Ok((remote, _)) => {
                self.window = if remote.is_pipelined() { WINDOW } else { 1 };
                self.remote = Some(remote);
            }
            Err(fault) => self.broke(fault).await,
        }
    }

    async fn take(&mut self, event: Result<(OpId, EndEvent), Fault>) {
        match event {
            Ok((id, EndEvent::Done(result))) => {
                // Answers come in the order of the commands.
                let Some(at) = self.air.iter().position(|(op, _)| *op == id) else { return };
                let Some((_, doing)) = self.air.remove(at) else { return };
                self.broken = 0;
                match &doing.look {
                    Some(look) if !doing.looked => {
                        let seen = look.seen(&doing.path, result);
                        self.looked(doing, seen);
                    }
                    _ if doing.as_link => self.tried_as_link(&doing, &result),
                    _ => self.answered(doing, result),
                }
            }
            Ok((_, EndEvent::Notice(_))) => {}
            Err(fault) => self.broke(fault).await,
        }
    }

    /// A source goes if it still is what was copied.
    fn looked(&mut self, doing: Doing, seen: Result<Seen, Fault>) {
        match seen {
            Ok(Seen::Same) => self.queue.push_front(Doing { looked: true, ..doing }),
            Ok(Seen::Unclear(look)) => self.queue.push_front(Doing { look: Some(*look), ..doing }),
            Ok(Seen::Gone) => self.done(doing.subject),
            Ok(Seen::Copy) => {
                let fault = Fault::new(FaultCode::InvalidArgument, "delete").on_path(&doing.path).side(Side::Source);
                self.fail(doing.subject, doing.parent, fault.detail("its copy is the same file, and stays"));
            }
            Ok(Seen::Changed) => {
                let fault = Fault::new(FaultCode::SourceChanged, "delete").on_path(&doing.path).side(Side::Source);
                self.fail(doing.subject, doing.parent, fault.detail("it is no more what was copied, and stays"));
            }
            Err(fault) => self.fail(doing.subject, doing.parent, fault),
        }
    }

    /// DELE takes links, and no directories (unlink(2)): a refusal is what is to be expected.
    fn tried_as_link(&mut self, doing: &Doing, result: &Result<Outcome, Fault>) {
        let gone = match result {
            Ok(_) => true,
            // By the command whose reply was lost.
            Err(fault) => doing.again && fault.code == FaultCode::NotFound,
        };
        if gone || self.was_behind_link(doing) {
            self.unlinked.extend(doing.directory);
        }
    }

    fn was_behind_link(&self, doing: &Doing) -> bool {
        doing.parent.is_some_and(|parent| self.unlinked.contains(&parent))
    }

    fn answered(&mut self, doing: Doing, result: Result<Outcome, Fault>) {
        let gone = doing.again || doing.parent.is_some() || self.removal.aim != (Aim::Named { ignore_missing: false });
        let was_link = doing.directory.is_some_and(|id| self.unlinked.remove(&id));
        match result {
            Ok(_) => self.done(doing.subject),
            // Servers have many words for what is not there.
            Err(_) if was_link || self.was_behind_link(&doing) => self.done(doing.subject),
            Err(fault) if fault.code == FaultCode::NotFound && gone => self.done(doing.subject),
            Err(_) if doing.directory.is_some() && self.removal.aim == Aim::Empty => {}
            // What filters leave out is not touched, nor what holds it.
            Err(fault)
                if fault.code == FaultCode::DirectoryNotEmpty
                    && self.removal.is_extra()
                    && !self.removal.plan.filter.0.is_empty() => {}
            Err(fault) => {
                let left = doing.directory.and_then(|id| self.failed.remove(&id));
                self.fail(doing.subject, doing.parent, left.unwrap_or(fault));
            }
        }
    }

    /// The session is over: what is in the air is sent again.
    async fn broke(&mut self, fault: Fault) {
        self.remote = None;
        for (_, doing) in std::mem::take(&mut self.air).into_iter().rev() {
            self.queue.push_front(Doing { again: true, looked: false, ..doing });
        }
        self.broken += 1;
        let retry = &self.options.retry;
        if fate::is_about_login(&fault) || self.broken >= retry.attempts || !fate::is_temporary(&fault) {
            self.tally.over.get_or_insert(fault);
            return;
        }
        let wait = retry.longest_wait(self.broken);
        self.tell(fault, Vec::new(), Some(wait));
        tokio::select! {
            () = sleep(wait) => {}
            () = self.removal.desk.hold.until(Standing::Stopping) => {}
        }
    }

    fn tell_found(&self, subject: &Subject) {
        if self.removal.is_told() && !(self.removal.is_finished)(subject) {
            self.removal.desk.outbox.change(Change::Found { subject: subject.clone(), size: None });
        }
    }

    /// An extra directory may stay for what a filter leaves out in it: it is an item once that is known.
    fn tell_late(&self, subject: &Subject) {
        if self.removal.is_extra() && subject.kind == ItemKind::Directory {
            self.tell_found(subject);
        }
    }

    fn done(&self, subject: Subject) {
        if self.removal.is_told() {
            self.tell_late(&subject);
            self.removal.progress.set(true);
            let verification = Verification::NotAsked;
            self.removal.desk.outbox.change(Change::Done { subject, bytes: 0, verification });
        }
    }

    fn fail(&mut self, subject: Subject, parent: Option<DirectoryId>, fault: Fault) {
        let fault = fault.side_if_unknown(if self.removal.is_extra() { Side::Destination } else { Side::Source });
        if let Some(parent) = parent {
            self.failed.entry(parent).or_insert_with(|| fault.clone());
        }
        self.tell_late(&subject);
        let outbox = &self.removal.desk.outbox;
        let fate = Leniency::default().fate(&fault);
        match (fate, self.removal.is_told()) {
            // Nothing else says that what was copied stays, and why.
            (Fate::Again, false) if fault.code == FaultCode::SourceChanged => {
                self.tell(fault.clone(), subject.source, None);
                self.tally.again.get_or_insert(fault);
            }
            (Fate::Open, _) => drop(self.tally.over.get_or_insert(fault)),
            (Fate::Again, true) => {
                self.tell(fault.clone(), subject.key_path().to_vec(), None);
                outbox.change(Change::Retrying { subject });
                self.tally.again.get_or_insert(fault);
            }
            (_, true) => {
                self.removal.progress.set(true);
                outbox.change(Change::Failed { subject, fault });
            }
            (Fate::Again, false) => drop(self.tally.again.get_or_insert(fault)),
            (_, false) if self.removal.aim == Aim::Moved => {
                self.tell(fault.clone(), subject.source, None);
                self.tally.failed.get_or_insert(fault);
            }
            (_, false) => {}
        }
    }

    fn tell(&self, fault: Fault, path: Vec<u8>, retry_in: Option<Duration>) {
        let retry_in = retry_in.map(|wait| wait.as_secs_f64());
        self.removal.desk.outbox.occurrence(Occurrence::Faulted { fault, path, retry_in });
    }
}

async fn next(remote: &mut Option<Remote>) -> Result<(OpId, EndEvent), Fault> {
    match remote {
        Some(remote) => remote.event_in_time().await,
        None => std::future::pending().await,
    }
}

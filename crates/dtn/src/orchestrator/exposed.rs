//! Copies that a crash of their host could still take back: they count as done once they are durable.
//!
//! A sync for each small file would cost more than its copy. So what was copied waits here, and now and then all of it is made durable at once
//! ([`Barrier`]). What cannot be promised for a reason that may pass is copied again in a later run, as is what waited when its host was started anew.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::pin::Pin;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};
use tokio::time::{sleep, sleep_until};
use whimbrel_engine::dispatch::{Change, Occurrence};
use whimbrel_engine::retry::RetryPolicy;
use whimbrel_engine::task::ItemKind;
use whimbrel_engine::{Fault, FaultCode, Side};

use super::barrier::{Barrier, Promise};
use super::hold::{Hold, Standing};
use super::report::{Moved, Outbox};
use crate::client::hosts::Hosts;

/// Least time between two times of writing out.
const EVERY: Duration = Duration::from_secs(5);
/// A storage that takes long to write everything out is left alone for so many times as long.
const REST: u32 = 4;
/// Copies that wait for which it is not left alone.
const MANY: usize = 16_000;
/// Copies that may wait: planning stops where there are more.
const MOST: usize = 4 * MANY;
/// Failures in a row after which a run ends: what its servers promise no more would only pile up.
const PATIENCE: u32 = 3;
/// How long writing out may take once work on the task is to end.
const HURRY: Duration = Duration::from_secs(10);

/// Something that was copied, and what follows once it is durable.
#[derive(Debug)]
pub(super) struct Copied {
    /// What is reported then.
    pub(super) change: Option<Change>,
    /// The source that may be deleted then.
    pub(super) moved: Option<Moved>,
}

impl Copied {
    /// A directory on the file system that has it.
    fn directory(&self, base: &[u8]) -> Vec<u8> {
        let (path, is_directory) = match (&self.change, &self.moved) {
            (Some(change), _) => {
                let subject = change.subject();
                (subject.destination.as_slice(), subject.kind == ItemKind::Directory)
            }
            (None, Some(moved)) => (moved.copy.as_slice(), false),
            (None, None) => (base, true),
        };
        let path = path.strip_suffix(b"/").unwrap_or(path);
        let slash = path.iter().rposition(|&byte| byte == b'/').filter(|_| !is_directory);
        let directory = slash.map_or(path, |at| &path[..at]);
        // Nobody may look above what the collection shows.
        let directory = if directory.len() < base.len() { base } else { directory };
        if directory.is_empty() { b"/".to_vec() } else { directory.to_vec() }
    }
}

/// All of a run that wait.
#[derive(Debug, Default)]
pub(super) struct Exposed {
    outbox: Rc<Outbox>,
    hosts: Rc<Hosts>,
    waiting: RefCell<Vec<Copied>>,
    /// How often hosts were started anew when that was looked at last.
    restarts: Cell<u64>,
    /// Why another run is needed.
    lost: RefCell<Option<Fault>>,
    /// The servers make nothing durable at a client's wish: nothing waits.
    is_off: Cell<bool>,
    /// Something was released in this run.
    progress: Rc<Cell<bool>>,
    came: Notify,
    went: Notify,
}

impl Exposed {
    /// None yet. `hosts`: those of the destination, as the run's sessions meet them.
    pub(super) fn new(outbox: Rc<Outbox>, hosts: Rc<Hosts>, progress: Rc<Cell<bool>>) -> Self {
        Self { outbox, hosts, progress, ..Self::default() }
    }

    /// Something was copied.
    pub(super) fn add(&self, copied: Copied) {
        if self.is_off.get() {
            return self.release(copied);
        }
        self.look_for_restarts();
        self.waiting.borrow_mut().push(copied);
        self.came.notify_one();
    }

    /// Waits until enough of what waits is durable.
    pub(super) async fn room(&self) {
        while self.waiting.borrow().len() >= MOST {
            self.went.notified().await;
        }
    }

    /// Why the run has to be followed by another, if it has: something is to be copied again, or nothing can be made durable.
    pub(super) fn take_loss(&self) -> Option<Fault> {
        self.lost.borrow_mut().take()
    }

    /// The destination's hosts, as far as the run knows them.
    pub(super) fn hosts(&self) -> Rc<Hosts> {
        self.hosts.clone()
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.borrow().len()
    }

    /// Something was copied that is durable.
    pub(super) fn release(&self, copied: Copied) {
        if let Some(change) = copied.change {
            self.progress.set(true);
            self.outbox.change(change);
        }
        if let Some(moved) = copied.moved {
            self.outbox.moved(moved);
        }
    }

    /// The first so many are durable.
    fn kept(&self, count: usize) {
        let kept: Vec<Copied> = {
            let waiting = &mut *self.waiting.borrow_mut();
            let count = count.min(waiting.len());
            waiting.drain(..count).collect()
        };
        kept.into_iter().for_each(|copied| self.release(copied));
        self.went.notify_waiters();
    }

    /// Nothing is promised of what waits: it is copied again in a later run.
    fn give_back(&self, fault: &Fault) {
        let waiting = std::mem::take(&mut *self.waiting.borrow_mut());
        if waiting.is_empty() {
            return;
        }
        for change in waiting.into_iter().filter_map(|copied| copied.change) {
            self.outbox.change(Change::Retrying { subject: change.subject().clone() });
        }
        self.lost.borrow_mut().get_or_insert_with(|| fault.clone());
        self.went.notify_waiters();
    }

    /// What waited is lost, or may be, and that is told.
    fn lose(&self, fault: Fault) {
        if self.len() > 0 {
            let detail = format!("{} files and directories that were just copied are copied again", self.len());
            let fault = if fault.detail.is_empty() { fault.detail(detail) } else { fault };
            self.outbox.occurrence(Occurrence::Faulted { fault: fault.clone(), path: Vec::new(), retry_in: None });
            self.give_back(&fault);
        }
    }

    /// What waited when a host was started anew may be gone, empty or cut short.
    fn look_for_restarts(&self) {
        let restarts = self.hosts.restarts();
        if self.restarts.replace(restarts) != restarts {
            self.lose(Fault::new(FaultCode::HostRestarted, "keep what was copied").side(Side::Destination));
        }
    }

    /// Waits for something to wait, until `next` or until there is much of it; not before `not_before`.
    async fn due(&self, not_before: Instant, next: Instant) {
        sleep_until(not_before.into()).await;
        loop {
            match self.len() {
                0 => self.came.notified().await,
                MANY.. => return,
                _ => tokio::select! {
                    () = sleep_until(next.into()) => return,
                    () = self.came.notified() => {}
                },
            }
        }
    }
}

/// Who has copies made durable while others come.
pub(super) struct Keeper<'a> {
    pub(super) exposed: &'a Exposed,
    pub(super) barrier: Barrier<'a>,
    pub(super) hold: &'a Hold,
    pub(super) retry: &'a RetryPolicy,
    /// The collection's root.
    pub(super) base: &'a [u8],
    /// Ends the copy.
    pub(super) cancel: &'a watch::Sender<bool>,
}

/// How a copy stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Course {
    /// Files may come.
    Runs,
    /// It has come to its end.
    Ended,
    /// It was given up: its servers do not answer, or let nobody in.
    GivenUp,
}

impl<'a> Keeper<'a> {
    /// [`Keeper::run`], on the heap: logins are large, and are not to lie in the frames of the copy.
    #[inline(never)]
    pub(super) fn running(self, course: watch::Receiver<Course>) -> Pin<Box<dyn Future<Output = ()> + 'a>> {
        Box::pin(self.run(course))
    }

    /// Works until the copy has ended and nothing waits. What could not be made durable is given back.
    async fn run(mut self, mut course: watch::Receiver<Course>) {
        let (exposed, hold) = (self.exposed, self.hold);
        let mut ended = course.clone();
        let hurried = async {
            hold.until(Standing::Stopping).await;
            // Its sender lives as long as this.
            let _ = ended.wait_for(|course| *course != Course::Runs).await;
            tokio::select! {
                () = hold.until(Standing::Lost) => {}
                () = sleep(HURRY) => {}
            }
            Fault::new(FaultCode::Cancelled, "keep what was copied")
        };
        let why = tokio::select! {
            why = self.work(&mut course) => why,
            fault = hurried => Some(fault),
        };
        if let Some(fault) = why {
            exposed.give_back(&fault);
        }
    }

    /// Why what still waits in the end cannot be made durable.
    async fn work(&mut self, course: &mut watch::Receiver<Course>) -> Option<Fault> {
        self.meanwhile(course).await;
        let attempts = match *course.borrow() {
            Course::GivenUp => 1,
            _ => self.retry.attempts.max(1),
        };
        for attempt in 1..attempts {
            match self.write_out().await {
                Ok(()) => return None,
                Err(_) if self.hold.standing() >= Standing::Stopping => break,
                Err(fault) => tracing::info!(%fault, "what was copied is not durable yet"),
            }
            sleep(self.retry.longest_wait(attempt)).await;
        }
        self.write_out().await.err()
    }

    async fn meanwhile(&mut self, course: &mut watch::Receiver<Course>) {
        let mut ended = course.clone();
        let mut failures = 0;
        let (mut not_before, mut next) = (Instant::now(), Instant::now() + EVERY);
        tokio::select! {
            () = self.barrier.open() => {}
            _ = course.wait_for(|course| *course != Course::Runs) => return,
        }
        loop {
            tokio::select! {
                biased;
                _ = ended.wait_for(|course| *course != Course::Runs) => return,
                () = self.exposed.due(not_before, next) => {}
            }
            let began = Instant::now();
            match self.write_out().await {
                Ok(()) => {
                    failures = 0;
                    next = (began + EVERY).max(Instant::now() + began.elapsed() * REST);
                }
                Err(fault) => {
                    tracing::info!(%fault, "what was copied is not durable yet");
                    failures += 1;
                    not_before = Instant::now() + EVERY;
                    if failures >= PATIENCE {
                        self.end(fault);
                    }
                }
            }
        }
    }

    /// Ends the copy, to go on in a later run.
    fn end(&self, fault: Fault) {
        self.exposed.lost.borrow_mut().get_or_insert(fault);
        self.cancel.send_replace(true);
    }

    /// Makes durable what waits by now.
    ///
    /// # Errors
    /// Nobody knows yet whether it is.
    async fn write_out(&mut self) -> Result<(), Fault> {
        let exposed = self.exposed;
        let count = exposed.len();
        if count == 0 {
            return Ok(());
        }
        let directories: BTreeSet<Vec<u8>> =
            exposed.waiting.borrow().iter().map(|copied| copied.directory(self.base)).collect();
        let before = exposed.restarts.get();
        let promise = self.barrier.make_durable(&directories).await?;
        exposed.look_for_restarts();
        // What waited was given back, here or while servers were asked; nobody knows of what has come since when it was stored.
        let promise = match exposed.restarts.get() == before {
            true => promise,
            false => {
                Promise::Lost(Fault::new(FaultCode::HostRestarted, "keep what was copied").side(Side::Destination))
            }
        };
        match promise {
            Promise::Kept => exposed.kept(count),
            Promise::Lost(fault) => {
                exposed.lose(fault.clone());
                self.end(fault);
            }
            Promise::Never => {
                exposed.is_off.set(true);
                exposed.kept(usize::MAX);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_engine::dispatch::Subject;
    use whimbrel_engine::progress::Verification;

    use super::*;

    fn copied(destination: &str, kind: ItemKind) -> Copied {
        let (source, destination) = (b"/s".to_vec(), destination.as_bytes().to_vec());
        let subject = Subject { kind, source, destination, extra: false };
        let change = Change::Done { subject, bytes: 1, verification: Verification::NotAsked };
        Copied { change: Some(change), moved: None }
    }

    fn exposed() -> Exposed {
        Exposed::new(Rc::default(), Rc::default(), Rc::default())
    }

    #[test]
    fn nothing_counts_before_it_is_durable() {
        let exposed = exposed();
        for path in ["/d/1", "/d/2"] {
            exposed.add(copied(path, ItemKind::File));
        }
        assert_eq!((exposed.outbox.len(), exposed.progress.get()), (0, false));
        exposed.kept(1);
        assert_eq!((exposed.outbox.len(), exposed.len(), exposed.progress.get()), (1, 1, true));
        exposed.is_off.set(true);
        exposed.add(copied("/d/3", ItemKind::File));
        assert_eq!((exposed.outbox.len(), exposed.len()), (2, 1), "where nothing is promised nothing waits");
    }

    #[test]
    fn what_waits_when_a_host_is_started_anew_is_given_back_and_what_comes_later_is_not() {
        let exposed = exposed();
        exposed.hosts.saw_at("dtn", "host", "1");
        exposed.add(copied("/d/1", ItemKind::File));
        exposed.hosts.saw_at("dtn", "host", "2");
        exposed.add(copied("/d/2", ItemKind::File));
        assert_eq!(exposed.len(), 1);
        assert_eq!(exposed.outbox.len(), 2, "that it is copied again, and why");
        assert!(exposed.take_loss().is_some_and(|fault| fault.code == FaultCode::HostRestarted));
        assert!(exposed.take_loss().is_none() && !exposed.progress.get());
        exposed.kept(1);
        assert_eq!(exposed.outbox.len(), 3);
    }

    #[test]
    fn a_start_that_was_noticed_while_nothing_waited_costs_nothing() {
        let exposed = exposed();
        exposed.hosts.saw_at("dtn", "host", "1");
        exposed.hosts.saw_at("dtn", "host", "2");
        exposed.add(copied("/d/1", ItemKind::File));
        assert_eq!((exposed.len(), exposed.outbox.len()), (1, 0));
        assert!(exposed.take_loss().is_none());
    }

    #[test]
    fn a_directory_names_its_file_system_and_never_lies_above_the_collection() {
        let of = |path, kind, base: &str| String::from_utf8(copied(path, kind).directory(base.as_bytes())).unwrap();
        assert_eq!(of("/b/d/file", ItemKind::File, "/b"), "/b/d");
        assert_eq!(of("/b/d/", ItemKind::Directory, "/b"), "/b/d");
        assert_eq!(of("/b/file", ItemKind::File, "/b"), "/b");
        assert_eq!(of("/b", ItemKind::Directory, "/b"), "/b");
        assert_eq!(of("/file", ItemKind::Symlink, ""), "/");
    }

    #[tokio::test]
    async fn planning_waits_while_too_much_is_not_durable() {
        let exposed = exposed();
        let has_room = async || {
            tokio::select! {
                biased;
                () = exposed.room() => true,
                () = std::future::ready(()) => false,
            }
        };
        exposed.waiting.borrow_mut().extend((0..MOST).map(|_| copied("/d/1", ItemKind::File)));
        assert!(!has_room().await);
        exposed.kept(1);
        assert!(has_room().await);
    }
}

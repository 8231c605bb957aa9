//! What has happened goes to the service: in batches, in order, each until it is taken.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::pending;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::time::{sleep_until, timeout_at};
use whimbrel_engine::dispatch::{Change, End, Gauge, Occurrence, Report, Request, Response};
use whimbrel_engine::listing::Object;

use super::hold::{Hold, Line, Lost};
use super::keys::unexpected;

/// Most changes of one report.
const BATCH: usize = 1000;
/// Most occurrences of one report; a flood of faults says no more than its beginning.
const TOLD: usize = 100;
/// Entries that may wait; planning stops where there are more.
const ROOM: usize = 8 * BATCH;

/// A source that may be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Moved {
    /// As it was listed.
    pub(super) source: Object,
    /// Where its copy is.
    pub(super) copy: Vec<u8>,
}

/// What waits to be reported.
#[derive(Debug)]
enum Entry {
    Change(Change),
    Occurrence(Occurrence),
    /// Once everything before it is durable, this source may be deleted if it still is so.
    Moved(Moved),
    /// No further source may be deleted.
    AllMoved,
}

/// Where news of a task are left; never waits.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    entries: RefCell<VecDeque<Entry>>,
    gauge: Cell<Option<Gauge>>,
    closed: Cell<bool>,
    /// Nobody takes anything any more.
    abandoned: Cell<bool>,
    /// A report is on its way.
    sending: Cell<bool>,
    /// Sources that may be deleted and wait for that.
    sources: Cell<usize>,
    came: Notify,
    went: Notify,
}

impl Outbox {
    /// An item has changed.
    pub(super) fn change(&self, change: Change) {
        self.push(Entry::Change(change));
    }

    /// Something is worth telling.
    pub(super) fn occurrence(&self, occurrence: Occurrence) {
        self.push(Entry::Occurrence(occurrence));
    }

    /// A source was copied and proven: it goes to [`Reporter::moved`] when that is durable.
    pub(super) fn moved(&self, moved: Moved) {
        self.push(Entry::Moved(moved));
    }

    /// No more sources come.
    pub(super) fn all_moved(&self) {
        self.push(Entry::AllMoved);
    }

    /// How fast it goes.
    pub(super) fn gauge(&self, gauge: Gauge) {
        self.gauge.set(Some(gauge));
    }

    /// Nothing more will come.
    pub(super) fn close(&self) {
        self.closed.set(true);
        self.came.notify_one();
    }

    /// The lease is lost: what waits and what comes is of no use to anybody.
    pub(super) fn abandon(&self) {
        self.abandoned.set(true);
        self.entries.borrow_mut().clear();
        self.went.notify_waiters();
    }

    /// Waits until the service has taken enough of what waits.
    pub(super) async fn room(&self) {
        while self.entries.borrow().len() >= ROOM {
            self.went.notified().await;
        }
    }

    /// Waits until enough of the sources that may be deleted have gone.
    pub(super) async fn room_for_sources(&self) {
        while self.sources.get() >= ROOM {
            self.went.notified().await;
        }
    }

    /// A source that may be deleted is on its way to that.
    pub(super) fn source_taken(&self) {
        self.sources.set(self.sources.get().saturating_sub(1));
        self.went.notify_waiters();
    }

    /// Sources that may be deleted stay.
    pub(super) fn no_more_sources(&self) {
        self.sources.set(0);
        self.went.notify_waiters();
    }

    /// Waits until the service has taken all that has come so far.
    pub(super) async fn flushed(&self) {
        while !self.abandoned.get() && (self.sending.get() || !self.entries.borrow().is_empty()) {
            self.went.notified().await;
        }
    }

    fn push(&self, entry: Entry) {
        if !self.abandoned.get() {
            self.entries.borrow_mut().push_back(entry);
        }
        self.came.notify_one();
    }

    pub(super) fn len(&self) -> usize {
        self.entries.borrow().len()
    }
}

/// Sends what is left in an outbox.
pub(super) struct Reporter {
    outbox: Rc<Outbox>,
    line: Line,
    hold: Hold,
    sequence: u64,
    batch: Duration,
    every: Duration,
    measured: Instant,
    /// Sources that may be deleted now.
    pub(super) moved: Option<tokio::sync::mpsc::UnboundedSender<Moved>>,
}

impl Reporter {
    /// One that sends a batch when it is full or so old, and how fast it goes so often.
    pub(super) fn new(outbox: Rc<Outbox>, line: Line, hold: Hold, batch: Duration, every: Duration) -> Self {
        Self { outbox, line, hold, sequence: 0, batch, every, measured: Instant::now(), moved: None }
    }

    /// Sends until the outbox is closed and empty.
    pub(super) async fn run(&mut self) -> Result<(), Lost> {
        loop {
            if self.outbox.len() == 0 {
                if self.outbox.closed.get() {
                    return Ok(());
                }
                let gauge_due = async {
                    match self.outbox.gauge.get() {
                        Some(_) => sleep_until((self.measured + self.every).into()).await,
                        None => pending().await,
                    }
                };
                let tick = tokio::time::sleep(self.every);
                tokio::select! {
                    () = self.outbox.came.notified() => {}
                    () = gauge_due => self.send().await?,
                    () = tick => {}
                }
                continue;
            }
            let full_at = Instant::now() + self.batch;
            while self.outbox.len() < BATCH && !self.outbox.closed.get() {
                if timeout_at(full_at.into(), self.outbox.came.notified()).await.is_err() {
                    break;
                }
            }
            self.send().await?;
        }
    }

    async fn send(&mut self) -> Result<(), Lost> {
        self.outbox.sending.set(true);
        let (mut changes, mut occurrences, mut moved) = (Vec::new(), Vec::new(), Vec::new());
        let mut all_moved = false;
        while changes.len() < BATCH {
            match self.outbox.entries.borrow_mut().pop_front() {
                Some(Entry::Change(change)) => changes.push(change),
                Some(Entry::Occurrence(told)) if occurrences.len() < TOLD => occurrences.push(told),
                Some(Entry::Occurrence(_)) => {}
                Some(Entry::Moved(source)) => moved.push(source),
                Some(Entry::AllMoved) => all_moved = true,
                None => break,
            }
        }
        self.outbox.went.notify_waiters();
        self.measured = Instant::now();
        let gauge = self.outbox.gauge.take();
        if !changes.is_empty() || !occurrences.is_empty() || gauge.is_some() {
            self.tell(changes, occurrences, gauge, None).await?;
        }
        if let Some(sender) = &self.moved {
            for source in moved {
                // Nobody who deletes is left: the work has ended.
                if sender.send(source).is_ok() {
                    self.outbox.sources.set(self.outbox.sources.get() + 1);
                }
            }
        }
        if all_moved {
            self.moved = None;
        }
        self.outbox.sending.set(false);
        self.outbox.went.notify_waiters();
        Ok(())
    }

    /// The last report: everything before it is taken.
    pub(super) async fn end(&mut self, end: End) -> Result<(), Lost> {
        self.tell(Vec::new(), Vec::new(), None, Some(end)).await
    }

    async fn tell(
        &mut self,
        changes: Vec<Change>,
        occurrences: Vec<Occurrence>,
        gauge: Option<Gauge>,
        end: Option<End>,
    ) -> Result<(), Lost> {
        self.sequence += 1;
        let report = Report { lease: self.hold.lease, sequence: self.sequence, changes, occurrences, gauge, end };
        match self.line.insist(&self.hold, Request::Report(Box::new(report))).await? {
            Response::Taken => Ok(()),
            _ => Err(unexpected(&self.hold)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sources_that_wait_to_be_deleted_are_bounded_while_somebody_deletes() {
        let outbox = Outbox::default();
        let has_room = async || {
            tokio::select! {
                biased;
                () = outbox.room_for_sources() => true,
                () = std::future::ready(()) => false,
            }
        };
        outbox.sources.set(ROOM);
        assert!(!has_room().await);
        outbox.source_taken();
        assert!(has_room().await);
        outbox.sources.set(ROOM);
        outbox.no_more_sources();
        assert!(has_room().await);
    }
}

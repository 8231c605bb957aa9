//! One run of a transfer.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;

use tokio::sync::{mpsc, watch};
use whimbrel_engine::dispatch::{Assignment, Credential, End, WorkItem};
use whimbrel_engine::plan::PlanOptions;
use whimbrel_engine::task::TransferOptions;
use whimbrel_engine::{Fault, FaultCode};

use super::barrier::Barrier;
use super::exposed::{Course, Keeper};
use super::fate::{self, Leniency};
use super::follow;
use super::hold::{Lost, Standing};
use super::items;
use super::keys::Keys;
use super::ledger::Ledger;
use super::mirror;
use super::options::{self, Manner};
use super::parents::{self, Missing};
use super::report::Moved;
use super::roundup;
use super::sift::Sift;
use super::site::{self, Reach};
use super::work::Desk;
use crate::client::copy::copy_some;
use crate::client::options::{CopyOptions, FoundFile, Jobs, RateBound};

/// Items read ahead of planning.
const AHEAD: usize = 256;

/// What a run works with.
pub(super) struct Run<'a> {
    pub(super) desk: &'a Desk,
    pub(super) assignment: &'a Assignment,
    pub(super) options: &'a TransferOptions,
    pub(super) source: &'a Reach,
    pub(super) destination: &'a Reach,
    pub(super) ledger: Rc<RefCell<Ledger>>,
    pub(super) cancel: Rc<watch::Sender<bool>>,
}

impl Run<'_> {
    /// Copies, mirrors, and tidies up; how it ended.
    pub(super) async fn run(&self, moved: Option<mpsc::UnboundedReceiver<Moved>>) -> End {
        let copying = async {
            let end = self.copied().await;
            self.desk.outbox.all_moved();
            end
        };
        // Sources are deleted while others are copied.
        let (end, deleted) = tokio::join!(copying, roundup::delete_sources(self, moved));
        match (end, deleted) {
            (End::Finished, Err(fault)) => self.ended_by(fault),
            (End::Finished, Ok(())) if self.options.move_source => match roundup::remove_directories(self).await {
                Ok(()) => self.kept(),
                Err(fault) => self.ended_by(fault),
            },
            (end, _) => end,
        }
    }

    /// How a move ends that has nothing left to do.
    fn kept(&self) -> End {
        match self.ledger.borrow_mut().kept.take() {
            Some(fault) => End::Impossible { fault: roundup::not_all_deleted(fault) },
            None => End::Finished,
        }
    }

    async fn copied(&self) -> End {
        let mut may_repeat = true;
        loop {
            let outcome = self.copied_for_good().await;
            let end = self.end_of(outcome);
            if !matches!(end, End::Finished | End::Again { .. }) {
                return end;
            }
            match (parents::make(self, may_repeat).await, end) {
                (Err(fault), _) => return self.ended_by(fault),
                // Nothing is wrong: what is left goes on at once, with nothing to tell of.
                (Ok(Missing::Made(_)), End::Finished) if may_repeat => {
                    let Ok(()) = self.start_over().await else { return End::Stopped };
                    may_repeat = false;
                }
                // Each time some have failed for good.
                (Ok(Missing::More), End::Finished) => {
                    let Ok(()) = self.start_over().await else { return End::Stopped };
                }
                (Ok(Missing::Made(fault)), End::Finished) => return End::Again { fault, after: self.desk.after() },
                (Ok(Missing::None), End::Finished) if self.options.delete_extra => {
                    return mirror::delete_extras(self).await;
                }
                // What more is missing is met by the next run.
                (Ok(_), end) => return end,
            }
        }
    }

    /// Copies; what was copied counts once it is durable.
    async fn copied_for_good(&self) -> Result<(), Fault> {
        let exposed = self.ledger.borrow().exposed.clone();
        let (standing, course) = watch::channel(Course::Runs);
        let session = site::session(&self.assignment.label);
        let keeper = Keeper {
            exposed: &exposed,
            barrier: Barrier::new(&self.destination.target, session, exposed.hosts(), self.desk.outbox.clone()),
            hold: &self.desk.hold,
            retry: &self.desk.limits.retry,
            base: self.destination.base.as_bytes(),
            cancel: &self.cancel,
        };
        let copying = async {
            let outcome = self.copying().await;
            let is_given_up = outcome.is_err() || self.ledger.borrow().over.is_some();
            standing.send_replace(if is_given_up { Course::GivenUp } else { Course::Ended });
            outcome
        };
        let (outcome, ()) = tokio::join!(copying, keeper.running(course));
        let Some(fault) = exposed.take_loss() else { return outcome };
        self.ledger.borrow_mut().again.get_or_insert(fault);
        // That is what it was cancelled for.
        outcome.or_else(|other| if other.code == FaultCode::Cancelled { Ok(()) } else { Err(other) })
    }

    /// The items come once more; what is final by now is left out.
    async fn start_over(&self) -> Result<(), Lost> {
        self.desk.outbox.flushed().await;
        let finished = Keys::fetch(&self.desk.line, &self.desk.hold).await?;
        self.ledger.borrow_mut().start_over(finished);
        Ok(())
    }

    /// The copy, on the heap: its state is large, and is not to lie in the frames of all that wait for it.
    #[inline(never)]
    fn copying(&self) -> Pin<Box<dyn Future<Output = Result<(), Fault>> + '_>> {
        Box::pin(self.copy())
    }

    async fn copy(&self) -> Result<(), Fault> {
        if let Some(wanted) = &self.options.follow {
            return follow::follow(self, wanted).await;
        }
        let (sender, files) = mpsc::channel(AHEAD);
        let (line, hold) = (&self.desk.line, &self.desk.hold);
        let sieve = self.sieve();
        let copying = copy_some(Jobs::Files(files), self.copy_options(), self.cancel.subscribe(), sieve, |event| {
            self.ledger.borrow_mut().take(event);
        });
        let feeding = items::feed(line, hold, sender, |item| self.found(item));
        let work = async { tokio::join!(copying, feeding).0 };
        tokio::pin!(work);
        tokio::select! {
            outcome = &mut work => return outcome.map(drop),
            () = hold.until(Standing::Stopping) => self.cancel.send_replace(true),
        };
        work.await.map(drop)
    }

    /// An item as the client machinery takes it. One that cannot be understood is a fault of its own.
    pub(super) fn found(&self, item: WorkItem) -> Result<FoundFile, Fault> {
        options::found(self.source, self.destination, item)
    }

    /// Leaves out what is final.
    pub(super) fn sieve(&self) -> Sift {
        let exposed = self.ledger.borrow().exposed.clone();
        Sift { ledger: self.ledger.clone(), outbox: self.desk.outbox.clone(), exposed }
    }

    fn end_of(&self, outcome: Result<(), Fault>) -> End {
        let mut ledger = self.ledger.borrow_mut();
        if self.desk.hold.standing() >= Standing::Stopping {
            return End::Stopped;
        }
        match (ledger.over.take().or(outcome.err()), ledger.again.take()) {
            (Some(fault), _) => self.ended_by(fault),
            (None, Some(fault)) => End::Again { fault, after: self.desk.after() },
            (None, None) => End::Finished,
        }
    }

    /// How the task ends by a fault that is about all of it.
    pub(super) fn ended_by(&self, fault: Fault) -> End {
        let sites = std::iter::once(&self.assignment.source).chain(&self.assignment.destination);
        let credentials: Vec<Credential> = sites.map(|site| site.credential.clone()).collect();
        fate::end_by(fault, self.desk.after(), &credentials)
    }

    /// How directories are read, at either end.
    pub(super) fn plan_options(&self) -> PlanOptions {
        options::plan(self.options)
    }

    pub(super) fn copy_options(&self) -> CopyOptions {
        let manner = Manner { label: &self.assignment.label, max_concurrency: self.assignment.max_concurrency };
        CopyOptions {
            rate: RateBound::fixed(self.options.max_rate).and(self.desk.hold.rate()),
            relays: site::relays(&self.assignment.relays, &self.desk.line),
            hosts: self.ledger.borrow().exposed.hosts(),
            ..options::copy(&self.desk.limits, manner, self.options, [self.source, self.destination])
        }
    }
}

/// What the user allows.
pub(super) fn leniency(options: &TransferOptions) -> Leniency {
    let TransferOptions { skip_source_errors, fail_on_quota_errors, .. } = *options;
    Leniency { skip_source_errors, fail_on_quota_errors }
}

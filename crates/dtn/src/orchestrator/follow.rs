//! A directory that is copied while programs write it: `cp --follow` as a task.
//!
//! The items are the record, as of any task. Another run lists the directory again; what is final in the record is compared by size and time
//! with its copy when it comes first, and copied only if it was written since. Within a run the rules of [`crate::client::follow`] decide, whatever the
//! destination says.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use uuid::Uuid;
use whimbrel_engine::dispatch::{Change, Subject, key};
use whimbrel_engine::plan::PlanOptions;
use whimbrel_engine::task::{Follow, ItemKind};
use whimbrel_engine::{Fault, FaultCode, Side};

use super::hold::Standing;
use super::items;
use super::ledger::Ledger;
use super::transfer::Run;
use crate::client::follow::{Ends, FollowOptions, follow_some};
use crate::client::options::{CopyOptions, FoundFile};

/// Longest time between two looks at everything, seconds; a look that takes long is made more rarely.
const LONGEST: u32 = 10;

/// Follows until the marker is copied, or work on the task ends.
pub(super) async fn follow(run: &Run<'_>, wanted: &Follow) -> Result<(), Fault> {
    let FoundFile { source, destination, found, .. } = named(run).await?;
    found?;
    let seconds = wanted.settled_after_seconds.max(1);
    let options = FollowOptions {
        source,
        destination,
        until: wanted.until.clone().map(String::into_bytes),
        scan_interval: Some(Duration::from_secs(seconds.min(LONGEST).into())),
        quiet_time: Duration::from_secs(seconds.into()),
        include_hidden: wanted.include_hidden,
    };
    run.ledger.borrow_mut().follows = Some(Followed::default());
    let copy = run.copy_options();
    // Files only are handed over.
    let copy = CopyOptions { plan: PlanOptions { recursive: false, ..copy.plan }, ..copy };
    let sieve = run.sieve();
    let compared = |path: &[u8]| run.ledger.borrow_mut().comes_again(path);
    // Nobody asks for an early end of the watching alone.
    let (_watching, stop) = watch::channel(false);
    let ends = Ends { stop, cancel: run.cancel.subscribe() };
    let work = follow_some(options, copy, ends, (sieve, compared), |event| run.ledger.borrow_mut().take(event));
    tokio::pin!(work);
    let hold = &run.desk.hold;
    let outcome = tokio::select! {
        outcome = &mut work => outcome,
        () = hold.until(Standing::Stopping) => {
            run.cancel.send_replace(true);
            work.await
        }
    };
    if hold.standing() < Standing::Stopping && outcome.is_ok() {
        run.ledger.borrow_mut().end_following();
    }
    outcome.map(drop)
}

/// The one directory that the user named.
async fn named(run: &Run<'_>) -> Result<FoundFile, Fault> {
    let (to, mut items) = mpsc::channel(2);
    let (line, hold) = (&run.desk.line, &run.desk.hold);
    let feeding = items::feed(line, hold, to, |item| run.found(item));
    let reading = async move { (items.recv().await, items.recv().await) };
    let wrong = || Fault::new(FaultCode::InvalidArgument, "follow").side(Side::Service);
    match tokio::join!(feeding, reading).1 {
        (Some(found), None) => found,
        (None, _) if hold.standing() >= Standing::Stopping => Err(Fault::new(FaultCode::Cancelled, "follow")),
        _ => Err(wrong().detail("exactly one directory can be followed")),
    }
}

/// What else is known of a run that follows a directory.
#[derive(Debug, Default)]
pub(super) struct Followed {
    /// Items that came to their end in this run, which nothing changes any more.
    done: HashSet<Uuid>,
    /// Items that were final before, and came again.
    again: HashSet<Uuid>,
    /// Items that failed: a later version may make that good.
    failed: HashMap<Uuid, (Subject, Fault)>,
}

impl Ledger {
    /// Whether an item came to its end, in this run or an earlier one.
    pub(super) fn is_final(&self, subject: &Subject) -> bool {
        let here = self.follows.as_ref().is_some_and(|followed| followed.done.contains(&key(subject)));
        here || self.finished.contains(subject)
    }

    /// Whether a followed file that is handed over was final before this run, and comes for the first time in it: its copy is there, unless it
    /// was written since.
    pub(super) fn comes_again(&mut self, destination: &[u8]) -> bool {
        let (kind, destination) = (ItemKind::File, destination.to_vec());
        let subject = Subject { kind, source: Vec::new(), destination, extra: false };
        let is_final = self.finished.contains(&subject);
        is_final && self.follows.as_mut().is_some_and(|followed| followed.again.insert(key(&subject)))
    }

    /// An item of a followed directory is done.
    pub(super) fn settled(&mut self, subject: &Subject) {
        if let Some(followed) = &mut self.follows {
            let key = key(subject);
            followed.failed.remove(&key);
            followed.done.insert(key);
        }
    }

    /// Nothing comes any more: what failed, and no later version has made good, has failed.
    pub(super) fn end_following(&mut self) {
        let Some(followed) = self.follows.take() else { return };
        // It is tried again, or another goes on.
        if self.over.is_some() || self.again.is_some() {
            return;
        }
        for (subject, fault) in followed.failed.into_values() {
            self.outbox.change(Change::Failed { subject, fault });
        }
    }

    /// An item cannot be done as it is.
    pub(super) fn failed_for_now(&mut self, subject: Subject, fault: &Fault) {
        self.faulted(fault.clone(), subject.key_path().to_vec(), None);
        self.outbox.change(Change::Retrying { subject: subject.clone() });
        if let Some(followed) = &mut self.follows {
            followed.failed.insert(key(&subject), (subject, fault.clone()));
        }
    }
}

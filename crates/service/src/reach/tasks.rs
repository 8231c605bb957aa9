//! What a task rests on while it lasts: its owner's rights, and what its collections demand. Looked at anew with every lease and
//! with every poll, for whoever submitted it may not do any more what they might then.

use sha2::{Digest as _, Sha256};
use uuid::Uuid;
use whimbrel_engine::dispatch::{Site, Work};
use whimbrel_engine::listing::Timestamp;
use whimbrel_engine::{Fault, FaultCode, Side};

use super::{OP, TOKEN_REUSE, lost, unavailable};
use crate::Service;
use crate::desk::operations::Answer;
use crate::desk::{Halt, Pending, Reached, Sites};
use crate::endpoints::lookup::Limits;
use crate::endpoints::records::Collection;
use crate::endpoints::{Location, Rights, Want};
use crate::grid::Logins;
use crate::http::ApiError;
use crate::task::{Task, TaskEnd, TaskWork};

/// Items that are looked at in one go.
const PAGE: u32 = 1000;

/// One end of a task, if its owner may still use it.
#[derive(Debug)]
struct Footing {
    collection: Collection,
    location: Location,
    rights: Rights,
    /// Which credential is shown at stock servers; `None`: none, or a token of ours.
    serial: Option<Uuid>,
}

/// Both ends.
#[derive(Debug)]
struct Footings {
    source: Footing,
    destination: Option<Footing>,
}

impl Footings {
    fn limits(&self) -> Limits {
        let there = self.destination.as_ref().map(|there| there.location.limits);
        there.unwrap_or_default().and(self.source.location.limits)
    }

    /// All that a lease rests on, as one text.
    fn basis(&self) -> String {
        let mut digest = Sha256::new();
        for end in std::iter::once(&self.source).chain(&self.destination) {
            let Footing { location: Location { base, sharer, limits, .. }, rights, serial, .. } = end;
            let credential = serial.map(|serial| format!(" {serial}")).unwrap_or_default();
            digest.update(format!("{base:?} {sharer:?} {limits:?} {rights:?}{credential};"));
        }
        digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl Service {
    /// Both ends of a task.
    ///
    /// # Errors
    /// `NotAuthorized`: its owner may not use one of them any more. `CredentialMissing`, `CredentialExpired`: they have to register
    /// one.
    async fn footings(&self, task: &Task) -> Result<Footings, Fault> {
        let wanted = &task.wanted;
        let source = self.footing(wanted.owner, &wanted.source).await?;
        let destination = match &wanted.destination {
            Some(end) => Some(self.footing(wanted.owner, end).await?),
            None => None,
        };
        Ok(Footings { source, destination })
    }

    async fn footing(&self, owner: Uuid, end: &TaskEnd) -> Result<Footing, Fault> {
        let gone = |detail: &str| refused(&end.display_name, detail);
        let told = |error: ApiError| lost(error, &end.display_name);
        let identity = self.identity(owner).await.map_err(unavailable)?;
        let Some(identity) = identity.filter(|identity| !identity.disabled) else {
            return Err(gone("the account of the task's owner is closed"));
        };
        let collection = self.collection(end.collection).await.map_err(told)?.record;
        if let Some(reason) = self.unshared(&collection).await.map_err(unavailable)? {
            return Err(gone(reason));
        }
        let location = self.location(&collection).await.map_err(told)?;
        if location.base.trim_end_matches('/') != end.base {
            return Err(gone("its root was moved since the task was submitted: submit it again"));
        }
        let standing = self.standing_of(owner, identity.admin, &collection).await.map_err(unavailable)?;
        let rules = self.rules_of(collection.id).await.map_err(unavailable)?;
        let now = self.clock.now();
        let rights = Rights::of(&standing.who, &collection, &standing.own, &rules, &location.base, now);
        if rights.is_empty() || !self.is_visible(&standing, &collection).await.map_err(unavailable)? {
            return Err(gone("the task's owner may not use it any more"));
        }
        let serial = match self.logins(&location).await.map_err(unavailable)? {
            Logins::Proxy => Some(self.good_credential(&collection, &location, owner).await?.serial),
            Logins::Token | Logins::Nothing => None,
        };
        Ok(Footing { collection, location, rights, serial })
    }

    /// Halts a task for which a pause rule holds.
    async fn goes_on(&self, task: &Task) -> Result<(), Halt> {
        let rules = self.task_pauses(task).await.map_err(unavailable)?;
        rules.into_iter().next().map_or(Ok(()), |rule| Err(Halt::Paused(rule.message)))
    }

    /// Refuses a task of which a path that its owner named is not theirs any more.
    async fn check_items(&self, task: &Task, ends: &Footings) -> Result<(), Fault> {
        let is_whole = |end: &Footing| end.rights.is_whole(&end.location.base);
        if is_whole(&ends.source) && ends.destination.as_ref().is_none_or(is_whole) {
            return Ok(());
        }
        let mut after = 0;
        loop {
            let items = self.store.submitted_items(task.id, after, PAGE).await.map_err(Fault::from)?;
            let Some(last) = items.last() else { return Ok(()) };
            after = last.number;
            for item in &items {
                check(&ends.source, &item.source, task.wanted.work.of_sources())?;
                if let Some(there) = &ends.destination {
                    check(there, &item.destination, Want::Write)?;
                }
            }
        }
    }
}

fn check(end: &Footing, path: &[u8], want: Want) -> Result<(), Fault> {
    if std::str::from_utf8(path).is_ok_and(|path| end.rights.allow(path, want)) {
        return Ok(());
    }
    let verb = if want == Want::Read { "read" } else { "change" };
    let detail = format!("the task's owner may not {verb} that any more");
    Err(refused(&end.collection.about.display_name, &detail).on_path(path))
}

fn refused(subject: &str, detail: &str) -> Fault {
    Fault::new(FaultCode::NotAuthorized, OP).side(Side::Service).subject(subject).detail(detail)
}

impl Sites for Service {
    fn basis<'a>(&'a self, task: &'a Task) -> Pending<'a, Result<String, Halt>> {
        Box::pin(async move {
            let ends = self.footings(task).await?;
            self.goes_on(task).await?;
            Ok(ends.basis())
        })
    }

    fn rates<'a>(&'a self, tasks: &'a [Task]) -> Pending<'a, Result<Vec<Option<u64>>, Fault>> {
        Box::pin(async move { self.rates_of(tasks).await.map_err(unavailable) })
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn renewed_after(&self) -> i64 {
        TOKEN_REUSE
    }

    fn answered_elsewhere(&self, operation: Uuid, answer: Answer) -> Pending<'_, ()> {
        Box::pin(self.pass_on(operation, answer))
    }

    fn of_task<'a>(&'a self, task: &'a Task) -> Pending<'a, Result<Reached, Halt>> {
        Box::pin(async move {
            let ends = self.footings(task).await?;
            self.goes_on(task).await?;
            let basis = ends.basis();
            if task.basis.as_ref() != Some(&basis) {
                self.check_items(task, &ends).await?;
            }
            let wanted = &task.wanted;
            let site = async |footing: &Footing, end: &TaskEnd, want| {
                let parts = (&footing.collection, &footing.location, &footing.rights);
                self.site_at(parts, wanted.owner, end.local_user.as_deref(), want).await
            };
            let source = site(&ends.source, &wanted.source, wanted.work.of_sources()).await?;
            let destination = match (&ends.destination, &wanted.destination) {
                (Some(footing), Some(end)) => Some(site(footing, end, Want::Write).await?),
                _ => None,
            };
            let relays = match &destination {
                Some(there) if takes_none(&source) && takes_none(there) => self.relays(wanted.owner).await?,
                _ => Vec::new(),
            };
            let limits = ends.limits();
            let work = work(&wanted.work, limits)?;
            Ok(Reached { work, source, destination, relays, max_concurrency: limits.concurrency, basis })
        })
    }
}

/// Whether one of its servers takes no connections.
fn takes_none(site: &Site) -> bool {
    site.servers.iter().any(|server| server.rendezvous.is_some())
}

/// What is to be done, as the collections demand it by now.
fn work(work: &TaskWork, limits: Limits) -> Result<Work, Fault> {
    match work {
        TaskWork::Delete(options) => Ok(Work::Delete(*options)),
        TaskWork::Transfer(options) => {
            let options = limits
                .demand(options)
                .map_err(|detail| Fault::new(FaultCode::NotSupported, OP).side(Side::Service).detail(detail))?;
            Ok(Work::Transfer(Box::new(options)))
        }
    }
}

//! Answers orchestrators: who works on what, under which lease and with which credential.

pub mod operations;
pub mod routes;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout_at};
use uuid::Uuid;
use whimbrel_engine::dispatch::{
    Assignment, End, Lease, OperationKind, Order, POLL_SECONDS, Report, Request, Response, Site, Work,
};
use whimbrel_engine::listing::Timestamp;
use whimbrel_engine::{Fault, FaultCode, Side};

use crate::clock;
use crate::store::{Reported, Store, StoreError};
use crate::task::{Task, TaskWork};
use operations::{Answer, Operations};

/// How often the store is asked for work that came by another replica.
const LOOK: Duration = Duration::from_secs(1);

/// An orchestrator whose poll was answered comes again within this time.
const NEXT_POLL: Duration = Duration::from_secs(5);

/// Operations that one poll is given.
const OPERATIONS_AT_ONCE: usize = 32;

/// Items, or keys of items, in one page.
const PAGE: u32 = 1000;

/// Time for a single operation: a user waits.
pub(crate) const OPERATION_LIMIT: Duration = Duration::from_secs(60);

/// Most leases for which it is known when their credentials were given out; of others they are given out once more.
const MOST_SHOWN: usize = 10_000;

/// A future of a trait's method.
pub type Pending<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Why a task does not go on.
#[derive(Debug)]
pub enum Halt {
    /// Its owner may not use a collection any more (permanent), or none of its servers is there (temporary).
    Fault(Fault),
    /// Its owner has registered no credential for stock servers, or it has ended.
    Credential(Fault),
    /// A pause rule holds; its words.
    Paused(String),
}

impl From<Fault> for Halt {
    fn from(fault: Fault) -> Self {
        match fault.code {
            FaultCode::CredentialMissing | FaultCode::CredentialExpired => Self::Credential(fault),
            _ => Self::Fault(fault),
        }
    }
}

/// A task as it is to be carried out now.
#[derive(Debug)]
pub struct Reached {
    /// What is to be done, as the collections demand it.
    pub work: Work,
    /// The source, or where is deleted, with a fresh credential.
    pub source: Site,
    /// The destination; `None` for deletions.
    pub destination: Option<Site>,
    /// Where both ends meet if neither takes connections, the best one first.
    pub relays: Vec<Site>,
    /// Most sessions at once.
    pub max_concurrency: Option<u32>,
    /// See [`Sites::basis`].
    pub basis: String,
}

/// Who knows how tasks' collections are reached now.
pub trait Sites: Send + Sync {
    /// What a task rests on now: another text whenever its owner may do something else, or a collection demands something else.
    ///
    /// # Errors
    /// The task may not go on.
    fn basis<'a>(&'a self, task: &'a Task) -> Pending<'a, Result<String, Halt>>;

    /// Bytes per second of each of these tasks, which run; `None`: no bound but those that their servers keep by themselves.
    ///
    /// # Errors
    /// Nobody can tell now.
    fn rates<'a>(&'a self, tasks: &'a [Task]) -> Pending<'a, Result<Vec<Option<u64>>, Fault>>;

    /// A task as it is to be carried out now.
    ///
    /// # Errors
    /// The task may not go on, or cannot now.
    fn of_task<'a>(&'a self, task: &'a Task) -> Pending<'a, Result<Reached, Halt>>;

    /// The time by which credentials end.
    fn now(&self) -> Timestamp;

    /// Seconds after which a task that goes on is given fresh credentials: long before the former ones end.
    fn renewed_after(&self) -> i64;

    /// Takes an answer that nobody waits for here: they do at another desk, or no longer.
    fn answered_elsewhere(&self, operation: Uuid, answer: Answer) -> Pending<'_, ()>;
}

/// How many tasks run at once.
#[derive(Debug, Clone, Copy)]
pub struct Slots {
    /// Of one owner.
    pub of_owner: u32,
}

impl Default for Slots {
    fn default() -> Self {
        Self { of_owner: 3 }
    }
}

/// The desk; clones are the same one.
#[derive(Clone)]
pub struct Desk {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    slots: Slots,
    operations: Operations,
    /// Rung when there may be something to do.
    bell: Notify,
    polls: Polls,
    /// When the credentials of leases were given out.
    shown: Mutex<HashMap<Lease, Timestamp>>,
}

/// Whether orchestrators ask for work here.
#[derive(Debug, Default)]
struct Polls {
    open: AtomicUsize,
    last: Mutex<Option<Instant>>,
}

impl Polls {
    fn begin(&self) -> Polling<'_> {
        self.open.fetch_add(1, Ordering::SeqCst);
        Polling(self)
    }

    fn come(&self) -> bool {
        let last = *self.last.lock().expect("nothing panics with it");
        self.open.load(Ordering::SeqCst) > 0 || last.is_some_and(|last| last.elapsed() < NEXT_POLL)
    }
}

/// A poll that is being answered.
struct Polling<'a>(&'a Polls);

impl Drop for Polling<'_> {
    fn drop(&mut self) {
        *self.0.last.lock().expect("nothing panics with it") = Some(Instant::now());
        self.0.open.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Who polls.
#[derive(Clone, Copy)]
struct Holder<'a> {
    orchestrator: Uuid,
    running: &'a [Lease],
    /// Those of them on which work ends already.
    ending: &'a [Lease],
}

impl Desk {
    /// A desk over a store.
    pub fn new(store: Store, slots: Slots) -> Self {
        let (operations, bell, polls) = (Operations::default(), Notify::new(), Polls::default());
        let shown = Mutex::default();
        Self { inner: Arc::new(Inner { store, slots, operations, bell, polls, shown }) }
    }

    /// Says that there may be something to do: a task came, or is to stop.
    pub fn ring(&self) {
        self.inner.bell.notify_waiters();
    }

    /// Has a single operation done by an orchestrator.
    ///
    /// # Errors
    /// What the server said, or that nobody did it in time.
    pub async fn operate(&self, site: Site, kind: OperationKind) -> Answer {
        self.inner.operations.carry_out(site, kind, OPERATION_LIMIT, || self.ring()).await
    }

    /// Whether some orchestrator asks for work here.
    pub fn is_asked(&self) -> bool {
        self.inner.polls.come()
    }

    /// Hands on what an orchestrator says of an operation, or gives it back: nobody here waits for it.
    pub fn answered(&self, operation: Uuid, answer: Answer) -> Option<Answer> {
        self.inner.operations.answered(operation, answer)
    }

    /// Answers an orchestrator.
    ///
    /// # Errors
    /// The store cannot be used: nothing was done, and the same may be asked again.
    pub async fn answer(&self, sites: &dyn Sites, request: Request) -> Result<Response, Fault> {
        self.inner.answer(sites, request).await.map_err(Fault::from)
    }
}

impl Inner {
    async fn answer(&self, sites: &dyn Sites, request: Request) -> Result<Response, StoreError> {
        match request {
            Request::Begin { orchestrator } => {
                if self.store.release_all(orchestrator).await? > 0 {
                    self.bell.notify_waiters();
                }
                Ok(Response::Taken)
            }
            Request::Poll { orchestrator, free, running, ending } => {
                let of = Holder { orchestrator, running: &running, ending: &ending };
                self.poll(sites, free, of).await
            }
            Request::Items { lease, after } => self.held(lease, self.items(lease.task, after)).await,
            Request::Finished { lease, after } => self.held(lease, self.finished(lease.task, after)).await,
            Request::Report(report) => {
                let (lease, stopped) = (report.lease, matches!(report.end, Some(End::Stopped)));
                Ok(match self.store.report(*report, clock::now()).await? {
                    Reported::Taken(_) => {
                        if stopped {
                            // The rest of it may be anybody's at once.
                            self.bell.notify_waiters();
                        }
                        Response::Taken
                    }
                    Reported::LeaseLost => Response::LeaseLost { lease },
                })
            }
            Request::Answer { operation, result } => {
                if let Some(foreign) = self.operations.answered(operation, result) {
                    sites.answered_elsewhere(operation, foreign).await;
                }
                Ok(Response::Taken)
            }
        }
    }

    /// Answers what only the holder of a lease is told.
    async fn held(
        &self,
        lease: Lease,
        answer: impl Future<Output = Result<Response, StoreError>>,
    ) -> Result<Response, StoreError> {
        if self.store.holds(lease).await? { answer.await } else { Ok(Response::LeaseLost { lease }) }
    }

    async fn items(&self, task: Uuid, after: u64) -> Result<Response, StoreError> {
        Ok(Response::Items { items: self.store.submitted_items(task, after, PAGE).await? })
    }

    async fn finished(&self, task: Uuid, after: u64) -> Result<Response, StoreError> {
        let page = self.store.finished_keys(task, after, PAGE).await?;
        Ok(Response::Finished { keys: page.keys, failed: page.failed, next: page.next })
    }

    /// Waits for something to do; leases are renewed as it begins.
    async fn poll(
        &self,
        sites: &dyn Sites,
        free: u32,
        Holder { orchestrator, running, ending: told }: Holder<'_>,
    ) -> Result<Response, StoreError> {
        let _polling = self.polls.begin();
        let until = Instant::now() + Duration::from_secs(POLL_SECONDS);
        let mut ending = self.store.renew(orchestrator, running, clock::now()).await?;
        let held = self.store.held(orchestrator, running).await?;
        ending.extend(self.unfounded(sites, &held).await?);
        loop {
            // Whoever rings after this line is heard below.
            let rung = self.bell.notified();
            // Who has heard it once ends as soon as may be: to say it anew would be answered by a poll at once.
            let news: Vec<_> = ending.iter().filter(|lease| !told.contains(lease)).copied().collect();
            let mut orders = self.orders(sites, orchestrator, free, &news).await?;
            if !orders.is_empty() || self.operations.is_waited_for() || Instant::now() >= until {
                orders.extend(self.rates(sites, &held, &ending).await?);
                orders.extend(self.renewals(sites, &held, &ending).await);
                // Last, for nothing fails from here on: what is taken and not told is waited for in vain.
                let operations = self.operations.take(OPERATIONS_AT_ONCE);
                orders.extend(operations.into_iter().map(|operation| Order::Operate(Box::new(operation))));
                return Ok(Response::Orders { orders });
            }
            // A ring, the time of a look, or the end of the poll: each is looked into in the same way.
            let _heard = timeout_at(until, async {
                tokio::select! {
                    () = rung => {}
                    () = sleep(LOOK) => {}
                }
            })
            .await;
            ending = self.store.ending(orchestrator, running).await?;
        }
    }

    /// Leases that rest on what is not so any more: work on them ends, and what may be done of the task begins anew.
    async fn unfounded(&self, sites: &dyn Sites, held: &[Task]) -> Result<Vec<Lease>, StoreError> {
        let mut unfounded = Vec::new();
        for task in held {
            let stands = match sites.basis(task).await {
                Ok(basis) => task.basis.as_ref() == Some(&basis),
                Err(Halt::Paused(message)) => !self.store.pause_by_rule(task.id, &message, clock::now()).await?,
                // Nobody can tell now; the orchestrator asks again soon, and its lease runs out if that does not help.
                Err(Halt::Fault(fault)) if fault.is_temporary() => {
                    return Err(StoreError::Unavailable(fault.to_string()));
                }
                Err(Halt::Fault(_) | Halt::Credential(_)) => false,
            };
            unfounded.extend((!stands).then_some(Lease { task: task.id, epoch: task.epoch }));
        }
        Ok(unfounded)
    }

    /// The rates of tasks that run. Nobody is woken by them, and every answer says them anew: what an answer that was lost said, the
    /// next one says.
    async fn rates(&self, sites: &dyn Sites, held: &[Task], ending: &[Lease]) -> Result<Vec<Order>, StoreError> {
        let lease = |task: &Task| Lease { task: task.id, epoch: task.epoch };
        let is_copy = |task: &&Task| matches!(task.wanted.work, TaskWork::Transfer(_));
        let copies: Vec<_> =
            held.iter().filter(is_copy).filter(|task| !ending.contains(&lease(task))).cloned().collect();
        let rates = sites.rates(&copies).await.map_err(|fault| StoreError::Unavailable(fault.to_string()))?;
        Ok(copies.iter().zip(rates).map(|(task, most)| Order::Rate { lease: lease(task), most }).collect())
    }

    /// Fresh credentials for tasks that go on. What an answer that was lost said comes again long before the former ones end.
    async fn renewals(&self, sites: &dyn Sites, held: &[Task], ending: &[Lease]) -> Vec<Order> {
        let mut orders = Vec::new();
        for task in held {
            let lease = Lease { task: task.id, epoch: task.epoch };
            if ending.contains(&lease) || !self.is_stale(sites, lease) {
                continue;
            }
            match sites.of_task(task).await {
                Ok(Reached { source, destination, .. }) => {
                    self.show(sites, lease);
                    let (source, destination) = (Box::new(source), destination.map(Box::new));
                    orders.push(Order::Sites { lease, source, destination });
                }
                // What it rests on is looked at by every poll.
                Err(halt) => tracing::info!(?halt, task = %lease.task, "no fresh credentials for a task"),
            }
        }
        orders
    }

    fn is_stale(&self, sites: &dyn Sites, lease: Lease) -> bool {
        let shown = self.shown.lock().expect("nothing panics with it");
        shown.get(&lease).is_none_or(|at| sites.now().secs - at.secs >= sites.renewed_after())
    }

    fn show(&self, sites: &dyn Sites, lease: Lease) {
        let mut shown = self.shown.lock().expect("nothing panics with it");
        if shown.len() >= MOST_SHOWN {
            shown.clear();
        }
        shown.insert(lease, sites.now());
    }

    async fn orders(
        &self,
        sites: &dyn Sites,
        orchestrator: Uuid,
        free: u32,
        ending: &[Lease],
    ) -> Result<Vec<Order>, StoreError> {
        let mut orders: Vec<_> = ending.iter().map(|&lease| Order::Stop { lease }).collect();
        if free > 0 {
            let leased = self.store.lease(orchestrator, clock::now(), free, self.slots.of_owner).await?;
            for (task, lease) in leased {
                orders
                    .extend(self.assign(sites, task, lease).await?.map(|assignment| Order::Run(Box::new(assignment))));
            }
        }
        Ok(orders)
    }

    /// What an orchestrator needs for a task; a task whose collections cannot be reached is put off, or over.
    async fn assign(&self, sites: &dyn Sites, task: Task, lease: Lease) -> Result<Option<Assignment>, StoreError> {
        let end = match sites.of_task(&task).await {
            Ok(reached) => {
                // Noted first: what is given out without it would never be taken back.
                self.store.rest_on(lease, &reached.basis).await?;
                let Reached { work, source, destination, relays, max_concurrency, basis: _ } = reached;
                let rates = sites.rates(std::slice::from_ref(&task)).await;
                let max_rate = rates.map_err(|fault| StoreError::Unavailable(fault.to_string()))?.pop().flatten();
                let label = task.wanted.label.unwrap_or_default();
                self.show(sites, lease);
                return Ok(Some(Assignment {
                    lease,
                    work,
                    source,
                    destination,
                    relays,
                    label,
                    max_concurrency,
                    max_rate,
                }));
            }
            Err(Halt::Paused(message)) => {
                self.store.pause_by_rule(task.id, &message, clock::now()).await?;
                self.store.release(lease).await?;
                return Ok(None);
            }
            Err(Halt::Credential(fault)) => End::NeedsCredential { fault },
            Err(Halt::Fault(fault)) => {
                let fault = fault.side_if_unknown(Side::Service);
                if fault.is_temporary() { End::Again { fault, after: 10.0 } } else { End::Impossible { fault } }
            }
        };
        let (changes, occurrences) = (Vec::new(), Vec::new());
        let report = Report { lease, sequence: 1, changes, occurrences, gauge: None, end: Some(end) };
        self.store.report(report, clock::now()).await?;
        Ok(None)
    }
}

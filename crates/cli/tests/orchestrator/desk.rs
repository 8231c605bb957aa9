//! A naive service in memory: it keeps what it is told, and complains of what a real one would refuse.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::timeout;
use uuid::Uuid;
use whimbrel_dtn::orchestrator::Desk;
use whimbrel_engine::dispatch::{
    Assignment, Change, End, Lease, Occurrence, Operation, OperationKind, OperationResult, Order, Report, Request,
    Response, Site, Subject, WorkItem, key,
};
use whimbrel_engine::task::{ItemKind, ItemState};
use whimbrel_engine::{Fault, FaultCode};

/// Longest wait of a poll here.
const POLL: Duration = Duration::from_millis(200);
/// Items and keys of a page: small, so that there are several.
const PAGE: usize = 7;

/// What is known of an item.
#[derive(Debug, Clone)]
pub struct Record {
    pub subject: Subject,
    pub state: ItemState,
    pub fault: Option<Fault>,
}

/// A task.
pub struct Task {
    pub assignment: Assignment,
    items: Vec<WorkItem>,
    held: bool,
    waiting: bool,
    sequence: u64,
    pub reports: u64,
    pub records: BTreeMap<Uuid, Record>,
    pub occurrences: Vec<Occurrence>,
    pub end: Option<End>,
}

#[derive(Default)]
struct State {
    tasks: BTreeMap<Uuid, Task>,
    orders: VecDeque<Order>,
    answers: BTreeMap<Uuid, Result<OperationResult, Fault>>,
    complaints: Vec<String>,
    asked: u64,
    /// Every so many answers to reports are lost on their way.
    losing: Option<u64>,
    /// Nobody is answered.
    mute: bool,
    /// What the last poll named.
    named: Vec<Lease>,
    /// And of that what it said ends already.
    ending: Vec<Lease>,
    /// Reports of items that are done are not taken.
    incredulous: bool,
    /// Items that were said to be done in a report that was not taken.
    unheard: usize,
    /// Files of a task that are put on record; once there are so many, no report of it is taken.
    deaf_after: Option<usize>,
}

/// The service.
#[derive(Default)]
pub struct Service {
    state: Mutex<State>,
    changed: Notify,
}

impl Desk for Service {
    async fn ask(&self, request: Request) -> Result<Response, Fault> {
        if let Request::Poll { running, ending, .. } = &request {
            let mut state = self.lock();
            state.named.clone_from(running);
            state.ending.clone_from(ending);
        }
        if self.lock().mute {
            return Err(silent());
        }
        match request {
            Request::Begin { .. } => Ok(Response::Taken),
            Request::Poll { free, running, .. } => {
                if let Some(lost) = running.iter().find(|lease| !self.is_current(lease)) {
                    return Ok(Response::LeaseLost { lease: *lost });
                }
                let mut orders = self.orders(free);
                if orders.is_empty() {
                    let _ = timeout(POLL, self.changed.notified()).await;
                    orders = self.orders(free);
                }
                Ok(Response::Orders { orders })
            }
            Request::Items { lease, after } => Ok(self.of(lease, |task| {
                let page = task.items.iter().filter(|item| item.number > after).take(PAGE);
                Response::Items { items: page.cloned().collect() }
            })),
            Request::Finished { lease, after } => Ok(self.of(lease, |task| {
                let last = task.records.iter().filter(|(_, record)| record.state.is_final());
                let page: Vec<_> = last.skip(after as usize).take(PAGE).collect();
                let is_failed = |record: &Record| matches!(record.state, ItemState::Failed | ItemState::SkippedError);
                let failed = page.iter().filter(|(_, record)| is_failed(record)).map(|(key, _)| **key).collect();
                let keys = page.iter().map(|(key, _)| **key).collect();
                Response::Finished { next: after + page.len() as u64, keys, failed }
            })),
            Request::Report(report) => self.report(*report),
            Request::Answer { operation, result } => {
                self.lock().answers.insert(operation, result);
                self.changed.notify_waiters();
                Ok(Response::Taken)
            }
        }
    }
}

impl Service {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// A task that waits for an orchestrator.
    pub fn submit(&self, assignment: Assignment, items: Vec<WorkItem>) {
        self.submit_known(assignment, items, Vec::new());
    }

    /// A task that was worked on before.
    pub fn submit_known(&self, assignment: Assignment, items: Vec<WorkItem>, known: Vec<(Subject, ItemState)>) {
        let record = |(subject, state): (Subject, ItemState)| (key(&subject), Record { subject, state, fault: None });
        let task = Task {
            items,
            held: false,
            waiting: true,
            sequence: 0,
            reports: 0,
            records: known.into_iter().map(record).collect(),
            occurrences: Vec::new(),
            end: None,
            assignment,
        };
        self.lock().tasks.insert(task.assignment.lease.task, task);
        self.changed.notify_waiters();
    }

    /// Has it worked on again.
    pub fn again(&self, task: Uuid) {
        let mut state = self.lock();
        let task = state.tasks.get_mut(&task).unwrap();
        (task.waiting, task.held, task.end) = (true, false, None);
        drop(state);
        self.changed.notify_waiters();
    }

    pub fn stop(&self, task: Uuid) {
        self.order(task, |lease| Order::Stop { lease });
    }

    /// Most bytes a second from now on.
    pub fn rate(&self, task: Uuid, most: Option<u64>) {
        self.order(task, |lease| Order::Rate { lease, most });
    }

    fn order(&self, task: Uuid, order: impl FnOnce(Lease) -> Order) {
        let mut state = self.lock();
        let lease = state.tasks[&task].assignment.lease;
        state.orders.push_back(order(lease));
        drop(state);
        self.changed.notify_waiters();
    }

    /// Whether all orders were taken.
    pub fn has_no_orders(&self) -> bool {
        self.lock().orders.is_empty()
    }

    /// From now on every so many answers to reports are lost.
    pub fn lose_answers(&self, every: u64) {
        self.lock().losing = Some(every);
    }

    /// Takes no reports of a task once so many of its files are on record; 0: none at all.
    pub fn deaf_after(&self, files: Option<usize>) {
        self.lock().deaf_after = files;
    }

    /// Whether no report of items that are done is taken from now on.
    pub fn incredulous(&self, incredulous: bool) {
        self.lock().incredulous = incredulous;
    }

    /// Whether nobody is answered from now on.
    pub fn mute(&self, mute: bool) {
        self.lock().mute = mute;
    }

    /// What the last poll named.
    pub fn named(&self) -> Vec<Lease> {
        self.lock().named.clone()
    }

    /// What the last poll said ends already.
    pub fn ending(&self) -> Vec<Lease> {
        self.lock().ending.clone()
    }

    /// Items that were said to be done in a report that was not taken.
    pub fn unheard(&self) -> usize {
        self.lock().unheard
    }

    pub fn operate(&self, site: &Site, kind: OperationKind) -> Uuid {
        let mut state = self.lock();
        state.asked += 1;
        let id = Uuid::from_u128(u128::from(state.asked));
        state.orders.push_back(Order::Operate(Box::new(Operation { id, site: site.clone(), kind })));
        drop(state);
        self.changed.notify_waiters();
        id
    }

    pub fn answer(&self, operation: Uuid) -> Option<Result<OperationResult, Fault>> {
        self.lock().answers.remove(&operation)
    }

    /// What there is of a task.
    pub fn see<R>(&self, task: Uuid, see: impl FnOnce(&Task) -> R) -> R {
        see(&self.lock().tasks[&task])
    }

    /// Panics if the orchestrator did what none may do.
    #[track_caller]
    pub fn assert_content(&self) {
        assert!(self.lock().complaints.is_empty(), "{:#?}", self.lock().complaints);
    }

    fn orders(&self, free: u32) -> Vec<Order> {
        let mut state = self.lock();
        let mut orders: Vec<Order> = state.orders.drain(..).collect();
        for task in state.tasks.values_mut().filter(|task| task.waiting && !task.held).take(free as usize) {
            (task.held, task.waiting, task.sequence) = (true, false, 0);
            task.assignment.lease.epoch += 1;
            orders.push(Order::Run(Box::new(task.assignment.clone())));
        }
        orders
    }

    fn is_current(&self, lease: &Lease) -> bool {
        self.lock().tasks.get(&lease.task).is_some_and(|task| task.assignment.lease == *lease && task.held)
    }

    fn of(&self, lease: Lease, answer: impl FnOnce(&mut Task) -> Response) -> Response {
        if !self.is_current(&lease) {
            return Response::LeaseLost { lease };
        }
        answer(self.lock().tasks.get_mut(&lease.task).unwrap())
    }

    fn report(&self, report: Report) -> Result<Response, Fault> {
        let lease = report.lease;
        if !self.is_current(&lease) {
            return Ok(Response::LeaseLost { lease });
        }
        let mut state = self.lock();
        let State { tasks, complaints, losing, deaf_after, incredulous, unheard, .. } = &mut *state;
        let task = tasks.get_mut(&lease.task).unwrap();
        let done = report.changes.iter().filter(|change| matches!(change, Change::Done { .. })).count();
        let is_deaf = deaf_after.is_some_and(|most| task.count(ItemKind::File, ItemState::Succeeded) >= most);
        if is_deaf || (*incredulous && done > 0) {
            *unheard = done;
            return Err(silent());
        }
        if report.sequence == task.sequence {
            return Ok(Response::Taken);
        }
        if report.sequence != task.sequence + 1 {
            complaints.push(format!("report {} came after {}", report.sequence, task.sequence));
        }
        (task.sequence, task.reports) = (report.sequence, task.reports + 1);
        report.changes.into_iter().for_each(|change| task.change(change, complaints));
        task.occurrences.extend(report.occurrences);
        if let Some(end) = report.end {
            (task.end, task.held) = (Some(end), false);
        }
        let lost = losing.is_some_and(|every| task.reports % every == 0);
        drop(state);
        self.changed.notify_waiters();
        if lost { Err(silent()) } else { Ok(Response::Taken) }
    }
}

fn silent() -> Fault {
    Fault::new(FaultCode::TimedOut, "ask the service")
}

impl Task {
    fn change(&mut self, change: Change, complaints: &mut Vec<String>) {
        let subject = change.subject().clone();
        let (state, fault) = match change {
            Change::Found { .. } => (ItemState::Pending, None),
            Change::Done { .. } => (ItemState::Succeeded, None),
            Change::UpToDate { .. } => (ItemState::UpToDate, None),
            Change::Retrying { .. } => (ItemState::Retrying, None),
            Change::SkippedError { fault, .. } => (ItemState::SkippedError, Some(fault)),
            Change::Failed { fault, .. } => (ItemState::Failed, Some(fault)),
        };
        let known = self.records.get(&key(&subject));
        match known {
            // Found again, an item stays what it is.
            Some(_) if state == ItemState::Pending => return,
            Some(known) if known.state.is_final() => {
                complaints.push(format!("{subject:?} was {:?} and became {state:?}", known.state));
            }
            None if state != ItemState::Pending => complaints.push(format!("{subject:?} was never found")),
            _ => {}
        }
        self.records.insert(key(&subject), Record { subject, state, fault });
    }

    /// Paths of items in a state, by where they go; sorted.
    pub fn paths(&self, state: ItemState) -> Vec<String> {
        let those = self.records.values().filter(|record| record.state == state);
        let mut paths: Vec<String> =
            those.map(|record| String::from_utf8_lossy(record.subject.key_path()).into_owned()).collect();
        paths.sort();
        paths
    }

    pub fn count(&self, kind: ItemKind, state: ItemState) -> usize {
        self.records.values().filter(|record| record.state == state && record.subject.kind == kind).count()
    }

    pub fn open(&self) -> usize {
        self.records.values().filter(|record| !record.state.is_final()).count()
    }
}

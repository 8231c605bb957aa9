//! The store beside naive models in memory: whatever comes in whatever order, both say the same.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use uuid::Uuid;
use whimbrel_engine::dispatch::{Change, End, LEASE_SECONDS, Lease, Report, key};
use whimbrel_engine::fault::FaultCode;
use whimbrel_engine::task::{Counters, ItemKind, ItemRecord, ItemState, Status};
use whimbrel_service::store::{AuditEntry, AuditQuery, Batch, Reported, Store, StoreError, Versioned};
use whimbrel_service::task::Task;

use crate::made::{self, MANY, at, fault, file, id, submitted, transfer};
use crate::records::Thing;

/// Runs `check` with values of a strategy; where it fails, the smallest values that do are shown.
pub fn run<S: Strategy>(cases: u32, strategy: S, check: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    if let Err(error) = TestRunner::new(config).run(&strategy, check) {
        panic!("{error}");
    }
}

#[derive(Debug, Clone)]
pub enum RecordStep {
    Insert(Thing),
    /// Of something read once, by its place among all reads.
    Update(usize, Thing),
    Delete(usize),
    DeleteId(String),
    Require(usize),
}

fn any_thing() -> impl Strategy<Value = Thing> {
    ("[abc]", "[xy]", "[mno]").prop_map(|(id, owner, name)| Thing { id, owner, name })
}

pub fn batches() -> impl Strategy<Value = Vec<Vec<RecordStep>>> {
    let read = 0..1000usize;
    let step = prop_oneof![
        3 => any_thing().prop_map(RecordStep::Insert),
        3 => (read.clone(), any_thing()).prop_map(|(read, thing)| RecordStep::Update(read, thing)),
        1 => read.clone().prop_map(RecordStep::Delete),
        1 => "[abc]".prop_map(RecordStep::DeleteId),
        1 => read.prop_map(RecordStep::Require),
    ];
    prop::collection::vec(prop::collection::vec(step, 1..4), 1..25)
}

/// Records by identity, each with a stamp that no other version of anything has.
#[derive(Debug, Clone, Default)]
struct Records {
    things: BTreeMap<String, (Thing, u64)>,
    stamps: u64,
}

impl Records {
    fn put(&mut self, thing: Thing) -> bool {
        let is_taken = self.things.values().any(|(other, _)| other.id != thing.id && other.name == thing.name);
        self.stamps += 1;
        self.things.insert(thing.id.clone(), (thing, self.stamps));
        !is_taken
    }

    fn is(&self, read: &(Versioned<Thing>, u64)) -> bool {
        self.things.get(&read.0.record.id).is_some_and(|(_, stamp)| *stamp == read.1)
    }
}

/// Batches of changes decided by reads that may be old.
pub async fn records(store: &Store, batches: Vec<Vec<RecordStep>>) -> Result<(), TestCaseError> {
    let mut model = Records::default();
    let mut reads: Vec<(Versioned<Thing>, u64)> = Vec::new();
    let mut entries = store.audit(&AuditQuery::default(), 10_000).await.unwrap().len();
    for left in store.list::<Thing>(None, 10).await.unwrap() {
        store.apply(Batch::new().delete(&left)).await.unwrap();
    }
    for steps in batches {
        let mut next = model.clone();
        let mut batch = Batch::new().audit(AuditEntry::new(at(1), "ada", "act", "x"));
        let mut is_right = true;
        for step in steps {
            let read = |place: usize| (!reads.is_empty()).then(|| &reads[place % reads.len()]);
            match step {
                RecordStep::Insert(thing) => {
                    batch = batch.insert(&thing);
                    is_right &= !next.things.contains_key(&thing.id) && next.put(thing);
                }
                RecordStep::Update(place, thing) => {
                    let Some(read) = read(place) else { continue };
                    let thing = Thing { id: read.0.record.id.clone(), ..thing };
                    batch = batch.update(&Versioned { record: thing.clone(), version: read.0.version });
                    is_right &= next.is(read) && next.put(thing);
                }
                RecordStep::Delete(place) => {
                    let Some(read) = read(place) else { continue };
                    batch = batch.delete(&read.0);
                    is_right &= next.is(read) && next.things.remove(&read.0.record.id).is_some();
                }
                RecordStep::DeleteId(id) => {
                    batch = batch.delete_id::<Thing>(&id);
                    next.things.remove(&id);
                }
                RecordStep::Require(place) => {
                    let Some(read) = read(place) else { continue };
                    batch = batch.require(&read.0);
                    is_right &= next.is(read);
                }
            }
        }
        match store.apply(batch).await {
            Ok(()) => prop_assert!(is_right, "taken, but a version was old"),
            Err(StoreError::Conflict(what)) => prop_assert!(!is_right, "{what}"),
            Err(error) => return Err(TestCaseError::fail(error.to_string())),
        }
        if is_right {
            model = next;
            entries += 1;
        }
        prop_assert_eq!(store.audit(&AuditQuery::default(), 10_000).await.unwrap().len(), entries);
        let listed = store.list::<Thing>(None, 10).await.unwrap();
        let things: Vec<_> = model.things.values().map(|(thing, _)| thing.clone()).collect();
        prop_assert_eq!(listed.iter().map(|read| read.record.clone()).collect::<Vec<_>>(), things.clone());
        for owner in ["x", "y"] {
            let found = store.find::<Thing>("owner", owner, None, 10).await.unwrap();
            let found: Vec<_> = found.into_iter().map(|read| read.record).collect();
            let expected: Vec<_> = things.iter().filter(|thing| thing.owner == owner).cloned().collect();
            prop_assert_eq!(found, expected);
        }
        reads.extend(listed.into_iter().map(|read| {
            let stamp = model.things[&read.record.id].1;
            (read, stamp)
        }));
    }
    Ok(())
}

#[derive(Debug, Clone)]
pub enum TaskStep {
    /// Time passes, seconds.
    Wait(i64),
    Lease(usize),
    Renew(usize),
    Release(usize),
    Report(usize, Vec<(u64, What)>, Ending),
    /// The newest report of an orchestrator comes again.
    Repeat(usize),
    Pause,
    Resume,
    Cancel,
    Expire,
    Activate,
}

#[derive(Debug, Clone, Copy)]
pub enum What {
    Found,
    Directory,
    Done(u64),
    UpToDate,
    Retrying,
    Skipped,
    Failed,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Ending {
    None,
    Finished,
    Stopped,
    Again,
    Impossible,
    NeedsCredential,
}

pub fn courses() -> impl Strategy<Value = Vec<TaskStep>> {
    let what = prop_oneof![
        4 => Just(What::Found),
        1 => Just(What::Directory),
        4 => (0..1000u64).prop_map(What::Done),
        1 => Just(What::UpToDate),
        1 => Just(What::Retrying),
        1 => Just(What::Skipped),
        1 => Just(What::Failed),
    ];
    let ending = prop_oneof![
        20 => Just(Ending::None),
        2 => Just(Ending::Finished),
        2 => Just(Ending::Stopped),
        2 => Just(Ending::Again),
        1 => Just(Ending::Impossible),
        1 => Just(Ending::NeedsCredential),
    ];
    let who = 0..2usize;
    let report = (who.clone(), prop::collection::vec((0..12u64, what), 0..10), ending);
    let step = prop_oneof![
        4 => (0..50i64).prop_map(TaskStep::Wait),
        6 => who.clone().prop_map(TaskStep::Lease),
        2 => who.clone().prop_map(TaskStep::Renew),
        1 => who.clone().prop_map(TaskStep::Release),
        16 => report.prop_map(|(who, changes, ending)| TaskStep::Report(who, changes, ending)),
        3 => who.prop_map(TaskStep::Repeat),
        1 => Just(TaskStep::Pause),
        2 => Just(TaskStep::Resume),
        1 => Just(TaskStep::Expire),
        2 => Just(TaskStep::Activate),
        1 => (0..4u8).prop_map(|dice| if dice == 0 { TaskStep::Cancel } else { TaskStep::Wait(1) }),
    ];
    prop::collection::vec(step, 1..50)
}

/// A task as somebody would keep it who never heard of databases.
#[derive(Debug)]
struct Naive {
    now: i64,
    status: Status,
    paused: bool,
    epoch: u64,
    /// Orchestrator, and until when.
    holder: Option<(usize, i64)>,
    sequence: u64,
    not_before: i64,
    troubles: i32,
    items: HashMap<u64, ItemRecord>,
    /// Items in the order in which they came to their end.
    finished: Vec<u64>,
}

impl Naive {
    fn runnable(&self) -> bool {
        let is_free = self.holder.is_none_or(|(_, until)| until <= self.now);
        self.status == Status::Active && !self.paused && self.not_before <= self.now && is_free
    }

    fn end(&mut self, status: Status, left_as: ItemState) {
        self.status = status;
        (self.holder, self.paused) = (None, false);
        self.items.values_mut().filter(|item| !item.state.is_final()).for_each(|item| item.state = left_as);
    }

    fn change(&mut self, number: u64, what: What) {
        let known = self.items.get(&number).copied();
        if known.is_some_and(|item| item.state.is_final()) {
            return;
        }
        let state = match what {
            What::Found | What::Directory if known.is_some() => return,
            What::Found | What::Directory => ItemState::Pending,
            What::Done(_) => ItemState::Succeeded,
            What::UpToDate => ItemState::UpToDate,
            What::Retrying => ItemState::Retrying,
            What::Skipped => ItemState::SkippedError,
            What::Failed => ItemState::Failed,
        };
        let kind = if matches!(what, What::Directory) { ItemKind::Directory } else { ItemKind::File };
        let bytes = if let What::Done(bytes) = what { bytes } else { 0 };
        self.items.insert(number, ItemRecord { kind, state, bytes, proven: bytes, extra: false });
        if state.is_final() {
            self.finished.push(number);
        }
        if matches!(state, ItemState::Succeeded | ItemState::UpToDate) {
            self.troubles = 0;
        }
    }

    fn report(&mut self, lease: Lease, sequence: u64, changes: &[(u64, What)], ending: Ending) -> Reported {
        if lease.epoch != self.epoch {
            return Reported::LeaseLost;
        }
        if sequence <= self.sequence {
            return Reported::Taken(self.status);
        }
        if self.holder.is_none() {
            return Reported::LeaseLost;
        }
        self.sequence = sequence;
        for (number, what) in changes {
            self.change(*number, *what);
        }
        self.ending(ending);
        Reported::Taken(self.status)
    }

    fn ending(&mut self, ending: Ending) {
        if ending != Ending::None {
            self.holder = None;
        }
        match ending {
            Ending::None | Ending::Stopped => {}
            Ending::Finished => {
                let is_success =
                    self.items.values().all(|item| item.state.is_final() && item.state != ItemState::Failed);
                self.end(if is_success { Status::Succeeded } else { Status::Failed }, ItemState::Failed);
            }
            Ending::Again => {
                self.not_before = self.now + (5 * 2i64.pow(self.troubles.min(16).cast_unsigned())).min(600);
                self.troubles += 1;
            }
            Ending::Impossible => self.end(Status::Failed, ItemState::Failed),
            Ending::NeedsCredential => self.status = Status::Inactive,
        }
    }

    fn counters(&self) -> Counters {
        let mut counters = Counters::default();
        self.items.values().for_each(|item| counters.step(None, item));
        counters
    }
}

fn change((number, what): &(u64, What)) -> Change {
    let subject = file(*number);
    match *what {
        What::Found => made::found(*number),
        What::Directory => {
            let subject = whimbrel_engine::dispatch::Subject { kind: ItemKind::Directory, ..subject };
            Change::Found { subject, size: None }
        }
        What::Done(bytes) => {
            let Change::Done { verification, .. } = made::done(*number) else { unreachable!("it is done") };
            Change::Done { subject, bytes, verification }
        }
        What::UpToDate => Change::UpToDate { subject },
        What::Retrying => Change::Retrying { subject },
        What::Skipped => Change::SkippedError { subject, fault: fault(FaultCode::NotFound) },
        What::Failed => Change::Failed { subject, fault: fault(FaultCode::QuotaExceeded) },
    }
}

fn end(ending: Ending) -> Option<End> {
    match ending {
        Ending::None => None,
        Ending::Finished => Some(End::Finished),
        Ending::Stopped => Some(End::Stopped),
        Ending::Again => Some(End::Again { fault: fault(FaultCode::TimedOut), after: 0.0 }),
        Ending::Impossible => Some(End::Impossible { fault: fault(FaultCode::NotSupported) }),
        Ending::NeedsCredential => Some(End::NeedsCredential { fault: fault(FaultCode::CredentialExpired) }),
    }
}

/// What each of two orchestrators believes: its newest lease, and the reports of it.
#[derive(Default, Clone)]
struct Belief {
    lease: Option<Lease>,
    sequence: u64,
    newest: Option<Told>,
}

/// A report, and what it is to the model.
#[derive(Clone)]
struct Told {
    report: Report,
    changes: Vec<(u64, What)>,
    ending: Ending,
}

/// The course of one task under two orchestrators that get into each other's way.
pub async fn course(store: &Store, number: u128, steps: Vec<TaskStep>) -> Result<(), TestCaseError> {
    let task = submitted(store, &transfer(number, number), 0).await;
    let mut model = Naive {
        now: 0,
        status: Status::Active,
        paused: false,
        epoch: 0,
        holder: None,
        sequence: 0,
        not_before: 0,
        troubles: 0,
        items: HashMap::new(),
        finished: Vec::new(),
    };
    let mut beliefs = [Belief::default(), Belief::default()];
    for step in steps {
        take_step(store, task, &mut model, &mut beliefs, step).await?;
        same(store, task, &model).await?;
    }
    // Nothing of it is to be leased by the next course.
    store.cancel(task, id(1), "", at(model.now)).await.unwrap();
    if !model.status.is_final() {
        model.end(Status::Failed, ItemState::Canceled);
    }
    same(store, task, &model).await
}

async fn take_step(
    store: &Store,
    task: Uuid,
    model: &mut Naive,
    beliefs: &mut [Belief; 2],
    step: TaskStep,
) -> Result<(), TestCaseError> {
    let now = at(model.now);
    let until = model.now + LEASE_SECONDS.cast_signed();
    match step {
        TaskStep::Wait(seconds) => model.now += seconds,
        TaskStep::Lease(who) => {
            let leased = store.lease(id(who as u128), now, 5, MANY).await.unwrap();
            prop_assert_eq!(leased.len(), usize::from(model.runnable()));
            if let Some((_, lease)) = leased.first() {
                model.epoch += 1;
                (model.holder, model.sequence, model.not_before) = (Some((who, until)), 0, 0);
                prop_assert_eq!(*lease, Lease { task, epoch: model.epoch });
                beliefs[who] = Belief { lease: Some(*lease), ..Belief::default() };
            }
        }
        TaskStep::Renew(who) => {
            let Some(lease) = beliefs[who].lease else { return Ok(()) };
            let is_its = lease.epoch == model.epoch && model.holder.is_some_and(|(holder, _)| holder == who);
            let ending = store.renew(id(who as u128), &[lease], now).await.unwrap();
            prop_assert_eq!(ending.is_empty(), is_its && !model.paused);
            if is_its {
                model.holder = Some((who, until));
            }
        }
        TaskStep::Release(who) => {
            let Some(lease) = beliefs[who].lease else { return Ok(()) };
            store.release(lease).await.unwrap();
            if lease.epoch == model.epoch {
                model.holder = None;
            }
        }
        TaskStep::Report(who, changes, ending) => {
            let belief = &mut beliefs[who];
            let Some(lease) = belief.lease else { return Ok(()) };
            belief.sequence += 1;
            let report = made::report(lease, belief.sequence, changes.iter().map(change).collect());
            let report = Report { end: end(ending), ..report };
            belief.newest = Some(Told { report: report.clone(), changes: changes.clone(), ending });
            let expected = model.report(lease, belief.sequence, &changes, ending);
            prop_assert_eq!(store.report(report, now).await.unwrap(), expected);
        }
        TaskStep::Repeat(who) => {
            let Some(Told { report, changes, ending }) = beliefs[who].newest.clone() else { return Ok(()) };
            let expected = model.report(report.lease, report.sequence, &changes, ending);
            prop_assert_eq!(store.report(report, now).await.unwrap(), expected);
        }
        TaskStep::Pause => {
            store.pause(task, "", now).await.unwrap();
            model.paused = !model.status.is_final();
        }
        TaskStep::Resume => {
            store.resume(task, now).await.unwrap();
            if model.paused {
                (model.paused, model.not_before) = (false, 0);
            }
        }
        TaskStep::Cancel => {
            store.cancel(task, id(1), "", now).await.unwrap();
            if !model.status.is_final() {
                model.end(Status::Failed, ItemState::Canceled);
            }
        }
        TaskStep::Expire => {
            // Nobody's deadline is so early.
            prop_assert!(store.expire(now).await.unwrap().is_empty());
        }
        TaskStep::Activate => {
            store.activate(task, now).await.unwrap();
            if model.status == Status::Inactive {
                (model.status, model.not_before) = (Status::Active, 0);
            }
        }
    }
    Ok(())
}

async fn same(store: &Store, id: Uuid, model: &Naive) -> Result<(), TestCaseError> {
    let task: Task = store.task(id).await.unwrap().unwrap();
    prop_assert_eq!((task.status, task.epoch), (model.status, model.epoch));
    prop_assert_eq!(task.counters, model.counters());
    prop_assert_eq!(store.recount(id).await.unwrap(), model.counters());
    prop_assert_eq!(task.completed.is_some(), model.status.is_final());
    let page = store.finished_keys(id, 0, 100).await.unwrap();
    let expected: Vec<_> = model.finished.iter().map(|number| key(&file(*number))).collect();
    prop_assert_eq!(page.keys, expected);
    let of = |wanted: ItemState| model.finished.iter().filter(move |number| model.items[*number].state == wanted);
    let is_failed = |number: &&u64| matches!(model.items[*number].state, ItemState::Failed | ItemState::SkippedError);
    let failed: Vec<_> = model.finished.iter().filter(is_failed).map(|number| key(&file(*number))).collect();
    prop_assert_eq!(page.failed, failed);
    let copied: Vec<_> = store.copied(id, 0, 100).await.unwrap().into_iter().map(|item| item.source).collect();
    prop_assert_eq!(copied, of(ItemState::Succeeded).map(|number| file(*number).source).collect::<Vec<_>>());
    let left_out: Vec<_> = store.left_out(id, 0, 100).await.unwrap().into_iter().map(|item| item.source).collect();
    prop_assert_eq!(left_out, of(ItemState::SkippedError).map(|number| file(*number).source).collect::<Vec<_>>());
    prop_assert_eq!(task.started.is_some(), model.epoch > 0);
    Ok(())
}

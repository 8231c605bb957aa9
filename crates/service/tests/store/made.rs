//! Tasks, items and reports for the cases.

use uuid::Uuid;
use whimbrel_engine::Fault;
use whimbrel_engine::dispatch::{Change, End, Lease, Report, Subject, WorkItem};
use whimbrel_engine::fault::FaultCode;
use whimbrel_engine::listing::Timestamp;
use whimbrel_engine::progress::{FileSum, Verification};
use whimbrel_engine::task::ItemKind;
use whimbrel_service::grid::Logins;
use whimbrel_service::store::{Reported, Store};
use whimbrel_service::task::{Notify, Submission, Submitted, Task, TaskEnd, TaskWork, Wanted};

/// Slots that no case fills by chance.
pub const MANY: u32 = 1000;

pub fn id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

pub fn at(seconds: i64) -> Timestamp {
    Timestamp::from_secs(seconds)
}

fn end(collection: u128) -> TaskEnd {
    TaskEnd {
        collection: id(collection),
        display_name: format!("collection {collection}"),
        local_user: None,
        base: String::new(),
        base_path: None,
        logins: Logins::Token,
    }
}

/// A transfer of one owner; `number` makes it another submission with other items.
pub fn transfer(owner: u128, number: u128) -> Submission {
    let wanted = Wanted {
        owner: id(owner),
        submission: id(number),
        work: TaskWork::Transfer(Box::default()),
        source: end(1),
        destination: Some(end(2)),
        label: None,
        deadline: at(1_000_000),
        notify: Notify { succeeded: false, failed: false, inactive: false },
        fingerprint: format!("fingerprint {number}"),
    };
    Submission { wanted, items: vec![item(1)] }
}

pub fn item(number: u64) -> WorkItem {
    WorkItem {
        number,
        source: format!("/from/{number}").into_bytes(),
        destination: [b"/to/\xff".as_slice(), number.to_string().as_bytes()].concat(),
        recursive: Some(false),
        symlink: false,
        checksum: None,
    }
}

/// A new task.
pub async fn submitted(store: &Store, submission: &Submission, now: i64) -> Uuid {
    match store.submit(submission, at(now)).await.expect("a submission is taken") {
        Submitted::New(task) => task,
        other => panic!("{other:?}"),
    }
}

/// The only task that can be leased.
pub async fn leased(store: &Store, orchestrator: u128, now: i64) -> Lease {
    let leases = store.lease(id(orchestrator), at(now), 10, MANY).await.expect("leases are given");
    assert_eq!(leases.len(), 1, "{leases:?}");
    leases[0].1
}

/// A task with a lease of orchestrator 1, given at time 10.
pub async fn running(store: &Store) -> (Uuid, Lease) {
    let task = submitted(store, &transfer(1, 1), 0).await;
    let lease = leased(store, 1, 10).await;
    assert_eq!(lease, Lease { task, epoch: 1 });
    (task, lease)
}

pub async fn task(store: &Store, id: Uuid) -> Task {
    let task = store.task(id).await.expect("a task is read").expect("it is there");
    assert_eq!(
        store.recount(id).await.expect("items are counted"),
        task.counters,
        "counters are not what items add up to"
    );
    task
}

pub fn file(number: u64) -> Subject {
    let item = item(number);
    Subject { kind: ItemKind::File, source: item.source, destination: item.destination, extra: false }
}

pub fn found(number: u64) -> Change {
    Change::Found { subject: file(number), size: Some(number * 10) }
}

/// Copied, with `number * 10` bytes that were proven.
pub fn done(number: u64) -> Change {
    let sum = FileSum { algorithm: "md5".into(), digest: format!("{number:032x}"), expected: false };
    let verification = Verification::Verified { algorithm: "md5".into(), read_back: None, sums: vec![sum] };
    Change::Done { subject: file(number), bytes: number * 10, verification }
}

pub fn fault(code: FaultCode) -> Fault {
    Fault::new(code, "open").subject("/from/x")
}

pub fn report(lease: Lease, sequence: u64, changes: Vec<Change>) -> Report {
    Report { lease, sequence, changes, occurrences: Vec::new(), gauge: None, end: None }
}

pub fn ending(lease: Lease, sequence: u64, end: End) -> Report {
    Report { end: Some(end), ..report(lease, sequence, Vec::new()) }
}

/// Reports, and expects it to be taken.
pub async fn take(store: &Store, report: Report, now: i64) {
    let reported = store.report(report, at(now)).await.expect("a report is taken");
    assert!(matches!(reported, Reported::Taken(_)), "{reported:?}");
}

//! Reports, and what becomes of a task by them.

use std::time::Instant;

use whimbrel_engine::dispatch::{Change, End, Gauge, Lease, Occurrence, Report, Subject, key};
use whimbrel_engine::fault::FaultCode;
use whimbrel_engine::progress::Verification;
use whimbrel_engine::task::{Counters, DeleteOptions, ItemKind, Status, TransferOptions};
use whimbrel_service::store::{Changed, FIRST_EVENTS, NEWEST_EVENTS, Reported, Store, StoreError};
use whimbrel_service::task::{Cancelled, Condition, TaskWork};

use crate::made::{
    MANY, at, done, ending, fault, file, found, id, leased, report, running, submitted, take, task, transfer,
};

pub async fn items_counters_and_listings_follow_reports(store: &Store) {
    let (made, lease) = running(store).await;
    let directory = Subject { kind: ItemKind::Directory, ..file(7) };
    let extra = Subject { extra: true, source: Vec::new(), ..file(1) };
    let unproven = Change::Done { subject: file(5), bytes: 3, verification: Verification::NotAsked };
    let changes = vec![
        Change::Found { subject: directory.clone(), size: None },
        found(1),
        found(2),
        found(2),
        found(3),
        Change::Retrying { subject: file(2) },
        found(2),
        done(1),
        Change::UpToDate { subject: file(4) },
        unproven,
        Change::SkippedError { subject: file(6), fault: fault(FaultCode::NotFound) },
        Change::Found { subject: extra.clone(), size: Some(u64::MAX) },
    ];
    let gauge = Some(Gauge { bytes_in_flight: 5, rate: 2.5 });
    take(store, Report { gauge, ..report(lease, 1, changes) }, 11).await;
    let kept = task(store, made).await;
    let expected = Counters {
        files: 6,
        directories: 1,
        files_skipped: 1,
        files_transferred: 2,
        bytes_transferred: 13,
        bytes_checksummed: 10,
        pending: 3,
        retrying: 1,
        succeeded: 3,
        skipped_errors: 1,
        ..Counters::default()
    };
    assert_eq!((kept.counters, kept.gauge), (expected, gauge));
    assert!(matches!(kept.condition, Condition::Running));
    let copied = store.copied(made, 0, 10).await.unwrap();
    let shown: Vec<_> = copied.iter().map(|copied| (copied.source.clone(), copied.size)).collect();
    assert_eq!(shown, [(file(1).source, 10), (file(5).source, 3)]);
    assert_eq!(copied[0].destination, file(1).destination);
    assert_eq!(copied[0].checksum, Some(("md5".into(), format!("{:032x}", 1))));
    assert_eq!(copied[1].checksum, None);
    assert_eq!(store.copied(made, copied[0].mark, 10).await.unwrap(), copied[1..]);
    let left_out = store.left_out(made, 0, 10).await.unwrap();
    assert_eq!((left_out.len(), left_out[0].fault.code, left_out[0].time), (1, FaultCode::NotFound, at(11)));
    assert_eq!(left_out[0].source, file(6).source);
    let first = store.finished_keys(made, 0, 3).await.unwrap();
    assert_eq!(first.keys, [1, 4, 5].map(|number| key(&file(number))));
    let rest = store.finished_keys(made, first.next, 10).await.unwrap();
    assert_eq!((rest.keys, rest.failed), (vec![key(&file(6))], vec![key(&file(6))]));
    // What is final stays as it is.
    let late = vec![
        Change::Failed { subject: file(1), fault: fault(FaultCode::StorageIo) },
        Change::Retrying { subject: file(6) },
        done(4),
        found(1),
    ];
    take(store, report(lease, 2, late), 12).await;
    assert_eq!(task(store, made).await.counters, expected);
    let rest = [2, 3].map(done).into_iter();
    let rest = rest.chain([directory, extra].map(|subject| Change::Done {
        subject,
        bytes: 0,
        verification: Verification::NotAsked,
    }));
    let last = report(lease, 3, rest.collect());
    take(store, Report { end: Some(End::Finished), ..last }, 13).await;
    let kept = task(store, made).await;
    assert_eq!((kept.status, kept.completed, kept.fatal), (Status::Succeeded, Some(at(13)), None));
    assert_eq!((kept.counters.total(), kept.counters.succeeded, kept.counters.open()), (8, 7, 0));
    assert!(matches!(kept.condition, Condition::Over) && kept.gauge.is_none());
    let (events, total) = store.events(made, None, 0, 10).await.unwrap();
    assert_eq!(events.iter().map(|event| event.code.as_str()).collect::<Vec<_>>(), ["SUCCEEDED", "SKIPPED_ERRORS"]);
    assert_eq!((total, events[0].is_error), (2, false));
    assert!(!store.holds(lease).await.unwrap());
}

pub async fn a_repeated_report_is_taken_once(store: &Store) {
    let (made, lease) = running(store).await;
    let first = Report { occurrences: vec![started()], ..report(lease, 1, vec![found(1), found(2), done(1)]) };
    take(store, first.clone(), 11).await;
    let before = task(store, made).await.counters;
    take(store, first.clone(), 12).await;
    assert_eq!(task(store, made).await.counters, before);
    assert_eq!(store.events(made, None, 0, 10).await.unwrap().1, 1);
    let last = Report { end: Some(End::Finished), ..report(lease, 2, vec![done(2)]) };
    take(store, last.clone(), 13).await;
    // Its answer was lost: the orchestrator asks again, and is not told that its work was for nothing.
    let again = store.report(last, at(14)).await.unwrap();
    assert_eq!(again, Reported::Taken(Status::Succeeded));
    assert_eq!(store.report(report(lease, 3, vec![found(9)]), at(14)).await.unwrap(), Reported::LeaseLost);
    assert_eq!(task(store, made).await.counters.succeeded, 2);
}

pub async fn of_reports_at_the_same_time_each_counts_once(store: &Store) {
    let (made, lease) = running(store).await;
    for sequence in 1..=5 {
        let mut reports = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let store = store.clone();
            let changes = vec![found(sequence), done(sequence), found(100 + sequence)];
            let report = Report { occurrences: vec![started()], ..report(lease, sequence, changes) };
            reports.spawn(async move { store.report(report, at(11)).await.unwrap() });
        }
        let canceling = (sequence == 5).then(|| store.cancel(made, id(1), "", at(11)));
        if let Some(canceling) = canceling {
            assert_eq!(canceling.await.unwrap(), Changed::Done);
        }
        let all = reports.join_all().await;
        assert!(sequence == 5 || all.iter().all(|one| *one == Reported::Taken(Status::Active)), "{all:?}");
        let kept = task(store, made).await;
        let (taken, _) = store.events(made, None, 0, 100).await.unwrap();
        let started = taken.iter().filter(|event| event.code == "STARTED").count() as u64;
        assert_eq!((kept.counters.succeeded, kept.counters.total()), (started, 2 * started));
        assert!(started == sequence || sequence == 5);
    }
}

fn started() -> Occurrence {
    Occurrence::Started { concurrency: 4, parallelism: 2, pipelining: 100 }
}

pub async fn a_report_that_cannot_be_right_changes_nothing(store: &Store) {
    let (made, lease) = running(store).await;
    let huge =
        |number| Change::Done { subject: file(number), bytes: u64::MAX / 2, verification: Verification::NotAsked };
    for wrong in [report(lease, 2, vec![found(1)]), report(lease, 0, vec![found(1)])] {
        assert!(matches!(store.report(wrong, at(11)).await, Err(StoreError::Invalid(_))));
    }
    let too_much = report(lease, 1, vec![found(1), huge(2), huge(3)]);
    assert!(matches!(store.report(too_much, at(11)).await, Err(StoreError::Invalid(_))));
    let kept = task(store, made).await;
    assert_eq!(kept.counters, Counters::default());
    assert_eq!(store.report(report(whimbrel_lease(made, 7), 1, vec![]), at(11)).await.unwrap(), Reported::LeaseLost);
    assert_eq!(store.report(report(whimbrel_lease(id(5), 1), 1, vec![]), at(11)).await.unwrap(), Reported::LeaseLost);
    take(store, report(lease, 1, vec![huge(1)]), 12).await;
    assert_eq!(task(store, made).await.counters.bytes_transferred, u64::MAX / 2);
}

fn whimbrel_lease(task: uuid::Uuid, epoch: u64) -> whimbrel_engine::dispatch::Lease {
    whimbrel_engine::dispatch::Lease { task, epoch }
}

pub async fn a_cancelled_task_takes_no_more_reports(store: &Store) {
    let (made, lease) = running(store).await;
    take(
        store,
        report(lease, 1, vec![found(1), found(2), done(2), found(3), Change::Retrying { subject: file(3) }]),
        11,
    )
    .await;
    assert_eq!(store.cancel(made, id(8), "no longer needed", at(12)).await.unwrap(), Changed::Done);
    let kept = task(store, made).await;
    assert_eq!((kept.counters.canceled, kept.counters.succeeded, kept.counters.open()), (2, 1, 0));
    assert_eq!((kept.status, kept.completed), (Status::Failed, Some(at(12))));
    assert_eq!(kept.cancelled, Some(Cancelled { by: id(8), message: "no longer needed".into(), manager_of: None }));
    assert_eq!(kept.fatal.unwrap().code, "CANCELED");
    assert_eq!(store.renew(id(1), &[lease], at(13)).await.unwrap(), [lease]);
    assert_eq!(store.report(report(lease, 2, vec![done(1)]), at(13)).await.unwrap(), Reported::LeaseLost);
    assert_eq!(task(store, made).await.counters, kept.counters);
    assert_eq!(store.cancel(made, id(8), "", at(14)).await.unwrap(), Changed::Over);
    assert_eq!(store.resume(made, at(14)).await.unwrap(), Changed::Over);
    assert_eq!(task(store, made).await.completed, Some(at(12)));
    assert!(store.lease(id(2), at(1000), 1, MANY).await.unwrap().is_empty());
}

pub async fn the_deadline_ends_tasks(store: &Store) {
    let (made, lease) = running(store).await;
    let mut longer = transfer(1, 2);
    longer.wanted.deadline = at(2_000_000);
    let other = submitted(store, &longer, 0).await;
    take(store, report(lease, 1, vec![found(1), done(2)]), 11).await;
    assert!(store.expire(at(999_999)).await.unwrap().is_empty());
    assert_eq!(store.expire(at(1_000_000)).await.unwrap(), [made]);
    assert!(store.expire(at(1_000_001)).await.unwrap().is_empty());
    let kept = task(store, made).await;
    assert_eq!((kept.counters.expired, kept.counters.succeeded, kept.status), (1, 1, Status::Failed));
    assert_eq!(kept.fatal.unwrap().code, "EXPIRED");
    assert_eq!(task(store, other).await.status, Status::Active);
}

pub async fn troubles_make_a_task_wait_longer_and_longer(store: &Store) {
    let (made, mut lease) = running(store).await;
    let mut now = 10;
    let mut waits = Vec::new();
    for _ in 0..10 {
        take(store, ending(lease, 1, End::Again { fault: fault(FaultCode::ConnectionRefused), after: 0.0 }), now).await;
        let kept = task(store, made).await;
        assert!(matches!(kept.condition, Condition::Troubled { .. }) && kept.status == Status::Active);
        let until = kept.not_before.unwrap().secs;
        assert!(store.lease(id(1), at(until - 1), 1, MANY).await.unwrap().is_empty());
        waits.push(until - now);
        now = until;
        lease = leased(store, 1, now).await;
    }
    assert_eq!(waits, [5, 10, 20, 40, 80, 160, 320, 600, 600, 600]);
    assert!(matches!(task(store, made).await.condition, Condition::Troubled { .. }), "until something is done");
    take(store, report(lease, 1, vec![done(1)]), now).await;
    assert!(matches!(task(store, made).await.condition, Condition::Running));
    // Something was done: waits begin anew. A longer one that is asked for is granted.
    take(store, ending(lease, 2, End::Again { fault: fault(FaultCode::ServerBusy), after: 7.5 }), now).await;
    let kept = task(store, made).await;
    assert_eq!(kept.not_before.map(|time| (time.secs - now, time.nanos)), Some((7, 500_000_000)));
    assert_eq!(kept.faults, 11);
    assert_eq!(store.events(made, Some(true), 0, 1).await.unwrap().0[0].code, "ENDPOINT_TOO_BUSY");
}

pub async fn a_missing_credential_makes_a_task_inactive(store: &Store) {
    let (made, lease) = running(store).await;
    take(store, ending(lease, 1, End::NeedsCredential { fault: fault(FaultCode::CredentialMissing) }), 11).await;
    assert_eq!(task(store, made).await.status, Status::Inactive);
    assert!(store.lease(id(2), at(1000), 1, MANY).await.unwrap().is_empty());
    assert_eq!(store.activate(made, at(9)).await.unwrap(), Changed::Done);
    assert_eq!(store.activate(made, at(9)).await.unwrap(), Changed::Done);
    assert!(matches!(task(store, made).await.condition, Condition::Queued));
    assert_eq!(leased(store, 2, 1000).await.epoch, 2);
    let events = store.events(made, None, 0, 10).await.unwrap().0;
    assert_eq!((events[0].code.as_str(), events[1].code.as_str()), ("UNPAUSED", "NO_CREDENTIALS"));
}

pub async fn what_failed_first_fails_the_task(store: &Store) {
    let (made, lease) = running(store).await;
    let failed = |number, code| Change::Failed { subject: file(number), fault: fault(code) };
    take(store, report(lease, 1, vec![failed(1, FaultCode::QuotaExceeded), done(2)]), 11).await;
    let last = report(lease, 2, vec![failed(3, FaultCode::NotFound)]);
    take(store, Report { end: Some(End::Finished), ..last }, 12).await;
    let kept = task(store, made).await;
    assert_eq!((kept.status, kept.counters.failed, kept.faults), (Status::Failed, 2, 1));
    assert_eq!(kept.fatal.unwrap().code, "QUOTA_EXCEEDED");
    let second = submitted(store, &transfer(1, 2), 20).await;
    let lease = leased(store, 1, 21).await;
    take(store, report(lease, 1, vec![found(1)]), 22).await;
    take(store, ending(lease, 2, End::Impossible { fault: fault(FaultCode::PermissionDenied) }), 23).await;
    let kept = task(store, second).await;
    assert_eq!((kept.status, kept.counters.failed, kept.counters.open()), (Status::Failed, 1, 0));
    assert_eq!(kept.fatal.unwrap().code, "PERMISSION_DENIED");
}

pub async fn items_that_vanish_are_no_success(store: &Store) {
    let (made, lease) = running(store).await;
    take(store, report(lease, 1, vec![found(1), found(2)]), 11).await;
    store.release(lease).await.unwrap();
    // The next one does not find the second any more.
    let lease = leased(store, 2, 12).await;
    let last = report(lease, 1, vec![done(1)]);
    take(store, Report { end: Some(End::Finished), ..last }, 13).await;
    let kept = task(store, made).await;
    assert_eq!((kept.status, kept.counters.failed, kept.counters.succeeded), (Status::Failed, 1, 1));
    assert_eq!(kept.fatal.unwrap().code, "FILE_NOT_FOUND");
}

/// Work of another kind than that of [`running`].
async fn running_with(store: &Store, work: TaskWork) -> (uuid::Uuid, Lease) {
    let mut submission = transfer(1, 1);
    submission.wanted.work = work;
    let made = submitted(store, &submission, 0).await;
    (made, leased(store, 1, 10).await)
}

pub async fn what_was_deleted_and_never_reported_is_done(store: &Store) {
    let (made, lease) = running_with(store, TaskWork::Delete(DeleteOptions::default())).await;
    let directory = Subject { kind: ItemKind::Directory, ..file(9) };
    let changes = vec![found(1), found(2), Change::Found { subject: directory.clone(), size: None }, done(1)];
    take(store, report(lease, 1, changes), 11).await;
    store.release(lease).await.unwrap();
    // The next one finds nothing below the directory any more.
    let lease = leased(store, 2, 12).await;
    let last = Change::Done { subject: directory, bytes: 0, verification: Verification::NotAsked };
    take(store, Report { end: Some(End::Finished), ..report(lease, 1, vec![last]) }, 13).await;
    let kept = task(store, made).await;
    assert_eq!((kept.status, kept.counters.succeeded, kept.counters.open()), (Status::Succeeded, 3, 0));
    assert_eq!(kept.fatal, None);
}

pub async fn extras_that_were_deleted_and_never_reported_are_done(store: &Store) {
    let mirror = TransferOptions { delete_extra: true, ..TransferOptions::default() };
    let extra = Subject { extra: true, source: Vec::new(), ..file(5) };
    for (vanished, status) in [(Vec::new(), Status::Succeeded), (vec![found(2)], Status::Failed)] {
        let (made, lease) = running_with(store, TaskWork::Transfer(Box::new(mirror.clone()))).await;
        let first = [vec![found(1), Change::Found { subject: extra.clone(), size: None }], vanished].concat();
        take(store, report(lease, 1, first), 11).await;
        store.release(lease).await.unwrap();
        let lease = leased(store, 2, 12).await;
        take(store, Report { end: Some(End::Finished), ..report(lease, 1, vec![done(1)]) }, 13).await;
        let kept = task(store, made).await;
        assert_eq!((kept.status, kept.counters.succeeded), (status, 2), "a file that vanished is no extra");
        store.forget_task(at(14)).await.unwrap();
    }
}

pub async fn copies_that_nobody_compared_are_told_once(store: &Store) {
    let verified = TransferOptions { verify: true, ..TransferOptions::default() };
    let (made, lease) = running_with(store, TaskWork::Transfer(Box::new(verified))).await;
    let unproven = |number| {
        let verification = Verification::Unverified { reason: "no CKSM".into() };
        Change::Done { subject: file(number), bytes: 3, verification }
    };
    take(store, report(lease, 1, vec![done(1)]), 11).await;
    assert!(task(store, made).await.not_promised().is_empty());
    for (sequence, number) in [(2, 2), (3, 3)] {
        take(store, report(lease, sequence, vec![unproven(number)]), 12).await;
        assert_eq!(task(store, made).await.not_promised(), ["verification"]);
    }
    let (events, _) = store.events(made, None, 0, 10).await.unwrap();
    assert_eq!(events.iter().map(|event| event.code.as_str()).collect::<Vec<_>>(), ["NOT_VERIFIED"]);
}

pub async fn of_very_many_events_the_first_and_the_newest_stay(store: &Store) {
    let (made, lease) = running(store).await;
    let faulted = |number: u64| Occurrence::Faulted {
        fault: fault(FaultCode::TimedOut).detail(format!("number {number}\0")),
        path: b"/from/x".to_vec(),
        retry_in: Some(1.0),
    };
    let all = 2500;
    let mut told = 0;
    for (sequence, count) in (1..).zip([1, 700, 1100, 99, all - 1900]) {
        let occurrences = (told + 1..=told + count).map(faulted).collect();
        told += count;
        take(store, Report { occurrences, ..report(lease, sequence, Vec::new()) }, 11).await;
        let kept = told.min(FIRST_EVENTS + NEWEST_EVENTS);
        assert_eq!(store.events(made, None, 0, 1).await.unwrap().1, kept);
    }
    assert_eq!(task(store, made).await.faults, all);
    let (events, total) = store.events(made, Some(true), 0, 2000).await.unwrap();
    assert_eq!((events.len() as u64, total), (FIRST_EVENTS + NEWEST_EVENTS, FIRST_EVENTS + NEWEST_EVENTS));
    let numbers = (1..=FIRST_EVENTS).chain(all - NEWEST_EVENTS + 1..=all).rev();
    for (event, number) in events.iter().zip(numbers) {
        assert!(event.details.contains(&format!("number {number}\\u0000")), "{number}: {}", event.details);
    }
    assert_eq!(store.events(made, Some(true), 998, 10).await.unwrap().0.len(), 2);
    assert_eq!(store.events(made, Some(false), 0, 10).await.unwrap(), (Vec::new(), 0));
}

pub async fn ten_thousand_changes_a_second(store: &Store) {
    let (made, lease) = running(store).await;
    let begun = Instant::now();
    let batches = 20;
    for batch in 0..batches {
        let numbers = batch * 1000..(batch + 1) * 1000;
        take(store, report(lease, batch * 2 + 1, numbers.clone().map(found).collect()), 11).await;
        take(store, report(lease, batch * 2 + 2, numbers.map(done).collect()), 11).await;
    }
    let rate = (batches * 2000) as f64 / begun.elapsed().as_secs_f64();
    println!("{rate:.0} changes a second");
    assert_eq!(task(store, made).await.counters.succeeded, batches * 1000);
    // A build without optimisation, beside others, is far from what a service does; a statement for each item would be further.
    assert!(rate > 2000.0, "{rate} changes a second");
}

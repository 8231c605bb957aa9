//! What time brings about: things that are due, old things, numbers, and news for owners.

use whimbrel_engine::dispatch::{End, Gauge, Report};
use whimbrel_engine::fault::FaultCode;
use whimbrel_engine::task::Status;
use whimbrel_service::notices::records::{DUE, Notice};
use whimbrel_service::store::{AuditEntry, AuditQuery, Batch, Record, Store, time_key};
use whimbrel_service::task::Notify;

use crate::made::{at, done, ending, fault, found, id, leased, report, running, submitted, take, task, transfer};

fn notice(number: u128, due: i64) -> Notice {
    let (id, task, owner, time) = (id(number), id(1), id(2), at(0));
    Notice { id, task, owner, status: Status::Failed, time, due: at(due), tries: 0, left: None }
}

pub async fn what_is_due_is_found_in_the_order_of_its_time(store: &Store) {
    let all = [notice(1, 100), notice(2, 99), notice(3, 9), notice(4, 101), notice(5, 1_000_000_000)];
    store.apply(all.iter().fold(Batch::new(), |batch, notice| batch.insert(notice))).await.unwrap();
    let due = async |now: i64, limit: u32| {
        let found = store.find_until::<Notice>(DUE, &time_key(at(now)), limit).await.unwrap();
        found.into_iter().map(|found| found.record.id.as_u128()).collect::<Vec<_>>()
    };
    assert_eq!(due(100, 10).await, [3, 2, 1]);
    assert_eq!(due(100, 2).await, [3, 2]);
    assert!(due(8, 10).await.is_empty());
    assert_eq!(store.count_records(Notice::KIND).await.unwrap(), 5);
}

pub async fn old_tasks_are_forgotten_with_all_that_is_theirs(store: &Store) {
    let (old, lease) = running(store).await;
    take(store, report(lease, 1, (1..=6000).map(done).collect()), 20).await;
    take(store, ending(lease, 2, End::Finished), 21).await;
    let (open, lease) = (submitted(store, &transfer(7, 7), 22).await, leased(store, 1, 23).await);
    take(store, report(lease, 1, vec![done(1)]), 24).await;
    let entry = |time| AuditEntry::new(at(time), "a", "b", "c");
    store.apply(Batch::new().audit(entry(20)).audit(entry(30))).await.unwrap();

    assert!(!store.forget_task(at(21)).await.unwrap());
    assert!(store.forget_task(at(22)).await.unwrap());
    assert!(!store.forget_task(at(1_000_000)).await.unwrap());
    assert!(store.task(old).await.unwrap().is_none());
    assert!(store.log(old, 0, 10).await.unwrap().is_empty() && store.events(old, None, 0, 10).await.unwrap().1 == 0);
    assert!(store.submitted_items(old, 0, 10).await.unwrap().is_empty());
    assert_eq!((task(store, open).await.id, store.log(open, 0, 10).await.unwrap().len()), (open, 1));
    // Both submissions, and the first of these.
    assert_eq!(store.forget_audit(at(30)).await.unwrap(), 3);
    assert_eq!(store.audit(&AuditQuery::default(), 10).await.unwrap().len(), 1);
    // What it was submitted under is nobody's any more.
    assert_ne!(submitted(store, &transfer(1, 1), 40).await, old);
}

pub async fn tasks_are_counted_by_what_they_wait_for(store: &Store) {
    let (made, lease) = running(store).await;
    let gauge = Some(Gauge { bytes_in_flight: 0, rate: 2.5 });
    take(store, Report { gauge, ..report(lease, 1, vec![found(1)]) }, 11).await;
    let waiting = submitted(store, &transfer(2, 2), 5).await;
    submitted(store, &transfer(2, 3), 6).await;
    let paused = submitted(store, &transfer(2, 4), 7).await;
    store.pause(paused, "later", at(8)).await.unwrap();
    let cancelled = submitted(store, &transfer(2, 5), 9).await;
    store.cancel(cancelled, id(2), "", at(10)).await.unwrap();
    let census = store.census(at(0)).await.unwrap();
    assert_eq!((census.running, census.waiting, census.paused, census.inactive), (1, 2, 1, 0));
    assert_eq!((census.oldest_waiting, census.rate), (Some(at(5)), 2.5));
    assert_eq!((census.succeeded, census.failed, census.cancelled), (0, 1, 1));
    assert_eq!(store.census(at(11)).await.unwrap().failed, 0);
    let numbers: Vec<_> = store.tasks_since(at(11), 0, 10).await.unwrap();
    let tasks: Vec<_> = numbers.iter().map(|(_, task)| *task).collect();
    assert!(tasks.contains(&made) && tasks.contains(&waiting) && !tasks.contains(&cancelled));
    assert_eq!(store.tasks_since(at(11), numbers[0].0, 1).await.unwrap(), numbers[1..2]);
    assert_eq!(store.miscount(made).await.unwrap(), None);
}

pub async fn owners_are_told_of_what_they_want_to_hear_once(store: &Store) {
    let news = async || {
        let found = store.list::<Notice>(None, 100).await.unwrap();
        found.into_iter().map(|found| (found.record.task, found.record.status)).collect::<Vec<_>>()
    };
    let wanting = |number, notify| {
        let mut submission = transfer(1, number);
        submission.wanted.notify = notify;
        submission
    };
    let failed = Notify { succeeded: false, failed: true, inactive: false };
    let made = submitted(store, &wanting(1, failed), 0).await;
    let lease = leased(store, 1, 10).await;
    assert!(news().await.is_empty());
    let over = ending(lease, 1, End::Impossible { fault: fault(FaultCode::NotFound) });
    take(store, over.clone(), 11).await;
    take(store, over, 12).await;
    assert_eq!(news().await, [(made, Status::Failed)]);
    // Success is not what they want to hear of; of their own doing they know.
    submitted(store, &wanting(2, failed), 13).await;
    let lease = leased(store, 1, 14).await;
    take(store, ending(lease, 1, End::Finished), 15).await;
    let mine = submitted(store, &wanting(3, failed), 16).await;
    store.cancel(mine, id(1), "", at(17)).await.unwrap();
    assert_eq!(news().await.len(), 1);
    let others = submitted(store, &wanting(4, failed), 18).await;
    store.cancel(others, id(9), "by an administrator", at(19)).await.unwrap();
    assert_eq!(news().await.len(), 2);
}

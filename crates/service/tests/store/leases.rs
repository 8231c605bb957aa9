//! Leases: who works on what.

use std::collections::HashMap;

use tokio::task::JoinSet;
use whimbrel_engine::dispatch::{End, LEASE_SECONDS, Lease};
use whimbrel_engine::task::Status;
use whimbrel_service::store::{Changed, Reported, Store};
use whimbrel_service::task::Condition;

use crate::made::{MANY, at, done, ending, id, leased, report, running, submitted, take, task, transfer};

pub async fn owners_get_fair_shares(store: &Store) {
    // The first owner submits ten tasks before others have one.
    let mut owners = HashMap::new();
    for number in 0..10u8 {
        owners.insert(submitted(store, &transfer(1, number.into()), number.into()).await, 1);
    }
    for (owner, number) in [(2, 20), (2, 21), (3, 30u8)] {
        owners.insert(submitted(store, &transfer(owner, number.into()), number.into()).await, owner);
    }
    let next = async |most| {
        let leased = store.lease(id(7), at(100), most, 3).await.unwrap();
        leased.iter().map(|(task, lease)| (owners[&lease.task], task.requested.secs)).collect::<Vec<_>>()
    };
    // Nobody gets a second one before everybody has one; the oldest of an owner comes first.
    assert_eq!(next(4).await, [(1, 0), (2, 20), (3, 30), (1, 1)]);
    assert_eq!(next(1).await, [(2, 21)]);
    // No more than three at a time.
    assert_eq!(next(10).await, [(1, 2)]);
    assert_eq!(next(10).await, []);
    assert_eq!(store.lease(id(7), at(100), 1, 4).await.unwrap().len(), 1);
}

pub async fn one_of_many_orchestrators_gets_a_task(store: &Store) {
    for number in 0..20 {
        submitted(store, &transfer(number % 4, number), 0).await;
    }
    let mut polls = JoinSet::new();
    for orchestrator in 0..8 {
        let store = store.clone();
        polls.spawn(async move {
            let mut leased = Vec::new();
            for _ in 0..10 {
                leased.extend(store.lease(id(orchestrator), at(1), 2, 3).await.unwrap());
            }
            leased
        });
    }
    let leased: Vec<_> = polls.join_all().await.into_iter().flatten().collect();
    assert!(leased.iter().all(|(task, lease)| lease.epoch == 1 && task.id == lease.task));
    let mut of = HashMap::new();
    for (task, _) in &leased {
        *of.entry(task.wanted.owner).or_insert(0) += 1;
    }
    assert_eq!(of, (0..4).map(|owner| (id(owner), 3)).collect(), "three of each owner, each once");
}

/// Seconds for which a lease holds.
const LIFE: i64 = LEASE_SECONDS as i64;

pub async fn a_lease_that_is_not_renewed_is_given_to_another(store: &Store) {
    let (made, first) = running(store).await;
    // It was leased at 10, and is renewed when half of its life is over.
    let (half, whole) = (10 + LIFE / 2, 10 + LIFE);
    let end = half + LIFE;
    assert!(store.lease(id(2), at(whole - 1), 1, MANY).await.unwrap().is_empty());
    assert_eq!(store.renew(id(1), &[first], at(half)).await.unwrap(), []);
    assert!(store.lease(id(2), at(end - 1), 1, MANY).await.unwrap().is_empty());
    let second = leased(store, 2, end).await;
    assert_eq!(second, Lease { task: made, epoch: 2 });
    assert!(!store.holds(first).await.unwrap() && store.holds(second).await.unwrap());
    assert_eq!(store.renew(id(1), &[first], at(end + 1)).await.unwrap(), [first]);
    assert_eq!(store.renew(id(1), &[second], at(end + 1)).await.unwrap(), [second], "it is another's");
    assert_eq!(store.renew(id(2), &[second], at(end + 1)).await.unwrap(), []);
    assert_eq!(store.report(report(first, 1, vec![done(1)]), at(end + 1)).await.unwrap(), Reported::LeaseLost);
    assert_eq!(task(store, made).await.counters.total(), 0);
    take(store, report(second, 1, vec![done(1)]), end + 1).await;
    assert_eq!(task(store, made).await.counters.succeeded, 1);
    assert_eq!(task(store, made).await.started, Some(at(10)), "when it ran first");
}

pub async fn a_paused_task_is_stopped_and_goes_on_later(store: &Store) {
    let (made, lease) = running(store).await;
    assert_eq!(store.pause(made, "maintenance", at(11)).await.unwrap(), Changed::Done);
    assert!(matches!(task(store, made).await.condition, Condition::Paused { message, .. } if message == "maintenance"));
    // Its orchestrator is told, and may still say what it did.
    assert_eq!(store.renew(id(1), &[lease], at(12)).await.unwrap(), [lease]);
    take(store, report(lease, 1, vec![done(1)]), 12).await;
    take(store, ending(lease, 2, End::Stopped), 13).await;
    assert!(matches!(task(store, made).await.condition, Condition::Paused { .. }));
    assert!(store.lease(id(2), at(1000), 1, MANY).await.unwrap().is_empty());
    assert_eq!(store.resume(made, at(1001)).await.unwrap(), Changed::Done);
    let kept = task(store, made).await;
    assert!(matches!(kept.condition, Condition::Queued), "{kept:?}");
    assert_eq!((kept.status, kept.counters.succeeded), (Status::Active, 1));
    assert_eq!(leased(store, 2, 1002).await.epoch, 2);
    let codes: Vec<_> = store.events(made, None, 0, 10).await.unwrap().0.into_iter().map(|event| event.code).collect();
    assert_eq!(codes, ["UNPAUSED", "PAUSED"]);
    assert_eq!(store.pause(id(99), "", at(1)).await.unwrap(), Changed::NotFound);
}

pub async fn a_released_task_is_anybodys(store: &Store) {
    let (_, lease) = running(store).await;
    store.release(lease).await.unwrap();
    assert_eq!(store.report(report(lease, 1, vec![done(1)]), at(11)).await.unwrap(), Reported::LeaseLost);
    let second = leased(store, 2, 11).await;
    // The one before has nothing to give back any more.
    store.release(lease).await.unwrap();
    assert!(store.holds(second).await.unwrap());
}

pub async fn what_a_dead_orchestrator_held_is_anybodys_at_once(store: &Store) {
    let (_, held) = running(store).await;
    assert_eq!(store.release_all(id(77)).await.unwrap(), 0);
    assert!(store.holds(held).await.unwrap());
    let holder = id(1);
    assert_eq!(store.release_all(holder).await.unwrap(), 1);
    assert_eq!(store.report(report(held, 1, vec![done(1)]), at(11)).await.unwrap(), Reported::LeaseLost);
    assert_eq!(leased(store, 2, 11).await.epoch, held.epoch + 1);
    assert_eq!(store.release_all(holder).await.unwrap(), 0);
}

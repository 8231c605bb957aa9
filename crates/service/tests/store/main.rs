//! What the store promises, of SQLite and of PostgreSQL: the same cases and the same models for both.

#![allow(clippy::unwrap_used, reason = "a test helper that fails ends its test")]

mod files;
mod house;
mod leases;
mod made;
mod models;
mod records;
mod reports;
mod submissions;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};

use tempfile::TempDir;
use whimbrel_service::store::{SealKey, Store, StoreError};
use whimbrel_testkit::peers::Postgres;

/// A promise, proven with a store that is empty at first.
type Case = for<'a> fn(&'a Store) -> Pin<Box<dyn Future<Output = ()> + 'a>>;

macro_rules! cases {
    ($($module:ident :: $name:ident),* $(,)?) => {
        &[$((stringify!($name), (|store| Box::pin($module::$name(store))) as Case)),*]
    };
}

const CASES: &[(&str, Case)] = cases![
    records::a_record_is_found_by_identity_and_keys_in_order,
    records::a_batch_fails_whole_when_a_version_is_not_the_one_read,
    records::a_record_made_again_is_not_taken_for_the_one_before,
    records::what_cannot_be_stored_is_refused,
    records::audit_is_listed_newest_first_in_pages,
    records::audit_goes_on_after_a_mark_and_misses_nothing,
    records::who_exports_while_others_write_misses_nothing,
    records::of_many_changes_at_once_one_wins,
    submissions::a_submission_is_taken_once,
    submissions::a_hundred_thousand_items_come_back_in_order,
    submissions::items_without_a_right_order_are_refused,
    submissions::tasks_are_listed_by_every_filter_and_order,
    submissions::a_task_gets_another_label_and_deadline,
    leases::owners_get_fair_shares,
    leases::one_of_many_orchestrators_gets_a_task,
    leases::a_lease_that_is_not_renewed_is_given_to_another,
    leases::a_paused_task_is_stopped_and_goes_on_later,
    leases::a_released_task_is_anybodys,
    leases::what_a_dead_orchestrator_held_is_anybodys_at_once,
    reports::items_counters_and_listings_follow_reports,
    reports::a_repeated_report_is_taken_once,
    reports::of_reports_at_the_same_time_each_counts_once,
    reports::a_report_that_cannot_be_right_changes_nothing,
    reports::a_cancelled_task_takes_no_more_reports,
    reports::the_deadline_ends_tasks,
    reports::troubles_make_a_task_wait_longer_and_longer,
    reports::a_missing_credential_makes_a_task_inactive,
    reports::what_failed_first_fails_the_task,
    reports::items_that_vanish_are_no_success,
    reports::what_was_deleted_and_never_reported_is_done,
    reports::extras_that_were_deleted_and_never_reported_are_done,
    reports::copies_that_nobody_compared_are_told_once,
    reports::of_very_many_events_the_first_and_the_newest_stay,
    reports::ten_thousand_changes_a_second,
    house::what_is_due_is_found_in_the_order_of_its_time,
    house::old_tasks_are_forgotten_with_all_that_is_theirs,
    house::tasks_are_counted_by_what_they_wait_for,
    house::owners_are_told_of_what_they_want_to_hear_once,
];

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// A store in a file, with the directory that it is in.
async fn in_file() -> (TempDir, Store) {
    let directory = tempfile::tempdir().expect("a directory");
    let url = format!("sqlite:{}", directory.path().join("store.db").display());
    (directory, Store::open(&url).await.expect("a store in a file opens"))
}

async fn in_postgres(server: &Postgres, name: &str) -> Store {
    let key = SealKey::random().expect("a key");
    Store::open_with(&server.database(name), key).await.expect("a store in PostgreSQL opens")
}

#[test]
fn promises_hold_in_sqlite() {
    runtime().block_on(async {
        for (name, case) in CASES {
            println!("{name}");
            let (_directory, store) = in_file().await;
            case(&store).await;
            store.close().await.expect("it closes");
        }
    });
}

#[test]
fn promises_hold_in_memory() {
    runtime().block_on(async {
        for (name, case) in CASES {
            println!("{name}");
            case(&Store::open("sqlite::memory:").await.expect("a store in memory opens")).await;
        }
    });
}

#[test]
fn models_agree_with_sqlite() {
    let runtime = runtime();
    let open = || Store::open("sqlite::memory:");
    let fresh = || runtime.block_on(open()).expect("a store in memory opens");
    models::run(100, models::batches(), |batches| runtime.block_on(models::records(&fresh(), batches)));
    models::run(200, models::courses(), |steps| runtime.block_on(models::course(&fresh(), 1, steps)));
}

#[test]
fn promises_hold_in_postgresql() {
    let Some(server) = Postgres::start() else { return };
    let runtime = runtime();
    let store = runtime.block_on(in_postgres(&server, "models"));
    let courses = AtomicU64::new(0);
    let number = || courses.fetch_add(1, Ordering::Relaxed).into();
    models::run(20, models::batches(), |batches| runtime.block_on(models::records(&store, batches)));
    models::run(40, models::courses(), |steps| runtime.block_on(models::course(&store, number(), steps)));
    runtime.block_on(async {
        for (name, case) in CASES {
            println!("{name}");
            let store = in_postgres(&server, name).await;
            case(&store).await;
            store.close().await.expect("it closes");
        }
    });
}

#[test]
fn replicas_that_begin_together_make_the_tables_once_and_share_all() {
    let Some(server) = Postgres::start() else { return };
    let url = server.database("replicas");
    let key = SealKey::random().expect("a key");
    runtime().block_on(async {
        let mut opening = tokio::task::JoinSet::new();
        for _ in 0..6 {
            let (url, key) = (url.clone(), key.clone());
            opening.spawn(async move { Store::open_with(&url, key).await });
        }
        let stores: Vec<Store> = opening.join_all().await.into_iter().map(|store| store.expect("it opens")).collect();
        let made = made::submitted(&stores[0], &made::transfer(1, 1), 0).await;
        for number in 2..=60 {
            made::submitted(&stores[1], &made::transfer(number % 3, number), 0).await;
        }
        let mut polls = tokio::task::JoinSet::new();
        for (orchestrator, store) in (0..).zip(stores.clone()) {
            polls.spawn(async move {
                let mut leased = Vec::new();
                for _ in 0..10 {
                    leased.extend(store.lease(made::id(orchestrator), made::at(1), 1, 7).await.expect("it is asked"));
                }
                leased
            });
        }
        let leased: Vec<_> = polls.join_all().await.into_iter().flatten().collect();
        assert!(leased.iter().all(|(_, lease)| lease.epoch == 1));
        assert_eq!(leased.len(), 21, "seven tasks of each of three owners");
        // A server that restarts takes all connections with it.
        server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'replicas'");
        assert_eq!(made::task(&stores[5], made).await.id, made);
        let sealed = stores[0].seal("a", "b", b"secret").expect("it is sealed");
        assert_eq!(stores[1].unseal("a", "b", &sealed).expect("it is opened").as_slice(), b"secret");
        let another = Store::open_with(&url, SealKey::random().expect("a key")).await;
        assert!(matches!(another, Err(StoreError::WrongKey(_))));
        let none = Store::open(&url).await.expect("it opens");
        assert!(matches!(none.seal("a", "b", b"x"), Err(StoreError::NoKey)));
        for url in [url.replace("replicas?", "nowhere?"), url.replace("host=/", "host=/nowhere/")] {
            let error = Store::open(&url).await.err().expect("there is nothing");
            assert!(matches!(error, StoreError::Refused(_) | StoreError::Unavailable(_)), "{error}");
        }
    });
}

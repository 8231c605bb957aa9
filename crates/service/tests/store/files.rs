//! What is special about files, keys and other programs' databases.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use whimbrel_engine::Fault;
use whimbrel_engine::dispatch::key;
use whimbrel_engine::fault::FaultCode;
use whimbrel_service::store::{SealKey, Store, StoreError};
use whimbrel_testkit::peers::{self, Daemon};
use whimbrel_testkit::tmpfs::Tmpfs;

use crate::made::{at, done, file, found, id, item, report, submitted, take, task, transfer};
use crate::{in_file, runtime};

/// Names the store of [`child_that_reports_until_it_is_killed`], and which of its lives it is.
const CHILD: &str = "WHIMBREL_STORE_CHILD";
const LIMIT: Duration = Duration::from_secs(60);

fn url(directory: &TempDir) -> String {
    format!("sqlite:{}", directory.path().join("store.db").display())
}

#[tokio::test]
async fn what_was_stored_is_there_when_it_is_opened_again() {
    let (directory, store) = in_file().await;
    let made = submitted(&store, &transfer(1, 1), 0).await;
    let sealed = store.seal("credential", "1", b"secret").unwrap();
    // Two handles at a time are two programs to each other.
    let second = Store::open(&url(&directory)).await.unwrap();
    assert_eq!(second.task(made).await.unwrap().unwrap().wanted, transfer(1, 1).wanted);
    submitted(&second, &transfer(1, 2), 0).await;
    store.close().await.unwrap();
    second.close().await.unwrap();
    assert!(matches!(store.task(made).await, Err(StoreError::Unavailable(_))));
    let store = Store::open(&url(&directory)).await.unwrap();
    assert_eq!(task(&store, made).await.id, made);
    assert_eq!(store.unseal("credential", "1", &sealed).unwrap().as_slice(), b"secret");
    for name in ["store.db", "store.db-wal", "store.db.key"] {
        let mode = fs::metadata(directory.path().join(name)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name} is its owner's only");
    }
}

#[tokio::test]
async fn another_key_is_refused_at_once() {
    let (directory, store) = in_file().await;
    store.close().await.unwrap();
    fs::remove_file(directory.path().join("store.db.key")).unwrap();
    assert!(matches!(Store::open(&url(&directory)).await, Err(StoreError::WrongKey(_))));
    let given = Store::open_with(&url(&directory), SealKey::random().unwrap()).await;
    assert!(matches!(given, Err(StoreError::WrongKey(_))));
}

#[tokio::test]
async fn urls_and_files_that_are_no_store_are_refused_with_reasons() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("store.db"), "this is not a database, but it is long enough to be one".repeat(100))
        .unwrap();
    let error = refused(&url(&directory)).await;
    assert!(matches!(&error, StoreError::Corrupt(_)), "{error}");
    assert_eq!(Fault::from(error).code, FaultCode::StorageIo);
    let error = refused(&format!("sqlite:{}/none/store.db", directory.path().display())).await;
    assert!(matches!(&error, StoreError::Refused(text) if text.contains("none")), "{error}");
    for wrong in ["mysql://host/db", "store.db", ""] {
        assert!(matches!(refused(wrong).await, StoreError::Refused(_)), "{wrong}");
    }
}

async fn refused(url: &str) -> StoreError {
    match Store::open(url).await {
        Ok(_) => panic!("{url} is opened"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn a_database_of_a_newer_program_is_left_alone() {
    let (directory, store) = in_file().await;
    let made = submitted(&store, &transfer(1, 1), 0).await;
    store.close().await.unwrap();
    let path = directory.path().join("store.db");
    let Some(python) = peers::python(SET_VERSION) else { return };
    let version = python.arg(&path).arg("99").run_ok().stdout_text();
    let error = refused(&url(&directory)).await;
    assert!(matches!(error, StoreError::NewerSchema { found: 99, .. }), "{error}");
    assert!(Fault::from(error).detail.contains("newer program"));
    peers::python(SET_VERSION).expect("it was there before").arg(&path).arg(version.trim()).run_ok();
    assert_eq!(task(&Store::open(&url(&directory)).await.unwrap(), made).await.id, made);
}

/// As another program does, with Python's SQLite; tells the version before.
const SET_VERSION: &str = "import sqlite3, sys
c = sqlite3.connect(sys.argv[1])
print(c.execute('SELECT version FROM schema_version').fetchone()[0])
c.execute('UPDATE schema_version SET version = ' + sys.argv[2])
c.commit()";

#[test]
fn a_full_disk_is_told_and_what_was_there_stays() {
    if !whimbrel_testkit::require_root() {
        return;
    }
    let disk = Tmpfs::mount(4 << 20).unwrap();
    let url = format!("sqlite:{}/store.db", disk.path().display());
    runtime().block_on(async {
        let store = Store::open(&url).await.unwrap();
        let made = submitted(&store, &transfer(1, 0), 0).await;
        let mut submission = transfer(1, 1);
        submission.items = (1..=1000).map(item).collect();
        let mut taken = 0;
        let error = loop {
            submission.wanted.submission = id(1000 + taken);
            submission.wanted.fingerprint = taken.to_string();
            match store.submit(&submission, at(1)).await {
                Ok(_) => taken += 1,
                Err(error) => break error,
            }
            assert!(taken < 1000, "a disk without end");
        };
        assert!(matches!(error, StoreError::Full(_)), "{error}");
        assert_eq!(Fault::from(error).code, FaultCode::NoSpace);
        assert_eq!(task(&store, made).await.id, made);
        let (_, total) = store.tasks(&Default::default()).await.unwrap();
        assert_eq!(u128::from(total), taken + 1, "what was refused has left nothing");
        disk.resize(16 << 20).unwrap();
        store.submit(&submission, at(2)).await.expect("there is room again");
        store.close().await.unwrap();
    });
}

/// Reports items 1, 2, 3, ... and says so after each answer. Does nothing unless it is started by the test below.
#[test]
fn child_that_reports_until_it_is_killed() {
    let Ok(given) = std::env::var(CHILD) else { return };
    let (life, url) = given.split_once(' ').expect("life and URL");
    let life: i64 = life.parse().expect("a number");
    runtime().block_on(async {
        let store = Store::open(url).await.expect("it opens");
        let now = life * 1000;
        let leased = store.lease(id(life.cast_unsigned().into()), at(now), 1, 1).await.expect("it is leased");
        let (task, lease) = leased.first().expect("the lease of the life before is over");
        let begin = task.counters.succeeded + 1;
        for (sequence, first) in (1..).zip((begin..begin + 1_000_000).step_by(20)) {
            let changes = (first..first + 20).flat_map(|number| [found(number), done(number)]).collect();
            take(&store, report(*lease, sequence, changes), now).await;
            println!("\nacknowledged {}", first + 19);
        }
    });
}

#[test]
fn what_was_acknowledged_survives_a_kill() {
    let (directory, store) = runtime().block_on(in_file());
    let mut endless = transfer(1, 1);
    endless.wanted.deadline = at(i64::from(i32::MAX));
    let made = runtime().block_on(async {
        let made = submitted(&store, &endless, 0).await;
        store.close().await.unwrap();
        made
    });
    let mut before = 0;
    for life in 1..=6 {
        let wanted = before + 20 * life * life;
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "files::child_that_reports_until_it_is_killed", "--nocapture"]);
        child.env(CHILD, format!("{life} {}", url(&directory)));
        let said = |line: &str| line.strip_prefix("acknowledged ")?.parse::<u64>().ok();
        let (child, _) = Daemon::start(child, LIMIT, |line| said(line).filter(|number| *number >= wanted)).unwrap();
        // Ends it with SIGKILL, whatever it is doing.
        let log = child.into_log();
        let acknowledged = log.lines().filter_map(said).max().unwrap();
        runtime().block_on(async {
            let store = Store::open(&url(&directory)).await.unwrap();
            // Compares the counters with a recount.
            let kept = task(&store, made).await.counters;
            assert!(kept.succeeded >= acknowledged && kept.succeeded % 20 == 0, "{} of {acknowledged}", kept.succeeded);
            assert_eq!(kept.bytes_transferred, (1..=kept.succeeded).map(|number| number * 10).sum::<u64>());
            let keys = store.finished_keys(made, 0, u32::MAX).await.unwrap().keys;
            assert_eq!(keys, (1..=kept.succeeded).map(|number| key(&file(number))).collect::<Vec<_>>());
            before = kept.succeeded;
            store.close().await.unwrap();
        });
    }
}

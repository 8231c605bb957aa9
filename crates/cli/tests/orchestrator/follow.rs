//! A directory that is copied while it is written.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use uuid::Uuid;
use whimbrel_engine::FaultCode;
use whimbrel_engine::dispatch::{End, Occurrence, Work};
use whimbrel_engine::task::{Follow, ItemKind, ItemState, TransferOptions};

use crate::bench::{Bench, Ends, item};
use crate::open_up;
use crate::support::dtn::until;
use crate::support::{Field, assert_same};

fn following(until: Option<&str>) -> TransferOptions {
    let until = until.map(str::to_owned);
    let follow = Follow { until, settled_after_seconds: 1, include_hidden: false };
    TransferOptions { verify: true, follow: Some(follow), ..TransferOptions::default() }
}

fn begun(bench: &Bench, ends: &Ends, options: TransferOptions, from: &Path, to: &Path) -> Uuid {
    ends.submit(&bench.service, Work::Transfer(Box::new(options)), vec![item(1, from, to)])
}

fn copied(bench: &Bench, task: Uuid) -> usize {
    bench.service.see(task, |task| task.count(ItemKind::File, ItemState::Succeeded))
}

fn write(path: &Path, content: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
    open_up(path.parent().unwrap());
}

/// Files below a directory, with what tells a file that was moved again.
fn inodes(root: &Path) -> BTreeMap<String, u64> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(inodes(&path)),
            false => drop(found.insert(path.display().to_string(), fs::metadata(&path).unwrap().ino())),
        }
    }
    found
}

#[test]
fn files_come_as_they_are_complete_and_the_marker_ends_it() {
    let field = Field::new();
    let ends = Ends::own(&field.path(""));
    let bench = Bench::new();
    let (from, to) = (field.path("run"), field.path("to/run"));
    for number in 0..5 {
        write(&from.join(format!("first/f{number}")), "first");
    }
    write(&from.join(".hidden"), "x");
    open_up(&field.path(""));
    let task = begun(&bench, &ends, following(Some("DONE")), &from, &to);
    until("the first files", || copied(&bench, task) == 5);
    until("that it has caught up", || {
        let told = |told: &Occurrence| matches!(told, Occurrence::CaughtUp { files: 5 });
        bench.service.see(task, |task| task.occurrences.iter().any(told))
    });
    assert_eq!(fs::read(to.join("first/f3")).unwrap(), b"first");
    // Another content of one that is copied, and one more.
    write(&from.join("first/f3"), "second");
    write(&from.join("later/g"), "later");
    until("what came later", || {
        fs::read(to.join("first/f3")).is_ok_and(|content| content == b"second") && to.join("later/g").exists()
    });
    write(&from.join("DONE"), "");
    let end = bench.wait(task);
    assert!(matches!(end, End::Finished), "{end:?}");
    fs::remove_file(from.join(".hidden")).unwrap();
    assert_same(&from, &to);
    bench.service.see(task, |task| {
        assert_eq!((task.count(ItemKind::File, ItemState::Succeeded), task.records.len(), task.open()), (7, 7, 0));
        let told = task.occurrences.iter().filter(|told| matches!(told, Occurrence::CaughtUp { .. }));
        assert_eq!(told.count(), 1);
    });
    bench.finish();
}

#[test]
fn after_a_crash_or_a_pause_it_goes_on_and_moves_nothing_twice() {
    let field = Field::new();
    let ends = Ends::own(&field.path(""));
    let bench = Bench::new();
    let (from, to) = (field.path("run"), field.path("to/run"));
    for number in 0..20 {
        write(&from.join(format!("f{number}")), "first");
    }
    open_up(&field.path(""));
    let task = begun(&bench, &ends, following(Some("DONE")), &from, &to);
    until("the first files", || copied(&bench, task) == 20);
    let before = inodes(&to);
    assert_eq!(before.len(), 20);
    let service = bench.service.clone();
    bench.crash();
    // Nobody looks: one comes, one is written again.
    write(&from.join("between"), "x");
    write(&from.join("f7"), "other");
    service.again(task);
    let bench = Bench::of(service);
    until("what came between", || {
        copied(&bench, task) == 21 && fs::read(to.join("f7")).is_ok_and(|content| content == b"other")
    });
    bench.service.stop(task);
    let end = bench.wait(task);
    assert!(matches!(end, End::Stopped), "{end:?}");
    write(&from.join("paused"), "x");
    bench.service.again(task);
    until("what came while it was paused", || copied(&bench, task) == 22);
    write(&from.join("DONE"), "");
    let end = bench.wait(task);
    assert!(matches!(end, End::Finished), "{end:?}");
    assert_same(&from, &to);
    let after = inodes(&to);
    for (path, inode) in before.iter().filter(|(path, _)| !path.ends_with("/f7")) {
        assert_eq!(after.get(path), Some(inode), "{path} was moved again");
    }
    bench.service.see(task, |task| {
        assert_eq!((task.count(ItemKind::File, ItemState::Succeeded), task.open()), (23, 0));
    });
    bench.finish();
}

#[test]
fn the_marker_waits_for_what_failed_and_the_task_says_so() {
    let field = Field::new();
    let ends = Ends::own(&field.path(""));
    let bench = Bench::new();
    let (from, to) = (field.path("run"), field.path("to/run"));
    write(&from.join("good"), "x");
    write(&from.join("bad"), "x");
    // A directory is where the file should go: nothing helps.
    fs::create_dir_all(to.join("bad/in the way")).unwrap();
    open_up(&field.path(""));
    let task = begun(&bench, &ends, following(Some("DONE")), &from, &to);
    until("the first file", || copied(&bench, task) == 1);
    write(&from.join("DONE"), "");
    let end = bench.wait(task);
    assert!(matches!(end, End::Finished), "{end:?}");
    assert!(!to.join("DONE").exists());
    bench.service.see(task, |task| {
        let failed: BTreeMap<_, _> = task
            .records
            .values()
            .filter_map(|record| Some((record.subject.source.clone(), record.fault.as_ref()?.code)))
            .collect();
        assert_eq!(failed.len(), 2, "{failed:?}");
        let marker = from.join("DONE").display().to_string().into_bytes();
        assert_eq!(failed.get(&marker), Some(&FaultCode::HeldBack));
        assert_eq!(task.open(), 0);
    });
    bench.finish();
}

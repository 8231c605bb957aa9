//! Tasks that were worked on before, and what somebody else does meanwhile.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use whimbrel_engine::FaultCode;
use whimbrel_engine::dispatch::{Assignment, End, Occurrence, Subject, Work};
use whimbrel_engine::task::{DeleteOptions, ItemKind, ItemState, Symlinks, TransferOptions};

use crate::bench::{Bench, Ends, item};
use crate::support::dtn::until;
use crate::support::{Field, Server};
use crate::{open_up, verified};

fn subject(kind: ItemKind, source: &Path, destination: &Path) -> Subject {
    let bytes = |path: &Path| path.as_os_str().as_bytes().to_vec();
    Subject { kind, source: bytes(source), destination: bytes(destination), extra: false }
}

fn moving() -> TransferOptions {
    TransferOptions { move_source: true, symlinks: Symlinks::Keep, ..verified() }
}

fn told(bench: &Bench, task: uuid::Uuid, code: FaultCode) -> bool {
    let is_it = |told: &Occurrence| matches!(told, Occurrence::Faulted { fault, .. } if fault.code == code);
    bench.service.see(task, |task| task.occurrences.iter().any(is_it))
}

#[test]
fn a_source_that_is_down_leaves_the_files_of_a_finished_directory_for_later() {
    let field = Field::new();
    let mut ends = Ends::own(&field.path(""));
    let bench = Bench::new();
    let (from, to) = (field.path("from/deep"), field.path("to/deep"));
    let url = ends.site(0).servers[0].url.clone();
    ends.servers[0] = Server::own();
    let mut down = ends.site(0);
    down.servers[0].url = url;
    let assignment = Assignment { source: down, ..ends.assignment(Work::Transfer(Box::new(verified()))) };
    let task = assignment.lease.task;
    let known = vec![
        (subject(ItemKind::Directory, &from, &to), ItemState::Succeeded),
        (subject(ItemKind::File, &from.join("f00"), &to.join("f00")), ItemState::Pending),
    ];
    bench.service.submit_known(assignment, vec![item(1, &from, &to)], known);
    let end = bench.wait(task);
    let End::Again { fault, .. } = end else { panic!("{end:?}") };
    assert_eq!(fault.code, FaultCode::ConnectionRefused);
    bench.finish();
}

#[test]
fn a_mirror_spares_trees_in_which_something_failed_in_an_earlier_run() {
    let field = Field::new();
    let ends = Ends::own(&field.path(""));
    let bench = Bench::new();
    let (from, to) = (field.path("from"), field.path("to"));
    for name in ["spared", "swept"] {
        fs::create_dir_all(to.join(name)).unwrap();
        fs::write(to.join(name).join("stale"), "old").unwrap();
    }
    open_up(&field.path(""));
    let options = TransferOptions { delete_extra: true, ..verified() };
    let assignment = ends.assignment(Work::Transfer(Box::new(options)));
    let task = assignment.lease.task;
    let items = vec![item(1, &from, &to.join("spared")), item(2, &from.join("deep"), &to.join("swept"))];
    let failed = subject(ItemKind::File, &from.join("deep/f00"), &to.join("spared/deep/f00"));
    bench.service.submit_known(assignment, items, vec![(failed, ItemState::Failed)]);
    let end = bench.wait(task);
    assert!(matches!(end, End::Finished), "{end:?}");
    assert!(to.join("spared/stale").exists() && !to.join("swept/stale").exists());
    bench.service.see(task, |task| {
        let kept = task.occurrences.iter().filter(|told| matches!(told, Occurrence::ExtraKept { .. }));
        assert_eq!(kept.count(), 1);
    });
    bench.finish();
}

#[test]
fn a_missing_directory_that_somebody_else_makes_meanwhile_fails_nothing() {
    let field = Field::new();
    let ends = Ends::own(&field.path(""));
    let bench = Bench::new();
    open_up(&field.path(""));
    let (from, to) = (field.path("from"), field.path("to/new"));
    // One at a time: the first one is tried before the second one makes its directory.
    let mut assignment = ends.assignment(Work::Transfer(Box::new(verified())));
    assignment.max_concurrency = Some(1);
    let task = assignment.lease.task;
    let items = vec![item(1, &from.join("one"), &to.join("one")), item(2, &from.join("deep"), &to)];
    bench.service.submit(assignment, items);
    let end = bench.wait(task);
    assert!(matches!(end, End::Finished), "{end:?}");
    assert_eq!(fs::read(to.join("one")).unwrap(), b"1");
    bench.service.see(task, |task| {
        assert_eq!((task.open(), task.paths(ItemState::Failed)), (0, Vec::<String>::new()));
    });
    bench.finish();
}

#[test]
fn a_move_keeps_a_source_that_was_written_since_it_was_copied() {
    let field = Field::new();
    let ends = Ends::own(&field.path(""));
    let bench = Bench::new();
    open_up(&field.path(""));
    let (from, to) = (field.path("from/one"), field.path("to/one"));
    let copied = fs::read(&from).unwrap();
    // It is copied and proven, and nobody has put that on record yet.
    bench.service.incredulous(true);
    let task = ends.submit(&bench.service, Work::Transfer(Box::new(moving())), vec![item(1, &from, &to)]);
    until("a report of the copy", || bench.service.unheard() > 0);
    fs::write(&from, "another version").unwrap();
    bench.service.incredulous(false);
    let end = bench.wait(task);
    let End::Again { fault, .. } = end else { panic!("{end:?}") };
    assert_eq!(fault.code, FaultCode::SourceChanged);
    assert!(told(&bench, task, FaultCode::SourceChanged));

    // A later run does not write the new version over the old one, and says what stays.
    bench.service.again(task);
    let end = bench.wait(task);
    let End::Impossible { fault } = end else { panic!("{end:?}") };
    assert_eq!(fault.code, FaultCode::SourceChanged);
    assert_eq!((fs::read(&from).unwrap(), fs::read(&to).unwrap()), (b"another version".to_vec(), copied));
    bench.service.see(task, |task| assert_eq!(task.count(ItemKind::File, ItemState::Succeeded), 1));
    bench.finish();
}

#[test]
fn a_move_deletes_what_an_earlier_run_copied_and_could_not_delete() {
    let field = Field::new();
    let ends = Ends::own(&field.path(""));
    let bench = Bench::new();
    open_up(&field.path(""));
    let (from, to) = (field.path("from/one"), field.path("to/one"));
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    fs::copy(&from, &to).unwrap();
    open_up(to.parent().unwrap());
    let assignment = ends.assignment(Work::Transfer(Box::new(moving())));
    let task = assignment.lease.task;
    let known = vec![(subject(ItemKind::File, &from, &to), ItemState::Succeeded)];
    bench.service.submit_known(assignment, vec![item(1, &from, &to)], known);
    let end = bench.wait(task);
    assert!(matches!(end, End::Finished), "{end:?}");
    assert!(!from.exists() && to.exists());
    bench.finish();
}

#[test]
fn what_an_earlier_lease_deleted_and_could_not_report_is_done() {
    let field = Field::new();
    let ends = Ends::own(&field.path(""));
    let bench = Bench::new();
    open_up(&field.path(""));
    let (whole, pattern) = (field.path("from/deep"), field.path("from/on*"));
    let options = DeleteOptions { recursive: true, globs: true, ..DeleteOptions::default() };
    let service = bench.service.clone();
    service.incredulous(true);
    let items = vec![item(1, &whole, Path::new("")), item(2, &pattern, Path::new(""))];
    let task = ends.submit(&service, Work::Delete(options), items);
    until("all is deleted", || !whole.exists() && !field.path("from/one").exists());
    bench.crash();

    service.incredulous(false);
    service.again(task);
    let bench = Bench::of(service);
    let end = bench.wait(task);
    assert!(matches!(end, End::Finished), "{end:?}");
    bench.service.see(task, |task| {
        assert_eq!(task.paths(ItemState::Failed), Vec::<String>::new());
        assert!(task.paths(ItemState::Succeeded).contains(&whole.display().to_string()));
    });
    bench.finish();
}

#[test]
fn polls_say_what_ends_already() {
    let field = Field::new();
    let ends = Ends::own(&field.path(""));
    let bench = Bench::new();
    bench.service.deaf_after(Some(0));
    let items = vec![item(1, &field.path("from/one"), &field.path("to/one"))];
    let task = ends.submit(&bench.service, Work::Transfer(Box::new(verified())), items);
    until("the lease is named", || bench.service.named().iter().any(|lease| lease.task == task));
    assert_eq!(bench.service.ending(), []);
    bench.service.stop(task);
    until("its end is named", || bench.service.ending().iter().any(|lease| lease.task == task));
    bench.service.deaf_after(None);
    let _ = bench.wait(task);
    bench.finish();
}

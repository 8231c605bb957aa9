//! Orchestrators with real servers, for a service that is simple enough to be right.
#![allow(clippy::unwrap_used, reason = "a test helper that fails ends its test")]

mod bench;
mod desk;
mod durable;
mod follow;
mod foresee;
mod random;
mod resumed;
mod secured;
mod single;
#[path = "../support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bench::{Bench, Ends, item};
use support::dtn::until;
use support::traced::{Call, Traced};
use support::{Field, assert_same};
use uuid::Uuid;
use whimbrel_dtn::orchestrator::Limits;
use whimbrel_engine::FaultCode;
use whimbrel_engine::dispatch::{Assignment, End, Occurrence, Server as SiteServer, Site, Work, WorkItem};
use whimbrel_engine::plan::SyncLevel;
use whimbrel_engine::task::{
    ExternalChecksum, Filter, FilterMethod, FilterRule, FilterType, ItemKind, ItemState, Symlinks, TransferOptions,
};

fn verified() -> TransferOptions {
    TransferOptions { verify: true, ..TransferOptions::default() }
}

/// Lets everybody do everything in a directory: servers may run as nobody.
fn open_up(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    for entry in fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            open_up(&entry.path());
        } else if kind.is_file() {
            fs::set_permissions(entry.path(), fs::Permissions::from_mode(0o666)).unwrap();
        }
    }
}

#[test]
fn files_and_trees_are_copied_and_every_item_is_accounted_for() {
    let field = Field::new();
    let ends = Ends::own(&field.path(""));
    let bench = Bench::new();
    bench.service.lose_answers(3);
    let (from, to) = (field.path("from"), field.path("to"));
    let items = vec![
        item(1, &from.join("deep"), &to.join("tree")),
        item(2, &from.join("one"), &to.join("uno")),
        WorkItem { recursive: Some(false), ..item(3, &from.join("deep/er/big"), &to.join("big")) },
        WorkItem { recursive: Some(true), ..item(4, &from.join("empty"), &to.join("empty/")) },
        item(5, &from.join("link"), &to.join("followed")),
        WorkItem { symlink: true, ..item(6, &from.join("link"), &to.join("link")) },
    ];
    let (task, end) = bench.transfer(&ends, verified(), items);
    assert!(matches!(end, End::Finished), "{end:?}");
    assert_same(&from.join("deep"), &to.join("tree"));
    assert_same(&from.join("deep/er/big"), &to.join("big"));
    assert_eq!(fs::read(to.join("followed")).unwrap(), b"1");
    assert_eq!(fs::read_link(to.join("link")).unwrap(), fs::read_link(from.join("link")).unwrap());
    bench.service.see(task, |task| {
        assert_eq!(task.count(ItemKind::File, ItemState::Succeeded), 41 + 3);
        assert_eq!(task.count(ItemKind::Directory, ItemState::Succeeded), 3);
        assert_eq!(task.count(ItemKind::Symlink, ItemState::Succeeded), 1);
        assert_eq!(task.open(), 0);
        assert!(task.occurrences.iter().any(|told| matches!(told, Occurrence::Started { .. })));
    });
    bench.finish();
}

#[test]
fn what_is_not_what_was_demanded_fails_and_the_rest_is_copied() {
    let field = Field::new();
    let ends = Ends::own(&field.path(""));
    let bench = Bench::new();
    let (from, to) = (field.path("from"), field.path("to"));
    let items = vec![
        WorkItem { recursive: Some(false), ..item(1, &from.join("deep"), &to.join("a")) },
        WorkItem { recursive: Some(true), ..item(2, &from.join("one"), &to.join("b")) },
        WorkItem { symlink: true, ..item(3, &from.join("one"), &to.join("c")) },
        item(4, &from.join("nothing"), &to.join("d")),
        item(5, &from.join("one"), &to.join("e")),
    ];
    let (task, end) = bench.transfer(&ends, verified(), items);
    assert!(matches!(end, End::Finished), "{end:?}");
    bench.service.see(task, |task| {
        let codes: BTreeMap<String, FaultCode> = task
            .records
            .values()
            .filter_map(|record| {
                let path = String::from_utf8(record.subject.destination.clone()).unwrap();
                Some((path.rsplit('/').next()?.to_owned(), record.fault.as_ref()?.code))
            })
            .collect();
        let expected = [
            ("a", FaultCode::IsADirectory),
            ("b", FaultCode::NotADirectory),
            ("c", FaultCode::NotASymlink),
            ("d", FaultCode::NotFound),
        ];
        assert_eq!(codes, expected.map(|(name, code)| (name.to_owned(), code)).into());
        assert_eq!(task.paths(ItemState::Succeeded).len(), 1);
    });
    bench.finish();
}

#[test]
fn a_wrong_checksum_of_the_users_ends_the_task_and_a_right_one_does_not() {
    let field = Field::new();
    let ends = Ends::own(&field.path(""));
    let bench = Bench::new();
    let (from, to) = (field.path("from"), field.path("to"));
    let with = |digest: &str, name: &str| {
        let checksum = ExternalChecksum { algorithm: "md5".into(), digest: digest.into() };
        vec![WorkItem { checksum: Some(checksum), ..item(1, &from.join("one"), &to.join(name)) }]
    };
    let (_, end) = bench.transfer(&ends, verified(), with("c4ca4238a0b923820dcc509a6f75849b", "right"));
    assert!(matches!(end, End::Finished), "{end:?}");
    assert_eq!(fs::read(to.join("right")).unwrap(), b"1");
    let (task, end) = bench.transfer(&ends, verified(), with("00000000000000000000000000000000", "wrong"));
    let End::Impossible { fault } = end else { panic!("{end:?}") };
    assert_eq!(fault.code, FaultCode::NotAsExpected);
    assert!(!to.join("wrong").exists());
    bench.service.see(task, |task| assert_eq!(task.paths(ItemState::Failed).len(), 1));

    // Among others, with which it could move together.
    let mut items = with("00000000000000000000000000000000", "among");
    items.extend((2..20).map(|number| item(number, &from.join("one"), &to.join(format!("beside{number}")))));
    let (_, end) = bench.transfer(&ends, verified(), items);
    let End::Impossible { fault } = end else { panic!("{end:?}") };
    assert_eq!(fault.code, FaultCode::NotAsExpected);
    assert!(!to.join("among").exists());
    bench.finish();
}

/// Many files, so that something is under way for a while.
fn many(field: &Field, count: usize) -> PathBuf {
    let many = field.path("many");
    for directory in 0..10 {
        fs::create_dir_all(many.join(format!("d{directory}"))).unwrap();
    }
    for number in 0..count {
        fs::write(many.join(format!("d{}/f{number}", number % 10)), support::pattern(3000 + number)).unwrap();
    }
    open_up(&many);
    many
}

#[test]
fn after_a_crash_another_goes_on_and_moves_nothing_twice_that_was_on_record() {
    let field = Field::new();
    let ends = Ends::own(&field.path(""));
    let (many, to) = (many(&field, 2000), field.path("to/many"));
    let bench = Bench::new();
    bench.service.deaf_after(Some(1));
    let task = ends.submit(&bench.service, Work::Transfer(Box::new(verified())), vec![item(1, &many, &to)]);
    until("some files on record", || {
        bench.service.see(task, |task| task.count(ItemKind::File, ItemState::Succeeded) > 0)
    });
    let service = bench.service.clone();
    bench.crash();
    let recorded = service.see(task, |task| task.paths(ItemState::Succeeded));
    let inode = |path: &String| fs::metadata(path).unwrap().ino();
    let before: BTreeMap<String, u64> = recorded.iter().map(|path| (path.clone(), inode(path))).collect();
    service.deaf_after(None);
    service.again(task);
    let bench = Bench::of(service);
    let end = bench.wait(task);
    assert!(matches!(end, End::Finished), "{end:?}");
    assert_same(&many, &to);
    bench.service.see(task, |task| {
        assert_eq!((task.count(ItemKind::File, ItemState::Succeeded), task.open()), (2000, 0));
        assert_eq!(task.assignment.lease.epoch, 2);
    });
    for (path, before) in before {
        assert_eq!(inode(&path), before, "{path} was moved again");
    }
    bench.finish();
}

#[test]
fn work_that_is_stopped_ends_early_and_is_finished_later() {
    let field = Field::new();
    let ends = Ends::own(&field.path(""));
    let (many, to) = (many(&field, 2000), field.path("to/many"));
    let bench = Bench::new();
    let task = ends.submit(&bench.service, Work::Transfer(Box::new(verified())), vec![item(1, &many, &to)]);
    until("some files", || bench.service.see(task, |task| task.count(ItemKind::File, ItemState::Succeeded) > 0));
    bench.service.stop(task);
    let end = bench.wait(task);
    assert!(matches!(end, End::Stopped | End::Finished), "{end:?}");
    bench.service.again(task);
    let end = bench.wait(task);
    assert!(matches!(end, End::Finished), "{end:?}");
    assert_same(&many, &to);
    bench.service.see(task, |task| assert_eq!(task.open(), 0));
    bench.finish();
}

#[test]
fn a_task_goes_as_fast_as_it_may_and_that_may_change() {
    let field = Field::new();
    let ends = Ends::own(&field.path(""));
    let (many, to) = (many(&field, 200), field.path("to/many"));
    let bench = Bench::new();
    let mut assignment = ends.assignment(Work::Transfer(Box::new(verified())));
    assignment.max_rate = Some(1);
    let task = assignment.lease.task;
    bench.service.submit(assignment, vec![item(1, &many, &to)]);
    let copied = || bench.service.see(task, |task| task.count(ItemKind::File, ItemState::Succeeded));
    until("a file", || copied() > 0);
    // The next one begins when its 3,000 bytes have been paid off, one a second.
    bench.service.rate(task, Some(2));
    until("the order is taken", || bench.service.has_no_orders());
    assert_eq!(copied(), 1);
    bench.service.rate(task, None);
    let end = bench.wait(task);
    assert!(matches!(end, End::Finished), "{end:?}");
    assert_same(&many, &to);
    bench.finish();
}

#[test]
fn a_lease_that_is_anothers_ends_work_without_a_word() {
    let field = Field::new();
    let ends = Ends::own(&field.path(""));
    let (many, to) = (many(&field, 2000), field.path("to/many"));
    let bench = Bench::new();
    let task = ends.submit(&bench.service, Work::Transfer(Box::new(verified())), vec![item(1, &many, &to)]);
    until("a report", || bench.service.see(task, |task| task.reports > 0));
    // The same orchestrator gets it anew: what the older lease's thread still says is refused.
    bench.service.again(task);
    let end = bench.wait(task);
    assert!(matches!(end, End::Finished), "{end:?}");
    assert_same(&many, &to);
    bench.service.see(task, |task| assert_eq!((task.open(), task.assignment.lease.epoch), (0, 2)));
    bench.finish();
}

#[test]
fn work_goes_on_without_the_service_until_its_lease_has_run_out() {
    let field = Field::new();
    let ends = Ends::own(&field.path(""));
    let (many, to) = (many(&field, 20), field.path("to/many"));
    // Long enough for the start of data processes on a busy host; the waits between polls that fail double from 10 ms on,
    // so that the first one behind its end comes 10.2 s after the service fell silent.
    let limits = Limits { lease: Duration::from_secs(8), ..bench::limits() };
    let bench = Bench::with(Arc::default(), limits);
    bench.service.deaf_after(Some(0));
    let task = ends.submit(&bench.service, Work::Transfer(Box::new(verified())), vec![item(1, &many, &to)]);
    until("the lease is named", || bench.service.named().iter().any(|lease| lease.task == task));
    // It knows its items.
    until("the first directory", || to.exists());
    bench.service.mute(true);
    // Nothing is taken, and all is copied.
    until("all files", || (0..20).all(|number| to.join(format!("d{}/f{number}", number % 10)).exists()));
    until("the lease is given up", || bench.service.named().is_empty());
    bench.service.mute(false);
    bench.service.deaf_after(None);
    bench.service.see(task, |task| assert_eq!((task.reports, task.end.is_some()), (0, false)));
    bench.service.again(task);
    let end = bench.wait(task);
    assert!(matches!(end, End::Finished), "{end:?}");
    bench.service.see(task, |task| assert_eq!((task.open(), task.assignment.lease.epoch), (0, 2)));
    bench.finish();
}

#[test]
fn a_server_that_is_down_leaves_the_task_for_later() {
    let field = Field::new();
    let mut ends = Ends::own(&field.path(""));
    let bench = Bench::new();
    let (from, to) = (field.path("from/deep"), field.path("to/deep"));
    let url = ends.site(1).servers[0].url.clone();
    ends.servers[1] = support::Server::own();
    let task = Uuid::from_u128(5);
    let mut down = ends.site(1);
    down.servers[0].url = url;
    let assignment = whimbrel_engine::dispatch::Assignment {
        lease: whimbrel_engine::dispatch::Lease { task, epoch: 0 },
        work: Work::Transfer(Box::new(verified())),
        source: ends.site(0),
        destination: Some(down),
        relays: Vec::new(),
        label: String::new(),
        max_concurrency: None,
        max_rate: None,
    };
    bench.service.submit(assignment, vec![item(1, &from, &to)]);
    let mut waits = Vec::new();
    for _ in 0..3 {
        let End::Again { fault, after } = bench.wait(task) else { panic!("{:?}", bench.wait(task)) };
        assert_eq!(fault.code, FaultCode::ConnectionRefused);
        waits.push(after);
        bench.service.again(task);
    }
    assert!(waits[0] < waits[1] && waits[1] < waits[2], "{waits:?}");
    bench.service.see(task, |task| assert_eq!(task.paths(ItemState::Failed), Vec::<String>::new()));
    let _ = bench.wait(task);
    bench.finish();
}

fn exclude(kind: Option<FilterType>, name: &str) -> FilterRule {
    FilterRule { method: FilterMethod::Exclude, kind, name: name.into() }
}

#[test]
fn a_mirror_deletes_what_the_source_does_not_have_and_spares_what_filters_leave_out() {
    let field = Field::new();
    let ends = Ends::own(&field.path(""));
    let bench = Bench::new();
    let (from, to) = (field.path("from"), field.path("to/copy"));
    fs::create_dir_all(to.join("old/sub")).unwrap();
    fs::create_dir_all(to.join("deep/gone")).unwrap();
    fs::create_dir_all(to.join("kept")).unwrap();
    for file in ["old/sub/a", "old/b", "deep/gone/c", "deep/stale", "deep/spared.keep", "kept/x.keep", "kept/y"] {
        fs::write(to.join(file), "old").unwrap();
    }
    symlink("/etc", to.join("out")).unwrap();
    symlink("one", to.join("link")).unwrap();
    open_up(&to);
    let options = TransferOptions {
        delete_extra: true,
        filter: Filter(vec![exclude(Some(FilterType::File), "*.keep")]),
        ..verified()
    };
    let (task, end) = bench.transfer(&ends, options, vec![item(1, &from, &to)]);
    assert!(matches!(end, End::Finished), "{end:?}");
    assert!(!to.join("old").exists() && !to.join("deep/gone").exists() && !to.join("deep/stale").exists());
    assert!(to.join("deep/spared.keep").exists() && to.join("kept/x.keep").exists() && !to.join("kept/y").exists());
    assert!(fs::symlink_metadata(to.join("out")).is_err() && Path::new("/etc/passwd").exists());
    assert!(fs::symlink_metadata(to.join("link")).is_ok(), "the source has that name");
    assert_eq!(fs::read(to.join("deep/er/big")).unwrap().len(), 3_000_001);
    bench.service.see(task, |task| {
        let extra = task.records.values().filter(|record| record.subject.extra);
        assert_eq!(extra.count(), 9, "{:?}", task.paths(ItemState::Succeeded));
        assert_eq!(task.open(), 0);
    });
    bench.finish();
}

#[test]
fn a_mirror_spares_what_may_be_a_copy_under_another_spelling() {
    let field = Field::new();
    let ends = Ends::own(&field.path(""));
    let bench = Bench::new();
    let (from, to) = (field.path("from"), field.path("to/copy"));
    fs::create_dir_all(to.join("DEEP/er")).unwrap();
    // The source has "link", which is not copied: a destination that tells no case would show its copies as these do.
    for file in ["LINK", "DEEP/er/big", "old"] {
        fs::write(to.join(file), "there").unwrap();
    }
    open_up(&to);
    let options = TransferOptions { delete_extra: true, ..verified() };
    let (task, end) = bench.transfer(&ends, options, vec![item(1, &from, &to)]);
    assert!(matches!(end, End::Finished), "{end:?}");
    assert!(to.join("LINK").exists() && !to.join("old").exists());
    assert!(!to.join("DEEP").exists() && to.join("deep/er/big").exists(), "here both are shown, so one is an extra");
    bench.service.see(task, |task| {
        let spared = |told: &Occurrence| matches!(told, Occurrence::TwinKept { path } if path.ends_with(b"/LINK"));
        assert_eq!(task.occurrences.iter().filter(|told| spared(told)).count(), 1, "{:?}", task.occurrences);
    });
    bench.finish();
}

#[test]
fn a_mirror_that_follows_links_deletes_links_and_nothing_behind_them() {
    let field = Field::new();
    let ends = Ends::own(&field.path(""));
    let bench = Bench::new();
    let (from, to, elsewhere) = (field.path("from"), field.path("to/copy"), field.path("elsewhere"));
    for directory in [to.clone(), elsewhere.join("sub")] {
        fs::create_dir_all(directory).unwrap();
    }
    for file in ["a", "sub/b"] {
        fs::write(elsewhere.join(file), "not the mirror's").unwrap();
    }
    fs::create_dir(from.join("linked")).unwrap();
    fs::write(from.join("linked/new"), "new").unwrap();
    // One that the source does not have, and one where it has a directory.
    symlink(&elsewhere, to.join("out")).unwrap();
    symlink(&elsewhere, to.join("linked")).unwrap();
    fs::remove_file(from.join("link")).unwrap();
    open_up(&field.path(""));
    let options = TransferOptions { delete_extra: true, symlinks: Symlinks::Copy, ..verified() };
    let (_, end) = bench.transfer(&ends, options, vec![item(1, &from, &to)]);
    assert!(matches!(end, End::Finished), "{end:?}");
    assert!(fs::symlink_metadata(to.join("out")).is_err());
    assert!(elsewhere.join("a").exists() && elsewhere.join("sub/b").exists());
    assert_eq!(fs::read(to.join("linked/new")).unwrap(), b"new");
    bench.finish();
}

#[test]
fn a_mirror_spares_trees_in_which_something_could_not_be_read() {
    let field = Field::new();
    let ends = Ends::own(&field.path(""));
    let bench = Bench::new();
    let (from, to) = (field.path("from"), field.path("to/copy"));
    fs::create_dir_all(&to).unwrap();
    fs::write(to.join("stale"), "old").unwrap();
    open_up(&to);
    fs::create_dir(from.join("closed")).unwrap();
    fs::set_permissions(from.join("closed"), fs::Permissions::from_mode(0o000)).unwrap();
    let options = TransferOptions { delete_extra: true, skip_source_errors: true, ..verified() };
    let (task, end) = bench.transfer(&ends, options, vec![item(1, &from, &to)]);
    assert!(matches!(end, End::Finished), "{end:?}");
    bench.service.see(task, |task| {
        let skipped = task.paths(ItemState::SkippedError);
        // Root may read everything.
        if skipped.is_empty() {
            return;
        }
        assert_eq!(skipped, [to.join("closed").display().to_string()]);
        assert!(to.join("stale").exists());
        assert!(task.occurrences.iter().any(|told| matches!(told, Occurrence::ExtraKept { .. })));
    });
    fs::set_permissions(from.join("closed"), fs::Permissions::from_mode(0o755)).unwrap();
    bench.finish();
}

#[test]
fn a_move_leaves_nothing_behind_but_what_was_not_copied() {
    let field = Field::new();
    let ends = Ends::own(&field.path(""));
    let bench = Bench::new();
    let (from, to) = (field.path("from"), field.path("to/moved"));
    let copy = field.path("copy");
    copy_tree(&from, &copy);
    open_up(&from);
    open_up(field.path("").as_path());
    let options = TransferOptions {
        move_source: true,
        filter: Filter(vec![exclude(Some(FilterType::File), "f0*")]),
        symlinks: Symlinks::Keep,
        ..TransferOptions::default()
    };
    let (task, end) = bench.transfer(&ends, options, vec![item(1, &from, &to)]);
    assert!(matches!(end, End::Finished), "{end:?}");
    bench.service.see(task, |task| assert_eq!(task.open(), 0));
    // What is left: the ten files that the filter left out, and what holds them.
    assert_eq!(support::names(&from), ["deep"]);
    assert_eq!(support::names(&from.join("deep")).len(), 10);
    assert_eq!(support::names(&to.join("deep")).len(), 31);
    assert_same(&copy.join("deep/er"), &to.join("deep/er"));
    assert_eq!(fs::read_link(to.join("link")).unwrap(), fs::read_link(copy.join("link")).unwrap());
    bench.finish();
}

#[test]
fn a_source_is_deleted_only_when_its_copy_is_on_disk() {
    let field = Field::new();
    let Some(server) = Traced::start(&field, &[]) else { return };
    let (from, to) = (field.path("tree"), field.path("to/tree"));
    fs::create_dir(&from).unwrap();
    for (name, bytes) in [("whole", 300_000), ("one", 5000), ("two", 5000), ("three", 5000)] {
        fs::write(from.join(name), support::pattern(bytes)).unwrap();
    }
    open_up(&field.path(""));
    let (ends, bench) = (Ends::own(&field.path("")), Bench::new());
    let servers = vec![SiteServer::at(&server.url, None)];
    let destination = Some(Site { servers, ..ends.site(1) });
    let work = Work::Transfer(Box::new(TransferOptions { move_source: true, ..TransferOptions::default() }));
    let assignment = Assignment { destination, ..ends.assignment(work) };
    let task = assignment.lease.task;
    bench.service.submit(assignment, vec![item(1, &from, &to)]);
    let end = bench.wait(task);
    assert!(matches!(end, End::Finished), "{end:?}");
    assert!(!from.exists());
    let calls = server.calls(&to);
    for file in ["whole", "one", "two", "three"] {
        let named = calls.iter().find_map(|call| match call {
            Call::Rename(from, to) | Call::Link(from, to) if to == file => Some(from),
            _ => None,
        });
        let synced = Call::Sync(named.unwrap_or_else(|| panic!("{file} is not named: {calls:#?}")).clone());
        assert!(calls.contains(&synced), "{file}: {calls:#?}");
    }
    assert!(calls.iter().any(|call| *call == Call::Sync(".".to_owned())), "{calls:#?}");
    bench.finish();
}

#[test]
fn a_move_to_another_name_of_the_same_place_loses_nothing() {
    let field = Field::new();
    let (ends, bench) = (Ends::own(&field.path("")), Bench::new());
    let (from, alias) = (field.path("tree"), field.path("alias"));
    fs::create_dir(&from).unwrap();
    for (name, bytes) in [("whole", 300_000), ("one", 5000), ("two", 5000)] {
        fs::write(from.join(name), support::pattern(bytes)).unwrap();
    }
    symlink(&from, &alias).unwrap();
    open_up(&field.path(""));
    for sync in [SyncLevel::None, SyncLevel::Checksum] {
        let options = TransferOptions { move_source: true, preserve_times: true, sync, ..TransferOptions::default() };
        // Each is copied over itself, or is equal to itself.
        let (task, end) = bench.transfer(&ends, options, vec![item(1, &from, &alias)]);
        assert!(!matches!(end, End::Finished), "{end:?}");
        bench.service.see(task, |task| {
            let told = |told: &Occurrence| matches!(told, Occurrence::Faulted { fault, .. } if fault.detail.contains("its copy is the same file"));
            assert!(task.occurrences.iter().any(told), "{:?}", task.occurrences);
        });
        assert_eq!(support::names(&from), ["one", "two", "whole"], "{sync:?}");
        assert_eq!(fs::read(from.join("whole")).unwrap(), support::pattern(300_000));
    }
    bench.finish();
}

#[test]
fn directories_above_that_are_missing_are_made_and_the_same_run_ends_the_task() {
    let field = Field::new();
    let ends = Ends::own(&field.path(""));
    let bench = Bench::new();
    open_up(&field.path(""));
    let (one, deep, to) = (field.path("from/one"), field.path("from/deep"), field.path("to"));
    let word = fs::read(&one).unwrap();
    let (there, above) = (to.join("one"), to.join("not/yet/here/deep"));
    for move_source in [false, true] {
        let options = TransferOptions { move_source, ..verified() };
        let items = vec![item(1, &one, &there), item(2, &deep, &above)];
        let (task, end) = bench.transfer(&ends, options, items);
        assert!(matches!(end, End::Finished), "{end:?}");
        bench.service.see(task, |task| {
            let begun = task.occurrences.iter().filter(|told| matches!(told, Occurrence::Started { .. })).count();
            let failed: Vec<_> = task.records.values().filter_map(|record| record.fault.as_ref()).collect();
            assert_eq!((begun, task.open(), failed.len()), (1, 0, 0), "{failed:?} {:?}", task.occurrences);
        });
        assert_eq!(fs::read(&there).unwrap(), word);
        assert_eq!((one.exists(), deep.exists()), (!move_source, !move_source));
        assert_eq!(fs::read_dir(&above).unwrap().count(), 41);
        fs::remove_dir_all(to.join("not")).unwrap();
    }
    bench.finish();
}

#[test]
fn however_many_items_miss_a_directory_that_cannot_be_made_each_ends_with_its_failure() {
    let field = Field::new();
    let ends = Ends::own(Path::new("/"));
    let bench = Bench::new();
    open_up(&field.path(""));
    let one = field.path("from/one");
    // Nobody makes directories there. More than are remembered at once.
    let nowhere = Path::new("/proc/whimbrel-none");
    let lost = (1..=1300).map(|number| match number % 3 {
        0 => item(number, &one, &nowhere.join(number.to_string()).join("one")),
        _ => item(number, &one, &nowhere.join(number.to_string())),
    });
    let (task, end) = bench.transfer(&ends, verified(), lost.collect());
    assert!(matches!(end, End::Finished), "{end:?}");
    bench.service.see(task, |task| {
        let failed = task.records.values().filter(|record| record.fault.is_some()).count();
        assert_eq!((task.open(), failed), (0, 1300), "{:?}", task.occurrences);
    });
    bench.finish();
}

#[test]
fn nothing_is_moved_or_mirrored_onto_itself() {
    let field = Field::new();
    let ends = Ends::own(&field.path(""));
    let bench = Bench::new();
    open_up(&field.path(""));
    let (from, deep) = (field.path("from"), field.path("from/deep"));
    let both = TransferOptions { move_source: true, delete_extra: true, ..TransferOptions::default() };
    for (source, destination) in
        [(&from, &from), (&from, &deep), (&deep, &from), (&deep.join("f00"), &deep.join("f00"))]
    {
        let task = ends.submit_within(&bench.service, both.clone(), vec![item(1, source, destination)]);
        let _ = bench.wait(task);
        bench.service.see(task, |task| {
            let codes: Vec<_> = task.records.values().filter_map(|record| Some(record.fault.as_ref()?.code)).collect();
            assert_eq!(codes, [FaultCode::InvalidArgument]);
        });
    }
    assert!(support::names(&deep).len() == 41 && from.join("empty").exists());
    bench.finish();
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let there = to.join(entry.file_name());
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => copy_tree(&entry.path(), &there),
            kind if kind.is_symlink() => symlink(fs::read_link(entry.path()).unwrap(), there).unwrap(),
            _ => drop(fs::copy(entry.path(), there).unwrap()),
        }
    }
}

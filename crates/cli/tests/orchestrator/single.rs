//! Deletions, and single operations.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use uuid::Uuid;
use whimbrel_engine::FaultCode;
use whimbrel_engine::dispatch::{
    Assignment, Credential, End, Entry, EntryKind, OperationKind, OperationResult, Server as SiteServer, Site, Work,
};
use whimbrel_engine::task::{DeleteOptions, ItemKind, ItemState};

use crate::bench::{Bench, Ends, item};
use crate::open_up;
use crate::support::dtn::Dtn;
use crate::support::{Field, plain};

#[test]
fn a_tree_is_deleted_and_nothing_that_links_lead_to() {
    let field = Field::new();
    let ends = Ends::own(&field.path(""));
    let bench = Bench::new();
    let from = field.path("from");
    fs::create_dir(field.path("to/outside")).unwrap();
    fs::write(field.path("to/outside/precious"), "x").unwrap();
    symlink(field.path("to/outside"), from.join("deep/out")).unwrap();
    open_up(&field.path(""));
    let recursive = DeleteOptions { recursive: true, ..DeleteOptions::default() };
    let (task, end) = bench.delete(&ends, recursive, &[&from, &field.path("nothing")]);
    assert!(matches!(end, End::Finished), "{end:?}");
    assert!(!from.exists() && field.path("to/outside/precious").exists());
    bench.service.see(task, |task| {
        assert_eq!(task.count(ItemKind::File, ItemState::Succeeded), 44);
        assert_eq!(task.count(ItemKind::Directory, ItemState::Succeeded), 4);
        assert_eq!(task.count(ItemKind::Symlink, ItemState::Succeeded), 2);
        assert_eq!(task.paths(ItemState::Failed), [field.path("nothing").display().to_string()]);
        assert_eq!(task.open(), 0);
    });
    let missing = DeleteOptions { ignore_missing: true, ..recursive };
    let (task, _) = bench.delete(&ends, missing, &[&from]);
    bench.service.see(task, |task| assert_eq!(task.paths(ItemState::Succeeded).len(), 1));
    bench.finish();
}

#[test]
fn a_link_that_a_server_calls_a_directory_is_deleted_and_nothing_behind_it() {
    let field = Field::new();
    let ends = Ends::own(&field.path(""));
    let bench = Bench::new();
    for (directory, file) in [("to/outside/deep", "precious"), ("from/tree/in", "a")] {
        fs::create_dir_all(field.path(directory)).unwrap();
        fs::write(field.path(directory).join(file), "x").unwrap();
    }
    symlink(field.path("to/outside"), field.path("from/tree/in/out")).unwrap();
    symlink(field.path("to/outside"), field.path("from/shown")).unwrap();
    let recursive = DeleteOptions { recursive: true, ..DeleteOptions::default() };
    let paths = [field.path("from/tree"), field.path("from/shown")];
    let source = Site { servers: vec![SiteServer::at(plain::serve(), None)], ..ends.site(0) };
    let assignment = Assignment { source, destination: None, ..ends.assignment(Work::Delete(recursive)) };
    let task = assignment.lease.task;
    bench.service.submit(assignment, (1..).zip(&paths).map(|(n, path)| item(n, path, Path::new(""))).collect());
    let end = bench.wait(task);
    assert!(matches!(end, End::Finished), "{end:?}");
    assert!(field.path("to/outside/deep/precious").exists());
    assert!(!paths[0].exists() && fs::symlink_metadata(&paths[1]).is_err());
    bench.service.see(task, |task| {
        assert_eq!((task.paths(ItemState::Failed), task.open()), (Vec::new(), 0));
        assert!(task.count(ItemKind::Directory, ItemState::Succeeded) >= 4, "tree, in, out, link");
    });
    bench.finish();
}

#[test]
fn directories_need_a_word_and_the_collection_itself_is_nobodys_to_delete() {
    let field = Field::new();
    let ends = Ends::own(&field.path("from"));
    let bench = Bench::new();
    open_up(&field.path(""));
    let from = field.path("from");
    let (task, end) = bench.delete(&ends, DeleteOptions::default(), &[&from.join("empty"), &from.join("one")]);
    assert!(matches!(end, End::Finished), "{end:?}");
    assert!(from.join("empty").exists() && !from.join("one").exists());
    bench.service.see(task, |task| {
        let failed: Vec<_> = task.records.values().filter_map(|record| Some(record.fault.as_ref()?.code)).collect();
        assert_eq!(failed, [FaultCode::IsADirectory]);
    });
    let recursive = DeleteOptions { recursive: true, ..DeleteOptions::default() };
    for path in [from.clone(), from.join("."), from.join("")] {
        let (task, _) = bench.delete(&ends, recursive, &[&path]);
        bench.service.see(task, |task| assert_eq!(task.paths(ItemState::Failed).len(), 1));
        assert!(from.join("deep/f00").exists());
    }
    bench.finish();
}

#[test]
fn globs_are_of_the_last_component_and_literal_without_the_users_word() {
    let field = Field::new();
    let ends = Ends::own(&field.path(""));
    let bench = Bench::new();
    open_up(&field.path(""));
    let from = field.path("from");
    fs::write(from.join("deep/f*"), "a star").unwrap();
    let pattern = from.join("deep/f*");
    let (_, end) = bench.delete(&ends, DeleteOptions::default(), &[&pattern]);
    assert!(matches!(end, End::Finished), "{end:?}");
    assert!(!pattern.exists() && from.join("deep/f00").exists());
    let globs = DeleteOptions { globs: true, ..DeleteOptions::default() };
    let (task, _) = bench.delete(&ends, globs, &[&from.join("deep/f[12]?"), &from.join("none*")]);
    bench.service.see(task, |task| {
        assert_eq!((task.count(ItemKind::File, ItemState::Succeeded), task.paths(ItemState::Failed).len()), (20, 1));
    });
    assert!(!from.join("deep/f10").exists() && from.join("deep/f30").exists());
    bench.finish();
}

/// Whatever the service loses, each item is told of once.
#[test]
fn a_large_deletion_goes_on_when_answers_are_lost() {
    let field = Field::new();
    let ends = Ends::own(&field.path(""));
    let bench = Bench::new();
    bench.service.lose_answers(2);
    let many = crate::many(&field, 1500);
    open_up(&field.path(""));
    let recursive = DeleteOptions { recursive: true, ..DeleteOptions::default() };
    let (task, end) = bench.delete(&ends, recursive, &[&many]);
    assert!(matches!(end, End::Finished), "{end:?}");
    assert!(!many.exists());
    bench.service.see(task, |task| {
        assert_eq!((task.count(ItemKind::File, ItemState::Succeeded), task.open()), (1500, 0));
    });
    bench.finish();
}

fn entries(result: Result<OperationResult, whimbrel_engine::Fault>) -> Vec<Entry> {
    match result {
        Ok(OperationResult::Listing { mut entries }) => {
            entries.sort_by(|one, other| one.name.cmp(&other.name));
            entries
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn operations_do_what_file_managers_do_and_a_second_one_costs_no_login() {
    let field = Field::new();
    symlink("nowhere", field.path("from/dangling")).unwrap();
    open_up(&field.path(""));
    let server = Dtn::builder().root(&field.path("")).anonymous().start();
    let bench = Bench::new();
    let site = Site {
        collection: Uuid::nil(),
        servers: vec![SiteServer::at(format!("ftp://{}", server.addr()), None)],
        credential: Credential::None,
        base: "/".into(),
        local_user: None,
    };
    let path = |path: &str| path.as_bytes().to_vec();
    let list = |most| OperationKind::List { path: path("/from"), most };
    let found = entries(bench.operate(&site, list(100)));
    let names: Vec<_> = found.iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned()).collect();
    assert_eq!(names, ["dangling", "deep", "empty", "link", "na me%20", "one", "zero"]);
    let kinds: Vec<_> = found.iter().map(|entry| entry.kind).collect();
    use EntryKind::{DanglingLink, Directory, File};
    assert_eq!(kinds, [DanglingLink, Directory, Directory, File, File, File, File]);
    assert_eq!((found[3].size, found[3].link_target.is_some(), found[5].link_target.is_some()), (1, true, false));
    assert!(found[5].mode.is_some() && found[5].user.is_some() && found[5].modified.is_some());

    let fault = bench.operate(&site, list(3)).unwrap_err();
    assert_eq!(fault.code, FaultCode::FileTooLarge);
    let Ok(OperationResult::Told { entry }) = bench.operate(&site, OperationKind::Stat { path: path("/from/deep/") })
    else {
        panic!("a directory is told of")
    };
    assert_eq!((entry.name.as_slice(), entry.kind), (&b"deep"[..], Directory));
    let fault = bench.operate(&site, OperationKind::Stat { path: path("/none") }).unwrap_err();
    assert_eq!(fault.code, FaultCode::NotFound);

    let make = || OperationKind::MakeDirectory { path: path("/to/new/") };
    bench.operate(&site, make()).unwrap();
    assert_eq!(bench.operate(&site, make()).unwrap_err().code, FaultCode::AlreadyExists);
    let rename = |to: &str| OperationKind::Rename { from: path("/to/new"), to: path(to) };
    assert_eq!(bench.operate(&site, rename("/from/one")).unwrap_err().code, FaultCode::AlreadyExists);
    bench.operate(&site, rename("/to/newer")).unwrap();
    let link = OperationKind::Symlink { path: path("/to/l"), target: path("newer") };
    bench.operate(&site, link.clone()).unwrap();
    assert_eq!(bench.operate(&site, link).unwrap_err().code, FaultCode::AlreadyExists);
    assert_eq!(fs::read_link(field.path("to/l")).unwrap(), Path::new("newer"));
    assert!(field.path("to/newer").is_dir() && field.path("from/one").is_file());
    let logins = server.log().matches("logged in").count();
    assert!(logins <= 1, "{logins} logins:\n{}", server.log());
    assert_eq!(server.metric("control_connections_total"), 1);
    bench.finish();
}

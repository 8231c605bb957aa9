//! The fault wrapper is transparent until told otherwise, and reaches every method.
#![allow(missing_docs, clippy::unwrap_used)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use whimbrel_connector::faults::{Calls, Faulty, Operation, Script, When};
use whimbrel_connector::memory::Memory;
use whimbrel_connector::{Attributes, Connector, Disposition, Follow, StoragePath, WriteIntent, WriteSession};
use whimbrel_engine::{Fault, FaultCode};

whimbrel_connector::contract_tests!(without_rules, || {
    let storage = Memory::new();
    let faulty = |storage| Faulty::new(storage, Script::new());
    (faulty(storage.clone()), faulty(storage), ())
});

fn path(bytes: &str) -> StoragePath {
    StoragePath::resolve(&StoragePath::root(), bytes.as_bytes()).unwrap()
}

const INTENT: WriteIntent = WriteIntent { disposition: Disposition::Replace, size: None, length: None, mode: None };

fn storage(script: &Script) -> (Faulty<Memory>, WriteSession) {
    let memory = Memory::new();
    memory.make_dir(&path("dir")).unwrap();
    memory.make_dir(&path("tree")).unwrap();
    let session = memory.begin(&path("file"), &INTENT).unwrap();
    memory.join(&session).unwrap().write_at(0, b"0123456789").unwrap();
    memory.commit(&session, &[], &Attributes::default()).unwrap();
    let shared = WriteIntent { disposition: Disposition::Continue, size: None, length: None, mode: None };
    let session = memory.begin(&path("new"), &shared).unwrap();
    memory.join(&session).unwrap().write_at(0, b"0123456789").unwrap();
    (Faulty::new(memory, script.clone()), session)
}

/// Calls one operation in a way that succeeds when nothing is scripted.
fn call(storage: &Faulty<Memory>, session: &WriteSession, operation: Operation) -> Result<(), Fault> {
    let file = path("file");
    let reader = || storage.open_read(&file, None);
    let writer = || storage.join(session);
    let mut buffer = [0; 4];
    match operation {
        Operation::Stat => storage.stat(&file, Follow::No).map(drop),
        Operation::List => storage.list(&path("/")).map(drop),
        Operation::ListNext => storage.list(&path("/"))?.next().unwrap().map(drop),
        Operation::OpenRead => reader().map(drop),
        Operation::Begin => storage.begin(&path("other"), &INTENT).map(drop),
        Operation::Join => writer().map(drop),
        Operation::Commit => storage.commit(session, &[], &Attributes::default()).map(drop),
        Operation::Abandon => storage.abandon(session),
        Operation::Unfinished => storage.unfinished(&file).map(drop),
        Operation::Scratch => storage.scratch(&path("dir")).map(drop),
        Operation::FileSystem => storage.file_system(&file).map(drop),
        Operation::SyncAll => storage.sync(&path("dir")),
        Operation::MakeDir => storage.make_dir(&path("made")),
        Operation::RemoveDir => storage.remove_dir(&path("dir")),
        Operation::RemoveFile => storage.remove_file(&file),
        Operation::RemoveTree => storage.remove_tree(&path("tree")),
        Operation::Rename => storage.rename(&file, &path("renamed"), true),
        Operation::Symlink => storage.symlink(b"x", &path("link")),
        Operation::SetAttributes => storage.set_attributes(&file, &Attributes::default(), Follow::Yes),
        Operation::Truncate => storage.truncate(&file, 1),
        Operation::OwnerNames => {
            storage.owner_names(0, 0);
            Ok(())
        }
        Operation::ReadAt => reader()?.read_at(0, &mut buffer).map(drop),
        Operation::ReadMeta => reader()?.meta().map(drop),
        Operation::DataRanges => reader()?.data_ranges().map(drop),
        Operation::WriteAt => writer()?.write_at(0, b"x"),
        Operation::Sync => writer()?.sync(),
        Operation::Durable => writer()?.durable().map(drop),
        Operation::ReadBack => writer()?.read_back(0, &mut buffer).map(drop),
        Operation::Finish => writer()?.finish().map(drop),
        Operation::Target => storage.target(&file).map(drop),
        Operation::Journal => storage.journal(session).map(drop),
        Operation::Reserve => writer()?.reserve(0..10),
        Operation::DropCached => writer()?.drop_cached(0..10).map(drop),
        Operation::JournalRead => storage.journal(session)?.read().map(drop),
        Operation::JournalNote => storage.journal(session)?.note(0, b"x").map(drop),
        Operation::JournalSync => storage.journal(session)?.sync(),
        Operation::JournalAppend => storage.journal(session)?.append(b"x"),
        Operation::JournalCut => storage.journal(session)?.cut(0, 0).map(drop),
        Operation::Clear => storage.join(session)?.clear(0..4096),
        Operation::ExtendTo => storage.join(session)?.extend_to(10),
        Operation::Room => storage.join(session)?.room().map(drop),
    }
}

#[test]
fn every_operation_can_be_made_to_fail_and_is_counted() {
    for &operation in Operation::ALL {
        for when in [When::Before, When::After] {
            let script = Script::new();
            let (storage, session) = storage(&script);
            if operation != Operation::OwnerNames {
                script.fail(operation, Calls::Nth(1), FaultCode::StorageIo, when);
                let fault = call(&storage, &session, operation).unwrap_err();
                assert_eq!(fault.code, FaultCode::StorageIo, "{operation:?}");
                assert_eq!(script.calls(operation), 1, "{operation:?}");
            }
            if when == When::Before {
                let failed = script.calls(operation);
                call(&storage, &session, operation).unwrap();
                assert_eq!(script.calls(operation), failed + 1, "{operation:?}");
            }
        }
    }
}

#[test]
fn a_lost_answer_leaves_the_work_done() {
    let script = Script::new();
    let (storage, session) = storage(&script);
    script.fail(Operation::Commit, Calls::Nth(1), FaultCode::StorageIo, When::After);
    assert!(call(&storage, &session, Operation::Commit).is_err());
    assert_eq!(storage.inner().stat(&path("new"), Follow::No).unwrap().size, 10);
    call(&storage, &session, Operation::Commit).unwrap();
}

#[test]
fn a_failure_can_last_until_healed() {
    let script = Script::new();
    let (storage, session) = storage(&script);
    script.fail(Operation::WriteAt, Calls::From(2), FaultCode::NoSpace, When::Before);
    let write = || call(&storage, &session, Operation::WriteAt);
    write().unwrap();
    assert!(write().is_err() && write().is_err());
    script.heal();
    write().unwrap();
    assert_eq!(script.calls(Operation::WriteAt), 4);
}

#[test]
fn one_bit_of_one_read_is_flipped() {
    let script = Script::new();
    let (storage, session) = storage(&script);
    script.flip(Operation::ReadAt, Calls::Nth(2), 5);
    script.flip(Operation::ReadBack, Calls::From(1), 0);
    let reader = storage.open_read(&path("file"), None).unwrap();
    let read = |offset| {
        let mut buffer = [0; 4];
        reader.read_at(offset, &mut buffer).unwrap();
        buffer
    };
    assert_eq!(&read(3), b"3456");
    assert_eq!(&read(3), b"3446");
    assert_eq!(&read(3), b"3456");
    let mut buffer = [0; 20];
    let writer = storage.join(&session).unwrap();
    assert_eq!(writer.read_back(0, &mut buffer).unwrap(), 10);
    assert_eq!(&buffer[..10], b"1123456789");
}

#[test]
fn the_hook_sees_every_call_before_it_happens() {
    let script = Script::new();
    let (storage, session) = storage(&script);
    let seen = Arc::new(AtomicU64::new(0));
    let counter = seen.clone();
    script.hook(move |operation, call| {
        if operation == Operation::Sync {
            counter.fetch_add(call, Ordering::Relaxed);
        }
    });
    for _ in 0..3 {
        call(&storage, &session, Operation::Sync).unwrap();
    }
    assert_eq!(seen.load(Ordering::Relaxed), 1 + 2 + 3);
}

#[test]
fn bytes_that_moved_are_told_and_reads_cannot_go_around_that() {
    let script = Script::new();
    let (storage, session) = storage(&script);
    let moved = Arc::new(Mutex::new(Vec::new()));
    let told = moved.clone();
    script.meter(move |operation, bytes| told.lock().unwrap().push((operation, bytes)));
    let writer = storage.join(&session).unwrap();
    writer.write_at(0, b"twelve bytes").unwrap();
    writer.read_back(4, &mut [0; 100]).unwrap();
    let reader = storage.open_read(&path("file"), None).unwrap();
    assert!(reader.sendfile_source().is_none());
    reader.read_at(7, &mut [0; 100]).unwrap();
    let all = [(Operation::WriteAt, 12), (Operation::ReadBack, 8), (Operation::ReadAt, 3)];
    assert_eq!(*moved.lock().unwrap(), all);
    script.heal();
    writer.write_at(0, b"more").unwrap();
    assert_eq!(moved.lock().unwrap().len(), all.len());
}

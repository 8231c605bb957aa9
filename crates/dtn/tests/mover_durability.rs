//! What is promised to survive a crash is promised only once the storage has said so.

#![allow(missing_docs, clippy::unwrap_used)]

mod mover_support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use mover_support::{Answer, Node, extended, pattern, receive, send, stream};
use whimbrel_connector::faults::{Calls, Faulty, Operation, Script, When};
use whimbrel_connector::posix::{DirectOptions, Posix, PosixOptions};
use whimbrel_engine::FaultCode;
use whimbrel_proto::op::{ChunkedFile, FailureKind, LeafSpec, Notice, Op, Outcome, ReceiveSpec, SendSpec};
use whimbrel_proto::op::{Leaf, WriteKind};

/// A node that makes all writes durable, on storage that does what a script says.
fn node() -> (Node, Script) {
    node_that_syncs(true)
}

fn node_that_syncs(always: bool) -> (Node, Script) {
    let (root, script) = (tempfile::tempdir().unwrap(), Script::new());
    let inner = Posix::open(root.path(), PosixOptions::default()).unwrap();
    let storage = Arc::new(Faulty::new(inner, script.clone()));
    (Node::on(root, |settings| settings.sync_writes = always, storage), script)
}

#[test]
fn no_range_is_told_that_could_not_be_synced() {
    for always in [true, false] {
        let (mut node, script) = node_that_syncs(always);
        node.write("source", &pattern(500_000));
        let movers = node.pair(&extended(2));
        script.fail(Operation::Sync, Calls::From(1), FaultCode::StorageIo, When::Before);
        // Where the administrator does not ask for it, the client may (SITE DURABLE).
        let to = ReceiveSpec { range_interval: Some(Duration::from_secs(3600)), durable: !always, ..receive("/copy") };
        let (_, received) = node.copy(movers, send("/source"), to);
        let told: Vec<_> = received.notices.iter().filter(|notice| matches!(notice, Notice::Ranges(_))).collect();
        assert!(told.is_empty(), "{told:?}");
        assert!(script.calls(Operation::Sync) > 0, "it was tried");
    }
}

#[test]
fn no_hole_is_called_proven_that_could_not_be_synced() {
    const LEAF: u64 = 1 << 20;
    let (mut node, script) = node();
    let mover = node.attach();
    let leaves = LeafSpec { size: LEAF, algorithm: "MD5".to_owned(), holes: true, vouched: false };
    let file = ChunkedFile { path: b"/copy".to_vec(), size: 4 * LEAF, modified: None, leaves };
    let open = |node: &mut Node| match node.call(mover, Op::OpenChunked(file.clone())).done() {
        Outcome::Chunked { session, holes, .. } => (session, holes),
        other => panic!("{other:?}"),
    };
    let (session, _) = open(&mut node);
    let keep = Op::KeepHoles { path: b"/copy".to_vec(), session, holes: std::iter::once(LEAF..3 * LEAF).collect() };
    script.fail(Operation::Sync, Calls::From(1), FaultCode::StorageIo, When::Before);
    node.call(mover, keep.clone()).failure();
    script.heal();
    assert!(open(&mut node).1.is_empty(), "nothing was recorded");
    assert!(matches!(node.call(mover, keep).done(), Outcome::Done));
    assert_eq!(open(&mut node).1.len(), 1);
}

#[test]
fn no_part_without_a_proof_is_answered_that_could_not_be_synced() {
    const LEAF: u64 = 1 << 16;
    let (root, script) = (tempfile::tempdir().unwrap(), Script::new());
    let inner = Posix::open(root.path(), PosixOptions::default()).unwrap();
    // As administrators have it, who do not ask for durable writes.
    let mut node = Node::on(root, |_| {}, Arc::new(Faulty::new(inner, script.clone())));
    let data = pattern(3 * LEAF as usize);
    node.write("source", &data);
    let movers = node.pair(&extended(2));
    let leaves = LeafSpec { size: LEAF, algorithm: "NONE".to_owned(), holes: false, vouched: false };
    let file = ChunkedFile { path: b"/copy".to_vec(), size: 3 * LEAF, modified: None, leaves };
    let opened = node.call(movers.1, Op::OpenChunked(file.clone())).done();
    let Outcome::Chunked { session, verified, .. } = opened else { panic!("{opened:?}") };
    assert!(verified.is_empty());
    let to = ReceiveSpec {
        write: WriteKind::Chunk { offset: 0, session: session.clone() },
        expected_size: Some(3 * LEAF),
        ..receive("/copy")
    };
    let syncs = script.calls(Operation::Sync);
    script.fail(Operation::Sync, Calls::From(1), FaultCode::StorageIo, When::Before);
    let (_, received) = node.copy(movers, send("/source"), to.clone());
    received.failure();
    assert!(script.calls(Operation::Sync) > syncs, "it was tried");
    script.heal();
    // Nor one of which the end has not come: its client would record it as whole.
    node.write("short", &data[..data.len() - 1]);
    let movers = node.pair(&extended(2));
    let (sent, received) = node.copy(movers, send("/short"), to.clone());
    sent.done();
    assert!(received.failure().text.contains("ended 1 bytes early"));
    let movers = node.pair(&extended(2));
    let (_, received) = node.copy(movers, send("/source"), to);
    assert!(matches!(received.done(), Outcome::Transferred { leaves, .. } if leaves.is_empty()));
    let leaf = |index: u64, digest: &str| Leaf { range: index * LEAF..(index + 1) * LEAF, digest: digest.to_owned() };
    let keep = |leaves| Op::KeepLeaves { path: b"/copy".to_vec(), session: session.clone(), leaves };
    node.call(movers.1, keep(vec![leaf(0, "d41d8cd98f00b204e9800998ecf8427e")])).failure();
    assert!(matches!(node.call(movers.1, keep((0..2).map(|index| leaf(index, "00")).collect())).done(), Outcome::Done));
    let opened = node.call(movers.1, Op::OpenChunked(file.clone())).done();
    assert!(matches!(opened, Outcome::Chunked { verified, .. } if verified == [leaf(0, "00"), leaf(1, "00")]));
    // Nothing of it is proven: a run that proves begins anew.
    let leaves = LeafSpec { algorithm: "MD5".to_owned(), ..file.leaves.clone() };
    let opened = node.call(movers.1, Op::OpenChunked(ChunkedFile { leaves, ..file })).done();
    assert!(matches!(opened, Outcome::Chunked { verified, .. } if verified.is_empty()));
}

#[test]
fn what_came_of_a_part_is_in_the_file_when_its_fault_is_answered_though_its_last_piece_is_not_complete() {
    const LEAF: u64 = 1 << 16;
    let root = tempfile::tempdir().unwrap();
    let direct = Some(DirectOptions { from: 0, ..DirectOptions::default() });
    let storage = Posix::open(root.path(), PosixOptions { direct, ..PosixOptions::default() }).unwrap();
    let mut node = Node::on(root, |_| {}, Arc::new(storage));
    let data = pattern(3 * LEAF as usize - 1);
    node.write("short", &data);
    let movers = node.pair(&extended(2));
    let leaves = LeafSpec { size: LEAF, algorithm: "NONE".to_owned(), holes: false, vouched: false };
    let file = ChunkedFile { path: b"/copy".to_vec(), size: 9 * LEAF, modified: None, leaves };
    let opened = node.call(movers.1, Op::OpenChunked(file)).done();
    let Outcome::Chunked { session, .. } = opened else { panic!("{opened:?}") };
    let write = WriteKind::Chunk { offset: LEAF, session };
    let to = ReceiveSpec { write, expected_size: Some(3 * LEAF), ..receive("/copy") };
    let (_, received) = node.copy(movers, send("/short"), to);
    assert!(received.failure().text.contains("ended 1 bytes early"));
    assert!(node.read(".copy.whimbrel-part")[LEAF as usize..][..data.len()] == data);
}

#[test]
fn a_client_that_wants_it_gets_no_answer_before_the_copy_is_synced() {
    let (root, script) = (tempfile::tempdir().unwrap(), Script::new());
    let inner = Posix::open(root.path(), PosixOptions::default()).unwrap();
    // As administrators have it, who do not ask for durable writes.
    let mut node = Node::on(root, |_| {}, Arc::new(Faulty::new(inner, script.clone())));
    node.write("source", &pattern(500_000));
    for durable in [false, true] {
        let leaves = Some(LeafSpec { size: 1 << 20, algorithm: "MD5".to_owned(), holes: false, vouched: false });
        let syncs = script.calls(Operation::Sync);
        let movers = node.pair(&extended(1));
        let (_, received) = node.copy(movers, send("/source"), ReceiveSpec { durable, leaves, ..receive("/copy") });
        received.done();
        assert_eq!(script.calls(Operation::Sync) > syncs, durable);
    }
}

#[test]
fn storage_begins_with_a_long_file_while_the_rest_is_under_way() {
    const LONG: usize = 12 << 20;
    for (params, always, wanted) in [(extended(2), true, false), (extended(2), false, true), (stream(), true, false)] {
        let (mut node, script) = node_that_syncs(always);
        node.write("source", &pattern(LONG));
        let movers = node.pair(&params);
        let (synced, seen) = mpsc::channel();
        // Nobody listens any more once it has been waited for.
        script.hook(move |operation, _| {
            if operation == Operation::Sync {
                let _ = synced.send(());
            }
        });
        let (seen, written) = (Mutex::new(seen), AtomicUsize::new(0));
        script.meter(move |operation, bytes| {
            if operation != Operation::WriteAt {
                return;
            }
            let before = written.fetch_add(bytes, Ordering::Relaxed);
            if (1..=bytes).contains(&(LONG * 2 / 3).saturating_sub(before)) {
                seen.lock().unwrap().recv_timeout(Duration::from_secs(10)).expect("a sync before the end");
            }
        });
        let to = ReceiveSpec { durable: wanted, ..receive("/copy") };
        let (_, received) = node.copy(movers, send("/source"), to);
        assert_eq!(received.bytes(), LONG as u64);
        assert!(node.read("copy") == pattern(LONG));
    }
}

#[test]
fn storage_is_left_alone_where_nobody_asks_for_durable_copies() {
    let (mut node, script) = node_that_syncs(false);
    node.write("source", &pattern(12 << 20));
    let movers = node.pair(&extended(2));
    let (_, received) = node.copy(movers, send("/source"), receive("/copy"));
    received.done();
    assert_eq!(script.calls(Operation::Sync), 0);
}

#[test]
fn nobody_goes_on_with_a_file_that_storage_has_lost() {
    let (mut node, script) = node();
    node.write("source", &pattern(500_000));
    let movers = node.pair(&extended(1));
    script.fail(Operation::Sync, Calls::From(1), FaultCode::StorageIo, When::Before);
    let leaves = Some(LeafSpec { size: 1 << 20, algorithm: "MD5".to_owned(), holes: false, vouched: false });
    let (_, received) = node.copy(movers, send("/source"), ReceiveSpec { leaves, ..receive("/copy") });
    script.heal();
    // What tells a client to begin anew.
    assert_eq!(received.failure().kind, FailureKind::Busy);
    assert_eq!(node.names(), ["source"], "the next sync would succeed");
}

#[test]
fn nobody_goes_on_with_a_file_that_storage_has_lost_when_it_was_to_be_read_from_the_disk() {
    let (mut node, script) = node_that_syncs(false);
    node.write("source", &pattern(500_000));
    let movers = node.pair(&extended(1));
    script.fail(Operation::DropCached, Calls::From(1), FaultCode::StorageIo, When::Before);
    let leaves = Some(LeafSpec { size: 1 << 20, algorithm: "MD5".to_owned(), holes: false, vouched: false });
    let to = ReceiveSpec { leaves, past_memory: true, ..receive("/copy") };
    let (_, received) = node.copy(movers, send("/source"), to);
    script.heal();
    assert_eq!(received.failure().kind, FailureKind::Busy);
    assert_eq!(node.names(), ["source"], "the next sync would succeed");
}

#[test]
fn what_cannot_be_looked_at_before_its_commit_gets_no_name() {
    const LEAF: u64 = 1 << 16;
    let (mut node, script) = node();
    let mover = node.attach();
    let leaves = LeafSpec { size: LEAF, algorithm: "MD5".to_owned(), holes: false, vouched: false };
    let file = ChunkedFile { path: b"/copy".to_vec(), size: LEAF, modified: None, leaves };
    let opened = node.call(mover, Op::OpenChunked(file)).done();
    let Outcome::Chunked { session, .. } = opened else { panic!("{opened:?}") };
    let commit = |expected| Op::CommitChunked {
        path: b"/copy".to_vec(),
        session: session.clone(),
        modified: None,
        mode: None,
        expected,
    };
    for code in [FaultCode::StorageBusy, FaultCode::NotFound] {
        script.fail(Operation::Journal, Calls::From(1), code, When::Before);
        node.call(mover, commit(None)).failure();
        script.heal();
    }
    // Where the digest is asked for, the file is opened for that first.
    let mover = node.attach();
    script.fail(Operation::Join, Calls::From(1), FaultCode::StorageBusy, When::Before);
    node.call(mover, commit(Some(("MD5".to_owned(), "00".to_owned())))).failure();
    script.heal();
    assert!(node.names().iter().all(|name| name != "copy"), "{:?}", node.names());
}

/// As clients of ours go on with a file of which so many bytes have come.
fn restart(node: &mut Node, path: &str, done: u64) -> Answer {
    let movers = node.pair(&extended(1));
    let write = WriteKind::Restart { done: std::iter::once(0..done).collect() };
    let from = SendSpec { done: std::iter::once(0..done).collect(), ..send("/source") };
    node.copy(movers, from, ReceiveSpec { write, strict: true, ..receive(path) }).1
}

#[test]
fn what_gets_its_name_or_goes_while_it_is_gone_on_with_is_not_written_to() {
    for is_named in [true, false] {
        let (mut node, script) = node();
        let data = pattern(500_000);
        node.write("source", &data);
        node.write(".copy.whimbrel-part", &data[..400_000]);
        let (hidden, copy) = (node.root.path().join(".copy.whimbrel-part"), node.root.path().join("copy"));
        // Between the look at it and its opening.
        script.hook(move |operation, _| {
            if operation == Operation::Begin && is_named {
                std::fs::rename(&hidden, &copy).unwrap();
            } else if operation == Operation::Begin {
                std::fs::remove_file(&hidden).unwrap();
            }
        });
        assert_eq!(restart(&mut node, "/copy", 400_000).failure().kind, FailureKind::Busy, "{is_named}");
        let named = node.names().contains(&"copy".to_owned());
        assert_eq!(named, is_named, "{:?}", node.names());
        assert!(!is_named || node.read("copy") == data[..400_000]);
    }
}

#[test]
fn what_is_said_to_be_there_and_is_not_is_no_file_of_zeros() {
    let (mut node, _) = node();
    let data = pattern(500_000);
    node.write("source", &data);
    node.write("copy", b"an older version");
    assert_eq!(restart(&mut node, "/new", 1000).failure().kind, FailureKind::Busy);
    assert_eq!(restart(&mut node, "/copy", 1000).failure().kind, FailureKind::Busy);
    // Nor is it what another run has stored meanwhile, though it is long enough.
    node.write("whole", &data[..400_000]);
    assert_eq!(restart(&mut node, "/whole", 1000).failure().kind, FailureKind::Busy);
    assert_eq!(node.names(), ["copy", "source", "whole"], "and nothing is made");
    assert_eq!((node.read("copy"), node.read("whole")), (b"an older version".to_vec(), data[..400_000].to_vec()));
    assert_eq!(restart(&mut node, "/new", 0).bytes(), 500_000);
    assert!(node.read("new") == data);
}

//! Leaf digests of what is sent and of what is stored, and chunks of an unfinished file.

#![allow(missing_docs, clippy::unwrap_used, clippy::single_range_in_vec_init)]

mod mover_support;

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};

use mover_support::{Answer, Node, extended, pattern, receive, send, stream};
use whimbrel_connector::faults::{Calls, Faulty, Operation, Script, When};
use whimbrel_connector::posix::{Posix, PosixOptions};
use whimbrel_dtn::mover::message::{MoverId, Stripe, ToMover};
use whimbrel_engine::FaultCode;
use whimbrel_proto::op::{
    ChunkedFile, DataParams, FailureKind, Leaf, LeafSpec, Op, Outcome, ReceiveSpec, SendSpec, WriteKind,
};
use whimbrel_transport::digest::Algorithm;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn leaves(size: u64, algorithm: &str) -> LeafSpec {
    LeafSpec { size, algorithm: algorithm.to_owned(), holes: false, vouched: false }
}

fn digest(algorithm: &str, data: &[u8]) -> String {
    algorithm.parse::<Algorithm>().unwrap().digest(data).to_string()
}

/// The leaves of `range` of `data`, by definition.
fn expected(spec: &LeafSpec, data: &[u8], range: Range<u64>) -> Vec<Leaf> {
    let mut all = Vec::new();
    let mut at = range.start;
    while at < range.end {
        let end = ((at / spec.size + 1) * spec.size).min(range.end);
        all.push(Leaf { range: at..end, digest: digest(&spec.algorithm, &data[at as usize..end as usize]) });
        at = end;
    }
    all
}

#[track_caller]
fn told(answer: Answer) -> Vec<Leaf> {
    match answer.done() {
        Outcome::Transferred { leaves, .. } => leaves,
        other => panic!("{other:?}"),
    }
}

fn sending(path: &str, spec: &LeafSpec) -> SendSpec {
    SendSpec { leaves: Some(spec.clone()), ..send(path) }
}

fn receiving(path: &str, spec: &LeafSpec) -> ReceiveSpec {
    ReceiveSpec { leaves: Some(spec.clone()), ..receive(path) }
}

/// A node whose storage does what a script says.
fn scripted() -> (Node, Script) {
    let script = Script::new();
    let (root, rules) = (tempfile::tempdir().unwrap(), script.clone());
    let inner = Posix::open(root.path(), PosixOptions::default()).unwrap();
    let storage = Arc::new(Faulty::new(inner, rules));
    (Node::on(root, |_| {}, storage), script)
}

/// Opens `/copy` for chunks of a source of that size; the session.
#[track_caller]
fn open_chunked(node: &mut Node, mover: MoverId, size: u64, spec: &LeafSpec) -> Vec<u8> {
    let file = ChunkedFile { path: b"/copy".to_vec(), size, modified: None, leaves: spec.clone() };
    match node.call(mover, Op::OpenChunked(file)).done() {
        Outcome::Chunked { session, verified, .. } => {
            assert!(verified.is_empty());
            session
        }
        other => panic!("{other:?}"),
    }
}

fn chunk(session: &[u8], range: Range<u64>, spec: &LeafSpec) -> ReceiveSpec {
    let write = WriteKind::Chunk { offset: range.start, session: session.to_vec() };
    ReceiveSpec { write, expected_size: Some(range.end - range.start), ..receiving("/copy", spec) }
}

fn part(range: Range<u64>, spec: &LeafSpec) -> SendSpec {
    SendSpec { offset: range.start, length: Some(range.end - range.start), ..sending("/source", spec) }
}

#[test]
fn both_ends_tell_the_digests_of_every_size_in_every_mode_and_algorithm() {
    let leaf = 64 * KIB;
    let data = pattern(8 * leaf as usize + 1);
    for params in [stream(), extended(1), extended(4)] {
        let mut node = Node::start();
        for algorithm in Algorithm::ALL {
            let spec = leaves(leaf, algorithm.name());
            for size in [0, 1, leaf - 1, leaf, leaf + 1, 8 * leaf + 1] {
                let data = &data[..size as usize];
                node.write("source", data);
                let movers = node.pair(&params);
                let (sent, received) = node.copy(movers, sending("/source", &spec), receiving("/copy", &spec));
                let leaves = expected(&spec, data, 0..size);
                assert_eq!(told(sent), leaves, "{params:?} {spec:?} {size}");
                assert_eq!(told(received), leaves, "{params:?} {spec:?} {size}");
                assert!(node.read("copy") == data);
            }
        }
        assert_eq!(node.names(), ["copy", "source"], "no leftovers");
    }
}

#[test]
fn large_files_on_several_threads_and_in_small_pools_have_the_same_digests() {
    let data = pattern((40 * MIB + 77) as usize);
    for (pool_bytes, leaf) in [(512 * KIB, MIB), (3 * MIB, 4 * MIB), (64 * MIB, 4 * MIB)] {
        for algorithm in ["MD5", "CRC32C"] {
            let mut node = Node::with(|settings| settings.pool_bytes = pool_bytes);
            let spec = leaves(leaf, algorithm);
            node.write("source", &data);
            let movers = node.pair(&extended(4));
            let (sent, received) = node.copy(movers, sending("/source", &spec), receiving("/copy", &spec));
            let leaves = expected(&spec, &data, 0..data.len() as u64);
            assert_eq!(told(sent), leaves);
            assert_eq!(told(received), leaves);
            assert!(node.read("copy") == data);
        }
    }
}

#[test]
fn a_restart_tells_the_leaves_of_what_was_missing() {
    let data = pattern(500_000);
    let spec = leaves(100_000, "MD5");
    let mut node = Node::start();
    node.write("source", &data);
    let mut there = data.clone();
    there[150_000..420_000].fill(7);
    node.write("copy", &there);
    let movers = node.pair(&extended(2));
    let done = vec![0..150_000, 420_000..500_000];
    let from = SendSpec { done: done.clone(), ..sending("/source", &spec) };
    let to = ReceiveSpec { write: WriteKind::Restart { done }, ..receiving("/copy", &spec) };
    let (sent, received) = node.copy(movers, from, to);
    let leaves = expected(&spec, &data, 150_000..420_000);
    assert_eq!(leaves.len(), 4);
    assert_eq!((told(sent), told(received)), (leaves.clone(), leaves));
    assert!(node.read("copy") == data);
}

#[test]
fn what_has_no_leaves_is_refused_before_anything_moves() {
    let mut node = Node::start();
    node.write("source", &pattern(100_000));
    let refused = [
        (leaves(MIB, "CRC7"), false, FailureKind::NotSupported),
        (leaves(1, "MD5"), false, FailureKind::BadArgument),
        (leaves(MIB, "MD5"), true, FailureKind::NotSupported),
    ];
    for (spec, ascii, kind) in refused {
        let (source, destination) = node.pair(&stream());
        node.call(source, Op::Send(SendSpec { ascii, ..sending("/source", &spec) })).fails_with(kind);
        let to = ReceiveSpec { ascii, expected_size: Some(100_000), ..receiving("/copy", &spec) };
        node.call(destination, Op::Receive(to)).fails_with(kind);
    }
    let (source, _) = node.pair(&extended(1));
    let spec = sending("/source", &leaves(MIB, "MD5"));
    let key = node.run_striped(source, Op::Send(spec), Stripe { index: 0, count: 2 }, None);
    node.wait(key).fails_with(FailureKind::NotSupported);
    assert_eq!(node.names(), ["source"]);
}

#[test]
fn a_byte_that_storage_lost_shows_in_the_digest_and_a_corrupt_file_never_in_the_source() {
    let (mut node, script) = scripted();
    let data = pattern(300_000);
    let spec = leaves(100_000, "MD5");
    node.write("source", &data);
    script.flip(Operation::ReadBack, Calls::From(1), 250_000);
    let movers = node.pair(&extended(1));
    let (sent, received) = node.copy(movers, sending("/source", &spec), receiving("/copy", &spec));
    let (sent, received) = (told(sent), told(received));
    assert_eq!(sent, expected(&spec, &data, 0..300_000));
    assert_eq!(received[..2], sent[..2]);
    assert_eq!(received[2].range, sent[2].range);
    assert_ne!(received[2].digest, sent[2].digest);
}

#[test]
fn chunks_in_any_order_make_a_file_that_is_committed_when_all_of_it_is_proven() {
    let size = 5 * MIB + 123;
    let data = pattern(size as usize);
    let spec = leaves(256 * KIB, "MD5");
    let mut node = Node::start();
    node.write("source", &data);
    let movers = [node.pair(&extended(2)), node.pair(&extended(1))];
    let session = open_chunked(&mut node, movers[0].1, size, &spec);
    let mut proven = Vec::new();
    for (n, range) in [3 * MIB..size, 0..2 * MIB, 2 * MIB..3 * MIB].into_iter().enumerate() {
        let (sent, received) =
            node.copy(movers[n % 2], part(range.clone(), &spec), chunk(&session, range.clone(), &spec));
        let leaves = expected(&spec, &data, range);
        assert_eq!((told(sent), told(received)), (leaves.clone(), leaves.clone()));
        proven.push((movers[n % 2].1, leaves));
        assert!(!node.names().contains(&"copy".to_owned()), "no name before the commit");
    }
    let path = b"/copy".to_vec();
    let commit =
        Op::CommitChunked { path: path.clone(), session: session.clone(), modified: None, mode: None, expected: None };
    node.call(movers[0].1, commit.clone()).failure();
    for (mover, leaves) in proven {
        node.call(mover, Op::KeepLeaves { path: path.clone(), session: session.clone(), leaves }).done();
    }
    node.call(movers[0].1, commit).done();
    assert!(node.read("copy") == data);
    assert_eq!(node.names(), ["copy", "source"]);
}

#[test]
fn blocks_outside_the_announced_window_are_refused_and_written_nowhere() {
    let size = 3 * MIB;
    let data = pattern(size as usize);
    let spec = leaves(256 * KIB, "MD5");
    for params in [stream(), extended(2)] {
        let mut node = Node::start();
        node.write("source", &data);
        let (source, destination) = node.pair(&params);
        let session = open_chunked(&mut node, destination, size, &spec);
        // The sender does not keep to what was announced.
        let window = MIB..MIB + 300_000;
        let (_, received) =
            node.copy((source, destination), part(MIB..2 * MIB, &spec), chunk(&session, window.clone(), &spec));
        received.fails_with(FailureKind::BadData);
        let unfinished = node.names().into_iter().find(|name| name.starts_with('.')).expect("an unfinished file");
        let stored = node.read(&unfinished);
        let behind = stored.get(window.end as usize..).unwrap_or_default();
        assert!(behind.iter().all(|&byte| byte == 0), "{params:?}: written behind the window");
        // Announced beyond the end of the file: refused at once.
        node.link(source, destination, &params);
        let beyond = chunk(&session, size - 1..size + 1, &spec);
        node.call(destination, Op::Receive(beyond)).fails_with(FailureKind::BadArgument);
        // A part written into an existing file has a window too where leaves are wanted.
        node.write("copy", &[7; 1000]);
        node.link(source, destination, &params);
        let write = WriteKind::Adjusted { offset: 100 };
        let to = ReceiveSpec { write, expected_size: Some(50), ..receiving("/copy", &spec) };
        let (_, received) = node.copy((source, destination), part(0..60, &spec), to);
        received.fails_with(FailureKind::BadData);
        assert!(node.read("copy")[150..].iter().all(|&byte| byte == 7));
    }
}

/// Linked movers, a session for `/copy`, and the spec of its leaves.
fn chunked(node: &mut Node, params: &DataParams, size: u64) -> ((MoverId, MoverId), Vec<u8>, LeafSpec) {
    let spec = leaves(256 * KIB, "MD5");
    node.write("source", &pattern(size as usize));
    let movers = node.pair(params);
    let session = open_chunked(node, movers.1, size, &spec);
    (movers, session, spec)
}

/// Lets calls of storage wait until the first part is dropped; the second tells of each that waits.
fn gate(script: &Script, at: Operation) -> (Sender<()>, Receiver<()>) {
    let (open, opened) = mpsc::channel();
    let (reached, arrived) = mpsc::channel();
    let opened = std::sync::Mutex::new(opened);
    script.hook(move |operation, _| {
        if operation == at {
            let _ = reached.send(());
            // Open for good once the test lets go.
            let _ = opened.lock().unwrap().recv();
        }
    });
    (open, arrived)
}

#[test]
fn the_next_chunk_flows_while_the_last_is_proven_and_answers_keep_their_order() {
    let (mut node, script) = scripted();
    let ((source, destination), session, spec) = chunked(&mut node, &extended(1), 2 * MIB);
    let (gate, arrived) = gate(&script, Operation::Sync);
    let run = |node: &mut Node, range: Range<u64>| {
        let receiving = node.run(destination, Op::Receive(chunk(&session, range.clone(), &spec)));
        let sending = node.run(source, Op::Send(part(range, &spec)));
        (node.wait(sending).bytes(), receiving)
    };
    let (sent, first) = run(&mut node, 0..MIB);
    arrived.recv().unwrap();
    // The first is held in its proof: the data of the second still pass.
    let (also, second) = run(&mut node, MIB..2 * MIB);
    assert_eq!((sent, also), (MIB, MIB));
    let keep = node.run(destination, Op::KeepLeaves { path: b"/copy".to_vec(), session, leaves: Vec::new() });
    let look = node.run(destination, Op::Exists(b"/source".to_vec()));
    drop(gate);
    let mut order = Vec::new();
    let all = [first, second, keep, look];
    while order.len() < all.len() {
        let done = all.iter().find(|key| !order.contains(*key) && node.has_outcome(**key)).copied();
        match done {
            Some(key) => order.push(key),
            None => node.step(),
        }
    }
    assert_eq!(order, all);
    assert_eq!(told(node.wait(first)), expected(&spec, &pattern(2 * MIB as usize), 0..MIB));
    assert_eq!(told(node.wait(second)), expected(&spec, &pattern(2 * MIB as usize), MIB..2 * MIB));
}

#[test]
fn a_chunk_that_cannot_be_proven_fails_alone() {
    let (mut node, script) = scripted();
    let (movers, session, spec) = chunked(&mut node, &extended(1), 2 * MIB);
    script.fail(Operation::Sync, Calls::Nth(1), FaultCode::StorageIo, When::Before);
    let (sent, received) = node.copy(movers, part(0..MIB, &spec), chunk(&session, 0..MIB, &spec));
    assert_eq!(sent.bytes(), MIB);
    received.fails_with(FailureKind::Other);
    let (_, received) = node.copy(movers, part(MIB..2 * MIB, &spec), chunk(&session, MIB..2 * MIB, &spec));
    assert_eq!(received.bytes(), MIB);
}

#[test]
fn an_abort_reaches_an_operation_in_its_proof() {
    let (mut node, script) = scripted();
    let (movers, session, spec) = chunked(&mut node, &extended(1), 2 * MIB);
    let (gate, arrived) = gate(&script, Operation::ReadBack);
    let receiving = node.run(movers.1, Op::Receive(chunk(&session, 0..MIB, &spec)));
    let sending = node.run(movers.0, Op::Send(part(0..MIB, &spec)));
    assert_eq!(node.wait(sending).bytes(), MIB);
    arrived.recv().unwrap();
    node.abort(receiving);
    // The abort must have been taken in before the gate opens: messages are handled in order.
    let other = node.attach();
    node.call(other, Op::Exists(b"/source".to_vec())).done();
    drop(gate);
    node.wait(receiving).fails_with(FailureKind::Aborted);
    let (_, received) = node.copy(movers, part(MIB..2 * MIB, &spec), chunk(&session, MIB..2 * MIB, &spec));
    assert_eq!(received.bytes(), MIB);
}

#[test]
fn a_mover_that_leaves_in_mid_proof_leaves_nothing_running() {
    let (mut node, script) = scripted();
    let (movers, session, spec) = chunked(&mut node, &extended(1), 2 * MIB);
    let (gate, arrived) = gate(&script, Operation::ReadBack);
    node.run(movers.1, Op::Receive(chunk(&session, 0..MIB, &spec)));
    node.run(movers.0, Op::Send(part(0..MIB, &spec)));
    arrived.recv().unwrap();
    node.send(&ToMover::Detach { mover: movers.1 });
    node.send(&ToMover::Detach { mover: movers.0 });
    drop(gate);
    node.end().unwrap();
}

#[test]
fn a_file_is_there_for_the_operation_behind_its_proof() {
    let (mut node, script) = scripted();
    let data = pattern(2 * MIB as usize);
    node.write("source", &data);
    let spec = leaves(MIB, "XXH3-128");
    let (source, destination) = node.pair(&extended(1));
    let (gate, arrived) = gate(&script, Operation::ReadBack);
    let receiving = node.run(destination, Op::Receive(receiving("/copy", &spec)));
    let size = node.run(destination, Op::Size(b"/copy".to_vec()));
    let sending = node.run(source, Op::Send(sending("/source", &spec)));
    assert_eq!(node.wait(sending).bytes(), 2 * MIB);
    arrived.recv().unwrap();
    drop(gate);
    assert_eq!(told(node.wait(receiving)), expected(&spec, &data, 0..2 * MIB));
    assert_eq!(node.wait(size).done(), Outcome::Size(2 * MIB));
}

#[test]
fn a_stream_that_ends_before_what_was_announced_takes_no_files_place() {
    let mut node = Node::start();
    node.write("source", &pattern(300_000));
    node.write("copy", b"the version before");
    let leaves = Some(LeafSpec { size: 1 << 20, algorithm: "MD5".to_owned(), holes: false, vouched: false });
    // As a sender that is killed: its host ends the connection in good order.
    let movers = node.pair(&stream());
    let to = ReceiveSpec { expected_size: Some(300_001), leaves, ..receive("/copy") };
    let (_, received) = node.copy(movers, send("/source"), to);
    assert!(received.failure().text.contains("ended 1 bytes early"));
    assert_eq!(node.read("copy"), b"the version before");
}

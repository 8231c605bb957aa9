//! Two data nodes that send and receive one file together.

#![allow(missing_docs, clippy::unwrap_used)]

mod mover_support;

use std::sync::Arc;

use mover_support::{Answer, Node, extended, pattern, receive, send};
use tempfile::TempDir;
use whimbrel_connector::faults::{Calls, Faulty, Operation, Script, When};
use whimbrel_connector::posix::{Posix, PosixOptions};
use whimbrel_dtn::mover::message::{MoverId, Stripe, ToMover};
use whimbrel_engine::FaultCode;
use whimbrel_proto::op::{DataParams, FailureKind, Layout, Op, OpId, ReceiveSpec, WriteKind};

const COMMIT: OpId = OpId(u64::MAX);

/// Two nodes on the same storage.
fn nodes() -> (Node, Node) {
    let root = tempfile::tempdir().unwrap();
    let shared = root.path().to_owned();
    let other = TempDir::new().unwrap();
    let bytes = std::os::unix::ffi::OsStrExt::as_bytes(shared.as_os_str()).to_vec();
    (Node::at(root, |_| {}), Node::at(other, |settings| settings.root = bytes))
}

fn stripe(index: u16) -> Stripe {
    Stripe { index, count: 2 }
}

/// Starts a striped receive as a front does: one node begins, the others join.
fn start_receiving(
    nodes: &mut (Node, Node),
    movers: (MoverId, MoverId),
    spec: &ReceiveSpec,
) -> ((MoverId, OpId), (MoverId, OpId), Box<whimbrel_connector::WriteSession>) {
    let first = nodes.0.run_striped(movers.0, Op::Receive(spec.clone()), stripe(0), None);
    let begun = nodes.0.until(first, |answer| answer.session.is_some()).session.clone();
    let session = begun.expect("waited for");
    let second = nodes.1.run_striped(movers.1, Op::Receive(spec.clone()), stripe(1), Some(session.clone()));
    (first, second, session)
}

fn commit(
    node: &mut Node,
    mover: MoverId,
    spec: &ReceiveSpec,
    session: Box<whimbrel_connector::WriteSession>,
    parts: Vec<(u64, whimbrel_connector::Receipt)>,
) -> Answer {
    let bytes = parts.iter().map(|(bytes, _)| bytes).sum();
    let receipts = parts.into_iter().map(|(_, receipt)| receipt).collect();
    let spec = Box::new(spec.clone());
    node.send(&ToMover::Commit { mover, id: COMMIT, spec, session, receipts, bytes });
    node.wait((mover, COMMIT))
}

fn copy_striped(params: &DataParams, spec: &ReceiveSpec, data: &[u8]) -> (Node, Answer) {
    let mut nodes = nodes();
    nodes.0.write("source", data);
    let receivers = (nodes.0.attach(), nodes.1.attach());
    let senders = (nodes.0.attach(), nodes.1.attach());
    let targets = [nodes.0.passive(receivers.0, params), nodes.1.passive(receivers.1, params)];
    nodes.0.active(senders.0, &targets, params);
    nodes.1.active(senders.1, &targets, params);
    let (first, second, session) = start_receiving(&mut nodes, receivers, spec);
    let sending = (
        nodes.0.run_striped(senders.0, Op::Send(send("/source")), stripe(0), None),
        nodes.1.run_striped(senders.1, Op::Send(send("/source")), stripe(1), None),
    );
    let sent = [nodes.0.wait(sending.0).bytes(), nodes.1.wait(sending.1).bytes()];
    let parts = vec![
        nodes.0.wait(first).received.expect("the first node's part"),
        nodes.1.wait(second).received.expect("the second node's part"),
    ];
    assert_eq!(sent, [parts[0].0, parts[1].0], "each node moved its own share");
    assert!(sent.iter().all(|&bytes| bytes > data.len() as u64 / 4), "{sent:?}");
    assert!(!nodes.0.names().contains(&"copy".to_owned()), "no final name before the commit");
    assert_eq!(mode(&nodes.0, ".copy.whimbrel-part"), 0o600, "nor anybody else who may open it");
    let answer = commit(&mut nodes.0, receivers.0, spec, session, parts);
    (nodes.0, answer)
}

fn mode(node: &Node, name: &str) -> u32 {
    let metadata = std::fs::metadata(node.root.path().join(name)).unwrap();
    std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o7777
}

#[test]
fn both_layouts_put_a_striped_file_together_at_one_commit() {
    let data = pattern((9 << 20) + 5);
    for layout in [Layout::Blocked { block_size: 1 << 20 }, Layout::Partitioned] {
        let params = DataParams { layout, ..extended(2) };
        let spec = ReceiveSpec { mode: Some(0o640), ..receive("/copy") };
        let (node, answer) = copy_striped(&params, &spec, &data);
        assert_eq!(answer.bytes(), data.len() as u64);
        assert!(node.read("copy") == data);
        assert_eq!((node.names(), mode(&node, "copy")), (vec!["copy".to_owned(), "source".to_owned()], 0o640));
    }
}

#[test]
fn a_wrong_checksum_of_the_whole_removes_the_parts_of_all() {
    let expected_checksum = Some(("MD5".to_owned(), "0".repeat(32)));
    let spec = ReceiveSpec { expected_checksum, ..receive("/copy") };
    let (node, answer) = copy_striped(&extended(1), &spec, &pattern(4 << 20));
    answer.fails_with(FailureKind::Checksum);
    assert_eq!(node.names(), ["source"]);
}

#[test]
fn a_node_without_a_target_has_nothing_to_do() {
    let mut nodes = nodes();
    nodes.0.write("source", b"data");
    let destination = nodes.0.attach();
    let target = nodes.0.passive(destination, &extended(1));
    let idle = nodes.1.attach();
    nodes.1.active(idle, &[target], &extended(1));
    let op = Op::Send(send("/source"));
    let key = nodes.1.run_striped(idle, op, stripe(1), None);
    assert_eq!(nodes.1.wait(key).bytes(), 0);
}

#[test]
fn striped_appends_are_refused() {
    let mut nodes = nodes();
    let mover = nodes.0.attach();
    nodes.0.passive(mover, &extended(1));
    let spec = ReceiveSpec { write: WriteKind::Append, ..receive("/copy") };
    let key = nodes.0.run_striped(mover, Op::Receive(spec), stripe(0), None);
    nodes.0.wait(key).fails_with(FailureKind::NotSupported);
}

#[test]
fn a_node_whose_part_cannot_be_synced_says_so_to_a_client_that_wants_it_durable() {
    let (mut nodes, script) = (nodes(), Script::new());
    let inner = Posix::open(nodes.0.root.path(), PosixOptions::default()).unwrap();
    nodes.1 = Node::on(TempDir::new().unwrap(), |_| {}, Arc::new(Faulty::new(inner, script.clone())));
    let (spec, params) = (ReceiveSpec { durable: true, ..receive("/copy") }, extended(1));
    nodes.0.write("source", &pattern(4 << 20));
    let receivers = (nodes.0.attach(), nodes.1.attach());
    let senders = (nodes.0.attach(), nodes.0.attach());
    let targets = [nodes.0.passive(receivers.0, &params), nodes.1.passive(receivers.1, &params)];
    nodes.0.active(senders.0, &targets, &params);
    nodes.0.active(senders.1, &targets, &params);
    let (first, second, _) = start_receiving(&mut nodes, receivers, &spec);
    script.fail(Operation::Sync, Calls::From(1), FaultCode::StorageIo, When::Before);
    let send = |nodes: &mut (Node, Node), mover, index| {
        nodes.0.run_striped(mover, Op::Send(send("/source")), stripe(index), None)
    };
    // One after the other: who lost bytes abandons the file, and the other may not find it any more.
    let sent = send(&mut nodes, senders.0, 0);
    nodes.0.wait(sent);
    assert!(nodes.0.wait(first).received.is_some());
    let sent = send(&mut nodes, senders.1, 1);
    nodes.0.wait(sent);
    assert!(nodes.1.wait(second).received.is_none(), "its bytes may be lost, and nobody else can sync them");
    assert!(script.calls(Operation::Sync) > 0);
}

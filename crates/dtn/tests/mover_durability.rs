//! What is promised to survive a crash is promised only once the storage has said so.

#![allow(missing_docs, clippy::unwrap_used)]

mod mover_support;

use std::sync::Arc;
use std::time::Duration;

use mover_support::{Node, extended, pattern, receive, send};
use whimbrel_connector::faults::{Calls, Faulty, Operation, Script, When};
use whimbrel_connector::posix::{Posix, PosixOptions};
use whimbrel_engine::FaultCode;
use whimbrel_proto::op::{ChunkedFile, LeafSpec, Notice, Op, Outcome, ReceiveSpec};

/// A node that makes all writes durable, on storage that does what a script says.
fn node() -> (Node, Script) {
    let (root, script) = (tempfile::tempdir().unwrap(), Script::new());
    let inner = Posix::open(root.path(), PosixOptions::default()).unwrap();
    let storage = Arc::new(Faulty::new(inner, script.clone()));
    (Node::on(root, |settings| settings.sync_writes = true, storage), script)
}

#[test]
fn no_range_is_told_that_could_not_be_synced() {
    let (mut node, script) = node();
    node.write("source", &pattern(500_000));
    let movers = node.pair(&extended(2));
    script.fail(Operation::Sync, Calls::From(1), FaultCode::StorageIo, When::Before);
    let to = ReceiveSpec { range_interval: Some(Duration::from_secs(3600)), ..receive("/copy") };
    let (_, received) = node.copy(movers, send("/source"), to);
    let told: Vec<_> = received.notices.iter().filter(|notice| matches!(notice, Notice::Ranges(_))).collect();
    assert!(told.is_empty(), "{told:?}");
    assert!(script.calls(Operation::Sync) > 0, "it was tried");
}

#[test]
fn no_hole_is_called_proven_that_could_not_be_synced() {
    const LEAF: u64 = 1 << 20;
    let (mut node, script) = node();
    let mover = node.attach();
    let leaves = LeafSpec { size: LEAF, algorithm: "MD5".to_owned(), holes: true };
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

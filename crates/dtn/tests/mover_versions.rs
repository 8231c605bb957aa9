//! A source that changes while it is read, at the same size, is no copy of anything.

#![allow(missing_docs, clippy::unwrap_used)]

mod mover_support;

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use mover_support::{Node, extended, pattern, receive, send};
use whimbrel_connector::faults::{Faulty, Operation, Script};
use whimbrel_connector::posix::{Posix, PosixOptions};
use whimbrel_proto::op::{FailureKind, LeafSpec, Op, Outcome, PackSpec, PackedFile, ReceiveSpec, SendSpec};

/// A node with a source of which a byte is written anew, and its time with it, when it is first read.
fn node(size: usize) -> Node {
    let (root, script) = (tempfile::tempdir().unwrap(), Script::new());
    let inner = Posix::open(root.path(), PosixOptions::default()).unwrap();
    let storage = Arc::new(Faulty::new(inner, script.clone()));
    let source = root.path().join("source");
    let node = Node::on(root, |_| {}, storage);
    node.write("source", &pattern(size));
    script.hook(move |operation, call| {
        if operation == Operation::ReadAt && call == 1 {
            let file = File::options().write(true).open(&source).unwrap();
            file.write_all_at(b"!", 9).unwrap();
            file.set_modified(SystemTime::now() + Duration::from_secs(5)).unwrap();
        }
    });
    node
}

#[test]
fn a_file_that_changes_while_it_is_sent_with_digests_is_not_sent() {
    let mut node = node(3 << 20);
    let leaves = || Some(LeafSpec { size: 1 << 20, algorithm: "MD5".to_owned(), holes: false, vouched: false });
    let movers = node.pair(&extended(1));
    let from = SendSpec { leaves: leaves(), ..send("/source") };
    let (sent, _) = node.copy(movers, from, ReceiveSpec { leaves: leaves(), ..receive("/copy") });
    let failure = sent.failure();
    assert_eq!(failure.kind, FailureKind::SourceChanged, "{failure:?}");
}

#[test]
fn a_packed_file_that_changes_while_it_is_read_is_not_sent() {
    let mut node = node(5000);
    let movers = node.pair(&extended(1));
    let pack = |path: &[u8]| PackSpec {
        files: vec![PackedFile { path: path.to_vec(), size: 5000, modified: None, mode: None }],
        algorithm: Some("MD5".to_owned()),
        durable: false,
        vouched: true,
    };
    let received = node.run(movers.1, Op::ReceivePack(pack(b"/copy")));
    let sent = node.run(movers.0, Op::SendPack(pack(b"/source")));
    let (sent, received) = (node.wait(sent), node.wait(received));
    let Outcome::Packed(fates) = sent.done() else { panic!("not a pack") };
    assert!(fates[0].as_ref().is_err_and(|failure| failure.kind == FailureKind::SourceChanged), "{fates:?}");
    let Outcome::Packed(fates) = received.done() else { panic!("not a pack") };
    assert!(fates[0].is_err(), "{fates:?}");
}

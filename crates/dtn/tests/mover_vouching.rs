//! Senders vouch for what they send: what differs from it gets no name, whoever else compares it or not.

#![allow(missing_docs, clippy::unwrap_used)]

mod mover_support;

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use mover_support::{Node, extended, pattern, receive, send, stream};
use whimbrel_connector::faults::{Calls, Faulty, Operation, Script};
use whimbrel_connector::posix::{Posix, PosixOptions};
use whimbrel_proto::op::{
    FailureKind, LeafSpec, Mode, Op, Outcome, PackResult, PackSpec, PackedFile, ReceiveSpec, SendSpec, WriteKind,
};

const MIB: usize = 1 << 20;

/// A node whose storage does what the script says.
fn scripted() -> (Node, Script) {
    let (root, script) = (tempfile::tempdir().unwrap(), Script::new());
    let inner = Posix::open(root.path(), PosixOptions::default()).unwrap();
    let storage = Arc::new(Faulty::new(inner, script.clone()));
    (Node::on(root, |_| {}, storage), script)
}

fn vouched() -> Option<LeafSpec> {
    Some(LeafSpec { size: MIB as u64, algorithm: "MD5".to_owned(), holes: false, vouched: true })
}

fn whole() -> (SendSpec, ReceiveSpec) {
    (SendSpec { leaves: vouched(), ..send("/source") }, ReceiveSpec { leaves: vouched(), ..receive("/copy") })
}

fn pack(prefix: &str, sizes: &[usize]) -> PackSpec {
    let file = |(i, size): (usize, &usize)| PackedFile {
        path: format!("/{prefix}{i}").into_bytes(),
        size: *size as u64,
        modified: None,
        mode: None,
    };
    let files = sizes.iter().enumerate().map(file).collect();
    PackSpec { files, algorithm: Some("MD5".to_owned()), durable: false, vouched: true }
}

fn fates(outcome: Outcome) -> Vec<PackResult> {
    let Outcome::Packed(fates) = outcome else { panic!("{outcome:?}") };
    fates
}

#[test]
fn what_is_vouched_for_gets_its_name_again_and_again_over_any_number_of_channels() {
    for (params, sizes) in [
        (extended(1), [0, 1, 300_000, 3 * MIB + 7]),
        (extended(4), [0, 5, MIB, 9 * MIB + 1]),
        (stream(), [0, 1, 2, MIB]),
    ] {
        let mut node = Node::start();
        let mut movers = node.pair(&params);
        for size in sizes {
            if params.mode == Mode::Stream {
                // Its connection ended with the last file.
                movers = node.pair(&params);
            }
            node.write("source", &pattern(size));
            let (from, mut to) = whole();
            to.expected_size = Some(size as u64);
            let (sent, received) = node.copy(movers, from, to);
            let (Outcome::Transferred { leaves: sent, bytes, .. }, Outcome::Transferred { leaves: stored, .. }) =
                (sent.done(), received.done())
            else {
                panic!("not moved")
            };
            assert_eq!((sent, bytes), (stored, size as u64), "{params:?} {size}");
            assert!(node.read("copy") == pattern(size));
        }
        assert_eq!(node.names().len(), 2, "{:?}", node.names());
    }
}

#[test]
fn what_was_damaged_on_its_way_to_the_disk_gets_no_name_and_the_next_transfer_is_right() {
    let (mut node, script) = scripted();
    node.write("source", &pattern(3 * MIB));
    node.write("copy", b"what was there before");
    let movers = node.pair(&extended(2));
    script.flip(Operation::ReadBack, Calls::Nth(1), 5);
    let (from, to) = whole();
    let (sent, received) = node.copy(movers, from.clone(), to.clone());
    assert!(matches!(sent.done(), Outcome::Transferred { .. }));
    assert_eq!(received.failure().kind, FailureKind::Checksum);
    assert_eq!(node.read("copy"), b"what was there before");
    let names = node.names();
    assert!(!names.iter().any(|name| name.starts_with('.')), "{names:?}");
    let (sent, received) = node.copy(movers, from, to);
    assert!(matches!((sent.done(), received.done()), (Outcome::Transferred { .. }, Outcome::Transferred { .. })));
    assert!(node.read("copy") == pattern(3 * MIB));
}

/// What clients of ours ask for when they go on with a whole file: nobody vouches for what was there before.
#[test]
fn what_an_earlier_attempt_left_damaged_gets_no_name_where_the_sources_checksum_was_told() {
    for damaged in [false, true] {
        let mut node = Node::start();
        let data = pattern(3 * MIB);
        node.write("source", &data);
        let mut part = data[..2 * MIB].to_vec();
        part[MIB] ^= u8::from(damaged);
        node.write(".copy.whimbrel-part", &part);
        let movers = node.pair(&extended(2));
        let path = b"/source".to_vec();
        let sum = Op::Checksum { algorithm: "MD5".to_owned(), offset: 0, length: None, path, marker_interval: None };
        let Outcome::Checksum(sum) = node.call(movers.0, sum).done() else { panic!("no checksum") };
        let done: Vec<_> = std::iter::once(0..2 * MIB as u64).collect();
        let from = SendSpec { done: done.clone(), ..send("/source") };
        let write = WriteKind::Restart { done };
        let expected_checksum = Some(("MD5".to_owned(), sum));
        let to = ReceiveSpec { write, strict: true, expected_checksum, ..receive("/copy") };
        let (sent, received) = node.copy(movers, from, to);
        assert_eq!(sent.bytes(), MIB as u64);
        if damaged {
            received.fails_with(FailureKind::Checksum);
            assert_eq!(node.names(), ["source"]);
        } else {
            assert_eq!(received.bytes(), MIB as u64);
            assert!(node.read("copy") == data);
        }
    }
}

#[test]
fn a_source_that_changes_while_it_is_sent_is_not_vouched_for() {
    let (mut node, script) = scripted();
    node.write("source", &pattern(3 * MIB));
    let source = node.root.path().join("source");
    script.hook(move |operation, call| {
        if operation == Operation::ReadAt && call == 1 {
            let file = File::options().write(true).open(&source).unwrap();
            file.write_all_at(b"!", 9).unwrap();
            file.set_modified(SystemTime::now() + Duration::from_secs(5)).unwrap();
        }
    });
    let movers = node.pair(&extended(1));
    let (from, to) = whole();
    let (sent, received) = node.copy(movers, from, to);
    assert!(sent.failure().text.contains("changed"));
    assert!(received.failure().text.contains("does not vouch"));
    assert_eq!(node.names(), ["source"]);
}

#[test]
fn of_a_pack_the_file_that_differs_gets_no_name_and_the_others_do() {
    const SIZES: [usize; 4] = [1, 4096, 10_000, 65_536];
    for channels in [1, 4] {
        let (mut node, script) = scripted();
        SIZES.iter().enumerate().for_each(|(i, &size)| node.write(&format!("from{i}"), &pattern(size)));
        std::fs::remove_file(node.root.path().join("from3")).unwrap();
        let movers = node.pair(&extended(channels));
        script.flip(Operation::ReadBack, Calls::Nth(2), 5);
        let received = node.run(movers.1, Op::ReceivePack(pack("to", &SIZES)));
        let sent = node.run(movers.0, Op::SendPack(pack("from", &SIZES)));
        let (sent, stored) = (fates(node.wait(sent).done()), fates(node.wait(received).done()));
        let kinds = |fates: &[PackResult]| fates.iter().map(|f| f.as_ref().err().map(|f| f.kind)).collect::<Vec<_>>();
        assert_eq!(kinds(&sent), [None, None, None, Some(FailureKind::NotFound)]);
        let wrong: Vec<usize> = (0..3).filter(|&i| stored[i].is_err()).collect();
        assert_eq!(wrong.len(), 1, "{stored:?}");
        assert_eq!(kinds(&stored)[wrong[0]], Some(FailureKind::Checksum));
        for i in 0..4 {
            let there = node.names().contains(&format!("to{i}"));
            assert_eq!(there, stored[i].is_ok(), "{i}");
            assert!(!there || node.read(&format!("to{i}")) == pattern(SIZES[i]));
        }
        assert!(!node.names().iter().any(|name| name.starts_with('.')), "{:?}", node.names());
    }
}

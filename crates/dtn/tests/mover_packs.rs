//! Packs: small files that move as one transfer.

#![allow(missing_docs, clippy::unwrap_used)]

mod mover_support;

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::sync::Arc;

use mover_support::{Node, extended, pattern, stream};
use whimbrel_connector::faults::{Calls, Faulty, Operation, Script};
use whimbrel_connector::posix::{Posix, PosixOptions};
use whimbrel_dtn::mover::message::MoverId;
use whimbrel_proto::op::{DataParams, FailureKind, Op, Outcome, PackResult, PackSpec, PackedFile};
use whimbrel_proto::pack;
use whimbrel_transport::digest::Algorithm;

fn digest(algorithm: Algorithm, data: &[u8]) -> String {
    algorithm.digest(data).to_string()
}

/// The `i`-th file: sizes around the borders of buffers, contents that differ.
fn content(i: usize) -> Vec<u8> {
    let mut data = pattern([1, 7, 4096, 10_240, 65_536][i % 5]);
    data[0] = i as u8;
    data
}

fn spec(prefix: &str, sizes: &[usize], algorithm: Option<Algorithm>) -> PackSpec {
    let file = |(i, size): (usize, &usize)| PackedFile {
        path: format!("/{prefix}{i}").into_bytes(),
        size: *size as u64,
        modified: None,
        mode: None,
    };
    let files = sizes.iter().enumerate().map(file).collect();
    PackSpec {
        files,
        algorithm: algorithm.map(|algorithm| algorithm.name().to_owned()),
        durable: false,
        vouched: false,
    }
}

/// Moves a pack between two movers of a node: what the source told, what the destination told.
fn copy(
    node: &mut Node,
    (source, destination): (MoverId, MoverId),
    from: PackSpec,
    to: PackSpec,
) -> (Vec<PackResult>, Vec<PackResult>) {
    let (receive, send) = (node.run(destination, Op::ReceivePack(to)), node.run(source, Op::SendPack(from)));
    let mut fates = |key| match node.wait(key).done() {
        Outcome::Packed(fates) => fates,
        other => panic!("{other:?}"),
    };
    (fates(send), fates(receive))
}

fn sizes(count: usize) -> Vec<usize> {
    (0..count).map(|i| content(i).len()).collect()
}

fn write_sources(node: &Node, count: usize) {
    (0..count).for_each(|i| node.write(&format!("from{i}"), &content(i)));
}

#[test]
fn every_file_arrives_with_its_digest_over_one_and_many_channels_again_and_again() {
    const COUNT: usize = 14;
    for params in [extended(1), extended(4)] {
        for algorithm in [None, Some(Algorithm::Xxh3_128), Some(Algorithm::Md5)] {
            let mut node = Node::start();
            write_sources(&node, COUNT);
            let movers = node.pair(&params);
            for round in 0..3 {
                let to = format!("to{round}-");
                let (sent, stored) = copy(
                    &mut node,
                    movers,
                    spec("from", &sizes(COUNT), algorithm),
                    spec(&to, &sizes(COUNT), algorithm),
                );
                let want: Vec<PackResult> =
                    (0..COUNT).map(|i| Ok(algorithm.map(|algorithm| digest(algorithm, &content(i))))).collect();
                assert_eq!((&sent, &stored), (&want, &want), "{params:?} {algorithm:?}");
                assert!((0..COUNT).all(|i| node.read(&format!("{to}{i}")) == content(i)));
            }
            assert_eq!(node.names().len(), COUNT * 4, "no leftovers: {:?}", node.names());
        }
    }
}

#[test]
fn a_file_that_fails_at_either_end_takes_no_other_with_it_and_leaves_nothing() {
    let mut node = Node::start();
    write_sources(&node, 6);
    std::fs::remove_file(node.root.path().join("from1")).unwrap();
    node.write("from3", b"longer or shorter than was listed");
    std::fs::create_dir(node.root.path().join("to4")).unwrap();
    node.write("to1", b"what was there before");
    let movers = node.pair(&extended(2));
    let (sent, stored) = copy(&mut node, movers, spec("from", &sizes(6), None), spec("to", &sizes(6), None));
    let kinds = |fates: &[PackResult]| fates.iter().map(|f| f.as_ref().err().map(|f| f.kind)).collect::<Vec<_>>();
    use FailureKind::{IsADirectory, NotFound, Other, SourceChanged};
    assert_eq!(kinds(&sent), [None, Some(NotFound), None, Some(SourceChanged), None, None]);
    assert_eq!(kinds(&stored), [None, Some(Other), None, Some(Other), Some(IsADirectory), None]);
    for i in [0, 2, 5] {
        assert!(node.read(&format!("to{i}")) == content(i));
    }
    assert_eq!(node.read("to1"), b"what was there before");
    let names = node.names();
    assert!(!names.iter().any(|name| name == "to3" || name.starts_with('.')), "{names:?}");
    // The connections are as good as new.
    let (sent, stored) = copy(&mut node, movers, spec("from", &sizes(1), None), spec("again", &sizes(1), None));
    assert_eq!((sent, stored), (vec![Ok(None)], vec![Ok(None)]));
}

#[test]
fn times_and_modes_are_those_of_the_list() {
    let mut node = Node::start();
    write_sources(&node, 1);
    let movers = node.pair(&extended(1));
    let mut to = spec("to", &sizes(1), None);
    to.files[0].modified = Some((1_577_836_800, 250_000_000));
    to.files[0].mode = Some(0o640);
    copy(&mut node, movers, spec("from", &sizes(1), None), to);
    let meta = std::fs::metadata(node.root.path().join("to0")).unwrap();
    assert_eq!(
        (meta.mtime(), meta.mtime_nsec(), meta.permissions().mode() & 0o7777),
        (1_577_836_800, 250_000_000, 0o640)
    );
}

#[test]
fn a_bit_flipped_in_storage_before_it_is_read_back_shows_in_the_destinations_digest() {
    let script = Script::new();
    let root = tempfile::tempdir().unwrap();
    let inner = Posix::open(root.path(), PosixOptions::default()).unwrap();
    let storage = Arc::new(Faulty::new(inner, script.clone()));
    let mut node = Node::on(root, |_| {}, storage);
    write_sources(&node, 3);
    script.flip(Operation::ReadBack, Calls::Nth(2), 5);
    let movers = node.pair(&extended(1));
    let algorithm = Some(Algorithm::Xxh3_128);
    let (sent, stored) = copy(&mut node, movers, spec("from", &sizes(3), algorithm), spec("to", &sizes(3), algorithm));
    let agree: Vec<bool> = sent.iter().zip(&stored).map(|(sent, stored)| sent == stored).collect();
    assert_eq!(agree, [true, false, true]);
}

#[test]
fn what_cannot_be_a_pack_is_refused_as_a_whole() {
    let mut node = Node::start();
    write_sources(&node, 2);
    let refused = |node: &mut Node, params: &DataParams, spec: PackSpec, kind| {
        let movers = node.pair(params);
        node.call(movers.0, Op::SendPack(spec)).fails_with(kind);
    };
    refused(&mut node, &stream(), spec("from", &sizes(2), None), FailureKind::NotSupported);
    refused(&mut node, &extended(1), spec("from", &[], None), FailureKind::BadArgument);
    refused(
        &mut node,
        &extended(1),
        spec("from", &[pack::MAX_BYTES as usize / 2 + 1; 2], None),
        FailureKind::BadArgument,
    );
    let mut unknown = spec("from", &sizes(2), None);
    unknown.algorithm = Some("CRC99".into());
    refused(&mut node, &extended(1), unknown, FailureKind::NotSupported);
}

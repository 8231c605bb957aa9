//! Holes between two movers: left out, kept, proven, and never taken for what was lost.

#![allow(missing_docs, clippy::unwrap_used, clippy::single_range_in_vec_init)]

mod mover_support;

use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

use mover_support::{Answer, Node, extended, pattern, receive, send, stream};
use whimbrel_proto::op::{
    ChunkedFile, DataParams, FailureKind, Leaf, LeafSpec, Op, Outcome, ReceiveSpec, SendSpec, WriteKind,
};

const MIB: u64 = 1 << 20;
const LEAF: u64 = MIB;

fn spec(holes: bool) -> LeafSpec {
    LeafSpec { size: LEAF, algorithm: "MD5".to_owned(), holes, vouched: false }
}

/// A node with a source of `size` bytes of which only these pieces are stored.
fn node(size: u64, pieces: &[(u64, usize)]) -> Node {
    let node = Node::start();
    node.write("source", b"");
    let file = File::options().write(true).open(node.root.path().join("source")).unwrap();
    file.set_len(size).unwrap();
    pieces.iter().for_each(|&(at, length)| file.write_all_at(&pattern(length), at).unwrap());
    file.sync_all().unwrap();
    node
}

fn sending(range: Range<u64>, holes: bool) -> SendSpec {
    let length = Some(range.end - range.start);
    SendSpec { leaves: Some(spec(holes)), offset: range.start, length, ..send("/source") }
}

/// The whole source, however long it is.
fn all(holes: bool) -> SendSpec {
    SendSpec { leaves: Some(spec(holes)), ..send("/source") }
}

fn storing(size: u64, holes: bool) -> ReceiveSpec {
    ReceiveSpec { leaves: Some(spec(holes)), expected_size: Some(size), ..receive("/copy") }
}

#[track_caller]
fn told(answer: Answer) -> (u64, Vec<Leaf>) {
    match answer.done() {
        Outcome::Transferred { bytes, leaves, .. } => (bytes, leaves),
        other => panic!("{other:?}"),
    }
}

fn blocks(node: &Node, name: &str) -> u64 {
    std::fs::metadata(node.root.path().join(name)).unwrap().blocks() * 512
}

/// Copies the whole source; bytes sent and received, and the digests of both, which cover every leaf.
fn copy(node: &mut Node, params: &DataParams, size: u64, holes: [bool; 2]) -> [(u64, Vec<Leaf>); 2] {
    let movers = node.pair(params);
    let (sent, received) = node.copy(movers, sending(0..size, holes[0]), storing(size, holes[1]));
    [told(sent), told(received)]
}

#[test]
fn only_data_is_sent_and_the_digests_cover_the_zeros() {
    let size = 40 * MIB + 5;
    for params in [extended(1), extended(4)] {
        let mut node = node(size, &[(4096, 4096), (10 * MIB - 8192, 16384), (size - 5, 5)]);
        let [sent, received] = copy(&mut node, &params, size, [true, true]);
        assert_eq!(sent.1, received.1);
        assert_eq!(sent.1.len(), 41);
        assert!(sent.0 <= 64 << 10, "{} bytes were sent", sent.0);
        assert_eq!(sent.0, received.0);
        assert!(node.read("copy") == node.read("source"));
        assert_eq!(blocks(&node, "copy"), blocks(&node, "source"));
        let [plain, _] = copy(&mut node, &params, size, [false, false]);
        assert_eq!((plain.0, plain.1), (size, sent.1), "zeros have the digests of holes");
    }
}

#[test]
fn a_stream_has_no_gaps_and_says_the_same() {
    let size = 3 * MIB;
    let mut node = node(size, &[(MIB, 5)]);
    let [sent, received] = copy(&mut node, &stream(), size, [true, true]);
    assert_eq!((sent.0, &sent.1), (size, &received.1));
    assert!(node.read("copy") == node.read("source"));
}

#[test]
fn a_file_ends_where_its_last_byte_came_and_is_not_filled_up_to_what_was_announced() {
    // The source was cut after it was listed: at a border of leaves, inside of one, to nothing.
    for size in [3 * MIB, 3 * MIB - 5, 0] {
        let mut node = node(size, &[(0, size as usize)]);
        let movers = node.pair(&extended(1));
        let (sent, received) = node.copy(movers, all(true), storing(4 * MIB, true));
        assert_eq!(told(sent), told(received), "{size}");
        assert!(node.read("copy") == node.read("source"), "{size}");
    }
}

#[test]
fn a_file_that_ends_in_a_hole_keeps_its_size() {
    for (size, pieces) in [(8 * MIB, &[(0, 5000)][..]), (8 * MIB - 7, &[]), (1, &[])] {
        let mut node = node(size, pieces);
        let movers = node.pair(&extended(4));
        let (sent, received) = node.copy(movers, all(true), storing(size, true));
        let (sent, received) = (told(sent), told(received));
        assert_eq!(sent, received, "{size}");
        assert!(sent.0 <= 8192 + 1, "{} bytes were sent of {size}", sent.0);
        assert!(node.read("copy") == node.read("source"), "{size}");
        assert_eq!(blocks(&node, "copy"), blocks(&node, "source"), "{size}");
    }
}

#[test]
fn what_is_lost_inside_of_a_file_is_not_a_hole() {
    // What a damaged path would do: bytes that are data do not come, later ones do.
    let size = 4 * MIB;
    let mut node = node(size, &[(0, size as usize)]);
    let movers = node.pair(&extended(1));
    let missing = SendSpec { done: vec![MIB..2 * MIB], ..all(true) };
    let (_, received) = node.copy(movers, missing, storing(size, true));
    let (_, stored) = told(received);
    let [sent, _] = copy(&mut node, &extended(1), size, [true, true]);
    assert_eq!(stored.len(), 4);
    let same: Vec<bool> = stored.iter().zip(&sent.1).map(|(stored, sent)| stored == sent).collect();
    assert_eq!(same, [true, false, true, true], "nobody can take it for the source's");
}

#[test]
fn gaps_are_no_part_of_a_file_unless_that_was_agreed() {
    let size = 4 * MIB;
    let mut node = node(size, &[(0, 4096)]);
    let movers = node.pair(&extended(1));
    let (sent, received) = node.copy(movers, sending(0..size, true), storing(size, false));
    let (sent, received) = (told(sent).1, told(received).1);
    assert_ne!(sent, received, "a receiver that does not know of gaps proves only what came");
}

/// Opens `/copy` for chunks; the session.
fn open(node: &mut Node, size: u64) -> Vec<u8> {
    let mover = node.attach();
    let file = ChunkedFile { path: b"/copy".to_vec(), size, modified: None, leaves: spec(false) };
    match node.call(mover, Op::OpenChunked(file)).done() {
        Outcome::Chunked { session, storage, .. } => {
            assert!(storage.room.is_some_and(|room| room > 0), "{storage:?}");
            session
        }
        other => panic!("{other:?}"),
    }
}

fn chunk(session: &[u8], range: Range<u64>, holes: bool) -> ReceiveSpec {
    let write = WriteKind::Chunk { offset: range.start, session: session.to_vec() };
    ReceiveSpec { write, ..storing(range.end - range.start, holes) }
}

#[test]
fn a_chunk_that_goes_again_clears_what_its_holes_held() {
    let size = 4 * MIB;
    let mut node = node(size, &[(0, 5000), (size - 5000, 5000)]);
    let session = open(&mut node, size);
    // An attempt that stored something else in the middle.
    let staging = File::options().write(true).open(node.root.path().join(".copy.whimbrel-part")).unwrap();
    staging.write_all_at(&vec![7; 2 * MIB as usize], MIB).unwrap();
    let movers = node.pair(&extended(2));
    let (sent, received) = node.copy(movers, sending(0..size, true), chunk(&session, 0..size, true));
    assert_eq!(told(sent).1, told(received).1);
    assert_eq!(blocks(&node, ".copy.whimbrel-part"), blocks(&node, "source"));
}

#[test]
fn leaves_are_made_holes_and_recorded_and_the_file_is_complete_with_them() {
    let size = 8 * MIB + 5;
    let mut node = node(size, &[(0, 5000)]);
    let mover = node.attach();
    let extents = Op::Extents { path: b"/source".to_vec(), leaf: LEAF };
    let Outcome::Extents { holes, data } = node.call(mover, extents).done() else { panic!("extents") };
    assert_eq!((&holes[..], data), (&[MIB..size][..], 8192));
    let session = open(&mut node, size);
    let staging = File::options().write(true).open(node.root.path().join(".copy.whimbrel-part")).unwrap();
    staging.write_all_at(&[7; 100_000], 5 * MIB).unwrap();
    let keep = |holes: &[Range<u64>]| Op::KeepHoles {
        path: b"/copy".to_vec(),
        session: session.clone(),
        holes: holes.to_vec(),
    };
    for bad in [0..MIB / 2, MIB..size - 1, 0..size + 1] {
        node.call(mover, keep(&[bad])).fails_with(FailureKind::BadArgument);
    }
    assert!(matches!(node.call(mover, keep(&holes)).done(), Outcome::Done));
    assert!(blocks(&node, ".copy.whimbrel-part") == 0, "what was there is gone");
    let commit = Op::CommitChunked {
        path: b"/copy".to_vec(),
        session: session.clone(),
        modified: None,
        mode: None,
        expected: None,
    };
    node.call(mover, commit.clone()).fails_with(FailureKind::Unproven);
    let movers = node.pair(&extended(1));
    let (_, received) = node.copy(movers, sending(0..MIB, true), chunk(&session, 0..MIB, true));
    let leaves = told(received).1;
    let kept = Op::KeepLeaves { path: b"/copy".to_vec(), session, leaves };
    assert!(matches!(node.call(movers.1, kept).done(), Outcome::Done));
    assert!(matches!(node.call(mover, commit).done(), Outcome::Done));
    assert!(node.read("copy") == node.read("source"));
    assert_eq!(blocks(&node, "copy"), blocks(&node, "source"));
}

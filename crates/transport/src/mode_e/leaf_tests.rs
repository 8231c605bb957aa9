use super::tests::*;
use super::*;
use crate::digest::{Algorithm, Hasher};
use crate::leaves::{Digests, LeafDigest, Leaves};
use whimbrel_engine::{FaultCode, RangeSet};

/// Sends and compares what arrived and what was hashed.
#[allow(clippy::ptr_arg, reason = "a source is a vector that implements BlockSource")]
fn send_with(end: (&End, &End), leaves: Leaves, source: &Vec<u8>, ranges: &RangeSet, count: usize) -> SendReport {
    let (mut from, mut to) = connections(count);
    let sink = Memory::default();
    let digests = Digests::new(leaves, 100_000);
    let job = SendJob { digests: Some(&digests), sendfile: true, ..end.0.send_job(source, ranges) };
    let (sent, received) = transfer(&job, &end.1.receive_job(&sink), &mut from, &mut to);
    let (sent, received) = (sent.expect("sent"), received.expect("received"));
    assert_eq!((sent.bytes, received.bytes), (ranges.len(), ranges.len()));
    let stored = sink.0.into_inner().expect("lock");
    for range in ranges.as_slice() {
        let range = range.start as usize..range.end as usize;
        assert!(stored[range.clone()] == source[range]);
    }
    assert_eq!(digests.into_sorted(), expected(leaves, source, ranges), "{leaves:?} {ranges}");
    assert_eq!((end.0.pool.stats().send, from.len()), (0, count));
    sent
}

fn expected(leaves: Leaves, data: &[u8], ranges: &RangeSet) -> Vec<LeafDigest> {
    let hash = |range: &std::ops::Range<u64>| {
        let mut hasher = Hasher::for_leaf(leaves.algorithm, range.start, leaves.size);
        hasher.update(&data[range.start as usize..range.end as usize]);
        hasher.finish_hex()
    };
    leaves.cut(ranges).map(|range| LeafDigest { hex: hash(&range), range }).collect()
}

#[test]
fn every_leaf_sent_has_its_digest_whatever_its_size_and_the_number_of_channels() {
    let leaf = 128 << 10;
    let source = data(10 * leaf as usize);
    for algorithm in Algorithm::ALL.into_iter().chain([Algorithm::Blake3Tree]) {
        let leaves = Leaves { size: leaf, algorithm };
        for (channels, threads) in [(1, 1), (4, 1), (4, 3)] {
            for size in [0, 1, leaf - 1, leaf, leaf + 1, 8 * leaf + 1] {
                let (one, other) = (End::new(64, threads), End::new(64, threads));
                send_with((&one, &other), leaves, &source, &all(size as usize), channels);
            }
        }
    }
}

#[test]
fn many_threads_share_the_leaves_of_a_large_transfer() {
    let source = data(40 * MIB);
    for (algorithm, size) in [(Algorithm::Md5, 4 << 20), (Algorithm::Md5, 1 << 20), (Algorithm::Crc32c, 1 << 20)] {
        let leaves = Leaves { size, algorithm };
        for buffers in [1, 3, 64] {
            let (one, other) = (End::new(buffers, 3), End::new(64, 2));
            let ranges = ranges([7..(20 << 20), (21 << 20)..(40 << 20) - 1]);
            let sent = send_with((&one, &other), leaves, &source, &ranges, 4);
            assert_eq!(sent.threads, 3);
        }
    }
}

#[test]
fn leaves_are_hashed_all_the_same_when_the_system_has_no_threads() {
    let source = data(24 * MIB);
    let (leaves, ranges) = (Leaves { size: 1 << 20, algorithm: Algorithm::Md5 }, all(24 * MIB));
    for buffers in [1, 64] {
        let (one, other) = (End::new(buffers, 3), End::new(8, 1));
        let (mut from, mut to) = connections(4);
        let (sink, digests) = (Memory::default(), Digests::new(leaves, 1000));
        let (send_job, receive_job) = (one.send_job(&source, &ranges), other.receive_job(&sink));
        let send_job = SendJob { digests: Some(&digests), ..send_job };
        let sent = std::thread::scope(|scope| {
            let sender = scope.spawn(|| {
                crew::THREADS_LEFT.set(0);
                send(&send_job, &mut from)
            });
            receive(&receive_job, &mut to).expect("received");
            sender.join().expect("no panic")
        });
        assert_eq!(sent.expect("sent").threads, 1);
        assert_eq!(digests.into_sorted(), expected(leaves, &source, &ranges));
    }
}

#[test]
fn few_buffers_walk_fewer_leaves_but_all_of_them() {
    let source = data(3 * MIB);
    let leaves = Leaves { size: 256 << 10, algorithm: Algorithm::Md5 };
    for buffers in 1..=9 {
        let (one, other) = (End::new(buffers, 1), End::new(8, 1));
        send_with((&one, &other), leaves, &source, &all(3 * MIB), 3);
        assert!(one.pool.stats().peak <= buffers);
    }
}

#[test]
fn a_source_of_unknown_length_is_hashed_as_it_is_read() {
    let source = data(MIB + 5);
    let (one, other) = (End::new(8, 2), End::new(8, 1));
    let (mut from, mut to) = connections(2);
    let leaves = Leaves { size: 300_000, algorithm: Algorithm::Sha1 };
    let digests = Digests::new(leaves, 100);
    let (ranges, sink) = (all(0), Memory::default());
    let job = SendJob { digests: Some(&digests), amount: Amount::ToEnd(9), ..one.send_job(&source, &ranges) };
    let (sent, _) = transfer(&job, &other.receive_job(&sink), &mut from, &mut to);
    assert_eq!(sent.expect("sent").bytes, source.len() as u64 - 9);
    let whole = std::iter::once(9..source.len() as u64).collect();
    assert_eq!(digests.into_sorted(), expected(leaves, &source, &whole));
}

#[test]
fn a_source_that_is_too_short_ends_every_thread() {
    let source = data(20 * MIB);
    let leaves = Leaves { size: 1 << 20, algorithm: Algorithm::Md5 };
    for threads in [1, 4] {
        let (one, other) = (End::new(64, threads), End::new(64, 1));
        let (mut from, mut to) = connections(4);
        let (ranges, sink) = (all(30 * MIB), Memory::default());
        let digests = Digests::new(leaves, 100);
        let job = SendJob { digests: Some(&digests), ..one.send_job(&source, &ranges) };
        let (sent, received) = transfer(&job, &other.receive_job(&sink), &mut from, &mut to);
        assert_eq!(sent.expect_err("too short").code, FaultCode::SourceChanged);
        assert_eq!(received.expect_err("cut off").code, FaultCode::ConnectionLost);
        assert_eq!(one.pool.stats().send, 0);
    }
}

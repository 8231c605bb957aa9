#![allow(clippy::single_range_in_vec_init, reason = "sets of one range are meant")]
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use super::*;
use crate::cancel::Cancel;
use crate::digest::Hasher;
use crate::pool::{Class, Pool, PoolLimits};
use crate::progress::Progress;

fn data(len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect()
}

fn set<const N: usize>(ranges: [Range<u64>; N]) -> RangeSet {
    ranges.into_iter().collect()
}

fn expected(leaves: Leaves, data: &[u8], ranges: &RangeSet) -> Vec<LeafDigest> {
    let digest = |range: &Range<u64>| {
        let mut hasher = Hasher::for_leaf(leaves.algorithm, range.start, leaves.size);
        hasher.update(&data[range.start as usize..range.end as usize]);
        hasher.finish_hex()
    };
    leaves.cut(ranges).map(|range| LeafDigest { hex: digest(&range), range }).collect()
}

struct Room {
    pool: Pool,
    permits: Permits,
    progress: Progress,
    cancel: Cancel,
}

impl Room {
    fn new(buffer_size: usize, receive: usize) -> Self {
        let limits = PoolLimits { buffer_size, receive, ..PoolLimits::default() };
        Self {
            pool: Pool::new(limits).expect("pool"),
            permits: Permits::new(1),
            progress: Progress::new(),
            cancel: Cancel::new().expect("cancel"),
        }
    }

    fn read<'a>(&'a self, source: &'a dyn crate::block::BlockSource) -> ReadBack<'a> {
        let Self { pool, permits, progress, cancel } = self;
        ReadBack { source, pool, permits, progress, cancel }
    }
}

#[test]
fn leaves_are_cut_at_absolute_borders() {
    let leaves = Leaves { size: 10, algorithm: Algorithm::Md5 };
    let ranges = set([3..25, 30..31, 40..50]);
    let cut: Vec<_> = leaves.cut(&ranges).collect();
    assert_eq!(cut, [3..10, 10..20, 20..25, 30..31, 40..50]);
    assert_eq!(leaves.count(&ranges), 5);
    assert_eq!(leaves.cut(&RangeSet::new()).count(), 0);
    let huge = Leaves { size: u64::MAX, ..leaves };
    assert_eq!(huge.cut(&set([5..u64::MAX])).collect::<Vec<_>>(), [5..u64::MAX]);
}

#[test]
fn what_is_stored_has_the_digests_of_its_ranges_in_every_algorithm_and_with_any_pool() {
    let data = data(1_000_003);
    for algorithm in Algorithm::ALL.into_iter().chain([Algorithm::Blake3Tree]) {
        for (size, buffer_size, buffers) in [(16 << 10, 4096, 1), (100_000, 256 << 10, 2), (4 << 20, 65_536, 128)] {
            let leaves = Leaves { size, algorithm };
            for ranges in [set([]), set([0..1]), set([0..1_000_003]), set([5..70_000, 300_000..1_000_002])] {
                let (room, digests) = (Room::new(buffer_size, buffers), Digests::new(leaves, 1000));
                hash_stored(&room.read(&data), &ranges, &digests).expect("hashed");
                assert_eq!(digests.into_sorted(), expected(leaves, &data, &ranges), "{leaves:?} {ranges}");
                assert_eq!(room.progress.bytes(), ranges.len());
                assert_eq!(room.pool.stats().receive, 0);
            }
        }
    }
}

#[test]
fn bytes_in_order_have_the_same_digests_however_they_come() {
    let data = data(100_000);
    let ranges = set([10..40_000, 60_000..99_999]);
    let ways = [(Algorithm::Crc32c, 7000), (Algorithm::Blake3Tree, 7000), (Algorithm::Blake3Tree, 8192)];
    for ((algorithm, size), piece) in ways.into_iter().flat_map(|way| [1000, 7000, 33_333].map(|piece| (way, piece))) {
        let leaves = Leaves { size, algorithm };
        let digests = Digests::new(leaves, 1000);
        let mut in_order = InOrder::new(&digests);
        for range in ranges.as_slice() {
            let mut at = range.start;
            for part in data[range.start as usize..range.end as usize].chunks(piece) {
                in_order.feed(at, part).expect("fed");
                at += part.len() as u64;
            }
        }
        in_order.finish().expect("finished");
        assert_eq!(digests.into_sorted(), expected(leaves, &data, &ranges));
    }
}

#[test]
fn more_leaves_than_may_be_answered_are_refused() {
    let data = data(100);
    let leaves = Leaves { size: 10, algorithm: Algorithm::Md5 };
    let room = Room::new(4096, 1);
    let digests = Digests::new(leaves, 9);
    assert_eq!(digests.check(&set([0..100])).expect_err("ten").code, FaultCode::InvalidArgument);
    assert!(digests.check(&set([0..90])).is_ok());
    let fault = hash_stored(&room.read(&data), &set([0..100]), &digests).expect_err("ten");
    assert_eq!(fault.code, FaultCode::InvalidArgument);
}

#[test]
fn a_file_that_is_shorter_than_what_was_written_is_the_storages_fault() {
    let room = Room::new(4096, 1);
    let digests = Digests::new(Leaves { size: 1 << 20, algorithm: Algorithm::Md5 }, 10);
    let fault = hash_stored(&room.read(&data(50)), &set([0..51]), &digests).expect_err("too short");
    assert_eq!((fault.code, fault.side), (FaultCode::StorageIo, Some(whimbrel_engine::Side::Destination)));
    room.cancel.cancel();
    let fault = hash_stored(&room.read(&data(50)), &set([0..50]), &digests).expect_err("cancelled");
    assert_eq!(fault.code, FaultCode::Cancelled);
}

#[test]
fn no_more_work_at_once_than_there_are_permits() {
    let (permits, now, most) = (Permits::new(2), AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                for _ in 0..200 {
                    let _permit = permits.take();
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    thread::yield_now();
                    now.fetch_sub(1, Ordering::SeqCst);
                }
            });
        }
    });
    assert!((1..=2).contains(&most.into_inner()));
}

#[test]
fn reading_back_waits_for_no_sender() {
    let room = Room::new(4096, 1);
    let held: Vec<_> = std::iter::from_fn(|| room.pool.try_acquire(Class::Send).expect("no fault")).collect();
    let digests = Digests::new(Leaves { size: 1 << 20, algorithm: Algorithm::Md5 }, 10);
    hash_stored(&room.read(&data(50)), &set([0..50]), &digests).expect("hashed");
    drop(held);
}

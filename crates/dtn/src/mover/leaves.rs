//! Digests of leaves, between the control side's words and the network side's.

use whimbrel_connector::{ReadsFrom, WriteAt};
use whimbrel_engine::{Fault, FaultCode, RangeSet};
use whimbrel_proto::op::{Leaf, LeafSpec, ReadFrom};
use whimbrel_transport::leaves::{Digests, LeafDigest, Leaves, ReadBack, hash_stored};
use whimbrel_transport::{Activity, BlockSource, Cancel, Progress, Stopwatch, Times};

use super::message::MAX_FRAME;
use super::node::Node;

/// Bytes that a leaf takes in a message besides its digest, at most.
const LEAF_OVERHEAD: usize = 24;

/// Room in a message for everything but leaves.
const REST_OF_FRAME: usize = 1024;

/// Storage as it was written, for digests.
pub struct Stored<'a>(pub &'a dyn WriteAt);

impl BlockSource for Stored<'_> {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Fault> {
        self.0.read_back(offset, buffer)
    }

    fn is_past_cache(&self) -> bool {
        self.0.is_past_cache()
    }
}

/// [`Stored`], with its time counted.
struct Timed<'a> {
    writer: &'a dyn WriteAt,
    times: &'a Times,
}

impl BlockSource for Timed<'_> {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Fault> {
        self.times.timed(Activity::Storage, || self.writer.read_back(offset, buffer))
    }

    fn is_past_cache(&self) -> bool {
        self.writer.is_past_cache()
    }
}

/// What proving obeys, and where its time is counted.
#[derive(Clone, Copy)]
pub struct Proving<'a> {
    /// Reading back and making durable, and hashing.
    pub times: &'a Times,
    /// Stops it.
    pub cancel: &'a Cancel,
}

/// Where the digests that were asked for are collected; `NotSupported` for an unknown algorithm.
pub fn collector(spec: &LeafSpec) -> Result<Digests, Fault> {
    let leaves = Leaves { size: spec.size, algorithm: spec.algorithm.parse()? };
    let most = (MAX_FRAME - REST_OF_FRAME) / (leaves.algorithm.hex_len() + LEAF_OVERHEAD);
    Ok(Digests::new(leaves, most))
}

/// The fault of asking for leaves where there are none.
pub fn unsupported(why: &str) -> Fault {
    Fault::new(FaultCode::NotSupported, "hash leaves").detail(why)
}

/// As the outcome tells them.
pub fn told(digests: Vec<LeafDigest>) -> Vec<Leaf> {
    let leaf = |LeafDigest { range, hex }| Leaf { range, digest: hex };
    digests.into_iter().map(leaf).collect()
}

/// Makes what was written durable and lets memory forget it; where it will be read from.
pub fn forget(writer: &dyn WriteAt, written: &RangeSet) -> Result<ReadFrom, Fault> {
    // Without a byte the storage is asked all the same.
    let nothing = std::iter::once(0..0);
    let ranges: Vec<_> = written.as_slice().iter().cloned().chain(nothing).collect();
    ranges.into_iter().try_fold(ReadFrom::Disk, |least, range| {
        let from = match writer.drop_cached(range)? {
            ReadsFrom::Storage => ReadFrom::Disk,
            ReadsFrom::Memory => ReadFrom::Memory,
            ReadsFrom::OnlyMemory => ReadFrom::OnlyMemory,
        };
        Ok(least.max(from))
    })
}

/// Reads back what was written and tells its leaves.
pub fn read_back(
    node: &Node,
    writer: &dyn WriteAt,
    written: &RangeSet,
    spec: &LeafSpec,
    proving: &Proving<'_>,
) -> Result<Vec<Leaf>, Fault> {
    let digests = collector(spec)?;
    digests.check(written)?;
    let bytes = usize::try_from(written.len()).unwrap_or(usize::MAX);
    let (watch, progress) = (Stopwatch::start(bytes), Progress::new());
    let (source, before) = (Timed { writer, times: proving.times }, proving.times.taken().storage);
    let job = ReadBack {
        source: &source,
        pool: &node.pool,
        permits: &node.hashing,
        progress: &progress,
        cancel: proving.cancel,
    };
    hash_stored(&job, written, &digests)?;
    let reading = proving.times.taken().storage - before;
    proving.times.add_hashing(watch.elapsed().without(reading));
    Ok(told(digests.into_sorted()))
}

//! Digests of leaves, between the control side's words and the network side's.

use whimbrel_connector::WriteAt;
use whimbrel_engine::{Fault, FaultCode, RangeSet};
use whimbrel_proto::op::{Leaf, LeafSpec};
use whimbrel_transport::leaves::{Digests, LeafDigest, Leaves, ReadBack, hash_stored};
use whimbrel_transport::{BlockSource, Cancel, Progress};

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
pub fn told(digests: Digests) -> Vec<Leaf> {
    let leaf = |LeafDigest { range, hex }| Leaf { range, digest: hex };
    digests.into_sorted().into_iter().map(leaf).collect()
}

/// Reads back what was written and tells its leaves.
pub fn read_back(
    node: &Node,
    writer: &dyn WriteAt,
    written: &RangeSet,
    spec: &LeafSpec,
    cancel: &Cancel,
) -> Result<Vec<Leaf>, Fault> {
    let digests = collector(spec)?;
    digests.check(written)?;
    let (source, progress) = (Stored(writer), Progress::new());
    let job = ReadBack { source: &source, pool: &node.pool, permits: &node.hashing, progress: &progress, cancel };
    hash_stored(&job, written, &digests)?;
    Ok(told(digests))
}

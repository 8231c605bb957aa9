//! What the digests of both ends say of a part.

use std::collections::HashMap;
use std::ops::Range;

use whimbrel_engine::{Fault, FaultCode, RangeSet, Side};
use whimbrel_proto::leaf;
use whimbrel_proto::op::Leaf;

/// What a comparison of digests says of one part.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Leaves whose digests agree.
    pub proven: Vec<Leaf>,
    /// Ranges whose digests differ.
    pub wrong: RangeSet,
}

impl Compared {
    /// What is there of a part that nothing is compared of.
    pub fn arrived(part: &Range<u64>, leaf: u64) -> Self {
        let one = |range| Leaf { range, digest: leaf::NONE_DIGEST.to_owned() };
        Self { proven: leaf::cut(part, leaf).map(one).collect(), wrong: RangeSet::new() }
    }

    /// What is proven, as ranges.
    pub fn ranges(&self) -> RangeSet {
        self.proven.iter().map(|leaf| leaf.range.clone()).collect()
    }
}

/// Compares the digests of both ends for a part.
///
/// # Errors
/// `PeerMisbehaved` when an end did not tell a digest for each leaf.
pub fn compare(part: &Range<u64>, leaf: u64, source: &[Leaf], destination: &[Leaf]) -> Result<Compared, Fault> {
    let mut result = Compared::default();
    for range in leaf::cut(part, leaf) {
        let sent = told(source, &range, Side::Source)?;
        let stored = told(destination, &range, Side::Destination)?;
        if sent.digest.eq_ignore_ascii_case(&stored.digest) {
            result.proven.push(stored.clone());
        } else {
            tracing::warn!(?range, sent = sent.digest, stored = stored.digest, "a leaf differs");
            result.wrong.insert(range);
        }
    }
    Ok(result)
}

fn told<'a>(leaves: &'a [Leaf], range: &Range<u64>, side: Side) -> Result<&'a Leaf, Fault> {
    leaves.iter().find(|leaf| leaf.range == *range).ok_or_else(|| {
        Fault::new(FaultCode::PeerMisbehaved, "verify")
            .side(side)
            .detail(format!("no digest of bytes {} to {}", range.start, range.end))
    })
}

/// The leaves that agree, whatever of them was told.
pub fn agreeing(source: &[Leaf], destination: &[Leaf]) -> RangeSet {
    let stored: HashMap<u64, &Leaf> = destination.iter().map(|leaf| (leaf.range.start, leaf)).collect();
    let same = |leaf: &&Leaf| stored.get(&leaf.range.start) == Some(leaf);
    source.iter().filter(same).map(|leaf| leaf.range.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(range: Range<u64>, digest: &str) -> Leaf {
        Leaf { range, digest: digest.into() }
    }

    #[test]
    fn a_leaf_is_proven_only_by_equal_digests_of_the_same_range() {
        let source = [leaf(0..10, "aa"), leaf(10..15, "bb")];
        let stored = [leaf(0..10, "AA"), leaf(10..15, "bc")];
        let compared = compare(&(0..15), 10, &source, &stored).unwrap();
        assert_eq!(compared.ranges(), RangeSet::from(0..10));
        assert_eq!(compared.wrong, RangeSet::from(10..15));
        let fault = compare(&(0..15), 10, &source, &stored[..1]).unwrap_err();
        assert_eq!((fault.code, fault.side), (FaultCode::PeerMisbehaved, Some(Side::Destination)));
        let shifted = [leaf(0..9, "aa"), leaf(10..15, "bb")];
        assert!(compare(&(0..15), 10, &shifted, &stored).is_err());
    }
}

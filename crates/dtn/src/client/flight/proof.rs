//! What both ends have told of the bytes of an attempt, and whether it proves the copy.

use whimbrel_engine::plan::Item;
use whimbrel_engine::progress::{ReadBack, Verification};
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::op::{Leaf, ReadFrom};

use crate::client::checksum::SharedChecksum;
use crate::client::pair::Role;

/// How a copy is proven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proof {
    /// The algorithm.
    pub checksum: SharedChecksum,
    /// Whether both ends tell digests in the replies of the transfer itself; otherwise they are asked afterwards (CKSM).
    pub in_reply: bool,
}

/// What one end has told.
#[derive(Debug, Default)]
pub struct Digests {
    /// Its checksum.
    pub sum: Option<String>,
    /// Digests of leaves, in the order in which they came.
    pub leaves: Vec<Leaf>,
}

/// What both ends have told.
#[derive(Debug)]
pub struct Evidence {
    /// How it is to prove the copy, or why nothing does.
    pub proof: Result<Proof, Verification>,
    /// By the source.
    pub source: Digests,
    /// By the destination.
    pub destination: Digests,
    /// Where the destination says it read what it proved; `None`: it was not asked.
    read_back: Option<ReadBack>,
    /// Why an end computes no checksum after all.
    no_sums: Option<String>,
}

impl Evidence {
    /// Nothing yet; `past_memory`: the destination was asked to read back past its memory.
    pub fn new(proof: Result<Proof, Verification>, past_memory: bool) -> Self {
        let read_back = past_memory.then_some(ReadBack::Unknown);
        Self { proof, source: Digests::default(), destination: Digests::default(), read_back, no_sums: None }
    }

    /// What an end has told.
    pub fn of(&mut self, role: Role) -> &mut Digests {
        match role {
            Role::Source => &mut self.source,
            Role::Destination => &mut self.destination,
        }
    }

    /// Takes the digests in the final reply of a transfer.
    pub fn replied(&mut self, role: Role, leaves: Vec<Leaf>, from: Option<ReadFrom>) {
        if let (Role::Destination, Some(read_back)) = (role, &mut self.read_back) {
            *read_back = match from {
                Some(ReadFrom::Disk) => ReadBack::Disk,
                Some(ReadFrom::Memory) => ReadBack::Memory,
                Some(ReadFrom::OnlyMemory) => ReadBack::MemoryOnly,
                None => ReadBack::Unknown,
            };
        }
        self.of(role).leaves.extend(leaves);
    }

    /// An end that offers checksums has refused to compute this one.
    pub fn refused(&mut self, detail: String) {
        self.no_sums = Some(detail);
    }

    /// The destination has stored what it was told to compare with the source's checksum.
    pub fn vouched(&mut self) {
        self.destination.sum.clone_from(&self.source.sum);
    }

    /// Whether both checksums came and agree.
    pub fn sums_agree(&self) -> bool {
        self.source.sum.is_some() && self.source.sum == self.destination.sum
    }

    /// What proves a file whose leaves were compared one by one.
    pub fn proven(&self) -> Verification {
        match &self.proof {
            Ok(proof) => self.verified(&proof.checksum),
            Err(why) => why.clone(),
        }
    }

    /// Whether a whole file is proven, once everything is answered.
    ///
    /// # Errors
    /// `ChecksumMismatch` when the ends disagree.
    pub fn verdict(&self, item: &Item) -> Result<Verification, Fault> {
        let proof = match &self.proof {
            Ok(proof) => proof,
            Err(why) => return Ok(why.clone()),
        };
        let unverified = |reason: String| Ok(Verification::Unverified { reason });
        let agree = if proof.in_reply { self.leaves_agree(item.size) } else { self.compare_sums() };
        match agree {
            Ok(true) => Ok(self.verified(&proof.checksum)),
            Ok(false) if proof.in_reply => unverified("digests were not delivered".to_owned()),
            Ok(false) => unverified(match &self.no_sums {
                Some(detail) => format!("no checksum: {detail}"),
                None => "a checksum was not delivered".to_owned(),
            }),
            Err(text) => Err(Fault::new(FaultCode::ChecksumMismatch, "verify")
                .on_path(&item.destination)
                .side(Side::Destination)
                .detail(format!("{} at the source {text}", proof.checksum.display()))),
        }
    }

    /// How many bytes of a whole file the leaves of both ends tell of, if these are fewer than were listed.
    pub fn cut_short(&self, item: &Item) -> Option<u64> {
        let listed = item.size.filter(|_| item.range.is_none())?;
        let stored = self.source.leaves.last()?.range.end;
        (stored < listed).then_some(stored)
    }

    fn verified(&self, checksum: &SharedChecksum) -> Verification {
        let (algorithm, read_back) = (checksum.display(), self.read_back);
        Verification::Verified { algorithm, read_back, sums: Vec::new() }
    }

    /// Whether both checksums are there and agree; `Err`: how they differ.
    fn compare_sums(&self) -> Result<bool, String> {
        match (&self.source.sum, &self.destination.sum) {
            (Some(source), Some(destination)) if source == destination => Ok(true),
            (Some(source), Some(destination)) => Err(format!("{source}, at the destination {destination}")),
            _ => Ok(false),
        }
    }

    /// Whether the digests in both replies cover the file and agree; `Err`: how the first ones differ.
    fn leaves_agree(&self, size: Option<u64>) -> Result<bool, String> {
        let (source, destination) = (&self.source.leaves, &self.destination.leaves);
        for (sent, stored) in source.iter().zip(destination) {
            if sent != stored {
                let at = |leaf: &Leaf| format!("{} of bytes {} to {}", leaf.digest, leaf.range.start, leaf.range.end);
                return Err(format!("{}, at the destination {}", at(sent), at(stored)));
            }
        }
        let bytes = |leaves: &[Leaf]| leaves.last().map_or(0, |last| last.range.end);
        if source.len() != destination.len() {
            return Err(format!("is of {} bytes, at the destination of {}", bytes(source), bytes(destination)));
        }
        // Only an empty file has no leaves.
        Ok(!source.is_empty() || size == Some(0))
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_engine::transfer::Work;

    use super::super::fixtures::{checksum, job, leaf};
    use super::*;

    fn evidence(in_reply: bool) -> Evidence {
        Evidence::new(Ok(Proof { checksum: checksum(), in_reply }), false)
    }

    fn item() -> Item {
        job(Work::Copy).item
    }

    fn reason(verdict: Result<Verification, Fault>) -> String {
        match verdict {
            Ok(Verification::Unverified { reason }) => reason,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn checksums_prove_a_copy_only_when_both_came_and_agree() {
        let mut evidence = evidence(false);
        assert_eq!(reason(evidence.verdict(&item())), "a checksum was not delivered");
        evidence.source.sum = Some("aa".into());
        assert!(!evidence.sums_agree());
        evidence.destination.sum = Some("ab".into());
        let fault = evidence.verdict(&item()).unwrap_err();
        assert_eq!((fault.code, fault.side), (FaultCode::ChecksumMismatch, Some(Side::Destination)));
        assert_eq!(fault.detail, "md5 at the source aa, at the destination ab");
        evidence.vouched();
        assert!(evidence.sums_agree());
        assert_eq!(evidence.verdict(&item()).unwrap(), Verification::by("md5"));
    }

    #[test]
    fn a_checksum_that_is_refused_is_told_as_the_reason() {
        let mut evidence = evidence(false);
        evidence.refused("500 no".into());
        assert_eq!(reason(evidence.verdict(&item())), "no checksum: 500 no");
    }

    #[test]
    fn leaves_prove_a_copy_only_when_all_of_both_ends_agree() {
        let mut evidence = evidence(true);
        assert_eq!(reason(evidence.verdict(&item())), "digests were not delivered");
        evidence.replied(Role::Source, vec![leaf(0, b"a"), leaf(1, b"b")], None);
        evidence.replied(Role::Destination, vec![leaf(0, b"a")], None);
        let fault = evidence.verdict(&item()).unwrap_err();
        assert_eq!(fault.detail, "md5 at the source is of 2000 bytes, at the destination of 1000");
        evidence.replied(Role::Destination, vec![leaf(1, b"b")], None);
        assert_eq!(evidence.verdict(&item()).unwrap(), Verification::by("md5"));
        evidence.destination.leaves[1] = leaf(1, b"c");
        assert!(evidence.verdict(&item()).unwrap_err().detail.contains("of bytes 1000 to 2000, at the destination"));
    }

    #[test]
    fn leaves_tell_that_a_file_was_cut_short_of_what_was_listed() {
        let mut evidence = evidence(true);
        assert_eq!(evidence.cut_short(&item()), None, "nothing was told");
        evidence.replied(Role::Source, vec![leaf(0, b"a"), leaf(1, b"b")], None);
        assert_eq!(evidence.cut_short(&item()), Some(2000));
        let part = Item { range: Some(0..3000), size: Some(3000), ..item() };
        assert_eq!(evidence.cut_short(&part), None, "of a part only its own size is known");
        evidence.replied(Role::Source, vec![leaf(2, b"c")], None);
        assert_eq!(evidence.cut_short(&item()), None);
    }

    #[test]
    fn only_an_empty_file_is_proven_by_no_leaves() {
        let empty = Item { size: Some(0), ..item() };
        assert_eq!(evidence(true).verdict(&empty).unwrap(), Verification::by("md5"));
        let unknown = Item { size: None, ..item() };
        assert_eq!(reason(evidence(true).verdict(&unknown)), "digests were not delivered");
    }

    #[test]
    fn where_the_destination_read_is_told_only_if_it_was_asked() {
        let read_back = |past_memory, from| {
            let mut evidence = Evidence::new(Ok(Proof { checksum: checksum(), in_reply: true }), past_memory);
            evidence.replied(Role::Source, Vec::new(), Some(ReadFrom::Memory));
            evidence.replied(Role::Destination, Vec::new(), from);
            match evidence.proven() {
                Verification::Verified { read_back, .. } => read_back,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(read_back(false, Some(ReadFrom::Disk)), None);
        assert_eq!(read_back(true, Some(ReadFrom::Disk)), Some(ReadBack::Disk));
        assert_eq!(read_back(true, None), Some(ReadBack::Unknown));
    }

    #[test]
    fn what_was_not_to_be_proven_is_not() {
        let evidence = Evidence::new(Err(Verification::NotAsked), false);
        assert_eq!(evidence.verdict(&item()).unwrap(), Verification::NotAsked);
        assert_eq!(evidence.proven(), Verification::NotAsked);
    }
}

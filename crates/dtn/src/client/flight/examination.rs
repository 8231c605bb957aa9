//! What an earlier run left under a temporary name at a server that keeps no journal, and how it is examined.

use std::collections::BTreeMap;
use std::ops::Range;

use whimbrel_engine::transfer::Job;
use whimbrel_proto::op::Leaf;

use super::order::Order;
use crate::client::checksum::SharedChecksum;
use crate::client::chunk;
use crate::client::sidecar;

/// How far the examination of a temporary file is.
#[derive(Debug, Default)]
pub enum Examination {
    /// Nothing is known to be there.
    #[default]
    Nothing,
    /// So many bytes are there.
    Found(u64),
    /// What is kept beside it is read, to be used with this checksum.
    Reading {
        /// Bytes that are there.
        found: u64,
        /// What examines it.
        checksum: SharedChecksum,
    },
    /// Both ends are asked for its leaves, as far as none are claimed.
    Comparing {
        /// What examines it.
        checksum: SharedChecksum,
        /// What the sidecar says the source has, by where it begins; not yet believed.
        claims: BTreeMap<u64, Leaf>,
        /// Whether there is a sidecar.
        has_sidecar: bool,
    },
    /// It cannot be examined, and nothing of it counts.
    Worthless,
}

impl Examination {
    /// So many bytes of a temporary file are there.
    pub fn found(&mut self, size: u64) {
        if matches!(self, Self::Nothing) {
            *self = Self::Found(size);
        }
    }

    /// Whether a sidecar is being read, for which nothing is asked of the ends.
    pub fn is_reading(&self) -> bool {
        matches!(self, Self::Reading { .. })
    }

    /// Whether something may be kept beside the file; until that was read, it may be.
    pub fn may_have_sidecar(&self) -> bool {
        match self {
            Self::Nothing | Self::Found(_) => false,
            Self::Reading { .. } | Self::Worthless => true,
            Self::Comparing { has_sidecar, .. } => *has_sidecar,
        }
    }

    /// What is kept beside the file is known (`None`: nothing): what both ends are asked for.
    pub fn claimed(&mut self, job: &Job, name: &[u8], leaf: u64, bytes: Option<&[u8]>) -> Vec<Order> {
        let Self::Reading { found, checksum } = self else { return Vec::new() };
        let (found, checksum) = (*found, checksum.clone());
        let (mut claims, mut orders) = (BTreeMap::new(), Vec::new());
        if let Some(part) = chunk::examinable(job, leaf, found)
            && let Some(header) = sidecar::header(job, &checksum, leaf)
        {
            claims = by_start(sidecar::claims(bytes.unwrap_or_default(), &header, part.clone()));
            tracing::debug!(found, claims = claims.len(), "an unfinished copy is there");
            orders = chunk::examine(job, name, &checksum, leaf, &part, &claims);
        }
        *self = Self::Comparing { checksum, claims, has_sidecar: bytes.is_some() };
        orders
    }

    /// The source has told a leaf. If that is not what was claimed, the sidecar is about another source of the same size and
    /// time: the source is asked for all that was claimed.
    pub fn source_told(&mut self, job: &Job, range: &Range<u64>, digest: &str) -> Vec<Order> {
        match self {
            Self::Comparing { checksum, claims, .. }
                if claims.get(&range.start).is_some_and(|claim| claim.digest != digest) =>
            {
                tracing::warn!("what is kept beside the unfinished file is about another source");
                chunk::ask_source(job, checksum, &std::mem::take(claims))
            }
            _ => Vec::new(),
        }
    }

    /// What is claimed of the source and was not contradicted.
    pub fn take_claims(&mut self) -> impl Iterator<Item = Leaf> {
        let claims = match self {
            Self::Comparing { claims, .. } => std::mem::take(claims),
            _ => BTreeMap::new(),
        };
        claims.into_values()
    }
}

fn by_start(leaves: Vec<Leaf>) -> BTreeMap<u64, Leaf> {
    leaves.into_iter().map(|leaf| (leaf.range.start, leaf)).collect()
}

#[cfg(test)]
mod tests {
    use whimbrel_engine::journal;
    use whimbrel_engine::transfer::Work;

    use super::super::fixtures::{LEAF, checksum, job, leaf};
    use super::super::order::Purpose;
    use super::*;
    use crate::client::pair::Role;
    use crate::journaled::records;

    const NAME: &[u8] = b"/d/.f.whimbrel";

    fn open() -> Job {
        job(Work::Open { leaf: LEAF })
    }

    fn reading(found: u64) -> Examination {
        Examination::Reading { found, checksum: checksum() }
    }

    fn sidecar_of(leaves: &[Leaf]) -> Vec<u8> {
        let header = sidecar::header(&open(), &checksum(), LEAF).unwrap();
        [journal::encode_header(&header).unwrap(), records(&header, leaves).unwrap()].concat()
    }

    fn asked(orders: &[Order], role: Role) -> Vec<u64> {
        let start = |order: &Order| match order.purpose {
            Purpose::Leaf { start, .. } => start,
            other => panic!("{other:?}"),
        };
        orders.iter().filter(|order| order.role == role).map(start).collect()
    }

    fn all_claimed() -> (Examination, Vec<Order>) {
        let bytes = sidecar_of(&[leaf(0, b"a"), leaf(1, b"b"), leaf(2, b"c")]);
        let mut examination = reading(2 * LEAF + 500);
        let orders = examination.claimed(&open(), NAME, LEAF, Some(&bytes));
        (examination, orders)
    }

    #[test]
    fn what_is_found_is_found_once() {
        let mut examination = Examination::default();
        assert!(!examination.may_have_sidecar());
        examination.found(5);
        examination.found(6);
        assert!(matches!(examination, Examination::Found(5)));
        assert!(!examination.is_reading() && reading(5).is_reading());
    }

    #[test]
    fn the_source_is_asked_only_for_the_ends_of_what_is_claimed() {
        let (examination, orders) = all_claimed();
        assert_eq!(asked(&orders, Role::Destination), [0, LEAF, 2 * LEAF]);
        assert_eq!(asked(&orders, Role::Source), [0, 2 * LEAF]);
        assert!(examination.may_have_sidecar() && !examination.is_reading());
    }

    #[test]
    fn without_a_sidecar_both_ends_are_asked_for_all_whole_leaves() {
        let mut examination = reading(LEAF + 1);
        let orders = examination.claimed(&open(), NAME, LEAF, None);
        assert_eq!((asked(&orders, Role::Destination), asked(&orders, Role::Source)), (vec![0], vec![0]));
        assert!(!examination.may_have_sidecar());
        assert_eq!(examination.take_claims().count(), 0);
    }

    #[test]
    fn a_source_that_contradicts_one_claim_is_asked_for_all() {
        let (mut examination, _) = all_claimed();
        let first = leaf(0, b"a");
        assert!(examination.source_told(&open(), &first.range, &first.digest).is_empty());
        let other = leaf(2, b"x");
        let orders = examination.source_told(&open(), &other.range, &other.digest);
        assert_eq!(asked(&orders, Role::Source), [0, LEAF, 2 * LEAF]);
        assert!(examination.source_told(&open(), &other.range, &other.digest).is_empty(), "asked for already");
        assert_eq!(examination.take_claims().count(), 0, "nothing of it is believed");
    }

    #[test]
    fn claims_are_of_use_only_behind_the_reading() {
        let mut worthless = Examination::Worthless;
        assert!(worthless.claimed(&open(), NAME, LEAF, Some(&sidecar_of(&[leaf(0, b"a")]))).is_empty());
        assert!(matches!(worthless, Examination::Worthless));
        for mut examination in [Examination::Nothing, Examination::Found(1), reading(1), Examination::Worthless] {
            assert!(examination.source_told(&open(), &(0..LEAF), "00").is_empty());
            assert_eq!(examination.take_claims().count(), 0);
        }
    }
}

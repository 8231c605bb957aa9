//! What an earlier run left under a temporary name at a server that keeps no journal, and how it is examined.

use std::collections::BTreeMap;
use std::ops::Range;

use whimbrel_engine::transfer::Job;
use whimbrel_proto::op::Leaf;

use super::order::Order;
use crate::client::checksum::SharedChecksum;
use crate::client::chunk;
use crate::client::sidecar::{self, Found};

/// How far the examination of a temporary file is.
#[derive(Debug, Default)]
pub enum Examination {
    /// Nobody has looked.
    #[default]
    Unknown,
    /// It is looked for, over another session.
    Seeking,
    /// Nothing is there.
    Nothing,
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
    /// Whether it is looked for, for which nothing is asked of the ends.
    pub fn is_seeking(&self) -> bool {
        matches!(self, Self::Seeking)
    }

    /// Whether something may be kept beside the file; until that was read, it may be.
    pub fn may_have_sidecar(&self) -> bool {
        match self {
            Self::Unknown | Self::Nothing => false,
            Self::Seeking | Self::Worthless => true,
            Self::Comparing { has_sidecar, .. } => *has_sidecar,
        }
    }

    /// It is known what is there (`None`: nothing): what the ends are asked for. Without a `checksum` nothing of it counts.
    pub fn sought(
        &mut self,
        job: &Job,
        name: &[u8],
        leaf: u64,
        found: Option<&Found>,
        checksum: Option<SharedChecksum>,
    ) -> Vec<Order> {
        if !self.is_seeking() {
            return Vec::new();
        }
        let Some(found) = found else {
            *self = Self::Nothing;
            return Vec::new();
        };
        *self = Self::Worthless;
        let Some(part) = chunk::examinable(job, leaf, found.size) else { return vec![chunk::remove(name)] };
        let header = checksum.as_ref().and_then(|checksum| sidecar::header(job, checksum, leaf));
        let Some((checksum, header)) = checksum.zip(header).filter(|_| !part.is_empty()) else { return Vec::new() };
        // Where no time is known, any file of that size may be what the sidecar is about.
        let bytes = found.kept.as_deref().filter(|_| job.item.modified.is_some()).unwrap_or_default();
        let claims = by_start(sidecar::claims(bytes, &header, part.clone()));
        tracing::debug!(found = found.size, claims = claims.len(), "an unfinished copy is there");
        let orders = chunk::examine(job, name, &checksum, leaf, &part, &claims);
        *self = Self::Comparing { checksum, claims, has_sidecar: found.kept.is_some() };
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
                chunk::ask_source(job, checksum, std::mem::take(claims).values())
            }
            _ => Vec::new(),
        }
    }

    /// The source does not tell a leaf that was claimed: nothing of it is believed.
    pub fn source_refused(&mut self) {
        self.take_claims().for_each(drop);
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
    use whimbrel_engine::listing::Timestamp;
    use whimbrel_engine::transfer::Work;

    use super::super::fixtures::{LEAF, SIZE, checksum, job, leaf};
    use super::super::order::Purpose;
    use super::*;
    use crate::client::pair::Role;
    use crate::journaled::records;

    const NAME: &[u8] = b"/d/.f.whimbrel";

    fn undated() -> Job {
        job(Work::Open { leaf: LEAF })
    }

    fn open() -> Job {
        let mut job = undated();
        job.item.modified = Some(Timestamp { secs: 7, nanos: 0 });
        job
    }

    /// So many bytes were found, and so much is kept beside them.
    fn sought(job: &Job, size: u64, kept: Option<Vec<u8>>) -> (Examination, Vec<Order>) {
        let mut examination = Examination::Seeking;
        let found = Found { size, unique: None, kept };
        let orders = examination.sought(job, NAME, LEAF, Some(&found), Some(checksum()));
        (examination, orders)
    }

    fn sidecar_of(job: &Job, leaves: &[Leaf]) -> Vec<u8> {
        let header = sidecar::header(job, &checksum(), LEAF).unwrap();
        [journal::encode_header(&header).unwrap(), records(&header, leaves, journal::Writer::ONLY).unwrap()].concat()
    }

    fn asked(orders: &[Order], role: Role) -> Vec<u64> {
        let start = |order: &Order| match order.purpose {
            Purpose::Leaf { start, .. } => start,
            other => panic!("{other:?}"),
        };
        orders.iter().filter(|order| order.role == role).map(start).collect()
    }

    fn all_claimed_of(job: &Job) -> (Examination, Vec<Order>) {
        sought(job, SIZE, Some(sidecar_of(job, &[leaf(0, b"a"), leaf(1, b"b"), leaf(2, b"c")])))
    }

    fn all_claimed() -> (Examination, Vec<Order>) {
        all_claimed_of(&open())
    }

    #[test]
    fn what_nobody_left_is_not_examined() {
        let mut examination = Examination::default();
        assert!(!examination.may_have_sidecar() && !examination.is_seeking());
        let found = Found { size: LEAF, ..Found::default() };
        let asked = examination.sought(&open(), NAME, LEAF, Some(&found), Some(checksum()));
        assert!(asked.is_empty() && matches!(examination, Examination::Unknown), "nobody looked");
        let mut examination = Examination::Seeking;
        assert!(examination.sought(&open(), NAME, LEAF, None, Some(checksum())).is_empty());
        assert!(matches!(examination, Examination::Nothing) && !examination.may_have_sidecar());
    }

    #[test]
    fn what_cannot_be_examined_counts_for_nothing_and_what_is_too_long_is_removed() {
        let (longer, orders) = sought(&open(), SIZE + 1, None);
        assert!(matches!(longer, Examination::Worthless));
        assert!(matches!(&orders[..], [Order { purpose: Purpose::Make, .. }]));
        let (less, orders) = sought(&open(), LEAF - 1, None);
        assert!(matches!(less, Examination::Worthless) && orders.is_empty());
        let mut without = Examination::Seeking;
        let found = Found { size: LEAF, ..Found::default() };
        assert!(without.sought(&open(), NAME, LEAF, Some(&found), None).is_empty());
        assert!(matches!(without, Examination::Worthless));
    }

    #[test]
    fn the_source_is_asked_only_for_the_ends_of_what_is_claimed() {
        let (examination, orders) = all_claimed();
        assert_eq!(asked(&orders, Role::Destination), [0, LEAF, 2 * LEAF]);
        assert_eq!(asked(&orders, Role::Source), [0, 2 * LEAF]);
        assert!(examination.may_have_sidecar() && !examination.is_seeking());
    }

    #[test]
    fn where_the_source_tells_no_time_it_is_asked_for_all_that_is_claimed() {
        let (mut examination, orders) = all_claimed_of(&undated());
        for role in [Role::Source, Role::Destination] {
            assert_eq!(asked(&orders, role), [0, LEAF, 2 * LEAF], "{role:?}");
        }
        assert_eq!(examination.take_claims().count(), 0, "another file of that size may have been meant");
    }

    #[test]
    fn without_a_sidecar_both_ends_are_asked_for_all_whole_leaves() {
        let (mut examination, orders) = sought(&open(), LEAF + 1, None);
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
        for mut examination in
            [Examination::Unknown, Examination::Seeking, Examination::Nothing, Examination::Worthless]
        {
            assert!(examination.source_told(&open(), &(0..LEAF), "00").is_empty());
            assert_eq!(examination.take_claims().count(), 0);
        }
    }

    #[test]
    fn a_source_that_refuses_to_confirm_a_claim_confirms_none() {
        let (mut examination, _) = all_claimed();
        examination.source_refused();
        assert_eq!(examination.take_claims().count(), 0);
    }
}

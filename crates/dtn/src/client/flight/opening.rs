//! The opening of a file that moves in chunks: where its unfinished copy is, what of it is proven, and its holes.

use std::ops::Range;

use whimbrel_engine::transfer::{Job, Opening};
use whimbrel_engine::{Fault, FaultCode, RangeSet, Side};
use whimbrel_proto::op::{Leaf, Outcome, StorageFacts};

use super::examination::Examination;
use super::occupant::Occupant;
use super::order::Order;
use super::proof::Evidence;
use crate::client::checksum::SharedChecksum;
use crate::client::chunk::{self, OpenFile, Unfinished};

/// Where the unfinished copy is.
#[derive(Debug)]
pub enum Place {
    /// A server of ours has it, and was asked.
    Asked,
    /// A server of ours has it, and calls it so.
    Session(Vec<u8>),
    /// A server of another kind has it.
    Temporary {
        /// Its name there.
        name: Vec<u8>,
        /// What has the final name.
        occupant: Occupant,
        /// What an earlier run left.
        examination: Examination,
    },
}

/// What is known of a file while it is opened.
#[derive(Debug)]
pub struct OpenStep {
    /// Where the unfinished copy is.
    pub place: Place,
    /// What is known of holes.
    pub holes: HolesFound,
    /// What earlier runs proved.
    pub earlier: Vec<Leaf>,
    /// Bytes that earlier runs proved of what is not this source, and that were thrown away.
    pub discarded: u64,
    /// Which file has the temporary name.
    pub unique: Option<String>,
    /// Whether what a server of ours has kept is the source's.
    origin: Origin,
    /// The copy that this run has written to before.
    own: Option<Box<OpenFile>>,
}

/// Whether what a server of ours has kept is of this source: its journal tells size and time, which another file may share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Origin {
    /// Nobody has asked.
    #[default]
    Unknown,
    /// The source is asked for the digests of some of it.
    Asked,
    /// It is, or there is nothing.
    Known,
}

/// What is known of the holes of a file that is opened for chunks.
#[derive(Debug, Default)]
pub struct HolesFound {
    /// Runs of whole leaves that are holes at the source, and its bytes of data.
    pub source: Option<(Vec<Range<u64>>, u64)>,
    /// Why the destination cannot keep them.
    pub refused: Option<String>,
    /// What an earlier run has made holes at the destination.
    kept: RangeSet,
    /// What the destination was told to make holes now.
    told: RangeSet,
    /// What the destination's storage says of itself.
    storage: StorageFacts,
}

impl OpenStep {
    /// Nothing is answered yet; `temporary`: the name at a server that keeps no unfinished files.
    pub fn new(temporary: Option<Vec<u8>>) -> Self {
        let (occupant, examination) = (Occupant::default(), Examination::default());
        let place = temporary.map_or(Place::Asked, |name| Place::Temporary { name, occupant, examination });
        Self {
            place,
            holes: HolesFound::default(),
            earlier: Vec::new(),
            discarded: 0,
            unique: None,
            origin: Origin::default(),
            own: None,
        }
    }

    /// A server of ours has made or found the unfinished copy.
    pub fn opened(&mut self, outcome: Outcome) {
        if let Outcome::Chunked { session, verified, holes, storage, discarded } = outcome {
            // Another run may have thrown the copy away, and filled another of the same size and time.
            let is_own = self.own.as_ref().is_some_and(|own| own.has_proven(&session, &verified));
            self.origin = if is_own { Origin::Known } else { Origin::Unknown };
            self.place = Place::Session(session);
            self.earlier = verified;
            self.discarded += discarded;
            self.holes.kept = holes.into_iter().collect();
            self.holes.storage = storage;
        }
    }

    /// This run has opened the file before: what it proved in the same copy is its own.
    pub fn is_of_this_run(&mut self, own: OpenFile) {
        self.own = Some(Box::new(own));
    }

    /// What tells whether that is of this source, once everything asked is answered: the source's own digests of the first and
    /// the last leaf, among those it has `told`. What is not of it, or what nothing tells from another file's, is thrown away,
    /// and the file opened anew.
    pub fn confirm(&mut self, job: &Job, leaf: u64, checksum: Option<&SharedChecksum>, told: &[Leaf]) -> Vec<Order> {
        let Place::Session(session) = &self.place else { return Vec::new() };
        let origin = std::mem::replace(&mut self.origin, Origin::Known);
        let ends = [self.earlier.first(), self.earlier.get(1..).and_then(<[_]>::last)];
        let mut ends = ends.into_iter().flatten();
        let is_other = match origin {
            // Holes are nobody's: another run may have told some in the same copy.
            Origin::Known => self.holes.are_others(),
            Origin::Unknown if self.earlier.is_empty() && self.holes.kept.is_empty() => false,
            Origin::Unknown => job.item.modified.is_none() || self.holes.are_others(),
            Origin::Asked => !ends.clone().all(|leaf| told.contains(leaf)),
        };
        if is_other {
            self.discarded += self.earlier.iter().map(|leaf| leaf.range.end - leaf.range.start).sum::<u64>();
            tracing::warn!("what was kept of the file is of another source, or may be: it begins anew");
            return vec![chunk::discard(job, session), chunk::open_here(job, checksum, leaf)];
        }
        // Whatever the algorithm: a source that does not compute one of leaves only refuses, which confirms nothing.
        let Some(checksum) = checksum.filter(|_| origin == Origin::Unknown) else { return Vec::new() };
        let orders = chunk::ask_source(job, checksum, &mut ends);
        if !orders.is_empty() {
            self.origin = Origin::Asked;
        }
        orders
    }

    /// The examination of a temporary file.
    pub fn examination(&mut self) -> Option<&mut Examination> {
        match &mut self.place {
            Place::Temporary { examination, .. } => Some(examination),
            Place::Asked | Place::Session(_) => None,
        }
    }

    /// The operation that removes what this run may have left under a temporary name although nothing was found there: the
    /// session that looked for it may have been lost. Nothing of it counts, but what lies behind the file's end would get the
    /// file's name.
    pub fn unseen(&self) -> Option<Order> {
        match &self.place {
            Place::Temporary { name, examination: Examination::Nothing, .. } if self.own.is_some() => {
                Some(chunk::remove(name))
            }
            _ => None,
        }
    }

    /// What has the final name, where a rename would replace it.
    pub fn occupant(&self) -> Occupant {
        match self.place {
            Place::Temporary { occupant, .. } => occupant,
            Place::Asked | Place::Session(_) => Occupant::Replaceable,
        }
    }

    /// Whether something may be kept beside a temporary file.
    pub fn may_have_sidecar(&self) -> bool {
        matches!(&self.place, Place::Temporary { examination, .. } if examination.may_have_sidecar())
    }

    /// Trusts the examined leaves of a temporary file that agree.
    pub fn trust_agreeing(&mut self, evidence: &mut Evidence) {
        let Some(examination) = self.examination() else { return };
        evidence.source.leaves.extend(examination.take_claims());
        let agreeing = chunk::agreeing(&evidence.source.leaves, &evidence.destination.leaves);
        let same = |leaf: &&Leaf| agreeing.covers(leaf.range.clone());
        self.earlier.extend(evidence.destination.leaves.iter().filter(same).cloned());
    }

    /// Where the unfinished copy is; `None`: its server has not told.
    pub fn unfinished(&self) -> Option<Unfinished> {
        match &self.place {
            Place::Asked => None,
            Place::Session(session) => Some(Unfinished::Session(session.clone())),
            Place::Temporary { name, .. } => Some(Unfinished::Temporary(name.clone())),
        }
    }

    /// Why nothing need be moved: there is no room for the source's data. `capable`: both ends leave holes out; else they are
    /// stored as zeros.
    pub fn no_room(&self, job: &Job, capable: bool) -> Option<Fault> {
        let keeps = capable && self.holes.refused.is_none();
        let data = self.holes.source.as_ref().filter(|_| keeps).map(|(_, data)| *data);
        let (stored, room) = data.or(job.item.size).zip(self.holes.storage.room)?;
        (stored > room).then(|| {
            let fault = Fault::new(FaultCode::NoSpace, "open for chunks").on_path(&job.item.destination);
            let detail = format!("{stored} bytes to store, room for {room}; nothing was moved");
            fault.side(Side::Destination).detail(detail)
        })
    }

    /// The operations that tell the destination what need not come; none if it was told before.
    pub fn tell_holes(&mut self, job: &Job) -> Vec<Order> {
        let holes = self.holes.to_tell();
        let Place::Session(session) = &self.place else { return Vec::new() };
        if holes.is_empty() || !self.holes.told.is_empty() {
            return Vec::new();
        }
        let orders = chunk::keep_holes(job, session, holes.as_slice());
        self.holes.told = holes;
        orders
    }
}

impl HolesFound {
    /// The holes that the destination has not made yet.
    fn to_tell(&self) -> RangeSet {
        let mut rest: RangeSet = self.source.iter().flat_map(|(holes, _)| holes).cloned().collect();
        rest.subtract(&self.kept);
        rest
    }

    /// Whether something was made a hole that is none at the source, as far as it tells.
    fn are_others(&self) -> bool {
        let holes: RangeSet = self.source.iter().flat_map(|(holes, _)| holes).cloned().collect();
        self.kept.as_slice().iter().any(|kept| !holes.covers(kept.clone()))
    }

    /// Whether some of `kept` bytes of holes lie within leaves that have data, too: no part with such a leaf can be reserved.
    pub fn has_within(&self, kept: u64) -> bool {
        let whole: u64 = self.source.iter().flat_map(|(holes, _)| holes).map(|hole| hole.end - hole.start).sum();
        kept > whole
    }

    /// As the transfer machine is told; `capable`: both ends leave holes out.
    pub fn opening(&self, size: u64, capable: bool) -> Opening {
        let bytes = self.source.as_ref().map_or(0, |(_, data)| size.saturating_sub(*data));
        let mut holes = self.kept.clone();
        if self.refused.is_none() {
            holes.union_with(&self.told);
        }
        let keeps = capable && self.refused.is_none();
        let (kept, filled) = if keeps { (bytes, 0) } else { (0, bytes) };
        Opening { holes, kept, filled, stripe: self.storage.stripe, discarded: 0 }
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_engine::listing::Timestamp;
    use whimbrel_engine::plan::Item;
    use whimbrel_engine::progress::Verification;
    use whimbrel_engine::transfer::Work;
    use whimbrel_proto::op::Op;

    use super::super::fixtures::{LEAF, SIZE, checksum, job, leaf, manner};
    use super::super::order::{Manner, Purpose};
    use super::super::proof::Proof;
    use super::super::{Flight, Step};
    use super::*;
    use crate::client::pair::Role;

    fn chunked(holes: Vec<Range<u64>>, room: Option<u64>) -> Outcome {
        let storage = StorageFacts { room, ..StorageFacts::default() };
        let (session, verified) = (b"7".to_vec(), vec![leaf(0, b"a")]);
        Outcome::Chunked { session, verified, holes, storage, discarded: 0 }
    }

    fn at_ours(holes: Vec<Range<u64>>, room: Option<u64>) -> OpenStep {
        let mut step = OpenStep::new(None);
        step.opened(chunked(holes, room));
        step
    }

    /// A copy that this run has opened before, and what it proved there.
    fn own(session: &[u8], proven: Leaf) -> OpenFile {
        OpenFile::new(Unfinished::Session(session.to_vec()), Some(checksum()), LEAF, vec![proven], false)
    }

    fn open() -> Job {
        job(Work::Open { leaf: LEAF })
    }

    fn evidence() -> Evidence {
        Evidence::new(Err(Verification::NotAsked), false)
    }

    #[test]
    fn the_copy_of_a_server_of_ours_has_no_place_before_it_is_told() {
        assert_eq!(OpenStep::new(None).unfinished(), None);
        let step = at_ours(Vec::new(), None);
        assert_eq!(step.unfinished(), Some(Unfinished::Session(b"7".to_vec())));
        assert_eq!(step.earlier, [leaf(0, b"a")]);
    }

    #[test]
    fn only_a_temporary_file_is_examined_or_replaces_something() {
        let mut ours = at_ours(Vec::new(), None);
        assert!(ours.examination().is_none() && !ours.may_have_sidecar());
        assert_eq!(ours.occupant(), Occupant::Replaceable);
        let mut other = OpenStep::new(Some(b"/d/.f.whimbrel".to_vec()));
        *other.examination().unwrap() = Examination::Worthless;
        assert!(other.may_have_sidecar());
    }

    #[test]
    fn of_a_temporary_file_what_both_ends_tell_alike_is_trusted() {
        let mut step = OpenStep::new(Some(b"/d/.f.whimbrel".to_vec()));
        let mut evidence = evidence();
        evidence.source.leaves = vec![leaf(0, b"a"), leaf(1, b"b")];
        evidence.destination.leaves = vec![leaf(0, b"a"), leaf(1, b"x"), leaf(2, b"c")];
        step.trust_agreeing(&mut evidence);
        assert_eq!(step.earlier, [leaf(0, b"a")]);
    }

    #[test]
    fn a_server_of_ours_is_believed_what_it_has_proven() {
        let mut step = at_ours(Vec::new(), None);
        step.trust_agreeing(&mut evidence());
        assert_eq!(step.earlier, [leaf(0, b"a")]);
    }

    #[test]
    fn holes_are_told_once_and_only_those_that_are_not_made() {
        let mut step = at_ours(RangeSet::from(0..LEAF).as_slice().to_vec(), None);
        assert!(step.tell_holes(&open()).is_empty(), "the source has told none");
        step.holes.source = Some((RangeSet::from(0..2 * LEAF).as_slice().to_vec(), 300));
        assert_eq!(step.tell_holes(&open()).len(), 1);
        assert!(step.tell_holes(&open()).is_empty());
        let found = step.holes.opening(SIZE, true);
        assert_eq!((found.holes, found.kept, found.filled), (RangeSet::from(0..2 * LEAF), 2 * LEAF, 0));
        assert!(!step.holes.has_within(found.kept) && step.holes.has_within(found.kept + 1));
        step.holes.refused = Some("no holes here".into());
        let found = step.holes.opening(SIZE, true);
        assert_eq!((found.holes, found.kept, found.filled), (RangeSet::from(0..LEAF), 0, 2 * LEAF));
    }

    #[test]
    fn a_full_storage_is_a_fault_before_anything_moves() {
        let code = |step: &OpenStep, capable| step.no_room(&open(), capable).map(|fault| fault.code);
        let mut step = at_ours(Vec::new(), Some(499));
        assert_eq!(code(&step, true), Some(FaultCode::NoSpace), "a source that tells no holes sends all");
        step.holes.source = Some((Vec::new(), 500));
        assert_eq!(code(&step, true), Some(FaultCode::NoSpace));
        step.holes.source = Some((Vec::new(), 499));
        assert_eq!(code(&step, true), None);
        assert_eq!(code(&step, false), Some(FaultCode::NoSpace), "holes come as zeros");
        step.holes.refused = Some("no holes here".into());
        assert_eq!(code(&step, true), Some(FaultCode::NoSpace));
        assert_eq!(code(&at_ours(Vec::new(), Some(SIZE)), true), None);
        let unknown = Job { item: Item { size: None, ..open().item }, ..open() };
        assert!(step.no_room(&unknown, false).is_none(), "nobody knows how much comes");
    }

    fn dated() -> Job {
        let mut job = open();
        job.item.modified = Some(Timestamp { secs: 7, nanos: 0 });
        job
    }

    fn purposes(orders: &[Order]) -> Vec<Purpose> {
        orders.iter().map(|order| order.purpose).collect()
    }

    const ANEW: [Purpose; 2] = [Purpose::Make, Purpose::Open];

    #[test]
    fn what_was_kept_counts_only_if_the_source_has_its_first_and_last_leaf() {
        let kept = [leaf(0, b"a"), leaf(1, b"b"), leaf(2, b"c")];
        let asked = [0, 2].map(|index| {
            let range = leaf(index, b"").range;
            Purpose::Leaf { start: range.start, end: range.end }
        });
        let told = |leaves: &[Leaf]| {
            let mut step = at_ours(Vec::new(), None);
            step.earlier = kept.to_vec();
            let first = step.confirm(&dated(), LEAF, Some(&checksum()), &[]);
            assert_eq!(purposes(&first), asked);
            assert!(first.iter().all(|order| order.role == Role::Source));
            let then = step.confirm(&dated(), LEAF, Some(&checksum()), leaves);
            let known = step.confirm(&dated(), LEAF, Some(&checksum()), &[]);
            assert!(known.is_empty(), "it is asked once");
            purposes(&then)
        };
        assert_eq!(told(&[leaf(0, b"a"), leaf(2, b"c")]), []);
        assert_eq!(told(&[leaf(0, b"a"), leaf(2, b"x")]), ANEW, "another file of the same size and time");
        assert_eq!(told(&[leaf(2, b"c")]), ANEW, "one that it refused to tell");
    }

    #[test]
    fn a_source_that_refuses_the_digests_of_leaves_only_confirms_nothing_and_the_file_begins_anew() {
        let tree = || SharedChecksum { source: "BLAKE3-TREE".into(), destination: "BLAKE3_TREE".into() };
        let manner = Manner { proof: Ok(Proof { checksum: tree(), in_reply: true }), ..manner() };
        let mut flight = Flight::new(dated(), &manner, Step::Open(at_ours(Vec::new(), None)));
        let confirm = |flight: &mut Flight| {
            let Step::Open(step) = &mut flight.step else { panic!("it was opened") };
            step.confirm(&flight.job, LEAF, Some(&tree()), &flight.evidence.source.leaves)
        };
        let asked = confirm(&mut flight);
        let [Order { role: Role::Source, purpose, op: Op::Checksum { algorithm, .. } }] = &asked[..] else {
            panic!("the source is not asked: {asked:?}");
        };
        assert_eq!(algorithm, "BLAKE3-TREE");
        let fault = Fault::new(FaultCode::NotSupported, "checksum").side(Side::Source);
        flight.answer(Role::Source, *purpose, Err(fault));
        assert!(flight.failure.is_none(), "its parts can be moved all the same");
        assert_eq!(purposes(&confirm(&mut flight)), ANEW);
    }

    #[test]
    fn what_this_run_opens_again_is_its_own_only_as_far_as_it_proved_it_in_the_same_copy() {
        let asks = |before: OpenFile| {
            let mut step = OpenStep::new(None);
            step.is_of_this_run(before);
            step.opened(chunked(Vec::new(), None));
            !step.confirm(&dated(), LEAF, Some(&checksum()), &[]).is_empty()
        };
        assert!(!asks(own(b"7", leaf(0, b"a"))));
        assert!(asks(own(b"8", leaf(0, b"a"))), "another run has thrown that copy away, and filled this one");
        assert!(asks(own(b"7", leaf(0, b"b"))) && asks(own(b"7", leaf(1, b"a"))), "another run has proven it here");
        let unanswered = own(b"7", leaf(1, b"a"));
        unanswered.keeps(&[leaf(0, b"a")]);
        assert!(!asks(unanswered.clone()), "the answer was lost, the leaf was not");
        unanswered.kept(&[leaf(0, b"a")]);
        assert!(!asks(unanswered), "it was answered");
    }

    #[test]
    fn holes_that_another_run_told_in_this_runs_own_copy_are_not_taken_for_the_sources() {
        let begins_anew = |kept: Range<u64>| {
            let mut step = OpenStep::new(None);
            step.is_of_this_run(own(b"7", leaf(0, b"a")));
            step.opened(chunked(RangeSet::from(kept).as_slice().to_vec(), None));
            step.holes.source = Some((RangeSet::from(LEAF..2 * LEAF).as_slice().to_vec(), SIZE - LEAF));
            !step.confirm(&dated(), LEAF, Some(&checksum()), &[]).is_empty()
        };
        assert!(!begins_anew(LEAF..2 * LEAF), "the source has it");
        assert!(begins_anew(2 * LEAF..SIZE));
    }

    #[test]
    fn what_nothing_tells_from_another_file_begins_anew() {
        let confirm = |step: &mut OpenStep, job: &Job| purposes(&step.confirm(job, LEAF, None, &[]));
        assert_eq!(confirm(&mut at_ours(Vec::new(), None), &open()), ANEW, "nobody knows when it was changed");
        assert_eq!(confirm(&mut at_ours(Vec::new(), None), &dated()), []);
        let mut ours = OpenStep::new(None);
        ours.is_of_this_run(own(b"7", leaf(0, b"a")));
        ours.opened(chunked(Vec::new(), None));
        assert_eq!(confirm(&mut ours, &open()), []);
        let mut nothing = at_ours(Vec::new(), None);
        nothing.earlier.clear();
        assert_eq!(confirm(&mut nothing, &open()), []);
        let mut holes = at_ours(Vec::new(), None);
        holes.holes.kept = RangeSet::from(0..LEAF);
        assert_eq!(confirm(&mut holes, &dated()), ANEW, "the source has no such hole");
    }
}

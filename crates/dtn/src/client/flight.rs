//! One attempt in the air: what was asked of the two ends for it, and what came back.

mod examination;
mod occupant;
mod opening;
mod order;
mod orders;
mod proof;
mod step;
mod transfer;

#[cfg(test)]
pub(super) mod fixtures;
#[cfg(test)]
mod step_tests;

use std::collections::VecDeque;

use whimbrel_engine::plan::Item;
use whimbrel_engine::progress::{ReadBack, Verification};
use whimbrel_engine::transfer::{Job, Work};
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::op::{Leaf, Notice, Op, OpId, Outcome};

use self::transfer::Transfer;
use super::chunk::{self, OpenFile};
use super::end::End;
use super::facts;
use super::pair::Role;
use super::whole::Whole;

pub use self::examination::Examination;
pub use self::occupant::Occupant;
pub use self::opening::{OpenStep, Place};
pub use self::order::{Given, Manner, Named, Order, Purpose};
pub use self::orders::{
    attribute_orders, hash_markers, is_told_in_reply, naming_orders, orders, target_order, version_order,
};
pub use self::proof::{Evidence, Proof};
pub use self::step::{ChunkStep, CommitStep, CopyNaming, CopyStep, Step};
pub use self::transfer::Store;

/// One attempt in the air.
#[derive(Debug)]
pub struct Flight {
    /// The order.
    pub job: Job,
    /// What kind of attempt it is.
    pub step: Step,
    /// What both ends have told of its bytes.
    pub evidence: Evidence,
    /// Its bytes on their way.
    pub transfer: Transfer,
    /// The digests of the whole file that are wanted, and what waits for them.
    pub whole: Option<Box<Whole>>,
    /// Whether bytes of another file would get no name, and be noticed, if they were taken for this one's.
    pub is_safe: bool,
    /// Operations that are to be submitted as others are answered: a server takes only so many ahead.
    pub to_ask: VecDeque<Order>,
    /// Operations not answered yet.
    pub waiting: Vec<(Role, OpId, Purpose)>,
    /// First thing that went wrong, a refusal before a broken connection.
    pub failure: Option<(Purpose, Fault)>,
}

impl Flight {
    /// An attempt before its operations are submitted.
    pub fn new(job: Job, manner: &Manner, step: Step) -> Self {
        Self {
            evidence: Evidence::new(manner.proof.clone(), manner.past_memory),
            transfer: Transfer::new(&job.received, orders::window(&job)),
            is_safe: manner.is_safe(chunk::is_step(&job)),
            job,
            step,
            whole: None,
            to_ask: VecDeque::new(),
            waiting: Vec::new(),
            failure: None,
        }
    }

    /// Takes an answer; the operation is no longer waited for.
    pub fn answer(&mut self, role: Role, purpose: Purpose, result: Result<Outcome, Fault>) {
        match result {
            Ok(outcome) => self.done(role, purpose, outcome),
            Err(fault) => self.refused(purpose, fault),
        }
    }

    fn done(&mut self, role: Role, purpose: Purpose, outcome: Outcome) {
        match (purpose, outcome, &mut self.step) {
            (Purpose::Store | Purpose::Send, outcome, _) => self.moved(role, purpose, outcome),
            (Purpose::Leaf { start, end }, Outcome::Checksum(digest), _) => {
                self.take_leaf(role, Leaf { range: start..end, digest });
            }
            (Purpose::SourceSum, Outcome::Checksum(sum), _) => self.evidence.source.sum = Some(sum),
            (Purpose::DestinationSum, Outcome::Checksum(sum), _) => self.evidence.destination.sum = Some(sum),
            (Purpose::FileSum(index), Outcome::Checksum(sum), _) => {
                if let Some(whole) = &mut self.whole {
                    whole.take(index, sum);
                }
            }
            (Purpose::CommitAhead, _, Step::Chunk(step)) => step.name_answered(true),
            (Purpose::Target, Outcome::Line(line), step) => step.occupied(Occupant::described(&line)),
            (Purpose::Found, Outcome::Size(size), step) => step.found(size),
            (Purpose::Open, outcome, Step::Open(step)) => step.opened(outcome),
            (Purpose::Extents, Outcome::Extents { holes, data }, Step::Open(step)) => {
                step.holes.source = Some((holes, data));
            }
            (Purpose::Version, Outcome::Line(line), _) => self.check_version(&line),
            (Purpose::Length, Outcome::Size(size), _) => self.check_length(size),
            (Purpose::Identity, Outcome::Line(line), step) => {
                let unique = facts::described(&line, false).and_then(|object| object.unique);
                step.file().into_iter().for_each(|file| file.identify(unique.clone()));
            }
            _ => {}
        }
    }

    fn refused(&mut self, purpose: Purpose, fault: Fault) {
        if purpose == Purpose::Store {
            self.transfer.store_failed(&fault);
        }
        let fault = self.lost(purpose, self.of_the_right_file(purpose, fault));
        let unsupported = fault.code == FaultCode::NotSupported;
        match (purpose, &mut self.step) {
            (Purpose::CommitAhead, Step::Chunk(step)) => step.name_answered(false),
            // Nothing has that name, or nothing that could be trusted, or the server does not describe files. A source that
            // cannot tell its holes is moved as it reads; what is wrong with it, its reading will say.
            (Purpose::Target | Purpose::Found | Purpose::Extents, _) if !fault.is_temporary() => {}
            // Another run has taken it over, under whose eyes this one seemed to be no more.
            (Purpose::Identity, step) if fault.code == FaultCode::NotFound => {
                step.file().into_iter().for_each(OpenFile::suspect);
            }
            // It counts for nothing, and is measured in the end.
            (Purpose::Make, Step::Open(step)) if step.unseen().is_some() => {}
            // What the server does not tell, nobody knows.
            (Purpose::Identity | Purpose::Length, _) => {}
            (Purpose::Leaf { .. }, Step::Open(step)) => {
                if fault.side != Some(Side::Destination) {
                    step.examination().into_iter().for_each(Examination::source_refused);
                }
            }
            (Purpose::KeepHoles, Step::Open(step)) if unsupported => step.holes.refused = Some(fault.detail),
            // A server that does not describe files.
            (Purpose::Version, _) if unsupported => {}
            (Purpose::SourceSum | Purpose::DestinationSum, Step::Copy(_)) if unsupported => {
                self.evidence.refused(fault.detail);
            }
            (Purpose::Make, Step::MakeDirectory { existed }) if fault.code == FaultCode::AlreadyExists => {
                *existed = true;
            }
            (Purpose::TellApart, Step::TellApart { is_same }) if fault.code == FaultCode::AlreadyExists => {
                *is_same = true;
            }
            // Only what is said of the item's own name tells something.
            (Purpose::Trial, _) if !fault.is_temporary() => {}
            // A link is made beside nothing: what is there, which may be this link from a run that could not tell of it, goes
            // first. Directories do not go so.
            (Purpose::Make, Step::Link { replaces: replaces @ false }) if fault.code == FaultCode::AlreadyExists => {
                *replaces = true;
                let remove = Order::destination(Purpose::Make, Op::Delete(self.job.item.destination.clone()));
                self.to_ask.extend([vec![remove], orders::link_orders(&self.job)].concat());
            }
            // The end of a transfer that was stopped because the other end had failed.
            _ if fault.code == FaultCode::Cancelled && self.failure.is_some() => {}
            _ => self.fail(purpose, fault),
        }
    }

    /// A destination that tells of a change while bytes come speaks of the source; while it reads, of what was stored.
    fn of_the_right_file(&self, purpose: Purpose, fault: Fault) -> Fault {
        if fault.code != FaultCode::SourceChanged || fault.side != Some(Side::Destination) {
            return fault;
        }
        if purpose.moves_data() {
            return fault.on_path(&self.job.item.source).side(Side::Source);
        }
        self.not_alone("what was stored was written to while it was read")
    }

    /// Somebody else has a hand in what was stored.
    fn not_alone(&self, how: &str) -> Fault {
        let fault = Fault::new(FaultCode::StorageBusy, "verify").on_path(&self.job.item.destination);
        fault.side(Side::Destination).detail(how)
    }

    /// What was stored under a temporary name and is gone was taken or removed by another run: it is moved again.
    fn lost(&self, purpose: Purpose, fault: Fault) -> Fault {
        let is_whole = matches!(self.step, Step::Copy(_));
        let reads = match purpose {
            Purpose::Leaf { .. } => matches!(self.step, Step::Chunk(_)),
            Purpose::DestinationSum | Purpose::Commit => is_whole,
            _ => false,
        };
        let gone = fault.code == FaultCode::NotFound && fault.side == Some(Side::Destination);
        if !reads || !gone || self.unfinished_name().is_none() {
            return fault;
        }
        self.file().into_iter().for_each(OpenFile::suspect);
        self.not_alone("what was stored is gone: another run has taken it over, or it was removed")
    }

    /// An end has finished its half of the transfer: what its final reply tells.
    fn moved(&mut self, role: Role, purpose: Purpose, outcome: Outcome) {
        if purpose == Purpose::Store {
            self.transfer.stored();
            if matches!(&self.step, Step::Copy(CopyStep { naming: CopyNaming::Vouched, .. })) {
                self.evidence.vouched();
            }
        }
        match (outcome, &mut self.step) {
            (Outcome::Transferred { leaves, read_from, .. }, _) => self.evidence.replied(role, leaves, read_from),
            (Outcome::Packed(fates), Step::Pack(pack)) => match role {
                Role::Source => pack.sent = fates,
                Role::Destination => pack.stored = fates,
            },
            _ => {}
        }
    }

    fn take_leaf(&mut self, role: Role, leaf: Leaf) {
        if let (Role::Source, Step::Open(step)) = (role, &mut self.step)
            && let Some(examination) = step.examination()
        {
            self.to_ask.extend(examination.source_told(&self.job, &leaf.range, &leaf.digest));
        }
        self.evidence.of(role).leaves.push(leaf);
    }

    /// Whether the source is still what was listed: chunks of two versions make no file.
    fn check_version(&mut self, line: &[u8]) {
        let item = &self.job.item;
        let Some(object) = facts::described(line, false) else { return };
        // Of a part of a file only its own size was listed, and of a device none.
        let is_told = object.size.is_some() && item.size.is_some() && item.range.is_none();
        let same_size = object.size == item.size || !is_told;
        let same_time = object.modified == item.modified || object.modified.is_none() || item.modified.is_none();
        if !(same_size && same_time) {
            let fault = Fault::new(FaultCode::SourceChanged, "read").on_path(&item.source).side(Side::Source);
            self.fail(Purpose::Version, fault);
        }
    }

    /// Whether as much was stored as was listed: a server that sends less ends its transfer as well as any other.
    fn check_length(&mut self, stored: u64) {
        let item = &self.job.item;
        let Some(size) = item.size.filter(|size| *size != stored) else { return };
        if let Some(file) = self.step.file() {
            // All of it is proven: what is too much would get the name along with it.
            file.suspect();
            self.to_ask.clear();
            self.fail(Purpose::Length, chunk::astray(&self.job));
        } else {
            let fault = another_length(item, size, stored);
            self.fail(Purpose::Length, fault);
        }
    }

    /// The operations with which the end of a file in chunks begins: `naming` is what gives it its name, behind the digests of
    /// the `whole` file if any are wanted. A temporary file is measured before.
    pub fn name_by(&mut self, naming: Vec<Order>, whole: Option<Whole>) -> Vec<Order> {
        let Step::Commit(CommitStep::Asked { file, .. }) = &self.step else { return naming };
        match (chunk::measure(file), whole) {
            (measure, Some(mut whole)) => {
                whole.name_later(naming);
                self.whole = Some(Box::new(whole));
                measure.into_iter().collect()
            }
            (Some(measure), None) => {
                self.to_ask = naming.into();
                vec![measure]
            }
            (None, None) => naming,
        }
    }

    /// Whether nothing is waited for any more.
    pub fn is_answered(&self) -> bool {
        self.waiting.is_empty() && self.to_ask.is_empty() && !self.step.is_reading()
    }

    /// The operations that move a file whose source's checksum has come; none if it did not, or nobody waited for it.
    pub fn go_ahead(&mut self) -> Vec<Order> {
        match &mut self.step {
            Step::Copy(step) => step.go_ahead(&self.job, &self.evidence),
            _ => Vec::new(),
        }
    }

    /// The operations of the next step of a whole file that is moved and, if that is `required`, proven; `None`: there is
    /// none.
    pub fn next_step(&mut self, destination: &End, required: bool) -> Option<Result<Vec<Order>, Fault>> {
        self.whole.as_ref()?;
        let required = required || self.is_wanted();
        let proven = match (&self.job.work, self.verdict()) {
            (Work::Copy, Ok(Verification::Verified { .. })) => true,
            (Work::Copy, Ok(_)) => !required,
            (Work::Copy, Err(_)) => false,
            _ => true,
        };
        let readable = self.unfinished_name().map(<[u8]>::to_vec);
        let replaceable = !self.step.occupant().is_written_to();
        let whole = self.whole.as_deref_mut().filter(|_| proven && replaceable)?;
        if let Ok(Proof { checksum, in_reply }) = &self.evidence.proof {
            let (stored, size) = (&self.evidence.destination, self.job.item.size);
            match self.step.file() {
                Some(file) => whole.take_leaves(checksum, file.proven.borrow().values(), size, file.leaf),
                None if *in_reply => {
                    whole.take_leaves(checksum, stored.leaves.iter(), size, orders::leaf_of_whole(size));
                }
                None => whole.take_proof(checksum, stored.sum.as_ref()),
            }
        }
        whole.next(&self.job, readable.as_deref(), destination)
    }

    /// Whether a digest of the whole file is wanted, without which it is no copy.
    pub fn is_wanted(&self) -> bool {
        self.whole.as_ref().is_some_and(|whole| whole.is_wanted())
    }

    /// The file it is a part of, when it moves in chunks.
    pub fn file(&self) -> Option<&OpenFile> {
        self.step.file()
    }

    /// The temporary name that the bytes of a whole file go to.
    pub fn temporary(&self) -> Option<&[u8]> {
        match &self.step {
            Step::Copy(step) => step.temporary(),
            _ => None,
        }
    }

    /// The same of any file: of one in chunks, if its destination keeps no unfinished files.
    pub fn unfinished_name(&self) -> Option<&[u8]> {
        self.file().map_or_else(|| self.temporary(), OpenFile::temporary)
    }

    /// Where the bytes go: the final name, or a temporary one.
    pub fn target(&self) -> &[u8] {
        self.temporary().unwrap_or(&self.job.item.destination)
    }

    /// Compares the leaves of a part, once everything about it is answered; false when there is nothing to compare, or not
    /// any more.
    pub fn compare(&mut self) -> bool {
        let (Step::Chunk(step), Some(part)) = (&mut self.step, chunk::part(&self.job)) else { return false };
        match step.compare(part, &self.evidence) {
            Ok(compared) => compared,
            Err(fault) => {
                self.fail(Purpose::Version, fault);
                false
            }
        }
    }

    /// Records what went wrong: the end that refused tells more than the connection that broke for it, and of the source its
    /// own end more than the one that waited for its bytes.
    pub fn fail(&mut self, purpose: Purpose, fault: Fault) {
        let tells = |purpose: Purpose, fault: &Fault| match (purpose, fault.code, fault.side) {
            (Purpose::Store, FaultCode::SourceChanged, _) => 0,
            (_, _, Some(Side::Network)) => 1,
            _ => 2,
        };
        let told_more = |(told, earlier): &(Purpose, Fault)| tells(purpose, &fault) > tells(*told, earlier);
        // Checksums of a transfer that failed prove nothing, their refusals neither.
        let transfer = purpose.moves_data();
        if self.failure.as_ref().is_none_or(|earlier| transfer && told_more(earlier)) {
            self.failure = Some((purpose, fault));
        }
    }

    /// Whether the transfer itself failed: the data connections can no longer be trusted.
    pub fn transfer_failed(&self) -> bool {
        self.failure.as_ref().is_some_and(|(purpose, _)| purpose.moves_data())
    }

    /// Whether the transfer's own operations are still open.
    pub fn transfer_open(&self) -> bool {
        self.waiting.iter().any(|(_, _, purpose)| purpose.moves_data())
    }

    /// Takes news; says whether progress is worth reporting.
    pub fn notice(&mut self, purpose: Purpose, notice: &Notice) -> bool {
        let in_chunks = self.step.file().is_some();
        self.transfer.notice(purpose, notice, in_chunks)
    }

    /// Whether the copy is proven, once everything is answered.
    ///
    /// # Errors
    /// `ChecksumMismatch`; `SourceChanged` when less came than was listed.
    pub fn verdict(&self) -> Result<Verification, Fault> {
        let item = &self.job.item;
        let verification = self.evidence.verdict(item)?;
        // Leaves of an attempt that goes on tell only of what was missing.
        let fewer = self.evidence.cut_short(item).filter(|_| self.job.received.is_empty());
        match (item.size, fewer) {
            (Some(listed), Some(stored)) => Err(another_length(item, listed, stored)),
            _ => Ok(self.with_sums(verification)),
        }
    }

    /// What proves a file that moved in chunks.
    pub fn proven(&self) -> Verification {
        match self.with_sums(self.evidence.proven()) {
            Verification::Verified { algorithm, read_back: Some(_), sums } if self.job.work == Work::Commit => {
                // This step reads nothing: its chunks have told, those of earlier runs cannot.
                let earlier = self.file().is_some_and(|file| file.earlier);
                Verification::Verified { algorithm, read_back: earlier.then_some(ReadBack::Earlier), sums }
            }
            other => other,
        }
    }

    /// As it is told in the end, with the digests of the whole file.
    fn with_sums(&self, verification: Verification) -> Verification {
        match verification {
            Verification::Verified { algorithm, read_back, .. } => {
                let sums = self.whole.as_ref().map(|whole| whole.told()).unwrap_or_default();
                Verification::Verified { algorithm, read_back, sums }
            }
            other => other,
        }
    }
}

/// The source is no longer as long as was listed.
fn another_length(item: &Item, listed: u64, stored: u64) -> Fault {
    let fault = Fault::new(FaultCode::SourceChanged, "read").on_path(&item.source).side(Side::Source);
    fault.detail(format!("{listed} bytes were listed, {stored} came"))
}

#[cfg(test)]
mod tests {
    use whimbrel_engine::RangeSet;

    use super::fixtures::{LEAF, checksum, job, leaf, manner, open_file};
    use super::*;
    use crate::client::chunk::Unfinished;

    fn flight(work: Work) -> Flight {
        let (job, manner) = (job(work), manner());
        let step = Step::alone(&job, &manner);
        Flight::new(job, &manner, step)
    }

    fn fault(code: FaultCode, side: Side) -> Fault {
        Fault::new(code, "test").side(side)
    }

    fn failed(flight: &Flight) -> Option<(Purpose, FaultCode)> {
        flight.failure.as_ref().map(|(purpose, fault)| (*purpose, fault.code))
    }

    #[test]
    fn a_refusal_tells_more_than_the_connection_that_broke_for_it() {
        let mut flight = flight(Work::Copy);
        flight.answer(Role::Source, Purpose::Send, Err(fault(FaultCode::ConnectionLost, Side::Network)));
        flight.answer(Role::Destination, Purpose::Store, Err(fault(FaultCode::NoSpace, Side::Destination)));
        assert_eq!(failed(&flight), Some((Purpose::Store, FaultCode::NoSpace)));
        assert_eq!(flight.transfer.store(), Store::Refused);
        flight.answer(Role::Source, Purpose::SourceSum, Err(fault(FaultCode::NotFound, Side::Source)));
        assert_eq!(failed(&flight), Some((Purpose::Store, FaultCode::NoSpace)), "a checksum of it proves nothing");
    }

    #[test]
    fn what_a_destination_says_of_the_source_is_about_the_source_which_knows_more() {
        let changed = || Err(fault(FaultCode::SourceChanged, Side::Destination));
        let lost = || Err(fault(FaultCode::ConnectionLost, Side::Network));
        let told = |answers: Vec<(Role, Purpose, Result<Outcome, Fault>)>| {
            let mut flight = flight(Work::Copy);
            answers.into_iter().for_each(|(role, purpose, result)| flight.answer(role, purpose, result));
            let (purpose, fault) = flight.failure.expect("an end refused");
            (purpose, fault.code, fault.side.unwrap(), fault.subject.as_bytes() == flight.job.item.source)
        };
        let (store, send) = ((Role::Destination, Purpose::Store), (Role::Source, Purpose::Send));
        let hearsay = (Purpose::Store, FaultCode::SourceChanged, Side::Source, true);
        assert_eq!(told(vec![(store.0, store.1, changed())]), hearsay);
        // A sender that was cut off has not changed.
        let cut = (Purpose::Send, FaultCode::ConnectionLost, Side::Network, false);
        assert_eq!(told(vec![(store.0, store.1, changed()), (send.0, send.1, lost())]), cut);
        assert_eq!(told(vec![(send.0, send.1, lost()), (store.0, store.1, changed())]), cut);
        let stored = (Purpose::DestinationSum, FaultCode::StorageBusy, Side::Destination, false);
        assert_eq!(told(vec![(Role::Destination, Purpose::DestinationSum, changed())]), stored);
    }

    #[test]
    fn a_directory_that_is_there_counts_as_made_and_what_has_a_links_name_is_replaced_once() {
        let exists = || Err(fault(FaultCode::AlreadyExists, Side::Destination));
        let mut directory = flight(Work::MakeDirectory);
        directory.answer(Role::Destination, Purpose::Make, exists());
        assert!(matches!(directory.step, Step::MakeDirectory { existed: true }) && directory.failure.is_none());
        let mut link = flight(Work::Symlink { target: b"x".to_vec() });
        link.answer(Role::Destination, Purpose::Make, exists());
        let asked: Vec<_> = link.to_ask.drain(..).map(|order| order.op).collect();
        assert!(matches!(&asked[..], [Op::Delete(path), Op::Symlink { link, .. }] if path == link), "{asked:?}");
        assert!(link.failure.is_none());
        link.answer(Role::Destination, Purpose::Make, exists());
        assert_eq!(failed(&link), Some((Purpose::Make, FaultCode::AlreadyExists)));
    }

    #[test]
    fn names_are_the_same_where_the_last_exists_once_the_others_are_made() {
        let answered = |purpose, code| {
            let mut flight = flight(Work::TellApart);
            flight.answer(Role::Destination, purpose, Err(fault(code, Side::Destination)));
            let Step::TellApart { is_same } = flight.step else { panic!("{:?}", flight.step) };
            (is_same, failed(&flight))
        };
        let (exists, denied, busy) = (FaultCode::AlreadyExists, FaultCode::PermissionDenied, FaultCode::StorageBusy);
        assert_eq!(answered(Purpose::TellApart, exists), (true, None));
        assert_eq!(answered(Purpose::Trial, exists), (false, None), "two of the others are the same");
        assert_eq!(answered(Purpose::Trial, denied), (false, None), "it may stay");
        assert_eq!(answered(Purpose::Trial, busy), (false, Some((Purpose::Trial, busy))));
        for purpose in [Purpose::Make, Purpose::TellApart] {
            assert_eq!(answered(purpose, denied), (false, Some((purpose, denied))), "nobody knows");
        }
    }

    #[test]
    fn a_source_that_was_changed_meanwhile_is_a_fault() {
        let version = |facts: &[u8]| {
            let mut flight = flight(Work::Copy);
            flight.answer(Role::Source, Purpose::Version, Ok(Outcome::Line(facts.to_vec())));
            failed(&flight)
        };
        assert_eq!(version(b"type=file;size=2300; f"), None);
        assert_eq!(version(b"type=file;size=2501; f"), Some((Purpose::Version, FaultCode::SourceChanged)));
        let mut part = job(Work::Copy);
        part.item.range = Some(100..2600);
        let mut device = job(Work::Copy);
        device.item.size = None;
        for (job, told) in [(part, &b"type=file;size=90000; f"[..]), (device, b"type=file;size=0; f")] {
            let step = Step::alone(&job, &manner());
            let mut flight = Flight::new(job, &manner(), step);
            flight.answer(Role::Source, Purpose::Version, Ok(Outcome::Line(told.to_vec())));
            assert_eq!(failed(&flight), None, "its size is not the whole file's");
        }
    }

    #[test]
    fn checksums_that_are_refused_fail_a_comparison_and_not_a_copy() {
        let refused = || Err(fault(FaultCode::NotSupported, Side::Source));
        let mut copy = flight(Work::Copy);
        copy.answer(Role::Source, Purpose::SourceSum, refused());
        assert!(copy.failure.is_none() && matches!(copy.verdict(), Ok(Verification::Unverified { .. })));
        let mut comparison = flight(Work::Compare);
        comparison.answer(Role::Source, Purpose::SourceSum, refused());
        assert_eq!(failed(&comparison), Some((Purpose::SourceSum, FaultCode::NotSupported)));
    }

    #[test]
    fn a_leaf_that_cannot_be_examined_is_moved_again_and_one_of_a_part_is_missed() {
        let refused = || Err(fault(FaultCode::NotFound, Side::Destination));
        let purpose = Purpose::Leaf { start: 0, end: LEAF };
        let step = Step::Open(OpenStep::new(Some(b"/d/.f.whimbrel".to_vec())));
        let mut opening = Flight::new(job(Work::Open { leaf: LEAF }), &manner(), step);
        opening.answer(Role::Destination, purpose, refused());
        assert_eq!(failed(&opening), None);
        let step = Step::Chunk(ChunkStep::Moving(open_file()));
        let mut part = Flight::new(job(Work::Chunk { part: 0..LEAF }), &manner(), step);
        part.answer(Role::Destination, purpose, refused());
        assert_eq!(failed(&part), Some((purpose, FaultCode::StorageBusy)), "taken over by another run");
        assert!(part.file().unwrap().astray.get());
    }

    #[test]
    fn an_opening_is_not_answered_while_it_is_found_out_what_an_earlier_run_left() {
        let step = Step::Open(OpenStep::new(Some(b"/d/.f.whimbrel".to_vec())));
        let mut flight = Flight::new(job(Work::Open { leaf: LEAF }), &manner(), step);
        assert!(flight.is_answered());
        let Step::Open(step) = &mut flight.step else { panic!("it was opened") };
        *step.examination().unwrap() = Examination::Seeking;
        assert!(!flight.is_answered());
    }

    #[test]
    fn a_file_that_came_shorter_or_longer_than_it_was_listed_is_a_fault_and_an_untold_length_is_none() {
        let stored = |result| {
            let mut flight = flight(Work::Copy);
            flight.answer(Role::Destination, Purpose::Length, result);
            failed(&flight)
        };
        assert_eq!(stored(Ok(Outcome::Size(2300))), None);
        for other in [0, 2499, 2501] {
            assert_eq!(stored(Ok(Outcome::Size(other))), Some((Purpose::Length, FaultCode::SourceChanged)));
        }
        assert_eq!(stored(Err(fault(FaultCode::NotSupported, Side::Destination))), None);
    }

    #[test]
    fn a_file_whose_leaves_end_before_it_does_is_a_fault_unless_the_rest_came_before() {
        let verdict = |received: RangeSet| {
            let proof = Ok(Proof { checksum: checksum(), in_reply: true });
            let (job, manner) = (Job { received, ..job(Work::Copy) }, Manner { proof, ..manner() });
            let step = Step::alone(&job, &manner);
            let mut flight = Flight::new(job, &manner, step);
            for role in [Role::Source, Role::Destination] {
                flight.evidence.replied(role, vec![leaf(0, b"a"), leaf(1, b"b")], None);
            }
            flight.verdict()
        };
        let fault = verdict(RangeSet::new()).unwrap_err();
        assert_eq!((fault.code, fault.side), (FaultCode::SourceChanged, Some(Side::Source)));
        assert_eq!(fault.detail, "2300 bytes were listed, 2000 came");
        assert!(matches!(verdict(RangeSet::from(2000..2300)), Ok(Verification::Verified { .. })));
    }

    #[test]
    fn what_is_longer_under_its_temporary_name_than_what_is_proven_of_it_gets_no_other() {
        let measured = |result| {
            let file = open_file();
            let step = Step::Commit(CommitStep::Asked { file: file.clone(), again: false });
            let mut flight = Flight::new(job(Work::Commit), &manner(), step);
            let naming = naming_orders(&flight.job, file.temporary().unwrap(), Given::default());
            let first = flight.name_by(naming, None);
            assert!(matches!(&first[..], [Order { op: Op::Size(name), .. }] if Some(&name[..]) == file.temporary()));
            flight.answer(Role::Destination, Purpose::Length, result);
            (failed(&flight), flight.to_ask.len(), file.astray.get())
        };
        let named = (None, 1, false);
        assert_eq!(measured(Ok(Outcome::Size(2300))), named);
        assert_eq!(measured(Err(fault(FaultCode::NotSupported, Side::Destination))), named, "nobody can tell");
        let astray = (Some((Purpose::Length, FaultCode::ChecksumMismatch)), 0, true);
        assert_eq!(measured(Ok(Outcome::Size(2501))), astray);
    }

    #[test]
    fn at_a_server_of_ours_nothing_is_measured_before_the_name() {
        let file = OpenFile::new(Unfinished::Session(vec![7]), None, LEAF, Vec::new(), false);
        let step = Step::Commit(CommitStep::Asked { file, again: false });
        let mut flight = Flight::new(job(Work::Commit), &manner(), step);
        let naming = vec![chunk::discard(&flight.job, &[7])];
        assert_eq!(flight.name_by(naming, None).len(), 1);
        assert!(flight.to_ask.is_empty());
    }

    #[test]
    fn what_this_run_has_left_and_does_not_find_is_removed_before_it_is_moved_anew() {
        let name = b"/d/.f.whimbrel".to_vec();
        let of = |ours: bool, examination| {
            let mut step = OpenStep::new(Some(name.clone()));
            if ours {
                step.is_of_this_run(open_file());
            }
            *step.examination().unwrap() = examination;
            step
        };
        let step = of(true, Examination::Nothing);
        assert!(matches!(step.unseen(), Some(Order { op: Op::Delete(path), .. }) if path == name));
        for other in [of(false, Examination::Nothing), of(true, Examination::Worthless)] {
            assert!(other.unseen().is_none());
        }
        let refused = |step| {
            let mut flight = Flight::new(job(Work::Open { leaf: LEAF }), &manner(), Step::Open(step));
            flight.answer(Role::Destination, Purpose::Make, Err(fault(FaultCode::NotFound, Side::Destination)));
            failed(&flight)
        };
        assert_eq!(refused(step), None);
        assert!(refused(of(true, Examination::Worthless)).is_some(), "what was found too long is there still");
    }

    #[test]
    fn a_part_that_went_to_another_file_than_those_before_makes_all_of_it_suspect() {
        let identity = |answers: Vec<Result<Outcome, Fault>>| {
            let file = open_file();
            for answer in answers {
                let step = Step::Chunk(ChunkStep::Moving(file.clone()));
                let mut flight = Flight::new(job(Work::Chunk { part: 0..LEAF }), &manner(), step);
                flight.answer(Role::Destination, Purpose::Identity, answer);
                assert!(flight.failure.is_none());
            }
            file.astray.get()
        };
        let line = |unique: &str| Ok(Outcome::Line(format!("Type=file;Unique={unique}; f").into_bytes()));
        assert!(!identity(vec![line("fe00-1"), line("fe00-1")]));
        assert!(identity(vec![line("fe00-1"), line("fe00-2")]));
        assert!(identity(vec![Err(fault(FaultCode::NotFound, Side::Destination))]));
        assert!(!identity(vec![Err(fault(FaultCode::NotSupported, Side::Destination))]));
    }

    #[test]
    fn the_end_of_a_file_says_of_its_storage_only_that_parts_are_from_earlier() {
        let read_back = |earlier: Vec<Leaf>| {
            let mut file = open_file();
            file.earlier = !earlier.is_empty();
            let manner = Manner { past_memory: true, ..manner() };
            let end = |step| match Flight::new(job(Work::Commit), &manner, Step::Commit(step)).proven() {
                Verification::Verified { read_back, .. } => read_back,
                other => panic!("{other:?}"),
            };
            // However it got its name.
            [end(CommitStep::Named(file.clone())), end(CommitStep::Asked { file, again: false })]
        };
        assert_eq!(read_back(Vec::new()), [None; 2]);
        assert_eq!(read_back(vec![leaf(0, b"a")]), [Some(ReadBack::Earlier); 2]);
    }
}

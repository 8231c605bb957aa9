//! The opening of a file that moves in chunks: what an earlier run left, what is a hole, what there is room for.

use whimbrel_engine::transfer::{Attempt, Input, Job, Opening, Work};
use whimbrel_engine::{Fault, FaultCode, Side};

use super::manner::{examining, leaves_holes_out};
use super::{Worker, hand_over};
use crate::client::chunk::OpenFile;
use crate::client::flight::{Examination, Flight, OpenStep, Place, Proof, Purpose, Step};
use crate::client::sidecar::{self, Found, Wanted};
use crate::client::temporary;

impl Worker {
    /// At a server that keeps no unfinished files: finds what an earlier run left.
    pub(super) fn examine(&mut self, index: usize) {
        let flight = &mut self.flights[index];
        let (Some((route, _)), Work::Open { .. }, None) = (&self.pair, &flight.job.work, &flight.failure) else {
            return;
        };
        let Step::Open(OpenStep { place: Place::Temporary { name, examination, occupant }, .. }) = &mut flight.step
        else {
            return;
        };
        if !matches!(examination, Examination::Unknown) {
            return;
        }
        *examination = Examination::Nothing;
        let (Some(target), false) = (route.destination.clone(), occupant.is_written_to()) else { return };
        let (item, dialling) = (&flight.job.item, self.shared.dialling());
        // Nobody else can have left anything in a directory that was not there.
        if self.shared.is_in_new_directory(item) && self.shared.open_file(item.id).is_none() {
            return self.shared.sidecars.opened(&dialling, item.id, target, name.clone());
        }
        *examination = Examination::Seeking;
        let (destination, version) = (item.destination.clone(), temporary::version(item));
        let wanted = Wanted { name: name.clone(), destination, version, run: self.shared.run.id() };
        let found = self.shared.sidecars.seek(&dialling, item.id, target, wanted);
        let (claim, attempt) = (self.claim.clone(), flight.job.attempt);
        tokio::task::spawn_local(async move {
            let found = found.await.ok().flatten();
            // The session may be over.
            let _ = claim.send((attempt, found));
        });
    }

    /// It is known what an earlier run left: asks both ends what of it can be trusted.
    pub(super) fn claimed(&mut self, attempt: Attempt, found: Option<&Found>) {
        let waits = |flight: &Flight| flight.step.is_reading() && flight.job.attempt == attempt;
        let Some(index) = self.flights.iter().position(waits) else { return };
        let flight = &mut self.flights[index];
        let proof = flight.evidence.proof.as_ref().ok().map(|proof| &proof.checksum);
        let checksum = self.pair.as_ref().and_then(|(_, pair)| examining(pair, &self.shared, proof));
        if let (Work::Open { leaf }, Step::Open(step)) = (&flight.job.work, &mut flight.step) {
            step.unique = found.and_then(|found| found.unique.clone());
            if let Place::Temporary { name, examination, .. } = &mut step.place {
                flight.to_ask = examination.sought(&flight.job, name, *leaf, found, checksum).into();
            }
            flight.to_ask.extend(step.unseen());
        }
        self.ask_more(index, Purpose::Found);
        self.settle(index);
    }

    /// At a server of ours: finds out whether what an earlier run left there is of this source.
    pub(super) fn confirm(&mut self, index: usize) {
        let flight = &mut self.flights[index];
        let (Some((_, pair)), Step::Open(step), None) = (&mut self.pair, &mut flight.step, &flight.failure) else {
            return;
        };
        let Work::Open { leaf } = flight.job.work else { return };
        let checksum = flight.evidence.proof.as_ref().ok().map(|proof| proof.checksum.clone());
        let orders = step.confirm(&flight.job, leaf, checksum.as_ref(), &flight.evidence.source.leaves);
        hand_over(pair, flight, orders);
    }

    /// The ends have said what is a hole and what there is room for: tells the destination what need not come.
    pub(super) fn keep_holes(&mut self, index: usize) {
        let flight = &mut self.flights[index];
        let (Some((_, pair)), Step::Open(step), None) = (&mut self.pair, &mut flight.step, &flight.failure) else {
            return;
        };
        let capable = leaves_holes_out(pair);
        if let Some(fault) = step.no_room(&flight.job, capable) {
            return flight.fail(Purpose::Open, fault);
        }
        if capable {
            let orders = step.tell_holes(&flight.job);
            hand_over(pair, flight, orders);
        }
    }

    /// Everything about an opening is answered.
    pub(super) fn land_opening(&mut self, mut flight: Flight) {
        let Step::Open(step) = &mut flight.step else { return };
        step.trust_agreeing(&mut flight.evidence);
        let (job, attempt) = (&flight.job, flight.job.attempt);
        if step.occupant().is_written_to() {
            self.shared.write_to(&job.item, step.occupant().is_device());
            return self.report(Input::ItemWhole { attempt });
        }
        let (Work::Open { leaf }, Some(place)) = (&job.work, step.unfinished()) else {
            return self.refuse(job, answer_missing());
        };
        let capable = self.pair.as_ref().is_some_and(|(_, pair)| leaves_holes_out(pair));
        let found = Opening { discarded: step.discarded, ..step.holes.opening(job.item.size.unwrap_or(0), capable) };
        let checksum = flight.evidence.proof.ok().map(|Proof { checksum, .. }| checksum);
        let within = step.holes.has_within(found.kept);
        let file = OpenFile::new(place, checksum, *leaf, std::mem::take(&mut step.earlier), within);
        file.identify(step.unique.take());
        let verified = file.told.borrow().clone();
        self.keep_beside(job, &file, step.may_have_sidecar());
        self.shared.file_opened(attempt.item, file);
        self.report(Input::ItemOpened { attempt, verified, found });
    }

    /// Begins to keep what is proven beside a temporary file.
    fn keep_beside(&self, job: &Job, file: &OpenFile, exists: bool) {
        let target = self.pair.as_ref().and_then(|(route, _)| route.destination.clone());
        if let (Some(name), Some(checksum), Some(target)) = (file.temporary(), &file.checksum, target)
            && let Some(header) = sidecar::header(job, checksum, file.leaf)
        {
            let place = sidecar::Place { target, name: name.to_vec(), header };
            let proven = file.proven.borrow().values().cloned().collect();
            self.shared.sidecars.begin(&self.shared.dialling(), job.attempt.item, place, proven, exists);
        }
    }
}

/// An end has not told what the step is about.
pub(super) fn answer_missing() -> Fault {
    Fault::new(FaultCode::PeerMisbehaved, "move in chunks").side(Side::Peer).detail("an answer is missing")
}

//! The steps of a file that moves in chunks.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use whimbrel_engine::transfer::{Input, Job, Work};
use whimbrel_engine::{Fault, FaultCode, RangeSet, Side};
use whimbrel_proto::op::OpId;

use super::manner::{chunked_manner, hopeless, leaves_holes_out};
use super::{Worker, hand_over};
use crate::client::chunk::{self, Naming, OpenFile, Unfinished};
use crate::client::flight::{Flight, Part, Proof};
use crate::client::pair::Role;

impl Worker {
    /// Opening, a part, or the end of a file that moves in chunks.
    pub(super) fn start_chunked(&mut self, job: Job, connecting: Option<(Role, OpId)>) {
        let Some((_, pair)) = &mut self.pair else { return };
        let attempt = job.attempt;
        let Some(manner) = chunked_manner(pair, &self.shared, &job) else {
            return self.report(Input::ItemWhole { attempt });
        };
        let whole = self.shared.whole(&job.item);
        if let Work::Open { .. } = job.work
            && let Some(fault) = hopeless(&job, whole.as_ref(), pair, &self.shared)
        {
            return self.refuse(&job, fault);
        }
        let mut flight = Flight::new(job, &manner);
        flight.waiting.extend(connecting.map(|(role, id)| (role, id, Part::Connect)));
        let disk = manner.past_memory;
        let orders = match (&flight.job.work, self.shared.open_file(attempt.item)) {
            (Work::Open { leaf }, _) => {
                let Ok(proof) = &manner.proof else { return self.report(Input::ItemWhole { attempt }) };
                let (place, orders) = chunk::open(&flight.job, pair, &proof.checksum, *leaf);
                flight.opened = place.map(|place| (place, RangeSet::new()));
                orders
            }
            // A session that told of the last proof, or heard of the name, was lost before it could say so.
            (Work::Chunk { .. }, Some(file)) if file.naming.get() == Naming::Done => {
                flight.named = Some(true);
                Vec::new()
            }
            (Work::Chunk { .. }, Some(file)) if file.naming.get() == Naming::Asked => {
                let order = chunk::name_ahead(&flight.job, &file);
                flight.file = Some(file);
                order.into_iter().collect()
            }
            (Work::Chunk { part }, Some(file)) => {
                let orders = chunk::chunk(&flight.job, part, &file, pair, disk);
                flight.file = Some(file);
                orders
            }
            (_, Some(file)) if file.naming.get() == Naming::Done => Vec::new(),
            (_, Some(file)) if file.astray.get() => return self.refuse(&flight.job, chunk::astray(&flight.job)),
            (_, Some(file)) => {
                let mut orders = chunk::commit(&flight.job, &file);
                if let Some(mut whole) = whole {
                    whole.naming = std::mem::take(&mut orders);
                    whole.readable = match &file.place {
                        Unfinished::Temporary(name) => Some(name.clone()),
                        Unfinished::Session(_) => None,
                    };
                    flight.whole = Some(Box::new(whole));
                }
                flight.file = Some(file);
                orders
            }
            (_, None) => return self.report(Input::ItemWhole { attempt }),
        };
        self.submit(flight, orders);
    }

    /// A temporary file is there: asks what of it can be trusted.
    pub(super) fn examine(&mut self, index: usize) {
        let flight = &mut self.flights[index];
        let (Some(found), Work::Open { leaf }) = (flight.found.take(), &flight.job.work) else { return };
        let (Some((_, pair)), Some((place, _)), Ok(proof)) = (&mut self.pair, &flight.opened, &flight.proof) else {
            return;
        };
        for order in chunk::examine(&flight.job, place, &proof.checksum, *leaf, found) {
            hand_over(pair, flight, order);
        }
    }

    /// A part of a chunked file has moved: compares its leaves and tells the destination what is proven.
    pub(super) fn keep_proven(&mut self, index: usize) {
        let flight = &mut self.flights[index];
        let answered = flight.compared.is_some() || flight.named.is_some();
        if flight.failure.is_some() || flight.file.is_none() || answered {
            return;
        }
        flight.compare();
        let (Some((_, pair)), Some(file), Some(compared)) = (&mut self.pair, &flight.file, &flight.compared) else {
            return;
        };
        let plain = self.shared.whole(&flight.job.item).is_none();
        let ahead = chunk::commit_ahead(&flight.job, file, compared).filter(|_| plain);
        if ahead.is_some() {
            file.naming.set(Naming::Asked);
        }
        for order in chunk::keep(&flight.job, file, &compared.proven).into_iter().chain(ahead) {
            hand_over(pair, flight, order);
        }
    }

    /// A step of a chunked file is over.
    pub(super) fn land_chunked(&mut self, mut flight: Flight) {
        flight.trust_agreeing();
        let (attempt, verification) = (flight.job.attempt, flight.proven());
        match (&flight.job.work, flight.opened, flight.compared) {
            (Work::Open { leaf }, Some((place, verified)), _) => {
                let Ok(Proof { checksum, .. }) = flight.proof else { return self.report(Input::ItemWhole { attempt }) };
                let earlier = !flight.earlier.is_empty();
                let proven: BTreeMap<_, _> = flight.earlier.into_iter().map(|leaf| (leaf.range.start, leaf)).collect();
                let proven = Rc::new(RefCell::new(proven));
                let capable = self.pair.as_ref().is_some_and(|(_, pair)| leaves_holes_out(pair));
                let found = flight.holes.opening(flight.job.item.size.unwrap_or(0), capable);
                let file = OpenFile {
                    place,
                    checksum,
                    leaf: *leaf,
                    holes: found.kept > 0,
                    proven,
                    earlier,
                    told: Rc::new(RefCell::new(verified.clone())),
                    naming: Rc::default(),
                    astray: Rc::default(),
                };
                self.shared.file_opened(attempt.item, file);
                self.report(Input::ItemOpened { attempt, verified, found });
            }
            (Work::Chunk { part }, _, Some(compared)) => {
                self.careful = self.careful.saturating_sub(1);
                if let Some(file) = &flight.file {
                    let leaves = compared.proven.iter().map(|leaf| (leaf.range.start, leaf.clone()));
                    file.proven.borrow_mut().extend(leaves);
                    if !compared.wrong.is_empty() {
                        file.suspect();
                    }
                    if let Some(named) = flight.named {
                        file.naming.set(if named { Naming::Done } else { Naming::Not });
                    }
                }
                let (bytes, verified) = (part.end - part.start, compared.ranges());
                self.report(Input::ChunkDone { attempt, bytes, verified, wrong: compared.wrong, verification });
            }
            // Proven, because it is named: or else moved after all.
            (Work::Chunk { part }, _, None) if flight.named == Some(true) => {
                if let Some(file) = &flight.file {
                    file.naming.set(Naming::Done);
                }
                let (verified, wrong) = (RangeSet::from(part.clone()), RangeSet::new());
                self.report(Input::ChunkDone { attempt, bytes: 0, verified, wrong, verification });
            }
            (Work::Chunk { .. }, _, None) if flight.named.is_some() => {
                if let Some(file) = &flight.file {
                    file.naming.set(Naming::Not);
                }
                self.start_chunked(flight.job, None);
            }
            (Work::Commit, ..) => {
                self.shared.file_ended(attempt.item);
                self.report(Input::ItemDone { attempt, bytes: 0, verified: verification });
            }
            _ => {
                let fault = Fault::new(FaultCode::PeerMisbehaved, "move in chunks");
                self.refuse(&flight.job, fault.side(Side::Peer).detail("an answer is missing"));
            }
        }
    }
}

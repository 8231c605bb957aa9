//! The steps of a file that moves in chunks.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use whimbrel_engine::transfer::{Attempt, Input, Job, Work};
use whimbrel_engine::{Fault, FaultCode, RangeSet, Side};
use whimbrel_proto::op::OpId;

use super::manner::{chunked_manner, examining, hopeless, leaves_holes_out};
use super::{MOST_AHEAD, Worker, hand_over};
use crate::client::chunk::{self, Naming, OpenFile, Unfinished};
use crate::client::flight::{Flight, Part, Proof};
use crate::client::pair::Role;
use crate::client::sidecar;

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
                let checksum = manner.proof.as_ref().ok().map(|proof| &proof.checksum);
                let (place, orders) = chunk::open(&flight.job, pair, checksum, *leaf);
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
                flight.renamed_before = file.renaming.replace(true);
                if let Some(mut whole) = whole {
                    whole.naming = std::mem::take(&mut orders);
                    whole.readable = file.temporary().map(<[u8]>::to_vec);
                    flight.whole = Some(Box::new(whole));
                }
                flight.file = Some(file);
                orders
            }
            (_, None) => return self.report(Input::ItemWhole { attempt }),
        };
        self.submit(flight, orders);
    }

    /// A temporary file is there: reads what is kept beside it.
    pub(super) fn examine(&mut self, index: usize) {
        let flight = &mut self.flights[index];
        let (Some(found), Work::Open { leaf }, None) = (flight.found, &flight.job.work, &flight.failure) else {
            return;
        };
        let (Some((route, pair)), Some((Unfinished::Temporary(name), _))) = (&mut self.pair, &flight.opened) else {
            return;
        };
        // Until it is read.
        flight.has_sidecar = true;
        let Some(part) = chunk::examinable(&flight.job, *leaf, found) else {
            let order = chunk::remove(name);
            flight.found = None;
            hand_over(pair, flight, order);
            return;
        };
        let proof = flight.proof.as_ref().ok().map(|proof| &proof.checksum);
        let checksum = examining(pair, &self.shared, proof).filter(|_| !part.is_empty());
        let (Some(checksum), Some(target)) = (checksum, route.destination.clone()) else {
            flight.found = None;
            return;
        };
        let told = self.shared.sidecars.read(&self.shared.dialling(), target, sidecar::name_of(name));
        let (claim, attempt) = (self.claim.clone(), flight.job.attempt);
        tokio::task::spawn_local(async move {
            let bytes = told.await.ok().flatten();
            // The session may be over.
            let _ = claim.send((attempt, bytes));
        });
        (flight.is_reading, flight.examining) = (true, Some(checksum));
    }

    /// What is kept beside a temporary file is known: asks both ends what of the file can be trusted.
    pub(super) fn claimed(&mut self, attempt: Attempt, bytes: Option<&[u8]>) {
        let Some(index) = self.flights.iter().position(|flight| flight.is_reading && flight.job.attempt == attempt)
        else {
            return;
        };
        let flight = &mut self.flights[index];
        flight.is_reading = false;
        flight.has_sidecar = bytes.is_some();
        let found = flight.found.take().unwrap_or(0);
        if let (Work::Open { leaf }, Some((Unfinished::Temporary(name), _)), Some(checksum)) =
            (&flight.job.work, &flight.opened, &flight.examining)
            && let Some(part) = chunk::examinable(&flight.job, *leaf, found)
            && let Some(header) = sidecar::header(&flight.job, checksum, *leaf)
        {
            let claims = sidecar::claims(bytes.unwrap_or_default(), &header, part.clone());
            tracing::debug!(found, claims = claims.len(), "an unfinished copy is there");
            flight.claims = claims.into_iter().map(|leaf| (leaf.range.start, leaf)).collect();
            flight.to_ask = chunk::examine(&flight.job, name, checksum, *leaf, &part, &flight.claims).into();
        }
        self.ask_more(index, Part::Found);
        self.settle(index);
    }

    /// Submits what was held back while so much was in the air.
    pub(super) fn ask_more(&mut self, index: usize, part: Part) {
        let flight = &mut self.flights[index];
        let Some((_, pair)) = &mut self.pair else { return };
        while flight.waiting.len() < MOST_AHEAD
            && let Some(order) = flight.to_ask.pop_front()
        {
            hand_over(pair, flight, order);
        }
        // Long files take long to examine.
        if matches!((part, &flight.job.work), (Part::Leaf { .. }, Work::Open { .. })) {
            let attempt = flight.job.attempt;
            self.report(Input::ItemProgress { attempt, moved: 0, durable: None });
        }
    }

    /// Begins to keep what is proven beside a temporary file.
    fn keep_beside(&self, job: &Job, file: &OpenFile, exists: bool) {
        let target = self.pair.as_ref().and_then(|(route, _)| route.destination.clone());
        if let (Some(name), Some(checksum), Some(target)) = (file.temporary(), &file.checksum, target)
            && let Some(header) = sidecar::header(job, checksum, file.leaf)
        {
            let place = sidecar::Place { target, name: sidecar::name_of(name), header };
            let proven = file.proven.borrow().values().cloned().collect();
            self.shared.sidecars.begin(&self.shared.dialling(), job.attempt.item, place, proven, exists);
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
        let attempt = flight.job.attempt;
        self.report(Input::ChunkMoved { attempt });
    }

    /// A step of a chunked file is over.
    pub(super) fn land_chunked(&mut self, mut flight: Flight) {
        flight.trust_agreeing();
        let (attempt, verification, is_named) = (flight.job.attempt, flight.proven(), flight.is_named());
        match (&flight.job.work, flight.opened, flight.compared) {
            (Work::Open { .. }, ..) if flight.is_written_to => {
                self.shared.write_to(&flight.job.item, flight.is_device);
                self.report(Input::ItemWhole { attempt });
            }
            (Work::Open { leaf }, Some((place, verified)), _) => {
                let checksum = flight.proof.ok().map(|Proof { checksum, .. }| checksum);
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
                    renaming: Rc::default(),
                    astray: Rc::default(),
                };
                self.keep_beside(&flight.job, &file, flight.has_sidecar);
                self.shared.file_opened(attempt.item, file);
                self.report(Input::ItemOpened { attempt, verified, found });
            }
            (Work::Chunk { part }, _, Some(compared)) => {
                self.careful = self.careful.saturating_sub(1);
                if let Some(file) = &flight.file {
                    let leaves = compared.proven.iter().map(|leaf| (leaf.range.start, leaf.clone()));
                    file.proven.borrow_mut().extend(leaves);
                    self.shared.sidecars.proven(attempt.item, &compared.proven);
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
            (Work::Commit, ..) if flight.checks_named && !is_named => {
                self.refuse(&flight.job, Fault::new(FaultCode::NotFound, "rename").side(Side::Destination));
            }
            (Work::Commit, ..) => {
                self.shared.sidecars.end(attempt.item, true);
                self.shared.file_ended(attempt.item, false);
                self.report(Input::ItemDone { attempt, bytes: 0, verified: verification });
            }
            _ => {
                let fault = Fault::new(FaultCode::PeerMisbehaved, "move in chunks");
                self.refuse(&flight.job, fault.side(Side::Peer).detail("an answer is missing"));
            }
        }
    }
}

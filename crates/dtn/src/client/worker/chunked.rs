//! The steps of a file that moves in chunks.

use std::ops::Range;

use whimbrel_engine::progress::Verification;
use whimbrel_engine::transfer::{Attempt, Input, Job, Work};
use whimbrel_engine::{Fault, FaultCode, RangeSet, Side};
use whimbrel_proto::op::OpId;

use super::manner::{chunked_manner, hopeless};
use super::opening::answer_missing;
use super::{MOST_AHEAD, Worker, hand_over};
use crate::client::chunk::{self, Compared, Naming, OpenFile};
use crate::client::flight::{ChunkStep, CommitStep, Flight, Manner, OpenStep, Order, Purpose, Step};
use crate::client::pair::{Pair, Role};

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
        let Some((step, orders)) = self.chunked_step(&job, &manner) else { return };
        let mut flight = Flight::new(job, &manner, step);
        let orders = flight.name_by(orders, whole);
        self.submit(flight, connecting, orders);
    }

    /// What the step begins with; `None`: it is over.
    fn chunked_step(&self, job: &Job, manner: &Manner) -> Option<(Step, Vec<Order>)> {
        let (_, pair) = self.pair.as_ref()?;
        let file = match (&job.work, self.shared.open_file(job.attempt.item)) {
            (Work::Open { leaf }, before) => {
                let checksum = manner.proof.as_ref().ok().map(|proof| &proof.checksum);
                let other_kind = !pair.destination.has("CHUNK");
                let temporary = other_kind.then(|| self.shared.temporary_of_chunks(&job.item));
                let mut step = OpenStep::new(temporary);
                if let Some(own) = before {
                    step.is_of_this_run(own);
                }
                return Some((Step::Open(step), chunk::open(job, pair, checksum, *leaf)));
            }
            (_, Some(file)) => file,
            (_, None) => {
                self.report(Input::ItemWhole { attempt: job.attempt });
                return None;
            }
        };
        Some(match &job.work {
            Work::Chunk { part } => {
                let (step, orders) = part_step(job, part, file, pair, manner);
                (Step::Chunk(step), orders)
            }
            _ if file.naming.get() == Naming::Done => (Step::Commit(CommitStep::Named(file)), Vec::new()),
            _ if file.astray.get() => {
                self.refuse(job, chunk::astray(job));
                return None;
            }
            _ => {
                let orders = chunk::commit(job, &file, pair);
                let again = file.renaming.replace(true);
                (Step::Commit(CommitStep::Asked { file, again }), orders)
            }
        })
    }

    /// Submits what was held back while so much was in the air.
    pub(super) fn ask_more(&mut self, index: usize, purpose: Purpose) {
        let flight = &mut self.flights[index];
        let Some((_, pair)) = &mut self.pair else { return };
        while flight.waiting.len() < MOST_AHEAD
            && let Some(order) = flight.to_ask.pop_front()
        {
            hand_over(pair, flight, [order]);
        }
        // Long files take long to examine.
        if matches!((purpose, &flight.step), (Purpose::Leaf { .. }, Step::Open(_))) {
            let attempt = flight.job.attempt;
            self.report(Input::ItemProgress { attempt, moved: 0, durable: None });
        }
    }

    /// A part of a chunked file has moved: compares its leaves and tells the destination what is proven.
    pub(super) fn keep_proven(&mut self, index: usize) {
        let flight = &mut self.flights[index];
        if flight.failure.is_some() || !flight.compare() {
            return;
        }
        let (Some((_, pair)), Step::Chunk(ChunkStep::Compared { file, compared, .. })) = (&mut self.pair, &flight.step)
        else {
            return;
        };
        let plain = self.shared.whole(&flight.job.item).is_none();
        let ahead = chunk::commit_ahead(&flight.job, file, compared, pair).filter(|_| plain);
        if ahead.is_some() {
            file.naming.set(Naming::Asked);
        }
        file.keeps(&compared.proven);
        let orders: Vec<Order> = chunk::keep(&flight.job, file, &compared.proven).into_iter().chain(ahead).collect();
        let attempt = flight.job.attempt;
        hand_over(pair, flight, orders);
        self.report(Input::ChunkMoved { attempt });
    }

    /// A step of a chunked file is over.
    pub(super) fn land_chunked(&mut self, flight: Flight) {
        let verification = flight.proven();
        match (flight.step, &flight.job.work) {
            (Step::Chunk(step), Work::Chunk { part }) => self.land_chunk(&flight.job, part, step, verification),
            (Step::Commit(step), _) if !step.is_named(&flight.job, &flight.evidence) => {
                self.refuse(&flight.job, Fault::new(FaultCode::NotFound, "rename").side(Side::Destination));
            }
            (Step::Commit(_), _) => {
                let attempt = flight.job.attempt;
                self.shared.sidecars.end(attempt.item, true);
                self.shared.file_ended(attempt.item, false);
                self.report(Input::ItemDone { attempt, bytes: 0, verified: verification });
            }
            _ => self.refuse(&flight.job, answer_missing()),
        }
    }

    fn land_chunk(&mut self, job: &Job, part: &Range<u64>, step: ChunkStep, verification: Verification) {
        match step {
            ChunkStep::Compared { file, compared, named } => {
                if let Some(named) = named {
                    file.naming.set(if named { Naming::Done } else { Naming::Not });
                }
                self.part_arrived(job.attempt, part, &file, compared, verification);
            }
            // Proven, because it is named: or else moved after all.
            ChunkStep::Named => self.part_proven(job.attempt, part, verification),
            ChunkStep::AskingName { file, named: Some(true) } => {
                file.naming.set(Naming::Done);
                self.part_proven(job.attempt, part, verification);
            }
            ChunkStep::AskingName { file, named: Some(false) } => {
                file.naming.set(Naming::Not);
                self.start_chunked(job.clone(), None);
            }
            ChunkStep::AskingName { named: None, .. } | ChunkStep::Moving(_) => self.refuse(job, answer_missing()),
        }
    }

    /// A part was moved by this attempt.
    fn part_arrived(
        &mut self,
        attempt: Attempt,
        part: &Range<u64>,
        file: &OpenFile,
        compared: Compared,
        verification: Verification,
    ) {
        self.careful = self.careful.saturating_sub(1);
        file.kept(&compared.proven);
        self.shared.sidecars.proven(attempt.item, &compared.proven);
        if !compared.wrong.is_empty() {
            file.suspect();
        }
        let (bytes, verified) = (part.end - part.start, compared.ranges());
        self.report(Input::ChunkDone { attempt, bytes, verified, wrong: compared.wrong, verification });
    }

    /// A part was moved before, and its file has its name.
    fn part_proven(&self, attempt: Attempt, part: &Range<u64>, verification: Verification) {
        let (verified, wrong) = (RangeSet::from(part.clone()), RangeSet::new());
        self.report(Input::ChunkDone { attempt, bytes: 0, verified, wrong, verification });
    }
}

/// What a part begins with. A session that told of the last proof, or heard of the name, may have been lost before it could
/// say so.
fn part_step(job: &Job, part: &Range<u64>, file: OpenFile, pair: &Pair, manner: &Manner) -> (ChunkStep, Vec<Order>) {
    match file.naming.get() {
        Naming::Done => (ChunkStep::Named, Vec::new()),
        Naming::Asked => {
            let orders = chunk::name_ahead(job, &file, pair).into_iter().collect();
            (ChunkStep::AskingName { file, named: None }, orders)
        }
        Naming::Not => {
            // It was put back: what was told of it may not have come.
            file.told.borrow_mut().remove(part.clone());
            let orders = chunk::chunk(job, part, &file, pair, manner.past_memory);
            (ChunkStep::Moving(file), orders)
        }
    }
}

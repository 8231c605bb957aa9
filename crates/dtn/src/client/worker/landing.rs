//! What follows from the answers of both ends, up to the report of what became of a file.

use whimbrel_engine::progress::Verification;
use whimbrel_engine::transfer::{Input, Job, Phase, Work};
use whimbrel_engine::{Fault, FaultCode, Side};

use super::{Worker, hand_over};
use crate::client::flight::{self, CopyNaming, CopyStep, Flight, Order, Purpose, Step};

impl Worker {
    /// An operation of a flight has been answered: what follows from it.
    pub(super) fn advance(&mut self, index: usize, purpose: Purpose) {
        let flight = &self.flights[index];
        if flight.transfer_failed() {
            return self.transfer_failed(index);
        }
        // True once: behind the last answer of a transfer that went well.
        let moved_all = purpose.moves_data() && flight.transfer.is_stored() && !flight.transfer_open();
        if moved_all && !flight.waiting.is_empty() {
            self.report(Input::ItemPhase { attempt: flight.job.attempt, phase: Phase::Verifying });
        }
        if moved_all {
            self.set_attributes(index);
        }
        self.go_ahead(index);
        self.ask_more(index, purpose);
        self.settle(index);
    }

    /// What follows once everything that was asked is answered.
    pub(super) fn settle(&mut self, index: usize) {
        if self.flights[index].is_answered() {
            self.examine(index);
            self.confirm(index);
        }
        if self.flights[index].is_answered() {
            self.keep_holes(index);
            self.keep_proven(index);
            self.go_on(index);
        }
        if self.flights[index].is_answered() {
            self.land(index);
        }
    }

    /// The source's checksum has come first: moves the file.
    fn go_ahead(&mut self, index: usize) {
        let flight = &mut self.flights[index];
        let Some((_, pair)) = &mut self.pair else { return };
        let mut orders = flight.go_ahead();
        if !orders.is_empty() && !flight.job.received.is_empty() {
            // What an earlier attempt brought is of the version that was listed.
            orders.push(flight::version_order(&flight.job));
        }
        let was_told = !orders.is_empty() && flight::hash_markers(flight.job.item.size).is_some();
        let attempt = flight.job.attempt;
        hand_over(pair, flight, orders);
        if was_told {
            self.report(Input::ItemPhase { attempt, phase: Phase::Moving });
        }
    }

    /// A whole file is moved and proven: its digests, and its name if that has waited for them.
    pub(super) fn go_on(&mut self, index: usize) {
        let required = self.shared.options.verify.is_required();
        let flight = &mut self.flights[index];
        let Some((_, pair)) = &mut self.pair else { return };
        while flight.is_answered() && flight.failure.is_none() && !matches!(flight.job.work, Work::Chunk { .. }) {
            match flight.next_step(&pair.destination, required) {
                None => return,
                Some(Ok(orders)) => {
                    let renames = |order: &Order| order.purpose == Purpose::Commit;
                    if flight.temporary().is_some() && orders.iter().any(renames) {
                        self.shared.renames_whole(flight.job.attempt.item);
                    }
                    hand_over(pair, flight, orders);
                }
                Some(Err(fault)) => flight.fail(Purpose::Commit, fault),
            }
        }
    }

    /// A file that has moved alone to its final name gets its attributes; with a temporary name it gets them before the name.
    fn set_attributes(&mut self, index: usize) {
        let flight = &mut self.flights[index];
        let (Some((_, pair)), Step::Copy(step)) = (&mut self.pair, &flight.step) else { return };
        if step.temporary().is_none() {
            let path = &flight.job.item.destination;
            let orders = flight::attribute_orders(&flight.job, path, step.given);
            hand_over(pair, flight, orders);
        }
    }

    /// Everything about a flight is answered.
    pub(super) fn land(&mut self, index: usize) {
        let Some(mut flight) = self.flights.remove(index) else { return };
        if let Some((purpose, fault)) = flight.failure.take() {
            return self.landed_badly(flight, purpose, fault);
        }
        let attempt = flight.job.attempt;
        match &flight.step {
            Step::Copy(_) => self.land_copy(flight),
            Step::Open(_) => self.land_opening(flight),
            Step::Chunk(_) | Step::Commit(_) => self.land_chunked(flight),
            Step::Pack(_) => self.land_pack(flight),
            Step::Simple if flight.job.work == Work::Compare => {
                self.report(Input::ItemCompared { attempt, equal: flight.evidence.sums_agree() });
            }
            Step::TellApart { is_same } => {
                self.report(Input::ItemCompared { attempt, equal: *is_same });
            }
            Step::MakeDirectory { .. } | Step::Link { .. } | Step::Simple => {
                if matches!(flight.step, Step::MakeDirectory { existed: false }) {
                    self.shared.directory_made(&flight.job.item);
                }
                self.report(Input::ItemDone { attempt, bytes: 0, verified: Verification::NotAsked });
            }
        }
    }

    /// A whole file has moved.
    fn land_copy(&mut self, flight: Flight) {
        let item = &flight.job.item;
        if matches!(&flight.step, Step::Copy(CopyStep { naming: CopyNaming::SourceFirst(_), .. })) {
            // The source has no checksum for it after all: it moves alone, and is not proven.
            self.shared.refuse_sums(&self.shared.route(item.root));
            return self.backlog.push_front(flight.job);
        }
        let temporary = flight.temporary().map(<[u8]>::to_vec);
        let occupant = flight.step.occupant();
        if occupant.is_written_to() {
            return self.write_through(flight, temporary);
        }
        let verdict = flight.verdict();
        self.finish_copy(&flight.job, verdict, flight.transfer.moved, flight.is_wanted(), temporary);
    }

    /// A device, a pipe or a link has the final name, as only this attempt has found out: the next one writes to it.
    fn write_through(&mut self, flight: Flight, temporary: Option<Vec<u8>>) {
        let item = &flight.job.item;
        self.shared.write_to(item, flight.step.occupant().is_device());
        if self.shared.expected(item).is_some() {
            let fault = Fault::new(FaultCode::NotSupported, "compare before it is named").on_path(&item.destination);
            let why = "a device, a pipe or a link has the name: what is written to it has it at once";
            return self.throw_away(&flight.job, fault.side(Side::Destination).detail(why), temporary);
        }
        self.begin_anew(flight, temporary);
    }

    /// Reports a copy whose transfer went well; `moved` bytes were seen moving. What is not good is not left under
    /// `temporary`.
    pub(super) fn finish_copy(
        &mut self,
        job: &Job,
        verdict: Result<Verification, Fault>,
        moved: u64,
        needs_proof: bool,
        temporary: Option<Vec<u8>>,
    ) {
        let verdict = match verdict {
            Ok(Verification::Unverified { reason }) if needs_proof || self.shared.options.verify.is_required() => {
                let fault = Fault::new(FaultCode::Unverified, "verify").on_path(&job.item.destination);
                Err(fault.side(Side::Peer).detail(reason))
            }
            other => other,
        };
        match verdict {
            Ok(verified) => {
                self.careful = self.careful.saturating_sub(1);
                self.shared.whole_named(job.attempt.item);
                if !self.shared.options.durable {
                    self.shared.hosts.exposed();
                }
                let expected = job.item.size.map(|size| size.saturating_sub(job.received.len()));
                let bytes = expected.unwrap_or(moved).max(moved);
                self.report(Input::ItemDone { attempt: job.attempt, bytes, verified });
            }
            // Nothing of a damaged copy can be kept.
            Err(fault) => self.throw_away(job, fault, temporary),
        }
    }
}

//! What becomes of a session and its flights when one of them fails.

use std::rc::Rc;
use std::time::Duration;

use tokio::time::Instant;
use whimbrel_engine::transfer::Input;
use whimbrel_engine::{Fault, FaultCode, RangeSet, Side};
use whimbrel_proto::op::Op;

use super::Worker;
use crate::client::chunk::OpenFile;
use crate::client::end::End;
use crate::client::flight::{CommitStep, Flight, Purpose, Step, Store};
use crate::client::pair::Pair;
use crate::client::shared::Route;

/// Transfers made one by one after a failure among pipelined ones.
const CAREFUL: u32 = 16;

/// How long an end may take to say why the other one failed.
const REASON_GRACE: Duration = Duration::from_secs(3);

/// How long a server may take to close a session: until then it may still do what it was told.
const LEAVING: Duration = Duration::from_secs(5);

/// How long a source may take to notice that its destination refused.
const REFUSED_GRACE: Duration = Duration::from_secs(1);

impl Worker {
    /// Removes what failed transfers left under final names, then reports the failures: the session
    /// may be closed as soon as its last failure is known.
    pub(super) async fn clean(&mut self) {
        if let Some(mut end) = self.leaving.take() {
            end.leave(LEAVING).await;
        }
        for (route, path) in std::mem::take(&mut self.spoilt) {
            if let Err(fault) = self.remove(route, path).await {
                tracing::warn!(%fault, "what a failed transfer left stays");
            }
        }
        for report in std::mem::take(&mut self.late) {
            self.report(report);
        }
    }

    async fn remove(&mut self, route: Rc<Route>, path: Vec<u8>) -> Result<(), Fault> {
        if self.pair.as_ref().is_none_or(|(open, _)| *open != route) {
            self.open(route).await?;
        }
        match &mut self.pair {
            Some((_, pair)) => pair.destination.run(Op::Delete(path)).await.map(drop),
            None => Ok(()),
        }
    }

    /// Reports a failed transfer; what it left at a destination that writes in place goes first.
    fn fail(&mut self, flight: Flight, purpose: Purpose, fault: Fault, in_place: bool, misplaced: bool) {
        let flight = match flight.step {
            Step::Pack(pack) => return self.fail_pack(flight.job, pack, &fault),
            _ => flight,
        };
        if let Some(file) = flight.file() {
            return self.fail_chunk(&flight, file, purpose, fault);
        }
        if purpose == Purpose::Store && self.other_name(&flight, &fault) {
            return self.backlog.push_front(flight.job);
        }
        let refused = purpose == Purpose::Send && fault.side == Some(Side::Source) && !fault.is_temporary();
        let route = self.shared.route(flight.job.item.root);
        let empty = in_place && flight.transfer.received.is_empty() && self.is_ours(&flight, &route);
        if refused && (misplaced || empty) {
            self.spoilt.push((route, flight.target().to_vec()));
        }
        let received = flight.transfer.received;
        self.late.push(Input::ItemFailed { attempt: flight.job.attempt, fault, received });
    }

    /// Whether a store that got no bytes left something of this copy's making, which may go.
    fn is_ours(&self, flight: &Flight, route: &Rc<Route>) -> bool {
        match flight.transfer.store() {
            // What was there before is there still.
            Store::Refused | Store::GivenUp => false,
            _ if flight.temporary().is_some() => true,
            // Whoever opens a whole file empties it; of a part of one, and of what a link leads to, there is more than that.
            Store::Opened | Store::Stored => {
                let item = &flight.job.item;
                item.range.is_none() && !self.shared.is_written_to(route, &item.destination)
            }
            Store::Unheard => false,
        }
    }

    /// The same of a part of a file. The unfinished copy stays: what is proven there need not be moved again.
    fn fail_chunk(&mut self, flight: &Flight, file: &OpenFile, purpose: Purpose, fault: Fault) {
        let attempt = flight.job.attempt;
        if fault.side != Some(Side::Network) {
            file.suspect();
        }
        if purpose == Purpose::Store && self.other_name(flight, &fault) {
            self.shared.sidecars.end(attempt.item, true);
            file.temporary().into_iter().for_each(|name| self.shared.give_up(&flight.job.item, name));
            return self.late.push(Input::ItemWhole { attempt });
        }
        self.late.push(Input::ItemFailed { attempt, fault, received: RangeSet::new() });
    }

    /// The other end may say why; what is behind on the same data connections is lost.
    pub(super) fn transfer_failed(&mut self, index: usize) {
        let in_place = self.writes_in_place();
        let flight = &self.flights[index];
        if let Some((_, pair)) = &mut self.pair {
            pair.wire = None;
            abort_local(pair, flight);
        }
        let over = !flight.transfer_open();
        if over && self.flights.len() == 1 {
            self.grace = None;
            if flight.waiting.is_empty() {
                self.land(index);
            }
            return;
        }
        if over {
            return self.collapse();
        }
        let opened = !matches!(flight.transfer.store(), Store::Unheard | Store::Refused);
        let patience = match flight.failure.as_ref().map(|(purpose, fault)| (*purpose, fault.side)) {
            Some((_, Some(Side::Network | Side::Peer))) => REASON_GRACE,
            // Whether the destination opened the file decides what is left there.
            Some((Purpose::Send, _)) if opened || !in_place => Duration::ZERO,
            _ => REFUSED_GRACE,
        };
        self.grace.get_or_insert(Instant::now() + patience);
    }

    /// Gives the sessions up after a failed transfer: reports it, and repeats what was behind it.
    pub(super) fn collapse(&mut self) {
        self.grace = None;
        if let Some(flight) = self.flights.iter().find(|flight| flight.transfer_failed())
            && let Some((_, fault)) = &flight.failure
        {
            self.avoid(flight, fault);
        }
        let in_place = self.writes_in_place();
        self.leaving = self.pair.take().map(|(_, pair)| pair.destination).filter(|end| !end.has("DCNONCE"));
        self.careful = CAREFUL;
        let shared_wire = self.flights.len() > 1;
        let flights = std::mem::take(&mut self.flights);
        let first = flights.iter().position(Flight::transfer_failed);
        for (index, mut flight) in flights.into_iter().enumerate().rev() {
            match flight.failure.take() {
                // What failed behind the first one failed because of it.
                Some((purpose, fault)) if Some(index) == first => {
                    let misplaced = shared_wire && flight.transfer.is_stored();
                    self.fail(flight, purpose, fault, in_place, misplaced);
                }
                _ => {
                    if let Step::Pack(pack) = flight.step {
                        pack.others.into_iter().rev().for_each(|job| self.backlog.push_front(job));
                    }
                    self.backlog.push_front(flight.job);
                }
            }
        }
    }

    /// Whether the destination gives unfinished files their final names; ours does not.
    pub(super) fn writes_in_place(&self) -> bool {
        self.pair.as_ref().is_some_and(|(_, pair)| !pair.destination.has("DCNONCE"))
    }

    /// Everything about a flight is answered, and something of it failed.
    pub(super) fn landed_badly(&mut self, flight: Flight, purpose: Purpose, fault: Fault) {
        if purpose.moves_data() {
            return self.moved_badly(flight, purpose, fault);
        }
        let flight = match flight.step {
            Step::Pack(pack) => return self.fail_pack(flight.job, pack, &fault),
            _ => flight,
        };
        if purpose == Purpose::Commit && self.rename_refused(&flight, &fault) {
            return;
        }
        let gone = matches!(purpose, Purpose::Make | Purpose::Commit) && fault.code == FaultCode::NotFound;
        if gone && matches!(flight.step, Step::Commit(CommitStep::Asked { again: true, .. })) {
            return self.check_named(flight, fault);
        }
        // Nobody would go on with it.
        let spoilt = fault.code == FaultCode::NotAsExpected || purpose == Purpose::Commit;
        match flight.temporary().filter(|_| spoilt) {
            Some(temporary) => self.throw_away(&flight.job, fault, Some(temporary.to_vec())),
            None => self.refuse(&flight.job, fault),
        }
    }

    /// The same of a transfer.
    fn moved_badly(&mut self, flight: Flight, purpose: Purpose, fault: Fault) {
        let is_pack = matches!(flight.step, Step::Pack(_));
        if !is_pack && self.try_streams(&flight, &fault) {
            return self.backlog.push_front(flight.job);
        }
        let in_place = self.writes_in_place();
        if self.flights.is_empty() && self.avoid(&flight, &fault) {
            self.pair = None;
        }
        self.fail(flight, purpose, fault, in_place, false);
    }
}

/// A local mover can be told at once that its transfer is over.
fn abort_local(pair: &mut Pair, flight: &Flight) {
    for &(role, id, purpose) in flight.waiting.iter().filter(|(_, _, purpose)| purpose.moves_data()) {
        if let End::Local(local) = pair.end(role)
            && purpose != Purpose::Connect
            && let Err(fault) = local.abort(id)
        {
            tracing::warn!(%fault, "the local end cannot be told to stop");
        }
    }
}

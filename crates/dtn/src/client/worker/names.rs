//! Temporary names at servers that keep no unfinished files: what refuses them, and what is left there.

use whimbrel_engine::transfer::{Input, Job};
use whimbrel_engine::{Fault, RangeSet};

use super::Worker;
use super::manner::refuses_name;
use crate::client::chunk;
use crate::client::flight::{CommitStep, Flight, Purpose, Step, Store};

impl Worker {
    /// Whether a destination has refused to store under a temporary name, and it is worth trying once more: first after what
    /// is left there was removed, then under the final name.
    pub(super) fn other_name(&mut self, flight: &Flight, fault: &Fault) -> bool {
        // What was opened has that name: something else is wrong.
        let refused = flight.transfer.store() == Store::Refused && refuses_name(fault);
        let temporary = flight.unfinished_name().filter(|_| refused);
        let Some(temporary) = temporary.map(<[u8]>::to_vec) else { return false };
        let item = &flight.job.item;
        let route = self.shared.route(item.root);
        if self.cleared.insert(temporary.clone()) {
            self.shared.renames_whole(item.id);
            self.spoilt.push((route, temporary));
            return true;
        }
        // What must be checked before it has its name is written nowhere else.
        if self.shared.expected(item).is_some() {
            return false;
        }
        self.shared.refuse_temporary(&route, &item.destination, fault.clone());
        true
    }

    /// A destination has refused to rename what is proven: whether that may be the name's fault, so that the file is moved
    /// once more, to its final one.
    pub(super) fn rename_refused(&mut self, flight: &Flight, fault: &Fault) -> bool {
        let item = &flight.job.item;
        let Some(temporary) = flight.unfinished_name() else { return false };
        if !refuses_name(fault) || self.shared.expected(item).is_some() {
            return false;
        }
        let route = self.shared.route(item.root);
        self.shared.refuse_temporary(&route, &item.destination, fault.clone());
        self.spoilt.push((route, temporary.to_vec()));
        let attempt = flight.job.attempt;
        if flight.file().is_some() {
            self.shared.sidecars.end(attempt.item, true);
            self.shared.give_up(item, temporary);
            self.late.push(Input::ItemWhole { attempt });
        } else {
            self.shared.renames_whole(item.id);
            self.backlog.push_front(flight.job.clone());
        }
        true
    }

    /// What was to be renamed is gone, and it was asked for before: perhaps only the answer was lost. Compares what has the
    /// final name.
    pub(super) fn check_named(&mut self, mut flight: Flight, fault: Fault) {
        let file = flight.file().cloned();
        let orders = file.as_ref().and_then(|file| chunk::check_named(&flight.job, file));
        let (Some(file), Some(orders)) = (file, orders) else { return self.refuse(&flight.job, fault) };
        flight.to_ask = orders.into();
        flight.step = Step::Commit(CommitStep::Comparing { file, found: None });
        self.flights.push_back(flight);
        self.ask_more(self.flights.len() - 1, Purpose::Found);
    }

    /// The same attempt once more, and not under `temporary`, which is removed first: it has found out how, and nothing was
    /// wrong.
    pub(super) fn begin_anew(&mut self, flight: Flight, temporary: Option<Vec<u8>>) {
        let item = &flight.job.item;
        self.shared.renames_whole(item.id);
        let route = self.shared.route(item.root);
        self.spoilt.extend(temporary.map(|name| (route, name)));
        self.backlog.push_front(flight.job);
    }

    /// Reports a failure of which nothing is kept, once what has the temporary name is removed.
    pub(super) fn throw_away(&mut self, job: &Job, fault: Fault, temporary: Option<Vec<u8>>) {
        let route = self.shared.route(job.item.root);
        if temporary.is_some() {
            self.shared.renames_whole(job.attempt.item);
        }
        self.spoilt.extend(temporary.map(|name| (route, name)));
        self.late.push(Input::ItemFailed { attempt: job.attempt, fault, received: RangeSet::new() });
    }
}

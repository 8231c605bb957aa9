//! One session of a copy: takes orders, keeps as many in the air as it is given, reports.
//!
//! Transfers over one set of data connections are told apart only by their order. When one fails,
//! nothing behind it can be trusted: the session starts anew, repeats those, and for a while sends
//! no command ahead.

mod chunked;
mod connections;
mod itself;
mod landing;
mod manner;
mod names;
mod opening;
mod packs;
mod recovery;

use std::collections::{HashSet, VecDeque};
use std::rc::Rc;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep_until};
use whimbrel_engine::progress::Verification;
use whimbrel_engine::transfer::{Attempt, Input, Job, Phase, Slot, Work};
use whimbrel_engine::{Fault, FaultCode, RangeSet};
use whimbrel_proto::op::{Notice, OpId, Outcome};

use self::connections::{ends_session, moves_data};
use self::itself::may_be_itself;
use self::manner::{hopeless, is_safe, manner, unverified};
use self::packs::Gathered;
use super::chunk;
use super::end::End;
use super::flight::{self, Flight, Order, Purpose, Step};
use super::pair::{Pair, Role};
use super::remote::EndEvent;
use super::shared::{Route, Shared};
use super::sidecar::Found;
use super::whole::{self, Whole};

pub use self::packs::Pack;

/// Most attempts in the air, a pack being one: a server of another kind takes at most 500 commands ahead, and a file is up to six.
const MOST_AHEAD: usize = 64;

/// One session.
pub struct Worker {
    slot: Slot,
    shared: Rc<Shared>,
    jobs: UnboundedReceiver<Job>,
    reports: UnboundedSender<Input>,
    pair: Option<(Rc<Route>, Pair)>,
    backlog: VecDeque<Job>,
    flights: VecDeque<Flight>,
    careful: u32,
    /// An end refused to take small files together.
    unpacked: bool,
    /// When what fails is given up without a word from the other end.
    grace: Option<Instant>,
    /// Files at the destination that hold nothing, or another file's bytes.
    spoilt: Vec<(Rc<Route>, Vec<u8>)>,
    /// Reports that wait until those files are removed.
    late: Vec<Input>,
    /// Temporary names that were refused and cleared away: what was left there may have been in the way.
    cleared: HashSet<Vec<u8>>,
    /// What earlier runs left, and by whom it is told.
    claims: UnboundedReceiver<(Attempt, Option<Found>)>,
    claim: UnboundedSender<(Attempt, Option<Found>)>,
    /// A destination that may still write: until it has closed its session, nothing is tried again.
    leaving: Option<End>,
}

/// The session cannot go on.
struct Lost(Fault);

impl Worker {
    /// A session that is not open yet.
    pub fn new(slot: Slot, shared: Rc<Shared>, jobs: UnboundedReceiver<Job>, reports: UnboundedSender<Input>) -> Self {
        let (claim, claims) = unbounded_channel();
        Self {
            slot,
            shared,
            jobs,
            reports,
            pair: None,
            backlog: VecDeque::new(),
            flights: VecDeque::new(),
            careful: 0,
            unpacked: false,
            grace: None,
            spoilt: Vec::new(),
            late: Vec::new(),
            cleared: HashSet::new(),
            claims,
            claim,
            leaving: None,
        }
    }

    /// Works until no more orders can come or the session is lost.
    pub async fn run(mut self) {
        if let Err(Lost(fault)) = self.work().await {
            self.report(Input::SessionLost { slot: self.slot, fault });
        }
    }

    async fn work(&mut self) -> Result<(), Lost> {
        // With several pairs of ends, the orders tell which to open.
        if let Some(route) = self.shared.only_route() {
            self.open(route).await.map_err(Lost)?;
        }
        self.report(Input::SessionReady { slot: self.slot });
        loop {
            self.clean().await;
            self.launch().await?;
            let deadline = self.grace;
            tokio::select! {
                job = self.jobs.recv() => match job {
                    Some(job) => {
                        self.backlog.push_back(job);
                        // What came with it can move with it.
                        while let Ok(job) = self.jobs.try_recv() {
                            self.backlog.push_back(job);
                        }
                    }
                    None => return Ok(()),
                },
                (role, event) = next_event(&mut self.pair) => self.take(role, event)?,
                Some((attempt, found)) = self.claims.recv() => self.claimed(attempt, found.as_ref()),
                () = until(deadline) => self.collapse(),
            }
        }
    }

    fn report(&self, input: Input) {
        // The driver drops its end only when the run is over.
        let _ = self.reports.send(input);
    }

    async fn open(&mut self, route: Rc<Route>) -> Result<(), Fault> {
        self.pair = None;
        let pair = self.shared.open_pair(&route).await?;
        self.pair = Some((route, pair));
        Ok(())
    }

    /// Sends as many waiting orders as may be in the air together.
    async fn launch(&mut self) -> Result<(), Lost> {
        while self.grace.is_none()
            && let Some(next) = self.next()
        {
            let route = self.shared.route(self.backlog[next].item.root);
            self.steer();
            let job = &self.backlog[next];
            let alone = self.flights.is_empty();
            if !alone && (self.careful > 0 || !self.fits(&route, job)) {
                break;
            }
            let job = self.backlog.remove(next).expect("the loop looked at it");
            if self.pair.as_ref().is_none_or(|(open, _)| *open != route)
                && let Err(fault) = self.open(route).await
            {
                self.refuse(&job, fault);
                continue;
            }
            let gathered = self.companions(&job);
            self.start(job, gathered).await?;
        }
        Ok(())
    }

    /// Whether the order can follow what is in the air without waiting.
    ///
    /// Behind a file that it refuses, a stock source sends the next one over the same connections, where the
    /// destination takes it for the refused one: that must be noticed before it has a name. Ours closes the connections
    /// instead, so that nothing can be misplaced.
    fn fits(&self, route: &Rc<Route>, job: &Job) -> bool {
        let Some((open, pair)) = &self.pair else { return false };
        let stock_source = !pair.source.has("DCNONCE");
        if self.flights.len() >= MOST_AHEAD {
            return false;
        }
        let unsafe_one = |flight: &Flight| moves_data(&flight.job) && !flight.is_safe;
        let misplaces = moves_data(job) && stock_source;
        if misplaces && (self.flights.iter().any(unsafe_one) || !is_safe(pair, &self.shared, job)) {
            return false;
        }
        // What the destination is must be asked first.
        if may_be_itself(pair, &self.shared, job) {
            return false;
        }
        open == route && (!moves_data(job) || pair.wire.is_some_and(|wire| wire.reusable))
    }

    fn refuse(&self, job: &Job, fault: Fault) {
        self.report(Input::ItemFailed { attempt: job.attempt, fault, received: RangeSet::new() });
    }

    async fn start(&mut self, job: Job, gathered: Option<Gathered>) -> Result<(), Lost> {
        if let Some(fault) = self.loses_source(&job).await {
            self.refuse(&job, fault);
            return Ok(());
        }
        let connecting = match self.connect_for(&job).await {
            Ok(connecting) => connecting,
            Err(fault) if ends_session(&fault) => return Err(Lost(fault)),
            Err(fault) => {
                let others = gathered.iter().flat_map(|gathered| &gathered.others);
                std::iter::once(&job).chain(others).for_each(|job| self.refuse(job, fault.clone()));
                return Ok(());
            }
        };
        match gathered {
            Some(gathered) => self.start_pack(job, gathered, connecting),
            None if chunk::is_step(&job) => self.start_chunked(job, connecting),
            None => self.start_alone(job, connecting),
        }
        Ok(())
    }

    /// Anything but a step of a file in chunks.
    fn start_alone(&mut self, mut job: Job, connecting: Option<(Role, OpId)>) {
        let Some((_, pair)) = &mut self.pair else { return };
        let mut whole = None;
        if job.work == Work::Copy {
            job.received = self.shared.still_there(job.attempt.item, job.received);
            whole = self.shared.whole(&job.item);
        }
        let (manner, whole) = manner(pair, &self.shared, &job, whole);
        let missing_proof = matches!(&manner.proof, Err(Verification::Unverified { .. })) && job.work == Work::Copy;
        let required = self.shared.options.verify.is_required() || whole.as_ref().is_some_and(Whole::is_wanted);
        if missing_proof && required {
            return self.refuse(&job, unverified(&job, &manner));
        }
        if let Some(fault) = hopeless(&job, whole.as_ref(), pair, &self.shared) {
            return self.refuse(&job, fault);
        }
        if let Some(temporary) = manner.named.temporary() {
            self.shared.whole_begins(&job.item, temporary);
        }
        let orders = flight::orders(&job, &manner);
        let step = Step::alone(&job, &manner);
        let mut flight = Flight::new(job, &manner, step);
        flight.whole = whole.map(Box::new);
        self.submit(flight, connecting, orders);
    }

    /// Has the operations of an attempt in the air, behind the one that agrees on data connections.
    fn submit(&mut self, mut flight: Flight, connecting: Option<(Role, OpId)>, orders: Vec<Order>) {
        let Some((_, pair)) = &mut self.pair else { return };
        flight.waiting.extend(connecting.map(|(role, id)| (role, id, Purpose::Connect)));
        hand_over(pair, &mut flight, orders);
        let hopeless = flight.transfer_failed() && !flight.waiting.is_empty();
        self.flights.push_back(flight);
        if hopeless {
            // One end waits for a transfer that the other was never told about.
            self.grace = Some(Instant::now());
            return;
        }
        let index = self.flights.len() - 1;
        if self.flights[index].is_answered() {
            self.go_on(index);
        }
        if self.flights[index].is_answered() {
            self.land(index);
        }
    }

    fn take(&mut self, role: Role, event: Result<(OpId, EndEvent), Fault>) -> Result<(), Lost> {
        let (id, event) = event.map_err(|fault| Lost(fault.side_if_unknown(role.side())))?;
        let position = |flight: &Flight| flight.waiting.iter().position(|&(r, i, _)| r == role && i == id);
        let Some((index, at)) =
            self.flights.iter().enumerate().find_map(|(index, f)| position(f).map(|at| (index, at)))
        else {
            return Ok(());
        };
        match event {
            EndEvent::Notice(notice) => self.news(index, at, &notice),
            EndEvent::Done(result) => {
                let (_, _, purpose) = self.flights[index].waiting.swap_remove(at);
                let result = self.judge(index, purpose, result);
                self.flights[index].answer(role, purpose, result.map_err(|fault| fault.side_if_unknown(role.side())));
                self.advance(index, purpose);
            }
        }
        Ok(())
    }

    /// A destination that was told what to expect has found another file: damaged, or the source has another.
    fn judge(&self, index: usize, purpose: Purpose, result: Result<Outcome, Fault>) -> Result<Outcome, Fault> {
        let flight = &self.flights[index];
        let expected = flight.whole.as_ref().is_some_and(|whole| whole.is_expected());
        result.map_err(|fault| match purpose {
            _ if !expected || fault.code != FaultCode::ChecksumMismatch => fault,
            // Its leaves are proven: it is what the source has.
            Purpose::Commit => whole::not_as_expected(&flight.job, fault.detail),
            Purpose::Store if self.shared.said_before(flight.job.item.id, &fault.detail) => {
                whole::not_as_expected(&flight.job, fault.detail)
            }
            _ => fault,
        })
    }

    /// An end tells how an operation goes.
    fn news(&mut self, index: usize, at: usize, notice: &Notice) {
        let flight = &mut self.flights[index];
        let (role, _, purpose) = flight.waiting[at];
        if let Notice::Spent(spent) = notice {
            if let (Role::Source, Some((_, pair))) = (role, &self.pair) {
                self.shared.steer(self.slot.0, pair, spent);
            }
            return self.shared.spent(role, spent);
        }
        let attempt = flight.job.attempt;
        if purpose == Purpose::SourceSum && flight.step.waits_for_source() {
            // Nothing moves while it is hashed, however long that takes.
            return self.report(Input::ItemPhase { attempt, phase: Phase::Verifying });
        }
        let starts = purpose.moves_data() && flight.transfer.starts();
        if purpose == Purpose::Store && flight.transfer_failed() {
            self.grace = Some(Instant::now());
        }
        let progress = flight.notice(purpose, notice).then(|| {
            let tells = matches!(notice, Notice::Ranges(_)) && flight.file().is_none();
            let durable = tells.then(|| flight.transfer.received.clone());
            Input::ItemProgress { attempt, moved: flight.transfer.moved, durable }
        });
        let tells = self.pair.as_ref().is_some_and(|(_, pair)| pair.tells_progress());
        let started = starts.then_some(Input::ItemStarted { attempt, tells });
        started.into_iter().chain(progress).for_each(|input| self.report(input));
    }
}

async fn next_event(pair: &mut Option<(Rc<Route>, Pair)>) -> (Role, Result<(OpId, EndEvent), Fault>) {
    match pair {
        Some((_, pair)) => pair.event().await,
        None => std::future::pending().await,
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

/// Gives operations to their ends, up to the first one that cannot be sent.
fn hand_over(pair: &mut Pair, flight: &mut Flight, orders: impl IntoIterator<Item = Order>) {
    for Order { role, purpose, op } in orders {
        match pair.end(role).submit(op) {
            Ok(id) => flight.waiting.push((role, id, purpose)),
            Err(fault) => return flight.fail(purpose, fault.side_if_unknown(role.side())),
        }
    }
}

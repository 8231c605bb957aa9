//! One session of a copy: takes orders, keeps as many in the air as it is given, reports.
//!
//! Transfers over one set of data connections are told apart only by their order. When one fails,
//! nothing behind it can be trusted: the session starts anew, repeats those, and for a while sends
//! no command ahead.

mod chunked;
mod manner;
mod names;
mod packs;

use std::collections::{HashSet, VecDeque};
use std::rc::Rc;
use std::time::Duration;

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep_until};
use whimbrel_engine::progress::Verification;
use whimbrel_engine::transfer::{Attempt, Input, Job, Phase, Slot, Work};
use whimbrel_engine::{Fault, FaultCode, RangeSet, Side};
use whimbrel_proto::op::{Mode, Notice, Op, OpId, Outcome};

use self::manner::{hopeless, is_safe, leaves_holes_out, manner, unverified};
use self::names::move_again;
use super::chunk;
use super::end::End;
use super::flight::{self, Flight, Order, Part};
use super::pair::{DataWish, Pair, Role};
use super::remote::EndEvent;
use super::shared::{Route, Shared};
use super::whole::{self, Whole};

use self::packs::Gathered;
pub use self::packs::Pack;

/// Transfers made one by one after a failure among pipelined ones.
const CAREFUL: u32 = 16;

/// How long an end may take to say why the other one failed.
const REASON_GRACE: Duration = Duration::from_secs(3);

/// Most attempts in the air, a pack being one: a server of another kind takes at most 500 commands ahead, and a file is up to six.
const MOST_AHEAD: usize = 64;

/// How long a server may take to close a session: until then it may still do what it was told.
const LEAVING: Duration = Duration::from_secs(5);

/// How long a source may take to notice that its destination refused.
const REFUSED_GRACE: Duration = Duration::from_secs(1);

/// One session.
pub struct Worker {
    slot: Slot,
    shared: Rc<Shared>,
    jobs: UnboundedReceiver<Job>,
    reports: UnboundedSender<Input>,
    pair: Option<(Route, Pair)>,
    backlog: VecDeque<Job>,
    flights: VecDeque<Flight>,
    careful: u32,
    /// An end refused to take small files together.
    unpacked: bool,
    /// When what fails is given up without a word from the other end.
    grace: Option<Instant>,
    /// Files at the destination that hold nothing, or another file's bytes.
    spoilt: Vec<(Route, Vec<u8>)>,
    /// Reports that wait until those files are removed.
    late: Vec<Input>,
    /// Temporary names that were refused and cleared away: what was left there may have been in the way.
    cleared: HashSet<Vec<u8>>,
    /// What sidecars say, and by whom it is told.
    claims: UnboundedReceiver<(Attempt, Option<Vec<u8>>)>,
    claim: UnboundedSender<(Attempt, Option<Vec<u8>>)>,
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
                Some((attempt, bytes)) = self.claims.recv() => self.claimed(attempt, bytes.as_deref()),
                () = until(deadline) => self.collapse(),
            }
        }
    }

    fn report(&self, input: Input) {
        // The driver drops its end only when the run is over.
        let _ = self.reports.send(input);
    }

    async fn open(&mut self, route: Route) -> Result<(), Fault> {
        self.pair = None;
        let pair = self.shared.open_pair(&route).await?;
        self.pair = Some((route, pair));
        Ok(())
    }

    /// Sends as many waiting orders as may be in the air together.
    async fn launch(&mut self) -> Result<(), Lost> {
        while self.grace.is_none()
            && let Some(job) = self.backlog.front()
        {
            let route = self.shared.route(job.item.root);
            self.steer();
            let job = self.backlog.front().expect("the loop looked at it");
            let alone = self.flights.is_empty();
            if !alone && (self.careful > 0 || !self.fits(&route, job)) {
                break;
            }
            let job = self.backlog.pop_front().expect("the loop looked at it");
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

    /// Has new data connections made when another congestion control is wanted: it is frozen in those that stand.
    fn steer(&mut self) {
        let Some((_, pair)) = &mut self.pair else { return };
        if let Some(wire) = &mut pair.wire
            && wire.reusable
            && self.shared.wish_of(self.slot.0).congestion != pair.congestion
        {
            wire.reusable = false;
        }
    }

    /// Whether the order can follow what is in the air without waiting.
    ///
    /// Behind a file that it refuses, a stock source sends the next one over the same connections, where the
    /// destination takes it for the refused one: that must be noticed before it has a name. Ours closes the connections
    /// instead, so that nothing can be misplaced.
    fn fits(&self, route: &Route, job: &Job) -> bool {
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
        open == route && (!moves_data(job) || pair.wire.is_some_and(|wire| wire.reusable))
    }

    fn refuse(&self, job: &Job, fault: Fault) {
        self.report(Input::ItemFailed { attempt: job.attempt, fault, received: RangeSet::new() });
    }

    /// Removes what failed transfers left under final names, then reports the failures: the session
    /// may be closed as soon as its last failure is known.
    async fn clean(&mut self) {
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

    async fn remove(&mut self, route: Route, path: Vec<u8>) -> Result<(), Fault> {
        if self.pair.as_ref().is_none_or(|(open, _)| *open != route) {
            self.open(route).await?;
        }
        match &mut self.pair {
            Some((_, pair)) => pair.destination.run(Op::Delete(path)).await.map(drop),
            None => Ok(()),
        }
    }

    /// Reports a failed transfer; what it left at a destination that writes in place goes first.
    fn fail(&mut self, mut flight: Flight, part: Part, fault: Fault, in_place: bool, misplaced: bool) {
        if let Some(pack) = flight.pack.take() {
            return self.fail_pack(flight.job, pack, &fault);
        }
        if let Some(file) = &flight.file {
            if fault.side != Some(Side::Network) {
                file.suspect();
            }
            if part == Part::Store && self.other_name(&flight, &fault) {
                self.shared.sidecars.end(flight.job.attempt.item, true);
                return self.late.push(Input::ItemWhole { attempt: flight.job.attempt });
            }
            // The unfinished copy stays: what is proven there need not be moved again.
            let attempt = flight.job.attempt;
            return self.late.push(Input::ItemFailed { attempt, fault, received: RangeSet::new() });
        }
        if part == Part::Store && self.other_name(&flight, &fault) {
            return self.backlog.push_front(flight.job);
        }
        let refused = part == Part::Send && fault.side == Some(Side::Source) && !fault.is_temporary();
        // A store that was refused left what was there before.
        let empty = in_place && !flight.store_refused && flight.received.is_empty();
        if refused && (misplaced || empty) {
            let route = self.shared.route(flight.job.item.root);
            self.spoilt.push((route, flight.target().to_vec()));
        }
        self.late.push(Input::ItemFailed { attempt: flight.job.attempt, fault, received: flight.received });
    }

    async fn start(&mut self, job: Job, gathered: Option<Gathered>) -> Result<(), Lost> {
        let Some((_, pair)) = &mut self.pair else { return Ok(()) };
        let mut connecting = None;
        if needs_wire(&job, pair) && pair.wire.is_none_or(|wire| !wire.reusable) {
            connecting = match connect(pair, &self.shared.wish_of(self.slot.0)).await {
                Ok(connecting) => Some(connecting),
                Err((role, fault)) if ends_session(&fault) => return Err(Lost(fault.side_if_unknown(role.side()))),
                Err((role, fault)) => {
                    let fault = fault.side_if_unknown(role.side());
                    let others = gathered.iter().flat_map(|gathered| &gathered.others);
                    std::iter::once(&job).chain(others).for_each(|job| self.refuse(job, fault.clone()));
                    return Ok(());
                }
            };
        }
        if let Some(gathered) = gathered {
            self.start_pack(job, gathered, connecting);
            return Ok(());
        }
        if chunk::is_step(&job) {
            self.start_chunked(job, connecting);
            return Ok(());
        }
        let whole = if job.work == Work::Copy { self.shared.whole(&job.item) } else { None };
        let (manner, whole) = manner(pair, &self.shared, &job, whole);
        let missing_proof = matches!(&manner.proof, Err(Verification::Unverified { .. })) && job.work == Work::Copy;
        let required = self.shared.options.verify.is_required() || whole.as_ref().is_some_and(Whole::is_wanted);
        if missing_proof && required {
            self.refuse(&job, unverified(&job, &manner));
            return Ok(());
        }
        if let Some(fault) = hopeless(&job, whole.as_ref(), pair, &self.shared) {
            self.refuse(&job, fault);
            return Ok(());
        }
        let orders = flight::orders(&job, &manner);
        let mut flight = Flight::new(job, &manner);
        flight.whole = whole.map(Box::new);
        flight.waiting.extend(connecting.map(|(role, id)| (role, id, Part::Connect)));
        self.submit(flight, orders);
        Ok(())
    }

    fn submit(&mut self, mut flight: Flight, orders: Vec<Order>) {
        let Some((_, pair)) = &mut self.pair else { return };
        for order in orders {
            if !hand_over(pair, &mut flight, order) {
                break;
            }
        }
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
                let (_, _, part) = self.flights[index].waiting.swap_remove(at);
                let result = self.judge(index, part, result);
                self.flights[index].answer(role, part, result.map_err(|fault| fault.side_if_unknown(role.side())));
                self.advance(index, part);
            }
        }
        Ok(())
    }

    /// A destination that was told what to expect has found another file: damaged, or the source has another.
    fn judge(&self, index: usize, part: Part, result: Result<Outcome, Fault>) -> Result<Outcome, Fault> {
        let flight = &self.flights[index];
        let expected = flight.whole.as_ref().is_some_and(|whole| whole.is_expected());
        result.map_err(|fault| match part {
            _ if !expected || fault.code != FaultCode::ChecksumMismatch => fault,
            // Its leaves are proven: it is what the source has.
            Part::Commit => whole::not_as_expected(&flight.job, fault.detail),
            Part::Store if self.shared.said_before(flight.job.item.id, &fault.detail) => {
                whole::not_as_expected(&flight.job, fault.detail)
            }
            _ => fault,
        })
    }

    fn news(&mut self, index: usize, at: usize, notice: &Notice) {
        let flight = &mut self.flights[index];
        let part = flight.waiting[at].2;
        if let Notice::Spent(spent) = notice {
            let role = flight.waiting[at].0;
            if let (Role::Source, Some((_, pair))) = (role, &self.pair) {
                self.shared.steer(self.slot.0, || pair.congestions(), spent);
            }
            return self.shared.spent(role, spent);
        }
        if !flight.started && part.moves_data() {
            flight.started = true;
            let attempt = flight.job.attempt;
            self.report(Input::ItemStarted { attempt });
        }
        let flight = &mut self.flights[index];
        if part == Part::Store && flight.transfer_failed() {
            self.grace = Some(Instant::now());
        }
        if flight.notice(part, notice) {
            let tells = matches!(notice, Notice::Ranges(_)) && flight.file.is_none();
            let durable = tells.then(|| flight.received.clone());
            let (attempt, moved) = (flight.job.attempt, flight.moved);
            self.report(Input::ItemProgress { attempt, moved, durable });
        }
    }

    /// An operation of a flight has been answered: what follows from it.
    fn advance(&mut self, index: usize, part: Part) {
        let flight = &self.flights[index];
        if flight.transfer_failed() {
            return self.transfer_failed(index);
        }
        let moved_all = part.moves_data() && flight.stored && !flight.transfer_open();
        if moved_all && !flight.waiting.is_empty() {
            self.report(Input::ItemPhase { attempt: flight.job.attempt, phase: Phase::Verifying });
        }
        let named = flight.whole.as_ref().is_none_or(|whole| whole.readable.is_none());
        let alone = flight.file.is_none() && flight.pack.is_none();
        if moved_all && !flight.attributes_sent && alone && named {
            self.set_attributes(index);
        }
        self.go_ahead(index);
        self.ask_more(index, part);
        self.settle(index);
    }

    /// What follows once everything that was asked is answered.
    fn settle(&mut self, index: usize) {
        if self.flights[index].is_answered() {
            self.examine(index);
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
        for order in flight.go_ahead().unwrap_or_default() {
            if !hand_over(pair, flight, order) {
                break;
            }
        }
    }

    /// A whole file is moved and proven: its digests, and its name if that has waited for them.
    fn go_on(&mut self, index: usize) {
        let required = self.shared.options.verify.is_required();
        let flight = &mut self.flights[index];
        let Some((_, pair)) = &mut self.pair else { return };
        while flight.is_answered() && flight.failure.is_none() && !matches!(flight.job.work, Work::Chunk { .. }) {
            match flight.next_step(&pair.destination, required) {
                None => return,
                Some(Ok(orders)) => {
                    for order in orders {
                        if !hand_over(pair, flight, order) {
                            break;
                        }
                    }
                }
                Some(Err(fault)) => flight.fail(Part::Commit, fault),
            }
        }
    }

    fn set_attributes(&mut self, index: usize) {
        let flight = &mut self.flights[index];
        flight.attributes_sent = true;
        let Some((_, pair)) = &mut self.pair else { return };
        for order in flight::attribute_orders(&flight.job, &flight.job.item.destination, flight.time_with_store) {
            hand_over(pair, flight, order);
        }
    }

    /// The ends have said what is a hole and what there is room for: tells the destination what need not come.
    fn keep_holes(&mut self, index: usize) {
        let flight = &mut self.flights[index];
        let (Some((_, pair)), Some((place, _)), None) = (&mut self.pair, &flight.opened, &flight.failure) else {
            return;
        };
        if let (Some((_, data)), Some(room)) = (&flight.holes.source, flight.holes.storage.room)
            && *data > room
        {
            let fault = Fault::new(FaultCode::NoSpace, "open for chunks").on_path(&flight.job.item.destination);
            let detail = format!("{data} bytes of data, room for {room}; nothing was moved");
            return flight.fail(Part::Open, fault.side(Side::Destination).detail(detail));
        }
        let holes = flight.holes.to_tell();
        if holes.is_empty() || !flight.holes.told.is_empty() || !leaves_holes_out(pair) {
            return;
        }
        let orders = chunk::keep_holes(&flight.job, place, holes.as_slice());
        flight.holes.told = holes;
        for order in orders {
            hand_over(pair, flight, order);
        }
    }

    /// The other end may say why; what is behind on the same data connections is lost.
    fn transfer_failed(&mut self, index: usize) {
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
        let patience = match flight.failure.as_ref().map(|(part, fault)| (*part, fault.side)) {
            Some((_, Some(Side::Network | Side::Peer))) => REASON_GRACE,
            // Whether the destination opened the file decides what is left there.
            Some((Part::Send, _)) if flight.store_opened || !in_place => Duration::ZERO,
            _ => REFUSED_GRACE,
        };
        self.grace.get_or_insert(Instant::now() + patience);
    }

    /// Gives the sessions up after a failed transfer: reports it, and repeats what was behind it.
    fn collapse(&mut self) {
        self.grace = None;
        let in_place = self.writes_in_place();
        self.leaving = self.pair.take().map(|(_, pair)| pair.destination).filter(|end| !end.has("DCNONCE"));
        self.careful = CAREFUL;
        let shared_wire = self.flights.len() > 1;
        let flights = std::mem::take(&mut self.flights);
        let first = flights.iter().position(Flight::transfer_failed);
        for (index, mut flight) in flights.into_iter().enumerate().rev() {
            match flight.failure.take() {
                // What failed behind the first one failed because of it.
                Some((part, fault)) if Some(index) == first => {
                    let misplaced = shared_wire && flight.stored;
                    self.fail(flight, part, fault, in_place, misplaced);
                }
                _ => {
                    for job in flight.pack.take().map(|pack| pack.others).unwrap_or_default().into_iter().rev() {
                        self.backlog.push_front(job);
                    }
                    self.backlog.push_front(flight.job);
                }
            }
        }
    }

    /// Whether the destination gives unfinished files their final names; ours does not.
    fn writes_in_place(&self) -> bool {
        self.pair.as_ref().is_some_and(|(_, pair)| !pair.destination.has("DCNONCE"))
    }

    /// Everything about a flight is answered.
    fn land(&mut self, index: usize) {
        let Some(mut flight) = self.flights.remove(index) else { return };
        let attempt = flight.job.attempt;
        if let Some((part, fault)) = flight.failure.take() {
            return self.landed_badly(flight, part, fault);
        }
        if let Some(pack) = flight.pack.take() {
            return self.land_pack(flight, pack);
        }
        if chunk::is_step(&flight.job) {
            return self.land_chunked(flight);
        }
        if flight.job.work == Work::Compare {
            return self.report(Input::ItemCompared { attempt, equal: flight.sums_agree() });
        }
        if flight.job.work == Work::MakeDirectory && !flight.existed {
            self.shared.directory_made(&flight.job.item);
        }
        if flight.job.work != Work::Copy {
            return self.report(Input::ItemDone { attempt, bytes: 0, verified: Verification::NotAsked });
        }
        if flight.told_first.is_some() {
            // The source has no checksum for it after all: it moves alone, and is not proven.
            self.shared.refuse_sums(&self.shared.route(flight.job.item.root));
            return self.backlog.push_front(flight.job);
        }
        let temporary = flight.temporary().map(<[u8]>::to_vec);
        if flight.is_written_to && temporary.is_some() {
            self.shared.write_to(&flight.job.item, flight.is_device);
            let fault = move_again(&flight.job, "a device, a pipe or a link has the final name: it is written to");
            return self.throw_away(&flight.job, fault, temporary);
        }
        let verdict = flight.verdict();
        self.finish_copy(&flight.job, verdict, flight.moved, flight.is_wanted(), temporary);
    }

    /// Reports a copy whose transfer went well; `moved` bytes were seen moving. What is not good is not left under
    /// `temporary`.
    fn finish_copy(
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
                let expected = job.item.size.map(|size| size.saturating_sub(job.received.len()));
                let bytes = expected.unwrap_or(moved).max(moved);
                self.report(Input::ItemDone { attempt: job.attempt, bytes, verified });
            }
            // Nothing of a damaged copy can be kept.
            Err(fault) => self.throw_away(job, fault, temporary),
        }
    }

    fn landed_badly(&mut self, mut flight: Flight, part: Part, fault: Fault) {
        if let Some(pack) = flight.pack.take() {
            return self.fail_pack(flight.job, pack, &fault);
        }
        if part.moves_data() && self.try_streams(&flight, &fault) {
            self.backlog.push_front(flight.job);
            return;
        }
        if part.moves_data() {
            let in_place = self.writes_in_place();
            return self.fail(flight, part, fault, in_place, false);
        }
        let temporary = flight.temporary().map(<[u8]>::to_vec);
        if part == Part::Commit && self.rename_refused(&flight, &fault) {
            return;
        }
        let gone = matches!(part, Part::Make | Part::Commit) && fault.code == FaultCode::NotFound;
        if gone && flight.renamed_before {
            return self.check_named(flight, fault);
        }
        // Nobody would go on with it.
        let spoilt = temporary.filter(|_| fault.code == FaultCode::NotAsExpected || part == Part::Commit);
        match spoilt {
            Some(temporary) => self.throw_away(&flight.job, fault, Some(temporary)),
            None => self.refuse(&flight.job, fault),
        }
    }

    /// A server that cannot connect to us may still let us connect to it, which takes stream mode.
    fn try_streams(&mut self, flight: &Flight, fault: &Fault) -> bool {
        let Some((route, pair)) = &mut self.pair else { return false };
        let here = matches!(pair.destination, End::Local(_)) && matches!(pair.source, End::Remote(_));
        let unreachable = fault.side == Some(Side::Network) || fault.code == FaultCode::NotSupported;
        let worth = here && unreachable && flight.moved == 0 && !pair.stream_only && pair.mode() == Mode::Extended;
        if worth {
            tracing::warn!(%fault, "the server cannot connect to this host; using passive stream mode");
            pair.stream_only = true;
            self.shared.use_streams(route);
        }
        worth
    }
}

async fn next_event(pair: &mut Option<(Route, Pair)>) -> (Role, Result<(OpId, EndEvent), Fault>) {
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

/// Whether the job needs data connections.
fn moves_data(job: &Job) -> bool {
    matches!(job.work, Work::Copy | Work::Chunk { .. })
}

/// Whether data connections are to be agreed on now: for a file in chunks already while it is opened, where that takes no
/// round trip, so that they stand when its first part is asked for.
fn needs_wire(job: &Job, pair: &Pair) -> bool {
    moves_data(job) || (matches!(job.work, Work::Open { .. }) && pair.early.is_some())
}

/// Gives one operation to its end; false when it could not be sent.
fn hand_over(pair: &mut Pair, flight: &mut Flight, Order { role, part, op }: Order) -> bool {
    match pair.end(role).submit(op) {
        Ok(id) => flight.waiting.push((role, id, part)),
        Err(fault) => {
            flight.fail(part, fault.side_if_unknown(role.side()));
            return false;
        }
    }
    true
}

/// A local mover can be told at once that its transfer is over.
fn abort_local(pair: &mut Pair, flight: &Flight) {
    for &(role, id, part) in flight.waiting.iter().filter(|(_, _, part)| part.moves_data()) {
        if let End::Local(local) = pair.end(role)
            && part != Part::Connect
            && let Err(fault) = local.abort(id)
        {
            tracing::warn!(%fault, "the local end cannot be told to stop");
        }
    }
}

async fn connect(pair: &mut Pair, wish: &DataWish) -> Result<(Role, OpId), (Role, Fault)> {
    match pair.connect(wish).await {
        Err((_, fault)) if pair.mode() == Mode::Extended && fault.code == FaultCode::NotSupported => {
            tracing::info!(%fault, "no extended block mode; using stream mode");
            pair.stream_only = true;
            pair.connect(wish).await
        }
        result => result,
    }
}

fn ends_session(fault: &Fault) -> bool {
    matches!(fault.code, FaultCode::ConnectionLost | FaultCode::TimedOut | FaultCode::ServerBusy)
}

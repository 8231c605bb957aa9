//! A whole copy: plans, drives the transfer machine, opens sessions, reports events.

use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt as _;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::watch;
use tokio::task::LocalSet;
use tokio::time::{interval, sleep_until};
use whimbrel_engine::events::Event;
use whimbrel_engine::listing::{Object, ObjectKind};
use whimbrel_engine::plan::{Action, PlanTotals};
use whimbrel_engine::summary::Summary;
use whimbrel_engine::transfer::{Chunking, Command, Input, Job, Slot, TransferMachine, TransferOptions};
use whimbrel_engine::tune::{self, Fixed, TuneInput};
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::leaf;
use whimbrel_proto::op::{Mode, Op, OpId};

use super::end::described;
use super::options::{Chunks, CopyOptions, Jobs, Place, Verify};
use super::pair::{DataWish, Early, Role, fresh_nonce, listening, params};
use super::plan::{Known, Planning};
use super::remote::Remote;
use super::shared::{Route, Shared};
use super::wildcard;
use super::worker::Worker;

/// Actions planned ahead of the transfer machine.
const PLANNED_AHEAD: usize = 256;

/// What a copy came to.
#[derive(Debug)]
pub enum Report {
    /// It ran.
    Done(Summary),
    /// It was a dry run.
    Planned(PlanTotals),
}

/// Copies; every event goes to `events` in order, the summary included.
///
/// `cancel` turning true ends the run early and orderly. Must run on a current-thread runtime.
///
/// # Errors
/// What stops the command before or while anything is planned; failures of items are in the summary.
pub async fn copy(
    jobs: Jobs,
    options: CopyOptions,
    cancel: watch::Receiver<bool>,
    events: impl FnMut(Event),
) -> Result<Report, Fault> {
    LocalSet::new().run_until(run(jobs, options, cancel, events)).await
}

async fn run(
    jobs: Jobs,
    options: CopyOptions,
    cancel: watch::Receiver<bool>,
    mut events: impl FnMut(Event),
) -> Result<Report, Fault> {
    let preparation = prepare(&jobs, &options).await?;
    let input = tune_input(&jobs, &options, &preparation);
    let tuning = tune::choose(&input);
    let parallelism = u16::try_from(tuning.parallelism.value).unwrap_or(u16::MAX);
    let dry_run = options.dry_run;
    let wish = DataWish { parallelism, stripe: options.stripe };
    let shared = Rc::new(Shared::new(options, wish));
    let known = preparation.leave(&shared).await?;
    let (actions, planned) = mpsc::channel(PLANNED_AHEAD);
    let planning = Planning::new(shared.clone(), actions).run(jobs, known);
    if dry_run {
        return dry(planning, planned, events).await;
    }
    events(Event::Tuned(tuning.clone()));
    let transfer = TransferOptions {
        retry: shared.options.retry.clone(),
        seed: u64::from(std::process::id()),
        chunking: chunking(&shared.options),
        ..TransferOptions::tuned(&input, &tuning)
    };
    Driver::new(shared, transfer).drive(planning, planned, cancel, &mut events).await.map(Report::Done)
}

async fn dry(
    planning: impl Future<Output = Result<(), Fault>>,
    mut planned: mpsc::Receiver<Action>,
    mut events: impl FnMut(Event),
) -> Result<Report, Fault> {
    let mut totals = PlanTotals::default();
    let print = async {
        while let Some(action) = planned.recv().await {
            totals.add(&action);
            events(Event::Plan(action));
        }
    };
    let (result, ()) = tokio::join!(planning, print);
    result?;
    events(Event::PlanTotals(totals));
    Ok(Report::Planned(totals))
}

/// The first pair of sessions with what was asked in the first flight.
#[derive(Default)]
struct Preparation {
    opened: Option<Opened>,
    known: Known,
    control_rtt: Option<Duration>,
}

struct Opened {
    route: Route,
    source: Option<Remote>,
    destination: Option<Remote>,
    early: Option<Early>,
}

impl Preparation {
    /// Leaves the sessions to the first worker.
    async fn leave(self, shared: &Shared) -> Result<Known, Fault> {
        if let Some(opened) = self.opened {
            let mut pair = shared.complete(opened.source, opened.destination).await?;
            pair.early = opened.early;
            shared.leave_prepared(opened.route, pair);
        }
        Ok(self.known)
    }
}

/// Opens the sessions of a copy with one source, and asks in the first flight what planning and the
/// first transfer will want to know.
async fn prepare(jobs: &Jobs, options: &CopyOptions) -> Result<Preparation, Fault> {
    let Jobs::Into { sources, destination } = jobs else { return Ok(Preparation::default()) };
    let [source] = &sources[..] else { return Ok(Preparation::default()) };
    let route = Route { source: source.target.clone(), destination: destination.target.clone() };
    if route.source.is_none() && route.destination.is_none() {
        return Ok(Preparation::default());
    }
    // A listener asked for now saves a round trip; in dry runs none is needed.
    let nonce = if options.dry_run { None } else { Some(fresh_nonce()?) };
    let shared = Shared::new(options.clone(), DataWish { parallelism: 1, stripe: options.stripe });
    let follow_links = options.plan.links == whimbrel_engine::plan::Links::Follow;
    let plain_source = follow_links && !wildcard::has_wildcards(&source.path);
    let source_first: Vec<Op> = plain_source.then(|| facts(source)).into_iter().collect();
    let mut destination_first = vec![facts(destination)];
    destination_first.extend(nonce.map(|nonce| Op::Passive {
        striped: options.stripe,
        family: None,
        params: params(Mode::Extended, shared.wish, Some(nonce)),
    }));
    let started = Instant::now();
    let (source_end, destination_end) = tokio::join!(
        shared.open_server(&route, Role::Source, &source_first),
        shared.open_server(&route, Role::Destination, &destination_first),
    );
    let (mut source_end, mut destination_end) = (source_end?, destination_end?);
    // Two round trips: one to connect, one to log in.
    let control_rtt = Some(started.elapsed() / 2);
    let mut known = Known::default();
    if let Some((remote, ops)) = source_end.as_mut().filter(|(_, ops)| !ops.is_empty()) {
        known.source = answer(remote, ops[0], source, Side::Source).await?;
    }
    let mut early = None;
    if let Some((remote, ops)) = destination_end.as_mut() {
        known.destination = match remote.lacks("MLST") {
            // Asked again by other means.
            true => None,
            false => Some(answer(remote, ops[0], destination, Side::Destination).await?),
        };
        if let Some((nonce, &passive)) = nonce.zip(ops.get(1)) {
            early = early_listener(remote, passive, nonce).await?;
        }
    }
    let opened =
        Opened { route, source: source_end.map(|(r, _)| r), destination: destination_end.map(|(r, _)| r), early };
    Ok(Preparation { opened: Some(opened), known, control_rtt })
}

/// The listener of the first flight; `None` when the server has no extended block mode, say.
async fn early_listener(remote: &mut Remote, passive: OpId, nonce: [u8; 16]) -> Result<Option<Early>, Fault> {
    match remote.finish(passive).await {
        Ok(outcome) => {
            let nonce = remote.nonce_accepted().then_some(nonce);
            Ok(Some(Early { addresses: listening(outcome)?, nonce }))
        }
        Err(fault) if matches!(fault.code, FaultCode::ConnectionLost | FaultCode::TimedOut) => {
            Err(fault.side_if_unknown(Side::Destination))
        }
        Err(_) => Ok(None),
    }
}

fn facts(place: &Place) -> Op {
    Op::Facts { path: place.path.clone(), facts: None }
}

async fn answer(remote: &mut Remote, op: OpId, place: &Place, side: Side) -> Result<Option<Object>, Fault> {
    match described(remote.finish(op).await, &place.path, false) {
        // Some servers refuse MLST of what others can describe: planning asks by other means.
        Err(fault) if fault.code == FaultCode::NotSupported => Ok(None),
        result => result.map_err(|fault| fault.side_if_unknown(side)),
    }
}

/// The size of a source that is one file, as far as it is known without asking anybody.
fn file_size(source: &Place, known: &Known) -> Option<u64> {
    if source.target.is_some() {
        return known
            .source
            .as_ref()
            .filter(|object| object.kind == ObjectKind::File)
            .map(|object| object.size.unwrap_or(0));
    }
    let path = std::path::Path::new(std::ffi::OsStr::from_bytes(&source.path));
    std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file).map(|metadata| metadata.len())
}

fn tune_input(jobs: &Jobs, options: &CopyOptions, preparation: &Preparation) -> TuneInput {
    let size = match jobs {
        Jobs::Into { sources, .. } if sources.len() == 1 => file_size(&sources[0], &preparation.known),
        _ => None,
    };
    let opened = preparation.opened.as_ref();
    let remotes = || opened.into_iter().flat_map(|opened| [&opened.source, &opened.destination]).flatten();
    TuneInput {
        files: u64::from(size.is_some()),
        bytes: size.unwrap_or(0),
        more_to_come: size.is_none(),
        rtt: preparation.control_rtt.and_then(|rtt| data_rtt(rtt, remotes().count() > 1)),
        control_rtt: preparation.control_rtt,
        can_pipeline: options.session.pipelined && remotes().all(Remote::is_pipelined),
        fixed: Fixed {
            concurrency: options.concurrency,
            parallelism: options.parallelism,
            pipeline: options.pipeline,
            buffer: tune::Setting::Auto,
        },
        ..TuneInput::default()
    }
}

/// Round trips below this need one data channel only, wherever they are measured.
const NEAR: Duration = Duration::from_millis(2);

/// Round-trip time of the data path, from that of the slower control connection.
///
/// With this host at one end the data take the path of the commands. Two servers are at most as far from each other as both
/// ways from here together: that proves them near where it is little, and says nothing where it is much.
fn data_rtt(control: Duration, third_party: bool) -> Option<Duration> {
    match third_party {
        false => Some(control),
        true => Some(control * 2).filter(|most| *most < NEAR),
    }
}

/// Chunks in the air for each session: one moves, one is read back, one waits for the destination's word that what was
/// proven is kept, which comes behind the transfer that moves.
const CHUNKS_AHEAD: u32 = 3;

/// Leaves that a sender walks at once.
const LEAVES_AT_ONCE: u64 = 8;

/// How large files move in parts; `None`: whole.
fn chunking(options: &CopyOptions) -> Option<Chunking> {
    let default = Chunking { ahead: CHUNKS_AHEAD, ..Chunking::default() };
    match options.chunks {
        // Without proof there is nothing to keep of a part.
        Chunks::Off => None,
        _ if options.verify == Verify::Never || options.range.is_some() => None,
        // Its nodes share each file by blocks.
        _ if options.stripe => None,
        Chunks::Auto => Some(default),
        Chunks::Size(chunk) => {
            let leaf = (chunk / LEAVES_AT_ONCE).next_power_of_two().clamp(leaf::MIN_SIZE, default.leaf);
            Some(Chunking { chunk, leaf, threshold: chunk.saturating_mul(2), ahead: CHUNKS_AHEAD })
        }
    }
}

/// Performs what the transfer machine decides.
struct Driver {
    shared: Rc<Shared>,
    machine: TransferMachine,
    workers: HashMap<Slot, UnboundedSender<Job>>,
    tasks: HashMap<Slot, tokio::task::JoinHandle<()>>,
    reports: UnboundedSender<Input>,
    inputs: UnboundedReceiver<Input>,
}

impl Driver {
    fn new(shared: Rc<Shared>, options: TransferOptions) -> Self {
        let (reports, inputs) = mpsc::unbounded_channel();
        Self {
            machine: TransferMachine::new(options, Instant::now()),
            shared,
            workers: HashMap::new(),
            tasks: HashMap::new(),
            reports,
            inputs,
        }
    }

    async fn drive(
        mut self,
        planning: impl Future<Output = Result<(), Fault>>,
        mut planned: mpsc::Receiver<Action>,
        mut cancel: watch::Receiver<bool>,
        events: &mut impl FnMut(Event),
    ) -> Result<Summary, Fault> {
        tokio::pin!(planning);
        let mut plan_result = None;
        let mut listing = true;
        let mut cancelled = false;
        let mut ticks = interval(self.shared.options.progress);
        ticks.tick().await; // the first one is at once
        loop {
            while let Some(command) = self.machine.poll_command() {
                self.perform(command, events);
            }
            if self.machine.is_finished() {
                break;
            }
            let deadline = self.machine.poll_timeout();
            tokio::select! {
                biased;
                input = self.inputs.recv() => self.take(input.expect("this driver holds a sender itself")),
                action = planned.recv(), if listing && self.machine.wants_more() => match action {
                    Some(action) => self.take(Input::Planned(action)),
                    None => {
                        listing = false;
                        self.take(Input::ListingDone);
                    }
                },
                result = &mut planning, if plan_result.is_none() => plan_result = Some(result),
                changed = cancel.wait_for(|cancel| *cancel), if !cancelled => {
                    cancelled = true;
                    if changed.is_ok() {
                        self.take(Input::Cancel);
                    }
                },
                () = sleep_until(deadline.unwrap_or_else(far).into()) => self.take(Input::Tick),
                _ = ticks.tick() => events(Event::Progress(self.machine.progress().snapshot(Instant::now()))),
            }
        }
        let summary = self.machine.summary(Instant::now());
        match plan_result {
            // Nothing was done: the reason is the whole result.
            Some(Err(fault)) => Err(fault),
            _ => {
                events(Event::Summary(self.machine.summary(Instant::now())));
                Ok(summary)
            }
        }
    }

    fn take(&mut self, input: Input) {
        if let Input::SessionLost { slot, .. } = &input {
            self.workers.remove(slot);
        }
        self.machine.handle(Instant::now(), input);
    }

    fn perform(&mut self, command: Command, events: &mut impl FnMut(Event)) {
        match command {
            Command::OpenSession { slot } => self.open(slot),
            Command::Start { slot, job } => {
                if let Some(worker) = self.workers.get(&slot) {
                    // A worker that just ended has reported its loss, which the machine takes next.
                    let _ = worker.send(*job);
                }
            }
            Command::CloseSession { slot, .. } => {
                self.workers.remove(&slot);
                if let Some(task) = self.tasks.remove(&slot) {
                    task.abort();
                }
            }
            Command::Report(event) => events(event),
        }
    }

    fn open(&mut self, slot: Slot) {
        let (sender, jobs) = mpsc::unbounded_channel();
        let worker = Worker::new(slot, self.shared.clone(), jobs, self.reports.clone());
        self.workers.insert(slot, sender);
        self.tasks.insert(slot, tokio::task::spawn_local(worker.run()));
    }
}

fn far() -> Instant {
    Instant::now() + Duration::from_secs(86_400)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_distance_of_two_servers_is_known_only_when_both_are_near() {
        let ms = Duration::from_millis;
        assert_eq!(data_rtt(ms(75), false), Some(ms(75)));
        assert_eq!(data_rtt(ms(75), true), None);
        assert_eq!(data_rtt(ms(1), true), None);
        assert_eq!(data_rtt(Duration::from_micros(300), true), Some(Duration::from_micros(600)));
    }
}

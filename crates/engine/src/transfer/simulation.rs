//! The machine against a synthetic world on virtual time: seeded sizes, losses and faults.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::tests::item;
use super::*;
use crate::fault::FaultCode;
use crate::plan::{Action, DirectoryId};
use crate::progress::Verification;
use crate::ranges::RangeSet;
use crate::tune::Setting;

/// How bad the world is, each in percent.
#[derive(Debug, Clone)]
struct Weather {
    temporary: u64,
    permanent: u64,
    session_loss: u64,
    open_failure: u64,
    silence: u64,
    /// Whether every other file comes whole each time and is never given its name.
    stuck: bool,
}

#[derive(Debug)]
enum Happening {
    Ready,
    Lost,
    Step,
}

struct World {
    machine: TransferMachine,
    now: Instant,
    rng: u64,
    weather: Weather,
    concurrency: usize,
    depth: usize,
    large_limit: u64,
    whole_ahead: bool,
    /// Open sessions and their jobs in order.
    sessions: BTreeMap<Slot, Vec<Job>>,
    /// What happens when, and to which opening of a session.
    agenda: BTreeMap<(Instant, u64), (Slot, u64, Happening)>,
    epochs: HashMap<Slot, u64>,
    sequence: u64,
    ended: HashMap<ItemId, u32>,
}

impl World {
    fn random(&mut self, below: u64) -> u64 {
        self.rng = self.rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.rng >> 33) % below.max(1)
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.random(100) < percent
    }

    fn plan(&mut self, slot: Slot, after: Duration, what: Happening) {
        self.sequence += 1;
        let epoch = self.epochs[&slot];
        self.agenda.insert((self.now + after, self.sequence), (slot, epoch, what));
    }

    fn put(&mut self, input: Input) {
        self.machine.handle(self.now, input);
        while let Some(command) = self.machine.poll_command() {
            self.obey(command);
        }
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::OpenSession { slot } => {
                assert!(self.sessions.insert(slot, Vec::new()).is_none(), "{slot:?} opened twice");
                assert!(self.sessions.len() <= self.concurrency);
                *self.epochs.entry(slot).or_default() += 1;
                let what = if self.chance(self.weather.open_failure) { Happening::Lost } else { Happening::Ready };
                let after = Duration::from_millis(1 + self.random(200));
                self.plan(slot, after, what);
            }
            Command::Start { slot, job } => {
                let jobs = self.sessions.get_mut(&slot).expect("only open sessions get work");
                jobs.push(*job);
                assert!(jobs.len() <= self.depth, "deeper than told");
                let large = |job: &Job| job.item.size.is_some_and(|size| size > self.large_limit);
                let ahead = self.whole_ahead && jobs.len() == 2 && jobs.iter().all(large);
                assert!(jobs.len() == 1 || ahead || !jobs.iter().any(large), "a large item shares its session");
                if jobs.len() == 1 {
                    let after = Duration::from_millis(1 + self.random(50));
                    self.plan(slot, after, Happening::Step);
                }
            }
            Command::CloseSession { slot, .. } => {
                self.sessions.remove(&slot).expect("only open sessions are closed");
                *self.epochs.entry(slot).or_default() += 1;
            }
            Command::Report(Event::ItemDone { item, .. }) => self.count(item.id),
            Command::Report(Event::ItemFailed(failure)) => self.count(failure.item),
            Command::Report(Event::ItemSkipped { item, .. }) => self.count(item),
            Command::Report(_) => {}
        }
    }

    fn count(&mut self, item: ItemId) {
        *self.ended.entry(item).or_default() += 1;
    }

    fn happen(&mut self, slot: Slot, what: Happening) {
        match what {
            Happening::Ready => self.put(Input::SessionReady { slot }),
            Happening::Lost => self.lose(slot),
            Happening::Step if self.chance(self.weather.session_loss) => self.lose(slot),
            // Nothing more comes from this session: the machine must notice.
            Happening::Step if self.chance(self.weather.silence) => {}
            Happening::Step => self.step(slot),
        }
    }

    fn lose(&mut self, slot: Slot) {
        self.sessions.remove(&slot);
        *self.epochs.entry(slot).or_default() += 1;
        let fault = Fault::new(FaultCode::ConnectionLost, "simulate");
        self.put(Input::SessionLost { slot, fault });
    }

    /// The first job of a session ends, well or badly.
    fn step(&mut self, slot: Slot) {
        let job = self.sessions.get_mut(&slot).expect("the epoch is current").remove(0);
        let attempt = job.attempt;
        let size = job.item.size.unwrap_or(0);
        if !self.sessions[&slot].is_empty() {
            let after = Duration::from_millis(1 + self.random(50));
            self.plan(slot, after, Happening::Step);
        }
        self.put(Input::ItemStarted { attempt, tells: true });
        let missing = size - job.received.len();
        let moved = self.random(missing + 1);
        self.put(Input::ItemProgress { attempt, moved, durable: None });
        self.check_numbers();
        if self.chance(self.weather.permanent) {
            let fault = Fault::new(FaultCode::PermissionDenied, "simulate");
            return self.put(Input::ItemFailed { attempt, fault, received: RangeSet::new() });
        }
        if self.chance(self.weather.temporary) {
            let code = if self.chance(20) { FaultCode::ChecksumMismatch } else { FaultCode::TimedOut };
            let received = RangeSet::from(0..self.random(size + 1));
            return self.put(Input::ItemFailed { attempt, fault: Fault::new(code, "simulate"), received });
        }
        if self.weather.stuck && job.work == Work::Copy && attempt.item.0.is_multiple_of(2) {
            let (fault, received) = (Fault::new(FaultCode::StorageBusy, "simulate"), RangeSet::from(0..size));
            return self.put(Input::ItemFailed { attempt, fault, received });
        }
        self.put(Input::ItemDone { attempt, bytes: missing, verified: Verification::NotAsked });
    }

    fn check_numbers(&self) {
        let snapshot = self.machine.progress().snapshot(self.now);
        assert!(snapshot.bytes_done <= snapshot.bytes_total, "{snapshot:?}");
        assert!(snapshot.files_done + snapshot.files_failed <= snapshot.files_total, "{snapshot:?}");
    }

    /// The next thing in time: something in the world, or the machine's own deadline.
    fn advance(&mut self) {
        let due = self.agenda.keys().next().copied();
        let deadline = self.machine.poll_timeout();
        match (due, deadline) {
            (Some(key), deadline) if deadline.is_none_or(|at| key.0 <= at) => {
                let (slot, epoch, what) = self.agenda.remove(&key).expect("the key was just seen");
                self.now = self.now.max(key.0);
                if self.epochs[&slot] == epoch {
                    self.happen(slot, what);
                }
            }
            (_, Some(at)) => {
                self.now = self.now.max(at);
                self.put(Input::Tick);
            }
            (_, None) => panic!("unfinished, and nothing will ever happen: {:?}", self.machine),
        }
    }
}

/// Directories of ten files each, in a chain, as a planner would yield them.
fn tree(sizes: &[u64]) -> Vec<Action> {
    let mut actions = Vec::new();
    let mut next = sizes.len() as u64;
    let mut control = |parent: Option<u64>, mode: bool| {
        let mut item = item(next, 0);
        item.parent = parent.map(DirectoryId);
        item.attributes.mode = mode.then_some(0o700);
        next += 1;
        item
    };
    let chunks: Vec<_> = sizes.chunks(10).collect();
    for (directory, chunk) in chunks.iter().enumerate() {
        let (directory, parent) = (directory as u64, (directory as u64).checked_sub(1));
        let made = control(parent, false);
        actions.push(Action::MakeDirectory { item: made, directory: DirectoryId(directory) });
        for (at, size) in chunk.iter().enumerate() {
            let mut file = item(directory * 10 + at as u64, *size);
            file.parent = Some(DirectoryId(directory));
            actions.push(Action::Copy { item: file });
        }
    }
    for directory in (0..chunks.len() as u64).rev() {
        let item = control(directory.checked_sub(1), true);
        actions.push(Action::SetAttributes { item, directory: DirectoryId(directory) });
    }
    actions
}

fn run(seed: u64, sizes: &[u64], concurrency: u32, depth: u32, weather: Weather) -> World {
    let large_limit = 1000;
    let whole_ahead = depth > 1 && seed.is_multiple_of(2);
    let options = TransferOptions {
        concurrency,
        pipeline: Setting::Fixed(depth),
        small_limit: large_limit,
        whole_ahead,
        queue_limit: 40,
        seed,
        ..TransferOptions::default()
    };
    let now = Instant::now();
    let mut world = World {
        machine: TransferMachine::new(options, now),
        now,
        rng: seed,
        weather,
        concurrency: concurrency as usize,
        depth: depth as usize,
        large_limit,
        whole_ahead,
        sessions: BTreeMap::new(),
        agenda: BTreeMap::new(),
        epochs: HashMap::new(),
        sequence: 0,
        ended: HashMap::new(),
    };
    let mut plan = tree(sizes).into_iter();
    let mut listing = true;
    let mut steps = 0;
    while !world.machine.is_finished() {
        while listing && world.machine.wants_more() {
            match plan.next() {
                Some(action) => world.put(Input::Planned(action)),
                None => {
                    listing = false;
                    world.put(Input::ListingDone);
                }
            }
        }
        if !world.machine.is_finished() {
            world.advance();
        }
        steps += 1;
        assert!(steps < 200_000, "does not come to an end");
    }
    world
}

fn weather() -> impl Strategy<Value = Weather> {
    (0u64..60, 0u64..20, 0u64..30, 0u64..60, 0u64..5, prop::bool::weighted(0.3)).prop_map(
        |(temporary, permanent, session_loss, open_failure, silence, stuck)| Weather {
            temporary,
            permanent,
            session_loss,
            open_failure,
            silence,
            stuck,
        },
    )
}

fn size() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 1u64..1000, 1000u64..1_000_000]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn every_item_ends_exactly_once_in_any_weather(
        seed: u64,
        sizes in prop::collection::vec(size(), 1..120),
        concurrency in 1u32..6,
        depth in 1u32..6,
        weather in weather(),
    ) {
        let world = run(seed, &sizes, concurrency, depth, weather);
        for id in 0..sizes.len() as u64 {
            prop_assert_eq!(world.ended.get(&ItemId(id)), Some(&1), "file {}", id);
        }
        prop_assert!(world.ended.values().all(|count| *count == 1), "{:?}", world.ended);
        prop_assert!(world.sessions.is_empty() && world.machine.directories.is_empty());
        let summary = world.machine.summary(world.now);
        let files = world.machine.progress().snapshot(world.now).files_total;
        prop_assert_eq!(files, sizes.len() as u64);
        let failed = world.machine.progress().snapshot(world.now).files_failed;
        prop_assert_eq!(summary.files + failed, files);
    }

    #[test]
    fn a_fault_that_never_passes_ends_its_item_and_no_other(
        seed: u64,
        sizes in prop::collection::vec(size(), 1..40),
        concurrency in 1u32..6,
        depth in 1u32..6,
    ) {
        let weather =
            Weather { temporary: 0, permanent: 0, session_loss: 0, open_failure: 0, silence: 0, stuck: true };
        let world = run(seed, &sizes, concurrency, depth, weather);
        let summary = world.machine.summary(world.now);
        prop_assert_eq!((summary.files, summary.failed), (sizes.len() as u64 / 2, sizes.len().div_ceil(2) as u64));
        prop_assert!(summary.faults <= 5 * summary.failed, "{} faults", summary.faults);
    }

    #[test]
    fn in_good_weather_everything_arrives_and_nothing_is_wasted(
        seed: u64,
        sizes in prop::collection::vec(size(), 1..120),
        concurrency in 1u32..6,
        depth in 1u32..6,
    ) {
        let calm = Weather { temporary: 0, permanent: 0, session_loss: 0, open_failure: 0, silence: 0, stuck: false };
        let world = run(seed, &sizes, concurrency, depth, calm);
        let summary = world.machine.summary(world.now);
        prop_assert_eq!(summary.files, sizes.len() as u64);
        prop_assert_eq!(summary.bytes, sizes.iter().sum::<u64>());
        prop_assert_eq!((summary.bytes_wasted, summary.exit_code), (0, 0));
        prop_assert_eq!(summary.directories, sizes.len().div_ceil(10) as u64);
    }
}

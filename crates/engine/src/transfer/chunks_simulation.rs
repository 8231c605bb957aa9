//! Files in chunks against a world on virtual time: sessions of unequal speed, damage, losses, faults of every class.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::tests::item;
use super::*;
use crate::fault::{FaultCode, Side};
use crate::plan::Action;
use crate::progress::Verification;
use crate::ranges::RangeSet;
use crate::tune::Setting;

const LEAF: u64 = 16;
const CHUNK: u64 = 8 * LEAF;
const AHEAD: usize = 2;

/// How bad the world is, each in per mille of what ends.
#[derive(Debug, Clone, Default)]
struct Weather {
    damage: u64,
    temporary: u64,
    permanent: u64,
    session_loss: u64,
    silence: u64,
    changes: u64,
    whole: u64,
    /// How often an unfinished copy is found gone or replaced.
    taken: u64,
    /// Whether no copy of a file whose number three divides is ever given its name.
    stuck: bool,
    /// How often the number of sessions is changed, and the rate where there is one.
    tuned: u64,
    /// Most bytes per second.
    rate: Option<u64>,
    /// Whether moving takes seconds instead of milliseconds, which are too short for parts to be cut by.
    slow: bool,
}

/// One file at the destination.
#[derive(Debug, Default)]
struct Copy {
    proven: RangeSet,
    /// How often each leaf was moved, and how often there was a cause for it.
    moves: HashMap<u64, u32>,
    causes: HashMap<u64, u32>,
    ended: u32,
    done: bool,
    whole: bool,
}

struct World {
    machine: TransferMachine,
    start: Instant,
    now: Instant,
    rng: u64,
    weather: Weather,
    speeds: Vec<u64>,
    sessions: BTreeMap<Slot, VecDeque<Job>>,
    agenda: BTreeMap<(Instant, u64), (Slot, u64, bool)>,
    epochs: HashMap<Slot, u64>,
    sequence: u64,
    copies: HashMap<ItemId, Copy>,
}

fn leaves(part: &Range<u64>) -> impl Iterator<Item = u64> + use<> {
    part.clone().step_by(LEAF as usize)
}

impl World {
    fn random(&mut self, below: u64) -> u64 {
        self.rng = self.rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.rng >> 33) % below.max(1)
    }

    fn chance(&mut self, per_mille: u64) -> bool {
        self.random(1000) < per_mille
    }

    fn plan(&mut self, slot: Slot, after: Duration, ready: bool) {
        self.sequence += 1;
        self.agenda.insert((self.now + after, self.sequence), (slot, self.epochs[&slot], ready));
    }

    fn put(&mut self, input: Input) {
        self.machine.handle(self.now, input);
        while let Some(command) = self.machine.poll_command() {
            self.obey(command);
        }
        self.check();
    }

    /// Nothing waits while a session has nothing to do, unless for the rate, and what is held is bounded by what runs.
    fn check(&mut self) {
        let chunk = |job: &&Job| matches!(job.work, Work::Chunk { .. });
        let in_air: usize = self.sessions.values().map(|jobs| jobs.iter().filter(chunk).count()).sum();
        assert!(in_air <= self.speeds.len() * AHEAD);
        let machine = &self.machine;
        let idle = machine.slots.iter().any(|slot| slot.takes_work() && slot.pipeline.is_empty());
        let waits = machine.queue.next_parts().is_some() && !machine.queue.has_short();
        assert!(!(idle && waits) || machine.budget.due().is_some(), "a session idles while a chunk waits");
        let snapshot = machine.progress().snapshot(self.now);
        assert!(snapshot.bytes_done <= snapshot.bytes_total, "{snapshot:?}");
    }

    fn obey(&mut self, command: Command) {
        match command {
            Command::OpenSession { slot } => {
                assert!(self.sessions.insert(slot, VecDeque::new()).is_none());
                *self.epochs.entry(slot).or_default() += 1;
                self.plan(slot, Duration::from_millis(1), true);
            }
            Command::Start { slot, job } => {
                self.started(&job);
                let jobs = self.sessions.get_mut(&slot).expect("only open sessions get work");
                jobs.push_back(*job);
                if jobs.len() == 1 {
                    self.begin(slot);
                }
            }
            Command::CloseSession { slot, .. } => {
                let lost = self.sessions.remove(&slot).expect("only open sessions are closed");
                self.blame(lost);
                *self.epochs.entry(slot).or_default() += 1;
            }
            Command::Report(Event::ItemDone { item, .. }) => {
                let copy = self.copies.get_mut(&item.id).expect("it is known");
                copy.ended += 1;
                copy.done = true;
            }
            Command::Report(Event::ItemFailed(failure)) => {
                self.copies.get_mut(&failure.item).expect("it is known").ended += 1;
            }
            Command::Report(_) => {}
        }
    }

    fn started(&mut self, job: &Job) {
        let copy = self.copies.get_mut(&job.item.id).expect("it is known");
        match &job.work {
            Work::Chunk { part } => {
                let size = job.item.size.expect("chunks are of known sizes");
                assert!(part.start % LEAF == 0 && (part.end % LEAF == 0 || part.end == size), "{part:?} of {size}");
                assert!(part.start < part.end && part.end - part.start <= CHUNK);
                assert_eq!(copy.proven.missing(part.clone()), RangeSet::from(part.clone()), "proven already");
                for leaf in leaves(part) {
                    let moves = copy.moves.entry(leaf).or_default();
                    *moves += 1;
                    let causes = copy.causes.get(&leaf).copied().unwrap_or(0);
                    assert!(*moves <= 1 + causes, "leaf {leaf} is sent {moves} times for {causes} causes");
                }
            }
            Work::Commit => assert!(copy.proven.covers(0..job.item.size.expect("it is known"))),
            _ => {}
        }
    }

    /// There is a cause to move again what was on the way.
    fn blame(&mut self, jobs: impl IntoIterator<Item = Job>) {
        for job in jobs {
            if let Work::Chunk { part } = &job.work {
                let copy = self.copies.get_mut(&job.item.id).expect("it is known");
                leaves(part).for_each(|leaf| *copy.causes.entry(leaf).or_default() += 1);
            }
        }
    }

    /// The first job of a session is at work from now on.
    fn begin(&mut self, slot: Slot) {
        let Some(job) = self.sessions.get(&slot).and_then(|jobs| jobs.front()) else { return };
        let bytes = match &job.work {
            Work::Chunk { part } => part.end - part.start,
            Work::Copy => job.item.size.unwrap_or(0),
            _ => 0,
        };
        let unit = if self.weather.slow { 1_000_000 } else { 1000 };
        let after = Duration::from_micros(1 + unit * bytes / self.speeds[slot.0 as usize]);
        self.plan(slot, after, false);
    }

    fn lose(&mut self, slot: Slot) {
        let lost = self.sessions.remove(&slot).expect("the epoch is current");
        self.blame(lost);
        *self.epochs.entry(slot).or_default() += 1;
        self.put(Input::SessionLost { slot, fault: Fault::new(FaultCode::ConnectionLost, "simulate") });
    }

    /// The first job of a session ends, well or badly.
    fn step(&mut self, slot: Slot) {
        if self.chance(self.weather.session_loss) {
            return self.lose(slot);
        }
        if self.chance(self.weather.silence) {
            return;
        }
        let job = self.sessions.get_mut(&slot).expect("the epoch is current").pop_front().expect("it was at work");
        self.begin(slot);
        let attempt = job.attempt;
        self.put(Input::ItemStarted { attempt, tells: true });
        let fault = if self.chance(self.weather.permanent) {
            Some(FaultCode::NoSpace)
        } else if self.chance(self.weather.temporary) {
            Some(FaultCode::TimedOut)
        } else {
            self.chance(self.weather.changes).then_some(FaultCode::SourceChanged)
        };
        if let Some(code) = fault {
            return self.fail(&job, code);
        }
        let stuck = self.weather.stuck && job.item.id.0.is_multiple_of(3);
        match job.work {
            Work::Commit | Work::Copy if stuck => return self.take_away(&job, FaultCode::StorageBusy),
            Work::Commit | Work::Chunk { .. } if self.chance(self.weather.taken) => {
                return self.take_away(&job, FaultCode::NotFound);
            }
            _ => {}
        }
        match job.work.clone() {
            Work::Open { .. } if self.chance(self.weather.whole) => {
                self.copies.get_mut(&job.item.id).expect("it is known").whole = true;
                self.put(Input::ItemWhole { attempt });
            }
            Work::Open { .. } => {
                let verified = self.copies[&job.item.id].proven.clone();
                self.put(Input::ItemOpened { attempt, verified, found: Opening::default() });
            }
            Work::Chunk { part } => self.arrive(&job, part),
            _ => self.put(Input::ItemDone {
                attempt,
                bytes: if job.work == Work::Copy { job.item.size.unwrap_or(0) } else { 0 },
                verified: Verification::NotAsked,
            }),
        }
    }

    fn arrive(&mut self, job: &Job, part: Range<u64>) {
        let damaged: Vec<u64> = leaves(&part).filter(|_| self.chance(self.weather.damage)).collect();
        let size = job.item.size.expect("chunks are of known sizes");
        let leaf = |at: &u64| *at..(*at + LEAF).min(size);
        let wrong: RangeSet = damaged.iter().map(leaf).collect();
        let verified = wrong.missing(part.clone());
        let current = self.is_current(job.attempt);
        let copy = self.copies.get_mut(&job.item.id).expect("it is known");
        damaged.iter().for_each(|at| *copy.causes.entry(*at).or_default() += 1);
        if current {
            assert!(
                verified.as_slice().iter().all(|range| copy.proven.within(range.clone()).is_empty()),
                "proven twice"
            );
            copy.proven.union_with(&verified);
        }
        let bytes = part.end - part.start;
        let verification = Verification::by("md5");
        self.put(Input::ChunkDone { attempt: job.attempt, bytes, verified, wrong, verification });
    }

    fn is_current(&self, attempt: Attempt) -> bool {
        self.machine.entries.get(&attempt.item).is_some_and(|entry| entry.runs.contains_key(&attempt.number))
    }

    fn fail(&mut self, job: &Job, code: FaultCode) {
        let mut received = RangeSet::new();
        let current = self.is_current(job.attempt);
        let copy = self.copies.get_mut(&job.item.id).expect("it is known");
        if code == FaultCode::SourceChanged && current {
            *copy = Copy { ended: copy.ended, whole: copy.whole, ..Copy::default() };
        } else if let Work::Chunk { part } = &job.work {
            let kept = self.random((part.end - part.start) / LEAF);
            let copy = self.copies.get_mut(&job.item.id).expect("it is known");
            received.insert(part.start..(part.start + kept * LEAF));
            leaves(part).skip(kept as usize).for_each(|leaf| *copy.causes.entry(leaf).or_default() += 1);
            if current {
                copy.proven.union_with(&received);
            }
        }
        self.put(Input::ItemFailed { attempt: job.attempt, fault: Fault::new(code, "simulate"), received });
    }

    /// The destination has the unfinished copy no more, or keeps it and does not give it its name.
    fn take_away(&mut self, job: &Job, code: FaultCode) {
        let keeps = code == FaultCode::StorageBusy && self.chance(500);
        if self.is_current(job.attempt) && !keeps {
            let copy = self.copies.get_mut(&job.item.id).expect("it is known");
            *copy = Copy { ended: copy.ended, whole: copy.whole, ..Copy::default() };
        }
        let fault = Fault::new(code, "simulate").side(Side::Destination);
        // A whole file has come, and its name is what is missing.
        let received = match job.work {
            Work::Copy => RangeSet::from(0..job.item.size.unwrap_or(0)),
            _ => RangeSet::new(),
        };
        self.put(Input::ItemFailed { attempt: job.attempt, fault, received });
    }

    /// The next thing in time: something in the world, or the machine's own deadline.
    fn advance(&mut self) {
        if self.chance(self.weather.tuned) {
            let sessions = 1 + self.random(self.speeds.len() as u64) as u32;
            self.put(Input::Concurrency { sessions });
            if let Some(rate) = self.weather.rate {
                let most = Some(rate / 2 + self.random(rate));
                self.put(Input::Rate { most });
            }
        }
        let due = self.agenda.keys().next().copied();
        let deadline = self.machine.poll_timeout();
        match (due, deadline) {
            (Some(key), deadline) if deadline.is_none_or(|at| key.0 <= at) => {
                let (slot, epoch, ready) = self.agenda.remove(&key).expect("the key was just seen");
                self.now = self.now.max(key.0);
                match self.epochs[&slot] == epoch {
                    true if ready => self.put(Input::SessionReady { slot }),
                    true => self.step(slot),
                    false => {}
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

/// Runs files of these sizes over sessions of these speeds (bytes a millisecond).
fn run(seed: u64, sizes: &[u64], speeds: &[u64], weather: Weather) -> World {
    let chunking = Chunking { chunk: CHUNK, leaf: LEAF, threshold: 2 * CHUNK, ahead: AHEAD as u32 };
    let options = TransferOptions {
        concurrency: speeds.len() as u32,
        pipeline: Setting::Fixed(3),
        small_limit: CHUNK,
        chunking: Some(chunking),
        unequal: !seed.is_multiple_of(2),
        max_rate: weather.rate,
        queue_limit: 10,
        seed,
        ..TransferOptions::default()
    };
    let now = Instant::now();
    let mut world = World {
        machine: TransferMachine::new(options, now),
        start: now,
        now,
        rng: seed,
        weather,
        speeds: speeds.to_vec(),
        sessions: BTreeMap::new(),
        agenda: BTreeMap::new(),
        epochs: HashMap::new(),
        sequence: 0,
        copies: HashMap::new(),
    };
    let mut plan = sizes.iter().enumerate();
    let mut listing = true;
    for _ in 0..1_000_000 {
        while listing && world.machine.wants_more() {
            assert!(world.machine.entries.len() <= 10);
            if let Some((id, size)) = plan.next() {
                let resumed = world.random(2) * (size / LEAF / 3) * LEAF;
                let copy = Copy { proven: RangeSet::from(0..resumed), ..Copy::default() };
                world.copies.insert(ItemId(id as u64), copy);
                world.put(Input::Planned(Action::Copy { item: item(id as u64, *size) }));
            } else {
                listing = false;
                world.put(Input::ListingDone);
            }
        }
        if world.machine.is_finished() {
            return world;
        }
        world.advance();
    }
    panic!("does not come to an end");
}

/// Before a session has shown its pace it may be far slower than the others.
#[test]
fn no_session_is_given_more_at_first_than_it_moves_in_the_run() {
    for slow in 6u64..20 {
        let (size, speeds) = (5 * 4 * CHUNK, [48, 48, 48, 48, slow]);
        let world = run(1, &[size], &speeds, Weather { slow: true, ..Weather::default() });
        let summary = world.machine.summary(world.now);
        let moved = summary.bytes - summary.bytes_resumed;
        let ideal = moved as f64 / speeds.iter().sum::<u64>() as f64;
        let took = world.now.duration_since(world.start).as_secs_f64();
        // One leaf at the end.
        let limit = 1.05 * ideal + LEAF as f64 / slow as f64;
        assert!(took <= limit, "at {slow}: {took} s, ideally {ideal} s, at most {limit} s");
    }
}

fn weather() -> impl Strategy<Value = Weather> {
    let rest = (0u64..100, 0u64..20, 0u64..10, prop::bool::weighted(0.3), rate());
    (0u64..300, 0u64..200, 0u64..10, 0u64..100, 0u64..20, 0u64..20, rest).prop_map(
        |(damage, temporary, permanent, session_loss, silence, changes, (whole, tuned, taken, stuck, rate))| Weather {
            damage,
            temporary,
            permanent,
            session_loss,
            silence,
            changes,
            whole,
            taken,
            stuck,
            tuned,
            rate,
            slow: false,
        },
    )
}

fn rate() -> impl Strategy<Value = Option<u64>> {
    prop::option::weighted(0.3, LEAF..100 * CHUNK)
}

fn size() -> impl Strategy<Value = u64> {
    prop_oneof![1u64..LEAF, LEAF..3 * CHUNK, 2 * CHUNK..40 * CHUNK]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    #[test]
    fn every_byte_is_proven_once_and_sent_again_only_for_a_cause(
        seed: u64,
        sizes in prop::collection::vec(size(), 1..30),
        speeds in prop::collection::vec(1u64..50, 1..7),
        weather in weather(),
    ) {
        let stuck = weather.stuck;
        let world = run(seed, &sizes, &speeds, weather);
        for (id, size) in sizes.iter().enumerate() {
            let copy = &world.copies[&ItemId(id as u64)];
            prop_assert_eq!(copy.ended, 1, "file {}", id);
            prop_assert!(!(copy.done && stuck && id % 3 == 0), "file {} has no name", id);
            if copy.done && !copy.whole && *size >= 2 * CHUNK {
                prop_assert!(copy.proven.covers(0..*size));
            }
        }
        prop_assert!(world.machine.orphans.is_empty() && world.machine.delayed.is_empty());
        prop_assert_eq!(world.machine.queue.chunk_bytes(), 0);
        let summary = world.machine.summary(world.now);
        prop_assert_eq!(summary.files, world.copies.values().filter(|copy| copy.done).count() as u64);
    }

    #[test]
    fn a_fault_that_never_passes_ends_its_file_and_no_other(
        seed: u64,
        sizes in prop::collection::vec(size(), 1..20),
        speeds in prop::collection::vec(1u64..50, 1..7),
    ) {
        let world = run(seed, &sizes, &speeds, Weather { stuck: true, ..Weather::default() });
        for (id, copy) in &world.copies {
            prop_assert_eq!((copy.ended, copy.done), (1, !id.0.is_multiple_of(3)), "{:?}", id);
        }
        let summary = world.machine.summary(world.now);
        prop_assert!(summary.faults <= 5 * summary.failed, "{} faults", summary.faults);
    }

    #[test]
    fn in_good_weather_no_session_waits_at_the_tail_however_unequal_they_are(
        seed: u64,
        sizes in prop::collection::vec(10 * CHUNK..60 * CHUNK, 1..6),
        speeds in prop::collection::vec(10u64..50, 2..7),
    ) {
        let world = run(seed, &sizes, &speeds, Weather::default());
        let summary = world.machine.summary(world.now);
        let moved = summary.bytes - summary.bytes_resumed;
        prop_assert_eq!(summary.bytes, sizes.iter().sum::<u64>());
        prop_assert_eq!((summary.bytes_wasted, summary.leaves_resent, summary.exit_code), (0, 0, 0));
        let ideal = moved as f64 / speeds.iter().sum::<u64>() as f64;
        // A slow session's last leaf, its first chunks, and what opening and committing take.
        let slowest = *speeds.iter().min().expect("there are sessions") as f64;
        let limit = ideal * 1.05 + (2 * CHUNK) as f64 / slowest + 3.0;
        let took = world.now.duration_since(world.start).as_secs_f64() * 1000.0;
        prop_assert!(took <= limit, "{took} ms, ideally {ideal} ms, at most {limit} ms");
    }

    #[test]
    fn a_bound_on_the_rate_is_kept_and_used(
        seed: u64,
        sizes in prop::collection::vec(prop_oneof![1u64..LEAF, 2 * CHUNK..40 * CHUNK], 1..20),
        sessions in 1usize..7,
        rate in LEAF..10 * CHUNK,
    ) {
        // The sessions could do far more.
        let speeds = vec![rate; sessions];
        let world = run(seed, &sizes, &speeds, Weather { rate: Some(rate), ..Weather::default() });
        let summary = world.machine.summary(world.now);
        prop_assert_eq!((summary.bytes_wasted, summary.exit_code), (0, 0));
        let moved = (summary.bytes - summary.bytes_resumed) as f64;
        let took = world.now.duration_since(world.start).as_secs_f64();
        // What is begun while a second of it is owed, and the last part.
        prop_assert!(took >= moved / rate as f64 - 2.5, "{took} s for {moved} bytes at {rate}");
        prop_assert!(took <= moved / rate as f64 + 2.5, "{took} s for {moved} bytes at {rate}");
    }
}

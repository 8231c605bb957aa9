use std::time::{Duration, Instant};

use super::*;
use crate::fault::{FaultCode, Retry, Side};
use crate::plan::{Action, Attributes, DirectoryId, Item, RootId, SkipReason};
use crate::progress::Verification;
use crate::ranges::RangeSet;
use crate::summary::exit;
use crate::tune::Setting;

pub(super) fn item(id: u64, size: u64) -> Item {
    Item {
        id: ItemId(id),
        root: RootId(0),
        parent: None,
        source: format!("/s/{id}").into_bytes(),
        destination: format!("/d/{id}").into_bytes(),
        size: Some(size),
        modified: None,
        range: None,
        attributes: Attributes::default(),
        twins: Vec::new(),
    }
}

/// A machine and its clock; sessions open at once unless told otherwise.
pub(super) struct Bench {
    pub(super) machine: TransferMachine,
    pub(super) now: Instant,
    pub(super) jobs: Vec<(Slot, Job)>,
    pub(super) events: Vec<Event>,
    pub(super) closed: Vec<(Slot, Option<Fault>)>,
    pub(super) opens: Vec<Slot>,
}

impl Bench {
    pub(super) fn new(options: TransferOptions) -> Self {
        let now = Instant::now();
        Self {
            machine: TransferMachine::new(options, now),
            now,
            jobs: Vec::new(),
            events: Vec::new(),
            closed: Vec::new(),
            opens: Vec::new(),
        }
    }

    pub(super) fn put(&mut self, input: Input) {
        self.machine.handle(self.now, input);
        while let Some(command) = self.machine.poll_command() {
            match command {
                Command::OpenSession { slot } => self.opens.push(slot),
                Command::Start { slot, job } => self.jobs.push((slot, *job)),
                Command::CloseSession { slot, fault } => self.closed.push((slot, fault)),
                Command::Report(event) => self.events.push(event),
            }
        }
    }

    pub(super) fn copy(&mut self, id: u64, size: u64) {
        self.put(Input::Planned(Action::Copy { item: item(id, size) }));
    }

    pub(super) fn open_all(&mut self) {
        for slot in std::mem::take(&mut self.opens) {
            self.put(Input::SessionReady { slot });
        }
    }

    pub(super) fn tick_to_timeout(&mut self) {
        self.now = self.machine.poll_timeout().expect("something is awaited");
        self.put(Input::Tick);
    }

    pub(super) fn job(&self, item: u64) -> (Slot, &Job) {
        let found = self.jobs.iter().rev().find(|(_, job)| job.item.id == ItemId(item));
        let (slot, job) = found.expect("the item was started");
        (*slot, job)
    }

    pub(super) fn done(&mut self, item: u64) {
        let attempt = self.job(item).1.attempt;
        let bytes = self.job(item).1.item.size.unwrap_or(0) - self.job(item).1.received.len();
        self.put(Input::ItemDone { attempt, bytes, verified: Verification::NotAsked });
    }

    pub(super) fn fail(&mut self, item: u64, code: FaultCode, received: RangeSet) {
        self.fail_at(Side::Source, item, code, received);
    }

    pub(super) fn fail_at(&mut self, side: Side, item: u64, code: FaultCode, received: RangeSet) {
        let attempt = self.job(item).1.attempt;
        let fault = Fault::new(code, "test").side(side);
        self.put(Input::ItemFailed { attempt, fault, received });
    }

    pub(super) fn started(&self) -> Vec<u64> {
        self.jobs.iter().map(|(_, job)| job.item.id.0).collect()
    }

    pub(super) fn summary(&self) -> Summary {
        self.machine.summary(self.now)
    }
}

fn options(concurrency: u32, pipeline: u32) -> TransferOptions {
    TransferOptions { concurrency, pipeline: Setting::Fixed(pipeline), ..TransferOptions::default() }
}

const LARGE: u64 = 1 << 30;

#[test]
fn one_file_opens_one_session_and_ends_with_everything_closed() {
    let mut bench = Bench::new(options(4, 4));
    bench.copy(0, 10);
    assert_eq!(bench.opens, [Slot(0)]);
    bench.open_all();
    bench.put(Input::ListingDone);
    bench.done(0);
    assert!(bench.machine.is_finished());
    assert!(matches!(bench.closed[..], [(Slot(0), None)]));
    assert_eq!((bench.summary().files, bench.summary().bytes, bench.summary().exit_code), (1, 10, exit::OK));
}

#[test]
fn small_files_are_spread_then_pipelined_and_never_deeper_than_told() {
    let mut bench = Bench::new(options(2, 3));
    (0..10).for_each(|id| bench.copy(id, 10));
    bench.open_all();
    assert_eq!(bench.jobs.len(), 6);
    let on = |slot| bench.jobs.iter().filter(|(s, _)| *s == Slot(slot)).count();
    assert_eq!((on(0), on(1)), (3, 3));
}

#[test]
fn small_files_go_where_the_fewest_bytes_wait_and_never_many_of_the_last_ones() {
    const MIB: u64 = 1 << 20;
    let mut bench = Bench::new(options(2, 64));
    bench.copy(0, 8 * MIB);
    (1..9).for_each(|id| bench.copy(id, MIB));
    bench.open_all();
    let beside = |bench: &Bench| bench.jobs.iter().filter(|(slot, _)| *slot == bench.job(0).0).count();
    assert_eq!((bench.jobs.len(), beside(&bench)), (5, 1), "{:?}", bench.started());
    // Whichever ends first takes the rest.
    (1..9).for_each(|id| bench.done(id));
    assert_eq!((bench.jobs.len(), beside(&bench)), (9, 1));
}

#[test]
fn a_session_whose_file_has_moved_gets_the_next_while_that_is_proven() {
    const SIZE: u64 = 12 << 20;
    let mut bench = Bench::new(options(2, 2));
    (0..3).for_each(|id| bench.copy(id, SIZE));
    bench.put(Input::ListingDone);
    bench.open_all();
    assert_eq!(bench.started(), [0, 1], "who is first to have moved its file takes the last one");
    let attempt = bench.job(1).1.attempt;
    let mut moved = |moved| bench.put(Input::ItemProgress { attempt, moved, durable: None });
    moved(SIZE / 3);
    moved(SIZE);
    assert_eq!((bench.started(), bench.job(2).0), (vec![0, 1, 2], bench.job(1).0));
    (0..3).for_each(|id| bench.done(id));
    assert!(bench.machine.is_finished());
}

#[test]
fn sessions_that_open_first_leave_their_share_of_small_files_to_the_others() {
    let mut bench = Bench::new(options(4, 32));
    (0..20).for_each(|id| bench.copy(id, 10));
    let opens = std::mem::take(&mut bench.opens);
    for (slot, started) in opens.into_iter().zip([5, 10, 15, 20]) {
        bench.put(Input::SessionReady { slot });
        assert_eq!(bench.jobs.len(), started);
    }
    // One that never opens keeps nothing back for ever.
    let mut bench = Bench::new(options(2, 32));
    (0..8).for_each(|id| bench.copy(id, 10));
    let slot = bench.opens[0];
    bench.put(Input::SessionReady { slot });
    (0..8).for_each(|id| bench.done(id));
    assert_eq!(bench.jobs.len(), 8);
}

#[test]
fn a_large_file_shares_no_session_and_small_ones_keep_theirs() {
    let mut bench = Bench::new(options(2, 8));
    (0..3).for_each(|id| bench.copy(id, LARGE));
    (3..9).for_each(|id| bench.copy(id, 10));
    bench.open_all();
    let large: Vec<_> = bench.started().into_iter().filter(|id| *id < 3).collect();
    assert_eq!(large.len(), 1, "{:?}", bench.started());
    let (slot, _) = bench.job(large[0]);
    let sharing = bench.jobs.iter().filter(|(s, _)| *s == slot).count();
    assert_eq!(sharing, 1);
    (3..9).for_each(|id| bench.done(id));
    assert_eq!(bench.started().iter().filter(|id| **id < 3).count(), 2, "the free session takes a large one");
}

#[test]
fn where_more_at_a_time_only_cost_a_large_file_moves_alone_and_small_ones_beside_it() {
    let alone = Some(Alone { least: LARGE, sessions: 1 });
    let mut bench = Bench::new(TransferOptions { alone, ..options(3, 4) });
    (0..3).for_each(|id| bench.copy(id, LARGE));
    bench.open_all();
    assert_eq!((&bench.opens[..], bench.started()), (&[][..], vec![0]), "for one no second session is opened");
    (3..7).for_each(|id| bench.copy(id, 10));
    bench.open_all();
    assert_eq!(bench.started(), (0..1).chain(3..7).collect::<Vec<_>>());
    assert!((3..7).all(|id| bench.job(id).0 != bench.job(0).0));
    (0..7).for_each(|id| bench.done(id));
    assert!([1, 2].map(|id| bench.job(id).0) == [bench.job(0).0; 2], "the session that is open already");
    let mut bench = Bench::new(TransferOptions { alone, ..options(3, 4) });
    (0..3).for_each(|id| bench.copy(id, LARGE - 1));
    bench.open_all();
    assert_eq!(bench.started(), [0, 1, 2], "shorter ones wait for nobody");
}

#[test]
fn what_another_writer_replaced_is_not_gone_on_with() {
    let mut bench = Bench::new(options(1, 1));
    bench.copy(0, 100);
    bench.open_all();
    bench.fail(0, FaultCode::ConnectionLost, RangeSet::from(0..40));
    bench.tick_to_timeout();
    assert_eq!(bench.job(0).1.received, RangeSet::from(0..40));
    bench.fail_at(Side::Source, 0, FaultCode::StorageBusy, RangeSet::new());
    bench.tick_to_timeout();
    assert_eq!(bench.job(0).1.received, RangeSet::from(0..40), "who holds the source takes nothing away");
    bench.fail_at(Side::Destination, 0, FaultCode::StorageBusy, RangeSet::new());
    bench.tick_to_timeout();
    assert!(bench.job(0).1.received.is_empty(), "the next attempt begins anew");
}

#[test]
fn a_file_that_comes_whole_each_time_and_is_never_named_fails_after_all_attempts() {
    let mut bench = Bench::new(options(1, 1));
    bench.copy(0, LARGE);
    bench.put(Input::ListingDone);
    bench.open_all();
    for attempt in 1..=5 {
        assert_eq!(bench.job(0).1.attempt.number, attempt);
        bench.fail_at(Side::Destination, 0, FaultCode::StorageBusy, RangeSet::from(0..LARGE));
        if attempt < 5 {
            bench.tick_to_timeout();
        }
    }
    assert!(bench.machine.is_finished());
}

#[test]
fn of_two_runs_that_take_each_others_file_away_both_end_and_one_has_copied_it() {
    for (minutes, begins_after) in [(1, 0), (1, 30), (20, 1), (600, 5)] {
        let takes = Duration::from_secs(60 * minutes);
        let start = Instant::now();
        let mut runs: Vec<Bench> = (0..2).map(|_| Bench::new(options(1, 1))).collect();
        runs[1].now += Duration::from_secs(begins_after);
        // When the copy of the run that holds the file is complete.
        let mut holder: Option<(usize, Instant)> = None;
        for run in &mut runs {
            run.copy(0, LARGE);
            run.put(Input::ListingDone);
        }
        runs[0].open_all();
        holder.replace((0, start + takes));
        let mut waits = [None, Some(runs[1].now)];
        let mut copied = 0;
        while let Some((at, next)) = next_of_two(&waits, holder) {
            match holder {
                Some((run, _)) if run == next => {
                    runs[run].done(0);
                    (holder, copied) = (None, copied + 1);
                }
                _ => {
                    runs[next].now = at;
                    if runs[next].opens.is_empty() {
                        runs[next].put(Input::Tick)
                    } else {
                        runs[next].open_all()
                    }
                    waits[next] = None;
                    if let Some((other, _)) = holder.replace((next, at + takes)) {
                        runs[other].now = at;
                        runs[other].fail_at(Side::Destination, 0, FaultCode::StorageBusy, RangeSet::new());
                        waits[other] = runs[other].machine.poll_timeout();
                    }
                }
            }
        }
        assert!(copied >= 1 && runs.iter().all(|run| run.machine.is_finished()), "{minutes} min");
        assert!(minutes > 1 || copied == 2, "a minute is waited for");
    }
}

/// What comes first: the end of a copy, or of a wait.
fn next_of_two(waits: &[Option<Instant>; 2], holder: Option<(usize, Instant)>) -> Option<(Instant, usize)> {
    let waits = waits.iter().enumerate().filter_map(|(run, at)| at.map(|at| (at, run)));
    waits.chain(holder.map(|(run, at)| (at, run))).min()
}

#[test]
fn a_restart_carries_the_ranges_of_all_attempts_and_a_wrong_checksum_drops_them() {
    let mut bench = Bench::new(options(1, 1));
    bench.copy(0, 100);
    bench.open_all();
    bench.fail(0, FaultCode::ConnectionLost, RangeSet::from(0..40));
    bench.tick_to_timeout();
    assert_eq!(bench.job(0).1.received, RangeSet::from(0..40));
    bench.fail(0, FaultCode::ConnectionLost, RangeSet::from(60..500));
    bench.tick_to_timeout();
    assert_eq!(bench.job(0).1.received.as_slice(), [0..40, 60..100]);
    assert_eq!(bench.job(0).1.attempt.number, 3);
    bench.fail(0, FaultCode::ChecksumMismatch, RangeSet::from(0..100));
    bench.tick_to_timeout();
    assert!(bench.job(0).1.received.is_empty());
}

#[test]
fn a_permanent_fault_ends_its_item_at_once_and_no_other() {
    let mut bench = Bench::new(options(1, 2));
    bench.copy(0, 10);
    bench.copy(1, 10);
    bench.put(Input::ListingDone);
    bench.open_all();
    bench.fail(0, FaultCode::NotFound, RangeSet::new());
    assert_eq!(bench.summary().failed, 1);
    bench.done(1);
    assert!(bench.machine.is_finished());
    assert_eq!(bench.summary().exit_code, exit::SOME_FAILED);
}

#[test]
fn attempts_without_progress_are_exhausted_but_progress_renews_the_budget() {
    let mut bench = Bench::new(options(1, 1));
    bench.copy(0, 1000);
    bench.open_all();
    for end in 1..20 {
        bench.fail(0, FaultCode::ConnectionLost, RangeSet::from(0..end * 50));
        bench.tick_to_timeout();
    }
    assert_eq!(bench.summary().failed, 0);
    for _ in 0..4 {
        bench.fail(0, FaultCode::ConnectionLost, RangeSet::new());
        if bench.machine.poll_timeout().is_some() {
            bench.tick_to_timeout();
        }
    }
    assert_eq!(bench.summary().failures[0].fault.retry, Retry::Exhausted);
}

/// Seconds until a file that takes a hundred of them at the rate is tried again once `fail` has ended its first attempt.
fn tried_again_after(fail: impl FnOnce(&mut Bench, Attempt)) -> f64 {
    let mut bench = Bench::new(TransferOptions { max_rate: Some(LARGE / 100), ..options(1, 1) });
    bench.copy(0, LARGE);
    bench.open_all();
    let (attempt, begun) = (bench.job(0).1.attempt, bench.now);
    fail(&mut bench, attempt);
    while bench.job(0).1.attempt == attempt {
        bench.tick_to_timeout();
        bench.open_all();
    }
    (bench.now - begun).as_secs_f64()
}

#[test]
fn what_an_attempt_has_not_moved_leaves_the_rate_to_others() {
    let after = |tells: bool, moved: Option<u64>| {
        tried_again_after(|bench, attempt| {
            bench.put(Input::ItemStarted { attempt, tells });
            moved.into_iter().for_each(|moved| bench.put(Input::ItemProgress { attempt, moved, durable: None }));
            bench.fail(0, FaultCode::ConnectionLost, RangeSet::new());
        })
    };
    assert!(after(true, None) < 2.0);
    assert!(after(false, Some(LARGE / 200)) < 2.0);
    assert!((48.0..50.0).contains(&after(true, Some(LARGE / 2))));
    assert!(after(false, None) > 98.0, "where nobody tells, all of it may have moved");
    let never_begun = tried_again_after(|bench, _| {
        let fault = Fault::new(FaultCode::ConnectionLost, "test");
        bench.put(Input::SessionLost { slot: Slot(0), fault });
    });
    assert!(never_begun < 3.0);
}

#[test]
fn what_failed_on_the_network_goes_to_a_session_where_nothing_has() {
    for size in [10, LARGE] {
        let mut bench = Bench::new(options(2, 1));
        bench.copy(0, size);
        bench.copy(1, size);
        bench.open_all();
        assert_eq!((bench.job(0).0, bench.job(1).0), (Slot(0), Slot(1)));
        bench.fail_at(Side::Network, 0, FaultCode::TimedOut, RangeSet::new());
        bench.done(1);
        bench.tick_to_timeout();
        assert_eq!(bench.job(0).0, Slot(1));
        // The other one has work while there is more of it, and is the first again once that went well.
        bench.copy(2, size);
        assert_eq!(bench.job(2).0, Slot(0));
        bench.done(0);
        bench.done(2);
        bench.copy(3, size);
        assert_eq!(bench.job(3).0, Slot(0));
    }
}

#[test]
fn a_lost_session_charges_only_the_item_at_work_and_the_others_go_elsewhere() {
    let mut bench = Bench::new(options(1, 3));
    (0..3).for_each(|id| bench.copy(id, 10));
    bench.open_all();
    let attempt = bench.job(0).1.attempt;
    bench.put(Input::ItemStarted { attempt, tells: true });
    let fault = Fault::new(FaultCode::ConnectionLost, "test");
    bench.put(Input::SessionLost { slot: Slot(0), fault });
    let retries = bench.events.iter().filter(|e| matches!(e, Event::Retry { .. })).count();
    assert_eq!(retries, 1);
    bench.jobs.clear();
    while bench.jobs.len() < 3 {
        bench.tick_to_timeout();
        bench.open_all();
    }
    let mut again = bench.started();
    again.sort_unstable();
    assert_eq!(again, [0, 1, 2]);
}

#[test]
fn an_item_that_failed_just_before_its_session_is_the_only_one_charged() {
    let mut bench = Bench::new(options(1, 3));
    (0..3).for_each(|id| bench.copy(id, 10));
    bench.open_all();
    let attempt = bench.job(0).1.attempt;
    bench.put(Input::ItemStarted { attempt, tells: true });
    bench.fail(0, FaultCode::ConnectionLost, RangeSet::from(0..5));
    let fault = Fault::new(FaultCode::ConnectionLost, "test");
    bench.put(Input::SessionLost { slot: Slot(0), fault });
    let retries = bench.events.iter().filter(|e| matches!(e, Event::Retry { .. })).count();
    assert_eq!(retries, 1);
}

#[test]
fn reports_of_an_attempt_that_is_over_change_nothing() {
    let mut bench = Bench::new(options(1, 1));
    bench.copy(0, 10);
    bench.open_all();
    let old = bench.job(0).1.attempt;
    bench.fail(0, FaultCode::ConnectionLost, RangeSet::new());
    bench.put(Input::ItemDone { attempt: old, bytes: 10, verified: Verification::NotAsked });
    assert_eq!(bench.summary().files, 0);
    bench.tick_to_timeout();
    bench.put(Input::ItemDone { attempt: old, bytes: 10, verified: Verification::NotAsked });
    assert_eq!(bench.summary().files, 0);
    bench.done(0);
    assert_eq!((bench.summary().files, bench.summary().bytes), (1, 10));
}

#[test]
fn a_trickle_is_a_stall_and_a_steady_flow_is_not() {
    let mut bench = Bench::new(options(1, 1));
    bench.copy(0, LARGE);
    bench.open_all();
    let attempt = bench.job(0).1.attempt;
    bench.put(Input::ItemStarted { attempt, tells: true });
    let mut moved = 0;
    for _ in 0..30 {
        moved += 10_000;
        bench.put(Input::ItemProgress { attempt, moved, durable: None });
        bench.now += Duration::from_secs(10);
        bench.put(Input::Tick);
    }
    assert!(bench.closed.is_empty());
    for _ in 0..13 {
        moved += 1;
        bench.put(Input::ItemProgress { attempt, moved, durable: None });
        bench.now += Duration::from_secs(10);
        bench.put(Input::Tick);
    }
    let (_, fault) = &bench.closed[0];
    assert_eq!(fault.as_ref().map(|f| f.code), Some(FaultCode::Stalled));
}

/// A large copy that has begun; whether an end `tells` how much has moved.
fn begun(tells: bool) -> (Bench, Attempt) {
    let mut bench = Bench::new(options(1, 1));
    bench.copy(0, LARGE);
    bench.open_all();
    let attempt = bench.job(0).1.attempt;
    bench.put(Input::ItemStarted { attempt, tells });
    (bench, attempt)
}

/// Nothing is heard of the session: it is given up after so many seconds, and no sooner.
fn is_given_up_after(bench: &mut Bench, seconds: u64) {
    bench.now += Duration::from_secs(seconds - 1);
    bench.put(Input::Tick);
    assert!(bench.closed.is_empty());
    bench.now += Duration::from_secs(1);
    bench.put(Input::Tick);
    assert_eq!(bench.closed.len(), 1);
}

#[test]
fn an_end_that_would_tell_and_moves_nothing_is_a_stall() {
    is_given_up_after(&mut begun(true).0, 60);
}

#[test]
fn ends_that_never_tell_how_much_has_moved_have_as_long_as_those_that_verify() {
    is_given_up_after(&mut begun(false).0, 600);
    let (mut bench, attempt) = begun(false);
    bench.now += Duration::from_secs(599);
    bench.put(Input::Tick);
    // From its first word on an end is taken at it.
    bench.put(Input::ItemProgress { attempt, moved: 1, durable: None });
    is_given_up_after(&mut bench, 60);
}

#[test]
fn verifying_for_long_is_no_stall_but_silence_ends() {
    let (mut bench, attempt) = begun(true);
    bench.put(Input::ItemProgress { attempt, moved: LARGE, durable: None });
    bench.put(Input::ItemPhase { attempt, phase: Phase::Verifying });
    is_given_up_after(&mut bench, 600);
}

#[test]
fn refused_logins_fail_everything_including_what_is_planned_later() {
    let mut bench = Bench::new(options(2, 1));
    bench.copy(0, 10);
    bench.copy(1, 10);
    for slot in std::mem::take(&mut bench.opens) {
        let fault = Fault::new(FaultCode::LoginFailed, "log in").side(Side::Destination);
        bench.put(Input::SessionLost { slot, fault });
    }
    bench.copy(2, 10);
    bench.put(Input::ListingDone);
    assert!(bench.machine.is_finished());
    assert_eq!((bench.summary().failed, bench.summary().exit_code), (3, exit::CREDENTIALS));
}

#[test]
fn a_name_that_was_found_before_is_looked_for_again_and_another_is_not() {
    let unknown = || Fault::new(FaultCode::HostNotFound, "resolve").side(Side::Network);
    let mut bench = Bench::new(options(1, 1));
    bench.copy(0, 10);
    bench.open_all();
    bench.put(Input::SessionLost { slot: Slot(0), fault: Fault::new(FaultCode::ConnectionLost, "test") });
    bench.tick_to_timeout();
    bench.opens.clear();
    bench.put(Input::SessionLost { slot: Slot(0), fault: unknown() });
    bench.tick_to_timeout();
    bench.open_all();
    bench.done(0);
    assert_eq!(bench.summary().files, 1);
    let mut bench = Bench::new(options(1, 1));
    bench.copy(0, 10);
    bench.put(Input::ListingDone);
    bench.put(Input::SessionLost { slot: Slot(0), fault: unknown() });
    assert!(bench.machine.is_finished());
}

#[test]
fn a_session_that_cannot_be_opened_leaves_the_work_to_the_others() {
    let mut bench = Bench::new(options(2, 1));
    bench.copy(0, 10);
    bench.copy(1, 10);
    bench.put(Input::ListingDone);
    bench.put(Input::SessionLost { slot: Slot(1), fault: Fault::new(FaultCode::PeerRefused, "log in") });
    bench.put(Input::SessionReady { slot: Slot(0) });
    bench.done(0);
    bench.done(1);
    assert!(bench.machine.is_finished());
    assert_eq!(bench.summary().files, 2);
}

/// So many sessions are being opened for as many files; then all but the first are too many, and the second cannot be opened.
fn one_too_many_is_dead(sessions: u32) -> Bench {
    let mut bench = Bench::new(options(sessions, 1));
    (0..u64::from(sessions)).for_each(|id| bench.copy(id, 10));
    bench.put(Input::ListingDone);
    bench.put(Input::Concurrency { sessions: 1 });
    for slot in [Slot(1), Slot(0)] {
        let fault = Fault::new(FaultCode::LoginFailed, "log in").side(Side::Destination);
        bench.put(Input::SessionLost { slot, fault });
    }
    bench
}

#[test]
fn a_session_that_was_too_many_and_is_dead_takes_over_from_nobody() {
    let bench = one_too_many_is_dead(2);
    assert!(bench.machine.is_finished());
    assert!(bench.events.iter().any(|event| matches!(event, Event::GivenUp { .. })));
    assert_eq!(bench.summary().failed, 2);
    // Another one that was too many does.
    let mut bench = one_too_many_is_dead(3);
    bench.put(Input::SessionReady { slot: Slot(2) });
    (0..3).for_each(|id| bench.done(id));
    assert!(bench.machine.is_finished());
    assert_eq!((bench.summary().files, bench.summary().failed), (3, 0));
}

fn make(id: u64, directory: u64, parent: Option<u64>) -> Action {
    let mut item = item(id, 0);
    item.parent = parent.map(DirectoryId);
    Action::MakeDirectory { item, directory: DirectoryId(directory) }
}

fn set(id: u64, directory: u64, parent: Option<u64>) -> Action {
    let mut item = item(id, 0);
    item.parent = parent.map(DirectoryId);
    item.attributes.mode = Some(0o555);
    Action::SetAttributes { item, directory: DirectoryId(directory) }
}

fn copy_in(id: u64, parent: u64) -> Action {
    let mut item = item(id, 10);
    item.parent = Some(DirectoryId(parent));
    Action::Copy { item }
}

#[test]
fn directories_come_before_their_files_and_their_attributes_after() {
    let mut bench = Bench::new(options(2, 4));
    for action in [make(0, 0, None), make(1, 1, Some(0)), copy_in(2, 1), set(3, 1, Some(0)), set(4, 0, None)] {
        bench.put(Input::Planned(action));
    }
    bench.put(Input::ListingDone);
    bench.open_all();
    for id in 0..5 {
        assert_eq!(bench.started(), (0..=id).collect::<Vec<_>>());
        bench.done(id);
        bench.open_all();
    }
    assert!(bench.machine.is_finished());
    assert!(bench.machine.directories.is_empty());
}

#[test]
fn what_lies_in_a_directory_that_cannot_be_made_fails_with_it_and_once() {
    let mut bench = Bench::new(options(1, 1));
    for action in [make(0, 0, None), make(1, 1, Some(0)), copy_in(2, 1)] {
        bench.put(Input::Planned(action));
    }
    bench.open_all();
    bench.fail(0, FaultCode::PermissionDenied, RangeSet::new());
    for action in [copy_in(5, 1), set(3, 1, Some(0)), copy_in(6, 0), set(4, 0, None)] {
        bench.put(Input::Planned(action));
    }
    bench.put(Input::ListingDone);
    assert!(bench.machine.is_finished());
    assert_eq!(bench.summary().failed, 5, "two directories and three files");
    assert!(bench.summary().failures.iter().all(|f| f.fault.code == FaultCode::PermissionDenied));
    assert!(bench.machine.directories.is_empty());
}

#[test]
fn equal_checksums_skip_and_different_ones_copy() {
    let mut bench = Bench::new(options(1, 2));
    for id in 0..2 {
        bench.put(Input::Planned(Action::CompareChecksum { item: item(id, 10) }));
    }
    bench.put(Input::ListingDone);
    bench.open_all();
    let attempts = [bench.job(0).1.attempt, bench.job(1).1.attempt];
    bench.put(Input::ItemCompared { attempt: attempts[0], equal: true });
    bench.put(Input::ItemCompared { attempt: attempts[1], equal: false });
    assert_eq!(bench.job(1).1.work, Work::Copy);
    bench.done(1);
    assert!(bench.machine.is_finished());
    let skipped = |e: &Event| matches!(e, Event::ItemSkipped { reason: SkipReason::SameChecksum, .. });
    assert!(bench.events.iter().any(skipped));
    assert_eq!((bench.summary().files, bench.summary().skipped), (1, 1));
}

#[test]
fn what_is_only_compared_is_not_copied_where_it_differs() {
    let mut bench = Bench::new(options(1, 1));
    bench.put(Input::Planned(Action::CompareOnly { item: item(1, 10) }));
    bench.put(Input::ListingDone);
    bench.open_all();
    let attempt = bench.job(1).1.attempt;
    bench.put(Input::ItemCompared { attempt, equal: false });
    assert!(bench.machine.is_finished());
    let differs = |e: &Event| matches!(e, Event::ItemSkipped { reason: SkipReason::Differs, .. });
    assert!(bench.events.iter().any(differs));
    assert_eq!((bench.summary().files, bench.summary().skipped), (0, 1));
}

#[test]
fn what_a_destination_may_take_for_another_is_told_apart_before_anything_is_done_for_it() {
    let alike = |id| Item { twins: vec![b"OTHER".to_vec()], ..item(id, 10) };
    let directory = |item| Action::MakeDirectory { item, directory: DirectoryId(7) };
    let below = Item { parent: Some(DirectoryId(7)), ..item(4, 10) };
    let run = |equal| {
        let mut bench = Bench::new(options(1, 8));
        bench.put(Input::Planned(Action::Copy { item: alike(1) }));
        bench.put(Input::Planned(Action::CompareChecksum { item: alike(2) }));
        bench.put(Input::Planned(directory(alike(3))));
        bench.put(Input::Planned(Action::Copy { item: below.clone() }));
        bench.put(Input::Planned(Action::SetAttributes { item: alike(5), directory: DirectoryId(7) }));
        bench.put(Input::ListingDone);
        bench.open_all();
        assert_eq!(bench.started(), [1, 2, 3]);
        for id in [1, 2, 3] {
            assert_eq!(bench.job(id).1.work, Work::TellApart);
            let attempt = bench.job(id).1.attempt;
            bench.put(Input::ItemCompared { attempt, equal });
        }
        bench
    };
    let mut apart = run(false);
    let works = [1, 2, 3].map(|id| apart.job(id).1.work.clone());
    assert_eq!(works, [Work::Copy, Work::Compare, Work::MakeDirectory]);
    [1, 2, 3, 4].into_iter().for_each(|id| apart.done(id));
    assert!(apart.machine.is_finished());
    assert_eq!((apart.summary().files, apart.summary().failed, apart.summary().exit_code), (3, 0, exit::OK));
    let same = run(true);
    assert!(same.machine.is_finished());
    assert_eq!((same.summary().files, same.summary().failed), (0, 4), "what is in the directory, too");
    assert!(same.summary().failures.iter().all(|failure| failure.fault.code == FaultCode::AlreadyExists));
    let first = &same.summary().failures[0].fault;
    assert!(first.detail.contains("'OTHER'") && first.subject == "/d/1", "{first:?}");
}

#[test]
fn a_session_that_is_lost_before_a_name_was_told_apart_is_no_answer() {
    let mut bench = Bench::new(options(1, 1));
    let item = Item { twins: vec![b"OTHER".to_vec()], ..item(1, 10) };
    bench.put(Input::Planned(Action::Copy { item }));
    bench.put(Input::ListingDone);
    bench.open_all();
    let attempt = bench.job(1).1.attempt;
    bench.put(Input::ItemDone { attempt, bytes: 10, verified: Verification::NotAsked });
    assert_eq!(bench.summary().files, 0, "that says nothing of the name");
    let fault = Fault::new(FaultCode::ConnectionLost, "test").side(Side::Network);
    let mut bench = Bench::new(options(1, 1));
    let item = Item { twins: vec![b"OTHER".to_vec()], ..self::item(1, 10) };
    bench.put(Input::Planned(Action::Copy { item }));
    bench.open_all();
    bench.put(Input::SessionLost { slot: Slot(0), fault });
    while bench.jobs.len() < 2 {
        bench.tick_to_timeout();
        bench.open_all();
    }
    assert_eq!(bench.job(1).1.work, Work::TellApart);
}

#[test]
fn an_item_cancelled_by_an_end_without_the_users_word_counts_as_failed() {
    let mut bench = Bench::new(options(1, 1));
    bench.copy(1, 10);
    bench.copy(2, 10);
    bench.put(Input::ListingDone);
    bench.open_all();
    bench.fail(1, FaultCode::Cancelled, RangeSet::new());
    bench.done(2);
    let summary = bench.summary();
    assert_eq!((summary.failed, summary.not_done, summary.cancelled), (1, 0, false));
    assert_eq!((summary.failures.len(), summary.exit_code), (1, exit::SOME_FAILED));
}

#[test]
fn cancelling_closes_everything_and_takes_no_more() {
    let mut bench = Bench::new(options(1, 1));
    (0..3).for_each(|id| bench.copy(id, 10));
    bench.open_all();
    bench.put(Input::Cancel);
    bench.copy(3, 10);
    assert!(bench.machine.is_finished());
    let summary = bench.summary();
    assert_eq!((summary.exit_code, summary.not_done, summary.failed), (exit::CANCELLED, 4, 0));
}

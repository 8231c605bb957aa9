//! Large files that are not divided, one behind the other in a session.

use std::time::Duration;

use super::tests::{Bench, item};
use super::*;
use crate::fault::FaultCode;
use crate::plan::{Action, Item};

const LARGE: u64 = 1 << 30;

fn bench(concurrency: u32, files: u64) -> Bench {
    let mut bench = Bench::new(TransferOptions { concurrency, whole_ahead: true, ..TransferOptions::default() });
    (0..files).for_each(|id| bench.copy(id, LARGE));
    bench.open_all();
    bench
}

/// The files that this session was given, in order.
fn given(bench: &Bench, slot: u32) -> Vec<u64> {
    bench.jobs.iter().filter(|(of, _)| of.0 == slot).map(|(_, job)| job.item.id.0).collect()
}

#[test]
fn a_session_has_the_next_file_before_it_has_ended_with_one_and_no_third() {
    let mut bench = bench(1, 4);
    assert_eq!(bench.started(), [0, 1]);
    bench.done(0);
    assert_eq!(bench.started(), [0, 1, 2]);
    (1..4).for_each(|id| bench.done(id));
    assert_eq!(bench.summary().files, 4);
}

#[test]
fn the_last_files_go_to_whoever_is_free_first() {
    let mut bench = bench(2, 5);
    assert_eq!((given(&bench, 0), given(&bench, 1)), (vec![0, 1], vec![2, 3]));
    bench.done(0);
    assert_eq!(bench.started().len(), 4, "one waits for two sessions");
    bench.done(2);
    bench.done(3);
    assert_eq!(given(&bench, 1), [2, 3, 4]);
}

#[test]
fn a_session_that_is_still_being_opened_gets_its_file_first() {
    let mut bench = Bench::new(TransferOptions { concurrency: 2, whole_ahead: true, ..TransferOptions::default() });
    (0..3).for_each(|id| bench.copy(id, LARGE));
    let [first, second] = bench.opens[..] else { panic!("two are opened") };
    bench.put(Input::SessionReady { slot: first });
    assert_eq!(bench.started(), [0]);
    bench.put(Input::SessionReady { slot: second });
    assert_eq!(bench.started(), [0, 1], "the last one waits for whoever is free first");
}

#[test]
fn nothing_waits_behind_what_has_no_end_or_is_compared_or_where_no_command_goes_ahead() {
    let mut bench = bench(1, 0);
    bench.put(Input::Planned(Action::Copy { item: Item { size: None, ..item(0, 0) } }));
    bench.open_all();
    (1..3).for_each(|id| bench.copy(id, LARGE));
    assert_eq!(bench.started(), [0]);
    let mut bench = self::bench(1, 0);
    bench.put(Input::Planned(Action::CompareChecksum { item: item(0, LARGE) }));
    bench.open_all();
    (1..3).for_each(|id| bench.copy(id, LARGE));
    assert_eq!(bench.started(), [0]);
    let mut bench = Bench::new(TransferOptions { concurrency: 1, ..TransferOptions::default() });
    (0..3).for_each(|id| bench.copy(id, LARGE));
    bench.open_all();
    assert_eq!(bench.started(), [0]);
}

#[test]
fn of_two_files_in_a_session_that_is_lost_only_the_first_is_charged() {
    let mut bench = bench(1, 2);
    let attempts = [0, 1].map(|id| bench.job(id).1.attempt);
    attempts.iter().for_each(|attempt| bench.put(Input::ItemStarted { attempt: *attempt, tells: true }));
    bench.put(Input::SessionLost { slot: bench.job(0).0, fault: Fault::new(FaultCode::ConnectionLost, "test") });
    let retried = |event: &Event| matches!(event, Event::Retry { item, .. } if item.0 == 0);
    let others = |event: &Event| matches!(event, Event::Retry { item, .. } if item.0 != 0);
    assert!(bench.events.iter().any(retried) && !bench.events.iter().any(others), "{:?}", bench.events);
}

#[test]
fn the_first_of_two_files_is_watched_until_it_has_moved_and_then_the_second() {
    let mut bench = bench(1, 2);
    let [first, second] = [0, 1].map(|id| bench.job(id).1.attempt);
    for attempt in [first, second] {
        bench.put(Input::ItemStarted { attempt, tells: true });
    }
    let pass = |bench: &mut Bench, attempt, moved, seconds| {
        bench.put(Input::ItemProgress { attempt, moved, durable: None });
        bench.now += Duration::from_secs(seconds);
        bench.put(Input::Tick);
        bench.closed.len()
    };
    assert_eq!(pass(&mut bench, first, 1_000_000, 59), 0);
    bench.put(Input::ItemPhase { attempt: first, phase: Phase::Verifying });
    assert_eq!(pass(&mut bench, second, 1_000_000, 59), 0);
    bench.done(0);
    assert_eq!(pass(&mut bench, second, 1_000_001, 59), 0);
    assert_eq!(pass(&mut bench, second, 1_000_001, 1), 1, "one byte in a minute");
    let (_, fault) = &bench.closed[0];
    assert_eq!(fault.as_ref().map(|fault| fault.code), Some(FaultCode::Stalled));
}

#[test]
fn a_file_that_moves_again_after_it_was_examined_is_watched_as_before() {
    let mut bench = bench(1, 1);
    let attempt = bench.job(0).1.attempt;
    bench.put(Input::ItemStarted { attempt, tells: true });
    for phase in [Phase::Verifying, Phase::Moving] {
        bench.put(Input::ItemPhase { attempt, phase });
    }
    bench.now += Duration::from_secs(60);
    bench.put(Input::Tick);
    assert_eq!(bench.closed.len(), 1, "its ends tell what moves");
}

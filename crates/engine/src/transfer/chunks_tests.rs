//! Files in chunks, one promise after the other.

use std::time::Duration;

use super::tests::{Bench, item};
use super::*;
use crate::fault::{FaultCode, Retry, Side};
use crate::plan::{Action, ItemId};
use crate::progress::{ItemState, Verification};
use crate::ranges::RangeSet;
use crate::summary::exit;
use crate::tune::Setting;

pub(super) const LEAF: u64 = 16;
pub(super) const CHUNK: u64 = 8 * LEAF;

pub(super) fn options(concurrency: u32) -> TransferOptions {
    let chunking = Chunking { chunk: CHUNK, leaf: LEAF, threshold: 2 * CHUNK, ahead: 2 };
    TransferOptions {
        concurrency,
        pipeline: Setting::Fixed(4),
        small_limit: CHUNK,
        chunking: Some(chunking),
        ..TransferOptions::default()
    }
}

fn md5() -> Verification {
    Verification::by("md5")
}

/// A bench with one file of `size` bytes whose opening found `verified`.
pub(super) fn opened(concurrency: u32, size: u64, verified: RangeSet) -> Bench {
    opened_with(options(concurrency), size, LEAF, verified)
}

/// The same with other options, by which its leaves have `leaf` bytes.
pub(super) fn opened_with(options: TransferOptions, size: u64, leaf: u64, verified: RangeSet) -> Bench {
    let mut bench = Bench::new(options);
    bench.copy(0, size);
    bench.put(Input::ListingDone);
    bench.open_all();
    let attempt = bench.job(0).1.attempt;
    assert_eq!(bench.job(0).1.work, Work::Open { leaf });
    bench.jobs.clear();
    bench.put(Input::ItemOpened { attempt, verified, found: Opening::default() });
    bench
}

/// Takes the jobs that are chunks, in the order of their starts.
pub(super) fn chunks(bench: &mut Bench) -> Vec<(Slot, Attempt, std::ops::Range<u64>)> {
    let jobs = std::mem::take(&mut bench.jobs);
    let chunk = |(slot, job): (Slot, Job)| match job.work {
        Work::Chunk { part } => Some((slot, job.attempt, part)),
        _ => None,
    };
    jobs.into_iter().filter_map(chunk).collect()
}

pub(super) fn prove(bench: &mut Bench, attempt: Attempt, part: &std::ops::Range<u64>) {
    let (bytes, verified, wrong) = (part.end - part.start, RangeSet::from(part.clone()), RangeSet::new());
    bench.put(Input::ChunkDone { attempt, bytes, verified, wrong, verification: md5() });
}

fn wrong(bench: &mut Bench, attempt: Attempt, part: &std::ops::Range<u64>, wrong: RangeSet) {
    let verified = wrong.missing(part.clone());
    let bytes = part.end - part.start;
    bench.put(Input::ChunkDone { attempt, bytes, verified, wrong, verification: md5() });
}

/// Proves every chunk until the file is to be committed; returns how often each leaf was moved.
fn prove_all(bench: &mut Bench, size: u64) -> Vec<u32> {
    let mut moved = vec![0; size.div_ceil(LEAF) as usize];
    let commits = |bench: &Bench| bench.jobs.iter().any(|(_, job)| job.work == Work::Commit);
    while !commits(bench) {
        let taken = chunks(bench);
        if taken.is_empty() {
            break;
        }
        for (_, attempt, part) in taken {
            part.clone().step_by(LEAF as usize).for_each(|at| moved[(at / LEAF) as usize] += 1);
            prove(bench, attempt, &part);
        }
    }
    moved
}

fn leaves_wrong(bench: &Bench) -> Vec<(u64, u64, u32)> {
    let wrong = |event: &Event| match event {
        Event::LeafWrong { start, end, times, .. } => Some((*start, *end, *times)),
        _ => None,
    };
    bench.events.iter().filter_map(wrong).collect()
}

#[test]
fn a_file_that_cannot_go_on_in_chunks_is_copied_whole_and_nothing_of_them_counts() {
    let size = 40 * LEAF;
    let mut bench = opened(2, size, RangeSet::new());
    let taken = chunks(&mut bench);
    prove(&mut bench, taken[0].1, &taken[0].2);
    bench.put(Input::ItemWhole { attempt: taken[1].1 });
    // What the others still say is not listened to.
    bench.put(Input::ItemWhole { attempt: taken[2].1 });
    prove(&mut bench, taken[3].1, &taken[3].2);
    let copies: Vec<_> = bench.jobs.iter().filter(|(_, job)| job.work == Work::Copy).collect();
    assert_eq!(copies.len(), 1, "{:?}", bench.jobs);
    let (attempt, received) = (copies[0].1.attempt, copies[0].1.received.clone());
    assert!(received.is_empty());
    bench.put(Input::ItemDone { attempt, bytes: size, verified: md5() });
    assert!(bench.machine.is_finished());
    assert!(!bench.events.iter().any(|event| matches!(event, Event::ItemFailed(_) | Event::Retry { .. })));
}

#[test]
fn a_file_that_cannot_be_committed_from_chunks_is_copied_whole() {
    let mut bench = opened(1, 20 * LEAF, RangeSet::from(0..20 * LEAF));
    let (_, job) = bench.job(0);
    assert_eq!(job.work, Work::Commit);
    let attempt = job.attempt;
    bench.jobs.clear();
    bench.put(Input::ItemWhole { attempt });
    assert_eq!(bench.job(0).1.work, Work::Copy);
}

#[test]
fn a_large_file_is_opened_moved_by_every_session_and_committed_once() {
    let size = 40 * LEAF + 5;
    let mut bench = opened(3, size, RangeSet::new());
    assert!(bench.opens.is_empty(), "every session was opened while the file was");
    let first: Vec<_> = bench.jobs.iter().map(|(slot, _)| slot.0).collect();
    assert_eq!(first, [0, 1, 2, 0, 1, 2], "one chunk each, then one more ahead");
    assert_eq!(prove_all(&mut bench, size), vec![1; 41]);
    let (_, job) = bench.job(0);
    assert_eq!((&job.work, job.received.is_empty()), (&Work::Commit, true));
    let attempt = job.attempt;
    bench.put(Input::ItemDone { attempt, bytes: 0, verified: Verification::NotAsked });
    assert!(bench.machine.is_finished());
    let starts = bench.events.iter().filter(|event| matches!(event, Event::Started { .. })).count();
    let done = bench.events.iter().filter_map(|event| match event {
        Event::ItemDone { bytes, verification, attempts, .. } => Some((*bytes, verification.clone(), *attempts)),
        _ => None,
    });
    assert_eq!((starts, done.collect::<Vec<_>>()), (1, vec![(size, md5(), 1)]));
    let summary = bench.summary();
    assert_eq!((summary.bytes, summary.bytes_wasted, summary.verified, summary.exit_code), (size, 0, 1, exit::OK));
}

#[test]
fn smaller_files_ranges_and_unknown_sizes_are_copied_whole() {
    let mut bench = Bench::new(options(4));
    bench.copy(0, 2 * CHUNK - 1);
    let mut part = item(1, 4 * CHUNK);
    part.range = Some(0..4 * CHUNK);
    let mut device = item(2, 0);
    device.size = None;
    for item in [part, device] {
        bench.put(Input::Planned(Action::Copy { item }));
    }
    bench.open_all();
    assert!((0..3).all(|id| bench.job(id).1.work == Work::Copy));
}

#[test]
fn ends_that_know_no_chunks_get_the_file_whole() {
    let mut bench = Bench::new(options(2));
    bench.copy(0, 100 * CHUNK);
    bench.put(Input::ListingDone);
    bench.open_all();
    let attempt = bench.job(0).1.attempt;
    bench.put(Input::ItemWhole { attempt });
    assert_eq!(bench.job(0).1.work, Work::Copy);
    bench.done(0);
    assert!(bench.machine.is_finished());
    assert_eq!(bench.summary().bytes, 100 * CHUNK);
}

#[test]
fn what_an_earlier_run_proved_is_skipped_and_counted_as_resumed() {
    let size = 20 * LEAF;
    let mut bench = opened(2, size, [3..5 * LEAF, 10 * LEAF..size].into_iter().collect());
    let resumed = 14 * LEAF;
    let now = bench.now;
    let snapshot = bench.machine.progress().snapshot(now);
    assert_eq!((snapshot.bytes_done, snapshot.bytes_resumed, snapshot.bytes_wasted), (resumed, resumed, 0));
    assert_eq!(snapshot.active[0].bytes_resumed, resumed);
    let moved = prove_all(&mut bench, size);
    assert_eq!(moved, [vec![1], vec![0; 4], vec![1; 5], vec![0; 10]].concat());
    let attempt = bench.job(0).1.attempt;
    bench.put(Input::ItemDone { attempt, bytes: 0, verified: Verification::NotAsked });
    let summary = bench.summary();
    assert_eq!((summary.bytes, summary.bytes_resumed, summary.bytes_wasted), (size, resumed, 0));
}

#[test]
fn a_file_that_is_proven_already_is_only_committed() {
    let bench = opened(2, 20 * LEAF, RangeSet::from(0..20 * LEAF));
    assert_eq!(bench.started(), [0]);
    assert_eq!(bench.job(0).1.work, Work::Commit);
}

#[test]
fn a_wrong_leaf_alone_is_sent_again_and_reported() {
    let size = 32 * LEAF;
    let mut bench = opened(1, size, RangeSet::new());
    let taken = chunks(&mut bench);
    wrong(&mut bench, taken[0].1, &taken[0].2, RangeSet::from(LEAF..3 * LEAF));
    assert_eq!(leaves_wrong(&bench), [(LEAF, 2 * LEAF, 1), (2 * LEAF, 3 * LEAF, 1)]);
    let again = chunks(&mut bench);
    assert_eq!(again[0].2, LEAF..2 * LEAF);
    prove(&mut bench, again[0].1, &again[0].2);
    prove(&mut bench, taken[1].1, &taken[1].2);
    prove_all(&mut bench, size);
    let attempt = bench.job(0).1.attempt;
    bench.put(Input::ItemDone { attempt, bytes: 0, verified: Verification::NotAsked });
    let summary = bench.summary();
    assert_eq!((summary.leaves_resent, summary.bytes_wasted, summary.bytes), (2, 2 * LEAF, size));
}

#[test]
fn a_leaf_wrong_three_times_ends_the_file_with_its_place() {
    let size = 3 * CHUNK;
    let mut bench = opened(1, size, RangeSet::new());
    let mut taken = chunks(&mut bench);
    let (_, attempt, part) = taken.remove(0);
    wrong(&mut bench, attempt, &part, RangeSet::from(LEAF..2 * LEAF));
    for _ in 0..2 {
        let (_, attempt, part) = chunks(&mut bench).remove(0);
        assert_eq!(part, LEAF..2 * LEAF);
        wrong(&mut bench, attempt, &part, RangeSet::from(part.clone()));
    }
    let fault = &bench.summary().failures[0].fault;
    assert_eq!(
        (fault.code, fault.side, fault.retry),
        (FaultCode::ChecksumMismatch, Some(Side::Destination), Retry::Exhausted)
    );
    assert!(fault.detail.contains("16-32"), "{}", fault.detail);
    assert_eq!(bench.summary().failed, 1);
    assert!(bench.machine.is_finished(), "the chunk in the air holds nothing up");
}

#[test]
fn a_failed_chunk_keeps_its_proven_leaves_and_stops_no_other() {
    let size = 64 * LEAF;
    let mut bench = opened(2, size, RangeSet::new());
    let taken = chunks(&mut bench);
    let (_, attempt, part) = taken[0].clone();
    let fault = Fault::new(FaultCode::ConnectionLost, "test");
    bench.put(Input::ItemFailed { attempt, fault, received: RangeSet::from(0..3 * LEAF + 7) });
    let others = chunks(&mut bench);
    assert_eq!(others.len(), 1, "the session goes on with the next part");
    assert!(others[0].2.start >= part.end, "the failed one waits");
    bench.now += Duration::from_secs(2);
    bench.put(Input::Tick);
    prove(&mut bench, taken[1].1, &taken[1].2);
    let (_, _, again) = chunks(&mut bench).remove(0);
    assert_eq!(again, 3 * LEAF..CHUNK);
    assert!(bench.events.iter().any(|event| matches!(event, Event::Retry { kept, .. } if *kept == 3 * LEAF)));
}

#[test]
fn chunks_that_fail_together_are_one_failure() {
    let mut bench = opened(8, 1000 * LEAF, RangeSet::new());
    for (_, attempt, _) in chunks(&mut bench) {
        let fault = Fault::new(FaultCode::TimedOut, "test");
        bench.put(Input::ItemFailed { attempt, fault, received: RangeSet::new() });
    }
    assert_eq!(bench.summary().failed, 0);
}

#[test]
fn a_part_that_failed_on_the_network_goes_to_a_session_where_nothing_has() {
    let mut bench = opened(2, 4 * CHUNK, RangeSet::new());
    let mut taken = chunks(&mut bench);
    let first = taken.iter().position(|(slot, ..)| *slot == Slot(0)).expect("both have work");
    let (_, held, part) = taken.remove(first);
    while !taken.is_empty() {
        taken.iter().for_each(|(_, attempt, part)| prove(&mut bench, *attempt, part));
        taken = chunks(&mut bench);
    }
    let fault = Fault::new(FaultCode::TimedOut, "connect").side(Side::Network);
    bench.put(Input::ItemFailed { attempt: held, fault, received: RangeSet::new() });
    bench.tick_to_timeout();
    let (slot, _, again) = chunks(&mut bench).remove(0);
    assert_eq!((slot, again.start), (Slot(1), part.start));
}

#[test]
fn a_part_that_never_gets_through_exhausts_its_files_retries() {
    let mut bench = opened(1, 2 * CHUNK, RangeSet::new());
    for _ in 0..100 {
        for (_, attempt, _) in chunks(&mut bench) {
            let fault = Fault::new(FaultCode::TimedOut, "test");
            bench.put(Input::ItemFailed { attempt, fault, received: RangeSet::new() });
        }
        if bench.machine.is_finished() {
            break;
        }
        bench.tick_to_timeout();
    }
    assert_eq!(bench.summary().failures[0].fault.retry, Retry::Exhausted);
}

#[test]
fn a_permanent_fault_is_reported_once_and_late_reports_free_their_sessions() {
    let mut bench = Bench::new(options(2));
    bench.copy(0, 100 * CHUNK);
    bench.copy(1, 10);
    bench.open_all();
    let open = bench.jobs.iter().find(|(_, job)| job.item.id == ItemId(0)).expect("it is opened").1.attempt;
    bench.done(1);
    bench.jobs.clear();
    bench.put(Input::ItemOpened { attempt: open, verified: RangeSet::new(), found: Opening::default() });
    let taken = chunks(&mut bench);
    assert_eq!(taken.len(), 4);
    for (_, attempt, _) in &taken {
        let fault = Fault::new(FaultCode::NoSpace, "write").side(Side::Destination);
        bench.put(Input::ItemFailed { attempt: *attempt, fault, received: RangeSet::new() });
    }
    assert_eq!(bench.summary().failed, 1);
    assert!(bench.machine.orphans.is_empty());
    bench.copy(2, 10 * CHUNK);
    bench.put(Input::ListingDone);
    assert_eq!(bench.job(2).1.work, Work::Open { leaf: LEAF }, "the sessions are free again");
}

#[test]
fn a_lost_session_charges_the_chunk_at_work_and_gives_back_the_other_at_once() {
    let mut bench = opened(2, 100 * CHUNK, RangeSet::new());
    let taken = chunks(&mut bench);
    let lost: Vec<_> = taken.iter().filter(|(slot, ..)| slot.0 == 0).cloned().collect();
    let other = taken.iter().find(|(slot, ..)| slot.0 == 1).expect("both have work").clone();
    bench.put(Input::ItemStarted { attempt: lost[0].1, tells: true });
    let fault = Fault::new(FaultCode::ConnectionLost, "test");
    bench.put(Input::SessionLost { slot: Slot(0), fault });
    prove(&mut bench, other.1, &other.2);
    assert_eq!(chunks(&mut bench)[0].2, lost[1].2, "what was not at work goes first");
    let retries = bench.events.iter().filter(|event| matches!(event, Event::Retry { .. })).count();
    assert_eq!(retries, 1);
}

#[test]
fn a_changed_source_starts_over_and_old_reports_count_no_more() {
    let size = 10 * CHUNK;
    let mut bench = opened(1, size, RangeSet::from(0..CHUNK));
    let taken = chunks(&mut bench);
    let fault = Fault::new(FaultCode::SourceChanged, "read").side(Side::Source);
    bench.put(Input::ItemFailed { attempt: taken[0].1, fault, received: RangeSet::from(taken[0].2.clone()) });
    let now = bench.now;
    let snapshot = bench.machine.progress().snapshot(now);
    assert_eq!((snapshot.bytes_done, snapshot.bytes_resumed), (0, 0));
    prove(&mut bench, taken[1].1, &taken[1].2);
    bench.tick_to_timeout();
    let attempt = bench.job(0).1.attempt;
    assert_eq!(bench.job(0).1.work, Work::Open { leaf: LEAF });
    let now = bench.now;
    assert_eq!(bench.machine.progress().snapshot(now).bytes_done, 0);
    bench.jobs.clear();
    bench.put(Input::ItemOpened { attempt, verified: RangeSet::new(), found: Opening::default() });
    assert_eq!(prove_all(&mut bench, size), vec![1; 80]);
}

#[test]
fn at_the_tail_parts_get_shorter_so_that_every_session_has_one() {
    let size = 8 * CHUNK;
    let mut bench = opened(4, size, RangeSet::new());
    let taken = chunks(&mut bench);
    let lengths: Vec<_> = taken.iter().map(|(_, _, part)| (part.end - part.start) / LEAF).collect();
    assert_eq!(lengths, [4, 4, 4, 4, 3, 3, 3, 3]);
}

#[test]
fn sessions_are_spread_over_the_files_that_are_open() {
    let mut bench = Bench::new(options(4));
    (0..2).for_each(|id| bench.copy(id, 100 * CHUNK));
    bench.open_all();
    let opens: Vec<_> = bench.jobs.iter().map(|(_, job)| job.attempt).collect();
    assert_eq!(opens.len(), 2);
    bench.jobs.clear();
    for attempt in opens {
        bench.put(Input::ItemOpened { attempt, verified: RangeSet::new(), found: Opening::default() });
    }
    let taken = chunks(&mut bench);
    let of = |id| taken.iter().filter(|(_, attempt, _)| attempt.item == ItemId(id)).count();
    assert_eq!(of(0) + of(1), 8);
    for (_, attempt, part) in taken {
        prove(&mut bench, attempt, &part);
    }
    let taken = chunks(&mut bench);
    let of = |id| taken.iter().filter(|(_, attempt, _)| attempt.item == ItemId(id)).count();
    assert_eq!((of(0), of(1)), (4, 4));
}

#[test]
fn a_tebibyte_is_never_more_than_what_is_in_the_air() {
    let mut bench = Bench::new(TransferOptions { chunking: Some(Chunking::default()), ..options(8) });
    bench.copy(0, 1 << 40);
    bench.open_all();
    let attempt = bench.job(0).1.attempt;
    bench.put(Input::ItemOpened { attempt, verified: RangeSet::new(), found: Opening::default() });
    assert_eq!(bench.started().len(), 1 + 16);
    assert_eq!(bench.machine.entries.len(), 1);
}

#[test]
fn a_commit_that_found_its_file_gone_opens_it_again() {
    let mut bench = opened(1, 2 * CHUNK, RangeSet::from(0..2 * CHUNK));
    bench.fail(0, FaultCode::NotFound, RangeSet::new());
    bench.tick_to_timeout();
    assert_eq!(bench.job(0).1.work, Work::Open { leaf: LEAF });
}

/// Answers an opening: all of the file is there.
fn open_whole(bench: &mut Bench, size: u64) {
    let attempt = bench.job(0).1.attempt;
    assert_eq!(bench.job(0).1.work, Work::Open { leaf: LEAF });
    bench.put(Input::ItemOpened { attempt, verified: RangeSet::from(0..size), found: Opening::default() });
}

#[test]
fn a_commit_that_never_succeeds_fails_after_all_attempts() {
    for moves_again in [false, true] {
        let size = 2 * CHUNK;
        let mut bench = opened(1, size, RangeSet::from(0..size));
        for attempt in 1..=5 {
            assert_eq!(bench.job(0).1.work, Work::Commit, "attempt {attempt}");
            bench.fail(0, FaultCode::StorageBusy, RangeSet::new());
            if attempt == 5 {
                break;
            }
            bench.tick_to_timeout();
            if moves_again {
                let attempt = bench.job(0).1.attempt;
                bench.jobs.clear();
                bench.put(Input::ItemOpened { attempt, verified: RangeSet::new(), found: Opening::default() });
                while bench.jobs.last().is_some_and(|(_, job)| job.work != Work::Commit) {
                    chunks(&mut bench).into_iter().for_each(|(_, attempt, part)| prove(&mut bench, attempt, &part));
                }
            } else {
                open_whole(&mut bench, size);
            }
        }
        assert!(bench.machine.is_finished() && bench.summary().exit_code != exit::OK);
    }
}

#[test]
fn a_chunk_that_found_its_file_gone_opens_it_again_as_often_as_there_are_attempts() {
    let size = 4 * CHUNK;
    let mut bench = opened(2, size, RangeSet::new());
    for times in 1..=5 {
        let mut parts = chunks(&mut bench);
        let (_, attempt, part) = parts.remove(0);
        prove(&mut bench, attempt, &part);
        parts.extend(chunks(&mut bench));
        let fault = Fault::new(FaultCode::NotFound, "join session").side(Side::Destination);
        bench.put(Input::ItemFailed { attempt: parts[0].1, fault, received: RangeSet::new() });
        if times == 5 {
            break;
        }
        // What else was in the air ends, and is not listened to.
        for (_, attempt, part) in &parts[1..] {
            prove(&mut bench, *attempt, part);
        }
        bench.jobs.clear();
        while bench.jobs.is_empty() {
            bench.tick_to_timeout();
        }
        let attempt = bench.job(0).1.attempt;
        assert_eq!(bench.job(0).1.work, Work::Open { leaf: LEAF });
        bench.jobs.clear();
        bench.put(Input::ItemOpened { attempt, verified: RangeSet::new(), found: Opening::default() });
    }
    assert!(bench.machine.is_finished() && bench.summary().exit_code != exit::OK);
}

#[test]
fn a_chunk_whose_source_is_gone_fails_its_file() {
    let mut bench = opened(1, 4 * CHUNK, RangeSet::new());
    bench.fail(0, FaultCode::NotFound, RangeSet::new());
    assert!(bench.machine.is_finished() && bench.summary().exit_code != exit::OK);
}

#[test]
fn a_commit_that_was_cut_off_is_asked_for_again() {
    let mut bench = opened(1, 2 * CHUNK, RangeSet::from(0..2 * CHUNK));
    let fault = Fault::new(FaultCode::ConnectionLost, "test");
    bench.put(Input::SessionLost { slot: Slot(0), fault });
    bench.jobs.clear();
    while bench.jobs.is_empty() {
        bench.tick_to_timeout();
        bench.open_all();
    }
    assert_eq!(bench.job(0).1.work, Work::Commit);
    let attempt = bench.job(0).1.attempt;
    bench.put(Input::ItemDone { attempt, bytes: 0, verified: md5() });
    assert_eq!(bench.summary().verified, 1);
}

#[test]
fn progress_sums_the_chunks_and_says_when_all_are_read_back() {
    let mut bench = opened(2, 10 * CHUNK, RangeSet::new());
    let taken = chunks(&mut bench);
    for (_, attempt, _) in &taken {
        bench.put(Input::ItemProgress { attempt: *attempt, moved: 10, durable: Some(RangeSet::from(0..10 * CHUNK)) });
    }
    let now = bench.now;
    let active = |bench: &Bench| bench.machine.progress().snapshot(now).active.remove(0);
    assert_eq!((active(&bench).bytes_done, active(&bench).state), (40, ItemState::Moving));
    for (_, attempt, _) in &taken {
        bench.put(Input::ItemPhase { attempt: *attempt, phase: Phase::Verifying });
    }
    assert_eq!(active(&bench).state, ItemState::Verifying);
}

#[test]
fn a_chunk_that_moves_nothing_is_a_stall_and_one_that_is_read_back_is_not() {
    let mut bench = opened(1, 10 * CHUNK, RangeSet::new());
    let taken = chunks(&mut bench);
    bench.put(Input::ItemPhase { attempt: taken[0].1, phase: Phase::Verifying });
    bench.now += Duration::from_secs(500);
    bench.put(Input::Tick);
    assert!(bench.closed.is_empty());
    bench.put(Input::ItemStarted { attempt: taken[1].1, tells: true });
    bench.now += Duration::from_secs(61);
    bench.put(Input::Tick);
    assert_eq!(bench.closed.len(), 1);
}

#[test]
fn whole_large_files_and_files_in_chunks_both_get_sessions() {
    let mut bench = Bench::new(options(3));
    bench.copy(0, 1000 * CHUNK);
    bench.open_all();
    let attempt = bench.job(0).1.attempt;
    bench.put(Input::ItemOpened { attempt, verified: RangeSet::new(), found: Opening::default() });
    bench.open_all();
    let mut taken = chunks(&mut bench);
    bench.copy(1, CHUNK + 1);
    for _ in 0..6 {
        let (_, attempt, part) = taken.remove(0);
        prove(&mut bench, attempt, &part);
        let more = bench.jobs.iter().any(|(_, job)| job.item.id == ItemId(1));
        if more {
            return;
        }
        taken.extend(chunks(&mut bench));
    }
    panic!("the whole file waits for ever");
}

#[test]
fn small_files_that_come_later_get_a_session_and_only_one_runs_dry() {
    let mut bench = opened(3, 1000 * CHUNK, RangeSet::new());
    let mut taken = chunks(&mut bench);
    bench.put(Input::Planned(Action::Copy { item: item(5, 1) }));
    for _ in 0..4 {
        let (_, attempt, part) = taken.remove(0);
        prove(&mut bench, attempt, &part);
        if bench.jobs.iter().any(|(_, job)| job.item.id == ItemId(5)) {
            let large = bench.machine.large_slots();
            assert_eq!(large, 2);
            return;
        }
        taken.extend(chunks(&mut bench));
    }
    panic!("the small file waits for ever");
}

#[test]
fn sessions_come_and_go_while_a_file_is_moved() {
    let mut bench = opened(2, 1000 * CHUNK, RangeSet::new());
    let taken = chunks(&mut bench);
    bench.put(Input::Concurrency { sessions: 4 });
    assert_eq!(bench.opens, [Slot(2), Slot(3)]);
    bench.open_all();
    assert_eq!(chunks(&mut bench).len(), 4);
    bench.put(Input::Concurrency { sessions: 1 });
    assert!(bench.closed.is_empty(), "what runs is let run out");
    for (slot, attempt, part) in taken {
        prove(&mut bench, attempt, &part);
        assert!(bench.jobs.iter().all(|(slot, _)| *slot == Slot(0)), "{slot:?} gets no more");
    }
    assert_eq!(
        bench.closed.iter().map(|(slot, fault)| (*slot, fault.is_some())).collect::<Vec<_>>(),
        [(Slot(1), false)]
    );
}

#[test]
fn a_file_may_be_moved_otherwise_than_the_rest_of_the_run() {
    let size = 40 * LEAF;
    let begun = |options: TransferOptions, chunking| {
        let mut bench = Bench::new(options);
        bench.put(Input::Chunking { item: ItemId(0), chunking });
        bench.copy(0, size);
        bench.copy(1, size);
        bench.put(Input::ListingDone);
        bench.open_all();
        bench
    };
    let work = |bench: &Bench, id| {
        bench.jobs.iter().find(|(_, job)| job.item.id == ItemId(id)).map(|(_, job)| job.work.clone())
    };
    let whole = begun(options(2), None);
    assert_eq!((work(&whole, 0), work(&whole, 1)), (Some(Work::Copy), Some(Work::Open { leaf: LEAF })));
    let parts = Chunking { chunk: 2 * LEAF, leaf: LEAF, threshold: LEAF, ahead: 2 };
    let mut bench = begun(TransferOptions { chunking: None, ..options(2) }, Some(parts));
    assert_eq!((work(&bench, 0), work(&bench, 1)), (Some(Work::Open { leaf: LEAF }), Some(Work::Copy)));
    let attempts: Vec<_> = bench.jobs.drain(..).map(|(_, job)| job.attempt).collect();
    for attempt in attempts {
        bench.put(match attempt.item {
            ItemId(0) => Input::ItemOpened { attempt, verified: RangeSet::new(), found: Opening::default() },
            _ => Input::ItemDone { attempt, bytes: size, verified: md5() },
        });
    }
    assert!(
        bench
            .jobs
            .iter()
            .all(|(_, job)| matches!(&job.work, Work::Chunk { part } if part.end - part.start <= 2 * LEAF))
    );
    assert_eq!(prove_all(&mut bench, size), [1; 40]);
    let attempt = bench.jobs[0].1.attempt;
    bench.put(Input::ItemDone { attempt, bytes: 0, verified: md5() });
    assert!(bench.machine.is_finished());
}

#[test]
fn what_has_moved_makes_room_for_the_next_before_the_destination_has_answered() {
    let mut bench = opened(1, 100 * CHUNK, RangeSet::new());
    let first = chunks(&mut bench);
    assert_eq!(first.len(), 2, "one moves, one waits behind it");
    bench.put(Input::ChunkMoved { attempt: first[0].1 });
    let third = chunks(&mut bench);
    assert_eq!(third.len(), 1);
    // Said twice, it makes no room for two.
    bench.put(Input::ChunkMoved { attempt: first[0].1 });
    prove(&mut bench, first[0].1, &first[0].2);
    assert_eq!(chunks(&mut bench).len(), 0);
    // A destination that keeps nothing gets no more in the end.
    let mut given = vec![first[1].1, third[0].1];
    while let Some(attempt) = given.pop() {
        bench.put(Input::ChunkMoved { attempt });
        given.extend(chunks(&mut bench).iter().map(|(_, attempt, _)| *attempt));
    }
    assert!(bench.machine.slots[0].pipeline.len() <= 6, "{:?}", bench.machine.slots[0].pipeline);
}

#[test]
fn chunks_that_the_user_fixed_are_as_long_as_told() {
    let chunking = Chunking { chunk: 12 * LEAF, leaf: LEAF, threshold: CHUNK, ahead: 1 };
    let mut bench = Bench::new(TransferOptions { chunking: Some(chunking), ..options(2) });
    bench.copy(0, 100 * CHUNK);
    bench.open_all();
    let attempt = bench.job(0).1.attempt;
    bench.jobs.clear();
    bench.put(Input::ItemOpened { attempt, verified: RangeSet::new(), found: Opening::default() });
    let lengths: Vec<u64> = chunks(&mut bench).iter().map(|(_, _, part)| part.end - part.start).collect();
    assert_eq!(lengths, [12 * LEAF; 2], "one for each session");
}

/// Two sessions, of which the first has moved its parts and idles, and the second has one in the air.
fn one_waits_for_the_other() -> (Bench, Attempt, std::ops::Range<u64>) {
    let size = 4 * CHUNK;
    let mut bench = opened(2, size, RangeSet::new());
    let mut last = None;
    loop {
        let taken = chunks(&mut bench);
        let first: Vec<_> = taken.iter().filter(|(slot, ..)| *slot == Slot(0)).cloned().collect();
        last = taken.into_iter().rfind(|(slot, ..)| *slot == Slot(1)).or(last);
        if first.is_empty() {
            break;
        }
        for (_, attempt, part) in first {
            bench.now += Duration::from_millis(10);
            prove(&mut bench, attempt, &part);
        }
    }
    let (_, attempt, part) = last.expect("the second has some");
    (bench, attempt, part)
}

fn creep(bench: &mut Bench, attempt: Attempt, seconds: u64, most: u64) {
    for moved in 0..seconds {
        bench.now += Duration::from_secs(1);
        bench.put(Input::ItemProgress { attempt, moved: (moved + 1).min(most), durable: None });
        bench.put(Input::Tick);
    }
}

fn relieved(bench: &Bench) -> Vec<Slot> {
    bench.closed.iter().filter(|(_, fault)| fault.is_some()).map(|(slot, _)| *slot).collect()
}

#[test]
fn what_a_session_holds_that_has_become_slow_goes_to_one_that_idles_and_nothing_is_charged() {
    let (mut bench, attempt, part) = one_waits_for_the_other();
    assert!(bench.machine.poll_timeout().is_some_and(|at| at <= bench.now + Duration::from_secs(10)), "nobody looks");
    bench.put(Input::ItemStarted { attempt, tells: true });
    creep(&mut bench, attempt, 9, 1);
    assert_eq!(relieved(&bench), []);
    creep(&mut bench, attempt, 2, 2);
    assert_eq!(relieved(&bench), [Slot(1)]);
    let again = chunks(&mut bench);
    assert!(again.iter().all(|(slot, ..)| *slot == Slot(0)), "{again:?}");
    assert!(again.iter().any(|(_, _, range)| range.start == part.start), "{again:?} without {part:?}");
    for (_, attempt, part) in again {
        prove(&mut bench, attempt, &part);
    }
    prove_all(&mut bench, 4 * CHUNK);
    let (_, commit) = bench.job(0);
    assert_eq!(commit.work, Work::Commit);
    assert!(!bench.events.iter().any(|event| matches!(event, Event::Retry { .. })), "{:?}", bench.events);
}

#[test]
fn a_session_that_is_nearly_done_or_as_fast_as_others_keeps_what_it_has() {
    let (mut bench, attempt, part) = one_waits_for_the_other();
    bench.put(Input::ItemStarted { attempt, tells: true });
    // Nearly all comes at once: the rest takes less time than looking does.
    bench.put(Input::ItemProgress { attempt, moved: part.end - part.start - 1, durable: None });
    for _ in 0..12 {
        bench.now += Duration::from_secs(1);
        bench.put(Input::Tick);
    }
    assert_eq!(relieved(&bench), []);
    let (mut verifying, attempt, _) = one_waits_for_the_other();
    verifying.put(Input::ItemStarted { attempt, tells: true });
    verifying.put(Input::ItemPhase { attempt, phase: Phase::Verifying });
    verifying.now += Duration::from_secs(50);
    verifying.put(Input::Tick);
    assert_eq!(relieved(&verifying), [], "it moves nothing any more");
}

#[test]
fn a_silent_session_has_longer_for_some_servers_say_little() {
    let (mut bench, attempt, _) = one_waits_for_the_other();
    bench.put(Input::ItemStarted { attempt, tells: true });
    for (seconds, ended) in [(25, 0), (10, 1)] {
        for _ in 0..seconds {
            bench.now += Duration::from_secs(1);
            bench.put(Input::Tick);
        }
        assert_eq!(relieved(&bench).len(), ended, "after {seconds} s more");
    }
}

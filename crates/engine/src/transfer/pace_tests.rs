//! How large parts are, and who takes them.

use std::time::Duration;

use super::chunks_tests::{CHUNK, LEAF, chunks, opened, opened_with, options, prove};
use super::pace::Pace;
use super::tests::Bench;
use super::*;
use crate::plan::ItemId;
use crate::ranges::RangeSet;

const MIB: u64 = 1 << 20;

/// A file of 256 MiB with leaves of one, of which the last 64 wait, between two sessions of these paces, leaves per second.
fn two(paces: [f64; 2], trip: Duration, unequal: bool) -> Bench {
    let rtt = Some(trip);
    let options = TransferOptions { concurrency: 2, chunking: Some(Chunking::default()), rtt, unequal, ..options(2) };
    let mut bench = opened_with(options, 256 * MIB, MIB, RangeSet::from(0..192 * MIB));
    for (slot, pace) in bench.machine.slots.iter_mut().zip(paces) {
        slot.pace = Pace::of(pace * MIB as f64);
    }
    bench
}

#[test]
fn of_two_chunks_that_end_at_once_the_second_was_not_endlessly_fast() {
    let mut pace = Pace::default();
    assert_eq!(pace.rate(), None);
    for _ in 0..10 {
        pace.moved(100, Duration::from_secs(10));
        pace.moved(100, Duration::ZERO);
        // Together they moved 20 bytes a second.
        assert!(pace.rate().is_some_and(|rate| (20.0..=30.0).contains(&rate)), "{pace:?}");
    }
}

#[test]
fn a_part_at_the_end_lasts_two_round_trips_of_its_session() {
    let mut bench = two([2.0, 2.0], Duration::from_secs(1), false);
    // Until a quarter of the share is less.
    while bench.machine.queue.bulk() > 8 * MIB {
        let taken = chunks(&mut bench);
        taken.iter().for_each(|(_, attempt, part)| prove(&mut bench, *attempt, part));
        bench.machine.slots.iter_mut().for_each(|slot| slot.pace = Pace::of(2.0 * MIB as f64));
    }
    assert_eq!(bench.machine.chunk_length(0, ItemId(0), MIB), 4 * MIB);
}

#[test]
fn first_parts_are_shorter_where_sessions_may_differ_much() {
    let first = |unequal| {
        let taken = chunks(&mut two([1.0; 2], Duration::ZERO, unequal));
        taken[0].2.end - taken[0].2.start
    };
    assert_eq!([false, true].map(first), [8 * MIB, 2 * MIB], "an eighth of what waits, and a quarter of that");
}

#[test]
fn parts_last_no_longer_than_they_may_once_their_session_has_shown_its_pace() {
    let length = |brief, pace: f64| {
        let options = TransferOptions { concurrency: 1, chunking: Some(Chunking::default()), brief, ..options(1) };
        let mut bench = opened_with(options, 4096 * MIB, 16 * MIB, RangeSet::new());
        bench.machine.slots[0].pace = if pace > 0.0 { Pace::of(pace * MIB as f64) } else { Pace::default() };
        bench.machine.chunk_length(0, ItemId(0), 16 * MIB) / MIB
    };
    let brief = Some(Duration::from_secs(5));
    assert_eq!([0.0, 0.1, 2.0, 10.0, 100.0].map(|pace| length(brief, pace)), [32, 16, 16, 64, 128]);
    assert_eq!([0.0, 0.1, 2.0, 10.0, 100.0].map(|pace| length(None, pace)), [128; 5]);
}

#[test]
fn a_slow_session_gets_nothing_ahead_that_it_would_end_with_after_all_others() {
    let in_time = |paces, trip| {
        let mut bench = two(paces, trip, false);
        let left = bench.machine.queue.bulk() + bench.machine.slots.iter().map(|slot| slot.backlog()).sum::<u64>();
        assert_eq!(left, 64 * MIB);
        bench.machine.slots.iter_mut().for_each(|slot| drop(slot.take_pipeline()));
        let in_time = bench.machine.in_time();
        bench.machine.slots.iter().map(in_time).collect::<Vec<_>>()
    };
    // What waits takes two seconds; a leaf takes the slow one four.
    assert_eq!(in_time([16.0, 0.25], Duration::ZERO), [true, false]);
    assert_eq!(in_time([16.0, 1.0], Duration::ZERO), [true, true]);
    assert_eq!(in_time([16.0, 0.25], Duration::from_secs(2)), [true, true], "it would run dry");
}

#[test]
fn the_pace_of_a_session_is_not_counted_from_the_destinations_answer() {
    let mut bench = opened(1, 100 * CHUNK, RangeSet::new());
    let taken = chunks(&mut bench);
    let [(_, first, part), (_, second, _)] = &taken[..] else { panic!("{taken:?}") };
    let half = Duration::from_millis(500);
    bench.now += 2 * half;
    bench.put(Input::ChunkMoved { attempt: *first });
    // The answer comes while the next one moves.
    bench.now += half;
    prove(&mut bench, *first, part);
    bench.now += half;
    bench.put(Input::ChunkMoved { attempt: *second });
    assert_eq!(bench.machine.slots[0].pace.rate(), Some(CHUNK as f64));
}

#[test]
fn parts_have_leaves_that_are_hashed_in_step_and_fast_sessions_do_not_end_with_single_ones() {
    let size = 100 * CHUNK;
    let wide = TransferOptions {
        chunking: Some(Chunking { chunk: size, leaf: LEAF, threshold: CHUNK, ahead: 1 }),
        ..options(2)
    };
    // Of the leaves of a part, all of which take so long.
    let counts = |each: Duration| {
        let mut bench = opened_with(wide.clone(), size, LEAF, RangeSet::new());
        let mut counts = Vec::new();
        loop {
            let taken = chunks(&mut bench);
            if taken.is_empty() {
                return counts;
            }
            for (_, attempt, part) in taken {
                counts.push((part.end - part.start) / LEAF);
                bench.now += each;
                bench.put(Input::ChunkMoved { attempt });
                prove(&mut bench, attempt, &part);
            }
        }
    };
    for (each, fewest) in [(Duration::from_secs(100), 1..=1), (Duration::from_micros(10), 4..=8)] {
        let counts = counts(each);
        let odd: Vec<u64> = counts.iter().copied().filter(|count| *count > 8 && count % 8 != 0).collect();
        assert!(odd.is_empty(), "{odd:?} of {counts:?}");
        // What is left for the last one may be anything.
        let (_, others) = counts.split_last().expect("parts");
        assert!(others.iter().min().is_some_and(|least| fewest.contains(least)), "{counts:?}");
    }
}

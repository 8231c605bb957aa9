//! Who is given small files where sessions differ in speed, and when all have ended.

use std::collections::VecDeque;
use std::time::Duration;

use super::tests::Bench;
use super::*;
use crate::tune::Setting;

const MIB: u64 = 1 << 20;

fn options(sessions: usize, unequal: bool) -> TransferOptions {
    let rtt = Some(Duration::from_millis(50));
    let pipeline = Setting::Fixed(64);
    TransferOptions { concurrency: sessions as u32, pipeline, rtt, unequal, ..TransferOptions::default() }
}

/// Files of 1 byte to 4 MiB, each as likely to be half as long as another as not, as those of scientists' trees are.
fn sizes(seed: u64, files: usize) -> Vec<u64> {
    let mut state = seed;
    let mut random = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state >> 33
    };
    (0..files).map(|_| (4 * MIB) >> random().trailing_ones().min(22)).collect()
}

/// Bytes of a session's file that is at work, and when it ends.
type AtWork = Option<(Attempt, u64, Instant)>;

/// Moves all files, each session one after the other at its speed, bytes per second; how many seconds that takes.
fn run(sizes: &[u64], speeds: &[u64], unequal: bool) -> f64 {
    let mut bench = Bench::new(options(speeds.len(), unequal));
    let start = bench.now;
    sizes.iter().enumerate().for_each(|(id, size)| bench.copy(id as u64, *size));
    bench.put(Input::ListingDone);
    bench.open_all();
    let mut waiting: Vec<VecDeque<(Attempt, u64)>> = vec![VecDeque::new(); speeds.len()];
    let mut at_work: Vec<AtWork> = vec![None; speeds.len()];
    loop {
        for (slot, job) in bench.jobs.drain(..) {
            waiting[slot.0 as usize].push_back((job.attempt, job.item.size.expect("sizes are known")));
        }
        for ((at_work, waiting), speed) in at_work.iter_mut().zip(&mut waiting).zip(speeds) {
            let end = |size: u64| bench.now + Duration::from_secs_f64(size as f64 / *speed as f64);
            if at_work.is_none() {
                *at_work = waiting.pop_front().map(|(attempt, size)| (attempt, size, end(size)));
            }
        }
        let Some(first) = at_work.iter_mut().filter(|one| one.is_some()).min_by_key(|one| one.map(|(.., end)| end))
        else {
            assert!(bench.machine.is_finished(), "nothing moves and something waits");
            return bench.now.duration_since(start).as_secs_f64();
        };
        let (attempt, bytes, end) = first.take().expect("it is at work");
        bench.now = end;
        bench.put(Input::ItemProgress { attempt, moved: bytes, durable: None });
        bench.put(Input::ItemDone { attempt, bytes, verified: crate::progress::Verification::NotAsked });
    }
}

#[test]
fn sessions_of_unequal_speed_end_together() {
    let speeds = [1, 1, 4, 5, 6, 7, 6, 8].map(|speed| speed * 1_000_000);
    for seed in 1..20 {
        let sizes = sizes(seed, 600);
        let best = sizes.iter().sum::<u64>() as f64 / speeds.iter().sum::<u64>() as f64;
        let took = run(&sizes, &speeds, true);
        // The largest file lasts half a second in a fast session, and four in a slow one.
        assert!(took < best + 0.9, "{took} of {best}, with seed {seed}");
        let equal = run(&sizes, &[5_000_000; 8], true);
        let before = run(&sizes, &[5_000_000; 8], false);
        assert!(equal < before + 0.5, "{equal} against {before}, with seed {seed}");
    }
}

/// Two sessions, of which the second has shown to be slow and is idle.
fn with_a_slow_one() -> Bench {
    let mut bench = Bench::new(options(2, true));
    bench.copy(0, 8 * MIB);
    bench.copy(1, MIB);
    bench.open_all();
    let on = |bench: &Bench, item| bench.job(item).0;
    let (fast, slow) = (on(&bench, 0), on(&bench, 1));
    assert_ne!(fast, slow);
    bench.now += Duration::from_secs(1);
    let attempt = bench.job(0).1.attempt;
    bench.put(Input::ItemProgress { attempt, moved: 8 * MIB - 1, durable: None });
    bench.now += Duration::from_secs(9);
    bench.done(1);
    bench
}

#[test]
fn a_slow_session_is_left_idle_rather_than_given_what_all_would_wait_for() {
    let mut bench = with_a_slow_one();
    bench.copy(2, 4 * MIB);
    bench.copy(3, 4 * MIB);
    assert_eq!(bench.started(), [0, 1, 2], "the fast one is done with it before the slow one would be");
    assert_eq!(bench.job(2).0, bench.job(0).0);
    bench.done(0);
    bench.done(2);
    assert_eq!(bench.job(3).0, bench.job(0).0);
}

#[test]
fn a_slow_session_is_not_left_idle_for_long_beside_one_that_stands_still() {
    let mut bench = with_a_slow_one();
    bench.copy(2, 4 * MIB);
    bench.copy(3, 4 * MIB);
    let since = bench.now;
    while bench.started().len() == 3 {
        bench.tick_to_timeout();
        assert!(bench.now - since <= StallPolicy::default().slow, "held back for {:?}", bench.now - since);
    }
    assert_eq!(bench.job(3).0, bench.job(1).0);
    assert!(bench.machine.poll_timeout().is_none_or(|at| at > bench.now), "nothing is looked at again and again");
}

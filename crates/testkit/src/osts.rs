//! A model of Lustre's object storage targets (OSTs): how fast movers write one striped file.
//!
//! Stripe `i` of a file lies on OST `i mod count`. Every OST serves one request after the other. Neighbouring requests of one
//! mover cost the bytes alone; when another mover comes to the same object, its lock has to change hands first. A mover
//! writes its chunk in order, or several leaves of it in step as senders that hash do, with a few requests in the air, and
//! takes the next chunk when it is done. Time is virtual.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

/// Most bytes of one request to an OST, as Lustre clients make them; never more than a stripe.
const REQUEST: u64 = 4 << 20;

/// What the storage and the movers can do.
#[derive(Debug, Clone, Copy)]
pub struct Osts {
    /// Bytes per second of one OST.
    pub rate: f64,
    /// Bytes per second that one mover brings.
    pub mover_rate: f64,
    /// Seconds until the lock of an object has changed hands.
    pub lock: f64,
    /// Requests that a mover has in the air.
    pub window: usize,
}

impl Default for Osts {
    /// 500 MB/s an OST, 600 MB/s a mover, 1 ms a lock, 8 requests.
    fn default() -> Self {
        Self { rate: 500e6, mover_rate: 600e6, lock: 1e-3, window: 8 }
    }
}

/// One copy.
#[derive(Debug, Clone, Copy)]
pub struct Copy {
    /// Bytes of the file.
    pub size: u64,
    /// Bytes of a chunk; the file's size without chunking.
    pub chunk: u64,
    /// Movers at once.
    pub movers: usize,
    /// OSTs of the file.
    pub stripes: u64,
    /// Bytes of a stripe, a multiple of a request.
    pub stripe: u64,
    /// Leaves of 16 MiB that are written in step; with 1 all is written in order.
    pub in_step: u64,
}

/// Bytes of a leaf.
const LEAF: u64 = 16 << 20;

struct Mover {
    start: u64,
    /// Bytes of the chunk that are sent.
    sent: u64,
    end: u64,
    /// When the network has brought what is next.
    ready: f64,
    /// Ends of the requests in the air.
    flying: VecDeque<f64>,
}

impl Mover {
    fn new(chunk: Range<u64>) -> Self {
        Self { start: chunk.start, sent: 0, end: chunk.end, ready: 0.0, flying: VecDeque::new() }
    }

    fn is_busy(&self) -> bool {
        self.start + self.sent < self.end
    }

    /// Where its next request goes.
    fn at(&self, in_step: u64, bytes: u64) -> u64 {
        let group = self.sent / (in_step * LEAF) * in_step * LEAF;
        let lanes = (self.end - self.start - group).div_ceil(LEAF).min(in_step);
        let request = (self.sent - group) / bytes;
        self.start + group + request % lanes * LEAF + request / lanes * bytes
    }

    /// When it can send its next request.
    fn next(&self, window: usize) -> f64 {
        match self.flying.len() < window {
            true => self.ready,
            false => self.ready.max(self.flying[0]),
        }
    }
}

/// Bytes per second of the whole copy; its sizes are taken as multiples of a leaf.
pub fn throughput(osts: &Osts, copy: &Copy) -> f64 {
    let bytes = REQUEST.min(copy.stripe);
    let mut chunks = (0..copy.size).step_by(copy.chunk as usize).map(|at| at..(at + copy.chunk).min(copy.size));
    let mut movers: Vec<Mover> = chunks.by_ref().take(copy.movers).map(Mover::new).collect();
    // When each object is free, and whose lock it has.
    let mut objects: BTreeMap<u64, (f64, usize)> = BTreeMap::new();
    let mut over: f64 = 0.0;
    while let Some(who) = earliest(&movers, osts.window) {
        let mover = &mut movers[who];
        let sent = mover.next(osts.window);
        if mover.flying.len() >= osts.window {
            mover.flying.pop_front();
        }
        let object = mover.at(copy.in_step, bytes) / copy.stripe % copy.stripes;
        let (free, owner) = objects.entry(object).or_insert((0.0, who));
        let lock = if *owner == who { 0.0 } else { osts.lock };
        let done = free.max(sent) + lock + bytes as f64 / osts.rate;
        (*free, *owner) = (done, who);
        over = over.max(done);
        mover.ready = sent + bytes as f64 / osts.mover_rate;
        mover.flying.push_back(done);
        mover.sent += bytes;
        if !mover.is_busy()
            && let Some(chunk) = chunks.next()
        {
            (mover.start, mover.sent, mover.end) = (chunk.start, 0, chunk.end);
        }
    }
    copy.size as f64 / over
}

/// The mover that sends next, if any has something left.
fn earliest(movers: &[Mover], window: usize) -> Option<usize> {
    let busy = movers.iter().enumerate().filter(|(_, mover)| mover.is_busy());
    busy.min_by(|(_, a), (_, b)| a.next(window).total_cmp(&b.next(window))).map(|(index, _)| index)
}

#[cfg(test)]
mod tests {
    use whimbrel_connector::posix::lustre::{Layout, layout_for};

    use super::*;

    const MIB: u64 = 1 << 20;
    const SIZE: u64 = 32 << 30;

    fn copy(movers: usize, chunk: u64, stripes: u64, stripe: u64) -> Copy {
        Copy { size: SIZE, chunk, movers, stripes, stripe, in_step: 1 }
    }

    fn speed(movers: usize, chunk: u64, stripes: u64, stripe: u64) -> f64 {
        throughput(&Osts::default(), &copy(movers, chunk, stripes, stripe))
    }

    fn speed_in_step(movers: usize, stripes: u64, stripe: u64) -> f64 {
        throughput(&Osts::default(), &Copy { in_step: 8, ..copy(movers, 128 * MIB, stripes, stripe) })
    }

    // "increasing stripe count from 1 to 16 increased throughput by 8.1x, from 3.92 Gb/s to 31.76 Gb/s" with chunking.
    #[test]
    fn with_chunks_sixteen_stripes_are_eight_times_as_fast_as_one() {
        let gain = speed(16, 512 * MIB, 16, MIB) / speed(16, 512 * MIB, 1, MIB);
        println!("{gain:.1} times");
        assert!(gain >= 8.0, "{gain}");
    }

    // "in most test scenarios transfer speeds vary little (by less than 20%) with Lustre stripe count".
    #[test]
    fn without_chunks_stripes_matter_little() {
        let one = speed(1, SIZE, 1, MIB);
        for stripes in [2, 4, 8, 16] {
            let gain = speed(1, SIZE, stripes, MIB) / one;
            assert!((0.99..=1.2001).contains(&gain), "{stripes}: {gain}");
        }
    }

    // "Globus chunking and Lustre striping can either complement each other or work at cross purposes".
    #[test]
    fn stripes_longer_than_the_chunks_in_the_air_undo_both() {
        let (movers, chunk) = (8, 128 * MIB);
        let fitting = speed(movers, chunk, 16, 16 * MIB);
        let crossed = speed(movers, chunk, 16, movers as u64 * chunk);
        println!("{:.1} times slower", fitting / crossed);
        assert!(crossed * 5.0 < fitting, "{crossed:.3e} {fitting:.3e}");
    }

    #[test]
    fn leaves_in_step_meet_in_one_target_when_stripes_divide_a_leaf_evenly_among_all() {
        // 16 stripes of 1 MiB are a leaf: all eight leaves of a mover are at the same target at any time.
        let fast = Osts { mover_rate: 3e9, ..Osts::default() };
        let of = |stripe| throughput(&fast, &Copy { in_step: 8, ..copy(1, 128 * MIB, 16, stripe) });
        let (crossed, fitting) = (of(MIB), of(LEAF));
        println!("{crossed:.3e} {fitting:.3e}");
        assert!(fitting > crossed * 2.0, "{crossed:.3e} {fitting:.3e}");
    }

    #[test]
    fn chunks_that_end_inside_a_stripe_pay_for_locks() {
        let osts = Osts { lock: 50e-3, ..Osts::default() };
        let of = |chunk| throughput(&osts, &Copy { size: 36 << 30, ..copy(16, chunk, 16, 32 * MIB) });
        assert!(of(48 * MIB) < 0.95 * of(64 * MIB), "{:.3e} {:.3e}", of(48 * MIB), of(64 * MIB));
    }

    #[test]
    fn the_layout_that_is_chosen_is_near_the_best_for_any_number_of_movers() {
        let chosen = layout_for(SIZE, Layout { count: 1, size: MIB }).expect("a large file");
        assert_eq!(chosen.size, LEAF, "no leaf, and so no chunk, ends inside a stripe");
        for movers in [1, 2, 4, 8, 16] {
            let of = |stripes, stripe| speed_in_step(movers, stripes, stripe);
            let best = [1, 2, 4, 8, 16]
                .into_iter()
                .flat_map(|stripes| [1, 4, 16, 128, 1024].map(|stripe| of(stripes, stripe * MIB)))
                .fold(0.0, f64::max);
            let ours = of(chosen.count.into(), chosen.size);
            println!("{movers} movers: {ours:.3e} of {best:.3e}");
            assert!(ours >= 0.8 * best, "{movers} movers: {ours:.3e} of {best:.3e}");
        }
    }
}

//! How fast one thread hashes: every algorithm, and MD5 with every kernel and number of leaves at once.
//!
//! `hashes [--megabytes N]` hashes so much (default 1024) in each turn and prints the best of five turns in GB for each
//! second of processor time, which other programs on the machine disturb less than the clock's. "In cache" are leaves
//! of 64 KiB, hashed again and again; "from memory" are leaves of a sixteenth of what is hashed, at most 16 MiB: eight of
//! them are more than caches hold. The first line is the same for reading alone.

use std::error::Error;
use std::hint::black_box;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use whimbrel_sys::md5lanes::{Kernel, Md5};
use whimbrel_transport::digest::{Algorithm, LaneDigests};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Turns of each measurement, of which the best counts.
const TURNS: usize = 5;

/// Most leaves walked at once.
const MOST_LEAVES: usize = 16;

/// Bytes of each leaf that are taken before the next leaf's, as a data path does.
const STEP: usize = 64 << 10;

/// Most bytes of a leaf in memory.
const LEAF: usize = 16 << 20;

fn main() -> Outcome<()> {
    let bytes = megabytes()? << 20;
    let leaf = (bytes / MOST_LEAVES / STEP * STEP).clamp(STEP, LEAF);
    let memory: Vec<u8> = (0..MOST_LEAVES * leaf).map(|i| (i as u32).wrapping_mul(2_654_435_761) as u8).collect();
    let measure = |name: &str, leaves: usize, walk: &mut dyn FnMut(&[&[u8]])| {
        let rates = [STEP, leaf].map(|leaf| rate(&memory, bytes, leaves, leaf, walk));
        println!("{name:<16} {leaves:>6} {:>9.2} {:>12.2}", rates[0], rates[1]);
    };
    println!("{:<16} {:>6} {:>9} {:>12}  GB/s", "", "leaves", "in cache", "from memory");
    measure("read", 1, &mut |pieces| {
        black_box(pieces.iter().map(|piece| sum(piece)).fold(0, u64::wrapping_add));
    });
    for algorithm in Algorithm::ALL {
        for leaves in [1, 8] {
            let mut lanes = LaneDigests::new(algorithm, leaves);
            measure(algorithm.name(), leaves, &mut |pieces| lanes.update_all(pieces));
        }
    }
    for kernel in Kernel::available() {
        for leaves in [2, 4, 8, 16] {
            let mut streams = vec![Md5::new(); leaves];
            measure(&format!("MD5 {}", kernel.name()), leaves, &mut |pieces| kernel.update(&mut streams, pieces));
        }
    }
    Ok(())
}

fn megabytes() -> Outcome<usize> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Ok(1024),
        ["--megabytes", number] => Ok(number.parse()?),
        _ => Err("usage: hashes [--megabytes N]".into()),
    }
}

/// Reads all, in registers as wide as every processor of this kind has.
fn sum(piece: &[u8]) -> u64 {
    let (words, rest) = piece.as_chunks::<8>();
    let sum = words.iter().map(|word| u64::from_le_bytes(*word)).fold(0, u64::wrapping_add);
    rest.iter().fold(sum, |sum, byte| sum.wrapping_add(u64::from(*byte)))
}

/// GB for each second of processor time: `bytes` bytes of leaves side by side, a step of each at a time.
fn rate(memory: &[u8], bytes: usize, leaves: usize, leaf: usize, walk: &mut dyn FnMut(&[&[u8]])) -> f64 {
    let rounds = (bytes / (leaves * leaf)).max(1);
    let mut best = f64::MAX;
    for _ in 0..TURNS {
        let start = processor_time();
        for _ in 0..rounds {
            for from in (0..leaf).step_by(STEP) {
                let mut pieces: [&[u8]; MOST_LEAVES] = [&[]; MOST_LEAVES];
                for (index, piece) in pieces[..leaves].iter_mut().enumerate() {
                    *piece = &memory[index * leaf + from..][..STEP];
                }
                walk(black_box(&pieces[..leaves]));
            }
        }
        best = best.min((processor_time() - start).as_secs_f64());
    }
    (rounds * leaves * leaf) as f64 / best.max(1e-9) / 1e9
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

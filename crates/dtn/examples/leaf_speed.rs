//! What proving costs: chunks from one file to another over loopback, both ends in this process.
//!
//! `leaf_speed DIR [MIB] [PAIRS] [CHANNELS] [ROUNDS] [LEAF_MIB] [ALGORITHM...]` prints, for each round and algorithm, seconds and
//! processor time per gigabyte, and at the end the medians of what was added to the transfer without leaves. `DIR`
//! should be on a tmpfs mounted `huge=always`, or page allocation is what is measured.

#![allow(missing_docs, clippy::unwrap_used)]

#[path = "../tests/mover_support/mod.rs"]
mod mover_support;

use std::time::Instant;

use mover_support::{Node, extended, receive, send};
use whimbrel_dtn::mover::message::MoverId;
use whimbrel_proto::op::{ChunkedFile, LeafSpec, Op, Outcome, ReceiveSpec, SendSpec, WriteKind};

const CHUNK: u64 = 128 << 20;

struct Measured {
    seconds: f64,
    /// Of the processor, per gigabyte.
    cost: f64,
}

/// User and system time of this process, in seconds; of threads that have ended, too.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields = stat.rsplit(')').next().unwrap();
    let ticks: f64 = fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<f64>().unwrap()).sum();
    ticks / 100.0
}

fn leaves(size: u64, algorithm: &str) -> LeafSpec {
    LeafSpec { size, algorithm: algorithm.to_owned(), holes: false, vouched: false }
}

/// Moves `/source` to `/copy` in chunks, pipelined, and throws the copy away.
fn run(node: &mut Node, movers: &[(MoverId, MoverId)], size: u64, spec: Option<LeafSpec>) -> Measured {
    let kept = spec.clone().unwrap_or(leaves(CHUNK, "MD5"));
    let file = ChunkedFile { path: b"/copy".to_vec(), size, modified: None, leaves: kept };
    let session = match node.call(movers[0].1, Op::OpenChunked(file)).done() {
        Outcome::Chunked { session, .. } => session,
        other => panic!("{other:?}"),
    };
    let (start, before) = (Instant::now(), cpu_seconds());
    let mut keys = Vec::new();
    for (n, offset) in (0..size).step_by(CHUNK as usize).enumerate() {
        let (source, destination) = movers[n % movers.len()];
        let length = CHUNK.min(size - offset);
        let write = WriteKind::Chunk { offset, session: session.clone() };
        let to = ReceiveSpec { write, expected_size: Some(length), leaves: spec.clone(), ..receive("/copy") };
        let from = SendSpec { offset, length: Some(length), leaves: spec.clone(), ..send("/source") };
        keys.push((node.run(source, Op::Send(from)), node.run(destination, Op::Receive(to))));
    }
    for (sending, receiving) in keys {
        match (node.wait(sending).done(), node.wait(receiving).done()) {
            (Outcome::Transferred { leaves: sent, .. }, Outcome::Transferred { leaves: stored, .. }) => {
                assert!(sent == stored && sent.is_empty() == spec.is_none(), "leaves differ");
            }
            other => panic!("{other:?}"),
        }
    }
    let (seconds, used) = (start.elapsed().as_secs_f64(), cpu_seconds() - before);
    node.call(movers[0].1, Op::DropChunked { path: b"/copy".to_vec(), session }).done();
    Measured { seconds, cost: used / (size as f64 / 1e9) }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default: u64| args.get(at).map_or(default, |arg| arg.parse().unwrap());
    let directory = args.first().expect("a directory");
    let (size, pairs) = (number(1, 1024) << 20, number(2, 2));
    let (channels, rounds, leaf) = (number(3, 1) as u16, number(4, 5), number(5, 16) << 20);
    let named: Vec<String> = args.iter().skip(6).cloned().collect();
    let algorithms = if named.is_empty() { ["MD5", "CRC32C", "XXH3-128"].map(str::to_owned).to_vec() } else { named };

    let root = tempfile::Builder::new().prefix("leaf-speed").tempdir_in(directory).unwrap();
    let mut node = Node::at(root, |settings| settings.pool_bytes = 64 << 20);
    let block = mover_support::pattern(8 << 20);
    let blocks = (size as usize).div_ceil(block.len());
    let file = std::fs::File::create(node.root.path().join("source")).unwrap();
    for at in 0..blocks {
        std::os::unix::fs::FileExt::write_all_at(&file, &block, (at * block.len()) as u64).unwrap();
    }
    file.set_len(size).unwrap();
    let movers: Vec<_> = (0..pairs).map(|_| node.pair(&extended(channels))).collect();

    run(&mut node, &movers, size, None);
    let mut added = vec![Vec::new(); algorithms.len()];
    for round in 0..rounds {
        let none = run(&mut node, &movers, size, None);
        print!("{round}: none {:.2} s {:.3} cpu-s/GB", none.seconds, none.cost);
        for (algorithm, added) in algorithms.iter().zip(&mut added) {
            let one = run(&mut node, &movers, size, Some(leaves(leaf, algorithm)));
            added.push(one.cost - none.cost);
            print!(", {algorithm} {:.2} s {:.3}", one.seconds, one.cost);
        }
        println!();
    }
    for (algorithm, added) in algorithms.iter().zip(&mut added) {
        println!("{algorithm} adds {:.3} cpu-s/GB (median)", median(added));
    }
}

//! How fast small files go through: run with `--release --ignored --nocapture`, `TMPDIR` on tmpfs.

#![allow(missing_docs, clippy::unwrap_used)]

mod mover_support;

use std::time::Instant;

use mover_support::{Node, extended, pattern, receive, send};
use whimbrel_proto::op::Op;

const FILES: usize = 10_000;
const SIZE: usize = 10 << 10;
/// Operations under way at once, as a pipelining client keeps them.
const WINDOW: usize = 200;

#[test]
#[ignore = "a measurement"]
fn ten_thousand_small_files() {
    let (mut source, mut destination) = (Node::start(), Node::start());
    let data = pattern(SIZE);
    for n in 0..FILES {
        source.write(&format!("f{n}"), &data);
    }
    for lanes in [1, 2, 4] {
        let rate = rate(&mut source, &mut destination, lanes);
        println!("{lanes} mover pairs: {rate:.0} files/s");
    }
}

fn rate(source: &mut Node, destination: &mut Node, lanes: usize) -> f64 {
    let pairs: Vec<_> = (0..lanes)
        .map(|_| {
            let (from, to) = (source.attach(), destination.attach());
            let addr = destination.passive(to, &extended(1));
            source.active(from, &[addr], &extended(1));
            (from, to)
        })
        .collect();
    let began = Instant::now();
    let mut keys = Vec::with_capacity(FILES);
    for n in 0..FILES {
        if n >= WINDOW {
            let (sending, receiving) = keys[n - WINDOW];
            assert_eq!(source.wait(sending).bytes(), SIZE as u64);
            assert_eq!(destination.wait(receiving).bytes(), SIZE as u64);
        }
        let (from, to) = pairs[n % lanes];
        let receiving = destination.run(to, Op::Receive(receive(&format!("/c{lanes}-{n}"))));
        let sending = source.run(from, Op::Send(send(&format!("/f{n}"))));
        keys.push((sending, receiving));
    }
    for &(sending, receiving) in &keys[FILES - WINDOW..] {
        assert_eq!(source.wait(sending).bytes(), SIZE as u64);
        assert_eq!(destination.wait(receiving).bytes(), SIZE as u64);
    }
    FILES as f64 / began.elapsed().as_secs_f64()
}

//! Many transfers at once through one pair of servers: memory stays bounded, because the pool is capped and pushes back.

mod support;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use support::control::Control;
use support::dtn::{Dtn, until};
use whimbrel_testkit::cpu::{self, PeakPss};
use whimbrel_testkit::peers::{Tool, public_dir};

const MIB: u64 = 1 << 20;

/// Time until a transfer among many must have ended on a busy machine.
const LIMIT: Duration = Duration::from_secs(180);

/// The most bytes of buffers that a server tells of until told to stop.
fn follow(server: &Dtn, stop: &AtomicBool) -> u64 {
    let mut peak = 0;
    while !stop.load(Ordering::Relaxed) {
        peak = peak.max(server.metric("pool_bytes"));
        thread::park_timeout(Duration::from_millis(50));
    }
    peak
}

/// A third-party transfer over four channels that waits for its start.
struct Transfer {
    source: Control,
    destination: Control,
}

impl Transfer {
    /// Everything but the command that makes data move; the destination is waiting for them.
    fn prepare(servers: [&Dtn; 2]) -> Transfer {
        let (mut destination, data) = Control::extended(servers[1].addr());
        let mut source = Control::login(servers[0].addr());
        for line in ["TYPE I", "MODE E", "OPTS RETR Parallelism=4,4,4;"] {
            source.ask_for(200, line);
        }
        let (ip, port) = (data.ip().to_string().replace('.', ","), data.port());
        source.ask_for(200, &format!("PORT {ip},{},{}", port / 256, port % 256));
        destination.ask_for(150, "STOR /dev/null");
        source.patience(LIMIT);
        destination.patience(LIMIT);
        Transfer { source, destination }
    }
}

/// Moves `count` times so many bytes of zeroes, all at once over four channels each, through user-space buffers at both
/// ends; the most memory and buffers, bytes, of the source and of the destination.
fn copies_at_once(servers: [&Dtn; 2], count: usize, bytes: u64) -> [(u64, u64); 2] {
    let mut transfers: Vec<Transfer> = (0..count).map(|_| Transfer::prepare(servers)).collect();
    let stop = AtomicBool::new(false);
    let memory = servers.map(|server| PeakPss::start(&[server.daemon.id()], Duration::from_millis(50)));
    let peaks = thread::scope(|scope| {
        let following = servers.map(|server| scope.spawn(|| follow(server, &stop)));
        // The first ones are not to end before the last begin: the receiver takes nothing until all run.
        until("all that receive", || servers[1].metric("transfers_running") == count as u64);
        let receiver = cpu::tree(&[servers[1].daemon.id()]);
        signal("-STOP", &receiver);
        let start = Instant::now();
        for transfer in &mut transfers {
            transfer.source.say(&format!("ERET P 0 {bytes} /dev/zero"));
        }
        until("all that send", || servers[0].metric("transfers_running") == count as u64);
        signal("-CONT", &receiver);
        for transfer in &mut transfers {
            let replies = [transfer.source.last_reply(), transfer.destination.last_reply()];
            assert!(replies.iter().all(|reply| reply.code == 226), "{replies:?}");
        }
        println!("{count} x {bytes} bytes in {:?}", start.elapsed());
        stop.store(true, Ordering::Relaxed);
        following.map(|thread| thread.join().expect("metrics are served"))
    });
    let mut memory = memory.into_iter().map(PeakPss::stop);
    peaks.map(|peak| (memory.next().expect("one for each server"), peak))
}

fn signal(signal: &str, processes: &[u32]) {
    Tool::new("kill").arg(signal).args(processes.iter().map(u32::to_string)).run_ok();
}

/// Panics unless both ends count so many bytes and no failure.
#[track_caller]
fn assert_moved(servers: [&Dtn; 2], bytes: u64) {
    until("the last report", || servers[0].metric("sent_bytes_total") == bytes);
    until("the last report", || servers[1].metric("received_bytes_total") == bytes);
    assert_eq!(servers.map(|server| server.metric("transfers_failed_total")), [0, 0]);
}

/// Panics unless the transfer log tells of so many transfers, each over four channels.
#[track_caller]
fn assert_channels(log: &Path, count: usize) {
    let text = || std::fs::read_to_string(log).unwrap_or_default();
    until("the last line of the log", || text().lines().count() == count);
    assert!(text().lines().all(|line| line.contains(" STREAMS=4 ") && line.contains(" CODE=226 ")), "{}", text());
}

#[test]
fn sixty_four_transfers_at_once_stay_below_256_megabytes() {
    let directory = public_dir().expect("directory");
    let logs = ["source", "destination"].map(|name| directory.path().join(name));
    let [source, destination] =
        logs.each_ref().map(|log| Dtn::builder().anonymous().arg("--transfer-log").arg(log).start());
    let servers = [&source, &destination];
    for (memory, buffers) in copies_at_once(servers, 64, 256_000_000) {
        println!("{} MiB proportional set size, {buffers} bytes of buffers", memory / MIB);
        assert!(memory < 256_000_000, "{memory} bytes");
        assert!(buffers <= 64 * MIB, "{buffers} bytes of buffers");
    }
    assert_moved(servers, 64 * 256_000_000);
    logs.iter().for_each(|log| assert_channels(log, 64));
}

#[test]
fn a_pool_that_is_much_too_small_slows_transfers_and_loses_nothing() {
    let server = || Dtn::builder().anonymous().arg("--buffer-mib").arg("4").start();
    let (source, destination) = (server(), server());
    let servers = [&source, &destination];
    let ends = copies_at_once(servers, 32, 100_000_000);
    for (memory, buffers) in &ends {
        println!("{} MiB proportional set size, {buffers} bytes of buffers", memory / MIB);
        assert!(*buffers <= 4 * MIB, "{buffers} bytes of buffers");
    }
    // 128 channels that send want eight times as many buffers as there are; a receiver may need one for a moment only.
    assert!(ends[0].1 > 0, "no buffer was in use");
    assert_moved(servers, 32 * 100_000_000);
}

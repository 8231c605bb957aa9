//! The canary of the wide-area laboratory: it really delays, drops and limits. A laboratory that does not would make
//! every other test of the wide area pass for nothing.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{fs, thread};

use whimbrel_testkit::lab::{Fate, Host, Lab, Link, Rung};
use whimbrel_testkit::peers::{Daemon, Tool};
use whimbrel_testkit::require_root;

const MS: Duration = Duration::from_millis(1);

fn listener(host: &Host, address: IpAddr) -> (TcpListener, SocketAddr) {
    let listener = host.run(|| TcpListener::bind((address, 0))).expect("bind");
    let address = listener.local_addr().expect("bound");
    (listener, address)
}

/// The time of a TCP opening: one round trip.
fn opening(from: &Host, to: SocketAddr) -> Duration {
    let start = Instant::now();
    from.run(|| TcpStream::connect_timeout(&to, Duration::from_secs(5))).expect("connect");
    start.elapsed()
}

fn pair(link: Link) -> Lab {
    Lab::builder().host("a").host("b").link("a", "b", link).build().expect("laboratory")
}

/// Sends `bytes` from `a` to `b` on one connection and returns the time from the opening to the last byte.
fn bulk(lab: &Lab, bytes: usize) -> Duration {
    let (listener, address) = listener(lab.host("b"), lab.host("b").addr());
    let start = Instant::now();
    let mut sender = lab.host("a").run(|| TcpStream::connect(address)).expect("connect");
    let receiving = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accept");
        let mut buffer = vec![0; 1 << 20];
        let mut received = 0;
        while received < bytes {
            match stream.read(&mut buffer).expect("read") {
                0 => break,
                count => received += count,
            }
        }
        assert_eq!(received, bytes);
    });
    // In pieces, because a kernel that is not preemptible holds up a link's thread for the length of one call.
    let piece = vec![7; 1 << 20];
    for start in (0..bytes).step_by(piece.len()) {
        sender.write_all(&piece[..piece.len().min(bytes - start)]).expect("write");
    }
    receiving.join().expect("received");
    start.elapsed()
}

#[test]
fn a_link_delays_by_its_round_trip_time_and_by_no_more() {
    if !require_root() {
        return;
    }
    let rtt = 80 * MS;
    let lab = Lab::triangle(Link::new().rtt(rtt)).expect("laboratory");
    for (from, to) in [("client", "src"), ("src", "dst"), ("dst", "client")] {
        let host = lab.host(to);
        for address in [host.addr(), host.addrs_v6()[0]] {
            let (_listener, address) = listener(host, address);
            let took = opening(lab.host(from), address);
            assert!(took >= rtt && took < rtt + 20 * MS, "{from} to {to}: {took:?}");
        }
    }
    let counters = lab.links().counters();
    println!("worst lateness {:?}, late {} of {}", counters.worst_lateness, counters.late, counters.packets);
    assert_eq!(counters.broken, 0);
}

#[test]
fn a_host_talks_to_itself_without_crossing_a_link() {
    if !require_root() {
        return;
    }
    let lab = pair(Link::new().rtt(200 * MS));
    let (_listener, address) = listener(lab.host("a"), lab.host("a").addr());
    assert!(opening(lab.host("a"), address) < 50 * MS);
    assert_eq!(lab.links().counters().packets, 0, "an idle link is silent");
}

#[test]
fn loss_is_what_was_asked_for_and_tcp_notices() {
    if !require_root() {
        return;
    }
    let bytes = 16 << 20;
    // A queue that holds all that is sent: how far a sender that takes no loss for congestion overfills one is its own
    // affair, and depends on how evenly the machine lets packets through.
    let link = Link::new().rtt(2 * MS).rate_mbit(1000).queue(2 * bytes).loss(0.02).mtu(1500);
    let lab = pair(link);
    bulk(&lab, bytes as usize);
    let there = lab.direction("a", "b").counters();
    let share = there.lost as f64 / there.packets as f64;
    let retransmitted = lab.host("a").counter("Tcp", "RetransSegs").expect("counter");
    println!("{} of {} lost, {retransmitted} retransmitted", there.lost, there.packets);
    assert!((0.015..0.025).contains(&share), "{share}");
    assert!(retransmitted >= there.lost, "{retransmitted} retransmitted, {} lost", there.lost);
    assert_eq!((there.broken, there.queue_full), (0, 0), "{there:?}");
}

#[test]
fn a_rate_limits_and_lets_through_what_it_promises() {
    if !require_root() {
        return;
    }
    // 8 MiB at 100 Mbit/s take 0.67 s.
    let lab = pair(Link::new().rtt(4 * MS).rate_mbit(100));
    let bytes = 8 << 20;
    let took = bulk(&lab, bytes).as_secs_f64();
    let mbit = bytes as f64 * 8.0 / took / 1e6;
    println!("{mbit:.1} Mbit/s over 100 Mbit/s");
    assert!((75.0..100.0).contains(&mbit), "{mbit}");
}

#[test]
fn a_short_queue_drops_its_tail() {
    if !require_root() {
        return;
    }
    let lab = pair(Link::new().rtt(10 * MS).rate_mbit(50).queue(30_000).mtu(1500).offload(false));
    lab.set_congestion_control("a", "cubic").expect("cubic");
    bulk(&lab, 2 << 20);
    let there = lab.direction("a", "b").counters();
    assert!(there.queue_full > 0 && there.lost == 0, "{there:?}");
}

#[test]
fn a_cut_link_is_silent_until_it_is_restored() {
    if !require_root() {
        return;
    }
    let lab = pair(Link::new().rtt(10 * MS));
    let (_listener, address) = listener(lab.host("b"), lab.host("b").addr());
    lab.link("a", "b").cut();
    let refused = lab.host("a").run(|| TcpStream::connect_timeout(&address, 200 * MS));
    assert_eq!(refused.expect_err("cut").kind(), std::io::ErrorKind::TimedOut);
    assert!(lab.direction("a", "b").counters().blocked > 0);
    lab.link("a", "b").restore();
    lab.link("a", "b").set_delay(30 * MS);
    let took = opening(lab.host("a"), address);
    assert!((60 * MS..80 * MS).contains(&took), "{took:?}");
}

#[test]
fn a_firewall_refuses_openings_one_way_and_only_to_its_ports() {
    if !require_root() {
        return;
    }
    let lab = pair(Link::new());
    let connect = |from: &str, to: SocketAddr| lab.host(from).run(|| TcpStream::connect_timeout(&to, 200 * MS));
    let (_closed, closed) = listener(lab.host("b"), lab.host("b").addr());
    let (_open, open) = listener(lab.host("b"), lab.host("b").addr());
    let (_back, back) = listener(lab.host("a"), lab.host("a").addr());
    lab.direction("a", "b").set_refused_ports(Some(closed.port()..=closed.port()));
    assert!(connect("a", closed).is_err());
    assert!(connect("a", open).is_ok());
    lab.direction("a", "b").set_refused_ports(Some(1..=u16::MAX));
    assert!(connect("b", back).is_ok(), "answers to the other side's openings pass");
}

#[test]
fn a_path_through_a_router_adds_up_and_each_host_keeps_its_addresses() {
    if !require_root() {
        return;
    }
    let hop = Link::new().rtt(20 * MS);
    let lab = Lab::builder().host("client").host("router").host_with_addrs("nodes", 3);
    let lab = lab.link("client", "router", hop.clone()).link("router", "nodes", hop).build().expect("laboratory");
    let nodes = lab.host("nodes");
    for address in nodes.addrs().iter().chain(nodes.addrs_v6()) {
        let (listener, address) = listener(nodes, *address);
        let stream = lab.host("client").run(|| TcpStream::connect(address)).expect("connect");
        let (_, peer) = listener.accept().expect("accept");
        assert_eq!(peer, stream.local_addr().expect("bound"));
        let client = lab.host("client");
        assert!(client.addrs().contains(&peer.ip()) || client.addrs_v6().contains(&peer.ip()), "{peer}");
    }
    let (_listener, address) = listener(nodes, nodes.addr());
    let took = opening(lab.host("client"), address);
    assert!((40 * MS..60 * MS).contains(&took), "{took:?}");
}

#[test]
fn congestion_control_is_chosen_for_each_host() {
    if !require_root() {
        return;
    }
    let lab = pair(Link::new());
    for name in ["cubic", "reno", "bbr"] {
        lab.set_congestion_control("a", name).expect("available");
        assert_eq!(lab.host("a").sysctl("net.ipv4.tcp_congestion_control").expect("read"), name);
    }
    lab.set_congestion_control_everywhere("cubic").expect("available");
    assert_eq!(lab.host("b").sysctl("net.ipv4.tcp_congestion_control").expect("read"), "cubic");
    let error = lab.set_congestion_control("a", "no-such").expect_err("must fail").to_string();
    assert!(error.contains("no-such"), "{error}");
}

#[test]
fn a_trace_counts_the_round_trips_of_an_exchange() {
    if !require_root() {
        return;
    }
    let rtt = 40 * MS;
    let lab = Lab::triangle(Link::new().rtt(rtt)).expect("laboratory");
    let (listener, address) = listener(lab.host("src"), lab.host("src").addr());
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accept");
        let mut line = [0; 5];
        for _ in 0..3 {
            stream.read_exact(&mut line).expect("read");
            stream.write_all(b"200\r\n").expect("write");
        }
        stream
    });
    lab.start_trace();
    let start = lab.now();
    let mut client = lab.host("client").run(|| TcpStream::connect(address)).expect("connect");
    for _ in 0..3 {
        client.write_all(b"NOOP\n").expect("write");
        client.read_exact(&mut [0; 5]).expect("read");
    }
    let end = lab.now();
    let trace = lab.trace().between("client", "src").port(address.port()).during(start, end);
    // One for the opening, one for each command; the last acknowledgement may still be on its way.
    let trips = trace.clone().with_payload().round_trips(rtt);
    assert!((3.0..3.4).contains(&trips), "{trips}\n{trace}");
    assert!(((end - start).as_secs_f64() / rtt.as_secs_f64()) >= 4.0);
    assert_eq!(trace.payload_bytes(), 30, "{trace}");
    assert!(trace.records()[0].packet.expect("IP").opens_connection(), "{trace}");
    let said = |words: &[u8]| trace.records().iter().filter(|record| record.says(words)).count();
    assert_eq!((said(b"NOOP\n"), said(b"200\r\n"), said(b"QUIT")), (3, 3, 0), "{trace}");
    assert_eq!(lab.trace().between("src", "dst").to_string(), "", "an idle link is silent");
    drop(server.join().expect("served"));
}

#[test]
fn records_tell_lost_packets_from_those_that_arrived() {
    if !require_root() {
        return;
    }
    let lab = pair(Link::new().rtt(2 * MS));
    let (_listener, address) = listener(lab.host("b"), lab.host("b").addr());
    lab.start_trace();
    lab.direction("a", "b").set_loss(1.0);
    assert!(lab.host("a").run(|| TcpStream::connect_timeout(&address, 100 * MS)).is_err());
    lab.direction("a", "b").set_loss(0.0);
    opening(lab.host("a"), address);
    let fates: Vec<Fate> = lab.trace().port(address.port()).records().iter().map(|record| record.fate).collect();
    assert_eq!(fates[0], Fate::Lost);
    assert!(fates.iter().any(|fate| matches!(fate, Fate::Arrived(_))), "{fates:?}");
}

/// The names of the network namespaces that this process holds: by descriptor, or because a thread is in one.
fn held_namespaces() -> Vec<PathBuf> {
    let entries = |directory: &str| fs::read_dir(directory).expect("proc").flatten().map(|entry| entry.path());
    let descriptors = entries("/proc/self/fd");
    let threads = entries("/proc/self/task").map(|task| task.join("ns/net"));
    descriptors.chain(threads).filter_map(|link| fs::read_link(link).ok()).collect()
}

#[test]
fn everything_disappears_with_the_laboratory_even_after_a_panic() {
    if !require_root() {
        return;
    }
    let (report, reported) = mpsc::channel();
    let test = thread::spawn(move || {
        let lab = pair(Rung::named("campus").expect("a rung").link());
        let name = lab.host("a").run(|| fs::read_link("/proc/thread-self/ns/net").expect("link"));
        assert!(held_namespaces().contains(&name), "held while the laboratory lives");
        report.send(name).expect("somebody listens");
        panic!("the test goes wrong");
    });
    assert!(test.join().is_err());
    let name = reported.recv().expect("reported");
    assert!(!held_namespaces().contains(&name), "{name:?} is still held");
}

#[test]
fn one_stream_fills_a_gigabit_at_75_ms_with_little_processor_time() {
    if !require_root() {
        return;
    }
    let lab = pair(Link::new().rtt(75 * MS).rate_mbit(1000));
    lab.set_congestion_control_everywhere("cubic").expect("cubic");
    let bytes = 256 << 20;
    let took = bulk(&lab, bytes);
    let cpu = lab.link_cpu();
    let counters = lab.links().counters();
    println!(
        "{:.0} Mbit/s, links' threads {:.3} s of {:.3} s",
        bytes as f64 * 8e-6 / took.as_secs_f64(),
        cpu.as_secs_f64(),
        took.as_secs_f64()
    );
    println!("{counters:?}");
    // 2.15 s of transmission, and the slow start.
    assert!(took < Duration::from_secs(5), "{took:?}");
    assert!(cpu < took / 2, "{cpu:?} of {took:?}");
    assert_eq!(counters.broken, 0);
}

/// Serves so many dialogues of four lines, each of which costs so many seconds of computing; says its port first.
const THINKER: &str = "
import socket, sys, time
listener = socket.create_server((sys.argv[1], 0))
print(listener.getsockname()[1], flush=True)
stream, _ = listener.accept()
for line in stream.makefile('rb'):
    end = time.process_time() + float(sys.argv[2])
    while time.process_time() < end: pass
    stream.sendall(b'200\\n')
";

/// Has a dialogue with each of the servers, all at the same time.
const TALKER: &str = "
import select, socket, sys
left = {}
for server in sys.argv[1:]:
    host, port = server.rsplit(':', 1)
    stream = socket.create_connection((host, int(port)))
    left[stream] = 3
    stream.sendall(b'NOOP\\n')
while left:
    for stream in select.select(list(left), [], [])[0]:
        assert stream.recv(100)
        left[stream] -= 1
        if left[stream]: stream.sendall(b'NOOP\\n')
        else: del left[stream]
";

#[test]
fn in_lockstep_no_computing_is_taken_for_trips() {
    if !require_root() {
        return;
    }
    let lab = Lab::builder().host("client").host("src").host("dst").mesh(Link::new().rtt(20 * MS));
    let lab = lab.lockstep().build().expect("laboratory");
    // One computes for as long as three round trips and more take, the other not at all.
    let servers = [("src", "0.1"), ("dst", "0")].map(|(name, seconds)| {
        let host = lab.host(name);
        let mut command = host.command("python3");
        command.args(["-c", THINKER, &host.addr().to_string(), seconds]);
        Daemon::start(command, Duration::from_secs(20), |line| line.trim().parse::<u16>().ok()).expect("python3")
    });
    let addresses: Vec<String> = ["src", "dst"]
        .iter()
        .zip(&servers)
        .map(|(name, (_, port))| format!("{}:{port}", lab.host(name).addr()))
        .collect();
    lab.start_trace();
    let run = Tool::new("python3").args(["-c", TALKER]).args(&addresses).on(lab.host("client")).run_ok();
    let trips = lab.trace().one_way_trips("client", lab.at(run.ended));
    println!("{trips} trips in {:.0} ms", run.wall.as_secs_f64() * 1e3);
    // The second opening waits for the first; then three lines each.
    assert_eq!(trips, 2 + 2 + 3 * 2, "{}", lab.trace());
    assert!(run.wall > 3 * 100 * MS, "the computing is in the time");
}

//! What movers do when something goes wrong.

#![allow(missing_docs, clippy::unwrap_used)]

mod mover_support;

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use mover_support::{Answer, Node, extended, identity, pattern, receive, send, stream};
use whimbrel_dtn::mover::books::{Books, LogPaths};
use whimbrel_dtn::mover::message::{DataPeers, Identity, ToMover, Way};
use whimbrel_proto::op::{
    DataParams, FailureKind, GsiPeer, Level, Op, Outcome, ReceiveSpec, SendSpec, Shield, WriteKind,
};
use whimbrel_sys::retry;

fn from_elsewhere() -> Identity {
    Identity { control_peer: Some("192.0.2.1:40000".parse().unwrap()), ..identity(DataPeers::ControlPeer) }
}

/// Waits until the other side has closed the connection.
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    match retry::read(stream, &mut [0; 64]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn an_abort_in_mid_transfer_ends_it_and_the_next_operation_works() {
    for (params, aborts_source) in [(stream(), true), (stream(), false), (extended(4), true), (extended(4), false)] {
        let mut node = Node::at(tempfile::tempdir().unwrap(), |settings| settings.root = b"/dev".to_vec());
        let (source, destination) = node.pair(&params);
        let spec = ReceiveSpec { performance_interval: Some(Duration::ZERO), ..receive("/null") };
        let receiving = node.run(destination, Op::Receive(spec));
        let sending = node.run(source, Op::Send(send("/zero")));
        node.until(receiving, |answer| {
            answer.notices.iter().any(|notice| match notice {
                whimbrel_proto::op::Notice::Performance { bytes, .. } => *bytes > 0,
                _ => false,
            })
        });
        // One at a time: each may see that the other has ended before it is told to end itself.
        let (aborted, other) = if aborts_source { (sending, receiving) } else { (receiving, sending) };
        node.abort(aborted);
        node.wait(aborted).fails_with(FailureKind::Aborted);
        node.wait(other).fails_with(FailureKind::ConnectionBroken);
        node.link(source, destination, &params);
        let from = SendSpec { length: Some(1000), ..send("/zero") };
        let (sent, received) = node.copy((source, destination), from, receive("/null"));
        assert_eq!((sent.bytes(), received.bytes()), (1000, 1000));
    }
}

#[test]
fn an_operation_aborted_before_its_turn_never_runs() {
    let mut node = Node::start();
    let (source, destination) = node.pair(&stream());
    let waiting = node.run(destination, Op::Receive(receive("/copy")));
    let behind = node.run(destination, Op::MakeDirectory(b"/made".to_vec()));
    node.until(waiting, |answer| answer.reused().is_some());
    node.abort(behind);
    node.abort(waiting);
    node.wait(waiting).fails_with(FailureKind::Aborted);
    node.wait(behind).fails_with(FailureKind::Aborted);
    assert!(node.names().is_empty(), "nothing is left of a file that got no byte");
    assert_eq!(node.call(source, Op::MakeDirectory(b"/d".to_vec())).done(), Outcome::Directory(b"/d".to_vec()));
}

#[test]
fn a_refused_update_leaves_no_file_that_was_not_there() {
    let adjusted = |path| ReceiveSpec { write: WriteKind::Adjusted { offset: 10 }, ..receive(path) };
    let appended = |path| ReceiveSpec { write: WriteKind::Append, ..receive(path) };
    let mut node = Node::start();
    for spec in [adjusted("/new"), appended("/new")] {
        let mover = node.attach();
        let refused = node.run(mover, Op::Receive(spec));
        node.wait(refused).fails_with(FailureKind::NoDataHandle);
        assert!(node.names().is_empty(), "{:?}", node.names());
    }
    node.write("old", b"");
    let mover = node.attach();
    let refused = node.run(mover, Op::Receive(adjusted("/old")));
    node.wait(refused).fails_with(FailureKind::NoDataHandle);
    assert_eq!(node.names().len(), 1, "an empty file that was there stays");
}

#[test]
fn strangers_at_the_data_port_harm_nobody() {
    for params in [stream(), extended(2)] {
        let mut node = Node::start();
        let data = pattern(200_000);
        node.write("source", &data);
        let destination = node.attach();
        let addr = node.passive(destination, &params);
        // The control client is 127.0.0.1; this comes from another address of the loopback net.
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&"127.0.0.9:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
        socket.connect(&addr.into()).unwrap();
        let mut stranger = TcpStream::from(socket);
        let receiving = node.run(destination, Op::Receive(receive("/copy")));
        // A refused write tells the same as the close.
        let _ = stranger.write_all(&[0xff; 100]);
        assert!(is_closed(&mut stranger));
        let source = node.attach();
        node.active(source, &[addr], &params);
        assert_eq!(node.call(source, Op::Send(send("/source"))).bytes(), 200_000);
        assert_eq!(node.wait(receiving).bytes(), 200_000);
        assert!(node.read("copy") == data);
    }
}

#[test]
fn a_nonce_opens_the_data_port_to_other_addresses_and_only_the_right_one() {
    let mut node = Node::start();
    let data = pattern(200_000);
    node.write("source", &data);
    let right = DataParams { nonce: Some(*b"0123456789abcdef"), ..extended(2) };
    let wrong = DataParams { nonce: Some(*b"0123456789abcdeF"), ..extended(2) };
    // Who calls is on this host; from elsewhere nothing on it would be called in clear.
    let (destination, thief, source) = (node.attach_as(from_elsewhere()), node.attach(), node.attach());
    let addr = node.passive(destination, &right);
    let receiving = node.run(destination, Op::Receive(receive("/copy")));
    node.active(thief, &[addr], &wrong);
    // Whether the thief notices depends on when its connections are dropped; the file must not.
    let stolen = node.run(thief, Op::Send(send("/source")));
    node.wait(stolen);
    node.active(source, &[addr], &right);
    assert_eq!(node.call(source, Op::Send(send("/source"))).bytes(), 200_000);
    assert_eq!(node.wait(receiving).bytes(), 200_000);
    assert!(node.read("copy") == data);
}

/// Protected by a key that both ends have from the nonce.
fn shielded(params: DataParams, nonce: &[u8; 16]) -> DataParams {
    DataParams { nonce: Some(*nonce), shield: Shield::Nonce, ..params }
}

#[test]
fn protected_transfers_arrive_and_who_lacks_the_key_is_turned_away() {
    for params in [stream(), extended(3)] {
        let mut node = Node::start();
        let data = pattern(700_000);
        node.write("source", &data);
        let right = shielded(params.clone(), b"0123456789abcdef");
        let wrong = shielded(params.clone(), b"0123456789abcdeF");
        let (destination, thief, source) =
            (node.attach_as(from_elsewhere()), node.attach_as(from_elsewhere()), node.attach_as(from_elsewhere()));
        let Answer { outcome: Some(Outcome::Listening(at)), .. } =
            node.call(destination, Op::Passive { striped: false, family: None, params: right.clone() })
        else {
            panic!("not listening")
        };
        let receiving = node.run(destination, Op::Receive(receive("/copy")));
        let mut clear = TcpStream::connect(at[0]).unwrap();
        clear.write_all(b"bytes that are no TLS").unwrap();
        node.active(thief, &at, &wrong);
        node.call(thief, Op::Send(send("/source"))).fails_with(FailureKind::NotProtected);
        node.active(source, &at, &right);
        assert_eq!(node.call(source, Op::Send(send("/source"))).bytes(), 700_000);
        assert_eq!(node.wait(receiving).bytes(), 700_000);
        assert!(node.read("copy") == data, "{params:?}");
    }
}

#[test]
fn what_cannot_be_protected_is_not_moved() {
    let mut node = Node::start();
    let mover = node.attach();
    let passive = |params| Op::Passive { striped: false, family: None, params };
    let no_nonce = DataParams { shield: Shield::Nonce, ..extended(1) };
    node.call(mover, passive(no_nonce)).fails_with(FailureKind::BadArgument);
    let shielded = |shield| passive(DataParams { shield, ..stream() });
    node.call(mover, shielded(Shield::Session)).fails_with(FailureKind::NotSupported);
    let own = Shield::Gsi { peer: GsiPeer::Own, level: Level::Private };
    node.call(mover, shielded(own)).fails_with(FailureKind::NotProtected);
}

#[test]
fn addresses_other_than_the_control_clients_are_not_connected_to() {
    let mut node = Node::start();
    let active = |port: u16, params: DataParams| Op::Active {
        targets: vec![format!("127.0.0.1:{port}").parse().unwrap()],
        params,
    };
    let stranger = node.attach_as(from_elsewhere());
    node.call(stranger, active(5000, stream())).fails_with(FailureKind::CannotConnect);
    // A nonce shows nothing of who is called: in clear that is nobody on this host, inside TLS with its key whoever has it.
    let nonce = DataParams { nonce: Some([1; 16]), ..extended(1) };
    node.call(stranger, active(5000, nonce.clone())).fails_with(FailureKind::CannotConnect);
    assert_eq!(node.call(stranger, active(5000, shielded(nonce.clone(), &[1; 16]))).done(), Outcome::Done);
    // Where the server has told that a login of its own waits, it is no stranger's service; that is said for one data handle.
    let addresses = vec!["127.0.0.1:5000".parse().unwrap()];
    node.send(&ToMover::Listening { mover: stranger, addresses });
    node.call(stranger, active(5001, nonce.clone())).fails_with(FailureKind::CannotConnect);
    node.call(stranger, active(5000, nonce.clone())).fails_with(FailureKind::CannotConnect);
    let addresses = vec!["127.0.0.1:5000".parse().unwrap()];
    node.send(&ToMover::Listening { mover: stranger, addresses });
    assert_eq!(node.call(stranger, active(5000, nonce.clone())).done(), Outcome::Done);
    let named = DataPeers::ControlPeerAnd("192.0.2.0/24".parse().unwrap());
    let named = node.attach_as(Identity { data_peers: named, ..from_elsewhere() });
    let elsewhere = |params| {
        let targets = ["203.0.113.9:5000", "203.0.113.9:5001"].map(|target| target.parse().unwrap());
        Op::Active { targets: targets.to_vec(), params }
    };
    node.call(named, elsewhere(nonce.clone())).fails_with(FailureKind::CannotConnect);
    assert_eq!(node.call(stranger, elsewhere(nonce)).done(), Outcome::Done);
    let anyone = node.attach_as(Identity { data_peers: DataPeers::Anyone, ..from_elsewhere() });
    assert_eq!(node.call(anyone, active(5000, stream())).done(), Outcome::Done);
    node.call(anyone, active(25, stream())).fails_with(FailureKind::CannotConnect);
}

#[test]
fn nobody_connecting_and_nobody_listening_are_425() {
    let mut node = Node::with(|settings| settings.connect_timeout = Duration::from_millis(50));
    node.write("source", b"data");
    for params in [stream(), extended(2)] {
        let mover = node.attach();
        node.passive(mover, &params);
        node.call(mover, Op::Receive(receive("/copy"))).fails_with(FailureKind::CannotConnect);
        node.passive(mover, &params);
        node.call(mover, Op::Send(send("/source"))).fails_with(FailureKind::CannotConnect);
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        node.active(mover, &[closed], &params);
        node.call(mover, Op::Send(send("/source"))).fails_with(FailureKind::CannotConnect);
        node.call(mover, Op::Send(send("/source"))).fails_with(FailureKind::NoDataHandle);
    }
    assert_eq!(node.names(), ["source"]);
}

#[test]
fn a_failed_receive_keeps_what_arrived_for_a_restart() {
    let mut node = Node::start();
    let data = pattern(300_000);
    node.write("source", &data);
    let mover = node.attach();
    let addr = node.passive(mover, &extended(1));
    let receiving = node.run(mover, Op::Receive(receive("/copy")));
    let mut peer = TcpStream::connect(addr).unwrap();
    let mut block = vec![0];
    block.extend_from_slice(&100_000u64.to_be_bytes());
    block.extend_from_slice(&0u64.to_be_bytes());
    block.extend_from_slice(&data[..100_000]);
    peer.write_all(&block).unwrap();
    // Inside the header of a second block.
    peer.write_all(&[0, 0, 0]).unwrap();
    drop(peer);
    node.wait(receiving).fails_with(FailureKind::ConnectionBroken);
    assert_eq!(node.names(), [".copy.whimbrel-part", "source"]);
    let source = node.attach();
    node.link(source, mover, &extended(2));
    let done: Vec<_> = std::iter::once(0..100_000).collect();
    let write = whimbrel_proto::op::WriteKind::Restart { done: done.clone() };
    let from = SendSpec { done, ..send("/source") };
    let (_, received) = node.copy((source, mover), from, ReceiveSpec { write, ..receive("/copy") });
    assert_eq!(received.bytes(), 200_000);
    assert!(node.read("copy") == data);
    assert_eq!(node.names(), ["copy", "source"]);
}

#[test]
fn a_port_scan_does_not_pass_for_an_empty_file() {
    let mut node = Node::start();
    node.write("source", b"data");
    let destination = node.attach();
    let addr = node.passive(destination, &stream());
    let announced = ReceiveSpec { expected_size: Some(4), ..receive("/copy") };
    let receiving = node.run(destination, Op::Receive(announced));
    drop(TcpStream::connect(addr).unwrap());
    let source = node.attach();
    node.active(source, &[addr], &stream());
    assert_eq!(node.call(source, Op::Send(send("/source"))).bytes(), 4);
    assert_eq!(node.wait(receiving).bytes(), 4);
    assert_eq!(node.read("copy"), b"data");
}

#[test]
fn detaching_in_mid_transfer_frees_everything() {
    let mut node = Node::at(tempfile::tempdir().unwrap(), |settings| settings.root = b"/dev".to_vec());
    let destination = node.attach();
    let addr = node.passive(destination, &extended(1));
    let receiving = node.run(destination, Op::Receive(receive("/null")));
    let mut peer = TcpStream::connect(addr).unwrap();
    node.until(receiving, |answer| answer.reused().is_some());
    node.send(&ToMover::Detach { mover: destination });
    assert!(is_closed(&mut peer), "the connection is closed");
    while TcpStream::connect(addr).is_ok() {
        std::thread::yield_now();
    }
    // Detaching was the last thing to wait for.
    node.send(&ToMover::Drain);
    node.join().unwrap();
}

#[test]
fn the_loss_of_the_stream_ends_the_process_in_mid_transfer() {
    let mut node = Node::at(tempfile::tempdir().unwrap(), |settings| settings.root = b"/dev".to_vec());
    let (source, destination) = node.pair(&extended(2));
    let receiving = node.run(destination, Op::Receive(receive("/null")));
    node.run(source, Op::Send(send("/zero")));
    node.until(receiving, |answer| answer.reused().is_some());
    node.end().unwrap();
}

#[test]
fn a_draining_process_serves_its_movers_to_the_end() {
    let mut node = Node::start();
    node.write("source", b"data");
    let movers = node.pair(&stream());
    node.send(&ToMover::Drain);
    let (_, received) = node.copy(movers, send("/source"), receive("/copy"));
    assert_eq!(received.bytes(), 4);
    node.send(&ToMover::Detach { mover: movers.0 });
    node.send(&ToMover::Detach { mover: movers.1 });
    node.join().unwrap();
}

#[test]
fn load_reports_add_up() {
    let mut node = Node::start();
    node.write("source", &pattern(50_000));
    let movers = node.pair(&extended(2));
    let (_, received) = node.copy(movers, send("/source"), receive("/copy"));
    assert_eq!(received.bytes(), 50_000);
    let sum = |node: &Node, of: fn(&whimbrel_dtn::mover::message::Load) -> u64| node.loads.iter().map(of).sum::<u64>();
    while sum(&node, |load| load.transfers_done) < 2 {
        node.step();
    }
    assert_eq!(sum(&node, |load| load.bytes_sent), 50_000);
    assert_eq!(sum(&node, |load| load.bytes_received), 50_000);
    assert_eq!(node.loads.last().unwrap().channels_open, 4);
}

#[test]
fn a_transfer_under_way_is_told_with_its_channels_until_it_ends() {
    for (params, count) in [(stream(), 1), (extended(3), 3)] {
        let mut node = Node::at(tempfile::tempdir().unwrap(), |settings| settings.root = b"/dev".to_vec());
        let mover = node.attach();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        node.active(mover, &[addr], &params);
        let spec = SendSpec { length: Some(1 << 40), ..send("/zero") };
        let sending = node.run(mover, Op::Send(spec));
        // Nobody reads: the transfer gets as far as the sockets take it.
        let peers: Vec<TcpStream> = (0..count).map(|_| listener.accept().unwrap().0).collect();
        while node.transfers.running.iter().all(|one| one.channels.iter().filter(|c| c.bytes > 0).count() < count) {
            node.step();
        }
        let one = node.transfers.running[0].clone();
        assert_eq!((one.way, &one.kind[..], one.expected), (Way::Out, "ERET", Some(1 << 40)));
        for (index, channel) in one.channels.iter().enumerate() {
            assert_eq!((channel.index as usize, channel.peer), (index, Some(addr)));
            assert!(channel.rtt_us > 0 && channel.window > 0, "{channel:?}");
        }
        while node.loads.last().is_none_or(|load| load.channels_open as usize != count) {
            node.step();
        }
        while node.transfers.running[0].rate > 0 {
            node.step();
        }
        // It moves again after a rest, and that is told while it runs.
        let before = node.transfers.running[0].bytes;
        let readers: Vec<_> = peers
            .into_iter()
            .map(|mut peer| std::thread::spawn(move || std::io::copy(&mut peer, &mut std::io::sink())))
            .collect();
        while node.transfers.running[0].bytes == before {
            node.step();
        }
        node.abort(sending);
        node.wait(sending).fails_with(FailureKind::Aborted);
        while !node.transfers.running.is_empty() || node.loads.last().unwrap().channels_open > 0 {
            node.step();
        }
        // A reset is how a sender that was stopped says so.
        readers.into_iter().for_each(|reader| drop(reader.join().unwrap()));
    }
}

#[test]
fn finished_transfers_are_logged() {
    let root = tempfile::tempdir().unwrap();
    let paths = LogPaths { classic: Some(root.path().join("log")), json: Some(root.path().join("log.json")) };
    let books = Books::of(paths.open().unwrap()).unwrap();
    let mut node = Node::keeping(root, books);
    node.write("source", b"data");
    let movers = node.pair(&stream());
    let label = ToMover::Label { mover: movers.0, task: Some("T-1".to_owned()), client: None };
    node.send(&label);
    let (_, received) = node.copy(movers, send("/source"), receive("/copy"));
    assert_eq!(received.bytes(), 4);
    let log = String::from_utf8(node.read("log")).unwrap();
    let sent = log.lines().find(|line| line.contains("TYPE=RETR")).expect("RETR is logged");
    assert!(sent.contains(" FILE=/source ") && sent.contains(" NBYTES=4 ") && sent.ends_with("CODE=226 TASKID=T-1"));
    assert!(log.lines().any(|line| line.contains("TYPE=STOR") && line.ends_with("TASKID=none")));
    assert_eq!(node.read("log.json").split(|&b| b == b'\n').count(), 3);
}

#[test]
fn a_source_that_changes_while_it_is_sent_is_no_success() {
    let mut node = Node::start();
    node.write("source", &pattern(8 << 20));
    let mover = node.attach();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let receive_buffer = Some(64 << 10);
    node.active(mover, &[listener.local_addr().unwrap()], &DataParams { send_buffer: receive_buffer, ..stream() });
    let sending = node.run(mover, Op::Send(send("/source")));
    let (mut peer, _) = listener.accept().unwrap();
    peer.read_exact(&mut [0; 1000]).unwrap();
    // Most of the file is still behind the socket buffers.
    let file = std::fs::OpenOptions::new().append(true).open(node.root.path().join("source")).unwrap();
    (&file).write_all(b"more").unwrap();
    // How much arrives is not the matter here.
    let _ = std::io::copy(&mut peer, &mut std::io::sink());
    node.wait(sending).fails_with(FailureKind::SourceChanged);
}

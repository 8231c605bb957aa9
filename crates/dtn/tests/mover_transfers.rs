//! Third-party copies between two movers on loopback.

#![allow(missing_docs, clippy::unwrap_used, clippy::single_range_in_vec_init)]

mod mover_support;

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mover_support::{Node, extended, identity, pattern, receive, send, stream};
use whimbrel_connector::faults::{Faulty, Operation, Script};
use whimbrel_connector::posix::{Posix, PosixOptions};
use whimbrel_dtn::mover::message::DataPeers;
use whimbrel_proto::op::{ChunkedFile, DataParams, FailureKind, LeafSpec, Notice, Op, Outcome};
use whimbrel_proto::op::{ReceiveSpec, SendSpec, Shield, WriteKind};

const HOUR: Option<Duration> = Some(Duration::from_secs(3600));

fn modes() -> [DataParams; 3] {
    [stream(), extended(1), extended(4)]
}

#[test]
fn files_of_every_size_arrive_whole_in_every_mode() {
    for params in modes() {
        let mut node = Node::start();
        for size in [0, 1, 10 << 10, 300 << 10, (5 << 20) + 17] {
            let data = pattern(size);
            node.write("source", &data);
            let movers = node.pair(&params);
            let (sent, received) = node.copy(movers, send("/source"), receive("/copy"));
            assert_eq!((sent.bytes(), received.bytes()), (size as u64, size as u64));
            assert!(node.read("copy") == data, "{size} bytes in {params:?}");
        }
        assert_eq!(node.names(), ["copy", "source"], "no leftovers");
    }
}

#[test]
fn a_part_is_sent_from_offset_zero_and_stored_where_asked() {
    for params in modes() {
        let mut node = Node::start();
        let data = pattern(400_000);
        node.write("source", &data);
        node.write("copy", &vec![7; 500_000]);
        let movers = node.pair(&params);
        let from = SendSpec { offset: 100_000, length: Some(200_000), ..send("/source") };
        let to =
            ReceiveSpec { write: WriteKind::Adjusted { offset: 50_000 }, range_interval: HOUR, ..receive("/copy") };
        let (sent, received) = node.copy(movers, from, to);
        let ranges = received.notices.iter().find_map(|notice| match notice {
            Notice::Ranges(ranges) => Some(ranges.clone()),
            _ => None,
        });
        // Markers tell wire offsets; a stream has none.
        let expected = (params.mode == whimbrel_proto::op::Mode::Extended).then(|| vec![0..200_000]);
        assert_eq!(ranges, expected);
        assert_eq!((sent.bytes(), received.bytes()), (200_000, 200_000));
        let copy = node.read("copy");
        assert_eq!(copy.len(), 500_000);
        assert!(copy[50_000..250_000] == data[100_000..300_000]);
        assert!(copy[..50_000].iter().chain(&copy[250_000..]).all(|&b| b == 7));
    }
}

#[test]
fn offsets_beyond_any_file_are_refused() {
    let mut node = Node::start();
    let (_, destination) = node.pair(&extended(1));
    let write = WriteKind::Adjusted { offset: u64::MAX - 5 };
    let op = Op::Receive(ReceiveSpec { write, ..receive("/copy") });
    node.call(destination, op).fails_with(FailureKind::BadArgument);
    assert!(node.names().is_empty());
}

#[test]
fn append_adds_at_the_end_and_creates_what_is_missing() {
    for params in modes() {
        let mut node = Node::start();
        let data = pattern(70_000);
        node.write("source", &data);
        for round in 1..=2 {
            let movers = node.pair(&params);
            let to = ReceiveSpec { write: WriteKind::Append, ..receive("/log") };
            let (sent, received) = node.copy(movers, send("/source"), to);
            assert_eq!((sent.bytes(), received.bytes()), (70_000, 70_000));
            assert!(node.read("log") == data.repeat(round));
        }
    }
}

#[test]
fn stou_tells_a_name_that_did_not_exist() {
    let mut node = Node::start();
    node.write("source", b"new");
    node.write("file", b"old");
    let movers = node.pair(&stream());
    let to = ReceiveSpec { write: WriteKind::Unique, ..receive("/file") };
    let (sent, received) = node.copy(movers, send("/source"), to);
    assert_eq!(sent.bytes(), 3);
    let told = received.notices.iter().find_map(|notice| match notice {
        Notice::Opened { unique_name, .. } => unique_name.clone(),
        _ => None,
    });
    assert_eq!(told.as_deref(), Some(&b"/file.1"[..]));
    assert_eq!((node.read("file"), node.read("file.1")), (b"old".to_vec(), b"new".to_vec()));
}

#[test]
fn two_who_store_under_unique_names_at_once_have_a_name_each() {
    let mut node = Node::start();
    node.write("source", b"new");
    let hidden = ".file.whimbrel-part";
    node.write(hidden, b"what another one is storing");
    let movers = node.pair(&stream());
    let to = ReceiveSpec { write: WriteKind::Unique, ..receive("/file") };
    node.copy(movers, send("/source"), to).1.done();
    assert_eq!((node.read("file.1"), node.read(hidden)), (b"new".to_vec(), b"what another one is storing".to_vec()));
}

#[test]
fn what_takes_a_unique_name_while_its_file_is_stored_stays() {
    // Under rules, too, which have storage of their own.
    for quota in [None, Some(1 << 20)] {
        let mut node = Node::start();
        node.write("source", b"new");
        let mut login = identity(DataPeers::ControlPeer);
        login.rules.quota = quota;
        let (source, destination) = (node.attach(), node.attach_as(login));
        node.link(source, destination, &stream());
        let to = ReceiveSpec { write: WriteKind::Unique, ..receive("/file") };
        let receiving = node.run(destination, Op::Receive(to));
        node.until(receiving, |answer| answer.notices.iter().any(|notice| matches!(notice, Notice::Opened { .. })));
        // As another client's RNTO does.
        node.write("file", b"theirs");
        let sending = node.run(source, Op::Send(send("/source")));
        node.wait(sending);
        node.wait(receiving).fails_with(FailureKind::Exists);
        assert_eq!(node.names(), ["file", "source"], "quota {quota:?}");
        assert_eq!(node.read("file"), b"theirs");
    }
}

#[test]
fn a_name_under_which_a_file_is_stored_in_chunks_is_not_unique() {
    let mut node = Node::start();
    node.write("source", b"new");
    let movers = node.pair(&stream());
    let leaves = LeafSpec { size: 1000, algorithm: "CRC32C".to_owned(), holes: false, vouched: false };
    let file = ChunkedFile { path: b"/file".to_vec(), size: 3500, modified: None, leaves };
    let opened = node.call(movers.1, Op::OpenChunked(file)).done();
    assert!(matches!(opened, Outcome::Chunked { .. }), "{opened:?}");
    let before = node.names();
    assert_eq!(before.len(), 3, "the unfinished file and its journal: {before:?}");
    let to = ReceiveSpec { write: WriteKind::Unique, ..receive("/file") };
    node.copy(movers, send("/source"), to).1.done();
    let after = node.names();
    assert!(before.iter().all(|name| after.contains(name)), "{after:?}");
    assert_eq!(node.read("file.1"), b"new");
}

#[test]
fn stor_after_rest_keeps_earlier_bytes() {
    for params in modes() {
        let mut node = Node::start();
        let data = pattern(300_000);
        node.write("source", &data);
        node.write("copy", &data[..100_000]);
        let movers = node.pair(&params);
        let done = std::iter::once(0..100_000).collect::<Vec<_>>();
        let from = SendSpec { done: done.clone(), ..send("/source") };
        let to = ReceiveSpec { write: WriteKind::Restart { done }, ..receive("/copy") };
        let (sent, received) = node.copy(movers, from, to);
        assert_eq!((sent.bytes(), received.bytes()), (200_000, 200_000));
        assert!(node.read("copy") == data);
    }
}

#[test]
fn gaps_of_a_restart_list_are_filled() {
    let mut node = Node::start();
    let data = pattern(300_000);
    node.write("source", &data);
    let mut partial = vec![0; 250_000];
    partial[..50_000].copy_from_slice(&data[..50_000]);
    partial[100_000..250_000].copy_from_slice(&data[100_000..250_000]);
    node.write(".copy.whimbrel-part", &partial);
    let movers = node.pair(&extended(4));
    let done = vec![0..50_000, 100_000..250_000];
    let from = SendSpec { done: done.clone(), ..send("/source") };
    let to = ReceiveSpec { write: WriteKind::Restart { done }, range_interval: HOUR, ..receive("/copy") };
    let (sent, received) = node.copy(movers, from, to);
    assert_eq!(sent.bytes(), 100_000);
    let ranges: Vec<_> = received.notices.iter().filter(|n| matches!(n, Notice::Ranges(_))).collect();
    assert_eq!(ranges, [&Notice::Ranges(vec![50_000..100_000, 250_000..300_000])]);
    assert!(node.read("copy") == data);
    assert_eq!(node.names(), ["copy", "source"]);
}

#[test]
fn extended_connections_are_reused_by_transfers_and_listings_in_one_direction() {
    let mut node = Node::start();
    let data = pattern(50_000);
    node.write("source", &data);
    let movers = node.pair(&extended(2));
    for round in 0..3 {
        let (sent, received) = node.copy(movers, send("/source"), receive(&format!("/copy{round}")));
        assert_eq!((sent.reused(), received.reused()), (Some(round > 0), Some(round > 0)));
        assert_eq!((sent.bytes(), received.bytes()), (50_000, 50_000));
        assert!(node.read(&format!("copy{round}")) == data);
    }
    // The other direction needs a handle of its own.
    let refused = node.call(movers.1, Op::Send(send("/source")));
    refused.fails_with(FailureKind::NoDataHandle);
    let refused = node.call(movers.0, Op::Receive(receive("/x")));
    refused.fails_with(FailureKind::NoDataHandle);
}

#[test]
fn a_stream_handle_serves_one_transfer() {
    let mut node = Node::start();
    node.write("source", b"data");
    let movers = node.pair(&stream());
    let (sent, received) = node.copy(movers, send("/source"), receive("/copy"));
    assert_eq!((sent.bytes(), received.bytes()), (4, 4));
    node.call(movers.0, Op::Send(send("/source"))).fails_with(FailureKind::NoDataHandle);
}

#[test]
fn the_next_file_never_takes_the_place_of_one_that_failed() {
    let mut node = Node::with(|settings| settings.connect_timeout = Duration::from_millis(200));
    node.write("right", b"right");
    for warm in [false, true] {
        let movers = node.pair(&extended(2));
        if warm {
            let (sent, received) = node.copy(movers, send("/right"), receive("/warm"));
            assert_eq!((sent.bytes(), received.bytes()), (5, 5));
        }
        // Pipelined: the source lacks the first file, the destination awaits both.
        let storing = ["/first", "/second"].map(|path| node.run(movers.1, Op::Receive(receive(path))));
        let sending = ["/missing", "/right"].map(|path| node.run(movers.0, Op::Send(send(path))));
        node.wait(sending[0]).fails_with(FailureKind::NotFound);
        node.wait(sending[1]).fails_with(FailureKind::NoDataHandle);
        node.wait(storing[0]).failure();
        node.wait(storing[1]).fails_with(FailureKind::NoDataHandle);
        assert!(!node.names().iter().any(|name| name == "first" || name == "second"), "{:?}", node.names());
    }
}

#[test]
fn data_of_a_refused_file_never_lands_in_the_next() {
    let mut node = Node::start();
    node.write("source", b"data");
    std::fs::create_dir(node.root.path().join("taken")).unwrap();
    let movers = node.pair(&extended(1));
    let (sent, received) = node.copy(movers, send("/source"), receive("/warm"));
    assert_eq!((sent.bytes(), received.bytes()), (4, 4));
    let storing = ["/taken", "/next"].map(|path| node.run(movers.1, Op::Receive(receive(path))));
    node.wait(storing[0]).fails_with(FailureKind::IsADirectory);
    let sending = node.run(movers.0, Op::Send(send("/source")));
    node.wait(sending);
    node.wait(storing[1]).fails_with(FailureKind::NoDataHandle);
    assert_eq!(node.names(), ["source", "taken", "warm"]);
}

#[test]
fn markers_begin_with_nothing_and_end_with_everything() {
    let mut node = Node::start();
    node.write("source", &pattern(123_456));
    let movers = node.pair(&extended(2));
    let from = SendSpec { performance_interval: HOUR, ..send("/source") };
    let to = ReceiveSpec { performance_interval: HOUR, range_interval: HOUR, ..receive("/copy") };
    let (sent, received) = node.copy(movers, from, to);
    for answer in [&sent, &received] {
        let bytes: Vec<u64> = answer
            .notices
            .iter()
            .filter_map(|notice| match notice {
                Notice::Performance { bytes, stripe: 0, stripes: 1, .. } => Some(*bytes),
                _ => None,
            })
            .collect();
        assert_eq!(bytes, [0, 123_456]);
        assert!(matches!(answer.notices[0], Notice::Opened { .. }), "150 comes first");
    }
    let ranges = received.notices.last().cloned();
    assert_eq!(ranges, Some(Notice::Ranges(std::iter::once(0..123_456).collect())));
}

#[test]
fn ranges_are_told_with_synced_writes_too() {
    let mut node = Node::with(|settings| settings.sync_writes = true);
    node.write("source", &pattern(500_000));
    let movers = node.pair(&extended(2));
    let to = ReceiveSpec { range_interval: HOUR, ..receive("/copy") };
    let (_, received) = node.copy(movers, send("/source"), to);
    assert_eq!(received.notices.last(), Some(&Notice::Ranges(std::iter::once(0..500_000).collect())));
    assert_eq!(received.bytes(), 500_000);
}

#[test]
fn the_modification_time_is_set_at_the_commit() {
    let mut node = Node::start();
    node.write("source", b"data");
    let movers = node.pair(&stream());
    let to = ReceiveSpec { modified: Some((1_000_000_000, 5)), ..receive("/copy") };
    let (_, received) = node.copy(movers, send("/source"), to);
    assert_eq!(received.bytes(), 4);
    let outcome = node.call(movers.0, Op::Modified(b"/copy".to_vec())).done();
    assert_eq!(outcome, Outcome::Modified(1_000_000_000, 5));
}

#[test]
fn a_file_has_the_mode_it_came_with_and_is_private_until_then() {
    for (params, leaves) in [(stream(), false), (extended(2), false), (extended(2), true)] {
        let (root, script) = (tempfile::tempdir().unwrap(), Script::new());
        let at = |name: &str| root.path().join(name);
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        let (hidden, copy) = (at(".copy.whimbrel-part"), at("copy"));
        let inner = Posix::open(root.path(), PosixOptions::default()).unwrap();
        let seen = Arc::<Mutex<Vec<u32>>>::default();
        let (look, looked) = (hidden.clone(), seen.clone());
        script.hook(move |operation, _| {
            if operation == Operation::Commit {
                looked.lock().unwrap().push(mode(&look));
            }
        });
        let mut node = Node::on(root, |_| {}, Arc::new(Faulty::new(inner, script)));
        node.write("source", &pattern(300_000));
        let leaves =
            leaves.then(|| LeafSpec { size: 1 << 20, algorithm: "MD5".to_owned(), holes: false, vouched: false });
        for told in [Some(0o640), Some(0o604), None] {
            let movers = node.pair(&params);
            let to = ReceiveSpec { mode: told, leaves: leaves.clone(), ..receive("/copy") };
            let (_, received) = node.copy(movers, send("/source"), to);
            assert_eq!(received.bytes(), 300_000);
            assert_eq!(mode(&copy), told.unwrap_or(0o604), "a replaced file's, when none is told");
        }
        assert_eq!(*seen.lock().unwrap(), [0o600; 3]);
    }
}

#[test]
fn a_mode_that_is_none_is_refused_before_anything_moves() {
    let mut node = Node::start();
    let mover = node.attach();
    node.passive(mover, &extended(1));
    let to = ReceiveSpec { mode: Some(0o10_000), ..receive("/copy") };
    node.call(mover, Op::Receive(to)).failure();
    assert!(node.names().is_empty());
}

#[test]
fn lines_are_converted_in_ascii() {
    let mut node = Node::start();
    node.write("source", b"one\ntwo\n");
    let movers = node.pair(&stream());
    let from = SendSpec { ascii: true, ..send("/source") };
    let (_, received) = node.copy(movers, from, ReceiveSpec { ascii: true, ..receive("/copy") });
    received.done();
    assert_eq!(node.read("copy"), b"one\ntwo\n");
}

#[test]
fn devices_are_read_and_written_in_place() {
    let Ok(metadata) = std::fs::metadata("/dev/null") else { return };
    assert!(!metadata.is_file());
    let mut node = Node::at(tempfile::tempdir().unwrap(), |settings| settings.root = b"/dev".to_vec());
    for params in modes() {
        let movers = node.pair(&params);
        let from = SendSpec { length: Some(3_000_000), ..send("/zero") };
        let (sent, received) = node.copy(movers, from, receive("/null"));
        assert_eq!((sent.bytes(), received.bytes()), (3_000_000, 3_000_000));
    }
}

#[test]
fn a_sender_may_listen_and_a_receiver_connect() {
    let cases = [(stream(), None), (extended(3), None), (extended(3), Some([9; 16]))].map(|case| (case, Shield::None));
    let protected = [(stream(), Some([9; 16])), (extended(3), Some([9; 16]))].map(|case| (case, Shield::Nonce));
    for ((params, nonce), shield) in cases.into_iter().chain(protected) {
        let params = DataParams { nonce, shield, ..params };
        let mut node = Node::start();
        let data = pattern(700_000);
        node.write("source", &data);
        let (source, destination) = (node.attach(), node.attach());
        let addr = node.passive(source, &params);
        node.active(destination, &[addr], &params);
        for round in 0..2 {
            let (sent, received) = node.copy((source, destination), send("/source"), receive("/copy"));
            assert_eq!((sent.bytes(), received.bytes()), (700_000, 700_000), "round {round}");
            assert!(node.read("copy") == data);
            if params.mode == whimbrel_proto::op::Mode::Stream {
                break;
            }
        }
    }
}

#[test]
fn two_hundred_pipelined_small_files_arrive_in_order() {
    let mut node = Node::start();
    let data = pattern(10 << 10);
    node.write("source", &data);
    let movers = node.pair(&extended(1));
    let mut keys = Vec::new();
    for n in 0..200 {
        keys.push(node.run(movers.1, Op::Receive(receive(&format!("/copy{n}")))));
        keys.push(node.run(movers.0, Op::Send(send("/source"))));
    }
    for key in keys {
        assert_eq!(node.wait(key).bytes(), 10 << 10);
    }
    for n in 0..200 {
        assert!(node.read(&format!("copy{n}")) == data);
    }
}

#[test]
fn a_receiver_for_many_addresses_is_one_of_several_lanes() {
    // A sender without stripes that was given two addresses feeds both.
    let mut node = Node::start();
    let data = pattern(5_000_000);
    node.write("source", &data);
    let params = extended(2);
    let (source, left, right) = (node.attach(), node.attach(), node.attach());
    let targets = [node.passive(left, &params), node.passive(right, &params)];
    node.active(source, &targets, &params);
    let update = |path: &str| ReceiveSpec { write: WriteKind::Adjusted { offset: 0 }, ..receive(path) };
    let receiving = [node.run(left, Op::Receive(update("/copy"))), node.run(right, Op::Receive(update("/copy")))];
    assert_eq!(node.call(source, Op::Send(send("/source"))).bytes(), 5_000_000);
    let parts = receiving.map(|key| node.wait(key).bytes());
    assert_eq!(parts.iter().sum::<u64>(), 5_000_000);
    assert!(parts.iter().all(|&part| part > 1_000_000), "both had their share: {parts:?}");
    assert!(node.read("copy") == data);
}

#[test]
fn own_clients_connections_are_dialled_before_the_transfer_and_others_with_it() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let mut node = Node::start();
    let mover = node.attach();
    let arrived = || std::iter::from_fn(|| listener.accept().ok()).count();
    // Connections to this host's own queue are there when the call has been answered.
    node.active(mover, &[address], &extended(3));
    assert_eq!(arrived(), 0, "a stock client may never ask for a transfer");
    let nonce = DataParams { nonce: Some([7; 16]), ..extended(3) };
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    node.active(mover, &[address, other], &nonce);
    assert_eq!(arrived(), 0, "which node calls which address is the transfer's to say");
    node.active(mover, &[address], &nonce);
    assert_eq!(arrived(), 3);
}

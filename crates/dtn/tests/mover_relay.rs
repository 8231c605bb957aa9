//! Data connections by way of a relay, which both ends dial.
#![allow(clippy::unwrap_used, reason = "a test that fails ends here")]

mod mover_support;

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use mover_support::{Node, extended, stream};
use whimbrel_proto::op::{DataParams, FailureKind, Op, Outcome, ReceiveSpec, SendSpec, Shield};
use whimbrel_proto::relay::{HELLO_BYTES, Hello, Part};
use whimbrel_trust::psk;

const NONCE: [u8; 16] = *b"a nonce for once";
const PHRASE: &[u8] = b"nobody between the two ends reads this. ";

/// What a relay has seen.
#[derive(Default)]
struct Seen {
    hellos: Vec<Hello>,
    bytes: Vec<u8>,
}

/// Joins what comes, whatever it says, and keeps all that passes.
fn relay() -> (SocketAddr, Arc<Mutex<Seen>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, seen) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Seen::default())));
    let shared = seen.clone();
    thread::spawn(move || {
        let mut waiting = HashMap::<Part, Vec<TcpStream>>::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut hello = [0; HELLO_BYTES];
            stream.read_exact(&mut hello).unwrap();
            let hello = Hello::decode(&hello).unwrap();
            shared.lock().unwrap().hellos.push(hello);
            match waiting.get_mut(&hello.part.other()).and_then(Vec::pop) {
                None => waiting.entry(hello.part).or_default().push(stream),
                Some(other) => {
                    carry(stream.try_clone().unwrap(), other.try_clone().unwrap(), shared.clone());
                    carry(other, stream, shared.clone());
                }
            }
        }
    });
    (address, seen)
}

fn carry(mut from: TcpStream, mut to: TcpStream, seen: Arc<Mutex<Seen>>) {
    thread::spawn(move || {
        let mut buffer = [0; 16 << 10];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            seen.lock().unwrap().bytes.extend_from_slice(&buffer[..count]);
            if to.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ended = to.shutdown(Shutdown::Write);
    });
}

fn relayed(part: Part, nonce: [u8; 16]) -> DataParams {
    DataParams { nonce: Some(nonce), shield: Shield::Nonce, relay: Some(part), ..extended(3) }
}

fn text() -> Vec<u8> {
    PHRASE.iter().copied().cycle().take(5 << 20).collect()
}

fn holds(all: &[u8], part: &[u8]) -> bool {
    all.windows(part.len()).any(|window| window == part)
}

#[test]
fn both_ends_dial_and_who_is_between_reads_nothing() {
    // Either end may take the listener's part in TLS.
    for part in Part::ALL {
        let (address, seen) = relay();
        let mut node = Node::start();
        node.write("one", &text());
        node.write("two", PHRASE);
        let (source, destination) = (node.attach(), node.attach());
        node.active(source, &[address], &relayed(part, NONCE));
        node.active(destination, &[address], &relayed(part.other(), NONCE));
        for name in ["one", "two"] {
            let to = ReceiveSpec::of(format!("{name}.copy"));
            let (sent, received) = node.copy((source, destination), SendSpec::of(name), to);
            assert!(matches!(sent.done(), Outcome::Transferred { .. }));
            assert!(matches!(received.done(), Outcome::Transferred { .. }));
            assert!(node.read(&format!("{name}.copy")) == node.read(name));
        }
        let seen = seen.lock().unwrap();
        assert_eq!(seen.hellos.len(), 6, "three of each end, for both files");
        assert!(seen.hellos.iter().all(|hello| hello.token == psk::relay_token(&NONCE)));
        assert!(seen.bytes.len() > text().len(), "all of it passed here");
        assert!(!holds(&seen.bytes, PHRASE) && !holds(&seen.bytes, &NONCE));
    }
}

/// A relay that joins a connection with a stranger, or two transfers with each other, gets nothing across.
#[test]
fn who_does_not_know_the_nonce_is_no_other_end() {
    let (address, seen) = relay();
    let mut node = Node::with(|settings| settings.connect_timeout = std::time::Duration::from_secs(5));
    node.write("one", &text());
    let (source, destination) = (node.attach(), node.attach());
    node.active(source, &[address], &relayed(Part::Client, NONCE));
    node.active(destination, &[address], &relayed(Part::Server, [9; 16]));
    let (sent, received) = node.copy((source, destination), SendSpec::of("one"), ReceiveSpec::of("copy"));
    assert!(matches!(sent.outcome, Some(Outcome::Failed(_))), "{sent:?}");
    assert!(matches!(received.outcome, Some(Outcome::Failed(_))), "{received:?}");
    assert_eq!(node.names(), ["one"]);
    assert!(!holds(&seen.lock().unwrap().bytes, PHRASE));
}

#[test]
fn a_relay_is_never_used_in_clear() {
    let mut node = Node::start();
    let mover = node.attach();
    let address: SocketAddr = "127.0.0.1:40000".parse().unwrap();
    let good = relayed(Part::Client, NONCE);
    for params in [
        DataParams { shield: Shield::None, ..good.clone() },
        DataParams { nonce: None, ..good.clone() },
        DataParams { relay: Some(Part::Server), ..stream() },
    ] {
        let failure = node.call(mover, Op::Active { targets: vec![address], params }).failure();
        assert_eq!(failure.kind, FailureKind::BadArgument, "{failure:?}");
    }
    let two = Op::Active { targets: vec![address, address], params: good.clone() };
    assert_eq!(node.call(mover, two).failure().kind, FailureKind::BadArgument);
    let listens = Op::Passive { striped: false, family: None, params: good };
    assert_eq!(node.call(mover, listens).failure().kind, FailureKind::BadArgument);
}

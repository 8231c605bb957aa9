//! Many data connections, slow ones, and those whose other end does nothing.

#![allow(missing_docs, clippy::unwrap_used)]

mod mover_support;

use std::time::Duration;

use mover_support::{Node, extended, pattern, receive, send, stream};
use whimbrel_engine::RangeSet;
use whimbrel_proto::op::{DataParams, ListForm, ListSpec, Op, Outcome, SendSpec, Shield};
use whimbrel_sys::poll::PollFlags;
use whimbrel_transport::mode_e::{self, Amount, Connection, Eof, SendJob};
use whimbrel_transport::secure::{self, Role, TlsChannel};
use whimbrel_transport::tcp::{self, ChannelOptions};
use whimbrel_transport::{Cancel, DataChannel, Flow, Pool, PoolLimits, Progress};
use whimbrel_trust::psk;
use whimbrel_trust::tls::ServerTls;

const NONCE: [u8; 16] = [9; 16];
const LONG: Duration = Duration::from_secs(10);

#[test]
fn as_many_connections_as_may_be_asked_for_carry_a_file() {
    let mut node = Node::start();
    let data = pattern(1 << 20);
    node.write("source", &data);
    let movers = node.pair(&extended(200));
    for _ in 0..2 {
        let (sent, received) = node.copy(movers, send("/source"), receive("/copy"));
        assert_eq!((sent.bytes(), received.bytes()), (1 << 20, 1 << 20));
        assert!(node.read("copy") == data);
    }
}

#[test]
fn a_receiver_that_connects_begins_all_handshakes_before_it_waits_for_any() {
    let mut node = Node::start();
    let cancel = Cancel::new().unwrap();
    let listener = tcp::listen("127.0.0.1:0".parse().unwrap(), None, &ChannelOptions::default()).unwrap();
    let mover = node.attach();
    let params = DataParams { nonce: Some(NONCE), shield: Shield::Nonce, ..extended(4) };
    node.active(mover, &[listener.local_addr()], &params);
    let receiving = node.run(mover, Op::Receive(receive("/copy")));
    let mut channels: Vec<_> = (0..4).map(|_| listener.accept(LONG, &cancel).unwrap()).collect();
    for channel in &channels {
        let begun = cancel.wait_for(channel.as_fd(), PollFlags::IN, Some(LONG), "wait for a handshake").unwrap();
        assert!(begun, "each begins while the others have no answer");
    }
    let tls = ServerTls::agreed(&psk::from_nonce(&NONCE)).unwrap();
    let shielded = |channel| TlsChannel::new(channel, tls.connection().unwrap(), Role::Server, None, false).unwrap();
    let mut channels: Vec<_> = channels.drain(..).map(shielded).collect();
    let mut all: Vec<_> = channels.iter_mut().map(|channel| channel as &mut dyn DataChannel).collect();
    secure::prove_all(&mut all, LONG, &cancel).unwrap();
    let mut connections: Vec<_> = channels.into_iter().map(|channel| Connection::new(Box::new(channel))).collect();
    let (pool, progress) = (Pool::new(PoolLimits::default()).unwrap(), Progress::new());
    let data = pattern(1 << 20);
    let ranges = RangeSet::from(0..1 << 20);
    let job = SendJob {
        source: &data,
        amount: Amount::Ranges(&ranges),
        origin: 0,
        block_size: 100_000,
        nonce: None,
        eof: Eof::Own,
        sendfile: false,
        digests: None,
        flow: Flow::new(&pool, &progress, &cancel),
    };
    mode_e::send(&job, &mut connections).unwrap();
    assert_eq!(node.wait(receiving).bytes(), 1 << 20);
    assert!(node.read("copy") == data);
}

fn names() -> ListSpec {
    ListSpec {
        path: b"/".to_vec(),
        written: Vec::new(),
        form: ListForm::Names,
        facts: None,
        flags: Vec::new(),
        continue_on_error: false,
        follow_links: false,
    }
}

#[test]
fn peers_that_do_not_read_keep_nobody_from_listings_and_checksums() {
    // Two buffers in all.
    let mut node = Node::with(|settings| settings.pool_bytes = 512 << 10);
    node.write("source", &pattern(32 << 20));
    let cancel = Cancel::new().unwrap();
    let deaf = tcp::listen("127.0.0.1:0".parse().unwrap(), None, &ChannelOptions::default()).unwrap();
    let stuck: Vec<_> = (0..2)
        .map(|_| {
            let mover = node.attach();
            node.active(mover, &[deaf.local_addr()], &stream());
            let sending = node.run(mover, Op::Send(SendSpec { ascii: true, ..send("/source") }));
            (sending, deaf.accept(LONG, &cancel).unwrap())
        })
        .collect();
    for _ in 0..20 {
        let mover = node.attach();
        let sum = Op::Checksum {
            algorithm: "MD5".into(),
            offset: 0,
            length: Some(1 << 20),
            path: b"/source".to_vec(),
            marker_interval: None,
        };
        assert!(matches!(node.call(mover, sum).done(), Outcome::Checksum(_)));
        let hears = tcp::listen("127.0.0.1:0".parse().unwrap(), None, &ChannelOptions::default()).unwrap();
        node.active(mover, &[hears.local_addr()], &stream());
        let listing = node.run(mover, Op::SendListing(names()));
        let _reader = hears.accept(LONG, &cancel).unwrap();
        node.wait(listing).done();
    }
    for (sending, _) in stuck {
        node.abort(sending);
        node.wait(sending).failure();
    }
}

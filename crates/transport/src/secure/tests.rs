use std::io::{ErrorKind, IoSlice};
use std::sync::Arc;
use std::time::Duration;

use openssl::ssl::{Ssl, SslRef, SslVersion};
use whimbrel_engine::{Fault, FaultCode};
use whimbrel_proto::timeval::Timestamp;
use whimbrel_proto::x509::Policy;
use whimbrel_sys::poll::{self, PollFd, PollFlags};
use whimbrel_trust::gsi::{Anchors, Expected, GsiJudge, Trusted};
use whimbrel_trust::make::{self, KeyKind, Life, ProxyKind, Purpose};
use whimbrel_trust::tls::{ClientTls, ServerTls};
use whimbrel_trust::{OwnChain, TrustFault, psk};

use super::*;
use crate::channel::DataChannel;
use crate::contract;
use crate::faulty::{FaultyChannel, Mishap};
use crate::local;
use crate::mode_e::tests::{End, MIB, Memory, all, data, transfer};
use crate::mode_e::{self, Admission, Connection};
use crate::mode_s::{self, Representation, StreamReceive, StreamSend};
use crate::tcp::{ChannelOptions, ConnectOptions, Listener, TcpChannel, connect, listen};

pub(super) const NONCE: [u8; 16] = *b"0123456789abcdef";
const LONG: Duration = Duration::from_secs(10);

pub(super) fn server(inner: Box<dyn DataChannel>, bare_close_ends: bool) -> TlsChannel {
    let ssl = ServerTls::agreed(&psk::from_nonce(&NONCE)).expect("context").connection().expect("connection");
    TlsChannel::new(inner, ssl, Role::Server, None, bare_close_ends).expect("channel")
}

pub(super) fn client(inner: Box<dyn DataChannel>, nonce: &[u8; 16]) -> TlsChannel {
    let ssl = ClientTls::agreed(&psk::from_nonce(nonce)).expect("context").connection("").expect("connection");
    TlsChannel::new(inner, ssl, Role::Client, None, false).expect("channel")
}

fn local_pair() -> (TlsChannel, TlsChannel) {
    let (one, other) = local::pair().expect("pair");
    (client(Box::new(one), &NONCE), server(Box::new(other), false))
}

fn listener() -> Listener {
    listen("127.0.0.1:0".parse().expect("address"), None, &ChannelOptions::default()).expect("listen")
}

fn tcp_pair() -> (TlsChannel, TlsChannel) {
    let (listener, end) = (listener(), End::new(1, 1));
    let one = connect(listener.local_addr(), &ConnectOptions::default(), &end.cancel).expect("connect");
    let other = listener.accept(LONG, &end.cancel).expect("accept");
    (client(Box::new(one), &NONCE), server(other, false))
}

/// Carries both handshakes to their ends.
pub(super) fn met<C: DataChannel + 'static>(
    (mut one, mut other): (C, C),
) -> (Box<dyn DataChannel>, Box<dyn DataChannel>) {
    loop {
        let proven = [one.prove(), other.prove()];
        if proven.iter().all(Result::is_ok) {
            break;
        }
        for waiting in proven.into_iter().filter_map(Result::err) {
            assert_eq!(waiting.kind(), ErrorKind::WouldBlock, "{waiting}");
        }
    }
    (Box::new(one), Box::new(other))
}

#[test]
fn tls_channels_keep_the_contract_of_all_channels() {
    contract::run(&mut || met(local_pair()));
    contract::run(&mut || met(tcp_pair()));
}

fn clear_pair() -> (ClearChannel, ClearChannel) {
    let key = psk::from_nonce(&NONCE);
    let (one, other) = local::pair().expect("pair");
    let ssl = ClientTls::agreed(&key).expect("context").connection("").expect("connection");
    let one = ClearChannel::new(Box::new(one), ssl, Role::Client, None).expect("channel");
    let ssl = ServerTls::agreed(&key).expect("context").connection().expect("connection");
    (one, ClearChannel::new(Box::new(other), ssl, Role::Server, None).expect("channel"))
}

#[test]
fn channels_that_turn_clear_keep_the_contract_of_all_channels() {
    contract::run(&mut || met(clear_pair()));
}

/// An authority and a user of its.
pub(super) fn grid() -> (OwnChain, OwnChain) {
    let life = Life::of(Timestamp::from_secs(now()), 3600);
    let key = make::key(KeyKind::P256).expect("key");
    let certificate = make::authority("/O=Grid/CN=CA", &key, None, life, None).expect("authority");
    let ca = OwnChain { certificate, key, chain: Vec::new() };
    let alice = make::issue("/O=Grid/CN=alice", KeyKind::P256, &Purpose::Person, life, &ca).expect("person");
    (ca, alice)
}

/// Both ends of GSI's data connections: one user's certificate at each.
pub(super) fn gsi_ends() -> (ClientTls, ServerTls) {
    let (ca, alice) = grid();
    gsi_ends_of(ca, &alice)
}

pub(super) fn gsi_ends_of(ca: OwnChain, alice: &OwnChain) -> (ClientTls, ServerTls) {
    let life = Life::of(Timestamp::from_secs(now()), 3600);
    let proxy = make::own_proxy(alice, KeyKind::P256, &ProxyKind::rfc(Policy::Limited), life).expect("proxy");
    let anchors = Anchors::default().and(vec![ca.certificate]).expect("anchors");
    let expected = Expected::Subject("/O=Grid/CN=alice".to_owned());
    let judge = Arc::new(GsiJudge::new(Trusted::Fixed(Arc::new(anchors)), expected));
    (ClientTls::new(judge.clone(), Some(&proxy)).expect("client"), ServerTls::gsi(alice, judge).expect("server"))
}

fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() as i64)
}

pub(super) fn modern(mut ssl: Ssl, version: SslVersion) -> Ssl {
    ssl.set_max_proto_version(Some(version)).expect("version");
    ssl
}

#[test]
fn both_kinds_of_gsi_channels_keep_the_contract_of_all_channels() {
    let (client, server) = gsi_ends();
    for version in [SslVersion::TLS1_2, SslVersion::TLS1_3] {
        let ends = || {
            let (one, other) = local::pair().expect("pair");
            let near = modern(client.connection("").expect("connection"), version);
            ((one, near), (other, server.connection().expect("connection")))
        };
        contract::run(&mut || {
            let ((one, near), (other, far)) = ends();
            let one = ClearChannel::new(Box::new(one), near, Role::Client, None).expect("channel");
            met((one, ClearChannel::new(Box::new(other), far, Role::Server, None).expect("channel")))
        });
        contract::run(&mut || {
            let ((one, near), (other, far)) = ends();
            let one = TlsChannel::new(Box::new(one), near, Role::Client, None, true).expect("channel");
            met((one, TlsChannel::new(Box::new(other), far, Role::Server, None, true).expect("channel")))
        });
    }
}

#[test]
fn many_handshakes_run_at_the_same_time_and_the_deaf_one_is_named() {
    let (listener, end) = (listener(), End::new(1, 1));
    let at = listener.local_addr();
    let dialled = |_| {
        let channel = connect(at, &ConnectOptions::default(), &end.cancel).expect("connect");
        client(Box::new(channel), &NONCE)
    };
    let mut ours: Vec<TlsChannel> = (0..5).map(dialled).collect();
    let mut all: Vec<&mut dyn DataChannel> = ours.iter_mut().map(|channel| channel as &mut dyn DataChannel).collect();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let accepted = |_| server(listener.accept(LONG, &end.cancel).expect("accept"), false);
            let mut theirs: Vec<TlsChannel> = (0..5).map(accepted).collect();
            // Nobody is served before all have called.
            for channel in &mut theirs {
                prove(channel, LONG, &end.cancel).expect("proven");
            }
        });
        prove_all(&mut all, LONG, &end.cancel).expect("all are proven");
    });
    let mut deaf = dialled(0);
    let fault = prove(&mut deaf, Duration::from_millis(20), &end.cancel).expect_err("nobody answers");
    assert_eq!((fault.code, fault.subject), (FaultCode::TimedOut, at.to_string()));
}

#[test]
fn not_a_byte_is_lost_where_a_channel_turns_clear() {
    let (out, inn) = (End::new(4, 2), End::new(4, 2));
    let (source, wanted, sink) = (data(MIB), all(MIB), Memory::default());
    let make = |_| {
        let (one, other) = clear_pair();
        (Connection::new(Box::new(one)), Connection::new(Box::new(other)))
    };
    let (mut from, mut to) = (0..3).map(make).unzip();
    let (sent, received) = transfer(&out.send_job(&source, &wanted), &inn.receive_job(&sink), &mut from, &mut to);
    sent.expect("sent");
    received.expect("received");
    assert!(sink.0.into_inner().expect("lock") == source);
}

#[test]
fn plain_bytes_may_stand_right_behind_the_last_protected_one() {
    let (one, mut tap) = local::pair().expect("pair");
    let (mut relay, other) = local::pair().expect("pair");
    let key = psk::from_nonce(&NONCE);
    let ssl = ClientTls::agreed(&key).expect("context").connection("").expect("connection");
    let mut from = ClearChannel::new(Box::new(one), ssl, Role::Client, None).expect("channel");
    let ssl = ServerTls::agreed(&key).expect("context").connection().expect("connection");
    let mut to = ClearChannel::new(Box::new(other), ssl, Role::Server, None).expect("channel");
    let mut got = [0; 16];
    let mut buffer = vec![0; 4096];
    let received = loop {
        // What goes to the receiver is held back and delivered in one piece.
        let sent = from.send_vectored(&[IoSlice::new(b"plain")], false).is_ok();
        if let Ok(count) = tap.recv(&mut buffer) {
            relay.send_vectored(&[IoSlice::new(&buffer[..count])], false).expect("relayed");
        }
        match to.recv(&mut got) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => assert!(!sent, "nothing arrived"),
            other => break other.expect("received"),
        }
        if let Ok(count) = relay.recv(&mut buffer) {
            tap.send_vectored(&[IoSlice::new(&buffer[..count])], false).expect("relayed");
        }
    };
    assert_eq!(&got[..received], b"plain");
}

fn connections(count: usize) -> (Vec<Connection>, Vec<Connection>) {
    let make = |_| {
        let (one, other) = local_pair();
        (Connection::new(Box::new(one)), Connection::new(Box::new(other)))
    };
    (0..count).map(make).unzip()
}

#[test]
fn files_follow_each_other_over_protected_connections() {
    for (count, threads) in [(1, 1), (3, 2), (8, 4)] {
        let (out, inn) = (End::new(8, threads), End::new(8, threads));
        let (mut from, mut to) = connections(count);
        for size in [20 * MIB + 13, 0, 1, 70_000] {
            let (source, wanted, sink) = (data(size), all(size), Memory::default());
            let (sent, received) =
                transfer(&out.send_job(&source, &wanted), &inn.receive_job(&sink), &mut from, &mut to);
            assert_eq!(sent.expect("sent").bytes, size as u64);
            received.expect("received");
            assert!(sink.0.into_inner().expect("lock") == source, "{size} bytes over {count}");
            assert_eq!((from.len(), to.len()), (count, count));
        }
    }
}

#[test]
fn what_travels_cannot_be_read_on_the_way() {
    let (one, mut tap) = local::pair().expect("pair");
    let (mut sender, _unused) = (client(Box::new(one), &NONCE), ());
    let hello =
        sender.send_vectored(&[IoSlice::new(b"a secret that nobody may read")], false).expect_err("a handshake");
    assert_eq!(hello.kind(), ErrorKind::WouldBlock);
    let mut seen = vec![0; 4096];
    let count = tap.recv(&mut seen).expect("the first message");
    assert!(!seen[..count].windows(6).any(|window| window == b"secret"));
}

#[test]
fn strangers_are_turned_away_and_the_transfer_goes_on() {
    let mut listener = listener();
    listener.set_shielding(Arc::new(|channel| Ok(Box::new(server(Box::new(channel), false)))));
    let (out, inn) = (End::new(4, 2), End::new(4, 2));
    let dial = || connect(listener.local_addr(), &ConnectOptions::default(), &out.cancel).expect("connect");
    let (source, wanted, sink) = (data(20 * MIB), all(20 * MIB), Memory::default());
    let mut receive_job = inn.receive_job(&sink);
    receive_job.admission.listener = Some(&listener);

    let _quiet = dial();
    let mut rude = dial();
    rude.send_vectored(&[IoSlice::new(b"GET / HTTP/1.1\r\n\r\n")], false).expect("sent");
    let mut guessing = client(Box::new(dial()), b"0123456789abcdeF");
    assert_eq!(guessing.recv(&mut [0; 1]).expect_err("a handshake").kind(), ErrorKind::WouldBlock);
    let mut leaving = client(Box::new(dial()), &NONCE);
    assert_eq!(leaving.recv(&mut [0; 1]).expect_err("a handshake").kind(), ErrorKind::WouldBlock);
    drop(leaving);

    let own = || Connection::new(Box::new(client(Box::new(dial()), &NONCE)));
    let (mut from, mut to) = ((0..3).map(|_| own()).collect(), Vec::new());
    let (sent, received) = transfer(&out.send_job(&source, &wanted), &receive_job, &mut from, &mut to);
    sent.expect("sent");
    let report = received.expect("received");
    assert_eq!(report.eods, 3);
    assert!((2..=3).contains(&report.rejected), "{report:?}: who is gone early is looked at late");
    assert!(sink.0.into_inner().expect("lock") == source);
}

#[test]
fn strangers_who_end_no_handshake_take_no_place_of_those_who_do() {
    let mut listener = listener();
    listener.set_shielding(Arc::new(|channel| Ok(Box::new(server(Box::new(channel), false)))));
    let (out, inn) = (End::new(8, 1), End::new(8, 1));
    let dial = || connect(listener.local_addr(), &ConnectOptions::default(), &out.cancel).expect("connect");
    let (source, wanted, sink) = (data(MIB), all(MIB), Memory::default());
    let mut receive_job = inn.receive_job(&sink);
    let timeout = Duration::from_secs(600);
    receive_job.admission =
        Admission { listener: Some(&listener), max_connections: 3, timeout, ..Admission::default() };

    // Three must go before anybody else can come, long before a handshake would have to be over.
    let _silent: Vec<_> = (0..5).map(|_| dial()).collect();
    let own = || Connection::new(Box::new(client(Box::new(dial()), &NONCE)));
    let (mut from, mut to) = ((0..3).map(|_| own()).collect(), Vec::new());
    let (sent, received) = transfer(&out.send_job(&source, &wanted), &receive_job, &mut from, &mut to);
    sent.expect("sent");
    let received = received.expect("received");
    assert!((received.eods, to.len()) == (3, 3) && received.rejected >= 3, "{received:?}");
    assert!(sink.0.into_inner().expect("lock") == source);
}

/// Both ends of a transfer of 300 kB whose carrier suffers `mishap`.
fn suffer(mishap: Mishap) -> (Result<mode_e::SendReport, Fault>, Result<mode_e::ReceiveReport, Fault>, bool) {
    let (out, inn) = (End::new(2, 1), End::new(2, 1));
    let (one, other) = local::pair().expect("pair");
    let one = FaultyChannel::new(Box::new(one), mishap).expect("wrap");
    let mut from = vec![Connection::new(Box::new(client(Box::new(one), &NONCE)))];
    let mut to = vec![Connection::new(Box::new(server(Box::new(other), false)))];
    let (source, wanted, sink) = (data(300_000), all(300_000), Memory::default());
    let (sent, received) = std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let sent = mode_e::send(&out.send_job(&source, &wanted), &mut from);
            from.clear();
            sent
        });
        let received = mode_e::receive(&inn.receive_job(&sink), &mut to);
        to.clear();
        (sender.join().expect("no panic"), received)
    });
    (sent, received, sink.0.into_inner().expect("lock") == source)
}

#[test]
fn a_cut_in_any_place_is_a_fault_never_a_short_file() {
    for cut in [0, 1, 100, 250, 400, 17_000, 150_000, 299_000] {
        let (sent, received, whole) = suffer(Mishap::CutAfter(cut));
        assert!(sent.is_err() && received.is_err() && !whole, "cut after {cut}: {sent:?} {received:?}");
    }
}

#[test]
fn a_changed_bit_in_any_place_is_a_fault_never_a_wrong_file() {
    for place in [3, 60, 130, 200, 5000, 150_000, 299_000] {
        let (out, inn) = (End::new(2, 1), End::new(2, 1));
        let (one, other) = local::pair().expect("pair");
        let other = FaultyChannel::new(Box::new(other), Mishap::FlipBitOf(place)).expect("wrap");
        let mut from = vec![Connection::new(Box::new(client(Box::new(one), &NONCE)))];
        let mut to = vec![Connection::new(Box::new(server(Box::new(other), false)))];
        let (source, wanted, sink) = (data(300_000), all(300_000), Memory::default());
        let received = std::thread::scope(|scope| {
            scope.spawn(|| {
                let _ends_as_it_may = mode_e::send(&out.send_job(&source, &wanted), &mut from);
                from.clear();
            });
            let received = mode_e::receive(&inn.receive_job(&sink), &mut to);
            to.clear();
            received
        });
        received.expect_err("a changed bit was not noticed");
        let got = sink.0.into_inner().expect("lock");
        assert!(
            source.starts_with(&got) && got.len() < source.len(),
            "bit {place}: only bytes before the change arrive"
        );
    }
}

fn stream_pair(bare_close_ends: bool) -> (TlsChannel, TlsChannel) {
    let (one, other) = local::pair().expect("pair");
    (client(Box::new(one), &NONCE), server(Box::new(other), bare_close_ends))
}

#[test]
fn a_stream_ends_with_its_farewell() {
    for size in [0, 1, 16 << 10, 3 * MIB + 5] {
        let (out, inn, source, sink) = (End::new(2, 1), End::new(2, 1), data(size), Memory::default());
        let (mut from, mut to) = stream_pair(false);
        let send = StreamSend {
            source: &source,
            offset: 0,
            length: Some(size as u64),
            representation: Representation::Image,
            sendfile: true,
            digests: None,
            flow: out.flow(),
        };
        let receive = StreamReceive {
            sink: &sink,
            offset: 0,
            limit: None,
            representation: Representation::Image,
            flow: inn.flow(),
        };
        let received = std::thread::scope(|scope| {
            scope.spawn(|| mode_s::send(&send, &mut from).expect("sent"));
            mode_s::receive(&receive, &mut to)
        });
        assert_eq!(received.expect("received"), size as u64);
        assert!(sink.0.into_inner().expect("lock") == source);
    }
}

/// What the receiver of a stream says whose sender just closes.
fn closed_without_farewell(bare_close_ends: bool) -> std::io::Result<usize> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("listen");
    let one = std::net::TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
    let (twin, other) = (one.try_clone().expect("twin"), listener.accept().expect("accept").0);
    let channel = |stream| Box::new(TcpChannel::new(stream).expect("channel"));
    let (mut from, mut to) = met((client(channel(one), &NONCE), server(channel(other), bare_close_ends)));
    from.send_vectored(&[IoSlice::new(b"all")], false).expect("sent");
    twin.shutdown(std::net::Shutdown::Write).expect("shut down");
    let mut got = [0; 8];
    assert_eq!(receive(to.as_mut(), &mut got)?, 3);
    receive(to.as_mut(), &mut got)
}

/// Python's `unwrap` and RFC 8446 §6.1: the peer closes its half of TLS only, and waits for our farewell.
#[test]
fn a_farewell_right_behind_the_last_bytes_is_heard_though_the_connection_stays() {
    let ssl = || ClientTls::agreed(&psk::from_nonce(&NONCE)).expect("context").connection("").expect("connection");
    for by_library in [false, true] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("listen");
        let one = std::net::TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
        let (_open, other) = (one.try_clone().expect("twin"), listener.accept().expect("accept").0);
        let channel = |stream| Box::new(TcpChannel::new(stream).expect("channel"));
        let from = match by_library {
            true => TlsChannel::by_library(channel(one), ssl(), Role::Client, None, false).expect("channel"),
            false => client(channel(one), &NONCE),
        };
        let (mut from, mut to) = met((from, server(channel(other), false)));
        from.send_vectored(&[IoSlice::new(b"all")], false).expect("sent");
        drop(from);
        let mut got = [0; 8];
        assert_eq!(receive(to.as_mut(), &mut got).expect("bytes"), 3);
        // As loops do: who has nothing more inside is asked again when something comes.
        if !to.has_buffered() {
            let mut fds = [PollFd::from_borrowed_fd(to.as_fd(), PollFlags::IN)];
            assert_eq!(poll::wait(&mut fds, Some(LONG)).expect("poll"), 1, "nobody hears the farewell");
        }
        assert_eq!(receive(to.as_mut(), &mut got).expect("an end"), 0);
    }
}

pub(super) fn receive(channel: &mut dyn DataChannel, buffer: &mut [u8]) -> std::io::Result<usize> {
    loop {
        match channel.recv(buffer) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let flags = channel.poll_flags(PollFlags::IN);
                let mut fds = [PollFd::from_borrowed_fd(channel.as_fd(), flags)];
                assert_eq!(poll::wait(&mut fds, Some(LONG)).expect("poll"), 1);
            }
            other => return other,
        }
    }
}

#[test]
fn a_bare_close_is_an_end_only_where_peers_know_no_other() {
    assert_eq!(closed_without_farewell(true).expect("an end"), 0);
    let fault = Fault::from_io(closed_without_farewell(false).expect_err("no end"), "receive");
    assert_eq!(fault.code, FaultCode::ConnectionLost);
    assert!(fault.detail.contains("farewell"), "{fault}");
}

#[test]
fn what_the_check_refuses_is_no_channel() {
    let (one, other) = local::pair().expect("pair");
    let refuse: Arc<Check> =
        Arc::new(|_: &SslRef| Err(TrustFault::new(FaultCode::PeerIdentity, "another one was expected")));
    let ssl = ServerTls::agreed(&psk::from_nonce(&NONCE)).expect("context").connection().expect("connection");
    let mut to = TlsChannel::new(Box::new(other), ssl, Role::Server, Some(refuse), false).expect("channel");
    let mut from = client(Box::new(one), &NONCE);
    let refused = loop {
        let _ = from.recv(&mut [0; 1]);
        match to.recv(&mut [0; 1]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            other => break other.expect_err("refused"),
        }
    };
    assert_eq!(Fault::from_io(refused, "receive").code, FaultCode::PeerIdentity);
    assert!(!to.is_proven());
}

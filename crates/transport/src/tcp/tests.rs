use super::*;
use crate::cancel::Cancel;
use whimbrel_engine::FaultCode;

fn cancel() -> Cancel {
    Cancel::new().expect("cancel")
}

fn local() -> Listener {
    listen("127.0.0.1:0".parse().expect("address"), None, &ChannelOptions::default()).expect("listen")
}

/// A range whose only port is taken by the returned listener.
fn taken_range() -> (Listener, PortRange) {
    let taken = local();
    let port = taken.local_addr().port();
    (taken, PortRange::new(port, port).expect("range"))
}

const SECOND: Duration = Duration::from_secs(10);

#[test]
fn a_channel_carries_bytes_and_knows_both_ends() {
    let listener = local();
    let options = ConnectOptions::default();
    let mut client = connect(listener.local_addr(), &options, &cancel()).expect("connect");
    let server = listener.accept(SECOND, &cancel()).expect("accept");
    assert_eq!(client.peer_addr(), Some(listener.local_addr()));
    assert_eq!(server.peer_addr(), client.local_addr());
    assert_eq!(client.send_vectored(&[IoSlice::new(b"hello")], false).expect("send"), 5);
    assert_eq!(client.stats().bytes_sent, 5);
}

#[test]
fn a_watch_counts_from_its_beginning_and_neither_keeps_the_channel_open_nor_outlives_it() {
    let listener = local();
    let mut client = connect(listener.local_addr(), &ConnectOptions::default(), &cancel()).expect("connect");
    let mut server = listener.accept(SECOND, &cancel()).expect("accept");
    client.send_vectored(&[IoSlice::new(b"before")], false).expect("send");
    let watch = client.watch().expect("TCP can be watched");
    client.send_vectored(&[IoSlice::new(b"hello")], false).expect("send");
    let (bytes, stats) = watch.look().expect("open");
    assert_eq!((bytes, stats.bytes_sent), (5, 11));
    assert!(stats.window > 0 && stats.rtt > Duration::ZERO, "{stats:?}");
    assert_eq!(watch.peer(), Some(listener.local_addr()));
    assert_eq!((watch.untold(3), client.watched().expect("the same").untold(4), watch.untold(4)), (3, 1, 0));
    drop(client);
    assert!(!watch.is_open() && watch.look().is_none());
    let mut got = [0; 20];
    assert_eq!(server.recv(&mut got).expect("what was sent"), 11);
    assert_eq!(server.recv(&mut got).expect("the end"), 0);
}

#[test]
fn a_dual_stack_listener_shows_ipv4_peers_as_ipv4() {
    let options = ChannelOptions::default();
    let listener = listen("[::]:0".parse().expect("address"), None, &options).expect("listen");
    let port = listener.local_addr().port();
    for host in ["127.0.0.1", "::1"] {
        let addr = SocketAddr::new(host.parse().expect("host"), port);
        let _client = connect(addr, &ConnectOptions::default(), &cancel()).expect("connect");
        let server = listener.accept(SECOND, &cancel()).expect("accept");
        assert_eq!(server.peer_addr().expect("peer").ip(), addr.ip());
    }
}

#[test]
fn a_full_listening_range_is_reported_as_such() {
    let (_taken, range) = taken_range();
    let fault =
        listen("127.0.0.1:0".parse().expect("address"), Some(range), &ChannelOptions::default()).expect_err("taken");
    assert_eq!(fault.code, FaultCode::PortRangeExhausted);
}

#[test]
fn a_full_source_range_is_reported_as_such() {
    let (_taken, range) = taken_range();
    let options = ConnectOptions {
        source_address: Some("127.0.0.1".parse().expect("address")),
        source_ports: Some(range),
        ..ConnectOptions::default()
    };
    let fault = connect(local().local_addr(), &options, &cancel()).expect_err("taken");
    assert_eq!(fault.code, FaultCode::PortRangeExhausted);
}

#[test]
fn connections_come_from_the_source_range() {
    let (taken, range) = taken_range();
    drop(taken);
    let listener = local();
    let options = ConnectOptions { source_ports: Some(range), ..ConnectOptions::default() };
    let client = connect(listener.local_addr(), &options, &cancel()).expect("connect");
    assert_eq!(client.local_addr().expect("local").port(), range.min());
}

#[test]
fn refused_and_silent_are_told_apart() {
    let addr = local().local_addr();
    let fault = connect(addr, &ConnectOptions::default(), &cancel()).expect_err("closed");
    assert_eq!(fault.code, FaultCode::ConnectionRefused);
    let quiet = local();
    let brief = Duration::from_millis(10);
    let fault = quiet.accept(brief, &cancel()).expect_err("nobody");
    assert_eq!(fault.code, FaultCode::TimedOut);
}

#[test]
fn a_waiting_accept_obeys_cancellation() {
    let (listener, token) = (local(), cancel());
    let other = token.clone();
    let waiter = std::thread::spawn(move || listener.accept(SECOND * 360, &other).map(drop));
    token.cancel();
    let fault = waiter.join().expect("no panic").expect_err("cancelled");
    assert_eq!(fault.code, FaultCode::Cancelled);
}

#[test]
fn a_refused_address_is_dropped_and_the_next_is_served() {
    let mut listener = local();
    let first = connect(listener.local_addr(), &ConnectOptions::default(), &cancel()).expect("connect");
    let second = connect(listener.local_addr(), &ConnectOptions::default(), &cancel()).expect("connect");
    let stranger = first.local_addr();
    listener.set_filter(Arc::new(move |peer| Some(peer) != stranger));
    let served = listener.accept(SECOND, &cancel()).expect("accept");
    assert_eq!(served.peer_addr(), second.local_addr());
    assert_eq!(listener.rejected(), 1);
}

#[test]
fn options_reach_both_ends() {
    let options = ChannelOptions { send_buffer: Some(65_536), recv_buffer: Some(65_536), ..ChannelOptions::default() };
    let addr = "127.0.0.1:0".parse().expect("address");
    let listener = listen(addr, None, &options).expect("listen");
    let connect_options = ConnectOptions { channel: options, ..ConnectOptions::default() };
    let client = connect(listener.local_addr(), &connect_options, &cancel()).expect("connect");
    let server = listener.accept(SECOND, &cancel()).expect("accept");
    for stream in [client.as_fd(), server.as_fd()] {
        assert!(socket2::SockRef::from(&stream).tcp_nodelay().expect("nodelay"));
        let bytes = socket::recv_buffer(stream).expect("buffer");
        assert!((65_536..=262_144).contains(&bytes), "{bytes}");
        assert!(socket::rto_max(stream).expect("asked").is_none_or(|longest| longest == LONGEST_RTO));
    }
}

#[test]
fn keeps_the_contract() {
    let listener = local();
    crate::contract::run(&mut || {
        let options = ConnectOptions::default();
        let one = connect(listener.local_addr(), &options, &cancel()).expect("connect");
        let other = listener.accept(SECOND, &cancel()).expect("accept");
        (Box::new(one), other)
    });
}

#[test]
fn what_is_dialled_stands_before_it_is_asked_for_and_its_refusal_waits() {
    let listener = local();
    let dialling = dial(listener.local_addr(), &ConnectOptions::default()).expect("dial");
    // The other end has it already.
    let served = listener.accept(SECOND, &cancel()).expect("accept");
    let channel = dialling.finish(&cancel()).expect("connect");
    assert_eq!(served.peer_addr(), channel.local_addr());
    let closed = local().local_addr();
    let refused = dial(closed, &ConnectOptions::default()).and_then(|dialling| dialling.finish(&cancel()));
    assert_eq!(refused.expect_err("closed").code, FaultCode::ConnectionRefused);
}

#[test]
fn a_listener_that_found_no_room_makes_a_pause_and_goes_on() {
    let listener = local();
    let _waits = connect(listener.local_addr(), &ConnectOptions::default(), &cancel()).expect("connect");
    let exhausted = |errno: rustix::io::Errno| super::listen::is_exhausted(&errno.into());
    assert!(exhausted(rustix::io::Errno::MFILE) && !exhausted(rustix::io::Errno::INVAL));
    listener.make_pause(&rustix::io::Errno::MFILE.into());
    assert!(listener.pause().is_some() && listener.try_accept().expect("no fault").is_none());
    listener.accept(SECOND, &cancel()).expect("once the pause is over");
    assert!(listener.pause().is_none());
}

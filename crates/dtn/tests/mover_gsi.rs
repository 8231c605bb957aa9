//! Data connections that prove by certificates whose they are (DCAU, DCSC), between movers on loopback.

#![allow(missing_docs, clippy::unwrap_used)]

mod mover_support;

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mover_support::{Node, extended, identity, pattern, receive, send, stream};
use whimbrel_dtn::mover::message::{DataPeers, Identity, MoverId, Secrets};
use whimbrel_proto::command::Secret;
use whimbrel_proto::op::{DataParams, FailureKind, GsiPeer, Level, Mode, Op, Outcome, ReceiveSpec, Shield};
use whimbrel_proto::timeval::Timestamp;
use whimbrel_proto::x509::Policy;
use whimbrel_testkit::pki::{Member, Pki};
use whimbrel_trust::OwnChain;
use whimbrel_trust::make::{self, KeyKind, Life, ProxyKind, Purpose};

const LEVELS: [Level; 2] = [Level::Clear, Level::Private];

struct Grid {
    pki: Pki,
    alice: Member,
    bob: Member,
}

/// Keys take their time.
static GRID: LazyLock<Grid> = LazyLock::new(|| {
    let pki = Pki::new().unwrap();
    let proxy = |name: &str| {
        let person = pki.person(name).unwrap();
        let kind = ProxyKind::rfc(Policy::Limited);
        (pki.proxy(&person, &kind, &format!("{name}-proxy")).unwrap(), person)
    };
    let ((alice, _), (bob, _)) = (proxy("alice"), proxy("bob"));
    Grid { pki, alice, bob }
});

fn node(change: impl FnOnce(&mut whimbrel_dtn::mover::message::DataSettings)) -> Node {
    Node::with(|settings| {
        settings.authorities = Some(GRID.pki.certificates().as_os_str().as_bytes().to_vec());
        change(settings);
    })
}

fn pem(own: &OwnChain) -> Secret {
    Secret(make::to_pem(own).unwrap().to_vec())
}

/// A login whose control client is elsewhere: only certificates say who the other end of a data connection is.
fn login(own: Option<&OwnChain>) -> Identity {
    Identity {
        control_peer: Some("192.0.2.7:40000".parse().unwrap()),
        secrets: Secrets { credential: own.map(pem), ..Secrets::default() },
        ..identity(DataPeers::ControlPeer)
    }
}

fn gsi(params: DataParams, peer: GsiPeer, level: Level) -> DataParams {
    DataParams { shield: Shield::Gsi { peer, level }, ..params }
}

fn subject(name: &str) -> GsiPeer {
    GsiPeer::Subject(format!("/O=Grid/CN={name}"))
}

fn passive(params: &DataParams) -> Op {
    Op::Passive { striped: false, family: None, params: params.clone() }
}

fn life(seconds: i64) -> Life {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    Life::of(Timestamp::from_secs(now), seconds)
}

#[test]
fn files_of_one_user_arrive_in_every_mode_at_every_level_over_the_same_connections() {
    let mut node = node(|_| {});
    let data = pattern(700_000);
    node.write("source", &data);
    for params in [stream(), extended(1), extended(4)] {
        for (level, peer) in LEVELS.into_iter().flat_map(|level| [(level, GsiPeer::Own), (level, subject("alice"))]) {
            let params = gsi(params.clone(), peer, level);
            let [source, destination] = [(); 2].map(|()| node.attach_as(login(Some(&GRID.alice.own))));
            node.link(source, destination, &params);
            for round in 0..if params.mode == Mode::Stream { 1 } else { 3 } {
                let (sent, received) = node.copy((source, destination), send("/source"), receive("/copy"));
                assert_eq!(sent.reused(), Some(round > 0));
                assert_eq!((sent.bytes(), received.bytes()), (700_000, 700_000), "{params:?}");
                assert!(node.read("copy") == data, "{params:?}");
            }
        }
    }
}

#[test]
fn a_sender_may_listen_and_a_receiver_connect() {
    let mut node = node(|_| {});
    let data = pattern(300_000);
    node.write("source", &data);
    for (params, level) in [stream(), extended(3)].into_iter().flat_map(|params| LEVELS.map(|l| (params.clone(), l))) {
        for nonce in [None, Some([7; 16]).filter(|_| params.mode == Mode::Extended)] {
            let params = gsi(DataParams { nonce, ..params.clone() }, GsiPeer::Own, level);
            let [source, destination] = [(); 2].map(|()| node.attach_as(login(Some(&GRID.alice.own))));
            node.link(destination, source, &params);
            let (sent, received) = node.copy((source, destination), send("/source"), receive("/copy"));
            assert_eq!((sent.bytes(), received.bytes()), (300_000, 300_000), "{params:?}");
            assert!(node.read("copy") == data, "{params:?}");
        }
    }
}

#[test]
fn two_users_meet_where_each_names_the_other() {
    let mut node = node(|_| {});
    node.write("source", b"from alice");
    let (alice, bob) = (node.attach_as(login(Some(&GRID.alice.own))), node.attach_as(login(Some(&GRID.bob.own))));
    let at = node.passive(bob, &gsi(extended(2), subject("alice"), Level::Private));
    node.active(alice, &[at], &gsi(extended(2), subject("bob"), Level::Private));
    let (sent, received) = node.copy((alice, bob), send("/source"), receive("/copy"));
    assert_eq!((sent.bytes(), received.bytes()), (10, 10));
}

#[test]
fn strangers_and_other_users_are_turned_away_and_the_right_one_goes_through() {
    for (params, level) in [stream(), extended(3)].into_iter().flat_map(|params| LEVELS.map(|l| (params.clone(), l))) {
        let mut node = node(|_| {});
        let data = pattern(400_000);
        node.write("source", &data);
        std::fs::File::create(node.root.path().join("large")).unwrap().set_len(64 << 20).unwrap();
        let [destination, source] = [(); 2].map(|()| node.attach_as(login(Some(&GRID.alice.own))));
        let thief = node.attach_as(login(Some(&GRID.bob.own)));
        let own = gsi(params.clone(), GsiPeer::Own, level);
        let at = node.passive(destination, &own);
        let receiving =
            node.run(destination, Op::Receive(ReceiveSpec { expected_size: Some(400_000), ..receive("/copy") }));
        let mut clear = TcpStream::connect(at).unwrap();
        clear.write_all(b"GET / HTTP/1.1\r\nHost: bytes that are no TLS\r\n\r\n").unwrap();
        drop(TcpStream::connect(at).unwrap());
        node.active(thief, &[at], &gsi(params.clone(), subject("alice"), level));
        // Too much for the buffers on the way: in TLS 1.3 the caller is told last.
        let stolen = node.call(thief, Op::Send(send("/large"))).fails_with(FailureKind::NotProtected);
        assert!(stolen.text.contains("does not accept our certificate"), "{stolen:?}");
        node.active(source, &[at], &own);
        assert_eq!(node.call(source, Op::Send(send("/source"))).bytes(), 400_000);
        assert_eq!(node.wait(receiving).bytes(), 400_000);
        assert!(node.read("copy") == data, "{params:?}");
    }
}

#[test]
fn who_connects_to_another_user_is_told_who_that_is_and_sends_nothing() {
    for params in [stream(), extended(2)] {
        let mut node = node(|settings| settings.connect_timeout = Duration::from_secs(2));
        node.write("source", b"secret");
        let (alice, thief) = (node.attach_as(login(Some(&GRID.alice.own))), node.attach_as(login(Some(&GRID.bob.own))));
        let at = node.passive(thief, &gsi(params.clone(), subject("alice"), Level::Clear));
        let stealing = node.run(thief, Op::Receive(receive("/stolen")));
        node.active(alice, &[at], &gsi(params, GsiPeer::Own, Level::Clear));
        let failure = node.call(alice, Op::Send(send("/source"))).fails_with(FailureKind::NotProtected);
        let told = "/O=Grid/CN=bob: the other side is not who it should be (it should have been /O=Grid/CN=alice)";
        assert!(failure.text.contains(told), "{failure:?}");
        let failure = node.wait(stealing).fails_with(FailureKind::CannotConnect);
        assert!(failure.text.contains("turned away: "), "{failure:?}");
        assert!(!node.names().contains(&"stolen".to_owned()));
    }
}

#[test]
fn a_wait_in_vain_tells_whom_it_has_turned_away() {
    for params in [stream(), extended(2)] {
        let mut node = node(|settings| settings.connect_timeout = Duration::from_secs(2));
        node.write("source", b"secret");
        let (alice, bob) = (node.attach_as(login(Some(&GRID.alice.own))), node.attach_as(login(Some(&GRID.bob.own))));
        for op in [Op::Receive(receive("/copy")), Op::Send(send("/source"))] {
            let at = node.passive(alice, &gsi(params.clone(), GsiPeer::Own, Level::Private));
            let waiting = node.run(alice, op.clone());
            node.active(bob, &[at], &gsi(params.clone(), subject("alice"), Level::Private));
            let other =
                if matches!(op, Op::Send(_)) { Op::Receive(receive("/stolen")) } else { Op::Send(send("/source")) };
            node.call(bob, other);
            let failure = node.wait(waiting).fails_with(FailureKind::CannotConnect);
            assert!(failure.text.contains("/O=Grid/CN=bob"), "{failure:?}");
            assert!(failure.text.contains("it should have been /O=Grid/CN=alice"), "{failure:?}");
        }
        assert_eq!(node.names(), ["source"]);
    }
}

#[test]
fn silent_strangers_hold_nobody_up_for_longer_than_a_connection_may_take() {
    let brief = Duration::from_millis(1500);
    for params in [stream(), extended(2)] {
        let mut node = node(|settings| settings.connect_timeout = brief);
        node.write("source", b"data");
        let mover = node.attach_as(login(Some(&GRID.alice.own)));
        let params = gsi(params, GsiPeer::Own, Level::Private);
        let at = node.passive(mover, &params);
        let began = Instant::now();
        let receiving = node.run(mover, Op::Receive(receive("/copy")));
        let _silent = TcpStream::connect(at).unwrap();
        node.wait(receiving).fails_with(FailureKind::CannotConnect);
        // Somebody who takes connections and says nothing.
        let deaf = TcpListener::bind("127.0.0.1:0").unwrap();
        node.active(mover, &[deaf.local_addr().unwrap()], &params);
        node.call(mover, Op::Send(send("/source"))).fails_with(FailureKind::CannotConnect);
        assert!(began.elapsed() < Duration::from_secs(15), "{params:?}: {:?}", began.elapsed());
    }
}

#[test]
fn without_a_credential_or_authorities_there_is_no_proof_and_no_transfer() {
    let params = gsi(extended(1), GsiPeer::Own, Level::Clear);
    let mut node = node(|_| {});
    let mover = node.attach_as(login(None));
    let failure = node.call(mover, passive(&params)).fails_with(FailureKind::NotProtected);
    assert!(failure.text.contains("log in with delegation, or send DCSC or DCAU N"), "{failure:?}");
    let target: SocketAddr = "127.0.0.1:5000".parse().unwrap();
    let active = Op::Active { targets: vec![target], params: params.clone() };
    node.call(mover, active).fails_with(FailureKind::NotProtected);
    let mut bare = Node::start();
    let mover = bare.attach_as(login(Some(&GRID.alice.own)));
    bare.call(mover, passive(&params)).fails_with(FailureKind::NotSupported);
}

#[test]
fn authorities_that_come_later_count_at_the_next_attempt() {
    let params = gsi(extended(1), GsiPeer::Own, Level::Clear);
    let later = tempfile::tempdir().unwrap();
    let directory = later.path().join("certificates");
    let mut node = Node::with(|settings| settings.authorities = Some(directory.as_os_str().as_bytes().to_vec()));
    let mover = node.attach_as(login(Some(&GRID.alice.own)));
    let failure = node.call(mover, passive(&params)).fails_with(FailureKind::NotProtected);
    assert!(failure.text.contains("the directory of trusted authorities cannot be read"), "{failure:?}");
    std::os::unix::fs::symlink(GRID.pki.certificates(), &directory).unwrap();
    node.passive(mover, &params);
}

#[test]
fn an_expired_credential_is_told_with_its_name_and_end() {
    let kind = ProxyKind::rfc(Policy::Limited);
    let old = GRID.pki.proxy_for(&GRID.alice, &kind, -60, "old").unwrap();
    let mut node = node(|_| {});
    let params = gsi(extended(1), GsiPeer::Own, Level::Clear);
    let mover = node.attach_as(login(Some(&old.own)));
    let failure = node.call(mover, passive(&params)).fails_with(FailureKind::NotProtected);
    assert!(failure.text.contains("/O=Grid/CN=alice/CN="), "{failure:?}");
    assert!(failure.text.contains("expired") && failure.text.contains("good until 20"), "{failure:?}");
}

#[test]
fn a_credential_that_runs_out_ends_new_connections_and_no_old_ones() {
    let kind = ProxyKind::rfc(Policy::Limited);
    let brief = GRID.pki.proxy_for(&GRID.alice, &kind, 3, "brief").unwrap();
    let mut node = node(|_| {});
    node.write("source", b"data");
    let params = gsi(extended(2), GsiPeer::Own, Level::Private);
    let [source, destination, other] = [(); 3].map(|()| node.attach_as(login(Some(&brief.own))));
    node.link(source, destination, &params);
    let (sent, received) = node.copy((source, destination), send("/source"), receive("/copy"));
    assert_eq!((sent.bytes(), received.bytes()), (4, 4));
    let unused = node.passive(other, &params);
    assert!(unused.port() > 0);
    let third = node.attach_as(login(Some(&brief.own)));
    let until = Instant::now() + Duration::from_secs(20);
    let failure = loop {
        assert!(Instant::now() < until, "it does not run out");
        let answer = node.call(third, passive(&params));
        if let Some(Outcome::Failed(failure)) = answer.outcome {
            break failure;
        }
    };
    assert_eq!(failure.kind, FailureKind::NotProtected);
    assert!(failure.text.contains("expired") && failure.text.contains("/O=Grid/CN=alice"), "{failure:?}");
    // A handle of before without connections says so at once, instead of waiting for somebody whom it could not meet.
    let failure = node.call(other, Op::Receive(receive("/late"))).fails_with(FailureKind::NotProtected);
    assert!(failure.text.contains("good until 20"), "{failure:?}");
    let (sent, received) = node.copy((source, destination), send("/source"), receive("/copy"));
    assert_eq!((sent.reused(), sent.bytes(), received.bytes()), (Some(true), 4, 4));
}

fn bring(node: &mut Node, mover: MoverId, own: Option<&OwnChain>) -> mover_support::Answer {
    node.call(mover, Op::DataCredential(own.map(pem)))
}

/// A certificate that nobody else vouches for, as clients make them for a transfer.
fn made_up(subject: &str, repeated: bool) -> OwnChain {
    let key = make::key(KeyKind::Rsa(2048)).unwrap();
    let certificate = make::self_signed(subject, &key, &Purpose::Person, life(3600)).unwrap();
    let chain = if repeated { vec![certificate.clone()] } else { Vec::new() };
    OwnChain { certificate, key, chain }
}

#[test]
fn a_credential_brought_for_the_transfer_counts_instead_and_the_login_is_nothing_to_it() {
    // One login of GSI, one without any credential, at processes with and without authorities.
    let mut near = node(|_| {});
    let mut far = Node::start();
    let data = pattern(200_000);
    near.write("source", &data);
    for (params, repeated) in [(stream(), true), (extended(3), true), (extended(1), false)] {
        let own = made_up("/C=US/CN=made for a transfer", repeated);
        let (source, destination) = (near.attach_as(login(Some(&GRID.alice.own))), far.attach_as(login(None)));
        bring(&mut near, source, Some(&own)).done();
        bring(&mut far, destination, Some(&own)).done();
        let params = gsi(params, GsiPeer::Own, Level::Private);
        let at = far.passive(destination, &params);
        near.active(source, &[at], &params);
        let receiving = far.run(destination, Op::Receive(receive("/copy")));
        assert_eq!(near.call(source, Op::Send(send("/source"))).bytes(), 200_000);
        assert_eq!(far.wait(receiving).bytes(), 200_000);
        assert!(far.read("copy") == data);
    }
}

#[test]
fn a_credential_is_taken_back_and_closes_the_data_handle_either_way() {
    let mut node = node(|_| {});
    node.write("source", b"data");
    let params = gsi(extended(1), GsiPeer::Own, Level::Clear);
    let mover = node.attach_as(login(Some(&GRID.alice.own)));
    let own = made_up("/CN=own", true);
    for given in [Some(&own), None] {
        node.passive(mover, &params);
        bring(&mut node, mover, given).done();
        node.call(mover, Op::Receive(receive("/copy"))).fails_with(FailureKind::NoDataHandle);
    }
    // Again alice, who meets alice and nobody else.
    let other = node.attach_as(login(Some(&GRID.alice.own)));
    node.link(other, mover, &params);
    let (sent, received) = node.copy((other, mover), send("/source"), receive("/copy"));
    assert_eq!((sent.bytes(), received.bytes()), (4, 4));
}

#[test]
fn what_is_no_credential_is_refused_with_the_reason_and_leaves_none_behind() {
    let mut node = node(|_| {});
    let mover = node.attach_as(login(None));
    let own = made_up("/CN=own", true);
    let text = pem(&own).0;
    let key_only = make::key_pem(&own.key).unwrap().to_vec();
    let certificate_only = own.certificate.to_pem().unwrap();
    let foreign = OwnChain { key: made_up("/CN=other", true).key, ..own.clone() };
    let authority = GRID.pki.authority();
    let old = GRID.pki.proxy_for(&GRID.bob, &ProxyKind::rfc(Policy::InheritAll), -60, "old-bob").unwrap();
    let cases: [(Vec<u8>, &str); 7] = [
        (b"nonsense".to_vec(), "it holds no certificate"),
        (key_only, "it holds no certificate"),
        (certificate_only, "it holds no readable private key"),
        (
            text[..text.len() / 2].to_vec(),
            "take data credential of DCSC P: the credential is not accepted (it holds no",
        ),
        (pem(&foreign).0, "certificate and key do not belong together"),
        (
            pem(authority).0,
            "/O=Grid/CN=Test CA: the credential is not accepted (an authority's certificate speaks for nobody)",
        ),
        (pem(&old.own).0, "the credential has expired (its life is over (good until 20"),
    ];
    let params = gsi(extended(1), GsiPeer::Own, Level::Clear);
    for (text, reason) in cases {
        bring(&mut node, mover, Some(&own)).done();
        let failure = node.call(mover, Op::DataCredential(Some(Secret(text)))).fails_with(FailureKind::NotProtected);
        assert!(failure.text.contains(reason), "{failure:?} instead of {reason}");
        node.call(mover, passive(&params)).fails_with(FailureKind::NotProtected);
    }
}

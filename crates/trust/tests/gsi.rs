//! GSI logins between our own two sides: tokens as they travel in ADAT commands and replies.

#![allow(clippy::unwrap_used, reason = "a helper that fails ends its test")]

#[path = "gsi/grid.rs"]
mod grid;

use std::sync::Arc;

use grid::{Grid, now};
use openssl::ssl::SslVersion;
use whimbrel_engine::fault::FaultCode;
use whimbrel_proto::x509::{Certificate, Form, Kind, Policy};
use whimbrel_trust::gsi::Expected;
use whimbrel_trust::gsi::acceptor::Accepted;
use whimbrel_trust::gsi::host::Names;
use whimbrel_trust::gsi::initiator::Initiated;
use whimbrel_trust::gsi::{Delegate, GsiAcceptor, GsiInitiator, KeyPool};
use whimbrel_trust::make::{KeyKind, Life, ProxyKind, own_proxy};
use whimbrel_trust::tls::{ClientTls, Plain, ServerTls, TlsMachine};
use whimbrel_trust::{OwnChain, Peer, PeerJudge, TrustFault};

struct Login {
    peer: Peer,
    delegated: Option<Box<OwnChain>>,
    /// Tokens of the client.
    tokens: usize,
    server: TlsMachine,
    client: TlsMachine,
}

fn machines(grid: &Grid, own: &OwnChain, version: SslVersion) -> (TlsMachine, TlsMachine) {
    let server = ServerTls::gsi(&grid.host, grid.judge(Expected::Anybody)).unwrap();
    let client = ClientTls::new(grid.judge(Expected::Host("localhost".into(), Names::Common)), Some(own)).unwrap();
    let (mut server, mut client) = (server.connection().unwrap(), client.connection("localhost").unwrap());
    server.set_max_proto_version(Some(version)).unwrap();
    client.set_max_proto_version(Some(version)).unwrap();
    (TlsMachine::over(server, true).unwrap(), TlsMachine::over(client, false).unwrap())
}

fn login(grid: &Grid, own: &OwnChain, delegate: Delegate, version: SslVersion) -> Result<Login, TrustFault> {
    let (server, client) = machines(grid, own, version);
    let mut acceptor = GsiAcceptor::over(server, Arc::new(KeyPool::default()));
    let mut initiator = GsiInitiator::over(client, own.clone(), delegate);
    let mut token = initiator.start()?;
    let mut tokens = 1;
    let mut last = false;
    loop {
        let answer = match acceptor.step(&token, now())? {
            Accepted::Continue(answer) => answer,
            Accepted::Established { peer, delegated } => {
                assert!(last, "the client has more to say");
                let (server, client) = (acceptor.into_tls(), initiator.into_tls());
                return Ok(Login { peer, delegated, tokens, server, client });
            }
        };
        assert!(!last, "the server has more to say");
        (token, last) = match initiator.step(&answer, now(), 600)? {
            Initiated::Continue(token) => (token, false),
            Initiated::Last(token) => (token, true),
        };
        tokens += 1;
    }
}

fn kind(own: &OwnChain) -> Kind {
    Certificate::parse(&own.certificate.to_der().unwrap()).unwrap().kind().unwrap()
}

#[test]
fn logins_tell_who_comes_and_hand_on_what_is_wanted() {
    let grid = Grid::new(KeyKind::P256);
    let proxy =
        own_proxy(&grid.alice, KeyKind::P256, &ProxyKind::rfc(Policy::InheritAll), Life::of(now(), 900)).unwrap();
    for version in [SslVersion::TLS1_2, SslVersion::TLS1_3] {
        for (delegate, policy) in [
            (Delegate::No, None),
            (Delegate::Limited, Some(Policy::Limited)),
            (Delegate::Full, Some(Policy::InheritAll)),
        ] {
            let mut done = login(&grid, &proxy, delegate, version).unwrap();
            assert_eq!((done.peer.subject.as_str(), done.peer.limited), ("/O=Grid/CN=alice", false));
            // The round trips that the plan allows: three without delegation, four with it.
            assert_eq!(done.tokens, if delegate == Delegate::No { 3 } else { 4 }, "{version:?}");
            let handed = done.delegated.map(|own| (kind(&own), own.chain.len()));
            assert_eq!(handed, policy.map(|policy| (Kind::Proxy { form: Form::Rfc, policy }, 2)));
            done.client.write(b"PWD\r\n").unwrap();
            done.server.feed(&done.client.transmit().unwrap());
            let mut plain = Vec::new();
            assert_eq!(done.server.read(&mut plain).unwrap(), Plain::Bytes(5));
        }
    }
}

#[test]
fn what_was_handed_on_logs_in_elsewhere() {
    let grid = Grid::new(KeyKind::P256);
    let first = login(&grid, &grid.alice, Delegate::Limited, SslVersion::TLS1_3).unwrap();
    let second = login(&grid, &first.delegated.unwrap(), Delegate::Full, SslVersion::TLS1_3).unwrap();
    assert_eq!((second.peer.subject.as_str(), second.peer.limited), ("/O=Grid/CN=alice", true));
    let policy = Policy::Limited;
    assert_eq!(kind(&second.delegated.unwrap()), Kind::Proxy { form: Form::Rfc, policy }, "rights do not grow");
}

#[test]
fn strangers_are_refused_with_an_alert_before_anything_is_said() {
    let (grid, other) = (Grid::new(KeyKind::P256), Grid::new(KeyKind::P256));
    for version in [SslVersion::TLS1_2, SslVersion::TLS1_3] {
        let (server, _) = machines(&grid, &grid.alice, version);
        let client = ClientTls::new(grid.judge(Expected::Anybody), Some(&other.alice)).unwrap();
        let mut ssl = client.connection("localhost").unwrap();
        ssl.set_max_proto_version(Some(version)).unwrap();
        let mut acceptor = GsiAcceptor::over(server, Arc::new(KeyPool::default()));
        let mut initiator =
            GsiInitiator::over(TlsMachine::over(ssl, false).unwrap(), other.alice.clone(), Delegate::No);
        let Accepted::Continue(answer) = acceptor.step(&initiator.start().unwrap(), now()).unwrap() else {
            panic!("so early")
        };
        let Initiated::Continue(token) = initiator.step(&answer, now(), 9).unwrap() else { panic!("so early") };
        let fault = acceptor.step(&token, now()).unwrap_err();
        assert_eq!(fault.code, FaultCode::CredentialRejected, "{fault}");
        assert!(acceptor.alert().is_some());
    }
    let fault = login(&grid, &OwnChain { chain: Vec::new(), ..other.alice.clone() }, Delegate::No, SslVersion::TLS1_3)
        .map(|_| ())
        .unwrap_err();
    assert!(fault.detail.contains("not trusted") || fault.detail.contains("signature"), "{fault}");
}

#[test]
fn servers_of_other_names_are_refused() {
    let grid = Grid::new(KeyKind::P256);
    let server = ServerTls::gsi(&grid.host, grid.judge(Expected::Anybody)).unwrap();
    for (expected, good) in [
        (Expected::Host("localhost".into(), Names::Alternative), true),
        (Expected::Host("127.0.0.1".into(), Names::Alternative), true),
        (Expected::Subject("/o=grid/cn=HOST/localhost".into()), true),
        (Expected::Host("elsewhere".into(), Names::Common), false),
        (Expected::Subject("/O=Grid/CN=alice".into()), false),
    ] {
        let client = ClientTls::new(grid.judge(expected), Some(&grid.alice)).unwrap();
        let mut initiator = GsiInitiator::new(&client, "localhost", grid.alice.clone(), Delegate::No).unwrap();
        let mut acceptor = GsiAcceptor::new(&server, Arc::new(KeyPool::default())).unwrap();
        let Accepted::Continue(answer) = acceptor.step(&initiator.start().unwrap(), now()).unwrap() else {
            panic!("so early")
        };
        match initiator.step(&answer, now(), 9) {
            Ok(_) => assert!(good),
            Err(fault) => {
                assert!(!good && fault.code == FaultCode::PeerIdentity && initiator.alert().is_some(), "{fault}")
            }
        }
    }
}

#[test]
fn an_independent_proxy_of_a_host_is_no_host() {
    let grid = Grid::new(KeyKind::P256);
    for (policy, good) in [(Policy::InheritAll, true), (Policy::Limited, true), (Policy::Independent, false)] {
        let proxy = own_proxy(&grid.host, KeyKind::P256, &ProxyKind::rfc(policy), Life::of(now(), 900)).unwrap();
        let others: Vec<_> = proxy.chain.iter().map(AsRef::as_ref).collect();
        let judge = grid.judge(Expected::Host("localhost".into(), Names::Alternative));
        let verdict = judge.judge(&proxy.certificate, &others).map(|peer| peer.subject);
        assert_eq!(verdict.is_ok(), good, "{verdict:?}");
    }
}

#[test]
fn tokens_come_in_turn_and_whole() {
    let grid = Grid::new(KeyKind::P256);
    let (server, client) = machines(&grid, &grid.alice, SslVersion::TLS1_3);
    let mut acceptor = GsiAcceptor::over(server, Arc::new(KeyPool::default()));
    let mut initiator = GsiInitiator::over(client, grid.alice.clone(), Delegate::Limited);
    let hello = initiator.start().unwrap();
    assert!(acceptor.step(&hello[..20], now()).is_err(), "half a flight is no token");
    assert!(acceptor.step(&hello[20..], now()).is_err(), "and there is no second try");
    assert!(initiator.step(b"", now(), 9).is_err());

    for flag in [&["X"][..], &[""], &["00"], &["D0"], &["0", "0"], &["0", "PWD"]] {
        let (server, mut client) = machines(&grid, &grid.alice, SslVersion::TLS1_3);
        let mut acceptor = GsiAcceptor::over(server, Arc::new(KeyPool::default()));
        client.drive().unwrap();
        let Accepted::Continue(answer) = acceptor.step(&client.transmit().unwrap(), now()).unwrap() else {
            panic!("so early")
        };
        client.feed(&answer);
        client.drive().unwrap();
        acceptor.step(&client.transmit().unwrap(), now()).unwrap();
        flag.iter().for_each(|record| client.write(record.as_bytes()).unwrap());
        let fault = acceptor.step(&client.transmit().unwrap_or_default(), now()).map(|_| ()).unwrap_err();
        assert_eq!(fault.code, FaultCode::EncryptionFailed, "{flag:?}");
    }
}

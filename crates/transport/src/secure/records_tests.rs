//! Our records against OpenSSL's: each must take the other for its like.

use std::io::{self, ErrorKind, IoSlice};

use openssl::ssl::{Ssl, SslContextBuilder, SslMethod, SslVerifyMode, SslVersion};
use whimbrel_engine::{Fault, FaultCode};
use whimbrel_trust::tls::{ClientTls, ServerTls};
use whimbrel_trust::{OwnChain, psk};

use super::super::handshake::Role;
use super::super::tests::{NONCE, client, grid, gsi_ends, gsi_ends_of, met, modern, receive, server};
use super::super::tls::TlsChannel;
use super::Records;
use crate::channel::DataChannel;
use crate::faulty::{FaultyChannel, Mishap};
use crate::{contract, local};

fn agreed() -> (Ssl, Ssl) {
    let key = psk::from_nonce(&NONCE);
    let near = ClientTls::agreed(&key).expect("context").connection("").expect("connection");
    (near, ServerTls::agreed(&key).expect("context").connection().expect("connection"))
}

/// Two ends of one channel; true where we make the records ourselves.
fn ends((near, far): (Ssl, Ssl), own: [bool; 2]) -> (TlsChannel, TlsChannel) {
    let (one, other) = local::pair().expect("pair");
    let end = |inner, ssl, role, own| match own {
        true => TlsChannel::new(Box::new(inner), ssl, role, None, false),
        false => TlsChannel::by_library(Box::new(inner), ssl, role, None, false),
    };
    (end(one, near, Role::Client, own[0]).expect("channel"), end(other, far, Role::Server, own[1]).expect("channel"))
}

fn is_own(channel: &TlsChannel) -> bool {
    matches!(channel.records, Records::Own(_))
}

/// Carries both handshakes to their ends.
fn proven((mut one, mut other): (TlsChannel, TlsChannel)) -> (TlsChannel, TlsChannel) {
    loop {
        let waiting: Vec<_> = [one.prove(), other.prove()].into_iter().filter_map(Result::err).collect();
        if waiting.is_empty() {
            return (one, other);
        }
        assert!(waiting.iter().all(|error| error.kind() == ErrorKind::WouldBlock), "{waiting:?}");
    }
}

#[test]
fn openssl_takes_our_records_for_its_own_and_we_take_its() {
    for own in [[true, false], [false, true], [false, false]] {
        contract::run(&mut || met(ends(agreed(), own)));
    }
}

#[test]
fn we_take_over_where_we_can_and_nowhere_else() {
    let (client, server) = gsi_ends();
    for (version, ours) in [(SslVersion::TLS1_2, false), (SslVersion::TLS1_3, true)] {
        let near = modern(client.connection("").expect("connection"), version);
        let (one, other) = proven(ends((near, server.connection().expect("connection")), [true, true]));
        assert_eq!([is_own(&one), is_own(&other)], [ours; 2], "{version:?}");
    }
    let mut tickets = ServerTls::agreed(&psk::from_nonce(&NONCE)).expect("context").connection().expect("connection");
    tickets.set_num_tickets(1).expect("a ticket");
    let (_, other) = proven(ends((agreed().0, tickets), [true, true]));
    assert!(!is_own(&other), "its tickets are the first records");
}

/// A client of GSI that offers one suite only.
fn picky(own: &OwnChain, suite: &str) -> Ssl {
    let mut context = SslContextBuilder::new(SslMethod::tls_client()).expect("context");
    context.set_ciphersuites(suite).expect("suite");
    context.set_verify(SslVerifyMode::NONE);
    context.set_certificate(&own.certificate).expect("certificate");
    context.set_private_key(&own.key).expect("key");
    Ssl::new(&context.build()).expect("connection")
}

#[test]
fn each_suite_is_openssls_or_ours_as_it_should_be() {
    let suites = ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"];
    for (suite, ours) in suites.into_iter().zip([true, true, false]) {
        let pair = || {
            let (ca, alice) = grid();
            let server = gsi_ends_of(ca, &alice).1;
            ends((picky(&alice, suite), server.connection().expect("connection")), [false, true])
        };
        assert_eq!(is_own(&proven(pair()).1), ours, "{suite}");
        contract::run(&mut || met(pair()));
    }
}

#[test]
fn openssl_follows_when_we_take_new_keys() {
    let (mut one, mut other) = proven(ends(agreed(), [true, false]));
    for round in 0..3 {
        let Records::Own(own) = &mut one.records else { panic!("not ours") };
        own.renew = true;
        assert_eq!(one.send_vectored(&[IoSlice::new(&[round; 5])], false).expect("sent"), 5);
        let mut got = [0; 8];
        assert_eq!(receive(&mut other, &mut got).expect("received"), 5);
        assert_eq!(got[..5], [round; 5]);
    }
}

#[test]
fn new_keys_that_are_asked_for_are_given_once_there_is_room() {
    let (mut one, mut other) = proven(ends(agreed(), [true, true]));
    let Records::Own(own) = &mut one.records else { panic!("not ours") };
    own.renew = true;
    assert_eq!(one.recv(&mut [0; 1]).expect_err("nothing").kind(), ErrorKind::WouldBlock);
    let Records::Own(own) = &one.records else { panic!("not ours") };
    assert!(!own.renew, "a receiver answers, too");
    one.send_vectored(&[IoSlice::new(b"new")], false).expect("sent");
    let mut got = [0; 8];
    assert_eq!(receive(&mut other, &mut got).expect("received"), 3);
}

fn code(error: io::Error) -> (FaultCode, String) {
    let fault = Fault::from_io(error, "receive");
    (fault.code, fault.detail)
}

#[test]
fn a_forgery_is_a_fault_for_good_and_the_other_side_hears_of_it() {
    let (one, other) = local::pair().expect("pair");
    // Behind the handshake's bytes towards the server.
    let other = FaultyChannel::new(Box::new(other), Mishap::FlipBitOf(4000)).expect("wrap");
    let (mut one, mut other) = proven((client(Box::new(one), &NONCE), server(Box::new(other), false)));
    one.send_vectored(&[IoSlice::new(&[1; 9000])], false).expect("sent");
    let first = code(receive(&mut other, &mut [0; 9000]).expect_err("a forgery"));
    assert_eq!(first.0, FaultCode::EncryptionFailed, "{first:?}");
    assert_eq!(code(receive(&mut other, &mut [0; 1]).expect_err("still")), first);
    let heard = code(receive(&mut one, &mut [0; 1]).expect_err("an alert"));
    assert!(heard.1.contains("refused") && heard.1.contains("alert 20"), "{heard:?}");
}

//! Credentials as others send them: requests for proxies and their answers, chains with a key, revocation lists.

use openssl::x509::X509;
use whimbrel_dtn::mover::credential::{Authorities, DataCredential};
use whimbrel_proto::x509::{Certificate, Kind, Policy};
use whimbrel_trust::gsi::crl::{RevocationList, Standing};
use whimbrel_trust::gsi::{Delegate, delegate, deposit};
use whimbrel_trust::make::{self, Life};
use whimbrel_trust::{OwnChain, Peer, credential};

use super::gsi::{Grid, NOW, check_handed_on};

/// Any bytes as each of them: what is signed, and with what, is ours to say; what is taken belongs together.
///
/// Texts are read as they are, DER both as it is and as text.
pub fn credentials(data: &[u8]) {
    check_request(data);
    check_lesser(data);
    check_answer(data);
    check_chain(data);
    check_revocations(data);
    let armoured = |label: &str| {
        let lines = base64(data);
        format!("-----BEGIN {label}-----\n{lines}-----END {label}-----\n")
    };
    check_deposited_request(&armoured("CERTIFICATE REQUEST"));
    let text = String::from_utf8_lossy(data);
    check_deposited_request(&text);
    check_deposited_answer(&text);
}

/// As PEM has it (RFC 7468 §3): lines of 64 digits.
fn base64(data: &[u8]) -> String {
    let digits = openssl::base64::encode_block(data);
    digits.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line).into_owned() + "\n").collect()
}

fn life() -> Life {
    Life::of(NOW, 600)
}

/// A server's request: what is signed is a proxy of ours, for the key that asked, with no more rights than were meant.
fn check_request(request: &[u8]) {
    let alice = &Grid::get().alice;
    for wanted in [Delegate::Limited, Delegate::Full] {
        let Ok(proxy) = delegate::issue(request, alice, wanted, life()) else { continue };
        let asked = openssl::x509::X509Req::from_der(request).and_then(|request| request.public_key());
        let key = X509::from_der(&proxy).and_then(|proxy| proxy.public_key()).expect("a certificate");
        assert!(asked.is_ok_and(|asked| asked.public_eq(&key)), "the key that asked has the rights");
        let read = Certificate::parse(&proxy).expect("a certificate");
        let own = alice.certificate.to_der().expect("it was read");
        let own = Certificate::parse(&own).expect("it was read");
        assert!(read.subject.below(&own.subject).is_some() && read.issuer.matches(&own.subject));
        assert!(read.not_after <= own.not_after.min(life().until), "nothing outlives its signer");
        if key.public_eq(&Grid::get().asked) {
            let taken = delegate::assemble(&proxy, Grid::get().asked.clone(), &Grid::get().peer(), NOW);
            assert_eq!(check_handed_on(&taken.expect("what we sign we take")), wanted == Delegate::Limited);
        }
    }
}

/// Nobody hands on more than they have.
fn check_lesser(request: &[u8]) {
    let [limited, last, authority] = &Grid::get().others[..] else { panic!("there are three") };
    if let Ok(proxy) = delegate::issue(request, limited, Delegate::Full, life()) {
        let read = Certificate::parse(&proxy).expect("a certificate");
        assert!(matches!(read.kind(), Ok(Kind::Proxy { policy: Policy::Limited, .. })), "{:?}", read.kind());
        assert!(!delegate::globus_takes(limited), "its key is none of RSA");
    }
    assert!([last, authority].iter().all(|own| delegate::issue(request, own, Delegate::Full, life()).is_err()));
}

/// A client's answer: what is taken is the client's own proxy, for the key that was made for it.
fn check_answer(answer: &[u8]) {
    let grid = Grid::get();
    if let Ok(own) = delegate::assemble(answer, grid.asked.clone(), &grid.peer(), NOW) {
        check_handed_on(&own);
        let other = delegate::assemble(answer, grid.host.key.clone(), &grid.peer(), NOW);
        assert!(other.is_err(), "it is good for one key");
    }
    let impostor = Peer { leaf: grid.host.certificate.clone(), ..grid.peer() };
    assert!(delegate::assemble(answer, grid.asked.clone(), &impostor, NOW).is_err(), "it is good for one peer");
    // A server asks for what its client has itself.
    let limited = Peer { leaf: grid.others[0].certificate.clone(), ..grid.peer() };
    assert!(delegate::request(&limited, &grid.asked).is_ok_and(|asked| !asked.is_empty()));
}

/// What DCSC and a login bring: certificate and key belong together, and are read again as they are written.
fn check_chain(text: &[u8]) {
    let authorities = Authorities::default();
    let (handed_on, brought) =
        (DataCredential::handed_on(text, &authorities), DataCredential::brought(text, &authorities));
    assert!(handed_on.is_err(), "nobody is believed without authorities");
    let Ok(own) = credential::from_pem(text) else { return assert!(brought.is_err()) };
    assert!(own.certificate.public_key().is_ok_and(|key| key.public_eq(&own.key)));
    let written = make::to_pem(&own).expect("it was read");
    let again = credential::from_pem(&written).expect("it was written");
    assert_eq!(ders(&again), ders(&own));
    if let Ok(brought) = brought {
        assert_eq!(ders(brought.own()), ders(&own));
        assert!(brought.alive().is_ok() && credential::holder(&own).is_ok_and(|holder| !holder.identity.is_empty()));
    }
}

fn ders(own: &OwnChain) -> Vec<Vec<u8>> {
    let chain = std::iter::once(&own.certificate).chain(&own.chain);
    chain.map(|certificate| certificate.to_der().expect("it was read")).collect()
}

/// A request that came as text is answered with a chain that its asker can take.
fn check_deposited_request(request: &str) {
    let (alice, key) = (&Grid::get().alice, make::key_pem(&Grid::get().asked).expect("a key"));
    for wanted in [Delegate::Limited, Delegate::Full] {
        let Ok(answer) = deposit::answer(request, alice, wanted, life()) else { return };
        match deposit::take(&answer, &key, NOW) {
            Ok(taken) => assert_eq!(taken.holder.identity, "/O=Grid/CN=alice"),
            // For another key than ours.
            Err(fault) => assert!(fault.detail.contains("another key"), "{fault}"),
        }
    }
}

fn check_deposited_answer(answer: &str) {
    let key = make::key_pem(&Grid::get().asked).expect("a key");
    let asked = deposit::request(&key).expect("our key can ask");
    assert!(asked.starts_with("-----BEGIN CERTIFICATE REQUEST-----"));
    let Ok(taken) = deposit::take_at(answer, &key, NOW.secs) else { return };
    assert!(format!("{taken:?}").contains(&taken.holder.identity) && !format!("{taken:?}").contains("PRIVATE"));
    let own = credential::from_pem(taken.pem.as_bytes()).expect("it is kept as it was taken");
    assert_eq!(credential::holder(&own).expect("it was judged"), taken.holder);
    assert!(taken.holder.until > NOW && own.key.public_eq(&Grid::get().asked));
}

/// A list is the same in both forms, and only the one that its authority has signed says anything.
fn check_revocations(list: &[u8]) {
    let Ok(read) = RevocationList::parse(list) else { return };
    let grid = Grid::get();
    let standing = |list: &RevocationList, signer: &X509| {
        let key = signer.public_key().expect("a certificate has a key");
        list.standing(&grid.alice.certificate, &key, NOW)
    };
    assert!(
        read.authority().is_empty()
            || RevocationList::parse(&list[..list.len() - 1]).is_err()
            || !list.starts_with(b"0")
    );
    let stranger = standing(&read, &grid.host.certificate);
    assert!(matches!(stranger, Standing::Unusable { outdated: false, .. }), "only its authority speaks: {stranger:?}");
    if list.starts_with(b"0") {
        let text = format!("-----BEGIN X509 CRL-----\n{}-----END X509 CRL-----\n", base64(list));
        let again = RevocationList::parse(text.as_bytes()).expect("the same list");
        let authority = grid.alice.chain.last().expect("Alice shows her authority");
        assert_eq!(standing(&again, authority), standing(&read, authority));
    }
}

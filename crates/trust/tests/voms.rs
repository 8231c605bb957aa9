//! Attributes of a virtual organization in a proxy that `voms-proxy-fake` made.

#![allow(clippy::unwrap_used, reason = "a helper that fails ends its test")]

use std::sync::Arc;

use openssl::x509::{X509, X509Ref};
use whimbrel_proto::timeval::Timestamp;
use whimbrel_trust::gsi::{Anchors, Judge, Organizations};

/// When the proxy is good: it was made at 00:26.
const NOW: &[u8] = b"20261122003000";

const SERVER: &str = "/O=Grid/CN=localhost\n/O=Grid/CN=Test CA\n";

/// The attributes that are believed with these lists of servers; `bend` may change what the peer sends.
fn believed(lists: &[(&str, &str)], now: &[u8], bend: impl FnOnce(&mut Vec<u8>)) -> Vec<String> {
    let mut sent = X509::stack_from_pem(include_bytes!("testdata/voms-proxy.pem")).unwrap();
    let ca = X509::stack_from_pem(include_bytes!("testdata/voms-ca.pem")).unwrap();
    let mut organizations = Organizations::default();
    lists.iter().for_each(|(organization, list)| organizations.add(organization, list));
    let anchors = Arc::new(Anchors::default().and(ca).unwrap());
    let judge = Judge { organizations: Some(Arc::new(organizations)), ..Judge::new(anchors) };
    let now = Timestamp::parse(now).unwrap();

    let others = sent.split_off(1);
    let end = others[0].clone();
    let others: Vec<&X509Ref> = others.iter().map(AsRef::as_ref).collect();
    let (leaf, end) = (sent[0].to_der().unwrap(), end.to_der().unwrap());
    let read = whimbrel_proto::x509::Certificate::parse(&leaf).unwrap();
    let mut extension = read.extensions.voms.unwrap().to_vec();
    let whole = judge.judge(&sent[0], &others, now).map(|judged| judged.peer.vo);
    bend(&mut extension);
    let end = whimbrel_proto::x509::Certificate::parse(&end).unwrap();
    let organizations = judge.organizations.clone().unwrap();
    let found = organizations.attributes(&extension, &end, &Judge { organizations: None, ..judge }, now);
    if extension == read.extensions.voms.unwrap() {
        // Asked alone and as part of the verdict on the chain it is the same.
        assert_eq!(whole.unwrap_or_default(), found);
    }
    found
}

#[test]
fn the_word_of_a_known_server_counts() {
    assert_eq!(believed(&[("atlas", SERVER)], NOW, |_| ()), ["/atlas/Role=production"]);
    assert_eq!(believed(&[("atlas", "/o=GRID/CN=localhost\n")], NOW, |_| ()), ["/atlas/Role=production"]);
    let second = format!("/O=Grid/CN=other\n------ NEXT CHAIN ------\n{SERVER}");
    assert_eq!(believed(&[("atlas", &second)], NOW, |_| ()), ["/atlas/Role=production"]);
}

#[test]
fn nobody_elses_word_does() {
    let none: [&str; 0] = [];
    assert_eq!(believed(&[], NOW, |_| ()), none);
    assert_eq!(believed(&[("cms", SERVER)], NOW, |_| ()), none);
    assert_eq!(believed(&[("atlas", "/O=Grid/CN=other\n/O=Grid/CN=Test CA\n")], NOW, |_| ()), none);
    assert_eq!(believed(&[("atlas", "/O=Grid/CN=localhost\n/O=Grid/CN=Other CA\n")], NOW, |_| ()), none);
    assert_eq!(believed(&[("atlas", &format!("{SERVER}/O=Grid/CN=Root\n"))], NOW, |_| ()), none);
}

#[test]
fn words_about_others_do_not() {
    let sent = X509::stack_from_pem(include_bytes!("testdata/voms-proxy.pem")).unwrap();
    let (leaf, end) = (sent[0].to_der().unwrap(), sent[1].to_der().unwrap());
    let ca = X509::stack_from_pem(include_bytes!("testdata/voms-ca.pem")).unwrap();
    let authority = ca[0].to_der().unwrap();
    let read = |der| whimbrel_proto::x509::Certificate::parse(der).unwrap();
    let extension = read(&leaf).extensions.voms.unwrap();
    let mut organizations = Organizations::default();
    organizations.add("atlas", SERVER);
    let judge = Judge::new(Arc::new(Anchors::default().and(ca.clone()).unwrap()));
    let now = Timestamp::parse(NOW).unwrap();
    let count =
        |end: &whimbrel_proto::x509::Certificate<'_>| organizations.attributes(extension, end, &judge, now).len();
    let (own, authority) = (read(&end), read(&authority));
    assert_eq!(count(&own), 1);
    let mut renewed = own.clone();
    renewed.serial = &[7];
    assert_eq!(count(&renewed), 0, "another certificate of the same person");
    let mut other = own.clone();
    (other.subject, other.issuer) = (read(&leaf).subject, read(&leaf).subject);
    assert_eq!((count(&other), count(&authority)), (0, 0), "somebody else");
}

#[test]
fn changed_and_expired_words_do_not() {
    let none: [&str; 0] = [];
    let known = [("atlas", SERVER)];
    assert_eq!(believed(&known, b"20261122130000", |_| ()), none);
    assert_eq!(believed(&known, b"20261122002600", |_| ()), none);
    let role = |extension: &mut Vec<u8>| {
        let at = extension.windows(10).position(|word| word == b"production").unwrap();
        extension[at..at + 10].copy_from_slice(b"administra");
    };
    assert_eq!(believed(&known, NOW, role), none);
    let signature = |extension: &mut Vec<u8>| *extension.last_mut().unwrap() ^= 1;
    assert_eq!(believed(&known, NOW, signature), none);
    assert_eq!(believed(&known, NOW, |extension| extension.truncate(100)), none);
}

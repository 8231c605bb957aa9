//! Every certificate is what it says.

use whimbrel_proto::x509::{Form, Kind, Policy};

use super::*;

fn now() -> Timestamp {
    Timestamp::parse(b"20261122000000").unwrap()
}

fn ca() -> OwnChain {
    let key = key(KeyKind::P256).unwrap();
    let certificate = authority("/O=Grid/CN=CA", &key, Some(1), Life::of(now(), 1_000_000), None).unwrap();
    OwnChain { certificate, key, chain: Vec::new() }
}

fn read<R>(certificate: &X509Ref, see: impl FnOnce(&Certificate<'_>) -> R) -> R {
    see(&Certificate::parse(&certificate.to_der().unwrap()).unwrap())
}

#[test]
fn names_are_written_and_read_in_one_form() {
    for text in [
        "/O=Grid/CN=alice",
        "/C=CH/DC=org/OU=a b/CN=host/www.example.org",
        "/O=Grid/CN=a/b c/emailAddress=a@b",
        r"/UID=x/CN=a\/O=b",
    ] {
        let der = name(text).unwrap();
        let read = whimbrel_proto::x509::Name::parse(&mut whimbrel_proto::x509::der::Reader::new(&der));
        match read {
            Ok(read) => assert_eq!(read.one_line(), text),
            Err(error) => panic!("{text}: {error}"),
        }
    }
    for bad in ["", "/", "CN=x", "/O", "/=x", "/O Grid=x", "/Nonsense=x"] {
        let fault = name(bad).map(|_| ()).unwrap_err();
        assert_eq!((fault.code, fault.subject.as_str()), (FaultCode::InvalidArgument, bad));
    }
}

#[test]
fn authorities_hosts_and_people_are_what_they_say() {
    let ca = ca();
    read(&ca.certificate, |read| {
        assert_eq!((read.kind(), read.path_length()), (Ok(Kind::Ca), Some(1)));
        assert!(read.extensions.key_usage.is_some_and(|usage| usage.signs_certificates() && usage.signs_crls()));
    });
    let names = [
        HostName::Dns("a.example".into()),
        HostName::Address([127, 0, 0, 1].into()),
        HostName::Address([0u16; 8].into()),
    ];
    let host =
        issue("/O=Grid/CN=a.example", KeyKind::P256, &Purpose::Host(names.to_vec()), Life::of(now(), 2_000_000), &ca)
            .unwrap();
    read(&host.certificate, |read| {
        let alt = read.extensions.alt_names.as_ref().unwrap();
        assert_eq!(
            (read.kind(), alt.dns.as_slice(), alt.addresses.len()),
            (Ok(Kind::EndEntity), &["a.example"][..], 2)
        );
        assert_eq!(read.extensions.purposes.as_ref().map(Vec::len), Some(2));
        assert_eq!(read.not_after, Life::of(now(), 1_000_000).until, "nobody outlives his authority");
    });
    assert!(host.certificate.is_signed_by(&ca.key) && host.chain.is_empty());
    let below = issue("/O=Grid/CN=Sub", KeyKind::P256, &Purpose::Authority(None), Life::of(now(), 1000), &ca).unwrap();
    let user = issue("/O=Grid/CN=alice", KeyKind::P256, &Purpose::Person, Life::of(now(), 1000), &below).unwrap();
    assert_eq!(user.chain.len(), 1);
    let host = self_signed("/CN=x", &user.key, &Purpose::Host(Vec::new()), Life::of(now(), 1000)).unwrap();
    read(&host, |read| assert!(read.is_self_issued() && read.kind() == Ok(Kind::EndEntity)));
}

#[test]
fn every_proxy_is_of_its_kind() {
    let life = Life::of(now(), 1000);
    let user = issue("/O=Grid/CN=alice", KeyKind::P256, &Purpose::Person, life, &ca()).unwrap();
    for form in [Form::Rfc, Form::Draft, Form::Legacy] {
        for (policy, path_length) in [
            (Policy::InheritAll, None),
            (Policy::Limited, Some(0)),
            (Policy::Independent, Some(300)),
            (Policy::Limited, None),
        ] {
            let kind = ProxyKind { form, policy, path_length };
            let made = own_proxy(&user, KeyKind::P256, &kind, Life::of(now(), 5000));
            if form == Form::Legacy && (path_length.is_some() || policy == Policy::Independent) {
                assert_eq!(made.unwrap_err().code, FaultCode::NotSupported);
                continue;
            }
            let made = made.unwrap();
            read(&made.certificate, |proxy| {
                assert_eq!((proxy.kind(), proxy.path_length()), (Ok(Kind::Proxy { form, policy }), path_length));
                assert_eq!((proxy.not_before, proxy.not_after), (life.from, life.until), "nobody outlives his signer");
                let usage = proxy.extensions.key_usage.unwrap();
                assert!(usage.digital_signature() && !usage.signs_certificates());
                read(&user.certificate, |user| assert!(proxy.subject.below(&user.subject).is_some()));
            });
            assert!(made.certificate.is_signed_by(&user.key));
            assert_eq!(made.chain.len(), 1);
        }
    }
    let restricted = ProxyKind::rfc(Policy::Restricted);
    assert_eq!(own_proxy(&user, KeyKind::P256, &restricted, life).unwrap_err().code, FaultCode::NotSupported);
    let later = Life { from: life.until, until: life.until }
        .within(Life { from: Timestamp::from_secs(life.until.secs + 9), until: life.until });
    let fault = own_proxy(&user, KeyKind::P256, &ProxyKind::rfc(Policy::Limited), later).unwrap_err();
    assert_eq!((fault.code, fault.until), (FaultCode::CredentialExpired, Some(life.until)));
}

#[test]
fn requests_are_signed_with_their_own_key() {
    let ca = ca();
    let key = key(KeyKind::P256).unwrap();
    let wanted = request("/O=Grid/CN=h", &key, &[HostName::Dns("h".into())]).unwrap();
    let made = certify_request(&wanted, &Purpose::Person, Life::of(now(), 1000), &ca).unwrap();
    read(&made, |read| assert_eq!(read.subject.one_line(), "/O=Grid/CN=h"));
    let mut forged = wanted.to_der().unwrap();
    let at = forged.windows(4).position(|four| four == b"Grid").unwrap();
    forged[at] = b'X';
    let forged = X509Req::from_der(&forged).unwrap();
    let fault = certify_request(&forged, &Purpose::Person, Life::of(now(), 1000), &ca).unwrap_err();
    assert_eq!(fault.code, FaultCode::CredentialRejected);
    let proxy = proxy_request(&key, Form::Rfc, MessageDigest::sha256()).unwrap();
    assert!(proxy.is_signed_by(&key) && proxy.extensions().unwrap().len() == 1);
    let legacy = proxy_request(&key, Form::Legacy, MessageDigest::sha256()).unwrap();
    assert!(legacy.extensions().map_or(0, |list| list.len()) == 0);
}

#[test]
fn revocations_are_found_by_certificate() {
    for kind in [KeyKind::P256, KeyKind::Rsa(2048)] {
        let key = key(kind).unwrap();
        let certificate = authority("/O=Grid/CN=CA", &key, None, Life::of(now(), 1_000_000), None).unwrap();
        let ca = OwnChain { certificate, key, chain: Vec::new() };
        let user = issue("/O=Grid/CN=alice", KeyKind::P256, &Purpose::Person, Life::of(now(), 1000), &ca).unwrap();
        let serial = read(&user.certificate, |read| read.serial.to_vec());
        let list = revocations(&ca, &[&serial], Life::of(now(), 1000)).unwrap();
        assert!(list.is_signed_by(&ca.key));
        assert!(matches!(list.get_by_cert(&user.certificate), openssl::x509::CrlStatus::Revoked(_)));
        let late = Life { from: now(), until: Timestamp::parse(b"20600101000000").unwrap() };
        let empty = revocations(&ca, &[], late).unwrap();
        assert!(matches!(empty.get_by_cert(&user.certificate), openssl::x509::CrlStatus::NotRevoked));
    }
}

#[test]
fn files_have_the_order_of_proxies() {
    let user = issue("/O=Grid/CN=alice", KeyKind::Rsa(1024), &Purpose::Person, Life::of(now(), 1000), &ca()).unwrap();
    assert_eq!(user.key.bits(), 2048, "no weak keys are made");
    let proxy = own_proxy(&user, KeyKind::P256, &ProxyKind::rfc(Policy::InheritAll), Life::of(now(), 100)).unwrap();
    let order = |own: &OwnChain| {
        let text = String::from_utf8(to_pem(own).unwrap().to_vec()).unwrap();
        text.lines().filter(|line| line.starts_with("-----BEGIN")).map(|line| line[11..].to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(order(&proxy), ["CERTIFICATE-----", "PRIVATE KEY-----", "CERTIFICATE-----"]);
    assert_eq!(order(&user), ["CERTIFICATE-----", "RSA PRIVATE KEY-----"]);
    assert_eq!(key_usage(KeyUsage::AUTHORITY), [3, 2, 1, 0x06]);
}

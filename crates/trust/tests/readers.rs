//! Our reader of certificates beside OpenSSL's: what both accept, both must see alike.

#![allow(clippy::unwrap_used, reason = "a helper that fails ends its test")]

use std::io::Write;
use std::process::{Command, Stdio};

use openssl::asn1::Asn1Time;
use openssl::x509::X509;
use whimbrel_proto::timeval::Timestamp;
use whimbrel_proto::x509::Certificate;
use whimbrel_proto::x509::der::{encode, tag};
use whimbrel_proto::x509::name::normal_form;
use whimbrel_trust::OwnChain;
use whimbrel_trust::make::{self, Draft, HostName, KeyKind, Life, ProxyKind, Purpose, own_proxy};

fn life() -> Life {
    Life::of(Timestamp::from_secs(1_795_305_600), 50_000)
}

fn certificates() -> Vec<Vec<u8>> {
    let key = make::key(KeyKind::P256).unwrap();
    let certificate = make::authority("/DC=org/DC=grid/CN=CA", &key, Some(2), life(), None).unwrap();
    let ca = OwnChain { certificate, key, chain: Vec::new() };
    let names = vec![HostName::Dns("h.example".into()), HostName::Address([10, 0, 0, 1].into())];
    let host = make::issue("/O=Grid/CN=host/h.example", KeyKind::P256, &Purpose::Host(names), life(), &ca).unwrap();
    let alice = make::issue("/O=Grid/CN=alice/emailAddress=a@b", KeyKind::P256, &Purpose::Person, life(), &ca).unwrap();
    let proxy =
        own_proxy(&alice, KeyKind::P256, &ProxyKind::rfc(whimbrel_proto::x509::Policy::Limited), life()).unwrap();
    [ca, host, alice, proxy].iter().map(|own| own.certificate.to_der().unwrap()).collect()
}

/// What both accept they must see alike; true if both accepted.
fn compare(der: &[u8]) -> bool {
    let Ok(ours) = Certificate::parse(der) else { return false };
    let Ok(theirs) = X509::from_der(der) else { return false };
    assert_eq!(theirs.to_der().unwrap(), der);
    assert_eq!(theirs.subject_name().to_der().unwrap(), ours.subject.der());
    assert_eq!(theirs.issuer_name().to_der().unwrap(), ours.issuer.der());
    let serial = theirs.serial_number().to_bn().unwrap();
    if ours.serial[0] & 0x80 == 0 {
        let start = ours.serial.iter().position(|byte| *byte != 0).unwrap_or(ours.serial.len());
        assert_eq!(serial.to_vec(), &ours.serial[start..]);
    } else {
        assert!(serial.is_negative());
    }
    for (time, seen) in [(theirs.not_before(), ours.not_before), (theirs.not_after(), ours.not_after)] {
        // A leap second is the second after it for us, and no time at all for OpenSSL.
        if let Ok(same) = time.compare(&Asn1Time::from_unix(seen.secs).unwrap()) {
            assert!(same.is_eq(), "{time} {seen}");
        }
    }
    assert_eq!(theirs.signature().as_slice(), ours.signature);
    if let Some(names) = &ours.extensions.alt_names
        && let Some(list) = theirs.subject_alt_names()
    {
        let dns: Vec<&str> = list.iter().filter_map(|name| name.dnsname()).collect();
        assert_eq!(dns, names.dns);
    }
    let hash = |name: &[u8]| openssl::x509::X509Name::from_der(name).unwrap();
    let alike = theirs.subject_name().try_cmp(&hash(ours.issuer.der())).unwrap().is_eq();
    assert_eq!(alike, ours.is_self_issued());
    true
}

#[test]
fn what_both_readers_accept_they_see_alike() {
    let seeds = certificates();
    assert!(seeds.iter().all(|der| compare(der)));
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let mut both = 0;
    for round in 0..40_000 {
        let mut der = seeds[round % seeds.len()].clone();
        for _ in 0..=random(3) {
            let at = random(der.len());
            match random(4) {
                0 => der[at] ^= 1 << random(8),
                1 => der[at] = random(256) as u8,
                2 => der[at] = [0, 0xff, 0x80, 0x30, 0x0c, 0x13, 0x14, 0x1e][random(8)],
                _ => der.swap(at, (at + 1) % seeds[round % seeds.len()].len()),
            }
        }
        both += usize::from(compare(&der));
    }
    assert!(both > 5000, "only {both} changed certificates were read by both");
}

/// What OpenSSL's program prints of a certificate's subject in the old form.
fn printed(certificate: &X509) -> Option<String> {
    let mut child = Command::new("openssl")
        .args(["x509", "-noout", "-subject", "-nameopt", "compat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    child.stdin.take().unwrap().write_all(&certificate.to_pem().unwrap()).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    Some(text.trim_end().strip_prefix("subject=").unwrap().to_owned())
}

#[test]
fn names_are_those_that_openssl_prints() {
    let attribute = |oid: &[u8], kind: u8, text: &[u8]| {
        let value = encode(kind, &[text]);
        encode(tag::SET, &[&encode(tag::SEQUENCE, &[&encode(tag::OID, &[oid]), &value])])
    };
    // Every attribute of X.520, of the pilot and of PKCS#9 that has a name, and some that have none.
    let pilot = [0x09, 0x92, 0x26, 0x89, 0x93, 0xf2, 0x2c, 0x64, 0x01];
    let pkcs9 = [0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x09];
    let jurisdiction = [0x2b, 6, 1, 4, 1, 0x82, 0x37, 0x3c, 2, 1];
    let known: [(&[u8], &[u8]); 4] = [
        (
            &[0x55, 4],
            &[
                3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 15, 16, 17, 18, 19, 20, 31, 32, 41, 42, 43, 44, 45, 46, 54, 65,
                72, 97, 98, 99, 100,
            ],
        ),
        (&pilot, &[1, 3, 4, 8, 9, 25, 44]),
        (&pkcs9, &[1, 2, 8]),
        (&jurisdiction, &[1, 2, 3]),
    ];
    let mut names = Vec::new();
    for (arc, numbers) in known {
        names.extend(numbers.iter().map(|number| attribute(&[arc, &[*number]].concat(), tag::UTF8_STRING, b"x")));
    }
    for oid in [&[0x2a, 3, 4][..], &[0x2b, 6, 1, 4, 1, 0x86, 0x8d, 0x1f, 1]] {
        names.push(attribute(oid, tag::UTF8_STRING, b"x"));
    }
    let values: [(u8, &[u8]); 8] = [
        (tag::UTF8_STRING, "J\u{fc}rg \u{4e2d} / \\ = \u{7f}".as_bytes()),
        (tag::T61_STRING, b"J\xfcrg"),
        (tag::BMP_STRING, &[0, b'a', 0x4e, 0x2d]),
        (tag::UNIVERSAL_STRING, &[0, 0, 0, b'a']),
        (0x12, b"123"),
        (tag::PRINTABLE_STRING, b""),
        (tag::IA5_STRING, b"a\nb\x1b"),
        (tag::BIT_STRING, &[0, 1, 2]),
    ];
    names.extend(values.iter().map(|(kind, text)| attribute(&[0x55, 4, 3], *kind, text)));
    let pair = [attribute(&[0x55, 4, 10], tag::UTF8_STRING, b"a"), attribute(&[0x55, 4, 11], tag::UTF8_STRING, b"b")];
    names.push(encode(tag::SET, &[&pair[0][2..], &pair[1][2..]]));

    let key = make::key(KeyKind::P256).unwrap();
    // Few programs are started: twenty parts to a name.
    for parts in names.chunks(20) {
        let subject = encode(tag::SEQUENCE, &[&parts.concat()]);
        let made = Draft::new(subject.clone(), subject, life()).unwrap().sign(&key, &key).unwrap();
        let Some(theirs) = printed(&made) else { return println!("skipped: `openssl` is not installed") };
        let der = made.to_der().unwrap();
        let ours = Certificate::parse(&der).unwrap().subject.one_line();
        assert_eq!(normal_form(&ours), normal_form(&theirs), "{ours}");
    }
}

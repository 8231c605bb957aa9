//! Chains of certificates, good and bad, and the verdict on each; `openssl verify` says what it thinks of them, too.

#![allow(clippy::unwrap_used, reason = "a helper that fails ends its test")]

#[path = "chains/world.rs"]
mod world;

use std::sync::Arc;

use openssl::hash::MessageDigest;
use openssl::pkey::PKey;
use openssl::rsa::Rsa;
use openssl::x509::X509Ref;
use whimbrel_proto::timeval::Timestamp;
use whimbrel_proto::x509::der::{encode, encode_count, tag};
use whimbrel_proto::x509::oid::{self, Oid};
use whimbrel_proto::x509::{Form, Policy};
use whimbrel_trust::OwnChain;
use whimbrel_trust::gsi::judge::Kinds;
use whimbrel_trust::gsi::{Anchors, Judge};
use whimbrel_trust::make::{self, HostName, KeyKind, Life, ProxyKind, Purpose};
use world::Verdict::{Bad, Expired, Good, Limited, Own};
use world::{
    ALICE, CA, NOW, Row, authority, bent, bent_person, between, check, file_of, forged, full, judge, life, limited,
    person, proxy, row, sequence, sign,
};

const ALICE_NAME: &str = "/O=Grid/CN=alice";

fn depth(count: usize) -> OwnChain {
    (0..count).fold(ALICE.clone(), |above, _| full(&above))
}

fn draft(signer: &OwnChain, policy: Policy) -> OwnChain {
    proxy(signer, Form::Draft, policy, None)
}

fn legacy(signer: &OwnChain, policy: Policy) -> OwnChain {
    proxy(signer, Form::Legacy, policy, None)
}

fn independent(signer: &OwnChain) -> OwnChain {
    proxy(signer, Form::Rfc, Policy::Independent, None)
}

fn bounded(signer: &OwnChain, length: u32) -> OwnChain {
    proxy(signer, Form::Rfc, Policy::InheritAll, Some(length))
}

#[test]
fn proxies_speak_for_whoever_signed_them() {
    check(vec![
        row("nobody's proxy", ALICE.clone(), Good(ALICE_NAME), true),
        row("one proxy", depth(1), Good(ALICE_NAME), true),
        row("two proxies", depth(2), Good(ALICE_NAME), true),
        row("eight proxies", depth(8), Good(ALICE_NAME), true),
        row("limited", limited(&ALICE), Limited(ALICE_NAME), true),
        row("limited below full", limited(&full(&ALICE)), Limited(ALICE_NAME), true),
        row("limited below limited", limited(&limited(&ALICE)), Limited(ALICE_NAME), true),
        row("independent", independent(&ALICE), Own, true),
        row("draft", draft(&ALICE, Policy::InheritAll), Good(ALICE_NAME), false),
        row("draft, limited", draft(&ALICE, Policy::Limited), Limited(ALICE_NAME), false),
        row(
            "draft below draft",
            draft(&draft(&ALICE, Policy::InheritAll), Policy::InheritAll),
            Good(ALICE_NAME),
            false,
        ),
        row("legacy", legacy(&ALICE, Policy::InheritAll), Good(ALICE_NAME), false),
        row("legacy, limited", legacy(&ALICE, Policy::Limited), Limited(ALICE_NAME), false),
        row(
            "legacy, thrice",
            legacy(&legacy(&legacy(&ALICE, Policy::InheritAll), Policy::InheritAll), Policy::Limited),
            Limited(ALICE_NAME),
            false,
        ),
        row("no proxies allowed below, and none there", bounded(&ALICE, 0), Good(ALICE_NAME), true),
        row("one allowed below, and one there", full(&bounded(&ALICE, 1)), Good(ALICE_NAME), true),
        row("draft with a bound", proxy(&ALICE, Form::Draft, Policy::InheritAll, Some(0)), Good(ALICE_NAME), false),
    ]);
}

#[test]
fn what_is_below_an_independent_proxy_is_the_proxys() {
    let above = independent(&ALICE);
    let below = full(&above);
    let others: Vec<&X509Ref> = below.chain.iter().map(AsRef::as_ref).collect();
    let judged = judge(Kinds::default()).judge(&below.certificate, &others, Timestamp::from_secs(NOW)).unwrap();
    let der = above.certificate.to_der().unwrap();
    let name = whimbrel_proto::x509::Certificate::parse(&der).unwrap().subject.one_line();
    assert_eq!((judged.peer.subject, judged.independent), (name, true));
    assert_eq!(judged.end_entity.to_der().unwrap(), ALICE.certificate.to_der().unwrap());
    assert_eq!(judged.peer.chain.len(), 2);
}

#[test]
fn what_was_sent_may_have_any_order_and_more_than_is_needed() {
    let mut reversed = depth(3);
    reversed.chain.reverse();
    let mut more = depth(2);
    more.chain.extend([ALICE.certificate.clone(), CA.certificate.clone(), person("/O=Grid/CN=bob", &CA).certificate]);
    let mut namesake = depth(1);
    namesake.chain.insert(0, person(ALICE_NAME, &CA).certificate);
    let mut stranger = depth(1);
    let other = authority("/O=Other/CN=CA", None, life(9000), None);
    stranger.chain.push(other.certificate);
    // The same name, as another program writes it.
    let printable = |text: &[u8]| encode(tag::PRINTABLE_STRING, &[text]);
    let part = |oid: &[u8], text: &[u8]| encode(tag::SET, &[&sequence(&[&encode(tag::OID, &[oid]), &printable(text)])]);
    let rewritten = sequence(&[&part(&[0x55, 4, 10], b"Grid"), &part(&[0x55, 4, 3], b"alice")]);
    let rewritten =
        bent(&ALICE, |draft| make::Draft { subject: make::grown(&rewritten, "1"), issuer: rewritten.clone(), ..draft });
    check(vec![
        row("reversed", reversed, Good(ALICE_NAME), true),
        row("repeated, with the root and strangers", more, Good(ALICE_NAME), true),
        // OpenSSL takes the first of two certificates with one name, which is the wrong one here.
        row("beside one of the same name", namesake, Good(ALICE_NAME), false),
        row("beside another authority", stranger, Good(ALICE_NAME), true),
        row("names in other string types", rewritten, Good(ALICE_NAME), true),
    ]);
}

#[test]
fn authorities_may_be_below_authorities() {
    let below = authority("/O=Grid/CN=Sub", None, life(90_000), Some(&CA));
    let mut bob = person("/O=Grid/CN=bob", &below);
    let sent = row("an authority that is sent", full(&bob), Good("/O=Grid/CN=bob"), true)
        .file(file_of(&below, "signing_policy"), world::POLICY);
    let without = row("whose own policy is missing", bob.clone(), Bad("signing_policy in /"), true);
    bob.chain.clear();
    let missing =
        row("an authority that nobody has", bob.clone(), Bad("its issuer /O=Grid/CN=Sub is not trusted"), false);
    let known = row("an authority that is known", full(&bob), Good("/O=Grid/CN=bob"), true)
        .file(file_of(&below, "0"), below.certificate.to_pem().unwrap())
        .file(file_of(&below, "signing_policy"), world::POLICY);
    let bound = authority("/O=Grid/CN=Bound", Some(0), life(90_000), Some(&CA));
    let beyond = authority("/O=Grid/CN=Beyond", None, life(90_000), Some(&bound));
    let mut carol = person("/O=Grid/CN=carol", &beyond);
    carol.chain = vec![beyond.certificate, bound.certificate];
    let usage = bent_person(&CA, |draft| {
        let truth = encode(tag::BOOLEAN, &[&[0xff]]);
        draft.with(oid::BASIC_CONSTRAINTS, true, sequence(&[&truth])).with(oid::KEY_USAGE, true, vec![3, 2, 7, 0x80])
    });
    let dave = bent_person(&usage, |draft| make::Draft { subject: make::name("/O=Grid/CN=dave").unwrap(), ..draft });
    check(vec![
        sent,
        without,
        missing,
        known,
        row("more authorities than one of them allows", carol, Bad("path length"), false),
        row("an authority whose key must not sign certificates", dave, Bad("certificate"), false),
    ]);
}

#[test]
fn hosts_and_rsa_keys_are_as_good() {
    let purpose = Purpose::Host(vec![HostName::Dns("h.example".into())]);
    let host = make::issue("/O=Grid/CN=h.example", KeyKind::P256, &purpose, life(5000), &CA).unwrap();
    let bob = make::issue("/O=Grid/CN=bob", KeyKind::Rsa(2048), &Purpose::Person, life(5000), &CA).unwrap();
    let proxy = make::own_proxy(&bob, KeyKind::Rsa(2048), &ProxyKind::rfc(Policy::Limited), life(4000)).unwrap();
    check(vec![
        row("a host", host.clone(), Good("/O=Grid/CN=h.example"), true),
        row("a host's proxy", full(&host), Good("/O=Grid/CN=h.example"), true),
        row("RSA", proxy, Limited("/O=Grid/CN=bob"), true),
    ]);
}

#[test]
fn signatures_must_be_genuine() {
    let mut proxy_forged = depth(1);
    proxy_forged.certificate = forged(&proxy_forged.certificate);
    // OpenSSL sees no proxies but those of RFC 3820.
    let (mut draft_forged, mut legacy_forged) = (draft(&ALICE, Policy::InheritAll), legacy(&ALICE, Policy::Limited));
    draft_forged.certificate = forged(&draft_forged.certificate);
    legacy_forged.certificate = forged(&legacy_forged.certificate);
    let mut middle_forged = depth(2);
    middle_forged.chain[0] = forged(&middle_forged.chain[0]);
    let mut user_forged = ALICE.clone();
    user_forged.certificate = forged(&user_forged.certificate);
    let mallory = OwnChain { key: make::key(KeyKind::P256).unwrap(), ..ALICE.clone() };
    let mut swapped = depth(1);
    swapped.chain = vec![person(ALICE_NAME, &CA).certificate];
    let twin = authority("/O=Grid/CN=CA", None, life(1_000_000), None);
    let impostor = person(ALICE_NAME, &twin);
    let mut brought = impostor.clone();
    brought.chain = vec![twin.certificate.clone()];
    let mut gap = depth(2);
    gap.chain.remove(0);
    check(vec![
        row("a forged proxy", proxy_forged, Bad("its signature is not that of its issuer"), false),
        row("a forged draft proxy", draft_forged, Bad("its signature is not that of its issuer"), false),
        row("a forged legacy proxy", legacy_forged, Bad("its signature is not that of its issuer"), false),
        row("a forged proxy in the middle", middle_forged, Bad("its signature is not that of its issuer"), false),
        row("a forged user", user_forged, Bad("signature"), false),
        row(
            "a proxy by somebody without the key",
            full(&mallory),
            Bad("its signature is not that of its issuer"),
            false,
        ),
        row("a proxy below a namesake", swapped, Bad("its signature is not that of its issuer"), false),
        row("an authority of the same name", impostor, Bad(""), false),
        row("an authority of the same name, brought along", brought, Bad(""), false),
        row("a proxy without its issuer", gap, Bad("was not sent"), false),
    ]);
}

#[test]
fn nobody_signs_for_others() {
    let bob = bent_person(&ALICE, |draft| make::Draft { subject: make::name("/O=Grid/CN=bob").unwrap(), ..draft });
    let own = authority("/O=Grid/CN=mine", None, life(9000), Some(&ALICE));
    let victim = person("/O=Grid/CN=bob", &own);
    let name = |text: &str| make::name(text).unwrap();
    let renamed = |subject: Vec<u8>| bent(&ALICE, |draft| make::Draft { subject, ..draft });
    let alice = name(ALICE_NAME);
    let common = |text: &[u8]| sequence(&[&encode(tag::OID, &[&[0x55, 4, 3]]), &encode(tag::UTF8_STRING, &[text])]);
    let pair = encode(tag::SET, &[&common(b"1"), &common(b"2")]);
    let two = renamed(sequence(&[&alice[2..], &pair]));
    let rule = "a proxy's name must be its issuer's and one common name more";
    let unknown = authority("/O=Grid/CN=Unknown", None, life(9000), None);
    let key = make::key(KeyKind::P256).unwrap();
    let certificate = make::self_signed(ALICE_NAME, &key, &Purpose::Person, life(9000)).unwrap();
    let by_authority =
        sign(make::proxy_draft(&CA, &ProxyKind::rfc(Policy::InheritAll), life(9000)).unwrap(), &CA, KeyKind::P256);
    check(vec![
        row("a user who signs another", bob, Bad(""), false),
        row("a user's own authority", victim, Bad(""), false),
        row("a proxy of another's name", renamed(name("/O=Grid/CN=bob/CN=1")), Bad(rule), false),
        row("a proxy two names below", renamed(name("/O=Grid/CN=alice/CN=1/CN=2")), Bad(rule), false),
        row("a proxy with its issuer's name", renamed(alice.clone()), Bad(rule), false),
        row("a proxy that grew another part", renamed(name("/O=Grid/CN=alice/OU=1")), Bad(rule), false),
        row("a proxy that grew two parts in one", two, Bad(rule), false),
        row(
            "a stranger's authority",
            person(ALICE_NAME, &unknown),
            Bad("its issuer /O=Grid/CN=Unknown is not trusted"),
            false,
        ),
        row("signed by himself", OwnChain { certificate, key, chain: Vec::new() }, Bad("not trusted"), false),
        row("an authority as a peer", CA.clone(), Bad("an authority's certificate speaks for nobody"), true),
        row("an authority's proxy", by_authority, Bad("is an authority and may not sign proxies"), None),
    ]);
}

#[test]
fn every_life_counts() {
    let user = |life: Life| bent_person(&CA, |draft| make::Draft { life, ..draft });
    let proxy = |signer: &OwnChain, life: Life| bent(signer, |draft| make::Draft { life, ..draft });
    let kind = ProxyKind { form: Form::Draft, policy: Policy::InheritAll, path_length: None };
    let old_draft = make::Draft { life: between(-900, -1), ..make::proxy_draft(&ALICE, &kind, life(900)).unwrap() };
    let old_draft = sign(old_draft, &ALICE, KeyKind::P256);
    let ended = authority("/O=Grid/CN=Ended", None, between(-900, -10), None);
    let coming = authority("/O=Grid/CN=Coming", None, between(100, 900), None);
    let by = |signer: &OwnChain| {
        let issuer = signer.certificate.subject_name().to_der().unwrap();
        bent_person(signer, |draft| make::Draft { issuer, ..draft })
    };
    let with = |row: Row, authority: &OwnChain| {
        row.file(file_of(authority, "0"), authority.certificate.to_pem().unwrap())
            .file(file_of(authority, "signing_policy"), world::POLICY)
    };
    check(vec![
        row("a user who has expired", user(between(-900, -1)), Expired, false),
        row("a proxy that has expired", proxy(&ALICE, between(-900, -1)), Expired, false),
        row("a draft proxy that has expired", old_draft, Expired, false),
        row("a proxy of a user who has expired", proxy(&user(between(-900, -1)), between(-900, 900)), Expired, false),
        row(
            "a good proxy below one that has expired",
            proxy(&proxy(&ALICE, between(-900, -1)), between(-9, 9)),
            Expired,
            false,
        ),
        with(row("an authority that has expired", by(&ended), Expired, false), &ended),
        row("a user to come", user(between(60, 900)), Bad("not good before"), false),
        row("a proxy to come", proxy(&ALICE, between(60, 900)), Bad("not good before"), false),
        row(
            "a proxy below one to come",
            proxy(&proxy(&ALICE, between(60, 900)), between(-9, 9)),
            Bad("not good before"),
            false,
        ),
        with(row("an authority to come", by(&coming), Bad("not good before"), false), &coming),
        row("a proxy in its last seconds", proxy(&ALICE, between(-900, 1)), Good(ALICE_NAME), true),
    ]);
}

#[test]
fn proxies_say_what_proxies_may_say() {
    let extra = |oid: Oid<'static>, critical, value: Vec<u8>| bent(&ALICE, |draft| draft.with(oid, critical, value));
    let info = |critical, value: Vec<u8>| {
        bent(&ALICE, |mut draft| {
            draft.extensions.retain(|(oid, ..)| *oid != oid::PROXY_INFO.to_string());
            draft.with(oid::PROXY_INFO, critical, value)
        })
    };
    let policy = |language: Oid<'_>, body: &[u8]| sequence(&[&encode(tag::OID, &[language.bytes()]), body]);
    let plain = sequence(&[&policy(oid::INHERIT_ALL, b"")]);
    let body = encode(tag::OCTET_STRING, &[b"do little"]);
    let truth = encode(tag::BOOLEAN, &[&[0xff]]);
    let names = sequence(&[&encode(tag::implicit(2), &[b"h.example"])]);
    let unsigning = bent_person(&CA, |draft| draft.with(oid::KEY_USAGE, true, vec![3, 2, 5, 0x20]));
    check(vec![
        row("an alternative name", extra(oid::SUBJECT_ALT_NAME, false, names.clone()), Bad("alternative name"), false),
        row("an issuer's alternative name", extra(oid::ISSUER_ALT_NAME, false, names), Bad("alternative name"), false),
        row(
            "an authority and a proxy",
            extra(oid::BASIC_CONSTRAINTS, true, sequence(&[&truth])),
            Bad("proxy and an authority"),
            false,
        ),
        row("both forms", extra(oid::PROXY_INFO_DRAFT, true, plain.clone()), Bad("stands twice"), false),
        // Without the mark others would take it for an end entity: OpenSSL reads it as a proxy all the same.
        row("not critical", info(false, plain), Bad("not marked as critical"), true),
        row(
            "a policy with a text",
            info(true, sequence(&[&policy(oid::INHERIT_ALL, &body)])),
            Bad("restricted by a policy"),
            None,
        ),
        row(
            "a policy in another language",
            info(true, sequence(&[&policy(oid::VOMS, b"")])),
            Bad("restricted by a policy"),
            true,
        ),
        row("nonsense for information", info(true, sequence(&[])), Bad("cannot be read"), false),
        row(
            "a critical extension nobody knows",
            extra(oid::VOMS_TAGS, true, vec![5, 0]),
            Bad("not understood here (1.3.6.1.4.1.8005"),
            false,
        ),
        row("an extension nobody knows", extra(oid::VOMS_TAGS, false, vec![5, 0]), Good(ALICE_NAME), true),
        row("a signer whose key must not sign", full(&unsigning), Bad("does not allow signing"), false),
    ]);
}

#[test]
fn rights_only_shrink() {
    let rfc_below = |above: &OwnChain| full(above);
    let bound = bounded(&ALICE, 1);
    check(vec![
        // OpenSSL does not know what limited means.
        row("full below limited", full(&limited(&ALICE)), Bad("a full proxy cannot come from a limited one"), true),
        row(
            "limited below full below limited",
            limited(&full(&limited(&ALICE))),
            Bad("cannot come from a limited one"),
            true,
        ),
        row("draft below RFC", draft(&full(&ALICE), Policy::InheritAll), Bad("mixes"), false),
        row("legacy below RFC", legacy(&full(&ALICE), Policy::InheritAll), Bad("mixes"), false),
        row("RFC below legacy", rfc_below(&legacy(&ALICE, Policy::InheritAll)), Bad("mixes"), false),
        row("RFC below draft", rfc_below(&draft(&ALICE, Policy::InheritAll)), Bad("mixes"), false),
        row("one below a bound of none", full(&bounded(&ALICE, 0)), Bad("more proxies are below it"), false),
        row("two below a bound of one", full(&full(&bound)), Bad("more proxies are below it"), false),
        row(
            "a draft bound",
            draft(&proxy(&ALICE, Form::Draft, Policy::InheritAll, Some(0)), Policy::Limited),
            Bad("more proxies are below it"),
            false,
        ),
        row("eleven proxies", depth(11), Bad("more than 10 proxies"), None),
    ]);
    let odd = independent(&limited(&ALICE));
    let others: Vec<&X509Ref> = odd.chain.iter().map(AsRef::as_ref).collect();
    let judged = judge(Kinds::default()).judge(&odd.certificate, &others, Timestamp::from_secs(NOW)).unwrap();
    assert!(judged.independent && judged.peer.limited, "an independent proxy below a limited one is limited, too");
}

#[test]
fn kinds_can_be_left_out() {
    let none = judge(Kinds { legacy: false, draft: false });
    for (chain, words) in
        [(draft(&ALICE, Policy::Limited), "draft proxies"), (legacy(&ALICE, Policy::Limited), "legacy proxies")]
    {
        let others: Vec<&X509Ref> = chain.chain.iter().map(AsRef::as_ref).collect();
        let refusal = none.judge(&chain.certificate, &others, Timestamp::from_secs(NOW)).unwrap_err();
        assert!(refusal.fault.detail.starts_with(words), "{}", refusal.fault);
    }
}

#[test]
fn weak_keys_and_digests_are_refused() {
    let digest = |digest: MessageDigest| bent(&ALICE, |draft| make::Draft { digest, ..draft });
    let bob = make::issue("/O=Grid/CN=bob", KeyKind::Rsa(2048), &Purpose::Person, life(50_000), &CA).unwrap();
    let old = bent(&bob, |draft| make::Draft { digest: MessageDigest::md5(), ..draft });
    let user = bent_person(&CA, |draft| make::Draft { digest: MessageDigest::sha1(), ..draft });
    let weak = |bits: u32| {
        let key = PKey::from_rsa(Rsa::generate(bits).unwrap()).unwrap();
        let certificate = make::proxy(&ALICE, &key, &ProxyKind::rfc(Policy::InheritAll), life(900)).unwrap();
        OwnChain { certificate, key, chain: vec![ALICE.certificate.clone()] }
    };
    check(vec![
        row("a proxy signed with MD5", old, Bad("signature is too weak"), false),
        row("a proxy signed with SHA-1", digest(MessageDigest::sha1()), Bad("signature is too weak"), false),
        row("a user signed with SHA-1", user, Bad("too weak"), false),
        row("a proxy with RSA-512", weak(512), Bad("its key is too weak"), false),
        row("a proxy with RSA-1024", weak(1024), Bad("its key is too weak"), false),
        row("a proxy signed with SHA-512", digest(MessageDigest::sha512()), Good(ALICE_NAME), true),
    ]);
}

#[test]
fn authorities_sign_what_their_policies_allow() {
    let policy = |name: &'static str, verdict, text: &str| {
        row(name, full(&ALICE), verdict, true).file(file_of(&CA, "signing_policy"), text)
    };
    let only = |subjects: &str| {
        format!("access_id_CA X509 '/O=Grid/CN=CA' pos_rights globus CA:sign cond_subjects globus '{subjects}'")
    };
    check(vec![
        policy("a missing policy", Bad("there is no "), ""),
        policy(
            "a policy for somebody else",
            Bad("does not let it sign"),
            &only("\"/O=Grid/*\"").replace("CN=CA", "CN=CB"),
        ),
        policy("a policy for other names", Bad("does not let it sign"), &only("\"/O=Other/*\"")),
        policy("a policy that is nonsense", Bad("cannot be used: line 1"), "nonsense"),
        policy("a policy with this name alone", Good(ALICE_NAME), &only("\"/O=Other/*\" \"/o=grid/cn=ALICE\"")),
        policy("a policy with a star in the middle", Good(ALICE_NAME), &only("\"/O=*/CN=alice\"")),
        policy(
            "a policy that denies",
            Bad("does not let it sign"),
            &only("\"/O=Grid/*\"").replace("pos_rights", "neg_rights"),
        ),
    ]);
}

#[test]
fn what_was_revoked_is_refused() {
    let serial = ALICE.certificate.serial_number().to_bn().unwrap().to_vec();
    let list = |signer: &OwnChain, serials: &[&[u8]], life| {
        make::revocations(signer, serials, life).unwrap().to_pem().unwrap()
    };
    let twin = OwnChain { key: make::key(KeyKind::P256).unwrap(), ..CA.clone() };
    let listed = |name, verdict, text: Vec<u8>| row(name, full(&ALICE), verdict, true).file(file_of(&CA, "r0"), text);
    let current = list(&CA, &[&[1, 2, 3]], life(900));
    let outdated = list(&CA, &[], between(-900, -1));
    check(vec![
        listed("a list of others", Good(ALICE_NAME), current.clone()),
        listed("revoked", Bad("/O=Grid/CN=CA has revoked it"), list(&CA, &[&[1], &serial], life(900))),
        listed("a list out of date", Bad("out of date"), outdated.clone()),
        listed("a list to come", Bad("not good yet"), list(&CA, &[], between(60, 900))),
        listed("a forged list", Bad("not signed by the authority"), list(&twin, &[], life(900))),
        listed("a list that is nonsense", Bad("cannot be told"), b"nonsense".to_vec()),
        listed("nonsense beside a good list", Good(ALICE_NAME), b"nonsense".to_vec())
            .file(file_of(&CA, "r1"), current.clone()),
        listed("an old list beside a new one", Good(ALICE_NAME), outdated).file(file_of(&CA, "r1"), current),
    ]);
}

#[test]
fn what_a_user_brings_is_its_own_anchor() {
    // As `globus-url-copy -data-cred auto` makes it: signed by itself with MD5, serial number 0, no extensions.
    let key = make::key(KeyKind::Rsa(2048)).unwrap();
    let name = make::name("/C=US/CN=Globus DCSC Cert").unwrap();
    let draft = make::Draft::new(name.clone(), name, life(900)).unwrap();
    let draft = make::Draft { serial: vec![0], digest: MessageDigest::md5(), ..draft };
    let own = OwnChain { certificate: draft.sign(&key, &key).unwrap(), key, chain: Vec::new() };
    let proxy = full(&ALICE);
    let cases = [
        (&own, vec![own.certificate.clone()], Ok("/C=US/CN=Globus DCSC Cert")),
        (&*ALICE, vec![ALICE.certificate.clone()], Ok(ALICE_NAME)),
        (&proxy, vec![ALICE.certificate.clone()], Ok(ALICE_NAME)),
        (&proxy, vec![CA.certificate.clone()], Ok(ALICE_NAME)),
        (
            &proxy,
            vec![own.certificate.clone()],
            Err("its issuer /O=Grid/CN=CA is not trusted: no certificate of it is in what the user brought"),
        ),
    ];
    for (chain, anchors, expected) in cases {
        let judge = Judge::new(Arc::new(Anchors::default().and(anchors).unwrap()));
        let others: Vec<&X509Ref> = chain.chain.iter().map(AsRef::as_ref).collect();
        match (judge.judge(&chain.certificate, &others, Timestamp::from_secs(NOW)), expected) {
            (Ok(judged), Ok(subject)) => assert_eq!(judged.peer.subject, subject),
            (Err(refusal), Err(words)) => assert!(refusal.fault.detail.starts_with(words), "{}", refusal.fault),
            (verdict, expected) => panic!("{expected:?}: {verdict:?}"),
        }
    }
}

#[test]
fn giants_and_nonsense_end_early() {
    let mut crowd = depth(1);
    crowd.chain.extend((0..20).map(|_| person("/O=Grid/CN=x", &CA).certificate));
    let mut bloated = ALICE.clone();
    bloated.chain = vec![bent(&ALICE, |draft| draft.with(oid::VOMS, false, vec![0; 300 << 10])).certificate];
    let called = |kind, text: &[u8]| {
        let part = |oid: &[u8], kind, text: &[u8]| {
            encode(tag::SET, &[&sequence(&[&encode(tag::OID, &[oid]), &encode(kind, &[text])])])
        };
        let subject =
            sequence(&[&part(&[0x55, 4, 10], tag::PRINTABLE_STRING, b"Grid"), &part(&[0x55, 4, 3], kind, text)]);
        bent_person(&CA, |draft| make::Draft { subject, ..draft })
    };
    let many: Vec<u8> = (0..300u16)
        .flat_map(|number| encode(tag::OID, &[&[0x2b, (number / 100) as u8, (number % 100) as u8]]))
        .collect();
    let purposes = bent_person(&CA, |draft| draft.with(oid::EXTENDED_KEY_USAGE, false, sequence(&[&many])));
    check(vec![
        row("a crowd", crowd, Bad("too many certificates"), None),
        row("a giant", bloated, Bad("too many certificates"), None),
        row("a name with a NUL", called(tag::PRINTABLE_STRING, b"alice\0.evil"), Bad("NUL"), None),
        row("a name that reads as another one", called(tag::BMP_STRING, b"alic"), Bad("those of another name"), true),
        row("a wide name of plain letters", called(tag::BMP_STRING, b"\0a"), Good(r"/O=Grid/CN=\x00a"), true),
        row("hundreds of purposes", purposes, Bad("too many purposes"), None),
        row(
            "a path length of four billion",
            proxy(&ALICE, Form::Rfc, Policy::InheritAll, Some(u32::MAX)),
            Good(ALICE_NAME),
            None,
        ),
    ]);
    assert_eq!(encode_count(u32::MAX).len(), 7);
}

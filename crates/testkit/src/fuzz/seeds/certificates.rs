//! Certificates as nobody issues them: what is right with each of them and what is wrong is known by its name.

use whimbrel_proto::x509::der::{encode, encode_count, tag};
use whimbrel_proto::x509::oid::{self, Oid};

/// One of each kind of part that certificates of real authorities lack.
pub(super) fn inputs() -> Vec<(&'static str, Vec<u8>)> {
    let plain = Draft::default();
    let of = |extensions: &[Vec<u8>]| Draft { extensions: extensions.concat(), ..plain.clone() }.der();
    let proxy = |critical| part(oid::PROXY_INFO, critical, &policy(&[], oid::LIMITED, &[]));
    let names = |inside: &[u8]| encode(tag::SEQUENCE, &[inside]);
    let alt_name = |kind: u8, value: &[u8]| part(oid::SUBJECT_ALT_NAME, false, &names(&encode(kind, &[value])));
    let usage = |bits: &[u8]| part(oid::KEY_USAGE, true, &encode(tag::BIT_STRING, &[bits]));
    let basic = |inside: &[u8]| part(oid::BASIC_CONSTRAINTS, true, &names(inside));
    let number = |bytes: &[u8]| encode(tag::INTEGER, &[bytes]);
    let purposes = encode(tag::SEQUENCE, &[&encode(tag::OID, &[&[0x2b, 6, 1, 5, 5, 7, 3, 2]])]);
    let long_arc = [&[0x2b][..], &[0x81; 19], &[1]].concat();
    vec![
        ("names-of-all-kinds", Draft { subject: strange_name(), ..plain.clone() }.der()),
        ("name-not-utf8", Draft { subject: name(tag::UTF8_STRING, b"\xff"), ..plain.clone() }.der()),
        ("name-not-ascii", Draft { subject: name(tag::PRINTABLE_STRING, b"\xff"), ..plain.clone() }.der()),
        ("name-universal-odd", Draft { subject: name(tag::UNIVERSAL_STRING, b"abc"), ..plain.clone() }.der()),
        ("name-without-value", Draft { subject: names(&encode(tag::SET, &[])), ..plain.clone() }.der()),
        ("legacy-limited", Draft { subject: grown(b"limited proxy"), ..plain.clone() }.der()),
        ("legacy-named-otherwise", Draft { subject: grown(b"bob"), ..plain.clone() }.der()),
        ("proxy-authority", of(&[proxy(true), basic(&encode(tag::BOOLEAN, &[&[0xff]]))])),
        ("proxy-not-critical", of(&[proxy(false)])),
        ("proxy-alt-name", of(&[proxy(true), alt_name(tag::implicit(2), b"h")])),
        ("proxy-issuer-alt-name", of(&[proxy(true), part(oid::ISSUER_ALT_NAME, false, &names(b""))])),
        ("proxy-twice", of(&[proxy(true), part(oid::PROXY_INFO_DRAFT, true, &policy(&[], oid::LIMITED, &[]))])),
        ("proxy-restricted", of(&[part(oid::PROXY_INFO, true, &policy(&encode_count(3), oid::VOMS, &[]))])),
        (
            "proxy-draft-length",
            of(&[part(
                oid::PROXY_INFO_DRAFT,
                true,
                &policy(&[], oid::INHERIT_ALL, &encode(tag::context(1), &[&encode_count(2)])),
            )]),
        ),
        ("authority-length", of(&[basic(&[encode(tag::BOOLEAN, &[&[0xff]]), number(&[5, 5, 5, 5, 5])].concat())])),
        ("length-negative", of(&[basic(&number(&[0x80]))])),
        ("number-long-form", of(&[basic(&number(&[0xff, 0x80]))])),
        ("number-empty", of(&[basic(&number(&[]))])),
        ("flag-strange", of(&[basic(&encode(tag::BOOLEAN, &[&[1]]))])),
        ("addresses", of(&[alt_name(tag::implicit(7), &[0x20; 16])])),
        ("address-odd", of(&[alt_name(tag::implicit(7), &[1, 2, 3])])),
        ("mail", of(&[alt_name(tag::implicit(1), b"a@example.org")])),
        ("mail-with-nul", of(&[alt_name(tag::implicit(1), b"a\0b")])),
        ("uri", of(&[alt_name(tag::implicit(6), b"https://h/")])),
        ("usage", of(&[usage(&[1, 0x86]), part(oid::EXTENDED_KEY_USAGE, false, &purposes)])),
        ("usage-dirty", of(&[usage(&[1, 0x87])])),
        ("usage-of-nothing", of(&[usage(&[0]), part(oid::SUBJECT_KEY_ID, false, &encode(tag::OCTET_STRING, &[b"k"]))])),
        ("usage-impossible", of(&[usage(&[9, 0x80])])),
        (
            "unknown-critical",
            of(&[encode(
                tag::SEQUENCE,
                &[
                    &encode(tag::OID, &[&long_arc]),
                    &encode(tag::BOOLEAN, &[&[0xff]]),
                    &encode(tag::OCTET_STRING, &[b""]),
                ],
            )]),
        ),
        ("extension-twice", of(&[usage(&[1, 0x86]), usage(&[1, 0x86])])),
        ("version-1-extended", Draft { version: 1, extensions: usage(&[1, 0x86]), ..plain.clone() }.der()),
        ("version-1", Draft { version: 1, ..plain.clone() }.der()),
        ("two-algorithms", Draft { algorithms: [&[0x2a], &[0x2b]], ..plain.clone() }.der()),
        ("time-general", Draft { until: encode(tag::GENERALIZED_TIME, &[b"21260101000000Z"]), ..plain.clone() }.der()),
        ("time-odd", Draft { until: encode(tag::UTC_TIME, &[b"2601010000Z"]), ..plain }.der()),
    ]
}

/// Revocation lists that nobody has signed, with extensions (RFC 5280 §5.2): what is critical there decides what a list means.
pub(super) fn lists() -> Vec<(&'static str, Vec<u8>)> {
    let key = part(oid::AUTHORITY_KEY_ID, true, &encode(tag::SEQUENCE, &[]));
    // cRLNumber, and the deltaCRLIndicator of a list that is a part.
    let number = part(Oid::new(&[0x55, 0x1d, 0x14]).expect("an identifier"), false, &encode_count(7));
    let delta = part(Oid::new(&[0x55, 0x1d, 0x1b]).expect("an identifier"), true, &encode_count(7));
    let list = |extensions: &[u8]| {
        let algorithm = encode(tag::SEQUENCE, &[&encode(tag::OID, &[&[0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]])]);
        let from = encode(tag::UTC_TIME, &[b"200101000000Z"]);
        let tagged = encode(tag::context(0), &[&encode(tag::SEQUENCE, &[extensions])]);
        let name = name(tag::PRINTABLE_STRING, b"a");
        let signed = encode(tag::SEQUENCE, &[&encode_count(1), &algorithm, &name, &from, &tagged]);
        encode(tag::SEQUENCE, &[&signed, &algorithm, &encode(tag::BIT_STRING, &[&[0, 1]])])
    };
    vec![("list-extended", list(&[key, number].concat())), ("list-of-changes", list(&delta))]
}

/// The parts of a certificate that differ.
#[derive(Clone)]
struct Draft {
    version: u8,
    subject: Vec<u8>,
    until: Vec<u8>,
    extensions: Vec<u8>,
    /// Inside and outside of what is signed.
    algorithms: [&'static [u8]; 2],
}

impl Default for Draft {
    fn default() -> Self {
        let until = encode(tag::UTC_TIME, &[b"300101000000Z"]);
        Self { version: 3, subject: grown(b"1"), until, extensions: Vec::new(), algorithms: [&[0x2a], &[0x2a]] }
    }
}

impl Draft {
    fn der(&self) -> Vec<u8> {
        let [inside, outside] = self.algorithms.map(|oid| encode(tag::SEQUENCE, &[&encode(tag::OID, &[oid])]));
        let version = match self.version {
            1 => Vec::new(),
            version => encode(tag::context(0), &[&encode_count(u32::from(version) - 1)]),
        };
        let validity = encode(tag::SEQUENCE, &[&encode(tag::UTC_TIME, &[b"200101000000Z"]), &self.until]);
        let extensions = match &self.extensions[..] {
            [] => Vec::new(),
            list => encode(tag::context(3), &[&encode(tag::SEQUENCE, &[list])]),
        };
        let issuer = name(tag::PRINTABLE_STRING, b"a");
        let key = encode(tag::SEQUENCE, &[&inside, &encode(tag::BIT_STRING, &[&[0, 1]])]);
        let fields: [&[u8]; 8] =
            [&version, &encode_count(7), &inside, &issuer, &validity, &self.subject, &key, &extensions];
        let signed = encode(tag::SEQUENCE, &fields);
        encode(tag::SEQUENCE, &[&signed, &outside, &encode(tag::BIT_STRING, &[&[0, 1]])])
    }
}

fn attribute(kind: Oid<'_>, string: u8, value: &[u8]) -> Vec<u8> {
    let pair = encode(tag::SEQUENCE, &[&encode(tag::OID, &[kind.bytes()]), &encode(string, &[value])]);
    encode(tag::SET, &[&pair])
}

/// A name of one commonName.
fn name(string: u8, value: &[u8]) -> Vec<u8> {
    encode(tag::SEQUENCE, &[&attribute(oid::COMMON_NAME, string, value)])
}

/// The issuer's name and one commonName more.
fn grown(common: &[u8]) -> Vec<u8> {
    let parts = [
        attribute(oid::COMMON_NAME, tag::PRINTABLE_STRING, b"a"),
        attribute(oid::COMMON_NAME, tag::PRINTABLE_STRING, common),
    ];
    encode(tag::SEQUENCE, &[&parts.concat()])
}

fn strange_name() -> Vec<u8> {
    let parts = [
        attribute(oid::COMMON_NAME, tag::T61_STRING, b"J\xfcrg"),
        attribute(oid::COMMON_NAME, tag::UNIVERSAL_STRING, b"\0\0\0a\0\x01\xf6\0"),
        attribute(oid::COMMON_NAME, tag::BMP_STRING, b"\0b\x20\xac"),
        attribute(oid::COMMON_NAME, tag::IA5_STRING, b"host/name+x=1/CN=2\\3+a"),
        attribute(oid::COMMON_NAME, tag::BIT_STRING, b"\0\x01\xff"),
        attribute(oid::COMMON_NAME, tag::GENERAL_STRING, b"g"),
        attribute(oid::PROXY_INFO, tag::UTF8_STRING, "\u{20ac} \t B".as_bytes()),
    ];
    encode(tag::SEQUENCE, &[&parts.concat()])
}

fn part(kind: Oid<'_>, critical: bool, value: &[u8]) -> Vec<u8> {
    let flag = if critical { encode(tag::BOOLEAN, &[&[0xff]]) } else { Vec::new() };
    encode(tag::SEQUENCE, &[&encode(tag::OID, &[kind.bytes()]), &flag, &encode(tag::OCTET_STRING, &[value])])
}

/// proxyCertInfo with something before and behind its policy.
fn policy(before: &[u8], language: Oid<'_>, behind: &[u8]) -> Vec<u8> {
    let policy = encode(tag::SEQUENCE, &[&encode(tag::OID, &[language.bytes()])]);
    encode(tag::SEQUENCE, &[before, &policy, behind])
}

//! Inputs that every corpus keeps, made from real values: a fuzzer would not guess a password hash or a frame of a message.

mod certificates;
mod sample;
mod written;

use openssl::x509::X509;
use whimbrel_dtn::mover::codec::encode;
use whimbrel_dtn::mover::message::{Framed, FromMover, ToMover};
use whimbrel_engine::journal::{Header, Leaf, Writer, encode_beginnings, encode_header, encode_holes, encode_leaves};
use whimbrel_engine::listing::Timestamp;
use whimbrel_engine::tally::{encode_bound, encode_files};
use whimbrel_proto::reply::error_body::{self, ErrorBody};

use self::sample::samples;
use super::journal::unsealed;

/// What names of seeds begin with in the corpus folders; inputs that were found have no such names.
pub const PREFIX: &str = "seed-";

/// The seeds of a target by name; many targets have none.
///
/// `cargo run -p whimbrel-testkit --example fuzz_seeds` writes them to the corpus folders.
pub fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let named = |(name, bytes): &(&str, &[u8])| (format!("{PREFIX}{name}"), bytes.to_vec());
    let mut seeds: Vec<_> = written::inputs(target).iter().map(named).collect();
    match target {
        "certificate" => seeds.extend(own(&certificates::inputs())),
        "credentials" => seeds.extend(own(&[certificates::lists(), answers()].concat())),
        "journal" => seeds.extend(journals()),
        "kept_records" => seeds.extend(own(&kept())),
        "mover_codec" => seeds.extend([messages::<ToMover>("to"), messages::<FromMover>("from")].concat()),
        "reply" => seeds.push((format!("{PREFIX}errors"), errors())),
        _ => {}
    }
    seeds
}

fn own(inputs: &[(&str, Vec<u8>)]) -> Vec<(String, Vec<u8>)> {
    inputs.iter().map(|(name, bytes)| (format!("{PREFIX}{name}"), bytes.clone())).collect()
}

/// Answers to a request that lack a part, or whose parts do not belong together; and a request that was changed.
fn answers() -> Vec<(&'static str, Vec<u8>)> {
    let blocks = |text: &'static str| text.split_inclusive("-----END CERTIFICATE-----\n").collect::<Vec<_>>();
    let right = blocks(include_str!("seeds/answer.pem"));
    let [proxy, alice, authority] = right[..] else { panic!("an answer has three certificates") };
    let other = blocks(include_str!("seeds/grid-proxy.pem"))[0];
    let text = |parts: &[&str]| parts.concat().into_bytes();
    let mut forged = include_bytes!("seeds/request-rfc.der").to_vec();
    let at = forged.windows(4).position(|four| four == b"NULL").expect("its name");
    forged[at] = b'X';
    let strange = certificates::inputs().into_iter().find(|(name, _)| *name == "proxy-not-critical");
    let strange = openssl::base64::encode_block(&strange.map(|(_, der)| der).unwrap_or_default());
    let lines: String =
        strange.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line).into_owned() + "\n").collect();
    let strange = format!("-----BEGIN CERTIFICATE-----\n{lines}-----END CERTIFICATE-----\n");
    vec![
        ("answer-contradicting", text(&[proxy, &strange])),
        ("answer-alone", text(&[proxy])),
        ("answer-of-authority", text(&[proxy, authority])),
        ("answer-of-proxy", text(&[proxy, other])),
        ("answer-of-proxies", text(&[proxy, other, alice])),
        ("answer-mixed", text(&[proxy, other, authority])),
        ("answer-of-person", text(&[alice, authority])),
        ("request-forged", forged),
        ("no-proxy", X509::from_pem(alice.as_bytes()).and_then(|read| read.to_der()).expect("a certificate")),
        ("for-another-key", X509::from_pem(other.as_bytes()).and_then(|read| read.to_der()).expect("a certificate")),
    ]
}

/// A tally, and tokens of sessions of each manner: version, manner, then which file, then the mode that it keeps.
fn kept() -> Vec<(&'static str, Vec<u8>)> {
    let token = |manner, mode: u32| [&[1, manner][..], &[7; 20], &mode.to_le_bytes()].concat();
    let tokens = [
        ("staged", 0, 0o640),
        ("in-place", 1, 0o6755),
        ("special", 2, 0),
        ("continued", 3, u32::MAX),
        ("created", 4, 0),
        ("strange", 9, 0),
    ];
    let tokens = tokens.map(|(name, manner, mode)| (name, token(manner, mode)));
    let memory = [&[7; 8][..], &0o6640_u32.to_le_bytes(), &[1]].concat();
    [("tally", tally()), ("memory", memory)].into_iter().chain(tokens).collect()
}

/// Records of a tally of two runs and more, without its header and its CRCs; at the end one that is none.
fn tally() -> Vec<u8> {
    let bound = |nanos| encode_bound(Timestamp { secs: 5, nanos });
    let records =
        [encode_files(&[1 << 77, 2], true), bound(7), encode_files(&[3], false), bound(0), bound(1_000_000_000)];
    unsealed(&records.concat())
}

/// Journals as they are written, torn and repeated; and their records, which get their CRCs when they are replayed.
fn journals() -> Vec<(String, Vec<u8>)> {
    let header = |size, modified, algorithm: &str| Header { size, modified, leaf: 4096, algorithm: algorithm.into() };
    let written = |header: &Header, digest: usize, holes: &[std::ops::Range<u64>]| {
        let leaf = |start: u64| Leaf { range: start..(start + 4096).min(header.size), digest: vec![7; digest] };
        let leaves = [leaf(0), leaf(header.size / 4096 * 4096), leaf(0)];
        let (one, other) = (Writer(1), Writer(u64::MAX));
        let begun = [leaves[0].range.clone(), leaves[1].range.clone()];
        let parts = [
            encode_header(header),
            encode_beginnings(header, &begun, one, true),
            encode_beginnings(header, &begun[1..], other, false),
            encode_leaves(header, &leaves, one),
            encode_beginnings(header, &begun[..1], other, true),
            encode_leaves(header, &leaves[..2], other),
            encode_holes(header, holes, one),
        ];
        parts.map(|part| part.expect("a right journal")).concat()
    };
    let md5 = written(&header(20_000, Some((1_795_226_514, 500_000_000)), "MD5"), 16, &[4096..8192, 12_288..16_384]);
    let sha512 = written(&header(9000, None, "SHA512"), 64, &[]);
    let torn = md5[..md5.len() - 9].to_vec();
    let seeds = [
        ("records", unsealed(&md5)),
        ("records-twice", unsealed(&[&sha512[..], &sha512].concat())),
        ("two-versions", [&md5[..], &sha512].concat()),
        ("torn", torn),
        ("whole", md5),
    ];
    seeds.map(|(name, bytes)| (format!("{PREFIX}{name}"), bytes)).to_vec()
}

/// A structured error reply for every number that has a meaning of its own, and one that has none.
fn errors() -> Vec<u8> {
    let mut wire = Vec::new();
    for errno in [2, 13, 20, 21, 1, 28, 122, 27, 17, 111, 104, 16, 5] {
        let (code, cause) = error_body::from_errno(errno);
        let body = ErrorBody { errno: Some(errno), ..ErrorBody::new(cause) };
        body.to_reply(code).encode_prefixed(&mut wire);
    }
    wire
}

/// One frame for every variant of every enum in a direction's messages, and all lean ones in one stream.
fn messages<T: Framed>(way: &str) -> Vec<(String, Vec<u8>)> {
    let mut stream = Vec::new();
    let mut seeds = Vec::new();
    for (name, message) in samples::<T>() {
        let mut frame = Vec::new();
        encode(&message, &mut frame).expect("samples are small");
        if name.starts_with("lean") {
            stream.extend_from_slice(&frame);
        } else {
            seeds.push((format!("{PREFIX}{way}-{name}"), frame));
        }
    }
    seeds.push((format!("{PREFIX}{way}-stream"), stream));
    seeds
}

#[cfg(test)]
mod tests {
    use whimbrel_dtn::front::{DtnConfig, users::parse_users};
    use whimbrel_dtn::mover::codec::Decoder;
    use whimbrel_proto::x509::gridmap::GridMap;
    use whimbrel_proto::x509::policy::SigningPolicy;
    use whimbrel_proto::x509::{Certificate, Kind, voms};

    use super::*;

    #[test]
    fn seeds_of_certificates_are_certificates() {
        let of_authorities = written::inputs("certificate").iter().map(|(name, bytes)| (name, bytes.to_vec()));
        for (name, bytes) in of_authorities {
            let read = Certificate::parse(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
            let proxy = matches!(read.kind(), Ok(Kind::Proxy { .. }));
            assert_eq!(proxy, name.contains("proxy"), "{name}");
        }
        assert!(seeds("voms").iter().all(|(_, bytes)| voms::parse(bytes).is_ok_and(|list| list.len() == 1)));
        let files = |name: &str| seed("gsi_files", name).into_bytes();
        assert!(
            SigningPolicy::parse(&files("signing-policy"))
                .is_ok_and(|policy| policy.allows("/O=Grid/CN=Test CA", "/O=Grid/CN=x"))
        );
        let map = GridMap::parse(&files("gridmap"));
        assert_eq!((map.len(), map.faults().len()), (4, 2));
    }

    fn seed(target: &str, name: &str) -> String {
        let (_, bytes) = seeds(target).into_iter().find(|(seed, _)| seed == &format!("{PREFIX}{name}")).unwrap();
        String::from_utf8(bytes).unwrap()
    }

    fn count<T: Framed>(bytes: &[u8]) -> usize {
        let mut decoder = Decoder::<T>::new();
        decoder.push(bytes);
        std::iter::from_fn(|| decoder.next().unwrap()).count()
    }

    #[test]
    fn every_message_seed_is_one_message_of_its_direction() {
        for (name, bytes) in seeds("mover_codec").iter().filter(|(name, _)| !name.ends_with("stream")) {
            let count = if name.starts_with("seed-to") { count::<ToMover>(bytes) } else { count::<FromMover>(bytes) };
            assert_eq!(count, 1, "{name}");
        }
    }

    #[test]
    fn the_administrators_files_among_the_seeds_are_right_except_the_one_that_is_wrong() {
        assert_eq!(parse_users(&seed("users_config", "users")).unwrap().len(), 3);
        assert!(parse_users(&seed("users_config", "users-twice")).is_err());
        for config in ["config", "config-largest"] {
            DtnConfig::parse(&seed("users_config", config)).unwrap();
        }
    }
}

//! Inputs that every corpus keeps, made from real values: a fuzzer would not guess a password hash or a frame of a message.

mod sample;

use serde::Serialize;
use serde::de::DeserializeOwned;
use whimbrel_dtn::mover::codec::encode;
use whimbrel_dtn::mover::message::{FromMover, ToMover};
use whimbrel_engine::journal::{Header, Leaf, encode_header, encode_holes, encode_leaves};
use whimbrel_proto::reply::error_body::{self, ErrorBody};

use self::sample::samples;
use super::journal::unsealed;

/// What names of seeds begin with in the corpus folders; inputs that were found have no such names.
pub const PREFIX: &str = "seed-";

/// The seeds of a target by name; many targets have none.
///
/// `cargo run -p whimbrel-testkit --example fuzz_seeds` writes them to the corpus folders.
pub fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let seeds: &[(&str, &[u8])] = match target {
        "journal" => return journals(),
        "mover_codec" => return [messages::<ToMover>("to"), messages::<FromMover>("from")].concat(),
        "users_config" => &[
            ("users", include_bytes!("seeds/users")),
            ("users-twice", include_bytes!("seeds/users-twice")),
            ("config", include_bytes!("seeds/dtn.toml")),
            ("config-largest", include_bytes!("seeds/largest.toml")),
        ],
        "jwt" => &[
            ("wlcg", include_bytes!("seeds/token-wlcg")),
            ("scitoken", include_bytes!("seeds/token-scitoken")),
            ("compact", include_bytes!("seeds/token-compact")),
            ("answer", include_bytes!("seeds/token-answer")),
            ("answer-moved", b"\0\0\0HTTP/1.1 103 x\r\n\r\nHTTP/1.1 307 x\r\nLocation: /jwk?a\r\nContent-Length: 9\r\n\r\n"),
            ("no-algorithm", b"{\"alg\":\"none\"}\0{}\0{\"keys\":[]}"),
            ("name-twice", b"{\"alg\":\"ES256\"}\0{\"sub\":\"a\",\"sub\":\"b\"}\0{\"keys\":[{\"kty\":1}]}"),
        ],
        "records" => &[
            ("data", b"\x17\x05hello\x17\x00\x17\x01!"),
            ("ticket-in-parts", b"\x16\x05\x04\0\0\x03a\x16\x02bc\x17\x01d"),
            ("new-keys", b"\x16\x05\x18\0\0\x01\x01\x16\x05\x18\0\0\x01\0\x17\x01d"),
            ("farewell", b"\x17\x01d\x15\x02\x01\0\x17\x01e"),
            ("alert", b"\x15\x02\x01\x5a\x15\x02\x02\x2c"),
            ("in-clear", b"\xff\x07\x17\x03\x03\0\x02ab"),
        ],
        "mapping" => &[
            ("rules", include_bytes!("seeds/mapping-rules")),
            ("command", include_bytes!("seeds/mapping-command")),
            ("branches", b"[]\0a@b\0((a)|b)*.?@\\*\0\\{x{1}-{id}\0"),
        ],
        "certificate" => &[
            ("authority", include_bytes!("seeds/ca.der")),
            ("host", include_bytes!("seeds/host.der")),
            ("proxy-draft", include_bytes!("seeds/proxy-draft.der")),
            ("proxy-independent", include_bytes!("seeds/proxy-independent.der")),
            ("proxy-legacy", include_bytes!("seeds/proxy-legacy.der")),
            ("proxy-limited", include_bytes!("seeds/proxy-limited.der")),
            ("proxy-pathlen", include_bytes!("seeds/proxy-pathlen.der")),
            ("proxy-rfc", include_bytes!("seeds/proxy-rfc.der")),
            ("proxy-voms", include_bytes!("seeds/proxy-voms.der")),
            ("user", include_bytes!("seeds/user.der")),
            ("user-ec", include_bytes!("seeds/user-ec.der")),
        ],
        "gsi_files" => &[
            ("gridmap", include_bytes!("seeds/gridmap")),
            ("signing-policy", include_bytes!("seeds/signing_policy")),
        ],
        "voms" => &[("attributes", include_bytes!("seeds/voms.der"))],
        "client_machine" => &[
            ("session", include_bytes!("seeds/client")),
            ("tls", include_bytes!("seeds/client-tls")),
            ("gssapi", include_bytes!("seeds/client-gssapi")),
        ],
        "command" => &[
            ("chunks", include_bytes!("seeds/chunk-commands")),
            ("packs", include_bytes!("seeds/pack-commands")),
            ("probes", include_bytes!("seeds/probe-commands")),
        ],
        "protected_lines" => &[
            ("commands", include_bytes!("seeds/protected-commands")),
            ("replies", include_bytes!("seeds/protected-replies")),
            ("plain", b"220 h\r\n211-Ext\r\n SIZE\r\n211 End\r\n112-Perf Marker\r\n Timestamp: 1\r\n112 End.\r\n550-a\r\n550 End.\r\n"),
        ],
        "reply" => &[
            ("feat", include_bytes!("seeds/feat")),
            ("leaves", include_bytes!("seeds/leaves")),
            ("fates", include_bytes!("seeds/fates")),
            ("spent", include_bytes!("seeds/spent")),
            ("policy", include_bytes!("seeds/policy")),
            ("errors", &errors()),
        ],
        "server_machine" => &[
            ("site", include_bytes!("seeds/site")),
            ("chunks", include_bytes!("seeds/chunks")),
            ("early-news", include_bytes!("seeds/early")),
            ("packs", include_bytes!("seeds/packs")),
            ("probes", include_bytes!("seeds/probes")),
            ("holes", include_bytes!("seeds/holes")),
            ("policy", b"!C@\x04\nUSER u\nPASS p\nFEAT\nSITE POLICY\nSITE TASKID x\nSITE POLICY\nsite policy now\nREIN\nSITE POLICY\n"),
            ("site-not-utf8", b"USER u\nPASS p\nSITE CHGRP \xff /f\n"),
            ("site-not-announced", b"!C\x80\nUSER u\nPASS p\nSITE DCNONCE 00112233445566778899aabbccddeeff\n"),
            ("tls", include_bytes!("seeds/secure-tls")),
            ("gssapi", include_bytes!("seeds/secure-gssapi")),
            ("ssh", b"!C\x00\x20\nUSER u\nPASS p\nFEAT\nPROT P\nPASV\nSITE DCNONCE 00112233445566778899aabbccddeeff\nPASV\nDCAU A\nDCSC P cGVt\nDCAU A\nEPSV\nDCSC D\nSTAT\n"),
            ("epsv-all", b"USER u\nPASS p\nEPSV ALL\nPASV\nPORT 10,0,0,1,7,208\nEPSV\n"),
            ("stat-in-stat", b"USER u\nPASS p\n!M\nSTAT /\n!N\x06a\nSTAT\n!O\n"),
        ],
        _ => &[],
    };
    seeds.iter().map(|(name, bytes)| (format!("{PREFIX}{name}"), bytes.to_vec())).collect()
}

/// Journals as they are written, torn and repeated; and their records, which get their CRCs when they are replayed.
fn journals() -> Vec<(String, Vec<u8>)> {
    let header = |size, modified, algorithm: &str| Header { size, modified, leaf: 4096, algorithm: algorithm.into() };
    let written = |header: &Header, digest: usize, holes: &[std::ops::Range<u64>]| {
        let leaf = |start: u64| Leaf { range: start..(start + 4096).min(header.size), digest: vec![7; digest] };
        let leaves = [leaf(0), leaf(header.size / 4096 * 4096), leaf(0)];
        let parts = [encode_header(header), encode_leaves(header, &leaves), encode_holes(header, holes)];
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
fn messages<T: Serialize + DeserializeOwned>(way: &str) -> Vec<(String, Vec<u8>)> {
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
        for (name, bytes) in seeds("certificate") {
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

    fn count<T: DeserializeOwned>(bytes: &[u8]) -> usize {
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

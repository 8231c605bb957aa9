//! Arbitrary input: no panic, one final reply a line, bounded memory.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::op::{Leaf, StorageFacts};

/// Commands with arguments good and bad, to get far into the machine.
const PIECES: [&str; 75] = [
    "USER u",
    "PASS p",
    "PASV",
    "EPSV",
    "EPSV ALL",
    "SPAS 1",
    "PORT 10,0,0,1,7,208",
    "EPRT |1|10.0.0.1|9|",
    "SPOR 10,0,0,1,7,208 10,0,0,1,7,209",
    "OPTS PASV AllowDelayed=1",
    "OPTS RETR Parallelism=3,3,3;",
    "MODE E",
    "MODE S",
    "TYPE I",
    "TYPE X",
    "RETR /f",
    "STOR /f",
    "APPE f",
    "STOU",
    "ERET P 1 2 f",
    "ESTO A 1 f",
    "GET path=/f;pasv;",
    "PUT path=/f;port=10,0,0,1,7,208;",
    "GET path=/f;",
    "REST 5",
    "REST 0-5,7-9",
    "REST 99999999999999999999",
    "ALLO 5",
    "LIST -la",
    "NLST",
    "MLSD /d/",
    "MLSR",
    "MLSC /d",
    "MLST",
    "STAT",
    "STAT /d",
    "SIZE f",
    "MDTM f",
    "MDTM 20200101000000 f",
    "MFMT 20200101000000 f",
    "CKSM MD5 0 -1 f",
    "SCKS MD5 ab",
    "SITE STORATTR modify=20200101000000;",
    "SITE STORATTR UNIX.mode=0600;",
    "SITE RDEL f",
    "SITE SYNC d",
    "SITE CHMOD 7 f",
    "SITE CLIENTINFO a=b;",
    "SITE SYMLINKFROM a",
    "SITE SYMLINKTO b",
    "SITE HELP",
    "RNFR a",
    "RNTO b",
    "CWD d",
    "CDUP",
    "MKD d",
    "ABOR",
    "HELP",
    "FEAT",
    "NOOP",
    "REIN",
    "OPTS MLST type;",
    "TREV PERF 0",
    "DCAU N",
    "SITE LEAVES 4096 MD5",
    "SITE LEAVES 0",
    "SITE LEAVES 4096 MD5 HOLES",
    "SITE EXTENTS 4096 f",
    "SITE CHUNK HOLES ab 0-4096 f",
    "SITE CHUNK OPEN 5 - 4096 MD5 f",
    "SITE CHUNK KEEP ab 0-5:00 f",
    "SITE CHUNK COMMIT ab f",
    "SITE CHUNK DROP ab f",
    "ESTO C ab,0 f",
    "ESTO C ab,4096 f",
];

fn line() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => prop::sample::select(&PIECES[..]).prop_map(|piece| piece.as_bytes().to_vec()),
        1 => (prop::sample::select(&PIECES[..]), prop::collection::vec(any::<u8>(), 0..20)).prop_map(|(piece, tail)| {
            [piece.as_bytes(), &tail].concat()
        }),
        1 => prop::collection::vec(any::<u8>(), 0..40),
    ]
    .prop_map(|mut line| {
        // An ABOR is taken at its CR, so what followed one would be a line of its own.
        let abort = line.to_ascii_uppercase().starts_with(b"ABOR");
        line.retain(|&byte| byte != b'\n' && !(abort && byte == b'\r'));
        line
    })
}

fn outcome_of(op: &Op, choice: u8) -> Outcome {
    let kinds = [FailureKind::NotFound, FailureKind::Other, FailureKind::ConnectionBroken, FailureKind::NoDataHandle];
    match op {
        _ if choice.is_multiple_of(4) => failed(kinds[usize::from(choice / 4) % kinds.len()], "why\r\nnot"),
        Op::Passive { .. } => listening("10.0.0.1:2000"),
        Op::Send(_) | Op::Receive(_) | Op::SendListing(_) => {
            Outcome::Transferred { bytes: 5, leaves: leaves(choice), read_from: None }
        }
        Op::OpenChunked(_) => Outcome::Chunked {
            session: vec![choice],
            verified: leaves(choice),
            holes: Vec::new(),
            storage: StorageFacts::default(),
            discarded: u64::from(choice),
        },
        Op::Extents { .. } => Outcome::Extents { holes: std::iter::once(0..u64::from(choice)).collect(), data: 5 },
        Op::Facts { .. } => Outcome::Line(b"Type=file; f".to_vec()),
        Op::Size(_) => Outcome::Size(5),
        Op::Modified(_) => Outcome::Modified(0, 0),
        Op::EnterDirectory(_) | Op::MakeDirectory(_) => Outcome::Directory(b"/d\xff".to_vec()),
        Op::Checksum { .. } => Outcome::Checksum("00".into()),
        _ => Outcome::Done,
    }
}

/// What a data side may say, digests that are none included.
fn leaves(choice: u8) -> Vec<Leaf> {
    let digest = if choice.is_multiple_of(2) { "00ff" } else { "a\r\n226 b" };
    (0..u64::from(choice % 3)).map(|i| Leaf { range: i..i + 1, digest: digest.into() }).collect()
}

/// Checks that output is a sequence of well-formed replies; counts the final ones by code.
fn final_replies(output: &[u8]) -> HashMap<u16, usize> {
    let mut finals = HashMap::new();
    let mut open: Option<Vec<u8>> = None;
    for line in output.split_inclusive(|&byte| byte == b'\n') {
        let line = line.strip_suffix(b"\r\n").expect("every line ends with CRLF");
        assert!(!line.contains(&b'\r'), "{:?}", String::from_utf8_lossy(line));
        let code = line.get(..3).filter(|code| code.iter().all(u8::is_ascii_digit)).map(<[u8]>::to_vec);
        match (&open, line.get(3)) {
            (None, Some(b'-')) => open = Some(code.expect("a reply starts with its code")),
            (None, Some(b' ')) => count(&mut finals, &code.expect("a reply starts with its code")),
            (Some(expected), Some(b' ')) if code.as_ref() == Some(expected) => {
                count(&mut finals, expected);
                open = None;
            }
            (Some(_), _) => {}
            (None, _) => panic!("not a reply: {:?}", String::from_utf8_lossy(line)),
        }
    }
    assert_eq!(open, None, "the last reply is complete");
    finals
}

fn count(finals: &mut HashMap<u16, usize>, code: &[u8]) {
    let code: u16 = String::from_utf8_lossy(code).parse().expect("three digits");
    if code >= 200 {
        *finals.entry(code).or_default() += 1;
    }
}

/// Plays lines against a data side that answers as `choices` say, and counts final replies.
fn play(lines: &[Vec<u8>], choices: &[u8], pieces: &[usize]) -> usize {
    let mut peer = Peer::connect(ServerConfig { max_login_failures: u32::MAX, ..ServerConfig::default() });
    let bytes: Vec<u8> = lines.iter().flat_map(|line| [line.as_slice(), b"\r\n"].concat()).collect();
    let mut output = Vec::new();
    let mut choices = choices.iter().copied().cycle();
    let mut rest = bytes.as_slice();
    for size in pieces.iter().copied().cycle() {
        let (now, later) = rest.split_at(size.min(rest.len()));
        peer.machine.handle_bytes(peer.now, now);
        output.extend(drive(&mut peer, &mut choices));
        rest = later;
        if rest.is_empty() {
            break;
        }
    }
    assert!(!peer.machine.is_closed());
    final_replies(&output).values().sum()
}

/// Answers events until none are left.
fn drive(peer: &mut Peer, choices: &mut impl Iterator<Item = u8>) -> Vec<u8> {
    let mut output = Vec::new();
    loop {
        let bytes = peer.machine.poll_transmit();
        let event = peer.machine.poll_event();
        if bytes.is_none() && event.is_none() {
            return output;
        }
        output.extend(bytes.into_iter().flatten());
        let choice = choices.next().unwrap_or_default();
        match event {
            Some(ServerEvent::Run { id, op }) => {
                for notice in [
                    OPENED,
                    Notice::Lines(b"a\r\nb\nc\r\n".to_vec()),
                    Notice::Lines(vec![choice; 3]),
                    Notice::Ranges(vec![0..5]),
                    Notice::Hashed { bytes: 1, at_ms: 1 },
                    Notice::Performance { stripe: 0, stripes: 1, bytes: u64::MAX, at_ms: u64::MAX },
                ] {
                    peer.machine.notice(peer.now, id, notice);
                }
                peer.machine.outcome(peer.now, id, outcome_of(&op, choice));
            }
            Some(ServerEvent::Login { .. }) => {
                let verdict = match choice % 3 {
                    0 => LoginOutcome::Denied,
                    _ => LoginOutcome::Accepted { user: "u\r\nv".into(), home: b"/".to_vec() },
                };
                peer.machine.login(peer.now, verdict);
            }
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_line_gets_exactly_one_final_reply(
        lines in prop::collection::vec(line(), 0..60),
        choices in prop::collection::vec(any::<u8>(), 1..40),
        pieces in prop::collection::vec(1_usize..200, 1..10),
        logged_in in any::<bool>(),
    ) {
        let mut all: Vec<Vec<u8>> = Vec::new();
        if logged_in {
            all.extend([b"USER u".to_vec(), b"PASS p".to_vec()]);
        }
        all.extend(lines.into_iter().filter(|line| !line.to_ascii_uppercase().starts_with(b"QUIT")));
        // The greeting is one more.
        prop_assert_eq!(play(&all, &choices, &pieces), all.len() + 1);
    }

    #[test]
    fn arbitrary_bytes_never_panic_and_memory_stays_bounded(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..3000), 0..20),
        outcome in any::<bool>(),
    ) {
        let config = ServerConfig { max_line: 500, pipeline_bytes: 5000, max_unsent: 4000, ..ServerConfig::default() };
        let mut peer = Peer::logged_in_with(config);
        // Something runs, so that lines pile up.
        peer.send("SIZE /f");
        let (id, _) = peer.op();
        for chunk in &chunks {
            peer.machine.handle_bytes(peer.now, chunk);
            prop_assert!(peer.machine.held() <= 5000 + 500 + 500 + 8000, "{}", peer.machine.held());
        }
        if outcome {
            peer.machine.outcome(peer.now, id, Outcome::Size(1));
        }
        peer.machine.handle_eof(peer.now);
        peer.output();
        prop_assert!(peer.machine.is_closed());
    }
}

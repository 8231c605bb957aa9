//! What a data side may say, sensible or not.

use std::ops::Range;
use std::time::Duration;

use whimbrel_proto::op::{
    Fact, Failure, FailureKind, Leaf, LeafSpec, Notice, Op, Outcome, PackResult, ReadFrom, Spent, StorageFacts,
};

const KINDS: [FailureKind; 23] = [
    FailureKind::NotFound,
    FailureKind::PermissionDenied,
    FailureKind::NotADirectory,
    FailureKind::IsADirectory,
    FailureKind::Exists,
    FailureKind::NotEmpty,
    FailureKind::BadPath,
    FailureKind::NoSpace,
    FailureKind::Quota,
    FailureKind::Checksum,
    FailureKind::CannotConnect,
    FailureKind::ConnectionBroken,
    FailureKind::BadData,
    FailureKind::NoDataHandle,
    FailureKind::NotSupported,
    FailureKind::BadArgument,
    FailureKind::Busy,
    FailureKind::Aborted,
    FailureKind::Other,
    FailureKind::Unproven,
    FailureKind::FileTooLarge,
    FailureKind::ReadOnly,
    FailureKind::SourceChanged,
];

/// The outcome that `choices` say; without any the one that fits the operation.
pub(super) fn outcome(op: &Op, choices: &[u8]) -> Outcome {
    let Some((&choice, rest)) = choices.split_first() else { return natural(op) };
    match choice {
        b'F' => return Outcome::Probed(facts(rest)),
        b'K' => return Outcome::Packed(rest.iter().map(fate).collect()),
        _ => {}
    }
    match choice % 16 {
        0 => Outcome::Done,
        1 => Outcome::Listening(vec!["10.0.0.1:2000".parse().expect("an address")]),
        2 => Outcome::Listening(vec!["[2001:db8::1]:2000".parse().expect("an address"); rest.len()]),
        3 => Outcome::Listening(Vec::new()),
        4 => Outcome::Transferred { bytes: rest.len() as u64, leaves: leaves(rest), read_from: read_from(rest) },
        5 => Outcome::Line(rest.to_vec()),
        6 => Outcome::Size(u64::MAX),
        7 => Outcome::Modified(rest.first().map_or(i64::MIN, |&b| i64::from(b) << 31), 999_999_999),
        // The data side normalises paths: absolute, without NUL.
        8 => Outcome::Directory([b"/", rest].concat().into_iter().filter(|&b| b != 0).collect()),
        9 => Outcome::Checksum(String::from_utf8_lossy(rest).into_owned()),
        10 => natural(op),
        15 => Outcome::Chunked {
            session: rest.to_vec(),
            verified: leaves(rest),
            holes: holes(rest),
            storage: StorageFacts::default(),
            discarded: rest.len() as u64,
        },
        14 => Outcome::Extents { holes: holes(rest), data: rest.len() as u64 },
        _ => failed(rest),
    }
}

fn read_from(bytes: &[u8]) -> Option<ReadFrom> {
    bytes.first().and_then(|&byte| ReadFrom::ALL.get(usize::from(byte % 4)).copied())
}

/// One leaf for each byte, in order or not, with a digest or other text.
fn leaves(bytes: &[u8]) -> Vec<Leaf> {
    let leaf = |&byte: &u8| Leaf {
        range: u64::from(byte) << 20..u64::from(byte).wrapping_sub(1) << 20,
        digest: if byte.is_ascii_lowercase() { "a\r\n226 b".into() } else { "00ff".into() },
    };
    bytes.iter().map(leaf).collect()
}

/// One run for each byte, in order or not.
fn holes(bytes: &[u8]) -> Vec<Range<u64>> {
    bytes.iter().map(|&byte| u64::from(byte) << 20..u64::from(byte).wrapping_add(1) << 20).collect()
}

/// What became of a packed file, by one byte.
fn fate(byte: &u8) -> PackResult {
    match byte % 4 {
        0 => Ok(None),
        1 => Ok(Some("00ff".into())),
        2 => Ok(Some("a\r\n226 b".into())),
        _ => match failed(&[*byte, b'|', *byte]) {
            Outcome::Failed(failure) => Err(failure),
            _ => Ok(None),
        },
    }
}

/// Names and values, good or bad, a `|` between two.
fn facts(bytes: &[u8]) -> Vec<Fact> {
    let words = bytes.split(|&b| b == b'|').map(|word| String::from_utf8_lossy(word).into_owned());
    words.map(|word| Fact::new(word.clone(), format!("{word}\r\n226 b"))).collect()
}

/// Two leaves, if they are wanted.
fn natural_leaves(wanted: Option<&LeafSpec>) -> Vec<Leaf> {
    let leaf = |spec: &LeafSpec, i: u64| Leaf { range: i * spec.size..(i + 1) * spec.size, digest: "00ff".into() };
    wanted.map_or_else(Vec::new, |spec| vec![leaf(spec, 0), leaf(spec, 1)])
}

fn failed(rest: &[u8]) -> Outcome {
    let (kind, text) = rest.split_first().unwrap_or((&0, b""));
    let checksums = (kind & 64 != 0).then(|| ("a\r\nb".to_owned(), "c".to_owned()));
    let text = String::from_utf8_lossy(text).replace('|', "\r\n");
    Outcome::Failed(Failure { kind: KINDS[usize::from(*kind) % KINDS.len()], text, checksums })
}

fn natural(op: &Op) -> Outcome {
    match op {
        Op::Passive { striped: true, .. } => Outcome::Listening(vec![
            "10.0.0.1:2000".parse().expect("an address"),
            "10.0.0.2:2001".parse().expect("one"),
        ]),
        Op::Passive { .. } | Op::Relay(_) => Outcome::Listening(vec!["10.0.0.1:2000".parse().expect("an address")]),
        Op::Send(spec) => {
            Outcome::Transferred { bytes: 5, leaves: natural_leaves(spec.leaves.as_ref()), read_from: None }
        }
        Op::Receive(spec) => Outcome::Transferred {
            bytes: 5,
            leaves: natural_leaves(spec.leaves.as_ref()),
            read_from: spec.past_memory.then_some(ReadFrom::Disk),
        },
        Op::SendPack(spec) | Op::ReceivePack(spec) => {
            Outcome::Packed(spec.files.iter().map(|_| Ok(spec.algorithm.as_ref().map(|_| "00ff".into()))).collect())
        }
        Op::SendListing(_) => Outcome::moved(5),
        Op::OpenChunked(file) => Outcome::Chunked {
            session: vec![1, 2],
            verified: natural_leaves(Some(&file.leaves)),
            holes: std::iter::once(4096..8192).collect(),
            storage: StorageFacts { room: Some(1 << 40), stripe: Some(1 << 20) },
            discarded: 0,
        },
        Op::Extents { leaf, .. } => Outcome::Extents { holes: std::iter::once(0..*leaf).collect(), data: 5 },
        Op::Probe(_) => Outcome::Probed(vec![Fact::new("bytes", 5), Fact::new("fs.type", "ext4")]),
        Op::Facts { .. } => Outcome::Line(b"Type=file; f".to_vec()),
        Op::Size(_) => Outcome::Size(5),
        Op::Modified(_) => Outcome::Modified(1_000_000_000, 0),
        Op::EnterDirectory(path) | Op::MakeDirectory(path) => Outcome::Directory(path.clone()),
        Op::Checksum { .. } => Outcome::Checksum("00ff".into()),
        _ => Outcome::Done,
    }
}

/// The notice that `choices` say.
pub(super) fn notice(choices: &[u8]) -> Notice {
    let (choice, rest) = choices.split_first().unwrap_or((&0, b""));
    let number = rest.iter().fold(0_u64, |n, &b| n.wrapping_mul(131).wrapping_add(u64::from(b)));
    match choice {
        b'P' => {
            let at = |index: usize| rest.get(index).copied().unwrap_or(0).into();
            return Notice::Performance { stripe: at(0), stripes: at(1), bytes: number, at_ms: number };
        }
        b'S' => return Notice::Spent(Box::new(spent(number, rest))),
        _ => {}
    }
    match choice % 8 {
        0 => Notice::Opened { reused: false, unique_name: None },
        1 => Notice::Opened { reused: true, unique_name: Some(rest.to_vec()) },
        2 => Notice::Performance { stripe: 0, stripes: 1, bytes: number, at_ms: number },
        3 => Notice::Ranges(std::iter::once(0..number).collect()),
        4 => Notice::Ranges(Vec::new()),
        5 => Notice::Hashed { bytes: number, at_ms: u64::MAX - number },
        6 => Notice::Lines([rest, b"\r\n"].concat()),
        _ => Notice::Lines(rest.repeat(Duration::from_secs(40).as_secs() as usize)),
    }
}

/// What a transfer spent, with a name of a congestion control that may be none.
fn spent(number: u64, rest: &[u8]) -> Spent {
    let name = rest.get(1..).unwrap_or_default();
    Spent { bytes: number, rtt: number, congestion: String::from_utf8_lossy(name).into_owned(), ..Spent::default() }
}

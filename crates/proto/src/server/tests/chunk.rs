//! SITE LEAVES, SITE CHUNK and ESTO C: operations, replies, refusals, and chunks in a pipeline.

use super::*;
use crate::leaf;
use crate::op::{ChunkedFile, Leaf, LeafSpec, ReceiveSpec, StorageFacts, WriteKind};
use crate::reply::{Reply, ReplyParser};

const OK_200: &str = "200 OK.\r\n";
const SIZE: u64 = 16 << 20;

fn leaf(range: std::ops::Range<u64>, digest: &str) -> Leaf {
    Leaf { range, digest: digest.into() }
}

fn md5() -> LeafSpec {
    LeafSpec { size: SIZE, algorithm: "MD5".into(), holes: false, vouched: false }
}

fn transferred(leaves: Vec<Leaf>) -> Outcome {
    Outcome::Transferred { bytes: 1, leaves, read_from: None }
}

fn replies(text: &str) -> Vec<Reply> {
    let mut parser = ReplyParser::default();
    parser.feed(text.as_bytes());
    std::iter::from_fn(|| parser.next_reply()).map(|reply| reply.expect("a reply")).collect()
}

/// TYPE I, leaves of MD5, and a MODE E handle.
fn ready() -> Peer {
    let mut peer = Peer::logged_in();
    peer.send("TYPE I");
    assert_eq!(peer.send("SITE LEAVES 16777216 md5"), OK_200);
    peer.send("MODE E");
    peer.passive();
    peer
}

/// Leaves that the operation of a line on a fresh handle asks for.
fn leaves_of(peer: &mut Peer, line: &str) -> Option<LeafSpec> {
    peer.passive();
    peer.send(line);
    let (id, op) = peer.op();
    peer.finish(id, transferred(Vec::new()));
    match op {
        Op::Send(spec) => spec.leaves,
        Op::Receive(spec) => spec.leaves,
        _ => None,
    }
}

#[test]
fn leaves_are_asked_of_every_transfer_until_they_are_ended() {
    let mut peer = Peer::logged_in();
    assert_eq!(peer.send("SITE LEAVES 16777216 md5"), OK_200);
    assert_eq!(leaves_of(&mut peer, "RETR /f"), None, "TYPE A sends other bytes than the file's");
    peer.send("TYPE I");
    for line in ["RETR /f", "STOR /f", "ERET P 1 2 /f", "ESTO A 1 /f", "GET path=/f;", "PUT path=/f;", "APPE /f"] {
        assert_eq!(leaves_of(&mut peer, line), Some(md5()), "{line}");
    }
    assert_eq!(leaves_of(&mut peer, "MLSD /"), None);
    assert_eq!(peer.send("SITE LEAVES 0"), OK_200);
    assert_eq!(leaves_of(&mut peer, "RETR /f"), None);
}

#[test]
fn a_refused_change_of_leaves_keeps_what_was() {
    let mut peer = Peer::logged_in();
    peer.send("TYPE I");
    peer.send("SITE LEAVES 16777216 MD5");
    assert!(peer.send("SITE LEAVES 16777216 CRC99").starts_with("504 "));
    assert!(peer.send("SITE LEAVES 5000 MD5").starts_with("501 "));
    assert_eq!(leaves_of(&mut peer, "RETR /f"), Some(md5()));
}

#[test]
fn the_226_carries_the_leaves() {
    let mut peer = ready();
    peer.send("RETR /f");
    let (id, _) = peer.op();
    peer.notice(id, OPENED);
    let leaves = vec![leaf(0..SIZE, "00ff"), leaf(SIZE..SIZE + 5, "ab")];
    let text = peer.finish(id, transferred(leaves.clone()));
    assert_eq!(text, "226-Transfer Complete.\r\n LEAF 0-16777216 00ff\r\n LEAF 16777216-16777221 ab\r\n226 End\r\n");
    assert_eq!(leaf::from_reply(&replies(&text)[0]), Ok(leaves));
    assert_eq!(peer.codes.last(), Some(&226));
}

#[test]
fn a_reply_never_holds_more_leaves_than_a_client_reads() {
    let mut peer = ready();
    peer.send("RETR /f");
    let (id, _) = peer.op();
    let leaves: Vec<_> = (0..leaf::MAX_LEAVES as u64 + 5).map(|i| leaf(i..i + 1, "ab")).collect();
    let text = peer.finish(id, transferred(leaves.clone()));
    assert_eq!(leaf::from_reply(&replies(&text)[1]).as_deref(), Ok(&leaves[..leaf::MAX_LEAVES]));
}

#[test]
fn open_tells_the_session_and_what_is_proven() {
    let mut peer = Peer::logged_in();
    let file = ChunkedFile {
        path: b"/home/u/a b".to_vec(),
        size: 5,
        modified: Some((1_577_836_800, 500_000_000)),
        leaves: md5(),
    };
    let line = "SITE CHUNK OPEN 5 20200101000000.5 16777216 md5 a b";
    let outcome = Outcome::Chunked {
        session: vec![0xab, 0],
        verified: vec![leaf(0..5, "00ff")],
        holes: vec![8192..16384],
        storage: StorageFacts { room: Some(7), stripe: Some(1 << 20) },
        discarded: 9,
    };
    let text = peer.exchange(line, &Op::OpenChunked(file), outcome);
    let want = "250-Ready for chunks.\r\n SESSION ab00\r\n ROOM 7\r\n STRIPE 1048576\r\n ANEW 9\r\n LEAF 0-5 00ff\r\n \
        HOLE 8192-16384\r\n250 End\r\n";
    assert_eq!(text, want);
    assert_eq!(leaf::opened_from_reply(&replies(&text)[0]), Ok((vec![0xab, 0], vec![leaf(0..5, "00ff")])));
}

#[test]
#[allow(clippy::single_range_in_vec_init, reason = "a list of one range is meant")]
fn extents_and_holes_are_told_and_kept() {
    let mut peer = Peer::logged_in();
    let (path, session) = (b"/home/u/a b".to_vec(), vec![0xab]);
    let extents = Op::Extents { path: path.clone(), leaf: 4096 };
    let told = Outcome::Extents { holes: vec![0..4096, 8192..16384], data: 5 };
    let want = "250-Extents.\r\n DATA 5\r\n HOLE 0-4096\r\n HOLE 8192-16384\r\n250 End\r\n";
    assert_eq!(peer.exchange("SITE EXTENTS 4096 a b", &extents, told), want);
    let keep = Op::KeepHoles { path, session, holes: vec![0..4096] };
    assert_eq!(peer.exchange("SITE CHUNK HOLES ab 0-4096 a b", &keep, Outcome::Done), "250 OK.\r\n");
    assert_eq!(peer.send("SITE LEAVES 4096 MD5 HOLES"), OK_200);
    assert!(peer.send("SITE LEAVES 4096 MD5 GAPS").starts_with("501 "));
}

#[test]
fn keep_commit_and_drop_name_path_and_session() {
    let mut peer = Peer::logged_in();
    let (path, session) = (b"/home/u/f".to_vec(), vec![0xab]);
    let leaves = vec![leaf(0..5, "00"), leaf(5..9, "ff")];
    let keep = Op::KeepLeaves { path: path.clone(), session: session.clone(), leaves };
    assert_eq!(peer.exchange("SITE CHUNK KEEP ab 0-5:00,5-9:ff f", &keep, Outcome::Done), "250 OK.\r\n");
    let drop = Op::DropChunked { path: path.clone(), session: session.clone() };
    assert_eq!(peer.exchange("SITE CHUNK DROP ab f", &drop, Outcome::Done), "250 OK.\r\n");
    let commit = |modified, mode| Op::CommitChunked {
        path: path.clone(),
        session: session.clone(),
        modified,
        mode,
        expected: None,
    };
    assert_eq!(peer.send("SITE STORATTR modify=20200101000000.25;unix.MODE=0600;"), "250 OK.\r\n");
    let timed = commit(Some((1_577_836_800, 250_000_000)), Some(0o600));
    assert_eq!(peer.exchange("SITE CHUNK COMMIT ab f", &timed, Outcome::Done), "250 OK.\r\n");
    let plain = commit(None, None);
    assert_eq!(peer.exchange("SITE CHUNK COMMIT ab f", &plain, Outcome::Done), "250 OK.\r\n", "one-shot");
}

#[test]
fn a_commit_that_could_not_check_what_it_was_told_to_is_refused() {
    let mut peer = Peer::logged_in();
    peer.send("SCKS MD5 00");
    peer.send("SITE CHUNK COMMIT ab f");
    let (id, op) = peer.op();
    let want = Some(("MD5".to_owned(), "00".to_owned()));
    assert!(matches!(&op, Op::CommitChunked { expected, .. } if *expected == want), "{op:?}");
    assert_eq!(
        peer.notice(id, Notice::Hashed { bytes: 7, at_ms: 100 }),
        "113-Status Marker\r\n Timestamp: 0.1\r\n Bytes Processed: 7\r\n113 End.\r\n"
    );
    peer.finish(id, Outcome::Done);
    peer.send("SITE CHUNK COMMIT ab f");
    assert!(matches!(peer.op().1, Op::CommitChunked { expected: None, .. }), "the checksum was for one command");
}

#[test]
fn failures_tell_unproven_parts_from_a_lost_session() {
    let mut peer = Peer::logged_in();
    for (kind, code) in [(FailureKind::Unproven, "554 "), (FailureKind::Busy, "450-"), (FailureKind::NotFound, "550-")]
    {
        for line in ["SITE CHUNK COMMIT ab /f", "SITE CHUNK KEEP ab 0-5:00 /f", "SITE CHUNK OPEN 5 - 4096 MD5 /f"] {
            peer.send(line);
            let (id, _) = peer.op();
            assert!(peer.finish(id, failed(kind, "why")).starts_with(code), "{line}");
        }
    }
    peer.send("SITE CHUNK OPEN 5 - 4096 MD5 /f");
    let (id, _) = peer.op();
    assert!(peer.finish(id, Outcome::Done).starts_with("451 "), "an outcome that does not fit is no session");
}

#[test]
fn esto_c_writes_into_a_session_with_leaves() {
    let mut peer = ready();
    peer.send("ALLO 7");
    peer.send("ESTO C ab00,16777216 a b");
    let (_, op) = peer.op();
    let Op::Receive(spec) = op else { panic!("{op:?}") };
    let want = ReceiveSpec {
        path: b"/home/u/a b".to_vec(),
        ascii: false,
        write: WriteKind::Chunk { offset: SIZE, session: vec![0xab, 0] },
        expected_size: Some(7),
        leaves: Some(md5()),
        ..spec.clone()
    };
    assert_eq!(spec, want);
    assert_eq!((spec.expected_checksum, spec.modified, spec.mode), (None, None, None));
}

#[test]
fn esto_c_of_a_text_is_503_and_with_what_belongs_to_whole_files_501() {
    let mut peer = Peer::logged_in();
    peer.send("TYPE A");
    peer.passive();
    assert!(peer.send("ESTO C ab,0 /f").starts_with("503 "));
    peer.send("TYPE I");
    for before in ["REST 5", "SCKS MD5 00", "SITE STORATTR modify=20200101000000;", "SITE STORATTR UNIX.mode=600;"] {
        peer.send(before);
        assert!(peer.send("ESTO C ab,0 /f").starts_with("501 "), "{before}");
    }
    assert_eq!(peer.events, []);
    peer.send("ESTO C ab,0 /f");
    assert!(matches!(peer.op().1, Op::Receive(_)), "what was refused is forgotten");
}

#[test]
fn parts_that_nothing_is_proven_of_are_kept_without_an_algorithm() {
    let mut peer = Peer::logged_in();
    assert!(peer.send("FEAT").contains("\r\n CHUNK NONE\r\n"));
    peer.send("TYPE I");
    assert!(peer.send("SITE LEAVES 4096 none").starts_with("504 "), "nothing can be hashed so");
    peer.send("SITE CHUNK OPEN 5 - 4096 none /f");
    assert!(matches!(peer.op().1, Op::OpenChunked(file) if file.leaves.algorithm == leaf::NONE));
    let mut peer = Peer::logged_in();
    peer.send("TYPE I");
    peer.passive();
    peer.send("ESTO C ab,0 /f");
    let (_, Op::Receive(spec)) = peer.op() else { panic!("a receive") };
    assert_eq!((spec.leaves, &spec.write), (None, &WriteKind::Chunk { offset: 0, session: vec![0xab] }));
}

#[test]
fn a_read_only_server_gives_leaves_but_takes_no_chunks() {
    let mut peer = Peer::logged_in_with(ServerConfig { read_only: true, ..ServerConfig::default() });
    let feat = peer.send("FEAT");
    assert!(feat.contains("\r\n LEAVES MD5,ADLER32,SHA1,SHA256,SHA512\r\n") && !feat.contains("CHUNK"), "{feat}");
    assert_eq!(peer.send("SITE LEAVES 4096 MD5"), OK_200);
    peer.send("TYPE I");
    peer.passive();
    for line in [
        "SITE CHUNK OPEN 5 - 4096 MD5 /f",
        "SITE CHUNK KEEP ab 0-5:00 /f",
        "SITE CHUNK COMMIT ab /f",
        "SITE CHUNK DROP ab /f",
        "ESTO C ab,0 /f",
    ] {
        assert!(peer.send(line).starts_with("550-"), "{line}");
    }
    assert_eq!(peer.events, []);
}

#[test]
fn leaves_and_chunks_are_announced_once_logged_in() {
    let mut peer = Peer::connect(ServerConfig::default());
    peer.output();
    let feat = peer.send("FEAT");
    assert!(!feat.contains("LEAVES") && !feat.contains("CHUNK"));
    for line in ["SITE LEAVES 0", "SITE CHUNK DROP ab /f", "ESTO C ab,0 /f"] {
        assert!(peer.send(line).starts_with("530 "), "{line}");
    }
    let mut peer = Peer::logged_in();
    let feat = crate::feat::Features::parse(&replies(&peer.send("FEAT"))[0]);
    let names: Vec<_> = feat.leaf_algorithms().map(str::to_owned).collect();
    assert_eq!(names, ["MD5", "ADLER32", "SHA1", "SHA256", "SHA512"]);
    assert!(feat.has("CHUNK"));
    let help = crate::feat::SiteHelp::parse(&replies(&peer.send("SITE HELP"))[0]);
    assert!(help.has("CHUNK") && help.has("LEAVES"));
    let mut peer = Peer::logged_in_with(ServerConfig { checksums: Vec::new(), ..ServerConfig::default() });
    assert!(!peer.send("FEAT").contains("CHUNK"), "nothing could prove a leaf");
    assert!(peer.send("SITE CHUNK OPEN 5 - 4096 MD5 /f").starts_with("504 "));
}

/// A connection over whose handle one chunk has come.
fn proven() -> Peer {
    let mut peer = ready();
    peer.send("ESTO C ab,0 /f");
    let (id, _) = peer.op();
    peer.notice(id, OPENED);
    peer.finish(id, transferred(vec![leaf(0..5, "00")]));
    peer
}

fn ops(peer: &mut Peer) -> Vec<OpId> {
    let run = |event| match event {
        ServerEvent::Run { id, .. } => id,
        other => panic!("expected operations, not {other:?}"),
    };
    std::mem::take(&mut peer.events).into_iter().map(run).collect()
}

#[test]
fn nothing_in_a_pipeline_of_chunks_waits_for_a_reply() {
    let mut peer = proven();
    let lines = [
        "ESTO C ab,16777216 /f",
        "SITE CHUNK KEEP ab 0-5:00 /f",
        "ESTO C ab,33554432 /f",
        "site storattr modify=20200101000000;",
        "SITE  CHUNK COMMIT ab /f",
        "SITE LEAVES 4096 SHA256",
        "SITE CHUNK OPEN 5 - 4096 MD5 /g",
        "SITE CHUNK DROP ab /f",
        "ESTO C cd,0 /g",
    ];
    assert_eq!(peer.send(&lines.join("\r\n")), "");
    let runs = std::mem::take(&mut peer.events);
    assert_eq!(runs.len(), 7, "all but STORATTR and LEAVES, which are answered in their turn: {runs:?}");
    let of = |index: usize| if let ServerEvent::Run { op, .. } = &runs[index] { op.clone() } else { unreachable!() };
    assert!(matches!(of(3), Op::CommitChunked { modified: Some((1_577_836_800, 0)), .. }));
    let algorithm = |op| if let Op::Receive(spec) = op { spec.leaves.map(|leaves| leaves.algorithm) } else { None };
    assert_eq!((algorithm(of(2)), algorithm(of(6))), (Some("MD5".into()), Some("SHA256".into())));
    let mut text = String::new();
    for event in runs {
        let ServerEvent::Run { id, op } = event else { unreachable!() };
        text += &peer.finish(
            id,
            match op {
                Op::Receive(_) => transferred(vec![leaf(0..5, "00")]),
                Op::OpenChunked(_) => Outcome::Chunked {
                    session: vec![0xcd],
                    verified: Vec::new(),
                    holes: Vec::new(),
                    storage: StorageFacts::default(),
                    discarded: 0,
                },
                _ => Outcome::Done,
            },
        );
    }
    let codes: Vec<u16> = replies(&text).iter().map(|reply| reply.code).filter(|code| *code >= 200).collect();
    assert_eq!(codes, [226, 250, 226, 250, 250, 200, 250, 250, 226], "one for each line, in order");
}

#[test]
fn other_site_words_wait_for_their_turn() {
    let mut peer = proven();
    peer.send("ESTO C ab,5 /f\r\nSITE RDEL /d\r\nESTO C ab,9 /f");
    assert_eq!(ops(&mut peer).len(), 1);
}

#[test]
fn what_an_operation_tells_before_its_turn_is_told_in_its_turn() {
    let mut peer = proven();
    peer.send("ESTO C ab,5 /f\r\nESTO C ab,9 /f\r\nNOOP");
    let ids = ops(&mut peer);
    peer.notice(ids[0], OPENED);
    let performance = |bytes| Notice::Performance { stripe: 0, stripes: 1, bytes, at_ms: 1000 };
    for notice in [
        Notice::Opened { reused: true, unique_name: None },
        performance(1),
        Notice::Ranges(vec![0..2]),
        performance(2),
        Notice::Ranges(vec![2..4]),
    ] {
        assert_eq!(peer.notice(ids[1], notice), "", "the reply in front of it is still due");
    }
    let text = peer.finish(ids[0], transferred(vec![leaf(5..9, "00")]));
    let replies = replies(&text);
    let codes: Vec<u16> = replies.iter().map(|reply| reply.code).collect();
    assert_eq!(codes, [226, 125, 112, 111]);
    assert!(replies[2].display_text().contains("Stripe Bytes Transferred: 2"), "{text}");
    assert!(replies[3].display_text().contains("0-4"), "{text}");
    assert_eq!(peer.notice(ids[1], Notice::Opened { reused: true, unique_name: None }), "", "125 is said once");
    let text = peer.finish(ids[1], transferred(vec![leaf(9..12, "00")]));
    assert!(text.starts_with("226-") && text.ends_with("200 NOOP command successful.\r\n"), "{text}");
}

#[test]
fn an_operation_that_ends_before_its_turn_is_answered_in_its_turn() {
    let mut peer = proven();
    peer.send(
        "ESTO C ab,5 /f\r\nSITE CHUNK KEEP ab 0-5:00 /f\r\nESTO C ab,9 /f\r\nSITE CHUNK KEEP ab 5-9:00 /f\r\nNOOP",
    );
    let ids = ops(&mut peer);
    assert_eq!(peer.finish(ids[2], transferred(vec![leaf(9..12, "aa")])), "");
    assert_eq!(peer.finish(ids[1], Outcome::Done), "");
    assert_eq!(peer.finish(ids[1], failed(FailureKind::Other, "twice")), "", "only the first end counts");
    assert_eq!(peer.machine.running_op(), Some(ids[0]));
    let text = peer.finish(ids[0], transferred(vec![leaf(5..9, "00")]));
    let told: Vec<u16> = replies(&text).iter().map(|reply| reply.code).collect();
    assert_eq!(told, [150, 226, 250, 150, 226]);
    assert_eq!(peer.machine.running_op(), Some(ids[3]));
    let text = peer.finish(ids[3], failed(FailureKind::Busy, "gone"));
    assert!(text.starts_with("450-") && text.ends_with("200 NOOP command successful.\r\n"), "{text}");
    assert_eq!(peer.codes.last_chunk(), Some(&[226, 250, 226, 450, 200]));
}

#[test]
fn a_failure_told_before_its_turn_costs_the_data_handle_in_its_turn() {
    let mut peer = proven();
    peer.send("ESTO C ab,5 /f\r\nESTO C ab,9 /f");
    let ids = ops(&mut peer);
    peer.notice(ids[1], OPENED);
    peer.finish(ids[1], failed(FailureKind::ConnectionBroken, "reset"));
    let text = peer.finish(ids[0], transferred(vec![leaf(5..9, "00")]));
    let codes: Vec<u16> = replies(&text).iter().map(|reply| reply.code).collect();
    assert_eq!(codes, [150, 226, 150, 426]);
    assert_eq!(peer.send("ESTO C ab,9 /f"), "425 Use PASV or PORT first.\r\n");
}

#[test]
fn abor_leaves_alone_what_has_ended_before_its_turn() {
    let mut peer = proven();
    peer.send("ESTO C ab,5 /f\r\nESTO C ab,9 /f\r\nESTO C ab,12 /f");
    let ids = ops(&mut peer);
    peer.notice(ids[0], OPENED);
    peer.finish(ids[1], transferred(vec![leaf(9..12, "00")]));
    peer.send("ABOR");
    assert_eq!(peer.events, [ServerEvent::Abort { id: ids[0] }, ServerEvent::Abort { id: ids[2] }]);
    let first = peer.finish(ids[0], failed(FailureKind::Aborted, "x"));
    assert!(first.contains("426 Transfer aborted.\r\n150 ") && first.contains("\r\n226-Transfer Complete."), "{first}");
    let last = peer.finish(ids[2], failed(FailureKind::Aborted, "x"));
    assert_eq!(last, "426 Transfer aborted.\r\n226 Abort successful.\r\n");
}

#[test]
fn the_longest_keep_of_a_client_fits_a_line() {
    let digest = "f".repeat(leaf::MAX_DIGEST);
    let top = u64::MAX - 5000;
    let leaves: Vec<_> = (0..5000).map(|i| leaf(top + i..top + i + 1, &digest)).collect();
    let mut peer = Peer::logged_in();
    let batch = leaf::batches(&leaves).next().expect("a batch");
    let session = leaf::hex(&[1; leaf::MAX_SESSION]);
    let line = format!("SITE CHUNK KEEP {session} {} /{}", leaf::format_list(batch), "a".repeat(4095));
    assert_eq!(peer.send(&line), "");
    assert!(matches!(peer.op().1, Op::KeepLeaves { leaves, .. } if leaves == batch));
}

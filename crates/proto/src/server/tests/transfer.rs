//! RETR, STOR, APPE, STOU, ERET, ESTO, GET, PUT: operations, one-shot settings, replies, reuse.

use super::*;
use crate::op::{ReceiveSpec, SendSpec, WriteKind};

fn send_of(path: &str) -> SendSpec {
    SendSpec { ascii: true, ..SendSpec::of(path) }
}

fn receive_of(path: &str, write: WriteKind) -> ReceiveSpec {
    ReceiveSpec { ascii: true, write, ..ReceiveSpec::of(path) }
}

/// The operation of one line on a fresh handle; it is ended with success.
fn op_of(peer: &mut Peer, line: &str) -> Op {
    peer.passive();
    peer.send(line);
    let (id, op) = peer.op();
    assert!(peer.finish(id, Outcome::moved(0)).ends_with("226 Transfer Complete.\r\n"));
    op
}

#[test]
fn a_transfer_answers_150_then_226() {
    let mut peer = Peer::logged_in();
    peer.passive();
    assert_eq!(peer.send("RETR a b"), "");
    let (id, op) = peer.op();
    assert_eq!(op, Op::Send(send_of("/home/u/a b")));
    assert_eq!(peer.notice(id, OPENED), "150 Beginning transfer.\r\n");
    assert_eq!(peer.notice(id, OPENED), "", "150 is said once");
    assert_eq!(peer.finish(id, Outcome::moved(6)), "226 Transfer Complete.\r\n");
    assert_eq!(peer.codes, [227, 226]);
}

#[test]
fn a_226_never_comes_without_a_1xx_before_it() {
    let mut peer = Peer::logged_in();
    peer.passive();
    peer.send("RETR /f");
    let (id, _) = peer.op();
    let reply = peer.finish(id, Outcome::moved(0));
    assert_eq!(reply, "150 Beginning transfer.\r\n226 Transfer Complete.\r\n");
}

#[test]
fn without_a_handle_a_transfer_is_425() {
    let mut peer = Peer::logged_in();
    for line in ["RETR /x", "STOR /x", "LIST", "MLSD", "GET path=/x;"] {
        assert_eq!(peer.send(line), "425 Use PASV or PORT first.\r\n");
    }
    assert_eq!(peer.events, []);
}

#[test]
fn a_stream_handle_serves_one_transfer_even_if_that_failed() {
    let mut peer = Peer::logged_in();
    peer.passive();
    peer.send("RETR /x");
    let (id, _) = peer.op();
    peer.finish(id, failed(FailureKind::NotFound, "Cannot open /x"));
    assert_eq!(peer.send("RETR /y"), "425 Use PASV or PORT first.\r\n");
}

#[test]
fn store_commands_say_what_becomes_of_the_file() {
    let mut peer = Peer::logged_in();
    assert_eq!(op_of(&mut peer, "STOR /f"), Op::Receive(receive_of("/f", WriteKind::Replace)));
    assert_eq!(op_of(&mut peer, "APPE /f"), Op::Receive(receive_of("/f", WriteKind::Append)));
    assert_eq!(op_of(&mut peer, "STOU f"), Op::Receive(receive_of("/home/u/f", WriteKind::Unique)));
    assert_eq!(op_of(&mut peer, "ESTO A 7 /f"), Op::Receive(receive_of("/f", WriteKind::Adjusted { offset: 7 })));
}

#[test]
fn stou_tells_the_name_it_chose() {
    let mut peer = Peer::logged_in();
    peer.passive();
    peer.send("STOU");
    let (id, _) = peer.op();
    let opened = Notice::Opened { reused: false, unique_name: Some(b"stou.1".to_vec()) };
    assert_eq!(peer.notice(id, opened), "150 FILE: stou.1\r\n");
}

#[test]
fn rest_holds_for_one_transfer_in_both_forms() {
    let mut peer = Peer::logged_in();
    let ok = "350 Restart Marker OK. Send STORE or RETR to initiate transfer.\r\n";
    assert_eq!(peer.send("REST 100"), ok);
    assert_eq!(op_of(&mut peer, "RETR /f"), Op::Send(SendSpec { done: vec![0..100], ..send_of("/f") }));
    assert_eq!(op_of(&mut peer, "RETR /f"), Op::Send(send_of("/f")), "one-shot");
    assert_eq!(peer.send("REST 0-10,20-30"), ok);
    let restart = WriteKind::Restart { done: vec![0..10, 20..30] };
    assert_eq!(op_of(&mut peer, "STOR /f"), Op::Receive(receive_of("/f", restart)));
    assert_eq!(peer.send("REST 20-30,7-7,5-12,0-5"), ok);
    let restart = WriteKind::Restart { done: vec![0..12, 20..30] };
    assert_eq!(op_of(&mut peer, "STOR /f"), Op::Receive(receive_of("/f", restart)), "both ends go on at the same byte");
    peer.send("REST 100");
    assert_eq!(peer.send("REST 0"), ok);
    assert_eq!(op_of(&mut peer, "STOR /f"), Op::Receive(receive_of("/f", WriteKind::Replace)), "REST 0 withdraws");
}

#[test]
fn rest_counts_inside_the_part_of_eret_and_moves_the_stream_of_esto() {
    let mut peer = Peer::logged_in();
    peer.send("REST 0-2000");
    let part = SendSpec { offset: 1000, length: Some(5000), done: vec![0..2000], ..send_of("/f") };
    assert_eq!(op_of(&mut peer, "ERET P 1000 5000 /f"), Op::Send(part));
    peer.send("REST 20");
    let shifted = WriteKind::Adjusted { offset: 120 };
    assert_eq!(op_of(&mut peer, "ESTO A 100 /f"), Op::Receive(receive_of("/f", shifted)));
    peer.send("REST 20");
    peer.passive();
    assert_eq!(peer.send("ESTO A 18446744073709551615 /f"), "501 Offset out of range.\r\n");
    peer.send("MODE E");
    peer.passive();
    peer.send("REST 0-20");
    peer.send("ESTO A 100 /f");
    let (_, op) = peer.op();
    let Op::Receive(spec) = op else { panic!("{op:?}") };
    assert_eq!(spec.write, WriteKind::Adjusted { offset: 100 }, "MODE E blocks carry their own offsets");
}

#[test]
fn storage_modules_are_refused_and_use_up_a_rest() {
    let mut peer = Peer::logged_in();
    peer.send("REST 5");
    assert_eq!(peer.send("ERET tar=\"x\" /f"), "504 No storage module 'tar'.\r\n");
    assert_eq!(peer.send("ESTO tar=\"x\" /f"), "504 No storage module 'tar'.\r\n");
    assert_eq!(op_of(&mut peer, "RETR /f"), Op::Send(send_of("/f")));
    assert!(peer.send("ERET Q 1 2 /f").starts_with("501 "));
}

#[test]
fn allo_checksum_and_attributes_hold_for_one_receive() {
    let mut peer = Peer::logged_in();
    assert_eq!(peer.send("ALLO 600 R 5"), "200 ALLO command successful.\r\n");
    assert_eq!(peer.send("SCKS md5 ABCDEF"), "200 OK.\r\n");
    assert_eq!(peer.send("SITE STORATTR modify=20261121020154;UNIX.mode=0640;x.any=\"a;b\";"), "250 OK.\r\n");
    let expected = ReceiveSpec {
        expected_size: Some(600),
        expected_checksum: Some(("MD5".into(), "abcdef".into())),
        modified: Some((1_795_226_514, 0)),
        mode: Some(0o640),
        ..receive_of("/f", WriteKind::Replace)
    };
    assert_eq!(op_of(&mut peer, "STOR /f"), Op::Receive(expected));
    assert_eq!(op_of(&mut peer, "STOR /f"), Op::Receive(receive_of("/f", WriteKind::Replace)));
    assert_eq!(peer.send("SITE STORATTR checksum.sha256=00ff;"), "250 OK.\r\n");
    let Op::Receive(spec) = op_of(&mut peer, "STOR /f") else { panic!("a receive") };
    assert_eq!(spec.expected_checksum, Some(("SHA256".into(), "00ff".into())));
    for line in ["SCKS nope 00", "SITE STORATTR checksum.nope=00;"] {
        assert_eq!(peer.send(line), "504 Unknown checksum algorithm requested.\r\n");
    }
    for line in [
        "SCKS MD5 xyz",
        "SITE STORATTR modify=x;",
        "SITE STORATTR modify=20261121020154;checksum.md5=;",
        "SITE STORATTR UNIX.mode=640;modify=x;",
        "SITE STORATTR UNIX.mode=;",
        "SITE STORATTR UNIX.mode=rw-;",
        "SITE STORATTR UNIX.mode=10000;",
    ] {
        assert!(peer.send(line).starts_with("501 "), "{line}");
    }
    let Op::Receive(spec) = op_of(&mut peer, "STOR /f") else { panic!("a receive") };
    let told = (spec.modified, spec.mode, spec.expected_checksum);
    assert_eq!(told, (None, None, None), "a refused line changes nothing");
}

#[test]
fn markers_have_the_shapes_of_the_reference_server() {
    let mut peer = Peer::logged_in();
    peer.send("MODE E");
    peer.passive();
    peer.send("STOR /f");
    let (id, _) = peer.op();
    assert_eq!(peer.notice(id, OPENED), "150 Beginning transfer.\r\n");
    let marker = Notice::Performance { stripe: 1, stripes: 2, bytes: 6, at_ms: 1_795_228_805_456 };
    assert_eq!(
        peer.notice(id, marker),
        "112-Perf Marker\r\n Timestamp: 1795228805.4\r\n Stripe Index: 1\r\n Stripe Bytes Transferred: 6\r\n \
         Total Stripe Count: 2\r\n112 End.\r\n"
    );
    assert_eq!(peer.notice(id, Notice::Ranges(vec![0..6, 9..12])), "111 Range Marker 0-6,9-12\r\n");
    assert_eq!(peer.notice(id, Notice::Ranges(vec![])), "", "nothing new, no marker");
    assert_eq!(peer.notice(OpId(999), OPENED), "", "news of another operation");
    assert_eq!(peer.finish(id, Outcome::moved(6)), "226 Transfer Complete.\r\n");
}

#[test]
fn failures_carry_code_and_structure() {
    for (kind, first) in [
        (FailureKind::NotFound, "550-GlobusError: v=1 c=PATH_NOT_FOUND\r\n550-GridFTP-Errno: 2\r\n"),
        (FailureKind::PermissionDenied, "550-GlobusError: v=1 c=PERMISSION_DENIED\r\n550-GridFTP-Errno: 13\r\n"),
        (FailureKind::NotADirectory, "550-GlobusError: v=1 c=NOT_A_DIRECTORY\r\n550-GridFTP-Errno: 20\r\n"),
        (FailureKind::IsADirectory, "550-GlobusError: v=1 c=IS_A_DIRECTORY\r\n550-GridFTP-Errno: 21\r\n"),
        (FailureKind::Exists, "553-GlobusError: v=1 c=PATH_EXISTS\r\n553-GridFTP-Errno: 17\r\n"),
        (FailureKind::NoSpace, "552-GlobusError: v=1 c=NO_SPACE_LEFT\r\n552-GridFTP-Errno: 28\r\n"),
        (FailureKind::Quota, "552-GlobusError: v=1 c=QUOTA_EXCEEDED\r\n552-GridFTP-Errno: 122\r\n"),
        (FailureKind::CannotConnect, "425-GlobusError: v=1 c=DATA_CHANNEL_COMMUNICATION_FAILURE\r\n"),
        (FailureKind::ConnectionBroken, "426-GlobusError: v=1 c=DATA_CHANNEL_COMMUNICATION_FAILURE\r\n"),
        (FailureKind::BadData, "426-GlobusError: v=1 c=DATA_CHANNEL_COMMUNICATION_FAILURE\r\n"),
        (FailureKind::FileTooLarge, "552-GlobusError: v=1 c=INTERNAL_ERROR\r\n552-GridFTP-Errno: 27\r\n"),
        (FailureKind::ReadOnly, "550-GlobusError: v=1 c=INTERNAL_ERROR\r\n550-GridFTP-Errno: 30\r\n"),
        (FailureKind::SourceChanged, "451-GlobusError: v=1 c=INTERNAL_ERROR\r\n451-GridFTP-Reason: why\r\n"),
        (FailureKind::Busy, "450-GlobusError: v=1 c=INTERNAL_ERROR\r\n"),
        (FailureKind::Other, "451-GlobusError: v=1 c=INTERNAL_ERROR\r\n"),
        (FailureKind::BadPath, "550-GlobusError: v=1 c=PERMISSION_DENIED\r\n"),
        (FailureKind::NoDataHandle, "425 why"),
        (FailureKind::NotSupported, "504 why"),
        (FailureKind::BadArgument, "501 why"),
        (FailureKind::Aborted, "426 why"),
    ] {
        let mut peer = Peer::logged_in();
        peer.passive();
        peer.send("RETR /x");
        let (id, _) = peer.op();
        let reply = peer.finish(id, failed(kind, "why"));
        assert!(reply.starts_with(first), "{kind:?}: {reply}");
        assert!(reply.contains("why"), "{kind:?}: {reply}");
        if reply.contains("Globus") {
            assert!(reply.ends_with(&format!("\r\n{} End.\r\n", &reply[..3])), "{reply}");
        }
    }
}

#[test]
fn a_bad_checksum_tells_both_sums() {
    let mut peer = Peer::logged_in();
    peer.passive();
    peer.send("STOR /x");
    let (id, _) = peer.op();
    peer.notice(id, OPENED);
    let reply = peer.finish(
        id,
        Outcome::Failed(Failure {
            kind: FailureKind::Checksum,
            text: "The received file was discarded.".into(),
            checksums: Some(("aa".into(), "bb".into())),
        }),
    );
    assert_eq!(
        reply,
        "550-GlobusError: v=1 c=INCORRECT_CHECKSUM\r\n550-GridFTP-Reason: The received file was discarded.\r\n\
         550-GridFTP-Error-String: Bad checksum\r\n550-GridFTP-Computed-Checksum: aa\r\n\
         550-GridFTP-Expected-Checksum: bb\r\n550 End.\r\n"
    );
}

#[test]
fn mode_e_connections_are_reused_in_one_direction() {
    let mut peer = Peer::logged_in();
    peer.send("MODE E");
    peer.passive();
    for line in ["MLSD /d/", "RETR /d/a", "LIST"] {
        peer.send(line);
        let (id, _) = peer.op();
        let opened = Notice::Opened { reused: true, unique_name: None };
        assert_eq!(peer.notice(id, opened), "125 Beginning transfer; reusing existing data connection.\r\n");
        assert_eq!(peer.finish(id, Outcome::moved(1)), "226 Transfer Complete.\r\n");
    }
    assert!(peer.send("STOR /x").starts_with("425 "), "the other direction needs a new handle");
    peer.passive();
    peer.send("STOR /x");
    assert!(matches!(peer.op().1, Op::Receive(_)));
}

#[test]
fn a_mode_e_handle_survives_a_file_that_cannot_be_opened_but_not_a_broken_transfer() {
    let mut peer = Peer::logged_in();
    peer.send("MODE E");
    peer.passive();
    peer.send("RETR /missing");
    let (id, _) = peer.op();
    peer.finish(id, failed(FailureKind::NotFound, "no"));
    peer.send("RETR /there");
    let (id, _) = peer.op();
    peer.notice(id, OPENED);
    peer.finish(id, failed(FailureKind::ConnectionBroken, "reset"));
    assert_eq!(peer.send("RETR /there"), "425 Use PASV or PORT first.\r\n");
}

#[test]
fn either_side_may_listen_in_mode_e() {
    let mut peer = Peer::logged_in();
    peer.send("MODE E");
    peer.passive();
    peer.send("RETR /f");
    assert!(matches!(peer.op().1, Op::Send(_)), "RETR after PASV: the sender listens");
    let mut peer = Peer::logged_in();
    peer.send("MODE E");
    peer.send("PORT 10,0,0,1,7,208");
    let (id, _) = peer.op();
    peer.finish(id, Outcome::Done);
    peer.send("STOR /f");
    assert!(matches!(peer.op().1, Op::Receive(_)), "STOR after PORT: the receiver connects");
}

#[test]
fn version_2_commands_make_their_own_handle() {
    let mut peer = Peer::logged_in();
    peer.send("GET path=/f;pasv;");
    let (id, op) = peer.op();
    assert!(matches!(op, Op::Passive { striped: false, .. }));
    assert_eq!(peer.finish(id, listening("10.0.0.1:2000")), "127 PORT (10,0,0,1,7,208)\r\n");
    let (id, op) = peer.op();
    assert_eq!(op, Op::Send(send_of("/f")));
    assert_eq!(peer.notice(id, OPENED), "150 Beginning transfer.\r\n");
    assert_eq!(peer.finish(id, Outcome::moved(6)), "226 Transfer Complete.\r\n");

    peer.send("MODE E");
    peer.send("GET path=/f;port=10,0,0,1,7,208;");
    let (id, op) = peer.op();
    assert!(matches!(op, Op::Active { .. }));
    assert_eq!(peer.finish(id, Outcome::Done), "", "no 127 and no 200");
    let (id, _) = peer.op();
    assert!(peer.finish(id, Outcome::moved(6)).ends_with("226 Transfer Complete.\r\n"));
    peer.send("GET path=/g;");
    assert_eq!(peer.op().1, Op::Send(send_of("/g")), "the cached connections serve the next one");

    let mut peer = Peer::logged_in();
    peer.send("PUT path=/f;pasv;");
    let (id, _) = peer.op();
    assert_eq!(peer.finish(id, listening("10.0.0.1:2000")), "127 PORT (10,0,0,1,7,208)\r\n");
    assert_eq!(peer.op().1, Op::Receive(receive_of("/f", WriteKind::Replace)));
}

#[test]
fn a_read_only_server_refuses_every_change_and_still_reads() {
    let mut peer = Peer::logged_in_with(ServerConfig { read_only: true, ..ServerConfig::default() });
    peer.passive();
    for line in [
        "STOR /x",
        "APPE /x",
        "STOU",
        "ESTO A 0 /x",
        "PUT path=/x;pasv;",
        "MKD /x",
        "RMD /x",
        "DELE /x",
        "RNFR /x",
        "MFMT 20200101000000 /x",
        "SITE CHMOD 644 /x",
        "SITE CHGRP g /x",
        "SITE UTIME 20200101000000 /x",
        "SITE RDEL /x",
        "SITE TRNC 0 /x",
        "SITE SYMLINK a /x",
    ] {
        let reply = peer.send(line);
        assert!(reply.starts_with("550-") && reply.contains("read-only"), "{line}: {reply}");
    }
    peer.send("RETR /x");
    assert!(matches!(peer.op().1, Op::Send(_)));
}

#[test]
fn what_is_stored_is_durable_for_those_who_ask_until_they_ask_no_more() {
    let mut peer = Peer::logged_in();
    assert!(peer.send("FEAT").contains("\r\n DURABLE\r\n"));
    for (wanted, durable) in [(None, false), (Some("1"), true), (None, true), (Some("0"), false)] {
        if let Some(wanted) = wanted {
            assert_eq!(peer.send(&format!("SITE DURABLE {wanted}")), "200 OK.\r\n");
        }
        let Op::Receive(spec) = op_of(&mut peer, "STOR /f") else { panic!("a receive") };
        assert_eq!(spec.durable, durable);
    }
    for bad in ["SITE DURABLE", "SITE DURABLE 2", "SITE DURABLE on"] {
        assert_eq!(&peer.send(bad)[..3], "501");
    }
}

#[test]
fn a_restart_is_strict_only_for_those_who_say_so_and_once() {
    let mut peer = Peer::logged_in();
    for strict in [true, false] {
        if strict {
            assert_eq!(peer.send("SITE STORATTR restart=strict;"), "250 OK.\r\n");
        }
        assert_eq!(&peer.send("REST 5")[..3], "350");
        let Op::Receive(spec) = op_of(&mut peer, "STOR /f") else { panic!("a receive") };
        assert_eq!((spec.strict, matches!(spec.write, WriteKind::Restart { .. })), (strict, true));
    }
}

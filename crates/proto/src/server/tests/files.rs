//! CWD, MKD, RNFR, SIZE, MDTM, MFMT, CKSM.

use super::*;

#[test]
fn cwd_follows_what_the_data_side_resolved() {
    let mut peer = Peer::logged_in();
    let op = Op::EnterDirectory(b"/home/u/x/..".to_vec());
    let reply = peer.exchange("CWD x/..", &op, Outcome::Directory(b"/say \"hi\"".to_vec()));
    assert_eq!(reply, "250 CWD command successful.\r\n");
    assert_eq!(peer.send("PWD"), "257 \"/say \"\"hi\"\"\" is current directory.\r\n");
    let op = Op::EnterDirectory(b"/say \"hi\"/..".to_vec());
    peer.exchange("CDUP", &op, Outcome::Directory(b"/".to_vec()));
    assert_eq!(peer.send("PWD"), "257 \"/\" is current directory.\r\n");
    let missing = failed(FailureKind::NotFound, "Cannot enter /x");
    let reply = peer.exchange("CWD x", &Op::EnterDirectory(b"/x".to_vec()), missing);
    assert!(reply.starts_with("550-GlobusError: v=1 c=PATH_NOT_FOUND\r\n"));
    assert_eq!(peer.send("PWD"), "257 \"/\" is current directory.\r\n");
}

#[test]
fn names_that_hold_line_ends_cannot_break_a_reply() {
    let mut peer = Peer::logged_in();
    let evil = Outcome::Directory(b"/a\r\n230 in".to_vec());
    let reply = peer.exchange("MKD /a", &Op::MakeDirectory(b"/a".to_vec()), evil);
    assert_eq!(reply, "257 \"/a??230 in\" directory created.\r\n");
    assert_eq!(peer.send_bytes(b"SITE X\rY\r\n"), "500 SITE X?Y is not implemented.\r\n");
}

#[test]
fn changes_answer_250_and_mkd_names_the_directory() {
    let mut peer = Peer::logged_in();
    let ok = "250 OK.\r\n";
    assert_eq!(peer.exchange("RMD d", &Op::RemoveDirectory(b"/home/u/d".to_vec()), Outcome::Done), ok);
    assert_eq!(peer.exchange("XRMD /d", &Op::RemoveDirectory(b"/d".to_vec()), Outcome::Done), ok);
    assert_eq!(peer.exchange("DELE /f", &Op::Delete(b"/f".to_vec()), Outcome::Done), ok);
    let made = Outcome::Directory(b"/d".to_vec());
    let reply = peer.exchange("MKD /d/", &Op::MakeDirectory(b"/d/".to_vec()), made);
    assert_eq!(reply, "257 \"/d\" directory created.\r\n");
    let full = failed(FailureKind::NotEmpty, "d");
    let reply = peer.exchange("RMD /d", &Op::RemoveDirectory(b"/d".to_vec()), full);
    assert!(reply.starts_with("550-") && reply.contains("Directory not empty"), "not worth repeating: {reply}");
    let there = failed(FailureKind::Exists, "d");
    assert!(peer.exchange("MKD /d", &Op::MakeDirectory(b"/d".to_vec()), there).starts_with("553-"));
}

#[test]
fn renaming_needs_an_existing_source_and_both_commands() {
    let mut peer = Peer::logged_in();
    assert_eq!(peer.send("RNTO /b"), "503 Send RNFR first.\r\n");
    let missing = failed(FailureKind::NotFound, "/a");
    assert!(peer.exchange("RNFR /a", &Op::Exists(b"/a".to_vec()), missing).starts_with("550-"));
    assert_eq!(peer.send("RNTO /b"), "503 Send RNFR first.\r\n");
    let reply = peer.exchange("RNFR /a", &Op::Exists(b"/a".to_vec()), Outcome::Done);
    assert_eq!(reply, "350 OK. Send RNTO with destination name.\r\n");
    let op = Op::Rename { from: b"/a".to_vec(), to: b"/home/u/b".to_vec() };
    assert_eq!(peer.exchange("RNTO b", &op, Outcome::Done), "250 OK.\r\n");
    assert_eq!(peer.send("RNTO b"), "503 Send RNFR first.\r\n");
}

#[test]
fn size_is_the_binary_size_in_every_type_and_refused_for_directories() {
    let mut peer = Peer::logged_in();
    let op = Op::Size(b"/f".to_vec());
    for kind in ["TYPE A", "TYPE I"] {
        peer.send(kind);
        assert_eq!(peer.exchange("SIZE /f", &op, Outcome::Size(6)), "213 6\r\n");
    }
    let directory = failed(FailureKind::IsADirectory, "/f is a directory");
    assert!(peer.exchange("SIZE /f", &op, directory).starts_with("550-GlobusError: v=1 c=IS_A_DIRECTORY\r\n"));
}

#[test]
fn times_are_told_and_set() {
    let mut peer = Peer::logged_in();
    let op = Op::Modified(b"/f".to_vec());
    assert_eq!(peer.exchange("MDTM /f", &op, Outcome::Modified(1_795_226_514, 5)), "213 20261121020154\r\n");
    let set = Op::SetModified { path: b"/a b".to_vec(), seconds: 1_795_226_514, nanoseconds: 0 };
    let reply = peer.exchange("MFMT 20261121020154 /a b", &set, Outcome::Done);
    assert_eq!(reply, "213 Modify=20261121020154; /a b\r\n");
    assert!(peer.send("MFMT 2026 /a").starts_with("501 "));
    assert!(peer.send("MFMT 20261321020154 /a").starts_with("501 "));
}

#[test]
fn mdtm_with_a_time_sets_it_unless_a_file_has_that_very_name() {
    let mut peer = Peer::logged_in();
    peer.send("MDTM 20261121020154 /f");
    let (id, op) = peer.op();
    assert_eq!(op, Op::Modified(b"/home/u/20261121020154 /f".to_vec()));
    assert_eq!(peer.finish(id, failed(FailureKind::NotFound, "no")), "");
    let (id, op) = peer.op();
    assert_eq!(op, Op::SetModified { path: b"/f".to_vec(), seconds: 1_795_226_514, nanoseconds: 0 });
    assert_eq!(peer.finish(id, Outcome::Done), "213 Modify=20261121020154; /f\r\n");
    peer.send("MDTM 20261121020154 x");
    let (id, _) = peer.op();
    assert_eq!(peer.finish(id, Outcome::Modified(0, 0)), "213 19700101000000\r\n");
}

#[test]
fn cksm_gives_the_bare_digest_and_markers_when_asked() {
    let mut peer = Peer::logged_in();
    let op = |marker_interval| Op::Checksum {
        algorithm: "SHA256".into(),
        offset: 5,
        length: None,
        path: b"/f".to_vec(),
        marker_interval,
    };
    assert_eq!(peer.exchange("CKSM sha256 5 -1 /f", &op(None), Outcome::Checksum("ab01".into())), "213 ab01\r\n");
    assert_eq!(peer.send("OPTS CKSM Markers=7;"), "200 OPTS Command Successful.\r\n");
    peer.send("CKSM SHA256 5 -1 /f");
    let (id, ran) = peer.op();
    assert_eq!(ran, op(Some(Duration::from_secs(7))));
    assert_eq!(
        peer.notice(id, Notice::Hashed { bytes: 10, at_ms: 1_500 }),
        "113-Status Marker\r\n Timestamp: 1.5\r\n Bytes Processed: 10\r\n113 End.\r\n"
    );
    assert_eq!(peer.finish(id, Outcome::Checksum("cd".into())), "213 cd\r\n");
    assert_eq!(peer.send("CKSM CRC8 0 -1 /f"), "504 Unknown checksum algorithm requested.\r\n");
    assert!(peer.send("CKSM MD5 -5 -1 /f").starts_with("501 "));
    assert_eq!(peer.events, []);
}

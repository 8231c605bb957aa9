//! SITE.

use super::*;

#[test]
fn site_words_become_operations_and_answer_250() {
    let mut peer = Peer::logged_in();
    let f = || b"/f".to_vec();
    let time = Op::SetModified { path: f(), seconds: 1_795_226_514, nanoseconds: 0 };
    for (line, op) in [
        ("SITE CHMOD 0644 /f", Op::SetMode { path: f(), mode: 0o644 }),
        ("SITE CHMOD 1777 /f", Op::SetMode { path: f(), mode: 0o1777 }),
        ("site chgrp users /f", Op::SetGroup { path: f(), group: "users".into() }),
        ("SITE UTIME 20261121020154 /f", time.clone()),
        ("SITE UTIME 202611210201 /f", Op::SetModified { path: f(), seconds: 1_795_226_460, nanoseconds: 0 }),
        ("SITE UTIME /f 20261121020100 20261121020154 20261121020100 UTC", time),
        ("SITE RDEL /f", Op::DeleteTree(f())),
        ("SITE SYNC /f", Op::Sync(f())),
        ("SITE TRNC 7 /f", Op::Truncate { path: f(), size: 7 }),
        ("SITE SYMLINK a /f", Op::Symlink { target: b"a".to_vec(), link: f() }),
    ] {
        assert_eq!(peer.exchange(line, &op, Outcome::Done), "250 OK.\r\n");
    }
}

#[test]
fn symlink_in_two_commands() {
    let mut peer = Peer::logged_in();
    assert_eq!(peer.send("SITE SYMLINKTO /l"), "503 Send SITE SYMLINKFROM first.\r\n");
    assert_eq!(peer.send("SITE SYMLINKFROM a b"), "350 OK. Send SITE SYMLINKTO with symlink name.\r\n");
    let op = Op::Symlink { target: b"a b".to_vec(), link: b"/home/u/l".to_vec() };
    assert_eq!(peer.exchange("SITE SYMLINKTO l", &op, Outcome::Done), "250 OK.\r\n");
    assert_eq!(peer.send("SITE SYMLINKTO /l"), "503 Send SITE SYMLINKFROM first.\r\n");
}

#[test]
fn bad_arguments_reach_no_file() {
    let mut peer = Peer::logged_in();
    for line in [
        "SITE CHMOD abc /f",
        "SITE CHMOD 99 /f",
        "SITE CHMOD 77777 /f",
        "SITE CHMOD 644",
        "SITE UTIME yesterday /f",
        "SITE TRNC x /f",
        "SITE RDEL",
        "SITE SYNC",
        "SITE",
    ] {
        assert!(peer.send(line).starts_with("501 "), "{line}");
    }
    assert_eq!(peer.events, []);
}

#[test]
fn labels_reach_the_driver() {
    let mut peer = Peer::logged_in();
    assert_eq!(peer.send("SITE CLIENTINFO scheme=ftp;appname=\"guc\";"), "250 OK.\r\n");
    assert_eq!(peer.events, [ServerEvent::Label(Label::ClientInfo(b"scheme=ftp;appname=guc;".to_vec()))]);
    peer.events.clear();
    assert_eq!(peer.send("SITE TASKID 1-2"), "250 OK.\r\n");
    assert_eq!(peer.events, [ServerEvent::Label(Label::TaskId(b"1-2".to_vec()))]);
}

#[test]
fn labels_have_a_length() {
    let mut peer = Peer::logged_in();
    let longest = "x".repeat(1024);
    assert_eq!(peer.send(&format!("SITE TASKID {longest}")), "250 OK.\r\n");
    assert_eq!(peer.events, [ServerEvent::Label(Label::TaskId(longest.clone().into_bytes()))]);
    peer.events.clear();
    assert_eq!(peer.send(&format!("SITE TASKID {longest}x")), "501 A task id has 1024 bytes at most.\r\n");
    let info = format!("SITE CLIENTINFO appname={longest};");
    assert_eq!(peer.send(&info), "501 Client information has 1024 bytes at most.\r\n");
    assert_eq!(peer.events, []);
}

#[test]
fn doubled_telnet_bytes_are_one_until_the_client_shows_itself_as_gridftp() {
    let mut peer = Peer::logged_in();
    peer.send_bytes(b"SIZE /\xff\xff\r\n");
    let (id, op) = peer.op();
    assert_eq!(op, Op::Size(b"/\xff".to_vec()));
    peer.finish(id, Outcome::Size(1));
    peer.send("SITE CLIENTINFO scheme=ftp;");
    peer.events.clear();
    peer.send_bytes(b"SIZE /\xff\xff\r\n");
    assert_eq!(peer.op().1, Op::Size(b"/\xff\xff".to_vec()));
}

#[test]
fn unknown_and_absent_words_are_refused_and_the_connection_goes_on() {
    let mut peer = Peer::logged_in();
    for (line, reply) in [
        ("SITE FOO x", "500 SITE FOO is not implemented."),
        ("SITE DSI hdfs", "502 SITE DSI is not implemented."),
        ("SITE CHROOT /x", "502 SITE CHROOT is not implemented."),
        ("SITE SETNETSTACK tcp", "250 OK."),
        ("SITE SETNETSTACK default", "250 OK."),
        ("SITE SETNETSTACK udt,gsi", "504 This network driver stack is not available: udt,gsi"),
        ("SITE SETDISKSTACK popen:argv=#/bin/cat", "504 This file driver stack is not available: popen:argv=#/bin/cat"),
        ("SITE WHOAMI", "200 u"),
    ] {
        assert_eq!(peer.send(line), format!("{reply}\r\n"));
    }
    assert!(peer.send("SITE VERSION").starts_with("200 Whimbrel "));
    assert!(peer.send("HELP SITE").contains("\r\n SITE CHMOD <sp> mode <sp> pathname\r\n"));
}

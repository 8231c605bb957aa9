//! LIST, NLST, MLSD, MLSR, MLST, MLSC, STAT.

use super::*;
use crate::op::{ListForm, ListSpec};

fn spec(path: &str, form: ListForm) -> ListSpec {
    let (path, flags) = (path.into(), vec![]);
    ListSpec { path, written: vec![], form, facts: None, flags, continue_on_error: true, follow_links: false }
}

fn listed(peer: &mut Peer, line: &str) -> ListSpec {
    peer.passive();
    peer.send(line);
    let (id, op) = peer.op();
    peer.finish(id, Outcome::moved(0));
    match op {
        Op::SendListing(spec) => spec,
        other => panic!("{other:?}"),
    }
}

#[test]
fn listings_over_the_data_connection_name_form_path_and_flags() {
    let mut peer = Peer::logged_in();
    assert_eq!(listed(&mut peer, "LIST"), spec("/home/u", ListForm::Long));
    let written = |text: &str, spec| ListSpec { written: text.into(), ..spec };
    let flags = written("/", ListSpec { flags: b"la".to_vec(), ..spec("/d", ListForm::Long) });
    assert_eq!(listed(&mut peer, "LIST -la /d"), flags);
    let flags = ListSpec { flags: b"a".to_vec(), ..spec("/home/u", ListForm::Long) };
    assert_eq!(listed(&mut peer, "LIST -a"), flags);
    assert_eq!(listed(&mut peer, "NLST *.txt"), spec("/home/u/*.txt", ListForm::Names));
    assert_eq!(listed(&mut peer, "NLST d/e/*.txt"), written("d/e/", spec("/home/u/d/e/*.txt", ListForm::Names)));
    assert_eq!(listed(&mut peer, "MLSD /d/"), written("/d/", spec("/d/", ListForm::Facts)));
    assert_eq!(listed(&mut peer, "MLSD"), spec("/home/u", ListForm::Facts));
    assert_eq!(listed(&mut peer, "MLSR /d"), written("/", spec("/d", ListForm::FactsRecursive)));
}

#[test]
fn opts_reach_machine_listings() {
    let mut peer = Peer::logged_in();
    assert_eq!(
        peer.send("OPTS MLSR onerror=fail;traversesymboliclinks=true;type;"),
        "200 OPTS Command Successful.\r\n"
    );
    let expected = ListSpec {
        facts: Some(vec!["Type".into()]),
        continue_on_error: false,
        follow_links: true,
        written: b"/".to_vec(),
        ..spec("/d", ListForm::FactsRecursive)
    };
    assert_eq!(listed(&mut peer, "MLSR /d"), expected);
}

#[test]
fn mlst_shows_one_line_with_the_path_as_given() {
    let mut peer = Peer::logged_in();
    let facts = |path: &str| Op::Facts { path: path.into(), facts: None };
    let line = Outcome::Line(b"Type=file;Size=1; /home/u/a b".to_vec());
    let reply = peer.exchange("MLST a b", &facts("/home/u/a b"), line);
    assert_eq!(reply, "250-status of a b\r\n Type=file;Size=1; a b\r\n250 End.\r\n");
    let reply = peer.exchange("MLST", &facts("/home/u"), Outcome::Line(b"Type=dir; /home/u".to_vec()));
    assert_eq!(reply, "250-status of /home/u\r\n Type=dir; /home/u\r\n250 End.\r\n");
    let reply = peer.exchange("MLST /x", &facts("/x"), failed(FailureKind::NotFound, "stat"));
    assert!(reply.starts_with("550-GlobusError: v=1 c=PATH_NOT_FOUND\r\n"));
}

#[test]
fn mlsc_of_a_big_directory_comes_in_parts_of_which_the_last_is_250() {
    let mut peer = Peer::logged_in();
    peer.send("MLSC /d");
    let (id, op) = peer.op();
    assert_eq!(op, Op::Listing(ListSpec { written: b"/".to_vec(), ..spec("/d", ListForm::Facts) }));
    assert_eq!(peer.notice(id, Notice::Lines(b"Type=file; a\r\nType=file; b\r\n".to_vec())), "");
    let first = "150-Contents of /d\r\n Type=file; a\r\n Type=file; b\r\n150 End.\r\n";
    assert_eq!(peer.notice(id, Notice::Lines(b"Type=file; c\r\n".to_vec())), first);
    assert_eq!(peer.finish(id, Outcome::Done), "250-Contents of /d\r\n Type=file; c\r\n250 End.\r\n");
    peer.send("MLSC");
    let (id, _) = peer.op();
    assert_eq!(peer.finish(id, Outcome::Done), "250-Contents of /home/u\r\n250 End.\r\n");
}

#[test]
fn mlsc_that_fails_on_the_way_ends_with_the_failure() {
    let mut peer = Peer::logged_in();
    peer.send("MLSC /d");
    let (id, _) = peer.op();
    peer.notice(id, Notice::Lines(b"Type=file; a\r\n".to_vec()));
    let reply = peer.finish(id, failed(FailureKind::Other, "disk"));
    assert!(reply.starts_with("451-GlobusError") && !reply.contains("Type=file"), "{reply}");
}

#[test]
fn stat_of_a_path_lists_it_on_the_control_connection() {
    let mut peer = Peer::logged_in();
    peer.send("STAT /d");
    let (id, op) = peer.op();
    assert_eq!(op, Op::Listing(ListSpec { written: b"/".to_vec(), ..spec("/d", ListForm::Long) }));
    let reply = peer.notice(id, Notice::Lines(b"-rw-r--r-- a\nb\r\n".to_vec()));
    assert_eq!(reply, "213-status of /d\r\n -rw-r--r-- a?b\r\n");
    assert_eq!(peer.finish(id, Outcome::Done), "213 End.\r\n");
    peer.send("STAT /d");
    let (id, _) = peer.op();
    assert!(peer.finish(id, failed(FailureKind::NotFound, "stat")).starts_with("550-"));
    peer.send("STAT /d");
    let (id, _) = peer.op();
    peer.notice(id, Notice::Lines(b"x\r\n".to_vec()));
    assert_eq!(peer.finish(id, failed(FailureKind::Other, "disk")), "213 Incomplete: disk\r\n");
    assert_eq!(peer.send("NOOP"), "200 NOOP command successful.\r\n");
}

//! SITE PROBE, ERET M, ESTO D, SITE CONGESTION, SITE SPENT.

use super::*;
use crate::op::{Bounds, Fact, Probe, ProbeKind, Spent};

fn probing(read_only: bool) -> Peer {
    let congestion = vec!["reno".to_owned(), "bbr".to_owned()];
    Peer::logged_in_with(ServerConfig { read_only, congestion, processors: Some(1.5), ..ServerConfig::default() })
}

/// Sends a line that becomes an operation.
fn run(peer: &mut Peer, line: &str) -> (OpId, Op) {
    assert_eq!(peer.send(line), "", "no reply to {line} yet");
    peer.op()
}

fn probe_of(op: &Op) -> &Probe {
    match op {
        Op::Probe(probe) => probe,
        other => panic!("{other:?}"),
    }
}

#[test]
fn measuring_is_bounded_told_in_facts_and_announced_after_login() {
    let mut peer = probing(false);
    let features = peer.send("FEAT");
    for line in [" PROBE 17179869184,60000\r\n", " CONGESTION reno,bbr\r\n", " PROCESSORS 1.50\r\n", " SPENT\r\n"] {
        assert!(features.contains(line), "{line} in {features}");
    }
    let (id, op) = run(&mut peer, "SITE PROBE READ 18446744073709551615,999999999 data");
    let probe = probe_of(&op);
    assert_eq!((probe.kind, &probe.path[..]), (ProbeKind::Read, &b"/home/u/data"[..]));
    assert_eq!(probe.bounds, Bounds { bytes: 16 << 30, time: Duration::from_secs(60) });
    let facts = vec![Fact::new("bytes", 7), Fact::new("BAD", "left out"), Fact::new("from", "sto\r\nrage")];
    assert_eq!(
        peer.finish(id, Outcome::Probed(facts)),
        "250-Probed.\r\n FACT bytes 7\r\n FACT from sto  rage\r\n250 End\r\n"
    );
}

#[test]
fn a_read_only_server_measures_nothing_that_writes() {
    let mut peer = probing(true);
    for line in ["SITE PROBE WRITE 1,1 /d", "ESTO D 1,1 /d"] {
        assert!(peer.send(line).starts_with("550"), "{line}");
    }
    assert!(matches!(run(&mut peer, "SITE PROBE HOST /d").1, Op::Probe(Probe { kind: ProbeKind::Host, .. })));
}

#[test]
fn switched_off_it_is_neither_announced_nor_done() {
    let mut peer = Peer::logged_in_with(ServerConfig { probe: None, ..ServerConfig::default() });
    assert!(!peer.send("FEAT").contains("PROBE"));
    for line in ["SITE PROBE HOST /", "SITE PROBE READ 1,1 /", "ERET M 1,1 /", "ESTO M 1,1 /"] {
        assert!(peer.send(line).starts_with("502"), "{line}");
    }
    assert!(peer.send("SITE CONGESTION bbr").starts_with("502"), "no names are allowed");
}

#[test]
fn a_congestion_control_is_frozen_in_the_next_handle_and_unknown_ones_are_refused() {
    let mut peer = probing(false);
    assert_eq!(
        peer.send("SITE CONGESTION cubic"),
        "504 Congestion control cubic is not allowed here; allowed are reno, bbr.\r\n"
    );
    assert_eq!(peer.send("SITE CONGESTION bbr"), "200 OK.\r\n");
    let (_, op) = run(&mut peer, "PORT 127,0,0,1,100,1");
    assert!(matches!(op, Op::Active { params, .. } if params.congestion.as_deref() == Some("bbr")));
}

#[test]
fn where_the_time_went_is_told_to_those_who_ask() {
    for asked in [false, true] {
        let mut peer = probing(false);
        if asked {
            assert_eq!(peer.send("SITE SPENT 1"), "200 OK.\r\n");
        }
        let (id, _) = run(&mut peer, "PORT 127,0,0,1,100,1");
        peer.finish(id, Outcome::Done);
        let (id, _) = run(&mut peer, "RETR /f");
        for bytes in [5, 6] {
            peer.notice(id, Notice::Spent(Box::new(Spent { bytes, ..Spent::default() })));
        }
        let reply = peer.finish(id, Outcome::moved(11));
        assert_eq!(reply.contains("226-Transfer Complete.\r\n SPENT bytes=11;\r\n226 End\r\n"), asked, "{reply}");
    }
}

//! Order of replies, ABOR and STAT while something runs, shutdown.

use super::*;

#[test]
fn pipelined_commands_are_answered_in_order() {
    let mut peer = Peer::logged_in();
    assert_eq!(peer.send_bytes(b"SIZE /a\r\nNOOP\r\nSIZE /b\r\nPWD\r\n"), "");
    let (id, op) = peer.op();
    assert_eq!(op, Op::Size(b"/a".to_vec()));
    assert_eq!(peer.finish(id, Outcome::Size(1)), "213 1\r\n200 NOOP command successful.\r\n");
    let (id, op) = peer.op();
    assert_eq!(op, Op::Size(b"/b".to_vec()));
    assert_eq!(peer.finish(id, Outcome::Size(2)), "213 2\r\n257 \"/home/u\" is current directory.\r\n");
}

#[test]
fn an_outcome_of_another_operation_is_ignored() {
    let mut peer = Peer::logged_in();
    peer.send("SIZE /a");
    let (id, _) = peer.op();
    assert_eq!(peer.finish(OpId(id.0 + 1), Outcome::Size(9)), "");
    assert_eq!(peer.finish(id, Outcome::Size(1)), "213 1\r\n");
    assert_eq!(peer.finish(id, Outcome::Size(1)), "", "once only");
}

#[test]
fn abor_in_a_transfer_ends_it_with_426_then_226_and_the_connection_goes_on() {
    let mut peer = Peer::logged_in();
    peer.passive();
    peer.send("RETR /f");
    let (id, _) = peer.op();
    peer.notice(id, OPENED);
    assert_eq!(peer.send("ABOR"), "");
    assert_eq!(peer.events, [ServerEvent::Abort { id }]);
    peer.events.clear();
    assert_eq!(peer.send("ABOR"), "");
    assert_eq!(peer.events, [], "one is enough");
    let reply = peer.finish(id, failed(FailureKind::Aborted, "stopped"));
    assert_eq!(reply, "426 Transfer aborted.\r\n226 Abort successful.\r\n226 Abort successful.\r\n");
    peer.passive();
    peer.send("RETR /f");
    assert!(matches!(peer.op().1, Op::Send(_)));
}

#[test]
fn abor_that_comes_too_late_leaves_the_226_of_the_transfer() {
    let mut peer = Peer::logged_in();
    peer.passive();
    peer.send("RETR /f");
    let (id, _) = peer.op();
    peer.notice(id, OPENED);
    peer.send_bytes(b"\xff\xf4\xff\xf2ABOR\r\n");
    let reply = peer.finish(id, Outcome::moved(1));
    assert_eq!(reply, "226 Transfer Complete.\r\n226 Abort successful.\r\n");
}

#[test]
fn an_urgent_abor_whose_lf_is_lost_still_aborts() {
    let mut peer = Peer::logged_in();
    peer.passive();
    peer.send("RETR /f");
    let (id, _) = peer.op();
    peer.notice(id, OPENED);
    peer.send_bytes(b"ABOR\r");
    assert_eq!(peer.events, [ServerEvent::Abort { id }]);
    let reply = peer.finish(id, failed(FailureKind::Aborted, "stopped"));
    assert_eq!(reply, "426 Transfer aborted.\r\n226 Abort successful.\r\n");
    assert_eq!(peer.send_bytes(b"\n"), "");
    assert_eq!(peer.send("NOOP"), "200 NOOP command successful.\r\n");
}

#[test]
fn abor_cancels_the_transfers_pipelined_before_it_and_nothing_else() {
    let mut peer = Peer::logged_in();
    peer.send("MODE E");
    peer.passive();
    peer.send_bytes(b"RETR /a\r\nREST 5\r\nRETR /b\r\nNOOP\r\nABOR\r\nRETR /c\r\n");
    let id = match peer.events.as_slice() {
        [ServerEvent::Run { id, .. }, ServerEvent::Abort { id: aborted }] if id == aborted => *id,
        other => panic!("{other:?}"),
    };
    peer.events.clear();
    let reply = peer.finish(id, failed(FailureKind::Aborted, "stopped"));
    assert_eq!(
        reply,
        "426 Transfer aborted.\r\n350 Restart Marker OK. Send STORE or RETR to initiate transfer.\r\n\
         426 Transfer aborted before it began.\r\n200 NOOP command successful.\r\n"
    );
    let (id, op) = peer.op();
    assert_eq!(op, Op::CloseData, "ABOR closes the handle, which had not been opened");
    assert_eq!(peer.finish(id, Outcome::Done), "226 Abort successful.\r\n425 Use PASV or PORT first.\r\n");
}

#[test]
fn abor_before_a_delayed_handle_listens_stops_the_transfer() {
    let mut peer = Peer::logged_in();
    peer.send("OPTS PASV AllowDelayed=1;");
    peer.send("PASV");
    peer.send("STOR /f");
    let (id, _) = peer.op();
    peer.send("ABOR");
    peer.events.clear();
    assert_eq!(peer.finish(id, listening("10.0.0.1:2000")), "426 Transfer aborted before it began.\r\n");
    assert_eq!(peer.op().1, Op::CloseData);
}

#[test]
fn abor_stops_a_checksum_too() {
    let mut peer = Peer::logged_in();
    peer.send("CKSM MD5 0 -1 /f");
    let (id, _) = peer.op();
    peer.send("ABOR");
    let reply = peer.finish(id, failed(FailureKind::Aborted, "stopped"));
    assert_eq!(reply, "451 Command aborted.\r\n226 Abort successful.\r\n");
}

#[test]
fn stat_in_a_transfer_is_answered_at_once_unless_something_waits_before_it() {
    let mut peer = Peer::logged_in();
    peer.passive();
    peer.send("RETR /f");
    let (id, _) = peer.op();
    peer.notice(id, OPENED);
    peer.notice(id, Notice::Performance { stripe: 0, stripes: 1, bytes: 77, at_ms: 0 });
    let status = peer.send("stat");
    assert!(status.starts_with("211-") && status.contains("RETR is running: 77 bytes moved"), "{status}");
    assert_eq!(peer.send("STAT /f"), "", "a path needs the data side");
    assert_eq!(peer.send("STAT"), "", "order comes first");
    assert_eq!(peer.finish(id, Outcome::moved(99)), "226 Transfer Complete.\r\n");
    let (id, op) = peer.op();
    assert!(matches!(op, Op::Listing(_)));
    assert!(peer.finish(id, Outcome::Done).contains("211-GridFTP server status."));
}

#[test]
fn stat_waits_for_the_end_of_a_listing_that_has_begun() {
    let mut peer = Peer::logged_in();
    peer.send("STAT /d");
    let (id, _) = peer.op();
    assert!(peer.send("STAT").starts_with("211-GridFTP server status."), "nothing of the listing is sent yet");
    assert_eq!(peer.notice(id, Notice::Lines(b"a\r\n".to_vec())), "213-status of /d\r\n a\r\n");
    assert_eq!(peer.send("STAT"), "");
    assert!(peer.finish(id, Outcome::Done).starts_with("213 End.\r\n211-GridFTP server status."));
}

#[test]
fn quit_in_a_transfer_waits_for_it() {
    let mut peer = Peer::logged_in();
    peer.passive();
    peer.send("RETR /f");
    let (id, _) = peer.op();
    peer.notice(id, OPENED);
    assert_eq!(peer.send("QUIT"), "");
    peer.machine.handle_eof(peer.now);
    assert_eq!(peer.output(), "");
    assert_eq!(peer.events, [], "the client said goodbye before it closed");
    let reply = peer.finish(id, Outcome::moved(1));
    assert_eq!(reply, "226 Transfer Complete.\r\n221 Goodbye.\r\n");
    assert_eq!(peer.events, [ServerEvent::Closed(CloseReason::Quit)]);
}

#[test]
fn a_client_that_vanishes_aborts_what_runs() {
    let mut peer = Peer::logged_in();
    peer.passive();
    peer.send_bytes(b"RETR /f\r\nRETR /g\r\n");
    let (id, _) = peer.op();
    peer.machine.handle_eof(peer.now);
    assert_eq!(peer.output(), "");
    assert_eq!(peer.events, [ServerEvent::Abort { id }, ServerEvent::Closed(CloseReason::Eof)]);
    assert_eq!(peer.finish(id, Outcome::moved(1)), "");
    assert_eq!(peer.send("NOOP"), "");
    assert!(peer.machine.is_closed());
}

#[test]
fn a_drain_is_421_at_once_when_idle() {
    let mut peer = Peer::logged_in();
    peer.machine.begin_drain(peer.now);
    assert_eq!(peer.output(), "421 Service shutting down, closing control connection.\r\n");
    assert_eq!(peer.events, [ServerEvent::Closed(CloseReason::Drained)]);
}

#[test]
fn a_drain_lets_the_running_transfer_end() {
    let mut peer = Peer::logged_in();
    peer.passive();
    peer.send_bytes(b"RETR /f\r\nNOOP\r\n");
    let (id, _) = peer.op();
    peer.machine.begin_drain(peer.now);
    assert_eq!(peer.output(), "");
    let reply = peer.finish(id, Outcome::moved(1));
    let bye = "421 Service shutting down, closing control connection.\r\n";
    assert_eq!(reply, format!("150 Beginning transfer.\r\n226 Transfer Complete.\r\n{bye}"));
    assert_eq!(peer.events, [ServerEvent::Closed(CloseReason::Drained)]);
}

#[test]
fn a_credential_that_expires_lets_the_running_transfer_end_and_nothing_begin() {
    let mut peer = Peer::logged_in();
    peer.passive();
    peer.send_bytes(b"RETR /f\r\nSIZE /f\r\n");
    let (id, _) = peer.op();
    peer.machine.expire(peer.now);
    // A shutdown on top changes nothing.
    peer.machine.begin_drain(peer.now);
    assert_eq!(peer.output(), "");
    let reply = peer.finish(id, Outcome::moved(1));
    let bye = "421 Your credential has expired: log in again with a new one.\r\n";
    assert_eq!(reply, format!("150 Beginning transfer.\r\n226 Transfer Complete.\r\n{bye}"));
    assert_eq!(peer.events, [ServerEvent::Closed(CloseReason::Expired)]);
}

#[test]
fn what_comes_too_late_for_a_login_is_told_that_another_may_do_it() {
    let mut peer = Peer::logged_in();
    for line in ["SIZE /f", "DELE /f", "SITE SYNC /d"] {
        peer.send(line);
        let (id, _) = peer.op();
        let reply = peer.finish(id, failed(FailureKind::LoginOver, "Log in again."));
        assert_eq!(reply, "421 Log in again.\r\n", "{line}");
    }
}

/// A MODE E connection that has received one file, so that its handle has proved itself.
fn after_one_file() -> Peer {
    let mut peer = Peer::logged_in();
    peer.send("MODE E");
    peer.passive();
    peer.send("STOR /first");
    let (id, _) = peer.op();
    peer.notice(id, OPENED);
    peer.finish(id, Outcome::moved(1));
    peer
}

fn ops(peer: &mut Peer) -> Vec<(OpId, Op)> {
    let run = |event| match event {
        ServerEvent::Run { id, op } => (id, op),
        other => panic!("expected operations, not {other:?}"),
    };
    std::mem::take(&mut peer.events).into_iter().map(run).collect()
}

#[test]
fn operations_over_a_proven_handle_go_out_ahead_and_are_answered_in_order() {
    let mut peer = after_one_file();
    assert_eq!(
        peer.send("ALLO 5\r\nSTOR /a\r\nALLO 7\r\nSTOR /b\r\nCKSM MD5 0 -1 /a\r\nNOOP"),
        "200 ALLO command successful.\r\n"
    );
    let ops = ops(&mut peer);
    let sizes: Vec<_> =
        ops.iter().map(|(_, op)| if let Op::Receive(spec) = op { spec.expected_size } else { None }).collect();
    assert_eq!(sizes, [Some(5), Some(7), None], "each STOR has the ALLO in front of it");
    peer.notice(ops[0].0, OPENED);
    let answer = peer.finish(ops[0].0, Outcome::moved(5));
    assert_eq!(answer, "226 Transfer Complete.\r\n200 ALLO command successful.\r\n");
    peer.notice(ops[1].0, OPENED);
    assert_eq!(peer.finish(ops[1].0, Outcome::moved(7)), "226 Transfer Complete.\r\n");
    let answer = peer.finish(ops[2].0, Outcome::Checksum("d41d".into()));
    assert_eq!(answer, "213 d41d\r\n200 NOOP command successful.\r\n");
}

#[test]
fn nothing_goes_ahead_of_a_command_that_may_change_what_it_means() {
    let mut peer = after_one_file();
    peer.send("STOR /a\r\nPASV\r\nSTOR /b");
    assert_eq!(ops(&mut peer).len(), 1, "PASV waits, and what is behind it too");
    let mut peer = Peer::logged_in();
    peer.send("MODE E");
    peer.passive();
    peer.send("STOR /a\r\nSTOR /b");
    let first = ops(&mut peer);
    assert_eq!(first.len(), 1, "a handle that nothing has opened may still go either way");
    peer.notice(first[0].0, OPENED);
    let second = ops(&mut peer);
    assert_eq!(second.len(), 1, "while the first file is proven the second moves");
    let failure = failed(FailureKind::ConnectionBroken, "gone");
    assert!(peer.finish(first[0].0, failure.clone()).starts_with("426"));
    assert!(peer.finish(second[0].0, failure).starts_with("426"));
    assert_eq!(peer.send("STOR /c"), "425 Use PASV or PORT first.\r\n", "the handle is gone with the first failure");
}

#[test]
fn what_follows_a_first_transfer_goes_the_same_way() {
    let mut peer = Peer::logged_in();
    peer.send("MODE E");
    peer.passive();
    peer.send("STOR /a");
    let (id, _) = peer.op();
    peer.notice(id, OPENED);
    assert_eq!(peer.send("RETR /b"), "");
    assert_eq!(peer.events, [], "refused when its turn comes");
    let answer = peer.finish(id, Outcome::moved(5));
    assert!(
        answer.starts_with("226 Transfer Complete.\r\n425 The data connections carried data the other way"),
        "{answer}"
    );
}

#[test]
fn abor_stops_the_running_transfer_and_those_that_went_ahead() {
    let mut peer = after_one_file();
    peer.send("STOR /a\r\nSTOR /b\r\nABOR");
    let ids: Vec<OpId> = peer
        .events
        .iter()
        .filter_map(|event| if let ServerEvent::Run { id, .. } = event { Some(*id) } else { None })
        .collect();
    let aborts = peer.events.iter().filter(|event| matches!(event, ServerEvent::Abort { .. })).count();
    assert_eq!((ids.len(), aborts), (2, 2));
    peer.notice(ids[0], OPENED);
    assert_eq!(peer.finish(ids[0], failed(FailureKind::Aborted, "x")), "426 Transfer aborted.\r\n");
    assert_eq!(
        peer.finish(ids[1], failed(FailureKind::Aborted, "x")),
        "426 Transfer aborted.\r\n226 Abort successful.\r\n"
    );
}

//! Time-outs, long lines, long queues, clients that do not read.

use super::*;

#[test]
fn a_client_that_does_not_log_in_is_dropped_after_120_s() {
    let mut peer = Peer::connect(ServerConfig::default());
    peer.output();
    let deadline = peer.machine.poll_timeout();
    assert_eq!(deadline, Some(peer.now + Duration::from_secs(120)));
    peer.advance(100);
    peer.send("NOOP");
    assert_eq!(peer.machine.poll_timeout(), deadline, "talking is not logging in");
    peer.machine.handle_timeout(peer.now);
    assert_eq!(peer.output(), "", "too early");
    peer.advance(20);
    peer.machine.handle_timeout(peer.now);
    assert_eq!(peer.output(), "421 Idle Timeout: closing control connection.\r\n");
    assert_eq!(peer.events, [ServerEvent::Closed(CloseReason::LoginTimeout)]);
    assert_eq!(peer.machine.poll_timeout(), None);
}

#[test]
fn an_idle_client_is_dropped_after_600_s_but_not_while_something_runs() {
    let mut peer = Peer::logged_in();
    peer.advance(599);
    peer.send("NOOP");
    assert_eq!(peer.machine.poll_timeout(), Some(peer.now + Duration::from_secs(600)));
    peer.send("SIZE /f");
    let (id, _) = peer.op();
    assert_eq!(peer.machine.poll_timeout(), None);
    peer.advance(10_000);
    peer.machine.handle_timeout(peer.now);
    assert_eq!(peer.finish(id, Outcome::Size(1)), "213 1\r\n");
    peer.advance(600);
    peer.machine.handle_timeout(peer.now);
    assert_eq!(peer.output(), "421 Idle Timeout: closing control connection.\r\n");
    assert_eq!(peer.events, [ServerEvent::Closed(CloseReason::IdleTimeout)]);
}

#[test]
fn half_a_line_does_not_keep_a_connection_alive() {
    let mut peer = Peer::logged_in();
    let deadline = peer.machine.poll_timeout();
    peer.advance(500);
    peer.send_bytes(b"NOO");
    assert_eq!(peer.machine.poll_timeout(), deadline);
}

#[test]
fn rein_starts_the_login_time_again() {
    let mut peer = Peer::logged_in();
    peer.advance(300);
    peer.send("REIN");
    assert_eq!(peer.machine.poll_timeout(), Some(peer.now + Duration::from_secs(120)));
}

#[test]
fn a_line_that_is_too_long_is_500_and_the_connection_goes_on() {
    let mut peer = Peer::logged_in_with(ServerConfig { max_line: 100, ..ServerConfig::default() });
    let reply = peer.send(&format!("RETR {}", "x".repeat(1000)));
    assert_eq!(reply, "500 Command line too long.\r\n");
    assert_eq!(peer.send("NOOP"), "200 NOOP command successful.\r\n");
}

#[test]
fn a_thousand_commands_may_wait_and_one_more_ends_the_connection() {
    let mut peer = Peer::logged_in();
    peer.send("SIZE /f");
    let (id, _) = peer.op();
    assert_eq!(peer.send_bytes(&b"NOOP\r\n".repeat(1000)), "");
    assert_eq!(peer.send("NOOP"), "500 Pipeline queue full.\r\n");
    assert_eq!(peer.events, [ServerEvent::Abort { id }, ServerEvent::Closed(CloseReason::PipelineFull)]);
}

#[test]
fn a_thousand_waiting_commands_are_all_answered() {
    let mut peer = Peer::logged_in();
    peer.send("SIZE /f");
    let (id, _) = peer.op();
    peer.send_bytes(&b"NOOP\r\n".repeat(1000));
    let replies = peer.finish(id, Outcome::Size(1));
    assert_eq!(replies.matches("200 NOOP").count(), 1000);
    assert_eq!(peer.codes.len(), 1001);
}

#[test]
fn waiting_commands_are_bounded_in_bytes_too() {
    let mut peer = Peer::logged_in_with(ServerConfig { pipeline_bytes: 1000, ..ServerConfig::default() });
    peer.send("SIZE /f");
    peer.send(&format!("SIZE /{}", "x".repeat(900)));
    assert_eq!(peer.send(&format!("SIZE /{}", "x".repeat(900))), "500 Pipeline queue full.\r\n");
}

#[test]
fn a_client_that_does_not_read_gets_no_more_work_done() {
    let config = ServerConfig { max_unsent: 2000, ..ServerConfig::default() };
    let mut peer = Peer::logged_in_with(config);
    peer.machine.handle_bytes(peer.now, &b"FEAT\r\n".repeat(100));
    assert!(peer.machine.unsent() < 4000, "{}", peer.machine.unsent());
    let replies = peer.output();
    assert_eq!(replies.matches("211 End.\r\n").count(), 100, "all are answered once the client reads");
}

#[test]
fn an_operation_is_aborted_once_even_if_its_abor_overflows_the_queue() {
    let mut peer = Peer::logged_in_with(ServerConfig { pipeline_limit: 1, ..ServerConfig::default() });
    peer.send("SIZE /f");
    let (id, _) = peer.op();
    peer.events.clear();
    peer.send("PWD");
    peer.send("ABOR");
    assert_eq!(peer.events, [ServerEvent::Abort { id }, ServerEvent::Closed(CloseReason::PipelineFull)]);
}

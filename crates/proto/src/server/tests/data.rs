//! PASV, EPSV, SPAS, PORT, EPRT, SPOR, delayed passive.

use super::*;
use crate::op::{DataParams, Family, Mode};

fn params() -> DataParams {
    DataParams::default()
}

fn passive(striped: bool, family: Option<Family>) -> Op {
    Op::Passive { striped, family, params: params() }
}

fn many(addresses: &[&str]) -> Outcome {
    Outcome::Listening(addresses.iter().map(|address| address.parse().expect("an address")).collect())
}

#[test]
fn passive_replies_have_the_forms_that_clients_parse() {
    let mut peer = Peer::logged_in();
    let reply = peer.exchange("PASV", &passive(false, Some(Family::V4)), listening("10.0.0.1:2000"));
    assert_eq!(reply, "227 Entering Passive Mode (10,0,0,1,7,208)\r\n");
    let reply = peer.exchange("PASV", &passive(false, Some(Family::V4)), listening("[::ffff:10.0.0.1]:2000"));
    assert_eq!(reply, "227 Entering Passive Mode (10,0,0,1,7,208)\r\n", "a mapped address is an IPv4 address");
    let reply = peer.exchange("EPSV", &passive(false, None), listening("10.0.0.1:2000"));
    assert_eq!(reply, "229 Entering Extended Passive Mode (|||2000|)\r\n");
    let reply = peer.exchange("EPSV 2", &passive(false, Some(Family::V6)), listening("[::1]:2000"));
    assert_eq!(reply, "229 Entering Extended Passive Mode (|||2000|)\r\n");
    let addresses = many(&["10.0.0.1:2000", "10.0.0.2:2001"]);
    let reply = peer.exchange("SPAS", &passive(true, Some(Family::V4)), addresses.clone());
    assert_eq!(reply, "229-Entering Striped Passive Mode.\r\n 10,0,0,1,7,208\r\n 10,0,0,2,7,209\r\n229 End\r\n");
    let reply = peer.exchange("SPAS 1", &passive(true, Some(Family::V4)), addresses);
    assert_eq!(reply, "229-Entering Striped Passive Mode.\r\n |1|10.0.0.1|2000|\r\n |1|10.0.0.2|2001|\r\n229 End\r\n");
    let reply = peer.exchange("SPAS 2", &passive(true, Some(Family::V6)), many(&["[fe80::1]:5"]));
    assert_eq!(reply, "229-Entering Striped Passive Mode.\r\n |2|fe80::1|5|\r\n229 End\r\n");
    assert!(peer.send("EPSV 3").starts_with("522 "));
}

#[test]
fn epsv_of_a_listener_elsewhere_is_refused_in_stream_mode_and_names_it_in_extended_mode() {
    let config =
        ServerConfig { control_address: Some("10.0.0.9".parse().expect("an address")), ..ServerConfig::default() };
    let mut peer = Peer::logged_in_with(config.clone());
    let reply = peer.exchange("EPSV", &passive(false, None), listening("[::ffff:10.0.0.9]:2000"));
    assert_eq!(reply, "229 Entering Extended Passive Mode (|||2000|)\r\n");
    // Everyday clients expect a port alone, and know PASV.
    assert_eq!(peer.exchange("EPSV", &passive(false, None), listening("10.0.0.1:2000")), "");
    let (id, op) = peer.op();
    assert_eq!(op, Op::CloseData);
    assert_eq!(peer.finish(id, Outcome::Done), "522 Data go to another address; use PASV.\r\n");
    assert_eq!(peer.send("RETR /x"), "425 Use PASV or PORT first.\r\n");
    peer.send("MODE E");
    let extended =
        Op::Passive { striped: false, family: None, params: DataParams { mode: Mode::Extended, ..params() } };
    let reply = peer.exchange("EPSV", &extended, listening("10.0.0.1:2000"));
    assert_eq!(reply, "229 Entering Extended Passive Mode (|1|10.0.0.1|2000|)\r\n");
    // PASV has no words for IPv6.
    let config = ServerConfig { control_address: Some("fd00::9".parse().expect("an address")), ..config };
    let mut peer = Peer::logged_in_with(config);
    let reply = peer.exchange("EPSV", &passive(false, None), listening("[fd00::1]:2000"));
    assert_eq!(reply, "229 Entering Extended Passive Mode (|2|fd00::1|2000|)\r\n");
}

#[test]
fn passive_failures_are_425_and_leave_no_handle() {
    let mut peer = Peer::logged_in();
    peer.passive();
    let all_taken = failed(FailureKind::Other, "No free port in 5000-5009.");
    assert_eq!(
        peer.exchange("PASV", &passive(false, Some(Family::V4)), all_taken),
        "425 No free port in 5000-5009.\r\n"
    );
    let reply = peer.exchange("PASV", &passive(false, Some(Family::V4)), listening("[::1]:2000"));
    assert_eq!(reply, "425 No IPv4 address to listen on; use EPSV.\r\n");
    let reply = peer.exchange("PASV", &passive(false, Some(Family::V4)), Outcome::Listening(vec![]));
    assert!(reply.starts_with("425 "));
    assert_eq!(peer.send("RETR /x"), "425 Use PASV or PORT first.\r\n");
}

#[test]
fn active_commands_store_their_targets() {
    let mut peer = Peer::logged_in();
    let active = |targets: &[&str]| Op::Active {
        targets: targets.iter().map(|target| target.parse().expect("an address")).collect(),
        params: params(),
    };
    let ok = "200 PORT Command successful.\r\n";
    assert_eq!(peer.exchange("PORT 10,0,0,1,7,208", &active(&["10.0.0.1:2000"]), Outcome::Done), ok);
    assert_eq!(peer.exchange("EPRT |2|::1|2000|", &active(&["[::1]:2000"]), Outcome::Done), ok);
    let spor = "SPOR 10,0,0,1,7,208 |1|10.0.0.2|2001|";
    assert_eq!(peer.exchange(spor, &active(&["10.0.0.1:2000", "10.0.0.2:2001"]), Outcome::Done), ok);
    let bounce = failed(FailureKind::PermissionDenied, "Not the client's address.");
    let reply = peer.exchange("PORT 10,0,0,1,7,208", &active(&["10.0.0.1:2000"]), bounce);
    assert!(reply.starts_with("550-") && reply.contains("Not the client's address."), "{reply}");
    assert_eq!(peer.send("RETR /x"), "425 Use PASV or PORT first.\r\n");
}

#[test]
fn epsv_all_forbids_every_other_way() {
    let mut peer = Peer::logged_in();
    assert_eq!(peer.send("EPSV ALL"), "229 EPSV ALL Successful.\r\n");
    for line in ["PASV", "SPAS", "PORT 10,0,0,1,7,208", "EPRT |1|10.0.0.1|2000|", "SPOR 10,0,0,1,7,208"] {
        assert_eq!(peer.send(line), "503 Only EPSV is allowed after EPSV ALL.\r\n");
    }
    let reply = peer.exchange("EPSV", &passive(false, None), listening("10.0.0.1:2000"));
    assert!(reply.starts_with("229 "));
}

#[test]
fn a_delayed_handle_listens_when_the_transfer_comes() {
    for (command, shape) in [
        ("PASV", "127 Entering Passive Mode (10,0,0,1,7,208)\r\n"),
        ("EPSV", "129 Entering Extended Passive Mode (|||2000|)\r\n"),
        ("SPAS", "129-Entering Striped Passive Mode.\r\n 10,0,0,1,7,208\r\n129 End\r\n"),
    ] {
        let mut peer = Peer::logged_in();
        assert_eq!(peer.send("OPTS PASV AllowDelayed=1"), "200 OPTS Command Successful.\r\n");
        assert_eq!(peer.send(command), "200 Passive delayed.\r\n");
        assert_eq!(peer.events, []);
        assert_eq!(peer.send("STOR /f"), "");
        let (id, op) = peer.op();
        assert!(matches!(op, Op::Passive { .. }));
        assert_eq!(peer.finish(id, listening("10.0.0.1:2000")), shape);
        let (id, op) = peer.op();
        assert!(matches!(op, Op::Receive(_)));
        assert_eq!(peer.notice(id, OPENED), "150 Beginning transfer.\r\n");
        assert_eq!(peer.finish(id, Outcome::moved(6)), "226 Transfer Complete.\r\n");
        assert_eq!(peer.send("STOR /f"), "425 Use PASV or PORT first.\r\n", "each delayed transfer needs its own PASV");
    }
}

#[test]
fn a_delayed_handle_that_cannot_listen_fails_the_transfer() {
    let mut peer = Peer::logged_in();
    peer.send("OPTS PASV AllowDelayed=1;");
    peer.send("PASV");
    peer.send("RETR /f");
    let (id, _) = peer.op();
    assert_eq!(peer.finish(id, failed(FailureKind::Busy, "No port.")), "425 No port.\r\n");
    assert_eq!(peer.events, []);
}

#[test]
fn a_delayed_handle_keeps_the_parameters_of_its_pasv_and_port_ends_delayed_mode() {
    let mut peer = Peer::logged_in();
    peer.send("OPTS PASV AllowDelayed=1;");
    peer.send("PASV");
    peer.send("MODE E");
    peer.send("RETR /f");
    let (id, op) = peer.op();
    assert!(matches!(op, Op::Passive { params: DataParams { mode: Mode::Stream, .. }, .. }));
    peer.finish(id, failed(FailureKind::Busy, "No port."));
    peer.send("PORT 10,0,0,1,7,208");
    let (id, _) = peer.op();
    peer.finish(id, Outcome::Done);
    assert_eq!(peer.send("PASV"), "", "listens at once again");
}

#[test]
fn abor_when_idle_closes_the_data_handle() {
    let mut peer = Peer::logged_in();
    assert_eq!(peer.send("ABOR"), "226 Abort successful.\r\n");
    peer.passive();
    assert_eq!(peer.exchange("ABOR", &Op::CloseData, Outcome::Done), "226 Abort successful.\r\n");
    assert_eq!(peer.send("RETR /x"), "425 Use PASV or PORT first.\r\n");
}

#[test]
fn who_takes_no_data_connections_says_so() {
    let mut peer = Peer::logged_in_with(ServerConfig { outbound: true, ..ServerConfig::default() });
    assert!(peer.send("FEAT").contains("\r\n OUTBOUND\r\n"));
    for line in ["PASV", "EPSV", "SPAS", "OPTS PASV AllowDelayed=1;", "GET path=/f;pasv;"] {
        assert_eq!(peer.send(line).starts_with("502 "), !line.starts_with("OPTS"), "{line}");
    }
    assert!(!Peer::logged_in().send("FEAT").contains("OUTBOUND"));
}

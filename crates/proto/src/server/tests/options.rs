//! TYPE, MODE, STRU, OPTS, buffers, TREV: what PASV and PORT freeze.

use super::*;
use crate::op::{DataParams, Family, Layout, Mode, ReceiveSpec, SendSpec, WriteKind};
use crate::relay::{Announcement, Part};

/// The parameters that a PASV now would freeze.
fn frozen(peer: &mut Peer) -> DataParams {
    peer.send("PASV");
    let (id, op) = peer.op();
    peer.finish(id, listening("10.0.0.1:2000"));
    match op {
        Op::Passive { striped: false, family: Some(Family::V4), params } => params,
        other => panic!("{other:?}"),
    }
}

#[test]
fn defaults_of_a_fresh_login_are_type_a_mode_s_one_channel() {
    let mut peer = Peer::logged_in();
    assert_eq!(frozen(&mut peer), DataParams::default());
}

#[test]
fn the_type_of_a_transfer_is_the_one_in_force_at_its_command() {
    for (line, expected) in [("TYPE I", false), ("TYPE A", true)] {
        let mut peer = Peer::logged_in();
        peer.passive();
        peer.send(line);
        peer.send("RETR /f");
        let (_, Op::Send(spec)) = peer.op() else { panic!("a send") };
        assert_eq!(spec.ascii, expected, "curl sends TYPE between EPSV and RETR");
    }
}

#[test]
fn type_mode_and_stru_answer_and_count() {
    let mut peer = Peer::logged_in();
    for (line, reply) in [
        ("TYPE I", "200 Type set to I."),
        ("type a", "200 Type set to A."),
        ("TYPE A N", "200 Type set to A."),
        ("TYPE L 8", "200 Type set to I."),
        ("MODE E", "200 Mode set to E."),
        ("STRU F", "200 STRU F ok."),
    ] {
        assert_eq!(peer.send(line), format!("{reply}\r\n"));
    }
    let params = frozen(&mut peer);
    assert_eq!(params.mode, Mode::Extended);
}

#[test]
fn refusals_are_one_clean_line() {
    let mut peer = Peer::logged_in();
    for (line, code) in [
        ("TYPE X", "501 "),
        ("TYPE E", "504 "),
        ("TYPE X\ry", "501 "),
        ("MODE B", "504 "),
        ("MODE Q", "501 "),
        ("STRU R", "504 "),
        ("TREV PERF x", "501 "),
        ("TREV OTHER 5", "504 "),
        ("OPTS NOPE x", "501 "),
        ("OPTS RETR Nope=1;", "504 "),
        ("OPTS RETR Parallelism=0;", "501 "),
        ("OPTS", "501 "),
        ("SBUF many", "501 "),
        ("EPRT |3|x|1|", "522 "),
        ("PORT 1,2,3", "501 "),
        ("REST x", "501 "),
        ("ALLO x", "501 "),
    ] {
        let reply = peer.send(line);
        assert!(reply.starts_with(code), "{line}: {reply}");
        assert_eq!(reply.matches('\n').count(), 1, "{line}: {reply}");
        assert_eq!(reply.matches('\r').count(), 1, "{line}: {reply}");
    }
}

#[test]
fn opts_retr_needs_no_last_semicolon_and_keeps_what_it_does_not_name() {
    let mut peer = Peer::logged_in();
    let ok = "200 OPTS Command Successful.\r\n";
    assert_eq!(peer.send("OPTS RETR Parallelism=4,4,4;"), ok);
    assert_eq!(peer.send("OPTS RETR stripelayout=blocked;blocksize=4096"), ok);
    let params = frozen(&mut peer);
    assert_eq!((params.parallelism, params.layout), (4, Layout::Blocked { block_size: 4096 }));
    assert_eq!(peer.send("OPTS RETR StripeLayout=Partitioned;"), ok);
    assert_eq!(frozen(&mut peer).layout, Layout::Partitioned);
    assert_eq!(peer.send("OPTS RETR StripeLayout=Blocked;"), ok);
    assert_eq!(frozen(&mut peer).layout, Layout::Blocked { block_size: 4096 });
    assert_eq!(peer.send("OPTS RETR Parallelism=4000000;"), ok);
    assert_eq!(frozen(&mut peer).parallelism, crate::eblock::MOST_CONNECTIONS, "cut to the server's limit");
}

#[test]
fn a_stripe_block_smaller_than_a_page_is_refused_with_all_that_comes_with_it() {
    let mut peer = Peer::logged_in();
    let before = frozen(&mut peer);
    for size in ["1", "17", "4095"] {
        let reply = peer.send(&format!("OPTS RETR StripeLayout=Partitioned;BlockSize={size};Parallelism=9;"));
        assert_eq!(reply, "504 BlockSize must be at least 4096 bytes.\r\n");
        assert_eq!(frozen(&mut peer), before);
    }
    assert!(peer.send("OPTS RETR BlockSize=4096;").starts_with("200 "));
}

#[test]
fn buffer_commands_set_the_side_they_name() {
    let mut peer = Peer::logged_in();
    let site = "200 Site Command Successful.\r\n";
    assert_eq!(peer.send("SITE RETRBUFSIZE 1000"), site);
    assert_eq!(peer.send("SITE STORBUFSIZE 2000"), site);
    let params = frozen(&mut peer);
    assert_eq!((params.send_buffer, params.receive_buffer), (Some(1000), Some(2000)));
    assert_eq!(peer.send("SBUF 99999999999"), "200 SBUF Command Successful.\r\n");
    let params = frozen(&mut peer);
    assert_eq!((params.send_buffer, params.receive_buffer), (Some(1 << 30), Some(1 << 30)));
    assert_eq!(peer.send("SITE BUFSIZE 7"), site);
    assert_eq!(frozen(&mut peer).send_buffer, Some(7));
    assert_eq!(peer.send("ABUF PASSIVE"), "200 ABUF Command Successful.\r\n");
    let params = frozen(&mut peer);
    assert_eq!((params.send_buffer, params.receive_buffer), (None, None));
}

#[test]
fn the_part_at_a_relay_is_good_for_one_handle() {
    let mut peer = Peer::logged_in();
    assert!(peer.send("FEAT").contains("\r\n DCRELAY\r\n"));
    assert_eq!(peer.send("SITE DCRELAY server"), "250 OK.\r\n");
    assert_eq!(frozen(&mut peer).relay, Some(Part::Server));
    assert_eq!(frozen(&mut peer).relay, None);
    assert!(peer.send("SITE DCRELAY BOTH").starts_with("501 "));
}

#[test]
fn tokens_are_announced_at_relays_alone() {
    let announce = format!("SITE RELAY {} 4 60", "ab".repeat(32));
    let mut peer = Peer::logged_in();
    assert!(!peer.send("FEAT").contains(" RELAY"));
    assert!(peer.send(&announce).starts_with("502 "));
    let mut peer = Peer::connect(ServerConfig { relay: true, ..ServerConfig::default() });
    peer.output();
    assert!(!peer.send("FEAT").contains(" RELAY"), "strangers need not know");
    assert!(peer.send(&announce).starts_with("530 "));
    let mut peer = Peer::logged_in_with(ServerConfig { relay: true, ..ServerConfig::default() });
    assert!(peer.send("FEAT").contains("\r\n RELAY\r\n"));
    assert_eq!(peer.send(&announce), "");
    let announcement = Announcement { token: [0xab; 32], connections: 4, seconds: 60 };
    let (id, op) = peer.op();
    assert_eq!(op, Op::Relay(announcement));
    let at = Outcome::Listening(vec!["192.0.2.7:2812".parse().unwrap()]);
    assert_eq!(peer.finish(id, at), "229 Joining Data Connections (|1|192.0.2.7|2812|)\r\n");
}

#[test]
fn a_nonce_is_frozen_into_the_handle() {
    let mut peer = Peer::logged_in();
    assert_eq!(peer.send("SITE DCNONCE 000102030405060708090a0b0c0d0e0f"), "250 OK.\r\n");
    assert_eq!(frozen(&mut peer).nonce, Some(std::array::from_fn(|i| i as u8)));
    assert!(peer.send("SITE DCNONCE 0001").starts_with("501 "));
    let mut peer = Peer::logged_in_with(ServerConfig { data_nonce: false, ..ServerConfig::default() });
    assert!(peer.send("SITE DCNONCE 000102030405060708090a0b0c0d0e0f").starts_with("502 "));
    assert!(!peer.send("FEAT").contains("DCNONCE"));
}

fn receive(peer: &mut Peer) -> ReceiveSpec {
    peer.send("STOR /f");
    let (id, op) = peer.op();
    peer.finish(id, Outcome::moved(0));
    match op {
        Op::Receive(spec) => spec,
        other => panic!("{other:?}"),
    }
}

#[test]
fn marker_intervals_follow_trev_and_opts_and_exist_in_mode_e_only() {
    let mut peer = Peer::logged_in();
    peer.passive();
    let spec = receive(&mut peer);
    assert_eq!((spec.performance_interval, spec.range_interval), (None, None), "MODE S has no markers");
    peer.send("MODE E");
    peer.passive();
    let seconds = |n| Some(Duration::from_secs(n));
    let spec = receive(&mut peer);
    assert_eq!((spec.performance_interval, spec.range_interval), (seconds(5), seconds(5)));
    assert_eq!(peer.send("TREV PERF 2"), "200 Command Successful.\r\n");
    assert_eq!(peer.send("TREV RESTART 0"), "200 Command Successful.\r\n");
    let spec = receive(&mut peer);
    assert_eq!((spec.performance_interval, spec.range_interval), (seconds(2), None));
    assert_eq!(peer.send("OPTS STOR Markers=9;"), "200 OPTS Command Successful.\r\n");
    assert_eq!(receive(&mut peer).performance_interval, seconds(9));
    assert!(peer.send("OPTS STOR EventMon=1;").starts_with("504 "));
}

#[test]
fn opts_retr_markers_reach_the_sender() {
    let mut peer = Peer::logged_in();
    peer.send("OPTS RETR Markers=3;");
    peer.passive();
    peer.send("RETR /f");
    let (_, op) = peer.op();
    let performance_interval = Some(Duration::from_secs(3));
    let expected = SendSpec { ascii: true, performance_interval, ..SendSpec::of("/f") };
    assert_eq!(op, Op::Send(expected));
}

#[test]
fn parameters_are_frozen_when_the_handle_is_made() {
    let mut peer = Peer::logged_in();
    peer.passive();
    peer.send("MODE E");
    let spec = receive(&mut peer);
    assert_eq!(spec.write, WriteKind::Replace);
    assert_eq!(spec.range_interval, None, "PASV came before MODE E: still a stream");
    assert!(peer.send("STOR /g").starts_with("425 "), "a stream handle is used up");
}

#[test]
fn opts_mlst_tells_the_facts_in_force() {
    let mut peer = Peer::logged_in();
    assert_eq!(peer.send("OPTS MLST size;TYPE;nope;size"), "200 MLST OPTS Size;Type;\r\n");
    assert!(peer.send("FEAT").contains(" MLST Type*;Size*;Modify;Perm;"));
    peer.send("MLST /x");
    let (id, op) = peer.op();
    assert_eq!(op, Op::Facts { path: b"/x".to_vec(), facts: Some(vec!["Size".into(), "Type".into()]) });
    peer.finish(id, Outcome::Line(b"Size=1; /x".to_vec()));
    assert_eq!(peer.send("OPTS MLST"), "200 MLST OPTS\r\n");
}

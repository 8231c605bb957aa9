//! Greeting, login, what is allowed before it, logout.

use super::*;

#[test]
fn greeting_names_host_and_software_and_a_banner_comes_before_it() {
    let config = ServerConfig { host: "h".into(), software: "W 1".into(), ..ServerConfig::default() };
    assert_eq!(Peer::connect(config.clone()).output(), "220 h GridFTP Server W 1 ready.\r\n");
    let config = ServerConfig { banner: Some("Hello\nyou".into()), ..config };
    assert_eq!(Peer::connect(config).output(), "220-Hello\r\n220-you\r\n220 h GridFTP Server W 1 ready.\r\n");
}

#[test]
fn a_login_asks_the_driver_and_answers_its_verdict() {
    let mut peer = Peer::connect(ServerConfig::default());
    peer.output();
    assert_eq!(peer.send("user anna"), "331 Password required for anna.\r\n");
    assert_eq!(peer.send("PASS secret words "), "");
    let expected =
        ServerEvent::Login { user: b"anna".to_vec(), proof: Proof::Password(Secret(b"secret words ".to_vec())) };
    assert_eq!(peer.events, [expected]);
    assert!(!format!("{:?}", peer.events).contains("secret words"));
    let accepted = LoginOutcome::Accepted { user: "anna".into(), home: b"/h".to_vec() };
    peer.machine.login(peer.now, accepted.clone());
    assert_eq!(peer.output(), "230 User anna logged in.\r\n");
    assert_eq!(peer.send("PWD"), "257 \"/h\" is current directory.\r\n");
    assert_eq!(peer.send("USER anna"), "503 You are already logged in.\r\n");
    assert_eq!(peer.send("PASS x"), "503 You are already logged in.\r\n");
    peer.machine.login(peer.now, accepted);
    assert_eq!(peer.output(), "", "a verdict nobody asked for is ignored");
}

#[test]
fn commands_pipelined_behind_a_login_wait_for_its_verdict() {
    let mut peer = Peer::connect(ServerConfig::default());
    peer.output();
    assert!(peer.send_bytes(b"USER u\r\nPASS p\r\nPWD\r\nSYST\r\n").starts_with("331 "));
    peer.machine.login(peer.now, LoginOutcome::Denied);
    let needs = "530 Please login with USER and PASS.\r\n";
    assert_eq!(peer.output(), format!("530 Login incorrect.\r\n{needs}{needs}"));
}

#[test]
fn too_many_failed_logins_end_the_connection() {
    let mut peer = Peer::connect(ServerConfig { max_login_failures: 2, ..ServerConfig::default() });
    peer.output();
    for expected in ["530 Login incorrect.\r\n", "421 Too many failed logins.\r\n"] {
        peer.send("USER u");
        peer.send("PASS p");
        peer.machine.login(peer.now, LoginOutcome::Denied);
        assert_eq!(peer.output(), expected);
    }
    assert!(peer.machine.is_closed());
    assert_eq!(peer.events.last(), Some(&ServerEvent::Closed(CloseReason::LoginFailures)));
}

#[test]
fn an_unavailable_data_side_ends_the_connection_with_421() {
    let mut peer = Peer::connect(ServerConfig::default());
    peer.send("USER u");
    peer.send("PASS p");
    peer.machine.login(peer.now, LoginOutcome::Unavailable("No room.".into()));
    assert_eq!(peer.output(), "421 No room.\r\n");
    assert_eq!(peer.events.last(), Some(&ServerEvent::Closed(CloseReason::Unavailable)));
}

#[test]
fn before_login_only_harmless_commands_answer() {
    let mut peer = Peer::connect(ServerConfig::default());
    peer.output();
    for (line, code) in [
        ("NOOP", "200 "),
        ("HELP", "214-"),
        ("SITE HELP", "214-"),
        ("FEAT", "211-"),
        ("OPTS UTF8 ON", "200 "),
        ("CLNT lftp", "200 "),
        ("LANG", "200 "),
        ("AUTH TLS", "504 "),
        ("AUTH GSSAPI", "504 "),
        ("ADAT AAAA", "503 "),
        ("PASS x", "503 "),
        ("REIN", "220 "),
        ("RETR /x", "530 "),
        ("SITE CHMOD abc /x", "530 "),
        ("TYPE X", "530 "),
        ("STOR", "530 "),
        ("ABOR", "530 "),
        ("WHOAMI", "500 "),
        ("BLAH", "500 "),
        ("", "500 "),
        (" NOOP", "500 "),
    ] {
        let reply = peer.send(line);
        assert!(reply.starts_with(code), "{line}: {reply}");
    }
    assert_eq!(peer.events, []);
    assert_eq!(peer.send("QUIT"), "221 Goodbye.\r\n");
    assert_eq!(peer.events, [ServerEvent::Closed(CloseReason::Quit)]);
}

#[test]
fn feat_has_the_lines_clients_look_for_and_checksums_only_after_login() {
    let mut peer = Peer::connect(ServerConfig::default());
    peer.output();
    assert!(!peer.send("FEAT").contains("CKSM"));
    let mut peer =
        Peer::logged_in_with(ServerConfig { extra_features: vec!["X-TEST".into()], ..ServerConfig::default() });
    let feat = peer.send("FEAT");
    assert!(feat.starts_with("211-Extensions supported\r\n ") && feat.ends_with("\r\n211 End.\r\n"), "{feat}");
    for line in [
        "CKSM MD5:10;ADLER32:10;SHA1:10;SHA256:11;SHA512:12;",
        "REST STREAM",
        "STORATTR",
        "STORMODE",
        "PARALLEL",
        "ESTO",
        "ERET",
        "SBUF",
        "ABUF",
        "SIZE",
        "PASV AllowDelayed;",
        "MLST Type*;Size*;Modify*;Perm*;Charset;UNIX.mode*;UNIX.owner*;UNIX.uid*;UNIX.group*;UNIX.gid*;Unique*;UNIX.slink*;X.count;X.nanos*;X.link*;",
        "EPSV",
        "EPRT",
        "TVFS",
        "UTF8",
        "SPAS",
        "SPOR",
        "DCNONCE",
        "DCRELAY",
        "REVERSE",
        "X-TEST",
    ] {
        assert!(feat.contains(&format!("\r\n {line}\r\n")), "{line}");
    }
    for absent in ["DCAU", "DCSC", "AUTH", "GETPUT"] {
        assert!(!feat.contains(absent), "{absent} is not announced");
    }
    let mut peer = Peer::logged_in_with(ServerConfig { announce_get_put: true, ..ServerConfig::default() });
    assert!(peer.send("FEAT").contains("\r\n GETPUT\r\n"));
}

#[test]
fn rein_closes_the_data_handle_and_forgets_the_login() {
    let mut peer = Peer::logged_in();
    peer.send("TYPE I");
    peer.passive();
    assert!(peer.exchange("REIN", &Op::CloseData, Outcome::Done).starts_with("220 "));
    assert_eq!(peer.send("PWD"), "530 Please login with USER and PASS.\r\n");
    assert!(peer.send("USER u").starts_with("331 "));
}

#[test]
fn security_commands_are_refused_so_that_clients_go_on_in_clear() {
    let mut peer = Peer::logged_in();
    for (line, reply) in [
        ("DCAU N", "200 DCAU N."),
        ("DCAU A", "504 DCAU A needs an authenticated login."),
        ("DCAU S /CN=x", "504 DCAU S needs an authenticated login."),
        ("PBSZ 1048576", "200 PBSZ=1048576"),
        ("PROT C", "200 Protection level set to C."),
        ("PROT P", "536 P protection level not supported."),
        ("DCSC D", "504 Data channel credentials need an authenticated login."),
        ("CCC", "533 The control connection is not protected."),
        ("AUTH TLS", "504 Unknown authentication type."),
    ] {
        assert_eq!(peer.send(line), format!("{reply}\r\n"));
    }
}

#[test]
fn small_talk_of_everyday_clients_is_answered() {
    let mut peer = Peer::logged_in();
    for (line, reply) in [
        ("SYST", "215 UNIX Type: L8"),
        ("NOOP", "200 NOOP command successful."),
        ("ACCT x", "202 No account is needed."),
        ("LANG", "200 lang set to EN."),
        ("LANG en-US", "200 lang set to EN."),
        ("LANG FR", "504 This language is not available."),
        ("CLNT NcFTP", "200 OK."),
        ("WHOAMI", "200 u"),
        ("OPTS UTF8 ON", "200 UTF8 is on."),
        ("XPWD", "257 \"/home/u\" is current directory."),
        ("SMNT /x", "502 SMNT is not implemented."),
        ("STRU F", "200 STRU F ok."),
    ] {
        assert_eq!(peer.send(line), format!("{reply}\r\n"));
    }
}

#[test]
fn status_tells_user_and_parameters() {
    let mut peer = Peer::logged_in();
    let status = peer.send("STAT");
    assert!(status.starts_with("211-GridFTP server status.\r\n "), "{status}");
    assert!(status.contains("\r\n Logged in as u\r\n"));
    assert!(status.contains("MODE: Stream"));
    assert!(status.ends_with("\r\n211 End.\r\n"));
}

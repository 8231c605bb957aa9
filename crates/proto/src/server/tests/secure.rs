//! AUTH, ADAT, PBSZ, PROT, DCAU, DCSC, CCC, and what they leave in data handles.

use super::*;
use crate::command::Secret;
use crate::op::{DataParams, Family, GsiPeer, Level, Mode, Shield};
use crate::protect::base64;

fn mechanisms(change: impl FnOnce(&mut Mechanisms)) -> ServerConfig {
    let mut config = ServerConfig::default();
    change(&mut config.mechanisms);
    config
}

fn both() -> ServerConfig {
    mechanisms(|on| (on.tls, on.gssapi) = (true, true))
}

fn view(suffices: bool) -> PeerView {
    PeerView { subject: "/O=Grid/CN=Anna".into(), suffices, gsi: true }
}

fn established(token: Option<&[u8]>) -> TokenOutcome {
    TokenOutcome::Established { token: token.map(<[u8]>::to_vec), peer: view(true) }
}

const NEVER_IN_CLEAR: &str =
    "530 Passwords are not taken over a connection in clear: send AUTH TLS or AUTH GSSAPI first.\r\n";

impl Peer {
    fn greeted(config: ServerConfig) -> Self {
        let mut peer = Self::connect(config);
        peer.output();
        peer
    }

    fn accept(&mut self) -> String {
        self.events.clear();
        self.machine.login(self.now, LoginOutcome::Accepted { user: "u".into(), home: b"/home/u".to_vec() });
        self.output()
    }

    /// Over TLS, logged in with a password.
    fn over_tls(config: ServerConfig) -> Self {
        let mut peer = Self::greeted(config);
        assert_eq!(peer.send("AUTH TLS"), "234 Begin the TLS handshake.\r\n");
        peer.machine.secured(peer.now, None);
        peer.send("USER u");
        peer.send("PASS p");
        assert_eq!(peer.accept(), "230 User u logged in.\r\n");
        peer
    }

    /// Over GSSAPI, not logged in.
    fn over_gssapi(config: ServerConfig, peer_view: PeerView) -> Self {
        let mut peer = Self::greeted(config);
        peer.send("AUTH GSSAPI");
        peer.send("ADAT AAAA");
        peer.machine.token(peer.now, TokenOutcome::Established { token: None, peer: peer_view });
        assert_eq!(peer.output(), "235 GSSAPI Authentication successful.\r\n");
        peer.events.clear();
        peer
    }

    /// Over GSI, logged in.
    fn over_gsi() -> Self {
        let mut peer = Self::over_gssapi(both(), view(true));
        peer.send("USER :globus-mapping:");
        peer.send("PASS dummy");
        assert_eq!(peer.accept(), "230 User u logged in.\r\n");
        peer
    }

    fn over_ssh() -> Self {
        let mut peer = Self::greeted(mechanisms(|on| on.ssh = true));
        peer.send("USER u");
        peer.send("PASS dummy");
        peer.accept();
        peer
    }

    /// Lines with the replies they get at once.
    fn says(&mut self, dialogue: &[(&str, &str)]) {
        for (line, reply) in dialogue {
            assert_eq!(self.send(line), format!("{reply}\r\n"), "{line}");
        }
    }

    /// The shield of the handle that EPSV makes now, and whether it has a nonce.
    fn shield(&mut self) -> (Shield, bool) {
        assert_eq!(self.send("EPSV"), "");
        match self.op() {
            (id, Op::Passive { params: DataParams { shield, nonce, .. }, .. }) => {
                assert!(self.finish(id, listening("10.0.0.1:2000")).starts_with("229 "));
                (shield, nonce.is_some())
            }
            other => panic!("{other:?}"),
        }
    }

    /// A setting that closes the handle that is there.
    fn closes(&mut self, line: &str, reply: &str) {
        assert_eq!(self.exchange(line, &Op::CloseData, Outcome::Done), format!("{reply}\r\n"));
        assert_eq!(self.send("RETR /f"), "425 Use PASV or PORT first.\r\n", "{line}");
    }
}

const NONCE: &str = "SITE DCNONCE 00112233445566778899aabbccddeeff";

#[test]
fn auth_tls_stands_still_until_tls_stands() {
    for word in ["TLS", "tls", "TLS-C"] {
        let mut peer = Peer::greeted(both());
        assert_eq!(peer.send(&format!("AUTH {word}")), "234 Begin the TLS handshake.\r\n");
        assert_eq!(peer.events, [ServerEvent::StartTls]);
        assert_eq!(peer.machine.handle_bytes(peer.now, b"NOOP\r\n"), 0, "not a command before TLS stands");
        peer.machine.secured(peer.now, None);
        assert_eq!(peer.send("NOOP"), "200 NOOP command successful.\r\n");
        peer.says(&[
            ("AUTH TLS", "503 The control connection is protected already."),
            ("AUTH GSSAPI", "503 The control connection is protected already."),
            ("ADAT AAAA", "503 Send AUTH first."),
        ]);
        peer.machine.secured(peer.now, Some(view(true)));
        assert!(peer.send("USER u").starts_with("331 "), "what TLS told once counts");
    }
}

#[test]
fn the_driver_hears_of_tls_when_the_234_is_on_its_way() {
    let mut peer = Peer::greeted(both());
    peer.machine.handle_bytes(peer.now, b"AUTH TLS\r\n");
    assert!(matches!(peer.machine.poll_event(), Some(ServerEvent::Answered { code: 234, .. })));
    assert_eq!(peer.machine.poll_event(), None, "the 234 is not taken yet");
    peer.machine.secured(peer.now, None);
    assert_eq!(peer.machine.handle_bytes(peer.now, b"NOOP\r\n"), 0, "TLS cannot stand before it was asked for");
    assert!(peer.machine.poll_transmit().is_some());
    assert_eq!(peer.machine.poll_event(), Some(ServerEvent::StartTls));
}

// CVE-2011-0411 and its kin.
#[test]
fn clear_bytes_behind_auth_or_adat_are_left_to_the_driver() {
    for first in ["AUTH TLS\r\n", "AUTH GSSAPI\r\nADAT AAAA\r\n"] {
        let mut peer = Peer::greeted(both());
        let glued = format!("{first}USER evil\r\nPASS x\r\nNO");
        assert_eq!(peer.machine.handle_bytes(peer.now, glued.as_bytes()), first.len(), "{first}");
        peer.output();
        assert!(!peer.events.iter().any(|event| matches!(event, ServerEvent::Login { .. })));
        assert_eq!(peer.machine.handle_bytes(peer.now, b"USER evil\r\n"), 0);
    }
}

#[test]
fn bytes_behind_an_auth_that_waits_for_its_turn_are_taken_when_it_had_it() {
    let mut peer = Peer::greeted(both());
    let bytes = b"USER u\r\nPASS p\r\nAUTH TLS\r\nNOOP\r\n";
    let used = peer.machine.handle_bytes(peer.now, bytes);
    assert_eq!(&bytes[used..], b"NOOP\r\n", "until the login is over nobody knows");
    assert_eq!(peer.machine.handle_bytes(peer.now, &bytes[used..]), 0);
    peer.output();
    assert!(peer.accept().ends_with("503 AUTH comes before the login.\r\n"));
    assert_eq!(peer.machine.handle_bytes(peer.now, &bytes[used..]), 6);
    assert_eq!(peer.output(), "200 NOOP command successful.\r\n");
}

#[test]
fn mechanisms_that_are_not_offered_are_unknown() {
    let mut peer = Peer::greeted(mechanisms(|on| on.gssapi = true));
    let unknown = "504 Unknown authentication type.";
    peer.says(&[
        ("AUTH TLS", unknown),
        ("AUTH SSL", unknown),
        ("AUTH KERBEROS_V4", unknown),
        ("ADAT AAAA", "503 Send AUTH first."),
    ]);
    let mut peer = Peer::greeted(mechanisms(|on| on.tls = true));
    peer.says(&[("AUTH GSSAPI", unknown), ("AUTH SSL", unknown), ("PROT P", "530 Please login with USER and PASS.")]);
}

#[test]
fn a_gssapi_exchange_passes_tokens_both_ways() {
    let mut peer = Peer::greeted(both());
    assert_eq!(peer.send("AUTH GSSAPI"), "334 Using authentication type; ADAT must follow.\r\n");
    assert_eq!(peer.events, []);
    let mut turns = 0;
    for outcome in [TokenOutcome::Continue(vec![0, 255]), TokenOutcome::Continue(Vec::new()), established(None)] {
        turns += 1;
        let token = vec![turns; 3];
        assert_eq!(peer.send(&format!("ADAT {}", base64::encode(&token))), "");
        assert_eq!(std::mem::take(&mut peer.events), [ServerEvent::Token(Secret(token))]);
        peer.machine.token(peer.now, outcome);
        let reply = peer.output();
        let expected = ["335 ADAT=AP8=\r\n", "335 ADAT=\r\n", "235 GSSAPI Authentication successful.\r\n"];
        assert_eq!(reply, expected[usize::from(turns) - 1]);
    }
    let mut peer = Peer::greeted(both());
    assert!(peer.send("AUTH gssapi\r\nadat AAAA").starts_with("334 "), "both in one segment");
    peer.machine.token(peer.now, established(Some(&[1])));
    assert_eq!(peer.output(), "235 ADAT=AQ==\r\n");
}

#[test]
fn between_auth_and_its_end_only_adat_and_quit_count() {
    let mut peer = Peer::greeted(both());
    peer.send("AUTH GSSAPI");
    let must = "530 Must perform GSSAPI authentication.";
    for line in ["USER u", "PASS p", "FEAT", "NOOP", "ABOR", "REIN", "AUTH TLS", "AUTH GSSAPI", "PBSZ 0", "BLAH", ""] {
        peer.says(&[(line, must)]);
    }
    assert_eq!(peer.send("ADAT ###"), "501 ADAT: the text is not base64.\r\n");
    assert!(peer.send("ADAT").starts_with("501 "));
    assert_eq!(peer.events, [], "what is no token reaches nobody");
    peer.machine.token(peer.now, established(None));
    assert_eq!(peer.output(), "", "an answer nobody asked for is ignored");
    assert_eq!(peer.send("QUIT"), "221 Goodbye.\r\n");
}

#[test]
fn a_refused_exchange_says_why_may_begin_again_and_counts_as_a_failed_login() {
    let mut peer = Peer::greeted(ServerConfig { max_login_failures: 2, ..both() });
    peer.send("AUTH GSSAPI");
    peer.send("ADAT AAAA");
    peer.machine.token(peer.now, TokenOutcome::Refused { lines: vec!["It\r\n235 expired.".into()] });
    assert_eq!(peer.output(), "530-Authentication failed.\r\n530-It??235 expired.\r\n530 End.\r\n");
    peer.says(&[("ADAT AAAA", "503 Send AUTH first."), ("NOOP", "200 NOOP command successful.")]);
    peer.send("AUTH GSSAPI");
    peer.send("ADAT AAAA");
    peer.machine.token(peer.now, TokenOutcome::Refused { lines: Vec::new() });
    assert_eq!(peer.output(), "421 Too many failed logins.\r\n");
    assert!(peer.machine.is_closed());
}

#[test]
fn adat_lines_may_be_64_kib_long_while_one_is_awaited_and_then_only() {
    let long = |size: usize| format!("ADAT {}", "A".repeat(size - 5));
    let mut peer = Peer::greeted(both());
    let too_long = "500 Command line too long.\r\n";
    assert_eq!(peer.send(&long(20 << 10)), too_long);
    peer.send("AUTH GSSAPI");
    assert_eq!(peer.send(&long((64 << 10) + 1)), too_long);
    let largest = (64 << 10) - 3;
    assert_eq!(peer.send(&long(largest)), "");
    assert_eq!(peer.events, [ServerEvent::Token(Secret(vec![0; (largest - 5) / 4 * 3]))]);
    peer.machine.token(peer.now, established(None));
    assert!(peer.output().starts_with("235 "));
    assert_eq!(peer.send(&long(20 << 10)), too_long, "not before the login either");
}

#[test]
fn the_235_is_the_last_reply_in_clear() {
    let mut peer = Peer::greeted(both());
    peer.send("AUTH GSSAPI");
    peer.send("ADAT AAAA");
    peer.machine.begin_drain(peer.now);
    peer.machine.token(peer.now, established(None));
    let first = peer.machine.poll_transmit().expect("the 235");
    assert_eq!(&first[..], b"235 GSSAPI Authentication successful.\r\n");
    assert!(peer.output().starts_with("421 "), "the rest comes after it");
}

#[test]
fn waiting_for_a_handshake_or_a_token_has_the_logins_time_limit() {
    for (lines, last) in
        [("AUTH TLS", ""), ("AUTH GSSAPI\r\nADAT AAAA", "421 Idle Timeout: closing control connection.\r\n")]
    {
        let mut peer = Peer::greeted(both());
        peer.send(lines);
        peer.advance(120);
        peer.machine.handle_timeout(peer.now);
        assert_eq!(peer.output(), last, "{lines}");
        assert_eq!(peer.events.last(), Some(&ServerEvent::Closed(CloseReason::LoginTimeout)));
        peer.machine.secured(peer.now, None);
        peer.machine.token(peer.now, established(None));
        assert_eq!(peer.output(), "");
    }
    let mut peer = Peer::greeted(both());
    peer.send("AUTH TLS");
    peer.machine.handle_eof(peer.now);
    peer.output();
    assert_eq!(peer.events.last(), Some(&ServerEvent::Closed(CloseReason::Eof)));
}

#[test]
fn a_port_that_is_tls_from_the_start_needs_no_auth() {
    let mut peer = Peer::connect(both());
    peer.machine.secured(peer.now, Some(view(true)));
    assert!(peer.output().starts_with("220 "));
    assert_eq!(peer.send("USER u"), "");
    assert_eq!(peer.events, [ServerEvent::Login { user: b"u".to_vec(), proof: Proof::Peer }]);
    let mut peer = Peer::greeted(mechanisms(|on| on.gssapi = true));
    peer.machine.secured(peer.now, None);
    assert_eq!(peer.send("PROT P"), "530 Please login with USER and PASS.\r\n", "not where TLS is not offered");
    let mut peer = Peer::greeted(both());
    peer.send("USER u");
    peer.machine.secured(peer.now, None);
    assert_eq!(peer.send("PBSZ 0"), "530 Please login with USER and PASS.\r\n", "nor in the middle of a login");
}

#[test]
fn a_certificate_that_suffices_logs_in_at_user() {
    let mut peer = Peer::greeted(both());
    peer.send("AUTH TLS");
    peer.machine.secured(peer.now, Some(view(true)));
    assert_eq!(peer.send_bytes(b"USER u\r\nPASS late\r\n"), "");
    assert_eq!(
        peer.accept(),
        "232 User u logged in, authorized by its certificate.\r\n230 User u logged in.\r\n",
        "a password that was sent along is no error"
    );
    assert!(peer.send("STAT").contains("\r\n Authenticated as /O=Grid/CN=Anna\r\n"));
    assert_eq!(peer.send("USER u"), "503 You are already logged in.\r\n");
}

#[test]
fn a_certificate_that_does_not_suffice_leaves_the_password() {
    let mut peer = Peer::greeted(both());
    peer.send("AUTH TLS");
    peer.machine.secured(peer.now, Some(view(false)));
    assert_eq!(peer.send("USER u"), "331 Password required for u.\r\n");
    let mut peer = Peer::greeted(both());
    peer.send("AUTH TLS");
    peer.machine.secured(peer.now, Some(view(true)));
    peer.send("USER bob");
    peer.machine.login(peer.now, LoginOutcome::Denied);
    assert_eq!(peer.output(), "331 Password required for bob.\r\n");
    peer.events.clear();
    peer.send("PASS p");
    let expected = Proof::Password(Secret(b"p".to_vec()));
    assert_eq!(peer.events, [ServerEvent::Login { user: b"bob".to_vec(), proof: expected }]);
    peer.machine.login(peer.now, LoginOutcome::Denied);
    assert_eq!(peer.output(), "530 Login incorrect.\r\n");
    peer.send("USER bob");
    peer.machine.login(peer.now, LoginOutcome::Refused(vec!["Could not map /O=Grid/CN=Anna to bob".into()]));
    let refused = "530-Login incorrect.\r\n530-Could not map /O=Grid/CN=Anna to bob\r\n530 End.\r\n";
    assert_eq!(peer.output(), refused);
    assert_eq!(peer.send("PASS p"), "503 Login with USER first.\r\n");
}

#[test]
fn over_gssapi_the_password_says_nothing_but_331_stands_between_as_clients_expect() {
    let mut peer = Peer::over_gssapi(both(), view(true));
    assert_eq!(peer.send("USER :globus-mapping:"), "331 Password required for :globus-mapping:.\r\n");
    peer.send("PASS dummy");
    assert_eq!(peer.events, [ServerEvent::Login { user: b":globus-mapping:".to_vec(), proof: Proof::Peer }]);
    let mut peer = Peer::over_gssapi(both(), view(false));
    peer.send("USER u");
    peer.send("PASS p");
    let expected = Proof::Password(Secret(b"p".to_vec()));
    assert_eq!(peer.events, [ServerEvent::Login { user: b"u".to_vec(), proof: expected }]);
}

#[test]
fn passwords_in_clear_are_refused_before_anybody_looks_at_them() {
    let config = || {
        let mut config = ServerConfig { anonymous: true, ..both() };
        config.mechanisms.clear_text_passwords = false;
        config
    };
    let mut peer = Peer::greeted(config());
    for line in ["USER u", "PASS secret", "USER u\r\nPASS secret"] {
        let times = line.lines().count();
        assert_eq!(peer.send(line), NEVER_IN_CLEAR.repeat(times), "{line}");
    }
    assert_eq!(peer.events, [], "no login is asked for");
    assert!(peer.send("USER anonymous").starts_with("331 "), "that is no password");
    peer.send("PASS me@example");
    assert!(matches!(peer.events[..], [ServerEvent::Login { .. }]));
    let mut peer = Peer::greeted(config());
    peer.send("AUTH TLS");
    peer.machine.secured(peer.now, None);
    assert!(peer.send("USER u").starts_with("331 "));
    for (tls, gssapi, cure) in
        [(true, false, "AUTH TLS first"), (false, true, "AUTH GSSAPI first"), (false, false, "nobody")]
    {
        let change = |on: &mut Mechanisms| (on.tls, on.gssapi, on.clear_text_passwords) = (tls, gssapi, false);
        assert!(Peer::greeted(mechanisms(change)).send("USER u").contains(cure));
    }
}

#[test]
fn rein_keeps_what_protects_the_connection_and_forgets_the_rest() {
    let mut peer = Peer::over_tls(both());
    peer.says(&[("PROT P", "200 Protection level set to P.")]);
    assert!(peer.send("REIN").starts_with("220 "));
    assert_eq!(peer.send("AUTH TLS"), "503 The control connection is protected already.\r\n");
    peer.send("USER u");
    peer.send("PASS p");
    peer.accept();
    assert_eq!(peer.shield(), (Shield::None, false));
    let mut peer = Peer::over_gsi();
    peer.says(&[("DCAU N", "200 DCAU N.")]);
    peer.send("REIN");
    peer.send("USER u");
    peer.send("PASS p");
    peer.accept();
    assert_eq!(peer.shield().0, Shield::Gsi { peer: GsiPeer::Own, level: Level::Clear });
}

#[test]
fn over_tls_prot_p_continues_the_session_or_takes_the_nonce() {
    let mut peer = Peer::over_tls(both());
    peer.says(&[
        ("PBSZ 0", "200 PBSZ=0"),
        ("PROT S", "536 S protection level not supported."),
        ("PROT E", "536 E protection level not supported."),
        ("DCAU A", "504 DCAU A needs an authenticated login."),
        ("DCAU N", "200 DCAU N."),
        ("DCSC D", "504 Data channel credentials need an authenticated login."),
        ("CCC", "533 The control connection stays protected."),
    ]);
    assert_eq!(peer.shield(), (Shield::None, false));
    peer.closes("PROT P", "200 Protection level set to P.");
    assert_eq!(peer.shield(), (Shield::Session, false));
    peer.send(NONCE);
    assert_eq!(peer.shield(), (Shield::Nonce, true));
    assert_eq!(peer.shield(), (Shield::Session, false), "a nonce is good for one handle");
    peer.closes("PROT C", "200 Protection level set to C.");
    peer.send(NONCE);
    assert_eq!(peer.shield(), (Shield::None, true));
    let mut early = Peer::greeted(both());
    early.send("AUTH TLS");
    early.machine.secured(early.now, None);
    early.says(&[("PBSZ 0", "200 PBSZ=0"), ("PROT P", "200 Protection level set to P.")]);
}

#[test]
fn after_a_gsi_login_data_connections_prove_to_be_the_users_own() {
    let mut peer = Peer::over_gsi();
    let gsi = |peer, level| (Shield::Gsi { peer, level }, false);
    assert_eq!(peer.shield(), gsi(GsiPeer::Own, Level::Clear));
    peer.closes("PROT P", "200 Protection level set to P.");
    assert_eq!(peer.shield(), gsi(GsiPeer::Own, Level::Private));
    peer.closes("PROT S", "200 Protection level set to S.");
    assert_eq!(peer.shield(), gsi(GsiPeer::Own, Level::Private));
    peer.closes("DCAU S /O=Grid/CN=Other One", "200 DCAU S.");
    assert_eq!(peer.shield(), gsi(GsiPeer::Subject("/O=Grid/CN=Other One".into()), Level::Private));
    peer.closes("DCAU N", "200 DCAU N.");
    peer.says(&[("PBSZ 1048576", "200 PBSZ=1048576"), ("PROT E", "536 E protection level not supported.")]);
    let no_way =
        "431 Data connections cannot be protected: send DCAU A, or SITE DCNONCE before PASV or PORT, or PROT C.";
    for line in [
        "PASV",
        "EPSV",
        "SPAS",
        "PORT 10,0,0,1,7,208",
        "SPOR 10,0,0,1,7,208",
        "GET path=/f;pasv;",
        "PUT path=/f;port=10,0,0,1,7,208;",
    ] {
        peer.says(&[(line, no_way)]);
    }
    peer.send(NONCE);
    assert_eq!(peer.shield(), (Shield::Nonce, true));
    peer.closes("PROT C", "200 Protection level set to C.");
    assert_eq!(peer.shield(), (Shield::None, false));
    peer.closes("DCAU A", "200 DCAU A.");
    assert_eq!(peer.send_bytes(b"DCAU S /CN=\xff\r\n"), "501 The subject is not UTF-8.\r\n");
}

#[test]
fn a_delayed_handle_is_dropped_with_its_settings() {
    let mut peer = Peer::over_gsi();
    peer.send("OPTS PASV AllowDelayed=1;");
    peer.says(&[
        ("PASV", "200 Passive delayed."),
        ("PROT P", "200 Protection level set to P."),
        ("RETR /f", "425 Use PASV or PORT first."),
    ]);
    peer.says(&[("PASV", "200 Passive delayed.")]);
    peer.send("RETR /f");
    let (_, op) = peer.op();
    let shield = Shield::Gsi { peer: GsiPeer::Own, level: Level::Private };
    let params = DataParams { mode: Mode::Stream, shield, ..DataParams::default() };
    assert_eq!(op, Op::Passive { striped: false, family: Some(Family::V4), params });
}

#[test]
fn a_kerberos_login_has_no_certificates_for_data_connections() {
    let mut peer = Peer::over_gssapi(both(), PeerView { gsi: false, ..view(true) });
    peer.send("USER u");
    peer.send("PASS p");
    peer.accept();
    peer.says(&[("DCAU A", "504 DCAU A needs an authenticated login."), ("PROT P", "200 Protection level set to P.")]);
    assert!(peer.send("PASV").starts_with("431 "));
    peer.send(NONCE);
    assert_eq!(peer.shield(), (Shield::Nonce, true));
    let mut peer =
        Peer::over_gssapi(ServerConfig { data_nonce: false, ..both() }, PeerView { gsi: false, ..view(true) });
    assert_eq!(peer.send("PROT P"), "536 P protection level not supported.\r\n", "there is no way at all");
}

#[test]
fn dcsc_gives_the_data_side_a_credential_and_closes_the_handle() {
    let mut peer = Peer::over_gsi();
    peer.shield();
    let credential = Op::DataCredential(Some(Secret(b"-----BEGIN".to_vec())));
    let line = format!("DCSC P {}", base64::encode(b"-----BEGIN"));
    assert_eq!(peer.exchange(&line, &credential, Outcome::Done), "250 OK.\r\n");
    assert_eq!(peer.send("RETR /f"), "425 Use PASV or PORT first.\r\n");
    assert_eq!(peer.exchange("dcsc d", &Op::DataCredential(None), Outcome::Done), "250 OK.\r\n");
    peer.says(&[("DCSC P %%%", "501 Invalid base64 input for credential type P.")]);
    let refusal = peer.exchange(&line, &credential, failed(FailureKind::BadArgument, "It expired."));
    assert_eq!(refusal, "501 It expired.\r\n");
    assert_eq!(peer.shield().0, Shield::Gsi { peer: GsiPeer::Own, level: Level::Clear }, "that of the login is left");
    assert!(peer.send("DCSC X").starts_with("504 "));
    assert!(!format!("{credential:?}").contains("BEGIN"), "secrets stay out of logs");
}

#[test]
fn over_ssh_dcau_needs_a_credential_and_a_nonce_none() {
    let mut peer = Peer::over_ssh();
    peer.says(&[("DCAU A", "504 DCAU A needs an authenticated login."), ("PROT P", "200 Protection level set to P.")]);
    peer.send(NONCE);
    assert_eq!(peer.shield(), (Shield::Nonce, true));
    let credential = Op::DataCredential(Some(Secret(b"pem".to_vec())));
    assert_eq!(peer.exchange("DCSC P cGVt", &credential, Outcome::Done), "250 OK.\r\n");
    peer.says(&[("DCAU A", "200 DCAU A.")]);
    assert_eq!(peer.shield().0, Shield::Gsi { peer: GsiPeer::Own, level: Level::Private });
    peer.exchange("DCSC D", &Op::DataCredential(None), Outcome::Done);
    assert!(peer.send("PASV").starts_with("431 "), "with the credential goes what it proved");
    let mut fresh = Peer::greeted(mechanisms(|on| (on.ssh, on.clear_text_passwords) = (true, false)));
    fresh.send("USER anybody");
    fresh.send("PASS dummy");
    assert_eq!(fresh.events, [ServerEvent::Login { user: b"anybody".to_vec(), proof: Proof::Peer }]);
}

#[test]
fn an_administrator_may_demand_protected_data() {
    let demand = |on: &mut Mechanisms| (on.tls, on.private_data) = (true, true);
    let mut peer = Peer::over_tls(mechanisms(demand));
    let first = "521 Data connections must be protected here: send PROT P first.";
    peer.says(&[
        ("PASV", first),
        ("PROT C", "534 Protection level C is not allowed here."),
        ("PROT P", "200 Protection level set to P."),
    ]);
    assert_eq!(peer.shield(), (Shield::Session, false));
    let mut clear = Peer::logged_in_with(mechanisms(demand));
    clear.says(&[("PROT P", "536 P protection level not supported."), ("PASV", first)]);
}

#[test]
fn a_clear_login_is_treated_as_ever_where_protection_is_offered() {
    let mut peer = Peer::logged_in_with(both());
    peer.passive();
    peer.says(&[
        ("DCAU N", "200 DCAU N."),
        ("DCAU A", "504 DCAU A needs an authenticated login."),
        ("DCAU S /CN=x", "504 DCAU S needs an authenticated login."),
        ("PBSZ 1048576", "200 PBSZ=1048576"),
        ("PROT C", "200 Protection level set to C."),
        ("PROT P", "536 P protection level not supported."),
        ("PROT S", "536 S protection level not supported."),
        ("DCSC D", "504 Data channel credentials need an authenticated login."),
        ("CCC", "533 The control connection is not protected."),
        ("AUTH TLS", "503 AUTH comes before the login."),
    ]);
    peer.send("RETR /f");
    assert!(matches!(peer.op().1, Op::Send(_)), "the handle is still there");
}

#[test]
fn feat_tells_what_protects_and_what_a_nonce_can_do() {
    let lines = |peer: &mut Peer| {
        let words = ["AUTH", "PBSZ", "PROT", "DCAU", "DCSC", "DCNONCE"];
        let feat = peer.send("FEAT");
        let lines: Vec<String> = feat.lines().map(|line| line.trim().to_owned()).collect();
        lines.into_iter().filter(|line| words.iter().any(|word| line.starts_with(word))).collect::<Vec<_>>()
    };
    assert_eq!(lines(&mut Peer::logged_in()), ["DCNONCE"]);
    assert_eq!(lines(&mut Peer::greeted(both())), ["DCNONCE", "AUTH TLS", "AUTH GSSAPI", "PBSZ", "PROT"]);
    let tls = mechanisms(|on| on.tls = true);
    assert_eq!(lines(&mut Peer::over_tls(tls)), ["DCNONCE TLS", "AUTH TLS", "PBSZ", "PROT"]);
    let gsi = ["DCNONCE TLS", "AUTH TLS", "AUTH GSSAPI", "PBSZ", "PROT", "DCAU", "DCSC P,D"];
    assert_eq!(lines(&mut Peer::over_gsi()), gsi);
    assert_eq!(lines(&mut Peer::over_ssh()), ["DCNONCE TLS", "PBSZ", "PROT", "DCAU", "DCSC P,D"]);
}

#[test]
fn an_abor_behind_adat_waits_and_one_after_the_login_works_as_ever() {
    let mut peer = Peer::greeted(both());
    let bytes = b"AUTH GSSAPI\r\nADAT AAAA\r\nABOR\r\n";
    let used = peer.machine.handle_bytes(peer.now, bytes);
    assert_eq!(&bytes[used..], b"ABOR\r\n");
    peer.output();
    peer.machine.token(peer.now, TokenOutcome::Continue(vec![1]));
    peer.output();
    assert_eq!(peer.send_bytes(&bytes[used..]), "530 Must perform GSSAPI authentication.\r\n");
    let mut peer = Peer::over_gsi();
    peer.shield();
    assert_eq!(peer.exchange("ABOR", &Op::CloseData, Outcome::Done), "226 Abort successful.\r\n");
}

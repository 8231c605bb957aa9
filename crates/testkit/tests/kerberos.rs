//! Kerberos logins with the tickets of a real KDC.
//!
//! The library reads its configuration from the environment, so each case is a process of its own: this program, started again.

use std::path::PathBuf;

use whimbrel_dtn::confine::{self, Needs, Sandbox};
use whimbrel_dtn::front::DtnConfig;
use whimbrel_dtn::front::config::KerberosConfig;
use whimbrel_dtn::front::kerberos::Keys;
use whimbrel_dtn::monitor;
use whimbrel_engine::FaultCode;
use whimbrel_proto::protect::Seal as _;
use whimbrel_sys::gssapi::{Gssapi, MUTUAL, REPLAY, SEQUENCE, WANTED};
use whimbrel_testkit::peers::{Kdc, Tool};
use whimbrel_trust::clock;
use whimbrel_trust::krb5::{
    self, Accepted, Initiated, KerberosAcceptor, KerberosInitiator, KerberosSeal, ServerKeys, Ticket, is_first_token,
};

/// Where the realm's files are, in a case's process.
const REALM: &str = "WHIMBREL_TEST_REALM";

/// Runs one of the ignored tests below in the realm.
#[track_caller]
fn run_case(kdc: &Kdc, case: &str, tickets: &str) {
    let tool =
        Tool::new(std::env::current_exe().expect("this program")).args(["--exact", case, "--ignored", "--nocapture"]);
    let run = kdc.with(tool, tickets).env(REALM, kdc.path("")).run_ok();
    assert!(run.stdout_text().contains("1 passed"), "{run}");
}

fn realm(name: &str) -> PathBuf {
    PathBuf::from(std::env::var_os(REALM).expect("started by a test")).join(name)
}

fn keys() -> ServerKeys {
    ServerKeys::read(&format!("FILE:{}", realm("host.keytab").display())).expect("a keytab")
}

/// A login, given what the server makes of the first token.
fn finish(
    mut client: KerberosInitiator,
    mut server: KerberosAcceptor,
    first: &[u8],
) -> (Ticket, KerberosSeal, KerberosSeal) {
    let mut accepted = server.step(first).expect("a token that the KDC made");
    loop {
        match accepted {
            Accepted::Continue(token) => match client.step(&token).expect("a token of the server") {
                Initiated::Continue(token) | Initiated::Last(Some(token)) => {
                    accepted = server.step(&token).expect("a token of the client");
                }
                Initiated::Last(None) => panic!("the server waits"),
            },
            Accepted::Established { principal, until, token } => {
                if let Some(token) = token {
                    assert!(client.ticket().is_err(), "the server has proven nothing yet");
                    assert_eq!(client.step(&token), Ok(Initiated::Last(None)));
                }
                let ticket = client.ticket().expect("a login that is over");
                assert_eq!((&ticket.principal, ticket.service.as_str()), (&principal, "host/localhost@GRID.TEST"));
                // The server's side holds as much longer as clocks may differ, five minutes where krb5.conf says nothing.
                let longer = until.secs - ticket.until.secs;
                assert!((299..=301).contains(&longer), "{longer} s");
                return (ticket, client.into_seal().expect("over"), server.into_seal());
            }
        }
    }
}

#[test]
fn a_person_with_a_ticket_is_let_in_and_lines_are_wrapped() {
    let Some(kdc) = Kdc::start() else { return };
    kdc.kinit("tickets");
    run_case(&kdc, "case_login", "tickets");
    run_case(&kdc, "case_confined_server", "tickets");
    run_case(&kdc, "case_half_protected", "tickets");
    run_case(&kdc, "case_nobody", "no-tickets");
    run_case(&kdc, "case_unknown_host", "tickets");
    kdc.kinit_for("short", "1s");
    kdc.outlive("short");
    run_case(&kdc, "case_expired", "short");
}

#[test]
#[ignore = "run in a realm by the test above"]
fn case_login() {
    let mut client = KerberosInitiator::new("localhost").expect("the library");
    let first = client.start().expect("a ticket");
    assert!(is_first_token(&first) && !is_first_token(&[0x16, 3, 1]));
    let (ticket, mut client, mut server) = finish(client, KerberosAcceptor::new(&keys()), &first);
    assert_eq!(ticket.principal, "ada@GRID.TEST");
    let shown = ticket.to_string();
    assert!(
        shown.starts_with("ada@GRID.TEST, Kerberos ticket in FILE:/") && shown.contains("/tickets, good"),
        "{shown}"
    );
    assert!((1..=3600).contains(&(ticket.until.secs - clock::now().secs)), "{ticket:?}");
    let (one, two) = (client.seal(b"USER ada\r\n").expect("sealed"), client.seal(b"PASV\r\n").expect("sealed"));
    assert!(!one.windows(4).any(|part| part == b"USER"), "it is encrypted");
    let mut plain = Vec::new();
    server.open(&one, &mut plain).expect("genuine");
    server.open(&two, &mut plain).expect("genuine");
    assert_eq!(plain, b"USER ada\r\nPASV\r\n");
    assert!(server.open(&one, &mut plain).is_err(), "repeated");
    let mut changed = client.seal(b"QUIT\r\n").expect("sealed");
    *changed.last_mut().expect("bytes") ^= 1;
    assert!(server.open(&changed, &mut plain).is_err(), "changed");
    assert_eq!(plain, b"USER ada\r\nPASV\r\n");
    let back = server.seal(b"221 Goodbye.\r\n").expect("sealed");
    let mut plain = Vec::new();
    client.open(&back, &mut plain).expect("genuine");
    assert_eq!(plain, b"221 Goodbye.\r\n");
    // A stranger's rubbish, and the token of another login.
    assert_eq!(KerberosAcceptor::new(&keys()).step(b"\x60\x03abc").unwrap_err().code, FaultCode::CredentialRejected);
    let mut other = KerberosAcceptor::new(&keys());
    other.step(&first).expect("what a replayed token gives: a context whose keys the replayer does not have");
    assert!(other.into_seal().open(&two, &mut Vec::new()).is_err(), "lines of one login are none of another's");
}

/// Without mutual authentication the first token and the lines behind it could be played again as they were.
#[test]
#[ignore = "run in a realm by the test above"]
fn case_half_protected() {
    let api = Gssapi::load().expect("the library");
    for (left_out, said) in [(MUTUAL, "mutual authentication"), (REPLAY, "(replay)"), (SEQUENCE, "(sequence)")] {
        let mut client = api.context();
        let first = client.initiate_asking(WANTED & !left_out, "host@localhost", None).expect("a ticket").token;
        let fault = KerberosAcceptor::new(&keys()).step(&first).unwrap_err();
        assert_eq!(fault.code, FaultCode::CredentialRejected, "{fault}");
        assert!(fault.detail.contains("does not ask for") && fault.detail.contains(said), "{fault}");
    }
}

/// As in the front: the keytab comes as a file without a name, and nothing can be opened any more.
#[test]
#[ignore = "run in a realm by the test above"]
fn case_confined_server() {
    let mut client = KerberosInitiator::new("localhost").expect("the library");
    let first = client.start().expect("a ticket");
    let kerberos = KerberosConfig { keytab: realm("host.keytab"), ..KerberosConfig::default() };
    let config = DtnConfig { kerberos: Some(kerberos), ..DtnConfig::default() };
    let settings = monitor::front_settings(&config).expect("a keytab");
    // Loads the library, and has it read its settings once.
    let keys = Keys::new(settings.kerberos.as_ref().expect("told")).expect("keys");
    let unconfined = std::fs::read(realm("host.keytab")).is_ok();
    confine::enter(&Needs::front(&settings), Sandbox::Require).expect("a kernel that can");
    assert!(unconfined && std::fs::read(realm("host.keytab")).is_err(), "confined");
    let (ticket, mut client, mut server) = finish(client, KerberosAcceptor::new(keys.server()), &first);
    assert_eq!(ticket.principal, "ada@GRID.TEST");
    let mut plain = Vec::new();
    server.open(&client.seal(b"NOOP\r\n").expect("sealed"), &mut plain).expect("genuine");
    assert_eq!(plain, b"NOOP\r\n");
}

#[test]
#[ignore = "run in a realm by the test above"]
fn case_nobody() {
    let mut client = KerberosInitiator::new("localhost").expect("the library");
    let fault = client.start().unwrap_err();
    assert!(fault.detail.contains("no Kerberos ticket in FILE:") && fault.detail.contains("kinit"), "{fault}");
    assert_eq!(fault.code, FaultCode::CredentialMissing, "{fault}");
    assert_eq!(krb5::usable(), None);
    let missing = ServerKeys::read("FILE:/no/such/keytab").unwrap_err();
    assert_eq!(missing.code, FaultCode::CredentialMissing, "{missing}");
}

#[test]
#[ignore = "run in a realm by the test above"]
fn case_expired() {
    let mut client = KerberosInitiator::new("localhost").expect("the library");
    let first = client.start().expect("a KDC that allows for clocks that differ");
    let Accepted::Established { token: Some(token), .. } =
        KerberosAcceptor::new(&keys()).step(&first).expect("the same")
    else {
        panic!("one token is enough")
    };
    assert_eq!(client.step(&token), Ok(Initiated::Last(None)));
    let fault = client.ticket().unwrap_err();
    assert_eq!((fault.code, fault.subject.as_str()), (FaultCode::CredentialExpired, "ada@GRID.TEST"), "{fault}");
    assert!(fault.detail.contains("/short has ended: `kinit`"), "{fault}");
    let until = fault.until.expect("told").secs;
    assert!((0..3600).contains(&(clock::now().secs - until)), "{fault}");
    assert_eq!(krb5::usable(), None);
}

#[test]
#[ignore = "run in a realm by the test above"]
fn case_unknown_host() {
    let fault = KerberosInitiator::new("elsewhere.grid.test").expect("the library").start().unwrap_err();
    assert_eq!((fault.code, fault.subject.as_str()), (FaultCode::PeerIdentity, "elsewhere.grid.test"), "{fault}");
    assert!(fault.detail.contains("host/elsewhere.grid.test or ftp/elsewhere.grid.test"), "{fault}");
    assert!(krb5::usable().expect("a ticket").starts_with("ada@GRID.TEST in FILE:/"));
}

//! What our client shows in a login over TLS: a scripted server on loopback listens.
#![allow(clippy::unwrap_used, reason = "a test helper that fails ends its test")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use openssl::x509::X509Ref;
use whimbrel_dtn::client::remote::Remote;
use whimbrel_dtn::client::security::{Security, Trust};
use whimbrel_dtn::client::target::{CredentialFiles, SessionOptions, Target};
use whimbrel_engine::{Fault, FaultCode};
use whimbrel_proto::timeval::Timestamp;
use whimbrel_sys::retry;
use whimbrel_trust::make::{self, HostName, KeyKind, Life, Purpose};
use whimbrel_trust::tls::{Clients, Plain, Progress, ServerTls, TlsMachine};
use whimbrel_trust::{OwnChain, Peer, PeerJudge, TrustFault};

const PATIENCE: Duration = Duration::from_secs(30);

fn self_signed(subject: &str, purpose: &Purpose) -> OwnChain {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    let key = make::key(KeyKind::Rsa(2048)).unwrap();
    let life = Life::of(Timestamp::from_secs(now), 600);
    let certificate = make::self_signed(subject, &key, purpose, life).unwrap();
    OwnChain { certificate, key, chain: Vec::new() }
}

struct Anybody;

impl PeerJudge for Anybody {
    fn judge(&self, leaf: &X509Ref, _others: &[&X509Ref]) -> Result<Peer, TrustFault> {
        let subject = format!("{:?}", leaf.subject_name());
        let until = Timestamp { secs: 0, nanos: 0 };
        Ok(Peer { subject, leaf: leaf.to_owned(), chain: Vec::new(), limited: false, until, vo: Vec::new() })
    }
}

/// What a client said, and whom it proved to be.
struct Heard {
    lines: Vec<String>,
    subject: Option<String>,
}

fn reply(line: &str) -> &'static str {
    match line.split(' ').next().unwrap_or_default() {
        "USER" => "331 Password required.\r\n",
        "PASS" => "230 In.\r\n",
        "FEAT" => "211 None.\r\n",
        _ => "200 Fine.\r\n",
    }
}

/// Serves one login, inside TLS or, where the client is told that there is none, for what it says then.
fn serve(clients: Option<Clients>) -> (u16, JoinHandle<Heard>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"220 ready\r\n").unwrap();
        let mut input = BufReader::new(stream.try_clone().unwrap());
        let mut auth = String::new();
        input.read_line(&mut auth).unwrap();
        assert_eq!(auth, "AUTH TLS\r\n");
        match clients {
            Some(clients) => protected(stream, &clients),
            None => {
                stream.write_all(b"504 No.\r\n").unwrap();
                let mut rest = Vec::new();
                // A reset is an end, too.
                let _ended = input.read_to_end(&mut rest);
                let lines = String::from_utf8(rest).unwrap().lines().map(str::to_owned).collect();
                Heard { lines, subject: None }
            }
        }
    });
    (port, thread)
}

fn protected(mut stream: TcpStream, clients: &Clients) -> Heard {
    stream.write_all(b"234 Go.\r\n").unwrap();
    let host = self_signed("/CN=localhost", &Purpose::Host(vec![HostName::Dns("localhost".into())]));
    let mut tls = TlsMachine::server(&ServerTls::new(&host, clients, None).unwrap()).unwrap();
    let (mut plain, mut told, mut heard) = (Vec::new(), 0, Vec::new());
    loop {
        let standing = tls.drive().unwrap() == Progress::Established;
        while standing && matches!(tls.read(&mut plain), Ok(Plain::Bytes(_))) {}
        while let Some(end) = plain[told..].iter().position(|&byte| byte == b'\n') {
            let line = String::from_utf8(plain[told..told + end].trim_ascii_end().to_vec()).unwrap();
            told += end + 1;
            tls.write(reply(&line).as_bytes()).unwrap();
            heard.push(line);
        }
        if let Some(flight) = tls.transmit() {
            stream.write_all(&flight).unwrap();
        }
        let mut piece = [0; 4096];
        match retry::read(&mut stream, &mut piece) {
            Ok(count) if count > 0 => tls.feed(&piece[..count]),
            _ => break,
        }
    }
    Heard { lines: heard, subject: tls.peer().map(|peer| peer.subject) }
}

fn target(port: u16) -> Target {
    Target { security: Security::Tls, ..Target::anonymous("localhost", port) }
}

/// Logs in and leaves.
fn log_in(target: &Target, trust: Trust) -> Result<(), Fault> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let options = SessionOptions { trust, ..SessionOptions::default() };
    runtime.block_on(async {
        let (mut remote, _) = Remote::dial(target, &options, &[]).await?;
        remote.leave(PATIENCE).await;
        Ok(())
    })
}

fn token_file(folder: &Path) -> std::path::PathBuf {
    let file = folder.join("token");
    std::fs::write(&file, "secret.token.text\n").unwrap();
    file
}

#[test]
fn a_token_stands_in_the_place_of_a_password_inside_tls() {
    let folder = tempfile::tempdir().unwrap();
    let (port, server) = serve(Some(Clients::Unasked));
    let trust = Trust::with_known_hosts(folder.path().join("known")).with_token_file(token_file(folder.path()));
    log_in(&target(port), trust).unwrap();
    let heard = server.join().unwrap().lines;
    assert_eq!(&heard[..2], ["USER :globus-mapping:", "PASS secret.token.text"]);
}

#[test]
fn a_server_without_tls_never_sees_the_token_and_nobody_is_let_in_without_it() {
    let folder = tempfile::tempdir().unwrap();
    let (port, server) = serve(None);
    let trust = Trust::with_known_hosts(folder.path().join("known")).with_token_file(token_file(folder.path()));
    let fault = log_in(&target(port), trust).unwrap_err();
    assert_eq!(fault.code, FaultCode::PeerIncompatible, "{fault}");
    assert!(server.join().unwrap().lines.is_empty());
}

#[test]
fn a_certificate_is_shown_to_a_server_that_asks() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("alice.pem");
    std::fs::write(&file, make::to_pem(&self_signed("/O=Grid/CN=alice", &Purpose::Person)).unwrap()).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    let credential = Some(Box::new(CredentialFiles { certificate: file.clone(), key: file }));
    for (clients, shown) in [(Clients::Welcome(Arc::new(Anybody)), true), (Clients::Unasked, false)] {
        let (port, server) = serve(Some(clients));
        let target = Target { credential: credential.clone(), ..target(port) };
        // Not by port: the second server may be given the port that the first one has left.
        let known = folder.path().join(format!("known-{shown}"));
        log_in(&target, Trust::with_known_hosts(known)).unwrap();
        let heard = server.join().unwrap();
        assert_eq!(heard.subject.is_some_and(|subject| subject.contains("alice")), shown);
        assert_eq!(heard.lines[0], "USER :globus-mapping:");
    }
}

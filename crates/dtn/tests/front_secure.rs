//! Control connections over TLS: the front on one end of a pipe, a TLS client on the other.
#![allow(clippy::unwrap_used, reason = "a test helper that fails ends its test")]

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use openssl::asn1::Asn1Time;
use openssl::ec::{EcGroup, EcKey};
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::PKey;
use openssl::x509::{X509Builder, X509Ref};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use whimbrel_dtn::front::config::TlsConfig;
use whimbrel_dtn::front::connection::{Beginning, Ends, serve};
use whimbrel_dtn::front::gate::Gate;
use whimbrel_dtn::front::{DtnConfig, Server};
use whimbrel_dtn::monitor::{self, keeper::Keeper};
use whimbrel_engine::{Fault, FaultCode};
use whimbrel_proto::timeval::Timestamp;
use whimbrel_trust::tls::{ClientTls, Plain, Progress, TlsMachine};
use whimbrel_trust::{Peer, PeerJudge, TrustFault};

const PATIENCE: Duration = Duration::from_secs(20);

/// A certificate for one day and its key, in `host.pem` and `host.key`.
fn certificate(directory: &Path) -> TlsConfig {
    let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
    let key = PKey::from_ec_key(EcKey::generate(&group).unwrap()).unwrap();
    let mut builder = X509Builder::new().unwrap();
    builder.set_version(2).unwrap();
    builder.set_pubkey(&key).unwrap();
    builder.set_not_before(&Asn1Time::days_from_now(0).unwrap()).unwrap();
    builder.set_not_after(&Asn1Time::days_from_now(1).unwrap()).unwrap();
    builder.sign(&key, MessageDigest::sha256()).unwrap();
    let config =
        TlsConfig { certificate: directory.join("host.pem"), key: directory.join("host.key"), ..TlsConfig::default() };
    std::fs::write(&config.certificate, builder.build().to_pem().unwrap()).unwrap();
    std::fs::write(&config.key, key.private_key_to_pem_pkcs8().unwrap()).unwrap();
    std::fs::set_permissions(&config.key, Permissions::from_mode(0o640)).unwrap();
    config
}

struct Anybody;

impl PeerJudge for Anybody {
    fn judge(&self, leaf: &X509Ref, _others: &[&X509Ref]) -> Result<Peer, TrustFault> {
        let until = Timestamp { secs: 0, nanos: 0 };
        let (subject, chain, vo) = (String::new(), Vec::new(), Vec::new());
        Ok(Peer { subject, leaf: leaf.to_owned(), chain, limited: false, until, vo })
    }
}

fn server(config: &DtnConfig) -> Result<Server, Fault> {
    let keeper = Keeper::new(config, "/nowhere".into())?;
    Server::new(monitor::front_settings(config)?, Gate::Here(Mutex::new(keeper)))
}

struct Front {
    server: Arc<Server>,
    client: ClientTls,
    drain: watch::Sender<bool>,
    _directory: tempfile::TempDir,
}

impl Front {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let tls = Some(certificate(directory.path()));
        let config = DtnConfig { anonymous: true, tls, ..DtnConfig::default() };
        let server = Arc::new(server(&config).unwrap());
        let client = ClientTls::new(Arc::new(Anybody), None).unwrap();
        Self { server, client, drain: watch::channel(false).0, _directory: directory }
    }

    fn connect(&self, beginning: Beginning) -> Client {
        let (ours, theirs) = duplex(64 << 10);
        let served = serve(theirs, Ends::default(), beginning, self.server.clone(), self.drain.subscribe());
        let tls = TlsMachine::client(&self.client, "").unwrap();
        Client { stream: ours, tls, established: false, plain: Vec::new(), served: tokio::spawn(served) }
    }

    /// A connection that said AUTH TLS and was told to begin.
    async fn about_to_begin(&self) -> Client {
        let mut client = self.connect(Beginning::Clear);
        client.expect("220 ").await;
        client.say("AUTH TLS\r\n").await;
        client.expect("234 ").await;
        client
    }
}

struct Client {
    stream: DuplexStream,
    tls: TlsMachine,
    established: bool,
    plain: Vec<u8>,
    served: JoinHandle<()>,
}

impl Client {
    async fn say(&mut self, text: &str) {
        if self.established {
            self.tls.write(text.as_bytes()).unwrap();
            self.flush().await;
        } else {
            self.stream.write_all(text.as_bytes()).await.unwrap();
        }
    }

    async fn flush(&mut self) {
        if let Some(bytes) = self.tls.transmit() {
            self.stream.write_all(&bytes).await.unwrap();
        }
    }

    /// Bytes of the wire; none at its end.
    async fn wire(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; 16 << 10];
        let count = timeout(PATIENCE, self.stream.read(&mut bytes)).await.expect("something happens").unwrap_or(0);
        bytes.truncate(count);
        bytes
    }

    async fn handshake(&mut self) {
        while self.tls.drive().unwrap() == Progress::Handshaking {
            self.flush().await;
            let bytes = self.wire().await;
            assert!(!bytes.is_empty(), "the server goes on");
            self.tls.feed(&bytes);
        }
        self.flush().await;
        self.established = true;
    }

    /// The next line with its end; what there is at the end of the stream.
    async fn line(&mut self) -> String {
        loop {
            if let Some(end) = self.plain.iter().position(|&b| b == b'\n') {
                return String::from_utf8(self.plain.drain(..=end).collect()).unwrap();
            }
            if self.established {
                match self.tls.read(&mut self.plain).unwrap() {
                    Plain::Bytes(_) => continue,
                    Plain::Closed => return String::new(),
                    Plain::Nothing => {}
                }
            }
            let bytes = self.wire().await;
            if bytes.is_empty() {
                return String::from_utf8_lossy(&std::mem::take(&mut self.plain)).into_owned();
            }
            if self.established { self.tls.feed(&bytes) } else { self.plain.extend(bytes) }
        }
    }

    async fn expect(&mut self, start: &str) {
        let line = self.line().await;
        assert!(line.starts_with(start), "{start:?} is expected, not {line:?}");
    }

    async fn ask(&mut self, command: &str, start: &str) {
        self.say(&format!("{command}\r\n")).await;
        self.expect(start).await;
    }

    /// The server lets go of the connection by itself.
    async fn ends(self) {
        let Self { stream, served, .. } = self;
        timeout(PATIENCE, served).await.expect("the connection ends").unwrap();
        drop(stream);
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

#[test]
fn a_login_goes_on_inside_tls() {
    block_on(async {
        let front = Front::new();
        let mut client = front.about_to_begin().await;
        client.handshake().await;
        client.ask("AUTH TLS", "503 ").await;
        client.ask("PBSZ 0", "200 PBSZ=0").await;
        client.ask("PROT P", "200 ").await;
        client.ask("USER u", "331 ").await;
        client.ask("PASS wrong", "530 Login incorrect.").await;
        client.say("NOOP\r\nNOOP\r\nQUIT\r\n").await;
        for start in ["200 ", "200 ", "221 "] {
            client.expect(start).await;
        }
        assert_eq!(client.line().await, "", "the end is told (close_notify)");
        client.ends().await;
    });
}

#[test]
fn passwords_are_not_taken_in_clear_where_there_is_tls() {
    block_on(async {
        let front = Front::new();
        let mut client = front.connect(Beginning::Clear);
        client.expect("220 ").await;
        client.ask("USER u", "530 Passwords are not taken over a connection in clear: send AUTH TLS first.").await;
        client.ask("PASS secret", "530 Passwords are not").await;
        client.ask("USER anonymous", "331 ").await;
    });
}

// CVE-2011-0411.
#[test]
fn bytes_in_clear_behind_auth_tls_end_the_connection_unread() {
    block_on(async {
        let front = Front::new();
        for behind in ["NOOP\r\n", "N", "USER anonymous\r\nPASS x\r\n"] {
            let mut client = front.connect(Beginning::Clear);
            client.expect("220 ").await;
            client.say(&format!("AUTH TLS\r\n{behind}")).await;
            client.expect("234 ").await;
            assert_eq!(client.line().await, "", "{behind:?}");
            client.ends().await;
        }
        let mut client = front.connect(Beginning::Clear);
        client.expect("220 ").await;
        client.ask("AUTH SSL\r\nNOOP", "504 ").await;
        client.expect("200 ").await;
    });
}

#[test]
fn what_is_no_tls_ends_the_connection() {
    block_on(async {
        let front = Front::new();
        for (bytes, alert) in [("NOOP\r\nNOOP\r\n", false), ("\u{16}\u{3}\u{1}\u{0}\u{5}junk!", true)] {
            let mut client = front.about_to_begin().await;
            client.say(bytes).await;
            let answer = client.wire().await;
            assert_eq!(answer.first().is_some_and(|&kind| kind == 21), alert, "{answer:?}");
            assert!(alert || answer.is_empty(), "no word in clear: {answer:?}");
            client.ends().await;
        }
    });
}

#[test]
fn a_client_that_leaves_anywhere_in_the_handshake_leaves_nothing_behind() {
    block_on(async {
        let front = Front::new();
        let mut whole = front.about_to_begin().await;
        assert_eq!(whole.tls.drive(), Ok(Progress::Handshaking));
        let hello = whole.tls.transmit().unwrap();
        for cut in (0..=hello.len()).step_by(5) {
            let mut client = front.about_to_begin().await;
            client.stream.write_all(&hello[..cut]).await.unwrap();
            client.stream.shutdown().await.unwrap();
            client.ends().await;
        }
    });
}

#[test]
fn tls_may_come_before_the_greeting() {
    block_on(async {
        let front = Front::new();
        let mut client = front.connect(Beginning::Tls);
        client.handshake().await;
        client.expect("220 ").await;
        client.ask("AUTH TLS", "503 ").await;
        client.ask("QUIT", "221 ").await;
        client.ends().await;
        let mut early = front.connect(Beginning::Tls);
        early.stream.shutdown().await.unwrap();
        early.ends().await;
        let silent = front.connect(Beginning::Tls);
        front.drain.send(true).unwrap();
        silent.ends().await;
    });
}

#[test]
fn files_that_are_no_certificate_are_named_at_the_start() {
    let directory = tempfile::tempdir().unwrap();
    let tls = certificate(directory.path());
    let started = |tls: &TlsConfig| {
        let config = DtnConfig { anonymous: true, tls: Some(tls.clone()), ..DtnConfig::default() };
        server(&config).err().expect("refused")
    };
    let other = directory.path().join("other");
    std::fs::create_dir(&other).unwrap();
    let other = certificate(&other);
    let mixed = TlsConfig { key: other.key.clone(), ..tls.clone() };
    let text = TlsConfig { certificate: directory.path().join("text"), ..tls.clone() };
    let missing = TlsConfig { key: directory.path().join("none"), ..tls.clone() };
    let open = TlsConfig { key: directory.path().join("open"), ..tls.clone() };
    std::fs::write(&text.certificate, "what is this?").unwrap();
    std::fs::copy(&tls.key, &open.key).unwrap();
    std::fs::set_permissions(&open.key, Permissions::from_mode(0o644)).unwrap();
    for (config, code, path) in [
        (&mixed, FaultCode::CredentialRejected, &mixed.certificate),
        (&text, FaultCode::CredentialRejected, &text.certificate),
        (&missing, FaultCode::NotFound, &missing.key),
        (&open, FaultCode::CredentialRejected, &open.key),
    ] {
        let fault = started(config);
        assert_eq!((fault.code, fault.subject), (code, path.display().to_string()));
    }
}

//! GSI logins with the real programs: our client at `globus-gridftp-server`, and `globus-url-copy` at our server.

#![allow(clippy::unwrap_used, reason = "a helper that fails ends its test")]

#[path = "gsi/grid.rs"]
mod grid;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use grid::{Grid, now};
use openssl::base64::{decode_block, encode_block};
use openssl::ssl::SslVersion;
use whimbrel_proto::timeval::Timestamp;
use whimbrel_proto::x509::{Certificate, Form, Kind, Policy};
use whimbrel_trust::gsi::Expected;
use whimbrel_trust::gsi::acceptor::Accepted;
use whimbrel_trust::gsi::host::Names;
use whimbrel_trust::gsi::initiator::Initiated;
use whimbrel_trust::gsi::{Delegate, GsiAcceptor, GsiInitiator, KeyPool};
use whimbrel_trust::make::{self, KeyKind, Life, ProxyKind, own_proxy};
use whimbrel_trust::tls::{ClientTls, Plain, ServerTls, TlsMachine};
use whimbrel_trust::{OwnChain, Peer, PeerJudge};

const PATIENCE: Duration = Duration::from_secs(60);

/// False, and a word about it, where a program is missing; a failure where it must not be.
fn installed(program: &str) -> bool {
    let found = std::env::split_paths(&std::env::var_os("PATH").unwrap()).any(|folder| folder.join(program).is_file());
    assert!(found || std::env::var_os("WHIMBREL_REQUIRE_PEERS").is_none(), "{program} is missing");
    if !found {
        println!("skipped: `{program}` is not installed");
    }
    found
}

fn secret(path: &Path, own: &OwnChain) -> PathBuf {
    fs::write(path, make::to_pem(own).unwrap()).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    path.to_owned()
}

/// The real server, ended when it is dropped.
struct Server(Child, u16);

impl Server {
    fn start(grid: &Grid) -> Self {
        let host = secret(&grid.path().join("host.pem"), &grid.host);
        let me = String::from_utf8(Command::new("id").arg("-un").output().unwrap().stdout).unwrap();
        let account = if me.trim() == "root" { "nobody" } else { me.trim() };
        let gridmap = grid.path().join("gridmap");
        fs::write(&gridmap, format!("\"/O=Grid/CN=alice\" {account}\n")).unwrap();
        let mut child = Command::new("globus-gridftp-server")
            .args(["-c", "/dev/null", "-p", "0", "-control-interface", "127.0.0.1", "-data-interface", "127.0.0.1"])
            .env("X509_USER_CERT", &host)
            .env("X509_USER_KEY", &host)
            .env("X509_CERT_DIR", grid.path().join("certificates"))
            .env("GRIDMAP", gridmap)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().rsplit(':').next().and_then(|port| port.parse().ok());
        Self(child, port.unwrap_or_else(|| panic!("no port: {line:?}")))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _gone = self.0.kill().and_then(|()| self.0.wait());
    }
}

/// A control connection, line by line.
struct Control(BufReader<TcpStream>);

impl Control {
    fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(BufReader::new(stream))
    }

    fn say(&mut self, line: &str) {
        self.0.get_mut().write_all(format!("{line}\r\n").as_bytes()).unwrap();
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// The last line of a reply.
    fn reply(&mut self) -> String {
        loop {
            let line = self.line();
            if line.as_bytes().get(3) != Some(&b'-') {
                return line;
            }
        }
    }

    /// One command and its reply, both protected.
    fn protected(&mut self, tls: &mut TlsMachine, command: &str) -> String {
        tls.write(format!("{command}\r\n").as_bytes()).unwrap();
        self.say(&format!("ENC {}", encode_block(&tls.transmit().unwrap())));
        let mut plain = Vec::new();
        loop {
            let line = self.line();
            assert!(line.starts_with("632"), "{line}");
            tls.feed(&decode_block(&line[4..]).unwrap());
            while let Plain::Bytes(_) = tls.read(&mut plain).unwrap() {}
            if line.as_bytes()[3] == b' ' {
                return String::from_utf8(plain).unwrap();
            }
        }
    }
}

/// Logs in at the real server as `own`; the machine that protects what follows, or the server's refusal.
fn login(
    grid: &Grid,
    control: &mut Control,
    own: &OwnChain,
    delegate: Delegate,
    version: SslVersion,
) -> Result<TlsMachine, String> {
    let config = ClientTls::new(grid.judge(Expected::Host("localhost".into(), Names::Common)), Some(own)).unwrap();
    let mut ssl = config.connection("localhost").unwrap();
    ssl.set_max_proto_version(Some(version)).unwrap();
    let mut initiator = GsiInitiator::over(TlsMachine::over(ssl, false).unwrap(), own.clone(), delegate);
    assert!(control.reply().starts_with("220"));
    control.say("AUTH GSSAPI");
    assert!(control.reply().starts_with("334"));
    let mut token = initiator.start().unwrap();
    loop {
        control.say(&format!("ADAT {}", encode_block(&token)));
        let reply = control.reply();
        let Some(answer) = reply.strip_prefix("335 ADAT=") else {
            return if reply.starts_with("235") { Ok(initiator.into_tls()) } else { Err(reply) };
        };
        token = match initiator.step(&decode_block(answer).unwrap(), now(), 600).unwrap() {
            Initiated::Continue(token) | Initiated::Last(token) => token,
        };
    }
}

#[test]
fn the_real_server_takes_our_logins_and_what_we_hand_on() {
    if !installed("globus-gridftp-server") {
        return;
    }
    let grid = Grid::new(KeyKind::Rsa(2048));
    let server = Server::start(&grid);
    let proxy = |form, policy| {
        own_proxy(&grid.alice, KeyKind::Rsa(2048), &ProxyKind { form, policy, path_length: None }, Life::of(now(), 900))
            .unwrap()
    };
    for (own, delegate, version) in [
        (grid.alice.clone(), Delegate::Limited, SslVersion::TLS1_3),
        (grid.alice.clone(), Delegate::Full, SslVersion::TLS1_2),
        (grid.alice.clone(), Delegate::No, SslVersion::TLS1_3),
        (proxy(Form::Rfc, Policy::InheritAll), Delegate::Limited, SslVersion::TLS1_3),
        (proxy(Form::Rfc, Policy::Limited), Delegate::Full, SslVersion::TLS1_3),
        (proxy(Form::Draft, Policy::InheritAll), Delegate::Full, SslVersion::TLS1_2),
    ] {
        let mut control = Control::new(TcpStream::connect(("127.0.0.1", server.1)).unwrap());
        let mut tls = login(&grid, &mut control, &own, delegate, version).unwrap();
        let asked = control.protected(&mut tls, "USER :globus-mapping:");
        assert!(asked.starts_with("331"), "{asked}");
        let welcome = control.protected(&mut tls, "PASS dummy");
        assert!(welcome.starts_with("230"), "{welcome}");
        let features = control.protected(&mut tls, "FEAT");
        assert!(features.starts_with("211-") && features.lines().count() > 5, "{features}");
    }
}

#[test]
fn the_real_server_refuses_what_we_refuse() {
    if !installed("globus-gridftp-server") {
        return;
    }
    let grid = Grid::new(KeyKind::P256);
    let server = Server::start(&grid);
    let (alice, stranger) = (&grid.alice, Grid::new(KeyKind::P256).alice);
    let proxy = |above: &OwnChain, form, policy, path_length| {
        own_proxy(above, KeyKind::P256, &ProxyKind { form, policy, path_length }, Life::of(now(), 900)).unwrap()
    };
    let full = |above: &OwnChain| proxy(above, Form::Rfc, Policy::InheritAll, None);
    let limited = |above: &OwnChain| proxy(above, Form::Rfc, Policy::Limited, None);
    let draft = |above: &OwnChain| proxy(above, Form::Draft, Policy::InheritAll, None);
    let bent = |bend: fn(make::Draft) -> make::Draft| {
        let draft = make::proxy_draft(alice, &ProxyKind::rfc(Policy::InheritAll), Life::of(now(), 900)).unwrap();
        let key = make::key(KeyKind::P256).unwrap();
        let certificate = bend(draft).sign(&key, &alice.key).unwrap();
        OwnChain { certificate, key, chain: vec![alice.certificate.clone()] }
    };
    let ended = |draft: make::Draft| {
        let at = |seconds| Timestamp::from_secs(now().secs + seconds);
        make::Draft { life: Life { from: at(-900), until: at(-100) }, ..draft }
    };
    let renamed = |draft: make::Draft| make::Draft { subject: make::name("/O=Grid/CN=bob/CN=1").unwrap(), ..draft };
    let critical = |draft: make::Draft| draft.with(whimbrel_proto::x509::oid::VOMS_TAGS, true, vec![5, 0]);
    let mallory = OwnChain { key: make::key(KeyKind::P256).unwrap(), ..alice.clone() };
    for (name, chain, good) in [
        ("nobody's proxy", alice.clone(), true),
        ("three proxies", full(&full(&full(alice))), true),
        ("limited below full", limited(&full(alice)), true),
        ("limited below limited", limited(&limited(alice)), true),
        ("draft", draft(alice), true),
        ("a bound that is kept", full(&proxy(alice, Form::Rfc, Policy::InheritAll, Some(1))), true),
        ("full below limited", full(&limited(alice)), false),
        ("draft below RFC", draft(&full(alice)), false),
        ("a bound that is broken", full(&proxy(alice, Form::Rfc, Policy::InheritAll, Some(0))), false),
        ("expired", bent(ended), false),
        ("another's name", bent(renamed), false),
        ("an unknown critical extension", bent(critical), false),
        ("a stranger's authority", stranger, false),
        ("a forged proxy", full(&mallory), false),
    ] {
        let mut control = Control::new(TcpStream::connect(("127.0.0.1", server.1)).unwrap());
        let theirs = login(&grid, &mut control, &chain, Delegate::No, SslVersion::TLS1_3);
        assert_eq!(theirs.is_ok(), good, "the real server on {name}: {:?}", theirs.err());
        let others: Vec<_> = chain.chain.iter().map(AsRef::as_ref).collect();
        let ours = grid.judge(Expected::Anybody).judge(&chain.certificate, &others);
        assert_eq!(ours.is_ok(), good, "ours on {name}: {:?}", ours.err());
    }
}

/// Takes one login; who came, what was handed on, and the first protected command.
fn serve(grid: &Grid, listener: &TcpListener) -> (Peer, Option<Box<OwnChain>>, String) {
    let config = ServerTls::gsi(&grid.host, grid.judge(Expected::Anybody)).unwrap();
    let mut control = Control::new(listener.accept().unwrap().0);
    control.say("220 ready");
    assert_eq!(control.line(), "AUTH GSSAPI");
    control.say("334 Using authentication type; ADAT must follow.");
    let mut acceptor = GsiAcceptor::new(&config, Arc::new(KeyPool::default())).unwrap();
    loop {
        let line = control.line();
        let token = line.strip_prefix("ADAT ").unwrap_or_else(|| panic!("{line}"));
        match acceptor.step(&decode_block(token).unwrap(), now()).unwrap() {
            Accepted::Continue(answer) => control.say(&format!("335 ADAT={}", encode_block(&answer))),
            Accepted::Established { peer, delegated } => {
                control.say("235 GSSAPI Authentication successful.");
                let line = control.line();
                let mut tls = acceptor.into_tls();
                tls.feed(&decode_block(line.strip_prefix("ENC ").unwrap()).unwrap());
                let mut plain = Vec::new();
                tls.read(&mut plain).unwrap();
                return (peer, delegated, String::from_utf8(plain).unwrap());
            }
        }
    }
}

#[test]
fn the_real_client_logs_in_here_and_hands_on_a_limited_proxy() {
    if !installed("globus-url-copy") {
        return;
    }
    let grid = Grid::new(KeyKind::Rsa(2048));
    for form in [Form::Rfc, Form::Draft, Form::Legacy] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let kind = ProxyKind { form, policy: Policy::InheritAll, path_length: None };
        let proxy = own_proxy(&grid.alice, KeyKind::Rsa(2048), &kind, Life::of(now(), 900)).unwrap();
        let mut client = Command::new("globus-url-copy")
            .arg(format!("gsiftp://localhost:{port}/nothing"))
            .arg("file:///dev/null")
            .env("X509_USER_PROXY", secret(&grid.path().join("proxy.pem"), &proxy))
            .env("X509_CERT_DIR", grid.path().join("certificates"))
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let waiting = std::thread::spawn(move || {
            // It is cut off and says so: that is not what this is about.
            let _said = client.wait().unwrap();
            // Had it ended without a word, the server would wait for ever.
            drop(TcpStream::connect(("127.0.0.1", port)));
        });
        let (peer, delegated, command) = serve(&grid, &listener);
        waiting.join().unwrap();
        assert_eq!((peer.subject.as_str(), peer.limited), ("/O=Grid/CN=alice", false));
        let delegated = delegated.expect("it hands on rights");
        let read = delegated.certificate.to_der().unwrap();
        let kind = Certificate::parse(&read).unwrap().kind();
        assert_eq!(kind, Ok(Kind::Proxy { form, policy: Policy::Limited }));
        assert_eq!(delegated.chain.len(), 2);
        assert!(command.ends_with("\r\n"), "{command:?}");
    }
}

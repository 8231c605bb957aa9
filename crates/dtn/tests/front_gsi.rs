//! Logins with grid certificates: the front on one end of a pipe, our initiator on the other.
#![allow(clippy::unwrap_used, reason = "a test helper that fails ends its test")]

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use whimbrel_dtn::front::config::GsiConfig;
use whimbrel_dtn::front::connection::{Beginning, Ends, serve};
use whimbrel_dtn::front::gate::Gate;
use whimbrel_dtn::front::{DtnConfig, Server};
use whimbrel_dtn::monitor::{self, keeper::Keeper};
use whimbrel_proto::client::secure::Exchange;
use whimbrel_proto::protect::{CommandSealer, ReplyOpener, base64};
use whimbrel_proto::reply::{MAX_REPLY_LINE, Reply};
use whimbrel_proto::timeval::Timestamp;
use whimbrel_testkit::pki::{Member, Pki};
use whimbrel_trust::gsi::initiator::Initiated;
use whimbrel_trust::gsi::{AnchorStore, Delegate, Expected, GsiInitiator, GsiJudge, Trusted};
use whimbrel_trust::make::ProxyKind;
use whimbrel_trust::tls::{ClientTls, TlsMachine};

const PATIENCE: Duration = Duration::from_secs(20);

struct Grid {
    pki: Pki,
    alice: Member,
    server: Arc<Server>,
    drain: watch::Sender<bool>,
}

impl Grid {
    fn new() -> Self {
        let pki = Pki::new().unwrap();
        let host = pki.host(&["localhost"]).unwrap();
        let person = pki.person("alice").unwrap();
        let alice = pki.proxy(&person, &ProxyKind::rfc(whimbrel_proto::x509::Policy::InheritAll), "proxy").unwrap();
        // Data processes are not started here, so any account that is not root will do.
        let gridmap = pki.gridmap(&[("alice", "daemon"), ("mallory", "root")]).unwrap();
        let gsi = GsiConfig {
            certificate: Some(host.file),
            authorities: Some(pki.certificates()),
            gridmap: Some(gridmap),
            ..GsiConfig::default()
        };
        let config = DtnConfig { gsi: Some(gsi), ..DtnConfig::default() };
        let keeper = Keeper::new(&config, "/nowhere".into()).unwrap();
        let settings = monitor::front_settings(&config).unwrap();
        let server = Arc::new(Server::new(settings, Gate::Here(Mutex::new(keeper))).unwrap());
        Self { pki, alice, server, drain: watch::channel(false).0 }
    }

    async fn connect(&self) -> Client {
        let (stream, theirs) = duplex(256 << 10);
        let served = serve(theirs, Ends::default(), Beginning::Clear, self.server.clone(), self.drain.subscribe());
        let mut client = Client { stream, served: tokio::spawn(served), text: String::new() };
        client.expect("220 ").await;
        client
    }

    fn initiator(&self, who: &Member, delegate: Delegate) -> GsiInitiator {
        let store = Arc::new(AnchorStore::open(&self.pki.certificates(), Instant::now()).unwrap());
        let judge = GsiJudge::new(Trusted::Directory(store), Expected::Subject("/O=Grid/CN=localhost".to_owned()));
        let tls = ClientTls::new(Arc::new(judge), Some(&who.own)).unwrap();
        GsiInitiator::new(&tls, "localhost", who.own.clone(), delegate).unwrap()
    }
}

struct Client {
    stream: DuplexStream,
    served: JoinHandle<()>,
    text: String,
}

impl Client {
    async fn say(&mut self, line: &str) {
        self.stream.write_all(format!("{line}\r\n").as_bytes()).await.unwrap();
    }

    async fn read(&mut self) -> bool {
        let mut bytes = vec![0; 64 << 10];
        let count = timeout(PATIENCE, self.stream.read(&mut bytes)).await.expect("the server says nothing").unwrap();
        self.text.push_str(std::str::from_utf8(&bytes[..count]).unwrap());
        count > 0
    }

    /// The next line, without its end.
    async fn line(&mut self) -> String {
        loop {
            if let Some((line, rest)) = self.text.split_once("\r\n") {
                let (line, rest) = (line.to_owned(), rest.to_owned());
                self.text = rest;
                return line;
            }
            assert!(self.read().await, "the server closed the connection");
        }
    }

    async fn expect(&mut self, beginning: &str) -> String {
        loop {
            let line = self.line().await;
            if line.get(3..4) != Some("-") {
                assert!(line.starts_with(beginning), "{line} is not {beginning}");
                return line;
            }
        }
    }

    /// The last line of a refusal, with all lines in front of it.
    async fn refusal(&mut self) -> String {
        let mut all = String::new();
        loop {
            let line = self.line().await;
            all.push_str(&line);
            if line.starts_with("530 ") {
                return all;
            }
        }
    }

    /// Logs in up to the reply to the last token.
    async fn authenticate(&mut self, mut initiator: GsiInitiator) -> Wrapped<'_> {
        self.say("AUTH GSSAPI").await;
        self.expect("334 ").await;
        let mut token = initiator.start().unwrap();
        loop {
            self.say(&format!("ADAT {}", base64::encode(&token))).await;
            let line = self.line().await;
            let code = line[..3].parse().unwrap();
            let reply = Reply { code, lines: vec![line.as_bytes()[4..].to_vec()] };
            match Exchange::of(&reply).unwrap() {
                Exchange::GoesOn(answer) => match initiator.step(&answer, now(), 3600).unwrap() {
                    Initiated::Continue(next) | Initiated::Last(next) => token = next,
                },
                Exchange::Over(_) => break,
                Exchange::Refused => panic!("{line}"),
            }
        }
        let opener = ReplyOpener::new(MAX_REPLY_LINE);
        Wrapped {
            client: self,
            machine: initiator.into_tls(),
            sealer: CommandSealer::default(),
            opener,
            plain: Vec::new(),
        }
    }
}

struct Wrapped<'a> {
    client: &'a mut Client,
    machine: TlsMachine,
    sealer: CommandSealer,
    opener: ReplyOpener,
    plain: Vec<u8>,
}

impl Wrapped<'_> {
    fn sealed(&mut self, lines: &str) -> Vec<u8> {
        let mut wire = Vec::new();
        self.sealer.feed(&mut self.machine, lines.as_bytes(), &mut wire).unwrap();
        wire
    }

    async fn say(&mut self, line: &str) {
        let wire = self.sealed(&format!("{line}\r\n"));
        self.client.stream.write_all(&wire).await.unwrap();
    }

    /// The next reply, its lines joined.
    async fn reply(&mut self) -> String {
        let mut all = String::new();
        loop {
            while let Some(end) = self.plain.windows(2).position(|pair| pair == b"\r\n") {
                let line: Vec<u8> = self.plain.drain(..end + 2).collect();
                all.push_str(std::str::from_utf8(&line[..end]).unwrap());
                if line.get(3) == Some(&b' ') && line[0].is_ascii_digit() {
                    return all;
                }
                all.push('|');
            }
            if self.client.text.is_empty() {
                assert!(self.client.read().await, "the server closed the connection");
            }
            let wire = std::mem::take(&mut self.client.text);
            self.opener.feed(&mut self.machine, wire.as_bytes(), &mut self.plain).unwrap();
        }
    }
}

fn now() -> Timestamp {
    Timestamp::from_secs(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64)
}

#[tokio::test]
async fn lines_are_wrapped_once_the_certificate_is_accepted() {
    let grid = Grid::new();
    let mut client = grid.connect().await;
    let mut wrapped = client.authenticate(grid.initiator(&grid.alice, Delegate::Limited)).await;
    wrapped.say("FEAT").await;
    assert!(wrapped.reply().await.ends_with("|211 End."));
    wrapped.say("USER bob").await;
    assert!(wrapped.reply().await.starts_with("331 "));
    wrapped.say("PASS dummy").await;
    let refusal = wrapped.reply().await;
    assert!(refusal.contains("530-/O=Grid/CN=alice is not mapped to the account bob here.|"), "{refusal}");
    wrapped.say("QUIT").await;
    assert!(wrapped.reply().await.starts_with("2"));
    timeout(PATIENCE, client.served).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_line_in_clear_behind_the_exchange_ends_the_connection() {
    let grid = Grid::new();
    let mut client = grid.connect().await;
    client.authenticate(grid.initiator(&grid.alice, Delegate::No)).await;
    client.say("FEAT").await;
    assert!(!client.read().await, "it was answered: {}", client.text);
}

#[tokio::test]
async fn a_wrapped_line_is_taken_once() {
    let grid = Grid::new();
    let mut client = grid.connect().await;
    let mut wrapped = client.authenticate(grid.initiator(&grid.alice, Delegate::No)).await;
    let wire = wrapped.sealed("NOOP\r\n");
    wrapped.client.stream.write_all(&wire).await.unwrap();
    assert!(wrapped.reply().await.starts_with("200 "));
    wrapped.client.stream.write_all(&wire).await.unwrap();
    assert!(!client.read().await, "it was answered: {}", client.text);
}

#[tokio::test]
async fn a_certificate_of_a_strange_authority_is_named_and_another_login_may_follow() {
    let (grid, other) = (Grid::new(), Pki::new().unwrap());
    let stranger = other.person("mallory").unwrap();
    let mut client = grid.connect().await;
    client.say("AUTH GSSAPI").await;
    client.expect("334 ").await;
    let mut initiator = grid.initiator(&stranger, Delegate::Limited);
    let mut token = initiator.start().unwrap();
    let refusal = loop {
        client.say(&format!("ADAT {}", base64::encode(&token))).await;
        let line = client.line().await;
        let Some(answer) = line.strip_prefix("335 ADAT=") else {
            client.text = format!("{line}\r\n{}", client.text);
            break client.refusal().await;
        };
        let answer = base64::decode(answer.as_bytes(), 1 << 20).unwrap();
        match initiator.step(&answer, now(), 3600).unwrap() {
            Initiated::Continue(next) | Initiated::Last(next) => token = next,
        }
    };
    assert!(refusal.contains("/O=Grid/CN=mallory"), "{refusal}");
    let mut wrapped = client.authenticate(grid.initiator(&grid.alice, Delegate::No)).await;
    wrapped.say("NOOP").await;
    assert!(wrapped.reply().await.starts_with("200 "));
}

#[tokio::test]
async fn nobody_becomes_root() {
    let grid = Grid::new();
    let mallory = grid.pki.person("mallory").unwrap();
    let mut client = grid.connect().await;
    let mut wrapped = client.authenticate(grid.initiator(&mallory, Delegate::No)).await;
    wrapped.say("USER :globus-mapping:").await;
    wrapped.reply().await;
    wrapped.say("PASS dummy").await;
    assert!(wrapped.reply().await.starts_with("530"));
}

#[tokio::test]
async fn tokens_of_the_wrong_moment_and_rubbish_end_the_exchange_only() {
    let grid = Grid::new();
    let mut client = grid.connect().await;
    client.say("ADAT AAAA").await;
    client.expect("503 ").await;
    for rubbish in [&b"rubbish"[..], &[0x16, 3, 1, 255, 255], &[0; 4096]] {
        client.say("AUTH GSSAPI").await;
        client.expect("334 ").await;
        client.say(&format!("ADAT {}", base64::encode(rubbish))).await;
        client.refusal().await;
    }
    let mut wrapped = client.authenticate(grid.initiator(&grid.alice, Delegate::Full)).await;
    wrapped.say("NOOP").await;
    assert!(wrapped.reply().await.starts_with("200 "));
}

/// Says AUTH and takes the first steps of an exchange; the tokens that the client has sent.
async fn begin(client: &mut Client, initiator: &mut GsiInitiator, most: usize) -> Vec<String> {
    client.say("AUTH GSSAPI").await;
    client.expect("334 ").await;
    let (mut sent, mut token) = (Vec::new(), initiator.start().unwrap());
    for _ in 0..most {
        sent.push(base64::encode(&token));
        client.say(&format!("ADAT {}", base64::encode(&token))).await;
        let line = client.line().await;
        let Some(answer) = line.strip_prefix("335 ADAT=") else { break };
        let answer = base64::decode(answer.as_bytes(), 1 << 20).unwrap();
        match initiator.step(&answer, now(), 3600).unwrap() {
            Initiated::Continue(next) | Initiated::Last(next) => token = next,
        }
    }
    sent
}

#[tokio::test]
async fn a_recorded_login_proves_nothing_again() {
    let grid = Grid::new();
    let mut client = grid.connect().await;
    let recorded = begin(&mut client, &mut grid.initiator(&grid.alice, Delegate::No), 9).await;
    assert!(recorded.len() >= 2, "{} tokens", recorded.len());
    let mut thief = grid.connect().await;
    thief.say("AUTH GSSAPI").await;
    thief.expect("334 ").await;
    for token in &recorded {
        thief.say(&format!("ADAT {token}")).await;
        let line = thief.line().await;
        assert!(!line.starts_with("235"), "{line}");
        if !line.starts_with("335") {
            assert!(line.starts_with("53"), "{line}");
            break;
        }
    }
    thief.text.clear();
    // Another may use the connection, honestly.
    let mut honest = grid.connect().await;
    let mut wrapped = honest.authenticate(grid.initiator(&grid.alice, Delegate::No)).await;
    wrapped.say("NOOP").await;
    assert!(wrapped.reply().await.starts_with("200 "));
}

#[tokio::test]
async fn who_vanishes_at_any_flight_of_an_exchange_leaves_nothing_behind() {
    let grid = Grid::new();
    for flights in 0..4 {
        let mut client = grid.connect().await;
        begin(&mut client, &mut grid.initiator(&grid.alice, Delegate::Limited), flights).await;
        let Client { stream, served, .. } = client;
        drop(stream);
        timeout(PATIENCE, served).await.expect("the connection is not let go").unwrap();
    }
    let mut client = grid.connect().await;
    let mut wrapped = client.authenticate(grid.initiator(&grid.alice, Delegate::No)).await;
    wrapped.say("NOOP").await;
    assert!(wrapped.reply().await.starts_with("200 "));
}

#[tokio::test]
async fn no_second_exchange_begins_inside_the_first_nor_behind_it() {
    let grid = Grid::new();
    let mut client = grid.connect().await;
    begin(&mut client, &mut grid.initiator(&grid.alice, Delegate::No), 1).await;
    client.say("AUTH GSSAPI").await;
    client.refusal().await;
    client.say("ADAT AAAA").await;
    client.refusal().await;
    let mut wrapped = client.authenticate(grid.initiator(&grid.alice, Delegate::No)).await;
    wrapped.say("AUTH GSSAPI").await;
    let again = wrapped.reply().await;
    assert!(again.starts_with('5'), "{again}");
    wrapped.say("NOOP").await;
    assert!(wrapped.reply().await.starts_with("200 "));
}

#[tokio::test]
async fn tokens_without_end_are_not_taken_for_ever() {
    let grid = Grid::new();
    let mut client = grid.connect().await;
    client.say("AUTH GSSAPI").await;
    client.expect("334 ").await;
    // Records of a handshake that never say anything: each is short and none is the last.
    let mut replies = 0;
    for _ in 0..100 {
        client.say(&format!("ADAT {}", base64::encode(&[0x16, 3, 1, 0, 1, 1]))).await;
        let line = client.line().await;
        if line.starts_with("335") {
            replies += 1;
            continue;
        }
        break;
    }
    assert!(replies < 100, "an exchange without end");
}

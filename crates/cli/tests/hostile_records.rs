//! TLS whose client is no library: a second handshake in TLS 1.2, changes of keys without end in TLS 1.3, and records that nobody needs,
//! on control and on data connections of a running server. Each ends in time, with a word about it, and others are served.

mod support;

use std::net::TcpStream;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use openssl::ssl::SslVersion;
use support::account;
use support::control::{Control, Reply, block, header};
use support::dtn::PATIENCE;
use support::scene::{Scene, grid_config};
use support::secured::Secured;
use whimbrel_testkit::pki::{Member, Pki};
use whimbrel_testkit::records::{ALERT, ByHand, DATA};
use whimbrel_trust::OwnChain;

const EOF: u8 = 0x40;
const EOD: u8 = 0x08;

/// `no_renegotiation` (RFC 5246 §7.2.2).
const NO_RENEGOTIATION: u8 = 100;

const VERSIONS: [SslVersion; 2] = [SslVersion::TLS1_2, SslVersion::TLS1_3];

/// More than any honest client sends without a word, and more than a socket's buffers hold.
const FLOOD: usize = 400_000;

struct Grid {
    pki: Pki,
    host: Member,
    alice: Member,
}

static GRID: LazyLock<Grid> = LazyLock::new(|| {
    let pki = Pki::new().expect("an authority");
    let (host, alice) = (pki.host(&["localhost"]).expect("a host"), pki.person("alice").expect("a person"));
    pki.gridmap(&[("alice", &account())]).expect("a map");
    Grid { pki, host, alice }
});

fn scene(settings: &str) -> Scene {
    let authorities = GRID.pki.certificates();
    let config = grid_config(&GRID.host.file, &authorities, &authorities.with_file_name("grid-mapfile"));
    Scene::open(&format!("{settings}\n{config}"))
}

/// An anonymous login inside TLS made by hand.
fn control(scene: &Scene, version: SslVersion) -> ByHand {
    let mut control = Control::open(scene.addr());
    control.ask_for(234, "AUTH TLS");
    let mut hand = ByHand::connect(control.into_stream(), version, None).expect("a handshake");
    assert!(hand.ask("USER anonymous").expect("a reply").starts_with("331"));
    assert!(hand.ask("PASS x@").expect("a reply").starts_with("230"));
    hand
}

/// Sends the same kind of record over and over until so many bytes went or the other side has closed; whether it has.
fn flood(hand: &mut ByHand, bytes: usize, mut record: impl FnMut(&mut ByHand) -> Vec<u8>) -> bool {
    let (mut sent, until) = (0, Instant::now() + PATIENCE);
    while sent < bytes {
        assert!(Instant::now() < until, "nobody takes it, and nobody ends it");
        let several: Vec<u8> = (0..64).flat_map(|_| record(hand)).collect();
        if hand.send(&several).is_err() {
            return true;
        }
        sent += several.len();
    }
    false
}

/// Everything up to the end of the connection, as replies; it has to end.
fn rest(hand: &mut ByHand) -> Vec<String> {
    let mut replies = Vec::new();
    loop {
        match hand.reply() {
            Ok(reply) => replies.push(reply),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("it goes on: {replies:?}"),
            Err(_) => return replies,
        }
    }
}

#[test]
fn a_second_handshake_on_a_control_connection_is_declined_and_the_session_goes_on() {
    let scene = scene("");
    let mut hand = control(&scene, SslVersion::TLS1_2);
    for _ in 0..3 {
        let hello = hand.hello_again();
        hand.send(&hello).expect("taken");
        assert_eq!(
            hand.record().expect("an answer"),
            (ALERT, vec![1, NO_RENEGOTIATION]),
            "a warning, no server's hello"
        );
        assert!(hand.ask("SIZE /file").expect("a reply").starts_with("213 300000"));
    }
    // Without end it is no question any more.
    let before = scene.server.metric("handshakes_failed_total");
    flood(&mut hand, FLOOD, ByHand::hello_again);
    let mut alerts = 0;
    while let Ok((kind, _)) = hand.record() {
        alerts += usize::from(kind == ALERT);
    }
    assert!(alerts < 5_000, "{alerts} answers");
    assert_eq!(scene.server.metric("handshakes_failed_total"), before + 1);
    scene.server.wait_for_log(&["control connection closed", "TLS messages without end"]);
    scene.assert_log_is_plain();
    scene.assert_untouched();
    scene.assert_serves_others();
}

#[test]
fn keys_of_a_control_connection_may_change_but_not_for_ever() {
    let scene = scene("");
    let mut hand = control(&scene, SslVersion::TLS1_3);
    for asks in [false, true].into_iter().cycle().take(200) {
        let change = hand.change_keys(asks);
        hand.send(&change).expect("taken");
        assert!(hand.ask("NOOP").expect("a reply").starts_with("200"));
    }
    let memory = scene.server.daemon.pss_bytes();
    flood(&mut hand, FLOOD, |hand| hand.change_keys(true));
    let said = rest(&mut hand);
    assert!(said.iter().all(|reply| reply.starts_with("421")), "{said:?}");
    scene.server.wait_for_log(&["control connection closed", "TLS messages without end"]);
    let grown = scene.server.daemon.pss_bytes().saturating_sub(memory);
    assert!(grown < 16 << 20, "{grown} bytes more");
    scene.assert_log_is_plain();
    scene.assert_untouched();
    scene.assert_serves_others();
}

/// Data connections of alice, whose control connection is GSI's.
struct Alice<'a> {
    scene: &'a Scene,
    own: OwnChain,
    inside: Secured,
}

impl<'a> Alice<'a> {
    fn new(scene: &'a Scene, level: &str) -> Self {
        let own = GRID.alice.own.clone();
        let mut inside = Secured::gsi(scene.addr(), &own).unwrap_or_else(|reply| panic!("{}", reply.text));
        assert_eq!(inside.login().expect("a reply").code, 230);
        for line in ["TYPE I", "MODE E", "PBSZ 1048576", &format!("PROT {level}")] {
            inside.ask_for(200, line);
        }
        Self { scene, own, inside }
    }

    /// A data connection on which the server waits for a file.
    fn store(&mut self, name: &str, version: SslVersion) -> ByHand {
        let data = self.inside.passive();
        self.inside.ask_for(150, &format!("STOR {name}"));
        let stream = TcpStream::connect(data).expect("it listens");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket takes a timeout");
        stream.set_write_timeout(Some(PATIENCE)).expect("a socket takes a timeout");
        ByHand::connect(stream, version, Some(&self.own)).expect("a handshake")
    }

    /// The transfer ends badly, with this in its reply, and the session goes on.
    #[track_caller]
    fn assert_broken_off(&mut self, why: &str) -> Reply {
        let reply = self.inside.last_reply();
        assert!((400..600).contains(&reply.code), "{}", reply.text);
        assert!(reply.text.contains(why), "{}", reply.text);
        self.inside.ask_for(200, "NOOP");
        self.scene.assert_calms_down();
        reply
    }

    /// A data connection on which nothing but TLS comes is ended, for this reason, and nothing is stored.
    #[track_caller]
    fn assert_flood_ends(&mut self, version: SslVersion, why: &str) {
        let mut hand = self.store("/free/flooded", version);
        let closed = match version {
            SslVersion::TLS1_2 => flood(&mut hand, 64 << 20, ByHand::hello_again),
            _ => flood(&mut hand, 64 << 20, |hand| hand.change_keys(true)),
        };
        assert!(closed, "{version:?}: all of it was taken");
        let reply = self.assert_broken_off(why);
        println!("{version:?}: {}", reply.text.trim_end());
        assert!(!self.scene.path("root/free/flooded").exists());
    }
}

fn whole(hand: &mut ByHand) {
    let bytes = [&block(0, 0, b"genuine")[..], &header(EOF | EOD, 0, 1)].concat();
    let record = hand.seal(DATA, &bytes);
    hand.send(&record).expect("taken");
}

#[test]
fn data_connections_take_what_is_odd_and_honest() {
    let scene = scene("");
    let mut alice = Alice::new(&scene, "P");
    for version in VERSIONS {
        let mut hand = alice.store("/free/bystander", version);
        for number in 0..10 {
            let odd = match version {
                SslVersion::TLS1_2 if number < 3 => hand.hello_again(),
                SslVersion::TLS1_2 => Vec::new(),
                _ => hand.change_keys(number % 2 == 0),
            };
            hand.send(&odd).expect("taken");
        }
        whole(&mut hand);
        assert_eq!(alice.inside.last_reply().code, 226, "{version:?}");
        assert_eq!(std::fs::read(scene.path("root/free/bystander")).expect("stored"), b"genuine");
        scene.assert_calms_down();
    }
    scene.assert_untouched();
}

#[test]
fn data_connections_that_say_nothing_without_end_are_ended_and_nothing_is_stored() {
    // So long the right one is waited for.
    let scene = scene("connect_timeout = 2");
    let memory = scene.server.daemon.pss_bytes();
    let mut alice = Alice::new(&scene, "P");
    for version in VERSIONS {
        alice.assert_flood_ends(version, "without data");
    }
    let grown = scene.server.daemon.pss_bytes().saturating_sub(memory);
    assert!(grown < 32 << 20, "{grown} bytes more");
    scene.server.wait_for_log(&["operation failed", "without data"]);
    scene.assert_log_is_plain();
    scene.assert_serves_others();
}

/// Behind the handshake of PROT C comes one byte inside TLS, then everything is clear: until then it is TLS that is waited for.
#[test]
fn connections_that_are_to_turn_clear_are_ended_as_well() {
    let scene = scene("connect_timeout = 2");
    let mut alice = Alice::new(&scene, "C");
    for version in VERSIONS {
        // Whichever comes first: too many of them, or the end of the time that a connection may take.
        alice.assert_flood_ends(version, "the last that came was turned away: ");
    }
    scene.assert_log_is_plain();
    scene.assert_untouched();
    scene.assert_serves_others();
}

#[test]
fn a_flood_on_a_data_connection_does_not_outlive_its_session() {
    let scene = scene("");
    let mut alice = Alice::new(&scene, "P");
    let mut hand = alice.store("/free/flooded", SslVersion::TLS1_3);
    drop(alice);
    let began = Instant::now();
    assert!(flood(&mut hand, usize::MAX, |hand| hand.change_keys(false)), "it goes on for ever");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    scene.assert_calms_down();
    scene.assert_serves_others();
}

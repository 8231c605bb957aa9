//! Logins with grid certificates: the tokens of ADAT, and what is handed on in them.

use std::sync::{Arc, OnceLock};

use openssl::pkey::{PKey, Private};
use openssl::ssl::SslVersion;
use openssl::x509::X509;
use whimbrel_proto::timeval::Timestamp;
use whimbrel_proto::x509::{Certificate, Kind, Policy};
use whimbrel_trust::gsi::acceptor::Accepted;
use whimbrel_trust::gsi::initiator::Initiated;
use whimbrel_trust::gsi::{Anchors, Delegate, Expected, GsiAcceptor, GsiInitiator, GsiJudge, KeyPool, Trusted};
use whimbrel_trust::make::{KeyKind, Life, ProxyKind, own_proxy};
use whimbrel_trust::tls::{ClientTls, Plain, Progress, ServerTls, TlsMachine};
use whimbrel_trust::{OwnChain, Peer, credential};

use super::input::Input;

/// Most tokens of one side: an exchange has four, and each costs a fuzzer time.
const MOST_TOKENS: usize = 8;

/// A grid whose keys are known, so that inputs can hold what was signed with them.
pub(super) struct Grid {
    pub(super) host: OwnChain,
    pub(super) alice: OwnChain,
    /// The key that a server asks rights for.
    pub(super) asked: PKey<Private>,
    judge: Arc<GsiJudge>,
    /// Who may hand on less than Alice, or nothing: a limited proxy, one below which there may be none, and an authority.
    pub(super) others: Vec<OwnChain>,
}

impl Grid {
    /// The one there is.
    pub(super) fn get() -> &'static Self {
        static GRID: OnceLock<Grid> = OnceLock::new();
        GRID.get_or_init(Self::read)
    }

    fn read() -> Self {
        let chain = |pem: &[u8]| credential::from_pem(pem).expect("the file is a credential");
        let authority = X509::from_pem(include_bytes!("seeds/grid-ca.pem")).expect("the file is a certificate");
        let anchors = Anchors::default().and(vec![authority.clone()]).expect("an authority");
        let alice = chain(include_bytes!("seeds/grid-alice.pem"));
        let last = ProxyKind { path_length: Some(0), ..ProxyKind::rfc(Policy::InheritAll) };
        let others = vec![
            chain(include_bytes!("seeds/grid-proxy.pem")),
            own_proxy(&alice, KeyKind::P256, &last, Life::of(NOW, LIFE)).expect("a proxy"),
            OwnChain { certificate: authority, key: alice.key.clone(), chain: Vec::new() },
        ];
        Self {
            others,
            alice,
            host: chain(include_bytes!("seeds/grid-host.pem")),
            asked: PKey::private_key_from_pem(include_bytes!("seeds/grid-asked.pem")).expect("the file is a key"),
            judge: Arc::new(GsiJudge::new(Trusted::Fixed(Arc::new(anchors)), Expected::Anybody)),
        }
    }

    /// Both ends of a handshake that has not begun: the server's, then the client's.
    fn machines(&self, version: SslVersion) -> (TlsMachine, TlsMachine) {
        let server = ServerTls::gsi(&self.host, self.judge.clone()).and_then(|tls| tls.connection());
        let client = ClientTls::new(self.judge.clone(), Some(&self.alice)).and_then(|tls| tls.connection("localhost"));
        let (mut server, mut client) = (server.expect("a server"), client.expect("a client"));
        server.set_max_proto_version(Some(version)).expect("a known version");
        client.set_max_proto_version(Some(version)).expect("a known version");
        (TlsMachine::over(server, true).expect("a machine"), TlsMachine::over(client, false).expect("a machine"))
    }

    fn acceptor(&self, machine: TlsMachine) -> GsiAcceptor {
        GsiAcceptor::over(machine, Arc::new(KeyPool::of(vec![self.asked.clone()])))
    }

    /// The client as the server knows it.
    pub(super) fn peer(&self) -> Peer {
        Peer {
            subject: ALICE.into(),
            leaf: self.alice.certificate.clone(),
            chain: self.alice.chain.clone(),
            limited: false,
            until: NOW,
            vo: Vec::new(),
        }
    }
}

/// Who logs in.
const ALICE: &str = "/O=Grid/CN=alice";

/// When: within the life of the grid's certificates.
pub(super) const NOW: Timestamp = Timestamp { secs: 1_795_300_000, nanos: 0 };

/// What is handed on lives so long, seconds.
const LIFE: i64 = 600;

/// GSI logins: nobody is taken for somebody else, nothing is handed on that the client did not give, and what has failed stays so.
///
/// The first byte chooses: bit 0 TLS 1.3, bits 1 and 2 what the client hands on, bits 3 and 4 whether both ends are real and their
/// tokens are changed on the way, or one end is a stranger who says other things in a right handshake.
pub fn adat(data: &[u8]) {
    let mut input = Input::new(data);
    let choices = input.byte();
    let version = if choices & 1 == 0 { SslVersion::TLS1_2 } else { SslVersion::TLS1_3 };
    let delegate = [Delegate::No, Delegate::Limited, Delegate::Full, Delegate::No][usize::from(choices >> 1 & 3)];
    match choices >> 3 & 3 {
        0 | 1 => changed_on_the_way(version, delegate, &mut input),
        2 => strange_client(version, &mut input),
        _ => strange_server(version, delegate, &mut input),
    }
}

/// Both ends are ours; each token is changed as the input says, or not.
fn changed_on_the_way(version: SslVersion, delegate: Delegate, input: &mut Input<'_>) {
    let grid = Grid::get();
    let (server, client) = grid.machines(version);
    let mut acceptor = grid.acceptor(server);
    let mut initiator = GsiInitiator::over(client, grid.alice.clone(), delegate);
    let mut sent = vec![initiator.start().expect("a client begins")];
    let (mut intact, mut last) = (true, false);
    for _ in 0..MOST_TOKENS {
        let token = changed(&sent, input);
        intact &= Some(&token) == sent.last();
        let answer = match acceptor.step(&token, NOW) {
            Ok(Accepted::Continue(answer)) => answer,
            Ok(Accepted::Established { peer, delegated }) => {
                assert!(last || !intact, "the client has more to say");
                check_login(&peer, delegated.as_deref(), delegate);
                if intact {
                    check_line(acceptor.into_tls(), initiator.into_tls());
                }
                return;
            }
            Err(fault) => {
                assert!(!intact, "{fault}");
                assert!(acceptor.step(&token, NOW).is_err());
                // The reason reaches the client, behind a whole flight where that was said before; but taken for a token it
                // is never the last one.
                let alert = acceptor.alert().unwrap_or_default();
                assert!(!matches!(initiator.step(&alert, NOW, LIFE), Ok(Initiated::Last(_))));
                return;
            }
        };
        sent.push(answer);
        let token = changed(&sent, input);
        intact &= Some(&token) == sent.last();
        match initiator.step(&token, NOW, LIFE) {
            Ok(Initiated::Continue(token)) => sent.push(token),
            Ok(Initiated::Last(token)) => {
                last = true;
                sent.push(token);
            }
            Err(fault) => {
                assert!(!intact, "{fault}");
                assert!(initiator.step(&token, NOW, LIFE).is_err());
                let _what_the_server_is_told = initiator.alert();
                return;
            }
        }
    }
    panic!("an exchange has few tokens");
}

/// The last token, or what a hand in between makes of it.
fn changed(sent: &[Vec<u8>], input: &mut Input<'_>) -> Vec<u8> {
    let mut token = sent.last().cloned().unwrap_or_default();
    let place = |input: &mut Input<'_>, len: usize| input.number() as usize % len.max(1);
    match input.byte() {
        1 if !token.is_empty() => {
            let at = place(input, token.len());
            let flipped = input.byte().max(1);
            token[at] ^= flipped;
        }
        2 => token.truncate(place(input, token.len())),
        3 => {
            let len = input.byte();
            token = input.take(len.into()).to_vec();
        }
        4 => {
            let len = input.byte();
            token.extend_from_slice(input.take(len.into()));
        }
        5 => token = sent[place(input, sent.len())].clone(),
        _ => {}
    }
    token
}

fn check_login(peer: &Peer, delegated: Option<&OwnChain>, delegate: Delegate) {
    assert_eq!((peer.subject.as_str(), peer.limited), (ALICE, false));
    assert_eq!(delegated.is_some(), delegate != Delegate::No, "no more is handed on than was given");
    let Some(own) = delegated else { return };
    let limited = check_handed_on(own);
    assert_eq!(limited, delegate == Delegate::Limited);
}

/// The keys of the login protect what follows it.
fn check_line(mut server: TlsMachine, mut client: TlsMachine) {
    client.write(b"PWD\r\n").expect("a record");
    server.feed(&client.transmit().expect("a record"));
    assert_eq!(heard(&mut server), b"PWD\r\n");
}

/// A credential that was handed on is Alice's, and a proxy for the key that was asked for; says whether it is a limited one.
pub(super) fn check_handed_on(own: &OwnChain) -> bool {
    let grid = Grid::get();
    assert!(own.key.public_eq(&grid.asked) && own.certificate.public_key().is_ok_and(|key| key.public_eq(&own.key)));
    assert_eq!(own.chain.first().map(|above| above.to_der().ok()), Some(grid.alice.certificate.to_der().ok()));
    let der = own.certificate.to_der().expect("it was read");
    let read = Certificate::parse(&der).expect("it was judged");
    assert!(read.subject.one_line().starts_with(ALICE));
    match read.kind() {
        Ok(Kind::Proxy { policy, .. }) => policy == Policy::Limited,
        other => panic!("{other:?} was handed on"),
    }
}

/// A client of a right handshake says anything after it.
fn strange_client(version: SslVersion, input: &mut Input<'_>) {
    let grid = Grid::get();
    let (server, mut client) = grid.machines(version);
    let mut acceptor = grid.acceptor(server);
    let mut established = false;
    for _ in 0..2 * MOST_TOKENS {
        let Some(token) = strangers_token(&mut client, &mut established, input) else { return };
        match acceptor.step(&token, NOW) {
            Ok(Accepted::Continue(answer)) => client.feed(&answer),
            Ok(Accepted::Established { peer, delegated }) => {
                assert_eq!(peer.subject, ALICE);
                if let Some(own) = delegated {
                    check_handed_on(&own);
                }
                return;
            }
            Err(fault) => {
                assert!(established && !fault.detail.is_empty(), "{fault}");
                return assert!(acceptor.step(b"", NOW).is_err(), "what has failed stays so");
            }
        }
    }
    panic!("an exchange has few tokens");
}

/// A server of a right handshake says anything after it.
fn strange_server(version: SslVersion, delegate: Delegate, input: &mut Input<'_>) {
    let grid = Grid::get();
    let (mut server, client) = grid.machines(version);
    let mut initiator = GsiInitiator::over(client, grid.alice.clone(), delegate);
    server.feed(&initiator.start().expect("a client begins"));
    let mut established = false;
    for _ in 0..2 * MOST_TOKENS {
        let Some(token) = strangers_token(&mut server, &mut established, input) else { return };
        match initiator.step(&token, NOW, LIFE) {
            Ok(Initiated::Continue(token)) => server.feed(&token),
            Ok(Initiated::Last(token)) => {
                server.feed(&token);
                return check_last(&mut server, delegate);
            }
            Err(fault) => {
                assert!(established && !fault.detail.is_empty(), "{fault}");
                return assert!(initiator.step(b"", NOW, LIFE).is_err(), "what has failed stays so");
            }
        }
    }
    panic!("an exchange has few tokens");
}

/// The next token of a stranger: of the handshake while that lasts, then what the input says; none once it says nothing more.
fn strangers_token(machine: &mut TlsMachine, established: &mut bool, input: &mut Input<'_>) -> Option<Vec<u8>> {
    if !*established {
        *established = machine.drive().expect("nobody disturbs the handshake") == Progress::Established;
    }
    // The last flight of the handshake goes first.
    let flight = machine.transmit();
    if flight.is_some() || !*established {
        return flight;
    }
    if input.is_empty() {
        return None;
    }
    heard(machine);
    say(machine, input);
    machine.transmit()
}

fn heard(machine: &mut TlsMachine) -> Vec<u8> {
    let mut plain = Vec::new();
    while matches!(machine.read(&mut plain), Ok(Plain::Bytes(_))) {}
    plain
}

/// What a client says last is that it hands on nothing, or a proxy that it is asked for.
fn check_last(server: &mut TlsMachine, delegate: Delegate) {
    let said = heard(server);
    if delegate == Delegate::No {
        return assert_eq!(said, b"0");
    }
    let proxy = Certificate::parse(&said).expect("a certificate");
    let Ok(Kind::Proxy { policy, .. }) = proxy.kind() else { panic!("{:?} was handed on", proxy.kind()) };
    assert_eq!(policy == Policy::Limited, delegate == Delegate::Limited);
}

/// Records of one token: how many, then length and content of each.
fn say(machine: &mut TlsMachine, input: &mut Input<'_>) {
    for _ in 0..=input.byte() & 3 {
        let len = input.number() as usize & 0xfff;
        machine.write(input.take(len)).expect("a record");
    }
}

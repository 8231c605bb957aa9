//! TLS machines against each other: handshakes, refusals, agreed keys, resumption, ends.

#![allow(clippy::unwrap_used, reason = "a test that fails ends there")]

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use openssl::x509::X509Ref;
use whimbrel_engine::fault::FaultCode;
use whimbrel_proto::protect::{CommandOpener, CommandSealer, ProtectError, ReplyOpener, ReplySealer, base64};
use whimbrel_proto::timeval::Timestamp;
use whimbrel_trust::make::{self, KeyKind, Life, Purpose};
use whimbrel_trust::tls::{
    ClientTls, Clients, ControlTls, Incoming, Opener, Plain, Progress, Sealer, ServerTls, Sessions, Stands, TicketKeys,
    TlsMachine, keep_secrets, take_over,
};
use whimbrel_trust::{OwnChain, Peer, PeerJudge, TrustFault, psk};

fn own(name: &str) -> OwnChain {
    let key = make::key(KeyKind::P256).unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let life = Life::of(Timestamp { secs: now as i64, nanos: 0 }, 3600);
    let certificate = make::self_signed(&format!("/CN={name}"), &key, &Purpose::Person, life).unwrap();
    OwnChain { certificate, key, chain: Vec::new() }
}

/// Believes certificates with one name.
struct Named(&'static str);

impl PeerJudge for Named {
    fn judge(&self, leaf: &X509Ref, others: &[&X509Ref]) -> Result<Peer, TrustFault> {
        assert!(others.is_empty());
        let subject = format!("{:?}", leaf.subject_name());
        if !subject.contains(self.0) {
            return Err(TrustFault::new(FaultCode::PeerIdentity, format!("expected {}", self.0)).about(subject));
        }
        let until = Timestamp { secs: 0, nanos: 0 };
        Ok(Peer { subject, leaf: leaf.to_owned(), chain: Vec::new(), limited: false, until, vo: Vec::new() })
    }
}

fn named(name: &'static str) -> Arc<dyn PeerJudge> {
    Arc::new(Named(name))
}

fn pair(server: &ServerTls, client: &ClientTls) -> (TlsMachine, TlsMachine) {
    (TlsMachine::server(server).unwrap(), TlsMachine::client(client, "dtn.example.org").unwrap())
}

/// Carries bytes in pieces of `cut` until both are through or one fails; gives each side's word.
fn meet(server: &mut TlsMachine, client: &mut TlsMachine, cut: usize) -> [Result<Progress, TrustFault>; 2] {
    let mut words = [server.drive(), client.drive()];
    loop {
        let (to_server, to_client) = (client.transmit(), server.transmit());
        if to_server.is_none() && to_client.is_none() {
            return words;
        }
        for piece in to_server.unwrap_or_default().chunks(cut) {
            server.feed(piece);
            words[0] = words[0].clone().and_then(|_| server.drive());
        }
        for piece in to_client.unwrap_or_default().chunks(cut) {
            client.feed(piece);
            words[1] = words[1].clone().and_then(|_| client.drive());
        }
        // An alert that came is read where the handshake is over on this side.
        for (word, side) in words.iter_mut().zip([&mut *server, &mut *client]) {
            if *word == Ok(Progress::Established)
                && let Err(fault) = side.read(&mut Vec::new())
            {
                *word = Err(fault);
            }
        }
    }
}

fn established(server: &ServerTls, client: &ClientTls) -> (TlsMachine, TlsMachine) {
    let (mut server, mut client) = pair(server, client);
    let words = meet(&mut server, &mut client, usize::MAX);
    assert_eq!(words, [Ok(Progress::Established), Ok(Progress::Established)]);
    (server, client)
}

fn read_all(machine: &mut TlsMachine) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Plain::Bytes(_) = machine.read(&mut bytes).unwrap() {}
    bytes
}

#[test]
fn a_handshake_survives_every_cut_and_carries_bytes_both_ways() {
    let server = ServerTls::new(&own("host"), &Clients::Welcome(named("alice")), None).unwrap();
    let client = ClientTls::new(named("host"), Some(&own("alice"))).unwrap();
    for cut in [1, 2, 3, 5, 7, 64, 1000] {
        let (mut server, mut client) = pair(&server, &client);
        assert_eq!(meet(&mut server, &mut client, cut), [Ok(Progress::Established), Ok(Progress::Established)]);
        assert!(server.peer().unwrap().subject.contains("alice"));
        assert!(client.peer().unwrap().subject.contains("host"));
        let sent: Vec<u8> = (0..100_000_u32).flat_map(u32::to_le_bytes).collect();
        client.write(&sent).unwrap();
        server.write(b"heard").unwrap();
        let mut got = Vec::new();
        for piece in client.transmit().unwrap().chunks(cut * 101) {
            server.feed(piece);
            got.extend(read_all(&mut server));
        }
        assert_eq!(got, sent);
        client.feed(&server.transmit().unwrap());
        assert_eq!(read_all(&mut client), b"heard");
    }
}

#[test]
fn who_is_not_believed_is_named_here_and_told_there() {
    let server = ServerTls::new(&own("mallory"), &Clients::Unasked, None).unwrap();
    let client = ClientTls::new(named("host"), None).unwrap();
    let (mut server, mut client) = pair(&server, &client);
    let [there, here] = meet(&mut server, &mut client, usize::MAX);
    let here = here.unwrap_err();
    assert_eq!((here.code, here.detail.as_str()), (FaultCode::PeerIdentity, "expected host"));
    assert!(here.subject.contains("mallory"));
    assert!(there.unwrap_err().detail.starts_with("the other side refused"), "the alert arrived");
    assert!(client.peer().is_none());
}

#[test]
fn a_server_that_demands_a_certificate_says_so_to_who_has_none() {
    let server = ServerTls::gsi(&own("host"), named("alice")).unwrap();
    let client = ClientTls::new(named("host"), None).unwrap();
    let (mut server, mut client) = pair(&server, &client);
    let [there, here] = meet(&mut server, &mut client, usize::MAX);
    assert!(there.is_err());
    let here = here.unwrap_err();
    assert_eq!(here.code, FaultCode::CredentialMissing, "{here}");
    assert!(here.detail.contains("it asks for a certificate"), "{here}");
}

#[test]
fn gsi_servers_have_nothing_to_say_after_the_handshake() {
    let server = ServerTls::gsi(&own("host"), named("alice")).unwrap();
    let client = ClientTls::new(named("host"), Some(&own("alice"))).unwrap();
    let (mut server, mut client) = pair(&server, &client);
    server.drive().unwrap();
    client.drive().unwrap();
    server.feed(&client.transmit().unwrap());
    server.drive().unwrap();
    client.feed(&server.transmit().unwrap());
    assert_eq!(client.drive(), Ok(Progress::Established));
    server.feed(&client.transmit().unwrap());
    assert_eq!(server.drive(), Ok(Progress::Established));
    assert_eq!(server.pending_output(), 0, "a ticket would be taken for a token of the exchange");
}

#[test]
fn bytes_that_are_no_tls_are_called_that() {
    let client = ClientTls::new(named("host"), None).unwrap();
    let mut client = TlsMachine::client(&client, "host").unwrap();
    client.drive().unwrap();
    client.feed(b"220 host FTP server ready.\r\n");
    let fault = client.drive().unwrap_err();
    assert!(fault.detail.contains("does not speak TLS"), "{fault}");
}

#[test]
fn an_agreed_key_is_enough_and_nothing_else_is() {
    let (right, wrong) = (psk::from_nonce(b"0123456789abcdef"), psk::from_nonce(b"0123456789abcdeF"));
    let server = ServerTls::agreed(&right).unwrap();
    let (mut server_end, mut client_end) = established(&server, &ClientTls::agreed(&right).unwrap());
    client_end.write(b"block").unwrap();
    server_end.feed(&client_end.transmit().unwrap());
    assert_eq!(read_all(&mut server_end), b"block");
    assert!(server_end.peer().is_none());

    let strangers = [
        ("another key", ClientTls::agreed(&wrong).unwrap()),
        ("no key", ClientTls::new(named("host"), None).unwrap()),
        ("a certificate", ClientTls::new(named("host"), Some(&own("alice"))).unwrap()),
    ];
    for (what, stranger) in strangers {
        let (mut server, mut client) = pair(&server, &stranger);
        let words = meet(&mut server, &mut client, usize::MAX);
        assert!(words.iter().all(Result::is_err), "{what}: {words:?}");
    }
    // Nor does a client with a key believe a certificate.
    let impostor = ServerTls::new(&own("host"), &Clients::Unasked, None).unwrap();
    let (mut server, mut client) = pair(&impostor, &ClientTls::agreed(&right).unwrap());
    assert!(meet(&mut server, &mut client, usize::MAX).iter().all(Result::is_err));
}

#[test]
fn a_close_is_told_from_a_cut() {
    let server = ServerTls::new(&own("host"), &Clients::Unasked, Some(&TicketKeys::new().unwrap())).unwrap();
    let client = ClientTls::new(named("host"), None).unwrap();
    let (mut server_end, mut client_end) = established(&server, &client);
    client_end.write(b"all").unwrap();
    client_end.close();
    server_end.feed(&client_end.transmit().unwrap());
    assert_eq!(read_all(&mut server_end), b"all");
    assert_eq!(server_end.read(&mut Vec::new()), Ok(Plain::Closed));

    let (mut server_end, _client_end) = established(&server, &client);
    server_end.feed_end();
    let fault = server_end.read(&mut Vec::new()).unwrap_err();
    assert_eq!(fault.code, FaultCode::EncryptionFailed);
}

#[test]
fn a_changed_byte_ends_the_connection() {
    let server = ServerTls::new(&own("host"), &Clients::Unasked, None).unwrap();
    let (mut server, mut client) = established(&server, &ClientTls::new(named("host"), None).unwrap());
    client.write(b"a record of some bytes").unwrap();
    let mut record = client.transmit().unwrap();
    let last = record.len() - 1;
    record[last] ^= 1;
    server.feed(&record);
    let mut plain = Vec::new();
    assert!(server.read(&mut plain).is_err());
    assert!(plain.is_empty());
}

/// Both ends of a GSI server's connection: TLS stands, and every line is a token from now on.
fn wrapped() -> (TlsMachine, TlsMachine) {
    let server = ServerTls::gsi(&own("host"), named("alice")).unwrap();
    established(&server, &ClientTls::new(named("host"), Some(&own("alice"))).unwrap())
}

#[test]
fn wrapped_lines_go_both_ways_and_one_longer_than_a_record_is_one_token() {
    let (mut server, mut client) = wrapped();
    let (mut commands, mut opener) = (CommandSealer::default(), CommandOpener::new(64 << 10));
    let long = format!("STOR /{}\r\n", "x".repeat(40_000));
    let (mut wire, mut plain) = (Vec::new(), Vec::new());
    commands.feed(&mut client, format!("PWD\r\n{long}").as_bytes(), &mut wire).unwrap();
    assert_eq!(wire.iter().filter(|&&b| b == b'\n').count(), 2);
    for piece in wire.chunks(1000) {
        opener.feed(&mut server, piece, &mut plain).unwrap();
    }
    assert!(plain == format!("PWD\r\n{long}").into_bytes());

    let (mut replies, mut opener) = (ReplySealer::default(), ReplyOpener::new(1000));
    let (mut wire, mut plain) = (Vec::new(), Vec::new());
    replies.feed(&mut server, b"211-Extensions\r\n SIZE\r\n211 End\r\n", &mut wire).unwrap();
    assert!(wire.starts_with(b"632-") && wire.windows(5).any(|text| text == b"\n632 "));
    opener.feed(&mut client, &wire, &mut plain).unwrap();
    assert_eq!(plain, b"211-Extensions\r\n SIZE\r\n211 End\r\n");
}

#[test]
fn wrapped_lines_that_are_repeated_changed_or_cut_are_refused() {
    let line = |client: &mut TlsMachine| {
        let mut wire = Vec::new();
        CommandSealer::default().feed(client, b"DELE /a\r\n", &mut wire).unwrap();
        wire
    };
    let open = |server: &mut TlsMachine, wire: &[u8]| {
        let mut plain = Vec::new();
        CommandOpener::new(1000).feed(server, wire, &mut plain).map(|()| plain)
    };
    let token = |line: &[u8]| base64::decode(line[4..].trim_ascii_end(), 1000).unwrap();
    let enc = |token: &[u8]| format!("ENC {}\r\n", base64::encode(token)).into_bytes();
    type Spoil = fn(Vec<u8>) -> Vec<u8>;
    let spoils: [(&str, Spoil); 4] = [
        ("changed", |mut token| {
            token[10] ^= 1;
            token
        }),
        ("cut", |mut token| {
            token.truncate(token.len() - 1);
            token
        }),
        ("empty", |_| Vec::new()),
        ("followed by half a record", |token| [token, vec![23, 3, 3, 0, 30, 1]].concat()),
    ];
    for (what, spoil) in spoils {
        let (mut server, mut client) = wrapped();
        let wire = enc(&spoil(token(&line(&mut client))));
        assert!(matches!(open(&mut server, &wire), Err(ProtectError::Fault(_))), "{what}");
    }
    let (mut server, mut client) = wrapped();
    let wire = line(&mut client);
    assert_eq!(open(&mut server, &wire).unwrap(), b"DELE /a\r\n");
    assert!(open(&mut server, &wire).is_err(), "repeated");
    let (mut server, mut client) = wrapped();
    let first = line(&mut client);
    assert!(open(&mut server, &line(&mut client)).is_err(), "{} bytes left out", first.len());
}

#[test]
fn a_server_gives_further_tickets_with_what_it_says_next() {
    let keys = TicketKeys::new().unwrap();
    let server = ServerTls::new(&own("host"), &Clients::Unasked, Some(&keys)).unwrap();
    let (mut server, mut client) = established(&server, &ClientTls::new(named("host"), None).unwrap());
    assert_eq!(read_all(&mut client), b"");
    let session = |client: &TlsMachine| client.ssl().session().unwrap().to_der().unwrap();
    let before = session(&client);
    assert!(server.give_ticket());
    server.write(b"226 \r\n").unwrap();
    client.feed(&server.transmit().unwrap());
    assert_eq!(read_all(&mut client), b"226 \r\n");
    assert!(session(&client) != before);
    assert!(!client.give_ticket(), "clients have none to give");
    let untold = ServerTls::new(&own("host"), &Clients::Unasked, None).unwrap();
    assert!(!TlsMachine::server(&untold).unwrap().give_ticket(), "nobody is there yet");
}

#[test]
fn ticket_keys_cross_process_borders_whole_or_not_at_all() {
    let keys = TicketKeys::new().unwrap();
    assert_eq!(TicketKeys::from_bytes(keys.as_bytes()).unwrap().as_bytes(), keys.as_bytes());
    assert!(TicketKeys::from_bytes(&keys.as_bytes()[1..]).is_none());
    assert_eq!(format!("{keys:?}"), "TicketKeys(..)");
}

/// A control connection that stands, with a client that believes `host` or continues one of its sessions.
struct Control {
    server: TlsMachine,
    client: TlsMachine,
    stands: Option<Stands>,
    keys: TicketKeys,
}

fn control(tls: &ControlTls, client: &ClientTls, sessions: &Arc<Sessions>) -> Control {
    let (ssl, keys) = tls.connection().unwrap();
    let mut server = TlsMachine::over(ssl, true).unwrap();
    let offered = sessions.take();
    let ssl = client.connection_to("dtn.example.org", named("host"), offered.as_ref()).unwrap();
    let mut client = TlsMachine::over(ssl, false).unwrap();
    client.keep_sessions(sessions.clone());
    let words = meet(&mut server, &mut client, usize::MAX);
    assert_eq!(words, [Ok(Progress::Established), Ok(Progress::Established)]);
    server.refill_tickets();
    server.write(b"234 \r\n").unwrap();
    client.feed(&server.transmit().unwrap());
    assert_eq!(read_all(&mut client), b"234 \r\n");
    let stands = tls.stands(&server, &keys);
    Control { server, client, stands, keys }
}

#[test]
fn further_control_connections_resume_a_session() {
    let tls = ControlTls::new(&own("host"), &Clients::Unasked).unwrap();
    let (client, sessions) = (ClientTls::of_many(None).unwrap(), Arc::<Sessions>::default());
    let first = control(&tls, &client, &sessions);
    assert!(!first.server.resumed() && first.stands.is_some());
    assert_eq!(sessions.count(), 8);
    let second = control(&tls, &client, &sessions);
    assert!(second.server.resumed() && second.client.resumed());
    assert!(second.client.peer().is_none(), "nobody was asked for a certificate");
    assert_eq!(sessions.count(), 15, "each is offered once, and whoever resumes gets as many as others");
    // A data connection belongs to the one control connection whose keys open its ticket.
    let data = |keys: &TicketKeys| {
        let config = ServerTls::resuming(keys).unwrap();
        let mut server = TlsMachine::server(&config).unwrap();
        let newest = sessions.take();
        let ssl = client.connection_to("dtn.example.org", named("nobody"), newest.as_ref()).unwrap();
        let mut client = TlsMachine::over(ssl, false).unwrap();
        let _words = meet(&mut server, &mut client, usize::MAX);
        server.resumed()
    };
    assert!(data(&second.keys), "the newest tickets are those of the second connection");
    assert!(!data(&first.keys), "which do not fit the first");
    drop((first, second));
    assert!(control(&tls, &client, &sessions).server.resumed(), "they have just ended");
}

#[test]
fn sessions_of_who_showed_a_certificate_are_not_resumed() {
    let tls = ControlTls::new(&own("host"), &Clients::Welcome(named("alice"))).unwrap();
    let (alice, sessions) = (ClientTls::of_many(Some(&own("alice"))).unwrap(), Arc::<Sessions>::default());
    let first = control(&tls, &alice, &sessions);
    assert!(first.server.peer().is_some() && first.stands.is_none());
    let again = control(&tls, &alice, &sessions);
    assert!(!again.server.resumed() && again.server.peer().is_some(), "asked again");
    // Who shows none may, and is nobody then, too.
    let (nobody, sessions) = (ClientTls::of_many(None).unwrap(), Arc::<Sessions>::default());
    let first = control(&tls, &nobody, &sessions);
    let again = control(&tls, &nobody, &sessions);
    assert!(first.stands.is_some() && again.server.resumed() && again.server.peer().is_none());
}

#[test]
fn another_server_or_another_context_costs_a_full_handshake() {
    let sessions = Arc::<Sessions>::default();
    let [one, two] = [(); 2].map(|()| ControlTls::new(&own("host"), &Clients::Unasked).unwrap());
    let [mine, other] = [(); 2].map(|()| ClientTls::of_many(None).unwrap());
    let first = control(&one, &mine, &sessions);
    assert!(!control(&two, &mine, &sessions).server.resumed(), "it does not know the keys");
    sessions.clear();
    let second = control(&one, &mine, &sessions);
    assert!(!second.server.resumed() && sessions.count() == 8);
    assert!(!control(&one, &other, &sessions).server.resumed());
    drop(first);
}

#[test]
fn a_client_keeps_few_of_a_flood_of_tickets() {
    let tls = ControlTls::new(&own("host"), &Clients::Unasked).unwrap();
    let (client, sessions) = (ClientTls::of_many(None).unwrap(), Arc::<Sessions>::default());
    let mut flooded = control(&tls, &client, &sessions);
    for _ in 0..500 {
        assert!(flooded.server.give_ticket());
        flooded.server.write(b"").unwrap();
        flooded.server.write(b"x").unwrap();
        flooded.client.feed(&flooded.server.transmit().unwrap());
        assert_eq!(read_all(&mut flooded.client), b"x");
    }
    assert_eq!(sessions.count(), 16);
    assert!(control(&tls, &client, &sessions).server.resumed(), "the newest is one of them");
}

#[test]
fn a_client_whose_connections_bring_no_judge_believes_nobody() {
    let server = ServerTls::new(&own("host"), &Clients::Unasked, None).unwrap();
    let (mut server, mut client) = pair(&server, &ClientTls::of_many(None).unwrap());
    let [_, client] = meet(&mut server, &mut client, usize::MAX);
    assert!(client.is_err());
}

/// A GSI server's connection whose client makes its records by hand.
fn by_hand() -> (TlsMachine, Sealer, Opener) {
    let server = ServerTls::gsi(&own("host"), named("alice")).unwrap();
    let mut ssl = ClientTls::new(named("host"), Some(&own("alice"))).unwrap().connection("host").unwrap();
    keep_secrets(&mut ssl);
    let (mut server, mut client) = (TlsMachine::server(&server).unwrap(), TlsMachine::over(ssl, false).unwrap());
    let words = meet(&mut server, &mut client, usize::MAX);
    assert_eq!(words, [Ok(Progress::Established), Ok(Progress::Established)]);
    let (sealer, opener) = take_over(client.ssl()).expect("TLS 1.3");
    (server, sealer, opener)
}

fn record(sealer: &mut Sealer, plain: &[u8], token: &mut Vec<u8>) {
    let from = sealer.begin(token).unwrap();
    token.extend_from_slice(plain);
    sealer.end(from, token).unwrap();
}

/// A protected line as it goes over the wire, and what comes of it.
fn open_token(server: &mut TlsMachine, token: &[u8]) -> Result<Vec<u8>, ProtectError<TrustFault>> {
    let (mut plain, line) = (Vec::new(), format!("ENC {}\r\n", base64::encode(token)));
    CommandOpener::new(256 << 10).feed(server, line.as_bytes(), &mut plain).map(|()| plain)
}

#[test]
fn keys_may_change_inside_protected_lines() {
    let (mut server, mut sealer, _) = by_hand();
    for line in [b"PWD\r\n".as_slice(), b"NOOP\r\n", b"QUIT\r\n"] {
        let mut token = Vec::new();
        sealer.renew(&mut token).unwrap();
        record(&mut sealer, line, &mut token);
        // Also behind the message.
        sealer.renew(&mut token).unwrap();
        assert_eq!(open_token(&mut server, &token).unwrap(), line);
    }
    let mut alone = Vec::new();
    sealer.renew(&mut alone).unwrap();
    let fault = open_token(&mut server, &alone).unwrap_err().to_string();
    assert!(fault.contains("no message"), "{fault}");
}

#[test]
fn a_change_of_keys_that_is_asked_for_comes_with_the_next_reply() {
    const ASKS: &[u8] = &[24, 0, 0, 1, 1];
    let (mut server, mut sealer, mut opener) = by_hand();
    let mut token = Vec::new();
    record(&mut sealer, b"PWD\r\n", &mut token);
    sealer.whole(22, ASKS, &mut token).unwrap();
    assert_eq!(open_token(&mut server, &token).unwrap(), b"PWD\r\n");
    let mut wire = Vec::new();
    ReplySealer::default().feed(&mut server, b"257 \"/\"\r\n", &mut wire).unwrap();
    let mut reply = base64::decode(wire[4..].trim_ascii_end(), 1000).unwrap();
    let Incoming::Aside(used) = opener.open(&mut reply).unwrap() else { panic!("new keys come first") };
    let Incoming::Data { plain, .. } = opener.open(&mut reply[used..]).unwrap() else { panic!("a message") };
    assert_eq!(&reply[used..][plain], b"257 \"/\"\r\n");
}

#[test]
fn a_flood_of_changed_keys_in_a_line_ends_with_the_line() {
    let (mut server, mut sealer, _) = by_hand();
    let mut token = Vec::new();
    for _ in 0..1500 {
        sealer.renew(&mut token).unwrap();
    }
    record(&mut sealer, b"PWD\r\n", &mut token);
    // Whether it is taken is the library's choice; it costs no more than its bytes, and nothing is owed for it.
    if let Ok(plain) = open_token(&mut server, &token) {
        assert_eq!(plain, b"PWD\r\n");
        assert_eq!(server.pending_output(), 0);
        let mut token = Vec::new();
        record(&mut sealer, b"NOOP\r\n", &mut token);
        assert_eq!(open_token(&mut server, &token).unwrap(), b"NOOP\r\n");
    }
    let (mut server, mut sealer, _) = by_hand();
    let mut long = Vec::new();
    while long.len() < 400 << 10 {
        sealer.renew(&mut long).unwrap();
    }
    record(&mut sealer, b"PWD\r\n", &mut long);
    assert!(open_token(&mut server, &long).is_err(), "longer than a line may be");
}

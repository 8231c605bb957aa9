//! AUTH and what follows it, as dialogues.

use super::*;
use crate::client::SessionState;
use crate::client::secure::{DataProtection, Exchange, auth_gssapi, auth_tls};
use crate::command::{Dcau, Dcsc, Protection, Secret};
use crate::protect::base64::Base64Error;

impl Client {
    /// Bytes of the server; what was not taken of them.
    fn left<'a>(&mut self, text: &'a str) -> &'a str {
        &text[self.machine.handle_bytes(self.now, text.as_bytes())..]
    }

    fn codes(&mut self) -> Vec<u16> {
        let code = |event| match event {
            ClientEvent::Completed { reply, .. } => reply.code,
            other => panic!("{other:?}"),
        };
        self.events().into_iter().map(code).collect()
    }
}

fn login() -> [Order; 2] {
    let password = Command::Pass(Secret(b"p".to_vec()));
    [Order::new(Command::User(b"u".to_vec())), Order::new(password)]
}

#[test]
fn what_is_given_behind_auth_tls_waits_until_tls_stands() {
    let mut client = Client::open();
    let orders = [vec![auth_tls()], login().to_vec()].concat();
    client.give(&orders);
    assert_eq!(client.sent(), "AUTH TLS\r\n");
    assert_eq!(client.left("234-Begin\r\n234 now\r\n"), "");
    assert_eq!((client.codes(), client.sent().as_str()), (vec![234], ""));
    client.machine.secured(client.now);
    assert_eq!(client.sent(), "USER u\r\nPASS p\r\n");
    client.hear("331 more\r\n230 in\r\n");
    assert_eq!(client.codes(), [331, 230]);
}

// The client's side of CVE-2011-0411: replies that were sent in clear are not taken for those of the protected connection.
#[test]
fn replies_behind_the_234_are_left_to_the_driver() {
    let mut client = Client::open();
    client.give(&[auth_tls()]);
    client.give(&login());
    assert_eq!(client.left("234 now\r\n331 injected\r\n230 injected\r\n"), "331 injected\r\n230 injected\r\n");
    assert_eq!(client.left("230 injected\r\n"), "230 injected\r\n", "nor anything else before TLS stands");
    assert_eq!(client.codes(), [234]);
    assert!(!client.machine.is_closed());
}

#[test]
fn a_refused_auth_withholds_what_was_given_with_it_and_nothing_else() {
    let mut client = Client::open();
    client.give(&[vec![auth_tls()], login().to_vec()].concat());
    client.send(Command::Feat);
    assert_eq!(client.left("504 no\r\n"), "");
    let events = client.events();
    assert!(matches!(
        &events[..],
        [ClientEvent::Completed { reply, .. }, ClientEvent::Withheld { .. }, ClientEvent::Withheld { .. }] if reply.code == 504
    ));
    assert_eq!(client.sent(), "AUTH TLS\r\nFEAT\r\n");
}

#[test]
fn auth_is_a_gate_however_it_is_given() {
    let mut client = Client::open();
    client.send(Command::Auth(b"tls".to_vec()));
    client.give(&login());
    assert_eq!(client.sent(), "AUTH tls\r\n", "a password must not leave in clear behind it");
}

#[test]
fn a_gssapi_login_begins_with_one_segment_and_its_tokens_overtake_what_waits() {
    let mut client = Client::open();
    client.give(&[auth_gssapi(b"hello").to_vec(), login().to_vec()].concat());
    assert_eq!(client.sent(), "AUTH GSSAPI\r\nADAT aGVsbG8=\r\n");
    assert_eq!(client.machine.adat(client.now, b"early"), Err(TokenError::OutOfTurn));
    assert_eq!(client.left("334 go on\r\n335 ADAT=AP8=\r\n"), "");
    let replies = client.events();
    let ClientEvent::Completed { reply, .. } = &replies[1] else { panic!("{replies:?}") };
    assert_eq!(Exchange::of(reply), Ok(Exchange::GoesOn(vec![0, 255])));
    assert_eq!(client.sent(), "", "the login waits for the end of the exchange");
    assert_eq!(client.machine.adat(client.now, b""), Err(TokenError::Empty));
    client.machine.adat(client.now, b"more").unwrap();
    assert_eq!(client.sent(), "ADAT bW9yZQ==\r\n");
    assert_eq!(client.machine.adat(client.now, b"twice"), Err(TokenError::OutOfTurn));
    assert_eq!(client.left("235 ADAT=AQ==\r\n632 AAAA\r\n"), "632 AAAA\r\n", "what is wrapped is not read as it is");
    assert_eq!((client.codes(), client.sent().as_str()), (vec![235], ""));
    client.machine.secured(client.now);
    assert_eq!(client.sent(), "USER u\r\nPASS p\r\n");
}

#[test]
fn a_refused_exchange_withholds_the_login() {
    for replies in ["504 unknown\r\n503 no AUTH\r\n", "334 go on\r\n530-Expired\r\n530 End.\r\n"] {
        let mut client = Client::open();
        client.give(&[auth_gssapi(b"hello").to_vec(), login().to_vec()].concat());
        client.hear(replies);
        let withheld = client.events().iter().filter(|event| matches!(event, ClientEvent::Withheld { .. })).count();
        assert_eq!((withheld, client.machine.outstanding()), (2, 0), "{replies}");
    }
    let mut client = Client::open();
    client.give(&[auth_gssapi(b"hello").to_vec(), login().to_vec()].concat());
    client.hear("334 go on\r\n335 ADAT=\r\n");
    client.machine.adat(client.now, b"x").unwrap();
    client.hear("530 no\r\n");
    assert!(matches!(client.events().last(), Some(ClientEvent::Withheld { .. })), "later, too");
    assert_eq!(client.sent().matches("USER").count(), 0);
}

#[test]
fn only_replies_to_adat_ask_for_a_token() {
    let mut client = Client::open();
    client.give(&auth_gssapi(b"hello"));
    client.hear("335 ADAT=\r\n");
    assert_eq!(client.machine.adat(client.now, b"x"), Err(TokenError::OutOfTurn), "that answered AUTH");
    assert_eq!(client.left("235 in\r\n220 x\r\n"), "220 x\r\n");
    let mut client = Client::open();
    client.give(&auth_gssapi(b"hello"));
    assert_eq!(client.left("235 in\r\n503 no\r\n"), "", "nor does a 235 to AUTH mean anything");
}

#[test]
fn a_handshake_has_the_time_of_a_reply() {
    let mut client = Client::open();
    client.give(&[auth_tls()]);
    client.hear("234 now\r\n");
    client.events();
    client.wait(600);
    assert_eq!(client.failure(), ProtocolError::StallTimeout);
    assert_eq!(client.machine.adat(client.now, b"x"), Err(TokenError::OutOfTurn));
    let mut client = Client::open();
    client.give(&[auth_tls()]);
    client.hear("234 now\r\n");
    client.machine.handle_eof(client.now);
    assert_eq!(client.failure(), ProtocolError::Eof);
}

#[test]
fn replies_to_adat_are_read() {
    let exchange = |code, text| Exchange::of(&Reply::line(code, text));
    assert_eq!(exchange(235, "ADAT=AQ=="), Ok(Exchange::Over(Some(vec![1]))));
    assert_eq!(exchange(235, "GSSAPI Authentication successful."), Ok(Exchange::Over(None)));
    assert_eq!(exchange(335, "ADAT="), Ok(Exchange::GoesOn(Vec::new())));
    assert_eq!(exchange(335, "no token"), Ok(Exchange::GoesOn(Vec::new())));
    assert_eq!(exchange(530, "no"), Ok(Exchange::Refused));
    assert_eq!(exchange(335, "ADAT=%"), Err(Base64Error::Malformed));
}

fn protection(credential: Option<Dcsc>, peer: Option<Dcau>, level: Protection) -> DataProtection {
    DataProtection { credential, peer, level }
}

#[test]
fn what_protects_data_connections_is_sent_once_in_the_order_servers_want() {
    let mut client = Client::open();
    client.give(&login());
    client.hear("331 more\r\n230 in\r\n");
    client.sent();
    let lines = |client: &mut Client, wanted: &DataProtection| {
        let orders = wanted.orders(client.machine.session());
        assert!(orders.iter().rev().skip(1).all(|order| !order.gate) && orders.last().is_none_or(|order| order.gate));
        if !orders.is_empty() {
            client.give(&orders);
            client.hear(&"200 ok\r\n".repeat(orders.len()));
        }
        client.sent().split_terminator("\r\n").map(str::to_owned).collect::<Vec<_>>()
    };
    let clear = protection(None, None, Protection::Clear);
    assert_eq!(lines(&mut client, &clear), [""; 0], "every login begins so");
    let private = protection(None, Some(Dcau::None), Protection::Private);
    assert_eq!(lines(&mut client, &private), ["DCAU N", "PBSZ 0", "PROT P"]);
    assert_eq!(lines(&mut client, &private), [""; 0]);
    let pem = Dcsc::Pem(Secret(b"cGVt".to_vec()));
    let with = protection(Some(pem), Some(Dcau::Myself), Protection::Private);
    assert_eq!(lines(&mut client, &with), ["DCSC P cGVt", "DCAU A"]);
    assert_eq!(lines(&mut client, &clear), ["PROT C"], "PBSZ is known by now");
    assert!(!format!("{:?}", client.machine.session()).contains("cGVt"));
    client.give(&login());
    client.hear("331 more\r\n230 in\r\n");
    client.sent();
    assert_eq!(lines(&mut client, &private), ["DCAU N", "PBSZ 0", "PROT P"], "another login begins anew");
}

#[test]
fn a_refused_level_is_not_in_force_and_stops_what_was_given_with_it() {
    let mut client = Client::open();
    let wanted = protection(None, None, Protection::Private);
    let mut orders = wanted.orders(&SessionState::new());
    orders.push(Order::new(Command::Pasv));
    client.give(&orders);
    client.hear("200 PBSZ=0\r\n536 no\r\n");
    assert!(matches!(client.events().last(), Some(ClientEvent::Withheld { .. })));
    assert_eq!(client.sent(), "PBSZ 0\r\nPROT P\r\n");
    assert_eq!(wanted.orders(client.machine.session()).len(), 1);
}

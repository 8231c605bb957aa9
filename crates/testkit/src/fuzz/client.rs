//! The client's control machine against any server.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use whimbrel_proto::client::secure::{DataProtection, Exchange, auth_gssapi, auth_tls};
use whimbrel_proto::client::{ClientConfig, ClientControl, ClientEvent, Order, SendError, Token, TokenError};
use whimbrel_proto::command::{Command, Dcau, Dcsc, Protection, Secret, Site};
use whimbrel_proto::reply::{Reply, ReplyClass};

use super::input::pieces;

/// Commands in flight at once.
const WINDOW: usize = 4;

/// Every command gets one end, in order, whatever the server says; after the end nothing more happens.
///
/// Lines of the input are the server's, except: `!S` send this command and all that wait for it, `!G` with it a gate, `!L` with it one
/// whose reply is streamed, `!R` bytes without line end, `!T` time passes by this many seconds, `!D` the deadline passes, `!C` silence
/// counts from here, `!K` the next token of an exchange, `!O` what protects the connection stands, `!H` AUTH TLS, `!I` AUTH GSSAPI with a
/// first token, `!X` what data connections are to be protected with, bits of a byte, `!E` the server closes. With a first line `!A` commands go out ahead of the greeting.
pub fn client_machine(data: &[u8]) {
    let mut run = Run::new(data.starts_with(b"!A\n"));
    for line in data.split(|&b| b == b'\n') {
        match line {
            [b'!', b'A', ..] => {}
            [b'!', b'S', command @ ..] => run.send(command),
            [b'!', b'G', command @ ..] => run.given.push(Order { gate: true, ..order(command) }),
            [b'!', b'L', command @ ..] => run.given.push(Order { stream: true, ..order(command) }),
            [b'!', b'R', bytes @ ..] => run.hear(bytes),
            [b'!', b'K', token @ ..] => run.adat(token),
            [b'!', b'H', ..] => run.give(vec![auth_tls()]),
            [b'!', b'I', token @ ..] => run.give(auth_gssapi(token).to_vec()),
            [b'!', b'X', choices @ ..] => run.protect(choices.first().copied().unwrap_or(0)),
            [b'!', b'O', ..] => {
                run.machine.secured(run.now);
                run.hear(b"");
            }
            [b'!', b'T', seconds @ ..] => run.wait(Duration::from_secs(seconds.first().map_or(1, |&b| u64::from(b)))),
            [b'!', b'D', ..] => run.deadline(),
            [b'!', b'C', ..] => run.machine.watch(run.now),
            [b'!', b'E', ..] => run.machine.handle_eof(run.now),
            _ => pieces(&[line, b"\r\n"].concat()).for_each(|piece| run.hear(piece)),
        }
        run.check();
    }
    run.machine.handle_eof(run.now);
    run.check();
    assert!(run.failed && run.outstanding.is_empty(), "every command has an end");
}

/// AUTH, except where a token may follow it at once, and ADAT are gates however they are given.
fn order(line: &[u8]) -> Order {
    let command = Command::parse(line).unwrap_or_else(|_| Command::Raw(line.to_vec()));
    let gate = match &command {
        Command::Auth(mechanism) => !mechanism.eq_ignore_ascii_case(b"GSSAPI"),
        Command::Adat(_) => true,
        _ => false,
    };
    Order { gate, ..Order::new(command) }
}

/// What a reply to ADAT says goes by its code, and only a token that cannot be read is no answer.
fn check_exchange(reply: &Reply) {
    match Exchange::of(reply) {
        Ok(Exchange::GoesOn(_)) => assert_eq!(reply.code, 335),
        Ok(Exchange::Over(_)) => assert_eq!(reply.code, 235),
        Ok(Exchange::Refused) => assert!(!matches!(reply.code, 235 | 335)),
        Err(_) => assert!(reply.last_text().starts_with(b"ADAT=")),
    }
}

/// A command without an end.
struct Given {
    token: Token,
    /// First of those it was given with.
    group: Token,
    order: Order,
}

struct Run {
    now: Instant,
    machine: ClientControl,
    ahead: bool,
    /// To be given with the next command.
    given: Vec<Order>,
    /// Oldest first.
    outstanding: VecDeque<Given>,
    /// The gate that was refused last, while what was given with it is withheld.
    refused: Option<Token>,
    /// The group of an ADAT that got a 335, until the next one.
    exchange: Option<Token>,
    /// Bytes that were not taken: they stand behind the end of clear text.
    untaken: Vec<u8>,
    /// Lines that left the machine.
    sent: usize,
    /// Commands with a final reply.
    completed: usize,
    greeted: bool,
    failed: bool,
}

impl Run {
    fn new(ahead: bool) -> Self {
        let now = Instant::now();
        let config = ClientConfig { window: WINDOW, ahead, ..ClientConfig::default() };
        Self {
            now,
            machine: ClientControl::new(now, config),
            ahead,
            given: Vec::new(),
            outstanding: VecDeque::new(),
            refused: None,
            exchange: None,
            untaken: Vec::new(),
            sent: 0,
            completed: 0,
            greeted: false,
            failed: false,
        }
    }

    fn send(&mut self, line: &[u8]) {
        let mut orders = std::mem::take(&mut self.given);
        orders.push(order(line));
        self.give(orders);
    }

    /// What is missing of a protection is asked for once, and the last of it is a gate.
    fn protect(&mut self, choices: u8) {
        let pick = |shift: u8| usize::from(choices >> shift & 3);
        let subject = || Dcau::Subject(b"/O=Grid/CN=alice".to_vec());
        let wanted = DataProtection {
            credential: [None, Some(Dcsc::Default), Some(Dcsc::Pem(Secret(b"cGVt".to_vec()))), None][pick(0)].clone(),
            peer: [None, Some(Dcau::None), Some(Dcau::Myself), Some(subject())][pick(2)].clone(),
            level: [Protection::Clear, Protection::Private, Protection::Safe, Protection::Confidential][pick(4)],
        };
        let orders = wanted.orders(self.machine.session());
        assert!(orders.iter().all(|order| self.machine.session().needs(&order.command)));
        assert_eq!(orders.iter().position(|order| order.gate), orders.len().checked_sub(1), "only the last is a gate");
        if !orders.is_empty() {
            self.give(orders);
            let again = wanted.orders(self.machine.session());
            assert!(self.failed || again.is_empty(), "what was sent counts as set: {again:?}");
        }
    }

    fn give(&mut self, orders: Vec<Order>) {
        let before = self.machine.outstanding();
        match self.machine.send(self.now, &orders) {
            Ok(group) => {
                assert!(!self.failed && self.outstanding.back().is_none_or(|last| last.token < group));
                let tokens = (group.0..).map(Token);
                self.outstanding.extend(tokens.zip(orders).map(|(token, order)| Given { token, group, order }));
            }
            Err(SendError::Closed) => assert!(self.failed),
            Err(SendError::Encode(_)) => assert!(!self.failed && self.machine.outstanding() == before, "all or none"),
        }
    }

    fn hear(&mut self, bytes: &[u8]) {
        self.untaken.extend_from_slice(bytes);
        let used = self.machine.handle_bytes(self.now, &self.untaken);
        self.untaken.drain(..used);
    }

    /// A token overtakes what waits for the end of the exchange.
    fn adat(&mut self, token: &[u8]) {
        match (self.machine.adat(self.now, token), self.exchange.take()) {
            (Ok(token), Some(group)) => {
                self.outstanding.push_front(Given { token, group, order: order(b"ADAT x") });
            }
            (Err(TokenError::OutOfTurn), None) => {}
            (Err(TokenError::Empty), group) if token.is_empty() => self.exchange = group,
            other => panic!("{other:?} to a token"),
        }
    }

    fn wait(&mut self, time: Duration) {
        self.now += time;
        self.machine.handle_timeout(self.now);
    }

    /// A deadline that is handled is gone.
    fn deadline(&mut self) {
        if let Some(deadline) = self.machine.poll_timeout() {
            self.now = self.now.max(deadline);
            self.machine.handle_timeout(self.now);
            assert!(self.machine.poll_timeout().is_none_or(|next| next > self.now), "no timer fires for ever");
        }
    }

    fn check(&mut self) {
        let bytes = self.machine.poll_transmit().unwrap_or_default();
        self.sent += bytes.iter().filter(|&&b| b == b'\n').count();
        assert!(bytes.is_empty() || self.ahead || self.greeted_or_greeting(), "nothing is sent before the greeting");
        while let Some(event) = self.machine.poll_event() {
            self.take(event);
        }
        assert_eq!(self.machine.outstanding(), self.outstanding.len());
        assert_eq!(self.machine.is_closed(), self.failed);
        assert!(!self.failed || (self.machine.poll_timeout().is_none() && self.machine.poll_transmit().is_none()));
        if !self.failed {
            let in_flight = self.sent - self.completed;
            assert!(in_flight <= WINDOW, "the window is kept");
            let mut passed = self.outstanding.iter().take(in_flight.saturating_sub(1));
            assert!(passed.all(|given| !given.order.gate), "nothing passes a gate");
        }
    }

    fn greeted_or_greeting(&mut self) -> bool {
        while !self.greeted {
            let Some(event) = self.machine.poll_event() else { return false };
            self.take(event);
        }
        true
    }

    fn take(&mut self, event: ClientEvent) {
        assert!(!self.failed, "nothing follows the end: {event:?}");
        if !matches!(event, ClientEvent::Withheld { .. }) {
            let left = self.outstanding.front().map(|front| front.group);
            assert!(
                self.refused.take().is_none_or(|group| left != Some(group)),
                "all behind a refused gate is withheld"
            );
        }
        match event {
            ClientEvent::Greeting(reply) => {
                assert!(!std::mem::replace(&mut self.greeted, true) && reply.is_success());
            }
            ClientEvent::Preliminary { token, reply } => {
                self.oldest(token);
                assert!(reply.class() == ReplyClass::Preliminary);
            }
            ClientEvent::Marker { token, .. } => drop(self.oldest(token)),
            ClientEvent::Lines { token, lines } => assert!(self.oldest(token).order.stream && !lines.is_empty()),
            ClientEvent::Completed { token, reply } => {
                assert!(reply.class() != ReplyClass::Preliminary && reply.code != 421);
                let order = self.oldest(token).order.clone();
                let front = self.outstanding.pop_front().expect("there is an oldest");
                assert!(!(order.stream && reply.is_success()) || reply.middle_lines().is_empty(), "lines come once");
                self.completed += 1;
                let token = matches!(order.command, Command::Adat(_));
                self.exchange = (token && reply.code == 335).then_some(front.group);
                self.refused = (order.gate && !reply.is_positive()).then_some(front.group);
                if token {
                    check_exchange(&reply);
                }
                self.is_known(&order.command, reply.is_success());
            }
            ClientEvent::Withheld { token } => {
                let group = self.oldest(token).group;
                assert_eq!(self.refused, Some(group), "only what was given with a refused gate is withheld");
                self.outstanding.pop_front();
            }
            ClientEvent::Failed { error, unanswered, unsent } => {
                assert!(!error.to_string().is_empty());
                let tokens: Vec<_> = self.outstanding.drain(..).map(|given| given.token).collect();
                assert_eq!([unanswered, unsent].concat(), tokens, "every command without a reply is named, in order");
                self.failed = true;
                self.exchange = None;
            }
        }
    }

    /// Whoever asks twice for what is in force, or not at all for what is not, loses time or data.
    fn is_known(&self, command: &Command, success: bool) {
        let session = self.machine.session();
        let later = !self.outstanding.is_empty();
        assert!(success || later || session.needs(command), "what was refused is not in force");
        assert!(!session.wants(command) || session.needs(command), "nothing is wished for that is in force");
        assert!(session.needs(&Command::Pasv), "a new data handle is always needed");
        match command {
            Command::Mode(mode) if success && !later => assert_eq!(session.mode(), *mode),
            Command::Site(Site::Leaves(spec)) if success && !later => assert_eq!(session.leaves(), spec.as_ref()),
            _ => {}
        }
    }

    fn oldest(&self, token: Token) -> &Given {
        let front = self.outstanding.front().filter(|oldest| self.greeted && oldest.token == token);
        front.expect("an event belongs to the oldest command")
    }
}

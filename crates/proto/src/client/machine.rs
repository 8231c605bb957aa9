//! The machine itself.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};

use super::secure::adat;
use super::session::{Setting, Settings, settings};
use super::{ClientConfig, ClientEvent, Order, ProtocolError, SessionState, Token};
use crate::command::{Command, EncodeError};
use crate::marker::Marker;
use crate::reply::{Reply, ReplyClass, ReplyParser};

/// Why commands were not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// One of them cannot be written.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The connection is over.
    #[error("the control connection is closed")]
    Closed,
}

/// Why a token was not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The server asks for none.
    #[error("the server does not ask for a token")]
    OutOfTurn,
    /// It has no bytes, which no mechanism sends and no line can say.
    #[error("the token is empty")]
    Empty,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Greeting,
    Open,
    Closed,
}

/// What a command begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Begins {
    Nothing,
    /// AUTH: with a 234, TLS.
    Tls,
    /// ADAT: with a 335 the next token's turn, with a 235 wrapped lines.
    Exchange,
}

/// A command without its final reply.
#[derive(Debug)]
struct Pending {
    token: Token,
    /// First of those it was given with.
    group: Token,
    gate: bool,
    stream: bool,
    /// With its reply the connection may change into another one.
    begins: Begins,
    /// What it leaves in force.
    sets: Settings,
}

/// What commands set that were given and have no final reply.
fn unanswered<'a>(
    in_flight: &'a VecDeque<Pending>,
    waiting: &'a VecDeque<(Pending, Bytes)>,
) -> impl Iterator<Item = &'a (Setting, Command)> + Clone {
    in_flight.iter().chain(waiting.iter().map(|(pending, _)| pending)).flat_map(|pending| &pending.sets)
}

/// One control connection seen from the client.
///
/// Bytes, commands and times go in; bytes, events and a deadline come out. Commands beyond the window or behind a gate wait. A reply
/// belongs to the oldest command without a final reply (RFC 959 §5.4); ABOR is answered in its turn like any other. Every command has
/// one end, in the order in which they were given: a final reply, that it is withheld, or the connection's failure.
#[derive(Debug)]
pub struct ClientControl {
    config: ClientConfig,
    phase: Phase,
    parser: ReplyParser,
    session: SessionState,
    waiting: VecDeque<(Pending, Bytes)>,
    in_flight: VecDeque<Pending>,
    /// The newest command in flight is a gate.
    gated: bool,
    /// The server waits for the next token of the exchange that this group began.
    exchange: Option<Token>,
    /// What comes next is no line of this machine until the driver says so.
    changing: bool,
    out: BytesMut,
    events: VecDeque<ClientEvent>,
    next_token: u64,
    /// Last byte from the server, or the moment from which a reply was due.
    heard: Instant,
}

impl ClientControl {
    /// A fresh connection that waits for its greeting.
    pub fn new(now: Instant, config: ClientConfig) -> Self {
        Self {
            config,
            phase: Phase::Greeting,
            parser: ReplyParser::default(),
            session: SessionState::new(),
            waiting: VecDeque::new(),
            in_flight: VecDeque::new(),
            gated: false,
            exchange: None,
            changing: false,
            out: BytesMut::new(),
            events: VecDeque::new(),
            next_token: 1,
            heard: now,
        }
    }

    /// Takes commands, all or none; each goes out as soon as greeting, window and gates let it. Returns the first one's token.
    ///
    /// # Errors
    /// [`SendError`]; nothing was taken then.
    pub fn send(&mut self, now: Instant, orders: &[Order]) -> Result<Token, SendError> {
        if self.phase == Phase::Closed {
            return Err(SendError::Closed);
        }
        let mut lines = Vec::with_capacity(orders.len());
        for order in orders {
            let mut line = Vec::new();
            order.command.encode(&mut line)?;
            lines.push(line);
        }
        let group = Token(self.next_token);
        for (order, line) in orders.iter().zip(lines) {
            self.session.sent(&order.command);
            let pending = self.pending(order, group);
            self.waiting.push_back((pending, line.into()));
        }
        self.pump(now);
        Ok(group)
    }

    /// The answer to a 335: the next token, which overtakes everything that waits for the end of the exchange.
    ///
    /// # Errors
    /// [`TokenError`]; nothing was sent.
    pub fn adat(&mut self, now: Instant, token: &[u8]) -> Result<Token, TokenError> {
        let group = self.exchange.ok_or(TokenError::OutOfTurn)?;
        let order = Order::new(adat(token));
        let mut line = Vec::new();
        order.command.encode(&mut line).map_err(|_| TokenError::Empty)?;
        self.exchange = None;
        let pending = self.pending(&order, group);
        let token = pending.token;
        self.heard = now;
        self.out.extend_from_slice(&line);
        self.in_flight.push_back(pending);
        Ok(token)
    }

    fn pending(&mut self, order: &Order, group: Token) -> Pending {
        let token = Token(self.next_token);
        self.next_token += 1;
        // Nothing may follow these before it is known over what; a first token may follow AUTH GSSAPI.
        let (begins, alone) = match &order.command {
            Command::Auth(mechanism) => (Begins::Tls, !mechanism.eq_ignore_ascii_case(b"GSSAPI")),
            Command::Adat(_) => (Begins::Exchange, true),
            _ => (Begins::Nothing, false),
        };
        let sets = settings(&order.command);
        Pending { token, group, gate: order.gate || alone, stream: order.stream, begins, sets }
    }

    /// Bytes from the server; how many were taken. All of them, except behind the 234 to AUTH or the 235 to ADAT, and until
    /// [`Self::secured`]: those are no replies, whatever they look like.
    pub fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) -> usize {
        if self.phase == Phase::Closed || bytes.is_empty() {
            return bytes.len();
        }
        let mut rest = bytes;
        while !rest.is_empty() && !self.changing && self.phase != Phase::Closed {
            self.heard = now;
            let (now_read, later) = rest.split_at(self.readable(rest));
            rest = later;
            self.read(now_read);
        }
        self.pass_on();
        self.pump(now);
        if self.phase == Phase::Closed { bytes.len() } else { bytes.len() - rest.len() }
    }

    /// One line where the reply to it may be the last one of this kind, else all.
    fn readable(&self, bytes: &[u8]) -> usize {
        let last = self.in_flight.iter().any(|pending| pending.begins != Begins::Nothing);
        let end = bytes.iter().position(|&b| b == b'\n').filter(|_| last);
        end.map_or(bytes.len(), |end| end + 1)
    }

    fn read(&mut self, bytes: &[u8]) {
        self.parser.feed(bytes);
        while self.phase != Phase::Closed {
            match self.parser.next_reply() {
                Some(Ok(reply)) => self.take_reply(reply),
                Some(Err(error)) => self.fail(error.into()),
                None => break,
            }
        }
    }

    /// TLS stands, or lines are wrapped from now on: what waits may go. Does nothing where neither was begun.
    pub fn secured(&mut self, now: Instant) {
        self.changing = false;
        self.heard = self.heard.max(now);
        self.pump(now);
    }

    /// The server closed its side.
    pub fn handle_eof(&mut self, _now: Instant) {
        let due = self.phase == Phase::Greeting || self.awaits_reply() || self.changing || self.parser.is_mid_reply();
        self.fail(if due { ProtocolError::Eof } else { ProtocolError::Ended });
    }

    /// A deadline passed; calling early does no harm.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_none_or(|deadline| now < deadline) {
            return;
        }
        self.fail(match self.phase {
            Phase::Greeting => ProtocolError::GreetingTimeout,
            Phase::Open | Phase::Closed => ProtocolError::StallTimeout,
        });
    }

    /// When [`Self::handle_timeout`] is due; a client that can wait longer for what it asked may leave it.
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.phase {
            Phase::Greeting => Some(self.heard + self.config.greeting_timeout),
            Phase::Open if self.awaits_reply() || self.changing => Some(self.heard + self.config.stall_timeout),
            Phase::Open | Phase::Closed => None,
        }
    }

    /// Silence counts from now on: before, nobody minded it.
    pub fn watch(&mut self, now: Instant) {
        self.heard = self.heard.max(now);
    }

    /// Changes the longest silence while a reply is due.
    pub fn set_stall_timeout(&mut self, timeout: Duration) {
        self.config.stall_timeout = timeout;
    }

    /// Bytes for the server: whole lines.
    pub fn poll_transmit(&mut self) -> Option<Bytes> {
        (!self.out.is_empty()).then(|| self.out.split().freeze())
    }

    /// What happened next.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.events.pop_front()
    }

    /// True once [`ClientEvent::Failed`] was queued.
    pub fn is_closed(&self) -> bool {
        self.phase == Phase::Closed
    }

    /// Commands without an end, waiting ones included.
    pub fn outstanding(&self) -> usize {
        self.in_flight.len() + self.waiting.len()
    }

    /// What is in force on the server, once it has carried out all that was sent.
    pub fn session(&self) -> &SessionState {
        &self.session
    }

    fn awaits_reply(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Sends waiting commands while nothing holds them.
    fn pump(&mut self, now: Instant) {
        let may = self.phase == Phase::Open || (self.phase == Phase::Greeting && self.config.ahead);
        while may && !self.gated && !self.changing && self.in_flight.len() < self.config.window.max(1) {
            let Some((pending, line)) = self.waiting.pop_front() else { break };
            if self.in_flight.is_empty() {
                self.heard = now;
            }
            self.out.extend_from_slice(&line);
            self.gated = pending.gate;
            self.in_flight.push_back(pending);
        }
    }

    fn take_reply(&mut self, reply: Reply) {
        match self.phase {
            Phase::Closed => {}
            Phase::Greeting => self.take_greeting(reply),
            // 421 may come at any time, in answer to a command or to none.
            Phase::Open if reply.code == 421 => self.fail(ProtocolError::ServiceClosing(reply)),
            Phase::Open if reply.class() == ReplyClass::Preliminary => self.take_preliminary(reply),
            Phase::Open => self.take_answer(reply),
        }
    }

    fn take_greeting(&mut self, reply: Reply) {
        match reply.class() {
            // RFC 959 §5.4: 120 "Service ready in nnn minutes" comes before the 220.
            ReplyClass::Preliminary => {}
            ReplyClass::Completion => {
                self.phase = Phase::Open;
                self.events.push_back(ClientEvent::Greeting(reply));
            }
            _ => self.fail(ProtocolError::Refused(reply)),
        }
    }

    /// Passed over where nothing is due: a marker that comes late ends nothing.
    fn take_preliminary(&mut self, mut reply: Reply) {
        let Some((token, stream)) = self.in_flight.front().map(|front| (front.token, front.stream)) else { return };
        if let Some(marker) = Marker::parse(&reply) {
            return self.events.push_back(ClientEvent::Marker { token, marker });
        }
        // The stock server sends a long listing as several of these.
        if stream && !reply.middle_lines().is_empty() {
            let last = reply.lines.len() - 1;
            let lines = reply.lines.drain(1..last).collect();
            self.events.push_back(ClientEvent::Lines { token, lines });
        }
        self.events.push_back(ClientEvent::Preliminary { token, reply });
    }

    fn take_answer(&mut self, mut reply: Reply) {
        let Some(front) = self.in_flight.pop_front() else {
            self.fail(ProtocolError::Unsolicited(reply));
            return;
        };
        let token = front.token;
        let later = unanswered(&self.in_flight, &self.waiting);
        self.session.completed(&front.sets, reply.is_success(), later);
        if front.stream && reply.is_success() && !reply.middle_lines().is_empty() {
            let last = reply.lines.len() - 1;
            let lines = reply.lines.drain(1..last).collect();
            self.events.push_back(ClientEvent::Lines { token, lines });
        }
        let refused = !reply.is_positive();
        self.changing = matches!((front.begins, reply.code), (Begins::Tls, 234) | (Begins::Exchange, 235));
        // The exchange goes on: the gate stays shut.
        let goes_on = (front.begins, reply.code) == (Begins::Exchange, 335);
        self.exchange = goes_on.then_some(front.group);
        self.events.push_back(ClientEvent::Completed { token, reply });
        if front.gate && !goes_on {
            self.open_gate(front.group, refused);
        }
    }

    /// What waited for the gate may go, but nothing that was given with it if it was refused.
    fn open_gate(&mut self, group: Token, refused: bool) {
        self.gated = false;
        // Tokens of a group follow each other, so this is all that is left of it.
        let rest = self.waiting.iter().take_while(|(next, _)| refused && next.group == group).count();
        let withheld: Vec<_> = self.waiting.drain(..rest).collect();
        for (pending, _) in withheld {
            self.session.withdrawn(&pending.sets, unanswered(&self.in_flight, &self.waiting));
            self.events.push_back(ClientEvent::Withheld { token: pending.token });
        }
    }

    /// Lines of a streamed reply that has begun.
    fn pass_on(&mut self) {
        if self.phase != Phase::Open {
            return;
        }
        if let Some(token) = self.in_flight.front().filter(|front| front.stream).map(|front| front.token) {
            let lines = self.parser.take_middle_lines();
            if !lines.is_empty() {
                self.events.push_back(ClientEvent::Lines { token, lines });
            }
        }
    }

    /// Ends the connection once.
    fn fail(&mut self, error: ProtocolError) {
        if self.phase == Phase::Closed {
            return;
        }
        self.phase = Phase::Closed;
        self.exchange = None;
        self.out.clear();
        let unanswered = self.in_flight.drain(..).map(|pending| pending.token).collect();
        let unsent = self.waiting.drain(..).map(|(pending, _)| pending.token).collect();
        self.events.push_back(ClientEvent::Failed { error, unanswered, unsent });
    }
}

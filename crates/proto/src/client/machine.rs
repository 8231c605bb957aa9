//! The machine itself.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::{Bytes, BytesMut};

use super::{ClientConfig, ClientEvent, ProtocolError, Token};
use crate::command::{Command, EncodeError};
use crate::marker::Marker;
use crate::reply::{Reply, ReplyClass, ReplyParser};

/// Why a command was not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// It cannot be written.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The connection is over.
    #[error("the control connection is closed")]
    Closed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Greeting,
    Open,
    Closed,
}

/// One control connection seen from the client.
///
/// Bytes, commands and times go in; bytes, events and a deadline come out. Commands beyond the window wait. A reply belongs to the oldest
/// command without a final reply (RFC 959 §5.4); ABOR is answered in its turn like any other.
#[derive(Debug)]
pub struct ClientControl {
    config: ClientConfig,
    phase: Phase,
    parser: ReplyParser,
    waiting: VecDeque<(Token, Bytes)>,
    in_flight: VecDeque<Token>,
    out: BytesMut,
    events: VecDeque<ClientEvent>,
    next_token: u64,
    /// Last byte from the server, or the moment from which a reply was due.
    heard: Instant,
    /// Last traffic in either direction.
    active: Instant,
    idle_told: bool,
}

impl ClientControl {
    /// A fresh connection that waits for its greeting.
    pub fn new(now: Instant, config: ClientConfig) -> Self {
        Self {
            config,
            phase: Phase::Greeting,
            parser: ReplyParser::default(),
            waiting: VecDeque::new(),
            in_flight: VecDeque::new(),
            out: BytesMut::new(),
            events: VecDeque::new(),
            next_token: 1,
            heard: now,
            active: now,
            idle_told: false,
        }
    }

    /// Takes a command; it goes out as soon as the greeting came and the window has room.
    ///
    /// # Errors
    /// [`SendError`]; nothing was taken then.
    pub fn send(&mut self, now: Instant, command: &Command) -> Result<Token, SendError> {
        if self.phase == Phase::Closed {
            return Err(SendError::Closed);
        }
        let mut line = Vec::new();
        command.encode(&mut line)?;
        let token = Token(self.next_token);
        self.next_token += 1;
        self.waiting.push_back((token, line.into()));
        self.pump(now);
        Ok(token)
    }

    /// Bytes from the server.
    pub fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) {
        if self.phase == Phase::Closed || bytes.is_empty() {
            return;
        }
        self.heard = now;
        self.touch(now);
        self.parser.feed(bytes);
        while self.phase != Phase::Closed {
            match self.parser.next_reply() {
                Some(Ok(reply)) => self.take_reply(reply),
                Some(Err(error)) => self.fail(error.into()),
                None => break,
            }
        }
        self.pump(now);
    }

    /// The server closed its side.
    pub fn handle_eof(&mut self, _now: Instant) {
        let due = self.phase == Phase::Greeting || self.awaits_reply() || self.parser.is_mid_reply();
        self.fail(if due { ProtocolError::Eof } else { ProtocolError::Ended });
    }

    /// A deadline passed; calling early does no harm.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_none_or(|deadline| now < deadline) {
            return;
        }
        match self.phase {
            Phase::Closed => {}
            Phase::Greeting => self.fail(ProtocolError::GreetingTimeout),
            Phase::Open if self.awaits_reply() => self.fail(ProtocolError::StallTimeout),
            Phase::Open => {
                self.idle_told = true;
                self.events.push_back(ClientEvent::Idle);
            }
        }
    }

    /// When [`Self::handle_timeout`] is due.
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.phase {
            Phase::Closed => None,
            Phase::Greeting => Some(self.heard + self.config.greeting_timeout),
            Phase::Open if self.awaits_reply() => Some(self.heard + self.config.stall_timeout),
            Phase::Open if self.idle_told => None,
            Phase::Open => self.config.idle_after.map(|after| self.active + after),
        }
    }

    /// Bytes for the server.
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

    /// Commands without a final reply, waiting ones included.
    pub fn outstanding(&self) -> usize {
        self.in_flight.len() + self.waiting.len()
    }

    /// Takes back a command that has not left; false if it is too late.
    pub fn cancel_unsent(&mut self, token: Token) -> bool {
        let before = self.waiting.len();
        self.waiting.retain(|(waiting, _)| *waiting != token);
        self.waiting.len() < before
    }

    fn awaits_reply(&self) -> bool {
        !self.in_flight.is_empty()
    }

    fn touch(&mut self, now: Instant) {
        self.active = now;
        self.idle_told = false;
    }

    /// Sends waiting commands while the window has room.
    fn pump(&mut self, now: Instant) {
        while self.phase == Phase::Open && self.in_flight.len() < self.config.window.max(1) {
            let Some((token, line)) = self.waiting.pop_front() else { break };
            if self.in_flight.is_empty() {
                self.heard = now;
            }
            self.touch(now);
            self.out.extend_from_slice(&line);
            self.in_flight.push_back(token);
        }
    }

    fn take_reply(&mut self, reply: Reply) {
        match self.phase {
            Phase::Closed => {}
            Phase::Greeting => self.take_greeting(reply),
            // 421 may come at any time, in answer to a command or to none.
            Phase::Open if reply.code == 421 => self.fail(ProtocolError::ServiceClosing(reply)),
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

    fn take_answer(&mut self, reply: Reply) {
        let Some(&token) = self.in_flight.front() else {
            self.fail(ProtocolError::Unsolicited(reply));
            return;
        };
        if let Some(marker) = Marker::parse(&reply) {
            self.events.push_back(ClientEvent::Marker { token, marker });
            return;
        }
        if reply.class() == ReplyClass::Preliminary {
            self.events.push_back(ClientEvent::Preliminary { token, reply });
            return;
        }
        self.in_flight.pop_front();
        self.events.push_back(ClientEvent::Completed { token, reply });
    }

    /// Ends the connection once.
    fn fail(&mut self, error: ProtocolError) {
        if self.phase == Phase::Closed {
            return;
        }
        self.phase = Phase::Closed;
        self.out.clear();
        let unanswered = self.in_flight.drain(..).collect();
        let unsent = self.waiting.drain(..).map(|(token, _)| token).collect();
        self.events.push_back(ClientEvent::Failed { error, unanswered, unsent });
    }
}

//! The client's control machine against any server.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use whimbrel_proto::client::{
    ClientConfig, ClientControl, ClientEvent, DataHandleEffect, SendError, SessionState, Token, data_handle_effect,
};
use whimbrel_proto::command::Command;
use whimbrel_proto::reply::ReplyClass;

use super::input::pieces;

/// Commands in flight at once.
const WINDOW: usize = 4;

/// Every command gets one end, in order, whatever the server says; after the end nothing more happens.
///
/// Lines of the input are the server's, except: `!S` send this command, `!R` bytes without line end, `!T` time passes by this many
/// seconds, `!D` the deadline passes, `!C` take back the newest command, `!E` the server closes.
pub fn client_machine(data: &[u8]) {
    let mut run = Run::new();
    for line in data.split(|&b| b == b'\n') {
        match line {
            [b'!', b'S', command @ ..] => run.send(command),
            [b'!', b'R', bytes @ ..] => run.machine.handle_bytes(run.now, bytes),
            [b'!', b'T', seconds @ ..] => run.wait(Duration::from_secs(seconds.first().map_or(1, |&b| u64::from(b)))),
            [b'!', b'D', ..] => run.deadline(),
            [b'!', b'C', ..] => run.take_back(),
            [b'!', b'E', ..] => run.machine.handle_eof(run.now),
            _ => pieces(&[line, b"\r\n"].concat()).for_each(|piece| run.machine.handle_bytes(run.now, piece)),
        }
        run.check();
    }
    run.machine.handle_eof(run.now);
    run.check();
    assert!(run.failed && run.outstanding.is_empty(), "every command has an end");
}

struct Run {
    now: Instant,
    machine: ClientControl,
    session: SessionState,
    /// Commands without an end, oldest first.
    outstanding: VecDeque<(Token, Command)>,
    /// Lines that left the machine.
    sent: usize,
    /// Commands with a final reply.
    completed: usize,
    greeted: bool,
    failed: bool,
}

impl Run {
    fn new() -> Self {
        let now = Instant::now();
        let config =
            ClientConfig { window: WINDOW, idle_after: Some(Duration::from_secs(30)), ..ClientConfig::default() };
        Self {
            now,
            machine: ClientControl::new(now, config),
            session: SessionState::new(),
            outstanding: VecDeque::new(),
            sent: 0,
            completed: 0,
            greeted: false,
            failed: false,
        }
    }

    fn send(&mut self, line: &[u8]) {
        let command = Command::parse(line).unwrap_or_else(|_| Command::Raw(line.to_vec()));
        match self.machine.send(self.now, &command) {
            Ok(token) => {
                assert!(!self.failed && self.outstanding.back().is_none_or(|(last, _)| *last < token));
                self.session.sent(&command);
                self.outstanding.push_back((token, command));
            }
            Err(SendError::Closed) => assert!(self.failed),
            Err(SendError::Encode(_)) => assert!(!self.failed),
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

    fn take_back(&mut self) {
        if let Some((token, _)) = self.outstanding.back()
            && self.machine.cancel_unsent(*token)
        {
            self.outstanding.pop_back();
        }
    }

    fn check(&mut self) {
        let bytes = self.machine.poll_transmit().unwrap_or_default();
        self.sent += bytes.iter().filter(|&&b| b == b'\n').count();
        assert!(bytes.is_empty() || self.greeted_or_greeting(), "nothing is sent before the greeting");
        while let Some(event) = self.machine.poll_event() {
            self.take(event);
        }
        assert_eq!(self.machine.outstanding(), self.outstanding.len());
        assert_eq!(self.machine.is_closed(), self.failed);
        assert!(self.failed || self.sent - self.completed <= WINDOW, "the window is kept");
        assert!(!self.failed || (self.machine.poll_timeout().is_none() && self.machine.poll_transmit().is_none()));
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
        match event {
            ClientEvent::Greeting(reply) => {
                assert!(!std::mem::replace(&mut self.greeted, true) && reply.is_success());
            }
            ClientEvent::Preliminary { token, reply } => {
                assert!(self.is_oldest(token) && reply.class() == ReplyClass::Preliminary);
            }
            ClientEvent::Marker { token, .. } => assert!(self.is_oldest(token)),
            ClientEvent::Completed { token, reply } => {
                assert!(self.is_oldest(token) && reply.class() != ReplyClass::Preliminary && reply.code != 421);
                let (_, command) = self.outstanding.pop_front().expect("a reply belongs to a command");
                self.completed += 1;
                self.end(&command, reply.is_success());
            }
            ClientEvent::Idle => assert!(self.greeted && self.outstanding.is_empty()),
            ClientEvent::Failed { error, unanswered, unsent } => {
                assert!(!error.to_string().is_empty());
                let tokens: Vec<_> = self.outstanding.drain(..).map(|(token, _)| token).collect();
                assert_eq!([unanswered, unsent].concat(), tokens, "every command without a reply is named, in order");
                self.failed = true;
            }
        }
    }

    fn end(&mut self, command: &Command, success: bool) {
        self.session.completed(command, success);
        assert!(success || self.session.needs(command), "what was refused is not in force");
        let replaces = data_handle_effect(command) == DataHandleEffect::Replaces;
        assert!(!replaces || self.session.needs(command), "a new data handle is always needed");
    }

    fn is_oldest(&self, token: Token) -> bool {
        self.greeted && self.outstanding.front().is_some_and(|(oldest, _)| *oldest == token)
    }
}

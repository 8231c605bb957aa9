//! The machine as a client and a data side see it: bytes and outcomes in, bytes and events out, virtual time.
#![allow(clippy::single_range_in_vec_init, reason = "lists of one range are meant")]

mod chunk;
mod data;
mod files;
mod limits;
mod listing;
mod login;
mod options;
mod pack;
mod pipeline;
mod policy;
mod probe;
mod random;
mod secure;
mod site;
mod transfer;

use std::time::{Duration, Instant};

use super::*;
use crate::op::{Failure, FailureKind, Notice, Op, OpId, Outcome};

/// A client and a data side around one machine.
struct Peer {
    now: Instant,
    machine: ServerControl,
    /// Events not yet looked at, `Answered` left out.
    events: Vec<ServerEvent>,
    /// Codes of final replies.
    codes: Vec<u16>,
}

impl Peer {
    fn connect(config: ServerConfig) -> Self {
        let now = Instant::now();
        Self { now, machine: ServerControl::new(now, config), events: Vec::new(), codes: Vec::new() }
    }

    /// Logged in as `u` with home `/home/u`, the replies so far taken.
    fn logged_in() -> Self {
        Self::logged_in_with(ServerConfig::default())
    }

    fn logged_in_with(config: ServerConfig) -> Self {
        let mut peer = Self::connect(config);
        peer.send("USER u");
        peer.send("PASS p");
        peer.machine.login(peer.now, LoginOutcome::Accepted { user: "u".into(), home: b"/home/u".to_vec() });
        assert!(peer.output().ends_with("230 User u logged in.\r\n"));
        peer.events.clear();
        peer.codes.clear();
        peer
    }

    /// Sends one line; gives what came back.
    fn send(&mut self, line: &str) -> String {
        self.send_bytes(format!("{line}\r\n").as_bytes())
    }

    fn send_bytes(&mut self, bytes: &[u8]) -> String {
        self.machine.handle_bytes(self.now, bytes);
        self.output()
    }

    /// Takes output and events until there are none.
    fn output(&mut self) -> String {
        let mut out = Vec::new();
        loop {
            let bytes = self.machine.poll_transmit();
            let event = self.machine.poll_event();
            if bytes.is_none() && event.is_none() {
                return String::from_utf8_lossy(&out).into_owned();
            }
            out.extend(bytes.into_iter().flatten());
            match event {
                Some(ServerEvent::Answered { code, .. }) => self.codes.push(code),
                other => self.events.extend(other),
            }
        }
    }

    /// The one operation that was asked for.
    fn op(&mut self) -> (OpId, Op) {
        match std::mem::take(&mut self.events).as_slice() {
            [ServerEvent::Run { id, op }] => (*id, op.clone()),
            other => panic!("expected one operation, not {other:?}"),
        }
    }

    fn finish(&mut self, id: OpId, outcome: Outcome) -> String {
        self.machine.outcome(self.now, id, outcome);
        self.output()
    }

    fn notice(&mut self, id: OpId, notice: Notice) -> String {
        self.machine.notice(self.now, id, notice);
        self.output()
    }

    /// Sends a line, checks the operation it asks for, ends it and gives the reply.
    fn exchange(&mut self, line: &str, expected: &Op, outcome: Outcome) -> String {
        assert_eq!(self.send(line), "", "no reply to {line} yet");
        let (id, op) = self.op();
        assert_eq!(&op, expected, "operation of {line}");
        self.finish(id, outcome)
    }

    /// PASV, answered with 10.0.0.1:2000.
    fn passive(&mut self) {
        self.send("PASV");
        let (id, _) = self.op();
        let reply = self.finish(id, listening("10.0.0.1:2000"));
        assert_eq!(reply, "227 Entering Passive Mode (10,0,0,1,7,208)\r\n");
    }

    fn advance(&mut self, seconds: u64) {
        self.now += Duration::from_secs(seconds);
    }
}

fn listening(address: &str) -> Outcome {
    Outcome::Listening(vec![address.parse().expect("an address")])
}

fn failed(kind: FailureKind, text: &str) -> Outcome {
    Outcome::Failed(Failure { kind, text: text.into(), checksums: None })
}

const OPENED: Notice = Notice::Opened { reused: false, unique_name: None };

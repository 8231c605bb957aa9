//! A server as one end of a transfer: operations in, their notices and outcomes out, over one
//! control connection.
//!
//! Operations are those of the mover protocol, so that a server and a local mover look alike.
//! They are sent at once and answered in order; the caller decides what may be sent ahead of replies.

mod answer;
mod steps;

use std::collections::VecDeque;
use std::net::SocketAddr;

use tokio::time::timeout;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::feat::Features;
use whimbrel_proto::op::{LeafSpec, Mode, Notice, Op, OpId, Outcome};
use whimbrel_proto::reply::{Reply, ReplyClass};
use whimbrel_proto::spent;

use super::channel::{Channel, Incoming};
use super::dtns::Seat;
use super::reply;
use super::target::{SessionOptions, Target};

/// News of one operation at an end.
#[derive(Debug)]
pub enum EndEvent {
    /// It goes on.
    Notice(Notice),
    /// It is over.
    Done(Result<Outcome, Fault>),
}

/// How to read the answer to the last command of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Plain,
    Passive,
    Transfer,
    /// Of so many files.
    Packed(usize),
    Lines,
    Facts,
    Size,
    Modified,
    Checksum,
    Directory,
    Chunked,
    Probed,
    Extents,
}

/// What a reply means to its operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Greeting,
    User,
    Pass,
    Features,
    /// The result does not matter.
    Quiet,
    /// Whether the server knows data-channel nonces.
    Nonce,
    /// A refusal fails the operation; its other commands are harmless then.
    Need,
    /// A refusal means that the server stays in stream mode.
    Mode,
    /// The operation's further commands are sent only after this one's success.
    Gate,
    Done(Answer),
}

#[derive(Debug)]
struct Pending {
    op: OpId,
    step: Step,
    /// For messages: what was done to what.
    name: &'static str,
    subject: Vec<u8>,
}

/// Values the server holds for this session.
#[derive(Debug, Clone, PartialEq, Eq)]
struct InForce {
    mode: Mode,
    parallelism: u16,
    checksum_markers: bool,
    transfer_markers: bool,
    frequent_markers: bool,
    leaves: Option<LeafSpec>,
    past_memory: bool,
    congestion: Option<String>,
    spent: bool,
}

const FRESH: InForce = InForce {
    mode: Mode::Stream,
    parallelism: 1,
    checksum_markers: false,
    transfer_markers: false,
    frequent_markers: false,
    leaves: None,
    past_memory: false,
    congestion: None,
    spent: false,
};

/// The login's operation.
const LOGIN: OpId = OpId(0);

/// One control session.
#[derive(Debug)]
pub struct Remote {
    channel: Channel,
    pending: VecDeque<Pending>,
    held: VecDeque<(Vec<u8>, Pending)>,
    gated: bool,
    events: VecDeque<(OpId, EndEvent)>,
    failure: Option<Fault>,
    fatal: Option<Fault>,
    last_op: u64,
    in_force: InForce,
    nonce_accepted: bool,
    logged_in: bool,
    options: SessionOptions,
    /// The server.
    pub target: Target,
    /// What it says it can do; empty before login is complete.
    pub features: Features,
    /// Its greeting, for people.
    pub greeting: String,
    /// Counts as a session of its DTN while it lives.
    pub seat: Option<Seat>,
}

impl Remote {
    /// Connects, logs in and submits `first`, all without waiting for replies in between; returns when
    /// the login is confirmed. Answers to `first` come as events.
    ///
    /// A server that does not take commands ahead of its replies is talked to in lock-step.
    pub async fn dial(target: &Target, options: &SessionOptions, first: &[Op]) -> Result<(Self, Vec<OpId>), Fault> {
        match Self::attempt(target, options, first).await {
            Err((fault, true)) if options.pipelined => {
                tracing::info!(%target, %fault, "talking to the server in lock-step");
                let patient = SessionOptions { pipelined: false, ..options.clone() };
                Self::attempt(target, &patient, first).await.map_err(|(fault, _)| fault)
            }
            result => result.map_err(|(fault, _)| fault),
        }
    }

    /// One attempt; the flag says that the connection stood and the dialogue broke.
    async fn attempt(
        target: &Target,
        options: &SessionOptions,
        first: &[Op],
    ) -> Result<(Self, Vec<OpId>), (Fault, bool)> {
        let channel = Channel::connect(target, options).await.map_err(|fault| (fault, false))?;
        let mut remote = Self::new(channel, target, options);
        remote.prelude().map_err(|fault| (fault, false))?;
        let ops = first
            .iter()
            .map(|op| remote.submit(op.clone()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|fault| (fault, false))?;
        match remote.finish(LOGIN).await {
            Ok(_) => Ok((remote, ops)),
            Err(fault) => {
                let broke =
                    matches!(fault.code, FaultCode::ConnectionLost | FaultCode::TimedOut | FaultCode::PeerMisbehaved);
                Err((fault.subject(target.to_string()), broke))
            }
        }
    }

    fn new(channel: Channel, target: &Target, options: &SessionOptions) -> Self {
        Self {
            channel,
            pending: VecDeque::new(),
            held: VecDeque::new(),
            gated: false,
            events: VecDeque::new(),
            failure: None,
            fatal: None,
            last_op: LOGIN.0,
            in_force: FRESH,
            nonce_accepted: false,
            logged_in: false,
            options: options.clone(),
            target: target.clone(),
            features: Features::default(),
            greeting: String::new(),
            seat: None,
        }
    }

    fn prelude(&mut self) -> Result<(), Fault> {
        let user = self.target.user.clone().unwrap_or_else(|| "anonymous".to_owned());
        let password = self.target.password.as_ref().map_or("whimbrel@", |password| password.0.as_str());
        let pass = format!("PASS {password}");
        let info = format!("SITE CLIENTINFO scheme=ftp;appname=\"whimbrel\";appver=\"{}\";", self.options.version);
        self.pending.push_back(Pending { op: LOGIN, step: Step::Greeting, name: "greet", subject: Vec::new() });
        self.command(LOGIN, format!("USER {user}").into_bytes(), Step::User, "log in", user.as_bytes())?;
        self.command(LOGIN, pass.into_bytes(), Step::Pass, "log in", user.as_bytes())?;
        self.command(LOGIN, b"FEAT".to_vec(), Step::Features, "ask for features", b"")?;
        self.command(LOGIN, info.into_bytes(), Step::Quiet, "introduce", b"")?;
        self.command(LOGIN, b"TYPE I".to_vec(), Step::Done(Answer::Plain), "set binary type", b"")
    }

    /// Sends an operation; its events carry the returned number.
    ///
    /// # Errors
    /// `InvalidPath` when a name cannot be carried; nothing was sent then.
    pub fn submit(&mut self, op: Op) -> Result<OpId, Fault> {
        self.last_op += 1;
        let id = OpId(self.last_op);
        let commands = self.commands_for(&op)?;
        if commands.is_empty() {
            self.events.push_back((id, EndEvent::Done(Ok(Outcome::Done))));
        }
        for command in commands {
            self.command(id, command.line, command.step, command.name, &command.subject)?;
        }
        Ok(id)
    }

    fn command(
        &mut self,
        op: OpId,
        line: Vec<u8>,
        step: Step,
        name: &'static str,
        subject: &[u8],
    ) -> Result<(), Fault> {
        let pending = Pending { op, step, name, subject: subject.to_vec() };
        if self.gated {
            self.held.push_back((line, pending));
            return Ok(());
        }
        self.channel.push(&line)?;
        self.gated = step == Step::Gate;
        self.pending.push_back(pending);
        Ok(())
    }

    /// The next event of any operation. Cancel safe.
    ///
    /// # Errors
    /// The session is over: nothing that was submitted will be answered.
    pub async fn event(&mut self) -> Result<(OpId, EndEvent), Fault> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            if let Some(fault) = self.fatal.take() {
                return Err(fault);
            }
            let stream = self.listing().is_some();
            match self.channel.next(stream).await? {
                Incoming::Lines(lines) => self.pass_on(&lines),
                Incoming::Reply(reply) if reply.class() == ReplyClass::Preliminary => self.preliminary(&reply),
                Incoming::Reply(reply) => self.final_reply(&reply)?,
            }
        }
    }

    /// Submits an operation and waits for its end; events of others stay queued, its notices are dropped.
    pub async fn run(&mut self, op: Op) -> Result<Outcome, Fault> {
        let id = self.submit(op)?;
        self.finish(id).await
    }

    /// Waits for the end of an operation; events of others stay queued, its notices are dropped.
    pub async fn finish(&mut self, id: OpId) -> Result<Outcome, Fault> {
        let mut others = VecDeque::new();
        let result = loop {
            match self.event_in_time().await {
                Ok((op, EndEvent::Done(result))) if op == id => break result,
                Ok((op, EndEvent::Notice(_))) if op == id => {}
                Ok(other) => others.push_back(other),
                Err(fault) => break Err(fault),
            }
        };
        others.append(&mut self.events);
        self.events = others;
        result
    }

    /// Like [`Remote::event`], but silence longer than the reply time-out is a fault.
    pub async fn event_in_time(&mut self) -> Result<(OpId, EndEvent), Fault> {
        let limit = self.options.reply_timeout;
        // Before login, silence may mean a server that drops what is sent ahead of its replies.
        let limit = if self.logged_in || !self.options.pipelined {
            limit
        } else {
            limit.min(std::time::Duration::from_secs(30))
        };
        match timeout(limit, self.event()).await {
            Ok(event) => event,
            Err(_) => Err(Fault::new(FaultCode::TimedOut, "wait for a reply")
                .subject(self.target.to_string())
                .side(Side::Network)),
        }
    }

    /// Whether the server says what it can do, and this is not among it.
    pub fn lacks(&self, label: &str) -> bool {
        self.features.is_known() && !self.features.has(label)
    }

    /// Checksum algorithms, upper case, the server's favourites first.
    pub fn checksums(&self) -> Vec<String> {
        self.features.checksums().into_iter().map(|checksum| checksum.name.to_ascii_uppercase()).collect()
    }

    /// Congestion controls that it lets clients choose.
    pub fn congestions(&self) -> Vec<String> {
        let names = self.features.params("CONGESTION").unwrap_or("").split(',');
        names.map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }

    /// Writes what is queued, when nobody waits for events.
    pub async fn flush(&mut self) -> Result<(), Fault> {
        self.channel.flush().await
    }

    /// Whether every operation was answered.
    pub fn is_idle(&self) -> bool {
        self.pending.is_empty() && self.held.is_empty() && self.events.is_empty()
    }

    /// Whether commands are sent ahead of replies.
    pub fn is_pipelined(&self) -> bool {
        self.options.pipelined
    }

    /// Whether the last SITE DCNONCE was accepted.
    pub fn nonce_accepted(&self) -> bool {
        self.nonce_accepted
    }

    /// The server's address and ours.
    pub fn addresses(&self) -> (SocketAddr, SocketAddr) {
        (self.channel.peer, self.channel.local)
    }

    /// The transfer mode in force.
    pub fn mode(&self) -> Mode {
        self.in_force.mode
    }

    /// The operation whose reply is a listing and due now.
    fn listing(&self) -> Option<OpId> {
        self.pending.front().filter(|front| front.step == Step::Done(Answer::Lines)).map(|front| front.op)
    }

    /// Passes lines of a listing on at once: listings may be longer than memory.
    fn pass_on(&mut self, lines: &[Vec<u8>]) {
        let Some(op) = self.listing().filter(|_| !lines.is_empty()) else { return };
        let mut bytes = Vec::with_capacity(lines.iter().map(|line| line.len() + 2).sum());
        for line in lines {
            bytes.extend_from_slice(line);
            bytes.extend_from_slice(b"\r\n");
        }
        self.events.push_back((op, EndEvent::Notice(Notice::Lines(bytes))));
    }

    fn preliminary(&mut self, reply: &Reply) {
        self.pass_on(reply.middle_lines());
        if let (Some(front), Some(notice)) = (self.pending.front(), answer::notice(reply)) {
            self.events.push_back((front.op, EndEvent::Notice(notice)));
        }
    }

    fn final_reply(&mut self, reply: &Reply) -> Result<(), Fault> {
        if is_ok(reply) {
            self.pass_on(reply.middle_lines());
        }
        let Some(front) = self.pending.pop_front() else {
            return Err(reply::fault(reply, "keep the session", b""));
        };
        if reply.code == 421 {
            return Err(reply::fault(reply, front.name, &front.subject));
        }
        self.channel.answered();
        self.step(front, reply)
    }

    fn step(&mut self, front: Pending, reply: &Reply) -> Result<(), Fault> {
        let refusal = || reply::fault(reply, front.name, &front.subject);
        match front.step {
            Step::Greeting if is_ok(reply) => self.greeting = reply::text(reply),
            Step::Greeting => return Err(refusal()),
            Step::User | Step::Pass => return self.login_reply(&front, reply),
            Step::Features => self.features = Features::parse(reply),
            Step::Quiet => {}
            Step::Nonce => self.nonce_accepted = is_ok(reply),
            Step::Need | Step::Mode if is_ok(reply) => {}
            Step::Need => self.fail(refusal()),
            Step::Mode => {
                self.in_force.mode = Mode::Stream;
                self.fail(refusal().detail(format!("no extended block mode: {}", reply::text(reply))));
            }
            Step::Gate => return self.open_gate(&front, (!is_ok(reply)).then(refusal)),
            Step::Done(kind) => self.complete(&front, kind, reply),
        }
        Ok(())
    }

    fn login_reply(&mut self, front: &Pending, reply: &Reply) -> Result<(), Fault> {
        let refused = match (front.step, reply.code) {
            (Step::User, 230 | 232) => {
                self.logged_in = true;
                false
            }
            (Step::User, code) => code / 100 != 3,
            // USER alone was enough: PASS is superfluous, whatever its answer.
            _ if self.logged_in => false,
            (_, code) => code / 100 != 2,
        };
        if refused {
            let fault = Fault::new(FaultCode::LoginFailed, front.name)
                .subject(format!("{} at {}", String::from_utf8_lossy(&front.subject), self.target))
                .detail(format!("{} {}", reply.code, reply::text(reply)));
            return Err(fault);
        }
        self.logged_in |= front.step == Step::Pass;
        Ok(())
    }

    fn fail(&mut self, fault: Fault) {
        self.failure.get_or_insert(fault);
    }

    fn complete(&mut self, front: &Pending, kind: Answer, reply: &Reply) {
        if let Some(spent) = spent::from_reply(reply).filter(|_| matches!(kind, Answer::Transfer | Answer::Packed(_))) {
            self.events.push_back((front.op, EndEvent::Notice(Notice::Spent(Box::new(spent)))));
        }
        let own = if is_ok(reply) {
            answer::outcome(kind, reply, self.channel.peer, front.name, &front.subject)
        } else {
            Err(reply::fault(reply, front.name, &front.subject))
        };
        let result = match self.failure.take() {
            Some(earlier) => Err(earlier),
            None => own,
        };
        self.events.push_back((front.op, EndEvent::Done(result)));
    }

    /// Sends what waited for the gate, without the gate's own operation if it was refused.
    fn open_gate(&mut self, front: &Pending, refused: Option<Fault>) -> Result<(), Fault> {
        self.gated = false;
        let failed = refused.is_some();
        if let Some(fault) = refused {
            self.events.push_back((front.op, EndEvent::Done(Err(fault))));
        }
        for (line, pending) in std::mem::take(&mut self.held) {
            if !(failed && pending.op == front.op) {
                self.command(pending.op, line, pending.step, pending.name, &pending.subject)?;
            }
        }
        Ok(())
    }
}

/// Done, or (3xx) ready for the next command of a sequence.
fn is_ok(reply: &Reply) -> bool {
    matches!(reply.class(), ReplyClass::Completion | ReplyClass::Intermediate)
}

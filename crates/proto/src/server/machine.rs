//! The machine itself: input, the queue, the running command, time limits and output.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::{Bytes, BytesMut};

use super::ahead::Held;
use super::answer::Answer;
use super::config::ServerConfig;
use super::data;
use super::dispatch;
use super::event::{CloseReason, LoginOutcome, PeerView, ServerEvent, TokenOutcome};
use super::inbox::{Inbox, Line};
use super::login;
use super::secure;
use super::session::Session;
use super::step::{Step, Task};
use crate::op::{Notice, Op, OpId, Outcome};

/// The server's side of one control connection.
///
/// Commands are answered in order; ABOR, and STAT when nothing else waits, act at once while an operation runs
/// (RFC 959 §4.1.3). Over a data handle that has proved itself, the operations of commands that wait are handed to the
/// data side ahead of their turn, which runs them in order: many small files then cost no round trip between the two.
#[derive(Debug)]
pub struct ServerControl {
    config: ServerConfig,
    session: Session,
    inbox: Inbox,
    running: Option<Running>,
    /// Commands behind the running one that were dispatched ahead of their turn.
    ahead: VecDeque<Ahead>,
    out: BytesMut,
    events: VecDeque<ServerEvent>,
    next_op: u64,
    /// The last words when nothing runs any more, and why.
    ending: Option<(&'static str, CloseReason)>,
    closing: Option<CloseReason>,
    closed: bool,
    /// When the present wait began: for a login, or for the next command.
    since: Instant,
}

/// The command that has no final reply yet.
#[derive(Debug)]
struct Running {
    verb: String,
    /// The last operation it ran.
    op: Option<OpId>,
    wait: Wait,
}

/// A command that was dispatched before the replies of those in front of it.
#[derive(Debug)]
enum Ahead {
    /// Its operation is with the data side, which may have said something of it already.
    Op(Running, Box<Held>),
    /// Its reply waits.
    Answer { verb: String, answer: Answer },
}

/// What the running command waits for.
#[derive(Debug)]
enum Wait {
    /// The driver's verdict on a login.
    Login,
    /// The driver's TLS handshake.
    Tls,
    /// The driver's answer to a token.
    Token,
    /// The outcome of the operation.
    Op { task: Task, aborted: bool },
}

impl ServerControl {
    /// A fresh connection; the greeting is ready to be sent.
    pub fn new(now: Instant, config: ServerConfig) -> Self {
        let mut machine = Self {
            session: Session::new(&config),
            inbox: Inbox::default(),
            running: None,
            ahead: VecDeque::new(),
            out: BytesMut::new(),
            events: VecDeque::new(),
            next_op: 1,
            ending: None,
            closing: None,
            closed: false,
            since: now,
            config,
        };
        login::greeting(&machine.config).write(&mut machine.out);
        machine
    }

    /// Bytes from the client; how many were taken. All of them, unless AUTH or ADAT is among them: what is behind may belong to TLS or be wrapped, and is
    /// taken when the driver gives it again, opened by then, once the answer to what stands in front of it is known.
    ///
    /// A line above the limit gets 500 and the connection goes on; too many waiting commands end it.
    pub fn handle_bytes(&mut self, now: Instant, bytes: &[u8]) -> usize {
        let mut rest = bytes;
        while !rest.is_empty() && self.closing.is_none() && !self.is_barred() {
            let (line, used) = self.inbox.feed(rest, self.max_line());
            rest = &rest[used..];
            if let Some(line) = line {
                self.take_line(now, line);
            }
        }
        if self.closing.is_none()
            && let Some(line) = self.inbox.urgent_abort()
        {
            self.take_line(now, line);
        }
        if self.closing.is_some() { bytes.len() } else { bytes.len() - rest.len() }
    }

    /// TLS stands: the end of what [`ServerEvent::StartTls`] began, or, before anything was said, of the handshake of a port that is TLS from the
    /// start. `peer`: whose certificate was judged. Ignored when neither is so.
    pub fn secured(&mut self, _now: Instant, peer: Option<PeerView>) {
        // Not before the driver was asked.
        let asked = !self.events.contains(&ServerEvent::StartTls);
        let begun = asked && matches!(&self.running, Some(Running { wait: Wait::Tls, .. }));
        let fresh = self.running.is_none() && !self.session.security.is_protected() && self.session.is_untouched();
        if self.closing.is_some() || !(begun || (fresh && self.config.mechanisms.tls)) {
            return;
        }
        self.running = None;
        self.session.security.begin_tls(peer);
        self.work();
    }

    /// The answer to [`ServerEvent::Token`]; ignored when none is awaited.
    ///
    /// After [`TokenOutcome::Established`] the bytes of the next [`Self::poll_transmit`], which end with the 235, are the last ones to be sent in clear.
    pub fn token(&mut self, _now: Instant, outcome: TokenOutcome) {
        if self.closing.is_some() || !matches!(&self.running, Some(Running { wait: Wait::Token, .. })) {
            return;
        }
        let Some(running) = self.running.take() else {
            return;
        };
        let established = matches!(outcome, TokenOutcome::Established { .. });
        let step = secure::finish_token(&mut self.session, &self.config, outcome);
        self.perform(running.verb, None, step);
        // What goes on after the 235 must be wrapped, so it waits until that is taken.
        if !established {
            self.work();
        }
    }

    /// The client closed its side: the same as ABOR and QUIT (RFC 959 §4.1.1), unless QUIT already waits.
    pub fn handle_eof(&mut self, _now: Instant) {
        if self.closing.is_some() || self.inbox.holds("QUIT") {
            return;
        }
        self.close(CloseReason::Eof);
    }

    /// A deadline passed; calling early does no harm.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_none_or(|deadline| now < deadline) {
            return;
        }
        // A login that the driver still checks counts as late too: its verdict is ignored. In a TLS handshake there is no line to say it in.
        if !matches!(&self.running, Some(Running { wait: Wait::Tls, .. })) {
            Answer::line(421, "Idle Timeout: closing control connection.").write(&mut self.out);
        }
        let reason = if self.session.is_logged_in() { CloseReason::IdleTimeout } else { CloseReason::LoginTimeout };
        self.close(reason);
    }

    /// When [`Self::handle_timeout`] is due; `None` while an operation runs and after the end.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let runs_op = matches!(&self.running, Some(Running { wait: Wait::Op { .. }, .. }));
        let limit = if self.session.is_logged_in() { self.config.idle_timeout } else { self.config.login_timeout };
        (!runs_op && self.closing.is_none()).then(|| self.since + limit)
    }

    /// Bytes for the client; commands that waited for room are carried out now.
    pub fn poll_transmit(&mut self) -> Option<Bytes> {
        if self.out.is_empty() {
            return None;
        }
        let bytes = self.out.split().freeze();
        self.work();
        Some(bytes)
    }

    /// Bytes that [`Self::poll_transmit`] would give; a driver whose client does not read should hold back notices.
    pub fn unsent(&self) -> usize {
        self.out.len()
    }

    /// The next thing to do; [`ServerEvent::StartTls`] comes when the output in front of it was taken, [`ServerEvent::Closed`] last, when all was.
    pub fn poll_event(&mut self) -> Option<ServerEvent> {
        if self.events.front() == Some(&ServerEvent::StartTls) && !self.out.is_empty() {
            return None;
        }
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        let reason = self.closing.filter(|_| !self.closed && self.out.is_empty())?;
        self.closed = true;
        Some(ServerEvent::Closed(reason))
    }

    /// True once the connection is over and all output was taken.
    pub fn is_closed(&self) -> bool {
        self.closing.is_some() && self.out.is_empty()
    }

    /// The operation whose outcome is awaited.
    pub fn running_op(&self) -> Option<OpId> {
        match &self.running {
            Some(Running { op, wait: Wait::Op { .. }, .. }) => *op,
            _ => None,
        }
    }

    /// The verdict on [`ServerEvent::Login`]; ignored when none is awaited.
    pub fn login(&mut self, now: Instant, outcome: LoginOutcome) {
        if self.closing.is_some() || !matches!(&self.running, Some(Running { wait: Wait::Login, .. })) {
            return;
        }
        let Some(running) = self.running.take() else {
            return;
        };
        let accepted = matches!(outcome, LoginOutcome::Accepted { .. });
        let step = login::verdict(&mut self.session, &self.config, outcome);
        self.perform(running.verb, None, step);
        if accepted {
            self.since = now;
        }
        self.work();
    }

    /// News of an operation: told at once if its reply is the next one due, kept (the latest of each kind) if it was
    /// handed over ahead of its turn, ignored otherwise.
    pub fn notice(&mut self, _now: Instant, id: OpId, notice: Notice) {
        if self.closing.is_some() {
            return;
        }
        if let Some(held) = self.held_ahead(id) {
            held.notice(notice);
        } else if let Some(Running { op: Some(op), wait: Wait::Op { task, .. }, .. }) = &mut self.running
            && *op == id
        {
            let has_opened = matches!(notice, Notice::Opened { .. });
            task.notice(notice, &mut self.out);
            if has_opened && let Task::Transfer(progress) = task {
                data::carries(&mut self.session, progress.direction);
                self.run_ahead();
            }
        }
    }

    /// The end of an operation: answered if its reply is the next one due, kept until then if it was handed over ahead of
    /// its turn, ignored otherwise.
    pub fn outcome(&mut self, now: Instant, id: OpId, outcome: Outcome) {
        if self.closing.is_some() {
            return;
        }
        if let Some(held) = self.held_ahead(id) {
            held.end(outcome);
        } else if self.running_op() == Some(id) {
            self.finish(outcome);
            self.since = now;
            self.work();
        }
    }

    /// Shuts down: 421 at once when nothing runs, otherwise after the running command's reply.
    pub fn begin_drain(&mut self, _now: Instant) {
        self.end_soon("Service shutting down, closing control connection.", CloseReason::Drained);
    }

    /// The login's credential has come to its end: what was begun is finished, and 421 follows.
    pub fn expire(&mut self, _now: Instant) {
        self.end_soon("Your credential has expired: log in again with a new one.", CloseReason::Expired);
    }

    fn end_soon(&mut self, text: &'static str, reason: CloseReason) {
        self.ending.get_or_insert((text, reason));
        self.work();
    }

    /// Bytes of input and output held.
    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.inbox.held() + self.out.len()
    }

    fn max_line(&self) -> usize {
        match self.session.is_logged_in() {
            true => self.config.max_line,
            false if self.session.security.awaits_token() => {
                self.config.max_line_before_login.max(secure::MAX_ADAT_LINE)
            }
            false => self.config.max_line_before_login,
        }
    }

    /// Nothing behind AUTH and ADAT is read before it is known what becomes of them.
    fn is_barred(&self) -> bool {
        let begun = matches!(&self.running, Some(Running { wait: Wait::Tls | Wait::Token, .. }));
        begun || (self.config.mechanisms.any() && self.inbox.ends_with(&["AUTH", "ADAT"]))
    }

    /// Queues one line and goes on; ABOR and STAT may act at once.
    fn take_line(&mut self, now: Instant, line: Line) {
        if self.session.is_logged_in() {
            self.since = now;
        }
        if self.running.is_some() {
            match line.verb().as_str() {
                "ABOR" => self.abort(),
                "STAT" if self.answer_status(&line) => return,
                _ => {}
            }
        }
        if !self.inbox.queue(line, &self.config) {
            Answer::line(500, "Pipeline queue full.").write(&mut self.out);
            self.close(CloseReason::PipelineFull);
            return;
        }
        self.work();
    }

    /// ABOR while a command runs: stops its operation and cancels the transfers that wait (RFC 959 §4.1.3).
    fn abort(&mut self) {
        self.inbox.cancel(dispatch::is_transfer);
        if let Some(Running { op: Some(id), wait: Wait::Op { aborted, .. }, .. }) = &mut self.running
            && !std::mem::replace(aborted, true)
        {
            self.events.push_back(ServerEvent::Abort { id: *id });
        }
        for ahead in &mut self.ahead {
            if let Ahead::Op(Running { op: Some(id), wait: Wait::Op { aborted, .. }, .. }, held) = ahead
                && !held.has_ended()
                && !std::mem::replace(aborted, true)
            {
                self.events.push_back(ServerEvent::Abort { id: *id });
            }
        }
    }

    /// STAT while an operation runs and nothing waits before it: answered at once (RFC 959 §4.1.3), unless the running
    /// command's reply has begun, whose lines it would become one of.
    fn answer_status(&mut self, line: &Line) -> bool {
        let Some(Running { verb, op: Some(_), wait: Wait::Op { task, .. }, .. }) = &self.running else {
            return false;
        };
        let waits = !self.inbox.is_empty() || !self.ahead.is_empty() || task.is_mid_reply();
        if waits || !line.is_bare() {
            return false;
        }
        let answer = login::status(&self.session, &self.config, Some((verb, task.bytes_moved())));
        self.answer("STAT".into(), None, &answer);
        true
    }

    /// What is kept of an operation that was handed over ahead of its turn.
    fn held_ahead(&mut self, id: OpId) -> Option<&mut Held> {
        self.ahead.iter_mut().find_map(|ahead| match ahead {
            Ahead::Op(Running { op: Some(op), .. }, held) if *op == id => Some(&mut **held),
            _ => None,
        })
    }

    /// What follows from the end of the running operation.
    fn finish(&mut self, outcome: Outcome) {
        match self.running.take() {
            Some(Running { verb, op, wait: Wait::Op { task, aborted } }) => {
                let step = task.finish(&mut self.session, &self.config, outcome, aborted, &mut self.out);
                self.perform(verb, op, step);
            }
            other => self.running = other,
        }
    }

    /// The turn of an operation that was handed over ahead of it: what is known of it is told.
    fn take_turn(&mut self, mut running: Running, held: Held) {
        let (notices, outcome) = held.release();
        if let Wait::Op { task, .. } = &mut running.wait {
            notices.for_each(|notice| task.notice(notice, &mut self.out));
        }
        self.running = Some(running);
        if let Some(outcome) = outcome {
            self.finish(outcome);
        }
    }

    /// Carries out waiting commands until one has to wait or the output is full.
    fn work(&mut self) {
        while self.running.is_none() && self.closing.is_none() {
            match self.ahead.pop_front() {
                Some(Ahead::Op(running, held)) => {
                    self.take_turn(running, *held);
                    continue;
                }
                Some(Ahead::Answer { verb, answer }) => {
                    self.answer(verb, None, &answer);
                    continue;
                }
                None => {}
            }
            if let Some((text, reason)) = self.ending {
                Answer::line(421, text).write(&mut self.out);
                return self.close(reason);
            }
            if self.out.len() >= self.config.max_unsent {
                return;
            }
            let Some(line) = self.inbox.pop() else { return };
            let verb = line.verb();
            let step = dispatch::dispatch(&mut self.session, &self.config, line);
            self.perform(verb, None, step);
        }
        self.run_ahead();
    }

    /// Dispatches waiting commands whose operations do not depend on the outcome of those in front of them.
    ///
    /// A transfer that fails closes the data handle on the data side, so that those behind it fail there, too.
    fn run_ahead(&mut self) {
        let steady = matches!(&self.running, Some(Running { wait: Wait::Op { task, aborted: false }, .. }) if task.leaves_session());
        while steady
            && self.closing.is_none()
            && self.ending.is_none()
            && self.ahead.len() < self.config.run_ahead
            && self.session.handle_is_in_use()
            && let Some(line) = self.inbox.pop_if(dispatch::may_run_ahead)
        {
            let verb = line.verb();
            match dispatch::dispatch(&mut self.session, &self.config, line) {
                Step::Answer(answer) => self.ahead.push_back(Ahead::Answer { verb, answer }),
                Step::Run { before: None, op, task } => {
                    let running = self.start(verb, *op, *task);
                    self.ahead.push_back(Ahead::Op(running, Box::default()));
                }
                step => {
                    debug_assert!(false, "{verb} led to {step:?} over a handle in use");
                    return self.close(CloseReason::Unavailable);
                }
            }
        }
    }

    /// Hands an operation to the data side.
    fn start(&mut self, verb: String, op: Op, task: Task) -> Running {
        let id = OpId(self.next_op);
        self.next_op += 1;
        self.events.push_back(ServerEvent::Run { id, op });
        Running { verb, op: Some(id), wait: Wait::Op { task, aborted: false } }
    }

    fn perform(&mut self, verb: String, op: Option<OpId>, step: Step) {
        match step {
            Step::Answer(answer) => self.answer(verb, op, &answer),
            Step::Label(label, answer) => {
                self.events.push_back(ServerEvent::Label(label));
                self.answer(verb, op, &answer);
            }
            Step::Login { user, proof } => {
                self.events.push_back(ServerEvent::Login { user, proof });
                self.running = Some(Running { verb, op, wait: Wait::Login });
            }
            Step::Token(token) => {
                self.events.push_back(ServerEvent::Token(token));
                self.running = Some(Running { verb, op, wait: Wait::Token });
            }
            Step::StartTls(answer) => {
                self.answer(verb.clone(), op, &answer);
                self.events.push_back(ServerEvent::StartTls);
                self.running = Some(Running { verb, op, wait: Wait::Tls });
            }
            Step::Run { before, op, task } => {
                if let Some(before) = before {
                    before.write(&mut self.out);
                }
                self.running = Some(self.start(verb, *op, *task));
            }
            Step::Close(answer, reason) => {
                self.answer(verb, op, &answer);
                self.close(reason);
            }
        }
    }

    fn answer(&mut self, verb: String, op: Option<OpId>, answer: &Answer) {
        answer.write(&mut self.out);
        self.events.push_back(ServerEvent::Answered { verb, op, code: answer.code() });
    }

    /// Ends the connection: what waits is dropped, what runs is aborted.
    fn close(&mut self, reason: CloseReason) {
        if let Some(Running { op: Some(id), wait: Wait::Op { aborted: false, .. }, .. }) = self.running.take() {
            self.events.push_back(ServerEvent::Abort { id });
        }
        self.ahead.clear();
        self.inbox.clear();
        self.closing = Some(reason);
    }
}

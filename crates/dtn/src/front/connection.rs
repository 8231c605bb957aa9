//! Drives one control connection: a byte stream, the control machine and the login's data side.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use whimbrel_engine::guard::Visitor;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::op::{Op, Outcome, Shield};
use whimbrel_proto::server::{Label, LoginOutcome, PeerView, Proof, Secret, ServerControl, ServerEvent, TokenOutcome};
use whimbrel_trust::{Peer, TrustFault};

use super::gssapi::{self, Established, Exchange, Stepped};
use super::guard::Refused;
use super::patience::{Patience, TooMuch};
use super::plane::{Plane, PlaneEvent};
use super::server::{Server, Shown, USUAL_ACCOUNT};
use super::wire::{Lines, Wire};
use crate::monitor::message::Claim;

/// Replies kept for a client that does not read, bytes; commands and notices wait beyond it.
const MAX_UNSENT: usize = 64 << 10;

/// The reply to AUTH with which an exchange of tokens begins (RFC 2228 §3).
const TOKENS_FOLLOW: u16 = 334;

/// Reply code of a connection that nobody has logged in on (RFC 959 §5.4).
const GREETING: u16 = 220;

/// How long the last words may take.
const FAREWELL: Duration = Duration::from_secs(10);

/// Where a control connection comes from.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ends {
    /// The client; `None` on standard input.
    pub peer: Option<SocketAddr>,
    /// This side.
    pub local: Option<SocketAddr>,
    /// Its place among all connections; `None` on standard input.
    pub visitor: Option<Visitor>,
    /// The client has no address here and is not on this host, either: this server made the connection.
    pub made_here: bool,
}

/// What comes before the greeting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beginning {
    /// Nothing.
    Clear,
    /// A TLS handshake.
    Tls,
}

/// What the control machine waits for, one at a time.
type Work = Pin<Box<dyn Future<Output = Worked> + Send>>;

/// What came of it.
enum Worked {
    Login(LoginOutcome, Option<Box<Plane>>),
    Token(Stepped),
}

/// Serves a control connection over any byte stream until it ends.
pub async fn serve<S>(
    stream: S,
    ends: Ends,
    beginning: Beginning,
    server: Arc<Server>,
    mut drain: watch::Receiver<bool>,
) where
    S: AsyncRead + AsyncWrite + Send,
{
    let (mut reader, mut writer) = tokio::io::split(stream);
    let mut connection = Connection::new(ends, server);
    if beginning == Beginning::Tls {
        connection.start_tls();
    }
    let mut input = BytesMut::with_capacity(16 << 10);
    let mut drained = false;
    let mut reading = Reading::default();
    loop {
        connection.pump().await;
        if connection.over && connection.output.is_empty() {
            break;
        }
        let give_up = reading.give_up_at(&connection, Instant::now());
        let deadline = connection.control.poll_timeout();
        let room = connection.output.len() < MAX_UNSENT;
        let listens = connection.is_listening() && room;
        connection.patience.reads(listens, Instant::now());
        let end = connection.login_ends;
        let overdue = connection.patience.deadline().filter(|_| !connection.over);
        tokio::select! {
            read = reader.read_buf(&mut input), if listens => {
                connection.received(read, &mut input);
            }
            written = writer.write(&connection.output), if !connection.output.is_empty() => match written {
                Ok(count) if count > 0 => {
                    connection.output.advance(count);
                    reading.goes_on();
                }
                _ => break, // the client is gone; what runs for it is aborted by dropping its mover
            },
            worked = async { connection.work.as_mut().expect("guarded").await }, if connection.work.is_some() => {
                connection.work = None;
                connection.worked(worked);
            }
            event = async { connection.plane.as_mut().expect("guarded").next(room).await }, if connection.plane.is_some() => {
                connection.absorb(event);
            }
            () = async { tokio::time::sleep_until(deadline.expect("guarded").into()).await }, if deadline.is_some() => {
                connection.control.handle_timeout(Instant::now());
            }
            () = async { tokio::time::sleep_until(give_up.expect("guarded").into()).await }, if give_up.is_some() => {
                tracing::warn!(peer = ?ends.peer, "the client does not read its replies");
                break; // what runs for it is aborted by dropping its mover
            }
            () = async { tokio::time::sleep_until(overdue.expect("guarded").into()).await }, if overdue.is_some() => {
                connection.is_too_much(connection.patience.overdue());
            }
            () = async { tokio::time::sleep_until(end.expect("guarded").into()).await }, if end.is_some() => {
                tracing::info!(peer = ?ends.peer, "the credential of a login has expired");
                connection.login_ends = None;
                connection.control.expire(Instant::now());
            }
            _ = drain.changed(), if !drained => {
                drained = true;
                connection.control.begin_drain(Instant::now());
            }
        }
    }
    // A client that has already gone needs no farewell.
    let _ = writer.shutdown().await;
}

/// Whether the client reads what it is told.
#[derive(Default)]
struct Reading {
    /// Since when it has taken nothing of what waits for it.
    stuck_since: Option<Instant>,
}

impl Reading {
    fn goes_on(&mut self) {
        self.stuck_since = None;
    }

    /// When to leave a client alone that takes nothing: one may be as long about reading as about commands.
    fn give_up_at(&mut self, connection: &Connection, now: Instant) -> Option<Instant> {
        if connection.output.is_empty() {
            self.stuck_since = None;
            return None;
        }
        let patience = connection.server.settings().idle_timeout;
        let patience = if connection.over { patience.min(FAREWELL) } else { patience };
        self.stuck_since.get_or_insert(now).checked_add(patience)
    }
}

struct Connection {
    ends: Ends,
    server: Arc<Server>,
    control: ServerControl,
    wire: Wire,
    /// Plain bytes that the control machine has not taken yet.
    input: BytesMut,
    /// Bytes for the wire.
    output: BytesMut,
    patience: Patience,
    /// When the login is over.
    login_ends: Option<Instant>,
    /// End of the credential that proved the claim, in seconds since 1970.
    until: Option<i64>,
    /// Who the client proved to be in a handshake.
    claim: Option<Claim>,
    /// An exchange of tokens between two of them.
    exchange: Option<Exchange>,
    /// Data connections continue the TLS session of this one.
    spends_tickets: bool,
    work: Option<Work>,
    plane: Option<Box<Plane>>,
    eof: bool,
    over: bool,
}

impl Connection {
    fn new(ends: Ends, server: Arc<Server>) -> Self {
        let control = ServerControl::new(Instant::now(), server.control_config(ends.local));
        let (input, output) = (BytesMut::new(), BytesMut::new());
        let (patience, wire, login_ends, until) = (Patience::new(server.settings().lines), Wire::Clear, None, None);
        let (claim, exchange, work, plane, eof, over) = (None, None, None, None, false, false);
        Self {
            ends,
            server,
            control,
            wire,
            input,
            output,
            patience,
            login_ends,
            until,
            claim,
            exchange,
            spends_tickets: false,
            work,
            plane,
            eof,
            over,
        }
    }

    /// Nothing is read while what has come is not yet wanted, so that it cannot grow.
    fn is_listening(&self) -> bool {
        !self.eof && !self.over && self.input.is_empty()
    }

    fn received(&mut self, read: std::io::Result<usize>, wire: &mut BytesMut) {
        match read {
            Ok(count) if count > 0 => self.take_in(wire),
            // A reset is an end like any other: a client may leave without QUIT.
            _ => self.end_of_input(),
        }
        wire.clear();
    }

    fn end_of_input(&mut self) {
        self.eof = true;
        self.control.handle_eof(Instant::now());
    }

    fn take_in(&mut self, wire: &[u8]) {
        let before = self.input.len();
        match self.wire.receive(wire, &mut self.input, &mut self.output) {
            Ok(news) => {
                if news.established {
                    tracing::debug!(peer = ?self.ends.peer, "the control connection is inside TLS");
                    self.patience.handshake_over();
                    self.server.tls_stands(&mut self.wire, news.resumed);
                    let view = self.shown_certificate();
                    self.control.secured(Instant::now(), view);
                }
                let text = if self.wire.is_tls() { self.input.get(before..).unwrap_or_default() } else { wire };
                if let Err(too_much) = self.patience.fed(wire.len(), text, Instant::now()) {
                    return self.is_too_much(too_much);
                }
                self.feed();
                if news.closed {
                    self.end_of_input();
                }
            }
            Err(fault) => self.give_up(&fault),
        }
    }

    /// Who showed a certificate in the TLS handshake: it is asked about at USER (RFC 4217 §6).
    fn shown_certificate(&mut self) -> Option<PeerView> {
        let Peer { subject, vo, until, .. } = self.wire.peer()?;
        tracing::info!(peer = ?self.ends.peer, subject, %until, "certificate accepted");
        self.claim = Some(Claim::Certificate { subject: subject.clone(), vo });
        self.until = Some(until.secs);
        Some(PeerView { subject, suffices: true, gsi: false })
    }

    /// Gives the control machine what it has not taken; true if it took any.
    fn feed(&mut self) -> bool {
        let taken = self.control.handle_bytes(Instant::now(), &self.input);
        self.input.advance(taken);
        taken > 0
    }

    /// Whatever was said in clear behind AUTH TLS was said by somebody else (CVE-2011-0411), and is the end.
    fn start_tls(&mut self) {
        if !self.input.is_empty() {
            tracing::warn!(peer = ?self.ends.peer, "bytes in clear behind AUTH TLS: the connection is closed");
            self.over = true;
            return;
        }
        match self.server.tls() {
            Some(Ok(wire)) => {
                self.wire = wire;
                self.patience.handshake_begins(Instant::now());
            }
            Some(Err(fault)) => self.give_up(&fault),
            None => {
                tracing::error!("TLS was to begin and there is no certificate");
                self.over = true;
            }
        }
    }

    fn worked(&mut self, worked: Worked) {
        match worked {
            Worked::Login(outcome, plane) => {
                self.login_ends = plane.as_ref().and_then(|plane| plane.until()).and_then(instant_of);
                self.plane = plane;
                self.control.login(Instant::now(), outcome);
            }
            Worked::Token(Stepped::Continue(token, exchange)) => {
                self.exchange = Some(exchange);
                self.control.token(Instant::now(), TokenOutcome::Continue(token));
            }
            Worked::Token(Stepped::Established(who)) => self.wrap(*who),
            Worked::Token(Stepped::Refused(fault)) => {
                self.certificate_refused(&fault);
                self.control.token(Instant::now(), TokenOutcome::Refused { lines: gssapi::reasons(&fault) });
            }
        }
    }

    fn certificate_refused(&mut self, fault: &TrustFault) {
        self.patience.handshake_over();
        self.server.metrics.count_login(false);
        if let Some(left_out) = self.server.guard.refused(Refused::Handshake) {
            tracing::warn!(peer = ?self.ends.peer, %fault, left_out, "an identity is refused");
        }
    }

    /// The reply to the last token goes in clear; everything behind it is wrapped, and so is what has come meanwhile.
    fn wrap(&mut self, who: Established) {
        tracing::info!(peer = ?self.ends.peer, subject = who.view.subject, until = %who.until, "identity accepted");
        self.patience.handshake_over();
        (self.claim, self.until) = (Some(who.claim), Some(who.until.secs));
        self.control.token(Instant::now(), TokenOutcome::Established { token: who.token, peer: who.view });
        while let Some(bytes) = self.control.poll_transmit() {
            self.output.extend_from_slice(&bytes);
        }
        self.wire = Wire::Lines(Box::new(Lines::new(who.machine, who.delegated)));
        let ahead = self.input.split();
        self.take_in(&ahead);
    }

    /// Gives a token to the exchange that it belongs to, or that it begins.
    fn take_token(&mut self, token: Secret) {
        if !self.server.gssapi().are_there() {
            tracing::error!("the control machine asks about a token of a mechanism that was not offered");
            self.over = true;
            return;
        }
        let exchange = self.exchange.take();
        let server = self.server.clone();
        self.work = Some(Box::pin(async move { Worked::Token(server.gssapi().step(exchange, token).await) }));
    }

    fn give_up(&mut self, fault: &TrustFault) {
        if let Some(left_out) = self.server.guard.refused(Refused::Handshake) {
            tracing::warn!(peer = ?self.ends.peer, %fault, left_out, "the protection of a control connection failed");
        }
        self.over = true;
    }

    /// Ends a connection that wears this side out.
    fn is_too_much(&mut self, what: TooMuch) {
        let kind = if what == TooMuch::SlowLine { Refused::SlowLine } else { Refused::Handshake };
        if let Some(left_out) = self.server.guard.refused(kind) {
            tracing::warn!(peer = ?self.ends.peer, reason = what.reason(), left_out, "control connection closed");
        }
        self.close_saying(what.reason());
    }

    fn close_saying(&mut self, reason: &str) {
        let farewell = format!("421 Closing control connection: {reason}.\r\n");
        // Where TLS does not stand there is nobody who could be told.
        if self.wire.is_open() && self.wire.send(farewell.as_bytes(), &mut self.output).is_ok() {
            self.wire.end(&mut self.output);
        }
        self.over = true;
    }

    /// Moves everything that can move without waiting.
    async fn pump(&mut self) {
        loop {
            let mut moved = false;
            while self.output.len() < MAX_UNSENT
                && let Some(plane) = self.plane.as_mut()
                && let Some(event) = plane.try_next().await
            {
                self.absorb(event);
                moved = true;
            }
            if self.output.len() < MAX_UNSENT
                && self.wire.is_open()
                && let Some(bytes) = self.control.poll_transmit()
            {
                if let Err(fault) = self.wire.send(&bytes, &mut self.output) {
                    self.give_up(&fault);
                }
                moved = true;
            }
            while let Some(event) = self.control.poll_event() {
                self.handle(event).await;
                moved = true;
            }
            moved |= !self.input.is_empty() && self.feed();
            // Ended before TLS stood (before a login nothing runs, so only an end has no time limit): there is nobody who could be told.
            self.over |= !self.wire.is_open() && self.control.poll_timeout().is_none();
            if !moved {
                return;
            }
        }
    }

    fn absorb(&mut self, event: PlaneEvent) {
        match event {
            PlaneEvent::Notice(id, notice) => self.control.notice(Instant::now(), id, notice),
            PlaneEvent::Outcome(id, outcome) => {
                if self.spends_tickets && matches!(outcome, Outcome::Transferred { .. }) {
                    self.wire.renew_ticket();
                }
                self.control.outcome(Instant::now(), id, outcome);
            }
            PlaneEvent::Overrun => self.leave_unread(),
        }
    }

    /// Ends a connection whose client does not read what waits for it; what runs is aborted by dropping its movers.
    fn leave_unread(&mut self) {
        let fault = Fault::new(FaultCode::PeerMisbehaved, "tell the client of its transfers").side(Side::Peer);
        let fault = fault.detail("it does not read, and more waits for it than is kept");
        tracing::warn!(peer = ?self.ends.peer, %fault, "control connection closed");
        self.plane = None;
        self.close_saying("the replies are not read, and more wait than are kept");
    }

    /// REIN: the connection is as before its login, which neither ends it any more nor counts.
    fn log_out(&mut self) {
        (self.login_ends, self.plane) = (None, None);
        self.server.log_out(self.ends.visitor);
    }

    async fn handle(&mut self, event: ServerEvent) {
        match event {
            ServerEvent::Login { user, proof } => {
                let shown = match proof {
                    Proof::Password(password) => Some(self.server.shown(password)),
                    Proof::Peer if self.server.is_over_ssh() => Some(Shown::Process),
                    Proof::Peer => self.claim.clone().map(Shown::Claim),
                };
                match shown {
                    Some(shown) => self.work = Some(Box::pin(self.check_login(user, shown))),
                    None => self.control.login(Instant::now(), LoginOutcome::Denied),
                }
            }
            ServerEvent::StartTls => self.start_tls(),
            ServerEvent::Token(token) => self.take_token(token),
            ServerEvent::Run { id, op: Op::Relay(what) } => {
                let user = self.plane.as_ref().map_or("", |plane| plane.user());
                let outcome = self.server.announce(user, what, self.ends.local);
                self.control.outcome(Instant::now(), id, outcome);
            }
            ServerEvent::Run { id, op } => {
                if let Op::Passive { params, .. } | Op::Active { params, .. } = &op {
                    self.spends_tickets = params.shield == Shield::Session;
                }
                match &mut self.plane {
                    Some(plane) => plane.run(id, op).await,
                    None => tracing::error!("the control machine ran an operation before login"),
                }
            }
            ServerEvent::Abort { id } => {
                if let Some(plane) = &mut self.plane {
                    plane.abort(id);
                }
            }
            ServerEvent::Label(label) => self.label(label),
            ServerEvent::Answered { verb, code, .. } => {
                self.server.metrics.count_reply(code);
                if code == TOKENS_FOLLOW {
                    self.patience.handshake_begins(Instant::now());
                }
                tracing::debug!(peer = ?self.ends.peer, verb, code, "answered");
                if verb == "REIN" && code == GREETING {
                    self.log_out();
                }
            }
            ServerEvent::Closed(reason) => {
                self.over = true;
                self.wire.end(&mut self.output);
                tracing::info!(peer = ?self.ends.peer, ?reason, "control connection closed");
            }
        }
    }

    fn check_login(&self, user: Vec<u8>, shown: Shown) -> impl Future<Output = Worked> + use<> {
        let server = self.server.clone();
        let (ends, secrets, tls, until) = (self.ends, self.wire.secrets(), self.wire.is_tls(), self.until);
        async move {
            let name = String::from_utf8_lossy(&user).into_owned();
            let guess = matches!(shown, Shown::Password(_)).then_some(name.as_str());
            if let Some(unheard) = server.throttled(ends, guess) {
                return Worked::Login(unheard, None);
            }
            let claimed = match &shown {
                Shown::Claim(claim) => Some(claim.name().to_owned()),
                Shown::Token(_) if !tls => return Worked::Login(token_in_clear(), None),
                Shown::Token(_) | Shown::Password(_) | Shown::Process => None,
            };
            let until = until.filter(|_| claimed.is_some());
            let result = server.log_in(&name, shown, ends, secrets, until).await;
            server.metrics.count_login(matches!(&result, Ok(Some(_))));
            server.remember(ends, guess, &result);
            match result {
                Ok(Some((user, plane))) => {
                    tracing::info!(peer = ?ends.peer, user, "logged in");
                    let home = plane.home().to_vec();
                    Worked::Login(LoginOutcome::Accepted { user, home }, Some(Box::new(plane)))
                }
                // 331: a password or a token may follow.
                Ok(None) if claimed.is_some() && tls && server.takes_passwords() => {
                    Worked::Login(LoginOutcome::Denied, None)
                }
                Ok(None) => {
                    tracing::warn!(peer = ?ends.peer, user = name, claimed, "login refused");
                    let outcome = claimed.map_or(LoginOutcome::Denied, |who| unmapped(&who, &name));
                    Worked::Login(outcome, None)
                }
                Err(fault) if is_refusal(&fault) => {
                    tracing::warn!(peer = ?ends.peer, user = name, %fault, "login refused");
                    let lines = fault.to_string().lines().map(str::to_owned).collect();
                    Worked::Login(LoginOutcome::Refused(lines), None)
                }
                Err(fault) => Worked::Login(unavailable(&fault), None),
            }
        }
    }

    fn label(&mut self, label: Label) {
        let text = |bytes: Vec<u8>| Some(String::from_utf8_lossy(&bytes).into_owned());
        let Some(plane) = &mut self.plane else { return };
        match label {
            Label::TaskId(id) => plane.label(text(id), None),
            Label::ClientInfo(info) => plane.label(None, text(info)),
        }
    }
}

/// When a time of the calendar is by this process' clock; `None` beyond its reach.
fn instant_of(seconds: i64) -> Option<Instant> {
    let end = UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))?;
    Instant::now().checked_add(end.duration_since(SystemTime::now()).unwrap_or_default())
}

/// What somebody is told who is known and has no account here, or not the one asked for.
fn unmapped(who: &str, wanted: &str) -> LoginOutcome {
    let account = match wanted {
        USUAL_ACCOUNT => "any account here".to_owned(),
        name => format!("the account {name} here"),
    };
    LoginOutcome::Refused(vec![format!("{who} is not mapped to {account}.")])
}

/// Whether somebody is told why: it is about what they showed, which they know.
fn is_refusal(fault: &Fault) -> bool {
    fault.side == Some(Side::Peer)
        && matches!(fault.code, FaultCode::CredentialRejected | FaultCode::CredentialExpired | FaultCode::NotAuthorized)
}

/// Whoever listened has the token now.
fn token_in_clear() -> LoginOutcome {
    let lines = ["Tokens are not taken over a connection in clear: send AUTH TLS first.", "Have this one withdrawn."];
    LoginOutcome::Refused(lines.map(str::to_owned).to_vec())
}

fn unavailable(fault: &Fault) -> LoginOutcome {
    tracing::error!(%fault, "login cannot be served");
    // What somebody can do about it is told, what is wrong here is not.
    let told = match fault.code {
        FaultCode::TooManyAttempts => fault.detail.clone(),
        _ => "service not available".to_owned(),
    };
    LoginOutcome::Unavailable(format!("Try again later: {told}."))
}

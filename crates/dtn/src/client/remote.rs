//! A server as one end of a transfer: operations in, their notices and outcomes out, over one
//! control connection.
//!
//! Operations are those of the mover protocol, so that a server and a local mover look alike.
//! They are sent at once and answered in order; the caller decides what may be sent ahead of replies.
//! Which commands are in flight, withheld or late is known to `proto`'s client machine, which this drives.

mod answer;
mod login;
mod replies;
mod steps;

use std::cell::OnceCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::timeout_at;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::client::{ClientConfig, ClientControl, Order, SendError};
use whimbrel_proto::command::{Command, Secret, Site};
use whimbrel_proto::feat::Features;
use whimbrel_proto::op::{Notice, Op, OpId, Outcome, Shield};
use whimbrel_proto::policy::Rule;
use whimbrel_trust::bearer::Bearer;
use whimbrel_trust::gsi::Trusted;
use whimbrel_trust::krb5::Ticket;

use super::channel::Channel;
use super::data::Certified;
use super::dtns::Seat;
use super::end::ends_session;
use super::grid::Credential;
use super::gssapi::{Login, Wrapped};
use super::shown;
use super::target::{CredentialFiles, HandOn, SessionOptions, Target};
use steps::Ask;

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
    Policy,
    /// The working directory, if the reply has one.
    Working,
}

/// What a final reply means to its operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// AUTH TLS: the handshake follows, and everything else after that.
    Secure,
    /// AUTH GSSAPI: its first token has been sent along.
    Mechanism,
    /// ADAT: another token follows, or everything else.
    Token,
    User,
    /// USER of a login whose password nobody is to see before the server says that it takes it here.
    UserFirst,
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

/// A command without its end, in the order of the machine's.
#[derive(Debug)]
struct Pending {
    op: OpId,
    step: Step,
    /// For messages: what was done to what.
    name: &'static str,
    subject: Vec<u8>,
}

/// The login's operation.
const LOGIN: OpId = OpId(0);

/// That of the exchange of tokens before it.
const EXCHANGE: OpId = OpId(u64::MAX);

/// Longest silence of a server that may have dropped what was sent ahead of its replies.
const AHEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// Longest silence of a server that works on something large: to remove a tree, to write out a storage, to read a file.
const LONGEST_WORK: Duration = Duration::from_secs(3600);

/// One control session.
#[derive(Debug)]
pub struct Remote {
    channel: Channel,
    machine: ClientControl,
    pending: VecDeque<Pending>,
    events: VecDeque<(OpId, EndEvent)>,
    /// Why the operation in progress has failed already.
    failure: Option<Fault>,
    last_op: u64,
    nonce_accepted: bool,
    logged_in: bool,
    /// A login over GSSAPI that is under way.
    exchange: Option<Login>,
    /// An access token for the login.
    token: Option<Arc<Bearer>>,
    /// What the last data handle was to be protected with.
    shield: Shield,
    /// Credential for data connections in place of the one handed on, and the same as PEM.
    data_credential: Option<(Arc<Credential>, Secret)>,
    /// What the last SITE POLICY told.
    rules: Vec<Rule>,
    /// The working directory after the login, once asked for; `None`: the server does not tell.
    home: OnceCell<Option<Vec<u8>>>,
    options: SessionOptions,
    /// The server.
    pub target: Target,
    /// What it says it can do; empty before login is complete.
    pub features: Features,
    /// Its greeting, for people.
    pub greeting: String,
    /// What it said when it let us in, for people.
    pub welcome: String,
    /// Counts as a session of its DTN while it lives.
    pub seat: Option<Seat>,
}

impl Remote {
    fn new(channel: Channel, target: &Target, options: &SessionOptions) -> Self {
        let reply_timeout = options.reply_timeout;
        let patience = if options.pipelined { reply_timeout.min(AHEAD_TIMEOUT) } else { reply_timeout };
        let config = ClientConfig {
            window: if options.pipelined { ClientConfig::default().window } else { 1 },
            ahead: options.pipelined,
            greeting_timeout: patience,
            stall_timeout: patience,
        };
        Self {
            channel,
            machine: ClientControl::new(Instant::now(), config),
            pending: VecDeque::new(),
            events: VecDeque::new(),
            failure: None,
            last_op: LOGIN.0,
            nonce_accepted: false,
            logged_in: false,
            exchange: None,
            token: None,
            shield: Shield::None,
            data_credential: None,
            rules: Vec::new(),
            home: OnceCell::new(),
            options: options.clone(),
            target: target.clone(),
            features: Features::default(),
            greeting: String::new(),
            welcome: String::new(),
            seat: None,
        }
    }

    /// Sends an operation; its events carry the returned number.
    ///
    /// # Errors
    /// `InvalidPath` when a name cannot be carried; nothing was sent then.
    pub fn submit(&mut self, op: Op) -> Result<OpId, Fault> {
        self.last_op += 1;
        let id = OpId(self.last_op);
        let asks = self.asks_for(&op)?;
        if asks.is_empty() {
            self.events.push_back((id, EndEvent::Done(Ok(Outcome::Done))));
        }
        self.send(id, asks)?;
        Ok(id)
    }

    fn send(&mut self, op: OpId, asks: Vec<Ask>) -> Result<(), Fault> {
        let (orders, metas): (Vec<Order>, Vec<_>) = asks.into_iter().map(Ask::split).unzip();
        match self.machine.send(Instant::now(), &orders) {
            Ok(_) => {
                let pending = metas.into_iter().map(|(step, name, subject)| Pending { op, step, name, subject });
                self.pending.extend(pending);
                Ok(())
            }
            Err(SendError::Closed) => Err(replies::closed()),
            Err(SendError::Encode(error)) => {
                let subject = metas.last().map_or(&b""[..], |(_, _, subject)| subject);
                let fault = Fault::new(FaultCode::InvalidPath, "send command").on_path(subject);
                Err(fault.detail(format!("FTP cannot carry the command: {error}")))
            }
        }
    }

    /// The next event of any operation. Cancel safe.
    ///
    /// # Errors
    /// The session is over: nothing that was submitted will be answered.
    pub async fn event(&mut self) -> Result<(OpId, EndEvent), Fault> {
        loop {
            if let Some(event) = self.next_event()? {
                return Ok(event);
            }
            self.channel.exchange(&mut self.machine).await?;
        }
    }

    /// Like [`Remote::event`], but silence longer than the reply time-out is a fault.
    pub async fn event_in_time(&mut self) -> Result<(OpId, EndEvent), Fault> {
        self.machine.watch(Instant::now());
        loop {
            if let Some(event) = self.next_event()? {
                return Ok(event);
            }
            // With nothing due the machine knows no limit, but who calls this has one.
            let deadline = self.machine.poll_timeout().unwrap_or_else(|| Instant::now() + self.options.reply_timeout);
            match timeout_at(deadline.into(), self.channel.exchange(&mut self.machine)).await {
                Ok(exchanged) => exchanged?,
                Err(_) if self.machine.poll_timeout().is_none() => return Err(self.silent()),
                Err(_) => self.machine.handle_timeout(Instant::now()),
            }
        }
    }

    /// What is known without reading on.
    fn next_event(&mut self) -> Result<Option<(OpId, EndEvent)>, Fault> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            match self.machine.poll_event() {
                Some(news) => self.take(news)?,
                None if self.machine.is_closed() => return Err(replies::closed()),
                None => return Ok(None),
            }
        }
    }

    fn silent(&self) -> Fault {
        Fault::new(FaultCode::TimedOut, "wait for a reply").subject(self.target.to_string()).side(Side::Network)
    }

    /// Submits an operation and waits for its end; events of others stay queued, its notices are dropped.
    pub async fn run(&mut self, op: Op) -> Result<Outcome, Fault> {
        let id = self.submit(op)?;
        self.finish(id).await
    }

    /// The same for work of which a server may tell nothing before it is done, however much it is.
    pub async fn run_long(&mut self, op: Op) -> Result<Outcome, Fault> {
        self.machine.set_stall_timeout(self.options.reply_timeout.max(LONGEST_WORK));
        let result = self.run(op).await;
        self.machine.set_stall_timeout(self.options.reply_timeout);
        result
    }

    /// Waits for the end of an operation; events of others stay queued, its notices are dropped.
    pub async fn finish(&mut self, id: OpId) -> Result<Outcome, Fault> {
        self.outcome(id, true).await
    }

    /// The same without a limit, for who has another sign that the work goes on.
    pub async fn finish_whenever(&mut self, id: OpId) -> Result<Outcome, Fault> {
        self.outcome(id, false).await
    }

    async fn outcome(&mut self, id: OpId, in_time: bool) -> Result<Outcome, Fault> {
        let mut others = VecDeque::new();
        let result = loop {
            let event = match in_time {
                true => self.event_in_time().await,
                false => self.event().await,
            };
            match event {
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

    /// Whether the server says what it can do, and this is not among it.
    pub fn lacks(&self, label: &str) -> bool {
        self.features.is_known() && !self.features.has(label)
    }

    /// Whether what it calls a directory is none but a directory: it tells of links, and where they lead.
    pub fn tells_links(&self) -> bool {
        self.features.facts().iter().any(|fact| fact.name.eq_ignore_ascii_case("UNIX.slink"))
    }

    /// Checksum algorithms, upper case, the server's favourites first.
    pub fn checksums(&self) -> Vec<String> {
        self.features.checksums().into_iter().map(|checksum| checksum.name.to_ascii_uppercase()).collect()
    }

    /// Congestion controls that it lets clients choose, its own first.
    pub fn congestions(&self) -> Vec<String> {
        let names = self.features.params("CONGESTION").unwrap_or("").split(',');
        names.map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }

    /// Processors that its transfers may use, above 0; `None` if it does not say.
    pub fn processors(&self) -> Option<f64> {
        let told = self.features.params("PROCESSORS")?.parse().ok();
        told.filter(|processors: &f64| processors.is_finite() && *processors > 0.0)
    }

    /// Ends the session and waits, not longer than `limit`, until the server has ended it, too.
    pub async fn leave(&mut self, limit: std::time::Duration) {
        self.channel.leave(limit).await;
    }

    /// The administrator's rules for files in chunks; none where the server has none.
    pub async fn policy(&mut self) -> Result<Vec<Rule>, Fault> {
        if self.features.has("POLICY") {
            self.last_op += 1;
            let id = OpId(self.last_op);
            let ask = Ask::new(Command::Site(Site::Policy), Step::Done(Answer::Policy), "ask for rules", b"");
            self.send(id, vec![ask])?;
            self.finish(id).await?;
        }
        Ok(std::mem::take(&mut self.rules))
    }

    /// The directory that relative paths count from, as it is when this is asked first; `None`: the server does not tell.
    pub async fn home(&mut self) -> Result<Option<Vec<u8>>, Fault> {
        if self.home.get().is_none() {
            self.last_op += 1;
            let id = OpId(self.last_op);
            let step = Step::Done(Answer::Working);
            self.send(id, vec![Ask::new(Command::Pwd, step, "ask for the working directory", b"")])?;
            let told = match self.finish(id).await {
                Ok(Outcome::Directory(home)) => Some(home),
                Err(fault) if ends_session(&fault) => return Err(fault),
                _ => None,
            };
            let _ = self.home.set(told);
        }
        Ok(self.home.get().cloned().flatten())
    }

    /// Writes what is queued, when nobody waits for events.
    pub async fn flush(&mut self) -> Result<(), Fault> {
        self.channel.flush(&mut self.machine).await
    }

    /// Round-trip time of the control connection without what the server takes to answer, when known.
    pub fn round_trip(&self) -> Option<Duration> {
        self.channel.round_trip()
    }

    /// How the control connection is protected, and why the server is believed; `None` in clear.
    pub fn protection(&self) -> Option<String> {
        self.channel.protection()
    }

    /// What we showed in a login with certificates.
    pub fn credential(&self) -> Option<&Arc<Credential>> {
        self.channel.wrapped()?.credential()
    }

    /// The Kerberos ticket that we showed.
    pub fn ticket(&self) -> Option<&Ticket> {
        self.channel.wrapped()?.ticket()
    }

    /// The access token that was shown, for people; never the token itself.
    pub fn token(&self) -> Option<String> {
        self.token.as_deref().map(shown::describe)
    }

    /// What data connections with this host prove themselves with, after a login with certificates or DCSC.
    pub(super) fn certified(&self) -> Result<Option<Certified>, Fault> {
        Ok(match (&self.data_credential, self.credential()) {
            (Some((given, _)), _) => Some(Certified::given(given)?),
            (None, Some(own)) if self.handed_on() => {
                Some(Certified::new(own, Trusted::Directory(self.options.trust.grid.authorities()?)))
            }
            _ => None,
        })
    }

    /// What the last data handle was to be protected with.
    pub fn shield(&self) -> &Shield {
        &self.shield
    }

    /// Whether the server can show on data connections what was handed on to it.
    pub(super) fn handed_on(&self) -> bool {
        self.channel.wrapped().is_some_and(Wrapped::handed_on)
    }

    /// Whether it was handed on nothing because it seemed to need nothing.
    pub(super) fn was_spared(&self) -> bool {
        self.credential().is_some() && !self.handed_on() && self.options.delegate == HandOn::AsNeeded
    }

    /// Whether data connections with another such server, in clear or encrypted, are proven by nonces alone.
    pub(super) fn proves_by_nonce(&self, encrypted: bool) -> bool {
        let offers = |params: &str| params.split(',').any(|word| word.trim() == "TLS");
        match encrypted {
            true => self.features.params("DCNONCE").is_some_and(offers) && self.protection().is_some(),
            false => self.features.has("DCNONCE"),
        }
    }

    /// The credential in these files, for servers that may not know its authority.
    pub(super) fn credential_in(&self, files: &CredentialFiles) -> Result<Arc<Credential>, Fault> {
        self.options.trust.grid.complete(files)
    }

    /// Has data connections that prove who they are use this credential from the next data handle on.
    pub(super) fn show_on_data(&mut self, credential: &Arc<Credential>) -> Result<(), Fault> {
        self.data_credential = Some((credential.clone(), credential.pem()?));
        Ok(())
    }

    /// Whether commands are sent ahead of replies.
    pub fn is_pipelined(&self) -> bool {
        self.options.pipelined
    }

    /// Whether the last SITE DCNONCE was accepted.
    pub fn nonce_accepted(&self) -> bool {
        self.nonce_accepted
    }

    /// Whether it takes no data connections, and only makes some: it says so, or it made the control connection itself, and whoever
    /// names us an address then could have us look about in our own network.
    pub fn is_outbound(&self) -> bool {
        self.channel.is_met() || self.features.has("OUTBOUND")
    }

    /// The server's address and ours.
    pub fn addresses(&self) -> (SocketAddr, SocketAddr) {
        (self.channel.peer, self.channel.local)
    }
}

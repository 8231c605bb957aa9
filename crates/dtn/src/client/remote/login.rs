//! How a session begins: protection, login, first questions.

use std::time::{Duration, Instant};

use tokio::time::timeout;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::client::secure::auth_gssapi;
use whimbrel_proto::command::{Command, Secret, Site, TransferType};
use whimbrel_proto::op::{GsiPeer, Level, Op, OpId, Outcome, Shield};
use whimbrel_proto::reply::Reply;

use super::steps::Ask;
use super::{EXCHANGE, LOGIN, Pending, Remote, Step};
use crate::client::channel::Channel;
use crate::client::gssapi::Login;
use crate::client::reply;
use crate::client::security::Security;
use crate::client::target::{HandOn, SessionOptions, Target};

/// Longest wait until a server has been told why it is not believed.
const FAREWELL: Duration = Duration::from_secs(1);

const ASK_FOR_GSSAPI: &str = "ask for GSSAPI";

/// The account that belongs to the certificate or principal (GCT practice).
const MAPPED: &str = ":globus-mapping:";

fn lacks_tls(target: &Target, fault: &Fault) -> bool {
    fault.code == FaultCode::PeerIncompatible && target.security == Security::Tls
}

impl Remote {
    /// Connects, logs in and submits `first`, all without waiting for replies in between; returns when
    /// the login is confirmed. Answers to `first` come as events.
    ///
    /// A server that does not take commands ahead of its replies is talked to in lock-step. A login over GSSAPI waits for
    /// each of its tokens, and for nothing else.
    pub async fn dial(target: &Target, options: &SessionOptions, first: &[Op]) -> Result<(Self, Vec<OpId>), Fault> {
        match Self::attempt(target, options, first).await {
            Err((fault, _)) if lacks_tls(target, &fault) && options.trust.has_met(target) => {
                let why = "it offers no TLS, and has before: somebody in between may hide that. If it is so, remove it from \
                           the known hosts, or use ftp://";
                Err(Fault { code: FaultCode::PeerIdentity, ..fault }.detail(why))
            }
            // Who has no password has nothing to lose; others are told that the server offers no TLS.
            Err((fault, _))
                if lacks_tls(target, &fault) && target.user.is_none() && !options.trust.shown.insists(target) =>
            {
                tracing::warn!(%target, "the server offers no TLS: what is said to it can be read on the way");
                let clear = Target { security: Security::Clear, ..target.clone() };
                let (remote, ops) = Box::pin(Self::dial(&clear, options, first)).await?;
                Ok((Self { target: target.clone(), ..remote }, ops))
            }
            Err((fault, _)) if options.trust.shown.went_too_far(&options.trust.grid, target, &fault) => {
                tracing::warn!(%target, %fault, "what lies here to log in with is not taken there: going on without it");
                let plain = SessionOptions { trust: options.trust.named_only(), ..options.clone() };
                Box::pin(Self::dial(target, &plain, first)).await
            }
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
        // Before the server waits: a person may have to be asked for a pass phrase.
        let login = match target.security {
            Security::Gsi => Some(Login::begin(target, options).await.map_err(|fault| (fault, false))?),
            _ => None,
        };
        let token = options.trust.shown.token(target).map_err(|fault| (fault, false))?;
        let mut channel = Channel::connect(target, options).await.map_err(|fault| (fault, false))?;
        if target.security == Security::ImplicitTls {
            let handshake = options.trust.towards(target);
            handshake.and_then(|handshake| channel.start_tls(handshake)).map_err(|fault| (fault, false))?;
        }
        let mut remote = Self::new(channel, target, options);
        remote.token = token;
        let begun = remote.begin(login, first).await;
        match begun {
            Ok(ops) => Ok((remote, ops)),
            Err(fault) => {
                // Nothing but the exchange of tokens has been given to the machine then: what waits behind a refused AUTH
                // must never go out. A server that cannot be told learns from the closed connection.
                if remote.exchange.is_some() {
                    let _told = timeout(FAREWELL, remote.flush()).await;
                }
                // Before it is judged: what ssh says is the end, and not asked for again.
                let fault = remote.channel.explain(fault).await;
                let broke =
                    matches!(fault.code, FaultCode::ConnectionLost | FaultCode::TimedOut | FaultCode::PeerMisbehaved);
                let fault = if fault.subject.is_empty() || broke { fault.subject(target.to_string()) } else { fault };
                Err((fault, broke))
            }
        }
    }

    async fn begin(&mut self, login: Option<(Login, Vec<u8>)>, first: &[Op]) -> Result<Vec<OpId>, Fault> {
        if let Some((login, token)) = login {
            let [auth, adat] = auth_gssapi(&token).map(|order| order.command);
            let asks = vec![
                Ask::new(auth, Step::Mechanism, ASK_FOR_GSSAPI, b""),
                Ask::new(adat, Step::Token, login.op(), b""),
            ];
            self.exchange = Some(login);
            self.send(EXCHANGE, asks)?;
            self.finish(EXCHANGE).await?;
        }
        self.prelude()?;
        let first = first.iter().map(|op| self.submit(self.suited(op))).collect::<Result<_, _>>()?;
        self.finish(LOGIN).await?;
        Ok(first)
    }

    fn prelude(&mut self) -> Result<(), Fault> {
        if self.target.security == Security::Tls {
            let auth = Command::Auth(b"TLS".to_vec());
            self.send(LOGIN, vec![Ask::new(auth, Step::Secure, "ask for TLS", b"")])?;
        }
        let wrapped = self.channel.wrapped().is_some();
        let known = wrapped || self.token.is_some() || self.options.trust.shown.insists(&self.target);
        let nobody = if known { MAPPED } else { "anonymous" };
        let user = self.target.user.as_deref().unwrap_or(nobody).as_bytes().to_vec();
        let password = match (&self.target.password, &self.token) {
            // What counts is the certificate or ticket, and a stray password is none of the server's business.
            _ if wrapped => "dummy",
            (Some(password), _) => password.0.as_str(),
            (None, Some(token)) => token.secret(),
            (None, None) => "whimbrel@",
        };
        let pass = Command::Pass(Secret(password.as_bytes().to_vec()));
        let scheme = match self.target.security {
            Security::Gsi => "gsiftp",
            Security::Ssh => "sshftp",
            _ => "ftp",
        };
        let info = [("scheme", scheme), ("appname", "whimbrel"), ("appver", &self.options.version)]
            .map(|(key, value)| (key.to_owned(), value.as_bytes().to_vec()));
        let label = self.options.label.as_ref().map(|label| Site::TaskId(label.as_bytes().to_vec()));
        let label = label.map(|label| Ask::new(Command::Site(label), Step::Quiet, "name the task", b""));
        let by_ticket = || self.ticket().map(|ticket| ticket.principal.clone());
        let who = self.credential().map(|own| own.identity.clone()).or_else(by_ticket).or_else(|| self.token());
        let who = match (who, &self.target.user) {
            (Some(who), None) => who.into_bytes(),
            (Some(who), Some(user)) => format!("{who} as {user}").into_bytes(),
            (None, _) => user.clone(),
        };
        // A server that takes no passwords in clear can refuse only before it has one.
        let is_exposed = self.target.security == Security::Clear && self.target.password.is_some();
        let by_name = if is_exposed { Step::UserFirst } else { Step::User };
        let asks = [
            Ask::new(Command::User(user), by_name, "log in", &who),
            Ask::new(pass, Step::Pass, "log in", &who),
            Ask::new(Command::Feat, Step::Features, "ask for features", b""),
            Ask::new(Command::Site(Site::ClientInfo(info.to_vec())), Step::Quiet, "introduce", b""),
        ];
        let last = Ask::plain(Command::Type(TransferType::Image), "set binary type", b"");
        self.send(LOGIN, asks.into_iter().chain(label).chain([last]).collect())
    }

    /// The server is ours, as far as its greeting tells; what it can do is known from FEAT only.
    fn may_be_ours(&self) -> bool {
        self.greeting.contains("Whimbrel")
    }

    /// An operation that is sent before it is known what the server can do: at a grid server of another kind a data handle
    /// is protected by what was handed on.
    fn suited(&self, op: &Op) -> Op {
        match op {
            Op::Passive { striped, family, params } if self.handed_on() && !self.may_be_ours() => {
                let level = if params.shield == Shield::Nonce { Level::Private } else { Level::Clear };
                let shield = Shield::Gsi { peer: GsiPeer::Own, level };
                let mut params = params.clone();
                (params.nonce, params.shield) = (None, shield);
                Op::Passive { striped: *striped, family: *family, params }
            }
            other => other.clone(),
        }
    }

    /// The reply to AUTH GSSAPI.
    pub(super) fn mechanism_reply(&self, reply: &Reply) -> Result<(), Fault> {
        if reply.code == 334 {
            return Ok(());
        }
        let fault = Fault::new(FaultCode::PeerIncompatible, ASK_FOR_GSSAPI).subject(self.target.to_string());
        let said = format!("{} {}", reply.code, reply::text(reply));
        let proofs = self.exchange.as_ref().map_or("GSSAPI", Login::word);
        Err(fault.side(Side::Peer).detail(format!("the server lets nobody in with {proofs}: {said}")))
    }

    /// A reply to ADAT.
    pub(super) fn token_reply(&mut self, reply: &Reply) -> Result<(), Fault> {
        let is_spared = self.options.delegate == HandOn::AsNeeded && self.may_be_ours();
        let Some(login) = &mut self.exchange else { return Err(unasked()) };
        if is_spared {
            login.hand_on_nothing();
        }
        match login.step(reply, &self.target) {
            Ok(Some(token)) => self.send_token(&token),
            Ok(None) => {
                let wrapped = self.exchange.take().ok_or_else(unasked)?.finish()?;
                self.channel.start_wrapping(wrapped)?;
                self.machine.secured(Instant::now());
                self.done(EXCHANGE, Ok(Outcome::Done));
                Ok(())
            }
            Err(fault) => {
                if let Some(alert) = login.alert() {
                    // It is the last thing that is said; where no token is due, the closed connection has to do.
                    let _told = self.send_token(&alert);
                }
                Err(fault)
            }
        }
    }

    fn send_token(&mut self, token: &[u8]) -> Result<(), Fault> {
        let name = self.exchange.as_ref().map_or(ASK_FOR_GSSAPI, Login::op);
        self.machine
            .adat(Instant::now(), token)
            .map_err(|error| Fault::new(FaultCode::PeerMisbehaved, name).side(Side::Peer).detail(error.to_string()))?;
        // It overtakes all that waits, and nothing else is in flight.
        self.pending.push_front(Pending { op: EXCHANGE, step: Step::Token, name, subject: Vec::new() });
        Ok(())
    }
}

fn unasked() -> Fault {
    Fault::new(FaultCode::PeerMisbehaved, ASK_FOR_GSSAPI).side(Side::Peer).detail("no token was asked for")
}

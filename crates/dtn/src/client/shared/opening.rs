//! How sessions of a copy are opened.

use std::time::Duration;

use tokio::time::timeout;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::op::{Op, OpId};

use super::{Route, Shared};
use crate::client::end::End;
use crate::client::local::LocalData;
use crate::client::options::DataCredential;
use crate::client::pair::{Early, Pair, Role, fresh_nonce, listening};
use crate::client::remote::Remote;
use crate::client::target::{HandOn, SessionOptions, Target};

/// How long rules are waited for: a server that cannot be reached is tried again by whoever has work for it.
const RULES: Duration = Duration::from_secs(10);

/// An end's server with what it was asked along with the login; `None`: this host.
pub type LoggedIn = Option<(Remote, Vec<OpId>)>;

impl Shared {
    /// Learns the administrators' rules of both ends before anything is decided about their files. The sessions that this takes
    /// are left for the first transfer.
    pub async fn learn_rules(&self, route: &Route) {
        let rules = &self.dtns.rules;
        if [&route.source, &route.destination].iter().all(|target| rules.are_known(target.as_ref())) {
            return;
        }
        match timeout(RULES, self.new_pair(route)).await {
            Ok(Ok(pair)) if self.prepared.borrow().is_none() => self.leave_prepared(route.clone(), pair),
            Ok(Ok(_)) => {}
            Ok(Err(fault)) => tracing::debug!(%fault, "nobody tells rules"),
            Err(_) => tracing::debug!("nobody tells rules in time"),
        }
    }

    /// Leaves a pair for the first session that wants this route.
    pub fn leave_prepared(&self, route: Route, pair: Pair) {
        *self.prepared.borrow_mut() = Some((route, pair));
    }

    /// A pair of ends, logged in.
    pub async fn open_pair(&self, route: &Route) -> Result<Pair, Fault> {
        let mut pair = self.new_pair(route).await?;
        pair.stream_only |= self.stream_only.borrow().contains(route);
        Ok(pair)
    }

    async fn new_pair(&self, route: &Route) -> Result<Pair, Fault> {
        let prepared = self.prepared.borrow_mut().take_if(|(prepared, _)| prepared == route);
        if let Some((_, pair)) = prepared {
            return Ok(pair);
        }
        let nonce = Some(fresh_nonce()?);
        let [source, mut destination] = self.log_in(route, [&[], &[]], nonce).await?;
        let early = asked_early(&mut destination, nonce).await?;
        self.complete(source.map(|(end, _)| end), destination.map(|(end, _)| end), early).await
    }

    /// Logs in at both ends, with operations for the source and the destination sent along. The listener of `nonce` comes last at the
    /// destination ([`asked_early`]): asked so, it costs no round trip of its own.
    pub async fn log_in(
        &self,
        route: &Route,
        [source, destination]: [&[Op]; 2],
        nonce: Option<[u8; 16]>,
    ) -> Result<[LoggedIn; 2], Fault> {
        let mut destination = destination.to_vec();
        destination.extend(nonce.map(|nonce| self.wish.listener(nonce)));
        let (source, destination) = tokio::join!(
            self.open_server(route, Role::Source, source),
            self.open_server(route, Role::Destination, &destination),
        );
        Ok([source?, destination?])
    }

    /// The server in a role, logged in, with the first operations sent along; `None` for this host.
    pub async fn open_server(&self, route: &Route, role: Role, first: &[Op]) -> Result<LoggedIn, Fault> {
        let Some(target) = route.target(role) else { return Ok(None) };
        // Where the other end is known already, what the first session had to be made anew for is right at once.
        let other = route.target(role.other()).filter(|_| self.may_need_rights());
        let needed = other.is_some_and(|other| self.dtns.lack_nonces(other, self.wish.encrypt));
        let delegate = if needed { self.rights() } else { self.options.session.delegate };
        self.dial(target, role, delegate, first).await.map(Some)
    }

    /// Whether data connections show what was handed on where nonces do not do.
    fn may_need_rights(&self) -> bool {
        self.options.session.delegate == HandOn::AsNeeded && self.wish.credential == DataCredential::Usual
    }

    /// What a server is handed on that needs something, whoever it is.
    fn rights(&self) -> HandOn {
        HandOn::Always(self.options.session.delegate.most())
    }

    /// Logs in anew at a server that was handed on nothing, if it turns out to need something for its data connections with the other
    /// end. Whether it has done so.
    async fn complete_rights(
        &self,
        role: Role,
        server: &mut Option<Remote>,
        other: Option<&Remote>,
    ) -> Result<bool, Fault> {
        let lacks_nonces = |remote: &Remote| !remote.proves_by_nonce(self.wish.encrypt);
        let shows = |other: &Remote| lacks_nonces(other) && other.credential().is_some();
        let spared = server.as_ref().filter(|server| self.may_need_rights() && server.was_spared());
        let Some(needs) = spared.filter(|server| lacks_nonces(server) || other.is_some_and(shows)) else {
            return Ok(false);
        };
        let target = needs.target.clone();
        *server = Some(self.dial(&target, role, self.rights(), &[]).await?.0);
        Ok(true)
    }

    async fn dial(
        &self,
        target: &Target,
        role: Role,
        delegate: HandOn,
        first: &[Op],
    ) -> Result<(Remote, Vec<OpId>), Fault> {
        let session = SessionOptions { delegate, ..self.options.session.clone() };
        let dialled = async {
            let (mut remote, asked) = self.dtns.dial(target, &session, first).await?;
            self.dtns.rules.learn(&mut remote).await?;
            Ok((remote, asked))
        };
        dialled.await.map_err(|fault: Fault| fault.side_if_unknown(role.side()))
    }

    /// Puts a local end wherever there is no server; it uses the address under which it reaches the server. `early`: the listener that
    /// the destination opened along with its login.
    pub async fn complete(
        &self,
        mut source: Option<Remote>,
        mut destination: Option<Remote>,
        early: Option<Early>,
    ) -> Result<Pair, Fault> {
        destination.iter().for_each(|remote| self.hosts.met(remote));
        self.complete_rights(Role::Source, &mut source, destination.as_ref()).await?;
        let is_new = self.complete_rights(Role::Destination, &mut destination, source.as_ref()).await?;
        let known = |end: &Option<Remote>| {
            (end.as_ref().map(Remote::addresses), end.as_ref().and_then(Remote::credential).cloned())
        };
        let (by_source, by_destination) = (known(&source), known(&destination));
        let source = match source {
            Some(remote) => End::Remote(Box::new(remote)),
            None => End::Local(self.local().await?.attach(by_destination.0, by_destination.1)?),
        };
        let destination = match destination {
            Some(remote) => End::Remote(Box::new(remote)),
            None => End::Local(self.local().await?.attach(by_source.0, by_source.1)?),
        };
        let mut pair = Pair::new(source, destination);
        pair.relays.clone_from(&self.relays);
        pair.early = early.filter(|_| !is_new);
        Ok(pair)
    }

    /// One end for listings and questions. A server is asked `first` along with the login; the number of operations that
    /// were asked comes, too.
    pub async fn open_lister(&self, target: Option<&Target>, role: Role, first: &[Op]) -> Result<(End, usize), Fault> {
        let Some(target) = target else { return Ok((End::Local(self.local().await?.attach(None, None)?), 0)) };
        let (remote, asked) = match first.iter().any(|op| matches!(op, Op::Listing(_))) {
            // A listing is read as it is used, because it may be longer than memory: nothing may be asked behind it here.
            true => {
                let dialled = self.dtns.dial(target, &self.options.session, first).await;
                dialled.map_err(|fault| fault.side_if_unknown(role.side()))?
            }
            false => self.dial(target, role, self.options.session.delegate, first).await?,
        };
        Ok((End::Remote(Box::new(remote)), asked.len()))
    }

    async fn local(&self) -> Result<&LocalData, Fault> {
        self.local.get_or_try_init(|| LocalData::start(&self.options.local)).await
    }
}

/// The listener of `nonce` that was asked for along with the login, once everything before it is answered.
pub async fn asked_early(destination: &mut LoggedIn, nonce: Option<[u8; 16]>) -> Result<Option<Early>, Fault> {
    match (destination, nonce) {
        (Some((remote, asked)), Some(nonce)) => match asked.last() {
            Some(&passive) => early_listener(remote, passive, nonce).await,
            None => Ok(None),
        },
        _ => Ok(None),
    }
}

/// The listener asked for ahead; `None` when the server has no extended block mode, say.
async fn early_listener(remote: &mut Remote, passive: OpId, nonce: [u8; 16]) -> Result<Option<Early>, Fault> {
    match remote.finish(passive).await {
        Ok(outcome) => {
            let nonce = remote.nonce_accepted().then_some(nonce);
            Ok(Some(Early { addresses: listening(outcome)?, nonce, shield: remote.shield().clone() }))
        }
        Err(fault) if matches!(fault.code, FaultCode::ConnectionLost | FaultCode::TimedOut) => {
            Err(fault.side_if_unknown(Side::Destination))
        }
        Err(_) => Ok(None),
    }
}

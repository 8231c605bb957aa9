//! What all control connections of a DTN share.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::sync::Arc;

use openssl::x509::X509;
use tokio::sync::Semaphore;
use whimbrel_engine::guard::Visitor;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::rules::LoginRules;
use whimbrel_proto::server::{ChecksumAlgorithm, LoginOutcome, Mechanisms, Secret, ServerConfig};
use whimbrel_trust::roots::ClientsOfAuthorities;
use whimbrel_trust::tls::{Clients, ControlTls};
use whimbrel_trust::{PeerJudge, TrustFault};

use super::access::Guest;
use super::certificate::CertificateFiles;
use super::connection::Ends;
use super::dataside::DataSide;
use super::gate::Gate;
use super::gssapi::{self, Grid};
use super::guard::{Guard, Refused};
use super::kerberos::Keys;
use super::metrics::Metrics;
use super::plane::Plane;
use super::relay::Relay;
use super::tokens::Tokens;
use super::users::verify_password;
use super::wire::Wire;
use crate::monitor::message::{Claim, ClientAuthorities, FrontSettings, MappedAccount, PasswordEntry};
use crate::mover::message::{Identity, Secrets};
use crate::start;

/// Checksums that every data side computes, with the preference told to clients (lower is better).
const CHECKSUMS: &[(&str, u16)] = &[
    ("MD5", 10),
    ("ADLER32", 10),
    ("SHA1", 10),
    ("SHA256", 11),
    ("SHA512", 12),
    ("XXH3_128", 5),
    ("CRC32C", 6),
    ("BLAKE3", 7),
];

/// What leaves have besides, in the same spelling.
const LEAF_CHECKSUMS: &[&str] = &["BLAKE3_TREE"];

/// Passwords verified at once: each takes 19 MiB and tens of milliseconds of a processor.
const VERIFIED_AT_ONCE: usize = 2;

/// Logins that may wait for that.
const MOST_WAITING: usize = 64;

/// The user name with which grid clients ask for the usual account of their certificate (GCT practice).
pub(super) const USUAL_ACCOUNT: &str = ":globus-mapping:";

/// The client of a connection that this server made itself: nobody's address, where nothing ever arrives (RFC 6666). Without one it would count as this host.
const NOBODY: SocketAddr = SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 0), 0, 0, 0));

/// What somebody shows at login.
pub enum Shown {
    /// A password.
    Password(Secret),
    /// The token of an accepted issuer, in the place of a password.
    Token(Secret),
    /// What a handshake has proven.
    Claim(Claim),
    /// A login as the account that runs this process, which ssh has made.
    Process,
}

fn address(ends: Ends) -> Option<IpAddr> {
    ends.peer.map(|peer| peer.ip())
}

/// A DTN's settings, logins and data side.
pub struct Server {
    settings: FrontSettings,
    gate: Arc<Gate>,
    /// TLS, if there is a certificate to show.
    control: Option<ControlTls>,
    /// Logins with certificates and Kerberos, if there are any.
    gssapi: gssapi::Mechanisms,
    /// Logins with tokens, if there are any.
    tokens: Option<Arc<Tokens>>,
    /// The one connection comes over ssh, which has made the login.
    ssh: bool,
    /// Joins data connections of others, where it does.
    relay: Option<Relay>,
    verifying: Semaphore,
    waiting: Semaphore,
    /// Data processes and nodes.
    pub data_side: Arc<DataSide>,
    /// Counters.
    pub metrics: Metrics,
    /// Which start of which host this is.
    start: Option<String>,
    /// Who may come in.
    pub guard: Arc<Guard>,
}

impl Server {
    /// A server that asks `gate` for accounts and data processes.
    ///
    /// # Errors
    /// `CredentialRejected` if its certificate cannot be used.
    pub fn new(settings: FrontSettings, gate: Gate) -> Result<Self, Fault> {
        let gate = Arc::new(gate);
        let grid = settings.gsi.as_ref().map(Grid::new).transpose()?;
        let tokens = (!settings.tokens.is_empty()).then(|| Arc::new(Tokens::new(&settings.tokens, gate.clone())));
        let clients = clients(settings.clients.as_ref(), grid.as_ref())?;
        let certificate = settings.certificate.as_ref().map(CertificateFiles::chain).transpose()?;
        let control = certificate.map(|own| ControlTls::new(&own, &clients)).transpose();
        Ok(Self {
            tokens,
            gssapi: gssapi::Mechanisms::new(grid),
            control: control.map_err(|fault| fault.into_fault("begin TLS", Side::Us))?,
            data_side: Arc::new(DataSide::new(gate.clone(), settings.data.clone())),
            gate,
            verifying: Semaphore::new(VERIFIED_AT_ONCE),
            waiting: Semaphore::new(MOST_WAITING),
            ssh: false,
            relay: None,
            start: start::of_this_host(),
            metrics: Metrics::default(),
            guard: Arc::new(Guard::new(settings.doors.clone())),
            settings,
        })
    }

    /// The same for one connection that comes over ssh: whoever is there may act as the account that runs this process.
    pub fn over_ssh(self) -> Self {
        Self { ssh: true, ..self }
    }

    /// The same with a process that joins data connections of others.
    pub(super) fn with_relay(self, relay: Option<Relay>) -> Self {
        Self { relay, ..self }
    }

    /// The way to that process, if there is one.
    pub(super) fn relay(&self) -> Option<&Relay> {
        self.relay.as_ref()
    }

    /// True where ssh has made the login.
    pub(super) fn is_over_ssh(&self) -> bool {
        self.ssh
    }

    /// What the administrator decided.
    pub fn settings(&self) -> &FrontSettings {
        &self.settings
    }

    /// Begins to do ahead of time what logins would have to wait for; once.
    pub fn make_ready(&self) {
        if let Some(grid) = &self.gssapi.grid {
            grid.make_ready(self.settings.one);
        }
    }

    /// Logs what an open server means.
    pub fn warn_about_openness(&self) {
        if self.settings.anonymous {
            tracing::warn!(
                read_only = self.settings.read_only,
                "anonymous access is on: anybody who reaches this server can use it, also as the other end of third-party copies"
            );
        }
    }

    /// TLS for one connection; `None` where the administrator gave no certificate.
    pub(super) fn tls(&self) -> Option<Result<Wire, TrustFault>> {
        self.control.as_ref().map(Wire::tls)
    }

    /// A connection is inside TLS.
    pub(super) fn tls_stands(&self, wire: &mut Wire, resumed: bool) {
        self.metrics.count_handshake(resumed);
        if let Some(control) = &self.control {
            wire.stands(control);
        }
    }

    /// The same with keys for logins with Kerberos, which have to be loaded before a process confines itself.
    pub fn with_kerberos(mut self, keys: Option<Keys>) -> Self {
        self.gssapi.kerberos = keys;
        self
    }

    /// Logins with certificates and Kerberos.
    pub(super) fn gssapi(&self) -> &gssapi::Mechanisms {
        &self.gssapi
    }

    fn mechanisms(&self) -> Mechanisms {
        let clear_text_passwords = self.settings.clear_text_passwords;
        Mechanisms {
            tls: self.control.is_some(),
            gssapi: self.gssapi.are_there(),
            ssh: self.is_over_ssh(),
            clear_text_passwords,
            private_data: self.settings.encrypt_data,
        }
    }

    /// What a client knows this host by that came to `local`: the configured address is no substitute for one of the other
    /// family, where EPSV tells a port alone (RFC 2428 §3).
    fn told_address(&self, local: Option<IpAddr>) -> Option<IpAddr> {
        let is_v4 = |ip: IpAddr| ip.to_canonical().is_ipv4();
        let configured = self.settings.data_address.filter(|told| local.is_none_or(|ip| is_v4(ip) == is_v4(*told)));
        configured.or(local)
    }

    /// Settings of a new connection's control machine.
    pub fn control_config(&self, local: Option<SocketAddr>) -> ServerConfig {
        ServerConfig {
            host: self.settings.host.clone(),
            banner: self.settings.banner.clone(),
            control_address: self.told_address(local.map(|address| address.ip())),
            login_timeout: self.settings.login_timeout,
            idle_timeout: self.settings.idle_timeout,
            anonymous: self.settings.anonymous,
            mechanisms: self.mechanisms(),
            read_only: self.settings.read_only,
            announce_get_put: self.settings.announce_get_put,
            outbound: self.settings.outbound,
            relay: self.relay.is_some(),
            probe: ServerConfig::default().probe.filter(|_| self.settings.probe),
            congestion: crate::congestion::own_first(self.settings.data.congestion.as_deref()),
            start: self.start.clone(),
            processors: self.data_side.nodes.ready().is_empty().then_some(self.settings.processors),
            rules: self.settings.rules.clone(),
            checksums: CHECKSUMS.iter().map(|(name, preference)| ChecksumAlgorithm::new(name, *preference)).collect(),
            leaf_checksums: LEAF_CHECKSUMS.iter().map(|name| (*name).to_owned()).collect(),
            ..ServerConfig::default()
        }
    }

    /// Checks a login and attaches its data side; `Ok(None)`: refused. `until`: end of what was shown, in seconds since 1970.
    pub async fn log_in(
        self: &Arc<Self>,
        name: &str,
        shown: Shown,
        ends: Ends,
        secrets: Secrets,
        until: Option<i64>,
    ) -> Result<Option<(String, Plane)>, Fault> {
        let Some((user, account, rules)) = self.identify(name, shown, ends).await? else {
            return Ok(None);
        };
        let unknown = || Fault::new(FaultCode::ServerBusy, "log in").subject(&user).detail("groups cannot be told");
        let groups = account.groups.as_deref().ok_or_else(unknown)?;
        let guest = Guest { user: &user, groups, address: address(ends), shared: rules.paths.is_guest() };
        let pace = self.settings.access.logins_per_minute(guest);
        let rules = self.settings.access.of(guest).and(&rules).and(&LoginRules { until, ..LoginRules::unlimited() });
        let counted = self.guard.may_log_in(&user, pace);
        let counted = counted.and_then(|()| self.guard.log_in(ends.visitor, &user, rules.connections));
        counted.map_err(|refusal| {
            Fault::new(FaultCode::TooManyAttempts, "log in").subject(&user).detail(refusal.to_string())
        })?;
        let identity = Identity {
            user: user.clone(),
            login: Identity::new_login(),
            control_peer: ends.peer.or(ends.made_here.then_some(NOBODY)),
            control_local: ends.local,
            data_peers: self.settings.data_peers.clone(),
            secrets,
            rules,
        };
        let plane = Plane::attach(self.data_side.clone(), account, identity).await?;
        Ok(Some((user, plane)))
    }

    /// A connection is as before its login.
    pub fn log_out(&self, visitor: Option<Visitor>) {
        self.guard.log_out(visitor);
    }

    /// The verdict on a login that is not heard because of the bad ones before it; `guess`: the user whose password may be one.
    ///
    /// Certificates, tickets and tokens cannot be guessed, and one transfer service shows those of many users from one address, some of
    /// them expired: they never wait.
    pub(super) fn throttled(&self, ends: Ends, guess: Option<&str>) -> Option<LoginOutcome> {
        let wait = self.guard.wait(address(ends), Some(guess?));
        if wait.is_zero() {
            return None;
        }
        let seconds = wait.as_secs() + 1;
        if let Some(left_out) = self.guard.refused(Refused::Login) {
            tracing::warn!(peer = ?ends.peer, user = guess, seconds, left_out, "login refused unheard");
        }
        Some(LoginOutcome::Unavailable(format!("Too many failed logins: try again in {seconds} seconds.")))
    }

    /// Remembers how a login went.
    pub(super) fn remember<T>(&self, ends: Ends, guess: Option<&str>, result: &Result<Option<(String, T)>, Fault>) {
        match result {
            Ok(Some((user, _))) => self.guard.succeeded(address(ends), user),
            Ok(None) if guess.is_some() => self.guard.failed(address(ends), guess),
            Ok(None) | Err(_) => {}
        }
    }

    /// True if somebody whose certificate leads to no account may show something else.
    pub(super) fn takes_passwords(&self) -> bool {
        self.settings.passwords || self.settings.anonymous || self.tokens.is_some()
    }

    async fn identify(
        &self,
        name: &str,
        shown: Shown,
        ends: Ends,
    ) -> Result<Option<(String, MappedAccount, LoginRules)>, Fault> {
        match shown {
            Shown::Token(token) => self.by_token(name, &token).await,
            Shown::Password(password) => {
                let found = self.by_password(name, password, ends).await?;
                Ok(found.map(|(user, account)| (user, account, LoginRules::unlimited())))
            }
            // Whatever name comes with USER: clients send one of their own making (GCT practice).
            Shown::Process => {
                Ok(self.gate.own()?.map(|account| (account.name.clone(), account, LoginRules::unlimited())))
            }
            Shown::Claim(claim) => {
                let account = self.gate.claim(claim, self.wanted(name)).await?;
                Ok(account.map(|account| (account.name.clone(), account, LoginRules::unlimited())))
            }
        }
    }

    /// The account that a name asks for; where nobody is anonymous, clients say so that have no name to give.
    fn wanted(&self, name: &str) -> Option<String> {
        let usual = name == USUAL_ACCOUNT || (!self.settings.anonymous && matches!(name, "anonymous" | "ftp"));
        (!usual).then(|| name.to_owned())
    }

    /// What came as a password, which may be a token.
    pub(super) fn shown(&self, password: Secret) -> Shown {
        match self.tokens.is_some() && Tokens::is_token(&password) {
            true => Shown::Token(password),
            false => Shown::Password(password),
        }
    }

    async fn by_token(&self, name: &str, token: &Secret) -> Result<Option<(String, MappedAccount, LoginRules)>, Fault> {
        let Some(tokens) = &self.tokens else { return Ok(None) };
        let accepted = tokens.judge(token).await?;
        let who = accepted.claim.name().to_owned();
        let account = self.gate.claim(accepted.claim, self.wanted(name)).await?;
        let account = account.ok_or_else(|| {
            let fault = Fault::new(FaultCode::NotAuthorized, "log in with a token").side(Side::Peer).subject(who);
            fault.detail("the token is good, but not mapped to an account here, or not to the one asked for")
        })?;
        Ok(Some((account.name.clone(), account, accepted.rules)))
    }

    async fn by_password(
        &self,
        name: &str,
        password: Secret,
        ends: Ends,
    ) -> Result<Option<(String, MappedAccount)>, Fault> {
        if self.settings.anonymous && matches!(name, "anonymous" | "ftp") {
            return Ok(self.gate.anonymous().await?.map(|account| ("anonymous".to_owned(), account)));
        }
        if !self.settings.passwords {
            return Ok(None);
        }
        let too_many = || Fault::new(FaultCode::TooManyAttempts, "verify password").detail("too many logins at once");
        let _place = self.waiting.try_acquire().map_err(|_| too_many())?;
        let _turn = self.verifying.acquire().await.map_err(|_| too_many())?;
        // Others may have failed since this one came: many guesses at once are no way around.
        if !self.guard.wait(address(ends), Some(name)).is_zero() {
            return Err(too_many());
        }
        let PasswordEntry { hash, account } = self.gate.password_user(name).await?;
        let matches = tokio::task::spawn_blocking(move || verify_password(&hash, &password.0))
            .await
            .map_err(|error| Fault::new(FaultCode::Internal, "verify password").detail(error.to_string()))?;
        Ok(account.filter(|_| matches).map(|account| (name.to_owned(), account)))
    }
}

/// Whether clients are asked for certificates in TLS, and who judges them.
fn clients(authorities: Option<&ClientAuthorities>, grid: Option<&Grid>) -> Result<Clients, Fault> {
    const OP: &str = "read tls.clients";
    let judge: Arc<dyn PeerJudge> = match (authorities, grid) {
        (None, _) => return Ok(Clients::Unasked),
        (Some(ClientAuthorities::Grid), Some(grid)) => grid.judge(),
        (Some(ClientAuthorities::Grid), None) => {
            let fault = Fault::new(FaultCode::InvalidArgument, OP).subject("gsi");
            return Err(fault.detail("there are no grid certificates here: --gsi, or clients = \"FILE\""));
        }
        (Some(ClientAuthorities::Pem(pem)), _) => {
            let found = X509::stack_from_pem(pem).map_err(|error| {
                Fault::new(FaultCode::CredentialRejected, OP).side(Side::Us).detail(error.to_string())
            })?;
            if found.is_empty() {
                let fault = Fault::new(FaultCode::CredentialMissing, OP).side(Side::Us);
                return Err(fault.detail("there is no certificate in it"));
            }
            Arc::new(ClientsOfAuthorities::new(found).map_err(|fault| fault.into_fault(OP, Side::Us))?)
        }
    };
    Ok(Clients::Welcome(judge))
}

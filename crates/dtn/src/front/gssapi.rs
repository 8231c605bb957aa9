//! AUTH GSSAPI with grid certificates or Kerberos: tokens of a login in, tokens and in the end an identity out.
//!
//! Chains are judged on threads of their own, few at a time: the front's runtime has one thread. Keys for delegation are made ahead by a
//! thread of the least priority.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Semaphore;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::server::{PeerView, Secret};
use whimbrel_proto::timeval::Timestamp;
use whimbrel_trust::clock::now;
use whimbrel_trust::gsi::acceptor::Accepted;
use whimbrel_trust::gsi::{AnchorStore, Expected, GsiAcceptor, GsiJudge, KeyPool, Organizations, Trusted};
use whimbrel_trust::krb5::{self, KerberosAcceptor};
use whimbrel_trust::tls::{ServerTls, TlsMachine};
use whimbrel_trust::wrap::Wrap;
use whimbrel_trust::{OwnChain, Peer, TrustFault, make};

use super::kerberos::Keys;
use crate::monitor::message::{Claim, GsiSettings};

const OP: &str = "log in with a certificate";

/// Nice value of threads whose work can wait (setpriority(2)).
const LEAST_PRIORITY: i32 = 19;

/// Tokens taken at once: a judgement takes milliseconds of a processor, a new key a hundred.
const AT_ONCE: usize = 2;

/// What all logins with certificates share.
pub struct Grid {
    judge: Arc<GsiJudge>,
    tls: ServerTls,
    keys: Arc<KeyPool>,
}

/// A login that is under way.
pub(super) enum Exchange {
    /// With certificates.
    Gsi(Box<GsiAcceptor>),
    /// With Kerberos.
    Kerberos(Box<KerberosAcceptor>),
}

/// What a token led to.
pub(super) enum Stepped {
    /// Send this; the next token belongs to the exchange.
    Continue(Vec<u8>, Exchange),
    /// Everything behind the reply goes through the machine.
    Established(Box<Established>),
    /// The login is over.
    Refused(TrustFault),
}

/// Who logged in.
pub(super) struct Established {
    pub(super) machine: Wrap,
    /// The last token, for the client.
    pub(super) token: Option<Vec<u8>>,
    pub(super) claim: Claim,
    pub(super) view: PeerView,
    /// What it handed on, PEM.
    pub(super) delegated: Option<Secret>,
    /// Earliest end of life in its chain, or of its ticket.
    pub(super) until: Timestamp,
}

impl Grid {
    /// Reads certificate and authorities.
    ///
    /// # Errors
    /// `CredentialRejected` and `CredentialMissing` for those that cannot be used.
    pub fn new(settings: &GsiSettings) -> Result<Self, Fault> {
        let own = settings.certificate.chain()?;
        Self::with(&own, path(&settings.authorities), path(&settings.vomsdir))
            .map_err(|fault| fault.into_fault("configure", Side::Us))
    }

    fn with(own: &OwnChain, authorities: &Path, vomsdir: &Path) -> Result<Self, TrustFault> {
        let store = Arc::new(AnchorStore::open(authorities, Instant::now())?);
        let organizations = Some(Arc::new(Organizations::load(vomsdir)?));
        let judge = GsiJudge { organizations, ..GsiJudge::new(Trusted::Directory(store), Expected::Anybody) };
        let judge = Arc::new(judge);
        let tls = ServerTls::gsi(own, judge.clone())?;
        Ok(Self { judge, tls, keys: Arc::default() })
    }

    /// Who judges the certificates of clients.
    pub(super) fn judge(&self) -> Arc<GsiJudge> {
        self.judge.clone()
    }

    /// Makes keys for delegations to come from now on, in the background; one key where there is but `one` login.
    pub(super) fn make_ready(&self, one: bool) {
        let keys = self.keys.clone();
        let made = std::thread::Builder::new().name("keys".into()).spawn(move || make_keys(&keys, one));
        if let Err(error) = made {
            tracing::warn!(%error, "keys for delegations are made when they are wanted: logins take longer");
        }
    }

    fn begin(&self) -> Result<Exchange, TrustFault> {
        Ok(Exchange::Gsi(Box::new(GsiAcceptor::new(&self.tls, self.keys.clone())?)))
    }
}

/// Behind other work: a key takes a fifth of a second of a processor, and the data of the login that took the last one are moving. Where
/// the kernel weighs sessions, not threads (autogroup, sched(7)), and nothing else does, only the front's own threads come before it.
fn make_keys(keys: &KeyPool, one: bool) {
    if let Err(error) = rustix::process::setpriority_process(None, LEAST_PRIORITY) {
        tracing::debug!(%error, "keys for delegations are made at the usual priority");
    }
    loop {
        if let Err(fault) = keys.refill() {
            return tracing::error!(%fault, "no key can be made");
        }
        if one {
            return;
        }
    }
}

/// Mechanisms of AUTH GSSAPI; a client tells which one it means by its first token.
pub(super) struct Mechanisms {
    /// Certificates.
    pub(super) grid: Option<Grid>,
    /// Kerberos.
    pub(super) kerberos: Option<Keys>,
    turns: Semaphore,
}

impl Mechanisms {
    pub(super) fn new(grid: Option<Grid>) -> Self {
        Self { grid, kerberos: None, turns: Semaphore::new(AT_ONCE) }
    }

    /// True if there is one at all.
    pub(super) fn are_there(&self) -> bool {
        self.grid.is_some() || self.kerberos.is_some()
    }

    /// Takes a token, the first of an exchange where there is none yet.
    pub(super) async fn step(&self, exchange: Option<Exchange>, token: Secret) -> Stepped {
        self.try_step(exchange, token).await.unwrap_or_else(Stepped::Refused)
    }

    async fn try_step(&self, exchange: Option<Exchange>, token: Secret) -> Result<Stepped, TrustFault> {
        let exchange = exchange.map_or_else(|| self.begin(&token), Ok)?;
        let internal = |why: String| TrustFault::new(FaultCode::Internal, why);
        let _turn = self.turns.acquire().await.map_err(|error| internal(error.to_string()))?;
        let stepped = tokio::task::spawn_blocking(move || exchange.step(&token));
        stepped.await.map_err(|error| internal(error.to_string()))?
    }

    fn begin(&self, first: &Secret) -> Result<Exchange, TrustFault> {
        let none =
            |what: &str| TrustFault::new(FaultCode::NotSupported, format!("this server knows no logins with {what}"));
        match krb5::is_first_token(&first.0) {
            true => {
                let keys = self.kerberos.as_ref().ok_or_else(|| none("Kerberos"))?;
                Ok(Exchange::Kerberos(Box::new(KerberosAcceptor::new(keys.server()))))
            }
            false => self.grid.as_ref().ok_or_else(|| none("certificates"))?.begin(),
        }
    }
}

impl Exchange {
    fn step(self, token: &Secret) -> Result<Stepped, TrustFault> {
        match self {
            Self::Gsi(mut gsi) => match gsi.step(&token.0, now())? {
                Accepted::Continue(token) => Ok(Stepped::Continue(token, Self::Gsi(gsi))),
                Accepted::Established { peer, delegated } => {
                    let machine = gsi.into_tls();
                    by_certificate(machine, &peer, delegated.as_deref()).map(|who| Stepped::Established(Box::new(who)))
                }
            },
            Self::Kerberos(mut kerberos) => match kerberos.step(&token.0)? {
                krb5::Accepted::Continue(token) => Ok(Stepped::Continue(token, Self::Kerberos(kerberos))),
                krb5::Accepted::Established { principal, until, token } => {
                    let machine = Wrap::Kerberos(kerberos.into_seal());
                    Ok(Stepped::Established(Box::new(by_principal(machine, principal, until, token))))
                }
            },
        }
    }
}

fn by_certificate(machine: TlsMachine, peer: &Peer, delegated: Option<&OwnChain>) -> Result<Established, TrustFault> {
    let delegated = delegated.map(make::to_pem).transpose()?.map(|pem| Secret(pem.to_vec()));
    // Without rights of the client no data connection can prove to be its own.
    let view = PeerView { subject: peer.subject.clone(), suffices: true, gsi: delegated.is_some() };
    let claim = Claim::Certificate { subject: peer.subject.clone(), vo: peer.vo.clone() };
    let machine = Wrap::Tls(Box::new(machine));
    Ok(Established { machine, token: None, claim, view, delegated, until: peer.until })
}

fn by_principal(machine: Wrap, principal: String, until: Timestamp, token: Option<Vec<u8>>) -> Established {
    let view = PeerView { subject: principal.clone(), suffices: true, gsi: false };
    Established { machine, token, claim: Claim::Principal(principal), view, delegated: None, until }
}

/// What a refused client is told: it is its own certificate.
pub(super) fn reasons(fault: &TrustFault) -> Vec<String> {
    fault.clone().into_fault(OP, Side::Peer).to_string().lines().map(str::to_owned).collect()
}

fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

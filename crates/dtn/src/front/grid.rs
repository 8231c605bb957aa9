//! AUTH GSSAPI with grid certificates: tokens of a login in, tokens and in the end an identity out.
//!
//! Chains are judged and keys for delegation made on threads of their own, few at a time: the front's runtime has one thread.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::Semaphore;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::server::{PeerView, Secret};
use whimbrel_proto::timeval::Timestamp;
use whimbrel_trust::gsi::acceptor::Accepted;
use whimbrel_trust::gsi::{AnchorStore, Expected, GsiAcceptor, GsiJudge, KeyPool, Organizations, Trusted};
use whimbrel_trust::tls::{ServerTls, TlsMachine};
use whimbrel_trust::{OwnChain, Peer, TrustFault, make};

use crate::monitor::message::{Claim, GsiSettings};

const OP: &str = "log in with a certificate";

/// Tokens taken at once: a judgement takes milliseconds of a processor, a new key a hundred.
const AT_ONCE: usize = 2;

/// What all logins with certificates share.
pub struct Grid {
    judge: Arc<GsiJudge>,
    tls: ServerTls,
    keys: Arc<KeyPool>,
    turns: Semaphore,
}

/// A login that is under way.
pub(super) struct Exchange(GsiAcceptor);

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
    pub(super) machine: TlsMachine,
    pub(super) claim: Claim,
    pub(super) view: PeerView,
    /// What it handed on, PEM.
    pub(super) delegated: Option<Secret>,
    /// Earliest end of life in its chain.
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
        Ok(Self { judge, tls, keys: Arc::default(), turns: Semaphore::new(AT_ONCE) })
    }

    /// Who judges the certificates of clients.
    pub(super) fn judge(&self) -> Arc<GsiJudge> {
        self.judge.clone()
    }

    /// Makes keys for delegations to come, in the background.
    fn make_ready(&self) {
        let keys = self.keys.clone();
        tokio::task::spawn_blocking(move || {
            loop {
                match keys.refill() {
                    Ok(true) => {}
                    Ok(false) => return,
                    Err(fault) => return tracing::error!(%fault, "no key can be made"),
                }
            }
        });
    }

    /// Takes a token, the first of an exchange where there is none yet.
    pub(super) async fn step(&self, exchange: Option<Exchange>, token: Secret) -> Stepped {
        self.try_step(exchange, token).await.unwrap_or_else(Stepped::Refused)
    }

    async fn try_step(&self, exchange: Option<Exchange>, token: Secret) -> Result<Stepped, TrustFault> {
        let exchange = match exchange {
            Some(exchange) => exchange,
            None => {
                // So that there is one when the client hands on rights, two round trips later.
                self.make_ready();
                Exchange(GsiAcceptor::new(&self.tls, self.keys.clone())?)
            }
        };
        let internal = |why: String| TrustFault::new(FaultCode::Internal, why);
        let _turn = self.turns.acquire().await.map_err(|error| internal(error.to_string()))?;
        let stepped = tokio::task::spawn_blocking(move || exchange.step(&token));
        stepped.await.map_err(|error| internal(error.to_string()))?
    }
}

impl Exchange {
    fn step(mut self, token: &Secret) -> Result<Stepped, TrustFault> {
        match self.0.step(&token.0, now())? {
            Accepted::Continue(token) => Ok(Stepped::Continue(token, self)),
            Accepted::Established { peer, delegated } => {
                let machine = self.0.into_tls();
                established(machine, &peer, delegated.as_deref()).map(|who| Stepped::Established(Box::new(who)))
            }
        }
    }
}

fn established(machine: TlsMachine, peer: &Peer, delegated: Option<&OwnChain>) -> Result<Established, TrustFault> {
    let delegated = delegated.map(make::to_pem).transpose()?.map(|pem| Secret(pem.to_vec()));
    // Without rights of the client no data connection can prove to be its own.
    let view = PeerView { subject: peer.subject.clone(), suffices: true, gsi: delegated.is_some() };
    let claim = Claim::Certificate { subject: peer.subject.clone(), vo: peer.vo.clone() };
    Ok(Established { machine, claim, view, delegated, until: peer.until })
}

/// What a refused client is told: it is its own certificate.
pub(super) fn reasons(fault: &TrustFault) -> Vec<String> {
    fault.clone().into_fault(OP, Side::Peer).to_string().lines().map(str::to_owned).collect()
}

fn now() -> Timestamp {
    Timestamp::from_secs(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64))
}

fn path(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

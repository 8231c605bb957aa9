//! What the data connections of a login show with GSI, and whom they believe.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use openssl::x509::{X509, X509Ref};
use whimbrel_engine::FaultCode;
use whimbrel_proto::op::GsiPeer;
use whimbrel_proto::timeval::Timestamp;
use whimbrel_trust::clock::now;
use whimbrel_trust::credential;
use whimbrel_trust::gsi::peers::{Expected, GsiJudge, Trusted};
use whimbrel_trust::gsi::{AnchorStore, Anchors};
use whimbrel_trust::{OwnChain, PeerJudge, TrustFault};

use super::message::DataSettings;

/// The authorities that a data process believes: read when they are first needed, and again when they have changed.
///
/// [`Self::default`] is none.
#[derive(Default)]
pub struct Authorities {
    directory: Option<PathBuf>,
    store: Mutex<Option<Arc<AnchorStore>>>,
}

impl Authorities {
    /// Those of the administrator's directory; nothing is read yet.
    pub fn new(settings: &DataSettings) -> Self {
        let directory = settings.authorities.as_deref().map(|path| Path::new(OsStr::from_bytes(path)).to_owned());
        Self { directory, store: Mutex::default() }
    }

    /// Fails with `NotSupported` where no directory is configured, and as reading it does.
    fn store(&self) -> Result<Arc<AnchorStore>, TrustFault> {
        let Some(directory) = &self.directory else {
            let why = "no directory of trusted authorities is configured for data connections";
            return Err(TrustFault::new(FaultCode::NotSupported, why));
        };
        let mut store = self.store.lock().unwrap_or_else(PoisonError::into_inner);
        match &*store {
            Some(store) => Ok(store.clone()),
            // What fails now may be cured by the next time.
            None => Ok(store.insert(Arc::new(AnchorStore::open(directory, Instant::now())?)).clone()),
        }
    }

    /// Whom a login's data connections believe; who brought authorities needs no others.
    fn trusted(&self, brought: &[X509]) -> Result<Trusted, TrustFault> {
        if brought.is_empty() {
            return self.store().map(Trusted::Directory);
        }
        let others = match self.store() {
            Ok(store) => store.current(Instant::now()),
            Err(fault) => {
                tracing::debug!(%fault, "data connections believe only whom their user brought");
                Arc::default()
            }
        };
        let all: Anchors = others.and(brought.to_vec())?;
        Ok(Trusted::Fixed(Arc::new(all)))
    }
}

/// A credential for data connections that was judged as its peers will.
pub struct DataCredential {
    own: OwnChain,
    /// Whom it speaks for.
    subject: String,
    /// When the first certificate of its chain ends.
    until: Timestamp,
    /// Certificates that count as authorities beside those of the administrator.
    brought: Vec<X509>,
}

impl DataCredential {
    /// What the client handed on at login.
    ///
    /// Fails with `CredentialRejected` or `CredentialExpired`, naming the certificate.
    pub fn handed_on(pem: &[u8], authorities: &Authorities) -> Result<Self, TrustFault> {
        Self::judged(credential::from_pem(pem)?, Vec::new(), authorities)
    }

    /// What the client gave for data connections alone (DCSC P): the certificates in it are authorities, too.
    ///
    /// Fails like [`DataCredential::handed_on`].
    pub fn brought(pem: &[u8], authorities: &Authorities) -> Result<Self, TrustFault> {
        let own = credential::from_pem(pem)?;
        let mut brought = own.chain.clone();
        if brought.is_empty() {
            brought.push(own.certificate.clone());
        }
        Self::judged(own, brought, authorities)
    }

    fn judged(own: OwnChain, brought: Vec<X509>, authorities: &Authorities) -> Result<Self, TrustFault> {
        // Its own words about its life come first: a chain that has ended is refused for other reasons, too.
        credential::alive(&own, now())?;
        let judge = GsiJudge::new(authorities.trusted(&brought)?, Expected::Anybody);
        let above: Vec<&X509Ref> = own.chain.iter().map(AsRef::as_ref).collect();
        let peer = judge.judge(&own.certificate, &above)?;
        Ok(Self { own, subject: peer.subject, until: peer.until, brought })
    }

    /// Fails with `CredentialExpired` once its life is over.
    pub fn alive(&self) -> Result<(), TrustFault> {
        if now() <= self.until {
            return Ok(());
        }
        let fault = TrustFault::new(FaultCode::CredentialExpired, "the credential of data connections has expired");
        Err(fault.about(&self.subject).until(self.until))
    }

    /// What it shows.
    pub fn own(&self) -> &OwnChain {
        &self.own
    }

    /// The judge of the other ends of its connections.
    pub fn judge(&self, peer: &GsiPeer, authorities: &Authorities) -> Result<GsiJudge, TrustFault> {
        let subject = match peer {
            GsiPeer::Own => self.subject.clone(),
            GsiPeer::Subject(subject) => subject.clone(),
        };
        Ok(GsiJudge::new(authorities.trusted(&self.brought)?, Expected::Subject(subject)))
    }
}

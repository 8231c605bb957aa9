//! The certificate authorities of the operating system, as web browsers trust them.

use std::sync::Arc;

use openssl::error::ErrorStack;
use openssl::stack::Stack;
use openssl::x509::store::{X509Store, X509StoreBuilder};
use openssl::x509::{X509, X509PurposeId, X509Ref, X509StoreContext};
use whimbrel_engine::fault::FaultCode;
use whimbrel_proto::timeval::Timestamp;
use whimbrel_proto::x509::Certificate;

use crate::fault::TrustFault;
use crate::gsi::host::{self, Names};
use crate::peer::{Peer, PeerJudge};
use crate::pins::PinJudge;

/// Where the system keeps its authorities, as OpenSSL was built to know (SSL_CERT_FILE and SSL_CERT_DIR win).
#[derive(Clone)]
pub struct SystemRoots(Arc<X509Store>);

impl SystemRoots {
    /// Reads them.
    pub fn load() -> Result<Self, TrustFault> {
        built(X509PurposeId::SSL_SERVER, |store| store.set_default_paths())
    }

    /// Exactly these authorities.
    pub fn of(authorities: Vec<X509>) -> Result<Self, TrustFault> {
        Self::for_purpose(X509PurposeId::SSL_SERVER, authorities)
    }

    fn for_purpose(purpose: X509PurposeId, authorities: Vec<X509>) -> Result<Self, TrustFault> {
        built(purpose, |store| authorities.into_iter().try_for_each(|authority| store.add_cert(authority)))
    }

    /// Whether one of them vouches for a server's chain, its names aside; the reason otherwise.
    fn vouch(&self, leaf: &X509Ref, others: &[&X509Ref]) -> Result<Result<(), String>, ErrorStack> {
        let mut chain = Stack::new()?;
        for other in others {
            chain.push((*other).to_owned())?;
        }
        X509StoreContext::new()?.init(&self.0, leaf, &chain, |context| {
            Ok(if context.verify_cert()? { Ok(()) } else { Err(context.error().error_string().to_owned()) })
        })
    }
}

fn built(
    purpose: X509PurposeId,
    fill: impl FnOnce(&mut X509StoreBuilder) -> Result<(), ErrorStack>,
) -> Result<SystemRoots, TrustFault> {
    let build = || {
        let mut store = X509StoreBuilder::new()?;
        fill(&mut store)?;
        store.set_purpose(purpose)?;
        Ok(SystemRoots(Arc::new(store.build())))
    };
    build().map_err(|error: ErrorStack| internal(&error))
}

/// Believes a host that the system's authorities vouch for; any other by its pinned key.
pub struct HostJudge {
    roots: Option<SystemRoots>,
    host: String,
    /// For hosts outside of any authority's care.
    pub pins: PinJudge,
}

impl HostJudge {
    /// A judge of one host.
    pub fn new(roots: Option<SystemRoots>, host: &str, pins: PinJudge) -> Self {
        Self { roots, host: host.to_owned(), pins }
    }
}

impl PeerJudge for HostJudge {
    fn judge(&self, leaf: &X509Ref, others: &[&X509Ref]) -> Result<Peer, TrustFault> {
        if let Some(roots) = &self.roots
            && roots.vouch(leaf, others).map_err(|error| internal(&error))?.is_ok()
            && is_named(leaf, &self.host)?
        {
            return Ok(Peer {
                subject: format!("host {}", self.host),
                leaf: leaf.to_owned(),
                chain: others.iter().map(|&other| other.to_owned()).collect(),
                limited: false,
                until: Timestamp { secs: 0, nanos: 0 },
                vo: Vec::new(),
            });
        }
        self.pins.judge(leaf, others)
    }
}

/// Believes a host that certain authorities vouch for, and nobody else.
pub struct HostOfAuthorities {
    roots: SystemRoots,
    host: String,
}

impl HostOfAuthorities {
    /// A judge of one host, a name or an address.
    pub fn new(roots: SystemRoots, host: &str) -> Self {
        Self { roots, host: host.to_owned() }
    }
}

impl PeerJudge for HostOfAuthorities {
    fn judge(&self, leaf: &X509Ref, others: &[&X509Ref]) -> Result<Peer, TrustFault> {
        let peer = vouched(&self.roots, leaf, others)?;
        if !is_named(leaf, &self.host)? {
            let detail = format!("it is no certificate of {}", self.host);
            return Err(TrustFault::new(FaultCode::PeerIdentity, detail).about(peer.subject));
        }
        Ok(peer)
    }
}

/// Believes clients that certain authorities vouch for: people, by the subjects of their certificates.
///
/// Revocation lists are not looked at: what is taken back has to be taken out of the mapping.
pub struct ClientsOfAuthorities(SystemRoots);

impl ClientsOfAuthorities {
    /// A judge of certificates that these authorities, and those below them, have signed.
    pub fn new(authorities: Vec<X509>) -> Result<Self, TrustFault> {
        SystemRoots::for_purpose(X509PurposeId::SSL_CLIENT, authorities).map(Self)
    }
}

impl PeerJudge for ClientsOfAuthorities {
    fn judge(&self, leaf: &X509Ref, others: &[&X509Ref]) -> Result<Peer, TrustFault> {
        vouched(&self.0, leaf, others)
    }
}

/// The peer of a chain that the authorities vouch for, whatever it is called.
fn vouched(roots: &SystemRoots, leaf: &X509Ref, others: &[&X509Ref]) -> Result<Peer, TrustFault> {
    let der = leaf.to_der().map_err(|error| internal(&error))?;
    let refused = |detail: String| TrustFault::new(FaultCode::CredentialRejected, detail);
    let parsed = Certificate::parse(&der).map_err(|error| refused(format!("it cannot be read: {error}")))?;
    let (subject, until) = (parsed.subject.one_line(), parsed.not_after);
    match roots.vouch(leaf, others).map_err(|error| internal(&error))? {
        Ok(()) => Ok(Peer {
            subject,
            leaf: leaf.to_owned(),
            chain: others.iter().map(|&other| other.to_owned()).collect(),
            limited: false,
            until,
            vo: Vec::new(),
        }),
        Err(reason) => Err(refused(reason).about(subject).until(until)),
    }
}

fn is_named(leaf: &X509Ref, host: &str) -> Result<bool, TrustFault> {
    let der = leaf.to_der().map_err(|error| internal(&error))?;
    Ok(Certificate::parse(&der).is_ok_and(|parsed| host::check(&parsed, host, Names::Alternative).is_ok()))
}

fn internal(error: &ErrorStack) -> TrustFault {
    TrustFault::new(FaultCode::Internal, format!("OpenSSL: {error}"))
}

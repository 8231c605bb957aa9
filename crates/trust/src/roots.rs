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
        built(|store| store.set_default_paths())
    }

    /// Exactly these authorities.
    pub fn of(authorities: Vec<X509>) -> Result<Self, TrustFault> {
        built(|store| authorities.into_iter().try_for_each(|authority| store.add_cert(authority)))
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

fn built(fill: impl FnOnce(&mut X509StoreBuilder) -> Result<(), ErrorStack>) -> Result<SystemRoots, TrustFault> {
    let build = || {
        let mut store = X509StoreBuilder::new()?;
        fill(&mut store)?;
        store.set_purpose(X509PurposeId::SSL_SERVER)?;
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

impl HostJudge {
    fn is_named(&self, leaf: &X509Ref) -> Result<bool, TrustFault> {
        let der = leaf.to_der().map_err(|error| internal(&error))?;
        Ok(Certificate::parse(&der).is_ok_and(|parsed| host::check(&parsed, &self.host, Names::Alternative).is_ok()))
    }
}

impl PeerJudge for HostJudge {
    fn judge(&self, leaf: &X509Ref, others: &[&X509Ref]) -> Result<Peer, TrustFault> {
        if let Some(roots) = &self.roots
            && roots.vouch(leaf, others).map_err(|error| internal(&error))?.is_ok()
            && self.is_named(leaf)?
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

fn internal(error: &ErrorStack) -> TrustFault {
    TrustFault::new(FaultCode::Internal, format!("OpenSSL: {error}"))
}

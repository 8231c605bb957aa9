//! The two ends of a handshake: what we show, and what we learn of the other side.

use std::fmt;

use openssl::pkey::{PKey, Private};
use openssl::x509::{X509, X509Ref};
use whimbrel_proto::timeval::Timestamp;

use crate::fault::TrustFault;

/// What we show: a certificate, its private key, and the certificates between it and a trust anchor.
#[derive(Clone)]
pub struct OwnChain {
    /// The certificate that speaks for us; may be a proxy.
    pub certificate: X509,
    /// Its key.
    pub key: PKey<Private>,
    /// The certificates above it, nearest first; a root need not be among them.
    pub chain: Vec<X509>,
}

impl fmt::Debug for OwnChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OwnChain({:?} and {} above it)", self.certificate.subject_name(), self.chain.len())
    }
}

/// Who the other side proved to be.
#[derive(Clone)]
pub struct Peer {
    /// Subject of the end entity's certificate in one-line form (`/O=Grid/CN=alice`), or of an independent proxy.
    pub subject: String,
    /// The certificate whose key the other side has proven to hold.
    pub leaf: X509,
    /// The certificates above it as they were sent, nearest first.
    pub chain: Vec<X509>,
    /// A limited proxy is in the chain: good for moving data, not for starting jobs.
    pub limited: bool,
    /// Earliest end of life in the chain.
    pub until: Timestamp,
    /// Attributes of a virtual organisation, such as `/atlas/Role=production`.
    pub vo: Vec<String>,
}

impl Peer {
    /// The holder of a certificate that is no proxy, without attributes.
    pub(crate) fn plain(subject: String, leaf: &X509Ref, others: &[&X509Ref], until: Timestamp) -> Self {
        let chain = others.iter().map(|&other| other.to_owned()).collect();
        Self { subject, leaf: leaf.to_owned(), chain, limited: false, until, vo: Vec::new() }
    }
}

impl fmt::Debug for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { subject, limited, until, vo, .. } = self;
        write!(f, "Peer({subject:?}, limited: {limited}, until {until}, {vo:?})")
    }
}

/// Decides about a peer's certificate from all that it sent.
pub trait PeerJudge: Send + Sync {
    /// `leaf` is the peer's own certificate, `others` what it sent beside that, in its order.
    fn judge(&self, leaf: &X509Ref, others: &[&X509Ref]) -> Result<Peer, TrustFault>;
}

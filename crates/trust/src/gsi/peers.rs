//! Judges of connections: which clock, which directory, and whom the other side must prove to be.

use std::sync::Arc;
use std::time::Instant;

use openssl::x509::X509Ref;
use whimbrel_engine::fault::FaultCode;
use whimbrel_proto::timeval::Timestamp;
use whimbrel_proto::x509::name::normal_form;

use super::anchors::{AnchorStore, Anchors};
use super::host::{self, Names};
use super::judge::{Judge, Judged, Kinds, Refusal, parsed, to_der};
use super::voms::Organizations;
use crate::clock::now;
use crate::fault::TrustFault;
use crate::peer::{Peer, PeerJudge};

/// Whom the other side must prove to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// Anybody whose chain is good: what he may do is decided later.
    Anybody,
    /// The host of this name or address.
    Host(String, Names),
    /// Whoever has this subject, in one-line form.
    Subject(String),
}

/// Where a judge's anchors come from.
#[derive(Clone)]
pub enum Trusted {
    /// A directory, read again when it changes.
    Directory(Arc<AnchorStore>),
    /// Always the same ones.
    Fixed(Arc<Anchors>),
}

/// A judge for connections: reads the clock, and the directory of authorities when it has changed.
#[derive(Clone)]
pub struct GsiJudge {
    /// Who is trusted.
    pub trusted: Trusted,
    /// Which proxies are accepted.
    pub kinds: Kinds,
    /// Whom the other side must prove to be.
    pub expected: Expected,
    /// Whose word counts about members of virtual organizations.
    pub organizations: Option<Arc<Organizations>>,
}

impl GsiJudge {
    /// A judge of `expected` with the usual kinds of proxies.
    pub fn new(trusted: Trusted, expected: Expected) -> Self {
        Self { trusted, kinds: Kinds::default(), expected, organizations: None }
    }

    fn verdict(&self, leaf: &X509Ref, others: &[&X509Ref], now: Timestamp) -> Result<Judged, TrustFault> {
        let judge = |anchors| {
            let organizations = self.organizations.clone();
            Judge { kinds: self.kinds, organizations, ..Judge::new(anchors) }.judge(leaf, others, now)
        };
        let anchors = match &self.trusted {
            Trusted::Directory(store) => store.current(Instant::now()),
            Trusted::Fixed(anchors) => anchors.clone(),
        };
        match (judge(anchors), &self.trusted) {
            (Err(Refusal { outdated: true, .. }), Trusted::Directory(store)) => judge(store.refresh()),
            (verdict, _) => verdict,
        }
        .map_err(|refusal| refusal.fault)
    }
}

impl PeerJudge for GsiJudge {
    fn judge(&self, leaf: &X509Ref, others: &[&X509Ref]) -> Result<Peer, TrustFault> {
        let judged = self.verdict(leaf, others, now())?;
        self.expected.check(&judged)?;
        Ok(judged.peer)
    }
}

impl Expected {
    /// Says whether the other side is another than the expected one.
    pub fn check(&self, judged: &Judged) -> Result<(), TrustFault> {
        let subject = &judged.peer.subject;
        let wrong = |detail: String| Err(TrustFault::new(FaultCode::PeerIdentity, detail).about(subject));
        match self {
            Self::Anybody => Ok(()),
            Self::Host(..) if judged.independent => wrong("an independent proxy is no host".to_owned()),
            Self::Host(host, names) => {
                let der = to_der(&judged.end_entity)?;
                host::check(&parsed(&der)?, host, *names).or_else(wrong)
            }
            Self::Subject(expected) if normal_form(expected) == normal_form(subject) => Ok(()),
            Self::Subject(expected) => wrong(format!("it should have been {expected}")),
        }
    }
}

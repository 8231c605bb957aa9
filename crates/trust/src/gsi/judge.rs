//! The verdict about a chain: who it speaks for, or why it is not believed.
//!
//! Proxies are walked here, one by one: OpenSSL knows those of RFC 3820 only, and of the rules about limited ones none. The
//! certificates above them are OpenSSL's to verify; signing policies and revocation lists come after it. Where OpenSSL knows all
//! proxies of a chain it verifies them, too, and both must agree.

use std::sync::Arc;

use openssl::error::ErrorStack;
use openssl::nid::Nid;
use openssl::x509::{X509, X509Ref};
use whimbrel_engine::fault::FaultCode;
use whimbrel_proto::timeval::Timestamp;
use whimbrel_proto::x509::{Certificate, Form, Kind, Policy};

use super::anchors::{Anchors, Authority};
use super::crl::Standing;
use super::verify::{by_openssl, explained};
use super::voms::Organizations;
use crate::fault::TrustFault;
use crate::peer::Peer;
use crate::verified::Signed;

/// Most certificates that a peer may send, and most bytes of them.
const MOST_CERTIFICATES: usize = 20;
const MOST_BYTES: usize = 256 << 10;

/// Security in bits that keys of proxies must have (NIST SP 800-57: RSA with 2048 bits).
const LEAST_BITS: u32 = 112;

/// Which proxies are accepted beside those of RFC 3820.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kinds {
    /// By their names alone.
    pub legacy: bool,
    /// Of the drafts before RFC 3820.
    pub draft: bool,
}

impl Default for Kinds {
    fn default() -> Self {
        Self { legacy: true, draft: true }
    }
}

/// Decides about chains.
#[derive(Clone)]
pub struct Judge {
    /// Who is trusted.
    pub anchors: Arc<Anchors>,
    /// Which proxies are accepted.
    pub kinds: Kinds,
    /// Most proxies in a chain; 10 are more than anybody needs.
    pub most_proxies: u8,
    /// Whose word counts about members of virtual organizations; `None`: nobody's.
    pub organizations: Option<Arc<Organizations>>,
}

/// What a chain proves.
#[derive(Debug, Clone)]
pub struct Judged {
    /// Who the other side is.
    pub peer: Peer,
    /// The certificate that is nobody's proxy.
    pub end_entity: X509,
    /// An independent proxy is in the chain: the identity is the proxy's own.
    pub independent: bool,
}

/// Why a chain is refused.
#[derive(Debug)]
pub struct Refusal {
    /// What to tell.
    pub fault: TrustFault,
    /// A revocation list is out of date: a newer one may be there by now.
    pub outdated: bool,
}

impl From<TrustFault> for Refusal {
    fn from(fault: TrustFault) -> Self {
        Self { fault, outdated: false }
    }
}

/// A certificate that was sent.
struct Link<'a> {
    x509: &'a X509Ref,
    read: Certificate<'a>,
    kind: Kind,
}

impl Judge {
    /// A judge with the usual rules.
    pub fn new(anchors: Arc<Anchors>) -> Self {
        Self { anchors, kinds: Kinds::default(), most_proxies: 10, organizations: None }
    }

    /// Judges a chain at `now`: `leaf` is the peer's own certificate, `others` what it sent beside it, in any order.
    pub fn judge(&self, leaf: &X509Ref, others: &[&X509Ref], now: Timestamp) -> Result<Judged, Refusal> {
        let sent = bytes_of(leaf, others)?;
        let links = sent.iter().map(|(x509, der)| link(x509, der)).collect::<Result<Vec<_>, _>>()?;
        let path = self.walk(&links)?;
        let path: Vec<&Link<'_>> = path.into_iter().map(|at| &links[at]).collect();
        self.check_kinds(&path)?;
        check_rules(&path, now)?;
        let authorities = self.verify(&links, &path, now)?;
        self.check_consent(&authorities, now)?;
        let mut judged = concluded(&path, &authorities)?;
        judged.peer.vo = self.attributes(&path, now);
        Ok(judged)
    }

    /// What virtual organizations say of the holder: of the last proxy that has their word.
    fn attributes(&self, path: &[&Link<'_>], now: Timestamp) -> Vec<String> {
        let Some(organizations) = &self.organizations else { return Vec::new() };
        let extension = path.iter().find_map(|link| link.read.extensions.voms);
        extension.map_or_else(Vec::new, |extension| {
            // Their servers have certificates like everybody's, but nobody's word about themselves.
            let judge = Self { organizations: None, ..self.clone() };
            organizations.attributes(extension, &path[path.len() - 1].read, &judge, now)
        })
    }

    /// The way from the leaf up to the certificate that is nobody's proxy: each is signed by the next.
    fn walk(&self, links: &[Link<'_>]) -> Result<Vec<usize>, TrustFault> {
        let mut path = vec![0];
        let mut unused: Vec<usize> = (1..links.len()).collect();
        loop {
            let link = &links[path[path.len() - 1]];
            match link.kind {
                Kind::EndEntity => return Ok(path),
                Kind::Ca if path.len() == 1 => {
                    return Err(refused(link, "an authority's certificate speaks for nobody"));
                }
                Kind::Ca => return Err(refused(link, "it is an authority and may not sign proxies")),
                Kind::Proxy { .. } if path.len() > usize::from(self.most_proxies) => {
                    return Err(refused(
                        link,
                        format!("there are more than {} proxies in the chain", self.most_proxies),
                    ));
                }
                Kind::Proxy { .. } => {}
            }
            let signer = signer_of(link, links, &unused)?;
            unused.retain(|at| *at != signer);
            path.push(signer);
        }
    }

    fn check_kinds(&self, path: &[&Link<'_>]) -> Result<(), TrustFault> {
        let mut first = None;
        for link in path {
            let Kind::Proxy { form, policy } = link.kind else { continue };
            let (accepted, name) = match form {
                Form::Rfc => (true, "RFC 3820"),
                Form::Draft => (self.kinds.draft, "draft"),
                Form::Legacy => (self.kinds.legacy, "legacy"),
            };
            if !accepted {
                return Err(refused(link, format!("{name} proxies are not accepted here")));
            }
            if *first.get_or_insert(form) != form {
                return Err(refused(link, "the chain mixes proxies of different kinds"));
            }
            let body = link.read.extensions.proxy.is_some_and(|info| info.body.is_some());
            if policy == Policy::Restricted || body {
                return Err(refused(link, "it is restricted by a policy that is not understood here"));
            }
        }
        Ok(())
    }

    /// The certificates from the end entity's up to the anchor, verified by OpenSSL.
    fn verify(&self, links: &[Link<'_>], path: &[&Link<'_>], now: Timestamp) -> Result<Vec<X509>, TrustFault> {
        let end = path.len() - 1;
        let rfc = |link: &&Link<'_>| !matches!(link.kind, Kind::Proxy { form: Form::Draft | Form::Legacy, .. });
        let whole = path.iter().all(rfc);
        let from = if whole { 0 } else { end };
        let anchors = self.anchors_of(links);
        // Of certificates with one name OpenSSL takes the first: it sees those that the walk has chosen, and authorities.
        let authorities = links.iter().filter(|link| link.kind == Kind::Ca).map(|link| link.x509);
        let untrusted: Vec<&X509Ref> = path[from..].iter().map(|link| link.x509).chain(authorities).collect();
        let partial = !self.anchors.brought().is_empty();
        let verified = by_openssl(path[from].x509, &untrusted, &anchors, partial, now).map_err(internal)?;
        let mut chain = verified.map_err(|refusal| explained(&refusal, &path[end].read, &self.anchors.place()))?;
        let chain = chain.split_off((end - from).min(chain.len()));
        // Both ways to the end entity must be the same one.
        let same = chain.first().is_some_and(|first| first.to_der().is_ok_and(|der| der == path[end].read.der));
        if same { Ok(chain) } else { Err(refused(path[0], "its chain can be read in two ways")) }
    }

    /// The trusted certificates that may be above those that were sent.
    fn anchors_of(&self, links: &[Link<'_>]) -> Vec<Arc<Authority>> {
        let mut found: Vec<Arc<Authority>> = self.anchors.brought().to_vec();
        links.iter().for_each(|link| add_new(&mut found, self.anchors.named(&link.read.issuer)));
        // Trusted authorities below other trusted ones.
        let mut at = 0;
        while let Some(authority) = found.get(at).cloned() {
            at += 1;
            if let Ok(read) = Certificate::parse(authority.der()) {
                add_new(&mut found, self.anchors.named(&read.issuer));
            }
        }
        found
    }

    /// Signing policies and revocation lists, for every certificate that another one of the chain signed.
    fn check_consent(&self, authorities: &[X509], now: Timestamp) -> Result<(), Refusal> {
        for pair in authorities.windows(2) {
            let [certificate, signer] = pair else { continue };
            let (der, above) = (to_der(certificate)?, to_der(signer)?);
            let (read, authority) = (parsed(&der)?, parsed(&above)?);
            let subject = read.subject.one_line();
            let may = self.anchors.may_sign(signer.subject_name_hash(), &authority.subject.one_line(), &subject);
            may.map_err(|reason| {
                let detail = format!("{} may not sign it: {reason}", authority.subject.one_line());
                TrustFault::new(FaultCode::CredentialRejected, detail).about(&subject)
            })?;
            self.check_revocation(certificate, &read, signer, &authority, now)?;
        }
        Ok(())
    }

    fn check_revocation(
        &self,
        certificate: &X509Ref,
        read: &Certificate<'_>,
        signer: &X509Ref,
        authority: &Certificate<'_>,
        now: Timestamp,
    ) -> Result<(), Refusal> {
        let lists = self.anchors.lists_of(&authority.subject);
        // One that is there and cannot be read may be the one with this certificate in it.
        let broken = self.anchors.broken_list(signer.subject_name_hash());
        if lists.is_empty() && broken.is_none() {
            return Ok(());
        }
        let key = signer.public_key().map_err(internal)?;
        let standings: Vec<Standing> = lists.iter().map(|list| list.standing(certificate, &key, now)).collect();
        let fault =
            |detail: &str| TrustFault::new(FaultCode::CredentialRejected, detail).about(read.subject.one_line());
        if standings.contains(&Standing::Revoked) {
            return Err(fault(&format!("{} has revoked it", authority.subject.one_line())).into());
        }
        if standings.contains(&Standing::Good) {
            return Ok(());
        }
        let outdated = standings.iter().any(|standing| matches!(standing, Standing::Unusable { outdated: true, .. }));
        let reason = standings.iter().find_map(|standing| match standing {
            Standing::Unusable { reason, .. } => Some(reason.as_str()),
            _ => None,
        });
        let reason = reason.or(broken).unwrap_or("its revocation list is of no use");
        let detail = format!("whether {} has revoked it cannot be told: {reason}", authority.subject.one_line());
        Err(Refusal { fault: fault(&detail), outdated: outdated || broken.is_some() })
    }
}

fn add_new(found: &mut Vec<Arc<Authority>>, authorities: &[Arc<Authority>]) {
    for authority in authorities {
        if !found.iter().any(|known| Arc::ptr_eq(known, authority)) {
            found.push(authority.clone());
        }
    }
}

/// What was sent, each certificate once, the leaf first.
fn bytes_of<'a>(leaf: &'a X509Ref, others: &[&'a X509Ref]) -> Result<Vec<(&'a X509Ref, Vec<u8>)>, TrustFault> {
    let mut sent: Vec<(&X509Ref, Vec<u8>)> = Vec::new();
    let mut total = 0;
    for x509 in std::iter::once(&leaf).chain(others) {
        let der = to_der(x509)?;
        total += der.len();
        if sent.len() == MOST_CERTIFICATES || total > MOST_BYTES {
            return Err(TrustFault::new(FaultCode::CredentialRejected, "the chain has too many certificates"));
        }
        if !sent.iter().any(|(_, known)| *known == der) {
            sent.push((x509, der));
        }
    }
    Ok(sent)
}

fn link<'a>(x509: &'a X509Ref, der: &'a [u8]) -> Result<Link<'a>, TrustFault> {
    let read = parsed(der)?;
    // Two readers of one certificate must see the same names, or one could be deceived by the other's.
    let seen = (x509.subject_name().to_der(), x509.issuer_name().to_der());
    if !matches!(seen, (Ok(subject), Ok(issuer)) if subject == read.subject.der() && issuer == read.issuer.der()) {
        let detail = "its names can be read in two ways";
        return Err(TrustFault::new(FaultCode::CredentialRejected, detail).about(read.subject.one_line()));
    }
    match read.kind() {
        Ok(kind) => Ok(Link { x509, read, kind }),
        Err(reason) => {
            Err(TrustFault::new(FaultCode::CredentialRejected, reason.to_string()).about(read.subject.one_line()))
        }
    }
}

/// Who signed a proxy: the certificate with the right name and the right key.
fn signer_of(proxy: &Link<'_>, links: &[Link<'_>], unused: &[usize]) -> Result<usize, TrustFault> {
    let named = |at: &&usize| proxy.read.issuer.matches(&links[**at].read.subject);
    let mut candidates = unused.iter().filter(named).peekable();
    if candidates.peek().is_none() {
        return Err(refused(
            proxy,
            format!("the certificate of its issuer {} was not sent", proxy.read.issuer.one_line()),
        ));
    }
    let signed = |at: &&usize| links[**at].x509.public_key().is_ok_and(|key| proxy.x509.is_signed_by(&key));
    let signer = candidates.find(signed);
    let signer = signer.ok_or_else(|| refused(proxy, "its signature is not that of its issuer"))?;
    match proxy.read.subject.below(&links[*signer].read.subject) {
        Some(_) => Ok(*signer),
        None => Err(refused(proxy, "a proxy's name must be its issuer's and one common name more")),
    }
}

/// What holds for every proxy and its signer, from the leaf up to the end entity.
fn check_rules(path: &[&Link<'_>], now: Timestamp) -> Result<(), TrustFault> {
    for (below, link) in path.iter().enumerate() {
        let read = &link.read;
        if now > read.not_after {
            return Err(expired(read));
        }
        if now < read.not_before {
            return Err(not_yet(read));
        }
        if let Some(oid) = read.extensions.unknown_critical.first() {
            return Err(refused(link, format!("it has a critical extension that is not understood here ({oid})")));
        }
        // RFC 3820 §3.1: whose usage is told must be allowed to sign.
        if below > 0 && read.extensions.key_usage.is_some_and(|usage| !usage.digital_signature()) {
            return Err(refused(link, "its key usage does not allow signing, hence no proxies"));
        }
        if let Kind::Proxy { .. } = link.kind {
            check_strength(link)?;
            if read.path_length().is_some_and(|most| (most as usize) < below) {
                return Err(refused(link, "more proxies are below it than it allows"));
            }
        }
    }
    // Below a limited proxy only limited and independent ones have no more rights than it has.
    for pair in path.windows(2) {
        if let (Kind::Proxy { policy: Policy::InheritAll, .. }, Kind::Proxy { policy: Policy::Limited, .. }) =
            (pair[0].kind, pair[1].kind)
        {
            return Err(refused(pair[0], "a full proxy cannot come from a limited one"));
        }
    }
    Ok(())
}

fn check_strength(link: &Link<'_>) -> Result<(), TrustFault> {
    let strong_key = link.x509.public_key().is_ok_and(|key| key.security_bits() >= LEAST_BITS);
    if !strong_key {
        return Err(refused(link, "its key is too weak"));
    }
    let algorithm = link.x509.signature_algorithm().object().nid();
    let weak = [Nid::MD5, Nid::SHA1, Nid::MD4, Nid::MD2, Nid::RIPEMD160, Nid::MDC2, Nid::SHA];
    let digest = algorithm.signature_algorithms().map(|algorithms| algorithms.digest);
    match digest {
        Some(digest) if !weak.contains(&digest) => Ok(()),
        _ => Err(refused(link, "its signature is too weak (an old digest)")),
    }
}

fn concluded(path: &[&Link<'_>], authorities: &[X509]) -> Result<Judged, Refusal> {
    let is = |link: &&&Link<'_>, wanted| matches!(link.kind, Kind::Proxy { policy, .. } if policy == wanted);
    let independent = path.iter().find(|link| is(link, Policy::Independent));
    let end = path[path.len() - 1];
    let identity = independent.unwrap_or(&end);
    if identity.read.subject.is_ambiguous() {
        return Err(refused(identity, AMBIGUOUS).into());
    }
    let mut until = path.iter().map(|link| link.read.not_after).min().unwrap_or(end.read.not_after);
    let mut chain: Vec<X509> = path[1..].iter().map(|link| link.x509.to_owned()).collect();
    for authority in &authorities[1..] {
        let der = to_der(authority)?;
        let read = parsed(&der)?;
        until = until.min(read.not_after);
        if !read.is_self_issued() {
            chain.push(authority.clone());
        }
    }
    let peer = Peer {
        subject: identity.read.subject.one_line(),
        leaf: path[0].x509.to_owned(),
        chain,
        limited: path.iter().any(|link| is(&link, Policy::Limited)),
        until,
        vo: Vec::new(),
    };
    Ok(Judged { peer, end_entity: end.x509.to_owned(), independent: independent.is_some() })
}

/// Why somebody cannot be known by a name.
pub(crate) const AMBIGUOUS: &str =
    "its subject has characters that read as those of another name: it needs one in UTF-8";

fn refused(link: &Link<'_>, detail: impl Into<String>) -> TrustFault {
    TrustFault::new(FaultCode::CredentialRejected, detail).about(link.read.subject.one_line())
}

pub(super) fn expired(read: &Certificate<'_>) -> TrustFault {
    TrustFault::new(FaultCode::CredentialExpired, "its life is over")
        .about(read.subject.one_line())
        .until(read.not_after)
}

pub(super) fn not_yet(read: &Certificate<'_>) -> TrustFault {
    let detail = format!("it is not good before {} UTC; is the clock right?", read.not_before);
    TrustFault::new(FaultCode::CredentialRejected, detail).about(read.subject.one_line())
}

pub(super) fn to_der(x509: &X509Ref) -> Result<Vec<u8>, TrustFault> {
    x509.to_der().map_err(internal)
}

pub(super) fn parsed(der: &[u8]) -> Result<Certificate<'_>, TrustFault> {
    let unreadable =
        |error| TrustFault::new(FaultCode::CredentialRejected, format!("a certificate cannot be read: {error}"));
    Certificate::parse(der).map_err(unreadable)
}

pub(super) fn internal(error: ErrorStack) -> TrustFault {
    TrustFault::new(FaultCode::Internal, format!("OpenSSL: {error}"))
}

//! Handing rights on: a server asks for a proxy, a client signs it, and the private key never travels.

use openssl::hash::MessageDigest;
use openssl::pkey::{PKey, Private};
use openssl::x509::{X509, X509ReqRef};
use whimbrel_engine::fault::FaultCode;
use whimbrel_proto::timeval::Timestamp;
use whimbrel_proto::x509::der::{DerError, Reader};
use whimbrel_proto::x509::extensions::Extensions;
use whimbrel_proto::x509::{Certificate, Form, Kind, Policy};

use crate::fault::TrustFault;
use crate::make::{self, Life, ProxyKind, digest_of};
use crate::peer::{OwnChain, Peer};
use crate::verified::Signed;

/// Largest request, and largest certificate, that is taken from the other side, bytes.
const MOST_BYTES: usize = 64 << 10;

/// Least security of a key that is given rights, bits (RSA with 2048 bits).
const LEAST_BITS: u32 = 112;

/// What a client hands on to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Delegate {
    /// Nothing: the server can act for nobody, and its data connections need another way to prove who they are.
    No,
    /// The right to move data.
    #[default]
    Limited,
    /// All rights.
    Full,
}

/// What a server asks `peer` to sign: a request for `key`, DER, of the kind of the peer's own proxy.
pub fn request(peer: &Peer, key: &PKey<Private>) -> Result<Vec<u8>, TrustFault> {
    let digest = digest_of(&peer.leaf).unwrap_or_else(MessageDigest::sha256);
    let form = form_of(&peer.leaf)?.unwrap_or(Form::Rfc);
    make::proxy_request(key, form, digest)?.to_der().map_err(failed)
}

/// What a client answers: a proxy of `own` for the key of the request, DER.
///
/// The request's name is of no account, and so are the rights it asks for: `delegate` decides, and what `own` may do.
pub fn issue(request: &[u8], own: &OwnChain, delegate: Delegate, life: Life) -> Result<Vec<u8>, TrustFault> {
    let broken = |_| rejected("what the server sent is no request for a certificate");
    let request = openssl::x509::X509Req::from_der(request).map_err(broken)?;
    let key = request.public_key().map_err(broken)?;
    if !request.is_signed_by(&key) {
        return Err(rejected("the server's request is not signed with its own key"));
    }
    if key.security_bits() < LEAST_BITS {
        return Err(rejected("the server's request has a weak key"));
    }
    let der = own.certificate.to_der().map_err(failed)?;
    let above = parsed(&der)?;
    let (form, limited) = match above.kind() {
        Ok(Kind::Proxy { form, policy }) => (form, policy == Policy::Limited),
        Ok(Kind::EndEntity) => (requested_form(&request)?, false),
        _ => return Err(rejected("this certificate cannot hand on rights").about(above.subject.one_line())),
    };
    if above.extensions.proxy.is_some_and(|info| info.path_length == Some(0)) {
        return Err(rejected("this proxy may not hand on rights").about(above.subject.one_line()));
    }
    let policy = if limited || delegate == Delegate::Limited { Policy::Limited } else { Policy::InheritAll };
    let made = make::proxy(own, &key, &ProxyKind { form, policy, path_length: None }, life)?;
    made.to_der().map_err(failed)
}

/// The credential that a server has now: the peer's answer, its own key, and the chain of the handshake.
pub fn assemble(answer: &[u8], key: PKey<Private>, peer: &Peer, now: Timestamp) -> Result<OwnChain, TrustFault> {
    let read = parsed(answer)?;
    let wrong = |detail: &str| rejected(detail).about(read.subject.one_line());
    if !matches!(read.kind(), Ok(Kind::Proxy { .. })) {
        return Err(wrong("the delegated certificate is no proxy"));
    }
    let above = peer.leaf.to_der().map_err(failed)?;
    let signer = parsed(&above)?;
    if read.subject.below(&signer.subject).is_none() || !read.issuer.matches(&signer.subject) {
        return Err(wrong("the delegated proxy is not the peer's"));
    }
    if now > read.not_after {
        let fault = TrustFault::new(FaultCode::CredentialExpired, "the delegated proxy has expired");
        return Err(fault.about(read.subject.one_line()).until(read.not_after));
    }
    let certificate = X509::from_der(answer).map_err(failed)?;
    let public = certificate.public_key().map_err(failed)?;
    if !public.public_eq(&key) {
        return Err(wrong("the delegated proxy has another key than was asked for"));
    }
    let signing = peer.leaf.public_key().map_err(failed)?;
    if !certificate.is_signed_by(&signing) {
        return Err(wrong("the delegated proxy is not signed by the peer"));
    }
    let chain = std::iter::once(peer.leaf.clone()).chain(peer.chain.iter().cloned()).collect();
    Ok(OwnChain { certificate, key, chain })
}

/// True if Globus' servers take a proxy that this credential signs: their programs cannot sign with other keys than RSA.
pub fn globus_takes(own: &OwnChain) -> bool {
    own.key.id() == openssl::pkey::Id::RSA
}

/// Collects what comes in pieces until it is one whole DER value.
#[derive(Debug, Default)]
pub(super) struct Pieces(Vec<u8>);

impl Pieces {
    /// Where the next bytes go.
    pub(super) fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }

    /// The value once it is whole; something behind it, or too much of it, is a fault.
    pub(super) fn whole(&mut self) -> Result<Option<Vec<u8>>, TrustFault> {
        let mut reader = Reader::new(&self.0);
        match reader.item() {
            Ok(_) if reader.is_empty() => Ok(Some(std::mem::take(&mut self.0))),
            Err(DerError::Truncated) if self.0.len() < MOST_BYTES => Ok(None),
            _ => Err(rejected("what the other side sent for the delegation cannot be read")),
        }
    }
}

/// By which document a proxy is one; `None`: it is none.
fn form_of(leaf: &X509) -> Result<Option<Form>, TrustFault> {
    let der = leaf.to_der().map_err(failed)?;
    Ok(match parsed(&der)?.kind() {
        Ok(Kind::Proxy { form, .. }) => Some(form),
        _ => None,
    })
}

/// The kind that a request asks for; RFC 3820 where it does not say.
fn requested_form(request: &X509ReqRef) -> Result<Form, TrustFault> {
    let mut list = Vec::new();
    for extension in request.extensions().into_iter().flatten() {
        list.extend_from_slice(&extension.to_der().map_err(failed)?);
    }
    let unreadable = |error| rejected(&format!("the server's request cannot be read: {error}"));
    let asked = Extensions::parse(&mut Reader::new(&list)).map_err(unreadable)?;
    Ok(asked.proxy.map_or(Form::Rfc, |info| info.form))
}

fn parsed(der: &[u8]) -> Result<Certificate<'_>, TrustFault> {
    Certificate::parse(der).map_err(|error| rejected(&format!("the certificate cannot be read: {error}")))
}

pub(super) fn rejected(detail: &str) -> TrustFault {
    TrustFault::new(FaultCode::CredentialRejected, detail)
}

pub(super) fn failed(error: openssl::error::ErrorStack) -> TrustFault {
    TrustFault::new(FaultCode::Internal, format!("OpenSSL: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::make::{KeyKind, Purpose};

    fn now() -> Timestamp {
        Timestamp::from_secs(1_795_300_000)
    }

    fn alice() -> OwnChain {
        let key = make::key(KeyKind::P256).unwrap();
        let certificate = make::authority("/O=Grid/CN=CA", &key, None, Life::of(now(), 9000), None).unwrap();
        let ca = OwnChain { certificate, key, chain: Vec::new() };
        make::issue("/O=Grid/CN=alice", KeyKind::P256, &Purpose::Person, Life::of(now(), 5000), &ca).unwrap()
    }

    fn peer(own: &OwnChain) -> Peer {
        Peer {
            subject: "/O=Grid/CN=alice".into(),
            leaf: own.certificate.clone(),
            chain: own.chain.clone(),
            limited: false,
            until: now(),
            vo: Vec::new(),
        }
    }

    fn proxy(own: &OwnChain, form: Form, policy: Policy, path_length: Option<u32>) -> OwnChain {
        make::own_proxy(own, KeyKind::P256, &ProxyKind { form, policy, path_length }, Life::of(now(), 900)).unwrap()
    }

    fn exchange(own: &OwnChain, delegate: Delegate) -> Result<OwnChain, TrustFault> {
        let key = make::key(KeyKind::P256)?;
        let request = request(&peer(own), &key)?;
        let answer = issue(&request, own, delegate, Life::of(now(), 500))?;
        assemble(&answer, key, &peer(own), now())
    }

    fn kind(own: &OwnChain) -> Kind {
        Certificate::parse(&own.certificate.to_der().unwrap()).unwrap().kind().unwrap()
    }

    #[test]
    fn what_is_handed_on_is_of_the_kind_of_its_signer() {
        let alice = alice();
        for (own, delegate, form, policy) in [
            (alice.clone(), Delegate::Limited, Form::Rfc, Policy::Limited),
            (alice.clone(), Delegate::Full, Form::Rfc, Policy::InheritAll),
            (proxy(&alice, Form::Rfc, Policy::InheritAll, Some(1)), Delegate::Full, Form::Rfc, Policy::InheritAll),
            (proxy(&alice, Form::Rfc, Policy::Limited, None), Delegate::Full, Form::Rfc, Policy::Limited),
            (proxy(&alice, Form::Draft, Policy::InheritAll, None), Delegate::Limited, Form::Draft, Policy::Limited),
            (proxy(&alice, Form::Legacy, Policy::InheritAll, None), Delegate::Full, Form::Legacy, Policy::InheritAll),
        ] {
            let delegated = exchange(&own, delegate).unwrap();
            assert_eq!(kind(&delegated), Kind::Proxy { form, policy });
            assert_eq!(delegated.chain.len(), own.chain.len() + 1);
        }
        let ended = proxy(&alice, Form::Rfc, Policy::InheritAll, Some(0));
        assert_eq!(exchange(&ended, Delegate::Full).unwrap_err().detail, "this proxy may not hand on rights");
        assert!(!globus_takes(&alice));
    }

    #[test]
    fn bad_requests_are_not_signed() {
        let alice = alice();
        let refused = |request: &[u8]| issue(request, &alice, Delegate::Full, Life::of(now(), 9)).unwrap_err().detail;
        assert_eq!(refused(b"nonsense"), "what the server sent is no request for a certificate");
        let key = make::key(KeyKind::P256).unwrap();
        let good = request(&peer(&alice), &key).unwrap();
        let mut forged = good.clone();
        let at = forged.windows(4).position(|four| four == b"NULL").unwrap();
        forged[at] = b'X';
        assert_eq!(refused(&forged), "the server's request is not signed with its own key");
        let weak = PKey::from_rsa(openssl::rsa::Rsa::generate(1024).unwrap()).unwrap();
        let weak = make::proxy_request(&weak, Form::Rfc, MessageDigest::sha256()).unwrap().to_der().unwrap();
        assert_eq!(refused(&weak), "the server's request has a weak key");
        let authority = make::authority("/CN=CA", &key, None, Life::of(now(), 9), None).unwrap();
        let authority = OwnChain { certificate: authority, key, chain: Vec::new() };
        let fault = issue(&good, &authority, Delegate::Full, Life::of(now(), 9)).unwrap_err();
        assert_eq!(fault.detail, "this certificate cannot hand on rights");
    }

    #[test]
    fn only_the_peers_own_proxy_for_our_key_is_taken() {
        let (alice, bob) = (alice(), alice());
        let key = make::key(KeyKind::P256).unwrap();
        let good = request(&peer(&alice), &key).unwrap();
        let life = Life::of(now(), 500);
        let take = |answer: &[u8], peer: &Peer| {
            assemble(answer, key.clone(), peer, now()).map(|_| ()).map_err(|fault| fault.detail)
        };
        let answer = issue(&good, &alice, Delegate::Full, life).unwrap();
        assert_eq!(take(&answer, &peer(&alice)), Ok(()));
        assert_eq!(take(&answer, &peer(&bob)), Err("the delegated proxy is not signed by the peer".into()));
        let below = proxy(&alice, Form::Rfc, Policy::InheritAll, None);
        assert_eq!(take(&answer, &peer(&below)), Err("the delegated proxy is not the peer's".into()));
        let other = proxy(&alice, Form::Rfc, Policy::InheritAll, None).certificate.to_der().unwrap();
        assert_eq!(take(&other, &peer(&alice)), Err("the delegated proxy has another key than was asked for".into()));
        let user = alice.certificate.to_der().unwrap();
        assert_eq!(take(&user, &peer(&alice)), Err("the delegated certificate is no proxy".into()));
        assert!(take(b"x", &peer(&alice)).is_err());
        let late = assemble(&answer, key, &peer(&alice), Timestamp::from_secs(now().secs + 501)).unwrap_err();
        assert_eq!(late.code, FaultCode::CredentialExpired);
    }

    #[test]
    fn pieces_make_one_value_and_no_more() {
        let mut pieces = Pieces::default();
        for byte in [0x30, 0x02, 0x05] {
            pieces.buffer().push(byte);
            assert_eq!(pieces.whole().unwrap(), None);
        }
        pieces.buffer().push(0);
        assert_eq!(pieces.whole().unwrap(), Some(vec![0x30, 2, 5, 0]));
        pieces.buffer().extend([0x30, 0, 0]);
        assert!(pieces.whole().is_err());
        let mut giant = Pieces(vec![0x30, 0x83, 0x7f, 0xff, 0xff]);
        assert_eq!(giant.whole().unwrap(), None);
        giant.buffer().resize(MOST_BYTES, 0);
        assert!(giant.whole().is_err());
        assert!(Pieces(vec![0x30, 0x80]).whole().is_err());
    }
}

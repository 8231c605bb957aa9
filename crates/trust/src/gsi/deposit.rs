//! A proxy for somebody who acts later: they make a key and ask, the owner signs wherever their own key is, and no private key
//! travels.
//!
//! What a login over GSI does in one exchange ([`super::delegate`]), in texts that can go by any way.

use std::fmt;

use openssl::hash::MessageDigest;
use openssl::pkey::{PKey, Private};
use openssl::x509::{X509, X509Req};
use whimbrel_proto::timeval::Timestamp;
use whimbrel_proto::x509::{Certificate, Form, Kind};
use zeroize::Zeroizing;

use super::delegate::{self, Delegate, failed, rejected};
use crate::credential::{self, Holder};
use crate::fault::TrustFault;
use crate::make::{self, KeyKind, Life};
use crate::peer::{OwnChain, Peer};
use crate::verified::Signed;

/// Longest text that is taken, bytes.
pub const MOST_BYTES: usize = 64 << 10;

/// Most certificates of a chain.
const MOST_CERTIFICATES: usize = 32;

/// A proxy that was taken; `Debug` hides its key.
pub struct Deposit {
    /// Certificate, key and the certificates above, PEM: a secret.
    pub pem: Zeroizing<String>,
    /// Whom it speaks for, and until when.
    pub holder: Holder,
}

impl fmt::Debug for Deposit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Deposit({:?})", self.holder)
    }
}

/// A new key, PEM. RSA, whatever the owner has: Globus' programs hand on with no other. Takes a tenth of a second and more.
///
/// # Errors
/// OpenSSL's.
pub fn new_key() -> Result<Zeroizing<Vec<u8>>, TrustFault> {
    let key = make::key(KeyKind::Rsa(2048))?;
    make::key_pem(&key).map_err(failed)
}

/// What is asked of the owner: a request (PKCS#10, PEM) for an RFC 3820 proxy with a key of [`new_key`].
///
/// # Errors
/// The key cannot be read.
pub fn request(key: &[u8]) -> Result<String, TrustFault> {
    let made = make::proxy_request(&*read_key(key)?, Form::Rfc, MessageDigest::sha256())?;
    Ok(String::from_utf8_lossy(&made.to_pem().map_err(failed)?).into_owned())
}

/// What an owner answers to a request: a proxy of `own` for its key, with the certificates above it, PEM; nothing of it is secret.
///
/// # Errors
/// `CredentialRejected`: it is no request, or this credential cannot hand on rights; `CredentialExpired`.
pub fn answer(request: &str, own: &OwnChain, delegate: Delegate, life: Life) -> Result<String, TrustFault> {
    let broken = |_| rejected("this is no request for a proxy");
    let request = X509Req::from_pem(request.as_bytes()).and_then(|request| request.to_der()).map_err(broken)?;
    let proxy = delegate::issue(&request, own, delegate, life)?;
    let mut text = X509::from_der(&proxy).and_then(|proxy| proxy.to_pem()).map_err(failed)?;
    for above in std::iter::once(&own.certificate).chain(&own.chain) {
        text.extend(above.to_pem().map_err(failed)?);
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// Takes an answer: a proxy for this key whose chain of signatures leads to a person. Who vouches for the person is left to the
/// servers that are shown it.
///
/// # Errors
/// `CredentialRejected` with the reason; `CredentialExpired`.
pub fn take(answer: &str, key: &[u8], now: Timestamp) -> Result<Deposit, TrustFault> {
    if answer.len() > MOST_BYTES {
        return Err(rejected("the answer is too long to be a proxy with its certificates"));
    }
    let chain = X509::stack_from_pem(answer.as_bytes()).map_err(|_| rejected("the answer holds no certificates"))?;
    let Some((proxy, above)) = chain.split_first().filter(|(_, above)| above.len() < MOST_CERTIFICATES) else {
        return Err(rejected("the answer holds no certificate, or too many"));
    };
    let Some((signer, rest)) = above.split_first() else {
        return Err(rejected("the proxy came without the certificate that has signed it"));
    };
    check_links(above)?;
    // Only what `assemble` looks at: the certificate that signed, and what is above it.
    let peer = Peer::plain(String::new(), signer, &rest.iter().map(AsRef::as_ref).collect::<Vec<_>>(), now);
    let own = delegate::assemble(&proxy.to_der().map_err(failed)?, read_key(key)?, &peer, now)?;
    credential::alive(&own, now)?;
    let holder = credential::holder(&own)?;
    if holder.kind == "independent proxy" {
        return Err(rejected("an independent proxy speaks for nobody").about(holder.identity));
    }
    let text = String::from_utf8(make::to_pem(&own)?.to_vec()).map_err(|error| rejected(&error.to_string()))?;
    Ok(Deposit { pem: Zeroizing::new(text), holder })
}

/// As [`take`], at a point in time given as seconds since 1970.
///
/// # Errors
/// As [`take`].
pub fn take_at(answer: &str, key: &[u8], now: i64) -> Result<Deposit, TrustFault> {
    take(answer, key, Timestamp::from_secs(now))
}

/// Whether each proxy of a chain is signed by the certificate behind it, up to a person's.
fn check_links(chain: &[X509]) -> Result<(), TrustFault> {
    let mut chain = chain.iter().peekable();
    while let Some(certificate) = chain.next() {
        let der = certificate.to_der().map_err(failed)?;
        let read = Certificate::parse(&der).map_err(|error| rejected(&error.to_string()))?;
        let wrong = |detail: &str| rejected(detail).about(read.subject.one_line());
        match read.kind() {
            Ok(Kind::EndEntity) => return Ok(()),
            Ok(Kind::Proxy { .. }) => {}
            Ok(Kind::Ca) => return Err(wrong("an authority does not hand on rights")),
            Err(error) => return Err(wrong(&error.to_string())),
        }
        let Some(signer) = chain.peek() else { break };
        let key = signer.public_key().map_err(failed)?;
        if !certificate.is_signed_by(&key) {
            return Err(wrong("it is not signed by the certificate that follows it"));
        }
    }
    Err(rejected("the certificate of the person whom the proxy speaks for is missing"))
}

fn read_key(pem: &[u8]) -> Result<PKey<Private>, TrustFault> {
    PKey::private_key_from_pem(pem).map_err(failed)
}

#[cfg(test)]
mod tests {
    use whimbrel_engine::fault::FaultCode;
    use whimbrel_proto::x509::Policy;

    use super::*;
    use crate::make::{ProxyKind, Purpose};

    fn now() -> Timestamp {
        Timestamp::from_secs(1_795_300_000)
    }

    fn authority() -> OwnChain {
        let key = make::key(KeyKind::P256).unwrap();
        let certificate = make::authority("/O=Grid/CN=CA", &key, None, Life::of(now(), 9000), None).unwrap();
        OwnChain { certificate, key, chain: Vec::new() }
    }

    fn person(name: &str) -> OwnChain {
        make::issue(name, KeyKind::P256, &Purpose::Person, Life::of(now(), 5000), &authority()).unwrap()
    }

    fn proxy(own: &OwnChain, policy: Policy) -> OwnChain {
        make::own_proxy(own, KeyKind::P256, &ProxyKind::rfc(policy), Life::of(now(), 900)).unwrap()
    }

    #[test]
    fn a_proxy_is_handed_over_without_a_private_key() {
        let alice = person("/O=Grid/CN=alice");
        let key = new_key().unwrap();
        let request = request(&key).unwrap();
        for (own, certificates) in [(alice.clone(), 2), (proxy(&alice, Policy::InheritAll), 3)] {
            let answer = answer(&request, &own, Delegate::Limited, Life::of(now(), 500)).unwrap();
            assert!(!answer.contains("PRIVATE") && answer.matches("BEGIN CERTIFICATE").count() == certificates);
            let taken = take(&answer, &key, now()).unwrap();
            assert_eq!((taken.holder.identity.as_str(), taken.holder.kind), ("/O=Grid/CN=alice", "limited proxy"));
            assert_eq!(taken.holder.until.secs, now().secs + 500);
            let read = credential::from_pem(taken.pem.as_bytes()).unwrap();
            assert_eq!(read.chain.len(), certificates - 1);
            assert!(!format!("{taken:?}").contains("PRIVATE"));
        }
    }

    #[test]
    fn what_is_not_the_owners_proxy_for_this_key_is_refused() {
        let (alice, bob) = (person("/O=Grid/CN=alice"), person("/O=Grid/CN=bob"));
        let key = new_key().unwrap();
        let asked = request(&key).unwrap();
        let by = |own: &OwnChain| answer(&asked, own, Delegate::Full, Life::of(now(), 500)).unwrap();
        let refused = |text: &str| take(text, &key, now()).unwrap_err().detail;
        let good = by(&proxy(&alice, Policy::InheritAll));
        let parts: Vec<_> = good.split_inclusive("-----END CERTIFICATE-----\n").collect();
        let pem = |own: &OwnChain| String::from_utf8(own.certificate.to_pem().unwrap()).unwrap();
        assert!(refused("").contains("no certificate"), "{}", refused(""));
        assert!(refused("nonsense").contains("no certificate"));
        assert!(refused(parts[0]).contains("without the certificate"));
        assert!(refused(&parts[..2].concat()).contains("person"));
        assert!(refused(&[parts[0], parts[2]].concat()).contains("not the peer's"));
        assert!(refused(&(parts[..2].concat() + &pem(&bob))).contains("not signed"));
        assert!(refused(&(parts[..2].concat() + &pem(&authority()))).contains("not signed"));
        assert!(refused(&"x".repeat(MOST_BYTES + 1)).contains("too long"));
        assert!(refused(&by(&proxy(&alice, Policy::Independent))).contains("independent"));
        let other = new_key().unwrap();
        assert!(take(&good, &other, now()).unwrap_err().detail.contains("another key"));
        let late = take(&good, &key, Timestamp::from_secs(now().secs + 501)).unwrap_err();
        assert_eq!(late.code, FaultCode::CredentialExpired);
        // Its own life has not ended, but that of the proxy that signed it.
        let short = make::own_proxy(&alice, KeyKind::P256, &ProxyKind::rfc(Policy::InheritAll), Life::of(now(), 9));
        let late = take(&by(&short.unwrap()), &key, Timestamp::from_secs(now().secs + 10)).unwrap_err();
        assert_eq!(late.code, FaultCode::CredentialExpired);
        assert!(answer("nonsense", &alice, Delegate::Full, Life::of(now(), 9)).is_err());
    }
}

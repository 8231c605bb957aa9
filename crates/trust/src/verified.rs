//! OpenSSL's checks of signatures, which leave nothing behind.
//!
//! A check that fails puts its reasons into the thread's queue of errors. The next TLS connection that reads on this thread, somebody
//! else's, would take them for its own and end (SSL_get_error(3): the queue "must be empty before the I/O operation"). A successful
//! search for the right one of several keys leaves such reasons, too. So every check is made here, and the queue is empty afterwards.
#![allow(clippy::disallowed_methods, reason = "the one place where OpenSSL's checks are called")]

use openssl::ecdsa::EcdsaSigRef;
use openssl::error::ErrorStack;
use openssl::pkey::{HasPublic, PKeyRef, Public};
use openssl::sign::Verifier;
use openssl::x509::{X509CrlRef, X509Ref, X509ReqRef, X509StoreContextRef};

/// What bears a signature.
pub(crate) trait Signed {
    /// Whether the signature is by this key; one that cannot be checked is not.
    fn is_signed_by<T: HasPublic>(&self, key: &PKeyRef<T>) -> bool;
}

impl Signed for X509Ref {
    fn is_signed_by<T: HasPublic>(&self, key: &PKeyRef<T>) -> bool {
        held(self.verify(key))
    }
}

impl Signed for X509ReqRef {
    fn is_signed_by<T: HasPublic>(&self, key: &PKeyRef<T>) -> bool {
        held(self.verify(key))
    }
}

impl Signed for X509CrlRef {
    fn is_signed_by<T: HasPublic>(&self, key: &PKeyRef<T>) -> bool {
        held(self.verify(key))
    }
}

/// Whether the verifier's key made `signature` over `signed`.
pub(crate) fn message(mut verifier: Verifier<'_>, signature: &[u8], signed: &[u8]) -> bool {
    held(verifier.verify_oneshot(signature, signed))
}

/// Whether the key made the signature over what has this digest.
pub(crate) fn digest(signature: &EcdsaSigRef, digest: &[u8], key: &openssl::ec::EcKeyRef<Public>) -> bool {
    held(signature.verify(digest, key))
}

/// Whether a path from the certificate to an anchor was found; [`X509StoreContextRef::error`] says why not.
///
/// # Errors
/// OpenSSL's own: no memory.
pub(crate) fn path(context: &mut X509StoreContextRef) -> Result<bool, ErrorStack> {
    let found = context.verify_cert();
    forget();
    found
}

fn held(check: Result<bool, ErrorStack>) -> bool {
    forget();
    check.unwrap_or(false)
}

/// Empties the thread's queue of errors.
fn forget() {
    let _reasons = ErrorStack::get();
}

#[cfg(test)]
mod tests {
    use openssl::ec::{EcGroup, EcKey};
    use openssl::ecdsa::EcdsaSig;
    use openssl::hash::MessageDigest;
    use openssl::nid::Nid;
    use openssl::pkey::{PKey, Private};
    use openssl::sha::sha256;
    use openssl::x509::{X509Builder, X509ReqBuilder};

    use super::*;

    fn key() -> EcKey<Private> {
        EcKey::generate(&EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap()).unwrap()
    }

    #[track_caller]
    fn is_refused_without_a_trace(held: bool) {
        assert!(!held);
        assert!(ErrorStack::get().errors().is_empty());
    }

    #[test]
    fn what_does_not_hold_leaves_no_errors_to_the_connections_of_its_thread() {
        let (own, other) = (key(), key());
        let pair = PKey::from_ec_key(own.clone()).unwrap();
        let stranger = PKey::from_ec_key(other.clone()).unwrap();
        let mut certificate = X509Builder::new().unwrap();
        certificate.set_pubkey(&pair).unwrap();
        certificate.sign(&pair, MessageDigest::sha256()).unwrap();
        let certificate = certificate.build();
        let mut request = X509ReqBuilder::new().unwrap();
        request.set_pubkey(&pair).unwrap();
        request.sign(&pair, MessageDigest::sha256()).unwrap();
        let request = request.build();
        assert!(certificate.is_signed_by(&pair) && request.is_signed_by(&pair));
        is_refused_without_a_trace(certificate.is_signed_by(&stranger));
        is_refused_without_a_trace(request.is_signed_by(&stranger));

        let verifier = || Verifier::new(MessageDigest::sha256(), &pair).unwrap();
        is_refused_without_a_trace(message(verifier(), b"no signature", b"text"));
        let signature = EcdsaSig::sign(&sha256(b"text"), &other).unwrap();
        is_refused_without_a_trace(message(verifier(), &signature.to_der().unwrap(), b"text"));
        let public = EcKey::from_public_key(own.group(), own.public_key()).unwrap();
        is_refused_without_a_trace(digest(&signature, &sha256(b"text"), &public));
    }
}

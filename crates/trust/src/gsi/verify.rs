//! OpenSSL's part of the verdict: signatures, lives and constraints from a certificate up to an anchor.

use std::sync::Arc;

use openssl::error::ErrorStack;
use openssl::stack::Stack;
use openssl::x509::store::X509StoreBuilder;
use openssl::x509::verify::{X509VerifyFlags, X509VerifyParam};
use openssl::x509::{X509, X509Ref, X509StoreContext, X509VerifyResult};
use whimbrel_engine::fault::FaultCode;
use whimbrel_proto::timeval::Timestamp;
use whimbrel_proto::x509::Certificate;

use super::anchors::Authority;
use super::judge::{expired, not_yet};
use crate::fault::TrustFault;
use crate::verified;

/// OpenSSL's security level of 112 bits: RSA with 2048 bits, SHA-224.
const LEVEL: i32 = 2;

/// `X509_V_ERR_*` of x509_vfy.h.
mod codes {
    pub const NO_ISSUER: i32 = 2;
    pub const BAD_SIGNATURE: i32 = 7;
    pub const NOT_YET_VALID: i32 = 9;
    pub const EXPIRED: i32 = 10;
    pub const SELF_SIGNED: i32 = 18;
    pub const SELF_SIGNED_IN_CHAIN: i32 = 19;
    pub const NO_ISSUER_LOCALLY: i32 = 20;
    pub const UNVERIFIABLE_LEAF: i32 = 21;
}

type Verified = Result<Vec<X509>, (X509VerifyResult, Option<X509>)>;

/// OpenSSL's verdict: the chain from `leaf` to an anchor, or its error and the certificate that it is about.
///
/// `partial`: anchors need not have signed themselves.
pub(super) fn by_openssl(
    leaf: &X509Ref,
    untrusted: &[&X509Ref],
    anchors: &[Arc<Authority>],
    partial: bool,
    now: Timestamp,
) -> Result<Verified, ErrorStack> {
    let mut store = X509StoreBuilder::new()?;
    for anchor in anchors {
        store.add_cert(anchor.certificate.clone())?;
    }
    let mut param = X509VerifyParam::new()?;
    param.set_flags(X509VerifyFlags::ALLOW_PROXY_CERTS)?;
    if partial {
        param.set_flags(X509VerifyFlags::PARTIAL_CHAIN)?;
    }
    param.set_time(now.secs);
    param.set_auth_level(LEVEL);
    store.set_param(&param)?;
    let store = store.build();
    let mut others = Stack::new()?;
    for x509 in untrusted {
        others.push((*x509).to_owned())?;
    }
    X509StoreContext::new()?.init(&store, leaf, &others, |context| {
        Ok(if verified::path(context)? {
            Ok(context.chain().map(|chain| chain.iter().map(X509Ref::to_owned).collect()).unwrap_or_default())
        } else {
            Err((context.error(), context.current_cert().map(X509Ref::to_owned)))
        })
    })
}

/// What OpenSSL's refusal means.
pub(super) fn explained(refusal: &(X509VerifyResult, Option<X509>), end: &Certificate<'_>, place: &str) -> TrustFault {
    let (result, certificate) = refusal;
    let der = certificate.as_ref().and_then(|certificate| certificate.to_der().ok());
    let read = der.as_deref().and_then(|der| Certificate::parse(der).ok());
    let read = read.as_ref().unwrap_or(end);
    let subject = read.subject.one_line();
    let rejected = |detail: String| TrustFault::new(FaultCode::CredentialRejected, detail).about(&subject);
    match result.as_raw() {
        codes::EXPIRED => expired(read),
        codes::NOT_YET_VALID => not_yet(read),
        codes::NO_ISSUER | codes::NO_ISSUER_LOCALLY | codes::UNVERIFIABLE_LEAF => {
            let issuer = read.issuer.one_line();
            rejected(format!("its issuer {issuer} is not trusted: no certificate of it is in {place}"))
        }
        codes::SELF_SIGNED | codes::SELF_SIGNED_IN_CHAIN => {
            rejected(format!("it is not trusted: it is not in {place}"))
        }
        codes::BAD_SIGNATURE => rejected("its signature is not that of its issuer".to_owned()),
        _ => rejected(result.error_string().to_owned()),
    }
}

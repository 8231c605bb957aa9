//! What OpenSSL's errors mean to a person.

use openssl::ssl::SslRef;
use whimbrel_engine::fault::FaultCode;

use super::context::verdict;
use crate::fault::TrustFault;

/// `ERR_LIB_SSL` of err.h.
const SSL_LIBRARY: i32 = 20;

/// An alert N of the other side is the reason `ALERTS + N` (sslerr.h).
const ALERTS: i32 = 1000;

/// `SSL_R_WRONG_VERSION_NUMBER`: usually the bytes are no TLS at all.
const WRONG_VERSION_NUMBER: i32 = 267;

/// Why a handshake failed: the judge's word if it refused the peer, otherwise what TLS says.
pub fn handshake_failed(ssl: &SslRef, error: &openssl::ssl::Error) -> TrustFault {
    match verdict(ssl) {
        Some(Err(fault)) => fault,
        _ => explained(error, "the handshake failed"),
    }
}

/// Why an established connection ended.
pub fn stream_failed(error: &openssl::ssl::Error) -> TrustFault {
    explained(error, "the protected connection failed")
}

fn explained(error: &openssl::ssl::Error, what: &str) -> TrustFault {
    let reasons = error.ssl_error().map(|stack| stack.errors()).unwrap_or_default();
    let of_tls = reasons.iter().find(|reason| reason.library_code() == SSL_LIBRARY);
    let Some(reason) = of_tls else {
        let detail = match reasons.first() {
            Some(reason) => reason.to_string(),
            None => error.to_string(),
        };
        return TrustFault::new(FaultCode::EncryptionFailed, format!("{what}: {detail}"));
    };
    let text = reason.reason().unwrap_or("unknown reason");
    match reason.reason_code() {
        WRONG_VERSION_NUMBER => {
            TrustFault::new(FaultCode::EncryptionFailed, format!("{what}: the other side does not speak TLS here"))
        }
        alert if (ALERTS..ALERTS + 256).contains(&alert) => refused(alert - ALERTS, text),
        _ => TrustFault::new(FaultCode::EncryptionFailed, format!("{what}: {text}")),
    }
}

/// An alert of the other side (RFC 8446 §6).
pub(super) fn refused(alert: i32, text: &str) -> TrustFault {
    let (code, meaning) = match alert {
        41 | 116 => (FaultCode::CredentialMissing, "it asks for a certificate"),
        42 | 43 | 46 => (FaultCode::CredentialRejected, "it does not accept our certificate"),
        44 => (FaultCode::CredentialRejected, "our certificate was revoked"),
        45 => (FaultCode::CredentialExpired, "our certificate has expired"),
        48 => (FaultCode::CredentialRejected, "it does not know the issuer of our certificate"),
        49 => (FaultCode::NotAuthorized, "it denies access"),
        70 => (FaultCode::EncryptionFailed, "we share no version of TLS with it"),
        115 => (FaultCode::PeerIdentity, "it does not know the key agreed for this transfer"),
        _ => (FaultCode::EncryptionFailed, "it ended the handshake"),
    };
    TrustFault::new(code, format!("the other side refused: {meaning} ({text})"))
}

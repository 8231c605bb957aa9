//! Proxies: of every kind, signed by whoever they act for.

use openssl::bn::BigNum;
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::pkey::{HasPublic, PKeyRef, Private};
use openssl::x509::{X509, X509Req};
use whimbrel_engine::fault::FaultCode;
use whimbrel_proto::x509::der::{Reader, encode, encode_count, tag};
use whimbrel_proto::x509::oid::{self, Oid};
use whimbrel_proto::x509::{Form, Policy};

use super::{Draft, KeyKind, Life, digest_for, digest_of, failed, key, key_usage, name, parsed, signed_request};
use crate::fault::TrustFault;
use crate::peer::OwnChain;

/// What a proxy is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyKind {
    /// By which document.
    pub form: Form,
    /// What it may do; [`Policy::Restricted`] cannot be made.
    pub policy: Policy,
    /// Most proxies below it.
    pub path_length: Option<u32>,
}

impl ProxyKind {
    /// An RFC 3820 proxy of any depth.
    pub fn rfc(policy: Policy) -> Self {
        Self { form: Form::Rfc, policy, path_length: None }
    }
}

/// A request for a proxy, as servers of GSI send it: its subject is of no account.
pub fn proxy_request(key: &PKeyRef<Private>, form: Form, digest: MessageDigest) -> Result<X509Req, TrustFault> {
    let info = proxy_info(&ProxyKind { form, policy: Policy::InheritAll, path_length: None })?;
    let extensions: Vec<_> = info.into_iter().collect();
    signed_request(&name("/CN=NULL SUBJECT NAME ENTRY")?, key, &extensions, digest).map_err(failed)
}

/// A proxy for the key of somebody who acts for `signer`; it does not outlive its signer.
///
/// Key usage and purposes are the signer's, without signing certificates and non-repudiation (RFC 3820 §3.7); the digest of the
/// signature is that of the signer's own certificate, as Globus demands, unless that is older than SHA-2.
pub fn proxy<T: HasPublic>(
    signer: &OwnChain,
    key: &PKeyRef<T>,
    kind: &ProxyKind,
    life: Life,
) -> Result<X509, TrustFault> {
    proxy_draft(signer, kind, life)?.sign(key, &signer.key)
}

/// A proxy about to be signed.
pub fn proxy_draft(signer: &OwnChain, kind: &ProxyKind, life: Life) -> Result<Draft, TrustFault> {
    let der = signer.certificate.to_der().map_err(failed)?;
    let above = parsed(&der)?;
    let life = life.within(Life { from: above.not_before, until: above.not_after });
    if life.from > life.until {
        let fault = TrustFault::new(FaultCode::CredentialExpired, "it cannot sign a proxy any more");
        return Err(fault.about(above.subject.one_line()).until(above.not_after));
    }
    let mut draft = Draft::new(above.subject.der().to_vec(), Vec::new(), life)?;
    draft.digest = digest_of(&signer.certificate).unwrap_or_else(|| digest_for(&signer.key));
    let common = match (kind.form, kind.policy) {
        (Form::Legacy, Policy::InheritAll) => "proxy".to_owned(),
        (Form::Legacy, Policy::Limited) => "limited proxy".to_owned(),
        (Form::Legacy, _) => return Err(unmakable()),
        _ => decimal(&draft.serial).map_err(failed)?,
    };
    if kind.form == Form::Legacy {
        draft.serial = above.serial.to_vec();
    }
    draft.subject = grown(above.subject.der(), &common);
    draft.extensions.extend(proxy_info(kind)?);
    if let Some(usage) = above.extensions.key_usage {
        draft = draft.with(oid::KEY_USAGE, true, key_usage(usage.of_proxies()));
    }
    if let Some(purposes) = &above.extensions.purposes {
        let list: Vec<u8> = purposes.iter().flat_map(|purpose| encode(tag::OID, &[purpose.bytes()])).collect();
        draft = draft.with(oid::EXTENDED_KEY_USAGE, false, encode(tag::SEQUENCE, &[&list]));
    }
    Ok(draft)
}

/// A proxy with a new key, ready to speak for `signer`.
pub fn own_proxy(signer: &OwnChain, keys: KeyKind, kind: &ProxyKind, life: Life) -> Result<OwnChain, TrustFault> {
    let key = key(keys)?;
    let certificate = proxy(signer, &key, kind, life)?;
    let mut chain = vec![signer.certificate.clone()];
    chain.extend(signer.chain.iter().cloned());
    Ok(OwnChain { certificate, key, chain })
}

/// `subject` and one commonName more.
pub fn grown(subject: &[u8], common: &str) -> Vec<u8> {
    let value = encode(tag::PRINTABLE_STRING, &[common.as_bytes()]);
    let part = encode(tag::SEQUENCE, &[&encode(tag::OID, &[oid::COMMON_NAME.bytes()]), &value]);
    let mut reader = Reader::new(subject);
    let parts = reader.sequence().map(|inside| inside.rest()).unwrap_or_default();
    encode(tag::SEQUENCE, &[parts, &encode(tag::SET, &[&part])])
}

/// The extension that makes a proxy one: identifier, critical, value; none for legacy proxies.
fn proxy_info(kind: &ProxyKind) -> Result<Option<(String, bool, Vec<u8>)>, TrustFault> {
    let language = match kind.policy {
        Policy::InheritAll => oid::INHERIT_ALL,
        Policy::Limited => oid::LIMITED,
        Policy::Independent => oid::INDEPENDENT,
        Policy::Restricted => return Err(unmakable()),
    };
    Ok(match kind.form {
        Form::Legacy if kind.path_length.is_some() => return Err(unmakable()),
        Form::Legacy => None,
        Form::Rfc => Some((oid::PROXY_INFO.to_string(), true, info(language, kind.path_length, false))),
        Form::Draft => Some((oid::PROXY_INFO_DRAFT.to_string(), true, info(language, kind.path_length, true))),
    })
}

fn info(language: Oid<'_>, path_length: Option<u32>, draft: bool) -> Vec<u8> {
    let policy = encode(tag::SEQUENCE, &[&encode(tag::OID, &[language.bytes()])]);
    let length = path_length.map(encode_count).unwrap_or_default();
    match draft {
        true if path_length.is_some() => encode(tag::SEQUENCE, &[&policy, &encode(tag::context(1), &[&length])]),
        true => encode(tag::SEQUENCE, &[&policy]),
        false => encode(tag::SEQUENCE, &[&length, &policy]),
    }
}

fn decimal(serial: &[u8]) -> Result<String, ErrorStack> {
    BigNum::from_slice(serial)?.to_dec_str().map(|text| text.to_string())
}

fn unmakable() -> TrustFault {
    TrustFault::new(FaultCode::NotSupported, "there is no proxy of this kind")
}

//! Certificates that we make: authorities, hosts and people for tests and small sites, proxies for everybody, and requests.
//!
//! Keys are RSA with 2048 bits or more, or P-256. Names are given in one-line form, `/O=Grid/CN=alice`.

mod proxy;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use openssl::asn1::{Asn1Integer, Asn1Object, Asn1OctetString, Asn1Time};
use openssl::bn::BigNum;
use openssl::ec::{EcGroup, EcKey};
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{HasPrivate, HasPublic, Id, PKey, PKeyRef, Private};
use openssl::rand::rand_bytes;
use openssl::rsa::Rsa;
use openssl::sign::Signer;
use openssl::stack::Stack;
use openssl::x509::{
    X509, X509Builder, X509Crl, X509Extension, X509Name, X509NameRef, X509Ref, X509Req, X509ReqBuilder,
};
use whimbrel_engine::fault::FaultCode;
use whimbrel_proto::timeval::Timestamp;
use whimbrel_proto::x509::Certificate;
use whimbrel_proto::x509::der::{encode, encode_count, tag};
use whimbrel_proto::x509::extensions::KeyUsage;
use whimbrel_proto::x509::oid::{self, Oid};
use zeroize::Zeroizing;

use crate::clock;
use crate::fault::TrustFault;
use crate::peer::OwnChain;
use crate::verified::Signed;

pub use proxy::{ProxyKind, grown, own_proxy, proxy, proxy_draft, proxy_request};

/// Kinds of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    /// RSA with so many bits; 2048 is what everybody reads. Takes 50 to 500 ms to make.
    Rsa(u32),
    /// The elliptic curve P-256; Globus' programs cannot delegate a user's proxy with such a key.
    P256,
}

/// When something is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Life {
    /// First second.
    pub from: Timestamp,
    /// Last second.
    pub until: Timestamp,
}

/// Names and addresses of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostName {
    /// A DNS name, perhaps with `*` as its first label.
    Dns(String),
    /// An address.
    Address(IpAddr),
}

/// What a certificate is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purpose {
    /// Signing certificates, with at most so many authorities below.
    Authority(Option<u32>),
    /// A host with these names.
    Host(Vec<HostName>),
    /// A person or a service.
    Person,
}

impl Life {
    /// From five minutes before `now`, for clocks that are behind, for so many seconds from now on.
    pub fn of(now: Timestamp, seconds: i64) -> Self {
        let at = |offset: i64| Timestamp::from_secs(now.secs.saturating_add(offset));
        Self { from: at(-300), until: at(seconds) }
    }

    /// The part of this that lies within another.
    pub fn within(self, other: Self) -> Self {
        Self { from: self.from.max(other.from), until: self.until.min(other.until) }
    }
}

/// A certificate about to be signed, every part of it open; tests make wrong ones with it.
#[derive(Clone)]
pub struct Draft {
    /// Version as people count.
    pub version: u8,
    /// Serial number, big-endian, not negative.
    pub serial: Vec<u8>,
    /// Signer's name, DER.
    pub issuer: Vec<u8>,
    /// Name, DER.
    pub subject: Vec<u8>,
    /// When it is good.
    pub life: Life,
    /// Identifier in dotted form, critical, value.
    pub extensions: Vec<(String, bool, Vec<u8>)>,
    /// Digest of the signature.
    pub digest: MessageDigest,
}

impl Draft {
    /// A draft with a random serial number and no extensions.
    pub fn new(issuer: Vec<u8>, subject: Vec<u8>, life: Life) -> Result<Self, TrustFault> {
        let serial = serial().map_err(failed)?;
        Ok(Self { version: 3, serial, issuer, subject, life, extensions: Vec::new(), digest: MessageDigest::sha256() })
    }

    /// Adds an extension.
    pub fn with(mut self, oid: Oid<'_>, critical: bool, value: Vec<u8>) -> Self {
        self.extensions.push((oid.to_string(), critical, value));
        self
    }

    /// Signs it for `key` with the signer's key.
    pub fn sign<T: HasPublic, S: HasPrivate>(&self, key: &PKeyRef<T>, signer: &PKeyRef<S>) -> Result<X509, TrustFault> {
        self.signed(key, signer).map_err(failed)
    }

    fn signed<T: HasPublic, S: HasPrivate>(&self, key: &PKeyRef<T>, signer: &PKeyRef<S>) -> Result<X509, ErrorStack> {
        let mut builder = X509Builder::new()?;
        builder.set_version(i32::from(self.version) - 1)?;
        builder.set_serial_number(&*Asn1Integer::from_bn(&*BigNum::from_slice(&self.serial)?)?)?;
        builder.set_issuer_name(&*X509Name::from_der(&self.issuer)?)?;
        builder.set_subject_name(&*X509Name::from_der(&self.subject)?)?;
        builder.set_not_before(&*Asn1Time::from_unix(self.life.from.secs)?)?;
        builder.set_not_after(&*Asn1Time::from_unix(self.life.until.secs)?)?;
        builder.set_pubkey(key)?;
        for (oid, critical, value) in &self.extensions {
            builder.append_extension(raw_extension(oid, *critical, value)?)?;
        }
        builder.sign(signer, self.digest)?;
        Ok(builder.build())
    }
}

/// A new key.
pub fn key(kind: KeyKind) -> Result<PKey<Private>, TrustFault> {
    let made = match kind {
        KeyKind::Rsa(bits) => Rsa::generate(bits.max(2048)).and_then(PKey::from_rsa),
        KeyKind::P256 => EcGroup::from_curve_name(Nid::X9_62_PRIME256V1)
            .and_then(|group| EcKey::generate(&group))
            .and_then(PKey::from_ec_key),
    };
    made.map_err(failed)
}

/// The DER form of a name in one-line form; a part begins at each `/` that a type and `=` follow, unless there is a `\` before it.
pub fn name(one_line: &str) -> Result<Vec<u8>, TrustFault> {
    let mut builder = X509Name::builder().map_err(failed)?;
    for (kind, value) in parts(one_line)? {
        builder.append_entry_by_text(kind, &value.replace("\\/", "/")).map_err(|_| bad_name(one_line))?;
    }
    builder.build().to_der().map_err(failed)
}

fn parts(one_line: &str) -> Result<Vec<(&str, &str)>, TrustFault> {
    let mut parts: Vec<(&str, &str)> = Vec::new();
    let mut rest = one_line.strip_prefix('/').ok_or_else(|| bad_name(one_line))?;
    while let Some((kind, value)) = rest.split_once('=') {
        let is_type = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.');
        let begins = |at: &usize| value[at + 1..].split_once('=').is_some_and(|(kind, _)| is_type(kind));
        let separators = value.match_indices('/').map(|(at, _)| at).filter(|at| !value[..*at].ends_with('\\'));
        let next = separators.filter(begins).min();
        let (value, behind) = next.map_or((value, ""), |at| (&value[..at], &value[at + 1..]));
        if !is_type(kind) {
            return Err(bad_name(one_line));
        }
        parts.push((kind, value));
        rest = behind;
    }
    if parts.is_empty() || !rest.is_empty() { Err(bad_name(one_line)) } else { Ok(parts) }
}

/// An authority of its own, or one below `signer`.
pub fn authority(
    subject: &str,
    key: &PKeyRef<Private>,
    path_length: Option<u32>,
    life: Life,
    signer: Option<&OwnChain>,
) -> Result<X509, TrustFault> {
    let subject = name(subject)?;
    match signer {
        Some(signer) => certify(&subject, key, &Purpose::Authority(path_length), life, signer),
        None => {
            let draft = describe(Draft::new(subject.clone(), subject, life)?, &Purpose::Authority(path_length), key)?;
            draft.sign(key, key)
        }
    }
}

/// A certificate that speaks for itself: what a server shows until it has a real one, pinned by those who saw it.
pub fn self_signed(subject: &str, key: &PKeyRef<Private>, purpose: &Purpose, life: Life) -> Result<X509, TrustFault> {
    let subject = name(subject)?;
    describe(Draft::new(subject.clone(), subject, life)?, purpose, key)?.sign(key, key)
}

/// A new key with a certificate that speaks for itself, for a host that is believed by its key or by this very certificate.
pub fn own_host(subject: &str, names: Vec<HostName>, seconds: i64) -> Result<OwnChain, TrustFault> {
    let key = key(KeyKind::P256)?;
    let life = Life::of(clock::now(), seconds);
    let certificate = self_signed(subject, &key, &Purpose::Host(names), life)?;
    Ok(OwnChain { certificate, key, chain: Vec::new() })
}

/// A certificate for somebody's key, signed by an authority, which it does not outlive.
pub fn certify<T: HasPublic>(
    subject: &[u8],
    key: &PKeyRef<T>,
    purpose: &Purpose,
    life: Life,
    signer: &OwnChain,
) -> Result<X509, TrustFault> {
    let issuer = subject_of(&signer.certificate)?;
    let mut draft = Draft::new(issuer, subject.to_vec(), life.within(life_of(&signer.certificate)?))?;
    draft.digest = digest_for(&signer.key);
    let mut draft = describe(draft, purpose, key)?;
    let above = signer.certificate.to_der().map_err(failed)?;
    if let Some(id) = parsed(&above)?.extensions.subject_key {
        let value = encode(tag::SEQUENCE, &[&encode(tag::implicit(0), &[id])]);
        draft = draft.with(oid::AUTHORITY_KEY_ID, false, value);
    }
    draft.sign(key, &signer.key)
}

/// A person, host or authority with a new key, signed by an authority.
pub fn issue(
    subject: &str,
    kind: KeyKind,
    purpose: &Purpose,
    life: Life,
    signer: &OwnChain,
) -> Result<OwnChain, TrustFault> {
    let key = key(kind)?;
    let certificate = certify(&name(subject)?, &key, purpose, life, signer)?;
    Ok(OwnChain { certificate, key, chain: above(signer) })
}

/// A certificate for whoever signed a request; its subject and names are those asked for, which the caller has judged.
pub fn certify_request(
    request: &X509Req,
    purpose: &Purpose,
    life: Life,
    signer: &OwnChain,
) -> Result<X509, TrustFault> {
    let key = request.public_key().map_err(failed)?;
    if !request.is_signed_by(&key) {
        return Err(TrustFault::new(FaultCode::CredentialRejected, "the request is not signed with its own key"));
    }
    certify(&request.subject_name().to_der().map_err(failed)?, &key, purpose, life, signer)
}

/// A request for a certificate (PKCS#10).
pub fn request(subject: &str, key: &PKeyRef<Private>, hosts: &[HostName]) -> Result<X509Req, TrustFault> {
    let mut extensions = Vec::new();
    if !hosts.is_empty() {
        extensions.push((oid::SUBJECT_ALT_NAME.to_string(), false, alt_names(hosts)));
    }
    signed_request(&name(subject)?, key, &extensions, digest_for(key)).map_err(failed)
}

fn signed_request(
    subject: &[u8],
    key: &PKeyRef<Private>,
    wanted: &[(String, bool, Vec<u8>)],
    digest: MessageDigest,
) -> Result<X509Req, ErrorStack> {
    let mut builder = X509ReqBuilder::new()?;
    builder.set_version(0)?;
    builder.set_subject_name(&*X509Name::from_der(subject)?)?;
    builder.set_pubkey(key)?;
    let mut extensions = Stack::new()?;
    for (oid, critical, value) in wanted {
        extensions.push(raw_extension(oid, *critical, value)?)?;
    }
    if !wanted.is_empty() {
        builder.add_extensions(&extensions)?;
    }
    builder.sign(key, digest)?;
    Ok(builder.build())
}

/// A list of revoked certificates by an authority (RFC 5280 §5), by serial numbers as certificates have them.
pub fn revocations(signer: &OwnChain, serials: &[&[u8]], life: Life) -> Result<X509Crl, TrustFault> {
    let algorithm: &[u8] = match signer.key.id() {
        // sha256WithRSAEncryption, with NULL (RFC 4055 §5); ecdsa-with-SHA256, without (RFC 5758 §3.2).
        Id::RSA => &[0x30, 0x0d, 0x06, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 0x0b, 5, 0],
        _ => &[0x30, 0x0a, 0x06, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2],
    };
    let time = |at: Timestamp| encode(tag::GENERALIZED_TIME, &[at.to_wire().as_bytes(), b"Z"]);
    // RFC 5280 §5.1.2.4: years before 2050 are UTCTime.
    let time = |at: Timestamp| match at.to_civil().year {
        1950..2050 => encode(tag::UTC_TIME, &[&at.to_wire().as_bytes()[2..], b"Z"]),
        _ => time(at),
    };
    let revoked: Vec<u8> = serials
        .iter()
        .flat_map(|serial| encode(tag::SEQUENCE, &[&encode(tag::INTEGER, &[serial]), &time(life.from)]))
        .collect();
    let revoked = if serials.is_empty() { Vec::new() } else { encode(tag::SEQUENCE, &[&revoked]) };
    let issuer = subject_of(&signer.certificate)?;
    let parts: [&[u8]; 6] = [&encode_count(1), algorithm, &issuer, &time(life.from), &time(life.until), &revoked];
    let list = encode(tag::SEQUENCE, &parts);
    let signature = Signer::new(MessageDigest::sha256(), &signer.key)
        .and_then(|mut signing| signing.sign_oneshot_to_vec(&list))
        .map_err(failed)?;
    let whole = encode(tag::SEQUENCE, &[&list, algorithm, &encode(tag::BIT_STRING, &[&[0], &signature])]);
    X509Crl::from_der(&whole).map_err(failed)
}

/// The text of a file with a credential, in the order of proxies: certificate, key, the certificates above.
pub fn to_pem(own: &OwnChain) -> Result<Zeroizing<Vec<u8>>, TrustFault> {
    pem(own).map(Zeroizing::new).map_err(failed)
}

fn pem(own: &OwnChain) -> Result<Vec<u8>, ErrorStack> {
    let mut text = own.certificate.to_pem()?;
    text.extend_from_slice(&key_pem(&own.key)?);
    for above in &own.chain {
        text.extend_from_slice(&above.to_pem()?);
    }
    Ok(text)
}

/// The text of a key: RSA in the old form that Java's and Globus' programs read, others as PKCS#8.
pub fn key_pem(key: &PKeyRef<Private>) -> Result<Zeroizing<Vec<u8>>, ErrorStack> {
    let text = if key.id() == Id::RSA { key.rsa()?.private_key_to_pem()? } else { key.private_key_to_pem_pkcs8()? };
    Ok(Zeroizing::new(text))
}

/// What certificates for a purpose say.
fn describe<T: HasPublic>(draft: Draft, purpose: &Purpose, key: &PKeyRef<T>) -> Result<Draft, TrustFault> {
    let id = key_id(key).map_err(failed)?;
    let draft = draft.with(oid::SUBJECT_KEY_ID, false, encode(tag::OCTET_STRING, &[&id]));
    let truth = encode(tag::BOOLEAN, &[&[0xff]]);
    Ok(match purpose {
        Purpose::Authority(path_length) => {
            let length = path_length.map(encode_count).unwrap_or_default();
            let basic = encode(tag::SEQUENCE, &[&truth, &length]);
            draft.with(oid::BASIC_CONSTRAINTS, true, basic).with(oid::KEY_USAGE, true, key_usage(KeyUsage::AUTHORITY))
        }
        Purpose::Host(names) => {
            // serverAuth and clientAuth (RFC 5280 §4.2.1.12): a server dials, too.
            let purposes = [[6, 8, 0x2b, 6, 1, 5, 5, 7, 3, 1], [6, 8, 0x2b, 6, 1, 5, 5, 7, 3, 2]].concat();
            let draft = draft
                .with(oid::BASIC_CONSTRAINTS, true, encode(tag::SEQUENCE, &[]))
                .with(oid::KEY_USAGE, true, key_usage(KeyUsage::END_ENTITY))
                .with(oid::EXTENDED_KEY_USAGE, false, encode(tag::SEQUENCE, &[&purposes]));
            if names.is_empty() { draft } else { draft.with(oid::SUBJECT_ALT_NAME, false, alt_names(names)) }
        }
        Purpose::Person => draft.with(oid::BASIC_CONSTRAINTS, true, encode(tag::SEQUENCE, &[])).with(
            oid::KEY_USAGE,
            true,
            key_usage(KeyUsage::END_ENTITY),
        ),
    })
}

fn alt_names(hosts: &[HostName]) -> Vec<u8> {
    let names: Vec<u8> = hosts
        .iter()
        .flat_map(|host| match host {
            HostName::Dns(name) => encode(tag::implicit(2), &[name.as_bytes()]),
            HostName::Address(IpAddr::V4(address)) => encode(tag::implicit(7), &[&address.octets()]),
            HostName::Address(IpAddr::V6(address)) => encode(tag::implicit(7), &[&address.octets()]),
        })
        .collect();
    encode(tag::SEQUENCE, &[&names])
}

/// keyUsage in DER: bits at the end that are not set are left out (X.690 §11.2.2).
fn key_usage(usage: KeyUsage) -> Vec<u8> {
    let bits = usage.bits();
    let bytes = bits.to_be_bytes();
    let used = &bytes[..(16 - bits.trailing_zeros().min(16) as usize).div_ceil(8)];
    let unused = if bits == 0 { 0 } else { (bits.trailing_zeros() % 8) as u8 };
    encode(tag::BIT_STRING, &[&[unused], used])
}

/// Method 1 of RFC 7093 §2: 160 bits of a SHA-256 of the key.
fn key_id<T: HasPublic>(key: &PKeyRef<T>) -> Result<[u8; 20], ErrorStack> {
    let digest = openssl::hash::hash(MessageDigest::sha256(), &key.public_key_to_der()?)?;
    let mut id = [0; 20];
    id.copy_from_slice(&digest[..20]);
    Ok(id)
}

/// 63 random bits.
fn serial() -> Result<Vec<u8>, ErrorStack> {
    let mut bytes = [0; 8];
    rand_bytes(&mut bytes)?;
    // Positive, and never short of bytes.
    bytes[0] = bytes[0] & 0x3f | 0x40;
    Ok(bytes.to_vec())
}

fn raw_extension(oid: &str, critical: bool, value: &[u8]) -> Result<X509Extension, ErrorStack> {
    let (oid, value) = (Asn1Object::from_str(oid)?, Asn1OctetString::new_from_bytes(value)?);
    X509Extension::new_from_der(&oid, critical, &value)
}

/// The digest of a certificate's signature if it is of the SHA-2 family.
pub fn digest_of(certificate: &X509Ref) -> Option<MessageDigest> {
    let digest = certificate.signature_algorithm().object().nid().signature_algorithms()?.digest;
    [Nid::SHA256, Nid::SHA384, Nid::SHA512, Nid::SHA224].contains(&digest).then(|| MessageDigest::from_nid(digest))?
}

fn digest_for<T>(key: &PKeyRef<T>) -> MessageDigest {
    if [Id::ED25519, Id::ED448].contains(&key.id()) { MessageDigest::null() } else { MessageDigest::sha256() }
}

/// The chain of whoever `signer` signs for: himself, unless everybody who trusts him has him.
fn above(signer: &OwnChain) -> Vec<X509> {
    let root = signer.certificate.issued(&signer.certificate) == openssl::x509::X509VerifyResult::OK;
    if root {
        Vec::new()
    } else {
        std::iter::once(signer.certificate.clone()).chain(signer.chain.iter().cloned()).collect()
    }
}

fn subject_of(certificate: &X509Ref) -> Result<Vec<u8>, TrustFault> {
    let name: &X509NameRef = certificate.subject_name();
    name.to_der().map_err(failed)
}

fn life_of(certificate: &X509Ref) -> Result<Life, TrustFault> {
    let der = certificate.to_der().map_err(failed)?;
    let read = parsed(&der)?;
    Ok(Life { from: read.not_before, until: read.not_after })
}

fn parsed(der: &[u8]) -> Result<Certificate<'_>, TrustFault> {
    let unreadable =
        |error| TrustFault::new(FaultCode::CredentialRejected, format!("the certificate cannot be read: {error}"));
    Certificate::parse(der).map_err(unreadable)
}

fn failed(error: ErrorStack) -> TrustFault {
    TrustFault::new(FaultCode::Internal, format!("OpenSSL: {error}"))
}

fn bad_name(one_line: &str) -> TrustFault {
    TrustFault::new(FaultCode::InvalidArgument, "a name is written as /O=Grid/CN=alice").about(one_line)
}

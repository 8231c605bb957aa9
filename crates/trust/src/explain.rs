//! What a PEM file holds, for people: certificates of every kind, keys, requests, revocation lists, and whether the chain is believed.

use std::sync::Arc;

use openssl::nid::Nid;
use openssl::pkey::{HasPublic, Id, PKey, PKeyRef};
use openssl::x509::{X509, X509Crl, X509Ref, X509Req};
use whimbrel_proto::timeval::Timestamp;
use whimbrel_proto::x509::der::Reader;
use whimbrel_proto::x509::{Certificate, Form, Kind, Name, Policy};

use crate::fault::TrustFault;
use crate::gsi::{Anchors, Judge};

/// One part of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// A certificate.
    Certificate(Box<CertificatePart>),
    /// A private key.
    Key {
        /// Such as `RSA with 2048 bits`; `None`: it is locked by a passphrase.
        kind: Option<String>,
        /// It belongs to the first certificate of the file; `None`: there is none, or it is locked.
        fits: Option<bool>,
    },
    /// A request for a certificate.
    Request {
        /// Whom it names, in one-line form.
        subject: String,
        /// Such as `RSA with 2048 bits`.
        key: String,
    },
    /// A revocation list.
    RevocationList {
        /// Whose, in one-line form.
        authority: String,
        /// When the next one is due, as OpenSSL writes it.
        next: Option<String>,
        /// How many certificates are revoked.
        revoked: usize,
    },
    /// A part of another kind, by its label.
    Other(String),
    /// A part that cannot be read.
    Unreadable {
        /// Its label.
        label: String,
        /// What is wrong.
        reason: String,
    },
}

/// What a certificate says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificatePart {
    /// In one-line form.
    pub subject: String,
    /// In one-line form.
    pub issuer: String,
    /// What it is, in words.
    pub kind: String,
    /// First second of its life.
    pub from: Timestamp,
    /// Last second of its life.
    pub until: Timestamp,
    /// Its life is over, or has not begun.
    pub outside: bool,
    /// Names and addresses of a host.
    pub names: Vec<String>,
    /// Such as `RSA with 2048 bits`.
    pub key: String,
    /// In hexadecimal digits.
    pub serial: String,
    /// OpenSSL's hash of the subject, after which files of authorities are named.
    pub hash: String,
}

/// Whether the chain that begins with the file's first certificate is believed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It speaks for this subject.
    Believed {
        /// In one-line form.
        subject: String,
        /// Earliest end of life in the chain.
        until: Timestamp,
    },
    /// It is one of the trusted authorities.
    Authority,
    /// For this reason.
    Refused(TrustFault),
    /// There is no certificate.
    Nothing,
}

/// Everything about a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Explained {
    /// In the order of the file.
    pub parts: Vec<Part>,
    /// About the chain.
    pub verdict: Verdict,
}

/// Explains a PEM text at `now`, to whom trusts `anchors`.
pub fn explain(pem: &[u8], anchors: Arc<Anchors>, now: Timestamp) -> Explained {
    let blocks = blocks(&String::from_utf8_lossy(pem));
    let certificates = blocks.iter().filter(|(label, _)| is_certificate(label));
    let certificates: Vec<X509> =
        certificates.filter_map(|(_, text)| X509::from_pem(plain(text).as_bytes()).ok()).collect();
    let parts = blocks.iter().map(|(label, text)| part(label, text, certificates.first(), now)).collect();
    Explained { parts, verdict: verdict(&certificates, anchors, now) }
}

/// Labels and texts of everything between `-----BEGIN` and `-----END`.
fn blocks(text: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut open: Option<(String, String)> = None;
    for line in text.lines().map(str::trim) {
        if let Some(label) = line.strip_prefix("-----BEGIN ").and_then(|rest| rest.strip_suffix("-----")) {
            open = Some((label.to_owned(), String::new()));
        }
        if let Some((label, text)) = &mut open {
            text.push_str(line);
            text.push('\n');
            if line == format!("-----END {label}-----") {
                found.extend(open.take());
            }
        }
    }
    // Cut short: it is told as what it began as, and cannot be read.
    found.extend(open);
    found
}

fn is_certificate(label: &str) -> bool {
    ["CERTIFICATE", "X509 CERTIFICATE", "TRUSTED CERTIFICATE"].contains(&label)
}

/// With the usual label.
fn plain(text: &str) -> String {
    text.replace("X509 CERTIFICATE-", "CERTIFICATE-").replace("TRUSTED CERTIFICATE-", "CERTIFICATE-")
}

fn part(label: &str, text: &str, first: Option<&X509>, now: Timestamp) -> Part {
    let read = match label {
        _ if is_certificate(label) => X509::from_pem(plain(text).as_bytes())
            .map_err(|_| "it is damaged".to_owned())
            .and_then(|x509| certificate(&x509, now))
            .map(|part| Part::Certificate(Box::new(part))),
        _ if label.ends_with("PRIVATE KEY") => key(text, first),
        "CERTIFICATE REQUEST" | "NEW CERTIFICATE REQUEST" => request(text),
        "X509 CRL" => revocation_list(text),
        other => Ok(Part::Other(other.to_owned())),
    };
    read.unwrap_or_else(|reason| Part::Unreadable { label: label.to_owned(), reason })
}

fn certificate(x509: &X509Ref, now: Timestamp) -> Result<CertificatePart, String> {
    let der = x509.to_der().map_err(|error| error.to_string())?;
    let read = Certificate::parse(&der).map_err(|error| format!("it cannot be read: {error}"))?;
    let names = read.extensions.alt_names.iter();
    let names = names.flat_map(|names| {
        let addresses = names.addresses.iter().map(ToString::to_string);
        names.dns.iter().chain(&names.mail).map(ToString::to_string).chain(addresses)
    });
    Ok(CertificatePart {
        subject: read.subject.one_line(),
        issuer: read.issuer.one_line(),
        kind: kind(&read),
        from: read.not_before,
        until: read.not_after,
        outside: now < read.not_before || now > read.not_after,
        names: names.collect(),
        key: x509.public_key().map_or_else(|_| "of an unknown kind".to_owned(), |key| key_kind(&key)),
        serial: read.serial.iter().map(|byte| format!("{byte:02x}")).collect(),
        hash: format!("{:08x}", x509.subject_name_hash()),
    })
}

fn kind(read: &Certificate<'_>) -> String {
    match read.kind() {
        Ok(Kind::Ca) if read.is_self_issued() => "authority (root)".to_owned(),
        Ok(Kind::Ca) => "authority below another one".to_owned(),
        Ok(Kind::EndEntity) => match &read.extensions.alt_names {
            Some(names) if !names.dns.is_empty() || !names.addresses.is_empty() => "host".to_owned(),
            _ => "person or service".to_owned(),
        },
        Ok(Kind::Proxy { form, policy }) => {
            let policy = match policy {
                Policy::InheritAll => "with all rights of its owner",
                Policy::Limited => "limited: it moves data and starts no jobs",
                Policy::Independent => "independent: an identity of its own",
                Policy::Restricted => "with a policy that is not known here",
            };
            let form = match form {
                Form::Rfc => "RFC 3820",
                Form::Draft => "draft of RFC 3820",
                Form::Legacy => "legacy, by its name alone",
            };
            format!("proxy ({form}), {policy}")
        }
        Err(wrong) => format!("unusable: {wrong}"),
    }
}

fn key(text: &str, first: Option<&X509>) -> Result<Part, String> {
    if text.contains("ENCRYPTED") {
        return Ok(Part::Key { kind: None, fits: None });
    }
    // An empty passphrase keeps OpenSSL from asking the terminal.
    let key = PKey::private_key_from_pem_passphrase(text.as_bytes(), b"").map_err(|_| "it is damaged".to_owned())?;
    let fits = first.map(|x509| x509.public_key().is_ok_and(|public| public.public_eq(&key)));
    Ok(Part::Key { kind: Some(key_kind(&key)), fits })
}

fn key_kind<T: HasPublic>(key: &PKeyRef<T>) -> String {
    let name = match key.id() {
        Id::RSA => "RSA",
        Id::EC => {
            let curve = key.ec_key().ok().and_then(|key| key.group().curve_name());
            return match curve {
                Some(Nid::X9_62_PRIME256V1) => "elliptic curve P-256".to_owned(),
                Some(curve) => format!("elliptic curve {}", curve.short_name().unwrap_or("of an unknown name")),
                None => "elliptic curve".to_owned(),
            };
        }
        Id::ED25519 => return "Ed25519".to_owned(),
        _ => "another kind",
    };
    format!("{name} with {} bits", key.bits())
}

fn request(text: &str) -> Result<Part, String> {
    let text = text.replace("NEW CERTIFICATE", "CERTIFICATE");
    let request = X509Req::from_pem(text.as_bytes()).map_err(|_| "it is damaged".to_owned())?;
    let key = request.public_key().map_or_else(|_| "of an unknown kind".to_owned(), |key| key_kind(&key));
    Ok(Part::Request { subject: one_line(request.subject_name().to_der().ok()), key })
}

fn revocation_list(text: &str) -> Result<Part, String> {
    let list = X509Crl::from_pem(text.as_bytes()).map_err(|_| "it is damaged".to_owned())?;
    Ok(Part::RevocationList {
        authority: one_line(list.issuer_name().to_der().ok()),
        next: list.next_update().map(ToString::to_string),
        revoked: list.get_revoked().map_or(0, |revoked| revoked.len()),
    })
}

fn one_line(der: Option<Vec<u8>>) -> String {
    let der = der.unwrap_or_default();
    Name::parse(&mut Reader::new(&der)).map_or_else(|_| "an unreadable name".to_owned(), |name| name.one_line())
}

fn verdict(certificates: &[X509], anchors: Arc<Anchors>, now: Timestamp) -> Verdict {
    let Some((leaf, others)) = certificates.split_first() else { return Verdict::Nothing };
    if is_anchor(leaf, &anchors) {
        return Verdict::Authority;
    }
    let others: Vec<&X509Ref> = others.iter().map(AsRef::as_ref).collect();
    match Judge::new(anchors).judge(leaf, &others, now) {
        Ok(judged) => Verdict::Believed { subject: judged.peer.subject, until: judged.peer.until },
        Err(refusal) => Verdict::Refused(refusal.fault),
    }
}

fn is_anchor(x509: &X509Ref, anchors: &Anchors) -> bool {
    let Ok(der) = x509.to_der() else { return false };
    let Ok(read) = Certificate::parse(&der) else { return false };
    anchors.named(&read.subject).iter().any(|authority| authority.der() == der)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::make::{self, KeyKind, Life, ProxyKind, Purpose};
    use crate::peer::OwnChain;

    fn now() -> Timestamp {
        Timestamp::parse(b"20261122000000").unwrap()
    }

    fn authority() -> OwnChain {
        let key = make::key(KeyKind::P256).unwrap();
        let certificate = make::authority("/O=Grid/CN=CA", &key, None, Life::of(now(), 90_000), None).unwrap();
        OwnChain { certificate, key, chain: Vec::new() }
    }

    fn nobody() -> Arc<Anchors> {
        Arc::new(Anchors::default())
    }

    #[test]
    fn a_proxy_is_explained_with_everything_above_it() {
        let ca = authority();
        let alice =
            make::issue("/O=Grid/CN=alice", KeyKind::P256, &Purpose::Person, Life::of(now(), 9000), &ca).unwrap();
        let kind = ProxyKind::rfc(Policy::Limited);
        let proxy = make::own_proxy(&alice, KeyKind::P256, &kind, Life::of(now(), 500)).unwrap();
        let explained = explain(&make::to_pem(&proxy).unwrap(), nobody(), now());
        let [Part::Certificate(first), key, Part::Certificate(second)] = &explained.parts[..] else {
            panic!("{explained:?}")
        };
        assert_eq!(first.kind, "proxy (RFC 3820), limited: it moves data and starts no jobs");
        assert!(first.subject.starts_with("/O=Grid/CN=alice/CN=") && first.issuer == "/O=Grid/CN=alice");
        assert_eq!(*key, Part::Key { kind: Some("elliptic curve P-256".into()), fits: Some(true) });
        assert_eq!((second.kind.as_str(), second.outside), ("person or service", false));
        assert!(matches!(explained.verdict, Verdict::Refused(_)), "nobody is trusted");
        let later = Timestamp::from_secs(now().secs + 600);
        let Part::Certificate(first) = &explain(&make::to_pem(&proxy).unwrap(), nobody(), later).parts[0] else {
            panic!("a certificate")
        };
        assert!(first.outside);
    }

    #[test]
    fn every_other_part_is_told_too() {
        let ca = authority();
        let host = Purpose::Host(vec![make::HostName::Dns("dtn.example.org".into())]);
        let host = make::issue("/O=Grid/CN=dtn", KeyKind::P256, &host, Life::of(now(), 9000), &ca).unwrap();
        let request = make::request("/O=Grid/CN=new", &ca.key, &[]).unwrap().to_pem().unwrap();
        let list = make::revocations(&ca, &[&[7]], Life::of(now(), 90)).unwrap().to_pem().unwrap();
        let text = [
            &host.certificate.to_pem().unwrap()[..],
            &make::key_pem(&ca.key).unwrap(),
            &request,
            &list,
            b"-----BEGIN PGP MESSAGE-----\n-----END PGP MESSAGE-----\n-----BEGIN CERTIFICATE-----\nAAAA\n",
        ]
        .concat();
        let parts = explain(&text, nobody(), now()).parts;
        let Part::Certificate(first) = &parts[0] else { panic!("{parts:?}") };
        assert_eq!((first.kind.as_str(), &first.names[..]), ("host", &["dtn.example.org".to_owned()][..]));
        assert!(matches!(&parts[1], Part::Key { fits: Some(false), .. }), "another key");
        assert!(matches!(&parts[2], Part::Request { subject, .. } if subject == "/O=Grid/CN=new"));
        assert!(
            matches!(&parts[3], Part::RevocationList { revoked: 1, authority, .. } if authority == "/O=Grid/CN=CA")
        );
        assert_eq!(parts[4], Part::Other("PGP MESSAGE".into()));
        assert!(matches!(&parts[5], Part::Unreadable { label, .. } if label == "CERTIFICATE"));
        assert_eq!(parts.len(), 6);
        assert_eq!(explain(b"no PEM at all", nobody(), now()), Explained { parts: vec![], verdict: Verdict::Nothing });
    }
}

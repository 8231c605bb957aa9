//! Revocation lists: whether an authority has taken back what it signed.

use std::sync::Mutex;

use openssl::pkey::{PKeyRef, Public};
use openssl::x509::{CrlStatus, X509, X509Crl, X509Ref};
use whimbrel_proto::timeval::Timestamp;
use whimbrel_proto::x509::Name;
use whimbrel_proto::x509::der::{DerError, Item, Reader, tag};
use whimbrel_proto::x509::oid::{AUTHORITY_KEY_ID, Oid};

use crate::verified::Signed;

/// The list of one authority.
pub struct RevocationList {
    list: X509Crl,
    /// The authority's name in canonical form.
    authority: Vec<u8>,
    from: Timestamp,
    until: Option<Timestamp>,
    /// A critical extension that is not understood, by its identifier.
    unknown_critical: Option<String>,
    /// The key (SubjectPublicKeyInfo) under which the signature was found good.
    verified: Mutex<Option<Vec<u8>>>,
}

/// What a list says of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Not revoked.
    Good,
    /// Revoked.
    Revoked,
    /// The list itself cannot be used, for this reason; an old one may have been replaced meanwhile.
    Unusable {
        /// The reason.
        reason: String,
        /// It ended; a newer one may be there by now.
        outdated: bool,
    },
}

impl RevocationList {
    /// Reads a list, PEM or DER.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let list =
            if bytes.starts_with(&[tag::SEQUENCE]) { X509Crl::from_der(bytes) } else { X509Crl::from_pem(bytes) };
        let list = list.map_err(|_| "it is not a revocation list".to_owned())?;
        let der = list.to_der().map_err(|error| error.to_string())?;
        // What is behind a list, or is not written as DER wants it, no signature covers.
        if bytes.starts_with(&[tag::SEQUENCE]) && der != bytes {
            return Err("something else than a revocation list is in it, too".to_owned());
        }
        let head = Head::parse(&der).map_err(|error| format!("the revocation list cannot be read: {error}"))?;
        let (authority, from, until) = (head.issuer.canonical(), head.from, head.until);
        let unknown_critical = head.unknown_critical.map(|oid| oid.to_string());
        Ok(Self { list, authority, from, until, unknown_critical, verified: Mutex::new(None) })
    }

    /// The canonical form of the authority's name.
    pub fn authority(&self) -> &[u8] {
        &self.authority
    }

    /// What the list says, at `now`, of a certificate that the holder of `key` signed.
    pub fn standing(&self, certificate: &X509Ref, key: &PKeyRef<Public>, now: Timestamp) -> Standing {
        let unusable = |reason: &str, outdated| Standing::Unusable { reason: reason.to_owned(), outdated };
        if !self.is_signed_by(key) {
            return unusable("the revocation list is not signed by the authority", false);
        }
        if let Some(oid) = &self.unknown_critical {
            return unusable(
                &format!("the revocation list has an extension that is not understood here ({oid})"),
                false,
            );
        }
        if now < self.from {
            return unusable("the revocation list is not good yet; is the clock right?", false);
        }
        if self.until.is_some_and(|until| now > until) {
            return unusable("the revocation list is out of date", true);
        }
        // The binding wants the owning type.
        let certificate: X509 = certificate.to_owned();
        match self.list.get_by_cert(&certificate) {
            CrlStatus::NotRevoked | CrlStatus::RemoveFromCrl(_) => Standing::Good,
            CrlStatus::Revoked(_) => Standing::Revoked,
        }
    }

    /// Checks the signature, which takes as long as the list is, once for each key.
    fn is_signed_by(&self, key: &PKeyRef<Public>) -> bool {
        let Ok(public) = key.public_key_to_der() else { return false };
        let mut verified = self.verified.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if verified.as_ref() == Some(&public) {
            return true;
        }
        let good = self.list.is_signed_by(key);
        if good {
            *verified = Some(public);
        }
        good
    }
}

/// What stands before and behind the revoked serial numbers (RFC 5280 §5.1).
struct Head<'a> {
    issuer: Name<'a>,
    from: Timestamp,
    until: Option<Timestamp>,
    unknown_critical: Option<Oid<'a>>,
}

impl<'a> Head<'a> {
    fn parse(der: &'a [u8]) -> Result<Self, DerError> {
        let mut fields = Reader::new(der).sequence()?.sequence()?;
        fields.optional(tag::INTEGER)?;
        fields.expect(tag::SEQUENCE)?;
        let issuer = Name::parse(&mut fields)?;
        let from = fields.item()?.time()?;
        let is_time = |item: &Item<'_>| matches!(item.tag, tag::UTC_TIME | tag::GENERALIZED_TIME);
        let until = match fields.clone().item() {
            Ok(next) if is_time(&next) => Some(fields.item()?.time()?),
            _ => None,
        };
        fields.optional(tag::SEQUENCE)?;
        let unknown_critical = match fields.optional(tag::context(0))? {
            Some(tagged) => unknown_critical(&mut tagged.inside().sequence()?)?,
            None => None,
        };
        Ok(Self { issuer, from, until, unknown_critical })
    }
}

/// The first critical extension that changes what the list means: parts of lists, lists of others.
fn unknown_critical<'a>(extensions: &mut Reader<'a>) -> Result<Option<Oid<'a>>, DerError> {
    while !extensions.is_empty() {
        let mut extension = extensions.sequence()?;
        let (oid, critical) = (extension.oid()?, extension.flag()?);
        if critical && oid != AUTHORITY_KEY_ID {
            return Ok(Some(oid));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use openssl::pkey::PKey;

    use super::*;
    use crate::make::{self, KeyKind, Life, Purpose};
    use crate::peer::OwnChain;

    fn now() -> Timestamp {
        Timestamp::parse(b"20261122000000").unwrap()
    }

    fn ca() -> OwnChain {
        let key = make::key(KeyKind::P256).unwrap();
        let certificate = make::authority("/O=Grid/CN=CA", &key, None, Life::of(now(), 9000), None).unwrap();
        OwnChain { certificate, key, chain: Vec::new() }
    }

    fn public(own: &OwnChain) -> PKey<Public> {
        own.certificate.public_key().unwrap()
    }

    #[test]
    fn lists_with_something_behind_them_are_refused() {
        let made = make::revocations(&ca(), &[], Life::of(now(), 100)).unwrap();
        let mut der = made.to_der().unwrap();
        assert!(RevocationList::parse(&der).is_ok());
        der.push(b'\n');
        assert!(RevocationList::parse(&der).is_err_and(|error| error.contains("something else")));
    }

    #[test]
    fn lists_say_who_is_revoked_while_they_are_good() {
        let ca = ca();
        let user = make::issue("/O=Grid/CN=a", KeyKind::P256, &Purpose::Person, Life::of(now(), 100), &ca).unwrap();
        let other = make::issue("/O=Grid/CN=b", KeyKind::P256, &Purpose::Person, Life::of(now(), 100), &ca).unwrap();
        let serial = user.certificate.serial_number().to_bn().unwrap().to_vec();
        let made = make::revocations(&ca, &[&serial], Life::of(now(), 100)).unwrap();
        for bytes in [made.to_der().unwrap(), made.to_pem().unwrap()] {
            let list = RevocationList::parse(&bytes).unwrap();
            assert_eq!(list.standing(&user.certificate, &public(&ca), now()), Standing::Revoked);
            assert_eq!(list.standing(&other.certificate, &public(&ca), now()), Standing::Good);
            let outdated = |standing| matches!(standing, Standing::Unusable { outdated: true, .. });
            assert!(outdated(list.standing(&other.certificate, &public(&ca), Timestamp::from_secs(now().secs + 101))));
            let early = list.standing(&other.certificate, &public(&ca), Timestamp::from_secs(now().secs - 301));
            assert!(matches!(early, Standing::Unusable { outdated: false, .. }));
            let der = ca.certificate.to_der().unwrap();
            let authority = whimbrel_proto::x509::Certificate::parse(&der).unwrap();
            assert_eq!(list.authority(), authority.subject.canonical());
        }
    }

    #[test]
    fn forged_and_strange_lists_cannot_be_used() {
        let (ca, other) = (ca(), ca());
        let forged = make::revocations(&OwnChain { key: other.key, ..ca.clone() }, &[], Life::of(now(), 100)).unwrap();
        let list = RevocationList::parse(&forged.to_der().unwrap()).unwrap();
        let standing = list.standing(&ca.certificate, &public(&ca), now());
        assert!(matches!(standing, Standing::Unusable { reason, .. } if reason.contains("not signed by")));
        assert!(RevocationList::parse(b"no").is_err() && RevocationList::parse(&[0x30, 0]).is_err());
    }

    #[test]
    fn critical_extensions_of_lists_are_not_passed_over() {
        use whimbrel_proto::x509::der::encode;
        let part = |oid: &[u8], critical: &[u8]| encode(tag::SEQUENCE, &[&encode(tag::OID, &[oid]), critical, &[4, 0]]);
        let truth = [1, 1, 0xff];
        let list = [part(AUTHORITY_KEY_ID.bytes(), &truth), part(&[0x55, 0x1d, 0x14], &[])].concat();
        assert_eq!(unknown_critical(&mut Reader::new(&list)), Ok(None));
        let partial = [list, part(&[0x55, 0x1d, 0x1c], &truth)].concat();
        assert_eq!(unknown_critical(&mut Reader::new(&partial)).unwrap().unwrap().to_string(), "2.5.29.28");
    }
}

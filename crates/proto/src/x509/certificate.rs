//! Certificates (RFC 5280 §4.1) and what kind of thing each is: an authority, somebody, or a proxy of somebody.

use super::der::{DerError, Reader, tag};
use super::extensions::Extensions;
use super::name::Name;
use super::oid::{self, Oid};
use crate::timeval::Timestamp;

/// Largest certificate that is read, bytes; those with attribute certificates inside have tens of thousands.
pub const MOST_BYTES: usize = 1 << 20;

/// A certificate: what it says. Nothing here tells whether it is genuine.
#[derive(Debug, Clone)]
pub struct Certificate<'a> {
    /// The whole certificate.
    pub der: &'a [u8],
    /// The part that is signed.
    pub signed: &'a [u8],
    /// Version as people count: 1 to 3.
    pub version: u8,
    /// Serial number, a signed number.
    pub serial: &'a [u8],
    /// Who signed it.
    pub issuer: Name<'a>,
    /// Whom it names.
    pub subject: Name<'a>,
    /// First second of its life.
    pub not_before: Timestamp,
    /// Last second of its life.
    pub not_after: Timestamp,
    /// SubjectPublicKeyInfo.
    pub key: &'a [u8],
    /// How it is signed.
    pub algorithm: Oid<'a>,
    /// The signature.
    pub signature: &'a [u8],
    /// What else it says.
    pub extensions: Extensions<'a>,
}

/// By which document a proxy is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// RFC 3820.
    Rfc,
    /// A draft of it, as Globus Toolkit 3 did.
    Draft,
    /// By its name alone, as Globus Toolkit 2 did.
    Legacy,
}

/// What a proxy may do of what its issuer may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// Everything.
    InheritAll,
    /// Everything but starting jobs; what it signs is limited, too.
    Limited,
    /// Nothing: it is an identity of its own.
    Independent,
    /// What a policy says whose language is not known here.
    Restricted,
}

/// What a certificate is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A certification authority.
    Ca,
    /// A person, a host, a service.
    EndEntity,
    /// Somebody's proxy.
    Proxy {
        /// By which document.
        form: Form,
        /// What it may do.
        policy: Policy,
    },
}

/// Why a certificate is nothing at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoKind {
    /// RFC 3820 §3.8: proxyCertInfo must be critical.
    #[error("its proxy information is not marked as critical")]
    NotCritical,
    /// RFC 3820 §3.6, §3.7: a proxy is no authority.
    #[error("it claims to be a proxy and an authority at once")]
    ProxyAuthority,
    /// RFC 3820 §3.2, §3.5: a proxy has no alternative names.
    #[error("it is a proxy with an alternative name")]
    ProxyAltName,
}

impl<'a> Certificate<'a> {
    /// Reads a certificate that fills `bytes`.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, DerError> {
        let mut reader = Reader::new(bytes);
        let certificate = Self::read(&mut reader)?;
        reader.end()?;
        Ok(certificate)
    }

    /// Reads the next certificate.
    pub fn read(reader: &mut Reader<'a>) -> Result<Self, DerError> {
        let whole = reader.expect(tag::SEQUENCE)?;
        if whole.whole.len() > MOST_BYTES {
            return Err(DerError::TooMany("bytes"));
        }
        let mut outer = whole.inside();
        let signed = outer.expect(tag::SEQUENCE)?;
        let outside = outer.expect(tag::SEQUENCE)?;
        let signature = outer.expect(tag::BIT_STRING)?.whole_bits()?;
        outer.end()?;

        let mut fields = signed.inside();
        let version = version(&mut fields)?;
        let serial = fields.expect(tag::INTEGER)?.integer()?;
        let inner = fields.expect(tag::SEQUENCE)?;
        // RFC 5280 §4.1.1.2: both must be the same.
        if inner.whole != outside.whole {
            return Err(DerError::Value("pair of signature algorithms"));
        }
        let issuer = Name::parse(&mut fields)?;
        let mut validity = fields.sequence()?;
        let (not_before, not_after) = (validity.item()?.time()?, validity.item()?.time()?);
        validity.end()?;
        let subject = Name::parse(&mut fields)?;
        let key = fields.expect(tag::SEQUENCE)?.whole;
        // issuerUniqueID and subjectUniqueID, which nobody has used since 1994.
        fields.optional(tag::implicit(1))?;
        fields.optional(tag::implicit(2))?;
        let extensions = match fields.optional(tag::context(3))? {
            // RFC 5280 §4.1.2.9.
            Some(_) if version != 3 => return Err(DerError::Value("version")),
            Some(tagged) => {
                let mut tagged = tagged.inside();
                let extensions = Extensions::parse(&mut tagged.sequence()?)?;
                tagged.end()?;
                extensions
            }
            None => Extensions::default(),
        };
        fields.end()?;
        let algorithm = outside.inside().oid()?;
        let (der, signed) = (whole.whole, signed.whole);
        Ok(Self {
            der,
            signed,
            version,
            serial,
            issuer,
            subject,
            not_before,
            not_after,
            key,
            algorithm,
            signature,
            extensions,
        })
    }

    /// What this certificate is.
    pub fn kind(&self) -> Result<Kind, NoKind> {
        let authority = self.extensions.basic.is_some_and(|basic| basic.ca);
        let Some(info) = &self.extensions.proxy else {
            return Ok(match self.legacy_policy() {
                _ if authority => Kind::Ca,
                Some(policy) => Kind::Proxy { form: Form::Legacy, policy },
                None => Kind::EndEntity,
            });
        };
        if authority {
            return Err(NoKind::ProxyAuthority);
        }
        if !info.critical {
            return Err(NoKind::NotCritical);
        }
        if self.extensions.alt_names.is_some() || self.extensions.issuer_alt_name {
            return Err(NoKind::ProxyAltName);
        }
        let policy = match info.language {
            oid::INHERIT_ALL => Policy::InheritAll,
            oid::LIMITED => Policy::Limited,
            oid::INDEPENDENT => Policy::Independent,
            _ => Policy::Restricted,
        };
        Ok(Kind::Proxy { form: info.form, policy })
    }

    /// Most proxies, or authorities, that may stand below this one.
    pub fn path_length(&self) -> Option<u32> {
        match &self.extensions.proxy {
            Some(info) => info.path_length,
            None => self.extensions.basic.and_then(|basic| basic.path_length),
        }
    }

    /// True if it names itself as its issuer.
    pub fn is_self_issued(&self) -> bool {
        self.subject.matches(&self.issuer)
    }

    /// What a proxy by its name alone may do.
    fn legacy_policy(&self) -> Option<Policy> {
        // An authority may call its users so: whether this is a proxy is known when its name is its issuer's and this.
        self.subject.below(&self.issuer)?;
        match self.subject.last_common_name()? {
            b"proxy" => Some(Policy::InheritAll),
            b"limited proxy" => Some(Policy::Limited),
            _ => None,
        }
    }
}

/// `[0] EXPLICIT INTEGER DEFAULT v1`, counted from zero on the wire.
fn version(fields: &mut Reader<'_>) -> Result<u8, DerError> {
    let Some(tagged) = fields.optional(tag::context(0))? else { return Ok(1) };
    let mut tagged = tagged.inside();
    let version = tagged.expect(tag::INTEGER)?.count()?;
    tagged.end()?;
    if version <= 2 { Ok(version as u8 + 1) } else { Err(DerError::Value("version")) }
}

#[cfg(test)]
mod tests {
    use super::super::der::{encode, encode_count};
    use super::super::extensions::tests::{extension, policy};
    use super::super::name::tests::name;
    use super::*;

    /// Parts of a certificate that tests bend.
    #[derive(Clone)]
    struct Parts {
        version: Vec<u8>,
        issuer: Vec<u8>,
        subject: Vec<u8>,
        inner: Vec<u8>,
        outer: Vec<u8>,
        unique: Vec<u8>,
        extensions: Vec<u8>,
        end: Vec<u8>,
    }

    fn names(common: &[&[u8]]) -> Vec<u8> {
        name(&common.iter().map(|text| (oid::COMMON_NAME, tag::UTF8_STRING, *text)).collect::<Vec<_>>())
    }

    fn algorithm(last: u8) -> Vec<u8> {
        encode(tag::SEQUENCE, &[&encode(tag::OID, &[&[0x2a, last]]), &[5, 0]])
    }

    fn parts() -> Parts {
        Parts {
            version: encode(tag::context(0), &[&encode_count(2)]),
            issuer: names(&[b"alice"]),
            subject: names(&[b"alice", b"17"]),
            inner: algorithm(3),
            outer: algorithm(3),
            unique: Vec::new(),
            extensions: Vec::new(),
            end: Vec::new(),
        }
    }

    fn build(parts: &Parts) -> Vec<u8> {
        let time = |text: &str| encode(tag::UTC_TIME, &[text.as_bytes()]);
        let validity = encode(tag::SEQUENCE, &[&time("200101000000Z"), &time("300101000000Z")]);
        let key = encode(tag::SEQUENCE, &[&algorithm(9), &encode(tag::BIT_STRING, &[&[0, 1, 2]])]);
        let extensions = match parts.extensions.as_slice() {
            [] => Vec::new(),
            list => encode(tag::context(3), &[&encode(tag::SEQUENCE, &[list])]),
        };
        let signed = encode(
            tag::SEQUENCE,
            &[
                &parts.version,
                &encode_count(77),
                &parts.inner,
                &parts.issuer,
                &validity,
                &parts.subject,
                &key,
                &parts.unique,
                &extensions,
                &parts.end,
            ],
        );
        encode(tag::SEQUENCE, &[&signed, &parts.outer, &encode(tag::BIT_STRING, &[&[0, 9, 9]])])
    }

    fn kind(subject: &[&[u8]], extensions: &[Vec<u8>]) -> Result<Kind, NoKind> {
        let built = build(&Parts { subject: names(subject), extensions: extensions.concat(), ..parts() });
        Certificate::parse(&built).unwrap().kind()
    }

    fn proxy(language: Oid<'_>) -> Vec<u8> {
        extension(oid::PROXY_INFO, true, &encode(tag::SEQUENCE, &[&encode_count(4), &policy(language, None)]))
    }

    fn authority() -> Vec<u8> {
        extension(oid::BASIC_CONSTRAINTS, true, &encode(tag::SEQUENCE, &[&[1, 1, 0xff], &encode_count(1)]))
    }

    #[test]
    fn the_fields_of_a_certificate_are_read() {
        let built = build(&Parts { extensions: proxy(oid::LIMITED), unique: encode(0x81, &[b"\0x"]), ..parts() });
        let certificate = Certificate::parse(&built).unwrap();
        assert_eq!((certificate.version, certificate.serial, certificate.signature), (3, &[77][..], &[9, 9][..]));
        assert_eq!(
            (certificate.subject.one_line(), certificate.issuer.one_line()),
            ("/CN=alice/CN=17".into(), "/CN=alice".into())
        );
        assert_eq!(certificate.not_before.to_wire(), "20200101000000");
        assert_eq!(certificate.not_after.to_wire(), "20300101000000");
        assert_eq!((certificate.algorithm.to_string(), certificate.path_length()), ("1.2.3".into(), Some(4)));
        assert_eq!((certificate.der.len(), certificate.key[0]), (built.len(), tag::SEQUENCE));
        assert!(!certificate.is_self_issued() && certificate.signed.len() < built.len());
    }

    #[test]
    fn every_kind_is_known() {
        let rfc = |policy| Ok(Kind::Proxy { form: Form::Rfc, policy });
        assert_eq!(kind(&[b"alice", b"17"], &[proxy(oid::INHERIT_ALL)]), rfc(Policy::InheritAll));
        assert_eq!(kind(&[b"alice", b"17"], &[proxy(oid::LIMITED)]), rfc(Policy::Limited));
        assert_eq!(kind(&[b"alice", b"17"], &[proxy(oid::INDEPENDENT)]), rfc(Policy::Independent));
        assert_eq!(kind(&[b"alice", b"17"], &[proxy(oid::VOMS)]), rfc(Policy::Restricted));
        let draft = extension(oid::PROXY_INFO_DRAFT, true, &encode(tag::SEQUENCE, &[&policy(oid::LIMITED, None)]));
        assert_eq!(kind(&[b"alice", b"17"], &[draft]), Ok(Kind::Proxy { form: Form::Draft, policy: Policy::Limited }));
        let legacy = |policy| Ok(Kind::Proxy { form: Form::Legacy, policy });
        assert_eq!(kind(&[b"alice", b"proxy"], &[]), legacy(Policy::InheritAll));
        assert_eq!(kind(&[b"alice", b"limited proxy"], &[]), legacy(Policy::Limited));
        assert_eq!(kind(&[b"alice", b"17"], &[]), Ok(Kind::EndEntity));
        assert_eq!(
            kind(&[b"bob", b"proxy"], &[]),
            Ok(Kind::EndEntity),
            "whose name is not his issuer's is nobody's proxy"
        );
        assert_eq!(kind(&[b"alice", b"proxy"], &[authority()]), Ok(Kind::Ca));
    }

    #[test]
    fn contradictions_are_nothing() {
        let alt = extension(oid::SUBJECT_ALT_NAME, false, &encode(tag::SEQUENCE, &[]));
        let open = extension(oid::PROXY_INFO, false, &encode(tag::SEQUENCE, &[&policy(oid::LIMITED, None)]));
        assert_eq!(kind(&[b"a"], &[proxy(oid::LIMITED), authority()]), Err(NoKind::ProxyAuthority));
        assert_eq!(kind(&[b"a"], &[open]), Err(NoKind::NotCritical));
        assert_eq!(kind(&[b"a"], &[proxy(oid::LIMITED), alt]), Err(NoKind::ProxyAltName));
        assert_eq!(
            kind(&[b"a"], &[proxy(oid::LIMITED), extension(oid::ISSUER_ALT_NAME, false, b"")]),
            Err(NoKind::ProxyAltName)
        );
    }

    #[test]
    fn path_lengths_are_those_of_the_kind() {
        let length = |extensions: Vec<u8>| {
            let built = build(&Parts { extensions, subject: names(&[b"alice"]), ..parts() });
            let certificate = Certificate::parse(&built).unwrap();
            assert!(certificate.is_self_issued());
            certificate.path_length()
        };
        assert_eq!((length(authority()), length(proxy(oid::LIMITED)), length(Vec::new())), (Some(1), Some(4), None));
    }

    #[test]
    fn certificates_are_whole_and_of_one_mind() {
        let bad = |change: fn(&mut Parts)| {
            let mut parts = parts();
            change(&mut parts);
            Certificate::parse(&build(&parts)).map(|_| ())
        };
        assert_eq!(bad(|parts| parts.outer = algorithm(4)), Err(DerError::Value("pair of signature algorithms")));
        assert_eq!(
            bad(|parts| parts.version = encode(tag::context(0), &[&encode_count(3)])),
            Err(DerError::Value("version"))
        );
        assert_eq!(bad(|parts| parts.end = vec![5, 0]), Err(DerError::Trailing));
        assert_eq!(
            bad(|parts| (parts.version, parts.extensions) = (Vec::new(), authority())),
            Err(DerError::Value("version"))
        );
        assert_eq!(bad(|parts| parts.version = Vec::new()), Ok(()));
        let whole = build(&parts());
        for cut in 0..whole.len() {
            assert!(Certificate::parse(&whole[..cut]).is_err(), "{cut}");
        }
        assert_eq!(Certificate::parse(&[&whole[..], &[0]].concat()).err(), Some(DerError::Trailing));
        let giant = encode(tag::SEQUENCE, &[&vec![0; MOST_BYTES]]);
        assert_eq!(Certificate::parse(&giant).err(), Some(DerError::TooMany("bytes")));
    }
}

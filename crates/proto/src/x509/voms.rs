//! Attribute certificates of VOMS servers (RFC 5755 as VOMS writes them): which groups and roles a virtual organization gives to
//! the holder of a proxy.
//!
//! What is read here is a claim until its signature is checked with the key of a signer that is trusted for this organization.

use super::der::{DerError, Item, Reader, tag};
use super::name::Name;
use super::oid::{self, Oid};
use crate::timeval::Timestamp;

/// Most attribute certificates in a proxy, and most certificates of a signer in one.
const MOST_CERTIFICATES: usize = 16;
/// Most groups and roles of one holder.
const MOST_FQANS: usize = 1024;

/// What one VOMS server says of the holder.
#[derive(Debug, Clone)]
pub struct AttributeCertificate<'a> {
    /// The part that is signed.
    pub signed: &'a [u8],
    /// The signature's AlgorithmIdentifier.
    pub algorithm: &'a [u8],
    /// The signature.
    pub signature: &'a [u8],
    /// Names the holder: the issuer of his certificate, or, as some servers write it, his subject.
    pub holder: Name<'a>,
    /// Serial number of the holder's certificate.
    pub holder_serial: &'a [u8],
    /// The server that signed.
    pub issuer: Name<'a>,
    /// First second of its life.
    pub not_before: Timestamp,
    /// Last second of its life.
    pub not_after: Timestamp,
    /// The virtual organization.
    pub vo: &'a str,
    /// `host:port` of its server, where it is told.
    pub server: Option<&'a str>,
    /// Groups and roles, `/vo/group/Role=production`; the first is the main one.
    pub fqans: Vec<&'a str>,
    /// Certificates that came with it, the signer's first: DER.
    pub certificates: Vec<&'a [u8]>,
    /// It is meant for certain servers only.
    pub targeted: bool,
    /// Critical extensions that are not understood here: such a certificate must be passed over.
    pub unknown_critical: Vec<Oid<'a>>,
}

/// Reads the value of a proxy's VOMS extension: `SEQUENCE { SEQUENCE OF AttributeCertificate }`.
pub fn parse(extension: &[u8]) -> Result<Vec<AttributeCertificate<'_>>, DerError> {
    let mut list = listed(extension)?;
    let mut found = Vec::new();
    while !list.is_empty() {
        if found.len() == MOST_CERTIFICATES {
            return Err(DerError::TooMany("attribute certificates"));
        }
        found.push(one(&mut list)?);
    }
    Ok(found)
}

fn one<'a>(list: &mut Reader<'a>) -> Result<AttributeCertificate<'a>, DerError> {
    let mut outer = list.sequence()?;
    let signed = outer.expect(tag::SEQUENCE)?;
    let algorithm = outer.expect(tag::SEQUENCE)?.whole;
    let signature = outer.expect(tag::BIT_STRING)?.whole_bits()?;
    outer.end()?;

    let mut fields = signed.inside();
    // RFC 5755 §4.1: only version 2, written as 1.
    if fields.expect(tag::INTEGER)?.count()? != 1 {
        return Err(DerError::Value("version"));
    }
    let (holder, holder_serial) = holder(&mut fields.sequence()?)?;
    let issuer = issuer(&mut fields)?;
    if fields.expect(tag::SEQUENCE)?.whole != algorithm {
        return Err(DerError::Value("pair of signature algorithms"));
    }
    fields.expect(tag::INTEGER)?.integer()?;
    let mut validity = fields.sequence()?;
    let (not_before, not_after) = (validity.item()?.time()?, validity.item()?.time()?);
    validity.end()?;
    let claims = claims(&mut fields.sequence()?)?;
    fields.optional(tag::BIT_STRING)?;
    let extensions = match fields.optional(tag::SEQUENCE)? {
        Some(list) => Extensions::parse(&mut list.inside())?,
        None => Extensions::default(),
    };
    fields.end()?;
    Ok(AttributeCertificate {
        signed: signed.whole,
        algorithm,
        signature,
        holder,
        holder_serial,
        issuer,
        not_before,
        not_after,
        vo: claims.vo,
        server: claims.server,
        fqans: claims.fqans,
        certificates: extensions.certificates,
        targeted: extensions.targeted,
        unknown_critical: extensions.unknown_critical,
    })
}

/// `Holder { [0] IssuerSerial { GeneralNames, INTEGER, uid OPTIONAL } }` (RFC 5755 §4.2.2).
fn holder<'a>(fields: &mut Reader<'a>) -> Result<(Name<'a>, &'a [u8]), DerError> {
    let base = fields.expect(tag::context(0))?;
    fields.end()?;
    let mut base = base.inside();
    let name = directory_name(&mut base)?;
    let serial = base.expect(tag::INTEGER)?.integer()?;
    base.optional(tag::BIT_STRING)?;
    base.end()?;
    Ok((name, serial))
}

/// `AttCertIssuer`, of which RFC 5755 §4.2.3 allows `[0] V2Form { GeneralNames }` alone.
fn issuer<'a>(fields: &mut Reader<'a>) -> Result<Name<'a>, DerError> {
    let mut form = fields.expect(tag::context(0))?.inside();
    let name = directory_name(&mut form)?;
    form.end()?;
    Ok(name)
}

/// GeneralNames that hold one directoryName.
fn directory_name<'a>(fields: &mut Reader<'a>) -> Result<Name<'a>, DerError> {
    let mut names = fields.sequence()?;
    let mut tagged = names.expect(tag::context(4))?.inside();
    names.end()?;
    let name = Name::parse(&mut tagged)?;
    tagged.end()?;
    Ok(name)
}

struct Claims<'a> {
    vo: &'a str,
    server: Option<&'a str>,
    fqans: Vec<&'a str>,
}

/// The attribute with groups and roles, which must be there once; other attributes are passed over.
fn claims<'a>(attributes: &mut Reader<'a>) -> Result<Claims<'a>, DerError> {
    let mut found = None;
    while !attributes.is_empty() {
        let mut attribute = attributes.sequence()?;
        let (oid, values) = (attribute.oid()?, attribute.expect(tag::SET)?);
        attribute.end()?;
        if oid == oid::VOMS_ATTRIBUTE && found.replace(ietf_syntax(&values)?).is_some() {
            return Err(DerError::Twice("attribute with groups and roles"));
        }
    }
    found.ok_or(DerError::Value("set of groups and roles"))
}

/// `IetfAttrSyntax { [0] GeneralNames { [6] "vo://host:port" }, SEQUENCE OF OCTET STRING }` (RFC 5755 §4.4).
fn ietf_syntax<'a>(values: &Item<'a>) -> Result<Claims<'a>, DerError> {
    let mut set = values.inside();
    let mut syntax = set.sequence()?;
    set.end()?;
    let mut authority = syntax.expect(tag::context(0))?.inside();
    let origin = text(authority.expect(tag::implicit(6))?.value)?;
    authority.end()?;
    let (vo, server) = match origin.split_once("://") {
        Some((vo, server)) => (vo, Some(server)),
        None => (origin, None),
    };
    let mut list = syntax.sequence()?;
    syntax.end()?;
    let mut fqans = Vec::new();
    while !list.is_empty() {
        if fqans.len() == MOST_FQANS {
            return Err(DerError::TooMany("groups and roles"));
        }
        let fqan = text(list.expect(tag::OCTET_STRING)?.value)?;
        if !belongs(fqan, vo) {
            return Err(DerError::Value("group or role"));
        }
        fqans.push(fqan);
    }
    Ok(Claims { vo, server, fqans })
}

/// A server speaks for its own organization: `/vo`, or something below it.
fn belongs(fqan: &str, vo: &str) -> bool {
    let rest = fqan.strip_prefix('/').and_then(|rest| rest.strip_prefix(vo));
    !vo.is_empty() && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Printable ASCII.
fn text(bytes: &[u8]) -> Result<&str, DerError> {
    let text = std::str::from_utf8(bytes).ok().filter(|text| text.bytes().all(|b| matches!(b, b' '..=b'~')));
    text.ok_or(DerError::Value("text"))
}

#[derive(Default)]
struct Extensions<'a> {
    certificates: Vec<&'a [u8]>,
    targeted: bool,
    unknown_critical: Vec<Oid<'a>>,
}

impl<'a> Extensions<'a> {
    fn parse(list: &mut Reader<'a>) -> Result<Self, DerError> {
        let mut found = Self::default();
        let mut count = 0;
        while !list.is_empty() {
            count += 1;
            if count > MOST_CERTIFICATES {
                return Err(DerError::TooMany("extensions"));
            }
            let mut extension = list.sequence()?;
            let (oid, critical) = (extension.oid()?, extension.flag()?);
            let value = extension.expect(tag::OCTET_STRING)?.value;
            extension.end()?;
            match oid {
                oid::VOMS_CERTIFICATES => found.certificates = certificates(value)?,
                oid::TARGETS => found.targeted = true,
                oid::NO_REVOCATION | oid::AUTHORITY_KEY_ID | oid::VOMS_TAGS => {}
                _ if critical => found.unknown_critical.push(oid),
                _ => {}
            }
        }
        Ok(found)
    }
}

/// What is in the inner one of `SEQUENCE { SEQUENCE OF .. }`, and nothing beside either.
fn listed(value: &[u8]) -> Result<Reader<'_>, DerError> {
    let mut reader = Reader::new(value);
    let mut outer = reader.sequence()?;
    reader.end()?;
    let list = outer.sequence()?;
    outer.end()?;
    Ok(list)
}

/// `SEQUENCE { SEQUENCE OF Certificate }`.
fn certificates(value: &[u8]) -> Result<Vec<&[u8]>, DerError> {
    let mut list = listed(value)?;
    let mut found = Vec::new();
    while !list.is_empty() {
        if found.len() == MOST_CERTIFICATES {
            return Err(DerError::TooMany("certificates"));
        }
        found.push(list.expect(tag::SEQUENCE)?.whole);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::Certificate;
    use super::super::der::{encode, encode_count};
    use super::super::extensions::tests::extension;
    use super::super::name::tests::name;
    use super::*;

    /// What `voms-proxy-fake -voms atlas -fqan /atlas/Role=production` made.
    const PROXY: &[u8] = include_bytes!("testdata/voms.der");

    #[test]
    fn a_real_attribute_certificate_is_read() {
        let proxy = Certificate::parse(PROXY).unwrap();
        let found = parse(proxy.extensions.voms.unwrap()).unwrap();
        let [claim] = found.as_slice() else { panic!("{} attribute certificates", found.len()) };
        assert_eq!((claim.vo, claim.server), ("atlas", Some("localhost:15000")));
        assert_eq!(claim.fqans, ["/atlas/Role=production"]);
        assert_eq!(
            (claim.holder.one_line(), claim.issuer.one_line()),
            ("/O=Grid/CN=User One".into(), "/O=Grid/CN=localhost".into())
        );
        assert_eq!(
            (claim.not_before.to_wire(), claim.not_after.to_wire()),
            ("20261122002653".into(), "20261122122653".into())
        );
        let signer = Certificate::parse(claim.certificates[0]).unwrap();
        assert_eq!((signer.subject.one_line(), claim.certificates.len()), ("/O=Grid/CN=localhost".into(), 1));
        assert_eq!((claim.targeted, claim.unknown_critical.len(), claim.signature.len()), (false, 0, 256));
        assert!(
            !claim.holder_serial.is_empty() && claim.signed[0] == tag::SEQUENCE && claim.algorithm[0] == tag::SEQUENCE
        );
    }

    /// Parts of an attribute certificate that tests bend.
    struct Parts {
        version: u32,
        outer: Vec<u8>,
        origin: Vec<u8>,
        fqans: Vec<&'static [u8]>,
        attributes: usize,
        extensions: Vec<u8>,
    }

    fn parts() -> Parts {
        let outer = encode(tag::SEQUENCE, &[&[6, 1, 0x2a]]);
        Parts {
            version: 1,
            outer,
            origin: b"vo://h:1".to_vec(),
            fqans: vec![b"/vo", b"/vo/g"],
            attributes: 1,
            extensions: Vec::new(),
        }
    }

    fn sequence(parts: &[&[u8]]) -> Vec<u8> {
        encode(tag::SEQUENCE, parts)
    }

    fn build(parts: &Parts) -> Vec<u8> {
        let who = sequence(&[&encode(tag::context(4), &[&name(&[(oid::COMMON_NAME, tag::UTF8_STRING, b"x")])])]);
        let holder = sequence(&[&encode(tag::context(0), &[&who, &encode_count(5)])]);
        let time = encode(tag::GENERALIZED_TIME, &[b"20300101000000Z"]);
        let fqans: Vec<Vec<u8>> = parts.fqans.iter().map(|fqan| encode(tag::OCTET_STRING, &[fqan])).collect();
        let origin = encode(tag::context(0), &[&encode(tag::implicit(6), &[&parts.origin])]);
        let syntax = sequence(&[&origin, &sequence(&[&fqans.concat()])]);
        let oid = |oid: Oid<'_>| encode(tag::OID, &[oid.bytes()]);
        let attribute = sequence(&[&oid(oid::VOMS_ATTRIBUTE), &encode(tag::SET, &[&syntax])]);
        let other = sequence(&[&oid(oid::LIMITED), &encode(tag::SET, &[])]);
        let attributes = sequence(&[&other, &attribute.repeat(parts.attributes)]);
        let extensions = if parts.extensions.is_empty() { Vec::new() } else { sequence(&[&parts.extensions]) };
        let signed = sequence(&[
            &encode_count(parts.version),
            &holder,
            &encode(tag::context(0), &[&who]),
            &sequence(&[&[6, 1, 0x2a]]),
            &encode_count(9),
            &sequence(&[&time, &time]),
            &attributes,
            &extensions,
        ]);
        sequence(&[&signed, &parts.outer, &[3, 2, 0, 1]])
    }

    fn wrapped(list: &[u8]) -> Vec<u8> {
        sequence(&[&sequence(&[list])])
    }

    fn fault(change: fn(&mut Parts)) -> Option<DerError> {
        let mut parts = parts();
        change(&mut parts);
        parse(&wrapped(&build(&parts))).err()
    }

    #[test]
    fn a_server_speaks_for_its_own_organization() {
        let whole = wrapped(&build(&parts()));
        let found = parse(&whole).unwrap();
        assert_eq!(
            (found[0].vo, found[0].server, found[0].fqans.as_slice()),
            ("vo", Some("h:1"), &["/vo", "/vo/g"][..])
        );
        assert_eq!(found[0].holder_serial, [5]);
        for foreign in [&b"/other/Role=admin"[..], b"/vomit", b"vo", b""] {
            let whole = wrapped(&build(&Parts { fqans: vec![foreign.to_vec().leak()], ..parts() }));
            assert_eq!(parse(&whole).err(), Some(DerError::Value("group or role")));
        }
        assert_eq!(fault(|parts| parts.origin = b"://h".to_vec()), Some(DerError::Value("group or role")));
        assert_eq!(fault(|parts| parts.origin = b"v\no".to_vec()), Some(DerError::Value("text")));
        let whole = wrapped(&build(&Parts { origin: b"vo".to_vec(), ..parts() }));
        assert_eq!(parse(&whole).unwrap()[0].server, None);
    }

    #[test]
    fn extensions_say_who_signed_and_for_whom() {
        let certificate = sequence(&[b"\x05\x00"]);
        let extensions = [
            extension(oid::VOMS_CERTIFICATES, false, &wrapped(&certificate.repeat(2))),
            extension(oid::TARGETS, true, b""),
            extension(oid::NO_REVOCATION, false, &[5, 0]),
            extension(oid::VOMS_TAGS, false, b""),
            extension(oid::LIMITED, true, b""),
            extension(oid::INHERIT_ALL, false, b""),
        ];
        let whole = wrapped(&build(&Parts { extensions: extensions.concat(), ..parts() }));
        let found = &parse(&whole).unwrap()[0];
        assert_eq!(found.certificates, [&certificate[..], &certificate]);
        assert_eq!((found.targeted, found.unknown_critical.as_slice()), (true, &[oid::LIMITED][..]));
    }

    #[test]
    fn attribute_certificates_are_whole_and_bounded() {
        assert_eq!(fault(|parts| parts.version = 0), Some(DerError::Value("version")));
        assert_eq!(
            fault(|parts| parts.outer = encode(tag::SEQUENCE, &[&[6, 1, 0x2b]])),
            Some(DerError::Value("pair of signature algorithms"))
        );
        assert_eq!(fault(|parts| parts.attributes = 2), Some(DerError::Twice("attribute with groups and roles")));
        assert_eq!(fault(|parts| parts.attributes = 0), Some(DerError::Value("set of groups and roles")));
        assert_eq!(fault(|parts| parts.fqans = vec![b"/vo"; 1025]), Some(DerError::TooMany("groups and roles")));
        let many = |parts: &mut Parts| parts.extensions = extension(oid::NO_REVOCATION, false, b"").repeat(17);
        assert_eq!(fault(many), Some(DerError::TooMany("extensions")));
        let many = |parts: &mut Parts| {
            parts.extensions = extension(oid::VOMS_CERTIFICATES, false, &wrapped(&[0x30, 0].repeat(17)))
        };
        assert_eq!(fault(many), Some(DerError::TooMany("certificates")));
        assert_eq!(
            parse(&wrapped(&build(&parts()).repeat(17))).err(),
            Some(DerError::TooMany("attribute certificates"))
        );
        let whole = wrapped(&build(&parts()));
        for cut in 0..whole.len() {
            assert!(parse(&whole[..cut]).is_err());
        }
        assert!(parse(&wrapped(&[])).unwrap().is_empty());
    }
}

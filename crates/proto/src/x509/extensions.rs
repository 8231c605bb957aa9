//! What the extensions of a certificate say (RFC 5280 §4.2, RFC 3820 §3.8).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::certificate::Form;
use super::der::{DerError, Item, Reader, tag};
use super::oid::{self, Oid};

/// Most extensions of a certificate, and most entries of a list in one.
const MOST: usize = 256;

/// The extensions that decide who somebody is and what he may sign.
#[derive(Debug, Clone, Default)]
pub struct Extensions<'a> {
    /// basicConstraints.
    pub basic: Option<BasicConstraints>,
    /// keyUsage.
    pub key_usage: Option<KeyUsage>,
    /// extKeyUsage; purposes.
    pub purposes: Option<Vec<Oid<'a>>>,
    /// subjectAltName.
    pub alt_names: Option<AltNames<'a>>,
    /// proxyCertInfo.
    pub proxy: Option<ProxyInfo<'a>>,
    /// The value of the VOMS extension, for [`super::voms`].
    pub voms: Option<&'a [u8]>,
    /// Critical extensions that are not understood here: whoever carries one must be refused.
    pub unknown_critical: Vec<Oid<'a>>,
    /// subjectKeyIdentifier.
    pub subject_key: Option<&'a [u8]>,
    /// issuerAltName is there.
    pub issuer_alt_name: bool,
}

/// basicConstraints (RFC 5280 §4.2.1.9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BasicConstraints {
    /// May sign certificates.
    pub ca: bool,
    /// Most authorities below, without the end entity and its proxies.
    pub path_length: Option<u32>,
}

/// keyUsage (RFC 5280 §4.2.1.3), bit 0 the highest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyUsage(u16);

impl KeyUsage {
    /// What authorities do: sign certificates and CRLs.
    pub const AUTHORITY: Self = Self(0x0600);
    /// What people and hosts do: sign, and encrypt keys.
    pub const END_ENTITY: Self = Self(0xa000);

    /// The bits, bit 0 of the document the highest.
    pub fn bits(self) -> u16 {
        self.0
    }

    /// What is left of it for a proxy: neither non-repudiation nor signing certificates (RFC 3820 §3.7).
    pub fn of_proxies(self) -> Self {
        Self(self.0 & !0x4400)
    }

    /// The key signs other things than certificates and CRLs.
    pub fn digital_signature(self) -> bool {
        self.0 & 0x8000 != 0
    }

    /// The key encrypts keys.
    pub fn key_encipherment(self) -> bool {
        self.0 & 0x2000 != 0
    }

    /// The key signs certificates.
    pub fn signs_certificates(self) -> bool {
        self.0 & 0x0400 != 0
    }

    /// The key signs CRLs.
    pub fn signs_crls(self) -> bool {
        self.0 & 0x0200 != 0
    }
}

/// subjectAltName (RFC 5280 §4.2.1.6).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AltNames<'a> {
    /// DNS names, ASCII.
    pub dns: Vec<&'a str>,
    /// Addresses.
    pub addresses: Vec<IpAddr>,
    /// Mail addresses, ASCII.
    pub mail: Vec<&'a str>,
    /// Names of other kinds.
    pub others: usize,
}

/// proxyCertInfo (RFC 3820 §3.8, or of the drafts before it).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProxyInfo<'a> {
    /// By which document.
    pub form: Form,
    /// As RFC 3820 demands.
    pub critical: bool,
    /// Most proxies below.
    pub path_length: Option<u32>,
    /// The language of the policy, which alone often is the policy.
    pub language: Oid<'a>,
    /// The policy's text.
    pub body: Option<&'a [u8]>,
}

impl<'a> Extensions<'a> {
    /// Reads `SEQUENCE OF Extension`; each may stand once (RFC 5280 §4.2).
    pub fn parse(list: &mut Reader<'a>) -> Result<Self, DerError> {
        let mut found = Self::default();
        let mut seen: Vec<Oid<'a>> = Vec::new();
        while !list.is_empty() {
            let mut extension = list.sequence()?;
            let (oid, critical) = (extension.oid()?, extension.flag()?);
            let value = extension.expect(tag::OCTET_STRING)?.value;
            extension.end()?;
            if seen.len() == MOST {
                return Err(DerError::TooMany("extensions"));
            }
            if seen.contains(&oid) {
                return Err(DerError::Twice("extension"));
            }
            seen.push(oid);
            found.take(oid, critical, value)?;
        }
        Ok(found)
    }

    fn take(&mut self, oid: Oid<'a>, critical: bool, value: &'a [u8]) -> Result<(), DerError> {
        let mut reader = Reader::new(value);
        match oid {
            oid::BASIC_CONSTRAINTS => self.basic = Some(basic(&mut reader)?),
            oid::KEY_USAGE => self.key_usage = Some(key_usage(&reader.expect(tag::BIT_STRING)?)?),
            oid::EXTENDED_KEY_USAGE => self.purposes = Some(purposes(&mut reader)?),
            oid::SUBJECT_ALT_NAME => self.alt_names = Some(alt_names(&mut reader)?),
            oid::SUBJECT_KEY_ID => self.subject_key = Some(reader.expect(tag::OCTET_STRING)?.value),
            oid::PROXY_INFO | oid::PROXY_INFO_DRAFT => {
                let form = if oid == oid::PROXY_INFO { Form::Rfc } else { Form::Draft };
                let info = proxy_info(&mut reader, form, critical)?;
                if self.proxy.replace(info).is_some() {
                    return Err(DerError::Twice("proxy information"));
                }
            }
            oid::VOMS => self.voms = Some(reader.take_rest()),
            // Judged elsewhere or of no account: their values are not read here.
            oid::ISSUER_ALT_NAME => {
                reader.take_rest();
                self.issuer_alt_name = true;
            }
            oid::AUTHORITY_KEY_ID | oid::NETSCAPE_TYPE | oid::CERTIFICATE_POLICIES => {
                reader.take_rest();
            }
            _ => {
                reader.take_rest();
                self.unknown_critical.extend(critical.then_some(oid));
            }
        }
        reader.end()
    }
}

fn basic(reader: &mut Reader<'_>) -> Result<BasicConstraints, DerError> {
    let mut inside = reader.sequence()?;
    let ca = inside.flag()?;
    let path_length = inside.optional(tag::INTEGER)?.map(|length| length.count()).transpose()?;
    inside.end()?;
    Ok(BasicConstraints { ca, path_length })
}

fn key_usage(bits: &Item<'_>) -> Result<KeyUsage, DerError> {
    let (bytes, _) = bits.bits()?;
    let byte = |at: usize| u16::from(bytes.get(at).copied().unwrap_or(0));
    Ok(KeyUsage(byte(0) << 8 | byte(1)))
}

fn purposes<'a>(reader: &mut Reader<'a>) -> Result<Vec<Oid<'a>>, DerError> {
    let mut list = reader.sequence()?;
    let mut purposes = Vec::new();
    while !list.is_empty() {
        if purposes.len() == MOST {
            return Err(DerError::TooMany("purposes"));
        }
        purposes.push(list.oid()?);
    }
    Ok(purposes)
}

fn alt_names<'a>(reader: &mut Reader<'a>) -> Result<AltNames<'a>, DerError> {
    let mut list = reader.sequence()?;
    let mut names = AltNames::default();
    let mut count = 0;
    while !list.is_empty() {
        let name = list.item()?;
        count += 1;
        // A host of many names has them all in one certificate.
        if count > 16 * MOST {
            return Err(DerError::TooMany("alternative names"));
        }
        match name.tag {
            MAIL => names.mail.push(ascii(name.value)?),
            DNS => names.dns.push(ascii(name.value)?),
            ADDRESS => names.addresses.push(address(name.value)?),
            _ => names.others += 1,
        }
    }
    Ok(names)
}

/// rfc822Name, dNSName and iPAddress of GeneralName (RFC 5280 §4.2.1.6).
const MAIL: u8 = tag::implicit(1);
const DNS: u8 = tag::implicit(2);
const ADDRESS: u8 = tag::implicit(7);

/// Printable ASCII: a NUL in a name has deceived many (CVE-2009-2408).
fn ascii(bytes: &[u8]) -> Result<&str, DerError> {
    let printable = bytes.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ');
    let text = std::str::from_utf8(bytes).ok().filter(|text| printable && !text.is_empty());
    text.ok_or(DerError::Value("alternative name"))
}

fn address(bytes: &[u8]) -> Result<IpAddr, DerError> {
    match (<[u8; 4]>::try_from(bytes), <[u8; 16]>::try_from(bytes)) {
        (Ok(v4), _) => Ok(Ipv4Addr::from(v4).into()),
        (_, Ok(v6)) => Ok(Ipv6Addr::from(v6).into()),
        _ => Err(DerError::Value("address")),
    }
}

/// RFC: `{ pathLength INTEGER OPTIONAL, proxyPolicy }`; drafts: `{ proxyPolicy, pathLength [1] INTEGER OPTIONAL }`.
fn proxy_info<'a>(reader: &mut Reader<'a>, form: Form, critical: bool) -> Result<ProxyInfo<'a>, DerError> {
    let mut inside = reader.sequence()?;
    let mut path_length = None;
    if form == Form::Rfc {
        path_length = inside.optional(tag::INTEGER)?.map(|length| length.count()).transpose()?;
    }
    let mut policy = inside.sequence()?;
    let language = policy.oid()?;
    let body = policy.optional(tag::OCTET_STRING)?.map(|body| body.value);
    policy.end()?;
    if form == Form::Draft
        && let Some(tagged) = inside.optional(tag::context(1))?
    {
        let mut tagged = tagged.inside();
        path_length = Some(tagged.expect(tag::INTEGER)?.count()?);
        tagged.end()?;
    }
    inside.end()?;
    Ok(ProxyInfo { form, critical, path_length, language, body })
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::der::{encode, encode_count};
    use super::*;

    pub(in super::super) fn extension(oid: Oid<'_>, critical: bool, value: &[u8]) -> Vec<u8> {
        let critical = if critical { encode(tag::BOOLEAN, &[&[0xff]]) } else { Vec::new() };
        encode(tag::SEQUENCE, &[&encode(tag::OID, &[oid.bytes()]), &critical, &encode(tag::OCTET_STRING, &[value])])
    }

    pub(in super::super) fn policy(language: Oid<'_>, body: Option<&[u8]>) -> Vec<u8> {
        let body = body.map(|body| encode(tag::OCTET_STRING, &[body])).unwrap_or_default();
        encode(tag::SEQUENCE, &[&encode(tag::OID, &[language.bytes()]), &body])
    }

    fn sequence(parts: &[&[u8]]) -> Vec<u8> {
        encode(tag::SEQUENCE, parts)
    }

    fn one(oid: Oid<'static>, critical: bool, value: &[u8]) -> Result<(), DerError> {
        let list = extension(oid, critical, value);
        Extensions::parse(&mut Reader::new(&list)).map(|_| ())
    }

    #[test]
    fn what_extensions_say_is_read() {
        let names = [
            encode(DNS, &[b"*.example.org"]),
            encode(ADDRESS, &[&[127, 0, 0, 1]]),
            encode(ADDRESS, &[&[0; 16]]),
            encode(MAIL, &[b"a@b"]),
            encode(tag::implicit(6), &[b"http://x"]),
        ];
        let list = [
            extension(oid::BASIC_CONSTRAINTS, true, &sequence(&[&[1, 1, 0xff], &encode_count(3)])),
            extension(oid::KEY_USAGE, true, &[3, 2, 1, 0x06]),
            extension(oid::EXTENDED_KEY_USAGE, false, &sequence(&[&encode(tag::OID, &[oid::INHERIT_ALL.bytes()])])),
            extension(oid::SUBJECT_ALT_NAME, false, &sequence(&[&names.concat()])),
            extension(oid::SUBJECT_KEY_ID, false, &encode(tag::OCTET_STRING, &[b"key"])),
            extension(oid::AUTHORITY_KEY_ID, false, b"anything"),
            extension(oid::ISSUER_ALT_NAME, false, b""),
            extension(oid::VOMS, false, b"voms"),
            extension(oid::INDEPENDENT, true, b""),
            extension(oid::LIMITED, false, b""),
        ]
        .concat();
        let found = Extensions::parse(&mut Reader::new(&list)).unwrap();
        assert_eq!(found.basic, Some(BasicConstraints { ca: true, path_length: Some(3) }));
        let usage = found.key_usage.unwrap();
        assert!(usage.signs_certificates() && usage.signs_crls());
        assert!(!usage.digital_signature() && !usage.key_encipherment());
        assert_eq!(found.purposes, Some(vec![oid::INHERIT_ALL]));
        let names = found.alt_names.unwrap();
        assert_eq!((names.dns, names.mail, names.others), (vec!["*.example.org"], vec!["a@b"], 1));
        assert_eq!(names.addresses, [IpAddr::from([127, 0, 0, 1]), IpAddr::from([0u8; 16])]);
        assert_eq!((found.subject_key, found.voms), (Some(&b"key"[..]), Some(&b"voms"[..])));
        assert_eq!((found.unknown_critical, found.issuer_alt_name), (vec![oid::INDEPENDENT], true));
    }

    #[test]
    fn proxy_information_has_two_forms() {
        let limited = policy(oid::LIMITED, None);
        let rfc = extension(oid::PROXY_INFO, true, &sequence(&[&encode_count(2), &limited]));
        let info = Extensions::parse(&mut Reader::new(&rfc)).unwrap().proxy.unwrap();
        let expected =
            ProxyInfo { form: Form::Rfc, critical: true, path_length: Some(2), language: oid::LIMITED, body: None };
        assert_eq!(info, expected);
        let body = policy(oid::INHERIT_ALL, Some(b"text"));
        let tagged = encode(tag::context(1), &[&encode_count(7)]);
        let draft = extension(oid::PROXY_INFO_DRAFT, false, &sequence(&[&body, &tagged]));
        let info = Extensions::parse(&mut Reader::new(&draft)).unwrap().proxy.unwrap();
        assert_eq!(
            (info.form, info.critical, info.path_length, info.body),
            (Form::Draft, false, Some(7), Some(&b"text"[..]))
        );
        // Each in the other's order is neither.
        assert!(one(oid::PROXY_INFO_DRAFT, true, &sequence(&[&encode_count(2), &limited])).is_err());
        assert_eq!(one(oid::PROXY_INFO, true, &sequence(&[&limited, &tagged])), Err(DerError::Trailing));
        assert_eq!(one(oid::PROXY_INFO, true, &sequence(&[&[2, 1, 0xff], &limited])), Err(DerError::Value("count")));
        let both = [rfc, draft].concat();
        assert_eq!(Extensions::parse(&mut Reader::new(&both)).err(), Some(DerError::Twice("proxy information")));
    }

    #[test]
    fn nothing_is_half_understood() {
        let basic = sequence(&[&[1, 1, 0xff]]);
        assert_eq!(one(oid::BASIC_CONSTRAINTS, true, &[&basic[..], &[5, 0]].concat()), Err(DerError::Trailing));
        assert_eq!(one(oid::BASIC_CONSTRAINTS, true, &sequence(&[&[1, 1, 1]])), Err(DerError::Value("truth value")));
        assert_eq!(
            one(oid::BASIC_CONSTRAINTS, true, &sequence(&[&encode_count(1), &[1, 1, 0xff]])),
            Err(DerError::Trailing)
        );
        assert_eq!(one(oid::KEY_USAGE, true, &[3, 1, 1]), Err(DerError::Value("bit string")));
        for bad in [&b"good.example\0.evil"[..], b"", b"caf\xc3\xa9"] {
            let names = sequence(&[&encode(DNS, &[bad])]);
            assert_eq!(one(oid::SUBJECT_ALT_NAME, false, &names), Err(DerError::Value("alternative name")));
        }
        assert_eq!(
            one(oid::SUBJECT_ALT_NAME, false, &sequence(&[&encode(ADDRESS, &[&[1; 5]])])),
            Err(DerError::Value("address"))
        );
    }

    #[test]
    fn lists_have_bounds_and_extensions_stand_once() {
        let twice = extension(oid::LIMITED, false, b"").repeat(2);
        assert_eq!(Extensions::parse(&mut Reader::new(&twice)).err(), Some(DerError::Twice("extension")));
        let many: Vec<u8> = (0..=256u16)
            .flat_map(|number| {
                extension(Oid::new(&[0x2b, (number / 100) as u8, (number % 100) as u8]).unwrap(), false, b"")
            })
            .collect();
        assert_eq!(Extensions::parse(&mut Reader::new(&many)).err(), Some(DerError::TooMany("extensions")));
        let purposes = encode(tag::OID, &[oid::LIMITED.bytes()]).repeat(257);
        assert_eq!(one(oid::EXTENDED_KEY_USAGE, false, &sequence(&[&purposes])), Err(DerError::TooMany("purposes")));
        let names = encode(DNS, &[b"x"]).repeat(4097);
        assert_eq!(
            one(oid::SUBJECT_ALT_NAME, false, &sequence(&[&names])),
            Err(DerError::TooMany("alternative names"))
        );
    }
}

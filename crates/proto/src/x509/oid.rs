//! Object identifiers: their bytes, and those that certificates of grids use.

use std::fmt;

use super::der::DerError;

/// Longest identifier that is read, bytes.
const LONGEST: usize = 64;

/// An object identifier, as the content bytes of its DER form (X.690 §8.19).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Oid<'a>(&'a [u8]);

/// basicConstraints (RFC 5280 §4.2.1.9).
pub const BASIC_CONSTRAINTS: Oid<'static> = Oid(&[0x55, 0x1d, 0x13]);
/// keyUsage (RFC 5280 §4.2.1.3).
pub const KEY_USAGE: Oid<'static> = Oid(&[0x55, 0x1d, 0x0f]);
/// extKeyUsage (RFC 5280 §4.2.1.12).
pub const EXTENDED_KEY_USAGE: Oid<'static> = Oid(&[0x55, 0x1d, 0x25]);
/// subjectAltName (RFC 5280 §4.2.1.6).
pub const SUBJECT_ALT_NAME: Oid<'static> = Oid(&[0x55, 0x1d, 0x11]);
/// issuerAltName (RFC 5280 §4.2.1.7).
pub const ISSUER_ALT_NAME: Oid<'static> = Oid(&[0x55, 0x1d, 0x12]);
/// subjectKeyIdentifier (RFC 5280 §4.2.1.2).
pub const SUBJECT_KEY_ID: Oid<'static> = Oid(&[0x55, 0x1d, 0x0e]);
/// authorityKeyIdentifier (RFC 5280 §4.2.1.1).
pub const AUTHORITY_KEY_ID: Oid<'static> = Oid(&[0x55, 0x1d, 0x23]);
/// Netscape's certificate type, which old grid certificates carry.
pub const NETSCAPE_TYPE: Oid<'static> = Oid(&[0x60, 0x86, 0x48, 0x01, 0x86, 0xf8, 0x42, 0x01, 0x01]);
/// certificatePolicies (RFC 5280 §4.2.1.4).
pub const CERTIFICATE_POLICIES: Oid<'static> = Oid(&[0x55, 0x1d, 0x20]);
/// targetInformation of attribute certificates (RFC 5755 §4.3.2).
pub const TARGETS: Oid<'static> = Oid(&[0x55, 0x1d, 0x37]);
/// noRevAvail of attribute certificates (RFC 5755 §4.3.6).
pub const NO_REVOCATION: Oid<'static> = Oid(&[0x55, 0x1d, 0x38]);

/// proxyCertInfo (RFC 3820 §3.8): 1.3.6.1.5.5.7.1.14.
pub const PROXY_INFO: Oid<'static> = Oid(&[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x01, 0x0e]);
/// proxyCertInfo of the drafts before RFC 3820: 1.3.6.1.4.1.3536.1.222.
pub const PROXY_INFO_DRAFT: Oid<'static> = Oid(&[0x2b, 0x06, 0x01, 0x04, 0x01, 0x9b, 0x50, 0x01, 0x81, 0x5e]);
/// Policy language: all rights of the issuer (RFC 3820 §3.8.2): 1.3.6.1.5.5.7.21.1.
pub const INHERIT_ALL: Oid<'static> = Oid(&[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x15, 0x01]);
/// Policy language: no rights of the issuer (RFC 3820 §3.8.2): 1.3.6.1.5.5.7.21.2.
pub const INDEPENDENT: Oid<'static> = Oid(&[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x15, 0x02]);
/// Policy language: may move data but not start jobs: 1.3.6.1.4.1.3536.1.1.1.9.
pub const LIMITED: Oid<'static> = Oid(&[0x2b, 0x06, 0x01, 0x04, 0x01, 0x9b, 0x50, 0x01, 0x01, 0x01, 0x09]);

/// Attribute certificates of VOMS in a proxy: 1.3.6.1.4.1.8005.100.100.5.
pub const VOMS: Oid<'static> = Oid(&[0x2b, 0x06, 0x01, 0x04, 0x01, 0xbe, 0x45, 0x64, 0x64, 0x05]);
/// The attribute that holds the names of groups and roles: 1.3.6.1.4.1.8005.100.100.4.
pub const VOMS_ATTRIBUTE: Oid<'static> = Oid(&[0x2b, 0x06, 0x01, 0x04, 0x01, 0xbe, 0x45, 0x64, 0x64, 0x04]);
/// Certificates of the signer inside an attribute certificate: 1.3.6.1.4.1.8005.100.100.10.
pub const VOMS_CERTIFICATES: Oid<'static> = Oid(&[0x2b, 0x06, 0x01, 0x04, 0x01, 0xbe, 0x45, 0x64, 0x64, 0x0a]);
/// Further attributes of the holder: 1.3.6.1.4.1.8005.100.100.11.
pub const VOMS_TAGS: Oid<'static> = Oid(&[0x2b, 0x06, 0x01, 0x04, 0x01, 0xbe, 0x45, 0x64, 0x64, 0x0b]);

/// commonName.
pub const COMMON_NAME: Oid<'static> = Oid(&[0x55, 0x04, 0x03]);

impl<'a> Oid<'a> {
    /// The identifier with this content, if it is one: complete, minimal, at most 64 bytes.
    pub fn new(content: &'a [u8]) -> Result<Self, DerError> {
        let last_is_whole = content.last().is_some_and(|last| last & 0x80 == 0);
        // X.690 §8.19.2: no arc begins with a byte of nothing but continuation.
        let padded = content.iter().enumerate().any(|(at, &byte)| byte == 0x80 && (at == 0 || content[at - 1] < 0x80));
        if last_is_whole && !padded && content.len() <= LONGEST {
            Ok(Self(content))
        } else {
            Err(DerError::Value("object identifier"))
        }
    }

    /// The content bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.0
    }
}

impl fmt::Display for Oid<'_> {
    /// Numbers with dots; an arc of more than 128 bits ends the text with `.?`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut first = true;
        for arc in self.0.split_inclusive(|byte| byte & 0x80 == 0) {
            if arc.len() > 18 {
                return f.write_str(".?");
            }
            let number = arc.iter().fold(0u128, |number, byte| number << 7 | u128::from(byte & 0x7f));
            if first {
                let top = (number / 40).min(2);
                write!(f, "{top}.{}", number - top * 40)?;
                first = false;
            } else {
                write!(f, ".{number}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Oid<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_known_identifiers_are_those_of_their_documents() {
        for (oid, text) in [
            (PROXY_INFO, "1.3.6.1.5.5.7.1.14"),
            (PROXY_INFO_DRAFT, "1.3.6.1.4.1.3536.1.222"),
            (INHERIT_ALL, "1.3.6.1.5.5.7.21.1"),
            (INDEPENDENT, "1.3.6.1.5.5.7.21.2"),
            (LIMITED, "1.3.6.1.4.1.3536.1.1.1.9"),
            (VOMS, "1.3.6.1.4.1.8005.100.100.5"),
            (VOMS_ATTRIBUTE, "1.3.6.1.4.1.8005.100.100.4"),
            (VOMS_CERTIFICATES, "1.3.6.1.4.1.8005.100.100.10"),
            (VOMS_TAGS, "1.3.6.1.4.1.8005.100.100.11"),
            (BASIC_CONSTRAINTS, "2.5.29.19"),
            (KEY_USAGE, "2.5.29.15"),
            (EXTENDED_KEY_USAGE, "2.5.29.37"),
            (SUBJECT_ALT_NAME, "2.5.29.17"),
            (ISSUER_ALT_NAME, "2.5.29.18"),
            (SUBJECT_KEY_ID, "2.5.29.14"),
            (AUTHORITY_KEY_ID, "2.5.29.35"),
            (CERTIFICATE_POLICIES, "2.5.29.32"),
            (TARGETS, "2.5.29.55"),
            (NO_REVOCATION, "2.5.29.56"),
            (NETSCAPE_TYPE, "2.16.840.1.113730.1.1"),
            (COMMON_NAME, "2.5.4.3"),
        ] {
            assert_eq!(oid.to_string(), text);
            assert_eq!(Oid::new(oid.bytes()), Ok(oid));
        }
    }

    #[test]
    fn what_is_no_identifier_is_refused() {
        for bad in [&[][..], &[0x80, 0x01], &[0x55, 0x80, 0x01], &[0x55, 0x9d], &[1; 65]] {
            assert_eq!(Oid::new(bad), Err(DerError::Value("object identifier")), "{bad:x?}");
        }
        assert_eq!(Oid::new(&[0x55, 0x81, 0x80, 0x01]).unwrap().to_string(), "2.5.16385");
    }

    #[test]
    fn giant_arcs_are_cut() {
        let mut content = vec![0x2a];
        content.extend([0xff; 30]);
        content.push(0x7f);
        assert_eq!(Oid::new(&content).unwrap().to_string(), "1.2.?");
    }
}

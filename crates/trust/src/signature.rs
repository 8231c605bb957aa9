//! Signatures of tokens: RS256 and ES256, each by keys that are for it alone.

use openssl::bn::BigNum;
use openssl::ec::{EcGroup, EcKey};
use openssl::ecdsa::EcdsaSig;
use openssl::error::ErrorStack;
use openssl::hash::MessageDigest;
use openssl::nid::Nid;
use openssl::pkey::{PKey, Public};
use openssl::rsa::{Padding, Rsa};
use openssl::sha::sha256;
use openssl::sign::Verifier;
use whimbrel_proto::token::jwks::{Key, Material};
use whimbrel_proto::token::jwt::Algorithm;

use crate::verified;

/// Bytes of a signature by P-256 in JOSE's form: r, then s, of 32 bytes each (RFC 7518 §3.4).
const P256_SIGNATURE: usize = 64;

/// A key that verifies one algorithm; a token cannot make it verify another.
#[derive(Debug, Clone)]
pub enum VerifyingKey {
    /// RS256.
    Rsa(PKey<Public>),
    /// ES256.
    P256(EcKey<Public>),
}

impl VerifyingKey {
    /// Takes the numbers of a key into OpenSSL's form.
    ///
    /// # Errors
    /// OpenSSL's: a point that is not on the curve.
    pub fn new(key: &Key) -> Result<Self, ErrorStack> {
        match &key.material {
            Material::Rsa { n, e } => {
                let rsa = Rsa::from_public_components(BigNum::from_slice(n)?, BigNum::from_slice(e)?)?;
                Ok(Self::Rsa(PKey::from_rsa(rsa)?))
            }
            Material::P256 { x, y } => {
                let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1)?;
                let (x, y) = (BigNum::from_slice(x)?, BigNum::from_slice(y)?);
                let key = EcKey::from_public_key_affine_coordinates(&group, &x, &y)?;
                key.check_key()?;
                Ok(Self::P256(key))
            }
        }
    }

    /// The one algorithm it verifies.
    pub fn algorithm(&self) -> Algorithm {
        match self {
            Self::Rsa(_) => Algorithm::Rs256,
            Self::P256(_) => Algorithm::Es256,
        }
    }

    /// Whether `signature` is this key's over `signed`, by `algorithm`: that of the token, which has to be the key's own.
    pub fn verifies(&self, algorithm: Algorithm, signed: &[u8], signature: &[u8]) -> bool {
        // What OpenSSL cannot read is a wrong signature like any other.
        algorithm == self.algorithm() && self.checked(signed, signature).unwrap_or(false)
    }

    fn checked(&self, signed: &[u8], signature: &[u8]) -> Result<bool, ErrorStack> {
        match self {
            Self::Rsa(key) => {
                let mut verifier = Verifier::new(MessageDigest::sha256(), key)?;
                verifier.set_rsa_padding(Padding::PKCS1)?;
                Ok(verified::message(verifier, signature, signed))
            }
            Self::P256(key) => {
                if signature.len() != P256_SIGNATURE {
                    return Ok(false);
                }
                let (r, s) = signature.split_at(P256_SIGNATURE / 2);
                // Zero and numbers beyond the group's order are refused by OpenSSL (CVE-2022-21449 was elsewhere).
                let signature = EcdsaSig::from_private_components(BigNum::from_slice(r)?, BigNum::from_slice(s)?)?;
                Ok(verified::digest(&signature, &sha256(signed), key))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use openssl::bn::BigNumContext;
    use openssl::pkey::Private;
    use openssl::sign::Signer;

    use super::*;

    fn p256() -> (EcKey<Private>, Key) {
        let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
        let key = EcKey::generate(&group).unwrap();
        let (mut x, mut y) = (BigNum::new().unwrap(), BigNum::new().unwrap());
        let mut context = BigNumContext::new().unwrap();
        key.public_key().affine_coordinates(&group, &mut x, &mut y, &mut context).unwrap();
        let fixed = |number: &BigNum| number.to_vec_padded(32).unwrap().try_into().unwrap();
        let material = Material::P256 { x: fixed(&x), y: fixed(&y) };
        (key, Key { kid: None, material })
    }

    fn joined(signature: &EcdsaSig) -> Vec<u8> {
        [signature.r().to_vec_padded(32).unwrap(), signature.s().to_vec_padded(32).unwrap()].concat()
    }

    #[test]
    fn es256_takes_joses_form_and_no_other() {
        let (private, key) = p256();
        let key = VerifyingKey::new(&key).unwrap();
        let signature = EcdsaSig::sign(&sha256(b"text"), &private).unwrap();
        let good = joined(&signature);
        assert!(key.verifies(Algorithm::Es256, b"text", &good));
        assert!(!key.verifies(Algorithm::Es256, b"other", &good));
        assert!(!key.verifies(Algorithm::Rs256, b"text", &good));
        assert!(!key.verifies(Algorithm::Es256, b"text", &signature.to_der().unwrap()));
        for bad in [vec![], vec![0; 64], vec![0xff; 64], good[..63].to_vec(), [&good[..], &[0]].concat()] {
            assert!(!key.verifies(Algorithm::Es256, b"text", &bad), "{bad:?}");
        }
        for half in [0, 32] {
            let mut zeroed = good.clone();
            zeroed[half..half + 32].fill(0);
            assert!(!key.verifies(Algorithm::Es256, b"text", &zeroed));
        }
    }

    #[test]
    fn rs256_is_pkcs1_with_sha256_only() {
        let rsa = Rsa::generate(2048).unwrap();
        let material = Material::Rsa { n: rsa.n().to_vec(), e: rsa.e().to_vec() };
        let key = VerifyingKey::new(&Key { kid: None, material }).unwrap();
        let private = PKey::from_rsa(rsa).unwrap();
        let sign = |digest, padding| {
            let mut signer = Signer::new(digest, &private).unwrap();
            signer.set_rsa_padding(padding).unwrap();
            signer.sign_oneshot_to_vec(b"text").unwrap()
        };
        let good = sign(MessageDigest::sha256(), Padding::PKCS1);
        assert!(key.verifies(Algorithm::Rs256, b"text", &good));
        assert!(!key.verifies(Algorithm::Rs256, b"texT", &good));
        assert!(!key.verifies(Algorithm::Es256, b"text", &good));
        assert!(!key.verifies(Algorithm::Rs256, b"text", &sign(MessageDigest::sha1(), Padding::PKCS1)));
        assert!(!key.verifies(Algorithm::Rs256, b"text", &sign(MessageDigest::sha256(), Padding::PKCS1_PSS)));
        assert!(!key.verifies(Algorithm::Rs256, b"text", &good[..255]));
        assert!(!key.verifies(Algorithm::Rs256, b"text", b""));
        assert!(!key.verifies(Algorithm::Rs256, b"text", &[&good[..], &[0]].concat()));
    }

    #[test]
    fn a_point_off_the_curve_is_no_key() {
        let (_, key) = p256();
        let Material::P256 { x, mut y } = key.material else { panic!("a point") };
        y[31] ^= 1;
        assert!(VerifyingKey::new(&Key { kid: None, material: Material::P256 { x, y } }).is_err());
        let origin = Material::P256 { x: [0; 32], y: [0; 32] };
        assert!(VerifyingKey::new(&Key { kid: None, material: origin }).is_err());
    }
}

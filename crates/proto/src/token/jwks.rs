//! Key sets of issuers (RFC 7517), as far as they can verify RS256 and ES256.

use base64ct::{Base64UrlUnpadded, Encoding};
use serde::Deserialize;

use super::json::{Object, Value};
use super::jwt::{Algorithm, MAX_NAME};

/// Longest key set, bytes.
pub const MAX_SET: usize = 256 << 10;
/// Most keys of a set, of any kind.
pub const MAX_KEYS: usize = 128;
/// Bits of RSA keys that are accepted.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

/// A key that verifies one algorithm and no other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Its name in the set.
    pub kid: Option<String>,
    /// The key itself.
    pub material: Material,
}

/// The numbers of a key, big-endian.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Material {
    /// RSA: modulus without leading zeros, and exponent.
    Rsa {
        /// 2048 to 8192 bits.
        n: Vec<u8>,
        /// Odd, at least 3, at most 8 bytes.
        e: Vec<u8>,
    },
    /// A point that should be on the curve P-256; whether it is, nobody has looked yet.
    P256 {
        /// First coordinate.
        x: [u8; 32],
        /// Second coordinate.
        y: [u8; 32],
    },
}

impl Key {
    /// The one algorithm it is for: a token cannot choose another.
    pub fn algorithm(&self) -> Algorithm {
        match self.material {
            Material::Rsa { .. } => Algorithm::Rs256,
            Material::P256 { .. } => Algorithm::Es256,
        }
    }
}

/// A set of keys.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeySet {
    /// Keys that can verify something, in their order.
    pub keys: Vec<Key>,
    /// How many others it holds: of other kinds, for other uses, too weak, or damaged.
    pub passed_over: usize,
}

/// Not a key set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum JwksError {
    /// Longer than [`MAX_SET`], or more than [`MAX_KEYS`] keys.
    #[error("the key set is too large")]
    TooLarge,
    /// Not an object with a list `keys` of objects.
    #[error("this is no key set: a JSON object with a list of keys is expected")]
    Form,
}

#[derive(Deserialize)]
struct Document {
    keys: Vec<Object>,
}

impl KeySet {
    /// Reads a key set; a key that is of no use here is passed over, so that the others still serve.
    ///
    /// # Errors
    /// [`JwksError`]
    pub fn parse(json: &[u8]) -> Result<Self, JwksError> {
        if json.len() > MAX_SET {
            return Err(JwksError::TooLarge);
        }
        let document: Document = serde_json::from_slice(json).map_err(|_| JwksError::Form)?;
        if document.keys.len() > MAX_KEYS {
            return Err(JwksError::TooLarge);
        }
        let all = document.keys.len();
        let keys: Vec<Key> = document.keys.iter().filter_map(key).collect();
        Ok(Self { passed_over: all - keys.len(), keys })
    }

    /// Places of the keys that may have signed a token: those of its algorithm, by the name that the token gives if it gives one.
    pub fn candidates(&self, algorithm: Algorithm, kid: Option<&str>) -> impl Iterator<Item = usize> {
        let fits =
            move |key: &Key| key.algorithm() == algorithm && kid.is_none_or(|kid| key.kid.as_deref() == Some(kid));
        self.keys.iter().enumerate().filter(move |(_, key)| fits(key)).map(|(place, _)| place)
    }
}

fn key(object: &Object) -> Option<Key> {
    let kid = match object.0.get("kid") {
        None => None,
        Some(Value::Text(kid)) if kid.len() <= MAX_NAME => Some(kid.clone()),
        Some(_) => return None,
    };
    let material = match object.text("kty")? {
        "RSA" => rsa(object)?,
        "EC" if object.text("crv")? == "P-256" => {
            Material::P256 { x: coordinate(object, "x")?, y: coordinate(object, "y")? }
        }
        _ => return None,
    };
    let key = Key { kid, material };
    (is_for_signatures(object) && is_for(object, key.algorithm())).then_some(key)
}

fn rsa(object: &Object) -> Option<Material> {
    let (n, e) = (number(object, "n")?, number(object, "e")?);
    let bits = n.len() * 8 - n.first()?.leading_zeros() as usize;
    let odd = |number: &[u8]| number.last().is_some_and(|byte| byte % 2 == 1);
    let good = RSA_BITS.contains(&bits) && odd(&n) && odd(&e) && e.len() <= 8 && e != [1];
    good.then_some(Material::Rsa { n, e })
}

/// `use` and `key_ops`, where they are there (RFC 7517 §4.2, §4.3).
fn is_for_signatures(object: &Object) -> bool {
    let used = match object.0.get("use") {
        None => true,
        Some(Value::Text(purpose)) => purpose == "sig",
        Some(_) => false,
    };
    used && match object.0.get("key_ops") {
        None => true,
        Some(Value::Texts(operations)) => operations.iter().any(|operation| operation == "verify"),
        Some(_) => false,
    }
}

fn is_for(object: &Object, algorithm: Algorithm) -> bool {
    match object.0.get("alg") {
        None => true,
        Some(Value::Text(word)) => Algorithm::of(word) == Some(algorithm),
        Some(_) => false,
    }
}

/// A number without leading zeros; some issuers write one.
fn number(object: &Object, name: &str) -> Option<Vec<u8>> {
    let bytes = Base64UrlUnpadded::decode_vec(object.text(name)?).ok()?;
    let start = bytes.iter().position(|&byte| byte != 0)?;
    Some(bytes[start..].to_vec())
}

/// Coordinates have their full length (RFC 7518 §6.2.1.2).
fn coordinate(object: &Object, name: &str) -> Option<[u8; 32]> {
    Base64UrlUnpadded::decode_vec(object.text(name)?).ok()?.try_into().ok()
}

#[cfg(test)]
#[path = "jwks_tests.rs"]
mod tests;

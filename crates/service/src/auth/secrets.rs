//! Random texts, their hashes, and hashes of passwords.

use argon2::Argon2;
use argon2::password_hash::rand_core::OsRng;
use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use base64ct::{Base64UrlUnpadded, Encoding};
use openssl::memcmp;
use openssl::rand::rand_bytes;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::http::ApiError;
use crate::store::random_uuid;

/// A valid hash of a password that nobody has, verified for unknown names: so that they take as long as known ones.
const DUMMY_HASH: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHRzb21lc2FsdA$Zl3BYxwnBuBvKOcn2UkQZ1uLVhkhzEJrBYq+fY9wbDo";

/// Longest password, bytes: more is work for nothing.
pub const LONGEST_PASSWORD: usize = 1024;

/// A text that nobody can guess: 256 random bits behind a prefix that tells what it is.
///
/// # Errors
/// 500 without randomness.
pub fn random(prefix: &str) -> Result<String, ApiError> {
    let mut bytes = [0; 32];
    rand_bytes(&mut bytes).map_err(ApiError::internal)?;
    Ok(format!("{prefix}{}", Base64UrlUnpadded::encode_string(&bytes)))
}

/// A random id.
///
/// # Errors
/// 500 without randomness.
pub fn random_id() -> Result<Uuid, ApiError> {
    random_uuid().map_err(ApiError::internal)
}

/// Half of the SHA-256 digest of what an id follows from.
pub fn id_bytes<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; 16] {
    let digest = parts.into_iter().fold(Sha256::new(), |digest, part| digest.chain_update(part));
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest.finalize()[..16]);
    bytes
}

/// SHA-256 of a text, hexadecimal: how texts that nobody can guess are kept.
pub fn digest(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether two texts are alike, in a time that does not tell where they differ.
pub fn alike(a: &str, b: &str) -> bool {
    a.len() == b.len() && memcmp::eq(a.as_bytes(), b.as_bytes())
}

/// The PKCE challenge of a verifier, by the method S256 (RFC 7636 §4.2).
pub fn challenge_of(verifier: &str) -> String {
    Base64UrlUnpadded::encode_string(&Sha256::digest(verifier.as_bytes()))
}

/// Whether a PKCE verifier is that of a challenge (RFC 7636 §4.6).
pub fn fits_challenge(verifier: &str, challenge: &str) -> bool {
    let long_enough = (43..=128).contains(&verifier.len());
    long_enough && alike(&challenge_of(verifier), challenge)
}

/// Hashes a password; takes a tenth of a second, elsewhere than on the runtime's threads.
///
/// # Errors
/// 400 for an empty or endless one.
pub async fn hash_password(password: String) -> Result<String, ApiError> {
    if password.is_empty() || password.len() > LONGEST_PASSWORD {
        return Err(ApiError::bad_request(format!("A password has 1 to {LONGEST_PASSWORD} bytes")));
    }
    let hashed = tokio::task::spawn_blocking(move || {
        let salt = SaltString::generate(&mut OsRng);
        Argon2::default().hash_password(password.as_bytes(), &salt).map(|hash| hash.to_string())
    });
    hashed.await.map_err(ApiError::internal)?.map_err(ApiError::internal)
}

/// Whether a password is the one of a hash; as long for no hash as for a wrong password.
///
/// # Errors
/// 500 if the work could not be done.
pub async fn verify_password(hash: Option<String>, password: String) -> Result<bool, ApiError> {
    if password.len() > LONGEST_PASSWORD {
        return Ok(false);
    }
    let verified = tokio::task::spawn_blocking(move || {
        let known = hash.is_some();
        let text = hash.as_deref().unwrap_or(DUMMY_HASH);
        let fits = PasswordHash::new(text)
            .is_ok_and(|hash| Argon2::default().verify_password(password.as_bytes(), &hash).is_ok());
        known && fits
    });
    verified.await.map_err(ApiError::internal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_password_fits_its_hash_only() {
        let hash = hash_password("s3cret".to_owned()).await.unwrap();
        assert!(verify_password(Some(hash.clone()), "s3cret".to_owned()).await.unwrap());
        assert!(!verify_password(Some(hash), "other".to_owned()).await.unwrap());
        assert!(!verify_password(None, "s3cret".to_owned()).await.unwrap());
        assert!(hash_password(String::new()).await.is_err());
    }

    #[test]
    fn a_challenge_is_met_by_its_verifier_only() {
        // RFC 7636, appendix B.
        let (verifier, challenge) =
            ("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk", "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
        assert!(fits_challenge(verifier, challenge));
        assert!(!fits_challenge(&verifier.replace('d', "e"), challenge) && !fits_challenge("short", challenge));
    }
}

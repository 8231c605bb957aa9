//! Secrets at rest: AES-256-GCM under one key that is not in the database.
//!
//! What is sealed is bound to the record that it belongs to, so that nobody who can write to the database gets a secret
//! used for somebody else. Form: version (1 byte), nonce (12 bytes, random), ciphertext, tag (16 bytes).

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom, SystemRandom};
use zeroize::Zeroizing;

use super::StoreError;

const KEY_BYTES: usize = 32;
const VERSION: u8 = 1;

/// The key under which secrets are kept; never shown.
#[derive(Clone)]
pub struct SealKey(Zeroizing<[u8; KEY_BYTES]>);

impl std::fmt::Debug for SealKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SealKey(..)")
    }
}

impl SealKey {
    /// A new key.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn random() -> Result<Self, StoreError> {
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        random(key.as_mut())?;
        Ok(Self(key))
    }

    /// The key in a file of 64 hexadecimal digits, made (mode 0600) if there is none.
    ///
    /// # Errors
    /// The file cannot be read or made, others may read it, or it holds something else.
    pub fn at(path: &Path) -> Result<Self, StoreError> {
        let refused = |error: io::Error| StoreError::Refused(format!("key file {}: {error}", path.display()));
        if !path.exists() {
            let key = Self::random()?;
            // A crash in between leaves no half of a key: it gets its name when it is whole, and never another's.
            let unfinished = path.with_extension(format!("key-{}", std::process::id()));
            key.write(&unfinished).map_err(refused)?;
            let named = fs::hard_link(&unfinished, path);
            fs::remove_file(&unfinished).map_err(refused)?;
            match named {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(refused(error)),
                _ => sync_directory(path).map_err(refused)?,
            }
        }
        let mode = fs::metadata(path).map_err(refused)?.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(refused(io::Error::other("others may read it; chmod 600")));
        }
        let text = Zeroizing::new(fs::read_to_string(path).map_err(refused)?);
        Self::parse(text.trim()).ok_or_else(|| refused(io::Error::other("it does not hold 64 hexadecimal digits")))
    }

    /// The key of 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != 2 * KEY_BYTES || !text.is_ascii() {
            return None;
        }
        let mut key = Zeroizing::new([0; KEY_BYTES]);
        for (byte, digits) in key.iter_mut().zip(text.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        }
        Some(Self(key))
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        let digits: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
        file.write_all(Zeroizing::new(digits + "\n").as_bytes())?;
        file.sync_all()
    }

    /// The secret, sealed for the record of this kind and identity.
    pub(super) fn seal(&self, kind: &str, id: &str, secret: &[u8]) -> Result<Vec<u8>, StoreError> {
        let mut nonce = [0; NONCE_LEN];
        random(&mut nonce)?;
        let mut sealed = secret.to_vec();
        self.cipher()
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), bound_to(kind, id), &mut sealed)
            .map_err(|_| StoreError::Invalid("a secret too large to seal".into()))?;
        Ok([&[VERSION][..], &nonce, &sealed].concat())
    }

    /// The secret in what was sealed for the record of this kind and identity.
    pub(super) fn unseal(&self, kind: &str, id: &str, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, StoreError> {
        let wrong =
            || StoreError::WrongKey(format!("what belongs to {kind} {id} was sealed with another key, or altered"));
        let (&version, rest) = sealed.split_first().ok_or_else(wrong)?;
        let (nonce, ciphertext) = rest.split_at_checked(NONCE_LEN).filter(|_| version == VERSION).ok_or_else(wrong)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| wrong())?;
        let mut secret = Zeroizing::new(ciphertext.to_vec());
        let length = self.cipher().open_in_place(nonce, bound_to(kind, id), &mut secret).map_err(|_| wrong())?.len();
        secret.truncate(length);
        Ok(secret)
    }

    fn cipher(&self) -> LessSafeKey {
        let key = UnboundKey::new(&AES_256_GCM, self.0.as_ref()).expect("32 bytes are a key of AES-256");
        LessSafeKey::new(key)
    }
}

/// Kind and identity; the length in front keeps `a`, `bc` apart from `ab`, `c`.
fn bound_to(kind: &str, id: &str) -> Aad<Vec<u8>> {
    Aad::from([&(kind.len() as u64).to_be_bytes()[..], kind.as_bytes(), id.as_bytes()].concat())
}

fn random(bytes: &mut [u8]) -> Result<(), StoreError> {
    SystemRandom::new().fill(bytes).map_err(|_| StoreError::Unavailable("the system has no random numbers".into()))
}

/// A random number.
pub(super) fn random_u64() -> Result<u64, StoreError> {
    let mut bytes = [0; 8];
    random(&mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

/// A new identity (version 4).
///
/// # Errors
/// The system has no random numbers.
pub fn random_uuid() -> Result<uuid::Uuid, StoreError> {
    let mut bytes = [0; 16];
    random(&mut bytes)?;
    Ok(uuid::Builder::from_random_bytes(bytes).into_uuid())
}

fn sync_directory(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_opens_with_its_key_for_its_record_only() {
        let key = SealKey::random().unwrap();
        let sealed = key.seal("credential", "1", b"proxy").unwrap();
        assert_eq!(key.unseal("credential", "1", &sealed).unwrap().as_slice(), b"proxy");
        assert!(!sealed.windows(5).any(|window| window == b"proxy"));
        assert_ne!(sealed, key.seal("credential", "1", b"proxy").unwrap());
        assert!(matches!(key.unseal("credential", "2", &sealed), Err(StoreError::WrongKey(_))));
        assert!(matches!(key.unseal("credentia", "l1", &sealed), Err(StoreError::WrongKey(_))));
        assert!(SealKey::random().unwrap().unseal("credential", "1", &sealed).is_err());
        for at in 0..sealed.len() {
            let mut altered = sealed.clone();
            altered[at] ^= 1;
            assert!(key.unseal("credential", "1", &altered).is_err(), "byte {at}");
            assert!(key.unseal("credential", "1", &sealed[..at]).is_err(), "length {at}");
        }
    }

    #[test]
    fn a_key_file_is_made_once_and_is_private() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("whimbrel.db.key");
        let first = SealKey::at(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        let sealed = first.seal("a", "b", b"x").unwrap();
        assert!(SealKey::at(&path).unwrap().unseal("a", "b", &sealed).is_ok());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(SealKey::at(&path), Err(StoreError::Refused(_))));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "abc").unwrap();
        assert!(matches!(SealKey::at(&path), Err(StoreError::Refused(_))));
    }
}

//! Password users: a file of names and hashes.
//!
//! One user a line: `NAME:HASH[:ACCOUNT]`, `#` starts a comment, no name twice. HASH is an Argon2 hash in PHC
//! string form; ACCOUNT is the local account that handles the user's data when the server runs as root.

mod parse;

use std::path::{Path, PathBuf};

use argon2::Argon2;
use argon2::password_hash::rand_core::OsRng;
use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use whimbrel_engine::{Fault, FaultCode};

use self::parse::parse_entries;
use crate::small;

pub use self::parse::{Entry, parse_users};

/// A user of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Name given at login.
    pub name: String,
    /// Local account, where the file names one.
    pub account: Option<String>,
}

/// The users file; read anew at each login, so that changes need no restart.
#[derive(Debug, Clone)]
pub struct UsersFile {
    path: PathBuf,
}

impl UsersFile {
    /// Refers to a file and checks that it can be read and parsed.
    pub fn open(path: &Path) -> Result<Self, Fault> {
        let file = Self { path: path.to_owned() };
        file.entries()?;
        Ok(file)
    }

    /// The entry of a user; `Ok(None)`: there is none.
    pub fn entry(&self, name: &str) -> Result<Option<Entry>, Fault> {
        Ok(self.entries()?.into_iter().find(|entry| entry.user.name == name))
    }

    fn entries(&self) -> Result<Vec<Entry>, Fault> {
        let text = small::read_text(&self.path, "read users file", LONGEST)?;
        parse_entries(&text).map_err(|fault| fault.subject(self.path.display().to_string()))
    }
}

/// Whether a password fits a hash, that of an entry of the file. Takes tens of milliseconds of processor time, as long
/// without a hash (false) as with one.
pub fn verify_password(hash: Option<&str>, password: &[u8]) -> bool {
    let parsed = PasswordHash::new(hash.unwrap_or(DUMMY_HASH));
    parsed.is_ok_and(|parsed| Argon2::default().verify_password(password, &parsed).is_ok()) && hash.is_some()
}

/// Longest file of users, bytes: some 100,000 of them.
const LONGEST: u64 = 16 << 20;

/// A valid hash of a password that nobody has, verified for unknown names.
const DUMMY_HASH: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHRzb21lc2FsdA$Zl3BYxwnBuBvKOcn2UkQZ1uLVhkhzEJrBYq+fY9wbDo";

/// Hashes a password for the users file.
pub fn hash_password(password: &[u8]) -> Result<String, Fault> {
    let salt = SaltString::generate(&mut OsRng);
    Argon2::default()
        .hash_password(password, &salt)
        .map(|hash| hash.to_string())
        .map_err(|error| Fault::new(FaultCode::InvalidArgument, "hash password").detail(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file_with(text: &str) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("users");
        std::fs::write(&path, text).unwrap();
        (dir, path)
    }

    #[test]
    fn a_right_password_fits_and_a_wrong_one_does_not() {
        let hash = hash_password(b"s3cret").unwrap();
        let (_dir, path) = file_with(&format!("# people\nada:{hash}:adalove\n"));
        let users = UsersFile::open(&path).unwrap();
        let ada = users.entry("ada").unwrap().unwrap();
        assert_eq!((ada.user.name.as_str(), ada.user.account.as_deref()), ("ada", Some("adalove")));
        assert!(verify_password(Some(&ada.hash), b"s3cret"));
        assert!(!verify_password(Some(&ada.hash), b"wrong"));
        assert!(users.entry("bob").unwrap().is_none());
        assert!(!verify_password(None, b"s3cret"));
    }

    #[test]
    fn a_clear_text_password_in_the_file_is_refused_at_start() {
        let (_dir, path) = file_with("ada:s3cret\n");
        assert!(UsersFile::open(&path).is_err());
    }
}

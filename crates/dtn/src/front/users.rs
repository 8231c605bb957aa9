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

use self::parse::{Entry, parse_entries};

pub use self::parse::parse_users;

/// A user who proved a password.
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

    /// Checks a password; `Ok(None)` when name or password is wrong. Takes tens of milliseconds of
    /// processor time, as long for an unknown name as for a known one.
    pub fn verify(&self, name: &str, password: &[u8]) -> Result<Option<User>, Fault> {
        let entries = self.entries()?;
        let entry = entries.iter().find(|entry| entry.user.name == name);
        let hash = PasswordHash::new(entry.map_or(DUMMY_HASH, |entry| &entry.hash)).expect("hashes were checked");
        let matches = Argon2::default().verify_password(password, &hash).is_ok();
        Ok(entry.filter(|_| matches).map(|entry| entry.user.clone()))
    }

    fn entries(&self) -> Result<Vec<Entry>, Fault> {
        let text = std::fs::read_to_string(&self.path)
            .map_err(|error| Fault::from_io(error, "read users file").subject(self.path.display().to_string()))?;
        parse_entries(&text).map_err(|fault| fault.subject(self.path.display().to_string()))
    }
}

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
    fn a_right_password_gives_the_user_and_a_wrong_one_nothing() {
        let hash = hash_password(b"s3cret").unwrap();
        let (_dir, path) = file_with(&format!("# people\nada:{hash}:adalove\n"));
        let users = UsersFile::open(&path).unwrap();
        let user = users.verify("ada", b"s3cret").unwrap().unwrap();
        assert_eq!((user.name.as_str(), user.account.as_deref()), ("ada", Some("adalove")));
        assert_eq!(users.verify("ada", b"wrong").unwrap(), None);
        assert_eq!(users.verify("bob", b"s3cret").unwrap(), None);
    }

    #[test]
    fn a_clear_text_password_in_the_file_is_refused_at_start() {
        let (_dir, path) = file_with("ada:s3cret\n");
        assert!(UsersFile::open(&path).is_err());
    }
}

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
use crate::small::SmallFile;

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

    /// The entry of a user; without one the hash of nobody that takes as long to verify as an entry's, for a name always the same one's.
    pub fn entry(&self, name: &str) -> Result<Result<Entry, String>, Fault> {
        let mut entries = self.entries()?;
        if let Some(at) = entries.iter().position(|entry| entry.user.name == name) {
            return Ok(Ok(entries.swap_remove(at)));
        }
        let draw = usize::from(blake3::hash(name.as_bytes()).as_bytes()[0]);
        let alike = entries.get(draw % entries.len().max(1)).map(|entry| entry.hash.as_str());
        Ok(Err(nobodys_hash(alike)))
    }

    fn entries(&self) -> Result<Vec<Entry>, Fault> {
        let file = SmallFile::open(&self.path, "read users file", LONGEST)?;
        file.check_writers()?;
        parse_entries(&file.text()?).map_err(|fault| fault.subject(self.path.display().to_string()))
    }
}

/// Whether a password fits a hash, that of an entry of the file. Takes tens of milliseconds of processor time.
pub fn verify_password(hash: &str, password: &[u8]) -> bool {
    PasswordHash::new(hash).is_ok_and(|parsed| Argon2::default().verify_password(password, &parsed).is_ok())
}

/// The hash of a password that nobody has, with the costs of another hash.
pub(crate) fn nobodys_hash(alike: Option<&str>) -> String {
    let dummy = PasswordHash::new(DUMMY_HASH).expect("it is one, by the test below");
    let costs = alike.and_then(|hash| PasswordHash::new(hash).ok()).unwrap_or_else(|| dummy.clone());
    PasswordHash { salt: dummy.salt, hash: dummy.hash, ..costs }.to_string()
}

/// Longest file of users, bytes: some 100,000 of them.
const LONGEST: u64 = 16 << 20;

/// A valid hash of a password that nobody has.
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
        let Ok(ada) = users.entry("ada").unwrap() else { panic!("she is in it") };
        assert_eq!((ada.user.name.as_str(), ada.user.account.as_deref()), ("ada", Some("adalove")));
        assert!(verify_password(&ada.hash, b"s3cret"));
        assert!(!verify_password(&ada.hash, b"wrong"));
        let nobodys = users.entry("bob").unwrap().err().expect("he is not");
        assert!(!verify_password(&nobodys, b"s3cret"));
    }

    #[test]
    fn an_unknown_name_costs_what_a_known_one_does() {
        let costs = |hash: &str| {
            let hash = PasswordHash::new(hash).unwrap();
            format!("{} {:?} {}", hash.algorithm, hash.version, hash.params)
        };
        let nobodys = |users: &UsersFile, name| users.entry(name).unwrap().err().expect("nobody");
        let (_dir, path) = file_with("");
        assert_eq!(nobodys(&UsersFile::open(&path).unwrap(), "bob"), DUMMY_HASH);
        let cheap = DUMMY_HASH.replace("m=19456,t=2", "m=64,t=1").replace("argon2id", "argon2i");
        let (_dir, path) = file_with(&format!("ada:{cheap}"));
        let users = UsersFile::open(&path).unwrap();
        let hash = nobodys(&users, "bob");
        assert_eq!((costs(&hash), users.entry("ada").unwrap().is_ok()), (costs(&cheap), true));
        std::fs::write(&path, format!("ada:{cheap}\neve:{DUMMY_HASH}")).unwrap();
        assert_eq!(nobodys(&users, "bob"), nobodys(&users, "bob"), "it tells nothing of how often one asks");
    }

    #[test]
    fn a_file_that_everybody_may_write_lets_nobody_in() {
        let (_dir, path) = file_with(&format!("ada:{DUMMY_HASH}"));
        let users = UsersFile::open(&path).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o646)).unwrap();
        let fault = users.entry("ada").err().unwrap();
        assert!(fault.code == FaultCode::NotAuthorized && fault.to_string().contains("chmod o-w"), "{fault}");
    }

    #[test]
    fn a_clear_text_password_in_the_file_is_refused_at_start() {
        let (_dir, path) = file_with("ada:s3cret\n");
        assert!(UsersFile::open(&path).is_err());
    }
}

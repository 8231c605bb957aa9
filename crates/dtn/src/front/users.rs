//! Password users: a file of names and hashes.
//!
//! One user a line: `NAME:HASH[:ACCOUNT]`, `#` starts a comment. HASH is an Argon2 hash in PHC
//! string form; ACCOUNT is the local account that handles the user's data when the server runs as root.

use std::path::{Path, PathBuf};

use argon2::Argon2;
use argon2::password_hash::rand_core::OsRng;
use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use whimbrel_engine::{Fault, FaultCode};

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
        file.lines()?;
        Ok(file)
    }

    /// Checks a password; `Ok(None)` when name or password is wrong. Takes tens of milliseconds of
    /// processor time, as long for an unknown name as for a known one.
    pub fn verify(&self, name: &str, password: &[u8]) -> Result<Option<User>, Fault> {
        let lines = self.lines()?;
        let line = lines.iter().find(|line| line.name == name);
        let hash = line.map_or(DUMMY_HASH, |line| &line.hash);
        let parsed = PasswordHash::new(hash).map_err(|error| self.malformed(&error.to_string()))?;
        let matches = Argon2::default().verify_password(password, &parsed).is_ok();
        Ok(line.filter(|_| matches).map(|line| User { name: line.name.clone(), account: line.account.clone() }))
    }

    fn lines(&self) -> Result<Vec<Line>, Fault> {
        let text = std::fs::read_to_string(&self.path)
            .map_err(|error| Fault::from_io(error, "read users file").subject(self.path.display().to_string()))?;
        parse_lines(&text).map_err(|entry| self.malformed(&format!("entry {entry}")))
    }

    fn malformed(&self, what: &str) -> Fault {
        Fault::new(FaultCode::InvalidArgument, "read users file").subject(self.path.display().to_string()).detail(
            format!("{what}: expected NAME:HASH or NAME:HASH:ACCOUNT; make a line with `whimbrel dtn --hash-password`"),
        )
    }
}

/// A valid hash of a password that nobody has, verified for unknown names.
const DUMMY_HASH: &str =
    "$argon2id$v=19$m=19456,t=2,p=1$c29tZXNhbHRzb21lc2FsdA$Zl3BYxwnBuBvKOcn2UkQZ1uLVhkhzEJrBYq+fY9wbDo";

/// The users of a users file, without their hashes.
///
/// # Errors
/// Names the first entry, counted from 1, that is no user.
pub fn parse_users(text: &str) -> Result<Vec<User>, Fault> {
    let lines = parse_lines(text).map_err(|entry| {
        Fault::new(FaultCode::InvalidArgument, "read users file").detail(format!("entry {entry} is malformed"))
    })?;
    Ok(lines.into_iter().map(|line| User { name: line.name, account: line.account }).collect())
}

/// The entries, or the number of the first that is none.
fn parse_lines(text: &str) -> Result<Vec<Line>, usize> {
    text.lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .enumerate()
        .map(|(index, line)| Line::parse(line).ok_or(index + 1))
        .collect()
}

struct Line {
    name: String,
    hash: String,
    account: Option<String>,
}

impl Line {
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.splitn(3, ':');
        let name = fields.next().filter(|name| !name.is_empty())?.to_owned();
        let hash = fields.next()?.to_owned();
        PasswordHash::new(&hash).ok()?;
        let account = fields.next().filter(|account| !account.is_empty()).map(str::to_owned);
        Some(Self { name, hash, account })
    }
}

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

//! The text of a users file, without touching the file.

use std::collections::BTreeSet;

use argon2::password_hash::PasswordHash;
use argon2::{Algorithm, Params};
use whimbrel_engine::{Fault, FaultCode};

use super::User;

/// One line of a users file.
pub struct Entry {
    /// Who, and whose account.
    pub user: User,
    /// An Argon2 hash that passwords can be verified against.
    pub hash: String,
}

/// The users of a users file, without their hashes.
///
/// # Errors
/// `InvalidArgument`, naming the first entry, counted from 1, that is no user or is one for the second time.
pub fn parse_users(text: &str) -> Result<Vec<User>, Fault> {
    Ok(parse_entries(text)?.into_iter().map(|entry| entry.user).collect())
}

/// The entries; errors as in [`parse_users`].
pub(super) fn parse_entries(text: &str) -> Result<Vec<Entry>, Fault> {
    let mut names = BTreeSet::new();
    let mut entries = Vec::new();
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    for (number, line) in (1..).zip(lines) {
        let entry = Entry::parse(line).ok_or_else(|| {
            let form = "expected NAME:HASH or NAME:HASH:ACCOUNT; make a line with `whimbrel dtn --hash-password`";
            bad(format!("entry {number}: {form}"))
        })?;
        // Of two lines one password would hold, and not the one that was added last.
        if !names.insert(entry.user.name.clone()) {
            return Err(bad(format!("entry {number}: the user of an earlier entry again")));
        }
        entries.push(entry);
    }
    Ok(entries)
}

impl Entry {
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.splitn(3, ':');
        let name = fields.next().filter(|name| !name.is_empty())?.to_owned();
        let hash = fields.next().filter(|hash| can_verify(hash))?.to_owned();
        let account = fields.next().filter(|account| !account.is_empty()).map(str::to_owned);
        Some(Self { user: User { name, account }, hash })
    }
}

/// Most memory one login may take, KiB.
const MAX_MEMORY: u32 = 1 << 20;

/// Most passes over that memory, and most lanes.
const MAX_COST: u32 = 1 << 10;

/// Whether a hash asks for what a login may take; the crate's own check of them multiplies without looking for overflow.
fn is_affordable(hash: &PasswordHash<'_>) -> bool {
    let most = |name: &str| if name == "m" { MAX_MEMORY } else { MAX_COST };
    hash.params.iter().all(|(name, value)| value.decimal().is_ok_and(|value| value <= most(name.as_str())))
}

/// Whether a password can ever match: another algorithm's hash, or one without salt or digest, would lock its user out.
fn can_verify(text: &str) -> bool {
    let Ok(hash) = PasswordHash::new(text) else { return false };
    Algorithm::try_from(hash.algorithm).is_ok()
        && is_affordable(&hash)
        && Params::try_from(&hash).is_ok()
        && hash.salt.is_some()
        && hash.hash.is_some()
}

fn bad(detail: String) -> Fault {
    Fault::new(FaultCode::InvalidArgument, "read users file").detail(detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = super::super::DUMMY_HASH;

    #[test]
    fn entries_are_read_with_and_without_account() {
        let users = parse_users(&format!("# people\n\n ada:{HASH}:adalove \nbob:{HASH}\neve:{HASH}:\n")).unwrap();
        let user = |name: &str, account: Option<&str>| User { name: name.into(), account: account.map(Into::into) };
        assert_eq!(users, [user("ada", Some("adalove")), user("bob", None), user("eve", None)]);
    }

    #[test]
    fn hashes_that_no_password_can_match_are_refused() {
        let no_digest = HASH.rsplit_once('$').unwrap().0;
        let other = HASH.replace("argon2id", "scrypt");
        let no_memory = HASH.replace("m=19456", "m=1");
        for hash in ["", "s3cret", "$argon2id", no_digest, &other, &no_memory] {
            let fault = parse_users(&format!("bob:{HASH}\nada:{hash}")).unwrap_err();
            assert!(fault.detail.starts_with("entry 2: expected"), "{hash}: {fault}");
        }
    }

    #[test]
    fn hashes_that_would_stop_every_login_are_refused() {
        for (usual, greedy) in [("m=19456", "m=4194304"), ("t=2", "t=4000000000"), ("p=1", "p=1222222222")] {
            assert!(!can_verify(&HASH.replace(usual, greedy)), "{greedy}");
        }
        assert!(can_verify(HASH));
    }

    #[test]
    fn a_name_is_taken_once() {
        let fault = parse_users(&format!("ada:{HASH}\nbob:{HASH}\n# new\nada:{HASH}:x")).unwrap_err();
        assert!(fault.detail.starts_with("entry 3: the user of an earlier"), "{fault}");
    }
}

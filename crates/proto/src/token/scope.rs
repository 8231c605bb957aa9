//! Scopes that say what may be done where: those of the WLCG profile (§2.2.1) and of SciTokens.

use crate::rules::{Operation, Operations, PathRule, PathRules, RuleError, Verdict};

/// Why scopes make a token invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScopeError {
    /// `storage.*` without a path: the token must be rejected (WLCG profile §2.2.1).
    #[error("the scope {0} names no path")]
    NoPath(String),
    /// A path that is relative, leads upwards, or has a wrong or forbidden `%` sequence.
    #[error("the path of the scope {0} is not absolute and normal")]
    Path(String),
    /// More or longer rules than [`PathRules`] keep.
    #[error("the token has too many scopes, or too long ones")]
    Size,
}

impl From<RuleError> for ScopeError {
    fn from(_: RuleError) -> Self {
        Self::Size
    }
}

/// What a scope is about.
enum Kind {
    /// Files: these operations, at a path.
    Files(Operations),
    /// Files: nothing is changed at a path, whatever a shorter one allows.
    ReadOnly,
    /// Whoever shows it is a guest in somebody else's account.
    Guest,
    /// Something else that a token may be limited to (jobs): it limits the token all the same.
    Else,
    /// Nothing that limits (`openid`, `profile`, ...).
    None,
}

/// What a token's scopes allow below `base`, the part of the name space that belongs to its issuer; `None` for a token that no
/// scope limits, which is judged by its subject and groups alone (WLCG profile §2.2.3).
///
/// `scitokens`: the token says that it is one, so that `read` and `write` need paths.
///
/// # Errors
/// [`ScopeError`]: one such scope spoils the whole token.
pub fn rules(scopes: &[String], scitokens: bool, base: &[u8]) -> Result<Option<PathRules>, ScopeError> {
    let (mut limited, mut guest) = (false, false);
    let mut rules = Vec::new();
    for scope in scopes {
        let (name, path) = match scope.split_once(':') {
            Some((name, path)) => (name, Some(path)),
            None => (scope.as_str(), None),
        };
        let (verdict, operations) = match kind(name, path.is_some() || scitokens) {
            Kind::None => continue,
            Kind::Else => {
                limited = true;
                continue;
            }
            Kind::Guest => {
                (limited, guest) = (true, true);
                continue;
            }
            Kind::Files(operations) => (Verdict::Allow, operations),
            Kind::ReadOnly => (Verdict::Deny, !Operations::READING),
        };
        limited = true;
        let path = path.ok_or_else(|| ScopeError::NoPath(shown(scope)))?;
        let rule = rule(base, path, operations).ok_or_else(|| ScopeError::Path(shown(scope)))?;
        rules.push(PathRule { verdict, ..rule });
    }
    if !limited {
        return Ok(None);
    }
    let rules = PathRules::new(Operations::NONE, &rules)?;
    Ok(Some(if guest { rules.of_guest() } else { rules }))
}

/// Listing comes with reading only: the profile has no word for it, and names of files tell something, too.
fn kind(name: &str, scitoken: bool) -> Kind {
    use Operation::{Create, Delete, Modify};
    let some = |operations: &[Operation]| Kind::Files(operations.iter().copied().collect());
    match name {
        // What is staged is read next; on disks there is nothing to stage.
        "storage.read" | "storage.stage" => Kind::Files(Operations::READING),
        "storage.create" => some(&[Create]),
        "storage.modify" => some(&[Create, Modify, Delete]),
        "read" if scitoken => Kind::Files(Operations::READING),
        "write" if scitoken => some(&[Create, Modify, Delete]),
        // Our own word: the profile's scopes only add, and cannot say that less is allowed further down.
        "whimbrel.read_only" => Kind::ReadOnly,
        // Our own word: the profile's say what may be done, not whose account it is.
        "whimbrel.guest" => Kind::Guest,
        // Later words of the profile: nobody here knows what they allow.
        _ if name.starts_with("storage.") => some(&[]),
        // Our own word: data connections are joined for whoever shows the token, and there is nothing of files in it.
        "whimbrel.relay" => Kind::Else,
        _ if name.starts_with("compute.") || name.starts_with("condor") => Kind::Else,
        _ => Kind::None,
    }
}

fn rule(base: &[u8], path: &str, operations: Operations) -> Option<PathRule> {
    let mut full = base.to_vec();
    let mut below = false;
    for part in path.strip_prefix('/')?.split('/') {
        let name = unescape(part)?;
        match &name[..] {
            b"" | b"." => {}
            b".." => return None,
            name => {
                full.push(b'/');
                full.extend_from_slice(name);
                below = true;
            }
        }
    }
    if full.is_empty() {
        full.push(b'/');
    }
    // A trailing slash makes it a directory: nothing is said of a file of that name (WLCG profile §2.2.1).
    Some(PathRule { inside: below && path.ends_with('/'), ..PathRule::allow(full, operations) })
}

/// One name without its `%` sequences (RFC 3986 §2.1); a slash or NUL can be no part of it.
fn unescape(part: &str) -> Option<Vec<u8>> {
    let mut name = Vec::with_capacity(part.len());
    let mut bytes = part.bytes();
    while let Some(byte) = bytes.next() {
        let byte = match byte {
            b'%' => hex(bytes.next()?)? << 4 | hex(bytes.next()?)?,
            byte => byte,
        };
        if matches!(byte, 0 | b'/') {
            return None;
        }
        name.push(byte);
    }
    Some(name)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

/// A stranger's scope, short enough for a message.
fn shown(scope: &str) -> String {
    scope.chars().filter(|character| !character.is_control()).take(120).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(scopes: &str) -> Result<Option<PathRules>, ScopeError> {
        rules(&scopes.split(' ').map(str::to_owned).collect::<Vec<_>>(), false, b"")
    }

    fn allowed(scopes: &str) -> PathRules {
        read(scopes).unwrap().expect("limited")
    }

    #[test]
    fn each_scope_allows_its_operations_below_its_path() {
        let creating: Operations = [Operation::Create].into_iter().collect();
        let changing = !Operations::READING;
        for (scope, path, expected) in [
            ("storage.read:/", "/any/where", Operations::READING),
            ("storage.read:/foo", "/foo/bar", Operations::READING),
            ("storage.read:/foo", "/foobar", Operations::NONE),
            ("storage.stage:/foo", "/foo", Operations::READING),
            ("storage.create:/foo", "/foo/x", creating),
            ("storage.modify:/foo", "/foo/x", changing),
            ("read:/foo", "/foo/x", Operations::READING),
            ("write:/foo", "/foo/x", changing),
            ("storage.poll:/foo", "/foo/x", Operations::NONE),
            ("storage.read:/a storage.modify:/a/b", "/a/b/c", Operations::ALL),
            ("storage.read:/a storage.modify:/a/b", "/a/c", Operations::READING),
            ("storage.read:/a%20b/%c3%BC", "/a b/\u{fc}", Operations::READING),
            ("storage.read://a/./b/", "/a/b/c", Operations::READING),
            ("storage.READ:/foo", "/foo", Operations::NONE),
            ("whimbrel.relay", "/", Operations::NONE),
        ] {
            assert_eq!(allowed(scope).at(path.as_bytes()), expected, "{scope} {path}");
        }
    }

    #[test]
    fn creation_below_a_path_makes_way_to_it_as_the_profile_says() {
        let plain = allowed("storage.create:/foo/bar");
        assert!(plain.allows_mkdir(b"/foo") && !plain.allows(b"/foo", Operation::Create));
        assert!(plain.allows(b"/foo/bar", Operation::Create) && plain.allows(b"/foo/bar/qux", Operation::Create));
        assert!(!plain.allows_mkdir(b"/foo/bargain") && !plain.allows(b"/foo/bargain", Operation::Create));
        assert!(plain.allows_stat(b"/foo/bar") && !plain.allows(b"/foo/bar", Operation::Read));
        let slash = allowed("storage.create:/foo/bar/");
        assert!(!slash.allows(b"/foo/bar", Operation::Create) && slash.allows(b"/foo/bar/qux", Operation::Create));
        assert!(slash.allows_mkdir(b"/foo/bar"));
    }

    #[test]
    fn a_storage_scope_without_a_proper_path_spoils_the_token() {
        for scope in ["storage.read", "storage.modify", "storage.stage", "storage.poll", "storage."] {
            let with_others = format!("openid storage.read:/ok {scope}");
            assert_eq!(read(&with_others), Err(ScopeError::NoPath(scope.into())), "{scope}");
        }
        for scope in [
            "storage.read:",
            "storage.read:foo",
            "storage.read:/a/../b",
            "storage.read:/..",
            "storage.read:/%2e%2E/x",
            "storage.read:/a%2fb",
            "storage.read:/a%00",
            "storage.read:/a%",
            "storage.read:/a%4",
            "storage.read:/a%zz",
            "storage.read:/a\0",
            "write:..",
        ] {
            assert!(matches!(read(scope), Err(ScopeError::Path(_))), "{scope}");
        }
        let long = format!("storage.read:/{}", "a".repeat(5000));
        assert_eq!(read(&long), Err(ScopeError::Size));
    }

    #[test]
    fn words_that_say_nothing_about_files_limit_nothing() {
        assert_eq!(read("openid profile offline_access read write wlcg.groups:/atlas"), Ok(None));
        assert_eq!(rules(&[], false, b""), Ok(None));
        let jobs = allowed("openid compute.create");
        assert!(jobs.at(b"/").is_empty(), "a token for jobs is none for files");
    }

    #[test]
    fn a_part_of_what_may_be_changed_can_be_kept() {
        let rules = allowed("storage.read:/a whimbrel.read_only:/a/old storage.modify:/a storage.modify:/a/old/new");
        let changing = !Operations::READING;
        for (path, may) in [("/a/x", true), ("/a/old", false), ("/a/old/x", false), ("/a/old/new/x", true)] {
            let found = rules.at(path.as_bytes());
            assert_eq!((found & changing == changing, found.covers(Operations::READING)), (may, true), "{path}");
        }
        assert_eq!(read("whimbrel.read_only"), Err(ScopeError::NoPath("whimbrel.read_only".into())));
        assert!(allowed("whimbrel.read_only:/a").at(b"/a").is_empty(), "it gives nothing");
    }

    #[test]
    fn a_guest_is_one_whatever_is_allowed() {
        let all = "storage.read:/ storage.modify:/";
        assert!(allowed(all).is_free());
        let guest = allowed(&format!("{all} whimbrel.guest"));
        assert!(!guest.is_free() && guest.at(b"/x") == Operations::ALL);
        for both in [guest.and(&PathRules::everything()), PathRules::everything().and(&guest)] {
            assert_eq!(both, guest);
        }
        let json = serde_json::to_string(&guest).unwrap();
        assert_eq!(serde_json::from_str::<PathRules>(&json).unwrap(), guest);
        assert!(allowed("whimbrel.guest").at(b"/").is_empty(), "it gives nothing");
    }

    #[test]
    fn a_scitoken_names_paths() {
        let scopes = ["read".to_owned()];
        assert_eq!(rules(&scopes, true, b""), Err(ScopeError::NoPath("read".into())));
        assert_eq!(rules(&scopes, false, b""), Ok(None));
    }

    #[test]
    fn paths_count_from_the_issuers_part() {
        let scopes = ["storage.read:/".to_owned(), "storage.create:/out".to_owned()];
        let rules = rules(&scopes, false, b"/vo/atlas").unwrap().unwrap();
        assert!(rules.allows(b"/vo/atlas/x", Operation::Read) && rules.allows(b"/vo/atlas", Operation::List));
        assert!(
            rules.allows(b"/vo/atlas/out/x", Operation::Create) && !rules.allows(b"/vo/atlas/x", Operation::Create)
        );
        assert!(!rules.allows(b"/out/x", Operation::Create) && !rules.allows(b"/vo/cms", Operation::Read));
    }
}

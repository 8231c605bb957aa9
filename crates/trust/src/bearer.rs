//! A user's own access token: where it lies, and what it says of itself (WLCG Bearer Token Discovery 1.0).

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fmt, str};

use whimbrel_engine::fault::FaultCode;
use whimbrel_proto::timeval::Timestamp;
use whimbrel_proto::token::jwt::{Claims, Jwt};
use zeroize::Zeroizing;

use crate::TrustFault;

/// Longest file that is read, bytes; a token has at most 16 KiB.
const MAX_FILE: u64 = 64 << 10;

/// A token that is to be shown to a server.
pub struct Bearer {
    token: Zeroizing<String>,
    /// Where it was found, for people.
    pub place: String,
    /// What it says of itself; `None` if it is no JWT that could be read, which is the server's business.
    pub claims: Option<Claims>,
}

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bearer({})", self.place)
    }
}

impl Bearer {
    /// Looks in `BEARER_TOKEN`, in the file named by `BEARER_TOKEN_FILE`, in `$XDG_RUNTIME_DIR/bt_u<uid>` and in `/tmp/bt_u<uid>`, and takes
    /// the first that is there; `variable` gives variables of the environment.
    ///
    /// # Errors
    /// `CredentialRejected` for one that is there and cannot be used, `CredentialMissing` for a named file that is not there, or that of
    /// reading it: none after it is tried then.
    pub fn find(variable: impl Fn(&str) -> Option<OsString>, uid: u32) -> Result<Option<Self>, TrustFault> {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        if let Some(token) = set("BEARER_TOKEN") {
            let bytes = Zeroizing::new(token.into_encoded_bytes());
            return Self::of(&bytes, "BEARER_TOKEN").map(Some);
        }
        if let Some(path) = set("BEARER_TOKEN_FILE").map(PathBuf::from) {
            return match Self::in_file(&path, None)? {
                Some(bearer) => Ok(Some(bearer)),
                None => {
                    Err(fault(FaultCode::CredentialMissing, "BEARER_TOKEN_FILE names it, but it is not there", &path))
                }
            };
        }
        let name = format!("bt_u{uid}");
        if let Some(folder) = set("XDG_RUNTIME_DIR")
            && let Some(bearer) = Self::in_file(&Path::new(&folder).join(&name), Some(uid))?
        {
            return Ok(Some(bearer));
        }
        Self::in_file(&Path::new("/tmp").join(name), Some(uid))
    }

    /// A token that was given in some other way; `place` says how.
    ///
    /// # Errors
    /// `CredentialRejected`: empty, or characters that no token has. White space around it is forgiven.
    pub fn of(bytes: &[u8], place: &str) -> Result<Self, TrustFault> {
        let wrong = |why: &str| TrustFault::new(FaultCode::CredentialRejected, why).about(place);
        let trimmed = bytes.trim_ascii();
        if trimmed.is_empty() {
            return Err(wrong("there is no token in it"));
        }
        // Characters of RFC 6750 §2.1; what else is in it would be sent as part of a line.
        let fits = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~+/=".contains(byte);
        let text = str::from_utf8(trimmed).ok().filter(|_| trimmed.iter().all(fits));
        let text = text.ok_or_else(|| wrong("it holds something else than one token"))?;
        let claims = Jwt::parse(text.as_bytes()).ok();
        // Nobody verifies their own token: what it says is shown to its owner only.
        let claims = claims.and_then(|jwt| jwt.claims(|_, _| Ok::<_, ()>(())).ok());
        Ok(Self { token: Zeroizing::new(text.to_owned()), place: place.to_owned(), claims })
    }

    /// The token itself. Danger: whoever has it is its user.
    pub fn secret(&self) -> &str {
        &self.token
    }

    /// Whether it is good at `now`, in seconds since 1970, as far as it says.
    ///
    /// # Errors
    /// `CredentialExpired`, or `CredentialRejected` if it is not good yet.
    pub fn check(&self, now: i64) -> Result<(), TrustFault> {
        let Some(claims) = &self.claims else { return Ok(()) };
        let of = |name: &Option<String>| name.clone().unwrap_or_else(|| "nobody".into());
        let about = format!("token of {} by {} in {}", of(&claims.subject), of(&claims.issuer), self.place);
        let at = |secs: i64| Timestamp { secs: secs.clamp(0, 253_402_300_799), nanos: 0 };
        match (claims.expires, claims.not_before) {
            (Some(end), _) if now >= end => {
                Err(TrustFault::new(FaultCode::CredentialExpired, "the token has expired").about(about).until(at(end)))
            }
            (_, Some(start)) if now < start => {
                let why = "the token is not good yet; is the clock right?";
                Err(TrustFault::new(FaultCode::CredentialRejected, why).about(about))
            }
            _ => Ok(()),
        }
    }

    /// The token in a file, which has to be `owner`'s where somebody else could have put it; `None` if there is no file.
    fn in_file(path: &Path, owner: Option<u32>) -> Result<Option<Self>, TrustFault> {
        let io = |error: io::Error| fault(FaultCode::from_io(&error), error.to_string(), path);
        let named = match fs::symlink_metadata(path) {
            Ok(named) => named,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io(error)),
        };
        let rejected = |why: &str| fault(FaultCode::CredentialRejected, why, path);
        if owner.is_some_and(|owner| named.uid() != owner || !named.is_file()) {
            return Err(rejected("somebody else has put it there"));
        }
        // A pipe would be waited for.
        if !fs::metadata(path).map_err(io)?.is_file() {
            return Err(rejected("it is no file"));
        }
        let file = File::open(path).map_err(io)?;
        let opened = file.metadata().map_err(io)?;
        if owner.is_some() && (opened.dev(), opened.ino()) != (named.dev(), named.ino()) {
            return Err(rejected("it is another file than a moment ago"));
        }
        let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_FILE as usize + 1));
        file.take(MAX_FILE + 1).read_to_end(&mut bytes).map_err(io)?;
        if bytes.len() as u64 > MAX_FILE {
            return Err(rejected("it is too long for a token"));
        }
        Self::of(&bytes, &path.display().to_string()).map(Some)
    }
}

fn fault(code: FaultCode, why: impl Into<String>, path: &Path) -> TrustFault {
    TrustFault::new(code, why).about(path.display().to_string())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    /// `{"alg":"RS256"}` with `{"sub":"a","iss":"https://i","exp":2000,"nbf":1000}`.
    const TOKEN: &str =
        "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIiwiaXNzIjoiaHR0cHM6Ly9pIiwiZXhwIjoyMDAwLCJuYmYiOjEwMDB9.AAAA";
    /// Nobody has so high a number, so that nothing lies in /tmp for it.
    const UID: u32 = 4_000_000_123;

    fn find(pairs: &[(&str, &Path)], uid: u32) -> Result<Option<Bearer>, TrustFault> {
        let value =
            |name: &str| pairs.iter().find(|(known, _)| *known == name).map(|(_, path)| path.as_os_str().to_owned());
        Bearer::find(value, uid)
    }

    fn folder() -> (TempDir, u32) {
        let folder = tempfile::tempdir().unwrap();
        let uid = folder.path().metadata().unwrap().uid();
        (folder, uid)
    }

    #[test]
    fn the_first_place_that_has_a_token_counts() {
        let (folder, uid) = folder();
        let (named, usual) = (folder.path().join("mine"), folder.path().join(format!("bt_u{uid}")));
        fs::write(&named, format!(" {TOKEN}\n")).unwrap();
        fs::write(&usual, "usual").unwrap();
        let runtime = ("XDG_RUNTIME_DIR", folder.path());
        let all = [("BEARER_TOKEN", Path::new("direct")), ("BEARER_TOKEN_FILE", &named), runtime];
        let found = |pairs| find(pairs, uid).unwrap().map(|bearer| (bearer.secret().to_owned(), bearer.place));
        assert_eq!(found(&all), Some(("direct".into(), "BEARER_TOKEN".into())));
        assert_eq!(found(&all[1..]), Some((TOKEN.into(), named.display().to_string())));
        assert_eq!(found(&all[2..]), Some(("usual".into(), usual.display().to_string())));
        assert_eq!(found(&[("BEARER_TOKEN", Path::new("")), runtime]).unwrap().0, "usual");
        assert!(find(&[], UID).unwrap().is_none() && find(&[runtime], UID).unwrap().is_none());
    }

    #[test]
    fn a_place_that_is_wrong_is_named_and_none_after_it_is_tried() {
        let (folder, uid) = folder();
        let usual = folder.path().join(format!("bt_u{uid}"));
        let missing = find(&[("BEARER_TOKEN_FILE", &folder.path().join("gone"))], uid).unwrap_err();
        assert_eq!(missing.code, FaultCode::CredentialMissing);
        assert!(missing.subject.ends_with("gone"));
        let refused = || find(&[("XDG_RUNTIME_DIR", folder.path())], uid).unwrap_err().to_string();
        for (bytes, why) in [
            (&b" \n"[..], "no token"),
            (b"two tokens", "something else"),
            (b"a\r\nSITE x", "something else"),
            (b"\xff", "something else"),
        ] {
            fs::write(&usual, bytes).unwrap();
            assert!(refused().contains(why), "{}", refused());
        }
        fs::write(&usual, vec![b'a'; MAX_FILE as usize + 1]).unwrap();
        assert!(refused().contains("too long"));
        fs::rename(&usual, folder.path().join("elsewhere")).unwrap();
        symlink(folder.path().join("elsewhere"), &usual).unwrap();
        assert!(refused().contains("somebody else has put it there"));
        fs::remove_file(&usual).unwrap();
        fs::create_dir(&usual).unwrap();
        assert!(refused().contains("somebody else"));
        assert!(find(&[("BEARER_TOKEN_FILE", &usual)], uid).unwrap_err().detail.contains("no file"));
        fs::rename(&usual, folder.path().join(format!("bt_u{UID}"))).unwrap();
        assert!(find(&[("XDG_RUNTIME_DIR", folder.path())], UID).is_err(), "not the user's own");
    }

    #[test]
    fn a_token_tells_its_owner_until_when_it_is_good() {
        let bearer = Bearer::of(TOKEN.as_bytes(), "here").unwrap();
        assert_eq!(bearer.check(1000), Ok(()));
        let expired = bearer.check(2000).unwrap_err().to_string();
        assert!(expired.starts_with("token of a by https://i in here: "), "{expired}");
        assert!(expired.ends_with("the token has expired (good until 1970-01-01 00:33 UTC)"), "{expired}");
        assert!(bearer.check(999).unwrap_err().detail.contains("not good yet"));
        let opaque = Bearer::of(b"opaque", "here").unwrap();
        assert_eq!((opaque.check(i64::MAX), opaque.claims.is_none()), (Ok(()), true));
        assert!(!format!("{bearer:?}").contains("eyJ"), "secrets are not printed");
    }
}

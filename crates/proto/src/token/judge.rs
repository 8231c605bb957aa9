//! Whether verified claims are good here, now, and for what.

use serde::{Deserialize, Serialize};

use crate::rules::PathRules;
use crate::token::jwt::Claims;
use crate::token::scope::{self, ScopeError};

/// The audience of tokens that are for everybody (WLCG profile §2.1.1).
pub const ANY_AUDIENCE: &str = "https://wlcg.cern.ch/jwt/v1/any";
/// The same in SciTokens.
const ANY_SCITOKEN: &str = "ANY";
/// Leeway for clocks that differ, seconds.
pub const LEEWAY: u32 = 60;

/// An issuer whose tokens are accepted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Issuer {
    /// The exact text of `iss`.
    pub name: String,
    /// Audiences of which a token has to name one; compared as they are (RFC 7519 §4.1.3).
    pub audiences: Vec<String>,
    /// Whether tokens for everybody do as well.
    pub any_audience: bool,
    /// Where the paths of scopes count from: the part of the name space that belongs to this issuer; empty for all of it.
    pub base: Vec<u8>,
    /// Whether a token without scopes for files is accepted, as a proof of who somebody is and no more.
    pub without_scopes: bool,
}

/// What a good token gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Whom it is about; unique for its issuer only.
    pub subject: String,
    /// When it is over here, seconds since 1970: its end and the leeway.
    pub until: i64,
    /// What its scopes allow; `None` if they limit nothing.
    pub paths: Option<PathRules>,
    /// Groups of the subject; none where scopes count, which go before groups (WLCG profile §2.2.3).
    pub groups: Vec<String>,
    /// Claims for identity mapping by name: `iss`, `sub` and every other text.
    pub identity: Vec<(String, String)>,
}

/// Why a verified token is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// A claim that every token needs.
    #[error("the token has no {0}")]
    Missing(&'static str),
    /// Made by another issuer than the one whose key signed it.
    #[error("the token is not of this issuer")]
    Issuer,
    /// For somebody else.
    #[error("the token is for {}, not for this server ({})", list(.found), list(.accepted))]
    Audience {
        /// Whom it is for.
        found: Vec<String>,
        /// Names of this server.
        accepted: Vec<String>,
    },
    /// Over.
    #[error("the token has expired")]
    Expired {
        /// When.
        at: i64,
    },
    /// Not good yet.
    #[error("the token is not good yet; is the clock right?")]
    NotYet {
        /// When it will be.
        from: i64,
    },
    /// A profile that is not understood.
    #[error("the token follows version {0} of the WLCG profile; versions 1.x are understood")]
    Profile(String),
    /// A scope that makes it invalid.
    #[error(transparent)]
    Scope(#[from] ScopeError),
    /// No scope is about files, and this issuer's tokens need one.
    #[error("no scope of the token is about files, such as storage.read:/")]
    NoScope,
}

fn list(names: &[String]) -> String {
    let short = names.iter().take(4).map(|name| name.chars().filter(|c| !c.is_control()).take(100).collect::<String>());
    short.collect::<Vec<_>>().join(", ")
}

/// Judges claims whose signature was verified by a key of `issuer`, at `now` in seconds since 1970.
///
/// # Errors
/// [`Refusal`]: the first of what is wrong.
pub fn judge(claims: &Claims, issuer: &Issuer, now: i64, leeway: u32) -> Result<Grant, Refusal> {
    if claims.issuer.as_ref() != Some(&issuer.name) {
        return Err(Refusal::Issuer);
    }
    let subject = claims.subject.clone().ok_or(Refusal::Missing("subject (sub)"))?;
    let until = lifetime(claims, now, leeway)?;
    audience(claims, issuer)?;
    profile(claims)?;
    let paths = scope::rules(&claims.scopes, claims.scitokens.is_some(), &issuer.base)?;
    if paths.is_none() && !issuer.without_scopes {
        return Err(Refusal::NoScope);
    }
    let groups = if paths.is_none() { claims.groups.clone() } else { Vec::new() };
    let named = [("iss", &issuer.name), ("sub", &subject)].map(|(name, text)| (name.to_owned(), text.clone()));
    let others = claims.others.iter().map(|(name, text)| (name.clone(), text.clone()));
    let identity = named.into_iter().chain(others).collect();
    Ok(Grant { subject, until, paths, groups, identity })
}

/// The end of a token that is good now; one without an end is none.
fn lifetime(claims: &Claims, now: i64, leeway: u32) -> Result<i64, Refusal> {
    let until = claims.expires.ok_or(Refusal::Missing("end (exp)"))?;
    let leeway = i64::from(leeway);
    let over = until.saturating_add(leeway);
    if now >= over {
        return Err(Refusal::Expired { at: until });
    }
    match claims.not_before {
        Some(from) if now < from.saturating_sub(leeway) => Err(Refusal::NotYet { from }),
        _ => Ok(over),
    }
}

fn audience(claims: &Claims, issuer: &Issuer) -> Result<(), Refusal> {
    if claims.audience.is_empty() {
        return Err(Refusal::Missing("audience (aud)"));
    }
    let everybody = |found: &String| found == ANY_AUDIENCE || (found == ANY_SCITOKEN && claims.scitokens.is_some());
    let fits = |found: &String| issuer.audiences.contains(found) || (issuer.any_audience && everybody(found));
    if claims.audience.iter().any(fits) {
        return Ok(());
    }
    Err(Refusal::Audience { found: claims.audience.clone(), accepted: issuer.audiences.clone() })
}

/// Versions 1.x of the profile; tokens of other kinds have none.
fn profile(claims: &Claims) -> Result<(), Refusal> {
    let understood = |version: &&String| {
        let minor = version.strip_prefix("1.").unwrap_or_default();
        minor.is_empty() || !minor.bytes().all(|byte| byte.is_ascii_digit())
    };
    claims.wlcg.as_ref().filter(understood).map_or(Ok(()), |version| Err(Refusal::Profile(version.clone())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::Operation;

    const NOW: i64 = 1_800_000_000;

    fn issuer() -> Issuer {
        Issuer {
            name: "https://iam.example.org/".into(),
            audiences: vec!["https://dtn.example.org".into(), "gsiftp://dtn.example.org:2811".into()],
            any_audience: true,
            base: b"/vo".to_vec(),
            without_scopes: false,
        }
    }

    fn claims() -> Claims {
        Claims {
            issuer: Some(issuer().name),
            subject: Some("alice".into()),
            audience: vec!["https://other.example.org".into(), "https://dtn.example.org".into()],
            expires: Some(NOW + 600),
            not_before: Some(NOW - 60),
            scopes: vec!["openid".into(), "storage.read:/data".into()],
            wlcg: Some("1.0".into()),
            groups: vec!["/vo/users".into()],
            others: [("email".to_owned(), "alice@example.org".to_owned())].into(),
            ..Claims::default()
        }
    }

    fn judged(change: impl FnOnce(&mut Claims)) -> Result<Grant, Refusal> {
        let mut claims = claims();
        change(&mut claims);
        judge(&claims, &issuer(), NOW, LEEWAY)
    }

    #[test]
    fn a_good_token_gives_its_subject_rules_and_end() {
        let grant = judged(|_| {}).unwrap();
        assert_eq!((grant.subject.as_str(), grant.until), ("alice", NOW + 600 + i64::from(LEEWAY)));
        let paths = grant.paths.unwrap();
        assert!(paths.allows(b"/vo/data/x", Operation::Read) && !paths.allows(b"/data/x", Operation::Read));
        assert!(grant.groups.is_empty(), "scopes go before groups");
        let pair = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        let expected =
            [pair("iss", "https://iam.example.org/"), pair("sub", "alice"), pair("email", "alice@example.org")];
        assert_eq!(grant.identity, expected);
    }

    #[test]
    fn every_lack_is_named() {
        use Refusal::{Expired, Issuer as Other, Missing, NoScope, NotYet, Profile};
        assert_eq!(judged(|c| c.issuer = None), Err(Other));
        assert_eq!(judged(|c| c.issuer = Some("https://iam.example.org".into())), Err(Other));
        assert_eq!(judged(|c| c.subject = None), Err(Missing("subject (sub)")));
        assert_eq!(judged(|c| c.expires = None), Err(Missing("end (exp)")));
        assert_eq!(judged(|c| c.audience.clear()), Err(Missing("audience (aud)")));
        assert_eq!(judged(|c| c.expires = Some(NOW - 60)), Err(Expired { at: NOW - 60 }));
        assert!(judged(|c| c.expires = Some(NOW - 59)).is_ok());
        assert_eq!(judged(|c| c.expires = Some(i64::MIN)), Err(Expired { at: i64::MIN }));
        assert!(judged(|c| c.expires = Some(i64::MAX)).is_ok());
        assert_eq!(judged(|c| c.not_before = Some(NOW + 61)), Err(NotYet { from: NOW + 61 }));
        assert!(judged(|c| c.not_before = Some(NOW + 60)).is_ok());
        assert!(judged(|c| c.not_before = None).is_ok());
        assert_eq!(judged(|c| c.not_before = Some(i64::MAX)), Err(NotYet { from: i64::MAX }));
        for version in ["2.0", "1", "1.", "1.x", "10.0", "1.0.1"] {
            assert_eq!(judged(|c| c.wlcg = Some(version.into())), Err(Profile(version.into())));
        }
        assert!(judged(|c| c.wlcg = Some("1.12".into())).is_ok() && judged(|c| c.wlcg = None).is_ok());
        assert_eq!(judged(|c| c.scopes = vec!["openid".into()]), Err(NoScope));
        let no_path = judged(|c| c.scopes.push("storage.create".into())).unwrap_err();
        assert_eq!(no_path.to_string(), "the scope storage.create names no path");
    }

    #[test]
    fn a_token_is_for_this_server_or_for_all_if_that_is_accepted() {
        let audience = |audience: &str| judged(|c| c.audience = vec![audience.into()]);
        assert!(audience("gsiftp://dtn.example.org:2811").is_ok() && audience(ANY_AUDIENCE).is_ok());
        for other in
            ["https://dtn.example.org/", "HTTPS://dtn.example.org", "", "ANY", "https://wlcg.cern.ch/jwt/v1/any/"]
        {
            assert!(matches!(audience(other), Err(Refusal::Audience { .. })), "{other}");
        }
        let scitoken = |c: &mut Claims| {
            c.audience = vec!["ANY".into()];
            c.scitokens = Some("scitoken:2.0".into());
        };
        assert!(judged(scitoken).is_ok());
        let strict = Issuer { any_audience: false, ..issuer() };
        let claims = Claims { audience: vec![ANY_AUDIENCE.into()], ..claims() };
        let refused = judge(&claims, &strict, NOW, 0).unwrap_err().to_string();
        assert!(refused.contains(ANY_AUDIENCE) && refused.contains("https://dtn.example.org, gsiftp"), "{refused}");
    }

    #[test]
    fn without_scopes_for_files_a_token_says_who_somebody_is_and_of_which_groups() {
        let lenient = Issuer { without_scopes: true, ..issuer() };
        let claims = Claims { scopes: vec!["openid".into()], ..claims() };
        let grant = judge(&claims, &lenient, NOW, 0).unwrap();
        assert_eq!((grant.paths, grant.groups), (None, vec!["/vo/users".to_owned()]));
        let jobs = Claims { scopes: vec!["compute.read".into()], ..claims };
        let grant = judge(&jobs, &lenient, NOW, 0).unwrap();
        assert_eq!((grant.paths, grant.groups), (Some(PathRules::nothing()), vec![]));
    }
}

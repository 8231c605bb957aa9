//! Logins with bearer tokens: whose tokens, and for what.

use std::path::PathBuf;

use serde::Deserialize;
use whimbrel_engine::{Fault, FaultCode};
use whimbrel_proto::token::discovery;
use whimbrel_proto::token::judge::Issuer;

/// Most issuers: each has a set of keys in the front's memory.
const MOST_ISSUERS: usize = 64;

/// Tokens (JWT) that log in over TLS in the place of a password.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TokensConfig {
    /// Names of this server of which a token has to name one (`aud`), such as `https://dtn.example.org`.
    pub audience: Vec<String>,
    /// PEM file of the authorities that vouch for issuers' hosts. Default: those of the system.
    pub authorities: Option<PathBuf>,
    /// Whose tokens are accepted.
    pub issuer: Vec<IssuerConfig>,
}

/// An issuer whose tokens are accepted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IssuerConfig {
    /// The exact text of `iss`: an `https` URL below which the issuer describes itself.
    pub url: String,
    /// PEM file of the authorities that vouch for its host. Default: those of `[tokens]`.
    pub authorities: Option<PathBuf>,
    /// Names of this server for this issuer. Default: those of `[tokens]`.
    pub audience: Vec<String>,
    /// Take tokens for everybody, too. Default: no.
    pub any_audience: bool,
    /// Directory where the paths of scopes count from, as clients see it. Default: `/`.
    pub path: Option<String>,
    /// Take tokens without scopes for files as a proof of who somebody is; they limit nothing. Default: no.
    pub without_scopes: bool,
    /// Accounts of everybody with such a token, the first is the usual one. Default: those that `mapping` gives.
    pub accounts: Vec<String>,
}

impl TokensConfig {
    /// Checks all issuers.
    ///
    /// # Errors
    /// `InvalidArgument`, naming the first that cannot be used and what to write.
    pub fn issuers(&self) -> Result<Vec<Issuer>, Fault> {
        if self.issuer.is_empty() || self.issuer.len() > MOST_ISSUERS {
            return Err(bad("tokens", format!("[[tokens.issuer]] is there 1 to {MOST_ISSUERS} times")));
        }
        let twice = |one: &&IssuerConfig| self.issuer.iter().filter(|other| other.url == one.url).count() > 1;
        if let Some(again) = self.issuer.iter().find(twice) {
            return Err(bad(&again.url, "this issuer is there twice".to_owned()));
        }
        self.issuer.iter().map(|issuer| self.checked(issuer)).collect()
    }

    fn checked(&self, issuer: &IssuerConfig) -> Result<Issuer, Fault> {
        let IssuerConfig { url, audience, any_audience, path, without_scopes, .. } = issuer;
        let wrong = |detail: &str| Err(bad(url, detail.to_owned()));
        if discovery::places(url).is_empty() {
            return wrong("url is the issuer's name as tokens have it, an https URL");
        }
        let audiences = if audience.is_empty() { self.audience.clone() } else { audience.clone() };
        if audiences.is_empty() && !any_audience {
            return wrong(
                "without an audience every token would be refused: audience = [\"https://NAME-OF-THIS-SERVER\"]",
            );
        }
        let base = path.as_deref().unwrap_or("/").trim_end_matches('/');
        let normal = base.is_empty() || base.starts_with('/');
        if !normal || base.split('/').skip(1).any(|name| matches!(name, "" | "." | "..")) || base.contains('\0') {
            return wrong("path is absolute, without `.`, `..` and empty names");
        }
        Ok(Issuer {
            name: url.clone(),
            audiences,
            any_audience: *any_audience,
            base: base.as_bytes().to_vec(),
            without_scopes: *without_scopes,
        })
    }
}

fn bad(subject: &str, detail: String) -> Fault {
    Fault::new(FaultCode::InvalidArgument, "configure").subject(subject).detail(detail)
}

#[cfg(test)]
mod tests {
    use super::super::DtnConfig;
    use super::*;

    fn read(text: &str) -> Result<Vec<Issuer>, Fault> {
        DtnConfig::parse(&format!("[tokens]\n{text}"))?.tokens.expect("it is there").issuers()
    }

    #[test]
    fn an_issuer_has_what_it_needs_or_the_cure_is_told() {
        let good = "audience = [\"https://dtn\"]\n[[tokens.issuer]]\nurl = \"https://iam/\"\npath = \"/vo/\"\n";
        let issuers = read(good).unwrap();
        assert_eq!((issuers[0].name.as_str(), &issuers[0].base[..]), ("https://iam/", &b"/vo"[..]));
        assert_eq!(issuers[0].audiences, ["https://dtn"]);
        assert_eq!(read(&good.replace("path = \"/vo/\"", "")).unwrap()[0].base, b"");
        let own = "[[tokens.issuer]]\nurl = \"https://iam/\"\naudience = [\"x\"]\n";
        assert_eq!(read(own).unwrap()[0].audiences, ["x"]);
        for (wrong, word) in [
            ("", "[[tokens.issuer]]"),
            ("[[tokens.issuer]]\nurl = \"https://iam/\"\n", "audience = "),
            (&good.replace("https://iam", "http://iam"), "https URL"),
            (&good.replace("/vo/", "vo"), "absolute"),
            (&good.replace("/vo/", "/a/../b"), "absolute"),
            (&format!("{good}[[tokens.issuer]]\nurl = \"https://iam/\""), "twice"),
            (&good.replace("path", "pahts"), "pahts"),
        ] {
            let fault = read(wrong).unwrap_err();
            assert!(fault.detail.contains(word), "{wrong}: {fault}");
        }
    }
}

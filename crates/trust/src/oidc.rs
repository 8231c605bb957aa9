//! Judges id tokens of an OpenID provider for a program that lets its people in (OpenID Connect Core 1.0 §3.1.3.7).

use std::collections::BTreeMap;

use openssl::memcmp;
use whimbrel_engine::fault::FaultCode;
use whimbrel_proto::token::judge::Issuer;

use crate::TrustFault;
use crate::token::{TokenJudge, Verdict};

/// What became of an id token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum IdVerdict {
    /// It is good.
    Person(Person),
    /// It is not, and newer keys would not help.
    Refused(TrustFault),
    /// The provider's keys have to be fetched first, if [`IdTokenJudge::began`] says so; then [`IdTokenJudge::install`], and judge again.
    KeysNeeded,
}

/// Who logged in at the provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// The provider's name for them (`sub`), which is never another's.
    pub subject: String,
    /// Every claim that is a text, by name.
    pub claims: BTreeMap<String, String>,
}

/// The keys of one provider, and for whom its tokens have to be.
#[derive(Debug)]
pub struct IdTokenJudge {
    tokens: TokenJudge,
    client: String,
}

impl IdTokenJudge {
    /// Of a provider, for the client that is registered there.
    pub fn new(issuer: &str, client: &str) -> Self {
        let issuer = Issuer {
            name: issuer.to_owned(),
            audiences: vec![client.to_owned()],
            any_audience: false,
            base: Vec::new(),
            without_scopes: true,
        };
        Self { tokens: TokenJudge::new([issuer]), client: client.to_owned() }
    }

    /// Judges a token that answers the login with `nonce`, at `now` in seconds since 1970.
    pub fn judge(&self, token: &[u8], nonce: &str, now: i64) -> IdVerdict {
        let grant = match self.tokens.judge(token, now) {
            Verdict::Granted { grant, .. } => grant,
            Verdict::Refused(fault) => return IdVerdict::Refused(fault),
            Verdict::KeysNeeded { .. } => return IdVerdict::KeysNeeded,
        };
        let claims: BTreeMap<_, _> = grant.identity.into_iter().collect();
        let answered = claims.get("nonce").map_or("", String::as_str);
        if answered.len() != nonce.len() || !memcmp::eq(answered.as_bytes(), nonce.as_bytes()) {
            return refused("it answers another login (nonce)");
        }
        if claims.get("azp").is_some_and(|party| *party != self.client) {
            return refused("it was made for another program (azp)");
        }
        IdVerdict::Person(Person { subject: grant.subject, claims })
    }

    /// Notes that the caller is about to fetch the keys; `false` if somebody does already.
    pub fn began(&mut self, now: i64) -> bool {
        self.tokens.began(0, now)
    }

    /// Takes the provider's keys.
    ///
    /// # Errors
    /// `CredentialRejected`: none of them can be used; the keys before stay.
    pub fn install(&mut self, jwks: &[u8], now: i64) -> Result<(), TrustFault> {
        self.tokens.install(0, jwks, now).map(drop)
    }

    /// Notes that the keys could not be fetched.
    pub fn failed(&mut self, now: i64) {
        self.tokens.failed(0, now);
    }
}

fn refused(why: &str) -> IdVerdict {
    IdVerdict::Refused(TrustFault::new(FaultCode::CredentialRejected, why))
}

//! What the issuer keeps.

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use whimbrel_engine::listing::Timestamp;

use super::secrets::digest;
use crate::store::Record;

/// Somebody: a person, or a client in its own name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Its id; that of the client, for a client's own.
    pub id: Uuid,
    /// A name with a domain, in lower case: `ada@example.org`.
    pub username: String,
    /// What people call it.
    pub name: String,
    /// Where to write to.
    pub email: Option<String>,
    /// Whom it belongs to.
    pub organization: Option<String>,
    /// Hash (argon2id) of a password; `None`: no login with one.
    pub password: Option<String>,
    /// Administers the whole service.
    pub admin: bool,
    /// Lets nobody in as it any more.
    pub disabled: bool,
    /// Since when it is known.
    pub created: Timestamp,
    /// Whom another provider knows them as; `None`: an identity of ours, or one that nobody has logged in as yet.
    #[serde(default)]
    pub elsewhere: Option<Elsewhere>,
}

/// Somebody's name at another provider of identities.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Elsewhere {
    /// The provider.
    pub issuer: String,
    /// Its name for them, which is never another's.
    pub subject: String,
}

impl Elsewhere {
    /// The value of the key `elsewhere`.
    pub fn key(&self) -> String {
        digest(&format!("{}\n{}", self.issuer, self.subject))
    }
}

/// A login that goes on at another provider; good once, for minutes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Departure {
    /// SHA-256 of the `state` that the browser carries, hexadecimal.
    pub hash: String,
    /// What the client that asked for the login asked for, as its query had it.
    pub asked: String,
    /// What the id token has to hold.
    pub nonce: String,
    /// PKCE verifier for the provider's code (RFC 7636).
    pub verifier: String,
    /// When it ends.
    pub expires: Timestamp,
}

impl Record for Departure {
    const KIND: &'static str = "departure";

    fn id(&self) -> String {
        self.hash.clone()
    }

    fn keys(&self) -> Vec<(&'static str, String)> {
        vec![("hour", hour(self.expires))]
    }
}

impl Record for Identity {
    const KIND: &'static str = "identity";

    fn id(&self) -> String {
        self.id.to_string()
    }

    fn unique_keys(&self) -> Vec<(&'static str, String)> {
        let elsewhere = self.elsewhere.iter().map(|elsewhere| ("elsewhere", elsewhere.key()));
        std::iter::once(("username", self.username.clone())).chain(elsewhere).collect()
    }
}

/// What a client is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A program of users.
    Program,
    /// An orchestrator: may ask for the scope to carry out tasks, and for nothing else.
    Orchestrator,
    /// A program that collects metrics: may ask for the scope of those, and for nothing else.
    Monitor,
}

/// A program that asks for tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    /// Its id.
    pub id: Uuid,
    /// What people call it.
    pub name: String,
    /// SHA-256 of its secret, hexadecimal; `None`: a public client, which has none. Secrets are made here and random.
    pub secret: Option<String>,
    /// Where browsers may be sent with codes, exactly; of a loopback address the port does not count (RFC 8252 §7.3).
    pub redirects: Vec<String>,
    /// What it is for.
    pub role: Role,
    /// May log users in.
    pub logins: bool,
    /// Made from the template, which anybody may ask for; `None`: before this was noted.
    #[serde(default)]
    pub template: Option<bool>,
    /// Since when it is known.
    pub created: Timestamp,
}

impl Client {
    /// Whether it may act in the name of an identity, if that lets it: in its own only if not anybody on the network may have made it.
    /// Asked wherever a client acts, as identities and tokens of their own have been given to such.
    pub fn acts_for(&self, identity: Uuid) -> bool {
        identity != self.id || !self.is_for_logins_only()
    }

    fn is_for_logins_only(&self) -> bool {
        // The place that shows codes begins with the service's URL, which may have been another one then.
        let like_the_template = || match self.redirects.as_slice() {
            [shown, local] => shown.ends_with(CODE_PAGE_PATH) && local == LOOPBACK && self.role == Role::Program,
            _ => false,
        };
        self.template.unwrap_or_else(like_the_template)
    }
}

/// Path of the page that shows codes.
pub(super) const CODE_PAGE_PATH: &str = "/v2/web/auth-code";
/// Where programs on users' machines listen for codes.
pub(super) const LOOPBACK: &str = "http://localhost";

impl Record for Client {
    const KIND: &'static str = "client";

    fn id(&self) -> String {
        self.id.to_string()
    }
}

/// What a token may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenKind {
    /// Be shown to a resource server.
    Access,
    /// Be turned into access tokens.
    Refresh,
}

/// A token that was given out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// SHA-256 of its text, hexadecimal.
    pub hash: String,
    /// What it may do.
    pub kind: TokenKind,
    /// To whom it was given.
    pub client: Uuid,
    /// In whose name.
    pub identity: Uuid,
    /// For whom.
    pub resource_server: String,
    /// What for: root scopes.
    pub scopes: Vec<String>,
    /// The login (or request) it comes from; all of one are revoked together.
    pub grant: Uuid,
    /// When it was given out.
    pub issued: Timestamp,
    /// When it ends.
    pub expires: Timestamp,
    /// When somebody typed a password for it; `None`: a client's own.
    #[serde(default)]
    pub authenticated: Option<Timestamp>,
}

impl Record for Token {
    const KIND: &'static str = "token";

    fn id(&self) -> String {
        self.hash.clone()
    }

    fn keys(&self) -> Vec<(&'static str, String)> {
        vec![
            ("grant", self.grant.to_string()),
            ("identity", self.identity.to_string()),
            ("client", self.client.to_string()),
            // The hour in which it may be forgotten.
            ("hour", hour(self.expires)),
        ]
    }
}

/// The hour of a time, as a key.
pub fn hour(time: Timestamp) -> String {
    time.secs.div_euclid(3600).to_string()
}

/// A code that a browser carries from the login page to the client; good once, for minutes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Code {
    /// SHA-256 of its text, hexadecimal.
    pub hash: String,
    /// To whom it was given.
    pub client: Uuid,
    /// Who logged in.
    pub identity: Uuid,
    /// Where the browser was sent.
    pub redirect: String,
    /// Scopes as they were asked for.
    pub scope: String,
    /// PKCE challenge (S256, RFC 7636).
    pub challenge: Option<String>,
    /// Goes into the id token.
    pub nonce: Option<String>,
    /// Whether refresh tokens were asked for.
    pub offline: bool,
    /// When it ends.
    pub expires: Timestamp,
}

impl Record for Code {
    const KIND: &'static str = "code";

    fn id(&self) -> String {
        self.hash.clone()
    }

    fn keys(&self) -> Vec<(&'static str, String)> {
        vec![("hour", hour(self.expires))]
    }
}

/// What an identity lets a client do: scopes, each with all above it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Consent {
    /// Who consented.
    pub identity: Uuid,
    /// For whom.
    pub client: Uuid,
    /// To what: paths of scopes, a root first.
    pub paths: Vec<Vec<String>>,
    /// When first.
    pub created: Timestamp,
    /// When something was added last.
    pub updated: Timestamp,
}

impl Consent {
    /// The id of a record.
    pub fn id_of(identity: Uuid, client: Uuid) -> String {
        format!("{identity}:{client}")
    }
}

impl Record for Consent {
    const KIND: &'static str = "consent";

    fn id(&self) -> String {
        Self::id_of(self.identity, self.client)
    }

    fn keys(&self) -> Vec<(&'static str, String)> {
        vec![("identity", self.identity.to_string()), ("client", self.client.to_string())]
    }
}

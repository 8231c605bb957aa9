//! What an orchestrator is given to do.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Lease;
use crate::listing::path_text;
use crate::task::{DeleteOptions, ExternalChecksum, TransferOptions};

/// A task for an orchestrator.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Assignment {
    /// The right to it.
    pub lease: Lease,
    /// What is to be done.
    pub work: Work,
    /// Where from, or where is deleted.
    pub source: Site,
    /// Where to; `None` for deletions.
    pub destination: Option<Site>,
    /// Servers that join data connections of others, the best one first, where neither end takes connections.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relays: Vec<Site>,
    /// What the task is called, for servers' logs and their administrators' rules; empty: nothing.
    pub label: String,
    /// Most sessions at once that this task may have; `None`: what is chosen by measurement.
    pub max_concurrency: Option<u32>,
    /// Most bytes per second besides what the work says itself; `None`: no bound.
    pub max_rate: Option<u64>,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "work", rename_all = "snake_case")]
pub enum Work {
    /// Files are copied.
    Transfer(Box<TransferOptions>),
    /// Files are deleted.
    Delete(DeleteOptions),
}

/// One thing that the user named. Paths are those of servers, not of collections.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkItem {
    /// Its number in the submission, from 1.
    pub number: u64,
    /// Where it is.
    #[serde(with = "path_text")]
    pub source: Vec<u8>,
    /// The copy's own path; empty for deletions.
    #[serde(with = "path_text")]
    pub destination: Vec<u8>,
    /// Whether it must be a directory (`true`) or a file (`false`); `None`: whichever it is.
    pub recursive: Option<bool>,
    /// A symbolic link is made again, whatever it points to.
    pub symlink: bool,
    /// What the file must be.
    pub checksum: Option<ExternalChecksum>,
}

/// A collection as an orchestrator reaches it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Site {
    /// The collection.
    pub collection: Uuid,
    /// Its servers; never none.
    pub servers: Vec<Server>,
    /// What opens them.
    pub credential: Credential,
    /// The collection's root at the servers, without a slash at its end; reports name paths with it.
    pub base: String,
    /// The account that the user chose; `None`: what the server maps the credential to.
    pub local_user: Option<String>,
}

/// One server of a site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    /// As a client would name it: `whimbrel://host:port`, `gsiftp://host`, `ftp://host`.
    pub url: String,
    /// SHA-256 of its certificate's public key, when the server told the service itself; it takes the place of authorities.
    pub pin: Option<String>,
    /// Its number, when it takes no connections: the service has some that it made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rendezvous: Option<Uuid>,
}

impl Server {
    /// One that takes connections.
    pub fn at(url: impl Into<String>, pin: Option<String>) -> Self {
        Self { url: url.into(), pin, rendezvous: None }
    }
}

/// What opens a server; never printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "credential", rename_all = "snake_case")]
pub enum Credential {
    /// Nothing: servers that anybody may use.
    None,
    /// An access token over TLS, short-lived and for this site only.
    Token {
        /// The token.
        token: String,
    },
    /// A proxy certificate for GSI: certificate, key and chain.
    Proxy {
        /// PEM text.
        pem: String,
    },
    /// A name with a password.
    Password {
        /// The name.
        user: String,
        /// The password.
        password: String,
    },
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Token { .. } => "Token(..)",
            Self::Proxy { .. } => "Proxy(..)",
            Self::Password { .. } => "Password(..)",
        })
    }
}

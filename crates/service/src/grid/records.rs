//! What is kept of users' proxies.

use serde::{Deserialize, Serialize};
use uuid::Uuid;
use whimbrel_engine::listing::Timestamp;

use crate::store::{Record, time_key};

/// A proxy that somebody has registered for an endpoint.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GridCredential {
    /// The endpoint.
    pub endpoint: Uuid,
    /// Whose.
    pub identity: Uuid,
    /// Tells it from the one before.
    pub serial: Uuid,
    /// Whom it speaks for at the servers: a certificate's subject.
    pub subject: String,
    /// What it is, for people.
    pub kind: String,
    /// Since when it is here.
    pub registered: Timestamp,
    /// Its end.
    pub until: Timestamp,
    /// Certificate, key and chain, sealed by the store.
    pub sealed: Vec<u8>,
}

/// A key for which somebody is asked to sign a proxy.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CredentialRequest {
    /// The endpoint.
    pub endpoint: Uuid,
    /// Who is asked.
    pub identity: Uuid,
    /// Until when an answer is awaited.
    pub until: Timestamp,
    /// The key, sealed by the store.
    pub sealed: Vec<u8>,
}

/// Somebody at an endpoint.
pub(super) fn whose(endpoint: Uuid, identity: Uuid) -> String {
    format!("{endpoint}|{identity}")
}

impl Record for GridCredential {
    const KIND: &'static str = "grid_credential";

    fn id(&self) -> String {
        whose(self.endpoint, self.identity)
    }

    fn keys(&self) -> Vec<(&'static str, String)> {
        vec![("endpoint", self.endpoint.to_string()), ("ends", time_key(self.until))]
    }
}

impl Record for CredentialRequest {
    const KIND: &'static str = "grid_credential_request";

    fn id(&self) -> String {
        whose(self.endpoint, self.identity)
    }

    fn keys(&self) -> Vec<(&'static str, String)> {
        vec![("ends", time_key(self.until))]
    }
}

impl std::fmt::Debug for GridCredential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { endpoint, identity, subject, until, .. } = self;
        write!(f, "GridCredential({subject:?} of {identity} at {endpoint} until {until:?})")
    }
}

impl std::fmt::Debug for CredentialRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CredentialRequest({} at {})", self.identity, self.endpoint)
    }
}

//! What goes wrong with the store.

use std::time::Duration;

use whimbrel_engine::Fault;
use whimbrel_engine::fault::{FaultCode, Retry, Side};

/// Why the store did not do what was asked. Nothing of it was done then.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Somebody else was there first: read again and decide again. Says what.
    #[error("changed in the meantime: {0}")]
    Conflict(String),
    /// The database cannot be reached or is overloaded; says why.
    #[error("the database is not available: {0}")]
    Unavailable(String),
    /// The database does not let us in, or is not where it should be; says why.
    #[error("the database cannot be used: {0}")]
    Refused(String),
    /// A newer program has changed the database.
    #[error("the database has version {found}, this program knows {known}: use a newer program, or restore a backup")]
    NewerSchema {
        /// Its version.
        found: i64,
        /// The newest that this program knows.
        known: i64,
    },
    /// What stands in the database cannot be; says what.
    #[error("the database is damaged: {0}")]
    Corrupt(String),
    /// No room for more; says where.
    #[error("the database has no room: {0}")]
    Full(String),
    /// What was to be stored cannot be; says why.
    #[error("cannot be stored: {0}")]
    Invalid(String),
    /// A secret was to be kept or read, and no key is there.
    #[error("no key for secrets: name a file that holds it")]
    NoKey,
    /// Secrets were sealed with another key, or altered.
    #[error("secrets cannot be read: {0}")]
    WrongKey(String),
    /// Two transactions got into each other's way; tried again here, never told.
    #[doc(hidden)]
    #[error("transactions in each other's way: {0}")]
    Again(String),
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        let temporary = Retry::Temporary { after: Duration::from_secs(1) };
        let (code, retry) = match &error {
            StoreError::Conflict(_) | StoreError::Again(_) => (FaultCode::StorageBusy, temporary),
            StoreError::Unavailable(_) => (FaultCode::ServerBusy, temporary),
            StoreError::Full(_) => (FaultCode::NoSpace, temporary),
            StoreError::Refused(_) => (FaultCode::PermissionDenied, Retry::Permanent),
            StoreError::NewerSchema { .. } => (FaultCode::NotSupported, Retry::Permanent),
            StoreError::Corrupt(_) => (FaultCode::StorageIo, Retry::Permanent),
            StoreError::Invalid(_) => (FaultCode::InvalidArgument, Retry::Permanent),
            StoreError::NoKey => (FaultCode::CredentialMissing, Retry::Permanent),
            StoreError::WrongKey(_) => (FaultCode::CredentialRejected, Retry::Permanent),
        };
        Self::new(code, "store").retry(retry).side(Side::Service).detail(error.to_string())
    }
}

impl From<serde_json::Error> for StoreError {
    fn from(error: serde_json::Error) -> Self {
        Self::Corrupt(error.to_string())
    }
}

/// What an error of the driver means; `meaning` knows the database's own codes.
pub(super) fn from_driver(error: sqlx::Error, meaning: impl Fn(&str, String) -> Option<StoreError>) -> StoreError {
    let text = error.to_string();
    match &error {
        sqlx::Error::Database(database) => database
            .code()
            .and_then(|code| meaning(&code, text.clone()))
            .unwrap_or_else(|| StoreError::Corrupt(format!("a statement failed: {text}"))),
        sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed => {
            StoreError::Unavailable(text)
        }
        sqlx::Error::Tls(_) | sqlx::Error::Configuration(_) => StoreError::Refused(text),
        _ => StoreError::Corrupt(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_say_whether_another_attempt_helps() {
        for (error, temporary) in [
            (StoreError::Unavailable("x".into()), true),
            (StoreError::Conflict("x".into()), true),
            (StoreError::Full("x".into()), true),
            (StoreError::NewerSchema { found: 9, known: 1 }, false),
            (StoreError::Corrupt("x".into()), false),
            (StoreError::NoKey, false),
        ] {
            let fault = Fault::from(error.clone());
            assert_eq!(fault.is_temporary(), temporary, "{error}");
            assert_eq!(fault.side, Some(Side::Service));
        }
    }
}

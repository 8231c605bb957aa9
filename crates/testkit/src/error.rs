//! The one error of this crate: what was attempted, and what the system said.

use std::io;

/// The result of a laboratory operation.
pub type Result<T> = std::result::Result<T, Error>;

/// An operation of the laboratory that failed.
#[derive(Debug, thiserror::Error)]
#[error("{attempt}: {source}")]
pub struct Error {
    attempt: String,
    source: io::Error,
}

impl Error {
    /// An error without a system error behind it: `attempt` says what was tried, `reason` what was wrong.
    pub(crate) fn new(attempt: impl Into<String>, reason: impl Into<String>) -> Error {
        Error { attempt: attempt.into(), source: io::Error::other(reason.into()) }
    }
}

/// Adds to a system error what was being attempted.
pub(crate) trait Attempt<T> {
    fn attempt(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<io::Error>> Attempt<T> for std::result::Result<T, E> {
    fn attempt(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Error { attempt: what(), source: error.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_the_attempt_before_the_cause() {
        let failed: io::Result<()> = Err(io::Error::other("no room"));
        let error = failed.attempt(|| "mounting".into()).expect_err("failed");
        assert_eq!(error.to_string(), "mounting: no room");
        assert_eq!(Error::new("linking", "unknown host").to_string(), "linking: unknown host");
    }
}

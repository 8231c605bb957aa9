//! What a connection remembers between commands.

use super::config::ServerConfig;

/// State of one login; REIN makes a fresh one.
#[derive(Debug)]
pub(super) struct Session {
    /// Where the login stands.
    pub(super) phase: Phase,
    /// Failed logins so far.
    pub(super) failures: u32,
    /// Working directory, absolute.
    pub(super) cwd: Vec<u8>,
}

/// Where the login stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nobody.
    Fresh,
    /// USER was given, PASS is awaited.
    Named(Vec<u8>),
    /// Logged in.
    In(Account),
}

/// Who is logged in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Account {
    /// Local user name.
    pub(super) user: String,
    /// Home directory, absolute.
    pub(super) home: Vec<u8>,
}

impl Session {
    pub(super) fn new(_config: &ServerConfig) -> Self {
        Self {
            phase: Phase::Fresh,
            failures: 0,
            cwd: b"/".to_vec(),
        }
    }

    /// True after a successful login.
    pub(super) fn is_logged_in(&self) -> bool {
        matches!(self.phase, Phase::In(_))
    }
}

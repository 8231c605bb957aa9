//! The end of a run: totals, failures, exit code.

use serde::{Deserialize, Serialize};

use crate::fault::{Fault, FaultCode, Side};
use crate::listing::path_text;
use crate::plan::ItemId;

/// One failed item, with what a person needs to act.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Failure {
    /// The item.
    pub item: ItemId,
    /// Its source path.
    #[serde(with = "path_text")]
    pub source: Vec<u8>,
    /// Its destination path.
    #[serde(with = "path_text")]
    pub destination: Vec<u8>,
    /// What went wrong.
    pub fault: Fault,
    /// The usual reason.
    pub cause: String,
    /// What to do.
    pub cure: String,
}

/// What a run came to.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Summary {
    /// Seconds from start to end.
    pub elapsed: f64,
    /// Files copied.
    pub files: u64,
    /// Bytes of them, each counted once.
    pub bytes: u64,
    /// Bytes per second over the whole run.
    pub rate: f64,
    /// Directories made.
    pub directories: u64,
    /// Symbolic links made.
    pub symlinks: u64,
    /// Items left as they were.
    pub skipped: u64,
    /// Items failed.
    pub failed: u64,
    /// Files proven.
    pub verified: u64,
    /// Files that could not be proven.
    pub unverified: u64,
    /// Fault events, cured ones included.
    pub faults: u64,
    /// Attempts repeated.
    pub retries: u64,
    /// Bytes moved that did not count.
    pub bytes_wasted: u64,
    /// Whether the user ended it.
    pub cancelled: bool,
    /// The failed items, the first thousand.
    pub failures: Vec<Failure>,
    /// Failed items beyond those listed.
    pub failures_not_listed: u64,
    /// The exit code of the command.
    pub exit_code: u8,
}

/// The exit codes of every command; stable, below 126 so that shells keep them apart from signals.
pub mod exit {
    /// Everything asked for is done.
    pub const OK: u8 = 0;
    /// Some items failed, or they failed for different reasons.
    pub const SOME_FAILED: u8 = 1;
    /// The command line is wrong.
    pub const USAGE: u8 = 2;
    /// The source is to blame.
    pub const SOURCE: u8 = 3;
    /// The destination is to blame.
    pub const DESTINATION: u8 = 4;
    /// The network or the program at the other end is to blame.
    pub const NETWORK_OR_PEER: u8 = 5;
    /// The credentials were not accepted.
    pub const CREDENTIALS: u8 = 6;
    /// The transfer service cannot be reached.
    pub const SERVICE: u8 = 7;
    /// A deadline passed or a limit was hit.
    pub const LIMIT: u8 = 8;
    /// Cancelled (128 + SIGINT, as shells have it).
    pub const CANCELLED: u8 = 130;
}

/// The exit code for one fault that ended everything.
pub fn exit_code_for(fault: &Fault) -> u8 {
    match (fault.code, fault.side) {
        (FaultCode::Cancelled, _) => exit::CANCELLED,
        (
            FaultCode::LoginFailed | FaultCode::CredentialExpired | FaultCode::NotLoggedIn | FaultCode::TooManyAttempts,
            _,
        ) => exit::CREDENTIALS,
        (_, Some(Side::Source)) => exit::SOURCE,
        (_, Some(Side::Destination)) => exit::DESTINATION,
        (_, Some(Side::Network | Side::Peer)) => exit::NETWORK_OR_PEER,
        (_, Some(Side::Service)) => exit::SERVICE,
        (_, Some(Side::Us) | None) => exit::SOME_FAILED,
    }
}

//! The end of a run: totals, failures, exit code.
//!
//! The exit code is 0 when nothing failed, 130 when the run was cancelled. When something failed and
//! nothing succeeded and all failures have the same code (that of their side, or 6 for credentials),
//! it is that code; otherwise 1. Made directories do not count as success, files left as they were do.

use serde::{Deserialize, Serialize};

use crate::fault::{Fault, FaultCode, Side};
use crate::listing::path_text;
use crate::plan::{Item, ItemId};
use crate::progress::Snapshot;

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

impl Failure {
    /// A failure of `item` with the explanation of its code.
    pub fn new(item: &Item, fault: Fault) -> Self {
        let explained = fault.code.explain();
        Self {
            item: item.id,
            source: item.source.clone(),
            destination: item.destination.clone(),
            cause: explained.cause.into(),
            cure: explained.cure.into(),
            fault,
        }
    }
}

/// The failures of a run: the first ones in full, the others counted.
#[derive(Debug, Clone, Default)]
pub struct Failures {
    listed: Vec<Failure>,
    count: u64,
    exit: Option<u8>,
}

impl Failures {
    /// Most failures kept in full.
    pub const LISTED: usize = 1000;

    /// Adds one.
    pub fn add(&mut self, failure: &Failure) {
        // A cancelled run has its code whatever failed; in any other, an item that was cancelled is one that failed.
        let exit = match failure.fault.code {
            FaultCode::Cancelled => exit_code_of_side(&failure.fault),
            _ => exit_code_for(&failure.fault),
        };
        self.exit = match self.exit {
            Some(other) if other != exit => Some(exit::SOME_FAILED),
            _ => Some(exit),
        };
        self.count += 1;
        if self.listed.len() < Self::LISTED {
            self.listed.push(failure.clone());
        }
    }
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
    /// Bytes per second over the whole run, of those that it moved itself.
    pub rate: f64,
    /// Directories made.
    pub directories: u64,
    /// Symbolic links made.
    pub symlinks: u64,
    /// Items left as they were.
    pub skipped: u64,
    /// Items failed.
    pub failed: u64,
    /// Items that the cancellation left undone, of those listed until then.
    pub not_done: u64,
    /// Files proven.
    pub verified: u64,
    /// Files of `verified` that the destination read back from its storage, not from memory (`--verify=disk`).
    #[serde(default)]
    pub read_from_disk: u64,
    /// Files that could not be proven.
    pub unverified: u64,
    /// Fault events, cured ones included.
    pub faults: u64,
    /// Attempts repeated.
    pub retries: u64,
    /// Bytes moved that did not count.
    pub bytes_wasted: u64,
    /// Bytes that earlier runs had brought.
    #[serde(default)]
    pub bytes_resumed: u64,
    /// Bytes of holes in the sources that are holes in the copies; part of `bytes`, never moved.
    #[serde(default)]
    pub bytes_holes: u64,
    /// Bytes of holes in the sources that were moved as zeros, because an end cannot keep them.
    #[serde(default)]
    pub bytes_filled: u64,
    /// Parts of files that differed from the source and were sent again.
    #[serde(default)]
    pub leaves_resent: u64,
    /// Files that were still being written when a followed directory was watched no more (`--follow`).
    #[serde(default)]
    pub unfinished: u64,
    /// Whether the user ended it.
    pub cancelled: bool,
    /// The failed items, the first thousand.
    pub failures: Vec<Failure>,
    /// Failed items beyond those listed.
    pub failures_not_listed: u64,
    /// The exit code of the command.
    pub exit_code: u8,
}

impl Summary {
    /// The summary of a run from its last numbers.
    pub fn new(last: Snapshot, failures: &Failures, cancelled: bool) -> Self {
        let succeeded = last.files_done + last.symlinks_done + last.skipped > 0;
        let exit_code = match failures.exit {
            _ if cancelled => exit::CANCELLED,
            None => exit::OK,
            Some(_) if succeeded => exit::SOME_FAILED,
            Some(code) => code,
        };
        // What is not there, or was there before, takes no time.
        let moved = last.bytes_done.saturating_sub(last.bytes_holes).saturating_sub(last.bytes_resumed);
        let rate = moved as f64 / last.elapsed;
        Self {
            elapsed: last.elapsed,
            files: last.files_done,
            bytes: last.bytes_done,
            rate: if rate.is_finite() { rate } else { 0.0 },
            directories: last.directories_done,
            symlinks: last.symlinks_done,
            skipped: last.skipped,
            failed: last.failed,
            not_done: last.cancelled,
            verified: last.verified,
            read_from_disk: last.read_from_disk,
            unverified: last.unverified,
            faults: last.faults,
            retries: last.retries,
            bytes_wasted: last.bytes_wasted,
            bytes_resumed: last.bytes_resumed,
            bytes_holes: last.bytes_holes,
            bytes_filled: last.bytes_filled,
            leaves_resent: last.leaves_resent,
            unfinished: 0,
            cancelled,
            failures: failures.listed.clone(),
            failures_not_listed: failures.count - failures.listed.len() as u64,
            exit_code,
        }
    }
}

/// The exit codes of every command; stable, below 126 so that shells keep them apart from signals.
pub mod exit {
    /// Everything asked for is done.
    pub const OK: u8 = 0;
    /// Some items failed, or they failed for different reasons; or everything is done, and what was to be printed was lost.
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

    /// Every code with its meaning, for manual pages and `--help`.
    pub const TABLE: &[(u8, &str)] = &[
        (OK, "everything asked for is done"),
        (SOME_FAILED, "some items failed"),
        (USAGE, "the command line is wrong"),
        (SOURCE, "nothing could be done because of the source"),
        (DESTINATION, "nothing could be done because of the destination"),
        (NETWORK_OR_PEER, "nothing could be done because of the network or the program at the other end"),
        (CREDENTIALS, "the credentials were not accepted"),
        (SERVICE, "the transfer service cannot be reached"),
        (LIMIT, "a deadline passed or a limit was hit"),
        (CANCELLED, "cancelled"),
    ];
}

/// The exit code for one fault that ended everything.
pub fn exit_code_for(fault: &Fault) -> u8 {
    match fault.code {
        FaultCode::Cancelled => return exit::CANCELLED,
        FaultCode::LoginFailed | FaultCode::LoginInClear => return exit::CREDENTIALS,
        FaultCode::NotLoggedIn | FaultCode::NotAuthorized => return exit::CREDENTIALS,
        // Whether it is the right host after all, the user has to find out.
        FaultCode::PeerIdentity => return exit::CREDENTIALS,
        // Those of the other side are not for the user to renew.
        FaultCode::CredentialExpired | FaultCode::CredentialMissing | FaultCode::CredentialRejected
            if fault.side != Some(Side::Peer) =>
        {
            return exit::CREDENTIALS;
        }
        FaultCode::TooManyAttempts => return exit::LIMIT,
        _ => {}
    }
    exit_code_of_side(fault)
}

fn exit_code_of_side(fault: &Fault) -> u8 {
    match fault.side {
        Some(Side::Source) => exit::SOURCE,
        Some(Side::Destination) => exit::DESTINATION,
        Some(Side::Network | Side::Peer) => exit::NETWORK_OR_PEER,
        Some(Side::Service) => exit::SERVICE,
        Some(Side::Us) | None => exit::SOME_FAILED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Attributes, RootId};
    use crate::progress::{Progress, Verification};
    use std::time::{Duration, Instant};

    fn item() -> Item {
        Item {
            id: ItemId(1),
            root: RootId(0),
            parent: None,
            source: b"/s".to_vec(),
            destination: b"/d".to_vec(),
            size: Some(1),
            modified: None,
            range: None,
            attributes: Attributes::default(),
            twins: Vec::new(),
        }
    }

    fn exit_code(sides: &[Side], files_done: u64, cancelled: bool) -> u8 {
        let now = Instant::now();
        let mut progress = Progress::new(now);
        for _ in 0..files_done {
            progress.file_found(Some(1));
            progress.file_done(now, &item(), &Verification::NotAsked);
        }
        let mut failures = Failures::default();
        for side in sides {
            let fault = Fault::new(FaultCode::StorageIo, "write").side(*side);
            failures.add(&Failure::new(&item(), fault));
        }
        Summary::new(progress.snapshot(now), &failures, cancelled).exit_code
    }

    #[test]
    fn a_shared_side_decides_the_exit_code_only_when_nothing_succeeded() {
        use Side::*;
        assert_eq!(exit_code(&[], 1, false), exit::OK);
        assert_eq!(exit_code(&[], 0, false), exit::OK);
        assert_eq!(exit_code(&[Source], 0, false), exit::SOURCE);
        assert_eq!(exit_code(&[Destination, Destination], 0, false), exit::DESTINATION);
        assert_eq!(exit_code(&[Network, Peer], 0, false), exit::NETWORK_OR_PEER);
        assert_eq!(exit_code(&[Service], 0, false), exit::SERVICE);
        assert_eq!(exit_code(&[Source, Destination, Source], 0, false), exit::SOME_FAILED);
        assert_eq!(exit_code(&[Source], 1, false), exit::SOME_FAILED);
        assert_eq!(exit_code(&[Source], 1, true), exit::CANCELLED);
    }

    #[test]
    fn the_rate_is_of_what_this_run_has_moved() {
        let now = Instant::now();
        let mut progress = Progress::new(now);
        let item = Item { size: Some(100), ..item() };
        progress.file_found(item.size);
        progress.attempt(&item, 1, 0);
        progress.resumed(item.id, 60);
        progress.file_done(now, &item, &Verification::NotAsked);
        let rate = |seconds| {
            Summary::new(progress.snapshot(now + Duration::from_secs(seconds)), &Failures::default(), false).rate
        };
        assert_eq!((rate(4), rate(0)), (10.0, 0.0));
    }

    #[test]
    fn an_item_that_an_end_cancelled_by_itself_is_no_success_and_no_cancelled_run() {
        let mut failures = Failures::default();
        failures.add(&Failure::new(&item(), Fault::new(FaultCode::Cancelled, "move data").side(Side::Destination)));
        let now = Instant::now();
        let last = Progress::new(now).snapshot(now);
        assert_eq!(Summary::new(last.clone(), &failures, false).exit_code, exit::DESTINATION);
        assert_eq!(Summary::new(last, &failures, true).exit_code, exit::CANCELLED);
    }

    #[test]
    fn credentials_and_limits_have_codes_of_their_own_on_any_side() {
        let code = |code| exit_code_for(&Fault::new(code, "log in").side(Side::Destination));
        assert_eq!(code(FaultCode::LoginFailed), exit::CREDENTIALS);
        assert_eq!(code(FaultCode::PeerIdentity), exit::CREDENTIALS);
        assert_eq!(code(FaultCode::CredentialExpired), exit::CREDENTIALS);
        assert_eq!(code(FaultCode::TooManyAttempts), exit::LIMIT);
        assert_eq!(code(FaultCode::Cancelled), exit::CANCELLED);
    }

    #[test]
    fn failures_beyond_the_first_thousand_are_counted_not_kept() {
        let mut failures = Failures::default();
        for _ in 0..1003 {
            let fault = Fault::new(FaultCode::NotFound, "open").side(Side::Source);
            failures.add(&Failure::new(&item(), fault));
        }
        let now = Instant::now();
        let summary = Summary::new(Progress::new(now).snapshot(now), &failures, false);
        assert_eq!((summary.failures.len(), summary.failures_not_listed), (1000, 3));
        assert!(!summary.failures[0].cure.is_empty());
    }
}

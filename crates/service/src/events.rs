//! What users are told of a task's course, in the Transfer API's codes.

use serde_json::{Value, json};
use whimbrel_engine::dispatch::Occurrence;
use whimbrel_engine::fault::FaultCode;
use whimbrel_engine::listing::Timestamp;
use whimbrel_engine::{Fault, Side};

use crate::task::{Fatal, TaskEvent};

/// Codes of events that are no faults.
pub mod code {
    /// Work began.
    pub const STARTED: &str = "STARTED";
    /// Everything is done.
    pub const SUCCEEDED: &str = "SUCCEEDED";
    /// Somebody ended it.
    pub const CANCELED: &str = "CANCELED";
    /// Its deadline passed.
    pub const EXPIRED: &str = "EXPIRED";
    /// It was paused.
    pub const PAUSED: &str = "PAUSED";
    /// It goes on.
    pub const UNPAUSED: &str = "UNPAUSED";
    /// Items that could not be read were left out.
    pub const SKIPPED_ERRORS: &str = "SKIPPED_ERRORS";
    /// The destination's servers are not ours: what they store is proven, but not that it is on a disk.
    pub const NOT_DURABLE: &str = "NOT_DURABLE";
    /// Copies were to be verified, and some could not be.
    pub const NOT_VERIFIED: &str = "NOT_VERIFIED";
    /// Of a directory that is followed, all is copied that was there when work on it began.
    pub const CAUGHT_UP: &str = "CAUGHT_UP";
    /// Nothing was deleted at the destination, because a listing was not whole.
    pub const DELETE_DESTINATION_EXTRA_SKIPPED: &str = "DELETE_DESTINATION_EXTRA_SKIPPED";
}

/// The API's code of a fault.
pub fn code_of(fault: FaultCode) -> &'static str {
    use FaultCode as F;
    match fault {
        F::NotFound => "FILE_NOT_FOUND",
        F::PermissionDenied | F::ReadOnly | F::NotAuthorized => "PERMISSION_DENIED",
        F::NotADirectory => "NOT_A_DIRECTORY",
        F::IsADirectory => "IS_A_DIRECTORY",
        F::NotASymlink => "NOT_A_SYMLINK",
        F::InvalidPath => "INVALID_PATH_NAME",
        F::ChecksumMismatch | F::Unverified => "VERIFY_CHECKSUM",
        F::NotAsExpected => "EXTERNAL_CHECKSUM_MISMATCH",
        F::SourceChanged => "FILE_SIZE_CHANGED",
        F::QuotaExceeded => "QUOTA_EXCEEDED",
        F::NoSpace => "NO_SPACE_LEFT",
        F::FileTooLarge => "LIMIT_EXCEEDED",
        F::HostNotFound | F::ConnectionRefused | F::HostUnreachable | F::DataPeerRejected | F::EncryptionFailed => {
            "CONNECT_FAILED"
        }
        F::ConnectionLost | F::NodeLost | F::HostRestarted => "CONNECTION_BROKEN",
        F::TimedOut | F::Stalled => "TIMEOUT",
        F::TooManyOpen
        | F::OutOfMemory
        | F::StorageBusy
        | F::PortRangeExhausted
        | F::AddressUnavailable
        | F::TooManyAttempts
        | F::ServerBusy => "ENDPOINT_TOO_BUSY",
        F::LoginFailed | F::LoginInClear | F::CredentialExpired | F::CredentialRejected | F::NotLoggedIn => "AUTH",
        F::CredentialMissing => "NO_CREDENTIALS",
        F::PeerIdentity => "GSI_DN_MISMATCH",
        F::Cancelled => code::CANCELED,
        F::Internal => "INTERNAL_ERROR",
        F::HeldBack => "UNKNOWN",
        F::AlreadyExists
        | F::DirectoryNotEmpty
        | F::NotSupported
        | F::InvalidArgument
        | F::StorageIo
        | F::PeerMisbehaved
        | F::PeerIncompatible
        | F::PeerRefused
        | F::ListingUnclear => "ENDPOINT_ERROR",
    }
}

/// The API's code of a fault, with who met it: the service itself refuses only what was allowed when the task was submitted.
pub fn code_for(fault: &Fault) -> &'static str {
    match (fault.code, fault.side) {
        (FaultCode::NotAuthorized, Some(Side::Service)) => "ACL_CHANGED",
        _ => code_of(fault.code),
    }
}

/// An event that is no fault.
pub fn told(time: Timestamp, code: &str, description: impl Into<String>, details: &Value) -> TaskEvent {
    TaskEvent {
        time,
        code: code.to_owned(),
        description: description.into(),
        details: details.to_string(),
        is_error: false,
    }
}

/// The event of a fault at a path (empty: none) that is tried again after so many seconds (`None`: it is not).
pub fn faulted(time: Timestamp, fault: &Fault, path: &[u8], retry_in: Option<f64>) -> TaskEvent {
    let path = if path.is_empty() { fault.subject.clone() } else { String::from_utf8_lossy(path).into_owned() };
    let details = json!({
        "context": [{"operation": fault.op, "path": path}],
        "error": {"body": fault.to_string(), "type": fault.code.name(), "side": fault.side},
        "retry_in": retry_in,
    });
    TaskEvent {
        time,
        code: code_for(fault).to_owned(),
        description: fault.code.explain().meaning.to_owned(),
        details: details.to_string(),
        is_error: true,
    }
}

/// What stock servers do not promise, in words.
pub const NOT_DURABLE: &str = "the destination's servers do not say whether what they have stored is on their disks: if a host crashes \
     shortly after the task, files may be damaged or gone there; a task with sync level 3 (checksum) finds and replaces them";

/// The event about what is not promised of copies at stock servers.
pub fn not_durable(time: Timestamp) -> TaskEvent {
    told(time, code::NOT_DURABLE, NOT_DURABLE, &json!({"not_promised": ["durability"]}))
}

/// The event about copies that nobody could compare with their sources.
pub fn not_verified(time: Timestamp) -> TaskEvent {
    let description = "not every copy could be verified: a server computes no checksum that the other end knows";
    told(time, code::NOT_VERIFIED, description, &json!({"not_promised": ["verification"]}))
}

/// The event of what an orchestrator tells.
pub fn of(time: Timestamp, occurrence: &Occurrence) -> TaskEvent {
    match occurrence {
        Occurrence::Started { concurrency, parallelism, pipelining } => {
            let details = json!({"concurrency": concurrency, "parallelism": parallelism, "pipelining": pipelining});
            told(time, code::STARTED, "started", &details)
        }
        Occurrence::Faulted { fault, path, retry_in } => faulted(time, fault, path, *retry_in),
        Occurrence::CaughtUp { files } => {
            let description = "what was there at first is copied; what comes is followed";
            told(time, code::CAUGHT_UP, description, &json!({"files": files}))
        }
        Occurrence::ExtraKept { directory } => {
            let details = json!({"directory": String::from_utf8_lossy(directory)});
            let description = "nothing was deleted below a directory that could not be listed completely";
            told(time, code::DELETE_DESTINATION_EXTRA_SKIPPED, description, &details)
        }
        Occurrence::TwinKept { path } => {
            let details = json!({"path": String::from_utf8_lossy(path)});
            let description = "not deleted: the source has a name that differs only in case or in the form of its letters, \
                               and the destination may take both for one";
            told(time, code::DELETE_DESTINATION_EXTRA_SKIPPED, description, &details)
        }
    }
}

/// What a task fails with for a fault.
pub fn fatal(fault: &Fault) -> Fatal {
    Fatal { code: code_for(fault).to_owned(), description: fault.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The codes of faults that the Transfer API's documentation lists.
    const KNOWN: &[&str] = &[
        "FILE_NOT_FOUND",
        "PERMISSION_DENIED",
        "IS_A_DIRECTORY",
        "IS_A_FILE",
        "NOT_A_DIRECTORY",
        "NOT_A_FILE",
        "NOT_A_SYMLINK",
        "INVALID_SYMLINK",
        "INVALID_PATH_NAME",
        "AMBIGUOUS_PATH",
        "VERIFY_CHECKSUM",
        "EXTERNAL_CHECKSUM_MISMATCH",
        "FILE_SIZE_CHANGED",
        "NO_APPEND_FILESYSTEM",
        "MPU_NOT_FOUND",
        "QUOTA_EXCEEDED",
        "NO_SPACE_LEFT",
        "LIMIT_EXCEEDED",
        "CONNECT_FAILED",
        "CONNECTION_BROKEN",
        "CONNECTION_RESET",
        "TIMEOUT",
        "ENDPOINT_TOO_BUSY",
        "ENDPOINT_ERROR",
        "GC_NOT_CONNECTED",
        "GC_PAUSED",
        "NO_PHYSICALS",
        "CLOCK",
        "GSI_DN_MISMATCH",
        "AUTH",
        "NO_CREDENTIALS",
        "INVALID_SERVICE_CREDENTIAL",
        "ACL_CHANGED",
        "INTERNAL_ERROR",
        "UNKNOWN",
        "CANCELED",
    ];

    #[test]
    fn every_fault_has_a_code_that_clients_know() {
        for fault in FaultCode::ALL {
            assert!(KNOWN.contains(&code_of(*fault)), "{}", fault.name());
        }
    }

    #[test]
    fn the_event_of_a_fault_names_operation_path_and_cause() {
        let fault = Fault::new(FaultCode::QuotaExceeded, "write").detail("disk quota exceeded");
        let event = faulted(Timestamp::from_secs(1), &fault, b"/data/\xff", Some(5.0));
        assert_eq!((event.code.as_str(), event.is_error), ("QUOTA_EXCEEDED", true));
        let details: Value = serde_json::from_str(&event.details).unwrap();
        assert_eq!(details["context"][0]["path"], "/data/\u{fffd}");
        assert_eq!(details["context"][0]["operation"], "write");
        assert_eq!(details["error"]["type"], "QuotaExceeded");
        assert!(details["error"]["body"].as_str().unwrap().contains("disk quota exceeded"));
    }
}

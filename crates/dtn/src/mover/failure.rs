//! The one table from fault codes to the failure classes of replies.

use whimbrel_connector::path::PathError;
use whimbrel_engine::{Fault, FaultCode};
use whimbrel_proto::op::{Failure, FailureKind, Outcome};

/// Why an operation failed, before it becomes a [`Failure`].
#[derive(Debug)]
pub enum Problem {
    /// A fault of storage, network or anything else below.
    Fault(Fault),
    /// No data handle that fits; why.
    NoDataHandle(&'static str),
    /// The login has come to its end.
    LoginOver,
    /// Not all of a file written in chunks is proven; what is missing.
    Unproven(String),
    /// The received file has another checksum than announced.
    Checksum {
        /// What it has.
        computed: String,
        /// What was announced.
        expected: String,
    },
}

impl From<Fault> for Problem {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl Problem {
    /// As the control side is told.
    pub fn into_failure(self) -> Failure {
        match self {
            Self::Fault(fault) => from_fault(&fault),
            Self::NoDataHandle(why) => {
                Failure { kind: FailureKind::NoDataHandle, text: why.to_owned(), checksums: None }
            }
            Self::LoginOver => Failure {
                kind: FailureKind::LoginOver,
                text: "The credential of this login has expired: log in again.".to_owned(),
                checksums: None,
            },
            Self::Unproven(missing) => Failure {
                kind: FailureKind::Unproven,
                text: format!("the file cannot be committed: {missing}"),
                checksums: None,
            },
            Self::Checksum { computed, expected } => Failure {
                kind: FailureKind::Checksum,
                text: format!(
                    "the checksum is {computed}, but {expected} was announced; the file did not get its name"
                ),
                checksums: Some((computed, expected)),
            },
        }
    }
}

/// The failure class that the control side turns into a reply code.
pub fn kind(code: FaultCode) -> FailureKind {
    use FailureKind as K;
    match code {
        FaultCode::NotFound => K::NotFound,
        FaultCode::PermissionDenied => K::PermissionDenied,
        FaultCode::ReadOnly => K::ReadOnly,
        FaultCode::LoginFailed | FaultCode::NotLoggedIn | FaultCode::NotAuthorized => K::PermissionDenied,
        FaultCode::LoginInClear => K::PermissionDenied,
        // The data side sees no credentials but those of data connections.
        FaultCode::CredentialMissing | FaultCode::CredentialRejected | FaultCode::CredentialExpired => K::NotProtected,
        FaultCode::PeerIdentity | FaultCode::EncryptionFailed => K::NotProtected,
        FaultCode::AlreadyExists => K::Exists,
        FaultCode::NotADirectory => K::NotADirectory,
        FaultCode::IsADirectory => K::IsADirectory,
        FaultCode::DirectoryNotEmpty => K::NotEmpty,
        FaultCode::InvalidPath => K::BadPath,
        FaultCode::NoSpace => K::NoSpace,
        FaultCode::FileTooLarge => K::FileTooLarge,
        FaultCode::QuotaExceeded => K::Quota,
        FaultCode::NotSupported | FaultCode::PeerIncompatible => K::NotSupported,
        FaultCode::InvalidArgument | FaultCode::NotASymlink => K::BadArgument,
        FaultCode::ChecksumMismatch | FaultCode::Unverified | FaultCode::NotAsExpected => K::Checksum,
        FaultCode::StorageBusy | FaultCode::TooManyOpen | FaultCode::OutOfMemory => K::Busy,
        FaultCode::ServerBusy | FaultCode::TooManyAttempts => K::Busy,
        FaultCode::HostNotFound | FaultCode::ConnectionRefused => K::CannotConnect,
        FaultCode::HostUnreachable | FaultCode::TimedOut => K::CannotConnect,
        FaultCode::DataPeerRejected | FaultCode::PortRangeExhausted | FaultCode::AddressUnavailable => K::CannotConnect,
        FaultCode::ConnectionLost | FaultCode::Stalled | FaultCode::NodeLost | FaultCode::HostRestarted => {
            K::ConnectionBroken
        }
        FaultCode::PeerMisbehaved | FaultCode::ListingUnclear => K::BadData,
        FaultCode::Cancelled => K::Aborted,
        FaultCode::SourceChanged => K::SourceChanged,
        FaultCode::StorageIo | FaultCode::PeerRefused | FaultCode::HeldBack | FaultCode::Internal => K::Other,
    }
}

/// The failure a fault is reported as; its text is the fault's one line.
pub fn from_fault(fault: &Fault) -> Failure {
    Failure { kind: kind(fault.code), text: one_line(&fault.to_string()), checksums: None }
}

/// A failed outcome from a fault.
pub fn outcome(fault: &Fault) -> Outcome {
    Outcome::Failed(from_fault(fault))
}

/// The fault of a path that cannot be one.
pub fn bad_path(error: &PathError, path: &[u8]) -> Fault {
    Fault::new(FaultCode::InvalidPath, "resolve path").on_path(path).detail(error.to_string())
}

/// Control characters, which names may hold, must not reach a reply or a log as they are.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_class_and_the_text_is_one_line() {
        for &code in FaultCode::ALL {
            let fault = Fault::new(code, "open").on_path(b"/a\r\n226 done");
            let failure = from_fault(&fault);
            assert_eq!(failure.kind, kind(code));
            assert!(!failure.text.contains(['\r', '\n']), "{}", failure.text);
        }
    }

    #[test]
    fn a_missing_file_is_told_in_words_that_clients_match() {
        let fault = Fault::new(FaultCode::NotFound, "open").on_path(b"/x");
        assert!(from_fault(&fault).text.to_lowercase().contains("no such file"));
    }
}

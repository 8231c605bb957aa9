//! What a fault of an item means for it, and for its task.

use whimbrel_engine::dispatch::{Credential, End};
use whimbrel_engine::fault::Retry;
use whimbrel_engine::{Fault, FaultCode, Side};

/// What a fault of an item means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// Nothing for the item: work on the task ended, or cannot go on.
    Open,
    /// It is tried again in a later run.
    Again,
    /// It is left out, as the user allowed.
    Skipped,
    /// It has failed.
    Failed,
}

/// What users allow and forbid.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Leniency {
    /// Sources that cannot be read are left out.
    pub(super) skip_source_errors: bool,
    /// A used-up quota ends the task.
    pub(super) fail_on_quota_errors: bool,
}

impl Leniency {
    /// What a fault of an item means for it.
    pub(super) fn fate(self, fault: &Fault) -> Fate {
        use FaultCode as F;
        match fault.code {
            F::Cancelled => Fate::Open,
            _ if is_about_login(fault) || is_about_server(fault) => Fate::Open,
            F::QuotaExceeded if self.fail_on_quota_errors => Fate::Failed,
            // Somebody may make room before the deadline.
            F::QuotaExceeded | F::NoSpace => Fate::Again,
            _ if is_temporary(fault) => Fate::Again,
            F::NotFound
            | F::PermissionDenied
            | F::PeerRefused
            | F::InvalidPath
            | F::NotSupported
            | F::ListingUnclear
                if self.skip_source_errors && fault.side == Some(Side::Source) =>
            {
                Fate::Skipped
            }
            _ => Fate::Failed,
        }
    }

    /// Whether the task is over by this fault of one item.
    pub(super) fn ends_task(self, fault: &Fault) -> bool {
        match fault.code {
            FaultCode::QuotaExceeded => self.fail_on_quota_errors,
            // The user's own checksum: something is wrong with the whole task.
            FaultCode::NotAsExpected => true,
            _ => is_about_login(fault),
        }
    }
}

/// Whether another attempt, also much later, may help.
pub(super) fn is_temporary(fault: &Fault) -> bool {
    // What follows from a directory that could not be made says "permanent" of the attempt; its code tells more.
    !matches!(fault.retry, Retry::Permanent) || Fault::new(fault.code, "").is_temporary()
}

/// Whether nobody was let in.
pub(super) fn is_about_login(fault: &Fault) -> bool {
    use FaultCode as F;
    matches!(
        fault.code,
        F::LoginFailed
            | F::LoginInClear
            | F::NotAuthorized
            | F::CredentialMissing
            | F::CredentialRejected
            | F::CredentialExpired
            | F::PeerIdentity
            | F::EncryptionFailed
    )
}

/// Whether a server cannot be reached: it says nothing about the item that was asked about.
pub(super) fn is_about_server(fault: &Fault) -> bool {
    use FaultCode as F;
    matches!(fault.code, F::ConnectionRefused | F::HostUnreachable | F::HostNotFound | F::ServerBusy)
}

/// How a task ends for a fault that is about all of it; `credentials` are those of its sites.
pub(super) fn end_by(fault: Fault, after: f64, credentials: &[Credential]) -> End {
    use FaultCode as F;
    // What the service made itself it can make anew.
    let made = credentials.iter().all(|of| matches!(of, Credential::Token { .. } | Credential::None));
    match fault.code {
        F::CredentialExpired if made => End::Again { fault, after },
        F::CredentialExpired | F::CredentialMissing => End::NeedsCredential { fault },
        F::CredentialRejected | F::LoginFailed if !made => End::NeedsCredential { fault },
        F::HostNotFound => End::Again { fault, after },
        _ if is_temporary(&fault) => End::Again { fault, after },
        _ => End::Impossible { fault },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(code: FaultCode, side: Side) -> Fault {
        Fault::new(code, "test").side(side)
    }

    #[test]
    fn only_what_cannot_be_read_is_left_out_and_only_where_the_user_allowed() {
        let (strict, lenient) = (Leniency::default(), Leniency { skip_source_errors: true, ..Leniency::default() });
        for code in [FaultCode::NotFound, FaultCode::PermissionDenied] {
            assert_eq!(strict.fate(&at(code, Side::Source)), Fate::Failed);
            assert_eq!(lenient.fate(&at(code, Side::Source)), Fate::Skipped);
            assert_eq!(lenient.fate(&at(code, Side::Destination)), Fate::Failed);
        }
        assert_eq!(lenient.fate(&at(FaultCode::IsADirectory, Side::Source)), Fate::Failed, "the user's mistake");
        assert_eq!(lenient.fate(&at(FaultCode::StorageIo, Side::Source)), Fate::Again);
        let exhausted = at(FaultCode::ChecksumMismatch, Side::Network).retry(Retry::Exhausted);
        assert_eq!(strict.fate(&exhausted), Fate::Again);
    }

    #[test]
    fn a_used_up_quota_ends_the_task_only_where_the_user_wants_it() {
        let quota = at(FaultCode::QuotaExceeded, Side::Destination);
        let strict = Leniency { fail_on_quota_errors: true, ..Leniency::default() };
        assert_eq!((strict.fate(&quota), strict.ends_task(&quota)), (Fate::Failed, true));
        let patient = Leniency::default();
        assert_eq!((patient.fate(&quota), patient.ends_task(&quota)), (Fate::Again, false));
    }

    #[test]
    fn what_the_user_gave_is_asked_for_anew_and_what_the_service_made_is_made_anew() {
        let token = [Credential::Token { token: "t".into() }];
        let password = [Credential::None, Credential::Password { user: "u".into(), password: "p".into() }];
        let end = |code, credentials: &[Credential]| end_by(Fault::new(code, "log in"), 1.0, credentials);
        assert!(matches!(end(FaultCode::CredentialExpired, &token), End::Again { .. }));
        assert!(matches!(end(FaultCode::CredentialExpired, &password), End::NeedsCredential { .. }));
        assert!(matches!(end(FaultCode::LoginFailed, &password), End::NeedsCredential { .. }));
        assert!(matches!(end(FaultCode::LoginFailed, &token), End::Impossible { .. }));
        assert!(matches!(end(FaultCode::ConnectionRefused, &token), End::Again { .. }));
        assert!(matches!(end(FaultCode::PeerIdentity, &password), End::Impossible { .. }));
    }
}

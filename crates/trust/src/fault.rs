//! Why somebody is not believed, or why we are not.

use std::fmt;

use whimbrel_engine::fault::{Fault, FaultCode, Side};
use whimbrel_proto::timeval::Timestamp;

/// A refused or missing credential: which, why, and until when it held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustFault {
    /// One of `CredentialMissing`, `CredentialRejected`, `CredentialExpired`, `PeerIdentity`, `EncryptionFailed`, `NotAuthorized`
    /// or `NotSupported`.
    pub code: FaultCode,
    /// What it is about: a certificate's subject, a token's issuer and subject, a file. May be empty. Never a secret.
    pub subject: String,
    /// The reason, for people.
    pub detail: String,
    /// End of the credential's life, where that is the reason or helps to understand it.
    pub until: Option<Timestamp>,
}

impl TrustFault {
    /// A fault without a subject or an end yet.
    pub fn new(code: FaultCode, detail: impl Into<String>) -> Self {
        Self { code, subject: String::new(), detail: detail.into(), until: None }
    }

    /// Names the certificate, token or file it is about.
    pub fn about(mut self, subject: impl Into<String>) -> Self {
        self.subject = subject.into();
        self
    }

    /// Tells until when the credential was or is good.
    pub fn until(mut self, end: Timestamp) -> Self {
        self.until = Some(end);
        self
    }

    /// The fault that crosses seams: `op` was being done, `side` has to act.
    pub fn into_fault(self, op: impl Into<String>, side: Side) -> Fault {
        let detail = self.reason();
        Fault::new(self.code, op).side(side).subject(self.subject).detail(detail)
    }

    /// The reason with the end of the credential's life.
    fn reason(&self) -> String {
        match self.until {
            Some(end) => format!("{} (good until {})", self.detail, to_the_minute(end)),
            None => self.detail.clone(),
        }
    }
}

/// A time for people: `2026-11-22 08:00 UTC`.
pub fn to_the_minute(time: Timestamp) -> String {
    let at = time.to_civil();
    format!("{:04}-{:02}-{:02} {:02}:{:02} UTC", at.year, at.month, at.day, at.hour, at.minute)
}

impl fmt::Display for TrustFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.subject.is_empty() {
            write!(f, "{}: ", self.subject)?;
        }
        write!(f, "{}: {}", self.code, self.reason())
    }
}

impl std::error::Error for TrustFault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_tells_which_why_and_until_when() {
        let fault = TrustFault::new(FaultCode::CredentialExpired, "its life is over")
            .about("/O=Grid/CN=alice")
            .until(Timestamp { secs: 1_700_000_000, nanos: 0 });
        assert_eq!(
            fault.to_string(),
            "/O=Grid/CN=alice: the credential has expired: its life is over (good until 2023-11-14 22:13 UTC)"
        );
        let fault = fault.into_fault("log in", Side::Us);
        assert_eq!((fault.code, fault.subject.as_str()), (FaultCode::CredentialExpired, "/O=Grid/CN=alice"));
    }
}

//! The certificate that the front shows.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::server::Secret;
use whimbrel_trust::{OwnChain, credential};

use super::config::TlsConfig;
use crate::small::SmallFile;

const OP: &str = "read certificate";

/// Largest file that can be one, bytes: the front is told of them in one message.
const LARGEST: u64 = 32 << 10;

/// The files of a certificate as they are: the process that may read them does not look into them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CertificateFiles {
    /// Where the certificate is, for people.
    place: String,
    certificate: Secret,
    key: Secret,
}

impl CertificateFiles {
    /// Reads those that TLS shows.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn of_tls(config: &TlsConfig) -> Result<Self, Fault> {
        Self::read(&config.certificate, &config.key)
    }

    /// Reads both.
    ///
    /// # Errors
    /// Faults of the files; `InvalidArgument` for more than 32 KiB, `CredentialRejected` for a key that everybody may use.
    pub fn read(certificate: &Path, key: &Path) -> Result<Self, Fault> {
        let place = certificate.display().to_string();
        Ok(Self { place, certificate: text(certificate, 0)?, key: text(key, 0o007)? })
    }

    /// What they hold.
    ///
    /// # Errors
    /// `CredentialRejected` for files that are not PEM, or a key that does not belong to the certificate.
    pub fn chain(&self) -> Result<OwnChain, Fault> {
        let both = [&self.certificate.0, b"\n".as_slice(), &self.key.0].concat();
        let chain = credential::from_pem(&both).map_err(|fault| fault.about(&self.place));
        chain.map_err(|fault| fault.into_fault(OP, Side::Us))
    }
}

/// A file none of whose mode bits is forbidden.
fn text(path: &Path, forbidden: u32) -> Result<Secret, Fault> {
    let file = SmallFile::open(path, OP, LARGEST)?;
    if file.facts()?.mode() & forbidden != 0 {
        return Err(file.refused(FaultCode::CredentialRejected, "everybody on this host may use it: chmod 600"));
    }
    file.bytes().map(Secret)
}

//! The certificate that the front shows.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::server::Secret;
use whimbrel_trust::{OwnChain, credential};

use super::config::TlsConfig;

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
    /// Faults of the files; `CredentialRejected` for more than 32 KiB, and for a key that everybody may use.
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
    let name = path.display().to_string();
    let failed = |error| Fault::from_io(error, OP).subject(&name);
    let rejected = |why| Err(Fault::new(FaultCode::CredentialRejected, OP).subject(&name).detail(why));
    let file = File::open(path).map_err(failed)?;
    if file.metadata().map_err(failed)?.mode() & forbidden != 0 {
        return rejected("everybody on this host may use it: chmod 600");
    }
    let mut bytes = Vec::new();
    file.take(LARGEST + 1).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > LARGEST {
        return rejected("it is longer than 32 KiB");
    }
    Ok(Secret(bytes))
}

//! The certificate that the front shows.

use std::path::Path;

use openssl::error::ErrorStack;
use openssl::pkey::PKey;
use openssl::x509::X509;
use serde::{Deserialize, Serialize};
use whimbrel_engine::{Fault, FaultCode};
use whimbrel_proto::server::Secret;
use whimbrel_trust::OwnChain;

use super::config::TlsConfig;

const OP: &str = "read certificate";

/// Largest file that can be one, bytes: the front is told of them in one message.
const LARGEST: usize = 32 << 10;

/// The files of a certificate as they are: whoever may read them does not look into them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CertificateFiles {
    certificate: (String, Secret),
    key: (String, Secret),
}

impl CertificateFiles {
    /// Reads both.
    ///
    /// # Errors
    /// Faults of the files; `CredentialRejected` for more than 32 KiB.
    pub fn read(config: &TlsConfig) -> Result<Self, Fault> {
        Ok(Self { certificate: text(&config.certificate)?, key: text(&config.key)? })
    }

    /// What they hold.
    ///
    /// # Errors
    /// `CredentialRejected` for files that are not PEM, or a key that does not belong to the certificate.
    pub fn chain(&self) -> Result<OwnChain, Fault> {
        let Self { certificate: (path, certificates), key: (key_path, key) } = self;
        let mut certificates = X509::stack_from_pem(&certificates.0).map_err(|error| unusable(path, &error))?;
        let key = PKey::private_key_from_pem(&key.0).map_err(|error| unusable(key_path, &error))?;
        if certificates.is_empty() {
            return Err(rejected(path, "there is no certificate in it"));
        }
        let certificate = certificates.remove(0);
        let public = certificate.public_key().map_err(|error| unusable(path, &error))?;
        if !public.public_eq(&key) {
            return Err(rejected(key_path, "the key is not that of the first certificate"));
        }
        Ok(OwnChain { certificate, key, chain: certificates })
    }
}

fn text(path: &Path) -> Result<(String, Secret), Fault> {
    let name = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|error| Fault::from_io(error, OP).subject(&name))?;
    if bytes.len() > LARGEST {
        return Err(rejected(&name, "it is longer than 32 KiB"));
    }
    Ok((name, Secret(bytes)))
}

fn unusable(path: &str, error: &ErrorStack) -> Fault {
    rejected(path, &format!("it is not PEM: {error}"))
}

fn rejected(path: &str, why: &str) -> Fault {
    Fault::new(FaultCode::CredentialRejected, OP).subject(path).detail(why)
}

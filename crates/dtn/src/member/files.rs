//! What a member keeps: its place in the service, and a certificate where the administrator has none for it.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use openssl::x509::X509;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_trust::kept::Kept;
use whimbrel_trust::make::{self, HostName};
use whimbrel_trust::pins::Fingerprint;
use whimbrel_trust::{OwnChain, TrustFault};

use super::{Membership, OP};
use crate::small;

/// Largest file that can be one of them, bytes.
const LARGEST: u64 = 64 << 10;

/// Seconds for which a certificate of one's own is good: it is believed by its key, not by its end.
const LIFE: i64 = 20 * 365 * 24 * 3600;

/// What is kept, in a directory that nobody else reads.
pub(super) struct StateFiles(Kept);

impl StateFiles {
    /// The directory, made if it is not there.
    pub(super) fn at(named: Option<&Path>) -> Result<Self, Fault> {
        let uid = rustix::process::geteuid().as_raw();
        let directory = named.map(Path::to_owned).or_else(|| Kept::usual("whimbrel", uid)).ok_or_else(|| {
            let fault = Fault::new(FaultCode::InvalidArgument, "configure").side(Side::Us);
            fault.detail("there is no place for what this server keeps: set state in [join], or HOME")
        })?;
        Kept::at(&directory).map(Self).map_err(|error| failed(error, &directory))
    }

    /// What the service gave before; `None`: nothing yet.
    pub(super) fn membership(&self) -> Result<Option<Membership>, Fault> {
        let path = self.0.path("membership");
        if !path.exists() {
            return Ok(None);
        }
        let bytes = small::read(&path, OP, LARGEST)?;
        let read = postcard::from_bytes(&bytes);
        read.map(Some).map_err(|_| {
            let fault = Fault::new(FaultCode::InvalidArgument, OP).side(Side::Us).subject(path.display().to_string());
            fault.detail("it is damaged: remove it, and register with a new token")
        })
    }

    /// Keeps what the service gave, durably.
    pub(super) fn keep(&self, membership: &Membership) -> Result<(), Fault> {
        let bytes = postcard::to_stdvec(membership).expect("texts can always be written");
        self.write("membership", &bytes)
    }

    /// The files of a certificate of this server's own and its key, made if they are not there, with these names of hosts.
    pub(super) fn certificate(&self, names: &[String]) -> Result<(PathBuf, PathBuf), Fault> {
        // One file holds both, so that they always belong together.
        let path = self.0.path("host.pem");
        if !path.exists() {
            let made = own_certificate(names).and_then(|own| make::to_pem(&own));
            self.write("host.pem", &made.map_err(|fault| fault.into_fault(OP, Side::Us))?)?;
        }
        Ok((path.clone(), path))
    }

    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Fault> {
        self.0.write(name, bytes, 0o600).map_err(|error| failed(error, &self.0.path(name)))
    }
}

fn failed(error: std::io::Error, path: &Path) -> Fault {
    Fault::from_io(error, OP).side(Side::Us).subject(path.display().to_string())
}

fn own_certificate(names: &[String]) -> Result<OwnChain, TrustFault> {
    let local = [HostName::Dns("localhost".into()), HostName::Address(Ipv4Addr::LOCALHOST.into())];
    let name = |text: &String| match text.parse() {
        Ok(address) => HostName::Address(address),
        Err(_) => HostName::Dns(text.clone()),
    };
    let names = names.iter().filter(|text| !text.is_empty() && *text != "localhost").map(name);
    make::own_host("/CN=whimbrel data transfer node", local.into_iter().chain(names).collect(), LIFE)
}

/// The fingerprint of the key of the certificate in a file.
pub(super) fn fingerprint(certificate: &Path) -> Result<String, Fault> {
    let pem = small::read(certificate, OP, LARGEST)?;
    let read = X509::from_pem(&pem).and_then(|certificate| Fingerprint::of(&certificate));
    let read = read.map_err(|error| {
        let fault = Fault::new(FaultCode::CredentialRejected, OP).side(Side::Us);
        fault.subject(certificate.display().to_string()).detail(error.to_string())
    })?;
    Ok(read.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use whimbrel_proto::server::Secret;

    #[test]
    fn what_is_kept_is_read_back_and_nobody_elses() {
        let directory = tempfile::tempdir().unwrap();
        let files = StateFiles::at(Some(&directory.path().join("a/b"))).unwrap();
        assert_eq!(files.membership().unwrap(), None);
        let membership = Membership {
            service: "https://s".into(),
            server: "1".into(),
            secret: Secret(b"x".to_vec()),
            issuer: "https://s".into(),
            audience: "e".into(),
            interval: 5,
        };
        files.keep(&membership).unwrap();
        assert_eq!(files.membership().unwrap(), Some(membership));
        let (certificate, key) = files.certificate(&["dtn.example.org".into()]).unwrap();
        assert_eq!(files.certificate(&[]).unwrap(), (certificate.clone(), key.clone()));
        assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(fingerprint(&certificate).unwrap().starts_with("sha256:"));
        fs::write(directory.path().join("a/b/membership"), b"\xff\xff").unwrap();
        assert_eq!(files.membership().unwrap_err().code, FaultCode::InvalidArgument);
    }
}

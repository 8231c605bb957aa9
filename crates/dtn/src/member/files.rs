//! What a member keeps: its place in the service, and a certificate where the administrator has none for it.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use openssl::x509::X509;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::timeval::Timestamp;
use whimbrel_trust::make::{self, HostName, KeyKind, Life, Purpose};
use whimbrel_trust::pins::Fingerprint;
use whimbrel_trust::{OwnChain, TrustFault};

use super::{Membership, OP};
use crate::monitor::keeper::is_root;
use crate::small;

/// Largest file that can be one of them, bytes.
const LARGEST: u64 = 64 << 10;

/// Seconds for which a certificate of one's own is good: it is believed by its key, not by its end.
const LIFE: i64 = 20 * 365 * 24 * 3600;

/// A directory that nobody else reads.
pub(super) struct StateFiles {
    directory: PathBuf,
}

impl StateFiles {
    /// The directory, made if it is not there.
    pub(super) fn at(named: Option<&Path>) -> Result<Self, Fault> {
        let directory = named.map(Path::to_owned).or_else(usual).ok_or_else(|| {
            let fault = Fault::new(FaultCode::InvalidArgument, "configure").side(Side::Us);
            fault.detail("there is no place for what this server keeps: set state in [join], or HOME")
        })?;
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory);
        made.map_err(|error| failed(error, &directory))?;
        Ok(Self { directory })
    }

    /// What the service gave before; `None`: nothing yet.
    pub(super) fn membership(&self) -> Result<Option<Membership>, Fault> {
        let path = self.directory.join("membership");
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

    /// The files of a certificate of this server's own and its key, made if they are not there.
    pub(super) fn certificate(&self) -> Result<(PathBuf, PathBuf), Fault> {
        // One file holds both, so that they always belong together.
        let path = self.directory.join("host.pem");
        if !path.exists() {
            let made = own_certificate().and_then(|own| make::to_pem(&own));
            self.write("host.pem", &made.map_err(|fault| fault.into_fault(OP, Side::Us))?)?;
        }
        Ok((path.clone(), path))
    }

    /// Whole or not at all, and on disk when it returns.
    fn write(&self, name: &str, bytes: &[u8]) -> Result<(), Fault> {
        let (path, draft) = (self.directory.join(name), self.directory.join(format!(".{name}.new")));
        let written = || {
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&draft, &path)?;
            File::open(&self.directory)?.sync_all()
        };
        written().map_err(|error| failed(error, &path))
    }
}

fn usual() -> Option<PathBuf> {
    if is_root() {
        return Some("/var/lib/whimbrel".into());
    }
    let set = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = set("XDG_STATE_HOME").or_else(|| set("HOME").map(|home| home.join(".local/state")))?;
    Some(base.join("whimbrel"))
}

fn failed(error: std::io::Error, path: &Path) -> Fault {
    Fault::from_io(error, OP).side(Side::Us).subject(path.display().to_string())
}

fn own_certificate() -> Result<OwnChain, TrustFault> {
    let key = make::key(KeyKind::P256)?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
    let life = Life::of(Timestamp::from_secs(i64::try_from(now).unwrap_or(i64::MAX)), LIFE);
    let purpose = Purpose::Host(vec![HostName::Dns("localhost".into())]);
    let certificate = make::self_signed("/CN=whimbrel data transfer node", &key, &purpose, life)?;
    Ok(OwnChain { certificate, key, chain: Vec::new() })
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
        let (certificate, key) = files.certificate().unwrap();
        assert_eq!(files.certificate().unwrap(), (certificate.clone(), key.clone()));
        assert_eq!(fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(fingerprint(&certificate).unwrap().starts_with("sha256:"));
        fs::write(directory.path().join("a/b/membership"), b"\xff\xff").unwrap();
        assert_eq!(files.membership().unwrap_err().code, FaultCode::InvalidArgument);
    }
}

//! Certificates of a small site, in files as every grid program reads them: an authority, hosts, people, proxies.
//!
//! For demonstrations, tests and closed networks: there is no revocation, and whoever reads the authority's key is the site.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use openssl::error::ErrorStack;
use openssl::x509::X509;
use whimbrel_engine::fault::FaultCode;
use whimbrel_proto::timeval::Timestamp;
use whimbrel_proto::x509::Certificate;
use zeroize::Zeroizing;

use crate::credential;
use crate::fault::TrustFault;
use crate::make::{self, HostName, KeyKind, Life, ProxyKind, Purpose};
use crate::peer::OwnChain;
use crate::places::{Place, Source};

/// What every grid program can use.
const KEYS: KeyKind = KeyKind::Rsa(2048);

/// A directory with everything of a site, laid out as `/etc/grid-security` is.
#[derive(Debug, Clone)]
pub struct Site {
    directory: PathBuf,
    uid: u32,
}

/// What was made.
#[derive(Debug, Clone)]
pub struct Made {
    /// Subject in one-line form.
    pub subject: String,
    /// Last second of its life.
    pub until: Timestamp,
    /// The files, the certificate first.
    pub files: Vec<PathBuf>,
}

/// A file that is about to be written.
struct File {
    path: PathBuf,
    bytes: Zeroizing<Vec<u8>>,
    mode: u32,
}

impl File {
    fn public(path: PathBuf, bytes: Vec<u8>) -> Self {
        Self { path, bytes: Zeroizing::new(bytes), mode: 0o644 }
    }

    fn secret(path: PathBuf, bytes: Zeroizing<Vec<u8>>) -> Self {
        Self { path, bytes, mode: 0o600 }
    }
}

impl Site {
    /// A site in a directory, which need not be there yet; `uid` is the account whose files are believed.
    pub fn new(directory: PathBuf, uid: u32) -> Self {
        Self { directory, uid }
    }

    /// The directory of authorities, for `X509_CERT_DIR`.
    pub fn certificates(&self) -> PathBuf {
        self.directory.join("certificates")
    }

    /// The file of subjects and their accounts.
    pub fn gridmap(&self) -> PathBuf {
        self.directory.join("grid-mapfile")
    }

    fn authority_files(&self) -> (PathBuf, PathBuf) {
        (self.directory.join("ca/cacert.pem"), self.directory.join("ca/cakey.pem"))
    }

    /// A new authority, trusted by whoever uses [`Self::certificates`]; it may sign names that fit `pattern`, such as `/O=Grid/*`.
    ///
    /// # Errors
    /// `AlreadyExists` where there is one.
    pub fn authority(&self, subject: &str, pattern: &str, life: Life) -> Result<Made, TrustFault> {
        if [subject, pattern].iter().any(|text| text.contains(['\'', '"', '\n'])) {
            let fault = TrustFault::new(FaultCode::InvalidArgument, "quotation marks cannot stand in a signing policy");
            return Err(fault.about(subject));
        }
        let key = make::key(KEYS)?;
        let certificate = make::authority(subject, &key, None, life, None)?;
        let hash = format!("{:08x}", certificate.subject_name_hash());
        let pem = certificate.to_pem().map_err(openssl)?;
        let policy = format!(
            "access_id_CA   X509    '{subject}'\npos_rights     globus  CA:sign\ncond_subjects  globus  '\"{pattern}\"'\n"
        );
        let (public, secret) = self.authority_files();
        let hashed = |ending: &str| self.certificates().join(format!("{hash}.{ending}"));
        let key = make::key_pem(&key).map_err(openssl)?;
        write_all(vec![
            File::public(hashed("0"), pem.clone()),
            File::public(hashed("signing_policy"), policy.into_bytes()),
            File::public(public, pem),
            File::secret(secret, key),
        ])
        .and_then(|files| made(&certificate, files))
    }

    /// A host with these names and addresses; the first names it. `hostcert.pem` and `hostkey.pem` in `directory`, or in the site's own.
    pub fn host(&self, names: &[String], directory: Option<&Path>, life: Life) -> Result<Made, TrustFault> {
        let kind = |name: &String| name.parse().map_or_else(|_| HostName::Dns(name.clone()), HostName::Address);
        let purpose = Purpose::Host(names.iter().map(kind).collect());
        let first = names.first().ok_or_else(|| TrustFault::new(FaultCode::InvalidArgument, "a host needs a name"))?;
        self.issue(first, &purpose, directory.unwrap_or(&self.directory), "host", life)
    }

    /// A person; `usercert.pem` and `userkey.pem` in `directory`, or below `users` of the site.
    pub fn person(&self, name: &str, directory: Option<&Path>, life: Life) -> Result<Made, TrustFault> {
        let usual = self.directory.join("users").join(file_name(name)?);
        self.issue(name, &Purpose::Person, directory.unwrap_or(&usual), "user", life)
    }

    fn issue(&self, name: &str, purpose: &Purpose, into: &Path, what: &str, life: Life) -> Result<Made, TrustFault> {
        file_name(name)?;
        let paths = ["cert", "key"].map(|part| into.join(format!("{what}{part}.pem")));
        // Keys take their time: what cannot be kept is not made.
        paths.iter().try_for_each(|path| absent(path))?;
        let signer = self.signer()?;
        let subject = format!("{}/CN={name}", above(&signer.certificate)?);
        let own = make::issue(&subject, KEYS, purpose, life, &signer)?;
        let key = make::key_pem(&own.key).map_err(openssl)?;
        let [certificate, secret] = paths;
        let pem = own.certificate.to_pem().map_err(openssl)?;
        let files = write_all(vec![File::public(certificate, pem), File::secret(secret, key)])?;
        made(&own.certificate, files)
    }

    fn signer(&self) -> Result<OwnChain, TrustFault> {
        let (certificate, key) = self.authority_files();
        let place = |path| Place { path, variable: None };
        credential::read(&Source::Pair(place(certificate), place(key)), self.uid, &|_| None)
    }

    /// Adds a line to the grid-mapfile: whoever is `subject` may use this account.
    pub fn map(&self, subject: &str, account: &str) -> Result<(), TrustFault> {
        if account.is_empty() || account.contains(|c: char| c.is_whitespace() || ",\"#".contains(c)) {
            return Err(TrustFault::new(FaultCode::InvalidArgument, "this is no account").about(account));
        }
        let path = self.gridmap();
        let told = |error: io::Error| refused(&path, &error);
        let mut file = OpenOptions::new().append(true).create(true).mode(0o644).open(&path).map_err(told)?;
        let escaped = subject.replace('"', "\\\"");
        file.write_all(format!("\"{escaped}\" {account}\n").as_bytes()).map_err(told)
    }
}

/// Makes a proxy of somebody, in a file that only its owner reads; one that is there is replaced only with `force`, and at once.
pub fn proxy(signer: &OwnChain, kind: &ProxyKind, life: Life, file: &Path, force: bool) -> Result<Made, TrustFault> {
    if !force {
        absent(file)?;
    }
    let own = make::own_proxy(signer, KEYS, kind, life)?;
    let fresh = File::secret(beside(file), make::to_pem(&own)?);
    let aside = fresh.path.clone();
    if force {
        // Left by a run that was ended in between.
        let _none = std::fs::remove_file(&aside);
        write(&fresh)?;
        std::fs::rename(&aside, file).map_err(|error| refused(file, &error))?;
    } else {
        write(&File { path: file.to_owned(), ..fresh })?;
    }
    made(&own.certificate, vec![file.to_owned()])
}

/// The name under which a file is written before it has its own.
fn beside(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push(".new");
    name.into()
}

fn made(certificate: &X509, files: Vec<PathBuf>) -> Result<Made, TrustFault> {
    let der = certificate.to_der().map_err(openssl)?;
    let read = Certificate::parse(&der).map_err(|error| TrustFault::new(FaultCode::Internal, error.to_string()))?;
    Ok(Made { subject: read.subject.one_line(), until: read.not_after, files })
}

/// The subject of an authority without its common name: below that are the names it gives.
fn above(authority: &X509) -> Result<String, TrustFault> {
    let der = authority.to_der().map_err(openssl)?;
    let read = Certificate::parse(&der).map_err(|error| TrustFault::new(FaultCode::Internal, error.to_string()))?;
    let subject = read.subject.one_line();
    Ok(subject.rfind("/CN=").map_or(String::new(), |at| subject[..at].to_owned()))
}

/// A name that can be a file's, and part of a subject.
fn file_name(name: &str) -> Result<&str, TrustFault> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._@: *".contains(c);
    match !name.is_empty() && name.len() <= 64 && !name.starts_with('.') && name.chars().all(plain) {
        true => Ok(name),
        false => {
            let detail = "a name has up to 64 letters, digits, blanks and any of - . _ @ : *";
            Err(TrustFault::new(FaultCode::InvalidArgument, detail).about(name))
        }
    }
}

fn absent(path: &Path) -> Result<(), TrustFault> {
    match path.symlink_metadata() {
        Ok(_) => {
            Err(TrustFault::new(FaultCode::AlreadyExists, "nothing is overwritten").about(path.display().to_string()))
        }
        Err(_) => Ok(()),
    }
}

/// All of them or, if one is there, none.
fn write_all(files: Vec<File>) -> Result<Vec<PathBuf>, TrustFault> {
    files.iter().try_for_each(|file| absent(&file.path))?;
    files.iter().try_for_each(write)?;
    Ok(files.into_iter().map(|file| file.path).collect())
}

fn write(file: &File) -> Result<(), TrustFault> {
    let told = |error: io::Error| refused(&file.path, &error);
    if let Some(directory) = file.path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        DirBuilder::new().recursive(true).mode(0o755).create(directory).map_err(told)?;
    }
    let mut options = OpenOptions::new();
    let mut open = options.write(true).create_new(true).mode(file.mode).open(&file.path).map_err(told)?;
    open.write_all(&file.bytes).and_then(|()| open.sync_all()).map_err(told)
}

fn refused(path: &Path, error: &io::Error) -> TrustFault {
    TrustFault::new(FaultCode::from_io(error), error.to_string()).about(path.display().to_string())
}

fn openssl(error: ErrorStack) -> TrustFault {
    TrustFault::new(FaultCode::Internal, format!("OpenSSL: {error}"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
    use std::sync::Arc;

    use whimbrel_proto::x509::Policy;
    use whimbrel_proto::x509::gridmap::GridMap;

    use super::*;
    use crate::gsi::{Anchors, Judge};

    fn now() -> Timestamp {
        Timestamp::parse(b"20261122000000").unwrap()
    }

    fn site() -> (tempfile::TempDir, Site) {
        let directory = tempfile::tempdir().unwrap();
        let uid = fs::metadata(directory.path()).unwrap().uid();
        let site = Site::new(directory.path().join("grid"), uid);
        site.authority("/O=Grid/CN=Test CA", "/O=Grid/*", Life::of(now(), 90_000)).unwrap();
        (directory, site)
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn what_a_site_makes_is_believed_by_whoever_trusts_it() {
        let (_directory, site) = site();
        let alice = site.person("alice", None, Life::of(now(), 9000)).unwrap();
        assert_eq!(alice.subject, "/O=Grid/CN=alice");
        assert_eq!(alice.files.iter().map(|file| mode(file)).collect::<Vec<_>>(), [0o644, 0o600]);
        let place = |at: usize| Place { path: alice.files[at].clone(), variable: None };
        let own = credential::read(&Source::Pair(place(0), place(1)), site.uid, &|_| None).unwrap();
        let file = site.directory.join("proxy");
        let kind = ProxyKind::rfc(Policy::InheritAll);
        proxy(&own, &kind, Life::of(now(), 500), &file, false).unwrap();
        assert_eq!(mode(&file), 0o600);
        let proxy = credential::from_pem(&fs::read(&file).unwrap()).unwrap();
        let judge = Judge::new(Arc::new(Anchors::load(&site.certificates()).unwrap()));
        let others: Vec<_> = proxy.chain.iter().map(|above| above.as_ref()).collect();
        let judged = judge.judge(&proxy.certificate, &others, now()).map_err(|refusal| refusal.fault).unwrap();
        assert_eq!(judged.peer.subject, "/O=Grid/CN=alice");
        site.map(&alice.subject, "ada").unwrap();
        assert_eq!(GridMap::parse(&fs::read(site.gridmap()).unwrap()).accounts(&alice.subject), ["ada"]);
    }

    #[test]
    fn nothing_is_overwritten() {
        let (_directory, site) = site();
        let life = Life::of(now(), 9000);
        let code = |result: Result<Made, TrustFault>| result.unwrap_err().code;
        let again = site.authority("/O=Grid/CN=Other", "/O=Grid/*", life);
        assert_eq!(code(again), FaultCode::AlreadyExists);
        assert_eq!(fs::read_dir(site.certificates()).unwrap().count(), 2, "nor half of it made");
        let names = ["dtn.example.org".to_owned(), "192.0.2.1".to_owned()];
        let host = site.host(&names, None, life).unwrap();
        assert_eq!(host.subject, "/O=Grid/CN=dtn.example.org");
        assert_eq!(code(site.host(&names, None, life)), FaultCode::AlreadyExists);
        let own =
            credential::from_pem(&[fs::read(&host.files[0]).unwrap(), fs::read(&host.files[1]).unwrap()].concat());
        let (own, kind, file) = (own.unwrap(), ProxyKind::rfc(Policy::Limited), site.directory.join("proxy"));
        proxy(&own, &kind, life, &file, false).unwrap();
        let before = fs::read(&file).unwrap();
        assert_eq!(code(proxy(&own, &kind, life, &file, false)), FaultCode::AlreadyExists);
        assert_eq!(fs::read(&file).unwrap(), before);
        proxy(&own, &kind, life, &file, true).unwrap();
        assert_ne!(fs::read(&file).unwrap(), before);
        assert_eq!(mode(&file), 0o600);
    }

    #[test]
    fn names_that_would_lead_elsewhere_are_refused() {
        let (_directory, site) = site();
        for name in ["", "../x", "a/CN=b", ".hidden", "a\nb"] {
            assert_eq!(
                site.person(name, None, Life::of(now(), 9)).unwrap_err().code,
                FaultCode::InvalidArgument,
                "{name}"
            );
        }
        assert!(site.map("/O=Grid/CN=a", "root,ada").is_err());
        let quoted = Site::new(site.directory.join("other"), site.uid);
        assert!(quoted.authority("/O=Grid'/CN=x", "/O=Grid'/*", Life::of(now(), 9)).is_err());
    }
}

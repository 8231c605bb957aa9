//! A grid of its own: one authority, hosts and people, in files as every grid program reads them.
//!
//! Keys are RSA with 2048 bits, which all programs of the field can use; making one takes a tenth of a second and more.

mod voms;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use tempfile::TempDir;
use whimbrel_proto::timeval::Timestamp;
use whimbrel_proto::x509::Policy;
use whimbrel_trust::make::{self, HostName, KeyKind, Life, ProxyKind, Purpose};
use whimbrel_trust::{OwnChain, TrustFault};

use crate::error::{Attempt, Error, Result};
use crate::peers::{GridftpServerBuilder, Tool, public_dir};

pub use self::voms::Membership;

/// How long certificates are good, seconds.
const LIFE: i64 = 24 * 3600;

/// An authority and the directory with everything it made.
#[derive(Debug)]
pub struct Pki {
    directory: TempDir,
    authority: OwnChain,
}

/// A credential and the file it is in.
#[derive(Clone, Debug)]
pub struct Member {
    /// Certificate, key and the certificates above.
    pub own: OwnChain,
    /// The file: certificate, key, chain; for its owner's eyes only.
    pub file: PathBuf,
}

impl Pki {
    /// A new authority, `/O=Grid/CN=Test CA`, which may sign everything below `/O=Grid`.
    pub fn new() -> Result<Pki> {
        let key = made(make::key(KeyKind::Rsa(2048)))?;
        let certificate = made(make::authority("/O=Grid/CN=Test CA", &key, None, life(LIFE), None))?;
        let hash = certificate.subject_name_hash();
        let authority = OwnChain { certificate, key, chain: Vec::new() };
        let pki = Pki { directory: public_dir()?, authority };
        fs::create_dir(pki.certificates()).attempt(|| "making the directory of authorities".to_owned())?;
        let pem = pki.authority.certificate.to_pem().map_err(|error| failed(&error))?;
        let policy =
            "access_id_CA X509 '/O=Grid/CN=Test CA'\npos_rights globus CA:sign\ncond_subjects globus '\"/O=Grid/*\"'\n";
        put(&pki.certificates().join(format!("{hash:08x}.0")), &pem, 0o644)?;
        put(&pki.certificates().join(format!("{hash:08x}.signing_policy")), policy.as_bytes(), 0o644)?;
        Ok(pki)
    }

    /// The directory of authorities, for `X509_CERT_DIR`.
    pub fn certificates(&self) -> PathBuf {
        self.directory.path().join("certificates")
    }

    /// The authority.
    pub fn authority(&self) -> &OwnChain {
        &self.authority
    }

    /// A host with these names and addresses; the first names it.
    pub fn host(&self, names: &[&str]) -> Result<Member> {
        let first = names.first().copied().unwrap_or("localhost");
        let kind = |name: &&str| name.parse().map_or_else(|_| HostName::Dns((*name).to_owned()), HostName::Address);
        let purpose = Purpose::Host(names.iter().map(kind).collect());
        self.issue(&format!("/O=Grid/CN={first}"), &purpose, first)
    }

    /// A person, `/O=Grid/CN=NAME`.
    pub fn person(&self, name: &str) -> Result<Member> {
        self.issue(&format!("/O=Grid/CN={name}"), &Purpose::Person, name)
    }

    /// A proxy as people make them: of RFC 3820, with all rights.
    pub fn usual_proxy(&self, of: &Member, file: &str) -> Result<Member> {
        self.proxy(of, &ProxyKind::rfc(Policy::InheritAll), file)
    }

    /// A proxy of somebody, good for an hour, in a file of this name.
    pub fn proxy(&self, of: &Member, kind: &ProxyKind, file: &str) -> Result<Member> {
        self.proxy_for(of, kind, 3600, file)
    }

    /// As [`Pki::proxy`], good for so many seconds; one that has expired for a negative number.
    pub fn proxy_for(&self, of: &Member, kind: &ProxyKind, seconds: i64, file: &str) -> Result<Member> {
        let own = made(make::own_proxy(&of.own, KeyKind::Rsa(2048), kind, life(seconds)))?;
        self.keep(own, file)
    }

    /// A proxy of somebody with all rights, good for so many seconds; below zero it is past.
    pub fn full_proxy(&self, of: &Member, seconds: i64, file: &str) -> Result<Member> {
        let kind = ProxyKind::rfc(Policy::InheritAll);
        let own = made(make::own_proxy(&of.own, KeyKind::Rsa(2048), &kind, life(seconds)))?;
        self.keep(own, file)
    }

    /// Has the authority revoke the certificates of these people and hosts.
    pub fn revoke(&self, members: &[&Member]) -> Result<()> {
        let serial = |member: &&Member| member.own.certificate.serial_number().to_bn().map(|number| number.to_vec());
        let serials: Vec<_> =
            members.iter().map(serial).collect::<std::result::Result<_, _>>().map_err(|e| failed(&e))?;
        let serials: Vec<&[u8]> = serials.iter().map(Vec::as_slice).collect();
        let list = made(make::revocations(&self.authority, &serials, life(LIFE)))?;
        let pem = list.to_pem().map_err(|error| failed(&error))?;
        let hash = self.authority.certificate.subject_name_hash();
        put(&self.certificates().join(format!("{hash:08x}.r0")), &pem, 0o644)
    }

    /// A grid-mapfile in which each of these people has this account.
    pub fn gridmap(&self, accounts: &[(&str, &str)]) -> Result<PathBuf> {
        let lines = accounts.iter().map(|(person, account)| format!("\"/O=Grid/CN={person}\" {account}\n"));
        let path = self.directory.path().join("grid-mapfile");
        put(&path, lines.collect::<String>().as_bytes(), 0o644)?;
        Ok(path)
    }

    fn issue(&self, subject: &str, purpose: &Purpose, file: &str) -> Result<Member> {
        let own = made(make::issue(subject, KeyKind::Rsa(2048), purpose, life(LIFE), &self.authority))?;
        self.keep(own, file)
    }

    fn keep(&self, own: OwnChain, file: &str) -> Result<Member> {
        let path = self.directory.path().join(format!("{file}.pem"));
        put(&path, &made(make::to_pem(&own))?, 0o600)?;
        Ok(Member { own, file: path })
    }
}

impl GridftpServerBuilder {
    /// Gives it a host's credential, the grid's authorities and a grid-mapfile, so that it takes GSI logins.
    pub fn gsi(self, pki: &Pki, host: &Member, gridmap: &Path) -> GridftpServerBuilder {
        self.env("X509_CERT_DIR", pki.certificates())
            .env("X509_USER_CERT", &host.file)
            .env("X509_USER_KEY", &host.file)
            .env("GRIDMAP", gridmap)
    }
}

impl Tool {
    /// Runs it as somebody of a grid, with his certificate or proxy.
    pub fn as_member(self, pki: &Pki, who: &Member) -> Tool {
        self.env("X509_CERT_DIR", pki.certificates()).env("X509_USER_PROXY", &who.file)
    }
}

fn life(seconds: i64) -> Life {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64);
    Life::of(Timestamp::from_secs(now), seconds)
}

fn put(path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
    let what = || format!("writing {}", path.display());
    fs::write(path, bytes).attempt(what)?;
    fs::set_permissions(path, Permissions::from_mode(mode)).attempt(what)
}

fn made<T>(result: std::result::Result<T, TrustFault>) -> Result<T> {
    result.map_err(|fault| failed(&fault))
}

fn failed(reason: &dyn std::fmt::Display) -> Error {
    Error::new("making a certificate".to_owned(), reason.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::{self, GridftpServer};

    #[test]
    fn the_real_programs_live_in_this_grid() {
        let (Some(server), Some(copy)) = (GridftpServer::builder(), peers::url_copy()) else { return };
        let pki = Pki::new().unwrap();
        let host = pki.host(&["localhost", "127.0.0.1"]).unwrap();
        let alice = pki.person("alice").unwrap();
        let proxy = pki.usual_proxy(&alice, "proxy").unwrap();
        let account = if rustix::process::geteuid().is_root() { "nobody".to_owned() } else { whoami() };
        let gridmap = pki.gridmap(&[("alice", &account)]).unwrap();
        let server = server.gsi(&pki, &host, &gridmap).start().unwrap();
        let files = public_dir().unwrap();
        let (from, to) = (files.path().join("from"), files.path().join("to"));
        put(&from, b"bytes of a grid", 0o644).unwrap();
        let url = format!("gsiftp://localhost:{}{}", server.addr().port(), peers::url_path(&from));
        let run = copy.arg("-dcpriv").arg(url).arg(peers::file_url(&to)).as_member(&pki, &proxy).run_ok();
        assert_eq!(fs::read(&to).unwrap(), b"bytes of a grid", "{run}");
    }

    fn whoami() -> String {
        Tool::new("id").arg("-un").run_ok().stdout_text().trim().to_owned()
    }
}

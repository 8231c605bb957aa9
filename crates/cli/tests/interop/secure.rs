//! Over TLS: our servers have a certificate and one user with a password; data connections are encrypted.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;
use whimbrel_testkit::peers::{Tool, public_dir};
use whimbrel_testkit::pki::Pki;

use crate::support::WHIMBREL;

/// The authority, and the files that servers and clients need.
pub struct Secure {
    _pki: Pki,
    directory: TempDir,
    /// Configuration of our servers.
    pub config: PathBuf,
    /// The authority that clients trust, PEM.
    pub authority: PathBuf,
}

impl Secure {
    /// Whom servers know.
    pub const USER: &str = "anna";
    /// Her password, with a character that URLs and scripts quote.
    pub const PASSWORD: &str = "pass word";

    /// A new one.
    pub fn new() -> Self {
        let (pki, directory) = (Pki::new().unwrap(), public_dir().unwrap());
        let host = pki.host(&["localhost", "127.0.0.1", "::1"]).unwrap();
        let at = |name: &str| directory.path().join(name);
        let (authority, users, config) = (at("authority.pem"), at("users"), at("dtn.toml"));
        fs::write(&authority, pki.authority().certificate.to_pem().unwrap()).unwrap();
        let hash = Tool::new(WHIMBREL).args(["dtn", "--hash-password"]).input(Self::PASSWORD).run_ok().stdout_text();
        fs::write(&users, format!("{}:{hash}", Self::USER)).unwrap();
        let text = format!("users = {users:?}\n[tls]\ncertificate = {0:?}\nkey = {0:?}\n", host.file);
        fs::write(&config, text).unwrap();
        Self { _pki: pki, directory, config, authority }
    }

    /// User and password as URLs have them.
    pub fn in_urls() -> String {
        format!("{}:{}", Self::USER, Self::PASSWORD.replace(' ', "%20"))
    }

    /// `curl`, which insists on TLS for control and data.
    pub fn curl(&self, tool: Tool) -> Tool {
        let user = format!("{}:{}", Self::USER, Self::PASSWORD);
        tool.args(["--ssl-reqd", "--user", &user, "--cacert"]).arg(&self.authority)
    }

    /// Commands that have `lftp` insist on TLS for control and data, and how it opens a server.
    pub fn lftp(&self) -> (String, String) {
        let settings = format!(
            "set ssl:ca-file {:?}; set ftp:ssl-force yes; set ftp:ssl-protect-data yes; ",
            self.authority.display().to_string()
        );
        (settings, format!("-u {},'{}' ", Self::USER, Self::PASSWORD))
    }

    /// Our client, which finds the authority among those of the system, and known hosts of nobody's.
    pub fn whimbrel(&self, tool: Tool) -> Tool {
        tool.env("SSL_CERT_FILE", &self.authority).env("XDG_CONFIG_HOME", self.directory.path())
    }
}

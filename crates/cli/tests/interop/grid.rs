//! Over GSI: servers of both kinds know alice, and all clients are alice.

use std::fs;
use std::path::PathBuf;

use whimbrel_testkit::peers::Tool;
use whimbrel_testkit::pki::{Member, Pki};

/// Who is certified, and the files that servers need.
pub struct Grid {
    /// The authority.
    pub pki: Pki,
    /// The credential of servers.
    pub host: Member,
    /// Whom servers know.
    pub gridmap: PathBuf,
    /// Configuration of our servers.
    pub config: PathBuf,
    proxy: Member,
}

impl Grid {
    /// A new one.
    pub fn new() -> Self {
        let pki = Pki::new().unwrap();
        let (host, alice) = (pki.host(&["localhost", "127.0.0.1", "::1"]).unwrap(), pki.person("alice").unwrap());
        let proxy = pki.usual_proxy(&alice, "proxy").unwrap();
        let account = match rustix::process::geteuid().is_root() {
            true => "nobody".to_owned(),
            false => Tool::new("id").arg("-un").run_ok().stdout_text().trim().to_owned(),
        };
        let gridmap = pki.gridmap(&[("alice", &account)]).unwrap();
        let config = gridmap.with_file_name("dtn.toml");
        let (file, authorities) = (&host.file, pki.certificates());
        let text = format!("[gsi]\ncertificate = {file:?}\nauthorities = {authorities:?}\ngridmap = {gridmap:?}\n");
        fs::write(&config, text).unwrap();
        Self { pki, host, gridmap, config, proxy }
    }

    /// A client program, as alice.
    pub fn known(&self, tool: Tool) -> Tool {
        tool.as_member(&self.pki, &self.proxy)
    }
}

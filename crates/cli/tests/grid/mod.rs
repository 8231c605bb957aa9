//! A grid for these tests: one authority, alice with a proxy, and servers of both makes that know her.
#![allow(clippy::unwrap_used, reason = "a test helper that fails ends its test")]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use whimbrel_testkit::peers::{GridftpServer, Tool, url_copy, url_path};
use whimbrel_testkit::pki::{Member, Pki};

use crate::support::account;
use crate::support::dtn::{Dtn, DtnBuilder};

/// The authority and who is certified.
pub struct Grid {
    /// The authority, with its files.
    pub pki: Pki,
    /// A person whom servers know.
    pub alice: Member,
    proxy: Member,
    host: Member,
    gridmap: PathBuf,
}

/// Whose server it is.
#[derive(Clone, Copy)]
pub enum Kind {
    /// `whimbrel dtn --gsi`.
    Ours,
    /// `globus-gridftp-server`.
    Theirs,
}

/// A running server of either make.
pub enum Server {
    /// Ours.
    Ours(Dtn),
    /// The real one.
    Theirs(GridftpServer),
}

impl Grid {
    /// Everybody has a certificate; `None` where the real programs are missing.
    #[track_caller]
    pub fn new() -> Option<Self> {
        url_copy()?;
        GridftpServer::builder()?;
        let pki = Pki::new().unwrap();
        let (host, alice) = (pki.host(&["localhost", "127.0.0.1"]).unwrap(), pki.person("alice").unwrap());
        let proxy = pki.usual_proxy(&alice, "proxy").unwrap();
        let gridmap = pki.gridmap(&[("alice", &account())]).unwrap();
        Some(Self { pki, alice, proxy, host, gridmap })
    }

    /// A server with all of this host below it.
    pub fn start(&self, kind: Kind) -> Server {
        match kind {
            Kind::Ours => Server::Ours(self.ours().start()),
            Kind::Theirs => {
                let server = GridftpServer::builder().expect("looked for before");
                Server::Theirs(server.gsi(&self.pki, &self.host, &self.gridmap).start().unwrap())
            }
        }
    }

    /// What describes our server.
    pub fn ours(&self) -> DtnBuilder {
        let config = self.gridmap.with_file_name("dtn.toml");
        let (authorities, host) = (self.pki.certificates(), &self.host.file);
        std::fs::write(&config, format!("[gsi]\ncertificate = {host:?}\nauthorities = {authorities:?}\n")).unwrap();
        let server = Dtn::builder().root(Path::new("/")).arg("--config").arg(config);
        server.arg("--gridmap").arg(&self.gridmap)
    }

    /// `globus-url-copy` as alice.
    pub fn copy(&self) -> Tool {
        self.copy_as(&self.proxy.file)
    }

    /// `globus-url-copy` with a proxy.
    pub fn copy_as(&self, proxy: &Path) -> Tool {
        let copy = url_copy().expect("looked for before");
        copy.env("X509_CERT_DIR", self.pki.certificates()).env("X509_USER_PROXY", proxy)
    }

    /// Another program as alice.
    pub fn with_proxy(&self, tool: Tool) -> Tool {
        tool.as_member(&self.pki, &self.proxy)
    }
}

impl Server {
    /// Where its control connections go.
    pub fn addr(&self) -> SocketAddr {
        match self {
            Self::Ours(server) => server.addr(),
            Self::Theirs(server) => server.addr(),
        }
    }

    /// The URL of an absolute path on it.
    pub fn url(&self, path: &Path) -> String {
        format!("gsiftp://localhost:{}{}", self.addr().port(), url_path(path))
    }
}

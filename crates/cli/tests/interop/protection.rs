//! The same table over protected connections: over GSI, over TLS and over ssh, as a whole with `WHIMBREL_INTEROP_OVER=gsi|tls|ssh`, a few
//! cases of each in every run.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use whimbrel_testkit::peers::{self, Tool, url_path};
use whimbrel_testkit::require_root;

use crate::case::{Case, Program};
use crate::grid::Grid;
use crate::secure::Secure;
use crate::shells::Shells;

/// The variable that chooses what connections are protected by.
const VARIABLE: &str = "WHIMBREL_INTEROP_OVER";

/// What control connections are protected by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Nothing.
    Clear,
    /// AUTH GSSAPI with certificates.
    Gsi,
    /// AUTH TLS and a password, with data connections encrypted.
    Tls,
    /// ssh, which starts the servers.
    Ssh,
}

impl Protection {
    /// All but none.
    pub const ALL: [Self; 3] = [Self::Gsi, Self::Tls, Self::Ssh];

    /// What a run was asked to protect all of its cases by.
    pub fn wanted() -> Self {
        let Ok(word) = std::env::var(VARIABLE) else { return Self::Clear };
        let known = Self::ALL.into_iter().find(|protection| protection.word() == word);
        known.unwrap_or_else(|| panic!("{VARIABLE} is `gsi`, `tls`, `ssh` or not set, not `{word}`"))
    }

    /// Its word, for names.
    pub fn word(self) -> &'static str {
        match self {
            Self::Clear => "clear",
            Self::Gsi => "gsi",
            Self::Tls => "tls",
            Self::Ssh => "ssh",
        }
    }

    /// The page with its table, in `docs/reference`.
    pub fn page(self) -> &'static str {
        match self {
            Self::Clear => "interop.md",
            Self::Gsi => "interop-gsi.md",
            Self::Tls => "interop-tls.md",
            Self::Ssh => "interop-ssh.md",
        }
    }

    /// Whether a case can be tried with it: whether both programs know it, and nobody needs to look into the connections.
    pub fn fits(self, case: &Case) -> bool {
        use Program::{Curl, Ftplib, Gfal2, Lftp, UrlCopy, Whimbrel};
        let knows = |programs: &[Program]| !case.clear && programs.contains(&case.program);
        match self {
            Self::Clear => true,
            Self::Gsi => knows(&[UrlCopy, Whimbrel, Gfal2]),
            // The real server has GSI alone.
            Self::Tls => knows(&[Whimbrel, Curl, Lftp, Ftplib]) && !case.needs_server && !case.not_over_tls,
            Self::Ssh => knows(&[UrlCopy, Whimbrel]) && !case.own_address,
        }
    }

    /// Whether the programs are here that it needs, and the rights; where nothing may be skipped they have to be.
    pub fn is_here(self) -> bool {
        let programs: &[&str] = match self {
            Self::Clear | Self::Gsi | Self::Tls => &[],
            Self::Ssh => &Shells::PROGRAMS,
        };
        programs.iter().all(|program| peers::require(program).is_some()) && (self != Self::Ssh || require_root())
    }

    /// Makes what it needs.
    pub fn prepare(self) {
        let site = match self {
            Self::Clear => Site::Clear,
            Self::Gsi => Site::Gsi(Arc::new(Grid::new())),
            Self::Tls => Site::Tls(Arc::new(Secure::new())),
            Self::Ssh => Site::Ssh(Arc::new(Shells::new())),
        };
        *SITE.lock().unwrap_or_else(PoisonError::into_inner) = site;
    }

    /// Takes that away.
    pub fn clear_away() {
        Self::Clear.prepare();
    }
}

/// What connections of this moment are protected by, and the files of that.
#[derive(Clone)]
pub enum Site {
    Clear,
    Gsi(Arc<Grid>),
    Tls(Arc<Secure>),
    Ssh(Arc<Shells>),
}

static SITE: Mutex<Site> = Mutex::new(Site::Clear);

impl Site {
    /// That of this moment.
    pub fn now() -> Self {
        SITE.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A client program, as somebody whom servers know.
    pub fn known(&self, tool: Tool) -> Tool {
        match self {
            Self::Gsi(grid) => grid.known(tool),
            Self::Clear | Self::Tls(_) | Self::Ssh(_) => tool,
        }
    }

    /// How our server lets that somebody in.
    pub fn let_in(&self, command: &mut Command) {
        match self {
            Self::Gsi(grid) => command.arg("--config").arg(&grid.config),
            Self::Tls(secure) => command.arg("--config").arg(&secure.config),
            Self::Clear | Self::Ssh(_) => command.arg("--anonymous"),
        };
    }

    /// The URL of an absolute path, for programs that know all schemes.
    pub fn url(&self, address: SocketAddr, path: impl AsRef<OsStr>) -> String {
        let path = url_path(path);
        match self {
            // Certificates are for names.
            Self::Gsi(_) if address.is_ipv4() => format!("gsiftp://localhost:{}{path}", address.port()),
            Self::Gsi(_) => format!("gsiftp://{address}{path}"),
            Self::Tls(_) => format!("whimbrel://{}@{address}{path}", Secure::in_urls()),
            Self::Ssh(_) => format!("sshftp://{}@{address}{path}", Shells::NAME),
            Self::Clear => format!("ftp://{address}{path}"),
        }
    }
}

//! Loopback with logins and data protected: ours over TLS, the peers over GSI.

use std::path::{Path, PathBuf};

use tempfile::TempDir;
use whimbrel_testkit::peers::{GridftpServer, Tool};
use whimbrel_testkit::pki::{Member, Pki};
use whimbrel_trust::make::ProxyKind;

use crate::case::{Case, Contender};
use crate::logins::Logins;
use crate::options::Options;
use crate::servers::{Pair, Programs, Server, open_over_tls};
use crate::versus::Versus;
use crate::{Measured, Outcome};

const GIB: u64 = 1 << 30;

/// Certificates, servers that show them, and whoever uses them.
struct Grid<'a> {
    programs: &'a Programs,
    pki: Pki,
    proxy: Member,
    own: Pair,
    real: Pair,
    /// Our servers without TLS, for what a protected login costs.
    open: Pair,
    /// The real ones without GSI, against which the figures are.
    peers: Pair,
    /// Settings of our client.
    settings: TempDir,
}

/// Measures the section.
pub fn measure(options: &Options, programs: &Programs, done: &mut Measured) -> Outcome<()> {
    let grid = Grid::start(programs)?;
    done.add(grid.encrypted(options.size(4 * GIB, GIB)), options.rounds);
    let Grid { own: safe, open, peers, .. } = &grid;
    let person = (&grid.pki, &grid.proxy);
    Logins { programs, safe, open, peers, person, settings: grid.settings.path() }.measure(options, done)
}

impl<'a> Grid<'a> {
    fn start(programs: &'a Programs) -> Outcome<Self> {
        let pki = Pki::new()?;
        let host = pki.host(&["localhost", "127.0.0.1"])?;
        let person = pki.person("alice")?;
        let proxy = pki.proxy(&person, &ProxyKind::rfc(whimbrel_proto::x509::Policy::InheritAll), "proxy")?;
        let gridmap = pki.gridmap(&[("alice", "nobody")])?;
        let settings = tempfile::tempdir()?;
        let config = config(settings.path(), &host, (&pki, &gridmap))?;
        let own = || Server::configured(programs, None, &config);
        let real = || -> Outcome<Server> {
            let builder = GridftpServer::builder().ok_or("globus-gridftp-server is not installed")?;
            Server::start_real(builder.gsi(&pki, &host, &gridmap))
        };
        let own = Pair { source: own()?, destination: own()? };
        let real = Pair { source: real()?, destination: real()? };
        let (open, peers) = (Pair::own(programs, None)?, Pair::real(None)?);
        Ok(Self { programs, own, real, open, peers, settings, proxy, pki })
    }

    /// Data encrypted.
    fn encrypted(&self, bytes: u64) -> Case<'_> {
        let contenders = vec![
            self.cp("whimbrel --encrypt", &["--encrypt"], "whimbrel", &self.own, bytes),
            self.guc("guc -dcpriv", &["-dcpriv"], bytes),
            self.guc("guc -dcpriv -p 4", &["-dcpriv", "-p", "4"], bytes),
        ];
        let peers = ["guc -dcpriv", "guc -dcpriv -p 4"];
        let comparisons = peers.map(|peer| Versus::new("whimbrel --encrypt", peer).as_fast(1.7).at_cpu(0.75)).to_vec();
        Case { name: "data encrypted".into(), bytes, files: 1, contenders, comparisons }
    }

    fn cp<'b>(
        &'b self,
        name: &'static str,
        flags: &'static [&'static str],
        scheme: &'static str,
        pair: &'b Pair,
        bytes: u64,
    ) -> Contender<'b> {
        let client = move || {
            let cp = self.programs.cp().env("XDG_CONFIG_HOME", self.settings.path());
            cp.args(flags).args(["--no-verify".to_owned(), format!("--length={bytes}")])
        };
        let command = format!("whimbrel cp --no-verify {}", flags.join(" "));
        contender(name, command, scheme, pair, client)
    }

    fn guc<'b>(&'b self, name: &'static str, flags: &'static [&'static str], bytes: u64) -> Contender<'b> {
        let client = move || {
            let guc = self.programs.guc().as_member(&self.pki, &self.proxy).arg("-fast").args(flags);
            guc.args(["-len".to_owned(), bytes.to_string()])
        };
        contender(name, format!("globus-url-copy -fast {}", flags.join(" ")), "gsiftp", &self.real, client)
    }
}

fn contender<'a>(
    name: &'static str,
    command: String,
    scheme: &'static str,
    pair: &'a Pair,
    client: impl Fn() -> Tool + 'a,
) -> Contender<'a> {
    // The real programs ask the name service for the name of an address, and compare it with the certificate.
    let host = if scheme == "gsiftp" { "localhost" } else { "127.0.0.1" };
    let urls = move || {
        let url = |server: &Server, path| format!("{scheme}://{host}:{}{path}", server.address.port());
        [url(&pair.source, "/dev/zero"), url(&pair.destination, "/dev/null")]
    };
    Contender { name, command, servers: pair.ids(), run: Box::new(move || pair.time(client().args(urls()))) }
}

/// Our server's configuration: anybody over TLS, and mapped users with certificates.
fn config(directory: &Path, host: &Member, (pki, gridmap): (&Pki, &Path)) -> Outcome<PathBuf> {
    let path = directory.join("dtn.toml");
    let (file, authorities) = (&host.file, pki.certificates());
    let gsi = format!("[gsi]\ncertificate = {file:?}\nauthorities = {authorities:?}\ngridmap = {gridmap:?}\n");
    std::fs::write(&path, open_over_tls(host) + &gsi)?;
    Ok(path)
}

//! The programs that compete, and their servers: two of each kind, anonymous, handling data as `nobody`.

use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use whimbrel_testkit::cpu::Meter;
use whimbrel_testkit::lab::Host;
use whimbrel_testkit::measure::Copies;
use whimbrel_testkit::peers::{self, Daemon, GridftpServer, GridftpServerBuilder, Tool, url_path};
use whimbrel_testkit::pki::Member;

use crate::Outcome;
use crate::case::Sample;

/// Time until a server must be ready.
const START_LIMIT: Duration = Duration::from_secs(20);
/// Time that one command may take; slower is a failure to measure.
const RUN_LIMIT: Duration = Duration::from_secs(300);

/// Where the programs are.
pub struct Programs {
    pub whimbrel: PathBuf,
    pub floor: PathBuf,
    pub url_copy: PathBuf,
    _copies: Copies,
}

impl Programs {
    /// Finds the peers, and copies our own programs.
    pub fn find() -> Outcome<Programs> {
        let copies = Copies::of_beside(&["whimbrel", "floor"])?;
        let (whimbrel, floor) = (copies.path("whimbrel"), copies.path("floor"));
        let url_copy = peers::find("globus-url-copy").ok_or("globus-url-copy is not installed")?;
        Ok(Programs { whimbrel, floor, url_copy, _copies: copies })
    }

    /// Our client's `cp`.
    pub fn cp(&self) -> Tool {
        Tool::new(&self.whimbrel).args(["cp", "--quiet"]).limit(RUN_LIMIT)
    }

    /// The peers' client.
    pub fn guc(&self) -> Tool {
        Tool::new(&self.url_copy).limit(RUN_LIMIT)
    }
}

/// A running server of either kind.
pub struct Server {
    pub address: SocketAddr,
    ids: Vec<u32>,
    _running: Running,
}

/// Keeps a server running.
#[expect(dead_code, reason = "held for its drop")]
enum Running {
    Own(Daemon),
    Real(GridftpServer),
}

/// A source and a destination of the same kind.
pub struct Pair {
    pub source: Server,
    pub destination: Server,
}

impl Server {
    fn own(programs: &Programs, host: Option<&Host>) -> Outcome<Server> {
        Self::start_own(programs, host, &["--root", "/", "--anonymous"].map(OsStr::new))
    }

    fn start_own(programs: &Programs, host: Option<&Host>, arguments: &[&OsStr]) -> Outcome<Server> {
        let mut command = Command::new(&programs.whimbrel);
        let address = host.map_or("127.0.0.1".to_owned(), |host| host.addr().to_string());
        command.args(["dtn", "--listen", &format!("{address}:0")]).args(arguments);
        if let Some(host) = host {
            host.adopt(&mut command);
        }
        Self::running(command)
    }

    /// One of ours with a configuration file, on a host of a laboratory or on this one.
    pub fn configured(programs: &Programs, host: Option<&Host>, config: &Path) -> Outcome<Server> {
        Self::start_own(programs, host, &[OsStr::new("--config"), config.as_os_str()])
    }

    fn running(command: Command) -> Outcome<Server> {
        let ready = |line: &str| line.strip_prefix("listening on ftp://")?.trim_end_matches('/').parse().ok();
        let (daemon, address) = Daemon::start(command, START_LIMIT, ready)?;
        Ok(Server { address, ids: vec![daemon.id()], _running: Running::Own(daemon) })
    }

    fn real(host: Option<&Host>) -> Outcome<Server> {
        let builder = GridftpServer::builder().ok_or("globus-gridftp-server is not installed")?;
        Self::start_real(host.map_or(builder.clone(), |host| builder.on(host).address(host.addr())))
    }

    /// A real one as described.
    pub fn start_real(builder: GridftpServerBuilder) -> Outcome<Server> {
        let server = builder.start()?;
        Ok(Server { address: server.addr(), ids: server.ids(), _running: Running::Real(server) })
    }

    /// The URL of an absolute path on it.
    pub fn url(&self, path: impl AsRef<Path>) -> String {
        format!("ftp://{}{}", self.address, url_path(path.as_ref()))
    }
}

impl Pair {
    /// Two of ours, on these hosts of a laboratory or on this one.
    pub fn own(programs: &Programs, hosts: Option<(&Host, &Host)>) -> Outcome<Pair> {
        let (source, destination) = hosts.unzip();
        Ok(Pair { source: Server::own(programs, source)?, destination: Server::own(programs, destination)? })
    }

    /// Two of the real ones.
    pub fn real(hosts: Option<(&Host, &Host)>) -> Outcome<Pair> {
        let (source, destination) = hosts.unzip();
        Ok(Pair { source: Server::real(source)?, destination: Server::real(destination)? })
    }

    /// The process ids of both.
    pub fn ids(&self) -> Vec<u32> {
        self.source.ids.iter().chain(&self.destination.ids).copied().collect()
    }

    /// Runs a client against them.
    pub fn time(&self, client: Tool) -> Outcome<Sample> {
        self.time_with(client, || Ok(()))
    }

    /// Runs a client against them and then what still belongs to the work.
    pub fn time_with(&self, client: Tool, then: impl FnOnce() -> Outcome<()>) -> Outcome<Sample> {
        let meter = Meter::start(&self.ids());
        let run = succeed(client)?;
        let start = Instant::now();
        then()?;
        let wall = run.wall + start.elapsed();
        Ok(Sample { wall, cpu: run.cpu + meter.spent(), trips: None })
    }
}

/// Our server's configuration: anybody over TLS.
pub fn open_over_tls(host: &Member) -> String {
    format!("anonymous = true\nroot = \"/\"\n[tls]\ncertificate = {0:?}\nkey = {0:?}\n", host.file)
}

/// Runs a command that must succeed to count.
pub fn succeed(tool: Tool) -> Outcome<peers::Run> {
    let run = tool.run()?;
    if run.success() { Ok(run) } else { Err(run.to_string().into()) }
}

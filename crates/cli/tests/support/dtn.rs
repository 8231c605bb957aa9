//! `whimbrel dtn` in every shape: alone, as a front end, as a data node; on this host or in a laboratory.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use whimbrel_testkit::lab::Host;
use whimbrel_testkit::metrics;
use whimbrel_testkit::peers::{Daemon, url_path};
use whimbrel_testkit::pki::{Member, Pki};
use whimbrel_testkit::starved::Starved;

use super::WHIMBREL;

/// Time for anything here to happen on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The description of a server.
pub struct DtnBuilder {
    program: Command,
    arguments: Vec<OsString>,
    environment: Vec<(String, OsString)>,
    host: Option<Host>,
    address: IpAddr,
}

/// A running server; dropping it ends it with its data processes.
pub struct Dtn {
    /// The process that was started.
    pub daemon: Daemon,
    host: Option<Host>,
    control: SocketAddr,
    metrics: SocketAddr,
    nodes: Option<SocketAddr>,
}

impl Dtn {
    /// A server on 127.0.0.1; nobody may log in before [`DtnBuilder::anonymous`].
    pub fn builder() -> DtnBuilder {
        let (program, address) = (Command::new(WHIMBREL), [127, 0, 0, 1].into());
        DtnBuilder { program, arguments: Vec::new(), environment: Vec::new(), host: None, address }
    }

    /// A server on a host of a laboratory.
    pub fn on(host: &Host) -> DtnBuilder {
        DtnBuilder { host: Some(host.clone()), address: host.addr(), ..Dtn::builder() }
    }

    /// Where it listens for control connections.
    pub fn addr(&self) -> SocketAddr {
        self.control
    }

    /// Where data nodes join.
    pub fn node_addr(&self) -> SocketAddr {
        self.nodes.expect("a front end was asked for")
    }

    /// The URL of an absolute path on it.
    pub fn url(&self, path: impl AsRef<Path>) -> String {
        format!("ftp://{}{}", self.control, url_path(path.as_ref()))
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        self.daemon.log()
    }

    /// Waits until its log has a line with all of these.
    #[track_caller]
    pub fn wait_for_log(&self, parts: &[&str]) {
        let says = || self.log().lines().any(|line| parts.iter().all(|part| line.contains(part)));
        until(&format!("a log line with {parts:?}"), says);
    }

    /// One value of its metrics page.
    pub fn metric(&self, name: &str) -> u64 {
        metrics::value(&self.metrics(), name)
    }

    /// Its metrics page.
    pub fn metrics(&self) -> String {
        match &self.host {
            Some(host) => host.run(|| metrics::page(self.metrics)),
            None => metrics::page(self.metrics),
        }
    }

    /// Waits until so many data nodes serve it.
    #[track_caller]
    pub fn wait_for_nodes(&self, count: usize) {
        until(&format!("{count} data nodes"), || {
            let log = self.log();
            let said = |what: &str| log.lines().filter(|line| line.contains(what)).count();
            said("data node joined") == said("data node left") + count
        });
    }
}

impl DtnBuilder {
    /// Listens at this address, of either family.
    pub fn at(self, address: IpAddr) -> Self {
        Self { address, ..self }
    }

    /// Lets everybody in.
    pub fn anonymous(self) -> Self {
        self.arg("--anonymous")
    }

    /// Is one of those that share a part of a processor.
    pub fn starved(self, group: &Starved) -> Self {
        Self { program: group.command(Path::new(WHIMBREL)), ..self }
    }

    /// Adds an argument.
    pub fn arg(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Sets a variable of its environment.
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Self {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    /// Lets in whom the grid-mapfile names, as a host of a grid.
    pub fn gsi(mut self, pki: &Pki, host: &Member, gridmap: &Path) -> Self {
        let places = [
            ("X509_CERT_DIR", pki.certificates()),
            ("X509_USER_CERT", host.file.clone()),
            ("X509_USER_KEY", host.file.clone()),
            ("GRIDMAP", gridmap.to_owned()),
        ];
        self.environment.extend(places.map(|(name, path)| (name.to_owned(), path.into_os_string())));
        self.arg("--gsi")
    }

    /// Serves this directory as `/`.
    pub fn root(self, directory: &Path) -> Self {
        self.arg("--root").arg(directory)
    }

    /// Lets data nodes join that know the secret in a file.
    pub fn front(self, secret: &Path) -> Self {
        let listen = SocketAddr::new(self.address, 0).to_string();
        self.arg("--node-listen").arg(listen).arg("--node-secret").arg(secret)
    }

    /// Starts it and waits until it serves.
    pub fn start(self) -> Dtn {
        let any = SocketAddr::new(self.address, 0).to_string();
        let mut command = self.program;
        command.args(["dtn", "--listen", &any, "--metrics", &any]).args(self.arguments).envs(self.environment);
        if let Some(host) = &self.host {
            host.adopt(&mut command);
        }
        let (daemon, metrics) = Daemon::start(command, PATIENCE, metrics::announced).expect("the server starts");
        let find = |prefix: &str| {
            let log = daemon.log();
            let found = log.lines().find_map(|line| line.strip_prefix(prefix).map(|rest| rest.trim_end_matches('/')));
            found.and_then(|address| address.parse().ok())
        };
        let control = find("listening on ftp://").expect("it says where it listens");
        let nodes = find("data nodes join at ");
        Dtn { control, nodes, metrics, host: self.host, daemon }
    }
}

/// Starts a data node on a host, with its data at this address, and waits until it has joined.
pub fn data_node(host: Option<&Host>, address: IpAddr, front: SocketAddr, secret: &Path) -> Daemon {
    let joined = |line: &str| line.starts_with("joined ").then_some(());
    Daemon::start(data_node_command(host, address, front, secret), PATIENCE, joined).expect("the node joins").0
}

/// The command of a data node.
pub fn data_node_command(host: Option<&Host>, address: IpAddr, front: SocketAddr, secret: &Path) -> Command {
    let mut command = Command::new(WHIMBREL);
    command.args(["dtn", "--data-node-of", &front.to_string(), "--node-secret"]).arg(secret);
    command.args(["--data-interface", &address.to_string()]);
    if let Some(host) = host {
        host.adopt(&mut command);
    }
    command
}

/// Waits for a condition; panics when it does not come true in time.
#[track_caller]
pub fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "{what} did not come");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

//! `globus-gridftp-server`, anonymous and in the clear, alone or as a striped front end with data nodes.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use super::{Daemon, require, url_path};
use crate::error::{Error, Result};
use crate::lab::Host;

/// Time until it must listen; it takes some 50 ms.
const START_LIMIT: Duration = Duration::from_secs(20);

/// The description of a [`GridftpServer`].
#[derive(Clone, Debug)]
pub struct GridftpServerBuilder {
    program: PathBuf,
    place: Place,
    user: String,
    arguments: Vec<OsString>,
    environment: Vec<(String, OsString)>,
    nodes: Vec<Place>,
}

/// Where one server process runs and which address it uses.
#[derive(Clone, Debug)]
struct Place {
    host: Option<Host>,
    address: IpAddr,
}

/// A running server; dropping it ends it, its sessions and its data nodes.
#[derive(Debug)]
pub struct GridftpServer {
    front: Daemon,
    nodes: Vec<Daemon>,
    address: SocketAddr,
}

impl GridftpServer {
    /// A server on 127.0.0.1 that acts as `nobody` for anonymous users; `None` when the program is missing and the
    /// test may be skipped.
    #[track_caller]
    pub fn builder() -> Option<GridftpServerBuilder> {
        let program = require("globus-gridftp-server")?;
        let place = Place { host: None, address: Ipv4Addr::LOCALHOST.into() };
        let (arguments, environment, nodes) = Default::default();
        Some(GridftpServerBuilder { program, place, user: "nobody".into(), arguments, environment, nodes })
    }

    /// Where it listens for control connections.
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// An `ftp://` URL of an absolute path on it.
    pub fn url(&self, path: impl AsRef<std::ffi::OsStr>) -> String {
        format!("ftp://{}{}", self.address, url_path(path))
    }

    /// The process that clients connect to.
    pub fn front(&self) -> &Daemon {
        &self.front
    }

    /// The data nodes, in the order of the description.
    pub fn nodes(&self) -> &[Daemon] {
        &self.nodes
    }

    /// Ends one data node at once, as a crash does, and waits until it is gone; panics when there is none of that
    /// number. The others keep their order.
    pub fn kill_node(&mut self, number: usize) {
        self.nodes.remove(number).kill();
    }

    /// The process ids of the front end and its nodes, for [`crate::cpu`].
    pub fn ids(&self) -> Vec<u32> {
        std::iter::once(&self.front).chain(&self.nodes).map(Daemon::id).collect()
    }
}

impl GridftpServerBuilder {
    /// Runs it on a host of the laboratory, at that host's first address.
    pub fn on(mut self, host: &Host) -> GridftpServerBuilder {
        self.place = Place { host: Some(host.clone()), address: host.addr() };
        self
    }

    /// Advertises this address for data; clients connect to it, though on a host of the laboratory the server
    /// listens on all addresses of that host.
    pub fn address(mut self, address: IpAddr) -> GridftpServerBuilder {
        self.place.address = address;
        self
    }

    /// Acts as this user when started by root; `root` is allowed.
    pub fn user(mut self, user: &str) -> GridftpServerBuilder {
        self.user = user.into();
        self
    }

    /// Adds an argument, to the front end and to the data nodes.
    pub fn arg(mut self, argument: impl Into<OsString>) -> GridftpServerBuilder {
        self.arguments.push(argument.into());
        self
    }

    /// Sets an environment variable of the front end and of the data nodes.
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> GridftpServerBuilder {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Adds a data node at this address of the host that the front end is on so far.
    pub fn data_node(mut self, address: IpAddr) -> GridftpServerBuilder {
        self.nodes.push(Place { host: self.place.host.clone(), address });
        self
    }

    /// Adds a data node at this address of another host.
    pub fn data_node_on(mut self, host: &Host, address: IpAddr) -> GridftpServerBuilder {
        self.nodes.push(Place { host: Some(host.clone()), address });
        self
    }

    /// Starts the data nodes and then the front end, each on a port that the system chooses, and waits for them.
    pub fn start(self) -> Result<GridftpServer> {
        let mut nodes = Vec::new();
        let mut contacts: Vec<String> = Vec::new();
        for place in &self.nodes {
            let (node, port) = self.launch(place, &["-dn".into()])?;
            nodes.push(node);
            contacts.push(SocketAddr::new(place.address, port).to_string());
        }
        let remote = if contacts.is_empty() { vec![] } else { vec!["-r".into(), contacts.join(",").into()] };
        let (front, port) = self.launch(&self.place, &remote)?;
        Ok(GridftpServer { front, nodes, address: SocketAddr::new(self.place.address, port) })
    }

    fn launch(&self, place: &Place, role: &[OsString]) -> Result<(Daemon, u16)> {
        let (daemon, port) = Daemon::start(self.command(place, role), START_LIMIT, listening_port)?;
        if port == 0 {
            return Err(Error::new(format!("starting {}", daemon.command()), "it listens on no port"));
        }
        Ok((daemon, port))
    }

    fn command(&self, place: &Place, role: &[OsString]) -> Command {
        let mut command = Command::new(&self.program);
        // The machine's own configuration file must not decide a test.
        command.args(["-c", "/dev/null", "-aa", "-p", "0"]);
        command.arg("-data-interface").arg(place.address.to_string());
        // Told its interface, the server must find a name for that address, and a namespace has no name service.
        if place.host.is_none() {
            command.arg("-control-interface").arg(place.address.to_string());
        }
        if rustix::process::geteuid().is_root() {
            command.args(["-anonymous-user", &self.user]);
            command.args((self.user == "root").then_some("-allow-root"));
        }
        command.args(role).args(&self.arguments);
        for name in ["GLOBUS_TCP_PORT_RANGE", "GLOBUS_TCP_SOURCE_RANGE", "GLOBUS_HOSTNAME"] {
            command.env_remove(name);
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        if let Some(host) = &place.host {
            host.adopt(&mut command);
        }
        command
    }
}

/// The port in `Server listening at HOST:PORT`, which the server prints once it accepts connections.
fn listening_port(line: &str) -> Option<u16> {
    line.strip_prefix("Server listening at ")?.rsplit_once(':')?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_read_from_any_form_of_address() {
        for line in
            ["Server listening at localhost:4711", "Server listening at [::1]:4711", "Server listening at h:4711"]
        {
            assert_eq!(listening_port(line), Some(4711), "{line}");
        }
        assert_eq!(listening_port("Configuration error"), None);
    }
}

//! The administrator's configuration of a DTN: one TOML file, every key also a flag.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use whimbrel_engine::{Fault, FaultCode};

use crate::mover::message::{DataSettings, NodeOverrides};

/// What a DTN serves, to whom and within which limits; `None` means the documented default.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DtnConfig {
    /// Control addresses, `HOST:PORT`; port 0 takes a free one. Default: `[::]:2811`.
    pub listen: Vec<String>,
    /// Directory served as `/`. Default: `/`.
    pub root: Option<PathBuf>,
    /// Let anybody in without a password. Default: no.
    pub anonymous: bool,
    /// Account that handles anonymous data when the server is started by root. Default: `nobody`.
    pub anonymous_user: Option<String>,
    /// File of user names and password hashes.
    pub users: Option<PathBuf>,
    /// Refuse every change. Default: no.
    pub read_only: bool,
    /// Data listeners' ports, `MIN-MAX`. Default: any; GLOBUS_TCP_PORT_RANGE is honoured.
    pub data_ports: Option<String>,
    /// Address told to peers for data connections (address translation).
    pub data_address: Option<IpAddr>,
    /// Local address of data connections.
    pub data_interface: Option<IpAddr>,
    /// Where data nodes join this front, `HOST:PORT`; makes the server striped.
    pub node_listen: Option<String>,
    /// Front to serve as a data node, `HOST:PORT`.
    pub data_node_of: Option<String>,
    /// File holding the secret that data nodes and front share.
    pub node_secret: Option<PathBuf>,
    /// Where Prometheus metrics are served, `HOST:PORT`. Default: nowhere.
    pub metrics: Option<String>,
    /// Transfer log in the classic line format.
    pub transfer_log: Option<PathBuf>,
    /// Transfer log as JSON lines.
    pub transfer_log_json: Option<PathBuf>,
    /// Text sent in the greeting.
    pub banner: Option<String>,
    /// Control connections at once. Default: 1000.
    pub max_connections: Option<usize>,
    /// Memory for transfer buffers, MiB, for each direction. Default: 64.
    pub buffer_mib: Option<u64>,
    /// Flush data before reporting it. Default: no.
    pub sync_writes: bool,
    /// Seconds a control connection may be idle. Default: 600.
    pub idle_timeout: Option<u64>,
    /// Seconds before a login must be complete. Default: 120.
    pub login_timeout: Option<u64>,
    /// Seconds without progress after which a transfer has stalled. Default: 120.
    pub stall_timeout: Option<u64>,
    /// Seconds a data connection may take to be made. Default: 30.
    pub connect_timeout: Option<u64>,
    /// Congestion control of data channels. Default: the system's.
    pub congestion: Option<String>,
    /// Seconds that a drain waits for running transfers. Default: no limit.
    pub drain_timeout: Option<u64>,
}

impl DtnConfig {
    /// Reads a TOML file; unknown keys are an error.
    pub fn read(path: &Path) -> Result<Self, Fault> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Fault::from_io(error, "read configuration").subject(path.display().to_string()))?;
        toml::from_str(&text).map_err(|error| bad(path.display().to_string(), error.to_string()))
    }

    /// Reads TOML text; unknown keys are an error.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        toml::from_str(text).map_err(|error| bad("configuration", error.to_string()))
    }

    /// Control addresses with the default filled in.
    pub fn listen_addresses(&self) -> Vec<String> {
        if self.listen.is_empty() { vec!["[::]:2811".to_owned()] } else { self.listen.clone() }
    }

    /// What data processes obey.
    pub fn data_settings(&self) -> Result<DataSettings, Fault> {
        let root = self.root.clone().unwrap_or_else(|| PathBuf::from("/"));
        let root = root
            .canonicalize()
            .map_err(|error| Fault::from_io(error, "open root").subject(root.display().to_string()))?;
        Ok(DataSettings {
            root: path_bytes(&root),
            read_only: self.read_only,
            data_ports: self.port_range()?,
            data_interface: self.data_interface,
            data_address: self.data_address,
            pool_bytes: self.buffer_mib.unwrap_or(64).max(4) << 20,
            sync_writes: self.sync_writes,
            stall_timeout: seconds(self.stall_timeout, 120),
            connect_timeout: seconds(self.connect_timeout, 30),
            congestion: self.congestion.clone(),
            transfer_log: self.transfer_log.as_deref().map(path_bytes),
            transfer_log_json: self.transfer_log_json.as_deref().map(path_bytes),
        })
    }

    /// What a data node decides for itself, whatever its front says.
    pub fn node_overrides(&self) -> Result<NodeOverrides, Fault> {
        Ok(NodeOverrides {
            root: self.root.as_deref().map(path_bytes),
            data_ports: self.port_range()?,
            data_interface: self.data_interface,
            data_address: self.data_address,
        })
    }

    /// How long a control connection may be idle.
    pub fn idle_timeout(&self) -> Duration {
        seconds(self.idle_timeout, 600)
    }

    /// How long a login may take.
    pub fn login_timeout(&self) -> Duration {
        seconds(self.login_timeout, 120)
    }

    /// Control connections at once.
    pub fn max_connections(&self) -> usize {
        self.max_connections.unwrap_or(1000)
    }

    fn port_range(&self) -> Result<Option<(u16, u16)>, Fault> {
        let environment = std::env::var("GLOBUS_TCP_PORT_RANGE").ok();
        let Some(text) = self.data_ports.as_deref().or(environment.as_deref()) else {
            return Ok(None);
        };
        parse_ports(text)
            .map(Some)
            .ok_or_else(|| bad("data ports", format!("`{text}` is not MIN-MAX with 1 <= MIN <= MAX <= 65535")))
    }
}

/// `A-B`, `A,B` or `A B`, as GLOBUS_TCP_PORT_RANGE allows; a single port is a range of one.
fn parse_ports(text: &str) -> Option<(u16, u16)> {
    let mut numbers = text.split([',', '-', ' ']).filter(|part| !part.is_empty()).map(|part| part.parse::<u16>());
    let min = numbers.next()?.ok()?;
    let max = numbers.next().unwrap_or(Ok(min)).ok()?;
    (numbers.next().is_none() && 0 < min && min <= max).then_some((min, max))
}

fn seconds(value: Option<u64>, default: u64) -> Duration {
    Duration::from_secs(value.unwrap_or(default))
}

fn path_bytes(path: &Path) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt;
    path.as_os_str().as_bytes().to_vec()
}

fn bad(subject: impl Into<String>, detail: impl Into<String>) -> Fault {
    Fault::new(FaultCode::InvalidArgument, "configure").subject(subject).detail(detail)
}

/// The first address of each `HOST:PORT`.
pub fn resolve(address: &str) -> Result<SocketAddr, Fault> {
    use std::net::ToSocketAddrs;
    address
        .to_socket_addrs()
        .map_err(|error| Fault::from_io(error, "resolve").subject(address))?
        .next()
        .ok_or_else(|| Fault::new(FaultCode::HostNotFound, "resolve").subject(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_ranges_are_read_in_every_spelling_and_checked() {
        assert_eq!(parse_ports("5000-5010"), Some((5000, 5010)));
        assert_eq!(parse_ports("5000,5010"), Some((5000, 5010)));
        assert_eq!(parse_ports("5000"), Some((5000, 5000)));
        for wrong in ["", "0-5", "10-5", "1-2-3", "a-b", "1-70000"] {
            assert_eq!(parse_ports(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn an_unknown_key_is_an_error_not_a_surprise() {
        assert!(toml::from_str::<DtnConfig>("read_onyl = true").is_err());
        assert!(toml::from_str::<DtnConfig>("read_only = true\nlisten = [\"[::1]:0\"]").unwrap().read_only);
    }
}

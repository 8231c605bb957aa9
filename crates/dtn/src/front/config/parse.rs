//! From TOML text to settings, without touching a file.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use whimbrel_engine::{Fault, FaultCode};
use whimbrel_transport::tcp::PortRange;

use super::super::access::Access;
use super::DtnConfig;
use crate::mover::books::LogPaths;
use crate::mover::message::{DataPeers, DataSettings, NodeOverrides};

/// Longest time that is told from "for ever", seconds: a century, which can be added to every clock.
const LONGEST: u64 = 100 * 365 * 24 * 3600;

/// Most control connections at once.
const MOST_CONNECTIONS: usize = 1 << 20;

/// Least memory for transfer buffers, MiB.
const LEAST_BUFFER: u64 = 4;

fn buffer_bytes(mib: u64) -> u64 {
    mib.max(LEAST_BUFFER).saturating_mul(1 << 20)
}

impl DtnConfig {
    /// Reads TOML text; unknown keys are an error.
    pub fn parse(text: &str) -> Result<Self, Fault> {
        toml::from_str(text).map_err(|error| bad("configuration", error.to_string()))
    }

    /// Control addresses with the default filled in.
    pub fn listen_addresses(&self) -> Vec<String> {
        if self.listen.is_empty() { vec!["[::]:2811".to_owned()] } else { self.listen.clone() }
    }

    /// What data processes obey that serve this directory; `ports` as in [`Self::overrides`].
    ///
    /// # Errors
    /// `InvalidArgument` for data ports that are no range.
    pub fn settings_below(&self, root: &Path, ports: Option<&str>) -> Result<DataSettings, Fault> {
        Ok(DataSettings {
            root: path_bytes(root),
            read_only: self.read_only,
            data_ports: self.port_range(ports)?,
            data_interface: self.data_interface,
            data_address: self.data_address,
            pool_bytes: buffer_bytes(self.buffer_mib.unwrap_or(64)),
            sync_writes: self.sync_writes,
            direct_io: self.direct_io,
            stall_timeout: seconds(self.stall_timeout, 120),
            connect_timeout: seconds(self.connect_timeout, 30),
            congestion: self.congestion.clone(),
            lfs: self.lfs.as_deref().map(path_bytes),
            sandbox: self.sandbox,
            authorities: None,
        })
    }

    /// What a data node decides for itself; `ports` are the data ports where the configuration sets none.
    ///
    /// # Errors
    /// `InvalidArgument` for data ports that are no range.
    pub fn overrides(&self, ports: Option<&str>) -> Result<NodeOverrides, Fault> {
        Ok(NodeOverrides {
            root: self.root.as_deref().map(path_bytes),
            read_only: self.read_only,
            pool_bytes: self.buffer_mib.map(buffer_bytes),
            sync_writes: self.sync_writes,
            direct_io: self.direct_io,
            congestion: self.congestion.clone(),
            lfs: self.lfs.as_deref().map(path_bytes),
            sandbox: Some(self.sandbox),
            data_ports: self.port_range(ports)?,
            data_interface: self.data_interface,
            data_address: self.data_address,
            link_ip: None,
        })
    }

    /// Where finished transfers are written down.
    pub fn log_paths(&self) -> LogPaths {
        LogPaths { classic: self.transfer_log.clone(), json: self.transfer_log_json.clone() }
    }

    /// What the rules and limits say about logins.
    pub fn access(&self) -> Access {
        let rules = self.rules.iter().flat_map(|one| one.rules.iter().map(|rule| (one.who.clone(), rule.clone())));
        Access { rules: rules.collect(), amounts: self.limits.amounts() }
    }

    /// Who may be the other end of a data connection that proves nothing.
    ///
    /// Opening the server to everybody is the administrator's choice and, as with the reference server, admits third-party copies
    /// between stock programs, unless networks are named.
    pub fn data_peers(&self) -> DataPeers {
        match (&self.allow_third_party, self.anonymous) {
            (Some(networks), _) => DataPeers::ControlPeerAnd(networks.clone()),
            (None, true) => DataPeers::Anyone,
            (None, false) => DataPeers::ControlPeer,
        }
    }

    /// How long a control connection may be idle; a century at most.
    pub fn idle_timeout(&self) -> Duration {
        seconds(self.idle_timeout, 600)
    }

    /// How long a login may take; a century at most.
    pub fn login_timeout(&self) -> Duration {
        seconds(self.login_timeout, 120)
    }

    /// Control connections at once, 1 to 1,048,576.
    pub fn max_connections(&self) -> usize {
        self.max_connections.unwrap_or(1000).clamp(1, MOST_CONNECTIONS)
    }

    /// Of the configuration, else `otherwise`, the environment's, where empty is none.
    fn port_range(&self, otherwise: Option<&str>) -> Result<Option<(u16, u16)>, Fault> {
        let inherited = otherwise.filter(|text| !text.trim().is_empty());
        let Some(text) = self.data_ports.as_deref().or(inherited) else {
            return Ok(None);
        };
        let range: PortRange = text.parse()?;
        Ok(Some((range.min(), range.max())))
    }
}

fn seconds(value: Option<u64>, default: u64) -> Duration {
    Duration::from_secs(value.unwrap_or(default).min(LONGEST))
}

fn path_bytes(path: &Path) -> Vec<u8> {
    path.as_os_str().as_bytes().to_vec()
}

fn bad(subject: &str, detail: String) -> Fault {
    Fault::new(FaultCode::InvalidArgument, "configure").subject(subject).detail(detail)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn ports_of_the_configuration_win_over_those_of_the_environment() {
        let ports = |text: &str, environment| DtnConfig::parse(text).unwrap().overrides(environment);
        assert_eq!(ports("data_ports = \"7-9\"", Some("1-2")).unwrap().data_ports, Some((7, 9)));
        assert_eq!(ports("", Some("1,2")).unwrap().data_ports, Some((1, 2)));
        assert_eq!(ports("data_ports = \"5000\"", None).unwrap().data_ports, Some((5000, 5000)));
        assert_eq!(ports("", None).unwrap().data_ports, None);
        assert_eq!(ports("", Some(" ")).unwrap().data_ports, None);
        assert!(ports("", Some("2-1")).is_err());
    }

    #[test]
    fn third_parties_are_those_who_are_named_and_everybody_only_where_nobody_is() {
        let peers = |text: &str| DtnConfig::parse(text).unwrap().data_peers();
        assert_eq!(peers(""), DataPeers::ControlPeer);
        assert_eq!(peers("anonymous = true"), DataPeers::Anyone);
        let named = peers("anonymous = true\nallow_third_party = [\"192.0.2.0/24\", \"2001:db8::/32\"]");
        let address = |text: &str| text.parse::<std::net::IpAddr>().unwrap();
        for (from, admitted) in [
            ("192.0.2.9", true),
            ("::ffff:192.0.2.9", true),
            ("2001:db8::1", true),
            ("198.51.100.1", true),
            ("198.51.100.2", false),
        ] {
            assert_eq!(named.admits(address(from), Some(address("198.51.100.1"))), admitted, "{from}");
        }
        assert!(!peers("anonymous = true\nallow_third_party = []").admits(address("192.0.2.9"), None));
        let fault = DtnConfig::parse("allow_third_party = [\"192.0.2.9/24\"]").unwrap_err().to_string();
        assert!(fault.contains("192.0.2.0/24"), "{fault}");
    }

    #[test]
    fn an_unknown_key_is_an_error_not_a_surprise() {
        assert!(DtnConfig::parse("read_onyl = true").is_err());
        let direct = |text| DtnConfig::parse(text).unwrap().settings_below(Path::new("/"), None).unwrap().direct_io;
        assert_eq!([direct(""), direct("direct_io = true")], [false, true]);
        assert!(DtnConfig::parse("read_only = true\nlisten = [\"[::1]:0\"]").unwrap().read_only);
    }

    #[test]
    fn the_largest_numbers_stay_usable() {
        let most = i64::MAX;
        let text = ["idle_timeout", "login_timeout", "connect_timeout", "buffer_mib", "max_connections"]
            .map(|key| format!("{key} = {most}\n"))
            .concat();
        let config = DtnConfig::parse(&text).unwrap();
        let settings = config.settings_below(Path::new("/"), None).unwrap();
        for time in [config.idle_timeout(), config.login_timeout(), settings.connect_timeout] {
            assert!(Instant::now().checked_add(time).is_some());
        }
        assert_eq!((settings.pool_bytes, config.max_connections()), (u64::MAX, 1 << 20));
    }
}

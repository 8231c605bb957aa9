//! The administrator's configuration of a DTN: one TOML file, whose keys are those of the flags and more.

mod access;
mod gsi;
mod host;
mod join;
mod kerberos;
mod limits;
mod mapping;
mod parse;
mod rules;
mod tokens;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::rules::Networks;

use crate::confine::Sandbox;
use crate::mover::message::{DataSettings, NodeOverrides};
use crate::small;
pub use access::AccessRule;
pub use gsi::{GsiConfig, GsiPlaces};
pub use host::closed_to;
pub use join::JoinConfig;
pub use kerberos::KerberosConfig;
pub use limits::{Limits, LimitsOf};
pub use mapping::{AccountsConfig, MappingConfig, ProofKind};
pub use rules::ChunkingRule;
pub use tokens::{IssuerConfig, TokensConfig};

/// Longest configuration file, bytes.
const LONGEST: u64 = 1 << 20;

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
    /// TLS of control connections. Default: none.
    pub tls: Option<TlsConfig>,
    /// Logins with grid certificates. Default: none.
    pub gsi: Option<GsiConfig>,
    /// Logins with bearer tokens. Default: none.
    pub tokens: Option<TokensConfig>,
    /// The managed service that this server belongs to. Default: none.
    pub join: Option<JoinConfig>,
    /// Logins with Kerberos. Default: none.
    pub kerberos: Option<KerberosConfig>,
    /// Files of rules from identities to accounts, asked in this order after the grid-mapfile. Default: none.
    pub mapping: Vec<MappingConfig>,
    /// Which accounts such logins may lead to.
    pub accounts: AccountsConfig,
    /// Take passwords over connections in clear. Default: no.
    pub clear_text_passwords: bool,
    /// Refuse data connections in clear. Default: no.
    pub encrypt_data: bool,
    /// Networks that data connections may lead to and come from besides the client's own address, where they prove nothing
    /// themselves. Default: all with `anonymous`, else none.
    pub allow_third_party: Option<Networks>,
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
    /// Control connections at once, 1 to 1,048,576. Default: 1000.
    pub max_connections: Option<usize>,
    /// Memory for transfer buffers, MiB, for each direction; at least 4. Default: 64.
    pub buffer_mib: Option<u64>,
    /// Flush data before reporting it. Default: no.
    pub sync_writes: bool,
    /// Write and read files of 64 MiB or more past the page cache (`O_DIRECT`). Default: no.
    pub direct_io: bool,
    /// Announce GET and PUT of GridFTP v2 (`GETPUT`), which are understood anyway. Default: no, because `globus-url-copy` then
    /// makes new data connections for each file, and breaks down with `-pp`.
    pub announce_get_put: bool,
    /// Seconds a control connection may be idle. Default: 600.
    pub idle_timeout: Option<u64>,
    /// Seconds before a login must be complete. Default: 120.
    pub login_timeout: Option<u64>,
    /// Seconds without progress after which a transfer has stalled. Default: 120.
    pub stall_timeout: Option<u64>,
    /// Seconds a data connection may take to be made. Default: 30.
    pub connect_timeout: Option<u64>,
    /// Refuse to measure storage and network for clients (`whimbrel probe`). Default: no.
    pub no_probe: bool,
    /// Congestion control of data channels, where clients choose none. Default: the system's.
    pub congestion: Option<String>,
    /// The program `lfs`, which spreads large new files on Lustre; empty: never. Default: `/usr/bin/lfs` where it is.
    pub lfs: Option<PathBuf>,
    /// How clients are to move large files, the first rule that fits counts; at most 1024. Default: as they see fit.
    #[serde(deserialize_with = "rules::bounded")]
    pub chunking: Vec<ChunkingRule>,
    /// What may be done where, and by whom; at most 256. Default: everything by everybody, as far as file permissions go.
    #[serde(deserialize_with = "access::bounded")]
    pub rules: Vec<AccessRule>,
    /// How many connections and how much traffic, of whom. Default: no more than `max_connections` in all.
    pub limits: Limits,
    /// Seconds that a drain waits for running transfers. Default: no limit.
    pub drain_timeout: Option<u64>,
    /// Whether front and data processes are confined: `auto` as far as the kernel can, `require` or do not start, `off`.
    /// Default: `auto`.
    pub sandbox: Sandbox,
}

/// TLS of control connections: AUTH TLS on the control addresses, and addresses where TLS comes before the greeting.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsConfig {
    /// PEM file: the certificate, then those between it and its root.
    pub certificate: PathBuf,
    /// PEM file of its private key.
    pub key: PathBuf,
    /// Addresses where TLS comes before the greeting, `HOST:PORT`; 990 is the usual port. Default: none.
    #[serde(default)]
    pub listen: Vec<String>,
    /// Who vouches for clients that show a certificate: a PEM file, a directory of such files, or `gsi` for those of grid certificates.
    /// Default: clients are not asked for one.
    #[serde(default)]
    pub clients: Option<PathBuf>,
}

impl DtnConfig {
    /// Reads a TOML file; unknown keys are an error.
    pub fn read(path: &Path) -> Result<Self, Fault> {
        let text = small::read_text(path, "read configuration", LONGEST)?;
        Self::parse(&text).map_err(|fault| fault.subject(path.display().to_string()))
    }

    /// Whether `mapping` is asked about this kind of proof.
    pub fn maps(&self, kind: ProofKind) -> bool {
        self.mapping.iter().any(|one| one.is_for(kind))
    }

    /// True if it says how anybody may log in.
    pub fn names_logins(&self) -> bool {
        self.anonymous
            || self.users.is_some()
            || self.gsi.is_some()
            || self.kerberos.is_some()
            || self.tokens.is_some()
            || self.join.is_some()
            || !self.mapping.is_empty()
    }

    /// Whether passwords may come in clear.
    ///
    /// # Errors
    /// `InvalidArgument`: there are passwords, and no other way for them to come.
    pub fn takes_clear_text_passwords(&self) -> Result<bool, Fault> {
        if self.clear_text_passwords || self.tls.is_some() {
            return Ok(self.clear_text_passwords);
        }
        if self.users.is_none() {
            // Nobody has one, and there is no protected way to point to.
            return Ok(true);
        }
        let fault = Fault::new(FaultCode::InvalidArgument, "configure").subject("users").side(Side::Us);
        Err(fault.detail(
            "without a certificate ([tls], see `whimbrel cert`) passwords cross the network in clear: give the server one, \
             or say that you want it so (clear_text_passwords = true, --clear-text-passwords)",
        ))
    }

    /// The service with which this server leaves connections, because it takes none; `None`: it listens.
    ///
    /// # Errors
    /// `InvalidArgument`: something else is to listen.
    pub fn outbound(&self) -> Result<Option<String>, Fault> {
        let Some(join) = self.join.as_ref().filter(|join| join.outbound) else { return Ok(None) };
        let listens = [
            ("listen", !self.listen.is_empty()),
            ("[tls] listen", self.tls.as_ref().is_some_and(|tls| !tls.listen.is_empty())),
            ("node_listen", self.node_listen.is_some()),
            ("[join] https", join.https.is_some()),
            ("[join] relay", join.relay.is_some()),
            ("[join] addresses", !join.addresses.is_empty()),
        ];
        match listens.iter().find(|(_, is)| *is) {
            Some((name, _)) => {
                let fault = Fault::new(FaultCode::InvalidArgument, "configure").subject(*name);
                Err(fault.detail("a server that only makes connections (outbound) cannot be reached there"))
            }
            None => Ok(Some(join.service.clone())),
        }
    }

    /// What data processes obey. Data ports not set here come from GLOBUS_TCP_PORT_RANGE.
    pub fn data_settings(&self) -> Result<DataSettings, Fault> {
        let settings = self.settings_below(&self.directory()?, environment_ports().as_deref())?;
        self.fits_host(settings.data_ports)?;
        let authorities = self.gsi_places()?.map(|places| places.authorities.into_os_string().into_encoded_bytes());
        Ok(DataSettings { authorities, ..settings })
    }

    /// Where what logins with certificates need lies on this host; `None`: there are no such logins.
    ///
    /// # Errors
    /// `CredentialMissing` for what is nowhere.
    pub fn gsi_places(&self) -> Result<Option<GsiPlaces>, Fault> {
        let environment = |name: &str| std::env::var_os(name);
        let uid = rustix::process::geteuid().as_raw();
        self.gsi.as_ref().map(|gsi| gsi.places(&environment, uid)).transpose()
    }

    /// The file that maps subjects and principals to accounts, if there is one.
    ///
    /// # Errors
    /// As [`Self::gsi_places`]; `InvalidArgument` for two files, of which one would not be read.
    pub fn account_file(&self) -> Result<Option<PathBuf>, Fault> {
        let gridmap = self.gsi_places()?.map(|places| places.gridmap);
        let accounts = self.kerberos.as_ref().and_then(|kerberos| kerberos.accounts.clone());
        match (&gridmap, &accounts) {
            (Some(gridmap), Some(accounts)) if gridmap != accounts => {
                let fault = Fault::new(FaultCode::InvalidArgument, "configure").subject(accounts.display().to_string());
                let detail = format!(
                    "[kerberos] accounts is not read beside the grid-mapfile {}: write its lines there",
                    gridmap.display()
                );
                Err(fault.side(Side::Us).detail(detail))
            }
            _ => Ok(gridmap.or(accounts)),
        }
    }

    /// What a data node decides for itself, whatever its front says. Data ports as in [`Self::data_settings`].
    pub fn node_overrides(&self) -> Result<NodeOverrides, Fault> {
        let own = self.overrides(environment_ports().as_deref())?;
        self.fits_host(own.data_ports)?;
        Ok(own)
    }
}

fn environment_ports() -> Option<String> {
    std::env::var("GLOBUS_TCP_PORT_RANGE").ok()
}

/// The first address of each `HOST:PORT`.
pub fn resolve(address: &str) -> Result<SocketAddr, Fault> {
    use std::net::ToSocketAddrs;
    let unclear = |error: std::io::Error| {
        let fault = Fault::from_io(error, "resolve").subject(address);
        // What the library says of a missing port is "invalid socket address".
        let hint = "an address with its port is wanted, as in 0.0.0.0:2811, [::]:2811 or dtn.example.org:2811";
        if fault.code == FaultCode::InvalidArgument { fault.detail(hint) } else { fault }
    };
    address
        .to_socket_addrs()
        .map_err(unclear)?
        .next()
        .ok_or_else(|| Fault::new(FaultCode::HostNotFound, "resolve").subject(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_used_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("dtn.toml");
        let named = |fault: Fault| assert_eq!(fault.subject, path.display().to_string());
        named(DtnConfig::read(&path).unwrap_err());
        std::fs::write(&path, "read_onyl = true").unwrap();
        named(DtnConfig::read(&path).unwrap_err());
        std::fs::write(&path, "read_only = true").unwrap();
        assert!(DtnConfig::read(&path).unwrap().read_only);
    }

    #[test]
    fn passwords_need_tls_or_a_word_of_the_administrators() {
        let (users, tls) = ("users = \"/u\"\n", "[tls]\ncertificate = \"/c\"\nkey = \"/k\"\n");
        let taken = |text: String| DtnConfig::parse(&text).unwrap().takes_clear_text_passwords().map_err(|f| f.code);
        assert_eq!(taken(users.into()), Err(FaultCode::InvalidArgument));
        assert_eq!(taken(format!("{users}[gsi]\n")), Err(FaultCode::InvalidArgument));
        assert_eq!(taken(format!("{users}{tls}")), Ok(false));
        for tls in ["", tls] {
            assert_eq!(taken(format!("clear_text_passwords = true\n{users}{tls}")), Ok(true));
        }
        assert_eq!(taken("anonymous = true".into()), Ok(true));
        assert_eq!(taken(format!("anonymous = true\n{tls}")), Ok(false));
    }

    #[test]
    fn who_only_makes_connections_listens_nowhere() {
        let outbound = |text: &str| {
            let text = format!("{text}\n[join]\nservice = \"https://s\"\noutbound = true\n");
            DtnConfig::parse(&text).unwrap().outbound()
        };
        assert_eq!(outbound("").unwrap().as_deref(), Some("https://s"));
        for text in ["listen = [\"[::1]:0\"]", "node_listen = \"[::1]:0\""] {
            assert_eq!(outbound(text).unwrap_err().code, FaultCode::InvalidArgument, "{text}");
        }
        assert_eq!(DtnConfig::parse("[join]\nservice = \"https://s\"").unwrap().outbound().unwrap(), None);
    }

    #[test]
    fn a_root_that_does_not_exist_is_refused_at_start() {
        let dir = tempfile::tempdir().unwrap();
        let with_root = |root: PathBuf| DtnConfig { root: Some(root), ..DtnConfig::default() }.data_settings();
        assert_eq!(with_root(dir.path().join("none")).unwrap_err().code, FaultCode::NotFound);
        let real = dir.path().canonicalize().unwrap();
        assert_eq!(with_root(dir.path().join(".")).unwrap().root, real.as_os_str().as_encoded_bytes());
    }
}

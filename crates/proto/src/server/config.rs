//! What the administrator decides about a control connection.

use std::net::IpAddr;
use std::time::Duration;

use crate::eblock::MOST_CONNECTIONS;
use crate::op::Bounds;
use crate::policy::Rule;

/// One checksum the data side can compute, as FEAT lists it after login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChecksumAlgorithm {
    /// Upper-case name, e.g. `SHA256`.
    pub name: String,
    /// Preference announced to clients; lower is preferred.
    pub preference: u16,
}

impl ChecksumAlgorithm {
    /// An algorithm with its preference.
    pub fn new(name: &str, preference: u16) -> Self {
        Self { name: name.to_ascii_uppercase(), preference }
    }
}

/// An administrator's rule with those whom it is for.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PolicyRule {
    /// Login name; `None`: everybody.
    pub user: Option<String>,
    /// Text of SITE TASKID; `None`: whatever the client says.
    pub label: Option<Vec<u8>>,
    /// Where, and what.
    pub rule: Rule,
}

impl PolicyRule {
    /// Whether it is for this login with this label.
    pub fn is_for(&self, user: Option<&str>, label: Option<&[u8]>) -> bool {
        let fits = |wanted: Option<&[u8]>, is: Option<&[u8]>| wanted.is_none() || wanted == is;
        fits(self.user.as_deref().map(str::as_bytes), user.map(str::as_bytes)) && fits(self.label.as_deref(), label)
    }
}

/// How a connection and its data connections may be protected. By default nothing is offered, and every reply is that of a server that has
/// never heard of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mechanisms {
    /// AUTH TLS (RFC 4217).
    pub tls: bool,
    /// AUTH GSSAPI (RFC 2228): GSI or Kerberos, which the driver tells apart.
    pub gssapi: bool,
    /// The connection runs through ssh, which protects it and has said who logs in.
    pub ssh: bool,
    /// Passwords are taken over a connection in clear; default true. Anonymous logins have none.
    pub clear_text_passwords: bool,
    /// Data connections must be protected: PROT C is refused (534), and without PROT P there is no data handle (521).
    pub private_data: bool,
}

impl Mechanisms {
    /// True if anything can protect a connection.
    pub(super) fn any(&self) -> bool {
        self.tls || self.gssapi || self.ssh
    }
}

impl Default for Mechanisms {
    fn default() -> Self {
        Self { tls: false, gssapi: false, ssh: false, clear_text_passwords: true, private_data: false }
    }
}

/// Settings of one [`ServerControl`](super::ServerControl); the defaults are those of the reference server.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Host name in the greeting.
    pub host: String,
    /// Software name and version, in the greeting and in SITE VERSION.
    pub software: String,
    /// Address at which clients reach the control connection; EPSV names a listener's address only when it differs
    /// (a data node on another host). `None`: never.
    pub control_address: Option<IpAddr>,
    /// Lines shown before the greeting's last line; `None`: a one-line greeting.
    pub banner: Option<String>,
    /// Time allowed until a login succeeds; default 120 s.
    pub login_timeout: Duration,
    /// Time without a command after which a logged-in client is dropped; default 600 s. A running operation is not idle.
    pub idle_timeout: Duration,
    /// Failed logins after which the connection is closed; default 5.
    pub max_login_failures: u32,
    /// Commands that may wait while another runs; default 1000. One more closes the connection.
    pub pipeline_limit: usize,
    /// Bytes of waiting commands; default 1 MiB. More closes the connection.
    pub pipeline_bytes: usize,
    /// Commands whose operations are handed to the data side ahead of their turn; default 32, 0: none.
    pub run_ahead: usize,
    /// Longest command line, bytes without line end; default 256 KiB (a REST list or a credential may be long).
    pub max_line: usize,
    /// Longest command line before login; default 16 KiB.
    pub max_line_before_login: usize,
    /// Replies kept until the peer reads them, bytes; commands wait beyond it. Default 64 KiB.
    pub max_unsent: usize,
    /// The anonymous user may log in; shapes the text of 331 only.
    pub anonymous: bool,
    /// What protects connections; default nothing.
    pub mechanisms: Mechanisms,
    /// Refuse everything that changes storage (550).
    pub read_only: bool,
    /// Checksums of CKSM, SCKS, SITE STORATTR, SITE LEAVES and SITE CHUNK.
    pub checksums: Vec<ChecksumAlgorithm>,
    /// Further names for SITE LEAVES and SITE CHUNK alone: what leaves have and whole files have not. Default none.
    pub leaf_checksums: Vec<String>,
    /// Announce GETPUT (the commands work anyway). Default false: on seeing it, globus-url-copy 10.12 stops reusing data
    /// connections, and dies of a segmentation fault with `-pp`.
    pub announce_get_put: bool,
    /// Announce REVERSE and let either side of MODE E listen; default true.
    pub reverse: bool,
    /// Make data connections and take none: announce OUTBOUND and refuse PASV, EPSV and SPAS (502); default false.
    pub outbound: bool,
    /// Announce DCNONCE and DCRELAY, and accept SITE DCNONCE and SITE DCRELAY; default true.
    pub data_nonce: bool,
    /// Join data connections of other servers: announce RELAY and accept SITE RELAY; default false.
    pub relay: bool,
    /// Most that one measurement may take (SITE PROBE, ERET M and D, ESTO M and D); `None`: refused, and PROBE is not
    /// announced. Default: 16 GiB, 60 s.
    pub probe: Option<Bounds>,
    /// Congestion controls that clients may choose (SITE CONGESTION), the host's own first; default none: refused and not announced.
    pub congestion: Vec<String>,
    /// Rules for files in chunks (SITE POLICY), the first that fits counts; default none: refused and not announced.
    pub rules: Vec<PolicyRule>,
    /// Which start of its host the server belongs to, in letters, digits and hyphens: announced with SYNC, so that clients notice a host
    /// that has lost what was not written to its disks. `None`: not told.
    pub start: Option<String>,
    /// Processors that transfers may use, above 0, in hundredths: announced with PROCESSORS. `None`: not told.
    pub processors: Option<f64>,
    /// Further FEAT lines, without the leading space.
    pub extra_features: Vec<String>,
    /// Interval of 112 markers while a file arrives in MODE E; default 5 s.
    pub performance_interval: Duration,
    /// Interval of 111 markers while a file arrives in MODE E; default 5 s.
    pub range_interval: Duration,
    /// Most data connections a client may ask for; more are cut to it. Default [`MOST_CONNECTIONS`].
    pub max_parallelism: u16,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            host: "localhost".into(),
            software: concat!("Whimbrel ", env!("CARGO_PKG_VERSION")).into(),
            control_address: None,
            banner: None,
            login_timeout: Duration::from_secs(120),
            idle_timeout: Duration::from_secs(600),
            max_login_failures: 5,
            pipeline_limit: 1000,
            pipeline_bytes: 1 << 20,
            run_ahead: 32,
            max_line: 256 << 10,
            max_line_before_login: 16 << 10,
            max_unsent: 64 << 10,
            anonymous: false,
            mechanisms: Mechanisms::default(),
            read_only: false,
            checksums: default_checksums(),
            leaf_checksums: Vec::new(),
            announce_get_put: false,
            reverse: true,
            outbound: false,
            data_nonce: true,
            relay: false,
            probe: Some(Bounds { bytes: 16 << 30, time: Duration::from_secs(60) }),
            congestion: Vec::new(),
            rules: Vec::new(),
            start: None,
            processors: None,
            extra_features: Vec::new(),
            performance_interval: Duration::from_secs(5),
            range_interval: Duration::from_secs(5),
            max_parallelism: MOST_CONNECTIONS,
        }
    }
}

/// The reference server's list with its preferences.
fn default_checksums() -> Vec<ChecksumAlgorithm> {
    [("MD5", 10), ("ADLER32", 10), ("SHA1", 10), ("SHA256", 11), ("SHA512", 12)]
        .into_iter()
        .map(|(name, preference)| ChecksumAlgorithm::new(name, preference))
        .collect()
}

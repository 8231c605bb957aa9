//! What all control connections of a DTN share.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use whimbrel_engine::{Fault, FaultCode};
use whimbrel_proto::server::{ChecksumAlgorithm, Secret, ServerConfig};

use super::config::{ChunkingRule, DtnConfig};
use super::connection::Ends;
use super::dataside::{self, Account, DataSide};
use super::metrics::Metrics;
use super::nodes::NodeSecret;
use super::plane::Plane;
use super::users::UsersFile;
use crate::mover::message::{DataPeers, Identity, Secrets};

/// Checksums that every data side computes, with the preference told to clients (lower is better).
const CHECKSUMS: &[(&str, u16)] = &[
    ("MD5", 10),
    ("ADLER32", 10),
    ("SHA1", 10),
    ("SHA256", 11),
    ("SHA512", 12),
    ("XXH3_128", 5),
    ("CRC32C", 6),
    ("BLAKE3", 7),
];

/// What leaves have besides, in the same spelling.
const LEAF_CHECKSUMS: &[&str] = &["BLAKE3_TREE"];

/// A DTN's settings, logins and data side.
pub struct Server {
    config: DtnConfig,
    host: String,
    users: Option<UsersFile>,
    anonymous_account: Option<Account>,
    /// Data processes and nodes.
    pub data_side: Arc<DataSide>,
    /// Counters.
    pub metrics: Metrics,
}

impl Server {
    /// Checks the configuration; `program` is this binary, started again for data processes.
    pub fn new(config: DtnConfig, program: PathBuf) -> Result<Self, Fault> {
        let root = rustix::process::geteuid().is_root();
        if !config.anonymous && config.users.is_none() {
            let nobody = Fault::new(FaultCode::InvalidArgument, "configure");
            return Err(nobody.detail("nobody could log in: give --anonymous or --users FILE"));
        }
        let anonymous_account = match &config.anonymous_user {
            Some(name) if root => Some(dataside::account(name)?),
            None if root => Some(dataside::account("nobody")?),
            _ => None,
        };
        Ok(Self {
            host: host_name(),
            users: config.users.as_deref().map(UsersFile::open).transpose()?,
            anonymous_account,
            data_side: Arc::new(DataSide::new(program, config.data_settings()?)),
            metrics: Metrics::default(),
            config,
        })
    }

    /// The administrator's configuration.
    pub fn config(&self) -> &DtnConfig {
        &self.config
    }

    /// The secret shared with data nodes.
    pub fn node_secret(&self) -> Result<NodeSecret, Fault> {
        let missing =
            || Fault::new(FaultCode::InvalidArgument, "configure").detail("data nodes need --node-secret FILE");
        NodeSecret::from_file(self.config.node_secret.as_deref().ok_or_else(missing)?)
    }

    /// Settings of a new connection's control machine.
    pub fn control_config(&self, local: Option<SocketAddr>) -> ServerConfig {
        ServerConfig {
            host: self.host.clone(),
            banner: self.config.banner.clone(),
            control_address: self.config.data_address.or(local.map(|address| address.ip())),
            login_timeout: self.config.login_timeout(),
            idle_timeout: self.config.idle_timeout(),
            anonymous: self.config.anonymous,
            read_only: self.config.read_only,
            probe: ServerConfig::default().probe.filter(|_| !self.config.no_probe),
            congestion: crate::congestion::allowed(),
            rules: self.config.chunking.iter().map(ChunkingRule::policy).collect(),
            checksums: CHECKSUMS.iter().map(|(name, preference)| ChecksumAlgorithm::new(name, *preference)).collect(),
            leaf_checksums: LEAF_CHECKSUMS.iter().map(|name| (*name).to_owned()).collect(),
            ..ServerConfig::default()
        }
    }

    /// Checks a login and attaches its data side; `Ok(None)`: refused.
    pub async fn log_in(
        self: &Arc<Self>,
        name: &str,
        password: Secret,
        ends: Ends,
    ) -> Result<Option<(String, Plane)>, Fault> {
        let Some((user, account)) = self.identify(name, password).await? else {
            return Ok(None);
        };
        let identity = Identity {
            user: user.clone(),
            control_peer: ends.peer,
            control_local: ends.local,
            // Opening the server to everybody is the administrator's choice and, as with the
            // reference server, admits third-party copies between stock programs.
            data_peers: if self.config.anonymous { DataPeers::Anyone } else { DataPeers::ControlPeer },
            secrets: Secrets::default(),
        };
        let plane = Plane::attach(self.data_side.clone(), account, identity).await?;
        Ok(Some((user, plane)))
    }

    async fn identify(
        self: &Arc<Self>,
        name: &str,
        password: Secret,
    ) -> Result<Option<(String, Option<Account>)>, Fault> {
        if self.config.anonymous && matches!(name, "anonymous" | "ftp") {
            return Ok(Some(("anonymous".to_owned(), self.anonymous_account.clone())));
        }
        let Some(users) = self.users.clone() else {
            return Ok(None);
        };
        let name = name.to_owned();
        let verified = tokio::task::spawn_blocking(move || users.verify(&name, &password.0))
            .await
            .map_err(|error| Fault::new(FaultCode::Internal, "verify password").detail(error.to_string()))??;
        let Some(user) = verified else {
            return Ok(None);
        };
        let account = match &user.account {
            Some(account) if rustix::process::geteuid().is_root() => Some(dataside::account(account)?),
            // Data of a user without an account of their own: never root's.
            _ => self.anonymous_account.clone(),
        };
        Ok(Some((user.name, account)))
    }
}

fn host_name() -> String {
    String::from_utf8_lossy(rustix::system::uname().nodename().to_bytes()).into_owned()
}

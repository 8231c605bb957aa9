//! The front as the monitor sees it: a process without rights, and what it is told.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_sys::lifetime;

use super::keeper::{account, is_root};
use super::listeners::Bound;
use super::message::{ClientAuthorities, FromMonitor, FrontSettings, GsiSettings};
use crate::front::certificate::CertificateFiles;
use crate::front::config::{ChunkingRule, DtnConfig, GsiPlaces, TokensConfig};
use crate::front::kerberos::KerberosSettings;
use crate::front::nodes::NodeSecret;
use crate::packets::Channel;
use crate::{processors, small};

const OP: &str = "start front";

/// The account of the front, started by root: its own where there is one.
const ACCOUNTS: [&str; 2] = ["whimbrel", "nobody"];

/// Starts the front and gives it its settings and listening sockets.
pub fn start(config: &DtnConfig, program: &Path, bound: &Bound) -> Result<(Child, Channel), Fault> {
    let failed = |error: io::Error| Fault::from_io(error, OP).side(Side::Us);
    let hello = FromMonitor::Hello(Box::new(settings(config, bound)?));
    let (ours, theirs) = Channel::pair().map_err(failed)?;
    ours.send(&hello, &bound.descriptors()).map_err(failed)?;
    let mut command = Command::new(program);
    command.arg("dtn-front").stdin(Stdio::from(theirs.into_fd())).stdout(Stdio::null());
    lifetime::own_session(&mut command);
    if is_root() {
        let account = ACCOUNTS.iter().find_map(|name| account(name).ok());
        let account = account.ok_or_else(|| {
            Fault::new(FaultCode::InvalidArgument, OP).detail("no account `whimbrel` or `nobody` to run it as")
        })?;
        // This also drops the supplementary groups.
        command.uid(account.uid).gid(account.gid);
    }
    Ok((command.spawn().map_err(failed)?, ours))
}

fn settings(config: &DtnConfig, bound: &Bound) -> Result<FrontSettings, Fault> {
    let node_key = match (&bound.nodes, &config.node_secret) {
        (None, _) => None,
        (Some(_), Some(path)) => Some(NodeSecret::from_file(path)?.key()),
        (Some(_), None) => {
            let fault = Fault::new(FaultCode::InvalidArgument, "configure");
            return Err(fault.detail("data nodes need --node-secret FILE"));
        }
    };
    Ok(FrontSettings {
        node_key,
        control: bound.control.len(),
        tls: bound.tls.len(),
        nodes: bound.nodes.is_some(),
        metrics: bound.metrics.is_some(),
        outbound: bound.calls.is_some(),
        relay: bound.relay.as_ref().map(|relay| relay.address),
        one: bound.connection.is_some(),
        ..front_settings(config)?
    })
}

fn gsi_settings(places: &GsiPlaces) -> Result<GsiSettings, Fault> {
    let bytes = |path: &Path| path.as_os_str().as_encoded_bytes().to_vec();
    Ok(GsiSettings {
        certificate: CertificateFiles::read(&places.certificate, &places.key)?,
        authorities: bytes(&places.authorities),
        vomsdir: bytes(&places.vomsdir),
    })
}

/// Longest text of all authorities of clients, bytes: the front is told of them in one message.
const MOST_AUTHORITIES: usize = 48 << 10;

/// The authorities in a file, or in the files of a directory.
fn client_authorities(path: &Path) -> Result<ClientAuthorities, Fault> {
    if path == Path::new("gsi") {
        return Ok(ClientAuthorities::Grid);
    }
    let (op, name) = ("read tls.clients", path.display().to_string());
    let failed = |error| Fault::from_io(error, op).subject(&name);
    let mut files = vec![path.to_owned()];
    if path.is_dir() {
        files = std::fs::read_dir(path)
            .map_err(failed)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()
            .map_err(failed)?;
        files.retain(|file| file.is_file());
        files.sort();
    }
    let mut pem = Vec::new();
    for file in files {
        let room = MOST_AUTHORITIES.saturating_sub(pem.len());
        let text = small::read(&file, op, room as u64).map_err(|fault| match fault.code {
            FaultCode::InvalidArgument => {
                let fault = Fault::new(FaultCode::InvalidArgument, op).subject(&name);
                fault.detail("more than 48 KiB of authorities: name the few that vouch for your users")
            }
            _ => fault,
        })?;
        pem.extend_from_slice(&text);
        pem.push(b'\n');
    }
    Ok(ClientAuthorities::Pem(pem))
}

/// What a front without listening sockets needs of the configuration.
pub fn front_settings(config: &DtnConfig) -> Result<FrontSettings, Fault> {
    Ok(FrontSettings {
        host: String::from_utf8_lossy(rustix::system::uname().nodename().to_bytes()).into_owned(),
        processors: processors::share(),
        banner: config.banner.clone(),
        anonymous: config.anonymous,
        passwords: config.users.is_some(),
        certificate: config.tls.as_ref().map(CertificateFiles::of_tls).transpose()?,
        gsi: config.gsi_places()?.as_ref().map(gsi_settings).transpose()?,
        clients: config.tls.as_ref().and_then(|tls| tls.clients.as_deref()).map(client_authorities).transpose()?,
        tokens: config.tokens.as_ref().map(TokensConfig::issuers).transpose()?.unwrap_or_default(),
        kerberos: config.kerberos.as_ref().map(|kerberos| KerberosSettings::read(&kerberos.keytab)).transpose()?,
        encrypt_data: config.encrypt_data,
        clear_text_passwords: config.takes_clear_text_passwords()?,
        read_only: config.read_only,
        announce_get_put: config.announce_get_put,
        probe: !config.no_probe,
        data_address: config.data_address,
        lines: config.limits.lines(),
        access: config.access(),
        data_peers: config.data_peers(),
        idle_timeout: config.idle_timeout(),
        login_timeout: config.login_timeout(),
        drain_timeout: config.drain_timeout.map(std::time::Duration::from_secs),
        max_connections: config.max_connections(),
        doors: config.limits.doors(config.max_connections()),
        rules: config.chunking.iter().map(ChunkingRule::policy).collect(),
        sandbox: config.sandbox,
        data: config.data_settings()?,
        node_key: None,
        control: 0,
        tls: 0,
        nodes: false,
        metrics: false,
        outbound: false,
        relay: None,
        one: false,
    })
}

//! The door for HTTPS: files of collections, and the manager of the endpoint's collections.
//!
//! A confined process of its own, without rights. Who may do what it asks the service; files it reads and writes through this very
//! server's control port, logged in with the token that the service gives for the user. So accounts, rules, limits and confinement are
//! those of GridFTP, and nothing here opens a file.

mod answer;
mod date;
mod flow;
mod judge;
mod manager;
pub mod range;
mod sessions;
pub mod spot;
mod web;

use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::Child;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::server::Secret;
use whimbrel_trust::tls::{Clients, ServerTls, TicketKeys};
use whimbrel_web::{Limits, Security, Server};

use crate::confine::{self, Needs, Sandbox};
use crate::front::certificate::CertificateFiles;
use crate::front::process::drain_on_signal;
use crate::helper::Helper;
use crate::monitor::keeper::Account;

const OP: &str = "serve HTTPS";

const HELPER: Helper = Helper { command: "dtn-door", op: OP };

/// What the process is told.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Settings {
    /// The service: its URL.
    pub(crate) service: String,
    /// PEM text of those who vouch for it; `None`: those of the system.
    pub(crate) authorities: Option<Vec<u8>>,
    /// This server's number there.
    pub(crate) server: String,
    /// What proves that it is this server.
    pub(crate) secret: Secret,
    /// The service's name as an issuer of tokens.
    pub(crate) issuer: String,
    /// The endpoint.
    pub(crate) endpoint: String,
    /// What it shows.
    pub(crate) certificate: CertificateFiles,
    /// The fingerprint of the key that this server's control port shows.
    pub(crate) pin: String,
    /// That port, from this host.
    pub(crate) control: SocketAddr,
    /// Whether data connections have to be encrypted, on this host, too.
    pub(crate) encrypt_data: bool,
    /// How far it is confined.
    pub(crate) sandbox: Sandbox,
}

/// Starts the process, which gets the listening socket as its standard output.
pub(crate) fn start(
    program: &Path,
    listener: &TcpListener,
    account: Option<Account>,
    settings: &Settings,
) -> Result<Child, Fault> {
    HELPER.start(program, listener, account, settings)
}

/// Serves with the settings on standard input and the socket that is standard output, to the end of the drain.
///
/// # Errors
/// They are none, or this process cannot be confined.
pub fn serve_standard_input() -> Result<(), Fault> {
    let (settings, socket): (Settings, OwnedFd) = HELPER.told()?;
    confine::enter(&Needs::fetch(), settings.sandbox)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|error| HELPER.failed(error))?;
    let result = runtime.block_on(serve(settings, socket.into()));
    runtime.shutdown_background();
    result
}

async fn serve(settings: Settings, listener: TcpListener) -> Result<(), Fault> {
    let (drain, draining) = watch::channel(false);
    drain_on_signal(drain)?;
    let own = settings.certificate.chain()?;
    let tls = TicketKeys::new().and_then(|keys| ServerTls::new(&own, &Clients::Unasked, Some(&keys)));
    let tls = tls.map_err(|fault| fault.into_fault(OP, Side::Us))?;
    let server = Server::on(listener, Security::Tls(tls), Limits::default());
    let server =
        server.map_err(|error| Fault::new(FaultCode::Internal, OP).side(Side::Us).detail(error.to_string()))?;
    server.serve(web::router(settings)?, draining).await;
    Ok(())
}

//! One control connection on standard input and output, as sshd or inetd starts it.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use socket2::{SockAddr, SockRef};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, Stdin, Stdout};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::watch;
use whimbrel_engine::{Fault, FaultCode, Side};

use super::connection::{self, Beginning, Ends};
use super::server::Server;
use super::urgent::UrgentStream;
use crate::{keepalive, ssh};

/// Who is at the other end of standard input.
#[derive(Debug)]
pub enum Caller {
    /// Somebody who has logged in over ssh, as the account that runs this process.
    Ssh(Ends),
    /// Anybody: a socket as inetd hands it over, or something without addresses.
    Unknown(Ends),
}

impl Caller {
    /// Looks at this process.
    ///
    /// `SSH_CONNECTION` alone proves nothing: whatever was started from somebody's ssh session has it, too. But daemons hand over the
    /// connection itself, while sshd gives pipes; and what somebody starts by hand has his terminal, which sshd's commands have not.
    pub fn of_this_process() -> Self {
        let input = io::stdin();
        let socket = SockRef::from(&input);
        if let Some(local) = socket.local_addr().ok().and_then(|address| address.as_socket()) {
            let peer = socket.peer_addr().ok().and_then(|address| address.as_socket());
            return Self::Unknown(Ends { peer, local: Some(local), ..Ends::default() });
        }
        let session = std::env::var("SSH_CONNECTION").ok().and_then(|text| ssh::connection(&text));
        let by_hand = std::fs::File::open("/dev/tty").is_ok();
        match session.filter(|_| !by_hand) {
            Some((client, server)) => Self::Ssh(Ends { peer: Some(client), local: Some(server), ..Ends::default() }),
            None => Self::Unknown(Ends::default()),
        }
    }

    /// True for a login that ssh has made.
    pub fn is_ssh(&self) -> bool {
        matches!(self, Self::Ssh(_))
    }

    fn ends(self) -> Ends {
        match self {
            Self::Ssh(ends) | Self::Unknown(ends) => ends,
        }
    }
}

/// Where every `sshftp://` client looks for what it starts: in the home directory of this account, for root where it is for all accounts.
///
/// # Errors
/// `NotFound` for an account without a home.
pub fn script_of_sshftp() -> Result<PathBuf, Fault> {
    const OP: &str = "find the home directory";
    let uid = rustix::process::geteuid();
    if uid.is_root() {
        return Ok("/etc/grid-security/sshftp".into());
    }
    match whimbrel_sys::accounts::record_of(uid.as_raw()) {
        Ok(Some(account)) => Ok(Path::new(OsStr::from_bytes(&account.home)).join(".globus/sshftp")),
        Ok(None) => Err(Fault::new(FaultCode::NotFound, OP).detail("this account has none: name a file")),
        Err(error) => Err(Fault::from_io(error, OP).side(Side::Us)),
    }
}

/// Standard input where it is a socket, as inetd and its kind hand over the connection that they have accepted.
///
/// # Errors
/// Those of the system.
pub fn socket() -> Result<Option<OwnedFd>, Fault> {
    let failed = |error: io::Error| Fault::from_io(error, "take over standard input").side(Side::Us);
    let input = io::stdin().as_fd().try_clone_to_owned().map_err(failed)?;
    Ok(SockRef::from(&input).local_addr().is_ok().then_some(input))
}

/// Serves a connection that came as a socket, of a network or of this host, until it ends; in a runtime.
pub(super) async fn serve_socket(
    socket: OwnedFd,
    server: &Arc<Server>,
    drain: watch::Receiver<bool>,
) -> Result<(), Fault> {
    let failed = |error: io::Error| Fault::from_io(error, "take over the connection").side(Side::Us);
    let address = |found: io::Result<SockAddr>| found.ok().and_then(|address| address.as_socket());
    let (peer, local) = (SockRef::from(&socket).peer_addr(), SockRef::from(&socket).local_addr());
    let ends = Ends { peer: address(peer), local: address(local), ..Ends::default() };
    tracing::info!(peer = ?ends.peer, "control connection");
    SockRef::from(&socket).set_nonblocking(true).map_err(failed)?;
    if ends.local.is_none() {
        let stream = UnixStream::from_std(socket.into()).map_err(failed)?;
        connection::serve(stream, ends, Beginning::Clear, server.clone(), drain).await;
        return Ok(());
    }
    let stream = TcpStream::from_std(socket.into()).map_err(failed)?;
    if let Err(error) = keepalive::set(&stream, keepalive::CONTROL) {
        tracing::debug!(%error, "no keepalive");
    }
    connection::serve(UrgentStream::new(stream), ends, Beginning::Clear, server.clone(), drain).await;
    Ok(())
}

/// Serves the one connection until it ends.
pub async fn serve(server: Arc<Server>, caller: Caller, drain: watch::Receiver<bool>) {
    let stream = Stdio { input: tokio::io::stdin(), output: tokio::io::stdout() };
    connection::serve(stream, caller.ends(), Beginning::Clear, server, drain).await;
}

struct Stdio {
    input: Stdin,
    output: Stdout,
}

impl AsyncRead for Stdio {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.input).poll_read(cx, buf)
    }
}

impl AsyncWrite for Stdio {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.output).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.output).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.output).poll_shutdown(cx)
    }
}

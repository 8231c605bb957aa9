//! A data process of its own: the stream is its standard input.

use std::ffi::OsStr;
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use socket2::{Domain, Socket};
use whimbrel_connector::Connector;
use whimbrel_connector::posix::{DirectOptions, Posix, PosixOptions};
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_sys::signals;

use super::message::{DataSettings, NodeOverrides};
use super::process::{Departure, STACK, ServeError, serve_overridden};

/// Serves the front at the other end of standard input, a local or a TCP socket, from the
/// directory tree its settings name.
///
/// `overrides` are this host's own settings as JSON ([`NodeOverrides`]). Only one call in a process.
pub fn serve_standard_input(overrides: Option<&str>) -> Result<(), Fault> {
    let terminate = signals::block_terminate().map_err(|error| Fault::from_io(error, "watch for signals"))?;
    if overrides.is_some() {
        // It holds the stream to the front itself: left alone, it would serve on beside its successor.
        crate::parent::end_with_parent()?;
    }
    let own = overrides.map(serde_json::from_str::<NodeOverrides>).transpose();
    let own = own.map_err(|error| unusable("read own settings", &error.to_string()))?.unwrap_or_default();
    let socket = standard_input().map_err(|error| Fault::from_io(error, "open stream to front"))?;
    let local = socket.domain().map_err(|error| Fault::from_io(error, "open stream to front"))?;
    let socket = OwnedFd::from(socket);
    let leave = |departure| leave_on(terminate, departure);
    let served = match local {
        Domain::UNIX => serve_overridden(UnixStream::from(socket), own, posix, leave),
        Domain::IPV4 | Domain::IPV6 => serve_overridden(TcpStream::from(socket), own, posix, leave),
        _ => return Err(unusable("open stream to front", "standard input is no local or TCP socket")),
    };
    served.map_err(ServeError::into_fault)
}

/// SIGTERM makes the process finish what it runs and leave, whoever sends it: a service manager asks front and data
/// processes alike.
fn leave_on(terminate: signals::Blocked, departure: Departure) {
    let wait = move || match terminate.wait() {
        Ok(()) => departure.announce(),
        Err(error) => tracing::error!(%error, "cannot wait for signals"),
    };
    if let Err(error) = thread::Builder::new().name("departure".to_owned()).stack_size(STACK).spawn(wait) {
        tracing::error!(%error, "SIGTERM will not be heard");
    }
}

fn standard_input() -> io::Result<Socket> {
    let socket = Socket::from(io::stdin().as_fd().try_clone_to_owned()?);
    // Inherited from an asynchronous parent.
    socket.set_nonblocking(false)?;
    Ok(socket)
}

fn posix(settings: &DataSettings) -> Result<Arc<dyn Connector>, Fault> {
    let root = Path::new(OsStr::from_bytes(&settings.root));
    Ok(Arc::new(Posix::open(root, posix_options(settings))?))
}

/// How a directory tree is served under these settings; `lfs` is looked for on the host that serves it.
pub fn posix_options(settings: &DataSettings) -> PosixOptions {
    const USUAL: &str = "/usr/bin/lfs";
    let lfs = match settings.lfs.as_deref() {
        Some(path) => (!path.is_empty()).then(|| Path::new(OsStr::from_bytes(path)).to_owned()),
        None => Some(Path::new(USUAL).to_owned()).filter(|path| path.exists()),
    };
    let direct = settings.direct_io.then(DirectOptions::default);
    PosixOptions { read_only: settings.read_only, lfs, direct, ..PosixOptions::default() }
}

fn unusable(op: &str, detail: &str) -> Fault {
    Fault::new(FaultCode::InvalidArgument, op).side(Side::Us).detail(detail)
}

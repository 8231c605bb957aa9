//! A data process of its own: the stream is its standard input.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use socket2::{Domain, Socket};
use whimbrel_connector::Connector;
use whimbrel_connector::posix::{DirectOptions, LayoutTool, Lfs, Posix, PosixOptions};
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_sys::signals;

use super::books::Books;
use super::message::{DataSettings, NodeOverrides};
use super::process::{Departure, STACK, ServeError, serve_overridden};
use crate::confine::helper::Helper;
use crate::confine::{self, Needs, Sandbox};
use crate::descriptors;

/// Serves the front at the other end of standard input, a local socket, from the directory tree its
/// settings name.
///
/// `overrides` are this host's own settings as JSON ([`NodeOverrides`]). Only one call in a process.
pub fn serve_standard_input(overrides: Option<&str>) -> Result<(), Fault> {
    // It will hold its user's credentials.
    confine::keep_secrets()?;
    descriptors::allow(descriptors::MOST);
    let terminate = signals::block_terminate().map_err(|error| Fault::from_io(error, "watch for signals"))?;
    if overrides.is_some() {
        // It holds the stream to the front itself: left alone, it would serve on beside its successor.
        crate::parent::end_with_parent()?;
    }
    let books = Books::of_this_process()?;
    let own = overrides.map(serde_json::from_str::<NodeOverrides>).transpose();
    let own = own.map_err(|error| unusable("read own settings", &error.to_string()))?.unwrap_or_default();
    let socket = standard_input().map_err(|error| Fault::from_io(error, "open stream to front"))?;
    let local = socket.domain().map_err(|error| Fault::from_io(error, "open stream to front"))?;
    let socket = OwnedFd::from(socket);
    let leave = |departure| leave_on(terminate, departure);
    let confine = |settings: &DataSettings| {
        // The name service loads what it needs now, while it may.
        let _known = whimbrel_sys::names::user_name(0);
        confine::enter(&Needs::data(settings), settings.sandbox).map(drop)
    };
    let served = match local {
        Domain::UNIX => serve_overridden(UnixStream::from(socket), own, books, posix, confine, leave),
        _ => return Err(unusable("open stream to front", "standard input is no local socket")),
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
    Ok(Arc::new(Posix::open(root, posix_options(settings)?)?))
}

/// How a directory tree is served under these settings.
pub fn posix_options(settings: &DataSettings) -> Result<PosixOptions, Fault> {
    let lfs = match lfs_program(settings) {
        // A confined process starts nothing: it has to have somebody for that before.
        Some(program) if settings.sandbox != Sandbox::Off => {
            Some(Arc::new(Helper::start(&program)?) as Arc<dyn LayoutTool>)
        }
        Some(program) => Some(Arc::new(Lfs(program)) as Arc<dyn LayoutTool>),
        None => None,
    };
    let direct = settings.direct_io.then(DirectOptions::default);
    Ok(PosixOptions { read_only: settings.read_only, lfs, direct, ..PosixOptions::default() })
}

/// `lfs` is looked for on the host that serves the files.
fn lfs_program(settings: &DataSettings) -> Option<PathBuf> {
    const USUAL: &str = "/usr/bin/lfs";
    match settings.lfs.as_deref() {
        Some(path) => (!path.is_empty()).then(|| Path::new(OsStr::from_bytes(path)).to_owned()),
        None => Some(Path::new(USUAL).to_owned()).filter(|path| path.exists()),
    }
}

fn unusable(op: &str, detail: &str) -> Fault {
    Fault::new(FaultCode::InvalidArgument, op).side(Side::Us).detail(detail)
}

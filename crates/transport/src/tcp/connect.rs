//! The connecting side of TCP data channels.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_sys::poll::PollFlags;

use super::near::PutOff;
use super::{ChannelOptions, PortRange, TcpChannel};
use crate::cancel::{Cancel, timed_out};

const OP: &str = "connect data channel";

/// From where and how to connect.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// Local address (data interface) to connect from, to peers of its family; `None`: the system's choice.
    pub source_address: Option<IpAddr>,
    /// Local ports to connect from; `None`: any.
    pub source_ports: Option<PortRange>,
    /// How long to try; default 30 s.
    pub timeout: Duration,
    /// Tuning.
    pub channel: ChannelOptions,
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            source_address: None,
            source_ports: None,
            timeout: Duration::from_secs(30),
            channel: ChannelOptions::default(),
        }
    }
}

/// Opens one data channel to `addr`.
///
/// Fails with `ConnectionRefused`, `HostUnreachable`, `TimedOut`, `PortRangeExhausted`, `Cancelled`.
pub fn connect(addr: SocketAddr, options: &ConnectOptions, cancel: &Cancel) -> Result<TcpChannel, Fault> {
    cancel.check(OP)?;
    dial(addr, options)?.finish(cancel)
}

/// Calls `addr` without waiting for its answer, which [`Dialling::finish`] takes.
///
/// Fails with `HostUnreachable`, `PortRangeExhausted` and what else is known at once.
pub fn dial(addr: SocketAddr, options: &ConnectOptions) -> Result<Dialling, Fault> {
    let Some(range) = options.source_ports else {
        return attempt(addr, None, options).map_err(|failure| failure.into_fault(addr, options.timeout));
    };
    for port in range.shuffled() {
        match attempt(addr, Some(port), options) {
            // Taken, or still in TIME_WAIT towards this very address.
            Err(Failure::Io(error)) if matches!(error.kind(), ErrorKind::AddrInUse | ErrorKind::AddrNotAvailable) => {}
            result => return result.map_err(|failure| failure.into_fault(addr, options.timeout)),
        }
    }
    Err(range.exhausted(OP))
}

/// A data channel whose peer may not have answered yet.
#[derive(Debug)]
pub struct Dialling {
    socket: Socket,
    addr: SocketAddr,
    timeout: Duration,
    deadline: Instant,
    congestion: PutOff,
}

impl Dialling {
    /// Waits for the answer, as long as [`ConnectOptions::timeout`] since the call.
    ///
    /// Fails with `ConnectionRefused`, `HostUnreachable`, `TimedOut`, `Cancelled`.
    pub fn finish(self, cancel: &Cancel) -> Result<TcpChannel, Fault> {
        self.answered(cancel).map_err(|failure| failure.into_fault(self.addr, self.timeout))?;
        let channel = TcpChannel::new(self.socket.into())?;
        self.congestion.settle(&channel);
        Ok(channel)
    }

    fn answered(&self, cancel: &Cancel) -> Result<(), Failure> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let ready = cancel.wait_for(self.socket.as_fd(), PollFlags::OUT, Some(left), OP).map_err(Failure::Fault)?;
        if !ready {
            return Err(Failure::TimedOut);
        }
        self.socket.take_error()?.map_or(Ok(()), |error| Err(error.into()))
    }
}

enum Failure {
    Io(io::Error),
    TimedOut,
    Fault(Fault),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Failure {
    fn into_fault(self, addr: SocketAddr, timeout: Duration) -> Fault {
        let fault = match self {
            Self::Io(error) if error.kind() == ErrorKind::AddrNotAvailable => {
                Fault::new(FaultCode::InvalidArgument, OP).side(Side::Us).detail(error.to_string())
            }
            Self::Io(error) => Fault::from_io(error, OP),
            Self::TimedOut => timed_out(OP, timeout),
            Self::Fault(fault) => return fault,
        };
        fault.subject(addr.to_string()).side_if_unknown(Side::Network)
    }
}

fn attempt(addr: SocketAddr, port: Option<u16>, options: &ConnectOptions) -> Result<Dialling, Failure> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    let congestion = options.channel.apply(&socket)?;
    socket.set_nonblocking(true)?;
    bind_source(&socket, addr, port, options)?;
    match socket.connect(&addr.into()) {
        Err(error) if error.raw_os_error() == Some(Errno::INPROGRESS.raw_os_error()) => {}
        result => result?,
    }
    let timeout = options.timeout;
    Ok(Dialling { socket, addr, timeout, deadline: Instant::now() + timeout, congestion })
}

fn bind_source(socket: &Socket, addr: SocketAddr, port: Option<u16>, options: &ConnectOptions) -> io::Result<()> {
    // An interface of the other family leads nowhere near the peer: the system chooses.
    let source = options.source_address.filter(|ip| ip.is_ipv4() == addr.is_ipv4());
    if port.is_none() && source.is_none() {
        return Ok(());
    }
    let any = match addr {
        SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    if port.is_some() {
        socket.set_reuse_address(true)?;
    }
    let local = SocketAddr::new(source.unwrap_or(any), port.unwrap_or(0));
    socket.bind(&local.into())
}

//! The listening side of TCP data channels.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};
use whimbrel_engine::{Fault, Side};
use whimbrel_sys::poll::PollFlags;

use super::near::PutOff;
use super::{ChannelOptions, PortRange, TcpChannel, canonical};
use crate::cancel::{Cancel, timed_out};
use crate::channel::DataChannel;

/// Puts an accepted connection inside what its handle demands, such as TLS.
pub type Shielding = Arc<dyn Fn(TcpChannel) -> Result<Box<dyn DataChannel>, Fault> + Send + Sync>;

/// Decides by address whether a connection may become a data channel.
pub type PeerFilter = Arc<dyn Fn(SocketAddr) -> bool + Send + Sync>;

/// Connections waiting to be accepted: a striped, parallel peer opens many at once.
const BACKLOG: i32 = 1024;
const OP: &str = "listen for data channels";

/// A socket that data channels arrive at.
pub struct Listener {
    socket: TcpListener,
    local: SocketAddr,
    filter: Option<PeerFilter>,
    shielding: Option<Shielding>,
    rejected: AtomicU64,
    congestion: PutOff,
    /// Until when nobody is taken in.
    paused: Mutex<Option<Instant>>,
}

/// How long nobody is taken in after the system had no room for another connection.
const PAUSE: Duration = Duration::from_millis(200);

/// Listens at `addr`; with port 0 at a free port, of `range` if given.
///
/// `[::]` takes IPv4 connections too. Fails with `PortRangeExhausted` when no port of the range is
/// free, or as the system says.
pub fn listen(addr: SocketAddr, range: Option<PortRange>, options: &ChannelOptions) -> Result<Listener, Fault> {
    let bound = |port| {
        let mut addr = addr;
        addr.set_port(port);
        bind(addr, options)
    };
    match range {
        Some(range) if addr.port() == 0 => range
            .shuffled()
            .find_map(|port| match bound(port) {
                Err(error) if error.kind() == ErrorKind::AddrInUse => None,
                result => Some(result),
            })
            .ok_or_else(|| range.exhausted(OP))?,
        _ => bound(addr.port()),
    }
    .map_err(|error| Fault::from_io(error, OP).side(Side::Us).subject(addr.to_string()))
}

fn bind(addr: SocketAddr, options: &ChannelOptions) -> io::Result<Listener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    if addr.is_ipv6() {
        socket.set_only_v6(!addr.ip().is_unspecified())?;
    }
    // A port whose last connection is in TIME_WAIT is free; one somebody listens at is not.
    socket.set_reuse_address(true)?;
    let congestion = options.apply(&socket)?;
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())?;
    socket.listen(BACKLOG)?;
    let socket = TcpListener::from(socket);
    Ok(Listener {
        local: socket.local_addr()?,
        socket,
        filter: None,
        shielding: None,
        rejected: AtomicU64::new(0),
        congestion,
        paused: Mutex::default(),
    })
}

impl Listener {
    /// Turns away connections that `filter` refuses.
    pub fn set_filter(&mut self, filter: PeerFilter) {
        self.filter = Some(filter);
    }

    /// Puts every connection inside what `shielding` makes of it.
    pub fn set_shielding(&mut self, shielding: Shielding) {
        self.shielding = Some(shielding);
    }

    /// Address and port listened at.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Connections the filter has turned away so far.
    pub fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    /// How much longer nobody is taken in: the system had no room, of descriptors or memory, for another connection.
    ///
    /// Meanwhile [`Listener::as_fd`] is not to be polled, for those who wait keep it ready.
    pub fn pause(&self) -> Option<Duration> {
        let paused = *self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        let left = paused?.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    pub(super) fn make_pause(&self, error: &io::Error) {
        tracing::warn!(local = %self.local, %error, "no room for another data connection: it has to wait");
        *self.paused.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + PAUSE);
    }

    /// Takes a connection if one is waiting.
    pub fn try_accept(&self) -> Result<Option<Box<dyn DataChannel>>, Fault> {
        if self.pause().is_some() {
            return Ok(None);
        }
        loop {
            match self.socket.accept() {
                Ok((stream, peer)) if self.admits(canonical(peer)) => {
                    // A peer that is gone already is no reason to stop listening.
                    if let Ok(channel) = TcpChannel::new(stream) {
                        self.congestion.settle(&channel);
                        return self.shielded(channel).map(Some);
                    }
                }
                Ok((_, peer)) => {
                    let count = self.rejected.fetch_add(1, Ordering::Relaxed) + 1;
                    // A scan of ports must not fill the log.
                    if count.is_power_of_two() {
                        tracing::warn!(%peer, local = %self.local, count, "data connection refused by address");
                    }
                }
                Err(error) if is_exhausted(&error) => {
                    self.make_pause(&error);
                    return Ok(None);
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return Ok(None),
                    // The kernel hands on what happened to the new connection (accept(2)).
                    ErrorKind::Interrupted
                    | ErrorKind::ConnectionAborted
                    | ErrorKind::HostUnreachable
                    | ErrorKind::NetworkUnreachable
                    | ErrorKind::NetworkDown => {}
                    _ => return Err(Fault::from_io(error, "accept data channel").side(Side::Us)),
                },
            }
        }
    }

    /// Takes the next connection, waiting up to `timeout`; `TimedOut` or `Cancelled` otherwise.
    pub fn accept(&self, timeout: Duration, cancel: &Cancel) -> Result<Box<dyn DataChannel>, Fault> {
        const OP: &str = "wait for data channel";
        let deadline = Instant::now() + timeout;
        loop {
            cancel.check(OP)?;
            if let Some(channel) = self.try_accept()? {
                return Ok(channel);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(timed_out(OP, timeout).subject(self.local.to_string()));
            }
            match self.pause() {
                Some(pause) => cancel.wait_for_any(&[], Some(pause.min(left)), OP)?,
                None => cancel.wait_for(self.as_fd(), PollFlags::IN, Some(left), OP)?,
            };
        }
    }

    fn shielded(&self, channel: TcpChannel) -> Result<Box<dyn DataChannel>, Fault> {
        match &self.shielding {
            Some(shielding) => shielding(channel),
            None => Ok(Box::new(channel)),
        }
    }

    fn admits(&self, peer: SocketAddr) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter(peer))
    }
}

/// Whether the process or the system has no room for another connection: others will end.
pub(super) fn is_exhausted(error: &io::Error) -> bool {
    let errno = Errno::from_io_error(error);
    errno.is_some_and(|errno| [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM].contains(&errno))
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("local", &self.local).field("filtered", &self.filter.is_some()).finish()
    }
}

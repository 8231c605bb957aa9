//! Data channels over TCP: listening, connecting, tuning.

mod connect;
mod listen;
mod near;
mod ports;

pub use connect::{ConnectOptions, Dialling, connect, dial};
pub use listen::{Listener, PeerFilter, Shielding, listen};
pub use ports::PortRange;

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use whimbrel_engine::Fault;
use whimbrel_sys::socket;
use whimbrel_sys::tcp_info::{TcpInfo, tcp_info};

use crate::channel::{ChannelStats, DataChannel, PathStats};
use crate::watch::Watched;

use self::near::PutOff;

/// How long a connection waits at most before it sends lost bytes again: so long nothing moves after a network is back. The
/// kernel's waits double up to two minutes, as long as the network was away. One segment in this time congests no path; a peer
/// that acknowledges nothing for about two minutes (15 of these waits) is given up.
pub const LONGEST_RTO: Duration = Duration::from_secs(10);

/// How TCP data channels are tuned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChannelOptions {
    /// Send buffer in bytes; `None` (default) leaves it to the kernel's auto-tuning.
    pub send_buffer: Option<usize>,
    /// Receive buffer in bytes; `None` (default) leaves it to the kernel's auto-tuning.
    pub recv_buffer: Option<usize>,
    /// Congestion control by name; `None` (default) is the system's, or one that does not pace where that one does and the
    /// peer is near.
    pub congestion: Option<String>,
    /// Send small segments at once; default true: the last block of a file must not wait.
    pub nodelay: bool,
    /// Probe idle connections after this long; default 60 s.
    pub keepalive: Option<Duration>,
    /// Most bytes that wait in a send buffer for their turn, beside those in flight; default 512 KiB. What waits behind a
    /// slow channel cannot go over a faster one any more: at the end all others would wait for it.
    pub unsent: Option<u32>,
}

impl Default for ChannelOptions {
    fn default() -> Self {
        Self {
            send_buffer: None,
            recv_buffer: None,
            congestion: None,
            nodelay: true,
            keepalive: Some(Duration::from_secs(60)),
            unsent: Some(512 << 10),
        }
    }
}

impl ChannelOptions {
    /// Sets the options before connect or listen, when the window scale can still follow; what is left for afterwards.
    fn apply(&self, fd: impl AsFd) -> io::Result<PutOff> {
        let fd = fd.as_fd();
        if let Some(bytes) = self.send_buffer {
            socket::set_send_buffer(fd, bytes)?;
        }
        if let Some(bytes) = self.recv_buffer {
            socket::set_recv_buffer(fd, bytes)?;
        }
        if self.nodelay {
            socket::set_nodelay(fd, true)?;
        }
        if let Some(idle) = self.keepalive {
            socket::set_keepalive(fd, idle)?;
        }
        socket::set_rto_max(fd, LONGEST_RTO)?;
        if let Some(bytes) = self.unsent {
            socket2::SockRef::from(&fd).set_tcp_notsent_lowat(bytes)?;
        }
        match &self.congestion {
            Some(name) => socket::set_congestion(fd, name).map(|()| PutOff::default()),
            None => Ok(PutOff::before(fd)),
        }
    }
}

/// One TCP connection as a data channel.
#[derive(Debug)]
pub struct TcpChannel {
    socket: Arc<Socket>,
    peer: SocketAddr,
    local: SocketAddr,
}

/// What the channel shares with those who watch it; watchers hold it for a moment only, for its last owner closes it.
#[derive(Debug)]
struct Socket {
    stream: TcpStream,
    sent: AtomicU64,
    received: AtomicU64,
    /// Segments sent again that have been counted somewhere.
    told: AtomicU64,
    path_told: Mutex<PathStats>,
}

impl Socket {
    fn tcp_info(&self) -> TcpInfo {
        tcp_info(&self.stream).unwrap_or_default()
    }
}

impl Watched for Socket {
    fn stats(&self) -> ChannelStats {
        let info = self.tcp_info();
        ChannelStats {
            bytes_sent: self.sent.load(Relaxed),
            bytes_received: self.received.load(Relaxed),
            retransmits: u64::from(info.retransmits),
            rtt: info.rtt,
            window: u64::from(info.cwnd) * u64::from(info.send_mss),
            path: PathStats {
                min_rtt: info.min_rtt,
                mss: u64::from(info.send_mss),
                mtu: u64::from(info.path_mtu),
                bytes_sent: info.bytes_sent,
                bytes_resent: info.bytes_retransmitted,
                busy: info.busy,
                window_limited: info.window_limited,
                buffer_limited: info.buffer_limited,
            },
        }
    }

    fn congestion(&self) -> Option<String> {
        socket::congestion(&self.stream).ok()
    }

    fn untold_path(&self, path: PathStats) -> PathStats {
        let mut told = self.path_told.lock().unwrap_or_else(PoisonError::into_inner);
        let news = path.since(*told);
        *told = path;
        news
    }

    fn buffers(&self) -> Option<(u64, u64)> {
        let (send, receive) = (socket::send_buffer(&self.stream).ok()?, socket::recv_buffer(&self.stream).ok()?);
        Some((send as u64, receive as u64))
    }

    fn untold(&self, retransmits: u64) -> u64 {
        retransmits.saturating_sub(self.told.fetch_max(retransmits, Relaxed))
    }
}

impl TcpChannel {
    /// Takes over a connected stream and makes it non-blocking.
    pub fn new(stream: TcpStream) -> Result<Self, Fault> {
        let prepare = || -> io::Result<(SocketAddr, SocketAddr)> {
            stream.set_nonblocking(true)?;
            Ok((canonical(stream.peer_addr()?), canonical(stream.local_addr()?)))
        };
        let (peer, local) = prepare().map_err(|error| Fault::from_io(error, "open data channel"))?;
        let [sent, received, told] = [0; 3].map(AtomicU64::new);
        Ok(Self { socket: Arc::new(Socket { stream, sent, received, told, path_told: Mutex::default() }), peer, local })
    }

    /// What the kernel knows about the connection; zeros when it cannot say.
    pub fn tcp_info(&self) -> TcpInfo {
        self.socket.tcp_info()
    }
}

/// An IPv4 peer of a dual-stack socket, in its own form.
fn canonical(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}

impl DataChannel for TcpChannel {
    fn send_vectored(&mut self, pieces: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        let sent = socket::send_vectored(&self.socket.stream, pieces, more)?;
        self.socket.sent.fetch_add(sent as u64, Relaxed);
        Ok(sent)
    }

    fn recv_vectored(&mut self, pieces: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let received = socket::recv_vectored(&self.socket.stream, pieces)?;
        self.socket.received.fetch_add(received as u64, Relaxed);
        Ok(received)
    }

    fn can_sendfile(&self) -> bool {
        true
    }

    fn sendfile(&mut self, file: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<usize> {
        let sent = socket::sendfile(&self.socket.stream, file, offset, len)?;
        self.socket.sent.fetch_add(sent as u64, Relaxed);
        Ok(sent)
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.stream.as_fd()
    }

    fn shutdown(&mut self) -> io::Result<()> {
        socket::shutdown_write(&self.socket.stream)
    }

    fn abort(&mut self) -> io::Result<()> {
        socket2::SockRef::from(&self.socket.stream).set_linger(Some(Duration::ZERO))
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        Some(self.peer)
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        Some(self.local)
    }

    fn stats(&self) -> ChannelStats {
        self.socket.stats()
    }

    fn watched(&self) -> Option<Arc<dyn Watched>> {
        Some(self.socket.clone())
    }

    fn carried(&self) -> u64 {
        self.socket.sent.load(Relaxed) + self.socket.received.load(Relaxed)
    }
}

#[cfg(test)]
mod tests;

//! `DataChannel`: one data connection, whatever carries it.

use std::fmt;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use whimbrel_engine::{Fault, Side};
use whimbrel_sys::poll::PollFlags;

use crate::watch::{ChannelWatch, Watched};

/// One open data connection, non-blocking.
///
/// Calls that cannot go on return [`ErrorKind::WouldBlock`]; the caller then polls
/// [`DataChannel::as_fd`] for what it wants. Every implementation runs [`crate::contract`].
pub trait DataChannel: Send {
    /// Sends from several pieces in order; returns how many bytes were taken (more than 0).
    ///
    /// `more` promises that further bytes follow at once. After [`ErrorKind::WouldBlock`] the same bytes must be offered
    /// again: a channel that transforms them may have begun with them.
    fn send_vectored(&mut self, pieces: &[IoSlice<'_>], more: bool) -> io::Result<usize>;

    /// Receives into several pieces in order; 0 means that the peer has ended its side.
    fn recv_vectored(&mut self, pieces: &mut [IoSliceMut<'_>]) -> io::Result<usize>;

    /// Receives into one piece.
    fn recv(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.recv_vectored(&mut [IoSliceMut::new(buffer)])
    }

    /// Whether [`DataChannel::sendfile`] works on this channel (it does not where bytes must be
    /// transformed on the way).
    fn can_sendfile(&self) -> bool {
        false
    }

    /// Sends `len` bytes of `file` from `offset` inside the kernel; 0 means that the file ends.
    fn sendfile(&mut self, file: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<usize> {
        let _ = (file, offset, len);
        Err(ErrorKind::Unsupported.into())
    }

    /// The descriptor to poll.
    fn as_fd(&self) -> BorrowedFd<'_>;

    /// What to poll for when the caller wants `interest`; an encrypted channel may need the
    /// opposite direction first.
    fn poll_flags(&self, interest: PollFlags) -> PollFlags {
        interest
    }

    /// Whether received bytes wait inside the channel, where poll does not see them.
    fn has_buffered(&self) -> bool {
        false
    }

    /// False while a handshake has yet to show who the other side is: a failure until then harms nobody else.
    fn is_proven(&self) -> bool {
        true
    }

    /// Carries the handshake on without sending or receiving; [`ErrorKind::WouldBlock`] until it is over.
    fn prove(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Ends the sending side; the peer reads end of file after what is under way.
    ///
    /// May have to wait like a send ([`ErrorKind::WouldBlock`]) where the end is told in bytes.
    fn shutdown(&mut self) -> io::Result<()>;

    /// Has the channel end, when it is dropped, in a way that nobody takes for the end of a whole file: with a reset, and
    /// without a farewell of its own.
    ///
    /// What was sent may be lost with it. Between two ends in one process there is no such end.
    fn abort(&mut self) -> io::Result<()>;

    /// Address of the other end; `None` for channels inside one process.
    fn peer_addr(&self) -> Option<SocketAddr>;

    /// Address of this end; `None` for channels inside one process.
    fn local_addr(&self) -> Option<SocketAddr> {
        None
    }

    /// Counters as of now.
    fn stats(&self) -> ChannelStats;

    /// What other threads may look at while the channel is in use; `None` where there is nothing to see.
    fn watched(&self) -> Option<Arc<dyn Watched>> {
        None
    }

    /// A look at this channel for one transfer, whose bytes are counted from now.
    fn watch(&self) -> Option<ChannelWatch> {
        let watched = self.watched()?;
        let carried = self.carried();
        Some(ChannelWatch::new(&watched, self.peer_addr(), carried))
    }

    /// Bytes sent and received, headers included, without asking the system.
    fn carried(&self) -> u64 {
        let stats = self.stats();
        stats.bytes_sent + stats.bytes_received
    }
}

/// The fault of a send or receive that `error` ended: what the other end said last, where it said something.
pub(crate) fn failed(channel: &mut dyn DataChannel, error: io::Error, op: &str) -> Fault {
    let peer = channel.peer_addr().map(|peer| peer.to_string()).unwrap_or_default();
    let fault = match is_explained(&error) {
        true => Fault::from_io(error, op),
        false => last_words(channel, op).unwrap_or_else(|| Fault::from_io(error, op)),
    };
    let fault = fault.side_if_unknown(Side::Network);
    if fault.subject.is_empty() { fault.subject(peer) } else { fault }
}

/// Why the other end wants no more, if it says so.
///
/// A TLS 1.3 server that refuses a client's certificate says it only after the client has begun to send.
pub(crate) fn last_words(channel: &mut dyn DataChannel, op: &str) -> Option<Fault> {
    channel.recv(&mut [0; 1]).err().filter(is_explained).map(|error| Fault::from_io(error, op))
}

fn is_explained(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Fault>())
}

impl fmt::Debug for dyn DataChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataChannel").field("peer", &self.peer_addr()).field("proven", &self.is_proven()).finish()
    }
}

/// Counters of one data channel since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChannelStats {
    /// Bytes sent, headers included.
    pub bytes_sent: u64,
    /// Bytes received, headers included.
    pub bytes_received: u64,
    /// Segments sent again; 0 where the carrier does not say.
    pub retransmits: u64,
    /// Smoothed round-trip time; zero where the carrier does not say.
    pub rtt: Duration,
    /// Congestion window in bytes; 0 where the carrier does not say.
    pub window: u64,
    /// What the kernel says of the path; zeros where the carrier does not say.
    pub path: PathStats,
}

/// What the kernel knows of a connection's path; sums are since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PathStats {
    /// Smallest round-trip time seen.
    pub min_rtt: Duration,
    /// Payload bytes of a segment.
    pub mss: u64,
    /// Largest packet that the path takes, bytes.
    pub mtu: u64,
    /// Bytes sent by TCP, those sent again included.
    pub bytes_sent: u64,
    /// Bytes sent again.
    pub bytes_resent: u64,
    /// Time with something to send.
    pub busy: Duration,
    /// Of this, time held by the receiver's window.
    pub window_limited: Duration,
    /// Of this, time held by the send buffer.
    pub buffer_limited: Duration,
}

impl PathStats {
    /// The sums without those of `before`; what is no sum as it is now.
    pub fn since(self, before: Self) -> Self {
        Self {
            bytes_sent: self.bytes_sent.saturating_sub(before.bytes_sent),
            bytes_resent: self.bytes_resent.saturating_sub(before.bytes_resent),
            busy: self.busy.saturating_sub(before.busy),
            window_limited: self.window_limited.saturating_sub(before.window_limited),
            buffer_limited: self.buffer_limited.saturating_sub(before.buffer_limited),
            ..self
        }
    }
}

//! A connected pair of data channels inside one process, for tests and simulations.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use whimbrel_engine::Fault;
use whimbrel_sys::socket;

use crate::channel::{ChannelStats, DataChannel};

/// One end of a pair made by [`pair`].
#[derive(Debug)]
pub struct LocalChannel {
    stream: UnixStream,
    stats: ChannelStats,
}

/// Two ends of one connection; what one sends the other receives.
pub fn pair() -> Result<(LocalChannel, LocalChannel), Fault> {
    let make = || -> io::Result<(LocalChannel, LocalChannel)> {
        let (one, other) = UnixStream::pair()?;
        Ok((LocalChannel::new(one)?, LocalChannel::new(other)?))
    };
    make().map_err(|error| Fault::from_io(error, "make a local channel"))
}

impl LocalChannel {
    fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream, stats: ChannelStats::default() })
    }
}

impl DataChannel for LocalChannel {
    fn send_vectored(&mut self, pieces: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        let sent = socket::send_vectored(&self.stream, pieces, more)?;
        self.stats.bytes_sent += sent as u64;
        Ok(sent)
    }

    fn recv_vectored(&mut self, pieces: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let received = socket::recv_vectored(&self.stream, pieces)?;
        self.stats.bytes_received += received as u64;
        Ok(received)
    }

    fn can_sendfile(&self) -> bool {
        true
    }

    fn sendfile(&mut self, file: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<usize> {
        let sent = socket::sendfile(&self.stream, file, offset, len)?;
        self.stats.bytes_sent += sent as u64;
        Ok(sent)
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    fn shutdown(&mut self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }

    fn abort(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        None
    }

    fn stats(&self) -> ChannelStats {
        self.stats
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn keeps_the_contract() {
        crate::contract::run(&mut || {
            let (one, other) = super::pair().expect("pair");
            (Box::new(one), Box::new(other))
        });
    }
}

//! A data channel that fails on purpose: cut, stalled or damaged after so many bytes.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use whimbrel_engine::Fault;
use whimbrel_sys::poll::PollFlags;

use crate::channel::{ChannelStats, DataChannel};
use crate::watch::Watched;

/// What goes wrong, counted in bytes through the channel in either direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mishap {
    /// After this many bytes every call fails with `ConnectionReset`.
    CutAfter(u64),
    /// After this many bytes nothing moves any more.
    StallAfter(u64),
    /// The lowest bit of this byte (counted from 0) of what is received is wrong.
    FlipBitOf(u64),
}

/// A channel with a [`Mishap`] ahead of it.
pub struct FaultyChannel {
    inner: Box<dyn DataChannel>,
    mishap: Mishap,
    passed: u64,
    /// A socket that never becomes ready: what a stalled channel polls like.
    never_ready: TcpListener,
}

impl FaultyChannel {
    /// Wraps `inner`.
    pub fn new(inner: Box<dyn DataChannel>, mishap: Mishap) -> Result<Self, Fault> {
        let never_ready =
            TcpListener::bind("127.0.0.1:0").map_err(|error| Fault::from_io(error, "make a faulty channel"))?;
        Ok(Self { inner, mishap, passed: 0, never_ready })
    }

    /// How many bytes may pass before the mishap.
    fn allowance(&self) -> io::Result<usize> {
        let (limit, error) = match self.mishap {
            Mishap::CutAfter(limit) => (limit, ErrorKind::ConnectionReset),
            Mishap::StallAfter(limit) => (limit, ErrorKind::WouldBlock),
            Mishap::FlipBitOf(_) => return Ok(usize::MAX),
        };
        match limit.saturating_sub(self.passed) {
            0 => Err(error.into()),
            left => Ok(usize::try_from(left).unwrap_or(usize::MAX)),
        }
    }

    fn is_stalled(&self) -> bool {
        matches!(self.mishap, Mishap::StallAfter(limit) if self.passed >= limit)
    }
}

impl DataChannel for FaultyChannel {
    fn send_vectored(&mut self, pieces: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        let allowed = self.allowance()?;
        let total: usize = pieces.iter().map(|piece| piece.len()).sum();
        let sent = if total <= allowed {
            self.inner.send_vectored(pieces, more)?
        } else {
            let joined: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
            let allowed = [IoSlice::new(&joined[..allowed])];
            self.inner.send_vectored(&allowed, false)?
        };
        self.passed += sent as u64;
        Ok(sent)
    }

    fn recv_vectored(&mut self, pieces: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let allowed = self.allowance()?;
        // One piece is enough: a channel may always return less than asked for.
        let first = pieces.iter_mut().find(|piece| !piece.is_empty());
        let piece = first.ok_or(ErrorKind::InvalidInput)?;
        let len = piece.len().min(allowed);
        let received = self.inner.recv(&mut piece[..len])?;
        if let Mishap::FlipBitOf(at) = self.mishap
            && (self.passed..self.passed + received as u64).contains(&at)
        {
            piece[(at - self.passed) as usize] ^= 1;
        }
        self.passed += received as u64;
        Ok(received)
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        if self.is_stalled() { self.never_ready.as_fd() } else { self.inner.as_fd() }
    }

    fn poll_flags(&self, interest: PollFlags) -> PollFlags {
        self.inner.poll_flags(interest)
    }

    fn is_proven(&self) -> bool {
        self.inner.is_proven()
    }

    fn prove(&mut self) -> io::Result<()> {
        self.inner.prove()
    }

    fn has_buffered(&self) -> bool {
        !self.is_stalled() && self.inner.has_buffered()
    }

    fn shutdown(&mut self) -> io::Result<()> {
        self.inner.shutdown()
    }

    fn abort(&mut self) -> io::Result<()> {
        self.inner.abort()
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        self.inner.peer_addr()
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        self.inner.local_addr()
    }

    fn stats(&self) -> ChannelStats {
        self.inner.stats()
    }

    fn watched(&self) -> Option<Arc<dyn Watched>> {
        self.inner.watched()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::pair;

    fn faulty(mishap: Mishap) -> (FaultyChannel, Box<dyn DataChannel>) {
        let (one, other) = pair().expect("pair");
        let one = FaultyChannel::new(Box::new(one), mishap).expect("wrap");
        (one, Box::new(other))
    }

    #[test]
    fn keeps_the_contract_before_its_mishap() {
        for mishap in [Mishap::CutAfter(u64::MAX), Mishap::StallAfter(u64::MAX), Mishap::FlipBitOf(u64::MAX)] {
            crate::contract::run(&mut || {
                let (one, other) = faulty(mishap);
                (Box::new(one), other)
            });
        }
    }

    #[test]
    fn is_cut_stalled_and_damaged_at_the_byte_asked_for() {
        let ten = [IoSlice::new(&[0u8; 10])];
        let (mut cut, _peer) = faulty(Mishap::CutAfter(4));
        assert_eq!(cut.send_vectored(&ten, false).expect("allowed"), 4);
        let error = cut.send_vectored(&ten, false).expect_err("cut");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        let (mut stall, _peer) = faulty(Mishap::StallAfter(4));
        assert_eq!(stall.send_vectored(&ten, false).expect("allowed"), 4);
        let error = stall.send_vectored(&ten, false).expect_err("stalled");
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        let (mut flip, mut peer) = faulty(Mishap::FlipBitOf(3));
        peer.send_vectored(&ten, false).expect("send");
        let mut got = [0; 10];
        assert_eq!(flip.recv(&mut got).expect("receive"), 10);
        assert_eq!(got, [0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    }
}

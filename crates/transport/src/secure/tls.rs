//! A data channel inside TLS.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use openssl::ssl::Ssl;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_sys::poll::PollFlags;
use whimbrel_trust::tls::keep_secrets;

use super::handshake::{Check, Handshake, Role};
use super::records::{End, Records};
use crate::channel::{ChannelStats, DataChannel};
use crate::watch::Watched;

/// A data connection whose bytes are encrypted and guarded against change.
///
/// The handshake is carried on by whatever its owner does first.
pub struct TlsChannel {
    handshake: Handshake,
    pub(super) records: Records,
    /// A close without a word of farewell is an end like any other: peers of GSI never say it (GFD.20 §3.3).
    bare_close_ends: bool,
    /// Plain bytes whose records wait in the carrier, not yet reported as taken.
    owed: usize,
    /// Reading stopped because its buffer was full, not for want of bytes.
    more_inside: bool,
    /// A failure behind bytes that were delivered first.
    later: Option<io::Error>,
    told_end: bool,
    sent: u64,
    received: u64,
}

impl TlsChannel {
    /// Puts a channel inside TLS; `check` sees the connection when its handshake is through.
    pub fn new(
        inner: Box<dyn DataChannel>,
        mut ssl: Ssl,
        role: Role,
        check: Option<Arc<Check>>,
        bare_close_ends: bool,
    ) -> Result<Self, Fault> {
        keep_secrets(&mut ssl);
        Self::by_library(inner, ssl, role, check, bare_close_ends)
    }

    /// As [`Self::new`]; all records are OpenSSL's.
    pub(super) fn by_library(
        inner: Box<dyn DataChannel>,
        ssl: Ssl,
        role: Role,
        check: Option<Arc<Check>>,
        bare_close_ends: bool,
    ) -> Result<Self, Fault> {
        let handshake = Handshake::new(inner, ssl, role, check, false)?;
        Ok(Self {
            handshake,
            records: Records::Library,
            bare_close_ends,
            owed: 0,
            more_inside: false,
            later: None,
            told_end: false,
            sent: 0,
            received: 0,
        })
    }

    /// Carries the handshake on; its last records go with the first bytes that are sent, or at once before a receive.
    fn ready(&mut self) -> io::Result<()> {
        if self.handshake.is_done() {
            return Ok(());
        }
        self.handshake.drive()?;
        self.records = Records::behind(&self.handshake.stream);
        self.more_inside = self.handshake.stream.get_ref().has_unread();
        Ok(())
    }

    /// Reads into one piece until it is full or nothing is left; gives the bytes and whether something may be left.
    fn read(&mut self, piece: &mut [u8]) -> (usize, io::Result<bool>) {
        let (count, end) = self.records.read(&mut self.handshake.stream, piece);
        let end = match end {
            End::Full => Ok(true),
            End::Farewell => Ok(false),
            End::Empty => Err(ErrorKind::WouldBlock.into()),
            // Some peers just close.
            End::Cut if self.bare_close_ends => Ok(false),
            End::Cut => {
                let fault = Fault::new(FaultCode::ConnectionLost, "receive data").side(Side::Peer);
                Err(io::Error::other(fault.detail("closed without a word of farewell: bytes may be missing")))
            }
            End::Failed(error) => Err(error),
        };
        (count, end.map_err(|error| self.named(error)))
    }

    /// Names the peer in a fault that names nobody.
    fn named(&self, error: io::Error) -> io::Error {
        match error.downcast::<Fault>() {
            Ok(fault) if fault.subject.is_empty() => {
                let peer = self.peer_addr().map(|peer| peer.to_string()).unwrap_or_default();
                io::Error::other(fault.subject(peer))
            }
            Ok(fault) => io::Error::other(fault),
            Err(error) => error,
        }
    }

    /// Sends records that reading gave rise to, as far as there is room.
    fn answer(&mut self) -> io::Result<()> {
        self.records.answer(&mut self.handshake.stream)?;
        match self.handshake.stream.get_mut().flush_all(false) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }
}

impl DataChannel for TlsChannel {
    fn send_vectored(&mut self, pieces: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        self.ready()?;
        if self.owed == 0 {
            self.owed = self.records.protect(&mut self.handshake.stream, pieces)?;
        }
        self.handshake.stream.get_mut().flush_all(more)?;
        let taken = std::mem::take(&mut self.owed);
        self.sent += taken as u64;
        Ok(taken)
    }

    fn recv_vectored(&mut self, pieces: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if let Some(error) = self.later.take() {
            return Err(error);
        }
        self.ready()?;
        // Where nothing goes out any more, what has come in may say why.
        let sending = self.answer();
        let mut received = 0;
        let mut end = Ok(true);
        for piece in pieces {
            let (count, after) = self.read(piece);
            received += count;
            end = after;
            if !matches!(end, Ok(true)) {
                break;
            }
        }
        self.received += received as u64;
        self.more_inside = match end {
            Ok(true) => self.records.may_hold_more(&mut self.handshake.stream),
            // The farewell has been read with the last bytes: whoever waited for more from the peer would miss it.
            Ok(false) => received > 0,
            Err(_) => false,
        };
        let sending = sending.and(self.answer());
        match end {
            Ok(_) => Ok(received),
            Err(error) if received == 0 && error.kind() == ErrorKind::WouldBlock => sending.and(Err(error)),
            Err(error) if received == 0 => Err(error),
            Err(error) => {
                self.later = Some(error).filter(|error| error.kind() != ErrorKind::WouldBlock);
                self.more_inside = self.later.is_some();
                Ok(received)
            }
        }
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handshake.inner().as_fd()
    }

    fn poll_flags(&self, interest: PollFlags) -> PollFlags {
        if !self.handshake.is_done() {
            return self.handshake.wants();
        }
        match self.handshake.stream.get_ref().has_unsent() {
            true => interest | PollFlags::OUT,
            false => interest,
        }
    }

    fn is_proven(&self) -> bool {
        self.handshake.is_done()
    }

    fn prove(&mut self) -> io::Result<()> {
        self.ready()?;
        self.handshake.stream.get_mut().flush_all(false)
    }

    fn has_buffered(&self) -> bool {
        self.more_inside
    }

    fn shutdown(&mut self) -> io::Result<()> {
        self.ready()?;
        if !self.told_end {
            self.records.farewell(&mut self.handshake.stream);
            self.told_end = true;
        }
        self.handshake.stream.get_mut().flush_all(false)?;
        self.handshake.stream.get_mut().inner.shutdown()
    }

    fn abort(&mut self) -> io::Result<()> {
        // A farewell is read before the reset behind it.
        self.told_end = true;
        self.handshake.stream.get_mut().inner.abort()
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        self.handshake.inner().peer_addr()
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        self.handshake.inner().local_addr()
    }

    fn stats(&self) -> ChannelStats {
        ChannelStats { bytes_sent: self.sent, bytes_received: self.received, ..self.handshake.inner().stats() }
    }

    fn watched(&self) -> Option<Arc<dyn Watched>> {
        self.handshake.inner().watched()
    }

    fn carried(&self) -> u64 {
        self.handshake.inner().carried()
    }
}

impl Drop for TlsChannel {
    fn drop(&mut self) {
        // A connection between transfers is left with a farewell, so that its end is told from a cut.
        if self.handshake.is_done() && !self.told_end && self.owed == 0 {
            self.records.farewell(&mut self.handshake.stream);
        }
    }
}

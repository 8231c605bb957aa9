//! A data channel inside TLS.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use openssl::ssl::{ErrorCode, Ssl, SslRef};
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_sys::poll::PollFlags;
use whimbrel_trust::tls::stream_failed;

use super::handshake::{Check, Handshake, Role};
use crate::channel::{ChannelStats, DataChannel};
use crate::watch::Watched;

/// Most plain bytes protected before they are sent: sixteen records a system call.
const TOGETHER: usize = 256 << 10;

/// Plain bytes of a record (RFC 8446 §5.1).
const RECORD: usize = 16 << 10;

/// A data connection whose bytes are encrypted and guarded against change.
///
/// The handshake is carried on by whatever its owner does first.
pub struct TlsChannel {
    handshake: Handshake,
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
        ssl: Ssl,
        role: Role,
        check: Option<Arc<Check>>,
        bare_close_ends: bool,
    ) -> Result<Self, Fault> {
        let handshake = Handshake::new(inner, ssl, role, check, false)?;
        Ok(Self {
            handshake,
            bare_close_ends,
            owed: 0,
            more_inside: false,
            later: None,
            told_end: false,
            sent: 0,
            received: 0,
        })
    }

    /// The TLS object.
    pub fn ssl(&self) -> &SslRef {
        self.handshake.stream.ssl()
    }

    /// Carries the handshake on; its last records go with the first bytes that are sent, or at once before a receive.
    fn ready(&mut self) -> io::Result<()> {
        if self.handshake.is_done() {
            return Ok(());
        }
        self.handshake.drive()?;
        self.more_inside = self.handshake.stream.get_ref().has_unread();
        Ok(())
    }

    /// Protects what one system call is to carry; returns the plain bytes.
    fn protect(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        let stream = &mut self.handshake.stream;
        let mut small = [0; RECORD];
        let mut gathered = 0;
        let mut taken = 0;
        for piece in pieces {
            let mut rest: &[u8] = &piece[..piece.len().min(TOGETHER - taken)];
            taken += rest.len();
            // A header shares its record with what follows it.
            if gathered > 0 || rest.len() < RECORD {
                let count = rest.len().min(RECORD - gathered);
                small[gathered..gathered + count].copy_from_slice(&rest[..count]);
                gathered += count;
                rest = &rest[count..];
                if gathered == RECORD {
                    write_all(stream, &small)?;
                    gathered = 0;
                }
            }
            let whole = rest.len() - rest.len() % RECORD;
            write_all(stream, &rest[..whole])?;
            let rest = &rest[whole..];
            if !rest.is_empty() {
                small[..rest.len()].copy_from_slice(rest);
                gathered = rest.len();
            }
        }
        write_all(stream, &small[..gathered])?;
        Ok(taken)
    }

    /// Reads into one piece until it is full or nothing is left; gives the bytes and whether something may be left.
    fn read(&mut self, piece: &mut [u8]) -> (usize, io::Result<bool>) {
        let mut at = 0;
        while at < piece.len() {
            match self.handshake.stream.ssl_read(&mut piece[at..]) {
                Ok(0) => return (at, Ok(false)),
                Ok(count) => at += count,
                Err(error) => {
                    let end = match error.code() {
                        ErrorCode::WANT_READ => Err(ErrorKind::WouldBlock.into()),
                        ErrorCode::ZERO_RETURN => Ok(false),
                        _ => self.ended(&error),
                    };
                    return (at, end);
                }
            }
        }
        (at, Ok(true))
    }

    /// What a failed read means: some peers just close.
    fn ended(&self, error: &openssl::ssl::Error) -> io::Result<bool> {
        let peer = || self.peer_addr().map(|peer| peer.to_string()).unwrap_or_default();
        if self.handshake.stream.get_ref().has_ended() {
            if self.bare_close_ends {
                return Ok(false);
            }
            let fault = Fault::new(FaultCode::ConnectionLost, "receive data").side(Side::Peer).subject(peer());
            return Err(io::Error::other(fault.detail("closed without a word of farewell: bytes may be missing")));
        }
        if let Some(cause) = error.io_error() {
            return Err(io::Error::new(cause.kind(), cause.to_string()));
        }
        let fault = stream_failed(error).into_fault("receive data", Side::Peer);
        Err(io::Error::other(if fault.subject.is_empty() { fault.subject(peer()) } else { fault }))
    }

    /// Sends records that reading gave rise to, as far as there is room.
    fn answer(&mut self) -> io::Result<()> {
        match self.handshake.stream.get_mut().flush_all(false) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }
}

fn write_all(stream: &mut openssl::ssl::SslStream<super::carrier::Carrier>, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let count = stream
            .ssl_write(bytes)
            .map_err(|error| io::Error::other(stream_failed(&error).into_fault("send data", Side::Peer)))?;
        bytes = &bytes[count..];
    }
    Ok(())
}

impl DataChannel for TlsChannel {
    fn send_vectored(&mut self, pieces: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        self.ready()?;
        if self.owed == 0 {
            self.owed = self.protect(pieces)?;
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
        self.more_inside = matches!(end, Ok(true)) && self.may_hold_more();
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
            // A first shutdown only says farewell; the answer is not waited for (RFC 8446 §6.1).
            let _first_half = self.handshake.stream.shutdown();
            self.told_end = true;
        }
        self.handshake.stream.get_mut().flush_all(false)?;
        self.handshake.stream.get_mut().inner.shutdown()
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

impl TlsChannel {
    fn may_hold_more(&self) -> bool {
        self.handshake.stream.ssl().pending() > 0 || self.handshake.stream.get_ref().has_unread()
    }
}

impl Drop for TlsChannel {
    fn drop(&mut self) {
        // A connection between transfers is left with a farewell, so that its end is told from a cut.
        if self.handshake.is_done() && !self.told_end && self.owed == 0 {
            let _first_half = self.handshake.stream.shutdown();
        }
    }
}

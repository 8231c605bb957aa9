//! A data channel that proves its ends by TLS and then carries plain bytes (GSI's PROT C).

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use openssl::ssl::{ErrorCode, Ssl, SslVersion};
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_sys::poll::PollFlags;
use whimbrel_trust::tls::stream_failed;

use super::handshake::{Check, Handshake, Role};
use crate::channel::{ChannelStats, DataChannel};
use crate::watch::Watched;

/// What the acceptor says when TLS 1.3 left it nothing to say: its token must not be empty.
const NUL: u8 = 0;

/// What the connector says: it delegates nothing.
const NO_DELEGATION: u8 = b'0';

/// A data connection in the clear between ends that have proven who they are.
///
/// Behind the handshake stand one byte of each side inside TLS (the acceptor's only in TLS 1.3), then plain bytes; so nothing
/// may be read ahead before.
pub struct ClearChannel {
    handshake: Handshake,
    step: Step,
    wants: PollFlags,
    /// What the carrier had counted when plain bytes began.
    before: ChannelStats,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The handshake is under way.
    Handshake,
    /// The other side's byte is to come.
    Await(u8),
    /// Our last byte is to go.
    Last,
    /// Plain bytes from here on.
    Open,
}

impl ClearChannel {
    /// Has the ends of a channel proven; `check` sees the connection when its handshake is through.
    pub fn new(inner: Box<dyn DataChannel>, ssl: Ssl, role: Role, check: Option<Arc<Check>>) -> Result<Self, Fault> {
        let handshake = Handshake::new(inner, ssl, role, check, true)?;
        let wants = handshake.wants();
        Ok(Self { handshake, step: Step::Handshake, wants, before: ChannelStats::default() })
    }

    /// Goes on as far as possible; [`ErrorKind::WouldBlock`] until plain bytes may travel.
    fn ready(&mut self) -> io::Result<()> {
        while self.step != Step::Open {
            self.step = self.next()?;
        }
        Ok(())
    }

    fn next(&mut self) -> io::Result<Step> {
        match self.step {
            Step::Handshake => {
                let driven = self.handshake.drive();
                self.wants = self.handshake.wants();
                driven?;
                let modern = self.handshake.stream.ssl().version2() == Some(SslVersion::TLS1_3);
                match (self.handshake.role(), modern) {
                    (Role::Server, true) => self.say(NUL)?,
                    (Role::Client, true) => return Ok(Step::Await(NUL)),
                    (Role::Client, false) => {
                        self.say(NO_DELEGATION)?;
                        return Ok(Step::Last);
                    }
                    (Role::Server, false) => {}
                }
                Ok(Step::Await(NO_DELEGATION))
            }
            Step::Await(expected) => {
                self.flush()?;
                self.wants = PollFlags::IN;
                self.hear(expected)?;
                if expected == NUL {
                    self.say(NO_DELEGATION)?;
                }
                Ok(Step::Last)
            }
            Step::Last => {
                self.flush()?;
                self.before = self.handshake.inner().stats();
                Ok(Step::Open)
            }
            Step::Open => Ok(Step::Open),
        }
    }

    fn say(&mut self, byte: u8) -> io::Result<()> {
        let written = self.handshake.stream.ssl_write(&[byte]);
        written.map(drop).map_err(|error| self.fault(&error))
    }

    fn hear(&mut self, expected: u8) -> io::Result<()> {
        let mut byte = [0; 1];
        match self.handshake.stream.ssl_read(&mut byte) {
            Ok(1) if byte[0] == expected => Ok(()),
            Ok(_) => Err(self.broken("it wants to delegate, or breaks the protocol")),
            Err(error) if error.code() == ErrorCode::WANT_READ => Err(ErrorKind::WouldBlock.into()),
            Err(error) => Err(self.fault(&error)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.wants = PollFlags::OUT;
        self.handshake.stream.get_mut().flush_all(false)
    }

    fn fault(&self, error: &openssl::ssl::Error) -> io::Error {
        match self.handshake.stream.get_ref().has_ended() {
            true => self.broken("the other side closed it during the handshake"),
            false => io::Error::other(stream_failed(error).into_fault("protect data channel", Side::Peer)),
        }
    }

    fn broken(&self, why: &str) -> io::Error {
        let peer = self.peer_addr().map(|peer| peer.to_string()).unwrap_or_default();
        let fault = Fault::new(FaultCode::ConnectionLost, "protect data channel").side(Side::Peer).subject(peer);
        io::Error::other(fault.detail(why))
    }

    fn inner(&mut self) -> &mut dyn DataChannel {
        self.handshake.stream.get_mut().inner.as_mut()
    }
}

impl DataChannel for ClearChannel {
    fn send_vectored(&mut self, pieces: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        self.ready()?;
        self.inner().send_vectored(pieces, more)
    }

    fn recv_vectored(&mut self, pieces: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.ready()?;
        self.inner().recv_vectored(pieces)
    }

    fn can_sendfile(&self) -> bool {
        self.handshake.inner().can_sendfile()
    }

    fn sendfile(&mut self, file: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<usize> {
        self.ready()?;
        self.inner().sendfile(file, offset, len)
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.handshake.inner().as_fd()
    }

    fn poll_flags(&self, interest: PollFlags) -> PollFlags {
        if self.step == Step::Open { interest } else { self.wants }
    }

    fn is_proven(&self) -> bool {
        self.step == Step::Open
    }

    fn prove(&mut self) -> io::Result<()> {
        self.ready()
    }

    fn shutdown(&mut self) -> io::Result<()> {
        self.ready()?;
        self.inner().shutdown()
    }

    fn abort(&mut self) -> io::Result<()> {
        self.inner().abort()
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        self.handshake.inner().peer_addr()
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        self.handshake.inner().local_addr()
    }

    fn stats(&self) -> ChannelStats {
        let stats = self.handshake.inner().stats();
        let (sent, received) = (self.before.bytes_sent, self.before.bytes_received);
        ChannelStats { bytes_sent: stats.bytes_sent - sent, bytes_received: stats.bytes_received - received, ..stats }
    }

    fn watched(&self) -> Option<Arc<dyn Watched>> {
        self.handshake.inner().watched()
    }

    fn carried(&self) -> u64 {
        self.handshake.inner().carried()
    }
}

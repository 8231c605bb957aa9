//! The handshake of a data channel, carried on whenever its owner sends or receives.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use openssl::ssl::{ErrorCode, Ssl, SslRef, SslStream};
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_sys::poll::PollFlags;
use whimbrel_trust::TrustFault;
use whimbrel_trust::tls::handshake_failed;

use super::carrier::Carrier;
use crate::channel::DataChannel;

/// What a finished handshake must have shown beyond what its judge looked at.
pub type Check = dyn Fn(&SslRef) -> Result<(), TrustFault> + Send + Sync;

/// Which side of TLS an end is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Begins.
    Client,
    /// Waits.
    Server,
}

const OP: &str = "protect data channel";

/// A TLS object over a data channel, and how far its handshake is.
pub(super) struct Handshake {
    pub(super) stream: SslStream<Carrier>,
    role: Role,
    check: Option<Arc<Check>>,
    /// What the next step waits for.
    wants: PollFlags,
    done: bool,
    failed: bool,
}

impl Handshake {
    pub(super) fn new(
        inner: Box<dyn DataChannel>,
        ssl: Ssl,
        role: Role,
        check: Option<Arc<Check>>,
        exact: bool,
    ) -> Result<Self, Fault> {
        let stream = SslStream::new(ssl, Carrier::new(inner, exact))
            .map_err(|error| Fault::new(FaultCode::Internal, OP).side(Side::Us).detail(error.to_string()))?;
        let wants = if role == Role::Client { PollFlags::OUT } else { PollFlags::IN };
        Ok(Self { stream, role, check, wants, done: false, failed: false })
    }

    pub(super) fn is_done(&self) -> bool {
        self.done
    }

    /// What to poll for as long as the handshake is not done.
    pub(super) fn wants(&self) -> PollFlags {
        self.wants
    }

    pub(super) fn role(&self) -> Role {
        self.role
    }

    pub(super) fn inner(&self) -> &dyn DataChannel {
        self.stream.get_ref().inner.as_ref()
    }

    /// Goes on as far as possible; [`ErrorKind::WouldBlock`] until it is done. Its last records may still wait to be sent.
    pub(super) fn drive(&mut self) -> io::Result<()> {
        if self.done {
            return Ok(());
        }
        if self.failed {
            return Err(ErrorKind::NotConnected.into());
        }
        let result = match self.role {
            Role::Client => self.stream.connect(),
            Role::Server => self.stream.accept(),
        };
        match result {
            Ok(()) => self.checked(),
            Err(error) if error.code() == ErrorCode::WANT_READ => {
                let sent = self.stream.get_mut().flush_all(false);
                self.wants = if sent.is_ok() { PollFlags::IN } else { PollFlags::OUT };
                sent?;
                // A peer that keeps to Nagle sends the end of a flight (Finished) once its beginning is acknowledged: not 40 ms later. What
                // is no TCP has nothing to acknowledge.
                let _at_once = whimbrel_sys::socket::set_quickack(self.inner().as_fd(), true);
                Err(ErrorKind::WouldBlock.into())
            }
            Err(error) => {
                let fault = match error.io_error() {
                    Some(cause) if cause.kind() != ErrorKind::UnexpectedEof => self.broken(&cause.to_string()),
                    _ if self.stream.get_ref().has_ended() => {
                        self.broken("the other side closed it during the handshake")
                    }
                    _ => self.fault(handshake_failed(self.stream.ssl(), &error)),
                };
                Err(self.fail(fault))
            }
        }
    }

    fn checked(&mut self) -> io::Result<()> {
        if let Some(check) = &self.check
            && let Err(refusal) = check(self.stream.ssl())
        {
            let fault = self.fault(refusal);
            return Err(self.fail(fault));
        }
        self.done = true;
        Ok(())
    }

    fn fail(&mut self, fault: Fault) -> io::Error {
        self.failed = true;
        // The alert goes if there is room; the other side sees the close in any case.
        let _told = self.stream.get_mut().flush_all(false);
        io::Error::other(fault)
    }

    fn fault(&self, refusal: TrustFault) -> Fault {
        let peer = self.inner().peer_addr().map(|peer| peer.to_string()).unwrap_or_default();
        let fault = refusal.into_fault(OP, Side::Peer);
        if fault.subject.is_empty() { fault.subject(peer) } else { fault }
    }

    fn broken(&self, why: &str) -> Fault {
        let peer = self.inner().peer_addr().map(|peer| peer.to_string()).unwrap_or_default();
        Fault::new(FaultCode::ConnectionLost, OP).side(Side::Peer).subject(peer).detail(why)
    }
}

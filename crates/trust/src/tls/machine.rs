//! TLS as a machine: bytes of the wire in, bytes for the wire out, plain bytes on the other side.

use std::sync::Arc;

use openssl::ssl::{ErrorCode, Ssl, SslRef, SslStream, SslVersion};
use whimbrel_engine::fault::FaultCode;
use whimbrel_sys::ssl::{give_ticket, holds_bytes};

use super::context::{ClientTls, ServerTls, TICKETS, slot, verdict};
use super::failure::{handshake_failed, stream_failed};
use super::pipe::Pipe;
use super::resume::Sessions;
use crate::fault::TrustFault;
use crate::peer::Peer;

/// One end of a TLS connection without a socket.
///
/// After a failure [`Self::transmit`] still gives the alert that tells the other side.
#[derive(Debug)]
pub struct TlsMachine {
    stream: SslStream<Pipe>,
    server: bool,
    established: bool,
}

/// How far the handshake is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// More bytes of the other side are needed.
    Handshaking,
    /// Plain bytes can be read and written.
    Established,
}

/// What reading gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plain {
    /// So many bytes were appended.
    Bytes(usize),
    /// Nothing until more comes from the wire.
    Nothing,
    /// The other side said that it is done (close_notify).
    Closed,
}

/// Plain bytes that one TLS record holds at most (RFC 8446 §5.1).
const RECORD: usize = 16 << 10;

impl TlsMachine {
    /// The side that begins; `host` is named in the first message (SNI) unless it is an address.
    pub fn client(config: &ClientTls, host: &str) -> Result<Self, TrustFault> {
        Self::new(config.connection(host)?, false)
    }

    /// The side that waits.
    pub fn server(config: &ServerTls) -> Result<Self, TrustFault> {
        Self::new(config.connection()?, true)
    }

    /// A machine over a TLS object of [`ServerTls::connection`] or [`ClientTls::connection`] that was changed before.
    pub fn over(ssl: Ssl, server: bool) -> Result<Self, TrustFault> {
        Self::new(ssl, server)
    }

    fn new(ssl: Ssl, server: bool) -> Result<Self, TrustFault> {
        let stream = SslStream::new(ssl, Pipe::default()).map_err(|error| internal(&error))?;
        Ok(Self { stream, server, established: false })
    }

    /// Takes bytes from the wire; nothing happens to them before [`Self::drive`] or [`Self::read`].
    pub fn feed(&mut self, bytes: &[u8]) {
        self.stream.get_mut().feed(bytes);
    }

    /// The wire is closed: what comes short of a proper end is a fault from now on.
    pub fn feed_end(&mut self) {
        self.stream.get_mut().end();
    }

    /// Goes on with the handshake as far as the bytes that came allow.
    pub fn drive(&mut self) -> Result<Progress, TrustFault> {
        if self.established {
            return Ok(Progress::Established);
        }
        match if self.server { self.stream.accept() } else { self.stream.connect() } {
            Ok(()) => {
                self.established = true;
                Ok(Progress::Established)
            }
            Err(error) if error.code() == ErrorCode::WANT_READ => Ok(Progress::Handshaking),
            Err(error) => Err(handshake_failed(self.stream.ssl(), &error)),
        }
    }

    /// Appends the plain bytes of at most one record.
    ///
    /// A close of the wire without a close_notify before it is a fault: bytes may be missing.
    pub fn read(&mut self, into: &mut Vec<u8>) -> Result<Plain, TrustFault> {
        let before = into.len();
        // The text of a record is shorter than the record; room for none would say that the wire is closed.
        let most = if holds_bytes(self.ssl()) { RECORD } else { self.unread().clamp(1, RECORD) };
        into.resize(before + most, 0);
        let read = self.stream.ssl_read(&mut into[before..]);
        into.truncate(before + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => Ok(Plain::Closed),
            Ok(count) => Ok(Plain::Bytes(count)),
            Err(error) => match error.code() {
                ErrorCode::WANT_READ => Ok(Plain::Nothing),
                ErrorCode::ZERO_RETURN => Ok(Plain::Closed),
                _ => Err(stream_failed(&error)),
            },
        }
    }

    /// Protects plain bytes for the wire.
    pub fn write(&mut self, plain: &[u8]) -> Result<(), TrustFault> {
        let mut rest = plain;
        while !rest.is_empty() {
            let count = self.stream.ssl_write(rest).map_err(|error| stream_failed(&error))?;
            rest = &rest[count..];
        }
        Ok(())
    }

    /// Bytes for the wire, alerts included; `None` if there are none.
    pub fn transmit(&mut self) -> Option<Vec<u8>> {
        Some(self.stream.get_mut().take_outgoing()).filter(|bytes| !bytes.is_empty())
    }

    /// Bytes that [`Self::transmit`] would give.
    pub fn pending_output(&self) -> usize {
        self.stream.get_ref().outgoing()
    }

    /// Bytes of the wire that were fed and belong to no record read so far.
    pub fn unread(&self) -> usize {
        self.stream.get_ref().unread().len()
    }

    /// Tells the other side that nothing more will come (close_notify).
    pub fn close(&mut self) {
        // What cannot be told any more need not be: the connection is broken already.
        let _told = self.stream.shutdown();
    }

    /// Who the other side proved to be; `None` without a certificate, before the end of the handshake, and for a session that
    /// was resumed.
    pub fn peer(&self) -> Option<Peer> {
        verdict(self.ssl()).and_then(Result::ok).filter(|_| self.established)
    }

    /// The session, for [`ServerTls::know`]; in TLS 1.2 only, where clients may name it instead of showing a ticket.
    pub fn session(&self) -> Option<Vec<u8>> {
        let named = self.established && self.ssl().version2() == Some(SslVersion::TLS1_2);
        self.ssl().session().filter(|_| named).and_then(|session| session.to_der().ok())
    }

    /// Gives the client one more ticket along with what is written next; `false` where TLS has no such thing (a client, TLS 1.2).
    ///
    /// New clients use a ticket of TLS 1.3 once (RFC 8446 appendix C.4): whoever expects more connections renews it.
    pub fn give_ticket(&mut self) -> bool {
        self.established && give_ticket(&mut self.stream)
    }

    /// Gives a client that resumed a session as many tickets as one that did not gets.
    pub fn refill_tickets(&mut self) {
        if self.resumed() {
            // The handshake brings one.
            let _where_there_are_tickets = (1..TICKETS).all(|_| self.give_ticket());
        }
    }

    /// Keeps the sessions that the server offers from now on, for connections that need not ask who it is: for a client that
    /// believes it.
    pub fn keep_sessions(&self, sessions: Arc<Sessions>) {
        if let Some(slot) = slot(self.ssl()) {
            let _first = slot.sessions.set(sessions);
        }
    }

    /// Version and cipher, for people: `TLSv1.3 with TLS_AES_256_GCM_SHA384`.
    pub fn suite(&self) -> String {
        let cipher = self.ssl().current_cipher().map_or("no cipher", |cipher| cipher.name());
        format!("{} with {cipher}", self.ssl().version_str())
    }

    /// The connection continues an earlier one's session.
    pub fn resumed(&self) -> bool {
        self.ssl().session_reused()
    }

    /// The TLS object, for what is rarely asked.
    pub fn ssl(&self) -> &SslRef {
        self.stream.ssl()
    }
}

/// A failure of OpenSSL that no peer can cause.
pub(super) fn internal(error: &openssl::error::ErrorStack) -> TrustFault {
    TrustFault::new(FaultCode::Internal, format!("OpenSSL: {error}"))
}

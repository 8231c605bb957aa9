//! The server's side of a GSI login: tokens in, tokens out, and in the end who the client is and what it handed on.
//!
//! A token is one whole flight of TLS records. After the handshake follows the delegation, one record for each step, as Globus'
//! libraries do it: a zero byte of the server where TLS left it nothing to send, a flag of the client, then, if it hands on
//! rights, the server's request and the client's certificate.

use std::sync::Arc;

use openssl::pkey::{PKey, Private};
use whimbrel_engine::fault::FaultCode;
use whimbrel_proto::timeval::Timestamp;

use super::delegate::{self, Pieces};
use super::keys::KeyPool;
use crate::fault::TrustFault;
use crate::peer::{OwnChain, Peer};
use crate::tls::{Plain, Progress, ServerTls, TlsMachine};

/// The client hands on rights.
pub(super) const FLAG_DELEGATE: u8 = b'D';
/// The client hands on nothing.
pub(super) const FLAG_NONE: u8 = b'0';

/// One login.
pub struct GsiAcceptor {
    tls: TlsMachine,
    keys: Arc<KeyPool>,
    stage: Stage,
}

enum Stage {
    Handshake,
    Flag,
    Certificate { key: PKey<Private>, pieces: Pieces },
    Done,
}

/// What a token led to.
#[derive(Debug)]
pub enum Accepted {
    /// Send this and wait for the next token.
    Continue(Vec<u8>),
    /// The client is known; nothing more is sent.
    Established {
        /// Who it is.
        peer: Peer,
        /// What it handed on.
        delegated: Option<Box<OwnChain>>,
    },
}

impl GsiAcceptor {
    /// A login that begins; the keys of requests come from `keys`.
    pub fn new(config: &ServerTls, keys: Arc<KeyPool>) -> Result<Self, TrustFault> {
        Ok(Self::over(TlsMachine::server(config)?, keys))
    }

    /// A login over a machine that has not begun yet.
    pub fn over(tls: TlsMachine, keys: Arc<KeyPool>) -> Self {
        Self { tls, keys, stage: Stage::Handshake }
    }

    /// Takes a token of the client; `now` judges what it hands on.
    ///
    /// Making a request may take a tenth of a second, judging a chain some milliseconds.
    pub fn step(&mut self, token: &[u8], now: Timestamp) -> Result<Accepted, TrustFault> {
        self.tls.feed(token);
        match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::Handshake => self.shake(),
            Stage::Flag => self.flag(),
            Stage::Certificate { key, pieces } => self.certificate(key, pieces, now),
            Stage::Done => Err(out_of_turn()),
        }
    }

    /// What tells the client why it is refused, after a failure.
    pub fn alert(&mut self) -> Option<Vec<u8>> {
        self.tls.transmit()
    }

    /// The machine that protects what follows.
    pub fn into_tls(self) -> TlsMachine {
        self.tls
    }

    fn shake(&mut self) -> Result<Accepted, TrustFault> {
        let progress = self.tls.drive()?;
        // Tokens take turns: where TLS 1.3 leaves nothing to say, a zero byte is said.
        if progress == Progress::Established && self.tls.pending_output() == 0 {
            self.tls.write(&[0])?;
        }
        let answer = self.answer()?;
        self.stage = if progress == Progress::Established { Stage::Flag } else { Stage::Handshake };
        Ok(answer)
    }

    fn flag(&mut self) -> Result<Accepted, TrustFault> {
        let mut flag = Vec::new();
        self.tls.read(&mut flag)?;
        match flag.as_slice() {
            [FLAG_NONE] => self.established(None),
            [FLAG_DELEGATE] => {
                let key = self.keys.take()?;
                let request = delegate::request(&self.peer()?, &key)?;
                self.tls.write(&request)?;
                self.stage = Stage::Certificate { key, pieces: Pieces::default() };
                self.answer()
            }
            _ => Err(out_of_turn()),
        }
    }

    fn certificate(&mut self, key: PKey<Private>, mut pieces: Pieces, now: Timestamp) -> Result<Accepted, TrustFault> {
        collect(&mut self.tls, &mut pieces)?;
        // A token is a whole flight, so the certificate is whole, too.
        let answer = pieces.whole()?.ok_or_else(out_of_turn)?;
        let delegated = delegate::assemble(&answer, key, &self.peer()?, now)?;
        self.established(Some(Box::new(delegated)))
    }

    fn established(&mut self, delegated: Option<Box<OwnChain>>) -> Result<Accepted, TrustFault> {
        if self.tls.unread() > 0 {
            return Err(out_of_turn());
        }
        Ok(Accepted::Established { peer: self.peer()?, delegated })
    }

    fn peer(&self) -> Result<Peer, TrustFault> {
        self.tls.peer().ok_or_else(|| TrustFault::new(FaultCode::CredentialMissing, "the client showed no certificate"))
    }

    fn answer(&mut self) -> Result<Accepted, TrustFault> {
        self.tls.transmit().map(Accepted::Continue).ok_or_else(out_of_turn)
    }
}

/// Reads all records that are there.
pub(super) fn collect(tls: &mut TlsMachine, pieces: &mut Pieces) -> Result<(), TrustFault> {
    while let Plain::Bytes(_) = tls.read(pieces.buffer())? {}
    Ok(())
}

/// The other side does not keep to the exchange.
pub(super) fn out_of_turn() -> TrustFault {
    TrustFault::new(FaultCode::EncryptionFailed, "the other side does not keep to the exchange of tokens")
}

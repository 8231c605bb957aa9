//! The client's side of a GSI login: the counterpart of [`super::acceptor`].

use whimbrel_proto::timeval::Timestamp;

use super::acceptor::{FLAG_DELEGATE, FLAG_NONE, collect, out_of_turn};
use super::delegate::{self, Delegate, Pieces};
use crate::fault::TrustFault;
use crate::make::Life;
use crate::peer::OwnChain;
use crate::tls::{ClientTls, Progress, TlsMachine};

/// One login.
pub struct GsiInitiator {
    tls: TlsMachine,
    own: OwnChain,
    delegate: Delegate,
    stage: Stage,
}

enum Stage {
    Handshake,
    /// TLS is done and the server has to say its zero byte.
    Zero,
    Request(Pieces),
    Done,
}

/// What a token led to.
#[derive(Debug, PartialEq, Eq)]
pub enum Initiated {
    /// Send this and wait for the next token.
    Continue(Vec<u8>),
    /// Send this; the server has nothing more to say than that it is content.
    Last(Vec<u8>),
}

impl GsiInitiator {
    /// A login at `host` as `own`, which must be what `config` shows.
    pub fn new(config: &ClientTls, host: &str, own: OwnChain, delegate: Delegate) -> Result<Self, TrustFault> {
        Ok(Self::over(TlsMachine::client(config, host)?, own, delegate))
    }

    /// A login over a machine that has not begun yet.
    pub fn over(tls: TlsMachine, own: OwnChain, delegate: Delegate) -> Self {
        Self { tls, own, delegate, stage: Stage::Handshake }
    }

    /// The first token.
    pub fn start(&mut self) -> Result<Vec<u8>, TrustFault> {
        self.tls.drive()?;
        self.tls.transmit().ok_or_else(out_of_turn)
    }

    /// Takes a token of the server; what is handed on is good for at most `seconds` from `now`.
    pub fn step(&mut self, token: &[u8], now: Timestamp, seconds: i64) -> Result<Initiated, TrustFault> {
        self.tls.feed(token);
        match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::Handshake => self.shake(),
            Stage::Zero => self.zero(),
            Stage::Request(pieces) => self.request(pieces, Life::of(now, seconds)),
            Stage::Done => Err(out_of_turn()),
        }
    }

    /// Hands on nothing, if it is not too late for that.
    pub fn hand_on_nothing(&mut self) {
        if matches!(self.stage, Stage::Handshake | Stage::Zero) {
            self.delegate = Delegate::No;
        }
    }

    /// Whether something is, or will be, handed on.
    pub fn hands_on(&self) -> bool {
        self.delegate != Delegate::No
    }

    /// What tells the server why it is refused, after a failure.
    pub fn alert(&mut self) -> Option<Vec<u8>> {
        self.tls.transmit()
    }

    /// The machine that protects what follows.
    pub fn into_tls(self) -> TlsMachine {
        self.tls
    }

    fn shake(&mut self) -> Result<Initiated, TrustFault> {
        let progress = self.tls.drive()?;
        match (progress, self.tls.transmit()) {
            (Progress::Handshaking, Some(flight)) => {
                self.stage = Stage::Handshake;
                Ok(Initiated::Continue(flight))
            }
            (Progress::Handshaking, None) => Err(out_of_turn()),
            // TLS 1.3: our Finished is the last of the handshake, so the server is next.
            (Progress::Established, Some(flight)) => {
                self.stage = Stage::Zero;
                Ok(Initiated::Continue(flight))
            }
            // TLS 1.2: the server's Finished was.
            (Progress::Established, None) => self.flag(),
        }
    }

    fn zero(&mut self) -> Result<Initiated, TrustFault> {
        let mut zero = Vec::new();
        self.tls.read(&mut zero)?;
        if zero == [0] { self.flag() } else { Err(out_of_turn()) }
    }

    fn flag(&mut self) -> Result<Initiated, TrustFault> {
        let flag = if self.delegate == Delegate::No { FLAG_NONE } else { FLAG_DELEGATE };
        self.tls.write(&[flag])?;
        let token = self.tls.transmit().ok_or_else(out_of_turn)?;
        if self.delegate == Delegate::No {
            return Ok(Initiated::Last(token));
        }
        self.stage = Stage::Request(Pieces::default());
        Ok(Initiated::Continue(token))
    }

    fn request(&mut self, mut pieces: Pieces, life: Life) -> Result<Initiated, TrustFault> {
        collect(&mut self.tls, &mut pieces)?;
        let request = pieces.whole()?.ok_or_else(out_of_turn)?;
        let answer = delegate::issue(&request, &self.own, self.delegate, life)?;
        self.tls.write(&answer)?;
        self.tls.transmit().map(Initiated::Last).ok_or_else(out_of_turn)
    }
}

//! One data connection of the client itself: in clear, or at a grid server inside GSI, encrypted.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use whimbrel_engine::{Fault, Side};
use whimbrel_proto::op::{GsiPeer, Level, Shield};
use whimbrel_trust::gsi::{Anchors, Expected, GsiJudge, Trusted};
use whimbrel_trust::tls::{ClientTls, Plain, ServerTls, TlsMachine};
use whimbrel_trust::{OwnChain, TrustFault, psk};

use crate::client::grid::Credential;
use crate::handshake::{Broken, shake};

const OP: &str = "protect data connection";

/// Bytes read at once.
const PIECE: usize = 16 << 10;

/// The same where they are handed on as they are.
const LARGE_PIECE: usize = 128 << 10;

/// What data connections with a grid server prove themselves with; both ends speak for the same person (DCAU A).
#[derive(Clone)]
pub struct Certified {
    own: OwnChain,
    judge: Arc<GsiJudge>,
}

impl Certified {
    /// A credential that the server has a proxy of.
    pub(in crate::client) fn new(credential: &Credential, trusted: Trusted) -> Self {
        let judge = GsiJudge::new(trusted, Expected::Subject(credential.identity.clone()));
        Self { own: credential.own.clone(), judge: Arc::new(judge) }
    }

    /// A credential that the server was given (DCSC): its certificates are the authorities.
    pub(in crate::client) fn given(credential: &Credential) -> Result<Self, Fault> {
        let OwnChain { certificate, chain, .. } = &credential.own;
        // One without any above it vouches for itself.
        let brought = if chain.is_empty() { vec![certificate.clone()] } else { chain.clone() };
        let anchors = Anchors::default().and(brought);
        let anchors = anchors.map_err(|fault| fault.into_fault(OP, Side::Us))?;
        Ok(Self::new(credential, Trusted::Fixed(Arc::new(anchors))))
    }

    /// How a data handle for such a connection is protected.
    pub fn shield(certified: Option<&Self>) -> Shield {
        certified.map_or(Shield::None, |_| Shield::Gsi { peer: GsiPeer::Own, level: Level::Private })
    }

    /// Whoever made the TCP connection is the TLS client.
    fn machine(&self, comes: bool) -> Result<TlsMachine, TrustFault> {
        match comes {
            true => TlsMachine::server(&ServerTls::gsi(&self.own, self.judge.clone())?),
            false => TlsMachine::client(&ClientTls::new(self.judge.clone(), Some(&self.own))?, ""),
        }
    }
}

/// A data connection.
pub struct DataStream {
    stream: TcpStream,
    tls: Option<Box<TlsMachine>>,
    peer: Option<SocketAddr>,
}

impl DataStream {
    /// Over a connection that came, or was made; TLS begins when it is first used, for the server waits with it for its command.
    pub fn new(stream: TcpStream, certified: Option<&Certified>, comes: bool) -> Result<Self, Fault> {
        let peer = stream.peer_addr().ok();
        let tls = certified.map(|certified| certified.machine(comes).map(Box::new)).transpose();
        Ok(Self { stream, tls: tls.map_err(|fault| fault.into_fault(OP, Side::Us))?, peer })
    }

    /// Over a connection that was made to a server of ours, encrypted with the nonce that it was told.
    pub fn agreed(stream: TcpStream, nonce: Option<&[u8; 16]>) -> Result<Self, Fault> {
        let machine = |nonce| TlsMachine::client(&ClientTls::agreed(&psk::from_nonce(nonce))?, "").map(Box::new);
        let tls = nonce.map(machine).transpose().map_err(|fault: TrustFault| fault.into_fault(OP, Side::Us))?;
        Ok(Self { peer: stream.peer_addr().ok(), stream, tls })
    }

    /// What comes next; `None` at the end. Cancel safe once TLS stands.
    pub async fn piece(&mut self) -> Result<Option<Bytes>, Fault> {
        if self.tls.is_some() {
            let mut bytes = Vec::new();
            return Ok(self.read(&mut bytes).await?.then(|| bytes.into()));
        }
        let mut bytes = BytesMut::with_capacity(LARGE_PIECE);
        let count = self.stream.read_buf(&mut bytes).await.map_err(lost)?;
        Ok((count > 0).then(|| bytes.freeze()))
    }

    /// Sends a part of what there is to send.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.shake().await?;
        match &mut self.tls {
            Some(tls) => {
                let written = tls.write(bytes);
                let wire = tls.transmit().unwrap_or_default();
                written.map_err(|fault| self.failed(fault))?;
                self.stream.write_all(&wire).await.map_err(lost)
            }
            None => self.stream.write_all(bytes).await.map_err(lost),
        }
    }

    /// Appends what comes next; false at the end.
    pub async fn read(&mut self, into: &mut Vec<u8>) -> Result<bool, Fault> {
        self.shake().await?;
        loop {
            if let Some(tls) = &mut self.tls {
                match tls.read(into) {
                    Ok(Plain::Bytes(_)) => return Ok(true),
                    Ok(Plain::Closed) => return Ok(false),
                    Ok(Plain::Nothing) => {}
                    Err(fault) => return Err(self.failed(fault)),
                }
            }
            let mut piece = [0; PIECE];
            let count = self.stream.read(&mut piece).await.map_err(lost)?;
            match &mut self.tls {
                // Globus' programs just close: the control connection says whether that was all.
                _ if count == 0 => return Ok(false),
                Some(tls) => tls.feed(&piece[..count]),
                None => {
                    into.extend_from_slice(&piece[..count]);
                    return Ok(true);
                }
            }
        }
    }

    /// Sends all there is to send, and its end.
    pub async fn send(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.shake().await?;
        match &mut self.tls {
            Some(tls) => {
                let written = tls.write(bytes);
                tls.close();
                let wire = tls.transmit().unwrap_or_default();
                written.map_err(|fault| self.failed(fault))?;
                self.stream.write_all(&wire).await.map_err(lost)?;
            }
            None => self.stream.write_all(bytes).await.map_err(lost)?,
        }
        self.stream.shutdown().await.map_err(lost)
    }

    /// The handshake, if it is not through yet.
    async fn shake(&mut self) -> Result<(), Fault> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        match shake(&mut self.stream, tls).await {
            Ok(()) => Ok(()),
            Err(Broken::Refused(fault)) => Err(self.failed(fault)),
            Err(Broken::Wire(error)) if error.kind() == ErrorKind::UnexpectedEof => {
                Err(Fault::from_io(error, OP).side(Side::Peer).detail("closed during the handshake"))
            }
            Err(Broken::Wire(error)) => Err(lost(error)),
        }
    }

    fn failed(&self, fault: TrustFault) -> Fault {
        let fault = fault.into_fault(OP, Side::Peer);
        let peer = self.peer.map(|peer| peer.to_string()).unwrap_or_default();
        if fault.subject.is_empty() { fault.subject(peer) } else { fault }
    }
}

fn lost(error: std::io::Error) -> Fault {
    Fault::from_io(error, "use the data connection").side(Side::Network)
}

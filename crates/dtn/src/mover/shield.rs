//! What the data connections of a handle must prove, and whether they are encrypted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use openssl::ssl::{Ssl, SslRef};
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::op::{DataParams, GsiPeer, Level, Shield};
use whimbrel_transport::DataChannel;
use whimbrel_transport::secure::{Check, ClearChannel, Role, TlsChannel};
use whimbrel_transport::tcp::TcpChannel;
use whimbrel_trust::tls::{ClientTls, ServerTls, TicketKeys};
use whimbrel_trust::{TrustFault, psk};

use super::credential::{Authorities, DataCredential};
use super::message::Secrets;
use super::stats::Way;

const OP: &str = "protect data channel";

/// Puts the connections of one handle inside what its parameters ask for.
pub enum Guard {
    /// Plain TCP.
    Plain,
    /// TLS with a key that both ends have from the handle's nonce, for connections that come: whoever calls begins.
    Coming(ServerTls),
    /// The same for connections that are made.
    Made(ClientTls),
    /// TLS that continues the control connection's session; this side is the server whoever calls (RFC 4217 §7).
    Session {
        /// For all connections.
        server: ServerTls,
        /// Whether the peer reads, and so takes a ticket for its next connection.
        tickets: AtomicBool,
    },
    /// A GSI handshake: both ends show certificates, and whoever calls begins.
    Gsi {
        /// Our end.
        end: End,
        /// What follows the handshake.
        level: Level,
        /// What our end shows.
        credential: Arc<DataCredential>,
    },
}

/// One end of TLS for all connections of a handle.
pub enum End {
    /// Connections come.
    Server(ServerTls),
    /// Connections are made.
    Client(ClientTls),
}

impl End {
    fn of(
        credential: &DataCredential,
        peer: &GsiPeer,
        authorities: &Authorities,
        comes: bool,
    ) -> Result<Self, TrustFault> {
        let judge = Arc::new(credential.judge(peer, authorities)?);
        match comes {
            true => ServerTls::gsi(credential.own(), judge).map(Self::Server),
            false => ClientTls::new(judge, Some(credential.own())).map(Self::Client),
        }
    }

    fn connection(&self) -> (Result<Ssl, TrustFault>, Role) {
        match self {
            Self::Server(server) => (server.connection(), Role::Server),
            Self::Client(client) => (client.connection(""), Role::Client),
        }
    }
}

impl Guard {
    /// What a handle asks for that needs no certificate; `comes`: connections are waited for, not made.
    ///
    /// Fails with `InvalidArgument` where the parameters lack what they ask for, `NotSupported` where this login does.
    pub fn new(params: &DataParams, secrets: &Secrets, comes: bool) -> Result<Self, Fault> {
        match &params.shield {
            Shield::None => Ok(Self::Plain),
            Shield::Nonce => {
                let Some(nonce) = &params.nonce else {
                    return Err(refused(FaultCode::InvalidArgument, "no nonce was agreed for this data handle"));
                };
                let key = psk::from_nonce(nonce);
                match comes {
                    true => ServerTls::agreed(&key).map(Self::Coming),
                    false => ClientTls::agreed(&key).map(Self::Made),
                }
                .map_err(ours)
            }
            Shield::Session => {
                let keys = secrets.tickets.as_ref().and_then(|keys| TicketKeys::from_bytes(&keys.0));
                let Some(keys) = keys else {
                    return Err(refused(FaultCode::NotSupported, "the control connection is not inside TLS"));
                };
                let server = ServerTls::resuming(&keys).map_err(ours)?;
                if let Some(session) = &secrets.session {
                    server.know(&session.0).map_err(ours)?;
                }
                Ok(Self::Session { server, tickets: AtomicBool::new(false) })
            }
            Shield::Gsi { .. } => Err(refused(FaultCode::NotSupported, "no credential for data connections")),
        }
    }

    /// Proofs by certificates, of whom `peer` says, followed by what `level` says.
    pub fn gsi(
        credential: Arc<DataCredential>,
        (peer, level): (&GsiPeer, Level),
        authorities: &Authorities,
        comes: bool,
    ) -> Result<Self, Fault> {
        let end = End::of(&credential, peer, authorities, comes).map_err(ours)?;
        Ok(Self::Gsi { end, level, credential })
    }

    /// Says when no further connection can be made: what ours would show has expired.
    pub fn check(&self) -> Result<(), Fault> {
        match self {
            Self::Gsi { credential, .. } => credential.alive().map_err(ours),
            _ => Ok(()),
        }
    }

    /// Whether connections that are made wait for the proof of their other end before anything is sent: peers that never
    /// answer are found out after the time that a connection may take, not when the transfer has stalled.
    pub fn proves_first(&self) -> bool {
        matches!(self, Self::Gsi { .. })
    }

    /// Which way the next transfer goes.
    ///
    /// A peer that only sends reads no tickets, and a close with bytes unread takes back what it has sent but is still on its way
    /// (RFC 1122 §4.2.2.13): it must not get any.
    pub fn heads(&self, way: Way) {
        if let Self::Session { tickets, .. } = self {
            tickets.store(way == Way::Out, Ordering::Relaxed);
        }
    }

    /// Puts a connection inside what its handle asks for.
    pub fn shield(&self, channel: TcpChannel) -> Result<Box<dyn DataChannel>, Fault> {
        match self {
            Self::Plain => Ok(Box::new(channel)),
            Self::Coming(server) => tls(channel, server.connection(), Role::Server, None),
            Self::Made(client) => tls(channel, client.connection(""), Role::Client, None),
            Self::Session { server, tickets } => {
                let count = usize::from(tickets.load(Ordering::Relaxed));
                let connection = server.connection_with(count);
                tls(channel, connection, Role::Server, Some(Arc::new(continues_session)))
            }
            Self::Gsi { end, level, .. } => {
                let (ssl, role) = end.connection();
                let (channel, ssl) = (Box::new(channel), ssl.map_err(ours)?);
                Ok(match level {
                    Level::Clear => Box::new(ClearChannel::new(channel, ssl, role, None)?),
                    // Globus' programs just close: where the mode does not tell the end, bytes may be missing unnoticed.
                    Level::Private => Box::new(TlsChannel::new(channel, ssl, role, None, true)?),
                })
            }
        }
    }
}

fn tls(
    channel: TcpChannel,
    connection: Result<Ssl, TrustFault>,
    role: Role,
    check: Option<Arc<Check>>,
) -> Result<Box<dyn DataChannel>, Fault> {
    let ssl = connection.map_err(ours)?;
    Ok(Box::new(TlsChannel::new(Box::new(channel), ssl, role, check, false)?))
}

/// Nobody but the client of the control connection can continue its session.
fn continues_session(ssl: &SslRef) -> Result<(), TrustFault> {
    if ssl.session_reused() {
        return Ok(());
    }
    let why = "a data connection must continue the TLS session of the control connection";
    Err(TrustFault::new(FaultCode::PeerIdentity, why))
}

/// Of what we show ourselves; with a credential it is the client who has to act.
fn ours(fault: TrustFault) -> Fault {
    let side = if fault.code == FaultCode::Internal { Side::Us } else { Side::Peer };
    fault.into_fault(OP, side)
}

fn refused(code: FaultCode, why: &str) -> Fault {
    Fault::new(code, OP).side(Side::Peer).detail(why)
}

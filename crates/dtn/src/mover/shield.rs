//! What the data connections of a handle must prove, and whether they are encrypted.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use openssl::ssl::SslRef;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::op::{DataParams, Shield};
use whimbrel_transport::DataChannel;
use whimbrel_transport::secure::{Check, Role, TlsChannel};
use whimbrel_transport::tcp::TcpChannel;
use whimbrel_trust::tls::{ClientTls, ServerTls, TicketKeys};
use whimbrel_trust::{TrustFault, psk};

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
}

impl Guard {
    /// `comes`: connections are waited for, not made.
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
        }
    }
}

fn tls(
    channel: TcpChannel,
    connection: Result<openssl::ssl::Ssl, TrustFault>,
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

fn ours(fault: TrustFault) -> Fault {
    fault.into_fault(OP, Side::Us)
}

fn refused(code: FaultCode, why: &str) -> Fault {
    Fault::new(code, OP).side(Side::Peer).detail(why)
}

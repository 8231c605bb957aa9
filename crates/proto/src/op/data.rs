//! Data handles.

use serde::{Deserialize, Serialize};

use crate::relay::Part;

/// Address family of a data connection (RFC 2428 §2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// Parameters that a data handle copies when it is made (PASV, PORT).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DataParams {
    /// Framing on the data connection.
    pub mode: Mode,
    /// Data connections that the connecting side opens to each address.
    pub parallelism: u16,
    /// How a sender spreads a file over several addresses.
    pub layout: Layout,
    /// Socket send buffer, bytes; `None`: the kernel tunes it.
    pub send_buffer: Option<u32>,
    /// Socket receive buffer, bytes; `None`: the kernel tunes it.
    pub receive_buffer: Option<u32>,
    /// Secret that connections of this handle must present (sender: presents).
    pub nonce: Option<[u8; 16]>,
    /// Congestion control by its kernel name; `None`: the administrator's or the system's.
    pub congestion: Option<String>,
    /// How the two ends of a connection prove who they are and hide what they carry.
    pub shield: Shield,
    /// The address is that of a relay, which the other end dials, too: our part there. Only with [`Shield::Nonce`].
    pub relay: Option<Part>,
}

/// Authentication and protection of data connections (DCAU of GFD.20 §3.1, PROT of RFC 2228 §3).
///
/// Whoever opened the TCP connection is the TLS client, except for [`Shield::Session`], and where a relay is between
/// ([`DataParams::relay`]).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Shield {
    /// Plain TCP; a nonce, where there is one, still proves the transfer a connection belongs to.
    #[default]
    None,
    /// A GSI handshake with the delegated or own credential; the peer's identity is compared.
    Gsi {
        /// Whom the other end must be.
        peer: GsiPeer,
        /// What follows the handshake.
        level: Level,
    },
    /// TLS that continues the control connection's session (RFC 4217 §10.2); the server is the TLS server.
    Session,
    /// TLS 1.3 with a key derived from the handle's nonce: both ends prove that they know it.
    Nonce,
}

/// Whom a GSI data connection must lead to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum GsiPeer {
    /// The identity that logged in (DCAU A).
    Own,
    /// This certificate subject in one-line form (DCAU S).
    Subject(String),
}

/// What follows the handshake of a GSI data connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Level {
    /// Plain bytes (PROT C).
    Clear,
    /// Encrypted and guarded against change (PROT P, and PROT S, which gets more than it asks for).
    Private,
}

impl Default for DataParams {
    fn default() -> Self {
        Self {
            mode: Mode::Stream,
            parallelism: 1,
            layout: Layout::default(),
            send_buffer: None,
            receive_buffer: None,
            nonce: None,
            congestion: None,
            shield: Shield::None,
            relay: None,
        }
    }
}

/// Transfer mode (RFC 959 §3.4, GFD.20 §3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// Plain bytes, end of file is close.
    Stream,
    /// Extended blocks with offsets.
    Extended,
}

/// How a file is spread over stripes (GFD.20 OPTS RETR StripeLayout).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Layout {
    /// Round robin of blocks of this many bytes.
    Blocked {
        /// Block size, bytes.
        block_size: u64,
    },
    /// One contiguous piece for each stripe.
    Partitioned,
}

impl Default for Layout {
    fn default() -> Self {
        Self::Blocked { block_size: 1 << 20 }
    }
}

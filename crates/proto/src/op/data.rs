//! Data handles.

use serde::{Deserialize, Serialize};

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

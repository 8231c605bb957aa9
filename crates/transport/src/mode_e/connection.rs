//! A data channel with what MODE E must remember between transfers.

use std::fmt;

use whimbrel_proto::eblock::{self, HEADER_LEN};

use crate::channel::DataChannel;

/// One-time proof that a data connection belongs to a transfer.
///
/// Travels as two zero-length blocks whose offsets are its halves; a stock receiver ignores them.
pub type Nonce = [u8; 16];

/// Bytes the two nonce blocks take on the wire.
pub const NONCE_BLOCKS_LEN: usize = 34;

/// The two blocks that carry `nonce`.
pub fn nonce_blocks(nonce: &Nonce) -> [u8; NONCE_BLOCKS_LEN] {
    let mut wire = [0; NONCE_BLOCKS_LEN];
    for (header, block) in eblock::nonce_blocks(nonce).into_iter().zip(wire.chunks_mut(HEADER_LEN)) {
        block.copy_from_slice(&header.encode());
    }
    wire
}

/// An open data connection in MODE E, kept for transfer after transfer.
pub struct Connection {
    pub(crate) channel: Box<dyn DataChannel>,
    /// Received, but not yet consumed: the peer may start the next file right behind EOD.
    pub(crate) unread: Vec<u8>,
    /// Whether the nonce was sent or seen on this connection (once is enough).
    pub(crate) greeted: bool,
}

impl Connection {
    /// Wraps a newly opened channel.
    pub fn new(channel: Box<dyn DataChannel>) -> Self {
        Self { channel, unread: Vec::new(), greeted: false }
    }

    /// The channel below, for its addresses and counters.
    pub fn channel(&self) -> &dyn DataChannel {
        self.channel.as_ref()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("peer", &self.channel.peer_addr())
            .field("unread", &self.unread.len())
            .field("greeted", &self.greeted)
            .finish()
    }
}

//! MODE E: block headers and the accounting of a transfer over many data channels (GFD.20 §3.4).
//!
//! Headers and byte ranges only: payload never passes through here. One machine serves one transfer at one address;
//! a striped transfer has one machine per address, and each gets its own EOF.

mod layout;
mod receive;
mod send;

pub use layout::{RangeCursor, Stripe};
pub use receive::{ReceiveConfig, ReceiveError, ReceiveMachine, ReceiveStep};
pub use send::{EofDuty, Head, SendConfig, SendError, SendMachine, SendStep};

/// Bytes of a header.
pub const HEADER_LEN: usize = 17;
/// Bytes of a one-time nonce.
pub const NONCE_LEN: usize = 16;

/// Most data connections of one sender to one address; whoever asks for more gets as many.
pub const MOST_CONNECTIONS: u16 = 256;

/// Descriptor bit: end of record; no peer uses it.
pub const EOR: u8 = 0x80;
/// Descriptor bit: the offset field is EODC, the number of EODs that the receiver will see in all.
pub const EOF: u8 = 0x40;
/// Descriptor bit: suspected errors; ignored.
pub const ERRORS: u8 = 0x20;
/// Descriptor bit: the payload is a restart marker, no part of the file (RFC 959 §3.4.2).
pub const RESTART: u8 = 0x10;
/// Descriptor bit: the last block of this transfer on this channel; it may carry data.
pub const EOD: u8 = 0x08;
/// Descriptor bit: the sender closes the channel after this block.
pub const CLOSE: u8 = 0x04;

/// Names one data channel of one machine, counted from 0 in the order of adding.
pub type ChannelId = u32;

/// The header of one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Bits such as [`EOF`] and [`EOD`].
    pub descriptor: u8,
    /// Bytes of payload that follow; without meaning in an EOF block.
    pub count: u64,
    /// Where the payload belongs; EODC in an EOF block.
    pub offset: u64,
}

impl Header {
    /// A plain data block.
    pub const fn data(offset: u64, count: u64) -> Self {
        Self { descriptor: 0, count, offset }
    }

    /// The wire form, big-endian.
    pub fn encode(self) -> [u8; HEADER_LEN] {
        let mut wire = [0; HEADER_LEN];
        wire[0] = self.descriptor;
        wire[1..9].copy_from_slice(&self.count.to_be_bytes());
        wire[9..].copy_from_slice(&self.offset.to_be_bytes());
        wire
    }

    /// Reads the wire form; every 17 bytes are a header.
    pub fn decode(wire: &[u8; HEADER_LEN]) -> Self {
        let word = |from: usize| wire[from..from + 8].iter().fold(0u64, |n, &b| n << 8 | u64::from(b));
        Self { descriptor: wire[0], count: word(1), offset: word(9) }
    }

    /// True if all bits of `bits` are set.
    pub const fn has(self, bits: u8) -> bool {
        self.descriptor & bits == bits
    }
}

/// The two zero-length blocks that carry a nonce; a stock receiver ignores blocks without payload.
pub fn nonce_blocks(nonce: &[u8; NONCE_LEN]) -> [Header; 2] {
    let word = |from: usize| nonce[from..from + 8].iter().fold(0u64, |n, &b| n << 8 | u64::from(b));
    [Header::data(word(0), 0), Header::data(word(8), 0)]
}

#[cfg(test)]
mod tests;

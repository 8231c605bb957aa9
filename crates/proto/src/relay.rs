//! What a relay is told: by whoever announces a token there, and by each connection that comes with one.
//!
//! A relay joins two data connections that say the same announced token, one from each end of a transfer. The token is a digest of the
//! transfer's nonce, so that the relay knows whom to join and has no key to what they carry.

use serde::{Deserialize, Serialize};

/// Bytes of a token: those of SHA-256.
pub const TOKEN_BYTES: usize = 32;

/// Bytes of a [`Hello`].
pub const HELLO_BYTES: usize = MAGIC.len() + 1 + TOKEN_BYTES;

/// Longest time for which a token can be announced, seconds.
pub const MOST_SECONDS: u32 = 3600;

/// Most connections of each end for which a token can be announced.
pub use crate::eblock::MOST_CONNECTIONS;

const MAGIC: &[u8; 8] = b"WHRELAY1";

/// What two connections have in common that belong together.
pub type Token = [u8; TOKEN_BYTES];

/// The part that an end takes in TLS with the other one, since both of them dial; a relay joins connections of different parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Part {
    /// It begins the handshake.
    Client,
    /// It answers, as whoever listens does.
    Server,
}

impl Part {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Client, Self::Server];

    /// The word on the wire.
    pub fn word(self) -> &'static str {
        match self {
            Self::Client => "CLIENT",
            Self::Server => "SERVER",
        }
    }

    /// The part of the other end.
    pub fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }

    fn byte(self) -> u8 {
        match self {
            Self::Client => b'C',
            Self::Server => b'S',
        }
    }
}

/// What is announced at a relay (SITE RELAY).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announcement {
    /// What connections have to say.
    pub token: Token,
    /// How many of each end are joined; 1 to [`MOST_CONNECTIONS`].
    pub connections: u16,
    /// For how long they may come; 1 to [`MOST_SECONDS`].
    pub seconds: u32,
}

/// The first bytes of a connection to a relay; what follows them is the other end's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hello {
    /// Which transfer it belongs to.
    pub token: Token,
    /// Which end it comes from.
    pub part: Part,
}

impl Hello {
    /// The bytes: `WHRELAY1`, `C` or `S`, the token.
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[..MAGIC.len()].copy_from_slice(MAGIC);
        bytes[MAGIC.len()] = self.part.byte();
        bytes[MAGIC.len() + 1..].copy_from_slice(&self.token);
        bytes
    }

    /// Reads them; `None`: somebody else speaks.
    pub fn decode(bytes: &[u8; HELLO_BYTES]) -> Option<Self> {
        let (part, token) = bytes.strip_prefix(MAGIC)?.split_first()?;
        let part = Part::ALL.into_iter().find(|known| known.byte() == *part)?;
        Some(Self { token: token.try_into().ok()?, part })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_is_read_as_it_was_written_and_nothing_else_is_one() {
        for part in Part::ALL {
            let hello = Hello { token: [7; TOKEN_BYTES], part };
            assert_eq!(Hello::decode(&hello.encode()), Some(hello));
            assert_ne!(part, part.other());
            for at in 0..=MAGIC.len() {
                let mut bytes = hello.encode();
                bytes[at] ^= 0x20;
                assert_eq!(Hello::decode(&bytes), None, "byte {at}");
            }
        }
    }
}

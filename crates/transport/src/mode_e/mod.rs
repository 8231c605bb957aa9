//! MODE E: one file over many data channels, in blocks that carry their offsets (GFD.20 §3.4).
//!
//! [`send`] and [`receive`] drive the channels of one transfer to its end and leave them open for
//! the next. The framing itself is `whimbrel_proto::eblock`.

mod connection;
mod crew;
mod gather;
mod receive;
mod send;

pub use connection::{Connection, GREETING_TIME, NONCE_BLOCKS_LEN, Nonce, nonce_blocks};
pub use gather::{Gathering, gather};
pub use receive::{Admission, ReceiveJob, ReceiveReport, receive};
pub use send::{Amount, Eof, SendJob, SendReport, send};
pub use whimbrel_proto::eblock::Stripe;

/// Transfers up to this many bytes run on the caller's thread alone.
pub const INLINE_LIMIT: u64 = 16 << 20;

#[cfg(test)]
mod leaf_tests;
#[cfg(test)]
mod listening_tests;
#[cfg(test)]
pub(crate) mod tests;

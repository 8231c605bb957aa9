//! A data channel with what MODE E must remember between transfers.

use std::fmt;
use std::io::{self, ErrorKind, IoSlice};
use std::time::{Duration, Instant};

use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::eblock::{self, HEADER_LEN};
use whimbrel_sys::poll::PollFlags;

use crate::cancel::Cancel;
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

    /// The channel itself, of a connection on which nothing was moved.
    pub fn into_channel(self) -> Box<dyn DataChannel> {
        self.channel
    }

    /// The channel below, for its addresses and counters.
    pub fn channel(&self) -> &dyn DataChannel {
        self.channel.as_ref()
    }
}

/// Longest a new connection may take to prove itself where others wait for it, or for its place.
pub const GREETING_TIME: Duration = Duration::from_secs(5);
const GREET: &str = "present the nonce";
pub(super) const ADMIT: &str = "wait for the nonce";

impl Connection {
    /// Presents `nonce` at once: for a receiver that connects to a sender (reverse direction), where
    /// no data of its own will carry it.
    pub fn greet(&mut self, nonce: &Nonce, timeout: Duration, cancel: &Cancel) -> Result<(), Fault> {
        let greeting = nonce_blocks(nonce);
        let deadline = Instant::now() + timeout;
        let mut sent = 0;
        while sent < greeting.len() {
            match self.channel.send_vectored(&[IoSlice::new(&greeting[sent..])], false) {
                Ok(taken) => sent += taken,
                Err(error) => self.await_io(error, PollFlags::OUT, deadline, cancel, GREET)?,
            }
        }
        self.greeted = true;
        Ok(())
    }

    fn await_io(
        &self,
        error: io::Error,
        interest: PollFlags,
        deadline: Instant,
        cancel: &Cancel,
        op: &str,
    ) -> Result<(), Fault> {
        if error.kind() != ErrorKind::WouldBlock {
            return Err(Fault::from_io(error, op).side(Side::Network));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let flags = self.channel.poll_flags(interest);
        if left.is_zero() || !cancel.wait_for(self.channel.as_fd(), flags, Some(left), op)? {
            return Err(self.fault(FaultCode::TimedOut, op));
        }
        Ok(())
    }

    pub(super) fn fault(&self, code: FaultCode, op: &str) -> Fault {
        Fault::new(code, op).side(Side::Peer).subject(self.peer())
    }

    /// The address of the other end, for faults.
    pub(super) fn peer(&self) -> String {
        self.channel.peer_addr().map(|peer| peer.to_string()).unwrap_or_default()
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

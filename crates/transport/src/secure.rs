//! Data channels that prove who their ends are, and hide what they carry.

mod carrier;
mod clear;
mod handshake;
mod tls;

#[cfg(test)]
mod tests;

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_sys::poll::PollFlags;

use crate::cancel::Cancel;
use crate::channel::DataChannel;

pub use clear::ClearChannel;
pub use handshake::{Check, Role};
pub use tls::TlsChannel;

/// Waits until a new connection has shown who its other end is, where it must.
///
/// Fails with what the handshake says, `TimedOut` or `Cancelled`; the connection is to be dropped then.
pub fn prove(channel: &mut dyn DataChannel, timeout: Duration, cancel: &Cancel) -> Result<(), Fault> {
    const OP: &str = "protect data channel";
    let deadline = Instant::now() + timeout;
    loop {
        match channel.prove() {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(Fault::from_io(error, OP).side_if_unknown(Side::Peer)),
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let flags = channel.poll_flags(PollFlags::IN);
        if left.is_zero() || !cancel.wait_for(channel.as_fd(), flags, Some(left), OP)? {
            let peer = channel.peer_addr().map(|peer| peer.to_string()).unwrap_or_default();
            return Err(Fault::new(FaultCode::TimedOut, OP).side(Side::Peer).subject(peer));
        }
    }
}

//! Data channels that prove who their ends are, and hide what they carry.

mod carrier;
mod clear;
mod handshake;
mod records;
mod tls;

#[cfg(test)]
mod tests;

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use whimbrel_engine::{Fault, Side};
use whimbrel_sys::poll::PollFlags;

use crate::cancel::{Cancel, timed_out};
use crate::channel::DataChannel;

pub use clear::ClearChannel;
pub use handshake::{Check, Role};
pub use tls::TlsChannel;

/// Waits until a new connection has shown who its other end is, where it must.
///
/// Fails with what the handshake says, `TimedOut` or `Cancelled`; the connection is to be dropped then.
pub fn prove(channel: &mut dyn DataChannel, timeout: Duration, cancel: &Cancel) -> Result<(), Fault> {
    prove_all(&mut [channel], timeout, cancel)
}

/// As [`prove`], for several connections at the same time; the first that fails ends the wait.
pub fn prove_all(channels: &mut [&mut dyn DataChannel], timeout: Duration, cancel: &Cancel) -> Result<(), Fault> {
    const OP: &str = "protect data channel";
    let deadline = Instant::now() + timeout;
    loop {
        let mut waiting = Vec::new();
        for channel in channels.iter_mut() {
            match channel.prove() {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => waiting.push(&**channel),
                Err(error) => return Err(Fault::from_io(error, OP).side_if_unknown(Side::Peer)),
            }
        }
        let Some(first) = waiting.first() else { return Ok(()) };
        let fds: Vec<_> = waiting.iter().map(|channel| (channel.as_fd(), channel.poll_flags(PollFlags::IN))).collect();
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || !cancel.wait_for_any(&fds, Some(left), OP)? {
            let peer = first.peer_addr().map(|peer| peer.to_string()).unwrap_or_default();
            return Err(timed_out(OP, timeout).side(Side::Peer).subject(peer));
        }
    }
}

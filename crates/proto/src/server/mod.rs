//! The server's side of a control connection as a machine: bytes and time in; bytes, events and a deadline out.
//!
//! A driver owns the stream and the clock. It feeds [`ServerControl::handle_bytes`], [`ServerControl::handle_eof`] and
//! [`ServerControl::handle_timeout`], and after every call drains [`ServerControl::poll_transmit`] and
//! [`ServerControl::poll_event`] and arms a timer for [`ServerControl::poll_timeout`]. Operations go to the data side
//! as [`ServerEvent::Run`] and come back through [`ServerControl::notice`] and [`ServerControl::outcome`].
//!
//! TLS and wrapped lines are the driver's. Where they may begin, the machine stops taking bytes: what
//! [`ServerControl::handle_bytes`] left is not yet known to be commands, and a driver that finds clear bytes behind AUTH TLS, or
//! lines that are not wrapped behind the last ADAT, closes the connection.

mod ahead;
mod answer;
mod checksum;
mod chunk;
mod config;
mod data;
mod dispatch;
mod event;
mod failure;
mod feat;
mod files;
mod help;
mod inbox;
mod listing;
mod login;
mod machine;
mod options;
mod policy;
mod probe;
mod secure;
mod session;
mod site;
mod step;
mod transfer;

#[cfg(test)]
mod tests;

pub use config::{ChecksumAlgorithm, Mechanisms, PolicyRule, ServerConfig};
pub use event::{CloseReason, Label, LoginOutcome, PeerView, Proof, Secret, ServerEvent, TokenOutcome};
pub use machine::ServerControl;

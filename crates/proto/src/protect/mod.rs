//! A protected control connection as lines of text: tokens in base64, commands and replies inside them (RFC 2228 §3 and §5).
//!
//! What seals and opens a token is not here: [`Seal`] is a TLS connection over memory for GSI, a GSSAPI context for Kerberos.

pub mod base64;
mod commands;
mod lines;
mod replies;

#[cfg(test)]
mod tests;

pub use commands::{CommandOpener, CommandSealer};
pub use lines::{ProtectError, Seal};
pub use replies::{MAX_TOGETHER, ReplyOpener, ReplySealer};

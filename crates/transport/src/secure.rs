//! Data channels that prove who their ends are, and hide what they carry.

mod carrier;
mod clear;
mod handshake;
mod tls;

#[cfg(test)]
mod tests;

pub use clear::ClearChannel;
pub use handshake::{Check, Role};
pub use tls::TlsChannel;

//! The data side: movers, their data channels and storage.

pub mod codec;
pub mod message;

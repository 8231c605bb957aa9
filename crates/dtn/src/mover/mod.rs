//! The data side: movers, their data channels and storage.

pub mod message;

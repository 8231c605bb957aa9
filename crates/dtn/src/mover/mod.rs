//! The data side: movers, their data channels and storage.
//!
//! A data process serves one front over a stream of [`message`]s ([`process::serve`]): the calling
//! thread reads, every mover has a thread of its own, and all share a buffer pool, a connector and
//! a ticker. The front's identity decides who may be the other end of a data connection.

pub mod books;
pub mod codec;
pub mod credential;
pub mod message;
pub mod process;
pub mod voucher;

mod audit;
mod checksum;
mod chunk;
mod command;
mod context;
mod dial;
mod facts;
mod failure;
mod finisher;
pub(crate) mod glob;
mod holes;
mod leaves;
mod ledger;
mod listing;
mod log;
mod node;
mod outlet;
mod pack;
mod probe;
mod reach;
mod receive;
mod report;
mod ruled;
mod running;
mod send;
mod session;
mod shield;
mod spent;
mod stats;
mod stdio;
mod ticker;
mod transfer;
mod worker;

pub(crate) use stdio::posix_options;

pub use process::{ServeError, serve, serve_overridden, serve_standard_input, spawn_in_process};

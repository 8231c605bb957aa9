//! The server's control side: listeners, logins and control connections.
//!
//! Nothing here opens a file or moves a byte of data: that is the data side's work, and the only way to it is the mover
//! protocol ([`link`]). Accounts and data processes have to be asked for ([`gate`]).

mod accept;
pub mod access;
mod called;
pub mod certificate;
pub mod config;
pub mod connection;
pub mod dataside;
pub mod dial;
pub mod gate;
mod gssapi;
pub mod guard;
pub mod import;
pub mod kerberos;
pub mod link;
pub mod listener;
pub mod listening;
pub mod metrics;
pub mod nodes;
mod patience;
pub mod plane;
pub mod process;
pub mod queue;
mod relay;
pub mod sealed;
pub mod server;
pub mod stdio;
pub mod tokens;
mod turns;
mod urgent;
pub mod users;
mod wire;

pub use config::DtnConfig;
pub use dataside::DataSide;
pub use listener::Listeners;
pub use server::Server;

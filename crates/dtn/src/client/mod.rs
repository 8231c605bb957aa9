//! Drives servers: control sessions, transfers, trees.
//!
//! A [`remote::Remote`] is one control session that takes operations and answers with notices and
//! outcomes, as a local mover does ([`local`]); an [`end::End`] is either. A [`pair::Pair`] moves
//! files between two ends in any combination. [`copy::copy`] drives the engine's planner and transfer
//! machine with as many pairs as are wanted.

mod accord;
mod channel;
mod chunk;
pub(crate) mod data;
pub(crate) mod dtns;
mod facts;
mod flight;
mod grid;
mod gsi;
mod gssapi;
pub(crate) mod hosts;
mod kerberos;
mod overlap;
pub(crate) mod pair;
pub(crate) mod plan;
mod planning;
pub(crate) mod shared;
mod shown;
mod sidecar;
mod ssh;
mod stream;
mod whole;
mod worker;

pub mod check;
pub mod checksum;
pub mod copy;
pub mod end;
pub mod endpoints;
pub mod expect;
pub mod follow;
pub mod hidden;
pub mod lines;
pub mod local;
pub mod meeting;
pub mod netrc;
pub mod options;
pub mod probe;
pub mod relays;
pub mod remote;
pub mod reply;
pub mod rules;
pub mod run;
pub mod security;
mod tally;
pub mod target;
pub mod temporary;
pub mod wildcard;

pub use facts::Owner;
pub use grid::{Credential, authorities_directory};
pub use shown::Token;

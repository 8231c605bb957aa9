//! What runs on a data transfer node.
//!
//! [`front`] owns control connections and never touches files; [`mover`] touches data and never
//! parses a control line; the two meet in the mover protocol ([`mover::message`]), the same over a
//! socket pair to a local data process as over TCP to a data node. [`monitor`] starts both, and alone knows who may
//! become whom. [`door`] serves collections over HTTPS; [`caller`] makes connections for a server that takes none;
//! [`relay`] joins data connections of two such servers.
//! [`client`] drives servers; [`orchestrator`] does so for the managed service.

pub mod caller;
pub mod client;
pub mod confine;
pub mod congestion;
pub mod door;
pub mod front;
pub mod keys;
pub mod member;
pub mod monitor;
pub mod mover;
pub mod orchestrator;
pub mod relay;

mod descriptors;
mod handshake;
mod helper;
mod https;
mod journaled;
mod keepalive;
mod packets;
mod parent;
mod processors;
mod small;
mod ssh;
mod start;

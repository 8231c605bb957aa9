//! Sans-IO wire protocols: the GridFTP control machines, replies, listings, MODE E framing, markers, URLs.
//!
//! Nothing here reads a socket, a file or a clock: bytes and times are arguments, bytes and events are results.

pub mod client;
pub mod command;
pub mod eblock;
pub mod fact;
pub mod feat;
pub mod holes;
pub mod hostport;
pub mod leaf;
pub mod line;
pub mod list;
pub mod mapping;
pub mod marker;
pub mod mlsx;
pub mod op;
pub mod pack;
pub mod policy;
pub mod protect;
pub mod ranges;
pub mod relay;
pub mod reply;
pub mod rules;
pub mod server;
pub mod spent;
pub mod timeval;
pub mod token;
pub mod url;
pub mod x509;

//! Sans-IO wire protocols: the GridFTP control machines, replies, listings, MODE E framing, markers, URLs.
pub mod op;
pub mod server;

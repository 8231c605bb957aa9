//! What is said on a connection that a server has made, and that waits with the service until an orchestrator takes it.
//!
//! Both bytes are answered alike. After [`TAKEN`] it is a control connection, from the server's greeting on.

/// What requests offer to go on as (Upgrade, RFC 9110 §7.8).
pub const PROTOCOL: &str = "whimbrel-control";
/// To a connection that waits, now and then, so that nothing in between forgets it.
pub const STILL: u8 = b'.';
/// To one that is taken.
pub const TAKEN: u8 = b'!';

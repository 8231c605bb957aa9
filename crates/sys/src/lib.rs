//! The only unsafe code: positional I/O, sendfile, socket options, TCP_INFO.

pub mod netns;
pub mod tun;

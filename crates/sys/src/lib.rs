//! The only unsafe code: positional I/O, sendfile, socket options, TCP_INFO.

pub mod accounts;
pub mod names;
pub mod netns;
pub mod pages;
pub mod poll;
pub mod socket;
pub mod tcp_info;
pub mod tun;

//! The only unsafe code: system calls that the safe libraries lack, memory pages, and vector instructions.

pub mod accounts;
pub mod gssapi;
mod library;
pub mod lifetime;
pub mod md5lanes;
pub mod meddling;
pub mod names;
pub mod netns;
pub mod pages;
pub mod poll;
pub mod resident;
pub mod retry;
pub mod sessions;
pub mod signals;
pub mod socket;
pub mod ssl;
pub mod tcp_info;
pub mod terminal;
pub mod thread_time;
pub mod tickets;
pub mod tun;

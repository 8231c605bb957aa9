//! Test laboratory: wide-area links, real peers, fault wrappers, data sets.
//!
//! | module | gives a test |
//! | --- | --- |
//! | [`lab`] | hosts in network namespaces, joined by links with delay, rate, queue, loss and jitter |
//! | [`peers`] | the real programs of the field as opponents, started, awaited and stopped |
//! | [`pki`] | certificates for hosts and people, in files as grid programs read them |
//! | [`dataset`] | files and trees to move, and a byte-for-byte comparison of two trees |
//! | [`faults`] | a TCP proxy that cuts, stalls, trickles or corrupts |
//! | [`records`] | records of TLS made by hand, for clients that no library would be |
//! | [`relay`] | a relay before an FTP server that data pass, with faults by bytes moved and commands seen |
//! | [`measure`] | what the programs that measure share |
//! | [`performance`] | the page on which they write |
//! | [`plot`] | charts of lines and of bars as SVG, for the reference |
//! | [`pace`] | storage of a fixed rate |
//! | [`fuzz`] | what must hold for every input of a parser or a machine |
//! | [`tmpfs`] | a private memory file system |
//! | [`stored`] | damage to stored files, and to the disk below them |
//! | [`slow_disk`] | a file system that reads and writes no faster than it was told to |
//! | [`starved`] | processes that get only a part of a processor |
//! | [`awake`] | memory that is not slow because a machine does little |
//! | [`cpu`] | processor time and memory of a process tree and what its threads do |
//! | [`metrics`] | what a running server counts |
//! | [`issuer`] | an issuer of access tokens, with HTTPS and keys of its own |
//! | [`osts`] | a model of the storage servers of Lustre: stripes, locks, movers |
//! | [`leftovers`] | what makes a killed test run disappear at the next one |
//!
//! Whatever a value here starts or mounts ends with that value, after a panic too. This crate is never a dependency of
//! shipped code; its functions panic where a test could do nothing but fail.

pub mod awake;
pub mod cpu;
pub mod dataset;
mod error;
pub mod faults;
pub mod fuzz;
mod group;
pub mod issuer;
pub mod kept_memory;
pub mod lab;
pub mod leftovers;
pub mod measure;
pub mod metrics;
pub mod osts;
pub mod pace;
pub mod peers;
pub mod performance;
pub mod pki;
pub mod plot;
pub mod records;
pub mod relay;
pub mod rng;
pub mod slow_disk;
pub mod starved;
pub mod stored;
mod system;
pub mod tmpfs;

pub use error::{Error, Result};

/// Whether a missing program or privilege must fail the test: true when `CI` or `WHIMBREL_REQUIRE_PEERS` is set.
pub fn must_not_skip() -> bool {
    std::env::var_os("CI").is_some() || std::env::var_os("WHIMBREL_REQUIRE_PEERS").is_some()
}

/// Whether this process is root; if not, prints that the calling test is skipped, or panics when it must not be.
pub fn require_root() -> bool {
    if rustix::process::geteuid().is_root() {
        return true;
    }
    assert!(!must_not_skip(), "this test needs root, and skipping is not allowed here");
    println!("skipped: needs root");
    false
}

//! How much a client may send, how slowly, and how many may.

use std::time::Duration;

use whimbrel_engine::guard::DoorLimits;

/// Limits of a server.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Time for a TLS handshake; default 15 s.
    pub handshake: Duration,
    /// Time for the head of a request, and between two requests; default 30 s.
    pub head: Duration,
    /// Largest head, bytes; default 32 KiB.
    pub head_bytes: usize,
    /// Most header fields; default 64.
    pub head_fields: usize,
    /// Time that a client may take none of an answer; default 60 s.
    pub idle_answer: Duration,
    /// Connections; an address that is only in its handshake counts as waiting. Whoever has come through it need not have logged
    /// in, so that by default half of all is one network's share.
    pub doors: DoorLimits,
    /// Time that running requests have when the server stops; default 10 s.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            handshake: Duration::from_secs(15),
            head: Duration::from_secs(30),
            head_bytes: 32 << 10,
            head_fields: 64,
            idle_answer: Duration::from_secs(60),
            doors: of_connections(DoorLimits::default().all),
            grace: Duration::from_secs(10),
        }
    }
}

/// Doors for so many connections at once.
pub fn of_connections(all: usize) -> DoorLimits {
    DoorLimits { all, per_network: all.div_ceil(2), ..DoorLimits::default() }
}

/// Limits of one request's body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BodyLimits {
    /// Most bytes.
    pub most: usize,
    /// Time for the first of them.
    pub grace: Duration,
    /// Beyond that so many bytes buy a second more.
    pub bytes_per_second: u32,
}

impl BodyLimits {
    /// So many bytes, in 20 s and a second more for each KiB.
    pub const fn of(most: usize) -> Self {
        Self { most, grace: Duration::from_secs(20), bytes_per_second: 1024 }
    }
}

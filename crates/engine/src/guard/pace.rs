//! How often a network may come: a connection that is opened and closed again costs work, too, and is never one of many at once.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::Network;
use super::memory::Memory;

/// Networks that are remembered at the most.
const MOST: usize = 1 << 16;

/// What `most` connections have to spread over.
const MINUTE: Duration = Duration::from_secs(60);

/// Lets a network come so many times in a minute: all of them at once, then each after its share of the minute.
#[derive(Debug)]
pub struct Pace {
    /// `None`: no limit.
    most: Option<u32>,
    /// When all that a network has come is paid for (the generic cell rate algorithm, ITU-T I.371).
    paid: Memory<Network, Instant>,
}

impl Pace {
    /// Nobody has come yet; `most` connections of a network in a minute, at least 1.
    pub fn new(most: Option<u32>) -> Self {
        Self { most: most.map(|most| most.max(1)), paid: Memory::new(MOST) }
    }

    /// Whether somebody who comes from there may come now; only those who may count.
    pub fn ask(&mut self, from: IpAddr, now: Instant) -> bool {
        let Some(most) = self.most else { return true };
        self.paid.forget(now);
        let (network, share) = (Network::from(from), MINUTE / most);
        let paid = self.paid.get(&network).copied().unwrap_or(now);
        if paid.saturating_duration_since(now) + share > MINUTE {
            return false;
        }
        self.paid.put(network, paid + share, paid + share);
        true
    }

    /// How many networks are remembered.
    pub fn remembered(&self) -> usize {
        self.paid.len()
    }
}

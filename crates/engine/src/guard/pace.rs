//! How often a network may come: a connection that is opened and closed again costs work, too, and is never one of many at once.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::Network;
use super::memory::Memory;

/// Networks that are remembered at the most.
const MOST: usize = 1 << 16;

/// What `most` connections have to spread over.
const MINUTE: Duration = Duration::from_secs(60);

/// How often one user logs in: the same for accounts, each of which has a limit of its own.
#[derive(Debug)]
pub struct UserPace {
    paid: Memory<String, Instant>,
}

impl Default for UserPace {
    fn default() -> Self {
        Self { paid: Memory::new(MOST) }
    }
}

impl UserPace {
    /// Whether this user may log in once more, `most` times in a minute, at least 1; only those who may count.
    pub fn ask(&mut self, user: &str, most: Option<u32>, now: Instant) -> bool {
        let Some(most) = most else { return true };
        self.paid.forget(now);
        let paid = self.paid.get(&user.to_owned()).copied().unwrap_or(now);
        match next(paid, most.max(1), now) {
            Some(paid) => {
                self.paid.put(user.to_owned(), paid, paid);
                true
            }
            None => false,
        }
    }
}

/// When one time more is paid for, if there may be one.
fn next(paid: Instant, most: u32, now: Instant) -> Option<Instant> {
    let share = MINUTE / most;
    (paid.saturating_duration_since(now) + share <= MINUTE).then(|| paid + share)
}

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
        let network = Network::from(from);
        let paid = self.paid.get(&network).copied().unwrap_or(now);
        let Some(paid) = next(paid, most, now) else { return false };
        self.paid.put(network, paid, paid);
        true
    }

    /// How many networks are remembered.
    pub fn remembered(&self) -> usize {
        self.paid.len()
    }
}

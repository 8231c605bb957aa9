//! How often a network may come: a connection that is opened and closed again costs work, too, and is never one of many at once.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::Network;
use super::memory::Memory;

/// Networks that are remembered at the most.
const MOST: usize = 1 << 16;

/// What `most` connections have to spread over.
const MINUTE: Duration = Duration::from_secs(60);

/// How often one user comes, such as to log in: the same for accounts, each of which has a limit of its own.
#[derive(Debug)]
pub struct UserPace {
    /// What as many as may come at once have to spread over.
    period: Duration,
    paid: Memory<String, Instant>,
}

impl Default for UserPace {
    fn default() -> Self {
        Self::over(MINUTE)
    }
}

impl UserPace {
    /// Nobody has come yet; limits are for such a time.
    pub fn over(period: Duration) -> Self {
        Self { period, paid: Memory::new(MOST) }
    }

    /// Whether this user may come once more, `most` times in the period, at least 1; only those who may count.
    pub fn ask(&mut self, user: &str, most: Option<u32>, now: Instant) -> bool {
        let Some(most) = most else { return true };
        self.paid.forget(now);
        let paid = self.paid.get(&user.to_owned()).copied().unwrap_or(now);
        match next(paid, most.max(1), self.period, now) {
            Some(paid) => {
                self.paid.put(user.to_owned(), paid, paid);
                true
            }
            None => false,
        }
    }
}

/// When one time more is paid for, if there may be one.
fn next(paid: Instant, most: u32, period: Duration, now: Instant) -> Option<Instant> {
    let share = period / most;
    (paid.saturating_duration_since(now) + share <= period).then(|| paid + share)
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
        let Some(paid) = next(paid, most, MINUTE, now) else { return false };
        self.paid.put(network, paid, paid);
        true
    }

    /// How many networks are remembered.
    pub fn remembered(&self) -> usize {
        self.paid.len()
    }
}

//! Bad logins: each costs its network, and to a smaller degree the account it tried, a longer wait than the one before.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::Network;
use super::memory::Memory;

/// Longest part of a user's name that is remembered, bytes.
const MAX_NAME: usize = 64;

/// How bad logins are paid for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThrottleLimits {
    /// Bad logins without a wait; default 3.
    pub free: u32,
    /// The first wait, doubled for every further bad login; default 1 s.
    pub first: Duration,
    /// Longest wait of a network; default 15 min.
    pub longest: Duration,
    /// Longest wait for an account from networks where its user was not seen yet; short, so that nobody can be locked out by strangers;
    /// default 10 s.
    pub longest_for_user: Duration,
    /// After so long without another, bad logins are forgotten, and so is where a user was seen; default 1 h, and 30 times that.
    pub memory: Duration,
    /// Networks and accounts that are remembered at the most, each; default 65 536.
    pub most: usize,
}

impl Default for ThrottleLimits {
    fn default() -> Self {
        Self {
            free: 3,
            first: Duration::from_secs(1),
            longest: Duration::from_secs(15 * 60),
            longest_for_user: Duration::from_secs(10),
            memory: Duration::from_secs(3600),
            most: 1 << 16,
        }
    }
}

/// Remembers bad logins by network and by account, and where users logged in well.
///
/// Where a user is known, only bad logins as this user from there count: strangers behind the same address do not lock a site out.
#[derive(Debug)]
pub struct Throttle {
    limits: ThrottleLimits,
    networks: Memory<Network, Record>,
    users: Memory<String, Record>,
    /// Where users are known; the number is that of good logins.
    known: Memory<(String, Network), Record>,
    /// Where anybody is known.
    homes: Memory<Network, Record>,
    /// Bad logins where the user is known.
    slips: Memory<(String, Network), Record>,
}

impl Throttle {
    /// Nobody is remembered.
    pub fn new(limits: ThrottleLimits) -> Self {
        let most = limits.most;
        let (networks, users) = (Memory::new(most), Memory::new(most));
        Self { limits, networks, users, known: Memory::new(most), homes: Memory::new(most), slips: Memory::new(most) }
    }

    /// How long this network has to wait before its next attempt, as this user if one is named already; zero if not at all.
    pub fn wait(&mut self, from: IpAddr, user: Option<&str>, now: Instant) -> Duration {
        self.forget(now);
        let network = Network::from(from);
        let (limits, longest) = (&self.limits, self.limits.longest);
        let own = limits.end(self.networks.get(&network), longest, now);
        let end = match user.map(|user| (short(user), network)) {
            None => own,
            Some(place) if self.known.get(&place).is_some() => limits.end(self.slips.get(&place), longest, now),
            Some((user, _)) => limits.end(self.users.get(&user), limits.longest_for_user, now).max(own),
        };
        end.saturating_duration_since(now)
    }

    /// Notes a bad login; how long such an attempt has to wait now. `user`: the account that was tried, where a guess could have
    /// succeeded (a password); none for a certificate or token, which are no guesses.
    pub fn failed(&mut self, from: IpAddr, user: Option<&str>, now: Instant) -> Duration {
        self.forget(now);
        let (network, until) = (Network::from(from), now + self.limits.memory);
        match user.map(|user| (short(user), network)) {
            Some(place) if self.known.get(&place).is_some() => self.slips.count(place, now, until),
            named => {
                self.networks.count(network, now, until);
                if let Some((user, _)) = named {
                    self.users.count(user, now, until);
                }
            }
        }
        self.wait(from, user, now)
    }

    /// Notes a good login: the user is known there from now on.
    ///
    /// The network's bad logins stay, or an attacker with an account of its own could guess at others for nothing; those at the account
    /// are forgotten only if the user was known there before.
    pub fn succeeded(&mut self, from: IpAddr, user: &str, now: Instant) {
        self.forget(now);
        let place = (short(user), Network::from(from));
        if self.known.get(&place).is_some() {
            self.users.remove(&place.0);
        }
        self.slips.remove(&place);
        let until = now + self.limits.memory * 30;
        self.homes.count(place.1, now, until);
        self.known.count(place, now, until);
    }

    /// Whether anybody has logged in well from there.
    pub fn knows(&mut self, from: IpAddr, now: Instant) -> bool {
        self.forget(now);
        self.homes.get(&Network::from(from)).is_some()
    }

    /// How many networks, accounts and places of known users are remembered.
    pub fn remembered(&self) -> (usize, usize, usize) {
        (self.networks.len(), self.users.len(), self.known.len() + self.slips.len())
    }

    fn forget(&mut self, now: Instant) {
        self.networks.forget(now);
        self.users.forget(now);
        self.known.forget(now);
        self.homes.forget(now);
        self.slips.forget(now);
    }
}

impl ThrottleLimits {
    /// When the wait after the last bad login of a record ends; `now` without one.
    fn end(&self, record: Option<&Record>, longest: Duration, now: Instant) -> Instant {
        let Some(record) = record else { return now };
        let Some(beyond) = record.count.checked_sub(self.free.saturating_add(1)) else { return record.last };
        // 2^20 times the shortest sensible wait is beyond every longest one.
        record.last + (self.first * (1 << beyond.min(20))).min(longest)
    }
}

fn short(user: &str) -> String {
    let mut end = user.len().min(MAX_NAME);
    while !user.is_char_boundary(end) {
        end -= 1;
    }
    user[..end].to_owned()
}

#[derive(Debug, Clone, Copy)]
struct Record {
    count: u32,
    last: Instant,
}

impl<K: Ord + Clone> Memory<K, Record> {
    /// Counts one more of a key, which is forgotten at `until`.
    fn count(&mut self, key: K, now: Instant, until: Instant) {
        let before = self.get(&key).map_or(0, |record| record.count);
        self.put(key, Record { count: before.saturating_add(1), last: now }, until);
    }
}

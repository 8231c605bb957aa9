//! How many connections a network, and an account, may have.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use super::Network;

/// Limits of connections; each default leaves room for a site behind one address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoorLimits {
    /// All connections at once; default 1000.
    pub all: usize,
    /// Those of one network at once; default: as `all`.
    pub per_network: usize,
    /// Those of one network before login; default 128: a service that moves files for many logs in often.
    pub waiting_per_network: usize,
    /// New ones of one network in a minute ([`Pace`](super::Pace)); default: no limit.
    pub per_minute: Option<u32>,
    /// From so many before login on, new ones are refused by dice, the more of them the nearer `waiting_full` is; default 200.
    pub waiting_start: usize,
    /// At so many before login every new one is refused; default 400.
    pub waiting_full: usize,
}

impl Default for DoorLimits {
    fn default() -> Self {
        Self {
            all: 1000,
            per_network: 1000,
            waiting_per_network: 128,
            per_minute: None,
            waiting_start: 200,
            waiting_full: 400,
        }
    }
}

/// A connection that was let in; given back when it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Visitor(u64);

/// Why a connection, or a login, is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The server has all the connections it takes.
    #[error("the server has as many connections as it takes")]
    Full,
    /// The network has.
    #[error("too many connections from your network")]
    Network,
    /// The network has too many that have not logged in.
    #[error("too many connections from your network are not logged in yet")]
    Waiting,
    /// The network comes too often.
    #[error("too many new connections from your network in a minute")]
    Pace,
    /// Too many have not logged in, and the dice fell so.
    #[error("too many connections are not logged in yet; try again")]
    Dice,
    /// The account has.
    #[error("you have as many connections as your account may have")]
    User,
    /// The account logs in too often.
    #[error("your account has logged in too often in this minute: try again later")]
    UserPace,
}

/// Counts connections.
#[derive(Debug)]
pub struct Doors {
    limits: DoorLimits,
    next: u64,
    inside: BTreeMap<Visitor, Inside>,
    networks: BTreeMap<Network, Count>,
    users: BTreeMap<String, u32>,
    waiting: usize,
}

#[derive(Debug)]
struct Inside {
    from: Network,
    /// Once logged in.
    user: Option<String>,
}

#[derive(Debug, Default)]
struct Count {
    all: usize,
    waiting: usize,
}

impl Doors {
    /// Nobody is there.
    pub fn new(limits: DoorLimits) -> Self {
        Self { limits, next: 0, inside: BTreeMap::new(), networks: BTreeMap::new(), users: BTreeMap::new(), waiting: 0 }
    }

    /// Limits that changed while connections are open; none of those is closed for it.
    pub fn set_limits(&mut self, limits: DoorLimits) {
        self.limits = limits;
    }

    /// A connection arrives; `dice` is any number, new each time.
    ///
    /// # Errors
    /// [`Refusal`]: close it, and keep nothing of it.
    pub fn enter(&mut self, from: IpAddr, dice: u32) -> Result<Visitor, Refusal> {
        self.admit(from, Some(dice))
    }

    /// A connection arrives from where somebody has logged in before: those who flood the door do not keep it out.
    ///
    /// # Errors
    /// [`Refusal`], but never of dice.
    pub fn enter_known(&mut self, from: IpAddr) -> Result<Visitor, Refusal> {
        self.admit(from, None)
    }

    fn admit(&mut self, from: IpAddr, dice: Option<u32>) -> Result<Visitor, Refusal> {
        let limits = &self.limits;
        let from = Network::from(from);
        let (all, waiting) = self.networks.get(&from).map_or((0, 0), |count| (count.all, count.waiting));
        if self.inside.len() >= limits.all {
            return Err(Refusal::Full);
        }
        if all >= limits.per_network {
            return Err(Refusal::Network);
        }
        if waiting >= limits.waiting_per_network {
            return Err(Refusal::Waiting);
        }
        if dice.is_some_and(|dice| self.drops(dice)) {
            return Err(Refusal::Dice);
        }
        let count = self.networks.entry(from).or_default();
        (count.all, count.waiting) = (all + 1, waiting + 1);
        self.waiting += 1;
        self.next += 1;
        let visitor = Visitor(self.next);
        self.inside.insert(visitor, Inside { from, user: None });
        Ok(visitor)
    }

    /// From `waiting_start` on one in ten, at `waiting_full` all, in between in a straight line: whoever fills the waiting room drops
    /// mostly what it fills it with.
    pub(super) fn drops(&self, dice: u32) -> bool {
        let (start, full) = (self.limits.waiting_start, self.limits.waiting_full);
        if self.waiting >= full {
            return true;
        }
        if self.waiting < start {
            return false;
        }
        let way = (self.waiting - start) as u64 * 900 / (full - start).max(1) as u64;
        u64::from(dice % 1000) < 100 + way
    }

    /// A connection has logged in, or logs in anew as somebody else; `most` connections the account may have at once.
    ///
    /// # Errors
    /// [`Refusal::User`]: it stays as it was.
    pub fn log_in(&mut self, visitor: Visitor, user: &str, most: Option<u32>) -> Result<(), Refusal> {
        let Some(inside) = self.inside.get(&visitor) else { return Ok(()) };
        if inside.user.as_deref() == Some(user) {
            return Ok(());
        }
        let count = self.users.get(user).copied().unwrap_or(0);
        if most.is_some_and(|most| count >= most) {
            return Err(Refusal::User);
        }
        self.log_out(visitor);
        self.users.insert(user.to_owned(), count + 1);
        if let Some(inside) = self.inside.get_mut(&visitor) {
            inside.user = Some(user.to_owned());
            self.waiting -= 1;
            if let Some(network) = self.networks.get_mut(&inside.from) {
                network.waiting -= 1;
            }
        }
        Ok(())
    }

    /// A connection is as before its login again (REIN).
    pub fn log_out(&mut self, visitor: Visitor) {
        let Some(inside) = self.inside.get_mut(&visitor) else { return };
        let Some(user) = inside.user.take() else { return };
        self.waiting += 1;
        if let Some(network) = self.networks.get_mut(&inside.from) {
            network.waiting += 1;
        }
        match self.users.get_mut(&user) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(self.users.remove(&user)),
        }
    }

    /// A connection has ended.
    pub fn leave(&mut self, visitor: Visitor) {
        self.log_out(visitor);
        let Some(inside) = self.inside.remove(&visitor) else { return };
        self.waiting -= 1;
        if let Some(network) = self.networks.get_mut(&inside.from) {
            network.all -= 1;
            network.waiting -= 1;
            if network.all == 0 {
                self.networks.remove(&inside.from);
            }
        }
    }

    /// Connections in all, and those that have not logged in.
    pub fn count(&self) -> (usize, usize) {
        (self.inside.len(), self.waiting)
    }

    /// How many networks and accounts are remembered: those of open connections.
    pub fn remembered(&self) -> (usize, usize) {
        (self.networks.len(), self.users.len())
    }

    /// Connections of an account.
    pub fn of_user(&self, user: &str) -> u32 {
        self.users.get(user).copied().unwrap_or(0)
    }
}

//! Who may knock how often: bad logins cost time, connections before login are few per network, and lines have to end.
//!
//! Pure machines; times and dice are arguments. All memory is bounded: what strangers make it remember pushes out the oldest of
//! what strangers made it remember, never what a known user did.

mod budget;
mod doors;
mod memory;
mod pace;
mod slow;
#[cfg(test)]
mod tests;
mod throttle;

use std::net::{IpAddr, Ipv6Addr};

pub use self::budget::{LineBudget, LineBudgetLimits};
pub use self::doors::{DoorLimits, Doors, Refusal, Visitor};
pub use self::pace::{Pace, UserPace};
pub use self::slow::{LineLimits, SlowLine};
pub use self::throttle::{Throttle, ThrottleLimits};

/// Who counts as one stranger: an IPv4 address, or the /64 that one IPv6 host has for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Network(IpAddr);

impl From<IpAddr> for Network {
    fn from(address: IpAddr) -> Self {
        Self(match address.to_canonical() {
            IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64)),
            v4 @ IpAddr::V4(_) => v4,
        })
    }
}

//! `[limits]`: how many connections, how much bandwidth and how much storage, of whom.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error};
use whimbrel_engine::guard::{DoorLimits, LineLimits};
use whimbrel_proto::rules::Networks;

use super::super::access::{Amounts, Who};
use super::rules::Size;

/// Most entries of `[[limits.of]]`, and most selectors in them: the front is told all in one message.
const MOST_ENTRIES: usize = 256;

/// Most bytes of their names.
const MOST_TEXT: usize = 16 << 10;

/// Limits of connections before and after login.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Control connections of one address at once (of IPv6: of one /64). Default: as many as there may be in all.
    pub connections_per_address: Option<usize>,
    /// New ones of one address in a minute. Default: no limit.
    pub connections_per_minute: Option<u32>,
    /// Of these, those that have not logged in. Default: 128.
    pub waiting_per_address: Option<usize>,
    /// Control connections of all together that have not logged in; from half of it on new ones are refused by dice. Default: 400.
    pub waiting: Option<usize>,
    /// Seconds that a command line may take from its first byte to its end; each KiB buys one more. Default: 20.
    pub line_seconds: Option<u32>,
    /// Seconds from AUTH to the end of the handshake. Default: 30.
    pub handshake_seconds: Option<u32>,
    /// Control connections of one user at once. Default: no limit.
    pub connections: Option<u32>,
    /// Logins of one user in a minute. Default: no limit.
    pub logins_per_minute: Option<u32>,
    /// Bytes a second, of all transfers of a user on one host together, each direction for itself. Default: no limit.
    #[serde(deserialize_with = "size")]
    pub bandwidth: Option<u64>,
    /// Bytes that a user may store on one host in a day (UTC). Default: no limit.
    #[serde(deserialize_with = "size")]
    pub quota: Option<u64>,
    /// Directory, of root and closed to others, where what users have stored today is written down, so that it counts after a restart.
    /// Default: it is counted in memory.
    pub quota_directory: Option<PathBuf>,
    /// The last four for some users; of each the first entry that is for somebody counts. At most 256.
    #[serde(deserialize_with = "bounded")]
    pub of: Vec<LimitsOf>,
}

/// Limits of some users, or from some addresses.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Entry")]
pub struct LimitsOf {
    /// For whom.
    pub who: Who,
    /// How much.
    pub amounts: Amounts,
}

/// As it is written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Entry {
    users: Vec<String>,
    groups: Vec<String>,
    addresses: Networks,
    connections: Option<u32>,
    logins_per_minute: Option<u32>,
    #[serde(deserialize_with = "size")]
    bandwidth: Option<u64>,
    #[serde(deserialize_with = "size")]
    quota: Option<u64>,
}

impl TryFrom<Entry> for LimitsOf {
    type Error = &'static str;

    fn try_from(entry: Entry) -> Result<Self, &'static str> {
        let Entry { users, groups, addresses, connections, logins_per_minute, bandwidth, quota } = entry;
        let who = Who { users, groups, addresses, shared: false };
        if who == Who::default() {
            return Err("say for whom: users = [\"ada\"], groups = [\"staff\"] or addresses = [\"192.0.2.0/24\"]");
        }
        Ok(Self { who, amounts: Amounts { connections, logins_per_minute, bandwidth, quota } })
    }
}

impl Limits {
    /// What the door watches; `all`: control connections at once.
    pub fn doors(&self, all: usize) -> DoorLimits {
        let usual = DoorLimits::default();
        let waiting_full = self.waiting.map_or(usual.waiting_full, |most| most.clamp(1, 1 << 20));
        DoorLimits {
            all,
            per_network: self.connections_per_address.unwrap_or(all).max(1),
            waiting_per_network: self.waiting_per_address.unwrap_or(usual.waiting_per_network).max(1),
            per_minute: self.connections_per_minute,
            waiting_start: waiting_full / 2,
            waiting_full,
        }
    }

    /// How fast command lines and handshakes have to come.
    pub fn lines(&self) -> LineLimits {
        let usual = LineLimits::default();
        let seconds = |told: Option<u32>, usual| told.map_or(usual, |told| Duration::from_secs(told.max(1).into()));
        LineLimits {
            grace: seconds(self.line_seconds, usual.grace),
            handshake: seconds(self.handshake_seconds, usual.handshake),
            ..usual
        }
    }

    /// The limits of logins, in their order; those for everybody come last.
    pub(super) fn amounts(&self) -> Vec<(Who, Amounts)> {
        let Self { connections, logins_per_minute, bandwidth, quota, .. } = *self;
        let everybody = (Who::default(), Amounts { connections, logins_per_minute, bandwidth, quota });
        self.of.iter().map(|entry| (entry.who.clone(), entry.amounts.clone())).chain([everybody]).collect()
    }
}

fn bounded<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<LimitsOf>, D::Error> {
    let entries = Vec::<LimitsOf>::deserialize(deserializer)?;
    let text = |entry: &LimitsOf| entry.who.users.iter().chain(&entry.who.groups).map(String::len).sum::<usize>();
    if entries.iter().map(text).sum::<usize>() > MOST_TEXT {
        return Err(D::Error::custom("[[limits.of]] has more than 16 KiB of names"));
    }
    let selectors = |entry: &LimitsOf| entry.who.users.len() + entry.who.groups.len() + entry.who.addresses.0.len();
    match entries.iter().map(selectors).sum::<usize>() {
        0..=MOST_ENTRIES => Ok(entries),
        many => Err(D::Error::custom(format!("[[limits.of]] names {many} users, groups and addresses: 256 at most"))),
    }
}

/// A number of bytes from 1 on.
fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    match Size::deserialize(deserializer) {
        Ok(Size::Bytes(bytes @ 1..)) => Ok(Some(bytes)),
        _ => Err(D::Error::custom("write a size, as in \"500M\" or 524288000")),
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_engine::units::ByteCount;

    use super::super::super::access::{Access, Guest};
    use super::super::DtnConfig;
    use super::*;

    fn limits(text: &str) -> Limits {
        DtnConfig::parse(text).unwrap().limits
    }

    #[test]
    fn the_first_entry_that_names_somebody_counts_for_each_amount() {
        let limits = limits(
            r#"
            [limits]
            connections = 20
            bandwidth = "100M"
            [[limits.of]]
            addresses = ["192.0.2.0/24"]
            bandwidth = 5
            [[limits.of]]
            users = ["ada"]
            quota = "1G"
            logins_per_minute = 30
            [[limits.of]]
            users = ["bob", "ada"]
            groups = ["staff"]
            connections = 50
            quota = 7
            "#,
        );
        let access = Access { rules: Vec::new(), amounts: limits.amounts() };
        let of = |user, groups: &[&str], from: &str| {
            let groups: Vec<_> = groups.iter().map(|&group| group.to_owned()).collect();
            let rules = access.of(Guest { user, groups: &groups, address: from.parse().ok(), shared: false });
            (rules.connections, rules.bandwidth, rules.quota)
        };
        let pace = |user| access.logins_per_minute(Guest { user, groups: &[], address: None, shared: false });
        assert_eq!((pace("ada"), pace("eve")), (Some(30), None));
        let rate = "100M".parse::<ByteCount>().unwrap().0;
        let gigabyte = "1G".parse::<ByteCount>().unwrap().0;
        assert_eq!(of("ada", &[], ""), (Some(50), Some(rate), Some(gigabyte)));
        assert_eq!(of("eve", &["staff", "x"], ""), (Some(50), Some(rate), Some(7)));
        assert_eq!(of("eve", &["x"], "198.51.100.1"), (Some(20), Some(rate), None));
        assert_eq!(of("eve", &["x"], "192.0.2.1"), (Some(20), Some(5), None));
    }

    #[test]
    fn doors_have_their_usual_width_unless_told() {
        assert_eq!(limits("").doors(1000), DoorLimits::default());
        let text =
            "[limits]\nwaiting = 10\nwaiting_per_address = 0\nconnections_per_address = 3\nconnections_per_minute = 7";
        let expected = DoorLimits {
            all: 8,
            per_network: 3,
            waiting_per_network: 1,
            per_minute: Some(7),
            waiting_start: 5,
            waiting_full: 10,
        };
        assert_eq!(limits(text).doors(8), expected);
        assert_eq!(limits("").lines(), LineLimits::default());
        let fast = limits("[limits]\nhandshake_seconds = 0\nline_seconds = 3").lines();
        assert_eq!((fast.handshake, fast.grace), (Duration::from_secs(1), Duration::from_secs(3)));
    }

    #[test]
    fn what_is_wrong_is_told_with_its_cure() {
        for (text, cure) in [
            ("[limits]\nbandwidth = 0", "write a size"),
            ("[limits]\nquota = \"much\"", "write a size"),
            ("[limits]\nbandwith = 5", "unknown field"),
            ("[[limits.of]]\nconnections = 5", "say for whom"),
            ("[[limits.of]]\naddresses = [\"192.0.2.1/24\"]", "192.0.2.0/24"),
            ("[[limits.of]]\nusers = [\"a\"]\nconections = 5", "unknown field"),
        ] {
            let told = DtnConfig::parse(text).unwrap_err().to_string();
            assert!(told.contains(cure), "{text}: no {cure} in {told}");
        }
        let many = "[[limits.of]]\nusers = [\"a\"]\n".repeat(MOST_ENTRIES + 1);
        assert!(DtnConfig::parse(&many).unwrap_err().to_string().contains("256 at most"));
    }
}

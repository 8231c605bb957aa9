//! `[limits]`: how many connections, how much bandwidth and how much storage, of whom.

use serde::Deserialize;
use serde::de::{Deserializer, Error};
use whimbrel_engine::guard::DoorLimits;
use whimbrel_engine::units::ByteCount;
use whimbrel_proto::rules::{LoginRules, Networks};

/// Most entries of `[[limits.of]]`: the front is told all with addresses in one message.
const MOST_ENTRIES: usize = 256;

/// Limits of connections before and after login.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Control connections of one address at once (of IPv6: of one /64). Default: as many as there may be in all.
    pub connections_per_address: Option<usize>,
    /// Of these, those that have not logged in. Default: 128.
    pub waiting_per_address: Option<usize>,
    /// Control connections of all together that have not logged in; from half of it on new ones are refused by dice. Default: 400.
    pub waiting: Option<usize>,
    /// What holds for every user.
    #[serde(flatten)]
    pub each: Amounts,
    /// What holds for some; at most 256.
    #[serde(deserialize_with = "bounded")]
    pub of: Vec<LimitsOf>,
}

/// Limits of one user; what is left out is not limited.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Amounts {
    /// Control connections at once.
    pub connections: Option<u32>,
    /// Bytes a second, of all transfers of a user on one host together, each direction for itself.
    #[serde(deserialize_with = "size")]
    pub bandwidth: Option<u64>,
    /// Bytes that a user may store on one host in a day (UTC).
    #[serde(deserialize_with = "size")]
    pub quota: Option<u64>,
}

/// Limits of some users, or from some addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, try_from = "Entry")]
pub struct LimitsOf {
    /// Login names.
    pub users: Vec<String>,
    /// Groups of the accounts that handle data.
    pub groups: Vec<String>,
    /// Where users come from; goes with neither of the others.
    pub addresses: Networks,
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
    #[serde(deserialize_with = "size")]
    bandwidth: Option<u64>,
    #[serde(deserialize_with = "size")]
    quota: Option<u64>,
}

impl TryFrom<Entry> for LimitsOf {
    type Error = &'static str;

    fn try_from(entry: Entry) -> Result<Self, &'static str> {
        let Entry { users, groups, addresses, connections, bandwidth, quota } = entry;
        let named = !users.is_empty() || !groups.is_empty();
        match (named, addresses.0.is_empty()) {
            (true, false) => Err("an entry is for users and groups, or for addresses: write two"),
            (false, true) => {
                Err("say for whom: users = [\"ada\"], groups = [\"staff\"] or addresses = [\"192.0.2.0/24\"]")
            }
            _ => Ok(Self { users, groups, addresses, amounts: Amounts { connections, bandwidth, quota } }),
        }
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
            waiting_start: waiting_full / 2,
            waiting_full,
        }
    }

    /// The limits of a user whose account is in these groups, wherever they come from: of each amount that of the first entry that
    /// names them, else what holds for everybody.
    pub fn of_user(&self, user: &str, groups: &[String]) -> Amounts {
        let fits = |entry: &&LimitsOf| {
            entry.users.iter().any(|name| name == user) || entry.groups.iter().any(|group| groups.contains(group))
        };
        self.of
            .iter()
            .filter(fits)
            .map(|entry| &entry.amounts)
            .chain([&self.each])
            .cloned()
            .fold(Amounts::default(), Amounts::or)
    }

    /// The entries that ask where somebody comes from.
    pub fn of_addresses(&self) -> Vec<(Networks, Amounts)> {
        let by_address = self.of.iter().filter(|entry| !entry.addresses.0.is_empty());
        by_address.map(|entry| (entry.addresses.clone(), entry.amounts.clone())).collect()
    }
}

impl Amounts {
    fn or(self, other: Self) -> Self {
        Self {
            connections: self.connections.or(other.connections),
            bandwidth: self.bandwidth.or(other.bandwidth),
            quota: self.quota.or(other.quota),
        }
    }

    /// The same as limits of a login.
    pub fn rules(&self) -> LoginRules {
        let Self { connections, bandwidth, quota } = *self;
        LoginRules { connections, bandwidth, quota, ..LoginRules::unlimited() }
    }
}

fn bounded<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<LimitsOf>, D::Error> {
    let entries = Vec::<LimitsOf>::deserialize(deserializer)?;
    match entries.len() {
        0..=MOST_ENTRIES => Ok(entries),
        many => Err(D::Error::custom(format!("there are {many} [[limits.of]] entries: keep the first {MOST_ENTRIES}"))),
    }
}

/// A number of bytes from 1 on.
fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Size {
        Number(i64),
        Text(String),
    }
    let bytes = match Size::deserialize(deserializer) {
        Ok(Size::Number(bytes)) => u64::try_from(bytes).ok(),
        Ok(Size::Text(text)) => text.parse().ok().map(|ByteCount(bytes)| bytes),
        Err(_) => None,
    };
    match bytes {
        Some(bytes @ 1..) => Ok(Some(bytes)),
        _ => Err(D::Error::custom("write a size, as in \"500M\" or 524288000")),
    }
}

#[cfg(test)]
mod tests {
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
            users = ["ada"]
            quota = "1G"
            [[limits.of]]
            users = ["bob", "ada"]
            groups = ["staff"]
            connections = 50
            quota = 7
            "#,
        );
        let of = |user, groups: &[&str]| {
            let groups: Vec<_> = groups.iter().map(|&group| group.to_owned()).collect();
            let Amounts { connections, bandwidth, quota } = limits.of_user(user, &groups);
            (connections, bandwidth, quota)
        };
        let rate = "100M".parse::<ByteCount>().unwrap().0;
        let gigabyte = "1G".parse::<ByteCount>().unwrap().0;
        assert_eq!(of("ada", &[]), (Some(50), Some(rate), Some(gigabyte)));
        assert_eq!(of("eve", &["staff", "x"]), (Some(50), Some(rate), Some(7)));
        assert_eq!(of("eve", &["x"]), (Some(20), Some(rate), None));
        assert!(limits.of_addresses().is_empty());
    }

    #[test]
    fn doors_have_their_usual_width_unless_told() {
        assert_eq!(limits("").doors(1000), DoorLimits::default());
        let narrow = limits("[limits]\nwaiting = 10\nwaiting_per_address = 0\nconnections_per_address = 3").doors(8);
        let expected =
            DoorLimits { all: 8, per_network: 3, waiting_per_network: 1, waiting_start: 5, waiting_full: 10 };
        assert_eq!(narrow, expected);
    }

    #[test]
    fn what_is_wrong_is_told_with_its_cure() {
        for (text, cure) in [
            ("[limits]\nbandwidth = 0", "write a size"),
            ("[limits]\nquota = \"much\"", "write a size"),
            ("[limits]\nbandwith = 5", "unknown field"),
            ("[[limits.of]]\nconnections = 5", "say for whom"),
            ("[[limits.of]]\nusers = [\"a\"]\naddresses = [\"192.0.2.1\"]", "write two"),
            ("[[limits.of]]\naddresses = [\"192.0.2.1/24\"]", "192.0.2.0/24"),
            ("[[limits.of]]\nusers = [\"a\"]\nconections = 5", "unknown field"),
        ] {
            let told = DtnConfig::parse(text).unwrap_err().to_string();
            assert!(told.contains(cure), "{text}: no {cure} in {told}");
        }
        let many = "[[limits.of]]\nusers = [\"a\"]\n".repeat(MOST_ENTRIES + 1);
        assert!(DtnConfig::parse(&many).unwrap_err().to_string().contains("keep the first 256"));
    }
}

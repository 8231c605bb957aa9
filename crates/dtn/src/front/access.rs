//! What the administrator allows to whom: rules for paths, and amounts. Decided at login, enforced where data are moved.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use whimbrel_proto::rules::{LoginRules, Networks, Operations, PathRule, PathRules};

/// Whom something is for; an empty selector asks nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Who {
    /// Login names: one of these, or one of the groups.
    pub users: Vec<String>,
    /// Groups of the account that handles the data.
    pub groups: Vec<String>,
    /// And from one of these networks.
    pub addresses: Networks,
    /// Only for those with whom the account's owner shares something, and whom the owner's own rules bind as well.
    pub shared: bool,
}

/// How much a user may have; `None`: no limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amounts {
    /// Control connections at once.
    pub connections: Option<u32>,
    /// Logins in a minute.
    pub logins_per_minute: Option<u32>,
    /// Bytes a second of all transfers of the user on one host together, each direction for itself.
    pub bandwidth: Option<u64>,
    /// Bytes that the user may store on one host in a day (UTC).
    pub quota: Option<u64>,
}

/// Everything that `[[rules]]` and `[limits]` say about logins.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Access {
    /// Rules for paths; where none says anything, everything is allowed.
    pub rules: Vec<(Who, PathRule)>,
    /// Amounts: of each the first that is for somebody counts.
    pub amounts: Vec<(Who, Amounts)>,
}

/// Somebody who logs in.
#[derive(Debug, Clone, Copy)]
pub struct Guest<'a> {
    /// Login name.
    pub user: &'a str,
    /// Groups of the account.
    pub groups: &'a [String],
    /// Where from; `None` on standard input.
    pub address: Option<IpAddr>,
    /// Whether it is somebody with whom the account's owner shares something.
    pub shared: bool,
}

impl Who {
    fn is(&self, guest: Guest<'_>) -> bool {
        let anybody = self.users.is_empty() && self.groups.is_empty();
        let anywhere = self.addresses.0.is_empty();
        let named = self.users.iter().any(|user| user == guest.user)
            || self.groups.iter().any(|group| guest.groups.contains(group));
        let here = anywhere || guest.address.is_some_and(|address| self.addresses.contains(address));
        (anybody || named) && here && (guest.shared || !self.shared)
    }
}

impl Access {
    /// What a login may do.
    pub fn of(&self, guest: Guest<'_>) -> LoginRules {
        // What may be shared is no more than what its owner may do, however long the paths of either are.
        let paths = self.paths(guest, false).and(&self.paths(guest, true));
        let Amounts { connections, bandwidth, quota, logins_per_minute: _ } = self.amounts_of(guest);
        LoginRules { paths, connections, bandwidth, quota, until: None }
    }

    /// What the rules for somebody say of which kind: those about what is shared, or the others.
    fn paths(&self, guest: Guest<'_>, shared: bool) -> PathRules {
        let rules = self.rules.iter().filter(|(who, _)| who.shared == shared && who.is(guest));
        let rules: Vec<PathRule> = rules.map(|(_, rule)| rule.clone()).collect();
        // Each rule was checked when it was read; one that is none after all must not open anything.
        PathRules::new(Operations::ALL, &rules).unwrap_or_else(|_| PathRules::nothing())
    }

    /// How often somebody may log in in a minute; `None`: as often as wanted.
    pub fn logins_per_minute(&self, guest: Guest<'_>) -> Option<u32> {
        self.amounts_of(guest).logins_per_minute
    }

    fn amounts_of(&self, guest: Guest<'_>) -> Amounts {
        let all = self.amounts.iter().filter(|(who, _)| who.is(guest)).map(|(_, amounts)| amounts);
        all.fold(Amounts::default(), |first, next| Amounts {
            connections: first.connections.or(next.connections),
            logins_per_minute: first.logins_per_minute.or(next.logins_per_minute),
            bandwidth: first.bandwidth.or(next.bandwidth),
            quota: first.quota.or(next.quota),
        })
    }

    /// Whether anything depends on the groups of an account: asking the name service for them may take long.
    pub fn asks_for_groups(&self) -> bool {
        let rules = self.rules.iter().map(|(who, _)| who);
        rules.chain(self.amounts.iter().map(|(who, _)| who)).any(|who| !who.groups.is_empty())
    }
}

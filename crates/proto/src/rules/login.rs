//! The limits of one login.

use serde::{Deserialize, Serialize};

use super::PathRules;

/// What a login may do, and how much of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoginRules {
    /// What may be done where.
    pub paths: PathRules,
    /// Control connections of the user at once.
    pub connections: Option<u32>,
    /// Bytes per second of all transfers of the user on one host together, each direction for itself.
    pub bandwidth: Option<u64>,
    /// Bytes that may still be stored.
    pub quota: Option<u64>,
    /// End of the login, in seconds since 1970: that of the credential it rests on.
    pub until: Option<i64>,
}

impl LoginRules {
    /// Everything, for ever.
    pub fn unlimited() -> Self {
        Self { paths: PathRules::everything(), connections: None, bandwidth: None, quota: None, until: None }
    }

    /// What both allow: the smaller number of each.
    pub fn and(&self, other: &Self) -> Self {
        Self {
            paths: self.paths.and(&other.paths),
            connections: smaller(self.connections, other.connections),
            bandwidth: smaller(self.bandwidth, other.bandwidth),
            quota: smaller(self.quota, other.quota),
            until: smaller(self.until, other.until),
        }
    }

    /// Whether the login is over at this time, in seconds since 1970.
    pub fn is_over(&self, now: i64) -> bool {
        self.until.is_some_and(|end| now >= end)
    }
}

fn smaller<T: Ord>(a: Option<T>, b: Option<T>) -> Option<T> {
    [a, b].into_iter().flatten().min()
}

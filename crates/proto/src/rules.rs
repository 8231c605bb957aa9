//! What somebody may do: operations below paths, networks, and the limits of a login.
//!
//! The same rules serve an administrator's collections and the scopes of tokens; where both speak, their [`PathRules::and`] counts.
//! Nothing here knows how a rule was written: configuration, token and mapping are read elsewhere.

mod login;
mod network;
mod paths;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::{BitAnd, BitOr, Not};

use serde::{Deserialize, Serialize};

pub use self::login::LoginRules;
pub use self::network::{Cidr, CidrError, Networks};
pub use self::paths::{MAX_PATH, MAX_RULES, PathRule, PathRules, RuleError, Verdict};

/// One kind of thing that can be done with a file or directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    /// To read a file's bytes, or have them hashed.
    Read,
    /// To list a directory.
    List,
    /// To make a file or directory that was not there.
    Create,
    /// To change what is there: to overwrite, append, truncate, or set its mode or time.
    Modify,
    /// To remove it.
    Delete,
}

impl Operation {
    /// Every operation.
    pub const ALL: [Self; 5] = [Self::Read, Self::List, Self::Create, Self::Modify, Self::Delete];

    /// The word for it in configuration and messages.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::List => "list",
            Self::Create => "create",
            Self::Modify => "modify",
            Self::Delete => "delete",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A set of operations.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Vec<Operation>", into = "Vec<Operation>")]
pub struct Operations(u8);

impl Operations {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// Everything.
    pub const ALL: Self = Self(0b1_1111);
    /// What changes nothing.
    pub const READING: Self = Self(1 << Operation::Read as u8 | 1 << Operation::List as u8);

    /// Whether this one is among them.
    pub const fn has(self, operation: Operation) -> bool {
        self.0 & (1 << operation as u8) != 0
    }

    /// Whether there is none.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether every one of `others` is among them.
    pub const fn covers(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }
}

impl From<Operation> for Operations {
    fn from(operation: Operation) -> Self {
        Self(1 << operation as u8)
    }
}

impl FromIterator<Operation> for Operations {
    fn from_iter<I: IntoIterator<Item = Operation>>(operations: I) -> Self {
        operations.into_iter().fold(Self::NONE, |set, operation| set | operation.into())
    }
}

impl From<Vec<Operation>> for Operations {
    fn from(operations: Vec<Operation>) -> Self {
        operations.into_iter().collect()
    }
}

impl From<Operations> for Vec<Operation> {
    fn from(set: Operations) -> Self {
        Operation::ALL.into_iter().filter(|&operation| set.has(operation)).collect()
    }
}

impl BitOr for Operations {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for Operations {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl Not for Operations {
    type Output = Self;

    fn not(self) -> Self {
        Self(!self.0 & Self::ALL.0)
    }
}

impl fmt::Debug for Operations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(Vec::from(*self)).finish()
    }
}

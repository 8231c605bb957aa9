//! Rules for paths: of all that cover a path, the longest decides.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use serde::{Deserialize, Serialize};

use super::{Operation, Operations};

/// Most rules of one set.
pub const MAX_RULES: usize = 4096;
/// Longest path of a rule, bytes.
pub const MAX_PATH: usize = 4096;

/// What a rule says about its operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// They may be done.
    Allow,
    /// They may not.
    Deny,
}

/// A rule for a path and all that is below it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathRule {
    /// Absolute; `.` and doubled or trailing slashes mean nothing, `..` is refused.
    pub path: Vec<u8>,
    /// What it says.
    pub verdict: Verdict,
    /// About which operations; of others it says nothing.
    pub operations: Operations,
    /// Whether it speaks only of what is in the directory `path`, and of listing that directory (a scope `/path/`).
    pub inside: bool,
}

/// A rule that cannot be kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RuleError {
    /// Relative, with `..`, with a NUL, or longer than [`MAX_PATH`].
    #[error("{0:?}: the path of a rule is absolute, without `..`, at most 4096 bytes")]
    Path(String),
    /// More than [`MAX_RULES`].
    #[error("more than 4096 rules")]
    Count,
}

/// What is allowed at the end of an entry's path and below it; complete, nothing is inherited any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    here: Operations,
    below: Operations,
}

/// What may be done where: the longest rule that covers a path and speaks of an operation decides about it.
///
/// Paths are bytes and are compared name by name. A path that is relative or holds `..` or NUL allows nothing: whoever asks has
/// to resolve it first, since only the storage knows what `..` behind a link is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Stored", into = "Stored")]
pub struct PathRules {
    /// By normal path: empty for the root, which is always there, else `/a/b`.
    entries: BTreeMap<Vec<u8>, Entry>,
    /// Whether they are a guest's in somebody else's account.
    guest: bool,
}

/// How a set is written: entries are checked again when they are read.
#[derive(Serialize, Deserialize)]
struct Stored(Vec<(Vec<u8>, Operations, Operations)>, bool);

impl From<PathRules> for Stored {
    fn from(rules: PathRules) -> Self {
        let PathRules { entries, guest } = rules;
        Self(entries.into_iter().map(|(path, entry)| (path, entry.here, entry.below)).collect(), guest)
    }
}

impl TryFrom<Stored> for PathRules {
    type Error = RuleError;

    fn try_from(Stored(stored, guest): Stored) -> Result<Self, RuleError> {
        let mut rules = Self { guest, ..Self::otherwise(Operations::NONE) };
        // An entry for every rule, and the root.
        if stored.len() > MAX_RULES + 1 {
            return Err(RuleError::Count);
        }
        for (path, here, below) in stored {
            let path = if path.is_empty() { path } else { checked(&path)? };
            rules.entries.insert(path, Entry { here, below });
        }
        Ok(rules)
    }
}

impl PathRules {
    /// Everything everywhere.
    pub fn everything() -> Self {
        Self::otherwise(Operations::ALL)
    }

    /// Nothing anywhere.
    pub fn nothing() -> Self {
        Self::otherwise(Operations::NONE)
    }

    fn otherwise(operations: Operations) -> Self {
        let root = Entry { here: operations, below: operations };
        Self { entries: BTreeMap::from([(Vec::new(), root)]), guest: false }
    }

    /// `otherwise` where no rule says anything. Of two rules for one path that contradict each other, the denial counts.
    ///
    /// # Errors
    /// [`RuleError`]
    pub fn new(otherwise: Operations, rules: &[PathRule]) -> Result<Self, RuleError> {
        if rules.len() > MAX_RULES {
            return Err(RuleError::Count);
        }
        // Shorter paths sort before those below them, so that what is inherited is known.
        let mut by_path = BTreeMap::<Vec<u8>, Vec<&PathRule>>::new();
        for rule in rules {
            by_path.entry(checked(&rule.path)?).or_default().push(rule);
        }
        let mut made = Self::otherwise(otherwise);
        for (path, rules) in by_path {
            let mut entry = made.entry(&path);
            for rule in rules.iter().filter(|rule| rule.verdict == Verdict::Allow) {
                entry.here = entry.here | rule.here();
                entry.below = entry.below | rule.operations;
            }
            for rule in rules.iter().filter(|rule| rule.verdict == Verdict::Deny) {
                entry.here = entry.here & !rule.here();
                entry.below = entry.below & !rule.operations;
            }
            made.entries.insert(path, entry);
        }
        Ok(made)
    }

    /// The same without anything that changes files.
    pub fn read_only(mut self) -> Self {
        for entry in self.entries.values_mut() {
            entry.here = entry.here & Operations::READING;
            entry.below = entry.below & Operations::READING;
        }
        self
    }

    /// The same for a guest, whoever's account it is in.
    pub fn of_guest(self) -> Self {
        Self { guest: true, ..self }
    }

    /// Whether they are a guest's in somebody else's account.
    pub fn is_guest(&self) -> bool {
        self.guest
    }

    /// Whether they say nothing that the account does not: a user's own, without anything that is forbidden.
    pub fn is_free(&self) -> bool {
        *self == Self::everything()
    }

    /// What both allow, and nothing else.
    pub fn and(&self, other: &Self) -> Self {
        // What a set allows at a path is what it allows at its own longest entry above; so the longest entry of either decides for both.
        let paths = self.entries.keys().chain(other.entries.keys());
        let both = |path: &Vec<u8>| {
            let (a, b) = (self.entry(path), other.entry(path));
            (path.clone(), Entry { here: a.here & b.here, below: a.below & b.below })
        };
        Self { entries: paths.map(both).collect(), guest: self.guest || other.guest }
    }

    /// What may be done at a path.
    pub fn at(&self, path: &[u8]) -> Operations {
        normal(path).map_or(Operations::NONE, |path| self.entry(&path).here)
    }

    /// Whether this may be done at a path.
    pub fn allows(&self, path: &[u8], operation: Operation) -> bool {
        self.at(path).has(operation)
    }

    /// Whether this may be done at a path and everywhere below it.
    pub fn allows_tree(&self, path: &[u8], operation: Operation) -> bool {
        let Some(path) = normal(path) else { return false };
        let entry = self.entry(&path);
        entry.here.has(operation)
            && entry.below.has(operation)
            && self.beneath(&path).all(|entry| entry.here.has(operation) && entry.below.has(operation))
    }

    /// Whether the size, time and kind of what is there may be told: something may be done there, or below it.
    pub fn allows_stat(&self, path: &[u8]) -> bool {
        let Some(path) = normal(path) else { return false };
        let entry = self.entry(&path);
        !entry.here.is_empty() || !entry.below.is_empty() || self.leads_to(&path, |operations| !operations.is_empty())
    }

    /// Whether a directory may be made: where something may be created, and on the way to such a place.
    pub fn allows_mkdir(&self, path: &[u8]) -> bool {
        let Some(path) = normal(path) else { return false };
        let entry = self.entry(&path);
        let creates = |operations: Operations| operations.has(Operation::Create);
        creates(entry.here) || creates(entry.below) || self.leads_to(&path, creates)
    }

    /// Whether a file may get another name, or, as `tree`, a directory with all that is in it; `replaces` where the new name is taken.
    ///
    /// What may be created may be renamed as long as it replaces nothing (WLCG profile §2.2.1), else the old name has to be deletable.
    /// Nothing may become possible by it that was not before: rules for parts of a tree are not left behind.
    pub fn allows_rename(&self, from: &[u8], to: &[u8], tree: bool, replaces: bool) -> bool {
        let (Some(from), Some(to)) = (normal(from), normal(to)) else { return false };
        let (old, new) = (self.entry(&from), self.entry(&to));
        let needed = if replaces { Operation::Modify } else { Operation::Create };
        let leaves = old.here.has(Operation::Delete) || (!replaces && old.here.has(Operation::Create));
        let plain = |path: &[u8]| self.beneath(path).next().is_none();
        leaves
            && new.here.has(needed)
            && old.here.covers(new.here)
            && (!tree || (old.below.covers(new.below) && plain(&from) && plain(&to)))
    }

    /// The path of the rule that decides about a path, for explanations; `/` where none does.
    pub fn deciding(&self, path: &[u8]) -> Vec<u8> {
        let found = normal(path)
            .and_then(|path| prefixes(&path).find(|above| self.entries.contains_key(*above)).map(<[u8]>::to_vec));
        found.filter(|path| !path.is_empty()).unwrap_or_else(|| b"/".to_vec())
    }

    /// Names in a directory that rules are about, or that lead to such.
    pub fn names_in(&self, directory: &[u8]) -> BTreeSet<&[u8]> {
        let Some(directory) = normal(directory) else { return BTreeSet::new() };
        let first = [&directory[..], b"/"].concat();
        let below = self.entries.range::<[u8], _>((Bound::Included(&first[..]), Bound::Unbounded));
        let below = below.map_while(|(path, _)| path.strip_prefix(&first[..]));
        below.filter_map(|rest| rest.split(|&byte| byte == b'/').next()).collect()
    }

    /// What counts at a normal path.
    fn entry(&self, path: &[u8]) -> Entry {
        for above in prefixes(path) {
            if let Some(entry) = self.entries.get(above) {
                return if above.len() == path.len() { *entry } else { Entry { here: entry.below, ..*entry } };
            }
        }
        Entry { here: Operations::NONE, below: Operations::NONE }
    }

    /// Entries strictly below a normal path.
    fn beneath(&self, path: &[u8]) -> impl Iterator<Item = &Entry> {
        let first = [path, b"/"].concat();
        let below = self.entries.range::<[u8], _>((Bound::Included(&first[..]), Bound::Unbounded));
        below.take_while(move |(key, _)| key.starts_with(&first)).map(|(_, entry)| entry)
    }

    fn leads_to(&self, path: &[u8], wanted: impl Fn(Operations) -> bool) -> bool {
        self.beneath(path).any(|entry| wanted(entry.here) || wanted(entry.below))
    }
}

impl PathRule {
    /// Allows operations at a path and below.
    pub fn allow(path: impl Into<Vec<u8>>, operations: Operations) -> Self {
        Self { path: path.into(), verdict: Verdict::Allow, operations, inside: false }
    }

    /// Denies operations at a path and below.
    pub fn deny(path: impl Into<Vec<u8>>, operations: Operations) -> Self {
        Self { path: path.into(), verdict: Verdict::Deny, operations, inside: false }
    }

    /// The operations at the path itself.
    fn here(&self) -> Operations {
        if self.inside { self.operations & Operation::List.into() } else { self.operations }
    }
}

/// A path without empty names and dots; `None` if it is relative or holds `..` or NUL.
fn normal(path: &[u8]) -> Option<Vec<u8>> {
    if !path.starts_with(b"/") || path.contains(&0) {
        return None;
    }
    let mut normal = Vec::with_capacity(path.len());
    for name in path.split(|&byte| byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => return None,
            name => {
                normal.push(b'/');
                normal.extend_from_slice(name);
            }
        }
    }
    Some(normal)
}

fn checked(path: &[u8]) -> Result<Vec<u8>, RuleError> {
    let short = path.len() <= MAX_PATH;
    let shown = || String::from_utf8_lossy(&path[..path.len().min(200)]).into_owned();
    normal(path).filter(|_| short).ok_or_else(|| RuleError::Path(shown()))
}

/// A normal path and those above it, the root at the end.
fn prefixes(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut next = Some(path);
    std::iter::from_fn(move || {
        let this = next?;
        next = this.iter().rposition(|&byte| byte == b'/').map(|slash| &this[..slash]);
        Some(this)
    })
}

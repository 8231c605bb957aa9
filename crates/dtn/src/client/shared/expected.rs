//! What the user expects of files.

use whimbrel_engine::plan::{Item, ItemId};

use super::Shared;
use crate::client::expect::{Expect, Expected};
use crate::client::plan::base_name;

impl Shared {
    /// The name that a list has for an item: relative to its root, or that of the root if this is the file itself.
    fn listed_name(&self, item: &Item) -> Vec<u8> {
        let roots = self.roots.borrow();
        let root = roots.get(&item.root).map_or(&b""[..], Vec::as_slice);
        let root = root.strip_suffix(b"/").unwrap_or(root);
        match item.source.strip_prefix(root).and_then(|rest| rest.strip_prefix(b"/")) {
            Some(name) if !root.is_empty() || item.source.starts_with(b"/") => name.to_vec(),
            _ => base_name(&item.source).to_vec(),
        }
    }

    /// What the user expects of a file.
    pub fn expected(&self, item: &Item) -> Option<Expected> {
        if let Some(expected) = self.demanded.borrow().get(&item.root) {
            return Some(expected.clone());
        }
        match &self.options.sums.expect {
            Expect::Nothing => None,
            Expect::One(expected) => Some(expected.clone()),
            Expect::Listed(list) => list.get(&self.listed_name(item)).cloned(),
        }
    }

    /// Whether the user's list names every file but this one.
    pub fn is_unlisted(&self, item: &Item) -> bool {
        matches!(&self.options.sums.expect, Expect::Listed(list) if list.get(&self.listed_name(item)).is_none())
    }

    /// Remembers that a name is among the sources; whether the list names it, if there is one.
    pub fn meet(&self, item: &Item) -> Option<bool> {
        let Expect::Listed(list) = &self.options.sums.expect else { return None };
        let name = self.listed_name(item);
        let listed = list.get(&name).is_some();
        if listed {
            self.met.borrow_mut().insert(name);
        }
        Some(listed)
    }

    /// Names of the list that were never met, sorted.
    pub fn never_met(&self) -> Vec<Vec<u8>> {
        let Expect::Listed(list) = &self.options.sums.expect else { return Vec::new() };
        let met = self.met.borrow();
        let mut names: Vec<_> = list.names().filter(|name| !met.contains(*name)).map(<[u8]>::to_vec).collect();
        names.sort_unstable();
        names
    }

    /// Whether a destination said the same of this file before: two transfers are not damaged alike.
    pub fn said_before(&self, item: ItemId, what: &str) -> bool {
        self.unexpected.borrow_mut().insert(item, what.to_owned()).is_some_and(|before| before == what)
    }
}

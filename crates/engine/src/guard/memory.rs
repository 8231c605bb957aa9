//! What is remembered of strangers: bounded, and each for its time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// Values by key, each forgotten at its time; of too many the one that would be forgotten first goes.
#[derive(Debug)]
pub(super) struct Memory<K, V> {
    by_key: BTreeMap<K, (Instant, V)>,
    by_end: BTreeSet<(Instant, K)>,
    most: usize,
}

impl<K: Ord + Clone, V> Memory<K, V> {
    /// Nothing yet; so many at the most, at least 1.
    pub(super) fn new(most: usize) -> Self {
        Self { by_key: BTreeMap::new(), by_end: BTreeSet::new(), most: most.max(1) }
    }

    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.by_key.get(key).map(|(_, value)| value)
    }

    /// Remembers a value, in place of an earlier one, until then.
    pub(super) fn put(&mut self, key: K, value: V, until: Instant) {
        self.remove(&key);
        if self.len() >= self.most
            && let Some((_, oldest)) = self.by_end.first().cloned()
        {
            self.remove(&oldest);
        }
        self.by_end.insert((until, key.clone()));
        self.by_key.insert(key, (until, value));
    }

    pub(super) fn remove(&mut self, key: &K) {
        if let Some((key, (until, _))) = self.by_key.remove_entry(key) {
            self.by_end.remove(&(until, key));
        }
    }

    /// Forgets what has had its time.
    pub(super) fn forget(&mut self, now: Instant) {
        while let Some((until, key)) = self.by_end.first()
            && *until <= now
        {
            let key = key.clone();
            self.remove(&key);
        }
    }
}

//! One at a time for each account: who starts its data process, while others wait for what comes of it and other accounts go on.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::MutexGuard as Turn;
use whimbrel_engine::Fault;

use crate::monitor::message::AccountId;

/// How the start went that others waited for; `None`: nobody has failed.
pub(super) type Failure = Option<Fault>;

/// The accounts that somebody waits for.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<HashMap<AccountId, Arc<tokio::sync::Mutex<Failure>>>>);

/// A place among those who wait for one account; with the last of them the account is forgotten.
#[derive(Debug)]
pub(super) struct Place<'a> {
    turns: &'a Turns,
    account: AccountId,
    /// Always there but while it is given back.
    lock: Option<Arc<tokio::sync::Mutex<Failure>>>,
}

impl Turns {
    /// A place for this account, behind those who came before.
    pub(super) fn place(&self, account: AccountId) -> Place<'_> {
        let lock = self.all().entry(account).or_default().clone();
        Place { turns: self, account, lock: Some(lock) }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<AccountId, Arc<tokio::sync::Mutex<Failure>>>> {
        // Every change of it is one step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn accounts(&self) -> usize {
        self.all().len()
    }
}

impl Place<'_> {
    /// Waits for its turn, which ends with what is given; what the one before has come to is in it.
    pub(super) async fn turn(&self) -> Turn<'_, Failure> {
        self.lock.as_ref().expect("it is given back in drop only").lock().await
    }

    /// Those who have a place, and the list of them.
    #[cfg(test)]
    pub(super) fn waiters(&self) -> usize {
        self.lock.as_ref().map_or(0, Arc::strong_count)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        // Places are taken and given back under this lock, so that the last one sees that it is the last.
        let mut all = self.turns.all();
        drop(self.lock.take());
        if all.get(&self.account).is_some_and(|lock| Arc::strong_count(lock) == 1) {
            all.remove(&self.account);
        }
    }
}

//! Keys for what is handed on, made ahead of time.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use openssl::pkey::{PKey, Private};

use crate::fault::TrustFault;
use crate::make::{self, KeyKind};

/// RSA keys made ahead of time: one takes a tenth of a second and more, and every delegation needs a new one.
#[derive(Default)]
pub struct KeyPool {
    spare: Mutex<Vec<PKey<Private>>>,
    taken: Condvar,
}

impl KeyPool {
    /// Keys that a full pool has.
    pub const FULL: usize = 8;

    /// A pool that has these keys.
    pub fn of(keys: Vec<PKey<Private>>) -> Self {
        Self { spare: Mutex::new(keys), taken: Condvar::new() }
    }

    /// A key: a spare one, or a new one if there is none.
    pub fn take(&self) -> Result<PKey<Private>, TrustFault> {
        let spare = self.lock().pop();
        self.taken.notify_one();
        spare.map_or_else(Self::new_key, Ok)
    }

    /// Waits until a key is missing and makes it: the whole life of a thread of low priority. With one caller at a time, never
    /// more than [`KeyPool::FULL`].
    pub fn refill(&self) -> Result<(), TrustFault> {
        let is_full = |spare: &mut Vec<_>| spare.len() >= Self::FULL;
        drop(self.taken.wait_while(self.lock(), is_full).unwrap_or_else(PoisonError::into_inner));
        let key = Self::new_key()?;
        self.lock().push(key);
        Ok(())
    }

    /// RSA, whatever key the peer has: Globus' programs sign no other requests.
    fn new_key() -> Result<PKey<Private>, TrustFault> {
        make::key(KeyKind::Rsa(2048))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<PKey<Private>>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_gives_keys_and_is_filled_again() {
        let pool = KeyPool::default();
        pool.refill().unwrap();
        let spare = pool.lock()[0].clone();
        assert!(pool.take().unwrap().public_eq(&spare) && pool.lock().is_empty());
    }

    #[test]
    fn a_full_pool_waits_until_a_key_is_taken() {
        let key = make::key(KeyKind::P256).unwrap();
        let pool = KeyPool::of(vec![key.clone(); KeyPool::FULL]);
        std::thread::scope(|scope| {
            let refill = scope.spawn(|| pool.refill());
            assert!(pool.take().unwrap().public_eq(&key));
            refill.join().unwrap().unwrap();
        });
        let spare = pool.lock();
        assert_eq!(
            (spare.len(), spare.iter().filter(|spare| spare.public_eq(&key)).count()),
            (KeyPool::FULL, KeyPool::FULL - 1)
        );
    }
}

//! Keys for what is handed on, made ahead of time.

use std::sync::Mutex;

use openssl::pkey::{PKey, Private};

use crate::fault::TrustFault;
use crate::make::{self, KeyKind};

/// RSA keys made ahead of time: one takes a tenth of a second and more, and every delegation needs a new one.
#[derive(Default)]
pub struct KeyPool {
    spare: Mutex<Vec<PKey<Private>>>,
}

impl KeyPool {
    /// Keys that a full pool has.
    pub const FULL: usize = 4;

    /// A pool that has these keys.
    pub fn of(keys: Vec<PKey<Private>>) -> Self {
        Self { spare: Mutex::new(keys) }
    }

    /// A key: a spare one, or a new one if there is none.
    pub fn take(&self) -> Result<PKey<Private>, TrustFault> {
        let spare = self.lock().pop();
        spare.map_or_else(Self::new_key, Ok)
    }

    /// Makes one key if one is missing; `false`: the pool is full. Blocks for the time it takes.
    pub fn refill(&self) -> Result<bool, TrustFault> {
        if self.lock().len() >= Self::FULL {
            return Ok(false);
        }
        let key = Self::new_key()?;
        let mut spare = self.lock();
        if spare.len() < Self::FULL {
            spare.push(key);
        }
        Ok(true)
    }

    /// RSA, whatever key the peer has: Globus' programs sign no other requests.
    fn new_key() -> Result<PKey<Private>, TrustFault> {
        make::key(KeyKind::Rsa(2048))
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<PKey<Private>>> {
        self.spare.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_gives_keys_and_is_filled_again() {
        let pool = KeyPool::default();
        assert!(pool.refill().unwrap());
        let spare = pool.lock()[0].clone();
        assert!(pool.take().unwrap().public_eq(&spare) && pool.lock().is_empty());
        assert!(!KeyPool::of(vec![spare; KeyPool::FULL]).refill().unwrap());
    }
}

//! What users have used of what they may: shared by all movers of a user in this process.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{SystemTime, UNIX_EPOCH};

use whimbrel_engine::{Fault, FaultCode};
use whimbrel_transport::RateLimit;

use super::stats::Way;

const SECONDS_OF_A_DAY: u64 = 24 * 3600;

/// What each user has stored today, and the speed limits in force.
#[derive(Debug, Default)]
pub struct Ledger {
    stored: Mutex<HashMap<String, Arc<Stored>>>,
    rates: Mutex<HashMap<(String, u64), Weak<Rates>>>,
}

/// The speed limits of one user, each direction for itself.
#[derive(Debug)]
pub struct Rates {
    into_storage: RateLimit,
    out_of_storage: RateLimit,
}

/// What one user may store in a day (UTC).
#[derive(Debug, Clone)]
pub struct Quota {
    stored: Arc<Stored>,
    limit: u64,
}

#[derive(Debug, Default)]
struct Stored(Mutex<Day>);

#[derive(Debug, Default)]
struct Day {
    /// Since 1970.
    number: u64,
    bytes: u64,
}

impl Ledger {
    /// What a user may still store of `limit` bytes a day; remembered as long as this process lives.
    pub fn quota(&self, user: &str, limit: u64) -> Quota {
        Quota { stored: lock(&self.stored).entry(user.to_owned()).or_default().clone(), limit }
    }

    /// The limits of a user, in bytes a second, that all logins with the same limit share.
    pub fn rates(&self, user: &str, bytes_per_second: u64) -> Arc<Rates> {
        let mut rates = lock(&self.rates);
        rates.retain(|_, rates| rates.strong_count() > 0);
        let place = rates.entry((user.to_owned(), bytes_per_second)).or_default();
        place.upgrade().unwrap_or_else(|| {
            let limit = || RateLimit::new(Some(bytes_per_second));
            let rates = Arc::new(Rates { into_storage: limit(), out_of_storage: limit() });
            *place = Arc::downgrade(&rates);
            rates
        })
    }
}

impl Rates {
    /// The limit of one direction.
    pub fn of(&self, way: Way) -> &RateLimit {
        match way {
            Way::In => &self.into_storage,
            Way::Out => &self.out_of_storage,
        }
    }
}

impl Quota {
    /// Whether so many bytes more could be stored today; `QuotaExceeded` otherwise.
    pub fn has_room(&self, bytes: u64) -> Result<(), Fault> {
        self.left(&self.today(), bytes).map(drop)
    }

    /// Counts bytes that are about to be stored; `QuotaExceeded` if they are too many, and then none is counted.
    pub fn charge(&self, bytes: u64) -> Result<(), Fault> {
        let mut day = self.today();
        day.bytes = self.left(&day, bytes)?;
        Ok(())
    }

    fn today(&self) -> MutexGuard<'_, Day> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        self.on(now / SECONDS_OF_A_DAY)
    }

    fn on(&self, number: u64) -> MutexGuard<'_, Day> {
        let mut day = lock(&self.stored.0);
        if day.number != number {
            *day = Day { number, bytes: 0 };
        }
        day
    }

    /// What will be stored with so many bytes more.
    fn left(&self, day: &Day, bytes: u64) -> Result<u64, Fault> {
        let sum = day.bytes.saturating_add(bytes);
        if sum <= self.limit {
            return Ok(sum);
        }
        let Self { limit, .. } = self;
        let detail = format!("you may store {limit} bytes a day here and have stored {} today (UTC)", day.bytes);
        Err(Fault::new(FaultCode::QuotaExceeded, "store data").detail(detail))
    }
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change is one step, so a panic leaves it usable.
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_has_its_quota_and_all_logins_of_a_user_share_it() {
        let ledger = Ledger::default();
        let (one, other) = (ledger.quota("ada", 100), ledger.quota("ada", 100));
        one.charge(60).unwrap();
        let fault = other.charge(41).unwrap_err();
        assert_eq!(fault.code, FaultCode::QuotaExceeded);
        assert!(fault.to_string().contains("stored 60 today"), "{fault}");
        assert!(other.has_room(40).is_ok() && other.has_room(41).is_err());
        other.charge(40).unwrap();
        ledger.quota("bob", 1).charge(1).unwrap();
        assert_eq!(one.on(u64::MAX).bytes, 0, "the next day begins with nothing");
        assert!(one.charge(u64::MAX).is_err(), "no number is too large to be refused");
    }

    #[test]
    fn logins_of_a_user_share_one_speed_limit_for_each_direction() {
        let ledger = Ledger::default();
        let (one, same) = (ledger.rates("ada", 1000), ledger.rates("ada", 1000));
        assert!(Arc::ptr_eq(&one, &same));
        assert!(!Arc::ptr_eq(&one, &ledger.rates("bob", 1000)));
        assert_eq!(one.of(Way::In).rate(), Some(1000));
        let now = std::time::Instant::now();
        assert!(!one.of(Way::In).pay(5000, now).is_zero());
        assert!(one.of(Way::Out).pay(1, now).is_zero() || one.of(Way::Out).pay(1, now) < one.of(Way::In).pay(1, now));
        drop((one, same));
        assert_eq!(ledger.rates.lock().unwrap().values().filter(|rates| rates.strong_count() > 0).count(), 0);
    }
}

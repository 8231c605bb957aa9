//! Connections that have not said yet what they belong to.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All of them, and those of one address; each is there for ten seconds at most, and for one way of a packet if it is honest.
const MOST: usize = 1024;
const OF_ADDRESS: usize = 256;

/// How many there are, by address.
#[derive(Debug, Default)]
pub(super) struct Strangers(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// A stranger's place; free again when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    strangers: Arc<Strangers>,
    address: IpAddr,
}

impl Strangers {
    /// A place, unless there are too many.
    pub(super) fn enter(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let mut known = self.lock();
        let own = known.by_address.get(&address).copied().unwrap_or(0);
        if known.all >= MOST || own >= OF_ADDRESS {
            return None;
        }
        known.all += 1;
        known.by_address.insert(address, own + 1);
        Some(Place { strangers: self.clone(), address })
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut known = self.strangers.lock();
        known.all -= 1;
        if let Some(own) = known.by_address.get_mut(&self.address) {
            *own -= 1;
            if *own == 0 {
                known.by_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_leaves_room_for_others_and_places_come_back() {
        let strangers = Arc::new(Strangers::default());
        let enter = |number: u8| strangers.enter(IpAddr::from([192, 0, 2, number]));
        let mut places: Vec<_> = (0..OF_ADDRESS).map(|_| enter(1).unwrap()).collect();
        assert!(enter(1).is_none());
        places.extend((OF_ADDRESS..MOST).map(|at| enter(2 + (at / OF_ADDRESS) as u8).unwrap()));
        assert!(enter(9).is_none());
        drop(places);
        assert!(enter(1).is_some() && strangers.lock().all == 0);
    }
}

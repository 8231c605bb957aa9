//! Where the logins of this server wait for data connections that prove themselves: such an address is no service that somebody could attack through
//! the server, though it is the host's own.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The addresses that were told to clients, with how many handles wait there.
#[derive(Debug, Default)]
pub struct Listening(Mutex<HashMap<SocketAddr, usize>>);

/// Addresses of one data handle, for as long as it waits there.
#[derive(Debug)]
pub struct Announced {
    listening: Arc<Listening>,
    addresses: Vec<SocketAddr>,
}

impl Listening {
    /// A handle waits at these.
    pub fn announce(self: &Arc<Self>, addresses: &[SocketAddr]) -> Announced {
        let addresses = addresses.to_vec();
        let mut all = self.all();
        addresses.iter().for_each(|address| *all.entry(*address).or_default() += 1);
        Announced { listening: self.clone(), addresses }
    }

    /// Those of the addresses at which a handle waits.
    pub fn known(&self, addresses: &[SocketAddr]) -> Vec<SocketAddr> {
        let all = self.all();
        addresses.iter().filter(|address| all.contains_key(*address)).copied().collect()
    }

    fn all(&self) -> MutexGuard<'_, HashMap<SocketAddr, usize>> {
        // Every change of it is one step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Announced {
    fn drop(&mut self) {
        let mut all = self.listening.all();
        for address in &self.addresses {
            if let Some(count) = all.get_mut(address) {
                *count -= 1;
                if *count == 0 {
                    all.remove(address);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_known_as_long_as_a_handle_waits_there() {
        let listening = Arc::<Listening>::default();
        let [one, other] = ["192.0.2.1:5000", "192.0.2.1:5001"].map(|text| text.parse().expect("an address"));
        let first = listening.announce(&[one]);
        let second = listening.announce(&[one]);
        assert_eq!(listening.known(&[one, other]), [one]);
        drop(first);
        assert_eq!(listening.known(&[other, one]), [one]);
        drop(second);
        assert!(listening.known(&[one]).is_empty() && listening.all().is_empty());
    }
}

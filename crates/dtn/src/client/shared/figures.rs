//! Where the time of transfers went, and the congestion control that follows from it.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use whimbrel_engine::auto::{EndSpent, Sent, Spending, Steering};
use whimbrel_engine::tune::Choice;
use whimbrel_proto::op::Spent;

use super::Shared;
use crate::client::pair::{DataWish, Nodes, Pair, Role};

/// The shortest round trip that senders have told of each path: a connection that is made while others fill the path's queue sees
/// no shorter one than they have.
#[derive(Debug, Default)]
pub struct ShortestTrips(HashMap<Nodes, Duration>);

impl ShortestTrips {
    /// That of a path, of which a sender tells this; zero where none has told any.
    fn with(&mut self, path: Nodes, told: Duration) -> Duration {
        let shortest = self.0.entry(path).or_default();
        if shortest.is_zero() || !told.is_zero() && told < *shortest {
            *shortest = told;
        }
        *shortest
    }
}

impl Shared {
    /// What new data connections of a session are to be like, whose sender allows these congestion controls.
    pub fn wish_of(&self, session: u32, allowed: impl FnOnce() -> Vec<String>) -> DataWish {
        let steered = self.steering.borrow().as_ref().and_then(|steering| steering.wanted(session));
        let chosen = steered.map(str::to_owned).or_else(|| self.congestion.clone());
        // Only what the user wants is worth a failure.
        let chosen = || chosen.filter(|name| allowed().contains(name));
        let congestion = self.wish.congestion.clone().or_else(chosen);
        DataWish { congestion, ..self.wish.clone() }
    }

    /// Changes of the congestion control since the last call.
    pub fn take_steered(&self) -> Vec<Choice<String>> {
        self.steered.take()
    }

    /// Decides from what the sender of a pair tells.
    pub fn steer(&self, session: u32, pair: &Pair, spent: &Spent) {
        let fixed = self.options.congestion.as_deref();
        let mut steering = self.steering.borrow_mut();
        let steering = steering.get_or_insert_with(|| Steering::new(&pair.congestions(), fixed));
        let sent = Sent {
            session,
            congestion: spent.congestion.clone(),
            bytes: spent.bytes,
            took: Duration::from_micros(spent.took),
            sent: spent.bytes_sent,
            resent: spent.bytes_resent,
            rtt: Duration::from_micros(spent.rtt),
            rtt_least: self.shortest.borrow_mut().with(pair.nodes(), Duration::from_micros(spent.rtt_least)),
            waited: if spent.threads > 0 { spent.network as f64 / spent.threads as f64 } else { 0.0 },
        };
        self.queued.set(sent.is_queued());
        self.steered.borrow_mut().extend(steering.sent(Instant::now(), &sent, self.left.get()));
    }

    /// An end has told where the time of a transfer went.
    pub fn spent(&self, role: Role, spent: &Spent) {
        let told = EndSpent {
            bytes: spent.bytes,
            took: spent.took,
            threads: spent.threads,
            storage: spent.storage,
            network: spent.network,
            hash: spent.hash,
            hash_cpu: spent.hash_cpu,
            cpu: spent.cpu,
            delay: spent.delay,
            proof: spent.proof,
            proof_storage: spent.proof_storage,
            proof_hash: spent.proof_hash,
            proof_cpu: spent.proof_cpu,
            proof_hash_cpu: spent.proof_hash_cpu,
            proof_delay: spent.proof_delay,
            busy: spent.busy,
            window: spent.window_limited,
            buffer: spent.buffer_limited,
            sent: spent.bytes_sent,
            resent: spent.bytes_resent,
        };
        let mut spending = self.spending.borrow_mut();
        match role {
            Role::Source => spending.source.add(&told),
            Role::Destination => spending.destination.add(&told),
        }
    }

    /// Where the time of all transfers so far went.
    pub fn spending(&self) -> Spending {
        self.spending.borrow().clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_sees_a_full_queue_only_is_told_the_paths_own_round_trip() {
        let mut shortest = ShortestTrips::default();
        let ms = Duration::from_millis;
        let told = [0, 98, 40, 98, 0, 41].map(|trip| shortest.with([None, None], ms(trip)));
        assert_eq!(told, [0, 98, 40, 40, 40, 40].map(ms));
        assert_eq!(shortest.with([None, Some(([192, 0, 2, 1], 2811).into())], ms(90)), ms(90), "of another node");
    }
}

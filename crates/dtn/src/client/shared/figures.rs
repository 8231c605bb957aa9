//! Where the time of transfers went, and the congestion control that follows from it.

use std::time::{Duration, Instant};

use whimbrel_engine::auto::{EndSpent, Sent, Spending, Steering};
use whimbrel_engine::tune::Choice;
use whimbrel_proto::op::Spent;

use super::Shared;
use crate::client::pair::{DataWish, Role};

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

    /// Decides from what a sender tells, which lets us choose among these.
    pub fn steer(&self, session: u32, allowed: impl FnOnce() -> Vec<String>, spent: &Spent) {
        let fixed = self.options.congestion.as_deref();
        let mut steering = self.steering.borrow_mut();
        let steering = steering.get_or_insert_with(|| Steering::new(&allowed(), fixed));
        let sent = Sent {
            session,
            congestion: spent.congestion.clone(),
            bytes: spent.bytes,
            took: Duration::from_micros(spent.took),
            sent: spent.bytes_sent,
            resent: spent.bytes_resent,
            rtt: Duration::from_micros(spent.rtt),
            rtt_least: Duration::from_micros(spent.rtt_least),
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

//! An endpoint of several DTNs: which of them takes the next session.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use whimbrel_engine::{Fault, FaultCode};
use whimbrel_proto::op::{Op, OpId};

use super::remote::Remote;
use super::target::{Address, SessionOptions, Target};

/// How long a DTN that could not be reached is tried last.
const SHUNNED: Duration = Duration::from_secs(30);

/// A session's claim on its DTN; dropping it frees the place.
pub type Seat = Arc<()>;

/// What this run knows of each DTN.
#[derive(Debug, Default)]
struct Dtn {
    /// One reference for this book, one for each session.
    seats: Seat,
    failed: Option<Instant>,
}

/// Every DTN that was used.
#[derive(Debug, Default)]
pub struct Dtns {
    known: RefCell<HashMap<Address, Dtn>>,
}

impl Dtns {
    /// The endpoint's DTNs as single targets, the one to try first in front: those with the fewest sessions,
    /// those that failed lately last.
    fn in_order(&self, target: &Target, now: Instant) -> Vec<Target> {
        let known = self.known.borrow();
        let rank = |address: &Address| match known.get(address) {
            Some(dtn) => {
                let shunned = dtn.failed.is_some_and(|at| now.saturating_duration_since(at) < SHUNNED);
                (shunned, Arc::strong_count(&dtn.seats))
            }
            None => (false, 0),
        };
        let mut addresses: Vec<Address> = target.addresses().collect();
        // Stable: equals stay in the order in which they were named.
        addresses.sort_by_key(rank);
        addresses.into_iter().map(|address| target.at(address)).collect()
    }

    /// A session with the least busy DTN of an endpoint that can be reached.
    pub async fn dial(
        &self,
        target: &Target,
        options: &SessionOptions,
        first: &[Op],
    ) -> Result<(Remote, Vec<OpId>), Fault> {
        let mut last = Fault::new(FaultCode::Internal, "choose a server");
        for dtn in self.in_order(target, Instant::now()) {
            match Remote::dial(&dtn, options, first).await {
                Ok((mut remote, ids)) => {
                    remote.seat = Some(self.seat(&dtn));
                    return Ok((remote, ids));
                }
                // What one DTN says of a login, the others would say, too.
                Err(fault) if fault.code == FaultCode::LoginFailed => return Err(fault),
                Err(fault) => {
                    self.failed(&dtn, Instant::now());
                    tracing::warn!(%dtn, %fault, "a server cannot be used");
                    last = fault;
                }
            }
        }
        Err(last)
    }

    /// A session was opened.
    fn seat(&self, target: &Target) -> Seat {
        let mut known = self.known.borrow_mut();
        let dtn = known.entry(target.address()).or_default();
        dtn.failed = None;
        dtn.seats.clone()
    }

    /// A session could not be opened.
    fn failed(&self, target: &Target, now: Instant) {
        self.known.borrow_mut().entry(target.address()).or_default().failed = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn endpoint() -> Target {
        Target { others: vec![("b".into(), 2), ("c".into(), 3)], ..Target::anonymous("a", 1) }
    }

    fn hosts(dtns: &Dtns, now: Instant) -> String {
        dtns.in_order(&endpoint(), now).into_iter().map(|target| target.host).collect()
    }

    #[test]
    fn sessions_are_spread_by_load_and_failures_are_tried_last() {
        let (dtns, now) = (Dtns::default(), Instant::now());
        assert_eq!(hosts(&dtns, now), "abc");
        let on_a = dtns.seat(&endpoint().at(("a".into(), 1)));
        assert_eq!(hosts(&dtns, now), "bca");
        let _on_b = dtns.seat(&endpoint().at(("b".into(), 2)));
        let _on_c = dtns.seat(&endpoint().at(("c".into(), 3)));
        drop(on_a);
        assert_eq!(hosts(&dtns, now), "abc");
        dtns.failed(&endpoint().at(("a".into(), 1)), now);
        assert_eq!(hosts(&dtns, now), "bca");
        assert_eq!(hosts(&dtns, now + SHUNNED), "abc");
    }
}

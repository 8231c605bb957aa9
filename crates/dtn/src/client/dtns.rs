//! An endpoint of several DTNs: which of them takes the next session.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::op::{Op, OpId};

use super::remote::Remote;
use super::rules::Rules;
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
    /// Whether its data connections prove themselves with nonces in clear, and encrypted, once a session stood.
    nonces: Option<[bool; 2]>,
}

/// Every DTN that was used.
#[derive(Debug, Default)]
pub struct Dtns {
    /// What their administrators decide.
    pub rules: Rules,
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
        let mut order = self.in_order(target, Instant::now()).into_iter().peekable();
        while let Some(dtn) = order.next() {
            // Claimed before it is reached: the sessions that are dialled meanwhile go elsewhere.
            let seat = self.seat(&dtn);
            match Remote::dial(&dtn, options, first).await {
                Ok((mut remote, ids)) => {
                    self.reached(&dtn, [false, true].map(|encrypted| remote.proves_by_nonce(encrypted)));
                    remote.seat = Some(seat);
                    return Ok((remote, ids));
                }
                // What one DTN says of a login, the others would say, too.
                Err(fault) if is_about_login(&fault) => return Err(fault),
                Err(fault) => {
                    self.failed(&dtn, Instant::now());
                    if order.peek().is_some() {
                        tracing::warn!(%dtn, %fault, "a server cannot be used; another one is tried");
                    }
                    last = fault;
                }
            }
        }
        Err(last)
    }

    /// A session is or will be opened.
    fn seat(&self, target: &Target) -> Seat {
        self.known.borrow_mut().entry(target.address()).or_default().seats.clone()
    }

    /// A session was opened.
    fn reached(&self, target: &Target, nonces: [bool; 2]) {
        let mut known = self.known.borrow_mut();
        let dtn = known.entry(target.address()).or_default();
        (dtn.failed, dtn.nonces) = (None, Some(nonces));
    }

    /// Whether a DTN of the endpoint is known to need more than nonces for data connections.
    pub fn lack_nonces(&self, target: &Target, encrypted: bool) -> bool {
        let known = self.known.borrow();
        let nonces = |address| known.get(&address).and_then(|dtn| dtn.nonces);
        target.addresses().filter_map(nonces).any(|nonces| !nonces[usize::from(encrypted)])
    }

    /// A session could not be opened, or its data connections could not be made.
    pub fn failed(&self, target: &Target, now: Instant) {
        self.known.borrow_mut().entry(target.address()).or_default().failed = Some(now);
    }
}

/// Whether it is about what we show, not about who was shown it.
fn is_about_login(fault: &Fault) -> bool {
    use FaultCode as F;
    match fault.code {
        F::LoginFailed | F::LoginInClear | F::NotAuthorized => true,
        F::CredentialMissing | F::CredentialExpired | F::CredentialRejected => fault.side == Some(Side::Us),
        _ => false,
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
        dtns.reached(&endpoint().at(("a".into(), 1)), [false; 2]);
        assert_eq!(hosts(&dtns, now), "abc");
    }

    #[test]
    fn one_server_without_nonces_is_enough_for_its_endpoint_to_lack_them() {
        let dtns = Dtns::default();
        let lacking = || [false, true].map(|encrypted| dtns.lack_nonces(&endpoint(), encrypted));
        let reached = |host: &str, port, nonces| dtns.reached(&endpoint().at((host.into(), port)), nonces);
        reached("a", 1, [true; 2]);
        assert_eq!(lacking(), [false; 2], "nothing is known of the others");
        reached("b", 2, [true, false]);
        assert_eq!(lacking(), [false, true]);
        reached("c", 3, [false; 2]);
        assert_eq!(lacking(), [true; 2]);
        // Another program answers there now.
        reached("c", 3, [true; 2]);
        assert_eq!(lacking(), [false, true]);
    }

    #[tokio::test]
    async fn sessions_that_are_opened_at_the_same_time_go_to_different_servers() {
        // They accept connections and never say a word.
        let bind = || async { tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap() };
        let servers = [bind().await, bind().await, bind().await];
        let port = |at: usize| servers[at].local_addr().unwrap().port();
        let others = vec![("127.0.0.1".into(), port(1)), ("127.0.0.1".into(), port(2))];
        let target = Target { others, ..Target::anonymous("127.0.0.1", port(0)) };
        let (dtns, options) = (Dtns::default(), SessionOptions::default());
        let dial = || dtns.dial(&target, &options, &[]);
        let dialled = async { tokio::join!(dial(), dial(), dial()) };
        let accepted = async { tokio::join!(servers[0].accept(), servers[1].accept(), servers[2].accept()) };
        tokio::select! {
            _ = dialled => panic!("nobody answers"),
            _ = tokio::time::sleep(options.connect_timeout / 2) => panic!("a server was left out"),
            _ = accepted => {}
        }
    }
}

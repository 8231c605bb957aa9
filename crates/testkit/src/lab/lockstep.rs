//! Links that wait for slow hosts, so that trips can be counted on a busy machine.
//!
//! Packets cross in rounds: those of a round arrive when they are due, all of the round before have arrived, and no process of the
//! laboratory has anything left to do but to wait. A host that computes holds up everybody, and none of two dialogues falls behind the other.
//! Should a host be taken for idle that is not, what it says later is of a later round: trips are only over-counted.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::{Duration, Instant};

use super::host::Host;
use crate::cpu;
use crate::error::{Attempt, Result};

/// How often a link asks again whether its next packet may arrive.
pub(crate) const ASKS_EVERY: Duration = Duration::from_millis(2);
/// What the kernel may need to wake up a process whose packet has arrived.
const WAKING: Duration = Duration::from_millis(5);
/// Something that computes longer is not waited for: a host may be busy for ever.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the links of one laboratory have in common.
#[derive(Debug)]
pub(crate) struct Lockstep {
    /// The hosts' network namespaces, as `/proc/PID/ns/net` names them.
    spaces: Vec<PathBuf>,
    rounds: Mutex<Rounds>,
    /// Held by the link that looks at the processes.
    looking: Mutex<()>,
}

#[derive(Debug)]
struct Rounds {
    /// What enters a link now is of this one; what is of those before may arrive.
    current: u64,
    /// Packets on their way, by their round.
    on_the_way: BTreeMap<u64, usize>,
    last_arrival: Instant,
    /// Since when the current round could end but for the processes.
    waiting_since: Option<Instant>,
}

impl Rounds {
    fn are_open_to(&self, round: u64) -> bool {
        round < self.current
    }

    fn has_arrived(&self) -> bool {
        self.on_the_way.keys().next().is_none_or(|first| *first >= self.current)
    }
}

impl Lockstep {
    pub(crate) fn new(hosts: &[Host]) -> Result<Lockstep> {
        let space = |host: &Host| {
            let link = host.run(|| fs::read_link("/proc/thread-self/ns/net"));
            link.attempt(|| format!("looking up the network namespace of {}", host.name()))
        };
        let rounds =
            Rounds { current: 1, on_the_way: BTreeMap::new(), last_arrival: Instant::now(), waiting_since: None };
        let spaces = hosts.iter().map(space).collect::<Result<_>>()?;
        Ok(Lockstep { spaces, rounds: Mutex::new(rounds), looking: Mutex::new(()) })
    }

    /// A packet enters a link; the round that it is of.
    pub(crate) fn enters(&self) -> u64 {
        let mut rounds = self.rounds();
        let round = rounds.current;
        *rounds.on_the_way.entry(round).or_default() += 1;
        round
    }

    /// A packet of this round has arrived.
    pub(crate) fn arrived(&self, round: u64) {
        let mut rounds = self.rounds();
        rounds.last_arrival = Instant::now();
        if let Some(count) = rounds.on_the_way.get_mut(&round) {
            *count -= 1;
            if *count == 0 {
                rounds.on_the_way.remove(&round);
            }
        }
    }

    /// Whether a packet of this round, which is due, may arrive now.
    pub(crate) fn lets_arrive(&self, round: u64) -> bool {
        let rounds = self.rounds();
        if rounds.are_open_to(round) {
            return true;
        }
        if !rounds.has_arrived() || rounds.last_arrival.elapsed() < WAKING {
            return false;
        }
        drop(rounds);
        let _looking = match self.looking.try_lock() {
            Ok(looking) => looking,
            Err(TryLockError::Poisoned(error)) => error.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        let idle = self.is_idle();
        let mut rounds = self.rounds();
        // Only who looks ends a round, but packets of it may have entered and been dropped meanwhile.
        if rounds.current == round && rounds.has_arrived() {
            let since = *rounds.waiting_since.get_or_insert_with(Instant::now);
            if idle || since.elapsed() > PATIENCE {
                (rounds.current, rounds.waiting_since) = (round + 1, None);
            }
        }
        rounds.are_open_to(round)
    }

    /// Waits until the hosts are idle, if that ever comes.
    pub(crate) fn settle(&self) {
        let begun = Instant::now();
        while !self.is_idle() && begun.elapsed() < PATIENCE {
            thread::sleep(ASKS_EVERY);
        }
    }

    /// Whether at one instant no process on the hosts ran or wanted to: between two looks at all threads none has run, and all slept.
    fn is_idle(&self) -> bool {
        let first = self.sleepers();
        first.is_some() && first == self.sleepers()
    }

    /// The threads on the hosts with their times, if all of them sleep.
    fn sleepers(&self) -> Option<Vec<(u32, String)>> {
        let here =
            |id: &u32| fs::read_link(format!("/proc/{id}/ns/net")).is_ok_and(|space| self.spaces.contains(&space));
        let mut sleepers = Vec::new();
        for id in cpu::all_processes().into_iter().filter(here) {
            sleepers.extend(cpu::sleeping_threads(id)?);
        }
        Some(sleepers)
    }

    fn rounds(&self) -> MutexGuard<'_, Rounds> {
        self.rounds.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

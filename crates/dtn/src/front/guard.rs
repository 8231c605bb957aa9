//! Who may come in, and how often somebody may try: the machines of `engine::guard` with a clock, dice, counters and log lines.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use whimbrel_engine::guard::{
    DoorLimits, Doors, LineBudget, Pace, Refusal, Throttle, ThrottleLimits, UserPace, Visitor,
};

/// What strangers are refused, counted for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// A connection at the door.
    Connection,
    /// A login after too many bad ones, unheard.
    Login,
    /// A connection whose line did not end.
    SlowLine,
    /// A handshake that failed, did not end, or was too long.
    Handshake,
}

impl Refused {
    const ALL: [Self; 4] = [Self::Connection, Self::Login, Self::SlowLine, Self::Handshake];

    /// Name and meaning of its metric.
    fn metric(self) -> (&'static str, &'static str) {
        match self {
            Self::Connection => ("connections_refused_total", "Control connections refused at the door."),
            Self::Login => ("logins_throttled_total", "Logins refused unheard after too many bad ones."),
            Self::SlowLine => ("slow_lines_total", "Control connections closed because a line did not end in time."),
            Self::Handshake => ("handshakes_failed_total", "Handshakes of control connections that failed."),
        }
    }
}

/// The doors of a server and its memory of bad logins; all control connections share it.
#[derive(Debug)]
pub struct Guard {
    doors: Mutex<Doors>,
    pace: Mutex<Pace>,
    users: Mutex<UserPace>,
    throttle: Mutex<Throttle>,
    counts: [AtomicU64; 4],
    lines: [Mutex<LineBudget>; 4],
}

impl Guard {
    /// Nobody has come yet.
    pub fn new(doors: DoorLimits) -> Self {
        Self {
            pace: Mutex::new(Pace::new(doors.per_minute)),
            users: Mutex::default(),
            doors: Mutex::new(Doors::new(doors)),
            throttle: Mutex::new(Throttle::new(ThrottleLimits::default())),
            counts: Default::default(),
            lines: Default::default(),
        }
    }

    /// Lets a connection in, until the pass is dropped.
    ///
    /// # Errors
    /// [`Refusal`]: close it.
    pub fn enter(self: &Arc<Self>, from: IpAddr) -> Result<Pass, Refusal> {
        let now = Instant::now();
        if !lock(&self.pace).ask(from, now) {
            return Err(Refusal::Pace);
        }
        let known = lock(&self.throttle).knows(from, now);
        let mut doors = lock(&self.doors);
        let visitor = if known { doors.enter_known(from)? } else { doors.enter(from, dice())? };
        drop(doors);
        Ok(Pass { guard: self.clone(), visitor })
    }

    /// Counts a connection as one of this user; `most` is how many the user may have.
    ///
    /// # Errors
    /// [`Refusal::User`]
    pub fn log_in(&self, visitor: Option<Visitor>, user: &str, most: Option<u32>) -> Result<(), Refusal> {
        visitor.map_or(Ok(()), |visitor| lock(&self.doors).log_in(visitor, user, most))
    }

    /// The connection is nobody's again.
    pub fn log_out(&self, visitor: Option<Visitor>) {
        visitor.into_iter().for_each(|visitor| lock(&self.doors).log_out(visitor));
    }

    /// Whether this user may log in once more; `most`: how often in a minute.
    ///
    /// # Errors
    /// [`Refusal::UserPace`]
    pub fn may_log_in(&self, user: &str, most: Option<u32>) -> Result<(), Refusal> {
        let may = lock(&self.users).ask(user, most, Instant::now());
        may.then_some(()).ok_or(Refusal::UserPace)
    }

    /// How long somebody there has to wait before a login as this user is heard; zero if not at all.
    pub fn wait(&self, from: Option<IpAddr>, user: Option<&str>) -> Duration {
        from.map_or(Duration::ZERO, |from| lock(&self.throttle).wait(from, user, Instant::now()))
    }

    /// Notes a bad login. `user`: the account that was tried, where a guess could have succeeded; none for what cannot be guessed.
    pub fn failed(&self, from: Option<IpAddr>, user: Option<&str>) {
        if let Some(from) = from {
            lock(&self.throttle).failed(from, user, Instant::now());
        }
    }

    /// Notes a good login.
    pub fn succeeded(&self, from: Option<IpAddr>, user: &str) {
        if let Some(from) = from {
            lock(&self.throttle).succeeded(from, user, Instant::now());
        }
    }

    /// Counts a refusal; whether it may be logged, and if so how many were not since the last that was: a flood must not fill the log.
    pub fn refused(&self, what: Refused) -> Option<u64> {
        self.counts[what as usize].fetch_add(1, Ordering::Relaxed);
        lock(&self.lines[what as usize]).ask(Instant::now())
    }

    /// Names, meanings and values of the counters.
    pub(super) fn counts(&self) -> [(&'static str, &'static str, u64); 4] {
        Refused::ALL.map(|what| {
            let (name, meaning) = what.metric();
            (name, meaning, self.counts[what as usize].load(Ordering::Relaxed))
        })
    }

    /// Connections that have not logged in.
    pub(super) fn waiting(&self) -> u64 {
        lock(&self.doors).count().1 as u64
    }
}

/// A connection's place inside.
#[derive(Debug)]
pub struct Pass {
    guard: Arc<Guard>,
    visitor: Visitor,
}

impl Pass {
    /// Whose place it is.
    pub fn visitor(&self) -> Visitor {
        self.visitor
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        lock(&self.guard.doors).leave(self.visitor);
    }
}

/// The machines' every change is one step, so that a panic leaves them usable.
fn lock<T>(machine: &Mutex<T>) -> MutexGuard<'_, T> {
    machine.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Unforeseeable enough for a lottery: whoever foresees it only learns whether to call again.
fn dice() -> u32 {
    std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), ()) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn a_place_is_given_back_with_its_pass() {
        let guard = Arc::new(Guard::new(DoorLimits { waiting_per_network: 2, ..DoorLimits::default() }));
        let passes = [guard.enter(HERE), guard.enter(HERE)].map(|pass| pass.expect("there is room"));
        assert_eq!((guard.enter(HERE).unwrap_err(), guard.waiting()), (Refusal::Waiting, 2));
        guard.log_in(Some(passes[0].visitor()), "ada", Some(1)).expect("the first");
        assert_eq!(guard.log_in(Some(passes[1].visitor()), "ada", Some(1)), Err(Refusal::User));
        let third = guard.enter(HERE).expect("who is logged in does not wait");
        drop(third);
        guard.log_out(Some(passes[0].visitor()));
        assert_eq!(guard.waiting(), 2);
        guard.log_in(Some(passes[1].visitor()), "ada", Some(1)).expect("the first is not hers any more");
        drop(passes);
        assert_eq!(guard.waiting(), 0);
    }

    #[test]
    fn each_user_logs_in_at_his_own_pace() {
        let guard = Guard::new(DoorLimits::default());
        for _ in 0..3 {
            guard.may_log_in("ada", Some(3)).expect("not too often");
        }
        assert_eq!(guard.may_log_in("ada", Some(3)), Err(Refusal::UserPace));
        guard.may_log_in("bob", Some(3)).expect("another user");
        guard.may_log_in("ada", None).expect("no limit");
    }

    #[test]
    fn refusals_are_all_counted_and_few_are_logged() {
        let guard = Guard::new(DoorLimits::default());
        let logged = (0..1000).filter(|_| guard.refused(Refused::Connection).is_some()).count();
        assert!((1..=20).contains(&logged), "{logged}");
        assert_eq!(guard.counts().map(|(_, _, count)| count), [1000, 0, 0, 0]);
    }

    #[test]
    fn bad_logins_are_waited_for_and_who_has_no_address_never_waits() {
        let guard = Guard::new(DoorLimits::default());
        (0..5).for_each(|_| guard.failed(Some(HERE), Some("ada")));
        assert!(guard.wait(Some(HERE), None) > Duration::ZERO);
        guard.failed(None, Some("ada"));
        assert_eq!(guard.wait(None, Some("bob")), Duration::ZERO);
    }
}

//! Which congestion control the senders of a path use: the host's own, until loss is seen to hold it back and another is
//! measured to be faster.
//!
//! Cubic and reno take every loss for congestion (Mathis et al. 1997: rate ~ 1 / sqrt(loss)); BBR does not, but takes more
//! than its share from others, so that it is used only where it wins. What counts is what all sessions move together: what
//! one takes from another is no win. A congestion control is frozen with a data connection: some sessions make new ones
//! for the trial, and all for what won. The first transfers over new connections are not counted: they still look for their
//! rate, and lose much when they find it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::tune::Choice;

/// The one that does not take loss for congestion.
const CANDIDATE: &str = "bbr";
/// Part of the bytes sent again from which loss may be what limits.
const LOSSY: f64 = 2e-5;
/// Round trips below this recover from a loss before it matters.
const NEAR: Duration = Duration::from_millis(2);
/// How much longer than at their shortest round trips are when a queue is full: then loss is what fills it, and the path is
/// used.
const QUEUED: f64 = 1.25;
/// Part of their time that senders wait for the network when that is what bounds them.
const WAITS: f64 = 0.4;
/// What a trial must bring to be kept.
const GAIN: f64 = 1.1;
/// What a decision is made from, at least: so many bytes in so much time, or eight times as many.
const EVIDENCE_BYTES: u64 = 8 << 20;
const EVIDENCE_TIME: Duration = Duration::from_secs(1);
/// How long the rest must take for a trial to pay, and for what it shows to count: at the end sessions run dry one by one,
/// and what is left has the path for itself.
const TRIAL_LEFT: Duration = Duration::from_secs(10);
const JUDGED_LEFT: Duration = Duration::from_secs(3);
/// Time after a trial that brought nothing before the next; doubled each time.
const REST: Duration = Duration::from_secs(60);

/// What the source told of one transfer.
#[derive(Debug, Clone, PartialEq)]
pub struct Sent {
    /// Number of the session.
    pub session: u32,
    /// Congestion control of its connections.
    pub congestion: String,
    /// Payload bytes.
    pub bytes: u64,
    /// From the first byte to the last.
    pub took: Duration,
    /// Bytes sent by TCP.
    pub sent: u64,
    /// Bytes sent again.
    pub resent: u64,
    /// Round-trip time, smoothed.
    pub rtt: Duration,
    /// The shortest that was seen; zero where that is not known.
    pub rtt_least: Duration,
    /// Part of the time that the sender waited for the network, 0 to 1.
    pub waited: f64,
}

impl Sent {
    /// Whether what was sent waited behind a full queue on its way: the path is used.
    pub fn is_queued(&self) -> bool {
        self.rtt_least > Duration::ZERO && self.rtt >= self.rtt_least.mul_f64(QUEUED)
    }
}

#[derive(Debug, Clone, Default)]
struct Sum {
    bytes: u64,
    took: Duration,
    sent: u64,
    resent: u64,
}

impl Sum {
    fn add(&mut self, one: &Sent) {
        self.bytes += one.bytes;
        self.took += one.took;
        self.sent += one.sent;
        self.resent += one.resent;
    }

    fn is_enough(&self) -> bool {
        self.bytes >= EVIDENCE_BYTES && (self.took >= EVIDENCE_TIME || self.bytes >= 8 * EVIDENCE_BYTES)
    }

    /// Bytes per second of one session.
    fn rate(&self) -> f64 {
        self.bytes as f64 / self.took.as_secs_f64().max(1e-9)
    }

    fn loss(&self) -> f64 {
        if self.sent > 0 { self.resent as f64 / self.sent as f64 } else { 0.0 }
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Phase {
    /// All use the host's own.
    Watch,
    /// Some sessions use the candidate.
    Try,
    /// All use the candidate.
    Keep,
    /// All use the host's own, whatever is seen.
    Rest(Instant),
}

/// The controller: what was sent in, the congestion control of new connections out.
#[derive(Debug)]
pub struct Steering {
    phase: Phase,
    may_try: bool,
    /// When the newest kind of connection first told of a transfer: what began before is not counted.
    since: Option<Instant>,
    /// Since then, by congestion control.
    sums: BTreeMap<String, Sum>,
    /// Bytes per second of a session before the trial.
    before: f64,
    /// Sessions that have sent.
    sessions: BTreeSet<u32>,
    rest: Duration,
}

impl Steering {
    /// A controller for senders that allow these names; with a `fixed` one there is nothing to decide.
    pub fn new(allowed: &[String], fixed: Option<&str>) -> Self {
        let may_try = fixed.is_none() && allowed.iter().any(|name| name == CANDIDATE);
        Self {
            phase: Phase::Watch,
            may_try,
            since: None,
            sums: BTreeMap::new(),
            before: 0.0,
            sessions: BTreeSet::new(),
            rest: REST,
        }
    }

    /// What new data connections of a session use; `None`: the host's own.
    pub fn wanted(&self, session: u32) -> Option<&'static str> {
        match self.phase {
            Phase::Try if tries(session) => Some(CANDIDATE),
            Phase::Keep => Some(CANDIDATE),
            Phase::Watch | Phase::Try | Phase::Rest(_) => None,
        }
    }

    /// Takes in a transfer, and how long the rest of the run will take; a change with its reason.
    pub fn sent(&mut self, now: Instant, one: &Sent, left: Duration) -> Option<Choice<String>> {
        let least = if self.phase == Phase::Try { JUDGED_LEFT } else { TRIAL_LEFT };
        if !self.may_try || one.congestion.is_empty() || left < least {
            return None;
        }
        self.sessions.insert(one.session);
        match self.phase {
            Phase::Watch => self.counts(now, one, true).then(|| self.watch(one)).flatten(),
            Phase::Try => self.counts(now, one, one.congestion == CANDIDATE).then(|| self.judge(now)).flatten(),
            Phase::Rest(until) if now >= until => {
                self.enter(Phase::Watch);
                None
            }
            Phase::Keep | Phase::Rest(_) => None,
        }
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.since = None;
        self.sums.clear();
    }

    /// Adds a transfer, unless it began before the first of the `newest` connections had ended.
    fn counts(&mut self, now: Instant, one: &Sent, newest: bool) -> bool {
        let Some(since) = self.since else {
            self.since = newest.then_some(now);
            return false;
        };
        let counts = now.checked_sub(one.took).is_some_and(|began| began >= since);
        if counts {
            self.sums.entry(one.congestion.clone()).or_default().add(one);
        }
        counts
    }

    fn watch(&mut self, one: &Sent) -> Option<Choice<String>> {
        let name = &one.congestion;
        // Judged by what is new: yesterday's loss is not today's.
        let sum = self.sums.get(name).filter(|sum| sum.is_enough()).cloned()?;
        self.sums.clear();
        let limited = sum.loss() >= LOSSY && one.rtt >= NEAR && one.waited >= WAITS && !one.is_queued();
        if !limited || name == CANDIDATE {
            return None;
        }
        let reason = format!(
            "{name} at {:.1} MB/s in each session with {:.3} % sent again: whether {CANDIDATE} is faster",
            sum.rate() / 1e6,
            sum.loss() * 100.0
        );
        self.before = sum.rate();
        self.enter(Phase::Try);
        Some(Choice { value: CANDIDATE.to_owned(), reason })
    }

    fn judge(&mut self, now: Instant) -> Option<Choice<String>> {
        let tried = self.sums.get(CANDIDATE).filter(|sum| sum.is_enough())?.rate();
        let own = self.sums.iter().find(|(name, sum)| *name != CANDIDATE && sum.is_enough());
        // Each session counts once: of a fast one more transfers have ended. Those that are not known yet may stand still.
        let beside = own.map(|(_, sum)| sum.rate());
        let rate = |&session: &u32| if tries(session) { tried } else { beside.unwrap_or(0.0) };
        let mean = self.sessions.iter().map(rate).sum::<f64>() / self.sessions.len() as f64;
        let won = mean / self.before.max(1.0) > GAIN;
        if !won && beside.is_none() && self.sessions.iter().any(|&session| !tries(session)) {
            return None;
        }
        let own = own.map_or_else(|| "the host's own".to_owned(), |(name, _)| name.clone());
        let beside = beside.map_or(String::new(), |rate| format!(" beside {own} at {:.1} MB/s", rate / 1e6));
        let said = format!("{:.1} MB/s in each session{beside}, {:.1} MB/s before", tried / 1e6, self.before / 1e6);
        if won {
            self.enter(Phase::Keep);
            return Some(Choice { value: CANDIDATE.to_owned(), reason: format!("it won: {said}") });
        }
        self.enter(Phase::Rest(now + self.rest));
        self.rest = self.rest.saturating_mul(2);
        Some(Choice { value: own, reason: format!("{CANDIDATE} brought no more: {said}") })
    }
}

/// Every second session takes part in a trial, and the only one: the others show what it does to them.
fn tries(session: u32) -> bool {
    session.is_multiple_of(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MSS: f64 = 1448.0;

    /// A path that sessions share, as each congestion control uses it.
    struct Path {
        rate: f64,
        rtt: Duration,
        loss: f64,
        /// What BBR reaches of its share: below 1 behind a policer.
        bbr: f64,
        /// How often as much as its share BBR takes from the others on a full path.
        takes: f64,
    }

    impl Path {
        fn session_rate(&self, name: &str, sessions: u32) -> f64 {
            let share = self.rate / f64::from(sessions);
            match name {
                CANDIDATE => share * self.bbr,
                // Four channels.
                _ => share.min(4.0 * 1.22 * MSS / (self.rtt.as_secs_f64() * self.loss.max(1e-12).sqrt())),
            }
        }

        /// What each session gets when these run side by side.
        fn rates(&self, names: &[&str]) -> Vec<f64> {
            if self.takes == 1.0 || !names.contains(&CANDIDATE) {
                return names.iter().map(|name| self.session_rate(name, names.len() as u32)).collect();
            }
            let weight = |name: &&str| if *name == CANDIDATE { self.takes } else { 1.0 };
            let weights: f64 = names.iter().map(weight).sum();
            names.iter().map(|name| self.rate * weight(name) / weights).collect()
        }

        /// One transfer of 16 MiB by a session.
        fn transfer(&self, session: u32, name: &str, rate: f64) -> Sent {
            let bytes = 16 << 20;
            let took = Duration::from_secs_f64(bytes as f64 / rate);
            let resent = (bytes as f64 * self.loss) as u64;
            let (rtt, congestion) = (self.rtt, name.to_owned());
            Sent { session, congestion, bytes, took, sent: bytes, resent, rtt, rtt_least: rtt, waited: 0.9 }
        }
    }

    fn random(state: &mut u64) -> f64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Runs all sessions for so many rounds; what the last used, and the changes.
    fn run(path: &Path, sessions: u32, allowed: &[&str], seed: u64) -> (String, Vec<Choice<String>>) {
        let allowed: Vec<String> = allowed.iter().map(|name| (*name).to_owned()).collect();
        let mut steering = Steering::new(&allowed, None);
        let (mut now, mut state, mut changes) = (Instant::now(), seed, Vec::new());
        // What each session is busy with, and its end.
        let mut running: Vec<Option<(Instant, Sent)>> = (0..sessions).map(|_| None).collect();
        for _ in 0..24 * sessions {
            let names: Vec<_> = (0..sessions).map(|session| steering.wanted(session).unwrap_or("cubic")).collect();
            let rates = path.rates(&names);
            for (session, idle) in running.iter_mut().enumerate().filter(|(_, running)| running.is_none()) {
                let noise = 0.97 + 0.06 * random(&mut state);
                let one = path.transfer(session as u32, names[session], rates[session] * noise);
                *idle = Some((now + one.took, one));
            }
            let next = running.iter_mut().min_by_key(|running| running.as_ref().map(|(end, _)| *end));
            let (end, one) = next.and_then(Option::take).expect("all are busy");
            now = end;
            changes.extend(steering.sent(now, &one, Duration::MAX));
        }
        (steering.wanted(1).unwrap_or("cubic").to_owned(), changes)
    }

    fn lossy() -> Path {
        Path { rate: 125e6, rtt: Duration::from_millis(75), loss: 1e-4, bbr: 0.95, takes: 1.0 }
    }

    #[test]
    fn under_loss_all_move_to_what_was_measured_to_be_faster() {
        for sessions in [1, 2, 5] {
            let (last, changes) = run(&lossy(), sessions, &["reno", "cubic", "bbr"], 1);
            assert_eq!((last.as_str(), changes.len()), ("bbr", 2), "{changes:?}");
            assert!(changes[0].reason.contains("0.010 %") && changes[1].reason.contains("it won"), "{changes:?}");
        }
    }

    #[test]
    fn what_does_not_win_is_given_up_and_not_tried_again_at_once() {
        let policed = Path { bbr: 0.1, ..lossy() };
        let (last, changes) = run(&policed, 4, &["cubic", "bbr"], 2);
        assert_eq!((last.as_str(), changes.len()), ("cubic", 2), "{changes:?}");
        assert!(changes[1].reason.contains("brought no more"), "{changes:?}");
    }

    #[test]
    fn what_is_taken_from_other_sessions_is_no_win() {
        // The path is full, and loses what its short queue cannot hold.
        let full = Path { rate: 20e6, loss: 1e-4, takes: 4.0, ..lossy() };
        let (last, changes) = run(&full, 4, &["cubic", "bbr"], 5);
        assert_eq!((last.as_str(), changes.len()), ("cubic", 2), "{changes:?}");
        assert!(changes[1].reason.contains("brought no more"), "{changes:?}");
    }

    #[test]
    fn loss_that_comes_with_a_full_queue_is_no_reason_for_a_trial() {
        let mut steering = Steering::new(&["bbr".to_owned()], None);
        let start = Instant::now();
        for second in 1..60 {
            let mut one = lossy().transfer(second % 4, "cubic", 20e6);
            one.rtt = one.rtt_least.mul_f64(1.5);
            assert_eq!(steering.sent(start + Duration::from_secs(second.into()), &one, Duration::MAX), None);
        }
    }

    #[test]
    fn loss_while_connections_look_for_their_rate_is_passed_over() {
        let mut steering = Steering::new(&["bbr".to_owned()], None);
        let start = Instant::now();
        for session in 0..4 {
            let one = Sent { resent: 1 << 20, ..lossy().transfer(session, "cubic", 8e6) };
            assert_eq!(
                steering.sent(start + one.took + Duration::from_millis(session.into()), &one, Duration::MAX),
                None
            );
        }
        for second in 5..60 {
            let one = Sent { resent: 0, ..lossy().transfer(second % 4, "cubic", 20e6) };
            assert_eq!(steering.sent(start + Duration::from_secs(second.into()), &one, Duration::MAX), None);
        }
    }

    #[test]
    fn without_loss_without_permission_or_nearby_nothing_is_tried() {
        let clean = Path { loss: 0.0, ..lossy() };
        let near = Path { rtt: Duration::from_micros(500), ..lossy() };
        assert!(run(&clean, 4, &["cubic", "bbr"], 3).1.is_empty());
        assert!(run(&near, 4, &["cubic", "bbr"], 3).1.is_empty());
        assert!(run(&lossy(), 4, &["cubic", "reno"], 3).1.is_empty());
        let mut fixed = Steering::new(&["bbr".to_owned()], Some("cubic"));
        assert_eq!(fixed.sent(Instant::now(), &lossy().transfer(0, "cubic", 1e6), Duration::MAX), None);
    }

    #[test]
    fn on_paths_drawn_by_seed_the_last_choice_is_nearly_the_best() {
        let mut state = 7;
        for seed in 0..200 {
            let path = Path {
                rate: 10e6 * 100_f64.powf(random(&mut state)),
                rtt: Duration::from_secs_f64(0.001 * 300_f64.powf(random(&mut state))),
                loss: if random(&mut state) < 0.3 { 0.0 } else { 1e-6 * 1e4_f64.powf(random(&mut state)) },
                bbr: if random(&mut state) < 0.3 { 0.3 } else { 0.95 },
                takes: 1.0,
            };
            let sessions = 1 + (random(&mut state) * 6.0) as u32;
            let (last, changes) = run(&path, sessions, &["cubic", "bbr"], seed);
            let [cubic, bbr] = ["cubic", CANDIDATE].map(|name| path.session_rate(name, sessions));
            let got = path.session_rate(&last, sessions);
            // Below the thresholds nothing is tried, and a win within the noise is no reason to change.
            let untried = changes.is_empty() && (path.loss < LOSSY || path.rtt < NEAR);
            assert!(untried || got >= 0.85 * cubic.max(bbr), "seed {seed}: {last} {cubic} {bbr} {changes:?}");
            assert!(got >= 0.85 * cubic, "seed {seed}: never much slower than the host's own");
        }
    }
}

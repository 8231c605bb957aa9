//! Concurrency while running: it climbs as long as that pays, and gives back what brings nothing.
//!
//! Parallelism is frozen on an open data handle, so the number of sessions is what moves. A probe adds half of
//! the sessions, then a quarter, or takes away a quarter, one at least. More are kept only for a gain of more than 5 %, fewer when that costs less
//! than 3 % in all: a fair neighbour takes no sessions that hardly serve it. Where the path's queue is full, more sessions could
//! only take from others: none are tried, and half of those there are given back at a time. While nothing moves at all the network is
//! away, and numbers of sessions make no difference: nothing is concluded until something moves again.

use std::time::{Duration, Instant};

use crate::tune::Choice;

/// Bounds of the controller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Fewest sessions, at least 1: one for each node, whatever fewer would bring, as far as so many are allowed.
    pub least: u32,
    /// Most sessions: what the ends accept.
    pub most: u32,
    /// How long each number of sessions is watched; at least 20 round trips; default 2 s.
    pub period: Duration,
}

impl Limits {
    /// Limits for a path: periods of 20 round trips, 2 s at least.
    pub fn new(least: u32, most: u32, rtt: Option<Duration>) -> Self {
        let least = least.max(1);
        let period = (rtt.unwrap_or_default() * 20).max(Duration::from_secs(2));
        Self { least, most: most.max(least), period }
    }
}

/// A gain that pays for more sessions.
const GAIN: f64 = 1.05;
/// What is left of the rate when fewer sessions are still as good.
const SAME: f64 = 0.97;
/// A rate that differs by more from what was known means another path than it was.
const CHANGE: f64 = 0.2;
/// Periods without a probe after one that brought nothing; doubled each time.
const REST: u32 = 8;
const LONGEST_REST: u32 = 128;
/// Periods of work that must be left: for a probe, which takes three with its way back and is to pay in the rest, and for
/// a sample, because near the end what sessions leave undone says nothing.
const PROBE_LEFT: u32 = 5;
const SAMPLE_LEFT: u32 = 2;

/// Periods without a byte that are an outage: servers tell every five seconds what has moved, and shorter ones may be accidents.
const OUTAGE: u32 = 5;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Phase {
    /// Learns the rate of the present number.
    Learn,
    /// More sessions than `from`, which gave `rate`.
    Up { from: u32, rate: f64 },
    /// Fewer than `from`; `best` is the rate before any was taken away.
    Down { from: u32, best: f64 },
    /// Learns again what the present number gives after a probe upwards brought nothing.
    Back,
    /// Nothing is tried for so many periods.
    Rest { periods: u32, odd: u32 },
}

/// The controller: bytes and time in, numbers of sessions out.
#[derive(Debug)]
pub struct Controller {
    limits: Limits,
    sessions: u32,
    phase: Phase,
    /// What the present number is known to give, bytes per second.
    known: f64,
    /// The path's queue is full.
    full: bool,
    /// When the bytes grew last, and to what.
    grown: (Instant, u64),
    /// Length of the next rest, periods.
    rest: u32,
    /// Nothing counts until then: sessions open, windows grow.
    settled: Instant,
    /// Where the sample under way began.
    base: Option<(Instant, u64)>,
}

impl Controller {
    /// A controller that begins with `sessions` at `now`.
    pub fn new(limits: Limits, sessions: u32, now: Instant) -> Self {
        Self {
            limits,
            sessions: sessions.clamp(limits.least, limits.most),
            phase: Phase::Learn,
            known: 0.0,
            full: false,
            grown: (now, 0),
            rest: REST,
            settled: now + limits.period,
            base: None,
        }
    }

    /// The number of sessions now.
    pub fn sessions(&self) -> u32 {
        self.sessions
    }

    /// Begins anew with another number of sessions.
    pub fn restart(&mut self, sessions: u32, now: Instant) {
        *self = Self::new(self.limits, sessions, now);
    }

    /// From now on there are at most so many, though some nodes have none then; returns whether that is fewer than there were.
    pub fn limit(&mut self, most: u32) -> bool {
        self.limits.most = self.limits.most.min(most.max(1));
        self.limits.least = self.limits.least.min(self.limits.most);
        let fewer = self.sessions > self.limits.most;
        self.sessions = self.sessions.min(self.limits.most);
        // Nor may a trial of fewer go back to more.
        let returns = matches!(self.phase, Phase::Down { from, .. } if from > self.limits.most);
        if fewer || returns {
            self.phase = Phase::Learn;
            self.base = None;
        }
        fewer
    }

    /// Takes the bytes moved since the start, how long the rest will take, and whether the path's queue is full; call it about
    /// once a second. Returns a new number of sessions with its reason.
    pub fn tick(&mut self, now: Instant, bytes: u64, left: Duration, full: bool) -> Option<Choice<u32>> {
        self.full = full;
        let grown = bytes > self.grown.1;
        if grown {
            self.grown = (now, bytes);
        }
        let is_trying = matches!(self.phase, Phase::Up { .. } | Phase::Down { .. } | Phase::Back);
        let least = self.limits.period * if is_trying { SAMPLE_LEFT } else { PROBE_LEFT };
        if left < least || now < self.settled {
            self.base = None;
            return None;
        }
        if !grown {
            if now.saturating_duration_since(self.grown.0) >= self.limits.period * OUTAGE {
                self.phase = Phase::Learn;
                self.base = None;
            }
            return None;
        }
        // From news to news: what was told at once has moved since the news before.
        let (since, before) = *self.base.get_or_insert((now, bytes));
        let watched = now.saturating_duration_since(since);
        if watched < self.limits.period {
            return None;
        }
        self.base = Some((now, bytes));
        self.sample(now, bytes.saturating_sub(before) as f64 / watched.as_secs_f64())
    }

    fn sample(&mut self, now: Instant, rate: f64) -> Option<Choice<u32>> {
        match self.phase {
            Phase::Learn => {
                self.known = rate;
                self.probe_up(now).or_else(|| self.probe_down(now, rate))
            }
            Phase::Up { rate: before, .. } if rate > before * GAIN => {
                self.known = rate;
                self.rest = REST;
                self.probe_up(now).or_else(|| {
                    self.phase = Phase::Rest { periods: self.rest, odd: 0 };
                    None
                })
            }
            Phase::Up { from, .. } if self.sessions - from > quarter(from) => {
                // The best may lie between.
                self.change(now, from + quarter(from), "whether half as many more are faster".into())
            }
            Phase::Up { from, rate: before } => {
                self.phase = Phase::Back;
                self.change(
                    now,
                    from,
                    format!("more brought {:+.0} %: a fair neighbour gives them back", gain(rate, before)),
                )
            }
            Phase::Back => {
                self.known = rate;
                self.probe_down(now, rate)
            }
            // Behind a queue that is still full, what was given back is what others have got.
            Phase::Down { best, .. } if rate >= best * SAME || self.full => {
                self.known = rate;
                self.probe_down(now, best.max(rate))
            }
            Phase::Down { from, best } => {
                self.known = best;
                self.begin_rest();
                self.change(now, from, format!("fewer cost {:.0} %", -gain(rate, best)))
            }
            Phase::Rest { periods, odd } => self.at_rest(now, rate, periods, odd),
        }
    }

    /// Watches for another path than it was; a single odd sample is an accident.
    fn at_rest(&mut self, now: Instant, rate: f64, periods: u32, odd: u32) -> Option<Choice<u32>> {
        let is_odd = (rate - self.known).abs() > CHANGE * self.known;
        match (is_odd, odd, periods) {
            (true, 1.., _) => {
                self.known = rate;
                self.rest = REST;
                self.probe_up(now).or_else(|| self.probe_down(now, rate))
            }
            (true, ..) => {
                self.phase = Phase::Rest { periods, odd: odd + 1 };
                None
            }
            (false, _, 0) => {
                self.known = rate;
                self.probe_up(now).or_else(|| self.probe_down(now, rate))
            }
            (false, ..) => {
                self.known = 0.8 * self.known + 0.2 * rate;
                self.phase = Phase::Rest { periods: periods - 1, odd: 0 };
                None
            }
        }
    }

    fn probe_up(&mut self, now: Instant) -> Option<Choice<u32>> {
        if self.full {
            return None;
        }
        let to = (self.sessions + (self.sessions / 2).max(1)).min(self.limits.most);
        if to == self.sessions {
            return None;
        }
        self.phase = Phase::Up { from: self.sessions, rate: self.known };
        self.change(now, to, "whether more are faster".into())
    }

    fn probe_down(&mut self, now: Instant, best: f64) -> Option<Choice<u32>> {
        let fewer = if self.full { (self.sessions / 2).max(1) } else { quarter(self.sessions) };
        let to = self.sessions.saturating_sub(fewer).max(self.limits.least);
        if to == self.sessions {
            self.begin_rest();
            return None;
        }
        self.phase = Phase::Down { from: self.sessions, best };
        self.change(now, to, "whether fewer are as fast".into())
    }

    fn begin_rest(&mut self) {
        self.phase = Phase::Rest { periods: self.rest, odd: 0 };
        self.rest = (self.rest * 2).min(LONGEST_REST);
    }

    fn change(&mut self, now: Instant, to: u32, reason: String) -> Option<Choice<u32>> {
        self.sessions = to;
        self.settled = now + self.limits.period / 2;
        self.base = None;
        Some(Choice { value: to, reason })
    }
}

/// A small step from so many sessions.
fn quarter(sessions: u32) -> u32 {
    (sessions / 4).max(1)
}

/// What `rate` is above `before`, percent.
fn gain(rate: f64, before: f64) -> f64 {
    if before > 0.0 { (rate / before - 1.0) * 100.0 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    /// Runs a controller against `rate(sessions)` for some seconds; returns the numbers it chose.
    fn run(start: u32, most: u32, seconds: u64, rate: impl Fn(u32) -> f64) -> Vec<u32> {
        let begin = Instant::now();
        let mut controller = Controller::new(Limits::new(1, most, None), start, begin);
        let (mut bytes, mut numbers) = (0.0, vec![start]);
        for second in 1..=seconds {
            bytes += rate(controller.sessions());
            let choice = controller.tick(begin + Duration::from_secs(second), bytes as u64, LONG, false);
            numbers.extend(choice.map(|choice| choice.value));
        }
        numbers
    }

    #[test]
    fn it_climbs_while_that_pays_and_never_beyond_the_limit() {
        let numbers = run(1, 6, 60, |sessions| 1e6 * f64::from(sessions));
        assert_eq!(numbers[..5], [1, 2, 3, 4, 6]);
        assert_eq!(numbers.iter().max(), Some(&6));
    }

    #[test]
    fn sessions_that_bring_nothing_are_given_back() {
        let numbers = run(8, 32, 200, |sessions| 1e6 * f64::from(sessions.min(3)));
        assert!(numbers.contains(&12) && numbers.last() == Some(&3), "{numbers:?}");
        let again = run(3, 32, 30, |sessions| 1e6 * f64::from(sessions.min(3)));
        assert_eq!(again, [3, 4, 3, 2, 3], "one probe each way, then rest");
    }

    #[test]
    fn an_outage_says_nothing_about_the_number_of_sessions() {
        for full in [false, true] {
            let begin = Instant::now();
            let mut controller = Controller::new(Limits::new(1, 8, None), 4, begin);
            let (mut bytes, mut numbers, mut when) = (0, Vec::new(), Vec::new());
            for second in 1..=300 {
                // Three minutes of nothing, from the middle of a sample.
                let is_away = (32..212).contains(&second);
                bytes += if is_away { 0 } else { u64::from(controller.sessions().min(4)) << 20 };
                let choice = controller.tick(begin + Duration::from_secs(second), bytes, LONG, full);
                numbers.extend(choice.as_ref().map(|choice| choice.value));
                when.extend(choice.map(|_| second));
            }
            assert!(!when.iter().any(|second| (34..212).contains(second)), "{numbers:?} at {when:?}");
            let last = if full { 1 } else { 4 };
            assert_eq!(numbers.last(), Some(&last), "{numbers:?} at {when:?}");
        }
    }

    #[test]
    fn rare_news_of_what_has_moved_are_no_outage() {
        let begin = Instant::now();
        let mut controller = Controller::new(Limits::new(1, 6, None), 1, begin);
        let (mut moved, mut told) = (0, 0);
        for second in 1..=120 {
            moved += u64::from(controller.sessions()) << 20;
            told = if second % 5 == 0 { moved } else { told };
            controller.tick(begin + Duration::from_secs(second), told, LONG, false);
        }
        assert_eq!(controller.sessions(), 6, "it climbs as it would if it were told all the time");
    }

    #[test]
    fn nothing_is_tried_where_little_is_left() {
        let begin = Instant::now();
        let mut controller = Controller::new(Limits::new(1, 9, None), 2, begin);
        let idle = (1..100).filter_map(|second| {
            controller.tick(begin + Duration::from_secs(second), second, Duration::from_secs(9 * (second % 2)), false)
        });
        assert_eq!(idle.count(), 0);
    }

    #[test]
    fn a_node_keeps_its_session_whatever_its_queue_is_like() {
        let begin = Instant::now();
        let mut controller = Controller::new(Limits::new(5, 16, None), 8, begin);
        for second in 1..=60 {
            controller.tick(begin + Duration::from_secs(second), second << 20, LONG, true);
            assert!(controller.sessions() >= 5);
        }
        assert_eq!(controller.sessions(), 5);
    }

    #[test]
    fn fewer_sessions_than_nodes_are_kept_where_no_more_are_allowed() {
        let begin = Instant::now();
        let mut controller = Controller::new(Limits::new(4, 16, None), 4, begin);
        assert!(controller.limit(2), "two nodes have none from now on");
        assert!(!controller.limit(3), "what one rule forbids no other allows");
        let mut bytes = 0;
        for second in 1..=120 {
            bytes += u64::from(controller.sessions()) << 20;
            controller.tick(begin + Duration::from_secs(second), bytes, LONG, false);
            assert!(controller.sessions() <= 2);
        }
        assert_eq!(controller.sessions(), 2);
    }

    #[test]
    fn a_trial_of_fewer_does_not_go_back_to_more_than_were_allowed_meanwhile() {
        let begin = Instant::now();
        let mut controller = Controller::new(Limits::new(1, 8, None), 8, begin);
        let (mut bytes, mut limited) = (0, false);
        for second in 1..=60 {
            bytes += u64::from(controller.sessions()) << 20;
            controller.tick(begin + Duration::from_secs(second), bytes, LONG, false);
            if !limited && controller.sessions() < 8 {
                limited = true;
                assert!(!controller.limit(controller.sessions()), "there are no more than that now");
            }
            assert!(!limited || controller.sessions() <= 6);
        }
        assert!(limited, "no fewer were tried");
    }

    #[test]
    fn on_a_full_path_sessions_are_given_back_and_none_are_tried() {
        let begin = Instant::now();
        let mut controller = Controller::new(Limits::new(1, 16, None), 4, begin);
        let (mut bytes, mut numbers) = (0.0, Vec::new());
        for second in 1..=120 {
            // Beside a neighbour's four connections, each session has four; from the 60th second there are eight of them.
            let own = f64::from(4 * controller.sessions());
            bytes += 25e6 * own / (own + if second < 60 { 4.0 } else { 8.0 });
            let choice = controller.tick(begin + Duration::from_secs(second), bytes as u64, LONG, true);
            numbers.extend(choice.map(|choice| choice.value));
        }
        assert_eq!(numbers, [2, 1]);
    }
}

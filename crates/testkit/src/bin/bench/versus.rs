//! Whom ours is compared with, what is asked of it, and what it came to.

use std::time::Duration;

use whimbrel_testkit::measure::median;

use crate::case::{LINK, Row};

/// A comparison that is to be made, with what is asked of ours; what is not asked is `None`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Versus {
    /// Name of our contender.
    pub ours: &'static str,
    /// Name of the other one.
    pub peer: &'static str,
    /// Fewest times as fast as the peer.
    speed: Option<f64>,
    /// Most processor time, the peer's = 1.
    cpu: Option<f64>,
    /// Most processor seconds for each GB beyond the peer's.
    added: Option<f64>,
}

/// The ratios of each round.
#[derive(Debug)]
pub struct Comparison {
    pub versus: Versus,
    /// Peer's time by ours: above 1, ours is faster.
    pub speed: Vec<f64>,
    /// Our processor time by the peer's: below 1, ours is cheaper.
    pub cpu: Vec<f64>,
    /// Processor seconds for each GB that ours takes more than the peer.
    pub added: Vec<f64>,
}

impl Versus {
    /// Compares, and asks nothing.
    pub fn new(ours: &'static str, peer: &'static str) -> Self {
        Self { ours, peer, speed: None, cpu: None, added: None }
    }

    /// Asks to be at least `times` as fast.
    pub fn as_fast(self, times: f64) -> Self {
        Self { speed: Some(times), ..self }
    }

    /// Asks for at most `times` the peer's processor time.
    pub fn at_cpu(self, times: f64) -> Self {
        Self { cpu: Some(times), ..self }
    }

    /// Asks for at most so many processor seconds a GB more than the peer takes.
    pub fn adding(self, seconds: f64) -> Self {
        Self { added: Some(seconds), ..self }
    }

    /// Whether anything is asked.
    pub fn is_gate(&self) -> bool {
        self.speed.or(self.cpu).or(self.added).is_some()
    }

    /// What is asked, in words; empty when nothing is.
    pub fn asked(&self) -> String {
        let speed = self.speed.map(|times| format!("{times:.2} times"));
        let cpu = self.cpu.map(|times| format!("CPU {times:.2}"));
        let added = self.added.map(|seconds| format!("+{seconds:.2} CPU s/GB"));
        [speed, cpu, added].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

impl Comparison {
    /// Compares two of the rows round by round; both must be there. `bytes` are those of one round.
    pub fn of(rows: &[Row], bytes: u64, versus: Versus) -> Comparison {
        let find = |name| rows.iter().find(|row| row.name == name).expect("comparisons name contenders of their case");
        let pairs = || find(versus.ours).samples.iter().zip(&find(versus.peer).samples);
        let ratio = |over: Duration, under: Duration| over.as_secs_f64() / under.as_secs_f64().max(1e-9);
        let more = |ours: Duration, peer: Duration| ours.as_secs_f64() - peer.as_secs_f64();
        Comparison {
            versus,
            speed: pairs().map(|(ours, peer)| ratio(peer.wall, ours.wall)).collect(),
            cpu: pairs().map(|(ours, peer)| ratio(ours.cpu, peer.cpu)).collect(),
            added: pairs().map(|(ours, peer)| more(ours.cpu, peer.cpu) / (bytes as f64 / 1e9)).collect(),
        }
    }

    /// Median of the ratios of time.
    pub fn median_speed(&self) -> f64 {
        median(self.speed.iter().copied())
    }

    /// Median of the ratios of processor time.
    pub fn median_cpu(&self) -> f64 {
        median(self.cpu.iter().copied())
    }

    /// Median of what ours takes more.
    pub fn median_added(&self) -> f64 {
        median(self.added.iter().copied())
    }

    /// Whether something asked was not reached, as the table rounds it.
    pub fn is_missed(&self) -> bool {
        let shown = |figure: f64| (figure * 100.0).round() / 100.0;
        let least = |asked: Option<f64>, figure: f64| asked.is_some_and(|asked| shown(figure) < asked);
        let most = |asked: Option<f64>, figure: f64| asked.is_some_and(|asked| shown(figure) > asked);
        least(self.versus.speed, self.median_speed())
            || most(self.versus.cpu, self.median_cpu())
            || most(self.versus.added, self.median_added())
    }

    /// What it comes to, in a word or two.
    pub fn verdict(&self) -> &'static str {
        let asked = self.versus.is_gate();
        match self.versus.peer {
            _ if asked && self.is_missed() => "**missed**",
            _ if asked => "kept",
            "floor" => "the floor",
            // They store and prove nothing: what the network itself can do.
            peer if peer == LINK || peer.starts_with("iperf3") => "the network",
            _ if self.median_speed() >= 1.0 => "ahead",
            _ => "**behind**",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(versus: Versus, speed: f64, cpu: f64, added: f64) -> Comparison {
        Comparison { versus, speed: vec![speed], cpu: vec![cpu], added: vec![added] }
    }

    #[test]
    fn what_is_asked_is_kept_or_missed_each_for_itself() {
        let versus = Versus::new("ours", "peer");
        let all = versus.as_fast(2.2).at_cpu(0.75).adding(0.5);
        assert_eq!(all.asked(), "2.20 times, CPU 0.75, +0.50 CPU s/GB");
        assert_eq!(compared(all, 2.196, 0.754, 0.504).verdict(), "kept", "as the table rounds");
        for (speed, cpu, added) in [(2.19, 0.5, 0.1), (3.0, 0.76, 0.1), (3.0, 0.5, 0.51)] {
            assert_eq!(compared(all, speed, cpu, added).verdict(), "**missed**", "{speed} {cpu} {added}");
        }
    }

    #[test]
    fn where_nothing_is_asked_the_faster_is_ahead_and_floors_are_no_rivals() {
        let verdict = |peer, speed| compared(Versus::new("ours", peer), speed, 9.0, 9.0).verdict();
        assert_eq!((verdict("guc", 1.0), verdict("guc", 0.99)), ("ahead", "**behind**"));
        assert_eq!(
            (verdict("floor", 0.5), verdict(LINK, 0.9), verdict("iperf3 -P 4", 0.9)),
            ("the floor", "the network", "the network")
        );
        assert_eq!(compared(Versus::new("ours", LINK).as_fast(0.9), 0.89, 0.0, 0.0).verdict(), "**missed**");
    }
}

//! The controller on paths drawn by seed: what limits them, how noisy they are, what changes midway.

use std::time::{Duration, Instant};

use super::control::{Controller, Limits};

struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit.max(1)
    }

    fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.below(1 << 20) as f64 / (1u64 << 20) as f64
    }
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    /// Storage that more readers make seek.
    Storage { spoilt: f64 },
    /// Processors that more sessions make switch.
    Processors { spoilt: f64 },
    /// Channels that loss keeps far below the link.
    Loss,
    /// Sessions that wait for replies.
    Latency,
}

/// A path: what one session reaches, what all reach together.
#[derive(Debug, Clone, Copy)]
struct Path {
    kind: Kind,
    each: f64,
    all: f64,
    most: u32,
    start: u32,
    /// What becomes of everything halfway.
    midway: f64,
    rtt: f64,
}

impl Path {
    fn draw(random: &mut Random) -> Self {
        let all = random.between(5e6, 2.5e8);
        let (kind, knee) = match random.below(4) {
            0 => (Kind::Storage { spoilt: random.between(0.0, 0.05) }, random.between(1.0, 8.0)),
            1 => (Kind::Processors { spoilt: random.between(0.0, 0.02) }, random.between(1.0, 8.0)),
            2 => (Kind::Loss, random.between(2.0, 24.0)),
            _ => (Kind::Latency, random.between(2.0, 24.0)),
        };
        let midway = if random.below(3) == 0 { 0.5 } else { 1.0 };
        let start = 1 + random.below(12) as u32;
        Self { kind, each: all / knee, all, most: 32, start, midway, rtt: random.between(0.001, 0.3) }
    }

    /// Bytes per second of so many sessions.
    fn rate(&self, sessions: u32, late: bool) -> f64 {
        let sessions = f64::from(sessions);
        let beyond = (sessions - self.all / self.each).max(0.0);
        let plain = (sessions * self.each).min(self.all);
        let rate = match self.kind {
            Kind::Storage { spoilt } | Kind::Processors { spoilt } => plain / (1.0 + spoilt * beyond),
            Kind::Loss => plain,
            // What comes near to the limit waits for it.
            Kind::Latency => self.all * (1.0 - (-sessions * self.each / self.all * 1.5).exp()),
        };
        if late { rate * self.midway } else { rate }
    }

    /// The rate of the best fixed number.
    fn best(&self, late: bool) -> f64 {
        (1..=self.most).map(|sessions| self.rate(sessions, late)).fold(0.0, f64::max)
    }
}

const SECONDS: u64 = 600;

/// Runs the controller; returns its bytes as parts of the best fixed number's: of each half's last half, and of all.
fn run(path: &Path, random: &mut Random) -> (f64, f64, f64) {
    let begin = Instant::now();
    let limits = Limits::new(1, path.most, Some(Duration::from_secs_f64(path.rtt)));
    let mut controller = Controller::new(limits, path.start, begin);
    let (mut bytes, mut ideal) = (0.0, 0.0);
    let mut quarters = [(0.0, 0.0); 4];
    for second in 1..=SECONDS {
        let late = second > SECONDS / 2;
        let moved = path.rate(controller.sessions(), late) * random.between(0.98, 1.02);
        bytes += moved;
        ideal += path.best(late);
        let (ours, theirs) = &mut quarters[((second - 1) * 4 / SECONDS) as usize];
        *ours += moved;
        *theirs += path.best(late);
        controller.tick(begin + Duration::from_secs(second), bytes as u64, Duration::MAX, false);
    }
    let part = |(ours, theirs): (f64, f64)| ours / theirs;
    (part(quarters[1]), part(quarters[3]), bytes / ideal)
}

#[test]
fn on_any_path_the_controller_comes_to_nine_tenths_of_the_best_fixed_number() {
    let mut sum = 0.0;
    for seed in 0..400 {
        let mut random = Random(seed * 7919 + 1);
        let path = Path::draw(&mut random);
        let (first, second, whole) = run(&path, &mut random);
        assert!(first >= 0.9 && second >= 0.9, "seed {seed}: {first:.3}, {second:.3}, {whole:.3} on {path:?}");
        sum += whole;
    }
    assert!(sum / 400.0 >= 0.93, "all the way, climbing and probing included: {:.3}", sum / 400.0);
}

#[test]
fn where_more_bring_nothing_few_are_taken() {
    for seed in 0..50 {
        let mut random = Random(seed + 1);
        let each = random.between(1e6, 1e8);
        let knee = 1 + random.below(6) as u32;
        let path =
            Path { kind: Kind::Loss, each, all: each * f64::from(knee), most: 32, start: 12, midway: 1.0, rtt: 0.01 };
        let begin = Instant::now();
        let mut controller = Controller::new(Limits::new(1, 32, None), 12, begin);
        let (mut bytes, mut late) = (0.0, 0);
        for second in 1..=SECONDS {
            bytes += path.rate(controller.sessions(), false) * random.between(0.99, 1.01);
            controller.tick(begin + Duration::from_secs(second), bytes as u64, Duration::MAX, false);
            late += if second > SECONDS / 2 { controller.sessions() } else { 0 };
        }
        let mean = f64::from(late) / (SECONDS / 2) as f64;
        assert!(mean <= f64::from(knee) + 1.0, "seed {seed}: {mean} sessions where {knee} are enough");
    }
}

//! One comparison: contenders that do the same work in turn, and the ratios of their rounds.

use std::fs;
use std::time::Duration;

use whimbrel_testkit::cpu::PeakPss;
use whimbrel_testkit::measure::median;

use crate::Outcome;
use crate::versus::{Comparison, Versus};

/// Time between two looks at the memory of the servers, in the round that warms up.
const MEMORY_SAMPLE_EVERY: Duration = Duration::from_millis(25);

/// The contender that is a link's own time.
pub const LINK: &str = "link";

/// What one round of one contender took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// From the start of the command to its exit.
    pub wall: Duration,
    /// Processor time of all processes that took part.
    pub cpu: Duration,
    /// Round trips between the first packet and the last that arrived before the exit, where packets were recorded.
    pub trips: Option<f64>,
}

/// One way to do the work.
pub struct Contender<'a> {
    pub name: &'static str,
    /// The command in words.
    pub command: String,
    /// Process ids of its servers.
    pub servers: Vec<u32>,
    pub run: Box<dyn FnMut() -> Outcome<Sample> + 'a>,
}

/// Work, who does it, and whom to compare with whom.
pub struct Case<'a> {
    pub name: String,
    pub bytes: u64,
    /// More than 1 for lots of small files.
    pub files: u64,
    pub contenders: Vec<Contender<'a>>,
    pub comparisons: Vec<Versus>,
}

impl Case<'_> {
    /// Drops the contenders whose name contains one of these texts, and the comparisons with them.
    pub fn leave_out(&mut self, texts: &[String]) {
        let stays = |name: &str| !texts.iter().any(|text| name.contains(text.as_str()));
        self.contenders.retain(|contender| stays(contender.name));
        self.comparisons.retain(|versus| stays(versus.ours) && stays(versus.peer));
    }
}

/// One contender's rounds.
#[derive(Debug)]
pub struct Row {
    pub name: &'static str,
    pub command: String,
    pub samples: Vec<Sample>,
    /// Highest proportional set size of its servers, bytes; 0 when it has none.
    pub peak_bytes: u64,
}

/// What a case came to.
#[derive(Debug)]
pub struct Results {
    pub name: String,
    pub bytes: u64,
    pub files: u64,
    pub rows: Vec<Row>,
    pub comparisons: Vec<Comparison>,
    /// Load averages of one minute before and after.
    pub load: (f64, f64),
}

impl Case<'_> {
    /// Runs every contender once to warm up, with an eye on its memory, then `rounds` times in turn; every other round
    /// goes backwards, so that nobody always follows the same neighbour.
    pub fn measure(mut self, rounds: u32) -> Outcome<Results> {
        let before = load();
        let mut rows = Vec::new();
        for contender in &mut self.contenders {
            let peak = PeakPss::start(&contender.servers, MEMORY_SAMPLE_EVERY);
            let run = (contender.run)();
            let peak_bytes = peak.stop();
            run.map_err(|error| format!("{}: {error}", contender.name))?;
            let command = contender.command.clone();
            rows.push(Row { name: contender.name, command, samples: Vec::new(), peak_bytes });
        }
        for round in 0..rounds {
            eprintln!("{}: round {} of {rounds}", self.name, round + 1);
            let mut order: Vec<usize> = (0..rows.len()).collect();
            if round % 2 == 1 {
                order.reverse();
            }
            for number in order {
                let contender = &mut self.contenders[number];
                let sample = (contender.run)().map_err(|error| format!("{}: {error}", contender.name))?;
                rows[number].samples.push(sample);
            }
        }
        let comparisons =
            self.comparisons.into_iter().map(|versus| Comparison::of(&rows, self.bytes, versus)).collect();
        Ok(Results { name: self.name, bytes: self.bytes, files: self.files, rows, comparisons, load: (before, load()) })
    }
}

impl Row {
    /// Median time in seconds.
    pub fn seconds(&self) -> f64 {
        median(self.samples.iter().map(|sample| sample.wall.as_secs_f64()))
    }

    /// Median processor time in seconds.
    pub fn cpu_seconds(&self) -> f64 {
        median(self.samples.iter().map(|sample| sample.cpu.as_secs_f64()))
    }

    /// Median of the round trips, where they were counted.
    pub fn trips(&self) -> Option<f64> {
        let trips: Vec<f64> = self.samples.iter().filter_map(|sample| sample.trips).collect();
        (!trips.is_empty()).then(|| median(trips))
    }
}

fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|field| field.parse().ok()).unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    fn contender<'a>(name: &'static str, calls: &'a RefCell<Vec<&'static str>>, wall: u64) -> Contender<'a> {
        let run = move || {
            calls.borrow_mut().push(name);
            let round = calls.borrow().iter().filter(|call| **call == name).count() as u64;
            Ok(Sample { wall: Duration::from_secs(wall * round), cpu: Duration::from_secs(1), trips: None })
        };
        Contender { name, command: name.into(), servers: vec![], run: Box::new(run) }
    }

    fn case<'a>(contenders: Vec<Contender<'a>>) -> Case<'a> {
        Case { name: "case".into(), bytes: 1, files: 1, contenders, comparisons: vec![Versus::new("ours", "peer")] }
    }

    #[test]
    fn rounds_alternate_and_the_warm_up_does_not_count() {
        let calls = RefCell::new(Vec::new());
        let results = case(vec![contender("ours", &calls, 1), contender("peer", &calls, 3)]).measure(2).expect("runs");
        assert_eq!(*calls.borrow(), ["ours", "peer", "ours", "peer", "peer", "ours"]);
        assert_eq!(results.rows[0].samples.len(), 2);
        assert_eq!(results.rows[0].seconds(), 2.5, "rounds 2 and 3 of the fake");
        assert_eq!(
            (&results.comparisons[0].speed[..], &results.comparisons[0].cpu[..]),
            (&[3.0, 3.0][..], &[1.0, 1.0][..])
        );
    }

    #[test]
    fn a_contender_that_fails_is_named() {
        let fails =
            Contender { name: "ours", command: String::new(), servers: vec![], run: Box::new(|| Err("no".into())) };
        assert_eq!(case(vec![fails]).measure(1).expect_err("fails").to_string(), "ours: no");
    }
}

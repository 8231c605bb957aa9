//! What a probe of a path found, what bounds it, and what to change.
//!
//! A path has three parts that can be measured alone: reading at the source, the network, writing at the destination.
//! The slowest bounds a copy. [`Report::conclude`] names it and looks through what the hosts say of themselves for
//! settings that cost speed.

mod advice;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::Serialize;

use crate::units::ByteRate;

/// Facts by their names.
pub type Facts = BTreeMap<String, String>;

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Memory to memory.
    Network,
    /// Reading at the source, without a network.
    SourceRead,
    /// Writing at the destination until it is durable, without a network.
    DestinationWrite,
    /// From storage to storage.
    EndToEnd,
}

impl Part {
    /// All of them, in the order in which they are measured.
    pub const ALL: [Self; 4] = [Self::Network, Self::SourceRead, Self::DestinationWrite, Self::EndToEnd];
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Network => "network",
            Self::SourceRead => "source read",
            Self::DestinationWrite => "destination write",
            Self::EndToEnd => "end to end",
        })
    }
}

/// One measurement.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measured {
    /// Bytes moved.
    pub bytes: u64,
    /// Seconds it took.
    pub seconds: f64,
    /// Bytes per second.
    pub rate: f64,
    /// What the source said; empty if it took no part.
    pub source: Facts,
    /// What the destination said; empty if it took no part.
    pub destination: Facts,
}

impl Measured {
    /// From what was counted.
    pub fn new(bytes: u64, time: Duration, source: Facts, destination: Facts) -> Self {
        let seconds = time.as_secs_f64();
        let rate = if seconds > 0.0 { bytes as f64 / seconds } else { 0.0 };
        Self { bytes, seconds, rate, source, destination }
    }

    /// A number that an end said.
    pub fn number(facts: &Facts, name: &str) -> Option<u64> {
        facts.get(name)?.parse().ok()
    }
}

/// The processors that a server may use, and all of its host, where the first are fewer.
pub fn share_of_processors(facts: &Facts) -> Option<(f64, u64)> {
    let (share, all) = (facts.get("host.processors")?.parse().ok()?, Measured::number(facts, "host.cores")?);
    (share < all as f64).then_some((share, all))
}

/// A part of the path, measured or not.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measurement {
    /// Which.
    pub part: Part,
    /// What was measured.
    #[serde(flatten)]
    pub measured: Option<Measured>,
    /// Why it was not, or what the figure does not cover.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// One end.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Host {
    /// As the user named it.
    pub place: String,
    /// What it says of itself.
    pub facts: Facts,
    /// Why it says nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// The slowest part, and by how much.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verdict {
    /// Which.
    pub part: Part,
    /// Its bytes per second.
    pub rate: f64,
    /// The next slowest.
    pub next: Option<Part>,
    /// How many times faster that is; at least 1.
    pub margin: Option<f64>,
    /// The same in words.
    pub text: String,
}

/// One thing to change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Advice {
    /// Whose: `source`, `destination` or `path`.
    pub end: &'static str,
    /// What is wrong, and what it costs.
    pub problem: String,
    /// What to type or to ask for.
    pub change: String,
}

/// Everything a probe found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Where data come from.
    pub source: Host,
    /// Where they go.
    pub destination: Host,
    /// The parts.
    pub measurements: Vec<Measurement>,
    /// What bounds it; `None` if too little was measured.
    pub verdict: Option<Verdict>,
    /// What to change, the most important first.
    pub advice: Vec<Advice>,
}

impl Report {
    /// Draws conclusions from what was measured.
    pub fn conclude(source: Host, destination: Host, measurements: Vec<Measurement>) -> Self {
        let mut report = Self { source, destination, measurements, verdict: None, advice: Vec::new() };
        report.verdict = report.judge();
        report.advice = advice::of(&report);
        report
    }

    /// One part as measured.
    pub fn measured(&self, part: Part) -> Option<&Measured> {
        self.measurements.iter().find(|one| one.part == part).and_then(|one| one.measured.as_ref())
    }

    fn judge(&self) -> Option<Verdict> {
        let alone = [Part::Network, Part::SourceRead, Part::DestinationWrite];
        let mut rates: Vec<(Part, f64)> =
            alone.iter().filter_map(|&part| Some((part, self.measured(part)?.rate))).collect();
        rates.sort_by(|one, other| one.1.total_cmp(&other.1));
        let &(part, rate) = rates.first()?;
        let next = rates.get(1).filter(|(_, next)| rate > 0.0 && *next > 0.0);
        let margin = next.map(|(_, next)| next / rate);
        let mut text = format!("{} bounds this path: {}", sentence(part), ByteRate(rate));
        match (next, margin) {
            (Some((next, other)), Some(margin)) if margin >= 1.2 => {
                text += &format!("; {next} is next with {}, {margin:.1} times as fast", ByteRate(*other));
            }
            (Some((next, other)), _) => {
                text += &format!(", and {next} hardly less with {}: making one faster will not do", ByteRate(*other));
            }
            _ => text += "; nothing else could be measured alone",
        }
        if let Some(whole) = self.measured(Part::EndToEnd).filter(|whole| whole.rate < 0.7 * rate) {
            text += &format!(
                ". Together the parts reach only {}: they share something that each has alone, most often processors",
                ByteRate(whole.rate)
            );
        }
        Some(Verdict { part, rate, next: next.map(|(next, _)| *next), margin, text })
    }
}

fn sentence(part: Part) -> &'static str {
    match part {
        Part::Network => "The network",
        Part::SourceRead => "Reading at the source",
        Part::DestinationWrite => "Writing at the destination",
        Part::EndToEnd => "The whole path",
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn facts(pairs: &[(&str, &str)]) -> Facts {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    pub(crate) fn measurement(part: Part, megabytes: f64) -> Measurement {
        let bytes = (megabytes * 1e6) as u64;
        let measured = Measured::new(bytes, Duration::from_secs(1), Facts::new(), Facts::new());
        Measurement { part, measured: Some(measured), note: None }
    }

    pub(crate) fn report(network: f64, read: f64, write: f64, whole: f64) -> Report {
        let measurements = Part::ALL.into_iter().zip([network, read, write, whole]);
        let measurements = measurements.map(|(part, rate)| measurement(part, rate)).collect();
        Report::conclude(Host::default(), Host::default(), measurements)
    }

    #[test]
    fn the_slowest_part_is_named_with_its_margin() {
        let verdict = report(900.0, 450.0, 1000.0, 440.0).verdict.unwrap();
        assert_eq!((verdict.part, verdict.next, verdict.margin), (Part::SourceRead, Some(Part::Network), Some(2.0)));
        assert!(verdict.text.contains("450 MB/s") && verdict.text.contains("2.0 times"), "{}", verdict.text);
        assert_eq!(report(100.0, 450.0, 1000.0, 99.0).verdict.unwrap().part, Part::Network);
        assert_eq!(report(900.0, 450.0, 10.0, 9.0).verdict.unwrap().part, Part::DestinationWrite);
    }

    #[test]
    fn parts_that_are_equal_and_a_whole_that_is_slower_than_its_parts_are_said() {
        let text = report(500.0, 520.0, 1000.0, 200.0).verdict.unwrap().text;
        assert!(text.contains("hardly less") && text.contains("processors"), "{text}");
        assert!(!report(500.0, 2000.0, 1000.0, 480.0).verdict.unwrap().text.contains("processors"));
    }

    #[test]
    fn what_was_not_measured_is_no_bottleneck() {
        let one = vec![measurement(Part::EndToEnd, 5.0)];
        assert_eq!(Report::conclude(Host::default(), Host::default(), one).verdict, None);
        let one = vec![measurement(Part::Network, 5.0)];
        let verdict = Report::conclude(Host::default(), Host::default(), one).verdict.unwrap();
        assert_eq!((verdict.part, verdict.margin), (Part::Network, None));
    }
}

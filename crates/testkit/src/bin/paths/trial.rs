//! One path tried: a sweep over fixed settings, then the best of them and no options at all in turn.

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use whimbrel_testkit::measure::median;
use whimbrel_testkit::rng::Rng;

use crate::Outcome;
use crate::draw::Draw;
use crate::setting::{Setting, chunk_flag, divides, neighbours, net};
use crate::stage::{Sample, Stage};

/// Longest run of a sweep, as a multiple of the best so far: what is slower is not the best.
const HOPELESS: f64 = 2.0;
/// The same in the last comparison.
const PATIENT: f64 = 6.0;
/// Longest first run.
const FIRST: Duration = Duration::from_secs(240);
/// Rounds where a processor is what limits, because what it has to do for the same copy differs by a fifth.
const ROUNDS_OF_A_PROCESSOR: u32 = 5;
/// Places, each with servers of its own, where they are run again if another way is faster in the first: a way's luck with one start
/// of the servers lasts as long as they do.
const PLACES_IN_DOUBT: u32 = 2;
/// What of our time another way must save to be faster where no processor limits: which server has the last part differs from run to run.
const CLEARLY: f64 = 0.03;
/// Steps from the best of the net.
const STEPS: usize = 4;

/// What a run without options must reach of the best fixed setting's rate.
pub const OF_BEST: f64 = 0.9;
/// What it must reach of the better of chunks on and off: all, but for what equal runs differ by.
pub const OF_CHUNKS: f64 = 0.95;
/// The same where a processor limits.
pub const OF_CHUNKS_BY_A_PROCESSOR: f64 = 0.9;

/// A way to run, with its measured times in seconds; infinite where it was given up.
#[derive(Clone, Debug)]
pub struct Runs {
    pub name: String,
    pub seconds: Vec<f64>,
    pub explained: Vec<Value>,
}

impl Runs {
    /// The middle time.
    pub fn median(&self) -> f64 {
        median(self.seconds.iter().copied())
    }

    fn json(&self) -> Value {
        // Those that were given up have no number in JSON.
        json!({ "name": self.name, "seconds": self.seconds, "explained": self.explained.last() })
    }

    fn of_json(value: &Value) -> Outcome<Runs> {
        let name = value["name"].as_str().ok_or("runs without a name")?.to_owned();
        let seconds = value["seconds"].as_array().ok_or("runs without times")?;
        let seconds = seconds.iter().map(|one| one.as_f64().unwrap_or(f64::INFINITY)).collect();
        Ok(Runs { name, seconds, explained: vec![value["explained"].clone()] })
    }
}

/// What a path came to.
#[derive(Debug)]
pub struct Trial {
    pub draw: Draw,
    /// Every setting of the sweep with its time.
    pub sweep: Vec<(Setting, f64)>,
    /// Without options.
    pub ours: Runs,
    /// The best two of the sweep.
    pub fixed: Vec<Runs>,
    /// Without options but for chunks: off, and on where files can be divided.
    pub chunks: Vec<Runs>,
    /// The bottleneck that most runs named.
    pub named: String,
}

/// Tries a path, in a place that is built for it, or several.
pub fn run(draw: &Draw, whimbrel: &Path, rounds: u32) -> Outcome<Trial> {
    let stage = Stage::build(draw, whimbrel)?;
    let first = stage.run(&[], FIRST)?;
    let mut best = seconds(&first);
    eprintln!("  without options: {best:.2} s (to warm up)");
    let sweep = sweep(draw, &stage, &mut best)?;
    let mut ways: Vec<Way> = vec![way("ours", vec![])];
    ways.extend(sweep.iter().take(2).map(|(setting, _)| way(&setting.to_string(), setting.flags(draw))));
    ways.push(way("chunks off", vec![chunk_flag(draw, false)]));
    if divides(draw) {
        ways.push(way("chunks on", vec![chunk_flag(draw, true)]));
    }
    let of_a_processor = draw.limit.is_a_processor();
    let rounds = if of_a_processor { rounds.max(ROUNDS_OF_A_PROCESSOR) } else { rounds };
    measure(draw, &stage, &mut ways, 0..rounds, best)?;
    drop(stage);
    if is_in_doubt(&ways, if of_a_processor { 0.0 } else { CLEARLY }) {
        for place in 1..=PLACES_IN_DOUBT {
            let stage = Stage::build(draw, whimbrel)?;
            stage.run(&[], FIRST)?;
            measure(draw, &stage, &mut ways, place * rounds..(place + 1) * rounds, best)?;
        }
    }
    let mut ways = ways.into_iter().map(|(runs, _)| runs);
    let ours = ways.next().expect("ours is the first way");
    let fixed = ways.by_ref().take(2).collect();
    let named = most_common(&ours);
    Ok(Trial { draw: draw.clone(), sweep, ours, fixed, chunks: ways.collect(), named })
}

/// Without options and with each of these, in turn.
pub fn compare(draw: &Draw, stage: &Stage, against: &[String], rounds: u32) -> Outcome<Vec<Runs>> {
    let best = seconds(&stage.run(&[], FIRST)?);
    let mut ways = vec![way("without options", vec![])];
    ways.extend(against.iter().map(|flags| way(flags, flags.split_whitespace().map(String::from).collect())));
    measure(draw, stage, &mut ways, 0..rounds, best)?;
    Ok(ways.into_iter().map(|(runs, _)| runs).collect())
}

/// Runs all ways in turn; the best so far took `best` seconds.
fn measure(draw: &Draw, stage: &Stage, ways: &mut [Way], rounds: Range<u32>, best: f64) -> Outcome<()> {
    let longest = Duration::from_secs_f64(best * PATIENT + 5.0);
    for round in rounds {
        for number in order(ways.len(), draw.seed.wrapping_add(u64::from(round))) {
            let (runs, flags) = &mut ways[number];
            let sample = stage.run(flags, longest)?;
            eprintln!("  round {}: {}: {:.2} s, {}", round + 1, runs.name, seconds(&sample), bottleneck(&sample));
            runs.seconds.push(seconds(&sample));
            runs.explained.push(sample.explained);
        }
    }
    Ok(())
}

/// The numbers below `count` in an order of the seed's: what comes before a run bears on it, for hosts remember paths.
fn order(count: usize, seed: u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    Rng::new(seed).shuffle(&mut order);
    order
}

/// What is measured, and with which options.
type Way = (Runs, Vec<String>);

fn way(name: &str, flags: Vec<String>) -> Way {
    (Runs { name: name.into(), seconds: vec![], explained: vec![] }, flags)
}

/// Whether one of the ways saves more than this part of the first one's time.
fn is_in_doubt(ways: &[Way], part: f64) -> bool {
    let medians = || ways.iter().map(|(runs, _)| runs.median());
    let ours = medians().next().unwrap_or(f64::INFINITY);
    medians().any(|other| other < (1.0 - part) * ours)
}

/// Tries the net, then the neighbours of its best; returns all, the fastest first.
fn sweep(draw: &Draw, stage: &Stage, best: &mut f64) -> Outcome<Vec<(Setting, f64)>> {
    let mut tried: Vec<(Setting, f64)> = Vec::new();
    let mut attempt = |setting: Setting, tried: &mut Vec<(Setting, f64)>| -> Outcome<()> {
        let sample = stage.run(&setting.flags(draw), Duration::from_secs_f64(*best * HOPELESS + 2.0))?;
        let took = seconds(&sample);
        eprintln!("  {setting}: {took:.2} s");
        *best = best.min(took);
        tried.push((setting, took));
        tried.sort_by(|one, other| one.1.total_cmp(&other.1));
        Ok(())
    };
    for setting in net(draw) {
        attempt(setting, &mut tried)?;
    }
    let near = neighbours(tried[0].0, draw);
    let known: Vec<Setting> = tried.iter().map(|(setting, _)| *setting).collect();
    for setting in near.into_iter().filter(|setting| !known.contains(setting)).take(STEPS) {
        attempt(setting, &mut tried)?;
    }
    Ok(tried)
}

fn seconds(sample: &Sample) -> f64 {
    sample.wall.map_or(f64::INFINITY, |wall| wall.as_secs_f64())
}

fn bottleneck(sample: &Sample) -> &str {
    sample.explained["bottleneck"].as_str().unwrap_or("nothing named")
}

/// The bottleneck that most runs named; the last one where none has most.
fn most_common(runs: &Runs) -> String {
    let names = || runs.explained.iter().map(|one| one["bottleneck"].as_str().unwrap_or("none"));
    let count = |name: &str| names().filter(|other| *other == name).count();
    names().max_by_key(|name| count(name)).unwrap_or("none").to_owned()
}

fn fastest(ways: &[Runs]) -> f64 {
    ways.iter().map(Runs::median).fold(f64::INFINITY, f64::min)
}

impl Trial {
    /// Our rate as a part of the best fixed setting's.
    pub fn of_best(&self) -> f64 {
        fastest(&self.fixed) / self.ours.median()
    }

    /// Our rate as a part of the better of chunks on and off.
    pub fn of_chunks(&self) -> f64 {
        fastest(&self.chunks) / self.ours.median()
    }

    fn of_chunks_asked(&self) -> f64 {
        if self.draw.limit.is_a_processor() { OF_CHUNKS_BY_A_PROCESSOR } else { OF_CHUNKS }
    }

    /// Whether the bottleneck that was named is the one that was made.
    pub fn is_named(&self) -> bool {
        self.draw.right_names().contains(&self.named.as_str())
    }

    /// Whether all three promises are kept.
    pub fn passes(&self) -> bool {
        self.of_best() >= OF_BEST && self.of_chunks() >= self.of_chunks_asked() && self.is_named()
    }

    /// The promises that are broken, in words.
    pub fn complaints(&self) -> String {
        let broken = [
            (self.of_best() < OF_BEST, "slower than fixed"),
            (self.of_chunks() < self.of_chunks_asked(), "chunks"),
            (!self.is_named(), "wrong name"),
        ];
        let broken: Vec<&str> = broken.iter().filter(|(broken, _)| *broken).map(|(_, what)| *what).collect();
        if broken.is_empty() { "kept".into() } else { format!("**{}**", broken.join(", ")) }
    }

    /// The best fixed setting of the last comparison.
    pub fn best(&self) -> &Runs {
        let faster = |one: &&Runs, other: &&Runs| one.median().total_cmp(&other.median());
        self.fixed.iter().min_by(faster).expect("the sweep has settings")
    }

    /// Everything that was measured.
    pub fn json(&self) -> Value {
        let all = |ways: &[Runs]| ways.iter().map(Runs::json).collect::<Vec<Value>>();
        let sweep: Vec<Value> = self
            .sweep
            .iter()
            .map(|(setting, took)| json!({ "setting": setting.to_string(), "seconds": took }))
            .collect();
        json!({
            "path": self.draw.number, "draw": self.draw.to_string(), "sweep": sweep, "ours": self.ours.json(),
            "fixed": all(&self.fixed), "chunks": all(&self.chunks), "named": self.named, "of_best": self.of_best(),
            "of_chunks": self.of_chunks(), "passes": self.passes(),
        })
    }

    /// What [`Trial::json`] told of the comparison on this path. Errors: it is of another one, or no such thing.
    pub fn of_json(draw: &Draw, value: &Value) -> Outcome<Trial> {
        if value["draw"] != draw.to_string() {
            return Err(format!("what was measured is of {}", value["draw"]).into());
        }
        let all = |key: &str| -> Outcome<Vec<Runs>> {
            value[key].as_array().into_iter().flatten().map(Runs::of_json).collect()
        };
        let ours = Runs::of_json(&value["ours"])?;
        let named = value["named"].as_str().unwrap_or("none").to_owned();
        Ok(Trial { draw: draw.clone(), sweep: vec![], ours, fixed: all("fixed")?, chunks: all("chunks")?, named })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::draw;

    fn runs(seconds: &[f64], bottlenecks: &[&str]) -> Runs {
        let explained = bottlenecks.iter().map(|name| json!({ "bottleneck": name })).collect();
        Runs { name: "x".into(), seconds: seconds.to_vec(), explained }
    }

    fn trial(ours: f64, fixed: f64, chunks: f64, named: &[&str]) -> Trial {
        let number =
            (0..20).find(|number| draw(1, *number, 8.0, 2000.0).right_names() == ["network"]).expect("one of them");
        let ours = runs(&[ours; 3], named);
        let named = most_common(&ours);
        let (fixed, chunks) = (vec![runs(&[fixed; 3], &[]), runs(&[f64::INFINITY], &[])], vec![runs(&[chunks], &[])]);
        Trial { draw: draw(1, number, 8.0, 2000.0), sweep: vec![], ours, fixed, chunks, named }
    }

    #[test]
    fn every_way_has_its_turn_in_each_round_and_not_always_behind_the_same() {
        let orders: Vec<Vec<usize>> = (0..9).map(|seed| order(5, seed)).collect();
        for order in &orders {
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2, 3, 4]);
        }
        assert!((0..5).all(|first| orders.iter().any(|order| order[0] == first)), "{orders:?}");
    }

    #[test]
    fn another_way_that_is_faster_is_reason_for_doubt() {
        let ways = |other: f64| [(runs(&[10.0; 3], &[]), vec![]), (runs(&[other, 1.0, 20.0], &[]), vec![])];
        assert!(is_in_doubt(&ways(9.9), 0.0) && !is_in_doubt(&ways(9.9), CLEARLY));
        assert!(is_in_doubt(&ways(9.6), CLEARLY) && !is_in_doubt(&ways(10.0), 0.0));
    }

    #[test]
    fn every_promise_is_judged_by_medians() {
        let network = ["window", "network", "network"];
        assert!(trial(10.0, 9.1, 9.6, &network).passes());
        assert_eq!(trial(10.0, 8.9, 9.6, &network).complaints(), "**slower than fixed**");
        assert_eq!(trial(10.0, 9.1, 9.4, &network).complaints(), "**chunks**");
        assert_eq!(trial(10.0, 9.1, 9.6, &["window", "window", "network"]).complaints(), "**wrong name**");
        assert_eq!(trial(10.0, 9.1, 9.6, &network).best().seconds, [9.1; 3]);
    }

    #[test]
    fn what_was_measured_is_read_back_as_it_was() {
        let trial = trial(10.0, 9.1, 9.6, &["window", "network", "network"]);
        let again = Trial::of_json(&trial.draw, &trial.json()).expect("read");
        assert_eq!(again.json()["sweep"], json!([]));
        assert_eq!((again.of_best(), again.of_chunks()), (trial.of_best(), trial.of_chunks()));
        assert_eq!((again.complaints(), again.best().name.as_str()), (trial.complaints(), "x"));
        assert_eq!(again.fixed[1].seconds, [f64::INFINITY], "given up, and still so");
        let other = draw(1, trial.draw.number + 1, 8.0, 2000.0);
        assert!(Trial::of_json(&other, &trial.json()).is_err() && Trial::of_json(&trial.draw, &Value::Null).is_err());
    }
}

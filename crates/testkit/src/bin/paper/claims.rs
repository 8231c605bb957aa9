//! The paper's claims as inequalities.

use std::fmt;

use crate::results::Results;
use crate::scale::MOVERS;
use crate::scaling::PAIRS;
use crate::setting::{CHUNKS, FEW, FILES, Route, Setting, USUAL_CHUNK};

/// What a figure of ours must be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

/// One claim, and what was measured.
#[derive(Debug, Clone)]
pub struct Claim {
    /// Number of the paper's figure; 0: not of the paper.
    pub figure: u8,
    /// What the paper says, in our words.
    pub says: &'static str,
    /// What is checked here.
    pub checked: &'static str,
    /// Why it is not just what the paper says; empty where it is.
    pub differs: &'static str,
    pub bound: Bound,
    pub value: f64,
}

impl Claim {
    /// Whether it does.
    pub fn holds(&self) -> bool {
        match self.bound {
            Bound::AtLeast(least) => self.value >= least,
            Bound::AtMost(most) => self.value <= most,
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Bound::AtLeast(least) => write!(f, "≥ {least}"),
            Bound::AtMost(most) => write!(f, "≤ {most}"),
        }
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "figure {}: {}: {:.2}, must be {}", self.figure, self.checked, self.value, self.bound)
    }
}

/// A claim before it is measured: its value is `None` where settings were left out.
type Row = (&'static str, &'static str, &'static str, Bound, Option<f64>);

/// Every claim whose settings were measured, in the paper's order.
pub fn judge(results: &Results) -> Vec<Claim> {
    let figures = [
        (6, chunk_size(results)),
        (7, proof(results)),
        (8, proof_time(results)),
        (9, files(results)),
        (10, chunks(results)),
        (0, scaling(results)),
    ];
    let rows = figures.into_iter().flat_map(|(figure, rows)| rows.into_iter().map(move |row| (figure, row)));
    let claim = |(figure, (says, checked, differs, bound, value))| {
        Some(Claim { figure, says, checked, differs, bound, value: value? })
    };
    rows.filter_map(claim).collect()
}

fn least(values: impl IntoIterator<Item = Option<f64>>) -> Option<f64> {
    values.into_iter().flatten().reduce(f64::min)
}

fn most(values: impl IntoIterator<Item = Option<f64>>) -> Option<f64> {
    values.into_iter().flatten().reduce(f64::max)
}

/// For each of the routes and numbers of files.
fn each<'a, T>(
    routes: &'a [Route],
    files: &'a [u32],
    value: impl Fn(Route, u32) -> T + 'a,
) -> impl Iterator<Item = T> + 'a {
    let value = std::rc::Rc::new(value);
    routes.iter().flat_map(move |&route| {
        let value = value.clone();
        files.iter().map(move |&files| value(route, files))
    })
}

/// Figure 6.
fn chunk_size(results: &Results) -> Vec<Row> {
    let sized = |route, files, chunk| Setting { chunk: Some(chunk), ..Setting::whole(route, files) };
    let gain =
        |from: u64, to: u64| move |route, files| results.gain(sized(route, files, to), sized(route, files, from));
    let by_files = |one, other| move |route, _| Some(gain(50, 500)(route, one)? / gain(50, 500)(route, other)?);
    let best = |route, files| most(CHUNKS.map(|chunk| gain(USUAL_CHUNK, chunk)(route, files)));
    vec![
        (
            "Throughput rises with the size of chunks from 50 to 500 MB",
            "500 MB by 50 MB, lowest of all routes and numbers of files",
            "it hardly does: commands go ahead of replies and parts are proven while others move, so that small chunks cost little",
            Bound::AtLeast(0.95),
            least(each(&Route::MAIN, &FEW, gain(50, 500))),
        ),
        (
            "It falls again towards 5000 MB: too few chunks are left for all movers",
            "5000 MB by 500 MB, highest of all",
            "",
            Bound::AtMost(1.0),
            most(each(&Route::MAIN, &FEW, gain(500, 5000))),
        ),
        (
            "(how far it falls with few files)",
            "5000 MB by 500 MB, 1 and 5 files, lowest of all",
            "it falls little: parts get shorter towards the end of a run, whatever the size of chunks",
            Bound::AtLeast(0.8),
            least(each(&Route::MAIN, &[1, 5], gain(500, 5000))),
        ),
        (
            "So there is a best size in between, 200 or 500 MB",
            "the best size by 500 MB, highest of all",
            "",
            Bound::AtMost(1.15),
            most(each(&Route::MAIN, &FEW, best)),
        ),
        (
            "Larger chunks bring least, 15 % at most, with one file",
            "what 500 MB bring over 50 MB with one file by the same with 20, higher of both routes",
            "one file is no bottleneck of its own here: it gains about as little as 20 do",
            Bound::AtMost(1.25),
            most(each(&Route::MAIN, &[1], by_files(1, 20))),
        ),
        (
            "and more with 20 files than with 5",
            "the same with 20 files by that with 5, lower of both routes",
            "with any number of files they bring about the same",
            Bound::AtLeast(0.8),
            least(each(&Route::MAIN, &[1], by_files(20, 5))),
        ),
    ]
}

/// Figure 7.
fn proof(results: &Results) -> Vec<Row> {
    let whole = |route, files| results.kept(Setting::whole(route, files));
    let chunked = |route, files| results.kept(Setting::chunked(route, files));
    let milder = |route, files| Some(chunked(route, files)? / whole(route, files)?);
    let later = |files| move |route, _| Some(whole(route, files)? / whole(route, 1)?);
    vec![
        (
            "Without chunks integrity checking about halves the rate of one file",
            "rate with proof by rate without, one whole file, highest of A2N and N2A",
            "",
            Bound::AtMost(0.7),
            most(each(&Route::MAIN, &[1], whole)),
        ),
        (
            "(but no more than that)",
            "the same, lowest",
            "",
            Bound::AtLeast(0.45),
            least(each(&Route::MAIN, &[1], whole)),
        ),
        (
            "The loss is smaller with more files",
            "what 20 files keep by what one keeps, lowest of all routes",
            "",
            Bound::AtLeast(1.0),
            least(each(&Route::ALL, &[20], later(20))),
        ),
        (
            "but stays pronounced",
            "rate with proof by rate without, 5 whole files, highest of all routes",
            "with 20 files ours is smaller: a file is read back while the next one moves",
            Bound::AtMost(0.8),
            most(each(&Route::ALL, &[5], whole)),
        ),
        (
            "With chunks the loss is much smaller",
            "what copies in chunks keep by what whole files keep, 1 and 5 files, lowest of all routes",
            "",
            Bound::AtLeast(1.2),
            least(each(&Route::ALL, &[1, 5], milder)),
        ),
        (
            "With chunks a loss remains, less with more files",
            "rate with proof by rate without, in chunks, lowest of all",
            "nearly nothing is left to become less: a chunk is read back while the next one moves",
            Bound::AtLeast(0.9),
            least(each(&Route::ALL, &FEW, chunked)),
        ),
    ]
}

/// Figure 8.
fn proof_time(results: &Results) -> Vec<Row> {
    let whole = |route, files| results.proof_time(Setting::whole(route, files));
    let chunked = |route, files| results.proof_time(Setting::chunked(route, files));
    // Below a twentieth of a second the clock, not the proof, would decide.
    let by = |more: Option<f64>, less: Option<f64>| Some(more? / less?.max(0.05));
    let moving = |chunks: fn(Route, u32) -> Setting| {
        move |route, _| results.gain(chunks(route, 20).unproven(), chunks(route, 1).unproven())
    };
    vec![
        (
            "Without chunks checking takes 773 s for one file and 60.7 s for 20, a 12.7th",
            "time of the proof, one whole file by 20, lower of A2N and N2A",
            "",
            Bound::AtLeast(6.0),
            least(each(&Route::MAIN, &[1], |route, _| by(whole(route, 1), whole(route, 20)))),
        ),
        (
            "For one file checking takes 773 s without and 53.7 s with chunks, a 14.4th",
            "time of the proof, one file, whole by in chunks, lower of A2N and N2A",
            "",
            Bound::AtLeast(MOVERS as f64),
            least(each(&Route::MAIN, &[1], |route, _| by(whole(route, 1), chunked(route, 1)))),
        ),
        (
            "With chunks checking takes 53.7 s for one file and 21.7 s for 20",
            "time of the proof in chunks by the whole time, 1, 5 and 20 files, highest of all",
            "it is the last chunk's proof only, with any number of files",
            Bound::AtMost(0.1),
            most(each(&Route::MAIN, &FEW, |route, files| {
                Some(chunked(route, files)? / results.time(Setting::chunked(route, files))?.median)
            })),
        ),
        (
            "Without chunks moving, too, takes much less time with 20 files than with one",
            "time of moving, one whole file by 20, lower of A2N and N2A",
            "",
            Bound::AtLeast(5.0),
            least(each(&Route::MAIN, &[1], moving(Setting::whole))),
        ),
    ]
}

/// Figure 9.
fn files(results: &Results) -> Vec<Row> {
    let more =
        |chunks: fn(Route, u32) -> Setting| move |route, files| results.gain(chunks(route, files), chunks(route, 1));
    let spread = |route, _| {
        let gains = || FILES.map(|files| more(Setting::chunked)(route, files));
        Some(most(gains())? / least(gains())?)
    };
    vec![
        (
            "Without chunks several files are always faster than one of the same bytes",
            "5 to 500 whole files by one, lowest of all routes",
            "",
            Bound::AtLeast(4.0),
            least(each(&Route::ALL, &FILES[1..], more(Setting::whole))),
        ),
        (
            "From 1 to 500 whole files the rate grows 23 times (A2N) and 28 times (N2A), with 64 sessions",
            "500 whole files by one, lower of A2N and N2A, with 8 sessions",
            "",
            Bound::AtLeast(MOVERS as f64),
            least(each(&Route::MAIN, &[500], more(Setting::whole))),
        ),
        (
            "With chunks the difference shrinks to 1.9 times (A2N) and 3 times (N2A)",
            "fastest by slowest number of files, in chunks, higher of A2N and N2A",
            "",
            Bound::AtMost(1.9),
            most(each(&Route::MAIN, &[1], spread)),
        ),
    ]
}

/// Figure 10.
fn chunks(results: &Results) -> Vec<Row> {
    let gain = |route, files| results.gain(Setting::chunked(route, files), Setting::whole(route, files));
    let fewer = |route, _| Some(gain(route, 1)? / gain(route, 5)?);
    let far = || {
        Some(least([gain(Route::N2O, 20), gain(Route::O2N, 20)])? / most([gain(Route::A2O, 20), gain(Route::O2A, 20)])?)
    };
    vec![
        (
            "Chunks make one file up to 9.5 times as fast, with 64 sessions",
            "in chunks by whole, one file, highest of all routes, with 8 sessions",
            "",
            Bound::AtLeast(MOVERS as f64),
            most(each(&Route::ALL, &[1], gain)),
        ),
        (
            "five files up to 5 times",
            "in chunks by whole, 5 files, highest of all routes",
            "five whole files keep 5 of 8 sessions busy here, 5 of 64 there",
            Bound::AtLeast(1.6),
            most(each(&Route::ALL, &[5], gain)),
        ),
        (
            "which is less than with one file",
            "gain of one file by gain of five, lowest of all routes",
            "",
            Bound::AtLeast(1.5),
            least(each(&Route::ALL, &[1], fewer)),
        ),
        (
            "and 20 files 1.6 times at most",
            "in chunks by whole, 20 files, highest of all routes",
            "",
            Bound::AtMost(1.6),
            most(each(&Route::ALL, &[20], gain)),
        ),
        (
            "Some routes even get slower with 20 files",
            "in chunks by whole, 20 files, lowest of all routes",
            "none does here",
            Bound::AtLeast(0.95),
            least(each(&Route::ALL, &[20], gain)),
        ),
        (
            "With 20 files chunks may help more on the longer paths",
            "gain of N and O, the longest path, by that of A and O, the shortest; 20 files",
            "a round trip is hidden in either case, so distance should not matter: no less on the longer path",
            Bound::AtLeast(0.9),
            far(),
        ),
    ]
}

/// What this project asks for.
fn scaling(results: &Results) -> Vec<Row> {
    let value = || Some(results.rate_over(PAIRS)?.median / results.rate_over(1)?.median);
    vec![(
        "(not of the paper) One file in chunks over pairs of nodes with the same slow storage",
        "rate over 4 pairs by rate over 1",
        "",
        Bound::AtLeast(3.6),
        value(),
    )]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scale::Scale;

    /// Results as good as they can be: movers share the bytes evenly, proofs of parts cost nothing.
    fn ideal(proof: f64) -> Results {
        let mut results = Results::new(Scale::FULL);
        for setting in Setting::all(&Route::ALL, &CHUNKS) {
            let movers = if setting.chunk.is_some() { 8 } else { setting.files.min(8) };
            let moving = 10.0 / f64::from(movers);
            let proving = match setting.chunk {
                _ if !setting.proof => 0.0,
                Some(_) => 0.1,
                None => proof * 6.2 / f64::from(setting.files),
            };
            results.seconds.insert(setting, vec![moving + proving]);
        }
        results.pairs = (1..=PAIRS).map(|pairs| (pairs, vec![16.0 / f64::from(pairs)])).collect();
        results
    }

    #[test]
    fn every_claim_is_judged_and_can_be_met() {
        let claims = judge(&ideal(1.0));
        let broken: Vec<String> = claims.iter().filter(|claim| !claim.holds()).map(Claim::to_string).collect();
        assert_eq!((claims.len(), broken), (26, vec![]));
    }

    #[test]
    fn a_claim_that_does_not_hold_says_so() {
        let claims = judge(&ideal(0.0));
        assert!(claims.iter().any(|claim| claim.figure == 7 && !claim.holds()), "nothing was lost by proving");
        let broken = Claim { value: 3.5, ..claims.last().expect("there are some").clone() };
        assert!(!broken.holds());
        assert_eq!(broken.to_string(), "figure 0: rate over 4 pairs by rate over 1: 3.50, must be ≥ 3.6");
    }

    #[test]
    fn what_was_not_measured_is_not_judged() {
        assert!(judge(&Results::new(Scale::QUICK)).is_empty());
    }
}

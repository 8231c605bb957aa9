//! Everything that was measured, as JSON: written by one run, judged again by another.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};

use whimbrel_testkit::measure::Machine;

use crate::Outcome;
use crate::claims::Claim;
use crate::results::Results;
use crate::scale::{MOVERS, Scale};
use crate::scaling::WRITE_RATE;
use crate::setting::{Facility, Route, Setting};

/// What a run leaves.
#[derive(Debug, Serialize, Deserialize)]
struct Saved {
    machine: Machine,
    /// Bytes of each task.
    bytes: u64,
    /// Bytes of the file that goes over several pairs.
    scaling_bytes: u64,
    copies: Vec<Copies>,
    /// Seconds by number of pairs.
    pairs: BTreeMap<u32, Vec<f64>>,
    not_measured: Vec<String>,
    /// For readers; never read again.
    #[serde(default, skip_deserializing)]
    about: Json,
    #[serde(default, skip_deserializing)]
    claims: Vec<Json>,
}

/// The copies with one setting.
#[derive(Debug, Serialize, Deserialize)]
struct Copies {
    route: String,
    files: u32,
    chunk_paper_mb: Option<u64>,
    proof: bool,
    seconds: Vec<f64>,
}

/// Writes everything.
pub fn write(file: &Path, machine: &Machine, results: &Results, claims: &[Claim]) -> Outcome<()> {
    let copies = |(setting, seconds): (&Setting, &Vec<f64>)| Copies {
        route: setting.route.to_string(),
        files: setting.files,
        chunk_paper_mb: setting.chunk,
        proof: setting.proof,
        seconds: seconds.clone(),
    };
    let claim = |claim: &Claim| {
        json!({
            "figure": claim.figure, "paper": claim.says, "checked": claim.checked, "differs": claim.differs,
            "bound": claim.bound.to_string(), "value": claim.value, "holds": claim.holds(),
        })
    };
    let rates = Facility::ALL.map(|facility| (facility.name().to_owned(), Json::from(facility.write_rate())));
    let saved = Saved {
        machine: machine.clone(),
        bytes: results.scale.bytes,
        scaling_bytes: results.scale.scaling_bytes,
        copies: results.seconds.iter().map(copies).collect(),
        pairs: results.pairs.clone(),
        not_measured: results.failures.clone(),
        about: json!({
            "movers": MOVERS, "node_write_bytes_per_second": Json::Object(rates.into_iter().collect()),
            "scaling_node_write_bytes_per_second": WRITE_RATE,
        }),
        claims: claims.iter().map(claim).collect(),
    };
    Ok(fs::write(file, serde_json::to_string_pretty(&saved)? + "\n")?)
}

/// Reads what [`write`] wrote.
pub fn read(file: &Path) -> Outcome<(Machine, Results)> {
    let saved: Saved = serde_json::from_slice(&fs::read(file)?)?;
    let mut results = Results::new(Scale { bytes: saved.bytes, scaling_bytes: saved.scaling_bytes });
    for copies in saved.copies {
        let route = Route::ALL.into_iter().find(|route| route.to_string() == copies.route);
        let route = route.ok_or_else(|| format!("no such route: {}", copies.route))?;
        let setting = Setting { route, files: copies.files, chunk: copies.chunk_paper_mb, proof: copies.proof };
        results.seconds.insert(setting, copies.seconds);
    }
    (results.pairs, results.failures) = (saved.pairs, saved.not_measured);
    Ok((saved.machine, results))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_again() {
        let word = || "x".to_owned();
        let machine = Machine { cores: 2, processor: word(), kernel: word(), date: word(), commit: "abc".into() };
        let mut results = Results::new(Scale::FULL);
        results.seconds.insert(Setting::chunked(Route::O2N, 5), vec![1.5, 1.25]);
        results.seconds.insert(Setting::whole(Route::A2N, 1).unproven(), vec![7.0]);
        results.pairs.insert(3, vec![2.0]);
        results.failures.push("N2A".into());
        let directory = tempfile::tempdir().expect("made");
        let file = directory.path().join("json");
        write(&file, &machine, &results, &[]).expect("written");
        let (same, again) = read(&file).expect("read");
        assert_eq!((again.seconds, again.pairs, again.failures), (results.seconds, results.pairs, results.failures));
        assert_eq!((same.commit.as_str(), again.scale), ("abc", Scale::FULL));
    }
}

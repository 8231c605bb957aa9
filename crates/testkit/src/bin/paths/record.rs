//! What has been measured so far, in a file: a run takes hours, and one that was ended goes on where it was.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use whimbrel_transport::digest::Algorithm;

use crate::Outcome;
use crate::options::Options;

/// What the measured program is built from: the workspace without the crate that measures.
const SOURCES: [&str; 4] = ["Cargo.toml", "Cargo.lock", "crates", ":!crates/testkit"];

/// All samples of a run, and what they are of.
#[derive(Debug, Serialize, Deserialize)]
pub struct Record {
    pub seed: u64,
    pub rounds: u32,
    pub seconds: f64,
    pub most_mbit: f64,
    /// SHA-256 of the program that was measured.
    pub program: String,
    /// What it was built from, as [`sources`] tells; unknown where the checkout had been changed.
    pub sources: Option<String>,
    /// Where and when it was, once for each sitting.
    pub sittings: Vec<String>,
    /// What [`crate::trial::Trial::json`] tells of each path.
    pub paths: Vec<Value>,
    pub failures: Vec<String>,
}

impl Record {
    /// A run's, with nothing measured yet.
    pub fn new(options: &Options, whimbrel: &Path, sources: Option<String>, sitting: String) -> Outcome<Record> {
        let program = Algorithm::Sha256.digest(&fs::read(whimbrel)?).to_string();
        Ok(Record {
            seed: options.seed,
            rounds: options.rounds,
            seconds: options.seconds,
            most_mbit: options.most,
            program,
            sources,
            sittings: vec![sitting],
            paths: vec![],
            failures: vec![],
        })
    }

    /// Takes what an earlier sitting has measured. Errors: the file's are of another program, or of other paths. Two builds
    /// of the same sources are one program: a compiler need not write the same bytes on every machine.
    pub fn go_on_with(&mut self, file: &Path) -> Outcome<()> {
        let earlier: Record = serde_json::from_slice(&fs::read(file)?)?;
        let is_of = |record: &Record| (record.seed, record.rounds, record.seconds, record.most_mbit);
        if is_of(&earlier) != is_of(self) {
            return Err(format!("{} is of another seed, or of other rounds, data or rates", file.display()).into());
        }
        let same_sources = earlier.sources.is_some() && earlier.sources == self.sources;
        if earlier.program != self.program && !same_sources {
            return Err(format!("{} is of another whimbrel: begin anew", file.display()).into());
        }
        self.paths = earlier.paths;
        self.sittings = [earlier.sittings, std::mem::take(&mut self.sittings)].concat();
        Ok(())
    }

    /// The samples of a path, if it has been measured.
    pub fn of_path(&self, number: u32) -> Option<&Value> {
        self.paths.iter().find(|path| path["path"] == number)
    }

    /// Replaces the file by all that is measured.
    pub fn save(&self, file: &Path) -> Outcome<()> {
        let part = file.with_extension("part");
        fs::write(&part, serde_json::to_string_pretty(self)?)?;
        Ok(fs::rename(part, file)?)
    }
}

/// SHA-256 of the names and contents, as git lists them, of what the program in this checkout is built from; `None` when
/// something of it is changed and not committed.
pub fn sources() -> Outcome<Option<String>> {
    let git = |arguments: &[&str]| -> Outcome<Vec<u8>> {
        let top = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let output = Command::new("git").args(["-C", top]).args(arguments).args(["--"]).args(SOURCES).output()?;
        output.status.success().then_some(output.stdout).ok_or_else(|| format!("git {arguments:?} failed").into())
    };
    let changed = git(&["status", "--porcelain"])?;
    let listed = git(&["ls-files", "--stage"])?;
    Ok(changed.is_empty().then(|| Algorithm::Sha256.digest(&listed).to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(directory: &Path, line: &str, program: &str, sources: &str) -> Record {
        let options = Options::parse(line.split_whitespace().map(String::from), 77).expect("understood");
        let whimbrel = directory.join("program");
        fs::write(&whimbrel, program).expect("written");
        let sources = (!sources.is_empty()).then(|| sources.to_owned());
        Record::new(&options.expect("no help"), &whimbrel, sources, "today".into()).expect("a record")
    }

    #[test]
    fn a_run_goes_on_with_what_was_measured_of_the_same_program_and_paths_only() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("paths.json");
        let mut first = record(directory.path(), "--seed 5", "one", "those");
        first.paths.push(serde_json::json!({ "path": 3 }));
        first.save(&file).expect("saved");
        for (program, sources) in [("one", "those"), ("one", ""), ("two", "those")] {
            let mut second = record(directory.path(), "--seed 5", program, sources);
            second.go_on_with(&file).expect("the same");
            assert!(second.of_path(3).is_some() && second.of_path(4).is_none(), "{program} {sources}");
            assert_eq!(second.sittings.len(), 2);
        }
        let different = [
            ("--seed 6", "one", "those"),
            ("--seed 5 --seconds 9", "one", "those"),
            ("--seed 5", "two", "others"),
            ("--seed 5", "two", ""),
        ];
        for (line, program, sources) in different {
            let mut other = record(directory.path(), line, program, sources);
            assert!(other.go_on_with(&file).is_err() && other.paths.is_empty(), "{line} {program} {sources}");
        }
        let nothing = record(directory.path(), "", "one", "those").go_on_with(&directory.path().join("none"));
        assert!(nothing.is_err());
    }

    #[test]
    fn two_changed_checkouts_are_not_taken_for_one() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("paths.json");
        record(directory.path(), "--seed 5", "one", "").save(&file).expect("saved");
        assert!(record(directory.path(), "--seed 5", "two", "").go_on_with(&file).is_err());
    }
}

//! Takes out, one at a time, each sync, each check and each step of an order that keeps copies right, and the checks of who
//! may do what, and requires that the cheapest suite meant to notice does: a test that cannot fail proves nothing.
//!
//! All of it happens in a worktree of its own with a target folder of its own; the checkout is not touched.

mod attacks;
mod certificates;
mod mutations;
mod security;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::command::{Result, cargo, output, program, root, run};
use attacks::ATTACKS;
use certificates::CERTIFICATES;
use mutations::{MUTATIONS, Mutation, Suite};
use security::SECURITY;

/// Longest time of a suite, its build included; the first build takes all dependencies.
const LIMIT: Duration = Duration::from_secs(1800);

/// Written when every mutation was tried.
const PAGE: &str = "docs/reference/sabotage.md";

const NOTICED: &str = "noticed";
const MISSED: &str = "missed";

/// How a suite ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ended {
    Passed,
    Failed,
    /// What a test that hangs comes to.
    TooLate,
}

/// Tries the mutations whose names begin with one of `names` (default: all), in a worktree of the last commit; `--keep`
/// leaves the worktree for the next time, which then builds little, and `--record FILE` goes on with an earlier run of the
/// same sources (a whole run takes hours).
pub fn run_mutations(arguments: &[&str]) -> Result {
    let mut arguments = arguments.iter().copied();
    let (mut keep, mut record, mut names) = (false, None, Vec::new());
    while let Some(argument) = arguments.next() {
        match argument {
            "--keep" => keep = true,
            "--record" => record = Some(PathBuf::from(arguments.next().ok_or("--record needs a file")?)),
            name => names.push(name),
        }
    }
    let chosen: Vec<&Mutation> =
        all().filter(|mutation| names.is_empty() || names.iter().any(|name| mutation.name.starts_with(name))).collect();
    if chosen.is_empty() {
        return Err(format!("no such mutation: {}", names.join(" ")));
    }
    let commit = output(&mut program("git", &["rev-parse", "HEAD"]))?.trim().to_owned();
    let record = record.map(|file| sources().map(|sources| Record { file, sources })).transpose()?;
    let known = record.as_ref().map_or_else(|| Ok(BTreeMap::new()), Record::read)?;
    let place = Place::make(keep, &commit)?;
    for mutation in &chosen {
        place.check_applies(mutation)?;
    }
    place.check_suites(chosen.iter().copied().filter(|mutation| !known.contains_key(mutation.name)))?;
    let mut results = Vec::new();
    for mutation in &chosen {
        println!("== {}", mutation.name);
        let noticed = match known.get(mutation.name) {
            Some(&noticed) => noticed,
            None => {
                let noticed = place.try_out(mutation)? != Ended::Passed;
                record.as_ref().map_or(Ok(()), |record| record.add(mutation.name, noticed))?;
                noticed
            }
        };
        println!("== {}: {}", mutation.name, if noticed { "noticed" } else { "NOT NOTICED" });
        results.push((*mutation, noticed));
    }
    let table = table(&results);
    println!("{table}");
    if names.is_empty() {
        let page = root().join(PAGE);
        fs::write(&page, format!("{HEAD}{table}")).map_err(|error| format!("{}: {error}", page.display()))?;
    }
    let missed: Vec<&str> = results.iter().filter(|(_, noticed)| !noticed).map(|(mutation, _)| mutation.name).collect();
    if missed.is_empty() { Ok(()) } else { Err(format!("not noticed: {}", missed.join(", "))) }
}

/// What decides whether a mutation is noticed, as the last commit has it: pages that are written meanwhile do not.
const SOURCES: [&str; 4] = ["HEAD:Cargo.toml", "HEAD:Cargo.lock", "HEAD:crates", "HEAD:xtask/src/sabotage"];

/// One word for the state of [`SOURCES`].
fn sources() -> Result<String> {
    let ids = output(program("git", &["rev-parse"]).args(SOURCES))?;
    Ok(ids.split_whitespace().collect::<Vec<_>>().join("+"))
}

fn all() -> impl Iterator<Item = &'static Mutation> {
    MUTATIONS.iter().chain(SECURITY).chain(CERTIFICATES).chain(ATTACKS)
}

const HEAD: &str = "# Sabotage\n\n\
    Written by `cargo xtask sabotage`: in a worktree of its own it takes out, one at a time, each sync, each check and each\n\
    step of an order that keeps copies right, and runs the cheapest suite that is meant to notice. A suite counts only if it\n\
    passes without the change and the change compiles. `cargo xtask sabotage NAME...` tries those whose names begin so.\n\n\
    Why each is there: [write sessions](../design/write-sessions.md), [chunks](../design/chunks.md),\n\
    [who may do what](../design/authorization.md).\n\n";

fn table(results: &[(&Mutation, bool)]) -> String {
    let mut text = "| taken out | guards against | suite | noticed |\n| --- | --- | --- | --- |\n".to_owned();
    for (Mutation { name, guards, suite, .. }, noticed) in results {
        let noticed = if *noticed { "yes" } else { "**no**" };
        text += &format!("| {name} | {guards} | `{}` | {noticed} |\n", suite.shown());
    }
    text
}

/// What was found out earlier: a line for each mutation with its [`sources`], whether it was noticed, and its name, between tabs.
struct Record {
    file: PathBuf,
    sources: String,
}

impl Record {
    /// What is known of these sources.
    fn read(&self) -> Result<BTreeMap<String, bool>> {
        let text = match fs::read_to_string(&self.file) {
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            text => text.map_err(|error| self.failed(&error))?,
        };
        let mut known = BTreeMap::new();
        for line in text.lines() {
            let fields = line.split('\t').collect::<Vec<_>>();
            match fields[..] {
                [sources, noticed @ (NOTICED | MISSED), name] if sources == self.sources => {
                    known.insert(name.to_owned(), noticed == NOTICED);
                }
                [_, NOTICED | MISSED, _] => {}
                _ => return Err(format!("{}: what is this: {line}", self.file.display())),
            }
        }
        Ok(known)
    }

    fn add(&self, name: &str, noticed: bool) -> Result {
        let line = format!("{}\t{}\t{name}\n", self.sources, if noticed { NOTICED } else { MISSED });
        let file = fs::OpenOptions::new().append(true).create(true).open(&self.file);
        file.and_then(|mut file| file.write_all(line.as_bytes())).map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &io::Error) -> String {
        format!("{}: {error}", self.file.display())
    }
}

/// The worktree and its target folder, which stays: dependencies are built once.
struct Place {
    tree: PathBuf,
    target: PathBuf,
    keep: bool,
}

impl Place {
    fn make(keep: bool, commit: &str) -> Result<Place> {
        let base = root().join("target/sabotage");
        let place = Place { tree: base.join("tree"), target: base.join("target"), keep };
        if place.tree.join(".git").exists() {
            // Files that are as they were keep their times, and are not built again.
            let mut renew = program("git", &["checkout", "--quiet", "--force", "--detach", commit]);
            if run(renew.current_dir(&place.tree)).is_ok() {
                return Ok(place);
            }
        }
        place.remove();
        fs::create_dir_all(&base).map_err(|error| format!("{}: {error}", base.display()))?;
        let mut add = program("git", &["worktree", "add", "--quiet", "--force", "--detach"]);
        run(add.arg(&place.tree).arg(commit))?;
        Ok(place)
    }

    fn remove(&self) {
        // What is not there need not be removed; of a killed run only the entry may be left.
        let quiet = |command: &mut Command| command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        let _ = quiet(program("git", &["worktree", "remove", "--force"]).arg(&self.tree));
        let _ = fs::remove_dir_all(&self.tree);
        let _ = quiet(&mut program("git", &["worktree", "prune"]));
    }

    fn check_applies(&self, mutation: &Mutation) -> Result {
        mutation.applied(&self.read(mutation.file)?).map(drop)
    }

    fn read(&self, file: &str) -> Result<String> {
        fs::read_to_string(self.tree.join(file)).map_err(|error| format!("{file}: {error}"))
    }

    fn write(&self, file: &str, text: &str) -> Result {
        fs::write(self.tree.join(file), text).map_err(|error| format!("{file}: {error}"))
    }

    /// Each suite passes as long as nothing is taken out.
    fn check_suites<'a>(&self, chosen: impl Iterator<Item = &'a Mutation>) -> Result {
        let mut suites: Vec<Suite> = Vec::new();
        for mutation in chosen {
            if !suites.contains(&mutation.suite) {
                suites.push(mutation.suite);
            }
        }
        for suite in suites {
            println!("== unchanged: {}", suite.shown());
            self.build(suite)?;
            if self.test(suite)? != Ended::Passed {
                return Err(format!("{} fails without any change", suite.shown()));
            }
        }
        Ok(())
    }

    fn try_out(&self, mutation: &Mutation) -> Result<Ended> {
        let right = self.read(mutation.file)?;
        self.write(mutation.file, &mutation.applied(&right)?)?;
        let ended = self.build(mutation.suite).and_then(|()| self.test(mutation.suite));
        self.write(mutation.file, &right)?;
        ended
    }

    fn cargo(&self, arguments: &[&str]) -> Command {
        let mut command = cargo(arguments);
        command.current_dir(&self.tree).env("CARGO_TARGET_DIR", &self.target);
        // Small and quick to link.
        command.env("CARGO_PROFILE_DEV_DEBUG", "0").env("WHIMBREL_REQUIRE_PEERS", "1");
        command
    }

    fn build(&self, suite: Suite) -> Result {
        output(&mut self.cargo(&[suite.target, &["--no-run", "--quiet"]].concat())).map(drop)
    }

    fn test(&self, suite: Suite) -> Result<Ended> {
        let log = self.target.join("sabotage.log");
        let file = fs::File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
        let both = file.try_clone().map_err(|error| format!("{}: {error}", log.display()))?;
        let mut command = self.cargo(&[suite.target, &["--"], suite.filter].concat());
        let mut child = command.stdout(file).stderr(both).spawn().map_err(|error| format!("cargo: {error}"))?;
        let began = Instant::now();
        loop {
            if let Some(status) = child.try_wait().map_err(|error| format!("cargo: {error}"))? {
                if !status.success() {
                    show_failures(&log);
                }
                return Ok(if status.success() { Ended::Passed } else { Ended::Failed });
            }
            if began.elapsed() > LIMIT {
                child.kill().and_then(|()| child.wait()).map_err(|error| format!("cargo: {error}"))?;
                return Ok(Ended::TooLate);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !self.keep {
            self.remove();
        }
    }
}

/// Which tests failed, of what a suite printed.
fn show_failures(log: &Path) {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let failed = |line: &&str| line.ends_with("... FAILED") || line.contains("panicked at");
    text.lines().filter(failed).take(8).for_each(|line| println!("   {line}"));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_mutation_changes_one_place_of_the_present_source() {
        let wrong: Vec<String> = all().filter_map(|mutation| applied_today(mutation).err()).collect();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    fn applied_today(mutation: &Mutation) -> Result {
        let text =
            fs::read_to_string(root().join(mutation.file)).map_err(|error| format!("{}: {error}", mutation.file))?;
        if mutation.applied(&text)? == text { Err(format!("{}: changes nothing", mutation.name)) } else { Ok(()) }
    }

    #[test]
    fn a_record_tells_mutations_by_their_names() {
        let names: BTreeSet<&str> = all().map(|mutation| mutation.name).collect();
        assert_eq!(names.len(), all().count());
    }

    #[test]
    fn a_record_knows_what_was_found_of_its_sources_only() {
        let file = std::env::temp_dir().join(format!("whimbrel-sabotage-record-{}", std::process::id()));
        let record = |sources: &str| Record { file: file.clone(), sources: sources.to_owned() };
        assert_eq!(record("one").read(), Ok(BTreeMap::new()));
        for (sources, name, noticed) in [("one", "sync: a", true), ("two", "sync: a", false), ("one", "sync: b", false)]
        {
            record(sources).add(name, noticed).unwrap();
        }
        let known = [("sync: a".to_owned(), true), ("sync: b".to_owned(), false)];
        assert_eq!(record("one").read(), Ok(BTreeMap::from(known)));
        fs::write(&file, "one\tperhaps\tsync: a\n").unwrap();
        assert!(record("one").read().unwrap_err().contains("perhaps"));
        fs::remove_file(&file).unwrap();
    }
}

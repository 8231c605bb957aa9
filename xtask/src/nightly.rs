//! The suites that are too long for CI.

use std::fs;
use std::time::Instant;

use crate::command::{Result, cargo, output, program, root, run};
use crate::hygiene::{self, NO_CARGO_DENY};
use crate::measure::measure;
use crate::{coverage, fuzz, sabotage, test};

/// One suite: its name on the command line, what it is, and how it runs.
struct Suite {
    name: &'static str,
    what: &'static str,
    run: fn() -> Result,
}

const SUITES: [Suite; 12] = [
    Suite { name: "tests", what: "what CI runs", run: || test::run_stages(None) },
    Suite { name: "long", what: "tests marked nightly", run: long_tests },
    Suite { name: "deny", what: "licences, sources and advisories of dependencies", run: dependencies },
    Suite { name: "gsi", what: "interoperability with certificates", run: || interop_over("gsi") },
    Suite { name: "tls", what: "interoperability over TLS", run: || interop_over("tls") },
    Suite { name: "ssh", what: "interoperability over ssh", run: || interop_over("ssh") },
    Suite { name: "bench", what: "comparison with the peers", run: || measure("bench", &[]) },
    Suite { name: "paper", what: "the paper's figures", run: || measure("paper", &[]) },
    Suite { name: "paths", what: "paths without options", run: || measure("paths", &[]) },
    Suite { name: "sabotage", what: "every sync and check taken out", run: || sabotage::run_mutations(&[]) },
    Suite { name: "coverage", what: "lines of parsers that fuzz inputs reach", run: coverage::measure },
    Suite { name: "fuzz", what: "fuzzing, 5 minutes a target", run: || fuzz::run_targets(&["+5"]) },
];

const PAGE: &str = "\
# Nightly runs

Written by `cargo xtask nightly [SUITE...]`, a line for each suite as soon as it has ended.

| date | commit | suite | minutes | result |
| --- | --- | --- | --: | --- |
";

/// Runs the suites of these names, all if there are none; each outcome is recorded as soon as it is known, so that what cuts
/// the night short costs no more than the suite that was running.
pub fn run_suites(names: &[&str]) -> Result {
    let chosen = choose(names)?;
    let mut failed = Vec::new();
    for suite in chosen {
        println!("== nightly: {}", suite.what);
        let began = Instant::now();
        // As it was when the suite began: some write what they found into the tree.
        let commit = output(&mut program("git", &["describe", "--always", "--dirty", "--exclude=*"]))?;
        let verdict = match (suite.run)() {
            Ok(()) => "passed",
            Err(message) if message == NO_CARGO_DENY => {
                println!("skipped: {message}");
                "skipped"
            }
            Err(message) => {
                eprintln!("{message}");
                failed.push(suite.name);
                "**failed**"
            }
        };
        record(suite, commit.trim(), began.elapsed().as_secs().div_ceil(60), verdict)?;
    }
    match failed[..] {
        [] => Ok(()),
        _ => Err(format!("nightly failed: {}", failed.join(" "))),
    }
}

fn choose(names: &[&str]) -> Result<Vec<&'static Suite>> {
    if names.is_empty() {
        return Ok(SUITES.iter().collect());
    }
    let find = |name: &&str| {
        let known = || SUITES.map(|suite| suite.name).join(" ");
        SUITES.iter().find(|suite| suite.name == *name).ok_or_else(|| format!("{name}: none of {}", known()))
    };
    names.iter().map(find).collect()
}

/// Tests marked as ignored with the reason "nightly"; those that other tests run by themselves are named `case_`.
fn long_tests() -> Result {
    let tests = ["test", "--workspace", "--locked", "--no-fail-fast", "--", "--ignored", "--skip", "case_"];
    let mut command = cargo(&tests);
    run(command.env("WHIMBREL_REQUIRE_PEERS", "1"))
}

/// What hygiene looks at, and known vulnerabilities, whose list comes from the network.
fn dependencies() -> Result {
    hygiene::dependencies(&["advisories", "bans", "licenses", "sources"])
}

/// The cases of interoperability that this protection fits, with every control connection over it.
fn interop_over(protection: &str) -> Result {
    let mut command = cargo(&["test", "--workspace", "--locked", "--test", "interop", "--", "--include-ignored"]);
    run(command.env("WHIMBREL_REQUIRE_PEERS", "1").env("WHIMBREL_INTEROP_OVER", protection))
}

fn record(suite: &Suite, commit: &str, minutes: u64, verdict: &str) -> Result {
    let date = output(&mut program("date", &["-u", "+%Y-%m-%d %H:%M"]))?;
    let file = root().join("docs/reference/nightly.md");
    let mut text = fs::read_to_string(&file).unwrap_or_else(|_| PAGE.into());
    text += &format!("| {} | {commit} | {}: {} | {minutes} | {verdict} |\n", date.trim(), suite.name, suite.what);
    fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_are_chosen_by_name_in_the_order_given() {
        let names = |chosen: Vec<&Suite>| chosen.iter().map(|suite| suite.name).collect::<Vec<_>>();
        assert_eq!(names(choose(&[]).expect("all")).len(), SUITES.len());
        assert_eq!(names(choose(&["paths", "long"]).expect("two")), ["paths", "long"]);
        let refused = "x: none of tests long deny gsi tls ssh bench";
        assert!(choose(&["long", "x"]).is_err_and(|error| error.starts_with(refused)));
    }
}

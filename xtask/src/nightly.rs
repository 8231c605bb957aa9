//! The suites that are too long for CI.

use std::fs;

use crate::command::{Result, cargo, output, program, root, run};
use crate::measure::measure;
use crate::{fuzz, sabotage, test};

/// Everything: the tests, the long tests, the measurements, sabotage, some fuzzing; the outcome is recorded.
pub fn run_all() -> Result {
    let results = [
        ("tests", test::run_stages(None)),
        ("long tests", long_tests()),
        ("comparison", measure("bench", &[])),
        ("the paper's figures", measure("paper", &[])),
        ("paths without options", measure("paths", &[])),
        ("sabotage", sabotage::run_mutations(&[])),
        ("fuzz, 5 minutes a target", fuzz::run_targets(&["+5"])),
    ];
    record(&results)?;
    match results.iter().find(|(_, result)| result.is_err()) {
        None => Ok(()),
        Some((name, _)) => Err(format!("nightly failed: {name}")),
    }
}

/// Tests marked as ignored with the reason "nightly".
fn long_tests() -> Result {
    let mut command = cargo(&["test", "--workspace", "--locked", "--", "--ignored"]);
    run(command.env("WHIMBREL_REQUIRE_PEERS", "1"))
}

fn record(results: &[(&str, Result)]) -> Result {
    let commit = output(&mut program("git", &["rev-parse", "--short", "HEAD"]))?;
    let date = output(&mut program("date", &["-u", "+%Y-%m-%d"]))?;
    let file = root().join("docs/reference/nightly.md");
    let mut text = fs::read_to_string(&file)
        .unwrap_or_else(|_| "# Nightly runs\n\n| date | commit | suite | result |\n| --- | --- | --- | --- |\n".into());
    for (name, result) in results {
        let verdict = if result.is_ok() { "passed" } else { "failed" };
        text += &format!("| {} | {} | {name} | {verdict} |\n", date.trim(), commit.trim());
    }
    fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))
}

//! Fuzz targets, for as long as asked; their corpora are replayed by the ordinary tests.

use std::fs;

use crate::command::{Result, program, root, run};

/// Runs every target for `minutes` (default 60) of wall-clock time each.
pub fn run_targets(minutes: Option<&str>) -> Result {
    let minutes: u64 = minutes.unwrap_or("60").parse().map_err(|_| "MINUTES must be a number".to_owned())?;
    let seconds = format!("-max_total_time={}", minutes * 60);
    for target in targets()? {
        run(&mut program("cargo", &["+nightly", "fuzz", "run", &target, "--", &seconds, "-rss_limit_mb=2048"]))?;
    }
    Ok(())
}

fn targets() -> Result<Vec<String>> {
    let folder = root().join("fuzz/fuzz_targets");
    let entries = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| entry.path().file_stem().map(|stem| stem.to_string_lossy().into_owned()))
        .collect();
    names.sort();
    Ok(names)
}

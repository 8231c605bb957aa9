//! Fuzz targets, each until it has used so much processor time; their corpora are replayed by the ordinary tests.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, Write as _};

use crate::command::{Result, program, root, run};

/// Inputs found while fuzzing go here, never into the tracked corpus.
const SCRATCH: &str = "fuzz/target/corpus";

/// Processor seconds that each target has used, over all runs anywhere: tracked, a line `TARGET<tab>SECONDS` each.
const LEDGER: &str = "fuzz/ledger.tsv";

/// Clock ticks a second in `/proc` (`USER_HZ`, fixed at 100 on every Linux that Rust supports).
const TICKS: u64 = 100;

/// The longest a target runs before the next has its turn, seconds of wall-clock time.
const TURN: u64 = 300;

/// Runs the named targets (default: all) in turns until each has used `MINUTES` (default 60) of processor time,
/// over all runs that the ledger knows, or `+MINUTES` more.
pub fn run_targets(args: &[&str]) -> Result {
    let asked = *args.first().unwrap_or(&"60");
    let minutes: u64 = asked.trim_start_matches('+').parse().map_err(|_| "MINUTES must be a number".to_owned())?;
    let named: Vec<String> = args.iter().skip(1).map(|name| (*name).to_owned()).collect();
    let targets = if named.is_empty() { targets()? } else { named };
    run(&mut program("cargo", &["+nightly", "fuzz", "build", "-s", "none"]))?;
    let mut goals = Vec::new();
    for target in &targets {
        let earlier = if asked.starts_with('+') { used_seconds(target)? } else { 0 };
        goals.push((target, earlier + minutes * 60));
    }
    while let Some((target, missing)) = furthest_from_its_goal(&goals)? {
        take_turn(target, missing.min(TURN))?;
    }
    Ok(())
}

/// The target that has most left to do, and how much, seconds; none when all are done.
fn furthest_from_its_goal<'a>(goals: &[(&'a String, u64)]) -> Result<Option<(&'a str, u64)>> {
    let mut furthest = None;
    for (target, goal) in goals {
        let missing = goal.saturating_sub(used_seconds(target)?);
        if missing > furthest.map_or(0, |(_, most)| most) {
            furthest = Some((target.as_str(), missing));
        }
    }
    Ok(furthest)
}

/// Runs one target for so many seconds and notes what it used.
fn take_turn(target: &str, seconds: u64) -> Result {
    let scratch = format!("{SCRATCH}/{target}");
    for folder in [scratch.as_str(), "fuzz/artifacts"] {
        fs::create_dir_all(root().join(folder)).map_err(|error| format!("{folder}: {error}"))?;
    }
    let binary = format!("fuzz/target/x86_64-unknown-linux-gnu/release/{target}");
    let limit = format!("-max_total_time={seconds}");
    let artifacts = format!("-artifact_prefix=fuzz/artifacts/{target}-");
    let dictionary = format!("-dict=fuzz/{}", dictionary(target));
    // The first corpus is written, the second only read.
    let tracked = format!("fuzz/corpus/{target}");
    let options = ["-rss_limit_mb=2048", "-reload=0", "-print_final_stats=1", "-verbosity=1"];
    let mut fuzzer = program(&binary, &[&scratch, &tracked, &limit, &artifacts, &dictionary]);
    let before = children_seconds()?;
    let ran = run(fuzzer.args(options));
    let used = note(target, children_seconds()? - before)?;
    println!("{target}: {used} CPU seconds so far");
    ran
}

/// What clients read has words of its own, and so have files and what comes from the web.
fn dictionary(target: &str) -> &'static str {
    match target {
        "reply" | "client_machine" | "mlsx" | "hostport" => "replies.dict",
        "gridftp_conf" | "kept_records" | "rules" | "user_files" | "users_config" => "files.dict",
        "jwt" | "mapping" | "web_requests" => "web.dict",
        _ => "commands.dict",
    }
}

fn used_seconds(target: &str) -> Result<u64> {
    match fs::read_to_string(root().join(LEDGER)) {
        Ok(text) => Ok(entries(&text)?.get(target).copied().unwrap_or(0)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(format!("{LEDGER}: {error}")),
    }
}

fn entries(text: &str) -> Result<BTreeMap<String, u64>> {
    let entry = |line: &str| {
        let (target, seconds) = line.split_once('\t')?;
        Some((target.to_owned(), seconds.parse().ok()?))
    };
    text.lines().map(|line| entry(line).ok_or_else(|| format!("{LEDGER}: not TARGET and SECONDS: {line}"))).collect()
}

/// Adds to what a target has used; returns the sum.
///
/// The file is locked meanwhile: two runs with different targets go side by side.
fn note(target: &str, seconds: u64) -> Result<u64> {
    let shown = |error: std::io::Error| format!("{LEDGER}: {error}");
    let path = root().join(LEDGER);
    let mut file = File::options().read(true).write(true).create(true).truncate(false).open(path).map_err(shown)?;
    file.lock().map_err(shown)?;
    let mut text = String::new();
    file.read_to_string(&mut text).map_err(shown)?;
    let mut entries = entries(&text)?;
    let sum = entries.get(target).copied().unwrap_or(0) + seconds;
    entries.insert(target.to_owned(), sum);
    let text: String = entries.iter().map(|(target, seconds)| format!("{target}\t{seconds}\n")).collect();
    file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(text.as_bytes())).map_err(shown)?;
    Ok(sum)
}

/// Processor time of every child that has ended, seconds (`cutime` and `cstime` of proc(5)).
fn children_seconds() -> Result<u64> {
    let stat = fs::read_to_string("/proc/self/stat").map_err(|error| format!("/proc/self/stat: {error}"))?;
    // Behind the program's name, which may hold blanks, field 3 comes first.
    let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
    let ticks = |field: usize| fields.get(field - 3).and_then(|text| text.parse::<u64>().ok());
    match (ticks(16), ticks(17)) {
        (Some(user), Some(system)) => Ok((user + system) / TICKS),
        _ => Err("/proc/self/stat has no processor times of children".into()),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ledger_names_targets_of_today_and_is_read_whole() {
        let text = fs::read_to_string(root().join(LEDGER)).expect("the ledger is tracked");
        let known = targets().expect("there are targets");
        assert!(entries(&text).expect("every line is an entry").keys().all(|target| known.contains(target)));
        assert!(entries("line\tmany\n").is_err_and(|error| error.contains("line\tmany")));
    }
}

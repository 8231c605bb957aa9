//! Fuzz targets, each until it has used so much processor time; their corpora are replayed by the ordinary tests.

use std::fs;
use std::path::PathBuf;

use crate::command::{Result, program, root, run};

/// Inputs found while fuzzing go here, never into the tracked corpus.
const SCRATCH: &str = "fuzz/target/corpus";

/// Processor seconds that each target has used, over all runs on this checkout.
const LEDGER: &str = "fuzz/target/cpu";

/// Clock ticks a second in `/proc` (`USER_HZ`, fixed at 100 on every Linux that Rust supports).
const TICKS: u64 = 100;

/// The longest a target runs before the next has its turn, seconds of wall-clock time.
const TURN: u64 = 300;

/// Runs the named targets (default: all) in turns until each has used `MINUTES` (default 60) of processor time,
/// over all runs on this checkout, or `+MINUTES` more.
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
    for folder in [scratch.as_str(), LEDGER, "fuzz/artifacts"] {
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
    let used = used_seconds(target)? + (children_seconds()? - before);
    let ledger = ledger(target);
    fs::write(&ledger, used.to_string()).map_err(|error| format!("{}: {error}", ledger.display()))?;
    println!("{target}: {used} CPU seconds so far");
    ran
}

/// What clients read has words of its own.
fn dictionary(target: &str) -> &'static str {
    match target {
        "reply" | "client_machine" | "mlsx" | "hostport" => "replies.dict",
        _ => "commands.dict",
    }
}

fn ledger(target: &str) -> PathBuf {
    root().join(LEDGER).join(target)
}

fn used_seconds(target: &str) -> Result<u64> {
    match fs::read_to_string(ledger(target)) {
        Ok(text) => text.trim().parse().map_err(|_| format!("{}: not a number", ledger(target).display())),
        Err(_) => Ok(0),
    }
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

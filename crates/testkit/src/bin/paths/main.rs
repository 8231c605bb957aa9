//! Whether the automatic plan is as good as any fixed one, on paths drawn by seed: `paths --help`.
//!
//! The exit status is 0 when all promises are kept on all paths, 1 when one is broken or a path could not be measured.

mod draw;
mod options;
mod page;
mod record;
mod setting;
mod stage;
mod trial;

use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use whimbrel_testkit::kept_memory::KeptMemory;
use whimbrel_testkit::measure::{Copies, Machine, Outcome, run_program};

use draw::{Draw, draw};
use options::Options;
use record::Record;
use stage::Stage;
use trial::Trial;

/// Longest run of which nothing else is wanted.
const ALONE_LIMIT: Duration = Duration::from_secs(300);

fn main() -> ExitCode {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |time| time.as_secs());
    run_program("paths", options::HELP, Options::parse(std::env::args().skip(1), now), try_all)
}

/// Tries every path, prints and writes; whether all promises are kept.
fn try_all(options: &Options) -> Outcome<bool> {
    let draw = |number: &u32| draw(options.seed, *number, options.seconds, options.most);
    let draws: Vec<Draw> = options.paths.iter().map(draw).collect();
    println!("seed {}, at most {} Mbit/s", options.seed, options.most);
    if options.list {
        draws.iter().for_each(|draw| println!("{}: {draw}", draw.number));
        return Ok(true);
    }
    // Of the time when the programs are copied: hours later the checkout may be another.
    let (machine, sources) = (machine()?, record::sources()?);
    let copies = Copies::of_beside(&["whimbrel"])?;
    let whimbrel = copies.path("whimbrel");
    let _memory = KeptMemory::hold();
    if options.alone || !options.against.is_empty() {
        return try_ideas(options, &draws, &whimbrel).map(|()| true);
    }
    let mut record = Record::new(options, &whimbrel, sources, machine)?;
    if let Some(file) = options.json.as_deref().filter(|file| options.go_on && file.exists()) {
        record.go_on_with(file)?;
    }
    let mut trials = Vec::new();
    for draw in &draws {
        println!("{}: {draw}", draw.number);
        let tried = match record.of_path(draw.number) {
            Some(known) => Trial::of_json(draw, known),
            None => trial::run(draw, &whimbrel, options.rounds).inspect(|trial| record.paths.push(trial.json())),
        };
        match tried {
            Ok(trial) => {
                println!("   {:.2} of best, {}: {}", trial.of_best(), trial.named, trial.complaints());
                trials.push(trial);
            }
            Err(error) => {
                println!("   not measured: {error}");
                let why = error.to_string();
                record.failures.push(format!("path {}: {}", draw.number, why.lines().next().unwrap_or_default()));
            }
        }
        if let Some(file) = &options.json {
            record.save(file)?;
        }
    }
    println!("\n{}", page::table(&trials));
    if options.write {
        let reference = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference"));
        fs::write(reference.join("paths.md"), page::page(&record, &trials))?;
        record.save(&reference.join("paths.json"))?;
    }
    Ok(record.failures.is_empty() && trials.iter().all(Trial::passes))
}

/// Runs for finding out why.
fn try_ideas(options: &Options, draws: &[Draw], whimbrel: &Path) -> Outcome<()> {
    for draw in draws {
        println!("{}: {draw}", draw.number);
        if options.alone {
            alone(draw, whimbrel)?;
            continue;
        }
        for runs in trial::compare(draw, &Stage::build(draw, whimbrel)?, &options.against, options.rounds)? {
            println!("   {:7.2} s {}", runs.median(), runs.name);
        }
    }
    Ok(())
}

/// One run without options, with everything that it says of itself.
fn alone(draw: &Draw, whimbrel: &Path) -> Outcome<()> {
    let sample = Stage::build(draw, whimbrel)?.run(&[], ALONE_LIMIT)?;
    println!("{:?}\n{:#}", sample.wall, sample.explained);
    Ok(())
}

/// What it ran on, in a few words.
fn machine() -> Outcome<String> {
    let Machine { cores, kernel, date, commit, .. } = Machine::read()?;
    let load = fs::read_to_string("/proc/loadavg")?;
    let load = load.split(' ').nth(1).unwrap_or_default();
    Ok(format!("{date}, commit {commit}, {cores} cores, load {load}, Linux {kernel}"))
}

//! Whole programs under faults drawn from seeds: kills, cuts, flipped bits, full disks, changing sources.
//!
//! Whatever happens, a copy ends as a whole right file with exit code 0, or with a fault that names side, cause and
//! cure; and then the same command without faults finishes it and moves no proven byte again. Whether a file is right
//! is for `cmp` to say. `WHIMBREL_FAULT_SEEDS=a..b` chooses other seeds.
#![allow(clippy::unwrap_used, reason = "a test helper that fails ends its test")]

mod stage;
mod story;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use serde_json::Value;
use stage::{OLD, PATIENCE, Stage, WHIMBREL};
use story::{Ends, Story, Trouble};
use whimbrel_testkit::peers::Daemon;
use whimbrel_testkit::require_root;

/// Runs at once: most of a run is waiting for the next attempt.
const THREADS: usize = 4;

/// Chunks in the air for each session at most; with one more that was just proven.
const IN_THE_AIR: u64 = 4;

#[test]
fn fifty_seeds_of_faults_end_in_right_files_or_precise_faults_and_resume() {
    run_seeds(0..50);
}

#[test]
#[ignore = "nightly"]
fn five_hundred_seeds_of_faults_end_in_right_files_or_precise_faults_and_resume() {
    run_seeds(1000..1500);
}

fn run_seeds(usual: std::ops::Range<u64>) {
    if !require_root() {
        return;
    }
    let seeds = chosen().unwrap_or(usual);
    let (next, failed) = (AtomicU64::new(seeds.start), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                while let Some(seed) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| *seed < seeds.end) {
                    if catch_unwind(AssertUnwindSafe(|| run(seed))).is_err() {
                        failed.lock().unwrap().push(seed);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    let again = |seed: &u64| {
        format!("WHIMBREL_FAULT_SEEDS={seed}..{} cargo test -p whimbrel --test fault_runs fifty\n", seed + 1)
    };
    assert!(failed.is_empty(), "seeds {failed:?} failed; again with\n{}", failed.iter().map(again).collect::<String>());
}

fn chosen() -> Option<std::ops::Range<u64>> {
    let text = std::env::var("WHIMBREL_FAULT_SEEDS").ok()?;
    let (start, end) = text.split_once("..").expect("seeds are given as a..b");
    Some(start.parse().expect("a number")..end.parse().expect("a number"))
}

/// How a copy went.
struct Went {
    /// `None`: it was killed.
    code: Option<i32>,
    events: Vec<Value>,
    log: String,
}

impl Went {
    fn all<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a Value> {
        self.events.iter().filter(move |event| event["event"] == kind)
    }
}

fn run(seed: u64) {
    let story = Story::of(seed);
    let stage = Stage::set(&story);
    let mut log = format!("{story:#?}\n");
    let result = catch_unwind(AssertUnwindSafe(|| play(&story, &stage, &mut log)));
    if std::env::var_os("WHIMBREL_FAULT_TALK").is_some() {
        eprintln!("seed {seed}: {:?}", stage.way.happened());
    }
    if let Err(panic) = result {
        eprintln!("seed {seed} failed\n{log}\n{:#?}\n{}", stage.way.happened(), stage.logs());
        std::panic::resume_unwind(panic);
    }
}

fn play(story: &Story, stage: &Arc<Stage>, log: &mut String) {
    for (moment, trouble) in story.troubles.clone() {
        if let Trouble::FlipOnTheWay { byte, bit } = trouble {
            stage.way.flip(byte, bit);
            continue;
        }
        let stage_then = Arc::downgrade(stage);
        stage.way.at(moment, move |_| {
            if let Some(stage) = stage_then.upgrade() {
                stage.suffer(&trouble);
            }
        });
    }
    let first = copy(story, stage);
    log.push_str(&format!("--- first run: {:?}\n{}\n", first.code, first.log));
    judge(story, stage, &first);
    let moved = stage.way.bytes();
    let lost = first.all("retry").count() + first.all("session_lost").count() + first.all("leaf_wrong").count();
    let again = (lost as u64 + 1) * u64::from(story.sessions) * IN_THE_AIR * story.chunk;
    let bound = story.size + story.size / 50 + again;
    assert!(story.changes_source() || moved <= bound, "{moved} bytes were moved, of at most {bound}");
    stage.heal();
    if first.code != Some(0) {
        finish(story, stage, &first, log);
    }
}

/// The next run of the same command, without faults.
fn finish(story: &Story, stage: &Stage, first: &Went, log: &mut String) {
    if !story.at_once {
        stage.restart();
    }
    let proven = proven(story, stage);
    let kept = first.all("retry").last().and_then(|event| event["kept"].as_u64()).unwrap_or(0);
    log.push_str(&format!("--- {proven} bytes are proven, {kept} were at the last retry\n"));
    let forgotten = story.changes_source() || same(&stage.copy(), &stage.source());
    assert!(forgotten || proven >= kept, "{kept} bytes were proven, the journal has {proven}");
    let second = copy(story, stage);
    log.push_str(&format!("--- second run: {:?}\n{}\n", second.code, second.log));
    assert_eq!(second.code, Some(0), "without faults it must succeed");
    judge(story, stage, &second);
    if !story.at_once && stage.source().metadata().unwrap().len() == story.size {
        // Whoever was killed after its commit has nothing to go on with.
        stage.wait_for_moved(story.size - proven);
    }
}

/// Bytes that need not be moved again, by the journal; only if it speaks of the source as it is.
fn proven(story: &Story, stage: &Stage) -> u64 {
    let Some(trusted) = stage.journal() else { return 0 };
    let source = stage.source().metadata().unwrap();
    let Some(header) = trusted.header else { return 0 };
    let modified = source.modified().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap();
    let same = header.size == source.len()
        && header.modified.is_none_or(|time| time == (modified.as_secs() as i64, modified.subsec_nanos()))
        && story.size == header.size;
    if same { trusted.leaves.iter().map(|leaf| leaf.range.end - leaf.range.start).sum() } else { 0 }
}

fn copy(story: &Story, stage: &Stage) -> Went {
    let mut command = Command::new(WHIMBREL);
    command.args(["--json", "cp", "--verify", "require", "--checksum", story.checksum]);
    for (option, value) in [
        ("--chunk", story.chunk),
        ("--concurrency", story.sessions.into()),
        ("--parallelism", story.channels.into()),
        ("--attempts", story.attempts.into()),
    ] {
        command.args([option, &value.to_string()]);
    }
    command.args(stage.places());
    let (mut client, ()) = Daemon::start(command, PATIENCE, |_| Some(())).expect("it says something");
    stage.client_runs(Some(client.id()));
    let status = client.wait(PATIENCE * 2).unwrap_or_else(|error| panic!("{error}"));
    stage.client_runs(None);
    let log = client.into_log();
    let events = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    Went { code: status.code(), events, log }
}

/// A whole right file, or a precise fault and no wrong file.
fn judge(story: &Story, stage: &Stage, went: &Went) {
    let there = stage.copy().exists();
    let as_before = std::fs::read(stage.copy()).is_ok_and(|bytes| bytes == OLD);
    // Of a bit that flips in the source without a trace nobody can know; it must be one of the two.
    let versions = [stage.source(), stage.original(), stage.flipped()];
    let right = there && versions.iter().any(|version| same(&stage.copy(), version));
    match went.code {
        Some(0) => {
            assert!(right, "a wrong file was reported right");
            let summary = went.all("summary").last().expect("a summary");
            assert_eq!(summary["verified"], 1, "{summary}");
            assert_eq!(stage.hidden_names(), Vec::<std::path::PathBuf>::new(), "nothing may be left behind");
        }
        Some(_) => {
            let failures: Vec<&Value> = went.all("item_failed").chain(went.all("failed")).collect();
            assert!(!failures.is_empty(), "it failed and did not say why");
            for failure in failures {
                let fault = &failure["fault"];
                let said = |field: &Value| field.as_str().is_some_and(|text| !text.is_empty());
                assert!(said(&failure["cause"]) && said(&failure["cure"]), "{failure}");
                assert!(said(&fault["side"]) && fault["side"] != "us" && fault["code"] != "Internal", "{failure}");
            }
        }
        None => {
            let killed = story.troubles.iter().any(|(_, trouble)| *trouble == Trouble::KillClient);
            assert!(killed, "it ended by itself with a signal");
        }
    }
    if went.code != Some(0) {
        assert!(!there || right || (story.replaces && as_before), "a wrong file has the final name");
    }
}

/// What `cmp` says.
fn same(left: &Path, right: &Path) -> bool {
    Command::new("cmp").arg("--silent").args([left, right]).status().expect("cmp runs").success()
}

#[test]
fn a_seed_always_tells_the_same_story_and_all_kinds_of_trouble_come() {
    assert_eq!(format!("{:?}", Story::of(7)), format!("{:?}", Story::of(7)));
    let stories: Vec<Story> = (0..50).map(Story::of).collect();
    let has = |test: fn(&Trouble) -> bool| stories.iter().any(|s| s.troubles.iter().any(|(_, trouble)| test(trouble)));
    assert!(has(|t| *t == Trouble::KillClient) && has(|t| matches!(t, Trouble::KillServer { .. })));
    assert!(has(|t| matches!(t, Trouble::Cut { .. })) && has(|t| matches!(t, Trouble::FlipOnTheWay { .. })));
    assert!(has(|t| *t == Trouble::FlipStored) && has(|t| matches!(t, Trouble::TruncateSource { .. })));
    assert!(has(|t| matches!(t, Trouble::FlipSource { .. })) && has(|t| *t == Trouble::RewriteSource));
    assert!(has(|t| matches!(t, Trouble::Trickle { .. })) && stories.iter().any(|story| story.full));
    let ends = |ends| stories.iter().any(|story| story.ends == ends);
    assert!(ends(Ends::ThirdParty) && ends(Ends::FromServer) && ends(Ends::ToServer));
}

//! Whole programs under faults drawn from seeds: kills, lost power, cuts, flipped bits, full disks, changing sources; of one file,
//! of trees, with servers of another kind.
//!
//! Whatever happens, a copy ends as a whole right file with exit code 0, or with a fault that names side, cause and
//! cure; and then the same command without faults finishes it and moves no proven byte again. Whether a file is right
//! is for `cmp` to say. `WHIMBREL_FAULT_SEEDS=a..b` chooses other seeds, `WHIMBREL_FAULT_TALK=1` tells what happened.
//!
//! What `globus-gridftp-server` does not promise, and is not asked of it: that small files have no name before they are
//! whole (it stores in place), that it tells versions of a source in the same second apart, counters (bytes are counted
//! on the way), and a journal (what is proven is what partial checksums find on its disk).
#![allow(clippy::unwrap_used, reason = "a test helper that fails ends its test")]

mod seat;
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
use stage::{OLD, PATIENCE, Stage, WHIMBREL, is_journal};
use story::{End, Ends, NIGHTLY, Story, Tree, Trouble};
use whimbrel_testkit::peers::Daemon;
use whimbrel_testkit::relay::Moment;
use whimbrel_testkit::require_root;

/// Runs at once: most of a run is waiting for the next attempt.
const THREADS: usize = 4;

/// Chunks in the air for each session at most; with one more that was just proven.
const IN_THE_AIR: u64 = 4;

/// Small files in the air for each session at most, bytes: packs, and what they do not take.
const SMALL_IN_THE_AIR: u64 = 1 << 20;

#[test]
fn fifty_seeds_of_faults_end_in_right_files_or_precise_faults_and_resume() {
    run_seeds(0..50);
}

/// Its source changes between a part's proof and its being moved again, because the answer to the proof is lost, and comes back as it was.
#[test]
fn a_part_that_is_moved_again_from_another_source_is_not_taken_for_proven() {
    run_seeds(1391..1392);
}

#[test]
#[ignore = "nightly"]
fn five_hundred_seeds_of_faults_end_in_right_files_or_precise_faults_and_resume() {
    run_seeds(NIGHTLY..NIGHTLY + 500);
}

/// Bytes that were damaged in storage, over all runs.
static DAMAGED: AtomicU64 = AtomicU64::new(0);

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
    // Whether a moment finds one to damage depends on the machine; that none does on whether it is looked for rightly.
    assert!(seeds.end - seeds.start < 50 || DAMAGED.load(Ordering::Relaxed) > 0, "no stored byte was ever damaged");
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
    let damaged = stage.way.happened().iter().filter(|what| what.contains("stored byte")).count();
    DAMAGED.fetch_add(damaged as u64, Ordering::Relaxed);
    if std::env::var_os("WHIMBREL_FAULT_TALK").is_some() {
        eprintln!("seed {seed}: {:?}", stage.way.happened());
    }
    if let Err(panic) = result {
        eprintln!("seed {seed} failed\n{log}\n{:#?}\n{}", stage.way.happened(), stage.logs());
        std::panic::resume_unwind(panic);
    }
}

/// Has each trouble happen at its moment.
fn arrange(story: &Story, stage: &Arc<Stage>) {
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
}

fn play(story: &Story, stage: &Arc<Stage>, log: &mut String) {
    arrange(story, stage);
    let first = copy(story, stage);
    log.push_str(&format!("--- first run: {:?}\n{}\n", first.code, first.log));
    judge(story, stage, &first);
    let moved = stage.way.bytes();
    let lost = first.all("retry").count() + first.all("session_lost").count() + first.all("leaf_wrong").count();
    let in_the_air = IN_THE_AIR * story.chunk + story.tree.map_or(0, |_| SMALL_IN_THE_AIR);
    let again = (lost as u64 + 1) * u64::from(story.sessions) * in_the_air;
    let bound = framed(stage, story.size + stage.around().map(|(from, _)| length(&from)).sum::<u64>()) + again;
    assert!(story.changes_source() || moved <= bound, "{moved} bytes were moved, of at most {bound}");
    stage.heal();
    if first.code != Some(0) {
        finish(story, stage, &first, log);
    }
    if story.loses_power() {
        // What was reported right is there whatever happens; of small files of a tree only `--move` and tallies ask for that.
        stage.lose_power(true);
        let right = stage.versions().iter().any(|version| same(&stage.copy(), version));
        assert!(right, "what was reported right is gone with the power");
    }
}

/// The next run of the same command, without faults.
fn finish(story: &Story, stage: &Stage, first: &Went, log: &mut String) {
    if !story.at_once {
        stage.restart();
    }
    let proven = proven(story, stage);
    let retries =
        first.all("retry").filter(|event| event["source"].as_str().is_some_and(|name| name.ends_with("/file")));
    let kept = retries.last().and_then(|event| event["kept"].as_u64()).unwrap_or(0);
    log.push_str(&format!("--- {proven} bytes are proven, {kept} were at the last retry\n"));
    let forgotten = story.changes_source() || same(&stage.copy(), &stage.source()) || no_journal(story);
    assert!(forgotten || proven >= kept, "{kept} bytes were proven, the journal has {proven}");
    let (missing, before) = (missing(story, stage, proven), stage.way.bytes());
    let second = copy(story, stage);
    log.push_str(&format!("--- second run: {:?}\n{}\n", second.code, second.log));
    assert_eq!(second.code, Some(0), "without faults it must succeed");
    judge(story, stage, &second);
    // Whoever was killed after its commit has nothing to go on with.
    if story.at_once || length(&stage.source()) != story.size {
        return;
    }
    if no_journal(story) {
        let (moved, bound) = (stage.way.bytes() - before, framed(stage, missing));
        assert!(moved <= bound, "{moved} bytes were moved, of at most {bound}");
    } else {
        stage.wait_for_moved(missing - moved_earlier(story, &second));
    }
}

/// Bytes of files that a killed first run had written into its tally, which it does now and then; `judge` has compared
/// them, and with `--sync` they are not missing anyway. Of a host that has started anew since, their digests are asked for.
fn moved_earlier(story: &Story, second: &Went) -> u64 {
    if story.tree.is_some_and(|tree| tree.sync) {
        return 0;
    }
    let is_there = |event: &&Value| event["reason"] == "moved_earlier" || event["reason"] == "same_checksum";
    let skipped = second.all("item_skipped").filter(is_there);
    skipped.map(|event| length(Path::new(event["source"].as_str().unwrap()))).sum()
}

/// The destination keeps neither a journal nor counters.
fn no_journal(story: &Story) -> bool {
    story.stock == Some(End::Destination)
}

fn length(path: &Path) -> u64 {
    path.metadata().map_or(0, |meta| meta.len())
}

/// Most bytes on the way for so many of files, with framing and what small files cost.
fn framed(stage: &Stage, bytes: u64) -> u64 {
    bytes + bytes / 50 + (16 << 10) + 1024 * stage.around().count() as u64
}

/// Bytes that the next run has to move.
fn missing(story: &Story, stage: &Stage, proven: u64) -> u64 {
    // Without --sync what is there is replaced.
    let skips = |from: &Path, to: &Path| story.tree.is_some_and(|tree| tree.sync) && same(from, to);
    let around = stage.around().filter(|(from, to)| !skips(from, to)).map(|(from, _)| length(&from)).sum::<u64>();
    let file = if skips(&stage.source(), &stage.copy()) { 0 } else { story.size - proven };
    around + file
}

/// Bytes that need not be moved again, by the journal; only if it speaks of the source as it is.
fn proven(story: &Story, stage: &Stage) -> u64 {
    if no_journal(story) {
        return agreeing(stage);
    }
    let Some(trusted) = stage.journal() else { return 0 };
    let source = stage.source().metadata().unwrap();
    let Some(header) = trusted.header else { return 0 };
    let modified = source.modified().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap();
    // The stock server tells whole seconds.
    let nanos = if story.stock == Some(End::Source) { 0 } else { modified.subsec_nanos() };
    let same = header.size == source.len()
        && header.modified.is_none_or(|time| time == (modified.as_secs() as i64, nanos))
        && story.size == header.size;
    if same { trusted.leaves.iter().map(|leaf| leaf.range.end - leaf.range.start).sum() } else { 0 }
}

/// Bytes of whole leaves of a temporary file that are as in the source.
fn agreeing(stage: &Stage) -> u64 {
    let stored = stage.hidden().and_then(|hidden| std::fs::read(hidden).ok()).unwrap_or_default();
    let wanted = std::fs::read(stage.source()).unwrap();
    if stored.len() > wanted.len() {
        return 0;
    }
    let leaves = stored.chunks(stage.leaf() as usize).zip(wanted.chunks(stage.leaf() as usize));
    leaves.filter(|(stored, wanted)| stored == wanted).map(|(stored, _)| stored.len() as u64).sum()
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
    if let Some(tree) = story.tree {
        command.arg("--recursive").args(tree.sync.then_some(["--sync", "checksum"]).into_iter().flatten());
    }
    command.args(stage.places());
    let (mut client, ()) = Daemon::start(command, PATIENCE, |_| Some(())).expect("it says something");
    stage.client_runs(Some(client.id()));
    // A session that stands still is given up after one to two minutes.
    let patience = if story.is_long() { PATIENCE * 10 } else { PATIENCE * 4 };
    let status = client.wait(patience).unwrap_or_else(|error| panic!("{error}"));
    stage.client_runs(None);
    let log = client.into_log();
    let events = log.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    Went { code: status.code(), events, log }
}

/// A whole right file, or a precise fault and no wrong file.
fn judge(story: &Story, stage: &Stage, went: &Went) {
    let there = stage.copy().exists();
    let as_before = std::fs::read(stage.copy()).is_ok_and(|bytes| bytes == OLD);
    let right = there && stage.versions().iter().any(|version| same(&stage.copy(), version));
    let told = ["retry", "session_lost", "item_failed", "failed"].into_iter().flat_map(|kind| went.all(kind));
    for event in told.filter(|_| story.stock.is_none()) {
        assert_ne!(event["fault"]["code"], "StorageIo", "no disk fails here: {event}");
    }
    match went.code {
        Some(0) => {
            assert!(right, "a wrong file was reported right");
            let summary = went.all("summary").last().expect("a summary");
            let told = summary["verified"].as_u64().unwrap() + summary["skipped"].as_u64().unwrap();
            assert_eq!(told, 1 + stage.around().count() as u64, "{summary}");
            // Of a loss of power behind its last file a client learns nothing.
            let unnoticed = story.loses_power() && !stage.is_met();
            for (from, to) in stage.around().filter(|_| !unnoticed) {
                assert!(same(&from, &to), "{} was reported right and is wrong", to.display());
            }
            // What a killed run's sessions were told at the stock server is done even after the next run has looked for what
            // there is; the run after that finds it.
            let killed = story.troubles.iter().any(|(_, trouble)| *trouble == Trouble::KillClient);
            if !(killed && story.at_once && story.stock == Some(End::Destination)) {
                let mut left = stage.hidden_names();
                // That the journal of a file that has its name is gone is not synced; the next copy in chunks removes it.
                let is_whole = || stage.journal().is_some_and(|journal| journal.missing().is_empty());
                left.retain(|name| !(story.loses_power() && is_journal(name) && is_whole()));
                assert_eq!(left, Vec::<std::path::PathBuf>::new(), "nothing may be left behind");
            }
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
        // Small files are synced where that is asked for: a loss of power leaves names without content.
        let wrong = stage.around().find(|(from, to)| to.exists() && !same(from, to));
        assert!(wrong.is_none() || story.loses_power(), "wrong files have their names: {wrong:?}");
    }
}

#[test]
fn a_host_that_lost_its_power_is_a_fault_of_the_run_and_the_next_one_repairs_what_it_lost() {
    if !require_root() {
        return;
    }
    let tree = Some(Tree { files: 24, sync: false });
    let power = (Moment::Bytes(6 << 20), Trouble::PowerLoss { comes_back: true });
    let usual = Story { full: false, replaces: false, at_once: false, stock: None, stall: None, ..Story::of(0) };
    let story =
        Story { ends: Ends::ThirdParty, sources: 1, destinations: 1, size: 12 << 20, attempts: 5, tree, ..usual };
    let story = Story { sessions: 1, troubles: vec![power], ..story };
    let stage = Stage::set(&story);
    arrange(&story, &stage);
    let first = copy(&story, &stage);
    assert_eq!(first.code, Some(1), "{}", first.log);
    let told: Vec<&Value> =
        first.all("item_failed").filter(|event| event["fault"]["code"] == "HostRestarted").collect();
    let [told] = told[..] else { panic!("{}", first.log) };
    assert!(told["fault"]["detail"].as_str().is_some_and(|detail| detail.starts_with("up to 24 files")), "{told}");
    assert_eq!(
        (&told["fault"]["side"], &told["fault"]["retry"]),
        (&"destination".into(), &"permanent".into()),
        "{told}"
    );
    let lost = stage.around().filter(|(from, to)| !same(from, to)).count();
    assert!(lost > 0, "nothing was lost: the test shows nothing");
    assert!(same(&stage.copy(), &stage.source()), "the large file was proven on the disk");
    stage.heal();
    let second = copy(&story, &stage);
    assert_eq!(second.code, Some(0), "{}", second.log);
    judge(&story, &stage, &second);
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
    assert!(has(|t| matches!(t, Trouble::PowerLoss { .. })));
    let ends = |ends| stories.iter().any(|story| story.ends == ends);
    assert!(ends(Ends::ThirdParty) && ends(Ends::FromServer) && ends(Ends::ToServer));
    let stock = |end| stories.iter().any(|story| story.stock == Some(end));
    assert!(stock(End::Source) && stock(End::Destination));
    assert!(stories.iter().any(|story| story.tree.is_some()) && stories.iter().any(|story| story.stall.is_some()));
    // What lasts minutes comes at night.
    assert!(!stories.iter().any(Story::is_long) && (NIGHTLY..NIGHTLY + 50).map(Story::of).any(|story| story.is_long()));
}

//! Runs to one name at the same time at `globus-gridftp-server`, which has no locks, and what each leaves.

#![allow(clippy::unwrap_used, reason = "a test helper that fails ends its test")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use support::dtn::until;
use support::{Field, Server, WHIMBREL, assert_same, names, whimbrel};
use tokio::sync::watch;
use whimbrel_dtn::client::copy::{Report, copy};
use whimbrel_dtn::client::options::{Chunks, CopyOptions, Jobs, Place};
use whimbrel_dtn::client::target::Target;
use whimbrel_engine::plan::PlanOptions;
use whimbrel_engine::summary::Summary;
use whimbrel_testkit::dataset;
use whimbrel_testkit::peers::url_path;
use whimbrel_testkit::relay::{Moment, Relay, Way};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 9 * MIB;

/// A server, the way of one run to it, and two sources.
struct Stage {
    field: Field,
    server: Server,
    way: Way,
    relay: Relay,
}

impl Stage {
    fn new() -> Option<Self> {
        let server = Server::real()?;
        let Server::Real(real) = &server else { unreachable!("it is") };
        let (field, way) = (Field::new(), Way::new());
        let relay = Relay::before(real.addr(), &way).unwrap();
        dataset::random_file(&field.path("from/a"), SIZE, 1).unwrap();
        dataset::random_file(&field.path("from/b"), SIZE, 2).unwrap();
        Some(Self { field, server, way, relay })
    }

    fn copy(&self) -> PathBuf {
        self.field.path("to/file")
    }

    /// Copies `from/a` through the relay.
    fn start(&self, options: &[&str]) -> Child {
        let mut command = Command::new(WHIMBREL);
        let to = format!("ftp://{}{}", self.relay.addr(), url_path(self.copy()));
        command.args(["--json", "cp"]).args(options).arg(self.field.path("from/a")).arg(to);
        command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// The same within this process, as the managed service does it.
    fn run_here(&self, cancel: watch::Receiver<bool>) -> Summary {
        let place = |target, path: PathBuf| Place { target, path: path.into_os_string().into_encoded_bytes() };
        let server = Target::anonymous(self.relay.addr().ip().to_string(), self.relay.addr().port());
        let sources = vec![place(None, self.field.path("from/a"))];
        let jobs = Jobs::Into { sources, destination: place(Some(server), self.copy()) };
        let options = CopyOptions { chunks: Chunks::Size(MIB), ..CopyOptions::of(PlanOptions::default()) };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        match runtime.block_on(copy(jobs, options, cancel, |_| ())).unwrap() {
            Report::Done(summary) => summary,
            Report::Planned(totals) => panic!("{totals:?}"),
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.way.end();
    }
}

/// Unfinished copies in a directory.
fn unfinished(directory: &Path) -> Vec<PathBuf> {
    let is_one = |name: &String| name.starts_with('.') && !name.ends_with("-kept") && !name.ends_with("-live");
    let names = names(directory).into_iter().map(|name| name.into_string().unwrap());
    names.filter(is_one).map(|name| directory.join(name)).collect()
}

#[test]
fn two_runs_to_one_name_never_mix_their_bytes() {
    for options in [&["--chunk", "off"][..], &["--chunk", "off", "--no-verify"], &["--chunk", "1M"]] {
        for same in [false, true] {
            let Some(stage) = Stage::new() else { return };
            let (copy, from) = (stage.copy(), stage.field.path(if same { "from/a" } else { "from/b" }));
            let said = Arc::new(Mutex::new(String::new()));
            let (to, other, theirs) = (stage.server.url(&copy), from.clone(), said.clone());
            let more: Vec<String> = options.iter().map(|word| (*word).to_owned()).collect();
            // While the first run is in the middle, the second one begins and ends.
            stage.way.at(Moment::Bytes(SIZE / 2), move |_| {
                let run = whimbrel(["--json", "cp"]).args(&more).arg(&other).arg(&to).run_ok();
                *theirs.lock().unwrap() = run.stdout_text();
            });
            let whole = Arc::new(Mutex::new(None));
            let (named, result, wanted) = (copy.clone(), whole.clone(), from.clone());
            stage.way.at(Moment::Command("RNTO", 1), move |_| {
                *result.lock().unwrap() = Some(fs::read(&named).unwrap() == fs::read(&wanted).unwrap());
            });
            let first = stage.start(options).wait_with_output().unwrap();
            assert!(first.status.success(), "{options:?}: {}", String::from_utf8_lossy(&first.stdout));
            assert_eq!(*whole.lock().unwrap(), Some(true), "{options:?}: the first wrote into the second's file");
            assert_same(&stage.field.path("from/a"), &copy);
            assert_eq!(names(copy.parent().unwrap()), ["file"], "{options:?}");
            let said = said.lock().unwrap();
            assert!(said.contains("\"resumed\":0"), "nothing of the other was taken: {said}");
            // Only of a large file that is asked for.
            assert_eq!(said.contains("other_runs"), options == ["--chunk", "1M"], "{said}");
        }
    }
}

#[test]
fn a_run_whose_unfinished_copy_was_taken_over_does_not_trust_what_it_had() {
    let (verified, plain) = (&["--chunk", "1M"][..], &["--chunk", "1M", "--no-verify"][..]);
    for (options, with_sidecar) in [(verified, false), (verified, true), (plain, false)] {
        let Some(stage) = Stage::new() else { return };
        let (copy, to) = (stage.copy(), stage.field.path("to"));
        // As another host does to which it seemed to be no more.
        stage.way.at(Moment::Bytes(SIZE / 2), move |_| {
            until("a temporary file", || !unfinished(&to).is_empty());
            let kept = || names(&to).iter().any(|name| name.to_string_lossy().ends_with("-kept"));
            until("what is kept beside it", || !with_sidecar || kept());
            fs::rename(&unfinished(&to)[0], to.join("taken")).unwrap();
        });
        let run = stage.start(options).wait_with_output().unwrap();
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stdout));
        assert_same(&stage.field.path("from/a"), &copy);
        assert_eq!(names(copy.parent().unwrap()), ["file", "taken"]);
    }
}

#[test]
fn what_a_run_left_is_gone_on_with_by_the_next_one_of_its_process() {
    let Some(stage) = Stage::new() else { return };
    let (cancel, cancelled) = watch::channel(false);
    let (ending, wanted) = (cancel.clone(), cancel.subscribe());
    stage.way.at(Moment::Bytes(SIZE / 2), move |way| {
        // What is behind it must not come first.
        way.trickle(1 << 10, Duration::from_millis(10), SIZE);
        ending.send_replace(true);
    });
    let first = stage.run_here(cancelled);
    assert!(first.cancelled && first.files == 0);
    stage.way.heal();
    cancel.send_replace(false);
    let next = stage.run_here(wanted);
    assert_eq!((next.files, next.failed), (1, 0));
    assert!(next.bytes_resumed > 0, "it began anew");
    assert_same(&stage.field.path("from/a"), &stage.copy());
}

#[test]
fn of_a_file_in_chunks_that_changes_while_it_is_copied_nothing_is_left() {
    let Some(stage) = Stage::new() else { return };
    let source = stage.field.path("from/a");
    stage.way.at(Moment::Bytes(SIZE / 2), move |_| {
        let later = SystemTime::now() + Duration::from_secs(5);
        fs::File::options().append(true).open(&source).unwrap().set_modified(later).unwrap();
    });
    let run = stage.start(&["--chunk", "1M", "--attempts", "2"]).wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(!run.status.success() && said.contains("\"SourceChanged\""), "{said}");
    until("nothing is left", || names(&stage.field.path("to")).is_empty());
}

#[test]
fn what_is_left_of_a_whole_file_is_removed_when_it_fails_or_is_interrupted() {
    for interrupted in [true, false] {
        let Some(stage) = Stage::new() else { return };
        let copy = stage.copy();
        fs::write(&copy, "before").unwrap();
        let mut child = stage.start(&["--chunk", "off", "--attempts", "1"]);
        let id = child.id().to_string();
        stage.way.at(Moment::Bytes(SIZE / 2), move |way| {
            if interrupted {
                Command::new("kill").args(["-INT", &id]).status().unwrap();
                std::thread::spawn({
                    let way = way.clone();
                    move || way.trickle(1 << 10, Duration::from_millis(10), MIB)
                });
            } else {
                way.reset_all();
            }
        });
        assert!(!child.wait().unwrap().success());
        assert_eq!(fs::read(&copy).unwrap(), b"before");
        until("nothing is left", || names(copy.parent().unwrap()) == ["file"]);
    }
}

//! `whimbrel cp --follow`: files are copied while they are written.

#![allow(clippy::unwrap_used, reason = "a helper that fails ends its test")]

mod support;

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;
use support::dtn::{Dtn, PATIENCE};
use support::{Server, WHIMBREL, assert_same, expect, pattern};
use whimbrel_testkit::relay::{Moment, Relay, Way};
use whimbrel_testkit::require_root;

/// Follows until a marker comes, and looks at nothing between what it is told of.
const UNTIL_DONE: [&str; 6] = ["--until", "DONE", "--quiet-time", "100ms", "--scan-interval", "1h"];

/// A directory that is written and one that its copies go into.
struct Stage {
    directory: tempfile::TempDir,
}

impl Stage {
    fn new() -> Self {
        let stage = Self { directory: whimbrel_testkit::peers::public_dir().unwrap() };
        fs::create_dir(stage.from("")).unwrap();
        stage
    }

    fn from(&self, name: &str) -> PathBuf {
        self.directory.path().join("from").join(name)
    }

    fn to(&self, name: &str) -> PathBuf {
        self.directory.path().join("made/to").join(name)
    }
}

/// A run with its events.
struct Run {
    child: Child,
    events: Receiver<Value>,
    seen: Vec<Value>,
}

impl Run {
    /// Starts it and waits until it watches.
    fn start(source: &str, destination: &str, options: &[&str]) -> Self {
        Self::start_with(Command::new(WHIMBREL), source, destination, options)
    }

    /// Starts it as somebody whom modes stop.
    fn start_unprivileged(source: &str, destination: &str, options: &[&str]) -> Option<Self> {
        let without = "-dac_override,-dac_read_search";
        let mut command = Command::new(whimbrel_testkit::peers::require("setpriv")?);
        command.args(["--bounding-set", without, "--inh-caps", without, WHIMBREL]);
        Some(Self::start_with(command, source, destination, options))
    }

    fn start_with(mut command: Command, source: &str, destination: &str, options: &[&str]) -> Self {
        command.args(["--json", "cp", "--follow", source, destination]).args(options);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let (sender, events) = channel();
        thread::spawn(move || {
            for line in lines {
                // The test may have failed and gone.
                let _ = sender.send(serde_json::from_str(&line.unwrap()).unwrap());
            }
        });
        let mut run = Self { child, events, seen: Vec::new() };
        run.wait_for("watching", "");
        run
    }

    /// Waits for an event of this name whose source ends in `path`.
    #[track_caller]
    fn wait_for(&mut self, name: &str, path: &str) -> Value {
        loop {
            let Ok(event) = self.events.recv_timeout(PATIENCE) else {
                panic!("no {name} of {path:?} came: {:#?}", self.seen);
            };
            self.seen.push(event.clone());
            if event["event"] == name && event["source"].as_str().unwrap_or("").ends_with(path) {
                return event;
            }
        }
    }

    /// Sources of the files copied so far, in order, by their names relative to `root`.
    fn copied(&self, root: &Path) -> Vec<String> {
        let done = self.seen.iter().filter(|event| event["event"] == "item_done");
        let source = |event: &Value| event["source"].as_str().unwrap().to_owned();
        done.map(source).map(|path| path[root.to_str().unwrap().len()..].to_owned()).collect()
    }

    /// Waits for its end.
    #[track_caller]
    fn end(&mut self) -> (ExitStatus, Value) {
        let summary = self.wait_for("summary", "");
        (self.child.wait().unwrap(), summary)
    }

    fn signal(&self, name: &str) {
        let killed = Command::new("kill").args([name, &self.child.id().to_string()]).status().unwrap();
        assert!(killed.success());
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        // It may have ended by itself, which its test notices.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The control connections of a server, as they pass by, which tell of the starts of a host that loses its power.
struct Passage {
    address: SocketAddr,
    host: Arc<Mutex<Host>>,
}

#[derive(Default)]
struct Host {
    starts: u32,
    connections: Vec<TcpStream>,
}

impl Passage {
    fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let passage = Self { address: listener.local_addr().unwrap(), host: Arc::default() };
        let host = passage.host.clone();
        thread::spawn(move || {
            for client in listener.incoming() {
                // A server that is gone is seen as a connection that closes at once.
                let (Ok(client), Ok(server)) = (client, TcpStream::connect(server)) else { continue };
                let both = [&client, &server].map(|stream| stream.try_clone().unwrap());
                host.lock().unwrap().connections.extend(both);
                let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                thread::spawn(move || pass(from, to, |line| line));
                let host = host.clone();
                thread::spawn(move || pass(server, client, |line| told_by(&host, line)));
            }
        });
        passage
    }

    fn url(&self, path: &str) -> String {
        format!("ftp://{}{path}", self.address)
    }

    /// The host loses its power and comes back.
    fn restart(&self) {
        let mut host = self.host.lock().unwrap();
        host.starts += 1;
        for connection in host.connections.drain(..) {
            // It may have ended by itself.
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

/// Passes lines on until either side ends.
fn pass(from: TcpStream, mut to: TcpStream, mut change: impl FnMut(Vec<u8>) -> Vec<u8>) {
    let mut lines = BufReader::new(from);
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
        if to.write_all(&change(std::mem::take(&mut line))).is_err() {
            break;
        }
    }
    let _ = (to.shutdown(Shutdown::Both), lines.into_inner().shutdown(Shutdown::Both));
}

/// A line of a reply, with this start of the host where it tells one.
fn told_by(host: &Mutex<Host>, line: Vec<u8>) -> Vec<u8> {
    match line.starts_with(b" SYNC ") {
        true => format!(" SYNC 0123abcd-{:016x}\r\n", host.lock().unwrap().starts).into_bytes(),
        false => line,
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// A simulation: several writes a file, names given at the end, new directories at once filled.
fn simulate(from: &Path) {
    let mut whole = File::create(from.join("whole")).unwrap();
    pattern(3_000_001).chunks(100_000).for_each(|part| whole.write_all(part).unwrap());
    drop(whole);
    fs::write(from.join("renamed.part"), pattern(70_000)).unwrap();
    fs::rename(from.join("renamed.part"), from.join("renamed")).unwrap();
    for step in 0..5 {
        let directory = from.join(format!("step{step}/fields/deep"));
        fs::create_dir_all(&directory).unwrap();
        for field in 0..4 {
            fs::write(directory.join(format!("f{field}")), pattern(1000 * field + step)).unwrap();
        }
    }
    fs::write(from.join("empty"), "").unwrap();
}

/// Every file arrives, verified, once; the marker last.
fn everything_arrives(stage: &Stage, destination: &str) {
    fs::write(stage.from("before"), "already there").unwrap();
    // Between the first scan and the last, only events tell of new directories.
    let options = ["--until", "DONE", "--quiet-time", "2s", "--scan-interval", "1h"];
    let mut run = Run::start(&text(&stage.from("")), destination, &options);
    let from = stage.from("");
    let writer = thread::spawn(move || simulate(&from));
    writer.join().unwrap();
    let mut missing: Vec<String> = (0..5).map(|step| format!("/step{step}/fields/deep/f3")).collect();
    while !missing.is_empty() {
        let done = run.wait_for("item_done", "");
        missing.retain(|path| !done["source"].as_str().unwrap().ends_with(path.as_str()));
    }
    fs::write(stage.from("left.part"), "temporary").unwrap();
    fs::write(stage.from(".hidden"), "hidden").unwrap();
    fs::write(stage.from("DONE"), "").unwrap();
    let (status, summary) = run.end();
    assert_eq!(status.code(), Some(0), "{summary:#}");
    assert_eq!((&summary["files"], &summary["verified"]), (&25.into(), &25.into()), "{summary:#}");
    let mut copied = run.copied(&stage.from(""));
    assert_eq!(copied.last().map(String::as_str), Some("DONE"));
    copied.sort();
    copied.dedup();
    assert_eq!(copied.len(), 25, "each once: {copied:?}");
    fs::remove_file(stage.from("left.part")).unwrap();
    fs::remove_file(stage.from(".hidden")).unwrap();
    assert_same(&stage.from(""), &stage.to(""));
}

#[test]
fn what_a_simulation_writes_arrives_verified_once_at_a_server_and_the_marker_ends_it() {
    for kind in Server::kinds() {
        let (Some(server), stage) = (kind(), Stage::new()) else { continue };
        everything_arrives(&stage, &server.url(stage.to("")));
    }
}

#[test]
fn what_a_simulation_writes_arrives_verified_once_on_this_host_and_the_marker_ends_it() {
    let stage = Stage::new();
    everything_arrives(&stage, &text(&stage.to("")));
}

#[test]
fn what_is_written_at_a_server_is_found_by_scans() {
    for kind in Server::kinds() {
        let Some(server) = kind() else { continue };
        is_found_by_scans(&server);
    }
}

fn is_found_by_scans(server: &Server) {
    let stage = Stage::new();
    let options = ["--until", "DONE", "--quiet-time", "1s", "--scan-interval", "100ms"];
    let mut run = Run::start(&server.url(stage.from("")), &text(&stage.to("")), &options);
    fs::create_dir_all(stage.from("a/b")).unwrap();
    fs::write(stage.from("a/b/first"), pattern(50_000)).unwrap();
    run.wait_for("item_done", "/a/b/first");
    fs::write(stage.from("a/second"), pattern(2_000_000)).unwrap();
    fs::write(stage.from("DONE"), "x").unwrap();
    let (status, summary) = run.end();
    assert_eq!(status.code(), Some(0), "{summary:#}");
    assert_eq!(summary["verified"], 3, "{summary:#}");
    assert_same(&stage.from(""), &stage.to(""));
}

#[test]
fn a_file_that_is_open_waits_for_its_close_until_the_marker_appears() {
    let stage = Stage::new();
    let options = ["--until", "DONE", "--quiet-time", "500ms", "--scan-interval", "100ms"];
    let mut run = Run::start(&text(&stage.from("")), &text(&stage.to("")), &options);
    let mut open = File::create(stage.from("open")).unwrap();
    open.write_all(b"half").unwrap();
    // It has no writer, so that it takes the quiet time, which the open one has behind it by then.
    fs::write(stage.from("linked.tmp"), "linked").unwrap();
    fs::hard_link(stage.from("linked.tmp"), stage.from("linked")).unwrap();
    run.wait_for("item_done", "/linked");
    assert!(!stage.to("open").exists());
    fs::write(stage.from("DONE"), "").unwrap();
    let (status, summary) = run.end();
    assert_eq!(status.code(), Some(0), "{summary:#}");
    assert_eq!(run.copied(&stage.from("")), ["linked", "open", "DONE"]);
    assert_eq!(fs::read(stage.to("open")).unwrap(), b"half");
    drop(open);
}

#[test]
fn a_file_rewritten_later_is_copied_again() {
    let stage = Stage::new();
    let options = ["--until", "DONE", "--quiet-time", "1h", "--scan-interval", "1h"];
    let mut run = Run::start(&text(&stage.from("")), &text(&stage.to("")), &options);
    for version in ["first", "again", "at last"] {
        fs::write(stage.from("state"), version).unwrap();
        run.wait_for("item_done", "/state");
        assert_eq!(fs::read_to_string(stage.to("state")).unwrap(), version);
    }
    fs::write(stage.from("DONE"), "").unwrap();
    let (status, summary) = run.end();
    assert_eq!(status.code(), Some(0), "{summary:#}");
    assert_eq!(summary["files"], 4, "{summary:#}");
}

#[test]
fn a_sync_level_decides_about_the_first_version_of_a_file_and_each_later_one_is_copied() {
    for level in ["size", "mtime"] {
        let stage = Stage::new();
        fs::write(stage.from("there"), "here").unwrap();
        fs::create_dir_all(stage.to("")).unwrap();
        fs::write(stage.to("there"), "been").unwrap();
        let options = ["--until", "DONE", "--quiet-time", "100ms", "--scan-interval", "1h", "--sync", level];
        let mut run = Run::start(&text(&stage.from("")), &text(&stage.to("")), &options);
        run.wait_for("item_skipped", "/there");
        let copied = |run: &mut Run, version: &str| {
            // All are of one length.
            fs::write(stage.from("state"), version).unwrap();
            run.wait_for("item_done", "/state");
            assert_eq!(fs::read_to_string(stage.to("state")).unwrap(), version, "{level}");
        };
        copied(&mut run, "first");
        copied(&mut run, "again");
        fs::remove_file(stage.from("state")).unwrap();
        copied(&mut run, "fresh");
        fs::write(stage.from("DONE"), "").unwrap();
        let (status, summary) = run.end();
        assert_eq!(status.code(), Some(0), "{summary:#}");
        assert_eq!((&summary["files"], &summary["skipped"]), (&4.into(), &1.into()), "{summary:#}");
        assert_eq!(fs::read(stage.to("there")).unwrap(), b"been", "{level}");
    }
}

#[test]
fn what_is_in_a_temporary_directory_is_copied_once_the_directory_has_its_name() {
    let stage = Stage::new();
    let mut run = Run::start(&text(&stage.from("")), &text(&stage.to("")), &UNTIL_DONE);
    fs::create_dir(stage.from("run.tmp")).unwrap();
    // Whatever was told before a file that is copied has been heard.
    fs::write(stage.from("sign1"), "made").unwrap();
    run.wait_for("item_done", "/sign1");
    fs::write(stage.from("run.tmp/f"), pattern(1000)).unwrap();
    fs::write(stage.from("sign2"), "filled").unwrap();
    run.wait_for("item_done", "/sign2");
    fs::rename(stage.from("run.tmp"), stage.from("run")).unwrap();
    run.wait_for("item_done", "/run/f");
    fs::write(stage.from("DONE"), "").unwrap();
    let (status, summary) = run.end();
    assert_eq!((status.code(), &summary["failed"]), (Some(0), &0.into()), "{summary:#}");
    let mut copied = run.copied(&stage.from(""));
    copied.sort();
    assert_eq!(copied, ["DONE", "run/f", "sign1", "sign2"]);
    assert_same(&stage.from(""), &stage.to(""));
}

#[test]
fn what_the_kernel_could_not_keep_for_a_slow_follower_is_found_by_a_scan() {
    let stage = Stage::new();
    let options = ["--until", "DONE", "--quiet-time", "500ms", "--scan-interval", "1h"];
    let mut run = Run::start(&text(&stage.from("")), &text(&stage.to("")), &options);
    fs::write(stage.from("first"), "told").unwrap();
    run.wait_for("item_done", "/first");
    let limit: usize = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap().trim().parse().unwrap();
    run.signal("-STOP");
    // Each tells of its creation, a write and its close.
    let files = limit / 3 + 100;
    (0..files).for_each(|number| fs::write(stage.from(&format!("f{number}")), number.to_string()).unwrap());
    run.signal("-CONT");
    run.wait_for("item_done", &format!("/f{}", files - 1));
    fs::write(stage.from("DONE"), "").unwrap();
    let (status, summary) = run.end();
    assert_eq!((status.code(), &summary["files"]), (Some(0), &(files + 2).into()), "{summary:#}");
    assert_same(&stage.from(""), &stage.to(""));
}

#[test]
fn an_interrupt_finishes_what_is_ready_and_says_what_is_left() {
    let (server, stage) = (Server::own(), Stage::new());
    let options = ["--quiet-time", "1h", "--scan-interval", "1h"];
    let mut run = Run::start(&text(&stage.from("")), &server.url(stage.to("")), &options);
    fs::write(stage.from("seen"), "seen").unwrap();
    run.wait_for("item_done", "/seen");
    let mut open = File::create(stage.from("open")).unwrap();
    open.write_all(b"half").unwrap();
    let ready: Vec<String> = (0..20).map(|number| format!("ready{number}")).collect();
    ready.iter().for_each(|name| fs::write(stage.from(name), pattern(200_000)).unwrap());
    run.signal("-INT");
    let (status, summary) = run.end();
    assert_eq!(status.code(), Some(0), "{summary:#}");
    assert_eq!(summary["verified"], 21, "{summary:#}");
    let ended = run.seen.iter().find(|event| event["event"] == "watch_ended").unwrap();
    assert_eq!(ended["unfinished"], 1);
    assert!(!stage.to("open").exists());
    ready.iter().for_each(|name| assert_same(&stage.from(name), &stage.to(name)));
}

#[test]
fn a_run_that_is_ended_before_its_marker_does_not_count_as_done() {
    for signal in ["-TERM", "-INT"] {
        let (server, stage) = (Server::own(), Stage::new());
        let options = ["--until", "DONE", "--quiet-time", "1h", "--scan-interval", "1h"];
        let mut run = Run::start(&text(&stage.from("")), &server.url(stage.to("")), &options);
        fs::write(stage.from("ready"), "ready").unwrap();
        run.wait_for("item_done", "/ready");
        let mut open = File::create(stage.from("open")).unwrap();
        open.write_all(b"half").unwrap();
        fs::write(stage.from("after"), "after").unwrap();
        run.wait_for("item_done", "/after");
        run.signal(signal);
        let (status, summary) = run.end();
        assert_eq!(status.code(), Some(130), "{signal}: {summary:#}");
        assert_eq!((&summary["cancelled"], &summary["unfinished"]), (&true.into(), &1.into()), "{summary:#}");
        assert!(!stage.to("DONE").exists() && !stage.to("open").exists());
        drop(open);
    }
}

#[test]
fn servers_that_close_idle_sessions_do_not_end_it() {
    let stage = Stage::new();
    let settings = stage.directory.path().join("settings");
    fs::write(&settings, "idle_timeout = 1\n").unwrap();
    let server = Dtn::builder().anonymous().root(stage.directory.path()).arg("--config").arg(&settings).start();
    let options = ["--until", "DONE", "--quiet-time", "100ms", "--scan-interval", "2s"];
    let mut run = Run::start(&server.url("/from"), &server.url("/made/to"), &options);
    fs::write(stage.from("first"), pattern(1000)).unwrap();
    run.wait_for("item_done", "/first");
    run.wait_for("session_lost", "");
    fs::create_dir(stage.from("later")).unwrap();
    fs::write(stage.from("later/second"), pattern(1001)).unwrap();
    run.wait_for("item_done", "/later/second");
    fs::write(stage.from("DONE"), "").unwrap();
    let (status, summary) = run.end();
    assert_eq!((status.code(), &summary["failed"]), (Some(0), &0.into()), "{summary:#}");
    assert_same(&stage.from(""), &stage.to(""));
}

#[test]
fn a_destination_that_is_gone_for_good_ends_it() {
    let (server, stage) = (Server::own(), Stage::new());
    let options = ["--quiet-time", "1h", "--scan-interval", "1h", "--attempts", "2", "--concurrency", "1"];
    let mut run = Run::start(&text(&stage.from("")), &server.url(stage.to("")), &options);
    fs::write(stage.from("first"), "arrives").unwrap();
    run.wait_for("item_done", "/first");
    drop(server);
    run.wait_for("session_lost", "");
    fs::write(stage.from("second"), "does not").unwrap();
    run.wait_for("given_up", "");
    let (status, summary) = run.end();
    assert_eq!(status.code(), Some(1), "{summary:#}");
    assert_eq!((&summary["files"], &summary["failed"]), (&1.into(), &1.into()), "{summary:#}");
}

#[test]
fn a_file_that_changes_while_it_is_copied_arrives_as_it_is_in_the_end() {
    let (server, stage) = (Server::own(), Stage::new());
    let options = ["--until", "DONE", "--quiet-time", "1h", "--scan-interval", "1h", "--chunk", "256K"];
    let mut run = Run::start(&text(&stage.from("")), &server.url(stage.to("")), &options);
    for round in 1..=5u8 {
        // As soon as the copy begins, the next version is written over it.
        fs::write(stage.from("state"), vec![round; 40_000_000]).unwrap();
        run.wait_for("started", "/state");
    }
    fs::write(stage.from("state"), pattern(30_000_001)).unwrap();
    fs::write(stage.from("DONE"), "").unwrap();
    let (status, summary) = run.end();
    assert_eq!((status.code(), &summary["failed"]), (Some(0), &0.into()), "{summary:#}");
    assert_same(&stage.from("state"), &stage.to("state"));
}

/// A stage with a directory that modes close to everybody but root.
fn with_a_closed_directory() -> Stage {
    let stage = Stage::new();
    fs::create_dir_all(stage.from("sick/deep")).unwrap();
    fs::write(stage.from("sick/deep/data"), pattern(1000)).unwrap();
    fs::write(stage.from("well"), pattern(1001)).unwrap();
    set_mode(&stage.from("sick"), 0o000);
    stage
}

/// Everything else arrives, the run says what it could not read, and the marker, which would vouch for that, is held back.
#[track_caller]
fn fails_for_the_closed_directory(stage: &Stage, mut run: Run) {
    let (status, summary) = run.end();
    assert_eq!((status.code(), &summary["failed"]), (Some(1), &2.into()), "{summary:#}");
    assert_eq!(run.copied(Path::new("")).len(), 1, "{:#?}", run.seen);
    let marker = &summary["failures"][1];
    assert!(marker["source"].as_str().unwrap().ends_with("/DONE"), "{marker:#}");
    assert_eq!(marker["fault"]["code"], "HeldBack", "{marker:#}");
    assert!(marker["fault"]["detail"].as_str().unwrap().contains("\"sick\" was not copied"), "{marker:#}");
    assert!(!stage.to("DONE").exists());
    fs::remove_file(stage.from("DONE")).unwrap();
    let failure = &summary["failures"][0];
    assert!(failure["source"].as_str().unwrap().ends_with("/from/sick"), "{failure:#}");
    let fault = &failure["fault"];
    assert_eq!((&fault["code"], &fault["side"]), (&"PermissionDenied".into(), &"source".into()), "{failure:#}");
    assert!(failure["cause"].is_string() && failure["cure"].is_string());
    set_mode(&stage.from("sick"), 0o755);
    fs::remove_dir_all(stage.from("sick")).unwrap();
    assert_same(&stage.from(""), &stage.to(""));
}

#[test]
fn a_directory_at_a_server_that_can_never_be_read_fails() {
    if !require_root() {
        return;
    }
    for kind in Server::kinds() {
        let Some(server) = kind() else { continue };
        let stage = with_a_closed_directory();
        fs::write(stage.from("DONE"), "").unwrap();
        let options = ["--until", "DONE", "--quiet-time", "100ms", "--scan-interval", "100ms"];
        let run = Run::start(&server.url(stage.from("")), &text(&stage.to("")), &options);
        fails_for_the_closed_directory(&stage, run);
    }
}

#[test]
fn a_directory_of_this_host_that_can_never_be_read_fails() {
    let stage = with_a_closed_directory();
    fs::write(stage.from("DONE"), "").unwrap();
    let Some(run) = Run::start_unprivileged(&text(&stage.from("")), &text(&stage.to("")), &UNTIL_DONE) else { return };
    fails_for_the_closed_directory(&stage, run);
}

#[test]
fn a_directory_at_a_server_that_can_be_read_again_behind_the_marker_is_no_failure() {
    if !require_root() {
        return;
    }
    let stage = with_a_closed_directory();
    fs::write(stage.from("DONE"), "").unwrap();
    let server = Dtn::builder().anonymous().root(stage.directory.path()).start();
    let way = Way::new();
    let relay = Relay::before(server.addr(), &way).unwrap();
    let sick = stage.from("sick");
    // The first scan sees the marker, the second is the last word on everything else.
    way.at(Moment::Command("MLSC /from/sick", 3), move |_| set_mode(&sick, 0o755));
    let options = ["--until", "DONE", "--quiet-time", "100ms", "--scan-interval", "100ms"];
    let mut run = Run::start(&format!("ftp://{}/from", relay.addr()), &text(&stage.to("")), &options);
    run.wait_for("cannot_read", "/from/sick");
    let (status, summary) = run.end();
    assert_eq!((status.code(), &summary["failed"]), (Some(0), &0.into()), "{summary:#}");
    assert!(run.copied(Path::new("")).last().unwrap().ends_with("/DONE"));
    assert_same(&stage.from(""), &stage.to(""));
    way.end();
}

#[test]
fn a_directory_of_this_host_that_can_be_read_again_is_read_long_before_the_next_scan() {
    let stage = with_a_closed_directory();
    let run = Run::start_unprivileged(&text(&stage.from("")), &text(&stage.to("")), &UNTIL_DONE);
    let Some(mut run) = run else { return };
    run.wait_for("cannot_read", "/from/sick");
    set_mode(&stage.from("sick"), 0o755);
    run.wait_for("item_done", "/sick/deep/data");
    fs::write(stage.from("DONE"), "").unwrap();
    let (status, summary) = run.end();
    assert_eq!((status.code(), &summary["failed"]), (Some(0), &0.into()), "{summary:#}");
    assert_same(&stage.from(""), &stage.to(""));
}

#[test]
fn an_interrupt_says_what_was_never_read() {
    let stage = with_a_closed_directory();
    let options = ["--quiet-time", "1h", "--scan-interval", "1h"];
    let run = Run::start_unprivileged(&text(&stage.from("")), &text(&stage.to("")), &options);
    let Some(mut run) = run else { return };
    run.wait_for("cannot_read", "/from/sick");
    run.signal("-INT");
    let (status, summary) = run.end();
    // Nothing was copied, so that the side to blame is told.
    assert_eq!((status.code(), &summary["failed"]), (Some(3), &1.into()), "{summary:#}");
    assert!(summary["failures"][0]["source"].as_str().unwrap().ends_with("/from/sick"), "{summary:#}");
    set_mode(&stage.from("sick"), 0o755);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let stage = Stage::new();
    let (from, to, inside) = (text(&stage.from("")), text(&stage.to("")), text(&stage.from("in/side")));
    expect(2, ["cp", "--follow", "--list", "pairs.txt"]);
    expect(2, ["cp", "--follow", "--dry-run", &from, &to]);
    expect(2, ["cp", "--follow", "--offset", "1", &from, &to]);
    expect(2, ["cp", "--follow", &from, &inside]);
    expect(2, ["cp", "--follow", &from, &from, &to]);
    expect(2, ["cp", "--follow", "--until", "a/b", &from, &to]);
    expect(2, ["cp", "--until", "DONE", &from, &to]);
    let server = Server::own();
    expect(3, ["cp", "--follow", &text(&stage.from("no/such")), &to]);
    expect(3, ["cp", "--follow", &server.url(stage.from("no/such")), &to]);
    fs::write(stage.from("file"), "x").unwrap();
    expect(3, ["cp", "--follow", &text(&stage.from("file")), &to]);
    assert!(!stage.to("").exists());
}

/// A run that was told of a file which it may read, and of one which it may not; `None` where there is no program to take rights away.
fn fails_for_a_closed_file(stage: &Stage, server: &Server) -> Option<Run> {
    let mut run = Run::start_unprivileged(&text(&stage.from("")), &server.url(stage.to("")), &UNTIL_DONE)?;
    fs::write(stage.from("good"), pattern(1000)).unwrap();
    fs::write(stage.from(".bad"), pattern(1000)).unwrap();
    set_mode(&stage.from(".bad"), 0o000);
    fs::rename(stage.from(".bad"), stage.from("bad")).unwrap();
    run.wait_for("item_failed", "/bad");
    Some(run)
}

#[test]
fn the_marker_is_not_copied_when_a_file_failed() {
    if !require_root() {
        return;
    }
    let (server, stage) = (Server::own(), Stage::new());
    let Some(mut run) = fails_for_a_closed_file(&stage, &server) else { return };
    fs::write(stage.from("DONE"), "").unwrap();
    let (status, summary) = run.end();
    assert_eq!((status.code(), &summary["failed"]), (Some(1), &2.into()), "{summary:#}");
    let marker = run.seen.iter().find(|event| event["event"] == "item_failed" && event["fault"]["code"] == "HeldBack");
    assert!(marker.expect("it is said")["source"].as_str().unwrap().ends_with("/DONE"));
    assert_same(&stage.from("good"), &stage.to("good"));
    assert!(!stage.to("DONE").exists());
    // Cured and run again, everything is there, and the marker says so.
    set_mode(&stage.from("bad"), 0o644);
    let mut run = Run::start(&text(&stage.from("")), &server.url(stage.to("")), &UNTIL_DONE);
    assert_eq!(run.end().0.code(), Some(0));
    assert_same(&stage.from(""), &stage.to(""));
}

#[test]
fn a_file_that_failed_and_was_removed_fails_the_run_and_holds_no_marker_back() {
    if !require_root() {
        return;
    }
    let (server, stage) = (Server::own(), Stage::new());
    let Some(mut run) = fails_for_a_closed_file(&stage, &server) else { return };
    fs::remove_file(stage.from("bad")).unwrap();
    fs::write(stage.from("DONE"), "").unwrap();
    let (status, summary) = run.end();
    assert_eq!((status.code(), &summary["failed"]), (Some(1), &1.into()), "{summary:#}");
    assert!(summary["failures"][0]["source"].as_str().unwrap().ends_with("/bad"), "{summary:#}");
    assert_same(&stage.from(""), &stage.to(""));
}

/// A host loses its power when a file is copied; the end marker comes at once or `after` another file.
fn loses_its_power(after: Option<&str>) {
    let stage = Stage::new();
    let server = Dtn::builder().anonymous().root(stage.directory.path()).start();
    let passage = Passage::to(server.addr());
    let mut run = Run::start(&text(&stage.from("")), &passage.url("/made/to"), &UNTIL_DONE);
    fs::write(stage.from("first"), "small").unwrap();
    run.wait_for("item_done", "/first");
    passage.restart();
    if let Some(name) = after {
        fs::write(stage.from(name), "small").unwrap();
        run.wait_for("item_done", name);
    }
    fs::write(stage.from("DONE"), "").unwrap();
    let (status, summary) = run.end();
    assert_eq!((status.code(), &summary["failed"]), (Some(1), &2.into()), "{summary:#}");
    let codes = [0, 1].map(|index| summary["failures"][index]["fault"]["code"].as_str().unwrap());
    assert_eq!(codes, ["HostRestarted", "HeldBack"], "{summary:#}");
    assert!(!stage.to("DONE").exists());
}

#[test]
fn the_marker_is_held_back_when_a_host_that_lost_its_power_was_met_again_before() {
    loses_its_power(Some("second"));
}

#[test]
fn the_marker_is_held_back_when_a_host_that_lost_its_power_is_met_again_for_the_marker_only() {
    loses_its_power(None);
}

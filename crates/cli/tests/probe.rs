//! `whimbrel probe`: what it measures, what it says, and that it leaves nothing behind.

mod support;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use support::dtn::{Dtn, until};
use support::{Server, WHIMBREL, expect, names, pattern};
use whimbrel_testkit::peers::{Run, public_dir};
use whimbrel_testkit::require_root;
use whimbrel_testkit::slow_disk::SlowDisk;

/// Short enough for a test.
const SHORT: [&str; 4] = ["--time", "0.3", "--size", "64M"];

fn open_dirs() -> (tempfile::TempDir, tempfile::TempDir) {
    (public_dir().expect("a directory"), public_dir().expect("a directory"))
}

/// The report of a run with `--json`.
fn report(run: &Run) -> Value {
    let text = run.stdout_text();
    let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(events.iter().all(|event| event["time"].is_f64()));
    assert!(events.iter().any(|event| event["event"] == "measuring"), "{text}");
    let last = events.last().expect("a report").clone();
    assert_eq!(last["event"], "probe", "{text}");
    last
}

fn json(code: i32, source: &str, destination: &str, more: &[&str]) -> Value {
    let places = ["--json", "probe", source, destination];
    report(&expect(code, places.into_iter().chain(SHORT).chain(more.iter().copied())))
}

/// A part's measurement.
fn part<'r>(report: &'r Value, name: &str) -> &'r Value {
    let all = report["measurements"].as_array().expect("measurements");
    all.iter().find(|one| one["part"] == name).unwrap_or_else(|| panic!("no {name} in {report}"))
}

#[track_caller]
fn assert_measured(report: &Value, parts: &[&str]) {
    for name in parts {
        let rate = part(report, name)["rate"].as_f64();
        assert!(rate.is_some_and(|rate| rate > 0.0), "{name}: {}", part(report, name));
    }
}

#[track_caller]
fn assert_says(report: &Value, name: &str, what: &str) {
    let note = part(report, name)["note"].as_str().unwrap_or_default();
    assert!(note.contains(what), "{name}: {}", part(report, name));
}

const ALL: [&str; 4] = ["network", "source_read", "destination_write", "end_to_end"];

#[test]
fn between_our_servers_everything_is_measured_and_nothing_is_left() {
    let (from, to) = open_dirs();
    let (one, other) = (Server::own(), Server::own());
    let report = json(0, &one.url(from.path()), &other.url(to.path()), &[]);
    assert_measured(&report, &ALL);
    for end in ["source", "destination"] {
        let facts = &report[end]["facts"];
        for fact in ["host.cores", "fs.kind", "limit.open_files", "sysctl.net.ipv4.tcp_rmem"] {
            assert!(facts[fact].is_string(), "{end} {fact}: {facts}");
        }
    }
    assert!(part(&report, "network")["source"]["congestion"].is_string());
    assert!(part(&report, "network")["bytes"].as_u64().unwrap() <= 64 << 20);
    assert!(report["verdict"]["text"].as_str().unwrap().contains("bounds this path"));
    assert!(names(from.path()).is_empty() && names(to.path()).is_empty());
    let text =
        expect(0, ["probe", &one.url(from.path()), &other.url(to.path())].into_iter().chain(SHORT)).stdout_text();
    assert!(text.contains("  destination write ") && text.contains("bounds this path"), "{text}");
}

#[test]
fn one_end_may_be_here() {
    let (from, to) = open_dirs();
    let server = Server::own();
    let here = |directory: &tempfile::TempDir| directory.path().to_string_lossy().into_owned();
    let download = json(0, &server.url(from.path()), &here(&to), &["-p", "3"]);
    assert_measured(&download, &ALL);
    assert_eq!(part(&download, "network")["source"]["channels"], "3", "{download}");
    assert_measured(&json(0, &here(&from), &server.url(to.path()), &[]), &ALL);
    assert!(names(from.path()).is_empty() && names(to.path()).is_empty());
}

#[test]
fn exit_codes_say_who_is_to_blame() {
    let (from, to) = open_dirs();
    let server = Server::own();
    let (source, destination) = (server.url(from.path()), server.url(to.path()));
    expect(2, ["probe", &source]);
    expect(2, ["probe", "/tmp", "/tmp"]);
    expect(2, ["probe", &source, &destination, "--time", "1000"]);
    expect(3, ["probe", &server.url(from.path().join("none")), &destination]);
    expect(4, ["probe", &source, &server.url(to.path().join("none"))]);
    expect(5, ["probe", "ftp://127.0.0.1:1/", &destination]);
    expect(6, ["probe", &source.replacen("ftp://", "ftp://nobody-here:wrong@", 1), &destination]);
    let refused = json(1, &source, &destination, &["--congestion", "nosuch"]);
    assert_says(&refused, "network", "nosuch is not allowed at the source; allowed are");
    assert_measured(&refused, &["source_read", "destination_write"]);
}

#[test]
fn an_administrator_can_switch_measuring_off() {
    let (from, to) = open_dirs();
    let server = Dtn::builder().anonymous().arg("--no-probe").start();
    let report = json(1, &server.url(from.path()), &server.url(to.path()), &[]);
    assert_says(&report, "source_read", "its administrator has switched measuring off");
    assert_says(&report, "destination_write", "its administrator has switched measuring off");
    assert!(report["source"]["note"].is_string(), "{report}");
}

#[test]
fn a_read_only_server_reads_files_that_are_there_and_is_never_written_to() {
    let (from, to) = open_dirs();
    let server = Dtn::builder().anonymous().arg("--read-only").start();
    let other = Server::own();
    let without = json(1, &server.url(from.path()), &other.url(to.path()), &[]);
    assert_says(&without, "source_read", "nothing may be written there");
    std::fs::write(from.path().join("data"), pattern(3_000_000)).unwrap();
    std::fs::write(from.path().join("small"), b"small").unwrap();
    let with = json(0, &server.url(from.path()), &other.url(to.path()), &[]);
    assert_measured(&with, &ALL);
    assert_says(&with, "source_read", "/data");
    assert_eq!(part(&with, "end_to_end")["bytes"], 3_000_000);
    let back = json(1, &other.url(to.path()), &server.url(from.path()), &[]);
    assert_says(&back, "destination_write", "read-only");
    assert_eq!(names(from.path()).len(), 2);
}

#[test]
fn with_a_stock_server_what_can_be_measured_is_and_the_rest_is_said() {
    let Some(stock) = Server::real() else { return };
    let own = Server::own();
    let (from, to) = open_dirs();
    std::fs::write(from.path().join("data"), pattern(3_000_000)).unwrap();
    let report = json(1, &stock.url(from.path()), &own.url(to.path()), &[]);
    assert_measured(&report, &["network", "destination_write", "end_to_end"]);
    assert_says(&report, "source_read", "has no command to measure its storage alone");
    assert_says(&report, "end_to_end", "/data");
    let report = json(1, &own.url(to.path()), &stock.url(from.path()), &[]);
    assert_measured(&report, &["network", "source_read"]);
    assert_says(&report, "end_to_end", "without leaving a file behind");
    assert_eq!((names(from.path()).len(), names(to.path()).len()), (1, 0));
}

#[test]
fn a_server_that_is_killed_while_it_writes_leaves_nothing() {
    let (from, to) = open_dirs();
    let source = Server::own();
    let destination = Dtn::builder().anonymous().start();
    let mut child = Command::new(WHIMBREL)
        .args(["--json", "probe", &source.url(from.path()), &destination.url(to.path())])
        .args(["--time", "20", "--size", "32G"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts");
    let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    // The first marker of writing comes when its file is there.
    let writing = |line: &String| line.contains("\"progress\"") && line.contains("destination_write");
    let mut lines = lines.map(|line| line.expect("text"));
    assert!(lines.any(|line| writing(&line)), "it writes");
    let data_process = children_of(destination.daemon.id());
    for process in &data_process {
        Command::new("kill").args(["-9", &process.to_string()]).status().expect("kill runs");
    }
    until("the end of the data process", || {
        !data_process.iter().any(|id| Path::new(&format!("/proc/{id}/exe")).exists())
    });
    assert!(names(to.path()).is_empty(), "{:?}", names(to.path()));
    child.kill().expect("it can be killed");
    child.wait().expect("it ends");
}

fn children_of(parent: u32) -> Vec<u32> {
    let path = format!("/proc/{parent}/task/{parent}/children");
    let text = std::fs::read_to_string(path).expect("the kernel lists children");
    let children: Vec<u32> = text.split_whitespace().map(|id| id.parse().expect("a number")).collect();
    assert!(!children.is_empty(), "there is a data process");
    children
}

#[test]
fn a_slow_disk_is_the_bottleneck_at_the_end_where_it_is() {
    if !require_root() {
        return;
    }
    let disk = |read, write| SlowDisk::mount(512 << 20, read, write).expect("a disk");
    let Some(reads_slowly) = disk(20_000_000, 0) else { return };
    let fast = public_dir().expect("a directory");
    let (one, other) = (Server::own(), Server::own());
    let report = json(0, &one.url(reads_slowly.path()), &other.url(fast.path()), &[]);
    assert_eq!(report["verdict"]["part"], "source_read", "{report}");
    drop(reads_slowly);
    let Some(writes_slowly) = disk(0, 20_000_000) else { return };
    let report = json(0, &one.url(fast.path()), &other.url(writes_slowly.path()), &[]);
    assert_eq!(report["verdict"]["part"], "destination_write", "{report}");
    assert_eq!(report["advice"][0]["end"], "destination", "{report}");
}

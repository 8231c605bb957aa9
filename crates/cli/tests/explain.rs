//! `cp --explain` names what was made slow: either storage, either processor, the path, or its windows.

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use support::dtn::Dtn;
use support::pattern;
use whimbrel_testkit::lab::{Lab, Link};
use whimbrel_testkit::peers::public_dir;
use whimbrel_testkit::require_root;
use whimbrel_testkit::slow_disk::SlowDisk;
use whimbrel_testkit::starved::Starved;
use whimbrel_testkit::tmpfs::Tmpfs;

/// What is told of a copy that explains itself.
#[track_caller]
fn events(mut command: Command, places: [&str; 2], more: &[&str]) -> Vec<Value> {
    let output = command.args(["--json", "cp", "--explain"]).args(places).args(more).output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// The last explanation among them.
#[track_caller]
fn last_explanation(events: &[Value]) -> &Value {
    let mut explanations = events.iter().filter(|event| event["event"] == "explained");
    explanations.next_back().unwrap_or_else(|| panic!("no explanation in {events:?}"))
}

#[track_caller]
fn explained(command: Command, places: [&str; 2], more: &[&str]) -> Value {
    last_explanation(&events(command, places, more)).clone()
}

fn here() -> Command {
    Command::new(support::WHIMBREL)
}

/// A file of so many MiB that is in no memory but its disk's.
fn file(directory: &Path, mib: usize) -> PathBuf {
    let path = directory.join("file");
    std::fs::write(&path, pattern(mib << 20)).expect("written");
    let forget = ["oflag=nocache", "conv=notrunc,fdatasync", "count=0", "status=none"];
    let status = Command::new("dd").arg(format!("of={}", path.display())).args(forget).status();
    assert!(status.expect("dd runs").success());
    path
}

#[track_caller]
fn assert_found(explained: &Value, expected: &str) {
    assert_eq!(explained["bottleneck"], expected, "{explained}");
    assert!(explained["figures"]["rate"].as_f64().is_some_and(|rate| rate > 0.0), "{explained}");
}

#[test]
fn slow_storage_is_named_at_the_end_where_it_is() {
    if !require_root() {
        return;
    }
    let disk = |read, write| SlowDisk::mount(512 << 20, read, write).expect("a disk");
    let fast = public_dir().expect("a directory");
    let (one, other) = (Dtn::builder().anonymous().start(), Dtn::builder().anonymous().start());
    let Some(slow) = disk(25_000_000, 0) else { return };
    let path = file(slow.path(), 64);
    let to = other.url(fast.path().join("copy"));
    assert_found(&explained(here(), [&one.url(&path), &to], &[]), "source_read");
    drop(slow);
    let Some(slow) = disk(0, 25_000_000) else { return };
    let path = file(fast.path(), 64);
    let to = other.url(slow.path().join("copy"));
    // In parts, which are durable before they are proven.
    assert_found(&explained(here(), [&one.url(&path), &to], &["--chunk", "16M"]), "destination_write");
}

/// The processors of an `end`, and hashing ahead of the stages that do not compute. Which of hashing and the rest of the
/// work has more of a processor is the machine's.
#[track_caller]
fn assert_hashing_at(end: &str, explained: &Value) {
    let figure = |stage: &str| explained["figures"][stage].as_f64().unwrap_or_else(|| panic!("{stage}: {explained}"));
    let [processor, hashing] = ["processor", "hashing"].map(|stage| format!("{end}_{stage}"));
    assert_found(explained, if explained["bottleneck"] == processor.as_str() { &processor } else { &hashing });
    for other in ["source_read", "network", "destination_write", "waiting"] {
        assert!(figure(&hashing) > figure(other), "{other}: {explained}");
    }
}

#[test]
fn processors_that_cannot_hash_faster_are_named_at_the_end_where_they_are() {
    if !require_root() {
        return;
    }
    let directory = Tmpfs::mount(256 << 20).expect("a tmpfs");
    // In memory, so that no disk takes time.
    let path = directory.path().join("file");
    std::fs::write(&path, pattern(48 << 20)).expect("written");
    for starve_source in [true, false] {
        let (one, other) = (Dtn::builder().anonymous().start(), Dtn::builder().anonymous().start());
        let (slow, end) = if starve_source { (&one, "source") } else { (&other, "destination") };
        // The data process that a login starts is in the same group.
        let Some(starved) = Starved::new(10).expect("limited") else { return };
        starved.take(slow.daemon.id()).expect("it runs");
        let to = other.url(directory.path().join("copy"));
        let chunked = ["--chunk", "16M", "--checksum", "sha512"];
        assert_hashing_at(end, &explained(here(), [&one.url(&path), &to], &chunked));
        std::fs::remove_file(directory.path().join("copy")).expect("removed");
    }
}

#[test]
fn a_source_with_a_small_part_of_a_processor_says_so_and_is_asked_for_one_thing_at_a_time() {
    if !require_root() {
        return;
    }
    // Room is asked for a whole file, holes and all.
    let directory = Tmpfs::mount(3 << 30).expect("a tmpfs");
    let path = directory.path().join("file");
    // Long enough for parts; most of it are holes, which take no time.
    std::fs::write(&path, pattern(1 << 20)).expect("written");
    std::fs::File::options().append(true).open(&path).and_then(|file| file.set_len(1 << 30)).expect("extended");
    let Some(group) = Starved::new(3).expect("limited") else { return };
    let free = || Dtn::builder().anonymous().start();
    let (source, destination) = (Dtn::builder().anonymous().starved(&group).start(), free());
    let planned = |source: &Dtn| {
        let to = destination.url(directory.path().join("copy"));
        let explained = explained(here(), [&source.url(&path), &to], &[]);
        std::fs::remove_file(directory.path().join("copy")).expect("removed");
        let choices = explained["plan"].as_array().expect("choices");
        let sessions = choices.iter().find(|choice| choice["choice"] == "sessions").expect("one of them");
        (sessions["value"].as_u64(), sessions["reason"].to_string())
    };
    let (sessions, reason) = planned(&source);
    assert!(
        sessions == Some(1) && reason.contains("processors of an end are slower than the path"),
        "{sessions:?}: {reason}"
    );
    assert!(planned(&free()).0 > Some(1));
}

fn over(lab: &Lab, more: &[&str]) -> Value {
    let directory = public_dir().expect("a directory");
    let path = file(directory.path(), 24);
    let serve = |host: &str| Dtn::on(lab.host(host)).anonymous().start();
    let (source, destination) = (serve("src"), serve("dst"));
    let to = destination.url(directory.path().join("copy"));
    explained(lab.host("client").command(support::WHIMBREL), [&source.url(&path), &to], more)
}

#[test]
fn a_slow_path_and_small_windows_are_told_apart() {
    if !require_root() {
        return;
    }
    let lab = Lab::triangle(Link::new().rtt(Duration::from_millis(30)).rate_mbit(80)).expect("laboratory");
    lab.set_congestion_control_everywhere("cubic").expect("cubic");
    assert_found(&over(&lab, &["--checksum", "crc32c"]), "network");
    for host in ["src", "dst"] {
        lab.host(host).set_sysctl("net.ipv4.tcp_rmem", "4096 32768 65536").expect("set");
    }
    assert_found(&over(&lab, &["--checksum", "crc32c", "-p", "1", "--concurrency", "1"]), "window");
}

#[test]
fn a_buffer_that_the_user_fixes_is_the_one_that_is_used() {
    if !require_root() {
        return;
    }
    let lab = Lab::triangle(Link::new().rtt(Duration::from_millis(30)).rate_mbit(800)).expect("laboratory");
    let explained = over(&lab, &["--checksum", "crc32c", "-p", "1", "--concurrency", "1", "--buffer", "256K"]);
    let line = explained["plan"].as_array().unwrap().iter().find(|line| line["choice"] == "buffer").expect("a line");
    assert_eq!((&line["value"], &line["reason"]), (&Value::from(262_144), &Value::from("set by the user")));
    // What is in flight fits both: 512 KiB at most, as the kernel doubles what it is told, in 30 ms.
    let rate = explained["figures"]["rate"].as_f64().expect("a rate");
    assert!(rate < 524_288.0 / 0.03, "{rate} bytes a second\n{explained}");
    let held = ["window", "send_buffer"].map(|name| explained["bottleneck"] == name);
    assert!(held.contains(&true), "{explained}");
}

/// The name in the last change of the congestion control, with its reason.
fn steered(explained: &Value) -> Option<(&str, &str)> {
    let changes = explained["changes"].as_array()?;
    let last = changes.iter().rev().find(|line| line["choice"] == "congestion")?;
    Some((last["name"].as_str()?, last["reason"].as_str()?))
}

#[test]
fn under_loss_bbr_is_tried_and_kept_unless_the_user_fixes_another() {
    if !require_root() {
        return;
    }
    let link = Link::new().rtt(Duration::from_millis(40)).rate_mbit(160).loss(0.015);
    let lab = Lab::triangle(link).expect("laboratory");
    lab.set_congestion_control_everywhere("bbr").expect("bbr is allowed");
    lab.set_congestion_control_everywhere("cubic").expect("cubic");
    let directory = public_dir().expect("a directory");
    let path = file(directory.path(), 256);
    let serve = |host: &str| Dtn::on(lab.host(host)).anonymous().start();
    let (source, destination) = (serve("src"), serve("dst"));
    let copy = |more: &[&str]| {
        let to = destination.url(directory.path().join("copy"));
        // So few channels that cubic cannot fill the path with them: else there is nothing to win.
        let few = ["--chunk", "2M", "--concurrency", "2", "-p", "2"];
        let more: Vec<&str> = few.iter().chain(more).copied().collect();
        explained(lab.host("client").command(support::WHIMBREL), [&source.url(&path), &to], &more)
    };
    let free = copy(&[]);
    let (name, reason) = steered(&free).unwrap_or_else(|| panic!("nothing was tried: {free}"));
    assert!(name == "bbr" && reason.starts_with("it won"), "{free}");
    let fixed = copy(&["--congestion", "bbr"]);
    assert_eq!(steered(&fixed), None);
    assert!(fixed["plan"].as_array().unwrap().iter().any(|line| line["name"] == "bbr"), "{fixed}");
    let rate = |explained: &Value| explained["figures"]["rate"].as_f64().expect("a rate");
    assert!(rate(&free) > 0.4 * rate(&fixed), "what is found costs little: {fixed} {free}");
}

#[test]
fn a_congestion_control_that_is_not_allowed_is_refused_with_the_list() {
    let directory = public_dir().expect("a directory");
    let path = directory.path().join("file");
    std::fs::write(&path, b"bytes").expect("written");
    let server = Dtn::builder().anonymous().start();
    let to = directory.path().join("copy");
    let places = [server.url(&path), to.to_string_lossy().into_owned()];
    let arguments = ["cp", &places[0], &places[1], "--congestion", "nosuch"];
    let run = support::whimbrel(arguments).run().expect("it runs");
    assert_eq!(run.code(), Some(3), "{}", run.stderr_text());
    assert!(run.stderr_text().contains("nosuch is not allowed at the source; allowed are"), "{}", run.stderr_text());
    assert!(!to.exists());
}

#[test]
fn a_few_files_go_one_behind_the_other_where_bbr_sends_them_over_a_long_way() {
    if !require_root() {
        return;
    }
    let lab = Lab::triangle(Link::new().rtt(Duration::from_millis(30)).rate_mbit(800)).expect("laboratory");
    let directory = public_dir().expect("a directory");
    let tree = directory.path().join("tree");
    std::fs::create_dir(&tree).expect("made");
    for name in ["one", "two", "three"] {
        std::fs::write(tree.join(name), pattern(5 << 20)).expect("written");
    }
    // What was changed of the sessions, and which of them moved files.
    let moved = |congestion: &str| {
        lab.set_congestion_control_everywhere(congestion).expect("it is there");
        let serve = |host: &str| Dtn::on(lab.host(host)).anonymous().start();
        let (source, destination) = (serve("src"), serve("dst"));
        let to = destination.url(directory.path().join(congestion));
        let events = events(lab.host("client").command(support::WHIMBREL), [&source.url(&tree), &to], &["-r"]);
        let started = events.iter().filter(|event| event["event"] == "started");
        let sessions: BTreeSet<_> = started.map(|event| event["slot"].as_u64()).collect();
        (last_explanation(&events)["changes"].to_string(), sessions.len())
    };
    let (changes, sessions) = moved("bbr");
    assert!(changes.contains("only 3 files, 5.24 MB in the mean"), "{changes}");
    assert_eq!(sessions, 1, "{changes}");
    let (changes, _) = moved("cubic");
    assert!(!changes.contains("only 3 files"), "{changes}");
}

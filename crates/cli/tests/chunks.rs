//! Files that move in chunks, between the real server, ours and this host.

#![allow(clippy::unwrap_used, reason = "a test helper that fails ends its test")]

mod support;

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use support::dtn::Dtn;
use support::{Field, Server, WHIMBREL, event, events, expect, names, pattern};
use whimbrel_testkit::dataset;
use whimbrel_testkit::lab::{Host, Lab, Link};
use whimbrel_testkit::peers::url_path;
use whimbrel_testkit::relay::{Moment, Relay, Way};
use whimbrel_testkit::require_root;

/// Bytes of the file: 11 chunks and a bit, so that the last one is short and the leaves are not all alike.
const SIZE: usize = 3_000_001;

/// Every ordered pair of places that `big` can go between, as arguments of `cp`.
fn between_all(test: impl Fn(&Field, String, String)) {
    let place = |server: &Option<Server>, path: &Path| match server {
        Some(server) => server.url(path),
        None => path.to_string_lossy().into_owned(),
    };
    let kinds: [fn() -> Option<Server>; 3] = [Server::real, || Some(Server::own()), || None];
    for (at, source) in kinds.iter().enumerate() {
        for (to, destination) in kinds.iter().enumerate() {
            let (source, destination) = (source(), destination());
            // The real server may not be installed.
            if (at == 0 && source.is_none()) || (to == 0 && destination.is_none()) {
                continue;
            }
            let field = Field::new();
            let from = place(&source, &field.path("from/deep/er/big"));
            let into = place(&destination, &field.path("to/big"));
            test(&field, from, into);
        }
    }
}

#[test]
fn a_file_in_chunks_is_whole_verified_and_leaves_nothing_behind() {
    between_all(|field, from, into| {
        let run = expect(0, ["cp", "--chunk", "256K", "--concurrency", "3", "--preserve", &from, &into]);
        assert!(run.stderr_text().contains("1 verified"), "{from} {into}: {}", run.stderr_text());
        assert!(std::fs::read(field.path("to/big")).unwrap() == pattern(SIZE), "{from} {into}");
        assert_eq!(names(&field.path("to")), ["big"], "{from} {into}");
        let time = |path: &str| std::fs::metadata(field.path(path)).unwrap().mtime();
        assert_eq!(time("to/big"), time("from/deep/er/big"), "{from} {into}");
    });
}

#[test]
fn a_file_in_chunks_without_verification_is_whole_and_never_called_verified() {
    between_all(|field, from, into| {
        let run = expect(0, ["--json", "cp", "--no-verify", "--chunk", "256K", "--concurrency", "3", &from, &into]);
        let summary: Value = serde_json::from_str(run.stdout_text().lines().last().unwrap()).unwrap();
        assert_eq!((&summary["files"], &summary["verified"]), (&1.into(), &0.into()), "{from} {into}");
        let done = run.stdout_text().lines().any(|line| line.contains("\"state\":\"not_asked\""));
        assert!(done, "{}", run.stdout_text());
        assert!(std::fs::read(field.path("to/big")).unwrap() == pattern(SIZE), "{from} {into}");
        assert_eq!(names(&field.path("to")), ["big"], "{from} {into}");
    });
}

/// The bytes that a run found at its destination.
fn resumed(events: &[Value]) -> u64 {
    let began = events.iter().filter(|event| event["event"] == "started");
    began.filter_map(|event| event["resumed"].as_u64()).max().unwrap_or(0)
}

/// Of a run that began anew: the bytes that it has thrown away.
#[track_caller]
fn thrown_away(events: &[Value]) -> u64 {
    assert_eq!(resumed(events), 0, "bytes of another version were kept");
    let mut told = events.iter().filter(|event| event["event"] == "began_anew");
    let bytes = told.next().expect("it is said").clone();
    assert!(told.next().is_none(), "it is said once");
    bytes["bytes"].as_u64().unwrap()
}

const MIB: u64 = 1 << 20;

/// A copy of 32 MiB to a server of ours behind a relay, from this host or from another server of ours.
struct ByRelay {
    field: Field,
    way: Way,
    relay: Relay,
    source: Option<Dtn>,
    _destination: Dtn,
}

impl Drop for ByRelay {
    fn drop(&mut self) {
        self.way.end();
    }
}

impl ByRelay {
    fn ready(from_server: bool) -> Self {
        let (field, way) = (Field::new(), Way::new());
        dataset::random_file(&field.path("from/large"), 32 * MIB, 5).unwrap();
        let server = || Dtn::builder().anonymous().root(Path::new("/")).start();
        let (source, destination) = (from_server.then(server), server());
        let relay = Relay::before(destination.addr(), &way).unwrap();
        Self { field, way, relay, source, _destination: destination }
    }

    fn arguments(&self, options: &[String]) -> Vec<String> {
        let (from, copy) = (self.field.path("from/large"), self.field.path("to/large"));
        let local = || from.to_str().unwrap().to_owned();
        let from = self.source.as_ref().map_or_else(local, |source| source.url(&from));
        let into = format!("ftp://{}{}", self.relay.addr(), url_path(&copy));
        let base = ["--json", "cp", "--chunk", "2M", "--concurrency", "1"].map(str::to_owned);
        base.into_iter().chain(options.iter().cloned()).chain([from, into]).collect()
    }

    /// Has the client killed when 20 MiB have passed; what it had written has passed, too, when this returns.
    fn kill(&self, options: &[String]) {
        let mut child = Command::new(WHIMBREL).args(self.arguments(options)).stdout(Stdio::null()).spawn().unwrap();
        let id = child.id();
        self.way.at(Moment::Bytes(20 * MIB), move |_| {
            Command::new("kill").args(["-KILL", &id.to_string()]).status().unwrap();
        });
        assert!(!child.wait().unwrap().success() && !self.field.path("to/large").exists());
        self.way.wait_until_quiet();
    }

    /// Copies to the end; all events.
    fn again(&self, options: &[String]) -> Vec<Value> {
        let run = expect(0, self.arguments(options));
        let read = |name: &str| std::fs::read(self.field.path(name)).unwrap();
        assert!(read("from/large") == read("to/large"), "{options:?}");
        assert_eq!(names(&self.field.path("to")), ["large"], "{options:?}");
        events(&run)
    }

    /// Options with which the BLAKE3 of the whole file is wanted, as it is now.
    fn wanting_blake3(&self, expected: bool) -> Vec<String> {
        if !expected {
            return ["--print-checksum", "blake3"].map(str::to_owned).to_vec();
        }
        let run = expect(0, ["--json", "cksum", "-a", "blake3", self.field.path("from/large").to_str().unwrap()]);
        let digest = event(&run, "checksum")["checksum"].as_str().unwrap().to_owned();
        vec!["--expect".to_owned(), format!("blake3:{digest}")]
    }

    /// Another source of the same size and time.
    fn replace_source(&self) {
        let from = self.field.path("from/large");
        let at = std::fs::metadata(&from).unwrap().modified().unwrap();
        dataset::random_file(&from, 32 * MIB, 77).unwrap();
        std::fs::File::options().append(true).open(&from).unwrap().set_modified(at).unwrap();
    }
}

/// Every kind of source, with and without an expected digest.
const WANTED: [(bool, bool); 4] = [(false, false), (false, true), (true, false), (true, true)];

#[test]
fn unverified_parts_that_arrived_are_not_moved_again_and_count_for_nothing_in_a_run_that_verifies() {
    for verify in ["never", "auto"] {
        let copy = ByRelay::ready(false);
        let options = |verify: &str| ["--verify", verify].map(str::to_owned).to_vec();
        copy.kill(&options("never"));
        let before = copy.way.bytes();
        let found = resumed(&copy.again(&options(verify)));
        let moved = copy.way.bytes() - before;
        println!("{verify}: {found} bytes were there, {moved} moved");
        if verify == "never" {
            assert!(found >= 8 * MIB && moved < 32 * MIB - found + MIB, "{found} bytes were there, {moved} moved");
        } else {
            assert!(found == 0 && moved >= 32 * MIB, "{found} bytes were there, {moved} moved");
        }
    }
}

/// BLAKE3 of a large file is composed of digests that only leaves have.
#[test]
fn another_source_of_the_same_size_and_time_is_not_mixed_with_what_was_kept_where_blake3_is_wanted() {
    for (from_server, expected) in WANTED {
        let copy = ByRelay::ready(from_server);
        copy.kill(&copy.wanting_blake3(expected));
        copy.replace_source();
        let thrown_away = thrown_away(&copy.again(&copy.wanting_blake3(expected)));
        assert!(thrown_away >= 5 * MIB, "{thrown_away}, from a server: {from_server}, expected: {expected}");
    }
}

#[test]
fn a_killed_copy_whose_blake3_is_wanted_is_gone_on_with() {
    for (from_server, expected) in WANTED {
        let copy = ByRelay::ready(from_server);
        let options = copy.wanting_blake3(expected);
        copy.kill(&options);
        let events = copy.again(&options);
        let found = resumed(&events);
        assert!(found >= 5 * MIB, "{found}, from a server: {from_server}, expected: {expected}: {events:?}");
    }
}

#[test]
fn an_existing_file_is_replaced_as_a_whole() {
    between_all(|field, from, into| {
        std::fs::write(field.path("to/big"), vec![7; SIZE + 5000]).unwrap();
        std::fs::set_permissions(field.path("to/big"), std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        expect(0, ["cp", "--chunk", "256K", &from, &into]);
        assert!(std::fs::read(field.path("to/big")).unwrap() == pattern(SIZE), "{from} {into}");
    });
}

/// A round trip less, on long paths: the destination refuses the name as long as anything is unproven.
#[test]
fn the_name_is_asked_for_along_with_the_last_proof_and_only_then() {
    let (source, destination) = (Server::own(), Server::own());
    let field = Field::new();
    let from = source.url(field.path("from/deep/er/big"));
    let into = destination.url(field.path("to/big"));
    for sessions in ["1", "3"] {
        let run = expect(0, ["cp", "-vvv", "--chunk", "256K", "--concurrency", sessions, &from, &into]);
        let dialogue = run.stderr_text();
        let at = |words: &str| -> Vec<usize> {
            dialogue.lines().enumerate().filter(|(_, line)| line.contains(words)).map(|(at, _)| at).collect()
        };
        let (proofs, names) = (at("> SITE CHUNK KEEP "), at("> SITE CHUNK COMMIT "));
        // Of several sessions one may be a little early: then it is asked for again.
        assert!(names.len() == 1 || (names.len() == 2 && sessions != "1"), "{dialogue}");
        assert_eq!(proofs.last().map(|last| last + 1), names.first().copied(), "{dialogue}");
        assert!(std::fs::read(field.path("to/big")).unwrap() == pattern(SIZE), "{sessions}");
        std::fs::remove_file(field.path("to/big")).unwrap();
    }
}

#[test]
fn a_missing_directory_is_a_clear_error_and_nothing_is_made() {
    let (source, destination) = (Server::own(), Server::own());
    let field = Field::new();
    let from = source.url(field.path("from/deep/er/big"));
    let run = expect(4, ["cp", "--chunk", "256K", &from, &destination.url(field.path("to/missing/big"))]);
    assert!(run.stderr_text().contains("missing"), "{}", run.stderr_text());
    assert!(names(&field.path("to")).is_empty());
}

#[test]
fn an_endpoint_of_several_servers_shares_the_chunks_and_survives_the_loss_of_one() {
    let field = Field::new();
    let (a, b, c) = (Server::own(), Server::own(), Server::own());
    let host = |server: &Server| {
        let url = server.url("/");
        url.trim_start_matches("ftp://").trim_end_matches('/').to_owned()
    };
    let nobody = "127.0.0.1:9";
    let url = |hosts: &[&str], path: &str| format!("ftp://{}{}", hosts.join(","), field.path(path).display());
    let from = url(&[nobody, &host(&a), &host(&b)], "from/deep/er/big");
    let into = url(&[&host(&c), nobody], "to/big");
    expect(0, ["cp", "--chunk", "256K", "--concurrency", "4", &from, &into]);
    assert!(std::fs::read(field.path("to/big")).unwrap() == pattern(SIZE));
}

#[test]
fn sessions_are_spread_from_the_first_one_on_and_a_server_that_is_down_is_tried_once() {
    let field = Field::new();
    let path = field.path("from/deep/er/big");
    let start = || Dtn::builder().anonymous().root(Path::new("/")).start();
    let (a, b) = (start(), start());
    let nobody = "127.0.0.1:9";
    let from = format!("ftp://{nobody},{},{}{}", a.addr(), b.addr(), path.display());
    let into = field.path("to/big");
    let run = expect(0, ["-v", "cp", "--chunk", "64K", "--concurrency", "2", &from, &into.to_string_lossy()]);
    let logins = |server: &Dtn| server.log().matches("logged in").count();
    assert_eq!((logins(&a), logins(&b)), (1, 1), "the first session counts");
    assert_eq!(run.stderr_text().matches("a server cannot be used").count(), 1, "{}", run.stderr_text());
}

#[test]
fn servers_that_take_logins_and_no_data_lose_their_work_to_the_others() {
    let start = |options: &[&str]| {
        let server = Dtn::builder().anonymous().root(Path::new("/"));
        options.iter().fold(server, |server, option| server.arg(*option)).start()
    };
    // They listen for data at an address, and name another one, where nobody does.
    let deaf = || start(&["--data-address", "127.0.0.2"]);
    let (first, second, other) = (deaf(), deaf(), start(&[]));
    for chunk in ["off", "256K"] {
        let field = Field::new();
        let from = field.path("from/deep/er/big");
        let into =
            format!("ftp://{},{},{}{}", first.addr(), second.addr(), other.addr(), field.path("to/big").display());
        let run = expect(0, ["-v", "cp", "--chunk", chunk, "--concurrency", "1", &from.to_string_lossy(), &into]);
        assert!(run.stderr_text().contains("no data can be moved with a server"), "{}", run.stderr_text());
        assert!(std::fs::read(field.path("to/big")).unwrap() == pattern(SIZE), "{chunk}");
    }
}

#[test]
fn what_is_explained_of_small_chunks_is_what_is_done() {
    let (source, field) = (Server::own(), Field::new());
    let from = source.url(field.path("from/deep/er/big"));
    let run = expect(0, ["cp", "--chunk", "300K", "--explain", &from, &field.path("to/big").to_string_lossy()]);
    // 32 KiB leaves, of which ten make a chunk.
    assert!(run.stderr_text().contains("parts of 328 KB: set by the user"), "{}", run.stderr_text());
}

/// A copy over a slow path: run until this much has moved, then killed without warning.
fn copy_and_kill(host: &Host, from: &str, into: &str) {
    let mut command = host.command(WHIMBREL);
    command.args(["--json", "cp", "--chunk", "2M", from, into]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
        assert_ne!(event["event"], "summary", "the copy was too fast to be killed");
        if event["event"] == "progress" && event["bytes_done"].as_u64() > Some(15_000_000) {
            child.kill().unwrap();
            break;
        }
    }
    child.wait().unwrap();
}

/// Copies to the end; all events.
fn events_of_the_rest(host: &Host, options: &[&str], from: &str, into: &str) -> Vec<Value> {
    let mut command = host.command(WHIMBREL);
    command.args(["--json", "cp", "--chunk", "2M"]).args(options).args([from, into]);
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{text}\n{said}");
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Copies to the end from a source that is another by now: all is moved, and it is said why. Bytes are of what was thrown away.
fn copy_anew(host: &Host, from: &str, into: &str) -> u64 {
    thrown_away(&events_of_the_rest(host, &[], from, into))
}

/// Copies to the end; bytes that an earlier run had proven, and the last event.
fn copy_the_rest(host: &Host, from: &str, into: &str) -> (u64, Value) {
    let events = events_of_the_rest(host, &[], from, into);
    (resumed(&events), events.last().cloned().unwrap_or_default())
}

#[test]
fn a_killed_copy_is_finished_by_the_same_command_on_another_host() {
    if !require_root() {
        return;
    }
    let lab = Lab::triangle(Link::new().rtt(Duration::from_millis(2)).rate_mbit(80)).expect("laboratory");
    let source = Server::own_on(lab.host("src"));
    let real = Server::real_on(lab.host("dst"));
    for destination in real.into_iter().chain([Server::own_on(lab.host("dst"))]) {
        let field = Field::new();
        std::fs::write(field.path("from/large"), pattern(40_000_001)).unwrap();
        let (from, into) = (source.url(field.path("from/large")), destination.url(field.path("to/large")));
        copy_and_kill(lab.host("client"), &from, &into);
        assert!(!field.path("to/large").exists(), "an unfinished file has the final name");
        let (resumed, last) = copy_the_rest(lab.host("src"), &from, &into);
        assert!(resumed >= 5_000_000, "only {resumed} bytes were kept");
        assert_eq!(last["verified"], 1, "{last}");
        assert!(std::fs::read(field.path("to/large")).unwrap() == pattern(40_000_001));
        assert_eq!(names(&field.path("to")), ["large"]);
    }
}

/// A copy between servers of ours over a slow path, whose client was killed on the way.
struct CutCopy {
    lab: Lab,
    field: Field,
    from: String,
    into: String,
    _servers: [Server; 2],
}

impl CutCopy {
    fn between_our_own() -> Self {
        let lab = Lab::triangle(Link::new().rtt(Duration::from_millis(2)).rate_mbit(80)).expect("laboratory");
        let (source, destination) = (Server::own_on(lab.host("src")), Server::own_on(lab.host("dst")));
        let field = Field::new();
        std::fs::write(field.path("from/large"), pattern(40_000_001)).unwrap();
        let (from, into) = (source.url(field.path("from/large")), destination.url(field.path("to/large")));
        copy_and_kill(lab.host("client"), &from, &into);
        Self { lab, field, from, into, _servers: [source, destination] }
    }
}

#[test]
fn what_an_earlier_run_brought_is_not_said_to_be_read_from_the_disk() {
    if !require_root() {
        return;
    }
    let CutCopy { lab, from, into, .. } = &CutCopy::between_our_own();
    let events = events_of_the_rest(lab.host("client"), &["--verify", "disk"], from, into);
    assert!(events.iter().any(|event| event["resumed"].as_u64() > Some(0)), "nothing was kept");
    let done = events.iter().find(|event| event["event"] == "item_done").expect("it is told");
    assert_eq!(done["verification"]["read_back"], "earlier");
}

#[test]
fn a_source_that_changed_meanwhile_is_copied_anew() {
    if !require_root() {
        return;
    }
    let CutCopy { lab, field, from, into, .. } = &CutCopy::between_our_own();
    let changed: Vec<u8> = pattern(40_000_001).into_iter().map(|byte| !byte).collect();
    std::fs::write(field.path("from/large"), &changed).unwrap();
    let later = std::time::SystemTime::now() + Duration::from_secs(60);
    std::fs::File::options().append(true).open(field.path("from/large")).unwrap().set_modified(later).unwrap();
    assert!(copy_anew(lab.host("client"), from, into) >= 5_000_000);
    assert!(std::fs::read(field.path("to/large")).unwrap() == changed);
}

#[test]
fn another_source_of_the_same_size_and_time_is_not_mixed_with_what_was_kept() {
    if !require_root() {
        return;
    }
    let CutCopy { lab, field, from, into, .. } = &CutCopy::between_our_own();
    let at = std::fs::metadata(field.path("from/large")).unwrap().modified().unwrap();
    let other: Vec<u8> = pattern(40_000_001).into_iter().map(|byte| !byte).collect();
    std::fs::write(field.path("from/large"), &other).unwrap();
    std::fs::File::options().append(true).open(field.path("from/large")).unwrap().set_modified(at).unwrap();
    assert!(copy_anew(lab.host("client"), from, into) >= 5_000_000);
    assert!(std::fs::read(field.path("to/large")).unwrap() == other);
    assert_eq!(names(&field.path("to")), ["large"]);
}

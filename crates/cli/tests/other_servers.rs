//! Copies to and from `globus-gridftp-server`, which keeps no unfinished files: when a file gets its name there, what is
//! left of a copy that was killed, and what is done where temporary names are refused.

#![allow(clippy::unwrap_used, reason = "a test helper that fails ends its test")]

mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use support::dtn::{Dtn, until};
use support::{Field, Server, WHIMBREL, assert_same, expect, names, pattern, whimbrel};
use whimbrel_engine::journal;
use whimbrel_testkit::dataset;
use whimbrel_testkit::peers::{GridftpServer, Tool, url_path};
use whimbrel_testkit::relay::{Moment, Relay, Way};
use whimbrel_testkit::require_root;

const MIB: u64 = 1 << 20;

/// A server behind a relay.
struct Relayed {
    way: Way,
    relay: Relay,
    _server: GridftpServer,
}

impl Relayed {
    fn start() -> Option<Self> {
        let server = GridftpServer::builder()?.start().expect("the real server starts");
        let way = Way::new();
        let relay = Relay::before(server.addr(), &way).unwrap();
        Some(Self { way, relay, _server: server })
    }

    fn url(&self, path: impl AsRef<Path>) -> String {
        format!("ftp://{}{}", self.relay.addr(), url_path(path.as_ref()))
    }
}

impl Drop for Relayed {
    fn drop(&mut self) {
        self.way.end();
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

fn events(text: &str) -> Vec<Value> {
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The unfinished copy, or a name that nothing has.
fn hidden(copy: &Path) -> PathBuf {
    beside(copy, "").unwrap_or_else(|| copy.with_file_name(".nothing"))
}

/// What has the name of an unfinished copy with this behind it.
fn beside(copy: &Path, behind: &str) -> Option<PathBuf> {
    let stem = format!(".{}.whimbrel-", copy.file_name().unwrap().to_str().unwrap());
    let names = names(copy.parent().unwrap()).into_iter().map(|name| name.into_string().unwrap());
    let is_wanted = |name: &String| match name.strip_prefix(&stem) {
        Some(rest) if behind.is_empty() => !rest.ends_with("-kept") && !rest.ends_with("-live"),
        Some(rest) => rest.ends_with(behind),
        None => false,
    };
    names.into_iter().find(is_wanted).map(|name| copy.with_file_name(name))
}

/// A file to copy, in a field whose destination holds an older one of the same name.
fn file_of(bytes: u64) -> (Field, PathBuf, PathBuf) {
    let field = Field::new();
    let (source, copy) = (field.path("from/file"), field.path("to/file"));
    dataset::random_file(&source, bytes, bytes).unwrap();
    fs::write(&copy, "before").unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o666)).unwrap();
    (field, source, copy)
}

#[test]
fn a_file_has_its_name_only_when_it_is_complete_and_proven() {
    for (options, bytes) in
        [(&[][..], 200_000), (&["--no-verify"], 3 * MIB), (&["--chunk", "off"], 9 * MIB), (&["--chunk", "1M"], 9 * MIB)]
    {
        for source in [Some(Server::own()), Server::real(), None] {
            let Some(server) = Relayed::start() else { return };
            let (_field, from, copy) = file_of(bytes);
            let seen = Arc::new(Mutex::new(Vec::new()));
            let look = |moment, name: &'static str| {
                let (seen, copy) = (seen.clone(), copy.clone());
                server.way.at(moment, move |_| {
                    // The first bytes may be here before the server has opened the file.
                    until("a temporary file", || hidden(&copy).exists());
                    let state = (name, fs::read(&copy).unwrap() == b"before");
                    seen.lock().unwrap().push(state);
                });
            };
            look(Moment::Bytes(bytes / 2), "while it moves");
            look(Moment::Command("RNTO", 1), "before it is renamed");
            let from_url = source.as_ref().map_or_else(|| text(&from), |source| source.url(&from));
            let run = whimbrel(["cp"]).args(options).args([from_url, server.url(&copy)]).run_ok();
            assert_eq!(*seen.lock().unwrap(), [("while it moves", true), ("before it is renamed", true)]);
            assert_same(&from, &copy);
            assert_eq!(names(copy.parent().unwrap()), ["file"], "{}", run.stderr_text());
            let verified = run.stderr_text().contains("1 verified");
            assert_eq!(verified, !options.contains(&"--no-verify"), "{}", run.stderr_text());
        }
    }
}

#[test]
fn a_damaged_file_gets_no_name_and_nothing_of_it_is_left() {
    for options in [&[][..], &["--chunk", "off"]] {
        let Some(server) = Relayed::start() else { return };
        let (_field, from, copy) = file_of(MIB);
        // Somewhere in each of the first attempts; with framing they are a little longer than the file.
        (0..8).for_each(|attempt| server.way.flip(attempt * (MIB + 1000) + MIB / 2, 3));
        let run = expect(
            4,
            ["--json", "cp"]
                .iter()
                .chain(options)
                .map(|word| (*word).to_owned())
                .chain([text(&from), server.url(&copy)]),
        );
        let failed = events(&run.stdout_text()).into_iter().find(|event| event["event"] == "item_failed").unwrap();
        assert_eq!(failed["fault"]["code"], "ChecksumMismatch", "{failed}");
        assert_eq!(fs::read(&copy).unwrap(), b"before");
        assert_eq!(names(copy.parent().unwrap()), ["file"]);
    }
}

#[test]
fn what_a_killed_copy_left_has_no_name_and_is_replaced_by_the_next_one() {
    for options in [&[][..], &["--chunk", "1M"], &["--no-verify"]] {
        let Some(server) = Relayed::start() else { return };
        let (_field, from, copy) = file_of(9 * MIB);
        let mut child = Command::new(WHIMBREL);
        child.args(["cp"]).args(options).args([text(&from), server.url(&copy)]);
        let mut child = child.stderr(std::process::Stdio::null()).spawn().unwrap();
        let id = child.id();
        server.way.at(Moment::Bytes(5 * MIB), move |_| {
            Command::new("kill").args(["-KILL", &id.to_string()]).status().unwrap();
        });
        assert!(!child.wait().unwrap().success(), "it was killed");
        assert_eq!(fs::read(&copy).unwrap(), b"before");
        assert!(hidden(&copy).exists());
        // What is left of whole files is looked for by runs that last a second.
        server.way.trickle(64 << 10, Duration::from_millis(20), 9 * MIB);
        whimbrel(["cp"]).args(options).args([text(&from), server.url(&copy)]).run_ok();
        assert_same(&from, &copy);
        assert_eq!(names(copy.parent().unwrap()), ["file"]);
    }
}

/// Many small files, some of which their server may not read; the names of those.
fn tree_with_unreadable_files(root: &Path, count: usize) -> Vec<String> {
    fs::create_dir_all(root).unwrap();
    let mut unreadable = Vec::new();
    for number in 0..count {
        let name = format!("f{number:03}");
        // Of the same sizes now and then, so that only the content tells them apart.
        dataset::random_file(&root.join(&name), (number as u64 % 7) * 1000, number as u64).unwrap();
        if number % 29 == 13 {
            fs::set_permissions(root.join(&name), fs::Permissions::from_mode(0o000)).unwrap();
            unreadable.push(name);
        }
    }
    unreadable
}

#[test]
fn a_refused_source_costs_nobody_the_file_into_which_a_part_was_to_go_nor_a_link() {
    if !require_root() {
        return;
    }
    let (Some(source), Some(destination)) = (Server::real(), Server::real()) else { return };
    let field = Field::new();
    let [from, whole, link, linked] = ["from/file", "to/whole", "to/link", "to/linked"].map(|name| field.path(name));
    for (path, seed) in [(&from, 1), (&whole, 2), (&linked, 3)] {
        dataset::random_file(path, MIB, seed).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o666)).unwrap();
    }
    let before = fs::read(&whole).unwrap();
    std::os::unix::fs::symlink(&linked, &link).unwrap();
    fs::set_permissions(&from, fs::Permissions::from_mode(0o000)).unwrap();
    for (options, to) in [(&["--offset", "0", "--length", "1000"][..], &whole), (&[], &link)] {
        let run =
            whimbrel(["--json", "cp"]).args(options).args([source.url(&from), destination.url(to)]).run().unwrap();
        assert_eq!(run.code(), Some(3), "{run}");
        assert!(run.stdout_text().contains("PermissionDenied"), "{run}");
    }
    assert_eq!(fs::read(&whole).unwrap(), before);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
}

#[test]
fn a_refused_file_among_pipelined_ones_costs_no_other_file_its_content() {
    if !require_root() {
        return;
    }
    for kind in 0..3 {
        let Some(source) = Server::real() else { return };
        let field = Field::new();
        let unreadable = tree_with_unreadable_files(&field.path("from/many"), 120);
        let destination = [Server::real(), Some(Server::own()), None].into_iter().nth(kind).unwrap();
        let to = field.path("to");
        let to = destination.as_ref().map_or_else(|| text(&to), |server| server.url(&to));
        let run = expect(1, ["--json", "cp", "-r", "--pipeline", "40", &source.url(field.path("from/many")), &to]);
        let events = events(&run.stdout_text());
        let failed: Vec<&str> = events
            .iter()
            .filter(|event| event["event"] == "item_failed")
            .map(|event| {
                assert_eq!(event["fault"]["code"], "PermissionDenied", "{event}");
                event["source"].as_str().unwrap().rsplit('/').next().unwrap()
            })
            .collect();
        let mut failed = failed.clone();
        failed.sort_unstable();
        assert_eq!(failed, unreadable, "destination {kind}");
        let copied = names(&field.path("to/many"));
        assert_eq!(copied.len(), 120 - unreadable.len(), "nothing is left beside them: {copied:?}");
        for name in &copied {
            assert_same(&field.path("from/many").join(name), &field.path("to/many").join(name));
        }
        assert_eq!(events.last().unwrap()["verified"], copied.len(), "{run:?}");
    }
}

#[test]
fn a_directory_of_more_names_than_one_reply_holds_is_copied_whole() {
    let Some(server) = Server::real() else { return };
    let field = Field::new();
    let many = field.path("from/many");
    fs::create_dir(&many).unwrap();
    // That server sends its listing as several replies.
    (0..1500).for_each(|number| fs::write(many.join(format!("{number}")), [number as u8; 3]).unwrap());
    let run = expect(0, ["--json", "cp", "-r", "--no-verify", &server.url(&many), &text(&field.path("to"))]);
    assert_eq!(events(&run.stdout_text()).last().unwrap()["files"], 1500);
    assert_same(&many, &field.path("to/many"));
}

#[test]
fn small_files_from_another_kind_of_server_share_their_round_trips() {
    const FILES: u64 = 60;
    let Some(source) = Relayed::start() else { return };
    for kind in 0..3 {
        let field = Field::new();
        (0..FILES).for_each(|number| {
            let path = field.path(&format!("from/many/{number}"));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            dataset::random_file(&path, 1000, number).unwrap();
        });
        let destination = [Server::real(), Some(Server::own()), None].into_iter().nth(kind).unwrap();
        let to = destination.as_ref().map_or_else(|| text(&field.path("to")), |server| server.url(field.path("to")));
        source.way.set_round_trip(Duration::from_millis(300));
        let said = source.way.rounds().len();
        let first = source.way.rounds().iter().map(|said| said.round).max().unwrap_or(0);
        whimbrel(["cp", "-r", "--concurrency", "1", "--pipeline", "60", &source.url(field.path("from/many")), &to])
            .limit(Duration::from_secs(100))
            .run_ok();
        let rounds = source.way.rounds().split_off(said).iter().map(|said| said.round).max().unwrap_or(0) - first;
        println!("destination {kind}: {rounds} round trips for {FILES} files");
        assert!(rounds <= 12, "{rounds} round trips for {FILES} files, destination {kind}");
        assert_same(&field.path("from/many"), &field.path("to/many"));
    }
}

#[test]
fn where_temporary_names_are_refused_files_are_written_in_place_and_that_is_said() {
    if !require_root() {
        return;
    }
    let Some(server) = Server::real() else { return };
    for (options, bytes) in [(&[][..], 1000), (&["--chunk", "1M"], 5 * MIB)] {
        let (field, from, copy) = file_of(bytes);
        // The server's user may change the file, but make none.
        fs::set_permissions(field.path("to"), fs::Permissions::from_mode(0o755)).unwrap();
        let run = whimbrel(["--json", "cp"]).args(options).args([text(&from), server.url(&copy)]).run_ok();
        assert_same(&from, &copy);
        let events = events(&run.stdout_text());
        let said = events.iter().find(|event| event["event"] == "written_in_place").expect("it is said");
        assert!(said["directory"].as_str().unwrap().ends_with("/to/"), "{said}");
        assert_eq!(events.last().unwrap()["verified"], 1);
        let run = whimbrel(["cp"]).args(options).args([text(&from), server.url(&copy)]).run_ok();
        assert!(run.stderr_text().contains("takes no temporary names"), "{}", run.stderr_text());
        // What must be checked first gets no name, whatever it costs.
        let unexpected = format!("md5:{}", "0".repeat(32));
        fs::write(&copy, "before").unwrap();
        let run = whimbrel(["cp", "--expect", &unexpected]).args([text(&from), server.url(&copy)]).run().unwrap();
        assert!(!run.success());
        assert_eq!(fs::read(&copy).unwrap(), b"before");
    }
}

#[test]
fn a_file_that_nobody_may_replace_is_written_in_place() {
    if !require_root() {
        return;
    }
    let Some(server) = Server::real() else { return };
    let (field, from, copy) = file_of(1000);
    // In a directory with the sticky bit only its owner may rename over a file; the group of others may make new ones.
    let group = Command::new("id").args(["-g", "nobody"]).output().unwrap();
    let group: u32 = String::from_utf8(group.stdout).unwrap().trim().parse().unwrap();
    std::os::unix::fs::chown(field.path("to"), None, Some(group)).unwrap();
    fs::set_permissions(field.path("to"), fs::Permissions::from_mode(0o1775)).unwrap();
    let run = whimbrel(["cp"]).args([text(&from), server.url(&copy)]).run_ok();
    assert_same(&from, &copy);
    assert!(run.stderr_text().contains("takes no temporary names"), "{}", run.stderr_text());
    assert_eq!(names(&field.path("to")), ["file"]);
}

#[test]
fn a_leftover_that_cannot_be_written_to_is_cleared_away() {
    if !require_root() {
        return;
    }
    let Some(killed) = Resumed::killed(8 * MIB, 5 * MIB, &[]) else { return };
    let (from, copy) = (killed.from.clone(), killed.copy.clone());
    std::os::unix::fs::chown(hidden(&copy), Some(0), Some(0)).unwrap();
    fs::set_permissions(hidden(&copy), fs::Permissions::from_mode(0o444)).unwrap();
    let run = whimbrel(killed.arguments(&[])[1..].iter()).limit(Duration::from_secs(100)).run_ok();
    assert!(!run.stderr_text().contains("takes no temporary names"), "{}", run.stderr_text());
    assert_same(&from, &copy);
    assert_eq!(names(copy.parent().unwrap()), ["file"]);
}

#[test]
fn links_pipes_and_devices_are_written_to_and_not_replaced() {
    let Some(server) = Server::real() else { return };
    let (field, from, copy) = file_of(1000);
    let link = field.path("to/link");
    symlink("file", &link).unwrap();
    // To find out that it is one costs no attempt.
    whimbrel(["cp", "--attempts", "1"]).args([text(&from), server.url(&link)]).run_ok();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_same(&from, &copy);
    assert_eq!(names(&field.path("to")), ["file", "link"]);
    // In a list nobody asks what is there before it is planned. What went through the pipe is not read back.
    let pipe = field.path("to/pipe");
    Command::new("mkfifo").args(["-m", "666"]).arg(&pipe).status().unwrap();
    let reader = {
        let pipe = pipe.clone();
        std::thread::spawn(move || fs::read(pipe).unwrap())
    };
    fs::write(&copy, "before").unwrap();
    let to = [server.url(&link), server.url("/dev/null"), server.url(&pipe)];
    let list: String = to.iter().map(|to| format!("{} {to}\n", text(&from))).collect();
    whimbrel(["cp", "--list", "-"]).input(list).run_ok();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_same(&from, &copy);
    assert!(reader.join().unwrap() == fs::read(&from).unwrap());
    assert_eq!(names(&field.path("to")), ["file", "link", "pipe"]);
    assert!(!fs::symlink_metadata("/dev/null").unwrap().is_file());
    whimbrel(["cp"]).args([text(&from), server.url("/dev/null")]).run_ok();
    assert!(!fs::symlink_metadata("/dev/null").unwrap().is_file());
}

#[test]
fn a_link_that_leads_to_the_source_is_not_written_through() {
    let Some(server) = Server::real() else { return };
    let (field, from, copy) = file_of(1000);
    let link = field.path("to/link");
    symlink(&from, &link).unwrap();
    let to_link = ["cp".to_owned(), "--attempts".to_owned(), "1".to_owned(), server.url(&from), server.url(&link)];
    let before = fs::read(&from).unwrap();
    let run = expect(4, &to_link);
    assert!(run.stderr_text().contains("it is the source, by another name"), "{}", run.stderr_text());
    assert!(fs::read(&from).unwrap() == before);
    assert_eq!(names(&field.path("to")), ["file", "link"]);
    // To any other file it is.
    fs::remove_file(&link).unwrap();
    symlink("file", &link).unwrap();
    expect(0, &to_link);
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_same(&from, &copy);
}

#[test]
fn a_file_whose_name_has_the_form_of_a_temporary_one_is_refused_by_name() {
    let Some(server) = Server::real() else { return };
    let field = Field::new();
    let tree = field.path("from/tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("x"), "x").unwrap();
    fs::write(tree.join(".x.whimbrel"), "a user's own").unwrap();
    fs::write(tree.join(format!(".x.whimbrel-{}", "0".repeat(32))), "what a run has left").unwrap();
    let run = expect(1, ["--json", "cp", "-r", &text(&tree), &server.url(field.path("to"))]);
    let failed = events(&run.stdout_text()).into_iter().find(|event| event["event"] == "item_failed").unwrap();
    assert_eq!(failed["fault"]["code"], "InvalidPath", "{failed}");
    assert_eq!(names(&field.path("to/tree")), [".x.whimbrel", "x"]);
}

#[test]
fn attributes_are_there_when_the_name_is() {
    let Some(server) = Relayed::start() else { return };
    for options in [&[][..], &["--chunk", "1M"]] {
        let (_field, from, copy) = file_of(5 * MIB);
        fs::set_permissions(&from, fs::Permissions::from_mode(0o444)).unwrap();
        let time = std::time::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let file = fs::File::options().read(true).open(&from).unwrap();
        file.set_modified(time).unwrap();
        whimbrel(["cp", "--preserve"]).args(options).args([text(&from), server.url(&copy)]).run_ok();
        let meta = fs::metadata(&copy).unwrap();
        assert_eq!((meta.permissions().mode() & 0o777, meta.modified().unwrap()), (0o444, time), "{options:?}");
        let said = server.way.said();
        let at = |verb: &str| said.iter().rposition(|(_, line)| line.starts_with(verb));
        assert!(at("SITE CHMOD").unwrap() < at("RNTO").unwrap());
        // Again, over one that cannot be written to.
        whimbrel(["cp", "--preserve"]).args(options).args([text(&from), server.url(&copy)]).run_ok();
        assert_same(&from, &copy);
    }
}

#[test]
fn what_another_kind_of_server_cannot_promise_is_explained() {
    let Some(server) = Server::real() else { return };
    let field = Field::new();
    let run =
        whimbrel(["cp", "--explain"]).args([text(&field.path("from/one")), server.url(field.path("to/one"))]).run_ok();
    assert!(run.stderr_text().contains("unfinished files: .NAME.whimbrel"), "{}", run.stderr_text());
    assert!(run.stderr_text().contains("survives a crash"), "{}", run.stderr_text());
    assert_eq!(fs::read(field.path("to/one")).unwrap(), b"1");
}

#[test]
fn a_large_file_whose_renaming_was_not_answered_is_compared_and_not_moved_again() {
    for options in [&["--preserve"][..], &[]] {
        let Some(server) = Relayed::start() else { return };
        let (_field, from, copy) = file_of(9 * MIB);
        server.way.at(Moment::Answer("RNTO", 1), Way::reset_all);
        let run =
            whimbrel(["--json", "cp", "--chunk", "1M"]).args(options).args([text(&from), server.url(&copy)]).run_ok();
        assert_same(&from, &copy);
        assert!(server.way.bytes() < 10 * MIB, "{} bytes moved", server.way.bytes());
        assert!(events(&run.stdout_text()).iter().any(|event| event["event"] == "session_lost"), "nothing was cut");
        assert_eq!(names(copy.parent().unwrap()), ["file"]);
    }
}

/// Leaves of a copy with `--chunk 256K`.
const LEAF: u64 = 32 << 10;

/// A source of ours and a destination of another kind, both behind relays.
struct Resumed {
    field: Field,
    from: PathBuf,
    copy: PathBuf,
    source: (Way, Relay, Dtn),
    destination: Relayed,
}

impl Resumed {
    /// Copies a file of so many bytes and kills the client when `part` of it has passed, a few seconds after it began.
    fn killed(bytes: u64, part: u64, options: &[&str]) -> Option<Self> {
        let destination = Relayed::start()?;
        let (field, from, copy) = file_of(bytes);
        let dtn = Dtn::builder().anonymous().root(Path::new("/")).start();
        let way = Way::new();
        let relay = Relay::before(dtn.addr(), &way).unwrap();
        let resumed = Self { field, from, copy, source: (way, relay, dtn), destination };
        let mut command = Command::new(WHIMBREL);
        command.args(resumed.arguments(options)).stdout(std::process::Stdio::null());
        let mut child = command.stderr(std::process::Stdio::null()).spawn().unwrap();
        let id = child.id();
        // Slow enough for the sidecar to be written more than once.
        resumed.destination.way.trickle(64 << 10, Duration::from_millis(20), part);
        resumed.destination.way.at(Moment::Bytes(part), move |way| {
            way.close();
            Command::new("kill").args(["-KILL", &id.to_string()]).status().unwrap();
            way.open();
        });
        assert!(!child.wait().unwrap().success(), "it was killed");
        assert_eq!(fs::read(&resumed.copy).unwrap(), b"before");
        // What the servers had been told to do is done.
        let age = |path: PathBuf| fs::metadata(path).ok()?.modified().ok()?.elapsed().ok();
        until("nobody writes", || age(hidden(&resumed.copy)).is_some_and(|age| age > Duration::from_millis(1500)));
        Some(resumed)
    }

    fn arguments(&self, options: &[&str]) -> Vec<String> {
        let from = format!("ftp://{}{}", self.source.1.addr(), url_path(&self.from));
        let base = ["--json", "cp", "--chunk", "256K", "--concurrency", "2"];
        let places = [from, self.destination.url(&self.copy)];
        base.iter().chain(options).map(|word| (*word).to_owned()).chain(places).collect()
    }

    fn kept(&self) -> PathBuf {
        beside(&self.copy, "-kept").unwrap_or_else(|| self.copy.with_file_name(".nothing"))
    }

    /// Runs the command again; bytes of data that passed, and checksums that the source was asked for.
    fn again(&self, options: &[&str]) -> (u64, usize, Vec<Value>) {
        let asked = || self.source.0.said().iter().filter(|(_, line)| line.starts_with("CKSM")).count();
        let (bytes, questions) = (self.destination.way.bytes(), asked());
        let run = whimbrel(self.arguments(options)).limit(Duration::from_secs(100)).run_ok();
        assert_same(&self.from, &self.copy);
        assert_eq!(names(&self.field.path("to")), ["file"], "{}", run.stdout_text());
        (self.destination.way.bytes() - bytes, asked() - questions, events(&run.stdout_text()))
    }
}

#[test]
fn what_was_proven_at_another_kind_of_server_is_kept_beside_the_file_and_not_read_again() {
    const SIZE: u64 = 24 * MIB;
    let Some(resumed) = Resumed::killed(SIZE, 18 * MIB, &[]) else { return };
    let trusted = journal::decode(&fs::read(resumed.kept()).unwrap());
    let header = trusted.header.as_ref().expect("it is about a file");
    assert_eq!((header.size, header.leaf, header.algorithm.as_str()), (SIZE, LEAF, "MD5"));
    let source = fs::read(&resumed.from).unwrap();
    for leaf in trusted.leaves.iter().step_by(50) {
        let bytes = &source[leaf.range.start as usize..leaf.range.end as usize];
        let sum = Tool::new("md5sum").input(bytes).run_ok().stdout_text();
        let digest: String = leaf.digest.iter().map(|byte| format!("{byte:02x}")).collect();
        assert!(sum.starts_with(&digest), "{sum} is not {digest}");
    }
    let kept = trusted.leaves.len();
    let there = fs::metadata(hidden(&resumed.copy)).unwrap().len().div_ceil(LEAF) as usize;
    println!("{there} leaves are there, {kept} were kept");
    assert!(kept > there / 3, "{kept} of {there} leaves were kept");
    let (moved, asked, events) = resumed.again(&[]);
    assert!(
        asked <= there - kept + 2,
        "the source was asked for {asked} leaves, of which {there} are there, {kept} kept"
    );
    let resumed_bytes = events.iter().find(|event| event["event"] == "started").unwrap()["resumed"].as_u64().unwrap();
    assert!(resumed_bytes >= kept as u64 * LEAF, "{resumed_bytes}");
    assert!(moved < SIZE - resumed_bytes + MIB, "{moved} bytes moved");
    assert_eq!(events.last().unwrap()["verified"], 1);
}

#[test]
fn a_sidecar_is_never_believed_against_what_the_servers_say() {
    const SIZE: u64 = 16 * MIB;
    type Spoil = fn(&Resumed);
    let wrong: [(&str, Spoil); 4] = [
        ("torn", |resumed| {
            let bytes = fs::read(resumed.kept()).unwrap();
            fs::write(resumed.kept(), &bytes[..bytes.len() / 2]).unwrap();
        }),
        ("garbage", |resumed| fs::write(resumed.kept(), pattern(5000)).unwrap()),
        ("a leaf that it names is damaged", |resumed| {
            let trusted = journal::decode(&fs::read(resumed.kept()).unwrap());
            let leaf = &trusted.leaves[trusted.leaves.len() / 2];
            whimbrel_testkit::stored::flip_bit(&hidden(&resumed.copy), leaf.range.start + 5).unwrap();
        }),
        ("another source of the same size and time", |resumed| {
            let time = fs::metadata(&resumed.from).unwrap().modified().unwrap();
            dataset::random_file(&resumed.from, SIZE, 77).unwrap();
            fs::File::options().write(true).open(&resumed.from).unwrap().set_modified(time).unwrap();
        }),
    ];
    for (name, spoil) in wrong {
        let Some(resumed) = Resumed::killed(SIZE, 12 * MIB, &[]) else { return };
        assert!(resumed.kept().exists(), "{name}");
        spoil(&resumed);
        let (_, _, events) = resumed.again(&[]);
        assert_eq!(events.last().unwrap()["verified"], 1, "{name}");
    }
}

#[test]
fn more_leaves_than_a_server_takes_commands_are_examined() {
    // 960 leaves; that server drops a connection with more than 500 commands ahead.
    let Some(resumed) = Resumed::killed(32 * MIB, 30 * MIB, &[]) else { return };
    fs::remove_file(resumed.kept()).unwrap();
    let (moved, asked, events) = resumed.again(&[]);
    assert!(asked > 500, "{asked}");
    assert!(moved < 12 * MIB, "{moved} bytes moved");
    assert!(!events.iter().any(|event| event["event"] == "session_lost"), "{events:?}");
}

#[test]
fn an_unverified_copy_goes_on_where_it_was_and_is_never_called_verified() {
    const SIZE: u64 = 24 * MIB;
    // What arrived is not known there: equal checksums save moving it again, and prove nothing of the rest.
    let Some(resumed) = Resumed::killed(SIZE, 18 * MIB, &["--no-verify"]) else { return };
    assert!(!resumed.kept().exists());
    let (moved, _, events) = resumed.again(&["--no-verify"]);
    assert!(moved < 12 * MIB, "{moved} bytes moved");
    assert_eq!(events.last().unwrap()["verified"], 0);
}

impl Resumed {
    /// Has what was left be that of a run of another host; returns its name.
    fn of_another_host(&self) -> PathBuf {
        let left = hidden(&self.copy);
        let name = left.file_name().unwrap().to_str().unwrap().to_owned();
        let at = ".file.whimbrel-".len() + 8;
        let elsewhere = format!("{}00000001{}", &name[..at], &name[at + 8..]);
        for behind in ["", "-kept", "-live"] {
            let named = |name: &str| left.with_file_name(format!("{name}{behind}"));
            if named(&name).exists() {
                fs::rename(named(&name), named(&elsewhere)).unwrap();
            }
        }
        left.with_file_name(elsewhere)
    }
}

#[test]
fn what_a_run_of_another_host_left_is_gone_on_with_when_it_gives_no_sign_of_life() {
    let Some(resumed) = Resumed::killed(16 * MIB, 12 * MIB, &[]) else { return };
    resumed.of_another_host();
    let (moved, _, events) = resumed.again(&[]);
    let started = events.iter().find(|event| event["event"] == "started").unwrap();
    assert!(started["resumed"].as_u64().unwrap() > 4 * MIB, "{started}");
    assert!(moved < 12 * MIB, "{moved} bytes moved");
}

#[test]
fn what_a_run_of_another_host_is_at_work_on_is_left_alone() {
    let Some(resumed) = Resumed::killed(8 * MIB, 5 * MIB, &[]) else { return };
    let left = resumed.of_another_host();
    let sign = left.with_file_name(format!("{}-live", left.file_name().unwrap().to_str().unwrap()));
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let alive = std::thread::spawn(move || {
        // It may be there.
        while stopped.recv_timeout(Duration::from_millis(500)) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            let _ = fs::create_dir(&sign);
        }
    });
    let before = fs::read(&left).unwrap();
    let run = whimbrel(resumed.arguments(&[])).limit(Duration::from_secs(100)).run_ok();
    drop(stop);
    alive.join().unwrap();
    assert_same(&resumed.from, &resumed.copy);
    assert!(fs::read(&left).unwrap() == before, "it was written to");
    let events = events(&run.stdout_text());
    let said = events.iter().find(|event| event["event"] == "other_runs").expect("it is said");
    assert_eq!(said["files"], 1, "{said}");
    assert_eq!(events.iter().find(|event| event["event"] == "started").unwrap()["resumed"], 0);
}

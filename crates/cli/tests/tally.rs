//! Trees whose copy was cut short: the same command moves only what is missing.

#![allow(clippy::unwrap_used, reason = "a test helper that fails ends its test")]

mod support;

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use support::{Server, WHIMBREL, names, pattern};
use whimbrel_engine::tally::Tally;
use whimbrel_testkit::lab::{Host, Lab, Link};
use whimbrel_testkit::peers::public_dir;
use whimbrel_testkit::require_root;

/// Directories, files in each, bytes of each: several seconds over the path below.
const SHAPE: (usize, usize, usize) = (5, 80, 100_000);
const FILES: u64 = (SHAPE.0 * SHAPE.1) as u64;

/// A slow path between servers, and a tree to be copied.
struct Scene {
    lab: Lab,
    source: Server,
    directory: tempfile::TempDir,
}

/// What the command says while it runs.
type Events = Vec<Value>;

impl Scene {
    fn new() -> Self {
        let lab = Lab::triangle(Link::new().rtt(Duration::from_millis(2)).rate_mbit(80)).expect("laboratory");
        let source = Server::own_on(lab.host("src"));
        let directory = public_dir().expect("a temporary directory");
        let scene = Self { lab, source, directory };
        for at in 0..SHAPE.0 {
            fs::create_dir_all(scene.path(&format!("from/d{at}"))).unwrap();
            for file in 0..SHAPE.1 {
                fs::write(scene.path(&format!("from/d{at}/f{file:03}")), bytes_of(at * 1000 + file)).unwrap();
            }
        }
        fs::create_dir(scene.path("to")).unwrap();
        fs::set_permissions(scene.path("to"), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        scene
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn from(&self) -> String {
        self.source.url(self.path("from"))
    }

    /// Copies until so much of the tally is written that some of it must be believed, then kills without warning.
    fn cut(&self, into: &str, tally_in: &Path, copies: &Path) {
        let mut command = self.lab.host("client").command(WHIMBREL);
        command.args(["--json", "-vvv", "cp", "-r", &self.from(), into]);
        let dialogue = File::create(self.path("dialogue")).unwrap();
        let mut child = command.stdout(Stdio::piped()).stderr(dialogue).spawn().unwrap();
        let (mut done, mut cut) = (Vec::new(), false);
        for line in BufReader::new(child.stdout.take().unwrap()).lines() {
            let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
            assert_ne!(event["event"], "summary", "the copy was too fast to be killed");
            if event["event"] == "item_done" && event["outcome"] == "copied" {
                done.push(PathBuf::from(event["source"].as_str().unwrap()));
                if believed(&done, &self.path("from"), tally_in, copies) >= 60 {
                    child.kill().unwrap();
                    cut = true;
                    break;
                }
            }
        }
        child.wait().unwrap();
        assert!(cut, "nothing was kept");
    }

    /// The same command to its end, on another host where that makes no difference; its events.
    fn finish(&self, host: &Host, into: &str) -> Events {
        let output = host.command(WHIMBREL).args(["--json", "cp", "-r", &self.from(), into]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn is_copied_to(&self, copies: &Path) {
        let directories: Vec<_> = (0..SHAPE.0).map(|at| std::ffi::OsString::from(format!("d{at}"))).collect();
        assert_eq!(names(copies), directories);
        for directory in directories {
            let (from, to) = (self.path("from").join(&directory), copies.join(&directory));
            // What a killed run left of single files at a server of another kind goes as there is time.
            let mut there = names(&to);
            there.retain(|name| !is_left(name));
            assert_eq!(names(&from), there);
            for name in names(&from) {
                assert!(fs::read(from.join(&name)).unwrap() == fs::read(to.join(&name)).unwrap(), "{name:?}");
            }
        }
    }
}

/// Whether it is what a run keeps of one whole file at servers of other kinds.
fn is_left(name: &std::ffi::OsStr) -> bool {
    let name = name.to_string_lossy();
    name.starts_with(".f") && name.split_once(".whimbrel-").is_some_and(|(_, run)| run.len() == 32)
}

fn bytes_of(number: usize) -> Vec<u8> {
    let mut bytes = pattern(SHAPE.2);
    bytes[..8].copy_from_slice(&number.to_le_bytes());
    bytes
}

/// A copy to a server of our own that was killed: its destination's URL, and where the copies are; `None` without root.
fn cut_short() -> Option<(Scene, Server, String, PathBuf)> {
    if !require_root() {
        return None;
    }
    let scene = Scene::new();
    let server = Server::own_on(scene.lab.host("dst"));
    let (url, copies) = (server.url(scene.path("to")), scene.path("to/from"));
    scene.cut(&url, &scene.path("to"), &copies);
    Some((scene, server, url, copies))
}

fn tally(directory: &Path) -> Option<PathBuf> {
    let mut entries = fs::read_dir(directory).unwrap().map(Result::unwrap);
    let found = entries.find(|entry| entry.file_name().to_string_lossy().starts_with(".whimbrel-tally-"))?;
    Some(found.path())
}

/// Of files that are done, in order, those that must be believed: the tally names them, and their copies are from seconds
/// before it was written last, because servers of other kinds tell whole seconds.
fn believed(done: &[PathBuf], sources: &Path, tally_in: &Path, copies: &Path) -> usize {
    // What is written between the two looks makes only more of them believed.
    let look = |path: PathBuf| Some((named(&fs::read(&path).ok()?), fs::metadata(path).ok()?));
    let Some((named, tally)) = tally(tally_in).and_then(look) else { return 0 };
    let is_earlier = |source: &&PathBuf| {
        let copy = copies.join(source.strip_prefix(sources).unwrap());
        fs::metadata(copy).is_ok_and(|copy| copy.mtime() < tally.mtime())
    };
    done.iter().take(named).filter(is_earlier).count()
}

/// How many files a tally names; which copy it is about stands in its first record, behind kind and length (3 bytes), magic
/// (8) and version (1).
fn named(tally: &[u8]) -> usize {
    let copy = tally.get(12..28).and_then(|copy| copy.try_into().ok());
    copy.map_or(0, |copy| Tally::decode(tally, &copy).files())
}

/// All finished copies.
fn all(copies: &Path) -> Vec<PathBuf> {
    let listed = |directory: &Path| -> Vec<PathBuf> {
        fs::read_dir(directory).map(|entries| entries.map(|entry| entry.unwrap().path()).collect()).unwrap_or_default()
    };
    let visible = |path: &PathBuf| !path.file_name().unwrap().to_string_lossy().starts_with('.');
    listed(copies).iter().flat_map(|directory| listed(directory)).filter(visible).collect()
}

/// Files that an earlier run had finished, as it was said; those left as they were; those copied.
fn counts(events: &Events) -> (u64, u64, u64) {
    let said: Vec<_> = events.iter().filter(|event| event["event"] == "goes_on").collect();
    assert_eq!(said.len(), 1, "it is said once");
    let last = events.last().unwrap();
    (said[0]["files"].as_u64().unwrap(), last["skipped"].as_u64().unwrap(), last["files"].as_u64().unwrap())
}

#[test]
fn the_same_command_on_another_host_moves_only_what_is_missing() {
    if !require_root() {
        return;
    }
    let scene = Scene::new();
    let server = Server::own_on(scene.lab.host("dst"));
    // Into what is there, and as what is made: then the second run must not copy into the first one's copy.
    for (into, tally_in, copies) in [("to", "to", "to/from"), ("to/new", "to", "to/new")] {
        let (url, tally_in, copies) = (server.url(scene.path(into)), scene.path(tally_in), scene.path(copies));
        scene.cut(&url, &tally_in, &copies);
        let (finished, skipped, copied) = counts(&scene.finish(scene.lab.host("src"), &url));
        assert!(finished >= 60 && skipped >= finished, "{into}: {skipped} of {finished} were left");
        assert_eq!(skipped + copied, FILES, "{into}");
        scene.is_copied_to(&copies);
        assert!(tally(&tally_in).is_none(), "{into}: a tally is left");
        fs::remove_dir_all(copies).unwrap();
    }
}

/// A server replaces a file under a hidden name, which would stay behind where it crashes before the new name is durable: no later
/// run looks for a tally there.
#[test]
fn a_tally_has_its_own_name_from_its_first_byte() {
    let Some((scene, ..)) = cut_short() else { return };
    let dialogue = fs::read_to_string(scene.path("dialogue")).unwrap();
    let writes = |command: &str| {
        let tells = |line: &&str| line.contains(command) && line.contains("/.whimbrel-tally-");
        dialogue.lines().filter(tells).count()
    };
    assert_eq!((writes("ESTO A 0 "), writes("STOR ")), (1, 0), "{dialogue}");
}

#[test]
fn what_is_killed_before_its_first_file_is_done_is_not_copied_into_itself() {
    if !require_root() {
        return;
    }
    let scene = Scene::new();
    let server = Server::own_on(scene.lab.host("dst"));
    fs::create_dir(scene.path("one")).unwrap();
    // Some three seconds on this path.
    fs::write(scene.path("one/big"), pattern(30_000_000)).unwrap();
    let source = scene.source.url(scene.path("one"));
    for (copy, options) in [("a", &[][..]), ("b", &["--sync", "size"]), ("c", &["--print-checksum", "md5"])] {
        let destination = server.url(scene.path("to").join(copy));
        let arguments = || ["--json", "cp", "-r", &source, &destination].into_iter().chain(options.iter().copied());
        let host = scene.lab.host("client");
        let mut killed = host.command(WHIMBREL).args(arguments()).stdout(Stdio::null()).spawn().unwrap();
        while tally(&scene.path("to")).is_none_or(|tally| fs::read(tally).unwrap().is_empty()) {
            assert!(killed.try_wait().unwrap().is_none(), "{copy}: it ended and had written nothing down");
            std::thread::yield_now();
        }
        killed.kill().unwrap();
        killed.wait().unwrap();
        assert!(!scene.path("to").join(copy).join("big").exists(), "{copy}: killed too late");

        let output = host.command(WHIMBREL).args(arguments()).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{copy}: {output:?}");
        assert_eq!(names(&scene.path("to").join(copy)), ["big"], "{copy}");
        assert!(fs::read(scene.path("one/big")).unwrap() == fs::read(scene.path("to").join(copy).join("big")).unwrap());
        assert!(tally(&scene.path("to")).is_none(), "{copy}: a tally is left");
    }
}

#[test]
fn what_was_moved_to_another_kind_of_server_is_compared_and_not_moved() {
    if !require_root() {
        return;
    }
    let scene = Scene::new();
    let Some(server) = Server::real_on(scene.lab.host("dst")) else { return };
    let (url, copies) = (server.url(scene.path("to")), scene.path("to/from"));
    scene.cut(&url, &scene.path("to"), &copies);
    let events = scene.finish(scene.lab.host("src"), &url);
    let (finished, skipped, copied) = counts(&events);
    assert!(finished >= 60 && skipped >= 50, "{skipped} of {finished} were left");
    assert_eq!(skipped + copied, FILES);
    let reasons = events.iter().filter(|event| event["event"] == "item_skipped").map(|event| &event["reason"]);
    assert!(reasons.clone().all(|reason| reason == "same_checksum"), "nobody promised that it survives a crash");
    scene.is_copied_to(&copies);
    assert!(tally(&scene.path("to")).is_none(), "a tally is left");
}

#[test]
fn on_this_host_too_only_what_is_missing_is_moved() {
    if !require_root() {
        return;
    }
    let scene = Scene::new();
    let (into, copies) = (scene.path("to").to_string_lossy().into_owned(), scene.path("to/from"));
    scene.cut(&into, &scene.path("to"), &copies);
    let (finished, skipped, copied) = counts(&scene.finish(scene.lab.host("client"), &into));
    assert!(finished >= 60 && skipped >= finished, "{skipped} of {finished} were left");
    assert_eq!(skipped + copied, FILES);
    scene.is_copied_to(&copies);
    assert!(tally(&scene.path("to")).is_none(), "a tally is left");
}

#[test]
fn of_a_tally_that_a_crash_has_emptied_nothing_is_believed_and_nothing_left() {
    let Some((scene, _server, url, copies)) = cut_short() else { return };
    let entries = fs::read_dir(scene.path("to")).unwrap().map(|entry| entry.unwrap().path());
    for path in entries.filter(|path| path.is_file()) {
        fs::write(path, "").unwrap();
    }
    let events = scene.finish(scene.lab.host("client"), &url);
    assert!(events.iter().all(|event| event["event"] != "goes_on"), "nothing is known");
    assert_eq!(events.last().unwrap()["files"], FILES);
    scene.is_copied_to(&copies);
    assert!(tally(&scene.path("to")).is_none(), "the empty tally is left");
}

#[test]
fn what_has_changed_since_at_either_end_is_copied_again() {
    let Some((scene, _server, url, copies)) = cut_short() else { return };
    let mut oldest: Vec<_> = all(&copies);
    oldest.sort_by_key(|path| fs::metadata(path).unwrap().modified().unwrap());
    let ([damaged, changed, gone], _) = oldest.split_first_chunk().unwrap();
    // Of the same size, in both cases.
    fs::write(damaged, vec![0; SHAPE.2]).unwrap();
    let source = scene.path("from").join(changed.strip_prefix(&copies).unwrap());
    fs::write(&source, bytes_of(999_999)).unwrap();
    File::options().append(true).open(&source).unwrap().set_modified(SystemTime::now()).unwrap();
    fs::remove_file(gone).unwrap();
    let (finished, skipped, copied) = counts(&scene.finish(scene.lab.host("client"), &url));
    assert!(skipped >= finished - 3 && skipped + copied == FILES, "{skipped} of {finished} were left");
    scene.is_copied_to(&copies);
}

#[test]
fn a_copy_that_ended_well_is_made_anew_by_the_same_command() {
    if !require_root() {
        return;
    }
    let scene = Scene::new();
    let server = Server::own_on(scene.lab.host("dst"));
    let url = server.url(scene.path("to"));
    for _ in 0..2 {
        let events = scene.finish(scene.lab.host("client"), &url);
        assert!(!events.iter().any(|event| event["event"] == "goes_on"));
        assert_eq!(events.last().unwrap()["files"], FILES);
        assert_eq!(names(&scene.path("to")), ["from"]);
    }
}

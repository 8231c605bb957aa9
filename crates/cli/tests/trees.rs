//! Trees over long paths: what may be asked together is asked together. Round trips of the control connections are counted,
//! each being what had to wait for a reply before, whatever the time it took.
#![allow(clippy::unwrap_used, reason = "a test helper that fails ends its test")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use support::{Field, Server, assert_same};
use whimbrel_testkit::dataset::{Shape, deep_tree};
use whimbrel_testkit::relay::{Relay, Said, Way};

/// Long beside what a client thinks on a busy machine.
const ROUND_TRIP: Duration = Duration::from_millis(80);

/// 211 directories on three levels, with one small file each.
const SHAPE: Shape = Shape { files: 1, largest_bytes: 2000, ..Shape::PETASCALE };

/// Two servers, each behind a long path.
struct Ends {
    _servers: [Server; 2],
    relays: [Relay; 2],
    way: Way,
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.way.end();
    }
}

impl Ends {
    fn new(servers: [Server; 2]) -> Self {
        let way = Way::new();
        way.set_round_trip(ROUND_TRIP);
        let relays = [0, 1].map(|end| Relay::before(servers[end].addr(), &way).expect("a relay"));
        Self { _servers: servers, relays, way }
    }

    fn url(&self, end: usize, path: &Path) -> String {
        format!("ftp://{}{}", self.relays[end].addr(), path.display())
    }

    /// What the program says to both servers.
    fn run(&self, arguments: &[&str]) -> Rounds {
        let (before, first) = (self.way.rounds().len(), self.way.rounds().iter().map(|said| said.round).max());
        let run = support::whimbrel(arguments).run_ok();
        let rounds = Rounds { said: self.way.rounds().split_off(before), first: first.unwrap_or(0) };
        println!("{arguments:?}: {}\n{}", run.stderr_text().trim(), rounds.table());
        rounds
    }
}

/// What one run said.
struct Rounds {
    said: Vec<Said>,
    first: u64,
}

impl Rounds {
    /// The round trips in which such commands were sent.
    fn of(&self, word: &str) -> BTreeSet<u64> {
        let fitting = self.said.iter().filter(|said| said.line.starts_with(word));
        fitting.map(|said| said.round - self.first).collect()
    }

    fn count(&self, word: &str) -> usize {
        self.said.iter().filter(|said| said.line.starts_with(word)).count()
    }

    fn all(&self) -> u64 {
        self.said.iter().map(|said| said.round).max().unwrap_or(0) - self.first
    }

    fn table(&self) -> String {
        let words: BTreeSet<&str> = self.said.iter().filter_map(|said| said.line.split(' ').next()).collect();
        let line = |word: &&str| format!("  {word}: {} in {:?}\n", self.count(word), self.of(word));
        format!("  {} round trips\n{}", self.all(), words.iter().map(line).collect::<String>())
    }
}

#[track_caller]
fn assert_few(rounds: &Rounds, word: &str, count: usize, most: usize) {
    let found = rounds.of(word);
    assert!(rounds.count(word) >= count, "{word}: {} commands", rounds.count(word));
    assert!(found.len() <= most, "{word}: {} round trips, {found:?}", found.len());
}

/// A tree of [`SHAPE`] in `from/tree`.
fn field() -> Field {
    let field = Field::new();
    let tree = field.path("from/tree");
    std::fs::create_dir(&tree).unwrap();
    deep_tree(&tree, SHAPE, 7).unwrap();
    field
}

/// Copies the tree, then looks for what is new in it.
fn copy_and_compare(servers: [Server; 2]) {
    let field = field();
    let ends = Ends::new(servers);
    let (from, to) = (ends.url(0, &field.path("from/tree")), ends.url(1, &field.path("to/")));
    let copied = ends.run(&["cp", "-r", "--preserve", &from, &to]);
    assert_same(&field.path("from/tree"), &field.path("to/tree"));
    // Three levels, a hundred questions at a time, and a machine that may be busy with something else.
    assert_few(&copied, "MLSC", 211, 8);
    assert_few(&copied, "MKD", 211, 12);
    assert_few(&copied, "MFMT", 211, 12);
    assert!(copied.all() <= 40, "{} round trips", copied.all());
    let again = ends.run(&["cp", "-r", "--sync", "mtime", &from, &to]);
    assert_few(&again, "MLSC", 422, 10);
    assert!(again.all() <= 20, "{} round trips", again.all());
}

#[test]
fn a_tree_costs_a_round_trip_for_each_level_and_not_for_each_directory() {
    copy_and_compare([Server::own(), Server::own()]);
}

#[test]
fn a_tree_at_real_servers_costs_no_more() {
    let (Some(source), Some(destination)) = (Server::real(), Server::real()) else { return };
    copy_and_compare([source, destination]);
}

/// Sizes of the files below a directory.
fn sizes(directory: &Path) -> Vec<u64> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    let below = |entry: std::fs::DirEntry| match entry.metadata().unwrap() {
        metadata if metadata.is_dir() => sizes(&entry.path()),
        metadata => vec![metadata.len()],
    };
    entries.flat_map(below).collect()
}

#[test]
fn small_files_among_larger_ones_move_together() {
    let (field, tree) = (Field::new(), Shape { depth: 1, files: 60, ..Shape::PETASCALE });
    std::fs::create_dir(field.path("from/tree")).unwrap();
    deep_tree(&field.path("from/tree"), tree, 7).unwrap();
    let (small, large): (Vec<u64>, Vec<u64>) =
        sizes(&field.path("from/tree")).into_iter().partition(|size| (1..=64 << 10).contains(size));
    assert!(small.len() > 400 && large.len() > 100, "{} and {}", small.len(), large.len());
    let ends = Ends::new([Server::own(), Server::own()]);
    let copied = ends.run(&["cp", "-r", &ends.url(0, &field.path("from/tree")), &ends.url(1, &field.path("to/"))]);
    assert_same(&field.path("from/tree"), &field.path("to/tree"));
    let alone = copied.count("STOR").saturating_sub(large.len());
    let packs = copied.count("ESTO PACK");
    assert!(alone <= small.len() / 20, "{alone} of {} small files moved alone", small.len());
    assert!(packs <= small.len() / 8, "{packs} packs of {} files", small.len());
}

#[test]
fn a_list_of_files_is_asked_for_together() {
    let field = field();
    let ends = Ends::new([Server::own(), Server::own()]);
    let mut list = String::new();
    for number in 0..14 {
        for below in 0..14 {
            let name = format!("run-{number:02}/run-{below:02}/step-0000.dat");
            let from = ends.url(0, &field.path("from/tree").join(&name));
            let to = ends.url(1, &field.path("to").join(format!("{number}-{below}")));
            list += &format!("{from} {to}\n");
        }
    }
    let file = field.path("list");
    std::fs::write(&file, list).unwrap();
    let rounds = ends.run(&["cp", "--list", &file.to_string_lossy()]);
    assert_few(&rounds, "MLST", 196, 8);
    assert_eq!(support::names(&field.path("to")).len(), 196);
}

/// What a scripted server does with listings.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Habit {
    /// Closes the connection in the middle of a listing, for the first time that it is asked.
    BreaksOff,
    /// The same, and then takes no connection at first.
    GoesAway,
    /// Lists over data connections only.
    DataOnly,
    /// One line of one listing is no entry.
    Unclear,
    /// Lists a directory that it says is missing when asked for it.
    Ghost,
    /// The same, and does not list it any more afterwards.
    Vanishing,
    /// Lists something without saying what it is.
    Untyped,
}

/// A server with the directories `/d/s00` to `/d/s11`, each of [`EACH`] files.
struct Scripted {
    habit: Habit,
    broke_off: AtomicBool,
    /// Whether the next connection is closed as it comes.
    is_away: AtomicBool,
    /// Listings over data connections at this moment, and the most that there were.
    listing: Mutex<(u32, u32)>,
    changed: Condvar,
}

const EACH: usize = 1500;

impl Scripted {
    fn start(habit: Habit) -> (Arc<Scripted>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("ftp://{}", listener.local_addr().unwrap());
        let (broke_off, is_away) = (AtomicBool::new(false), AtomicBool::new(false));
        let server = Scripted { habit, broke_off, is_away, listing: Mutex::default(), changed: Condvar::new() };
        let server = Arc::new(server);
        let serve = server.clone();
        thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let server = serve.clone();
                // A client that goes is what ends each.
                thread::spawn(move || drop(server.talk(client)));
            }
        });
        (server, url)
    }

    fn entries(path: &str) -> String {
        match path {
            "/d" => (0..12).map(|number| format!(" Type=dir; s{number:02}\r\n")).collect(),
            _ => (0..EACH).map(|number| format!(" Type=file;Size=1; f{number:04}\r\n")).collect(),
        }
    }

    fn talk(&self, mut client: TcpStream) -> std::io::Result<()> {
        if self.is_away.swap(false, Ordering::SeqCst) {
            return Ok(());
        }
        client.write_all(b"220 Hello\r\n")?;
        let mut passive = None;
        for line in BufReader::new(client.try_clone()?).lines() {
            let line = line?;
            let (word, path) = line.split_once(' ').unwrap_or((&line, ""));
            let reply = match word {
                "USER" => "331 Password, please.\r\n".to_owned(),
                "PASS" => "230 Welcome.\r\n".to_owned(),
                "FEAT" if self.habit == Habit::DataOnly => "211-Extensions\r\n MLST Type*;\r\n211 End\r\n".to_owned(),
                "FEAT" => "211-Extensions\r\n MLST Type*;\r\n MLSC\r\n211 End\r\n".to_owned(),
                "MLST" => format!("250-status\r\n Type=dir; {path}\r\n250 End\r\n"),
                "MLSC" if self.habit == Habit::Unclear && path == "/d/s05" => {
                    format!("250-Listing\r\nType=file;f9999\r\n{}250 End\r\n", Self::entries(path))
                }
                "MLSC" if self.habit == Habit::Untyped => {
                    "250-Listing\r\n Size=1;Modify=20260101000000; nameless\r\n Type=file;Size=1;Modify=20260101000000; \
                     END\r\n250 End\r\n"
                        .to_owned()
                }
                "MLSC" if matches!(self.habit, Habit::Ghost | Habit::Vanishing) => {
                    let gone = self.broke_off.load(Ordering::SeqCst) && self.habit == Habit::Vanishing;
                    let ghost = if gone { "" } else { " Type=dir; ghost\r\n" };
                    match path {
                        "/d" => {
                            format!("250-Listing\r\n{ghost} Type=file;Size=1;Modify=20260101000000; END\r\n250 End\r\n")
                        }
                        _ => {
                            self.broke_off.store(true, Ordering::SeqCst);
                            "550 No such file or directory.\r\n".to_owned()
                        }
                    }
                }
                "MLSC" if matches!(self.habit, Habit::BreaksOff | Habit::GoesAway) => {
                    let entries = Self::entries(path);
                    if path == "/d/s05" && !self.broke_off.swap(true, Ordering::SeqCst) {
                        self.is_away.store(self.habit == Habit::GoesAway, Ordering::SeqCst);
                        let some = entries.split_inclusive('\n').take(EACH / 2).collect::<String>();
                        return client.write_all(format!("250-Listing\r\n{some}").as_bytes());
                    }
                    format!("250-Listing\r\n{entries}250 End\r\n")
                }
                "PASV" => {
                    let listener = TcpListener::bind("127.0.0.1:0")?;
                    let [high, low] = listener.local_addr()?.port().to_be_bytes();
                    passive = Some(listener);
                    format!("227 Passive (127,0,0,1,{high},{low})\r\n")
                }
                "MLSD" => match passive.take() {
                    Some(listener) => {
                        client.write_all(b"150 Here it comes.\r\n")?;
                        self.send(&listener, path)?;
                        "226 Done.\r\n".to_owned()
                    }
                    None => "425 No listener.\r\n".to_owned(),
                },
                "TYPE" | "MODE" => "200 Fine.\r\n".to_owned(),
                _ => "500 What?\r\n".to_owned(),
            };
            client.write_all(reply.as_bytes())?;
        }
        Ok(())
    }

    /// Sends a listing; of the second level not before another one is asked for, too.
    fn send(&self, listener: &TcpListener, path: &str) -> std::io::Result<()> {
        let (mut data, _) = listener.accept()?;
        if path != "/d" {
            let mut listing = self.listing.lock().unwrap();
            listing.0 += 1;
            listing.1 = listing.1.max(listing.0);
            self.changed.notify_all();
            let alone = |listing: &mut (u32, u32)| listing.1 < 2;
            let (mut listing, _) = self.changed.wait_timeout_while(listing, 10 * ROUND_TRIP, alone).unwrap();
            listing.0 -= 1;
        }
        data.write_all(Self::entries(path).replace("\n ", "\n").trim_start().as_bytes())
    }
}

/// The files that a dry run would copy from such a server, each with how often it is named.
fn planned(url: &str) -> BTreeMap<String, u32> {
    let field = Field::new();
    let to = field.path("to/d").to_string_lossy().into_owned();
    let run = support::whimbrel(["cp", "-r", "--dry-run", &format!("{url}/d"), &to]).run_ok();
    copied(&run.stdout_text())
}

/// The files that a plan copies.
fn copied(plan: &str) -> BTreeMap<String, u32> {
    let mut files = BTreeMap::new();
    for line in plan.lines().filter_map(|line| line.strip_prefix("copy ")) {
        let (source, _) = line.trim().split_once(" -> ").expect("a copy has two ends");
        *files.entry(source.to_owned()).or_default() += 1;
    }
    files
}

#[track_caller]
fn assert_all_once(files: &BTreeMap<String, u32>) {
    assert_eq!(files.len(), 12 * EACH);
    let twice: Vec<_> = files.iter().filter(|(_, count)| **count != 1).take(3).collect();
    assert!(twice.is_empty(), "{twice:?}");
}

#[test]
fn a_listing_that_breaks_off_is_asked_for_again_and_nothing_is_planned_twice() {
    for habit in [Habit::BreaksOff, Habit::GoesAway] {
        let (server, url) = Scripted::start(habit);
        assert_all_once(&planned(&url));
        assert!(server.broke_off.load(Ordering::SeqCst) && !server.is_away.load(Ordering::SeqCst));
    }
}

#[test]
fn a_server_that_lists_over_data_connections_only_is_asked_on_several_sessions() {
    let (server, url) = Scripted::start(Habit::DataOnly);
    assert_all_once(&planned(&url));
    let most = server.listing.lock().unwrap().1;
    assert!((2..=4).contains(&most), "{most} listings at a time");
}

#[test]
fn a_line_that_is_no_entry_fails_its_directory_and_everything_else_is_planned() {
    let (_server, url) = Scripted::start(Habit::Unclear);
    let field = Field::new();
    let to = field.path("to/d").to_string_lossy().into_owned();
    let run = support::expect(1, ["cp", "-r", "--dry-run", &format!("{url}/d"), &to]);
    assert_all_once(&copied(&run.stdout_text()));
    let refused: Vec<String> =
        run.stdout_text().lines().filter(|line| line.starts_with("refuse")).map(str::to_owned).collect();
    assert!(
        matches!(&refused[..], [line] if line.contains("/d/s05") && line.contains("Type=file;f9999")),
        "{refused:?}"
    );
}

#[test]
fn of_a_followed_directory_that_a_server_calls_missing_only_one_that_it_lists_again_fails() {
    for (habit, fails) in [(Habit::Ghost, true), (Habit::Vanishing, false)] {
        let (server, url) = Scripted::start(habit);
        let field = Field::new();
        let to = field.path("to/d").to_string_lossy().into_owned();
        let options = ["--until", "END", "--quiet-time", "10ms", "--scan-interval", "50ms"];
        let run =
            support::whimbrel(["--json", "cp", "--follow", &format!("{url}/d"), &to]).args(options).run().unwrap();
        assert!(server.broke_off.load(Ordering::SeqCst));
        let text = run.stdout_text();
        let summary: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        let failures: Vec<_> = summary["failures"].as_array().unwrap().iter().collect();
        let ghost = failures.iter().filter(|failure| failure["source"] == "/d/ghost").collect::<Vec<_>>();
        assert_eq!(ghost.len(), usize::from(fails), "{summary:#}");
        assert!(ghost.iter().all(|failure| failure["fault"]["code"] == "NotFound"), "{summary:#}");
        // It gives no file at all.
        assert_eq!(failures.len(), ghost.len() + 1, "{summary:#}");
    }
}

#[test]
fn an_entry_of_unknown_kind_fails_its_directory_whether_it_is_copied_or_followed() {
    let (_server, url) = Scripted::start(Habit::Untyped);
    let field = Field::new();
    let (from, to) = (format!("{url}/d"), field.path("to/d").to_string_lossy().into_owned());
    let run = support::expect(1, ["cp", "-r", "--dry-run", &from, &to]);
    let plan = run.stdout_text();
    assert!(plan.lines().any(|line| line.starts_with("refuse") && line.contains("nameless")), "{plan}");
    let options = ["--until", "END", "--quiet-time", "10ms", "--scan-interval", "50ms"];
    let run = support::whimbrel(["--json", "cp", "--follow", &from, &to]).args(options).run().unwrap();
    let text = run.stdout_text();
    let summary: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let code = |failure: &serde_json::Value| failure["fault"]["code"].as_str().unwrap().to_owned();
    let codes: Vec<_> = summary["failures"].as_array().unwrap().iter().map(code).collect();
    // The directory, and the marker that would have vouched for it.
    assert_eq!(codes, ["ListingUnclear", "HeldBack"], "{text}");
    assert!(!run.success());
}

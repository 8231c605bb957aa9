//! A directory that is copied by the service while a program writes it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde_json::json;

use super::endpoints::site;
use super::field::Field;
use super::seat::Seat;

#[track_caller]
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(120);
    while !holds() {
        assert!(Instant::now() < deadline, "{what} did not come");
        thread::park_timeout(Duration::from_millis(20));
    }
}

/// A program that writes one file after the other, and at last the marker.
struct Writer {
    written: Arc<AtomicUsize>,
    enough: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Writer {
    fn new(root: PathBuf) -> Self {
        let (written, enough) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let (count, is_enough) = (written.clone(), enough.clone());
        let thread = thread::spawn(move || {
            while !is_enough.load(Ordering::Acquire) {
                let number = count.load(Ordering::Acquire);
                let directory = root.join(format!("step{}", number / 10));
                fs::create_dir_all(&directory).unwrap();
                fs::write(directory.join(format!("f{number:04}")), format!("file {number}\n")).unwrap();
                count.store(number + 1, Ordering::Release);
                thread::park_timeout(Duration::from_millis(50));
            }
            fs::write(root.join("DONE"), "").unwrap();
        });
        Self { written, enough, thread }
    }

    fn written(&self) -> usize {
        self.written.load(Ordering::Acquire)
    }

    /// Has it end; how many files it wrote.
    fn end(self) -> usize {
        self.enough.store(true, Ordering::Release);
        self.thread.join().unwrap();
        self.written.load(Ordering::Acquire)
    }
}

fn place(root: &Path, number: usize) -> PathBuf {
    root.join(format!("step{}/f{number:04}", number / 10))
}

/// The files that are on record as copied.
fn recorded(seat: &Seat<'_>, task: &str) -> Vec<usize> {
    let items = seat.events(0, &["task", "log", task]);
    let paths =
        items.iter().filter(|item| item["state"] == "succeeded").filter_map(|item| item["source_path"].as_str());
    paths.filter_map(|path| path.rsplit_once("/f")?.1.parse().ok()).collect()
}

/// The inodes of these files of the copy: a file that was moved again has another one.
fn inodes(root: &Path, numbers: &[usize]) -> BTreeMap<usize, u64> {
    numbers.iter().filter_map(|&number| Some((number, fs::metadata(place(root, number)).ok()?.ino()))).collect()
}

#[test]
fn a_directory_is_followed_though_the_service_is_killed() {
    let mut field = Field::plain();
    let (alpha, beta, task, waiting);
    {
        let seat = Seat::administrator(&field);
        (alpha, beta) = (site(&seat, "alpha"), site(&seat, "beta"));
        alpha.write("run/.unfinished", "x");
        let command = ["cp", "--managed", "--follow", "alpha data:/run", "beta data:/copy", "--until", "DONE"];
        seat.ends(2, &[&command[..], &["--sync", "size"]].concat());
        seat.ends(2, &[&command[..], &["--scan-interval", "5s"]].concat());
        task = seat.says(&[&command[..], &["--quiet-time", "1s", "--no-wait"]].concat());
        let shown = seat.says(&["task", "show", &task]);
        assert!(shown.contains("until a file DONE appears"), "{shown}");
        let wait = seat.command(&["task", "wait", &task]);
        waiting = thread::spawn(move || wait.run().unwrap());
    }
    let writer = Writer::new(alpha.path("run"));
    let copy = beta.path("copy");
    until("the first files on record", || {
        place(&copy, 10).exists()
            && !recorded(&Seat { field: &field, home: field.place("home-administrator") }, &task).is_empty()
    });
    for _ in 0..2 {
        let recorded = recorded(&Seat { field: &field, home: field.place("home-administrator") }, &task);
        let before = inodes(&copy, &recorded);
        assert!(before.len() == recorded.len() && !before.is_empty(), "{recorded:?}");
        field.restart();
        let so_far = writer.written();
        until("what came while the service was away", || place(&copy, so_far).exists());
        assert_eq!(inodes(&copy, &recorded), before, "what was on record was moved again");
    }
    let files = writer.end();
    let run = waiting.join().unwrap();
    assert_eq!(run.code(), Some(0), "{}", run.stderr_text());

    for number in 0..files {
        assert_eq!(fs::read_to_string(place(&copy, number)).unwrap(), format!("file {number}\n"));
    }
    assert!(copy.join("DONE").exists() && !copy.join(".unfinished").exists());
    let seat = Seat { field: &field, home: field.place("home-administrator") };
    let shown = seat.events(0, &["task", "show", &task]).pop().unwrap();
    assert_eq!((&shown["status"], &shown["files_transferred"]), (&json!("SUCCEEDED"), &json!(files + 1)), "{shown:#}");
    assert_eq!((&shown["files"], &shown["files_skipped"]), (&json!(files + 1), &json!(0)), "{shown:#}");
    let items = seat.events(0, &["task", "log", &task]);
    assert_eq!(items.iter().filter(|item| item["state"] == "succeeded").count(), files + 1);
    let events = seat.says(&["task", "events", &task]);
    assert!(events.contains("CAUGHT_UP"), "{events}");
}

#[test]
fn cancelling_ends_what_is_followed() {
    let field = Field::plain();
    let seat = Seat::administrator(&field);
    let (alpha, beta) = (site(&seat, "alpha"), site(&seat, "beta"));
    alpha.write("run/f", "x");
    let command =
        ["cp", "--managed", "--follow", "--no-wait", "alpha data:/run", "beta data:/copy", "--quiet-time", "1s"];
    let task = seat.says(&command);
    let copied = || seat.events(0, &["task", "show", &task])[0]["files_transferred"] == 1;
    until("the file on record", copied);
    seat.says(&["task", "cancel", &task]);
    seat.ends(130, &["task", "wait", &task]);
    assert!(copied() && beta.path("copy/f").exists());
}

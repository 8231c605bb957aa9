//! Copies on this host, and patterns at scripted servers: what is refused before anything moves, and what is told of the rest.
#![allow(clippy::unwrap_used, reason = "a test helper that fails ends its test")]

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::thread;

use tempfile::TempDir;
use tokio::sync::{mpsc, watch};
use whimbrel_dtn::client::copy::{Report, copy};
use whimbrel_dtn::client::end::End;
use whimbrel_dtn::client::expect::{Expect, List};
use whimbrel_dtn::client::options::{CopyOptions, Jobs, Place};
use whimbrel_dtn::client::remote::Remote;
use whimbrel_dtn::client::target::{SessionOptions, Target};
use whimbrel_dtn::client::wildcard;
use whimbrel_engine::events::Event;
use whimbrel_engine::plan::{PlanOptions, SyncLevel};
use whimbrel_engine::summary::{Summary, exit};
use whimbrel_engine::{Fault, FaultCode, Side};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// A directory with `a/x` and `b/x`, and `to`.
struct Field(TempDir);

impl Field {
    fn new() -> Self {
        let field = Self(tempfile::tempdir().unwrap());
        for (name, text) in [("a", "of a"), ("b", "of b")] {
            fs::create_dir(field.path(name)).unwrap();
            fs::write(field.path(name).join("x"), text).unwrap();
        }
        fs::create_dir(field.path("to")).unwrap();
        field
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn place(&self, name: &str) -> Place {
        Place { target: None, path: self.path(name).as_os_str().as_bytes().to_vec() }
    }

    fn jobs(&self, sources: &[&str], destination: &str) -> Jobs {
        let sources = sources.iter().map(|name| self.place(name)).collect();
        Jobs::Into { sources, destination: self.place(destination) }
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// A list with these lines.
fn list(lines: Vec<Result<(Place, Place), Fault>>) -> Jobs {
    let (sender, pairs) = mpsc::channel(16);
    lines.into_iter().for_each(|line| sender.try_send(line).unwrap());
    Jobs::Pairs(pairs)
}

fn run(jobs: Jobs, options: CopyOptions) -> (Result<Summary, Fault>, Vec<Event>) {
    let (_cancel, cancelled) = watch::channel(false);
    let mut events = Vec::new();
    let report = block_on(copy(jobs, options, cancelled, |event| events.push(event)));
    let summary = report.map(|report| match report {
        Report::Done(summary) => summary,
        Report::Planned(totals) => panic!("{totals:?}"),
    });
    (summary, events)
}

fn plain() -> CopyOptions {
    CopyOptions::of(PlanOptions::default())
}

fn recursive() -> CopyOptions {
    CopyOptions::of(PlanOptions { recursive: true, ..PlanOptions::default() })
}

#[test]
fn a_tree_is_not_copied_into_itself() {
    let field = Field::new();
    std::os::unix::fs::symlink("a", field.path("link")).unwrap();
    for (source, destination) in [("a", "a/copy"), ("a", "a"), ("a", "link/copy"), ("link", "a/y/z"), ("a/x", "a/x")] {
        let (result, _) = run(field.jobs(&[source], destination), recursive());
        let fault = result.unwrap_err();
        assert_eq!((fault.code, fault.side), (FaultCode::InvalidArgument, Some(Side::Us)), "{source} {destination}");
        assert_eq!(names(&field.path("a")), ["x"]);
    }
    let pairs = list(vec![Ok((field.place("a"), field.place("a/copy"))), Ok((field.place("b"), field.place("to/b")))]);
    let summary = run(pairs, recursive()).0.unwrap();
    assert_eq!((summary.files, summary.failed), (1, 1));
    assert_eq!(names(&field.path("a")), ["x"]);
}

#[test]
fn a_file_is_not_copied_onto_itself() {
    let field = Field::new();
    let fault = run(field.jobs(&["a/x", "b/x"], "a"), plain()).0.unwrap_err();
    assert_eq!(fault.code, FaultCode::InvalidArgument);
    assert_eq!(fs::read(field.path("a/x")).unwrap(), b"of a");
}

#[test]
fn two_sources_never_become_one_copy() {
    let field = Field::new();
    let fault = run(field.jobs(&["a/x", "b/x"], "to"), plain()).0.unwrap_err();
    assert_eq!(fault.code, FaultCode::InvalidArgument);
    assert!(fault.detail.contains("b/x"), "{fault}");
    assert!(names(&field.path("to")).is_empty());
    let pairs = list(vec![Ok((field.place("a/x"), field.place("to/x"))), Ok((field.place("b/x"), field.place("to/")))]);
    let summary = run(pairs, plain()).0.unwrap();
    assert_eq!((summary.files, summary.failed), (1, 1));
    assert_eq!(fs::read(field.path("to/x")).unwrap(), b"of a");
}

#[test]
fn what_was_copied_before_a_list_went_wrong_is_told() {
    let field = Field::new();
    let wrong = || Fault::new(FaultCode::InvalidArgument, "read list").subject("list:2");
    let (result, events) = run(list(vec![Ok((field.place("a/x"), field.place("to/x"))), Err(wrong())]), plain());
    let summary = result.unwrap();
    assert_eq!((summary.files, summary.failed, summary.exit_code), (1, 1, exit::SOME_FAILED));
    assert!(summary.failures[0].fault.subject == "list:2", "{summary:?}");
    assert!(matches!(events.last(), Some(Event::Summary(_))));
    // Also where nothing was done.
    let summary = run(list(vec![Err(wrong())]), plain()).0.unwrap();
    assert_eq!((summary.files, summary.failed, summary.exit_code), (0, 1, exit::SOME_FAILED));
    assert_eq!(summary.failures[0].fault.subject, "list:2");
}

#[test]
fn what_a_comparison_left_as_it_was_is_said_to_be_unchecked() {
    let other = "md5:00000000000000000000000000000000";
    let listed = List::parse(b"00000000000000000000000000000000  x\n", None).unwrap();
    let one = Expect::One(other.parse().unwrap());
    for (sync, expect) in [
        (SyncLevel::Size, one.clone()),
        (SyncLevel::Checksum, one),
        (SyncLevel::Size, Expect::Listed(listed.clone())),
        (SyncLevel::Checksum, Expect::Listed(listed)),
    ] {
        let field = Field::new();
        fs::write(field.path("to/x"), "of a").unwrap();
        let mut options = CopyOptions::of(PlanOptions { sync, ..PlanOptions::default() });
        options.sums.expect = expect;
        let (summary, events) = run(field.jobs(&["a/x"], "to"), options);
        assert_eq!(summary.unwrap().skipped, 1);
        let unchecked = |event: &&Event| matches!(event, Event::NotChecked { listed: true, .. });
        assert_eq!(events.iter().filter(unchecked).count(), 1, "{sync:?}: {events:?}");
    }
}

/// A server whose root holds `run1` with `out.h5`, `run2` without, and `run3`, which nobody may read.
fn runs(mut stream: TcpStream) {
    stream.write_all(b"220 Hello\r\n").unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    while reader.read_line(&mut line).unwrap_or(0) > 0 {
        let reply = match line.trim_end().split_once(' ').unwrap_or((line.trim_end(), "")) {
            ("USER", _) => "331 Password, please.\r\n",
            ("PASS", _) => "230 Welcome.\r\n",
            ("FEAT", _) => "211-Extensions\r\n MLST Type*;\r\n MLSC\r\n211 End\r\n",
            ("TYPE", _) => "200 Type set.\r\n",
            ("MLSC", "/") => "250-Listing\r\n Type=dir; run1\r\n Type=dir; run2\r\n Type=dir; run3\r\n250 End\r\n",
            ("MLSC", "/run1/data") => "250-Listing\r\n Type=file; b.h5\r\n Type=file; a.h5\r\n250 End\r\n",
            ("MLSC" | "MLST", path) if path.starts_with("/run3") => "550 Permission denied\r\n",
            ("MLST", "/run1/out.h5") => "250-status\r\n Type=file;Size=3; /run1/out.h5\r\n250 End\r\n",
            ("MLSC" | "MLST", _) => "550 No such file or directory\r\n",
            _ => "500 What?\r\n",
        };
        stream.write_all(reply.as_bytes()).unwrap();
        line.clear();
    }
}

#[test]
fn behind_a_pattern_only_what_exists_is_meant_and_what_cannot_be_read_fails_alone() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = Target::anonymous("127.0.0.1", listener.local_addr().unwrap().port());
    let server = thread::spawn(move || runs(listener.accept().unwrap().0));
    block_on(async {
        let (remote, _) = Remote::dial(&target, &SessionOptions::default(), &[]).await.unwrap();
        let mut end = End::Remote(Box::new(remote));
        for (pattern, paths) in
            [("/run*/out.h5", &["/run1/out.h5"][..]), ("/run*/data/*.h5", &["/run1/data/a.h5", "/run1/data/b.h5"])]
        {
            let found = wildcard::expand(&mut end, pattern.as_bytes()).await.unwrap();
            assert_eq!(found.paths, paths.iter().map(|path| path.as_bytes().to_vec()).collect::<Vec<_>>());
            let failed: Vec<_> = found.failed.iter().map(|(_, fault)| fault.code).collect();
            assert_eq!(failed, [FaultCode::PermissionDenied], "{pattern}");
        }
        let nothing = wildcard::expand(&mut end, b"/run[12]/none").await.unwrap_err();
        assert_eq!(nothing.code, FaultCode::NotFound);
    });
    server.join().unwrap();
}

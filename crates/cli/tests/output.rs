//! Standard output that takes nothing, or whose reader has gone.
#![allow(clippy::unwrap_used, reason = "a test helper that fails ends its test")]

mod support;

use std::fs::File;
use std::process::{Command, Output, Stdio};

use support::{Field, Server, WHIMBREL};

/// Runs the program with this as its standard output.
fn printing_to(stdout: impl Into<Stdio>, arguments: &[&str]) -> Output {
    let mut command = Command::new(WHIMBREL);
    command.args(arguments).stdin(Stdio::null()).stdout(stdout).stderr(Stdio::piped());
    command.output().unwrap()
}

/// A disk without room.
fn full() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

/// A pipe that nobody reads.
fn deserted() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    writer.into()
}

fn errors(run: &Output) -> String {
    String::from_utf8_lossy(&run.stderr).into_owned()
}

#[test]
fn a_copy_whose_output_is_lost_is_made_to_its_end_and_tells_by_its_exit_code() {
    let server = Server::own();
    for (name, stdout) in [("full", full().into()), ("deserted", deserted())] {
        let field = Field::new();
        let (from, to) = (server.url(field.path("from")), server.url(field.path("to/copy")));
        let sums = printing_to(stdout, &["cp", "--print-checksum", "sha256", "-r", &from, &to]);
        assert_eq!(sums.status.code(), Some(1), "{name}: {}", errors(&sums));
        assert_eq!(errors(&sums).matches("standard output cannot be written").count(), 1, "{}", errors(&sums));
        field.assert_copied("copy");
    }
    let field = Field::new();
    let (from, to) = (server.url(field.path("from")), server.url(field.path("to/copy")));
    let events = printing_to(deserted(), &["--json", "cp", "-r", &from, &to]);
    assert_eq!(events.status.code(), Some(1), "{}", errors(&events));
    field.assert_copied("copy");
    let removed = printing_to(full(), &["-v", "rm", "-r", &server.url(field.path("to/copy"))]);
    assert_eq!(removed.status.code(), Some(1), "{}", errors(&removed));
    assert!(!field.path("to/copy").exists());
}

#[test]
fn what_only_prints_ends_quietly_without_a_reader_and_fails_where_nothing_can_be_written() {
    let (server, field) = (Server::own(), Field::new());
    let (one, tree, to) = (field.path("from/one"), field.path("from"), field.path("to/copy"));
    let (one, tree, to) = (server.url(one), server.url(tree), server.url(to));
    let commands: [&[&str]; 6] = [
        &["ls", &tree],
        &["stat", &one],
        &["cksum", &one],
        &["check", &tree],
        &["cp", "-r", "--dry-run", &tree, &to],
        &["completions", "bash"],
    ];
    for command in commands {
        let run = printing_to(deserted(), command);
        assert_eq!((run.status.code(), errors(&run).contains("standard output")), (Some(0), false), "{command:?}");
        let run = printing_to(full(), command);
        assert_eq!(run.status.code(), Some(1), "{command:?}");
        assert!(errors(&run).contains("standard output cannot be written"), "{command:?}: {}", errors(&run));
    }
}

#[test]
fn a_failure_keeps_its_own_exit_code_when_its_report_is_lost() {
    let run = printing_to(full(), &["--json", "rm", "ftp://127.0.0.1:1/x"]);
    assert_eq!(run.status.code(), Some(5), "{}", errors(&run));
}

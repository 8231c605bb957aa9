//! A copy that is cut goes on where it was, with what the restart markers promised.
#![allow(clippy::unwrap_used, reason = "a test helper that fails ends its test")]

mod support;

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::Duration;

use support::{Field, Server, WHIMBREL, pattern};
use whimbrel_testkit::lab::{Lab, Link};
use whimbrel_testkit::require_root;

/// The session processes of a real server.
fn sessions(front: u32) -> Vec<u32> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
    let parent = |process: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(1)).and_then(|parent| parent.parse::<u32>().ok())
    };
    processes.filter_map(number).filter(|process| parent(process) == Some(front)).collect()
}

fn kill(process: u32) {
    let killed = std::process::Command::new("kill").args(["-KILL", &process.to_string()]).status().unwrap();
    assert!(killed.success());
}

#[test]
fn a_source_that_dies_in_mid_transfer_is_asked_only_for_the_rest() {
    // Of a file that moves as a whole; parts of larger ones are proven one by one.
    if !require_root() {
        return;
    }
    let lab = Lab::triangle(Link::new().rtt(Duration::from_millis(2)).rate_mbit(80)).expect("laboratory");
    let Some(source) = Server::real_on(lab.host("src")) else { return };
    let destination = Server::own_on(lab.host("dst"));
    let field = Field::new();
    std::fs::write(field.path("from/large"), pattern(30_000_000)).unwrap();
    let Server::Real(real) = &source else { unreachable!("a real server was asked for") };
    let front = real.ids()[0];

    let mut command = lab.host("client").command(WHIMBREL);
    command.args(["--json", "cp", &source.url(field.path("from/large")), &destination.url(field.path("to/"))]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let (mut killed, mut resumed, mut last) = (false, 0, serde_json::Value::Null);
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let event: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
        if event["event"] == "progress" && !killed && event["bytes_done"].as_u64() > Some(10_000_000) {
            killed = true;
            sessions(front).into_iter().for_each(kill);
        }
        if event["event"] == "started" {
            resumed = event["resumed"].as_u64().unwrap();
        }
        last = event;
    }
    assert_eq!(child.wait().unwrap().code(), Some(0), "{last}");
    assert!(killed, "the copy was too fast to be cut");
    assert!(resumed >= 5_000_000, "only {resumed} bytes were kept");
    assert_eq!(last["verified"], 1, "{last}");
    assert!(std::fs::read(field.path("to/large")).unwrap() == pattern(30_000_000));
}

//! A copy that is cut goes on where it was, with what the restart markers promised.
#![allow(clippy::unwrap_used, reason = "a test helper that fails ends its test")]

mod support;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use serde_json::Value;
use support::dtn::{Dtn, PATIENCE};
use support::{Field, Server, WHIMBREL, names, pattern};
use whimbrel_testkit::lab::{Lab, Link};
use whimbrel_testkit::peers::url_path;
use whimbrel_testkit::relay::{Moment, Relay, Way};
use whimbrel_testkit::require_root;
use whimbrel_testkit::stored::flip_bit;

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
    let killed = Command::new("kill").args(["-KILL", &process.to_string()]).status().unwrap();
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
    let (mut killed, mut resumed, mut last) = (false, 0, Value::Null);
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
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

#[test]
fn what_came_before_a_cut_is_compared_before_the_file_has_its_name() {
    let start = || Dtn::builder().anonymous().root(Path::new("/")).start();
    let (source, destination) = (start(), start());
    let field = Field::new();
    let (from, copy) = (field.path("from/large"), field.path("to/copy"));
    std::fs::write(&from, pattern(8 << 20)).unwrap();
    let way = Way::new();
    let relay = Relay::before(destination.addr(), &way).unwrap();
    // Nobody's digest is about what came before this: the connections are cut once the client knows that it is there.
    let (known, is_known) = channel();
    let hidden = copy.with_file_name(".copy.whimbrel-part");
    way.at(Moment::Bytes(4 << 20), move |way| {
        is_known.recv_timeout(PATIENCE).unwrap();
        flip_bit(&hidden, 1000).unwrap();
        way.reset_all();
    });
    // Whatever became of the client now, there would be no wrong file.
    let named = copy.clone();
    way.at(Moment::Answer("STOR", 1), move |way| way.note(format!("named: {}", named.exists())));

    let mut command = Command::new(WHIMBREL);
    command.args(["--json", "cp", "--chunk", "off", "--concurrency", "1", "--parallelism", "1"]);
    command.args([source.url(&from), format!("ftp://{}{}", relay.addr(), url_path(&copy))]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let (mut resumed, mut refused, mut last) = (0, Value::Null, Value::Null);
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
        match event["event"].as_str().unwrap() {
            // The connections are cut once.
            "progress" if event["bytes_done"].as_u64() > Some(1 << 20) => drop(known.send(())),
            "started" => resumed = event["resumed"].as_u64().unwrap().max(resumed),
            "retry" => refused = event["fault"]["code"].clone(),
            _ => {}
        }
        last = event;
    }
    way.end();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{last}");
    assert!(resumed > 1 << 20, "{resumed}");
    assert_eq!(refused, "ChecksumMismatch");
    assert!(way.happened().iter().any(|what| what.ends_with("named: false")), "{:?}", way.happened());
    assert_eq!((&last["verified"], names(&field.path("to"))), (&1.into(), vec!["copy".into()]), "{last}");
    assert!(std::fs::read(copy).unwrap() == pattern(8 << 20));
}

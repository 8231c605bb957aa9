//! Sources that change while they are read, where the end that sends them is ours: what is told of them.

#![allow(clippy::unwrap_used, reason = "a test helper that fails ends its test")]

mod support;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use support::{Field, Server, assert_same, event, events, expect};
use whimbrel_testkit::dataset;
use whimbrel_testkit::peers::{Run, url_path};
use whimbrel_testkit::relay::{Moment, Relay, Way};

const SIZE: u64 = 16 << 20;

/// Gives a file a new time, again and again, as writing to it does; dropping it stops that.
struct Changing {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Changing {
    fn start(path: &Path) -> Self {
        let (stop, file) = (Arc::new(AtomicBool::new(false)), File::options().write(true).open(path).unwrap());
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            for seconds in (1..1_000_000).cycle().take_while(|_| !stopped.load(Ordering::Relaxed)) {
                file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Changing {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(ended.is_none_or(|ended| ended.is_ok()) || std::thread::panicking(), "its time cannot be set");
    }
}

/// That `source` has failed, and that every attempt and the failure say why.
fn assert_told(run: &Run, source: &Path) {
    let failure = event(run, "item_failed");
    assert!(failure["source"].as_str().unwrap().ends_with(&*source.to_string_lossy()), "{failure}");
    assert_eq!(failure["cause"], "another program writes to the file");
    assert_eq!(failure["cure"], "wait until it is complete and run the command again");
    let attempts = events(run).into_iter().filter(|event| event["event"] == "retry");
    let faults: Vec<Value> = attempts.chain([failure]).map(|event| event["fault"].clone()).collect();
    for fault in &faults {
        assert_eq!((&fault["code"], &fault["side"]), (&"SourceChanged".into(), &"source".into()), "{fault}");
    }
    // Of what changes on and on nobody tries more often, whatever is asked for.
    assert_eq!(faults.len(), 3, "{faults:?}");
}

#[test]
fn a_source_that_goes_on_changing_is_named_as_such_whole_and_in_chunks() {
    let (source, destination, field) = (Server::own(), Server::own(), Field::new());
    let (from, to) = (field.path("from/growing"), field.path("to/growing"));
    dataset::random_file(&from, SIZE, 3).unwrap();
    let _changing = Changing::start(&from);
    let here = |path: &Path| path.to_string_lossy().into_owned();
    for (options, source, destination) in [
        (&["--chunk", "off"][..], source.url(&from), destination.url(&to)),
        (&["--chunk", "4M"], source.url(&from), destination.url(&to)),
        (&["--chunk", "4M"], source.url(&from), here(&to)),
        (&["--chunk", "off"], here(&from), destination.url(&to)),
    ] {
        let all = [&["--json", "cp", "--attempts", "9"], options, &[source.as_str(), &destination]].concat();
        assert_told(&expect(3, all), &from);
        assert!(!to.exists(), "a mixture of versions got the name");
    }
}

#[test]
fn a_small_file_that_is_cut_short_before_it_is_packed_is_named_and_no_other_fails() {
    let (source, destination, way) = (Server::own(), Server::own(), Way::new());
    let relay = Relay::before(source.addr(), &way).unwrap();
    let field = Field::new();
    std::fs::create_dir(field.path("from/small")).unwrap();
    for name in ["a", "b", "c"] {
        dataset::random_file(&field.path("from/small").join(name), 9000, 3).unwrap();
    }
    let shorter = field.path("from/small/b");
    way.at(Moment::Command("ERET PACK", 1), {
        let shorter = shorter.clone();
        move |_| File::options().write(true).open(&shorter).unwrap().set_len(8999).unwrap()
    });
    let from = format!("ftp://{}{}", relay.addr(), url_path(field.path("from/small")));
    let to = destination.url(field.path("to/small"));
    let run = expect(1, ["--json", "cp", "-r", "--concurrency", "1", "--attempts", "9", &from, &to]);
    way.end();
    assert_told(&run, &shorter);
    for name in ["a", "c"] {
        assert_same(&field.path("from/small").join(name), &field.path("to/small").join(name));
    }
}

//! Copies from `globus-gridftp-server`: what is proven, or at least measured, before a file has its name.

#![allow(clippy::unwrap_used, reason = "a test helper that fails ends its test")]

mod support;

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use support::dtn::Dtn;
use support::{Field, Server, names, whimbrel};
use whimbrel_testkit::dataset;
use whimbrel_testkit::peers::{GridftpServer, Run, url_path};
use whimbrel_testkit::relay::{Moment, Relay, Way};

const MIB: u64 = 1 << 20;

/// A source behind a relay, and where its file goes.
struct Stage {
    field: Field,
    way: Way,
    relay: Relay,
    _server: GridftpServer,
}

impl Stage {
    fn new(bytes: u64) -> Option<Self> {
        let server = GridftpServer::builder()?.start().expect("the real server starts");
        let (field, way) = (Field::new(), Way::new());
        let relay = Relay::before(server.addr(), &way).unwrap();
        dataset::random_file(&field.path("from/file"), bytes, 1).unwrap();
        fs::write(field.path("to/file"), "before").unwrap();
        fs::set_permissions(field.path("to/file"), std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        Some(Self { field, way, relay, _server: server })
    }

    fn copy(&self) -> PathBuf {
        self.field.path("to/file")
    }

    /// Copies to a server, or to this host.
    fn run(&self, options: &[&str], destination: Option<&Server>) -> Run {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        self.run_to(options, destination.map_or_else(|| text(&self.copy()), |server| server.url(self.copy())))
    }

    fn run_to(&self, options: &[&str], to: String) -> Run {
        let from = format!("ftp://{}{}", self.relay.addr(), url_path(self.field.path("from/file")));
        whimbrel(["--json", "cp"]).args(options).args([from, to]).run().unwrap()
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.way.end();
    }
}

fn failed(run: &Run) -> Value {
    let text = run.stdout_text();
    let mut events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.find(|event| event["event"] == "item_failed").unwrap_or_else(|| panic!("nothing failed: {text}"))
}

#[test]
fn a_file_of_any_length_is_proven_before_it_has_its_name_at_our_servers() {
    const SIZE: u64 = 20 * MIB;
    let Some(stage) = Stage::new(SIZE) else { return };
    // The source connects to whoever stores.
    let dtn = Dtn::builder().anonymous().root(Path::new("/")).start();
    let relay = Relay::before(dtn.addr(), &stage.way).unwrap();
    // In each attempt, somewhere.
    (0..8).for_each(|attempt| stage.way.flip(attempt * (SIZE + 2000) + SIZE / 2, 3));
    let to = format!("ftp://{}{}", relay.addr(), url_path(stage.copy()));
    let run = stage.run_to(&["--chunk", "off", "--attempts", "2"], to);
    assert_eq!(failed(&run)["fault"]["code"], "ChecksumMismatch");
    assert_eq!(fs::read(stage.copy()).unwrap(), b"before", "it had the name, and was damaged");
    assert_eq!(names(&stage.field.path("to")), ["file"]);
}

#[test]
fn an_unverified_file_that_got_shorter_after_it_was_listed_is_a_failure() {
    for (kind, options) in [(0, &["--no-verify"][..]), (1, &["--no-verify"]), (2, &["--no-verify", "--chunk", "off"])] {
        let Some(stage) = Stage::new(3 * MIB) else { return };
        let source = stage.field.path("from/file");
        stage.way.at(Moment::Command("RETR", 1), move |_| {
            fs::File::options().write(true).open(&source).unwrap().set_len(MIB).unwrap();
        });
        let destination = [Server::real(), Some(Server::own()), None].into_iter().nth(kind).unwrap();
        let run = stage.run(&[options, &["--attempts", "2"]].concat(), destination.as_ref());
        let fault = &failed(&run)["fault"];
        assert_eq!((&fault["code"], &fault["side"]), (&"SourceChanged".into(), &"source".into()), "{fault}");
        assert_eq!(fault["detail"], format!("{} bytes were listed, {MIB} came", 3 * MIB));
        assert!(!run.success());
        // Only there it has another name until then.
        if kind == 0 {
            assert_eq!(fs::read(stage.copy()).unwrap(), b"before");
        }
        assert_eq!(names(&stage.field.path("to")), ["file"]);
    }
}

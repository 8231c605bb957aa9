//! Servers and runs of the program for these tests.
#![allow(dead_code, reason = "each test file uses its own part")]
#![allow(clippy::unwrap_used, reason = "a test helper that fails ends its test")]

pub mod cluster;
pub mod control;
pub mod dtn;
pub mod files;
pub mod plain;
pub mod scene;
pub mod secured;
pub mod traced;

use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use whimbrel_testkit::lab::Host;
use whimbrel_testkit::peers::{GridftpServer, Run, Tool, public_dir, url_path};

/// The program under test.
pub const WHIMBREL: &str = env!("CARGO_BIN_EXE_whimbrel");

/// A server of either kind with all of this host below it.
pub enum Server {
    /// The real one.
    Real(GridftpServer),
    /// Ours.
    Own(Own),
}

/// `whimbrel dtn`; dropping it ends it.
pub struct Own {
    child: Child,
    base: String,
}

impl Drop for Own {
    fn drop(&mut self) {
        // It may have ended by itself, which its test notices.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// The real server; `None` when it is not installed.
    #[track_caller]
    pub fn real() -> Option<Self> {
        Some(Self::Real(GridftpServer::builder()?.start().expect("the real server starts")))
    }

    /// The real server on a host of a laboratory.
    #[track_caller]
    pub fn real_on(host: &Host) -> Option<Self> {
        let server = GridftpServer::builder()?.on(host).address(host.addr());
        Some(Self::Real(server.start().expect("the real server starts")))
    }

    /// Our server, ready.
    pub fn own() -> Self {
        Self::start(Command::new(WHIMBREL), "127.0.0.1:0")
    }

    /// Our server on a host of a laboratory.
    pub fn own_on(host: &Host) -> Self {
        Self::start(host.command(WHIMBREL), &format!("{}:0", host.addr()))
    }

    fn start(mut command: Command, listen: &str) -> Self {
        let mut child = command
            .args(["dtn", "--listen", listen, "--root", "/", "--anonymous"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("the program starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("it prints");
        let base = line.trim().strip_prefix("listening on ").expect("it says where").trim_end_matches('/').to_owned();
        Self::Own(Own { child, base })
    }

    /// Every kind of server there is here.
    #[track_caller]
    pub fn kinds() -> Vec<fn() -> Option<Self>> {
        vec![Self::real, || Some(Self::own())]
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        match self {
            Self::Real(server) => server.addr(),
            Self::Own(own) => own.base.strip_prefix("ftp://").and_then(|text| text.parse().ok()).expect("an address"),
        }
    }

    /// The URL of an absolute path on it.
    pub fn url(&self, path: impl AsRef<Path>) -> String {
        match self {
            Self::Real(server) => server.url(path.as_ref()),
            Self::Own(own) => format!("{}{}", own.base, url_path(path.as_ref())),
        }
    }
}

/// The program with arguments.
pub fn whimbrel<A: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = A>) -> Tool {
    Tool::new(WHIMBREL).args(arguments)
}

/// Runs the program and expects this exit code.
#[track_caller]
pub fn expect<A: AsRef<std::ffi::OsStr>>(code: i32, arguments: impl IntoIterator<Item = A>) -> Run {
    let run = whimbrel(arguments).run().expect("the program runs");
    assert_eq!(run.code(), Some(code), "stdout:\n{}\nstderr:\n{}", run.stdout_text(), run.stderr_text());
    run
}

/// What a run with `--json` has printed.
pub fn events(run: &Run) -> Vec<serde_json::Value> {
    run.stdout_text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The first event of this name.
#[track_caller]
pub fn event(run: &Run, name: &str) -> serde_json::Value {
    let found = events(run).into_iter().find(|event| event["event"] == name);
    found.unwrap_or_else(|| panic!("no {name} in {}", run.stdout_text()))
}

/// A directory with `from` (a small tree) and an empty `to`, open to everybody.
pub struct Field {
    directory: tempfile::TempDir,
}

impl Field {
    /// Makes the tree.
    pub fn new() -> Self {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let field = Self { directory: public_dir().expect("a temporary directory") };
        let from = field.path("from");
        std::fs::create_dir_all(from.join("deep/er")).unwrap();
        std::fs::create_dir(from.join("empty")).unwrap();
        std::fs::write(from.join("zero"), b"").unwrap();
        std::fs::write(from.join("one"), b"1").unwrap();
        std::fs::write(from.join("na me%20"), b"spaces").unwrap();
        for number in 0..40 {
            std::fs::write(from.join(format!("deep/f{number:02}")), format!("file number {number}\n")).unwrap();
        }
        std::fs::write(from.join("deep/er/big"), pattern(3_000_001)).unwrap();
        symlink("one", from.join("link")).unwrap();
        std::fs::create_dir(field.path("to")).unwrap();
        std::fs::set_permissions(field.path("to"), std::fs::Permissions::from_mode(0o777)).unwrap();
        field
    }

    /// A path in it.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Panics unless `to/<name>` equals `from`, links followed.
    #[track_caller]
    pub fn assert_copied(&self, name: &str) {
        assert_same(&self.path("from"), &self.path("to").join(name));
    }
}

/// An account that is not root's and may handle data here.
pub fn account() -> String {
    let name = Tool::new("id").arg("-un").run_ok().stdout_text().trim().to_owned();
    if name == "root" { "nobody".to_owned() } else { name }
}

/// Bytes that differ everywhere.
pub fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect()
}

/// Panics unless both trees hold the same files with the same content.
#[track_caller]
pub fn assert_same(left: &Path, right: &Path) {
    if left.is_dir() {
        assert_eq!(names(left), names(right), "{} and {}", left.display(), right.display());
        names(left).iter().for_each(|name| assert_same(&left.join(name), &right.join(name)));
    } else {
        let read = |path: &Path| std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(read(left) == read(right), "{} differs from {}", left.display(), right.display());
    }
}

/// Names in a directory, sorted.
pub fn names(directory: &Path) -> Vec<std::ffi::OsString> {
    let entries = std::fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

//! A PostgreSQL of one test's own: a cluster in a temporary directory that listens on a Unix socket only.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::{Signal, geteuid};
use tempfile::TempDir;

use super::{Daemon, Tool, find, missing, public_dir, require};
use crate::error::{Attempt, Result};

/// The account that it runs as when the test is root, which PostgreSQL refuses: `nobody`.
const NOBODY: u32 = 65_534;
/// Its own administrator.
const USER: &str = "whimbrel";
/// Part of the socket's name; no port is opened.
const PORT: u16 = 5432;
const START_LIMIT: Duration = Duration::from_secs(60);
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// A cluster; dropping it stops it.
#[derive(Debug)]
pub struct Postgres {
    daemon: Daemon,
    directory: TempDir,
    client: PathBuf,
}

impl Postgres {
    /// An empty cluster, or `None` where a program is missing and the test may be skipped.
    #[track_caller]
    pub fn start() -> Option<Postgres> {
        let [Some(initdb), Some(server)] = ["initdb", "postgres"].map(find_server) else {
            missing("postgresql");
            return None;
        };
        let client = require("psql")?;
        Some(Self::make(&initdb, &server, client).unwrap_or_else(|error| panic!("{error}")))
    }

    fn make(initdb: &Path, server: &Path, client: PathBuf) -> Result<Postgres> {
        let directory = public_dir()?;
        let home = directory.path().join("home");
        let what = || "making a home for PostgreSQL".to_owned();
        fs::create_dir(&home).attempt(what)?;
        fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).attempt(what)?;
        let mut init = Command::new(initdb);
        init.args(["--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C.UTF-8", "--username", USER, "--pgdata"]);
        let mut serve = Command::new(server);
        serve.arg("-k").arg(&home).args(["-h", "", "-F", "-p", &PORT.to_string(), "-D"]);
        for command in [&mut init, &mut serve] {
            command.arg(home.join("data")).env("LC_ALL", "C.UTF-8").current_dir(&home);
        }
        if geteuid().is_root() {
            chown(&home, Some(NOBODY), Some(NOBODY)).attempt(what)?;
            init.uid(NOBODY).gid(NOBODY);
            serve.uid(NOBODY).gid(NOBODY);
        }
        let (mut first, ()) = Daemon::start(init, START_LIMIT, |line| line.contains("Success").then_some(()))?;
        first.wait(START_LIMIT)?;
        let ready = |line: &str| line.contains("ready to accept connections").then_some(());
        let (daemon, ()) = Daemon::start(serve, START_LIMIT, ready)?;
        Ok(Postgres { daemon, directory, client })
    }

    /// The URL of a new, empty database.
    pub fn database(&self, name: &str) -> String {
        self.sql(&format!("CREATE DATABASE \"{name}\""));
        format!("postgres://{USER}@localhost:{PORT}/{name}?host={}", self.socket().display())
    }

    /// What `psql` prints for a statement to the cluster, as its administrator.
    pub fn sql(&self, statement: &str) -> String {
        let tool = Tool::new(&self.client).args(["--no-psqlrc", "--tuples-only", "--no-align", "--host"]);
        let tool = tool.arg(self.socket()).args(["--port", &PORT.to_string(), "--username", USER]);
        tool.args(["--dbname", "postgres", "--command", statement]).run_ok().stdout_text()
    }

    /// What it has said so far.
    pub fn log(&self) -> String {
        self.daemon.log()
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("home")
    }
}

impl Drop for Postgres {
    /// In order, so that it gives its shared memory back.
    fn drop(&mut self) {
        let _ = self.daemon.signal(Signal::INT);
        let _ = self.daemon.wait(STOP_LIMIT);
    }
}

/// A program of the newest server installed; Debian has them outside the search path.
fn find_server(program: &str) -> Option<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions.map(|entry| entry.path()).max_by_key(number);
    newest.map(|path| path.join("bin").join(program)).filter(|path| path.exists()).or_else(|| find(program))
}

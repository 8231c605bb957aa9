//! What the figures were taken on.

use std::fmt;
use std::fs;
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::Outcome;

/// The machine, the moment and the version.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    pub cores: usize,
    pub processor: String,
    pub kernel: String,
    pub date: String,
    pub commit: String,
}

impl Machine {
    /// Looks around.
    pub fn read() -> Outcome<Machine> {
        let processors = fs::read_to_string("/proc/cpuinfo")?;
        let model = processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        Ok(Machine {
            cores: std::thread::available_parallelism()?.get(),
            processor: model.map_or("unknown", |(_, name)| name).trim().into(),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?.trim().into(),
            date: said_by("date", &["-u", "+%Y-%m-%d %H:%M UTC"]),
            commit: said_by("git", &["-C", env!("CARGO_MANIFEST_DIR"), "describe", "--always", "--dirty"]),
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { cores, processor, kernel, date, commit } = self;
        write!(f, "{date}, commit {commit}; {cores} cores ({processor}), Linux {kernel}.")
    }
}

/// What a command prints; "unknown" when it fails.
fn said_by(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().ok().filter(|output| output.status.success());
    output.map_or("unknown".into(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

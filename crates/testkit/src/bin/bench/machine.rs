//! What the figures were taken on.

use std::fmt;
use std::fs;
use std::process::Command;

use whimbrel_testkit::peers::Tool;

use crate::Outcome;
use crate::servers::Programs;

/// The machine, the moment and the versions.
#[derive(Debug)]
pub struct Machine {
    pub cores: usize,
    pub processor: String,
    pub memory_gib: f64,
    pub kernel: String,
    pub congestion_control: String,
    pub date: String,
    pub commit: String,
    pub url_copy: String,
}

impl Machine {
    /// Looks around.
    pub fn read(programs: &Programs) -> Outcome<Machine> {
        let processors = fs::read_to_string("/proc/cpuinfo")?;
        let memory = fs::read_to_string("/proc/meminfo")?;
        let kilobytes = value(&memory, "MemTotal").and_then(|text| text.trim_end_matches(" kB").parse::<f64>().ok());
        let sysctl = |name: &str| fs::read_to_string(format!("/proc/sys/{name}")).map(|text| text.trim().to_owned());
        Ok(Machine {
            cores: std::thread::available_parallelism()?.get(),
            processor: value(&processors, "model name").unwrap_or("unknown").into(),
            memory_gib: kilobytes.unwrap_or(f64::NAN) / f64::from(1 << 20),
            kernel: sysctl("kernel/osrelease")?,
            congestion_control: sysctl("net/ipv4/tcp_congestion_control")?,
            date: said_by(Command::new("date").args(["-u", "+%Y-%m-%d %H:%M UTC"])),
            commit: said_by(Command::new("git").args([
                "-C",
                env!("CARGO_MANIFEST_DIR"),
                "describe",
                "--always",
                "--dirty",
            ])),
            url_copy: Tool::new(&programs.url_copy).arg("-version").run()?.stderr_text().trim().into(),
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { cores, processor, memory_gib, kernel, congestion_control, date, commit, url_copy } = self;
        writeln!(f, "{date}, commit {commit}; {cores} cores ({processor}), {memory_gib:.0} GiB, Linux {kernel}.")?;
        write!(f, "Congestion control {congestion_control} unless a path says otherwise; peer {url_copy}.")
    }
}

fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim())
}

/// What a command prints; "unknown" when it fails.
fn said_by(command: &mut Command) -> String {
    let output = command.output().ok().filter(|output| output.status.success());
    output.map_or("unknown".into(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

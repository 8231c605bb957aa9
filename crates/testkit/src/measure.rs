//! What the programs that measure share: how they end, what they measure, on which machine, and the middle value.

use std::error::Error;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::{leftovers, peers};

/// What a step gives, or why it could not be done.
pub type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Does the work that the command line asks for, and tells the exit status: 1 when the work says so or fails, 2 for
/// arguments that are not understood; no options at all (`None`) ask for the help. Nothing that the work starts or mounts
/// outlives it, even when it is killed. To be called before the program has any other thread.
pub fn run_program<O>(
    name: &str,
    help: &str,
    options: Outcome<Option<O>>,
    work: impl FnOnce(&O) -> Outcome<bool>,
) -> ExitCode {
    let options = match options {
        Ok(Some(options)) => options,
        Ok(None) => {
            println!("{help}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("{name}: {error}\n{help}");
            return ExitCode::from(2);
        }
    };
    leftovers::end_with_us();
    match work(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Copies of our own programs: a build that finishes during a run must not change what is measured.
pub struct Copies(TempDir);

impl Copies {
    /// Copies these from beside the running program.
    pub fn of_beside(names: &[&str]) -> Outcome<Copies> {
        let copies = Copies(peers::public_dir()?);
        let here = std::env::current_exe()?;
        for name in names {
            let from = here.with_file_name(name);
            fs::copy(&from, copies.path(name))
                .map_err(|error| format!("{}: {error}; build it first", from.display()))?;
        }
        Ok(copies)
    }

    /// Where the copy of a program is.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// The machine, the moment and the version.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    /// Processors that this program may use.
    pub cores: usize,
    /// Model of the processors.
    pub processor: String,
    /// Release of the kernel.
    pub kernel: String,
    /// When, UTC.
    pub date: String,
    /// Version of the source; `-dirty` when it was changed since.
    pub commit: String,
}

impl Machine {
    /// Looks around.
    pub fn read() -> Outcome<Machine> {
        Ok(Machine {
            cores: std::thread::available_parallelism()?.get(),
            processor: told_by("/proc/cpuinfo", "model name")?.unwrap_or_else(|| "unknown".into()),
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

/// The value of the first line `NAME: VALUE` of a file.
pub fn told_by(file: impl AsRef<Path>, name: &str) -> Outcome<Option<String>> {
    let text = fs::read_to_string(file)?;
    let line = text.lines().find(|line| line.starts_with(name));
    Ok(line.and_then(|line| Some(line.split_once(':')?.1.trim().to_owned())))
}

/// What a command prints; "unknown" when it fails.
fn said_by(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().ok().filter(|output| output.status.success());
    output.map_or("unknown".into(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The middle value, or the mean of the two in the middle; NaN of nothing.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        count => (values[(count - 1) / 2] + values[count / 2]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!((median([3.0, 1.0, 2.0]), median([4.0, 1.0])), (2.0, 2.5));
        assert!(median([]).is_nan());
    }
}

//! Processes that get less of a processor than they could use.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Attempt, Result};
use crate::leftovers::{self, GROUP_PREFIX, GROUPS};

/// Time in which a share is given out, microseconds: short, so that a starved program is slow and not jerky.
const PERIOD: u32 = 20_000;
/// The least of it that the kernel gives, microseconds: a smaller share has a longer period.
const LEAST: u32 = 1000;

/// Processes that share a part of one processor until this is dropped, with all that they start meanwhile.
#[derive(Debug)]
pub struct Starved(PathBuf);

impl Starved {
    /// Processes that together have `percent` (1 at least) of one processor: none yet.
    ///
    /// Needs root. Returns `None` where the kernel cannot limit processor time.
    pub fn new(percent: u32) -> Result<Option<Starved>> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // Only cgroup version 1 lets us limit processor time like this.
        if !Path::new(GROUPS).join("cgroup.procs").exists() {
            return Ok(None);
        }
        leftovers::sweep();
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let group = PathBuf::from(format!("{GROUPS}/{GROUP_PREFIX}{}-{number}", leftovers::owner()));
        fs::create_dir(&group).attempt(|| format!("making {}", group.display()))?;
        let starved = Starved(group);
        let percent = percent.max(1);
        let period = PERIOD.max(LEAST * 100 / percent);
        starved.write("cpu.cfs_period_us", period)?;
        starved.write("cpu.cfs_quota_us", (period * percent).div_ceil(100))?;
        Ok(Some(starved))
    }

    /// Takes a process among them, with all that it starts from now on.
    pub fn take(&self, process: u32) -> Result<()> {
        self.write("cgroup.procs", process)
    }

    /// A program that is among them from its beginning, as that of a container or a unit with a quota is.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(self.0.join("cgroup.procs")).arg(program);
        command
    }

    fn write(&self, name: &str, value: u32) -> Result<()> {
        let file = self.0.join(name);
        fs::write(&file, value.to_string()).attempt(|| format!("writing {}", file.display()))
    }
}

impl Drop for Starved {
    fn drop(&mut self) {
        let all = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        for process in all.split_whitespace() {
            // One that has ended meanwhile needs no place.
            let _ = fs::write(Path::new(GROUPS).join("cgroup.procs"), process);
        }
        let _ = fs::remove_dir(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    /// A shell that counts once its standard input ends.
    fn counter(mut shell: Command) -> Child {
        let count = "read line; i=0; while [ $i -lt 60000 ]; do i=$((i+1)); done";
        shell.args(["-c", count]).stdin(Stdio::piped()).spawn().expect("a shell")
    }

    fn time(mut child: Child) -> Duration {
        let began = Instant::now();
        drop(child.stdin.take());
        child.wait().expect("it ends");
        began.elapsed()
    }

    #[test]
    fn a_starved_process_is_as_much_slower_as_its_share_is_small() {
        if !crate::require_root() {
            return;
        }
        let Some(starved) = Starved::new(5).expect("limited") else { return };
        let taken = counter(Command::new("sh"));
        starved.take(taken.id()).expect("it is there");
        let taken = time(taken);
        let started = time(counter(starved.command(Path::new("sh"))));
        drop(starved);
        let free = time(counter(Command::new("sh")));
        assert!(taken > 4 * free && started > 4 * free, "{taken:?}, {started:?} and {free:?}");
    }
}

//! Processes that get less of a processor than they could use.

use std::path::Path;
use std::process::Command;

use crate::error::Result;
use crate::group::Group;

/// Time in which a share is given out, microseconds: short, so that a starved program is slow and not jerky.
const PERIOD: u32 = 20_000;
/// The least of it that the kernel gives, microseconds: a smaller share has a longer period.
const LEAST: u32 = 1000;

/// Processes that share a part of one processor until this is dropped, with all that they start meanwhile.
#[derive(Debug)]
pub struct Starved(Group);

impl Starved {
    /// Processes that together have `percent` (1 at least) of one processor: none yet.
    ///
    /// Needs root. Returns `None` where the kernel cannot limit processor time.
    pub fn new(percent: u32) -> Result<Option<Starved>> {
        let Some(group) = Group::new()? else { return Ok(None) };
        let percent = percent.max(1);
        let period = PERIOD.max(LEAST * 100 / percent);
        group.write("cpu.cfs_period_us", period)?;
        group.write("cpu.cfs_quota_us", (period * percent).div_ceil(100))?;
        Ok(Some(Self(group)))
    }

    /// Takes a process among them, with all that it starts from now on.
    pub fn take(&self, process: u32) -> Result<()> {
        self.0.write("cgroup.procs", process)
    }

    /// A program that is among them from its beginning, as that of a container or a unit with a quota is.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(self.0.file("cgroup.procs")).arg(program);
        command
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

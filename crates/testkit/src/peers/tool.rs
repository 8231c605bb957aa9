//! Runs a program to its end, within a limit, and says readably what went wrong.

use std::ffi::OsStr;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::error::{Attempt, Result};
use crate::lab::Host;
use crate::{cpu, leftovers};

/// Time a program may take unless told otherwise.
const DEFAULT_LIMIT: Duration = Duration::from_secs(60);
/// Time a killed process may take to disappear.
const KILL_LIMIT: Duration = Duration::from_secs(10);
/// Bytes of each output that a failure shows, from the end.
const SHOWN_BYTES: usize = 4000;

/// A program about to run.
#[derive(Debug)]
pub struct Tool {
    command: Command,
    input: Vec<u8>,
    limit: Duration,
}

/// A program that has run.
#[derive(Debug)]
pub struct Run {
    /// Program and arguments.
    pub command: String,
    /// How it ended; `None` when it was ended at its limit.
    pub status: Option<ExitStatus>,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: Vec<u8>,
    /// From its start to its end.
    pub wall: Duration,
    /// When its end was noticed.
    pub ended: Instant,
    /// Processor time of it and of the children it waited for; resolution 10 ms.
    pub cpu: Duration,
}

impl From<Command> for Tool {
    fn from(command: Command) -> Self {
        Self { command, input: Vec::new(), limit: DEFAULT_LIMIT }
    }
}

impl Tool {
    /// A program with no arguments, nothing on standard input, and a limit of 60 seconds.
    pub fn new(program: impl AsRef<OsStr>) -> Tool {
        Command::new(program).into()
    }

    /// Adds an argument.
    pub fn arg(mut self, argument: impl AsRef<OsStr>) -> Tool {
        self.command.arg(argument);
        self
    }

    /// Adds arguments.
    pub fn args<A: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = A>) -> Tool {
        self.command.args(arguments);
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Tool {
        self.command.env(name, value);
        self
    }

    /// Runs it on a host of the laboratory.
    pub fn on(mut self, host: &Host) -> Tool {
        host.adopt(&mut self.command);
        self
    }

    /// Gives it these bytes on standard input.
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Tool {
        self.input = bytes.into();
        self
    }

    /// Ends it, and every process it started, after so much time.
    pub fn limit(mut self, limit: Duration) -> Tool {
        self.limit = limit;
        self
    }

    /// Runs it to its end or limit. Errors: it cannot be started; a failure of the program itself is in the result.
    pub fn run(mut self) -> Result<Run> {
        let command = line_of(&self.command);
        let what = || format!("running {command}");
        leftovers::mark(&mut self.command);
        self.command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let start = Instant::now();
        let mut child = self.command.spawn().attempt(what)?;
        let writer = write_all(child.stdin.take(), self.input);
        let (stdout, stderr) = (read_all(child.stdout.take()), read_all(child.stderr.take()));
        let in_time = wait_until_ended(&child, self.limit).attempt(what)?;
        let ended = Instant::now();
        let cpu = cpu::of_ended(child.id());
        // What it left running would keep the outputs open.
        end_all(&child);
        let status = child.wait().attempt(what)?;
        let collect = |reader: JoinHandle<Vec<u8>>| reader.join().expect("a reader does not panic");
        let (stdout, stderr) = (collect(stdout), collect(stderr));
        writer.join().expect("a writer does not panic");
        Ok(Run { command, status: in_time.then_some(status), stdout, stderr, wall: ended - start, ended, cpu })
    }

    /// Runs it and panics, with everything it said, unless it succeeds.
    #[track_caller]
    pub fn run_ok(self) -> Run {
        let run = self.run().unwrap_or_else(|error| panic!("{error}"));
        assert!(run.success(), "{run}");
        run
    }

    /// Runs it and panics, with everything it said, unless it ends by itself with a failure.
    #[track_caller]
    pub fn run_failing(self) -> Run {
        let run = self.run().unwrap_or_else(|error| panic!("{error}"));
        assert!(run.status.is_some_and(|status| !status.success()), "expected a failure:\n{run}");
        run
    }
}

impl Run {
    /// Whether it ended in time and with status 0.
    pub fn success(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// Its exit code; `None` when it was ended by a signal or at its limit.
    pub fn code(&self) -> Option<i32> {
        self.status.and_then(|status| status.code())
    }

    /// Standard output as text.
    pub fn stdout_text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text.
    pub fn stderr_text(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.wall.as_secs_f64();
        match self.status {
            Some(status) => writeln!(f, "{}\n{status} after {seconds:.3} s", self.command)?,
            None => writeln!(f, "{}\nended at its limit of {seconds:.3} s", self.command)?,
        }
        for (name, bytes) in [("output", &self.stdout), ("errors", &self.stderr)] {
            let shown = &bytes[bytes.len().saturating_sub(SHOWN_BYTES)..];
            let note = if shown.len() < bytes.len() { ", the end of it" } else { "" };
            writeln!(f, "--- standard {name}{note} ---\n{}", String::from_utf8_lossy(shown))?;
        }
        Ok(())
    }
}

/// Program and arguments on one line, quoted where a shell would need it.
pub(crate) fn line_of(command: &Command) -> String {
    let plain = |word: &str| !word.is_empty() && word.chars().all(|c| c.is_alphanumeric() || "-_./:=,@%+".contains(c));
    let quote = |word: &OsStr| match word.to_str() {
        Some(word) if plain(word) => word.to_owned(),
        _ => format!("{word:?}"),
    };
    let words: Vec<String> = std::iter::once(command.get_program()).chain(command.get_args()).map(quote).collect();
    words.join(" ")
}

/// Waits until a child has ended, without collecting it; false when it has not in `limit`.
pub(crate) fn wait_until_ended(child: &Child, limit: Duration) -> io::Result<bool> {
    wait_until_readable(&pidfd_open(pid_of(child), PidfdFlags::empty())?, limit)
}

/// Waits until a descriptor is readable, as that of a process is once it has ended; false when not in `limit`.
fn wait_until_readable(descriptor: &OwnedFd, limit: Duration) -> io::Result<bool> {
    let deadline = Instant::now() + limit;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        match poll(&mut [PollFd::new(descriptor, PollFlags::IN)], Some(&timeout)) {
            Ok(ready) => return Ok(ready > 0),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Ends a child that was not collected and leads its process group, its descendants, and the rest of its group, and
/// waits until they are gone.
pub(crate) fn end_all(child: &Child) {
    let mut ids = cpu::tree(&[child.id()]);
    ids.extend(cpu::group(child.id()));
    // Descriptors, because ids may be used again, and before the end of a parent hides its children.
    let processes: Vec<OwnedFd> = ids.into_iter().filter_map(open).collect();
    for process in &processes {
        // The only failure is that it has ended, which is what is wanted.
        let _ = pidfd_send_signal(process, Signal::KILL);
    }
    for process in &processes {
        // A process that the kernel does not let go must not hang the test.
        let _ = wait_until_readable(process, KILL_LIMIT);
    }
}

fn open(id: u32) -> Option<OwnedFd> {
    let pid = i32::try_from(id).ok().and_then(Pid::from_raw)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

pub(crate) fn pid_of(child: &Child) -> Pid {
    Pid::from_child(child)
}

fn write_all(pipe: Option<impl Write + Send + 'static>, bytes: Vec<u8>) -> JoinHandle<()> {
    thread::spawn(move || {
        // A program may end without reading its input.
        let _ = pipe.map(|mut pipe| pipe.write_all(&bytes));
    })
}

fn read_all(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read before an error is what there is to show.
        let _ = pipe.map(|mut pipe| pipe.read_to_end(&mut bytes));
        bytes
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Tool {
        Tool::new("sh").arg("-c").arg(script)
    }

    #[test]
    fn both_outputs_the_input_and_the_code_come_back() {
        let run = shell("cat; echo wrong >&2; exit 3").input("hello").run_failing();
        assert_eq!((run.code(), run.stdout_text().as_str(), run.stderr_text().as_str()), (Some(3), "hello", "wrong\n"));
    }

    #[test]
    fn a_program_that_does_not_end_is_ended_with_its_children() {
        let run = shell("cat /dev/zero > /dev/null & echo $!; wait").limit(Duration::from_millis(200)).run();
        let run = run.expect("started");
        assert!(run.status.is_none() && !run.success());
        assert!(run.wall >= Duration::from_millis(200) && run.wall < Duration::from_secs(10));
        let child = run.stdout_text().trim().to_owned();
        let state = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        assert!(state.is_empty() || state.contains(") Z "), "{state}");
        assert!(run.to_string().contains("ended at its limit"), "{run}");
    }

    #[test]
    fn a_failure_reads_like_a_session() {
        let run = shell("echo out; echo err >&2; exit 1").run().expect("started");
        let text = run.to_string();
        for part in ["sh -c \"echo out; echo err >&2; exit 1\"", "exit status: 1", "out\n", "err\n"] {
            assert!(text.contains(part), "{text}");
        }
        let said = std::panic::catch_unwind(|| shell("echo reason >&2; exit 1").run_ok()).expect_err("must panic");
        assert!(said.downcast_ref::<String>().is_some_and(|said| said.contains("reason")));
        assert!(Tool::new("/no/such/program").run().is_err());
    }

    #[test]
    fn processor_time_of_children_is_counted() {
        let busy = "sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done'; true";
        let run = shell(busy).run_ok();
        assert!(run.cpu >= Duration::from_millis(20) && run.cpu < Duration::from_secs(30), "{:?}", run.cpu);
    }
}

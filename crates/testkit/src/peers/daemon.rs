//! A program that runs until the test is done with it: started, awaited, stopped.

use std::io::{BufRead, BufReader, PipeReader, pipe};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};

use super::tool::{end_all, line_of, pid_of, wait_until_ended};
use crate::error::{Attempt, Error, Result};
use crate::{cpu, leftovers};

/// A running program; dropping it ends it and all its descendants.
///
/// It leads a process group of its own. Both its outputs are collected.
#[derive(Debug)]
pub struct Daemon {
    command: String,
    child: Child,
    log: Arc<Mutex<String>>,
    collector: Option<JoinHandle<()>>,
}

impl Daemon {
    /// Starts `command` and waits until `ready` makes something of a line that it prints, on either output.
    ///
    /// Errors: it cannot be started, it ends before that, or nothing comes within `limit`; they tell what it printed.
    pub fn start<R>(mut command: Command, limit: Duration, ready: impl Fn(&str) -> Option<R>) -> Result<(Daemon, R)> {
        let line = line_of(&command);
        let what = || format!("starting {line}");
        leftovers::mark(&mut command);
        let (output, writer) = pipe().attempt(what)?;
        command.process_group(0).stdin(Stdio::null()).stderr(writer.try_clone().attempt(what)?).stdout(writer);
        let child = command.spawn().attempt(what)?;
        // The command holds the writing ends; with them open, the output would never end.
        drop(command);
        let log = Arc::new(Mutex::new(String::new()));
        let (collector, lines) = collect(output, log.clone());
        let daemon = Daemon { command: line.clone(), child, log, collector: Some(collector) };
        match wait_for(&lines, limit, ready) {
            Some(found) => Ok((daemon, found)),
            None => Err(Error::new(what(), format!("it did not become ready; it said:\n{}", daemon.log()))),
        }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has printed so far.
    pub fn log(&self) -> String {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Program and arguments.
    pub fn command(&self) -> &str {
        &self.command
    }

    /// Processor time of its process tree so far; see [`cpu::of_trees`].
    pub fn cpu(&self) -> Duration {
        cpu::of_trees(&[self.id()])
    }

    /// Memory of its process tree; see [`cpu::pss_bytes`].
    pub fn pss_bytes(&self) -> u64 {
        cpu::pss_bytes(&[self.id()])
    }

    /// Sends a signal to the program itself.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        kill_process(pid_of(&self.child), signal).attempt(|| format!("signalling {}", self.command))
    }

    /// Asks it to end (SIGTERM) and waits for it; an error when it has not ended within `limit`.
    pub fn stop(mut self, limit: Duration) -> Result<ExitStatus> {
        self.signal(Signal::TERM)?;
        self.wait(limit)
    }

    /// Waits for its end; an error when it has not ended within `limit`.
    pub fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        let what = || format!("waiting for the end of {}", self.command);
        if !wait_until_ended(&self.child, limit).attempt(what)? {
            return Err(Error::new(what(), format!("it still runs after {limit:?}; it said:\n{}", self.log())));
        }
        let what = format!("waiting for the end of {}", self.command);
        self.child.wait().attempt(|| what)
    }

    /// Everything it printed; ends it if it still runs.
    pub fn into_log(self) -> String {
        let log = self.log.clone();
        drop(self);
        log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends it at once (SIGKILL), with its descendants, as a crash does.
    pub fn kill(self) {
        drop(self);
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        end_all(&self.child);
        let _ = self.child.wait();
        if let Some(collector) = self.collector.take() {
            let _ = collector.join();
        }
    }
}

/// Reads lines into the log and hands each on, until the last writer is gone.
fn collect(output: PipeReader, log: Arc<Mutex<String>>) -> (JoinHandle<()>, Receiver<String>) {
    let (sender, lines) = channel();
    let collector = thread::spawn(move || {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while output.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
            let text = String::from_utf8_lossy(&line).into_owned();
            log.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
            // Nobody listens once the program is ready.
            let _ = sender.send(text.trim_end().to_owned());
            line.clear();
        }
    });
    (collector, lines)
}

fn wait_for<R>(lines: &Receiver<String>, limit: Duration, ready: impl Fn(&str) -> Option<R>) -> Option<R> {
    let deadline = Instant::now() + limit;
    loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => match ready(&line) {
                Some(found) => return Some(found),
                None => continue,
            },
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn port(line: &str) -> Option<u16> {
        line.strip_prefix("ready on ")?.parse().ok()
    }

    /// Whether a process runs; one that has ended but was not collected by its parent does not.
    fn runs(id: u32) -> bool {
        std::fs::read_to_string(format!("/proc/{id}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
    }

    #[test]
    fn a_ready_line_on_either_output_is_understood() {
        for script in [
            "echo hello; echo ready on 7; exec cat /dev/zero > /dev/null",
            "echo ready on 7 >&2; exec cat /dev/zero > /dev/null",
        ] {
            let (daemon, found) = Daemon::start(shell(script), LIMIT, port).expect("ready");
            assert_eq!(found, 7);
            assert!(daemon.log().contains("ready on 7\n"));
        }
    }

    #[test]
    fn a_program_that_ends_before_it_is_ready_is_quoted() {
        let error = Daemon::start(shell("echo no licence >&2; exit 1"), LIMIT, port).expect_err("must fail");
        assert!(error.to_string().contains("no licence"), "{error}");
        let silent = Daemon::start(shell("exec cat /dev/zero > /dev/null"), Duration::from_millis(50), port);
        assert!(silent.is_err());
    }

    #[test]
    fn dropping_ends_the_program_and_what_left_its_group() {
        let script = "setsid sh -c 'echo ready on $$; exec cat /dev/zero > /dev/null' & cat /dev/zero > /dev/null";
        let ready = |line: &str| line.strip_prefix("ready on ")?.parse::<u32>().ok();
        let (daemon, child) = Daemon::start(shell(script), LIMIT, ready).expect("ready");
        let parent = daemon.id();
        assert!(runs(parent) && runs(child));
        drop(daemon);
        assert!(!runs(parent) && !runs(child));
    }

    #[test]
    fn stopping_gives_the_program_a_chance_and_reports_its_status() {
        let polite = "trap 'exit 5' TERM; echo ready on 1; while :; do :; done";
        let (daemon, _) = Daemon::start(shell(polite), LIMIT, port).expect("ready");
        assert_eq!(daemon.stop(LIMIT).expect("ends").code(), Some(5));
        let deaf = "trap '' TERM; echo ready on 1; exec cat /dev/zero > /dev/null";
        let (daemon, _) = Daemon::start(shell(deaf), LIMIT, port).expect("ready");
        assert!(daemon.stop(Duration::from_millis(100)).is_err());
    }
}

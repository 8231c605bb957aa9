//! Programs that answer a question: each gets it on standard input and has a limited time for a limited answer.
//!
//! The monitor goes on meanwhile: it waits for their output among everything else.

use std::collections::VecDeque;
use std::io::{ErrorKind, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, OFlags};
use rustix::process::{Pid, Signal};
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_sys::lifetime;
use whimbrel_sys::poll::{self, PollFd, PollFlags};
use whimbrel_sys::retry;

use super::keeper::Account;

/// Programs at once; more wait.
const AT_ONCE: usize = 8;

/// Questions that wait for their turn; more are told to come again.
const MOST_WAITING: usize = 256;
/// Longest wait for the end of a program that was killed, and between two looks: all others wait meanwhile.
const LAST_WAIT: Duration = Duration::from_secs(1);
const LAST_LOOK: Duration = Duration::from_millis(2);

/// What is run, and what is asked of it.
#[derive(Debug, Clone)]
pub struct Order {
    /// What it does, for faults.
    pub op: &'static str,
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Its standard input.
    pub question: Vec<u8>,
    /// Whose rights it has; `None`: those of this process.
    pub account: Option<Account>,
    /// Longest answer, bytes.
    pub most: usize,
    /// Longest time from its start to its end.
    pub limit: Duration,
}

/// An answer: the whole standard output of a program that ended well.
pub type Answer = Result<Vec<u8>, Fault>;

/// The programs that run, each with what its answer is for.
#[derive(Debug)]
pub struct Jobs<T> {
    running: Vec<(Running, T)>,
    waiting: VecDeque<(Order, T)>,
}

impl<T> Default for Jobs<T> {
    fn default() -> Self {
        Self { running: Vec::new(), waiting: VecDeque::new() }
    }
}

impl<T> Jobs<T> {
    /// Starts a program now or when its turn comes; its purpose comes back with the fault if there is no room for it.
    pub fn add(&mut self, order: Order, purpose: T) -> Result<(), (Fault, T)> {
        if self.waiting.len() >= MOST_WAITING {
            let busy = Fault::new(FaultCode::ServerBusy, order.op).side(Side::Us);
            return Err((busy.detail("too many programs run for other logins"), purpose));
        }
        self.waiting.push_back((order, purpose));
        Ok(())
    }

    /// Starts what may start and takes in what the programs have said and how they ended; gives the finished ones.
    pub fn advance(&mut self, now: Instant) -> Vec<(Answer, T)> {
        let mut done = Vec::new();
        for (mut running, purpose) in std::mem::take(&mut self.running) {
            match running.advance(now) {
                Some(answer) => done.push((answer, purpose)),
                None => self.running.push((running, purpose)),
            }
        }
        while self.running.len() < AT_ONCE
            && let Some((order, purpose)) = self.waiting.pop_front()
        {
            match Running::start(order, now) {
                Ok(running) => self.running.push((running, purpose)),
                Err(fault) => done.push((Err(fault), purpose)),
            }
        }
        done
    }

    /// What to wait for before the next [`Self::advance`]; the ends of children come as signals.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.running.iter().filter(|(running, _)| !running.said_all).map(|(running, _)| running.output.as_fd())
    }

    /// When the first time limit passes.
    pub fn deadline(&self) -> Option<Instant> {
        self.running.iter().map(|(running, _)| running.deadline).min()
    }
}

/// Runs one program to its end, with nothing else to do meanwhile.
pub fn run(order: Order) -> Answer {
    let failed = |error| Fault::from_io(error, "wait for a program").side(Side::Us);
    let mut running = Running::start(order, Instant::now())?;
    loop {
        if let Some(answer) = running.advance(Instant::now()) {
            return answer;
        }
        let left = running.deadline.saturating_duration_since(Instant::now());
        if running.said_all {
            // Closing its output is usually the last thing that a program does: nobody signals its end here.
            poll::wait(&mut [], Some(left.min(Duration::from_millis(1)))).map_err(failed)?;
        } else {
            poll::wait(&mut [PollFd::from_borrowed_fd(running.output.as_fd(), PollFlags::IN)], Some(left))
                .map_err(failed)?;
        }
    }
}

/// A program under way; dropped before its end it is killed.
#[derive(Debug)]
struct Running {
    op: &'static str,
    program: String,
    child: Child,
    output: ChildStdout,
    answer: Vec<u8>,
    most: usize,
    said_all: bool,
    /// It has ended and its number may be another's.
    reaped: bool,
    deadline: Instant,
}

impl Running {
    fn start(order: Order, now: Instant) -> Result<Self, Fault> {
        let program = order.program.display().to_string();
        let failed = |error| Fault::from_io(error, order.op).subject(&program).side(Side::Us);
        // A file in memory needs nobody who writes while the program reads.
        let question =
            rustix::fs::memfd_create("question", MemfdFlags::CLOEXEC).map_err(|error| failed(error.into()))?;
        let mut question = std::fs::File::from(question);
        question.write_all(&order.question).and_then(|()| question.rewind()).map_err(failed)?;
        let mut command = Command::new(&order.program);
        command.args(&order.arguments).stdin(question).stdout(Stdio::piped());
        command.env_clear().env("PATH", "/usr/bin:/bin").current_dir("/");
        // Its process group, too, which is ended with it.
        lifetime::own_session(&mut command);
        if let Some(account) = order.account.as_ref().filter(|_| super::keeper::is_root()) {
            // This also drops the supplementary groups.
            command.uid(account.uid).gid(account.gid);
        }
        let mut child = command.spawn().map_err(failed)?;
        let output = child.stdout.take().expect("it was asked for above");
        let (op, most, deadline) = (order.op, order.most, now + order.limit);
        let (answer, said_all, reaped) = (Vec::new(), false, false);
        let running = Self { op, program: program.clone(), child, output, answer, most, said_all, reaped, deadline };
        let flags = rustix::fs::fcntl_getfl(&running.output).map_err(|error| failed(error.into()))?;
        rustix::fs::fcntl_setfl(&running.output, flags | OFlags::NONBLOCK).map_err(|error| failed(error.into()))?;
        Ok(running)
    }

    /// Takes in what there is; the answer at the end.
    fn advance(&mut self, now: Instant) -> Option<Answer> {
        match self.listen().and_then(|()| self.end()) {
            Err(fault) => Some(Err(fault)),
            Ok(Some(status)) if status.success() => Some(Ok(std::mem::take(&mut self.answer))),
            Ok(Some(status)) => Some(Err(self.fault(FaultCode::ServerBusy, format!("it failed ({status})")))),
            Ok(None) if now >= self.deadline => {
                Some(Err(self.fault(FaultCode::TimedOut, "it did not answer in time and was ended".to_owned())))
            }
            Ok(None) => None,
        }
    }

    fn listen(&mut self) -> Result<(), Fault> {
        let mut bytes = [0; 16 << 10];
        while !self.said_all {
            match retry::read(&mut self.output, &mut bytes) {
                Ok(0) => self.said_all = true,
                Ok(count) if self.answer.len() + count > self.most => {
                    return Err(self.fault(FaultCode::ServerBusy, format!("it says more than {} bytes", self.most)));
                }
                Ok(count) => self.answer.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(Fault::from_io(error, self.op).subject(&self.program).side(Side::Us)),
            }
        }
        Ok(())
    }

    /// How it ended, once nobody can say anything more; until then its number, which is its group's, is not given to others.
    fn end(&mut self) -> Result<Option<ExitStatus>, Fault> {
        if !self.said_all {
            return Ok(None);
        }
        let status = self.child.try_wait();
        let status = status.map_err(|error| Fault::from_io(error, self.op).subject(&self.program).side(Side::Us))?;
        self.reaped = status.is_some();
        Ok(status)
    }

    fn fault(&self, code: FaultCode, detail: String) -> Fault {
        Fault::new(code, self.op).subject(&self.program).side(Side::Us).detail(detail)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.reaped {
            return;
        }
        // With all that it started, which is its process group. ESRCH: they are gone.
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let _gone = group.map(|group| rustix::process::kill_process_group(group, Signal::KILL));
        // One that hangs in a file system, or is another account's, is not waited for: everybody's logins would wait with it.
        let until = Instant::now() + LAST_WAIT;
        loop {
            match self.child.try_wait() {
                Ok(Some(_)) => return,
                Ok(None) if Instant::now() < until => std::thread::sleep(LAST_LOOK),
                Ok(None) => return tracing::error!(program = self.program, "a program that was killed does not end"),
                Err(error) => {
                    return tracing::error!(program = self.program, %error, "a program cannot be waited for");
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Order {
        let (program, arguments) = ("/bin/sh".into(), vec!["-c".to_owned(), script.to_owned()]);
        let limit = Duration::from_secs(20);
        Order { op: "map identity", program, arguments, question: b"who?\n".to_vec(), account: None, most: 1000, limit }
    }

    #[test]
    fn a_program_gets_the_question_and_nothing_else_of_this_process() {
        let answer = run(shell("read line; echo \"$line $PWD\"; env | grep -v -e ^PWD= -e ^_= -e ^SHLVL= -e ^OLDPWD="));
        let text = String::from_utf8(answer.unwrap()).unwrap();
        assert_eq!(text, "who? /\nPATH=/usr/bin:/bin\n");
    }

    #[test]
    fn failures_long_answers_and_silence_are_faults() {
        let code = |order| run(order).unwrap_err().code;
        assert_eq!(code(shell("echo alice; exit 3")), FaultCode::ServerBusy);
        assert_eq!(code(shell("yes")), FaultCode::ServerBusy, "it says too much");
        assert_eq!(code(Order { limit: Duration::from_millis(50), ..shell("exec sleep 60") }), FaultCode::TimedOut);
        assert_eq!(code(Order { program: "/no/such/program".into(), ..shell("") }), FaultCode::NotFound);
    }

    #[test]
    fn what_a_program_leaves_behind_ends_with_it_at_the_limit() {
        // The output stays open in the one that was left behind.
        let order = Order { limit: Duration::from_millis(300), ..shell("sleep 60 & echo $! >&2; exit 0") };
        assert_eq!(run(order).unwrap_err().code, FaultCode::TimedOut);
    }

    #[test]
    fn many_questions_wait_their_turn_and_too_many_are_told() {
        let mut jobs = Jobs::default();
        for number in 0..MOST_WAITING {
            jobs.add(shell("exec cat"), number).unwrap();
        }
        let (fault, back) = jobs.add(shell(""), 999).unwrap_err();
        assert_eq!((fault.code, back), (FaultCode::ServerBusy, 999));
        let mut answered = vec![false; MOST_WAITING];
        while answered.contains(&false) {
            for (answer, number) in jobs.advance(Instant::now()) {
                assert_eq!(answer.unwrap(), b"who?\n");
                answered[number] = true;
            }
            assert!(jobs.running.len() <= AT_ONCE);
            let mut fds: Vec<PollFd<'_>> =
                jobs.descriptors().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
            poll::wait(&mut fds, Some(Duration::from_millis(1))).unwrap();
        }
        assert!(jobs.deadline().is_none() && jobs.running.is_empty());
    }

    #[test]
    fn a_program_has_the_rights_of_its_account_only() {
        if !super::super::keeper::is_root() {
            return;
        }
        let nobody = super::super::keeper::account("nobody").unwrap();
        let ids = format!("{} {}\n{}\n", nobody.uid, nobody.gid, nobody.gid);
        let order = Order { account: Some(nobody), ..shell("echo $(id -u) $(id -g); id -G") };
        assert_eq!(String::from_utf8(run(order).unwrap()).unwrap(), ids);
    }
}

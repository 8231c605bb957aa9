//! The monitor's loop: the front's questions, signals, children.

use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::process::{Child, ExitStatus};
use std::time::Instant;

use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_sys::poll::{self, PollFd, PollFlags};
use whimbrel_sys::signals::{Signal, SignalQueue};

use super::children::Children;
use super::front;
use super::jobs::Jobs;
use super::keeper::{Keeper, Search, Step};
use super::listeners::Bound;
use super::message::{FromMonitor, Ticket, ToMonitor};
use crate::front::config::DtnConfig;
use crate::member::{self, Member};
use crate::packets::Channel;

/// Names longer than this are no accounts, bytes.
const MOST_NAME: usize = 1024;

/// Serves until the front has ended; gives how it did.
///
/// Call it before any thread is started. SIGTERM and SIGINT make the front finish what runs and end.
pub fn run(config: &DtnConfig, program: PathBuf) -> Result<ExitStatus, Fault> {
    let signals = signals()?;
    let bound = Bound::new(config)?;
    let (config, member) = member::enter(config, &program, &bound)?;
    Monitor::start(signals, &config, program, bound, member)?.serve()
}

/// Serves one control connection, which somebody else has accepted, until it has ended; gives how the front did.
///
/// Call it before any thread is started.
pub fn run_for(connection: OwnedFd, config: &DtnConfig, program: PathBuf) -> Result<ExitStatus, Fault> {
    Monitor::start(signals()?, config, program, Bound::to(connection), None)?.serve()
}

fn signals() -> Result<SignalQueue, Fault> {
    SignalQueue::new().map_err(|error| Fault::from_io(error, "watch for signals"))
}

/// What a program's answer is for.
enum Purpose {
    /// The question about a claim.
    Mapping(Ticket, Search),
    /// The question about an issuer's keys.
    Keys(Ticket),
}

struct Monitor {
    signals: SignalQueue,
    keeper: Keeper,
    front: Child,
    /// `None` once the front has closed it or broken its rules.
    channel: Option<Channel>,
    children: Children,
    /// Programs, with the questions of the front that wait for them.
    programs: Jobs<Purpose>,
    announcement: String,
    /// Who tells the managed service of this server.
    member: Option<Member>,
}

impl Monitor {
    fn start(
        signals: SignalQueue,
        config: &DtnConfig,
        program: PathBuf,
        bound: Bound,
        member: Option<Member>,
    ) -> Result<Self, Fault> {
        let keeper = Keeper::new(config, program.clone())?;
        let (front, channel) = front::start(config, &program, &bound)?;
        let announcement = bound.announcement();
        drop(bound); // the front has its own descriptors: what it closes is closed
        let (channel, children, programs) = (Some(channel), Children::default(), Jobs::default());
        Ok(Self { signals, keeper, front, channel, children, programs, announcement, member })
    }

    fn serve(mut self) -> Result<ExitStatus, Fault> {
        let failed = |error: io::Error| Fault::from_io(error, "serve").side(Side::Us);
        loop {
            let mut fds = vec![PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN)];
            fds.extend(self.channel.as_ref().map(|channel| PollFd::from_borrowed_fd(channel.as_fd(), PollFlags::IN)));
            fds.extend(self.programs.descriptors().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
            let limit = self.programs.deadline().map(|at| at.saturating_duration_since(Instant::now()));
            poll::wait(&mut fds, limit).map_err(failed)?;
            drop(fds);
            while let Some(signal) = self.signals.next().map_err(failed)? {
                match signal {
                    Signal::Terminate => self.drain(),
                    // Files of users are read at each login.
                    Signal::Reload => tracing::info!("nothing to read again"),
                    Signal::Child => {
                        self.children.reap();
                        if let Some(status) = self.front.try_wait().map_err(failed)? {
                            return Ok(status);
                        }
                        let door = self.member.as_mut().map_or(Ok(None), Member::one_ended);
                        if let Some(status) = door.map_err(failed)? {
                            tracing::error!(%status, "the process that talks to the service, or serves HTTPS, or makes or joins connections, has ended");
                            return Ok(status);
                        }
                    }
                }
            }
            self.answer_all();
            self.hear_programs();
        }
    }

    /// Takes in what programs have answered; for the same question another may have to be asked.
    fn hear_programs(&mut self) {
        loop {
            let answers = self.programs.advance(Instant::now());
            if answers.is_empty() {
                return;
            }
            for (answer, purpose) in answers {
                let told = match purpose {
                    Purpose::Keys(ticket) => self.tell(&FromMonitor::Keys { ticket, answer }),
                    Purpose::Mapping(ticket, mut search) => {
                        let step = self.keeper.answered(&mut search, answer);
                        self.go_on(ticket, search, step)
                    }
                };
                if let Err(error) = told {
                    self.give_up(&error);
                }
            }
        }
    }

    /// Answers a question about a claim, or has a program asked.
    fn go_on(&mut self, ticket: Ticket, search: Search, step: Step) -> io::Result<()> {
        let account = match step {
            Step::Done(account) => account,
            Step::Ask(order) => match self.programs.add(order, Purpose::Mapping(ticket, search)) {
                Ok(()) => return Ok(()),
                Err((fault, _)) => Err(fault),
            },
        };
        self.tell(&FromMonitor::Mapped { ticket, account })
    }

    /// Has an issuer's keys fetched. To ask for another issuer's is to break the rules.
    fn fetch(&mut self, ticket: Ticket, issuer: usize) -> io::Result<()> {
        let added = match self.keeper.fetch_keys(issuer) {
            Ok(order) => self.programs.add(order, Purpose::Keys(ticket)).map_err(|(fault, _)| fault),
            Err(fault) if fault.code == FaultCode::NotAuthorized => return Err(io::Error::other(fault)),
            Err(fault) => Err(fault),
        };
        match added {
            Ok(()) => Ok(()),
            Err(fault) => self.tell(&FromMonitor::Keys { ticket, answer: Err(fault) }),
        }
    }

    fn tell(&self, message: &FromMonitor) -> io::Result<()> {
        self.tell_with(message, &[])
    }

    /// Tells the front, if it is still there, and hands it descriptors.
    fn tell_with(&self, message: &FromMonitor, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        self.channel.as_ref().map_or(Ok(()), |channel| channel.send(message, descriptors))
    }

    fn drain(&mut self) {
        if let Some(member) = &mut self.member {
            member.drain();
        }
        if let Err(error) = self.tell(&FromMonitor::Drain) {
            self.give_up(&error);
        }
    }

    /// Answers what the front has asked.
    fn answer_all(&mut self) {
        while let Some(channel) = &self.channel {
            match channel.receive::<ToMonitor>() {
                Ok(Some((message, _descriptors))) => {
                    if let Err(error) = self.answer(message) {
                        self.give_up(&error);
                    }
                }
                // It is ending: its status comes with SIGCHLD.
                Ok(None) => self.channel = None,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => self.give_up(&error),
            }
        }
    }

    fn answer(&mut self, message: ToMonitor) -> io::Result<()> {
        match message {
            ToMonitor::Ready => {
                let mut out = io::stdout().lock();
                // Who started it may have stopped reading, or its disk be full, which is no reason not to serve.
                if let Err(error) = out.write_all(self.announcement.as_bytes()).and_then(|()| out.flush()) {
                    tracing::warn!(%error, "serving; standard output cannot be written");
                }
                Ok(())
            }
            ToMonitor::Anonymous { ticket } => {
                let account = Ok(self.keeper.anonymous());
                self.tell(&FromMonitor::Mapped { ticket, account })
            }
            ToMonitor::Password { ticket, user } => {
                // Nobody has the empty name.
                let entry = self.keeper.password_user(if user.len() > MOST_NAME { "" } else { &user });
                self.tell(&FromMonitor::Entry { ticket, entry })
            }
            ToMonitor::Claim { ticket, claim, wanted } => {
                let (search, step) = self.keeper.search(&claim, wanted.as_deref());
                self.go_on(ticket, search, step)
            }
            ToMonitor::Keys { ticket, issuer } => self.fetch(ticket, issuer),
            ToMonitor::Open { ticket, account } => match self.keeper.open(account) {
                Ok((stream, child)) => {
                    self.children.add(child);
                    self.tell_with(&FromMonitor::Opened { ticket, result: Ok(()) }, &[stream.as_fd()])
                }
                Err(fault) => {
                    if fault.code == FaultCode::NotAuthorized {
                        return Err(io::Error::other(fault));
                    }
                    self.tell(&FromMonitor::Opened { ticket, result: Err(fault) })
                }
            },
        }
    }

    /// A front that breaks the rules, or does not listen, is ended; the service with it.
    fn give_up(&mut self, error: &io::Error) {
        tracing::error!(%error, "the front misbehaves and is ended");
        self.channel = None;
        if let Err(error) = self.front.kill() {
            tracing::error!(%error, "it cannot be ended");
        }
    }
}

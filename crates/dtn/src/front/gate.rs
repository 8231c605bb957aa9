//! The front's way to accounts and data processes: it has to ask for both.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::Interest;
use tokio::net::UnixDatagram;
use tokio::sync::{oneshot, watch};
use whimbrel_engine::{Fault, FaultCode, Side};

use crate::keys;
use crate::monitor::jobs;
use crate::monitor::keeper::Keeper;
use crate::monitor::message::{AccountId, Claim, FromMonitor, MappedAccount, PasswordEntry, Ticket, ToMonitor};
use crate::packets::Channel;

/// Who answers for accounts.
#[allow(clippy::large_enum_variant, reason = "a process has one")]
pub enum Gate {
    /// This process, which is its own monitor: a single connection on standard input.
    Here(Mutex<Keeper>),
    /// The monitor that started this process.
    Monitor(Arc<MonitorLink>),
}

const OP: &str = "ask the monitor";

impl Gate {
    /// The account of anonymous users; `None`: there are none.
    pub async fn anonymous(&self) -> Result<Option<MappedAccount>, Fault> {
        match self {
            Self::Here(keeper) => Ok(lock(keeper).anonymous()),
            Self::Monitor(link) => match link.ask(|ticket| ToMonitor::Anonymous { ticket }).await? {
                Answer::Account(account) => account,
                _ => Err(unexpected()),
            },
        }
    }

    /// The entry of a password user, or one of nobody's.
    pub async fn password_user(&self, name: &str) -> Result<PasswordEntry, Fault> {
        match self {
            Self::Here(keeper) => lock(keeper).password_user(name),
            Self::Monitor(link) => {
                let user = name.to_owned();
                match link.ask(|ticket| ToMonitor::Password { ticket, user }).await? {
                    Answer::Entry(entry) => entry,
                    _ => Err(unexpected()),
                }
            }
        }
    }

    /// The account for somebody who proved to be this, the usual one where none is wanted; `None`: not let in.
    pub async fn claim(&self, claim: Claim, wanted: Option<String>) -> Result<Option<MappedAccount>, Fault> {
        match self {
            Self::Here(keeper) => lock(keeper).claim(&claim, wanted.as_deref()),
            Self::Monitor(link) => {
                let claim = Box::new(claim);
                match link.ask(|ticket| ToMonitor::Claim { ticket, claim, wanted }).await? {
                    Answer::Account(account) => account,
                    _ => Err(unexpected()),
                }
            }
        }
    }

    /// The keys of an issuer of tokens, counted from 0, as it shows them now.
    pub async fn keys(&self, issuer: usize) -> Result<Vec<u8>, Fault> {
        let answer = match self {
            Self::Here(keeper) => {
                let order = lock(keeper).fetch_keys(issuer)?;
                let ran = tokio::task::spawn_blocking(move || jobs::run(order)).await;
                ran.map_err(|error| Fault::new(FaultCode::Internal, OP).detail(error.to_string()))?
            }
            Self::Monitor(link) => match link.ask(|ticket| ToMonitor::Keys { ticket, issuer }).await? {
                Answer::Keys(answer) => answer,
                _ => return Err(unexpected()),
            },
        };
        keys::read(&answer?)
    }

    /// The account that runs this process; `None` where another process decides about accounts.
    pub fn own(&self) -> Result<Option<MappedAccount>, Fault> {
        match self {
            Self::Here(keeper) => lock(keeper).own().map(Some),
            Self::Monitor(_) => Ok(None),
        }
    }

    /// The stream to a new data process of an account.
    pub async fn open(&self, account: AccountId) -> Result<UnixStream, Fault> {
        match self {
            Self::Here(keeper) => {
                let (stream, mut child) = lock(keeper).open(account)?;
                let pid = child.id();
                std::thread::spawn(move || match child.wait() {
                    Ok(status) => tracing::info!(pid, %status, "data process ended"),
                    Err(error) => tracing::error!(pid, %error, "data process cannot be waited for"),
                });
                Ok(stream.into())
            }
            Self::Monitor(link) => match link.ask(|ticket| ToMonitor::Open { ticket, account }).await? {
                Answer::Opened(stream) => stream.map(UnixStream::from),
                _ => Err(unexpected()),
            },
        }
    }
}

fn lock(keeper: &Mutex<Keeper>) -> std::sync::MutexGuard<'_, Keeper> {
    keeper.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unexpected() -> Fault {
    Fault::new(FaultCode::Internal, OP).side(Side::Us).detail("the answer does not fit the question")
}

pub(super) fn lost() -> Fault {
    Fault::new(FaultCode::ServerBusy, OP).side(Side::Us).detail("the monitor is gone")
}

/// What the monitor answered.
enum Answer {
    Account(Result<Option<MappedAccount>, Fault>),
    Entry(Result<PasswordEntry, Fault>),
    Keys(Result<Vec<u8>, Fault>),
    Opened(Result<OwnedFd, Fault>),
}

/// The questions that wait for their answers; `None` once the monitor is gone.
type Waiting = Arc<Mutex<Option<HashMap<Ticket, oneshot::Sender<Answer>>>>>;

/// The channel, and a second descriptor of it that the runtime watches.
#[derive(Debug)]
pub(crate) struct Line {
    channel: Channel,
    watched: UnixDatagram,
}

impl Line {
    pub(crate) fn new(channel: Channel) -> io::Result<Self> {
        let watched = std::os::unix::net::UnixDatagram::from(channel.as_fd().try_clone_to_owned()?);
        watched.set_nonblocking(true)?;
        Ok(Self { channel, watched: UnixDatagram::from_std(watched)? })
    }

    pub(crate) fn channel(&self) -> &Channel {
        &self.channel
    }

    pub(crate) async fn when<T>(
        &self,
        interest: Interest,
        mut act: impl FnMut(&Channel) -> io::Result<T>,
    ) -> io::Result<T> {
        self.watched.async_io(interest, || act(&self.channel)).await
    }
}

/// A connection to the monitor.
pub struct MonitorLink {
    line: Arc<Line>,
    next: AtomicU32,
    waiting: Waiting,
}

impl MonitorLink {
    /// Takes the channel over; `drain` turns true when the monitor asks for the end, or is gone.
    pub fn new(channel: Channel, drain: watch::Sender<bool>) -> Result<Self, Fault> {
        let line = Line::new(channel).map_err(|error| Fault::from_io(error, OP).side(Side::Us))?;
        let (line, waiting) = (Arc::new(line), Waiting::new(Mutex::new(Some(HashMap::new()))));
        tokio::spawn(listen(line.clone(), waiting.clone(), drain));
        Ok(Self { line, next: AtomicU32::new(1), waiting })
    }

    /// Whether it is gone, or cannot be understood.
    pub fn is_lost(&self) -> bool {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Tells the monitor that connections are served.
    pub async fn ready(&self) -> Result<(), Fault> {
        self.send(&ToMonitor::Ready).await
    }

    async fn send(&self, message: &ToMonitor) -> Result<(), Fault> {
        let sent = self.line.when(Interest::WRITABLE, |channel| channel.send(message, &[])).await;
        sent.map_err(|error| Fault::from_io(error, OP).side(Side::Us))
    }

    async fn ask(&self, question: impl FnOnce(Ticket) -> ToMonitor) -> Result<Answer, Fault> {
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).as_mut().ok_or_else(lost)?.insert(ticket, sender);
        self.send(&question(ticket)).await?;
        answer.await.map_err(|_| lost())
    }
}

/// Hands answers to those who wait for them, to the end of the connection.
async fn listen(line: Arc<Line>, waiting: Waiting, drain: watch::Sender<bool>) {
    loop {
        match line.when(Interest::READABLE, Channel::receive::<FromMonitor>).await {
            Ok(Some((message, descriptors))) => deliver(message, descriptors, &waiting, &drain),
            Ok(None) => break,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                tracing::error!(%error, "the monitor cannot be understood");
                break;
            }
        }
    }
    *waiting.lock().unwrap_or_else(PoisonError::into_inner) = None;
    drain.send_replace(true);
}

fn deliver(message: FromMonitor, mut descriptors: Vec<OwnedFd>, waiting: &Waiting, drain: &watch::Sender<bool>) {
    let (ticket, answer) = match message {
        FromMonitor::Mapped { ticket, account } => (ticket, Answer::Account(account)),
        FromMonitor::Entry { ticket, entry } => (ticket, Answer::Entry(entry)),
        FromMonitor::Keys { ticket, answer } => (ticket, Answer::Keys(answer)),
        FromMonitor::Opened { ticket, result } => {
            let stream = result.and_then(|()| descriptors.pop().ok_or_else(unexpected));
            (ticket, Answer::Opened(stream))
        }
        FromMonitor::Drain => {
            tracing::info!("draining: running transfers are finished, nothing new is taken");
            drain.send_replace(true);
            return;
        }
        FromMonitor::Hello(_) => return tracing::error!("the monitor said hello twice"),
    };
    let asker = waiting.lock().unwrap_or_else(PoisonError::into_inner).as_mut().and_then(|all| all.remove(&ticket));
    // Who no longer waits has gone with its connection.
    if let Some(asker) = asker {
        let _gone = asker.send(answer);
    }
}

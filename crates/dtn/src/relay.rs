//! The process that joins data connections of two servers neither of which takes any.
//!
//! It is confined, has no files and makes no connections. Whom to join, the front tells it, when somebody who is logged in has announced
//! a token; every connection has to say one first. What passes is encrypted with a key that it does not have.

mod strangers;
mod table;

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener as StdListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::process::Child;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, timeout};
use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_proto::relay::{Announcement, HELLO_BYTES, Hello};

use crate::confine::{self, Needs, Sandbox};
use crate::descriptors;
use crate::front::gate::Line;
use crate::front::process::drain_on_signal;
use crate::helper::Helper;
use crate::keepalive;
use crate::monitor::keeper::Account;
use crate::packets::Channel;

use strangers::Strangers;
use table::{Arrival, Limits, Table};

const OP: &str = "join data connections";

const HELPER: Helper = Helper { command: "dtn-relay", op: OP };

/// Time for a connection to say what it belongs to.
const HELLO: Duration = Duration::from_secs(10);

/// A pair that passes nothing on for so long is let go within as long again: far beyond the time after which transfers have stalled, since
/// connections are kept between transfers.
const IDLE: Duration = Duration::from_secs(15 * 60);

/// Bytes of a pair's buffer in one direction.
const BUFFER: usize = 64 << 10;

/// Descriptors that it may need: those of pairs, of connections that wait, of strangers.
const DESCRIPTORS: u64 = 8192;

/// How often the front is told what has passed, and what has had its time is let go.
const TICK: Duration = Duration::from_secs(1);

/// To the process. A packet is never empty: that would be the end.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum ToRelay {
    /// Comes first; beside it, the listening socket.
    Listen,
    /// A user, who is logged in, has announced this.
    Announce(String, Announcement),
}

/// To the front: sums since the beginning, but for what is open now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Passed {
    /// Bytes passed on, both ways.
    pub(crate) bytes: u64,
    /// Pairs joined.
    pub(crate) joined: u64,
    /// Connections and announcements refused.
    pub(crate) refused: u64,
    /// Pairs open.
    pub(crate) open: u32,
}

/// Starts the process, which gets the channel to the front as its standard output, and the listening socket through it.
pub(crate) fn start(
    program: &Path,
    listener: &StdListener,
    (front, relay): (&Channel, &Channel),
    account: Option<Account>,
    sandbox: Sandbox,
) -> Result<Child, Fault> {
    front.send(&ToRelay::Listen, &[listener.as_fd()]).map_err(|error| HELPER.failed(error))?;
    HELPER.start(program, relay, account, &sandbox)
}

/// Serves with the settings on standard input, for the front at the channel that is standard output, until that is gone.
///
/// # Errors
/// They are none, or this process cannot be confined.
pub fn serve_standard_input() -> Result<(), Fault> {
    let (sandbox, channel): (Sandbox, OwnedFd) = HELPER.told()?;
    // Without them it serves fewer.
    descriptors::allow(DESCRIPTORS);
    confine::enter(&Needs::relay(), sandbox)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| HELPER.failed(error))?;
    let result = runtime.block_on(async {
        // The front ends a drain: until then pairs go on, and what is announced may come.
        drain_on_signal(watch::channel(false).0)?;
        serve(Channel::from(channel), IDLE).await
    });
    runtime.shutdown_background();
    result
}

/// Joins connections until the front is gone, and lets go of pairs that are `idle` for so long.
async fn serve(channel: Channel, idle: Duration) -> Result<(), Fault> {
    let listener = match channel.receive::<ToRelay>().map_err(|error| HELPER.failed(error))? {
        Some((ToRelay::Listen, mut descriptors)) => descriptors.pop().map(StdListener::from),
        _ => None,
    };
    let listener = listener.ok_or_else(|| Fault::new(FaultCode::InvalidArgument, OP).side(Side::Us))?;
    let listener = TcpListener::from_std(listener).map_err(|error| HELPER.failed(error))?;
    let relay = Arc::new(Relay::new(channel, idle).map_err(|error| HELPER.failed(error))?);
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            heard = relay.front.when(tokio::io::Interest::READABLE, |_| relay.hear()) => {
                if !heard.map_err(|error| HELPER.failed(error))? {
                    return Ok(());
                }
            }
            accepted = listener.accept() => match accepted {
                Ok((stream, from)) => relay.clone().take(stream, from),
                Err(error) => pause_after(&error).await,
            },
            _ = ticks.tick() => relay.tick(),
        }
    }
}

/// After a failed accept (descriptors used up, say) trying again at once would only spin.
async fn pause_after(error: &io::Error) {
    tracing::error!(%error, "cannot accept a connection");
    tokio::time::sleep(Duration::from_millis(100)).await;
}

struct Relay {
    front: Line,
    table: Mutex<Table<TcpStream>>,
    strangers: Arc<Strangers>,
    counts: Counts,
    told: Mutex<Passed>,
    idle: Duration,
}

#[derive(Default)]
struct Counts {
    bytes: AtomicU64,
    joined: AtomicU64,
    refused: AtomicU64,
    open: AtomicU32,
}

impl Relay {
    fn new(channel: Channel, idle: Duration) -> io::Result<Self> {
        Ok(Self {
            front: Line::new(channel)?,
            table: Mutex::new(Table::new(Limits::default())),
            strangers: Arc::default(),
            counts: Counts::default(),
            told: Mutex::default(),
            idle,
        })
    }

    fn table(&self) -> MutexGuard<'_, Table<TcpStream>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in all that the front has said; `false`: it is gone. `WouldBlock` if it has said nothing.
    fn hear(&self) -> io::Result<bool> {
        loop {
            match self.front.channel().receive::<ToRelay>()? {
                Some((ToRelay::Announce(user, what), _)) => {
                    if let Err(refusal) = self.table().announce(Instant::now(), &user, &what) {
                        self.counts.refused.fetch_add(1, Ordering::Relaxed);
                        tracing::debug!(%refusal, "an announcement is refused");
                    }
                }
                Some((ToRelay::Listen, _)) => return Err(ErrorKind::InvalidData.into()),
                None => return Ok(false),
            }
        }
    }

    /// A stranger.
    fn take(self: Arc<Self>, stream: TcpStream, from: SocketAddr) {
        let Some(place) = self.strangers.enter(from.ip().to_canonical()) else {
            self.counts.refused.fetch_add(1, Ordering::Relaxed);
            return tracing::debug!(%from, "too many connections that have said nothing");
        };
        tokio::spawn(async move {
            let mut stream = stream;
            let hello = self.hello(&mut stream).await;
            drop(place);
            match hello {
                Some(hello) => self.join(stream, hello, from).await,
                None => {
                    self.counts.refused.fetch_add(1, Ordering::Relaxed);
                    tracing::debug!(%from, "a connection that says no token");
                }
            }
        });
    }

    async fn hello(&self, stream: &mut TcpStream) -> Option<Hello> {
        let mut bytes = [0; HELLO_BYTES];
        timeout(HELLO, stream.read_exact(&mut bytes)).await.ok()?.ok()?;
        Hello::decode(&bytes)
    }

    async fn join(&self, stream: TcpStream, hello: Hello, from: SocketAddr) {
        if let Err(error) = keepalive::set(&stream, keepalive::CONTROL) {
            tracing::debug!(%from, %error, "no keepalive");
        }
        // Who announces it hears so only after the front has said it here: nobody comes before that can be heard.
        match self.hear() {
            Err(error) if error.kind() != ErrorKind::WouldBlock => return,
            _ => {}
        }
        let arrived = self.table().arrive(Instant::now(), hello, stream, is_there);
        match arrived {
            Ok(Arrival::Waits) => {}
            Ok(Arrival::Joined(one, other, user)) => {
                self.pass(one, other).await;
                self.table().ended(&user);
            }
            Err(refusal) => {
                self.counts.refused.fetch_add(1, Ordering::Relaxed);
                tracing::debug!(%from, %refusal, "a connection is refused");
            }
        }
    }

    /// Passes bytes on until both ends have ended, one has broken, or both say nothing for long.
    async fn pass(&self, mut one: TcpStream, mut other: TcpStream) {
        self.counts.joined.fetch_add(1, Ordering::Relaxed);
        self.counts.open.fetch_add(1, Ordering::Relaxed);
        let ((from_one, to_one), (from_other, to_other)) = (one.split(), other.split());
        let carried = AtomicU64::new(0);
        let both = async {
            tokio::try_join!(self.carry(from_one, to_other, &carried), self.carry(from_other, to_one, &carried))
                .map(drop)
        };
        let ended = tokio::select! {
            ended = both => ended,
            () = silence(&carried, self.idle) => Err(ErrorKind::TimedOut.into()),
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "a joined connection has broken");
        }
        self.counts.open.fetch_sub(1, Ordering::Relaxed);
    }

    async fn carry(&self, mut from: ReadHalf<'_>, mut to: WriteHalf<'_>, carried: &AtomicU64) -> io::Result<()> {
        let mut buffer = vec![0; BUFFER];
        loop {
            let count = from.read(&mut buffer).await?;
            if count == 0 {
                return to.shutdown().await;
            }
            to.write_all(&buffer[..count]).await?;
            self.counts.bytes.fetch_add(count as u64, Ordering::Relaxed);
            carried.fetch_add(count as u64, Ordering::Relaxed);
        }
    }

    fn tick(&self) {
        self.table().expire(Instant::now());
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Counts { bytes, joined, refused, open } = &self.counts;
        let passed = Passed {
            bytes: read(bytes),
            joined: read(joined),
            refused: read(refused),
            open: open.load(Ordering::Relaxed),
        };
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        // A front that does not read now is told with the next tick.
        if *told != passed && self.front.channel().send(&passed, &[]).is_ok() {
            *told = passed;
        }
    }
}

/// Ends when a count has stayed what it was for so long.
async fn silence(carried: &AtomicU64, idle: Duration) {
    let mut before = None;
    loop {
        let now = carried.load(Ordering::Relaxed);
        if before.replace(now) == Some(now) {
            return;
        }
        tokio::time::sleep(idle).await;
    }
}

/// Whether the other end of a connection that waits has not closed it.
fn is_there(stream: &TcpStream) -> bool {
    let mut byte = [0];
    match rustix::net::recv(stream, &mut byte, rustix::net::RecvFlags::PEEK | rustix::net::RecvFlags::DONTWAIT) {
        Ok((0, _)) => false,
        Ok(_) => true,
        Err(error) => error == rustix::io::Errno::AGAIN,
    }
}

#[cfg(test)]
mod tests;

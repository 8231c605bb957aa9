//! How a sender that listens takes its connections (reverse direction): all at the same time, for one that is silent,
//! or far away, must not keep the others waiting.

use std::io::ErrorKind;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_sys::poll::{self, PollFd, PollFlags};

use super::connection::{ADMIT, Connection, GREETING_TIME, NONCE_BLOCKS_LEN, Nonce, nonce_blocks};
use crate::cancel::{Cancel, after_refusal, timed_out};
use crate::channel::DataChannel;
use crate::tcp::Listener;

/// How long the next connection of a peer that opens several may be behind the one before.
const LATER: Duration = Duration::from_millis(50);

/// Connections that are heard beyond those that are wanted; more wait in the kernel's queue.
const STRANGERS: usize = 64;

/// Whom [`gather`] waits for.
#[derive(Debug, Clone, Copy)]
pub struct Gathering<'a> {
    /// Where they come.
    pub listener: &'a Listener,
    /// What they must show.
    pub nonce: Option<&'a Nonce>,
    /// How many the peer has announced.
    pub wanted: usize,
    /// How long to wait for the first.
    pub timeout: Duration,
}

/// Takes connections that prove themselves, until there are as many as are wanted.
///
/// Of a peer that has announced more than it opens, or is late with some, it is enough that one stands: the others are
/// waited for as long as one follows soon after the other, and beyond that only those in the middle of a handshake.
/// Where connections stand already, only what has arrived is taken. Fails with `TimedOut` or `Cancelled`.
///
/// Danger: without a nonce, whoever connects first gets the data.
pub fn gather(gathering: &Gathering<'_>, connections: &mut Vec<Connection>, cancel: &Cancel) -> Result<(), Fault> {
    if connections.len() >= gathering.wanted {
        return Ok(());
    }
    let deadline = Instant::now() + gathering.timeout;
    let standing = connections.len();
    let mut round = Round { gathering, connections, guests: Vec::new(), refusal: None, patience: None };
    if standing > 0 {
        // Those who are there need a round trip at most.
        round.patience = round.connections.first().map(grace);
    }
    round.let_in()?;
    if standing > 0 && round.guests.is_empty() {
        return Ok(());
    }
    loop {
        cancel.check(ADMIT)?;
        round.hear();
        let now = Instant::now();
        round.expire(now);
        let Some(until) = round.until(now, deadline)? else { return Ok(()) };
        round.wait(until, cancel)?;
        round.let_in()?;
    }
}

/// One call's state.
struct Round<'a> {
    gathering: &'a Gathering<'a>,
    connections: &'a mut Vec<Connection>,
    guests: Vec<Guest>,
    /// Why the last one was turned away.
    refusal: Option<String>,
    /// Until when others are waited for; `None`: until there is one.
    patience: Option<Instant>,
}

impl Round<'_> {
    /// Whether others may come: after the time for them nobody can draw it out.
    fn is_open(&self) -> bool {
        let room = self.connections.len() + self.guests.len() < self.gathering.wanted + STRANGERS;
        room && self.patience.is_none_or(|patience| Instant::now() < patience)
    }

    /// Takes none that is not wanted any more: it may be the next transfer's, or, where nobody proves anything, the right one behind a stranger.
    fn let_in(&mut self) -> Result<(), Fault> {
        while self.is_open() && self.connections.len() < self.gathering.wanted {
            let Some(channel) = self.gathering.listener.try_accept()? else { break };
            self.hear_one(Guest::new(channel));
        }
        Ok(())
    }

    /// Goes on with every guest as far as it has come.
    fn hear(&mut self) {
        std::mem::take(&mut self.guests).into_iter().for_each(|guest| self.hear_one(guest));
    }

    fn hear_one(&mut self, mut guest: Guest) {
        match guest.prove(self.gathering.nonce) {
            Ok(false) => self.guests.push(guest),
            Ok(true) if self.connections.len() < self.gathering.wanted => {
                self.patience = Some(grace(&guest.connection));
                self.connections.push(guest.connection);
            }
            Ok(true) => tracing::debug!("a data connection more than was announced"),
            Err(fault) => self.turn_away(&fault),
        }
    }

    fn expire(&mut self, now: Instant) {
        for guest in self.guests.extract_if(.., |guest| guest.until <= now).collect::<Vec<_>>() {
            self.turn_away(&timed_out(ADMIT, GREETING_TIME).side(Side::Peer).subject(guest.connection.peer()));
        }
    }

    fn turn_away(&mut self, fault: &Fault) {
        tracing::warn!("data connection turned away: {fault}");
        self.refusal = Some(fault.to_string());
    }

    /// How long to go on waiting; `None`: no longer.
    fn until(&self, now: Instant, deadline: Instant) -> Result<Option<Instant>, Fault> {
        match self.patience {
            _ if self.connections.len() >= self.gathering.wanted => Ok(None),
            Some(patience) if now < patience => Ok(Some(patience)),
            // A handshake that is cut off would be a lost connection for its peer.
            Some(_) => Ok(self.guests.iter().filter(|guest| guest.is_in_handshake()).map(|guest| guest.until).max()),
            None if now < deadline => Ok(Some(deadline)),
            None => Err(after_refusal(timed_out(ADMIT, self.gathering.timeout), self.refusal.as_deref())),
        }
    }

    fn wait(&self, until: Instant, cancel: &Cancel) -> Result<(), Fault> {
        let pause = self.gathering.listener.pause();
        let door = (self.is_open() && pause.is_none()).then(|| (self.gathering.listener.as_fd(), PollFlags::IN));
        let fds: Vec<_> = self.guests.iter().map(Guest::poll_entry).chain(door).collect();
        let until = self.guests.iter().map(|guest| guest.until).fold(until, Instant::min);
        let left = until.saturating_duration_since(Instant::now());
        cancel.wait_for_any(&fds, Some(pause.map_or(left, |pause| pause.min(left))), ADMIT).map(drop)
    }
}

/// Until when the next one may follow.
fn grace(open: &Connection) -> Instant {
    Instant::now() + LATER.max(open.channel().stats().rtt * 2)
}

/// A connection that has yet to show that it belongs here.
struct Guest {
    connection: Connection,
    until: Instant,
    /// It has said something.
    spoke: bool,
    shown: [u8; NONCE_BLOCKS_LEN],
    len: usize,
}

impl Guest {
    fn new(channel: Box<dyn DataChannel>) -> Self {
        let until = Instant::now() + GREETING_TIME;
        Self { connection: Connection::new(channel), until, spoke: false, shown: [0; NONCE_BLOCKS_LEN], len: 0 }
    }

    fn is_in_handshake(&self) -> bool {
        self.spoke && !self.connection.channel.is_proven()
    }

    fn poll_entry(&self) -> (BorrowedFd<'_>, PollFlags) {
        let channel = &self.connection.channel;
        (channel.as_fd(), channel.poll_flags(PollFlags::IN))
    }

    /// Goes on as far as possible; whether it has shown all that is asked for.
    fn prove(&mut self, nonce: Option<&Nonce>) -> Result<bool, Fault> {
        const OP: &str = "protect data channel";
        if !self.connection.channel.is_proven() {
            self.spoke = self.spoke || has_arrived(self.connection.channel.as_ref());
        }
        match self.connection.channel.prove() {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(Fault::from_io(error, OP).side_if_unknown(Side::Peer)),
        }
        let Some(nonce) = nonce else { return Ok(true) };
        while self.len < NONCE_BLOCKS_LEN {
            match self.connection.channel.recv(&mut self.shown[self.len..]) {
                Ok(0) => return Err(self.connection.fault(FaultCode::ConnectionLost, ADMIT)),
                Ok(received) => self.len += received,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(Fault::from_io(error, ADMIT).side(Side::Network)),
            }
        }
        // Every byte is compared, so that time tells nothing about the first wrong one.
        let pairs = self.shown.iter().zip(nonce_blocks(nonce));
        if pairs.fold(0, |sum, (a, b)| sum | (a ^ b)) != 0 {
            return Err(self.connection.fault(FaultCode::DataPeerRejected, ADMIT));
        }
        self.connection.greeted = true;
        Ok(true)
    }
}

/// Whether bytes wait in the kernel; where that cannot be told, they do not.
fn has_arrived(channel: &dyn DataChannel) -> bool {
    let mut fds = [PollFd::from_borrowed_fd(channel.as_fd(), PollFlags::IN)];
    poll::wait(&mut fds, Some(Duration::ZERO)).is_ok_and(|ready| ready > 0)
}

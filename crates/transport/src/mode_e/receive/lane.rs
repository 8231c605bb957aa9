//! One connection of a receive: headers in, payload to the sink.

use std::io::{self, ErrorKind, IoSliceMut};
use std::mem;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use whimbrel_engine::{Fault, Side};
use whimbrel_sys::poll::PollFlags;

use whimbrel_proto::eblock::{ChannelId, EOD, HEADER_LEN, Header, ReceiveStep};

use super::super::{Connection, GREETING_TIME};
use super::Shared;
use crate::progress::Batch;
use crate::times::Activity;

/// Payloads with at least this much to come are received alone, straight to where they are
/// written from; smaller ones together with what follows them.
const DIRECT_MIN: u64 = 32 * 1024;
/// Most bytes read at once when blocks are small: bounds what may be left over for the next job.
const GATHER: usize = 64 * 1024;

/// What became of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// More may come.
    Open,
    /// EOD: the connection is free for the next transfer.
    Ended,
    /// EOD, and the sender closes.
    EndedForGood,
    /// Closed between blocks.
    Closed,
    /// Did not prove that it belongs here.
    Rejected,
}

pub(super) struct Lane {
    pub(super) connection: Connection,
    pub(super) fate: Fate,
    /// Whether a read may find something.
    pub(super) ready: bool,
    header: [u8; HEADER_LEN],
    header_len: usize,
    /// A header has come.
    spoke: bool,
    id: ChannelId,
    /// The block whose payload is under way: whether it is the connection's last, where the rest
    /// belongs in the sink (nowhere: it is dropped), and how long that is.
    is_last: bool,
    offset: Option<u64>,
    left: u64,
    /// When its handshake must be over.
    prove_until: Option<Instant>,
    since: Instant,
}

impl Lane {
    /// `patience`: how long its handshake may take.
    pub(super) fn new(connection: Connection, id: ChannelId, patience: Duration) -> Self {
        let since = Instant::now();
        let prove_until = (!connection.channel.is_proven()).then(|| since + patience);
        let has_bytes = !connection.unread.is_empty() || connection.channel.has_buffered();
        Self {
            connection,
            fate: Fate::Open,
            ready: has_bytes,
            header: [0; HEADER_LEN],
            header_len: 0,
            spoke: false,
            id,
            is_last: false,
            offset: None,
            left: 0,
            prove_until,
            since,
        }
    }

    /// When it has had the time to present itself that others must wait for its place at most.
    pub(super) fn greeted_by(&self) -> Instant {
        self.since + GREETING_TIME
    }

    /// Whether nothing has come on it.
    pub(super) fn is_untouched(&self) -> bool {
        self.fate == Fate::Open && !self.spoke && self.header_len == 0 && self.connection.unread.is_empty()
    }

    /// When it is to be turned away, if its handshake is not over by then.
    pub(super) fn prove_until(&self) -> Option<Instant> {
        self.prove_until
    }

    /// Tells of the end of its handshake.
    fn look_at_handshake(&mut self, shared: &Shared<'_>) {
        if self.prove_until.is_some() && self.connection.channel.is_proven() {
            self.prove_until = None;
            shared.lock().proven(self.id);
        }
    }

    pub(super) fn id(&self) -> ChannelId {
        self.id
    }

    pub(super) fn poll_entry(&self) -> (BorrowedFd<'_>, PollFlags) {
        let channel = &self.connection.channel;
        (channel.as_fd(), channel.poll_flags(PollFlags::IN))
    }

    /// One read and what follows from it.
    pub(super) fn step(
        &mut self,
        shared: &Shared<'_>,
        buffer: &mut [u8],
        batch: &mut Batch<'_>,
    ) -> Result<usize, Fault> {
        if !self.connection.unread.is_empty() {
            let unread = mem::take(&mut self.connection.unread);
            self.feed(&unread, shared, batch)?;
            return Ok(unread.len());
        }
        let received = self.receive(buffer);
        self.look_at_handshake(shared);
        let (received, asked) = match received {
            Ok(received) => received,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.ready = false;
                return Ok(0);
            }
            Err(error) if !self.connection.channel.is_proven() => {
                self.refuse(shared, &error.to_string());
                return Ok(0);
            }
            Err(error) => {
                self.closed(shared).map_err(|fault| fault.detail(error.to_string()))?;
                // It had not spoken; if nobody else comes it is what was wrong.
                shared.refused(&error.to_string());
                return Ok(0);
            }
        };
        if received == 0 {
            return self.closed(shared).map(|()| 0);
        }
        // A short read has emptied the socket.
        self.ready = received == asked || self.connection.channel.has_buffered();
        let direct = received.min(self.left.min(buffer.len() as u64) as usize);
        if self.is_direct() {
            let next: [u8; HEADER_LEN] = self.header;
            self.payload(&buffer[..direct], shared, batch)?;
            self.feed(&next[..received - direct], shared, batch)?;
        } else {
            self.feed(&buffer[..received], shared, batch)?;
        }
        Ok(received)
    }

    fn is_direct(&self) -> bool {
        self.left >= DIRECT_MIN
    }

    /// Receives payload and, behind its end, the next header; returns bytes got and asked for.
    fn receive(&mut self, buffer: &mut [u8]) -> io::Result<(usize, usize)> {
        let channel = &mut self.connection.channel;
        if self.left < DIRECT_MIN {
            let asked = buffer.len().min(GATHER);
            return Ok((channel.recv(&mut buffer[..asked])?, asked));
        }
        let space = buffer.len();
        let wanted = self.left.min(space as u64) as usize;
        // Behind an EOD block the next transfer begins.
        let header_follows = wanted as u64 == self.left && !self.is_last;
        if !header_follows {
            return Ok((channel.recv(&mut buffer[..wanted])?, wanted));
        }
        let mut pieces = [IoSliceMut::new(&mut buffer[..wanted]), IoSliceMut::new(&mut self.header)];
        let received = channel.recv_vectored(&mut pieces)?;
        Ok((received, wanted + HEADER_LEN))
    }

    /// Consumes received bytes; what lies behind an EOD is kept for the next transfer.
    fn feed(&mut self, mut bytes: &[u8], shared: &Shared<'_>, batch: &mut Batch<'_>) -> Result<(), Fault> {
        while !bytes.is_empty() {
            if self.fate != Fate::Open {
                self.connection.unread.extend_from_slice(bytes);
                return Ok(());
            }
            if self.left > 0 {
                let take = self.left.min(bytes.len() as u64) as usize;
                self.payload(&bytes[..take], shared, batch)?;
                bytes = &bytes[take..];
                continue;
            }
            let take = (HEADER_LEN - self.header_len).min(bytes.len());
            self.header[self.header_len..self.header_len + take].copy_from_slice(&bytes[..take]);
            self.header_len += take;
            bytes = &bytes[take..];
            if self.header_len == HEADER_LEN {
                self.header_len = 0;
                self.begin_block(shared)?;
            }
        }
        Ok(())
    }

    fn begin_block(&mut self, shared: &Shared<'_>) -> Result<(), Fault> {
        let header = Header::decode(&self.header);
        self.is_last = header.has(EOD);
        self.spoke = true;
        match shared.header(self.id, header)? {
            Some(step) => self.take(step),
            None => self.fate = Fate::Rejected,
        }
        Ok(())
    }

    fn take(&mut self, step: ReceiveStep) {
        match step {
            ReceiveStep::Header => {}
            ReceiveStep::Payload { offset, len } => {
                (self.offset, self.left) = (Some(offset), len);
            }
            ReceiveStep::Discard { len } => (self.offset, self.left) = (None, len),
            ReceiveStep::EndOfData { close: true } => self.fate = Fate::EndedForGood,
            ReceiveStep::EndOfData { close: false } => self.fate = Fate::Ended,
        }
    }

    fn payload(&mut self, data: &[u8], shared: &Shared<'_>, batch: &mut Batch<'_>) -> Result<(), Fault> {
        if let Some(at) = self.offset {
            let times = shared.crew.flow.progress.times();
            let written = times.timed(Activity::Storage, || shared.job.sink.write_at(at, data));
            written.map_err(|fault| fault.side_if_unknown(Side::Destination))?;
            let end = at + data.len() as u64;
            batch.add(at..end)?;
            shared.crew.add_moved(data.len());
            self.offset = Some(end);
        }
        self.left -= data.len() as u64;
        if self.left == 0 {
            let step = shared.block_end(self.id)?;
            self.take(step);
        }
        Ok(())
    }

    /// Whoever it was did not show who it is.
    pub(super) fn refuse(&mut self, shared: &Shared<'_>, why: &str) {
        tracing::debug!(peer = ?self.connection.channel.peer_addr(), "data connection turned away: {why}");
        shared.refused(why);
        self.fate = Fate::Rejected;
    }

    /// The connection is gone; before it spoke nobody misses it.
    fn closed(&mut self, shared: &Shared<'_>) -> Result<(), Fault> {
        self.fate = Fate::Closed;
        shared.lock().closed(self.id).map_err(|fault| {
            let peer = self.connection.channel.peer_addr();
            fault.subject(peer.map(|peer| peer.to_string()).unwrap_or_default())
        })
    }
}

//! One connection of a receive: headers in, payload to the sink.

use std::io::{self, ErrorKind, IoSliceMut};
use std::mem;
use std::os::fd::BorrowedFd;

use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_sys::poll::PollFlags;

use super::super::frame::{CLOSE, EOD, EOF, HEADER_LEN, Header};
use super::super::{Connection, NONCE_BLOCKS_LEN, nonce_blocks};
use super::tally::misbehaved;
use super::{ReceiveJob, Shared};
use crate::progress::Batch;

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
    /// Whether a header came in this transfer.
    pub(super) spoke: bool,
    header: [u8; HEADER_LEN],
    header_len: usize,
    /// The block whose payload is under way.
    descriptor: u8,
    offset: u64,
    left: u64,
    /// Nonce bytes still expected, from the end.
    nonce_left: usize,
}

impl Lane {
    pub(super) fn new(connection: Connection, job: &ReceiveJob<'_>) -> Self {
        let has_bytes = !connection.unread.is_empty() || connection.channel.has_buffered();
        let proof_due = job.admission.nonce.is_some() && !connection.greeted;
        Self {
            connection,
            fate: Fate::Open,
            ready: has_bytes,
            spoke: false,
            header: [0; HEADER_LEN],
            header_len: 0,
            descriptor: 0,
            offset: 0,
            left: 0,
            nonce_left: if proof_due { NONCE_BLOCKS_LEN } else { 0 },
        }
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
        let (received, asked) = match self.receive(buffer) {
            Ok(received) => received,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.ready = false;
                return Ok(0);
            }
            Err(error) => return self.broken(error, shared).map(|()| 0),
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
        let header_follows = wanted as u64 == self.left && self.descriptor & EOD == 0;
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
        if self.nonce_left > 0 {
            self.check_nonce(shared);
            return Ok(());
        }
        let header = Header::decode(&self.header);
        self.spoke = true;
        self.connection.greeted = true;
        self.descriptor = header.descriptor;
        if header.has(EOF) {
            // The offset is EODC and the count means nothing: no payload may follow.
            shared.eof(header.offset)?;
        } else if header.count > 0 {
            self.check_bounds(header, shared.job)?;
            shared.begin_block();
            (self.offset, self.left) = (header.offset, header.count);
            return Ok(());
        }
        self.end_block(shared)
    }

    fn check_nonce(&mut self, shared: &Shared<'_>) {
        let expected = shared.job.admission.nonce.map(|nonce| nonce_blocks(&nonce));
        let at = NONCE_BLOCKS_LEN - self.nonce_left;
        let differs = expected.is_none_or(|expected| {
            let expected = &expected[at..at + HEADER_LEN];
            // Every byte is compared, so that time tells nothing about the first wrong one.
            let pairs = expected.iter().zip(&self.header);
            pairs.fold(0, |sum, (a, b)| sum | (a ^ b)) != 0
        });
        if differs {
            self.fate = Fate::Rejected;
            return;
        }
        self.nonce_left -= HEADER_LEN;
        self.connection.greeted = self.nonce_left == 0;
    }

    fn check_bounds(&self, header: Header, job: &ReceiveJob<'_>) -> Result<(), Fault> {
        let end = header.offset.checked_add(header.count);
        // The sink's offsets must exist, too.
        let in_sink = end.and_then(|end| end.checked_add(job.origin));
        let inside = end.is_some_and(|end| header.offset >= job.bound.start && end <= job.bound.end);
        if inside && in_sink.is_some() {
            return Ok(());
        }
        let Header { count, offset, .. } = header;
        Err(misbehaved(format!("a block of {count} bytes at {offset}, outside {}-{}", job.bound.start, job.bound.end)))
    }

    fn payload(&mut self, data: &[u8], shared: &Shared<'_>, batch: &mut Batch<'_>) -> Result<(), Fault> {
        let at = self.offset + shared.job.origin;
        shared.job.sink.write_at(at, data).map_err(|fault| fault.side_if_unknown(Side::Destination))?;
        batch.add(at..at + data.len() as u64);
        shared.crew.add_moved(data.len());
        self.offset += data.len() as u64;
        self.left -= data.len() as u64;
        if self.left == 0 {
            self.end_block(shared)?;
        }
        Ok(())
    }

    fn end_block(&mut self, shared: &Shared<'_>) -> Result<(), Fault> {
        if self.descriptor & EOD == 0 {
            return Ok(());
        }
        self.fate = if self.descriptor & CLOSE != 0 { Fate::EndedForGood } else { Fate::Ended };
        shared.eod()
    }

    /// The peer has closed.
    fn closed(&mut self, shared: &Shared<'_>) -> Result<(), Fault> {
        if self.left > 0 || (self.header_len > 0 && self.spoke) {
            let detail = format!("closed inside a block, {} bytes missing", self.left);
            return Err(self.lost(shared, detail));
        }
        self.fate = Fate::Closed;
        Ok(())
    }

    /// The connection failed: harmless as long as nothing had come over it.
    fn broken(&mut self, error: io::Error, shared: &Shared<'_>) -> Result<(), Fault> {
        if self.spoke || self.left > 0 {
            return Err(self.lost(shared, error.to_string()));
        }
        self.fate = Fate::Closed;
        Ok(())
    }

    fn lost(&self, shared: &Shared<'_>, detail: String) -> Fault {
        let peer = self.connection.channel.peer_addr();
        Fault::new(FaultCode::ConnectionLost, shared.crew.op())
            .side(Side::Network)
            .subject(peer.map(|peer| peer.to_string()).unwrap_or_default())
            .detail(detail)
    }
}

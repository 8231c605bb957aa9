//! One connection of a send, block by block.

use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::BorrowedFd;
use std::sync::PoisonError;

use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_sys::poll::PollFlags;

use super::super::{Connection, NONCE_BLOCKS_LEN, Nonce, nonce_blocks};
use super::walk::{Taken, Walk};
use super::{Amount, Shared};
use crate::channel::{DataChannel, failed, last_words};
use crate::flow::StallWatch;
use crate::pool::{Buffer, Class};
use crate::times::{Activity, Stopwatch};
use whimbrel_proto::eblock::{HEADER_LEN, Header};

/// Below this, reading and one gathered send are cheaper than two sends around a `sendfile`.
const SENDFILE_MIN: usize = 64 * 1024;

/// A piece of the source, in its own offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) offset: u64,
    pub(super) len: usize,
}

#[derive(Debug, PartialEq, Eq)]
enum State {
    /// May try to send.
    Ready,
    /// Must wait until the channel takes more.
    Waiting,
    /// Must wait until another lane of this thread gives its buffer back.
    Starved,
    /// Has carried its EOD.
    Done,
}

pub(super) struct Lane<'c> {
    connection: &'c mut Connection,
    /// The connection's last header of this transfer.
    end: Header,
    nonce: Option<Nonce>,
    state: State,
    out: Option<Outgoing>,
    /// The last block met a full socket: wait before the next one takes a buffer.
    congested: bool,
}

impl<'c> Lane<'c> {
    pub(super) fn new(connection: &'c mut Connection, end: Header, nonce: Option<Nonce>) -> Self {
        Self { connection, end, nonce, state: State::Ready, out: None, congested: false }
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.state == State::Waiting
    }

    pub(super) fn is_starved(&self) -> bool {
        self.state == State::Starved
    }

    pub(super) fn is_ready(&self) -> bool {
        self.state == State::Ready
    }

    pub(super) fn is_done(&self) -> bool {
        self.state == State::Done
    }

    pub(super) fn holds_buffer(&self) -> bool {
        let body = self.out.as_ref().map(|out| &out.body);
        matches!(body, Some(Body::Buffer(..)))
    }

    /// The channel is ready. A receiver that has closed its side is an error: it will never ask for the rest, but as long
    /// as its system holds the connection no send fails, and it would be missed only as a stall.
    pub(super) fn wake(&mut self, ready: PollFlags, op: &str) -> Result<(), Fault> {
        // Before it is proven, what it sent before its end says why.
        let proven = self.connection.channel.is_proven();
        if proven && ready.contains(PollFlags::RDHUP) && !ready.contains(PollFlags::ERR) {
            let fault = Fault::new(FaultCode::ConnectionLost, op).side(Side::Peer).subject(self.peer());
            let fault = fault.detail("the receiver closed its side in the middle");
            return Err(last_words(self.connection.channel.as_mut(), op).unwrap_or(fault));
        }
        self.state = State::Ready;
        self.congested = false;
        Ok(())
    }

    pub(super) fn poll_entry(&self) -> (BorrowedFd<'_>, PollFlags) {
        let channel = &self.connection.channel;
        (channel.as_fd(), channel.poll_flags(PollFlags::OUT) | PollFlags::RDHUP)
    }

    /// Sends up to one block.
    ///
    /// `may_block`: no lane of this thread holds a buffer, so it may wait for one.
    pub(super) fn step(&mut self, shared: &Shared<'_>, may_block: bool, stall: &mut StallWatch) -> Result<(), Fault> {
        if self.out.is_none() {
            if self.congested {
                self.state = State::Waiting;
                return Ok(());
            }
            match self.prepare(shared, may_block, stall)? {
                Some(out) => self.out = Some(out),
                None => {
                    self.state = State::Starved;
                    return Ok(());
                }
            }
        }
        self.push(shared)
    }

    fn push(&mut self, shared: &Shared<'_>) -> Result<(), Fault> {
        let out = self.out.as_mut().expect("prepared by the caller");
        let before = out.left();
        let pushed = out.push(self.connection.channel.as_mut(), shared);
        shared.crew.add_moved(before - out.left());
        match pushed {
            Ok(()) => {}
            Err(Failure::Io(error)) if error.kind() == ErrorKind::WouldBlock => {
                self.state = State::Waiting;
                self.congested = true;
                return Ok(());
            }
            Err(Failure::Io(error)) => return Err(self.network_fault(error, shared.crew.op())),
            Err(Failure::Fault(fault)) => return Err(fault),
        }
        let out = self.out.take().expect("just pushed");
        self.connection.greeted = true;
        if let Some(block) = &out.block {
            shared.record(block);
        }
        self.state = if out.tail.is_some() { State::Done } else { State::Ready };
        Ok(())
    }

    fn network_fault(&mut self, error: io::Error, op: &str) -> Fault {
        failed(self.connection.channel.as_mut(), error, op)
    }

    fn peer(&self) -> String {
        self.connection.channel.peer_addr().map(|peer| peer.to_string()).unwrap_or_default()
    }

    /// Loads the next block, or the end; `None` when there is no buffer to load it into now.
    fn prepare(&self, shared: &Shared<'_>, may_block: bool, stall: &mut StallWatch) -> Result<Option<Outgoing>, Fault> {
        if let Some(walk) = &shared.walk {
            return self.prepare_walked(walk, shared, may_block, stall);
        }
        if self.use_sendfile(shared) {
            return self.prepare_file(shared, stall).map(Some);
        }
        let flow = &shared.crew.flow;
        if shared.lock().is_exhausted() {
            return Ok(Some(self.ending(Head::new(self.greeting()), None, Body::None)));
        }
        // Taken before the block: a block without a buffer would keep the others from it.
        let mut buffer = match flow.pool.try_acquire(Class::Send)? {
            Some(buffer) => buffer,
            None if may_block => flow.pool.acquire(Class::Send, flow.cancel)?,
            None => return Ok(None),
        };
        let head = Head::new(self.greeting());
        let Some((mut block, last)) = shared.next_block() else {
            return Ok(Some(self.ending(head, None, Body::None)));
        };
        block.len = self.read(shared, block, &mut buffer)?;
        if let Amount::ToEnd(_) = shared.job.amount {
            shared.lock().was_read(block.offset, block.len);
        }
        if shared.job.is_open_ended() && block.len == 0 {
            shared.lock().end();
            return Ok(Some(self.ending(head, None, Body::None)));
        }
        if let Some(in_order) = &shared.in_order {
            let mut in_order = in_order.lock().unwrap_or_else(PoisonError::into_inner);
            let times = flow.progress.times();
            let watch = Stopwatch::start(block.len);
            in_order.feed(block.offset, &buffer[..block.len])?;
            times.add_hashing(watch.elapsed());
        }
        shared.crew.pay(block.len, stall)?;
        let head = head.with(data_header(shared, block));
        let body = Body::Buffer(buffer, block.len);
        Ok(Some(self.out(head, block, body, last)))
    }

    fn prepare_walked(
        &self,
        walk: &Walk<'_>,
        shared: &Shared<'_>,
        may_block: bool,
        stall: &mut StallWatch,
    ) -> Result<Option<Outgoing>, Fault> {
        let head = Head::new(self.greeting());
        match walk.take(shared, may_block)? {
            Taken::Later => Ok(None),
            Taken::End => Ok(Some(self.ending(head, None, Body::None))),
            Taken::Block(block, buffer, last) => {
                shared.crew.pay(block.len, stall)?;
                let head = head.with(data_header(shared, block));
                let body = Body::Buffer(buffer, block.len);
                Ok(Some(self.out(head, block, body, last)))
            }
        }
    }

    fn prepare_file(&self, shared: &Shared<'_>, stall: &mut StallWatch) -> Result<Outgoing, Fault> {
        let head = Head::new(self.greeting());
        let Some((block, last)) = shared.next_block() else {
            return Ok(self.ending(head, None, Body::None));
        };
        shared.crew.pay(block.len, stall)?;
        let head = head.with(data_header(shared, block));
        let body = Body::File { at: block.offset, left: block.len };
        Ok(self.out(head, block, body, last))
    }

    fn out(&self, head: Head, block: Block, body: Body, last: bool) -> Outgoing {
        if last {
            return self.ending(head, Some(block), body);
        }
        Outgoing { head, body, tail: None, block: Some(block), sent: 0 }
    }

    fn ending(&self, head: Head, block: Option<Block>, body: Body) -> Outgoing {
        Outgoing { head, body, tail: Some(self.end.encode()), block, sent: 0 }
    }

    fn greeting(&self) -> Option<[u8; NONCE_BLOCKS_LEN]> {
        let nonce = self.nonce.filter(|_| !self.connection.greeted)?;
        Some(nonce_blocks(&nonce))
    }

    fn use_sendfile(&self, shared: &Shared<'_>) -> bool {
        self.connection.channel.can_sendfile()
            && shared.uses_sendfile()
            && shared.lock().next_len() >= SENDFILE_MIN as u64
    }

    fn read(&self, shared: &Shared<'_>, block: Block, buffer: &mut Buffer) -> Result<usize, Fault> {
        let want = block.len;
        let open_ended = shared.job.is_open_ended();
        let times = shared.crew.flow.progress.times();
        let read = times
            .timed(Activity::Storage, || shared.job.source.read_at(block.offset, &mut buffer[..want]))
            .map_err(|fault| fault.side_if_unknown(Side::Source))?;
        if read < want && !open_ended {
            return Err(source_changed(shared, block.offset + read as u64));
        }
        Ok(read)
    }
}

fn data_header(shared: &Shared<'_>, block: Block) -> Header {
    Header { descriptor: 0, count: block.len as u64, offset: block.offset - shared.job.origin }
}

pub(super) fn source_changed(shared: &Shared<'_>, end: u64) -> Fault {
    Fault::new(FaultCode::SourceChanged, shared.crew.op())
        .side(Side::Source)
        .detail(format!("it now ends at byte {end}"))
}

enum Failure {
    Io(io::Error),
    Fault(Fault),
}

/// Nonce blocks (on a new connection) and a block header.
struct Head {
    bytes: [u8; NONCE_BLOCKS_LEN + HEADER_LEN],
    len: usize,
}

impl Head {
    fn new(greeting: Option<[u8; NONCE_BLOCKS_LEN]>) -> Self {
        let mut bytes = [0; NONCE_BLOCKS_LEN + HEADER_LEN];
        let Some(greeting) = greeting else {
            return Self { bytes, len: 0 };
        };
        bytes[..NONCE_BLOCKS_LEN].copy_from_slice(&greeting);
        Self { bytes, len: NONCE_BLOCKS_LEN }
    }

    fn with(mut self, header: Header) -> Self {
        self.bytes[self.len..self.len + HEADER_LEN].copy_from_slice(&header.encode());
        self.len += HEADER_LEN;
        self
    }
}

enum Body {
    None,
    Buffer(Buffer, usize),
    File { at: u64, left: usize },
}

/// What a lane is sending: head, payload, and the end of the transfer if this is it.
struct Outgoing {
    head: Head,
    body: Body,
    tail: Option<[u8; HEADER_LEN]>,
    block: Option<Block>,
    /// Bytes of head, buffer and tail sent so far; those of a file are not in it.
    sent: usize,
}

impl Outgoing {
    fn left(&self) -> usize {
        let body = match &self.body {
            Body::Buffer(_, len) => *len,
            Body::File { left, .. } => *left,
            Body::None => 0,
        };
        self.head.len + body + self.tail.map_or(0, |tail| tail.len()) - self.sent
    }

    fn push(&mut self, channel: &mut dyn DataChannel, shared: &Shared<'_>) -> Result<(), Failure> {
        if matches!(self.body, Body::File { .. }) {
            return self.push_file(channel, shared);
        }
        while self.left() > 0 {
            let payload = match &self.body {
                Body::Buffer(buffer, len) => &buffer[..*len],
                _ => &[],
            };
            let tail = self.tail.as_ref().map_or(&[][..], |tail| &tail[..]);
            let parts = [&self.head.bytes[..self.head.len], payload, tail];
            let pieces = rest(parts, self.sent);
            let first = pieces.iter().take_while(|piece| piece.is_empty()).count();
            let pieces = &pieces[first..];
            let last = pieces.iter().rev().take_while(|p| p.is_empty()).count();
            let pieces = &pieces[..pieces.len() - last];
            self.sent += accepted(channel.send_vectored(pieces, false))?;
        }
        Ok(())
    }

    fn push_file(&mut self, channel: &mut dyn DataChannel, shared: &Shared<'_>) -> Result<(), Failure> {
        while self.sent < self.head.len {
            let head = [IoSlice::new(&self.head.bytes[self.sent..self.head.len])];
            self.sent += accepted(channel.send_vectored(&head, true))?;
        }
        if let Body::File { at, left } = &mut self.body {
            let file = shared.job.source.fd().expect("checked when it was chosen");
            while *left > 0 {
                // Where the file is not in memory, the kernel waits for storage here.
                let times = shared.crew.flow.progress.times();
                let sent =
                    times.timed(Activity::Storage, || channel.sendfile(file, *at, *left)).map_err(Failure::Io)?;
                if sent == 0 {
                    return Err(Failure::Fault(source_changed(shared, *at)));
                }
                *at += sent as u64;
                *left -= sent;
            }
        }
        while self.left() > 0 {
            let tail = self.tail.as_ref().expect("something is left");
            let tail = [IoSlice::new(&tail[self.sent - self.head.len..])];
            self.sent += accepted(channel.send_vectored(&tail, false))?;
        }
        Ok(())
    }
}

/// A channel that takes nothing and does not say why would be tried for ever.
fn accepted(sent: io::Result<usize>) -> Result<usize, Failure> {
    match sent {
        Ok(0) => Err(Failure::Io(ErrorKind::WriteZero.into())),
        sent => sent.map_err(Failure::Io),
    }
}

/// `parts` without their first `skip` bytes.
fn rest<'p>(parts: [&'p [u8]; 3], mut skip: usize) -> [IoSlice<'p>; 3] {
    parts.map(|part| {
        let from = skip.min(part.len());
        skip -= from;
        IoSlice::new(&part[from..])
    })
}

//! MODE S: one connection, payload only, end of file is its close (RFC 959 §3.4.1).

mod ascii;
#[cfg(test)]
mod tests;

use std::io::{ErrorKind, IoSlice};
use std::os::fd::AsFd;
use std::time::Instant;

use whimbrel_engine::{Fault, FaultCode, Side};
use whimbrel_sys::poll::{self, PollFd, PollFlags};

use self::ascii::{FromWire, ToWire};
use crate::block::{BlockSink, BlockSource};
use crate::channel::{DataChannel, failed};
use crate::flow::{Flow, StallWatch};
use crate::leaves::{Digests, InOrder};
use crate::pool::Class;

/// How lines travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Representation {
    /// Bytes as they are (TYPE I).
    Image,
    /// Lines end in CR LF on the wire and in LF on disk (TYPE A, RFC 959 §3.1.1.1).
    Ascii,
}

/// One file (or part) to send as a stream.
#[derive(Clone, Copy)]
pub struct StreamSend<'a> {
    /// Where the bytes come from.
    pub source: &'a dyn BlockSource,
    /// First byte to send.
    pub offset: u64,
    /// Bytes to send; `None`: to the source's end. A shorter source has changed.
    pub length: Option<u64>,
    /// How lines travel.
    pub representation: Representation,
    /// Whether the kernel may send from the source's descriptor; needs a `length`.
    pub sendfile: bool,
    /// Where the digests of what is sent go; source bytes, not converted ones.
    pub digests: Option<&'a Digests>,
    /// Surroundings.
    pub flow: Flow<'a>,
}

/// Where a stream goes.
#[derive(Clone, Copy)]
pub struct StreamReceive<'a> {
    /// Where the bytes go.
    pub sink: &'a dyn BlockSink,
    /// Offset of the first byte.
    pub offset: u64,
    /// Most bytes to accept; `None`: no limit. More is the peer's fault.
    pub limit: Option<u64>,
    /// How lines travel.
    pub representation: Representation,
    /// Surroundings.
    pub flow: Flow<'a>,
}

/// Most bytes one `sendfile` moves before the clock and the cancellation are looked at.
const SENDFILE_PIECE: u64 = 1 << 20;

/// Bytes of a text that are converted at once; they become twice as many at the most.
const ASCII_PART: usize = 32 << 10;

/// Sends and ends the sending side; returns the bytes read from the source.
///
/// The caller closes the channel afterwards. A stream has no other end mark: after a failure the
/// channel must be closed, and only the control connection can say that the data are incomplete.
pub fn send(job: &StreamSend<'_>, channel: &mut dyn DataChannel) -> Result<u64, Fault> {
    let mut line = Line::new(job.flow, channel, "send data");
    let kernel = job.sendfile
        && job.digests.is_none()
        && job.representation == Representation::Image
        && line.channel.can_sendfile()
        && job.length.is_some()
        && job.source.fd().is_some();
    let end = job.length.map(|length| job.offset.saturating_add(length));
    let reached = if kernel { line.send_file(job, end.unwrap_or(job.offset))? } else { line.send_read(job, end)? };
    if end.is_some_and(|end| reached < end) {
        return Err(Fault::new(FaultCode::SourceChanged, line.op)
            .side(Side::Source)
            .detail(format!("it now ends at byte {reached}")));
    }
    line.end()?;
    Ok(reached - job.offset)
}

/// Receives until the peer closes; returns the bytes written to the sink.
pub fn receive(job: &StreamReceive<'_>, channel: &mut dyn DataChannel) -> Result<u64, Fault> {
    let mut line = Line::new(job.flow, channel, "receive data");
    let mut convert = FromWire::default();
    let mut at = job.offset;
    loop {
        line.wait(PollFlags::IN)?;
        let mut buffer = job.flow.pool.acquire(Class::Receive, job.flow.cancel)?;
        let received = match line.channel.recv(&mut buffer) {
            Ok(received) => received,
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(error) => return Err(line.network(error)),
        };
        line.moved += received as u64;
        let ascii = job.representation == Representation::Ascii;
        if received == 0 {
            if ascii && let Some(last) = convert.finish() {
                at = line.write(job, at, &[last])?;
            }
            return Ok(at - job.offset);
        }
        let kept = if ascii {
            convert.convert(&mut buffer[..received], |byte| {
                at = line.write(job, at, &[byte])?;
                Ok(())
            })?
        } else {
            received
        };
        at = line.write(job, at, &buffer[..kept])?;
        drop(buffer);
        line.pay(received)?;
    }
}

/// The one connection of a stream transfer.
struct Line<'a, 'c> {
    flow: Flow<'a>,
    channel: &'c mut dyn DataChannel,
    op: &'static str,
    moved: u64,
    stall: StallWatch,
}

impl<'a, 'c> Line<'a, 'c> {
    fn new(flow: Flow<'a>, channel: &'c mut dyn DataChannel, op: &'static str) -> Self {
        flow.progress.uses(channel);
        Self { flow, channel, op, moved: 0, stall: StallWatch::new(flow.stall, Instant::now(), 0) }
    }

    fn send_file(&mut self, job: &StreamSend<'_>, end: u64) -> Result<u64, Fault> {
        let file = job.source.fd().expect("checked by the caller");
        let mut at = job.offset;
        while at < end {
            self.flow.cancel.check(self.op)?;
            let piece = self.piece(end - at, SENDFILE_PIECE);
            match self.channel.sendfile(file, at, piece) {
                Ok(0) => break,
                Ok(sent) => {
                    self.moved += sent as u64;
                    self.flow.progress.add_bytes(sent as u64);
                    at += sent as u64;
                    self.pay(sent)?;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait(PollFlags::OUT)?,
                Err(error) => return Err(self.network(error)),
            }
        }
        Ok(at)
    }

    fn send_read(&mut self, job: &StreamSend<'_>, end: Option<u64>) -> Result<u64, Fault> {
        let (mut convert, mut wire) = (ToWire::default(), Vec::new());
        let mut leaves = job.digests.map(InOrder::new);
        let mut at = job.offset;
        while end.is_none_or(|end| at < end) {
            self.flow.cancel.check(self.op)?;
            let mut buffer = self.flow.pool.acquire(Class::Send, self.flow.cancel)?;
            let left = end.map_or(u64::MAX, |end| end - at);
            let want = self.piece(left, buffer.len() as u64);
            let read = job.source.read_at(at, &mut buffer[..want]);
            let read = read.map_err(|fault| fault.side_if_unknown(Side::Source))?;
            if read == 0 {
                break;
            }
            if let Some(leaves) = &mut leaves {
                leaves.feed(at, &buffer[..read])?;
            }
            match job.representation {
                Representation::Image => self.send_all(&buffer[..read])?,
                Representation::Ascii => {
                    for part in buffer[..read].chunks(ASCII_PART) {
                        wire.clear();
                        convert.append(part, &mut wire);
                        self.send_all(&wire)?;
                    }
                }
            }
            drop(buffer);
            self.flow.progress.add_bytes(read as u64);
            at += read as u64;
            self.pay(read)?;
        }
        if let Some(leaves) = &mut leaves {
            leaves.finish()?;
        }
        Ok(at)
    }

    fn end(&mut self) -> Result<(), Fault> {
        loop {
            match self.channel.shutdown() {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait(PollFlags::OUT)?,
                Err(error) => return Err(self.network(error)),
            }
        }
    }

    /// Under a rate limit pieces are small enough to come several times a second.
    fn piece(&self, left: u64, most: u64) -> usize {
        let rate = self.flow.rate.and_then(|rate| rate.rate());
        let most = rate.map_or(most, |rate| most.min((rate / 4).max(4096)));
        left.min(most) as usize
    }

    fn send_all(&mut self, mut data: &[u8]) -> Result<(), Fault> {
        while !data.is_empty() {
            match self.channel.send_vectored(&[IoSlice::new(data)], false) {
                Ok(0) => return Err(self.network(ErrorKind::WriteZero.into())),
                Ok(sent) => {
                    self.moved += sent as u64;
                    data = &data[sent..];
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.wait(PollFlags::OUT)?,
                Err(error) => return Err(self.network(error)),
            }
        }
        Ok(())
    }

    fn write(&self, job: &StreamReceive<'_>, at: u64, data: &[u8]) -> Result<u64, Fault> {
        let end = at.saturating_add(data.len() as u64);
        let limit = job.limit.unwrap_or(u64::MAX);
        if end - job.offset > limit {
            return Err(Fault::new(FaultCode::PeerMisbehaved, self.op)
                .side(Side::Peer)
                .detail(format!("more than the {limit} bytes promised")));
        }
        let written = job.sink.write_at(at, data);
        written.map_err(|fault| fault.side_if_unknown(Side::Destination))?;
        if !data.is_empty() {
            self.flow.progress.add(at..end)?;
        }
        Ok(end)
    }

    fn pay(&mut self, bytes: usize) -> Result<(), Fault> {
        if let Some(rate) = self.flow.rate {
            let waited = rate.pay_and_wait(bytes as u64, self.flow.cancel, self.op)?;
            self.stall.excuse(waited);
        }
        Ok(())
    }

    fn wait(&mut self, interest: PollFlags) -> Result<(), Fault> {
        self.flow.cancel.check(self.op)?;
        if interest == PollFlags::IN && self.channel.has_buffered() {
            return Ok(());
        }
        loop {
            let now = Instant::now();
            self.stall.check(now, self.moved, self.op)?;
            let timeout = self.stall.remaining(now);
            let flags = self.channel.poll_flags(interest);
            let mut fds = [
                PollFd::from_borrowed_fd(self.channel.as_fd(), flags),
                PollFd::from_borrowed_fd(self.flow.cancel.as_fd(), PollFlags::IN),
            ];
            let ready = poll::wait(&mut fds, timeout);
            let ready = ready.map_err(|error| Fault::from_io(error, self.op))?;
            self.flow.cancel.check(self.op)?;
            if ready > 0 {
                return Ok(());
            }
        }
    }

    fn network(&mut self, error: std::io::Error) -> Fault {
        failed(self.channel, error, self.op)
    }
}

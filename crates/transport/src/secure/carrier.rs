//! What lies between a TLS object and the channel that carries its bytes.

use std::cell::RefCell;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::ops::Range;

use crate::channel::DataChannel;

/// Most bytes taken from the carrying channel at once.
const AHEAD: usize = 256 << 10;

/// Most bytes of the wire on which OpenSSL gives no plain one: the handshake with a chain of twenty certificates is shorter, and keys that
/// are changed over and over, or hellos in the middle, are taken in by OpenSSL without ever coming back to its caller.
const BARREN: usize = 512 << 10;

/// Buffers kept by each thread for its next channel.
#[derive(Default)]
struct Spare {
    /// Of length [`AHEAD`], so that it is cleared once and not for each use.
    incoming: Vec<u8>,
    /// Empty, with room.
    outgoing: Vec<u8>,
}

thread_local! {
    static SPARE: RefCell<Spare> = RefCell::default();
}

/// Gathers records into few system calls, and reads ahead unless bytes that are no TLS may follow.
pub(super) struct Carrier {
    pub(super) inner: Box<dyn DataChannel>,
    /// Takes exactly what TLS asks for.
    exact: bool,
    /// Idle channels hold no buffers.
    incoming: Vec<u8>,
    /// Where TLS has not read yet.
    unread: Range<usize>,
    outgoing: Vec<u8>,
    /// Bytes of `outgoing` that are sent.
    sent: usize,
    ended: bool,
    /// Bytes that OpenSSL has read since it last gave plain ones.
    barren: usize,
}

impl Carrier {
    pub(super) fn new(inner: Box<dyn DataChannel>, exact: bool) -> Self {
        let (incoming, outgoing) = (Vec::new(), Vec::new());
        Self { inner, exact, incoming, unread: 0..0, outgoing, sent: 0, ended: false, barren: 0 }
    }

    /// OpenSSL has given plain bytes.
    pub(super) fn bore_fruit(&mut self) {
        self.barren = 0;
    }

    /// Bytes of records that wait here, maybe of an unfinished one.
    pub(super) fn unread(&mut self) -> &mut [u8] {
        &mut self.incoming[self.unread.clone()]
    }

    /// Leaves behind so many of the bytes that wait.
    pub(super) fn take(&mut self, count: usize) {
        self.unread.start += count;
    }

    /// Bytes of records wait here, maybe of an unfinished one.
    pub(super) fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// The carrying channel has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Records wait for room in the carrying channel.
    pub(super) fn has_unsent(&self) -> bool {
        self.sent < self.outgoing.len()
    }

    /// Where records are put that [`Self::flush_all`] is to send.
    pub(super) fn outgoing(&mut self) -> &mut Vec<u8> {
        if self.outgoing.capacity() == 0 {
            self.outgoing = SPARE.with_borrow_mut(|spare| std::mem::take(&mut spare.outgoing));
        }
        &mut self.outgoing
    }

    /// Sends what waits; [`ErrorKind::WouldBlock`] if some of it still does.
    pub(super) fn flush_all(&mut self, more: bool) -> io::Result<()> {
        while self.has_unsent() {
            self.sent += self.inner.send_vectored(&[IoSlice::new(&self.outgoing[self.sent..])], more)?;
        }
        self.sent = 0;
        self.put_outgoing_back();
        Ok(())
    }

    /// Receives behind the bytes that wait, which must be fewer than a record's; false at the end.
    pub(super) fn receive(&mut self) -> io::Result<bool> {
        if self.incoming.len() < AHEAD {
            let mut buffer = SPARE.with_borrow_mut(|spare| std::mem::take(&mut spare.incoming));
            buffer.resize(AHEAD, 0);
            buffer[..self.unread.len()].copy_from_slice(&self.incoming[self.unread.clone()]);
            self.incoming = buffer;
        } else {
            self.incoming.copy_within(self.unread.clone(), 0);
        }
        self.unread = 0..self.unread.len();
        let received = self.inner.recv(&mut self.incoming[self.unread.end..]);
        self.unread.end += *received.as_ref().unwrap_or(&0);
        let waits = matches!(&received, Err(error) if error.kind() == ErrorKind::WouldBlock);
        if waits || self.unread.is_empty() {
            self.put_incoming_back();
        }
        self.ended |= matches!(received, Ok(0));
        Ok(received? > 0)
    }

    /// What waits, less than a record's, keeps no more room than it needs: a peer that says no more could hold the rest for long.
    fn put_incoming_back(&mut self) {
        let rest = self.incoming[self.unread.clone()].to_vec();
        self.unread = 0..rest.len();
        let buffer = std::mem::replace(&mut self.incoming, rest);
        if buffer.len() == AHEAD {
            SPARE.with_borrow_mut(|spare| spare.incoming = buffer);
        }
    }

    fn put_outgoing_back(&mut self) {
        let mut buffer = std::mem::take(&mut self.outgoing);
        if buffer.capacity() > 0 {
            buffer.clear();
            SPARE.with_borrow_mut(|spare| spare.outgoing = buffer);
        }
    }
}

impl Carrier {
    fn recv_exact(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let received = self.inner.recv(buffer)?;
        self.ended |= received == 0;
        Ok(received)
    }

    fn read_ahead(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.has_unread() {
            self.receive()?;
        }
        let unread = self.unread();
        let count = buffer.len().min(unread.len());
        buffer[..count].copy_from_slice(&unread[..count]);
        self.take(count);
        Ok(count)
    }
}

impl Read for Carrier {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.barren > BARREN {
            return Err(io::Error::other("TLS messages without end and without data"));
        }
        let count = if self.exact { self.recv_exact(buffer)? } else { self.read_ahead(buffer)? };
        self.barren += count;
        Ok(count)
    }
}

impl Write for Carrier {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.outgoing().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        // What cannot go at once is lost with the channel.
        match self.flush_all(false) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => tracing::debug!(%error, "last records not sent"),
            _ => {}
        }
        self.put_outgoing_back();
        self.put_incoming_back();
    }
}

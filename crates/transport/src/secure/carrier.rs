//! What lies between a TLS object and the channel that carries its bytes.

use std::cell::RefCell;
use std::io::{self, ErrorKind, IoSlice, Read, Write};

use crate::channel::DataChannel;

/// Most bytes taken from the carrying channel at once.
const AHEAD: usize = 128 << 10;

/// Buffers kept by each thread for its next channel: one for each direction.
const SPARE: usize = 2;

thread_local! {
    static BUFFERS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer of this thread, empty. Idle channels hold none.
fn lend() -> Vec<u8> {
    BUFFERS.with_borrow_mut(Vec::pop).unwrap_or_default()
}

/// Takes a buffer back.
fn restore(buffer: &mut Vec<u8>) {
    let mut buffer = std::mem::take(buffer);
    if buffer.capacity() > 0 {
        buffer.clear();
        BUFFERS.with_borrow_mut(|spare| {
            if spare.len() < SPARE {
                spare.push(buffer);
            }
        });
    }
}

/// Gathers records into few system calls, and reads ahead unless bytes that are no TLS may follow.
pub(super) struct Carrier {
    pub(super) inner: Box<dyn DataChannel>,
    /// Takes exactly what TLS asks for.
    exact: bool,
    incoming: Vec<u8>,
    /// Bytes of `incoming` that TLS has read.
    taken: usize,
    outgoing: Vec<u8>,
    /// Bytes of `outgoing` that are sent.
    sent: usize,
    ended: bool,
}

impl Carrier {
    pub(super) fn new(inner: Box<dyn DataChannel>, exact: bool) -> Self {
        Self { inner, exact, incoming: Vec::new(), taken: 0, outgoing: Vec::new(), sent: 0, ended: false }
    }

    /// Bytes of records wait here, maybe of an unfinished one.
    pub(super) fn has_unread(&self) -> bool {
        self.taken < self.incoming.len()
    }

    /// The carrying channel has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Records wait for room in the carrying channel.
    pub(super) fn has_unsent(&self) -> bool {
        self.sent < self.outgoing.len()
    }

    /// Sends what waits; [`ErrorKind::WouldBlock`] if some of it still does.
    pub(super) fn flush_all(&mut self, more: bool) -> io::Result<()> {
        while self.has_unsent() {
            self.sent += self.inner.send_vectored(&[IoSlice::new(&self.outgoing[self.sent..])], more)?;
        }
        self.sent = 0;
        restore(&mut self.outgoing);
        Ok(())
    }

    fn refill(&mut self) -> io::Result<()> {
        if self.incoming.capacity() == 0 {
            self.incoming = lend();
        }
        self.taken = 0;
        self.incoming.resize(AHEAD, 0);
        let received = self.inner.recv(&mut self.incoming);
        self.incoming.truncate(*received.as_ref().unwrap_or(&0));
        if self.incoming.is_empty() {
            restore(&mut self.incoming);
        }
        self.ended |= received? == 0;
        Ok(())
    }
}

impl Read for Carrier {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.exact {
            let received = self.inner.recv(buffer)?;
            self.ended |= received == 0;
            return Ok(received);
        }
        if !self.has_unread() {
            self.refill()?;
        }
        let count = buffer.len().min(self.incoming.len() - self.taken);
        buffer[..count].copy_from_slice(&self.incoming[self.taken..][..count]);
        self.taken += count;
        Ok(count)
    }
}

impl Write for Carrier {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.outgoing.capacity() == 0 {
            self.outgoing = lend();
        }
        self.outgoing.extend_from_slice(bytes);
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
        restore(&mut self.outgoing);
        restore(&mut self.incoming);
    }
}

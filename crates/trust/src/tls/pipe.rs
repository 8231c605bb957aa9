//! The two queues between a TLS object and whoever moves its bytes.

use std::io::{self, Read, Write};

/// Bytes from the wire and for the wire; reading what has not come yet would block.
#[derive(Debug, Default)]
pub(super) struct Pipe {
    incoming: Vec<u8>,
    /// Bytes of `incoming` that were read.
    taken: usize,
    outgoing: Vec<u8>,
    ended: bool,
}

impl Pipe {
    /// Bytes that came from the wire.
    pub(super) fn feed(&mut self, bytes: &[u8]) {
        if self.taken == self.incoming.len() {
            self.incoming.clear();
            self.taken = 0;
        }
        self.incoming.extend_from_slice(bytes);
    }

    /// Nothing more will come.
    pub(super) fn end(&mut self) {
        self.ended = true;
    }

    /// Bytes that came and were not read yet.
    pub(super) fn unread(&self) -> &[u8] {
        &self.incoming[self.taken..]
    }

    /// Bytes for the wire, taken out.
    pub(super) fn take_outgoing(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.outgoing)
    }

    /// Bytes for the wire that wait.
    pub(super) fn outgoing(&self) -> usize {
        self.outgoing.len()
    }
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = buffer.len().min(self.unread().len());
        if count == 0 && !self.ended && !buffer.is_empty() {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        buffer[..count].copy_from_slice(&self.incoming[self.taken..][..count]);
        self.taken += count;
        Ok(count)
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.outgoing.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

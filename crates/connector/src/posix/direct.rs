//! Past the page cache: large files are written, and read, with `O_DIRECT` where the administrator wants that.
//!
//! What comes from a network has neither the size nor the place that direct writing asks for. So it is gathered in pieces
//! ([`gather`]), which go to storage as soon as they are complete, several at once ([`behind`]). What is no whole block (heads, tails, what nobody completed)
//! and what the file system refuses goes through the ordinary descriptor.
//!
//! **Why both ways agree about a page**: they never work on one at the same time, because all writing of a piece is done
//! under its lock, and pieces are whole pages. One after the other, the kernel keeps the order: before a direct write it
//! stores and forgets the range's pages; a cached write of a part of a page that is not there reads the page first, and with
//! it what was written directly. A direct write is over when the call returns, with the file's size and extents; what it
//! leaves in the device's own cache, the next `fdatasync` of whichever descriptor of the file makes durable, because that
//! flushes the device.

mod aligned;
mod behind;
mod gather;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::fstatfs;
use rustix::io::Errno;

use super::handles::Handle;
use super::magic;
use super::read::read_fully;
use super::token::Token;
use super::write::write_fully;
use crate::meta::Kind;
use crate::session::WriteSession;
pub(super) use aligned::Aligned;
use behind::Behind;
pub(super) use gather::Gathering;
use gather::{Buffers, forget};

/// How large files pass the page cache by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirectOptions {
    /// Files of at least this many bytes, where their length is known before they come; 0: all. Default: 64 MiB.
    pub from: u64,
    /// Bytes that are gathered and written as one; a power of two of at least a page. Default: 1 MiB.
    pub piece: usize,
    /// Most pieces that are gathered at once, in all files; what finds no room goes through the page cache. Default: 64.
    pub pieces: usize,
}

impl Default for DirectOptions {
    fn default() -> Self {
        Self { from: 64 << 20, piece: 1 << 20, pieces: 64 }
    }
}

/// What the files of one storage have in common.
pub(super) struct Direct {
    from: u64,
    piece: usize,
    buffers: Arc<Buffers>,
    behind: Arc<Behind>,
    log: Arc<Once>,
}

impl Direct {
    pub fn new(options: DirectOptions) -> Self {
        let piece = options.piece.max(4096).next_power_of_two();
        let buffers = Arc::new(Buffers::new(piece, options.pieces));
        Self { from: options.from, piece, buffers, behind: Arc::default(), log: Arc::default() }
    }

    /// For reading a file of `size` bytes; `None` where it is small, or where there is no way past the page cache.
    pub fn reader(&self, file: &OwnedFd, size: u64) -> Option<Aligned> {
        if size < self.from { None } else { self.open(file, false) }
    }

    /// Has the file of a session written, and read back, past the page cache, if it is large enough, and new: what is
    /// changed in place is other people's, too.
    pub fn apply(&self, session: &WriteSession, token: &Token, handle: &Handle) {
        let size = session.size.unwrap_or(0);
        if size >= self.from && token.manner.is_hidden() && handle.kind == Kind::File {
            handle.direct.get_or_init(|| {
                let file = self.open(&handle.file, true)?;
                Some(Gathering::new(file, size, self.buffers.clone(), self.behind.clone()))
            });
        }
    }

    fn open(&self, file: &OwnedFd, writable: bool) -> Option<Aligned> {
        let kind = fstatfs(file).map(|stat| magic::kind(&stat));
        // They take the flag (since Linux 6.6), and have nothing else than memory.
        let opened = match kind {
            Ok(kind) if magic::is_memory_only(kind) => Err(Errno::OPNOTSUPP),
            _ => Aligned::open(file, writable, self.log.clone()),
        };
        let opened = opened.and_then(|opened| if opened.fits(self.piece) { Ok(opened) } else { Err(Errno::INVAL) });
        opened.inspect_err(|&errno| self.log.refused(file, errno)).ok()
    }
}

/// Says once that direct I/O was asked for in vain.
#[derive(Default)]
pub(super) struct Once(AtomicBool);

impl Once {
    fn refused(&self, file: &OwnedFd, errno: Errno) {
        if !self.0.swap(true, Ordering::Relaxed) {
            let kind = fstatfs(file).map_or_else(|_| "unknown".to_owned(), |stat| magic::name(magic::kind(&stat)));
            tracing::warn!(file_system = kind, why = %errno, "no direct I/O here: large files go through the page cache");
        }
    }

    #[cfg(test)]
    fn is_said(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl Handle {
    fn gathering(&self) -> Option<&Gathering> {
        self.direct.get().and_then(Option::as_ref)
    }

    /// Writes all of `data`, or keeps what is to be written later, at the latest by [`Handle::settle`]; `offset` and its length make no offset that there is not.
    pub fn write(self: &Arc<Self>, offset: u64, data: &[u8]) -> Result<(), Errno> {
        match self.gathering() {
            Some(gathering) => gathering.write(self, offset, data),
            None => write_fully(&self.file, offset, data),
        }
    }

    /// Whether bytes of `range` are kept.
    pub fn keeps(&self, range: &Range<u64>) -> bool {
        self.gathering().is_some_and(|gathering| gathering.keeps(range))
    }

    /// Gives what is kept of `range` to the file system.
    pub fn settle(&self, range: &Range<u64>) -> Result<(), Errno> {
        self.gathering().map_or(Ok(()), |gathering| gathering.settle(&self.file, range))
    }

    /// Reads what the file system has; fewer bytes than asked only at the end.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
        read(self.gathering().map(Gathering::file), &self.file, offset, buffer, u64::MAX)
    }

    /// Whether reads go past the page cache.
    pub fn is_past_cache(&self) -> bool {
        self.gathering().is_some_and(|gathering| !gathering.file().is_refused())
    }

    /// Syncs the file; what went through the page cache beside direct writes then need not stay there.
    pub fn sync_and_forget(&self, sync: impl FnOnce(&OwnedFd) -> Result<(), Errno>) -> Result<(), Errno> {
        // Before the sync, which may not cover what comes during it.
        let edges = self.gathering().map(Gathering::take_edges);
        sync(&self.file)?;
        if let Some(edges) = edges {
            forget(&self.file, &edges);
        }
        Ok(())
    }
}

/// Reads past the page cache what can be, the rest through it.
pub(super) fn read(
    direct: Option<&Aligned>,
    file: &OwnedFd,
    offset: u64,
    buffer: &mut [u8],
    known_end: u64,
) -> Result<usize, Errno> {
    use std::os::fd::AsFd;
    let done = direct.map_or(Ok(0), |direct| direct.read(offset, buffer))?;
    let at = offset + done as u64;
    if done == buffer.len() || (done > 0 && at == known_end) {
        return Ok(done);
    }
    Ok(done + read_fully(file.as_fd(), at, &mut buffer[done..], known_end)?)
}

//! What a transfer reads from and writes to, as the network side sees it.

use std::os::fd::BorrowedFd;

use whimbrel_engine::Fault;

/// Bytes that lie together: to be sent, or zeros to be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Whether they are sent.
    pub is_sent: bool,
    /// Where it ends, behind the byte that was asked about.
    pub end: u64,
}

/// Bytes to send, readable at any offset by many threads at once.
pub trait BlockSource: Sync {
    /// Reads at `offset` into `buffer`; fewer bytes than asked only at the end, 0 at and beyond it.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Fault>;

    /// What byte `at` belongs to; zeros that are left out still are in the digests.
    ///
    /// Asked only where digests are made: without them nobody could tell a gap from a loss.
    fn run_at(&self, at: u64) -> Result<Run, Fault> {
        let _ = at;
        Ok(Run { is_sent: true, end: u64::MAX })
    }

    /// Whether anything may be left out.
    fn has_gaps(&self) -> bool {
        false
    }

    /// Whether reads come from storage itself and nothing is read ahead: then few long ones are better than many short ones.
    fn is_past_cache(&self) -> bool {
        false
    }

    /// A regular file the kernel may send from directly, when nobody needs to see the bytes.
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Where received bytes go, writable at any offset by many threads at once.
pub trait BlockSink: Sync {
    /// Writes all of `data` at `offset`.
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), Fault>;
}

/// Bytes in memory: listings and tests.
impl BlockSource for [u8] {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Fault> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX).min(self.len());
        let len = buffer.len().min(self.len() - start);
        buffer[..len].copy_from_slice(&self[start..start + len]);
        Ok(len)
    }
}

/// See the slice implementation.
impl BlockSource for Vec<u8> {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Fault> {
        self.as_slice().read_at(offset, buffer)
    }
}

//! A second descriptor of a file, past the page cache.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, openat, statx};
use rustix::io::{Errno, pread, pwrite};
use whimbrel_sys::resident::page_size;

use super::Once;
use crate::posix::resolve::retry;

/// What file systems ask for that do not say (open(2): 512 or the block size of the file system).
const USUAL: u64 = 4096;

/// Moves whole blocks only, between storage and memory that is aligned as the blocks are.
pub(in crate::posix) struct Aligned {
    file: OwnedFd,
    /// Of offsets, lengths and memory: at least a page, so that no page is written in both ways in parts.
    align: u64,
    /// Set when the file system would not, after all.
    refused: AtomicBool,
    log: Arc<Once>,
}

impl Aligned {
    /// Opens what is open once more; by descriptor, so that it is the same file whatever bears its name by now.
    pub fn open(file: &OwnedFd, writable: bool, log: Arc<Once>) -> Result<Self, Errno> {
        let access = if writable { OFlags::RDWR } else { OFlags::RDONLY };
        let flags = access | OFlags::DIRECT | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let known_as = format!("/proc/self/fd/{}", file.as_raw_fd());
        let file = retry(|| openat(CWD, known_as.as_str(), flags, Mode::empty()))?;
        let align = alignment(&file)?;
        Ok(Self { file, align, refused: AtomicBool::new(false), log })
    }

    /// Whether pieces of this length can be moved.
    pub fn fits(&self, piece: usize) -> bool {
        (piece as u64).is_multiple_of(self.align)
    }

    pub fn align(&self) -> usize {
        usize::try_from(self.align).expect("checked to divide the length of a piece of memory")
    }

    pub fn is_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed)
    }

    /// Writes from the beginning of `data` what can be written so; returns how much that is. Over when it returns.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<usize, Errno> {
        let whole = self.whole(offset, data);
        self.step_through(whole, |done| pwrite(&self.file, &data[done..whole], offset + done as u64))
    }

    /// Reads into the beginning of `buffer` what can be read so; returns how much that is. At the end of the file that
    /// need not be whole blocks.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Errno> {
        let whole = self.whole(offset, buffer);
        self.step_through(whole, |done| pread(&self.file, &mut buffer[done..whole], offset + done as u64))
    }

    /// Calls `step`, which moves what it can behind so many bytes, until `whole` are done; returns how many are.
    fn step_through(&self, whole: usize, mut step: impl FnMut(usize) -> Result<usize, Errno>) -> Result<usize, Errno> {
        let mut done = 0;
        // Cut short inside of a block: the rest is for the other way.
        while done < whole && self.is_aligned(done) {
            match retry(|| step(done)) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(errno) => return self.refuse(errno, done),
            }
        }
        Ok(done)
    }

    /// How many bytes from the beginning of `memory` are whole blocks at this offset.
    fn whole(&self, offset: u64, memory: &[u8]) -> usize {
        let aligned = offset.is_multiple_of(self.align) && self.is_aligned(memory.as_ptr().addr());
        if !aligned || self.is_refused() {
            return 0;
        }
        memory.len() - memory.len() % self.align()
    }

    fn is_aligned(&self, count: usize) -> bool {
        (count as u64).is_multiple_of(self.align)
    }

    /// Not a fault of the data: the ordinary way is tried, from now on at once.
    fn refuse(&self, errno: Errno, done: usize) -> Result<usize, Errno> {
        if !matches!(errno, Errno::INVAL | Errno::OPNOTSUPP | Errno::NOSYS) {
            return Err(errno);
        }
        self.refused.store(true, Ordering::Relaxed);
        self.log.refused(&self.file, errno);
        Ok(done)
    }

    #[cfg(test)]
    pub fn refuse_from_now_on(&self) {
        assert_eq!(self.refuse(Errno::INVAL, 7), Ok(7));
    }
}

/// What the kernel says (Linux 6.1), else what is usual; `OPNOTSUPP` where it says that there is none for this file.
fn alignment(file: &OwnedFd) -> Result<u64, Errno> {
    let page = page_size();
    let stat = statx(file.as_fd(), c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)?;
    if stat.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
        return Ok(page.max(USUAL));
    }
    let told = stat.stx_dio_mem_align.max(stat.stx_dio_offset_align);
    if stat.stx_dio_mem_align == 0 || stat.stx_dio_offset_align == 0 || !told.is_power_of_two() {
        return Err(Errno::OPNOTSUPP);
    }
    Ok(page.max(u64::from(told)))
}

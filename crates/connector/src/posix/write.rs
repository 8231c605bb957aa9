//! One writer's hold on a session.

use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLockReadGuard};
use std::time::{Duration, Instant};

use rustix::fs::{Advice, FallocateFlags, fadvise, fallocate, fstatfs, fstatvfs, ftruncate};
use rustix::io::{Errno, pwrite, write};
use rustix::process::geteuid;
use whimbrel_engine::{Fault, FaultCode, RangeSet};
use whimbrel_sys::resident::{page_size, resident_pages};

use super::error::OrFault;
use super::handles::Handle;
use super::inorder::InOrder;
use super::journal;
use super::lustre::Lustre;
use super::magic;
use super::meta::statx_fd;
use super::read::extent_at;
use super::resolve::{look, retry};
use super::session::replaced;
use super::token::Identity;
use super::written::Written;
use crate::claim::Claim;
use crate::meta::Kind;
use crate::path::StoragePath;
use crate::rules::end_of;
use crate::session::{Receipt, WriteSession};
use crate::{ReadsFrom, WriteAt};

/// Most bytes that the page cache keeps or forgets as one (`PREFERRED_MAX_PAGECACHE_ORDER`: a huge page); aligned to its size.
const FOLIO: u64 = 2 << 20;

/// How often pages are asked to go before they count as kept.
const DROP_ATTEMPTS: u32 = 4;

/// How often a writer looks whether the file still has its hidden name.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Writes through a descriptor that other writers of the session may share.
pub(super) struct Writer {
    handle: Arc<Handle>,
    path: StoragePath,
    /// Who can tell the stripes of the file of that name.
    lustre: Option<(Arc<Lustre>, StoragePath)>,
    in_order: InOrder,
    /// The file system's type; `None` in it: unknown.
    file_system: OnceLock<Option<u32>>,
    ranges: Mutex<Written>,
    seen: Seen,
    hidden: Option<Hidden>,
    end: Claim,
}

/// The name that the bytes of a session have until they are committed.
pub(super) struct Hidden {
    pub name: Vec<u8>,
    /// Whether nobody may go on with it in chunks: those who do have a journal, and take the file over.
    pub alone: bool,
}

/// When a hidden name was last seen to be the session's; `None`: not since it was joined.
type Seen = Mutex<Option<Instant>>;

impl Writer {
    pub fn new(handle: Arc<Handle>, path: StoragePath, hidden: Option<Hidden>) -> Self {
        Self {
            hidden,
            seen: Seen::default(),
            in_order: InOrder::new(handle.kind == Kind::Pipe),
            handle,
            path,
            lustre: None,
            file_system: OnceLock::new(),
            end: Claim::default(),
            ranges: Mutex::default(),
        }
    }

    /// The same for the file of a session that may be on Lustre.
    pub fn on_lustre(mut self, session: &WriteSession, lustre: Option<Arc<Lustre>>) -> Self {
        self.lustre = lustre.map(|lustre| (lustre, session.staging.clone()));
        self
    }

    /// Keeps the file from being committed while its content is changed; refuses when it was.
    ///
    /// Here a commit waits for writers. Those of other processes have no such word: they look, now and then, whether the
    /// file still has its hidden name, so that one that wakes up late cannot damage what has the final name.
    fn writing(&self) -> Result<RwLockReadGuard<'_, bool>, Fault> {
        let committed = self.handle.committed.read().unwrap_or_else(PoisonError::into_inner);
        let Some(hidden) = &self.hidden else { return Ok(committed) };
        if *committed {
            return Err(replaced(&self.path));
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.is_none_or(|seen| seen.elapsed() >= LOOK_EVERY) {
            if !self.is_ours(hidden).or_fault("write", &self.path)? {
                return Err(replaced(&self.path));
            }
            *seen = Some(Instant::now());
        }
        Ok(committed)
    }

    /// The same for bytes that were kept for a while: looks, however short ago it did.
    fn writing_late(&self) -> Result<RwLockReadGuard<'_, bool>, Fault> {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.writing()
    }

    fn is_ours(&self, hidden: &Hidden) -> Result<bool, Errno> {
        let dir = &self.handle.dir;
        let found = look(dir, &hidden.name)?.filter(|stat| Identity::of(stat) == self.handle.identity);
        let Some(stat) = found else { return Ok(false) };
        Ok(!(hidden.alone && journal::exists(dir, &self.path, &stat)?))
    }

    fn ranges(&self) -> MutexGuard<'_, Written> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file_system(&self) -> Option<u32> {
        let ask = || fstatfs(&self.handle.file).ok().map(|stat| magic::kind(&stat));
        *self.file_system.get_or_init(ask)
    }

    /// Whether the file system has no storage but memory.
    fn in_memory(&self) -> bool {
        self.file_system().is_some_and(magic::is_memory_only)
    }

    /// Asks the kernel to forget the pages of a range; whether it did.
    fn forget(&self, range: &Range<u64>) -> Result<bool, Fault> {
        // A page is forgotten only with all others of its folio.
        let start = range.start / FOLIO * FOLIO;
        // Beyond the largest file: to its end.
        let len = range.end.checked_next_multiple_of(FOLIO).map_or(0, |end| end - start);
        let file = &self.handle.file;
        match fadvise(file, start, NonZeroU64::new(len), Advice::DontNeed) {
            Err(Errno::INVAL | Errno::NOSYS | Errno::SPIPE) => return Ok(false),
            other => other.or_fault("drop cached pages", &self.path)?,
        }
        // Advice may be ignored (pages in use, locked, or dirtied again): asked, not believed.
        Ok(resident_pages(file.as_fd(), range.clone()).is_ok_and(|pages| pages == 0))
    }

    fn is_hole(&self, range: &Range<u64>) -> Result<bool, Errno> {
        if self.handle.kind != Kind::File {
            return Ok(false);
        }
        let extent = extent_at(self.handle.file.as_fd(), range.start)?;
        Ok(!extent.is_data && extent.end >= range.end)
    }

    /// Of a page that is data in part the kernel only clears bytes; the last page of a file may be cut by its end.
    fn is_whole_pages(&self, range: &Range<u64>) -> bool {
        let page = page_size();
        let at_end = || statx_fd(&self.handle.file).is_ok_and(|stat| range.end >= stat.stx_size);
        range.start.is_multiple_of(page) && (range.end.is_multiple_of(page) || at_end())
    }

    fn put_in_order(&self, offset: u64, data: &[u8]) -> Result<(), Fault> {
        let mut turn = self.in_order.turn(offset, "write", &self.path)?;
        let mut done = 0;
        while done < data.len() {
            done += retry(|| write(&self.handle.file, &data[done..])).or_fault("write", &self.path)?;
            *turn = offset + done as u64;
        }
        Ok(())
    }
}

/// Writes all of `data`; `offset` and its length make no offset that there is not.
pub(super) fn write_fully(file: impl AsFd, offset: u64, data: &[u8]) -> Result<(), Errno> {
    let mut done = 0;
    while done < data.len() {
        done += retry(|| pwrite(&file, &data[done..], offset + done as u64))?;
    }
    Ok(())
}

impl WriteAt for Writer {
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), Fault> {
        let Some(end) = end_of(offset, data.len()) else {
            return Err(Fault::new(FaultCode::FileTooLarge, "write").on_path(self.path.as_bytes()));
        };
        let _writing = self.writing()?;
        if self.in_order.needed() {
            self.put_in_order(offset, data)?;
        } else {
            match self.handle.write(offset, data) {
                Err(Errno::SPIPE) => {
                    self.in_order.need();
                    self.put_in_order(offset, data)?;
                }
                other => other.or_fault("write", &self.path)?,
            }
        }
        self.ranges().add(offset..end);
        Ok(())
    }

    fn settle(&self, range: Range<u64>) -> Result<(), Fault> {
        if !self.handle.keeps(&range) {
            return Ok(());
        }
        let _writing = self.writing_late()?;
        self.handle.settle(&range).or_fault("write", &self.path)
    }

    fn sync(&self) -> Result<(), Fault> {
        self.sync_range(0..u64::MAX)
    }

    fn sync_range(&self, range: Range<u64>) -> Result<(), Fault> {
        // Taken before the call: what is written during it may or may not be covered.
        let covered = self.ranges().fresh().within(range.clone());
        self.settle(range)?;
        match self.handle.sync_data() {
            // Devices and pipes have nothing to make durable.
            Err(Errno::INVAL | Errno::ROFS) if self.handle.kind != Kind::File => {}
            other => other.or_fault("sync", &self.path)?,
        }
        self.ranges().synced(&covered);
        Ok(())
    }

    fn reserve(&self, range: Range<u64>) -> Result<(), Fault> {
        let len = range.end.saturating_sub(range.start);
        if range.is_empty() || self.handle.kind != Kind::File || self.in_memory() {
            return Ok(());
        }
        if end_of(range.end, 0).is_none() {
            return Err(Fault::new(FaultCode::FileTooLarge, "reserve").on_path(self.path.as_bytes()));
        }
        match retry(|| fallocate(&self.handle.file, FallocateFlags::KEEP_SIZE, range.start, len)) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            other => other.or_fault("reserve", &self.path),
        }
    }

    fn clear(&self, range: Range<u64>) -> Result<(), Fault> {
        self.settle(range.clone())?;
        let _writing = self.writing()?;
        if range.is_empty() || self.is_hole(&range).or_fault("find holes", &self.path)? {
            return Ok(());
        }
        let unsupported = || {
            let fault = Fault::new(FaultCode::NotSupported, "make a hole").on_path(self.path.as_bytes());
            fault.detail("this storage keeps no holes there")
        };
        if self.handle.kind != Kind::File || !self.is_whole_pages(&range) {
            return Err(unsupported());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // The file may end inside its last page, which is given back only as a whole.
        let end = range.end.checked_next_multiple_of(page_size()).unwrap_or(range.end);
        match retry(|| fallocate(&self.handle.file, flags, range.start, end - range.start)) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Err(unsupported()),
            other => other.or_fault("make a hole", &self.path)?,
        }
        // Asked, not believed: not every file system that takes the call gives the space back.
        if self.is_hole(&range).or_fault("find holes", &self.path)? { Ok(()) } else { Err(unsupported()) }
    }

    fn extend_to(&self, size: u64) -> Result<(), Fault> {
        let _writing = self.writing()?;
        let file = &self.handle.file;
        if self.handle.kind != Kind::File || statx_fd(file).or_fault("extend", &self.path)?.stx_size >= size {
            return Ok(());
        }
        retry(|| ftruncate(file, size)).or_fault("extend", &self.path)
    }

    fn room(&self) -> Result<Option<u64>, Fault> {
        if self.handle.kind != Kind::File {
            return Ok(None);
        }
        let space = fstatvfs(&self.handle.file).or_fault("ask for space", &self.path)?;
        // File systems without a size of their own (many network ones) report zero blocks.
        if space.f_blocks == 0 {
            return Ok(None);
        }
        let blocks = if geteuid().is_root() { space.f_bfree } else { space.f_bavail };
        let own = statx_fd(&self.handle.file).or_fault("ask for space", &self.path)?.stx_blocks.saturating_mul(512);
        Ok(Some(blocks.saturating_mul(space.f_frsize).saturating_add(own)))
    }

    fn stripe_size(&self) -> Option<u64> {
        let (lustre, staging) = self.lustre.as_ref()?;
        lustre.stripe_size(&self.handle.dir, staging.name()?)
    }

    fn drop_cached(&self, range: Range<u64>) -> Result<ReadsFrom, Fault> {
        self.sync_range(range.clone())?;
        if self.handle.kind != Kind::File {
            return Ok(ReadsFrom::Memory);
        }
        if self.in_memory() {
            return Ok(ReadsFrom::OnlyMemory);
        }
        if self.file_system().is_some_and(magic::caches_itself) {
            return Ok(ReadsFrom::Memory);
        }
        for _ in 0..DROP_ATTEMPTS {
            if range.is_empty() || self.forget(&range)? {
                return Ok(ReadsFrom::Storage);
            }
            // Somebody writes the neighbourhood: what is dirty stays until it is stored.
            self.sync_range(range.clone())?;
        }
        Ok(ReadsFrom::Memory)
    }

    fn is_sound(&self) -> bool {
        self.handle.is_sound()
    }

    fn claim_end(&self) -> Result<(), Fault> {
        if self.handle.kind != Kind::File {
            return Ok(());
        }
        self.end.make(&self.path, || self.handle.claim_end())
    }

    fn durable(&self) -> Result<RangeSet, Fault> {
        Ok(self.ranges().durable())
    }

    fn read_back(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Fault> {
        if end_of(offset, buffer.len()).is_none() {
            return Ok(0);
        }
        let unreadable = || {
            Fault::new(FaultCode::NotSupported, "read back")
                .on_path(self.path.as_bytes())
                .detail("this can be written only")
        };
        if self.in_order.needed() {
            return Err(unreadable());
        }
        // The end is not known here: it moves while others write.
        self.settle(offset..offset + buffer.len() as u64)?;
        match self.handle.read(offset, buffer) {
            Err(Errno::SPIPE | Errno::BADF) => Err(unreadable()),
            other => other.or_fault("read back", &self.path),
        }
    }

    fn is_past_cache(&self) -> bool {
        self.handle.is_past_cache()
    }

    fn finish(&self) -> Result<Receipt, Fault> {
        // Another process may commit.
        self.settle(0..u64::MAX)?;
        let unsynced = !self.ranges().fresh().is_empty();
        if unsynced && self.handle.kind == Kind::File && self.file_system().is_some_and(magic::tells_late) {
            self.sync()?;
        }
        Ok(Receipt { written: self.ranges().all(), token: Vec::new() })
    }
}

impl Drop for Writer {
    /// What it wrote is there for whoever goes on with the file.
    fn drop(&mut self) {
        let all = 0..u64::MAX;
        // Not to a file that was given up, or that another has replaced.
        if self.handle.keeps(&all)
            && let Ok(_writing) = self.writing_late()
            && let Err(errno) = self.handle.settle(&all)
        {
            tracing::warn!(path = %self.path, why = %errno, "a part of an unfinished file was lost");
        }
        if self.end.is_made() {
            self.handle.release_end();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Posix;
    use super::super::steps::{self, Step};
    use super::super::token::Token;
    use super::*;
    use crate::Connector as _;
    use crate::posix::PosixOptions;
    use crate::session::{Disposition, WriteIntent};

    #[test]
    fn where_a_lost_write_is_told_late_it_is_told_before_the_file_has_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let storage = Posix::open(dir.path(), PosixOptions::default()).unwrap();
        let path = StoragePath::resolve(&StoragePath::root(), b"file").unwrap();
        let intent = WriteIntent { disposition: Disposition::Replace, size: None, length: None, mode: None };
        let session = storage.begin(&path, &intent).unwrap();
        let handle = storage.handle_of(&session, &Token::of(&session).unwrap()).unwrap();
        let syncs = |kind: u32| {
            let writer = Writer::new(handle.clone(), path.clone(), None);
            writer.file_system.set(Some(kind)).unwrap();
            writer.write_at(0, b"data").unwrap();
            steps::take();
            writer.finish().unwrap();
            writer.finish().unwrap();
            steps::take().iter().filter(|step| matches!(step, Step::SyncFile(_))).count()
        };
        let (nfs, ext4) = (0x6969, 0xef53);
        assert_eq!((syncs(nfs), syncs(ext4)), (1, 0));
    }
}

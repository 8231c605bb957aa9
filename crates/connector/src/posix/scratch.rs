//! Files without a name, and what file systems are.

use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{Advice, AtFlags, OFlags, fadvise, fstatfs, openat, syncfs, unlinkat};
use rustix::io::Errno;
use whimbrel_engine::Fault;
use whimbrel_sys::resident::resident_pages;

use super::Posix;
use super::error::OrFault;
use super::handles::Handle;
use super::magic;
use super::meta::statx_fd;
use super::modes::PRIVATE;
use super::resolve::{Dir, look, retry};
use super::token::Identity;
use super::unnamed::open_unnamed;
use super::write::Writer;
use crate::meta::Kind;
use crate::path::StoragePath;
use crate::{FileSystem, ReadsFrom, WriteAt};

/// The name that a scratch file has for a moment where files without names do not exist. Always the same, so that what a
/// crash in that moment leaves, an empty file, is found and removed by the next.
const NAME: &[u8] = b".whimbrel-probe";

const OP: &str = "make a temporary file";

impl Posix {
    pub(super) fn open_scratch(&self, path: &StoragePath) -> Result<Arc<dyn WriteAt>, Fault> {
        self.writable(OP, path)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let dir = Dir::from(self.root.open_at(path, flags).or_fault(OP, path)?);
        let file = nameless(&dir).or_fault(OP, path)?;
        let stat = statx_fd(&file).or_fault(OP, path)?;
        let handle = Handle::new(file, dir, Kind::File, Identity::of(&stat));
        Ok(Arc::new(Writer::new(Arc::new(handle), path.clone(), None)))
    }

    /// As syncfs(2), which also fails if something was lost that nobody was told of so far (Linux 5.8).
    pub(super) fn sync_file_system(&self, path: &StoragePath) -> Result<(), Fault> {
        let op = "make durable";
        self.writable(op, path)?;
        let synced = match self.root.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY) {
            Ok(fd) => retry(|| syncfs(&fd)),
            Err(Errno::ACCESS) => {
                self.root.open_at(path, OFlags::PATH | OFlags::DIRECTORY).and_then(|fd| sync_around(&Dir::from(fd)))
            }
            Err(errno) => Err(errno),
        };
        synced.or_fault(op, path)
    }

    pub(super) fn describe_file_system(&self, path: &StoragePath) -> Result<FileSystem, Fault> {
        let op = "describe file system";
        let fd = self.root.open_at(path, OFlags::PATH).or_fault(op, path)?;
        let stat = fstatfs(&fd).or_fault(op, path)?;
        let kind = magic::kind(&stat);
        // Block sizes are signed on some processors.
        let block = u64::try_from(stat.f_bsize).unwrap_or(0);
        Ok(FileSystem {
            kind: magic::name(kind),
            total: stat.f_blocks.saturating_mul(block),
            free: stat.f_bavail.saturating_mul(block),
            in_memory: magic::is_memory_only(kind),
        })
    }
}

/// Makes all durable that is on the file system of a directory that may be written to.
pub(super) fn sync_around(dir: &Dir) -> Result<(), Errno> {
    let file = nameless(dir)?;
    retry(|| syncfs(&file))
}

/// A file that the kernel removes with its last descriptor (`O_TMPFILE`, Linux 3.11), or one whose name is removed at
/// once where the file system has no such files.
fn nameless(dir: &Dir) -> Result<OwnedFd, Errno> {
    let mode = PRIVATE;
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    match open_unnamed(dir, mode) {
        // EISDIR: a kernel or file system that knows no such files.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {}
        other => return other,
    }
    if look(dir, NAME)?.is_some_and(|stat| stat.stx_size == 0) {
        remove(dir)?;
    }
    let file = retry(|| openat(dir, NAME, flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW, mode))?;
    remove(dir)?;
    Ok(file)
}

fn remove(dir: &Dir) -> Result<(), Errno> {
    match retry(|| unlinkat(dir, NAME, AtFlags::empty())) {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}

/// Forgets the whole pages of `range`; advice may be ignored, so that it is asked and not believed.
pub(super) fn forget(file: impl AsFd, range: Range<u64>) -> ReadsFrom {
    let length = NonZeroU64::new(range.end.saturating_sub(range.start));
    let caches_itself = fstatfs(&file).is_ok_and(|stat| magic::caches_itself(magic::kind(&stat)));
    if caches_itself || fadvise(&file, range.start, length, Advice::DontNeed).is_err() {
        return ReadsFrom::Memory;
    }
    match resident_pages(file.as_fd(), range) {
        Ok(0) => ReadsFrom::Storage,
        Ok(_) | Err(_) => ReadsFrom::Memory,
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::Mode;
    use whimbrel_engine::FaultCode;

    use super::*;
    use crate::Connector;
    use crate::posix::PosixOptions;

    #[test]
    fn a_scratch_file_has_no_name_and_reads_back() {
        let dir = tempfile::tempdir().unwrap();
        let storage = Posix::open(dir.path(), PosixOptions::default()).unwrap();
        let file = storage.scratch(&StoragePath::root()).unwrap();
        file.write_at(5, b"bytes").unwrap();
        file.sync().unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        let mut buffer = [9; 12];
        assert_eq!(file.read_back(0, &mut buffer).unwrap(), 10);
        assert_eq!(&buffer[..10], b"\0\0\0\0\0bytes");
    }

    #[test]
    fn what_a_crash_left_is_removed_but_never_a_file_with_content() {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().join(".whimbrel-probe");
        std::fs::write(&name, b"").unwrap();
        let fd = rustix::fs::open(dir.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        let dir = Dir::from(fd);
        assert!(look(&dir, NAME).unwrap().is_some_and(|stat| stat.stx_size == 0));
        remove(&dir).unwrap();
        assert!(!name.exists());
        std::fs::write(&name, b"mine").unwrap();
        drop(nameless(&dir).unwrap());
        assert_eq!(std::fs::read(&name).unwrap(), b"mine");
    }

    #[test]
    fn a_read_only_collection_makes_no_scratch_files_and_every_one_says_what_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let storage = Posix::open(dir.path(), PosixOptions { read_only: true, ..PosixOptions::default() }).unwrap();
        let refused = storage.scratch(&StoragePath::root()).err().map(|fault| fault.code);
        assert_eq!(refused, Some(FaultCode::ReadOnly));
        let system = storage.file_system(&StoragePath::root()).unwrap();
        assert!(system.free <= system.total && !system.kind.is_empty(), "{system:?}");
    }
}

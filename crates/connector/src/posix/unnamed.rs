//! Small files that have no name until they are whole (`O_TMPFILE`, Linux 3.11).
//!
//! A hidden name costs its making, the lock and the look before the rename, and the rename: a third of what storing a
//! file of 10 KiB costs in all. A file without a name needs none of them, and a crash leaves nothing of it.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use whimbrel_engine::Fault;

use super::Posix;
use super::attributes;
use super::error::OrFault;
use super::magic;
use super::meta::statx_fd;
use super::modes::PRIVATE;
use super::read::read_fully;
use super::resolve::{Dir, above, look, retry};
use super::steps::{self, sync_dir};
use super::write::write_fully;
use crate::path::StoragePath;
use crate::put::{ReadBack, ends_early, put_in_steps};
use crate::rules::check;
use crate::session::Attributes;
use crate::staging::{refuse_hidden, staging_path};

/// What earlier files have taught: asked in vain, a file without a name costs twice.
#[derive(Default)]
pub(super) struct Unnamed {
    /// The file system, or one of them, has no such files, or gives them no name.
    refused: AtomicBool,
    /// The last final name was taken already: an unnamed file cannot replace another.
    taken: AtomicBool,
}

impl Posix {
    pub(super) fn put_whole(
        &self,
        path: &StoragePath,
        data: &[u8],
        attributes: &Attributes,
        mut read_back: Option<ReadBack<'_>>,
    ) -> Result<(), Fault> {
        check(attributes, path)?;
        refuse_hidden(path, "write")?;
        // On Lustre new files are laid out, which takes a name.
        let possible = self.lustre.is_none() && attributes.size.is_none();
        if possible
            && !self.unnamed.refused.load(Ordering::Relaxed)
            && self.put_unnamed(path, data, attributes, &mut read_back)?
        {
            return Ok(());
        }
        // It may be shown its bytes a second time: what counts is what was shown last.
        put_in_steps(self, path, data, attributes, read_back)
    }

    /// Whether it could be done; where it could not, nothing has happened, and steps tell why or do it.
    fn put_unnamed(
        &self,
        path: &StoragePath,
        data: &[u8],
        attributes: &Attributes,
        read_back: &mut Option<ReadBack<'_>>,
    ) -> Result<bool, Fault> {
        let Ok(Some((dir, name))) = self.root.parent(path) else { return Ok(false) };
        // Leftovers under the hidden name, and writers of it, are for a session to take over.
        if !self.looked.is_clean(above(path), &dir, Instant::now()) && !is_free(&dir, staging_path(path)?.name()) {
            return Ok(false);
        }
        if self.unnamed.taken.load(Ordering::Relaxed) && !is_free(&dir, Some(name)) {
            return Ok(false);
        }
        let Some(file) = self.make(&dir, attributes.mode.is_some()) else { return Ok(false) };
        fill(&file, &dir, data, attributes, path)?;
        if let Some(read_back) = read_back {
            read_back(&stored_bytes(&file, data.len(), path)?)?;
        }
        let named = link(&file, &dir, name);
        self.unnamed.taken.store(named == Err(Errno::EXIST), Ordering::Relaxed);
        match named {
            Ok(()) if attributes.durable => sync_dir(&dir).or_fault("sync directory", path).map(|()| true),
            Ok(()) => Ok(true),
            Err(errno) => {
                // Others are about this name or this directory.
                if matches!(errno, Errno::PERM | Errno::NOENT | Errno::XDEV | Errno::OPNOTSUPP | Errno::NOSYS) {
                    self.unnamed.refused.store(true, Ordering::Relaxed);
                }
                Ok(false)
            }
        }
    }

    /// Makes a file that only this process can reach: one that gets its mode from the kernel, or is `private` until it is
    /// given another.
    fn make(&self, dir: &Dir, private: bool) -> Option<OwnedFd> {
        match open_unnamed(dir, if private { PRIVATE } else { Mode::from_raw_mode(0o666) }) {
            Ok(file) => Some(file),
            Err(errno) => {
                // EISDIR: a kernel or file system that knows no such files.
                if matches!(errno, Errno::OPNOTSUPP | Errno::ISDIR) {
                    self.unnamed.refused.store(true, Ordering::Relaxed);
                }
                None
            }
        }
    }
}

/// A file that the kernel removes with its last descriptor, unless it is given a name before.
pub(super) fn open_unnamed(dir: &Dir, mode: Mode) -> Result<OwnedFd, Errno> {
    retry(|| openat(dir, c".", OFlags::RDWR | OFlags::CLOEXEC | OFlags::TMPFILE, mode))
}

fn is_free(dir: &Dir, name: Option<&[u8]>) -> bool {
    matches!(look(dir, name.unwrap_or_default()), Ok(None))
}

/// Bytes and attributes, durable when asked.
fn fill(file: &OwnedFd, dir: &Dir, data: &[u8], attributes: &Attributes, path: &StoragePath) -> Result<(), Fault> {
    write_fully(file, 0, data).or_fault("write", path)?;
    if attributes.mode.is_some() || attributes.group.is_some() || attributes.modified.is_some() {
        let stat = statx_fd(file).or_fault("commit", path)?;
        attributes::apply(file.as_fd(), &stat, attributes, None, path)?;
    }
    if attributes.durable {
        // With its mode and times.
        steps::sync_all(file).or_fault("sync", path)?;
    } else if dir.kind().is_some_and(magic::tells_late) {
        steps::sync_data(file).or_fault("sync", path)?;
    }
    Ok(())
}

fn stored_bytes(file: &OwnedFd, len: usize, path: &StoragePath) -> Result<Vec<u8>, Fault> {
    let mut stored = vec![0; len];
    let count = read_fully(file.as_fd(), 0, &mut stored, len as u64).or_fault("read back", path)?;
    if count == len { Ok(stored) } else { Err(ends_early().on_path(path.as_bytes())) }
}

/// Gives the file its only name; never that of another.
fn link(file: &OwnedFd, dir: &Dir, name: &[u8]) -> Result<(), Errno> {
    match by_descriptor(file, dir, name) {
        Err(Errno::NOENT) => through_proc(file, dir, name),
        other => other,
    }
}

/// Allowed to privileged processes, and since Linux 6.10 to the one that opened the file.
fn by_descriptor(file: &OwnedFd, dir: &Dir, name: &[u8]) -> Result<(), Errno> {
    steps::link((file.as_fd(), b""), AtFlags::EMPTY_PATH, dir, name)
}

/// Allowed to all, where `/proc` is mounted.
fn through_proc(file: &OwnedFd, dir: &Dir, name: &[u8]) -> Result<(), Errno> {
    let known_as = format!("/proc/self/fd/{}", file.as_raw_fd());
    steps::link((CWD, known_as.as_bytes()), AtFlags::SYMLINK_FOLLOW, dir, name)
}

#[cfg(test)]
mod tests {
    use std::fs::{read, read_dir};

    use super::*;
    use crate::Connector;
    use crate::posix::PosixOptions;
    use crate::posix::steps::Step;
    use crate::session::{Disposition, WriteIntent};

    const DURABLE: Attributes = Attributes { mode: None, group: None, modified: None, size: None, durable: true };

    fn lab() -> (tempfile::TempDir, Posix) {
        let dir = tempfile::tempdir().unwrap();
        let storage = Posix::open(dir.path(), PosixOptions::default()).unwrap();
        (dir, storage)
    }

    fn path(name: &str) -> StoragePath {
        StoragePath::resolve(&StoragePath::root(), name.as_bytes()).unwrap()
    }

    #[test]
    fn bytes_are_synced_and_read_back_before_there_is_a_name_and_then_the_name_is_synced() {
        let (dir, storage) = lab();
        let entries = || read_dir(dir.path()).unwrap().count();
        let mut entries_then = None;
        let mut look = |_: &[u8]| {
            entries_then = Some(entries());
            Ok(())
        };
        storage.put(&path("file"), b"data", &DURABLE, Some(&mut look)).unwrap();
        assert_eq!((entries_then, entries()), (Some(0), 1));
        let steps = steps::take();
        assert!(matches!(steps[..], [Step::SyncFile(_), Step::Link(_), Step::SyncDir]), "{steps:?}");
    }

    #[test]
    fn where_a_lost_write_is_told_late_it_is_told_before_there_is_a_name() {
        // NFS, ext4.
        for (kind, synced) in [(0x6969, true), (0xef53, false)] {
            let (_dir, storage) = lab();
            storage.root.parent(&path("file")).unwrap().unwrap().0.is_on(kind);
            storage.put(&path("file"), b"data", &Attributes::default(), None).unwrap();
            let steps = steps::take();
            let before = steps.split(|step| matches!(step, Step::Link(_))).next().unwrap_or_default();
            assert_eq!(before.iter().any(|step| matches!(step, Step::SyncFile(_))), synced, "{kind:x}: {steps:?}");
            assert!(steps.len() > before.len(), "it has its name: {steps:?}");
        }
    }

    #[test]
    fn what_lies_unfinished_beside_it_is_taken_over_be_it_of_before_or_begun_here() {
        let (dir, storage) = lab();
        let hidden = |name: &str| dir.path().join(format!(".{name}.whimbrel-part"));
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        std::fs::write(dir.path().join("sub/.old.whimbrel-part"), "left").unwrap();
        let put = |name: &str| {
            steps::take();
            storage.put(&path(name), b"data", &DURABLE, None).unwrap();
            steps::take()
        };
        let renamed = |name: &str| Step::Rename(format!(".{name}.whimbrel-part").into(), name.into());
        assert!(put("sub/old").contains(&renamed("old")));
        assert!(put("sub/new").contains(&Step::Link("new".into())));
        assert!(put("first").contains(&Step::Link("first".into())), "the directory was looked through");
        let intent = WriteIntent { disposition: Disposition::Replace, size: None, length: None, mode: None };
        let _session = storage.begin(&path("second"), &intent).unwrap();
        assert!(hidden("second").exists());
        assert!(put("second").contains(&renamed("second")));
        assert!(put("third").contains(&Step::Link("third".into())));
        assert!(!hidden("second").exists() && !dir.path().join("sub/.old.whimbrel-part").exists());
    }

    #[test]
    fn a_file_without_a_name_gets_one_either_way_and_never_that_of_another() {
        let (dir, storage) = lab();
        for (name, link) in [("a", by_descriptor as fn(&OwnedFd, &Dir, &[u8]) -> _), ("b", through_proc)] {
            let (folder, _) = storage.root.parent(&path(name)).unwrap().unwrap();
            let file = storage.make(&folder, false).expect("the file system of the tests has such files");
            fill(&file, &folder, name.as_bytes(), &Attributes::default(), &path(name)).unwrap();
            // Root, or a kernel since 6.10.
            if link(&file, &folder, name.as_bytes()) != Err(Errno::NOENT) {
                assert_eq!(read(dir.path().join(name)).unwrap(), name.as_bytes());
                let other = storage.make(&folder, true).unwrap();
                assert_eq!(link(&other, &folder, name.as_bytes()), Err(Errno::EXIST));
            }
        }
        assert!(dir.path().join("b").exists());
    }

    #[test]
    fn it_comes_to_steps_where_there_are_no_such_files_and_where_names_are_taken() {
        let (dir, storage) = lab();
        let stored = |name: &str, text: &str| {
            storage.put(&path(name), text.as_bytes(), &DURABLE, None).unwrap();
            assert_eq!(read(dir.path().join(name)).unwrap(), text.as_bytes());
            let mut steps = steps::take();
            steps.retain(|step| !matches!(step, Step::SyncFile(_)));
            steps.remove(0)
        };
        let renamed = |name: &str| Step::Rename(format!(".{name}.whimbrel-part").into(), name.into());
        assert_eq!(stored("one", "a"), Step::Link("one".into()));
        assert_eq!(stored("one", "b"), renamed("one"));
        assert!(storage.unnamed.taken.load(Ordering::Relaxed), "the next is looked for first");
        assert_eq!(stored("one", "c"), renamed("one"));
        assert_eq!(stored("two", "d"), Step::Link("two".into()));
        assert!(!storage.unnamed.taken.load(Ordering::Relaxed));
        storage.unnamed.refused.store(true, Ordering::Relaxed);
        assert_eq!(stored("three", "e"), renamed("three"));
        assert_eq!(read_dir(dir.path()).unwrap().count(), 3);
    }
}

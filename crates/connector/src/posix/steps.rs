//! The calls whose order decides what a crash leaves; tests see that order.
//!
//! Outside of tests each is its system call and nothing else.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{
    AtFlags, Mode, OFlags, RenameFlags, fdatasync, fsync, linkat, openat, renameat, renameat_with, unlinkat,
};
use rustix::io::Errno;

use super::resolve::{Dir, retry};
use super::scratch::sync_around;

/// What was done; files by their inode, names without their directory.
#[cfg(test)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    SyncFile(u64),
    SyncDir,
    Rename(Vec<u8>, Vec<u8>),
    Link(Vec<u8>),
    Unlink(Vec<u8>),
}

#[cfg(test)]
thread_local! {
    static DONE: std::cell::RefCell<Vec<Step>> = const { std::cell::RefCell::new(Vec::new()) };
    /// What others do while this thread syncs next.
    static MEANWHILE: std::cell::RefCell<Option<Box<dyn FnOnce()>>> = const { std::cell::RefCell::new(None) };
}

#[cfg(test)]
fn note(step: Step) {
    DONE.with_borrow_mut(|done| done.push(step));
}

/// The steps of this thread since it was last asked.
#[cfg(test)]
pub(super) fn take() -> Vec<Step> {
    DONE.take()
}

#[cfg(test)]
fn inode(file: &impl AsFd) -> u64 {
    rustix::fs::fstat(file).map_or(0, |stat| stat.st_ino)
}

/// Makes content and size of a file durable.
pub(super) fn sync_data(file: impl AsFd) -> Result<(), Errno> {
    retry(|| fdatasync(&file))?;
    #[cfg(test)]
    note(Step::SyncFile(inode(&file)));
    Ok(())
}

/// Makes a file with its mode and times durable.
pub(super) fn sync_all(file: impl AsFd) -> Result<(), Errno> {
    retry(|| fsync(&file))?;
    #[cfg(test)]
    note(Step::SyncFile(inode(&file)));
    #[cfg(test)]
    MEANWHILE.take().into_iter().for_each(|act| act());
    Ok(())
}

/// Makes the names in a directory durable.
///
/// A path descriptor cannot be synced; its directory is opened for real. Of one that may be written to and not be listed all
/// of the file system is synced.
pub(super) fn sync_dir(dir: &Dir) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match retry(|| openat(dir, c".", flags, Mode::empty())) {
        Ok(real) => retry(|| fsync(&real))?,
        Err(Errno::ACCESS) => sync_around(dir)?,
        Err(errno) => return Err(errno),
    }
    #[cfg(test)]
    note(Step::SyncDir);
    Ok(())
}

/// Renames, replacing what has the new name.
pub(super) fn rename((old, from): (&Dir, &[u8]), (new, to): (&Dir, &[u8])) -> Result<(), Errno> {
    retry(|| renameat(old, from, new, to))?;
    #[cfg(test)]
    note(Step::Rename(from.to_vec(), to.to_vec()));
    Ok(())
}

/// Renames what gets a name that nothing has: else `EXIST`. `OPNOTSUPP` where the file system knows no way to do it in one step.
pub(super) fn rename_new((old, from): (&Dir, &[u8]), (new, to): (&Dir, &[u8])) -> Result<(), Errno> {
    match retry(|| renameat_with(old, from, new, to, RenameFlags::NOREPLACE)) {
        // File systems of networks and of user space, and Linux before 3.15.
        Err(Errno::INVAL | Errno::NOSYS) => name_twice((old, from), (new, to))?,
        renamed => renamed?,
    }
    #[cfg(test)]
    note(Step::Rename(from.to_vec(), to.to_vec()));
    Ok(())
}

/// For an instant a file has both names: a second name is never one that something has.
fn name_twice((old, from): (&Dir, &[u8]), (new, to): (&Dir, &[u8])) -> Result<(), Errno> {
    match retry(|| linkat(old, from, new, to, AtFlags::empty())) {
        // No second names here, or none for directories.
        Err(Errno::PERM | Errno::MLINK | Errno::NOSYS) => Err(Errno::OPNOTSUPP),
        Ok(()) => retry(|| unlinkat(old, from, AtFlags::empty())),
        refused => refused,
    }
}

/// Gives a file without a name one, which nothing else bears.
pub(super) fn link(
    (from, known_as): (BorrowedFd<'_>, &[u8]),
    flags: AtFlags,
    dir: &Dir,
    name: &[u8],
) -> Result<(), Errno> {
    retry(|| linkat(from, known_as, dir, name, flags))?;
    #[cfg(test)]
    note(Step::Link(name.to_vec()));
    Ok(())
}

/// Removes the name of a file.
pub(super) fn unlink(dir: &Dir, name: &[u8]) -> Result<(), Errno> {
    retry(|| unlinkat(dir, name, AtFlags::empty()))?;
    #[cfg(test)]
    note(Step::Unlink(name.to_vec()));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::path::Path;

    use super::*;
    use crate::posix::{Posix, PosixOptions};
    use crate::session::{Attributes, Disposition, WriteIntent, WriteSession};
    use crate::{Connector, ReadsFrom, StoragePath};

    const STAGING: &[u8] = b".file.whimbrel-part";

    fn begin(storage: &Posix, disposition: Disposition) -> WriteSession {
        let path = StoragePath::resolve(&StoragePath::root(), b"file").unwrap();
        storage.begin(&path, &WriteIntent { disposition, size: None, length: None, mode: None }).unwrap()
    }

    fn inode_of(dir: &Path, is: impl Fn(&str) -> bool) -> (Vec<u8>, u64) {
        let entries = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
        let mut found = entries.filter(|entry| is(&entry.file_name().to_string_lossy()));
        let entry = found.next().expect("is there");
        (entry.file_name().into_encoded_bytes(), entry.metadata().unwrap().ino())
    }

    /// A session with a journal: the inodes of file and journal, and the journal's name.
    fn chunked(dir: &Path, storage: &Posix) -> (WriteSession, u64, u64, Vec<u8>) {
        let session = begin(storage, Disposition::Continue);
        storage.join(&session).unwrap().write_at(0, b"data").unwrap();
        take();
        storage.journal(&session).unwrap().append(b"proof").unwrap();
        let (_, file) = inode_of(dir, |name| name.ends_with("-part"));
        let (name, journal) = inode_of(dir, |name| name.contains("-journal-"));
        (session, file, journal, name)
    }

    fn lab() -> (tempfile::TempDir, Posix) {
        let dir = tempfile::tempdir().unwrap();
        let storage = Posix::open(dir.path(), PosixOptions::default()).unwrap();
        (dir, storage)
    }

    #[test]
    fn a_name_that_is_taken_is_not_given_by_either_way() {
        let (dir, storage) = lab();
        let put = |name: &str| std::fs::write(dir.path().join(name), name).unwrap();
        let names = || {
            let mut names: Vec<_> =
                std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        let path = StoragePath::resolve(&StoragePath::root(), b"any").unwrap();
        let (root, _) = storage.root.entry(&path, "test").unwrap();
        type Way = fn((&Dir, &[u8]), (&Dir, &[u8])) -> Result<(), Errno>;
        for way in [rename_new as Way, name_twice] {
            put("one");
            put("other");
            assert_eq!(way((&root, b"one"), (&root, b"other")), Err(Errno::EXIST));
            assert_eq!(names(), ["one", "other"]);
            assert_eq!(std::fs::read(dir.path().join("other")).unwrap(), b"other");
            way((&root, b"one"), (&root, b"new")).unwrap();
            assert_eq!(
                (names(), std::fs::read(dir.path().join("new")).unwrap()),
                (vec!["new".into(), "other".into()], b"one".to_vec())
            );
            std::fs::remove_file(dir.path().join("new")).unwrap();
        }
        std::fs::create_dir(dir.path().join("dir")).unwrap();
        assert_eq!(name_twice((&root, b"dir"), (&root, b"tree")), Err(Errno::OPNOTSUPP));
        rename_new((&root, b"dir"), (&root, b"tree")).unwrap();
        take();
    }

    #[test]
    fn a_file_that_another_writer_removed_during_a_long_sync_gives_its_name_to_nothing() {
        let (dir, storage) = lab();
        std::fs::write(dir.path().join("file"), b"the version before").unwrap();
        let session = begin(&storage, Disposition::Replace);
        storage.join(&session).unwrap().write_at(0, b"data").unwrap();
        let hidden = dir.path().join(std::str::from_utf8(STAGING).unwrap());
        let others = hidden.clone();
        // As a host does whose locks this one does not see.
        MEANWHILE.set(Some(Box::new(move || {
            std::fs::remove_file(&others).unwrap();
            std::fs::write(&others, b"half of").unwrap();
        })));
        let durable = Attributes { durable: true, ..Attributes::default() };
        let fault = storage.commit(&session, &[], &durable).unwrap_err();
        assert_eq!(fault.code, whimbrel_engine::FaultCode::StorageBusy);
        assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), b"the version before");
        assert_eq!(std::fs::read(hidden).unwrap(), b"half of");
        take();
    }

    #[test]
    fn an_append_is_synced_and_named_before_it_is_answered() {
        let (dir, storage) = lab();
        let (session, _, journal, _) = chunked(dir.path(), &storage);
        assert_eq!(take(), [Step::SyncFile(journal), Step::SyncDir]);
        // Another host, which did not create it: its creator may have died before it synced the name.
        let other = Posix::open(dir.path(), PosixOptions::default()).unwrap();
        let theirs = other.journal(&session).unwrap();
        theirs.append(b"more").unwrap();
        assert_eq!(take(), [Step::SyncFile(journal), Step::SyncDir]);
        theirs.append(b"and more").unwrap();
        assert_eq!(take(), [Step::SyncFile(journal)]);
        assert!(theirs.cut(17, 5).unwrap());
        assert_eq!(take(), [Step::SyncFile(journal)]);
    }

    #[test]
    fn a_commit_syncs_then_renames_then_syncs_the_name_and_only_then_removes_the_journal() {
        // With something to set, and with nothing: the mode of an unfinished file.
        for (size, mode) in [(Some(3), None), (None, Some(0o600))] {
            let (dir, storage) = lab();
            let (session, file, _, journal) = chunked(dir.path(), &storage);
            take();
            let durable = Attributes { durable: true, size, mode, ..Attributes::default() };
            storage.commit(&session, &[], &durable).unwrap();
            let rename = Step::Rename(STAGING.to_vec(), b"file".to_vec());
            assert_eq!(take(), [Step::SyncFile(file), rename, Step::SyncDir, Step::Unlink(journal)]);
            // The one before may have died after the rename.
            storage.commit(&session, &[], &durable).unwrap();
            assert_eq!(take(), [Step::SyncDir]);
        }
    }

    #[test]
    fn a_rename_that_is_to_last_syncs_the_content_then_renames_then_syncs_both_names() {
        let (dir, storage) = lab();
        std::fs::create_dir(dir.path().join("dir")).unwrap();
        std::fs::write(dir.path().join("old"), b"data").unwrap();
        let (_, file) = inode_of(dir.path(), |name| name == "old");
        let path = |name: &str| StoragePath::resolve(&StoragePath::root(), name.as_bytes()).unwrap();
        storage.rename(&path("old"), &path("new"), true).unwrap();
        let renamed = |from: &str, to: &str| Step::Rename(from.into(), to.into());
        assert_eq!(take(), [Step::SyncFile(file), renamed("old", "new"), Step::SyncDir]);
        storage.rename(&path("new"), &path("dir/new"), true).unwrap();
        assert_eq!(take(), [Step::SyncFile(file), renamed("new", "new"), Step::SyncDir, Step::SyncDir]);
        // A directory has no content of its own to lose.
        storage.rename(&path("dir"), &path("other"), true).unwrap();
        assert_eq!(take(), [renamed("dir", "other"), Step::SyncDir]);
        storage.rename(&path("other"), &path("dir"), false).unwrap();
        assert_eq!(take(), [renamed("other", "dir")]);
    }

    #[test]
    fn a_new_file_that_is_written_in_place_has_a_durable_name() {
        let (dir, storage) = lab();
        let session = begin(&storage, Disposition::Update);
        storage.join(&session).unwrap().write_at(0, b"data").unwrap();
        let (_, file) = inode_of(dir.path(), |name| name == "file");
        take();
        storage.commit(&session, &[], &Attributes { durable: true, ..Attributes::default() }).unwrap();
        assert_eq!(take(), [Step::SyncFile(file), Step::SyncDir]);
    }

    #[test]
    fn a_writer_is_refused_from_the_moment_of_the_commit() {
        let (dir, storage) = lab();
        let (session, ..) = chunked(dir.path(), &storage);
        let late = storage.join(&session).unwrap();
        late.write_at(0, b"data").unwrap();
        storage.commit(&session, &[], &Attributes::default()).unwrap();
        assert!(late.write_at(0, b"late").is_err(), "the next look at the name would come too late");
        assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), b"data");
    }

    #[test]
    fn a_journal_is_removed_before_the_file_it_speaks_of() {
        for replace in [false, true] {
            let (dir, storage) = lab();
            let (session, _, _, journal) = chunked(dir.path(), &storage);
            take();
            if replace {
                begin(&storage, Disposition::Replace);
            } else {
                storage.abandon(&session).unwrap();
            }
            assert_eq!(take(), [Step::Unlink(journal), Step::Unlink(STAGING.to_vec())], "replace: {replace}");
        }
    }

    #[test]
    fn data_are_synced_before_they_are_durable_or_dropped_from_memory() {
        let (dir, storage) = lab();
        let session = begin(&storage, Disposition::Continue);
        let (_, file) = inode_of(dir.path(), |name| name.ends_with("-part"));
        let writer = storage.join(&session).unwrap();
        writer.write_at(0, &[7; 10_000]).unwrap();
        writer.sync().unwrap();
        assert_eq!(take(), [Step::SyncFile(file)]);
        writer.write_at(0, &[8; 10_000]).unwrap();
        writer.drop_cached(0..10_000).unwrap();
        assert_eq!(take(), [Step::SyncFile(file)]);
    }

    #[test]
    fn storage_is_said_to_be_read_only_when_no_page_is_left_in_memory() {
        let (dir, storage) = lab();
        let session = begin(&storage, Disposition::Continue);
        let writer = storage.join(&session).unwrap();
        let file = || std::fs::File::open(dir.path().join(".file.whimbrel-part")).unwrap();
        // Ends in a page, begins and ends inside of pages and of folios, one byte.
        for range in [0..5_000_001, 100_000..900_001, 2_097_151..2_097_153, 4_999_999..5_000_001, 7..8] {
            writer.write_at(0, &vec![7; 5_000_001]).unwrap();
            let resident = || whimbrel_sys::resident::resident_pages(file().as_fd(), range.clone()).unwrap();
            assert!(resident() > 0);
            match writer.drop_cached(range.clone()).unwrap() {
                ReadsFrom::Storage => assert_eq!(resident(), 0, "{range:?}"),
                ReadsFrom::OnlyMemory => assert!(resident() > 0, "{range:?}"),
                ReadsFrom::Memory => panic!("pages of {range:?} were kept"),
            }
            let mut seen = [0; 1];
            assert_eq!(writer.read_back(range.start, &mut seen).unwrap(), 1);
            assert_eq!(seen, [7]);
        }
    }

    #[test]
    fn a_file_system_in_memory_is_never_said_to_read_from_storage() {
        let Ok(dir) = tempfile::tempdir_in("/dev/shm") else { return };
        let storage = Posix::open(dir.path(), PosixOptions::default()).unwrap();
        let session = begin(&storage, Disposition::Continue);
        let writer = storage.join(&session).unwrap();
        writer.write_at(0, &[7; 10_000]).unwrap();
        assert_eq!(writer.drop_cached(0..10_000).unwrap(), ReadsFrom::OnlyMemory);
        assert_eq!(writer.drop_cached(0..0).unwrap(), ReadsFrom::OnlyMemory);
    }
}

//! What the kernel tells of a directory tree on this host (`inotify(7)`).

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use tokio::net::unix::pipe::Receiver;
use whimbrel_engine::follow::Names;
use whimbrel_engine::listing::join;

/// Bytes of events read at once.
const BUFFER: usize = 64 << 10;

/// Something happened to a file or directory; paths are relative to the watched root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happened {
    /// A name appeared.
    Created(Vec<u8>),
    /// A file was written to.
    Written(Vec<u8>),
    /// A file that was open for writing was closed.
    Closed(Vec<u8>),
    /// A file was renamed to this name.
    Arrived(Vec<u8>),
    /// A file was deleted or renamed to another name.
    Gone(Vec<u8>),
    /// A directory appeared: it is watched by now, what it held before is unknown.
    Directory(Vec<u8>),
    /// A directory was renamed to another name, with all below it.
    DirectoryGone(Vec<u8>),
    /// Events were lost.
    Overflow,
}

/// The directories that are watched; the scanner adds to them while events are read.
#[derive(Clone)]
pub struct Directories {
    root: PathBuf,
    fd: Arc<OwnedFd>,
    table: Arc<Mutex<Table>>,
}

#[derive(Default)]
struct Table {
    paths: HashMap<i32, Vec<u8>>,
    /// The kernel's limit of watches was reached, which was said.
    full: bool,
}

/// Events of a tree.
pub struct Watch {
    /// The same events as those of `directories.fd`; polled only.
    events: Receiver,
    directories: Directories,
    names: Names,
}

impl Directories {
    /// Watches a directory from now on; scans find what one that cannot be watched gets.
    ///
    /// Adding one again does no harm; it must be added before it is listed, so that nothing falls between.
    pub fn add(&self, path: &[u8]) {
        // Locked until the number is known, because its first event can be read at once.
        let mut table = self.table();
        let links = if path.is_empty() { WatchFlags::empty() } else { WatchFlags::DONT_FOLLOW };
        let flags = WatchFlags::CREATE
            | WatchFlags::MODIFY
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::MOVED_TO
            | WatchFlags::MOVED_FROM
            | WatchFlags::DELETE
            // What is still done to a removed file says nothing of another of its name.
            | WatchFlags::EXCL_UNLINK
            | WatchFlags::ONLYDIR
            | links;
        match inotify::add_watch(&*self.fd, self.absolute(path).as_path(), flags) {
            Ok(number) => drop(table.paths.insert(number, path.to_vec())),
            // It is gone again already.
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            Err(error) if !table.full => {
                table.full = true;
                tracing::warn!(%error, "not every directory can be watched for events: scans find the rest");
            }
            Err(_) => {}
        }
    }

    /// Stops watching a directory that was renamed, with all below it: their paths are wrong now.
    fn remove(&self, path: &[u8]) {
        let mut table = self.table();
        let below = [path, b"/"].concat();
        let inside = |other: &[u8]| other == path || other.starts_with(&below);
        table.paths.retain(|number, other| {
            let moved = inside(other);
            if moved {
                // One that was deleted meanwhile is watched no more already.
                let _ = inotify::remove_watch(&*self.fd, *number);
            }
            !moved
        });
    }

    fn absolute(&self, path: &[u8]) -> PathBuf {
        self.root.join(OsStr::from_bytes(path))
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch {
    /// Watches `root`, so far without what is below it; of directories that appear, those whose names are followed.
    ///
    /// # Errors
    /// The kernel gives no more instances, or has none.
    pub fn new(root: &Path, names: Names) -> io::Result<Self> {
        let fd = Arc::new(inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?);
        // It reads like a pipe.
        let events = Receiver::from_owned_fd_unchecked(fd.try_clone()?)?;
        let directories = Directories { root: root.to_owned(), fd, table: Arc::default() };
        directories.add(b"");
        if directories.table().paths.is_empty() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(Self { events, directories, names })
    }

    /// The directories that are watched.
    pub fn directories(&self) -> &Directories {
        &self.directories
    }

    /// Waits for events and takes some. Cancel safe.
    pub async fn next(&self) -> io::Result<Vec<Happened>> {
        loop {
            self.events.readable().await?;
            let happened = self.events.try_io(|| {
                let happened = self.take()?;
                if happened.is_empty() { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(happened) }
            });
            match happened {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                happened => return happened,
            }
        }
    }

    /// Some of the events that are there, without waiting; empty when there are none.
    pub fn take(&self) -> io::Result<Vec<Happened>> {
        let mut buffer = [MaybeUninit::uninit(); BUFFER];
        let mut reader = Reader::new(&*self.directories.fd, &mut buffer);
        let mut happened = Vec::new();
        loop {
            match reader.next() {
                Ok(event) => {
                    let name = event.file_name().map(|name| name.to_bytes());
                    self.translate(event.wd(), event.events(), name, &mut happened);
                }
                Err(Errno::AGAIN) => return Ok(happened),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            if reader.is_buffer_empty() && !happened.is_empty() {
                return Ok(happened);
            }
        }
    }

    fn translate(&self, number: i32, events: ReadFlags, name: Option<&[u8]>, happened: &mut Vec<Happened>) {
        if events.contains(ReadFlags::QUEUE_OVERFLOW) {
            return happened.push(Happened::Overflow);
        }
        if events.contains(ReadFlags::IGNORED) {
            self.directories.table().paths.remove(&number);
            return;
        }
        let Some(directory) = self.directories.table().paths.get(&number).cloned() else { return };
        let Some(name) = name else { return };
        let path = join(&directory, name);
        if events.contains(ReadFlags::ISDIR) {
            return self.translate_directory(events, path, happened);
        }
        if events.contains(ReadFlags::CREATE) {
            happened.push(Happened::Created(path));
        } else if events.contains(ReadFlags::MODIFY) {
            happened.push(Happened::Written(path));
        } else if events.contains(ReadFlags::CLOSE_WRITE) {
            happened.push(Happened::Closed(path));
        } else if events.contains(ReadFlags::MOVED_TO) {
            happened.push(Happened::Arrived(path));
        } else if events.intersects(ReadFlags::MOVED_FROM | ReadFlags::DELETE) {
            happened.push(Happened::Gone(path));
        }
    }

    fn translate_directory(&self, events: ReadFlags, path: Vec<u8>, happened: &mut Vec<Happened>) {
        // What is in an unfinished directory is unfinished, too: it comes when the directory has its name.
        if !self.names.wanted(&path) {
            return;
        }
        if events.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
            self.directories.add(&path);
            return happened.push(Happened::Directory(path));
        }
        self.directories.remove(&path);
        // One that was deleted had nothing left in it.
        if events.contains(ReadFlags::MOVED_FROM) {
            happened.push(Happened::DirectoryGone(path));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write as _;

    use super::*;

    fn watch(root: &Path) -> Watch {
        Watch::new(root, Names::default()).unwrap()
    }

    fn drain(watch: &Watch) -> Vec<Happened> {
        let batches = std::iter::from_fn(|| Some(watch.take().unwrap()).filter(|batch| !batch.is_empty()));
        batches.flatten().collect()
    }

    #[tokio::test]
    async fn writing_closing_renaming_and_deleting_are_told_in_order() {
        let root = tempfile::tempdir().unwrap();
        let watch = watch(root.path());
        std::fs::write(root.path().join("a"), "x").unwrap();
        std::fs::rename(root.path().join("a"), root.path().join("b")).unwrap();
        std::fs::remove_file(root.path().join("b")).unwrap();
        let [a, b] = [b"a".to_vec(), b"b".to_vec()];
        let told = watch.next().await.unwrap();
        let expected = [
            Happened::Created(a.clone()),
            Happened::Written(a.clone()),
            Happened::Closed(a.clone()),
            Happened::Gone(a),
            Happened::Arrived(b.clone()),
            Happened::Gone(b),
        ];
        assert_eq!(told, expected);
    }

    #[tokio::test]
    async fn the_end_of_a_removed_file_is_not_told_of_the_new_one_of_its_name() {
        let root = tempfile::tempdir().unwrap();
        let watch = watch(root.path());
        let path = root.path().join("a");
        let mut removed = File::create(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut new = File::create(&path).unwrap();
        new.write_all(b"half").unwrap();
        let a = b"a".to_vec();
        assert_eq!(drain(&watch).last(), Some(&Happened::Written(a.clone())));
        removed.write_all(b"x").unwrap();
        drop(removed);
        assert!(drain(&watch).is_empty());
        drop(new);
        assert_eq!(drain(&watch), [Happened::Closed(a)]);
    }

    #[tokio::test]
    async fn a_new_directory_is_watched_and_a_renamed_one_told_by_its_new_name() {
        let root = tempfile::tempdir().unwrap();
        let watch = watch(root.path());
        std::fs::create_dir(root.path().join("d")).unwrap();
        assert_eq!(drain(&watch), [Happened::Directory(b"d".to_vec())]);
        std::fs::rename(root.path().join("d"), root.path().join("e")).unwrap();
        let [d, e] = [b"d".to_vec(), b"e".to_vec()];
        assert_eq!(drain(&watch), [Happened::DirectoryGone(d), Happened::Directory(e)]);
        std::fs::File::create(root.path().join("e/f")).unwrap();
        let told = drain(&watch);
        assert_eq!(told, [Happened::Created(b"e/f".to_vec()), Happened::Closed(b"e/f".to_vec())]);
    }

    #[tokio::test]
    async fn nothing_is_told_of_a_temporary_directory_before_it_has_its_name() {
        let root = tempfile::tempdir().unwrap();
        let watch = watch(root.path());
        let (temporary, named) = (root.path().join("d.tmp"), root.path().join("d"));
        std::fs::create_dir(&temporary).unwrap();
        assert!(drain(&watch).is_empty());
        std::fs::File::create(temporary.join("f")).unwrap();
        assert!(drain(&watch).is_empty());
        std::fs::rename(&temporary, &named).unwrap();
        assert_eq!(drain(&watch), [Happened::Directory(b"d".to_vec())]);
        std::fs::File::create(named.join("g")).unwrap();
        assert_eq!(drain(&watch), [Happened::Created(b"d/g".to_vec()), Happened::Closed(b"d/g".to_vec())]);
        std::fs::rename(&named, &temporary).unwrap();
        assert_eq!(drain(&watch), [Happened::DirectoryGone(b"d".to_vec())]);
        std::fs::File::create(temporary.join("h")).unwrap();
        assert!(drain(&watch).is_empty());
    }

    #[tokio::test]
    async fn what_the_kernel_dropped_is_told() {
        let root = tempfile::tempdir().unwrap();
        let mut told = Vec::new();
        watch(root.path()).translate(-1, ReadFlags::QUEUE_OVERFLOW, None, &mut told);
        assert_eq!(told, [Happened::Overflow]);
    }
}

//! Opening paths beneath the root, so that neither `..` nor links lead outside.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rustix::fs::{Mode, OFlags, ResolveFlags, Statx, fstatfs, open, openat, openat2};
use rustix::io::Errno;
use whimbrel_engine::{Fault, FaultCode};

use super::error::{OrFault, fault};
use super::magic;
use super::meta::{is_link, statx_at};
use super::walk::{DIRECTORY, LINKS_MAX, Walked, walk};
use crate::path::StoragePath;
use crate::rules::root_stays;

/// `openat2` gives up with EAGAIN when something is renamed while it resolves `..`.
const ATTEMPTS: usize = 64;

/// The directory that everything is beneath.
#[derive(Clone)]
pub(super) struct Root {
    top: Dir,
    openat2: bool,
    /// Whether links are followed.
    links: bool,
    /// The directory that was opened last, where it is kept.
    last: Option<Arc<Mutex<Option<Opened>>>>,
}

/// A directory by its path, which ends with a slash.
type Opened = (Vec<u8>, Dir);

/// The path of the directory that holds `path`, with a slash at its end; of the root, itself.
pub(super) fn above(path: &StoragePath) -> &[u8] {
    &path.as_bytes()[..path.as_bytes().len() - path.name().map_or(0, <[u8]>::len)]
}

/// An open directory.
#[derive(Clone)]
pub(super) struct Dir(Arc<Held>);

struct Held {
    fd: OwnedFd,
    /// The type of its file system, once it was asked for; `None` where it is not told.
    kind: OnceLock<Option<u32>>,
}

impl Dir {
    /// The type of the file system that it and new files in it are on; `None` where that is not told.
    pub fn kind(&self) -> Option<u32> {
        *self.0.kind.get_or_init(|| fstatfs(self).ok().map(|stat| magic::kind(&stat)))
    }
}

#[cfg(test)]
impl Dir {
    /// As if it were on a file system of this type; before anybody asked.
    pub fn is_on(&self, kind: u32) {
        self.0.kind.set(Some(kind)).unwrap();
    }
}

impl From<OwnedFd> for Dir {
    fn from(fd: OwnedFd) -> Self {
        Self(Arc::new(Held { fd, kind: OnceLock::new() }))
    }
}

impl AsFd for Dir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }
}

/// A place where a file is or can be, the links on the way to it resolved.
pub(super) struct Place {
    /// The directory.
    pub dir: Dir,
    /// Its path without links; the last component is the name in `dir`.
    pub path: StoragePath,
    /// What is there.
    pub found: Option<Statx>,
}

impl Root {
    /// Opens the root; links in `path` itself are followed, the administrator wrote them.
    pub fn open(path: &Path, without_openat2: bool) -> Result<Self, Fault> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = open(path, flags, Mode::empty())
            .map_err(|errno| Fault::from_io(errno.into(), "open root").subject(path.to_string_lossy()))?;
        let mut root = Self { top: Dir::from(fd), openat2: !without_openat2, links: true, last: None };
        // Old kernels answer ENOSYS, some containers' filters EPERM.
        root.openat2 &= root.open_in_root(b"/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).is_ok();
        Ok(root)
    }

    /// The same, where links lead nowhere.
    pub fn without_links(&self) -> Self {
        Self { links: false, ..self.clone() }
    }

    /// The same, which keeps the directory of the last path open.
    pub fn with_memory(&self) -> Self {
        Self { last: Some(Arc::default()), ..self.clone() }
    }

    /// The name that `path` means: the links on the way are followed, and one in the last place if `follow` says so.
    pub fn resolve(&self, path: &StoragePath, follow: bool) -> Result<StoragePath, Errno> {
        let walked = self.walk(path.as_bytes(), follow)?;
        real_path(&walked, walked.leaf.as_deref()).ok_or(Errno::NAMETOOLONG)
    }

    fn walk(&self, path: &[u8], follow: bool) -> Result<Walked, Errno> {
        let most_links = if self.links { LINKS_MAX } else { 0 };
        walk(self.top.as_fd(), path, follow, most_links)
    }

    fn open_in_root(&self, path: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        let links = if self.links { ResolveFlags::NO_MAGICLINKS } else { ResolveFlags::NO_SYMLINKS };
        let resolve = ResolveFlags::IN_ROOT | links;
        for _ in 0..ATTEMPTS {
            match openat2(&self.top, path, flags, mode, resolve) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                other => return other,
            }
        }
        Err(Errno::AGAIN)
    }

    /// Opens what is at `path`; a link in the last place is followed unless `flags` has NOFOLLOW.
    pub fn open_at(&self, path: &StoragePath, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC;
        if self.last.is_some()
            && !flags.contains(OFlags::PATH)
            && let Some((dir, name)) = self.parent(path)?
        {
            match retry(|| openat(&dir, name, flags | OFlags::NOFOLLOW, Mode::empty())) {
                // A link is resolved from the root.
                Err(Errno::LOOP) => {}
                opened => return opened,
            }
        }
        self.open_anywhere(path, flags)
    }

    fn open_anywhere(&self, path: &StoragePath, flags: OFlags) -> Result<OwnedFd, Errno> {
        if self.openat2 {
            return self.open_in_root(path.as_bytes(), flags, Mode::empty());
        }
        let follow = !flags.contains(OFlags::NOFOLLOW);
        let walked = self.walk(path.as_bytes(), follow)?;
        let leaf = walked.leaf.as_deref().unwrap_or(b".");
        let dir = self.dir_of(walked.dir);
        retry(|| openat(&dir, leaf, flags | OFlags::NOFOLLOW, Mode::empty()))
    }

    fn dir_of(&self, dir: Option<OwnedFd>) -> Dir {
        dir.map_or_else(|| self.top.clone(), Dir::from)
    }

    /// Opens the directory that holds `path`, and gives the name in it; `None` for the root.
    pub fn parent<'path>(&self, path: &'path StoragePath) -> Result<Option<(Dir, &'path [u8])>, Errno> {
        let Some(name) = path.name() else {
            return Ok(None);
        };
        let above = above(path);
        if above == b"/" {
            return Ok(Some((self.top.clone(), name)));
        }
        let Some(last) = &self.last else { return Ok(Some((self.open_dir(above)?, name))) };
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        let dir = match &*last {
            Some((path, dir)) if path == above => dir.clone(),
            _ => last.insert((above.to_vec(), self.open_dir(above)?)).1.clone(),
        };
        Ok(Some((dir, name)))
    }

    fn open_dir(&self, path: &[u8]) -> Result<Dir, Errno> {
        if self.openat2 {
            let flags = DIRECTORY.difference(OFlags::NOFOLLOW);
            return self.open_in_root(path, flags, Mode::empty()).map(Dir::from);
        }
        Ok(self.dir_of(self.walk_to_dir(path)?))
    }

    fn walk_to_dir(&self, path: &[u8]) -> Result<Option<OwnedFd>, Errno> {
        let walked = self.walk(path, true)?;
        let Some(leaf) = &walked.leaf else {
            return Ok(walked.dir);
        };
        let dir = walked.dir.as_ref().map_or(self.top.as_fd(), AsFd::as_fd);
        openat(dir, &leaf[..], DIRECTORY, Mode::empty()).map(Some)
    }

    /// Like [`Root::parent`], for operations that the root itself must refuse.
    pub fn entry<'path>(&self, path: &'path StoragePath, op: &str) -> Result<(Dir, &'path [u8]), Fault> {
        self.parent(path).or_fault(op, path)?.ok_or_else(|| root_stays(op))
    }

    /// Where writing to `path` really goes: links are followed, the last name may be new.
    pub fn place(&self, path: &StoragePath) -> Result<Place, Fault> {
        let op = "open for writing";
        let directory = || Fault::new(FaultCode::IsADirectory, op).on_path(path.as_bytes());
        let (dir, name) = self.parent(path).or_fault(op, path)?.ok_or_else(directory)?;
        let found = look(&dir, name).or_fault(op, path)?;
        if !found.as_ref().is_some_and(is_link) {
            return Ok(Place { dir, path: path.clone(), found });
        }
        let walked = self.walk(path.as_bytes(), true).or_fault(op, path)?;
        let Some(leaf) = walked.leaf.clone() else {
            return Err(directory());
        };
        let real = real_path(&walked, Some(&leaf)).ok_or_else(|| fault(Errno::NAMETOOLONG, op, path))?;
        let dir = self.dir_of(walked.dir);
        let found = look(&dir, &leaf).or_fault(op, path)?;
        if found.as_ref().is_some_and(is_link) {
            return Err(fault(Errno::LOOP, op, path));
        }
        Ok(Place { dir, path: real, found })
    }
}

fn real_path(walked: &Walked, leaf: Option<&[u8]>) -> Option<StoragePath> {
    let mut bytes = Vec::new();
    for name in walked.parents.iter().map(Vec::as_slice).chain(leaf) {
        bytes.push(b'/');
        bytes.extend_from_slice(name);
    }
    if bytes.is_empty() {
        return Some(StoragePath::root());
    }
    StoragePath::try_from(bytes).ok()
}

/// Describes the name itself, `None` when there is nothing.
pub(super) fn look(dir: impl AsFd, name: &[u8]) -> Result<Option<Statx>, Errno> {
    match statx_at(dir, name) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Repeats a call that a signal interrupted.
pub(super) fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

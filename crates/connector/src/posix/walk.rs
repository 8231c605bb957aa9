//! Resolving a path one component at a time beneath a root, expanding links itself.
//!
//! Used where the kernel lacks `openat2`, and where the resolved *name* is needed. No descriptor
//! is ever opened through a link, so a directory renamed or replaced meanwhile cannot lead outside.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags, openat, readlinkat};
use rustix::io::Errno;

/// Most links expanded in one resolution (the kernel's `MAXSYMLINKS`).
pub(super) const LINKS_MAX: usize = 40;
/// Most components visited in one resolution; hostile links could ask for millions.
const STEPS_MAX: usize = 20_000;

/// How every directory on the way is opened.
pub(super) const DIRECTORY: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Where a path leads: a directory and a name in it that is no link (and may not exist).
pub(super) struct Walked {
    /// The directory; `None` is the root itself.
    pub dir: Option<OwnedFd>,
    /// Names of the directories from the root to `dir`.
    pub parents: Vec<Vec<u8>>,
    /// The name in `dir`; `None` when the path leads to `dir` itself.
    pub leaf: Option<Vec<u8>>,
}

/// Resolves `path` beneath `root`; a link in the last place is followed when `follow` says so.
///
/// More than `most_links` on the way are a loop.
pub(super) fn walk(root: BorrowedFd<'_>, path: &[u8], follow: bool, most_links: usize) -> Result<Walked, Errno> {
    let mut walker = Walker { root, dir: None, names: Vec::new(), pending: Vec::new(), links_left: most_links };
    walker.push(path);
    for _ in 0..STEPS_MAX {
        let Some(name) = walker.pending.pop() else {
            return Ok(walker.done(None));
        };
        if let Some(leaf) = walker.step(name, follow)? {
            return Ok(walker.done(Some(leaf)));
        }
    }
    Err(Errno::LOOP)
}

struct Walker<'root> {
    root: BorrowedFd<'root>,
    dir: Option<OwnedFd>,
    names: Vec<Vec<u8>>,
    /// What is still to be resolved, next one last.
    pending: Vec<Vec<u8>>,
    links_left: usize,
}

impl Walker<'_> {
    fn push(&mut self, path: &[u8]) {
        let parts = path.split(|&b| b == b'/').rev();
        self.pending.extend(parts.filter(|part| !matches!(*part, b"" | b".")).map(<[u8]>::to_vec));
    }

    fn here(&self) -> BorrowedFd<'_> {
        self.dir.as_ref().map_or(self.root, AsFd::as_fd)
    }

    /// Takes one component; returns it when the resolution ends with it.
    fn step(&mut self, name: Vec<u8>, follow: bool) -> Result<Option<Vec<u8>>, Errno> {
        if name == b".." {
            self.climb();
            return Ok(None);
        }
        if self.pending.is_empty() {
            if !follow {
                return Ok(Some(name));
            }
            return match readlinkat(self.here(), &name[..], Vec::new()) {
                Ok(text) => self.expand(text.as_bytes()).map(|()| None),
                Err(Errno::INVAL | Errno::NOENT) => Ok(Some(name)),
                Err(errno) => Err(errno),
            };
        }
        match openat(self.here(), &name[..], DIRECTORY, Mode::empty()) {
            Ok(dir) => {
                self.dir = Some(dir);
                self.names.push(name);
                Ok(None)
            }
            Err(errno @ (Errno::NOTDIR | Errno::LOOP)) => match readlinkat(self.here(), &name[..], Vec::new()) {
                Ok(text) => self.expand(text.as_bytes()).map(|()| None),
                Err(Errno::INVAL) => Err(Errno::NOTDIR),
                Err(_) => Err(errno),
            },
            Err(errno) => Err(errno),
        }
    }

    fn expand(&mut self, text: &[u8]) -> Result<(), Errno> {
        self.links_left = self.links_left.checked_sub(1).ok_or(Errno::LOOP)?;
        if text.first() == Some(&b'/') {
            self.dir = None;
            self.names.clear();
        }
        self.push(text);
        Ok(())
    }

    /// Goes up as many levels as `..` follow each other, by walking down again from the root:
    /// opening `..` would lead outside if the directory had been moved there meanwhile.
    fn climb(&mut self) {
        self.names.pop();
        while self.pending.last().is_some_and(|next| next == b"..") {
            self.pending.pop();
            self.names.pop();
        }
        self.dir = None;
        self.pending.extend(self.names.drain(..).rev());
    }

    fn done(self, leaf: Option<Vec<u8>>) -> Walked {
        Walked { dir: self.dir, parents: self.names, leaf }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::os::unix::fs::symlink;
    use std::path::Path;

    /// The names on the way and the last one, joined.
    fn walked(root: &Path, path: &str, follow: bool) -> Result<String, Errno> {
        let root = File::open(root).unwrap();
        let walked = walk(root.as_fd(), path.as_bytes(), follow, LINKS_MAX)?;
        let names = walked.parents.into_iter().chain(walked.leaf);
        let names: Vec<_> = names.map(|n| String::from_utf8(n).unwrap()).collect();
        Ok(names.join("/"))
    }

    #[test]
    fn links_lead_to_the_name_they_mean() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        fs::create_dir_all(root.join("a/b")).unwrap();
        fs::create_dir_all(root.join("c")).unwrap();
        for (text, link) in [
            ("/c", "a/abs"),
            ("../../c/new", "a/b/up"),
            ("..", "a/b/parent"),
            ("../../../../..", "a/b/top"),
            ("b/../b/parent/b", "a/mixed"),
            ("/", "a/root"),
        ] {
            symlink(text, root.join(link)).unwrap();
        }
        let follow = |path| walked(root, path, true).unwrap();
        assert_eq!(follow("a/abs/x"), "c/x");
        assert_eq!(follow("a/b/up"), "c/new");
        assert_eq!(follow("a/b/parent"), "a");
        assert_eq!(follow("a/b/parent/b/up"), "c/new");
        assert_eq!(follow("a/b/top"), "");
        assert_eq!(follow("a/root"), "");
        assert_eq!(follow("a/root/a/mixed/x"), "a/b/x");
        assert_eq!(walked(root, "a/abs", false), Ok("a/abs".into()));
        assert_eq!(walked(root, "a/none/x", true), Err(Errno::NOENT));
    }

    #[test]
    fn hostile_links_are_given_up_soon() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let deep = vec!["d"; 300].join("/");
        fs::create_dir_all(root.join(&deep).join("d")).unwrap();
        // Each `..` walks down again from the root.
        let zigzag = "d/../".repeat(800);
        symlink(format!("{zigzag}again"), root.join(&deep).join("again")).unwrap();
        let path = format!("{deep}/again");
        assert_eq!(walked(root, &path, true), Err(Errno::LOOP));
        symlink("self/x", root.join("self")).unwrap();
        assert_eq!(walked(root, "self", true), Err(Errno::LOOP));
    }
}

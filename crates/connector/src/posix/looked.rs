//! Directories in which nothing unfinished was seen, so that not each small file has to look for what an earlier run left.
//!
//! A look for a name that is not there costs a tenth of what storing a file of 10 KiB does. What begins after the look is
//! known where this process begins it. Unfinished files that others begin meanwhile are as if they had begun later: theirs
//! is the last commit, and what they leave behind is for the next who writes that name.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::fs::{Dir as RawStream, Mode, OFlags, openat};
use rustix::io::Errno;

use super::resolve::{Dir, retry};
use crate::path::StoragePath;
use crate::staging::HIDDEN_WORD;

/// How long a look counts.
const HOLDS: Duration = Duration::from_secs(10);
/// Entries that are looked at: in a larger directory looking for single names is cheaper.
const MOST_ENTRIES: usize = 1024;
/// Directories that are remembered.
const MOST_DIRECTORIES: usize = 256;

/// How many unfinished files had been begun before a directory was made.
pub(super) struct Making {
    begun: u64,
}

/// What is remembered.
#[derive(Default)]
pub(super) struct Looked(Mutex<State>);

#[derive(Default)]
struct State {
    /// Unfinished files that were begun here since the start: whoever looks while one is may have missed it.
    begun: u64,
    /// By their paths as they were asked for.
    directories: HashMap<Vec<u8>, Look>,
}

struct Look {
    until: Instant,
    clean: bool,
}

impl Looked {
    /// Whether nothing unfinished is in the directory `dir`, which has this path; `false` also where that is not known.
    pub fn is_clean(&self, path: &[u8], dir: &Dir, now: Instant) -> bool {
        let begun = {
            let state = self.state();
            match state.directories.get(path) {
                Some(look) if now < look.until => return look.clean,
                _ => state.begun,
            }
        };
        let seen = look_through(dir).unwrap_or(false);
        self.remember(path.to_vec(), seen, begun, now)
    }

    /// Before a directory is made: what [`Looked::made`] wants.
    pub fn making(&self) -> Making {
        Making { begun: self.state().begun }
    }

    /// A directory was made, so nothing is in it: large ones that this process fills need no looks for single names.
    pub fn made(&self, making: Making, path: &StoragePath, now: Instant) {
        self.remember([path.as_bytes(), b"/"].concat(), true, making.begun, now);
    }

    /// Whether it is clean: nothing was `seen`, and nothing has begun since the count was `begun`.
    fn remember(&self, path: Vec<u8>, seen: bool, begun: u64, now: Instant) -> bool {
        let mut state = self.state();
        let clean = seen && state.begun == begun;
        if state.directories.len() >= MOST_DIRECTORIES {
            state.directories.retain(|_, look| now < look.until);
        }
        if state.directories.len() >= MOST_DIRECTORIES
            && let Some(other) = state.directories.keys().next().cloned()
        {
            // Which one does not matter: it is looked through once more.
            state.directories.remove(&other);
        }
        state.directories.insert(path, Look { until: now + HOLDS, clean });
        clean
    }

    /// An unfinished file was begun in the directory with this path: from now on each name is looked for.
    pub fn begun_in(&self, path: &[u8]) {
        let mut state = self.state();
        state.begun += 1;
        if let Some(look) = state.directories.get_mut(path) {
            look.clean = false;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether all of a directory was looked through and none of it is unfinished.
fn look_through(dir: &Dir) -> Result<bool, Errno> {
    // By hand: a directory may be open as a place only (O_PATH), and `read_from` would keep it so.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut entries = RawStream::new(retry(|| openat(dir, c".", flags, Mode::empty()))?)?;
    for _ in 0..MOST_ENTRIES {
        let Some(entry) = entries.read() else { return Ok(true) };
        let name = entry?;
        if name.file_name().to_bytes().windows(HIDDEN_WORD.len()).any(|part| part == HIDDEN_WORD) {
            return Ok(false);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::posix::resolve::Root;

    fn dir(folder: &tempfile::TempDir) -> Dir {
        let root = Root::open(folder.path(), false).unwrap();
        let inside = StoragePath::resolve(&StoragePath::root(), b"x").unwrap();
        root.parent(&inside).unwrap().unwrap().0
    }

    #[test]
    fn a_look_counts_for_a_while_and_until_something_is_begun() {
        let folder = tempfile::tempdir().unwrap();
        let (dir, looked, start) = (dir(&folder), Looked::default(), Instant::now());
        assert!(looked.is_clean(b"/", &dir, start));
        std::fs::write(folder.path().join(".x.whimbrel-part"), "").unwrap();
        let late = start + HOLDS;
        assert!(looked.is_clean(b"/", &dir, late - Duration::from_nanos(1)), "others begin what they like");
        assert!(!looked.is_clean(b"/", &dir, late));
        std::fs::remove_file(folder.path().join(".x.whimbrel-part")).unwrap();
        assert!(!looked.is_clean(b"/", &dir, late), "each is looked for now");
        let later = late + HOLDS;
        assert!(looked.is_clean(b"/", &dir, later));
        looked.begun_in(b"/elsewhere/");
        assert!(looked.is_clean(b"/", &dir, later));
        looked.begun_in(b"/");
        assert!(!looked.is_clean(b"/", &dir, later));
    }

    #[test]
    fn a_new_directory_is_clean_unless_something_was_begun_meanwhile() {
        let folder = tempfile::tempdir().unwrap();
        let (dir, looked, start) = (dir(&folder), Looked::default(), Instant::now());
        let new = StoragePath::resolve(&StoragePath::root(), b"new").unwrap();
        // Nobody looks again, whatever has come: what is there would be seen.
        std::fs::write(folder.path().join(".x.whimbrel-part"), "").unwrap();
        looked.made(looked.making(), &new, start);
        assert!(looked.is_clean(b"/new/", &dir, start));
        assert!(!looked.is_clean(b"/new/", &dir, start + HOLDS));
        let making = looked.making();
        looked.begun_in(b"/new/");
        looked.made(making, &new, start);
        assert!(!looked.is_clean(b"/new/", &dir, start));
    }

    #[test]
    fn a_large_directory_is_not_looked_through_and_not_many_are_remembered() {
        let folder = tempfile::tempdir().unwrap();
        let (dir, looked, start) = (dir(&folder), Looked::default(), Instant::now());
        for number in 0..MOST_ENTRIES {
            std::fs::write(folder.path().join(number.to_string()), "").unwrap();
        }
        assert!(!looked.is_clean(b"/", &dir, start));
        for number in 0..2 * MOST_DIRECTORIES {
            looked.is_clean(number.to_string().as_bytes(), &dir, start);
            assert!(looked.state().directories.contains_key(number.to_string().as_bytes()), "the next file finds it");
        }
        assert_eq!(looked.state().directories.len(), MOST_DIRECTORIES);
        looked.is_clean(b"/new/", &dir, start + HOLDS);
        assert_eq!(looked.state().directories.len(), 1);
    }
}

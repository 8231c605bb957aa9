//! Files of the administrator that are read again when they have changed.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use whimbrel_engine::Fault;
use whimbrel_trust::clock::now;

use crate::small::SmallFile;

/// Seconds after a change during which another one may leave no trace: clocks of file systems are coarse.
const RACY: i64 = 2;

/// What tells one state of a file from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    file: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(facts: &Metadata) -> Self {
        Self {
            file: (facts.dev(), facts.ino()),
            size: facts.size(),
            modified: (facts.mtime(), facts.mtime_nsec()),
            changed: (facts.ctime(), facts.ctime_nsec()),
        }
    }
}

/// A file and what it meant when it was last read.
#[derive(Debug)]
pub struct Watched<T> {
    path: PathBuf,
    op: &'static str,
    most: u64,
    last: Option<Reading<T>>,
}

#[derive(Debug)]
struct Reading<T> {
    stamp: Stamp,
    /// It was read long enough after its last change.
    settled: bool,
    bytes: Vec<u8>,
    meaning: Result<Arc<T>, Fault>,
}

impl<T> Watched<T> {
    /// A file of at most so many bytes; nothing is read yet.
    pub fn new(path: PathBuf, op: &'static str, most: u64) -> Self {
        Self { path, op, most, last: None }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it means now; `parse` is called once for each change, and logs what is worth a line in the log.
    ///
    /// # Errors
    /// Those of `parse`, and of the file; `NotAuthorized` for one that everybody may write.
    pub fn read(&mut self, parse: impl FnOnce(&[u8]) -> Result<T, Fault>) -> Result<Arc<T>, Fault> {
        let (op, name) = (self.op, self.path.display().to_string());
        let failed = |error| Fault::from_io(error, op).subject(&name);
        let stamp = Stamp::of(&fs::metadata(&self.path).map_err(failed)?);
        if let Some(last) = self.last.as_ref().filter(|last| last.settled && last.stamp == stamp) {
            return last.meaning.clone();
        }
        let file = SmallFile::open(&self.path, op, self.most)?;
        let facts = file.facts()?;
        file.check_writers()?;
        let bytes = file.bytes()?;
        let (stamp, settled) = (Stamp::of(&facts), now().secs - facts.ctime() > RACY);
        let known = self.last.take().filter(|last| last.bytes == bytes);
        let meaning = match known {
            Some(last) => last.meaning,
            None => parse(&bytes).map(Arc::new).map_err(|fault| fault.subject(&name)),
        };
        self.last = Some(Reading { stamp, settled, bytes, meaning: meaning.clone() });
        meaning
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use whimbrel_engine::FaultCode;

    use super::*;

    fn text(bytes: &[u8]) -> Result<String, Fault> {
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }

    #[test]
    fn a_change_counts_at_once_and_the_same_bytes_are_read_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("map");
        fs::write(&path, "one").unwrap();
        let mut watched = Watched::new(path.clone(), "read", 10);
        assert_eq!(*watched.read(text).unwrap(), "one");
        // Of the same length, within the same tick of the clock perhaps.
        for other in ["two", "six", "ten"] {
            fs::write(&path, other).unwrap();
            assert_eq!(*watched.read(text).unwrap(), other);
        }
        let same = watched.read(|_| panic!("it has not changed")).unwrap();
        assert_eq!(*same, "ten");
        let new = dir.path().join("new");
        fs::write(&new, "elf").unwrap();
        fs::rename(new, &path).unwrap();
        assert_eq!(*watched.read(text).unwrap(), "elf");
        fs::remove_file(&path).unwrap();
        assert_eq!(watched.read(text).unwrap_err().code, FaultCode::NotFound);
    }

    #[test]
    fn a_file_that_anybody_may_write_or_that_is_too_long_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("map");
        fs::write(&path, "12345678901").unwrap();
        let mut watched = Watched::new(path.clone(), "read", 10);
        let fault = watched.read(text).unwrap_err();
        assert_eq!((fault.code, fault.subject.as_str()), (FaultCode::InvalidArgument, path.to_str().unwrap()));
        fs::write(&path, "short").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        assert!(watched.read(text).unwrap_err().detail.contains("chmod o-w"));
        fs::set_permissions(&path, Permissions::from_mode(0o664)).unwrap();
        assert_eq!(*watched.read(text).unwrap(), "short");
    }
}

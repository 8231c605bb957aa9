//! A directory of what a program keeps for itself: nobody else reads it, and a file in it is whole or not there.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The directory.
#[derive(Debug)]
pub struct Kept {
    directory: PathBuf,
}

impl Kept {
    /// The directory, made if it is not there.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn at(directory: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        Ok(Self { directory: directory.to_owned() })
    }

    /// Where a program of this name keeps its things: `/var/lib/NAME` for root (`uid` 0), else `~/.local/state/NAME` (XDG_STATE_HOME wins);
    /// `None`: nobody has said where home is.
    pub fn usual(name: &str, uid: u32) -> Option<PathBuf> {
        if uid == 0 {
            return Some(Path::new("/var/lib").join(name));
        }
        let set = |variable| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
        let base = set("XDG_STATE_HOME").or_else(|| set("HOME").map(|home| home.join(".local/state")))?;
        Some(base.join(name))
    }

    /// Where a file of this name is, or would be.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Writes a file, which is on disk when this returns; one that is there is replaced at once.
    ///
    /// # Errors
    /// Those of the file system; what was there is there still.
    pub fn write(&self, name: &str, bytes: &[u8], mode: u32) -> io::Result<()> {
        let draft = self.path(&format!(".{name}.new"));
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&draft)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&draft, self.path(name))?;
        File::open(&self.directory)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_file_is_replaced_whole_and_has_its_mode() {
        let directory = tempfile::tempdir().expect("a directory");
        let kept = Kept::at(&directory.path().join("a/b")).expect("it is made");
        for bytes in [&b"one"[..], b"two"] {
            kept.write("file", bytes, 0o600).expect("it is written");
            assert_eq!(fs::read(kept.path("file")).expect("it is there"), bytes);
        }
        let mode = |path: &Path| fs::metadata(path).expect("it is there").permissions().mode() & 0o777;
        assert_eq!((mode(&kept.path("file")), mode(&directory.path().join("a/b"))), (0o600, 0o700));
        assert_eq!(fs::read_dir(directory.path().join("a/b")).expect("it can be read").count(), 1);
    }
}

//! Memory that the measured files lie in, and destinations as each round must find them.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use whimbrel_testkit::tmpfs::Tmpfs;

use crate::Outcome;

const MIB: u64 = 1 << 20;

/// A tmpfs whose next files find pages that were in use a moment ago.
///
/// A guest that gives free memory back to its host takes a page again at twenty times the price of one that it still has
/// (4 GiB written: 0.4 s of a processor, or 9.7 s): who comes after a pause, or takes longer, would pay for that alone.
pub struct Room {
    tmpfs: Tmpfs,
    /// Bytes that are written and removed ahead of each round.
    ahead: u64,
}

impl Room {
    /// For one file on huge pages, hot, and copies of it. Needs three times its size.
    pub fn for_file(bytes: u64) -> Outcome<Room> {
        let ahead = bytes * 2;
        Ok(Room { tmpfs: Tmpfs::mount_huge(bytes + ahead + 512 * MIB)?, ahead })
    }

    /// For many small files and a copy of each, at most 256 MiB of them.
    pub fn for_small_files() -> Outcome<Room> {
        Ok(Room { tmpfs: Tmpfs::mount(1024 * MIB)?, ahead: 512 * MIB })
    }

    /// What is called so in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.tmpfs.path().join(name)
    }

    /// Removes a file, if it is there, and has pages for the next one at hand.
    pub fn without(&self, path: &Path) -> Outcome<()> {
        remove(path)?;
        self.have_pages()
    }

    /// The same for a directory, which is made anew.
    pub fn emptied(&self, path: &Path) -> Outcome<()> {
        empty(path)?;
        self.have_pages()
    }

    fn have_pages(&self) -> Outcome<()> {
        let path = self.file(".pages");
        let mut file = File::create(&path)?;
        let block = vec![0; 16 << 20];
        for _ in 0..self.ahead / block.len() as u64 {
            file.write_all(&block)?;
        }
        Ok(fs::remove_file(&path)?)
    }
}

/// Removes a file, if it is there.
pub fn remove(path: &Path) -> Outcome<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

/// Makes an empty directory that `nobody` may write to.
pub fn empty(path: &Path) -> Outcome<()> {
    if path.exists() {
        fs::remove_dir_all(path)?;
    }
    fs::create_dir(path)?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o777))?)
}

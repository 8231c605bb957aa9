//! A private memory file system for a test, so that disks do not blur what is measured.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Attempt, Error, Result};
use crate::leftovers;

/// A mounted tmpfs, writable by everybody; unmounted, with all its files, on drop.
#[derive(Debug)]
pub struct Tmpfs {
    path: PathBuf,
}

impl Tmpfs {
    /// Mounts one of at most `bytes` below the directory for temporary files. Needs root.
    pub fn mount(bytes: u64) -> Result<Tmpfs> {
        Tmpfs::mount_with(bytes, "")
    }

    /// Like [`Tmpfs::mount`], with huge pages wherever a file is large enough: fewer page faults in the way of a
    /// measurement, at the price of whole huge pages for small files.
    pub fn mount_huge(bytes: u64) -> Result<Tmpfs> {
        Tmpfs::mount_with(bytes, ",huge=always")
    }

    /// Changes how much it holds.
    pub fn resize(&self, bytes: u64) -> Result<()> {
        let what = || format!("resizing the tmpfs on {}", self.path.display());
        let options = format!("remount,size={bytes}");
        let output = Command::new("mount").args(["-o", &options]).arg(&self.path).output().attempt(what)?;
        match output.status.success() {
            true => Ok(()),
            false => Err(Error::new(what(), String::from_utf8_lossy(&output.stderr))),
        }
    }

    fn mount_with(bytes: u64, options: &str) -> Result<Tmpfs> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        leftovers::sweep();
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}{}-{number}", leftovers::MOUNT_PREFIX, leftovers::owner());
        let path = std::env::temp_dir().join(name);
        let what = || format!("mounting a tmpfs on {}", path.display());
        fs::create_dir(&path).attempt(what)?;
        let options = format!("size={bytes},mode=1777{options}");
        let output = Command::new("mount").args(["-t", "tmpfs", "-o", &options, "tmpfs"]).arg(&path).output();
        let refused = match output {
            Ok(output) if output.status.success() => return Ok(Tmpfs { path }),
            Ok(output) => Error::new(what(), String::from_utf8_lossy(&output.stderr)),
            Err(error) => Err::<(), _>(error).attempt(what).expect_err("it is an error"),
        };
        // Only the empty directory of a mount that failed.
        let _ = fs::remove_dir(&path);
        Err(refused)
    }

    /// Its root directory.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        leftovers::unmount(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_live_in_memory_up_to_the_size_and_go_with_the_mount() {
        if !crate::require_root() {
            return;
        }
        let tmpfs = Tmpfs::mount(1 << 20).expect("mounted");
        let path = tmpfs.path().to_path_buf();
        let file = path.join("file");
        fs::write(&file, vec![1; 1 << 19]).expect("fits");
        assert!(fs::write(path.join("large"), vec![1; 1 << 20]).is_err(), "the size is a limit");
        let table = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        assert!(table.contains(path.to_str().expect("text")));
        let held = fs::File::open(&file).expect("open");
        drop(tmpfs);
        assert!(!path.exists(), "gone even while a file is open");
        drop(held);
    }

    #[test]
    fn huge_pages_are_asked_for_and_two_mounts_do_not_meet() {
        if !crate::require_root() {
            return;
        }
        let (huge, plain) = (Tmpfs::mount_huge(64 << 20).expect("mounted"), Tmpfs::mount(1 << 20).expect("mounted"));
        assert_ne!(huge.path(), plain.path());
        let table = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
        let line = |path: &Path| {
            table.lines().find(|line| line.contains(path.to_str().expect("text"))).expect("listed").to_owned()
        };
        assert!(line(huge.path()).contains("huge=always"));
        assert!(!line(plain.path()).contains("huge="));
    }
}

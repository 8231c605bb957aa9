//! A control group of the kernel, for as long as it is held.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Attempt, Result};
use crate::leftovers::{self, GROUP_PREFIX, GROUPS};

/// A group of processes or threads that get processor time by rules of their own, until this is dropped.
#[derive(Debug)]
pub(crate) struct Group(PathBuf);

impl Group {
    /// An empty group. Needs root. `None` where the kernel has none that we could limit (only version 1 lets us).
    pub(crate) fn new() -> Result<Option<Self>> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        if !Path::new(GROUPS).join("cgroup.procs").exists() {
            return Ok(None);
        }
        leftovers::sweep();
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = PathBuf::from(format!("{GROUPS}/{GROUP_PREFIX}{}-{number}", leftovers::owner()));
        fs::create_dir(&path).attempt(|| format!("making {}", path.display()))?;
        Ok(Some(Self(path)))
    }

    /// One of its files.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a number to one of its files.
    pub(crate) fn write(&self, name: &str, value: u32) -> Result<()> {
        let file = self.file(name);
        fs::write(&file, value.to_string()).attempt(|| format!("writing {}", file.display()))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let all = fs::read_to_string(self.file("cgroup.procs")).unwrap_or_default();
        for process in all.split_whitespace() {
            // One that has ended meanwhile needs no place.
            let _ = fs::write(Path::new(GROUPS).join("cgroup.procs"), process);
        }
        let _ = fs::remove_dir(&self.0);
    }
}

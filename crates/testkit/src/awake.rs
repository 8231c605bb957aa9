//! Memory that is kept fast on a machine that does little.
//!
//! Where hardly anybody uses memory, processors slow it down to save power, and what runs for a moment now and then finds it so: with
//! 2 % of a processor on a machine that else does nothing, a program copied 0.14 to 0.33 GB out of files in memory with a second of processor
//! time, and 4.3 GB while another read them again and again (unrestricted: 3.0 to 4.8). A host of which somebody has 2 % is
//! busy with others.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use crate::error::Result;
use crate::group::Group;

/// Bytes that are read at a time.
const PIECE: usize = 64 << 10;

/// Until it is dropped, files are read again and again whenever a processor has nothing else to do.
#[derive(Debug)]
pub struct Awake {
    stop: Arc<AtomicBool>,
    read: Arc<AtomicU64>,
    reader: Option<JoinHandle<()>>,
    _group: Group,
}

impl Awake {
    /// Reads a file, or all in a directory. Needs root. `None` where the kernel cannot put a thread behind all others.
    pub fn reading(path: &Path) -> Result<Option<Self>> {
        let Some(group) = Group::new()? else { return Ok(None) };
        if !group.file("cpu.idle").exists() {
            return Ok(None);
        }
        group.write("cpu.idle", 1)?;
        let (stop, read) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (tasks, path) = (group.file("tasks"), path.to_owned());
        let reader = thread::spawn({
            let (stop, read) = (stop.clone(), read.clone());
            // `0` is the thread that writes it.
            move || {
                let run = std::fs::write(&tasks, "0").and_then(|()| keep_reading(&path, &stop, &read));
                run.unwrap_or_else(|error| eprintln!("memory is not kept awake: {}: {error}", path.display()));
            }
        });
        Ok(Some(Self { stop, read, reader: Some(reader), _group: group }))
    }

    /// Bytes that were read so far.
    pub fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }
}

impl Drop for Awake {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // It cannot fail: nothing in it panics.
        let _ = self.reader.take().map(JoinHandle::join);
    }
}

fn keep_reading(path: &Path, stop: &AtomicBool, read: &AtomicU64) -> io::Result<()> {
    let mut files = Vec::new();
    find(path, &mut files)?;
    let mut piece = vec![0; PIECE];
    while !files.is_empty() {
        for file in &files {
            let mut file = File::open(file)?;
            loop {
                if stop.load(Ordering::Relaxed) {
                    return Ok(());
                }
                match file.read(&mut piece)? {
                    0 => break,
                    bytes => read.fetch_add(bytes as u64, Ordering::Relaxed),
                };
            }
        }
    }
    Ok(())
}

fn find(path: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    if !path.is_dir() {
        files.extend(std::fs::metadata(path)?.len().gt(&0).then(|| path.to_owned()));
        return Ok(());
    }
    std::fs::read_dir(path)?.try_for_each(|entry| find(&entry?.path(), files))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn all_files_are_read_again_and_again_until_it_is_dropped() {
        if !crate::require_root() {
            return;
        }
        let folder = tempfile::tempdir().expect("made");
        std::fs::create_dir(folder.path().join("below")).expect("made");
        for (name, bytes) in [("one", PIECE + 1), ("below/other", 10), ("empty", 0)] {
            std::fs::write(folder.path().join(name), vec![1; bytes]).expect("written");
        }
        let Some(awake) = Awake::reading(folder.path()).expect("started") else { return };
        let began = Instant::now();
        while awake.read() < 10 * (PIECE as u64 + 11) {
            assert!(began.elapsed() < Duration::from_secs(60), "{} bytes", awake.read());
            thread::yield_now();
        }
        let read = awake.read.clone();
        drop(awake);
        let after = read.load(Ordering::Relaxed);
        assert_eq!((Arc::strong_count(&read), read.load(Ordering::Relaxed)), (1, after), "the thread has ended");
    }

    #[test]
    fn where_nothing_is_to_be_read_it_ends() {
        let (folder, stop, read) = (tempfile::tempdir().expect("made"), AtomicBool::new(false), AtomicU64::new(0));
        assert!(keep_reading(folder.path(), &stop, &read).is_ok());
        assert!(keep_reading(&folder.path().join("nothing"), &stop, &read).is_err());
    }
}

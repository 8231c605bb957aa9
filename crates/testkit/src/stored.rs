//! Damage to what is stored: in a file, and on the disk below it.

use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::error::{Attempt as _, Result};
use crate::leftovers;
use crate::system::{mount_image, open_like_tmp, run};

/// Bytes at the ends of a leaf by which it is seen whether it is there.
const SEEN: u64 = 1024;

/// Inverts the lowest bit of the byte at `at`, if the file is that long.
pub fn flip_bit(path: &Path, at: u64) -> std::io::Result<()> {
    let file = File::options().read(true).write(true).open(path)?;
    let mut byte = [0];
    if file.read_at(&mut byte, at)? == 1 {
        file.write_all_at(&[byte[0] ^ 1], at)?;
    }
    Ok(())
}

/// Pages of a file that are in this host's memory.
pub fn pages_in_memory(path: &Path) -> std::io::Result<u64> {
    let file = File::options().read(true).write(true).open(path)?;
    whimbrel_sys::resident::resident_pages(file.as_fd(), 0..file.metadata()?.len())
}

/// The start of the first leaf (of `leaf` bytes) of a random file that has begun to arrive in `unfinished` and is not
/// complete: so it cannot have been read back yet.
pub fn begun_leaf(unfinished: &Path, source: &Path, leaf: u64) -> Option<u64> {
    let (stored, wanted) = (fs::read(unfinished).ok()?, fs::read(source).ok()?);
    let size = wanted.len() as u64;
    let slice = |bytes: &[u8], start: u64, end: u64| bytes.get(start as usize..end as usize).map(<[u8]>::to_vec);
    let begun = |start: &u64| {
        let end = (start + leaf).min(size);
        // Shorter ones come in one block.
        let long = end - start > 8 * SEEN;
        let first = (*start, start + SEEN);
        let is_there = long && slice(&stored, first.0, first.1) == slice(&wanted, first.0, first.1);
        is_there && slice(&stored, end - SEEN, end).is_none_or(|tail| tail.iter().all(|&byte| byte == 0))
    };
    (0..size).step_by(leaf as usize).find(begun)
}

/// Ends a file system without writing what waits, its journal included: `EXT4_IOC_SHUTDOWN` with
/// `EXT4_GOING_FLAGS_NOLOGFLUSH` (fs/ext4/ext4.h).
const SHUTDOWN: &str = "import fcntl, os, struct, sys
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587D, struct.pack('I', 2))";

/// A file system of its own, ext4 on a file, whose bytes can be changed below it; writable by everybody, unmounted on
/// drop.
#[derive(Debug)]
pub struct Disk {
    image: tempfile::NamedTempFile,
    mount: PathBuf,
}

impl Disk {
    /// Makes and mounts one of `bytes`; `None`, said on standard output, where that needs rights or programs that are
    /// not there.
    pub fn mount(bytes: u64) -> Option<Disk> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        leftovers::sweep();
        let name =
            format!("{}{}-disk-{}", leftovers::MOUNT_PREFIX, leftovers::owner(), COUNT.fetch_add(1, Ordering::Relaxed));
        let mount = std::env::temp_dir().join(name);
        let image = tempfile::NamedTempFile::new().ok()?;
        image.as_file().set_len(bytes).ok()?;
        fs::create_dir(&mount).ok()?;
        let done = run(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(image.path()))
            .and_then(|()| mount_image(image.path(), &mount))
            .and_then(|()| open_like_tmp(&mount));
        if done.is_err() {
            println!("skipped: needs root, mkfs.ext4 and loop devices");
            leftovers::unmount(&mount);
            return None;
        }
        Some(Disk { image, mount })
    }

    /// Its root directory.
    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// Makes everything durable.
    pub fn settle(&self) -> Result<()> {
        let what = || format!("syncing {}", self.mount.display());
        rustix::fs::syncfs(File::open(&self.mount).attempt(what)?).attempt(what)
    }

    /// Cuts the file system off from its bytes, as a loss of power does: what was not synced is lost, and everything fails until
    /// [`Disk::come_back`]. What the kernel has written by itself is there, as on any host.
    pub fn cut(&self) -> Result<()> {
        run(Command::new("python3").args(["-c", SHUTDOWN]).arg(&self.mount))
    }

    /// Mounts it anew, once nobody uses it any more; for so long it is waited.
    pub fn come_back(&self, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        loop {
            match self.mount_anew() {
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => {}
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Fails as long as anybody uses what was cut off, in another mount namespace, too: then that is what is mounted again.
    fn mount_anew(&self) -> Result<()> {
        let what = || format!("using {}", self.mount.display());
        let device = |path: &Path| fs::metadata(path).map(|metadata| metadata.dev()).attempt(what);
        if device(&self.mount)? != device(self.mount.parent().unwrap_or(&self.mount))? {
            run(Command::new("umount").arg(&self.mount))?;
        }
        mount_image(self.image.path(), &self.mount)?;
        tempfile::tempfile_in(&self.mount).map(drop).attempt(what)
    }

    /// Makes `file` durable, then changes every copy of `mark`, which begins a sector, on the disk and not in the
    /// memory above it; how many there were.
    pub fn damage(&self, file: &Path, mark: &[u8]) -> std::io::Result<usize> {
        File::open(file)?.sync_all()?;
        let bytes = fs::read(self.image.path())?;
        let sectors = bytes.chunks(512).enumerate().filter(|(_, sector)| sector.starts_with(mark));
        let found: Vec<u64> = sectors.map(|(number, _)| number as u64 * 512).collect();
        for &at in &found {
            self.image.as_file().write_all_at(&[!mark[0]], at)?;
        }
        self.image.as_file().sync_all()?;
        Ok(found.len())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        leftovers::unmount(&self.mount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset;

    #[test]
    fn a_leaf_is_begun_while_its_end_is_not_there() {
        let directory = tempfile::tempdir().expect("made");
        let (source, copy) = (directory.path().join("source"), directory.path().join("copy"));
        dataset::random_file(&source, 50_000, 1).expect("made");
        let bytes = fs::read(&source).expect("read");
        for (stored, begun) in [(0, None), (2000, Some(0)), (16_384, None), (18_000, Some(16_384)), (50_000, None)] {
            fs::write(&copy, &bytes[..stored]).expect("written");
            assert_eq!(begun_leaf(&copy, &source, 16_384), begun, "{stored}");
        }
        flip_bit(&copy, 7).expect("flipped");
        flip_bit(&copy, 50_000).expect("nothing is there");
        let changed = fs::read(&copy).expect("read");
        assert_eq!((changed[7], changed.len()), (bytes[7] ^ 1, 50_000));
    }

    #[test]
    fn a_disk_is_damaged_below_the_memory_that_programs_read() {
        let Some(disk) = Disk::mount(32 << 20) else { return };
        let mark = b"a mark that is nowhere else";
        let file = disk.path().join("file");
        fs::write(&file, [&[0; 8192][..], mark].concat()).expect("written");
        assert_eq!(disk.damage(&file, mark).expect("changed"), 1);
        assert_eq!(&fs::read(&file).expect("read")[8192..], mark, "memory has it still");
        let direct =
            Command::new("dd").args(["iflag=direct", "bs=4096"]).arg(format!("if={}", file.display())).output();
        assert_eq!(direct.expect("dd runs").stdout[8192..8193], [!mark[0]]);
    }

    #[test]
    fn a_loss_of_power_takes_what_was_not_synced_and_nothing_else() {
        let Some(disk) = Disk::mount(32 << 20) else { return };
        let path = |name: &str| disk.path().join(name);
        fs::write(path("kept"), "synced").expect("written");
        disk.settle().expect("synced");
        fs::write(path("lost"), "not synced").expect("written");
        fs::rename(path("kept"), path("renamed")).expect("renamed");
        disk.cut().expect("cut off");
        disk.come_back(Duration::from_secs(60)).expect("mounted again");
        assert_eq!(fs::read(path("kept")).expect("its name is as it was"), b"synced");
        assert!(!path("lost").exists() && !path("renamed").exists());
    }
}

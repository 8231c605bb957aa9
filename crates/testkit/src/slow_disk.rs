//! A disk that is as slow as a test wants it: a file system on a loop device that the kernel throttles.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Attempt, Result};
use crate::leftovers;
use crate::system::{mount_image, open_like_tmp, run};

/// Where limits of block devices are set for all processes.
const THROTTLE: &str = "/sys/fs/cgroup/blkio/blkio.throttle";

/// A mounted ext4 whose device reads and writes no faster than it was told to; gone on drop.
#[derive(Debug)]
pub struct SlowDisk {
    path: PathBuf,
    /// `major:minor` of its device.
    device: String,
}

impl SlowDisk {
    /// Makes one of `bytes` with these rates, bytes per second; 0 is unlimited. Needs root.
    ///
    /// Returns `None` where the kernel cannot limit block devices.
    pub fn mount(bytes: u64, read: u64, write: u64) -> Result<Option<SlowDisk>> {
        if !Path::new(&format!("{THROTTLE}.write_bps_device")).exists() {
            return Ok(None);
        }
        static COUNT: AtomicU32 = AtomicU32::new(0);
        leftovers::sweep();
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}{}-disk-{number}", leftovers::MOUNT_PREFIX, leftovers::owner());
        let path = std::env::temp_dir().join(name);
        let image = path.with_extension("image");
        let what = || format!("making a disk at {}", path.display());
        fs::create_dir(&path).attempt(what)?;
        let file = fs::File::create(&image).attempt(what)?;
        file.set_len(bytes).attempt(what)?;
        let mkfs = ["-q", "-E", "nodiscard,root_owner=0:0"];
        let made = run(Command::new("mkfs.ext4").args(mkfs).arg(&image)).and_then(|()| mount_image(&image, &path));
        // The device keeps the image; nothing of it is left when the device goes.
        let _ = fs::remove_file(&image);
        made?;
        let disk = SlowDisk { device: device_of(&path)?, path };
        open_like_tmp(&disk.path)?;
        disk.limit("read", read)?;
        disk.limit("write", write)?;
        Ok(Some(disk))
    }

    /// Its root directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn limit(&self, way: &str, rate: u64) -> Result<()> {
        let file = format!("{THROTTLE}.{way}_bps_device");
        fs::write(&file, format!("{} {rate}", self.device)).attempt(|| format!("writing {file}"))
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        // What is still to be written need not wait.
        let _ = self.limit("read", 0).and_then(|()| self.limit("write", 0));
        leftovers::unmount(&self.path);
    }
}

fn device_of(path: &Path) -> Result<String> {
    use std::os::unix::fs::MetadataExt as _;
    let device = fs::metadata(path).attempt(|| format!("describing {}", path.display()))?.dev();
    // Linux packs major and minor like this; loop devices have small ones.
    let (major, minor) = ((device >> 8) & 0xfff, (device & 0xff) | ((device >> 12) & 0xfff00));
    Ok(format!("{major}:{minor}"))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_slow_disk_writes_as_slowly_as_it_was_told_to() {
        if !crate::require_root() {
            return;
        }
        let Some(disk) = SlowDisk::mount(64 << 20, 0, 10_000_000).expect("a disk") else { return };
        let began = Instant::now();
        let mut file = fs::File::create(disk.path().join("file")).expect("made");
        file.write_all(&vec![7; 8_000_000]).expect("written");
        file.sync_all().expect("synced");
        assert!(began.elapsed() > Duration::from_millis(400), "{:?}", began.elapsed());
    }
}

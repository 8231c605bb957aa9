//! Lustre: new files are spread over several object storage targets (OSTs) before data flow.
//!
//! A file of one stripe is as fast as one OST, however many movers write it. Its stripes can be chosen only while it is
//! empty, so that happens when the hidden file is made: it is made without objects (`mknod`), `lfs setstripe` gives it its
//! layout, then it is opened. Where `lfs` fails the file gets the layout of its directory, and that is logged.
//!
//! `lfs` is run as it is configured, without a shell, in the file's directory, with `./NAME` as its last argument.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use rustix::fs::{FileType, Mode, OFlags, fstatfs, mknodat, openat};
use rustix::io::Errno;

use super::magic;
use super::meta::{statx_at, statx_fd};
use super::resolve::{Dir, retry};
use super::token::Identity;

/// Files below this keep the layout of their directory.
const LEAST: u64 = 1 << 30;
/// Bytes of a file for each of its stripes, until there are enough.
const FOR_EACH: u64 = 128 << 20;
/// Bytes of a stripe: a leaf, so that no leaf, and no chunk, ends inside a stripe, and so that the eight leaves that a
/// sender walks in step are on eight OSTs. Stripes of 1 MiB on 16 OSTs would have all eight on the same.
const STRIPE: u64 = 16 << 20;
/// The same of short files, whose leaves are shorter: one of so many.
const SHORTEST_STRIPE: u64 = 4 << 20;
const STRIPES_OF_SHORT: u64 = 256;
/// Most stripes; measured transfers gained up to 16 and lost beyond.
const MOST_STRIPES: u32 = 16;

/// How a file is spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// OSTs; 0 or all ones (`-1`) leave it to the file system.
    pub count: u32,
    /// Bytes in one OST before the next one follows.
    pub size: u64,
}

/// The layout for a file of `length` bytes in a directory with the layout `default`; `None`: that of the directory.
///
/// As many stripes as there are 128 MiB, up to 16, never fewer than the administrator chose, each of 16 MiB, less in files
/// below 4 GiB, so that leaves, chunks and stripes end together.
pub fn layout_for(length: u64, default: Layout) -> Option<Layout> {
    if length < LEAST || default.count == u32::MAX {
        return None;
    }
    let wanted = u32::try_from(length / FOR_EACH).unwrap_or(u32::MAX).clamp(1, MOST_STRIPES);
    let size = (length / STRIPES_OF_SHORT).next_power_of_two().clamp(SHORTEST_STRIPE, STRIPE);
    let layout = Layout { count: wanted.max(default.count), size };
    (layout != default).then_some(layout)
}

/// Runs the program `lfs`, or has it run by somebody who may.
pub trait LayoutTool: fmt::Debug + Send + Sync {
    /// Runs it in a directory, without a shell; gives what it printed, or why it failed.
    fn run(&self, dir: BorrowedFd<'_>, arguments: &[OsString]) -> Result<String, String>;
}

/// `lfs` as a child of this process.
#[derive(Debug, Clone)]
pub struct Lfs(pub PathBuf);

impl LayoutTool for Lfs {
    fn run(&self, dir: BorrowedFd<'_>, arguments: &[OsString]) -> Result<String, String> {
        let mut command = Command::new(&self.0);
        // The descriptor is the child's own until the program begins: it closes itself then.
        command.args(arguments).current_dir(format!("/proc/self/fd/{}", dir.as_raw_fd())).stdin(Stdio::null());
        match command.output() {
            Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
            Ok(output) => Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim())),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// The program `lfs`, where it may be used.
#[derive(Debug)]
pub(super) struct Lustre {
    tool: Arc<dyn LayoutTool>,
    /// Every file system is taken for Lustre; for tests.
    everywhere: bool,
}

impl Lustre {
    pub fn new(tool: Arc<dyn LayoutTool>, everywhere: bool) -> Self {
        Self { tool, everywhere }
    }

    fn serves(&self, file: impl AsFd) -> bool {
        self.everywhere || fstatfs(file).is_ok_and(|stat| magic::kind(&stat) == magic::LUSTRE)
    }

    /// The layout that a new file of that length in `dir` should be given.
    pub fn plan(&self, dir: &Dir, length: Option<u64>) -> Option<Layout> {
        let length = length.filter(|&length| length >= LEAST && self.serves(dir))?;
        let told = self.run(dir, &["getstripe", "-d", "-c", "-S", "."].map(OsString::from))?;
        let default = parse(&told).unwrap_or_else(|| {
            tracing::warn!(told, "lfs getstripe was not understood; one stripe is assumed");
            Layout { count: 1, size: 1 << 20 }
        });
        layout_for(length, default)
    }

    /// Makes the file `name` with a layout and opens it; `EXIST` when it is there, or was replaced at once.
    pub fn create(&self, dir: &Dir, name: &[u8], mode: Mode, flags: OFlags, layout: Layout) -> Result<OwnedFd, Errno> {
        retry(|| mknodat(dir, name, FileType::RegularFile, mode, 0))?;
        let made = Identity::of(&statx_at(dir, name)?);
        let (count, size) = (layout.count.to_string(), layout.size.to_string());
        let words = ["setstripe", "-c", &count, "-S", &size].map(OsString::from);
        // What went wrong is logged; the file then has its directory's layout.
        let _ = self.run(dir, &[&words[..], &[here(name)]].concat());
        let file = match retry(|| openat(dir, name, flags, Mode::empty())) {
            Err(Errno::NOENT | Errno::LOOP | Errno::ISDIR) => return Err(Errno::EXIST),
            other => other?,
        };
        if Identity::of(&statx_fd(&file)?) == made { Ok(file) } else { Err(Errno::EXIST) }
    }

    /// Bytes of a stripe of the file `name`, which may have been made by another host.
    pub fn stripe_size(&self, dir: &Dir, name: &[u8]) -> Option<u64> {
        if !self.serves(dir) {
            return None;
        }
        let told = self.run(dir, &[OsString::from("getstripe"), OsString::from("-S"), here(name)])?;
        told.split_whitespace().last()?.parse().ok().filter(|&size| size > 0)
    }

    /// Runs `lfs` in `dir`; what it printed, or nothing after a warning.
    fn run(&self, dir: &Dir, arguments: &[OsString]) -> Option<String> {
        let told = self.tool.run(dir.as_fd(), arguments);
        told.inspect_err(|why| {
            let tool = &self.tool;
            tracing::warn!(?tool, ?arguments, why, "the layout of a file was not chosen; the copy goes on");
        })
        .ok()
    }
}

/// A name as an argument that no program takes for an option.
fn here(name: &[u8]) -> OsString {
    OsStr::from_bytes(&[b"./", name].concat()).to_owned()
}

/// `stripe_count: N stripe_size: M` of `lfs getstripe -d -c -S`, in any order and on any lines, with or without `lmm_`.
fn parse(text: &str) -> Option<Layout> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let after = |name: &str| {
        let at = words.iter().position(|word| word.trim_start_matches("lmm_").trim_end_matches(':') == name)?;
        words.get(at + 1)?.parse::<i64>().ok()
    };
    let (count, size) = (after("stripe_count")?, after("stripe_size")?);
    Some(Layout {
        count: if count < 0 { u32::MAX } else { u32::try_from(count).ok()? },
        size: u64::try_from(size).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn layouts_grow_with_files_and_never_cut_a_leaf() {
        let default = Layout { count: 1, size: MIB };
        let count = |length| layout_for(length, default).map(|layout| layout.count);
        assert_eq!((count(0), count((1 << 30) - 1), count(1 << 30)), (None, None, Some(8)));
        assert_eq!((count(2 << 30), count(1 << 50)), (Some(16), Some(16)));
        for size in [0, 1, 65_536, 3 * MIB, 16 * MIB, 64 * MIB, u64::MAX] {
            let chosen = layout_for(1 << 40, Layout { count: 1, size }).unwrap();
            assert_eq!(chosen.size, 16 * MIB, "{size}");
        }
        let size = |length| layout_for(length, default).map(|layout| layout.size / MIB);
        assert_eq!((size(1 << 30), size((1 << 30) + 1), size(3 << 30)), (Some(4), Some(4), Some(16)));
    }

    #[test]
    fn what_the_administrator_chose_is_never_narrowed() {
        assert_eq!(layout_for(1 << 40, Layout { count: u32::MAX, size: 64 * MIB }), None, "all of them");
        assert_eq!(layout_for(1 << 40, Layout { count: 64, size: 16 * MIB }), None);
        assert_eq!(
            layout_for(1 << 40, Layout { count: 64, size: 64 * MIB }),
            Some(Layout { count: 64, size: 16 * MIB })
        );
    }

    #[test]
    fn what_lfs_prints_is_read_in_all_its_forms() {
        let want = Some(Layout { count: 4, size: MIB });
        assert_eq!(parse("stripe_count:  4 stripe_size:   1048576 "), want);
        assert_eq!(parse(".\nstripe_count: 4 stripe_size: 1048576 pattern: 0 stripe_offset: -1\n"), want);
        assert_eq!(parse("lmm_stripe_count:  4\nlmm_stripe_size:   1048576\n"), want);
        assert_eq!(parse("stripe_count: -1 stripe_size: 0"), Some(Layout { count: u32::MAX, size: 0 }));
        for bad in ["", "4", "stripe_count: x stripe_size: 5", "stripe_count: 4", "stripe_count: 4 stripe_size: -5"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}

//! Files and trees to move, and the comparison of two trees.
//!
//! Everything is made from a seed: the same call makes the same bytes anywhere, and two seeds make different ones, so a
//! test that mixes up two files notices.

mod compare;

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

pub use compare::{Compare, Differences};

use crate::error::{Attempt, Result};
use crate::rng::Rng;

const PIECE_BYTES: usize = 1 << 20;

/// Writes a file of `bytes` pseudo-random bytes, which no compression or deduplication makes smaller.
pub fn random_file(path: &Path, bytes: u64, seed: u64) -> Result<()> {
    let what = || format!("writing {}", path.display());
    let mut file = File::create(path).attempt(what)?;
    let mut rng = Rng::new(seed);
    let mut piece = vec![0; PIECE_BYTES.min(usize::try_from(bytes).unwrap_or(PIECE_BYTES))];
    let mut left = bytes;
    while left > 0 {
        let count = piece.len().min(usize::try_from(left).unwrap_or(PIECE_BYTES));
        rng.fill(&mut piece[..count]);
        file.write_all(&piece[..count]).attempt(what)?;
        left -= count as u64;
    }
    Ok(())
}

/// Makes a file of `bytes` that is a hole except for the pseudo-random `data` ranges, given as offset and length.
pub fn sparse_file(path: &Path, bytes: u64, data: &[(u64, usize)], seed: u64) -> Result<()> {
    let what = || format!("writing {}", path.display());
    let file = File::create(path).attempt(what)?;
    file.set_len(bytes).attempt(what)?;
    let mut rng = Rng::new(seed);
    for (offset, length) in data {
        let mut piece = vec![0; *length];
        rng.fill(&mut piece);
        file.write_all_at(&piece, *offset).attempt(what)?;
    }
    Ok(())
}

/// Makes `count` files of `bytes` each in new directories of 1000 below `root`, named `d000/f000000` and so on.
///
/// The lots-of-small-files case is `many_files(root, 10_000, 10 << 10, seed)`.
pub fn many_files(root: &Path, count: u32, bytes: usize, seed: u64) -> Result<()> {
    let mut rng = Rng::new(seed);
    let mut piece = vec![0; bytes];
    for number in 0..count {
        let directory = root.join(format!("d{:03}", number / 1000));
        if number % 1000 == 0 {
            create_dir(&directory)?;
        }
        rng.fill(&mut piece);
        write(&directory.join(format!("f{number:06}")), &piece)?;
    }
    Ok(())
}

/// The shape of a tree that [`deep_tree`] makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Levels of directories below the root.
    pub depth: u32,
    /// Directories in each directory above the last level.
    pub directories: u32,
    /// Files in each directory.
    pub files: u32,
    /// Size of the largest files. Each file has this size divided by a power of two: most are small, some empty.
    pub largest_bytes: u64,
}

impl Shape {
    /// The tree of the Petascale DTN project (a HACC run: 211 directories, 19,260 files, 0 bytes to 11.3 GB, 4.4 TB)
    /// with its 211 directories, a tenth of its files, and sizes from 0 bytes to 256 KiB: 1,899 files, about 20 MB.
    pub const PETASCALE: Shape = Shape { depth: 2, directories: 14, files: 9, largest_bytes: 256 << 10 };

    /// A narrow tree of 41 levels, for what recurses and for what builds long paths.
    pub const DEEP: Shape = Shape { depth: 40, directories: 1, files: 2, largest_bytes: 4096 };
}

/// Makes a tree of that shape below `root`; returns its number of files and bytes.
pub fn deep_tree(root: &Path, shape: Shape, seed: u64) -> Result<(u64, u64)> {
    let mut totals = (0, 0);
    fill_level(root, shape, &mut Rng::new(seed), &mut totals)?;
    Ok(totals)
}

fn fill_level(directory: &Path, shape: Shape, rng: &mut Rng, totals: &mut (u64, u64)) -> Result<()> {
    for number in 0..shape.files {
        // The number of leading zeros of a random word halves the size each time: few large files, many small ones.
        let halvings = (rng.next_u64().leading_zeros() + rng.below(24) as u32).min(63);
        let bytes = shape.largest_bytes >> halvings;
        random_file(&directory.join(format!("step-{number:04}.dat")), bytes, rng.next_u64())?;
        *totals = (totals.0 + 1, totals.1 + bytes);
    }
    if shape.depth == 0 {
        return Ok(());
    }
    for number in 0..shape.directories {
        let below = directory.join(format!("run-{number:02}"));
        create_dir(&below)?;
        fill_level(&below, Shape { depth: shape.depth - 1, ..shape }, rng, totals)?;
    }
    Ok(())
}

/// File names that programs get wrong: every byte but `/` and NUL is legal in one.
pub fn awkward_names() -> Vec<OsString> {
    let mut names: Vec<Vec<u8>> = [
        &b"two words"[..],
        b" leading and trailing ",
        b"-rf",
        b"--help",
        b"new\nline",
        b"carriage\rreturn",
        b"tab\there",
        b"\xff\xfe not UTF-8 \x80",
        "na\u{ef}ve \u{2603} \u{1f426}".as_bytes(),
        "cafe\u{301}".as_bytes(),
        "caf\u{e9}".as_bytes(),
        b"quote\"double",
        b"quote'single",
        b"back\\slash",
        b"star*glob?[a-z]{x,y}",
        b"percent%20encoded%2F",
        b"hash#query?amp&",
        b"semi;colon=value; ",
        b"$HOME `id` $(id)",
        b"~",
        b"~root",
        b".hidden",
        b"...",
        b"telnet\xff\xf4\xff\xf2",
        b"escape\x1b[31m",
        b"file:name",
        b"con",
    ]
    .iter()
    .map(|name| name.to_vec())
    .collect();
    // NAME_MAX is 255 bytes.
    names.push(vec![b'l'; 255]);
    names.into_iter().map(OsString::from_vec).collect()
}

/// Makes a file for each of the [`awkward_names`] in `root`, its content telling its name, and a directory `dir` plus
/// name with a file in it for each name short enough.
pub fn awkward_tree(root: &Path) -> Result<()> {
    for name in awkward_names() {
        write(&root.join(&name), name.as_bytes())?;
        let mut directory = OsStr::new("dir").to_owned();
        directory.push(&name);
        if directory.len() <= 255 {
            create_dir(&root.join(&directory))?;
            write(&root.join(&directory).join("inside"), name.as_bytes())?;
        }
    }
    Ok(())
}

/// Makes symbolic links of every kind in `root`, beside the file and directory some of them point to.
pub fn symlinks(root: &Path) -> Result<()> {
    write(&root.join("target"), b"the target of links")?;
    create_dir(&root.join("directory"))?;
    write(&root.join("directory/inside"), b"reached through a link")?;
    let absolute = root.join("target");
    let links: [(&str, &OsStr); 9] = [
        ("to-file", OsStr::new("target")),
        ("to-directory", OsStr::new("directory")),
        ("to-link", OsStr::new("to-file")),
        ("absolute", absolute.as_os_str()),
        ("outside", OsStr::new("/etc/passwd")),
        ("dangling", OsStr::new("no/such/target")),
        ("loop-of-one", OsStr::new("loop-of-one")),
        ("loop-of-two-a", OsStr::new("loop-of-two-b")),
        ("loop-of-two-b", OsStr::new("loop-of-two-a")),
    ];
    let parent_loop = [("directory/up", OsStr::new(".."))];
    for (name, target) in links.into_iter().chain(parent_loop) {
        symlink(target, root.join(name)).attempt(|| format!("linking {name}"))?;
    }
    Ok(())
}

/// Whether a file occupies less than half of its size on disk.
pub fn is_sparse(path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let metadata = fs::metadata(path)?;
    Ok(metadata.blocks() * 512 < metadata.len() / 2)
}

fn create_dir(path: &Path) -> Result<()> {
    fs::create_dir_all(path).attempt(|| format!("creating {}", path.display()))
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).attempt(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use tempfile::tempdir;

    #[test]
    fn a_random_file_has_its_size_and_follows_its_seed() {
        let directory = tempdir().expect("directory");
        let bytes = |bytes, seed| {
            let path = directory.path().join("file");
            random_file(&path, bytes, seed).expect("written");
            fs::read(path).expect("read")
        };
        for size in [0, 1, 7, PIECE_BYTES as u64 - 1, PIECE_BYTES as u64 + 1, 3 << 20] {
            assert_eq!(bytes(size, 5).len() as u64, size);
        }
        assert_eq!(bytes(10_000, 5), bytes(10_000, 5));
        assert_ne!(bytes(10_000, 5), bytes(10_000, 6));
        assert_eq!(bytes(3 << 20, 5)[..10_000], bytes(10_000, 5), "a shorter file is a prefix of a longer one");
    }

    #[test]
    fn a_sparse_file_has_data_where_asked_and_holes_elsewhere() {
        let directory = tempdir().expect("directory");
        let path = directory.path().join("sparse");
        sparse_file(&path, 64 << 20, &[(1 << 20, 100), ((64 << 20) - 1, 1)], 3).expect("written");
        assert!(is_sparse(&path).expect("stat"));
        let content = fs::read(&path).expect("read");
        assert_eq!(content.len(), 64 << 20);
        let data = (1 << 20)..(1 << 20) + 100;
        assert!(content[data].iter().filter(|byte| **byte != 0).count() > 80);
        assert!(content[..1 << 20].iter().all(|byte| *byte == 0));
        random_file(&path, 1 << 20, 1).expect("written");
        assert!(!is_sparse(&path).expect("stat"));
    }

    #[test]
    fn many_files_are_all_there_and_all_different() {
        let directory = tempdir().expect("directory");
        many_files(directory.path(), 1500, 100, 9).expect("made");
        let read = |name: &str| fs::read(directory.path().join(name)).expect("read");
        let contents: HashSet<Vec<u8>> =
            (0..1500).map(|number| read(&format!("d{:03}/f{number:06}", number / 1000))).collect();
        assert_eq!(contents.len(), 1500);
        assert!(contents.iter().all(|content| content.len() == 100));
    }

    #[test]
    fn a_deep_tree_has_the_promised_numbers_and_a_spread_of_sizes() {
        let directory = tempdir().expect("directory");
        let (files, bytes) = deep_tree(directory.path(), Shape::PETASCALE, 1).expect("made");
        assert_eq!(files, 9 * 211);
        assert!((15_000_000..30_000_000).contains(&bytes), "{bytes}");
        let size = |name: &str| fs::metadata(directory.path().join(name)).expect("a file").len();
        let sizes: Vec<u64> = (0..9).map(|number| size(&format!("run-13/run-13/step-{number:04}.dat"))).collect();
        assert!(sizes.iter().collect::<HashSet<_>>().len() > 3, "{sizes:?}");
        let below = directory.path().join("below");
        assert!(deep_tree(&below, Shape::DEEP, 1).is_err(), "the root must exist");
        fs::create_dir(&below).expect("directory");
        assert_eq!(deep_tree(&below, Shape::DEEP, 1).expect("made").0, 2 * 41);
    }

    #[test]
    fn awkward_names_are_distinct_legal_and_awkward() {
        let directory = tempdir().expect("directory");
        awkward_tree(directory.path()).expect("made");
        let names = awkward_names();
        assert_eq!(names.iter().collect::<HashSet<_>>().len(), names.len());
        assert!(names.iter().any(|name| name.to_str().is_none()));
        for name in &names {
            assert_eq!(fs::read(directory.path().join(name)).expect("read"), name.as_bytes());
        }
    }

    #[test]
    fn links_point_everywhere_and_nowhere() {
        let directory = tempdir().expect("directory");
        symlinks(directory.path()).expect("made");
        let path = |name: &str| directory.path().join(name);
        assert!(fs::metadata(path("to-link")).expect("followed").is_file());
        assert!(fs::metadata(path("absolute")).expect("followed").is_file());
        assert!(fs::metadata(path("directory/up/directory/inside")).expect("followed").is_file());
        for broken in ["dangling", "loop-of-one", "loop-of-two-a"] {
            assert!(fs::metadata(path(broken)).is_err() && fs::symlink_metadata(path(broken)).is_ok(), "{broken}");
        }
    }
}

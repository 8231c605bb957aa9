//! Compares two trees byte for byte and says in words how they differ.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::error::{Attempt, Result};

/// Differences that are described; the rest is counted.
const MAX_DESCRIBED: usize = 20;

/// What to compare besides names, kinds, contents, and the targets of symbolic links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compare {
    modes: bool,
    times: bool,
    follow_links: bool,
}

/// How two trees differ; displays as one difference a line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    described: Vec<String>,
    count: usize,
}

impl Compare {
    /// Names, kinds, contents and link targets.
    pub fn contents() -> Compare {
        Compare::default()
    }

    /// Also permissions, of everything but symbolic links.
    pub fn modes(mut self) -> Compare {
        self.modes = true;
        self
    }

    /// Also the modification times of files, to the second: FTP's commands carry no more (RFC 3659 §2.3 leaves the
    /// fraction optional).
    pub fn times(mut self) -> Compare {
        self.times = true;
        self
    }

    /// Takes a symbolic link to a file in the first tree as that file, for clients that follow links.
    pub fn follow_links(mut self) -> Compare {
        self.follow_links = true;
        self
    }

    /// Compares two trees, or two files. Errors: something cannot be read.
    pub fn run(self, expected: &Path, actual: &Path) -> Result<Differences> {
        let mut differences = Differences::default();
        let (expected, actual) = (self.scan(expected)?, Compare { follow_links: false, ..self }.scan(actual)?);
        for path in expected.keys().filter(|path| !actual.contains_key(*path)) {
            differences.add(path, "is missing");
        }
        for path in actual.keys().filter(|path| !expected.contains_key(*path)) {
            differences.add(path, "is not expected");
        }
        for (path, expected) in &expected {
            if let Some(actual) = actual.get(path) {
                self.pair(path, expected, actual, &mut differences)?;
            }
        }
        Ok(differences)
    }

    /// Compares, and panics with the differences when there are any.
    #[track_caller]
    pub fn assert_same(self, expected: &Path, actual: &Path) {
        let differences = self.run(expected, actual).expect("both trees can be read");
        assert!(differences.is_empty(), "{} differs from {}:\n{differences}", actual.display(), expected.display());
    }

    fn scan(self, root: &Path) -> Result<BTreeMap<PathBuf, Entry>> {
        let mut found = BTreeMap::new();
        let mut waiting = vec![PathBuf::new()];
        while let Some(relative) = waiting.pop() {
            let path = if relative.as_os_str().is_empty() { root.to_path_buf() } else { root.join(&relative) };
            let entry = self.entry(path).attempt(|| format!("reading {}", root.join(&relative).display()))?;
            if entry.metadata.is_dir() {
                let what = || format!("listing {}", entry.path.display());
                for below in fs::read_dir(&entry.path).attempt(what)? {
                    waiting.push(relative.join(below.attempt(what)?.file_name()));
                }
            }
            found.insert(relative, entry);
        }
        Ok(found)
    }

    fn entry(self, path: PathBuf) -> io::Result<Entry> {
        let followed = fs::metadata(&path).ok().filter(|metadata| self.follow_links && metadata.is_file());
        let metadata = followed.map_or_else(|| fs::symlink_metadata(&path), Ok)?;
        Ok(Entry { path, metadata })
    }

    fn pair(self, path: &Path, expected: &Entry, actual: &Entry, differences: &mut Differences) -> Result<()> {
        if expected.kind() != actual.kind() {
            differences.add(path, &format!("is a {}, expected a {}", actual.kind(), expected.kind()));
            return Ok(());
        }
        let difference = match expected.kind() {
            "file" => content_difference(expected, actual),
            "symbolic link" => target_difference(expected, actual),
            _ => Ok(None),
        };
        let difference = difference.attempt(|| format!("comparing {}", path.display()))?;
        difference.into_iter().for_each(|difference| differences.add(path, &difference));
        let (modes, times) = (expected.mode_and_time(), actual.mode_and_time());
        if self.modes && expected.kind() != "symbolic link" && modes.0 != times.0 {
            differences.add(path, &format!("has mode {:04o}, expected {:04o}", times.0, modes.0));
        }
        if self.times && expected.kind() == "file" && modes.1 != times.1 {
            differences.add(path, &format!("was modified at {}, expected {}", times.1, modes.1));
        }
        Ok(())
    }
}

struct Entry {
    path: PathBuf,
    metadata: Metadata,
}

impl Entry {
    fn kind(&self) -> &'static str {
        let kind = self.metadata.file_type();
        match () {
            () if kind.is_file() => "file",
            () if kind.is_dir() => "directory",
            () if kind.is_symlink() => "symbolic link",
            () if kind.is_fifo() => "pipe",
            () if kind.is_socket() => "socket",
            () => "device",
        }
    }

    fn mode_and_time(&self) -> (u32, i64) {
        (self.metadata.mode() & 0o7777, self.metadata.mtime())
    }
}

fn target_difference(expected: &Entry, actual: &Entry) -> io::Result<Option<String>> {
    let (expected, actual) = (fs::read_link(&expected.path)?, fs::read_link(&actual.path)?);
    Ok((expected != actual).then(|| format!("points to {actual:?}, expected {expected:?}")))
}

fn content_difference(expected: &Entry, actual: &Entry) -> io::Result<Option<String>> {
    let (expected_bytes, actual_bytes) = (expected.metadata.len(), actual.metadata.len());
    if expected_bytes != actual_bytes {
        return Ok(Some(format!("has {actual_bytes} bytes, expected {expected_bytes}")));
    }
    let (mut expected, mut actual) = (File::open(&expected.path)?, File::open(&actual.path)?);
    let (mut left, mut right) = (vec![0; 1 << 18], vec![0; 1 << 18]);
    let (mut offset, mut wrong) = (0, None::<Wrong>);
    loop {
        let count = expected.read(&mut left)?;
        actual.read_exact(&mut right[..count])?;
        if count == 0 {
            return Ok(wrong.map(|wrong| wrong.to_string()));
        }
        if left[..count] != right[..count] {
            let places = (0..count).filter(|&at| left[at] != right[at]);
            for at in places {
                let first = || Wrong::at(offset + at, &right[at..count], left[at]);
                let wrong = wrong.get_or_insert_with(first);
                (wrong.last, wrong.count) = (offset + at, wrong.count + 1);
            }
        }
        offset += count;
    }
}

/// Bytes of a file that are not what they should be.
struct Wrong {
    first: usize,
    last: usize,
    count: usize,
    /// What is there, by which its origin may be known.
    found: Vec<u8>,
    expected: u8,
}

impl Wrong {
    fn at(first: usize, found: &[u8], expected: u8) -> Wrong {
        Wrong { first, last: first, count: 0, found: found.iter().copied().take(16).collect(), expected }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Wrong { first, last, count, found, expected } = self;
        write!(f, "differs first at byte {first}: {:#04x}, expected {expected:#04x}; last at byte {last}", found[0])?;
        write!(f, ", {count} in all; found there: {found:02x?}")
    }
}

impl Differences {
    /// Whether the trees are the same.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many differences there are.
    pub fn count(&self) -> usize {
        self.count
    }

    fn add(&mut self, path: &Path, what: &str) {
        self.count += 1;
        if self.described.len() < MAX_DESCRIBED {
            // Debug escapes what is not UTF-8 or would break the line.
            self.described.push(format!("{path:?} {what}"));
        }
    }
}

impl fmt::Display for Differences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.described.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        match self.count - self.described.len() {
            0 => Ok(()),
            more => writeln!(f, "and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{awkward_tree, symlinks};
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::time::{Duration, SystemTime};
    use tempfile::{TempDir, tempdir};

    fn pair() -> (TempDir, PathBuf, PathBuf) {
        let directory = tempdir().expect("directory");
        let (left, right) = (directory.path().join("left"), directory.path().join("right"));
        for tree in [&left, &right] {
            fs::create_dir(tree).expect("directory");
            fs::write(tree.join("file"), vec![7; 300_000]).expect("file");
        }
        (directory, left, right)
    }

    fn difference(compare: Compare, left: &Path, right: &Path) -> String {
        let differences = compare.run(left, right).expect("compared");
        assert_eq!(differences.count() <= 1, differences.to_string().lines().count() <= 1);
        differences.to_string().trim_end().into()
    }

    #[test]
    fn equal_trees_have_no_difference_whatever_their_names_and_links() {
        let (_directory, left, right) = pair();
        for tree in [&left, &right] {
            awkward_tree(tree).expect("made");
            symlinks(tree).expect("made");
        }
        fs::remove_file(right.join("absolute")).expect("removed");
        symlink(left.join("target"), right.join("absolute")).expect("linked");
        Compare::contents().modes().assert_same(&left, &right);
        Compare::contents().assert_same(&left.join("file"), &right.join("file"));
    }

    #[test]
    fn a_flipped_byte_is_found_and_its_place_named() {
        let (_directory, left, right) = pair();
        let mut content = vec![7; 300_000];
        (content[299_997], content[299_999]) = (8, 9);
        fs::write(right.join("file"), content).expect("file");
        assert_eq!(
            difference(Compare::contents(), &left, &right),
            "\"file\" differs first at byte 299997: 0x08, expected 0x07; last at byte 299999, 2 in all; \
             found there: [08, 07, 09]"
        );
    }

    #[test]
    fn sizes_kinds_and_missing_or_extra_entries_are_told_apart() {
        let (_directory, left, right) = pair();
        fs::write(right.join("file"), b"short").expect("file");
        assert_eq!(difference(Compare::contents(), &left, &right), "\"file\" has 5 bytes, expected 300000");
        fs::remove_file(right.join("file")).expect("removed");
        assert_eq!(difference(Compare::contents(), &left, &right), "\"file\" is missing");
        assert_eq!(difference(Compare::contents(), &right, &left), "\"file\" is not expected");
        fs::create_dir(right.join("file")).expect("directory");
        assert_eq!(difference(Compare::contents(), &left, &right), "\"file\" is a directory, expected a file");
    }

    #[test]
    fn modes_times_and_targets_count_when_asked_for() {
        let (_directory, left, right) = pair();
        let file = right.join("file");
        fs::set_permissions(left.join("file"), fs::Permissions::from_mode(0o644)).expect("mode");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("mode");
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        File::options().write(true).open(&file).expect("open").set_modified(time).expect("time");
        Compare::contents().assert_same(&left, &right);
        assert_eq!(difference(Compare::contents().modes(), &left, &right), "\"file\" has mode 0600, expected 0644");
        assert!(difference(Compare::contents().times(), &left, &right).contains("was modified at 1, expected"));
        symlink("file", left.join("link")).expect("link");
        symlink("other", right.join("link")).expect("link");
        let said = difference(Compare::contents(), &left, &right);
        assert_eq!(said, "\"link\" points to \"other\", expected \"file\"");
    }

    #[test]
    fn a_followed_link_is_the_file_behind_it() {
        let (_directory, left, right) = pair();
        symlink("file", left.join("link")).expect("link");
        fs::copy(right.join("file"), right.join("link")).expect("copy");
        Compare::contents().follow_links().assert_same(&left, &right);
        assert!(difference(Compare::contents(), &left, &right).contains("is a file, expected a symbolic link"));
    }

    #[test]
    fn many_differences_are_counted_beyond_those_described() {
        let (_directory, left, right) = pair();
        for number in 0..50 {
            fs::write(left.join(format!("{number}")), b"x").expect("file");
        }
        let differences = Compare::contents().run(&left, &right).expect("compared");
        assert_eq!(differences.count(), 50);
        assert!(differences.to_string().ends_with("and 30 more\n"), "{differences}");
    }
}

//! A directory that every host of a laboratory reaches, with something to move.

use std::path::{Path, PathBuf};

use whimbrel_testkit::dataset;
use whimbrel_testkit::peers::public_dir;

/// A directory with `file` and a `tree` of small files in it; dropping it removes it.
pub struct Files(tempfile::TempDir);

impl Files {
    /// A `file` of 3,000,001 bytes, and 20 files of 40,000 bytes under `tree`.
    pub fn new() -> Files {
        let files = Files(public_dir().expect("directory"));
        dataset::random_file(&files.path("file"), 3_000_001, 5).expect("made");
        std::fs::create_dir(files.path("tree")).expect("made");
        dataset::many_files(&files.path("tree"), 20, 40_000, 6).expect("made");
        files
    }

    /// Something in it, which need not be there.
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.path().join(name)
    }
}

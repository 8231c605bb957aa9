//! Layouts of new files through `lfs`, seen by a double that records its exact calls.

#![allow(clippy::unwrap_used, reason = "a test that fails ends there")]

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tempfile::TempDir;
use whimbrel_connector::posix::{Lfs, Posix, PosixOptions};
use whimbrel_connector::{Attributes, Connector, Disposition, StoragePath, WriteIntent};

/// A directory served as Lustre, with an `lfs` that writes down where and with what it was called.
struct Lab {
    tools: TempDir,
    served: TempDir,
    storage: Posix,
}

impl Lab {
    /// `answer`: the rest of the double, a script of `/bin/sh`.
    fn new(answer: &str) -> Self {
        let tools = tempfile::tempdir().unwrap();
        let lfs = tools.path().join("lfs");
        let calls = tools.path().join("calls").display().to_string();
        // Every argument in brackets, so that none can hide its borders.
        let record = format!("#!/bin/sh\n{{ pwd -P; printf '[%s]' \"$@\"; echo; }} >> '{calls}'\n{answer}\n");
        // Written by another process: a thread that forks now would hold it open for writing, and it could not be run.
        let made = std::process::Command::new("/bin/sh")
            .args(["-c", "printf '%s' \"$1\" > \"$2\" && chmod 755 \"$2\"", "make", &record])
            .arg(&lfs)
            .status();
        assert!(made.unwrap().success());
        Self::with(tools, lfs, true)
    }

    fn with(tools: TempDir, lfs: PathBuf, lustre_everywhere: bool) -> Self {
        let served = tempfile::tempdir().unwrap();
        std::fs::create_dir(served.path().join("dir")).unwrap();
        let options = PosixOptions { lfs: Some(Arc::new(Lfs(lfs))), lustre_everywhere, ..PosixOptions::default() };
        let storage = Posix::open(served.path(), options).unwrap();
        Self { tools, served, storage }
    }

    /// The calls so far: where, and with which arguments.
    fn calls(&self) -> Vec<(PathBuf, String)> {
        let text = std::fs::read_to_string(self.tools.path().join("calls")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines.chunks(2).map(|call| (PathBuf::from(call[0]), call[1].to_owned())).collect()
    }

    /// Writes a file that will have this length; what it says of its stripes.
    fn write(&self, disposition: Disposition, length: Option<u64>) -> Option<u64> {
        let path = StoragePath::resolve(&StoragePath::root(), b"/dir/a b;$(x)").unwrap();
        let session = self.storage.begin(&path, &WriteIntent { disposition, size: None, length, mode: None }).unwrap();
        let writer = self.storage.join(&session).unwrap();
        writer.write_at(0, b"data").unwrap();
        let stripe = writer.stripe_size();
        self.storage.commit(&session, &[], &Attributes::default()).unwrap();
        assert_eq!(std::fs::read(self.file()).unwrap(), b"data");
        stripe
    }

    fn file(&self) -> PathBuf {
        self.dir().join("a b;$(x)")
    }

    fn dir(&self) -> PathBuf {
        self.served.path().canonicalize().unwrap().join("dir")
    }
}

const GIB: u64 = 1 << 30;

/// An `lfs` whose directories have one stripe of 1 MiB and whose files have stripes of 4 MiB.
const WORKING: &str = r#"
case "$1 $2" in
  "getstripe -d") echo "stripe_count:  1 stripe_size:   1048576 " ;;
  "getstripe -S") echo 4194304 ;;
  "setstripe -c") test ! -s "$6" ;;
  *) exit 9 ;;
esac"#;

const ASK: &str = "[getstripe][-d][-c][-S][.]";
const SET: &str = "[setstripe][-c][16][-S][16777216][./.a b;$(x).whimbrel-part]";
const TELL: &str = "[getstripe][-S][./.a b;$(x).whimbrel-part]";

#[test]
fn a_large_new_file_gets_its_layout_before_its_first_byte_and_by_exactly_these_calls() {
    for disposition in [Disposition::Replace, Disposition::Continue] {
        let lab = Lab::new(WORKING);
        assert_eq!(lab.write(disposition, Some(100 * GIB)), Some(4 << 20));
        let here = |call: &str| (lab.dir(), call.to_owned());
        assert_eq!(lab.calls(), [here(ASK), here(SET), here(TELL)], "{disposition:?}");
    }
}

#[test]
fn the_mode_of_a_striped_file_is_that_of_any_other() {
    let lab = Lab::new(WORKING);
    lab.write(Disposition::Replace, None);
    let plain = std::fs::metadata(lab.file()).unwrap().mode();
    std::fs::remove_file(lab.file()).unwrap();
    lab.write(Disposition::Replace, Some(100 * GIB));
    assert_eq!(std::fs::metadata(lab.file()).unwrap().mode(), plain);
    // And a file that is replaced keeps its own.
    std::fs::set_permissions(lab.file(), std::fs::Permissions::from_mode(0o640)).unwrap();
    lab.write(Disposition::Replace, Some(100 * GIB));
    assert_eq!(std::fs::metadata(lab.file()).unwrap().mode() & 0o777, 0o640);
}

#[test]
fn small_files_and_files_in_place_keep_the_layout_they_have() {
    let lab = Lab::new(WORKING);
    for length in [None, Some(0), Some(GIB - 1)] {
        lab.write(Disposition::Replace, length);
    }
    lab.write(Disposition::Update, Some(100 * GIB));
    assert!(lab.calls().iter().all(|(_, call)| call.starts_with("[getstripe][-S]")), "{:?}", lab.calls());
}

#[test]
fn whoever_goes_on_with_a_file_leaves_its_layout_alone() {
    let lab = Lab::new(WORKING);
    let path = StoragePath::resolve(&StoragePath::root(), b"/dir/f").unwrap();
    let intent = WriteIntent { disposition: Disposition::Continue, size: None, length: Some(100 * GIB), mode: None };
    let first = lab.storage.begin(&path, &intent).unwrap();
    let second = lab.storage.begin(&path, &intent).unwrap();
    assert_eq!(first.token, second.token);
    let set = lab.calls().iter().filter(|(_, call)| call.starts_with("[setstripe]")).count();
    assert_eq!(set, 1);
}

#[test]
fn a_failing_missing_or_babbling_lfs_does_not_stop_a_copy() {
    for answer in [
        "exit 1",
        "echo nonsense",
        "kill -9 $$",
        "case $1 in getstripe) echo stripe_count: 1 stripe_size: 1048576;; *) exit 5;; esac",
    ] {
        let lab = Lab::new(answer);
        assert_eq!(lab.write(Disposition::Continue, Some(100 * GIB)), None.or(stripe_of(answer)), "{answer}");
    }
    let lab = Lab::with(tempfile::tempdir().unwrap(), Path::new("/nowhere/lfs").to_owned(), true);
    assert_eq!(lab.write(Disposition::Continue, Some(100 * GIB)), None);
}

/// What the last double answers for the stripe of a file.
fn stripe_of(answer: &str) -> Option<u64> {
    answer.starts_with("case").then_some(1_048_576)
}

#[test]
fn elsewhere_lfs_is_never_called() {
    let made = Lab::new(WORKING);
    let lfs = made.tools.path().join("lfs");
    let lab = Lab::with(made.tools, lfs, false);
    assert_eq!(lab.write(Disposition::Replace, Some(100 * GIB)), None);
    assert!(lab.calls().is_empty());
}

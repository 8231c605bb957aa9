//! POSIX keeps every promise, with the kernel's path resolution and with our own, through the page cache and past it.
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::Path;

use tempfile::TempDir;
use whimbrel_connector::contract_tests;
use whimbrel_connector::posix::{DirectOptions, Posix, PosixOptions};

/// On disk.
fn disk() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// In memory where the host has such a place: another file system, and faster.
fn shared_memory() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| disk())
}

fn open(root: &Path, without_openat2: bool) -> Posix {
    let options = PosixOptions { without_openat2, ..PosixOptions::default() };
    Posix::open(root, options).unwrap()
}

fn instances(dir: TempDir, without_openat2: [bool; 2]) -> (Posix, Posix, TempDir) {
    let [first, second] = without_openat2.map(|without| open(dir.path(), without));
    (first, second, dir)
}

contract_tests!(kernel_resolves, || instances(disk(), [false, false]));
contract_tests!(we_resolve, || instances(shared_memory(), [true, true]));
contract_tests!(one_of_each, || instances(shared_memory(), [false, true]));

/// Every file is written and read past the page cache, in pieces of two lengths of which there are soon too few.
fn past_the_page_cache(dir: TempDir) -> (Posix, Posix, TempDir) {
    let [first, second] = [4096, 16 << 10].map(|piece| {
        let direct = Some(DirectOptions { from: 0, piece, pieces: 3 });
        Posix::open(dir.path(), PosixOptions { direct, ..PosixOptions::default() }).unwrap()
    });
    (first, second, dir)
}

contract_tests!(direct, || past_the_page_cache(disk()));
contract_tests!(direct_in_vain, || past_the_page_cache(shared_memory()));

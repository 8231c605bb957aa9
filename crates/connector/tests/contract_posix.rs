//! POSIX keeps every promise, with the kernel's path resolution and with our own.
#![allow(missing_docs, clippy::unwrap_used)]

use tempfile::TempDir;
use whimbrel_connector::contract_tests;
use whimbrel_connector::posix::{Posix, PosixOptions};

fn shared(without_openat2: bool) -> (Posix, Posix, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let options = PosixOptions { without_openat2, ..PosixOptions::default() };
    let open = || Posix::open(dir.path(), options.clone()).unwrap();
    (open(), open(), dir)
}

contract_tests!(kernel_resolves, || shared(false));
contract_tests!(we_resolve, || shared(true));
contract_tests!(one_of_each, || {
    let (first, _, dir) = shared(false);
    let options = PosixOptions { without_openat2: true, ..PosixOptions::default() };
    let second = Posix::open(dir.path(), options).unwrap();
    (first, second, dir)
});

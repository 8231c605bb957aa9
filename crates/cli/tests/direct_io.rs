//! A server that writes large files past the page cache, as an administrator starts it.

#![allow(clippy::unwrap_used, reason = "a test helper that fails ends its test")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use support::dtn::Dtn;
use support::{Field, assert_same, expect, pattern};
use whimbrel_testkit::stored::pages_in_memory;

#[test]
fn of_a_large_file_nothing_is_left_in_memory_where_the_server_has_direct_io() {
    let field = Field::new();
    let (from, to) = (field.path("from/large"), field.path("to/large"));
    fs::write(&from, pattern((70 << 20) + 12_345)).unwrap();
    for (direct, chunk) in [(false, "16M"), (true, "16M"), (true, "off")] {
        let server = Dtn::builder().anonymous();
        let server = if direct { server.arg("--direct-io") } else { server }.start();
        let run = expect(0, ["--json", "cp", "--chunk", chunk, &from.to_string_lossy(), &server.url(&to)]);
        let pages = pages_in_memory(&to).unwrap();
        // The end of the file is no whole block.
        assert_eq!(pages <= 1, direct, "{pages} pages, {chunk}: {}", run.stdout_text());
        assert!(!server.log().contains("no direct I/O here"), "{}", server.log());
        assert_same(&from, &to);
        fs::remove_file(&to).unwrap();
    }
}

#[test]
fn a_server_that_has_no_direct_io_below_it_says_so_once_and_stores_all_the_same() {
    let Ok(memory) = tempfile::tempdir_in("/dev/shm") else { return };
    // The server stores as somebody else.
    fs::set_permissions(memory.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let field = Field::new();
    let from = field.path("from/large");
    fs::write(&from, pattern(65 << 20)).unwrap();
    let configuration = field.path("dtn.toml");
    fs::write(&configuration, "direct_io = true\n").unwrap();
    let server = Dtn::builder().anonymous().arg("--config").arg(&configuration).start();
    for name in ["one", "two"] {
        let to = memory.path().join(name);
        expect(0, ["cp", &from.to_string_lossy(), &server.url(&to)]);
        assert_same(&from, &to);
    }
    let said =
        server.log().lines().filter(|line| line.contains("no direct I/O here") && line.contains("tmpfs")).count();
    assert_eq!(said, 1, "{}", server.log());
}

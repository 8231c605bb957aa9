//! Servers of the oldest kind: neither FEAT nor machine listings, and links shown as what they lead to.

#![allow(clippy::unwrap_used, reason = "a test helper that fails ends its test")]

mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use support::plain::serve;
use support::{Field, expect, names};

fn at(url: &str, path: &Path) -> String {
    format!("{url}{}", path.display())
}

#[test]
fn trees_are_removed_and_nothing_that_links_lead_to() {
    let (url, field) = (serve(), Field::new());
    for directory in ["to/run/in", "to/reference/deep", "to/other"] {
        fs::create_dir_all(field.path(directory)).unwrap();
    }
    for file in ["to/run/a", "to/run/in/b", "to/reference/deep/c", "to/other/d"] {
        fs::write(field.path(file), "bytes").unwrap();
    }
    symlink("../reference", field.path("to/run/reference")).unwrap();
    symlink("..", field.path("to/run/in/up")).unwrap();
    symlink("other", field.path("to/link")).unwrap();
    for gone in ["to/run", "to/link"] {
        expect(0, ["rm", "-r", &at(&url, &field.path(gone))]);
    }
    assert_eq!(names(&field.path("to")), ["other", "reference"]);
    assert_eq!(fs::read(field.path("to/reference/deep/c")).unwrap(), b"bytes");
    assert_eq!(fs::read(field.path("to/other/d")).unwrap(), b"bytes");
}

#[test]
fn what_is_there_is_known_before_anything_is_copied() {
    let (url, field) = (serve(), Field::new());
    let from = field.path("from/one").to_string_lossy().into_owned();
    fs::write(field.path("to/one"), "before").unwrap();
    expect(0, ["cp", "--sync", "exists", &from, &at(&url, &field.path("to/one"))]);
    assert_eq!(fs::read(field.path("to/one")).unwrap(), b"before");
    let planned = expect(0, ["cp", "--dry-run", &from, &at(&url, &field.path("to"))]).stdout_text();
    assert!(planned.contains(&*field.path("to/one").to_string_lossy()), "into the directory that is there: {planned}");
    let listed = expect(0, ["ls", &at(&url, &field.path("to"))]);
    assert_eq!(listed.stdout_text(), "one\n");
}

#[test]
fn trees_are_copied_both_ways_in_streams() {
    let (url, field) = (serve(), Field::new());
    let content: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
    fs::create_dir_all(field.path("from/run/in")).unwrap();
    for (name, bytes) in [("run/a", &content[..]), ("run/in/b", b"bytes"), ("run/in/empty", b"")] {
        fs::write(field.path("from").join(name), bytes).unwrap();
    }
    let [from, back] = ["from/run", "to/back"].map(|name| field.path(name).to_string_lossy().into_owned());
    expect(0, ["cp", "-r", &from, &at(&url, &field.path("to"))]);
    expect(0, ["cp", "-r", &at(&url, &field.path("to/run")), &back]);
    for there in ["to/run", "to/back"] {
        assert_eq!(names(&field.path(there)), ["a", "in"], "nothing with a temporary name");
        assert_eq!(names(&field.path(there).join("in")), ["b", "empty"]);
        assert!(fs::read(field.path(there).join("a")).unwrap() == content);
        assert_eq!(fs::read(field.path(there).join("in/b")).unwrap(), b"bytes");
    }
}

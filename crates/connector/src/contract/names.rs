//! Directories, listings, renames, removals.

use whimbrel_engine::FaultCode;

use super::help::*;
use crate::{Connector, Kind, Listing};

pub fn directories_come_and_go(a: &dyn Connector, b: &dyn Connector) {
    ok(a.make_dir(&path("a")));
    ok(b.make_dir(&path("a/b")));
    assert_eq!(kind(a, &path("a/b")), Kind::Directory);
    assert_eq!(names(a, &path("a")), [b"b"]);
    assert!(names(a, &path("a/b")).is_empty());
    ok(a.remove_dir(&path("a/b")));
    ok(a.remove_dir(&path("a")));
    assert!(names(b, &path("/")).is_empty());
}

pub fn a_long_listing_streams(a: &dyn Connector, b: &dyn Connector) {
    const COUNT: usize = 5000;
    ok(a.make_dir(&path("dir")));
    let name = |i: usize| format!("entry-{i:04}").into_bytes();
    let at = |name: &[u8]| path([b"dir/", name].concat());
    for i in 0..COUNT {
        commit(a, &ok(a.begin(&at(&name(i)), &REPLACE)));
    }
    let mut listing = ok(b.list(&path("dir")));
    let first = ok(listing.next().expect("not empty"));
    // What vanishes while the stream is open is skipped or still shown, never an error.
    let last = if first.name == name(COUNT - 1) { name(0) } else { name(COUNT - 1) };
    ok(a.remove_file(&at(&last)));
    let mut seen = vec![first.name];
    seen.extend(listing.map(|entry| ok(entry).name));
    seen.retain(|name| *name != last);
    seen.sort();
    let expected: Vec<_> = (0..COUNT).map(name).filter(|n| *n != last).collect();
    assert!(seen == expected, "{} names seen", seen.len());
}

pub fn a_sorted_listing_is_counted_up_to_a_limit(a: &dyn Connector, b: &dyn Connector) {
    let expected = [b"a", b"b", b"c"];
    for name in [b"c", b"a", b"b"] {
        store(a, &path(name), name);
    }
    let named = |listing: Listing| listing.map(|entry| ok(entry).name).collect::<Vec<_>>();
    let (listing, count) = ok(b.list_sorted(&path("/"), 3));
    assert_eq!((named(listing), count), (expected.map(|name| name.to_vec()).to_vec(), Some(3)));
    let (listing, count) = ok(b.list_sorted(&path("/"), 2));
    let mut all = named(listing);
    all.sort();
    assert_eq!((all, count), (expected.map(|name| name.to_vec()).to_vec(), None), "in any order");
    // What vanishes meanwhile is skipped or still shown, never an error.
    let (listing, _) = ok(b.list_sorted(&path("/"), 3));
    ok(a.remove_file(&path("b")));
    let left = named(listing);
    assert!(left.iter().filter(|name| *name != b"b").eq([b"a", b"c"]), "{left:?}");
}

pub fn listings_describe_links_themselves(a: &dyn Connector, _: &dyn Connector) {
    if !a.capabilities().symlinks {
        return;
    }
    store(a, &path("file"), b"bytes");
    ok(a.symlink(b"file", &path("link")));
    ok(a.symlink(b"missing", &path("dangling")));
    let listing: Vec<_> = ok(a.list(&path("/"))).map(|entry| ok(entry)).collect();
    assert_eq!(listing.len(), 3);
    for entry in listing {
        let target = match &entry.name[..] {
            b"link" => Some(&b"file"[..]),
            b"dangling" => Some(&b"missing"[..]),
            _ => None,
        };
        assert_eq!(entry.meta.link_target.as_deref(), target);
        assert_eq!(entry.meta.kind == Kind::Symlink, target.is_some());
    }
}

pub fn names_need_not_be_utf8(a: &dyn Connector, b: &dyn Connector) {
    let odd: &[&[u8]] = &[b"\xff\xfe", b"a\nb", b"\\", b" ", b"-", b"\x80.txt"];
    for name in odd {
        store(a, &path(name), name);
        assert_eq!(load(b, &path(name)), *name);
    }
    let mut expected: Vec<Vec<u8>> = odd.iter().map(|name| name.to_vec()).collect();
    expected.sort();
    assert_eq!(names(a, &path("/")), expected);
    ok(a.rename(&path(b"\xff\xfe"), &path(b"\xfe\xff"), false));
    ok(a.remove_file(&path(b"\xfe\xff")));
}

pub fn the_longest_names_can_be_written(a: &dyn Connector, b: &dyn Connector) {
    for len in [240, 241, 254, 255] {
        let (one, mut other) = (vec![b'x'; len], vec![b'x'; len]);
        other[len - 1] = b'y';
        let first = ok(a.begin(&path(&one), &REPLACE));
        let second = ok(b.begin(&path(&other), &REPLACE));
        put(a, &first, 0, b"one");
        put(b, &second, 0, b"other");
        commit(a, &first);
        commit(b, &second);
        assert_eq!(load(a, &path(&one)), b"one");
        assert_eq!(load(a, &path(&other)), b"other");
    }
}

pub fn rename_replaces_a_file(a: &dyn Connector, _: &dyn Connector) {
    store(a, &path("one"), b"one");
    store(a, &path("two"), b"two");
    ok(a.rename(&path("one"), &path("two"), false));
    missing(a, &path("one"));
    assert_eq!(load(a, &path("two")), b"one");
    ok(a.rename(&path("two"), &path("two"), false));
    assert_eq!(load(a, &path("two")), b"one");
}

pub fn what_is_renamed_durably_is_renamed(a: &dyn Connector, b: &dyn Connector) {
    store(a, &path("one"), b"1");
    store(a, &path("two"), b"2");
    ok(a.make_dir(&path("dir")));
    ok(a.rename(&path("one"), &path("two"), true));
    assert_eq!(load(b, &path("two")), b"1");
    ok(a.rename(&path("two"), &path("dir/moved"), true));
    ok(a.rename(&path("dir"), &path("other"), true));
    assert_eq!(load(b, &path("other/moved")), b"1");
    assert_eq!(names(b, &path("/")), [b"other"]);
    refused(a.rename(&path("gone"), &path("two"), true), FaultCode::NotFound);
    refused(a.rename(&path("other"), &path("other/below"), true), FaultCode::InvalidArgument);
    if a.capabilities().symlinks {
        ok(a.symlink(b"nowhere", &path("link")));
        ok(a.rename(&path("link"), &path("renamed"), true));
        assert_eq!(kind(b, &path("renamed")), Kind::Symlink);
    }
}

pub fn rename_moves_between_directories(a: &dyn Connector, _: &dyn Connector) {
    for dir in ["a", "a/sub", "b", "empty", "full", "full/x"] {
        ok(a.make_dir(&path(dir)));
    }
    store(a, &path("a/sub/file"), b"bytes");
    ok(a.rename(&path("a/sub"), &path("b/moved"), false));
    assert_eq!(load(a, &path("b/moved/file")), b"bytes");
    assert!(names(a, &path("a")).is_empty());
    ok(a.rename(&path("b"), &path("empty"), false));
    assert_eq!(load(a, &path("empty/moved/file")), b"bytes");
    refused(a.rename(&path("empty"), &path("full"), false), FaultCode::DirectoryNotEmpty);
}

pub fn a_directory_cannot_move_into_itself(a: &dyn Connector, _: &dyn Connector) {
    ok(a.make_dir(&path("a")));
    ok(a.make_dir(&path("a/b")));
    let below = a.rename(&path("a"), &path("a/b/c"), false);
    refused(below, FaultCode::InvalidArgument);
    assert_eq!(names(a, &path("a")), [b"b"]);
}

pub fn remove_tree_spares_what_links_point_to(a: &dyn Connector, b: &dyn Connector) {
    ok(a.make_dir(&path("kept")));
    store(a, &path("kept/file"), b"kept");
    for dir in ["tree", "tree/a", "tree/a/b", "tree/c"] {
        ok(a.make_dir(&path(dir)));
    }
    for i in 0..300 {
        ok(a.make_dir(&path(format!("tree/c/{i}"))));
    }
    store(a, &path("tree/file"), b"gone");
    store(a, &path("tree/a/b/file"), b"gone");
    if a.capabilities().symlinks {
        ok(a.symlink(b"/kept", &path("tree/a/absolute")));
        ok(a.symlink(b"../../kept", &path("tree/a/b/relative")));
        ok(a.symlink(b"../kept/file", &path("tree/to-file")));
    }
    ok(b.remove_tree(&path("tree")));
    missing(a, &path("tree"));
    assert_eq!(load(a, &path("kept/file")), b"kept");
    refused(a.remove_tree(&path("tree")), FaultCode::NotFound);
}

pub fn a_deep_tree_can_be_removed(a: &dyn Connector, _: &dyn Connector) {
    // Deeper than a process may have descriptors; built from below, as a long path is slow to walk.
    ok(a.make_dir(&path("top")));
    for _ in 0..1100 {
        ok(a.make_dir(&path("above")));
        ok(a.rename(&path("top"), &path("above/d"), false));
        ok(a.rename(&path("above"), &path("top"), false));
    }
    ok(a.remove_tree(&path("top")));
    assert!(names(a, &path("/")).is_empty());
}

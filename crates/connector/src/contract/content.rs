//! Bytes in, the same bytes out.

use std::thread;

use whimbrel_engine::{FaultCode, RangeSet};

use super::help::*;
use crate::session::Attributes;
use crate::{Connector, Version, WriteOrder};

pub fn a_file_reads_back_as_written(a: &dyn Connector, b: &dyn Connector) {
    let data = pattern(300_000);
    let meta = store(a, &path("file"), &data);
    assert_eq!(meta.size, 300_000);
    assert!(load(b, &path("file")) == data, "the bytes differ");
    let reader = ok(a.open_read(&path("file"), None));
    let mut part = vec![0; 1000];
    assert_eq!(ok(reader.read_at(123_456, &mut part)), 1000);
    assert!(part == data[123_456..124_456], "a part differs");
}

pub fn an_empty_file_can_be_written_and_read(a: &dyn Connector, b: &dyn Connector) {
    let session = ok(a.begin(&path("empty"), &REPLACE));
    commit(a, &session);
    assert_eq!(load(b, &path("empty")), b"");
    let reader = ok(b.open_read(&path("empty"), None));
    assert!(ok(reader.data_ranges()).is_empty());
}

pub fn reads_end_at_the_end_of_the_file(a: &dyn Connector, _: &dyn Connector) {
    store(a, &path("file"), b"0123456789");
    let reader = ok(a.open_read(&path("file"), None));
    let mut buffer = [0; 8];
    assert_eq!(ok(reader.read_at(6, &mut buffer)), 4);
    assert_eq!(&buffer[..4], b"6789");
    for offset in [10, 11, 1 << 40, u64::MAX - 3, u64::MAX] {
        assert_eq!(ok(reader.read_at(offset, &mut buffer)), 0, "at {offset}");
    }
    assert_eq!(ok(reader.read_at(3, &mut [])), 0);
}

pub fn blocks_may_arrive_in_any_order(a: &dyn Connector, _: &dyn Connector) {
    if a.capabilities().write_order != WriteOrder::Any {
        return;
    }
    let data = pattern(100_000);
    let session = ok(a.begin(&path("file"), &REPLACE));
    let writer = ok(a.join(&session));
    for at in [70_000, 0, 90_000, 30_000, 60_000, 10_000] {
        let end = [10_000, 30_000, 60_000, 70_000, 90_000, 100_000].into_iter().find(|&end| end > at).unwrap_or(at);
        ok(writer.write_at(at as u64, &data[at..end]));
    }
    let receipt = ok(writer.finish());
    assert_eq!(receipt.written.to_string(), "0-100000");
    ok(a.commit(&session, &[receipt], &Attributes::default()));
    assert!(load(a, &path("file")) == data, "the bytes differ");
}

pub fn many_writers_fill_one_file(a: &dyn Connector, b: &dyn Connector) {
    if a.capabilities().write_order != WriteOrder::Any {
        return;
    }
    const PART: usize = 50_000;
    let data = pattern(8 * PART + 17);
    let session = ok(a.begin(&path("file"), &REPLACE));
    let receipts: Vec<_> = thread::scope(|scope| {
        let write = |i: usize, part| {
            let (session, storage) = (&session, if i.is_multiple_of(2) { a } else { b });
            scope.spawn(move || {
                let writer = ok(storage.join(session));
                ok(writer.write_at((i * PART) as u64, part));
                ok(writer.finish())
            })
        };
        let threads: Vec<_> = data.chunks(PART).enumerate().map(|(i, p)| write(i, p)).collect();
        let done = threads.into_iter().map(|thread| thread.join());
        done.map(|r| r.expect("a writer panicked")).collect()
    });
    ok(b.commit(&session, &receipts, &Attributes::default()));
    assert!(load(a, &path("file")) == data, "the bytes differ");
}

pub fn holes_stay_holes(a: &dyn Connector, _: &dyn Connector) {
    if !a.capabilities().sparse || a.capabilities().write_order != WriteOrder::Any {
        return;
    }
    let session = ok(a.begin(&path("sparse"), &REPLACE));
    put(a, &session, 8 << 20, b"middle");
    let attributes = Attributes { size: Some(16 << 20), ..Attributes::default() };
    assert_eq!(commit_as(a, &session, &attributes).size, 16 << 20);
    let reader = ok(a.open_read(&path("sparse"), None));
    let ranges = ok(reader.data_ranges());
    assert!(ranges.covers(8 << 20..(8 << 20) + 6), "{ranges}");
    assert!(ranges.len() <= 1 << 20, "holes were filled: {ranges}");
    assert!(ranges.end() <= 16 << 20);
    let mut buffer = [7; 10];
    assert_eq!(ok(reader.read_at((8 << 20) - 2, &mut buffer)), 10);
    assert_eq!(&buffer, b"\0\0middle\0\0");
}

pub fn extents_tell_what_is_data_and_where_it_ends(a: &dyn Connector, b: &dyn Connector) {
    if !a.capabilities().sparse || a.capabilities().write_order != WriteOrder::Any {
        return;
    }
    let session = ok(a.begin(&path("sparse"), &REPLACE));
    put(a, &session, 8 << 20, b"middle");
    ok(a.commit(&session, &[], &Attributes { size: Some(16 << 20), ..Attributes::default() }));
    let reader = ok(b.open_read(&path("sparse"), None));
    assert!(reader.may_have_holes());
    let mut at = 0;
    let mut data = RangeSet::new();
    while at < 16 << 20 {
        let extent = ok(reader.extent_at(at));
        assert!(extent.end > at, "{extent:?} at {at}");
        let end = extent.end.min(16 << 20);
        if extent.is_data {
            data.insert(at..end);
        }
        at = end;
    }
    assert_eq!(data, ok(reader.data_ranges()));
    let middle = ok(reader.extent_at((8 << 20) + 3));
    assert!(middle.is_data && middle.end >= (8 << 20) + 6, "{middle:?}");
    let beyond = ok(reader.extent_at(16 << 20));
    assert!(!beyond.is_data && beyond.end == u64::MAX, "{beyond:?}");
    store(a, &path("dense"), &pattern(10_000));
    let dense = ok(a.open_read(&path("dense"), None));
    let all = ok(dense.extent_at(0));
    assert!(all.is_data && all.end >= 10_000, "{all:?}");
}

pub fn what_is_cleared_is_a_hole_and_reads_as_zeros(a: &dyn Connector, b: &dyn Connector) {
    if !a.capabilities().sparse || a.capabilities().write_order != WriteOrder::Any {
        return;
    }
    const PAGE: u64 = 64 << 10;
    let session = ok(a.begin(&path("file"), &REPLACE));
    let writer = ok(a.join(&session));
    ok(writer.write_at(0, &pattern(4 * PAGE as usize + 100)));
    ok(writer.clear(PAGE..2 * PAGE));
    // It is one already, or there is nothing yet.
    ok(writer.clear(PAGE..2 * PAGE));
    ok(writer.clear(8 * PAGE..9 * PAGE));
    // The file ends inside the last page.
    ok(writer.clear(3 * PAGE..4 * PAGE + 100));
    ok(writer.sync());
    commit(a, &session);
    let mut expected = pattern(4 * PAGE as usize + 100);
    expected[PAGE as usize..2 * PAGE as usize].fill(0);
    expected[3 * PAGE as usize..].fill(0);
    assert!(load(b, &path("file")) == expected, "the bytes differ");
    let reader = ok(b.open_read(&path("file"), None));
    let ranges = ok(reader.data_ranges());
    assert_eq!(ranges.as_slice(), [0..PAGE, 2 * PAGE..3 * PAGE], "{ranges}");
    // Of what is data in part nothing is lost.
    let session = ok(a.begin(&path("file"), &UPDATE));
    let writer = ok(a.join(&session));
    match writer.clear(10..20) {
        Err(fault) => assert_eq!(fault.code, FaultCode::NotSupported),
        Ok(()) => panic!("a page was cleared in part"),
    }
    commit(a, &session);
    assert!(load(b, &path("file")) == expected, "the bytes differ");
}

pub fn a_file_is_extended_with_a_hole_and_never_cut(a: &dyn Connector, b: &dyn Connector) {
    if a.capabilities().write_order != WriteOrder::Any {
        return;
    }
    let session = ok(a.begin(&path("file"), &REPLACE));
    let writer = ok(a.join(&session));
    ok(writer.write_at(0, b"abc"));
    ok(writer.extend_to(6));
    ok(writer.extend_to(2));
    let mut buffer = [7; 9];
    assert_eq!(ok(writer.read_back(0, &mut buffer)), 6);
    commit(a, &session);
    assert_eq!(load(b, &path("file")), b"abc\0\0\0");
}

pub fn room_is_at_least_what_the_file_takes(a: &dyn Connector, _: &dyn Connector) {
    let session = ok(a.begin(&path("file"), &REPLACE));
    let writer = ok(a.join(&session));
    ok(writer.write_at(0, &pattern(1 << 20)));
    ok(writer.sync());
    if let Some(room) = ok(writer.room()) {
        assert!(room >= 1 << 20, "{room}");
    }
}

pub fn an_open_file_outlives_its_name(a: &dyn Connector, _: &dyn Connector) {
    store(a, &path("file"), b"first");
    let reader = ok(a.open_read(&path("file"), None));
    store(a, &path("file"), b"second, longer");
    let mut buffer = [0; 20];
    assert_eq!(ok(reader.read_at(0, &mut buffer)), 5);
    assert_eq!(&buffer[..5], b"first");
    assert_eq!(ok(reader.meta()).size, 5);
}

pub fn written_data_can_be_read_back_before_commit(a: &dyn Connector, b: &dyn Connector) {
    let session = ok(a.begin(&path("file"), &REPLACE));
    put(a, &session, 0, b"0123456789");
    let mut buffer = [0; 20];
    for storage in [a, b] {
        let writer = ok(storage.join(&session));
        assert_eq!(ok(writer.read_back(2, &mut buffer)), 8);
        assert_eq!(&buffer[..8], b"23456789");
        assert_eq!(ok(writer.read_back(10, &mut buffer)), 0);
    }
}

pub fn only_synced_data_is_durable(a: &dyn Connector, _: &dyn Connector) {
    let session = ok(a.begin(&path("file"), &REPLACE));
    let writer = ok(a.join(&session));
    ok(writer.write_at(0, b"0123456789"));
    assert!(ok(writer.durable()).is_empty());
    ok(writer.sync());
    ok(writer.write_at(10, b"more"));
    assert_eq!(ok(writer.durable()).to_string(), "0-10");
}

pub fn a_changed_source_is_refused(a: &dyn Connector, b: &dyn Connector) {
    let before = store(a, &path("file"), b"first").version();
    ok(b.open_read(&path("file"), Some(&before)));
    let longer = store(a, &path("file"), b"second").version();
    let refused_with = |expected: &Version| {
        let opened = b.open_read(&path("file"), Some(expected));
        refused(opened, FaultCode::SourceChanged);
    };
    refused_with(&before);
    let mut other_time = longer.clone();
    other_time.modified.nanoseconds ^= 1;
    refused_with(&other_time);
    ok(b.open_read(&path("file"), Some(&longer)));
}

pub fn a_small_file_is_put_in_one_act(a: &dyn Connector, b: &dyn Connector) {
    ok(a.make_dir(&path("dir")));
    for (data, durable) in [(pattern(10_240), false), (pattern(1), true), (Vec::new(), false)] {
        let name = path(format!("dir/file{}", data.len()));
        let attributes = Attributes { durable, ..Attributes::default() };
        let mut seen = None;
        let mut keep = |stored: &[u8]| {
            seen = Some(stored.to_vec());
            Ok(())
        };
        ok(a.put(&name, &data, &attributes, Some(&mut keep)));
        assert_eq!(seen.as_deref(), Some(&data[..]), "what was read back");
        assert!(load(b, &name) == data, "the bytes differ");
    }
    assert_eq!(ok(b.list(&path("dir"))).count(), 3, "nothing else is left");
}

pub fn storage_for_one_operation_is_the_same_storage(a: &dyn Connector, b: &dyn Connector) {
    let Some(one) = a.for_one_operation() else { return };
    let names = ["one/a", "one/b", "two/a", "top", "one/c", "two/b"];
    ok(a.make_dir(&path("one")));
    ok(a.make_dir(&path("two")));
    for name in names {
        ok(one.put(&path(name), name.as_bytes(), &Attributes::default(), None));
        assert_eq!(load(b, &path(name)), name.as_bytes());
    }
    for name in names {
        assert_eq!(load(one.as_ref(), &path(name)), name.as_bytes());
    }
    refused(one.open_read(&path("one/missing"), None), FaultCode::NotFound);
    refused(one.open_read(&path("one"), None), FaultCode::IsADirectory);
    refused(one.open_read(&path("/"), None), FaultCode::IsADirectory);
    refused(one.open_read(&path("one/a/b"), None), FaultCode::NotADirectory);
    refused(one.put(&path("three/a"), b"x", &Attributes::default(), None), FaultCode::NotFound);
    if !a.capabilities().symlinks {
        return;
    }
    // Resolved from the root, wherever the link is.
    ok(a.symlink(b"/two/a", &path("one/absolute")));
    ok(a.symlink(b"../two/b", &path("one/relative")));
    ok(a.symlink(b"two", &path("directory")));
    ok(a.symlink(b"itself", &path("one/itself")));
    for (name, found) in
        [("one/absolute", "two/a"), ("one/relative", "two/b"), ("directory/a", "two/a"), ("one/a", "one/a")]
    {
        assert_eq!(load(one.as_ref(), &path(name)), found.as_bytes(), "{name}");
    }
    refused(one.open_read(&path("one/itself"), None), FaultCode::InvalidPath);
    ok(one.put(&path("one/relative"), b"new", &Attributes::default(), None));
    assert_eq!(load(b, &path("two/b")), b"new");
}

pub fn what_is_put_replaces_a_file_and_leftovers_of_its_name(a: &dyn Connector, b: &dyn Connector) {
    // An unfinished file of another, and finished ones: by turns, so that what was there before is no help.
    let unfinished = ok(a.begin(&path("one"), &REPLACE));
    put(a, &unfinished, 0, b"half of it");
    store(a, &path("two"), &pattern(20_000));
    for name in ["one", "two", "three", "two", "one"] {
        let data = pattern(300 + name.len());
        ok(b.put(&path(name), &data, &Attributes::default(), None));
        assert!(load(a, &path(name)) == data, "{name}");
    }
    assert!(a.commit(&unfinished, &[], &Attributes::default()).is_err(), "it was thrown away");
    assert_eq!(load(a, &path("one")).len(), 303);
    assert_eq!(ok(a.list(&path(""))).count(), 3, "nothing unfinished is left");
}

pub fn where_nothing_can_be_put_says_why(a: &dyn Connector, _: &dyn Connector) {
    ok(a.make_dir(&path("dir")));
    let try_put = |name: &str| a.put(&path(name), b"data", &Attributes::default(), None);
    refused(try_put("dir"), FaultCode::IsADirectory);
    refused(try_put(""), FaultCode::IsADirectory);
    refused(try_put("missing/file"), FaultCode::NotFound);
    refused(
        a.put(&path("file"), b"data", &Attributes { mode: Some(0o10_000), ..Attributes::default() }, None),
        FaultCode::InvalidArgument,
    );
    assert_eq!(ok(a.list(&path(""))).count(), 1);
}

pub fn all_that_is_below_a_directory_is_made_durable(a: &dyn Connector, b: &dyn Connector) {
    ok(a.make_dir(&path("dir")));
    store(a, &path("dir/file"), b"bytes");
    match b.sync(&path("dir")) {
        Err(fault) if fault.code == FaultCode::NotSupported => return,
        result => ok(result),
    }
    ok(b.sync(&path("/")));
    refused(b.sync(&path("dir/file")), FaultCode::NotADirectory);
    refused(b.sync(&path("missing")), FaultCode::NotFound);
    assert_eq!(load(a, &path("dir/file")), b"bytes");
}

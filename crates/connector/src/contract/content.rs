//! Bytes in, the same bytes out.

use std::thread;

use whimbrel_engine::FaultCode;

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
    let meta = ok(b.commit(&session, &receipts, &Attributes::default()));
    assert_eq!(meta.size, data.len() as u64);
    assert!(load(a, &path("file")) == data, "the bytes differ");
}

pub fn holes_stay_holes(a: &dyn Connector, _: &dyn Connector) {
    if !a.capabilities().sparse || a.capabilities().write_order != WriteOrder::Any {
        return;
    }
    let session = ok(a.begin(&path("sparse"), &REPLACE));
    put(a, &session, 8 << 20, b"middle");
    let attributes = Attributes { size: Some(16 << 20), ..Attributes::default() };
    assert_eq!(ok(a.commit(&session, &[], &attributes)).size, 16 << 20);
    let reader = ok(a.open_read(&path("sparse"), None));
    let ranges = ok(reader.data_ranges());
    assert!(ranges.covers(8 << 20..(8 << 20) + 6), "{ranges}");
    assert!(ranges.len() <= 1 << 20, "holes were filled: {ranges}");
    assert!(ranges.end() <= 16 << 20);
    let mut buffer = [7; 10];
    assert_eq!(ok(reader.read_at((8 << 20) - 2, &mut buffer)), 10);
    assert_eq!(&buffer, b"\0\0middle\0\0");
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

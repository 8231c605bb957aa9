//! What is written past the page cache is what was given, wherever it lies and whoever else writes.

use std::fs::{File, read};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::thread;

use rustix::fs::{Advice, fadvise};
use tempfile::TempDir;
use whimbrel_engine::{FaultCode, RangeSet};
use whimbrel_sys::pages::Pages;
use whimbrel_sys::resident::resident_pages;

use super::*;
use crate::posix::{Posix, PosixOptions};
use crate::session::{Attributes, Disposition, WriteIntent};
use crate::{Connector, ReadsFrom, StoragePath, WriteAt};

const PIECE: usize = 64 << 10;
const DURABLE: Attributes = Attributes { mode: None, group: None, modified: None, size: None, durable: true };

fn options(from: u64, pieces: usize) -> PosixOptions {
    PosixOptions { direct: Some(DirectOptions { from, piece: PIECE, pieces }), ..PosixOptions::default() }
}

fn direct(dir: &Path, pieces: usize) -> Posix {
    Posix::open(dir, options(0, pieces)).unwrap()
}

fn lab() -> (TempDir, Posix) {
    let dir = tempfile::tempdir().unwrap();
    let storage = direct(dir.path(), 16);
    (dir, storage)
}

fn path() -> StoragePath {
    StoragePath::resolve(&StoragePath::root(), b"file").unwrap()
}

fn begin(storage: &Posix, disposition: Disposition, size: Option<u64>) -> WriteSession {
    storage.begin(&path(), &WriteIntent { disposition, size, length: size, mode: None }).unwrap()
}

fn handle(storage: &Posix, session: &WriteSession) -> Arc<Handle> {
    storage.handle_of(session, &Token::of(session).unwrap()).unwrap()
}

/// Numbers that look random, the same in every run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.below(256) as u8).collect()
    }
}

fn resident(file: &Path) -> u64 {
    let file = File::options().read(true).write(true).open(file).unwrap();
    resident_pages(file.as_fd(), 0..file.metadata().unwrap().len()).unwrap()
}

/// As storage has it, not memory.
fn stored(file: &Path) -> Vec<u8> {
    let open = File::open(file).unwrap();
    open.sync_all().unwrap();
    fadvise(&open, 0, None, Advice::DontNeed).unwrap();
    read(file).unwrap()
}

/// Two threads, bits of odd lengths, which meet in every piece.
fn write_in_bits(writer: &dyn WriteAt, data: &[u8]) {
    thread::scope(|scope| {
        for first in 0..2 {
            scope.spawn(move || {
                for (number, bit) in data.chunks(10_007).enumerate().skip(first).step_by(2) {
                    writer.write_at(number as u64 * 10_007, bit).unwrap();
                }
            });
        }
    });
}

#[test]
fn no_page_of_a_large_file_is_left_in_memory_by_writing_proving_and_reading_it() {
    let data = Numbers(1).bytes((8 << 20) + 12_345);
    for past_cache in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let options = if past_cache { options(8 << 20, 16) } else { PosixOptions::default() };
        let storage = Posix::open(dir.path(), options).unwrap();
        let session = begin(&storage, Disposition::Replace, Some(data.len() as u64));
        let writer = storage.join(&session).unwrap();
        write_in_bits(writer.as_ref(), &data);
        writer.sync().unwrap();
        let part = dir.path().join(".file.whimbrel-part");
        assert_eq!(resident(&part) == 0, past_cache, "written");
        let mut proof = Pages::new(256 << 10).unwrap();
        for (number, expected) in data.chunks(256 << 10).enumerate() {
            let count = writer.read_back((number * (256 << 10)) as u64, &mut proof).unwrap();
            assert_eq!(&proof[..count], expected);
        }
        storage.commit(&session, &[], &DURABLE).unwrap();
        let file = dir.path().join("file");
        // The end of the file is no whole block: its one page may be there.
        assert_eq!(resident(&file) <= 1, past_cache, "read back");
        assert_eq!(stored(&file), data);
        fadvise(File::open(&file).unwrap(), 0, None, Advice::DontNeed).unwrap();
        let reader = storage.open_read(&path(), None).unwrap();
        let mut seen = Vec::new();
        loop {
            let count = reader.read_at(seen.len() as u64, &mut proof).unwrap();
            seen.extend_from_slice(&proof[..count]);
            if count < proof.len() {
                break;
            }
        }
        assert_eq!(seen, data);
        assert_eq!(resident(&file) <= 1, past_cache, "read");
    }
}

#[test]
fn any_order_of_writes_syncs_and_reads_leaves_what_was_written_last() {
    const SIZE: usize = 700_001;
    for seed in 0..24 {
        let mut numbers = Numbers(seed);
        let dir = tempfile::tempdir().unwrap();
        // With little room much goes through the page cache, beside pieces that do not.
        let storage = direct(dir.path(), 1 + numbers.below(6));
        let size = [None, Some(SIZE as u64), Some(300_000)][numbers.below(3)];
        let session = begin(&storage, Disposition::Replace, size);
        let writer = storage.join(&session).unwrap();
        let mut model = vec![0; SIZE];
        writer.extend_to(SIZE as u64).unwrap();
        for step in 0..120 {
            let start = numbers.below(SIZE);
            let longest = [100, 5_000, 200_000][numbers.below(3)];
            let range = start..(start + 1 + numbers.below(longest)).min(SIZE);
            match numbers.below(12) {
                0 => writer.sync().unwrap(),
                1 => writer.settle(range.start as u64..range.end as u64).unwrap(),
                2 => assert!(writer.drop_cached(range.start as u64..range.end as u64).is_ok()),
                3 => {
                    let hole = range.start / 4096 * 4096..range.end.next_multiple_of(4096).min(SIZE);
                    if writer.clear(hole.start as u64..hole.end as u64).is_ok() {
                        model[hole].fill(0);
                    }
                }
                4 | 5 => {
                    let mut seen = Pages::new(range.len().next_multiple_of(4096)).unwrap();
                    // On a block or not.
                    let at = if numbers.below(2) == 0 { range.start } else { range.start / 4096 * 4096 };
                    let count = writer.read_back(at as u64, &mut seen).unwrap();
                    assert_eq!(seen[..count], model[at..at + count], "seed {seed}, step {step}");
                    assert_eq!(count, seen.len().min(SIZE - at));
                }
                6 if seed % 3 == 0 && step > 60 => {
                    handle(&storage, &session).gathering().unwrap().file().refuse_from_now_on();
                }
                _ => {
                    let data = numbers.bytes(range.len());
                    writer.write_at(range.start as u64, &data).unwrap();
                    model[range].copy_from_slice(&data);
                }
            }
        }
        storage.commit(&session, &[], &DURABLE).unwrap();
        assert!(stored(&dir.path().join("file")) == model, "seed {seed}");
    }
}

#[test]
fn a_commit_a_receipt_and_the_end_of_a_writer_leave_nothing_behind_in_this_process() {
    let data = Numbers(2).bytes(PIECE + 5);
    for how in 0..3 {
        let (dir, storage) = lab();
        let session = begin(&storage, Disposition::Replace, Some(1 << 20));
        let writer = storage.join(&session).unwrap();
        writer.write_at(3, &data).unwrap();
        let part = dir.path().join(".file.whimbrel-part");
        assert!(read(&part).unwrap().len() < 3 + data.len(), "no whole piece is there: it is kept");
        match how {
            0 => storage.commit(&session, &[], &Attributes { size: Some(70), ..Attributes::default() }).unwrap(),
            1 => drop(writer.finish().unwrap()),
            _ => drop(writer),
        }
        let expected = [&[0; 3][..], &data].concat();
        match how {
            0 => assert_eq!(read(dir.path().join("file")).unwrap(), expected[..70]),
            _ => assert_eq!(read(part).unwrap(), expected),
        }
        assert!(storage.direct.as_ref().unwrap().buffers.in_use() == 0, "{how}");
    }
}

#[test]
fn what_is_kept_never_reaches_a_file_that_another_has_committed() {
    let (dir, here) = lab();
    let there = direct(dir.path(), 16);
    let session = begin(&here, Disposition::Continue, Some(100));
    let late = here.join(&session).unwrap();
    late.write_at(0, b"stale").unwrap();
    there.join(&session).unwrap().write_at(0, b"right").unwrap();
    there.commit(&session, &[], &DURABLE).unwrap();
    assert_eq!(late.settle(0..100).map_err(|fault| fault.code), Err(FaultCode::StorageBusy));
    assert_eq!(late.sync().map_err(|fault| fault.code), Err(FaultCode::StorageBusy));
    drop(late);
    assert_eq!(read(dir.path().join("file")).unwrap(), b"right");
}

#[test]
fn two_hosts_that_share_a_piece_keep_each_others_bytes() {
    let (dir, one) = lab();
    let other = direct(dir.path(), 16);
    let data = Numbers(3).bytes(3 * PIECE + 100);
    let session = begin(&one, Disposition::Continue, Some(data.len() as u64));
    let writers = [one.join(&session).unwrap(), other.join(&session).unwrap()];
    // The border is inside a piece, and inside a page.
    let border = PIECE + 5_000;
    writers[0].write_at(0, &data[..border]).unwrap();
    writers[1].write_at(border as u64, &data[border..]).unwrap();
    writers[0].sync_range(0..border as u64).unwrap();
    writers[1].sync_range(border as u64..data.len() as u64).unwrap();
    assert_eq!(writers[0].durable().unwrap(), RangeSet::from(0..border as u64));
    drop(writers);
    assert_eq!(stored(&dir.path().join(".file.whimbrel-part")), data);
    // And who goes on with it writes over what is there.
    let again = one.join(&begin(&one, Disposition::Continue, Some(data.len() as u64))).unwrap();
    again.write_at(10, &[7; PIECE]).unwrap();
    again.sync().unwrap();
    let expected = [&data[..10], &[7; PIECE], &data[10 + PIECE..]].concat();
    assert_eq!(stored(&dir.path().join(".file.whimbrel-part")), expected);
}

#[test]
fn syncing_one_part_leaves_the_pieces_of_others_to_grow() {
    let (_dir, storage) = lab();
    let session = begin(&storage, Disposition::Continue, Some(1 << 20));
    let writer = storage.join(&session).unwrap();
    writer.write_at(0, &[1; 100]).unwrap();
    writer.write_at(10 * PIECE as u64, &[2; 100]).unwrap();
    writer.sync_range(0..PIECE as u64).unwrap();
    let handle = handle(&storage, &session);
    assert!(!handle.keeps(&(0..PIECE as u64)));
    assert!(handle.keeps(&(PIECE as u64..u64::MAX)));
    writer.sync().unwrap();
    assert!(!handle.keeps(&(0..u64::MAX)));
}

#[test]
fn what_could_not_be_written_meanwhile_fails_the_sync_and_the_commit() {
    let (dir, storage) = lab();
    let session = begin(&storage, Disposition::Replace, None);
    let handle = handle(&storage, &session);
    let (log, common) = (Arc::default(), storage.direct.as_ref().unwrap());
    // Every direct write of it fails.
    let broken = Aligned::open(&handle.file, false, log).unwrap();
    let broken = Gathering::new(broken, 0, common.buffers.clone(), common.behind.clone());
    assert!(handle.direct.set(Some(broken)).is_ok());
    let writer = storage.join(&session).unwrap();
    writer.write_at(0, &[1; 2 * PIECE]).unwrap();
    assert!(writer.sync().is_err());
    assert!(writer.durable().unwrap().is_empty());
    assert!(storage.commit(&session, &[], &DURABLE).is_err());
    assert!(!dir.path().join("file").exists());
}

#[test]
fn holes_between_pieces_stay_holes() {
    let (_dir, storage) = lab();
    let size = 64 * PIECE as u64;
    let session = begin(&storage, Disposition::Replace, Some(size));
    let writer = storage.join(&session).unwrap();
    writer.extend_to(size).unwrap();
    writer.write_at(8 * PIECE as u64, &vec![5; 2 * PIECE]).unwrap();
    writer.write_at(size - 100, &[6; 100]).unwrap();
    storage.commit(&session, &[], &DURABLE).unwrap();
    let reader = storage.open_read(&path(), None).unwrap();
    let data = reader.data_ranges().unwrap();
    assert_eq!(data.within(0..size / 2), RangeSet::from(8 * PIECE as u64..10 * PIECE as u64));
    assert!(data.len() < 4 * PIECE as u64);
}

#[test]
fn small_files_files_changed_in_place_and_those_of_unknown_length_go_the_usual_way() {
    let dir = tempfile::tempdir().unwrap();
    let storage = Posix::open(dir.path(), options(1 << 20, 16)).unwrap();
    let goes_past = |disposition, size| {
        let session = begin(&storage, disposition, size);
        let _writer = storage.join(&session).unwrap();
        let past = handle(&storage, &session).gathering().is_some();
        storage.abandon(&session).unwrap();
        past
    };
    assert!(goes_past(Disposition::Replace, Some(1 << 20)));
    assert!(goes_past(Disposition::Continue, Some(1 << 20)));
    assert!(!goes_past(Disposition::Replace, Some((1 << 20) - 1)));
    assert!(!goes_past(Disposition::Replace, None));
    std::fs::write(dir.path().join("file"), b"there").unwrap();
    assert!(!goes_past(Disposition::Update, Some(1 << 20)));
}

#[test]
fn a_file_system_without_direct_io_is_written_the_usual_way_and_said_once() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else { return };
    let storage = direct(dir.path(), 16);
    let data = Numbers(4).bytes(2 * PIECE + 1);
    let session = begin(&storage, Disposition::Replace, Some(data.len() as u64));
    let writer = storage.join(&session).unwrap();
    assert!(handle(&storage, &session).gathering().is_none());
    assert!(storage.direct.as_ref().unwrap().log.is_said());
    writer.write_at(0, &data).unwrap();
    assert_eq!(read(dir.path().join(".file.whimbrel-part")).unwrap(), data);
    assert_eq!(writer.drop_cached(0..data.len() as u64).unwrap(), ReadsFrom::OnlyMemory);
}

#[test]
fn the_kernel_is_asked_for_the_alignment_and_unaligned_memory_goes_the_usual_way() {
    let dir = tempfile::tempdir().unwrap();
    let file = File::options().read(true).write(true).create_new(true).open(dir.path().join("file")).unwrap();
    file.write_all_at(&[9; 10_000], 0).unwrap();
    let file = OwnedFd::from(file);
    let aligned = Aligned::open(&file, true, Arc::default()).unwrap();
    assert!(aligned.align() >= 4096 && aligned.align().is_power_of_two());
    let mut pages = Pages::new(4 * aligned.align()).unwrap();
    assert_eq!(aligned.read(0, &mut pages[1..]).unwrap(), 0);
    assert_eq!(aligned.read(1, &mut pages).unwrap(), 0);
    assert_eq!(aligned.read(0, &mut pages[..100]).unwrap(), 0);
    assert_eq!(aligned.write(1, &pages).unwrap(), 0);
    // To the end of the file, which is inside of a block.
    assert_eq!(read_to_end(&aligned, &file, &mut pages), 10_000);
    assert!(pages[..10_000].iter().all(|&byte| byte == 9));
    assert!(!aligned.is_refused());
}

fn read_to_end(aligned: &Aligned, file: &OwnedFd, pages: &mut Pages) -> usize {
    super::read(Some(aligned), file, 0, pages, u64::MAX).unwrap()
}

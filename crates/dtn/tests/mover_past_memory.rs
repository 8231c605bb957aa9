//! What a destination proves when it is asked to read back past its memory (SITE READBACK DISK), and checksums of whole files.

#![allow(missing_docs, clippy::unwrap_used)]

mod mover_support;

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use mover_support::{Answer, Node, extended, pattern, receive, send, stream};
use whimbrel_connector::faults::{Faulty, Operation, Script};
use whimbrel_connector::posix::{DirectOptions, Posix, PosixOptions};
use whimbrel_dtn::mover::message::MoverId;
use whimbrel_proto::op::{
    ChunkedFile, FailureKind, Leaf, LeafSpec, Op, Outcome, ReadFrom, ReceiveSpec, SendSpec, WriteKind,
};
use whimbrel_transport::digest::Algorithm;

const MIB: usize = 1 << 20;

/// Occurs once in a file, so that its place on a disk can be found.
const MARK: &[u8; 32] = b"whimbrel's mark, which is unique";

fn leaves(algorithm: &str) -> LeafSpec {
    LeafSpec { size: MIB as u64, algorithm: algorithm.to_owned(), holes: false, vouched: false }
}

fn hash(algorithm: Algorithm, data: &[u8]) -> String {
    algorithm.digest(data).to_string()
}

fn storing(past_memory: bool) -> ReceiveSpec {
    ReceiveSpec { leaves: Some(leaves("MD5")), past_memory, ..receive("/copy") }
}

fn sending() -> SendSpec {
    SendSpec { leaves: Some(leaves("MD5")), ..send("/source") }
}

#[track_caller]
fn told(answer: Answer) -> (Vec<Leaf>, Option<ReadFrom>) {
    match answer.done() {
        Outcome::Transferred { leaves, read_from, .. } => (leaves, read_from),
        other => panic!("{other:?}"),
    }
}

/// A node whose storage does what a script says.
fn scripted(root: &Path) -> (Node, Script) {
    let script = Script::new();
    let inner = Posix::open(root, PosixOptions::default()).unwrap();
    let storage = Arc::new(Faulty::new(inner, script.clone()));
    (Node::on(tempfile::tempdir_in(root).unwrap(), |_| {}, storage), script)
}

fn unfinished(root: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    entries.into_iter().find(|path| path.file_name().unwrap().as_encoded_bytes().starts_with(b".copy"))
}

#[test]
fn the_answer_says_where_the_leaves_were_read() {
    let on_disk = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let in_memory = tempfile::tempdir_in("/dev/shm");
    let places = [(Some(on_disk), ReadFrom::Disk), (in_memory.ok(), ReadFrom::OnlyMemory)];
    for (root, from) in places.into_iter().filter_map(|(root, from)| Some((root?, from))) {
        let mut node = Node::at(root, |_| {});
        for params in [stream(), extended(2)] {
            for size in [0, 1, 5000, 3 * MIB + 77] {
                node.write("source", &pattern(size));
                let movers = node.pair(&params);
                let (sent, received) = node.copy(movers, sending(), storing(true));
                let (stored, read_from) = told(received);
                assert_eq!((told(sent).0, read_from), (stored, Some(from)), "{size} bytes, {params:?}");
                let movers = node.pair(&params);
                let (_, received) = node.copy(movers, sending(), storing(false));
                assert_eq!(told(received).1, None, "nobody asked");
            }
        }
    }
}

#[test]
fn a_byte_that_is_damaged_between_write_and_read_back_is_in_the_answer() {
    for past_memory in [false, true] {
        let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let (mut node, script) = scripted(root.path());
        let mut data = pattern(3 * MIB);
        data[2 * MIB + 5] = 7;
        fs::write(root.path().join("source"), &data).unwrap();
        let at = root.path().to_owned();
        // Before anything is read back, and before memory forgets it.
        let first = if past_memory { Operation::DropCached } else { Operation::ReadBack };
        script.hook(move |operation, call| {
            if operation == first && call == 1 {
                let file = File::options().write(true).open(unfinished(&at).unwrap()).unwrap();
                file.write_all_at(&[8], 2 * MIB as u64 + 5).unwrap();
            }
        });
        let movers = node.pair(&extended(1));
        let (sent, received) = node.copy(movers, sending(), storing(past_memory));
        let (sent, stored) = (told(sent).0, told(received).0);
        let equal: Vec<bool> = sent.iter().zip(&stored).map(|(sent, stored)| sent == stored).collect();
        assert_eq!(equal, [true, true, false]);
    }
}

/// A file system of its own on a file, whose bytes can be changed below it.
struct Disk {
    image: tempfile::NamedTempFile,
    mount: tempfile::TempDir,
}

impl Disk {
    /// `None` where that needs rights or programs that are not there.
    fn new() -> Option<Self> {
        let image = tempfile::NamedTempFile::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        image.as_file().set_len(64 * MIB as u64).unwrap();
        let mount = tempfile::tempdir().unwrap();
        let ran = |command: &mut Command| command.output().is_ok_and(|output| output.status.success());
        let made = ran(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(image.path()));
        let mounted = made && ran(Command::new("mount").args(["-o", "loop"]).arg(image.path()).arg(mount.path()));
        mounted.then_some(Self { image, mount })
    }

    /// Changes the stored copy of the mark at the end of the file, and nothing in the memory above.
    fn damage(image: &Path, file: &Path) {
        File::open(file).unwrap().sync_all().unwrap();
        let bytes = fs::read(image).unwrap();
        let found: Vec<usize> = memchr(&bytes).collect();
        let disk = File::options().write(true).open(image).unwrap();
        // The source lies on the same disk: the copy was written later, and is damaged at each place but the first.
        for at in found.into_iter().skip(1) {
            disk.write_all_at(b"W", at as u64).unwrap();
        }
        disk.sync_all().unwrap();
    }
}

fn memchr(bytes: &[u8]) -> impl Iterator<Item = usize> {
    bytes.chunks(512).enumerate().filter(|(_, sector)| sector.starts_with(MARK)).map(|(index, _)| index * 512)
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.mount.path()).status();
    }
}

#[test]
fn what_the_disk_has_lost_is_seen_past_memory_and_only_there() {
    for past_memory in [false, true] {
        let Some(disk) = Disk::new() else {
            println!("skipped: needs root, mkfs.ext4 and loop devices");
            return;
        };
        let root = disk.mount.path();
        let (mut node, script) = scripted(root);
        let mut data = pattern(3 * MIB);
        data[MIB + 4096..MIB + 4096 + MARK.len()].copy_from_slice(MARK);
        let source = root.join("source");
        fs::write(&source, &data).unwrap();
        File::open(&source).unwrap().sync_all().unwrap();
        let (image, at) = (disk.image.path().to_owned(), root.to_owned());
        script.hook(move |operation, call| {
            // What is to be forgotten is forgotten by now.
            if operation == Operation::ReadBack && call == 1 {
                Disk::damage(&image, &unfinished(&at).unwrap());
            }
        });
        let movers = node.pair(&extended(1));
        let (sent, received) = node.copy(movers, sending(), storing(past_memory));
        let ((sent, _), (stored, read_from)) = (told(sent), told(received));
        let wrong: Vec<usize> = (0..3).filter(|&leaf| sent[leaf] != stored[leaf]).collect();
        let expected = if past_memory { (vec![1], Some(ReadFrom::Disk)) } else { (vec![], None) };
        assert_eq!((wrong, read_from), expected, "past memory: {past_memory}");
        drop(node);
    }
}

/// Opens `/copy` for chunks, moves all of `data` in one, and keeps its leaves.
fn chunked(node: &mut Node, mover: (MoverId, MoverId), data: &[u8], spec: &LeafSpec) -> Vec<u8> {
    let size = data.len() as u64;
    let file = ChunkedFile { path: b"/copy".to_vec(), size, modified: None, leaves: spec.clone() };
    let Outcome::Chunked { session, .. } = node.call(mover.1, Op::OpenChunked(file)).done() else { panic!() };
    let write = WriteKind::Chunk { offset: 0, session: session.clone() };
    let store = ReceiveSpec { write, expected_size: Some(size), leaves: Some(spec.clone()), ..receive("/copy") };
    let (_, received) = node.copy(mover, SendSpec { leaves: Some(spec.clone()), ..send("/source") }, store);
    let keep = Op::KeepLeaves { path: b"/copy".to_vec(), session: session.clone(), leaves: told(received).0 };
    node.call(mover.1, keep).done();
    session
}

#[test]
fn a_file_in_chunks_gets_its_name_only_with_the_checksum_that_is_demanded() {
    let data = pattern(3 * MIB + 77);
    // From the leaves for nothing, and by reading once more.
    for algorithm in [Algorithm::Crc32c, Algorithm::Sha256] {
        let mut node = Node::start();
        node.write("source", &data);
        let movers = node.pair(&extended(1));
        let session = chunked(&mut node, movers, &data, &leaves("CRC32C"));
        let commit = |digest: String| Op::CommitChunked {
            path: b"/copy".to_vec(),
            session: session.clone(),
            modified: None,
            mode: None,
            expected: Some((algorithm.name().to_owned(), digest)),
        };
        let right = hash(algorithm, &data);
        let wrong = hash(algorithm, b"something else");
        let failure = node.call(movers.1, commit(wrong.clone())).fails_with(FailureKind::Checksum);
        assert_eq!(failure.checksums, Some((right.clone(), wrong)), "{algorithm}");
        assert!(!node.names().contains(&"copy".to_owned()));
        node.call(movers.1, commit("zz".to_owned())).fails_with(FailureKind::Checksum);
        // What is proven was kept: the right word finishes it.
        node.call(movers.1, commit(right.to_ascii_uppercase())).done();
        assert!(node.read("copy") == data);
        node.call(movers.1, commit(right)).done();
        assert_eq!(node.names(), ["copy", "source"], "repeated after it was done, nothing is left");
    }
}

#[test]
fn a_server_with_direct_io_proves_from_disk_and_leaves_nothing_of_the_file_in_memory() {
    use std::os::fd::AsFd as _;
    for (parallelism, algorithm) in [(1, "MD5"), (2, "CRC32C"), (4, "MD5")] {
        let root = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let direct = Some(DirectOptions { from: 0, ..DirectOptions::default() });
        let storage = Posix::open(root.path(), PosixOptions { direct, ..PosixOptions::default() }).unwrap();
        let mut node = Node::on(root, |_| {}, Arc::new(storage));
        let data = pattern(20 * MIB + 77);
        node.write("source", &data);
        let movers = node.pair(&extended(parallelism));
        let from = SendSpec { leaves: Some(leaves(algorithm)), ..send("/source") };
        let to = ReceiveSpec {
            leaves: Some(leaves(algorithm)),
            past_memory: true,
            expected_size: Some(data.len() as u64),
            ..receive("/copy")
        };
        let (sent, received) = node.copy(movers, from, to);
        let (stored, read_from) = told(received);
        assert_eq!((told(sent).0, read_from), (stored, Some(ReadFrom::Disk)), "{parallelism}");
        let copy = File::options().read(true).write(true).open(node.root.path().join("copy")).unwrap();
        let resident = whimbrel_sys::resident::resident_pages(copy.as_fd(), 0..data.len() as u64).unwrap();
        // The end of the file is no whole block.
        assert!(resident <= 1, "{resident} pages");
        assert!(node.read("copy") == data);
    }
}

//! Files that are mostly holes: moved without them, kept without them, proven with them.

#![allow(clippy::unwrap_used, reason = "a test helper that fails ends its test")]

mod support;

use std::fs::File;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use support::dtn::Dtn;
use support::{Field, Server, WHIMBREL, expect, names, pattern};
use whimbrel_engine::RangeSet;
use whimbrel_testkit::cpu::PeakPss;

const MIB: u64 = 1 << 20;

/// Most memory of any one process, bytes.
const MOST_MEMORY: u64 = 300_000_000;

/// Makes a file of `size` bytes of which only `pieces` are stored, each of so many bytes at its offset.
fn make(path: &Path, size: u64, pieces: &[(u64, usize)]) {
    let file = File::create(path).unwrap();
    file.set_len(size).unwrap();
    pieces.iter().for_each(|&(at, length)| file.write_all_at(&pattern(length), at).unwrap());
    file.sync_all().unwrap();
}

/// What of a file is stored.
fn stored(path: &Path) -> RangeSet {
    let (file, mut at, mut found) = (File::open(path).unwrap(), 0, RangeSet::new());
    while let Ok(start) = rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(at)) {
        at = rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(start)).unwrap();
        found.insert(start..at);
    }
    found
}

/// Panics unless both files store the same bytes at the same places, and nothing else.
#[track_caller]
fn assert_same_with_holes(left: &Path, right: &Path) {
    assert_eq!(std::fs::metadata(left).unwrap().len(), std::fs::metadata(right).unwrap().len());
    assert_eq!(stored(left), stored(right), "the extents of {} and {}", left.display(), right.display());
    let (a, b) = (File::open(left).unwrap(), File::open(right).unwrap());
    for range in stored(left).as_slice() {
        for at in (range.start..range.end).step_by(MIB as usize) {
            let length = (range.end - at).min(MIB) as usize;
            let (mut one, mut other) = (vec![0; length], vec![1; length]);
            a.read_exact_at(&mut one, at).unwrap();
            b.read_exact_at(&mut other, at).unwrap();
            assert!(one == other, "bytes {at} and {length} more of {}", right.display());
        }
    }
}

/// The last event of a copy.
#[track_caller]
fn copy(arguments: &[&str]) -> serde_json::Value {
    let run = expect(0, [&["--json", "cp"], arguments].concat());
    let text = run.stdout_text();
    serde_json::from_str(text.lines().last().expect("a summary")).unwrap()
}

/// Pieces at the start, inside a leaf, across the border of two, alone in the middle and at the very end.
fn pieces(size: u64) -> Vec<(u64, usize)> {
    vec![
        (0, 5 << 20),
        (7 << 20, 4096),
        ((32 << 20) - 8192, 16384),
        (size / 2, 3 << 20),
        (size - 4 * MIB - 5, (4 << 20) + 5),
    ]
}

#[test]
fn a_sparse_file_stays_one_whichever_of_our_ends_it_goes_between() {
    let field = Field::new();
    let size = 3000 * MIB + 5;
    let from = field.path("from/sparse");
    make(&from, size, &pieces(size));
    let (source, destination) = (Server::own(), Server::own());
    let sources = [source.url(&from), from.to_string_lossy().into_owned()];
    let into = |name: &str| [destination.url(field.path(name)), field.path(name).to_string_lossy().into_owned()];
    for (at, source) in sources.iter().enumerate() {
        for (to, destination) in into(&format!("to/copy{at}")).iter().enumerate() {
            let path = field.path(&format!("to/copy{at}"));
            let last = copy(&[source, destination]);
            assert_eq!((&last["verified"], &last["bytes"]), (&1.into(), &size.into()), "{at} {to}: {last}");
            let holes = size - stored(&from).len();
            assert_eq!((&last["bytes_holes"], &last["bytes_filled"]), (&holes.into(), &0.into()), "{at} {to}: {last}");
            assert_same_with_holes(&from, &path);
            std::fs::remove_file(&path).unwrap();
        }
    }
    assert!(names(&field.path("to")).is_empty());
}

#[test]
fn a_file_that_is_nothing_but_a_hole_is_copied_as_one() {
    let field = Field::new();
    let (source, destination) = (Server::own(), Server::own());
    make(&field.path("from/hole"), 5000 * MIB, &[]);
    let last = copy(&[&source.url(field.path("from/hole")), &destination.url(field.path("to/hole"))]);
    assert_eq!((&last["verified"], &last["bytes_holes"]), (&1.into(), &(5000 * MIB).into()), "{last}");
    assert_same_with_holes(&field.path("from/hole"), &field.path("to/hole"));
}

#[test]
fn what_was_data_in_an_older_copy_becomes_a_hole() {
    let field = Field::new();
    let (source, destination) = (Server::own(), Server::own());
    make(&field.path("from/sparse"), 600 * MIB, &[(300 * MIB, 5000)]);
    std::fs::write(field.path("to/sparse"), vec![7; 20 << 20]).unwrap();
    std::fs::set_permissions(field.path("to/sparse"), std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    copy(&[&source.url(field.path("from/sparse")), &destination.url(field.path("to/sparse"))]);
    assert_same_with_holes(&field.path("from/sparse"), &field.path("to/sparse"));
}

#[test]
fn small_files_keep_their_holes_and_their_length() {
    let field = Field::new();
    let (source, destination) = (Server::own(), Server::own());
    for (name, size, pieces) in
        [("end", 40 * MIB, vec![(0, 4096)]), ("start", 20 * MIB, vec![(19 * MIB, 1 << 20)]), ("all", 3 * MIB, vec![])]
    {
        make(&field.path("from").join(name), size, &pieces);
        let last = copy(&[&source.url(field.path("from").join(name)), &destination.url(field.path("to").join(name))]);
        assert_eq!(last["verified"], 1, "{last}");
        assert_same_with_holes(&field.path("from").join(name), &field.path("to").join(name));
    }
}

#[test]
fn with_a_real_server_holes_are_moved_as_zeros_and_that_is_said() {
    let Some(real) = Server::real() else { return };
    let field = Field::new();
    let own = Server::own();
    let size = 300 * MIB;
    make(&field.path("from/sparse"), size, &[(0, 5000), (200 * MIB, 5000)]);
    let arguments = [own.url(field.path("from/sparse")), real.url(field.path("to/sparse"))];
    let last = copy(&[&arguments[0], &arguments[1]]);
    assert_eq!((&last["verified"], &last["bytes_holes"]), (&1.into(), &0.into()), "{last}");
    assert_eq!(last["bytes_filled"], size - stored(&field.path("from/sparse")).len(), "{last}");
    let (a, b) = (std::fs::read(field.path("from/sparse")).unwrap(), std::fs::read(field.path("to/sparse")).unwrap());
    assert!(a == b);
    std::fs::remove_file(field.path("to/sparse")).unwrap();
    let run = expect(0, ["cp", &arguments[0], &arguments[1]]);
    assert!(run.stderr_text().contains("sent and stored as zeros"), "{}", run.stderr_text());
}

#[test]
fn without_verification_holes_are_moved_as_zeros() {
    let field = Field::new();
    let (source, destination) = (Server::own(), Server::own());
    make(&field.path("from/sparse"), 30 * MIB, &[(20 * MIB, 5000)]);
    copy(&["--no-verify", &source.url(field.path("from/sparse")), &destination.url(field.path("to/sparse"))]);
    let (a, b) = (std::fs::read(field.path("from/sparse")).unwrap(), std::fs::read(field.path("to/sparse")).unwrap());
    assert!(a == b);
}

/// Copies a sparse file between two servers; the time, and the largest memory of any of the three programs.
fn copy_within_memory(size: u64) -> (Duration, u64) {
    let field = Field::new();
    let from = field.path("from/sparse");
    make(&from, size, &pieces(size));
    let server = || Dtn::builder().anonymous().start();
    let (source, destination) = (server(), server());
    let start = Instant::now();
    let watch = |id| PeakPss::start(&[id], Duration::from_millis(5));
    let servers = [watch(source.daemon.id()), watch(destination.daemon.id())];
    let mut child = std::process::Command::new(WHIMBREL)
        .args(["--quiet", "cp", &source.url(&from), &destination.url(field.path("to/sparse"))])
        .spawn()
        .unwrap();
    let client = watch(child.id());
    assert!(child.wait().unwrap().success());
    let took = start.elapsed();
    let peaks = servers.into_iter().chain([client]).map(PeakPss::stop);
    assert_same_with_holes(&from, &field.path("to/sparse"));
    assert!(std::fs::metadata(field.path("to/sparse")).unwrap().blocks() * 512 < 20 * MIB);
    (took, peaks.max().unwrap())
}

#[test]
fn a_sparse_file_of_64_gib_costs_what_its_data_cost() {
    let (took, memory) = copy_within_memory(64 << 30);
    println!("{took:?}, {} MiB", memory / MIB);
    assert!(memory < MOST_MEMORY, "{memory} bytes");
    assert!(took < Duration::from_secs(30), "{took:?}: zeros were moved or hashed");
}

#[test]
#[ignore = "nightly"]
fn a_sparse_file_of_a_tebibyte_moves_in_seconds_within_300_megabytes() {
    let (took, memory) = copy_within_memory(1 << 40);
    println!("{took:?}, {} MiB", memory / MIB);
    assert!(memory < MOST_MEMORY, "{memory} bytes");
    assert!(took < Duration::from_secs(60), "{took:?}: zeros were moved or hashed");
}

#[test]
fn a_file_of_many_tebibytes_is_cut_into_longer_leaves() {
    let field = Field::new();
    // What the journal and one reply could not name in leaves of 16 MiB; ext4 has files of 16 TiB at most.
    let size = (3u64 << 40) + 12_345;
    let from = field.path("from/sparse");
    let file = File::create(&from).unwrap();
    if file.set_len(size).is_err() {
        return;
    }
    make(&from, size, &[(0, 5000), (size - 9, 9)]);
    let (source, destination) = (Server::own(), Server::own());
    let last = copy(&[&source.url(&from), &destination.url(field.path("to/sparse"))]);
    assert_eq!((&last["verified"], &last["leaves_resent"]), (&1.into(), &0.into()), "{last}");
    assert_same_with_holes(&from, &field.path("to/sparse"));
}

#[test]
fn a_full_disk_is_told_before_anything_moves_and_holes_need_no_room() {
    if !whimbrel_testkit::require_root() {
        return;
    }
    let small = whimbrel_testkit::tmpfs::Tmpfs::mount(64 << 20).unwrap();
    let field = Field::new();
    let (source, destination) = (Server::own(), Server::own());
    make(&field.path("from/dense"), 300 * MIB, &[(0, 300 << 20)]);
    let into = destination.url(small.path().join("copy"));
    let run = expect(4, ["--json", "cp", &source.url(field.path("from/dense")), &into]);
    let last: serde_json::Value = serde_json::from_str(run.stdout_text().lines().last().unwrap()).unwrap();
    let fault = &last["failures"][0]["fault"];
    assert_eq!((&fault["code"], &fault["side"]), (&"NoSpace".into(), &"destination".into()), "{last}");
    assert!(fault["detail"].as_str().unwrap().contains("nothing was moved"), "{fault}");
    assert_eq!(last["bytes_wasted"], 0, "{last}");
    make(&field.path("from/sparse"), 3000 * MIB, &[(100 * MIB, 5 << 20)]);
    copy(&[&source.url(field.path("from/sparse")), &into]);
    assert_same_with_holes(&field.path("from/sparse"), &small.path().join("copy"));
}

//! Trees of many files: memory is that of what is under way, not of what there is.

#![allow(clippy::unwrap_used, reason = "a test helper that fails ends its test")]

mod support;

use std::path::Path;
use std::time::{Duration, Instant};

use support::dtn::Dtn;
use support::{Field, WHIMBREL};
use whimbrel_testkit::cpu::PeakPss;

const MIB: u64 = 1 << 20;

/// Most memory of any one server with its data processes, and of the client, bytes.
const MOST_MEMORY: u64 = 300_000_000;

/// Makes directories in two levels, each of the lower ones with so many files.
fn make(root: &Path, directories: usize, files: usize) {
    for directory in 0..directories {
        let path = root.join(format!("group {:03}/part-{directory:05}", directory / 20));
        std::fs::create_dir_all(&path).unwrap();
        for file in 0..files {
            std::fs::write(path.join(format!("measurement-{directory:05}-{file:06}.dat")), &[b'x'; 60][..file % 60])
                .unwrap();
        }
    }
}

/// Copies with these arguments more; the summary, and the largest memory of servers and client in bytes.
fn copy(servers: [&Dtn; 2], from: &str, into: &str, more: &[&str]) -> (serde_json::Value, u64) {
    let watch = |id| PeakPss::start(&[id], Duration::from_millis(20));
    let watched = servers.map(|server| watch(server.daemon.id()));
    let log = tempfile::NamedTempFile::new().unwrap();
    let mut child = std::process::Command::new(WHIMBREL)
        .args(["--json", "cp", "-r"])
        .args(more)
        .args([from, into])
        .stdout(log.reopen().unwrap())
        .spawn()
        .unwrap();
    let client = watch(child.id());
    assert!(child.wait().unwrap().success());
    let peaks: Vec<u64> = watched.into_iter().chain([client]).map(PeakPss::stop).collect();
    println!("source, destination, client: {:?} MiB", peaks.iter().map(|peak| peak / MIB).collect::<Vec<_>>());
    let last = last_line(log.path());
    (serde_json::from_str(&last).unwrap(), peaks.into_iter().max().unwrap())
}

/// The log has a line for every file: only its end is read.
fn last_line(path: &Path) -> String {
    use std::os::unix::fs::FileExt as _;
    let file = std::fs::File::open(path).unwrap();
    let length = file.metadata().unwrap().len();
    let mut end = vec![0; length.min(64 << 10) as usize];
    let at = length - end.len() as u64;
    file.read_exact_at(&mut end, at).unwrap();
    String::from_utf8_lossy(&end).lines().last().unwrap_or_default().to_owned()
}

/// Copies a tree, and compares it with its copy in a second run that finds nothing to do.
fn tree_within_memory(directories: usize, files: usize) {
    let field = Field::new();
    make(&field.path("from/tree"), directories, files);
    let server = || Dtn::builder().anonymous().start();
    let (source, destination) = (server(), server());
    let servers = [&source, &destination];
    let (from, into) = (source.url(field.path("from/tree")), destination.url(field.path("to")));
    let total = (directories * files) as u64;
    let start = Instant::now();
    let (copied, memory) = copy(servers, &from, &into, &[]);
    println!("{total} files in {:?}", start.elapsed());
    assert_eq!((&copied["files"], &copied["verified"]), (&total.into(), &total.into()), "{copied}");
    assert!(memory < MOST_MEMORY, "{memory} bytes");
    let (again, memory) = copy(servers, &from, &into, &["--sync", "size"]);
    assert_eq!((&again["files"], &again["skipped"]), (&0.into(), &total.into()), "{again}");
    assert!(memory < MOST_MEMORY, "{memory} bytes");
}

#[test]
fn twenty_thousand_files_move_within_the_memory_of_a_few_thousand() {
    tree_within_memory(200, 100);
}

#[test]
#[ignore = "nightly"]
fn a_million_files_move_within_300_megabytes() {
    tree_within_memory(1000, 1000);
}

#[test]
#[ignore = "nightly"]
fn one_directory_of_half_a_million_files_moves_within_300_megabytes() {
    tree_within_memory(1, 500_000);
}

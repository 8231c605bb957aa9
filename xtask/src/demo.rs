//! `cargo xtask demo`: two data transfer nodes, a data set, a third-party copy, a verdict.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::command::{Result, cargo, root, run};
use crate::setup;

/// The data set: files of many sizes in a few folders, about 1 GB.
const FILES: &[(&str, u64)] = &[
    ("run-1/restart.h5", 400_000_000),
    ("run-1/snapshot-000.h5", 150_000_000),
    ("run-1/snapshot-001.h5", 150_000_000),
    ("run-2/restart.h5", 300_000_000),
    ("run-2/notes/readme.txt", 2_000),
    ("run-2/notes/empty.txt", 0),
];
const SMALL_FILES: u64 = 500;
const SMALL_SIZE: u64 = 10_240;
/// How long a server may take to end after it was asked to.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

/// Sets up, builds, moves, verifies; with `keep` the two nodes go on running until Enter or end of input.
pub fn run_demo(keep: bool) -> Result {
    setup::run_for_building()?;
    run(&mut cargo(&["build", "--release", "--locked", "-p", "whimbrel"]))?;
    let place = Place::new()?;
    println!("\nMaking a data set in {} ...", place.source().display());
    let bytes = make_data_set(&place.source())?;
    let source = Node::start(&place, "source")?;
    let destination = Node::start(&place, "destination")?;
    println!("Source      {}\nDestination {}\n", source.url, destination.url);
    let seconds = copy(&source, &destination)?;
    println!("\nComparing every byte ...");
    let files = compare(&place.source(), &place.destination())?;
    println!(
        "Moved {files} files, {:.2} GB, from one server to the other in {seconds:.1} s ({:.0} MB/s), \
         checksums and all; every byte compared equal.",
        bytes as f64 / 1e9,
        bytes as f64 / 1e6 / seconds
    );
    if keep {
        println!("Both nodes go on running. Press Enter to stop them.");
        std::io::stdin().read_line(&mut String::new()).map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn copy(source: &Node, destination: &Node) -> Result<f64> {
    let mut command = Command::new(binary());
    command.args(["cp", "-r", &format!("{}data", source.url), &destination.url]);
    let start = Instant::now();
    run(&mut command)?;
    Ok(start.elapsed().as_secs_f64())
}

fn binary() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    target.join("release/whimbrel")
}

/// A folder of its own that disappears with the value.
struct Place(PathBuf);

impl Place {
    fn new() -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("whimbrel-demo-{}", std::process::id()));
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        // The servers' data processes run as another user when this runs as root.
        open_to_all(&folder)?;
        Ok(Self(folder))
    }

    fn source(&self) -> PathBuf {
        self.0.join("source/data")
    }

    fn destination(&self) -> PathBuf {
        self.0.join("destination/data")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("{} could not be removed: {error}", self.0.display());
        }
    }
}

/// A running `whimbrel dtn`, asked to end with the value, as a service manager would.
struct Node {
    process: Child,
    url: String,
}

impl Node {
    fn start(place: &Place, name: &str) -> Result<Self> {
        let folder = place.0.join(name);
        fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
        open_to_all(&folder)?;
        let mut command = Command::new(binary());
        command.args(["dtn", "--listen", "127.0.0.1:0", "--anonymous", "--root"]).arg(&folder);
        command.env("WHIMBREL_LOG", "error").stdout(Stdio::piped());
        let mut process = command.spawn().map_err(|error| format!("whimbrel dtn: {error}"))?;
        let output = process.stdout.take().expect("piped above");
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).map_err(|error| error.to_string())?;
        let url = line.trim().strip_prefix("listening on ").map(str::to_owned);
        let node = Self { url: url.clone().unwrap_or_default(), process };
        if url.is_some() { Ok(node) } else { Err(format!("whimbrel dtn said: {line}")) }
    }

    /// Whether it ends by itself, asked to.
    fn ends(&mut self) -> bool {
        let asked = Command::new("sh").args(["-c", "kill -TERM \"$0\"", &self.process.id().to_string()]).status();
        if !asked.is_ok_and(|status| status.success()) {
            return false;
        }
        let late = Instant::now() + ENDS_WITHIN;
        while Instant::now() < late {
            match self.process.try_wait() {
                Ok(None) => sleep(Duration::from_millis(10)),
                ended => return ended.is_ok(),
            }
        }
        false
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if !self.ends() {
            // Ending a process that has ended already is no error worth telling.
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

fn open_to_all(folder: &Path) -> Result {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o777))
        .map_err(|error| format!("{}: {error}", folder.display()))
}

fn make_data_set(folder: &Path) -> Result<u64> {
    let mut state = 0x9e37_79b9_7f4a_7c15;
    let mut total = 0;
    for (name, size) in FILES {
        total += make_file(&folder.join(name), *size, &mut state)?;
    }
    for number in 0..SMALL_FILES {
        total += make_file(&folder.join(format!("catalogue/tile-{number:04}.fits")), SMALL_SIZE, &mut state)?;
    }
    Ok(total)
}

fn make_file(path: &Path, size: u64, state: &mut u64) -> Result<u64> {
    let failed = |error: std::io::Error| format!("{}: {error}", path.display());
    fs::create_dir_all(path.parent().expect("a file lies in a folder")).map_err(failed)?;
    let mut file = File::create(path).map_err(failed)?;
    let mut block = vec![0u8; 1 << 20];
    let mut left = size;
    while left > 0 {
        for word in block.chunks_exact_mut(8) {
            // xorshift64: incompressible and quick.
            *state ^= *state << 13;
            *state ^= *state >> 7;
            *state ^= *state << 17;
            word.copy_from_slice(&state.to_le_bytes());
        }
        let count = left.min(block.len() as u64);
        file.write_all(&block[..count as usize]).map_err(failed)?;
        left -= count;
    }
    Ok(size)
}

/// Compares two trees byte by byte; returns the number of files.
fn compare(left: &Path, right: &Path) -> Result<u64> {
    let mut files = 0;
    for entry in fs::read_dir(left).map_err(|error| format!("{}: {error}", left.display()))? {
        let from = entry.map_err(|error| error.to_string())?.path();
        let to = right.join(from.file_name().expect("entries have names"));
        if from.is_dir() {
            files += compare(&from, &to)?;
        } else {
            same_bytes(&from, &to)?;
            files += 1;
        }
    }
    Ok(files)
}

fn same_bytes(left: &Path, right: &Path) -> Result {
    let open = |path: &Path| File::open(path).map_err(|error| format!("{}: {error}", path.display()));
    let (mut a, mut b) = (open(left)?, open(right)?);
    let (mut block_a, mut block_b) = (Vec::new(), Vec::new());
    loop {
        block_a.clear();
        block_b.clear();
        Read::by_ref(&mut a).take(1 << 20).read_to_end(&mut block_a).map_err(|error| error.to_string())?;
        Read::by_ref(&mut b).take(1 << 20).read_to_end(&mut block_b).map_err(|error| error.to_string())?;
        if block_a != block_b {
            return Err(format!("{} and {} differ", left.display(), right.display()));
        }
        if block_a.is_empty() {
            return Ok(());
        }
    }
}

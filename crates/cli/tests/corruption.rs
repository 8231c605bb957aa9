//! What damage on the way costs: goodput against the rate of damaged bits, for several leaf sizes.
//!
//! With `WHIMBREL_WRITE_DOCS=1` the table and the figure of the reference are written anew.
#![allow(clippy::unwrap_used, reason = "a test helper that fails ends its test")]

mod support;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::dtn::{Dtn, PATIENCE};
use support::whimbrel;
use whimbrel_testkit::dataset;
use whimbrel_testkit::peers::{public_dir, url_path};
use whimbrel_testkit::plot::{Axis, Chart, Series};
use whimbrel_testkit::relay::{Relay, Way};
use whimbrel_testkit::rng::Rng;

const MIB: u64 = 1 << 20;
/// Bytes of the file.
const SIZE: u64 = 128 * MIB;
/// Leaves that are tried; a chunk has eight.
const LEAVES: [u64; 3] = [MIB / 4, MIB, 4 * MIB];
/// Damaged bits in a GiB of data, on average.
const RATES: [u64; 7] = [0, 16, 64, 128, 256, 512, 1024];
/// Copies for each point, whose middle one counts.
const ROUNDS: usize = 3;

/// What one copy came to.
struct Point {
    rate: u64,
    leaf: u64,
    /// Bytes of the file by seconds, in MB/s; `None`: it gave up.
    goodput: Option<f64>,
    /// Bytes on the way by bytes of the file.
    moved: f64,
    damaged: usize,
    again: u64,
}

/// A source and a destination with a relay before it.
struct Field {
    directory: tempfile::TempDir,
    source: Dtn,
    destination: Dtn,
}

impl Field {
    fn new(bytes: u64) -> Field {
        let directory = public_dir().unwrap();
        dataset::random_file(&directory.path().join("from"), bytes, 1).unwrap();
        let start = || Dtn::builder().anonymous().root(Path::new("/")).start();
        Field { directory, source: start(), destination: start() }
    }

    /// Copies with so many damaged bits a GiB.
    fn copy(&self, bytes: u64, rate: u64, leaf: u64) -> Point {
        self.copy_damaged(bytes, rate, leaf, |way| damage(way, rate, bytes * 8, leaf))
    }

    fn copy_damaged(&self, bytes: u64, rate: u64, leaf: u64, damage: impl FnOnce(&Way)) -> Point {
        let way = Way::new();
        let relay = Relay::before(self.destination.addr(), &way).unwrap();
        damage(&way);
        // A directory of its own: a copy would go on with what one that gave up has proven.
        let to = public_dir().unwrap();
        let into = to.path().join("to");
        let url = format!("ftp://{}{}", relay.addr(), url_path(&into));
        let from = self.source.url(self.directory.path().join("from"));
        let chunk = (8 * leaf).to_string();
        let tool = whimbrel(["--json", "cp", "--verify", "require", "--checksum", "crc32c", "--concurrency", "2"]);
        let run = tool.args(["--chunk", &chunk, &from, &url]).limit(PATIENCE * 6).run().unwrap();
        way.end();
        let text = run.stdout_text();
        let events: Vec<serde_json::Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let right = run.success();
        if right {
            let cmp = Command::new("cmp").args([self.directory.path().join("from"), into]).status().unwrap();
            assert!(cmp.success(), "a wrong file was reported right");
        } else {
            let failed = events.iter().find(|event| event["event"] == "item_failed").expect("it says why");
            assert_eq!(failed["fault"]["code"], "ChecksumMismatch", "{failed}");
        }
        let damaged = way.happened().len();
        let again = events.iter().filter(|event| event["event"] == "leaf_wrong").count() as u64;
        let goodput = right.then(|| bytes as f64 / 1e6 / run.wall.as_secs_f64());
        Point { rate, leaf, goodput, moved: way.bytes() as f64 / bytes as f64, damaged, again }
    }
}

/// Damages bits at random, independently of each other, among the first `among` bytes.
fn damage(way: &Way, rate: u64, among: u64, seed: u64) {
    if rate == 0 {
        return;
    }
    let mut rng = Rng::new(seed ^ rate);
    let mean = (1u64 << 30) as f64 / rate as f64;
    let mut at = 0.0;
    loop {
        at += -mean * (1.0 - rng.unit()).ln();
        if at as u64 >= among {
            return;
        }
        way.flip(at as u64, rng.below(8) as u8);
    }
}

#[test]
fn each_damaged_bit_costs_at_most_one_leaf() {
    let bytes = 8 * MIB;
    let field = Field::new(bytes);
    let leaf = MIB / 8;
    // Two: a copy gives up on a leaf that is wrong three times, and what goes again may be hit again.
    let point = field.copy_damaged(bytes, 256, leaf, |way| [4, 2].iter().for_each(|part| way.flip(bytes / part, 3)));
    assert!(point.damaged == 2 && point.goodput.is_some(), "{} damaged", point.damaged);
    assert!(point.again >= 1 && point.again <= point.damaged as u64, "{} leaves for {}", point.again, point.damaged);
    let most = 1.01 + (point.again * leaf) as f64 / bytes as f64;
    assert!(point.moved <= most, "{} times the file was moved, of at most {most}", point.moved);
}

#[test]
#[ignore = "nightly"]
fn goodput_falls_with_damage_by_the_leaves_that_go_again() {
    let field = Field::new(SIZE);
    field.copy(SIZE, 0, MIB);
    let middle = |rate, leaf| {
        let mut rounds: Vec<Point> = (0..ROUNDS).map(|_| field.copy(SIZE, rate, leaf)).collect();
        rounds.sort_by(|a, b| a.goodput.unwrap_or(0.0).total_cmp(&b.goodput.unwrap_or(0.0)));
        rounds.swap_remove(ROUNDS / 2)
    };
    let points: Vec<Point> = LEAVES.iter().flat_map(|&leaf| RATES.map(|rate| middle(rate, leaf))).collect();
    for point in points.iter().filter(|point| point.goodput.is_some()) {
        let most = 1.02 + (point.again * point.leaf) as f64 / SIZE as f64;
        assert!(
            point.moved >= 1.0 && point.moved <= most,
            "{} of {most} at {} with {}",
            point.moved,
            point.rate,
            point.leaf
        );
        assert!(point.again <= point.damaged as u64);
    }
    println!("{}", table(&points));
    if std::env::var_os("WHIMBREL_WRITE_DOCS").is_some() {
        std::fs::write(reference("corruption.md"), page(&points)).unwrap();
        std::fs::write(reference("corruption.svg"), figure(&points).svg()).unwrap();
    }
}

fn reference(name: &str) -> PathBuf {
    PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").unwrap()).join("../../docs/reference").join(name)
}

fn name_of(leaf: u64) -> String {
    if leaf >= MIB { format!("{} MiB", leaf / MIB) } else { format!("{} KiB", leaf / 1024) }
}

fn figure(points: &[Point]) -> Chart {
    let of = |leaf: u64| points.iter().filter(move |point| point.leaf == leaf);
    // By bytes, which are exact; times are those of a shared machine.
    let done = |leaf| of(leaf).filter(|point| point.goodput.is_some());
    let line = |leaf| done(leaf).map(|point| (point.rate as f64, 100.0 / point.moved));
    Chart {
        title: "Goodput against damage on the way".into(),
        x: Axis::log("damaged bits in each GiB on the way"),
        y: Axis::linear("goodput, % of the bytes on the way"),
        series: LEAVES.iter().map(|&leaf| Series::new(format!("leaves of {}", name_of(leaf)), line(leaf))).collect(),
    }
}

fn table(points: &[Point]) -> String {
    let mut text =
        "| leaf | damaged bits a GiB | damaged in this run | leaves sent again | bytes on the way by bytes of \
                    the file | rate |\n| --- | ---: | ---: | ---: | ---: | ---: |\n"
            .to_owned();
    for point in points {
        let goodput = point.goodput.map_or("gave up".to_owned(), |rate| format!("{rate:.0} MB/s"));
        let Point { rate, leaf, moved, damaged, again, .. } = point;
        let _ = writeln!(text, "| {} | {rate} | {damaged} | {again} | {moved:.2} | {goodput} |", name_of(*leaf));
    }
    text
}

fn page(points: &[Point]) -> String {
    format!(
        "# Goodput against damage on the way\n\n\
         Written by `WHIMBREL_WRITE_DOCS=1 cargo test -p whimbrel --test corruption -- --ignored`.\n\n\
         A file of {} MiB moves third-party on loopback, in chunks of eight leaves, with CRC32C; a relay before the\n\
         destination inverts single bits of the data at random, as a bad memory on the path does that TCP's checksum does\n\
         not see. Only the leaves that differ go again: the smaller the leaf, the less a damaged bit costs. A leaf that\n\
         differed three times ends the copy with `ChecksumMismatch`, so large leaves give up where each of them is hit\n\
         every time. Each point is the middle one of three copies. At rates of real paths (less than one bit in many TiB)\n\
         the size of a leaf makes no difference, and the default is 16 MiB. The machine is shared, so times are for orientation; bytes are exact.\n\n\
         Goodput is the bytes of the file as a part of the bytes on the way; a line ends where copies gave up.\n\n\
         ![Goodput against damaged bits](corruption.svg)\n\n{}",
        SIZE / MIB,
        table(points)
    )
}

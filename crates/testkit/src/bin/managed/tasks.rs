//! What is measured.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use whimbrel_engine::model::Line;
use whimbrel_testkit::cpu::PeakPss;
use whimbrel_testkit::dataset;
use whimbrel_testkit::measure::{Outcome, median};

use crate::field::{Field, open_directory};
use crate::stock::Stock;

const MIB: u64 = 1 << 20;
/// Sizes through which the line of the start-up cost goes.
const SIZES: [u64; 6] = [MIB, 64 * MIB, 128 * MIB, 256 * MIB, 512 * MIB, 1024 * MIB];
/// Bytes of each of many files.
const SMALL: usize = 1 << 10;
/// Time between two looks.
const LOOK: Duration = Duration::from_millis(1);
/// Longest time for one task.
const LIMIT: Duration = Duration::from_secs(1800);

/// Gates, in seconds, files per second and bytes.
pub const FIRST_BYTE: f64 = 0.1;
pub const START: f64 = 0.3;
pub const RATE: f64 = 3000.0;
pub const MEMORY: u64 = 300_000_000;

/// Seconds from the submission of a file of one byte.
#[derive(Debug)]
pub struct First {
    /// The very first one since everything was started.
    pub cold: f64,
    /// To the answer of the submission.
    pub answered: Vec<f64>,
    /// To the file under its name.
    pub there: Vec<f64>,
    /// To the end of the task, as a client sees it.
    pub ended: Vec<f64>,
}

/// Seconds of tasks of one file, by its bytes.
#[derive(Debug)]
pub struct Start {
    pub samples: Vec<(u64, f64)>,
    pub line: Line,
}

/// One task of many files.
#[derive(Debug)]
pub struct Many {
    pub files: u32,
    pub seconds: f64,
    /// Highest proportional set sizes, bytes: the service, and the larger of the servers.
    pub service: u64,
    pub server: u64,
}

/// All of it.
#[derive(Debug, Default)]
pub struct Figures {
    pub first: Option<First>,
    pub start: Option<Start>,
    pub many: Option<Many>,
    pub stock: Option<Stock>,
}

impl Figures {
    /// The gates that do not hold.
    pub fn broken(&self) -> Vec<String> {
        let mut broken = Vec::new();
        let mut gate = |holds: bool, what: String| broken.extend((!holds).then_some(what));
        if let Some(first) = &self.first {
            let there = median(first.there.iter().copied());
            gate(there <= FIRST_BYTE, format!("first byte after {there:.3} s"));
        }
        if let Some(start) = &self.start {
            gate(start.line.start <= START, format!("a start-up cost of {:.3} s", start.line.start));
        }
        if let Some(many) = &self.many {
            let rate = f64::from(many.files) / many.seconds;
            gate(rate >= RATE, format!("{rate:.0} files/s"));
            gate(many.service <= MEMORY, format!("{} bytes of memory for the service", many.service));
            gate(many.server <= MEMORY, format!("{} bytes of memory for a server", many.server));
        }
        broken
    }
}

/// Waits for a condition; seconds since `begun`.
fn seconds_until(begun: Instant, what: &str, mut holds: impl FnMut() -> Outcome<bool>) -> Outcome<f64> {
    while !holds()? {
        if begun.elapsed() > LIMIT {
            return Err(format!("{what} did not come").into());
        }
        thread::sleep(LOOK);
    }
    Ok(begun.elapsed().as_secs_f64())
}

/// Waits for the end of a task, which must be a good one.
pub fn ended(field: &Field, begun: Instant, task: &str) -> Outcome<f64> {
    seconds_until(begun, "the end of the task", || {
        let shown = field.task(task)?;
        match shown["status"].as_str() {
            Some("ACTIVE") => Ok(false),
            Some("SUCCEEDED") => Ok(true),
            _ => Err(format!("{shown}").into()),
        }
    })
}

/// Tasks of a file of one byte, one after the other.
pub fn first_bytes(field: &mut Field, rounds: u32) -> Outcome<First> {
    let mut first = First { cold: 0.0, answered: Vec::new(), there: Vec::new(), ended: Vec::new() };
    for round in 0..=rounds {
        let name = format!("one{round}");
        fs::write(field.from(&name), b"1")?;
        let (document, copy) = (field.transfer(&name, false)?, field.to(&name));
        let begun = Instant::now();
        let task = field.submit(&document)?;
        let answered = begun.elapsed().as_secs_f64();
        let there = seconds_until(begun, "the copy", || Ok(copy.exists()))?;
        let ended = ended(field, begun, &task)?;
        if round == 0 {
            first.cold = there;
            continue;
        }
        first.answered.push(answered);
        first.there.push(there);
        first.ended.push(ended);
    }
    Ok(first)
}

/// Tasks of one file of growing size: what they cost besides their bytes is where the line begins (the paper's S0).
pub fn start_up(field: &mut Field, rounds: u32) -> Outcome<Start> {
    for (number, bytes) in (0..).zip(SIZES) {
        dataset::random_file(&field.from(&format!("size{bytes}")), bytes, number)?;
    }
    let mut samples = Vec::new();
    for round in 0..=rounds.div_ceil(3) {
        for bytes in SIZES {
            let name = format!("size{bytes}");
            if let Err(error) = fs::remove_file(field.to(&name))
                && error.kind() != std::io::ErrorKind::NotFound
            {
                return Err(error.into());
            }
            let document = field.transfer(&name, false)?;
            let begun = Instant::now();
            let task = field.submit(&document)?;
            let seconds = ended(field, begun, &task)?;
            if round > 0 {
                samples.push((bytes, seconds));
            }
        }
    }
    for bytes in SIZES {
        fs::remove_file(field.from(&format!("size{bytes}")))?;
        fs::remove_file(field.to(&format!("size{bytes}")))?;
    }
    // Of each size the middle one: a neighbour's load is in the others.
    let middle = SIZES.map(|bytes| {
        let of = samples.iter().filter(|(size, _)| *size == bytes).map(|(_, seconds)| *seconds);
        (bytes, median(of))
    });
    let line = Line::fit(&middle).ok_or("sizes differ")?;
    Ok(Start { samples: middle.to_vec(), line })
}

/// One task of many small files in directories of a thousand.
pub fn many_files(field: &mut Field, files: u32) -> Outcome<Many> {
    const IN_DIRECTORY: u32 = 1000;
    open_directory(&field.from("many"))?;
    for (number, first) in (0u32..).zip((0..files).step_by(IN_DIRECTORY as usize)) {
        let directory = field.from(&format!("many/d{number}"));
        open_directory(&directory)?;
        dataset::many_files(&directory, IN_DIRECTORY.min(files - first), SMALL, u64::from(number))?;
    }
    let (service, servers) = field.ids();
    let every = Duration::from_millis(200);
    let of_service = PeakPss::start(&[service], every);
    let of_servers: Vec<_> = servers.iter().map(|server| PeakPss::start(&[*server], every)).collect();
    let document = field.transfer("many", true)?;
    let begun = Instant::now();
    let task = field.submit(&document)?;
    let mut told = Instant::now();
    let seconds = seconds_until(begun, "the end of the task", || {
        thread::sleep(Duration::from_millis(100));
        let shown = field.task(&task)?;
        if told.elapsed() > Duration::from_secs(10) {
            told = Instant::now();
            eprintln!("{} of {files} files after {:.0} s", shown["files_transferred"], begun.elapsed().as_secs_f64());
        }
        match shown["status"].as_str() {
            Some("ACTIVE") => Ok(false),
            Some("SUCCEEDED") if shown["files_transferred"] == files => Ok(true),
            _ => Err(format!("{shown}").into()),
        }
    })?;
    let server = of_servers.into_iter().map(PeakPss::stop).max().unwrap_or_default();
    Ok(Many { files, seconds, service: of_service.stop(), server })
}

//! `whimbrel dtn --import`: our settings from the files of `globus-gridftp-server`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use whimbrel_dtn::front::import::{Remark, is_read, read, take_over};
use whimbrel_engine::Fault;
use whimbrel_engine::summary::exit;

use crate::output::lines;

const OP: &str = "read settings";

/// Prints settings on standard output and what became of each option on standard error.
pub(super) fn run(places: &[PathBuf]) -> Result<ExitCode, Fault> {
    let mut files = Vec::new();
    for place in places {
        for path in files_of(place)? {
            files.push((path.display().to_string(), read(&path)?));
        }
    }
    let imported = take_over(&files);
    lines::print(imported.toml.as_bytes());
    for remark in &imported.remarks {
        eprintln!("{}", line(remark));
    }
    Ok(ExitCode::from(if imported.is_complete() { exit::OK } else { exit::SOME_FAILED }))
}

fn line(Remark { weight, place, option, text }: &Remark) -> String {
    let place = if place.is_empty() { String::new() } else { format!("{place}: ") };
    format!("{place}{option}: {}: {text}", weight.word())
}

/// A file, or those of a directory that the real server reads, in the order of their names.
fn files_of(place: &Path) -> Result<Vec<PathBuf>, Fault> {
    let told = |error| Fault::from_io(error, OP).subject(place.display().to_string());
    if !std::fs::metadata(place).map_err(told)?.is_dir() {
        return Ok(vec![place.to_owned()]);
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(place).map_err(told)? {
        let entry = entry.map_err(told)?;
        if is_read(&entry.file_name().to_string_lossy()) && entry.path().is_file() {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

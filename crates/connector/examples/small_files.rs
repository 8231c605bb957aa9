//! Writes and reads many small files through the POSIX connector and prints the time per file.
//!
//! `cargo run --release -p whimbrel-connector --example small_files -- DIRECTORY [COUNT [BYTES]]`

use std::path::Path;
use std::time::Instant;

use whimbrel_connector::posix::{Posix, PosixOptions};
use whimbrel_connector::{Attributes, Connector, Disposition, StoragePath, WriteIntent};
use whimbrel_engine::Fault;

fn main() -> Result<(), Fault> {
    let mut arguments = std::env::args().skip(1);
    let root = arguments.next().unwrap_or_else(|| ".".into());
    let mut number = |default| arguments.next().map_or(default, |n| n.parse().unwrap_or(default));
    let (count, bytes) = (number(10_000), number(10_240));
    let storage = Posix::open(Path::new(&root), PosixOptions::default())?;
    let dir = StoragePath::resolve(&StoragePath::root(), b"small-files").expect("a valid path");
    storage.make_dir(&dir)?;
    timed("written", count, |i| write(&storage, &file(&dir, i), bytes))?;
    timed("read", count, |i| read(&storage, &file(&dir, i), bytes))?;
    timed("replaced", count, |i| write(&storage, &file(&dir, i), bytes))?;
    storage.remove_tree(&dir)
}

fn file(dir: &StoragePath, i: usize) -> StoragePath {
    dir.join(format!("file-{i}").as_bytes()).expect("a valid path")
}

fn timed(what: &str, count: usize, act: impl Fn(usize) -> Result<(), Fault>) -> Result<(), Fault> {
    let start = Instant::now();
    (0..count).try_for_each(act)?;
    let each = start.elapsed().as_secs_f64() * 1e6 / count.max(1) as f64;
    println!("{count} files {what}: {each:.1} us each");
    Ok(())
}

fn write(storage: &Posix, path: &StoragePath, bytes: usize) -> Result<(), Fault> {
    let intent = WriteIntent { disposition: Disposition::Replace, size: Some(bytes as u64), length: None, mode: None };
    let session = storage.begin(path, &intent)?;
    let writer = storage.join(&session)?;
    writer.write_at(0, &vec![7; bytes])?;
    let receipt = writer.finish()?;
    let attributes = Attributes { size: Some(bytes as u64), ..Attributes::default() };
    storage.commit(&session, &[receipt], &attributes)?;
    Ok(())
}

fn read(storage: &Posix, path: &StoragePath, bytes: usize) -> Result<(), Fault> {
    let reader = storage.open_read(path, None)?;
    reader.read_at(0, &mut vec![0; bytes + 1])?;
    Ok(())
}

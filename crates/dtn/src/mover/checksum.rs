//! CKSM: the checksum of a part of a file.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use whimbrel_connector::{Kind, ReadAt};
use whimbrel_engine::{Fault, FaultCode};
use whimbrel_proto::op::{Notice, Op, Outcome};
use whimbrel_transport::{BlockSource, Progress, digest};

use super::command::resolve;
use super::report::{self, Periodic};
use super::worker::Task;

struct Source<'a>(&'a dyn ReadAt);

impl BlockSource for Source<'_> {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Fault> {
        self.0.read_at(offset, buffer)
    }
}

/// Hashes a range; what lies beyond the end is cut off, as the stock server does.
pub fn run(task: &mut Task<'_>, op: &Op) -> Result<Outcome, Fault> {
    let Op::Checksum { algorithm, offset, length, path, marker_interval } = op else {
        return Err(Fault::new(FaultCode::Internal, "checksum"));
    };
    let end = length.map_or(u64::MAX, |length| offset.saturating_add(length));
    named(task, algorithm.parse()?, path, *offset..end, *marker_interval).map(Outcome::Checksum)
}

/// Hashes a range of the file that has a name, as far as there is one.
pub fn named(
    task: &mut Task<'_>,
    algorithm: digest::Algorithm,
    path: &[u8],
    range: Range<u64>,
    marker_interval: Option<Duration>,
) -> Result<String, Fault> {
    let reader = task.node.connector.open_read(&resolve(path)?, None)?;
    let before = reader.meta()?;
    if before.kind != Kind::File {
        return Err(Fault::new(FaultCode::NotSupported, "checksum").on_path(path));
    }
    let range = range.start.min(before.size)..range.end.min(before.size);
    let digest = hash(task, algorithm, &Source(reader.as_ref()), range, marker_interval);
    if reader.meta()?.version() != before.version() {
        return Err(Fault::new(FaultCode::SourceChanged, "checksum").on_path(path));
    }
    digest
}

/// Hashes `range` of `source`; says now and then how far it is.
pub fn hash(
    task: &mut Task<'_>,
    algorithm: digest::Algorithm,
    source: &dyn BlockSource,
    range: Range<u64>,
    marker_interval: Option<Duration>,
) -> Result<String, Fault> {
    let progress = Arc::new(Progress::new());
    let markers = marker_interval.map(|interval| {
        let progress = progress.clone();
        let periodic = Periodic::new(task.reporter, move || {
            vec![Notice::Hashed { bytes: progress.bytes(), at_ms: report::now_ms() }]
        });
        let ticking = task.node.ticker.every(interval, periodic.clone());
        (ticking, periodic)
    });
    let digest = digest::hash_source(algorithm, source, Some(range), &task.node.pool, &progress, task.cancel);
    if let Some((_, periodic)) = markers {
        drop(periodic.close());
    }
    digest
}

//! Storage that is to have a file for good begins with it while the rest is still under way.
//!
//! Bytes that are written lie in memory until somebody wants them stored. Where that is asked for, a disk that waits for it is
//! idle for as long, and a file that comes faster than the disk takes it is late by that at its end.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use whimbrel_connector::WriteAt;
use whimbrel_proto::op::ReceiveSpec;
use whimbrel_transport::Progress;

use super::expected;
use crate::mover::ticker::{Tick, Ticking};
use crate::mover::worker::Task;

/// Bytes that are worth a sync: each also stores what describes the file, and has the disk empty its own memory.
const LEAST: u64 = 4 << 20;
/// How often it is looked whether so many have come. A sync of as many as have come meanwhile follows the one before at once
/// where storage is the slower one.
const EVERY: Duration = Duration::from_millis(100);

/// Stores what came.
struct Behind {
    writer: Arc<dyn WriteAt>,
    progress: Arc<Progress>,
    /// Bytes that had come when the last sync began.
    begun: AtomicU64,
}

/// Has what comes stored from time to time; `None` where that would be of no use: the file is short, goes past memory, or is
/// synced part by part. Dropping it ends it.
pub(super) fn store(
    task: &Task<'_>,
    spec: &ReceiveSpec,
    writer: &Arc<dyn WriteAt>,
    progress: &Arc<Progress>,
) -> Option<Ticking> {
    let is_short = expected(spec).is_some_and(|size| size <= LEAST);
    if spec.is_chunk() || is_short || writer.is_past_cache() || !task.node.keeps_durable(spec.durable) {
        return None;
    }
    let behind = Behind { writer: writer.clone(), progress: progress.clone(), begun: AtomicU64::new(0) };
    Some(task.node.flusher.every(EVERY, Arc::new(behind)))
}

impl Tick for Behind {
    fn tick(&self) -> bool {
        let came = self.progress.bytes();
        if came - self.begun.load(Ordering::Relaxed) < LEAST {
            return true;
        }
        self.begun.store(came, Ordering::Relaxed);
        match self.writer.sync() {
            Ok(()) => true,
            Err(fault) => {
                // The end of the transfer will fail for the same reason.
                tracing::warn!(%fault, "what came cannot be made durable");
                false
            }
        }
    }
}

//! Devices and pipes that have no positions: their bytes pass in order.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use whimbrel_engine::{Fault, FaultCode};

use crate::path::StoragePath;

/// Whether offsets have to follow each other, and which one is next.
pub(super) struct InOrder {
    needed: AtomicBool,
    next: Mutex<u64>,
}

impl InOrder {
    pub fn new(needed: bool) -> Self {
        Self { needed: AtomicBool::new(needed), next: Mutex::new(0) }
    }

    pub fn needed(&self) -> bool {
        self.needed.load(Ordering::Relaxed)
    }

    /// Learns that the object has no positions.
    pub fn need(&self) {
        self.needed.store(true, Ordering::Relaxed);
    }

    /// Waits for the others' calls; holds the next offset, which must be `offset`.
    pub fn turn(&self, offset: u64, op: &str, path: &StoragePath) -> Result<MutexGuard<'_, u64>, Fault> {
        let next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if *next == offset {
            return Ok(next);
        }
        Err(Fault::new(FaultCode::InvalidArgument, op)
            .on_path(path.as_bytes())
            .detail(format!("bytes pass through in order: offset {offset} asked for, {} is next", *next)))
    }
}

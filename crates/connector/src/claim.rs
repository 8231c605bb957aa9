//! Who has the end of a file, where writers append.

use std::sync::atomic::{AtomicBool, Ordering};

use whimbrel_engine::{Fault, FaultCode};

use crate::path::StoragePath;

/// Whether a writer has the end of its file.
#[derive(Default)]
pub(crate) struct Claim(AtomicBool);

impl Claim {
    /// Has the end taken for the writer, unless it has it already; `StorageBusy` when `take` says that another has.
    pub(crate) fn make(&self, path: &StoragePath, take: impl FnOnce() -> bool) -> Result<(), Fault> {
        if !self.is_made() {
            if !take() {
                return Err(appended(path));
            }
            self.0.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Whether there is something to give back.
    pub(crate) fn is_made(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// The end of a file is another writer's for now.
fn appended(path: &StoragePath) -> Fault {
    let detail = "another transfer appends to it, or a program holds a lock on it (see `lslocks`): try again when that has ended";
    Fault::new(FaultCode::StorageBusy, "append").on_path(path.as_bytes()).detail(detail)
}

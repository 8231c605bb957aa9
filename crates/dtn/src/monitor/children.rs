//! Processes that were started and have to be waited for.

use std::process::{Child, ExitStatus};

/// The data processes that run.
#[derive(Debug, Default)]
pub struct Children(Vec<Child>);

impl Children {
    /// Takes one in charge.
    pub fn add(&mut self, child: Child) {
        self.0.push(child);
    }

    /// Takes leave of those that have ended.
    pub fn reap(&mut self) {
        self.0.retain_mut(|child| match child.try_wait() {
            Ok(None) => true,
            Ok(Some(status)) => {
                ended(child.id(), status);
                false
            }
            Err(error) => {
                tracing::error!(pid = child.id(), %error, "data process cannot be waited for");
                false
            }
        });
    }
}

fn ended(pid: u32, status: ExitStatus) {
    tracing::info!(pid, %status, "data process ended");
}

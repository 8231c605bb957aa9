//! Listing a directory as a stream.

use std::os::fd::AsFd;

use rustix::fs::Dir as RawStream;
use rustix::io::Errno;
use whimbrel_engine::Fault;

use super::error::{OrFault, fault};
use super::meta::{Caller, is_link, link_text, statx_at};
use crate::meta::Entry;
use crate::path::StoragePath;

/// One directory being listed; holds one descriptor and one kernel buffer, whatever its size.
pub(super) struct Stream {
    pub entries: RawStream,
    pub caller: Caller,
    pub path: StoragePath,
    pub failed: bool,
}

impl Stream {
    /// Describes `name`; `None` when it vanished since its name was read.
    fn describe(&self, name: &[u8]) -> Result<Option<Entry>, Errno> {
        let dir = self.entries.fd()?;
        let stat = match statx_at(dir.as_fd(), name) {
            Err(Errno::NOENT) => return Ok(None),
            other => other?,
        };
        let target = match is_link(&stat).then(|| link_text(dir.as_fd(), name)) {
            // Replaced since it was described: it vanished as the link it was.
            Some(Err(Errno::NOENT | Errno::INVAL)) => return Ok(None),
            other => other.transpose()?,
        };
        Ok(Some(Entry { name: name.to_vec(), meta: self.caller.meta(&stat, target) }))
    }
}

impl Iterator for Stream {
    type Item = Result<Entry, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.failed {
            let entry = match self.entries.read()? {
                Ok(entry) => entry,
                Err(Errno::INTR) => continue,
                Err(errno) => {
                    // The stream's position is unknown now: going on could repeat entries.
                    self.failed = true;
                    return Some(Err(fault(errno, "list", &self.path)));
                }
            };
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let at = || self.path.join(name).unwrap_or_else(|_| self.path.clone());
            match self.describe(name) {
                Ok(None) => {}
                Ok(Some(entry)) => return Some(Ok(entry)),
                Err(errno) => return Some(Err(errno).or_fault("describe", &at())),
            }
        }
        None
    }
}

//! Listing a directory as a stream.

use std::os::fd::AsFd;
use std::vec;

use rustix::fs::Dir as RawStream;
use rustix::io::Errno;
use whimbrel_engine::Fault;

use super::error::{OrFault, fault};
use super::meta::{Caller, is_link, link_text, statx_at};
use crate::meta::{Entry, Meta};
use crate::path::StoragePath;

/// One directory being listed; holds one descriptor, one kernel buffer and the names that were read ahead, whatever its size.
pub(super) struct Stream {
    entries: RawStream,
    caller: Caller,
    path: StoragePath,
    /// Names that were read before their entries were asked for.
    ahead: vec::IntoIter<Vec<u8>>,
    failed: bool,
}

impl Stream {
    pub fn new(entries: RawStream, caller: Caller, path: StoragePath) -> Self {
        Self { entries, caller, path, ahead: Vec::new().into_iter(), failed: false }
    }

    /// Sorts up to `most` names, and tells how many there are; with more of them all come in the storage's order, uncounted. What
    /// has a name is described when it is asked for: where that takes long, the first need not wait for the last.
    pub fn sort(&mut self, most: usize) -> Result<Option<u64>, Fault> {
        let mut names = Vec::new();
        while names.len() <= most {
            match self.next_name() {
                Some(name) => names.push(name?),
                None => break,
            }
        }
        let is_whole = names.len() <= most;
        if is_whole {
            names.sort_unstable();
        }
        let count = names.len() as u64;
        self.ahead = names.into_iter();
        Ok(is_whole.then_some(count))
    }

    fn next_name(&mut self) -> Option<Result<Vec<u8>, Fault>> {
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
            if !matches!(name, b"." | b"..") {
                return Some(Ok(name.to_vec()));
            }
        }
        None
    }

    /// Describes `name`; `None` when it vanished since its name was read.
    fn describe(&self, name: &[u8]) -> Result<Option<Meta>, Errno> {
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
        Ok(Some(self.caller.meta(&stat, target)))
    }
}

impl Iterator for Stream {
    type Item = Result<Entry, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let name = match self.ahead.next() {
                Some(name) => name,
                None => match self.next_name()? {
                    Ok(name) => name,
                    Err(fault) => return Some(Err(fault)),
                },
            };
            let at = || self.path.join(&name).unwrap_or_else(|_| self.path.clone());
            match self.describe(&name) {
                Ok(None) => {}
                Ok(Some(meta)) => return Some(Ok(Entry { name, meta })),
                Err(errno) => return Some(Err(errno).or_fault("describe", &at())),
            }
        }
    }
}

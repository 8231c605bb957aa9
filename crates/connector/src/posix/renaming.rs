//! Renaming what exists, durably if that is asked for.

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use whimbrel_engine::Fault;

use super::Posix;
use super::error::OrFault;
use super::meta::kind_of;
use super::resolve::{Dir, look, retry};
use super::steps::{self, sync_dir};
use crate::meta::Kind;
use crate::path::StoragePath;

const OP: &str = "rename";

impl Posix {
    pub(super) fn rename_entry(&self, from: &StoragePath, to: &StoragePath, durable: bool) -> Result<(), Fault> {
        let (old_dir, old) = self.root.entry(from, OP)?;
        let (new_dir, new) = self.root.entry(to, OP)?;
        if durable {
            sync_content(&old_dir, old).or_fault("sync", from)?;
        }
        let renamed = steps::rename((&old_dir, old), (&new_dir, new));
        renamed.or_fault(OP, from).map_err(|fault| detail_to(fault, to))?;
        if !durable {
            return Ok(());
        }
        // The new name first: at no time is there neither.
        sync_dir(&new_dir).or_fault("sync directory", to)?;
        if from.parent() == to.parent() { Ok(()) } else { sync_dir(&old_dir).or_fault("sync directory", from) }
    }
}

/// Content that another program has not synced must not be lost under a name that stood for something else.
fn sync_content(dir: &Dir, name: &[u8]) -> Result<(), Errno> {
    if look(dir, name)?.is_none_or(|stat| kind_of(&stat) != Kind::File) {
        return Ok(());
    }
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let open = |access| retry(|| openat(dir, name, flags | access, Mode::empty()));
    match open(OFlags::RDONLY).or_else(|_| open(OFlags::WRONLY)) {
        Ok(file) => steps::sync_data(&file),
        // Neither readable nor writable here, replaced by a link, or gone: the renaming tells.
        Err(Errno::ACCESS | Errno::LOOP | Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno),
    }
}

fn detail_to(fault: Fault, to: &StoragePath) -> Fault {
    let detail = format!("to {to}: {}", fault.detail);
    fault.detail(detail)
}

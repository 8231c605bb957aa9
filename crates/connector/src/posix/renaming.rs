//! Renaming what exists, durably if that is asked for.

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use whimbrel_engine::{Fault, FaultCode};

use super::Posix;
use super::error::OrFault;
use super::meta::kind_of;
use super::resolve::{Dir, look, retry};
use super::steps::{self, sync_dir};
use crate::meta::Kind;
use crate::path::StoragePath;
use crate::staging::refuse_hidden;

const OP: &str = "rename";

impl Posix {
    pub(super) fn rename_entry(&self, from: &StoragePath, to: &StoragePath, durable: bool) -> Result<(), Fault> {
        refuse_hidden(to, OP)?;
        let (old_dir, old) = self.root.entry(from, OP)?;
        let (new_dir, new) = self.root.entry(to, OP)?;
        if durable {
            sync_content(&old_dir, old).or_fault("sync", from)?;
        }
        let renamed = self.give_name(OP, (&old_dir, old), (&new_dir, new), from);
        renamed.map_err(|fault| detail_to(fault, to))?;
        if !durable {
            return Ok(());
        }
        // The new name first: at no time is there neither.
        sync_dir(&new_dir).or_fault("sync directory", to)?;
        if from.parent() == to.parent() { Ok(()) } else { sync_dir(&old_dir).or_fault("sync directory", from) }
    }
}

impl Posix {
    /// Renames; what has the new name is replaced where that is allowed.
    pub(super) fn give_name(
        &self,
        op: &str,
        from: (&Dir, &[u8]),
        to: (&Dir, &[u8]),
        path: &StoragePath,
    ) -> Result<(), Fault> {
        if self.replaces {
            return steps::rename(from, to).or_fault(op, path);
        }
        match steps::rename_new(from, to) {
            Err(Errno::OPNOTSUPP) => Err(Fault::new(FaultCode::NotSupported, op)
                .on_path(path.as_bytes())
                .detail("this file system cannot give a name only if it is free, and what has it may not be replaced")),
            renamed => renamed.or_fault(op, path),
        }
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

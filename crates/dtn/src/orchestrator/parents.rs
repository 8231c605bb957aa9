//! Directories above what is copied: those that the destination does not have are made, and the same run goes on at once.
//!
//! Nobody looks for them beforehand, which would cost every task a round trip for the few that need them.

use std::collections::BTreeSet;

use whimbrel_engine::dispatch::{Change, Subject};
use whimbrel_engine::{Fault, FaultCode, Side};

use super::ledger::Ledger;
use super::site;
use super::transfer::Run;
use crate::client::dtns::Dtns;
use crate::client::end::End;

/// Items that are remembered for their directories; what more there is, is found by the next run.
const MOST: usize = 1000;

/// Items whose directory is missing at the destination.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    first: Option<Fault>,
    items: Vec<(Subject, Fault)>,
}

impl Orphans {
    /// Takes an item whose fault says that its directory is missing; whether it did.
    pub(super) fn take(&mut self, subject: &Subject, fault: &Fault) -> bool {
        let missing = fault.code == FaultCode::NotFound && fault.side == Some(Side::Destination);
        if !missing || subject.destination.is_empty() || subject.extra {
            return false;
        }
        self.first.get_or_insert_with(|| fault.clone());
        if self.items.len() < MOST {
            self.items.push((subject.clone(), fault.clone()));
        }
        true
    }
}

/// Makes the missing directories of a run's items: why the items have to be tried again. Where none could be made the items have
/// failed; where `is_first` does not say that the run tries its items for the first time, also where none was missing.
///
/// # Errors
/// The destination cannot be reached.
pub(super) async fn make(run: &Run<'_>, is_first: bool) -> Result<Option<Fault>, Fault> {
    let orphans = std::mem::take(&mut run.ledger.borrow_mut().orphans);
    let Some(first) = orphans.first else { return Ok(None) };
    let target = &run.destination.target;
    let (remote, _) = Dtns::default().dial(target, &site::session(&run.assignment.label), &[]).await?;
    let mut end = End::Remote(Box::new(remote));
    let parents: BTreeSet<_> = orphans.items.iter().map(|(subject, _)| parent(&subject.destination)).collect();
    let (mut made, mut refused) = (false, None);
    for directory in parents {
        match make_all(&mut end, run.destination.base.as_bytes(), directory).await {
            // Somebody else may have made it since.
            Ok(new) => made |= new || is_first,
            Err(fault) => refused = refused.or(Some(fault.side_if_unknown(Side::Destination))),
        }
    }
    if made {
        return Ok(Some(first));
    }
    let mut ledger = run.ledger.borrow_mut();
    for (subject, fault) in orphans.items {
        ledger.lost(subject, refused.clone().unwrap_or(fault));
    }
    Ok(None)
}

/// Makes a directory below `base` with those above it; whether any of them is new.
async fn make_all(end: &mut End, base: &[u8], directory: &[u8]) -> Result<bool, Fault> {
    let slashes = directory.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    let ends: Vec<_> = slashes.chain([directory.len()]).filter(|&at| at > base.len().max(1)).collect();
    let mut new = false;
    for at in ends {
        new |= end.make_unless_there(&directory[..at]).await?;
    }
    Ok(new)
}

/// The directory that a path lies in.
fn parent(path: &[u8]) -> &[u8] {
    let path = path.strip_suffix(b"/").unwrap_or(path);
    let slash = path.iter().rposition(|&byte| byte == b'/');
    slash.map_or(&b""[..], |at| &path[..at])
}

impl Ledger {
    /// An item has failed for a directory that cannot be made.
    fn lost(&mut self, subject: Subject, fault: Fault) {
        self.progress.set(true);
        self.outbox.change(Change::Failed { subject, fault });
    }
}

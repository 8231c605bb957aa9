//! Directories above what is copied: those that the destination does not have are made, and the same run goes on at once.
//!
//! Nobody looks for them beforehand, which would cost every task a round trip for the few that need them.

use std::collections::{BTreeMap, BTreeSet};

use whimbrel_engine::dispatch::{Change, Subject};
use whimbrel_engine::listing::{split, trimmed};
use whimbrel_engine::{Fault, FaultCode, Side};

use super::fate;
use super::ledger::Ledger;
use super::site;
use super::transfer::Run;
use crate::client::dtns::Dtns;
use crate::client::end::End;

/// Items that are remembered for their directories. What more there is, is met again when the run goes over its items once more, and
/// ends then: so that the memory of a run does not grow with what it misses.
const MOST: usize = 1000;

/// Items whose directory is missing at the destination.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    first: Option<Fault>,
    items: Vec<(Subject, Fault)>,
    /// There are others.
    more: bool,
    hopeless: Hopeless,
}

/// What has been decided about an item that has failed.
pub(super) enum Orphan {
    /// It is none.
    No,
    /// Its directory is to be made.
    Kept,
    /// Its directory cannot be made.
    Lost(Fault),
}

impl Orphans {
    /// Takes an item whose fault says that its directory is missing.
    pub(super) fn take(&mut self, subject: &Subject, fault: &Fault) -> Orphan {
        let missing = fault.code == FaultCode::NotFound && fault.side == Some(Side::Destination);
        if !missing || subject.destination.is_empty() || subject.extra {
            return Orphan::No;
        }
        if let Some(fault) = self.hopeless.why(parent(&subject.destination), fault) {
            return Orphan::Lost(fault);
        }
        self.first.get_or_insert_with(|| fault.clone());
        match self.items.len() < MOST {
            true => self.items.push((subject.clone(), fault.clone())),
            false => self.more = true,
        }
        Orphan::Kept
    }
}

/// Directories with which nothing can be done.
#[derive(Debug, Default)]
struct Hopeless {
    /// They, and what is below them, cannot be made, and why not.
    refused: BTreeMap<Vec<u8>, Fault>,
    /// They stand, and are missed all the same.
    useless: BTreeSet<Vec<u8>>,
}

impl Hopeless {
    /// Why an item with this `fault` fails for its directory, if it does.
    fn why(&self, directory: &[u8], fault: &Fault) -> Option<Fault> {
        self.refusal(directory).or_else(|| self.useless.contains(directory).then_some(fault)).cloned()
    }

    fn refusal(&self, directory: &[u8]) -> Option<&Fault> {
        let above = std::iter::successors(Some(directory), |path| Some(parent(path)).filter(|above| !above.is_empty()));
        above.filter_map(|path| self.refused.get(path)).next()
    }
}

/// What has become of items whose directory is missing.
pub(super) enum Missing {
    /// There are none, or they have failed.
    None,
    /// They have failed, and there are others.
    More,
    /// Directories were made: the items have to be tried again, for this reason.
    Made(Fault),
}

/// Makes the missing directories of a run's items. Where none could be made the items have failed; where `is_first` does not say that
/// the run tries its items for the first time, also where none was missing.
///
/// # Errors
/// The destination cannot be reached, or nothing can be made there now.
pub(super) async fn make(run: &Run<'_>, is_first: bool) -> Result<Missing, Fault> {
    let orphans = std::mem::take(&mut run.ledger.borrow_mut().orphans);
    let Some(first) = orphans.first else { return Ok(Missing::None) };
    let target = &run.destination.target;
    let (remote, _) = Dtns::default().dial(target, &site::session(&run.assignment.label), &[]).await?;
    let mut end = End::Remote(Box::new(remote));
    let parents: BTreeSet<_> = orphans.items.iter().map(|(subject, _)| parent(&subject.destination)).collect();
    let (mut made, mut hopeless) = (false, Hopeless::default());
    for directory in parents {
        if hopeless.refusal(directory).is_some() {
            continue;
        }
        match make_all(&mut end, run.destination.base.as_bytes(), directory).await {
            // Somebody else may have made it since.
            Ok(new) if new || is_first => made = true,
            Ok(_) => drop(hopeless.useless.insert(directory.to_vec())),
            Err((_, fault)) if fate::is_temporary(&fault) || fate::is_about_server(&fault) => return Err(fault),
            Err((at, fault)) => drop(hopeless.refused.insert(at.to_vec(), fault)),
        }
    }
    if made {
        return Ok(Missing::Made(first));
    }
    let mut ledger = run.ledger.borrow_mut();
    for (subject, fault) in orphans.items {
        let why = hopeless.why(parent(&subject.destination), &fault);
        ledger.lost(subject, why.unwrap_or(fault));
    }
    if !orphans.more {
        return Ok(Missing::None);
    }
    ledger.orphans.hopeless = hopeless;
    Ok(Missing::More)
}

/// Makes a directory below `base` with those above it; whether any of them is new.
///
/// # Errors
/// Which of them cannot be made, and why not.
async fn make_all<'a>(end: &mut End, base: &[u8], directory: &'a [u8]) -> Result<bool, (&'a [u8], Fault)> {
    let slashes = directory.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    let ends: Vec<_> = slashes.chain([directory.len()]).filter(|&at| at > base.len().max(1)).collect();
    let mut new = false;
    for path in ends.into_iter().map(|at| &directory[..at]) {
        let made = end.make_unless_there(path).await;
        new |= made.map_err(|fault| (path, fault.side_if_unknown(Side::Destination)))?;
    }
    Ok(new)
}

/// The directory that a path lies in; nothing for the root, which needs not be made.
fn parent(path: &[u8]) -> &[u8] {
    let above = split(trimmed(path)).0;
    above.strip_suffix(b"/").unwrap_or(above)
}

impl Ledger {
    /// An item has failed for a directory that cannot be made.
    pub(super) fn lost(&mut self, subject: Subject, fault: Fault) {
        self.progress.set(true);
        self.outbox.change(Change::Failed { subject, fault });
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_engine::task::ItemKind;

    use super::*;

    fn missing() -> Fault {
        Fault::new(FaultCode::NotFound, "store").side(Side::Destination)
    }

    fn subject(destination: &str) -> Subject {
        let destination = destination.as_bytes().to_vec();
        Subject { kind: ItemKind::File, source: b"/from".to_vec(), destination, extra: false }
    }

    #[test]
    fn what_is_below_a_directory_that_was_refused_is_lost_and_nothing_else() {
        let refused = Fault::new(FaultCode::PermissionDenied, "make directory");
        let hopeless =
            Hopeless { refused: [(b"/a/b".to_vec(), refused)].into(), useless: [b"/a/there".to_vec()].into() };
        let mut orphans = Orphans { hopeless, ..Orphans::default() };
        let mut taken = |path: &str| match orphans.take(&subject(path), &missing()) {
            Orphan::Lost(fault) => Some(fault.code),
            Orphan::Kept => None,
            Orphan::No => panic!("{path} is one"),
        };
        for path in ["/a/b/x", "/a/b/x/y/z/"] {
            assert_eq!(taken(path), Some(FaultCode::PermissionDenied), "{path}");
        }
        assert_eq!(taken("/a/there/x"), Some(FaultCode::NotFound));
        for path in ["/a/bc/x", "/a/b", "/a/there/in/x", "/x"] {
            assert_eq!(taken(path), None, "{path}");
        }
    }
}

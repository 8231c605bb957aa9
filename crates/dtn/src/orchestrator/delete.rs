//! Deletions that the user asked for.

use std::cell::Cell;
use std::rc::Rc;

use tokio::sync::mpsc;
use whimbrel_engine::dispatch::{Assignment, Credential, End, WorkItem};
use whimbrel_engine::listing::{Object, ObjectKind, join, split, trimmed};
use whimbrel_engine::plan::{Links, PlanOptions};
use whimbrel_engine::task::DeleteOptions;
use whimbrel_engine::{Fault, FaultCode, Side};

use super::copies::Copies;
use super::fate;
use super::hold::Standing;
use super::items;
use super::keys::Keys;
use super::removal::{Aim, Found, Removal, root};
use super::site::{self, Reach};
use super::work::Desk;
use crate::client::dtns::Dtns;
use crate::client::end::End as Session;
use crate::mover::glob;

/// Items read ahead.
const AHEAD: usize = 256;

/// One run of a deletion; how it ended.
pub(super) async fn run(
    desk: &Desk,
    assignment: &Assignment,
    options: DeleteOptions,
    site: &Reach,
    finished: Keys,
    progress: &Rc<Cell<bool>>,
) -> End {
    let (to, items) = mpsc::channel(AHEAD);
    let (sender, files) = mpsc::channel(AHEAD);
    let plan = PlanOptions { recursive: options.recursive, links: Links::Copy, ..PlanOptions::default() };
    // An earlier run may have deleted it, and have had no time to say so.
    let ignore_missing = options.ignore_missing || assignment.lease.epoch > 1;
    let aim = Aim::Named { ignore_missing };
    let is_finished = |subject: &_| finished.contains(subject);
    let removal = Removal {
        desk,
        assignment,
        reach: site,
        plan,
        aim,
        copies: Copies::default(),
        is_finished: &is_finished,
        progress,
    };
    let naming = async {
        tokio::select! {
            () = name(&assignment.label, site, options.globs, items, sender) => {}
            () = desk.hold.until(Standing::Stopping) => {}
        }
    };
    let (tally, (), ()) =
        tokio::join!(removal.run(files), items::feed(&desk.line, &desk.hold, to, |item| item), naming);
    if desk.hold.standing() >= Standing::Stopping {
        return End::Stopped;
    }
    let credentials: [Credential; 1] = [assignment.source.credential.clone()];
    match (tally.over, tally.again) {
        (Some(fault), _) => fate::end_by(fault, desk.after(), &credentials),
        (None, Some(fault)) => End::Again { fault, after: desk.after() },
        (None, None) => End::Finished,
    }
}

/// Makes paths of what the user named.
pub(super) async fn name(
    label: &str,
    site: &Reach,
    globs: bool,
    mut items: mpsc::Receiver<WorkItem>,
    files: mpsc::Sender<Found>,
) {
    while let Some(item) = items.recv().await {
        let path = trimmed(&item.source);
        let (above, last) = split(path);
        let sent = if globs && glob::is_pattern(last) {
            match matching(label, site, above, last).await {
                Ok(found) if found.is_empty() => {
                    let fault = Fault::new(FaultCode::NotFound, "match").on_path(path).side(Side::Source);
                    files.send(root(site, path, Err(fault.detail("nothing matches the pattern")))).await
                }
                Ok(found) => {
                    let mut sent = Ok(());
                    for object in found {
                        let path = join(above, &object.path);
                        sent = files.send(root(site, &path, Ok(Some(object)))).await;
                    }
                    sent
                }
                Err(fault) => files.send(root(site, path, Err(fault))).await,
            }
        } else {
            files.send(root(site, path, whole(site, path))).await
        };
        if sent.is_err() {
            return;
        }
    }
}

/// Nothing known of it yet; the collection itself is not for its users to delete.
fn whole(site: &Reach, path: &[u8]) -> Result<Option<Object>, Fault> {
    if site.is_root(path) || path.is_empty() {
        let fault = Fault::new(FaultCode::InvalidArgument, "delete").on_path(path).side(Side::Source);
        return Err(fault.detail("this is the collection itself: name what in it is to be deleted"));
    }
    Ok(None)
}

async fn matching(label: &str, site: &Reach, directory: &[u8], pattern: &[u8]) -> Result<Vec<Object>, Fault> {
    let session = site::session(label);
    let (remote, _) = Dtns::default().dial(&site.target, &session, &[]).await?;
    let mut found = Vec::new();
    let mut end = Session::Remote(Box::new(remote));
    let listed = end.list(directory, true, async |objects| {
        let objects = objects.into_iter().map(|(object, _)| object);
        found.extend(objects.filter(|object| glob::matches(pattern, &object.path)).map(bare));
        Ok(())
    });
    listed.await.map_err(|fault| fault.side_if_unknown(Side::Source))?;
    found.sort_by(|one: &Object, other| one.path.cmp(&other.path));
    Ok(found)
}

/// Devices are deleted like files.
fn bare(object: Object) -> Object {
    match object.kind {
        ObjectKind::Other => Object { kind: ObjectKind::File, ..object },
        _ => object,
    }
}

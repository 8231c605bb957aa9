//! Moves: sources are deleted once their copies are proven and that is on record, and then the directories that are empty.

use tokio::sync::mpsc;
use whimbrel_engine::plan::{Links, PlanOptions};
use whimbrel_engine::{Fault, Side};

use super::copies::{self, Copies};
use super::items;
use super::removal::{Aim, Found, Removal, root};
use super::report::Moved;
use super::transfer::Run;

/// Read ahead.
const AHEAD: usize = 256;

/// Deletes what comes, until nothing more does.
pub(super) async fn delete_sources(
    run: &Run<'_>,
    sources: Option<mpsc::UnboundedReceiver<Moved>>,
) -> Result<(), Fault> {
    let Some(mut sources) = sources else { return Ok(()) };
    let (to, files) = mpsc::channel(AHEAD);
    let copies = Copies::default();
    let naming = async {
        copies::look(run, &mut sources, &to, &copies).await;
        // Nobody waits for what is not deleted.
        sources.close();
        run.desk.outbox.no_more_sources();
        drop(to);
    };
    let (result, ()) = tokio::join!(remove(run, Aim::Moved, files, copies.clone()), naming);
    result
}

/// Removes the directories of what was moved, where nothing is left in them.
pub(super) async fn remove_directories(run: &Run<'_>) -> Result<(), Fault> {
    let (to, files) = mpsc::channel(AHEAD);
    let feeding = items::feed(&run.desk.line, &run.desk.hold, to, |item| {
        let path = item.source.clone();
        // Of what was refused nothing was moved.
        let refused = run.found(item).and_then(|found| found.found).err();
        root(run.source, &path, refused.map_or(Ok(None), Err))
    });
    let (result, ()) = tokio::join!(remove(run, Aim::Empty, files, Copies::default()), feeding);
    result
}

async fn remove(run: &Run<'_>, aim: Aim, files: mpsc::Receiver<Found>, copies: Copies) -> Result<(), Fault> {
    // What a filter leaves out stays, empty or not.
    let filter = run.options.filter.clone();
    let plan = PlanOptions { recursive: true, links: Links::Copy, filter, ..PlanOptions::default() };
    let progress = run.ledger.borrow().progress.clone();
    let removal = Removal {
        desk: run.desk,
        assignment: run.assignment,
        reach: run.source,
        plan,
        aim,
        copies,
        is_finished: &|_| false,
        progress: &progress,
    };
    let tally = removal.run(files).await;
    match tally.over.or(tally.again).or(tally.failed) {
        Some(fault) => Err(not_all_deleted(fault)),
        None => Ok(()),
    }
}

/// Why a task ends whose items are all done.
pub(super) fn not_all_deleted(fault: Fault) -> Fault {
    let fault = fault.side_if_unknown(Side::Source);
    match fault.detail.is_empty() {
        true => fault.detail("everything is copied, but not every source could be deleted"),
        false => fault,
    }
}

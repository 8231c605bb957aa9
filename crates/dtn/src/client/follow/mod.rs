//! Copies a directory while it is being written, until a marker appears or the user ends it.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch as signal};
use whimbrel_engine::events::Event;
use whimbrel_engine::follow::Names;
use whimbrel_engine::plan::SyncLevel;
use whimbrel_engine::{Fault, FaultCode, Side};

use super::copy::{Report, copy_some, unless_cancelled};
use super::options::{CopyOptions, Jobs, Place};
use super::plan::{All, Sieve};
use destination::Destination;
use follower::Follower;
use source::Source;
use tally::Tally;

pub use super::overlap::swallows_itself;

mod destination;
mod follower;
mod scan;
mod source;
#[cfg(test)]
mod stub;
mod tally;
mod watch;

/// Files handed to the copy ahead of their turn.
const AHEAD: usize = 256;

/// Interval of scans where events tell of most files.
const LOCAL_INTERVAL: Duration = Duration::from_secs(5);

/// Interval of scans of a server.
const REMOTE_INTERVAL: Duration = Duration::from_secs(10);

/// What is followed and how.
#[derive(Debug, Clone)]
pub struct FollowOptions {
    /// The directory that is written.
    pub source: Place,
    /// What it holds goes in here; made if it is missing.
    pub destination: Place,
    /// Name of the file in `source` that ends the run.
    pub until: Option<Vec<u8>>,
    /// Time between scans, at least; `None`: 5 s on this host, 10 s on a server. A scan that takes long is made more rarely.
    pub scan_interval: Option<Duration>,
    /// Time without change after which a file counts as complete where no event tells.
    pub quiet_time: Duration,
    /// Copy hidden and temporary names, too.
    pub include_hidden: bool,
}

/// When a run ends before its marker.
#[derive(Debug, Clone)]
pub struct Ends {
    /// Turning true ends the watching; what is ready is finished.
    pub stop: signal::Receiver<bool>,
    /// Turning true ends the copying, too.
    pub cancel: signal::Receiver<bool>,
}

/// Copies files of a directory as they become complete; every event goes to `events` in order, the summary included.
///
/// The sync level decides about the first version of each file. A file that changed while it was copied and whose next version was copied well
/// is no failure in the summary. A run that ends before its marker was copied is a cancelled one. The marker is not copied when a host of the
/// destination was started anew and may have lost files.
/// Must run on a current-thread runtime.
///
/// # Errors
/// The source is no directory, the destination cannot be made, or either cannot be reached any more.
pub async fn follow(
    follow: FollowOptions,
    options: CopyOptions,
    ends: Ends,
    events: impl FnMut(Event),
) -> Result<Report, Fault> {
    let compared = first_of_each(options.plan.sync);
    run(follow, options, ends, (All, compared), true, events).await
}

/// The same for what a sieve lets pass, which must be everything that is to end: a file whose action is left out is waited for.
///
/// `compared` is asked with the path at the destination before a version of a file is handed over: whether the copy's sync level decides about it,
/// or it is copied whatever is there. What a host of the destination may have lost is for the caller to copy again: the marker does not wait for it.
///
/// # Errors
/// As [`follow`].
pub(crate) async fn follow_some(
    follow: FollowOptions,
    options: CopyOptions,
    ends: Ends,
    sieve_and_compared: (impl Sieve, impl FnMut(&[u8]) -> bool),
    events: impl FnMut(Event),
) -> Result<Report, Fault> {
    run(follow, options, ends, sieve_and_compared, false, events).await
}

/// Whether the sync level decides about a file that is handed over, by its path at the destination: about its first version in a run.
///
/// Later ones would be taken for the first, which lies at the destination by then, where size and time do not tell them apart.
fn first_of_each(sync: SyncLevel) -> impl FnMut(&[u8]) -> bool {
    let hashes = RandomState::new();
    let mut known = HashSet::new();
    move |path: &[u8]| match sync {
        // Nobody asks, or whatever is there stays.
        SyncLevel::None | SyncLevel::Exists => true,
        // Hashes do: of two paths with the same one, one is copied without having been compared.
        SyncLevel::Size | SyncLevel::Mtime | SyncLevel::Checksum => known.insert(hashes.hash_one(path)),
    }
}

/// `losses`: the run answers for what the destination's hosts lose.
async fn run(
    follow: FollowOptions,
    options: CopyOptions,
    mut ends: Ends,
    (sieve, compared): (impl Sieve, impl FnMut(&[u8]) -> bool),
    losses: bool,
    events: impl FnMut(Event),
) -> Result<Report, Fault> {
    let interval = follow.scan_interval.unwrap_or(match follow.source.target {
        None => LOCAL_INTERVAL,
        Some(_) => REMOTE_INTERVAL,
    });
    let names = Names { include_hidden: follow.include_hidden, marker: follow.until.clone() };
    let source = unless_cancelled(&mut ends.cancel, Source::open(&follow.source, names, &options)).await?;
    let (session, local) = (options.session.clone(), options.local.clone());
    // What is durable when it counts is not lost.
    let hosts = (losses && !options.durable).then(|| options.hosts.clone());
    let mut destination = Destination::new(follow.destination.clone(), session, local, hosts);
    unless_cancelled(&mut ends.cancel, destination.prepare()).await?;
    let events = RefCell::new(events);
    let tell = |event| (events.borrow_mut())(event);
    tell(Event::Watching {
        source: follow.source.path.clone(),
        events: source.has_events(),
        scan_interval: interval.as_secs_f64(),
        quiet_time: follow.quiet_time.as_secs_f64(),
    });
    let (files, jobs) = mpsc::channel(AHEAD);
    let (teller, told) = mpsc::unbounded_channel();
    let left = Rc::new(Cell::new(0));
    let tally = Tally::new(&follow.source.path, follow.until.as_deref(), left.clone(), teller);
    let mut tally = tally.telling_losses(losses);
    let pass_on = |mut event| {
        tally.take(&mut event);
        tell(event);
    };
    let watched = |event| {
        if let Event::WatchEnded { unfinished } = &event {
            left.set(*unfinished);
        }
        tell(event);
    };
    let preserve = options.plan.preserve.modes || options.plan.preserve.times;
    let follower = Follower::new(&follow, interval, preserve, source, destination, compared);
    let copying = copy_some(Jobs::Files(jobs), options, ends.cancel, sieve, pass_on);
    let (report, ()) = tokio::join!(copying, follower.run(files, told, ends.stop, &watched));
    report.map(|report| match report {
        Report::Done(mut summary) => {
            tally.correct(&mut summary);
            Report::Done(summary)
        }
        planned @ Report::Planned(_) => planned,
    })
}

fn no_directory(place: &Place, exists: bool) -> Fault {
    let code = if exists { FaultCode::NotADirectory } else { FaultCode::NotFound };
    Fault::new(code, "follow").on_path(&place.path).side(Side::Source)
}

/// When a scan may begin that follows one of this length.
fn next_scan(interval: Duration, took: Duration) -> Instant {
    // A fifth of the time at most, however large the tree.
    Instant::now() + interval.max(took * 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_version_of_each_file_is_compared() {
        for sync in [SyncLevel::Size, SyncLevel::Mtime, SyncLevel::Checksum] {
            let mut compared = first_of_each(sync);
            assert_eq!([b"/a", b"/b", b"/a", b"/b"].map(|path| compared(path)), [true, true, false, false], "{sync:?}");
        }
        for sync in [SyncLevel::None, SyncLevel::Exists] {
            let mut compared = first_of_each(sync);
            assert_eq!([b"/a", b"/a"].map(|path| compared(path)), [true, true], "{sync:?}");
        }
    }
}

//! Looks, decides with the engine's rules, and hands complete files to the copy.

use std::time::{Duration, Instant};

use tokio::sync::mpsc::{Permit, Sender, UnboundedReceiver};
use tokio::sync::watch as signal;
use tokio::time::sleep_until;
use whimbrel_engine::events::Event;
use whimbrel_engine::follow::{PATIENCE, Quiet, Version};
use whimbrel_engine::listing::join;
use whimbrel_engine::{Fault, Retry};

use super::destination::Destination;
use super::source::{Scan, Scanned, Source};
use super::tally::Told;
use super::watch::Happened;
use super::{FollowOptions, next_scan};
use crate::client::options::{Demand, FoundFile, Place};

/// Time before a destination that does not answer is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(5);

type Handed = Result<FoundFile, Fault>;

/// The state of a run.
pub struct Follower<C> {
    root: Place,
    interval: Duration,
    quiet: Quiet,
    source: Source,
    destination: Destination,
    scan: Option<Scan>,
    next_scan: Instant,
    /// No directory is asked again before: scans of large ones would be all that is done.
    rest: Instant,
    /// Directories that appeared and are to be scanned.
    appeared: Vec<Vec<u8>>,
    /// Since when the source cannot be scanned.
    failing: Option<Instant>,
    /// Whether the destination was asked since the last file whether it still has everything.
    asked: bool,
    /// Nothing is handed over before: the destination is asked again then.
    pause: Instant,
    /// Whether copies get more of their sources than scans tell.
    preserve: bool,
    stopping: bool,
    /// Whether nothing can be copied any more.
    given_up: bool,
    /// Whether the sync level decides about a file, by its path at the destination.
    compared: C,
}

impl<C: FnMut(&[u8]) -> bool> Follower<C> {
    /// A run that has not looked yet; with `preserve`, copies get more of their sources than scans tell.
    pub fn new(
        follow: &FollowOptions,
        interval: Duration,
        preserve: bool,
        source: Source,
        destination: Destination,
        compared: C,
    ) -> Self {
        Self {
            root: follow.source.clone(),
            interval,
            quiet: Quiet::new(follow.quiet_time, follow.until.clone()),
            source,
            destination,
            scan: None,
            next_scan: Instant::now(),
            rest: Instant::now(),
            appeared: Vec::new(),
            failing: None,
            asked: false,
            pause: Instant::now(),
            preserve,
            stopping: false,
            given_up: false,
            compared,
        }
    }

    /// Runs until the marker is copied, the user ends it, or nobody takes files any more; then drops `files`.
    pub async fn run(
        mut self,
        files: Sender<Handed>,
        mut told: UnboundedReceiver<Told>,
        mut stop: signal::Receiver<bool>,
        tell: &impl Fn(Event),
    ) {
        if let Err(fault) = self.work(&files, &mut told, &mut stop, tell).await {
            // A copy that is over has its own result.
            let _ = files.send(Err(fault)).await;
        }
    }

    async fn work(
        &mut self,
        files: &Sender<Handed>,
        told: &mut UnboundedReceiver<Told>,
        stop: &mut signal::Receiver<bool>,
        tell: &impl Fn(Event),
    ) -> Result<(), Fault> {
        while !self.quiet.is_over() {
            if let Some(files) = self.quiet.caught_up() {
                tell(Event::CaughtUp { files });
            }
            self.begin_scan();
            let wake = self.wake();
            tokio::select! {
                biased;
                // A sender that is gone never stops the run.
                Ok(_) = stop.wait_for(|stop| *stop), if !self.stopping => self.stop(tell)?,
                Some(told) = told.recv() => self.hear(told, tell),
                permit = files.reserve(), if self.may_hand_over() => match permit {
                    Ok(permit) => self.hand_over(permit).await,
                    Err(_) => return Ok(()),
                },
                () = files.closed() => return Ok(()),
                scanned = under_way(&mut self.scan) => self.scanned(scanned, tell)?,
                () = sleep_until(wake.into()) => self.look(tell),
                happened = self.source.happened(), if !self.stopping => self.take(happened?, tell),
            }
        }
        if !self.stopping {
            tell(Event::WatchEnded { unfinished: 0 });
        }
        Ok(())
    }

    fn hear(&mut self, told: Told, tell: &impl Fn(Event)) {
        match told {
            Told::Ended { path, well } => self.quiet.ended(&path, well),
            Told::GivenUp => {
                self.given_up = true;
                self.give_up(tell);
            }
        }
    }

    /// What was ready when the user ended it is finished, so what is known to the kernel counts.
    fn stop(&mut self, tell: &impl Fn(Event)) -> Result<(), Fault> {
        loop {
            let happened = self.source.happened_already()?;
            if happened.is_empty() {
                break;
            }
            self.take(happened, tell);
        }
        self.give_up(tell);
        Ok(())
    }

    /// Nothing more is taken; what is ready is still handed over, to be copied or to fail.
    fn give_up(&mut self, tell: &impl Fn(Event)) {
        if !std::mem::replace(&mut self.stopping, true) {
            self.scan = None;
            tell(Event::WatchEnded { unfinished: self.quiet.stop() });
        }
    }

    // --- looking -------------------------------------------------------------------------------

    fn begin_scan(&mut self) {
        if self.scan.is_some() || self.stopping {
            return;
        }
        let now = Instant::now();
        // Paused after a failure, whatever wants it.
        let wanted = self.failing.is_none() && self.quiet.wants_scan();
        let mut starts = Vec::new();
        if wanted || self.next_scan <= now {
            starts.push(Vec::new());
            self.appeared.clear();
        } else {
            starts.append(&mut self.appeared);
            if self.failing.is_none() && self.rest <= now {
                starts.extend(self.quiet.asked_again(now));
            }
        }
        if !starts.is_empty() {
            self.quiet.scan_begins(is_whole(&starts));
            self.scan = Some(self.source.scan(starts));
        }
    }

    /// When there is something to do, though nothing happens: after a stop, only to hand over.
    fn wake(&self) -> Instant {
        let look = if self.stopping { None } else { self.next_look() };
        let pause = Some(self.pause).filter(|pause| *pause > Instant::now());
        look.into_iter().chain(pause).min().unwrap_or_else(|| Instant::now() + self.interval)
    }

    fn next_look(&self) -> Option<Instant> {
        // Files of a server are looked at by scans only, and no scan begins before the last has ended.
        let due = self.quiet.next_due().filter(|_| self.source.is_here());
        let scan = if self.scan.is_some() { None } else { Some(self.next_scan) };
        let ask = self.quiet.next_ask().filter(|_| self.scan.is_none() && self.failing.is_none());
        let ask = ask.map(|ask| ask.max(self.rest));
        due.into_iter().chain(scan).chain(ask).min()
    }

    /// Looks at the files that may have been quiet for long enough.
    fn look(&mut self, tell: &impl Fn(Event)) {
        let now = Instant::now();
        while !self.stopping
            && self.source.is_here()
            && let Some(path) = self.quiet.poll_due(now)
        {
            self.look_at(now, &path, tell, |quiet, version| quiet.seen(now, &path, version));
        }
    }

    /// Looks at a file and tells what is there.
    fn look_at(&mut self, now: Instant, path: &[u8], tell: &impl Fn(Event), found: impl FnOnce(&mut Quiet, Version)) {
        match self.source.look(path) {
            Ok(Some(version)) => found(&mut self.quiet, version),
            Ok(None) => self.quiet.gone(path),
            Err(fault) => {
                let news = self.quiet.hidden(now, path, fault.clone());
                self.tell_unread(path, fault, news, tell);
            }
        }
    }

    fn tell_unread(&self, path: &[u8], fault: Fault, news: bool, tell: &impl Fn(Event)) {
        if news {
            tell(Event::CannotRead { source: join(&self.root.path, path), fault });
        } else {
            tracing::debug!(%fault, "still cannot be read");
        }
    }

    fn scanned(&mut self, mut scanned: Scanned, tell: &impl Fn(Event)) -> Result<(), Fault> {
        self.scan = None;
        self.source.scanned(&mut scanned);
        let now = Instant::now();
        match scanned.sight {
            Ok(sight) => {
                self.failing = None;
                for (path, version) in sight.files {
                    self.quiet.seen(now, &path, version);
                }
                for (path, fault) in sight.unread {
                    let news = self.quiet.unread(now, &path, fault.clone());
                    self.tell_unread(&path, fault, news, tell);
                }
                self.quiet.scan_ends(now, &scanned.starts);
                self.rest = next_scan(Duration::ZERO, scanned.began.elapsed());
                if is_whole(&scanned.starts) {
                    self.next_scan = next_scan(self.interval, scanned.began.elapsed());
                }
            }
            Err(fault) => {
                let since = *self.failing.get_or_insert(now);
                if !matches!(fault.retry, Retry::Temporary { .. }) || since.elapsed() > PATIENCE {
                    return Err(fault);
                }
                tracing::warn!(%fault, "the directory cannot be scanned now");
                self.next_scan = next_scan(self.interval, Duration::ZERO);
            }
        }
        Ok(())
    }

    fn take(&mut self, happened: Vec<Happened>, tell: &impl Fn(Event)) {
        let now = Instant::now();
        for event in happened {
            match event {
                Happened::Overflow => {
                    tracing::info!("events were lost: scanning");
                    self.quiet.events_lost(now);
                    self.next_scan = now;
                }
                Happened::Directory(path) if self.source.wants(&path) => self.appeared.push(path),
                Happened::Created(path) if self.source.wants(&path) => {
                    self.look_at(now, &path, tell, |quiet, version| quiet.created(now, &path, version));
                }
                Happened::Written(path) if self.source.wants(&path) => self.quiet.written(now, &path),
                Happened::Closed(path) if self.source.wants(&path) => {
                    self.look_at(now, &path, tell, |quiet, version| quiet.closed(now, &path, version, false));
                }
                Happened::Arrived(path) if self.source.wants(&path) => {
                    self.look_at(now, &path, tell, |quiet, version| quiet.closed(now, &path, version, true));
                }
                Happened::Gone(path) => self.quiet.gone(&path),
                Happened::DirectoryGone(path) => self.quiet.gone_below(&path),
                _ => {}
            }
        }
    }

    // --- handing over --------------------------------------------------------------------------

    fn may_hand_over(&self) -> bool {
        self.quiet.has_ready() && self.pause <= Instant::now()
    }

    async fn hand_over(&mut self, permit: Permit<'_, Handed>) {
        if let Some((path, fault)) = self.quiet.next_failed() {
            let source = self.root.with_path(join(&self.root.path, &path));
            let destination = self.destination.of(&path);
            return permit.send(Ok(failed(source, destination, fault)));
        }
        if self.quiet.marker_is_next() && !self.asked {
            return self.ask_whether_all_is_there(permit).await;
        }
        let Some(path) = self.quiet.peek_ready() else { return };
        if let Err(fault) = self.destination.make_parents(&path).await {
            tracing::warn!(%fault, "a directory cannot be made");
            // A copy that finds no directory fails for good, however soon the destination is there again.
            if !self.given_up && self.destination.may_recover(&fault) {
                self.pause = Instant::now() + ASK_AGAIN;
                return;
            }
            // The copy fails for the same reason and is listed among the failures.
        }
        let Some((path, version)) = self.quiet.next_ready() else { return };
        self.asked = false;
        let source = self.root.with_path(join(&self.root.path, &path));
        // A file of this host is looked at again for nothing; a server would be asked for each.
        let object = (!self.source.is_here() && !self.preserve).then(|| version.object());
        let destination = self.destination.of(&path);
        let demand = Demand { replace: !(self.compared)(&destination.path), ..Demand::default() };
        permit.send(Ok(FoundFile { source, destination, found: Ok(object), demand }));
    }

    /// Asks the destination whether it still has everything, before the end marker says so. What others have learnt of it meanwhile is heard
    /// before the marker goes.
    async fn ask_whether_all_is_there(&mut self, permit: Permit<'_, Handed>) {
        match self.destination.loss().await {
            Ok(loss) => {
                self.asked = true;
                let Some((server, fault)) = loss else { return };
                self.quiet.ended(b"", false);
                let server = Place { target: None, path: server.into_bytes() };
                permit.send(Ok(failed(server.clone(), server, fault)));
            }
            Err(fault) => {
                tracing::warn!(%fault, "the destination does not answer whether it still has everything");
                self.asked = !self.destination.may_recover(&fault);
                self.pause = Instant::now() + ASK_AGAIN;
                // What stays so is told by the copy of the marker; another server might take that and knows nothing.
                if let Some(servers) = self.destination.servers().filter(|_| self.asked) {
                    self.quiet.ended(b"", false);
                    let servers = Place { target: None, path: servers.into_bytes() };
                    permit.send(Ok(failed(servers.clone(), servers, fault)));
                }
            }
        }
    }
}

/// What fails without having been tried.
fn failed(source: Place, destination: Place, fault: Fault) -> FoundFile {
    FoundFile { source, destination, found: Err(fault), demand: Demand::default() }
}

/// Whether a scan that begins here is one of everything.
fn is_whole(starts: &[Vec<u8>]) -> bool {
    starts.iter().any(Vec::is_empty)
}

/// The end of the scan under way; never without one. Cancel safe.
async fn under_way(scan: &mut Option<Scan>) -> Scanned {
    match scan {
        Some(scan) => scan.await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;

    use tempfile::TempDir;
    use tokio::sync::mpsc::channel;
    use whimbrel_engine::follow::Names;
    use whimbrel_engine::plan::PlanOptions;

    use super::super::stub::Stub;
    use super::*;
    use crate::client::options::CopyOptions;

    /// Has a file for a new directory of a destination that is away.
    async fn waiting() -> (TempDir, Stub, Follower<impl FnMut(&[u8]) -> bool>) {
        let (from, stub) = (tempfile::tempdir().unwrap(), Stub::start().await);
        let follow = FollowOptions {
            source: Place { target: None, path: from.path().as_os_str().as_bytes().to_vec() },
            destination: Place { target: Some(stub.target.clone()), path: b"/to".to_vec() },
            until: None,
            scan_interval: None,
            quiet_time: Duration::ZERO,
            include_hidden: false,
        };
        let options = CopyOptions::of(PlanOptions::default());
        let source = Source::open(&follow.source, Names::default(), &options).await.unwrap();
        let destination = Destination::new(follow.destination.clone(), options.session, options.local, None);
        let hour = Duration::from_secs(3600);
        let mut follower = Follower::new(&follow, hour, false, source, destination, |_: &[u8]| true);
        let version = Version { size: Some(1), modified: None };
        follower.quiet.closed(Instant::now(), b"d/f", version, false);
        stub.set_busy(true);
        (from, stub, follower)
    }

    #[tokio::test]
    async fn a_file_in_a_new_directory_waits_for_a_destination_that_is_away_also_after_a_stop() {
        let (_from, stub, mut follower) = waiting().await;
        let (files, mut handed) = channel(1);
        follower.hand_over(files.reserve().await.unwrap()).await;
        assert!(handed.try_recv().is_err() && !follower.may_hand_over());
        follower.stopping = true;
        assert_eq!((follower.quiet.stop(), follower.wake()), (0, follower.pause));
        follower.pause = Instant::now();
        assert!(follower.may_hand_over());
        stub.set_busy(false);
        follower.hand_over(files.reserve().await.unwrap()).await;
        assert_eq!(handed.try_recv().unwrap().unwrap().destination.path, b"/to/d/f");
    }

    #[tokio::test]
    async fn nothing_waits_for_a_destination_when_nothing_can_be_copied_any_more() {
        let (_from, _stub, mut follower) = waiting().await;
        let (files, mut handed) = channel(1);
        follower.given_up = true;
        follower.hand_over(files.reserve().await.unwrap()).await;
        assert!(handed.try_recv().is_ok());
    }
}

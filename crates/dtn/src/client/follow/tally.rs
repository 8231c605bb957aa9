//! Keeps account of copies that ended, by what the copy tells.

use std::cell::Cell;
use std::collections::HashSet;
use std::rc::Rc;

use tokio::sync::mpsc::UnboundedSender;
use whimbrel_engine::Fault;
use whimbrel_engine::events::Event;
use whimbrel_engine::listing::join;
use whimbrel_engine::summary::{Summary, exit, exit_code_for};

/// What the copy tells the follower.
#[derive(Debug, PartialEq, Eq)]
pub enum Told {
    /// The copy of a file has ended.
    Ended {
        /// Its relative path; empty: some of what was copied is lost, and nobody knows what.
        path: Vec<u8>,
        /// Whether it is at the destination as it should be.
        well: bool,
    },
    /// Nothing can be copied any more.
    GivenUp,
}

/// Tells the follower of each copy that ends, and the summary which failures were made good.
pub struct Tally {
    prefix: Vec<u8>,
    told: UnboundedSender<Told>,
    failed: HashSet<Vec<u8>>,
    made_good: HashSet<Vec<u8>>,
    /// The end marker, as long as nothing has become of it.
    awaited: Option<Vec<u8>>,
    /// Files that were still being written when the watching ended.
    left: Rc<Cell<u64>>,
    /// Why nothing can be copied any more.
    given_up: Option<Fault>,
    /// Whether a failure that is about no file is told.
    tells_losses: bool,
}

impl Tally {
    /// For files below `root`, where the file `marker` ends the run; the follower puts into `left` how many files it has left, and what it must
    /// know goes to `told`.
    pub fn new(root: &[u8], marker: Option<&[u8]>, left: Rc<Cell<u64>>, told: UnboundedSender<Told>) -> Self {
        let prefix = join(root, b"x");
        let prefix = prefix[..prefix.len() - 1].to_vec();
        let awaited = marker.map(|marker| join(root, marker));
        let (failed, made_good) = (HashSet::new(), HashSet::new());
        Self { prefix, told, failed, made_good, awaited, left, given_up: None, tells_losses: false }
    }

    /// Tells a failure that is about no file, such as what a host may have lost, as one of everything that was copied.
    pub fn telling_losses(self, tells_losses: bool) -> Self {
        Self { tells_losses, ..self }
    }

    /// Takes what happened; a summary is corrected.
    pub fn take(&mut self, event: &mut Event) {
        match event {
            Event::ItemDone { item, .. } => {
                if self.failed.remove(&item.source) {
                    self.made_good.insert(item.source.clone());
                }
                self.end(&item.source, true);
            }
            Event::ItemFailed(failure) => {
                self.failed.insert(failure.source.clone());
                self.end(&failure.source, false);
            }
            Event::ItemSkipped { source, .. } => self.end(source, true),
            Event::GivenUp { fault } => {
                self.given_up = Some(fault.clone());
                self.tell(Told::GivenUp);
            }
            Event::Summary(summary) => self.correct(summary),
            _ => {}
        }
    }

    /// Takes failures out of a summary whose files were copied in a later version, and tells what the end of the watching has left.
    pub fn correct(&self, summary: &mut Summary) {
        let before = summary.failures.len();
        let stands = |source: &Vec<u8>| self.failed.contains(source) || !self.made_good.contains(source);
        summary.failures.retain(|failure| stands(&failure.source));
        summary.failed = summary.failed.saturating_sub((before - summary.failures.len()) as u64);
        if summary.failed == 0 && !summary.cancelled {
            summary.exit_code = exit::OK;
        }
        summary.unfinished = self.left.get();
        match (&self.awaited, &self.given_up) {
            (Some(_), None) => (summary.cancelled, summary.exit_code) = (true, exit::CANCELLED),
            (Some(_), Some(fault)) if summary.exit_code == exit::OK => summary.exit_code = exit_code_for(fault),
            _ => {}
        }
    }

    fn end(&mut self, source: &[u8], well: bool) {
        self.awaited = self.awaited.take().filter(|marker| marker != source);
        match source.strip_prefix(&self.prefix[..]) {
            Some(path) => self.tell(Told::Ended { path: path.to_vec(), well }),
            None if self.tells_losses && !well => self.tell(Told::Ended { path: Vec::new(), well }),
            None => {}
        }
    }

    fn tell(&self, told: Told) {
        // The follower may be over; nobody waits then.
        let _ = self.told.send(told);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use tokio::sync::mpsc::unbounded_channel;
    use whimbrel_engine::events::Outcome;
    use whimbrel_engine::plan::{Item, ItemId, RootId};
    use whimbrel_engine::progress::{Progress, Verification};
    use whimbrel_engine::summary::{Failure, Failures};
    use whimbrel_engine::{FaultCode, Side};

    use super::*;

    fn item(id: u64, source: &str) -> Item {
        Item {
            id: ItemId(id),
            root: RootId(id),
            parent: None,
            source: source.into(),
            destination: b"/to".to_vec(),
            size: Some(1),
            modified: None,
            range: None,
            attributes: whimbrel_engine::plan::Attributes::default(),
        }
    }

    fn done(id: u64, source: &str) -> Event {
        let (outcome, verification) = (Outcome::Copied, Verification::NotAsked);
        Event::ItemDone { item: item(id, source), outcome, bytes: 1, verification, attempts: 1, seconds: 0.0 }
    }

    fn failed(id: u64, source: &str) -> Failure {
        Failure::new(&item(id, source), Fault::new(FaultCode::SourceChanged, "read"))
    }

    #[test]
    fn a_run_that_ends_before_its_marker_is_a_cancelled_one() {
        let (sender, _receiver) = unbounded_channel();
        let left = Rc::new(Cell::new(2));
        let mut tally = Tally::new(b"/from", Some(b"DONE"), left, sender);
        tally.take(&mut done(1, "/from/a/DONE"));
        let now = Instant::now();
        let last = Progress::new(now).snapshot(now);
        let corrected = |tally: &Tally| {
            let mut summary = Summary::new(last.clone(), &Failures::default(), false);
            tally.correct(&mut summary);
            (summary.exit_code, summary.cancelled, summary.unfinished)
        };
        assert_eq!(corrected(&tally), (exit::CANCELLED, true, 2));
        let fault = Fault::new(FaultCode::ConnectionRefused, "connect").side(Side::Network);
        tally.take(&mut Event::GivenUp { fault });
        assert_eq!(corrected(&tally), (exit::NETWORK_OR_PEER, false, 2), "nobody has ended it");
        tally.take(&mut done(2, "/from/DONE"));
        assert_eq!(corrected(&tally), (exit::OK, false, 2));
    }

    #[test]
    fn what_a_host_may_have_lost_is_told_as_a_failure_of_everything_unless_somebody_else_sees_to_it() {
        for tells_losses in [true, false] {
            let (sender, mut receiver) = unbounded_channel();
            let mut tally = Tally::new(b"/from", None, Rc::default(), sender).telling_losses(tells_losses);
            let fault = Fault::new(FaultCode::HostRestarted, "keep what was copied");
            tally.take(&mut Event::ItemFailed(Failure::new(&item(1, "ftp://host:21"), fault)));
            let told = receiver.try_recv().ok();
            assert_eq!(told, tells_losses.then_some(Told::Ended { path: Vec::new(), well: false }));
        }
    }

    #[test]
    fn a_version_that_failed_is_made_good_by_a_later_one_and_by_nothing_else() {
        let (sender, mut receiver) = unbounded_channel();
        let mut tally = Tally::new(b"/from/", None, Rc::default(), sender);
        let mut failures = Failures::default();
        for (id, source) in [(1, "/from/a"), (2, "/from/b/c")] {
            let failure = failed(id, source);
            failures.add(&failure);
            tally.take(&mut Event::ItemFailed(failure));
        }
        tally.take(&mut done(3, "/from/a"));
        let now = Instant::now();
        let mut last = Progress::new(now).snapshot(now);
        (last.files_done, last.failed) = (1, 2);
        let mut summary = Summary::new(last.clone(), &failures, false);
        tally.correct(&mut summary);
        assert_eq!((summary.failed, summary.exit_code, summary.failures.len()), (1, exit::SOME_FAILED, 1));
        assert_eq!(summary.failures[0].source, b"/from/b/c");

        tally.take(&mut done(4, "/from/b/c"));
        let mut event = Event::Summary(Summary::new(last, &failures, false));
        tally.take(&mut event);
        let Event::Summary(summary) = event else { unreachable!("it was one") };
        assert_eq!((summary.failed, summary.exit_code), (0, exit::OK));
        let told: Vec<Told> = std::iter::from_fn(|| receiver.try_recv().ok()).collect();
        let ended = [(&b"a"[..], false), (b"b/c", false), (b"a", true), (b"b/c", true)];
        assert_eq!(told, ended.map(|(path, well)| Told::Ended { path: path.to_vec(), well }));
    }
}

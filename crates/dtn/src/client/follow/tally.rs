//! Keeps account of copies that ended, by what the copy tells.

use std::cell::Cell;
use std::collections::HashSet;
use std::rc::Rc;

use tokio::sync::mpsc::UnboundedSender;
use whimbrel_engine::events::Event;
use whimbrel_engine::listing::join;
use whimbrel_engine::summary::{Failure, Failures, Summary, exit, exit_code_for};
use whimbrel_engine::{Fault, FaultCode};

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
    /// The sources whose last copies failed.
    failed: HashSet<Vec<u8>>,
    /// Why, of the first of them.
    listed: Vec<Failure>,
    /// Failures of versions after which a later one was copied, or failed too.
    outdated: u64,
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
        let (failed, listed, outdated) = (HashSet::new(), Vec::new(), 0);
        Self { prefix, told, failed, listed, outdated, awaited, left, given_up: None, tells_losses: false }
    }

    /// Tells a failure that is about no file, such as what a host may have lost, as one of everything that was copied.
    pub fn telling_losses(self, tells_losses: bool) -> Self {
        Self { tells_losses, ..self }
    }

    /// Takes what happened; a summary is corrected.
    pub fn take(&mut self, event: &mut Event) {
        match event {
            Event::ItemDone { item, .. } => {
                self.done(&item.source);
                self.end(&item.source, true);
            }
            Event::ItemFailed(failure) => {
                self.failed(failure);
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

    /// Leaves of the failures in a summary the last one of each file that was not copied in a later version, and tells what the end of the
    /// watching has left.
    pub fn correct(&self, summary: &mut Summary) {
        // What the user's word leaves undone is no failure.
        let is_none = |failure: &Failure| summary.cancelled && failure.fault.code == FaultCode::Cancelled;
        let failures: Vec<_> = self.listed.iter().filter(|failure| !is_none(failure)).cloned().collect();
        summary.failed = summary.failed.saturating_sub(self.outdated);
        summary.failures_not_listed = summary.failed.saturating_sub(failures.len() as u64);
        summary.failures = failures;
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

    fn done(&mut self, source: &[u8]) {
        if self.failed.remove(source) {
            self.outdated += 1;
            self.listed.retain(|failure| failure.source != source);
        }
    }

    fn failed(&mut self, failure: &Failure) {
        let source = &failure.source;
        // What is about no file is no version of anything.
        let is_again = !self.failed.insert(source.clone()) && source.starts_with(&self.prefix);
        let before = self.listed.iter().position(|listed| is_again && listed.source == *source);
        match before {
            // It may be the user's word, and then says nothing of why the copy before failed.
            _ if is_again && failure.fault.code == FaultCode::Cancelled => return,
            Some(at) => self.listed[at] = failure.clone(),
            None if self.listed.len() < Failures::LISTED => self.listed.push(failure.clone()),
            None => {}
        }
        self.outdated += u64::from(is_again);
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
    use whimbrel_engine::Side;
    use whimbrel_engine::events::Outcome;
    use whimbrel_engine::plan::{Item, ItemId, RootId};
    use whimbrel_engine::progress::{Progress, Verification};

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
            twins: Vec::new(),
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

    #[test]
    fn what_fails_late_is_told_however_much_was_made_good_before_and_each_file_counts_once() {
        let (sender, _receiver) = unbounded_channel();
        let mut tally = Tally::new(b"/from", None, Rc::default(), sender);
        let mut failures = Failures::default();
        let mut fail = |tally: &mut Tally, id, source: &str| {
            let failure = failed(id, source);
            failures.add(&failure);
            tally.take(&mut Event::ItemFailed(failure));
        };
        let many = Failures::LISTED as u64 + 1;
        (0..many).for_each(|id| fail(&mut tally, id, &format!("/from/{id}")));
        (0..many).for_each(|id| tally.take(&mut done(many + id, &format!("/from/{id}"))));
        let last_id = 3 * many;
        for (id, source) in [(last_id - 2, "/from/late"), (last_id - 1, "/from/late"), (last_id, "ftp://host:21")] {
            fail(&mut tally, id, source);
        }
        fail(&mut tally, last_id + 1, "ftp://host:21");
        let now = Instant::now();
        let mut last = Progress::new(now).snapshot(now);
        (last.files_done, last.failed) = (many, many + 4);
        let mut summary = Summary::new(last, &failures, false);
        tally.correct(&mut summary);
        let told: Vec<u64> = summary.failures.iter().map(|failure| failure.item.0).collect();
        assert_eq!(told, [last_id - 1, last_id, last_id + 1], "a host may be lost twice");
        assert_eq!((summary.failed, summary.failures_not_listed, summary.exit_code), (3, 0, exit::SOME_FAILED));
    }

    #[test]
    fn what_the_user_ended_is_no_failure_and_hides_none() {
        let (sender, _receiver) = unbounded_channel();
        let mut tally = Tally::new(b"/from", None, Rc::default(), sender);
        let failure = failed(1, "/from/a");
        let mut failures = Failures::default();
        failures.add(&failure);
        tally.take(&mut Event::ItemFailed(failure));
        for (id, source) in [(2, "/from/a"), (3, "/from/b")] {
            let fault = Fault::new(FaultCode::Cancelled, "copy");
            tally.take(&mut Event::ItemFailed(Failure::new(&item(id, source), fault)));
        }
        let now = Instant::now();
        let mut last = Progress::new(now).snapshot(now);
        last.failed = 1;
        let mut summary = Summary::new(last, &failures, true);
        tally.correct(&mut summary);
        let told: Vec<u64> = summary.failures.iter().map(|failure| failure.item.0).collect();
        assert_eq!((told, summary.failed, summary.failures_not_listed), (vec![1], 1, 0));
    }
}

//! Directories of which not everything could be read: what is below them is unknown, not gone.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use super::PATIENCE;
use crate::fault::{Fault, Retry};

/// First wait before a directory is asked again; doubled for each further one.
const FIRST_WAIT: Duration = Duration::from_secs(1);

/// Longest wait, unless the fault itself demands a longer one.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Tries behind the end marker after which a fault that time does not cure counts.
const TRIES: u32 = 2;

/// The directories that could not be read, or not wholly. After a scan none of them lies below another.
#[derive(Debug, Default)]
pub struct Unread {
    directories: BTreeMap<Vec<u8>, Directory>,
    /// Those given up whose failure was not handed out.
    failed: VecDeque<(Vec<u8>, Fault)>,
}

#[derive(Debug)]
struct Directory {
    fault: Fault,
    /// It could not be read since.
    since: Instant,
    /// The scan that could not read it last.
    scan: u32,
    /// Tries in which the waits grow.
    asked: u32,
    /// Those in which nothing new was expected in it any more.
    tries: u32,
    /// When it is asked again.
    due: Instant,
    given_up: bool,
}

impl Unread {
    /// The scan with this number could not read a directory; `last`: nothing new is expected in it any more. Returns
    /// whether that is news.
    pub fn add(&mut self, now: Instant, path: &[u8], fault: Fault, scan: u32, last: bool) -> bool {
        if self.covering(path).any(|(above, other)| above != path && other.scan == scan) {
            return false;
        }
        // They are asked with it.
        self.directories.retain(|other, _| other == path || !is_below(other, path));
        let news = !self.directories.contains_key(path);
        let new = Directory { fault: fault.clone(), since: now, scan, asked: 0, tries: 0, due: now, given_up: false };
        let directory = self.directories.entry(path.to_vec()).or_insert(new);
        // Whole scans come oftener, and several of its files may be to blame in one.
        if directory.asked == 0 || (directory.scan != scan && directory.due <= now) {
            directory.asked += 1;
            directory.tries += u32::from(last);
            directory.due = now + wait(directory.asked, &fault);
        }
        (directory.scan, directory.fault) = (scan, fault);
        news
    }

    /// From now on each counts: nothing new is expected.
    pub fn begin_last(&mut self) {
        self.directories.values_mut().for_each(|directory| directory.asked = 0);
    }

    /// A scan of what is below `starts` has ended: whatever it did not tell of again was read, or is gone.
    pub fn scanned(&mut self, scan: u32, starts: &[Vec<u8>]) {
        self.directories
            .retain(|path, directory| directory.scan == scan || !starts.iter().any(|start| is_below(path, start)));
    }

    /// Whether a path is in a directory that could not be read.
    pub fn covers(&self, path: &[u8]) -> bool {
        self.covering(path).next().is_some()
    }

    /// Whether a path is in a directory that will not be waited for.
    pub fn is_given_up(&self, path: &[u8]) -> bool {
        self.covering(path).any(|(_, directory)| directory.given_up)
    }

    /// Whether one is waited for.
    pub fn is_waiting(&self) -> bool {
        self.directories.values().any(|directory| !directory.given_up)
    }

    /// When the first one is to be asked again.
    pub fn next_due(&self) -> Option<Instant> {
        self.waiting().map(|(_, directory)| directory.due).min()
    }

    /// Those to be asked again now.
    pub fn due(&self, now: Instant) -> Vec<Vec<u8>> {
        self.waiting().filter(|(_, directory)| directory.due <= now).map(|(path, _)| path.clone()).collect()
    }

    /// Gives up those for which patience is over and that this scan could not read either.
    pub fn give_up(&mut self, now: Instant, scan: u32) {
        self.give_up_if(|directory| directory.scan == scan && directory.is_over(now));
    }

    /// Gives up all.
    pub fn give_up_all(&mut self) {
        self.give_up_if(|_| true);
    }

    fn give_up_if(&mut self, is_over: impl Fn(&Directory) -> bool) {
        let waiting = self.directories.iter_mut().filter(|(_, directory)| !directory.given_up);
        for (path, directory) in waiting.filter(|(_, directory)| is_over(directory)) {
            directory.given_up = true;
            let mut fault = directory.fault.clone();
            if fault.is_temporary() {
                fault.retry = Retry::Exhausted;
            }
            self.failed.push_back((path.clone(), fault));
        }
    }

    /// Whether [`Unread::next_failed`] has one.
    pub fn has_failed(&self) -> bool {
        !self.failed.is_empty()
    }

    /// The next failure to hand out.
    pub fn next_failed(&mut self) -> Option<(Vec<u8>, Fault)> {
        self.failed.pop_front()
    }

    fn waiting(&self) -> impl Iterator<Item = (&Vec<u8>, &Directory)> {
        self.directories.iter().filter(|(_, directory)| !directory.given_up)
    }

    /// What covers a path: itself, or directories above it.
    fn covering(&self, path: &[u8]) -> impl Iterator<Item = (&[u8], &Directory)> {
        // Almost always there are none, and files are many.
        let most = if self.directories.is_empty() { 0 } else { path.len() };
        let ends = (0..most).filter(|&at| at == 0 || path[at] == b'/').chain([path.len()]);
        let above = ends.map(|at| &path[..at]);
        above.filter_map(|above| self.directories.get_key_value(above).map(|(path, directory)| (&path[..], directory)))
    }
}

impl Directory {
    /// Whether another try is not worth waiting for, after one that failed just now.
    fn is_over(&self, now: Instant) -> bool {
        match self.fault.retry {
            Retry::Temporary { .. } => self.tries > 0 && now.saturating_duration_since(self.since) >= PATIENCE,
            Retry::Permanent | Retry::Exhausted => self.tries >= TRIES,
        }
    }
}

/// Whether a path is a directory or lies in it, at whatever depth.
pub fn is_below(path: &[u8], directory: &[u8]) -> bool {
    directory.is_empty() || path.strip_prefix(directory).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

fn wait(asked: u32, fault: &Fault) -> Duration {
    let own = FIRST_WAIT.saturating_mul(2u32.saturating_pow(asked - 1)).min(LONGEST_WAIT);
    match fault.retry {
        Retry::Temporary { after } => own.max(after),
        Retry::Permanent | Retry::Exhausted => own,
    }
}

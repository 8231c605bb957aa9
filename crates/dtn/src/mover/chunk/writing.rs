//! Who writes which leaves of an unfinished file.
//!
//! Sessions that were given up, and other runs of the same copy, may write a leaf while this one does, or after it was proven. So each says
//! in the journal what it begins, before its first byte, and a leaf counts only when all of them have proven it
//! ([`whimbrel_engine::journal::Reading`]). The movers of this process know of each other besides: who begins where no other writes is alone,
//! and a commit waits until those are over whose leaves were proven by others.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use whimbrel_engine::Fault;
use whimbrel_engine::journal::Writer;
use whimbrel_transport::Cancel;

use super::noted::Noted;

/// Longest time that a commit waits for others who write.
const ENDS: Duration = Duration::from_secs(10);

/// Interval at which whoever waits looks whether it is to stop.
const LOOKS: Duration = Duration::from_millis(200);

/// The unfinished files that movers of this process write.
pub struct Writing {
    /// By the tokens of their sessions.
    files: Mutex<HashMap<Vec<u8>, Weak<Parts>>>,
    /// See [`ENDS`].
    patience: Duration,
}

impl Default for Writing {
    fn default() -> Self {
        Self::new(ENDS)
    }
}

impl Writing {
    /// Nothing is written; `patience`: how long a commit waits for those who write.
    pub(super) fn new(patience: Duration) -> Self {
        Self { files: Mutex::default(), patience }
    }

    /// What is written of one file.
    pub fn of(&self, token: &[u8]) -> Arc<Parts> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(parts) = files.get(token).and_then(Weak::upgrade) {
            return parts;
        }
        files.retain(|_, parts| parts.strong_count() > 0);
        let (state, changed) = (Mutex::default(), Condvar::new());
        let parts = Arc::new(Parts { state, changed, patience: self.patience });
        files.insert(token.to_vec(), Arc::downgrade(&parts));
        parts
    }
}

/// One unfinished file.
pub struct Parts {
    state: Mutex<State>,
    /// A part or a commit has ended.
    changed: Condvar,
    patience: Duration,
}

#[derive(Default)]
struct State {
    /// What is written now.
    active: Vec<Active>,
    last: u64,
    /// Commits under way.
    commits: usize,
}

struct Active {
    number: u64,
    writer: Writer,
    leaves: Vec<Range<u64>>,
}

/// A part that may be written until this is dropped.
pub struct Part {
    parts: Arc<Parts>,
    number: u64,
}

impl Drop for Part {
    fn drop(&mut self) {
        self.parts.lock().active.retain(|active| active.number != self.number);
        self.parts.changed.notify_all();
    }
}

/// A commit, during which no part begins.
pub struct Commit(Arc<Parts>);

impl Commit {
    /// Waits until nobody writes to these ranges any more; `false`: somebody still does.
    pub fn wait_for(&self, ranges: &[Range<u64>], cancel: &Cancel) -> Result<bool, Fault> {
        let until = Instant::now() + self.0.patience;
        let mut state = self.0.lock();
        while state.is_written(None, ranges) {
            cancel.check("commit")?;
            if Instant::now() >= until {
                return Ok(false);
            }
            state = self.0.wait(state);
        }
        Ok(true)
    }
}

impl Drop for Commit {
    fn drop(&mut self) {
        self.0.lock().commits -= 1;
        self.0.changed.notify_all();
    }
}

impl Parts {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change of the state is one step, so a panic leaves it usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on no part begins in this process, and the journal tells of all that have.
    pub fn commit(self: &Arc<Self>) -> Commit {
        self.lock().commits += 1;
        Commit(self.clone())
    }

    /// Says in the journal that `writer` begins to write these whole leaves, durably where that withdraws a proof; before that, `check` says whether
    /// the file is still there.
    ///
    /// `StorageBusy` when the journal is torn or gone: the file is to be opened again.
    pub fn begin(
        self: &Arc<Self>,
        journal: &Noted,
        writer: Writer,
        leaves: Vec<Range<u64>>,
        cancel: &Cancel,
        check: impl FnOnce() -> Result<(), Fault>,
    ) -> Result<Part, Fault> {
        let mut state = self.turn(cancel)?;
        check()?;
        let alone = !state.is_written(Some(writer), &leaves);
        let withdraws = journal.begin(writer, &leaves, alone)?;
        state.last += 1;
        let part = Part { parts: self.clone(), number: state.last };
        state.active.push(Active { number: part.number, writer, leaves });
        drop(state);
        if withdraws {
            // Or else a loss of power would bring the proof back, and leave some of the bytes.
            journal.sync()?;
        }
        Ok(part)
    }

    /// Waits for commits.
    fn turn(&self, cancel: &Cancel) -> Result<MutexGuard<'_, State>, Fault> {
        let mut state = self.lock();
        while state.commits > 0 {
            cancel.check("begin a part")?;
            state = self.wait(state);
        }
        Ok(state)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, LOOKS).unwrap_or_else(PoisonError::into_inner).0
    }
}

impl State {
    /// Whether anybody writes there, other than this one.
    fn is_written(&self, but: Option<Writer>, ranges: &[Range<u64>]) -> bool {
        let meet = |a: &Range<u64>, b: &Range<u64>| a.start < b.end && b.start < a.end;
        let others = self.active.iter().filter(|active| Some(active.writer) != but);
        others.flat_map(|active| &active.leaves).any(|leaves| ranges.iter().any(|range| meet(leaves, range)))
    }
}

#[cfg(test)]
mod tests {
    use std::slice;
    use std::sync::mpsc;
    use std::thread;

    use whimbrel_engine::FaultCode;
    use whimbrel_engine::journal::{Leaf, decode, encode_leaves};

    use super::super::noted::tests::{LEAF, a_journal, header};
    use super::*;

    fn begin(parts: &Arc<Parts>, journal: &Noted, writer: u64, range: Range<u64>) -> Result<Part, Fault> {
        parts.begin(journal, Writer(writer), leaves_of(range), &Cancel::new()?, || Ok(()))
    }

    fn leaves_of(range: Range<u64>) -> Vec<Range<u64>> {
        Some(header().leaves_of(&range)).into_iter().filter(|leaves| !leaves.is_empty()).collect()
    }

    /// Whether a leaf counts when only this writer has proven it.
    fn counts(journal: &Noted, writer: u64, index: u64) -> bool {
        let leaf = Leaf { range: index * LEAF..(index + 1) * LEAF, digest: vec![0] };
        let proof = encode_leaves(&header(), slice::from_ref(&leaf), Writer(writer)).unwrap();
        decode(&[journal.read().unwrap(), proof].concat()).leaves.contains(&leaf)
    }

    #[test]
    fn a_part_is_begun_alone_once_the_others_there_are_over() {
        let (journal, parts) = (a_journal(), Writing::default().of(b"file"));
        let first = begin(&parts, &journal, 1, 0..1).unwrap();
        drop(begin(&parts, &journal, 2, LEAF - 1..LEAF + 1).unwrap());
        assert!(!counts(&journal, 1, 0) && !counts(&journal, 2, 0), "both write it");
        assert!(counts(&journal, 2, 1) && !counts(&journal, 1, 1));
        drop(begin(&parts, &journal, 3, 0..LEAF).unwrap());
        assert!(!counts(&journal, 3, 0), "the first is not over");
        drop(first);
        drop(begin(&parts, &journal, 4, 0..LEAF).unwrap());
        assert!(counts(&journal, 4, 0));
        drop(begin(&parts, &journal, 5, 4 * LEAF..4 * LEAF).unwrap());
        assert!(counts(&journal, 6, 3), "no byte is of no leaf");
    }

    #[test]
    fn no_part_begins_during_a_commit_and_whoever_waits_can_be_stopped() {
        let (journal, writing) = (a_journal(), Writing::default());
        let parts = writing.of(b"file");
        let commits = [parts.commit(), writing.of(b"file").commit()];
        let cancel = Cancel::new().unwrap();
        let (began, begun) = mpsc::channel();
        thread::scope(|scope| {
            let (parts, journal, cancel) = (&parts, &journal, &cancel);
            let part = leaves_of(0..1);
            let stopped = scope.spawn(move || parts.begin(journal, Writer(1), part, cancel, || Ok(())).map(drop));
            cancel.cancel();
            assert_eq!(stopped.join().unwrap().unwrap_err().code, FaultCode::Cancelled);
            scope.spawn(move || began.send(begin(parts, journal, 2, 0..1).map(drop)).unwrap());
            begin(&writing.of(b"another file"), &a_journal(), 3, 0..1).expect("that is not committed");
            let [first, second] = commits;
            drop(first);
            assert!(begun.try_recv().is_err(), "the other one is under way");
            drop(second);
            begun.recv().unwrap().unwrap();
        });
        let gone = || Err(Fault::new(FaultCode::NotFound, "look"));
        let refused = parts.begin(&journal, Writer(4), leaves_of(0..1), &Cancel::new().unwrap(), gone);
        assert_eq!(refused.map(drop).unwrap_err().code, FaultCode::NotFound);
        assert!(counts(&journal, 2, 0), "the one that was stopped and the one that was refused have said nothing");
    }

    #[test]
    fn a_commit_waits_a_while_for_those_who_write() {
        let (journal, hasty) = (a_journal(), Writing::new(Duration::ZERO).of(b"file"));
        let part = begin(&hasty, &journal, 1, 0..LEAF).unwrap();
        let (commit, cancel) = (hasty.commit(), Cancel::new().unwrap());
        let waits = |range: Range<u64>| commit.wait_for(slice::from_ref(&range), &cancel).unwrap();
        assert!(!waits(0..1) && !waits(0..4 * LEAF) && waits(LEAF..4 * LEAF) && waits(0..0));
        drop(part);
        assert!(waits(0..4 * LEAF));
        let patient = Writing::new(Duration::from_secs(600)).of(b"file");
        let part = begin(&patient, &journal, 1, 0..LEAF).unwrap();
        let commit = patient.commit();
        thread::scope(|scope| {
            let waits = scope.spawn(|| commit.wait_for(slice::from_ref(&(0..1)), &cancel));
            drop(part);
            assert!(waits.join().unwrap().unwrap());
        });
        let part = begin(&Writing::default().of(b"file"), &journal, 1, 0..LEAF).unwrap();
        cancel.cancel();
        let stopped = part.parts.commit().wait_for(slice::from_ref(&(0..1)), &cancel);
        assert_eq!(stopped.unwrap_err().code, FaultCode::Cancelled);
    }
}

//! Who writes which leaves of an unfinished file.
//!
//! Sessions that were given up, and other runs of the same copy, may write a leaf while this one does, or after it was proven. So each says
//! in the journal what it begins, before its first byte, and a leaf counts only when all of them have proven it
//! ([`whimbrel_engine::journal::Reading`]). The movers of
//! this process know of each other besides: what one has begun is over for all when it ends, proven or not.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use whimbrel_engine::Fault;
use whimbrel_engine::journal::Writer;
use whimbrel_transport::Cancel;

use super::noted::Noted;

/// Time that a session which was given up has to notice; then both write, and neither leaf counts before both are over.
const GIVES_WAY: Duration = Duration::from_secs(1);

/// Interval at which whoever waits looks whether it is to stop.
const LOOKS: Duration = Duration::from_millis(200);

/// The unfinished files that movers of this process write.
pub struct Writing {
    /// By the tokens of their sessions.
    files: Mutex<HashMap<Vec<u8>, Weak<Parts>>>,
    gives_way: Duration,
}

impl Default for Writing {
    fn default() -> Self {
        Self::new(GIVES_WAY)
    }
}

impl Writing {
    /// Nothing is written; whoever writes has so long to end when another begins there.
    pub(super) fn new(gives_way: Duration) -> Self {
        Self { files: Mutex::default(), gives_way }
    }

    /// What is written of one file.
    pub fn of(&self, token: &[u8]) -> Arc<Parts> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(parts) = files.get(token).and_then(Weak::upgrade) {
            return parts;
        }
        files.retain(|_, parts| parts.strong_count() > 0);
        let (state, changed) = (Mutex::default(), Condvar::new());
        let parts = Arc::new(Parts { state, changed, gives_way: self.gives_way });
        files.insert(token.to_vec(), Arc::downgrade(&parts));
        parts
    }
}

/// One unfinished file.
pub struct Parts {
    state: Mutex<State>,
    /// A part or a commit has ended.
    changed: Condvar,
    gives_way: Duration,
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

    /// Says in the journal that `writer` begins to write `ranges`, durably where that withdraws a proof; before that, `check` says whether
    /// the file is still there.
    ///
    /// `StorageBusy` when the journal is torn or gone: the file is to be opened again.
    pub fn begin(
        self: &Arc<Self>,
        journal: &Noted,
        writer: Writer,
        ranges: &[Range<u64>],
        cancel: &Cancel,
        check: impl FnOnce() -> Result<(), Fault>,
    ) -> Result<Part, Fault> {
        let mut state = self.turn(writer, ranges, cancel)?;
        check()?;
        let leaves = journal.leaves_of(ranges)?;
        let alone = !state.is_written(writer, &leaves);
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

    /// Waits for commits, and a while for others who write there.
    fn turn(&self, writer: Writer, ranges: &[Range<u64>], cancel: &Cancel) -> Result<MutexGuard<'_, State>, Fault> {
        let until = Instant::now() + self.gives_way;
        let mut state = self.lock();
        while state.commits > 0 || (state.is_written(writer, ranges) && Instant::now() < until) {
            cancel.check("begin a part")?;
            (state, _) = self.changed.wait_timeout(state, LOOKS).unwrap_or_else(PoisonError::into_inner);
        }
        Ok(state)
    }
}

impl State {
    /// Whether anybody else writes there.
    fn is_written(&self, writer: Writer, ranges: &[Range<u64>]) -> bool {
        let meet = |a: &Range<u64>, b: &Range<u64>| a.start < b.end && b.start < a.end;
        let others = self.active.iter().filter(|active| active.writer != writer);
        others.flat_map(|active| &active.leaves).any(|leaves| ranges.iter().any(|range| meet(leaves, range)))
    }
}

#[cfg(test)]
mod tests {
    use std::slice;
    use std::sync::mpsc;
    use std::thread;

    use whimbrel_engine::FaultCode;

    use super::super::noted::tests::{LEAF, a_journal};
    use super::*;

    fn begin(parts: &Arc<Parts>, journal: &Noted, writer: u64, range: Range<u64>) -> Result<Part, Fault> {
        parts.begin(journal, Writer(writer), &[range], &Cancel::new()?, || Ok(()))
    }

    /// All of them where nobody has begun.
    fn open_to(journal: &Noted, range: Range<u64>) -> Vec<u64> {
        (1..9).filter(|writer| journal.may_prove(Writer(*writer), [&range]).unwrap()).collect()
    }

    #[test]
    fn a_part_is_begun_alone_once_the_others_there_are_over() {
        let (journal, parts) = (a_journal(), Writing::new(Duration::ZERO).of(b"file"));
        let first = begin(&parts, &journal, 1, 0..1).unwrap();
        drop(begin(&parts, &journal, 2, LEAF - 1..LEAF + 1).unwrap());
        assert_eq!(open_to(&journal, 0..LEAF), [1, 2], "whole leaves");
        assert_eq!(open_to(&journal, LEAF..2 * LEAF), [2]);
        drop(begin(&parts, &journal, 1, 0..1).unwrap());
        drop(begin(&parts, &journal, 3, 0..LEAF).unwrap());
        assert_eq!(open_to(&journal, 0..LEAF), [1, 3], "the first is not over, and the second is");
        drop(first);
        drop(begin(&parts, &journal, 4, 0..LEAF).unwrap());
        assert_eq!(open_to(&journal, 0..LEAF), [4]);
        drop(begin(&parts, &journal, 5, 4 * LEAF..4 * LEAF).unwrap());
        assert_eq!(open_to(&journal, 3 * LEAF..4 * LEAF).len(), 8, "no byte is of no leaf");
    }

    #[test]
    fn whoever_was_given_up_has_a_while_to_end() {
        let (journal, parts) = (a_journal(), Writing::new(Duration::from_secs(60)).of(b"file"));
        let first = begin(&parts, &journal, 1, 0..LEAF).unwrap();
        let (began, begun) = mpsc::channel();
        thread::scope(|scope| {
            let (parts, journal) = (&parts, &journal);
            scope.spawn(move || began.send(begin(parts, journal, 2, 0..LEAF).map(drop)).unwrap());
            begin(parts, journal, 3, LEAF..2 * LEAF).expect("elsewhere nobody waits");
            assert!(begun.try_recv().is_err());
            drop(first);
            begun.recv().unwrap().unwrap();
        });
        assert_eq!(open_to(&journal, 0..LEAF), [2]);
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
            let stopped = scope
                .spawn(move || parts.begin(journal, Writer(1), slice::from_ref(&(0..1)), cancel, || Ok(())).map(drop));
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
        let refused =
            parts.begin(&journal, Writer(4), slice::from_ref(&(0..1)), &Cancel::new().unwrap(), gone).map(drop);
        assert_eq!(refused.unwrap_err().code, FaultCode::NotFound);
        assert_eq!(open_to(&journal, 0..LEAF), [2], "and says nothing");
    }
}

//! Leaves that are written again, or by several at once: what was proven of them before says nothing of what they hold since.
#![allow(missing_docs, clippy::unwrap_used)]

mod mover_support;

use std::ops::Range;
use std::os::unix::ffi::OsStrExt as _;

use mover_support::{Node, extended, pattern, receive, send};
use whimbrel_dtn::mover::message::{MoverId, ToMover};
use whimbrel_proto::op::{
    ChunkedFile, FailureKind, Leaf, LeafSpec, Notice, Op, OpId, Outcome, ReceiveSpec, SendSpec, WriteKind,
};

const L: u64 = 4096;
const SIZE: u64 = 4 * L;

/// A destination, and the session of its unfinished file.
struct Lab {
    node: Node,
    session: Vec<u8>,
}

fn leaves() -> LeafSpec {
    LeafSpec { size: L, algorithm: "MD5".to_owned(), holes: false, vouched: false }
}

fn file() -> ChunkedFile {
    ChunkedFile { path: b"/copy".to_vec(), size: SIZE, modified: Some((1_700_000_000, 0)), leaves: leaves() }
}

impl Lab {
    fn new() -> Self {
        let mut node = Node::start();
        node.write("source", &pattern(SIZE as usize));
        // The same in size and time, as a source that is another file for a while.
        node.write("other", &pattern(SIZE as usize + 7)[7..]);
        let mover = node.attach();
        let (session, verified) = opened(&mut node, mover);
        assert!(verified.is_empty());
        Self { node, session }
    }

    /// What another run is told, by this data process and by one that knows nothing but the files.
    #[track_caller]
    fn found(&mut self) -> Vec<Range<u64>> {
        let root = self.node.root.path().as_os_str().as_bytes().to_vec();
        let mut beside = Node::with(|settings| settings.root = root);
        let (mover, other) = (self.node.attach(), beside.attach());
        let (mine, theirs) = (opened(&mut self.node, mover), opened(&mut beside, other));
        assert_eq!(mine, theirs);
        assert_eq!(mine.0, self.session, "it is the same file still");
        mine.1.into_iter().map(|leaf| leaf.range).collect()
    }

    fn receive(&self, part: &Range<u64>) -> ReceiveSpec {
        let write = WriteKind::Chunk { offset: part.start, session: self.session.clone() };
        let (expected_size, leaves) = (Some(part.end - part.start), Some(leaves()));
        ReceiveSpec { write, expected_size, leaves, ..receive("/copy") }
    }

    /// A login of a client whose part arrived; what was stored.
    #[track_caller]
    fn moved(&mut self, source: &str, part: Range<u64>) -> (MoverId, Vec<Leaf>) {
        let movers = self.node.pair(&extended(1));
        (movers.1, self.move_over(movers, source, part))
    }

    #[track_caller]
    fn move_over(&mut self, movers: (MoverId, MoverId), source: &str, part: Range<u64>) -> Vec<Leaf> {
        let from = SendSpec { offset: part.start, length: Some(part.end - part.start), ..send(source) };
        let to = self.receive(&part);
        let (sent, received) = self.node.copy(movers, from, to);
        assert_eq!(sent.bytes(), part.end - part.start);
        match received.done() {
            Outcome::Transferred { leaves, .. } => leaves,
            other => panic!("{other:?}"),
        }
    }

    /// A login whose part does not end by itself, and its sender, which sends nothing yet.
    fn stuck(&mut self, part: Range<u64>) -> (MoverId, (MoverId, OpId)) {
        let (sender, receiver) = self.node.pair(&extended(1));
        let to = self.receive(&part);
        let key = self.node.run(receiver, Op::Receive(to));
        self.node.until(key, |answer| answer.notices.iter().any(|notice| matches!(notice, Notice::Opened { .. })));
        (sender, key)
    }

    fn keep(&self, leaves: Vec<Leaf>) -> Op {
        Op::KeepLeaves { path: b"/copy".to_vec(), session: self.session.clone(), leaves }
    }

    fn commit(&self) -> Op {
        let (path, session, modified, mode, expected) = (b"/copy".to_vec(), self.session.clone(), None, None, None);
        Op::CommitChunked { path, session, modified, mode, expected }
    }

    #[track_caller]
    fn done(&mut self, mover: MoverId, op: Op) {
        assert_eq!(self.node.call(mover, op).done(), Outcome::Done);
    }

    #[track_caller]
    fn fails(&mut self, mover: MoverId, op: Op, kind: FailureKind) {
        self.node.call(mover, op).fails_with(kind);
    }

    /// Moves and keeps what a run is told to be missing, and names the file.
    #[track_caller]
    fn finish(&mut self, part: Range<u64>) {
        let (mover, stored) = self.moved("source", part);
        self.done(mover, self.keep(stored));
        self.done(mover, self.commit());
        assert!(self.node.read("copy") == self.node.read("source"));
    }
}

#[track_caller]
fn opened(node: &mut Node, mover: MoverId) -> (Vec<u8>, Vec<Leaf>) {
    match node.call(mover, Op::OpenChunked(file())).done() {
        Outcome::Chunked { session, verified, .. } => (session, verified),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_was_kept_and_is_moved_again_is_not_proven_any_more() {
    let mut lab = Lab::new();
    let (first, stored) = lab.moved("source", 0..SIZE);
    lab.done(first, lab.keep(stored));
    assert_eq!(lab.found().len(), 4);
    // The answer was lost with the session; meanwhile the source has become another file, and comes back as it was.
    lab.node.send(&ToMover::Detach { mover: first });
    let (second, _) = lab.moved("other", 0..2 * L);
    assert_eq!(lab.found(), [2 * L..3 * L, 3 * L..SIZE]);
    lab.node.send(&ToMover::Detach { mover: second });
    let third = lab.node.attach();
    lab.fails(third, lab.commit(), FailureKind::Busy);
    assert!(!lab.node.names().contains(&"copy".to_owned()));
    lab.finish(0..2 * L);
}

#[test]
fn what_was_begun_again_and_holds_what_was_kept_is_read_and_named() {
    for heard in [false, true] {
        let mut lab = Lab::new();
        let movers = lab.node.pair(&extended(1));
        let stored = lab.move_over(movers, "source", 0..SIZE);
        lab.done(movers.1, lab.keep(stored));
        let second = match heard {
            // Nothing comes.
            false => lab.stuck(L..2 * L).1.0,
            true => {
                lab.move_over(movers, "source", L..2 * L);
                movers.1
            }
        };
        assert_eq!(lab.found(), [0..L, 2 * L..3 * L, 3 * L..SIZE]);
        lab.node.send(&ToMover::Detach { mover: second });
        let third = lab.node.attach();
        lab.done(third, lab.commit());
        assert!(lab.node.read("copy") == lab.node.read("source"));
    }
}

#[test]
fn a_proof_that_comes_after_another_session_began_says_only_what_is_to_be_there() {
    let mut lab = Lab::new();
    let (first, stored) = lab.moved("source", 0..SIZE);
    let (second, wrong) = lab.moved("other", L..2 * L);
    assert_ne!(stored[1], wrong[0]);
    lab.done(first, lab.keep(stored));
    assert_eq!(lab.found(), [0..L, 2 * L..3 * L, 3 * L..SIZE]);
    lab.fails(first, lab.commit(), FailureKind::Busy);
    lab.node.send(&ToMover::Detach { mover: second });
    lab.finish(L..2 * L);
}

#[test]
fn a_commit_waits_for_a_session_that_was_given_up_and_may_still_write() {
    let mut lab = Lab::new();
    let (_, late) = lab.stuck(0..L);
    let (next, stored) = lab.moved("source", 0..SIZE);
    lab.done(next, lab.keep(stored));
    assert_eq!(lab.found().len(), 3, "its last bytes may come");
    let commit = lab.commit();
    let committing = lab.node.run(next, commit);
    lab.node.abort(late);
    lab.node.wait(late).fails_with(FailureKind::Aborted);
    assert_eq!(lab.node.wait(committing).done(), Outcome::Done);
    assert!(lab.node.read("copy") == lab.node.read("source"));
}

#[test]
fn what_comes_late_and_wrong_gets_no_name() {
    let mut lab = Lab::new();
    let (sender, late) = lab.stuck(0..L);
    let (next, stored) = lab.moved("source", 0..SIZE);
    lab.done(next, lab.keep(stored));
    let commit = lab.commit();
    let committing = lab.node.run(next, commit);
    // As a sender goes on for a while whose client has given up.
    lab.node.call(sender, Op::Send(SendSpec { length: Some(L), ..send("other") })).done();
    lab.node.wait(late).done();
    lab.node.wait(committing).fails_with(FailureKind::Busy);
    lab.finish(0..L);
}

#[test]
fn a_commit_waits_for_a_run_that_copies_the_same_and_names_what_both_have_written() {
    let mut lab = Lab::new();
    let (source, receiving) = lab.stuck(0..SIZE);
    let first = receiving.0;
    let (second, stored) = lab.moved("source", 0..SIZE);
    lab.done(second, lab.keep(stored.clone()));
    let commit = lab.commit();
    let committing = lab.node.run(second, commit);
    lab.node.call(source, Op::Send(SendSpec { length: Some(SIZE), ..send("source") })).done();
    lab.node.wait(receiving).done();
    assert_eq!(lab.node.wait(committing).done(), Outcome::Done);
    // Its journal is gone, and with it what could contradict this one's.
    lab.fails(first, lab.keep(stored), FailureKind::NotFound);
    lab.done(first, lab.commit());
    assert!(lab.node.read("copy") == lab.node.read("source"));
    assert_eq!(lab.node.names(), ["copy", "other", "source"]);
}

//! What a mover tells its front: notices collected, outcomes sent, in as few writes as possible.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use whimbrel_engine::RangeSet;
use whimbrel_proto::op::{Failure, FailureKind, Notice, OpId, Outcome, Spent};
use whimbrel_transport::Progress;

use super::codec;
use super::message::{FromMover, MoverId, Stripe};
use super::outlet::Outlet;
use super::ticker::Tick;

/// Most ranges in one notice; more go out as several.
const RANGES_PER_NOTICE: usize = 1024;

/// Collects messages of one mover's operations; used by the mover's own thread.
pub struct Reporter {
    outlet: Arc<Outlet>,
    mover: MoverId,
    id: OpId,
    frames: Vec<u8>,
}

impl Reporter {
    /// A reporter without an operation yet.
    pub fn new(outlet: Arc<Outlet>, mover: MoverId) -> Self {
        Self { outlet, mover, id: OpId(0), frames: Vec::new() }
    }

    /// From now on messages are about `id`.
    pub fn start(&mut self, id: OpId) {
        self.id = id;
    }

    /// The mover and operation that messages are about.
    pub fn about(&self) -> (MoverId, OpId) {
        (self.mover, self.id)
    }

    /// Another handle to the stream, for other threads.
    pub fn outlet(&self) -> Arc<Outlet> {
        self.outlet.clone()
    }

    /// Adds a notice; it goes out with the next [`Reporter::flush`].
    pub fn notice(&mut self, notice: Notice) {
        let (mover, id) = self.about();
        self.message(&FromMover::Notice { mover, id, notice });
    }

    /// Adds the outcome and sends everything.
    pub fn outcome(&mut self, outcome: Outcome) {
        let (mover, id) = self.about();
        self.message(&FromMover::Outcome { mover, id, outcome });
        self.flush();
    }

    /// Adds any message.
    pub fn message(&mut self, message: &FromMover) {
        encode(message, &mut self.frames);
    }

    /// Sends what was added.
    pub fn flush(&mut self) {
        if !self.frames.is_empty() {
            self.outlet.send(&self.frames);
            self.frames.clear();
        }
    }
}

/// Adds a message to `frames`; an outcome that cannot be sent must still be answered.
fn encode(message: &FromMover, frames: &mut Vec<u8>) {
    let Err(error) = codec::encode(message, frames) else {
        return;
    };
    tracing::error!(%error, "a message to the front is too long");
    let (FromMover::Outcome { mover, id, .. } | FromMover::Received { mover, id, .. }) = *message else {
        return;
    };
    let failure = Failure { kind: FailureKind::Other, text: "the answer is too long".to_owned(), checksums: None };
    let outcome = Outcome::Failed(failure);
    codec::encode(&FromMover::Outcome { mover, id, outcome }, frames).expect("a short message fits a frame");
}

/// The frames of an outcome and of where its time went, for those who answer later.
pub fn last_frames(mover: MoverId, id: OpId, spent: Option<Spent>, outcome: Outcome) -> Vec<u8> {
    let mut frames = Vec::new();
    if let Some(spent) = spent {
        encode(&FromMover::Notice { mover, id, notice: Notice::Spent(Box::new(spent)) }, &mut frames);
    }
    encode(&FromMover::Outcome { mover, id, outcome }, &mut frames);
    frames
}

/// Milliseconds since 1970-01-01 UTC.
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |d| d.as_millis() as u64)
}

/// A performance notice with what was moved up to now.
pub fn performance(stripe: Stripe, progress: &Progress) -> Notice {
    Notice::Performance { stripe: stripe.index, stripes: stripe.count, bytes: progress.bytes(), at_ms: now_ms() }
}

/// Range notices for `ranges`, none when empty.
pub fn range_notices(ranges: &RangeSet) -> impl Iterator<Item = Notice> + '_ {
    ranges.as_slice().chunks(RANGES_PER_NOTICE).map(|chunk| Notice::Ranges(chunk.to_vec()))
}

/// Sends notices at intervals until closed; nothing of it goes out after [`Periodic::close`].
pub struct Periodic<F> {
    outlet: Arc<Outlet>,
    mover: MoverId,
    id: OpId,
    source: Mutex<Option<F>>,
}

impl<F: FnMut() -> Vec<Notice> + Send> Periodic<F> {
    /// Sends what `source` returns under the operation that `reporter` is about.
    pub fn new(reporter: &Reporter, source: F) -> Arc<Self> {
        let (mover, id) = reporter.about();
        Arc::new(Self { outlet: reporter.outlet(), mover, id, source: Mutex::new(Some(source)) })
    }

    /// Ends it; waits for a notice that is being sent. The source comes back for a last use.
    pub fn close(&self) -> Option<F> {
        self.lock().take()
    }

    fn lock(&self) -> MutexGuard<'_, Option<F>> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<F: FnMut() -> Vec<Notice> + Send> Tick for Periodic<F> {
    fn tick(&self) -> bool {
        // Held while sending, so that closing means that no notice follows the outcome.
        let mut source = self.lock();
        let Some(source) = source.as_mut() else {
            return false;
        };
        let mut frames = Vec::new();
        for notice in source() {
            let (mover, id) = (self.mover, self.id);
            let message = FromMover::Notice { mover, id, notice };
            codec::encode(&message, &mut frames).expect("notices at intervals are short");
        }
        if !frames.is_empty() {
            self.outlet.send(&frames);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::super::codec::{FrameReader, FrameWriter};
    use super::*;

    fn pair() -> (Reporter, FrameReader<UnixStream, FromMover>) {
        let (near, far) = UnixStream::pair().unwrap();
        let reporter = Reporter::new(Outlet::new(FrameWriter::new(near)), MoverId(3));
        (reporter, FrameReader::new(far))
    }

    #[test]
    fn an_answer_too_long_for_a_frame_becomes_a_failure() {
        let (mut reporter, mut reader) = pair();
        reporter.start(OpId(4));
        reporter.outcome(Outcome::Line(vec![b'x'; 2 << 20]));
        match reader.read().unwrap() {
            Some(FromMover::Outcome { mover, id, outcome }) => {
                assert_eq!((mover, id), (MoverId(3), OpId(4)));
                assert!(matches!(outcome, Outcome::Failed(_)));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_closed_periodic_sends_nothing() {
        let (reporter, mut reader) = pair();
        let periodic = Periodic::new(&reporter, || vec![Notice::Ranges(Vec::new())]);
        assert!(periodic.tick());
        assert!(matches!(reader.read().unwrap(), Some(FromMover::Notice { .. })));
        assert!(periodic.close().is_some());
        assert!(!periodic.tick());
        drop((periodic, reporter));
        assert_eq!(reader.read().unwrap(), None);
    }

    #[test]
    fn long_range_sets_are_split() {
        let set: RangeSet = (0..3000u64).map(|n| n * 10..n * 10 + 1).collect();
        let sizes: Vec<usize> = range_notices(&set)
            .map(|notice| match notice {
                Notice::Ranges(ranges) => ranges.len(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(sizes, [1024, 1024, 952]);
    }
}

//! What sending and receiving have in common: counting, notices at intervals, the transfer log.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use whimbrel_engine::RangeSet;
use whimbrel_proto::op::{Mode, Notice};
use whimbrel_transport::{Flow, Progress, StallPolicy};

use super::log::Record;
use super::report::{self, Periodic};
use super::session::Handle;
use super::stats::Way;
use super::ticker::{Ticker, Ticking};
use super::worker::Task;

/// Parts up to this size fit an idle connection's send buffer, so that nobody waits: news about
/// them can go out together with their outcome.
pub const AT_ONE_STROKE: u64 = 32 << 10;

/// A transfer that counts as running.
pub struct Transfer {
    /// What was moved.
    pub progress: Arc<Progress>,
    way: Way,
    kind: &'static str,
    path: Vec<u8>,
    began: SystemTime,
    streams: usize,
    peer: Option<std::net::IpAddr>,
    buffer: u32,
}

impl Transfer {
    /// Counts a transfer from now on; `kind` is the command as logs name it, `expected` the bytes to move where known.
    pub fn begin(task: &Task<'_>, way: Way, kind: &'static str, path: &[u8], expected: Option<u64>) -> Self {
        // Shares of a file have no leaves, for which alone a list of all ranges is kept.
        let progress = Arc::new(if task.stripe.count > 1 { Progress::of_share() } else { Progress::new() });
        task.node.transfer_begins(way, kind, expected, &progress);
        Self { progress, way, kind, path: path.to_vec(), began: SystemTime::now(), streams: 1, peer: None, buffer: 0 }
    }

    /// The surroundings of this transfer's loops.
    pub fn flow<'a>(&'a self, task: &'a Task<'_>) -> Flow<'a> {
        Flow {
            rate: task.node.rate(self.way),
            stall: Some(StallPolicy::silent_for(task.node.settings.stall_timeout)),
            threads: task.node.processors,
            ..Flow::new(&task.node.pool, &self.progress, task.cancel)
        }
    }

    /// The same for what passes beside the file: nothing of it is counted.
    pub fn aside(&self) -> Self {
        let (progress, path) = (Arc::new(Progress::new()), self.path.clone());
        Self { progress, path, ..*self }
    }

    /// Remembers the network side for the log.
    pub fn used(&mut self, handle: &Handle) {
        self.streams = match handle.params.mode {
            Mode::Stream => 1,
            Mode::Extended => handle.connections().max(1),
        };
        self.peer = handle.peer().map(|addr| addr.ip());
        let buffer = match self.way {
            Way::In => handle.params.receive_buffer,
            Way::Out => handle.params.send_buffer,
        };
        self.buffer = buffer.unwrap_or(0);
    }

    /// Remembers the other end of a stream for the log.
    pub fn met(&mut self, peer: Option<std::net::SocketAddr>) {
        self.peer = peer.map(|addr| addr.ip()).or(self.peer);
    }

    /// Ends counting and writes the log.
    pub fn end(self, task: &Task<'_>, went_well: bool) {
        task.node.transfer_ends(&self.progress, went_well);
        if task.node.log.is_on() {
            self.log(task, &self.path, self.progress.bytes(), went_well);
        }
    }

    /// As [`Transfer::end`] for a pack, with a line for each of its files: path, bytes, whether it came through.
    pub fn end_pack<'a>(self, task: &Task<'_>, went_well: bool, files: impl Iterator<Item = (&'a [u8], u64, bool)>) {
        task.node.transfer_ends(&self.progress, went_well);
        if task.node.log.is_on() {
            for (path, bytes, came) in files {
                self.log(task, path, if came { bytes } else { 0 }, came && went_well);
            }
        }
    }

    fn log(&self, task: &Task<'_>, path: &[u8], bytes: u64, went_well: bool) {
        task.node.log.write(&Record {
            began: self.began,
            ended: SystemTime::now(),
            user: task.context.user(),
            path,
            buffer: self.buffer,
            block: task.node.pool.buffer_size(),
            bytes,
            streams: self.streams,
            stripes: usize::from(task.stripe.count),
            peer: self.peer,
            kind: self.kind,
            code: if went_well { 226 } else { 500 },
            task: task.context.task(),
            client: task.context.client(),
        });
    }
}

type Source = Box<dyn FnMut() -> Vec<Notice> + Send>;

/// Notices at an interval that end, with a last one, before the outcome.
pub struct Markers {
    /// Dropped first: no tick is scheduled while the last notices are made.
    _ticking: Option<Ticking>,
    periodic: Option<Arc<Periodic<Source>>>,
}

impl Markers {
    /// Performance notices (112): one now, one at each interval, one at the end.
    pub fn performance(task: &mut Task<'_>, interval: Option<Duration>, progress: &Arc<Progress>) -> Self {
        let Some(interval) = interval else {
            return Self::none();
        };
        let (stripe, progress) = (task.stripe, progress.clone());
        task.reporter.notice(report::performance(stripe, &progress));
        Self::every(task, &task.node.ticker, interval, move || vec![report::performance(stripe, &progress)])
    }

    /// Performance notices that say once more what has come, while it is read again before its outcome: who waits for that is not to give up.
    pub fn again(task: &Task<'_>, interval: Option<Duration>, bytes: u64) -> Self {
        let Some(interval) = interval else {
            return Self::none();
        };
        let (stripe, stripes) = (task.stripe.index, task.stripe.count);
        let once_more = move || vec![Notice::Performance { stripe, stripes, bytes, at_ms: report::now_ms() }];
        Self::every(task, &task.node.ticker, interval, once_more)
    }

    /// Range notices (111): at each interval what is new, and at the end the rest.
    ///
    /// `flushes`: `news` may take long, so these run on a thread of their own.
    pub fn ranges(
        task: &Task<'_>,
        interval: Option<Duration>,
        flushes: bool,
        mut news: impl FnMut() -> RangeSet + Send + 'static,
    ) -> Self {
        let Some(interval) = interval else {
            return Self::none();
        };
        let ticker = match flushes {
            true => &task.node.flusher,
            false => &task.node.ticker,
        };
        Self::every(task, ticker, interval, move || report::range_notices(&news()).collect())
    }

    fn every(
        task: &Task<'_>,
        ticker: &Ticker,
        interval: Duration,
        source: impl FnMut() -> Vec<Notice> + Send + 'static,
    ) -> Self {
        let periodic = Periodic::new(task.reporter, Box::new(source) as Source);
        Self { _ticking: Some(ticker.every(interval, periodic.clone())), periodic: Some(periodic) }
    }

    fn none() -> Self {
        Self { _ticking: None, periodic: None }
    }

    /// Ends the series with its last notices.
    pub fn end(self, task: &mut Task<'_>) {
        let source = self.periodic.as_ref().and_then(|periodic| periodic.close());
        for notice in source.map(|mut source| source()).unwrap_or_default() {
            task.reporter.notice(notice);
        }
    }
}

impl Drop for Markers {
    fn drop(&mut self) {
        // Whatever path leads here: nothing may follow the outcome.
        if let Some(periodic) = &self.periodic {
            drop(periodic.close());
        }
    }
}

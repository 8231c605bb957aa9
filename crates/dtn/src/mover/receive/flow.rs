//! What comes over the data handle, and what is told of it meanwhile.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use whimbrel_connector::WriteAt;
use whimbrel_engine::{Fault, RangeSet};
use whimbrel_proto::op::{Mode, Notice, ReceiveSpec, WriteKind};
use whimbrel_transport::mode_e::{self, Admission, ReceiveJob};
use whimbrel_transport::mode_s::{self, Representation, StreamReceive};
use whimbrel_transport::{Activity, BlockSink, Progress};

use super::file::File;
use super::{MAX_OFFSET, behind, expected};
use crate::mover::dial::{self, in_parallel};
use crate::mover::failure::Problem;
use crate::mover::session::{Handle, Rendezvous};
use crate::mover::spent;
use crate::mover::stats::Way;
use crate::mover::transfer::{Markers, Transfer};
use crate::mover::voucher;
use crate::mover::worker::Task;

/// Storage as the network side writes it.
struct Sink<'a>(&'a dyn WriteAt);

impl BlockSink for Sink<'_> {
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), Fault> {
        self.0.write_at(offset, data)
    }
}

impl File {
    /// Receives the data, with all that belongs to a transfer; bytes received, and where they are.
    pub(super) fn fill(&mut self, task: &mut Task<'_>, spec: &ReceiveSpec) -> Result<(u64, RangeSet), Problem> {
        let kind = match spec.write {
            WriteKind::Adjusted { .. } | WriteKind::Chunk { .. } => "ESTO",
            WriteKind::Append => "APPE",
            _ => "STOR",
        };
        let mut transfer = Transfer::begin(task, Way::In, kind, self.session.path.as_bytes(), expected(spec));
        let result = self.fill_over_handle(task, spec, &mut transfer).and(self.hand_over(spec, &transfer));
        spent::tell(task, &transfer.progress);
        let bytes = transfer.progress.bytes();
        let written = if spec.leaves.is_some() { transfer.progress.ranges() } else { RangeSet::new() };
        task.session.release(Way::In, result.is_ok(), bytes);
        transfer.end(task, result.is_ok());
        if result.is_err() && bytes == 0 && task.stripe.count == 1 && self.may_be_new(spec) {
            // Nothing that a restart could use; a file that was there before is left as it is.
            task.node.connector.abandon(&self.session)?;
        }
        result.map(|()| (bytes, written))
    }

    /// What came is the storage's before anybody is told of it, also after a fault: who goes on may be another process.
    fn hand_over(&self, spec: &ReceiveSpec, transfer: &Transfer) -> Result<(), Problem> {
        if !self.writer.is_past_cache() {
            // There is hardly anything to do, or nothing, which is not worth measuring for each small file.
            return Ok(self.writer.settle(self.part(spec))?);
        }
        let times = transfer.progress.times();
        let _working = times.on_thread();
        Ok(times.timed(Activity::Storage, || self.writer.settle(self.part(spec)))?)
    }

    pub(super) fn fill_over_handle(
        &mut self,
        task: &mut Task<'_>,
        spec: &ReceiveSpec,
        transfer: &mut Transfer,
    ) -> Result<(), Problem> {
        let mut handle = task.session.take()?;
        let unique_name = self.unique_name.take();
        task.reporter.notice(Notice::Opened { reused: handle.reused(), unique_name });
        let performance = Markers::performance(task, spec.performance_interval, &transfer.progress);
        // The peer may wait for this before it sends anything.
        task.reporter.flush();
        // Movers of one process share the writer of a file in chunks, and with it what is durable.
        let told = handle.params.mode == Mode::Extended && !spec.is_chunk();
        let interval = spec.range_interval.filter(|_| told);
        let durable = task.node.keeps_durable(spec.durable);
        let ranges = Markers::ranges(task, interval, durable, self.news(durable, &transfer.progress));
        let behind = behind::store(task, spec, &self.writer, &transfer.progress);
        let received = match handle.params.mode {
            Mode::Stream => self.stream(task, &handle, spec, transfer),
            Mode::Extended => self.extended(task, &mut handle, spec, transfer),
        };
        drop(behind);
        task.session.put_back(handle);
        performance.end(task);
        if durable {
            // What is told last is made durable first.
            let times = transfer.progress.times();
            let _working = times.on_thread();
            times.timed(Activity::Storage, || ranges.end(task));
        } else {
            ranges.end(task);
        }
        Ok(received?)
    }

    /// What a range notice may tell at any time: what is new since the last, in wire offsets; if `durable`, of what survives a crash.
    fn news(&self, durable: bool, progress: &Arc<Progress>) -> impl FnMut() -> RangeSet + Send + 'static {
        let (progress, writer, origin) = (progress.clone(), self.writer.clone(), self.origin);
        let told = Mutex::new(RangeSet::new());
        move || {
            let new = match durable {
                false => settled_news(writer.as_ref(), &progress),
                true => durable_news(writer.as_ref(), &mut told.lock().unwrap_or_else(PoisonError::into_inner)),
            };
            let shifted = new.as_slice().iter().map(|r| r.start.saturating_sub(origin)..r.end.saturating_sub(origin));
            shifted.collect()
        }
    }

    fn stream(
        &self,
        task: &Task<'_>,
        handle: &Handle,
        spec: &ReceiveSpec,
        transfer: &mut Transfer,
    ) -> Result<(), Fault> {
        let representation = match spec.ascii {
            true => Representation::Ascii,
            false => Representation::Image,
        };
        let listening = matches!(handle.rendezvous, Rendezvous::Listen(_));
        loop {
            let mut channel = dial::stream(task, handle)?;
            transfer.met(channel.peer_addr());
            let job = StreamReceive {
                sink: &Sink(self.writer.as_ref()),
                offset: self.start,
                limit: Some((MAX_OFFSET - self.start).min(self.window(spec))),
                representation,
                flow: transfer.flow(task),
            };
            let bytes = mode_s::receive(&job, channel.as_mut())?;
            // A port scan opens and closes: where bytes are announced, that is no empty file.
            if bytes > 0 || !listening || spec.expected_size.is_none_or(|size| size == 0) {
                return Ok(());
            }
            tracing::warn!(peer = ?channel.peer_addr(), "data connection without data ignored");
        }
    }

    fn extended(
        &mut self,
        task: &Task<'_>,
        handle: &mut Handle,
        spec: &ReceiveSpec,
        transfer: &mut Transfer,
    ) -> Result<(), Fault> {
        let sink = Sink(self.writer.as_ref());
        blocks(task, handle, &sink, 0..self.window(spec), self.origin, transfer)?;
        if spec.leaves.as_ref().is_some_and(|leaves| leaves.vouched) {
            self.voucher = Some(voucher::hear(task, handle, voucher::MOST, transfer)?);
        }
        Ok(())
    }
}

/// MODE E: receives into `sink` what lies in `bound` of the wire's offsets, moved by `origin`.
pub fn blocks(
    task: &Task<'_>,
    handle: &mut Handle,
    sink: &dyn BlockSink,
    bound: Range<u64>,
    origin: u64,
    transfer: &mut Transfer,
) -> Result<(), Fault> {
    let lanes: Vec<usize> = match handle.rendezvous {
        Rendezvous::Connect => handle.receives_from(task.stripe),
        Rendezvous::Listen(_) => vec![0],
    };
    if matches!(handle.rendezvous, Rendezvous::Connect) {
        dial::connect_lanes(task, handle, &lanes, true)?;
    }
    transfer.used(handle);
    let Handle { params, rendezvous, lanes: all, .. } = handle;
    let timeout = task.node.settings.connect_timeout;
    let admission = match rendezvous {
        Rendezvous::Listen(listener) => {
            Admission { listener: Some(listener), nonce: params.nonce, timeout, ..Admission::default() }
        }
        Rendezvous::Connect => Admission { timeout, ..Admission::default() },
    };
    // Each address is a sender with an end of file of its own.
    let mut parts: Vec<_> = all.iter_mut().enumerate().filter(|(lane, _)| lanes.contains(lane)).collect();
    let flow = transfer.flow(task);
    in_parallel(&mut parts, |(_, lane)| {
        let job = ReceiveJob { sink, bound: bound.clone(), origin, admission, flow };
        mode_e::receive(&job, &mut lane.connections).map(drop)
    })?;
    transfer.used(handle);
    Ok(())
}

/// What came since the last call, and outlives this process.
fn settled_news(writer: &dyn WriteAt, progress: &Progress) -> RangeSet {
    let news = progress.take_new();
    match writer.settle(0..u64::MAX) {
        Ok(()) => news,
        Err(fault) => {
            tracing::warn!(%fault, "ranges cannot be stored");
            RangeSet::new()
        }
    }
}

/// What became durable since the last call.
fn durable_news(writer: &dyn WriteAt, told: &mut RangeSet) -> RangeSet {
    let durable = writer.sync().and_then(|()| writer.durable());
    let durable = match durable {
        Ok(durable) => durable,
        Err(fault) => {
            // Nothing is promised; the end of the transfer will fail for the same reason.
            tracing::warn!(%fault, "ranges cannot be made durable");
            return RangeSet::new();
        }
    };
    let mut news = durable.clone();
    news.subtract(told);
    *told = durable;
    news
}

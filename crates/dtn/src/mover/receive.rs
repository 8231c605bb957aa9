//! Receiving files over the data handle (STOR, ESTO, APPE, STOU, PUT).
//!
//! begin, join, write, finish, commit: only the commit gives the file its name. What a failed
//! receive has stored stays for a restart, unless it stored nothing or its checksum is wrong.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use whimbrel_connector::{Attributes, Connector, Disposition, Follow, Kind, Receipt, StoragePath};
use whimbrel_connector::{WriteAt, WriteIntent, WriteSession};
use whimbrel_engine::{Fault, FaultCode, RangeSet, Side};
use whimbrel_proto::op::{LeafSpec, Mode, Notice, Outcome, ReceiveSpec, WriteKind};
use whimbrel_transport::mode_e::{self, Admission, ReceiveJob};
use whimbrel_transport::mode_s::{self, Representation, StreamReceive};
use whimbrel_transport::{Activity, BlockSink, Cancel, Progress, Times, digest};

use super::chunk;
use super::command::{permission_bits, resolve, timestamp};
use super::dial::{self, in_parallel};
use super::failure::Problem;
use super::finisher::Later;
use super::holes;
use super::leaves::{self, Proving, Stored};
use super::message::FromMover;
use super::node::Node;
use super::session::{Handle, Rendezvous};
use super::spent;
use super::stats::Way;
use super::transfer::{Markers, Transfer};
use super::worker::Task;

/// Largest file offset the systems here can address.
const MAX_OFFSET: u64 = i64::MAX as u64;

/// Receives with leaves up to this size are finished at once; longer ones while the next data come in.
const FINISHED_AT_ONCE: u64 = 1 << 20;

/// Names tried for STOU.
const UNIQUE_ATTEMPTS: u32 = 10_000;

/// Most ranges of a receipt that a node tells: of the longest, 200 KB of a message.
const TOLD_RANGES: usize = 10_000;

/// Storage as the network side writes it.
struct Sink<'a>(&'a dyn WriteAt);

impl BlockSink for Sink<'_> {
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), Fault> {
        self.0.write_at(offset, data)
    }
}

/// Receives a file; with `joined` another node has begun it. `None`: the answer is sent already.
pub fn run(task: &mut Task<'_>, spec: &ReceiveSpec, joined: Option<&WriteSession>) -> Result<Option<Outcome>, Problem> {
    let is_stream = task.session.acquire(Way::In)?.params.mode == Mode::Stream;
    let striped = task.stripe.count > 1;
    if striped && spec.write == WriteKind::Append {
        let fault = Fault::new(FaultCode::NotSupported, "append over several nodes");
        return Err(fault.into());
    }
    check_promises(spec)?;
    if striped && (spec.leaves.is_some() || spec.is_chunk()) {
        return Err(leaves::unsupported("a file spread over several nodes has no leaves").into());
    }
    let mut file = match joined {
        Some(session) => File::join(task.node, spec, session)?,
        None => File::begin(task.node, spec)?,
    };
    if striped && joined.is_none() {
        let (mover, id) = task.reporter.about();
        let session = Box::new(file.session.clone());
        task.reporter.message(&FromMover::Session { mover, id, session });
    }
    let gaps = file.may_have_gaps(task, spec)?;
    if gaps.is_none()
        && spec.is_chunk()
        && let Some(length) = spec.expected_size
    {
        // A full disk is known before data flow; what may stay a hole is not taken.
        file.writer.reserve(file.start..file.start.saturating_add(length))?;
    }
    let (bytes, mut written) = file.fill(task, spec).map_err(|problem| file.unless_lost(task.node, spec, problem))?;
    if is_stream && spec.leaves.is_some() && matches!(spec.write, WriteKind::Replace | WriteKind::Unique) {
        // A stream ends as well when its sender was killed; only clients of ours are known to announce what comes.
        came_whole(spec, bytes)?;
    }
    if let Some(mut expected) = gaps {
        if !spec.is_chunk() {
            // What was announced may not be so any more: the last byte that came is the file's.
            expected.end = written.end().max(expected.start);
            holes::clear_end(file.writer.as_ref(), &written)?;
        }
        holes::clear_gaps(file.writer.as_ref(), &written, expected.clone())?;
        file.writer.extend_to(expected.end)?;
        written.insert(expected);
    }
    if let Some(wanted) = &spec.leaves {
        return file.prove(task, spec, wanted, bytes, written);
    }
    if spec.is_chunk() {
        came_whole(spec, bytes)?;
        file.make_durable(task, spec, bytes);
        return Ok(None);
    }
    match striped {
        true => file.hand_in(task, spec, bytes).map(|()| None),
        false => {
            let node = task.node.clone();
            file.complete(&node, spec, task.cancel)?;
            Ok(Some(Outcome::moved(bytes)))
        }
    }
}

/// What fits a message, however large the node's share was: of very many ranges only where they begin and end, which is what
/// a commit asks.
fn short(receipt: Receipt) -> Receipt {
    match receipt.written.as_slice() {
        [first, .., last] if receipt.written.as_slice().len() > TOLD_RANGES => {
            Receipt { written: RangeSet::from(first.start..last.end), ..receipt }
        }
        _ => receipt,
    }
}

/// Of a part that nothing proves, its bytes must at least have come: its client will record that they did.
fn came_whole(spec: &ReceiveSpec, bytes: u64) -> Result<(), Fault> {
    let missing = spec.expected_size.unwrap_or(0).saturating_sub(bytes);
    if missing == 0 {
        return Ok(());
    }
    Err(Fault::new(FaultCode::SourceChanged, "receive a chunk")
        .on_path(&spec.path)
        .side(Side::Source)
        .detail(format!("it ended {missing} bytes early")))
}

/// Receives what a sender measures with; the caller ends the transfer.
pub fn measured(
    task: &mut Task<'_>,
    writer: Arc<dyn WriteAt>,
    interval: Option<std::time::Duration>,
    transfer: &mut Transfer,
) -> Result<(), Problem> {
    let spec = ReceiveSpec { performance_interval: interval, ..ReceiveSpec::of(Vec::new()) };
    let session = WriteSession::nowhere();
    let mut file = File { session, writer, origin: 0, start: 0, unique_name: None };
    file.fill_over_handle(task, &spec, transfer)
}

/// What could only fail at the end is refused before anything is moved.
fn check_promises(spec: &ReceiveSpec) -> Result<(), Fault> {
    if let Some((seconds, nanoseconds)) = spec.modified {
        timestamp(seconds, nanoseconds)?;
    }
    spec.mode.map(permission_bits).transpose()?;
    if let Some((algorithm, _)) = &spec.expected_checksum {
        algorithm.parse::<digest::Algorithm>()?;
        if spec.is_chunk() {
            return Err(
                Fault::new(FaultCode::NotSupported, "receive a chunk").detail("a chunk is proven by its leaves")
            );
        }
    }
    let Some(wanted) = &spec.leaves else { return Ok(()) };
    if spec.ascii {
        return Err(leaves::unsupported("a text that is converted has no leaves"));
    }
    let digests = leaves::collector(wanted)?;
    expected(spec).map_or(Ok(()), |size| digests.check(&RangeSet::from(0..size)))
}

/// Completes a receive that several nodes carried out.
pub fn commit(
    node: &Node,
    spec: &ReceiveSpec,
    session: &WriteSession,
    receipts: &[Receipt],
    bytes: u64,
    cancel: &Cancel,
) -> Result<Outcome, Problem> {
    complete(node, spec, session, None, receipts, cancel)?;
    Ok(Outcome::moved(bytes))
}

/// Verifies, sets attributes, gives the file its name.
fn complete(
    node: &Node,
    spec: &ReceiveSpec,
    session: &WriteSession,
    writer: Option<&dyn WriteAt>,
    receipts: &[Receipt],
    cancel: &Cancel,
) -> Result<(), Problem> {
    if let Some(expected) = &spec.expected_checksum {
        let joined = match writer {
            Some(_) => None,
            None => Some(node.connector.join(session)?),
        };
        let writer = writer.or(joined.as_deref()).expect("joined when none was given");
        verify(node, session, writer, expected, cancel)?;
    }
    let modified = spec.modified.map(|(s, n)| timestamp(s, n)).transpose()?;
    let attributes = Attributes {
        modified,
        mode: spec.mode,
        size: final_size(spec, session, receipts),
        durable: node.keeps_durable(spec.durable),
        ..Attributes::default()
    };
    node.connector.commit(session, receipts, &attributes)?;
    Ok(())
}

/// Where a restarted file ends: an unfinished one may have a longer tail from an earlier attempt.
///
/// A file changed in place keeps its tail: restart is never destructive.
fn final_size(spec: &ReceiveSpec, session: &WriteSession, receipts: &[Receipt]) -> Option<u64> {
    let WriteKind::Restart { done } = &spec.write else {
        return None;
    };
    let written = receipts.iter().map(|receipt| receipt.written.end()).max().unwrap_or(0);
    let kept = done.iter().map(|range| range.end).max().unwrap_or(0);
    // A client may claim more than it sent: nothing is made up beyond what it can know.
    session.rename.then_some(written.max(kept)).filter(|&size| size <= MAX_OFFSET)
}

/// Compares with the announced checksum; a wrong file is thrown away.
fn verify(
    node: &Node,
    session: &WriteSession,
    writer: &dyn WriteAt,
    (algorithm, expected): &(String, String),
    cancel: &Cancel,
) -> Result<(), Problem> {
    let algorithm: digest::Algorithm = algorithm.parse()?;
    let progress = Progress::new();
    let source = Stored(writer);
    let computed = digest::hash_source(algorithm, &source, None, &node.pool, &progress, cancel)?;
    if computed.eq_ignore_ascii_case(expected.trim()) {
        return Ok(());
    }
    node.connector.abandon(session)?;
    Err(Problem::Checksum { computed, expected: expected.clone() })
}

/// A file being received.
struct File {
    session: WriteSession,
    writer: Arc<dyn WriteAt>,
    /// Added to wire offsets.
    origin: u64,
    /// Where a stream starts.
    start: u64,
    unique_name: Option<Vec<u8>>,
}

impl File {
    fn begin(node: &Node, spec: &ReceiveSpec) -> Result<Self, Fault> {
        if let WriteKind::Chunk { offset, session } = &spec.write {
            return Self::of_chunk(node, spec, *offset, session);
        }
        let connector = node.connector.as_ref();
        let mut path = resolve(&spec.path)?;
        if spec.write == WriteKind::Unique {
            path = unique(connector, &path)?;
        }
        let (disposition, size) = match &spec.write {
            WriteKind::Replace | WriteKind::Unique => (Disposition::Replace, spec.expected_size),
            WriteKind::Restart { .. } => (Disposition::Resume, spec.expected_size),
            WriteKind::Adjusted { .. } | WriteKind::Append => (Disposition::Update, None),
            WriteKind::Chunk { .. } => return Err(Fault::new(FaultCode::Internal, "receive a chunk")),
        };
        if let WriteKind::Adjusted { offset } = spec.write {
            check_offset(offset)?;
        }
        if let WriteKind::Restart { done } = &spec.write
            && spec.strict
        {
            is_there(connector, &path, done)?;
        }
        let intent = WriteIntent { disposition, size, length: spec.expected_size, mode: spec.mode };
        let session = connector.begin(&path, &intent)?;
        let mut file = Self::join(node, spec, &session)?;
        if spec.write == WriteKind::Append {
            let meta = connector.stat(&session.path, Follow::Yes)?;
            file.origin = if meta.kind == Kind::File { meta.size } else { 0 };
            file.start = file.origin;
        }
        if spec.write == WriteKind::Unique {
            file.unique_name = Some(file.session.path.as_bytes().to_vec());
        }
        Ok(file)
    }

    /// A part of an unfinished file, which lies inside the whole.
    fn of_chunk(node: &Node, spec: &ReceiveSpec, offset: u64, session: &[u8]) -> Result<Self, Fault> {
        let (session, writer) = chunk::join(node, &spec.path, session)?;
        let size = session.size.unwrap_or(MAX_OFFSET);
        let end = offset.checked_add(spec.expected_size.unwrap_or(0));
        if end.is_none_or(|end| end > size) {
            let fault = Fault::new(FaultCode::InvalidArgument, "receive a chunk").on_path(&spec.path);
            return Err(fault.detail(format!("it would end beyond the file's {size} bytes")));
        }
        Ok(Self { session, writer, origin: offset, start: offset, unique_name: None })
    }

    fn join(node: &Node, spec: &ReceiveSpec, session: &WriteSession) -> Result<Self, Fault> {
        let (origin, start) = match &spec.write {
            WriteKind::Adjusted { offset } | WriteKind::Chunk { offset, .. } => (check_offset(*offset)?, *offset),
            WriteKind::Restart { done } => (0, done.first().map_or(Ok(0), |range| check_offset(range.end))?),
            WriteKind::Replace | WriteKind::Unique | WriteKind::Append => (0, 0),
        };
        Ok(Self { writer: node.connector.join(session)?, session: session.clone(), origin, start, unique_name: None })
    }

    /// The bytes of which some may be left out because they are holes of the source: the digests of both ends cover them.
    ///
    /// Only where the length was announced and gaps can be told from an end: in MODE E.
    fn may_have_gaps(&self, task: &mut Task<'_>, spec: &ReceiveSpec) -> Result<Option<Range<u64>>, Problem> {
        let wanted = spec.leaves.as_ref().is_some_and(|leaves| leaves.holes);
        let whole = matches!(spec.write, WriteKind::Replace | WriteKind::Unique | WriteKind::Chunk { .. });
        if !wanted || !whole || task.session.acquire(Way::In)?.params.mode != Mode::Extended {
            return Ok(None);
        }
        Ok(spec.expected_size.map(|size| self.start..self.start.saturating_add(size)))
    }

    /// Most bytes that may come, in wire offsets: what was announced, where leaves or a chunk are.
    fn window(&self, spec: &ReceiveSpec) -> u64 {
        let whole = match &spec.write {
            WriteKind::Chunk { .. } => self.session.size.unwrap_or(MAX_OFFSET),
            _ => MAX_OFFSET,
        };
        let announced = match &spec.write {
            WriteKind::Chunk { .. } => spec.expected_size,
            WriteKind::Adjusted { .. } => spec.expected_size.filter(|_| spec.leaves.is_some()),
            _ => None,
        };
        (whole - self.origin.min(whole)).min(announced.unwrap_or(u64::MAX))
    }

    /// What a client will record as arrived must survive a crash; the next data come in meanwhile.
    fn make_durable(self, task: &mut Task<'_>, spec: &ReceiveSpec, bytes: u64) {
        let times = Arc::<Times>::default();
        let counted = times.clone();
        let part = self.part(spec);
        let work = move |_: &Cancel| {
            let _working = counted.on_thread();
            counted.timed(Activity::Storage, || self.writer.sync_range(part))?;
            Ok(Outcome::moved(bytes))
        };
        *task.later = Some(Later { path: spec.path.clone(), work: Box::new(work), times });
    }

    /// Reads back what was stored, before it gets its name; long ones while the next data come in.
    fn prove(
        self,
        task: &mut Task<'_>,
        spec: &ReceiveSpec,
        wanted: &LeafSpec,
        bytes: u64,
        written: RangeSet,
    ) -> Result<Option<Outcome>, Problem> {
        if !spec.is_chunk() && bytes <= FINISHED_AT_ONCE {
            let times = Times::default();
            let working = times.on_thread();
            let proving = Proving { times: &times, cancel: task.cancel };
            let outcome = self.finish(task.node, spec, wanted, bytes, &written, &proving);
            drop(working);
            spent::keep(task, &times);
            return outcome.map(Some);
        }
        let (node, spec, wanted, path) = (task.node.clone(), spec.clone(), wanted.clone(), spec.path.clone());
        let times = Arc::<Times>::default();
        let counted = times.clone();
        let work = move |cancel: &Cancel| {
            let _working = counted.on_thread();
            self.finish(&node, &spec, &wanted, bytes, &written, &Proving { times: &counted, cancel })
        };
        *task.later = Some(Later { path, work: Box::new(work), times });
        Ok(None)
    }

    /// Gives the file its name.
    fn complete(&self, node: &Node, spec: &ReceiveSpec, cancel: &Cancel) -> Result<(), Problem> {
        let receipt = self.writer.finish()?;
        let completed = complete(node, spec, &self.session, Some(self.writer.as_ref()), &[receipt], cancel);
        completed.map_err(|problem| self.unless_lost(node, spec, problem))
    }

    /// Tells of a node's share of a file, which another node may commit.
    fn hand_in(&self, task: &mut Task<'_>, spec: &ReceiveSpec, bytes: u64) -> Result<(), Problem> {
        if task.node.keeps_durable(spec.durable) {
            // That may be another host, which knows nothing of what this one still has in memory.
            self.writer.sync().map_err(|fault| self.unless_lost(task.node, spec, fault.into()))?;
        }
        let (mover, id) = task.reporter.about();
        let receipt = Box::new(short(self.writer.finish()?));
        task.reporter.message(&FromMover::Received { mover, id, bytes, receipt });
        Ok(())
    }

    /// What a failure is to the client. Where storage has lost what it had taken, nobody may go on with the file: the kernel
    /// tells that once, and the next sync of it would succeed (fsync(2)). Chunks are written again as a whole.
    fn unless_lost(&self, node: &Node, spec: &ReceiveSpec, problem: Problem) -> Problem {
        if self.writer.is_sound() || spec.is_chunk() {
            return problem;
        }
        if let Err(fault) = node.connector.abandon(&self.session) {
            return fault.into();
        }
        let fault = Fault::new(FaultCode::StorageBusy, "receive").on_path(&spec.path);
        fault.detail(format!("storage has lost what it had taken, and the file begins anew: {problem:?}")).into()
    }

    fn finish(
        self,
        node: &Node,
        spec: &ReceiveSpec,
        wanted: &LeafSpec,
        bytes: u64,
        written: &RangeSet,
        proving: &Proving<'_>,
    ) -> Result<Outcome, Problem> {
        let writer = self.writer.as_ref();
        let is_chunk = spec.is_chunk();
        // What a client will record as proven must survive a crash.
        if is_chunk || node.keeps_durable(spec.durable) {
            let synced = proving.times.timed(Activity::Storage, || writer.sync_range(self.part(spec)));
            synced.map_err(|fault| self.unless_lost(node, spec, fault.into()))?;
        }
        let read_from = spec.past_memory.then(|| leaves::forget(writer, written)).transpose()?;
        let leaves = leaves::read_back(node, writer, written, wanted, proving)?;
        if !is_chunk {
            proving.times.timed(Activity::Storage, || self.complete(node, spec, proving.cancel))?;
        }
        Ok(Outcome::Transferred { bytes, leaves, read_from })
    }

    /// Receives the data, with all that belongs to a transfer; bytes received, and where they are.
    fn fill(&mut self, task: &mut Task<'_>, spec: &ReceiveSpec) -> Result<(u64, RangeSet), Problem> {
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

    /// Where this operation may have written: other movers write elsewhere in a file in chunks.
    fn part(&self, spec: &ReceiveSpec) -> Range<u64> {
        match (&spec.write, spec.expected_size) {
            (WriteKind::Chunk { .. }, Some(length)) => self.start..self.start.saturating_add(length),
            _ => 0..u64::MAX,
        }
    }

    fn may_be_new(&self, spec: &ReceiveSpec) -> bool {
        !matches!(spec.write, WriteKind::Restart { .. } | WriteKind::Chunk { .. })
    }

    fn fill_over_handle(
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
        let ranges = Markers::ranges(task, interval, self.news(task.node, &transfer.progress));
        let received = match handle.params.mode {
            Mode::Stream => self.stream(task, &handle, spec, transfer),
            Mode::Extended => self.extended(task, &mut handle, spec, transfer),
        };
        task.session.put_back(handle);
        performance.end(task);
        if task.node.settings.sync_writes {
            // What is told last is made durable first.
            let times = transfer.progress.times();
            let _working = times.on_thread();
            times.timed(Activity::Storage, || ranges.end(task));
        } else {
            ranges.end(task);
        }
        Ok(received?)
    }

    /// What a range notice may tell at any time: what is new since the last, in wire offsets.
    fn news(&self, node: &Node, progress: &Arc<Progress>) -> impl FnMut() -> RangeSet + Send + 'static {
        let (progress, writer, origin) = (progress.clone(), self.writer.clone(), self.origin);
        let sync = node.settings.sync_writes;
        let told = Mutex::new(RangeSet::new());
        move || {
            let new = match sync {
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
        &self,
        task: &Task<'_>,
        handle: &mut Handle,
        spec: &ReceiveSpec,
        transfer: &mut Transfer,
    ) -> Result<(), Fault> {
        let sink = Sink(self.writer.as_ref());
        blocks(task, handle, &sink, 0..self.window(spec), self.origin, transfer)
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

/// Whether what a client says is there can be: a crash, or another writer, may have taken it, and zeros would stand in its place.
fn is_there(connector: &dyn Connector, path: &StoragePath, done: &[Range<u64>]) -> Result<(), Fault> {
    let told = done.iter().map(|range| range.end).max().unwrap_or(0);
    let found = match connector.unfinished(path)? {
        Some(meta) => meta.size,
        None => match connector.stat(path, Follow::Yes) {
            Ok(meta) if meta.kind == Kind::File => meta.size,
            // Devices and pipes have no length.
            Ok(_) => return Ok(()),
            Err(fault) if fault.code == FaultCode::NotFound => 0,
            Err(fault) => return Err(fault),
        },
    };
    if told <= found {
        return Ok(());
    }
    let fault = Fault::new(FaultCode::StorageBusy, "restart").on_path(path.as_bytes());
    Err(fault.detail(format!("{told} bytes are said to be there, and {found} are")))
}

/// Bytes that are to come, where they were announced.
fn expected(spec: &ReceiveSpec) -> Option<u64> {
    let done = match &spec.write {
        WriteKind::Restart { done } => done.iter().map(|range| range.end.saturating_sub(range.start)).sum(),
        _ => 0,
    };
    spec.expected_size.map(|size| size.saturating_sub(done))
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

fn check_offset(offset: u64) -> Result<u64, Fault> {
    if offset > MAX_OFFSET {
        let fault = Fault::new(FaultCode::InvalidArgument, "receive");
        return Err(fault.detail(format!("offset {offset} is beyond the largest file")));
    }
    Ok(offset)
}

/// A name near `path` that does not exist (RFC 959 §4.1.3, STOU).
fn unique(connector: &dyn Connector, path: &StoragePath) -> Result<StoragePath, Fault> {
    let bad = |error| super::failure::bad_path(&error, path.as_bytes());
    let base = match connector.stat(path, Follow::Yes) {
        Ok(meta) if meta.kind == Kind::Directory => path.join(b"file").map_err(bad)?,
        _ => path.clone(),
    };
    let (Some(directory), Some(name)) = (base.parent(), base.name()) else {
        return Err(Fault::new(FaultCode::IsADirectory, "find a unique name"));
    };
    for number in 0..UNIQUE_ATTEMPTS {
        let mut candidate = name.to_vec();
        if number > 0 {
            candidate.extend_from_slice(format!(".{number}").as_bytes());
        }
        let candidate = directory.join(&candidate).map_err(bad)?;
        match connector.stat(&candidate, Follow::No) {
            Err(fault) if fault.code == FaultCode::NotFound => return Ok(candidate),
            Err(fault) => return Err(fault),
            Ok(_) => {}
        }
    }
    Err(Fault::new(FaultCode::AlreadyExists, "find a unique name").on_path(base.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mover::codec;
    use crate::mover::message::{FromMover, MoverId};
    use whimbrel_proto::op::OpId;

    #[test]
    fn the_receipt_of_a_large_share_fits_a_message_and_tells_where_it_ends() {
        let blocks =
            |count: u64| (0..count).map(|block| (block << 41)..(block << 41) + (1 << 40)).collect::<RangeSet>();
        let told = |count| short(Receipt { written: blocks(count), token: vec![7] });
        assert_eq!(told(10_000).written, blocks(10_000));
        let large = told(200_000);
        assert_eq!((large.written.end(), large.token.as_slice()), (blocks(200_000).end(), &[7][..]));
        for count in [10_000, 200_000] {
            let message =
                FromMover::Received { mover: MoverId(1), id: OpId(1), bytes: u64::MAX, receipt: Box::new(told(count)) };
            assert!(codec::encode(&message, &mut Vec::new()).is_ok(), "{count}");
        }
    }
}

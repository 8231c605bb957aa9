//! A file being received: begun or joined, proven, handed in, completed.

use std::ops::Range;
use std::sync::Arc;

use whimbrel_connector::{Attributes, Connector, Disposition, Follow, Kind, Receipt, StoragePath};
use whimbrel_connector::{WriteAt, WriteIntent, WriteSession};
use whimbrel_engine::{Fault, FaultCode, RangeSet};
use whimbrel_proto::op::{LeafSpec, Mode, Outcome, ReceiveSpec, WriteKind};
use whimbrel_proto::ranges::from_beginning;
use whimbrel_transport::{Activity, Cancel, Times};

use super::{MAX_OFFSET, complete};
use crate::mover::chunk;
use crate::mover::command::resolve;
use crate::mover::failure::{self, Problem};
use crate::mover::finisher::Later;
use crate::mover::leaves::{self, Proving};
use crate::mover::message::FromMover;
use crate::mover::node::Node;
use crate::mover::spent;
use crate::mover::stats::Way;
use crate::mover::voucher;
use crate::mover::worker::Task;

/// Receives with leaves up to this size are finished at once; longer ones while the next data come in.
const FINISHED_AT_ONCE: u64 = 1 << 20;

/// Names tried for STOU.
const UNIQUE_ATTEMPTS: u32 = 10_000;

/// Most ranges of a receipt that a node tells: of the longest, 200 KB of a message.
const TOLD_RANGES: usize = 10_000;

/// A file being received.
pub(super) struct File {
    pub(super) session: WriteSession,
    pub(super) writer: Arc<dyn WriteAt>,
    /// Added to wire offsets.
    pub(super) origin: u64,
    /// Where a stream starts.
    pub(super) start: u64,
    pub(super) unique_name: Option<Vec<u8>>,
    /// What the sender vouches for, where it does.
    pub(super) voucher: Option<Vec<u8>>,
    /// Of a chunk: others know that it is being written, as long as this is kept.
    _part: Option<chunk::Part>,
}

impl File {
    pub(super) fn begin(task: &Task<'_>, spec: &ReceiveSpec) -> Result<Self, Fault> {
        if let WriteKind::Chunk { offset, session } = &spec.write {
            let chunk = chunk::begin(task, &spec.path, session, *offset, spec.expected_size)?;
            let (origin, start, _part) = (*offset, *offset, Some(chunk.part));
            return Ok(Self { origin, start, _part, ..Self::of(chunk.session, chunk.writer) });
        }
        let node = task.node;
        let connector = node.connector.as_ref();
        let session = begin_session(connector, spec)?;
        let mut file = Self::join(node, spec, &session)?;
        if spec.write == WriteKind::Append {
            file.writer.claim_end()?;
            let meta = connector.stat(&session.path, Follow::Yes)?;
            file.origin = if meta.kind == Kind::File { meta.size } else { 0 };
            file.start = file.origin;
        }
        if spec.write == WriteKind::Unique {
            file.unique_name = Some(file.session.path.as_bytes().to_vec());
        }
        Ok(file)
    }

    /// A file that begins at its first byte.
    pub(super) fn of(session: WriteSession, writer: Arc<dyn WriteAt>) -> Self {
        Self { session, writer, origin: 0, start: 0, unique_name: None, voucher: None, _part: None }
    }

    pub(super) fn join(node: &Node, spec: &ReceiveSpec, session: &WriteSession) -> Result<Self, Fault> {
        let (origin, start) = match &spec.write {
            WriteKind::Adjusted { offset } | WriteKind::Chunk { offset, .. } => (check_offset(*offset)?, *offset),
            WriteKind::Restart { done } => (0, check_offset(from_beginning(done))?),
            WriteKind::Replace | WriteKind::Unique | WriteKind::Append => (0, 0),
        };
        Ok(Self { origin, start, ..Self::of(session.clone(), node.connector.join(session)?) })
    }

    /// The bytes of which some may be left out because they are holes of the source: the digests of both ends cover them.
    ///
    /// Only where the length was announced and gaps can be told from an end: in MODE E.
    pub(super) fn may_have_gaps(&self, task: &mut Task<'_>, spec: &ReceiveSpec) -> Result<Option<Range<u64>>, Problem> {
        let wanted = spec.leaves.as_ref().is_some_and(|leaves| leaves.holes);
        let whole = matches!(spec.write, WriteKind::Replace | WriteKind::Unique | WriteKind::Chunk { .. });
        if !wanted || !whole || task.session.acquire(Way::In)?.params.mode != Mode::Extended {
            return Ok(None);
        }
        Ok(spec.expected_size.map(|size| self.start..self.start.saturating_add(size)))
    }

    /// Most bytes that may come, in wire offsets: what was announced, where leaves or a chunk are.
    pub(super) fn window(&self, spec: &ReceiveSpec) -> u64 {
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
    pub(super) fn make_durable(self, task: &mut Task<'_>, spec: &ReceiveSpec, bytes: u64) {
        let times = Arc::<Times>::default();
        let counted = times.clone();
        let range = self.part(spec);
        let work = move |_: &Cancel| {
            let Self { writer, _part, .. } = self;
            let _working = counted.on_thread();
            counted.timed(Activity::Storage, || writer.sync_range(range))?;
            Ok(Outcome::moved(bytes))
        };
        *task.later = Some(Later { path: spec.path.clone(), work: Box::new(work), times });
    }

    /// Reads back what was stored, before it gets its name; long ones while the next data come in.
    pub(super) fn prove(
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
    pub(super) fn complete(&self, node: &Node, spec: &ReceiveSpec, cancel: &Cancel) -> Result<(), Problem> {
        let receipt = self.writer.finish().map_err(|fault| self.unless_lost(node, spec, fault))?;
        let completed = complete(node, spec, &self.session, Some(self.writer.as_ref()), &[receipt], cancel);
        completed.map_err(|problem| self.unless_lost(node, spec, problem))
    }

    /// Tells of a node's share of a file, which another node may commit.
    pub(super) fn hand_in(&self, task: &mut Task<'_>, spec: &ReceiveSpec, bytes: u64) -> Result<(), Problem> {
        if task.node.keeps_durable(spec.durable) {
            // That may be another host, which knows nothing of what this one still has in memory.
            self.writer.sync().map_err(|fault| self.unless_lost(task.node, spec, fault))?;
        }
        let (mover, id) = task.reporter.about();
        let receipt = self.writer.finish().map_err(|fault| self.unless_lost(task.node, spec, fault))?;
        let receipt = Box::new(short(receipt));
        task.reporter.message(&FromMover::Received { mover, id, bytes, receipt });
        Ok(())
    }

    /// What a failure is to the client. Where storage has lost what it had taken, nobody may go on with the file: the kernel
    /// tells that once, and the next sync of it would succeed (fsync(2)). Chunks are written again as a whole.
    pub(super) fn unless_lost(&self, node: &Node, spec: &ReceiveSpec, problem: impl Into<Problem>) -> Problem {
        let problem = problem.into();
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
            synced.map_err(|fault| self.unless_lost(node, spec, fault))?;
        }
        let read_from = spec.past_memory.then(|| leaves::forget(writer, written)).transpose();
        let read_from = read_from.map_err(|fault| self.unless_lost(node, spec, fault))?;
        let leaves = leaves::read_back(node, writer, written, wanted, proving)?;
        if let Some(voucher) = &self.voucher
            && let Err(problem) = voucher::check(voucher, &leaves)
        {
            // A part that is wrong is written again, and has no name before it is right.
            if !is_chunk {
                node.connector.abandon(&self.session)?;
            }
            return Err(problem);
        }
        if !is_chunk {
            proving.times.timed(Activity::Storage, || self.complete(node, spec, proving.cancel))?;
        }
        Ok(Outcome::Transferred { bytes, leaves, read_from })
    }

    /// Where this operation may have written: other movers write elsewhere in a file in chunks.
    pub(super) fn part(&self, spec: &ReceiveSpec) -> Range<u64> {
        match (&spec.write, spec.expected_size) {
            (WriteKind::Chunk { .. }, Some(length)) => self.start..self.start.saturating_add(length),
            _ => 0..u64::MAX,
        }
    }

    pub(super) fn may_be_new(&self, spec: &ReceiveSpec) -> bool {
        !matches!(spec.write, WriteKind::Restart { .. } | WriteKind::Chunk { .. })
    }
}

/// Begins anything but a part of a file in chunks.
fn begin_session(connector: &dyn Connector, spec: &ReceiveSpec) -> Result<WriteSession, Fault> {
    let path = resolve(&spec.path)?;
    let (disposition, size) = match &spec.write {
        WriteKind::Replace | WriteKind::Unique => (Disposition::Replace, spec.expected_size),
        WriteKind::Restart { .. } => (Disposition::Resume, spec.expected_size),
        WriteKind::Adjusted { .. } | WriteKind::Append => (Disposition::Update, None),
        WriteKind::Chunk { .. } => return Err(Fault::new(FaultCode::Internal, "receive a chunk")),
    };
    if let WriteKind::Adjusted { offset } = spec.write {
        check_offset(offset)?;
    }
    let intent = WriteIntent { disposition, size, length: spec.expected_size, mode: spec.mode };
    match &spec.write {
        WriteKind::Unique => begin_unique(connector, &path, &intent),
        WriteKind::Restart { done } if spec.strict => go_on(connector, &path, &intent, done),
        _ => connector.begin(&path, &intent),
    }
}

/// Goes on with an unfinished file. Until it is open it may get its name, or be thrown away: so it is looked at again then.
fn go_on(
    connector: &dyn Connector,
    path: &StoragePath,
    intent: &WriteIntent,
    done: &[Range<u64>],
) -> Result<WriteSession, Fault> {
    is_there(connector, path, done, None)?;
    let session = connector.begin(path, intent)?;
    is_there(connector, path, done, Some(&session))?;
    Ok(session)
}

/// Whether what a client says is there can be: a crash, or another writer, may have taken it, and zeros would stand in its place. A
/// file that has its name already is somebody's whole one, perhaps this client's own: nothing is to be written into that. `begun`: what
/// is gone on with, once it is open.
fn is_there(
    connector: &dyn Connector,
    path: &StoragePath,
    done: &[Range<u64>],
    begun: Option<&WriteSession>,
) -> Result<(), Fault> {
    let told = done.iter().map(|range| range.end).max().unwrap_or(0);
    // A file that is open in place is not what is unfinished by now.
    let unfinished = connector.unfinished(path)?.filter(|_| begun.is_none_or(|session| session.rename));
    let found = match unfinished {
        Some(meta) => Some(meta.size),
        None => match connector.stat(path, Follow::Yes) {
            Ok(meta) if meta.kind == Kind::File => None,
            // Devices and pipes have no length.
            Ok(_) => return Ok(()),
            Err(fault) if fault.code == FaultCode::NotFound => Some(0),
            Err(fault) => return Err(fault),
        },
    };
    let fault = Fault::new(FaultCode::StorageBusy, "restart").on_path(path.as_bytes());
    match found {
        Some(found) if told <= found => Ok(()),
        Some(found) => Err(fault.detail(format!("{told} bytes are said to be there, and {found} are"))),
        None => Err(fault.detail("a whole file has its name by now")),
    }
}

fn check_offset(offset: u64) -> Result<u64, Fault> {
    if offset > MAX_OFFSET {
        let fault = Fault::new(FaultCode::InvalidArgument, "receive");
        return Err(fault.detail(format!("offset {offset} is beyond the largest file")));
    }
    Ok(offset)
}

/// Begins a file under a name near `path` that nothing has, nor what others are storing, in whichever way (RFC 959 §4.1.3, STOU).
fn begin_unique(connector: &dyn Connector, path: &StoragePath, intent: &WriteIntent) -> Result<WriteSession, Fault> {
    let careful = connector.without_replacing();
    let careful: &dyn Connector = match &careful {
        Some(careful) => careful.as_ref(),
        None => connector,
    };
    let bad = |error| failure::bad_path(&error, path.as_bytes());
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
        if connector.has_unfinished(&candidate)? || !is_free(connector, &candidate)? {
            continue;
        }
        let session = match careful.begin(&candidate, intent) {
            // It was free a moment ago.
            Err(fault) if fault.code == FaultCode::AlreadyExists => continue,
            begun => begun?,
        };
        // Somebody may have stored a file under it since: then it is theirs. Who is later finds this one.
        if is_free(connector, &candidate)? {
            return Ok(session);
        }
        connector.abandon(&session)?;
    }
    Err(Fault::new(FaultCode::AlreadyExists, "find a unique name").on_path(base.as_bytes()))
}

/// Gives a file the name that its client was told nothing else has. Whatever has taken it meanwhile stays, and since nobody can go on
/// with the file under another name, that is thrown away.
pub(super) fn commit_unique(
    connector: &dyn Connector,
    session: &WriteSession,
    receipts: &[Receipt],
    attributes: &Attributes,
) -> Result<(), Fault> {
    let careful = connector.without_replacing();
    let committed = match careful.map(|careful| careful.commit(session, receipts, attributes)) {
        Some(Ok(())) => Ok(()),
        Some(Err(fault)) if fault.code != FaultCode::NotSupported => Err(fault),
        // It cannot be named only if the name is free: looked at right before.
        _ if is_free(connector, &session.path)? => connector.commit(session, receipts, attributes),
        _ => Err(Fault::new(FaultCode::AlreadyExists, "give a unique name").on_path(session.path.as_bytes())),
    };
    if committed.as_ref().is_err_and(|fault| fault.code == FaultCode::AlreadyExists) {
        connector.abandon(session)?;
    }
    committed
}

fn is_free(connector: &dyn Connector, path: &StoragePath) -> Result<bool, Fault> {
    match connector.stat(path, Follow::No) {
        Err(fault) if fault.code == FaultCode::NotFound => Ok(true),
        Err(fault) => Err(fault),
        Ok(_) => Ok(false),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mover::codec;
    use crate::mover::message::{MAX_FRAME, MoverId};
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
            let mut frame = Vec::new();
            codec::encode(&message, &mut frame).unwrap();
            assert!(frame.len() <= MAX_FRAME, "{count}: {}", frame.len());
        }
    }
}

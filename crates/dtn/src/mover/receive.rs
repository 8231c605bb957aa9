//! Receiving files over the data handle (STOR, ESTO, APPE, STOU, PUT).
//!
//! begin, join, write, finish, commit: only the commit gives the file its name. What a failed
//! receive has stored stays for a restart, unless it stored nothing or its checksum is wrong.

mod behind;
mod file;
mod flow;

use std::sync::Arc;

use whimbrel_connector::{Attributes, Receipt, WriteAt, WriteSession};
use whimbrel_engine::{Fault, FaultCode, RangeSet, Side};
use whimbrel_proto::op::{Mode, Outcome, ReceiveSpec, WriteKind};
use whimbrel_transport::{Cancel, Progress, digest};

use super::command::{permission_bits, timestamp};
use super::failure::Problem;
use super::holes;
use super::leaves::{self, Stored};
use super::message::FromMover;
use super::node::Node;
use super::stats::Way;
use super::transfer::{Markers, Transfer};
use super::worker::Task;
use file::File;
pub use flow::blocks;

/// Largest file offset the systems here can address.
const MAX_OFFSET: u64 = i64::MAX as u64;

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
        None => File::begin(task, spec)?,
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
            let interval = spec.performance_interval.filter(|_| spec.expected_checksum.is_some());
            let _signs_of_life = Markers::again(task, interval, bytes);
            file.complete(&node, spec, task.cancel)?;
            Ok(Some(Outcome::moved(bytes)))
        }
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
    let mut file = File::of(WriteSession::nowhere(), writer);
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
    let connector = node.connector.as_ref();
    match spec.write {
        WriteKind::Unique => file::commit_unique(connector, session, receipts, &attributes)?,
        _ => connector.commit(session, receipts, &attributes)?,
    }
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

/// Bytes that are to come, where they were announced.
fn expected(spec: &ReceiveSpec) -> Option<u64> {
    let done = match &spec.write {
        WriteKind::Restart { done } => done.iter().map(|range| range.end.saturating_sub(range.start)).sum(),
        _ => 0,
    };
    spec.expected_size.map(|size| size.saturating_sub(done))
}

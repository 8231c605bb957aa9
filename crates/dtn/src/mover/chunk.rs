//! Files written in chunks by many movers (SITE CHUNK, ESTO C).
//!
//! The client proves leaves; here they are recorded beside the unfinished file, and the file gets
//! its name only when the record covers all of it. See `docs/design/chunks.md`.

mod again;
mod noted;
mod opening;
#[cfg(test)]
mod tests;
mod trust;
mod writing;

use std::collections::VecDeque;
use std::ops::Range;
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use whimbrel_connector::{Attributes, Connector, Journal, WriteAt, WriteSession};
use whimbrel_engine::journal::{self, Header, Trusted, Writer};
use whimbrel_engine::{Fault, FaultCode, RangeSet};
use whimbrel_proto::op::{ChunkedFile, Leaf, Op, Outcome, StorageFacts};
use whimbrel_transport::Cancel;
use whimbrel_transport::digest::{self, Algorithm, Digest};

use self::noted::Noted;
pub use self::writing::{Part, Writing};
use super::checksum;
use super::command::{permission_bits, resolve, timestamp};
use super::failure::Problem;
use super::leaves::Stored;
use super::worker::Task;
use crate::journaled;

/// Most files kept open between operations; each holds up to three descriptors.
const KEPT: usize = 64;

/// Interval of signs of life while a whole file is read before it gets its name.
const SIGNS_OF_LIFE: Duration = Duration::from_secs(5);

/// Most bytes that a commit reads once more: some seconds.
const READ_AGAIN: u64 = 4 << 30;

/// What every commit asks for.
const DURABLE: Attributes = Attributes { mode: None, group: None, modified: None, size: None, durable: true };

/// Carries out an operation on a file written in chunks; `None` when `op` is none.
pub fn run(task: &Task<'_>, op: &Op) -> Option<Result<Outcome, Problem>> {
    Storage::of(task).run(op)
}

/// What a chunk is written with; all movers of this process share the writer.
pub struct Chunk {
    /// The unfinished file.
    pub session: WriteSession,
    /// Writes to it.
    pub writer: Arc<dyn WriteAt>,
    /// That this is being written, as long as it is kept.
    pub part: Part,
}

/// Begins to write a chunk of the unfinished file of `path`: `length` bytes at `offset`, or what follows there where it is not told.
///
/// A session of another file, of another path or of a file that was replaced is refused; it cannot
/// reach anything but the unfinished file of `path`.
pub fn begin(task: &Task<'_>, path: &[u8], session: &[u8], offset: u64, length: Option<u64>) -> Result<Chunk, Fault> {
    let storage = Storage::of(task);
    let file = storage.open(path, session)?;
    let size = file.header.size;
    let end = offset.checked_add(length.unwrap_or(0)).filter(|&end| end <= size);
    let Some(end) = end else {
        let fault = Fault::new(FaultCode::InvalidArgument, "receive a chunk").on_path(path);
        return Err(fault.detail(format!("it would end beyond the file's {size} bytes")));
    };
    let range = offset..if length.is_some() { end } else { size };
    let part = storage.write(&file, slice::from_ref(&range))?;
    Ok(Chunk { session: file.session.clone(), writer: file.writer.clone(), part })
}

/// Before a commit: whether the whole file has the checksum that the client demands (SCKS, SITE STORATTR).
///
/// Its leaves tell it where their algorithm composes; otherwise the file is read once more. A wrong file stays
/// unfinished: what is proven of it is what the source has, and the checksum may be the wrong one.
pub fn expect(
    task: &mut Task<'_>,
    path: &[u8],
    session: &[u8],
    (algorithm, expected): &(String, String),
) -> Result<(), Problem> {
    let algorithm: Algorithm = algorithm.parse()?;
    let opened = Storage::of(task).open(path, session);
    let computed = match opened {
        Ok(file) => sum(task, &file, algorithm)?,
        // Another session has given it its name, and has perhaps demanded nothing.
        Err(fault) => {
            Storage::of(task).unless_committed(path, session, fault)?;
            let computed = checksum::named(task, algorithm, path, 0..u64::MAX, Some(SIGNS_OF_LIFE))?;
            let taken = Fault::new(FaultCode::StorageBusy, "verify").on_path(path);
            Storage::of(task).unless_committed(
                path,
                session,
                taken.detail("another file has taken the name meanwhile"),
            )?;
            computed
        }
    };
    if computed.eq_ignore_ascii_case(expected.trim()) {
        return Ok(());
    }
    Err(Problem::Checksum { computed, expected: expected.clone() })
}

/// The digest of a whole unfinished file.
fn sum(task: &mut Task<'_>, file: &File, algorithm: Algorithm) -> Result<String, Problem> {
    let trusted = trust::read(&file.journal.read()?);
    if trusted.disputed {
        return Err(disputed().into());
    }
    match composed(&trusted, algorithm) {
        Some(digest) => Ok(digest.to_string()),
        None => {
            let source = Stored(file.writer.as_ref());
            Ok(checksum::hash(task, algorithm, &source, 0..file.header.size, Some(SIGNS_OF_LIFE))?)
        }
    }
}

/// The digest of the whole file from those of its leaves, if they are of this algorithm, complete, and compose.
fn composed(trusted: &Trusted, algorithm: Algorithm) -> Option<Digest> {
    let header = trusted.header.as_ref()?;
    let known: Algorithm = header.algorithm.parse().ok()?;
    if known.of_file() != algorithm {
        return None;
    }
    let leaves = trusted.leaves.iter().map(|leaf| (leaf.range.clone(), Digest::from_bytes(known, &leaf.digest)));
    digest::compose_ranges(known, leaves, Some(header.size), header.leaf)
}

/// What the operations work with.
struct Storage<'a> {
    connector: &'a dyn Connector,
    files: &'a Files,
    writing: &'a Writing,
    /// Who works.
    writer: Writer,
    cancel: &'a Cancel,
}

/// What a client carries from operation to operation.
///
/// Names are not in it: with the path of the operation it leads to the unfinished file of that path,
/// or, being another file's, to none.
#[derive(Serialize, Deserialize)]
struct Ticket {
    token: Vec<u8>,
    size: u64,
}

impl Ticket {
    fn session(self, connector: &dyn Connector, path: &[u8]) -> Result<WriteSession, Fault> {
        let target = connector.target(&resolve(path)?)?;
        WriteSession::of_unfinished(target, self.token, Some(self.size))
    }
}

fn decode(path: &[u8], bytes: &[u8]) -> Result<Ticket, Fault> {
    match postcard::take_from_bytes(bytes) {
        Ok((ticket, [])) => Ok(ticket),
        _ => Err(Fault::new(FaultCode::InvalidArgument, "join session").on_path(path).detail("not a session")),
    }
}

/// An unfinished file that movers of this process write.
struct File {
    path: Vec<u8>,
    ticket: Vec<u8>,
    session: WriteSession,
    writer: Arc<dyn WriteAt>,
    journal: Noted,
    header: Header,
    /// Who writes it, in this process.
    parts: Arc<writing::Parts>,
}

impl File {
    /// Whether what was kept of it, which can be read as long as it is open here, says otherwise than these records.
    fn disputes(&self, records: &[u8]) -> Result<bool, Fault> {
        let bytes = [&self.journal.read()?[..], records].concat();
        Ok(trust::read(&bytes).disputed)
    }
}

/// The unfinished files that were used last.
#[derive(Default)]
pub struct Files(Mutex<VecDeque<Arc<File>>>);

impl Files {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Arc<File>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, path: &[u8], ticket: &[u8]) -> Option<Arc<File>> {
        let mut files = self.lock();
        let at = files.iter().position(|file| file.path == path && file.ticket == ticket)?;
        let file = files.remove(at)?;
        files.push_back(file.clone());
        Some(file)
    }

    fn forget(&self, path: &[u8], ticket: &[u8]) {
        self.lock().retain(|file| file.path != path || file.ticket != ticket);
    }

    /// Lets go of all of them: only the process that commits a file learns of its end, and what the others hold open
    /// would keep its space after the file was removed.
    pub fn close(&self) {
        self.lock().clear();
    }

    fn keep(&self, file: &Arc<File>) {
        let mut files = self.lock();
        files.push_back(file.clone());
        if files.len() > KEPT {
            files.pop_front();
        }
    }
}

impl<'a> Storage<'a> {
    fn of(task: &'a Task<'_>) -> Self {
        let node = task.node;
        Self {
            connector: node.connector.as_ref(),
            files: &node.chunked,
            writing: &node.writing,
            writer: task.context.writer(),
            cancel: task.cancel,
        }
    }

    fn run(&self, op: &Op) -> Option<Result<Outcome, Problem>> {
        Some(match op {
            Op::OpenChunked(file) => self.open_chunked(file).map_err(Problem::from),
            Op::KeepLeaves { path, session, leaves } => self.keep_leaves(path, session, leaves),
            Op::KeepHoles { path, session, holes } => self.keep_holes(path, session, holes),
            Op::CommitChunked { path, session, modified, mode, .. } => {
                let modified = modified.map(|(seconds, nanos)| timestamp(seconds, nanos)).transpose();
                let mode = mode.map(permission_bits).transpose();
                let attributes = modified.and_then(|modified| Ok(Attributes { modified, mode: mode?, ..DURABLE }));
                attributes.map_err(Problem::from).and_then(|attributes| self.commit(path, session, attributes))
            }
            Op::DropChunked { path, session } => self.discard(path, session).map_err(Problem::from),
            _ => return None,
        })
    }

    fn open(&self, path: &[u8], ticket: &[u8]) -> Result<Arc<File>, Fault> {
        if let Some(file) = self.files.find(path, ticket) {
            if file.writer.is_sound() {
                return Ok(file);
            }
            self.files.forget(path, ticket);
        }
        let session = decode(path, ticket)?.session(self.connector, path)?;
        let writer = self.connector.join(&session)?;
        let journal = Noted::new(self.connector.journal(&session)?);
        let Some(header) = journal.header()? else {
            return Err(Fault::new(FaultCode::StorageBusy, "join session")
                .on_path(path)
                .detail("the file is not open for chunks any more: open it again"));
        };
        let (path, ticket, parts) = (path.to_vec(), ticket.to_vec(), self.writing.of(&session.token));
        let file = Arc::new(File { path, ticket, session, writer, journal, header, parts });
        self.files.keep(&file);
        Ok(file)
    }

    fn open_chunked(&self, file: &ChunkedFile) -> Result<Outcome, Fault> {
        let opening::Agreed { session, trusted, discarded } = opening::agree(self.connector, file)?;
        let ticket = Ticket { token: session.token, size: file.size };
        let session = postcard::to_stdvec(&ticket)
            .map_err(|error| Fault::new(FaultCode::Internal, "encode session").detail(error.to_string()))?;
        let opened = self.open(&file.path, &session)?;
        // The last chunk may end with a hole that nobody writes.
        opened.writer.extend_to(file.size)?;
        let storage = StorageFacts { room: opened.writer.room()?, stripe: opened.writer.stripe_size() };
        let verified = trusted.leaves.into_iter().map(journaled::to_wire).collect();
        let holes = trusted.holes.as_slice().to_vec();
        Ok(Outcome::Chunked { session, verified, holes, storage, discarded })
    }

    /// Only what the client proved comes here; it is durable when answered.
    fn keep_leaves(&self, path: &[u8], session: &[u8], leaves: &[Leaf]) -> Result<Outcome, Problem> {
        let file = self.open(path, session)?;
        let bad = || {
            Fault::new(FaultCode::InvalidArgument, "keep leaves")
                .on_path(path)
                .detail("a range that is no leaf of the file, or a digest of another algorithm")
        };
        let records = journaled::records(&file.header, leaves, self.writer).ok_or_else(bad)?;
        if !records.is_empty() {
            self.append(&file, &records)?;
        }
        Ok(Outcome::Done)
    }

    /// Begins to write these ranges, unless the hidden name is another file's by now: what is written would be lost.
    fn write(&self, file: &File, ranges: &[Range<u64>]) -> Result<Part, Fault> {
        let is_there = || self.connector.journal(&file.session).map(drop);
        let leaves = ranges.iter().map(|range| file.header.leaves_of(range)).filter(|leaves| !leaves.is_empty());
        let part = file.parts.begin(&file.journal, self.writer, leaves.collect(), self.cancel, is_there);
        part.inspect_err(|_| self.files.forget(&file.path, &file.ticket))
    }

    /// Adds to the journal, unless another session gives the file its name meanwhile: a commit reads records as soon as they are
    /// written, and may be over before they are durable here. Then they were counted, and the file is durable: if it is not another
    /// source's.
    fn append(&self, file: &File, records: &[u8]) -> Result<(), Problem> {
        file.journal.append(records).or_else(|fault| {
            self.files.forget(&file.path, &file.ticket);
            // What cannot be read does not say that they were counted.
            if file.disputes(records).unwrap_or(true) {
                return Err(fault.into());
            }
            self.unless_committed(&file.path, &file.ticket, fault)
        })
    }

    /// What was there of an earlier attempt must be gone for good before anybody is told that nothing is there.
    fn keep_holes(&self, path: &[u8], session: &[u8], holes: &[Range<u64>]) -> Result<Outcome, Problem> {
        let file = self.open(path, session)?;
        let records = journal::encode_holes(&file.header, holes, self.writer).ok_or_else(|| {
            let fault = Fault::new(FaultCode::InvalidArgument, "keep holes").on_path(path);
            fault.detail("a range that is not made of whole leaves of the file")
        })?;
        let _part = self.write(&file, holes)?;
        for hole in holes {
            file.writer.clear(hole.clone())?;
        }
        file.writer.sync()?;
        self.append(&file, &records)?;
        Ok(Outcome::Done)
    }

    /// What is gone may have been committed: then all of it was proven, and nothing is left to do. Otherwise `fault`.
    fn unless_committed(&self, path: &[u8], session: &[u8], fault: Fault) -> Result<(), Problem> {
        let may_be = matches!(fault.code, FaultCode::NotFound | FaultCode::StorageBusy);
        let is_committed = || {
            let begun = decode(path, session)?.session(self.connector, path)?;
            Ok::<_, Fault>(self.connector.has_committed(&begun))
        };
        if may_be && is_committed()? { Ok(()) } else { Err(fault.into()) }
    }

    fn commit(&self, path: &[u8], session: &[u8], attributes: Attributes) -> Result<Outcome, Problem> {
        let ticket = decode(path, session)?;
        let size = ticket.size;
        let begun = ticket.session(self.connector, path)?;
        let committing = self.writing.of(&begun.token).commit();
        match self.connector.journal(&begun) {
            Ok(journal) => {
                // Only what is read from the journal now is trusted, whatever was answered before.
                let mut trusted = trust::read(&journal.read()?);
                if self.prove_again(path, session, &trusted, journal.as_ref(), &committing)? {
                    trusted = trust::read(&journal.read()?);
                }
                prove(&trusted, size, path)?;
            }
            Err(fault) => self.unless_committed(path, session, fault)?,
        }
        let attributes = Attributes { size: Some(size), ..attributes };
        let committed = self.connector.commit(&begun, &[], &attributes);
        // Nobody is to write to what has its name, nor through what could not be synced.
        self.files.forget(path, session);
        committed?;
        Ok(Outcome::Done)
    }

    /// Where only that is missing, reads once more what was proven and has been begun by others since: they are gone, or copy the same.
    ///
    /// What it holds is known, so nobody has to move it again. Whether the journal says more than was `trusted`.
    fn prove_again(
        &self,
        path: &[u8],
        ticket: &[u8],
        trusted: &Trusted,
        journal: &dyn Journal,
        committing: &writing::Commit,
    ) -> Result<bool, Problem> {
        let leaves = &trusted.withdrawn;
        let Some(header) = trusted.header.as_ref().filter(|_| !leaves.is_empty() && !trusted.disputed) else {
            return Ok(false);
        };
        let ranges: Vec<Range<u64>> = leaves.iter().map(|leaf| leaf.range.clone()).collect();
        let again: RangeSet = ranges.iter().cloned().collect();
        let is_all = trusted.missing().as_slice().iter().all(|range| again.covers(range.clone()));
        if !is_all || again.len() > READ_AGAIN || !committing.wait_for(&ranges, self.cancel)? {
            return Ok(false);
        }
        let file = self.open(path, ticket)?;
        for leaf in leaves {
            if !again::is_there(file.writer.as_ref(), header, leaf, self.cancel)? {
                return Ok(false);
            }
        }
        let begun = journal::encode_beginnings(header, &ranges, self.writer, true);
        let proven = journal::encode_leaves(header, leaves, self.writer);
        let records = begun.zip(proven).map(|(begun, proven)| [begun, proven].concat());
        journal.append(&records.expect("leaves of this file"))?;
        Ok(true)
    }

    fn discard(&self, path: &[u8], session: &[u8]) -> Result<Outcome, Fault> {
        let begun = decode(path, session)?.session(self.connector, path)?;
        self.files.forget(path, session);
        self.connector.abandon(&begun)?;
        Ok(Outcome::Done)
    }
}

/// A file of two sources that nothing tells from each other: whoever opens it next begins it anew.
fn disputed() -> Fault {
    let fault = Fault::new(FaultCode::StorageBusy, "write in chunks");
    fault.detail("two sources of the same size and time were stored in it at once: it begins anew")
}

/// Others have begun to write what was proven, or not ended: the opening tells what is to be moved again.
fn written_again(path: &[u8]) -> Fault {
    let fault = Fault::new(FaultCode::StorageBusy, "write in chunks").on_path(path);
    fault.detail("another session writes a part of it, or did not end well: open it again")
}

/// Whether all of the file counts.
fn prove(trusted: &Trusted, size: u64, path: &[u8]) -> Result<(), Problem> {
    if trusted.disputed {
        return Err(disputed().into());
    }
    let missing = trusted.missing();
    let mut never = missing.clone();
    never.subtract(&trusted.withdrawn.iter().map(|leaf| leaf.range.clone()).collect());
    never.subtract(&trusted.filled);
    match &trusted.header {
        Some(header) if header.size != size => {
            Err(Problem::Unproven(format!("the journal is about {} bytes, not {size}", header.size)))
        }
        Some(_) if missing.is_empty() => Ok(()),
        Some(_) if never.is_empty() => Err(written_again(path).into()),
        Some(_) => {
            let first = missing.as_slice().first().cloned().unwrap_or_default();
            Err(Problem::Unproven(format!(
                "{} bytes are not proven, the first of them {}-{}",
                missing.len(),
                first.start,
                first.end
            )))
        }
        None => Err(Problem::Unproven("no journal says that anything is proven".to_owned())),
    }
}

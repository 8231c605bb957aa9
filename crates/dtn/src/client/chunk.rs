//! Files that move in chunks: what the sessions of a copy know about them, and the operations of each step.
//!
//! The client compares the digests of both ends leaf by leaf (docs/design/chunks.md). A destination of ours keeps the
//! unfinished file and a journal of what is proven; any other gets a temporary name and a rename.

mod compare;
mod file;

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use whimbrel_engine::transfer::{Job, Work};
use whimbrel_proto::op::{ChunkedFile, Leaf, LeafSpec, Op, ReceiveSpec, SendSpec, WriteKind};
use whimbrel_proto::{holes, leaf};

use super::checksum::SharedChecksum;
use super::end::End;
use super::flight::{self, Given, Order, Purpose};
use super::pair::{Pair, Role};

pub use self::compare::{Compared, agreeing, compare};
pub use self::file::{Naming, OpenFile, Unfinished, astray};

/// Interval of progress markers.
const MARKERS: Duration = Duration::from_secs(1);

/// The operations that open the unfinished copy. A server that keeps no such files is asked only what has the final name:
/// what is left of earlier runs there is looked for beside (`sidecar`).
///
/// Without a checksum holes are moved like other bytes.
pub fn open(job: &Job, pair: &Pair, checksum: Option<&SharedChecksum>, leaf: u64) -> Vec<Order> {
    let ask_for_holes =
        || checksum.map_or_else(|| vec![flight::version_order(job)], |_| ask_for_holes(job, pair, leaf));
    if !pair.destination.has("CHUNK") {
        return std::iter::once(flight::target_order(job)).chain(ask_for_holes()).collect();
    }
    std::iter::once(open_here(job, checksum, leaf)).chain(ask_for_holes()).collect()
}

/// The operation that makes or finds the unfinished copy at a server of ours.
pub fn open_here(job: &Job, checksum: Option<&SharedChecksum>, leaf: u64) -> Order {
    let file = ChunkedFile {
        path: job.item.destination.clone(),
        size: job.item.size.unwrap_or(0),
        modified: job.item.modified.map(|time| (time.secs, time.nanos)),
        leaves: LeafSpec {
            size: leaf,
            algorithm: checksum.map_or(leaf::NONE, |checksum| &checksum.destination).to_owned(),
            holes: false,
            vouched: false,
        },
    };
    Order::destination(Purpose::Open, Op::OpenChunked(file))
}

/// The operation that throws an unfinished copy at a server of ours away.
pub fn discard(job: &Job, session: &[u8]) -> Order {
    let (path, session) = (job.item.destination.clone(), session.to_vec());
    Order::destination(Purpose::Make, Op::DropChunked { path, session })
}

/// Which leaves of the source are holes, where it can say so; then its version, because of a file that is nothing but a
/// hole no chunk will be read.
fn ask_for_holes(job: &Job, pair: &Pair, leaf: u64) -> Vec<Order> {
    if !pair.source.has("HOLES") {
        return Vec::new();
    }
    let extents = Op::Extents { path: job.item.source.clone(), leaf };
    vec![Order::source(Purpose::Extents, extents), flight::version_order(job)]
}

/// The operations that move one part and tell its digests.
pub fn chunk(job: &Job, part: &Range<u64>, file: &OpenFile, pair: &Pair, disk: bool) -> Vec<Order> {
    let source_leaves = in_reply(&pair.source, file, |checksum| &checksum.source);
    let destination_leaves = in_reply(&pair.destination, file, |checksum| &checksum.destination);
    let (path, write) = match &file.place {
        Unfinished::Session(session) => {
            let write = WriteKind::Chunk { offset: part.start, session: session.clone() };
            (&job.item.destination, write)
        }
        Unfinished::Temporary(name) => (name, WriteKind::Adjusted { offset: part.start }),
    };
    let mut asked = Vec::new();
    if let Some(checksum) = &file.checksum {
        if destination_leaves.is_none() {
            asked.extend(sums(Role::Destination, &checksum.destination, path, part, file.leaf));
        }
        if source_leaves.is_none() {
            asked.extend(sums(Role::Source, &checksum.source, &job.item.source, part, file.leaf));
        }
    }
    let length = part.end - part.start;
    let receive = ReceiveSpec {
        write,
        expected_size: Some(length),
        performance_interval: Some(MARKERS),
        range_interval: Some(MARKERS),
        past_memory: disk && destination_leaves.is_some() && pair.destination.has("READBACK"),
        leaves: destination_leaves,
        ..ReceiveSpec::of(path.as_slice())
    };
    let source = job.item.source.as_slice();
    let send = SendSpec { offset: part.start, length: Some(length), leaves: source_leaves, ..SendSpec::of(source) };
    let store = Order::destination(Purpose::Store, Op::Receive(receive));
    let identity = file.temporary().filter(|_| pair.destination.remote().is_some_and(|remote| !remote.lacks("MLST")));
    let identity = identity.map(identity_order);
    // Behind the read: what changed before the last chunk was read is seen by that chunk at the latest.
    let send = Order::source(Purpose::Send, Op::Send(send));
    [store, send].into_iter().chain(asked).chain([flight::version_order(job)]).chain(identity).collect()
}

/// Asks which file has a temporary name, behind a store: under that name stores go to one file as long as it has it.
fn identity_order(name: &[u8]) -> Order {
    Order::destination(Purpose::Identity, Op::Facts { path: name.to_vec(), facts: None })
}

/// The digests that an end is to tell in its replies; one that cannot is asked for them behind the transfer.
fn in_reply(end: &End, file: &OpenFile, spelling: fn(&SharedChecksum) -> &String) -> Option<LeafSpec> {
    let checksum = file.checksum.as_ref().filter(|_| end.has("LEAVES"))?;
    Some(LeafSpec { size: file.leaf, algorithm: spelling(checksum).clone(), holes: file.holes, vouched: false })
}

/// What of the first `found` bytes of a temporary file can be trusted at all: whole leaves. A leaf that was cut short is moved
/// again; `None`: the file is longer than it may be.
pub fn examinable(job: &Job, leaf: u64, found: u64) -> Option<Range<u64>> {
    let size = job.item.size?;
    let whole = if found >= size { size } else { found / leaf * leaf };
    (found <= size).then_some(0..whole)
}

/// The operation that removes a temporary file: the rest of a longer version would get the final name, too.
pub fn remove(temporary: &[u8]) -> Order {
    Order::destination(Purpose::Make, Op::Delete(temporary.to_vec()))
}

/// The operations that tell which leaves of `part` of a temporary file can be trusted: each is asked for at the destination,
/// and at the source, too, unless `claims` say what it has, of which only the first and the last are asked.
pub fn examine(
    job: &Job,
    temporary: &[u8],
    checksum: &SharedChecksum,
    leaf: u64,
    part: &Range<u64>,
    claims: &BTreeMap<u64, Leaf>,
) -> Vec<Order> {
    let ends = [claims.first_key_value(), claims.last_key_value()].map(|end| end.map(|(start, _)| *start));
    let asked = |order: &Order| match order.purpose {
        Purpose::Leaf { start, .. } => !claims.contains_key(&start) || ends.contains(&Some(start)),
        _ => true,
    };
    let mut sources = sums(Role::Source, &checksum.source, &job.item.source, part, leaf).into_iter();
    let stored = sums(Role::Destination, &checksum.destination, temporary, part, leaf);
    stored.into_iter().flat_map(|order| [Some(order), sources.next().filter(asked)]).flatten().collect()
}

/// The operations that tell whether what has the final name is what was proven.
pub fn check_named(job: &Job, file: &OpenFile) -> Option<Vec<Order>> {
    let checksum = file.checksum.as_ref()?;
    let path = &job.item.destination;
    let size = Order::destination(Purpose::Found, Op::Size(path.clone()));
    let leaves = sums(Role::Destination, &checksum.destination, path, &(0..job.item.size?), file.leaf);
    Some(std::iter::once(size).chain(leaves).collect())
}

/// The operations that ask the source itself for what was claimed of it, each leaf as it is: a short last one begins at a
/// multiple of the leaves' size, not of its own.
pub fn ask_source<'a>(job: &Job, checksum: &SharedChecksum, claims: impl IntoIterator<Item = &'a Leaf>) -> Vec<Order> {
    let of = |leaf: &Leaf| sum(Role::Source, &checksum.source, &job.item.source, leaf.range.clone());
    claims.into_iter().map(of).collect()
}

/// Partial checksums, one a leaf.
fn sums(role: Role, algorithm: &str, path: &[u8], part: &Range<u64>, leaf: u64) -> Vec<Order> {
    leaf::cut(part, leaf).map(|range| sum(role, algorithm, path, range)).collect()
}

/// The partial checksum of a leaf (CKSM with offset and length).
fn sum(role: Role, algorithm: &str, path: &[u8], range: Range<u64>) -> Order {
    Order {
        role,
        purpose: Purpose::Leaf { start: range.start, end: range.end },
        op: Op::Checksum {
            algorithm: algorithm.to_owned(),
            offset: range.start,
            length: Some(range.end - range.start),
            path: path.to_vec(),
            marker_interval: None,
        },
    }
}

/// The operations that tell a destination of ours what is proven.
pub fn keep(job: &Job, file: &OpenFile, proven: &[Leaf]) -> Vec<Order> {
    let Unfinished::Session(session) = &file.place else { return Vec::new() };
    let order = |leaves: &[Leaf]| {
        let (path, session) = (job.item.destination.clone(), session.clone());
        let op = Op::KeepLeaves { path, session, leaves: leaves.to_vec() };
        Order::destination(Purpose::Keep, op)
    };
    leaf::batches(proven).map(order).collect()
}

/// The operations that make `holes` holes at a destination of ours and tell it that they are proven so.
pub fn keep_holes(job: &Job, session: &[u8], holes: &[Range<u64>]) -> Vec<Order> {
    let order = |holes: &[Range<u64>]| {
        let (path, session) = (job.item.destination.clone(), session.to_vec());
        let op = Op::KeepHoles { path, session, holes: holes.to_vec() };
        Order::destination(Purpose::KeepHoles, op)
    };
    holes::batches(holes).map(order).collect()
}

/// The operations that give a proven file its name and attributes.
pub fn commit(job: &Job, file: &OpenFile, pair: &Pair) -> Vec<Order> {
    let item = &job.item;
    match &file.place {
        Unfinished::Session(session) => {
            let given = Given { time: true, ..Given::to(&pair.destination) };
            let op = Op::CommitChunked {
                path: item.destination.clone(),
                session: session.clone(),
                modified: given.time_of(item),
                mode: given.mode_of(item),
                expected: None,
            };
            let commit = Order::destination(Purpose::Commit, op);
            std::iter::once(commit).chain(flight::attribute_orders(job, &item.destination, given)).collect()
        }
        Unfinished::Temporary(name) => flight::naming_orders(job, name, Given::default()),
    }
}

/// Asks how long a file is under its temporary name: behind what is proven of it there may be bytes that went astray.
pub fn measure(file: &OpenFile) -> Option<Order> {
    let name = file.temporary()?;
    Some(Order::destination(Purpose::Length, Op::Size(name.to_vec())))
}

/// The operation that names a file of which this part was the last: it can go along with what tells that the part is proven,
/// for the destination refuses it as long as anything is not. `None` where more has to be done than that.
pub fn commit_ahead(job: &Job, file: &OpenFile, compared: &Compared, pair: &Pair) -> Option<Order> {
    let mut told = file.told.borrow_mut();
    told.union_with(&compared.ranges());
    if told.covers(0..job.item.size?) { name_ahead(job, file, pair) } else { None }
}

/// The operation that names a file, if it does no harm where the file is not proven.
pub fn name_ahead(job: &Job, file: &OpenFile, pair: &Pair) -> Option<Order> {
    let mut orders = commit(job, file, pair);
    let is_session = matches!(file.place, Unfinished::Session(_));
    let order = orders.pop().filter(|_| is_session && orders.is_empty())?;
    Some(Order { purpose: Purpose::CommitAhead, ..order })
}

/// Whether a job is a step of a file that moves in chunks.
pub fn is_step(job: &Job) -> bool {
    matches!(job.work, Work::Open { .. } | Work::Chunk { .. } | Work::Commit)
}

/// Whether a job is about a part of a file in chunks, and which.
pub fn part(job: &Job) -> Option<&Range<u64>> {
    match &job.work {
        Work::Chunk { part } => Some(part),
        _ => None,
    }
}

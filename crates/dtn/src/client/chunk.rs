//! Files that move in chunks: what the sessions of a copy know about them, and the operations of each step.
//!
//! The client compares the digests of both ends leaf by leaf (docs/design/chunks.md). A destination of ours keeps the
//! unfinished file and a journal of what is proven; any other gets a temporary name and a rename.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::rc::Rc;
use std::time::Duration;

use whimbrel_engine::transfer::{Job, Work};
use whimbrel_engine::{Fault, FaultCode, RangeSet, Side};
use whimbrel_proto::op::{ChunkedFile, Leaf, LeafSpec, Op, ReceiveSpec, SendSpec, WriteKind};
use whimbrel_proto::{holes, leaf};
use whimbrel_transport::digest::Algorithm;

use super::checksum::SharedChecksum;
use super::end::End;
use super::flight::{self, Given, Order, Purpose};
use super::pair::{Pair, Role};

/// Longest name, bytes, that keeps below the limit of file systems with what is added to it.
const LONGEST_NAME: usize = 240;

/// Interval of progress markers.
const MARKERS: Duration = Duration::from_secs(1);

/// A file whose unfinished copy is ready for chunks.
#[derive(Debug, Clone)]
pub struct OpenFile {
    /// Where its bytes go meanwhile.
    pub place: Unfinished,
    /// What proves it; `None`: nothing, what was stored counts.
    pub checksum: Option<SharedChecksum>,
    /// Bytes of a leaf.
    pub leaf: u64,
    /// What is proven, by where it begins; all sessions share it.
    pub proven: Rc<RefCell<BTreeMap<u64, Leaf>>>,
    /// Whether an earlier run brought some of it.
    pub earlier: bool,
    /// Whether the source has holes that both ends can leave out.
    pub holes: bool,
    /// Whether bytes may have gone astray, so that nothing of a temporary file is certain any more.
    pub astray: Rc<Cell<bool>>,
    /// What the destination was told to be proven, whether or not it has answered.
    pub told: Rc<RefCell<RangeSet>>,
    /// Whether it has its name before its end was told of.
    pub naming: Rc<Cell<Naming>>,
    /// Whether it was asked to be renamed from its temporary name: perhaps the answer was lost.
    pub renaming: Rc<Cell<bool>>,
}

impl OpenFile {
    /// A file of which nothing was done yet but what earlier runs proved; `holes`: the source has some that both ends leave out.
    pub fn new(
        place: Unfinished,
        checksum: Option<SharedChecksum>,
        leaf: u64,
        earlier: Vec<Leaf>,
        holes: bool,
    ) -> Self {
        let told: RangeSet = earlier.iter().map(|leaf| leaf.range.clone()).collect();
        let is_earlier = !earlier.is_empty();
        let proven: BTreeMap<_, _> = earlier.into_iter().map(|leaf| (leaf.range.start, leaf)).collect();
        Self {
            place,
            checksum,
            leaf,
            proven: Rc::new(RefCell::new(proven)),
            earlier: is_earlier,
            holes,
            astray: Rc::default(),
            told: Rc::new(RefCell::new(told)),
            naming: Rc::default(),
            renaming: Rc::default(),
        }
    }

    /// The temporary name at a server that keeps no unfinished files.
    pub fn temporary(&self) -> Option<&[u8]> {
        match &self.place {
            Unfinished::Temporary(name) => Some(name),
            Unfinished::Session(_) => None,
        }
    }

    /// A leaf differs, or a transfer broke off for another reason than the network. Our servers bound what a transfer may
    /// write; any other may have written anywhere, also behind the file's end.
    pub fn suspect(&self) {
        if self.temporary().is_some() {
            self.astray.set(true);
        }
    }
}

/// Why a file with bytes that may have gone astray is not named but opened, and with it examined, once more.
pub fn astray(job: &Job) -> Fault {
    Fault::new(FaultCode::ChecksumMismatch, "verify")
        .on_path(&job.item.destination)
        .side(Side::Destination)
        .detail("a part arrived damaged, and other parts may have suffered: all of the file is compared again")
}

/// Whether a file has been named ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Naming {
    /// No.
    #[default]
    Not,
    /// That was asked for and not answered: perhaps the answer was lost.
    Asked,
    /// Yes.
    Done,
}

/// Where an unfinished copy is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unfinished {
    /// With a server of ours, which calls it so.
    Session(Vec<u8>),
    /// Under this name.
    Temporary(Vec<u8>),
}

/// The operations that open the unfinished copy, and its name where the server keeps no such files.
///
/// Where no journal is kept, what an earlier run left is asked for: it is trusted as far as partial checksums agree.
/// Without a checksum holes are moved like other bytes.
pub fn open(job: &Job, pair: &Pair, checksum: Option<&SharedChecksum>, leaf: u64) -> (Option<Vec<u8>>, Vec<Order>) {
    let ask_for_holes = || checksum.map_or_else(|| vec![version(job)], |_| ask_for_holes(job, pair, leaf));
    if !pair.destination.has("CHUNK") {
        let name = temporary_name(&job.item.destination);
        let order = Order::destination(Purpose::Found, Op::Size(name.clone()));
        let orders = [flight::target_order(job), order].into_iter().chain(ask_for_holes());
        return (Some(name), orders.collect());
    }
    let file = ChunkedFile {
        path: job.item.destination.clone(),
        size: job.item.size.unwrap_or(0),
        modified: job.item.modified.map(|time| (time.secs, time.nanos)),
        leaves: LeafSpec {
            size: leaf,
            algorithm: checksum.map_or(leaf::NONE, |checksum| &checksum.destination).to_owned(),
            holes: false,
        },
    };
    let mut orders = vec![Order::destination(Purpose::Open, Op::OpenChunked(file))];
    orders.extend(ask_for_holes());
    (None, orders)
}

/// Which leaves of the source are holes, where it can say so; then its version, because of a file that is nothing but a
/// hole no chunk will be read.
fn ask_for_holes(job: &Job, pair: &Pair, leaf: u64) -> Vec<Order> {
    if !pair.source.has("HOLES") {
        return Vec::new();
    }
    let extents = Op::Extents { path: job.item.source.clone(), leaf };
    vec![Order::source(Purpose::Extents, extents), version(job)]
}

fn version(job: &Job) -> Order {
    let facts = Op::Facts { path: job.item.source.clone(), facts: None };
    Order::source(Purpose::Version, facts)
}

/// The name of an unfinished copy at a server that keeps none: hidden, beside the final name, the same on every run.
pub fn temporary_name(path: &[u8]) -> Vec<u8> {
    let cut = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    let (directory, name) = path.split_at(cut);
    // File systems take names of 255 bytes; long ones keep a beginning and what tells them apart.
    if name.len() <= LONGEST_NAME {
        return [directory, b".", name, b".whimbrel"].concat();
    }
    let digest = Algorithm::Xxh3_128.digest(name).to_string();
    [directory, b".", &name[..LONGEST_NAME - 40], b".", digest.as_bytes(), b".whimbrel"].concat()
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
    // Behind the read: what changed before the last chunk was read is seen by that chunk at the latest.
    [store, Order::source(Purpose::Send, Op::Send(send))].into_iter().chain(asked).chain([version(job)]).collect()
}

/// The digests that an end is to tell in its replies; one that cannot is asked for them behind the transfer.
fn in_reply(end: &End, file: &OpenFile, spelling: fn(&SharedChecksum) -> &String) -> Option<LeafSpec> {
    let checksum = file.checksum.as_ref().filter(|_| end.has("LEAVES"))?;
    Some(LeafSpec { size: file.leaf, algorithm: spelling(checksum).clone(), holes: file.holes })
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

/// The operations that ask the source itself for what was claimed of it.
pub fn ask_source(job: &Job, checksum: &SharedChecksum, claims: &BTreeMap<u64, Leaf>) -> Vec<Order> {
    let of = |leaf: &Leaf| {
        sums(Role::Source, &checksum.source, &job.item.source, &leaf.range, leaf.range.end - leaf.range.start)
    };
    claims.values().flat_map(of).collect()
}

/// The leaves that agree, whatever of them was told.
pub fn agreeing(source: &[Leaf], destination: &[Leaf]) -> RangeSet {
    let stored: HashMap<u64, &Leaf> = destination.iter().map(|leaf| (leaf.range.start, leaf)).collect();
    let same = |leaf: &&Leaf| stored.get(&leaf.range.start) == Some(leaf);
    source.iter().filter(same).map(|leaf| leaf.range.clone()).collect()
}

/// Partial checksums, one a leaf (CKSM with offset and length).
fn sums(role: Role, algorithm: &str, path: &[u8], part: &Range<u64>, leaf: u64) -> Vec<Order> {
    let order = |range: Range<u64>| Order {
        role,
        purpose: Purpose::Leaf { start: range.start, end: range.end },
        op: Op::Checksum {
            algorithm: algorithm.to_owned(),
            offset: range.start,
            length: Some(range.end - range.start),
            path: path.to_vec(),
            marker_interval: None,
        },
    };
    leaf::cut(part, leaf).map(order).collect()
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

/// Whether a path has the form of an unfinished copy's name ([`temporary_name`]), whose place it must not take.
pub fn is_temporary_name(path: &[u8]) -> bool {
    let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
    let name = name.strip_suffix(b"-kept").unwrap_or(name);
    name.starts_with(b".") && name.len() > b"..whimbrel".len() && name.ends_with(b".whimbrel")
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

/// What a comparison of digests says of one part.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Compared {
    /// Leaves whose digests agree.
    pub proven: Vec<Leaf>,
    /// Ranges whose digests differ.
    pub wrong: RangeSet,
}

impl Compared {
    /// What is there of a part that nothing is compared of.
    pub fn arrived(part: &Range<u64>, leaf: u64) -> Self {
        let one = |range| Leaf { range, digest: leaf::NONE_DIGEST.to_owned() };
        Self { proven: leaf::cut(part, leaf).map(one).collect(), wrong: RangeSet::new() }
    }

    /// What is proven, as ranges.
    pub fn ranges(&self) -> RangeSet {
        self.proven.iter().map(|leaf| leaf.range.clone()).collect()
    }
}

/// Compares the digests of both ends for a part.
///
/// # Errors
/// `PeerMisbehaved` when an end did not tell a digest for each leaf.
pub fn compare(part: &Range<u64>, leaf: u64, source: &[Leaf], destination: &[Leaf]) -> Result<Compared, Fault> {
    let mut result = Compared::default();
    for range in leaf::cut(part, leaf) {
        let sent = told(source, &range, Side::Source)?;
        let stored = told(destination, &range, Side::Destination)?;
        if sent.digest.eq_ignore_ascii_case(&stored.digest) {
            result.proven.push(stored.clone());
        } else {
            tracing::warn!(?range, sent = sent.digest, stored = stored.digest, "a leaf differs");
            result.wrong.insert(range);
        }
    }
    Ok(result)
}

fn told<'a>(leaves: &'a [Leaf], range: &Range<u64>, side: Side) -> Result<&'a Leaf, Fault> {
    leaves.iter().find(|leaf| leaf.range == *range).ok_or_else(|| {
        Fault::new(FaultCode::PeerMisbehaved, "verify")
            .side(side)
            .detail(format!("no digest of bytes {} to {}", range.start, range.end))
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(range: Range<u64>, digest: &str) -> Leaf {
        Leaf { range, digest: digest.into() }
    }

    #[test]
    fn a_leaf_is_proven_only_by_equal_digests_of_the_same_range() {
        let source = [leaf(0..10, "aa"), leaf(10..15, "bb")];
        let stored = [leaf(0..10, "AA"), leaf(10..15, "bc")];
        let compared = compare(&(0..15), 10, &source, &stored).unwrap();
        assert_eq!(compared.ranges(), RangeSet::from(0..10));
        assert_eq!(compared.wrong, RangeSet::from(10..15));
        let fault = compare(&(0..15), 10, &source, &stored[..1]).unwrap_err();
        assert_eq!((fault.code, fault.side), (FaultCode::PeerMisbehaved, Some(Side::Destination)));
        let shifted = [leaf(0..9, "aa"), leaf(10..15, "bb")];
        assert!(compare(&(0..15), 10, &shifted, &stored).is_err());
    }

    #[test]
    fn the_unfinished_name_is_hidden_beside_the_final_one_and_fits() {
        assert_eq!(temporary_name(b"/a/b"), b"/a/.b.whimbrel");
        let long = [b"/d/".as_slice(), &[b'x'; 255]].concat();
        assert!(temporary_name(&long).len() <= 3 + 255);
        let other = [b"/d/".as_slice(), &[b'x'; 254], b"y"].concat();
        assert_ne!(temporary_name(&long), temporary_name(&other));
    }
}

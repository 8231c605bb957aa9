//! Sending files and listings over the data handle (RETR, ERET, LIST, MLSD, ...).

use std::borrow::Cow;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use whimbrel_connector::{Kind, Meta, ReadAt};
use whimbrel_engine::{Fault, FaultCode, RangeSet, Side};
use whimbrel_proto::op::{Layout, ListForm, ListSpec, Mode, Notice, Outcome, SendSpec};
use whimbrel_proto::ranges::from_beginning;
use whimbrel_transport::mode_e::{self, Amount, Connection, Eof, Nonce, SendJob, Stripe};
use whimbrel_transport::mode_s::{self, Representation, StreamSend};
use whimbrel_transport::{BlockSource, Digests, Flow, Pool, PoolLimits, Run};

use super::command::resolve;
use super::dial::{self, in_parallel};
use super::failure::Problem;
use super::leaves;
use super::listing::Lines;
use super::session::{Feed, Handle, Rendezvous, Share};
use super::spent;
use super::stats::Way;
use super::transfer::{AT_ONE_STROKE, Markers, Transfer};
use super::voucher;
use super::worker::Task;

/// Payload of one MODE E block; the stock server's size, which every receiver takes.
pub const BLOCK_SIZE: usize = 256 << 10;

/// What a listing has for itself: one buffer, and nothing that is kept.
const LISTING: PoolLimits =
    PoolLimits { buffer_size: 64 << 10, send: 1, receive: 1, hash: 1, low_water: 1, high_water: 1 };

/// Storage as the network side reads it.
struct Source<'a> {
    reader: &'a dyn ReadAt,
    /// Whether holes are left out.
    gaps: bool,
    /// Where a file that is sent as a whole ends: its last byte goes even if it is in a hole, because the receiver learns
    /// nowhere else where the file ends. What was listed may be another size.
    end: Option<u64>,
}

impl BlockSource for Source<'_> {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize, Fault> {
        self.reader.read_at(offset, buffer)
    }

    fn is_past_cache(&self) -> bool {
        self.reader.is_past_cache()
    }

    fn run_at(&self, at: u64) -> Result<Run, Fault> {
        if !self.gaps {
            return Ok(Run { is_sent: true, end: u64::MAX });
        }
        let run = self.reader.extent_at(at).map(|extent| Run { is_sent: extent.is_data, end: extent.end })?;
        Ok(match self.end {
            Some(end) if !run.is_sent && at + 1 == end => Run { is_sent: true, end },
            Some(end) if !run.is_sent && at < end => Run { end: run.end.min(end - 1), ..run },
            _ => run,
        })
    }

    fn has_gaps(&self) -> bool {
        self.gaps
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.reader.sendfile_source()
    }
}

/// Sends a file or a part of one.
pub fn file(task: &mut Task<'_>, spec: &SendSpec) -> Result<Outcome, Problem> {
    task.session.acquire(Way::Out)?;
    let path = resolve(&spec.path)?;
    let reader = task.node.connector.open_read(&path, None)?;
    let before = reader.opened()?;
    let digests = collector(task, spec)?;
    let what = What::of(spec, &before);
    if let (Some(digests), What::Part { missing, .. }) = (&digests, &what) {
        digests.check(missing)?;
    }
    let gaps = spec.leaves.as_ref().is_some_and(|leaves| leaves.holes) && reader.may_have_holes();
    let end = spec.length.is_none().then_some(before.size);
    let source = Source { reader: reader.as_ref(), gaps, end };
    let is_unchanged = || unchanged(&reader, &before);
    let vouched = spec.leaves.as_ref().is_some_and(|leaves| leaves.vouched);
    let voucher = match vouched {
        true => Voucher::Behind(&is_unchanged),
        false => Voucher::None,
    };
    let work = Work { source: &source, what, ascii: spec.ascii, digests: digests.as_ref(), voucher, own: None };
    let kind = if spec.offset != 0 || spec.length.is_some() { "ERET" } else { "RETR" };
    let transfer = Transfer::begin(task, Way::Out, kind, path.as_bytes(), work.what.bytes());
    let bytes = transmit(task, &work, transfer, spec.performance_interval, |_| is_unchanged())?;
    Ok(Outcome::Transferred {
        bytes,
        leaves: digests.map(|digests| leaves::told(digests.into_sorted())).unwrap_or_default(),
        read_from: None,
    })
}

/// Where digests are collected, if any are wanted: one sender's bytes as they are stored.
fn collector(task: &mut Task<'_>, spec: &SendSpec) -> Result<Option<Digests>, Problem> {
    let Some(wanted) = &spec.leaves else {
        return Ok(None);
    };
    if task.stripe.count > 1 || task.session.acquire(Way::Out)?.lanes.len() > 1 {
        return Err(leaves::unsupported("a file spread over several nodes or addresses has no leaves").into());
    }
    if spec.ascii {
        return Err(leaves::unsupported("a text that is converted has no leaves").into());
    }
    Ok(Some(leaves::collector(wanted)?))
}

/// Sends a listing.
pub fn listing(task: &mut Task<'_>, spec: &ListSpec) -> Result<Outcome, Problem> {
    task.session.acquire(Way::Out)?;
    let path = resolve(&spec.path)?;
    let lines = Lines::open(task.node.connector.clone(), spec)?;
    let what = What::Stream { offset: 0 };
    // Peers that do not read their files must not keep others from seeing what there is.
    let pool = Pool::new(LISTING)?;
    let voucher = Voucher::None;
    let work = Work { source: &lines, what, ascii: false, digests: None, voucher, own: Some(&pool) };
    let kind = match spec.form {
        ListForm::Long => "LIST",
        ListForm::Names => "NLST",
        ListForm::Facts => "MLSD",
        ListForm::FactsRecursive => "MLSR",
    };
    let transfer = Transfer::begin(task, Way::Out, kind, path.as_bytes(), None);
    let bytes = transmit(task, &work, transfer, None, |_| Ok(()))?;
    Ok(Outcome::moved(bytes))
}

/// Sends a source to wherever it ends, in any order; `check` sees the transfer while its connections stand.
pub fn endless(
    task: &mut Task<'_>,
    source: &dyn BlockSource,
    transfer: Transfer,
    check: impl FnOnce(&Transfer) -> Result<(), Fault>,
) -> Result<u64, Problem> {
    let work = Work { source, what: What::Endless, ascii: false, digests: None, voucher: Voucher::None, own: None };
    transmit(task, &work, transfer, None, check)
}

/// A file that was changed while it was read is no copy of anything.
fn unchanged(reader: &Arc<dyn ReadAt>, before: &Meta) -> Result<(), Fault> {
    if before.kind != Kind::File || reader.meta()?.version() == before.version() {
        return Ok(());
    }
    Err(Fault::new(FaultCode::SourceChanged, "send").side(Side::Source))
}

/// What to send, in offsets of the source.
#[derive(Debug, PartialEq, Eq)]
enum What {
    /// A part of known size; `missing` of it is to be sent.
    Part { origin: u64, length: u64, missing: RangeSet },
    /// To wherever the source ends.
    Stream { offset: u64 },
    /// From the beginning to wherever the source ends, in any order.
    Endless,
}

impl What {
    fn of(spec: &SendSpec, meta: &Meta) -> Self {
        let origin = match meta.kind {
            Kind::File => spec.offset.min(meta.size),
            _ => spec.offset,
        };
        let there = (meta.kind == Kind::File).then(|| meta.size - origin);
        let Some(length) = [there, spec.length].into_iter().flatten().min() else {
            return Self::Stream { offset: origin.saturating_add(from_beginning(&spec.done)) };
        };
        let length = length.min(u64::MAX - origin);
        let done: RangeSet = spec.done.iter().cloned().collect();
        let missing = done.missing(0..length);
        let shifted = missing.as_slice().iter().map(|r| r.start + origin..r.end + origin);
        Self::Part { origin, length, missing: shifted.collect() }
    }

    /// Bytes to send, when known.
    fn bytes(&self) -> Option<u64> {
        match self {
            Self::Part { missing, .. } => Some(missing.len()),
            Self::Stream { .. } | Self::Endless => None,
        }
    }

    fn origin(&self) -> u64 {
        match *self {
            Self::Part { origin, .. } => origin,
            Self::Stream { offset } => offset,
            Self::Endless => 0,
        }
    }
}

struct Work<'a> {
    source: &'a dyn BlockSource,
    what: What,
    /// Whether TYPE A converts line ends; listings have theirs already.
    ascii: bool,
    digests: Option<&'a Digests>,
    voucher: Voucher<'a>,
    /// Buffers of its own, instead of those that all transfers share.
    own: Option<&'a Pool>,
}

impl Work<'_> {
    fn flow<'f>(&'f self, task: &'f Task<'_>, transfer: &'f Transfer) -> Flow<'f> {
        let flow = transfer.flow(task);
        Flow { pool: self.own.unwrap_or(flow.pool), ..flow }
    }
}

/// What the receiver is told over the data connections besides.
enum Voucher<'a> {
    /// Nothing.
    None,
    /// This, before the data.
    Ahead(&'a Vec<u8>),
    /// The digests, behind the data and if this finds nothing wrong.
    Behind(&'a (dyn Fn() -> Result<(), Fault> + Sync)),
}

/// Sends those parts of `bytes` that are `present`, behind a voucher for them.
pub fn parts(
    task: &mut Task<'_>,
    bytes: &Vec<u8>,
    present: RangeSet,
    vouched: Option<&Vec<u8>>,
    transfer: &mut Transfer,
) -> Result<(), Problem> {
    let voucher = vouched.map_or(Voucher::None, Voucher::Ahead);
    let what = What::Part { origin: 0, length: bytes.len() as u64, missing: present };
    carry(task, &Work { source: bytes, what, ascii: false, digests: None, voucher, own: None }, transfer, None)
}

/// Sends `work` over the data handle, with all that belongs to a transfer; bytes sent.
fn transmit(
    task: &mut Task<'_>,
    work: &Work<'_>,
    mut transfer: Transfer,
    interval: Option<std::time::Duration>,
    check: impl FnOnce(&Transfer) -> Result<(), Fault>,
) -> Result<u64, Problem> {
    let sent = carry(task, work, &mut transfer, interval);
    let bytes = transfer.progress.bytes();
    let result = sent.and_then(|()| check(&transfer).map_err(Problem::from));
    transfer.end(task, result.is_ok());
    result.map(|()| bytes)
}

/// Sends `work` with its notices.
fn carry(
    task: &mut Task<'_>,
    work: &Work<'_>,
    transfer: &mut Transfer,
    interval: Option<std::time::Duration>,
) -> Result<(), Problem> {
    let reused = task.session.acquire(Way::Out)?.reused();
    task.reporter.notice(Notice::Opened { reused, unique_name: None });
    let markers = Markers::performance(task, interval, &transfer.progress);
    // A notice at an interval must not overtake the first one.
    if !reused || interval.is_some() || work.what.bytes().is_none_or(|bytes| bytes > AT_ONE_STROKE) {
        task.reporter.flush();
    }
    let sent = over_handle(task, work, transfer);
    markers.end(task);
    task.session.release(Way::Out, sent.is_ok(), transfer.progress.bytes());
    spent::tell(task, &transfer.progress);
    sent
}

fn over_handle(task: &mut Task<'_>, work: &Work<'_>, transfer: &mut Transfer) -> Result<(), Problem> {
    // Taken out of the session for the time of the transfer: the task is used beside it.
    let mut handle = task.session.take()?;
    let result = match handle.params.mode {
        Mode::Stream => stream(task, &handle, work, transfer),
        Mode::Extended => extended(task, &mut handle, work, transfer),
    };
    task.session.put_back(handle);
    Ok(result?)
}

/// MODE S: a connection of its own, whose close is the end of the file.
fn stream(task: &Task<'_>, handle: &Handle, work: &Work<'_>, transfer: &mut Transfer) -> Result<(), Fault> {
    let mut channel = dial::stream(task, handle)?;
    transfer.met(channel.peer_addr());
    let (offset, length) = match &work.what {
        What::Stream { offset } => (*offset, None),
        What::Endless => (0, None),
        // A stream has no gaps: it goes on from the first missing byte to the end.
        What::Part { origin, length, missing } => {
            let end = origin + length;
            let from = missing.as_slice().first().map_or(end, |range| range.start);
            (from, Some(end - from))
        }
    };
    let ascii = work.ascii;
    let job = StreamSend {
        source: work.source,
        offset,
        length,
        representation: if ascii { Representation::Ascii } else { Representation::Image },
        sendfile: !ascii,
        digests: work.digests,
        flow: work.flow(task, transfer),
    };
    let result = mode_s::send(&job, channel.as_mut());
    task.node.stats.channel(channel.as_ref());
    // A plain close, or a farewell, would look like a complete file.
    if result.is_err()
        && let Err(error) = channel.abort()
    {
        tracing::warn!(%error, "a stream that failed ends like a whole one");
    }
    result.map(drop)
}

/// MODE E: every lane gets its share over connections that stay open.
fn extended(task: &Task<'_>, handle: &mut Handle, work: &Work<'_>, transfer: &mut Transfer) -> Result<(), Fault> {
    let share = handle.share(task.stripe);
    let lanes: Vec<usize> = share.feeds.iter().map(|feed| feed.lane).collect();
    match handle.rendezvous {
        Rendezvous::Listen(_) => dial::accept_as_sender(task, handle)?,
        Rendezvous::Connect => dial::connect_lanes(task, handle, &lanes, false)?,
    }
    transfer.used(handle);
    // A listening sender has checked the nonce; a connecting one has to show it, unless there was a handshake of both ends.
    let nonce = match handle.rendezvous {
        Rendezvous::Listen(_) => None,
        Rendezvous::Connect if handle.params.relay.is_some() => None,
        Rendezvous::Connect => handle.params.nonce,
    };
    if let Voucher::Ahead(text) = work.voucher {
        voucher::tell(task, handle, nonce, text, transfer)?;
    }
    let jobs = lane_jobs(&work.what, &share, handle.params.layout);
    let flow = work.flow(task, transfer);
    let shared = Shared { work, nonce, flow };
    let mut parts: Vec<(&Feed, &LaneJob<'_>, &mut Vec<Connection>)> = Vec::with_capacity(jobs.len());
    for (index, lane) in handle.lanes.iter_mut().enumerate() {
        if let Some((feed, job)) = jobs.iter().find(|(feed, _)| feed.lane == index) {
            parts.push((feed, job, &mut lane.connections));
        }
    }
    in_parallel(&mut parts, |(feed, job, connections)| shared.send(feed, job, connections))?;
    if let (Voucher::Behind(check), Some(digests)) = (&work.voucher, work.digests) {
        // A fault is the transfer's own in the end.
        let text = check().map(|()| voucher::of_file(&leaves::told(digests.sorted()))).unwrap_or_default();
        voucher::tell(task, handle, nonce, &text, transfer)?;
    }
    Ok(())
}

struct Shared<'a> {
    work: &'a Work<'a>,
    nonce: Option<Nonce>,
    flow: Flow<'a>,
}

impl Shared<'_> {
    fn send(&self, feed: &Feed, lane: &LaneJob<'_>, connections: &mut Vec<Connection>) -> Result<(), Fault> {
        let amount = match lane {
            LaneJob::Ranges(ranges) => Amount::Ranges(ranges),
            LaneJob::Share(ranges, stripe) => Amount::Share(ranges, *stripe),
            LaneJob::ToEnd(offset) => Amount::ToEnd(*offset),
            LaneJob::Endless => Amount::Endless(0),
        };
        let job = SendJob {
            source: self.work.source,
            amount,
            origin: self.work.what.origin(),
            block_size: BLOCK_SIZE,
            nonce: self.nonce,
            eof: end_of(feed, connections.len()),
            sendfile: true,
            digests: self.work.digests,
            flow: self.flow,
        };
        mode_e::send(&job, connections).map(drop)
    }
}

/// What one address is sent.
#[derive(Debug, PartialEq, Eq)]
enum LaneJob<'w> {
    Ranges(Cow<'w, RangeSet>),
    /// What of these ranges lies in every so many blocks of the part.
    Share(&'w RangeSet, Stripe),
    ToEnd(u64),
    Endless,
}

/// Who tells an address that the file is over: one of the nodes that send there, which knows how many EODs come
/// because every node opens as many connections.
fn end_of(feed: &Feed, connections: usize) -> Eof {
    match feed {
        Feed { feeders: 1, .. } => Eof::Own,
        Feed { rank: 0, feeders, .. } => Eof::Total((feeders * connections) as u64),
        Feed { .. } => Eof::Elsewhere,
    }
}

/// The shares of this node's lanes; a source of unknown size goes to the first address alone, from one node.
fn lane_jobs<'w>(what: &'w What, share: &Share, layout: Layout) -> Vec<(Feed, LaneJob<'w>)> {
    let job = |feed: &Feed| match what {
        What::Stream { offset } if (feed.target, feed.rank) == (0, 0) => LaneJob::ToEnd(*offset),
        What::Endless if (feed.target, feed.rank) == (0, 0) => LaneJob::Endless,
        What::Stream { .. } | What::Endless => LaneJob::Ranges(Cow::Owned(RangeSet::new())),
        What::Part { missing, .. } if share.targets == 1 && feed.feeders == 1 => {
            LaneJob::Ranges(Cow::Borrowed(missing))
        }
        What::Part { origin, length, missing } => {
            let part = *origin..origin + length;
            match layout {
                Layout::Blocked { .. } => LaneJob::Share(missing, blocks_of(feed, share.targets, *length, layout)),
                Layout::Partitioned => {
                    let own = partition_of(&part, feed.target, share.targets);
                    let fed = partition_of(&own, feed.rank, feed.feeders);
                    LaneJob::Ranges(Cow::Owned(missing.within(fed)))
                }
            }
        }
    };
    share.feeds.iter().map(|feed| (*feed, job(feed))).collect()
}

/// The blocks that one feeder sends: those of an address are every so many of the file, and its feeders take turns at
/// them, which are every so many more.
fn blocks_of(feed: &Feed, targets: usize, size: u64, layout: Layout) -> Stripe {
    let number = |count: usize| u32::try_from(count).expect("addresses and nodes are few");
    Stripe { index: number(feed.rank * targets + feed.target), count: number(targets * feed.feeders), layout, size }
}

/// One of `count` even pieces, of which the last is the short one.
fn partition_of(part: &Range<u64>, index: usize, count: usize) -> Range<u64> {
    let length = (part.end - part.start).div_ceil(count as u64).max(1);
    let start = part.start.saturating_add(length.saturating_mul(index as u64)).min(part.end);
    start..start.saturating_add(length).min(part.end)
}

#[cfg(test)]
mod tests {
    use whimbrel_connector::{Access, Timestamp};
    use whimbrel_proto::eblock::RangeCursor;

    use super::*;

    fn meta(kind: Kind, size: u64) -> Meta {
        Meta {
            kind,
            size,
            modified: Timestamp { seconds: 0, nanoseconds: 0 },
            mode: 0,
            uid: 0,
            gid: 0,
            links: 1,
            unique: (0, 0),
            link_target: None,
            access: Access::default(),
        }
    }

    fn spec(offset: u64, length: Option<u64>, done: &[Range<u64>]) -> SendSpec {
        SendSpec { offset, length, done: done.to_vec(), ..SendSpec::of(Vec::new()) }
    }

    fn part(spec: &SendSpec, size: u64) -> (u64, u64, Vec<Range<u64>>) {
        match What::of(spec, &meta(Kind::File, size)) {
            What::Part { origin, length, missing } => (origin, length, missing.as_slice().to_vec()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    #[allow(clippy::single_range_in_vec_init)]
    fn parts_are_cut_at_the_end_and_restart_counts_from_their_start() {
        assert_eq!(part(&spec(1000, Some(5000), &[0..2000]), 9000), (1000, 5000, vec![3000..6000]));
        assert_eq!(part(&spec(0, None, &[]), 10), (0, 10, vec![0..10]));
        assert_eq!(part(&spec(8, Some(u64::MAX), &[]), 10), (8, 2, vec![8..10]));
        assert_eq!(part(&spec(50, Some(5), &[]), 10), (10, 0, vec![]));
        assert_eq!(part(&spec(0, None, &[0..3, 5..99]), 10), (0, 10, vec![3..5]));
    }

    #[test]
    fn a_device_without_a_length_is_read_to_its_end() {
        let device = meta(Kind::CharacterDevice, 0);
        assert_eq!(What::of(&spec(0, None, &[]), &device), What::Stream { offset: 0 });
        assert_eq!(What::of(&spec(0, Some(9), &[]), &device).bytes(), Some(9));
    }

    /// Every byte that a lane is to carry, without the blocks.
    fn carried(job: &LaneJob<'_>, origin: u64) -> RangeSet {
        match job {
            LaneJob::Ranges(ranges) => ranges.clone().into_owned(),
            LaneJob::Share(ranges, stripe) => {
                let dealt = ranges.as_slice().iter().map(|r| r.start - origin..r.end - origin).collect();
                let mut pieces = RangeCursor::new(dealt, *stripe);
                std::iter::from_fn(|| pieces.take(u64::MAX)).map(|r| r.start + origin..r.end + origin).collect()
            }
            LaneJob::ToEnd(_) | LaneJob::Endless => panic!("the size is known"),
        }
    }

    /// The shares of all nodes for each address.
    fn fed(nodes: usize, targets: usize, missing: &RangeSet, layout: Layout) -> Vec<RangeSet> {
        let what = What::Part { origin: 5, length: 95, missing: missing.clone() };
        let share = |node: usize| {
            let target = node % targets;
            let feeders = (nodes - target).div_ceil(targets);
            Share { targets, feeds: vec![Feed { lane: target, target, rank: node / targets, feeders }] }
        };
        let jobs = (0..nodes).flat_map(|node| lane_jobs(&what, &share(node), layout));
        jobs.map(|(_, job)| carried(&job, 5)).collect()
    }

    #[test]
    #[allow(clippy::single_range_in_vec_init)]
    fn more_nodes_than_addresses_send_everything_once_and_none_is_idle() {
        let missing: RangeSet = [5..40, 50..100].into_iter().collect();
        for layout in [Layout::Blocked { block_size: 7 }, Layout::Partitioned] {
            for (nodes, targets) in [(2, 2), (3, 3), (3, 2), (5, 2), (3, 1), (4, 3), (7, 3)] {
                let shares = fed(nodes, targets, &missing, layout);
                let mut all = RangeSet::new();
                shares.iter().for_each(|share| all.union_with(share));
                assert_eq!(all, missing, "{layout:?} {nodes} {targets}");
                assert_eq!(shares.iter().map(RangeSet::len).sum::<u64>(), missing.len());
                assert!(shares.iter().all(|share| !share.is_empty()), "{layout:?} {nodes} {targets}: {shares:?}");
                // An address gets the same bytes, however many nodes send there.
                let alone = fed(targets, targets, &missing, layout);
                for (target, alone) in alone.iter().enumerate() {
                    let mut got = RangeSet::new();
                    shares.iter().skip(target).step_by(targets).for_each(|share| got.union_with(share));
                    assert_eq!(got, *alone, "{layout:?} {nodes} {targets}");
                }
            }
        }
    }

    #[test]
    #[allow(clippy::single_range_in_vec_init)]
    fn each_layout_deals_the_part_from_its_own_beginning() {
        let missing = RangeSet::from(5..100);
        let second = |layout| fed(2, 2, &missing, layout).swap_remove(1);
        assert_eq!(second(Layout::Blocked { block_size: 40 }), RangeSet::from(45..85));
        assert_eq!(second(Layout::Partitioned), RangeSet::from(53..100));
    }

    #[test]
    fn a_share_takes_no_memory_for_its_blocks_however_small_they_are() {
        let missing = RangeSet::from(0..1 << 50);
        let what = What::Part { origin: 0, length: 1 << 50, missing };
        let feeds = (0..2).map(|target| Feed { lane: target, target, rank: 0, feeders: 1 });
        let share = Share { targets: 2, feeds: feeds.collect() };
        for layout in [Layout::Blocked { block_size: 1 }, Layout::Partitioned] {
            for (_, job) in lane_jobs(&what, &share, layout) {
                let listed = match job {
                    LaneJob::Ranges(ranges) => ranges.as_slice().len(),
                    LaneJob::Share(ranges, _) => ranges.as_slice().len(),
                    LaneJob::ToEnd(_) | LaneJob::Endless => panic!("the size is known"),
                };
                assert_eq!(listed, 1, "{layout:?}");
            }
        }
    }

    #[test]
    fn one_of_an_addresses_feeders_announces_the_end_of_all() {
        let end = |rank, feeders| end_of(&Feed { lane: 0, target: 0, rank, feeders }, 4);
        assert_eq!((end(0, 1), end(0, 3), end(2, 3)), (Eof::Own, Eof::Total(12), Eof::Elsewhere));
    }
}

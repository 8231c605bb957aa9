//! The operations that carry out a job, in the order in which they must be given to their ends.

use std::ops::Range;
use std::time::Duration;

use whimbrel_engine::auto;
use whimbrel_engine::listing::split;
use whimbrel_engine::plan::Item;
use whimbrel_engine::transfer::{Job, Work};
use whimbrel_proto::leaf;
use whimbrel_proto::op::{LeafSpec, Mode, Op, ReceiveSpec, SendSpec, WriteKind};

use super::order::{Given, Manner, Named, Order, Purpose};
use super::proof::Proof;
use crate::client::checksum::SharedChecksum;
use crate::client::chunk;
use crate::client::pair::Role;
use crate::client::run::RunId;
use crate::client::temporary;

/// Interval of progress and restart markers.
const MARKERS: Duration = Duration::from_secs(1);

/// Interval of signs of life while a server computes a checksum.
const HASH_MARKERS: Duration = Duration::from_secs(10);

/// Leaves of a file that moves as a whole: with the longest digests, as many as go into a message between the processes of a
/// server that tells them (1 MiB).
const MOST_LEAVES_OF_WHOLE: u64 = 6_800;

/// The part of the file this attempt is about; `None`: all of it.
///
/// With a range of a file, what an earlier attempt brought in one piece from its start is left out.
pub fn window(job: &Job) -> Option<Range<u64>> {
    let range = job.item.range.clone()?;
    let missing = job.received.missing(range.clone());
    let start = missing.as_slice().first().map_or(range.start, |first| first.start);
    Some(start..range.end)
}

/// The operations of a job that is no step of a file in chunks.
pub fn orders(job: &Job, manner: &Manner) -> Vec<Order> {
    debug_assert!(!chunk::is_step(job), "made by chunk.rs");
    let item = &job.item;
    let make = |op| vec![Order::destination(Purpose::Make, op)];
    match &job.work {
        Work::Copy => copy_orders(job, manner),
        Work::Compare => sum_orders(job, manner),
        Work::TellApart => trial_orders(item),
        Work::MakeDirectory => make(Op::MakeDirectory(item.destination.clone())),
        Work::Symlink { .. } => link_orders(job),
        Work::SetAttributes => attribute_orders(job, &item.destination, Given::default()),
        Work::Open { .. } | Work::Chunk { .. } | Work::Commit => Vec::new(),
    }
}

/// Makes directories of the names that are to be told apart, in one of its own beside the item, and removes all of them: what file
/// systems disregard of names, no server tells.
fn trial_orders(item: &Item) -> Vec<Order> {
    let (_, name) = split(&item.destination);
    let place = temporary::trial(&item.destination, RunId::fresh());
    let within = |name: &[u8]| [&place[..], b"/", name].concat();
    let names = || item.twins.iter().map(Vec::as_slice).chain([name]);
    let trial = |op| Order::destination(Purpose::Trial, op);
    let mut orders = vec![Order::destination(Purpose::Make, Op::MakeDirectory(place.clone()))];
    orders.extend(item.twins.iter().map(|other| trial(Op::MakeDirectory(within(other)))));
    orders.push(Order::destination(Purpose::TellApart, Op::MakeDirectory(within(name))));
    orders.extend(names().map(|name| trial(Op::RemoveDirectory(within(name)))));
    orders.push(trial(Op::RemoveDirectory(place)));
    orders
}

/// The operation that makes a link; none for any other job.
pub fn link_orders(job: &Job) -> Vec<Order> {
    let Work::Symlink { target } = &job.work else { return Vec::new() };
    let op = Op::Symlink { target: target.clone(), link: job.item.destination.clone() };
    vec![Order::destination(Purpose::Make, op)]
}

fn copy_orders(job: &Job, manner: &Manner) -> Vec<Order> {
    let sums = sum_orders(job, manner);
    if manner.named == Named::SourceFirst {
        return sums.into_iter().filter(|order| order.role == Role::Source).collect();
    }
    let mut orders: Vec<Order> = manner.named.replaces().then(|| target_order(job)).into_iter().collect();
    orders.extend(transfer_orders(job, manner));
    if !job.received.is_empty() {
        // What an earlier attempt brought is of the version that was listed.
        orders.push(version_order(job));
    }
    orders.extend(sums);
    if manner.measured && job.item.range.is_none() && job.item.size.is_some() {
        orders.push(Order::destination(Purpose::Length, Op::Size(manner.target(&job.item).to_vec())));
    }
    orders
}

/// Asks for the source's version, behind the reading of what must be of the version that was listed.
pub fn version_order(job: &Job) -> Order {
    let facts = Op::Facts { path: job.item.source.clone(), facts: None };
    Order::source(Purpose::Version, facts)
}

/// The operations that move the bytes of a whole file, or of a range of one.
pub fn transfer_orders(job: &Job, manner: &Manner) -> [Order; 2] {
    let window = window(job);
    let done = match manner.mode {
        _ if window.is_some() => Vec::new(),
        Mode::Extended => job.received.as_slice().to_vec(),
        // A stream can only go on where an unbroken beginning ends (RFC 959 §3.5).
        Mode::Stream => job.received.as_slice().iter().filter(|range| range.start == 0).cloned().collect(),
    };
    let length = window.as_ref().filter(|range| range.end != u64::MAX).map(|range| range.end - range.start);
    let send = SendSpec {
        offset: window.as_ref().map_or(0, |range| range.start),
        length,
        done: done.clone(),
        leaves: leaf_spec(job, manner, |shared| &shared.source),
        ..SendSpec::of(job.item.source.as_slice())
    };
    let write = match &window {
        Some(range) => WriteKind::Adjusted { offset: range.start },
        None if done.is_empty() => WriteKind::Replace,
        None => WriteKind::Restart { done },
    };
    let size = if window.is_some() { length } else { job.item.size };
    let receive = receive_spec(job, manner, write, size);
    [Order::destination(Purpose::Store, Op::Receive(receive)), Order::source(Purpose::Send, Op::Send(send))]
}

fn receive_spec(job: &Job, manner: &Manner, write: WriteKind, expected_size: Option<u64>) -> ReceiveSpec {
    let item = &job.item;
    ReceiveSpec {
        write,
        expected_size,
        expected_checksum: manner.named.announced().cloned(),
        modified: manner.given.time_of(item),
        mode: manner.given.mode_of(item),
        performance_interval: Some(MARKERS),
        range_interval: Some(MARKERS),
        leaves: leaf_spec(job, manner, |shared| &shared.destination),
        past_memory: manner.past_memory,
        durable: manner.durable,
        strict: true,
        ..ReceiveSpec::of(manner.target(item))
    }
}

/// The digests that an end is to tell in its reply, if it is.
fn leaf_spec(job: &Job, manner: &Manner, spelling: fn(&SharedChecksum) -> &String) -> Option<LeafSpec> {
    let proof = manner.proof.as_ref().ok().filter(|proof| proof.in_reply)?;
    let size = leaf_of_whole(job.item.size);
    Some(LeafSpec { size, algorithm: spelling(&proof.checksum).clone(), holes: manner.holes, vouched: manner.vouched })
}

/// Bytes of a leaf of a file that moves as a whole: one reply tells all of them.
pub fn leaf_of_whole(size: Option<u64>) -> u64 {
    let size = size.unwrap_or(0);
    leaf::size_for(size, auto::LEAF.max(size.div_ceil(MOST_LEAVES_OF_WHOLE))).unwrap_or(leaf::MAX_SIZE)
}

/// Whether one reply can tell all leaves of a file of this size that moves as a whole.
pub fn is_told_in_reply(size: Option<u64>) -> bool {
    size.is_none_or(|size| size.div_ceil(leaf_of_whole(Some(size))) <= MOST_LEAVES_OF_WHOLE)
}

/// Asks what has the final name, which a rename would replace whatever it is.
pub fn target_order(job: &Job) -> Order {
    Order::destination(Purpose::Target, Op::Facts { path: job.item.destination.clone(), facts: None })
}

/// How often a server that hashes a file of this size is to say so; `None` for one that is done before anybody wonders.
pub fn hash_markers(size: Option<u64>) -> Option<Duration> {
    size.is_none_or(|size| size > 1 << 28).then_some(HASH_MARKERS)
}

fn sum_orders(job: &Job, manner: &Manner) -> Vec<Order> {
    let shared = match &manner.proof {
        Ok(Proof { checksum, in_reply }) if !in_reply || job.work == Work::Compare => checksum,
        _ => return Vec::new(),
    };
    let item = &job.item;
    let (offset, length) = match &item.range {
        Some(range) => (range.start, (range.end != u64::MAX).then(|| range.end - range.start)),
        None => (0, None),
    };
    // A big file keeps a server silent for long.
    let marker_interval = hash_markers(item.size);
    let sum = |algorithm: &str, path: &[u8]| Op::Checksum {
        algorithm: algorithm.to_owned(),
        offset,
        length,
        path: path.to_vec(),
        marker_interval,
    };
    vec![
        Order::destination(Purpose::DestinationSum, sum(&shared.destination, manner.target(item))),
        Order::source(Purpose::SourceSum, sum(&shared.source, &item.source)),
    ]
}

/// The operations that give a proven file its attributes and then, in the same flight, its name: whoever sees the name
/// sees them, too.
pub fn naming_orders(job: &Job, temporary: &[u8], given: Given) -> Vec<Order> {
    let mut orders = attribute_orders(job, temporary, given);
    let op = Op::Rename { from: temporary.to_vec(), to: job.item.destination.clone() };
    orders.push(Order::destination(Purpose::Commit, op));
    orders
}

/// What the destination was not told before, or not all of: mode, then time, for setting the mode of some storage changes
/// the time.
pub fn attribute_orders(job: &Job, path: &[u8], given: Given) -> Vec<Order> {
    let item = &job.item;
    let rest = item.attributes.mode.filter(|mode| given.mode_of(item) != Some(*mode));
    let mode = rest.map(|mode| Op::SetMode { path: path.to_vec(), mode });
    let time = item.attributes.modified.filter(|_| !given.time).map(|time| Op::SetModified {
        path: path.to_vec(),
        seconds: time.secs,
        nanoseconds: time.nanos,
    });
    mode.into_iter().chain(time).map(|op| Order::destination(Purpose::Make, op)).collect()
}

#[cfg(test)]
mod tests {
    use whimbrel_engine::RangeSet;
    use whimbrel_engine::listing::Timestamp;

    use super::super::fixtures::{job, manner};
    use super::*;

    const TEMPORARY: &[u8] = b"/d/.f.whimbrel";

    fn purposes(orders: &[Order]) -> Vec<Purpose> {
        orders.iter().map(|order| order.purpose).collect()
    }

    #[test]
    fn leaves_of_a_whole_file_grow_with_it_until_one_reply_cannot_tell_them() {
        let leaves = |size: u64| (leaf_of_whole(Some(size)), size.div_ceil(leaf_of_whole(Some(size))));
        assert_eq!(leaves(1 << 30), (16 << 20, 64));
        for size in [107 << 30, 300 << 30, 1 << 40, 6 << 40] {
            let (leaf, count) = leaves(size);
            assert!(leaf::is_size(leaf) && count <= MOST_LEAVES_OF_WHOLE && is_told_in_reply(Some(size)), "{size}");
        }
        assert!(is_told_in_reply(None) && !is_told_in_reply(Some(8 << 40)), "leaves grow no further");
    }

    #[test]
    fn a_file_that_is_named_later_asks_what_a_rename_would_replace() {
        let of = |may_exist| {
            let named = Named::Later { temporary: TEMPORARY.to_vec(), may_exist };
            orders(&job(Work::Copy), &Manner { named, ..manner() })
        };
        let moves = [Purpose::Store, Purpose::Send, Purpose::DestinationSum, Purpose::SourceSum];
        assert_eq!(purposes(&of(true)), [&[Purpose::Target], &moves[..]].concat());
        assert_eq!(purposes(&of(false)), moves);
        match &of(false)[..] {
            [Order { op: Op::Receive(receive), .. }, _, Order { op: Op::Checksum { path, .. }, .. }, _] => {
                assert_eq!((receive.path.as_slice(), path.as_slice()), (TEMPORARY, TEMPORARY));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_nothing_proves_is_measured_before_it_has_its_name() {
        let named = Named::Later { temporary: TEMPORARY.to_vec(), may_exist: false };
        let proof = Err(whimbrel_engine::progress::Verification::NotAsked);
        let manner = Manner { named, proof, measured: true, ..manner() };
        let of = |job: &Job| orders(job, &manner);
        assert_eq!(purposes(&of(&job(Work::Copy))), [Purpose::Store, Purpose::Send, Purpose::Length]);
        assert!(matches!(&of(&job(Work::Copy))[2].op, Op::Size(path) if path == TEMPORARY));
        // Of a device nobody knows how much comes, and of a part of a file its length tells nothing.
        let mut device = job(Work::Copy);
        device.item.size = None;
        let mut part = job(Work::Copy);
        part.item.range = Some(100..400);
        assert!([device, part].iter().all(|job| !purposes(&of(job)).contains(&Purpose::Length)));
    }

    #[test]
    fn where_the_source_comes_first_nothing_else_is_asked() {
        let first = orders(&job(Work::Copy), &Manner { named: Named::SourceFirst, ..manner() });
        assert_eq!(purposes(&first), [Purpose::SourceSum]);
    }

    #[test]
    fn names_are_told_apart_in_a_directory_of_their_own_of_which_nothing_is_left() {
        let mut job = job(Work::TellApart);
        job.item.destination = b"/d/readme".to_vec();
        job.item.twins = vec![b"README".to_vec()];
        let (mut made, mut removed) = (Vec::new(), Vec::new());
        for order in orders(&job, &manner()) {
            match order.op {
                Op::MakeDirectory(path) => made.push((order.purpose, path)),
                Op::RemoveDirectory(path) => removed.push(path),
                other => panic!("{other:?}"),
            }
        }
        let place = made[0].1.clone();
        assert!(place.starts_with(b"/d/.whimbrel-"), "{place:?}");
        let purposes: Vec<_> = made.iter().map(|(purpose, _)| *purpose).collect();
        assert_eq!(purposes, [Purpose::Make, Purpose::Trial, Purpose::TellApart]);
        assert_eq!(
            (made[1].1.clone(), made[2].1.clone()),
            ([&place[..], b"/README"].concat(), [&place[..], b"/readme"].concat())
        );
        let all: Vec<_> = [1, 2, 0].into_iter().map(|index: usize| made[index].1.clone()).collect();
        assert_eq!(removed, all);
    }

    #[test]
    fn attributes_are_set_before_the_name_is_given() {
        let mut job = job(Work::Copy);
        job.item.attributes.mode = Some(0o640);
        job.item.attributes.modified = Some(Timestamp { secs: 7, nanos: 0 });
        let of = |time, mode| purposes(&naming_orders(&job, TEMPORARY, Given { time, mode }));
        assert_eq!(of(false, false), [Purpose::Make, Purpose::Make, Purpose::Commit]);
        assert_eq!(of(true, false), [Purpose::Make, Purpose::Commit]);
        assert_eq!(of(true, true), [Purpose::Commit]);
    }

    #[test]
    fn a_destination_that_takes_modes_is_told_with_the_store_and_only_the_rest_follows() {
        let given = Given { time: false, mode: true };
        let of = |mode, given| {
            let mut job = job(Work::Copy);
            job.item.attributes.mode = Some(mode);
            let [Order { op: Op::Receive(receive), .. }, _] = transfer_orders(&job, &Manner { given, ..manner() })
            else {
                panic!("a receive");
            };
            let after = attribute_orders(&job, b"/d/f", given).pop().map(|order| match order.op {
                Op::SetMode { mode, .. } => mode,
                other => panic!("{other:?}"),
            });
            (receive.mode, after)
        };
        assert_eq!(of(0o640, given), (Some(0o640), None));
        assert_eq!(of(0o600, Given::default()), (None, Some(0o600)), "another server");
        // Whoever lost the answer must be able to go on with the file; others never get more than they will have.
        assert_eq!(of(0o440, given), (Some(0o640), Some(0o440)));
        assert_eq!(of(0o000, given), (Some(0o600), Some(0o000)));
        assert_eq!(
            of(0o4755, given),
            (Some(0o755), Some(0o4755)),
            "what runs as somebody else is whole before it does"
        );
    }

    #[test]
    fn what_goes_on_with_an_earlier_attempt_asks_whether_the_source_is_still_what_was_listed() {
        let mut job = job(Work::Copy);
        assert!(!purposes(&orders(&job, &manner())).contains(&Purpose::Version));
        job.received = RangeSet::from(0..10);
        let behind = purposes(&orders(&job, &manner()));
        let at = |wanted| behind.iter().position(|purpose| *purpose == wanted);
        assert!(at(Purpose::Version).is_some() && at(Purpose::Version) > at(Purpose::Send), "{behind:?}");
    }

    #[test]
    fn a_stream_goes_on_only_behind_an_unbroken_beginning() {
        let mut job = job(Work::Copy);
        job.received = [0..10, 20..30].into_iter().collect::<RangeSet>();
        let done = |mode| match transfer_orders(&job, &Manner { mode, ..manner() }) {
            [Order { op: Op::Receive(ReceiveSpec { write: WriteKind::Restart { done }, .. }), .. }, _] => done,
            other => panic!("{other:?}"),
        };
        assert_eq!(done(Mode::Extended), job.received.as_slice());
        assert_eq!(done(Mode::Stream), RangeSet::from(0..10).as_slice());
    }

    #[test]
    fn of_a_range_only_what_is_missing_behind_its_beginning_moves() {
        let mut job = job(Work::Copy);
        job.item.range = Some(100..400);
        job.received = RangeSet::from(100..250);
        assert_eq!(window(&job), Some(250..400));
        job.received = RangeSet::from(200..250);
        assert_eq!(window(&job), Some(100..400));
    }
}

//! The automatic plan: whether large files are moved in chunks, how large, over how many sessions and channels, each
//! choice with its reason; changed while running by a [`Controller`], told by an [`Explain`].
//!
//! The paper on client-driven chunking (*Globus Service Enhancements for Exascale Applications*, 2020) leaves this as
//! future work; its measurements give the bounds: too small a chunk costs commands, too large a one leaves sessions idle.

use std::time::Duration;

use self::starved::STARVED;
use crate::transfer::{Chunking, TransferOptions};
use crate::tune::{self, Choice, Fixed, Setting, TuneInput, Tuning};
use crate::units::ByteCount;

mod control;
mod explain;
mod few;
mod imposed;
mod parts;
#[cfg(test)]
mod simulation;
mod sizes;
mod spending;
mod starved;
mod steering;

pub use control::{Controller, Limits};
pub use explain::{Bottleneck, Explain, Figures, Line};
pub use imposed::Imposed;
pub use sizes::Sizes;
pub use spending::{EndSpent, Spending};
pub use starved::{PACED, UNPACED};
pub use steering::{Sent, Steering};

/// Bytes of a leaf. Never chosen: a run that goes on where another ended must cut the file in the same places.
pub const LEAF: u64 = 16 << 20;
/// Fewest leaves of a chunk: a sender hashes so many at once.
pub const LEAVES: u64 = Chunking::IN_STEP;
/// Smallest leaf, bytes, for chunks that the user wants small.
const LEAST_LEAF: u64 = 4096;
/// Chunks that each session has to move: one moves, and one waits behind it. No more: the word about what is proven is sent
/// in front of the third, so that the destination keeps it one chunk later.
const AHEAD: u32 = 2;
/// Files below this are not worth an opening and a commit between near peers.
const THRESHOLD: u64 = 2 * LEAVES * LEAF;
/// The least under a bound on the rate: opening a file for parts takes round trips.
const BOUND_THRESHOLD: u64 = 8 << 20;
/// The same on longer ways, unless an opening and a commit would be much of a file's time there.
const FAR_THRESHOLD: u64 = 2 * LEAF;
/// Round trips that a file must last for that.
const FAR_TRIPS: f64 = 10.0;
/// The same where an end has several nodes: whole, a file has the speed of one of them, perhaps the slowest.
const SPREAD: u64 = 8 << 20;
/// Sessions that fill a path between two distant nodes.
const DISTANT: u32 = 4;
/// Channels that each session keeps however many there are: one goes on while the other recovers from a loss.
const LEAST_SHARE: u32 = 2;
/// Bytes per second assumed where nothing was measured: 1 Gbit/s; and between near peers, to compare processors with.
const ASSUMED_RATE: f64 = 125e6;
const ASSUMED_NEAR_RATE: f64 = 500e6;
/// Longest time for a part where others may use the path: only at its end is known whether they do, and only then their share is
/// given back to them.
const BRIEF: Duration = Duration::from_secs(5);
/// Payload bytes of a segment on an Ethernet path with time stamps.
const SEGMENT: f64 = 1448.0;

/// What one end can take.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EndFacts {
    /// Data transfer nodes; at least 1.
    pub nodes: u32,
    /// Most sessions that it accepts, all nodes together, when it says so.
    pub sessions: Option<u32>,
    /// Processors that transfers may use on each node, when known; a part of one where its administrator bounds them so.
    pub processors: Option<f64>,
}

impl EndFacts {
    /// All nodes together.
    fn processors(&self) -> Option<f64> {
        self.processors.map(|each| each * f64::from(self.nodes.max(1)))
    }
}

impl Default for EndFacts {
    fn default() -> Self {
        Self { nodes: 1, sessions: None, processors: None }
    }
}

/// What is known when the plan is made; what is not known is assumed as each choice says.
#[derive(Debug, Clone, Default)]
pub struct Facts {
    /// The files known so far.
    pub sizes: Sizes,
    /// Whether more files may come.
    pub more_to_come: bool,
    /// The source.
    pub source: EndFacts,
    /// The destination.
    pub destination: EndFacts,
    /// Round-trip time of the data path, when known.
    pub rtt: Option<Duration>,
    /// Round-trip time of the control path, when known.
    pub control_rtt: Option<Duration>,
    /// Bytes per second that were measured between the ends, or that the link carries.
    pub rate: Option<f64>,
    /// Most bytes per second that the run may move; `None`: no bound.
    pub max_rate: Option<u64>,
    /// Part of the segments that is lost, 0 to 1, when known.
    pub loss: Option<f64>,
    /// Largest window of one channel, bytes, when known.
    pub window: Option<u64>,
    /// Most data channels for each session.
    pub max_parallelism: Option<u32>,
    /// Whether the peers take commands ahead of replies.
    pub can_pipeline: bool,
    /// Whether both ends can move and store parts of a file in any order.
    pub can_chunk: bool,
    /// Whether copies are proven.
    pub verify: bool,
    /// Whether that takes commands of their own behind each part: an end is of another kind and proves nothing while it moves.
    pub checks_follow: bool,
    /// Congestion controls that the source lets us choose, its own first; empty where it does not say.
    pub congestions: Vec<String>,
    /// The one that the user fixed.
    pub congestion: Option<String>,
    /// What the user fixed of the rest.
    pub fixed: Fixed,
    /// Bytes of a chunk as the user fixed them; `Fixed(None)` forbids chunks.
    pub chunk: Setting<Option<u64>>,
    /// What the administrators of the ends decide, where the user decides nothing.
    pub imposed: Option<Imposed>,
}

/// The plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Sessions, channels, pipelines and buffers.
    pub tuning: Tuning,
    /// Whether and how large files are moved in parts.
    pub chunking: Choice<Option<Chunking>>,
    /// Congestion control that senders begin with; `None`: their own.
    pub congestion: Choice<Option<String>>,
}

impl Plan {
    /// The machine's options that follow from it.
    pub fn options(&self, facts: &Facts) -> TransferOptions {
        let options = TransferOptions::tuned(&facts.tune_input(), &self.tuning);
        let unequal = facts.pairs() > 1;
        // What asks for checksums behind a file would ask for them behind the next one.
        let whole_ahead = !unequal && !facts.checks_follow && options.pipeline != Setting::Fixed(1);
        let (chunking, alone) = (self.chunking.value, facts.alone());
        let brief = facts.is_shared().then_some(BRIEF);
        TransferOptions { chunking, unequal, whole_ahead, brief, alone, max_rate: facts.max_rate, ..options }
    }
}

impl Facts {
    /// The same for the first choices that know no chunks.
    pub fn tune_input(&self) -> TuneInput {
        TuneInput {
            files: self.sizes.files(),
            bytes: self.sizes.bytes(),
            more_to_come: self.more_to_come,
            rtt: self.rtt,
            control_rtt: self.control_rtt,
            max_sessions: self.most_sessions(),
            max_parallelism: self.max_parallelism,
            can_pipeline: self.can_pipeline,
            fixed: self.fixed,
        }
    }

    /// Whether both ends have several nodes, and unequally many: with more sessions than nodes each meets several of the others,
    /// so that a fast one is not bound to a slow one.
    fn mixes(&self) -> bool {
        let (source, destination) = (self.source.nodes, self.destination.nodes);
        source.min(destination) > 1 && source != destination
    }

    /// Nodes of the larger end, 1 at least: each needs a session of its own to do anything.
    pub fn pairs(&self) -> u32 {
        self.source.nodes.max(self.destination.nodes).max(1)
    }

    fn most_sessions(&self) -> Option<u32> {
        [self.source.sessions, self.destination.sessions].into_iter().flatten().min().map(|most| most.max(1))
    }

    /// Whole processors of the end that has fewer in all, one at least.
    fn processors(&self) -> Option<u32> {
        let all = [self.source.processors(), self.destination.processors()];
        all.into_iter().flatten().min_by(f64::total_cmp).map(|least| (least as u32).max(1))
    }

    fn rate(&self) -> f64 {
        let rate = self.rate.filter(|rate| *rate > 0.0).unwrap_or(ASSUMED_RATE);
        self.max_rate.map_or(rate, |most| rate.min(most.max(1) as f64))
    }

    /// What the source sends with, where that is BBR: it paces, and takes no loss for congestion.
    fn paced(&self) -> Option<&str> {
        let sends = self.congestion.as_ref().or(self.congestions.first());
        sends.map(String::as_str).filter(|name| name.starts_with(PACED))
    }

    /// Round-trip time of the data path, or else of the control path.
    fn any_rtt(&self) -> Option<Duration> {
        self.rtt.or(self.control_rtt)
    }

    fn is_near(&self) -> bool {
        self.rtt.is_some_and(|rtt| rtt < Duration::from_millis(2))
    }

    /// Whether others may use the path between two nodes, and parts are as long as suits it: an end that is starved, or checked
    /// behind each part, pays for more of them.
    fn is_shared(&self) -> bool {
        let chosen = imposed::chunk(self, self.imposed.as_ref()).0 == Setting::Auto;
        chosen && self.pairs() == 1 && !self.is_near() && !self.checks_follow && self.starved_piece().is_none()
    }

    /// Bytes per second that one channel reaches, by its window and by loss (Mathis et al. 1997: `1.22 MSS / (RTT sqrt p)`).
    fn channel_rate(&self) -> f64 {
        let rtt = self.rtt.unwrap_or_default().as_secs_f64();
        if rtt <= 0.0 {
            return f64::INFINITY;
        }
        let by_window = self.window.map_or(f64::INFINITY, |window| window as f64 / rtt);
        let loss = self.loss.filter(|loss| *loss > 0.0 && self.paced().is_none());
        let by_loss = loss.map_or(f64::INFINITY, |loss| 1.22 * SEGMENT / (rtt * loss.sqrt()));
        by_window.min(by_loss)
    }

    /// Channels in all that fill the path.
    fn channels_needed(&self) -> u32 {
        (self.rate() / self.channel_rate()).ceil().clamp(1.0, 256.0) as u32
    }

    fn may_chunk(&self) -> bool {
        self.can_chunk && imposed::chunk(self, self.imposed.as_ref()).0 != Setting::Fixed(None)
    }

    /// Fewest bytes of a file that is worth dividing.
    fn threshold(&self) -> u64 {
        if self.pairs() == 1
            && let Some(piece) = self.starved_piece()
        {
            return piece;
        }
        // Nothing slows a file that is moved whole: under a bound on the rate those are short.
        let bound = self.max_rate.map_or(u64::MAX, |most| (1 << most.max(1).ilog2()).max(BOUND_THRESHOLD));
        bound.min(match self.control_rtt {
            _ if self.pairs() > 1 => SPREAD,
            Some(rtt) if !self.is_near() => {
                let bytes = (FAR_TRIPS * rtt.as_secs_f64() * self.rate()) as u64;
                // Sizes are counted by powers of two.
                (1 << bytes.max(1).ilog2()).clamp(FAR_THRESHOLD, THRESHOLD)
            }
            _ => THRESHOLD,
        })
    }

    /// Pieces that can be moved at the same time: files, and parts of those that can be divided.
    fn pieces(&self) -> u64 {
        let threshold = self.threshold();
        let (large, bytes) = (self.sizes.files_from(threshold), self.sizes.bytes_from(threshold));
        match self.may_chunk() {
            true => self.sizes.files() - large + bytes / (threshold / 2),
            false => self.sizes.files(),
        }
    }
}

/// Makes the plan.
pub fn plan(facts: &Facts) -> Plan {
    let mut tuning = tune::choose(&facts.tune_input());
    let by_path = channels(facts, tuning.parallelism);
    let alone = starved_channels(facts, by_path.clone());
    tuning.concurrency = sessions(facts, alone.value, tuning.concurrency);
    tuning.parallelism = starved_channels(facts, shared_channels(facts, tuning.concurrency.value, by_path));
    let chunking = chunking(facts, tuning.concurrency.value, facts.imposed.as_ref());
    Plan { tuning, chunking, congestion: congestion(facts) }
}

fn choice<T>(value: T, reason: impl Into<String>) -> Choice<T> {
    Choice { value, reason: reason.into() }
}

/// More channels where loss or windows keep each of them below its share of the path.
fn channels(facts: &Facts, first: Choice<u32>) -> Choice<u32> {
    let one = ByteCount(facts.channel_rate() as u64);
    let needed = facts.channels_needed().min(8);
    more_channels(facts, first, choice(needed, format!("loss and windows keep one channel at {one}/s")))
}

/// More channels where a source is starved.
fn starved_channels(facts: &Facts, first: Choice<u32>) -> Choice<u32> {
    match starved::channels(facts) {
        Some(other) => more_channels(facts, first, other),
        None => first,
    }
}

/// The other choice where it asks for more than the first, up to the limit of the ends.
fn more_channels(facts: &Facts, first: Choice<u32>, other: Choice<u32>) -> Choice<u32> {
    let value = other.value.min(facts.max_parallelism.unwrap_or(u32::MAX).max(1));
    let tiny = facts.sizes.files() > 0 && facts.sizes.mean() < LEAF / 2;
    if facts.fixed.parallelism != Setting::Auto || tiny || value <= first.value {
        return first;
    }
    Choice { value, ..other }
}

/// Fewer channels where many nodes share a path, so that all sessions together have as many as those between two nodes would:
/// the parts at the end wait for the last of their channels, and the more there are the less each recovers of a loss in time.
fn shared_channels(facts: &Facts, sessions: u32, first: Choice<u32>) -> Choice<u32> {
    let alone = first.value.saturating_mul(DISTANT);
    let share = alone.div_ceil(sessions.max(1)).max(LEAST_SHARE).max(facts.channels_needed().div_ceil(sessions.max(1)));
    if facts.pairs() == 1 || facts.fixed.parallelism != Setting::Auto || share >= first.value {
        return first;
    }
    choice(share, format!("{alone} in all, which {sessions} sessions of several nodes share"))
}

/// The sender's own, until something speaks against it.
fn congestion(facts: &Facts) -> Choice<Option<String>> {
    match &facts.congestion {
        Some(name) => choice(Some(name.clone()), "set by the user"),
        None => starved::congestion(facts)
            .unwrap_or_else(|| choice(None, "the sender's own, until loss is what limits and another is faster")),
    }
}

fn sessions(facts: &Facts, channels: u32, first: Choice<u32>) -> Choice<u32> {
    if facts.fixed.concurrency != Setting::Auto {
        return first;
    }
    let mut best = first;
    let mut at_least = |value: u32, reason: String| {
        if value > best.value {
            best = choice(value, reason);
        }
    };
    if facts.may_chunk() {
        // What divides is not bound to the number of files.
        match (facts.is_near(), facts.processors()) {
            (true, processors) => at_least(
                processors.unwrap_or(2).clamp(2, 4),
                "a near peer: parts overlap reading, hashing and writing".into(),
            ),
            (false, _) => at_least(DISTANT, "a distant peer: parts fill the path while others begin and end".into()),
        }
    }
    at_least(facts.pairs(), format!("one for each of {} data transfer nodes", facts.pairs()));
    if facts.mixes() {
        let mixed = (3 * facts.pairs()).div_ceil(2);
        at_least(
            mixed,
            format!("{mixed} for {} data transfer nodes: each works with several of the other end", facts.pairs()),
        );
    }
    let needed = facts.channels_needed();
    at_least(needed.div_ceil(channels.max(1)), format!("{needed} channels fill the path, {channels} in each session"));
    let mut at_most = |value: u64, reason: &str| {
        if value < u64::from(best.value) {
            best = choice(value.max(1) as u32, reason);
        }
    };
    if let Some(processors) = facts.processors() {
        at_most(u64::from(processors.saturating_mul(4)), "four for each processor: more only wait for each other");
    }
    if let Some(Choice { value, reason }) = facts.starved_sessions() {
        at_most(u64::from(value), &reason);
    }
    if !facts.more_to_come && facts.sizes.files() > 0 {
        at_most(facts.pieces(), "one for each file or part");
    }
    if let Some(most) = facts.most_sessions() {
        at_most(u64::from(most), "the most that the ends accept");
    }
    if let Some((most, by)) = facts.imposed.as_ref().and_then(|imposed| Some((imposed.sessions?, &imposed.by))) {
        at_most(u64::from(most), &format!("set by {by}"));
    }
    best
}

fn chunking(facts: &Facts, sessions: u32, imposed: Option<&Imposed>) -> Choice<Option<Chunking>> {
    let (wanted, by) = imposed::chunk(facts, imposed);
    if wanted == Setting::Fixed(None) {
        return choice(None, in_one_piece(facts, by));
    }
    if !facts.can_chunk {
        return choice(None, in_one_piece(facts, "an end cannot store the parts of a file in any order"));
    }
    let mut size = parts::size(facts, sessions);
    let (mut leaf, mut threshold) = (LEAF, facts.threshold());
    if let Setting::Fixed(Some(bytes)) = wanted {
        size = choice(bytes, by);
        if bytes < LEAVES * LEAF {
            // Smaller chunks than leaves usually allow: somebody's word, with leaves that fit.
            leaf = (1 << (bytes / LEAVES).max(1).ilog2()).clamp(LEAST_LEAF, LEAF);
            threshold = bytes.saturating_mul(2);
        } else {
            threshold = THRESHOLD;
        }
    } else if let Some(why) = whole(facts, sessions) {
        return choice(None, why);
    }
    let mut reason = size.reason;
    if let Some((most, by)) = imposed::leaf(facts, imposed).filter(|(most, _)| *most < leaf) {
        leaf = most;
        reason += &format!(", leaves of {} {by}", ByteCount(leaf));
    }
    let chunking = Chunking { chunk: size.value, leaf, threshold, ahead: AHEAD }.normal();
    let reason = format!("parts of {}: {reason}", ByteCount(chunking.chunk));
    choice(Some(chunking), reason)
}

/// A reason why files are not divided, with what that means for a bound on the rate.
fn in_one_piece(facts: &Facts, why: impl std::fmt::Display) -> String {
    match facts.max_rate {
        Some(_) => format!("{why}; each file goes as fast as it can, and the rate is kept between files only"),
        None => why.to_string(),
    }
}

/// Why files had better stay whole, if they had.
fn whole(facts: &Facts, sessions: u32) -> Option<String> {
    if facts.more_to_come {
        return None;
    }
    let threshold = facts.threshold();
    let large = facts.sizes.files_from(threshold);
    if large == 0 {
        let why = facts.starved_rate().map(|_| format!(": {STARVED}")).unwrap_or_default();
        return Some(format!("no file has {}{why}", ByteCount(threshold)));
    }
    if facts.verify || facts.max_rate.is_some() {
        // Parts are read back while others move; a whole file is read back after it has moved.
        return None;
    }
    if sessions < 2 {
        return Some("one session moves a file as fast in one piece, and nothing is to be proven".into());
    }
    let even = facts.sizes.bytes_from(threshold) / u64::from(sessions);
    let many = large >= 16 * u64::from(sessions) && facts.sizes.largest() <= even / 16;
    many.then(|| format!("{large} large files keep {sessions} sessions busy to the end"))
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) const MIB: u64 = 1 << 20;
    pub(super) const GIB: u64 = 1 << 30;

    pub(super) fn facts(files: &[u64], rtt_ms: u64) -> Facts {
        let rtt = Some(Duration::from_millis(rtt_ms));
        Facts {
            sizes: files.iter().copied().collect(),
            rtt,
            control_rtt: rtt,
            can_pipeline: true,
            can_chunk: true,
            verify: true,
            ..Facts::default()
        }
    }

    pub(super) fn chunk(plan: &Plan) -> Option<u64> {
        plan.chunking.value.map(|chunking| chunking.chunk)
    }

    #[test]
    fn parts_are_brief_where_others_may_use_the_path_and_nothing_speaks_against_it() {
        let brief = |facts: &Facts| plan(facts).options(facts).brief;
        let far = facts(&[GIB], 75);
        assert_eq!(brief(&far), Some(BRIEF));
        assert_eq!(brief(&Facts { rtt: None, ..far.clone() }), Some(BRIEF), "between servers of unknown distance");
        assert_eq!(brief(&facts(&[GIB], 0)), None, "near");
        assert_eq!(brief(&Facts { chunk: Setting::Fixed(Some(GIB)), ..far.clone() }), None, "somebody's word");
        assert_eq!(brief(&Facts { checks_follow: true, ..far.clone() }), None);
        assert_eq!(brief(&Facts { source: EndFacts { nodes: 2, ..EndFacts::default() }, ..far }), None);
    }

    #[test]
    fn one_large_file_is_divided_among_a_few_sessions() {
        let near = plan(&facts(&[4 * GIB], 0));
        assert_eq!((near.tuning.concurrency.value, chunk(&near)), (2, Some(512 * MIB)));
        let far = plan(&facts(&[GIB], 75));
        assert_eq!((far.tuning.concurrency.value, far.tuning.parallelism.value), (4, 4));
        assert_eq!(chunk(&far), Some(128 * MIB));
        assert!(far.chunking.reason.contains("8 leaves"), "{}", far.chunking.reason);
    }

    #[test]
    fn every_node_meets_several_of_the_other_end_up_to_the_limits() {
        let mut many = facts(&[1 << 50], 30);
        many.source.nodes = 12;
        many.destination.nodes = 28;
        many.rate = Some(12.5e9);
        let all = plan(&many);
        assert_eq!(all.tuning.concurrency.value, 42);
        assert!(all.tuning.concurrency.reason.contains("28 data transfer nodes"), "{:?}", all.tuning.concurrency);
        // 10 s of 12.5 GB/s / 42.
        assert_eq!(chunk(&all), Some((125_000_000_000 / 42u64).next_multiple_of(LEAF)));
        // As many nodes at both ends work in pairs.
        many.source.nodes = 28;
        assert_eq!(plan(&many).tuning.concurrency.value, 28);
        many.source.nodes = 12;
        many.destination.sessions = Some(16);
        let limited = plan(&many);
        assert_eq!(limited.tuning.concurrency.value, 16);
        assert_eq!(limited.tuning.concurrency.reason, "the most that the ends accept");
        many.fixed.concurrency = Setting::Fixed(3);
        assert_eq!(plan(&many).tuning.concurrency.value, 3);
    }

    #[test]
    fn the_sessions_of_many_nodes_share_the_channels_of_a_path() {
        let channels = |nodes: u32, rtt_ms: u64| {
            let mut cluster = facts(&[GIB], rtt_ms);
            (cluster.source.nodes, cluster.destination.nodes) = (nodes.div_ceil(2), nodes);
            let tuning = plan(&cluster).tuning;
            (tuning.concurrency.value, tuning.parallelism.value)
        };
        assert_eq!([1, 5, 28].map(|nodes| channels(nodes, 170)), [(4, 8), (8, 4), (42, 2)]);
        assert_eq!([1, 5].map(|nodes| channels(nodes, 75)), [(4, 4), (8, 2)]);
        assert_eq!(channels(5, 4), (8, 2));
        let mut fixed = facts(&[GIB], 170);
        (fixed.source.nodes, fixed.destination.nodes) = (3, 5);
        fixed.fixed.parallelism = Setting::Fixed(8);
        assert_eq!(plan(&fixed).tuning.parallelism.value, 8);
        // Where each channel is known to be slow, as many as fill the path.
        let slow = Facts { window: Some(64 << 10), fixed: Fixed::default(), ..fixed };
        assert!(plan(&slow).tuning.parallelism.value >= 8, "{:?}", plan(&slow).tuning);
    }

    #[test]
    fn even_a_file_of_some_megabytes_is_spread_over_all_nodes() {
        let mut cluster = facts(&[30 * MIB], 10);
        assert_eq!((plan(&cluster).tuning.concurrency.value, chunk(&plan(&cluster))), (1, None));
        (cluster.source.nodes, cluster.destination.nodes) = (3, 5);
        let spread = plan(&cluster);
        assert_eq!(spread.tuning.concurrency.value, 7);
        assert_eq!(spread.chunking.value.map(|chunking| chunking.threshold), Some(SPREAD));
        cluster.sizes = [SPREAD - 1].into_iter().collect();
        assert_eq!((plan(&cluster).tuning.concurrency.value, chunk(&plan(&cluster))), (1, None));
    }

    #[test]
    fn on_longer_ways_shorter_files_are_divided_unless_an_opening_and_a_commit_would_be_much_of_their_time() {
        let threshold = |rtt: u64, rate: Option<f64>| Facts { rate, ..facts(&[GIB], rtt) }.threshold() / MIB;
        assert_eq!([0, 1].map(|rtt| threshold(rtt, None)), [256, 256], "near");
        assert_eq!([5, 75, 300].map(|rtt| threshold(rtt, None)), [32, 64, 256]);
        assert_eq!(threshold(75, Some(12.5e6)), 32, "a slow path has few bytes in ten round trips");
        let divided = plan(&facts(&[100 * MIB], 75));
        assert!(chunk(&divided).is_some() && divided.tuning.concurrency.value > 1, "{divided:?}");
    }

    #[test]
    fn loss_asks_for_channels_and_then_for_sessions_unless_it_does_not_matter() {
        let mut lossy = facts(&[100 * GIB], 75);
        lossy.loss = Some(1e-4);
        lossy.rate = Some(125e6);
        // 1.22 * 1448 / (0.075 * 0.01) = 2.355 MB/s: 54 channels, 8 in each of 7 sessions.
        let plan_ = plan(&lossy);
        assert_eq!((plan_.tuning.parallelism.value, plan_.tuning.concurrency.value), (8, 7));
        lossy.congestion = Some("bbr".into());
        let plan_ = plan(&lossy);
        assert_eq!((plan_.tuning.parallelism.value, plan_.tuning.concurrency.value), (4, 4));
        lossy.window = Some(64 << 10);
        // 64 KiB / 75 ms = 0.87 MB/s: 144 channels.
        assert_eq!(plan(&lossy).tuning.concurrency.value, 18);
        lossy.source.processors = Some(2.0);
        assert_eq!(plan(&lossy).tuning.concurrency.value, 8, "processors bound it");
    }

    #[test]
    fn a_long_fast_path_gets_chunks_that_last_ten_round_trips() {
        let mut long = facts(&[2 * GIB], 300);
        long.rate = Some(1.25e9);
        let plan = plan(&long);
        let each = 1.25e9 / f64::from(plan.tuning.concurrency.value);
        assert!(chunk(&plan).is_some_and(|chunk| chunk as f64 >= 10.0 * 0.3 * each), "{:?}", plan.chunking);
        assert!(plan.chunking.reason.contains("round trips"));
    }

    #[test]
    fn files_stay_whole_where_chunks_bring_nothing_or_are_not_wanted() {
        assert_eq!(chunk(&plan(&facts(&[60 * MIB; 5], 75))), None);
        let mut many = facts(&[GIB; 1000], 75);
        assert!(chunk(&plan(&many)).is_some(), "what is proven is read back while other parts move");
        many.verify = false;
        assert_eq!(chunk(&plan(&many)), None);
        many.more_to_come = true;
        assert!(chunk(&plan(&many)).is_some());
        many.can_chunk = false;
        assert_eq!(chunk(&plan(&many)), None);
        let mut fixed = facts(&[GIB], 75);
        fixed.chunk = Setting::Fixed(None);
        assert_eq!((chunk(&plan(&fixed)), plan(&fixed).tuning.concurrency.value), (None, 1));
        fixed.max_rate = Some(MIB);
        assert!(plan(&fixed).chunking.reason.contains("the rate is kept between files only"));
        fixed.max_rate = None;
        fixed.chunk = Setting::Fixed(Some(50 * MIB));
        assert_eq!(chunk(&plan(&fixed)), Some(52 * MIB), "whole leaves");
    }

    #[test]
    fn small_chunks_that_the_user_wants_have_leaves_that_fit() {
        let with = |bytes| {
            let fixed = Facts { chunk: Setting::Fixed(Some(bytes)), ..facts(&[GIB], 0) };
            let plan = plan(&fixed);
            let chunking = plan.chunking.value.expect("chunks were asked for");
            assert!(plan.chunking.reason.contains(&ByteCount(chunking.chunk).to_string()), "{}", plan.chunking.reason);
            (chunking.chunk, chunking.leaf, chunking.threshold)
        };
        assert_eq!(with(MIB), (MIB, MIB / 8, 2 * MIB));
        assert_eq!(with(10_000_000), (10 * MIB, MIB, 20_000_000));
        assert_eq!(with(10_000), (3 * 4096, 4096, 20_000));
        assert_eq!(with(256 * MIB), (256 * MIB, LEAF, THRESHOLD));
    }

    #[test]
    fn the_machine_works_as_planned() {
        let facts = facts(&[GIB], 75);
        let plan = plan(&facts);
        let options = plan.options(&facts);
        assert_eq!((options.concurrency, options.chunking), (4, plan.chunking.value));
    }

    #[test]
    fn whole_files_go_ahead_where_commands_may_and_the_reply_tells_all() {
        let ahead = |facts: &Facts| plan(facts).options(facts).whole_ahead;
        let free = facts(&[], 75);
        assert!(ahead(&free));
        let (mut fixed, mut nodes) = (free.clone(), free.clone());
        fixed.fixed.pipeline = Setting::Fixed(1);
        nodes.source.nodes = 2;
        let behind = Facts { checks_follow: true, ..free.clone() };
        let alone = Facts { can_pipeline: false, ..free };
        assert_eq!([fixed, nodes, behind, alone].map(|facts| ahead(&facts)), [false; 4]);
    }

    #[test]
    fn under_a_bound_on_the_rate_shorter_files_are_divided() {
        let free = facts(&[100 * MIB; 20], 0);
        assert_eq!(plan(&free).chunking.value, None);
        let bound = Facts { max_rate: Some(20 * MIB), verify: false, ..free };
        let plan = plan(&bound);
        let chunking = plan.chunking.value.expect("they are divided");
        assert_eq!((chunking.threshold, plan.options(&bound).max_rate), (16 * MIB, Some(20 * MIB)));
        assert_eq!(plan.chunking.reason, "parts of 33.6 MB: what 21.0 MB/s let pass in a second, or a leaf");
    }
}

//! An end whose processors are slower than the path: what it is asked for.
//!
//! A share of a processor comes in slices: a control group that may use a hundredth runs for a moment of each period (100 ms
//! on Linux) and stands still for the rest of it. The kernel goes on sending what stands in the buffers of the sockets
//! meanwhile, which costs the group nothing: the more room there is, the more is sent for the same share.

use super::{ASSUMED_NEAR_RATE, Choice, Facts, LEAF, choice};
use crate::transfer::Alone;
use crate::tune::Setting;
use crate::units::ByteCount;

/// Bytes per second that a source sends with a whole processor, and that a destination stores and reads back, about, as measured;
/// rather less.
const SENT_BY_ONE: f64 = 3e9;
const STORED_BY_ONE: f64 = 1.2e9;
/// How long an end that has less moves one piece, seconds: parts cost it, and what a failure loses is at most this.
const STARVED_SECONDS: f64 = 30.0;
/// Data channels of such a source: together they hold what it sends in a period. At 3 ms with 2 % of a processor sixteen without
/// pacing moved 1.5 times what two with it did (`docs/design/chunks.md`).
const CHANNELS: u32 = 16;
/// The congestion control that sends by timers as fast as it has seen the peer take it, and lets little stand in the buffers; names of
/// its later versions begin so.
pub const PACED: &str = "bbr";
/// What takes their place, the better one first.
pub const UNPACED: [&str; 2] = ["cubic", "reno"];

/// Sessions for each node of such an end that moves many files: one works while others wait for replies. A destination makes a
/// reply for each file, and makes those of several sessions together.
const OF_MANY_FROM: u32 = 2;
const OF_MANY_TO: u32 = 3;

/// What makes a file so long that such a destination had better take one at a time, for each node: it is busy with it for so many
/// round trips, which pass between two files of a session, and for so many seconds.
const ALONE_ROUND_TRIPS: f64 = 10.0;
const ALONE_SECONDS: f64 = 0.5;

/// Why there are few sessions and no parts: each costs a processor that has no time to spare.
pub(super) const STARVED: &str =
    "the processors of an end are slower than the path, and more at a time only costs them more";

/// An end whose processors are slower than the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Starved {
    Source,
    Destination,
}

impl Starved {
    /// Sessions for each node of it.
    fn sessions(self, many_files: bool) -> u32 {
        match self {
            _ if !many_files => 1,
            Self::Source => OF_MANY_FROM,
            Self::Destination => OF_MANY_TO,
        }
    }
}

impl Facts {
    /// Bytes per second that the processors of an end move, if the path moves more.
    pub(super) fn starved_rate(&self) -> Option<f64> {
        self.starved().map(|(_, rate)| rate)
    }

    /// That end, and what its processors move.
    pub(super) fn starved(&self) -> Option<(Starved, f64)> {
        let is_assumed = self.rate.is_none() && self.max_rate.is_none();
        let path = if is_assumed && self.is_near() { ASSUMED_NEAR_RATE } else { self.rate() };
        let source = self.source.processors().map(|share| (Starved::Source, share * SENT_BY_ONE));
        let destination = self.destination.processors().map(|share| (Starved::Destination, share * STORED_BY_ONE));
        let ends = [source, destination].into_iter().flatten();
        ends.min_by(|one, other| one.1.total_cmp(&other.1)).filter(|(_, least)| *least < path)
    }

    /// Bytes that each node of a starved end moves in one piece: what takes longer is worth a proof before its end.
    pub(super) fn starved_piece(&self) -> Option<u64> {
        let each = self.starved_rate()? / f64::from(self.pairs());
        Some(((each * STARVED_SECONDS) as u64).max(LEAF))
    }

    /// Most sessions for a starved end.
    pub(super) fn starved_sessions(&self) -> Option<Choice<u32>> {
        let (end, _) = self.starved()?;
        let most = self.pairs() * end.sessions(self.more_to_come);
        Some(match self.alone().filter(|_| self.more_to_come) {
            Some(alone) => choice(most, format!("{STARVED}, above all of files from {}", ByteCount(alone.least))),
            None => choice(most, STARVED),
        })
    }

    /// Files that such a destination takes one at a time, where the user does not say how many.
    pub(super) fn alone(&self) -> Option<Alone> {
        let (end, rate) = self.starved()?;
        let trips = self.any_rtt().unwrap_or_default().as_secs_f64() * ALONE_ROUND_TRIPS;
        let least = (rate / f64::from(self.pairs()) * trips.max(ALONE_SECONDS)) as u64;
        let may = end == Starved::Destination && self.fixed.concurrency == Setting::Auto;
        may.then(|| Alone { least, sessions: self.pairs() })
    }

    fn is_source_starved(&self) -> bool {
        self.starved().is_some_and(|(end, _)| end == Starved::Source)
    }
}

/// Channels of a source that stands still most of the time.
pub(super) fn channels(facts: &Facts) -> Option<Choice<u32>> {
    let why =
        "the source's processors are slower than the path: what waits in many buffers is sent while they stand still";
    facts.is_source_starved().then(|| choice(CHANNELS, why))
}

/// What such a source sends with where its own congestion control paces.
pub(super) fn congestion(facts: &Facts) -> Option<Choice<Option<String>>> {
    let own = facts.paced().filter(|_| facts.is_source_starved())?;
    let name = UNPACED.into_iter().find(|name| facts.congestions.iter().any(|known| known == name))?;
    let why =
        format!("the source's processors are slower than the path, and {own} would pace what they leave to be sent");
    Some(choice(Some(name.to_owned()), why))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::tests::{GIB, MIB, chunk, facts};
    use super::super::{EndFacts, plan};
    use super::*;
    use crate::tune::Setting;

    #[test]
    fn an_end_with_a_small_part_of_a_processor_is_asked_for_one_thing_at_a_time() {
        let mut starved = facts(&[GIB], 10);
        starved.source.processors = Some(0.02);
        let one = plan(&starved);
        assert_eq!((one.tuning.concurrency.value, chunk(&one)), (1, None));
        assert!(one.tuning.concurrency.reason == STARVED && one.chunking.reason.ends_with(STARVED), "{one:?}");
        // A slow path leaves time enough, and so have several such nodes together.
        starved.rate = Some(12.5e6);
        assert_eq!(plan(&starved).tuning.concurrency.value, 4);
        starved.rate = None;
        starved.source.nodes = 4;
        assert!(chunk(&plan(&starved)).is_some());
        starved.source = EndFacts { processors: Some(0.5), ..EndFacts::default() };
        assert_eq!(plan(&starved).tuning.concurrency.value, 4);
        starved.source.processors = Some(0.02);
        starved.more_to_come = true;
        let many = plan(&starved);
        assert_eq!(many.tuning.concurrency.value, 2, "of many files one waits for a reply");
        let mut stored = starved.clone();
        (stored.source.processors, stored.destination.processors) = (None, Some(0.02));
        assert_eq!(plan(&stored).tuning.concurrency.value, 3, "and replies are made together");
        // 24 MB/s: shorter than half a second, or ten round trips, a file is not worth a session's wait for the next.
        let alone = |facts: &Facts| plan(facts).options(facts).alone;
        assert_eq!(alone(&stored), Some(Alone { least: 12_000_000, sessions: 1 }));
        let far = Facts { rtt: Some(Duration::from_millis(200)), ..stored.clone() };
        assert_eq!(alone(&far).map(|alone| alone.least), Some(48_000_000));
        assert!(plan(&far).tuning.concurrency.reason.ends_with("above all of files from 48.0 MB"), "{:?}", plan(&far));
        stored.fixed.concurrency = Setting::Fixed(3);
        assert_eq!((alone(&stored), alone(&starved)), (None, None), "the user's word, and a source's files");
        // 30 s of 2 % of 3 GB/s: whatever files are still to be found, shorter ones stay whole.
        let piece = 1_800_000_000;
        assert_eq!(many.chunking.value.map(|chunking| chunking.threshold), Some(piece));
        let hours = plan(&Facts { sizes: [1 << 40].into_iter().collect(), more_to_come: false, ..starved });
        assert!(chunk(&hours).is_some_and(|chunk| chunk.abs_diff(piece) < LEAF), "what was proven stays: {hours:?}");
        let mut near = facts(&[4 * GIB], 0);
        near.destination.processors = Some(0.25);
        assert_eq!((plan(&near).tuning.concurrency.value, chunk(&plan(&near))), (1, None));
        near.destination.processors = Some(1.0);
        assert_eq!(plan(&near).tuning.concurrency.value, 2);
    }

    #[test]
    fn a_starved_source_gets_room_for_what_is_sent_while_it_stands_still() {
        let mut starved = facts(&[GIB], 3);
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        starved.congestions = names(&["bbr", "reno", "cubic"]);
        let chosen = |facts: &Facts| {
            let plan = plan(facts);
            (plan.tuning.parallelism.value, plan.congestion.value)
        };
        assert_eq!(chosen(&starved), (2, None), "it has processors");
        starved.source.processors = Some(0.02);
        assert_eq!(chosen(&starved), (16, Some("cubic".into())));
        assert!(plan(&starved).congestion.reason.contains("bbr would pace"), "{:?}", plan(&starved));
        let of = |edit: &dyn Fn(&mut Facts)| {
            let mut facts = starved.clone();
            edit(&mut facts);
            chosen(&facts)
        };
        assert_eq!(of(&|facts| facts.congestions = names(&["bbr", "reno"])), (16, Some("reno".into())));
        assert_eq!(of(&|facts| facts.congestions = names(&["bbr"])), (16, None), "nothing else is allowed");
        assert_eq!(
            of(&|facts| facts.congestions = names(&["reno", "bbr", "cubic"])),
            (16, None),
            "its own does not pace"
        );
        assert_eq!(of(&|facts| facts.congestions.clear()), (16, None), "it does not say");
        assert_eq!(of(&|facts| facts.max_parallelism = Some(4)).0, 4);
        assert_eq!(of(&|facts| facts.fixed.parallelism = Setting::Fixed(3)).0, 3);
        let nodes = of(&|facts| {
            (facts.source.nodes, facts.destination.nodes, facts.rate) = (3, 5, Some(1.25e9));
        });
        assert_eq!(nodes.0, 16, "each of several nodes stands still by itself: only what distance asks for is shared");
        assert_eq!(of(&|facts| facts.congestion = Some("bbr".into())).1, Some("bbr".into()), "the user's word");
        assert_eq!(of(&|facts| facts.sizes = [MIB; 1000].into_iter().collect()).0, 1, "over before they are used");
        assert_eq!(of(&|facts| std::mem::swap(&mut facts.source, &mut facts.destination)), (2, None));
    }
}

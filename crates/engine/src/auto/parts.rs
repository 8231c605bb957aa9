//! How large parts are: by measured rules where they are proven while they move, and where checks follow each part by the
//! model of *Transferring a Petabyte in a Day*.

use std::time::Duration;

use super::{Facts, LEAF, LEAVES, choice};
use crate::model::{Line, Model};
use crate::tune::Choice;
use crate::units::{ByteCount, ByteRate, HumanDuration};

/// Bytes per second of a checksum that a server of another kind computes: one stream of MD5.
const CHECKED_RATE: f64 = 500e6;
/// Seconds that a part costs such a server, round trips aside: it opens the file, and ends its data connections' transfer.
const PART: f64 = 2e-3;
/// Longest time for a part, seconds, so that little is lost by a failure.
const LONGEST: f64 = 10.0;
/// Parts for each session where nothing else decides.
const SHARES: u64 = 4;

/// Bytes of a part: no more than 10 seconds of a session's rate, and never less than 8 leaves, but for starved ends.
pub(super) fn size(facts: &Facts, sessions: u32) -> Choice<u64> {
    let known = facts.sizes.bytes_from(facts.threshold());
    let follow = facts.verify && facts.checks_follow && known > 0;
    if !follow && let Some(piece) = facts.starved_piece() {
        return by_processors(piece, known, facts.pairs());
    }
    let each = facts.rate() / f64::from(sessions.max(1));
    let mut size = if follow { by_model(facts, known, sessions) } else { by_share(known, sessions) };
    let (seconds, least) = ((LONGEST * each) as u64, LEAVES * LEAF);
    if seconds < size.value {
        size = choice(seconds, "about 10 seconds of a session's rate, so that little is lost by a failure");
    }
    let trips = (10.0 * facts.rtt.unwrap_or_default().as_secs_f64() * each) as u64;
    if !follow && trips > size.value {
        size = choice(trips, "10 round trips of a session's rate, so that beginnings do not count");
    }
    if least > size.value {
        size = choice(least, "8 leaves, which are hashed at once");
    }
    size.value = size.value.next_multiple_of(LEAF);
    match facts.max_rate {
        Some(most) if most.max(LEAF) < size.value => {
            choice(most.max(LEAF), format!("what {}/s let pass in a second, or a leaf", ByteCount(most)))
        }
        _ => size,
    }
}

/// A quarter of what each session will have of the large files.
fn by_share(known: u64, sessions: u32) -> Choice<u64> {
    let share = if known == 0 { u64::MAX } else { known / (SHARES * u64::from(sessions.max(1))) };
    choice(share, "each session gets four of them")
}

/// What each node of a starved end moves in one piece, or its share of the large files.
fn by_processors(piece: u64, known: u64, nodes: u32) -> Choice<u64> {
    let share = if known == 0 { u64::MAX } else { known / u64::from(nodes) };
    let why = "half a minute of what the processors of an end move: more parts only cost them more";
    choice(piece.min(share).max(LEAF).next_multiple_of(LEAF), why)
}

/// What takes the least time where each part is checked while the next one moves.
fn by_model(facts: &Facts, known: u64, sessions: u32) -> Choice<u64> {
    let model = model(facts, sessions);
    let parts = model.best_files(known, known / (LEAVES * LEAF)).max(sessions.into());
    let time = Duration::try_from_secs_f64(model.seconds(known, parts)).unwrap_or(Duration::MAX);
    let (time, rate) = (HumanDuration(time), ByteRate(facts.rate()));
    let reason = format!("{parts} take the least time, {time} at {rate}: each is checked while the next one moves");
    choice(known.div_ceil(parts), reason)
}

/// What a part costs, as far as it is known before anything has moved.
fn model(facts: &Facts, sessions: u32) -> Model {
    let trip = facts.control_rtt.unwrap_or_default().as_secs_f64();
    Model {
        // The command, and the reply behind the last byte.
        transfer: Line { per_byte: f64::from(sessions.max(1)) / facts.rate(), start: 2.0 * trip + PART },
        checksum: Line { per_byte: 1.0 / CHECKED_RATE, start: trip },
        concurrency: sessions,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    fn facts(bytes: u64, rtt_ms: u64) -> Facts {
        let rtt = Some(Duration::from_millis(rtt_ms));
        let sizes = [bytes].into_iter().collect();
        Facts { sizes, rtt, control_rtt: rtt, verify: true, checks_follow: true, ..Facts::default() }
    }

    #[test]
    fn near_the_last_check_is_what_counts_and_far_each_parts_round_trips() {
        let near = size(&facts(4 * GIB, 0), 2);
        assert_eq!(near.value, 128 * MIB, "{}", near.reason);
        let whole = size(&Facts { checks_follow: false, ..facts(4 * GIB, 0) }, 2);
        assert_eq!(whole.value, 512 * MIB, "proven while it moves");
        // sqrt(4 GiB * 4 / 500 MB/s / 402 ms) is 9.2 of them; no fewer than sessions.
        let far = size(&facts(4 * GIB, 200), 4);
        assert_eq!(far.value, 304 * MIB, "{}", far.reason);
        assert_eq!(size(&facts(4 * GIB, 200), 16).value, 128 * MIB);
    }

    #[test]
    fn the_size_is_the_models_best() {
        let facts = Facts { rate: Some(1e9), ..facts(64 * GIB, 50) };
        let parts = 64 * GIB / size(&facts, 4).value;
        let time = |parts| model(&facts, 4).seconds(64 * GIB, parts);
        assert!(time(parts) <= time(parts / 2) && time(parts) <= time(parts * 2), "{parts}");
        let reason = size(&facts, 4).reason;
        assert!(reason.contains("take the least time") && reason.contains("at 1.00 GB/s"), "{reason}");
    }
}

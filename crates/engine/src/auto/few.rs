//! A few files on a long way, from a sender with BBR: the fewer sessions move them, the sooner all have arrived.
//!
//! BBR fills the path with the channels of one session whatever is lost, keeps every flow at the rate that it has found, and
//! takes over what another flow leaves a quarter more every eight round trips (Cardwell et al. 2017). So of a few files that
//! are moved side by side some arrive late, while the path is not used; one behind the other they do not wait for each other.

use std::time::Duration;

use super::{ASSUMED_RATE, Choice, Facts, Sizes, choice};
use crate::tune::Setting;
use crate::units::ByteCount;

/// Round trips below this: what others leave is taken over before it matters.
const FAR: Duration = Duration::from_millis(10);
/// Files that are smaller in the mean are bound by commands and file systems.
const LEAST: u64 = 4 << 20;
/// Files of a session that are moved whole: with many the last one is little of all.
const EACH: u64 = 6;
/// Sessions for files in parts: parts of one are proven while those of another move.
const IN_PARTS: u32 = 3;
/// Seconds of the whole run at the assumed rate: in a longer one the number of sessions that is best is found by trying.
const SHORT: f64 = 10.0;

impl Facts {
    /// Sessions for all files that were `found`, if that is fewer than were planned before any was known.
    pub fn few(&self, found: &Sizes, planned: u32) -> Option<Choice<u32>> {
        let far = self.any_rtt().is_some_and(|rtt| rtt >= FAR);
        let is_free = self.fixed.concurrency == Setting::Auto && self.pairs() == 1 && self.starved().is_none();
        let short = found.bytes() as f64 <= SHORT * ASSUMED_RATE && found.mean() >= LEAST;
        if !self.more_to_come || !far || !is_free || !short || self.paced().is_none() {
            return None;
        }
        let divided = self.may_chunk() && found.files_from(self.threshold()) > 0;
        let whole = found.files().div_ceil(EACH) as u32;
        let sessions = if divided { whole.max(IN_PARTS) } else { whole };
        let mean = ByteCount(found.mean());
        let why = "side by side over BBR some would be late, since it takes over slowly what others leave of the path";
        (sessions < planned)
            .then(|| choice(sessions, format!("only {} files, {mean} in the mean: {why}", found.files())))
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{GIB, MIB, facts};
    use super::*;

    fn from_bbr(rtt_ms: u64) -> Facts {
        Facts { congestions: vec!["bbr".into(), "cubic".into()], more_to_come: true, ..facts(&[], rtt_ms) }
    }

    fn sessions(facts: &Facts, files: &[u64]) -> Option<u32> {
        facts.few(&files.iter().copied().collect(), 8).map(|few| few.value)
    }

    #[test]
    fn a_few_files_go_one_behind_the_other_and_large_ones_in_parts_by_few_sessions() {
        let far = from_bbr(74);
        let counts = [1, 6, 7, 12, 40, 48].map(|files| sessions(&far, &vec![8 * MIB; files]));
        assert_eq!(counts, [Some(1), Some(1), Some(2), Some(2), Some(7), None]);
        assert_eq!(sessions(&far, &[200 * MIB; 3]), Some(3));
        assert_eq!(sessions(&Facts { can_chunk: false, ..far.clone() }, &[200 * MIB; 3]), Some(1));
        let few = far.few(&[8 * MIB; 6].into_iter().collect(), 8).expect("there are few");
        assert!(few.reason.starts_with("only 6 files, 8.39 MB in the mean: "), "{}", few.reason);
        assert_eq!(far.few(&[8 * MIB; 6].into_iter().collect(), 1), None, "no more than were planned");
    }

    #[test]
    fn small_files_long_runs_and_short_ways_have_the_sessions_that_were_planned() {
        assert_eq!(sessions(&from_bbr(74), &[4 * MIB - 1; 6]), None);
        assert_eq!(sessions(&from_bbr(74), &[GIB; 2]), None);
        assert_eq!(sessions(&from_bbr(9), &[8 * MIB; 6]), None);
        assert_eq!(sessions(&Facts { rtt: None, control_rtt: None, ..from_bbr(74) }, &[8 * MIB; 6]), None);
        assert_eq!(sessions(&from_bbr(74), &[]), None);
        let known = Facts { more_to_come: false, ..from_bbr(74) };
        assert_eq!(sessions(&known, &[200 * MIB]), None, "planned with what is known");
    }

    #[test]
    fn only_where_bbr_sends_over_one_path_and_nobody_decides() {
        let far = from_bbr(74);
        let is_few = |facts: Facts| sessions(&facts, &[8 * MIB; 6]).is_some();
        assert!(is_few(Facts { rtt: None, ..far.clone() }), "the control path is far");
        assert!(is_few(Facts { congestion: Some("bbr".into()), congestions: Vec::new(), ..far.clone() }));
        assert!(!is_few(Facts { congestion: Some("cubic".into()), ..far.clone() }));
        assert!(!is_few(Facts { congestions: Vec::new(), ..far.clone() }), "nobody says what sends");
        let (mut fixed, mut nodes, mut starved) = (far.clone(), far.clone(), far);
        fixed.fixed.concurrency = Setting::Fixed(8);
        nodes.source.nodes = 2;
        starved.destination.processors = Some(0.02);
        assert!(!is_few(fixed) && !is_few(nodes) && !is_few(starved));
    }
}

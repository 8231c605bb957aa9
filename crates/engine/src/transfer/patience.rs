//! How many failures of one item are still borne: which of them progress makes good, and which nothing does.

use crate::fault::{Fault, FaultCode};

/// What a failure costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cost {
    /// An attempt, until there is progress again.
    Attempt,
    /// The data were wrong, and nobody knows which bytes: what came counts for nothing.
    Wrong,
    /// The unfinished copy is gone, was replaced, or is not taken: what came counts for nothing.
    Lost,
}

impl Cost {
    /// What `fault` costs where the unfinished copy is not known to be lost.
    pub(super) fn of(fault: &Fault) -> Self {
        match fault.code {
            FaultCode::ChecksumMismatch | FaultCode::SourceChanged => Self::Wrong,
            _ => Self::Attempt,
        }
    }

    /// Whether the next attempt begins anew.
    pub(super) fn forgets(self) -> bool {
        self != Self::Attempt
    }
}

/// The failures of one item.
///
/// Only failures that leave what came in its place are made good by progress. After the others the same bytes come again,
/// which is none.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// In a row, without progress.
    idle: u32,
    /// In all, that proved the data wrong.
    wrong: u32,
    /// In all, that lost the unfinished copy.
    lost: u32,
    /// Bytes there were when progress was last acknowledged.
    known_bytes: u64,
}

impl Patience {
    /// Counts a failure; returns how many of its kind count so far, this one included.
    pub(super) fn charge(&mut self, cost: Cost) -> u32 {
        if cost.forgets() {
            self.known_bytes = 0;
        }
        let count = match cost {
            Cost::Attempt => &mut self.idle,
            Cost::Wrong => &mut self.wrong,
            Cost::Lost => &mut self.lost,
        };
        *count += 1;
        *count
    }

    /// Failures in a row without progress.
    pub(super) fn idle(&self) -> u32 {
        self.idle
    }

    /// Something was proven that was not.
    pub(super) fn renew(&mut self) {
        self.idle = 0;
    }

    /// So many bytes of the item's `size` have come: enough new ones are progress.
    pub(super) fn has_come(&mut self, bytes: u64, size: Option<u64>) {
        // A hundredth of the item, 1 MiB at most: trickles must not keep a hopeless item alive for ever.
        let least = size.map_or(1 << 20, |size| (size / 100).clamp(1, 1 << 20));
        if bytes >= self.known_bytes.saturating_add(least) {
            self.known_bytes = bytes;
            self.renew();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_makes_good_only_what_left_the_bytes_in_their_place() {
        let mut patience = Patience::default();
        for times in 1..=3 {
            assert_eq!(patience.charge(Cost::Attempt), 1);
            assert_eq!(patience.charge(Cost::Lost), times);
            assert_eq!(patience.charge(Cost::Wrong), times);
            patience.has_come(100, Some(100));
        }
    }

    #[test]
    fn trickles_are_no_progress_until_they_are_a_hundredth() {
        let mut patience = Patience::default();
        patience.charge(Cost::Attempt);
        patience.has_come(9, Some(1000));
        assert_eq!(patience.idle(), 1);
        patience.has_come(10, Some(1000));
        assert_eq!(patience.idle(), 0);
        patience.charge(Cost::Attempt);
        patience.has_come(19, Some(1000));
        assert_eq!(patience.idle(), 1);
    }
}

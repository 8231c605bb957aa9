//! The moving of an attempt's bytes: how far the store is, and what has arrived.

use std::ops::Range;

use whimbrel_engine::{Fault, RangeSet, Side};
use whimbrel_proto::op::Notice;

use super::order::Purpose;

/// How far the destination is with its store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Store {
    /// It has said nothing.
    #[default]
    Unheard,
    /// It opened the file.
    Opened,
    /// It opened no file, and says why: what was there before is still there.
    Refused,
    /// It opened the file, and says why it did not store it.
    GivenUp,
    /// It has stored the file.
    Stored,
}

impl Store {
    /// It told of the transfer.
    fn noticed(&mut self) {
        if *self == Self::Unheard {
            *self = Self::Opened;
        }
    }

    /// It failed; a fault that is not the destination's own says nothing about the file there.
    fn failed(&mut self, fault: &Fault) {
        *self = match *self {
            _ if fault.side != Some(Side::Destination) => return,
            Self::Unheard => Self::Refused,
            Self::Opened => Self::GivenUp,
            over => over,
        };
    }
}

/// The bytes of an attempt on their way.
#[derive(Debug)]
pub struct Transfer {
    /// Payload bytes moved by this attempt.
    pub moved: u64,
    /// Ranges that arrived, offsets in the file.
    pub received: RangeSet,
    store: Store,
    has_started: bool,
    /// Bytes that earlier attempts brought.
    before: u64,
    /// What each stripe has moved, and which end says so.
    stripes: Vec<u64>,
    told_by_store: bool,
    /// Added to the offsets of range markers.
    shift: u64,
}

impl Transfer {
    /// Nothing has moved but what was `received` before; `window`: the part of the file that is to move, if not all.
    pub fn new(received: &RangeSet, window: Option<Range<u64>>) -> Self {
        Self {
            moved: 0,
            received: received.clone(),
            store: Store::Unheard,
            has_started: false,
            before: received.len(),
            stripes: Vec::new(),
            told_by_store: false,
            shift: window.map_or(0, |window| window.start),
        }
    }

    /// How far the store is.
    pub fn store(&self) -> Store {
        self.store
    }

    /// The store was confirmed.
    pub fn is_stored(&self) -> bool {
        self.store == Store::Stored
    }

    /// Data are seen moving; whether for the first time.
    pub fn starts(&mut self) -> bool {
        !std::mem::replace(&mut self.has_started, true)
    }

    /// The destination confirms the store.
    pub fn stored(&mut self) {
        self.store = Store::Stored;
    }

    /// The destination's store failed.
    pub fn store_failed(&mut self, fault: &Fault) {
        self.store.failed(fault);
    }

    /// Takes news; says whether progress is worth reporting. `in_chunks`: parts are proven or moved again, never resumed.
    pub fn notice(&mut self, purpose: Purpose, notice: &Notice, in_chunks: bool) -> bool {
        if purpose == Purpose::Store {
            self.store.noticed();
        }
        match notice {
            Notice::Opened { .. } => return false,
            Notice::Performance { stripe, bytes, .. } if self.listens_to(purpose) => {
                self.performed(usize::from(*stripe), *bytes);
            }
            Notice::Ranges(ranges) if !in_chunks => self.arrived(ranges),
            _ => {}
        }
        true
    }

    /// What the destination has counts; a source is listened to as long as the destination tells nothing.
    fn listens_to(&mut self, purpose: Purpose) -> bool {
        if purpose == Purpose::Store && !std::mem::replace(&mut self.told_by_store, true) {
            self.stripes.clear();
        }
        purpose == Purpose::Store || !self.told_by_store
    }

    fn performed(&mut self, stripe: usize, bytes: u64) {
        if self.stripes.len() <= stripe {
            self.stripes.resize(stripe + 1, 0);
        }
        self.stripes[stripe] = self.stripes[stripe].max(bytes);
        self.moved = self.moved.max(self.stripes.iter().sum());
    }

    fn arrived(&mut self, ranges: &[Range<u64>]) {
        for range in ranges {
            self.received.insert(range.start.saturating_add(self.shift)..range.end.saturating_add(self.shift));
        }
        self.moved = self.moved.max(self.received.len().saturating_sub(self.before));
    }
}

#[cfg(test)]
mod tests {
    use whimbrel_engine::FaultCode;

    use super::*;

    fn fault(side: Side) -> Fault {
        Fault::new(FaultCode::PermissionDenied, "store").side(side)
    }

    fn transfer() -> Transfer {
        Transfer::new(&RangeSet::new(), None)
    }

    fn ranges(set: impl Into<RangeSet>) -> Notice {
        Notice::Ranges(set.into().as_slice().to_vec())
    }

    #[test]
    fn a_store_that_fails_before_news_was_refused_and_behind_news_given_up() {
        let mut refused = transfer();
        refused.store_failed(&fault(Side::Destination));
        assert_eq!(refused.store(), Store::Refused);
        let mut given_up = transfer();
        given_up.notice(Purpose::Send, &ranges(RangeSet::new()), false);
        assert_eq!(given_up.store(), Store::Unheard, "the source's news tell nothing of the store");
        given_up.notice(Purpose::Store, &ranges(RangeSet::new()), false);
        assert_eq!(given_up.store(), Store::Opened);
        given_up.store_failed(&fault(Side::Destination));
        assert_eq!(given_up.store(), Store::GivenUp);
    }

    #[test]
    fn a_broken_connection_says_nothing_about_the_store() {
        let mut transfer = transfer();
        transfer.store_failed(&fault(Side::Network));
        assert_eq!(transfer.store(), Store::Unheard);
        transfer.stored();
        transfer.notice(Purpose::Store, &ranges(RangeSet::new()), false);
        assert!(transfer.is_stored());
    }

    #[test]
    fn markers_count_from_the_window_and_not_what_came_before() {
        let before = RangeSet::from(100..150);
        let mut transfer = Transfer::new(&before, Some(150..300));
        assert!(transfer.notice(Purpose::Store, &ranges(0..20), false));
        assert_eq!((transfer.moved, transfer.received.clone()), (20, RangeSet::from(100..170)));
    }

    #[test]
    fn a_source_tells_what_has_moved_until_the_destination_does() {
        let told = |bytes| Notice::Performance { stripe: 0, stripes: 1, bytes, at_ms: 0 };
        let mut transfer = transfer();
        for bytes in [0, 10, 20] {
            transfer.notice(Purpose::Send, &told(bytes), false);
            assert_eq!(transfer.moved, bytes);
        }
        transfer.notice(Purpose::Store, &told(15), false);
        transfer.notice(Purpose::Send, &told(90), false);
        assert_eq!(transfer.moved, 20, "no less than before, and no more than is stored");
        transfer.notice(Purpose::Store, &told(30), false);
        assert_eq!(transfer.moved, 30);
    }

    #[test]
    fn nothing_of_a_part_is_resumed() {
        let mut transfer = transfer();
        assert!(transfer.notice(Purpose::Store, &ranges(0..20), true), "it is a sign of life");
        assert!(transfer.received.is_empty() && transfer.moved == 0);
    }

    #[test]
    fn a_transfer_starts_once() {
        let mut transfer = transfer();
        assert!(transfer.starts() && !transfer.starts());
    }
}

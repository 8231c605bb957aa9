//! One session as the machine sees it, and when it has stalled.

use std::collections::VecDeque;
use std::time::Instant;

use super::options::StallPolicy;
use crate::plan::ItemId;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotState {
    Closed,
    Opening {
        since: Instant,
    },
    Ready,
    Backoff {
        until: Instant,
    },
    /// Given up for the rest of the run.
    Dead,
}

#[derive(Debug)]
pub(super) struct SlotData {
    pub(super) state: SlotState,
    /// What it was given and has not ended, in order.
    pub(super) pipeline: VecDeque<ItemId>,
    /// Whether it runs a large item.
    pub(super) large: bool,
    /// Whether the last that was heard of it is an item's failure: losing it then is the same event.
    pub(super) charged: bool,
    /// Losses in a row without a sign of use.
    pub(super) failures: u32,
    watch: Watch,
}

/// What the stall rules look at.
#[derive(Debug, Clone, Copy)]
struct Watch {
    window_start: Instant,
    window_bytes: u64,
    last_sign: Instant,
    /// The item that moves data, and how many bytes it has still to move.
    moving: Option<(ItemId, u64)>,
}

impl SlotData {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            state: SlotState::Closed,
            pipeline: VecDeque::new(),
            large: false,
            charged: false,
            failures: 0,
            watch: Watch { window_start: now, window_bytes: 0, last_sign: now, moving: None },
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.state == SlotState::Ready
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, SlotState::Ready | SlotState::Opening { .. })
    }

    /// A sign of life that ends every window: something began, ended or changed its phase.
    pub(super) fn sign(&mut self, now: Instant) {
        self.watch.window_start = now;
        self.watch.window_bytes = 0;
        self.watch.last_sign = now;
    }

    /// `item` moves data from now on, `left` bytes are still to come.
    pub(super) fn set_moving(&mut self, item: ItemId, left: u64) {
        self.watch.moving = Some((item, left));
    }

    /// `item` moves data no more.
    pub(super) fn clear_moving(&mut self, item: ItemId) {
        self.watch.moving = self.watch.moving.filter(|(moving, _)| *moving != item);
    }

    /// What ran on a session that is over.
    pub(super) fn take_pipeline(&mut self) -> Vec<ItemId> {
        self.large = false;
        self.watch.moving = None;
        std::mem::take(&mut self.pipeline).into()
    }

    fn left(&self) -> u64 {
        self.watch.moving.map_or(0, |(_, left)| left)
    }

    pub(super) fn moved(&mut self, now: Instant, item: ItemId, bytes: u64) {
        self.watch.window_bytes = self.watch.window_bytes.saturating_add(bytes);
        if let Some((moving, left)) = &mut self.watch.moving
            && *moving == item
        {
            *left = left.saturating_sub(bytes);
        }
        self.watch.last_sign = now;
    }

    /// When to look at the slot again.
    pub(super) fn deadline(&self, policy: &StallPolicy) -> Option<Instant> {
        match self.state {
            SlotState::Opening { since } => Some(since + policy.open),
            SlotState::Backoff { until } => Some(until),
            SlotState::Ready if self.pipeline.is_empty() => None,
            SlotState::Ready if self.left() > 0 => Some(self.watch.window_start + policy.window),
            SlotState::Ready => Some(self.watch.last_sign + policy.quiet),
            SlotState::Closed | SlotState::Dead => None,
        }
    }

    /// Whether a ready session with work has made too little progress; a window that was good begins anew.
    pub(super) fn stalled(&mut self, now: Instant, policy: &StallPolicy) -> bool {
        let due = self.deadline(policy).is_some_and(|at| at <= now);
        if !due || !self.is_ready() {
            return false;
        }
        let left = self.left();
        let enough = left > 0 && self.watch.window_bytes >= policy.min_bytes.min(left);
        if enough {
            self.watch.window_start = now;
            self.watch.window_bytes = 0;
        }
        !enough
    }
}

//! Handles that watch and change a link while it runs.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use super::link::Link;
use super::pump::{Counters, Direction};

/// One or both directions of a link. Changes apply to packets that enter from then on.
#[derive(Clone)]
pub struct LinkHandle {
    directions: Vec<Arc<Direction>>,
}

impl LinkHandle {
    pub(crate) fn new(directions: Vec<Arc<Direction>>) -> LinkHandle {
        LinkHandle { directions }
    }

    /// Drops everything that enters, as a cut fibre does: nobody is told.
    pub fn cut(&self) {
        self.change(|link| link.cut = true);
    }

    /// Ends a [`LinkHandle::cut`].
    pub fn restore(&self) {
        self.change(|link| link.cut = false);
    }

    /// See [`Link::rate`].
    pub fn set_rate(&self, bits_per_second: u64) {
        self.change(|link| link.rate_bits = (bits_per_second > 0).then_some(bits_per_second));
    }

    /// See [`Link::delay`].
    pub fn set_delay(&self, one_way: Duration) {
        self.change(|link| link.delay = one_way);
    }

    /// See [`Link::jitter`].
    pub fn set_jitter(&self, bound: Duration) {
        self.change(|link| link.jitter = bound);
    }

    /// See [`Link::loss`].
    pub fn set_loss(&self, probability: f64) {
        self.change(|link| link.loss = probability);
    }

    /// See [`Link::refuse_ports`]; `None` opens all of them.
    pub fn set_refused_ports(&self, ports: Option<RangeInclusive<u16>>) {
        self.change(|link| link.refused_ports = ports.clone());
    }

    /// The sum over this handle's directions; the lateness is the worst of them.
    pub fn counters(&self) -> Counters {
        self.directions.iter().map(|direction| direction.counters()).fold(Counters::default(), sum)
    }

    fn change(&self, change: impl Fn(&mut Link)) {
        for direction in &self.directions {
            direction.change(&change).expect("a device of a running laboratory accepts its settings");
        }
    }
}

fn sum(a: Counters, b: Counters) -> Counters {
    Counters {
        packets: a.packets + b.packets,
        bytes: a.bytes + b.bytes,
        delivered_packets: a.delivered_packets + b.delivered_packets,
        delivered_bytes: a.delivered_bytes + b.delivered_bytes,
        lost: a.lost + b.lost,
        queue_full: a.queue_full + b.queue_full,
        blocked: a.blocked + b.blocked,
        broken: a.broken + b.broken,
        late: a.late + b.late,
        worst_lateness: a.worst_lateness.max(b.worst_lateness),
    }
}

//! What a link is like: the description that tests write, and the arithmetic that decides a packet's fate.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::ring::MAX_PACKET_BYTES;
use crate::rng::Rng;

/// Largest packet unless told otherwise: jumbo frames, as data transfer nodes and research networks use.
pub const DEFAULT_MTU_BYTES: u32 = 9000;

/// Room for packets in flight on a link without a rate, where the product of rate and delay is unknown.
const UNLIMITED_RING_BYTES: u64 = 64 << 20;
/// Added to the default queue, so that a burst of whole 64 KiB segments fits.
const QUEUE_MARGIN_BYTES: u64 = 1 << 20;

/// One direction of a link; both directions are alike unless [`super::LabBuilder::link_asymmetric`] says otherwise.
///
/// A packet waits in a first-in-first-out queue for the rate, is then lost or not, and arrives after the delay. The
/// default is a wire: no delay, no rate, no loss, an MTU of 9000 bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    pub(crate) delay: Duration,
    pub(crate) jitter: Duration,
    pub(crate) rate_bits: Option<u64>,
    pub(crate) queue_bytes: Option<u64>,
    pub(crate) loss: f64,
    pub(crate) seed: u64,
    pub(crate) mtu: u32,
    pub(crate) offload: Option<bool>,
    pub(crate) cut: bool,
    pub(crate) refused_ports: Option<RangeInclusive<u16>>,
}

impl Default for Link {
    fn default() -> Link {
        Link::new()
    }
}

impl Link {
    /// A wire.
    pub fn new() -> Link {
        Link {
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            rate_bits: None,
            queue_bytes: None,
            loss: 0.0,
            seed: 1,
            mtu: DEFAULT_MTU_BYTES,
            offload: None,
            cut: false,
            refused_ports: None,
        }
    }

    /// Time from the end of the queue to the other end, one way.
    pub fn delay(mut self, one_way: Duration) -> Link {
        self.delay = one_way;
        self
    }

    /// Half of `round_trip` as the delay, for a link that is alike in both directions.
    pub fn rtt(self, round_trip: Duration) -> Link {
        self.delay(round_trip / 2)
    }

    /// Bits per second, counted over IP packets (no link-layer overhead); 0 removes the limit.
    pub fn rate(mut self, bits_per_second: u64) -> Link {
        self.rate_bits = (bits_per_second > 0).then_some(bits_per_second);
        self
    }

    /// Megabits (10^6) per second; see [`Link::rate`].
    pub fn rate_mbit(self, megabits: u64) -> Link {
        self.rate(megabits * 1_000_000)
    }

    /// Bytes that may wait for the rate before the tail is dropped. Default: rate times two delays, plus 1 MiB.
    pub fn queue(mut self, bytes: u64) -> Link {
        self.queue_bytes = Some(bytes);
        self
    }

    /// Probability, 0.0 to 1.0, that a packet is lost, each independently of the others.
    pub fn loss(mut self, probability: f64) -> Link {
        self.loss = probability;
        self
    }

    /// Upper bound of an extra delay, uniform for each packet. Packets never overtake each other, so under load the
    /// delay seen is closer to the bound than to its half.
    pub fn jitter(mut self, bound: Duration) -> Link {
        self.jitter = bound;
        self
    }

    /// Start of the pseudo-random sequence of loss and jitter; default 1. The two directions draw differently.
    pub fn seed(mut self, seed: u64) -> Link {
        self.seed = seed;
        self
    }

    /// Largest IP packet in bytes, at least 1280 (RFC 8200 §5); default [`DEFAULT_MTU_BYTES`].
    pub fn mtu(mut self, bytes: u32) -> Link {
        self.mtu = bytes;
        self
    }

    /// Whether TCP crosses in segments of up to 64 KiB. Default: yes exactly when nothing is lost, because the loss of
    /// such a segment is a burst that no real network shows. With it, loss hits whole segments.
    pub fn offload(mut self, on: bool) -> Link {
        self.offload = Some(on);
        self
    }

    /// Silently drops the opening packet of TCP connections to these ports, in this direction: a firewall.
    pub fn refuse_ports(mut self, ports: RangeInclusive<u16>) -> Link {
        self.refused_ports = Some(ports);
        self
    }

    pub(crate) fn offloads(&self) -> bool {
        self.offload.unwrap_or(self.loss == 0.0)
    }

    pub(crate) fn queue_limit_bytes(&self) -> u64 {
        let round_trip = self.rate_bits.map_or(0, |rate| bytes_in(rate, self.delay * 2));
        self.queue_bytes.unwrap_or(round_trip + QUEUE_MARGIN_BYTES)
    }

    /// Bytes in flight and waiting at most, with a share for the header kept before each packet.
    pub(crate) fn ring_bytes(&self) -> usize {
        let flight = self.rate_bits.map(|rate| bytes_in(rate, self.delay + self.jitter) + self.queue_limit_bytes());
        let bytes = flight.unwrap_or(UNLIMITED_RING_BYTES);
        (bytes + bytes / 8) as usize + MAX_PACKET_BYTES
    }
}

fn bytes_in(rate_bits: u64, time: Duration) -> u64 {
    (u128::from(rate_bits) * time.as_nanos() / 8_000_000_000) as u64
}

/// What happens to one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It arrives at this time.
    Deliver(u64),
    /// It is lost on the way.
    Lost,
    /// The queue is full.
    QueueFull,
    /// The link is cut.
    Cut,
}

/// One direction's state; all times are nanoseconds on the laboratory's clock, given by the caller.
pub(crate) struct Shaper {
    link: Link,
    rng: Rng,
    /// When the last admitted packet has left the queue.
    free_at: u64,
    last_due: u64,
}

impl Shaper {
    /// `direction` separates the random sequences of a link's two directions.
    pub(crate) fn new(link: Link, direction: u64) -> Shaper {
        let rng = Rng::new(link.seed.wrapping_mul(2).wrapping_add(direction));
        Shaper { link, rng, free_at: 0, last_due: 0 }
    }

    pub(crate) fn link(&self) -> &Link {
        &self.link
    }

    /// Continues under new settings. Packets already admitted keep their times, and none overtakes them; a packet
    /// admitted later finds the waiting bytes in front of it, at the new rate.
    pub(crate) fn change(&mut self, link: Link, now: u64) {
        let waiting = self.backlog_bytes(now);
        self.free_at = now + link.rate_bits.map_or(0, |rate| transmission_ns(waiting, rate));
        self.link = link;
    }

    /// Decides about a packet of `bytes` on the wire that is handed over at `now`.
    pub(crate) fn admit(&mut self, bytes: u64, now: u64) -> Verdict {
        if self.link.cut {
            return Verdict::Cut;
        }
        self.free_at = self.free_at.max(now);
        if let Some(rate) = self.link.rate_bits {
            if self.backlog_bytes(now) + bytes > self.link.queue_limit_bytes() {
                return Verdict::QueueFull;
            }
            self.free_at += transmission_ns(bytes, rate);
        }
        if self.link.loss > 0.0 && self.rng.unit() < self.link.loss {
            return Verdict::Lost;
        }
        let jitter = self.link.jitter.as_nanos() as u64;
        let extra = if jitter > 0 { self.rng.below(jitter + 1) } else { 0 };
        let due = self.free_at + self.link.delay.as_nanos() as u64 + extra;
        self.last_due = self.last_due.max(due);
        Verdict::Deliver(self.last_due)
    }

    fn backlog_bytes(&self, now: u64) -> u64 {
        let waiting = Duration::from_nanos(self.free_at.saturating_sub(now));
        self.link.rate_bits.map_or(0, |rate| bytes_in(rate, waiting))
    }
}

fn transmission_ns(bytes: u64, rate_bits: u64) -> u64 {
    (u128::from(bytes) * 8_000_000_000 / u128::from(rate_bits)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn dues(shaper: &mut Shaper, packets: usize, bytes: u64) -> Vec<Verdict> {
        (0..packets).map(|_| shaper.admit(bytes, 0)).collect()
    }

    #[test]
    fn a_packet_arrives_after_its_transmission_and_the_delay() {
        // 1250 bytes at 10 Mbit/s take one millisecond.
        let mut shaper = Shaper::new(Link::new().delay(Duration::from_millis(20)).rate_mbit(10), 0);
        let expected = [21, 22, 23].map(|ms| Verdict::Deliver(ms * MS));
        assert_eq!(dues(&mut shaper, 3, 1250), expected);
        assert_eq!(shaper.admit(1250, 100 * MS), Verdict::Deliver(121 * MS), "an idle link saves no credit");
    }

    #[test]
    fn the_tail_is_dropped_when_the_queue_is_full_and_not_a_byte_before() {
        let mut shaper = Shaper::new(Link::new().rate_mbit(10).queue(3000), 0);
        let verdicts = dues(&mut shaper, 4, 1000);
        assert_eq!(verdicts.iter().filter(|verdict| **verdict == Verdict::QueueFull).count(), 1);
        assert_eq!(verdicts[3], Verdict::QueueFull);
        // One packet has left the queue after 0.8 ms.
        assert!(matches!(shaper.admit(1000, MS), Verdict::Deliver(_)));
    }

    #[test]
    fn the_default_queue_is_one_bandwidth_delay_product_and_a_margin() {
        let link = Link::new().rtt(Duration::from_millis(75)).rate_mbit(1000);
        assert_eq!(link.queue_limit_bytes(), 9_375_000 + QUEUE_MARGIN_BYTES);
    }

    #[test]
    fn loss_follows_its_probability_and_its_seed() {
        let run = |seed, direction| {
            let mut shaper = Shaper::new(Link::new().loss(0.01).seed(seed), direction);
            dues(&mut shaper, 100_000, 1000).iter().map(|v| *v == Verdict::Lost).collect::<Vec<_>>()
        };
        let lost = run(1, 0).iter().filter(|lost| **lost).count();
        assert!((900..1100).contains(&lost), "{lost} of 100000");
        assert_eq!(run(1, 0), run(1, 0));
        assert_ne!(run(1, 0), run(2, 0));
        assert_ne!(run(1, 0), run(1, 1));
    }

    #[test]
    fn jitter_spreads_arrivals_within_its_bound_and_keeps_their_order() {
        let link = Link::new().delay(Duration::from_millis(10)).jitter(Duration::from_millis(5));
        let mut shaper = Shaper::new(link, 0);
        let mut last = 0;
        let mut extremes = (u64::MAX, 0);
        for packet in 0..1000 {
            let now = packet * 20 * MS;
            let Verdict::Deliver(due) = shaper.admit(100, now) else { panic!("lost") };
            let flight = due - now;
            assert!((10 * MS..=15 * MS).contains(&flight) && due >= last, "{flight}");
            (last, extremes) = (due, (extremes.0.min(flight), extremes.1.max(flight)));
        }
        assert!(extremes.0 < 11 * MS && extremes.1 > 14 * MS, "{extremes:?}");
    }

    #[test]
    fn a_cut_link_drops_and_a_changed_rate_applies_to_what_waits() {
        let link = Link::new().rate_mbit(10);
        let mut shaper = Shaper::new(link.clone(), 0);
        dues(&mut shaper, 10, 1250);
        shaper.change(link.clone().rate_mbit(1), 0);
        assert_eq!(shaper.admit(1250, 0), Verdict::Deliver(110 * MS));
        shaper.change(link.clone().rate_mbit(100), 0);
        assert_eq!(shaper.admit(1250, 0), Verdict::Deliver(110 * MS), "nothing overtakes");
        shaper.change(Link { cut: true, ..link }, 0);
        assert_eq!(shaper.admit(1250, 0), Verdict::Cut);
    }
}

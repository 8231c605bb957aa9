//! Packets in flight: a byte ring that holds each packet in one piece, so that the device reads into it and writes out
//! of it without a copy and without an allocation per packet.

use std::collections::VecDeque;

/// The largest packet the kernel hands over: 64 KiB of TCP segment, headers, and the `virtio_net_hdr`.
pub(crate) const MAX_PACKET_BYTES: usize = 66 * 1024;

struct Slot {
    due: u64,
    offset: usize,
    bytes: usize,
}

/// First in, first out; invariant: packets lie in ring order from the front slot's offset up to `tail`.
pub(crate) struct Ring {
    storage: Vec<u8>,
    slots: VecDeque<Slot>,
    tail: usize,
}

impl Ring {
    /// Room for at least `bytes` of packets, however they fall at the wrap.
    pub(crate) fn new(bytes: usize) -> Ring {
        let storage = vec![0; bytes + 2 * MAX_PACKET_BYTES];
        Ring { storage, slots: VecDeque::with_capacity(4096), tail: 0 }
    }

    /// Space for one packet of any size behind the last one; `None` when the ring is full.
    pub(crate) fn space(&mut self) -> Option<&mut [u8]> {
        let size = self.storage.len();
        match self.slots.front() {
            // Starting over at the bottom keeps a lightly used ring inside the processor's cache.
            None => self.tail = 0,
            Some(front) if self.tail > front.offset => {
                if size - self.tail < MAX_PACKET_BYTES {
                    if front.offset <= MAX_PACKET_BYTES {
                        return None;
                    }
                    self.tail = 0;
                }
            }
            Some(front) if front.offset - self.tail <= MAX_PACKET_BYTES => return None,
            Some(_) => {}
        }
        Some(&mut self.storage[self.tail..self.tail + MAX_PACKET_BYTES])
    }

    /// Keeps the first `bytes` of what [`Ring::space`] gave last, to be delivered at `due`.
    pub(crate) fn keep(&mut self, bytes: usize, due: u64) {
        debug_assert!(bytes > 0 && bytes <= MAX_PACKET_BYTES);
        self.slots.push_back(Slot { due, offset: self.tail, bytes });
        self.tail += bytes;
    }

    /// When the front packet is due.
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.slots.front().map(|slot| slot.due)
    }

    /// The front packet.
    pub(crate) fn front(&self) -> Option<&[u8]> {
        self.slots.front().map(|slot| &self.storage[slot.offset..slot.offset + slot.bytes])
    }

    /// Forgets the front packet.
    pub(crate) fn pop(&mut self) {
        self.slots.pop_front();
    }

    /// Makes room for at least `bytes`, keeping what is in flight; never shrinks.
    pub(crate) fn grow(&mut self, bytes: usize) {
        if bytes + 2 * MAX_PACKET_BYTES <= self.storage.len() {
            return;
        }
        let mut larger = Ring::new(bytes);
        while let (Some(due), Some(packet)) = (self.next_due(), self.front()) {
            let space = larger.space().expect("a larger ring holds what the smaller one held");
            space[..packet.len()].copy_from_slice(packet);
            larger.keep(packet.len(), due);
            self.slots.pop_front();
        }
        *self = larger;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn push(ring: &mut Ring, fill: u8, bytes: usize, due: u64) -> bool {
        let Some(space) = ring.space() else { return false };
        space[..bytes].fill(fill);
        ring.keep(bytes, due);
        true
    }

    #[test]
    fn packets_come_out_whole_and_in_order_for_any_sizes() {
        let mut ring = Ring::new(200_000);
        let mut rng = Rng::new(3);
        let mut expected = VecDeque::new();
        for round in 0..20_000u64 {
            let bytes = 1 + rng.below(MAX_PACKET_BYTES as u64 - 1) as usize;
            if rng.below(2) == 0 && push(&mut ring, round as u8, bytes, round) {
                expected.push_back((round, bytes));
            } else if let Some((due, bytes)) = expected.pop_front() {
                assert_eq!(ring.next_due(), Some(due));
                let packet = ring.front().expect("a packet");
                assert_eq!(packet.len(), bytes);
                assert!(packet.iter().all(|&byte| byte == due as u8), "packet {due} was overwritten");
                ring.pop();
            }
        }
    }

    #[test]
    fn a_ring_holds_at_least_what_it_was_made_for_and_then_says_full() {
        let mut ring = Ring::new(1_000_000);
        let mut held = 0;
        while push(&mut ring, 1, 1500, 0) {
            held += 1500;
        }
        assert!((1_000_000..1_000_000 + 2 * MAX_PACKET_BYTES).contains(&held), "{held}");
        ring.pop();
        for _ in 0..MAX_PACKET_BYTES / 1500 + 2 {
            ring.pop();
        }
        assert!(push(&mut ring, 2, 1500, 0), "room freed in front is used again");
    }

    #[test]
    fn growing_keeps_what_is_in_flight() {
        let mut ring = Ring::new(100_000);
        let mut count = 0;
        while push(&mut ring, count as u8, 9000, count) {
            count += 1;
        }
        ring.grow(1_000_000);
        assert!(push(&mut ring, count as u8, 9000, count));
        for due in 0..=count {
            assert_eq!(ring.next_due(), Some(due));
            assert_eq!(ring.front().expect("kept")[8999], due as u8);
            ring.pop();
        }
        assert_eq!(ring.next_due(), None);
    }
}

//! What a session was given and has not ended.

use std::collections::VecDeque;

use super::messages::Attempt;

/// How much of a session something takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Load {
    /// No data.
    Control,
    /// A small file among others.
    Small,
    /// A large file, alone.
    Whole,
    /// A part of a large file, among others.
    Chunk,
}

/// Something that a session was given.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flight {
    pub(super) attempt: Attempt,
    pub(super) load: Load,
    /// Bytes of a chunk that are still to move; 0 for anything else.
    pub(super) bytes: u64,
    /// Bytes of a small file that are still to move; 0 for anything else.
    pub(super) small: u64,
}

/// What a command costs beside its bytes, in bytes, as far as sessions are compared.
pub(super) const COMMAND: u64 = 16 << 10;

impl Flight {
    fn is_moving_chunk(&self) -> bool {
        self.load == Load::Chunk && self.bytes > 0
    }

    fn weight(&self) -> u128 {
        u128::from(self.small) + u128::from(COMMAND)
    }
}

/// Flights in the order in which they were given, and their sums: every step compares all sessions, and small files are dozens
/// in each.
#[derive(Debug, Default)]
pub(super) struct Pipeline {
    flights: VecDeque<Flight>,
    /// By [`Load`].
    counts: [usize; 4],
    moving_chunks: usize,
    weight: u128,
}

impl Pipeline {
    pub(super) fn len(&self) -> usize {
        self.flights.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.flights.is_empty()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Flight> {
        self.flights.iter()
    }

    pub(super) fn count(&self, load: Load) -> usize {
        self.counts[load as usize]
    }

    /// Chunks that move or will.
    pub(super) fn moving_chunks(&self) -> usize {
        self.moving_chunks
    }

    /// How long the session is busy with the small files and commands that it has, in bytes.
    pub(super) fn weight(&self) -> u64 {
        u64::try_from(self.weight).unwrap_or(u64::MAX)
    }

    pub(super) fn push(&mut self, flight: Flight) {
        self.counts[flight.load as usize] += 1;
        self.moving_chunks += usize::from(flight.is_moving_chunk());
        self.weight += flight.weight();
        self.flights.push_back(flight);
    }

    /// Nothing happens if it is not there.
    pub(super) fn remove(&mut self, attempt: Attempt) {
        let place = self.flights.iter().position(|flight| flight.attempt == attempt);
        let Some(flight) = place.and_then(|place| self.flights.remove(place)) else { return };
        self.counts[flight.load as usize] -= 1;
        self.moving_chunks -= usize::from(flight.is_moving_chunk());
        self.weight -= flight.weight();
    }

    /// The bytes of a chunk that has moved, once.
    pub(super) fn take_bytes(&mut self, attempt: Attempt) -> Option<u64> {
        let moving = |flight: &&mut Flight| flight.attempt == attempt && flight.bytes > 0;
        let flight = self.flights.iter_mut().find(moving)?;
        self.moving_chunks -= usize::from(flight.is_moving_chunk());
        Some(std::mem::take(&mut flight.bytes))
    }

    /// A part of a small file has moved, and the session is busy with less; whether that was the last of it.
    pub(super) fn moved(&mut self, attempt: Attempt, bytes: u64) -> bool {
        let small = |flight: &&mut Flight| flight.attempt == attempt && flight.small > 0;
        let Some(flight) = self.flights.iter_mut().find(small) else { return false };
        let moved = flight.small.min(bytes);
        flight.small -= moved;
        self.weight -= u128::from(moved);
        flight.small == 0
    }

    /// All of it, in order.
    pub(super) fn take(&mut self) -> Vec<Attempt> {
        std::mem::take(self).flights.into_iter().map(|flight| flight.attempt).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::ItemId;

    fn attempt(number: u32) -> Attempt {
        Attempt { item: ItemId(u64::from(number)), number }
    }

    #[test]
    fn sums_are_those_of_what_is_there() {
        let mut pipeline = Pipeline::default();
        let mut seed = 7_u64;
        let mut next = |most: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % most
        };
        for number in 0..2000 {
            let load = [Load::Control, Load::Small, Load::Whole, Load::Chunk][next(4) as usize];
            let bytes = if load == Load::Chunk { next(3) } else { 0 };
            let small = if load == Load::Small { [u64::MAX - next(9), next(1 << 20)][next(2) as usize] } else { 0 };
            pipeline.push(Flight { attempt: attempt(number), load, bytes, small });
            if next(3) > 0 {
                pipeline.remove(attempt(next(u64::from(number) + 5) as u32));
            }
            let _ = pipeline.take_bytes(attempt(next(u64::from(number) + 1) as u32));
            let _ = pipeline.moved(attempt(next(u64::from(number) + 1) as u32), u64::from(number) * 100);
            for load in [Load::Control, Load::Small, Load::Whole, Load::Chunk] {
                assert_eq!(pipeline.count(load), pipeline.iter().filter(|flight| flight.load == load).count());
            }
            assert_eq!(pipeline.moving_chunks(), pipeline.iter().filter(|flight| flight.is_moving_chunk()).count());
            let weight = pipeline.iter().map(Flight::weight).sum::<u128>();
            assert_eq!((pipeline.weight, pipeline.weight()), (weight, u64::try_from(weight).unwrap_or(u64::MAX)));
        }
        let all = pipeline.len();
        assert!(all > 100);
        assert_eq!(pipeline.take().len(), all);
        assert_eq!((pipeline.len(), pipeline.weight(), pipeline.count(Load::Small)), (0, 0, 0));
    }
}

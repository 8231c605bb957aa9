//! Checksums of several leaves that advance side by side.

use whimbrel_sys::md5lanes::{self, MAX_LANES, Md5};

use super::{Algorithm, Digest, Hasher};

/// Running checksums of leaves, one in each lane, as one thread walks them.
///
/// MD5 takes the pieces of all lanes together, which is several times as fast as one after another; the other
/// algorithms are as fast on one stream. A finished lane begins its next leaf.
pub struct LaneDigests {
    algorithm: Algorithm,
    lanes: Lanes,
}

enum Lanes {
    Md5(Vec<Md5>),
    Other(Vec<Hasher>),
}

impl LaneDigests {
    /// So many lanes, 1 to 16, nothing hashed yet; panics for any other number.
    pub fn new(algorithm: Algorithm, lanes: usize) -> Self {
        assert!((1..=MAX_LANES).contains(&lanes), "1 to {MAX_LANES} lanes, not {lanes}");
        let lanes = match algorithm {
            Algorithm::Md5 => Lanes::Md5(vec![Md5::new(); lanes]),
            _ => Lanes::Other((0..lanes).map(|_| Hasher::new(algorithm)).collect()),
        };
        Self { algorithm, lanes }
    }

    /// The algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// How many lanes there are.
    pub fn lanes(&self) -> usize {
        match &self.lanes {
            Lanes::Md5(lanes) => lanes.len(),
            Lanes::Other(lanes) => lanes.len(),
        }
    }

    /// Bytes of the leaf in this lane so far.
    pub fn bytes(&self, lane: usize) -> u64 {
        match &self.lanes {
            Lanes::Md5(lanes) => lanes[lane].bytes(),
            Lanes::Other(lanes) => lanes[lane].bytes(),
        }
    }

    /// Begins the leaf, or the part of one, that begins at byte `start` of a file whose leaves have `size` bytes; see
    /// [`Hasher::for_leaf`].
    ///
    /// Drops what the lane has hashed since its last leaf. Without this call a leaf's digest is its own.
    pub fn begin_leaf(&mut self, lane: usize, start: u64, size: u64) {
        match &mut self.lanes {
            Lanes::Md5(lanes) => lanes[lane] = Md5::new(),
            Lanes::Other(lanes) => lanes[lane] = Hasher::for_leaf(self.algorithm, start, size),
        }
    }

    /// Hashes the next bytes of lanes; pieces of one lane count in their order.
    ///
    /// Fastest with one piece for each of 8 or 16 lanes, the pieces of one length that is a multiple of 64.
    pub fn update(&mut self, pieces: &[(usize, &[u8])]) {
        match &mut self.lanes {
            Lanes::Md5(lanes) => update_md5(lanes, pieces),
            Lanes::Other(lanes) => pieces.iter().for_each(|(lane, data)| lanes[*lane].update(data)),
        }
    }

    /// Hashes the next bytes of all lanes, `data[i]` for lane `i`; panics unless there is a piece for every lane.
    pub fn update_all(&mut self, data: &[&[u8]]) {
        assert_eq!(data.len(), self.lanes(), "a piece for every lane");
        match &mut self.lanes {
            Lanes::Md5(lanes) => md5lanes::update(lanes, data),
            Lanes::Other(lanes) => lanes.iter_mut().zip(data).for_each(|(lane, data)| lane.update(data)),
        }
    }

    /// The digest of the leaf in this lane; the lane then begins another.
    pub fn finish_lane(&mut self, lane: usize) -> Digest {
        match &mut self.lanes {
            Lanes::Md5(lanes) => Digest::new(self.algorithm, &std::mem::take(&mut lanes[lane]).finish()),
            Lanes::Other(lanes) => std::mem::replace(&mut lanes[lane], Hasher::new(self.algorithm)).finish(),
        }
    }
}

fn update_md5(lanes: &mut [Md5], pieces: &[(usize, &[u8])]) {
    let mut data: [&[u8]; MAX_LANES] = [&[]; MAX_LANES];
    let count = lanes.len();
    for &(lane, piece) in pieces {
        if !data[lane].is_empty() {
            md5lanes::update(lanes, &data[..count]);
            data = [&[]; MAX_LANES];
        }
        data[lane] = piece;
    }
    md5lanes::update(lanes, &data[..count]);
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;

    #[test]
    fn eight_leaves_walked_by_one_thread_have_their_own_digests() {
        const LEAF: usize = 300_000;
        let file = sample(8 * LEAF);
        for algorithm in Algorithm::ALL {
            let mut lanes = LaneDigests::new(algorithm, 8);
            for start in (0..LEAF).step_by(1 << 16) {
                let end = LEAF.min(start + (1 << 16));
                let pieces: [&[u8]; 8] = std::array::from_fn(|lane| &file[lane * LEAF..][start..end]);
                lanes.update_all(&pieces);
            }
            for (lane, leaf) in file.chunks(LEAF).enumerate() {
                assert_eq!(lanes.bytes(lane), LEAF as u64);
                assert_eq!(lanes.finish_lane(lane), algorithm.digest(leaf), "{algorithm}, lane {lane}");
                assert_eq!(lanes.bytes(lane), 0);
            }
        }
    }

    #[test]
    fn pieces_of_any_lanes_in_any_order_and_a_second_leaf_hash_like_the_whole() {
        let data = sample(10_000);
        for algorithm in Algorithm::ALL {
            let mut lanes = LaneDigests::new(algorithm, 3);
            lanes.update(&[(2, &data[..100]), (0, &data[..64]), (2, &data[100..101]), (2, &data[101..5000])]);
            lanes.update(&[]);
            lanes.update(&[(0, &data[64..]), (2, &data[5000..])]);
            assert_eq!(lanes.finish_lane(2), algorithm.digest(&data), "{algorithm}");
            assert_eq!(lanes.finish_lane(0), algorithm.digest(&data), "{algorithm}");
            assert_eq!(lanes.finish_lane(1), algorithm.digest(b""), "{algorithm}");
            lanes.update(&[(2, &data[..777])]);
            assert_eq!(lanes.finish_lane(2), algorithm.digest(&data[..777]), "{algorithm}, the next leaf");
        }
    }

    #[test]
    fn beginning_a_leaf_drops_what_was_hashed() {
        for algorithm in Algorithm::ALL.into_iter().chain([Algorithm::Blake3Tree]) {
            let mut lanes = LaneDigests::new(algorithm, 1);
            lanes.update_all(&[b"half a leaf"]);
            lanes.begin_leaf(0, 4096, 4096);
            lanes.update_all(&[b"another"]);
            let mut expected = Hasher::for_leaf(algorithm, 4096, 4096);
            expected.update(b"another");
            assert_eq!(lanes.finish_lane(0), expected.finish(), "{algorithm}");
        }
    }
}

//! Leaves that are read and hashed in step.

use std::ops::Range;

use whimbrel_engine::Fault;

use super::{Cutter, Digests, Leaves, STEP};
use crate::digest::{Algorithm, LaneDigests};

/// Most leaves walked in step.
const WIDEST: usize = 16;

/// Up to [`WIDEST`] leaves, each read up to some point.
pub(crate) struct Group {
    walks: Vec<Walk>,
    lanes: LaneDigests,
}

struct Walk {
    leaf: Range<u64>,
    at: u64,
}

impl Walk {
    fn left(&self) -> u64 {
        self.leaf.end - self.at
    }
}

/// The next piece of one of the leaves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) offset: u64,
    pub(crate) len: usize,
    walk: usize,
}

impl Group {
    /// The next leaves, as many as hash faster together, but not more than `most`; `None` when there are none.
    pub(crate) fn next(cutter: &mut Cutter, most: usize) -> Option<Self> {
        let Leaves { algorithm, size } = cutter.leaves;
        let leaves = cutter.by_ref().take(algorithm.useful_lanes().min(most).min(WIDEST));
        let walks: Vec<Walk> = leaves.map(|leaf| Walk { at: leaf.start, leaf }).collect();
        let mut lanes = (!walks.is_empty()).then(|| LaneDigests::new(algorithm, walks.len()))?;
        walks.iter().enumerate().for_each(|(lane, walk)| lanes.begin_leaf(lane, walk.at, size));
        Some(Self { walks, lanes })
    }

    /// Whether groups have more than one leaf.
    pub(crate) fn is_wide(algorithm: Algorithm) -> bool {
        algorithm.useful_lanes() > 1
    }

    /// Leaves that are not read to their end.
    pub(crate) fn unfinished(&self) -> usize {
        self.walks.iter().filter(|walk| walk.left() > 0).count()
    }

    /// The next pieces of up to `count` leaves, those that lag behind first, each of up to `most` bytes.
    pub(crate) fn pieces(&self, count: usize, most: usize) -> Vec<Piece> {
        let mut open: Vec<usize> = (0..self.walks.len()).filter(|&i| self.walks[i].left() > 0).collect();
        if open.len() > count {
            open.sort_by_key(|&i| self.walks[i].at - self.walks[i].leaf.start);
            open.truncate(count);
        }
        let piece = |walk: usize| {
            let one = &self.walks[walk];
            Piece { offset: one.at, len: one.left().min(most as u64) as usize, walk }
        };
        open.into_iter().map(piece).collect()
    }

    /// Reads `pieces` into the beginnings of `buffers` and hashes them, a step of each in turn, so that all is hashed
    /// while it is in cache; pieces as a whole where each read waits for storage (`past_cache`).
    ///
    /// `read` fills all of the slice it is given.
    pub(crate) fn load(
        &mut self,
        pieces: &[Piece],
        buffers: &mut [&mut [u8]],
        past_cache: bool,
        mut read: impl FnMut(u64, &mut [u8]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let longest = pieces.iter().map(|piece| piece.len).max().unwrap_or(0);
        let most = if past_cache { longest.max(1) } else { STEP };
        for from in (0..longest).step_by(most) {
            let step = |piece: &Piece| from.min(piece.len)..(from + most).min(piece.len);
            for (piece, buffer) in pieces.iter().zip(buffers.iter_mut()) {
                let part = step(piece);
                if !part.is_empty() {
                    read(piece.offset + from as u64, &mut buffer[part])?;
                }
            }
            let mut hashed: [&[u8]; WIDEST] = [&[]; WIDEST];
            for (piece, buffer) in pieces.iter().zip(buffers.iter()) {
                hashed[piece.walk] = &buffer[step(piece)];
            }
            self.lanes.update_all(&hashed[..self.walks.len()]);
        }
        for piece in pieces {
            self.walks[piece.walk].at += piece.len as u64;
        }
        Ok(())
    }

    /// The digests, when every leaf is read to its end.
    pub(crate) fn finish(mut self, digests: &Digests) -> Result<(), Fault> {
        let leaves = self.walks.into_iter().enumerate();
        leaves
            .map(|(lane, walk)| (walk.leaf, self.lanes.finish_lane(lane)))
            .try_for_each(|(leaf, digest)| digests.add(leaf, digest.to_string()))
    }
}

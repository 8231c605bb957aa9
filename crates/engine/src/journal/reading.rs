//! How a journal is read, at once or as it grows.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{BEGINNING, DIGEST_MAX, HEADER, HEADER_FIXED, HOLE, Header, LEAF, Leaf, MAGIC, Trusted, VERSION, Writer};
use crate::ranges::RangeSet;
use crate::records;

/// Most writers that have begun and not proven what they wrote. One that is gone stays only until its part is moved again.
const MOST_WRITERS: usize = 1024;

/// A journal as far as it was read.
///
/// A beginning opens its leaves to its writer, and one that is alone closes them to all others; a proof closes its leaf to whoever gave it.
/// A leaf counts while it has a proof and is open to nobody: then whoever wrote it has read the right bytes there afterwards, and whichever of
/// them was last has seen what all of them wrote.
#[derive(Debug, Clone, Default)]
pub struct Reading {
    header: Option<Header>,
    /// By their starts; the last record of each.
    leaves: BTreeMap<u64, Leaf>,
    holes: RangeSet,
    disputed: bool,
    /// What each writer has begun and not proven since; none is empty.
    open: Vec<(Writer, RangeSet)>,
    sound: usize,
    torn: bool,
}

impl Reading {
    /// Goes on with bytes that follow those which were sound: see [`Self::sound`].
    pub fn read(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some((kind, body, after)) = records::next(rest) {
            if self.take(kind, body).is_none() {
                break;
            }
            rest = after;
        }
        self.sound += bytes.len() - rest.len();
        self.torn = !rest.is_empty();
    }

    /// Length of the sound part, bytes.
    pub fn sound(&self) -> usize {
        self.sound
    }

    /// Whether anything follows the sound part.
    pub fn is_torn(&self) -> bool {
        self.torn
    }

    /// What the leaves are about; `None`: nothing is known.
    pub fn header(&self) -> Option<&Header> {
        self.header.as_ref()
    }

    /// Whether a leaf that has a byte of `range` counts as proven, or as a hole.
    pub fn counts_any_of(&self, range: &Range<u64>) -> bool {
        let Some(header) = &self.header else { return false };
        let leaves = header.leaves_of(range);
        let mut proven: RangeSet = self.leaves.range(leaves.clone()).map(|(_, leaf)| leaf.range.clone()).collect();
        proven.union_with(&self.holes.within(leaves));
        self.open.iter().for_each(|(_, open)| proven.subtract(open));
        !proven.is_empty()
    }

    /// Whether a proof of `leaf` by `writer` says anything: not where others write it, and this one does not, or does not any more.
    pub fn may_prove(&self, writer: Writer, leaf: &Range<u64>) -> bool {
        let mut open = self.open.iter().filter(|(_, open)| open.touches(leaf.clone())).peekable();
        open.peek().is_none() || open.any(|(other, _)| *other == writer)
    }

    /// All that can be trusted.
    pub fn trusted(self) -> Trusted {
        let mut open = RangeSet::new();
        self.open.iter().for_each(|(_, ranges)| open.union_with(ranges));
        let (withdrawn, leaves): (Vec<_>, Vec<_>) =
            self.leaves.into_values().partition(|leaf| open.touches(leaf.range.clone()));
        let mut holes = self.holes.clone();
        holes.subtract(&open);
        let mut lost = self.holes;
        lost.subtract(&holes);
        lost.union_with(&withdrawn.into_iter().map(|leaf| leaf.range).collect());
        let Self { header, disputed, sound, torn, .. } = self;
        Trusted { header, leaves, disputed, holes, withdrawn: lost, sound, torn }
    }

    /// Takes one record in; `None` when it is wrong.
    fn take(&mut self, kind: u8, body: &[u8]) -> Option<()> {
        if kind == HEADER {
            let header = decode_header(body)?;
            return (*self.header.get_or_insert_with(|| header.clone()) == header).then_some(());
        }
        let header = self.header.as_ref()?;
        let (range, writer, rest) = decode_span(body)?;
        match kind {
            LEAF if header.is_leaf(&range) && (1..=DIGEST_MAX).contains(&rest.len()) => {
                self.close(writer, &range);
                let leaf = Leaf { range, digest: rest.to_vec() };
                let known = self.leaves.insert(leaf.range.start, leaf.clone());
                self.disputed |= known.is_some_and(|known| known.digest != leaf.digest);
            }
            HOLE if header.is_leaves(&range) && rest.is_empty() => {
                self.close(writer, &range);
                self.holes.insert(range);
            }
            BEGINNING if header.is_leaves(&range) => return self.begin(writer, range, rest),
            _ => return None,
        }
        Some(())
    }

    fn begin(&mut self, writer: Writer, range: Range<u64>, alone: &[u8]) -> Option<()> {
        match alone {
            [1] => {
                self.open.iter_mut().for_each(|(_, open)| open.remove(range.clone()));
                self.open.retain(|(_, open)| !open.is_empty());
            }
            [0] => {}
            _ => return None,
        }
        match self.open.iter().position(|(other, _)| *other == writer) {
            Some(at) => self.open[at].1.insert(range),
            None if self.open.len() == MOST_WRITERS => return None,
            None => self.open.push((writer, RangeSet::from(range))),
        }
        Some(())
    }

    /// A writer has proven `range`.
    fn close(&mut self, writer: Writer, range: &Range<u64>) {
        let Some(at) = self.open.iter().position(|(other, _)| *other == writer) else { return };
        let (_, open) = &mut self.open[at];
        open.remove(range.clone());
        if open.is_empty() {
            self.open.swap_remove(at);
        }
    }
}

fn decode_header(body: &[u8]) -> Option<Header> {
    let (fixed, algorithm) = body.split_first_chunk::<HEADER_FIXED>()?;
    let (magic, fixed) = fixed.split_first_chunk::<8>()?;
    let (version, fixed) = fixed.split_first_chunk::<2>()?;
    let (size, fixed) = fixed.split_first_chunk::<8>()?;
    let (known, fixed) = fixed.split_first_chunk::<1>()?;
    let (seconds, fixed) = fixed.split_first_chunk::<8>()?;
    let (nanoseconds, fixed) = fixed.split_first_chunk::<4>()?;
    let leaf = fixed.first_chunk::<8>()?;
    if magic != MAGIC || u16::from_le_bytes(*version) != VERSION || known[0] > 1 {
        return None;
    }
    let modified = (i64::from_le_bytes(*seconds), u32::from_le_bytes(*nanoseconds));
    let header = Header {
        size: u64::from_le_bytes(*size),
        modified: (known[0] == 1).then_some(modified),
        leaf: u64::from_le_bytes(*leaf),
        algorithm: String::from_utf8(algorithm.to_vec()).ok()?,
    };
    header.is_valid().then_some(header)
}

/// What all bodies but a header's begin with: a range, and who has to do with it.
fn decode_span(body: &[u8]) -> Option<(Range<u64>, Writer, &[u8])> {
    let (start, body) = body.split_first_chunk::<8>()?;
    let (end, body) = body.split_first_chunk::<8>()?;
    let (writer, rest) = body.split_first_chunk::<8>()?;
    let range = u64::from_le_bytes(*start)..u64::from_le_bytes(*end);
    Some((range, Writer(u64::from_le_bytes(*writer)), rest))
}

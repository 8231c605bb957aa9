//! How a journal is read, at once or as it grows.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{BEGINNING, DIGEST_MAX, HEADER, HEADER_FIXED, HOLE, Header, LEAF, Leaf, MAGIC, Trusted, VERSION, Writer};
use crate::ranges::RangeSet;
use crate::records;

/// Most writers that have begun and not proven what they wrote. One that is gone stays only until its part is moved again.
const MOST_WRITERS: usize = 1024;

/// A journal as far as it was read: what of the file counts.
///
/// A beginning opens its leaves to its writer, and one that is alone closes them to all others; a proof closes its leaf to whoever gave it.
/// A leaf counts while it has a proof and is open to nobody: then whoever wrote it has read the right bytes there afterwards, and whichever of
/// them was last has seen what all of them wrote.
#[derive(Debug, Clone, Default)]
pub struct Reading {
    header: Option<Header>,
    /// Leaves and holes that have a proof.
    proven: RangeSet,
    /// What each writer has begun and not proven since; none is empty.
    open: Vec<(Writer, RangeSet)>,
    sound: usize,
    torn: bool,
}

/// A record that proves something.
struct Proof<'a> {
    range: Range<u64>,
    /// `None` of a hole.
    digest: Option<&'a [u8]>,
}

/// Reads a journal up to the first record that is torn or wrong.
///
/// A repeated header is harmless (two hosts may open a file at once); a different one is wrong.
pub fn decode(bytes: &[u8]) -> Trusted {
    let mut reading = Reading::default();
    let (mut all, mut holes, mut disputed) = (BTreeMap::<u64, Leaf>::new(), RangeSet::new(), false);
    reading.read_proofs(bytes, |Proof { range, digest }| match digest {
        None => holes.insert(range),
        Some(digest) => {
            let leaf = Leaf { range, digest: digest.to_vec() };
            disputed |= all.get(&leaf.range.start).is_some_and(|known| known.digest != leaf.digest);
            all.insert(leaf.range.start, leaf);
        }
    });
    let open = reading.open();
    let (withdrawn, leaves) = all.into_values().partition(|leaf| open.touches(leaf.range.clone()));
    let mut filled = holes.clone();
    holes.subtract(&open);
    filled.subtract(&holes);
    let Reading { header, sound, torn, .. } = reading;
    Trusted { header, leaves, disputed, holes, withdrawn, filled, sound, torn }
}

impl Reading {
    /// Goes on with bytes that follow those which were sound: see [`Self::sound`].
    pub fn read(&mut self, bytes: &[u8]) {
        self.read_proofs(bytes, |_| {});
    }

    fn read_proofs(&mut self, bytes: &[u8], mut proof: impl FnMut(Proof<'_>)) {
        let mut rest = bytes;
        while let Some((kind, body, after)) = records::next(rest) {
            match self.take(kind, body) {
                Some(proven) => proven.into_iter().for_each(&mut proof),
                None => break,
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
        let mut proven = self.proven.within(header.leaves_of(range));
        self.open.iter().for_each(|(_, open)| proven.subtract(open));
        !proven.is_empty()
    }

    /// What anybody has begun and not proven.
    fn open(&self) -> RangeSet {
        let mut all = RangeSet::new();
        self.open.iter().for_each(|(_, open)| all.union_with(open));
        all
    }

    /// Takes one record in, with what it proves; `None` when it is wrong.
    fn take<'a>(&mut self, kind: u8, body: &'a [u8]) -> Option<Option<Proof<'a>>> {
        if kind == HEADER {
            let header = decode_header(body)?;
            return (*self.header.get_or_insert_with(|| header.clone()) == header).then_some(None);
        }
        let header = self.header.as_ref()?;
        let (range, writer, rest) = decode_span(body)?;
        let digest = match kind {
            LEAF if header.is_leaf(&range) && (1..=DIGEST_MAX).contains(&rest.len()) => Some(rest),
            HOLE if header.is_leaves(&range) && rest.is_empty() => None,
            BEGINNING if header.is_leaves(&range) => return self.begin(writer, range, rest).map(|()| None),
            _ => return None,
        };
        self.close(writer, &range);
        self.proven.insert(range.clone());
        Some(Some(Proof { range, digest }))
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

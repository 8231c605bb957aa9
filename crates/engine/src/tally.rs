//! What a copy of a tree keeps at its destination of the files that are done, so that the same command goes on where an
//! earlier run of it was cut short.
//!
//! A tally is appended to, by one run after the other. A file is known by a mark: a digest of its place below the
//! destination and of the version of its source. Nothing is believed behind the first record that is torn or wrong. What a
//! run finds is believed of copies that nobody has changed since the tally was last written, which that run says in front of
//! its own records.

use std::collections::HashSet;

use crate::listing::Timestamp;
use crate::plan::Finished;
use crate::records;

const MAGIC: &[u8; 8] = b"whimtaly";
const VERSION: u8 = 1;

const HEADER: u8 = 1;
const DURABLE: u8 = 2;
const PERHAPS: u8 = 3;
const BOUND: u8 = 4;

/// Marks of one record.
const MOST_MARKS: usize = 4095;

/// Most runs that one tally is read of.
const MOST_RUNS: usize = 256;

/// Most files that a tally is read of; 16 bytes each in the file, some 40 in memory.
pub const MOST_FILES: usize = 4 << 20;

/// The place of a file and the version of its source.
pub type Mark = u128;

/// Which copy a tally is about: a digest of its sources, its destination, and what the user asked of it.
pub type Identity = [u8; 16];

/// What one run has written.
#[derive(Debug, Default)]
struct Run {
    durable: HashSet<Mark>,
    perhaps: HashSet<Mark>,
    /// Copies changed later are not what it left; `None`: the run that wrote last, about which the reader knows.
    until: Option<Timestamp>,
}

/// What a tally says as far as it can be trusted.
#[derive(Debug, Default)]
pub struct Tally {
    /// The last is that of the last run.
    runs: Vec<Run>,
    /// Length of the trusted part, bytes; 0: it is about another copy, or not readable.
    pub sound: usize,
}

/// The record a tally begins with.
pub fn encode_header(copy: &Identity) -> Vec<u8> {
    let mut bytes = Vec::new();
    records::append(HEADER, &[&MAGIC[..], &[VERSION], copy].concat(), &mut bytes);
    bytes
}

/// Records of files that are done; `durable`: a crash of the destination leaves them.
pub fn encode_files(marks: &[Mark], durable: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    for marks in marks.chunks(MOST_MARKS) {
        let body: Vec<u8> = marks.iter().flat_map(|mark| mark.to_le_bytes()).collect();
        records::append(if durable { DURABLE } else { PERHAPS }, &body, &mut bytes);
    }
    bytes
}

/// The record that a run writes in front of its own: what is before it holds for copies last changed by `until`.
pub fn encode_bound(until: Timestamp) -> Vec<u8> {
    let mut bytes = Vec::new();
    records::append(BOUND, &[&until.secs.to_le_bytes()[..], &until.nanos.to_le_bytes()].concat(), &mut bytes);
    bytes
}

impl Tally {
    /// Reads a tally of `copy` up to the first record that is torn or wrong.
    pub fn decode(bytes: &[u8], copy: &Identity) -> Self {
        let mut tally = Self::default();
        let Some((HEADER, body, mut rest)) = records::next(bytes) else { return tally };
        if body != [&MAGIC[..], &[VERSION], copy].concat() {
            return tally;
        }
        tally.runs.push(Run::default());
        while let Some((kind, body, after)) = records::next(rest)
            && tally.take(kind, body)
        {
            rest = after;
        }
        tally.sound = bytes.len() - rest.len();
        tally
    }

    /// Takes one record; `false`: it is wrong, or more than is taken.
    fn take(&mut self, kind: u8, body: &[u8]) -> bool {
        let marks = body.chunks_exact(size_of::<Mark>());
        let whole = marks.remainder().is_empty() && self.files() + marks.len() <= MOST_FILES;
        let runs = self.runs.len();
        let Some(run) = self.runs.last_mut() else { return false };
        let marks = marks.filter_map(|mark| mark.try_into().ok()).map(Mark::from_le_bytes);
        match (kind, timestamp(body)) {
            (DURABLE, _) if whole => run.durable.extend(marks),
            (PERHAPS, _) if whole => run.perhaps.extend(marks),
            (BOUND, Some(until)) if runs < MOST_RUNS => {
                run.until = Some(until);
                self.runs.push(Run::default());
            }
            _ => return false,
        }
        true
    }

    /// How many files it names.
    pub fn files(&self) -> usize {
        self.runs.iter().map(|run| run.durable.len() + run.perhaps.len()).sum()
    }

    /// What it says of a file whose copy was last changed at `changed`, where the tally itself was at `written`. The time
    /// of a copy that was set says nothing: then `changed` is `None`.
    pub fn finished(&self, mark: Mark, changed: Option<Timestamp>, written: Timestamp) -> Finished {
        let unchanged = |run: &&Run| changed.is_none_or(|at| is_within(at, run.until.unwrap_or(written)));
        let of = |files: fn(&Run) -> &HashSet<Mark>| {
            self.runs.iter().filter(unchanged).any(|run| files(run).contains(&mark))
        };
        match () {
            () if of(|run| &run.durable) => Finished::Yes,
            () if of(|run| &run.perhaps) => Finished::Perhaps,
            () => Finished::No,
        }
    }
}

/// Whether something happened by `until`; where one of the two is told in whole seconds, only seconds before count.
fn is_within(at: Timestamp, until: Timestamp) -> bool {
    if at.nanos == 0 || until.nanos == 0 {
        at.secs < until.secs
    } else {
        (at.secs, at.nanos) <= (until.secs, until.nanos)
    }
}

fn timestamp(body: &[u8]) -> Option<Timestamp> {
    let (secs, nanos) = body.split_first_chunk::<8>()?;
    let nanos = u32::from_le_bytes(nanos.try_into().ok()?);
    (nanos < 1_000_000_000).then_some(Timestamp { secs: i64::from_le_bytes(*secs), nanos })
}

#[cfg(test)]
mod tests {
    use super::*;

    const COPY: Identity = [7; 16];

    fn at(secs: i64, nanos: u32) -> Timestamp {
        Timestamp { secs, nanos }
    }

    fn written(records: &[Vec<u8>]) -> Vec<u8> {
        [encode_header(&COPY), records.concat()].concat()
    }

    #[test]
    fn files_are_known_again_as_they_were_left() {
        let many: Vec<Mark> = (100..10_000).collect();
        let bytes = written(&[encode_files(&[1, 2], true), encode_files(&[3], false), encode_files(&many, true)]);
        let tally = Tally::decode(&bytes, &COPY);
        assert_eq!((tally.sound, tally.files()), (bytes.len(), 9903));
        let finished = |mark| tally.finished(mark, Some(at(10, 5)), at(10, 5));
        assert_eq!([1, 3, 4, 9999].map(finished), [Finished::Yes, Finished::Perhaps, Finished::No, Finished::Yes]);
        assert_eq!(tally.finished(1, None, at(0, 0)), Finished::Yes, "its time was set");
    }

    #[test]
    fn what_was_changed_after_a_run_is_not_what_that_run_left() {
        let bytes = written(&[encode_files(&[1, 2], true), encode_bound(at(10, 7)), encode_files(&[2, 3], true)]);
        let tally = Tally::decode(&bytes, &COPY);
        let finished = |mark, changed| tally.finished(mark, Some(changed), at(20, 7));
        assert_eq!(finished(1, at(10, 7)), Finished::Yes);
        assert_eq!(finished(1, at(10, 8)), Finished::No, "a later run does not vouch for what it did not do");
        assert_eq!(finished(2, at(15, 1)), Finished::Yes, "moved again by it");
        assert_eq!((finished(3, at(20, 7)), finished(3, at(20, 8))), (Finished::Yes, Finished::No));
        // Whole seconds: within the last one nobody knows.
        assert_eq!((finished(3, at(20, 0)), finished(3, at(19, 0))), (Finished::No, Finished::Yes));
    }

    #[test]
    fn another_copy_and_what_is_torn_or_changed_are_not_believed() {
        let bytes = written(&[encode_files(&[1], true), encode_files(&[2], true)]);
        assert_eq!(Tally::decode(&bytes, &[8; 16]).sound, 0);
        let first = written(&[encode_files(&[1], true)]).len();
        for end in 0..bytes.len() {
            let tally = Tally::decode(&bytes[..end], &COPY);
            assert!(tally.files() <= 1 && tally.sound <= end);
            assert_eq!(tally.files() == 1, end >= first);
        }
        for place in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[place] ^= 1;
            let tally = Tally::decode(&flipped, &COPY);
            assert_eq!(tally.files(), usize::from(place >= first), "{place}");
        }
        // A gap, as where somebody has removed the beginning.
        let gap = [vec![0; 40], bytes].concat();
        assert_eq!((Tally::decode(&gap, &COPY).sound, Tally::decode(&[], &COPY).files()), (0, 0));
    }

    #[test]
    fn nobody_makes_a_reader_remember_without_bound() {
        let run = |n: i64| encode_bound(at(n, 1));
        let bytes = written(&(0..1000).map(run).collect::<Vec<_>>());
        let tally = Tally::decode(&bytes, &COPY);
        assert!(tally.runs.len() == MOST_RUNS && tally.sound < bytes.len());
        let mut odd = Vec::new();
        records::append(DURABLE, &[1; 17], &mut odd);
        assert_eq!(Tally::decode(&written(&[odd]), &COPY).files(), 0);
    }
}
